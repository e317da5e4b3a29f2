/* SPDX-License-Identifier: MIT */
/**
 * A decoder as one GGUF file (version 3), which llama.cpp and its relatives read: the
 * configuration, the tokenizer and the weights, under the names that llama.cpp's own converter
 * gives them. Vectors stay f32, as there; so rows of queries and keys are put into its order.
 *
 * The file appears whole or not at all (io/file.h).
 */
#ifndef WEIR_TOOLS_EXPORT_GGUF_H
#define WEIR_TOOLS_EXPORT_GGUF_H

#include "cmd/export_weights.h"

struct export_gguf {
    const char *model; /**< the folder whose tokenizer it has */
    const char *out;
    enum weir__stored type; /**< of matrices; q8_0 becomes f16 where a row is not of whole blocks */
    const struct weir_decoder_options *options;
    uint32_t context; /**< tokens that the model was made for */
    const struct export_weights *weights;
};

/** Writes it; `narrow` becomes the number of matrices that q8_0 has no blocks for. Statuses as
 * io/file.h and gguf_put_words, what a `next` returned, and WEIR_ERR_UNSUPPORTED: llama.cpp has no
 * such decoder, or a number does not fit `type`. */
int export_gguf_write(const struct weir__io *io, const struct export_gguf *gguf, uint32_t *narrow);

#endif
