/* SPDX-License-Identifier: MIT */
/*
 * Goal: attention of BF16 on a real GPU gives the same bits each time, forward and backward, at the
 * sizes that nets have: sums over many tokens, of which a library might let blocks finish in any
 * order. Method: equal runs into memory full of rubbish, by the library and by our kernels; and one
 * head against f64, so that it is attention what repeats.
 */
#include "harness.h"
#include "cuda/kernel_gpu.h"
#include "kernels/kernels.h"
#include "net/cuda/cuda.h"
#include "real_gpu.h"

#include <stdio.h>
#include <string.h>

enum { RUNS = 20, SIZE = 64 };
/* The buffers of a run: what is given, what is made, and rooms. */
enum { QKV, DY, GIVEN, Y = GIVEN, LSE, DQKV, MADE, FORWARD_ROOM = MADE, BACKWARD_ROOM, BUFFERS };

struct trial {
    struct weir__op_shape shapes[2]; /* forward, backward */
    const struct weir__kernel *kernels[2];
    void *states[2]; /* NULL: by our kernels */
    char *memory[BUFFERS], *first[MADE];
    size_t bytes[BUFFERS];
    struct kernel_gpu gpu;
};

/* ---- numbers ---- */

static double widened(const void *memory, int64_t i) {
    uint32_t bits = (uint32_t)((const uint16_t *)memory)[i] << 16;
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* Within ±2. */
static void fill(char *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += sizeof(uint16_t)) {
        float number = (float)(4 * test_random_unit() - 2);
        memcpy(memory + at, (char *)&number + 2, sizeof(uint16_t));
    }
}

/* ---- a trial's life ---- */

static void measure(struct trial *trial, int64_t rows, int64_t tokens, int64_t heads) {
    const enum weir__op_code ops[] = {WEIR__OP_attention, WEIR__OP_attention_grad};
    for (int i = 0; i < 2; i++) {
        trial->shapes[i] = (struct weir__op_shape){.op = ops[i],
                                                   .rows = rows,
                                                   .rows_max = rows,
                                                   .tokens = tokens,
                                                   .heads = heads,
                                                   .width = heads * SIZE,
                                                   .threads = 1,
                                                   .dtype = WEIR_BF16};
        trial->kernels[i] = weir__backend_cuda.kernel(ops[i], WEIR_BF16);
        CHECK_OK(trial->kernels[i]->measure(&trial->shapes[i], &trial->bytes[FORWARD_ROOM + i]));
    }
    size_t numbers = (size_t)(rows * tokens * heads);
    trial->bytes[DY] = trial->bytes[Y] = numbers * SIZE * sizeof(uint16_t);
    trial->bytes[QKV] = trial->bytes[DQKV] = 3 * trial->bytes[Y];
    trial->bytes[LSE] = numbers * sizeof(float);
}

static void trial_init(struct trial *trial, int64_t rows, int64_t tokens, int64_t heads) {
    memset(trial, 0, sizeof *trial);
    measure(trial, rows, tokens, heads);
    CHECK(kernel_gpu_init(&trial->gpu));
    for (int i = 0; i < BUFFERS; i++) {
        trial->memory[i] = weir__acquire(test_allocator(), trial->bytes[i], 1);
        memset(trial->memory[i], 0xA5, trial->bytes[i]);
        if (i < GIVEN) fill(trial->memory[i], trial->bytes[i]);
        kernel_gpu_add(&trial->gpu, trial->memory[i], trial->bytes[i]);
    }
    for (int i = GIVEN; i < MADE; i++)
        trial->first[i] = weir__acquire(test_allocator(), trial->bytes[i], 1);
    kernel_gpu_upload(&trial->gpu);
}

static void trial_clean_up(struct trial *trial) {
    kernel_gpu_clean_up(&trial->gpu);
    for (int i = 0; i < BUFFERS; i++)
        weir__release(test_allocator(), trial->memory[i], trial->bytes[i], 1);
    for (int i = GIVEN; i < MADE; i++)
        weir__release(test_allocator(), trial->first[i], trial->bytes[i], 1);
}

/* ---- runs ---- */

static void *there(const struct trial *trial, int buffer) {
    return kernel_gpu_at(&trial->gpu, trial->memory[buffer]);
}

static void run_once(struct trial *trial, int pass) {
    void *qkv = there(trial, QKV), *y = there(trial, Y), *lse = there(trial, LSE);
    const void *given[2][4] = {{qkv}, {there(trial, DY), qkv, y, lse}};
    void *made[2][2] = {{y, lse}, {there(trial, DQKV)}};
    const struct weir__op_call call = {.shape = &trial->shapes[pass],
                                       .state = trial->states[pass],
                                       .in = given[pass],
                                       .out = made[pass],
                                       .workspace = there(trial, FORWARD_ROOM + pass),
                                       .stream = trial->gpu.stream,
                                       .overwrite = true};
    EXPECT_STATUS(trial->kernels[pass]->run(&call), WEIR_OK);
}

/* Rubbish, then both passes, then all of it back on the host. */
static void run_both(struct trial *trial) {
    const struct weir__device_calls *calls = trial->gpu.device->calls;
    for (int i = GIVEN; i < BUFFERS; i++) {
        char *at = there(trial, i);
        size_t offset = (size_t)(at - trial->gpu.memory);
        memset(trial->gpu.staging + offset, 0xA5, trial->bytes[i]);
        EXPECT_STATUS(
            calls->copy(trial->gpu.stream, at, trial->gpu.staging + offset, trial->bytes[i]),
            WEIR_OK);
    }
    for (int pass = 0; pass < 2; pass++) run_once(trial, pass);
    EXPECT_STATUS(kernel_gpu_download(&trial->gpu), WEIR_OK);
}

static void repeat(struct trial *trial) {
    for (int run = 0; run < RUNS && !test_has_failed(); run++) {
        run_both(trial);
        for (int i = GIVEN; i < MADE && !test_has_failed(); i++) {
            if (run == 0) memcpy(trial->first[i], trial->memory[i], trial->bytes[i]);
            if (memcmp(trial->first[i], trial->memory[i], trial->bytes[i]) != 0)
                TEST_FAIL("run %d has other bits in buffer %d", run + 1, i);
        }
    }
}

/* ---- one head ---- */

/* Where head `head` of row `row` is: `thirds` is 3 in qkv. */
static void take_head(const struct trial *trial, int buffer, int64_t thirds, const int64_t at[2],
                      double *to) {
    const struct weir__op_shape *shape = &trial->shapes[0];
    for (int64_t t = 0; t < shape->tokens * thirds; t++) {
        int64_t first = (at[0] * shape->tokens * thirds + t) * shape->width + at[1] * SIZE;
        for (int64_t i = 0; i < SIZE; i++)
            to[t * SIZE + i] = widened(trial->memory[buffer], first + i);
    }
}

static void take_lse(const struct trial *trial, const int64_t at[2], double *to) {
    const struct weir__op_shape *shape = &trial->shapes[0];
    const float *from = (const float *)(const void *)trial->memory[LSE];
    for (int64_t t = 0; t < shape->tokens; t++)
        to[t] = from[(at[0] * shape->heads + at[1]) * shape->tokens + t];
}

static void check_head(const struct trial *trial, int pass, const int64_t at[2]) {
    struct weir__op_shape alone = trial->shapes[pass];
    struct kernel_case test;
    struct kernel_results got, wanted;
    alone.rows = alone.rows_max = alone.heads = 1;
    alone.width = SIZE;
    kernel_case_empty(&test, &alone);
    take_head(trial, QKV, 3, at, test.in[pass == 0 ? 0 : 1]);
    kernel_results_init(&got, &test);
    if (pass == 0) {
        take_head(trial, Y, 1, at, got.out[0]);
        take_lse(trial, at, got.out[1]);
    } else {
        take_head(trial, DY, 1, at, test.in[0]);
        take_head(trial, Y, 1, at, test.in[2]);
        take_lse(trial, at, test.in[3]);
        take_head(trial, DQKV, 3, at, got.out[0]);
    }
    EXPECT_STATUS(kernel_run(&test, KERNEL_F64, 0, &wanted), WEIR_OK);
    kernel_expect_near(&got, &wanted, kernel_tolerance_bf16(&wanted), "a head alone");
    kernel_results_clean_up(&wanted);
    kernel_results_clean_up(&got);
    kernel_case_clean_up(&test);
}

static void check(struct trial *trial, const char *who) {
    const struct weir__op_shape *shape = &trial->shapes[0];
    const int64_t at[] = {(int64_t)test_random_below((uint64_t)shape->rows),
                          (int64_t)test_random_below((uint64_t)shape->heads)};
    repeat(trial);
    for (int pass = 0; pass < 2 && !test_has_failed(); pass++) check_head(trial, pass, at);
    printf("  %lld tokens by %s: %d runs are the same\n", (long long)shape->tokens, who, RUNS);
}

/* By our kernels, and then by the library, as far as it has the passes. */
static void check_shape(int64_t rows, int64_t tokens, int64_t heads) {
    static struct trial trial;
    trial_init(&trial, rows, tokens, heads);
    check(&trial, "our kernels");
    for (int pass = 0; pass < 2; pass++)
        EXPECT_STATUS(trial.kernels[pass]->prepare(&trial.shapes[pass], trial.gpu.stream,
                                                   &trial.states[pass]),
                      WEIR_OK);
    bool has = trial.states[0] != NULL || trial.states[1] != NULL;
    if (has && !test_has_failed())
        check(&trial, trial.states[1] != NULL ? "cuDNN" : "cuDNN, forward only");
    for (int pass = 0; pass < 2; pass++) trial.kernels[pass]->release(trial.states[pass]);
    trial_clean_up(&trial);
}

static void test_bits_repeat(int64_t rows, int64_t tokens, int64_t heads) {
    if (!test_gpu_is_real() || real_gpu_is_fake()) SKIP("it takes a real GPU: --gpu");
    check_shape(rows, tokens, heads);
}

static void test_of_a_thousand_tokens(void) {
    test_bits_repeat(8, 1024, 12);
}

static void test_of_four_thousand_tokens(void) {
    test_bits_repeat(2, 4096, 16);
}

WEIR_TEST_SUITE(attention_repeats, TEST(of_a_thousand_tokens), TEST(of_four_thousand_tokens))
