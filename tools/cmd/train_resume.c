/* SPDX-License-Identifier: MIT */
/* What a checkpoint says of how it was trained, and what becomes of it when it is resumed: another
 * model is refused; what only breaks "bit for bit as if never stopped" is a warning that names both
 * values. A checkpoint without such notes (an older one) is taken as it is. */
#include "io/safetensors.h"
#include "cmd/train.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define AT(member) offsetof(struct train_values, member)

#if defined(__AVX512F__)
#define INSTRUCTIONS "avx512"
#elif defined(__AVX2__)
#define INSTRUCTIONS "avx2"
#elif defined(__x86_64__)
#define INSTRUCTIONS "x86-64"
#elif defined(__aarch64__)
#define INSTRUCTIONS "aarch64"
#else
#define INSTRUCTIONS "other"
#endif

/* ---- notes ---- */

enum option_kind { NUMBER_U32, NUMBER_U64, REAL, FLAG, CHOICE };
enum when { ALWAYS, ADAMW, SGD };

/* Options whose values decide the bits of a run, as far as they mean anything to it. */
static const struct {
    const char *name;
    enum option_kind kind;
    enum when when;
    size_t offset;
    const char *choices[2];
} options[] = {
    {"batch", NUMBER_U32, ALWAYS, AT(batch), {0}},
    {"accumulate", NUMBER_U32, ALWAYS, AT(accumulate), {0}},
    {"optimizer", CHOICE, ALWAYS, AT(optimizer), {"adamw", "sgd"}},
    {"lr", REAL, ALWAYS, AT(lr), {0}},
    {"lr-schedule", CHOICE, ALWAYS, AT(lr_schedule), {"constant", "cosine"}},
    {"warmup", NUMBER_U64, ALWAYS, AT(warmup), {0}},
    {"weight-decay", REAL, ALWAYS, AT(weight_decay), {0}},
    {"momentum", REAL, SGD, AT(momentum), {0}},
    {"nesterov", FLAG, SGD, AT(nesterov), {0}},
    {"beta1", REAL, ADAMW, AT(beta1), {0}},
    {"beta2", REAL, ADAMW, AT(beta2), {0}},
    {"eps", REAL, ADAMW, AT(eps), {0}},
    {"clip", REAL, ALWAYS, AT(clip), {0}},
    {"on-nonfinite", CHOICE, ALWAYS, AT(on_nonfinite), {"stop", "skip"}},
};
enum { OPTIONS = sizeof options / sizeof options[0] };

/* Notes that follow from the run; the keys of those of options begin with "option.". */
static const char model_key[] = "model", data_key[] = "data", numerics_key[] = "numerics";
static const char option_prefix[] = "option.";

static int add(struct train_notes *notes, const char *key, const char *value) {
    if (notes->count == TRAIN_NOTES_MAX) return WEIR_ERR_OVERFLOW;
    struct weir_note *note = &notes->list[notes->count];
    note->key = strdup(key);
    note->value = strdup(value);
    notes->count++;
    return note->key != NULL && note->value != NULL ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

__attribute__((format(printf, 3, 4))) static int add_option(struct train_notes *notes,
                                                            const char *name, const char *format,
                                                            ...) {
    char key[64], value[64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    snprintf(key, sizeof key, "%s%s", option_prefix, name);
    return add(notes, key, value);
}

/* As short as it can be read back. */
static int add_real(struct train_notes *notes, const char *name, double value) {
    char text[32];
    snprintf(text, sizeof text, "%.15g", value);
    if (strtod(text, NULL) != value) snprintf(text, sizeof text, "%.17g", value);
    return add_option(notes, name, "%s", text);
}

static int add_table_option(const struct train *t, struct train_notes *notes, int index) {
    const char *name = options[index].name;
    const void *at = (const char *)t->values + options[index].offset;
    switch (options[index].kind) {
    case NUMBER_U32: return add_option(notes, name, "%" PRIu32, *(const uint32_t *)at);
    case NUMBER_U64: return add_option(notes, name, "%" PRIu64, *(const uint64_t *)at);
    case REAL: return add_real(notes, name, *(const double *)at);
    case FLAG: return add_option(notes, name, "%s", *(const bool *)at ? "yes" : "no");
    default: return add_option(notes, name, "%s", options[index].choices[*(const uint32_t *)at]);
    }
}

static bool matters(const struct train *t, enum when when) {
    bool sgd = t->options.optimizer.kind == WEIR_OPTIMIZER_SGD;
    return when == ALWAYS || (when == SGD) == sgd;
}

/* Threads of each stage, one number where they are all equal. */
static void threads_text(const struct train *t, char text[64]) {
    struct weir_pipe *pipe = weir_net_pipe(t->net);
    uint32_t first = 0;
    size_t used = 0;
    bool equal = true;
    text[0] = '\0';
    for (uint32_t s = 0; s < weir_pipe_stage_count(pipe) && used < 56; s++) {
        struct weir_attachment at = {0};
        if (weir_pipe_attachment(pipe, s, &at) != WEIR_OK) continue;
        if (s == 0) first = at.threads;
        equal = equal && at.threads == first;
        used +=
            (size_t)snprintf(text + used, 64 - used, "%s%" PRIu32, s == 0 ? "" : ",", at.threads);
    }
    if (equal) snprintf(text, 64, "%" PRIu32, first);
}

static int add_pipeline(const struct train *t, struct train_notes *notes) {
    char threads[64];
    const struct weir_table *table = weir_pipe_table(weir_net_pipe(t->net), t->values->batch);
    threads_text(t, threads);
    int status = add_option(notes, "chunks", "%" PRIu32, table->micro_batch_count);
    if (status != WEIR_OK) return status;
    status = add_option(notes, "threads-per-stage", "%s", threads);
    if (status != WEIR_OK) return status;
    status = add_option(notes, "dtype", "%s", pipe_dtype_text(&t->values->pipe));
    if (status != WEIR_OK) return status;
    /* a constant rate does not know where it ends */
    if (t->values->lr_schedule != 1) return WEIR_OK;
    return add_option(notes, "steps", "%" PRIu64, t->steps);
}

/* For each layer, and last for border and loss: 8 digits for its form, 8 for its numbers. */
static int add_model(const struct train *t, struct train_notes *notes) {
    uint32_t layers = weir_model_layer_count(t->model);
    char *text = calloc((size_t)layers + 1, 16 + 1);
    if (text == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = WEIR_OK;
    for (uint32_t i = 0; i <= layers; i++) {
        struct weir_layer_hash hash;
        status = weir_model_hash(t->model, i, &hash);
        if (status != WEIR_OK) goto out;
        snprintf(text + (size_t)i * 16, 17, "%08" PRIx32 "%08" PRIx32, (uint32_t)hash.form,
                 (uint32_t)hash.numbers);
    }
    status = add(notes, model_key, text);
out:
    free(text);
    return status;
}

static int add_data(const struct train *t, struct train_notes *notes) {
    char text[24];
    snprintf(text, sizeof text, "%016" PRIx64, t->task.data->fingerprint);
    return add(notes, data_key, text);
}

/* Which library and which instructions compute: "oneDNN 2.6.3, avx512". */
static int add_numerics(const struct train *t, struct train_notes *notes) {
    char kernels[512], text[96];
    weir_net_kernels(t->net, kernels, sizeof kernels);
    bool library = strncmp(kernels, "oneDNN", 6) == 0;
    snprintf(text, sizeof text, "%.*s, %s", library ? (int)strcspn(kernels, ":") : 3,
             library ? kernels : "own", INSTRUCTIONS);
    return add(notes, numerics_key, text);
}

int train_notes_make(const struct train *t, struct train_notes *notes) {
    int status = add_model(t, notes);
    if (status != WEIR_OK) return status;
    if ((status = add_data(t, notes)) != WEIR_OK) return status;
    if ((status = add_numerics(t, notes)) != WEIR_OK) return status;
    for (int i = 0; i < OPTIONS; i++) {
        if (!matters(t, options[i].when)) continue;
        if ((status = add_table_option(t, notes, i)) != WEIR_OK) return status;
    }
    return add_pipeline(t, notes);
}

void train_notes_clean_up(struct train_notes *notes) {
    for (uint32_t i = 0; i < notes->count; i++) {
        free((void *)notes->list[i].key);
        free((void *)notes->list[i].value);
    }
    notes->count = 0;
}

/* ---- resuming ---- */

__attribute__((format(printf, 1, 2))) static void warn(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("weir: train: warning: ", stderr);
    vfprintf(stderr, format, arguments);
    fputs(": this run will not be bit for bit as if never stopped\n", stderr);
    va_end(arguments);
}

static void layer_text(const struct train *t, uint32_t index, char text[96]) {
    const char *type, *name;
    if (weir_model_layer(t->model, index, &type, &name, NULL) != WEIR_OK)
        snprintf(text, 96, "its input, target or loss");
    else
        snprintf(text, 96, "layer %" PRIu32 " (%s%s%.48s)", index, type, name[0] != '\0' ? " " : "",
                 name);
}

/* The first layer of another form. */
static void refuse_model(const struct train *t, const char *now, const char *then) {
    char layer[96];
    const char *path = t->values->resume;
    size_t layers = strlen(now) / 16 - 1, others = strlen(then) / 16;
    if (others != layers + 1 || strlen(then) % 16 != 0) {
        weir_faults_add(t->faults,
                        "%s was trained with a model of %zu layer%s, this one has %zu: give the "
                        "model that it began with",
                        path, others > 0 ? others - 1 : 0, weir__s(others > 0 ? others - 1 : 0),
                        layers);
        return;
    }
    for (size_t i = 0; i <= layers; i++) {
        if (strncmp(now + 16 * i, then + 16 * i, 8) == 0) continue;
        layer_text(t, (uint32_t)i, layer);
        weir_faults_add(t->faults,
                        "%s was trained with another model: %s differs: give the model that it "
                        "began with",
                        path, layer);
        return;
    }
}

/* Of one form, but with other numbers, which may be meant to change. */
static void warn_of_model(const struct train *t, const char *now, const char *then) {
    char layer[96];
    for (size_t i = 0; strlen(then) == strlen(now) && i < strlen(now) / 16; i++) {
        if (strncmp(now + 16 * i + 8, then + 16 * i + 8, 8) == 0) continue;
        layer_text(t, (uint32_t)i, layer);
        warn("%s has other numbers (a dropout's p, an eps) than %s was trained with", layer,
             t->values->resume);
        return;
    }
}

static void warn_of_note(const struct train *t, const struct weir_note *note, const char *then) {
    const char *path = t->values->resume;
    if (strcmp(note->key, model_key) == 0)
        warn_of_model(t, note->value, then);
    else if (strcmp(note->key, data_key) == 0)
        warn("the data (fingerprint %s) are not those that %s was trained on (%.60s)", note->value,
             path, then);
    else if (strcmp(note->key, numerics_key) == 0)
        warn("%s computes here, but %.60s trained %s", note->value, then, path);
    else
        warn("--%s is %s, but %s was trained with %.60s", note->key + strlen(option_prefix),
             note->value, path, then);
}

/* Calls `visit` for every note that the file has, but with another value. */
static int visit_others(struct train *t,
                        void (*visit)(const struct train *t, const struct weir_note *note,
                                      const char *then)) {
    struct weir__io io = {.error = t->error};
    struct weir__safetensors *file;
    int status = weir__safetensors_open(&io, t->values->resume, NULL, &file);
    if (status != WEIR_OK) return status;
    for (uint32_t i = 0; i < t->notes.count; i++) {
        const struct weir_note *note = &t->notes.list[i];
        const char *then = weir__safetensors_metadata(file, note->key);
        if (then != NULL && strcmp(note->value, then) != 0) visit(t, note, then);
    }
    weir__safetensors_close(file);
    return WEIR_OK;
}

static void refuse_note(const struct train *t, const struct weir_note *note, const char *then) {
    if (strcmp(note->key, model_key) == 0) refuse_model(t, note->value, then);
}

int train_notes_check(struct train *t) {
    return visit_others(t, refuse_note);
}

int train_notes_warn(struct train *t) {
    return visit_others(t, warn_of_note);
}

/* Micro-batches, which a search is not to change: chunks that make as many. */
static void read_chunks(struct train *t, const struct weir__safetensors *file) {
    char key[64];
    snprintf(key, sizeof key, "%schunks", option_prefix);
    const char *text = weir__safetensors_metadata(file, key);
    unsigned long count = text != NULL ? strtoul(text, NULL, 10) : 0;
    if (count > 0 && count <= UINT32_MAX) t->values->pipe.chunks = (uint32_t)count;
}

int train_read_origin(struct train *t, const struct args *args) {
    bool chunks = t->values->plan == 1 && !args_given(args, "chunks");
    bool seeds = !args_given(args, "seed");
    if (t->values->resume == NULL || (!seeds && !chunks)) return WEIR_OK;
    struct weir__io io = {.error = t->error};
    struct weir__safetensors *file;
    int status = weir__safetensors_open(&io, t->values->resume, NULL, &file);
    if (status == WEIR_ERR_OUT_OF_MEMORY) return status;
    if (status != WEIR_OK) {
        weir_faults_add(t->faults, "%s", t->error->message);
        return status;
    }
    const char *seed = weir__safetensors_metadata(file, "seed");
    if (chunks) read_chunks(t, file);
    if (seeds && seed != NULL) t->values->pipe.seed = strtoull(seed, NULL, 10);
    weir__safetensors_close(file);
    return WEIR_OK;
}
