/* SPDX-License-Identifier: MIT */
/** The tensors of a decoder by their names in Hugging Face's folders and in GGUF. */
#ifndef WEIR_TOOLS_DECODER_TENSORS_H
#define WEIR_TOOLS_DECODER_TENSORS_H

#include "base/pool.h"
#include "weir_models.h"

struct decoder_tensor {
    const char *name; /**< "model.layers.0.self_attn.q_proj.weight" */
    const char *gguf; /**< "blk.0.attn_q.weight" */
    uint32_t rank;
    int64_t shape[2];
    uint32_t heads; /**< of queries or keys, whose rows rotary positions pair; 0: of neither */
};

/** Lists them, the embedding first, in the pool's memory. WEIR_ERR_OUT_OF_MEMORY. */
int decoder_tensors_list(struct weir__pool *pool, const struct weir_decoder_options *options,
                         const struct decoder_tensor **list, uint32_t *count);

#endif
