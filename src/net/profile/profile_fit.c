/* SPDX-License-Identifier: MIT */
/* What a profile is of, and whether it is of this. */
#include "net/run/devices.h"
#include "net/cpu/level.h"
#include "net/profile/profile.h"

#include "device/gpus.h"
#include "place/place.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int weir__profile_acquire(const struct weir_allocator *allocator, uint32_t layers,
                          struct weir__profile_state **profile) {
    struct weir__pool pool;
    weir__pool_init(&pool, allocator);
    struct weir__profile_state *made = weir__pool_take(&pool, 1, sizeof *made);
    struct weir_layer_cost *list = weir__pool_take(&pool, layers, sizeof *list);
    uint32_t *kernels = weir__pool_take(&pool, layers, sizeof *kernels);
    if (made == NULL || list == NULL || kernels == NULL) {
        weir__pool_clean_up(&pool);
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    made->pool = pool;
    made->layers = list;
    made->kernels = kernels;
    made->shown.costs.layers = list;
    made->shown.costs.layer_count = layers;
    *profile = made;
    return WEIR_OK;
}

void weir_profile_destroy(struct weir_profile *profile) {
    if (profile == NULL) return;
    struct weir__profile_state *state = (struct weir__profile_state *)profile;
    struct weir__pool pool = state->pool; /* which holds itself */
    if (state->other != NULL) weir_profile_destroy(&state->other->shown);
    weir__pool_clean_up(&pool);
}

uint64_t weir_model_fingerprint(const struct weir_model *model) {
    uint64_t hash = WEIR__HASH_BEGIN;
    for (uint32_t i = 0; i <= model->layer_count; i++) {
        struct weir_layer_hash layer = {0, 0};
        int status = weir_model_hash(model, i, &layer);
        assert(status == WEIR_OK);
        (void)status;
        uint8_t frozen = i < model->layer_count && model->layers[i]->frozen;
        hash = weir__hash(hash, &layer.form, sizeof layer.form);
        hash = weir__hash(hash, &layer.numbers, sizeof layer.numbers);
        hash = weir__hash(hash, &frozen, sizeof frozen);
    }
    for (uint32_t i = 0; i < model->freeze_count; i++)
        hash = weir__hash(hash, model->freezes[i], strlen(model->freezes[i]) + 1);
    return hash;
}

/** What cannot be told is "unknown", and has one core. */
static int machine_facts(const struct weir_allocator *allocator,
                         struct weir__machine_facts *facts) {
    struct weir__machine *machine;
    *facts = (struct weir__machine_facts){.model = "unknown", .usable_cores = 1};
    int status = weir__machine_new(allocator, &machine);
    if (status != WEIR_OK) return status == WEIR_ERR_OUT_OF_MEMORY ? status : WEIR_OK;
    weir__machine_facts(machine, facts);
    weir__machine_destroy(machine);
    return WEIR_OK;
}

/** Of a worker: as asked, or the usable cores divided among the workers. */
static uint32_t threads_of(const struct weir_net_options *options, uint32_t cores) {
    uint32_t asked = options->pipe.threads_per_worker;
    return asked > 0 ? asked : weir__net_threads(options, cores);
}

/* ---- kinds of devices ---- */

int weir__profile_kinds(const struct weir_net_options *options, struct weir__profile_kinds *kinds) {
    const struct weir__backend *sole;
    struct weir__machine_facts facts;
    struct weir_net_options *cpus = &kinds->nets[0], *gpu = &kinds->nets[1];
    *cpus = *gpu = *options;
    kinds->count = 1;
    if (weir__net_sole_backend(options, &sole)) return WEIR_OK;
    int status = machine_facts(options->pipe.allocator, &facts);
    if (status != WEIR_OK) return status;
    kinds->count = 2;
    cpus->pipe.threads_per_worker = threads_of(options, facts.usable_cores);
    cpus->pipe.devices = NULL;
    cpus->pipe.device_count = 0;
    uint32_t first = 0;
    while (!weir__net_on_gpu(&options->pipe, first)) first++;
    gpu->pipe.devices = &options->pipe.devices[first];
    gpu->pipe.device_count = 1;
    return WEIR_OK;
}

void weir__profile_join(struct weir__profile_state *profile, struct weir__profile_state *other) {
    assert(profile->other == NULL && other->other == NULL);
    assert(profile->shown.costs.layer_count == other->shown.costs.layer_count);
    profile->other = other;
    profile->shown.other = &other->shown;
    profile->shown.costs.other = &other->shown.costs;
}

const struct weir_profile *weir__profile_of(const struct weir_profile *profile,
                                            const char *device) {
    while (profile != NULL && strcmp(profile->device, device) != 0) profile = profile->other;
    return profile;
}

int weir__profile_make(const struct weir_model *model, const struct weir_net_options *options,
                       weir__profile_make_fn *make, const void *context, struct weir_faults *faults,
                       struct weir_profile **profile) {
    struct weir__profile_kinds kinds;
    struct weir__profile_state *first, *second;
    int status = weir__profile_kinds(options, &kinds);
    if (status != WEIR_OK) return status;
    if ((status = make(context, model, &kinds.nets[0], faults, &first)) != WEIR_OK) return status;
    if (kinds.count > 1) {
        status = make(context, model, &kinds.nets[1], faults, &second);
        if (status != WEIR_OK) {
            weir_profile_destroy(&first->shown);
            return status;
        }
        weir__profile_join(first, second);
    }
    *profile = &first->shown;
    return WEIR_OK;
}

/* ---- what a profile is of ---- */

static int name_cpu(struct weir_profile *shown, const struct weir_net_options *options) {
    struct weir__machine_facts facts;
    const struct weir__level *level;
    int status = machine_facts(options->pipe.allocator, &facts);
    if (status != WEIR_OK) return status;
    if ((status = weir__level_find(options->level, NULL, &level)) != WEIR_OK) return status;
    snprintf(shown->device, sizeof shown->device, "cpu");
    snprintf(shown->libraries, sizeof shown->libraries, "%s",
             options->dtype == WEIR_F64 || options->reference ? "reference" : level->name);
    snprintf(shown->machine, sizeof shown->machine, "%s, %u core%s", facts.model,
             facts.usable_cores, weir__s(facts.usable_cores));
    shown->threads = threads_of(options, facts.usable_cores);
    return WEIR_OK;
}

static void name_gpu(struct weir_profile *shown, const char *device) {
    struct weir__gpus gpus;
    (void)weir__gpus_survey(&gpus, NULL);
    snprintf(shown->device, sizeof shown->device, "cuda");
    snprintf(shown->machine, sizeof shown->machine, "%s", weir__gpus_name(&gpus, device));
    shown->threads = 1;
}

/** "cuBLASLt 12.9.1, cuDNN 9.10.2": those that are there. */
static void name_gpu_libraries(struct weir_profile *shown) {
    size_t used = 0, room = sizeof shown->libraries;
    snprintf(shown->libraries, room, "none");
    for (uint32_t i = 0; weir__gpu_library_at(i) != NULL && used < room; i++) {
        struct weir__gpu_library_facts facts;
        weir__gpu_library_find(weir__gpu_library_at(i), &facts);
        if (facts.state != WEIR__LIBRARY_FOUND) continue;
        int length = snprintf(shown->libraries + used, room - used, "%s%s %s", used > 0 ? ", " : "",
                              weir__gpu_library_at(i)->name, facts.version);
        used += length > 0 ? (size_t)length : 0;
    }
}

int weir__profile_identity(struct weir__profile_state *profile, const struct weir_model *model,
                           const struct weir_net_options *options, bool timed) {
    struct weir_profile *shown = &profile->shown;
    int status = WEIR_OK;
    (void)weir__net_sole_backend(options, &profile->backend);
    if (!profile->backend->on_gpu) {
        status = name_cpu(shown, options);
    } else {
        name_gpu(shown, options->pipe.devices[0]);
        if (timed) name_gpu_libraries(shown);
    }
    if (status != WEIR_OK) return status;
    snprintf(shown->version, sizeof shown->version, "%s", weir_version());
    shown->model = weir_model_fingerprint(model);
    shown->rows = weir__profile_rows(options);
    shown->dtype = options->dtype;
    shown->reference = options->reference;
    shown->infer_only = options->pipe.infer_only;
    return WEIR_OK;
}

void weir__profile_optimizer(struct weir__profile_state *profile,
                             const struct weir_optimizer *optimizer) {
    assert(profile->shown.costs.layer_count == 0 || profile->layers != NULL);
    uint32_t arrays = profile->shown.infer_only ? 0 : weir__optimizer_arrays(optimizer);
    profile->shown.costs.optimizer_arrays = arrays;
    for (uint32_t i = 0; i < profile->shown.costs.layer_count; i++)
        profile->layers[i].optimizer = profile->layers[i].trainable * arrays;
}

/* ---- fit ---- */

static void expect_text(const char *what, const char *have, const char *want,
                        struct weir_faults *faults) {
    if (strcmp(have, want) != 0)
        weir_faults_add(faults, "the profile is of %s '%s', not '%s': measure again", what, have,
                        want);
}

static void expect_number(const char *what, int64_t have, int64_t want,
                          struct weir_faults *faults) {
    if (have != want)
        weir_faults_add(faults,
                        "the profile is of %" PRId64 " %s, not %" PRId64
                        ": measure again; times of other counts cannot be told from it",
                        have, what, want);
}

static void expect_model(const struct weir_profile *have, const struct weir_profile *want,
                         uint32_t layers, struct weir_faults *faults) {
    if (have->costs.layer_count != layers)
        weir_faults_add(faults,
                        "the profile is of another model, of %u layer%s, not %u: measure again",
                        have->costs.layer_count, weir__s(have->costs.layer_count), layers);
    else if (have->model != want->model)
        weir_faults_add(faults,
                        "the profile is of another model: its layers, their attributes, what is "
                        "frozen, or whether rows are packed differ: measure again");
}

/** All workers' GPUs are to be of the profile's name; what the first is, `machine` says. */
static void expect_gpus_alike(const struct weir_net_options *options, const char *first,
                              struct weir_faults *faults) {
    struct weir__gpus gpus;
    (void)weir__gpus_survey(&gpus, NULL);
    for (uint32_t w = 0; w < options->pipe.device_count; w++) {
        const char *device = options->pipe.devices[w], *name = weir__gpus_name(&gpus, device);
        if (!weir__net_on_gpu(&options->pipe, w) || strcmp(name, first) == 0) continue;
        weir_faults_add(faults,
                        "--device: the profile's times are those of '%s', and %s is '%s': name "
                        "GPUs of one kind",
                        first, device, name);
        return;
    }
}

/* Without what it says of cores, which are others within a launcher. */
static bool is_processor(const char *machine, const char *of) {
    const char *comma = strrchr(of, ',');
    size_t length = comma != NULL ? (size_t)(comma - of) : strlen(of);
    return strncmp(machine, of, length) == 0 && (machine[length] == ',' || machine[length] == '\0');
}

/* A rank is compared with what was that rank; who is alone, and plans for others, with all. */
static void expect_machine(const struct weir_profile *have, const char *want,
                           const struct weir_world *world, struct weir_faults *faults) {
    uint32_t count = have->costs.rank_count;
    bool several = world != NULL && world->rank_count > 1, known = false;
    if (count == 0 || (several && world->rank_count == count)) {
        expect_text("machine", count == 0 ? have->machine : have->ranks[world->rank].machine, want,
                    faults);
        return;
    }
    for (uint32_t r = 0; !several && !known && r < count; r++)
        known = is_processor(want, have->ranks[r].machine);
    if (several)
        weir_faults_add(faults,
                        "the profile is of %u ranks, and there are %u: measure again, by as many",
                        count, world->rank_count);
    else if (!known)
        weir_faults_add(faults, "the profile is of ranks on '%s', and none on '%s': measure again",
                        have->ranks[0].machine, want);
}

/** What both kinds have in common. */
static void expect_same(const struct weir_profile *profile, const struct weir_profile *want,
                        uint32_t layers, struct weir_faults *faults) {
    expect_model(profile, want, layers, faults);
    expect_text("version", profile->version, want->version, faults);
    expect_text("dtype", weir_dtype_name(profile->dtype), weir_dtype_name(want->dtype), faults);
    expect_number("rows per micro-batch", profile->rows, want->rows, faults);
    if (profile->reference != want->reference)
        weir_faults_add(faults, "the profile is of %s kernels: measure again",
                        profile->reference ? "the plain reference" : "other than the reference");
    if (profile->infer_only != want->infer_only)
        weir_faults_add(faults, "the profile is of %s: measure again",
                        profile->infer_only ? "inference" : "training");
}

/** What each kind has of its own. */
static void expect_own(const struct weir_profile *profile, const struct weir_profile *want,
                       const struct weir_net_options *options, bool on_gpu,
                       struct weir_faults *faults) {
    expect_machine(profile, want->machine, options->pipe.world, faults);
    if (on_gpu) expect_gpus_alike(options, want->machine, faults);
    if (profile->dtype == want->dtype && profile->reference == want->reference)
        expect_text(on_gpu ? "library" : "level", profile->libraries, want->libraries, faults);
    /* in a world the ranks agree on what is left open, and who fits a profile does not ask them */
    const struct weir_world *world = options->pipe.world;
    bool open = options->pipe.threads_per_worker == 0 && world != NULL && world->rank_count > 1;
    if (on_gpu || !open)
        expect_number("threads per stage", profile->threads, want->threads, faults);
}

static int expect_kinds(const struct weir_profile *profile, const struct weir_model *model,
                        const struct weir_net_options *options, struct weir_faults *faults) {
    static const char both_kinds[] = "cpu and cuda";
    struct weir__profile_kinds kinds;
    int status = weir__profile_kinds(options, &kinds);
    if (status != WEIR_OK) return status;
    for (uint32_t k = 0; k < kinds.count; k++) {
        struct weir__profile_state wanted = {.pool = {0}};
        struct weir_profile *want = &wanted.shown;
        status = weir__profile_identity(&wanted, model, &kinds.nets[k], true);
        if (status != WEIR_OK) return status;
        const struct weir_profile *own = weir__profile_of(profile, want->device);
        if (k == 0) {
            expect_same(profile, want, model->layer_count, faults);
            expect_text("device", profile->other != NULL ? both_kinds : profile->device,
                        kinds.count > 1 ? both_kinds : want->device, faults);
        }
        if (own != NULL) expect_own(own, want, options, wanted.backend->on_gpu, faults);
    }
    return WEIR_OK;
}

int weir_profile_fit(struct weir_profile *profile, const struct weir_model *model,
                     const struct weir_net_options *options, struct weir_faults *faults) {
    struct weir_faults own = WEIR_FAULTS_INIT;
    struct weir__profile_state *state = (struct weir__profile_state *)profile;
    own.allocator = faults == NULL ? options->pipe.allocator : faults->allocator;
    int status = expect_kinds(profile, model, options, &own);
    for (uint32_t i = 0; i < own.kept; i++) weir_faults_add(faults, "%s", own.lines[i]);
    if (status == WEIR_OK && own.count > 0) status = WEIR_ERR_CONFIG;
    weir_faults_clean_up(&own);
    if (status != WEIR_OK) return status;
    for (; state != NULL; state = state->other) weir__profile_optimizer(state, &options->optimizer);
    return WEIR_OK;
}
