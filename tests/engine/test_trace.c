/* SPDX-License-Identifier: MIT */
/*
 * Goal: traces say what happened, to the nanosecond, in a form that other programs read. Method: a
 * small pipe runs; where a drawing or an arrow must be exact, the step's stamps are replaced by a
 * replay of its table with round times. JSON is read back by jansson.
 */
#include "harness.h"

#include "trace/trace.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MS UINT64_C(1000000)

/* ---- a pipe ---- */

static int stage_forward(void *context, const struct weir_task *task) {
    const float *x = task->inputs[0].data;
    float *y = task->outputs[0].data;
    for (int64_t i = 0; i < task->rows; i++) y[i] = x[i] + 1.0f;
    *task->loss = 0.0;
    return context != NULL ? *(const int *)context : 0;
}

static int stage_backward(void *context, const struct weir_task *task) {
    float *gradient = task->input_grads[0].data;
    for (int64_t i = 0; gradient != NULL && i < task->rows; i++) gradient[i] = 1.0f;
    return 0;
}

static int stage_recompute(void *context, const struct weir_task *task) {
    return 0;
}

static const struct weir_stage_calls stage_calls = {
    .forward = stage_forward, .backward = stage_backward, .recompute = stage_recompute};

enum { STAGES_MOST = 4, ROWS = 4, TEXT_BYTES = 1 << 20 };

struct fixture {
    struct weir_pipe *pipe;
    int failure; /* what forward returns on the last stage */
};

static bool make_pipe(struct fixture *fixture, uint32_t stages, uint32_t workers,
                      const char *const *names) {
    struct weir_tensor x = {.dtype = WEIR_F32, .differentiable = true};
    struct weir_input input = {.tensor = x, .name = "x"};
    struct weir_stage list[STAGES_MOST];
    fixture->pipe = NULL;
    fixture->failure = 0;
    for (uint32_t s = 0; s < stages; s++) {
        list[s] = (struct weir_stage)WEIR_STAGE_INIT;
        list[s].calls = &stage_calls;
        list[s].outputs = &x;
        list[s].output_count = 1;
        list[s].name = names != NULL ? names[s] : NULL;
        if (s == stages - 1) list[s].context = &fixture->failure;
    }
    struct weir_pipe_options options = WEIR_PIPE_OPTIONS_INIT;
    options.allocator = test_allocator();
    options.stages = list;
    options.stage_count = stages;
    options.inputs = &input;
    options.input_count = 1;
    options.rows = options.chunks = ROWS;
    options.workers = workers;
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    options.wait = WEIR_WAIT_PARK;
    options.bind = "none";
    return EXPECT_STATUS(weir_pipe_new(&options, NULL, &fixture->pipe), WEIR_OK);
}

static int run_step(struct fixture *fixture) {
    const float x[ROWS] = {0};
    const void *inputs[1] = {x};
    struct weir_step step = WEIR_STEP_INIT;
    struct weir_step_result result;
    step.rows = ROWS;
    step.inputs = inputs;
    return weir_pipe_step(fixture->pipe, &step, &result);
}

/* The last step's stamps become those of a replay: F 2 ms, B 4 ms, N 1 ms, U 1 ms. */
static bool replace_times(struct weir_pipe *pipe) {
    static const double ms[WEIR_KIND_COUNT] = {
        [WEIR_KIND_F] = 2, [WEIR_KIND_B] = 4, [WEIR_KIND_N] = 1, [WEIR_KIND_U] = 1};
    const struct weir__row_plan *prepared = pipe->prepared[0];
    const struct weir_table *table = prepared->table;
    double duration[64], start[64], end[64], makespan;
    if (!EXPECT(table->action_count <= 64)) return false;
    for (uint32_t a = 0; a < table->action_count; a++) duration[a] = ms[table->actions[a].kind];
    int status = weir__table_replay(table, &prepared->deps, duration, NULL, start, end, &makespan,
                                    test_allocator());
    if (!EXPECT_STATUS(status, WEIR_OK)) return false;
    for (uint32_t w = 0; w < table->worker_count; w++) {
        uint64_t free = 5 * MS;
        for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
            struct weir_trace_event *event =
                weir__worker_event(&pipe->workers[w], a - table->lines[w]);
            event->waited = free;
            event->start = 5 * MS + (uint64_t)start[a] * MS;
            event->end = free = 5 * MS + (uint64_t)end[a] * MS;
            event->waited_for = event->start > event->waited ? (int32_t)(1 - w % 2) : -1;
        }
    }
    return true;
}

/* ---- writing ---- */

struct sink {
    char *text; /* TEXT_BYTES of the test's allocator, always ended by 0 */
    size_t used;
    size_t largest; /* the longest piece */
    int calls;
    int fail_at; /* this call and every later one fails; 0: none */
};

static int sink_write(void *context, const char *text, size_t bytes) {
    struct sink *sink = context;
    sink->calls++;
    if (sink->fail_at > 0 && sink->calls >= sink->fail_at) return 70 + sink->calls;
    if (bytes > sink->largest) sink->largest = bytes;
    if (sink->used + bytes >= TEXT_BYTES) return WEIR_ERR_IO;
    memcpy(sink->text + sink->used, text, bytes);
    sink->used += bytes;
    sink->text[sink->used] = 0;
    return WEIR_OK;
}

static struct sink sink_new(void) {
    return (struct sink){.text = weir__acquire(test_allocator(), TEXT_BYTES, 1)};
}

static void sink_destroy(struct sink *sink) {
    weir__release(test_allocator(), sink->text, TEXT_BYTES, 1);
}

static void sink_empty(struct sink *sink) {
    sink->used = 0;
    sink->text[0] = 0;
}

/* The "traceEvents" of the pipe's trace; the root is the caller's. */
static json_t *read_trace(const struct weir_pipe *pipe, json_t **events) {
    struct sink sink = sink_new();
    json_error_t error;
    json_t *root = NULL;
    *events = NULL;
    if (EXPECT_STATUS(weir_pipe_trace_chrome(pipe, sink_write, &sink), WEIR_OK)) {
        root = json_loadb(sink.text, sink.used, JSON_REJECT_DUPLICATES, &error);
        if (root == NULL) TEST_FAIL("line %d: %s", error.line, error.text);
        *events = json_object_get(root, "traceEvents");
        EXPECT(json_is_array(*events));
    }
    sink_destroy(&sink);
    return root;
}

static const char *text_of(const json_t *event, const char *key) {
    const char *text = json_string_value(json_object_get(event, key));
    return text != NULL ? text : "";
}

static int64_t number_of(const json_t *event, const char *key) {
    return json_integer_value(json_object_get(event, key));
}

static uint64_t ns_of(const json_t *event, const char *key) {
    return (uint64_t)llround(json_number_value(json_object_get(event, key)) * 1e3);
}

static bool is(const json_t *event, const char *phase, const char *category) {
    return strcmp(text_of(event, "ph"), phase) == 0 &&
           (category == NULL || strcmp(text_of(event, "cat"), category) == 0);
}

/* The slice of a worker that holds the time, waits left out; NULL if none or several do. */
static const json_t *slice_at(const json_t *events, int64_t worker, uint64_t ns) {
    const json_t *found = NULL;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (!is(event, "X", NULL) || is(event, "X", "wait")) continue;
        uint64_t start = ns_of(event, "ts"), end = start + ns_of(event, "dur");
        if (number_of(event, "tid") != worker || ns < start || ns >= end) continue;
        if (found != NULL) return NULL;
        found = event;
    }
    return found;
}

/* ---- the Chrome trace ---- */

static void test_chrome_has_a_named_track_per_worker(void) {
    struct fixture fixture;
    json_t *events;
    CHECK(make_pipe(&fixture, 4, 2, NULL));
    CHECK_OK(run_step(&fixture));
    json_t *root = read_trace(fixture.pipe, &events);
    uint32_t named = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (strcmp(text_of(event, "name"), "thread_name") != 0) continue;
        const char *name = text_of(json_object_get(event, "args"), "name");
        EXPECT(is(event, "M", NULL));
        EXPECT_EQ_INT(number_of(event, "tid"), named);
        EXPECT_EQ_STR(name, named == 0 ? "worker 0 · unbound · stages 0,2"
                                       : "worker 1 · unbound · stages 1,3");
        named++;
    }
    EXPECT_EQ_UINT(named, 2);
    json_decref(root);
    weir_pipe_destroy(fixture.pipe);
}

/* The k-th slice of a worker's track is its k-th kept event. */
static void check_worker(const struct weir_pipe *pipe, const json_t *events, uint32_t worker,
                         uint64_t origin) {
    struct weir_trace_event kept[64];
    uint32_t count = weir_pipe_trace(pipe, worker, 64, kept), seen = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i), *args = json_object_get(event, "args");
        if (!is(event, "X", NULL) || is(event, "X", "wait")) continue;
        if (number_of(event, "tid") != worker) continue;
        CHECK(seen < count);
        const struct weir_trace_event *expected = &kept[seen++];
        char name[32], kind[2] = {weir__kinds[expected->action.kind].letter, 0};
        CHECK_EQ_STR(text_of(event, "name"), weir__trace_name(&expected->action, name));
        CHECK_EQ_STR(text_of(event, "cat"), weir__kinds[expected->action.kind].name);
        CHECK_EQ_UINT(ns_of(event, "ts"), expected->start - origin);
        CHECK_EQ_UINT(ns_of(event, "dur"), expected->end - expected->start);
        CHECK_EQ_UINT(ns_of(args, "waited_us"), expected->start - expected->waited);
        CHECK_EQ_INT(number_of(args, "waited_for"), expected->waited_for);
        CHECK_EQ_INT(number_of(args, "stage"), expected->action.stage);
        CHECK_EQ_INT(number_of(args, "micro_batch"), expected->action.micro_batch);
        CHECK_EQ_INT(number_of(args, "step"), (int64_t)expected->step);
        CHECK_EQ_STR(text_of(args, "kind"), kind);
    }
    CHECK_EQ_UINT(seen, count);
}

static void test_chrome_has_every_event_to_the_nanosecond(void) {
    struct fixture fixture;
    struct weir_trace_event oldest;
    json_t *events;
    CHECK(make_pipe(&fixture, 3, 3, NULL));
    for (int i = 0; i < 5; i++) CHECK_OK(run_step(&fixture));
    json_t *root = read_trace(fixture.pipe, &events);
    uint64_t origin = UINT64_MAX;
    for (uint32_t w = 0; w < 3; w++) {
        oldest = *weir__trace_event_at(&fixture.pipe->workers[w], 0);
        if (oldest.waited < origin) origin = oldest.waited;
    }
    for (uint32_t w = 0; w < 3; w++) check_worker(fixture.pipe, events, w, origin);
    json_decref(root);
    weir_pipe_destroy(fixture.pipe);
}

static void test_chrome_waits_are_slices_of_their_own(void) {
    struct fixture fixture;
    json_t *events;
    CHECK(make_pipe(&fixture, 2, 2, NULL));
    CHECK_OK(run_step(&fixture));
    CHECK(replace_times(fixture.pipe));
    json_t *root = read_trace(fixture.pipe, &events);
    uint64_t waited = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (!is(event, "X", "wait")) continue;
        EXPECT_EQ_STR(text_of(event, "name"), "wait");
        EXPECT(slice_at(events, number_of(event, "tid"), ns_of(event, "ts")) == NULL);
        EXPECT(slice_at(events, number_of(event, "tid"), ns_of(event, "ts") + ns_of(event, "dur")));
        waited += ns_of(event, "dur");
    }
    uint64_t expected = 0;
    for (uint32_t w = 0; w < 2; w++)
        for (uint32_t i = 0; i < weir__trace_count(&fixture.pipe->workers[w]); i++) {
            const struct weir_trace_event *e = weir__trace_event_at(&fixture.pipe->workers[w], i);
            expected += e->start - e->waited;
        }
    EXPECT(expected > 0);
    EXPECT_EQ_UINT(waited, expected);
    json_decref(root);
    weir_pipe_destroy(fixture.pipe);
}

static void check_arrow(const json_t *events, const json_t *tail, const json_t *head) {
    const json_t *from = slice_at(events, number_of(tail, "tid"), ns_of(tail, "ts"));
    const json_t *to = slice_at(events, number_of(head, "tid"), ns_of(head, "ts"));
    CHECK(from != NULL);
    CHECK(to != NULL);
    CHECK_EQ_INT(number_of(tail, "id"), number_of(head, "id"));
    CHECK_EQ_STR(text_of(head, "bp"), "e");
    CHECK_EQ_UINT(ns_of(to, "ts"), ns_of(head, "ts"));
    const json_t *args = json_object_get(to, "args"), *before = json_object_get(from, "args");
    CHECK_EQ_INT(number_of(args, "waited_for"), number_of(from, "tid"));
    if (strcmp(text_of(args, "kind"), "F") != 0 && strcmp(text_of(args, "kind"), "B") != 0) return;
    CHECK_EQ_STR(text_of(args, "kind"), text_of(before, "kind"));
    CHECK_EQ_INT(number_of(args, "micro_batch"), number_of(before, "micro_batch"));
    int64_t step = strcmp(text_of(args, "kind"), "F") == 0 ? 1 : -1;
    CHECK_EQ_INT(number_of(args, "stage"), number_of(before, "stage") + step);
}

static void test_chrome_arrows_come_from_what_was_waited_for(void) {
    struct fixture fixture;
    json_t *events;
    CHECK(make_pipe(&fixture, 2, 2, NULL));
    CHECK_OK(run_step(&fixture));
    CHECK(replace_times(fixture.pipe));
    json_t *root = read_trace(fixture.pipe, &events);
    int arrows = 0, waits = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        waits += is(event, "X", "wait");
        EXPECT(!is(event, "f", NULL) || is(json_array_get(events, i - 1), "s", NULL));
        if (!is(event, "s", NULL)) continue;
        EXPECT_EQ_INT(number_of(event, "id"), arrows);
        arrows++;
        check_arrow(events, event, json_array_get(events, i + 1));
    }
    EXPECT(arrows >= 4);
    EXPECT_EQ_INT(arrows, waits);
    json_decref(root);
    weir_pipe_destroy(fixture.pipe);
}

static void test_chrome_escapes_names(void) {
    static const char *const names[2] = {"a\"b\\c\n\x01\x7f µ𝛿",
                                         "\xff\xc0\xaf\xed\xa0\x80\xe0\x80\xaf\xf4\x90q\xe2\x82"};
    struct fixture fixture;
    json_t *events;
    int seen[2] = {0, 0};
    CHECK(make_pipe(&fixture, 2, 2, names));
    CHECK_OK(run_step(&fixture));
    json_t *root = read_trace(fixture.pipe, &events);
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i), *args = json_object_get(event, "args");
        if (!is(event, "X", NULL) || is(event, "X", "wait")) continue;
        int64_t stage = number_of(args, "stage");
        EXPECT_EQ_STR(text_of(args, "stage_name"), stage == 0 ? names[0] : "�����������q��");
        seen[stage == 1]++;
    }
    EXPECT(seen[0] > 0 && seen[1] > 0);
    json_decref(root);
    weir_pipe_destroy(fixture.pipe);
}

static void test_chrome_before_any_step_is_empty_but_valid(void) {
    struct fixture fixture;
    json_t *events;
    CHECK(make_pipe(&fixture, 2, 2, NULL));
    json_t *root = read_trace(fixture.pipe, &events);
    for (size_t i = 0; i < json_array_size(events); i++)
        EXPECT(is(json_array_get(events, i), "M", NULL));
    json_decref(root);
    weir_pipe_destroy(fixture.pipe);
}

static void test_chrome_shows_a_step_that_failed(void) {
    struct fixture fixture;
    json_t *events;
    CHECK(make_pipe(&fixture, 2, 2, NULL));
    CHECK_OK(run_step(&fixture));
    fixture.failure = 9;
    CHECK_EQ_INT(run_step(&fixture), 9);
    fixture.failure = 0;
    CHECK_OK(run_step(&fixture));
    json_t *root = read_trace(fixture.pipe, &events);
    int failed = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i), *args = json_object_get(event, "args");
        if (!is(event, "X", NULL) || is(event, "X", "wait")) continue;
        bool of_last_stage = number_of(args, "stage") == 1;
        if (number_of(args, "step") == 2 && of_last_stage) failed++;
    }
    EXPECT_EQ_INT(failed, 1);
    json_decref(root);
    weir_pipe_destroy(fixture.pipe);
}

/* ---- writing in pieces ---- */

static int write_text(const struct weir_pipe *pipe, struct sink *sink) {
    return weir_pipe_trace_text(pipe, 100, true, sink_write, sink);
}

static int write_chrome(const struct weir_pipe *pipe, struct sink *sink) {
    return weir_pipe_trace_chrome(pipe, sink_write, sink);
}

static void test_the_first_failure_of_write_ends_it(void) {
    static int (*const writers[])(const struct weir_pipe *, struct sink *) = {write_text,
                                                                              write_chrome};
    struct fixture fixture;
    CHECK(make_pipe(&fixture, 4, 2, NULL));
    for (int i = 0; i < 3; i++) CHECK_OK(run_step(&fixture));
    struct sink sink = sink_new();
    for (int f = 0; f < 2; f++) {
        sink_empty(&sink);
        sink.fail_at = sink.calls = 0;
        EXPECT_STATUS(writers[f](fixture.pipe, &sink), WEIR_OK);
        int calls = sink.calls;
        EXPECT(f == 0 || calls > 2);
        EXPECT(sink.largest <= WEIR__TEXT_BYTES);
        for (int at = 1; at <= calls; at++) {
            sink_empty(&sink);
            sink.calls = 0;
            sink.fail_at = at;
            EXPECT_EQ_INT(writers[f](fixture.pipe, &sink), 70 + at);
            EXPECT_EQ_INT(sink.calls, at);
        }
    }
    sink_destroy(&sink);
    weir_pipe_destroy(fixture.pipe);
}

static void test_writing_allocates_nothing(void) {
    struct fixture fixture;
    CHECK(make_pipe(&fixture, 2, 2, NULL));
    CHECK_OK(run_step(&fixture));
    struct sink sink = sink_new();
    uint64_t before = test_allocator_count();
    EXPECT_STATUS(write_chrome(fixture.pipe, &sink), WEIR_OK);
    EXPECT_STATUS(write_text(fixture.pipe, &sink), WEIR_OK);
    EXPECT_EQ_UINT(test_allocator_count(), before);
    sink_destroy(&sink);
    weir_pipe_destroy(fixture.pipe);
}

static void test_missing_arguments_are_refused(void) {
    struct fixture fixture;
    CHECK(make_pipe(&fixture, 1, 1, NULL));
    struct sink sink = sink_new();
    EXPECT_STATUS(weir_pipe_trace_chrome(NULL, sink_write, &sink), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir_pipe_trace_chrome(fixture.pipe, NULL, &sink), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir_pipe_trace_text(NULL, 80, false, sink_write, &sink), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir_pipe_trace_text(fixture.pipe, 80, false, NULL, &sink), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir_pipe_trace_text(fixture.pipe, 80, false, sink_write, &sink),
                  WEIR_ERR_NOT_FOUND);
    EXPECT_EQ_INT(sink.calls, 0);
    sink_destroy(&sink);
    weir_pipe_destroy(fixture.pipe);
}

/* ---- the drawing ---- */

static void test_text_draws_the_last_step(void) {
    /* 32 ms in 64 cells: two for a millisecond */
    static const char expected[] =
        "step 3: 32.0 ms, 2 workers, 2 stages, 4 micro-batches\n"
        "worker 0 |F0ffF1ff........B0bbbbbbF2ffB1bbbbbbF3ffB2bbbbbb....B3bbbbbbNnUu| 81%\n"
        "worker 1 |....F0ffB0bbbbbbF1ffB1bbbbbbF2ffB2bbbbbbF3ffB3bbbbbbNn........Uu| 81%\n"
        "          |0                  |10 ms              |20 ms                   busy\n"
        "F forward  B backward  N norm  U update  . waiting\n";
    struct fixture fixture;
    CHECK(make_pipe(&fixture, 2, 2, NULL));
    for (int i = 0; i < 3; i++) CHECK_OK(run_step(&fixture));
    CHECK(replace_times(fixture.pipe));
    struct sink sink = sink_new();
    EXPECT_STATUS(weir_pipe_trace_text(fixture.pipe, 79, false, sink_write, &sink), WEIR_OK);
    EXPECT_EQ_STR(sink.text, expected);
    sink_destroy(&sink);
    weir_pipe_destroy(fixture.pipe);
}

static void test_text_shows_what_fills_most_of_a_cell(void) {
    /* 640 ns in 64 cells; F0 B0 F1 B1 F2 B2 F3 B3 N U */
    static const uint64_t times[10][2] = {{100, 105}, {110, 116}, {120, 123}, {123, 129},
                                          {130, 134}, {134, 138}, {140, 160}, {160, 180},
                                          {181, 189}, {720, 740}};
    struct fixture fixture;
    CHECK(make_pipe(&fixture, 1, 1, NULL));
    CHECK_OK(run_step(&fixture));
    for (uint32_t i = 0; i < 10; i++) {
        struct weir_trace_event *event = weir__worker_event(&fixture.pipe->workers[0], i);
        event->waited = event->start = times[i][0];
        event->end = times[i][1];
    }
    struct sink sink = sink_new();
    EXPECT_STATUS(weir_pipe_trace_text(fixture.pipe, 79, false, sink_write, &sink), WEIR_OK);
    EXPECT_CONTAINS(sink.text,
                    "|.BBFF3B3N.....................................................Uu|");
    sink_destroy(&sink);
    weir_pipe_destroy(fixture.pipe);
}

static void test_text_shows_stages_where_a_worker_has_several(void) {
    struct fixture fixture;
    CHECK(make_pipe(&fixture, 4, 2, NULL));
    CHECK_OK(run_step(&fixture));
    CHECK(replace_times(fixture.pipe));
    struct sink sink = sink_new();
    EXPECT_STATUS(weir_pipe_trace_text(fixture.pipe, 200, false, sink_write, &sink), WEIR_OK);
    EXPECT_CONTAINS(sink.text, "|F0:0ffF");
    EXPECT_CONTAINS(sink.text, "F2:1");
    EXPECT_CONTAINS(sink.text, "B3:2b");
    EXPECT_CONTAINS(sink.text, "F1:2 is stage 1, micro-batch 2\n");
    sink_destroy(&sink);
    weir_pipe_destroy(fixture.pipe);
}

/* Every line of workers is as wide as asked, and no other is wider. */
static void check_widths(const char *text, size_t columns) {
    int workers = 0;
    for (const char *line = text; *line != 0; line += strcspn(line, "\n") + 1) {
        size_t length = strcspn(line, "\n");
        CHECK(length <= columns);
        if (strncmp(line, "worker ", 7) != 0) continue;
        workers++;
        CHECK_EQ_UINT(length, columns);
    }
    CHECK_EQ_INT(workers, 2);
}

static void test_text_is_as_wide_as_asked(void) {
    static const uint32_t columns[][2] = {{0, 40},    {40, 40},   {41, 41},     {79, 79},
                                          {100, 100}, {333, 333}, {1000, 1000}, {UINT32_MAX, 1000}};
    struct fixture fixture;
    CHECK(make_pipe(&fixture, 4, 2, NULL));
    CHECK_OK(run_step(&fixture));
    struct sink sink = sink_new();
    for (size_t i = 0; i < WEIR__COUNT_OF(columns); i++) {
        sink_empty(&sink);
        EXPECT_STATUS(weir_pipe_trace_text(fixture.pipe, columns[i][0], false, sink_write, &sink),
                      WEIR_OK);
        check_widths(sink.text, columns[i][1]);
    }
    sink_destroy(&sink);
    weir_pipe_destroy(fixture.pipe);
}

/* Removes ANSI's colour sequences in place. */
static void strip_colours(char *text) {
    char *to = text;
    for (const char *from = text; *from != 0; from++) {
        if (*from == '\x1b') {
            from += strcspn(from, "m");
        } else {
            *to++ = *from;
        }
    }
    *to = 0;
}

static void test_text_has_colours_only_when_asked(void) {
    struct fixture fixture;
    CHECK(make_pipe(&fixture, 4, 2, NULL));
    CHECK_OK(run_step(&fixture));
    CHECK(replace_times(fixture.pipe));
    struct sink plain = sink_new(), coloured = sink_new();
    EXPECT_STATUS(weir_pipe_trace_text(fixture.pipe, 90, false, sink_write, &plain), WEIR_OK);
    EXPECT_STATUS(weir_pipe_trace_text(fixture.pipe, 90, true, sink_write, &coloured), WEIR_OK);
    EXPECT(strchr(plain.text, '\x1b') == NULL);
    EXPECT(strchr(coloured.text, '\x1b') != NULL);
    EXPECT_CONTAINS(coloured.text, "\x1b[0m|");
    strip_colours(coloured.text);
    EXPECT_EQ_STR(coloured.text, plain.text);
    sink_destroy(&plain);
    sink_destroy(&coloured);
    weir_pipe_destroy(fixture.pipe);
}

static void test_text_of_a_step_without_length_is_drawn(void) {
    struct fixture fixture;
    CHECK(make_pipe(&fixture, 2, 2, NULL));
    CHECK_OK(run_step(&fixture));
    for (uint32_t w = 0; w < 2; w++)
        for (uint32_t i = 0; i < fixture.pipe->workers[w].event_capacity; i++) {
            struct weir_trace_event *event = &fixture.pipe->workers[w].events[i];
            event->waited = event->start = event->end = 7;
        }
    struct sink sink = sink_new();
    EXPECT_STATUS(weir_pipe_trace_text(fixture.pipe, 60, false, sink_write, &sink), WEIR_OK);
    check_widths(sink.text, 60);
    sink_destroy(&sink);
    weir_pipe_destroy(fixture.pipe);
}

WEIR_TEST_SUITE(trace, TEST(chrome_has_a_named_track_per_worker),
                TEST(chrome_has_every_event_to_the_nanosecond),
                TEST(chrome_waits_are_slices_of_their_own),
                TEST(chrome_arrows_come_from_what_was_waited_for), TEST(chrome_escapes_names),
                TEST(chrome_before_any_step_is_empty_but_valid),
                TEST(chrome_shows_a_step_that_failed), TEST(the_first_failure_of_write_ends_it),
                TEST(writing_allocates_nothing), TEST(missing_arguments_are_refused),
                TEST(text_draws_the_last_step), TEST(text_shows_what_fills_most_of_a_cell),
                TEST(text_shows_stages_where_a_worker_has_several), TEST(text_is_as_wide_as_asked),
                TEST(text_has_colours_only_when_asked),
                TEST(text_of_a_step_without_length_is_drawn))
