/* SPDX-License-Identifier: MIT */
/**
 * What a Hugging Face folder says of its model's text: the tokenizer (tokenizer.json), the tokens
 * that a text begins with and ends with (config.json, generation_config.json), and the chat
 * template. Shared by all commands that take `--model FOLDER`.
 *
 * @code
 *   struct model_text text = {0};
 *   int status = model_text_open(&io, "model", &text);
 *   if (status == WEIR_OK) status = model_text_choose(&io, "model", values.template, &text);
 *   // text_encoder_new(text.tokenizer, …), chat_encode(&io, text.form, …)
 *   model_text_close(&text);
 * @endcode
 *
 * Nothing here blocks but the reading of files. Messages are in io->error; they name the file.
 */
#ifndef WEIR_TEXT_MODEL_TEXT_H
#define WEIR_TEXT_MODEL_TEXT_H

#include "text/chat_template.h"

#include <jansson.h>

/** The names that --template takes: "auto" first, then those of chat_template.h; then NULL. */
extern const char *const model_text_templates[];

enum { MODEL_TEXT_ENDS_MAX = 32 };

/** Zeroed, then opened; read-only from then on: any number of threads. */
struct model_text {
    struct tokenizer *tokenizer;      /**< owned */
    const struct chat_template *form; /**< NULL until one is chosen */
    /** bos_token_id, or TOKENIZER_NONE. What an empty prompt begins with; of a text that has a
     * beginning TEXT_ADD_SPECIAL knows whether this token stands before it. */
    uint32_t begin;
    /** What stands between two documents of plain text: `<|endoftext|>`, `<|end_of_text|>` or
     * `</s>`, the first that is an added token; else the first of `ends`, or TOKENIZER_NONE. */
    uint32_t separator;
    /** Where generation stops: eos_token_id of generation_config.json, else of config.json, one or
     * a list; and the token that ends a turn of `form`. */
    uint32_t ends[MODEL_TEXT_ENDS_MAX];
    uint32_t end_count;
};

/** Whether `folder` is one with a tokenizer.json. */
bool model_text_is(const struct weir__io *io, const char *folder);
/** The object in FOLDER/NAME, read with jansson's `flags`, for json_decref; NULL where there is no
 * such file. WEIR_ERR_FORMAT: no object in JSON; else as weir__file_read. */
int model_text_read(const struct weir__io *io, const char *folder, const char *name, size_t flags,
                    json_t **root);
/** Reads all but the chat template. A folder without config.json or generation_config.json, or
 * without the fields, has no such tokens. As tokenizer_open; and WEIR_ERR_FORMAT: a field that is
 * no number of a token, or no object in JSON. On failure nothing is left open. */
int model_text_open(const struct weir__io *io, const char *folder, struct model_text *text);
/** Chooses `form`: the folder's own, known by its digest, where `name` is 0, else that of
 * model_text_templates[name]; it must fit the tokenizer. As chat_template_find and
 * chat_template_check. */
int model_text_choose(const struct weir__io *io, const char *folder, uint32_t name,
                      struct model_text *text);
/** Whether generation stops at this token. */
bool model_text_ends(const struct model_text *text, uint32_t id);
/** Accepts a zeroed one. */
void model_text_close(struct model_text *text);

#endif
