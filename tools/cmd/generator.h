/* SPDX-License-Identifier: MIT */
/**
 * Continues texts with a net that keeps keys and values (weir_net.h, "Continuing texts"): first the
 * prompts' tokens, many to a step, then one token per text and step. The rows of a step are tokens
 * of all texts and are scattered into micro-batches over the stages like any others. Of prompts the
 * last tokens come last: they alone need logits. Shared by `weir generate`, `weir chat` and the
 * sample of `weir train`.
 *
 * A text ends when it has the tokens that were asked for, or when the model's context is full: a
 * context of C places takes C tokens, after which one more can be drawn but no longer be read. A
 * run that `slides` goes on all the same: the last half of the context (rounded up) moves to its
 * beginning, where it is read anew, since keys and values belong to their places. So a token has at
 * least C / 2 and at most C before it, and costs two readings at most.
 *
 * Over ranks all of them continue the same texts. Rank 0 draws, for another machine may round a
 * probability otherwise, and the tokens come to all.
 */
#ifndef WEIR_TOOLS_GENERATOR_H
#define WEIR_TOOLS_GENERATOR_H

#include "cli/ranks.h"
#include "cmd/sampler.h"
#include "weir_net.h"

enum generator_end {
    GENERATOR_GOING,
    GENERATOR_TOKENS,     /**< all that were asked for */
    GENERATOR_CONTEXT,    /**< the context is full, and the run does not slide */
    GENERATOR_VISIT,      /**< `visit` said so */
    GENERATOR_INTERRUPTED /**< `stop` said so */
};

/** A prompt and what was drawn after it. */
struct generator_text {
    uint32_t *tokens; /**< room for `prompt` and as many as a run draws; the caller's */
    uint32_t prompt;  /**< tokens of the prompt, at least 1 */
    uint32_t count;   /**< tokens in all, `prompt` at first */
    uint32_t first;   /**< the token at the context's beginning; at first those before it are what
                           the context has no place for, if any */
    uint32_t read;    /**< tokens of the context whose keys and values are there, not all; 0
                           at first, or those that the text of this number before began with */
    struct sampler_text identity;
    enum generator_end end; /**< GENERATOR_GOING at first */
};

struct generator_options {
    const struct weir_model *model; /**< outlives the generator */
    struct weir_net_options net;    /**< stages, chunks and so on; the rest is filled in */
    uint32_t texts;                 /**< at a time, at most */
    uint64_t prompt_tokens;         /**< read in one go at most: of the prompts of one run */
    bool slides;                    /**< runs may slide */
    struct ranks *ranks;            /**< who run the net; NULL: this process alone */
};

struct generator {
    struct weir_net *net; /**< its parameters are the caller's to fill */
    uint32_t context, vocab;
    uint32_t texts;
    uint32_t rows; /**< of a step, at most */
    struct ranks *ranks;
    enum weir_dtype dtype;
    int64_t *input;
    uint32_t *sequence, *place, *scratch, *live;
    uint32_t *drawn; /**< [rows + 1]: tokens after a step's rows, and what drawing failed with */
    void *output;
    double *logits;
};

/** Builds the net. A model that does not give a distribution over the next token for each token is
 * a fault. On failure too: generator_clean_up. */
int generator_init(struct generator *generator, const struct generator_options *options,
                   struct weir_faults *faults);
/** Accepts a zeroed one. */
void generator_clean_up(struct generator *generator);

struct generator_run {
    struct sampler sampler;
    uint32_t tokens;    /**< drawn per text, at least 1 */
    bool slides;        /**< no end where the context is full */
    bool (*stop)(void); /**< asked before each step, or NULL; true ends all texts as they are. Not
                             where there are ranks, whom signals stop */
    /** May be NULL; is told each token when it is drawn. True: the text ends with it, on all ranks
     * alike. */
    bool (*visit)(void *context, uint32_t text, uint32_t token);
    void *context;
};

/** What a run took, added to what is there. */
struct generator_times {
    uint64_t prompt_tokens; /**< read in prompt_seconds; a text's first token is drawn there too */
    uint64_t tokens;        /**< drawn in `seconds`, where contexts that slide are read anew too */
    double prompt_seconds, seconds;
};

/** Continues `count` texts (at most options.texts) to their ends. WEIR_ERR_NONFINITE, and what
 * weir_net_infer returns; `error` says what failed. Then, and where `stop` came first, of a text
 * that has no token yet what was `read` is still there. */
int generator_continue(struct generator *generator, const struct generator_run *run,
                       struct generator_text *texts, uint32_t count, struct generator_times *times,
                       struct weir_error *error);

#endif
