/* SPDX-License-Identifier: MIT */
/*
 * Goal: a hostile file costs little: 8 MiB of a header, in depth 16, are refused after few steps
 * and with at most 16 times their size in memory, and neither grows faster than the file. Method:
 * one trick repeated until the file is full, and once until an eighth of it is; the steps of Weir's
 * loops (steps.h; a busy machine does not matter), and what an allocator counts: its calls, all
 * bytes, their peak; and the peak of the process, which sees what bypasses the allocator.
 */
#include "io/malformed.h"

#include "io/io_memory.h"
#include "steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGE (test_count((size_t)8 << 20, (size_t)16 << 20))
#define SMALL (LARGE / 8)
#define MEMORY_MAX 16
/* Eight times the bytes may take eight times the steps and a little more, since sorting does; the
 * small one may stop elsewhere, and what is little is not compared. */
#define GROWTH_MAX 10
/* Of a byte; measured: at most 5.3, 15.7 and 2.1. Debug builds take more. */
#define STEPS_SAFETENSORS 20
#define STEPS_TABLE 60
#define STEPS_MODEL 10
#define STEPS_LAYER 200 /* and 26 of a layer with a name */
#define STEPS_FREE ((uint64_t)1 << 20)
#define CALLS_FREE 1024
#define ACQUIRED_FREE ((size_t)1 << 20)

/** `head`, then `unit` again and again with %x counting up, then `tail`. As in the sets of
 * malformed files, a ' reads as a ". */
struct hostile {
    const struct malformed_set *set;
    const char *name;
    int status;
    const char *part;
    const char *head, *unit, *tail;
};

#define P16 "pppppppppppppppp"
#define P256 P16 P16 P16 P16 P16 P16 P16 P16 P16 P16 P16 P16 P16 P16 P16 P16
#define REST "':{'dtype':'U8','shape':[0],'data_offsets':[0,0]}"
#define LAYERS "{'input':{'dtype':'f32','shape':[3]},'target':null,'loss':null,'layers':["
static const struct hostile list[] = {
#define HEADER(name, part, head, unit, tail)                                                       \
    { &malformed_safetensors, name, WEIR_ERR_FORMAT, part, head, unit, tail }
    HEADER("tiny keys", "is not an object", "{'x':1", ",'%x':1", "}"),
    HEADER("tiny lists", "is not an object", "{'x':[", "[],", "[]]}"),
    HEADER("tiny objects", "is not an object", "{'x':[", "{},", "{}]}"),
    HEADER("lists in lists", "is not an object", "{'x':", "[", ""),
    HEADER("objects in objects", "the unknown key", "{'x':", "{'x':", ""),
    HEADER("one long name", "is not an object", "{'", P256, "':1}"),
    HEADER("one long name of escapes", "is not an object", "{'", "\\u00e9\\n\\ud83d\\ude00",
           "':1}"),
    HEADER("one long name that does not end", "does not end", "{'", P256, ""),
    HEADER("one long text in the metadata", "not text", "{'__metadata__':{'a':'", P256,
           "','b':1}}"),
    HEADER("tiny metadata", "not text, at 'x'", "{'__metadata__':{'':''", ",'%x':''", ",'x':1}}"),
    HEADER("metadata with long equal beginnings", "a key twice: 'ppp", "{'__metadata__':{'':''",
           ",'" P256 "%x':''", ",'" P256 "1':''}}"),
    HEADER("many tensors, one twice", "a key twice: '1'", "{'" REST, ",'%x" REST, ",'1" REST "}"),
    HEADER("many tensors with long equal beginnings", "a key twice: 'ppp", "{'" REST,
           ",'" P256 "%x" REST, ",'" P256 "1" REST "}"),
    HEADER("many tensors, the last cut", "',' or '}' is missing", "{'" REST, ",'%x" REST, ""),
    HEADER("many tensors, a byte too much", "is U8 [], 1 bytes", "{'" REST, ",'%x" REST,
           ",'y':{'dtype':'U8','shape':[],'data_offsets':[0,0]}}"),
    HEADER("one long number", "is no integer", "{'x':{'shape':[", "1111111111111111", "]}}"),
    HEADER("one long shape", "is no integer", "{'x':{'shape':[1,1,1,1,1,1,1,-1", ",1", "]}}"),
    HEADER("unknown keys", "the unknown key", "{'x':{'a':1", ",'%x':1", "}}"),
    HEADER("spaces", "a string is missing", "{", "\n \t\r            ", "x}"),
    HEADER("bad UTF-8 at the end", "not UTF-8", "{'", "\303\251\342\202\254", "\377':1}"),
#undef HEADER
#define TABLE(name, status, part, head, unit, tail)                                                \
    { &malformed_csv, name, status, part, head, unit, tail }
    TABLE("bad cells", WEIR_ERR_FORMAT, "cell 256", "", "x,", ""),
    TABLE("bad lines", WEIR_ERR_FORMAT, "line 256", "", "x\n", ""),
    TABLE("one long cell", WEIR_ERR_FORMAT, "does not begin with a stage", "", P256, ""),
    TABLE("one long number", WEIR_ERR_FORMAT, "needs a micro-batch", "0F", "1111111111111111", ""),
    TABLE("commas", WEIR_ERR_FORMAT, "no action", "", ",", ""),
    TABLE("line ends", WEIR_ERR_FORMAT, "no action", "", "\r\n", ""),
    TABLE("brackets", WEIR_ERR_FORMAT, "is no overlap", "", "(", ""),
    TABLE("one long overlap", WEIR_ERR_SCHEDULE, "stands twice", "(", "0F0;", "0B0)OVERLAP_F_B"),
    TABLE("quotes", WEIR_ERR_FORMAT, "stands behind a closing quote", "", "\"\"\"", ""),
    TABLE("communication", WEIR_ERR_FORMAT, "no action", "", "1WAIT_REDUCE_GRAD%u,", ""),
    TABLE("one action again and again", WEIR_ERR_SCHEDULE, "stands twice", "", "0F0,", "0B0"),
    TABLE("one update again and again", WEIR_ERR_SCHEDULE, "stands twice", "0F0,0B0", ",0U", ""),
    TABLE("forwards alone", WEIR_ERR_SCHEDULE, "is missing", "", "0F%u,", ""),
    TABLE("stages alone", WEIR_ERR_FORMAT, "does not begin with a stage", "0F0", ",%uF0", ""),
    TABLE("rows of one action", WEIR_ERR_SCHEDULE, "stands in the lines of", "", "0F%u\n", ""),
    TABLE("a backward first", WEIR_ERR_SCHEDULE, "stands before", "", "0B%1$u,0F%1$u,", ""),
    TABLE("half of what is needed", WEIR_ERR_SCHEDULE, "is missing", "0F0", ",0F%u", ""),
    TABLE("less than half of that", WEIR_ERR_SCHEDULE, "need at least", "1F0", ",0F%u", ""),
    TABLE("all waiting", WEIR_ERR_SCHEDULE, "deadlock", "1F0,0F0,1B0,0B0",
          ",1F%1$u,0F%1$u,1B%1$u,0B%1$u", ""),
#undef TABLE
#define MODEL(name, status, part, head, unit, tail)                                                \
    { &malformed_model, name, status, part, head, unit, tail }
    MODEL("tiny values", WEIR_ERR_FORMAT, "at most 1048576 values", LAYERS "1", ",1", "]}"),
    MODEL("tiny objects", WEIR_ERR_FORMAT, "at most 1048576 values", LAYERS "[", "{},", "{}]]}"),
    MODEL("lists in lists", WEIR_ERR_FORMAT, "at most 1048576 values", LAYERS, "[", ""),
    MODEL("one long name", WEIR_ERR_ARGUMENT, "must be an object with a type", LAYERS "'", P256,
          "']}"),
    MODEL("one long name that does not end", WEIR_ERR_FORMAT, "premature end", LAYERS "'", P256,
          ""),
    MODEL("spaces", WEIR_ERR_FORMAT, "end of file", "{", "                ", ""),
    MODEL("layers of an unknown type", WEIR_ERR_ARGUMENT, "there is no type", LAYERS "1",
          ",{'type':'" P256 "'}", "]}"),
    MODEL("long names", WEIR_ERR_ARGUMENT, "is longer than 48 bytes", LAYERS "1",
          ",{'type':'relu','name':'" P256 "%x'}", "]}"),
    MODEL("members that a model does not have", WEIR_ERR_ARGUMENT, "no member '1'", "{'0':1",
          ",'%x':'" P16 P16 "'", "}"),
#undef MODEL
};

/* ---- making ---- */

/* A file of at most `bytes`; the text is the caller's. */
static bool make(const struct hostile *hostile, size_t bytes, struct malformed *out) {
    char *text = malloc(bytes + 4096);
    size_t used = strlen(hostile->head), tail = strlen(hostile->tail);
    if (!EXPECT(text)) return false;
    memcpy(text, hostile->head, used);
    size_t unit = strlen(hostile->unit);
    bool counts = strchr(hostile->unit, '%') != NULL;
    for (; !counts && used + tail + unit < bytes; used += unit) {
        memcpy(text + used, hostile->unit, unit);
    }
    for (unsigned i = 1; counts && used + tail + 2 * unit + 64 < bytes; i++) {
        /* The units are the table's above. */
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wformat-nonliteral"
        used += (size_t)snprintf(text + used, 4096, hostile->unit, i);
#pragma clang diagnostic pop
    }
    memcpy(text + used, hostile->tail, tail);
    *out = (struct malformed){hostile->name, hostile->status, hostile->part, text, used + tail, 0,
                              false};
    return true;
}

/* ---- measuring ---- */

/* Counts what is live and its peak, and all that was ever asked for; memory is the C library's. One
 * thread. */
struct counter {
    size_t live, peak, calls, acquired;
};

static void *counted_acquire(void *context, size_t bytes, size_t alignment) {
    struct counter *counter = context;
    size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    void *memory = aligned_alloc(alignment, rounded);
    if (memory) counter->live += bytes;
    counter->calls++;
    counter->acquired += bytes;
    if (counter->live > counter->peak) counter->peak = counter->live;
    return memory;
}

static void counted_release(void *context, void *memory, size_t bytes) {
    struct counter *counter = context;
    counter->live -= memory ? bytes : 0;
    free(memory);
}

/* KiB of a line of /proc/self/status; 0 where there is none. */
static size_t process_kib(const char *key) {
    char line[256];
    size_t kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) == 0) kib = strtoull(line + strlen(key), NULL, 10);
    }
    if (file) fclose(file);
    return kib;
}

/* Makes VmHWM begin at what is resident now; false where the kernel has no such thing. */
static bool reset_process_peak(void) {
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file) return false;
    bool written = fputs("5", file) >= 0;
    return fclose(file) == 0 && written;
}

struct cost {
    uint64_t steps;
    size_t calls, acquired; /* of the allocator, and the sum of their bytes */
    size_t allocated;       /* peak */
    size_t process_bytes;   /* growth of the process; 0: not known */
};

static void refuse(const struct hostile *hostile, bool exactly, struct cost *cost) {
    static char message[1 << 17];
    struct counter counter = {0};
    struct weir_allocator allocator = {counted_acquire, counted_release, &counter};
    struct weir__io io = {.allocator = &allocator, .calls = io_memory_calls()};
    bool known = reset_process_peak();
    size_t before = process_kib("VmRSS:");
    uint64_t start = test_steps();
    int status = hostile->set->read(&io, "hostile", message, sizeof message);
    cost->steps = test_steps() - start;
    EXPECT(cost->steps > 0);
    cost->calls = counter.calls;
    cost->acquired = counter.acquired;
    cost->allocated = counter.peak;
    cost->process_bytes = known ? (process_kib("VmHWM:") - before) * 1024 : 0;
    EXPECT(status != WEIR_OK);
    if (exactly) EXPECT_STATUS(status, hostile->status);
    if (exactly) EXPECT_CONTAINS(message, hostile->part);
    EXPECT_EQ_UINT(counter.live, 0);
}

/* Of a file of so many bytes; `exactly`: refused by status and message, not anyhow. */
static void measure(const struct hostile *hostile, size_t bytes, bool exactly, struct cost *cost) {
    struct malformed malformed;
    size_t count = 0;
    memset(cost, 0, sizeof *cost);
    if (!make(hostile, bytes, &malformed)) return;
    char *whole = malformed_bytes(hostile->set, &malformed, &count);
    free((char *)malformed.text);
    if (!whole) return;
    io_memory_file(whole, count);
    refuse(hostile, exactly, cost);
    free(whole);
}

/* ---- */

static void check_costs(const struct hostile *hostile, uint64_t steps_per_byte) {
    struct cost small, large;
    measure(hostile, SMALL, false, &small); /* some limits are for large files only */
    measure(hostile, LARGE, true, &large);
    EXPECT(large.steps <= steps_per_byte * LARGE);
    EXPECT(large.steps <= GROWTH_MAX * small.steps + STEPS_FREE);
    EXPECT(large.calls <= GROWTH_MAX * small.calls + CALLS_FREE);
    EXPECT(large.acquired <= GROWTH_MAX * small.acquired + ACQUIRED_FREE);
    EXPECT(small.allocated <= MEMORY_MAX * SMALL);
    EXPECT(large.allocated <= MEMORY_MAX * LARGE);
    EXPECT(test_is_sanitized() || large.process_bytes <= MEMORY_MAX * LARGE);
    if (!test_has_failed()) return;
    TEST_FAIL("%s, %s: %llu steps (%llu for %zu MiB), %zu allocations (%zu) of %zu bytes (%zu), "
              "at most %zu at once, %zu of the process",
              hostile->set->format, hostile->name, (unsigned long long)large.steps,
              (unsigned long long)small.steps, SMALL >> 20, large.calls, small.calls,
              large.acquired, small.acquired, large.allocated, large.process_bytes);
}

static void check_format(const struct malformed_set *set, uint64_t steps_per_byte) {
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        if (list[i].set == set) check_costs(&list[i], steps_per_byte);
        CHECK_HELPERS();
    }
}

static void test_a_hostile_safetensors_header_is_refused_fast_and_small(void) {
    check_format(&malformed_safetensors, STEPS_SAFETENSORS);
}

static void test_a_hostile_table_is_refused_fast_and_small(void) {
    check_format(&malformed_csv, STEPS_TABLE);
}

/* A list of layers is bounded by their number, not by bytes: as many as there may be, each with a
 * name. */
static void test_as_many_layers_as_there_may_be_are_read_fast(void) {
    static const struct hostile many = {&malformed_model,
                                        "layers with names",
                                        WEIR_ERR_EXISTS,
                                        "the name 'a1' is layer 1's already",
                                        LAYERS "{'type':'gelu'}",
                                        ",{'type':'relu','name':'a%x'}",
                                        ",{'type':'relu','name':'a1'}]}"};
    struct cost cost;
    measure(&many, 1900000, true, &cost); /* 64,000 layers */
    EXPECT(cost.steps <= STEPS_LAYER * 64000);
    EXPECT(cost.allocated <= (size_t)128 << 20);
    if (test_has_failed())
        TEST_FAIL("%llu steps, %zu bytes", (unsigned long long)cost.steps, cost.allocated);
}

static void test_a_hostile_model_is_refused_fast_and_small(void) {
    check_format(&malformed_model, STEPS_MODEL);
}

WEIR_TEST_SUITE(hostile, TEST(a_hostile_safetensors_header_is_refused_fast_and_small),
                TEST(a_hostile_table_is_refused_fast_and_small),
                TEST(a_hostile_model_is_refused_fast_and_small),
                TEST(as_many_layers_as_there_may_be_are_read_fast))
