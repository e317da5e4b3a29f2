/* SPDX-License-Identifier: MIT */
/* Skips come out of the compiler. */
#include "cmd/describe_skips.h"
#include "net/compile/compile.h"

#include <inttypes.h>

/** As one stage, for its skips' shapes. */
static int compile(const struct weir_model *model, enum weir_dtype dtype,
                   struct weir_faults *faults, struct weir__network *network) {
    uint32_t all = weir_model_layer_count(model);
    struct weir__compile_options options = {
        .dtype = dtype, .balance = &all, .stage_count = 1, .infer_only = true, .facts_only = true};
    return weir__network_init(network, NULL, model, &options, faults);
}

static size_t row_bytes(const struct weir__skip *skip) {
    size_t bytes = 0;
    return weir__tensor_bytes(&skip->tensor, 1, &bytes) == WEIR_OK ? bytes : 0;
}

/** "encoder/skip", or "skip" in the default namespace. */
static void name_of(const struct weir_skip_route *route, char *text, size_t capacity) {
    bool bare = route->name_space[0] == '\0';
    snprintf(text, capacity, "%.40s%s%.40s", route->name_space, bare ? "" : "/", route->name);
}

/* ---- the table ---- */

static void print_route(FILE *to, const struct weir_skip_route *route, const uint32_t *stages) {
    uint32_t source = stages[route->source], last = source;
    fprintf(to, "  stage %" PRIu32, source);
    for (uint32_t r = 0; r < route->reader_count; r++) {
        uint32_t stage = stages[route->readers[r]];
        if (stage == last) continue;
        fprintf(to, "%s%" PRIu32, last == source ? " -> " : ", ", stage);
        last = stage;
    }
    fprintf(to, "%s", last == source ? ", no copy" : " by portal");
}

static void print_skip(FILE *to, const struct weir__skip *skip, const uint32_t *stages) {
    const struct weir_skip_route *route = &skip->route;
    char name[96], readers[256] = "", shape[96];
    size_t used = 0;
    name_of(route, name, sizeof name);
    for (uint32_t r = 0; r < route->reader_count; r++)
        if (used < sizeof readers)
            used += (size_t)snprintf(readers + used, sizeof readers - used, "%s%" PRIu32,
                                     used == 0 ? "" : ", ", route->readers[r]);
    fprintf(to, "%-14s layer %4" PRIu32 " -> %-8s %-18s %9.1f KiB/row", name, route->source,
            readers, weir__tensor_text(&skip->tensor, shape, sizeof shape),
            (double)row_bytes(skip) / 1024.0);
    if (stages != NULL) print_route(to, route, stages);
    fputc('\n', to);
}

int describe_skips_print(FILE *to, const struct weir_model *model, enum weir_dtype dtype,
                         const uint32_t *stages, struct weir_faults *faults) {
    struct weir__network network;
    int status = compile(model, dtype, faults, &network);
    if (status != WEIR_OK) return status;
    if (network.skip_count > 0) fprintf(to, "\nskips\n");
    for (uint32_t i = 0; i < network.skip_count; i++) print_skip(to, &network.skips[i], stages);
    weir__network_clean_up(&network);
    return WEIR_OK;
}

/* ---- JSON ---- */

static json_t *skip_json(const struct weir__skip *skip, const uint32_t *stages) {
    const struct weir_skip_route *route = &skip->route;
    json_t *readers = json_array(), *portals = json_array(), *shape = json_array();
    uint32_t last = stages != NULL ? stages[route->source] : 0;
    for (uint32_t d = 0; d < skip->tensor.rank; d++)
        json_array_append_new(shape, json_integer(skip->tensor.shape[d]));
    for (uint32_t r = 0; r < route->reader_count; r++) {
        uint32_t layer = route->readers[r];
        json_array_append_new(readers, json_integer(layer));
        if (stages == NULL || stages[layer] == last) continue;
        json_array_append_new(portals, json_integer(stages[layer]));
        last = stages[layer];
    }
    json_t *object = json_pack("{s:s, s:s, s:I, s:o, s:o, s:I}", "namespace", route->name_space,
                               "skip", route->name, "stash", (json_int_t)route->source, "readers",
                               readers, "shape", shape, "bytes", (json_int_t)row_bytes(skip));
    if (stages == NULL || object == NULL) {
        json_decref(portals);
        return object;
    }
    json_object_set_new(object, "stage", json_integer(stages[route->source]));
    json_object_set_new(object, "portals", portals);
    return object;
}

json_t *describe_skips_json(const struct weir_model *model, enum weir_dtype dtype,
                            const uint32_t *stages, struct weir_faults *faults) {
    struct weir__network network;
    if (compile(model, dtype, faults, &network) != WEIR_OK) return NULL;
    json_t *list = json_array();
    for (uint32_t i = 0; i < network.skip_count; i++)
        json_array_append_new(list, skip_json(&network.skips[i], stages));
    weir__network_clean_up(&network);
    return list;
}
