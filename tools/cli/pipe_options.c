/* SPDX-License-Identifier: MIT */
/* One table of options; the engine refuses what cannot be, this file only what it cannot see. */
#include "cli/pipe_options.h"

#include "device/device.h"
#include "net/cpu/level.h"
#include "weir_profile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(member) offsetof(struct pipe_options, member)

const char *const pipe_checkpoint_names[] = {"always", "except_last", "never", NULL};
#define COMMA ,
const char *const pipe_schedule_names[] = {PIPE_SCHEDULE_LIST(COMMA), "auto", NULL};
static const char *const balance_by_names[] = {"cost", "time", "size", NULL};
const char *const pipe_recompute_names[] = {"early", "late", NULL};
static const char *const dtype_names[] = {"f32", "bf16", "f64", NULL};
static const char *const wait_names[] = {"auto", "spin", "park", NULL};
enum { TABLE_BYTES_MAX = 1 << 28, WORKERS_DEFAULT = 2 };

const struct arg_option pipe_option_list[] = {
    PIPE_COUNT_OPTION("stages", "N", AT(stages), .most = 65535,
                      .help = "parts that the layer list is cut into; default: as many per worker "
                              "asked for as virtual stages, else 2 workers'"),
    {"balance", ARG_U32_LIST, AT(balance), "layers of each stage; default: as --balance-by says",
     .value = "A,B,...", .least = 1},
    PIPE_CHOICE_OPTION("balance-by", balance_by_names, AT(balance_by), .fallback = "cost",
                       .help = "what is to be even: estimated cost, measured time, or bytes"),
    {"profile", ARG_TEXT, AT(profile),
     "times measured by 'weir profile'; a file that is not there is made", .value = "FILE"},
    PIPE_COUNT_OPTION("workers", "P", AT(workers), .most = 65535,
                      .help = "threads that run stages; default: stages / virtual stages"),
    PIPE_COUNT_OPTION("virtual-stages", "V", AT(virtual_stages), .most = 65535,
                      .help = "stages per worker; default: the schedule's, which is 2 for "
                              "interleaved, looped-bfs, zb-v, v-half, v-min and dualpipe-v, else "
                              "1"),
    PIPE_COUNT_OPTION("chunks", "M", AT(chunks), .fallback = "8",
                      .help = "micro-batches asked for; rows are split as torch.chunk does. Bits "
                              "hold per M"),
    {"schedule", ARG_TEXT, AT(schedule), PIPE_SCHEDULES ", auto (searched for), or a table",
     .value = "NAME|FILE.csv", .fallback = "1f1b", .choices = pipe_schedule_names},
    {"checkpoint", ARG_TEXT, AT(checkpoint),
     "which micro-batches are recomputed instead of kept: always, except_last (all but the "
     "last) or never; for all stages, or one for each",
     .value = "MODE[,MODE...]", .fallback = "except_last", .choices = pipe_checkpoint_names},
    PIPE_CHOICE_OPTION("recompute", pipe_recompute_names, AT(recompute), .fallback = "early",
                       .help = "before the gradient is there, or after"),
    {"device", ARG_LIST, AT(device),
     "cpu, cuda (the first GPU) or cuda:N: one for all workers, or one per worker; default: "
     "cpu",
     .value = "NAME[,NAME...]"},
    {"dtype", ARG_CHOICE, AT(dtype),
     "bf16 is of what lies between layers and of products; parameters stay f32. f64 is a CPU's: on "
     "the reference kernels, slow and exact",
     .fallback = "f32", .choices = dtype_names},
    {"level", ARG_TEXT, AT(level),
     "instructions of the CPU's kernels: v2, v3, v4, v4-bf16 (x86-64), neon (aarch64). All but v2 "
     "give the same bits in f32. Default: WEIR_LEVEL, else the best that runs here",
     .value = "NAME"},
    {"threads-per-stage", ARG_U32, AT(threads_per_stage),
     "default: cores / workers (grad: 1). No bit depends on it", .value = "T", .least = 1,
     .most = 1024},
    {"bind", ARG_TEXT, AT(bind), "cores, e.g. 0-3,8", .value = "auto|none|LIST", .fallback = "auto",
     .environment = "WEIR_BIND"},
    {"wait", ARG_CHOICE, AT(wait), "auto spins only where each worker has a core of its own",
     .fallback = "auto", .choices = wait_names, .environment = "WEIR_WAIT"},
    {"seed", ARG_U64, AT(seed), "of parameters, data order and dropout", .value = "S",
     .fallback = "1"},
    {"memory-limit", ARG_BYTES, AT(memory_limit),
     "per worker, e.g. 8GiB; a plan that needs more is refused", .value = "BYTES"},
    {"watchdog", ARG_REAL, AT(watchdog),
     "a stage's call, or what it gave a GPU, that takes longer ends the run; "
     "0: off",
     .value = "SECONDS", .fallback = "0"},
};
const uint32_t pipe_option_count = sizeof pipe_option_list / sizeof pipe_option_list[0];

const struct arg_option pipe_share_list[] = {
    PIPE_COUNT_OPTION("replicas", "D", AT(replicas), .most = 32768, .fallback = "1",
                      .help = "copies of the pipeline, each of as many ranks and workers, that "
                              "share a mini-batch. No bit depends on it"),
    PIPE_COUNT_OPTION("gradient-groups", "G", AT(gradient_groups), .most = 32768,
                      .help = "groups of micro-batches, a power of two, whose gradients add up as "
                              "a tree; D divides it. Bits hold per G. Default: D"),
};
const uint32_t pipe_share_count = sizeof pipe_share_list / sizeof pipe_share_list[0];

const struct arg_refusal pipe_infer_refusals[] = {
    {"plan", "a pipeline is searched for training, and this infers: give --workers and --chunks, "
             "or --balance-by time"},
    {NULL, NULL}};
const struct arg_refusal pipe_refusals[] = {
    {"plan", "only train and grad search for a pipeline themselves: 'weir plan --search' names the "
             "options of the one it finds, which go here too"},
    {NULL, NULL}};

static void check_schedule(const char *name, struct weir_faults *faults) {
    char known[256] = "";
    if (weir_schedule_virtual_stages(name) > 0) return;
    for (uint32_t i = 0; weir_schedule_name(i) != NULL; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "",
                 weir_schedule_name(i));
    }
    const char *near = weir__nearest(name, pipe_schedule_names);
    weir_faults_add(faults, "there is no schedule '%.80s': choose one of %s, or a FILE.csv%s%s%s",
                    name, known, near != NULL ? " (did you mean " : "", near != NULL ? near : "",
                    near != NULL ? "?)" : "");
}

static void fill_schedule(const struct pipe_options *options, struct pipe_storage *storage,
                          struct weir_pipe_options *pipe, struct weir_faults *faults) {
    pipe->schedule = options->schedule;
    if (!weir__text_ends(options->schedule, ".csv")) {
        check_schedule(options->schedule, faults);
        return;
    }
    struct weir_error error = {0};
    struct weir__io io = {.error = &error};
    if (weir__file_read(&io, options->schedule, TABLE_BYTES_MAX, &storage->table) != WEIR_OK) {
        weir_faults_add(faults, "--schedule %s: %s", options->schedule, error.message);
        return;
    }
    pipe->table_csv = storage->table.data;
    pipe->table_csv_bytes = storage->table.count;
}

static void check_balance(const struct arg_numbers *balance, uint32_t layers,
                          struct weir_faults *faults) {
    uint64_t sum = 0;
    for (uint32_t s = 0; s < balance->count; s++) sum += balance->items[s];
    if (sum != layers)
        weir_faults_add(faults,
                        "--balance adds up to %" PRIu64 " layer%s, the model has %" PRIu32
                        ": correct it, or leave it away for one by estimated cost",
                        sum, weir__s(sum), layers);
}

/* The schedule's stages per worker; 1 for a table, and for a name that is refused elsewhere. */
static uint32_t virtual_default(const struct pipe_options *options) {
    uint32_t own = weir_schedule_virtual_stages(options->schedule);
    return own > 0 ? own : 1;
}

uint32_t pipe_virtual_stages(const struct pipe_options *options) {
    return options->virtual_stages > 0 ? options->virtual_stages : virtual_default(options);
}

/* A schedule whose workers have just so many stages. */
static bool is_exact(const struct pipe_options *options) {
    uint32_t own = weir_schedule_virtual_stages(options->schedule);
    return own > 0 && !weir_schedule_can_share(options->schedule, own + 1);
}

/* What V asks of stages and workers, as far as the schedule cannot know it. */
static void check_virtual(const struct pipe_options *options, uint32_t stages,
                          struct weir_faults *faults) {
    uint32_t v = options->virtual_stages, own = virtual_default(options);
    uint32_t rest = v > 0 ? stages % v : 0;
    uint64_t wanted = (uint64_t)options->workers * v;
    if (v > 0 && v != own && is_exact(options))
        weir_faults_add(faults, "--virtual-stages %u: %s has %u per worker: use %u", v,
                        options->schedule, own, own);
    else if (v > 1 && own == 1)
        weir_faults_add(faults,
                        "--virtual-stages %u: %s has one stage per worker: use 1, or give "
                        "fewer --workers than --stages",
                        v, options->schedule);
    else if (rest > 0 && stages < v)
        weir_faults_add(faults,
                        "--virtual-stages %u: there %s %u stage%s, which is not so many per "
                        "worker: ask for %u stages",
                        v, stages == 1 ? "is" : "are", stages, weir__s(stages), v);
    else if (rest > 0)
        weir_faults_add(faults,
                        "--virtual-stages %u: there are %u stages, which is not so many per "
                        "worker: ask for %u or %u stages",
                        v, stages, stages - rest, stages - rest + v);
    else if (v > 0 && own > 1 && options->workers > 0 && wanted != stages)
        weir_faults_add(faults,
                        "--virtual-stages %u and --workers %u are not %u stage%s: ask for %" PRIu64
                        " stage%s or %u worker%s",
                        v, options->workers, stages, weir__s(stages), wanted, weir__s(wanted),
                        stages / v, weir__s(stages / v));
}

/* The workers asked for, or that follow; 0 where the stages are not divisible, which the schedule
 * refuses. */
static uint32_t workers_of(const struct pipe_options *options, uint32_t stages) {
    uint32_t v = pipe_virtual_stages(options);
    if (options->workers > 0) return options->workers;
    bool given = v > 1 || virtual_default(options) > 1;
    return given && stages % v == 0 ? stages / v : 0;
}

static uint32_t stages_of(const struct pipe_options *options, const struct weir_model *model) {
    uint32_t v = pipe_virtual_stages(options);
    if (options->balance.count > 0) return options->balance.count;
    if (options->stages > 0) return options->stages;
    bool few = weir_model_layer_count(model) / v < WORKERS_DEFAULT;
    uint32_t workers = options->workers > 0 ? options->workers : few ? 1 : WORKERS_DEFAULT;
    uint64_t stages = (uint64_t)v * workers;
    return stages <= UINT32_MAX ? (uint32_t)stages : UINT32_MAX;
}

/* More stages than layers. */
static void check_layers(const struct pipe_options *options, uint32_t stages, uint32_t layers,
                         struct weir_faults *faults) {
    uint32_t v = pipe_virtual_stages(options);
    if (options->stages > 0)
        weir_faults_add(faults, "--stages %u: the model has %u layer%s: choose 1 to %u", stages,
                        layers, weir__s(layers), layers);
    else if (options->workers > 1 && layers >= v)
        weir_faults_add(faults, "--workers %u: the model has %u layer%s: choose 1 to %u",
                        options->workers, layers, weir__s(layers), layers / v);
    else
        weir_faults_add(
            faults,
            "--schedule %s: %u stage%s per worker are more than the model's %u layer%s: "
            "choose a schedule with fewer",
            options->schedule, v, weir__s(v), layers, weir__s(layers));
}

static void fill_stages(const struct pipe_options *options, const struct args *args,
                        const struct weir_model *model, struct weir_net_options *net,
                        struct weir_faults *faults) {
    uint32_t layers = weir_model_layer_count(model);
    net->stages = stages_of(options, model);
    if (options->balance.count > 0) {
        net->balance = options->balance.items;
        check_balance(&options->balance, layers, faults);
        if (args_given(args, "stages") && options->stages != options->balance.count)
            weir_faults_add(faults, "--stages %u but --balance names %u stage%s: give one of them",
                            options->stages, options->balance.count,
                            weir__s(options->balance.count));
    } else if (net->stages > layers && layers > 0) {
        check_layers(options, net->stages, layers, faults);
    }
    net->pipe.workers = workers_of(options, net->stages);
    check_virtual(options, net->stages, faults);
    if (options->workers > net->stages && !is_exact(options)) /* else the schedule says it */
        weir_faults_add(faults, "--workers %u: there %s %u stage%s: choose 1 to %u",
                        options->workers, net->stages == 1 ? "is" : "are", net->stages,
                        weir__s(net->stages), net->stages);
}

static void check_device(const char *name, struct weir_faults *faults) {
    struct weir_error error = {0};
    if (weir__device_check(name, &error) != WEIR_OK)
        weir_faults_add(faults, "--device %.80s: %s", name, error.message);
}

static void fill_devices(const struct pipe_options *options, uint32_t workers,
                         struct pipe_storage *storage, struct weir_pipe_options *pipe,
                         struct weir_faults *faults) {
    uint32_t count = options->device.count;
    for (uint32_t i = 0; i < count; i++) {
        storage->devices[i] = arg_texts_get(&options->device, i);
        bool again = false;
        for (uint32_t j = 0; j < i && !again; j++)
            again = strcmp(storage->devices[j], storage->devices[i]) == 0;
        if (!again) check_device(storage->devices[i], faults);
    }
    if (count > workers && count > 1)
        weir_faults_add(faults,
                        "--device names %u, but there %s %u worker%s: name one for each, or give "
                        "--workers %u",
                        count, workers == 1 ? "is" : "are", workers, weir__s(workers), count);
    if (count == 1) /* one for all */
        for (uint32_t i = 1; i < workers && i < ARG_LIST_MAX; i++)
            storage->devices[count++] = storage->devices[0];
    pipe->devices = count > 0 ? storage->devices : NULL;
    pipe->device_count = count;
}

/* As far as the devices' names tell it: the net goes by what each stage is on. */
static void check_dtype(const struct weir_net_options *net, struct weir_faults *faults) {
    uint32_t gpus = 0;
    for (uint32_t w = 0; w < net->pipe.device_count; w++)
        gpus += !weir__device_facts(net->pipe.devices[w]).synchronous;
    if (net->dtype == WEIR_F64 && gpus > 0)
        weir_faults_add(faults, "--dtype f64 is the CPU's: use f32 or bf16 on a GPU, or "
                                "--device cpu");
}

/* One mode for all stages, or as many as there are. */
static void fill_checkpoint(const struct pipe_options *options, struct pipe_storage *storage,
                            struct weir_net_options *net, struct weir_faults *faults) {
    uint32_t count = 0;
    for (const char *text = options->checkpoint; text != NULL; count++) {
        char name[16];
        int length = (int)strcspn(text, ",");
        snprintf(name, sizeof name, "%.*s", length, text);
        enum weir_checkpoint mode = WEIR_CHECKPOINT_DEFAULT;
        if (weir_checkpoint_parse(name, &mode) != WEIR_OK) {
            const char *near = weir__nearest(name, pipe_checkpoint_names);
            weir_faults_add(
                faults, "--checkpoint %.*s: not one of always, except_last, never: %s%s%s",
                length < 80 ? length : 80, text, near != NULL ? "did you mean " : "choose one",
                near != NULL ? near : "", near != NULL ? "?" : "");
            return;
        }
        if (count < ARG_LIST_MAX) storage->checkpoint[count] = mode;
        text = text[length] == ',' ? text + length + 1 : NULL;
    }
    net->pipe.checkpoint = storage->checkpoint[0];
    if (count > 1) net->pipe.stage_checkpoint = storage->checkpoint;
    if (count > 1 && (count != net->stages || count > ARG_LIST_MAX))
        weir_faults_add(faults,
                        "--checkpoint names %u modes for %u stage%s: give one, or one for "
                        "each",
                        count, net->stages, weir__s(net->stages));
}

/* --workers are all replicas'; what follows is of one. */
static struct pipe_options share(const struct pipe_options *options, struct weir_faults *faults) {
    struct pipe_options own = *options;
    uint32_t replicas = options->replicas > 0 ? options->replicas : 1;
    own.workers = options->workers / replicas;
    if (options->workers % replicas != 0)
        weir_faults_add(faults,
                        "--workers %u: they are those of all %u replicas: give a multiple, like %u",
                        options->workers, replicas, (own.workers + 1) * replicas);
    return own;
}

int pipe_options_fill(const struct pipe_options *given, const struct args *args,
                      const struct weir_model *model, struct pipe_storage *storage,
                      struct weir_net_options *net, struct weir_faults *faults) {
    static const enum weir_dtype dtypes[] = {WEIR_F32, WEIR_BF16, WEIR_F64};
    uint32_t before = faults->count;
    memset(storage, 0, sizeof *storage);
    storage->own = share(given, faults);
    const struct pipe_options *options = &storage->own;
    net->pipe.replicas = options->replicas;
    net->pipe.gradient_groups = options->gradient_groups;
    fill_stages(options, args, model, net, faults);
    fill_schedule(options, storage, &net->pipe, faults);
    uint32_t workers = net->pipe.workers > 0 ? net->pipe.workers : net->stages;
    fill_devices(options, workers, storage, &net->pipe, faults);
    net->dtype = dtypes[options->dtype];
    net->level = options->level;
    const struct weir__level *level;
    (void)weir__level_find(net->level, faults, &level);
    check_dtype(net, faults);
    net->seed = options->seed;
    net->pipe.chunks = options->chunks;
    fill_checkpoint(options, storage, net, faults);
    net->pipe.recompute_late = options->recompute == 1;
    net->pipe.threads_per_worker = options->threads_per_stage;
    net->pipe.bind = options->bind;
    net->pipe.wait = (enum weir_wait)(WEIR_WAIT_AUTO + options->wait);
    net->pipe.memory_limit = options->memory_limit;
    net->pipe.watchdog_ns = (uint64_t)(options->watchdog * 1e9);
    return faults->count > before ? WEIR_ERR_ARGUMENT : WEIR_OK;
}

void pipe_storage_clean_up(struct pipe_storage *storage) {
    weir__bytes_release(NULL, &storage->table);
    free(storage->sizes);
    weir_profile_destroy(storage->profile);
}

const char *pipe_checkpoint_text(const struct pipe_options *options) {
    return options->checkpoint;
}

const char *pipe_recompute_text(const struct pipe_options *options) {
    return pipe_recompute_names[options->recompute];
}

const char *pipe_dtype_text(const struct pipe_options *options) {
    return dtype_names[options->dtype];
}
