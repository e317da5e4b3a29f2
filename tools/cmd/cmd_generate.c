/* SPDX-License-Identifier: MIT */
/* `weir generate`: the options, and the order of things. */
#include "cmd/commands.h"
#include "cmd/generate.h"
#include "cli/gpt_file.h"
#include "cli/interrupt.h"
#include "cli/net_run.h"
#include "cli/pipe_costs.h"
#include "cmd/path_uses.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AT(member) offsetof(struct generate_values, member)
/** Of a folder whose --context is not given: as many places as the longest prompt and --tokens
 * need, or, where --tokens is not given, so many more than the prompt. */
enum { BYTES = 256, CONTEXT = 1024 };

static const struct arg_option own_options[] = {
    {"load", ARG_TEXT, AT(load),
     "weights or a training checkpoint (safetensors); a GPT's sizes are taken from them; of a "
     "--model folder by default its own",
     .value = "FILE"},
    {"prompt", ARG_TEXTS, AT(prompt),
     "what is continued; several of them are continued side by side. An empty one stands "
     "for the beginning of a line",
     .value = "TEXT"},
    {"prompt-file", ARG_TEXT, AT(prompt_file),
     "one prompt per line; \\n in it is a newline, \\t a tab, \\\\ a backslash; empty lines "
     "are left out; - is stdin",
     .value = "FILE"},
    {"prompt-ids", ARG_TEXTS, AT(prompt_ids),
     "a prompt as token numbers, for models whose tokens are not bytes (GPT-2's); numbers "
     "are printed too, and no token ends a text; several of them are continued side by side",
     .value = "N,N,..."},
    {"tokens", ARG_U32, AT(tokens),
     "drawn per prompt, at most; where the model's context is full its last half is read anew, and "
     "the text goes on. Default: until the context is full",
     .value = "N", .least = 1, .most = 16777216},
    {"batch", ARG_U32, AT(batch), "continued at a time, each with keys and values of its own",
     .value = "N", .fallback = "16", .unit = "prompts", .least = 1, .most = 65536},
    {"json", ARG_TEXT, AT(json), "one object per text and a summary; - is stdout", .value = "FILE"},
    RANKS_OPTION_TIMES(AT(times)),
};

/* ---- what can be refused ---- */

static void check_values(struct generate_values *values, struct weir_faults *faults) {
    if (values->load == NULL) values->load = model_options_weights(&values->model);
    if (values->load == NULL) weir_faults_add(faults, "--load is missing: give a file of weights");
    net_run_check_input("load", values->load, faults);
    const struct path_use paths[] = {{"json", values->json, PATH_TEXT},
                                     {"load", values->load, PATH_INPUT},
                                     {"prompt-file", values->prompt_file, PATH_INPUT}};
    path_uses_check_own(paths, 3, &values->model, &values->pipe, faults);
    bool texts = values->prompt.count > 0 || values->prompt_file != NULL;
    bool ids = values->prompt_ids.count > 0;
    if (!texts && !ids)
        weir_faults_add(faults, "there is no prompt: give --prompt TEXT or --prompt-file FILE");
    if (texts && ids)
        weir_faults_add(faults, "--prompt-ids goes with neither --prompt nor --prompt-file: give "
                                "text or numbers");
    if (ids && values->sampling.stops.count > 0)
        weir_faults_add(faults, "--stop is text, --prompt-ids are numbers: give one of them");
    sampling_options_check(&values->sampling, faults);
}

/* The tokenizer of a folder that has one, where texts are to be read. */
static int open_text(struct generate *g) {
    struct weir__io io = {.error = g->error};
    const char *folder = g->values->model.model;
    g->kind = g->values->prompt_ids.count > 0 ? TOKENS_ARE_NUMBERS : TOKENS_ARE_BYTES;
    if (g->kind == TOKENS_ARE_NUMBERS || !model_options_is_folder(&g->values->model) ||
        !model_text_is(&io, folder))
        return WEIR_OK;
    int status = model_text_open(&io, folder, &g->text);
    if (status != WEIR_OK) return status;
    g->kind = TOKENS_ARE_TEXT;
    return prompts_read_by(&g->prompts, &g->text);
}

static int read_prompts(struct generate *g) {
    const struct generate_values *values = g->values;
    int status = WEIR_OK;
    for (uint32_t i = 0; status == WEIR_OK && i < values->prompt.count; i++) {
        char label[32];
        const char *text = values->prompt.items[i];
        snprintf(label, sizeof label, "prompt %u", i + 1);
        status = prompts_add_text(&g->prompts, text, strlen(text), label, g->faults);
    }
    if (status == WEIR_OK && values->prompt_file != NULL)
        status = prompts_add_file(&g->prompts, values->prompt_file, g->faults);
    for (uint32_t i = 0; status == WEIR_OK && i < values->prompt_ids.count; i++) {
        char label[32];
        snprintf(label, sizeof label, "prompt %u", i + 1);
        status = prompts_add_ids(&g->prompts, values->prompt_ids.items[i], label, g->faults);
    }
    return status;
}

/* Tokens that may be drawn. */
static uint32_t drawn_of(const struct generate *g) {
    return g->kind == TOKENS_ARE_BYTES ? BYTES : g->generator.vocab;
}

/* A vocabulary that is not of bytes needs a tokenizer. */
static void check_vocab(const struct generate *g, const struct args *args, uint32_t vocab) {
    if (g->kind != TOKENS_ARE_BYTES || vocab == BYTES) return;
    if (vocab < BYTES)
        weir_faults_add(g->faults,
                        "the model's vocabulary of %u is too small for text, which is read as 256 "
                        "bytes: give --prompt-ids",
                        vocab);
    else if (!args_given(args, "vocab"))
        weir_faults_add(g->faults,
                        "the model's vocabulary is %u, text is 256 bytes: give --prompt-ids, or, "
                        "if it was trained on bytes all the same, --vocab %u",
                        vocab, vocab);
}

static void check_prompts(const struct generate *g) {
    uint32_t vocab = g->generator.vocab;
    for (uint32_t i = 0; i < g->prompts.count; i++) {
        const struct prompt *prompt = &g->prompts.list[i];
        for (uint32_t k = 0; g->kind != TOKENS_ARE_BYTES && k < prompt->count; k++)
            if (prompt->tokens[k] >= vocab)
                weir_faults_add(g->faults, "%s%s %u: the model's tokens are 0 to %u",
                                g->kind == TOKENS_ARE_TEXT ? prompt->label : "--prompt-ids",
                                g->kind == TOKENS_ARE_TEXT ? ": the tokenizer's token" : "",
                                prompt->tokens[k], vocab - 1);
    }
}

/* A context that slides would soon have left their beginnings too. */
static void tell_long_prompts(const struct generate *g) {
    uint32_t context = g->generator.context;
    for (uint32_t i = 0; i < g->prompts.count; i++)
        if (g->prompts.list[i].count > context)
            fprintf(stderr,
                    "weir: generate: note: %s has %u tokens, the model's context %u: its last %u "
                    "are read\n",
                    g->prompts.list[i].label, g->prompts.list[i].count, context, context);
}

/* ---- the run ---- */

/* What all ranks must have been told. */
static uint64_t digest(const struct generate *g) {
    const struct generate_values *values = g->values;
    const uint64_t numbers[] = {values->tokens, values->batch, g->prompts.count, g->kind};
    uint64_t hash = weir__hash(WEIR__HASH_BEGIN, numbers, sizeof numbers);
    hash = sampling_options_hash(&values->sampling, hash);
    hash = weir__hash(hash, g->text.ends, g->text.end_count * sizeof g->text.ends[0]);
    for (uint32_t i = 0; i < g->prompts.count; i++) {
        const struct prompt *prompt = &g->prompts.list[i];
        hash = weir__hash(hash, &prompt->count, sizeof prompt->count);
        hash = weir__hash(hash, prompt->tokens, prompt->count * sizeof *prompt->tokens);
    }
    return hash;
}

/* Of a decoder, which can have any, up to what it was made for. */
static void choose_context(const struct generate *g) {
    struct generate_values *values = g->values;
    uint64_t most = 1;
    if (!model_options_is_folder(&values->model) || args_given(g->args, "context")) return;
    for (uint32_t i = 0; i < g->prompts.count; i++)
        if (most < g->prompts.list[i].count) most = g->prompts.list[i].count;
    most += values->tokens > 0 ? values->tokens : CONTEXT;
    values->model.context = most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
}

static int build(struct generate *g) {
    struct generate_values *values = g->values;
    choose_context(g);
    const struct args *args = g->args;
    int status = values->load != NULL && access(values->load, R_OK) == 0
                     ? gpt_file_fill(values->load, args, &values->model, g->faults)
                     : WEIR_ERR_IO;
    if (status != WEIR_OK) return status;
    status = model_options_build(&values->model, args, NULL, g->faults, &g->model);
    if (status != WEIR_OK) return status;
    status = pipe_options_fill(&values->pipe, args, g->model, &g->storage, &g->options, g->faults);
    if (status != WEIR_OK) return status;
    uint32_t texts = g->prompts.count < values->batch ? g->prompts.count : values->batch;
    g->options.pipe.rows = texts > 0 ? texts : 1;
    g->options.pipe.infer_only = true;
    g->options.weights = values->load;
    g->options.weights_all = true;
    status =
        pipe_balance(&values->pipe, g->model, false, &g->storage, &g->options, stderr, g->faults);
    if (status != WEIR_OK) return status;
    struct generator_options options = {g->model, g->options,         texts > 0 ? texts : 1,
                                        0,        values->tokens > 0, &g->ranks};
    for (uint32_t i = 0; i < g->prompts.count; i++)
        options.prompt_tokens += g->prompts.list[i].count;
    status = ranks_agree(&g->ranks, WEIR_OK, digest(g));
    return status == WEIR_OK ? generator_init(&g->generator, &options, g->faults) : status;
}

static int join(struct generate *g, const struct arg_command *command) {
    struct generate_values *values = g->values;
    const struct ranks_command of = {.command = command,
                                     .unit = "text",
                                     .args = g->args,
                                     .pipe = &values->pipe,
                                     .times = values->times,
                                     .people = &g->people,
                                     .faults = g->faults,
                                     .error = g->error};
    int status = ranks_join(&g->ranks, &of);
    if (status != WEIR_OK) return status;
    g->options.pipe.world = ranks_world(&g->ranks);
    if (ranks_world(&g->ranks) != NULL && output_is_standard(values->prompt_file)) {
        weir_faults_add(g->faults, "--prompt-file -: of several processes one alone would read "
                                   "stdin: name a file");
        values->prompt_file = NULL;
    }
    if (!ranks_leads(&g->ranks)) values->json = NULL;
    if (!output_is_standard(values->json)) net_run_check_output("json", values->json, g->faults);
    return WEIR_OK;
}

static int begin_replies(struct generate *g) {
    const struct arg_words *stops = &g->values->sampling.stops;
    struct weir__io io = {.error = g->error};
    int status = WEIR_OK;
    if (g->kind == TOKENS_ARE_NUMBERS) return WEIR_OK;
    g->replies = calloc(g->generator.texts, sizeof *g->replies);
    if (g->replies == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    const struct model_text *model = g->kind == TOKENS_ARE_TEXT ? &g->text : NULL;
    for (uint32_t i = 0; status == WEIR_OK && i < g->generator.texts; i++, g->reply_count++)
        status = reply_init(&io, model, stops->items, stops->count, &g->replies[i]);
    return status;
}

static int begin(struct generate *g, const struct arg_command *command) {
    int status = join(g, command);
    if (status != WEIR_OK) return status;
    if ((status = open_text(g)) != WEIR_OK) return status;
    status = read_prompts(g);
    if (status == WEIR_ERR_OUT_OF_MEMORY || (status != WEIR_OK && g->faults->count == 0))
        return status;
    status = build(g);
    if (g->generator.context > 0) {
        check_vocab(g, g->args, g->generator.vocab);
        sampling_options_check_vocab(&g->values->sampling, drawn_of(g), g->faults);
        check_prompts(g);
    }
    if (status != WEIR_OK || g->faults->count > 0) return status;
    status = net_run_load(g->generator.net, g->values->load, NULL, g->faults);
    if (status != WEIR_OK || g->faults->count > 0) return status;
    status = model_options_load_adapter(&g->values->model, g->generator.net, g->faults);
    if (status != WEIR_OK || g->faults->count > 0) return status;
    tell_long_prompts(g);
    g->tokens = g->values->tokens > 0 ? g->values->tokens : g->generator.context + 1;
    g->texts = prompts_texts(&g->prompts, g->generator.context, g->tokens, g->values->tokens > 0);
    if (g->texts == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    status = begin_replies(g);
    return status == WEIR_OK ? output_begin(&g->json, g->values->json, g->error) : status;
}

static int run(struct generate *g) {
    const struct generate_values *values = g->values;
    struct generator_run run = {
        .sampler = sampling_options_sampler(&values->sampling, values->pipe.seed, drawn_of(g)),
        .tokens = g->tokens,
        .slides = values->tokens > 0,
        .visit = generate_take_token,
        .context = g};
    uint32_t done = 0;
    int status = WEIR_OK;
    if (g->streams) generate_print_prompt(g);
    while (status == WEIR_OK && done < g->prompts.count && !ranks_stopped(&g->ranks)) {
        ranks_at(&g->ranks, "its texts", done);
        uint32_t left = g->prompts.count - done;
        uint32_t count = left < g->generator.texts ? left : g->generator.texts;
        for (uint32_t i = 0; i < g->reply_count; i++) reply_begin(&g->replies[i]);
        status =
            generator_continue(&g->generator, &run, g->texts + done, count, &g->times, g->error);
        if (status != WEIR_OK) return status;
        if (g->failed != WEIR_OK) return g->failed;
        status = generate_print_texts(g, done, count);
        done += count;
    }
    return status == WEIR_OK ? generate_print_summary(g, done, ranks_stopped(&g->ranks)) : status;
}

static void clean_up(struct generate *g) {
    output_abort(&g->json);
    free(g->texts);
    for (uint32_t i = 0; i < g->reply_count; i++) reply_clean_up(&g->replies[i]);
    free(g->replies);
    prompts_clean_up(&g->prompts);
    model_text_close(&g->text);
    generator_clean_up(&g->generator);
    pipe_storage_clean_up(&g->storage);
    weir_model_destroy(g->model);
}

static int finish(struct generate *g, int status) {
    bool whole = status == WEIR_OK && g->faults->count == 0;
    int code = ranks_end(&g->ranks, whole ? output_commit(&g->json) : status);
    clean_up(g);
    return ranks_leave(&g->ranks, code);
}

int cmd_generate(int argc, char **argv) {
    const struct arg_section sections[] = {
        {"Texts", own_options, sizeof own_options / sizeof own_options[0], 0},
        {"Tokens", sampling_option_list, sampling_option_count, AT(sampling)},
        {"Model", model_option_list, model_option_count, AT(model)},
        {"Pipeline", pipe_option_list, pipe_option_count, AT(pipe)}};
    const struct arg_command command = {"generate",
                                        "continues prompts with a trained GPT or decoder",
                                        "Text is printed when it is whole, on a terminal a single "
                                        "one as it comes. What is drawn depends on the prompt, the "
                                        "seed and the place alone; the same prompt given again is "
                                        "continued in another way.",
                                        sections,
                                        4,
                                        pipe_infer_refusals};
    struct generate_values values = {0};
    struct args args;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_error error = {0};
    struct generate g = {.values = &values,
                         .args = &args,
                         .faults = &faults,
                         .error = &error,
                         .options = WEIR_NET_OPTIONS_INIT};
    if (args_parse(&args, &command, argc, argv, &values, &faults)) return EXIT_DONE;
    check_values(&values, &faults);
    people_init(&g.people, output_is_standard(values.json));
    int status = begin(&g, &command);
    interrupt_catch();
    g.streams = g.people.terminal && g.prompts.count == 1;
    if (status == WEIR_OK && faults.count == 0) status = run(&g);
    return finish(&g, status);
}
