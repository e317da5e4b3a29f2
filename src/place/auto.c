/* SPDX-License-Identifier: MIT */
/* "auto": groups of cores for the workers that compute, seats for those that wait for a GPU.
 *
 * Groups are chosen first, for they are what the machine's caches are for, and a GPU's worker sits
 * down on any core near it that is left. Where the groups have left none near some GPU although
 * there are cores enough, it is tried the other way round: seats first, from the end of what is
 * near, groups from the rest. */
#include "place/machine.h"

#include <string.h>

/* How the workers with GPUs sit; each is tried where those before it fail. */
enum seating {
    APART,    /* each on a core of its own near its GPU */
    TOGETHER, /* on cores near their GPUs that have no group, as few on each as can be */
    ANYWHERE, /* the same, or where groups have all that is near, on all of that */
    SEATINGS
};

/* Instead of a core: all that are near. */
#define SEAT_ANYWHERE (UINT32_MAX - 1)
#define SEAT_NONE UINT32_MAX

/* What a core is for, and whom it belongs to, as far as known; unknown ones are tried. */
struct place_candidates {
    bool sibling[WEIR__PLACE_CORES_MAX]; /* another pipe's of this process */
    bool stranger[WEIR__PLACE_CORES_MAX];
    bool free[WEIR__PLACE_CORES_MAX];      /* to be dealt or sat on */
    uint32_t owner[WEIR__PLACE_CORES_MAX]; /* a group's number, or WEIR__NO_WORKER */
    uint32_t seated[WEIR__PLACE_CORES_MAX];
    uint32_t *seat; /* per worker with a GPU: a core, SEAT_ANYWHERE or SEAT_NONE */
};

/* ---- seats ---- */

static bool is_near(const struct weir__near *near, uint32_t unit) {
    if (near->core_count == 0) return true; /* nobody knows: any core is as good */
    for (uint32_t i = 0; i < near->core_count; i++)
        if (near->core_ids[i] == unit) return true;
    return false;
}

/* Who has the least choice sits down first, so that wider choices are not used up in its place. */
static uint32_t next_to_sit(const struct weir__placing *placing, const uint32_t *seat) {
    assert(placing->gpu_count <= placing->workers);
    uint32_t next = WEIR__NO_WORKER, least = UINT32_MAX;
    for (uint32_t w = 0; w < placing->workers; w++) {
        const struct weir__near *gpu = weir__placing_gpu(placing, w);
        if (gpu == NULL || seat[w] != SEAT_NONE) continue;
        uint32_t choice = gpu->core_count == 0 ? WEIR__PLACE_CORES_MAX + 1 : gpu->core_count;
        if (choice >= least) continue;
        least = choice;
        next = w;
    }
    return next;
}

/* The core with the fewest on it that no group has, of those the last: groups begin in front. */
static uint32_t find_seat(const struct weir__placing *placing, const struct place_candidates *c,
                          const struct weir__near *gpu) {
    assert(gpu != NULL);
    const struct weir__machine *machine = placing->machine;
    uint32_t best = SEAT_NONE;
    for (uint32_t i = machine->core_count; i-- > 0;) {
        if (!c->free[i] || c->owner[i] != WEIR__NO_WORKER) continue;
        if (best != SEAT_NONE && c->seated[i] >= c->seated[best]) continue;
        if (is_near(gpu, machine->cores[i].unit)) best = i;
    }
    return best;
}

static bool seat_all(const struct weir__placing *placing, struct place_candidates *c,
                     enum seating seating) {
    assert(seating < SEATINGS);
    uint32_t w;
    for (w = 0; w < placing->workers; w++) c->seat[w] = SEAT_NONE;
    for (w = 0; w < placing->machine->core_count; w++) c->seated[w] = 0;
    while ((w = next_to_sit(placing, c->seat)) != WEIR__NO_WORKER) {
        uint32_t core = find_seat(placing, c, weir__placing_gpu(placing, w));
        if (core == SEAT_NONE && seating != ANYWHERE) return false;
        if (core != SEAT_NONE && c->seated[core] > 0 && seating == APART) return false;
        c->seat[w] = core == SEAT_NONE ? SEAT_ANYWHERE : core;
        if (core != SEAT_NONE) c->seated[core]++;
    }
    return true;
}

/* ---- groups ---- */

static void clear_groups(const struct weir__placing *placing, struct place_candidates *c) {
    for (uint32_t i = 0; i < placing->machine->core_count; i++) c->owner[i] = WEIR__NO_WORKER;
}

static bool deal_groups(const struct weir__placing *placing, struct place_candidates *c) {
    uint32_t groups = weir__placing_computing(placing);
    if (groups > 0)
        return weir__choose(placing->machine, c->free, groups, placing->threads, c->owner);
    clear_groups(placing, c);
    return true;
}

static bool groups_first(const struct weir__placing *placing, struct place_candidates *c,
                         enum seating seating) {
    return deal_groups(placing, c) && seat_all(placing, c, seating);
}

static bool seats_first(const struct weir__placing *placing, struct place_candidates *c,
                        enum seating seating) {
    clear_groups(placing, c);
    if (!seat_all(placing, c, seating)) return false;
    for (uint32_t i = 0; i < placing->machine->core_count; i++) c->free[i] &= c->seated[i] == 0;
    return deal_groups(placing, c);
}

/* ---- both ---- */

static void find_free(const struct weir__placing *placing, struct place_candidates *c, bool share) {
    for (uint32_t i = 0; i < placing->machine->core_count; i++)
        c->free[i] = !c->stranger[i] && (share || !c->sibling[i]);
}

/* Cores that nobody else has, or, if these are too few, those of this process's other pipes too. */
static bool choose(const struct weir__placing *placing, struct place_candidates *c,
                   enum seating seating) {
    assert(seating < SEATINGS);
    for (int share = 0; share <= 1; share++) {
        find_free(placing, c, share == 1);
        if (groups_first(placing, c, seating) || seats_first(placing, c, seating)) return true;
    }
    return false;
}

/* Claims what was chosen, in one order for all processes, so that of two that start together one
 * gets all that it wants. False at the first core that turns out to be another's: choose again. */
static bool claim_chosen(struct weir__machine *machine, struct place_candidates *c) {
    for (uint32_t i = 0; i < machine->core_count; i++) {
        bool chosen = c->owner[i] != WEIR__NO_WORKER || c->seated[i] > 0;
        if (!chosen || c->sibling[i]) continue;
        enum weir__claim claim = weir__claim_core(machine, i);
        c->sibling[i] = claim == WEIR__CLAIM_SIBLING;
        c->stranger[i] = claim == WEIR__CLAIM_STRANGER;
        if (claim != WEIR__CLAIM_OURS) return false;
    }
    return true;
}

/* How they sit now, or SEATINGS: there are too few cores for the groups alone. */
static enum seating choose_and_claim(const struct weir__placing *placing,
                                     struct place_candidates *c) {
    struct weir__machine *machine = placing->machine;
    uint64_t need = (uint64_t)weir__placing_computing(placing) * placing->threads;
    if (need > machine->usable_count) return SEATINGS;
    bool enough = need + placing->gpu_count <= machine->usable_count;
    /* Each failed turn learns about one more core. */
    for (uint32_t turn = 0; turn <= machine->core_count; turn++) {
        enum seating seating = enough ? APART : TOGETHER;
        while (seating < SEATINGS && !choose(placing, c, seating)) seating++;
        if (seating == SEATINGS || claim_chosen(machine, c)) return seating;
    }
    assert(false);
    return SEATINGS;
}

/* ---- placements ---- */

static void take_near(const struct weir__near *gpu, struct weir__worker_place *placement) {
    assert(gpu->core_count <= WEIR__PLACE_CORES_MAX);
    placement->place.core_count = gpu->core_count;
    memcpy(placement->core_ids, gpu->core_ids, gpu->core_count * sizeof *gpu->core_ids);
}

/* Groups are numbered as the workers that compute. Only what sits apart, or in a group whose cores
 * no worker without a seat may run on, has them for itself. */
static void fill(const struct weir__placing *placing, const struct place_candidates *c,
                 enum seating seating) {
    assert(placing->machine->core_count <= WEIR__PLACE_CORES_MAX);
    const struct weir__machine *machine = placing->machine;
    uint32_t group = 0;
    for (uint32_t w = 0; w < placing->workers; w++) {
        struct weir__worker_place *placement = &placing->placements[w];
        const struct weir__near *gpu = weir__placing_gpu(placing, w);
        placement->exclusive = seating == APART || (gpu == NULL && seating == TOGETHER);
        if (gpu != NULL && (seating == SEATINGS || c->seat[w] == SEAT_ANYWHERE)) {
            take_near(gpu, placement);
        } else if (gpu != NULL) {
            placement->core_ids[placement->place.core_count++] = machine->cores[c->seat[w]].unit;
        } else if (seating < SEATINGS) {
            for (uint32_t i = 0; i < machine->core_count; i++)
                if (c->owner[i] == group)
                    placement->core_ids[placement->place.core_count++] = machine->cores[i].unit;
            group++;
        }
    }
}

static void keep_claims(const struct weir__placing *placing, const struct place_candidates *c,
                        bool found) {
    for (uint32_t i = 0; i < placing->machine->core_count; i++)
        if (!found || (c->owner[i] == WEIR__NO_WORKER && c->seated[i] == 0))
            weir__unclaim_core(placing->machine, i);
}

static int describe_bound(const struct weir__placing *placing) {
    for (uint32_t w = 0; w < placing->workers; w++) {
        if (placing->placements[w].place.core_count == 0) continue;
        int status = weir__placing_describe(placing, &placing->placements[w]);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

int weir__placing_auto(const struct weir__placing *placing) {
    const struct weir_allocator *allocator = placing->machine->allocator;
    struct place_candidates *c = weir__acquire(allocator, 1, sizeof *c);
    if (c == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = WEIR_ERR_OUT_OF_MEMORY;
    c->seat = weir__acquire(allocator, placing->workers, sizeof *c->seat);
    if (c->seat == NULL) goto fail_seat;
    enum seating seating = choose_and_claim(placing, c);
    keep_claims(placing, c, seating < SEATINGS);
    fill(placing, c, seating);
    status = describe_bound(placing);
    weir__release(allocator, c->seat, placing->workers, sizeof *c->seat);
fail_seat:
    weir__release(allocator, c, 1, sizeof *c);
    return status;
}
