/* SPDX-License-Identifier: MIT */
/* `weir layers`: what a model may be made of, from the types that parse it: for people, for
 * programs, and as docs/layers.md. */
#include "cmd/commands.h"
#include "base/base.h"
#include "cli/args.h"
#include "cli/json_text.h"
#include "cli/net_run.h"
#include "cmd/path_uses.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { TYPES_MAX = 64 };

struct layers_values {
    const char *json, *markdown;
};

static const struct arg_option own[] = {
    {"json", ARG_TEXT, offsetof(struct layers_values, json), "the same facts; - is stdout",
     .value = "FILE"},
    {"markdown", ARG_TEXT, offsetof(struct layers_values, markdown),
     "the same facts as docs/layers.md has them; - is stdout", .value = "FILE"},
};

static const char *const kind_names[] = {[WEIR_ATTR_KIND_INT] = "whole number",
                                         [WEIR_ATTR_KIND_REAL] = "number",
                                         [WEIR_ATTR_KIND_FLAG] = "true or false",
                                         [WEIR_ATTR_KIND_TEXT] = "text",
                                         [WEIR_ATTR_KIND_PAIR] = "one or two whole numbers"};

/* A default that no one may give stands for something else, which the type's line tells. */
static bool has_default(const struct weir_attr_rule *rule) {
    bool number = rule->kind == WEIR_ATTR_KIND_INT || rule->kind == WEIR_ATTR_KIND_PAIR;
    if (rule->kind == WEIR_ATTR_KIND_REAL && rule->real < 0) return false;
    return !rule->required && rule->of_input == 0 && !(number && rule->integer < rule->least);
}

static json_t *default_json(const struct weir_attr_rule *rule) {
    assert(has_default(rule));
    switch (rule->kind) {
    case WEIR_ATTR_KIND_PAIR:
    case WEIR_ATTR_KIND_INT: return json_integer(rule->integer);
    case WEIR_ATTR_KIND_REAL: return json_real(rule->real);
    case WEIR_ATTR_KIND_FLAG: return json_boolean(rule->integer != 0);
    case WEIR_ATTR_KIND_TEXT: return json_string(rule->text);
    }
    return NULL;
}

/* What stands for an attribute that is not given. */
static void default_text(const struct weir_attr_rule *rule, char *text, size_t capacity) {
    const char *before = rule->fixed ? "only " : "";
    text[0] = '\0';
    if (rule->required) snprintf(text, capacity, "must be given");
    if (rule->of_input != 0)
        snprintf(text, capacity, "the input's %s size", rule->of_input > 0 ? "first" : "last");
    if (!has_default(rule)) return;
    json_t *value = default_json(rule);
    char *json = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    snprintf(text, capacity, "%s%s", before, json == NULL ? "" : json);
    free(json);
    json_decref(value);
}

static const char *kind_text(const struct weir_attr_rule *rule) {
    assert((size_t)rule->kind < sizeof kind_names / sizeof kind_names[0]);
    return rule->choices != NULL ? rule->choices : kind_names[rule->kind];
}

static bool is_shown(const struct weir_layer_type *type, const char *only) {
    return only == NULL || strcmp(type->name, only) == 0;
}

/* ---- for people ---- */

static void print_type(FILE *to, const struct weir_layer_type *type) {
    char value[64];
    fprintf(to, "%-20s %-22s [%s] -> [%s]\n", type->name, type->torch == NULL ? "" : type->torch,
            type->input, type->output);
    if (type->about != NULL) fprintf(to, "    %s\n", type->about);
    for (uint32_t k = 0; k < type->attr_count; k++) {
        default_text(&type->attrs[k], value, sizeof value);
        fprintf(to, "    %-20s %-26s %s\n", type->attrs[k].key, kind_text(&type->attrs[k]), value);
    }
    fputc('\n', to);
}

static void print_people(FILE *to, const char *only) {
    const struct weir_layer_type *type;
    for (uint32_t i = 0; (type = weir_layer_type_at(i)) != NULL; i++)
        if (is_shown(type, only)) print_type(to, type);
    fprintf(to, "All take \"name\", which replaces the index in names of parameters, and "
                "\"frozen\".\nShapes are a row's, in PyTorch's order.\n");
}

/* ---- for programs ---- */

static json_t *attribute_json(const struct weir_attr_rule *rule) {
    json_t *object = json_pack("{s:s, s:s, s:b}", "name", rule->key, "type", kind_text(rule),
                               "required", rule->required);
    if (has_default(rule)) json_object_set_new(object, "default", default_json(rule));
    if (rule->kind == WEIR_ATTR_KIND_INT || rule->kind == WEIR_ATTR_KIND_PAIR)
        json_object_set_new(object, "least", json_integer(rule->least));
    if (rule->kind == WEIR_ATTR_KIND_REAL)
        json_object_set_new(object, "below", json_real(rule->below));
    if (rule->of_input != 0)
        json_object_set_new(object, "of_input", json_string(rule->of_input > 0 ? "first" : "last"));
    if (rule->fixed) json_object_set_new(object, "fixed", json_true());
    return object;
}

static json_t *types_json(const char *only) {
    json_t *list = json_array();
    const struct weir_layer_type *type;
    for (uint32_t i = 0; (type = weir_layer_type_at(i)) != NULL; i++) {
        if (!is_shown(type, only)) continue;
        json_t *attributes = json_array();
        for (uint32_t k = 0; k < type->attr_count; k++)
            json_array_append_new(attributes, attribute_json(&type->attrs[k]));
        json_array_append_new(list, json_pack("{s:s, s:s?, s:s, s:s, s:s?, s:o}", "type",
                                              type->name, "pytorch", type->torch, "input",
                                              type->input, "output", type->output, "about",
                                              type->about, "attributes", attributes));
    }
    return json_pack("{s:o}", "layers", list);
}

/* ---- as a page ---- */

static void write_attributes(FILE *to, const struct weir_layer_type *type) {
    char value[64];
    for (uint32_t k = 0; k < type->attr_count; k++) {
        const struct weir_attr_rule *rule = &type->attrs[k];
        const char *mark = rule->required ? "**" : "";
        default_text(rule, value, sizeof value);
        if (k > 0) fprintf(to, "<br>");
        fprintf(to, "%s`%s`%s ", mark, rule->key, mark);
        for (const char *c = kind_text(rule); *c != '\0'; c++)
            fprintf(to, *c == '|' ? ", " : "%c", *c);
        if (!rule->required && value[0] != '\0') fprintf(to, ": %s", value);
    }
}

static void write_page(FILE *to) {
    const struct weir_layer_type *type;
    fprintf(to,
            "# Layers\n\n"
            "What the `layers` of a [model file](formats.md#models-as-json) may be. `weir layers` "
            "prints it, and\n`weir layers --markdown docs/layers.md` writes this page, both from "
            "the table that reads the files.\n\n"
            "Shapes are a row's, in PyTorch's order. Attributes in bold must be given; behind the "
            "colon stands\nthe default. The input's size follows from the input: it may be given, "
            "as PyTorch's lists do, and\nis refused where it differs. \"Only\" marks an attribute "
            "of PyTorch's of which one case is offered.\nEvery layer also takes `name`, in place "
            "of its index in names of parameters, and `frozen`.\n\n"
            "| type | PyTorch | row in | row out | attributes |\n|---|---|---|---|---|\n");
    for (uint32_t i = 0; (type = weir_layer_type_at(i)) != NULL; i++) {
        const char *mark = type->torch == NULL ? "" : "`";
        fprintf(to, "| `%s` | %s%s%s | %s | %s | ", type->name, mark,
                type->torch == NULL ? "" : type->torch, mark, type->input, type->output);
        write_attributes(to, type);
        fprintf(to, "%s%s |\n", type->attr_count > 0 && type->about != NULL ? "<br>" : "",
                type->about == NULL ? "" : type->about);
    }
}

static int save_page(const char *path, struct weir_error *error) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *page = open_memstream(&text, &bytes);
    if (page == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    write_page(page);
    int status = fclose(page) == 0 ? output_text(path, text, bytes, error) : WEIR_ERR_OUT_OF_MEMORY;
    free(text);
    return status;
}

static void refuse_type(const char *name, struct weir_faults *faults) {
    const struct weir_layer_type *type;
    const char *names[TYPES_MAX + 1] = {NULL};
    for (uint32_t i = 0; (type = weir_layer_type_at(i)) != NULL && i < TYPES_MAX; i++) {
        if (is_shown(type, name)) return;
        names[i] = type->name;
    }
    const char *near = weir__nearest(name, names);
    weir_faults_add(faults, "there is no type '%.60s': %s%s%s", name,
                    near != NULL ? "did you mean '" : "'weir layers' lists them",
                    near != NULL ? near : "", near != NULL ? "'?" : "");
}

static void check(const struct layers_values *values, const char *only,
                  struct weir_faults *faults) {
    bool json = output_is_standard(values->json), page = output_is_standard(values->markdown);
    if (!json) net_run_check_output("json", values->json, faults);
    if (!page) net_run_check_output("markdown", values->markdown, faults);
    const struct path_use paths[] = {{"json", values->json, PATH_TEXT},
                                     {"markdown", values->markdown, PATH_TEXT}};
    path_uses_check_own(paths, 2, NULL, NULL, faults);
    if (only != NULL) refuse_type(only, faults);
    if (only != NULL && values->markdown != NULL)
        weir_faults_add(faults, "--markdown has all types: leave '%.60s' away", only);
}

int cmd_layers(int argc, char **argv) {
    const struct arg_section sections[] = {{"Options", own, sizeof own / sizeof own[0], 0}};
    const struct arg_command command = {
        "layers", "lists the layers that models are made of: attributes, defaults, shapes",
        "'weir layers TYPE' shows one of them, like 'weir layers linear'.", sections, 1};
    struct layers_values values = {0};
    struct args args;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_error error = {0};
    struct people people;
    int status = WEIR_OK, given = argc > 1 && argv[1][0] != '-';
    const char *only = given ? argv[1] : NULL;
    if (args_parse(&args, &command, argc - given, argv + given, &values, &faults)) return EXIT_DONE;
    check(&values, only, &faults);
    if (faults.count > 0) return args_refuse(&command, &faults);
    people_init(&people, output_is_standard(values.json) || output_is_standard(values.markdown));
    if (values.json == NULL && values.markdown == NULL) print_people(people.stream, only);
    if (values.json != NULL) status = json_text_save(values.json, types_json(only), &error);
    if (status == WEIR_OK && values.markdown != NULL) status = save_page(values.markdown, &error);
    return args_end(&command, &faults, status, &error);
}
