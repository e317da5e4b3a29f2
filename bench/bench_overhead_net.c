/* SPDX-License-Identifier: MIT */
/*
 * The same question for net stages of one `linear` 1 -> 1 each: what the peers were measured with
 * (torchgpipe 104 us per task, torch.distributed.pipelining 370 to 415).
 *
 * Napkin. On top of the engine's 0.2 us, a micro-batch runs five tiny kernels per stage (product,
 * its two gradients, the bias's, and the loss or its gradient on the last), each a call through a
 * table with its operands placed, 50 to 200 ns, or a library's product of about a microsecond:
 * 1 to 4 us.
 */
#include "overhead.h"

#include "weir_net.h"

#include <string.h>

static const double AT_MOST_S = 10e-6;

/* x is 0 1 2 3 0 1 …, y = 3 (2 x + 1) - 1, and every target 1 below: all numbers are whole, so the
 * answer is exact: loss 1, gradients 9, 6 (first layer), 8, 2 (second). */
static const float parameters[4] = {2.0f, 1.0f, 3.0f, -1.0f};
static const float gradients[4] = {9.0f, 6.0f, 8.0f, 2.0f};

struct net_case {
    struct weir_model *model;
    struct weir_net *net;
    uint64_t mini_batch;
    float input[OVERHEAD_MOST], target[OVERHEAD_MOST];
};

static void make_model(struct net_case *one) {
    struct weir_tensor number = {.dtype = WEIR_F32, .rank = 1, .shape = {1}};
    struct weir_faults faults = WEIR_FAULTS_INIT;
    bench_check(weir_model_new(NULL, &number, &number, "mse", &one->model), "overhead/net");
    for (int i = 0; i < OVERHEAD_STAGES; i++) {
        int status = weir_model_add(one->model, "linear", NULL,
                                    WEIR_ATTRS(WEIR_ATTR_INT("out_features", 1)), &faults);
        bench_check_faults(status, "overhead/net", &faults);
    }
}

static void make_net(struct net_case *one, const char *schedule) {
    static const uint32_t balance[OVERHEAD_STAGES] = {1, 1};
    struct weir_net_options options = WEIR_NET_OPTIONS_INIT;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    options.stages = OVERHEAD_STAGES;
    options.balance = balance;
    options.optimizer.kind = WEIR_OPTIMIZER_NONE;
    options.pipe.rows = options.pipe.chunks = OVERHEAD_MOST;
    options.pipe.schedule = schedule;
    options.pipe.checkpoint = WEIR_CHECKPOINT_NEVER;
    options.pipe.threads_per_worker = 1;
    make_model(one);
    bench_check_faults(weir_net_new(one->model, &options, &faults, &one->net), "overhead/net",
                       &faults);
    for (int64_t rows = OVERHEAD_LEAST; rows < OVERHEAD_MOST; rows *= 2)
        bench_check(weir_pipe_prepare(weir_net_pipe(one->net), rows, NULL), "overhead/net");
    for (uint32_t i = 0; i < 4; i++) {
        struct weir_parameter parameter;
        bench_check(weir_net_parameter(one->net, i, &parameter), "overhead/net");
        memcpy(parameter.data, &parameters[i], sizeof parameters[i]);
    }
    for (int i = 0; i < OVERHEAD_MOST; i++) {
        one->input[i] = (float)(i % 4);
        one->target[i] = 6.0f * one->input[i] + 1.0f;
    }
}

static void run_step(struct net_case *one, uint32_t rows, struct weir_step_result *result) {
    struct weir_net_batch batch = {.rows = rows,
                                   .input = one->input,
                                   .target = one->target,
                                   .mini_batch = one->mini_batch++,
                                   .no_update = true,
                                   .lr = -1.0};
    int status = weir_net_step(one->net, &batch, result);
    if (status != WEIR_OK) bench_die("overhead/net: a step failed: %s", result->error.message);
}

static uint64_t timed_step(void *context, uint32_t micro_batches) {
    struct weir_step_result result;
    run_step(context, micro_batches, &result);
    return result.ns;
}

static void check_answers(struct bench *bench, struct net_case *one, const char *name) {
    struct weir_step_result result;
    bool right = true;
    for (uint32_t m = OVERHEAD_LEAST; m <= OVERHEAD_MOST; m *= 2) {
        run_step(one, m, &result);
        right &= result.loss == 1.0;
        for (uint32_t i = 0; i < 4; i++) {
            struct weir_parameter parameter;
            bench_check(weir_net_parameter(one->net, i, &parameter), "overhead/net");
            right &= memcmp(parameter.gradient, &gradients[i], sizeof gradients[i]) == 0;
        }
    }
    bench_answer(bench, right, "overhead/%s: loss and gradients are the closed form's", name);
}

static void print_kernels(const struct bench *bench, const struct net_case *one) {
    char kernels[512];
    uint32_t reference = weir_net_kernels(one->net, kernels, sizeof kernels);
    fprintf(bench->text, "net stages run %s%s\n", kernels,
            reference > 0 ? " (plain C, where nothing faster is built in)" : "");
}

void overhead_net(struct bench *bench, const double engine[2]) {
    static const char *const schedules[] = {"1f1b", "gpipe", "1f1b"};
    static const char *const labels[] = {"net/1f1b", "net/gpipe", "net/1f1b-again"};
    enum { CASES = 3 };
    struct net_case *own[CASES];
    struct overhead_case overheads[CASES];
    struct bench_case cases[CASES];
    for (int i = 0; i < CASES; i++) {
        own[i] = bench_take(bench, 1, sizeof *own[i]);
        make_net(own[i], schedules[i]);
        check_answers(bench, own[i], labels[i]);
        overhead_case_init(bench, &overheads[i], timed_step, own[i]);
        cases[i] = (struct bench_case){
            .label = labels[i], .sample = overhead_sample, .context = &overheads[i]};
    }
    print_kernels(bench, own[0]);
    bench_interleave(bench, cases, CASES);
    for (int i = 0; i < 2; i++) overhead_report(bench, &cases[i], engine[i], AT_MOST_S);
    bench_add_ratio(bench, &cases[0], &cases[2], "overhead/net/control")->control = true;
    for (int i = 0; i < CASES; i++) {
        check_answers(bench, own[i], labels[i]);
        weir_net_destroy(own[i]->net);
        weir_model_destroy(own[i]->model);
    }
}
