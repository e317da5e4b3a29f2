/* SPDX-License-Identifier: MIT */
/* What a checkpoint says of how it was trained, and what becomes of it when it is resumed: another
 * model or optimizer is refused; what only breaks "bit for bit as if never stopped" is a warning
 * that names both values. A checkpoint without such notes (an older one) is taken as it is.
 *
 * train_notes_make is the one list of all that decides the bits of a run, but for its seed, which
 * cannot change. What is not in it, such as stages, workers, checkpoint modes and timing, decides
 * none. docs/command.md ("Same bits") explains each entry; a test compares the two. */
#include "cmd/train.h"

#include "device/device.h"
#include "device/gpus.h"
#include "io/archive.h"
#include "net/cpu/level.h"
#include "net/run/net.h"
#include "pipe/describe/groups.h"
#include "pipe/describe/microbatch.h"
#include "place/place.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define AT(member) offsetof(struct train_values, member)

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
static const char model_key[] = "model", data_key[] = "data", numerics_key[] = "numerics",
                  level_key[] = "level", processor_key[] = "processor", order_key[] = "order";
static const char steps_key[] = "option.steps", optimizer_key[] = "option.optimizer",
                  momentum_key[] = "option.momentum";
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

static int add_pipeline(const struct train *t, struct train_notes *notes) {
    const struct weir_pipe_options *pipe = &t->options.pipe;
    uint32_t micro_batches = weir__chunk_count(t->values->batch, pipe->chunks);
    int status = add_option(notes, "chunks", "%" PRIu32, micro_batches);
    if (status != WEIR_OK) return status;
    status = add_option(notes, "gradient-groups", "%" PRIu32, weir__gradient_groups(pipe));
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

/* A value in the making; what has no room is left out. */
struct value {
    char text[512];
    size_t used;
};

__attribute__((format(printf, 2, 3))) static void append(struct value *value, const char *format,
                                                         ...) {
    va_list arguments;
    va_start(arguments, format);
    int more =
        vsnprintf(value->text + value->used, sizeof value->text - value->used, format, arguments);
    va_end(arguments);
    value->used += more > 0 ? (size_t)more : 0;
    if (value->used >= sizeof value->text) value->used = sizeof value->text - 1;
}

/* The GPU of a stage, "cuda:1"; NULL where it is on the CPU. */
static const char *gpu_of(const struct train *t, uint32_t stage) {
    const struct weir_pipe_options *pipe = &t->options.pipe;
    struct weir_attachment at = {0};
    if (pipe->device_count == 0) return NULL;
    if (weir_pipe_attachment(weir_net_pipe(t->net), stage, &at) != WEIR_OK) return NULL;
    const char *name = pipe->devices[pipe->device_count == 1 ? 0 : at.worker];
    return weir__device_facts(name).synchronous ? NULL : name;
}

/* "v3, v4 or neon", which give the same; "v4-bf16", which does so in f32 alone; or of the reference
 * kernels, which ask the C library for functions, the processor. */
static int add_cpu(const struct train *t, struct train_notes *notes) {
    struct weir__machine *machine;
    struct weir__machine_facts facts = {.usable_cores = 0};
    if (t->net->dtype == WEIR_BF16) return add(notes, level_key, t->net->level->bits_bf16);
    if (t->net->dtype != WEIR_F64 && !t->net->reference)
        return add(notes, level_key, t->net->level->bits);
    if (weir__machine_new(NULL, &machine) == WEIR_OK) {
        weir__machine_facts(machine, &facts);
        weir__machine_destroy(machine);
    }
    return add(notes, processor_key, facts.model);
}

/* "cuBLASLt 13.0.2, cuDNN 9.1.0, NVIDIA H100" */
static int add_gpu_text(struct value *value, const char *device) {
    const struct weir__gpu_library *library;
    struct weir__gpus *gpus = calloc(1, sizeof *gpus);
    struct weir_error error = {0};
    if (gpus == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; (library = weir__gpu_library_at(i)) != NULL; i++) {
        struct weir__gpu_library_facts facts;
        if (library->purpose != NULL) continue; /* it moves what others compute */
        weir__gpu_library_find(library, &facts);
        append(value, ", %s %s", library->name, facts.version);
    }
    if (weir__gpus_survey(gpus, &error) == WEIR_OK)
        append(value, ", %s", weir__gpus_name(gpus, device));
    free(gpus);
    return WEIR_OK;
}

/* What computes. Where it is not the same for all layers, which of them are whose. */
static int add_numerics(const struct train *t, struct train_notes *notes) {
    const uint32_t *balance = weir_net_balance(t->net);
    uint32_t stages = weir_pipe_stage_count(weir_net_pipe(t->net)), on_gpu = 0;
    struct value value = {.used = 0};
    const char *first = NULL;
    append(&value, "Weir %s", weir_version());
    for (uint32_t s = stages; s-- > 0;) {
        const char *gpu = gpu_of(t, s);
        on_gpu += gpu != NULL;
        if (gpu != NULL) first = gpu;
    }
    if (on_gpu < stages && add_cpu(t, notes) != WEIR_OK) return WEIR_ERR_OUT_OF_MEMORY;
    if (first != NULL && add_gpu_text(&value, first) != WEIR_OK) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t s = 0; s < stages && on_gpu > 0 && on_gpu < stages; s++)
        append(&value, "%s%" PRIu32 " on %s", s == 0 ? "; layers: " : ", ", balance[s],
               gpu_of(t, s) != NULL ? "GPU" : "CPU");
    return add(notes, numerics_key, value.text);
}

/* In which order micro-batches add up. Where stages differ in that, so do the bits of cuts. */
static int add_order(const struct train *t, struct train_notes *notes) {
    struct weir_pipe *pipe = weir_net_pipe(t->net);
    const uint32_t *balance = weir_net_balance(t->net);
    char order[WEIR_ORDER_BYTES];
    struct value value = {.used = 0};
    bool shared = weir_table_order(weir_pipe_table(pipe, t->values->batch), order);
    append(&value, "%s", order);
    for (uint32_t s = 0; s < weir_pipe_stage_count(pipe) && !shared; s++)
        append(&value, "%s%" PRIu32, s == 0 ? " of layers " : ",", balance[s]);
    return add(notes, order_key, value.text);
}

int train_notes_make(const struct train *t, struct train_notes *notes) {
    int status = add_model(t, notes);
    if (status != WEIR_OK) return status;
    if ((status = add_data(t, notes)) != WEIR_OK) return status;
    if ((status = add_numerics(t, notes)) != WEIR_OK) return status;
    if ((status = add_order(t, notes)) != WEIR_OK) return status;
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

bool train_notes_match(const struct train *t, const struct weir__archive *file, bool all) {
    for (uint32_t i = 0; i < t->notes.count; i++) {
        const struct weir_note *note = &t->notes.list[i];
        bool says = strcmp(note->key, model_key) == 0 || strcmp(note->key, data_key) == 0;
        if (!says && (!all || strcmp(note->key, steps_key) == 0)) continue;
        const char *text = weir__archive_metadata(file, note->key);
        if (text == NULL || strcmp(text, note->value) != 0) return false;
    }
    return true;
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

/* Rows of several conversations make a model of their own. */
static const char *packing_text(const struct train *t, uint32_t index) {
    const char *type = "";
    if (weir_model_layer(t->model, index, &type, NULL, NULL) != WEIR_OK) return "";
    if (strcmp(type, "packed_embedding") == 0) return ", perhaps by --no-pack";
    return strcmp(type, "embedding") == 0 ? ", perhaps on conversations without --no-pack" : "";
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
                        "began with%s",
                        path, layer, packing_text(t, (uint32_t)i));
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

/* The first update from `first` on, before both ends, whose rate depends on the end; or the nearer
 * end. */
static uint64_t find_other_rate(const struct train *t, uint64_t first, uint64_t former) {
    uint64_t end = t->steps < former ? t->steps : former, warmup = t->values->warmup;
    if (t->values->lr == 0.0 || warmup >= end) return end;
    uint64_t update = first > warmup ? first : warmup;
    while (update < end && train_rate(t, update, t->steps) == train_rate(t, update, former))
        update++;
    return update < end ? update : end;
}

/* With as many digits as it takes to tell them apart. */
static void rates_text(uint64_t update, double now, double then, char text[128]) {
    char a[32], b[32];
    int digits = 4;
    do {
        snprintf(a, sizeof a, "%.*g", digits, now);
        snprintf(b, sizeof b, "%.*g", digits, then);
    } while (strcmp(a, b) == 0 && ++digits <= 17);
    snprintf(text, 128, "update %" PRIu64 "'s is %s instead of %s", update + 1, a, b);
}

/* Of the rates from here on. A run that had come to its end has none left to compare, but those
 * behind it led to that end. */
static void warn_of_steps(const struct train *t, const char *then) {
    uint64_t next = t->progress.step, former = strtoull(then, NULL, 10);
    uint64_t end = t->steps < former ? t->steps : former;
    uint64_t other = find_other_rate(t, next < former ? next : 0, former);
    if (next >= t->steps || other >= end) return;
    char rates[128];
    if (next < former)
        rates_text(other, train_rate(t, other, t->steps), train_rate(t, other, former), rates);
    else
        snprintf(rates, sizeof rates, "it had come to its end and is %.9g at update %" PRIu64,
                 train_rate(t, next, t->steps), next + 1);
    warn("--steps is %" PRIu64 ", but %s was trained with %.60s, and the cosine of the learning "
         "rate ends there: %s",
         t->steps, t->values->resume, then, rates);
}

static void warn_of_order(const struct train *t, const char *now, const char *then) {
    warn("gradients of micro-batches add up in %.60s order (--schedule %s), but %s was trained in "
         "%.60s order",
         now, t->values->pipe.schedule, t->values->resume, then);
}

static void warn_of_note(struct train *t, const struct weir_note *note, const char *then) {
    const char *path = t->values->resume;
    if (strcmp(note->key, model_key) == 0)
        warn_of_model(t, note->value, then);
    else if (strcmp(note->key, data_key) == 0)
        warn("the data (fingerprint %s) are not those that %s was trained on (%.60s)", note->value,
             path, then);
    else if (strcmp(note->key, numerics_key) == 0)
        warn("%s computes here, but %.160s trained %s", note->value, then, path);
    else if (strcmp(note->key, level_key) == 0)
        warn("level %s computes here, but %.40s trained %s: --level takes another", note->value,
             then, path);
    else if (strcmp(note->key, processor_key) == 0)
        warn("the reference kernels compute on %s here, but %.160s trained %s", note->value, then,
             path);
    else if (strcmp(note->key, order_key) == 0)
        warn_of_order(t, note->value, then);
    else if (strcmp(note->key, steps_key) == 0)
        warn_of_steps(t, then);
    else
        warn("--%s is %s, but %s was trained with %.60s", note->key + strlen(option_prefix),
             note->value, path, then);
}

/* Calls `visit` for every note that the file has, but with another value. */
static int visit_others(struct train *t,
                        void (*visit)(struct train *t, const struct weir_note *note,
                                      const char *then)) {
    struct weir__io io = {.error = t->error};
    struct weir__archive *file;
    int status = weir__archive_open(&io, t->values->resume, &file);
    if (status != WEIR_OK) return status;
    for (uint32_t i = 0; i < t->notes.count; i++) {
        const struct weir_note *note = &t->notes.list[i];
        const char *then = weir__archive_metadata(file, note->key);
        if (then != NULL && strcmp(note->value, then) != 0) visit(t, note, then);
    }
    weir__archive_close(file);
    return WEIR_OK;
}

/* Momentum is a state that another run has or has not. */
static bool has_other_state(const struct weir_note *note, const char *then) {
    if (strcmp(note->key, optimizer_key) == 0) return true;
    if (strcmp(note->key, momentum_key) != 0) return false;
    return (strtod(note->value, NULL) == 0.0) != (strtod(then, NULL) == 0.0);
}

static void refuse_note(struct train *t, const struct weir_note *note, const char *then) {
    if (strcmp(note->key, model_key) == 0) refuse_model(t, note->value, then);
    if (!has_other_state(note, then)) return;
    const char *option = note->key + strlen(option_prefix);
    t->other_state = true;
    weir_faults_add(t->faults,
                    "--%s is %s, but %s was trained with %.60s, and its state is of no use to "
                    "this one: give --%s %.60s, or start anew from its weights with --load",
                    option, note->value, t->values->resume, then, option, then);
}

/* What learns has state, what is frozen none. One line says it for all tensors. */
static int refuse_frozen(struct train *t) {
    struct weir__io io = {.error = t->error};
    struct weir__archive *file;
    char name[320];
    if (t->other_state || weir__optimizer_arrays(&t->options.optimizer) == 0) return WEIR_OK;
    const char *array = weir__optimizer_array_name(&t->options.optimizer, 0);
    int status = weir__archive_open(&io, t->values->resume, &file);
    if (status != WEIR_OK) return status;
    bool whole = weir__archive_metadata(file, "step") != NULL; /* not weights alone */
    for (uint32_t i = 0; whole && i < weir_net_parameter_count(t->net); i++) {
        struct weir_parameter parameter;
        status = weir_net_parameter(t->net, i, &parameter);
        if (status != WEIR_OK) break;
        snprintf(name, sizeof name, "optimizer.%s.%s", parameter.name, array);
        bool learned = weir__archive_find(file, name) != NULL;
        bool has = weir__archive_find(file, parameter.name) != NULL;
        if (!has || learned != parameter.frozen) continue;
        t->other_state = true;
        weir_faults_add(t->faults,
                        "%s was trained with other frozen parameters ('%s' %s): leave --freeze as "
                        "it was, or start anew from its weights with --load",
                        t->values->resume, parameter.name, learned ? "learned" : "was frozen");
        break;
    }
    weir__archive_close(file);
    return status;
}

int train_notes_check(struct train *t) {
    uint64_t seed = t->values->pipe.seed;
    if (t->progress.seed != seed)
        weir_faults_add(t->faults,
                        "--seed %" PRIu64 ": %s was trained with seed %" PRIu64
                        ": leave --seed away",
                        seed, t->values->resume, t->progress.seed);
    int status = visit_others(t, refuse_note);
    return status == WEIR_OK ? refuse_frozen(t) : status;
}

int train_notes_warn(struct train *t) {
    return visit_others(t, warn_of_note);
}

/* Micro-batches, which a search is not to change: chunks that make as many. */
static void read_chunks(struct train *t, const struct weir__archive *file) {
    char key[64];
    snprintf(key, sizeof key, "%schunks", option_prefix);
    const char *text = weir__archive_metadata(file, key);
    unsigned long count = text != NULL ? strtoul(text, NULL, 10) : 0;
    if (count > 0 && count <= UINT32_MAX) t->values->pipe.chunks = (uint32_t)count;
}

/* Of the schedules that a search tries, those that add up as the run did so far. */
static void read_order(struct train *t, const struct weir__archive *file) {
    const char *text = weir__archive_metadata(file, order_key);
    if (text == NULL) return;
    if (strcmp(text, "ascending") == 0 || strcmp(text, "descending") == 0)
        snprintf(t->order, sizeof t->order, "%s", text);
    else if (args_given(t->args, "plan")) /* else the difference is warned of */
        weir_faults_add(t->faults,
                        "--plan auto: %s was trained with gradients in an order of its own "
                        "(%.60s), which no schedule that is searched has: give --schedule",
                        t->values->resume, text);
}

static void read_seed(struct train *t, const struct weir__archive *file, bool given) {
    const char *text = weir__archive_metadata(file, "seed");
    t->progress.seed = text != NULL ? strtoull(text, NULL, 10) : t->values->pipe.seed;
    if (!given) t->values->pipe.seed = t->progress.seed;
}

int train_read_origin(struct train *t, const struct args *args) {
    bool searches = train_searches(t);
    bool chunks = searches && !args_given(args, "chunks");
    bool order = searches && !args_given(args, "schedule");
    if (t->values->resume == NULL) return WEIR_OK;
    struct weir__io io = {.error = t->error};
    struct weir__archive *file;
    int status = weir__archive_open(&io, t->values->resume, &file);
    if (status == WEIR_ERR_OUT_OF_MEMORY) return status;
    if (status != WEIR_OK) {
        weir_faults_add(t->faults, "%s", t->error->message);
        return status;
    }
    if (chunks) read_chunks(t, file);
    if (order) read_order(t, file);
    read_seed(t, file, args_given(args, "seed"));
    weir__archive_close(file);
    return WEIR_OK;
}

const char *train_read_bits(const struct train *t, char bits[64]) {
    struct weir__io io = {.error = NULL};
    struct weir__archive *file;
    if (t->values->resume == NULL || getenv(RANKS_LOST_VARIABLE) == NULL) return NULL;
    if (weir__archive_open(&io, t->values->resume, &file) != WEIR_OK) return NULL; /* said later */
    const char *text = weir__archive_metadata(file, level_key);
    if (text != NULL) snprintf(bits, 64, "%s", text);
    weir__archive_close(file);
    return text != NULL ? bits : NULL;
}
