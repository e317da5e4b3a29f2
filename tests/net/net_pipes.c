/* SPDX-License-Identifier: MIT */
#include "net/net_pipes.h"

#include "harness.h"
#include "net/cuda/numerics.h"
#include "schedule/schedule_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool coin(void) {
    return test_random_below(2) == 1;
}

static uint32_t between(uint32_t least, uint32_t most) {
    return least + (uint32_t)test_random_below(most - least + 1);
}

bool net_pipe_has_libraries(void) {
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

void net_pipe_balance(uint32_t layers, uint32_t stages, uint32_t *balance) {
    for (uint32_t s = 0; s < stages; s++) balance[s] = 1;
    for (uint32_t i = stages; i < layers; i++) balance[test_random_below(stages)]++;
}

void net_pipe_schedule(struct weir_net_options *options, bool descending) {
    int64_t rows = options->pipe.rows, chunks = options->pipe.chunks;
    int64_t size = (rows + chunks - 1) / chunks;
    struct weir_table_options want = WEIR_TABLE_OPTIONS_INIT;
    struct weir_table *table = NULL;
    want.stages = options->stages;
    want.micro_batches = (uint32_t)((rows + size - 1) / size);
    do {
        want.schedule = schedule_any();
        want.workers = coin() ? 0 : between(1, options->stages);
        bool last_first =
            strcmp(want.schedule, "gpipe") == 0 || strcmp(want.schedule, "looped-bfs") == 0;
        if (last_first == descending) weir_table_new(&want, NULL, &table);
    } while (table == NULL);
    weir_table_destroy(table);
    options->pipe.schedule = want.schedule;
    options->pipe.workers = want.workers;
}

bool net_pipe_is_whole(const char *schedule) {
    static const char *const names[] = {"gpipe", "1f1b", "interleaved", "looped-bfs"};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        if (strcmp(names[k], schedule) == 0) return true;
    return false;
}

enum weir_checkpoint net_pipe_checkpoint(void) {
    static const enum weir_checkpoint modes[] = {
        WEIR_CHECKPOINT_ALWAYS, WEIR_CHECKPOINT_EXCEPT_LAST, WEIR_CHECKPOINT_NEVER};
    return modes[test_random_below(3)];
}

void net_pipe_print(const struct net_problem *problem, const struct weir_net_options *options) {
    net_problem_print(problem, options->stages, options->balance);
    printf("  %s, %lld rows in %u chunks, %u workers, checkpoint %s, %s recompute, dtype %s\n",
           options->pipe.schedule, (long long)options->pipe.rows, options->pipe.chunks,
           options->pipe.workers, weir_checkpoint_name(options->pipe.checkpoint),
           options->pipe.recompute_late ? "late" : "early", weir_dtype_name(options->dtype));
    if (options->pipe.table_csv != NULL)
        printf("%.*s", (int)options->pipe.table_csv_bytes, options->pipe.table_csv);
}

void net_pipe_train(const struct net_problem *problem, const struct weir_net_options *options,
                    const struct trial_data *data, struct trial_result results[2]) {
    struct weir_net *net = trial_net(problem->model, options);
    if (net == NULL) return;
    net_pipe_train_net(problem, net, data, results);
    weir_net_destroy(net);
}

void net_pipe_train_net(const struct net_problem *problem, struct weir_net *net,
                        const struct trial_data *data, struct trial_result results[2]) {
    trial_step(net, problem->model, data, &results[0]);
    for (uint64_t i = 0; i < 2; i++) {
        struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
        batch.rows = data->rows;
        batch.input = data->input;
        batch.target = data->target;
        batch.mini_batch = 4 + i;
        batch.update = i;
        struct weir_step_result result;
        EXPECT_STATUS(weir_net_step(net, &batch, &result), WEIR_OK);
    }
    trial_step(net, problem->model, data, &results[1]);
}

/** Behind each row's tokens: where their documents begin, which is anywhere. */
static void begin_documents(const struct weir_tensor *input, struct trial_data *data) {
    int64_t tokens = input->shape[1], *begins = (int64_t *)data->input + tokens;
    for (int64_t r = 0; r < data->rows; r++, begins += 2 * tokens)
        for (int64_t t = 0; t < tokens; t++)
            begins[t] = t == 0 || test_random_below(8) == 0 ? t : begins[t - 1];
}

void net_pipe_data(const struct net_problem *problem, const struct weir_net_options *options,
                   struct trial_data *data) {
    enum weir_dtype dtype = options->dtype == WEIR_BF16 ? WEIR_F32 : options->dtype;
    trial_data_init(data, &problem->input, &problem->target, dtype, options->pipe.rows,
                    problem->classes, problem->labels);
    if (problem->packed && data->input != NULL) begin_documents(&problem->input, data);
}
