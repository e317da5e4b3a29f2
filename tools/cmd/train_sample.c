/* SPDX-License-Identifier: MIT */
/* The sample at the end: what `weir generate` would write with the same weights, by a net of one
 * stage beside the one that was trained. */
#include "cmd/generator.h"
#include "cli/interrupt.h"
#include "cli/net_run.h"
#include "cmd/train.h"
#include "world/allreduce.h"

#include <stdlib.h>
#include <string.h>

static const char prompt[] = "static int ";
enum { PROMPT = sizeof prompt - 1, BYTES = 256 };
static const double temperature = 0.8;

/* What is not text would upset a terminal. */
static void print_byte(void *to, uint32_t text, uint32_t byte) {
    bool plain = (byte >= 32 && byte < 127) || byte == '\n' || byte == '\t';
    (void)text;
    fputc(plain ? (int)byte : '?', to);
    fflush(to);
}

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
        if (source.count != target.count || source.dtype != target.dtype) return WEIR_ERR_SHAPE;
        if (source.mapped && target.mapped) continue; /* as both have it from the same file */
        status = copy_parameter(from, &source, to, &target);
        if (status != WEIR_OK) return status;
    }
    return weir_net_share(to);
}

static int begin(const struct train *t, struct generator *generator, struct weir_faults *faults) {
    struct generator_options options = {t->model, t->options, 1, (uint64_t)t->task.input.shape[0],
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

static int draw(struct train *t, struct generator *generator, uint32_t count, uint32_t *tokens,
                struct weir_error *error) {
    uint32_t context = generator->context, kept = PROMPT < context ? PROMPT : context;
    struct generator_run run = {.sampler = {t->progress.seed, temperature, 0, 1.0, BYTES},
                                .tokens = count,
                                .slides = true,
                                .stop = interrupt_came,
                                .visit = print_byte,
                                .context = t->people.stream};
    struct generator_times times = {0};
    for (uint32_t i = 0; i < kept; i++) tokens[i] = (uint8_t)prompt[PROMPT - kept + i];
    struct generator_text text = {.tokens = tokens,
                                  .prompt = kept,
                                  .count = kept,
                                  .identity = {sampler_hash(tokens, kept), 0}};
    return generator_continue(generator, &run, &text, 1, &times, error);
}

static int write_sample(struct train *t, struct generator *generator, uint32_t count,
                        struct weir_error *error) {
    uint32_t *tokens = calloc((size_t)PROMPT + count, sizeof *tokens);
    if (tokens == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    fprintf(t->people.stream, "\nsample\n%s", prompt);
    int status = draw(t, generator, count, tokens, error);
    fputc('\n', t->people.stream);
    free(tokens);
    return status;
}

static void print_failure(const struct train *t, const struct weir_faults *faults,
                          const struct weir_error *error, int status) {
    const char *reason = faults->kept > 0         ? faults->lines[0]
                         : error->message[0] != 0 ? error->message
                                                  : weir_status_text(status);
    fprintf(t->people.stream, "\nno sample: %s\n", reason);
}

static int make_sample(struct train *t, struct generator *generator, uint32_t count,
                       struct weir_faults *faults, struct weir_error *error) {
    int status = begin(t, generator, faults);
    if (status != WEIR_OK || !ranks_leads(&t->ranks)) return status;
    return write_sample(t, generator, count, error);
}

void train_sample(struct train *t, uint32_t count) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_error error = {0};
    struct generator generator = {0};
    int status = make_sample(t, &generator, count, &faults, &error);
    if (status != WEIR_OK) print_failure(t, &faults, &error, status);
    generator_clean_up(&generator);
    weir_faults_clean_up(&faults);
}
