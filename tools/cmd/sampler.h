/* SPDX-License-Identifier: MIT */
/**
 * Draws tokens from logits. A draw is a pure function of the logits, the seed, the text and the
 * place in it: neither other texts nor how the work was cut can change it. What is left out, and
 * what is left, is what transformers' logits processors leave, in their order: penalty,
 * temperature, top k, top p, min p (but that of equals at the edge of the top k the first are
 * left).
 */
#ifndef WEIR_TOOLS_SAMPLER_H
#define WEIR_TOOLS_SAMPLER_H

#include <stdint.h>

struct sampler {
    uint64_t seed;
    double temperature; /**< softmax(logits / temperature); 0: the largest, the first of equals */
    uint32_t top_k;     /**< among so many of the largest, the first of equals; 0: all */
    double top_p;       /**< of those among the first, together at least so likely; 1: all */
    uint32_t vocab;     /**< tokens 0 … vocab - 1 may be drawn */
    double min_p;       /**< of those the ones at least so likely as this part of the likeliest; 0:
                             all */
    double penalty;     /**< logits of tokens that the text has: positive ones are divided by this,
                           others     multiplied; 0 or 1: not */
};

/** What tells texts apart: the prompt, and which one with this prompt it is. So a text does not
 * depend on the prompts beside it, and the same prompt given twice has two continuations. */
struct sampler_text {
    uint64_t prompt; /**< a hash of its tokens */
    uint32_t number; /**< texts with the same prompt before this one */
};
/** Of a prompt's tokens. */
uint64_t sampler_hash(const uint32_t *tokens, uint32_t count);

/** Penalizes the tokens of a text, each once; those beyond the vocabulary are none. `scratch`
 * [vocab]. */
void sampler_penalize(const struct sampler *sampler, const uint32_t *tokens, uint32_t count,
                      double *logits, uint32_t *scratch);
/** The token at `place` of `text`. `logits` of the whole vocabulary; `scratch` [vocab]. Returns
 * WEIR_OK, or WEIR_ERR_NONFINITE where a logit is NaN or +infinity (-infinity is never drawn, but
 * one must be larger). */
int sampler_draw(const struct sampler *sampler, const struct sampler_text *text, uint32_t place,
                 const double *logits, uint32_t *scratch, uint32_t *token);

#endif
