/* SPDX-License-Identifier: MIT */
/* Blocks and who touches them. Every action is asked, through its kind's masks, what it reads and
 * writes; the blocks' lifetimes follow from the answers. A crossing between workers whose memories
 * differ has two blocks and a copy, made by the reader's action that needs it first; a crossing in
 * one memory has one block. */
#include "pipe/lower/lifetimes.h"
#include "pipe/lower/tie_copies.h"

#include <string.h>

uint32_t *weir__lifetimes_none(struct weir__pool *pool, size_t count) {
    uint32_t *blocks = weir__pool_take(pool, count, sizeof *blocks);
    for (size_t i = 0; blocks != NULL && i < count; i++) blocks[i] = WEIR__NO_BLOCK;
    return blocks;
}

static bool crossing_init(struct weir__pool *pool, struct crossing *crossing, size_t blocks,
                          size_t copies) {
    crossing->blocks = weir__lifetimes_none(pool, blocks);
    crossing->copies = weir__lifetimes_none(pool, copies);
    return crossing->blocks != NULL && crossing->copies != NULL;
}

static size_t tensor_bytes(const struct weir_tensor *tensor, int64_t rows) {
    size_t bytes = 0;
    int status = weir__tensor_bytes(tensor, rows, &bytes);
    assert(status == WEIR_OK); /* the setup checked the largest row count */
    (void)status;
    return bytes;
}

/* ---- making blocks ---- */

static struct areas *areas_of(const struct builder *b, uint32_t s, uint32_t i) {
    assert(s < b->setup->flow.stage_count && i < b->m);
    return &b->areas[(size_t)s * b->m + i];
}

static bool lengthen(struct stretch *span, size_t bytes) {
    return weir__round_up(bytes, WEIR__ALIGNMENT, &bytes) &&
           weir__add(span->bytes, bytes, &span->bytes);
}

/* What no sum can be is refused when the block is made. */
static void append(struct stretch *span, size_t bytes) {
    if (bytes == 0) return;
    assert(span->bytes == SIZE_MAX || span->bytes % WEIR__ALIGNMENT == 0);
    if (span->bytes > 0) span->cuts[span->cut_count++] = span->bytes;
    if (!lengthen(span, bytes)) span->bytes = SIZE_MAX;
}

static void join(struct stretch *joined, const struct stretch *parts) {
    assert(joined->cut_count == 0);
    joined->bytes = 0;
    for (int life = WEIR_AREA_SAVED; life <= WEIR_AREA_SAVED_FOR_INPUT; life++) {
        size_t begin = joined->bytes;
        append(joined, parts[life].bytes);
        for (uint32_t i = 0; i < parts[life].cut_count; i++)
            joined->cuts[joined->cut_count++] = begin + parts[life].cuts[i];
    }
}

static bool make_layout(struct builder *b, const struct weir_stage_bytes *bytes,
                        struct layout *layout) {
    struct weir__pool *pool = &b->prepared->pool;
    const size_t first[WEIR__AREA_LIVES] = {bytes->saved, bytes->saved_for_input,
                                            bytes->left_for_weight};
    size_t most = 2 + 2 * (size_t)bytes->area_count;
    size_t *cuts = weir__pool_take(pool, (WEIR__AREA_LIVES + 1) * most, sizeof *cuts);
    layout->offsets = weir__pool_take(pool, bytes->area_count, sizeof *layout->offsets);
    if (cuts == NULL || layout->offsets == NULL) return false;
    for (int life = 0; life < WEIR__AREA_LIVES; life++) {
        layout->spans[life].cuts = cuts + life * most;
        append(&layout->spans[life], first[life]);
    }
    for (uint32_t a = 0; a < bytes->area_count; a++) {
        assert((unsigned)bytes->areas[a].life < WEIR__AREA_LIVES);
        struct stretch *span = &layout->spans[bytes->areas[a].life];
        layout->offsets[a] = span->bytes;
        append(span, bytes->areas[a].bytes);
    }
    layout->joined.cuts = cuts + WEIR__AREA_LIVES * most;
    join(&layout->joined, layout->spans);
    return true;
}

static uint32_t block_of(struct builder *b, uint32_t worker, const struct stretch *span) {
    struct weir__memory *memory = &b->prepared->memory;
    uint32_t block = weir__memory_block(memory, WEIR__BLOCK_ACTIVATIONS, worker, span->bytes);
    weir__memory_may_part(memory, block, span->cuts, span->cut_count);
    return block;
}

static bool make_areas(struct builder *b, uint32_t s, uint32_t i, uint32_t size) {
    assert(size < 2 && i < b->m);
    struct areas *areas = areas_of(b, s, i);
    const struct layout *layout = &b->layouts[2 * s + size];
    uint32_t worker = weir__lifetimes_worker_of(b, s), further = b->bytes[2 * s + size].area_count;
    *areas = (struct areas){.layout = layout};
    for (int life = 0; life < WEIR__AREA_LIVES; life++) areas->blocks[life] = WEIR__NO_BLOCK;
    if (b->prepared->infer || b->setup->stages[s].stage.no_backward) return true;
    if (b->split[(size_t)s * b->m + i]) {
        for (int life = 0; life < WEIR__AREA_LIVES; life++)
            areas->blocks[life] = block_of(b, worker, &layout->spans[life]);
    } else {
        uint32_t block = block_of(b, worker, &layout->joined);
        areas->blocks[WEIR_AREA_SAVED] = areas->blocks[WEIR_AREA_SAVED_FOR_INPUT] = block;
        areas->offsets[WEIR_AREA_SAVED_FOR_INPUT] = layout->spans[WEIR_AREA_SAVED].bytes;
    }
    struct weir__views *views = weir__prepared_views(b->prepared, s, i);
    if (further == 0) return true;
    views->areas = weir__pool_take(&b->prepared->pool, further, sizeof *views->areas);
    return views->areas != NULL;
}

/* Whether the caller's memory is not the worker's. */
static bool is_apart(const struct builder *b, uint32_t worker) {
    return weir__setup_device(b->setup, worker).memory != 0;
}

/* Whether the caller's memory is all that its outputs have. */
static bool on_request(const struct builder *b, uint32_t s) {
    bool last = s + 1 == b->setup->flow.stage_count;
    return last && b->setup->stages[s].stage.output_on_request &&
           !is_apart(b, weir__lifetimes_worker_of(b, s));
}

static bool make_stage(struct builder *b, uint32_t s) {
    assert(b->m > 0 && s < b->setup->flow.stage_count);
    struct weir__pool *pool = &b->prepared->pool;
    struct weir__memory *memory = &b->prepared->memory;
    const struct weir_stage *stage = &b->setup->stages[s].stage;
    bool last = s + 1 == b->setup->flow.stage_count;
    size_t count = (size_t)b->m * stage->output_count;
    size_t entering = (size_t)b->m * b->setup->stages[s].entering_count;
    if (!crossing_init(pool, &b->outputs[s], count, count) ||
        !crossing_init(pool, &b->grads[s], count, count) ||
        !crossing_init(pool, &b->entering[s], 0, entering))
        return false;
    for (uint32_t size = 0; size < 2; size++)
        if (!make_layout(b, &b->bytes[2 * s + size], &b->layouts[2 * s + size])) return false;
    for (uint32_t i = 0; i < b->m; i++) {
        bool ragged =
            i + 1 == b->m && weir__lifetimes_rows_of(b, i) != weir__lifetimes_rows_of(b, 0);
        for (uint32_t k = 0; k < stage->output_count; k++) {
            size_t bytes = on_request(b, s)
                               ? 0
                               : tensor_bytes(&stage->outputs[k], weir__lifetimes_rows_of(b, i));
            size_t at = (size_t)i * stage->output_count + k;
            b->outputs[s].blocks[at] = weir__memory_block(memory, WEIR__BLOCK_BORDERS,
                                                          weir__lifetimes_worker_of(b, s), bytes);
            if (last || !stage->outputs[k].differentiable || b->prepared->infer) continue;
            b->grads[s].blocks[at] = weir__memory_block(memory, WEIR__BLOCK_BORDERS,
                                                        weir__lifetimes_worker_of(b, s + 1), bytes);
        }
        if (!make_areas(b, s, i, ragged)) return false;
    }
    return true;
}

static bool make_route(struct builder *b, uint32_t r) {
    struct weir__pool *pool = &b->prepared->pool;
    struct weir__memory *memory = &b->prepared->memory;
    const struct weir_skip_route *route = &b->setup->routes[r];
    size_t readers = (size_t)b->m * route->reader_count;
    assert(route->reader_count > 0 && route->source < route->readers[0]);
    if (!crossing_init(pool, &b->values[r], b->m, readers) ||
        !crossing_init(pool, &b->sums[r], readers, readers))
        return false;
    for (uint32_t i = 0; i < b->m; i++) {
        size_t bytes = tensor_bytes(&b->setup->route_tensors[r], weir__lifetimes_rows_of(b, i));
        b->values[r].blocks[i] = weir__memory_block(
            memory, WEIR__BLOCK_PORTALS, weir__lifetimes_worker_of(b, route->source), bytes);
        if (!route->differentiable || b->prepared->infer) continue;
        for (uint32_t k = 0; k < route->reader_count; k++)
            b->sums[r].blocks[(size_t)i * route->reader_count + k] =
                weir__memory_block(memory, WEIR__BLOCK_PORTALS,
                                   weir__lifetimes_worker_of(b, route->readers[k]), bytes);
    }
    return true;
}

/* Sums of groups that go on in the next step. */
static bool make_lasting_groups(struct builder *b, uint32_t s) {
    struct weir__lasting *lasting = &b->prepared->lasting[s];
    const struct weir_pipe_options *options = &b->setup->options;
    uint32_t count = weir__gradient_groups(options) / weir__replicas(options);
    if (!options->accumulates || count == 1 || lasting->gradients == WEIR__NO_BLOCK) return true;
    uint32_t *groups = weir__pool_take(&b->prepared->pool, count, sizeof *groups);
    if (groups == NULL) return false;
    groups[0] = lasting->gradients;
    for (uint32_t j = 1; j < count; j++)
        groups[j] = weir__memory_block(&b->prepared->memory, WEIR__BLOCK_GRADIENTS,
                                       weir__lifetimes_worker_of(b, s),
                                       b->setup->stages[s].stage.gradient_bytes);
    lasting->groups = groups;
    return true;
}

/* First of all blocks, and in one order: so they lie at the beginning of the arenas, at the same
 * offsets in every prepared row count. */
static bool make_lasting(struct builder *b) {
    struct weir__row_plan *prepared = b->prepared;
    struct weir__memory *memory = &prepared->memory;
    uint32_t count = b->setup->flow.stage_count;
    prepared->lasting = weir__pool_take(&prepared->pool, count, sizeof *prepared->lasting);
    prepared->lasting_bytes =
        weir__pool_take(&prepared->pool, prepared->table->worker_count, sizeof(size_t));
    if (prepared->lasting == NULL || prepared->lasting_bytes == NULL) return false;
    assert(memory->block_count == 0);
    for (uint32_t s = 0; s < count; s++) {
        const struct weir_stage *stage = &b->setup->stages[s].stage;
        bool trains = !b->setup->options.infer_only;
        uint32_t worker = weir__lifetimes_worker_of(b, s);
        prepared->lasting[s] = (struct weir__lasting){
            weir__memory_block(memory, WEIR__BLOCK_PARAMETERS, worker, stage->parameter_bytes),
            weir__memory_block(memory, WEIR__BLOCK_GRADIENTS, worker,
                               trains ? stage->gradient_bytes : 0),
            weir__memory_block(memory, WEIR__BLOCK_OPTIMIZER, worker,
                               trains ? stage->optimizer_bytes : 0),
            weir__memory_block(memory, WEIR__BLOCK_WORKSPACE, worker, stage->state_bytes), NULL};
        if (!make_lasting_groups(b, s)) return false;
    }
    for (uint32_t i = 0; i < memory->block_count; i++)
        prepared->lasting_bytes[memory->blocks[i].worker] += memory->blocks[i].bytes;
    return true;
}

/* ---- crossings ---- */

static bool must_copy(const struct builder *b, uint32_t from_worker, uint32_t to_worker) {
    assert(from_worker < b->prepared->table->worker_count);
    assert(to_worker < b->prepared->table->worker_count);
    if (from_worker == to_worker) return false;
    return b->setup->options.link == WEIR_LINK_COPY ||
           !weir__setup_shares(b->setup, from_worker, to_worker, b->prepared->table->worker_count);
}

static bool is_of_ranks(const struct builder *b, uint32_t worker, uint32_t from) {
    uint32_t workers = b->prepared->table->worker_count;
    return from != WEIR__FROM_CALLER &&
           weir__setup_rank(b->setup, worker, workers) != weir__setup_rank(b->setup, from, workers);
}

/* The lane of what comes `from` there; copies within a rank between devices whose work is done at
 * once need none. */
static void find_lane(struct builder *b, uint32_t worker, uint32_t from, uint32_t *lane) {
    struct weir__row_plan *prepared = b->prepared;
    bool caller = from == WEIR__FROM_CALLER, of_ranks = is_of_ranks(b, worker, from);
    assert(worker < prepared->table->worker_count && worker != from);
    *lane = WEIR__NO_LANE;
    if (!of_ranks && weir__setup_device(b->setup, worker).synchronous &&
        (caller || weir__setup_device(b->setup, from).synchronous))
        return;
    for (*lane = 0; *lane < prepared->lane_count; ++*lane)
        if (prepared->lanes[*lane].worker == worker && prepared->lanes[*lane].from == from) return;
    bool apart = !caller && !of_ranks && is_apart(b, worker) && is_apart(b, from);
    const struct weir__lane added = {.worker = worker,
                                     .from = from,
                                     .of_ranks = of_ranks,
                                     .may_hop = apart,
                                     .hops = apart && weir__setup_hops(b->setup, worker, from)};
    (void)weir__pool_add(&prepared->pool, &prepared->lanes, &prepared->lane_count,
                         &prepared->lane_capacity, &added, sizeof added);
}

void weir__lifetimes_copy(struct builder *b, uint32_t worker,
                          const struct weir__prepared_copy *copy) {
    struct weir__row_plan *prepared = b->prepared;
    bool caller = copy->from_block == WEIR__NO_BLOCK;
    assert(copy->action < prepared->table->action_count && copy->bytes > 0);
    assert(!caller || copy->input < b->setup->options.input_count);
    uint32_t from = caller ? WEIR__FROM_CALLER : prepared->memory.blocks[copy->from_block].worker;
    struct weir__prepared_copy added = *copy;
    find_lane(b, worker, from, &added.lane);
    (void)weir__pool_add(&prepared->pool, &prepared->copies, &prepared->copy_count,
                         &prepared->copy_capacity, &added, sizeof added);
}

/* Room in the staging that a worker's rows pass through from or to the caller. */
static size_t take_staging(struct builder *b, uint32_t worker, size_t bytes) {
    assert(worker < b->prepared->table->worker_count);
    size_t at = b->prepared->staging_bytes[worker], rounded;
    assert(at % WEIR__ALIGNMENT == 0);
    bool fits = weir__round_up(bytes, WEIR__ALIGNMENT, &rounded) &&
                weir__add(at, rounded, &b->prepared->staging_bytes[worker]);
    if (!fits) b->prepared->memory.status = WEIR_ERR_OVERFLOW;
    return at;
}

/* The block that `action` on `worker` reads: the producer's, or a copy of its own, which the first
 * reader makes. */
static uint32_t arrive(struct builder *b, uint32_t action, uint32_t worker, uint32_t from,
                       uint32_t *copy) {
    struct weir__memory *memory = &b->prepared->memory;
    if (from == WEIR__NO_BLOCK || memory->status != WEIR_OK) return WEIR__NO_BLOCK;
    assert(from < memory->block_count && *copy != from);
    if (!must_copy(b, memory->blocks[from].worker, worker)) {
        weir__memory_use(memory, from, action);
        return from;
    }
    if (*copy == WEIR__NO_BLOCK) {
        size_t bytes = memory->blocks[from].bytes;
        enum weir__block_class class_of = memory->blocks[from].class_of;
        *copy = weir__memory_block(memory, class_of, worker, bytes);
        weir__memory_use(memory, from, action);
        struct weir__prepared_copy added = {.action = action,
                                            .made = WEIR__NO_ACTION,
                                            .from_block = from,
                                            .to_block = *copy,
                                            .bytes = bytes};
        weir__lifetimes_copy(b, worker, &added);
    }
    weir__memory_use(memory, *copy, action);
    return *copy;
}

static void point(struct builder *b, void **where, uint32_t block) {
    weir__prepared_point(b->prepared, where, block, 0);
}

/* What comes out of a portal of the micro-batch. */
static void point_home(struct builder *b, uint32_t i, uint32_t portal, uint32_t block) {
    point(b, &b->prepared->bound.trackers[i].homes[portal], block);
}

/* ---- what each effect touches ---- */

/* The rows of pipe input `k` that a micro-batch gets, in the caller's memory. */
static void slice_input(const struct builder *b, uint32_t k, uint32_t i, size_t *offset,
                        size_t *bytes) {
    assert(k < b->setup->options.input_count && i < b->m);
    const struct weir_input *input = &b->setup->options.inputs[k];
    const struct weir__views *views = weir__prepared_views(b->prepared, 0, i);
    size_t row_bytes = b->setup->input_row_bytes[k];
    *offset = input->replicated ? 0 : (size_t)(views->row_first * input->rows_factor) * row_bytes;
    *bytes = input->replicated ? row_bytes : (size_t)(views->rows * input->rows_factor) * row_bytes;
    assert(*bytes > 0);
}

/* What the caller brings, where the device cannot read it: its own copy, of a replicated input one
 * for all micro-batches. */
static void read_entering(struct builder *b, const struct touching *t, uint32_t e) {
    assert(e < t->at->entering_count && is_apart(b, t->worker));
    struct weir__memory *memory = &b->prepared->memory;
    uint32_t k = t->at->entering[e];
    uint32_t i = b->setup->options.inputs[k].replicated ? 0 : t->i;
    uint32_t *block = &b->entering[t->stage].copies[(size_t)i * t->at->entering_count + e];
    if (*block == WEIR__NO_BLOCK) {
        struct weir__prepared_copy copy = {
            .action = t->action, .made = WEIR__NO_ACTION, .from_block = WEIR__NO_BLOCK, .input = k};
        slice_input(b, k, i, &copy.input_offset, &copy.bytes);
        *block = weir__memory_block(memory, WEIR__BLOCK_BORDERS, t->worker, copy.bytes);
        copy.to_block = *block;
        copy.staging = take_staging(b, t->worker, copy.bytes);
        if (*block != WEIR__NO_BLOCK) weir__lifetimes_copy(b, t->worker, &copy);
    }
    weir__memory_use(memory, *block, t->action);
    if (t->first) point(b, &t->views->inputs[t->at->border_count + e].data, *block);
}

static void read_inputs(struct builder *b, const struct touching *t, uint64_t mask) {
    assert(t->stage > 0 || t->at->border_count == 0);
    for (uint32_t k = 0; k < t->at->border_count; k++) {
        if (!weir__input_bit(mask, k)) continue;
        struct crossing *from = &b->outputs[t->stage - 1];
        size_t at = (size_t)t->i * t->at->border_count + k;
        uint32_t block = arrive(b, t->action, t->worker, from->blocks[at], &from->copies[at]);
        if (t->first) point(b, &t->views->inputs[k].data, block);
    }
    for (uint32_t e = 0; is_apart(b, t->worker) && e < t->at->entering_count; e++)
        if (weir__input_bit(mask, t->at->border_count + e)) read_entering(b, t, e);
}

/* One copy per reading worker: the first reader on that worker owns the entry. */
static uint32_t *value_copy(struct builder *b, uint32_t r, uint32_t i, uint32_t worker) {
    const struct weir_skip_route *route = &b->setup->routes[r];
    uint32_t k = 0;
    while (weir__lifetimes_worker_of(b, route->readers[k]) != worker) k++;
    assert(k < route->reader_count);
    return &b->values[r].copies[(size_t)i * route->reader_count + k];
}

static void read_skips(struct builder *b, const struct touching *t, bool kept_only, uint64_t mask) {
    for (uint32_t j = 0; j < t->at->stage.skip_count; j++) {
        const struct weir_skip_use *use = &t->at->stage.skips[j];
        uint32_t r = t->at->skip_routes[j];
        if (use->verb == WEIR_SKIP_STASH || r == WEIR__NO_ROUTE) continue;
        if (kept_only && !(use->kept && weir__input_bit(mask, j))) continue;
        uint32_t block = arrive(b, t->action, t->worker, b->values[r].blocks[t->i],
                                value_copy(b, r, t->i, t->worker));
        uint32_t at = b->route_first[r] + t->at->skip_readers[j];
        if (t->first) point_home(b, t->i, b->portal_of[at], block);
    }
}

/* Pipe outputs and gradients of pipe inputs that a device makes in a memory of its own. */
static void give_back(struct builder *b, const struct touching *t,
                      const struct weir__return *back) {
    assert(is_apart(b, t->worker) && back->bytes > 0);
    struct weir__row_plan *prepared = b->prepared;
    struct weir__return added = *back;
    added.staging = take_staging(b, t->worker, back->bytes);
    (void)weir__pool_add(&prepared->pool, &prepared->returns, &prepared->return_count,
                         &prepared->return_capacity, &added, sizeof added);
}

static void give_back_output(struct builder *b, const struct touching *t, uint32_t k) {
    assert(t->stage + 1 == b->setup->flow.stage_count);
    size_t row_bytes = b->setup->output_row_bytes[k];
    struct weir__return back = {.where = &t->views->output_places[k],
                                .index = k,
                                .offset = (size_t)t->views->row_first * row_bytes,
                                .bytes = (size_t)t->views->rows * row_bytes};
    give_back(b, t, &back);
}

static void write_outputs(struct builder *b, const struct touching *t) {
    for (uint32_t k = 0; k < t->at->stage.output_count; k++) {
        size_t at = (size_t)t->i * t->at->stage.output_count + k;
        uint32_t block = b->outputs[t->stage].blocks[at];
        void **where = t->views->output_places != NULL ? &t->views->output_places[k]
                                                       : &t->views->outputs[k].data;
        weir__memory_use(&b->prepared->memory, block, t->action);
        point(b, where, block);
        if (t->views->output_places != NULL && is_apart(b, t->worker)) give_back_output(b, t, k);
    }
}

static void write_skips(struct builder *b, const struct touching *t) {
    for (uint32_t j = 0; j < t->at->stage.skip_count; j++) {
        uint32_t r = t->at->skip_routes[j];
        if (t->at->stage.skips[j].verb != WEIR_SKIP_STASH || r == WEIR__NO_ROUTE) continue;
        assert(b->setup->routes[r].source == t->stage);
        weir__memory_use(&b->prepared->memory, b->values[r].blocks[t->i], t->action);
        point(b, &t->views->skips[j].data, b->values[r].blocks[t->i]);
    }
}

/* I and B point the views of gradients; W, which comes behind I, finds them so. */
static void read_output_grads(struct builder *b, const struct touching *t, uint64_t mask,
                              bool points) {
    for (uint32_t k = 0; k < t->at->stage.output_count; k++) {
        if (!weir__input_bit(mask, k)) continue;
        size_t at = (size_t)t->i * t->at->stage.output_count + k;
        struct crossing *from = &b->grads[t->stage];
        uint32_t block = arrive(b, t->action, t->worker, from->blocks[at], &from->copies[at]);
        if (points) point(b, &t->views->output_grads[k].data, block);
    }
}

/* Gradients of what the caller brought: held during the action alone. */
static void write_entering_grad(struct builder *b, const struct touching *t, uint32_t e) {
    assert(e < t->at->entering_count && is_apart(b, t->worker));
    struct weir__memory *memory = &b->prepared->memory;
    uint32_t k = t->at->entering[e];
    if (!b->setup->options.inputs[k].tensor.differentiable) return;
    struct weir__return back = {.where = &t->views->grad_places[e], .gradient = true, .index = k};
    slice_input(b, k, t->i, &back.offset, &back.bytes);
    uint32_t block = weir__memory_block(memory, WEIR__BLOCK_BORDERS, t->worker, back.bytes);
    weir__memory_use(memory, block, t->action);
    point(b, back.where, block);
    if (block != WEIR__NO_BLOCK) give_back(b, t, &back);
}

static void write_input_grads(struct builder *b, const struct touching *t) {
    assert(t->stage > 0 || t->at->border_count == 0);
    for (uint32_t e = 0; is_apart(b, t->worker) && e < t->at->entering_count; e++)
        write_entering_grad(b, t, e);
    for (uint32_t k = 0; k < t->at->border_count; k++) {
        uint32_t block = b->grads[t->stage - 1].blocks[(size_t)t->i * t->at->border_count + k];
        weir__memory_use(&b->prepared->memory, block, t->action);
        point(b, &t->views->input_grads[k].data, block);
    }
}

static void read_skip_grads(struct builder *b, const struct touching *t, uint64_t mask,
                            bool points) {
    for (uint32_t j = 0; j < t->at->stage.skip_count; j++) {
        uint32_t r = t->at->skip_routes[j];
        if (r == WEIR__NO_ROUTE || !weir__input_bit(mask, j)) continue;
        const struct weir_skip_route *route = &b->setup->routes[r];
        bool stash = t->at->stage.skips[j].verb == WEIR_SKIP_STASH;
        uint32_t k = stash ? 0 : t->at->skip_readers[j] + 1;
        assert(k <= route->reader_count);
        if (k == route->reader_count) continue; /* the last reader: nothing comes in */
        size_t at = (size_t)t->i * route->reader_count + k;
        uint32_t block =
            arrive(b, t->action, t->worker, b->sums[r].blocks[at], &b->sums[r].copies[at]);
        if (points) point_home(b, t->i, b->grad_portal_of[b->route_first[r] + k], block);
    }
}

static void write_skip_grads(struct builder *b, const struct touching *t) {
    for (uint32_t j = 0; j < t->at->stage.skip_count; j++) {
        uint32_t r = t->at->skip_routes[j];
        if (r == WEIR__NO_ROUTE || t->at->stage.skips[j].verb == WEIR_SKIP_STASH) continue;
        assert(t->at->skip_readers[j] < b->setup->routes[r].reader_count);
        size_t at = (size_t)t->i * b->setup->routes[r].reader_count + t->at->skip_readers[j];
        weir__memory_use(&b->prepared->memory, b->sums[r].blocks[at], t->action);
        point(b, &t->views->skip_grads_out[j].data, b->sums[r].blocks[at]);
    }
}

/* Pointed to by the first that touches them. */
static void point_areas(struct builder *b, const struct touching *t, int life, size_t first,
                        void **where) {
    struct areas *areas = areas_of(b, t->stage, t->i);
    const struct weir_stage_bytes *bytes = &b->bytes[2 * t->stage + t->size];
    uint32_t block = areas->blocks[life];
    size_t begin = areas->offsets[life];
    assert(block != WEIR__NO_BLOCK && areas->layout != NULL);
    if (areas->pointed[life]) return;
    areas->pointed[life] = true;
    if (first > 0) weir__prepared_point(b->prepared, where, block, begin);
    for (uint32_t a = 0; a < bytes->area_count; a++)
        if ((int)bytes->areas[a].life == life && bytes->areas[a].bytes > 0)
            weir__prepared_point(b->prepared, &t->views->areas[a], block,
                                 begin + areas->layout->offsets[a]);
}

static void touch_areas(struct builder *b, const struct touching *t, uint32_t effects) {
    static const uint32_t effect_of[WEIR__AREA_LIVES] = {WEIR__SAVED, WEIR__SAVED_FOR_INPUT,
                                                         WEIR__WEIGHT_INPUTS};
    const struct weir_stage_bytes *bytes = &b->bytes[2 * t->stage + t->size];
    const size_t first[WEIR__AREA_LIVES] = {bytes->saved, bytes->saved_for_input,
                                            bytes->left_for_weight};
    void **const where[WEIR__AREA_LIVES] = {&t->views->saved, &t->views->saved_for_input,
                                            &t->views->left_for_weight};
    const struct areas *areas = areas_of(b, t->stage, t->i);
    for (int life = 0; life < WEIR__AREA_LIVES; life++) {
        if (!(effects & effect_of[life]) || areas->blocks[life] == WEIR__NO_BLOCK) continue;
        if (areas->offsets[life] == 0) /* else the same block */
            weir__memory_use(&b->prepared->memory, areas->blocks[life], t->action);
        point_areas(b, t, life, first[life], where[life]);
    }
}

/* What a backward needs, it may also read from the border; W only what the stage says. */
static void read_kept(struct builder *b, const struct touching *t, bool weight) {
    static const struct weir_weight_reads all = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    const struct weir_stage *stage = &t->at->stage;
    const struct weir_weight_reads *mask = weight ? &stage->weight_reads : &all;
    read_inputs(b, t, stage->inputs_kept & mask->inputs);
    read_skips(b, t, true, mask->skips);
    read_output_grads(b, t, mask->output_grads, !weight);
    read_skip_grads(b, t, mask->skip_grads, !weight);
}

static void touch(struct builder *b, const struct touching *t, const struct weir__kind_facts *kind,
                  enum weir_phase phase) {
    const struct weir_stage *stage = &t->at->stage;
    if (kind->reads & WEIR__INPUTS)
        read_inputs(b, t, phase == WEIR_RECOMPUTE ? stage->inputs_recomputed : UINT64_MAX);
    if (kind->reads & WEIR__SKIPS_IN) read_skips(b, t, false, UINT64_MAX);
    if (kind->writes & WEIR__OUTPUTS) write_outputs(b, t);
    if (kind->writes & WEIR__SKIPS_OUT) write_skips(b, t);
    bool saves = phase != WEIR_FORWARD_CHECKPOINT && phase != WEIR_INFER;
    touch_areas(b, t, kind->reads | (saves ? kind->writes : 0));
    if (kind->reads & WEIR__SAVED) read_kept(b, t, (kind->reads & WEIR__WEIGHT_INPUTS) != 0);
    if (kind->writes & WEIR__INPUT_GRADS) write_input_grads(b, t);
    if (kind->writes & WEIR__SKIP_GRADS_OUT) write_skip_grads(b, t);
}

/* ---- all actions ---- */

static void visit(struct builder *b, uint32_t a) {
    struct weir__call *call = &b->prepared->calls[a];
    const struct weir__kind_facts *kind = &weir__kinds[call->action.kind];
    uint32_t s = call->action.stage, i = call->action.micro_batch;
    assert(s < b->setup->flow.stage_count && (i < b->m || !kind->per_micro_batch));
    assert(kind->per_micro_batch == (call->views != NULL));
    bool ragged = kind->per_micro_batch && i + 1 == b->m &&
                  weir__lifetimes_rows_of(b, i) != weir__lifetimes_rows_of(b, 0);
    const size_t *bytes = b->bytes[2 * s + ragged].workspace;
    uint32_t workspace = weir__memory_block(&b->prepared->memory, WEIR__BLOCK_WORKSPACE,
                                            weir__lifetimes_worker_of(b, s),
                                            call->run != NULL ? bytes[call->phase] : 0);
    weir__memory_use(&b->prepared->memory, workspace, a);
    point(b, &b->prepared->bound.workspaces[a], workspace);
    call->copy_begin = b->prepared->copy_count;
    call->return_begin = b->prepared->return_count;
    call->portal_begin = b->prepared->move_count;
    if (kind->per_micro_batch) {
        struct touching t = {a,           s,
                             i,           weir__lifetimes_worker_of(b, s),
                             ragged,      &b->setup->stages[s],
                             call->views, (kind->writes & WEIR__OUTPUTS) != 0};
        touch(b, &t, kind, call->phase);
        weir__lifetimes_moves(b, &t, kind);
    }
    weir__ties_copy(b, a);
    call->copy_end = b->prepared->copy_count;
    call->return_end = b->prepared->return_count;
    call->portal_end = b->prepared->move_count;
}

static bool builder_init(struct builder *b) {
    assert(b->m > 0 && b->prepared->memory.block_count == 0);
    struct weir__pool *pool = &b->prepared->pool;
    uint32_t stages = b->setup->flow.stage_count, routes = b->setup->route_count;
    b->outputs = weir__pool_take(pool, stages, sizeof *b->outputs);
    b->grads = weir__pool_take(pool, stages, sizeof *b->grads);
    b->entering = weir__pool_take(pool, stages, sizeof *b->entering);
    b->layouts = weir__pool_take(pool, 2 * (size_t)stages, sizeof *b->layouts);
    b->areas = weir__pool_take(pool, (size_t)stages * b->m, sizeof *b->areas);
    b->values = weir__pool_take(pool, routes, sizeof *b->values);
    b->sums = weir__pool_take(pool, routes, sizeof *b->sums);
    bool *checkpointed = weir__pool_take(pool, (size_t)stages * b->m, sizeof *checkpointed);
    bool *split = weir__pool_take(pool, (size_t)stages * b->m, sizeof *split);
    uint32_t workers = b->prepared->table->worker_count;
    b->prepared->staging_bytes = weir__pool_take(pool, workers, sizeof(size_t));
    if (pool->failed) return false;
    const struct weir_table *table = b->prepared->table;
    for (uint32_t a = 0; a < table->action_count; a++) {
        const struct weir_action *action = &table->actions[a];
        size_t at = (size_t)action->stage * b->m + action->micro_batch;
        if (weir__pass_of(action->kind) == WEIR__PASS_RECOMPUTE) checkpointed[at] = true;
        if (weir__reads(action->kind, WEIR__WEIGHT_INPUTS)) split[at] = true;
    }
    b->checkpointed = checkpointed;
    b->split = split;
    bool made = make_lasting(b);
    for (uint32_t s = 0; made && s < stages; s++) made = make_stage(b, s);
    for (uint32_t r = 0; made && r < routes; r++) made = make_route(b, r);
    return made && weir__ties_begin(b) && weir__lifetimes_trackers(b);
}

int weir__prepared_lifetimes(struct weir__row_plan *prepared, const struct weir__setup *setup,
                             const struct weir_stage_bytes *bytes) {
    assert(prepared->calls != NULL && prepared->bound.views != NULL && bytes != NULL);
    struct builder b = {
        .prepared = prepared, .setup = setup, .bytes = bytes, .m = prepared->micro_batch_count};
    if (!builder_init(&b)) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t a = 0; a < prepared->table->action_count; a++) visit(&b, a);
    weir__prepared_sums(prepared, setup);
    if (setup->flow.replicas && !prepared->infer) weir__prepared_arrivals(prepared, setup);
    if (prepared->memory.status != WEIR_OK) return prepared->memory.status;
    return prepared->pool.failed ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK;
}
