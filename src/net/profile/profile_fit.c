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
    struct weir__pool pool = ((struct weir__profile_state *)profile)->pool; /* which holds itself */
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
    if (options->pipe.threads_per_worker > 0) return options->pipe.threads_per_worker;
    uint32_t workers = options->pipe.workers > 0 ? options->pipe.workers : options->stages;
    return cores > workers ? cores / workers : 1;
}

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

bool weir__profile_one_kind(const struct weir_net_options *options,
                            const struct weir__backend **backend, struct weir_faults *faults) {
    bool alike = weir__net_sole_backend(options, backend);
    if (!alike)
        weir_faults_add(faults,
                        "--device: layers' times are those of one kind of device, and these "
                        "workers have CPUs and GPUs: name one kind");
    return alike;
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
                        "the profile is of another model: its layers, their attributes or what is "
                        "frozen differ: measure again");
}

/** All workers' GPUs are to be of the profile's name; what the first is, `machine` says. */
static void expect_gpus_alike(const struct weir_net_options *options, const char *first,
                              struct weir_faults *faults) {
    struct weir__gpus gpus;
    (void)weir__gpus_survey(&gpus, NULL);
    for (uint32_t w = 1; w < options->pipe.device_count; w++) {
        const char *device = options->pipe.devices[w], *name = weir__gpus_name(&gpus, device);
        if (strcmp(name, first) == 0) continue;
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

int weir_profile_fit(struct weir_profile *profile, const struct weir_model *model,
                     const struct weir_net_options *options, struct weir_faults *faults) {
    struct weir_faults own = WEIR_FAULTS_INIT;
    struct weir__profile_state wanted = {.pool = {0}};
    struct weir_profile *want = &wanted.shown;
    if (!weir__profile_one_kind(options, &wanted.backend, faults)) return WEIR_ERR_CONFIG;
    own.allocator = faults == NULL ? options->pipe.allocator : faults->allocator;
    int status = weir__profile_identity(&wanted, model, options, true);
    if (status != WEIR_OK) return status;
    expect_model(profile, want, model->layer_count, &own);
    expect_text("device", profile->device, want->device, &own);
    expect_machine(profile, want->machine, options->pipe.world, &own);
    if (wanted.backend->on_gpu) expect_gpus_alike(options, want->machine, &own);
    expect_text("version", profile->version, want->version, &own);
    if (profile->dtype == want->dtype && profile->reference == want->reference)
        expect_text(wanted.backend->on_gpu ? "library" : "level", profile->libraries,
                    want->libraries, &own);
    expect_text("dtype", weir_dtype_name(profile->dtype), weir_dtype_name(want->dtype), &own);
    expect_number("rows per micro-batch", profile->rows, want->rows, &own);
    expect_number("threads per stage", profile->threads, want->threads, &own);
    if (profile->reference != want->reference)
        weir_faults_add(&own, "the profile is of %s kernels: measure again",
                        profile->reference ? "the plain reference" : "other than the reference");
    if (profile->infer_only != want->infer_only)
        weir_faults_add(&own, "the profile is of %s: measure again",
                        profile->infer_only ? "inference" : "training");
    for (uint32_t i = 0; i < own.kept; i++) weir_faults_add(faults, "%s", own.lines[i]);
    bool fits = own.count == 0;
    weir_faults_clean_up(&own);
    if (!fits) return WEIR_ERR_CONFIG;
    weir__profile_optimizer((struct weir__profile_state *)profile, &options->optimizer);
    return WEIR_OK;
}
