/* SPDX-License-Identifier: MIT */
/* The model: a list of layers that grows, checked as it grows where that needs no shapes. */
#include "net/model/layer.h"
#include "weir_models.h"

#include <ctype.h>
#include <float.h>
#include <stdio.h>
#include <string.h>

static bool valid_row(const struct weir_tensor *tensor) {
    size_t bytes;
    return weir__tensor_bytes(tensor, 1, &bytes) == WEIR_OK;
}

static const char *const loss_names[] = {
    [WEIR__LOSS_NONE] = NULL,
    [WEIR__LOSS_CROSS_ENTROPY] = "cross_entropy",
    [WEIR__LOSS_MSE] = "mse",
    [WEIR__LOSS_BCE] = "bce_with_logits",
};

static bool parse_loss(const char *loss, struct weir_model *model) {
    if (loss == NULL) return true;
    for (uint32_t i = WEIR__LOSS_NONE + 1; i < WEIR__COUNT_OF(loss_names); i++)
        if (strcmp(loss, loss_names[i]) == 0) model->loss = (enum weir__loss_kind)i;
    return model->loss != WEIR__LOSS_NONE;
}

int weir_model_new(const struct weir_allocator *allocator, const struct weir_tensor *input,
                   const struct weir_tensor *target, const char *loss, struct weir_model **model) {
    assert(input != NULL && model != NULL);
    if (!valid_row(input) || (target != NULL && !valid_row(target))) return WEIR_ERR_SHAPE;
    if (loss != NULL && target == NULL) return WEIR_ERR_LOSS;
    struct weir_model *made = weir__acquire(allocator, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    weir__pool_init(&made->pool, allocator);
    weir__name_set_init(&made->identities, &made->pool);
    made->allocator = allocator;
    made->input = *input;
    made->has_target = target != NULL && loss != NULL;
    made->target = target != NULL ? *target : (struct weir_tensor){.dtype = WEIR_I64};
    made->ignore_index = -100;
    if (!parse_loss(loss, made)) {
        weir_model_destroy(made);
        return WEIR_ERR_LOSS;
    }
    *model = made;
    return WEIR_OK;
}

void weir_model_destroy(struct weir_model *model) {
    if (model == NULL) return;
    const struct weir_allocator *allocator = model->allocator;
    weir__pool_clean_up(&model->pool);
    weir__release(allocator, model, 1, sizeof *model);
}

void weir_model_ignore_index(struct weir_model *model, int64_t ignore_index) {
    assert(model != NULL);
    model->ignore_index = ignore_index;
}

/* ---- adding ---- */

static bool is_number(const char *name) {
    for (const char *c = name; *c != '\0'; c++)
        if (!isdigit((unsigned char)*c)) return false;
    return name[0] != '\0';
}

/** Names are printed, and stand in files. */
static bool has_control(const char *name) {
    for (const char *c = name; *c != '\0'; c++)
        if (iscntrl((unsigned char)*c)) return true;
    return false;
}

const char *weir__model_next(const struct weir_model *model, char text[192]) {
    bool placed = model->place != NULL;
    snprintf(text, 192, "%u%s%s", model->layer_count, placed ? " at " : "",
             placed ? model->place : "");
    return text;
}

static int check_name(const struct weir_model *model, const char *name,
                      struct weir_faults *faults) {
    char next[192];
    assert(name != NULL);
    if (name[0] == '\0') return WEIR_OK;
    if (has_control(name)) {
        weir_faults_add(faults,
                        "layer %s: its name holds a control character: use letters, "
                        "digits and signs that can be seen",
                        weir__model_next(model, next));
        return WEIR_ERR_ARGUMENT;
    }
    if (is_number(name) || strlen(name) > 48) {
        weir_faults_add(faults, "layer %s: its name '%.60s' %s", weir__model_next(model, next),
                        name,
                        is_number(name) ? "is a number, which is another layer's index"
                                        : "is longer than 48 bytes");
        return WEIR_ERR_ARGUMENT;
    }
    uint32_t other = weir__name_set_find(&model->identities, name);
    if (other == WEIR__NO_NAME) return WEIR_OK;
    weir_faults_add(faults, "layer %s: the name '%s' is layer %u's already: a layer is added once",
                    weir__model_next(model, next), name, other);
    return WEIR_ERR_EXISTS;
}

/** How many layers of the type there are. It looks from the end, where the last one knows. */
static uint32_t count_type(const struct weir_model *model, const struct weir_layer_type *type) {
    for (uint32_t i = model->layer_count; i-- > 0;)
        if (model->layers[i]->type == type) return model->layers[i]->ordinal + 1;
    return 0;
}

/** Identity, prefix and label follow from name, index and type. */
static int name_layer(struct weir_model *model, struct weir_layer *layer, const char *name) {
    assert(layer->type != NULL && name != NULL);
    char identity[64], prefix[72], next[192], label[256];
    bool named = name[0] != '\0', bare = layer->type->prefix == WEIR_PREFIX_NONE && !named;
    if (named)
        snprintf(identity, sizeof identity, "%s", name);
    else if (layer->type->prefix == WEIR_PREFIX_ORDINAL)
        snprintf(identity, sizeof identity, "h.%u", layer->ordinal);
    else
        snprintf(identity, sizeof identity, "%u", layer->index);
    snprintf(prefix, sizeof prefix, "%s.", identity);
    bool by_index = !named && layer->type->prefix != WEIR_PREFIX_ORDINAL;
    weir__model_next(model, next);
    if (by_index)
        snprintf(label, sizeof label, "%s (%.30s)", next, layer->type->name);
    else
        snprintf(label, sizeof label, "%s '%.28s' (%.20s)", next, identity, layer->type->name);
    layer->label = weir__pool_text(&model->pool, label);
    layer->name = weir__pool_text(&model->pool, name);
    layer->identity = weir__pool_text(&model->pool, identity);
    layer->prefix = weir__pool_text(&model->pool, bare ? "" : prefix);
    bool enough = layer->name != NULL && layer->identity != NULL && layer->prefix != NULL &&
                  layer->label != NULL;
    return enough ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

enum { LAYER_USES_MAX = 64 }; /* a builder's mask has a bit for each */

/** The i-th use of a skip; false behind the last. `text` may get its name. */
static bool skip_use_at(const struct weir_layer *layer, uint32_t i, struct weir_skip_use *use,
                        char text[32]) {
    const struct weir_layer_type *type = layer->type;
    *use = (struct weir_skip_use){.name = "", .name_space = ""};
    if (type->skip_at != NULL) return i < LAYER_USES_MAX && type->skip_at(layer, i, use, text);
    if (i >= type->skip_count) return false;
    const struct weir_skip_rule *rule = &type->skips[i];
    use->verb = rule->verb;
    use->name = weir_layer_text(layer, rule->name_key);
    if (rule->name_space_key != NULL)
        use->name_space = weir_layer_text(layer, rule->name_space_key);
    return true;
}

static int list_skips(struct weir__pool *pool, struct weir_layer *layer) {
    char text[32];
    struct weir_skip_use use, *list;
    uint32_t count = 0;
    while (skip_use_at(layer, count, &use, text)) count++;
    layer->skip_count = count;
    layer->skips = list = weir__pool_take(pool, count, sizeof list[0]);
    if (list == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        skip_use_at(layer, i, &list[i], text);
        list[i].name = weir__pool_text(pool, list[i].name);
        list[i].name_space = weir__pool_text(pool, list[i].name_space);
        if (list[i].name == NULL || list[i].name_space == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    }
    return WEIR_OK;
}

int weir__model_add_layer(struct weir_model *model, const struct weir_layer_type *type,
                          const char *name, struct weir_attrs attrs, struct weir_faults *faults) {
    assert(type->build != NULL && type->skip_count <= WEIR_LAYER_SKIPS_MAX);
    if (name == NULL) name = "";
    int status = check_name(model, name, faults);
    if (status != WEIR_OK) return status;
    void *list = model->layers;
    struct weir_layer *layer = weir__pool_take(&model->pool, 1, sizeof *layer);
    if (layer != NULL)
        layer->misused_key = weir__pool_take(&model->pool, 1, sizeof *layer->misused_key);
    if (layer == NULL || layer->misused_key == NULL ||
        !weir__pool_grow(&model->pool, &list, model->layer_count, &model->layer_capacity,
                         sizeof model->layers[0]))
        return WEIR_ERR_OUT_OF_MEMORY;
    model->layers = list;
    layer->type = type;
    layer->index = model->layer_count;
    layer->ordinal = count_type(model, type);
    if ((status = name_layer(model, layer, name)) != WEIR_OK) return status;
    status = weir__attrs_copy(&model->pool, type, layer->label, attrs, &layer->attrs, faults);
    if (status != WEIR_OK) return status;
    if ((status = list_skips(&model->pool, layer)) != WEIR_OK) return status;
    bool is_new = weir__name_set_find(&model->identities, layer->identity) == WEIR__NO_NAME;
    if (is_new && !weir__name_set_add(&model->identities, layer->identity, layer->index))
        return WEIR_ERR_OUT_OF_MEMORY;
    layer->frozen = weir_layer_flag(layer, "frozen");
    assert(model->layer_count < model->layer_capacity);
    model->layers[model->layer_count++] = layer;
    return WEIR_OK;
}

/** "nn.LayerNorm" or "LayerNorm" of a type. */
static bool is_torch_name(const struct weir_layer_type *type, const char *name) {
    static const char package[] = "nn.";
    assert(type->torch == NULL || strlen(type->torch) > strlen(package));
    if (type->torch == NULL) return false;
    bool full = strncmp(name, package, strlen(package)) == 0;
    return strcmp(name + (full ? strlen(package) : 0), type->torch + strlen(package)) == 0;
}

enum { TYPES_MAX = 96 };

static void fault_unknown_type(const struct weir_model *model, const char *name,
                               struct weir_faults *faults) {
    const char *names[TYPES_MAX + 1], *nearest = NULL;
    char list[768], next[192];
    size_t used = 0;
    uint32_t count = 0;
    const struct weir_layer_type *type;
    for (uint32_t i = 0; (type = weir_layer_type_at(i)) != NULL; i++) {
        int more = snprintf(list + used, sizeof list - used, "%s%s", i == 0 ? "" : " ", type->name);
        used += more > 0 && used + (size_t)more < sizeof list ? (size_t)more : 0;
        assert(count < TYPES_MAX);
        names[count++] = type->name;
        if (is_torch_name(type, name)) nearest = type->name;
    }
    for (uint32_t i = 0; i < model->type_count && count < TYPES_MAX; i++)
        names[count++] = model->types[i]->name;
    names[count] = NULL;
    if (nearest == NULL) nearest = weir__nearest(name, names);
    weir__model_next(model, next);
    if (nearest != NULL)
        weir_faults_add(faults, "layer %s: there is no type '%.60s': did you mean '%s'?", next,
                        name, nearest);
    else
        weir_faults_add(faults, "layer %s: there is no type '%.60s'; types are: %s", next, name,
                        list);
}

int weir_model_add(struct weir_model *model, const char *type, const char *name,
                   struct weir_attrs attributes, struct weir_faults *faults) {
    const struct weir_layer_type *found = weir__model_type(model, type);
    if (found != NULL && found->build != NULL)
        return weir__model_add_layer(model, found, name, attributes, faults);
    char next[192];
    if (found == NULL)
        fault_unknown_type(model, type, faults);
    else
        weir_faults_add(faults, "layer %s: a %s stands in files only: add its layers",
                        weir__model_next(model, next), type);
    return WEIR_ERR_ARGUMENT;
}

const struct weir_layer_type *weir__model_type(const struct weir_model *model, const char *name) {
    const struct weir_layer_type *type;
    for (uint32_t i = 0; (type = weir_layer_type_at(i)) != NULL; i++)
        if (strcmp(type->name, name) == 0) return type;
    for (uint32_t i = 0; i < model->type_count; i++)
        if (strcmp(model->types[i]->name, name) == 0) return model->types[i];
    return NULL;
}

/** `key` is an attribute that always has a text. */
static bool names_text(const struct weir_layer_type *type, const char *key) {
    for (uint32_t i = 0; key != NULL && i < type->attr_count; i++) {
        const struct weir_attr_rule *rule = &type->attrs[i];
        if (strcmp(rule->key, key) == 0)
            return rule->kind == WEIR_ATTR_KIND_TEXT && (rule->required || rule->text != NULL);
    }
    return false;
}

int weir_model_add_type(struct weir_model *model, const struct weir_layer_type *type) {
    if (type->name == NULL || type->build == NULL || type->skip_count > WEIR_LAYER_SKIPS_MAX)
        return WEIR_ERR_ARGUMENT;
    for (uint32_t i = 0; i < type->skip_count; i++)
        if (!names_text(type, type->skips[i].name_key) ||
            (type->skips[i].name_space_key != NULL &&
             !names_text(type, type->skips[i].name_space_key)))
            return WEIR_ERR_ARGUMENT;
    if (weir__model_type(model, type->name) != NULL) return WEIR_ERR_EXISTS;
    void *list = model->types;
    if (!weir__pool_grow(&model->pool, &list, model->type_count, &model->type_capacity,
                         sizeof model->types[0]))
        return WEIR_ERR_OUT_OF_MEMORY;
    model->types = list;
    model->types[model->type_count++] = type;
    return WEIR_OK;
}

int weir_model_freeze(struct weir_model *model, const char *pattern) {
    if (pattern == NULL || pattern[0] == '\0') return WEIR_ERR_ARGUMENT;
    void *list = model->freezes;
    const char *copy = weir__pool_text(&model->pool, pattern);
    if (copy == NULL || !weir__pool_grow(&model->pool, &list, model->freeze_count,
                                         &model->freeze_capacity, sizeof model->freezes[0]))
        return WEIR_ERR_OUT_OF_MEMORY;
    model->freezes = list;
    model->freezes[model->freeze_count++] = copy;
    return WEIR_OK;
}

const char *weir_model_freeze_pattern(const struct weir_model *model, uint32_t index) {
    return index < model->freeze_count ? model->freezes[index] : NULL;
}

int weir_model_lora(struct weir_model *model, const struct weir_lora *lora) {
    bool real = lora->alpha > 0 && lora->alpha <= DBL_MAX;
    if (lora->rank < 1 || lora->target_count < 1 || !real || model->lora != NULL)
        return WEIR_ERR_ARGUMENT;
    if (!(lora->dropout >= 0 && lora->dropout < 1)) return WEIR_ERR_ARGUMENT;
    struct weir_lora *copy = weir__pool_take(&model->pool, 1, sizeof *copy);
    const char **targets = weir__pool_take(&model->pool, lora->target_count, sizeof *targets);
    if (copy == NULL || targets == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    *copy = *lora;
    for (uint32_t i = 0; i < lora->target_count; i++) {
        if (lora->targets[i] == NULL || lora->targets[i][0] == '\0') return WEIR_ERR_ARGUMENT;
        targets[i] = weir__pool_text(&model->pool, lora->targets[i]);
        if (targets[i] == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    }
    copy->targets = targets;
    model->lora = copy;
    return WEIR_OK;
}

const struct weir_lora *weir_model_adapters(const struct weir_model *model) {
    return model->lora;
}

/* ---- asking ---- */

uint32_t weir_model_layer_count(const struct weir_model *model) {
    return model->layer_count;
}

int weir_model_layer(const struct weir_model *model, uint32_t index, const char **type,
                     const char **name, struct weir_attrs *attributes) {
    if (index >= model->layer_count) return WEIR_ERR_NOT_FOUND;
    const struct weir_layer *layer = model->layers[index];
    if (type != NULL) *type = layer->type->name;
    if (name != NULL) *name = layer->name;
    if (attributes != NULL) *attributes = layer->attrs;
    return WEIR_OK;
}

void weir_model_border(const struct weir_model *model, struct weir_tensor *input,
                       struct weir_tensor *target, const char **loss) {
    *input = model->input;
    *target = model->target;
    *loss = loss_names[model->loss];
}

int64_t weir_model_ignored(const struct weir_model *model) {
    return model->ignore_index;
}
