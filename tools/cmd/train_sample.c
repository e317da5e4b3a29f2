/* SPDX-License-Identifier: MIT */
/* Samples: what `weir generate` would write with the same weights, by a net of one stage beside the
 * one that is trained. */
#include "cmd/generator.h"
#include "cli/interrupt.h"
#include "cli/net_run.h"
#include "cmd/train.h"
#include "world/allreduce.h"

#include <stdlib.h>
#include <string.h>

/* Of bytes, where no prompt is given. */
static const char own_prompt[] = "static int ";
enum { BYTES = 256, SAMPLE_BYTES = 400, SAMPLE_TOKENS = 100, WORDS = 16 };
static const double temperature = 0.8;

/* A prompt, and what is drawn after it. */
struct sample {
    struct train *t;
    struct generator generator;
    struct text_encoder *encoder; /* NULL: of bytes */
    struct text_decoder *decoder;
    struct chat_tokens chat;
    const char *text; /* the prompt, of bytes */
    uint32_t *tokens; /* of a context, and what is drawn */
    uint32_t prompt, count;
    struct weir_error *error;
};

bool train_has_samples(const struct train *t) {
    enum weir__data_kind kind = t->task.data->kind;
    bool given = args_given(t->args, "sample");
    return (kind == WEIR__DATA_TEXT || t->task.words.tokenizer != NULL) &&
           (!given || t->values->sample > 0);
}

/* ---- showing ---- */

static void show_text(const struct sample *s, const char *text, size_t bytes) {
    people_show(&s->t->people, text, bytes);
    fflush(s->t->people.stream);
}

static void show_byte(const struct sample *s, uint32_t byte) {
    char text = byte < 128 ? (char)byte : '?';
    show_text(s, &text, 1);
}

static void show(struct sample *s, uint32_t token) {
    const char *text;
    size_t bytes;
    if (s->decoder == NULL)
        show_byte(s, token);
    else if (text_decoder_put(s->decoder, token, &text, &bytes) == WEIR_OK)
        show_text(s, text, bytes);
}

/* Of bytes all of it, whatever the context has places for. */
static void show_prompt(struct sample *s) {
    for (const char *at = s->text; at != NULL && *at != '\0'; at++)
        show_byte(s, (unsigned char)*at);
    for (uint32_t i = 0; s->text == NULL && i < s->prompt; i++) show(s, s->tokens[i]);
}

/* Until a token comes that ends a text. */
static bool print_drawn(void *context, uint32_t number, uint32_t token) {
    struct sample *s = context;
    bool ends = s->decoder != NULL && model_text_ends(&s->t->task.words, token);
    (void)number;
    if (!ends) show(s, token);
    return ends;
}

static void print_end(struct sample *s) {
    const char *text;
    size_t bytes;
    if (s->decoder != NULL && text_decoder_end(s->decoder, &text, &bytes) == WEIR_OK)
        show_text(s, text, bytes);
    fputc('\n', s->t->people.stream);
}

/* ---- a net for it ---- */

static int copy_parameter(struct weir_net *from, const struct weir_parameter *source,
                          struct weir_net *to, const struct weir_parameter *target) {
    size_t bytes = (size_t)source->count * weir_dtype_bytes(source->dtype);
    void *data = malloc(bytes);
    if (data == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = weir_pipe_read(weir_net_pipe(from), source->stage, data, source->data, bytes);
    if (status != WEIR_OK) goto out;
    status = weir_pipe_write(weir_net_pipe(to), target->stage, target->data, data, bytes);
out:
    free(data);
    return status;
}

/* A model that is not made of tokens one by one may have other parameters there. */
static int copy_parameters(struct weir_net *from, struct weir_net *to) {
    if (weir_net_parameter_count(from) != weir_net_parameter_count(to)) return WEIR_ERR_SHAPE;
    for (uint32_t i = 0; i < weir_net_parameter_count(from); i++) {
        struct weir_parameter source, target;
        int status = weir_net_parameter(from, i, &source);
        if (status != WEIR_OK) return status;
        status = weir_net_parameter(to, i, &target);
        if (status != WEIR_OK) return status;
        if (source.count != target.count) return WEIR_ERR_SHAPE;
        if (target.mapped) continue; /* frozen: as in the file that both were made with */
        if (source.dtype != target.dtype) return WEIR_ERR_SHAPE;
        status = copy_parameter(from, &source, to, &target);
        if (status != WEIR_OK) return status;
    }
    return weir_net_share(to);
}

static int build(const struct train *t, struct generator *generator, struct weir_faults *faults) {
    struct generator_options options = {t->model, t->options, 1, (uint64_t)t->task.target.shape[0],
                                        true};
    struct weir_attachment stage;
    int status = weir_pipe_attachment(weir_net_pipe(t->net), 0, &stage);
    if (status != WEIR_OK) return status;
    options.net.stages = options.net.pipe.workers = options.net.pipe.chunks = 1;
    options.net.balance = NULL;
    options.net.pipe.schedule = "gpipe";
    options.net.pipe.table_csv = NULL;
    options.net.pipe.devices = NULL;
    options.net.pipe.device_count = 0;
    if (options.net.dtype == WEIR_BF16) options.net.dtype = WEIR_F32; /* as the parameters are */
    options.net.pipe.memory_limit = 0;
    options.net.pipe.threads_per_worker = stage.threads > 0 ? stage.threads : 1;
    options.net.pipe.world = NULL; /* each rank has all of this one */
    options.net.pipe.replicas = options.net.pipe.gradient_groups = 0;
    status = generator_init(generator, &options, faults);
    status = weir__world_agree(ranks_world(&t->ranks), status, 0, "samples", faults);
    return status == WEIR_OK ? copy_parameters(t->net, generator->net) : status;
}

/* ---- prompts ---- */

/* The last of them, as many as the context has places. */
static void take_prompt(struct sample *s, const uint32_t *tokens, size_t count) {
    uint32_t context = s->generator.context;
    size_t kept = count < context ? count : context;
    if (kept > 0) memcpy(s->tokens, tokens + (count - kept), kept * sizeof *tokens);
    s->prompt = (uint32_t)kept;
}

static void take_bytes(struct sample *s, const char *text) {
    s->text = text;
    size_t count = strlen(text), context = s->generator.context;
    size_t kept = count < context ? count : context;
    for (size_t i = 0; i < kept; i++) s->tokens[i] = (uint8_t)text[count - kept + i];
    s->prompt = (uint32_t)kept;
}

static int take_words(struct sample *s, const char *text) {
    struct text_tokens tokens;
    struct chat_message said = {CHAT_USER, text, strlen(text)};
    const struct model_text *words = &s->t->task.words;
    struct weir__io io = {.error = s->error};
    int status = words->form != NULL
                     ? chat_encode(&io, words->form, s->encoder, &said, 1, true, &s->chat)
                     : text_encode(s->encoder, text, said.bytes, TEXT_ADD_SPECIAL, &tokens);
    if (status != WEIR_OK) return status;
    if (words->form != NULL)
        take_prompt(s, s->chat.ids, s->chat.count);
    else
        take_prompt(s, tokens.ids, tokens.count);
    return WEIR_OK;
}

/* What one can go on from: of conversations all before the first reply. */
static void take_data(struct sample *s) {
    const struct train *t = s->t;
    uint32_t context = s->generator.context, count = 0;
    bool chats = t->task.data->kind == WEIR__DATA_CHATS;
    const uint32_t *ids =
        weir__dataset_prompt(t->task.dataset, chats || context < WORDS ? context : WORDS, &count);
    if (ids != NULL) take_prompt(s, ids, count);
}

/* Prompt `index` of those that are given, or the one that is not. An empty one begins a text. */
static int choose_prompt(struct sample *s, uint32_t index) {
    const struct arg_words *given = &s->t->values->sample_prompts;
    const struct model_text *words = &s->t->task.words;
    int status = WEIR_OK;
    s->prompt = 0;
    if (s->encoder == NULL)
        take_bytes(s, given->count > 0 ? given->items[index] : own_prompt);
    else if (given->count > 0)
        status = take_words(s, given->items[index]);
    else
        take_data(s);
    if (s->prompt > 0 || status != WEIR_OK) return status;
    s->tokens[s->prompt++] = s->encoder == NULL                   ? '\n'
                             : words->begin != TOKENIZER_NONE     ? words->begin
                             : words->separator != TOKENIZER_NONE ? words->separator
                                                                  : 0;
    return WEIR_OK;
}

/* ---- drawing ---- */

static uint32_t drawn_vocab(const struct sample *s) {
    uint32_t vocab = s->generator.vocab;
    return s->encoder == NULL && BYTES < vocab ? BYTES : vocab;
}

static int draw(struct sample *s) {
    struct train *t = s->t;
    struct generator_run run = {.sampler = {t->progress.seed, temperature, 0, 1.0, drawn_vocab(s)},
                                .tokens = s->count,
                                .slides = true,
                                .stop = interrupt_came,
                                .visit = print_drawn,
                                .context = s};
    struct generator_times times = {0};
    struct generator_text text = {.tokens = s->tokens,
                                  .prompt = s->prompt,
                                  .count = s->prompt,
                                  .identity = {sampler_hash(s->tokens, s->prompt), 0}};
    show_prompt(s);
    return generator_continue(&s->generator, &run, &text, 1, &times, s->error);
}

static int write_samples(struct sample *s) {
    struct train *t = s->t;
    uint32_t prompts = t->values->sample_prompts.count;
    int status = WEIR_OK;
    for (uint32_t i = 0; i < (prompts > 0 ? prompts : 1) && status == WEIR_OK; i++) {
        status = choose_prompt(s, i);
        if (status != WEIR_OK) return status;
        fprintf(t->people.stream, "\nsample\n");
        status = draw(s);
        print_end(s);
    }
    return status;
}

static int begin(struct sample *s, struct weir_faults *faults) {
    struct train *t = s->t;
    struct tokenizer *tokenizer = t->task.words.tokenizer;
    int status = build(t, &s->generator, faults);
    if (status != WEIR_OK || !ranks_leads(&t->ranks)) return status;
    bool given = args_given(t->args, "sample");
    s->count = given ? t->values->sample : tokenizer != NULL ? SAMPLE_TOKENS : SAMPLE_BYTES;
    s->tokens = calloc((size_t)s->generator.context + s->count, sizeof *s->tokens);
    if (s->tokens == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    if (tokenizer == NULL) return WEIR_OK;
    status = text_encoder_new(tokenizer, &s->encoder);
    return status == WEIR_OK ? text_decoder_new(tokenizer, true, &s->decoder) : status;
}

static void print_failure(const struct train *t, const struct weir_faults *faults,
                          const struct weir_error *error, int status) {
    const char *reason = faults->kept > 0         ? faults->lines[0]
                         : error->message[0] != 0 ? error->message
                                                  : weir_status_text(status);
    fprintf(t->people.stream, "\nno sample: %s\n", reason);
}

void train_sample(struct train *t) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_error error = {0};
    struct sample s = {.t = t, .error = &error};
    struct weir__io io = {.error = &error};
    int status = begin(&s, &faults);
    if (status == WEIR_OK && ranks_leads(&t->ranks)) status = write_samples(&s);
    if (status != WEIR_OK) print_failure(t, &faults, &error, status);
    chat_tokens_clean_up(&io, &s.chat);
    text_decoder_destroy(s.decoder);
    text_encoder_destroy(s.encoder);
    free(s.tokens);
    generator_clean_up(&s.generator);
    weir_faults_clean_up(&faults);
}
