/* SPDX-License-Identifier: MIT */
/* Threads that stand where the engine would put workers, for what takes more than one core. */
#include "harness.h"

#include <pthread.h>

struct member {
    struct bench_team *team;
    uint32_t number;
};

static void *member_main(void *argument) {
    const struct member *member = argument;
    struct bench_team *team = member->team;
    weir__place_bind(team->machine, &team->placements[member->number]);
    team->run(team, member->number);
    return NULL;
}

void bench_run_team(struct bench *bench, uint32_t count, void *context,
                    void (*run)(struct bench_team *team, uint32_t member)) {
    struct bench_team *team = bench_take(bench, 1, sizeof *team);
    struct weir__worker_place *placements = bench_take(bench, count, sizeof *placements);
    struct member members[BENCH_CORES_MOST];
    pthread_t threads[BENCH_CORES_MOST];
    assert(count <= BENCH_CORES_MOST);
    team->run = run;
    team->context = context;
    team->machine = bench->machine;
    team->placements = placements;
    struct weir__place_request request = {.bind = "auto", .workers = count, .threads = 1};
    bench_check(weir__place_plan(bench->machine, &request, NULL, placements), "placing");
    for (uint32_t i = 0; i < count; i++) {
        members[i] = (struct member){team, i};
        if (pthread_create(&threads[i], NULL, member_main, &members[i]) != 0)
            bench_die("the system gives no thread");
    }
    for (uint32_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
    weir__place_unclaim(bench->machine);
}

void bench_meet(struct bench_team *team, uint32_t member, uint32_t members, uint32_t round) {
    weir__gate_advance(&team->ready[member], round);
    if (member == 0) {
        for (uint32_t i = 1; i < members; i++) weir__gate_wait(&team->ready[i], round, 0, 0);
        weir__gate_advance(&team->go, round);
    } else {
        weir__gate_wait(&team->go, round, 1000000, 0);
    }
}
