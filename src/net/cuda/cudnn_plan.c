/* SPDX-License-Identifier: MIT */
/*
 * Which engine computes a graph: the first one of the heuristics (mode A, then the fallback)
 * that gives the same bits each time, does not round its inputs, sums in F32, needs no more
 * workspace than was counted, and can be made. For F32 there are no tensor cores in it, which would
 * be TF32; and no transforms (FFT, large Winograd tiles), which lose digits.
 *
 * The engine and its knobs are chosen for the most rows and then set on the graph of fewer: so
 * a row is summed in the same order however many there are. Where cuDNN does not make them for the
 * fewer rows the next engine has its turn; never after a failure that passes, as of memory.
 */
#include "net/cuda/cudnn.h"

#include <stdio.h>

enum { CHOICES_MAX = 64 };

/* ---- reading a configuration ---- */

static int read_knob(const struct weir__cudnn *cudnn, void *choice, struct weir__cudnn_knob *knob) {
    int64_t count = 0;
    int result = cudnn->get(choice, WEIR__CUDNN_KNOB_CHOICE_KNOB_TYPE, WEIR__CUDNN_TYPE_KNOB_TYPE,
                            1, &count, &knob->type);
    if (result == 0)
        result = cudnn->get(choice, WEIR__CUDNN_KNOB_CHOICE_KNOB_VALUE, WEIR__CUDNN_TYPE_INT64, 1,
                            &count, &knob->value);
    return result;
}

/** The library fills descriptors that the caller has made. */
static int make_all(const struct weir__cudnn *cudnn, int kind, void *made[], int64_t count) {
    int result = 0;
    for (int64_t i = 0; result == 0 && i < count; i++)
        result = cudnn->descriptor_create(kind, &made[i]);
    return result;
}

static void forget_all(const struct weir__cudnn *cudnn, void *made[], int64_t count) {
    for (int64_t i = 0; i < count; i++) weir__cudnn_forget(cudnn, made[i]);
}

static int read_knobs(const struct weir__cudnn *cudnn, void *config,
                      struct weir__cudnn_engine *engine) {
    void *choices[WEIR__CUDNN_KNOBS_MAX] = {NULL};
    int64_t count = 0;
    int result = make_all(cudnn, WEIR__CUDNN_KNOB_CHOICE, choices, WEIR__CUDNN_KNOBS_MAX);
    if (result == 0)
        result = cudnn->get(config, WEIR__CUDNN_ENGINECFG_KNOB_CHOICES, WEIR__CUDNN_TYPE_DESCRIPTOR,
                            WEIR__CUDNN_KNOBS_MAX, &count, choices);
    if (result == 0 && count > WEIR__CUDNN_KNOBS_MAX) result = WEIR__CUDNN_INTERNAL_ERROR;
    for (int64_t k = 0; result == 0 && k < count; k++)
        result = read_knob(cudnn, choices[k], &engine->knobs[k]);
    engine->knob_count = count;
    forget_all(cudnn, choices, WEIR__CUDNN_KNOBS_MAX);
    return result;
}

static int read_notes(const struct weir__cudnn *cudnn, void *engine,
                      int notes[WEIR__CUDNN_NOTES_MAX], int64_t *count) {
    int result = cudnn->get(engine, WEIR__CUDNN_ENGINE_NUMERICAL_NOTE,
                            WEIR__CUDNN_TYPE_NUMERICAL_NOTE, WEIR__CUDNN_NOTES_MAX, count, notes);
    return result == 0 && *count > WEIR__CUDNN_NOTES_MAX ? WEIR__CUDNN_INTERNAL_ERROR : result;
}

static int read_engine(const struct weir__cudnn *cudnn, void *config,
                       struct weir__cudnn_engine *engine) {
    void *from = NULL;
    int64_t count = 0;
    int result = cudnn->descriptor_create(WEIR__CUDNN_ENGINE, &from);
    if (result == 0)
        result = cudnn->get(config, WEIR__CUDNN_ENGINECFG_ENGINE, WEIR__CUDNN_TYPE_DESCRIPTOR, 1,
                            &count, &from);
    if (result == 0)
        result = cudnn->get(from, WEIR__CUDNN_ENGINE_GLOBAL_INDEX, WEIR__CUDNN_TYPE_INT64, 1,
                            &count, &engine->index);
    if (result == 0) result = read_notes(cudnn, from, engine->notes, &engine->note_count);
    weir__cudnn_forget(cudnn, from);
    return result == 0 ? read_knobs(cudnn, config, engine) : result;
}

/* ---- what may be used ---- */

static bool is_note_refused(const struct weir__cudnn_wish *wish, int note) {
    switch (note) {
    case WEIR__CUDNN_NOTE_NONDETERMINISTIC:
    case WEIR__CUDNN_NOTE_DOWN_CONVERT_INPUTS:
    case WEIR__CUDNN_NOTE_REDUCED_PRECISION_REDUCTION:
    case WEIR__CUDNN_NOTE_FFT:
    case WEIR__CUDNN_NOTE_WINOGRAD_TILE_4X4:
    case WEIR__CUDNN_NOTE_WINOGRAD_TILE_6X6:
    case WEIR__CUDNN_NOTE_WINOGRAD_TILE_13X13: return true;
    case WEIR__CUDNN_NOTE_TENSOR_CORE: return wish->single;
    default: return false;
    }
}

static bool may_use(const struct weir__cudnn_wish *wish, const struct weir__cudnn_engine *engine) {
    for (int64_t i = 0; i < engine->note_count; i++)
        if (is_note_refused(wish, engine->notes[i])) return false;
    for (int64_t k = 0; wish->by_rows && k < engine->knob_count; k++)
        if (engine->knobs[k].type == WEIR__CUDNN_KNOB_STREAM_K && engine->knobs[k].value != 0)
            return false; /* splits sums by how many there are */
    return true;
}

/* ---- making a plan of an engine ---- */

static int describe_gpu(const struct weir__cudnn *cudnn, void *descriptor,
                        enum weir__cudnn_attribute attribute) {
    if (cudnn->described == NULL) return 0;
    return cudnn->set(descriptor, (int)attribute, WEIR__CUDNN_TYPE_DESCRIPTOR, 1,
                      &cudnn->described);
}

int weir__cudnn_plan_place(const struct weir__cudnn *cudnn, void *handle,
                           const struct weir__cudnn_plan *plan) {
    assert(plan->plan != NULL);
    if (cudnn->described != NULL)
        return describe_gpu(cudnn, plan->plan, WEIR__CUDNN_EXECUTION_PLAN_DEVICE);
    return cudnn->set(plan->plan, WEIR__CUDNN_EXECUTION_PLAN_HANDLE, WEIR__CUDNN_TYPE_HANDLE, 1,
                      &handle);
}

static int engine_new(const struct weir__cudnn *cudnn, void *graph,
                      const struct weir__cudnn_engine *engine, void **to) {
    int result = cudnn->descriptor_create(WEIR__CUDNN_ENGINE, to);
    if (result == 0)
        result = cudnn->set(*to, WEIR__CUDNN_ENGINE_OPERATION_GRAPH, WEIR__CUDNN_TYPE_DESCRIPTOR, 1,
                            &graph);
    if (result == 0)
        result = cudnn->set(*to, WEIR__CUDNN_ENGINE_GLOBAL_INDEX, WEIR__CUDNN_TYPE_INT64, 1,
                            &engine->index);
    if (result != 0) return result;
    if ((result = describe_gpu(cudnn, *to, WEIR__CUDNN_ENGINE_DEVICE)) != 0) return result;
    return cudnn->finalize(*to);
}

static int choice_new(const struct weir__cudnn *cudnn, const struct weir__cudnn_knob *knob,
                      void **to) {
    int result = cudnn->descriptor_create(WEIR__CUDNN_KNOB_CHOICE, to);
    if (result == 0)
        result = cudnn->set(*to, WEIR__CUDNN_KNOB_CHOICE_KNOB_TYPE, WEIR__CUDNN_TYPE_KNOB_TYPE, 1,
                            &knob->type);
    if (result == 0)
        result = cudnn->set(*to, WEIR__CUDNN_KNOB_CHOICE_KNOB_VALUE, WEIR__CUDNN_TYPE_INT64, 1,
                            &knob->value);
    return result == 0 ? cudnn->finalize(*to) : result;
}

static int config_new(const struct weir__cudnn *cudnn, void *engine,
                      const struct weir__cudnn_engine *set, void **config) {
    assert(set->knob_count <= WEIR__CUDNN_KNOBS_MAX);
    void *choices[WEIR__CUDNN_KNOBS_MAX] = {NULL};
    int result = cudnn->descriptor_create(WEIR__CUDNN_ENGINECFG, config);
    if (result == 0)
        result = cudnn->set(*config, WEIR__CUDNN_ENGINECFG_ENGINE, WEIR__CUDNN_TYPE_DESCRIPTOR, 1,
                            &engine);
    for (int64_t k = 0; result == 0 && k < set->knob_count; k++)
        result = choice_new(cudnn, &set->knobs[k], &choices[k]);
    if (result == 0 && set->knob_count > 0)
        result = cudnn->set(*config, WEIR__CUDNN_ENGINECFG_KNOB_CHOICES,
                            WEIR__CUDNN_TYPE_DESCRIPTOR, set->knob_count, choices);
    if (result == 0) result = cudnn->finalize(*config);
    forget_all(cudnn, choices, WEIR__CUDNN_KNOBS_MAX);
    return result;
}

int weir__cudnn_plan_measure(const struct weir__cudnn *cudnn, struct weir__cudnn_plan *plan) {
    assert(plan->plan != NULL);
    int64_t bytes = -1, count = 0;
    int result = cudnn->get(plan->plan, WEIR__CUDNN_EXECUTION_PLAN_WORKSPACE_SIZE,
                            WEIR__CUDNN_TYPE_INT64, 1, &count, &bytes);
    if (result == 0 && (count != 1 || bytes < 0)) result = WEIR__CUDNN_INTERNAL_ERROR;
    plan->workspace = bytes < 0 ? 0 : (size_t)bytes;
    return result;
}

static int plan_new(const struct weir__cudnn *cudnn, void *handle, void *config,
                    struct weir__cudnn_plan *plan) {
    int result = cudnn->descriptor_create(WEIR__CUDNN_EXECUTION_PLAN, &plan->plan);
    if (result == 0) result = weir__cudnn_plan_place(cudnn, handle, plan);
    if (result == 0)
        result = cudnn->set(plan->plan, WEIR__CUDNN_EXECUTION_PLAN_ENGINE_CONFIG,
                            WEIR__CUDNN_TYPE_DESCRIPTOR, 1, &config);
    if (result != 0) return result;
    if ((result = cudnn->finalize(plan->plan)) != 0) return result;
    return weir__cudnn_plan_measure(cudnn, plan);
}

void weir__cudnn_plan_tell(const struct weir__cudnn_plan *plan, char *text, size_t capacity) {
    snprintf(text, capacity, "cuDNN's, engine %lld", (long long)plan->engine);
}

/** Of a finalized engine, whether a heuristic named it or its number is known. */
static int check_repeats(const struct weir__cudnn *cudnn, void *engine) {
    int notes[WEIR__CUDNN_NOTES_MAX];
    int64_t count = 0;
    int result = read_notes(cudnn, engine, notes, &count);
    for (int64_t i = 0; result == 0 && i < count; i++)
        if (notes[i] == WEIR__CUDNN_NOTE_NONDETERMINISTIC) result = WEIR__CUDNN_NOT_SUPPORTED;
    return result;
}

uint64_t weir__cudnn_settings(const struct weir__cudnn_engine *engine) {
    uint64_t hash = weir__hash(WEIR__HASH_BEGIN, &engine->index, sizeof engine->index);
    hash = weir__hash(hash, &engine->graph, sizeof engine->graph);
    for (int64_t k = 0; k < engine->knob_count; k++) {
        const struct weir__cudnn_knob *knob = &engine->knobs[k];
        hash = weir__hash(hash, &knob->type, sizeof knob->type);
        hash = weir__hash(hash, &knob->value, sizeof knob->value);
    }
    return hash;
}

int weir__cudnn_plan_of(const struct weir__cudnn *cudnn, void *handle,
                        const struct weir__cudnn_graph *graph,
                        const struct weir__cudnn_engine *engine, size_t workspace_max,
                        struct weir__cudnn_plan *plan) {
    void *made = NULL, *config = NULL;
    *plan = (struct weir__cudnn_plan){NULL, 0, 0, 0};
    int result = engine_new(cudnn, graph->graph, engine, &made);
    if (result == 0) result = check_repeats(cudnn, made);
    if (result == 0) result = config_new(cudnn, made, engine, &config);
    if (result == 0) result = plan_new(cudnn, handle, config, plan);
    if (result == 0 && plan->workspace > workspace_max) result = WEIR__CUDNN_NOT_SUPPORTED;
    plan->engine = engine->index;
    plan->settings = weir__cudnn_settings(engine);
    weir__cudnn_forget(cudnn, config);
    weir__cudnn_forget(cudnn, made);
    if (result == 0) return result;
    weir__cudnn_forget(cudnn, plan->plan);
    *plan = (struct weir__cudnn_plan){NULL, 0, 0, 0};
    return result;
}

/* ---- choosing ---- */

struct engine_choice {
    const struct weir__cudnn *cudnn;
    void *handle;
    const struct weir__cudnn_wish *wish;
    struct weir__cudnn_engine engine; /**< the one that is tried */
};

/** On the graph of the largest rows first, so that all row counts pass over the same engines. */
static int try_config(struct engine_choice *choice, void *config, struct weir__cudnn_plan *plan) {
    assert(choice->wish->own != NULL && choice->wish->largest != NULL);
    const struct weir__cudnn *cudnn = choice->cudnn;
    const struct weir__cudnn_wish *wish = choice->wish;
    choice->engine = (struct weir__cudnn_engine){0};
    int result = read_engine(cudnn, config, &choice->engine);
    if (result != 0) return result;
    choice->engine.graph = wish->graph;
    if (!may_use(wish, &choice->engine) ||
        weir__cudnn_is_dropped(cudnn, wish->shape, weir__cudnn_settings(&choice->engine)))
        return WEIR__CUDNN_NOT_SUPPORTED;
    result = weir__cudnn_plan_of(cudnn, choice->handle, wish->largest, &choice->engine,
                                 wish->workspace_max, plan);
    if (result != 0 || wish->own == wish->largest) return result;
    weir__cudnn_forget(cudnn, plan->plan);
    return weir__cudnn_plan_of(cudnn, choice->handle, wish->own, &choice->engine,
                               wish->workspace_max, plan);
}

static int try_all(struct engine_choice *choice, void *heuristic, struct weir__cudnn_plan *plan) {
    const struct weir__cudnn *cudnn = choice->cudnn;
    void *configs[CHOICES_MAX] = {NULL};
    int64_t count = 0;
    int result = make_all(cudnn, WEIR__CUDNN_ENGINECFG, configs, CHOICES_MAX);
    if (result == 0)
        result = cudnn->get(heuristic, WEIR__CUDNN_ENGINEHEUR_RESULTS, WEIR__CUDNN_TYPE_DESCRIPTOR,
                            CHOICES_MAX, &count, configs);
    if (count > CHOICES_MAX) count = CHOICES_MAX;
    if (result == 0) result = WEIR__CUDNN_NOT_SUPPORTED;
    for (int64_t i = 0; weir__cudnn_lacks(result) && i < count; i++)
        result = try_config(choice, configs[i], plan);
    forget_all(cudnn, configs, CHOICES_MAX);
    return result;
}

static int ask_heuristic(struct engine_choice *choice, int mode, struct weir__cudnn_plan *plan) {
    const struct weir__cudnn *cudnn = choice->cudnn;
    void *heuristic = NULL;
    int result = cudnn->descriptor_create(WEIR__CUDNN_ENGINEHEUR, &heuristic);
    if (result == 0)
        result = cudnn->set(heuristic, WEIR__CUDNN_ENGINEHEUR_OPERATION_GRAPH,
                            WEIR__CUDNN_TYPE_DESCRIPTOR, 1, &choice->wish->largest->graph);
    if (result == 0)
        result = cudnn->set(heuristic, WEIR__CUDNN_ENGINEHEUR_MODE, WEIR__CUDNN_TYPE_HEUR_MODE, 1,
                            &mode);
    if (result == 0) result = describe_gpu(cudnn, heuristic, WEIR__CUDNN_ENGINEHEUR_DEVICE);
    if (result == 0) result = cudnn->finalize(heuristic);
    if (result == 0) result = try_all(choice, heuristic, plan);
    weir__cudnn_forget(cudnn, heuristic);
    return result;
}

bool weir__cudnn_lacks(int result) {
    return (result >= WEIR__CUDNN_NOT_SUPPORTED && result < WEIR__CUDNN_INTERNAL_ERROR) ||
           result == WEIR__CUDNN_COMPILATION_FAILED;
}

int weir__cudnn_do_without(int result) {
    return weir__cudnn_lacks(result) ? WEIR__CUDNN_NOT_SUPPORTED : result;
}

int weir__cudnn_plan_find(const struct weir__cudnn *cudnn, void *handle,
                          const struct weir__cudnn_wish *wish, struct weir__cudnn_plan *plan) {
    struct engine_choice choice = {.cudnn = cudnn, .handle = handle, .wish = wish};
    *plan = (struct weir__cudnn_plan){NULL, 0, 0, 0};
    int result = ask_heuristic(&choice, WEIR__CUDNN_HEUR_MODE_A, plan);
    if (!weir__cudnn_lacks(result)) return result;
    return ask_heuristic(&choice, WEIR__CUDNN_HEUR_MODE_FALLBACK, plan);
}
