/* SPDX-License-Identifier: MIT */
/* What the tests of placement and of claims share. */
#include "engine/place_plans.h"

#include "harness.h"

#include <stdio.h>
#include <stdlib.h>

struct weir__machine *place_machine(const char *synthetic) {
    struct weir__machine *machine = NULL;
    if (synthetic != NULL) setenv("HWLOC_SYNTHETIC", synthetic, 1);
    int status = weir__machine_new(test_allocator(), &machine);
    if (synthetic != NULL) unsetenv("HWLOC_SYNTHETIC");
    EXPECT_STATUS(status, WEIR_OK);
    return machine;
}

int place_plan(struct weir__machine *machine, const char *bind, uint32_t workers, uint32_t threads,
               struct weir__worker_place *placements) {
    struct weir__place_request request = {.bind = bind, .workers = workers, .threads = threads};
    return weir__place_plan(machine, &request, NULL, placements);
}

/* "0-3|4-7" from bound placements, "-" for an unbound one. */
static const char *as_text(const struct weir__worker_place *placements, uint32_t workers) {
    static char text[PLACE_WORKERS_MAX * 66];
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t w = 0; w < workers; w++) {
        const struct weir_place *place = &placements[w].place;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", w > 0 ? "|" : "",
                                 place->bound ? place->cores : "-");
    }
    return text;
}

void place_expect(struct weir__machine *machine, const char *bind, uint32_t workers,
                  uint32_t threads, const char *expected) {
    static struct weir__worker_place placements[PLACE_WORKERS_MAX];
    struct weir_faults faults = WEIR_FAULTS_INIT;
    faults.allocator = test_allocator();
    struct weir__place_request request = {.bind = bind, .workers = workers, .threads = threads};
    int status = weir__place_plan(machine, &request, &faults, placements);
    if (EXPECT_STATUS(status, WEIR_OK)) EXPECT_EQ_STR(as_text(placements, workers), expected);
    EXPECT_EQ_UINT(faults.count, 0);
    for (uint32_t w = 0; w < workers; w++) {
        const struct weir__worker_place *placement = &placements[w];
        EXPECT_EQ_UINT(placement->place.worker, w);
        EXPECT(placement->place.bound || !placement->exclusive);
        uint32_t cores = placement->place.bound ? placement->threads : 0;
        EXPECT_EQ_UINT(placement->place.core_count, cores);
        if (threads > 0) EXPECT_EQ_UINT(placement->threads, threads);
    }
    weir_faults_clean_up(&faults);
}

void place_expect_refused(struct weir__machine *machine, const char *bind, uint32_t workers,
                          uint32_t threads, const char *reason) {
    static struct weir__worker_place placements[PLACE_WORKERS_MAX];
    struct weir_faults faults = WEIR_FAULTS_INIT;
    faults.allocator = test_allocator();
    struct weir__place_request request = {.bind = bind, .workers = workers, .threads = threads};
    int status = weir__place_plan(machine, &request, &faults, placements);
    EXPECT_STATUS(status, WEIR_ERR_ARGUMENT);
    if (EXPECT(faults.kept > 0)) EXPECT_CONTAINS(faults.lines[faults.kept - 1], reason);
    weir_faults_clean_up(&faults);
}
