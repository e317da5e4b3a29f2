/* SPDX-License-Identifier: MIT */
/** A folder's tokenizer as the keys of a GGUF file. */
#ifndef WEIR_TOOLS_GGUF_TEXT_H
#define WEIR_TOOLS_GGUF_TEXT_H

#include "cmd/gguf_keys.h"

/**
 * Puts the tokens with their kinds, the merges, the name by which llama.cpp knows how a text is
 * split, the tokens that begin and end a text, and the chat template. `vocabulary` rows of the
 * embedding: those that are no token's become unused ones.
 *
 * Taken are the byte-pair encodings over bytes of GPT-2, Llama 3, Qwen and SmolLM. What llama.cpp
 * would split in another way, or knows by scores that tokenizer.json does not have (Llama 2), is
 * refused: WEIR_ERR_UNSUPPORTED. Else as model_text_open.
 */
int gguf_put_words(struct gguf_keys *keys, const char *folder, uint32_t vocabulary);

#endif
