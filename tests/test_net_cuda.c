/* SPDX-License-Identifier: MIT */
/*
 * Goal: networks train on GPUs: what the CPU's reference kernels give, up to rounding, and the same
 * bits whatever the pipeline and in whatever order the GPU does its work. Method: the random models
 * of net_models.h on the fake driver, whose kernels are emulated and whose libraries are the
 * reference kernels; each trained on one stage on one GPU, on a random pipeline over GPUs, on one
 * over GPUs and CPUs, and on the CPU.
 *
 * How near: rounding errors grow with the length of sums, the chain of layers, and 1 / deviation of
 * each norm on the way, of which an image net has several in a row. So the CPU is measured too: its
 * f32 against f64. A GPU may be sixteen times as far from the CPU's f32 as that is from f64, or
 * 2^-15 of the largest magnitude. After two updates AdamW has divided by magnitudes that may
 * themselves be rounding errors, so there only the loss is looked at, by 2^-8.
 */
#include "device/cuda_driver.h"
#include "engine_gpu.h"
#include "fake_gpu.h"
#include "harness.h"
#include "net/cuda/numerics.h"
#include "net_pipes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASES = 24, GPUS = 2 };
static const char *const names[] = {"cuda:0", "cuda:1"};

static bool coin(void) {
    return test_random_below(2) == 1;
}

static uint32_t between(uint32_t least, uint32_t most) {
    return least + (uint32_t)test_random_below(most - least + 1);
}

/* ---- near ---- */

static float largest(const float *numbers, size_t bytes) {
    float most = 0;
    for (size_t i = 0; i < bytes / sizeof *numbers; i++) most = fmaxf(most, fabsf(numbers[i]));
    return most;
}

/* The largest error of the CPU's f32. */
static double own_error(const void *single, const void *exact, size_t bytes) {
    const float *a = single;
    const double *b = exact;
    double most = 0;
    for (size_t i = 0; i < bytes / sizeof *a; i++) most = fmax(most, fabs((double)a[i] - b[i]));
    return most;
}

static void expect_near(const void *got, const void *want, const void *exact, size_t bytes,
                        const char *what) {
    const float *a = got, *b = want;
    double bound = 16 * own_error(want, exact, bytes) + 0x1p-15 * (double)largest(want, bytes);
    for (size_t i = 0; i < bytes / sizeof *a; i++) {
        if (fabs((double)a[i] - (double)b[i]) <= bound) continue;
        TEST_FAIL("%s %zu is %.9g, not %.9g: %.3g apart, at most %.3g", what, i, (double)a[i],
                  (double)b[i], fabs((double)a[i] - (double)b[i]), bound);
        return;
    }
}

/* In bf16 each number is rounded to 2^-8 of itself many times over, and a rounding may turn a ReLU
 * or a pool's winner, which in so small a net may turn a good part of the gradient: it still points
 * where the CPU's does, in nets that f32 computes to nearly all its digits. How near bf16 is, is
 * asked of each kernel (test_kernels_net.c). */
static void compare_bf16_with_cpu(const struct trial_result got[2],
                                  const struct trial_result want[2],
                                  const struct trial_result exact[2]) {
    double error = own_error(want[0].gradients, exact[0].gradients, want[0].gradient_bytes);
    bool is_steady = error <= 0x1p-22 * (double)largest(want[0].gradients, want[0].gradient_bytes);
    const float *a = got[0].gradients, *b = want[0].gradients;
    double difference = 0, whole = 0;
    for (size_t i = 0; i < want[0].gradient_bytes / sizeof *a; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        whole += (double)b[i] * (double)b[i];
    }
    EXPECT(!is_steady || difference < whole);
    EXPECT(fabs(got[0].loss - want[0].loss) <= 0.1 * fmax(1, fabs(want[0].loss)));
    EXPECT(fabs(got[1].loss - want[1].loss) <= 0.2 * fmax(1, fabs(want[1].loss)));
}

static void compare_with_cpu(const struct trial_result got[2], const struct trial_result want[2],
                             const struct trial_result exact[2]) {
    double norm_error = fabs(want[0].norm - exact[0].norm);
    EXPECT(fabs(got[0].loss - want[0].loss) <=
           16 * fabs(want[0].loss - exact[0].loss) + 0x1p-18 * fmax(1, fabs(want[0].loss)));
    EXPECT(fabs(got[0].norm - want[0].norm) <= 16 * norm_error + 0x1p-15 * want[0].norm);
    expect_near(got[0].output, want[0].output, exact[0].output, want[0].output_bytes, "output");
    expect_near(got[0].gradients, want[0].gradients, exact[0].gradients, want[0].gradient_bytes,
                "gradient");
    EXPECT(fabs(got[1].loss - want[1].loss) <= 0x1p-8 * fmax(1, fabs(want[1].loss)));
}

/* Behind the fake driver they are the reference kernels; a real GPU needs the real ones, and the
 * fake driver, where it stands for a real one (test_gpu_mode.c), has neither. */
static bool libraries_are_there(void) {
    struct weir_error error = {0};
    if (test_gpu_is_real() && getenv("WEIR_FAKE_CUDA_GPUS") != NULL)
        test_skip("the fake driver has no cuBLASLt and no cuDNN");
    else if (weir__cuda_library_check("cuBLASLt", &error) != WEIR_OK ||
             weir__cuda_library_check("cuDNN", &error) != WEIR_OK)
        test_skip("%s", error.message);
    else
        return true;
    return false;
}

/* ---- random cases ---- */

static void choose_devices(struct weir_net_options *options, bool mixed, const char **devices) {
    uint32_t workers = options->pipe.workers > 0 ? options->pipe.workers : options->stages;
    for (uint32_t w = 0; w < workers; w++)
        devices[w] = mixed && coin() ? "cpu" : engine_gpu_name(names[test_random_below(GPUS)]);
    options->pipe.devices = devices;
    options->pipe.device_count = workers;
}

static void choose_pipeline(struct weir_net_options *several, uint32_t layers, bool descending,
                            uint32_t *balance, enum weir_checkpoint *modes, char *table) {
    several->stages = between(1, layers < 4 ? layers : 4);
    net_pipe_balance(layers, several->stages, balance);
    several->balance = balance;
    net_pipe_schedule(several, descending);
    several->pipe.checkpoint = net_pipe_checkpoint();
    for (uint32_t s = 0; s < several->stages; s++) modes[s] = net_pipe_checkpoint();
    if (coin()) several->pipe.stage_checkpoint = modes;
    several->pipe.recompute_late = coin();
    if (coin() && net_pipe_is_whole(several->pipe.schedule))
        trial_split(several, coin() ? 100 : 50, table);
}

/* The same numbers in f64. */
static void widen(const struct net_problem *problem, const struct weir_net_options *options,
                  const struct trial_data *from, struct trial_data *to) {
    net_pipe_data(problem, options, to);
    const void *single[] = {from->input, from->target};
    void *wide[] = {to->input, to->target};
    size_t bytes[] = {to->input_bytes, to->target_bytes};
    bool is_float[] = {weir_dtype_is_float(problem->input.dtype),
                       weir_dtype_is_float(problem->target.dtype)};
    for (int k = 0; k < 2; k++) {
        if (!is_float[k]) memcpy(wide[k], single[k], bytes[k]);
        for (size_t i = 0; is_float[k] && i < bytes[k] / sizeof(double); i++)
            ((double *)wide[k])[i] = (double)((const float *)single[k])[i];
    }
}

static void train_exactly(const struct net_problem *problem, const struct weir_net_options *cpu,
                          const struct trial_data *data, struct trial_result exact[2]) {
    struct weir_net_options options = *cpu;
    struct trial_data wide;
    options.dtype = WEIR_F64;
    widen(problem, &options, data, &wide);
    net_pipe_train(problem, &options, &wide, exact);
    trial_data_clean_up(&wide);
}

enum { CPU, EXACT, ONE, SEVERAL, NETS };

static void compare(const struct net_problem *problem, const struct weir_net_options *cpu,
                    const struct weir_net_options *one, const struct weir_net_options *several,
                    bool same) {
    struct trial_data data;
    struct trial_result r[NETS][2] = {{{0}}};
    net_pipe_data(problem, one, &data);
    net_pipe_train(problem, cpu, &data, r[CPU]);
    train_exactly(problem, cpu, &data, r[EXACT]);
    if (!test_has_failed()) net_pipe_train(problem, one, &data, r[ONE]);
    if (!test_has_failed()) net_pipe_train(problem, several, &data, r[SEVERAL]);
    if (!test_has_failed()) {
        if (one->dtype == WEIR_BF16)
            compare_bf16_with_cpu(r[ONE], r[CPU], r[EXACT]);
        else
            compare_with_cpu(r[ONE], r[CPU], r[EXACT]);
        for (int i = 0; same && i < 2; i++) trial_result_compare(&r[ONE][i], &r[SEVERAL][i]);
        if (!same) compare_with_cpu(r[SEVERAL], r[CPU], r[EXACT]);
    }
    for (int i = 0; i < 2 * NETS; i++) trial_result_clean_up(&r[i / 2][i % 2]);
    trial_data_clean_up(&data);
}

static void random_case(const struct weir_fake_cuda_control *gpu, bool mixed,
                        enum weir_dtype dtype) {
    struct net_problem problem = {0};
    static char table[TRIAL_TABLE_BYTES];
    const char *devices[8];
    uint32_t balance[8];
    enum weir_checkpoint modes[8];
    net_problem_init(&problem);
    if (problem.model == NULL || test_has_failed()) return;
    gpu->reset(test_random_u64(), GPUS, coin() ? WEIR_FAKE_CUDA_NO_PEERS : 0);
    struct weir_net_options cpu = trial_options(1, between(1, 9), between(1, 4));
    cpu.dtype = WEIR_F32;
    cpu.input_grads = coin();
    cpu.pipe.schedule = coin() ? "gpipe" : "1f1b";
    cpu.pipe.clip_norm = coin() ? 0.5 : 0;
    if (coin()) cpu.optimizer = (struct weir_optimizer)WEIR_SGD_INIT;
    struct weir_net_options one = cpu, several;
    cpu.reference = true;
    one.dtype = dtype;
    one.pipe.devices = names;
    one.pipe.device_count = 1;
    several = one;
    choose_pipeline(&several, weir_model_layer_count(problem.model),
                    strcmp(one.pipe.schedule, "gpipe") == 0, balance, modes, table);
    choose_devices(&several, mixed, devices);
    compare(&problem, &cpu, &one, &several, !mixed);
    fake_gpus_clean(gpu);
    if (test_has_failed()) {
        net_pipe_print(&problem, &several);
        for (uint32_t w = 0; w < several.pipe.device_count; w++)
            printf("  worker %u on %s\n", w, devices[w]);
    }
    weir_model_destroy(problem.model);
}

static void test_gpus_give_the_same_bits_whatever_the_pipeline(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open_any();
    if (gpu == NULL) return;
    if (!libraries_are_there()) return;
    for (int i = 0; i < CASES && !test_has_failed(); i++) random_case(gpu, false, WEIR_F32);
}

static void test_gpus_and_cpus_train_one_network(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open_any();
    if (gpu == NULL) return;
    if (!libraries_are_there()) return;
    for (int i = 0; i < CASES / 2 && !test_has_failed(); i++) random_case(gpu, true, WEIR_F32);
}

static void test_bf16_has_the_same_bits_too(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open_any();
    if (gpu == NULL) return;
    if (!libraries_are_there()) return;
    for (int i = 0; i < CASES / 2 && !test_has_failed(); i++) random_case(gpu, false, WEIR_BF16);
}

/* ---- failing calls ---- */

/* A net's whole life with the k-th call of the driver or its libraries failing. False: there are
 * not so many. */
static bool live_with_failure(const struct weir_fake_cuda_control *gpu,
                              const struct net_problem *problem,
                              const struct weir_net_options *options, uint64_t k, int result) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_fake_cuda_counts left;
    struct weir_net *net = NULL;
    struct trial_data data;
    faults.allocator = test_allocator();
    gpu->reset(k, GPUS, WEIR_FAKE_CUDA_UNGUARDED);
    gpu->fail_call(k, result);
    net_pipe_data(problem, options, &data);
    int status = weir_net_new(problem->model, options, &faults, &net);
    EXPECT(status == WEIR_OK || faults.count > 0);
    if (status == WEIR_OK) status = weir_net_init(net, 7);
    if (status == WEIR_OK) {
        struct weir_net_batch batch = {
            .rows = data.rows, .input = data.input, .target = data.target, .lr = -1};
        struct weir_step_result done;
        status = weir_net_step(net, &batch, &done);
        EXPECT(status == WEIR_OK || done.error.message[0] != '\0');
    }
    weir_net_destroy(net);
    weir_faults_clean_up(&faults);
    trial_data_clean_up(&data);
    gpu->counts(&left);
    EXPECT_EQ_UINT(left.contexts, 0);
    EXPECT_EQ_UINT(left.streams + left.events + left.allocations + left.pins + left.modules, 0);
    if (test_has_failed()) printf("call %llu gave %d\n", (unsigned long long)k, result);
    return gpu->failed();
}

static void test_failing_calls_leave_nothing_behind(void) {
    static const int results[] = {WEIR__CUDA_OUT_OF_MEMORY, WEIR__CUDA_ILLEGAL_ADDRESS};
    const struct weir_fake_cuda_control *gpu = fake_gpus(1, GPUS, 0);
    uint32_t failed = 0;
    struct net_problem problem = {0};
    if (gpu == NULL) return;
    net_problem_init(&problem);
    struct weir_net_options options =
        trial_options(weir_model_layer_count(problem.model) > 1 ? 2 : 1, 4, 2);
    options.dtype = WEIR_F32;
    options.pipe.devices = names;
    options.pipe.device_count = options.stages;
    for (uint64_t k = 1, step = 1; !test_has_failed(); k += step, step = 1 + k / 40) {
        if (!live_with_failure(gpu, &problem, &options, k, results[k % 2])) break;
        failed++;
    }
    EXPECT(failed > 50);
    printf("  %u calls failed in turn\n", failed);
    weir_model_destroy(problem.model);
}

WEIR_TEST_SUITE(net_cuda, TEST(bf16_has_the_same_bits_too),
                TEST(failing_calls_leave_nothing_behind),
                TEST(gpus_give_the_same_bits_whatever_the_pipeline),
                TEST(gpus_and_cpus_train_one_network))
