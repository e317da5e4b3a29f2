/* SPDX-License-Identifier: MIT */
/** `weir generate`, in parts: the options and the order of things (cmd_generate.c), and what a
 * person and a program see (generate_print.c). */
#ifndef WEIR_TOOLS_GENERATE_H
#define WEIR_TOOLS_GENERATE_H

#include "cmd/generator.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/pipe_options.h"
#include "cmd/prompts.h"
#include "cmd/sampling_options.h"
#include "text/reply.h"

struct generate_values {
    struct model_options model;
    struct pipe_options pipe;
    const char *load;
    struct arg_words prompt;
    const char *prompt_file;
    struct arg_words prompt_ids;
    uint32_t tokens; /**< 0: as many as the context takes; else it slides */
    uint32_t batch;
    struct sampling_options sampling;
    const char *json;
    double peer_timeout;
};

/** A run. Zeroed, then cleaned up as a whole. */
struct generate {
    struct generate_values *values;
    const struct args *args;
    struct ranks ranks;
    struct weir_faults *faults;
    struct weir_error *error;
    struct people people;
    struct output json;
    struct weir_model *model;
    struct pipe_storage storage;
    struct weir_net_options options;
    struct generator generator;
    struct model_text text; /**< of a folder with a tokenizer */
    struct prompts prompts;
    struct generator_text *texts; /**< one per prompt */
    struct reply
        *replies; /**< of the texts that are continued at a time; NULL: tokens are numbers */
    uint32_t reply_count;
    int failed; /**< the first failure of a reply */
    struct generator_times times;
    uint32_t tokens; /**< drawn per text, at most */
    enum { TOKENS_ARE_BYTES, TOKENS_ARE_TEXT, TOKENS_ARE_NUMBERS } kind;
    bool streams; /**< one text on a terminal: tokens are shown as they are drawn */
};

/** A generator_run's visit: decodes the token, shows it where the text `streams`, and says whether
 * the text ends; `context` is the struct generate. */
bool generate_take_token(void *context, uint32_t text, uint32_t token);
/** The prompt of a text that streams, before its tokens. */
void generate_print_prompt(const struct generate *g);
/** Texts `first` … `first + count - 1`, which have ended. */
int generate_print_texts(struct generate *g, uint32_t first, uint32_t count);
/** How much was done in how long. */
int generate_print_summary(struct generate *g, uint32_t done, bool interrupted);

#endif
