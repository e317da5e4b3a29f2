/* SPDX-License-Identifier: MIT */
/** How tokens are drawn and where a text stops: the same for `generate` and `chat`. */
#ifndef WEIR_TOOLS_SAMPLING_OPTIONS_H
#define WEIR_TOOLS_SAMPLING_OPTIONS_H

#include "cli/args.h"
#include "cmd/sampler.h"

struct sampling_options {
    double temperature, top_p, min_p, penalty;
    uint32_t top_k;
    struct arg_words stops;
};

/** The section's options; its values are a struct sampling_options. */
extern const struct arg_option sampling_option_list[];
extern const uint32_t sampling_option_count;

/** What is wrong without knowing the model. */
void sampling_options_check(const struct sampling_options *options, struct weir_faults *faults);
/** What is wrong where tokens are drawn among `vocab`. */
void sampling_options_check_vocab(const struct sampling_options *options, uint32_t vocab,
                                  struct weir_faults *faults);
struct sampler sampling_options_sampler(const struct sampling_options *options, uint64_t seed,
                                        uint32_t vocab);
/** Goes on with a digest of what ranks must have been told. */
uint64_t sampling_options_hash(const struct sampling_options *options, uint64_t hash);

#endif
