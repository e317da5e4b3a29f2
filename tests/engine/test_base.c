/* SPDX-License-Identifier: MIT */
/*
 * Goal: what every module stands on does what base.h says, at its edges: overflow, no memory left,
 * counters that wrap, wake-ups that race. Method: known answers for Philox, the k-th allocation
 * fails, and threads that hand a gate back and forth with so little spinning that most waits park.
 */
#include "base/base.h"
#include "base/name_set.h"
#include "harness.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- names ---- */

static void test_every_status_has_a_name_and_a_text(void) {
#define CHECK_ROW(name, value, text)                                                               \
    CHECK_EQ_STR(weir_status_name(value), #name);                                                  \
    CHECK_EQ_STR(weir_status_text(value), text);
    WEIR_STATUS_MAP(CHECK_ROW)
#undef CHECK_ROW
    CHECK_EQ_STR(weir_status_name(7), "ERR_CALLBACK");
    CHECK_EQ_STR(weir_status_text(7), "a callback failed");
    CHECK_EQ_STR(weir_status_name(-1000), "UNKNOWN");
    CHECK(strlen(weir_status_text(-1000)) > 0);
    CHECK_EQ_STR(weir_version(), "0.1.0");
}

static void test_every_phase_has_a_name_of_its_own(void) {
    CHECK_EQ_STR(weir_phase_name(WEIR_FORWARD), "forward");
    CHECK_EQ_STR(weir_phase_name(WEIR_RECOMPUTE), "recompute");
    for (int a = 0; a < WEIR_PHASE_COUNT; a++) {
        for (int b = 0; b < a; b++) {
            CHECK(strcmp(weir_phase_name((enum weir_phase)a), weir_phase_name((enum weir_phase)b)));
        }
    }
    CHECK_EQ_STR(weir_phase_name(WEIR_PHASE_COUNT), "none");
    CHECK_EQ_STR(weir_phase_name((enum weir_phase)(WEIR_PHASE_COUNT + 1)), "unknown");
}

static void test_a_task_tells_checkpointing_and_recomputing(void) {
    for (int phase = 0; phase < WEIR_PHASE_COUNT; phase++) {
        struct weir_task task = {.phase = (enum weir_phase)phase};
        CHECK(weir_task_is_checkpointing(&task) == (phase == WEIR_FORWARD_CHECKPOINT));
        CHECK(weir_task_is_recomputing(&task) == (phase == WEIR_RECOMPUTE));
    }
}

static void test_failing_fills_the_record_and_gives_the_status(void) {
    struct weir_error error = {.stage = 3, .micro_batch = 4, .layer = "norm"};
    int status = weir__fail(&error, WEIR_ERR_SHAPE, "%d rows, not %s", 7, "eight");
    CHECK_STATUS(status, WEIR_ERR_SHAPE);
    CHECK_STATUS(error.status, WEIR_ERR_SHAPE);
    CHECK_EQ_STR(error.message, "7 rows, not eight");
    CHECK_EQ_INT(error.stage, 3);
    CHECK_EQ_INT(error.micro_batch, 4);
    CHECK_EQ_STR(error.layer, "norm");
    CHECK_STATUS(weir__fail(NULL, WEIR_ERR_IO, "nobody reads this"), WEIR_ERR_IO);
    char text[1024];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    CHECK_EQ_INT(weir__fail(&error, 5, "%s", text), 5);
    CHECK_EQ_UINT(strlen(error.message), sizeof error.message - 1);
}

/* ---- memory ---- */

static bool is_zero(const void *memory, size_t bytes) {
    const unsigned char *byte = memory;
    for (size_t i = 0; i < bytes; i++) {
        if (byte[i] != 0) return false;
    }
    return true;
}

static void acquire_and_release(const struct weir_allocator *allocator) {
    static const size_t counts[] = {0, 1, 7, 4096};
    for (size_t i = 0; i < WEIR__COUNT_OF(counts); i++) {
        unsigned char *memory = weir__acquire(allocator, counts[i], 12);
        CHECK(memory != NULL);
        bool aligned = (uintptr_t)memory % 64 == 0;
        bool zero = is_zero(memory, counts[i] * 12);
        weir__release(allocator, memory, counts[i], 12);
        CHECK(aligned);
        CHECK(zero);
    }
    weir__release(allocator, NULL, 3, 4);
}

static void test_memory_is_zeroed_aligned_and_never_null(void) {
    acquire_and_release(test_allocator());
    acquire_and_release(NULL);
    acquire_and_release(weir_allocator_default());
}

static void test_an_overflowing_or_refused_acquisition_gives_null(void) {
    CHECK(weir__acquire(test_allocator(), SIZE_MAX / 2, 3) == NULL);
    CHECK_EQ_UINT(test_allocator_count(), 0);
    CHECK(weir__acquire(NULL, SIZE_MAX, 1) == NULL);
    test_allocator_fail_at(1, false);
    CHECK(weir__acquire(test_allocator(), 1, 1) == NULL);
}

static void test_the_default_allocator_honours_every_alignment(void) {
    const struct weir_allocator *allocator = weir_allocator_default();
    for (size_t alignment = 1; alignment <= 1 << 20; alignment *= 2) {
        void *memory = allocator->acquire(allocator->context, 3, alignment);
        CHECK(memory != NULL);
        bool aligned = (uintptr_t)memory % alignment == 0;
        allocator->release(allocator->context, memory, 3);
        CHECK(aligned);
    }
    allocator->release(allocator->context, NULL, 3);
}

static void test_texts_are_copied_and_null_stays_null(void) {
    char *copy = NULL;
    CHECK_OK(weir__text_copy(test_allocator(), "weir", &copy));
    EXPECT_EQ_STR(copy, "weir");
    weir__text_release(test_allocator(), copy);
    CHECK_OK(weir__text_copy(test_allocator(), "", &copy));
    EXPECT_EQ_STR(copy, "");
    weir__text_release(test_allocator(), copy);
    CHECK_OK(weir__text_copy(test_allocator(), NULL, &copy));
    CHECK(copy == NULL);
    weir__text_release(test_allocator(), copy);
    test_allocator_fail_at(1, false);
    CHECK_STATUS(weir__text_copy(test_allocator(), "weir", &copy), WEIR_ERR_OUT_OF_MEMORY);
}

/* ---- faults ---- */

static void test_faults_keep_lines_in_order(void) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    faults.allocator = test_allocator();
    for (int i = 0; i < 20; i++) weir_faults_add(&faults, "fault %d", i);
    EXPECT_EQ_UINT(faults.count, 20);
    EXPECT_EQ_UINT(faults.kept, 20);
    for (uint32_t i = 0; i < faults.kept; i++) {
        char expected[32];
        snprintf(expected, sizeof expected, "fault %u", i);
        EXPECT_EQ_STR(faults.lines[i], expected);
    }
    weir_faults_clean_up(&faults);
    CHECK_EQ_UINT(faults.count, 0);
    CHECK_EQ_UINT(faults.kept, 0);
    weir_faults_add(&faults, "again");
    EXPECT_EQ_UINT(faults.count, 1);
    weir_faults_clean_up(&faults);
    weir_faults_clean_up(NULL);
    weir_faults_add(NULL, "nobody reads this");
}

static void test_what_would_upset_a_terminal_is_written_out(void) {
    static const struct {
        const char *from, *to;
    } texts[] = {
        {"", ""},
        {"a name, 100% ~ok\\", "a name, 100% ~ok\\"},
        {"a\nb\rc\td", "a\\nb\\rc\\td"},
        {"\x1b[2J\x01\x7f", "\\x1b[2J\\x01\\x7f"},
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xc2\x9b\x31m", "\\xc2\\x9b\x31m"},                  /* C1: another escape */
        {"\xc2\xa0\x9b\xff", "\xc2\xa0\\x9b\\xff"},            /* bytes alone */
        {"\xc0\xaf\xe0\x9f\xbf", "\\xc0\\xaf\\xe0\\x9f\\xbf"}, /* longer than need be */
        {"\xed\xa0\x80\xf4\x90\x80\x80", "\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80"},
        {"\xe2\x82", "\\xe2\\x82"}, /* cut */
        {"\\x1b", "\\x1b"},         /* written out already */
    };
    char text[64];
    for (size_t i = 0; i < WEIR__COUNT_OF(texts); i++)
        EXPECT_EQ_STR(weir__text_visible(texts[i].from, text, sizeof text), texts[i].to);
    /* cut between characters, not within */
    EXPECT_EQ_STR(weir__text_visible("ab\x1b", text, 6), "ab");
    EXPECT_EQ_STR(weir__text_visible("ab\x1b", text, 7), "ab\\x1b");
    EXPECT_EQ_STR(weir__text_visible("a\xc3\xa9", text, 3), "a");
    EXPECT_EQ_STR(weir__text_visible("a", text, 1), "");
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_error error;
    faults.allocator = test_allocator();
    weir_faults_add(&faults, "no tensor '%s'", "a\n\x1b]0;b\a");
    EXPECT_EQ_STR(faults.lines[0], "no tensor 'a\\n\\x1b]0;b\\x07'");
    weir_faults_clean_up(&faults);
    weir__fail(&error, WEIR_ERR_IO, "cannot open %s", "\x1b[2J");
    EXPECT_EQ_STR(error.message, "cannot open \\x1b[2J");
}

static void test_faults_are_bounded_and_go_on_counting(void) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    faults.allocator = test_allocator();
    char text[1024];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    text[1] = '\n';
    for (int i = 0; i < 300; i++) weir_faults_add(&faults, "%d%s", i, text);
    EXPECT_EQ_UINT(faults.count, 300);
    EXPECT_EQ_UINT(faults.kept, 256);
    EXPECT_EQ_UINT(strlen(faults.lines[255]), 511);
    EXPECT(strchr(faults.lines[0], '\n') == NULL);
    weir_faults_clean_up(&faults);
}

/** Checks may meet the same one. */
static void test_a_fault_is_listed_once(void) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    faults.allocator = test_allocator();
    for (int i = 0; i < 6; i++) weir_faults_add(&faults, "fault %d", i / 2);
    EXPECT_EQ_UINT(faults.count, 3);
    EXPECT_EQ_UINT(faults.kept, 3);
    if (faults.kept == 3) EXPECT_EQ_STR(faults.lines[2], "fault 2");
    weir_faults_clean_up(&faults);
}

static void test_faults_without_memory_are_counted(void) {
    for (uint64_t k = 1; k < 100; k++) {
        struct weir_faults faults = WEIR_FAULTS_INIT;
        faults.allocator = test_allocator();
        test_allocator_fail_at(k, false);
        for (int i = 0; i < 30; i++) weir_faults_add(&faults, "fault %d", i);
        bool fired = test_allocator_fired();
        test_allocator_fail_at(0, false);
        EXPECT_EQ_UINT(faults.count, 30);
        EXPECT_EQ_UINT(faults.kept, fired ? 29 : 30);
        weir_faults_clean_up(&faults);
        CHECK_HELPERS();
        if (!fired) return;
    }
    TEST_FAIL("the failures never ended");
}

/* ---- checked arithmetic and tensors ---- */

static void test_sums_and_products_refuse_to_overflow(void) {
    size_t out = 99;
    CHECK(!weir__add(SIZE_MAX, 1, &out));
    CHECK(!weir__multiply(SIZE_MAX / 2 + 1, 2, &out));
    CHECK(!weir__round_up(SIZE_MAX - 62, 64, &out));
    CHECK_EQ_UINT(out, 99);
    CHECK(weir__add(SIZE_MAX - 1, 1, &out));
    CHECK_EQ_UINT(out, SIZE_MAX);
    CHECK(weir__multiply(SIZE_MAX, 0, &out));
    CHECK_EQ_UINT(out, 0);
    CHECK(weir__multiply(0, SIZE_MAX, &out));
    CHECK(weir__multiply(SIZE_MAX, 1, &out));
    CHECK_EQ_UINT(out, SIZE_MAX);
    CHECK(weir__round_up(0, 64, &out));
    CHECK_EQ_UINT(out, 0);
    CHECK(weir__round_up(65, 64, &out));
    CHECK_EQ_UINT(out, 128);
    CHECK(weir__round_up(SIZE_MAX - 63, 64, &out));
    CHECK_EQ_UINT(out, SIZE_MAX - 63);
}

static void test_every_dtype_has_its_size_and_name(void) {
#define CHECK_ROW(name, bytes, text, file)                                                         \
    CHECK_EQ_UINT(weir_dtype_bytes(WEIR_##name), bytes);                                           \
    CHECK_EQ_STR(weir_dtype_name(WEIR_##name), text);
    WEIR_DTYPE_MAP(CHECK_ROW)
#undef CHECK_ROW
    CHECK(weir_dtype_is_float(WEIR_F32) && weir_dtype_is_float(WEIR_F64));
    CHECK(weir_dtype_is_float(WEIR_BF16) && weir_dtype_is_float(WEIR_F16));
    CHECK(!weir_dtype_is_float(WEIR_I64) && !weir_dtype_is_float(WEIR_I32));
    CHECK(!weir_dtype_is_float(WEIR_U8) && !weir_dtype_is_float(WEIR_BOOL));
    CHECK(!weir_dtype_is_float(WEIR_DTYPE_COUNT));
    CHECK_EQ_UINT(weir_dtype_bytes(WEIR_DTYPE_COUNT), 0);
    CHECK_EQ_STR(weir_dtype_name(WEIR_DTYPE_COUNT), "unknown");
}

static void test_numbers_of_every_float_are_read(void) {
    static const uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x03ff, 0x7bff, 0x7c00, 0xfc00};
    static const double as_f16[] = {1, -2, 0x1p-24, 0x1.ff8p-15, 65504, INFINITY, -INFINITY};
    static const uint16_t uppers[] = {0x3f80, 0xc000, 0x0001, 0x7f80, 0xff80};
    static const double as_bf16[] = {1, -2, 0x1p-133, INFINITY, -INFINITY};
    char odd[1 + 2 * sizeof(double)];
    for (uint64_t i = 0; i < WEIR__COUNT_OF(halves); i++)
        EXPECT(weir__number_at(WEIR_F16, halves, i) == as_f16[i]);
    for (uint64_t i = 0; i < WEIR__COUNT_OF(uppers); i++)
        EXPECT(weir__number_at(WEIR_BF16, uppers, i) == as_bf16[i]);
    EXPECT(isnan(weir__number_at(WEIR_F16, &(uint16_t){0x7e00}, 0)));
    EXPECT(isnan(weir__number_at(WEIR_BF16, &(uint16_t){0x7fc0}, 0)));
    memcpy(odd + 1, (double[]){0.1, -0.3}, 2 * sizeof(double));
    EXPECT(weir__number_at(WEIR_F64, odd + 1, 1) == -0.3);
    memcpy(odd + 1, (float[]){0.1f, -0.3f}, 2 * sizeof(float));
    EXPECT(weir__number_at(WEIR_F32, odd + 1, 1) == (double)-0.3f);
}

static void test_tensor_bytes_are_checked(void) {
    size_t bytes = 99;
    struct weir_tensor image = {.dtype = WEIR_F32, .rank = 3, .shape = {3, 32, 32}};
    CHECK_OK(weir__tensor_bytes(&image, 5, &bytes));
    CHECK_EQ_UINT(bytes, 5 * 3 * 32 * 32 * 4);
    CHECK_OK(weir__tensor_bytes(&image, 0, &bytes));
    CHECK_EQ_UINT(bytes, 0);
    struct weir_tensor label = {.dtype = WEIR_I64, .rank = 0};
    CHECK_OK(weir__tensor_bytes(&label, 7, &bytes));
    CHECK_EQ_UINT(bytes, 56);
    struct weir_tensor wrong = image;
    wrong.shape[1] = 0;
    CHECK_STATUS(weir__tensor_bytes(&wrong, 1, &bytes), WEIR_ERR_SHAPE);
    wrong = image, wrong.rank = WEIR_RANK_MAX + 1;
    CHECK_STATUS(weir__tensor_bytes(&wrong, 1, &bytes), WEIR_ERR_SHAPE);
    wrong = image, wrong.dtype = WEIR_DTYPE_COUNT;
    CHECK_STATUS(weir__tensor_bytes(&wrong, 1, &bytes), WEIR_ERR_SHAPE);
    wrong = image, wrong.shape[0] = INT64_MAX;
    CHECK_STATUS(weir__tensor_bytes(&wrong, 1, &bytes), WEIR_ERR_OVERFLOW);
    CHECK_STATUS(weir__tensor_bytes(&image, INT64_MAX, &bytes), WEIR_ERR_OVERFLOW);
    CHECK_EQ_UINT(bytes, 56);
}

static void test_tensors_read_as_text(void) {
    char text[64];
    struct weir_tensor image = {.dtype = WEIR_F32, .rank = 3, .shape = {3, 32, 32}};
    CHECK_EQ_STR(weir__tensor_text(&image, text, sizeof text), "f32 [3, 32, 32]");
    struct weir_tensor label = {.dtype = WEIR_I64};
    CHECK_EQ_STR(weir__tensor_text(&label, text, sizeof text), "i64 []");
    for (size_t capacity = 1; capacity <= 15; capacity++) {
        memset(text, '!', sizeof text);
        weir__tensor_text(&image, text, capacity);
        CHECK_EQ_UINT(strlen(text), capacity - 1);
        CHECK_EQ_BYTES(text, "f32 [3, 32, 32]", capacity - 1);
        CHECK(text[capacity] == '!');
    }
}

static void test_tensors_compare_by_dtype_shape_and_differentiability(void) {
    struct weir_tensor a = {.dtype = WEIR_F32, .rank = 2, .shape = {3, 4}, .differentiable = true};
    struct weir_tensor b = a;
    b.shape[2] = 77; /* beyond its rank */
    CHECK(weir__tensor_equal(&a, &b));
    b = a, b.dtype = WEIR_F64;
    CHECK(!weir__tensor_equal(&a, &b));
    b = a, b.rank = 1;
    CHECK(!weir__tensor_equal(&a, &b));
    b = a, b.shape[1] = 5;
    CHECK(!weir__tensor_equal(&a, &b));
    b = a, b.differentiable = false;
    CHECK(!weir__tensor_equal(&a, &b));
}

/* ---- random numbers ---- */

static void test_philox_gives_the_published_answers(void) {
    /* Known answers of the paper's own library, Random123, philox4x32 with 10 rounds. */
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < WEIR__COUNT_OF(known); i++) {
        uint32_t out[4];
        weir__philox(known[i].counter, known[i].key, out);
        CHECK_EQ_BYTES(out, known[i].out, sizeof out);
    }
}

static void test_random_words_come_from_their_place(void) {
    uint32_t words[4], expected[4];
    weir__philox_words(UINT64_C(0x299f31d0a4093822), UINT64_C(0x0000000103707344), 0x13198a2e,
                       0x85a308d3, 0x243f6a88, words);
    const uint32_t counter[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
    const uint32_t key[2] = {0xa4093822, 0x299f31d0};
    weir__philox(counter, key, expected);
    CHECK_EQ_BYTES(words, expected, sizeof words);
}

/* ---- time and gates ---- */

static void test_the_clock_never_goes_back(void) {
    uint64_t before = weir__now_ns();
    for (int i = 0; i < 1000; i++) {
        uint64_t now = weir__now_ns();
        CHECK(now >= before);
        before = now;
    }
    struct timespec pause = {.tv_nsec = 2000000};
    nanosleep(&pause, NULL);
    CHECK(weir__now_ns() - before >= 2000000);
}

static void test_a_gate_is_reached_across_the_wrap(void) {
    struct weir__gate gate = {.value = UINT32_MAX - 1};
    CHECK(weir__gate_reached(&gate, UINT32_MAX - 1));
    CHECK(weir__gate_reached(&gate, UINT32_MAX - 100));
    CHECK(!weir__gate_reached(&gate, UINT32_MAX));
    CHECK(!weir__gate_reached(&gate, 3));
    weir__gate_advance(&gate, 3);
    CHECK(weir__gate_reached(&gate, UINT32_MAX));
    CHECK(weir__gate_reached(&gate, 3));
    CHECK(!weir__gate_reached(&gate, 4));
    CHECK_EQ_UINT(sizeof gate, 64);
}

static void test_a_gate_times_out(void) {
    static const uint64_t spins[] = {0, 200000, UINT64_MAX};
    for (size_t i = 0; i < WEIR__COUNT_OF(spins); i++) {
        struct weir__gate gate = {.value = 5};
        uint64_t before = weir__now_ns();
        CHECK(!weir__gate_wait(&gate, 6, spins[i], 3000000));
        CHECK(weir__now_ns() - before >= 3000000);
        CHECK_EQ_UINT(atomic_load(&gate.sleepers), 0);
        CHECK(weir__gate_wait(&gate, 5, spins[i], 1));
    }
}

/* Two gates, one advanced by each side in turn. */
struct ping_pong {
    struct weir__gate ping, pong;
    uint32_t first, rounds;
    uint64_t spin_ns, answer_spin_ns;
    uint32_t jitter; /* the answer comes up to so many turns of a loop late */
    uint64_t data;   /* written before each advance, by the side whose turn it is */
    bool failed;
};

static void delay(uint32_t turns) {
    for (volatile uint32_t i = 0; i < turns; i++) continue;
}

static void *answer(void *context) {
    struct ping_pong *game = context;
    for (uint32_t i = 1; i <= game->rounds; i++) {
        bool reached = weir__gate_wait(&game->ping, game->first + i, game->answer_spin_ns, 0);
        if (!reached) game->failed = true;
        if (game->jitter > 0) delay(i * 2654435761u % game->jitter);
        game->data++;
        weir__gate_advance(&game->pong, game->first + i);
    }
    return NULL;
}

static void play(struct ping_pong *game) {
    pthread_t other;
    atomic_store(&game->ping.value, game->first);
    atomic_store(&game->pong.value, game->first);
    CHECK_EQ_INT(pthread_create(&other, NULL, answer, game), 0);
    for (uint32_t i = 1; i <= game->rounds; i++) {
        game->data++;
        weir__gate_advance(&game->ping, game->first + i);
        if (!weir__gate_wait(&game->pong, game->first + i, game->spin_ns, 0)) game->failed = true;
    }
    CHECK_EQ_INT(pthread_join(other, NULL), 0);
    CHECK(!game->failed);
    CHECK_EQ_UINT(game->data, 2 * (uint64_t)game->rounds);
    CHECK_EQ_UINT(atomic_load(&game->ping.sleepers), 0);
    CHECK_EQ_UINT(atomic_load(&game->pong.sleepers), 0);
}

/* A lost wake would hang here: no time limit saves it, and the suite's would name this test. */
static void test_no_wake_is_lost_however_short_the_spin(void) {
    static const uint64_t spins[] = {0, 1, 500, 2000, 20000};
    for (size_t i = 0; i < WEIR__COUNT_OF(spins); i++) {
        struct ping_pong game = {.rounds = 5000, .spin_ns = spins[i], .answer_spin_ns = spins[i]};
        play(&game);
        CHECK_HELPERS();
    }
    /* The answer meets the other side at every point of its way into the futex. */
    struct ping_pong game = {.rounds = 50000, .answer_spin_ns = 1000000, .jitter = 500};
    play(&game);
}

static void test_hand_offs_go_on_across_the_wrap(void) {
    struct ping_pong game = {
        .first = UINT32_MAX - 2000, .rounds = 4000, .spin_ns = 1000, .answer_spin_ns = 1000};
    play(&game);
}

struct audience {
    struct weir__gate *gate;
    uint32_t wanted;
    _Atomic uint32_t *woken;
};

static void *listen(void *context) {
    struct audience *one = context;
    if (weir__gate_wait(one->gate, one->wanted, 0, 0)) atomic_fetch_add(one->woken, 1);
    return NULL;
}

static void test_one_advance_wakes_all_that_it_reaches(void) {
    enum { LISTENERS = 6 };
    struct weir__gate gate = {.value = 0};
    _Atomic uint32_t woken = 0;
    pthread_t threads[LISTENERS];
    struct audience audience[LISTENERS];
    for (uint32_t i = 0; i < LISTENERS; i++) {
        audience[i] = (struct audience){&gate, i < LISTENERS / 2 ? 1 : 2, &woken};
        CHECK_EQ_INT(pthread_create(&threads[i], NULL, listen, &audience[i]), 0);
    }
    while (atomic_load(&gate.sleepers) < LISTENERS) nanosleep(&(struct timespec){0, 100000}, NULL);
    EXPECT_EQ_UINT(atomic_load(&woken), 0);
    weir__gate_advance(&gate, 1);
    for (int i = 0; i < LISTENERS / 2; i++) EXPECT_EQ_INT(pthread_join(threads[i], NULL), 0);
    EXPECT_EQ_UINT(atomic_load(&woken), LISTENERS / 2);
    weir__gate_advance(&gate, 2);
    for (int i = LISTENERS / 2; i < LISTENERS; i++)
        EXPECT_EQ_INT(pthread_join(threads[i], NULL), 0);
    EXPECT_EQ_UINT(atomic_load(&woken), LISTENERS);
    EXPECT_EQ_UINT(atomic_load(&gate.sleepers), 0);
}

/* ---- sets of names ---- */

static void test_names_are_found_and_others_are_not(void) {
    static char texts[3000][8];
    struct weir__pool pool;
    struct weir__name_set names;
    weir__pool_init(&pool, test_allocator());
    weir__name_set_init(&names, &pool);
    EXPECT_EQ_UINT(weir__name_set_find(&names, ""), WEIR__NO_NAME);
    for (uint32_t i = 0; i < 3000 && !test_has_failed(); i++) {
        snprintf(texts[i], sizeof texts[i], "%x", i);
        EXPECT_EQ_UINT(weir__name_set_find(&names, texts[i]), WEIR__NO_NAME);
        EXPECT(weir__name_set_add(&names, texts[i], i * 7));
    }
    EXPECT(weir__name_set_add(&names, "", 5));
    for (uint32_t i = 0; i < 3000 && !test_has_failed(); i++) {
        char copy[8];
        snprintf(copy, sizeof copy, "%x", i);
        EXPECT_EQ_UINT(weir__name_set_find(&names, copy), i * 7);
    }
    EXPECT_EQ_UINT(weir__name_set_find(&names, "bb8"), WEIR__NO_NAME); /* 3000 */
    EXPECT_EQ_UINT(weir__name_set_find(&names, ""), 5);
    weir__pool_clean_up(&pool);
}

static void test_a_name_that_finds_no_memory_changes_nothing(void) {
    struct weir__pool pool;
    struct weir__name_set names;
    weir__pool_init(&pool, test_allocator());
    weir__name_set_init(&names, &pool);
    test_allocator_fail_at(1, true);
    EXPECT(!weir__name_set_add(&names, "a", 1));
    test_allocator_fail_at(0, false);
    EXPECT_EQ_UINT(weir__name_set_find(&names, "a"), WEIR__NO_NAME);
    EXPECT(weir__name_set_add(&names, "a", 1));
    EXPECT_EQ_UINT(weir__name_set_find(&names, "a"), 1);
    weir__pool_clean_up(&pool);
}

/* Values of xxhsum. */
static void test_xxh64_is_that_of_others(void) {
    static const char text[] = "Nobody inspects the spammish repetition";
    CHECK_EQ_UINT(weir__xxh64(NULL, 0), UINT64_C(0xef46db3751d8e999));
    CHECK_EQ_UINT(weir__xxh64("a", 1), UINT64_C(0xd24ec4f1a98c6e5b));
    CHECK_EQ_UINT(weir__xxh64("abc", 3), UINT64_C(0x44bc2cf5ad770999));
    CHECK_EQ_UINT(weir__xxh64(text, strlen(text)), UINT64_C(0xfbcea83c8a378bf1));
}

WEIR_TEST_SUITE(base, TEST(every_status_has_a_name_and_a_text),
                TEST(every_phase_has_a_name_of_its_own),
                TEST(a_task_tells_checkpointing_and_recomputing),
                TEST(failing_fills_the_record_and_gives_the_status),
                TEST(memory_is_zeroed_aligned_and_never_null),
                TEST(an_overflowing_or_refused_acquisition_gives_null),
                TEST(the_default_allocator_honours_every_alignment),
                TEST(texts_are_copied_and_null_stays_null), TEST(faults_keep_lines_in_order),
                TEST(what_would_upset_a_terminal_is_written_out),
                TEST(faults_are_bounded_and_go_on_counting), TEST(a_fault_is_listed_once),
                TEST(faults_without_memory_are_counted), TEST(sums_and_products_refuse_to_overflow),
                TEST(every_dtype_has_its_size_and_name), TEST(numbers_of_every_float_are_read),
                TEST(tensor_bytes_are_checked), TEST(tensors_read_as_text),
                TEST(tensors_compare_by_dtype_shape_and_differentiability),
                TEST(philox_gives_the_published_answers), TEST(random_words_come_from_their_place),
                TEST(names_are_found_and_others_are_not),
                TEST(a_name_that_finds_no_memory_changes_nothing), TEST(the_clock_never_goes_back),
                TEST(a_gate_is_reached_across_the_wrap), TEST(a_gate_times_out),
                TEST(no_wake_is_lost_however_short_the_spin), TEST(hand_offs_go_on_across_the_wrap),
                TEST(one_advance_wakes_all_that_it_reaches), TEST(xxh64_is_that_of_others))
