/* SPDX-License-Identifier: MIT */
/*
 * The stages' callbacks: the formula, and around it what a callback verifies of its task.
 */
#include "engine/engine_formula.h"
#include "engine/engine_gpu.h"

#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void engine_note(const struct engine_stage *stage, const struct weir_task *task, const char *format,
                 ...) {
    struct engine_model *model = stage->model;
    if (atomic_fetch_add(&model->violations, 1) != 0) return;
    char what[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    snprintf(model->violation, sizeof model->violation, "stage %u, micro-batch %u, %s: %s",
             stage->index, task != NULL ? task->micro_batch : 0,
             task != NULL ? weir_phase_name(task->phase) : "life", what);
}

/* ---- what a callback verifies ---- */

static bool aligned(const void *memory) {
    return (uintptr_t)memory % 64 == 0;
}

static void check_views(const struct engine_stage *stage, const struct weir_task *task) {
    bool forward = task->phase == WEIR_FORWARD || task->phase == WEIR_FORWARD_CHECKPOINT ||
                   task->phase == WEIR_INFER;
    for (uint32_t c = 0; c < stage->consumed_count; c++) {
        const struct engine_port *port = &stage->consumed[c];
        const void *data = engine_consumed_data(port, task);
        if (port->empty && data != NULL) engine_note(stage, task, "an empty skip has data");
        if (!port->empty && data == NULL) engine_note(stage, task, "consumed tensor %u is NULL", c);
    }
    for (uint32_t o = 0; forward && o < stage->produced_count; o++) {
        const struct engine_port *port = &stage->produced[o];
        if ((engine_produced_data(port, task) == NULL) != port->empty)
            engine_note(stage, task, "produced tensor %u: NULL or not is wrong", o);
    }
}

static void check_phase(const struct engine_stage *stage, const struct weir_task *task) {
    bool saves = (task->phase == WEIR_FORWARD && !stage->frozen) || task->phase == WEIR_RECOMPUTE ||
                 task->phase == WEIR_BACKWARD || task->phase == WEIR_BACKWARD_INPUT ||
                 task->phase == WEIR_BACKWARD_WEIGHT;
    bool weight = task->phase == WEIR_BACKWARD_WEIGHT;
    bool leaves = weight || task->phase == WEIR_BACKWARD_INPUT;
    if ((task->saved != NULL) != saves) engine_note(stage, task, "saved is wrong for the phase");
    bool parts = stage->parts_areas, lists = stage->lists_areas;
    if ((task->saved_for_input != NULL) != (saves && !weight && parts && !lists))
        engine_note(stage, task, "saved_for_input is wrong for the phase");
    if ((task->left_for_weight != NULL) != (leaves && parts && !lists))
        engine_note(stage, task, "left_for_weight is wrong for the phase");
    if ((task->areas != NULL) != (saves && parts && lists))
        engine_note(stage, task, "the further areas are wrong for the phase");
    if (task->areas != NULL && (!aligned(task->areas[0]) || !aligned(task->areas[1])))
        engine_note(stage, task, "a further area is not aligned");
    if (!aligned(task->saved) || !aligned(task->saved_for_input) ||
        !aligned(task->left_for_weight) || !aligned(task->workspace) ||
        !aligned(task->parameters) || !aligned(task->gradients) || !aligned(task->optimizer))
        engine_note(stage, task, "an area is not aligned");
    if (weir_task_is_checkpointing(task) != (task->phase == WEIR_FORWARD_CHECKPOINT) ||
        weir_task_is_recomputing(task) != (task->phase == WEIR_RECOMPUTE))
        engine_note(stage, task, "the task's own questions are answered wrongly");
    bool own = task->stage == stage->index;
    if (!own) engine_note(stage, task, "the task is of stage %u", task->stage);
}

static int thread_id(void) {
    return (int)syscall(SYS_gettid);
}

static void check_thread(const struct engine_stage *stage, const struct weir_task *task) {
    if (stage->thread != thread_id()) engine_note(stage, task, "on another thread than attach");
    bool found = false;
    for (uint32_t i = 0; i < stage->prepared_count; i++) found |= stage->prepared[i] == task->rows;
    if (!found) engine_note(stage, task, "%" PRId64 " rows were not prepared", task->rows);
}

/* ---- workspace: a pattern that must last as long as the call ---- */

static size_t workspace_bytes(const struct engine_stage *stage, enum weir_phase phase,
                              int64_t rows) {
    if ((stage->index + (uint32_t)phase) % 4 == 3) return 0;
    return 40 + (size_t)rows * (size_t)(8 * ((uint32_t)phase % 3) + 24);
}

static unsigned char pattern(const struct weir_task *task) {
    return (unsigned char)(task->stage * 41 + task->micro_batch * 7 + (uint32_t)task->phase * 13);
}

static void fill_workspace(const struct engine_stage *stage, const struct weir_task *task,
                           int64_t rows) {
    size_t bytes = workspace_bytes(stage, task->phase, rows);
    if ((bytes == 0) != (task->workspace == NULL))
        engine_note(stage, task, "the workspace is NULL or not");
    else if (bytes > 0)
        memset(task->workspace, pattern(task), bytes);
}

static void check_workspace(const struct engine_stage *stage, const struct weir_task *task,
                            int64_t rows) {
    size_t bytes = task->workspace != NULL ? workspace_bytes(stage, task->phase, rows) : 0;
    const unsigned char *at = task->workspace;
    for (size_t i = 0; i < bytes; i++) {
        if (at[i] == pattern(task)) continue;
        engine_note(stage, task, "byte %zu of the workspace was written to", i);
        return;
    }
}

/* ---- state: what a task writes, whatever its step, the stage's next one finds ---- */

static void keep_state(struct engine_stage *stage, const struct weir_task *task) {
    unsigned char *at = task->state;
    if (task->state != stage->state) engine_note(stage, task, "the state is not the attached one");
    for (size_t i = 0; task->state == stage->state && i < stage->state_bytes; i++) {
        if (at[i] != (unsigned char)stage->task_count) {
            engine_note(stage, task, "byte %zu of the state was written to", i);
            return;
        }
        at[i]++;
    }
    stage->task_count++;
}

/* ---- around every task ---- */

static void dawdle(struct engine_model *model, uint32_t call) {
    if (model->jitter == 0) return;
    uint64_t z = (model->seed + call) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 29)) * 0xbf58476d1ce4e5b9u;
    if ((z >> 32) % model->jitter != 0) return;
    struct timespec little = {.tv_nsec = (long)((z >> 8) % 60000)};
    if (z % 3 == 0)
        nanosleep(&little, NULL);
    else if (z % 3 == 1)
        sched_yield();
    else
        for (volatile uint32_t i = 0; i < (z >> 8) % 5000; i++) continue;
}

static int begin(struct engine_stage *stage, const struct weir_task *task) {
    struct engine_model *model = stage->model;
    bool of_micro_batch = task->phase != WEIR_NORM && task->phase != WEIR_UPDATE;
    if (stage->frozen && task->phase != WEIR_FORWARD && task->phase != WEIR_INFER)
        engine_note(stage, task, "a stage without backward is asked for it");
    if (of_micro_batch) check_views(stage, task);
    if (of_micro_batch) check_phase(stage, task);
    if (model->reference) return 0;
    if (of_micro_batch) check_thread(stage, task);
    uint32_t number = atomic_fetch_add(&model->call_count, 1);
    if (number < ENGINE_CALLS_MAX)
        model->calls[number] = (struct engine_call){task->mini_batch,
                                                    task->stage,
                                                    task->micro_batch,
                                                    task->rows,
                                                    task->row_first,
                                                    task->phase,
                                                    thread_id(),
                                                    weir_task_is_checkpointing(task),
                                                    weir_task_is_recomputing(task)};
    dawdle(model, number);
    return model->hook != NULL ? model->hook(model->hook_context, task) : 0;
}

static bool fails_here(const struct engine_model *model, const struct weir_task *task, bool late) {
    bool of_micro_batch = task->phase != WEIR_NORM && task->phase != WEIR_UPDATE;
    return model->failure.armed && model->failure.late == late && !model->reference &&
           model->failure.phase == task->phase && model->failure.stage == task->stage &&
           (!of_micro_batch || model->failure.micro_batch == task->micro_batch);
}

static int fail(const struct engine_stage *stage, const struct weir_task *task) {
    snprintf(task->error->layer, sizeof task->error->layer, "layer.%u", stage->index);
    snprintf(task->error->message, sizeof task->error->message, "meant to fail in %s",
             weir_phase_name(task->phase));
    return stage->model->failure.status;
}

static int64_t rows_of(const struct weir_task *task) {
    return task->phase != WEIR_NORM && task->phase != WEIR_UPDATE ? task->rows : 0;
}

/* What is done where the stage's memory is, in two parts: on a GPU other work may come between, and
 * must leave the workspace alone. */
static void prepare_work(struct engine_stage *stage, const struct weir_task *task) {
    fill_workspace(stage, task, rows_of(task));
}

static void work(struct engine_stage *stage, const struct weir_task *task) {
    int64_t rows = rows_of(task);
    if (!stage->model->reference) keep_state(stage, task);
    engine_do_phase(stage, task);
    if (!stage->model->reference) dawdle(stage->model, task->micro_batch * 8 + task->stage);
    check_workspace(stage, task, rows);
}

static int submit(struct engine_stage *stage, const struct weir_task *task) {
    int status = engine_gpu_submit(stage, task, prepare_work);
    return status == WEIR_OK ? engine_gpu_submit(stage, task, work) : status;
}

static int run(void *context, const struct weir_task *task) {
    struct engine_stage *stage = context;
    int status = begin(stage, task);
    if (status != 0) return status;
    if (fails_here(stage->model, task, false)) return fail(stage, task);
    if (task->stream != NULL && weir_stream_cuda(task->stream) != NULL)
        status = submit(stage, task);
    else
        prepare_work(stage, task), work(stage, task);
    return fails_here(stage->model, task, true) ? fail(stage, task) : status;
}

/* ---- life ---- */

static int lifecycle_status(const struct engine_stage *stage, enum engine_lifecycle at) {
    const struct engine_model *model = stage->model;
    bool here = model->lifecycle.at == at && model->lifecycle.stage == stage->index;
    return here ? model->lifecycle.status : 0;
}

static int measure(void *context, int64_t rows, struct weir_stage_bytes *bytes) {
    struct engine_stage *stage = context;
    engine_measure_areas(stage, rows, bytes);
    for (int phase = 0; phase < WEIR_PHASE_COUNT; phase++) {
        bool of_micro_batch = phase != WEIR_NORM && phase != WEIR_UPDATE;
        bytes->workspace[phase] =
            workspace_bytes(stage, (enum weir_phase)phase, of_micro_batch ? rows : 0);
    }
    return lifecycle_status(stage, ENGINE_MEASURE);
}

/* A fake GPU's memory is opened and closed for each access: hence pieces. */
enum { PIECE_BYTES = 4096, PIECE_DOUBLES = PIECE_BYTES / sizeof(double) };

static bool all_zero(const struct engine_model *model, const void *memory, size_t bytes) {
    static const unsigned char zeros[PIECE_BYTES];
    for (size_t i = 0; memory != NULL && i < bytes; i += PIECE_BYTES) {
        unsigned char piece[PIECE_BYTES];
        size_t count = bytes - i < PIECE_BYTES ? bytes - i : PIECE_BYTES;
        engine_gpu_read(model, piece, (const char *)memory + i, count);
        if (memcmp(piece, zeros, count) != 0) return false;
    }
    return true;
}

static void write_first_parameters(const struct engine_stage *stage, double *parameters) {
    for (uint32_t i = 0; i < stage->parameters; i += PIECE_DOUBLES) {
        double piece[PIECE_DOUBLES];
        uint32_t count = 0;
        for (; count < PIECE_DOUBLES && i + count < stage->parameters; count++)
            piece[count] = engine_initial_parameter(stage->model, stage->index, i + count);
        engine_gpu_write(stage->model, &parameters[i], piece, count * sizeof *piece);
    }
}

static int attach(void *context, const struct weir_attachment *attachment) {
    struct engine_stage *stage = context;
    int status = lifecycle_status(stage, ENGINE_ATTACH);
    if (status != 0) return status;
    size_t bytes = stage->parameters * sizeof(double);
    if (stage->attached) engine_note(stage, NULL, "attached twice");
    if (attachment->stage != stage->index) engine_note(stage, NULL, "attached as another stage");
    const struct engine_model *model = stage->model;
    if (!all_zero(model, attachment->parameters, bytes) ||
        !all_zero(model, attachment->gradients, bytes) ||
        !all_zero(model, attachment->optimizer, bytes) ||
        !all_zero(model, attachment->state, stage->state_bytes))
        engine_note(stage, NULL, "lasting memory is not zero at attach");
    write_first_parameters(stage, attachment->parameters);
    if ((attachment->state != NULL) != (stage->state_bytes > 0) || !aligned(attachment->state))
        engine_note(stage, NULL, "the state is NULL or not, or not aligned");
    stage->state = attachment->state;
    stage->stream = attachment->stream;
    stage->replica = attachment->replica;
    stage->replicas = attachment->replicas;
    stage->task_count = 0;
    stage->thread = thread_id();
    stage->attached = true;
    atomic_fetch_add(&stage->model->attached, 1);
    return 0;
}

static int prepare(void *context, int64_t rows) {
    struct engine_stage *stage = context;
    int status = lifecycle_status(stage, ENGINE_PREPARE);
    if (status != 0) return status;
    if (stage->thread != thread_id()) engine_note(stage, NULL, "prepared on another thread");
    if (stage->prepared_count < ENGINE_CHUNKS_MAX) stage->prepared[stage->prepared_count++] = rows;
    atomic_fetch_add(&stage->model->prepared, 1);
    return 0;
}

static void detach(void *context) {
    struct engine_stage *stage = context;
    if (!stage->attached) engine_note(stage, NULL, "detached without attach");
    if (stage->thread != thread_id()) engine_note(stage, NULL, "detached on another thread");
    stage->attached = false;
    stage->prepared_count = 0;
    atomic_fetch_add(&stage->model->detached, 1);
}

static int combine(void *context, void *into, const void *from, size_t offset, size_t bytes) {
    struct engine_stage *stage = context;
    double *to = into;
    const double *more = from;
    size_t count = bytes / sizeof *to;
    if (stage->thread != thread_id()) engine_note(stage, NULL, "combined on another thread");
    if (bytes % sizeof *to != 0 || offset % sizeof *to != 0)
        engine_note(stage, NULL, "a number is cut by a slice");
    if (weir_stream_cuda(stage->stream) == NULL)
        for (size_t i = 0; i < count; i++) to[i] += more[i];
    else if (engine_gpu_add(stage, to, more, count) != WEIR_OK)
        return WEIR_ERR_DEVICE;
    return stage->model->combine_status;
}

#define CALLS_PER_MICRO_BATCH                                                                      \
    .forward = run, .recompute = run, .backward = run, .backward_input = run, .backward_weight = run
#define CALLS_OF_LIFE .measure = measure, .attach = attach, .prepare = prepare, .detach = detach
#define CALLS_OF_SUMS .combine = combine

const struct weir_stage_calls engine_stage_calls = {CALLS_PER_MICRO_BATCH, .norm = run,
                                                    .update = run, CALLS_OF_SUMS, CALLS_OF_LIFE};
const struct weir_stage_calls engine_fixed_calls = {CALLS_PER_MICRO_BATCH, CALLS_OF_SUMS,
                                                    CALLS_OF_LIFE};
const struct weir_stage_calls engine_frozen_calls = {.forward = run, CALLS_OF_LIFE};
