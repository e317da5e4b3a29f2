/* SPDX-License-Identifier: MIT */
/* Built from what the library says of a model, so that a built-in one and a file look the same. */
#include "cli/model_json.h"
#include "weir_models.h"

#include <string.h>

static json_t *tensor_json(const struct weir_tensor *tensor) {
    json_t *shape = json_array();
    for (uint32_t i = 0; i < tensor->rank; i++)
        json_array_append_new(shape, json_integer(tensor->shape[i]));
    return json_pack("{s:s, s:o}", "dtype", weir_dtype_name(tensor->dtype), "shape", shape);
}

static json_t *attribute_value(const struct weir_attr *attribute) {
    switch (attribute->kind) {
    case WEIR_ATTR_KIND_PAIR:
        if (attribute->integer == attribute->second) return json_integer(attribute->integer);
        return json_pack("[I, I]", (json_int_t)attribute->integer, (json_int_t)attribute->second);
    case WEIR_ATTR_KIND_INT: return json_integer(attribute->integer);
    case WEIR_ATTR_KIND_REAL: return json_real(attribute->real);
    case WEIR_ATTR_KIND_FLAG: return json_boolean(attribute->integer != 0);
    case WEIR_ATTR_KIND_TEXT: return json_string(attribute->text);
    }
    return NULL;
}

static json_t *layer_json(const struct weir_model *model, uint32_t index,
                          const struct weir_layer_facts *facts, uint64_t *parameters) {
    const char *type, *name;
    struct weir_attrs attributes;
    if (weir_model_layer(model, index, &type, &name, &attributes) != WEIR_OK) return NULL;
    json_t *layer = json_object();
    json_object_set_new(layer, "type", json_string(type));
    if (name[0] != '\0') json_object_set_new(layer, "name", json_string(name));
    for (uint32_t i = 0; i < attributes.count; i++)
        json_object_set_new(layer, attributes.list[i].key, attribute_value(&attributes.list[i]));
    json_t *output = tensor_json(&facts->output);
    json_object_set(layer, "output_shape", json_object_get(output, "shape"));
    json_decref(output);
    json_object_set_new(layer, "parameters", json_integer((json_int_t)facts->parameters));
    json_object_set_new(layer, "flops", json_integer((json_int_t)facts->flops));
    json_object_set_new(layer, "activation_bytes",
                        json_integer((json_int_t)facts->activation_bytes));
    *parameters += facts->parameters;
    return layer;
}

static json_t *freeze_json(const struct weir_model *model) {
    json_t *list = json_array();
    for (uint32_t i = 0; weir_model_freeze_pattern(model, i) != NULL; i++)
        json_array_append_new(list, json_string(weir_model_freeze_pattern(model, i)));
    return list;
}

static json_t *lora_json(const struct weir_lora *lora) {
    json_t *targets = json_array();
    for (uint32_t i = 0; i < lora->target_count; i++)
        json_array_append_new(targets, json_string(lora->targets[i]));
    return json_pack("{s:I, s:f, s:f, s:b, s:o}", "rank", (json_int_t)lora->rank, "alpha",
                     lora->alpha, "dropout", lora->dropout, "rslora", (int)lora->rslora, "targets",
                     targets);
}

json_t *model_json(const struct weir_model *model, const struct weir_layer_facts *facts,
                   const uint32_t *stages) {
    uint64_t parameters = 0;
    json_t *root = json_object(), *layers = json_array();
    struct weir_tensor input, target;
    const char *loss;
    weir_model_border(model, &input, &target, &loss);
    for (uint32_t i = 0; i < weir_model_layer_count(model); i++) {
        json_t *layer = layer_json(model, i, &facts[i], &parameters);
        if (stages != NULL) json_object_set_new(layer, "stage", json_integer(stages[i]));
        json_array_append_new(layers, layer);
    }
    json_object_set_new(root, "input", tensor_json(&input));
    json_object_set_new(root, "target", loss != NULL ? tensor_json(&target) : json_null());
    json_object_set_new(root, "layers", layers);
    json_object_set_new(root, "loss", loss != NULL ? json_string(loss) : json_null());
    if (loss != NULL && strcmp(loss, "cross_entropy") == 0)
        json_object_set_new(root, "ignore_index", json_integer(weir_model_ignored(model)));
    if (weir_model_freeze_pattern(model, 0) != NULL)
        json_object_set_new(root, "freeze", freeze_json(model));
    if (weir_model_adapters(model) != NULL)
        json_object_set_new(root, "lora", lora_json(weir_model_adapters(model)));
    json_object_set_new(root, "parameters", json_integer((json_int_t)parameters));
    return root;
}
