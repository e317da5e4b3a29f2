/* SPDX-License-Identifier: MIT */
/* What of a stage's flat arrays is this replica's: sections and slices as weir_shared.h has them,
 * and the spans that norm and update go through. Norms are sums of blocks of parameters, which
 * depend on neither partition nor replicas; slices end at blocks. */
#include "net/run/net.h"

/** Without groups a parameter is one block. */
static uint64_t block_count(const struct weir__net_stage *stage) {
    size_t bytes = weir_dtype_bytes(weir__exact_dtype(stage->network->dtype));
    return stage->share.groups > 1 ? WEIR_SLICE_BLOCK / bytes : UINT64_MAX;
}

static size_t bytes_of(const struct weir__net_stage *stage,
                       const struct weir__parameter_decl *parameter) {
    return (size_t)parameter->count * weir_dtype_bytes(weir__exact_dtype(stage->network->dtype));
}

/** The stage's i-th parameter. */
static const struct weir__parameter_decl *parameter_of(const struct weir__net_stage *stage,
                                                       uint32_t i) {
    assert(i < stage->compiled->parameter_count);
    return &stage->network->parameters[stage->compiled->parameter_first + i];
}

/* ---- sections ---- */

/** Whether gradients of several uses are added up to the parameter's: all need equal slices. */
static bool has_uses(const struct weir__net_stage *stage, uint32_t i) {
    const struct weir__graph *graph = &stage->compiled->graph;
    uint32_t uses = 0;
    for (uint32_t k = 0; k < graph->accumulator_count; k++)
        uses += graph->accumulators[k].parameter == stage->compiled->parameter_first + i;
    return uses > 1 || weir__parameter_is_shared(parameter_of(stage, i));
}

/** Adds to the section that is open, or opens one: its places where slices may end. */
static void lengthen(struct weir__net_stage *stage, struct weir_section *open, size_t *cuts,
                     const struct weir__parameter_decl *parameter) {
    size_t bytes = bytes_of(stage, parameter), begin = parameter->offset - open->offset;
    assert(parameter->offset >= open->offset);
    for (size_t at = 0; at < bytes; at += WEIR_SLICE_BLOCK)
        if (begin + at > 0) cuts[open->cut_count++] = begin + at;
    open->bytes = begin + bytes;
}

static void add_section(struct weir__net_stage *stage, const struct weir_section *section) {
    if (section->bytes > 0) stage->sections[stage->section_count++] = *section;
}

static size_t most_cuts(const struct weir__net_stage *stage) {
    size_t most = 0;
    for (uint32_t i = 0; i < stage->compiled->parameter_count; i++)
        most += bytes_of(stage, parameter_of(stage, i)) / WEIR_SLICE_BLOCK + 1;
    return most;
}

/** Moments of one batch norm, which one replica has whole: it moves the statistics that lie there.
 */
static struct weir_section moments_of(const struct weir__net_stage *stage,
                                      const struct weir__accumulator *use) {
    static const size_t none;
    size_t number = weir_dtype_bytes(weir__exact_dtype(stage->network->dtype));
    return (struct weir_section){
        .offset = use->offset, .bytes = use->count * number, .parameters = true, .cuts = &none};
}

bool weir__stage_moves(const struct weir__net_stage *stage,
                       const struct weir__accumulator *moments) {
    size_t begin, end;
    if (stage->share.replicas == 1) return true;
    const struct weir_section section = moments_of(stage, moments);
    weir_section_slice(&section, stage->share.replicas, stage->share.replica, &begin, &end);
    return begin < end;
}

/** Runs of parameters with one use each, and by themselves those with more, and further uses. */
static int make_sections(struct weir__net_stage *stage, struct weir__network *network) {
    const struct weir__graph *graph = &stage->compiled->graph;
    uint32_t parameters = stage->compiled->parameter_count;
    size_t most = 2 * (size_t)parameters + graph->accumulator_count + 1;
    stage->sections = weir__pool_take(&network->pool, most, sizeof stage->sections[0]);
    size_t *cuts = weir__pool_take(&network->pool, most_cuts(stage), sizeof *cuts);
    if (stage->sections == NULL || cuts == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    struct weir_section open = {0};
    for (uint32_t i = 0; i < parameters; i++) {
        const struct weir__parameter_decl *parameter = parameter_of(stage, i);
        bool alone = !parameter->frozen && has_uses(stage, i);
        if (parameter->frozen) continue;
        if (alone || open.bytes == 0) {
            add_section(stage, &open);
            cuts += open.cut_count;
            open = (struct weir_section){
                .offset = parameter->offset, .parameters = true, .cuts = alone ? NULL : cuts};
        }
        if (!alone) lengthen(stage, &open, cuts, parameter);
        if (!alone) continue;
        open.bytes = bytes_of(stage, parameter);
        add_section(stage, &open);
        open = (struct weir_section){0};
    }
    add_section(stage, &open);
    for (uint32_t k = 0; k < graph->accumulator_count; k++) {
        const struct weir__accumulator *use = &graph->accumulators[k];
        const struct weir__parameter_decl *parameter = &network->parameters[use->parameter];
        const struct weir_section moments = moments_of(stage, use);
        struct weir_section further = {.offset = use->offset, .bytes = bytes_of(stage, parameter)};
        if (parameter->running != NULL)
            add_section(stage, &moments);
        else if (use->offset != parameter->offset)
            add_section(stage, &further);
    }
    return WEIR_OK;
}

/** The section that a parameter lies in. */
static const struct weir_section *section_of(const struct weir__net_stage *stage,
                                             const struct weir__parameter_decl *parameter) {
    uint32_t k = 0;
    while (parameter->offset - stage->sections[k].offset >= stage->sections[k].bytes) k++;
    assert(k < stage->section_count && stage->sections[k].parameters);
    return &stage->sections[k];
}

void weir__stage_slice(const struct weir__net_stage *stage,
                       const struct weir__parameter_decl *parameter, uint32_t replica,
                       size_t *begin, size_t *end) {
    size_t bytes = bytes_of(stage, parameter);
    *begin = 0;
    *end = bytes;
    if (stage->share.replicas == 1) return;
    const struct weir_section *section = section_of(stage, parameter);
    size_t at = parameter->offset - section->offset;
    weir_section_slice(section, stage->share.replicas, replica, begin, end);
    *begin = *begin < at ? 0 : *begin - at < bytes ? *begin - at : bytes;
    *end = *end < at ? 0 : *end - at < bytes ? *end - at : bytes;
}

size_t weir__stage_optimizer_at(const struct weir__net_stage *stage,
                                const struct weir__parameter_decl *parameter) {
    size_t at = 0, begin, end, rounded;
    if (stage->share.replicas == 1) return parameter->offset;
    const struct weir_section *of = section_of(stage, parameter);
    for (const struct weir_section *section = stage->sections; section != of; section++) {
        weir_section_slice(section, stage->share.replicas, stage->share.replica, &begin, &end);
        (void)weir__round_up(end - begin, WEIR__CACHE_LINE,
                             &rounded); /* the whole is not too long */
        at += rounded;
    }
    weir_section_slice(of, stage->share.replicas, stage->share.replica, &begin, &end);
    size_t in_section = parameter->offset - of->offset;
    return at + (in_section > begin ? in_section - begin : 0);
}

static size_t optimizer_bytes(const struct weir__net_stage *stage) {
    size_t sum = 0, begin, end, rounded;
    if (stage->share.replicas == 1) return stage->compiled->trainable_bytes;
    for (uint32_t k = 0; k < stage->section_count; k++) {
        bool learns = stage->sections[k].offset < stage->compiled->trainable_bytes;
        if (!stage->sections[k].parameters || !learns) continue;
        weir_section_slice(&stage->sections[k], stage->share.replicas, stage->share.replica, &begin,
                           &end);
        (void)weir__round_up(end - begin, WEIR__CACHE_LINE, &rounded);
        sum += rounded;
    }
    return sum;
}

/* ---- spans ---- */

static bool is_own(const struct weir__parameter_decl *parameter) {
    return !parameter->frozen && parameter->original == WEIR__NONE;
}

/** The parameter's blocks; the squares of those in the slice are this replica's. */
static void add_pieces(struct weir__net_stage *stage, uint32_t i) {
    const struct weir__parameter_decl *parameter = parameter_of(stage, i);
    size_t number = weir_dtype_bytes(weir__exact_dtype(stage->network->dtype)), begin, end;
    uint64_t block = block_count(stage), left = parameter->count;
    weir__stage_slice(stage, parameter, stage->share.replica, &begin, &end);
    for (uint64_t at = 0; left > 0; stage->norm_count++) {
        uint64_t count = left < block ? left : block;
        if (at * number >= begin && at * number < end)
            stage->pieces[stage->piece_count++] =
                (struct weir__span){.first = parameter->offset / number + at,
                                    .count = count,
                                    .result = stage->norm_count};
        at += count;
        left -= count;
    }
}

/** What of the stage's own parameters, or of its copies, is in the slices. A copy's gradient and
 * its sum of squares are the business of the stage that has the original. */
static void add_spans(struct weir__net_stage *stage, bool copies) {
    size_t number = weir_dtype_bytes(weir__exact_dtype(stage->network->dtype));
    for (uint32_t i = 0; i < stage->compiled->parameter_count; i++) {
        const struct weir__parameter_decl *parameter = parameter_of(stage, i);
        bool decays = !stage->optimizer.decay_matrices_only || parameter->rank >= 2;
        size_t begin, end;
        if (parameter->frozen || is_own(parameter) == copies) continue;
        assert(parameter->offset % number == 0);
        weir__stage_slice(stage, parameter, stage->share.replica, &begin, &end);
        if (begin >= end) continue;
        struct weir__net_run *last = &stage->runs[stage->run_count];
        size_t shift = weir__stage_optimizer_at(stage, parameter) - (parameter->offset + begin);
        if (stage->run_count == 0 || copies || last[-1].shift != shift)
            *last = (struct weir__net_run){stage->span_count, 0, shift, copies}, stage->run_count++;
        stage->runs[stage->run_count - 1].count++;
        stage->spans[stage->span_count++] = (struct weir__span){
            (parameter->offset + begin) / number, (end - begin) / number, i, decays};
    }
}

int weir__stage_share(struct weir__net_stage *stage, struct weir__network *network) {
    uint32_t parameters = stage->compiled->parameter_count;
    assert(stage->share.groups > 0 && stage->share.replica < stage->share.replicas);
    stage->flat = stage->plan.backend->flat[weir__exact_dtype(network->dtype)];
    assert(stage->flat != NULL);
    stage->spans = weir__pool_take(&network->pool, parameters, sizeof stage->spans[0]);
    stage->runs = weir__pool_take(&network->pool, parameters, sizeof stage->runs[0]);
    size_t pieces = stage->share.groups > 1 ? most_cuts(stage) : parameters;
    stage->pieces = weir__pool_take(&network->pool, pieces, sizeof stage->pieces[0]);
    if (network->pool.failed) return WEIR_ERR_OUT_OF_MEMORY;
    int status = stage->share.replicas > 1 ? make_sections(stage, network) : WEIR_OK;
    if (status != WEIR_OK) return status;
    stage->array_bytes = optimizer_bytes(stage);
    for (uint32_t i = 0; i < parameters; i++)
        if (is_own(parameter_of(stage, i))) add_pieces(stage, i);
    add_spans(stage, false);
    add_spans(stage, true);
    const struct weir__spans own = {stage->pieces, stage->piece_count, NULL};
    if (stage->flat->squares_workspace != NULL)
        stage->norm_workspace = stage->flat->squares_workspace(&own);
    return WEIR_OK;
}
