/* SPDX-License-Identifier: MIT */
/*
 * Goal: linear layers and convolutions on a GPU, as far as they are not a library's: what is
 * packed, what is added, what stands where, and what a failing library does. Method: behind the
 * fake driver products and convolutions are the reference's, so that F32 gives its bits; any of the
 * driver's and libraries' calls fails in turn. Nearness to f64, BF16 and other addresses are
 * test_kernels_net.c's.
 */
#include "cuda/fake_gpu.h"
#include "harness.h"
#include "cuda/kernel_gpu.h"
#include "kernels/kernels.h"
#include "net/cuda/cuda.h"
#include "net/cuda/numerics.h"

#include <stdlib.h>
#include <string.h>

static const enum weir__op_code ops[] = {
    WEIR__OP_linear, WEIR__OP_linear_grad_input, WEIR__OP_linear_grad_weight,
    WEIR__OP_conv2d, WEIR__OP_conv2d_grad_input, WEIR__OP_conv2d_grad_weight};
enum { CASES = 25 };

/* A library of a real GPU has other bits, and none of its calls fails. */
#define FAKE_OR_RETURN(fake)                                                                       \
    const struct weir_fake_cuda_control *fake = fake_gpus(test_random_u64(), 1, 0);                \
    if (fake == NULL) return

static void compare(const struct weir__op_shape *shape) {
    struct kernel_case test;
    struct kernel_results got, wanted;
    kernel_case_init(&test, shape);
    test.overwrite = test_random_below(2) == 0;
    EXPECT_STATUS(kernel_run(&test, KERNEL_F32, 0, &wanted), WEIR_OK);
    EXPECT_STATUS(kernel_run(&test, KERNEL_CUDA, 0, &got), WEIR_OK);
    kernel_expect_same(&got, &wanted, "behind the fake driver");
    kernel_results_clean_up(&got);
    kernel_results_clean_up(&wanted);
    kernel_case_clean_up(&test);
}

static void test_f32_is_the_reference(void) {
    FAKE_OR_RETURN(fake);
    for (size_t o = 0; o < WEIR__COUNT_OF(ops); o++)
        for (int i = 0; i < CASES && !test_has_failed(); i++) {
            struct weir__op_shape shape = kernel_any_shape(ops[o]);
            compare(&shape);
        }
}

/* More channels than a tile of the kernels that turn weights, more taps, and both. */
static void test_large_kernels_are_turned(void) {
    FAKE_OR_RETURN(fake);
    static const struct {
        int64_t in, out, side;
    } sizes[] = {{65, 1, 1}, {130, 2, 3}, {3, 2, 7}, {66, 1, 6}};
    for (size_t o = 3; o < WEIR__COUNT_OF(ops); o++)
        for (size_t i = 0; i < WEIR__COUNT_OF(sizes) && !test_has_failed(); i++) {
            int64_t side = sizes[i].side;
            struct weir__op_shape shape = {.op = ops[o],
                                           .rows = 1,
                                           .rows_max = 2,
                                           .in = sizes[i].in,
                                           .out = sizes[i].out,
                                           .window = {.in = {side, side + 1},
                                                      .out = {1, 2},
                                                      .kernel = {side, side},
                                                      .stride = {1, 1},
                                                      .groups = 1}};
            compare(&shape);
        }
}

/* ---- rows ---- */

/* The first rows of `all`, as a case of their own. */
static void take_rows(const struct kernel_case *all, int64_t rows, struct kernel_case *some) {
    struct weir__op_shape shape = all->shape;
    shape.rows = rows;
    kernel_case_empty(some, &shape);
    for (int i = 0; i < KERNEL_INS; i++)
        if (some->in[i] != NULL)
            memcpy(some->in[i], all->in[i], (size_t)some->operands.in[i].count * sizeof(double));
}

static void compare_rows(enum weir__op_code op, enum kernel_backend backend) {
    struct weir__op_shape shape = kernel_any_shape(op);
    struct kernel_case all, some;
    struct kernel_results whole, part;
    shape.rows = shape.rows_max = 2 + (int64_t)test_random_below(4);
    kernel_case_init(&all, &shape);
    take_rows(&all, 1 + (int64_t)test_random_below((uint64_t)shape.rows - 1), &some);
    EXPECT_STATUS(kernel_run(&all, backend, 0, &whole), WEIR_OK);
    EXPECT_STATUS(kernel_run(&some, backend, 0, &part), WEIR_OK);
    for (int64_t i = 0; i < some.operands.out[0].count; i++)
        if (part.out[0][i] != whole.out[0][i]) {
            TEST_FAIL("%s, %lld of %lld rows: number %lld is %.9g, not %.9g", weir__op_name(op),
                      (long long)some.shape.rows, (long long)shape.rows, (long long)i,
                      part.out[0][i], whole.out[0][i]);
            break;
        }
    kernel_results_clean_up(&part);
    kernel_results_clean_up(&whole);
    kernel_case_clean_up(&some);
    kernel_case_clean_up(&all);
}

static void test_rows_have_their_bits_whatever_their_number(void) {
    static const enum weir__op_code by_rows[] = {WEIR__OP_linear, WEIR__OP_linear_grad_input,
                                                 WEIR__OP_conv2d, WEIR__OP_conv2d_grad_input};
    if (!kernel_gpu_is_there()) SKIP("there is no driver to run on");
    for (size_t o = 0; o < WEIR__COUNT_OF(by_rows); o++)
        for (int i = 0; i < 6 && !test_has_failed(); i++)
            compare_rows(by_rows[o], i % 2 == 0 ? KERNEL_CUDA : KERNEL_CUDA_BF16);
}

/* ---- failures ---- */

/* The context of opening and of the trial's three calls for memory, the memory itself, without
 * which nothing is tried, and giving it back. */
enum { PASSED = 6 };

/* Makes a row's state on an opened device; the k-th call of it fails. Whether one did; `passed`
 * counts those that need not succeed: who asks which context is current need not know, and what is
 * given back is given back. */
static bool prepare_with_failure(const struct weir_fake_cuda_control *fake,
                                 const struct weir__op_shape *shape, uint64_t k, int *passed) {
    const struct weir__kernel *row = weir__backend_cuda.kernel(shape->op, shape->dtype);
    struct weir__device *device = fake_gpu_open("cuda:0");
    struct weir_stream *stream = NULL;
    void *state = NULL;
    char text[160];
    if (device == NULL) return false;
    EXPECT_STATUS(device->calls->stream_new(device, &stream), WEIR_OK);
    fake->fail_call(k, WEIR__CUDA_OUT_OF_MEMORY);
    int status = row->prepare(shape, stream, &state);
    bool failed = fake->failed();
    fake->fail_call(0, 0);
    bool refused = failed && status != WEIR_OK;
    *passed += failed && !refused;
    EXPECT_STATUS(status, refused ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
    device->calls->explain(device, text, sizeof text);
    if (refused) EXPECT_CONTAINS(text, "CUDA_ERROR_OUT_OF_MEMORY");
    EXPECT_EQ_INT(state == NULL, refused);
    row->release(state);
    device->calls->stream_destroy(stream);
    device->calls->close(device);
    EXPECT(fake_gpus_clean(fake));
    return failed;
}

static void test_a_library_that_fails_leaves_nothing(void) {
    FAKE_OR_RETURN(fake);
    for (size_t o = 0; o < WEIR__COUNT_OF(ops); o++) {
        struct weir__op_shape shape = kernel_any_shape(ops[o]);
        shape.dtype = WEIR_F32;
        uint64_t k = 1;
        int passed = 0;
        while (k < 100 && prepare_with_failure(fake, &shape, k, &passed)) k++;
        EXPECT(k > 8 && k < 100); /* opening the library, the plan, its trial, and then none */
        EXPECT_EQ_INT(passed, PASSED);
    }
}

static void test_rows_share_a_device_library(void) {
    FAKE_OR_RETURN(fake);
    struct weir__device *device = fake_gpu_open("cuda:0");
    CHECK(device != NULL);
    struct weir_fake_cuda_counts counts;
    struct weir__cuda_library_use first, second;
    struct weir_error error = {0};
    EXPECT_STATUS(weir__cuda_library_need(device, WEIR__CUDA_PRODUCTS, &error), WEIR_OK);
    EXPECT_STATUS(weir__cuda_library_use(device, WEIR__CUDA_PRODUCTS, &first), WEIR_OK);
    EXPECT_STATUS(weir__cuda_library_use(device, WEIR__CUDA_PRODUCTS, &second), WEIR_OK);
    EXPECT_EQ_PTR(first.library, second.library);
    fake->counts(&counts);
    EXPECT_EQ_UINT(counts.plans, 1);
    EXPECT_STATUS(weir__cuda_library_need(device, WEIR__CUDA_CONVOLUTIONS, &error), WEIR_OK);
    fake->counts(&counts);
    EXPECT_EQ_UINT(counts.plans, 2);
    device->calls->close(device);
    EXPECT(fake_gpus_clean(fake));
}

static void test_the_fake_driver_brings_its_libraries(void) {
    FAKE_OR_RETURN(fake);
    struct weir_error error = {0};
    CHECK(setenv("WEIR_CUDNN", "/none/libcudnn.so", 1) == 0);
    EXPECT_STATUS(weir__cuda_library_check("cuDNN", &error), WEIR_OK);
    unsetenv("WEIR_CUDNN");
    CHECK(setenv("WEIR_CUDA_DRIVER", "/none/libcuda.so", 1) == 0);
    EXPECT_STATUS(weir__cuda_library_check("CUDA", &error), WEIR_OK);
    EXPECT_STATUS(weir__cuda_library_check("cuBLASLt", &error), WEIR_ERR_NOT_FOUND);
    EXPECT_CONTAINS(error.message, "/none/libcuda.so");
    EXPECT(fake_gpus_clean(fake));
}

/* ---- attention ---- */

static const struct weir__op_shape attention_of_three = {.op = WEIR__OP_attention,
                                                         .rows = 2,
                                                         .rows_max = 3,
                                                         .tokens = 5,
                                                         .heads = 3,
                                                         .width = 48,
                                                         .dtype = WEIR_BF16};

/* Whether the library's is taken for a shape. */
static bool has_attention(const struct weir__op_shape *shape) {
    const struct weir__kernel *row = weir__backend_cuda.kernel(shape->op, shape->dtype);
    struct weir__device *device = fake_gpu_open("cuda:0");
    struct weir_stream *stream = NULL;
    void *state = NULL;
    if (device == NULL) return false;
    EXPECT_STATUS(device->calls->stream_new(device, &stream), WEIR_OK);
    EXPECT_STATUS(row->prepare(shape, stream, &state), WEIR_OK);
    bool has = state != NULL;
    row->release(state);
    device->calls->stream_destroy(stream);
    device->calls->close(device);
    return has;
}

static void test_a_library_has_attention_or_we_do(void) {
    FAKE_OR_RETURN(fake);
    struct weir__op_shape shape = attention_of_three;
    EXPECT(has_attention(&shape));
    shape.op = WEIR__OP_attention_grad;
    EXPECT(has_attention(&shape));
    shape.rows = shape.rows_max = 1;
    EXPECT(has_attention(&shape));
    shape.dtype = WEIR_F32;
    EXPECT(!has_attention(&shape));
    shape.dtype = WEIR_BF16;
    shape.width = 36; /* heads of 12 */
    EXPECT(!has_attention(&shape));
    shape.width = 3 * 136;
    EXPECT(!has_attention(&shape));
    shape.heads = 2; /* which the fake library lacks */
    shape.width = 32;
    EXPECT(!has_attention(&shape));
    EXPECT(fake_gpus_clean(fake));
}

/* Two plans that do not run are dropped when they are tried, and the third is taken; where none
 * is left attention is ours. */
static void test_a_plan_that_does_not_run_is_dropped(void) {
    FAKE_OR_RETURN(fake);
    struct weir__op_shape shape = kernel_any_shape(WEIR__OP_conv2d);
    shape.dtype = WEIR_F32;
    struct weir__op_shape shapes[] = {shape, attention_of_three};
    for (size_t i = 0; i < WEIR__COUNT_OF(shapes); i++) {
        const struct weir__kernel *row = weir__backend_cuda.kernel(shapes[i].op, shapes[i].dtype);
        struct weir__device *device = fake_gpu_open("cuda:0");
        struct weir_stream *stream = NULL;
        void *state = NULL;
        char line[160] = "", *dropped = NULL;
        CHECK(device != NULL);
        CHECK_OK(device->calls->stream_new(device, &stream));
        shapes[i].rows_max = shapes[i].rows;
        fake->bad_plans(2);
        EXPECT_STATUS(row->prepare(&shapes[i], stream, &state), WEIR_OK);
        EXPECT(state != NULL);
        for (uint32_t w = 0; device->calls->tell_way(device, w, line, sizeof line); w++)
            if (dropped == NULL) dropped = strstr(line, "EXECUTION_FAILED");
        EXPECT(dropped != NULL);
        row->release(state);
        fake->bad_plans(1);
        shapes[i].rows_max++; /* fewer rows may not take another way */
        EXPECT_STATUS(row->prepare(&shapes[i], stream, &state), WEIR_ERR_BACKEND);
        EXPECT(state == NULL);
        device->calls->stream_destroy(stream);
        device->calls->close(device);
        EXPECT(fake_gpus_clean(fake));
    }
}

/* Whatever the libraries say then. */
static void test_a_driver_that_fails_drops_no_plan(void) {
    FAKE_OR_RETURN(fake);
    const struct weir__op_shape *shape = &attention_of_three;
    const struct weir__kernel *row = weir__backend_cuda.kernel(shape->op, shape->dtype);
    bool failed = true;
    for (uint64_t k = 1; failed; k++) {
        struct weir__device *device = fake_gpu_open("cuda:0");
        struct weir_stream *stream = NULL;
        struct weir__op_shape most = *shape;
        void *state = NULL;
        char line[160] = "";
        CHECK(device != NULL && k < 100);
        CHECK_OK(device->calls->stream_new(device, &stream));
        most.rows_max = most.rows;
        fake->bad_plans(1);
        fake->fail_call(k, WEIR__CUDA_INVALID_VALUE);
        int status = row->prepare(&most, stream, &state);
        failed = fake->failed();
        fake->fail_call(0, 0);
        fake->bad_plans(0);
        device->calls->explain(device, line, sizeof line);
        if (failed && strstr(line, "cuStreamSynchronize") != NULL)
            EXPECT_STATUS(status, WEIR_ERR_BACKEND);
        row->release(state);
        device->calls->stream_destroy(stream);
        device->calls->close(device);
        EXPECT(fake_gpus_clean(fake));
    }
}

/* Without room nothing is tried, and that is told. */
static void test_a_plan_is_not_tried_without_room(void) {
    FAKE_OR_RETURN(fake);
    struct weir__op_shape shape = kernel_any_shape(WEIR__OP_linear);
    shape.dtype = WEIR_F32;
    const struct weir__kernel *row = weir__backend_cuda.kernel(shape.op, shape.dtype);
    struct weir__device *device = fake_gpu_open("cuda:0");
    struct weir_stream *stream = NULL;
    void *state = NULL;
    char line[160] = "";
    bool told = false;
    CHECK(device != NULL);
    CHECK_OK(device->calls->stream_new(device, &stream));
    fake->set_memory(64 << 20);
    EXPECT_STATUS(row->prepare(&shape, stream, &state), WEIR_OK);
    for (uint32_t w = 0; device->calls->tell_way(device, w, line, sizeof line); w++)
        told = told || strstr(line, "cuda:0: memory: no room to try all plans") != NULL;
    EXPECT(told && state != NULL);
    row->release(state);
    device->calls->stream_destroy(stream);
    device->calls->close(device);
    EXPECT(fake_gpus_clean(fake));
}

static void test_attention_that_fails_leaves_nothing(void) {
    FAKE_OR_RETURN(fake);
    uint64_t k = 1;
    int passed = 0;
    while (k < 100 && prepare_with_failure(fake, &attention_of_three, k, &passed)) k++;
    EXPECT(k > 8 && k < 100);
    EXPECT_EQ_INT(passed, PASSED);
}

/* ---- workspace ---- */

static void test_workspace_has_its_bounds(void) {
    size_t bytes;
    struct weir__cuda_matmul matmul = {.m = 1, .m_max = 2, .n = 3, .k = 1000};
    EXPECT_STATUS(weir__cuda_matmul_workspace(&matmul, &bytes), WEIR_OK);
    EXPECT_EQ_UINT(bytes, 1024); /* 2 x 3 x 4 x 16 = 384, in whole KiB */
    matmul.m_max = matmul.n = 1 << 20;
    EXPECT_STATUS(weir__cuda_matmul_workspace(&matmul, &bytes), WEIR_OK);
    EXPECT_EQ_UINT(bytes, 32 << 20);
    matmul.m_max = matmul.n = INT64_MAX / 2;
    EXPECT_STATUS(weir__cuda_matmul_workspace(&matmul, &bytes), WEIR_ERR_OVERFLOW);

    struct weir__cuda_convolution convolution = {.rows = 1,
                                                 .rows_max = 4,
                                                 .in = 8,
                                                 .out = 8,
                                                 .window = {.in = {8, 8},
                                                            .out = {8, 8},
                                                            .kernel = {3, 3},
                                                            .stride = {1, 1},
                                                            .padding = {1, 1},
                                                            .groups = 1}};
    EXPECT_STATUS(weir__cuda_convolution_workspace(&convolution, &bytes), WEIR_OK);
    EXPECT_EQ_UINT(bytes, (2 * 2 * 4 * 8 * 64 + 8 * 8 * 8 * 9) * 4);
    convolution.rows_max = 1 << 30;
    EXPECT_STATUS(weir__cuda_convolution_workspace(&convolution, &bytes), WEIR_OK);
    EXPECT_EQ_UINT(bytes, 256 << 20);
    convolution.rows_max = INT64_MAX;
    EXPECT_STATUS(weir__cuda_convolution_workspace(&convolution, &bytes), WEIR_ERR_OVERFLOW);
}

static void test_attention_has_its_room(void) {
    struct weir__cuda_attend attend = {false, 2, 3, 1024, 12, 64};
    struct weir__cuda_attend_room room;
    EXPECT_STATUS(weir__cuda_attend_room(&attend, &room), WEIR_OK);
    EXPECT_EQ_UINT(room.bytes, 4096);
    EXPECT_EQ_INT(room.at_once, 3);
    attend.backward = true;
    size_t scores = 12 * 1024 * 1024 * 2, blocks = 12 * 16 * 64;
    EXPECT_STATUS(weir__cuda_attend_room(&attend, &room), WEIR_OK);
    EXPECT(room.keeps_scores);
    EXPECT_EQ_UINT(room.delta, 3 * 12 * 1024 * 4);
    EXPECT_EQ_UINT(room.plan, 3 * (scores + blocks) + 4096);
    EXPECT_EQ_UINT(room.bytes, room.delta + room.plan);
    attend.rows_max = 16; /* room for 5: four times 4 */
    EXPECT_STATUS(weir__cuda_attend_room(&attend, &room), WEIR_OK);
    EXPECT_EQ_INT(room.at_once, 4);
    attend.tokens = 4096; /* 384 MiB a row */
    EXPECT_STATUS(weir__cuda_attend_room(&attend, &room), WEIR_OK);
    EXPECT(!room.keeps_scores);
    EXPECT_EQ_INT(room.at_once, 16);
    EXPECT_EQ_UINT(room.plan, 16 * 12 * 64 * 64 + 4096);
    EXPECT_EQ_UINT(room.bytes, room.delta + room.plan);
    attend.tokens = INT64_MAX / 2;
    EXPECT_STATUS(weir__cuda_attend_room(&attend, &room), WEIR_ERR_OVERFLOW);
}

/* Parts of the rows begin where numbers by head and token are 16-byte aligned. */
static void test_attention_has_aligned_parts(void) {
    static const int64_t heads[] = {1, 5, 6, 25}, tokens[] = {255, 1022, 1023, 1024};
    bool parted = false, odd = false;
    for (size_t h = 0; h < WEIR__COUNT_OF(heads); h++)
        for (size_t t = 0; t < WEIR__COUNT_OF(tokens); t++)
            for (int64_t rows = 1; rows < 300; rows++) {
                struct weir__cuda_attend attend = {true, rows, rows, tokens[t], heads[h], 64};
                struct weir__cuda_attend_room room;
                EXPECT_STATUS(weir__cuda_attend_room(&attend, &room), WEIR_OK);
                EXPECT(room.at_once >= 1 && room.at_once <= rows);
                EXPECT(!room.keeps_scores || room.plan < (size_t)130 << 20);
                if (room.at_once == rows) continue;
                EXPECT_EQ_INT(room.at_once * heads[h] * tokens[t] % 4, 0);
                parted = true;
                odd = odd || heads[h] * tokens[t] % 2 != 0;
            }
    EXPECT(parted && odd);
    struct weir__cuda_attend attend = {true, 4, 4, 1023, 25, 64};
    struct weir__cuda_attend_room room;
    EXPECT_STATUS(weir__cuda_attend_room(&attend, &room), WEIR_OK);
    EXPECT(!room.keeps_scores); /* four rows of 50 MiB */
    EXPECT_EQ_INT(room.at_once, 4);
}

WEIR_TEST_SUITE(numerics, TEST(f32_is_the_reference), TEST(large_kernels_are_turned),
                TEST(rows_have_their_bits_whatever_their_number),
                TEST(a_library_that_fails_leaves_nothing), TEST(rows_share_a_device_library),
                TEST(a_plan_that_does_not_run_is_dropped), TEST(a_driver_that_fails_drops_no_plan),
                TEST(a_plan_is_not_tried_without_room), TEST(the_fake_driver_brings_its_libraries),
                TEST(workspace_has_its_bounds), TEST(a_library_has_attention_or_we_do),
                TEST(attention_that_fails_leaves_nothing), TEST(attention_has_its_room),
                TEST(attention_has_aligned_parts))
