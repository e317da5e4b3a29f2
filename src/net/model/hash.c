/* SPDX-License-Identifier: MIT */
/* What a list of layers is, as numbers that can be kept in a file and compared. */
#include "net/model/layer.h"
#include "weir_models.h"

#include <string.h>

static const struct weir_attr *given(const struct weir_layer *layer, const char *key) {
    for (uint32_t i = 0; i < layer->attrs.count; i++)
        if (strcmp(layer->attrs.list[i].key, key) == 0) return &layer->attrs.list[i];
    return NULL;
}

static uint64_t hash_text(uint64_t hash, const char *text) {
    if (text == NULL) text = "";
    return weir__hash(hash, text, strlen(text) + 1);
}

static uint64_t hash_integer(uint64_t hash, int64_t value) {
    return weir__hash(hash, &value, sizeof value);
}

static bool is_default(const struct weir_attr_rule *rule, const struct weir_attr *attr) {
    assert(rule->kind != WEIR_ATTR_KIND_INT && rule->kind != WEIR_ATTR_KIND_TEXT);
    if (attr == NULL) return true;
    if (rule->kind == WEIR_ATTR_KIND_REAL) return attr->real == rule->real;
    return attr->integer == rule->integer &&
           (rule->kind == WEIR_ATTR_KIND_FLAG || attr->second == rule->integer);
}

/** An attribute that was not given counts as its default, so a list that names the default has the
 * same hash. */
static void hash_attr(const struct weir_layer *layer, const struct weir_attr_rule *rule,
                      struct weir_layer_hash *hash) {
    if (rule->of_input != 0 || rule->fixed) return; /* says nothing that is not known without it */
    const struct weir_attr *attr = given(layer, rule->key);
    if (rule->later && is_default(rule, attr)) return;
    int64_t first = attr != NULL ? attr->integer : rule->integer;
    if (rule->kind == WEIR_ATTR_KIND_REAL) {
        double real = attr != NULL ? attr->real : rule->real;
        hash->numbers = weir__hash(hash_text(hash->numbers, rule->key), &real, sizeof real);
        return;
    }
    hash->form = hash_text(hash->form, rule->key);
    if (rule->kind == WEIR_ATTR_KIND_TEXT)
        hash->form = hash_text(hash->form, attr != NULL ? attr->text : rule->text);
    else
        hash->form = hash_integer(hash->form, first);
    if (rule->kind == WEIR_ATTR_KIND_PAIR)
        hash->form = hash_integer(hash->form, attr != NULL ? attr->second : first);
}

static uint64_t hash_tensor(uint64_t hash, const struct weir_tensor *tensor) {
    char text[128];
    return hash_text(hash, weir__tensor_text(tensor, text, sizeof text));
}

static void hash_lora(const struct weir_lora *lora, struct weir_layer_hash *hash) {
    const double numbers[] = {lora->alpha, lora->dropout};
    hash->form = hash_integer(hash->form, lora->rank);
    hash->form = hash_integer(hash->form, lora->rslora);
    for (uint32_t i = 0; i < lora->target_count; i++)
        hash->form = hash_text(hash->form, lora->targets[i]);
    hash->numbers = weir__hash(hash->numbers, numbers, sizeof numbers);
}

int weir_model_hash(const struct weir_model *model, uint32_t index, struct weir_layer_hash *hash) {
    assert(model != NULL && hash != NULL);
    if (index > model->layer_count) return WEIR_ERR_NOT_FOUND;
    *hash = (struct weir_layer_hash){WEIR__HASH_BEGIN, WEIR__HASH_BEGIN};
    if (index == model->layer_count) {
        hash->form = hash_tensor(hash->form, &model->input);
        hash->form = hash_tensor(hash->form, &model->target);
        hash->form = hash_integer(hash->form, model->has_target ? (int64_t)model->loss : -1);
        hash->numbers = hash_integer(hash->numbers, model->ignore_index);
        if (model->lora != NULL) hash_lora(model->lora, hash);
        return WEIR_OK;
    }
    const struct weir_layer *layer = model->layers[index];
    hash->form = hash_text(hash_text(hash->form, layer->type->name), layer->name);
    for (uint32_t i = 0; i < layer->type->attr_count; i++)
        hash_attr(layer, &layer->type->attrs[i], hash);
    return WEIR_OK;
}
