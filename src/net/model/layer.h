/* SPDX-License-Identifier: MIT */
/**
 * Layers as data: types, which are entries of one table, and the model, a list of layers. A type
 * says which attributes it takes, which skips it uses, and how it builds. A new type is a new
 * entry.
 */
#ifndef WEIR_NET_LAYER_H
#define WEIR_NET_LAYER_H

#include "base/name_set.h"
#include "net/model/builder.h"

struct weir_layer {
    const struct weir_layer_type *type;
    const char *name; /**< as given; "" if none */
    uint32_t index;
    uint32_t ordinal;        /**< layers of this type before it */
    struct weir_attrs attrs; /**< as given */
    const char *identity;    /**< "h.3" or "4": what messages and masks call it */
    const char *prefix;      /**< "h.3.", "4." or "": what its parameters' names begin with */
    const char *label;       /**< "5 'h.3' (gpt_block)", or "4 (relu)" without a name */
    const struct weir_skip_use *skips; /**< verb, name and namespace of each, as its type says */
    uint32_t skip_count;
    bool frozen; /**< its parameters do not learn */
    /** The attribute that its build function asked for without its type listing it, or as another
     * kind; the function's text. NULL: none. In the model's pool. */
    _Atomic(const char *) *misused_key;
};

struct weir_model {
    struct weir__pool pool;
    const struct weir_allocator *allocator;
    struct weir_tensor input, target;
    bool has_target;
    enum weir__loss_kind {
        WEIR__LOSS_NONE,
        WEIR__LOSS_CROSS_ENTROPY,
        WEIR__LOSS_MSE,
        WEIR__LOSS_BCE
    } loss;
    int64_t ignore_index;
    struct weir_layer **layers;
    uint32_t layer_count, layer_capacity;
    struct weir__name_set identities;     /**< of the layers, the first with each */
    const struct weir_layer_type **types; /**< the user's */
    uint32_t type_count, type_capacity;
    const char **freezes; /**< patterns of parameters' names */
    uint32_t freeze_count, freeze_capacity;
    const struct weir_lora *lora; /**< NULL: no adapters */
    const char
        *place; /**< of the next layer in its file, where its index does not say it; or NULL */
};

/* Entries of types: */
#define WEIR__ATTRS(list) .attrs = list, .attr_count = sizeof(list) / sizeof((list)[0])
/** PyTorch's name, and a row's shape before and after. */
#define WEIR__SAYS(torch_, input_, output_) .torch = torch_, .input = input_, .output = output_
/** From 1 on, to be given. */
#define WEIR__SIZE(name)                                                                           \
    { .key = name, .kind = WEIR_ATTR_KIND_INT, .required = true, .least = 1 }
#define WEIR__OF_INPUT(name, dimension)                                                            \
    { .key = name, .kind = WEIR_ATTR_KIND_INT, .least = 1, .of_input = dimension }
/** How an embedding's numbers are drawn: as PyTorch's, or otherwise. */
#define WEIR__INIT_STD                                                                             \
    { .key = "init_std", .kind = WEIR_ATTR_KIND_REAL, .real = 1, .below = 1e30, .later = true }
/** PyTorch's attribute of which only the case `value` is offered. */
#define WEIR__ONLY_INT(name, value)                                                                \
    { .key = name, .kind = WEIR_ATTR_KIND_INT, .integer = value, .least = value, .fixed = true }
#define WEIR__ONLY_ZERO(name)                                                                      \
    { .key = name, .kind = WEIR_ATTR_KIND_REAL, .below = 1, .fixed = true }
#define WEIR__ONLY_PAIR(name, value)                                                               \
    { .key = name, .kind = WEIR_ATTR_KIND_PAIR, .integer = value, .least = value, .fixed = true }
#define WEIR__ONLY_FLAG(name, value)                                                               \
    { .key = name, .kind = WEIR_ATTR_KIND_FLAG, .integer = value, .fixed = true }
#define WEIR__ONLY_TEXT(name, value)                                                               \
    { .key = name, .kind = WEIR_ATTR_KIND_TEXT, .text = value, .choices = value, .fixed = true }

/** A type by name: the table's or the model's own; NULL if there is none. */
const struct weir_layer_type *weir__model_type(const struct weir_model *model, const char *name);
/** Entries of the table that stand in layers_image.c. */
extern const struct weir_layer_type *const weir__image_layers[];
extern const uint32_t weir__image_layer_count;
/** Entries of the table that stand in gpt.c. */
extern const struct weir_layer_type weir__layer_gpt_embedding;
extern const struct weir_layer_type weir__layer_gpt_block;
extern const struct weir_layer_type weir__layer_gpt_head;
/** Entries that stand in gpt_residual.c. */
extern const struct weir_layer_type weir__layer_gpt_residual_embedding;
extern const struct weir_layer_type weir__layer_gpt_residual_block;
extern const struct weir_layer_type weir__layer_gpt_residual_head;
/** Entries that stand in decoder.c. */
extern const struct weir_layer_type weir__layer_packed_embedding;
extern const struct weir_layer_type weir__layer_decoder_block;
extern const struct weir_layer_type weir__layer_decoder_head;
/** Whether the input is of packed rows: i64 [2, tokens] (net/kernel.h). With sequences it is one
 * token, and rows are whole. */
bool weir__model_is_packed(const struct weir_model *model);
/** Entries that stand in resnet.c and amoebanet.c. */
extern const struct weir_layer_type weir__layer_residual;
extern const struct weir_layer_type weir__layer_amoeba_stem;
extern const struct weir_layer_type weir__layer_amoeba_first_cell;
extern const struct weir_layer_type weir__layer_amoeba_cell;
extern const struct weir_layer_type weir__layer_amoeba_last_cell;
extern const struct weir_layer_type weir__layer_amoeba_classify;
/** Whether adapters with this pattern stand beside the product of this name; `head`: it ends the
 * model. */
bool weir__lora_takes(const char *pattern, const char *product, bool head);
/** Bytes of a product's name "….weight", 0 for another one; of an adapter's "….lora_A.weight". */
size_t weir__product_name(const char *parameter, bool adapter);
/** What files repeat (net/compile/model_file.h): it builds nothing, and models hold its layers. */
extern const struct weir_layer_type weir__layer_block;

/** A convolution without groups and bias, as composites have it: height and width. */
struct weir__conv_part {
    int64_t out, kernel[2], stride[2], padding[2];
    bool fan_out; /**< the weight begins as torchvision's do, not as PyTorch's default */
};
/** Its weight is the parameter `name`, which lives as long as the network. NULL for a NULL operand.
 */
struct weir_value *weir__build_conv(struct weir_builder *builder, struct weir_value *x,
                                    const char *name, const struct weir__conv_part *part);
/** Of nn.Linear's weight and bias. */
struct weir_init weir__linear_init(int64_t in_features);
/** What models of classes of images share: faults of their options, and a model without layers. */
bool weir__check_images(uint32_t classes, uint32_t height, uint32_t width,
                        struct weir_faults *faults);
int weir__classifier_new(const struct weir_allocator *allocator, uint32_t height, uint32_t width,
                         struct weir_model **model);

/** As weir_model_add, for a type that need not be in the table. The type must outlive the model. */
int weir__model_add_layer(struct weir_model *model, const struct weir_layer_type *type,
                          const char *name, struct weir_attrs attrs, struct weir_faults *faults);

/** A fault where a size that `layer` repeats is not its input's. */
void weir__attrs_check_input(struct weir_builder *builder, const struct weir_layer *layer,
                             const struct weir_value *x);
/** Whether x is [tokens, width], of the attribute "width"; else a fault. */
bool weir__layer_has_width(struct weir_builder *builder, const struct weir_layer *layer,
                           const struct weir_value *x);
/** "7", or "7 at layers[3].layers[1]": the next layer, for messages; into text, which it returns.
 */
const char *weir__model_next(const struct weir_model *model, char text[192]);
/** Checks what was given against the type's rules and copies it into `pool`. */
int weir__attrs_copy(struct weir__pool *pool, const struct weir_layer_type *type, const char *label,
                     struct weir_attrs given, struct weir_attrs *attrs, struct weir_faults *faults);

#endif
