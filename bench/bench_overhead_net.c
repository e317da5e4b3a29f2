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

static const double AT_MOST_S = 10e-6;

/* x is 0 1 2 3 0 1 …, and every target 1 below what w x + b, layer after layer, makes of it: all
 * numbers are whole, so the answer is exact: loss 1, and 2 comes back. */
static const float parameters[OVERHEAD_STAGES_MOST][2] = {
    {2.0f, 1.0f}, {3.0f, -1.0f}, {2.0f, -3.0f}, {3.0f, 1.0f}};

struct net_case {
    const struct overhead_schedule *schedule;
    struct weir_model *model;
    struct weir_net *net;
    uint64_t mini_batch;
    float input[OVERHEAD_MOST], target[OVERHEAD_MOST];
    float gradients[OVERHEAD_STAGES_MOST][2];
};

static void make_model(struct net_case *one) {
    struct weir_tensor number = {.dtype = WEIR_F32, .rank = 1, .shape = {1}};
    struct weir_faults faults = WEIR_FAULTS_INIT;
    bench_check(weir_model_new(NULL, &number, &number, "mse", &one->model), "overhead/net");
    for (uint32_t i = 0; i < one->schedule->stages; i++) {
        int status = weir_model_add(one->model, "linear", NULL,
                                    WEIR_ATTRS(WEIR_ATTR_INT("out_features", 1)), &faults);
        bench_check_faults(status, "overhead/net", &faults);
    }
}

static float through(uint32_t layers, float x) {
    for (uint32_t l = 0; l < layers; l++) x = parameters[l][0] * x + parameters[l][1];
    return x;
}

/* Loss is the mean of squares of 1: what comes back to the last layer is 2 / rows. */
static void fill_data(struct net_case *one) {
    const float mean = 1.5f;
    uint32_t stages = one->schedule->stages;
    float back = 2.0f;
    for (int i = 0; i < OVERHEAD_MOST; i++) {
        one->input[i] = (float)(i % 4);
        one->target[i] = through(stages, one->input[i]) - 1.0f;
    }
    for (uint32_t l = stages; l-- > 0; back *= parameters[l][0]) {
        one->gradients[l][0] = back * through(l, mean);
        one->gradients[l][1] = back;
    }
}

static struct weir_parameter parameter_of(const struct net_case *one, uint32_t i) {
    struct weir_parameter parameter;
    bench_check(weir_net_parameter(one->net, i, &parameter), "overhead/net");
    return parameter;
}

static void make_net(struct net_case *one) {
    static const uint32_t balance[OVERHEAD_STAGES_MOST] = {1, 1, 1, 1};
    struct weir_net_options options = WEIR_NET_OPTIONS_INIT;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    options.stages = one->schedule->stages;
    options.balance = balance;
    options.optimizer.kind = WEIR_OPTIMIZER_NONE;
    options.pipe.workers = OVERHEAD_WORKERS;
    options.pipe.rows = options.pipe.chunks = OVERHEAD_MOST;
    options.pipe.schedule = one->schedule->name;
    options.pipe.checkpoint = WEIR_CHECKPOINT_NEVER;
    options.pipe.threads_per_worker = 1;
    make_model(one);
    bench_check_faults(weir_net_new(one->model, &options, &faults, &one->net), "overhead/net",
                       &faults);
    for (int64_t rows = OVERHEAD_LEAST; rows < OVERHEAD_MOST; rows *= 2)
        bench_check(weir_pipe_prepare(weir_net_pipe(one->net), rows, NULL), "overhead/net");
    for (uint32_t i = 0; i < 2 * one->schedule->stages; i++)
        *(float *)parameter_of(one, i).data = parameters[i / 2][i % 2];
    bench_check(weir_net_share(one->net), "overhead/net");
    fill_data(one);
}

static void run_step(struct net_case *one, uint32_t rows, struct weir_step_result *result) {
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = rows;
    batch.input = one->input;
    batch.target = one->target;
    batch.mini_batch = one->mini_batch++;
    batch.no_update = true;
    int status = weir_net_step(one->net, &batch, result);
    if (status != WEIR_OK) bench_die("overhead/net: a step failed: %s", result->error.message);
}

static uint64_t timed_step(void *context, uint32_t micro_batches) {
    struct weir_step_result result;
    run_step(context, micro_batches, &result);
    return result.ns;
}

static void check_answers(struct bench *bench, struct net_case *one) {
    struct weir_step_result result;
    bool right = true;
    for (uint32_t m = OVERHEAD_LEAST; m <= OVERHEAD_MOST; m *= 2) {
        run_step(one, m, &result);
        right &= result.loss == 1.0;
        for (uint32_t i = 0; i < 2 * one->schedule->stages; i++)
            right &= *(const float *)parameter_of(one, i).gradient == one->gradients[i / 2][i % 2];
    }
    bench_answer(bench, right, "overhead/%s/net: loss and gradients are the closed form's",
                 one->schedule->name);
}

static void print_kernels(const struct bench *bench, const struct net_case *one) {
    char kernels[512];
    uint32_t reference = weir_net_kernels(one->net, kernels, sizeof kernels);
    fprintf(bench->text, "net stages run %s%s\n", kernels,
            reference > 0 ? " (plain C, where nothing faster is built in)" : "");
}

void overhead_net(struct bench *bench, const struct overhead_schedule *schedules, uint32_t count) {
    struct net_case *own[OVERHEAD_SCHEDULES_MOST + 1];
    struct overhead_case overheads[OVERHEAD_SCHEDULES_MOST + 1];
    struct bench_case cases[OVERHEAD_SCHEDULES_MOST + 1];
    for (uint32_t i = 0; i <= count; i++) {
        own[i] = bench_take(bench, 1, sizeof *own[i]);
        own[i]->schedule = &schedules[i % count];
        make_net(own[i]);
        check_answers(bench, own[i]);
        overhead_case_init(bench, &overheads[i], own[i]->schedule->stages, timed_step, own[i]);
        cases[i] = (struct bench_case){
            .label = own[i]->schedule->name, .sample = overhead_sample, .context = &overheads[i]};
    }
    print_kernels(bench, own[0]);
    bench_interleave(bench, cases, count + 1);
    for (uint32_t i = 0; i < count; i++)
        overhead_report(bench, &cases[i], "net", schedules[i].engine, AT_MOST_S);
    bench_add_ratio(bench, &cases[0], &cases[count], "overhead/control/net")->control = true;
    for (uint32_t i = 0; i <= count; i++) {
        check_answers(bench, own[i]);
        weir_net_destroy(own[i]->net);
        weir_model_destroy(own[i]->model);
    }
}
