/* SPDX-License-Identifier: MIT */
/* One number in [0, 1) per draw, and a walk over the weights in the order of tokens. */
#include "cmd/sampler.h"

#include "base/base.h"

#include <assert.h>
#include <math.h>
#include <string.h>

uint64_t sampler_hash(const uint32_t *tokens, uint32_t count) {
    return weir__hash(WEIR__HASH_BEGIN, tokens, count * sizeof tokens[0]);
}

static double uniform(uint64_t seed, const struct sampler_text *text, uint32_t place) {
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {place, (uint32_t)text->prompt, (uint32_t)(text->prompt >> 32),
                                 text->number};
    uint32_t words[4];
    weir__philox(counter, key, words);
    return (double)(((uint64_t)words[0] << 32 | words[1]) >> 11) * 0x1p-53;
}

/* ---- the largest ---- */

/* Whether token a goes before token b. */
static bool precedes(const double *logits, uint32_t a, uint32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

/* Moves heap[at] down until no child goes behind it: the root is the last of all. */
static void sift(const double *logits, uint32_t *heap, uint32_t count, uint32_t at) {
    uint32_t moved = heap[at];
    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && precedes(logits, heap[child], heap[child + 1])) child++;
        if (precedes(logits, heap[child], moved)) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

/* The last of the `k` first tokens, 1 <= k <= vocab. */
static uint32_t last_of_first(const double *logits, uint32_t vocab, uint32_t k, uint32_t *heap) {
    for (uint32_t i = 0; i < k; i++) heap[i] = i;
    for (uint32_t i = k / 2; i-- > 0;) sift(logits, heap, k, i);
    for (uint32_t token = k; token < vocab; token++) {
        if (!precedes(logits, token, heap[0])) continue;
        heap[0] = token;
        sift(logits, heap, k, 0);
    }
    return heap[0];
}

/* Moves heap[at] down until no child goes before it: the root is the first of all. */
static void sift_first(const double *logits, uint32_t *heap, uint32_t count, uint32_t at) {
    uint32_t moved = heap[at];
    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && precedes(logits, heap[child + 1], heap[child])) child++;
        if (precedes(logits, moved, heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

/* ---- penalties ---- */

void sampler_penalize(const struct sampler *sampler, const uint32_t *tokens, uint32_t count,
                      double *logits, uint32_t *scratch) {
    if (sampler->penalty == 0.0 || sampler->penalty == 1.0) return;
    memset(scratch, 0, sampler->vocab * sizeof scratch[0]);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t token = tokens[i];
        if (token >= sampler->vocab || scratch[token]++ > 0) continue;
        bool negative = logits[token] < 0.0;
        logits[token] =
            negative ? logits[token] * sampler->penalty : logits[token] / sampler->penalty;
    }
}

/* ---- the draw ---- */

/* Tokens that may be drawn, and their weights. */
struct softened {
    const struct sampler *sampler;
    const double *logits;
    double most;   /* the largest logit */
    uint32_t last; /* those behind it are left out */
};

static double weight_of(const struct softened *w, uint32_t token) {
    return exp((w->logits[token] - w->most) / w->sampler->temperature);
}

/* 0: is left out. */
static double weight_left(const struct softened *w, uint32_t token) {
    if (precedes(w->logits, w->last, token)) return 0.0;
    double weight = weight_of(w, token);
    return weight < w->sampler->min_p ? 0.0 : weight;
}

/* Of the tokens up to `last`, whose weights are `sum` together, the last of the fewest first ones
 * that make `top_p` of it. */
static uint32_t last_of_likely(const struct softened *w, double sum, uint32_t *heap) {
    uint32_t count = 0;
    for (uint32_t t = 0; t < w->sampler->vocab; t++)
        if (!precedes(w->logits, w->last, t)) heap[count++] = t;
    for (uint32_t i = count / 2; i-- > 0;) sift_first(w->logits, heap, count, i);
    double left = w->sampler->top_p * sum;
    while (count > 1 && (left -= weight_of(w, heap[0])) > 0.0) {
        heap[0] = heap[--count];
        sift_first(w->logits, heap, count, 0);
    }
    return heap[0];
}

/* The first of the largest; false where there is none. */
static bool find_largest(const double *logits, uint32_t vocab, uint32_t *largest) {
    *largest = 0;
    for (uint32_t token = 0; token < vocab; token++) {
        if (isnan(logits[token])) return false;
        if (logits[token] > logits[*largest]) *largest = token;
    }
    return isfinite(logits[*largest]);
}

/* Leaves out what top k and top p do. */
static struct softened soften(const struct sampler *sampler, const double *logits, uint32_t largest,
                              uint32_t *scratch) {
    uint32_t vocab = sampler->vocab;
    uint32_t k = sampler->top_k == 0 || sampler->top_k > vocab ? vocab : sampler->top_k;
    struct softened w = {sampler, logits, logits[largest],
                         last_of_first(logits, vocab, k, scratch)};
    if (sampler->top_p >= 1.0) return w;
    double sum = 0.0;
    for (uint32_t t = 0; t < vocab; t++)
        if (!precedes(logits, w.last, t)) sum += weight_of(&w, t);
    w.last = last_of_likely(&w, sum, scratch);
    return w;
}

int sampler_draw(const struct sampler *sampler, const struct sampler_text *text, uint32_t place,
                 const double *logits, uint32_t *scratch, uint32_t *token) {
    uint32_t vocab = sampler->vocab, largest;
    assert(vocab > 0 && sampler->temperature >= 0 && sampler->min_p <= 1.0);
    if (!find_largest(logits, vocab, &largest)) return WEIR_ERR_NONFINITE;
    *token = largest;
    if (sampler->temperature == 0.0) return WEIR_OK;
    const struct softened weights = soften(sampler, logits, largest, scratch);
    double sum = 0.0;
    for (uint32_t t = 0; t < vocab; t++) sum += weight_left(&weights, t);
    double rest = uniform(sampler->seed, text, place) * sum;
    for (uint32_t t = 0; t < vocab; t++) {
        double weight = weight_left(&weights, t);
        if (weight == 0.0) continue;
        *token = t;
        if (rest < weight) break;
        rest -= weight;
    }
    return WEIR_OK;
}
