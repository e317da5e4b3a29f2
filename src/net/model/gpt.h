/* SPDX-License-Identifier: MIT */
/**
 * What GPT-2's layers are made of: for gpt.c, and for gpt_residual.c, whose layers are the same but
 * for their residual stream. Attributes are gpt_block's.
 */
#ifndef WEIR_NET_GPT_H
#define WEIR_NET_GPT_H

#include "net/model/layer.h"

#define WEIR__GPT_DROPOUT                                                                          \
    { .key = "dropout", .kind = WEIR_ATTR_KIND_REAL, .below = 1 }
/** How many blocks there are, for the initial scale of the residual projections. */
#define WEIR__GPT_LAYERS                                                                           \
    { .key = "layers", .kind = WEIR_ATTR_KIND_INT, .integer = 1, .least = 1 }

/** wte and wpe of the tokens x, with dropout. */
struct weir_value *weir__gpt_embed(struct weir_builder *builder, const struct weir_layer *layer,
                                   struct weir_value *x);
/** ln_1 and attn; ln_2 and mlp: a sublayer's output, with dropout. */
struct weir_value *weir__gpt_attend(struct weir_builder *builder, const struct weir_layer *layer,
                                    struct weir_value *x);
struct weir_value *weir__gpt_mlp(struct weir_builder *builder, const struct weir_layer *layer,
                                 struct weir_value *x);
/** ln_f and the head's product. */
struct weir_value *weir__gpt_predict(struct weir_builder *builder, const struct weir_layer *layer,
                                     struct weir_value *x);

#endif
