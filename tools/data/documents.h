/* SPDX-License-Identifier: MIT */
/**
 * Text as rows of a model's tokens, by the tokenizer and chat template of its folder.
 *
 *   plain text     each file is a document: its tokens, with what the tokenizer puts around a text,
 *                  and then the separator. All documents one behind the other are cut into windows
 *                  of `context` tokens and their successors; the last one may be shorter.
 *   conversations  JSON Lines: one object a line, empty lines left alone. `messages`, a list of
 *                  {"role": system, user or assistant, "content": text}; or `prompt` and
 *                  `completion`, texts of user and assistant. As the chat template writes them.
 *                  What is learnt are replies, each with the token that ends its turn. Other fields
 *                  of a line are left alone, but for those that a template would write (`tools`),
 *                  which are refused, as are all other fields of a message that are not null.
 *
 * A **passage** is a run of tokens that goes into a row as a whole: a window, or a conversation. A
 * row is a list of passages, one behind the other: the inputs are a passage's tokens but the last,
 * the targets their successors. Where a successor is not learnt, and behind the last passage, the
 * target is the ignored label, which weighs nothing; the input behind it is token 0. A row has one
 * passage, or, packed, as many as data/packed_rows.h puts into it: then a row's tokens are followed
 * by the place in the row at which each one's passage begins, and what fills it up is a passage,
 * too.
 *
 * Held out: every tenth passage, or the last one of fewer; so neighbours in a file are not all of
 * one part. Or all passages, or none. Rows are of one part.
 */
#ifndef WEIR_IO_DOCUMENTS_H
#define WEIR_IO_DOCUMENTS_H

#include "data/folder.h"
#include "text/model_text.h"

/** Tokens first … first + count - 1 of all; count - 1 places of a row. */
struct weir__passage {
    uint64_t first;
    uint32_t count; /**< at least 2 */
    uint32_t zero;  /**< instead of padding: all bytes are in a fingerprint */
};

/** Zeroed; then text or conversations are added, then planned; read-only from then on. */
struct weir__documents {
    const struct weir_allocator *allocator;
    struct weir__bytes ids;      /**< uint32_t: all tokens */
    struct weir__bytes learnt;   /**< bool of each: whether it is a target */
    struct weir__bytes passages; /**< struct weir__passage */
    struct weir__bytes rows; /**< uint64_t: each row's first passage, and the number of passages */
    uint64_t token_count, passage_count, row_count;
    uint64_t train_rows;   /**< those before the held-out ones; all where none is, or all are */
    uint64_t place_count;  /**< of rows, that are not padding */
    uint64_t learnt_count; /**< of those, whose target is learnt */
    uint32_t file_count, skipped_count;
    uint64_t document_count; /**< files of text, or conversations */
    /** As planned: passages share rows. A row's inputs are [2, context], tokens and then
     * for each the place of its passage's first (net/kernel.h); what fills a row up is one more. */
    bool packed;
};

/** Adds files and folders of plain text (data/corpus.h). WEIR_ERR_CONFIG: no text; the others of
 * weir__corpus_open. */
int weir__documents_add_text(const struct weir__io *io, const struct model_text *words,
                             const char *const *paths, uint32_t count, uint32_t context,
                             struct weir__documents *documents);
/** Adds the conversations of a file; `words` has a template. What is wrong with a line is a fault
 * that names it: WEIR_ERR_CONFIG, when all lines have been looked at. Other statuses: io->error. */
int weir__documents_add_chats(const struct weir__io *io, const struct model_text *words,
                              const char *path, uint32_t context, struct weir_faults *faults,
                              struct weir__documents *documents);
/** Adds a document, with `learnt` of each token. WEIR_ERR_OUT_OF_MEMORY. */
int weir__documents_add(const struct weir__io *io, struct weir__documents *documents,
                        const uint32_t *ids, const bool *learnt, size_t count);
/** Adds a passage of tokens that are there. WEIR_ERR_OUT_OF_MEMORY. */
int weir__documents_add_passage(const struct weir__io *io, struct weir__documents *documents,
                                struct weir__passage passage);

/** How rows of `context` places are made. */
struct weir__documents_plan {
    uint32_t context;
    bool packed; /**< several passages to a row */
    bool split;  /**< some are held out; there are at least two */
};
/** Makes them; once. WEIR_ERR_OUT_OF_MEMORY. */
int weir__documents_plan(const struct weir__io *io, struct weir__documents *documents,
                         const struct weir__documents_plan *plan);
/** Rows to train on, or held out, of a split; the number among all of such a row. */
uint64_t weir__documents_part(const struct weir__documents *documents, bool held_out);
uint64_t weir__documents_part_row(const struct weir__documents *documents, bool held_out,
                                  uint64_t index);

/** The largest token, or 0. */
uint32_t weir__documents_largest(const struct weir__documents *documents);
/** Row `row` < row_count as `context` inputs (NULL: not wanted), packed twice as many, and targets.
 */
void weir__documents_read(const struct weir__documents *documents, uint64_t row, uint32_t context,
                          int64_t ignored, int64_t *input, int64_t *target);
/** The tokens of a row before its first learnt target, at most `most` of them, from the row's first
 * passage: what a model can be asked. They are the documents'. */
const uint32_t *weir__documents_prompt(const struct weir__documents *documents, uint64_t row,
                                       uint32_t most, uint32_t *count);
/** Accepts a zeroed one. */
void weir__documents_clean_up(struct weir__documents *documents);

#endif
