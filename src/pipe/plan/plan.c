/* SPDX-License-Identifier: MIT */
/* From options to a plan that people read; no training memory is touched. */
#include "pipe/plan/plan.h"

#include "pipe/describe/microbatch.h"
#include "pipe/lanes/ways.h"
#include "place/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- row counts ---- */

/* A row count that the schedule refuses, for some replica's micro-batches, will not come: preparing
 * it is refused. */
static int may_come(const struct weir__setup *setup, int64_t rows, bool *may) {
    struct weir_table *table;
    *may = false;
    if (rows <= 0 || setup->options.table_csv != NULL ||
        weir__setup_check_rows(setup, rows, NULL) != WEIR_OK)
        return WEIR_OK;
    for (uint32_t r = 0; r < weir__replicas(&setup->options); r++) {
        int status = weir__setup_table(setup, r, rows, NULL, &table);
        if (status != WEIR_OK) return status == WEIR_ERR_OUT_OF_MEMORY ? status : WEIR_OK;
        weir_table_destroy(table);
    }
    *may = true;
    return WEIR_OK;
}

/* Fewer rows may need more memory: without the ragged last micro-batch (17 rows in 9 chunks, 16
 * rows) the last one is larger, and where the chunks do not divide the rows fewer rows make more
 * micro-batches (9 rows in 8 chunks are 5, 8 rows are 8). */
static int worst_rows(const struct weir__setup *setup, int64_t rows[WEIR__ROW_COUNTS],
                      uint32_t *count) {
    int64_t most = setup->options.rows;
    assert(most >= 1);
    int64_t size = weir__chunk_first(most, setup->options.chunks, 1);
    const int64_t fewer[] = {most - most % size, most - most % setup->options.chunks};
    rows[0] = most;
    *count = 1;
    for (int i = 0; i < 2; i++) {
        bool may = false;
        if (fewer[i] >= rows[*count - 1]) continue;
        int status = may_come(setup, fewer[i], &may);
        if (status != WEIR_OK) return status;
        if (may) rows[(*count)++] = fewer[i];
    }
    assert(*count <= WEIR__ROW_COUNTS);
    return WEIR_OK;
}

static const char *device_name(const struct weir__setup *setup, uint32_t worker) {
    return worker < setup->options.device_count ? setup->options.devices[worker] : "cpu";
}

static int refuse_device(const struct weir__setup *setup, uint32_t worker, int status,
                         const struct weir_error *error, struct weir_faults *faults) {
    if (status != WEIR_OK)
        weir_faults_add(faults, "worker %u: device '%s': %s", worker, device_name(setup, worker),
                        error->message[0] != '\0' ? error->message : weir_status_text(status));
    return status;
}

/* What this rank's driver calls a worker's GPU; WEIR_ERR_NOT_FOUND: the rank has not so many. */
static int own_name(const struct weir__setup *setup, uint32_t worker, char name[32],
                    struct weir_error *error) {
    uint32_t memory = weir__setup_device(setup, worker).memory;
    assert(name != NULL && error != NULL);
    snprintf(name, 32, "%.31s", device_name(setup, worker));
    if (memory == 0 || setup->gpus == NULL) return WEIR_OK;
    const struct weir__rank_gpus *gpus = &setup->gpus[setup->options.world->rank];
    if (gpus->count == 0) return WEIR_OK; /* why, who opens it will say */
    snprintf(name, 32, "cuda:%u", gpus->first + memory - 1);
    if (memory <= gpus->count) return WEIR_OK;
    return weir__fail(error, WEIR_ERR_NOT_FOUND,
                      "%u rank%s share %u GPU%s of this host, so this one has cuda:0 to cuda:%u: "
                      "name these, start fewer ranks, or see CUDA_VISIBLE_DEVICES",
                      gpus->sharers, weir__s(gpus->sharers), gpus->shown, weir__s(gpus->shown),
                      gpus->count - 1);
}

int weir__plan_device(const struct weir__setup *setup, uint32_t worker, struct weir_faults *faults,
                      struct weir__device **device) {
    struct weir_error error = {0};
    char name[32];
    assert(*device == NULL);
    int status = own_name(setup, worker, name, &error);
    if (status != WEIR_OK) return refuse_device(setup, worker, status, &error, faults);
    status = weir__device_open(name, setup->options.allocator, &error, device);
    return refuse_device(setup, worker, status, &error, faults);
}

static int check_device(const struct weir__setup *setup, uint32_t worker,
                        struct weir_error *error) {
    char name[32];
    int status = own_name(setup, worker, name, error);
    return status != WEIR_OK ? status : weir__device_check(name, error);
}

/* Others' devices are theirs to look for. */
static bool is_own(const struct weir__setup *setup, uint32_t worker, uint32_t workers) {
    const struct weir_world *world = setup->options.world;
    if (world == NULL) return true;
    uint32_t ranks = world->rank_count / weir__replicas(&setup->options);
    assert(worker < workers);
    return ranks == 0 || weir__setup_rank(setup, worker, workers) == world->rank % ranks;
}

/* A plan must be refused for what a pipe is: each device must be there. */
static int check_devices(const struct weir__setup *setup, uint32_t workers,
                         struct weir_faults *faults) {
    uint32_t given = setup->options.device_count;
    if (given > 0 && given < workers) {
        weir_faults_add(faults, "%u device%s for a table of %u workers: name at least %u", given,
                        weir__s(given), workers, workers);
        return WEIR_ERR_CONFIG;
    }
    int worst = WEIR_OK;
    for (uint32_t w = 0; w < given && w < workers; w++) {
        struct weir_error error = {0};
        if (!is_own(setup, w, workers)) continue;
        int status = check_device(setup, w, &error);
        if (refuse_device(setup, w, status, &error, faults) != WEIR_OK) worst = status;
    }
    return worst;
}

/* What works in one memory only. */
static bool check_apart(const struct weir__setup *setup, uint32_t workers,
                        struct weir_faults *faults) {
    const struct weir_pipe_options *options = &setup->options;
    uint32_t apart = 0, other = 0;
    for (uint32_t w = 0; w < workers; w++) {
        apart += weir__setup_device(setup, w).memory != 0;
        if (weir__setup_device(setup, w).memory != weir__setup_device(setup, 0).memory) other = w;
    }
    bool right = true;
    if (apart > 0 && options->debug_inputs) {
        weir_faults_add(faults, "debug_inputs looks at memory from the host: use it on cpu");
        right = false;
    }
    if (apart > 0 && options->link_delay_ns > 0) {
        weir_faults_add(faults, "link_delay_ns is for measurements on cpu: leave it 0");
        right = false;
    }
    if (other > 0 && options->link == WEIR_LINK_POINTER) {
        weir_faults_add(faults,
                        "links are to be pointers, but workers 0 and %u (%s and %s) do not share "
                        "memory: use auto or copy",
                        other, device_name(setup, 0), device_name(setup, other));
        right = false;
    }
    return right;
}

int weir__plan_prepare(const struct weir__setup *setup, struct weir__row_plan **prepared,
                       uint32_t *count, struct weir_faults *faults) {
    int64_t rows[WEIR__ROW_COUNTS];
    uint32_t row_counts;
    *count = 0;
    int status = worst_rows(setup, rows, &row_counts);
    if (status != WEIR_OK) return status;
    for (uint32_t i = 0; i < row_counts; i++) {
        for (int infer = setup->options.infer_only; infer < 2; infer++) {
            status = weir__prepared_new(setup, rows[i], infer != 0, prepared, count, faults);
            if (status != WEIR_OK) return status;
        }
    }
    assert(*count <= WEIR__PREPARED_MAX);
    bool right = check_apart(setup, prepared[0]->table->worker_count, faults);
    status = check_devices(setup, prepared[0]->table->worker_count, faults);
    if (status != WEIR_OK) return status;
    return right ? WEIR_OK : WEIR_ERR_CONFIG;
}

/* ---- whether it fits ---- */

static void refuse_worker(uint64_t limit, uint32_t worker, size_t need,
                          struct weir_faults *faults) {
    assert(limit > 0 && need > limit);
    weir_faults_add(faults,
                    "worker %u needs %zu bytes, %llu more than the limit of %llu: raise the limit "
                    "to %zu, or change the pipe",
                    worker, need, (unsigned long long)(need - limit), (unsigned long long)limit,
                    need);
}

static void describe(const struct weir_pipe_options *was, const struct weir_pipe_options *is,
                     char *text, size_t capacity) {
    int used = 0;
    text[0] = 0;
    if (strcmp(was->schedule, is->schedule) != 0 || was->table_csv != is->table_csv)
        used += snprintf(text, capacity, ", schedule %s", is->schedule);
    if (was->checkpoint != is->checkpoint || was->stage_checkpoint != is->stage_checkpoint)
        used += snprintf(text + used, capacity - (size_t)used, ", checkpoint %s",
                         weir_checkpoint_name(is->checkpoint));
    if (was->recompute_late != is->recompute_late)
        used += snprintf(text + used, capacity - (size_t)used, ", recompute late");
    assert(0 <= used && (size_t)used < capacity);
    if (was->chunks != is->chunks)
        snprintf(text + used, capacity - (size_t)used, ", chunks %u", is->chunks);
}

static int refuse(const struct weir_pipe_options *options, double step, size_t most,
                  struct weir_faults *faults) {
    struct weir_pipe_options given = *options;
    struct weir__advice advice;
    char change[160];
    if (given.schedule == NULL) given.schedule = "1f1b";
    int status = weir__plan_advise(&given, step, &advice);
    if (status != WEIR_OK) return status;
    if (!advice.found) {
        weir_faults_add(faults,
                        "the smallest limit that would do is %zu; no checkpoint mode, number of "
                        "chunks or schedule fits within %llu: use more stages or fewer rows",
                        most, (unsigned long long)options->memory_limit);
        return WEIR_ERR_MEMORY_LIMIT;
    }
    describe(&given, &advice.options, change, sizeof change);
    assert(change[0] == ',');
    weir_faults_add(faults,
                    "the smallest limit that would do is %zu; the cheapest change that fits within "
                    "%llu is %s: it needs %zu at most, and a step %.2f times as long is predicted",
                    most, (unsigned long long)options->memory_limit, change + 2, advice.bytes,
                    advice.step);
    return WEIR_ERR_MEMORY_LIMIT;
}

/* The largest of all row counts, without asking whether it fits. */
static void largest(struct weir__row_plan *const *prepared, uint32_t count, size_t *bytes) {
    assert(count > 0 && count <= WEIR__PREPARED_MAX);
    for (uint32_t w = 0; w < prepared[0]->table->worker_count; w++) {
        bytes[w] = 0;
        for (uint32_t i = 0; i < count; i++)
            if (prepared[i]->arena_bytes[w] > bytes[w]) bytes[w] = prepared[i]->arena_bytes[w];
    }
}

int weir__plan_arenas(const struct weir__setup *setup, const struct weir_pipe_options *options,
                      struct weir__row_plan *const *prepared, uint32_t count, size_t *bytes,
                      struct weir_faults *faults) {
    uint32_t workers = prepared[0]->table->worker_count;
    uint64_t limit = setup->options.memory_limit;
    size_t most = 0;
    largest(prepared, count, bytes);
    for (uint32_t w = 0; w < workers; w++) {
        if (limit > 0 && bytes[w] > limit) refuse_worker(limit, w, bytes[w], faults);
        if (bytes[w] > most) most = bytes[w];
    }
    if (limit == 0 || most <= limit) return WEIR_OK;
    return refuse(options, weir__plan_step(prepared[0]), most, faults);
}

/* ---- what people are told ---- */

static int fill_curve(struct weir__row_plan *prepared, uint32_t worker,
                      struct weir__moment *moments, struct weir__pool *pool,
                      struct weir_plan_curve *curve) {
    assert(worker < prepared->table->worker_count && curve->point_count == 0);
    struct weir__live_point point = {0};
    uint32_t count = weir__memory_moments(&prepared->memory, worker, moments);
    struct weir_plan_point *points = weir__pool_take(pool, (size_t)count + 1, sizeof *points);
    if (points == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    weir__live_sort(moments, count);
    curve->points = points;
    points[curve->point_count++] = (struct weir_plan_point){0.0, 0};
    for (uint32_t next = 0; weir__live_next(moments, count, &next, &point);) {
        struct weir_plan_point *last = &points[curve->point_count - 1];
        if (point.time > last->time) last = &points[curve->point_count++];
        *last = (struct weir_plan_point){point.time, point.sum};
        assert(curve->point_count <= count + 1);
    }
    return WEIR_OK;
}

int weir__plan_fill(const struct weir__setup *setup, struct weir__row_plan *const *list,
                    uint32_t count, const size_t *bytes, struct weir__pool *pool,
                    struct weir_plan *plan) {
    assert(count > 0 && list[0]->memory.worker_begin != NULL);
    struct weir__row_plan *prepared = list[0];
    uint32_t workers = prepared->table->worker_count;
    struct weir_device_plan *devices = weir__pool_take(pool, workers, sizeof *devices);
    struct weir_plan_curve *curves = weir__pool_take(pool, workers, sizeof *curves);
    struct weir_plan_receive *receives = weir__pool_take(pool, workers, sizeof *receives);
    struct weir_plan_copies *copies = weir__pool_take(pool, workers, sizeof *copies);
    struct weir_plan_pinned *pinned = weir__pool_take(pool, workers, sizeof *pinned);
    struct weir__moment *moments =
        weir__pool_take(&prepared->pool, 2 * (size_t)prepared->memory.block_count, sizeof *moments);
    if (pool->failed || moments == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t w = 0; w < workers; w++) {
        snprintf(devices[w].name, sizeof devices[w].name, "%.20s/%u", device_name(setup, w), w);
        copies[w] = weir__ways_count(prepared, w);
    }
    *plan =
        (struct weir_plan){workers, devices, curves, receives, copies, pinned, prepared->makespan};
    int status = weir__memory_peaks(&prepared->memory, workers, bytes, devices);
    if (status != WEIR_OK) return status;
    for (uint32_t s = 0; s < setup->flow.stage_count; s++)
        devices[prepared->stage_worker[s]].mapped += setup->stages[s].stage.mapped_bytes;
    if ((status = weir__plan_count_pinned(setup, list, count, pinned)) != WEIR_OK) return status;
    if ((status = weir__plan_receives(prepared, receives)) != WEIR_OK) return status;
    for (uint32_t w = 0; w < workers && status == WEIR_OK; w++)
        status = fill_curve(prepared, w, moments, pool, &curves[w]);
    return status;
}

/* ---- public ---- */

struct plan_storage {
    struct weir_plan plan;
    struct weir__pool pool; /* the plan's arrays */
};

/* Which of the workers have GPUs is all that counts here. */
static int check_places(struct weir__setup *setup, uint32_t workers, struct weir_faults *faults) {
    static const struct weir__near anything = WEIR__NEAR_UNKNOWN;
    const struct weir__near **gpus = weir__pool_take(&setup->pool, workers, sizeof *gpus);
    if (gpus == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t w = 0; w < workers; w++)
        if (weir__setup_device(setup, w).memory != 0) gpus[w] = &anything;
    struct weir__place_request request = {.bind = setup->options.bind,
                                          .workers = workers,
                                          .threads = setup->options.threads_per_worker,
                                          .gpus = gpus};
    const struct weir_world *world = setup->options.world;
    if (world != NULL) request.workers = (workers + world->rank_count - 1) / world->rank_count;
    if (world != NULL) request.shares = world->host_count;
    return weir__place_check(setup->options.allocator, &request, faults);
}

static int fill(const struct weir_pipe_options *options, struct weir__setup *setup,
                struct weir__row_plan *const *prepared, uint32_t count, struct weir_faults *faults,
                struct plan_storage *own) {
    uint32_t workers = prepared[0]->table->worker_count;
    size_t *bytes = weir__pool_take(&setup->pool, workers, sizeof *bytes);
    if (bytes == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = WEIR_OK;
    if (setup->estimate)
        largest(prepared, count, bytes);
    else
        status = weir__plan_arenas(setup, options, prepared, count, bytes, faults);
    if (status != WEIR_OK) return status;
    status = weir__plan_fill(setup, prepared, count, bytes, &own->pool, &own->plan);
    if (status != WEIR_OK || setup->estimate) return status;
    return check_places(setup, workers, faults);
}

static int make_plan(const struct weir_pipe_options *options, struct weir__setup *setup,
                     struct weir_faults *faults, struct plan_storage *own) {
    struct weir__row_plan *prepared[WEIR__PREPARED_MAX];
    uint32_t count = 0;
    weir__pool_init(&own->pool, options->allocator);
    int status = weir__plan_prepare(setup, prepared, &count, faults);
    if (status != WEIR_OK) goto out;
    status = fill(options, setup, prepared, count, faults, own);
out:
    weir__prepared_destroy(options->allocator, prepared, count);
    return status;
}

static int new_plan(const struct weir_pipe_options *options, bool estimate,
                    struct weir_faults *faults, struct weir_plan **plan) {
    struct weir__setup setup;
    if (plan == NULL) return WEIR_ERR_ARGUMENT;
    int status = weir__setup_init(&setup, options, faults);
    if (status != WEIR_OK) return status;
    setup.estimate = estimate;
    struct plan_storage *own = weir__acquire(options->allocator, 1, sizeof *own);
    status = own == NULL ? WEIR_ERR_OUT_OF_MEMORY : make_plan(options, &setup, faults, own);
    weir__setup_clean_up(&setup);
    if (status == WEIR_OK)
        *plan = &own->plan;
    else if (own != NULL)
        weir_plan_destroy(&own->plan);
    return status;
}

int weir_plan_new(const struct weir_pipe_options *options, struct weir_faults *faults,
                  struct weir_plan **plan) {
    return new_plan(options, false, faults, plan);
}

int weir_plan_estimate(const struct weir_pipe_options *options, struct weir_faults *faults,
                       struct weir_plan **plan) {
    return new_plan(options, true, faults, plan);
}

void weir_plan_destroy(struct weir_plan *plan) {
    if (plan == NULL) return;
    struct plan_storage *own = (struct plan_storage *)plan;
    const struct weir_allocator *allocator = own->pool.allocator;
    weir__pool_clean_up(&own->pool);
    weir__release(allocator, own, 1, sizeof *own);
}
