/* SPDX-License-Identifier: MIT */
/**
 * Layers as data: types, which are rows of one table, and the model, a list of layers. A type says
 * which attributes it takes, which skips it uses, and how it builds. Adding a type is adding a row.
 */
#ifndef WEIR_LAYER_H
#define WEIR_LAYER_H

#include "net/builder.h"
#include "weir_net.h"

#define WEIR__LAYER_SKIPS_MAX 4

/** An attribute that a type takes. */
struct weir_attr_rule {
    const char *key;
    enum weir_attr_kind kind;
    bool required;
    int64_t integer; /**< the default; FLAG: 0 or 1 */
    double real;
    const char *text;
    int64_t least;       /**< INT: the smallest value */
    double below;        /**< REAL: 0 <= value < below, where below > 0 */
    const char *choices; /**< TEXT: "none|tanh"; NULL: anything */
};

/** A skip that a type uses, whose name and namespace are attributes of the layer. */
struct weir_skip_rule {
    enum weir_skip_verb verb;
    const char *name_key;
    const char *name_space_key; /**< NULL: the default namespace */
};

/** What stands before a parameter's own name. */
enum weir__prefix {
    WEIR__PREFIX_INDEX,  /**< "4.": the layer's index */
    WEIR__PREFIX_NONE,   /**< nothing: "wte.weight" */
    WEIR__PREFIX_ORDINAL /**< "h.2.": how many of the type stand before */
};

struct weir_layer_type {
    const char *name;
    const struct weir_attr_rule *attrs;
    uint32_t attr_count;
    uint32_t skip_count;
    struct weir_skip_rule skips[WEIR__LAYER_SKIPS_MAX];
    enum weir__prefix prefix; /**< unless the layer has a name */
    bool composite;           /**< its dropouts are numbered: "mask.h.0.1" */
    struct weir_value *(*build)(struct weir_builder *builder, const struct weir_layer *layer,
                                struct weir_value *x);
};

struct weir_layer {
    const struct weir_layer_type *type;
    const char *name; /**< as given; "" if none */
    uint32_t index;
    uint32_t ordinal;        /**< layers of this type before it */
    struct weir_attrs attrs; /**< as given */
    const char *identity;    /**< "h.3" or "4": what messages and masks call it */
    const char *prefix;      /**< "h.3.", "4." or "": what its parameters' names begin with */
    char label[64];          /**< "h.3 (gpt_block)" */
};

struct weir_model {
    struct weir__pool pool;
    const struct weir_allocator *allocator;
    struct weir_tensor input, target;
    bool has_target;
    enum { WEIR__LOSS_NONE, WEIR__LOSS_CROSS_ENTROPY, WEIR__LOSS_MSE } loss;
    int64_t ignore_index;
    struct weir_layer **layers;
    uint32_t layer_count, layer_capacity;
};

/** The i-th type, NULL after the last. */
const struct weir_layer_type *weir__layer_type(uint32_t index);
/** Rows of the table that stand in gpt.c. */
extern const struct weir_layer_type weir__layer_gpt_embedding;
extern const struct weir_layer_type weir__layer_gpt_block;
extern const struct weir_layer_type weir__layer_gpt_head;

/** As weir_model_add, for a type that need not be in the table. The type must outlive the model. */
int weir__model_add(struct weir_model *model, const struct weir_layer_type *type, const char *name,
                    struct weir_attrs attrs, struct weir_faults *faults);

/** An attribute of the layer, or its default. The key must be one of the type's. */
int64_t weir_layer_int(const struct weir_layer *layer, const char *key);
double weir_layer_real(const struct weir_layer *layer, const char *key);
bool weir_layer_flag(const struct weir_layer *layer, const char *key);
const char *weir_layer_text(const struct weir_layer *layer, const char *key);

/** Checks what was given against the type's rules and copies it into `pool`. */
int weir__attrs_copy(struct weir__pool *pool, const struct weir_layer_type *type, const char *label,
                     struct weir_attrs given, struct weir_attrs *attrs, struct weir_faults *faults);

#endif
