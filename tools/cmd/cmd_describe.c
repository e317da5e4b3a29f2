/* SPDX-License-Identifier: MIT */
/* `weir describe`: the layers of a model, as a table and in the form of its file. */
#include "cmd/commands.h"
#include "cmd/path_uses.h"
#include "cmd/describe_skips.h"
#include "cli/json_text.h"
#include "cli/model_json.h"
#include "cli/model_options.h"
#include "net/compile/compile.h"
#include "cli/net_run.h"

#include <inttypes.h>
#include <stdlib.h>

struct describe_values {
    struct model_options model;
    const char *json;
    uint32_t dtype;
    uint32_t stages; /**< 0: no partition is shown */
    struct arg_numbers balance;
};

/** What is described. */
struct description {
    enum weir_dtype dtype;
    struct weir_model *model;
    struct weir_layer_facts *facts; /**< of each layer */
    uint32_t *stages;               /**< of each layer, or NULL */
};

static const char *const dtype_names[] = {"f32", "f64", NULL};

static const struct arg_option own[] = {
    {"json", ARG_TEXT, offsetof(struct describe_values, json),
     "the same facts in the model file's form; - is stdout", .value = "FILE"},
    {"dtype", ARG_CHOICE, offsetof(struct describe_values, dtype),
     "what activations are counted in", .fallback = "f32", .choices = dtype_names},
    {"stages", ARG_U32, offsetof(struct describe_values, stages), "shows the stage of each layer",
     .value = "N", .least = 1, .most = 65535},
    {"balance", ARG_U32_LIST, offsetof(struct describe_values, balance),
     "layers of each stage; default: by estimated cost", .value = "A,B,...", .least = 1},
};

static void shape_text(const struct weir_tensor *tensor, char *text, size_t capacity) {
    size_t used = (size_t)snprintf(text, capacity, "(rows");
    for (uint32_t i = 0; i < tensor->rank && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, ", %" PRId64, tensor->shape[i]);
    if (used < capacity) snprintf(text + used, capacity - used, ")");
}

static void print_table(FILE *to, const struct description *d) {
    const struct weir_model *model = d->model;
    const struct weir_layer_facts *facts = d->facts;
    uint64_t parameters = 0, flops = 0, bytes = 0;
    if (d->stages != NULL) fprintf(to, "%5s  ", "stage");
    fprintf(to, "%5s  %-19s %-22s %12s %12s %12s\n", "layer", "type", "output", "parameters",
            "MFLOP/row", "KiB/row");
    for (uint32_t i = 0; i < weir_model_layer_count(model); i++) {
        const char *type, *name;
        struct weir_attrs attributes;
        char shape[64];
        if (weir_model_layer(model, i, &type, &name, &attributes) != WEIR_OK) return;
        shape_text(&facts[i].output, shape, sizeof shape);
        if (d->stages != NULL) fprintf(to, "%5" PRIu32 "  ", d->stages[i]);
        fprintf(to, "%5" PRIu32 "  %-19s %-22s %12" PRIu64 " %12.2f %12.1f%s%s%s\n", i, type, shape,
                facts[i].parameters, (double)facts[i].flops * 1e-6,
                (double)facts[i].activation_bytes / 1024.0,
                facts[i].trainable < facts[i].parameters ? "  frozen" : "",
                name[0] != '\0' ? "  " : "", name);
        parameters += facts[i].parameters;
        flops += facts[i].flops;
        bytes += facts[i].activation_bytes;
    }
    fprintf(to, "%*s  %-19s %-22s %12" PRIu64 " %12.2f %12.1f\n", d->stages != NULL ? 12 : 5, "",
            "all", "", parameters, (double)flops * 1e-6, (double)bytes / 1024.0);
}

/* Which stage each layer falls into, where a partition was asked for. */
static int find_stages(const struct describe_values *values, enum weir_dtype dtype,
                       struct description *d, struct weir_faults *faults) {
    uint32_t count = values->balance.count > 0 ? values->balance.count : values->stages;
    if (count == 0) return WEIR_OK;
    if (values->stages > 0 && values->stages != count)
        weir_faults_add(faults, "--stages %u but --balance names %u stage%s: give one of them",
                        values->stages, count, weir__s(count));
    uint32_t *sizes = calloc(count, sizeof *sizes);
    d->stages = calloc(weir_model_layer_count(d->model) + 1, sizeof *d->stages);
    int status = WEIR_ERR_OUT_OF_MEMORY;
    if (sizes == NULL || d->stages == NULL) goto out;
    status = weir__partition_model(d->model, dtype, count,
                                   values->balance.count > 0 ? values->balance.items : NULL, sizes,
                                   faults);
    if (status != WEIR_OK) goto out;
    for (uint32_t s = 0, layer = 0; s < count; s++)
        for (uint32_t i = 0; i < sizes[s]; i++) d->stages[layer++] = s;
out:
    free(sizes);
    return status;
}

static int gather(const struct describe_values *values, const struct args *args,
                  struct description *d, struct weir_faults *faults) {
    enum weir_dtype dtype = values->dtype == 0 ? WEIR_F32 : WEIR_F64;
    d->dtype = dtype;
    int status = model_options_build(&values->model, args, NULL, faults, &d->model);
    if (status != WEIR_OK) return status;
    d->facts = calloc(weir_model_layer_count(d->model) + 1, sizeof *d->facts);
    if (d->facts == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    status = weir_model_infer(d->model, dtype, d->facts, faults);
    return status == WEIR_OK ? find_stages(values, dtype, d, faults) : status;
}

static int print(const struct describe_values *values, const struct description *d,
                 struct weir_faults *faults, struct weir_error *error) {
    struct people people;
    people_init(&people, output_is_standard(values->json));
    print_table(people.stream, d);
    int status = describe_skips_print(people.stream, d->model, d->dtype, d->stages, faults);
    if (status != WEIR_OK || values->json == NULL) return status;
    json_t *root = model_json(d->model, d->facts, d->stages);
    json_t *skips = describe_skips_json(d->model, d->dtype, d->stages, faults);
    if (skips != NULL) json_object_set_new(root, "skips", skips);
    return json_text_save(values->json, root, error);
}

int cmd_describe(int argc, char **argv) {
    const struct arg_section sections[] = {
        {"Options", own, sizeof own / sizeof own[0], 0},
        {"Model", model_option_list, model_option_count, offsetof(struct describe_values, model)}};
    const struct arg_command command = {"describe", "lists the layers of a model", NULL, sections,
                                        2};
    struct describe_values values = {0};
    struct description description = {0};
    struct args args;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_error error = {0};
    if (args_parse(&args, &command, argc, argv, &values, &faults)) return EXIT_DONE;
    if (!output_is_standard(values.json)) net_run_check_output("json", values.json, &faults);
    const struct path_use json = {"json", values.json, PATH_TEXT};
    path_uses_check_own(&json, 1, &values.model, NULL, &faults);
    int status = gather(&values, &args, &description, &faults);
    if (status == WEIR_OK && faults.count == 0)
        status = print(&values, &description, &faults, &error);
    int code = args_end(&command, &faults, status, &error);
    free(description.stages);
    free(description.facts);
    weir_model_destroy(description.model);
    return code;
}
