/* SPDX-License-Identifier: MIT */
/*
 * Adapters of low rank (Hu et al., 2021): beside the frozen product W x stands scale * B (A
 * dropout(x)). Made of the ops that there are, so all back ends have it; the scale goes to the
 * narrow middle, where it costs next to nothing.
 */
#include "net/model/network.h"
#include "net/ops/rules.h"
#include "weir_models.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char weight_end[] = ".weight", down_end[] = ".lora_A.weight",
                  up_end[] = ".lora_B.weight", all_linear[] = "all-linear";

size_t weir__product_name(const char *parameter, bool adapter) {
    const char *end = adapter ? down_end : weight_end;
    size_t length = strlen(parameter), more = strlen(end);
    bool ends = length > more && strcmp(parameter + length - more, end) == 0;
    return ends ? length - more : 0;
}

bool weir__lora_takes(const char *pattern, const char *product, bool head) {
    if (strcmp(pattern, all_linear) == 0) return !head;
    for (const char *part = product; part != NULL;) {
        if (fnmatch(pattern, part, 0) == 0) return true;
        part = strchr(part, '.');
        if (part != NULL) part++;
    }
    return false;
}

static bool is_head(const struct weir_layer *layer) {
    return layer->type == &weir__layer_decoder_head || layer->type == &weir__layer_gpt_head ||
           layer->type == &weir__layer_gpt_residual_head;
}

/** Whether the model's adapters stand beside the product by this weight, whose name without its end
 * has `length` bytes. A tied weight is another layer's. */
static bool is_taken(const struct weir_builder *builder,
                     const struct weir__parameter_decl *parameter, size_t length) {
    const struct weir_lora *lora = builder->network->model->lora;
    char name[256];
    bool own = parameter->layer == builder->layer_index && parameter->original == WEIR__NONE;
    if (lora == NULL || parameter->adapter || !own || length == 0) return false;
    snprintf(name, sizeof name, "%.*s", (int)length, parameter->name);
    for (uint32_t i = 0; i < lora->target_count; i++)
        if (weir__lora_takes(lora->targets[i], name, is_head(builder->layer))) return true;
    return false;
}

/** One of an adapter's two products: by [out, in], the parameter of the product's name with `end`.
 */
static struct weir_value *part(struct weir_builder *builder, struct weir_value *x,
                               const struct weir__parameter_decl *of, const char *end, int64_t out,
                               struct weir_init init) {
    char local[256];
    if (x == NULL) return NULL;
    int64_t shape[] = {out, weir__value_width(x)};
    int length = (int)weir__product_name(of->local, false);
    snprintf(local, sizeof local, "%.*s%s", length, of->local, end);
    struct weir_value *weight = weir__adapter_parameter(builder, local, 2, shape, init);
    return weight == NULL ? NULL : weir_linear(builder, x, weight, NULL, false);
}

struct weir_value *weir__adapted(struct weir_builder *builder, struct weir_value *x,
                                 const struct weir_value *weight, struct weir_value *y) {
    const struct weir_lora *lora = builder->network->model->lora;
    if (lora == NULL || y == NULL || weight->source != WEIR__FROM_PARAMETER) return y;
    /* a copy: parameters that come move the list */
    const struct weir__parameter_decl of = builder->network->parameters[weight->index];
    if (!is_taken(builder, &of, weir__product_name(of.name, false))) return y;
    double rank = (double)lora->rank;
    struct weir_init init = {WEIR_INIT_UNIFORM, 1 / sqrt((double)weir__value_width(x))};
    struct weir_value *h = lora->dropout > 0 ? weir_dropout(builder, x, lora->dropout) : x;
    h = part(builder, h, &of, down_end, (int64_t)lora->rank, init);
    if (h == NULL) return NULL;
    h = weir__scale(builder, h, lora->alpha / (lora->rslora ? sqrt(rank) : rank));
    h = part(builder, h, &of, up_end, weir__value_width(y), (struct weir_init){WEIR_INIT_ZERO, 0});
    return weir_sum(builder, y, h);
}
