/* SPDX-License-Identifier: MIT */
/*
 * Inference: forwards only, on the workers of a training table, whatever schedule that is. Each
 * line is sorted by (round, stage, micro-batch), an order of all forwards that the dependencies
 * allow, so no line can block another; rounds of as many micro-batches as workers keep a loop of
 * stages busy while only a round's border tensors are alive.
 */
#include "schedule/schedules.h"

/** The stages of each worker, ascending: stages[begin[w] .. begin[w + 1]). */
struct holdings {
    uint32_t *begin;
    uint32_t *stages;
};

static void group(const struct weir_table *training, const uint32_t *worker_of,
                  struct holdings *holdings) {
    uint32_t workers = training->worker_count;
    for (uint32_t s = 0; s < training->stage_count; s++) {
        assert(worker_of[s] < workers);
        holdings->begin[worker_of[s] + 1]++;
    }
    for (uint32_t w = 0; w < workers; w++) holdings->begin[w + 1] += holdings->begin[w];
    for (uint32_t s = training->stage_count; s-- > 0;) {
        uint32_t w = worker_of[s];
        holdings->stages[--holdings->begin[w + 1]] = s;
    }
    /* begin[w + 1] is now where w begins */
    for (uint32_t w = 0; w < workers; w++) holdings->begin[w] = holdings->begin[w + 1];
    holdings->begin[workers] = training->stage_count;
}

static void fill_line(const struct holdings *holdings, uint32_t worker,
                      struct weir__table_builder *builder) {
    assert(worker < builder->worker_count);
    struct weir__rounds rounds = weir__rounds_of(builder->micro_batch_count, builder->worker_count);
    uint32_t first = 0;
    weir__table_line(builder);
    for (uint32_t r = 0; r < rounds.count; r++) {
        uint32_t size = weir__round_size(&rounds, r);
        for (uint32_t k = holdings->begin[worker]; k < holdings->begin[worker + 1]; k++) {
            for (uint32_t i = 0; i < size; i++)
                weir__table_add(builder, WEIR_KIND_F, holdings->stages[k], first + i);
        }
        first += size;
    }
}

int weir__table_new_infer(const struct weir_table *training, uint32_t micro_batches,
                          const struct weir_allocator *allocator, struct weir_table **table) {
    assert(training->worker_count <= training->stage_count);
    uint32_t stages = training->stage_count, workers = training->worker_count;
    uint32_t *worker_of = weir__acquire(allocator, stages, sizeof *worker_of);
    struct holdings holdings = {
        .begin = weir__acquire(allocator, (size_t)workers + 1, sizeof *holdings.begin),
        .stages = weir__acquire(allocator, stages, sizeof *holdings.stages)};
    int status = WEIR_ERR_OUT_OF_MEMORY;
    if (worker_of != NULL && holdings.begin != NULL && holdings.stages != NULL) {
        struct weir__table_builder builder;
        weir__table_workers(training, worker_of);
        group(training, worker_of, &holdings);
        weir__table_begin(&builder, allocator, stages, workers, micro_batches);
        for (uint32_t w = 0; w < workers; w++) fill_line(&holdings, w, &builder);
        status = weir__table_finish(&builder, table);
    }
    weir__release(allocator, holdings.stages, stages, sizeof *holdings.stages);
    weir__release(allocator, holdings.begin, (size_t)workers + 1, sizeof *holdings.begin);
    weir__release(allocator, worker_of, stages, sizeof *worker_of);
    return status;
}
