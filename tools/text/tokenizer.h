/* SPDX-License-Identifier: MIT */
/**
 * Tokenizers: text to the numbers that a language model works on, and back, from the
 * `tokenizer.json` that a Hugging Face folder holds, number for number as the library `tokenizers`
 * (0.23) has them.
 *
 * Read are byte-pair encodings (Sennrich, Haddow, Birch, ACL 2016) over bytes, as GPT-2, Llama 3,
 * Qwen and SmolLM have them, and over characters with a fall-back to bytes, as Llama 2 has. The
 * file says in parts what is done with a text:
 *
 * | part | taken |
 * |---|---|
 * | `added_tokens` | found in the text before all else; no `lstrip`, `rstrip`, `single_word` |
 * | `normalizer` | `NFC`, `Prepend`, `Replace` of a text, `Sequence` |
 * | `pre_tokenizer` | `Split` by a regular expression, isolated or removed; `Digits`; `ByteLevel`
 * as the last one; `Sequence` | | `model` | `BPE` without dropout, prefix and suffix | |
 * `post_processor` | `ByteLevel`, `TemplateProcessing`, both in this order | | `decoder` |
 * `ByteLevel`; `Replace`, `ByteFallback`, `Fuse` and perhaps `Strip` of blanks |
 *
 * Whatever else stands in one of them is refused by its path in the file: a tokenizer that opens is
 * exact. Text is UTF-8; each broken part of it becomes U+FFFD, as Python's errors="replace" has it.
 *
 * @code
 *   struct tokenizer *tokenizer;
 *   struct text_encoder *encoder;
 *   struct text_tokens tokens;
 *   int status = tokenizer_open(&io, "model/tokenizer.json", &tokenizer);
 *   if (status == WEIR_OK) status = text_encoder_new(tokenizer, &encoder);
 *   if (status == WEIR_OK) status = text_encode(encoder, text, bytes, 0, &tokens);
 *   for (size_t i = 0; i < tokens.count; i++) use(tokens.ids[i]);
 * @endcode
 *
 * Statuses are weir_base.h's. Nothing here blocks but the reading of the file.
 */
#ifndef WEIR_TEXT_TOKENIZER_H
#define WEIR_TEXT_TOKENIZER_H

#include "io/file.h"
#include "text/aligned.h"

#define TOKENIZER_NONE UINT32_MAX

/** Read-only once opened: any number of threads. */
struct tokenizer;

/** Reads the file `path`, or `path`/tokenizer.json where that is a folder. WEIR_ERR_IO;
 * WEIR_ERR_FORMAT: no such file's form; WEIR_ERR_UNSUPPORTED: a part that is not taken;
 * WEIR_ERR_OUT_OF_MEMORY. The message of io->error names the file and the path in it. Its memory is
 * io->allocator's, which must outlive it; PCRE2's and jansson's is the C library's. */
int tokenizer_open(const struct weir__io *io, const char *path, struct tokenizer **tokenizer);
/** Accepts NULL. Encoders and decoders must be gone. */
void tokenizer_close(struct tokenizer *tokenizer);

/** The greatest number of a token, plus one: rows of an embedding. Some may be no token's. */
uint32_t tokenizer_size(const struct tokenizer *tokenizer);
/** The number of the token that the file writes so, or TOKENIZER_NONE. */
uint32_t tokenizer_find(const struct tokenizer *tokenizer, const char *text);

struct tokenizer_token {
    const char *text;     /**< as the file writes it; the tokenizer's */
    const char *piece;    /**< the bytes that it stands for, perhaps a part of a character */
    uint32_t piece_bytes; /**< a byte that the file writes <0x0A> has one */
    bool added;           /**< found in the text as a whole */
    bool special;         /**< marks the text's structure */
};
/** False where no token has this number. */
bool tokenizer_get(const struct tokenizer *tokenizer, uint32_t id, struct tokenizer_token *token);

/* ---- text to tokens ---- */

/** Room to encode in, with a cache of words; one thread. */
struct text_encoder;
/** WEIR_ERR_OUT_OF_MEMORY. The tokenizer must outlive it. */
int text_encoder_new(const struct tokenizer *tokenizer, struct text_encoder **encoder);
/** Accepts NULL. */
void text_encoder_destroy(struct text_encoder *encoder);

enum text_encode_flags {
    TEXT_ADD_SPECIAL = 1,     /**< with what the file's template puts around a text */
    TEXT_SPECIAL_AS_TEXT = 2, /**< special tokens that stand in the text are text like any other */
    TEXT_SPANS = 4            /**< with the bytes of the text that each token stands for */
};

struct text_tokens {
    const uint32_t *ids;           /**< the encoder's, until its next call */
    const struct text_span *spans; /**< likewise; NULL where they are not asked for. 0, 0 for what
                                        the template adds */
    size_t count;
};

/** Encodes `bytes` bytes, at most 1 GiB: WEIR_ERR_OVERFLOW. Time is linear in the text, but for a
 * factor log(n) within words of n bytes. WEIR_ERR_OUT_OF_MEMORY. */
int text_encode(struct text_encoder *encoder, const char *text, size_t bytes, unsigned flags,
                struct text_tokens *tokens);

/* ---- tokens to text ---- */

/** Decodes token by token: what may become another character yet is held back. One thread. */
struct text_decoder;
/** `skip_special`: special tokens give nothing. WEIR_ERR_OUT_OF_MEMORY. The tokenizer must outlive
 * it. */
int text_decoder_new(const struct tokenizer *tokenizer, bool skip_special,
                     struct text_decoder **decoder);
/** Accepts NULL. */
void text_decoder_destroy(struct text_decoder *decoder);
/** The text that is certain now, sound UTF-8, perhaps nothing; the decoder's until its next call.
 * WEIR_ERR_NOT_FOUND: no token has the number, and nothing has changed. WEIR_ERR_OUT_OF_MEMORY. */
int text_decoder_put(struct text_decoder *decoder, uint32_t id, const char **text, size_t *bytes);
/** The same where no more tokens come; then a new text begins. WEIR_ERR_OUT_OF_MEMORY. */
int text_decoder_end(struct text_decoder *decoder, const char **text, size_t *bytes);
/** The tokens that come now go on from a text that is known: nothing is held back, and nothing is
 * stripped from their beginning. */
void text_decoder_go_on(struct text_decoder *decoder);

#endif
