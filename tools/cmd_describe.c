/* SPDX-License-Identifier: MIT */
/* `weir describe`: the layers of a model, as a table and in the form of its file. */
#include "commands.h"
#include "json_text.h"
#include "model_json.h"
#include "model_options.h"

#include <inttypes.h>
#include <stdlib.h>

struct values {
    struct model_options model;
    const char *json;
    uint32_t dtype;
};

static const char *const dtype_names[] = {"f32", "f64", NULL};

static const struct arg_option own[] = {
    {.name = "json",
     .type = ARG_TEXT,
     .offset = offsetof(struct values, json),
     .value = "FILE",
     .help = "the same facts in the model file's form; - is stdout"},
    {.name = "dtype",
     .type = ARG_CHOICE,
     .offset = offsetof(struct values, dtype),
     .choices = dtype_names,
     .fallback = "f32",
     .help = "what activations are counted in"},
};

static void shape_text(const struct weir_tensor *tensor, char *text, size_t capacity) {
    size_t used = (size_t)snprintf(text, capacity, "(rows");
    for (uint32_t i = 0; i < tensor->rank && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, ", %" PRId64, tensor->shape[i]);
    if (used < capacity) snprintf(text + used, capacity - used, ")");
}

static void print_table(FILE *to, const struct weir_model *model,
                        const struct weir_layer_facts *facts) {
    uint64_t parameters = 0, flops = 0, bytes = 0;
    fprintf(to, "%5s  %-14s %-20s %12s %12s %12s\n", "layer", "type", "output", "parameters",
            "MFLOP/row", "KiB/row");
    for (uint32_t i = 0; i < weir_model_layer_count(model); i++) {
        const char *type, *name;
        struct weir_attrs attributes;
        char shape[64];
        if (weir_model_layer(model, i, &type, &name, &attributes) != WEIR_OK) return;
        shape_text(&facts[i].output, shape, sizeof shape);
        fprintf(to, "%5" PRIu32 "  %-14s %-20s %12" PRIu64 " %12.2f %12.1f\n", i, type, shape,
                facts[i].parameters, (double)facts[i].flops * 1e-6,
                (double)facts[i].activation_bytes / 1024.0);
        parameters += facts[i].parameters;
        flops += facts[i].flops;
        bytes += facts[i].activation_bytes;
    }
    fprintf(to, "%5s  %-14s %-20s %12" PRIu64 " %12.2f %12.1f\n", "", "all", "", parameters,
            (double)flops * 1e-6, (double)bytes / 1024.0);
}

static int describe(const struct values *values, const struct weir_model *model,
                    struct weir_layer_facts *facts, struct weir_error *error) {
    struct people people;
    people_init(&people, output_is_standard(values->json));
    print_table(people.stream, model, facts);
    return values->json != NULL ? json_text_save(values->json, model_json(model, facts), error)
                                : WEIR_OK;
}

int cmd_describe(int argc, char **argv) {
    const struct arg_section sections[] = {
        {"Options", own, 2, 0},
        {"Model", model_option_list, model_option_count, offsetof(struct values, model)}};
    const struct arg_command command = {"describe", "lists the layers of a model", NULL, sections,
                                        2};
    struct values values = {0};
    struct args args;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_model *model = NULL;
    struct weir_layer_facts *facts = NULL;
    struct weir_error error = {0};
    int code = EXIT_DONE;
    if (args_parse(&args, &command, argc, argv, &values, &faults)) return EXIT_DONE;
    int status = model_options_build(&values.model, &faults, &model);
    if (status == WEIR_OK) {
        facts = calloc(weir_model_layer_count(model) + 1, sizeof *facts);
        status = facts == NULL ? WEIR_ERR_OUT_OF_MEMORY
                               : weir_model_infer(model, values.dtype == 0 ? WEIR_F32 : WEIR_F64,
                                                  facts, &faults);
    }
    if (faults.count > 0) {
        code = args_refuse(&command, &faults);
    } else {
        if (status == WEIR_OK) status = describe(&values, model, facts, &error);
        if (status != WEIR_OK) {
            if (error.status == WEIR_OK) error.status = status;
            code = args_fail(&command, &error);
        }
    }
    free(facts);
    weir_model_destroy(model);
    return code;
}
