/* SPDX-License-Identifier: MIT */
/*
 * Goal: the emulation does what a GPU does, and finds what a GPU would forbid or leave to luck.
 * Method: small kernels (tests/toys/threads.cu), right and wrong on purpose. The right ones must
 * give the right numbers in many orders of blocks and threads; the wrong ones a wrong number, a
 * fault by name, or a crash, which a child process dies of.
 */
#include "cuda/emulated.h"
#include "net/cuda/kernels.h"
#include "toys/toys.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 96, ORDERS = 20 };

struct lists {
    uint32_t from[1024], to[1024];
    void *to_pointer, *from_pointer;
};

static void fill(struct lists *lists) {
    for (uint32_t i = 0; i < 1024; i++) {
        lists->from[i] = (uint32_t)test_random_u64();
        lists->to[i] = 0x5A5A5A5A;
    }
    lists->to_pointer = lists->to;
    lists->from_pointer = lists->from;
}

#define OPEN_OR_SKIP(emulation)                                                                    \
    struct emulation emulation = emulation_open();                                                 \
    if (emulation.kernels == NULL) SKIP("there is no library of emulated kernels")

/* Runs the kernel and gives its fault, or "". */
static const char *fault_of(const struct emulation *emulation, const char *name,
                            const struct weir__cuda_grid *grid, void **arguments) {
    const struct fake_cuda_kernel *kernel = emulation_find(emulation, name);
    if (!EXPECT(kernel != NULL)) return "";
    kernel->run(grid->blocks, grid->threads, grid->shared_bytes, arguments);
    const char *fault = emulation->fault();
    EXPECT(emulation->fault() == NULL);
    return fault != NULL ? fault : "";
}

/* ---- the table ---- */

static void test_every_kernel_of_the_product_is_emulated(void) {
    OPEN_OR_SKIP(emulation);
#define EXPECT_KERNEL(name) EXPECT(emulation_find(&emulation, #name) != NULL);
    WEIR__CUDA_KERNEL_MAP(EXPECT_KERNEL)
    WEIR__NET_KERNEL_MAP(EXPECT_KERNEL)
#undef EXPECT_KERNEL
}

static void test_parameters_are_described(void) {
    OPEN_OR_SKIP(emulation);
    const size_t *copy = emulation_find(&emulation, "copy")->parameter_bytes;
    const size_t *rows = emulation_find(&emulation, "copy_rows")->parameter_bytes;
    const size_t *decide = emulation_find(&emulation, "decide")->parameter_bytes;
    CHECK(copy[0] == 8 && copy[1] == 8 && copy[2] == 8 && copy[3] == 0);
    CHECK(rows[0] == sizeof(struct weir__cuda_rows) && rows[1] == 0);
    CHECK(decide[2] == 8 && decide[3] == 8 && decide[4] == 0);
}

static bool has_image(const struct weir__cuda_image *images, size_t count, const char *name) {
    static const unsigned char fatbin[] = {0x50, 0xed, 0x55, 0xba}; /* how each begins */
    for (size_t i = 0; i < count; i++) {
        EXPECT((uintptr_t)images[i].data % 64 == 0);
        if (!EXPECT(images[i].bytes > 1000)) return false;
        EXPECT_EQ_BYTES(images[i].data, fatbin, sizeof fatbin);
        if (strcmp(images[i].name, name) == 0) return true;
    }
    return false;
}

static void test_images_are_what_nvcc_makes(void) {
    if (weir__cuda_image_count == 0) SKIP("this build has no CUDA images: there was no nvcc");
    CHECK(has_image(weir__cuda_images, weir__cuda_image_count, "copy"));
    CHECK(has_image(weir__cuda_images, weir__cuda_image_count, "rows"));
    CHECK(has_image(weir__net_images, weir__net_image_count, "gelu"));
    CHECK(!has_image(weir__cuda_images, weir__cuda_image_count, "gelu"));
    CHECK(has_image(test_cuda_images, test_cuda_image_count, "affine"));
    CHECK(!has_image(weir__cuda_images, weir__cuda_image_count, "affine"));
}

/* ---- places and order ---- */

static void test_threads_know_their_places(void) {
    OPEN_OR_SKIP(emulation);
    static uint32_t to[3 * 2 * 2 * 4 * 3 * 2 * 12];
    struct weir__cuda_grid grid = {{3, 2, 2}, {4, 3, 2}, 0};
    void *pointer = to;
    CHECK(emulation_run("places", &grid, (void *[]){&pointer}));
    uint32_t *at = to;
    for (uint32_t block = 0; block < 12; block++) {
        for (uint32_t thread = 0; thread < 24; thread++, at += 12) {
            uint32_t expected[12] = {block % 3,
                                     block / 3 % 2,
                                     block / 6,
                                     thread % 4,
                                     thread / 4 % 3,
                                     thread / 12,
                                     3,
                                     2,
                                     2,
                                     4,
                                     3,
                                     2};
            CHECK_EQ_BYTES(at, expected, sizeof expected);
        }
    }
}

static void run_order(uint32_t order[64]) {
    uint32_t next = 0;
    void *order_pointer = order, *next_pointer = &next;
    struct weir__cuda_grid grid = emulation_grid(4, 16);
    struct emulation emulation = emulation_open();
    emulation.seed(order[0]);
    const struct fake_cuda_kernel *kernel = emulation_find(&emulation, "order");
    kernel->run(grid.blocks, grid.threads, 0, (void *[]){&order_pointer, &next_pointer});
}

static void test_orders_come_from_the_seed(void) {
    OPEN_OR_SKIP(emulation);
    uint32_t a[64] = {1}, again[64] = {1}, b[64] = {2};
    run_order(a);
    run_order(again);
    run_order(b);
    CHECK_EQ_BYTES(a, again, sizeof a);
    CHECK(memcmp(a, b, sizeof a) != 0);
    bool seen[64] = {false}, in_order = true;
    for (uint32_t i = 0; i < 64; i++) {
        CHECK(a[i] < 64 && !seen[a[i]]);
        seen[a[i]] = true;
        in_order = in_order && a[i] == i;
    }
    CHECK(!in_order);
}

/* ---- barriers ---- */

static void test_a_barrier_lets_threads_exchange_values(void) {
    OPEN_OR_SKIP(emulation);
    static const uint32_t sizes[] = {1, 2, 31, 32, 33, 96, 256, 1024};
    struct lists lists;
    for (size_t s = 0; s < WEIR__COUNT_OF(sizes); s++) {
        fill(&lists);
        struct weir__cuda_grid grid = emulation_grid(1, sizes[s]);
        grid.shared_bytes = 4 * sizes[s];
        CHECK(emulation_run("reverse", &grid, (void *[]){&lists.to_pointer, &lists.from_pointer}));
        for (uint32_t i = 0; i < sizes[s]; i++)
            CHECK_EQ_UINT(lists.to[i], lists.from[sizes[s] - 1 - i]);
    }
}

static bool rotates(const char *name, uint32_t rounds) {
    struct lists lists;
    fill(&lists);
    struct weir__cuda_grid grid = emulation_grid(1, THREADS);
    emulation_run(name, &grid, (void *[]){&lists.to_pointer, &lists.from_pointer, &rounds});
    for (uint32_t i = 0; i < THREADS; i++)
        if (lists.to[i] != lists.from[(i + rounds) % THREADS]) return false;
    return true;
}

static void test_barriers_in_a_loop_keep_rounds_apart(void) {
    OPEN_OR_SKIP(emulation);
    for (uint32_t i = 0; i < ORDERS; i++) CHECK(rotates("rotate", i));
}

static void test_a_missing_barrier_gives_a_wrong_result(void) {
    OPEN_OR_SKIP(emulation);
    for (uint32_t i = 0; i < ORDERS; i++) {
        struct lists lists;
        fill(&lists);
        struct weir__cuda_grid grid = emulation_grid(1, THREADS);
        grid.shared_bytes = 4 * THREADS;
        CHECK(emulation_run("reverse_without_barrier", &grid,
                            (void *[]){&lists.to_pointer, &lists.from_pointer}));
        uint32_t wrong = 0;
        for (uint32_t t = 0; t < THREADS; t++) wrong += lists.to[t] == 0xA5A5A5A5;
        CHECK_EQ_UINT(wrong, THREADS / 2); /* of each pair, who came first */
    }
}

static void test_a_barrier_missing_between_rounds_gives_a_wrong_result(void) {
    OPEN_OR_SKIP(emulation);
    for (uint32_t i = 0; i < ORDERS; i++) CHECK(!rotates("rotate_without_barrier", 4));
}

static void test_shared_memory_begins_unwritten_in_every_block(void) {
    OPEN_OR_SKIP(emulation);
    struct lists lists;
    fill(&lists);
    struct weir__cuda_grid grid = emulation_grid(4, 64);
    CHECK(emulation_run("read_unwritten", &grid, (void *[]){&lists.to_pointer}));
    for (uint32_t i = 0; i < 256; i++) CHECK_EQ_UINT(lists.to[i], 0xA5A5A5A5);
}

static void test_a_barrier_that_some_do_not_reach_is_reported(void) {
    OPEN_OR_SKIP(emulation);
    struct lists lists;
    fill(&lists);
    struct weir__cuda_grid grid = emulation_grid(2, THREADS);
    const char *fault =
        fault_of(&emulation, "half_a_barrier", &grid, (void *[]){&lists.to_pointer});
    CHECK_CONTAINS(fault, "waits in __syncthreads, with 47 others");
    CHECK_CONTAINS(fault, "48 of 96 have ended");
    CHECK(rotates("rotate", 3)); /* and the next kernel runs as ever */
}

/* ---- warps ---- */

static void test_shuffles_add_up_a_warp(void) {
    OPEN_OR_SKIP(emulation);
    for (uint32_t i = 0; i < ORDERS; i++) {
        struct lists lists;
        fill(&lists);
        struct weir__cuda_grid grid = emulation_grid(1, THREADS);
        CHECK(
            emulation_run("warp_sums", &grid, (void *[]){&lists.to_pointer, &lists.from_pointer}));
        for (uint32_t warp = 0; warp < THREADS / 32; warp++) {
            uint32_t sum = 0;
            for (uint32_t lane = 0; lane < 32; lane++) sum += lists.from[warp * 32 + lane];
            for (uint32_t kind = 0; kind < 3; kind++) CHECK_EQ_UINT(lists.to[warp * 3 + kind], sum);
        }
    }
}

/* Whole numbers up to 8: BF16 has them, and F32 their products' sums. */
struct tiles {
    _Alignas(16) uint16_t a[16][16];
    _Alignas(16) uint16_t b[16][16];
    float to[2][16][16], *to_pointer;
    const uint16_t *a_pointer, *b_pointer;
};

static uint16_t bf16_of(int number) {
    float single = (float)number;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void check_products(const int a[16][16], const int b[16][16], const struct tiles *tiles) {
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) {
            int turned = 0, straight = 0;
            for (int k = 0; k < 16; k++) turned += a[i][k] * b[j][k], straight += a[i][k] * b[k][j];
            CHECK_EQ_INT((int)tiles->to[0][i][j], turned);
            CHECK_EQ_INT((int)tiles->to[1][i][j], straight);
        }
}

static void test_a_warp_multiplies_tiles(void) {
    OPEN_OR_SKIP(emulation);
    static struct tiles tiles;
    int a[16][16], b[16][16];
    tiles.to_pointer = &tiles.to[0][0][0];
    tiles.a_pointer = &tiles.a[0][0];
    tiles.b_pointer = &tiles.b[0][0];
    for (int i = 0; i < 256; i++) {
        a[i / 16][i % 16] = (int)test_random_below(17) - 8;
        b[i / 16][i % 16] = (int)test_random_below(17) - 8;
        tiles.a[i / 16][i % 16] = bf16_of(a[i / 16][i % 16]);
        tiles.b[i / 16][i % 16] = bf16_of(b[i / 16][i % 16]);
    }
    struct weir__cuda_grid grid = emulation_grid(1, 32);
    grid.shared_bytes = 2 * 16 * 24 * 2;
    void *arguments[] = {&tiles.to_pointer, &tiles.a_pointer, &tiles.b_pointer};
    CHECK(emulation_run("warp_product", &grid, arguments));
    check_products(a, b, &tiles);
    EXPECT_CONTAINS(fault_of(&emulation, "warp_product_without_wait", &grid, arguments),
                    "copies under way");
}

static void test_lanes_meet_in_groups(void) {
    OPEN_OR_SKIP(emulation);
    float from[32], to[4][32], *to_pointer = &to[0][0], whole = 0;
    const float *from_pointer = from;
    for (int i = 0; i < 32; i++) from[i] = (float)test_random_below(100), whole += from[i];
    struct weir__cuda_grid grid = emulation_grid(1, 32);
    CHECK(emulation_run("lane_groups", &grid, (void *[]){&to_pointer, &from_pointer}));
    for (int i = 0; i < 32; i++) {
        float largest = 0, sum = 0;
        for (int k = i / 8 * 8; k < i / 8 * 8 + 8; k++) {
            largest = from[k] > largest ? from[k] : largest;
            sum += from[k];
        }
        CHECK_EQ_INT((int)to[0][i], (int)largest);
        CHECK_EQ_INT((int)to[1][i], (int)sum);
        CHECK_EQ_INT((int)to[2][i], (int)whole);
        CHECK_EQ_INT((int)to[3][i], (int)(2 * sum));
    }
}

static void test_parts_of_a_warp_vote_apart(void) {
    OPEN_OR_SKIP(emulation);
    struct lists lists;
    fill(&lists);
    for (uint32_t i = 0; i < THREADS; i++) lists.from[i] &= 1;
    struct weir__cuda_grid grid = emulation_grid(1, THREADS);
    CHECK(emulation_run("warp_ballots", &grid, (void *[]){&lists.to_pointer, &lists.from_pointer}));
    for (uint32_t half = 0; half < THREADS / 16; half++) {
        uint32_t ballot = 0;
        for (uint32_t i = 0; i < 16; i++)
            ballot |= lists.from[half * 16 + i] << (half % 2 * 16 + i);
        CHECK_EQ_UINT(lists.to[half], ballot);
    }
}

static void test_a_wrong_mask_is_reported(void) {
    OPEN_OR_SKIP(emulation);
    struct lists lists;
    fill(&lists);
    void *arguments[] = {&lists.to_pointer, &lists.from_pointer};
    struct weir__cuda_grid grid = emulation_grid(1, 32), ragged = emulation_grid(1, 40);
    CHECK_CONTAINS(fault_of(&emulation, "half_a_warp", &grid, arguments), "waits in a shuffle");
    CHECK_CONTAINS(fault_of(&emulation, "shuffle_from_outside", &grid, arguments),
                   "reads lane 20, which is not in the mask 0x0000ffff of a shuffle");
    CHECK_CONTAINS(fault_of(&emulation, "warp_sums", &ragged, arguments),
                   "names lanes that are not there");
}

/* ---- the rest ---- */

static void test_atomics_count_every_thread(void) {
    OPEN_OR_SKIP(emulation);
    struct lists lists;
    fill(&lists);
    uint32_t n = 700, bins = 10, largest = 0, expected[10] = {0}, expected_largest = 0;
    unsigned long long sum = 0, expected_sum = 0;
    memset(lists.to, 0, sizeof lists.to);
    void *sum_pointer = &sum, *largest_pointer = &largest;
    struct weir__cuda_grid grid = emulation_grid(8, THREADS);
    CHECK(emulation_run("count", &grid,
                        (void *[]){&lists.to_pointer, &sum_pointer, &largest_pointer,
                                   &lists.from_pointer, &n, &bins}));
    for (uint32_t i = 0; i < n; i++) {
        expected[lists.from[i] % bins]++;
        expected_sum += lists.from[i];
        if (lists.from[i] > expected_largest) expected_largest = lists.from[i];
    }
    CHECK_EQ_BYTES(lists.to, expected, sizeof expected);
    CHECK_EQ_UINT(sum, expected_sum);
    CHECK_EQ_UINT(largest, expected_largest);
}

static void test_impossible_launches_are_refused(void) {
    OPEN_OR_SKIP(emulation);
    static const struct weir__cuda_grid grids[] = {
        {{1, 1, 1}, {1025, 1, 1}, 0},       {{1, 1, 1}, {0, 1, 1}, 0},
        {{0, 1, 1}, {32, 1, 1}, 0},         {{1, 1, 1}, {1, 1, 65}, 0},
        {{1, 65536, 1}, {32, 1, 1}, 0},     {{1, 1, 65536}, {32, 1, 1}, 0},
        {{1, 1, 1}, {32, 1, 1}, 300 * 1024}};
    struct lists lists;
    fill(&lists);
    for (size_t i = 0; i < WEIR__COUNT_OF(grids); i++) {
        const char *fault = fault_of(&emulation, "reverse", &grids[i],
                                     (void *[]){&lists.to_pointer, &lists.from_pointer});
        CHECK_CONTAINS(fault, "cannot be launched");
    }
    for (uint32_t i = 0; i < 1024; i++) CHECK_EQ_UINT(lists.to[i], 0x5A5A5A5A);
}

/* The signal that a child dies of when it runs the kernel; 0 if it lives. */
static int death_of(const struct emulation *emulation, const char *name,
                    const struct weir__cuda_grid *grid, void **arguments) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP};
        for (size_t i = 0; i < WEIR__COUNT_OF(signals); i++) signal(signals[i], SIG_DFL);
        const struct fake_cuda_kernel *kernel = emulation_find(emulation, name);
        kernel->run(grid->blocks, grid->threads, grid->shared_bytes, arguments);
        _exit(0);
    }
    int status = 0;
    if (!EXPECT(child > 0 && waitpid(child, &status, 0) == child)) return 0;
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static bool is_crash(int signal_number) {
    return signal_number == SIGSEGV || signal_number == SIGBUS || signal_number == SIGILL ||
           signal_number == SIGTRAP;
}

static void test_a_misaligned_vector_crashes(void) {
    OPEN_OR_SKIP(emulation);
    if (test_is_sanitized()) SKIP("a sanitizer reports it in another way");
    _Alignas(16) uint32_t to[8];
    void *aligned = to + 3, *misaligned = to;
    struct weir__cuda_grid grid = emulation_grid(1, 1);
    CHECK_EQ_INT(death_of(&emulation, "misaligned", &grid, (void *[]){&aligned}), 0);
    CHECK(is_crash(death_of(&emulation, "misaligned", &grid, (void *[]){&misaligned})));
}

static void test_an_index_outside_of_shared_memory_crashes(void) {
    OPEN_OR_SKIP(emulation);
    if (test_is_sanitized()) SKIP("a sanitizer reports it in another way");
    uint32_t to[256], inside = 31, outside = 32;
    void *pointer = to, *from = to;
    struct weir__cuda_grid grid = emulation_grid(1, 1);
    CHECK_EQ_INT(death_of(&emulation, "outside_shared", &grid, (void *[]){&pointer, &inside}), 0);
    CHECK(is_crash(death_of(&emulation, "outside_shared", &grid, (void *[]){&pointer, &outside})));
    grid = emulation_grid(1, 256);
    grid.shared_bytes = 4 * 252; /* too little for so many threads */
    CHECK(is_crash(death_of(&emulation, "reverse", &grid, (void *[]){&pointer, &from})));
}

static void test_memory_outside_of_a_watched_range_is_found(void) {
    OPEN_OR_SKIP(emulation);
    struct watched watched = watched_new(100, 4, false);
    CHECK(watched.at != NULL && (uintptr_t)watched.at % 64 == 4);
    watched.at[-1] = 1;
    test_expect_failures_begin();
    watched_clean_up(&watched);
    CHECK_EQ_INT(test_expect_failures_end(NULL, 0), 1);
    watched = watched_new(100, 28, false); /* ends where the page does */
    CHECK_EQ_UINT((uintptr_t)(watched.at + 100) % 4096, 0);
    watched_clean_up(&watched);
    watched = watched_new(0, 0, true);
    watched_clean_up(&watched);
}

WEIR_TEST_SUITE(emulation, TEST(every_kernel_of_the_product_is_emulated),
                TEST(parameters_are_described), TEST(images_are_what_nvcc_makes),
                TEST(threads_know_their_places), TEST(orders_come_from_the_seed),
                TEST(a_barrier_lets_threads_exchange_values),
                TEST(barriers_in_a_loop_keep_rounds_apart),
                TEST(a_missing_barrier_gives_a_wrong_result),
                TEST(a_barrier_missing_between_rounds_gives_a_wrong_result),
                TEST(shared_memory_begins_unwritten_in_every_block),
                TEST(a_barrier_that_some_do_not_reach_is_reported), TEST(shuffles_add_up_a_warp),
                TEST(a_warp_multiplies_tiles), TEST(lanes_meet_in_groups),
                TEST(parts_of_a_warp_vote_apart), TEST(a_wrong_mask_is_reported),
                TEST(atomics_count_every_thread), TEST(impossible_launches_are_refused),
                TEST(a_misaligned_vector_crashes), TEST(an_index_outside_of_shared_memory_crashes),
                TEST(memory_outside_of_a_watched_range_is_found))
