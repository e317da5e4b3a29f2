/* SPDX-License-Identifier: MIT */
/* Building and tearing down. Nothing of the training memory is touched before the plan stands and
 * fits; nothing is left behind when a step of the ladder fails. */
#include "pipe/run/ranks.h"

#include "pipe/plan/plan.h"
#include "world/cores.h"

#include <string.h>
#include <time.h>

/* ---- building ---- */

static int take_arrays(struct weir_pipe *pipe) {
    struct weir__pool *pool = &pipe->setup.pool;
    uint32_t workers = pipe->worker_count, stages = pipe->setup.flow.stage_count;
    uint32_t inputs = pipe->setup.options.input_count;
    assert(workers > 0 && stages > 0);
    uint32_t outputs = pipe->setup.stages[stages - 1].stage.output_count;
    pipe->placements = weir__pool_take(pool, workers, sizeof *pipe->placements);
    pipe->workers = weir__pool_take(pool, workers, sizeof *pipe->workers);
    pipe->history.times = weir__pool_take(pool, workers, sizeof *pipe->history.times);
    pipe->memory.arenas = weir__pool_take(pool, workers, sizeof *pipe->memory.arenas);
    pipe->memory.grown = weir__pool_take(pool, workers, sizeof *pipe->memory.grown);
    pipe->memory.arena_bytes = weir__pool_take(pool, workers, sizeof *pipe->memory.arena_bytes);
    pipe->memory.staging = weir__pool_take(pool, workers, sizeof *pipe->memory.staging);
    pipe->attached = weir__pool_take(pool, stages, sizeof *pipe->attached);
    pipe->memory.norm_squares = weir__pool_take(pool, stages, sizeof *pipe->memory.norm_squares);
    pipe->history.unstamped = weir__pool_take(pool, 1, sizeof *pipe->history.unstamped);
    pthread_mutex_t *stamping = weir__pool_take(pool, 1, sizeof *stamping);
    pipe->command.inputs = weir__pool_take(pool, inputs, sizeof *pipe->command.inputs);
    pipe->command.input_grads = weir__pool_take(pool, inputs, sizeof *pipe->command.input_grads);
    pipe->command.outputs = weir__pool_take(pool, outputs, sizeof *pipe->command.outputs);
    if (pool->failed || pthread_mutex_init(stamping, NULL) != 0) return WEIR_ERR_OUT_OF_MEMORY;
    pipe->history.stamping = stamping;
    for (uint32_t s = 0; s < stages; s++) {
        const struct weir_stage *stage = &pipe->setup.stages[s].stage;
        pipe->memory.square_count += stage->norm_count;
        pipe->any_norm |= stage->norm_count > 0 && stage->calls->norm != NULL;
    }
    return WEIR_OK;
}

static bool is_behind(const struct weir_pipe *pipe, uint32_t worker) {
    assert(worker < pipe->worker_count);
    return !weir__setup_device(&pipe->setup, worker).synchronous;
}

/* The first worker whose device runs behind the host: such devices write the numbers there. */
static uint32_t any_behind(const struct weir_pipe *pipe) {
    for (uint32_t w = 0; w < pipe->worker_count; w++)
        if (weir__is_here(pipe, w) && is_behind(pipe, w)) return w;
    return WEIR__NUMBERS_NO_WORKER;
}

/* What stages tell the host: norms and losses, of the most micro-batches that there can be. Where
 * devices write them late, that worker makes their memory. */
static int take_numbers(struct weir_pipe *pipe) {
    pipe->memory.numbers_worker = any_behind(pipe);
    int status = weir__plan_numbers(&pipe->setup, &pipe->memory.numbers_bytes);
    if (status != WEIR_OK || pipe->memory.numbers_worker != WEIR__NUMBERS_NO_WORKER) return status;
    pipe->memory.squares = weir__pool_take(&pipe->setup.pool, pipe->memory.numbers_bytes, 1);
    return pipe->memory.squares != NULL ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

/* All are zero: nobody has written any. */
static void share_numbers(struct weir_pipe *pipe) {
    if (pipe->memory.numbers_worker != WEIR__NUMBERS_NO_WORKER)
        pipe->memory.squares = pipe->memory.numbers.data;
    double *next = pipe->memory.squares;
    assert(next != NULL);
    for (uint32_t s = 0; s < pipe->setup.flow.stage_count; s++) {
        pipe->memory.norm_squares[s] = next;
        next += pipe->setup.stages[s].stage.norm_count;
    }
    assert(next == pipe->memory.squares + pipe->memory.square_count);
    pipe->memory.losses = next;
}

static int make_plan(struct weir_pipe *pipe, const struct weir_pipe_options *options,
                     struct weir_faults *faults) {
    assert(pipe->prepared_count > 0 && pipe->memory.arena_bytes != NULL);
    struct weir__setup *setup = &pipe->setup;
    size_t *bytes = pipe->memory.arena_bytes;
    int status =
        weir__plan_arenas(setup, options, pipe->prepared, pipe->prepared_count, bytes, faults);
    if (status != WEIR_OK) return status;
    setup->arena_bytes = bytes;
    setup->placed = pipe->prepared[0]->exported;
    return weir__plan_fill(setup, pipe->prepared, pipe->prepared_count, bytes, &setup->pool,
                           &pipe->plan);
}

static bool decide_spinning(const struct weir_pipe *pipe) {
    if (pipe->setup.options.wait == WEIR_WAIT_SPIN) return true;
    if (pipe->setup.options.wait == WEIR_WAIT_PARK) return false;
    bool exclusive = true;
    for (uint32_t w = 0; w < pipe->worker_count; w++)
        exclusive &= !weir__is_here(pipe, w) || pipe->placements[w].exclusive;
    return exclusive;
}

/* What is near the workers' GPUs: an entry per worker, NULL for those without one. */
static int find_near(struct weir_pipe *pipe, const struct weir__near **gpus) {
    for (uint32_t w = 0; w < pipe->worker_count; w++) {
        const char *address = pipe->workers[w].device->pci;
        assert(gpus[w] == NULL);
        if (address[0] == '\0') continue;
        struct weir__near *near = weir__pool_take(&pipe->setup.pool, 1, sizeof *near);
        if (near == NULL) return WEIR_ERR_OUT_OF_MEMORY;
        gpus[w] = near;
        int status = weir__place_near(pipe->machine, address, near);
        if (status == WEIR_ERR_OUT_OF_MEMORY) return status;
        if (status != WEIR_OK) *near = (struct weir__near)WEIR__NEAR_UNKNOWN;
    }
    return WEIR_OK;
}

static int place(struct weir_pipe *pipe, struct weir_faults *faults) {
    const struct weir_pipe_options *options = &pipe->setup.options;
    const struct weir__near **gpus =
        weir__pool_take(&pipe->setup.pool, pipe->worker_count, sizeof *gpus);
    if (gpus == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = weir__machine_new(options->allocator, &pipe->machine);
    if (status != WEIR_OK) return status;
    if ((status = find_near(pipe, gpus)) != WEIR_OK) return status;
    uint32_t first = pipe->ranks != NULL ? pipe->ranks->first : 0;
    uint32_t here = pipe->ranks != NULL ? pipe->ranks->end - first : pipe->worker_count;
    uint32_t threads = options->threads_per_worker;
    if (threads == 0 && pipe->ranks != NULL) /* which cores, their claims decide */
        threads = weir__world_threads(pipe->setup.cores, pipe->ranks->ranks_per_replica,
                                      pipe->worker_count);
    struct weir__place_request request = {
        .bind = options->bind, .workers = here, .threads = threads, .gpus = gpus + first};
    if (pipe->ranks != NULL) request.share = pipe->ranks->world->host_rank;
    if (pipe->ranks != NULL) request.shares = pipe->ranks->world->host_count;
    status = weir__place_plan(pipe->machine, &request, faults, pipe->placements + first);
    for (uint32_t w = first; w < first + here; w++) pipe->placements[w].place.worker = w;
    pipe->spins = status == WEIR_OK && decide_spinning(pipe);
    return status;
}

/* What a device that runs behind the host needs besides. */
static int init_behind(struct weir__worker *worker) {
    assert(worker->device != NULL && worker->verdict == NULL);
    struct weir_pipe *pipe = worker->pipe;
    void *verdict = NULL;
    if (worker->device->calls->synchronous) return WEIR_OK;
    int status = worker->device->calls->memory_acquire(worker->device, WEIR__ALIGNMENT, &verdict);
    worker->verdict = verdict;
    if (status != WEIR_OK || pipe->host != NULL) return status;
    return weir__device_open("cpu", pipe->setup.options.allocator, NULL, &pipe->host);
}

static int open_devices(struct weir_pipe *pipe, struct weir_faults *faults) {
    for (uint32_t w = 0; w < pipe->worker_count; w++) {
        struct weir__worker *worker = &pipe->workers[w];
        worker->pipe = pipe;
        worker->index = w;
        /* of another rank's nothing runs here */
        int status =
            weir__is_here(pipe, w)
                ? weir__plan_device(&pipe->setup, w, faults, &worker->device)
                : weir__device_open("cpu", pipe->setup.options.allocator, NULL, &worker->device);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/* Copies of as many steps as the worker's events are kept of. */
static int take_copy_events(struct weir__worker *worker) {
    assert(worker->event_capacity > 0 && worker->copy_events == NULL);
    const struct weir__row_plan *prepared = worker->pipe->prepared[0];
    uint32_t line =
        prepared->table->lines[worker->index + 1] - prepared->table->lines[worker->index];
    size_t units = 0, capacity;
    for (uint32_t i = 0; i < prepared->copy_count; i++) {
        const struct weir__prepared_copy *copy = &prepared->copies[i];
        units += weir__has_stream(prepared, copy) && copy->unit == i &&
                 prepared->lanes[copy->lane].worker == worker->index;
    }
    size_t steps = worker->event_capacity / (line > 0 ? line : 1);
    if (!weir__multiply(units, steps, &capacity) || capacity > UINT32_MAX) return WEIR_ERR_OVERFLOW;
    worker->copy_event_capacity = (uint32_t)capacity;
    if (capacity == 0) return WEIR_OK;
    worker->copy_events =
        weir__pool_take(&worker->pipe->setup.pool, capacity, sizeof *worker->copy_events);
    return worker->copy_events != NULL ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

static int init_worker(struct weir_pipe *pipe, uint32_t w, struct weir_faults *faults) {
    struct weir__worker *worker = &pipe->workers[w];
    assert(worker->pipe == pipe && worker->index == w);
    bool here = weir__is_here(pipe, w);
    if (!here && pipe->ranks->world->rank != 0) return WEIR_OK;
    uint32_t least = 2 * weir__table_longest_line(pipe->prepared[0]->table);
    worker->event_capacity = pipe->setup.options.trace_actions;
    if (worker->event_capacity < least) worker->event_capacity = least;
    worker->events =
        weir__pool_take(&pipe->setup.pool, worker->event_capacity, sizeof *worker->events);
    if (worker->events == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    if (!here) return WEIR_OK; /* rank 0 is told of what it does */
    int status = take_copy_events(worker);
    if (status != WEIR_OK) return status;
    if ((status = init_behind(worker)) != WEIR_OK) return status;
    struct weir__machine_facts facts;
    weir__machine_facts(pipe->machine, &facts);
    worker->device->stream_min = weir__copy_stream_min(facts.l3_bytes);
    status = worker->device->calls->stream_new(worker->device, &worker->stream);
    if (status != WEIR_OK) return status;
    worker->stream->spins = pipe->spins;
    status =
        weir__arena_init(worker, pipe->prepared[0]->lasting_bytes[w], pipe->memory.arena_bytes[w]);
    if (status != WEIR_OK)
        weir_faults_add(faults,
                        "worker %u: no %zu bytes for its arena: use fewer rows, more "
                        "checkpointing or more stages",
                        w, pipe->memory.arena_bytes[w]);
    return status;
}

static int start_workers(struct weir_pipe *pipe, struct weir_faults *faults) {
    for (uint32_t w = 0; w < pipe->worker_count; w++) {
        struct weir__worker *worker = &pipe->workers[w];
        if (!weir__is_here(pipe, w)) continue;
        assert(!worker->started && worker->stream != NULL);
        if (pthread_create(&worker->thread, NULL, weir__worker_main, worker) != 0) {
            weir_faults_add(faults, "worker %u: the system gives no thread: raise its limit", w);
            return WEIR_ERR_SYSTEM;
        }
        worker->started = true;
    }
    return WEIR_OK;
}

static int attach_stages(struct weir_pipe *pipe, struct weir_faults *faults) {
    pipe->command.kind = WEIR__COMMAND_ATTACH;
    int status = weir__pipe_command(pipe);
    if (status != WEIR_OK) weir_faults_add(faults, "%s", pipe->outcome.error.message);
    return status;
}

void weir__pipe_bind(struct weir_pipe *pipe) {
    assert(pipe->memory.losses != NULL);
    for (uint32_t w = 0; w < pipe->worker_count; w++)
        pipe->memory.staging[w] = pipe->workers[w].staging.data;
    for (uint32_t i = 0; i < pipe->prepared_count; i++)
        weir__prepared_bind(pipe->prepared[i], pipe->memory.arenas, pipe->memory.staging,
                            pipe->memory.losses);
}

static int build(struct weir_pipe *pipe, const struct weir_pipe_options *options,
                 struct weir_faults *faults) {
    assert(pipe->prepared == NULL && pipe->workers == NULL);
    struct weir__pool *pool = &pipe->setup.pool;
    pipe->prepared_capacity = WEIR__PREPARED_MAX;
    pipe->prepared = weir__pool_take(pool, WEIR__PREPARED_MAX, sizeof *pipe->prepared);
    if (pipe->prepared == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = weir__plan_prepare(&pipe->setup, pipe->prepared, &pipe->prepared_count, faults);
    if (status != WEIR_OK) return status;
    pipe->worker_count = pipe->prepared[0]->table->worker_count;
    status = take_arrays(pipe);
    if (status != WEIR_OK) return status;
    if ((status = make_plan(pipe, options, faults)) != WEIR_OK) return status;
    if ((status = weir__ranks_init(pipe, faults)) != WEIR_OK) return status;
    if ((status = open_devices(pipe, faults)) != WEIR_OK) return status;
    if ((status = place(pipe, faults)) != WEIR_OK) return status;
    for (uint32_t w = 0; w < pipe->worker_count; w++)
        if ((status = init_worker(pipe, w, faults)) != WEIR_OK) return status;
    if ((status = take_numbers(pipe)) != WEIR_OK) return status;
    for (uint32_t i = 0; i < pipe->prepared_count; i++)
        if ((status = weir__streams_prepare(pipe, pipe->prepared[i])) != WEIR_OK) return status;
    if ((status = start_workers(pipe, faults)) != WEIR_OK) return status;
    if ((status = attach_stages(pipe, faults)) != WEIR_OK) return status;
    share_numbers(pipe);
    weir__pipe_bind(pipe);
    return WEIR_OK;
}

/* What devices say of their failures. */
static void tell_devices(const struct weir_pipe *pipe, struct weir_faults *faults) {
    for (uint32_t w = 0; pipe->workers != NULL && w < pipe->worker_count; w++) {
        struct weir__device *device = pipe->workers[w].device;
        char text[256] = "";
        if (device == NULL || device->calls->explain == NULL) continue;
        device->calls->explain(device, text, sizeof text);
        if (text[0] != '\0') weir_faults_add(faults, "worker %u: %s", w, text);
    }
}

/* Which ways its devices' runs take: libraries, versions. */
static void log_ways(const struct weir_pipe *pipe) {
    const struct weir_pipe_options *options = &pipe->setup.options;
    for (uint32_t w = 0; options->log != NULL && w < pipe->worker_count; w++) {
        struct weir__device *device = pipe->workers[w].device;
        bool told = device == NULL || device->calls->tell_way == NULL;
        for (uint32_t v = 0; v < w && !told; v++) told = pipe->workers[v].device == device;
        char line[256];
        for (uint32_t i = 0; !told && device->calls->tell_way(device, i, line, sizeof line); i++)
            options->log(options->log_context, line);
    }
}

int weir_pipe_new(const struct weir_pipe_options *options, struct weir_faults *faults,
                  struct weir_pipe **out) {
    if (options == NULL || out == NULL) return WEIR_ERR_ARGUMENT;
    bool sound = weir__is_sized(options) && weir__is_sized(options->world) &&
                 weir__is_sized(options->world->calls);
    const struct weir_world *world = sound ? options->world : NULL;
    struct weir_pipe *pipe = weir__acquire(options->allocator, 1, sizeof *pipe);
    if (pipe == NULL) return weir__ranks_survey(world, NULL, WEIR_ERR_OUT_OF_MEMORY, faults);
    int made = weir__setup_init(&pipe->setup, options, faults);
    int status = weir__ranks_survey(world, &pipe->setup, made, faults);
    if (status == WEIR_OK && world != NULL && world->rank < world->rank_count)
        status = weir__world_cores(world, options->allocator, faults, &pipe->setup.cores);
    if (status != WEIR_OK) {
        if (made == WEIR_OK) weir__setup_clean_up(&pipe->setup);
        weir__release(options->allocator, pipe, 1, sizeof *pipe);
        return status;
    }
    status = build(pipe, options, faults);
    status = weir__ranks_agree(world, pipe, status, 0,
                               "pipes: give each the same options and program", faults);
    for (uint32_t i = 0; status == WEIR_OK && i < pipe->prepared_count; i++)
        status = weir__ranks_prepare(pipe, pipe->prepared[i], faults);
    if (status != WEIR_OK || (status = weir__ranks_meet(pipe)) != WEIR_OK) {
        tell_devices(pipe, faults);
        weir_pipe_destroy(pipe);
        return status;
    }
    log_ways(pipe);
    if (!weir__nvtx_open(&pipe->nvtx) && options->log != NULL)
        options->log(options->log_context,
                     "a profiler is attached, but no library makes ranges for it: install CUDA's "
                     "NVTX (libnvtx3interop.so.1), or name its file in WEIR_NVTX");
    *out = pipe;
    return WEIR_OK;
}

/* ---- tearing down ---- */

static void stop_workers(struct weir_pipe *pipe) {
    for (int kind = WEIR__COMMAND_DETACH; kind <= WEIR__COMMAND_EXIT; kind++) {
        if (pipe->prepared_count == 0 || pipe->workers == NULL) return;
        /* a callback that never came back must first: its worker takes commands in order */
        for (uint32_t w = 0; w < pipe->worker_count; w++)
            if (pipe->workers[w].started)
                weir__gate_wait(&pipe->workers[w].done, pipe->command.number, 0, 0);
        pipe->command.kind = (enum weir__command_kind)kind;
        weir__pipe_command(pipe);
    }
    for (uint32_t w = 0; w < pipe->worker_count; w++)
        if (pipe->workers[w].started) pthread_join(pipe->workers[w].thread, NULL);
}

static void drop_worker(struct weir__worker *worker) {
    if (worker->device == NULL) return;
    const struct weir__device_calls *calls = worker->device->calls;
    weir__streams_clean_up(worker);
    weir__arena_clean_up(worker);
    calls->memory_release(worker->device, worker->verdict, WEIR__ALIGNMENT);
    if (worker->stream != NULL) calls->stream_destroy(worker->stream);
}

/* Only when all workers are dropped: one may have streams on another's device. */
static void close_devices(struct weir_pipe *pipe) {
    weir__host_memory_clean_up(&pipe->memory.numbers);
    for (uint32_t w = 0; pipe->workers != NULL && w < pipe->worker_count; w++)
        if (pipe->workers[w].device != NULL)
            pipe->workers[w].device->calls->close(pipe->workers[w].device);
    if (pipe->host != NULL) pipe->host->calls->close(pipe->host);
}

/* A call's last touch of the pipe is to leave it. Rare and far from any step: so it polls. */
static void wait_for_calls(struct weir_pipe *pipe) {
    static const struct timespec slice = {.tv_nsec = 100000};
    bool expected = false;
    while (!atomic_compare_exchange_weak(&pipe->in_use, &expected, true)) {
        expected = false;
        (void)nanosleep(&slice, NULL);
    }
}

void weir_pipe_destroy(struct weir_pipe *pipe) {
    if (pipe == NULL) return;
    const struct weir_allocator *allocator = pipe->setup.options.allocator;
    wait_for_calls(pipe);
    stop_workers(pipe);
    weir__ranks_stop(pipe); /* while what a message may still be written to is there */
    for (uint32_t w = 0; pipe->workers != NULL && w < pipe->worker_count; w++)
        if (pipe->workers[w].device != NULL) weir__streams_end(&pipe->workers[w]);
    for (uint32_t w = 0; pipe->workers != NULL && w < pipe->worker_count; w++)
        drop_worker(&pipe->workers[w]);
    close_devices(pipe);
    weir__nvtx_close(&pipe->nvtx);
    weir__ranks_clean_up(pipe);
    if (pipe->machine != NULL) weir__machine_destroy(pipe->machine);
    if (pipe->history.stamping != NULL) pthread_mutex_destroy(pipe->history.stamping);
    weir__prepared_destroy(allocator, pipe->prepared, pipe->prepared_count);
    weir__setup_clean_up(&pipe->setup);
    weir__release(allocator, pipe, 1, sizeof *pipe);
}

/* ---- asking ---- */

const struct weir_plan *weir_pipe_plan(const struct weir_pipe *pipe) {
    return &pipe->plan;
}

uint32_t weir_pipe_stage_count(const struct weir_pipe *pipe) {
    return pipe->setup.flow.stage_count;
}

const struct weir_table *weir_pipe_table(const struct weir_pipe *pipe, int64_t rows) {
    for (uint32_t i = 0; i < pipe->prepared_count; i++)
        if (pipe->prepared[i]->rows == rows && pipe->prepared[i]->exported != NULL)
            return pipe->prepared[i]->exported;
    return NULL;
}

int weir_pipe_attachment(const struct weir_pipe *pipe, uint32_t stage,
                         struct weir_attachment *attachment) {
    if (stage >= pipe->setup.flow.stage_count) return WEIR_ERR_ARGUMENT;
    const struct weir__row_plan *prepared = pipe->prepared[0];
    uint32_t worker = prepared->stage_worker[stage];
    const struct weir__lasting *blocks = &prepared->lasting[stage];
    const struct weir__memory *memory = &prepared->memory;
    *attachment = (struct weir_attachment){
        .parameters = weir__arena_block(pipe->memory.arenas, memory, blocks->parameters),
        .gradients = weir__arena_block(pipe->memory.arenas, memory, blocks->gradients),
        .optimizer = weir__arena_block(pipe->memory.arenas, memory, blocks->optimizer),
        .state = weir__arena_block(pipe->memory.arenas, memory, blocks->state),
        .stream = pipe->workers[worker].stream,
        .stage = stage,
        .worker = worker,
        .threads = pipe->placements[worker].threads,
        .replica = weir__replica(&pipe->setup.options),
        .replicas = weir__replicas(&pipe->setup.options)};
    return WEIR_OK;
}

int weir_pipe_place(const struct weir_pipe *pipe, uint32_t worker, struct weir_place *place) {
    if (worker >= pipe->worker_count) return WEIR_ERR_ARGUMENT;
    if (!weir__is_here(pipe, worker) && pipe->ranks->world->rank != 0) return WEIR_ERR_NOT_FOUND;
    *place = pipe->placements[worker].place;
    return WEIR_OK;
}

uint32_t weir_pipe_trace(const struct weir_pipe *pipe, uint32_t worker, uint32_t capacity,
                         struct weir_trace_event *events) {
    if (worker >= pipe->worker_count || weir__stamps_read(pipe) != WEIR_OK) return 0;
    const struct weir__worker *from = &pipe->workers[worker];
    uint64_t kept =
        from->event_count < from->event_capacity ? from->event_count : from->event_capacity;
    uint32_t count = kept < capacity ? (uint32_t)kept : capacity;
    for (uint32_t i = 0; i < count; i++)
        events[i] = from->events[(from->event_count - count + i) % from->event_capacity];
    return count;
}
