/* SPDX-License-Identifier: MIT */
/*
 * A profile of several ranks. All measure at the same time, as they will work: so those of one host
 * hinder each other as they will. What is kept of the layers is one rank's, whose machine took
 * longest for the whole, since a mixture would be no machine's; and of each rank how long it took
 * as a part of that.
 */
#include "net/run/devices.h"
#include "net/profile/profile.h"

#include "device/gpus.h"
#include "world/allreduce.h"

#include <stdio.h>
#include <string.h>

/* What a rank tells, all 0 but its own until it is gathered. */
struct report {
    double seconds; /* of the whole, forward and backward */
    double spread;
    struct weir_profile_rank rank;
};

/* What the slowest has besides its layers. */
struct slowest {
    double seconds[WEIR_KIND_COUNT], task_seconds;
    char machine[sizeof((struct weir_profile *)NULL)->machine];
    uint32_t steps;
};

/* A layer's times. */
struct times {
    double seconds[WEIR_KIND_COUNT], forward_checkpoint, recompute_last;
};

static int gather(const struct weir_world *world, const struct weir_allocator *allocator,
                  void *data, size_t bytes, struct weir_faults *faults) {
    struct weir_error error = {0};
    int status = weir__world_gather(world, allocator, data, bytes, &error);
    if (status != WEIR_OK) weir_faults_add(faults, "the ranks' times: %s", error.message);
    return status;
}

/* ---- one rank's times for all ---- */

static void tell_slowest(const struct weir__profile_state *profile, struct slowest *slowest,
                         struct times *times) {
    const struct weir_profile *shown = &profile->shown;
    memcpy(slowest->seconds, shown->seconds, sizeof slowest->seconds);
    memcpy(slowest->machine, shown->machine, sizeof slowest->machine);
    slowest->task_seconds = shown->costs.task_seconds;
    slowest->steps = shown->steps;
    for (uint32_t i = 0; i < shown->costs.layer_count; i++) {
        const struct weir_layer_cost *layer = &profile->layers[i];
        memcpy(times[i].seconds, layer->seconds, sizeof times[i].seconds);
        times[i].forward_checkpoint = layer->forward_checkpoint;
        times[i].recompute_last = layer->recompute_last;
    }
}

static void take_slowest(struct weir__profile_state *profile, const struct slowest *slowest,
                         const struct times *times) {
    struct weir_profile *shown = &profile->shown;
    memcpy(shown->seconds, slowest->seconds, sizeof shown->seconds);
    memcpy(shown->machine, slowest->machine, sizeof shown->machine);
    shown->costs.task_seconds = slowest->task_seconds;
    shown->steps = slowest->steps;
    for (uint32_t i = 0; i < shown->costs.layer_count; i++) {
        struct weir_layer_cost *layer = &profile->layers[i];
        memcpy(layer->seconds, times[i].seconds, sizeof layer->seconds);
        layer->forward_checkpoint = times[i].forward_checkpoint;
        layer->recompute_last = times[i].recompute_last;
    }
}

static int share_slowest(struct weir__profile_state *profile, const struct weir_world *world,
                         uint32_t rank, struct weir_faults *faults) {
    uint32_t layers = profile->shown.costs.layer_count;
    const struct weir_allocator *allocator = profile->pool.allocator;
    size_t bytes = sizeof(struct slowest) + layers * sizeof(struct times);
    assert(rank < world->rank_count);
    char *room = weir__acquire(allocator, bytes, 1);
    int status = room != NULL ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
    status = weir__world_agree(world, status, 0, "times", faults);
    if (status != WEIR_OK) goto out;
    struct slowest *slowest = (struct slowest *)(void *)room;
    struct times *times = (struct times *)(void *)(room + sizeof *slowest);
    if (world->rank == rank) tell_slowest(profile, slowest, times);
    status = gather(world, allocator, room, bytes, faults);
    if (status == WEIR_OK) take_slowest(profile, slowest, times);
out:
    weir__release(allocator, room, bytes, 1);
    return status;
}

/* ---- all ranks ---- */

static struct report report_of(const struct weir__profile_state *profile,
                               const struct weir_world *world) {
    const struct weir_profile *shown = &profile->shown;
    struct report report = {.seconds = shown->seconds[WEIR_KIND_F] + shown->seconds[WEIR_KIND_B],
                            .spread = shown->spread};
    snprintf(report.rank.host, sizeof report.rank.host, "%s", world->host);
    memcpy(report.rank.machine, shown->machine, sizeof report.rank.machine);
    return report;
}

int weir__profile_take_ranks(struct weir__profile_state *profile, uint32_t count, double **paces,
                             struct weir_profile_rank **ranks) {
    *paces = weir__pool_take(&profile->pool, count, sizeof **paces);
    *ranks = weir__pool_take(&profile->pool, count, sizeof **ranks);
    if (*paces == NULL || *ranks == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    profile->shown.costs.rank_count = count;
    profile->shown.costs.rank_paces = *paces;
    profile->shown.ranks = *ranks;
    return WEIR_OK;
}

/* Returns the slowest. */
static uint32_t take_reports(struct weir__profile_state *profile, const struct report *reports,
                             uint32_t count, double *paces, struct weir_profile_rank *ranks) {
    uint32_t slowest = 0;
    assert(count > 0 && paces != NULL && ranks != NULL);
    profile->shown.spread = 0;
    for (uint32_t r = 0; r < count; r++) {
        if (reports[r].seconds > reports[slowest].seconds) slowest = r;
        if (reports[r].spread > profile->shown.spread) profile->shown.spread = reports[r].spread;
        ranks[r] = reports[r].rank;
    }
    for (uint32_t r = 0; r < count; r++)
        paces[r] = reports[r].seconds > 0 ? reports[r].seconds / reports[slowest].seconds : 1;
    return slowest;
}

static int join(struct weir__profile_state *profile, const struct weir_world *world,
                struct report *reports, struct weir_faults *faults) {
    uint32_t count = world->rank_count;
    struct weir_profile_rank *ranks;
    double *paces;
    reports[world->rank] = report_of(profile, world);
    int status = gather(world, profile->pool.allocator, reports, count * sizeof *reports, faults);
    if (status != WEIR_OK) return status;
    status = weir__profile_take_ranks(profile, count, &paces, &ranks);
    status = weir__world_agree(world, status, 0, "profiles", faults);
    if (status != WEIR_OK) return status;
    return share_slowest(profile, world, take_reports(profile, reports, count, paces, ranks),
                         faults);
}

/* Of what all ranks' times are to be of. */
static uint64_t digest_of(const struct weir_profile *shown) {
    const uint64_t numbers[] = {shown->model, (uint64_t)shown->rows, shown->threads,
                                (uint64_t)shown->dtype, shown->infer_only};
    uint64_t digest = weir__hash(WEIR__HASH_BEGIN, numbers, sizeof numbers);
    digest = weir__hash(digest, shown->device, strlen(shown->device));
    return weir__hash(digest, shown->libraries, strlen(shown->libraries));
}

static int agree(const struct weir_world *world, int status, uint64_t digest,
                 struct weir_faults *faults) {
    return weir__world_agree(world, status, digest,
                             "models, rows, threads, kinds of devices, libraries or levels: give "
                             "all the same options",
                             faults);
}

int weir__profile_gather(struct weir__profile_state *profile, const struct weir_world *world,
                         int status, struct weir_faults *faults) {
    assert(world->rank < world->rank_count);
    if (status != WEIR_OK) return agree(world, status, 0, faults);
    const struct weir_allocator *allocator = profile->pool.allocator;
    struct report *reports = weir__acquire(allocator, world->rank_count, sizeof *reports);
    int joined = reports != NULL ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
    joined = agree(world, joined, digest_of(&profile->shown), faults);
    if (joined != WEIR_OK) goto out;
    joined = join(profile, world, reports, faults);
out:
    weir__release(allocator, reports, world->rank_count, sizeof *reports);
    return joined;
}

/* ---- which GPU ---- */

void weir__profile_own_gpu(const struct weir_world *world, char name[24]) {
    struct weir__gpus gpus;
    uint32_t number = 0;
    assert(world->host_rank < world->rank_count);
    if (weir__gpus_survey(&gpus, NULL) == WEIR_OK && world->host_count > 0)
        number = (uint32_t)((uint64_t)world->host_rank * gpus.count / world->host_count);
    snprintf(name, 24, "cuda:%u", number);
}
