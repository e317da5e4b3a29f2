/* SPDX-License-Identifier: MIT */
/* Skips in the net library: declared by layers' types, verified over the whole list, and, where
 * they leave their stage, turned into the engine's skip uses: one per stage, however many layers
 * read. Within a stage a skip is an alias and never a portal. */
#include "net/compile/compile.h"
#include "net/ops/rules.h"

#include <string.h>

/* ---- over the whole list ---- */

static const char *owner_name(void *context, uint32_t owner) {
    const struct weir_model *model = context;
    assert(owner < model->layer_count);
    return model->layers[owner]->label;
}

/** All declarations in layer order, verified. */
static int collect(const struct weir_model *model, struct weir__pool *pool,
                   struct weir_faults *faults, struct weir__skip_decl **list, uint32_t *count) {
    uint32_t most = 0, made = 0;
    for (uint32_t i = 0; i < model->layer_count; i++) most += model->layers[i]->skip_count;
    struct weir__skip_decl *decls = weir__pool_take(pool, most, sizeof decls[0]);
    if (decls == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < model->layer_count; i++)
        for (uint32_t k = 0; k < model->layers[i]->skip_count; k++)
            decls[made++] = (struct weir__skip_decl){i, model->layers[i]->skips[k]};
    assert(made == most);
    *list = decls;
    *count = made;
    return weir__skip_verify(decls, made, owner_name, (void *)model, faults);
}

int weir__model_check_skips(const struct weir_model *model, struct weir_faults *faults) {
    struct weir__pool pool;
    struct weir__skip_decl *decls;
    uint32_t count;
    weir__pool_init(&pool, model->allocator);
    int status = collect(model, &pool, faults, &decls, &count);
    weir__pool_clean_up(&pool);
    return status;
}

int weir__network_skips(struct weir__network *network, struct weir_faults *faults) {
    struct weir__pool *pool = &network->pool;
    struct weir__skip_layout layout;
    int status =
        collect(network->model, pool, faults, &network->skip_decls, &network->skip_decl_count);
    if (status != WEIR_OK) return status;
    status = weir__skip_layout_init(&layout, pool, network->skip_decls, network->skip_decl_count);
    if (status != WEIR_OK) return status;
    network->skips = weir__pool_take(pool, layout.route_count, sizeof network->skips[0]);
    if (network->skips == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    network->skip_count = layout.route_count;
    network->skip_of = layout.route_of;
    for (uint32_t d = 0, stage = 0; d < network->skip_decl_count; d++) {
        const struct weir__skip_decl *decl = &network->skip_decls[d];
        const struct weir__stage_graph *stages = network->stages;
        while (decl->owner >= stages[stage].layer_first + stages[stage].layer_count) stage++;
        assert(stage < network->stage_count);
        struct weir__skip *skip = &network->skips[layout.route_of[d]];
        skip->route = layout.routes[layout.route_of[d]];
        skip->last_stage = stage;
        if (decl->use.verb == WEIR_SKIP_STASH) skip->source_stage = stage;
    }
    return WEIR_OK;
}

/* ---- while layers build ---- */

static const char *const verb_names[] = {"stash", "read", "pop"};

/** The number of the present layer's first declaration: halves, for there may be many. */
static uint32_t first_of(const struct weir_builder *builder) {
    uint32_t low = 0, high = builder->network->skip_decl_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (builder->network->skip_decls[middle].owner < builder->layer_index)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/** The network's skip, if the present layer declares this use of it; marks the use as done. */
static struct weir__skip *declared_skip(struct weir_builder *builder, bool stash,
                                        const char *name_space, const char *name,
                                        enum weir_skip_verb *verb) {
    const struct weir__network *network = builder->network;
    uint32_t first = first_of(builder);
    if (name_space == NULL) name_space = "";
    for (uint32_t i = 0; i < builder->layer->skip_count; i++) {
        const struct weir_skip_use *use = &network->skip_decls[first + i].use;
        if ((use->verb == WEIR_SKIP_STASH) != stash) continue;
        if (strcmp(use->name, name) != 0 || strcmp(use->name_space, name_space) != 0) continue;
        builder->skips_done |= (uint64_t)1 << i;
        *verb = use->verb;
        return &network->skips[network->skip_of[first + i]];
    }
    return weir_builder_fail(builder, WEIR_ERR_SKIP, "it %s skip '%s' without declaring it",
                             stash ? "stashes" : "reads", name);
}

void weir__skips_check_done(struct weir_builder *builder) {
    uint32_t first = first_of(builder);
    for (uint32_t i = 0; i < builder->layer->skip_count; i++) {
        if ((builder->skips_done >> i & 1) != 0) continue;
        const struct weir_skip_use *use = &builder->network->skip_decls[first + i].use;
        weir_builder_fail(builder, WEIR_ERR_SKIP,
                          "it declares a %s of skip '%s' and does not do it", verb_names[use->verb],
                          use->name);
    }
}

static struct weir__graph_skip_use *add_use(struct weir_builder *builder,
                                            const struct weir__skip *skip,
                                            enum weir_skip_verb verb) {
    assert(skip >= builder->network->skips);
    struct weir__graph *graph = builder->graph;
    void *list = graph->skips;
    if (!weir__pool_grow(graph->pool, &list, graph->skip_count, &graph->skip_capacity,
                         sizeof graph->skips[0]))
        return weir_builder_fail(builder, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
    graph->skips = list;
    assert(graph->skip_count < graph->skip_capacity);
    struct weir__graph_skip_use *use = &graph->skips[graph->skip_count++];
    *use = (struct weir__graph_skip_use){.use = {.verb = verb,
                                                 .name = skip->route.name,
                                                 .name_space = skip->route.name_space,
                                                 .tensor = skip->tensor},
                                         .skip = (uint32_t)(skip - builder->network->skips),
                                         .later_readers = skip->last_stage > builder->stage};
    return use;
}

void weir_stash(struct weir_builder *builder, const char *name_space, const char *name,
                struct weir_value *x) {
    if (builder->status != WEIR_OK) return;
    enum weir_skip_verb verb;
    if (!weir__expects_rows(builder, "stash", x)) return;
    struct weir__skip *skip = declared_skip(builder, true, name_space, name, &verb);
    if (skip == NULL) return;
    struct weir_value *value = weir__alias(builder, x);
    if (value == NULL) return;
    skip->tensor = weir_value_tensor(value);
    skip->value = value;
    if (skip->last_stage == builder->stage) return;
    struct weir__graph_skip_use *use = add_use(builder, skip, verb);
    if (use != NULL) use->value = value;
}

/** This stage's use of a skip that an earlier stage stashed: one, however many layers read. */
static struct weir__graph_skip_use *arriving_use(struct weir_builder *builder,
                                                 struct weir__skip *skip) {
    struct weir__graph *graph = builder->graph;
    assert(builder->stage > skip->source_stage);
    if (skip->reading_stage == builder->stage) return &graph->skips[skip->reading_use];
    struct weir__graph_skip_use *use = add_use(builder, skip, WEIR_SKIP_READ);
    if (use == NULL) return NULL;
    skip->reading_stage = builder->stage;
    skip->reading_use = graph->skip_count - 1;
    use->value = weir__graph_value(graph, WEIR__FROM_SKIP, graph->skip_count - 1, &skip->tensor);
    if (use->value == NULL)
        return weir_builder_fail(builder, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
    use->value->channels_last = skip->value->channels_last;
    return use;
}

struct weir_value *weir_read(struct weir_builder *builder, const char *name_space,
                             const char *name) {
    if (builder->status != WEIR_OK) return NULL;
    enum weir_skip_verb verb;
    struct weir__skip *skip = declared_skip(builder, false, name_space, name, &verb);
    if (skip == NULL) return NULL;
    if (skip->value == NULL)
        return weir_builder_fail(builder, WEIR_ERR_SKIP, "skip '%s' was never stashed", name);
    if (skip->source_stage == builder->stage) return skip->value;
    struct weir__graph_skip_use *use = arriving_use(builder, skip);
    if (use == NULL) return NULL;
    if (verb == WEIR_SKIP_POP) use->use.verb = verb;
    return use->value;
}
