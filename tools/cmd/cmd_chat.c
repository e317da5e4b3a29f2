/* SPDX-License-Identifier: MIT */
/* `weir chat`: the options, and the order of things. */
#include "cmd/chat.h"
#include "cli/interrupt.h"
#include "cli/json_text.h"
#include "cli/net_run.h"
#include "cli/pipe_costs.h"
#include "cli/template_option.h"
#include "cmd/commands.h"
#include "cmd/path_uses.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AT(member) offsetof(struct chat_values, member)

/** Where --context is not given: keys and values of so many tokens, or of as many as the model was
 * made for. */
enum { CONTEXT = 4096 };

static const struct arg_option own_options[] = {
    {"load", ARG_TEXT, AT(load),
     "weights of the --model folder's decoder: a training checkpoint, a file or a folder; by "
     "default the folder's own",
     .value = "FILE"},
    {"system", ARG_TEXT, AT(system),
     "what the model is told before the conversation; some templates have something of their own "
     "where this is not given",
     .value = "TEXT"},
    TEMPLATE_OPTION(AT(form)),
    {"tokens", ARG_U32, AT(tokens),
     "of a reply, at most. Default: until the model ends it, or the context is full", .value = "N",
     .least = 1, .most = 16777216},
    {"json", ARG_TEXT, AT(json), "one object per reply and a summary; - is stdout",
     .value = "FILE"},
};

/* ---- what can be refused ---- */

static void check_values(struct chat *chat) {
    struct chat_values *values = chat->values;
    if (!model_options_is_folder(&values->model) || !model_text_is(&chat->io, values->model.model))
        weir_faults_add(chat->faults,
                        "--model %.200s is no folder of Hugging Face's transformers with a "
                        "config.json and a tokenizer.json, which a chat needs: give --model FOLDER",
                        values->model.model);
    if (values->load == NULL) values->load = values->model.model;
    if (!args_given(chat->args, "context")) values->model.context = CONTEXT;
    net_run_check_input("load", args_given(chat->args, "load") ? values->load : NULL, chat->faults);
    if (!output_is_standard(values->json)) net_run_check_output("json", values->json, chat->faults);
    const struct path_use paths[] = {{"json", values->json, PATH_TEXT},
                                     {"load", values->load, PATH_INPUT}};
    path_uses_check_own(paths, 2, &values->model, &values->pipe, chat->faults);
    sampling_options_check(&values->sampling, chat->faults);
}

/* ---- building ---- */

static int open_text(struct chat *chat) {
    const struct chat_values *values = chat->values;
    const struct arg_words *stops = &values->sampling.stops;
    const char *system = values->system;
    int status = model_text_open(&chat->io, values->model.model, &chat->text);
    if (status != WEIR_OK) return status;
    status = model_text_choose(&chat->io, values->model.model, values->form, &chat->text);
    if (status != WEIR_OK) return status;
    if ((status = text_encoder_new(chat->text.tokenizer, &chat->encoder)) != WEIR_OK) return status;
    status = reply_init(&chat->io, &chat->text, stops->items, stops->count, &chat->reply);
    if (status != WEIR_OK || system == NULL) return status;
    return chat_add(chat, CHAT_SYSTEM, system, strlen(system));
}

static int build_net(struct chat *chat) {
    struct chat_values *values = chat->values;
    int status = model_options_build(&values->model, chat->args, NULL, chat->faults, &chat->model);
    if (status != WEIR_OK) return status;
    status = pipe_options_fill(&values->pipe, chat->args, chat->model, &chat->storage,
                               &chat->options, chat->faults);
    if (status != WEIR_OK) return status;
    chat->options.pipe.rows = 1;
    chat->options.pipe.infer_only = true;
    chat->options.weights = values->load;
    chat->options.weights_all = true;
    status = pipe_balance(&values->pipe, chat->model, false, &chat->storage, &chat->options, stderr,
                          chat->faults);
    if (status != WEIR_OK) return status;
    struct generator_options options = {.model = chat->model,
                                        .net = chat->options,
                                        .texts = 1,
                                        .prompt_tokens = values->model.context};
    return generator_init(&chat->generator, &options, chat->faults);
}

static int load(struct chat *chat) {
    const struct chat_values *values = chat->values;
    int status = net_run_load(chat->generator.net, values->load, NULL, chat->faults);
    if (status != WEIR_OK) return status;
    return model_options_load_adapter(&values->model, chat->generator.net, chat->faults);
}

static int begin(struct chat *chat) {
    check_values(chat);
    if (chat->faults->count > 0) return WEIR_ERR_CONFIG;
    int status = open_text(chat);
    if (status != WEIR_OK) return status;
    status = build_net(chat);
    if (status != WEIR_OK || chat->faults->count > 0) return status;
    uint32_t vocab = chat->generator.vocab;
    sampling_options_check_vocab(&chat->values->sampling, vocab, chat->faults);
    if (tokenizer_size(chat->text.tokenizer) > vocab)
        weir_faults_add(chat->faults,
                        "the tokenizer has %" PRIu32 " tokens, the model %" PRIu32
                        ": give the folder that both came from",
                        tokenizer_size(chat->text.tokenizer), vocab);
    if (chat->faults->count > 0) return WEIR_ERR_CONFIG;
    if ((status = load(chat)) != WEIR_OK) return status;
    chat->kept = calloc((size_t)chat->generator.context + 1, sizeof *chat->kept);
    if (chat->kept == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    return output_begin(&chat->json, chat->values->json, chat->error);
}

/* ---- the run ---- */

/* /new forgets what was said. */
static bool is_new(const struct weir__bytes *message) {
    return message->count == 4 && memcmp(message->data, "/new", 4) == 0;
}

static int answer(struct chat *chat) {
    if (ferror(chat->people.stream))
        return weir__fail(chat->error, WEIR_ERR_IO, "cannot write a reply: is its reader gone?");
    const struct weir__bytes *message = &chat->input.message;
    if (is_new(message)) {
        chat_forget_all(chat);
        return WEIR_OK;
    }
    int status = chat_add(chat, CHAT_USER, message->data, message->count);
    return status == WEIR_OK ? chat_reply(chat) : status;
}

static double rate(uint64_t tokens, double seconds) {
    return seconds > 0.0 ? (double)tokens / seconds : 0.0;
}

static int print_summary(struct chat *chat) {
    const struct generator_times *times = &chat->times;
    fprintf(stderr,
            "weir: chat: %" PRIu32 " repl%s, %" PRIu64 " token%s, %.0f tokens/s (and %" PRIu64
            " of messages, %.0f tokens/s)\n",
            chat->replies, chat->replies == 1 ? "y" : "ies", chat->drawn, weir__s(chat->drawn),
            rate(times->tokens, times->seconds), times->prompt_tokens,
            rate(times->prompt_tokens, times->prompt_seconds));
    if (chat->values->json == NULL) return WEIR_OK;
    json_t *summary = json_pack(
        "{s:I, s:I, s:o, s:o, s:I, s:o}", "replies", (json_int_t)chat->replies, "tokens",
        (json_int_t)chat->drawn, "seconds", json_text_real(times->seconds + times->prompt_seconds),
        "tokens_per_second", json_text_real(rate(times->tokens, times->seconds)), "prompt_tokens",
        (json_int_t)times->prompt_tokens, "prompt_tokens_per_second",
        json_text_real(rate(times->prompt_tokens, times->prompt_seconds)));
    return json_text_line(&chat->json, json_pack("{s:o}", "summary", summary));
}

/* A Ctrl-C while a reply comes ends the reply; everything else that came ends the conversation. */
static int run(struct chat *chat) {
    bool found = false;
    int status;
    while ((status = chat_input_next(chat, &found)) == WEIR_OK && found) {
        if ((status = answer(chat)) != WEIR_OK) return status;
        interrupt_take_back();
    }
    if (status != WEIR_OK) return status;
    if (chat->people.terminal) fputc('\n', chat->people.stream); /* behind "> ", or "^C" */
    return print_summary(chat);
}

static int finish(struct chat *chat, const struct arg_command *command, int status) {
    bool whole = status == WEIR_OK && chat->faults->count == 0;
    int code =
        args_end(command, chat->faults, whole ? output_commit(&chat->json) : status, chat->error);
    output_abort(&chat->json);
    chat_clean_up(chat);
    generator_clean_up(&chat->generator);
    pipe_storage_clean_up(&chat->storage);
    weir_model_destroy(chat->model);
    return interrupt_exit(code);
}

int cmd_chat(int argc, char **argv) {
    const struct arg_section sections[] = {
        {"Conversation", own_options, sizeof own_options / sizeof own_options[0], 0},
        {"Tokens", sampling_option_list, sampling_option_count, AT(sampling)},
        {"Model", model_option_list, model_option_count, AT(model)},
        {"Pipeline", pipe_option_list, pipe_option_count, AT(pipe)}};
    const struct arg_command command = {
        "chat",
        "talks with a model of a Hugging Face folder, by its chat template",
        "Each line of stdin is a message; where it ends in a backslash the next line belongs to "
        "it. "
        "/new alone begins a new conversation. Ctrl-C ends a reply, and where none comes the "
        "conversation, as the end of input does.",
        sections,
        4,
        pipe_infer_refusals};
    struct chat_values values = {0};
    struct args args;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_error error = {0};
    struct chat chat = {.values = &values,
                        .args = &args,
                        .faults = &faults,
                        .error = &error,
                        .io = {.error = &error},
                        .options = WEIR_NET_OPTIONS_INIT};
    if (args_parse(&args, &command, argc, argv, &values, &faults)) return EXIT_DONE;
    people_init(&chat.people, output_is_standard(values.json));
    int status = begin(&chat);
    interrupt_catch();
    if (status == WEIR_OK && faults.count == 0) status = run(&chat);
    return finish(&chat, &command, status);
}
