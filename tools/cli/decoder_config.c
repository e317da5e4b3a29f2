/* SPDX-License-Identifier: MIT */
/* One table says what each field means; what no row names is refused. */
#include "cli/decoder_config.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "io/file.h"

#define CONFIG "config.json"
enum { LAYERS_MOST = 4096 };
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
    {"num_key_value_heads", SIZE, AT(kv_heads), ALL, false}, /* llama alone has a default */
    {"head_dim", SIZE, AT(head_size), ALL, false},           /* all but qwen3 */
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

/** Fields of which only one value is known, wherever they stand. */
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

/** An option that other families have is one that this one lacks. */
static bool is_known(const struct config *config, const char *key, const json_t *value) {
    for (size_t i = 0; i < WEIR__COUNT_OF(fields); i++)
        if (strcmp(key, fields[i].key) == 0)
            return (fields[i].families & config->family) != 0 || json_is_false(value);
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

/** Whether it is one of `fixed`; refused where it has another value. */
static bool is_fixed(const struct config *config, const char *key, const json_t *value) {
    char why[96];
    size_t i = 0;
    while (i < WEIR__COUNT_OF(fixed) && strcmp(key, fixed[i].key) != 0) i++;
    if (i == WEIR__COUNT_OF(fixed)) return false;
    snprintf(why, sizeof why, "is only known as %s", fixed[i].value);
    if (!is_value(value, fixed[i].value)) refuse(config, key, why);
    return true;
}

static void check_field(const struct config *config, const char *key, const json_t *value) {
    if (!is_fixed(config, key, value) && !is_known(config, key, value))
        refuse(config, key, "is not known: what it changes would be left out");
}

/* ---- positions ---- */

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/** Fields of what says how positions are scaled, by its type. */
static const struct {
    const char *type;
    const char *keys[5];
} scalings[] = {
    {"default", {NULL}},
    {"linear", {"factor"}},
    {"llama3",
     {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}},
};

/** Which of `scalings`; their count for none. */
static size_t find_scaling(const json_t *scaling) {
    const char *type = text_of(scaling, "rope_type");
    if (type[0] == '\0') type = text_of(scaling, "type");
    size_t i = 0;
    while (i < WEIR__COUNT_OF(scalings) && strcmp(type, scalings[i].type) != 0) i++;
    return i;
}

static bool has_key(const char *const *keys, const char *key) {
    static const char *const of_all[] = {"rope_type", "type", "rope_theta", NULL};
    for (size_t i = 0; of_all[i] != NULL; i++)
        if (strcmp(of_all[i], key) == 0) return true;
    for (; *keys != NULL; keys++)
        if (strcmp(*keys, key) == 0) return true;
    return false;
}

static void take_scaling(const struct config *config, const char *name, json_t *scaling) {
    struct weir_decoder_options *to = config->options;
    size_t type = find_scaling(scaling);
    const char *key;
    json_t *value;
    if (type == WEIR__COUNT_OF(scalings)) {
        refuse(config, name, "is of a type that is not known: default, linear or llama3");
        return;
    }
    json_object_foreach(scaling, key, value) {
        if (strcmp(key, "rope_theta") == 0) take_real(config, key, value, &to->rope_theta);
        if (!has_key(scalings[type].keys, key) && !is_fixed(config, key, value))
            refuse(config, key, "is not known of such positions");
    }
    if (type >= 1)
        take_real(config, "factor", json_object_get(scaling, "factor"), &to->rope_factor);
    if (type < 2) return;
    take_real(config, "low_freq_factor", json_object_get(scaling, "low_freq_factor"),
              &to->rope_low);
    take_real(config, "high_freq_factor", json_object_get(scaling, "high_freq_factor"),
              &to->rope_high);
    take_size(config, "original_max_position_embeddings",
              json_object_get(scaling, "original_max_position_embeddings"), &to->rope_original);
    if (!(to->rope_low > 0 && to->rope_high > to->rope_low))
        refuse(config, "high_freq_factor", "is not above \"low_freq_factor\", or that not above 0");
}

/** "rope_scaling", or, of later versions, "rope_parameters". */
static void take_positions(const struct config *config) {
    json_t *scaling = json_object_get(config->root, "rope_scaling");
    json_t *parameters = json_object_get(config->root, "rope_parameters");
    bool old = scaling != NULL && !json_is_null(scaling);
    bool new = parameters != NULL && !json_is_null(parameters);
    if (old && new)
        refuse(config, "rope_scaling", "stands beside \"rope_parameters\": one of them is enough");
    else if (old || new)
        take_scaling(config, old ? "rope_scaling" : "rope_parameters", old ? scaling : parameters);
}

/* ---- windows ---- */

/** Whether a "layer_types" says that all layers are of `type`. */
static bool all_layers_are(const struct config *config, const json_t *types, const char *type) {
    if (!json_is_array(types) || json_array_size(types) != config->options->layers) return false;
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *text = json_string_value(json_array_get(types, i));
        if (text == NULL || strcmp(text, type) != 0) return false;
    }
    return true;
}

/** Qwen's window is off unless it says otherwise, and then holds from some layer on. */
static void take_qwens_window(const struct config *config, const json_t *window) {
    const json_t *first = json_object_get(config->root, "max_window_layers");
    if (!json_is_true(json_object_get(config->root, "use_sliding_window"))) return;
    if (!json_is_integer(first))
        refuse(config, "max_window_layers", "is not a whole number");
    else if (json_integer_value(first) == 0)
        take_size(config, "sliding_window", window, &config->options->window);
    else if (json_integer_value(first) < config->options->layers)
        refuse(config, "max_window_layers", "gives only some layers a window: not known here");
}

/** Mistral's window holds for all layers, llama has none. */
static void take_window(const struct config *config) {
    const json_t *window = json_object_get(config->root, "sliding_window");
    const json_t *types = json_object_get(config->root, "layer_types");
    if (config->family == MISTRAL && window == NULL)
        refuse(config, "sliding_window", "is missing: null means none");
    else if (config->family == MISTRAL && !json_is_null(window))
        take_size(config, "sliding_window", window, &config->options->window);
    else if ((config->family & (QWEN2 | QWEN3)) != 0)
        take_qwens_window(config, window);
    const char *wanted = config->options->window > 0 ? "sliding_attention" : "full_attention";
    if (types != NULL && !json_is_null(types) && !all_layers_are(config, types, wanted))
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
    if (options->kv_heads == 0 && config->family != LLAMA)
        refuse(config, "num_key_value_heads", "is missing");
    if (options->head_size == 0 && config->family == QWEN3)
        refuse(config, "head_dim", "is missing");
    if (options->kv_heads == 0) options->kv_heads = options->heads;
    if (options->head_size == 0 && options->heads > 0)
        options->head_size = options->width / options->heads;
    if (options->layers > LAYERS_MOST) refuse(config, "num_hidden_layers", "is above 4096");
    options->qkv_bias = config->family == QWEN2;
    options->qk_norm = config->family == QWEN3;
    take_positions(config);
    take_window(config);
}

bool decoder_config_is(const char *folder) {
    char path[PATH_MAX];
    return weir__folder_has(&(struct weir__io){0}, folder, CONFIG, path);
}

int decoder_config_read(const char *folder, struct weir_decoder_options *options, uint32_t *most,
                        struct weir_faults *faults) {
    char path[PATH_MAX];
    json_error_t error;
    uint32_t before = faults->count;
    struct weir_error long_path = {0};
    if (weir__path_join(&(struct weir__io){.error = &long_path}, folder, CONFIG, path) != WEIR_OK) {
        weir_faults_add(faults, "%s", long_path.message);
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
