/* SPDX-License-Identifier: MIT */
/* One table says what each field means; what no row names is refused. */
#include "cli/adapter_config.h"

#include "base/base.h"
#include "io/file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/** Fields that change no number of a product with adapters, whatever they are: where the adapter
 * came from, how it began, and what only other fields would give a meaning. */
static const char *const silent[] = {"task_type",      "auto_mapping",
                                     "peft_version",   "base_model_name_or_path",
                                     "revision",       "inference_mode",
                                     "fan_in_fan_out", /* the base weight's order, known anyway */
                                     "megatron_core",  "qalora_group_size",
                                     "runtime_config", "ensure_weight_tying"};

/** Fields that are taken. */
static const char *const taken[] = {"peft_type",    "r",          "target_modules",   "lora_alpha",
                                    "lora_dropout", "use_rslora", "init_lora_weights"};

/** Fields of which only the values that change nothing are known; null is one of all. */
static const struct {
    const char *key, *value;
} fixed[] = {{"exclude_modules", "[]"},
             {"bias", "\"none\""},
             {"modules_to_save", "[]"},
             {"layers_to_transform", "null"},
             {"layers_pattern", "null"},
             {"rank_pattern", "{}"},
             {"alpha_pattern", "{}"},
             {"megatron_config", "null"},
             {"trainable_token_indices", "null"},
             {"loftq_config", "{}"},
             {"eva_config", "null"},
             {"corda_config", "null"},
             {"lora_ga_config", "null"},
             {"use_dora", "false"},
             {"velora_config", "null"},
             {"alora_invocation_tokens", "null"},
             {"use_qalora", "false"},
             {"monteclora_config", "null"},
             {"layer_replication", "null"},
             {"lora_bias", "false"},
             {"target_parameters", "[]"},
             {"use_bdlora", "false"},
             {"arrow_config", "null"},
             {"kasa_config", "null"}};

struct adapter_fields {
    char path[PATH_MAX];
    json_t *root;
    struct weir_faults *faults;
};

static void refuse(const struct adapter_fields *r, const char *key, const char *why) {
    weir_faults_add(r->faults, "%s: \"%.60s\" %s", r->path, key, why);
}

static bool is_in(const char *key, const char *const *list, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(key, list[i]) == 0) return true;
    return false;
}

static void check_field(const struct adapter_fields *r, const char *key, const json_t *value) {
    if (is_in(key, silent, WEIR__COUNT_OF(silent)) || is_in(key, taken, WEIR__COUNT_OF(taken)))
        return;
    for (size_t i = 0; i < WEIR__COUNT_OF(fixed); i++) {
        if (strcmp(key, fixed[i].key) != 0) continue;
        char why[96];
        json_t *known = json_loads(fixed[i].value, JSON_DECODE_ANY, NULL);
        bool same = json_is_null(value) || json_equal(value, known) != 0;
        json_decref(known);
        snprintf(why, sizeof why, "is only known as %s", fixed[i].value);
        if (!same) refuse(r, key, why);
        return;
    }
    refuse(r, key, "is not known: what it changes would be left out");
}

/* ---- what is taken ---- */

/** Those that begin with other weights than the model's own are refused. */
static void check_init(const struct adapter_fields *r) {
    const json_t *value = json_object_get(r->root, "init_lora_weights");
    const char *text = json_string_value(value);
    bool good = value == NULL || json_is_boolean(value) || json_is_null(value);
    good |= text != NULL && (strcmp(text, "gaussian") == 0 || strcmp(text, "orthogonal") == 0);
    if (!good)
        refuse(r, "init_lora_weights",
               "is only known as true, false, \"gaussian\" or \"orthogonal\": others change the "
               "model's own weights");
}

static double number_of(const struct adapter_fields *r, const char *key, double fallback) {
    const json_t *value = json_object_get(r->root, key);
    if (value == NULL) return fallback;
    if (!json_is_number(value)) refuse(r, key, "is not a number");
    return json_number_value(value);
}

/** A name without what PEFT's names of GPT-2's parts have in front. */
static const char *own_name(const char *name) {
    static const char prefix[] = "transformer.";
    bool has = strncmp(name, prefix, sizeof prefix - 1) == 0;
    return has ? name + sizeof prefix - 1 : name;
}

static int take_targets(const struct adapter_fields *r, struct adapter_config *config) {
    static const char *const all[] = {"all-linear"};
    json_t *list = json_object_get(r->root, "target_modules"), *value;
    const char *text = json_string_value(list);
    size_t count = json_array_size(list), index;
    if (text != NULL && strcmp(text, all[0]) == 0) {
        config->lora.targets = all;
        config->lora.target_count = 1;
        return WEIR_OK;
    }
    bool good = json_is_array(list) && count > 0;
    if (good && (config->targets = calloc(count, sizeof *config->targets)) == NULL)
        return WEIR_ERR_OUT_OF_MEMORY;
    json_array_foreach(list, index, value) {
        const char *name = json_string_value(value);
        good = good && name != NULL && name[0] != '\0' && strpbrk(name, "*?[\\") == NULL;
        if (good) config->targets[index] = own_name(name);
    }
    if (!good)
        refuse(r, "target_modules",
               "is neither a list of modules' names nor \"all-linear\": patterns are not known");
    config->lora.targets = config->targets;
    config->lora.target_count = (uint32_t)count;
    return WEIR_OK;
}

static int take_all(const struct adapter_fields *r, struct adapter_config *config) {
    const char *key, *type = json_string_value(json_object_get(r->root, "peft_type"));
    const json_t *rank = json_object_get(r->root, "r");
    const json_t *rslora = json_object_get(r->root, "use_rslora");
    struct weir_lora *lora = &config->lora;
    json_t *value;
    if (type == NULL || strcmp(type, "LORA") != 0)
        refuse(r, "peft_type", "is only known as \"LORA\"");
    json_object_foreach(r->root, key, value) check_field(r, key, value);
    check_init(r);
    if (json_is_integer(rank) && json_integer_value(rank) >= 1 &&
        json_integer_value(rank) <= INT_MAX)
        lora->rank = (uint32_t)json_integer_value(rank);
    else
        refuse(r, "r", "is not a whole number from 1 on");
    lora->alpha = number_of(r, "lora_alpha", 8);
    lora->dropout = number_of(r, "lora_dropout", 0);
    if (!(lora->alpha > 0)) refuse(r, "lora_alpha", "is not above 0");
    if (!(lora->dropout >= 0 && lora->dropout < 1))
        refuse(r, "lora_dropout", "is not from 0 to below 1");
    if (rslora != NULL && !json_is_boolean(rslora))
        refuse(r, "use_rslora", "is neither true nor false");
    lora->rslora = json_is_true(rslora);
    return take_targets(r, config);
}

static int path_in(const char *folder, const char *name, char path[PATH_MAX],
                   struct weir_faults *faults) {
    struct weir_error error = {0};
    int status = weir__path_join(&(struct weir__io){.error = &error}, folder, name, path);
    if (status != WEIR_OK) weir_faults_add(faults, "%s", error.message);
    return status;
}

int adapter_config_read(const char *folder, struct adapter_config *config,
                        struct weir_faults *faults) {
    struct adapter_fields r = {.faults = faults};
    json_error_t error;
    uint32_t before = faults->count;
    int status = path_in(folder, ADAPTER_CONFIG, r.path, faults);
    if (status != WEIR_OK) return status;
    r.root = config->root = json_load_file(r.path, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(r.root)) {
        weir_faults_add(faults, "%s: no JSON object: %s", r.path,
                        r.root == NULL ? error.text : "something else");
        return WEIR_ERR_CONFIG;
    }
    status = take_all(&r, config);
    if (status != WEIR_OK) return status;
    return faults->count > before ? WEIR_ERR_CONFIG : WEIR_OK;
}

void adapter_config_clean_up(struct adapter_config *config) {
    json_decref(config->root);
    free(config->targets);
    *config = (struct adapter_config){0};
}

/* ---- writing ---- */

/** The part of a product's name behind its last point; else all of it. `name` is "….lora_A.weight".
 * NULL for other parameters. */
static json_t *target_of(const struct weir_parameter *parameter, bool whole) {
    static const char end[] = ".lora_A.weight";
    size_t length = strlen(parameter->name), more = sizeof end - 1, begin = 0;
    if (!parameter->adapter || length <= more) return NULL;
    if (strcmp(parameter->name + length - more, end) != 0) return NULL;
    length -= more;
    for (size_t i = 0; i < length && !whole; i++)
        if (parameter->name[i] == '.') begin = i + 1;
    return json_stringn(parameter->name + begin, length - begin);
}

static bool has(json_t *list, json_t *text) {
    size_t index;
    json_t *value;
    json_array_foreach(list, index, value) {
        if (json_equal(value, text)) return true;
    }
    return false;
}

/** As PEFT has it, which knows no wildcards: names as given, else each product's own; of all
 * products the ends of their names. */
static json_t *targets_json(const struct weir_net *net, const struct weir_lora *lora) {
    bool plain = true, all = false;
    struct weir_parameter parameter;
    json_t *list = json_array();
    for (uint32_t i = 0; i < lora->target_count; i++) {
        plain &= strpbrk(lora->targets[i], "*?[\\") == NULL;
        all |= strcmp(lora->targets[i], "all-linear") == 0;
    }
    for (uint32_t i = 0; plain && !all && i < lora->target_count; i++)
        json_array_append_new(list, json_string(lora->targets[i]));
    for (uint32_t i = 0; (!plain || all) && weir_net_parameter(net, i, &parameter) == WEIR_OK;
         i++) {
        json_t *target = target_of(&parameter, !all || lora->target_count > 1);
        if (target != NULL && !has(list, target)) json_array_append(list, target);
        json_decref(target);
    }
    return list;
}

static bool is_gpt(const struct weir_model *model) {
    const char *type = "";
    return weir_model_layer(model, 0, &type, NULL, NULL) == WEIR_OK &&
           strncmp(type, "gpt_", 4) == 0;
}

static int write_config(const struct weir__io *io, const struct weir_net *net,
                        const struct weir_model *model, const char *path, const char *base) {
    const struct weir_lora *lora = weir_model_adapters(model);
    struct weir__file file;
    json_t *root = json_pack(
        "{s:s, s:s, s:s?, s:b, s:I, s:f, s:f, s:b, s:o, s:s, s:b, s:b}", "peft_type", "LORA",
        "task_type", "CAUSAL_LM", "base_model_name_or_path", base, "inference_mode", 1, "r",
        (json_int_t)lora->rank, "lora_alpha", lora->alpha, "lora_dropout", lora->dropout,
        "use_rslora", (int)lora->rslora, "target_modules", targets_json(net, lora), "bias", "none",
        "fan_in_fan_out", (int)is_gpt(model), "init_lora_weights", 1);
    char *text = root != NULL ? json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
    json_decref(root);
    if (text == NULL) return weir__fail(io->error, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
    int status = weir__file_begin(io, path, &file);
    if (status != WEIR_OK) goto out;
    (void)weir__file_write(&file, text, strlen(text)); /* a failure stays until the commit */
    (void)weir__file_write(&file, "\n", 1);
    status = weir__file_commit(&file);
out:
    free(text);
    return status;
}

int adapter_save(const struct weir_net *net, const struct weir_model *model, const char *folder,
                 const char *base, struct weir_error *error) {
    const struct weir__io io = {.error = error};
    char path[PATH_MAX];
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return weir__fail(error, WEIR_ERR_IO, "%s: %s", folder, strerror(errno));
    int status = weir__path_join(&io, folder, ADAPTER_WEIGHTS, path);
    if (status != WEIR_OK) return status;
    if ((status = weir_net_save_adapters(net, path, error)) != WEIR_OK) return status;
    if ((status = weir__path_join(&io, folder, ADAPTER_CONFIG, path)) != WEIR_OK) return status;
    return write_config(&io, net, model, path, base);
}

int adapter_load(struct weir_net *net, const char *folder, struct weir_faults *faults) {
    char path[PATH_MAX];
    int status = path_in(folder, ADAPTER_WEIGHTS, path, faults);
    if (status != WEIR_OK) return status;
    struct weir_faults own = WEIR_FAULTS_INIT;
    status = weir_net_load_adapters(net, path, &own);
    for (uint32_t i = 0; i < own.kept; i++)
        weir_faults_add(faults, "%s%s%s", strstr(own.lines[i], path) ? "" : path,
                        strstr(own.lines[i], path) ? "" : ": ", own.lines[i]);
    weir_faults_clean_up(&own);
    return status;
}
