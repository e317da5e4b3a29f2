/* SPDX-License-Identifier: MIT */
/* Fork and join. One word holds the work's number and how many of its parts nobody has taken, so
 * that who wakes late takes none of an older piece: it fails to exchange the word. Once a part is
 * taken the head cannot go on before it is done, so what the job says stays true for its taker. */
#include "base/team.h"

#include "base/portable.h"

#include <pthread.h>

/* Gaps between kernels are microseconds; a longer one is a wait for another worker. */
enum { SPIN_NS = 50000 };

struct helper {
    struct weir__team *team;
    uint32_t member;
    pthread_t thread;
};

struct weir__team {
    struct weir__gate go;               /**< the work's number; advanced by the head */
    struct weir__gate done;             /**< the same; advanced by whoever ends its last part */
    _Alignas(64) _Atomic uint64_t open; /**< number << 32 | parts not taken */
    _Alignas(64) _Atomic uint32_t ended;
    /* The job: written by the head while no part is open or running. */
    weir__team_fn *run;
    void *context;
    uint32_t number, parts;
    _Atomic uint32_t most; /* read by who takes no part, too */
    _Atomic bool leaving;
    /* Constant. */
    const struct weir_allocator *allocator;
    uint64_t spin_ns;
    uint32_t members, started;
    struct helper helpers[];
};

static size_t team_bytes(uint32_t members) {
    return sizeof(struct weir__team) + (members - 1) * sizeof(struct helper);
}

/* Takes parts of work `number` until there are none. */
static void take_parts(struct weir__team *team, uint32_t number, uint32_t member) {
    uint64_t open = atomic_load_explicit(&team->open, memory_order_acquire);
    while (open >> 32 == number && (uint32_t)open > 0) {
        if (!atomic_compare_exchange_weak_explicit(&team->open, &open, open - 1,
                                                   memory_order_acq_rel, memory_order_acquire))
            continue;
        uint32_t parts = team->parts, part = parts - (uint32_t)open;
        team->run(team->context, part, member);
        if (atomic_fetch_add_explicit(&team->ended, 1, memory_order_acq_rel) + 1 == parts) {
            weir__gate_advance(&team->done, number);
            return;
        }
        open = atomic_load_explicit(&team->open, memory_order_acquire);
    }
}

static void *helper_main(void *argument) {
    const struct helper *helper = argument;
    struct weir__team *team = helper->team;
    for (uint32_t number = 1;; number++) {
        weir__gate_wait(&team->go, number, team->spin_ns, 0);
        number = atomic_load_explicit(&team->go.value, memory_order_acquire);
        if (atomic_load_explicit(&team->leaving, memory_order_acquire)) return NULL;
        if (helper->member < atomic_load_explicit(&team->most, memory_order_relaxed))
            take_parts(team, number, helper->member);
    }
}

static void run_job(struct weir__team *team, uint32_t parts, uint32_t most) {
    assert(parts > 0 && most >= 2 && most <= team->members);
    uint32_t number = ++team->number;
    team->parts = parts;
    atomic_store_explicit(&team->most, most, memory_order_relaxed);
    atomic_store_explicit(&team->ended, 0, memory_order_relaxed);
    atomic_store_explicit(&team->open, (uint64_t)number << 32 | parts, memory_order_release);
    weir__gate_advance(&team->go, number);
    take_parts(team, number, 0);
    weir__gate_wait(&team->done, number, team->spin_ns, 0);
}

void weir__team_run(struct weir__team *team, uint32_t members, uint32_t parts, weir__team_fn *run,
                    void *context) {
    assert(run != NULL);
    uint32_t most = weir__team_members(team) < members ? weir__team_members(team) : members;
    if (most < 2 || parts < 2) {
        for (uint32_t part = 0; part < parts; part++) run(context, part, 0);
        return;
    }
    team->run = run;
    team->context = context;
    run_job(team, parts, most);
}

uint32_t weir__team_members(const struct weir__team *team) {
    return team == NULL ? 1 : team->members;
}

/* ---- life ---- */

int weir__team_new(const struct weir_allocator *allocator, uint32_t members, bool spins,
                   struct weir__team **team) {
    assert(members >= 2);
    struct weir__team *made = weir__acquire(allocator, 1, team_bytes(members));
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    made->allocator = allocator;
    made->members = members;
    made->spin_ns = spins ? SPIN_NS : 0;
    for (uint32_t i = 0; i + 1 < members; i++) {
        struct helper *helper = &made->helpers[i];
        *helper = (struct helper){.team = made, .member = i + 1};
        if (pthread_create(&helper->thread, NULL, helper_main, helper) != 0) {
            weir__team_destroy(made);
            return WEIR_ERR_SYSTEM;
        }
        made->started++;
    }
    *team = made;
    return WEIR_OK;
}

void weir__team_destroy(struct weir__team *team) {
    if (team == NULL) return;
    assert(team->started < team->members);
    atomic_store_explicit(&team->leaving, true, memory_order_release);
    weir__gate_advance(&team->go, team->number + 1);
    for (uint32_t i = 0; i < team->started; i++) pthread_join(team->helpers[i].thread, NULL);
    weir__release(team->allocator, team, 1, team_bytes(team->members));
}
