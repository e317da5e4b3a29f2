/* SPDX-License-Identifier: MIT */
/**
 * The prompts of `weir generate`, as tokens: those of a tokenizer, bytes, or numbers. An empty
 * prompt becomes the token that texts begin with; of bytes a single newline, which is not shown:
 * the model needs something to go on from, and after a newline anything may begin.
 */
#ifndef WEIR_TOOLS_PROMPTS_H
#define WEIR_TOOLS_PROMPTS_H

#include "cli/args.h"
#include "cmd/generator.h"
#include "text/model_text.h"

struct prompt {
    uint32_t *tokens;
    uint32_t count;
    char *text; /**< with a zero behind it; NULL: it was given as numbers */
    size_t bytes;
    bool empty;     /**< the token stands for nothing */
    char label[64]; /**< "prompt 2", "prompts.txt, line 7": for messages */
};

/** Zeroed, then cleaned up as a whole. */
struct prompts {
    struct prompt *list;
    uint32_t count, capacity;
    const struct model_text *model; /**< whose tokenizer reads texts, if not NULL; not owned */
    struct text_encoder *encoder;
};
void prompts_clean_up(struct prompts *prompts);

/** From now on texts are read by this model's tokenizer, no longer as bytes. `model` must outlive
 * the prompts. WEIR_ERR_OUT_OF_MEMORY. */
int prompts_read_by(struct prompts *prompts, const struct model_text *model);
/** A fault is a line in `faults` (WEIR_ERR_CONFIG); WEIR_ERR_OUT_OF_MEMORY. */
int prompts_add_text(struct prompts *prompts, const char *text, size_t bytes, const char *label,
                     struct weir_faults *faults);
/** "15496,995": token numbers. A fault is a line in `faults` (WEIR_ERR_CONFIG). */
int prompts_add_ids(struct prompts *prompts, const char *text, const char *label,
                    struct weir_faults *faults);
/** One prompt per line of a file, or of stdin where `path` is "-". In a line \n stands for a
 * newline, \t for a tab and \\ for a backslash; empty lines are left out; a line may end with CR
 * LF. Every fault is a line in `faults` (WEIR_ERR_CONFIG); WEIR_ERR_OUT_OF_MEMORY. */
int prompts_add_file(struct prompts *prompts, const char *path, struct weir_faults *faults);

/** A text for each prompt, to be continued by at most `tokens`, which stay within `context` unless
 * it `slides`. Of a longer prompt the last `context` tokens are read. Texts and their tokens are
 * one allocation: free() it. NULL without memory. */
struct generator_text *prompts_texts(const struct prompts *prompts, uint32_t context,
                                     uint32_t tokens, bool slides);

#endif
