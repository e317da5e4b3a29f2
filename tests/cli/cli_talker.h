/* SPDX-License-Identifier: MIT */
/** A Hugging Face folder whose model says what a test wants: a decoder of two blocks that give
 * nothing, so that the next token depends on the last one alone, with a tokenizer of tests/golden.
 */
#ifndef WEIR_TESTS_CLI_TALKER_H
#define WEIR_TESTS_CLI_TALKER_H

#include "cli/cli.h"

/** Layers: embedding, two blocks, norm, head. */
#define CLI_TALKER_PLACE " --threads-per-stage 1 --bind none"

struct cli_talker {
    const char *family; /**< tests/golden/tokenizers/FAMILY.json */
    const char *says;   /**< after any token but these; no two of its tokens are equal */
    const char *then;   /**< the token behind it; NULL: it begins again */
    uint32_t context;   /**< that the model was made for */
};
/** Writes FOLDER/model; a test fails if it cannot. Returns how many tokens `says` has. */
uint32_t cli_make_talker(const char *folder, const struct cli_talker *talker);

#endif
