/* SPDX-License-Identifier: MIT */
/* Skips come out of the compiler, whose declarations say which layers use them. */
#include "cmd/describe_skips.h"
#include "net/compile/compile.h"

#include <inttypes.h>
#include <stdlib.h>

/** The model compiled as one stage, for its skips' shapes, and who reads them. */
struct skips {
    const struct weir_model *model;
    struct weir__network network;
    uint32_t *first;   /**< where each skip's readers begin, and where the last's end */
    uint32_t *readers; /**< layers, ascending */
};

static void clean_up(struct skips *skips) {
    weir__network_clean_up(&skips->network);
    free(skips->first);
    free(skips->readers);
}

/** Calls add for each use that is no stash, in layer order. */
static void each_reader(struct skips *skips, void (*add)(struct skips *, uint32_t, uint32_t)) {
    const struct weir__network *network = &skips->network;
    for (uint32_t i = 0; i < skips->model->layer_count; i++) {
        const struct weir_layer *layer = skips->model->layers[i];
        for (uint32_t k = 0; k < layer->type->skip_count; k++)
            if (weir__layer_skip_decl(layer, k).verb != WEIR_SKIP_STASH)
                add(skips, network->skip_uses[network->skip_use_first[i] + k], i);
    }
}

static void count_reader(struct skips *skips, uint32_t skip, uint32_t layer) {
    (void)layer;
    skips->first[skip + 2]++;
}

static void add_reader(struct skips *skips, uint32_t skip, uint32_t layer) {
    skips->readers[skips->first[skip + 1]++] = layer;
}

/** Sorted by counting: first[skip + 1] runs from where the skip's readers begin to their end. */
static int find_readers(struct skips *skips) {
    uint32_t count = skips->network.skip_count;
    skips->first = calloc((size_t)count + 2, sizeof skips->first[0]);
    if (skips->first == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    each_reader(skips, count_reader);
    for (uint32_t i = 0; i < count; i++) skips->first[i + 2] += skips->first[i + 1];
    skips->readers = calloc((size_t)skips->first[count + 1] + 1, sizeof skips->readers[0]);
    if (skips->readers == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    each_reader(skips, add_reader);
    return WEIR_OK;
}

static int compile(const struct weir_model *model, enum weir_dtype dtype,
                   struct weir_faults *faults, struct skips *skips) {
    uint32_t all = weir_model_layer_count(model);
    struct weir__compile_options options = {
        .dtype = dtype, .balance = &all, .stage_count = 1, .infer_only = true, .facts_only = true};
    *skips = (struct skips){.model = model};
    int status = weir__network_init(&skips->network, NULL, model, &options, faults);
    if (status != WEIR_OK) return status;
    status = find_readers(skips);
    if (status != WEIR_OK) clean_up(skips);
    return status;
}

static size_t row_bytes(const struct weir__skip *skip) {
    size_t bytes = 0;
    return weir__tensor_bytes(&skip->tensor, 1, &bytes) == WEIR_OK ? bytes : 0;
}

/** "encoder/skip", or "skip" in the default namespace. */
static void name_of(const struct weir__skip *skip, char *text, size_t capacity) {
    bool bare = skip->name_space[0] == '\0';
    snprintf(text, capacity, "%.40s%s%.40s", skip->name_space, bare ? "" : "/", skip->name);
}

/* ---- the table ---- */

static void print_route(FILE *to, const struct skips *skips, uint32_t index,
                        const uint32_t *stages) {
    uint32_t source = stages[skips->network.skips[index].source_layer], last = source;
    fprintf(to, "  stage %" PRIu32, source);
    for (uint32_t i = skips->first[index]; i < skips->first[index + 1]; i++) {
        uint32_t stage = stages[skips->readers[i]];
        if (stage == last) continue;
        fprintf(to, "%s%" PRIu32, last == source ? " -> " : ", ", stage);
        last = stage;
    }
    fprintf(to, "%s", last == source ? ", no copy" : " by portal");
}

static void print_skip(FILE *to, const struct skips *skips, uint32_t index,
                       const uint32_t *stages) {
    const struct weir__skip *skip = &skips->network.skips[index];
    char name[96], readers[256] = "", shape[96];
    size_t used = 0;
    name_of(skip, name, sizeof name);
    for (uint32_t i = skips->first[index]; i < skips->first[index + 1]; i++)
        if (used < sizeof readers)
            used += (size_t)snprintf(readers + used, sizeof readers - used, "%s%" PRIu32,
                                     used == 0 ? "" : ", ", skips->readers[i]);
    fprintf(to, "%-14s layer %4" PRIu32 " -> %-8s %-18s %9.1f KiB/row", name, skip->source_layer,
            readers, weir__tensor_text(&skip->tensor, shape, sizeof shape),
            (double)row_bytes(skip) / 1024.0);
    if (stages != NULL) print_route(to, skips, index, stages);
    fputc('\n', to);
}

int describe_skips_print(FILE *to, const struct weir_model *model, enum weir_dtype dtype,
                         const uint32_t *stages, struct weir_faults *faults) {
    struct skips skips;
    int status = compile(model, dtype, faults, &skips);
    if (status != WEIR_OK) return status;
    if (skips.network.skip_count > 0) fprintf(to, "\nskips\n");
    for (uint32_t i = 0; i < skips.network.skip_count; i++) print_skip(to, &skips, i, stages);
    clean_up(&skips);
    return WEIR_OK;
}

/* ---- JSON ---- */

static json_t *skip_json(const struct skips *skips, uint32_t index, const uint32_t *stages) {
    const struct weir__skip *skip = &skips->network.skips[index];
    json_t *readers = json_array(), *route = json_array(), *shape = json_array();
    uint32_t last = stages != NULL ? stages[skip->source_layer] : 0;
    for (uint32_t d = 0; d < skip->tensor.rank; d++)
        json_array_append_new(shape, json_integer(skip->tensor.shape[d]));
    for (uint32_t i = skips->first[index]; i < skips->first[index + 1]; i++) {
        uint32_t layer = skips->readers[i];
        json_array_append_new(readers, json_integer(layer));
        if (stages == NULL || stages[layer] == last) continue;
        json_array_append_new(route, json_integer(stages[layer]));
        last = stages[layer];
    }
    json_t *object =
        json_pack("{s:s, s:s, s:I, s:o, s:o, s:I}", "namespace", skip->name_space, "skip",
                  skip->name, "stash", (json_int_t)skip->source_layer, "readers", readers, "shape",
                  shape, "bytes", (json_int_t)row_bytes(skip));
    if (stages == NULL || object == NULL) {
        json_decref(route);
        return object;
    }
    json_object_set_new(object, "stage", json_integer(stages[skip->source_layer]));
    json_object_set_new(object, "portals", route);
    return object;
}

json_t *describe_skips_json(const struct weir_model *model, enum weir_dtype dtype,
                            const uint32_t *stages, struct weir_faults *faults) {
    struct skips skips;
    if (compile(model, dtype, faults, &skips) != WEIR_OK) return NULL;
    json_t *list = json_array();
    for (uint32_t i = 0; i < skips.network.skip_count; i++)
        json_array_append_new(list, skip_json(&skips, i, stages));
    clean_up(&skips);
    return list;
}
