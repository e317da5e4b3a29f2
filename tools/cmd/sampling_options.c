/* SPDX-License-Identifier: MIT */
#include "cmd/sampling_options.h"

#include "base/base.h"

#include <stddef.h>
#include <string.h>

#define AT(member) offsetof(struct sampling_options, member)

const struct arg_option sampling_option_list[] = {
    {"temperature", ARG_REAL, AT(temperature), "lower is likelier, 0 always the likeliest token",
     .value = "X", .fallback = "0.8", .least = 0},
    {"top-k", ARG_U32, AT(top_k), "draw among the K likeliest tokens; 0: among all", .value = "K",
     .fallback = "0"},
    {"top-p", ARG_REAL, AT(top_p),
     "draw among the likeliest tokens that together have this probability", .value = "P",
     .fallback = "1", .least = 0, .most = 1},
    {"min-p", ARG_REAL, AT(min_p),
     "draw among tokens at least so likely as this part of the likeliest; 0: among all",
     .value = "P", .fallback = "0", .least = 0, .most = 1},
    {"repetition-penalty", ARG_REAL, AT(penalty),
     "of tokens that the text has already: logits above 0 are divided by it, others multiplied; 1: "
     "none",
     .value = "X", .fallback = "1", .least = 0.01, .most = 100},
    {"stop", ARG_TEXTS, AT(stops), "the text ends before this; several of them may be given",
     .value = "TEXT"},
};
const uint32_t sampling_option_count = sizeof sampling_option_list / sizeof sampling_option_list[0];

void sampling_options_check(const struct sampling_options *options, struct weir_faults *faults) {
    for (uint32_t i = 0; i < options->stops.count; i++)
        if (options->stops.items[i][0] == '\0')
            weir_faults_add(faults, "--stop '': nothing comes before that: give some text");
}

void sampling_options_check_vocab(const struct sampling_options *options, uint32_t vocab,
                                  struct weir_faults *faults) {
    if (options->top_k <= vocab) return;
    weir_faults_add(faults,
                    "--top-k %u: tokens are drawn among %u: give at most that, or 0 for all",
                    options->top_k, vocab);
}

struct sampler sampling_options_sampler(const struct sampling_options *options, uint64_t seed,
                                        uint32_t vocab) {
    return (struct sampler){.seed = seed,
                            .temperature = options->temperature,
                            .top_k = options->top_k,
                            .top_p = options->top_p,
                            .vocab = vocab,
                            .min_p = options->min_p,
                            .penalty = options->penalty};
}

uint64_t sampling_options_hash(const struct sampling_options *options, uint64_t hash) {
    const double numbers[] = {options->temperature, options->top_p, options->min_p,
                              options->penalty, options->top_k};
    hash = weir__hash(hash, numbers, sizeof numbers);
    for (uint32_t i = 0; i < options->stops.count; i++)
        hash = weir__hash(hash, options->stops.items[i], strlen(options->stops.items[i]) + 1);
    return hash;
}
