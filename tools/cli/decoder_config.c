/* SPDX-License-Identifier: MIT */
/* One table says what each field means; what no row names is refused. */
#include "cli/decoder_config.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"

enum family { LLAMA = 1, MISTRAL = 2, QWEN2 = 4, QWEN3 = 8, ALL = 15 };

static const struct {
    const char *name;
    enum family family;
} families[] = {{"llama", LLAMA}, {"mistral", MISTRAL}, {"qwen2", QWEN2}, {"qwen3", QWEN3}};

struct config {
    const char *path;
    json_t *root;
    enum family family;
    struct weir_decoder_options *options;
    uint32_t most; /* max_position_embeddings */
    struct weir_faults *faults;
};

#define AT(member) offsetof(struct weir_decoder_options, member)

enum field_kind { SIZE, REAL, FLAG };

/** Fields that are an option of the model. */
static const struct config_field {
    const char *key;
    enum field_kind kind;
    size_t offset;
    enum family families;
    bool required;
} fields[] = {
    {"num_hidden_layers", SIZE, AT(layers), ALL, true},
    {"hidden_size", SIZE, AT(width), ALL, true},
    {"intermediate_size", SIZE, AT(inner), ALL, true},
    {"num_attention_heads", SIZE, AT(heads), ALL, true},
    {"num_key_value_heads", SIZE, AT(kv_heads), ALL, false},
    {"head_dim", SIZE, AT(head_size), ALL, false},
    {"vocab_size", SIZE, AT(vocab), ALL, true},
    {"rms_norm_eps", REAL, AT(eps), ALL, true},
    {"rope_theta", REAL, AT(rope_theta), ALL, false},
    {"tie_word_embeddings", FLAG, AT(tied), ALL, false},
    {"attention_bias", FLAG, AT(bias), LLAMA | QWEN3, false},
    {"mlp_bias", FLAG, AT(mlp_bias), LLAMA, false},
};

/** Fields that change no number of a model that is trained, or asked, as here. */
static const char *const silent[] = {
    "architectures",
    "model_type",
    "torch_dtype",
    "dtype",
    "transformers_version",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "use_cache",
    "initializer_range",
    "pretraining_tp",
    "_name_or_path",
    "is_llama_config",
    "transformers.js_config",
    "max_position_embeddings",
    "rope_scaling",
    "rope_parameters",
    "use_sliding_window",
    "sliding_window",
    "max_window_layers",
    "layer_types",
    "_attn_implementation_autoset",
};

/** Fields of which only one value is known. */
static const struct {
    const char *key, *value;
} fixed[] = {{"hidden_act", "\"silu\""},      {"attention_dropout", "0.0"},
             {"rope_interleaved", "false"},   {"partial_rotary_factor", "1.0"},
             {"quantization_config", "null"}, {"output_hidden_states", "false"},
             {"output_attentions", "false"},  {"return_dict", "true"}};

static void refuse(const struct config *config, const char *key, const char *why) {
    weir_faults_add(config->faults, "%s: \"%.60s\" %s", config->path, key, why);
}

/* ---- values ---- */

static bool is_size(const json_t *value) {
    return json_is_integer(value) && json_integer_value(value) >= 1 &&
           json_integer_value(value) <= INT_MAX;
}

static void take_size(const struct config *config, const char *key, const json_t *value,
                      uint32_t *to) {
    if (is_size(value))
        *to = (uint32_t)json_integer_value(value);
    else
        refuse(config, key, "is not a whole number from 1 on");
}

static void take_real(const struct config *config, const char *key, const json_t *value,
                      double *to) {
    if (json_is_number(value))
        *to = json_number_value(value);
    else
        refuse(config, key, "is not a number");
}

static void take_field(const struct config *config, const struct config_field *field,
                       const json_t *value) {
    void *to = (char *)config->options + field->offset;
    if (field->kind == SIZE)
        take_size(config, field->key, value, to);
    else if (field->kind == REAL)
        take_real(config, field->key, value, to);
    else if (json_is_boolean(value))
        *(bool *)to = json_is_true(value);
    else
        refuse(config, field->key, "is neither true nor false");
}

static void take_fields(const struct config *config) {
    for (size_t i = 0; i < WEIR__COUNT_OF(fields); i++) {
        const json_t *value = json_object_get(config->root, fields[i].key);
        bool there = value != NULL && !json_is_null(value);
        if (there && (fields[i].families & config->family) != 0)
            take_field(config, &fields[i], value);
        else if (!there && fields[i].required)
            refuse(config, fields[i].key, "is missing");
    }
}

/* ---- fields that are not known ---- */

static bool is_known(const struct config *config, const char *key) {
    for (size_t i = 0; i < WEIR__COUNT_OF(fields); i++)
        if (strcmp(key, fields[i].key) == 0) return (fields[i].families & config->family) != 0;
    for (size_t i = 0; i < WEIR__COUNT_OF(silent); i++)
        if (strcmp(key, silent[i]) == 0) return true;
    return false;
}

/** Numbers by value: 0 is 0.0. */
static bool is_value(const json_t *value, const char *text) {
    json_t *wanted = json_loads(text, JSON_DECODE_ANY, NULL);
    bool same = json_is_number(value) && json_is_number(wanted)
                    ? json_number_value(value) == json_number_value(wanted)
                    : json_equal(value, wanted) != 0;
    json_decref(wanted);
    return same;
}

static void check_field(const struct config *config, const char *key, const json_t *value) {
    for (size_t i = 0; i < WEIR__COUNT_OF(fixed); i++) {
        char why[96];
        if (strcmp(key, fixed[i].key) != 0) continue;
        snprintf(why, sizeof why, "is only known as %s", fixed[i].value);
        if (!is_value(value, fixed[i].value)) refuse(config, key, why);
        return;
    }
    if (!is_known(config, key) && !json_is_null(value) && !json_is_false(value))
        refuse(config, key, "is not known: what it changes would be left out");
}

/* ---- positions ---- */

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static void take_llama3(const struct config *config, const json_t *scaling) {
    struct weir_decoder_options *to = config->options;
    take_real(config, "factor", json_object_get(scaling, "factor"), &to->rope_factor);
    take_real(config, "low_freq_factor", json_object_get(scaling, "low_freq_factor"),
              &to->rope_low);
    take_real(config, "high_freq_factor", json_object_get(scaling, "high_freq_factor"),
              &to->rope_high);
    take_size(config, "original_max_position_embeddings",
              json_object_get(scaling, "original_max_position_embeddings"), &to->rope_original);
    if (!(to->rope_high > to->rope_low))
        refuse(config, "high_freq_factor", "is not above \"low_freq_factor\"");
}

/** "rope_scaling", or, of later versions, "rope_parameters". */
static void take_positions(const struct config *config) {
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    for (size_t i = 0; i < WEIR__COUNT_OF(keys); i++) {
        const json_t *scaling = json_object_get(config->root, keys[i]);
        if (scaling == NULL || json_is_null(scaling)) continue;
        const char *type = text_of(scaling, "rope_type");
        if (type[0] == '\0') type = text_of(scaling, "type");
        const json_t *theta = json_object_get(scaling, "rope_theta");
        if (theta != NULL) take_real(config, "rope_theta", theta, &config->options->rope_theta);
        if (strcmp(type, "llama3") == 0)
            take_llama3(config, scaling);
        else if (strcmp(type, "linear") == 0)
            take_real(config, "factor", json_object_get(scaling, "factor"),
                      &config->options->rope_factor);
        else if (strcmp(type, "default") != 0)
            refuse(config, keys[i], "is of a type that is not known: default, linear or llama3");
    }
}

/* ---- windows ---- */

/** Whether a "layer_types" says that all layers are of `type`. */
static bool all_layers_are(const json_t *types, const char *type) {
    size_t i;
    const json_t *value;
    json_array_foreach((json_t *)(uintptr_t)types, i, value) {
        const char *text = json_string_value(value);
        if (text == NULL || strcmp(text, type) != 0) return false;
    }
    return true;
}

/** Mistral's window holds for all layers; Qwen's is off unless it says otherwise. */
static void take_window(const struct config *config) {
    const json_t *window = json_object_get(config->root, "sliding_window");
    const json_t *types = json_object_get(config->root, "layer_types");
    const json_t *first = json_object_get(config->root, "max_window_layers");
    bool asked = json_is_true(json_object_get(config->root, "use_sliding_window"));
    bool there = window != NULL && !json_is_null(window);
    if (config->family == MISTRAL && there)
        take_size(config, "sliding_window", window, &config->options->window);
    else if (asked && there && json_integer_value(first) == 0 && first != NULL)
        take_size(config, "sliding_window", window, &config->options->window);
    else if (asked && there && json_integer_value(first) < config->options->layers)
        refuse(config, "max_window_layers", "gives only some layers a window: not known here");
    const char *wanted = config->options->window > 0 ? "sliding_attention" : "full_attention";
    if (types != NULL && !all_layers_are(types, wanted))
        refuse(config, "layer_types", "is not the same for all layers");
}

/* ---- the file ---- */

static bool find_family(struct config *config) {
    const char *type = text_of(config->root, "model_type");
    for (size_t i = 0; i < WEIR__COUNT_OF(families); i++)
        if (strcmp(type, families[i].name) == 0) config->family = families[i].family;
    if (config->family != 0) return true;
    weir_faults_add(
        config->faults,
        "%s: \"model_type\" \"%.40s\" is not known: llama, mistral, qwen2 and qwen3 are",
        config->path, type);
    return false;
}

static void take_all(struct config *config) {
    struct weir_decoder_options *options = config->options;
    const char *key;
    json_t *value;
    take_fields(config);
    json_object_foreach(config->root, key, value) check_field(config, key, value);
    take_size(config, "max_position_embeddings",
              json_object_get(config->root, "max_position_embeddings"), &config->most);
    if (options->kv_heads == 0) options->kv_heads = options->heads;
    if (options->head_size == 0 && options->heads > 0)
        options->head_size = options->width / options->heads;
    options->qkv_bias = config->family == QWEN2;
    options->qk_norm = config->family == QWEN3;
    take_positions(config);
    take_window(config);
}

/** The path of the folder's config.json, or false where it is too long. */
static bool path_in(const char *folder, char path[PATH_MAX]) {
    int length = snprintf(path, PATH_MAX, "%s/config.json", folder);
    return length > 0 && length < PATH_MAX;
}

bool decoder_config_is(const char *folder) {
    char path[PATH_MAX];
    struct stat facts;
    return path_in(folder, path) && stat(path, &facts) == 0;
}

int decoder_config_read(const char *folder, struct weir_decoder_options *options, uint32_t *most,
                        struct weir_faults *faults) {
    char path[PATH_MAX];
    json_error_t error;
    uint32_t before = faults->count;
    if (!path_in(folder, path)) {
        weir_faults_add(faults, "%.80s…: too long a path", folder);
        return WEIR_ERR_IO;
    }
    struct config config = {.path = path, .options = options, .faults = faults};
    *options = (struct weir_decoder_options)WEIR_DECODER_OPTIONS_INIT;
    config.root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(config.root)) {
        weir_faults_add(faults, "%s: no JSON object: %s", path,
                        config.root == NULL ? error.text : "something else");
        json_decref(config.root);
        return WEIR_ERR_CONFIG;
    }
    if (find_family(&config)) take_all(&config);
    json_decref(config.root);
    *most = config.most;
    return faults->count > before ? WEIR_ERR_CONFIG : WEIR_OK;
}
