/* SPDX-License-Identifier: MIT */
/* Check first, all of it (check.c), then copy. */
#include "pipe/describe/setup.h"

#include "pipe/describe/check.h"
#include "pipe/describe/ties.h"

#include <stdio.h>
#include <string.h>

/* ---- skips ---- */

/* For the verifier, which copies a name at once. */
struct owner_names {
    const struct weir_pipe_options *options;
    char text[96];
};

static const char *stage_text(const char *name, uint32_t stage, char text[96]) {
    if (name == NULL)
        snprintf(text, 96, "stage %u", stage);
    else
        snprintf(text, 96, "stage %u (%.64s)", stage, name);
    return text;
}

static const char *owner_name(void *context, uint32_t owner) {
    struct owner_names *names = context;
    return stage_text(names->options->stages[owner].name, owner, names->text);
}

/* Lists every stage's uses and checks that they match. */
static int list_skips(struct weir__setup *setup, const struct weir_pipe_options *options,
                      struct weir_faults *faults, struct weir__skip_decl **list, uint32_t *count) {
    struct owner_names names = {.options = options};
    uint32_t total = 0, made = 0;
    for (uint32_t s = 0; s < options->stage_count; s++) total += options->stages[s].skip_count;
    struct weir__skip_decl *decls = weir__pool_take(&setup->pool, total, sizeof *decls);
    if (decls == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t s = 0; s < options->stage_count; s++)
        for (uint32_t j = 0; j < options->stages[s].skip_count; j++)
            decls[made++] = (struct weir__skip_decl){s, options->stages[s].skips[j]};
    assert(made == total);
    *list = decls;
    *count = total;
    return weir__skip_verify(decls, total, owner_name, &names, faults);
}

static const char *join_name(struct weir__setup *setup, const struct weir_skip_route *route) {
    char text[160];
    bool plain = route->name_space[0] == '\0';
    snprintf(text, sizeof text, "%s%s%s", route->name_space, plain ? "" : ":", route->name);
    return weir__pool_text(&setup->pool, text);
}

/* Notes the stash's tensor and each reader's place; checks that all uses agree. */
static int take_route(struct weir__setup *setup, const struct weir__skip_decl *decls,
                      const uint32_t *route_of, uint32_t *reader_of, uint32_t number,
                      struct weir_faults *faults) {
    struct weir_skip_route *route = &setup->routes[number];
    struct weir_tensor *tensor = &setup->route_tensors[number];
    route->name = join_name(setup, route);
    route->name_space = "";
    if (route->name == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t d = 0, reader = 0; reader < route->reader_count; d++) {
        const struct weir_skip_use *use = &decls[d].use;
        if (route_of[d] != number) continue;
        if (use->verb == WEIR_SKIP_STASH) {
            *tensor = use->tensor;
            weir__check_tensor(tensor, setup->options.rows, route->name, faults);
            continue;
        }
        assert(decls[d].owner == route->readers[reader]);
        reader_of[d] = reader++;
        if (!weir__tensor_equal(&use->tensor, tensor))
            weir_faults_add(faults,
                            "stage %u: skip '%s' has another dtype or shape than where it "
                            "is stashed (stage %u)",
                            decls[d].owner, route->name, route->source);
    }
    return WEIR_OK;
}

static int take_routes(struct weir__setup *setup, const struct weir__skip_decl *decls,
                       uint32_t count, struct weir_faults *faults) {
    struct weir__skip_layout layout;
    uint32_t before = faults->count;
    int status = weir__skip_layout_init(&layout, &setup->pool, decls, count);
    if (status != WEIR_OK) return status;
    uint32_t *reader_of = weir__pool_take(&setup->pool, count, sizeof *reader_of);
    setup->routes = layout.routes;
    setup->route_count = layout.route_count;
    setup->route_tensors =
        weir__pool_take(&setup->pool, layout.route_count, sizeof *setup->route_tensors);
    if (reader_of == NULL || setup->route_tensors == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t s = 0, first = 0; s < setup->options.stage_count; s++) {
        setup->stages[s].skip_routes = &layout.route_of[first];
        setup->stages[s].skip_readers = &reader_of[first];
        first += setup->stages[s].stage.skip_count;
    }
    for (uint32_t r = 0; r < layout.route_count; r++) {
        status = take_route(setup, decls, layout.route_of, reader_of, r, faults);
        if (status != WEIR_OK) return status;
    }
    return faults->count > before ? WEIR_ERR_SKIP : WEIR_OK;
}

/* ---- copies ---- */

static int copy_skips(struct weir__setup *setup, struct weir__stage_setup *to) {
    struct weir__pool *pool = &setup->pool;
    uint32_t count = to->stage.skip_count;
    struct weir_skip_use *uses = weir__pool_copy(pool, to->stage.skips, count, sizeof *uses);
    if (uses == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t j = 0; j < count; j++) {
        uses[j].name = weir__pool_text(pool, uses[j].name);
        uses[j].name_space = weir__pool_text(pool, uses[j].name_space);
        if (uses[j].name == NULL || uses[j].name_space == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    }
    to->stage.skips = uses;
    return WEIR_OK;
}

/* What learning needs goes, so that everything that follows finds nothing of it. */
static void freeze(struct weir_stage *stage, struct weir_stage_calls *calls) {
    assert(stage->no_backward);
    calls->recompute = calls->backward = calls->norm = calls->update = NULL;
    calls->backward_input = calls->backward_weight = NULL;
    stage->gradient_bytes = stage->optimizer_bytes = 0;
    stage->norm_count = stage->section_count = 0;
}

/* A stage that names no sections of its gradients has one. */
static int copy_sections(struct weir__setup *setup, struct weir_stage *stage) {
    struct weir_section all = {.bytes = stage->gradient_bytes, .parameters = true};
    bool named = stage->section_count > 0;
    if (!named && stage->gradient_bytes > 0) stage->section_count = 1;
    stage->sections = weir__pool_copy(&setup->pool, named ? stage->sections : &all,
                                      stage->section_count, sizeof *stage->sections);
    return stage->sections != NULL ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

static int copy_stage(struct weir__setup *setup, const struct weir_pipe_options *options,
                      uint32_t s) {
    assert(s < options->stage_count);
    struct weir__stage_setup *to = &setup->stages[s];
    struct weir__pool *pool = &setup->pool;
    to->stage = options->stages[s];
    to->border_count = s > 0 ? options->stages[s - 1].output_count : 0;
    if (to->stage.name != NULL) {
        to->stage.name = weir__pool_text(pool, to->stage.name);
        if (to->stage.name == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    }
    struct weir_stage_calls *calls = weir__pool_copy(pool, to->stage.calls, 1, sizeof *calls);
    to->stage.calls = calls;
    to->stage.outputs =
        weir__pool_copy(pool, to->stage.outputs, to->stage.output_count, sizeof *to->stage.outputs);
    uint32_t *entering = weir__pool_take(pool, options->input_count, sizeof *entering);
    if (calls == NULL || to->stage.outputs == NULL || entering == NULL)
        return WEIR_ERR_OUT_OF_MEMORY;
    if (to->stage.no_backward) freeze(&to->stage, calls);
    for (uint32_t k = 0; k < options->input_count; k++)
        if (options->inputs[k].stage == s) entering[to->entering_count++] = k;
    to->entering = entering;
    int status = copy_sections(setup, &to->stage);
    return status == WEIR_OK ? copy_skips(setup, to) : status;
}

static int copy_inputs(struct weir__setup *setup) {
    struct weir_pipe_options *own = &setup->options;
    struct weir_input *inputs =
        weir__pool_copy(&setup->pool, own->inputs, own->input_count, sizeof *inputs);
    if (inputs == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t k = 0; k < own->input_count; k++) {
        inputs[k].name = weir__pool_text(&setup->pool, inputs[k].name);
        if (inputs[k].name == NULL) return WEIR_ERR_OUT_OF_MEMORY;
        if (inputs[k].rows_factor == 0) inputs[k].rows_factor = 1;
    }
    own->inputs = inputs;
    return WEIR_OK;
}

static int measure_rows(struct weir__setup *setup) {
    assert(setup->options.stage_count > 0 && setup->stages != NULL);
    const struct weir_pipe_options *own = &setup->options;
    const struct weir_stage *last = &setup->stages[own->stage_count - 1].stage;
    setup->input_row_bytes = weir__pool_take(&setup->pool, own->input_count, sizeof(size_t));
    setup->output_row_bytes = weir__pool_take(&setup->pool, last->output_count, sizeof(size_t));
    if (setup->input_row_bytes == NULL || setup->output_row_bytes == NULL)
        return WEIR_ERR_OUT_OF_MEMORY;
    int status = WEIR_OK;
    for (uint32_t k = 0; k < own->input_count && status == WEIR_OK; k++)
        status = weir__tensor_bytes(&own->inputs[k].tensor, 1, &setup->input_row_bytes[k]);
    for (uint32_t k = 0; k < last->output_count && status == WEIR_OK; k++)
        status = weir__tensor_bytes(&last->outputs[k], 1, &setup->output_row_bytes[k]);
    return status;
}

/* Drivers are asked only where it matters, and once for each device. */
static int take_reach(struct weir__setup *setup) {
    assert(setup->devices != NULL && setup->reach == NULL);
    const struct weir_pipe_options *own = &setup->options;
    uint32_t count = own->device_count, kinds = 0;
    for (uint32_t d = 0; d < count; d++) {
        uint32_t e = 0;
        while (setup->devices[e].memory != setup->devices[d].memory) e++;
        kinds += e == d && setup->devices[d].memory != 0;
    }
    /* all ranks plan alike, whatever is linked here */
    if (kinds < 2 || own->world != NULL) return WEIR_OK;
    uint64_t *reach = weir__pool_take(&setup->pool, count, sizeof *reach);
    if (reach == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t d = 0; d < count; d++) {
        uint32_t e = 0;
        while (setup->devices[e].memory != setup->devices[d].memory) e++;
        reach[d] = e < d ? reach[e] : weir__device_reach(own->devices[d]);
    }
    setup->reach = reach;
    return WEIR_OK;
}

static int take_devices(struct weir__setup *setup) {
    struct weir_pipe_options *own = &setup->options;
    struct weir__pool *pool = &setup->pool;
    const char **names = weir__pool_take(pool, own->device_count, sizeof *names);
    struct weir__device_facts *facts = weir__pool_take(pool, own->device_count, sizeof *facts);
    if (names == NULL || facts == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t d = 0; d < own->device_count; d++) {
        names[d] = weir__pool_text(pool, own->devices[d]);
        if (names[d] == NULL) return WEIR_ERR_OUT_OF_MEMORY;
        facts[d] = weir__device_facts(names[d]);
    }
    own->devices = names;
    setup->devices = facts;
    return take_reach(setup);
}

static int copy_texts(struct weir__setup *setup) {
    struct weir_pipe_options *own = &setup->options;
    struct weir__pool *pool = &setup->pool;
    own->schedule = weir__pool_text(pool, own->schedule != NULL ? own->schedule : "1f1b");
    if (own->schedule == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    if (own->table_csv != NULL) {
        own->table_csv = weir__pool_copy(pool, own->table_csv, own->table_csv_bytes, 1);
        if (own->table_csv == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    }
    if (own->bind != NULL && (own->bind = weir__pool_text(pool, own->bind)) == NULL)
        return WEIR_ERR_OUT_OF_MEMORY;
    if (own->stage_checkpoint != NULL) {
        own->stage_checkpoint = weir__pool_copy(pool, own->stage_checkpoint, own->stage_count,
                                                sizeof *own->stage_checkpoint);
        if (own->stage_checkpoint == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    }
    return take_devices(setup);
}

static int make_flow(struct weir__setup *setup) {
    assert(setup->flow.stage_count == 0);
    uint32_t count = setup->options.stage_count;
    bool *borders = weir__pool_take(&setup->pool, count, sizeof *borders);
    bool *no_backward = weir__pool_take(&setup->pool, count, sizeof *no_backward);
    if (borders == NULL || no_backward == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t s = 0; s < count; s++) no_backward[s] = setup->stages[s].stage.no_backward;
    for (uint32_t s = 0; s < count; s++)
        for (uint32_t k = 0; k < setup->stages[s].stage.output_count; k++)
            borders[s] |= setup->stages[s].stage.outputs[k].differentiable;
    setup->flow = (struct weir__flow){.stage_count = count,
                                      .border_differentiable = borders,
                                      .no_backward = no_backward,
                                      .skip_count = setup->route_count,
                                      .skips = setup->routes,
                                      .recompute_late = setup->options.recompute_late,
                                      .replicas = weir__replicas(&setup->options) > 1};
    return WEIR_OK;
}

static int copy_all(struct weir__setup *setup, const struct weir_pipe_options *options,
                    struct weir_faults *faults) {
    struct weir__skip_decl *decls;
    uint32_t count = options->stage_count, decl_count;
    setup->stages = weir__pool_take(&setup->pool, count, sizeof *setup->stages);
    if (setup->stages == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = list_skips(setup, options, faults, &decls, &decl_count);
    if (status != WEIR_OK) return status;
    for (uint32_t s = 0; s < count; s++)
        if ((status = copy_stage(setup, options, s)) != WEIR_OK) return status;
    if ((status = copy_inputs(setup)) != WEIR_OK) return status;
    if ((status = measure_rows(setup)) != WEIR_OK) return status;
    if ((status = copy_texts(setup)) != WEIR_OK) return status;
    if ((status = take_routes(setup, decls, decl_count, faults)) != WEIR_OK) return status;
    if ((status = make_flow(setup)) != WEIR_OK) return status;
    if ((status = weir__ties_init(setup)) != WEIR_OK) return status;
    setup->options.stages = NULL; /* from here on setup->stages */
    for (uint32_t s = 0; s < count; s++) setup->stages[s].stage.ties = NULL; /* setup->ties */
    return WEIR_OK;
}

/* The skips' faults next to those that were found already, where the skips can be read. */
static void list_skip_faults(struct weir__setup *setup, const struct weir_pipe_options *options,
                             struct weir_faults *faults) {
    struct weir__skip_decl *decls;
    uint32_t count;
    for (uint32_t s = 0; s < options->stage_count; s++) {
        const struct weir_stage *stage = &options->stages[s];
        if (!weir__is_sized(stage)) return;
        for (uint32_t j = 0; j < stage->skip_count; j++)
            if (stage->skips == NULL || stage->skips[j].name == NULL) return;
    }
    (void)list_skips(setup, options, faults, &decls, &count);
}

/* ---- public ---- */

int weir__setup_init(struct weir__setup *setup, const struct weir_pipe_options *options,
                     struct weir_faults *faults) {
    memset(setup, 0, sizeof *setup);
    if (!weir__is_sized(options)) {
        weir_faults_add(faults, WEIR__BEGIN_WITH, "WEIR_PIPE_OPTIONS_INIT");
        return WEIR_ERR_ARGUMENT;
    }
    struct weir_faults own = WEIR_FAULTS_INIT;
    own.allocator = options->allocator;
    struct weir_faults *list = faults != NULL ? faults : &own;
    uint32_t before = list->count;
    weir__pool_init(&setup->pool, options->allocator);
    setup->options = *options;
    bool readable = weir__check_options(options, list);
    if (readable && list->count > before) list_skip_faults(setup, options, list);
    int status = list->count > before ? WEIR_ERR_CONFIG : copy_all(setup, options, list);
    weir_faults_clean_up(&own);
    if (status != WEIR_OK) weir__setup_clean_up(setup);
    return status;
}

void weir__setup_clean_up(struct weir__setup *setup) {
    weir__pool_clean_up(&setup->pool);
}

const struct weir_tensor *weir__setup_input(const struct weir__setup *setup, uint32_t stage,
                                            uint32_t input) {
    assert(input < weir__setup_input_count(setup, stage));
    const struct weir__stage_setup *at = &setup->stages[stage];
    if (input < at->border_count) return &setup->stages[stage - 1].stage.outputs[input];
    return &setup->options.inputs[at->entering[input - at->border_count]].tensor;
}

const char *weir__setup_stage_text(const struct weir__setup *setup, uint32_t stage, char text[96]) {
    assert(stage < setup->options.stage_count);
    return stage_text(setup->stages[stage].stage.name, stage, text);
}

int weir__setup_check_rows(const struct weir__setup *setup, int64_t rows,
                           struct weir_faults *faults) {
    bool fits = true;
    for (uint32_t k = 0; k < setup->options.input_count; k++)
        fits &= weir__check_rows(&setup->options, k, rows, faults);
    return fits ? WEIR_OK : WEIR_ERR_CONFIG;
}

static int parse_table(const struct weir_pipe_options *options,
                       const struct weir_table_options *want, struct weir_faults *faults,
                       struct weir_table **table) {
    struct weir_faults notes = WEIR_FAULTS_INIT;
    notes.allocator = options->allocator;
    int status =
        weir_table_parse(want, options->table_csv, options->table_csv_bytes, faults, &notes, table);
    for (uint32_t i = 0; options->log != NULL && i < notes.kept; i++)
        options->log(options->log_context, notes.lines[i]);
    weir_faults_clean_up(&notes);
    return status;
}

int weir__make_table(const struct weir_pipe_options *options, uint32_t replica, int64_t rows,
                     const bool *no_backward, bool whole, struct weir_faults *faults,
                     struct weir_table **table) {
    assert(rows >= 1 && options->chunks >= 1);
    struct weir_table_options want = WEIR_TABLE_OPTIONS_INIT;
    want.allocator = options->allocator;
    if (options->schedule != NULL) want.schedule = options->schedule;
    want.stages = options->stage_count;
    want.workers = options->workers;
    want.micro_batches = weir__groups_of(options, replica, rows).count;
    want.checkpoint = options->infer_only ? WEIR_CHECKPOINT_NEVER : options->checkpoint;
    want.stage_checkpoint = options->infer_only ? NULL : options->stage_checkpoint;
    want.no_backward = no_backward;
    want.recompute_late = options->recompute_late;
    want.whole_backward = whole;
    want.search = options->infer_only ? NULL : options->search; /* its limits are of training */
    if (options->table_csv != NULL) return parse_table(options, &want, faults, table);
    if (options->infer_only) weir__table_options_infer(&want);
    return weir_table_new(&want, faults, table);
}

/* Some stage that learns cannot part its backward. */
static bool is_whole(const struct weir__setup *setup) {
    for (uint32_t s = 0; s < setup->options.stage_count; s++) {
        const struct weir_stage_calls *calls = setup->stages[s].stage.calls;
        bool parts = calls->backward_input != NULL && calls->backward_weight != NULL;
        if (!parts && !weir__no_backward(setup->flow.no_backward, s)) return true;
    }
    return false;
}

int weir__setup_table(const struct weir__setup *setup, uint32_t replica, int64_t rows,
                      struct weir_faults *faults, struct weir_table **table) {
    assert(setup->flow.stage_count > 0);
    const struct weir_pipe_options *options = &setup->options;
    if (!weir__groups_check_rows(options, rows, faults)) return WEIR_ERR_CONFIG;
    int status = weir__make_table(options, replica, rows, setup->flow.no_backward, is_whole(setup),
                                  faults, table);
    if (status != WEIR_OK) return status;
    status = weir__table_check_flow(*table, &setup->flow, options->allocator, faults);
    if (status == WEIR_OK) return WEIR_OK;
    weir_table_destroy(*table);
    *table = NULL;
    return status;
}
