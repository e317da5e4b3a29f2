/* SPDX-License-Identifier: MIT */
/**
 * Chat templates: a conversation as the tokens that a model was taught to read it as, number for
 * number as `apply_chat_template` of transformers has them. A Hugging Face folder holds its
 * template as a program in Jinja; a published one is known by its digest and written here in C, and
 * no other is guessed at.
 *
 * | name | what it writes | published as |
 * |---|---|---|
 * | `llama3` | turns in headers, texts trimmed | Llama 3 |
 * | `llama3.1` | the same behind a system turn with two dates | Llama 3.1, 3.2, 3.3 |
 * | `qwen2.5` | turns in `<|im_start|>`; a system turn of its own where none is | Qwen2.5 |
 * | `qwen3` | no such system turn; `<think>` in replies to the last user | Qwen3 |
 * | `smollm2` | as `qwen2.5` with its own system turn | SmolLM2 |
 *
 * Today's date in `llama3.1` is "26 Jul 2024" as in the template of 3.1: a token may not depend on
 * the day. Roles are system, user and assistant; tools are not taken. A text that holds a special
 * token's name gives that token, as in transformers.
 *
 * @code
 *   const struct chat_template *form;
 *   struct chat_tokens tokens = {0};
 *   struct chat_message said = {CHAT_USER, "Hello", 5};
 *   int status = chat_template_find(&io, "model", &form);
 *   if (status == WEIR_OK) status = chat_template_check(&io, form, tokenizer);
 *   if (status == WEIR_OK) status = chat_encode(&io, form, encoder, &said, 1, true, &tokens);
 *   for (size_t i = 0; i < tokens.count; i++) use(tokens.ids[i]);
 *   chat_tokens_clean_up(&io, &tokens);
 * @endcode
 *
 * Nothing here blocks but the reading of files. Messages are in io->error.
 */
#ifndef WEIR_TEXT_CHAT_TEMPLATE_H
#define WEIR_TEXT_CHAT_TEMPLATE_H

#include "text/tokenizer.h"

#define CHAT_TEMPLATE_NAMES "llama3, llama3.1, qwen2.5, qwen3, smollm2"

/** Static and read-only. */
struct chat_template;

/** By its name; NULL: there is none of that name. */
const struct chat_template *chat_template_named(const char *name);
/** The text of a folder's template: its chat_template.jinja, else what its tokenizer_config.json
 * has, of several the one named "default"; the caller's, data NULL where there is none.
 * WEIR_ERR_FORMAT, WEIR_ERR_IO, WEIR_ERR_OUT_OF_MEMORY. */
int chat_template_read(const struct weir__io *io, const char *folder, struct weir__bytes *text);
/** The form that a folder's is of. WEIR_ERR_NOT_FOUND: it has none; WEIR_ERR_UNSUPPORTED: not one
 * of these; WEIR_ERR_FORMAT, WEIR_ERR_IO, WEIR_ERR_OUT_OF_MEMORY. */
int chat_template_find(const struct weir__io *io, const char *folder,
                       const struct chat_template **found);
/** That which has this text in Jinja, with or without a last line end; NULL: none. */
const struct chat_template *chat_template_of_text(const char *text, size_t bytes);
const char *chat_template_name(const struct chat_template *form);
/** The token that ends a turn, as the tokenizer's file writes it: generation stops there. */
const char *chat_template_end(const struct chat_template *form);
/** Whether the tokenizer has all the special tokens that the template writes: else
 * WEIR_ERR_UNSUPPORTED. */
int chat_template_check(const struct weir__io *io, const struct chat_template *form,
                        const struct tokenizer *tokenizer);

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT };
/** False: no role of that name is taken. */
bool chat_role_find(const char *name, enum chat_role *role);

struct chat_message {
    enum chat_role role;
    const char *text; /**< sound UTF-8 */
    size_t bytes;
};

/** Zeroed at first; may be used for one conversation after the other. */
struct chat_tokens {
    const uint32_t *ids; /**< these two are this struct's, until the next call */
    const bool *learnt;  /**< of each token: whether it is of a reply, or ends one */
    size_t count;
    struct weir__bytes text;  /**< as the template writes it */
    struct weir__bytes marks; /**< of each byte of the text: 1 where it is learnt */
    struct weir__bytes id_room, learnt_room;
};

/** Writes the conversation. `prompt`: with the beginning of a reply after it, which a model is to
 * go on from. What is learnt begins behind that beginning and ends with the token that ends the
 * turn. WEIR_ERR_INVALID_ARGUMENT: no message; WEIR_ERR_OVERFLOW: more than 1 GiB of text;
 * WEIR_ERR_OUT_OF_MEMORY. The encoder's own last tokens are gone. */
int chat_encode(const struct weir__io *io, const struct chat_template *form,
                struct text_encoder *encoder, const struct chat_message *messages, size_t count,
                bool prompt, struct chat_tokens *tokens);
/** With the same allocator. Accepts zeroed ones. */
void chat_tokens_clean_up(const struct weir__io *io, struct chat_tokens *tokens);

#endif
