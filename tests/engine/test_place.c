/* SPDX-License-Identifier: MIT */
/*
 * Goal: workers land where place.h says, on machines of all shapes, and never where they may not.
 * Method: hwloc makes machines from strings; placements are compared as text ("0-3|4-7" for two
 * workers); random machines and gaps are checked against a count of what cannot be avoided. Cpusets
 * and binding are real: child processes are confined. Claims are test_claim.c's.
 */
#include "base/base.h"
#include "harness.h"
#include "engine/place_plans.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void expect_auto(const char *synthetic, uint32_t workers, uint32_t threads,
                        const char *expected) {
    struct weir__machine *machine = place_machine(synthetic);
    if (machine == NULL) return;
    place_expect(machine, "auto", workers, threads, expected);
    weir__machine_destroy(machine);
}

/* ---- machines of all shapes ---- */

static void test_two_packages_of_two_numa_nodes_each(void) {
    static const char machine[] = "pack:2 numa:2 core:4 pu:1";
    expect_auto(machine, 4, 4, "0-3|4-7|8-11|12-15");
    expect_auto(machine, 4, 0, "0-3|4-7|8-11|12-15");
    expect_auto(machine, 2, 4, "0-3|4-7");
    expect_auto(machine, 2, 0, "0-7|8-15");
    expect_auto(machine, 2, 1, "0|1");
    expect_auto(machine, 5, 1, "0|1|2|3|4");
    expect_auto(machine, 3, 3, "0-2|4-6|8-10");
    expect_auto(machine, 1, 16, "0-15");
    expect_auto(machine, 16, 0, "0|1|2|3|4|5|6|7|8|9|10|11|12|13|14|15");
}

static void test_a_worker_straddles_only_where_it_must(void) {
    expect_auto("pack:2 numa:2 core:4 pu:1", 5, 3, "0-2|3,7,11|4-6|8-10|12-14");
    expect_auto("pack:2 numa:2 core:3 pu:1", 6, 2, "0-1|2,5|3-4|6-7|8,11|9-10");
    expect_auto("pack:2 numa:2 core:3 pu:1", 4, 2, "0-1|2,5|3-4|6-7");
    expect_auto("pack:2 numa:2 core:3 pu:1", 3, 2, "0-1|2,5|3-4");
    expect_auto("pack:3 l3:3 core:5 pu:1", 9, 4,
                "0-3|5-8|10-13|15-18|20-23|25-28|30-33|35-38|40-43");
}

static void test_one_processing_unit_per_core(void) {
    expect_auto("pack:1 core:4 pu:2", 2, 2, "0,2|4,6");
    expect_auto("pack:1 core:4 pu:2", 2, 0, "0,2|4,6");
    expect_auto("pack:1 core:4 pu:2", 4, 2, "-|-|-|-");
    /* Linux's usual numbers: all first threads, then all second ones. */
    expect_auto("pack:2 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)", 2, 2, "0-1|2-3");
}

static void test_interleaved_core_numbers_follow_the_machine(void) {
    expect_auto("pack:2 core:4 pu:1(indexes=0,2,4,6,1,3,5,7)", 2, 4, "0,2,4,6|1,3,5,7");
    expect_auto("pack:2 core:4 pu:1(indexes=0,2,4,6,1,3,5,7)", 4, 2, "0,2|4,6|1,3|5,7");
    expect_auto("pack:2 core:4 pu:1(indexes=0,2,4,6,1,3,5,7)", 4, 1, "0|2|4|6");
}

static void test_more_workers_than_cores_share_unbound(void) {
    expect_auto("core:2 pu:1", 3, 0, "-|-|-");
    expect_auto("core:2 pu:1", 3, 1, "-|-|-");
    expect_auto("core:2 pu:1", 2, 2, "-|-");
    expect_auto("core:2 pu:1", 2, UINT32_MAX, "-|-");
    struct weir__machine *machine = place_machine("core:2 pu:1");
    CHECK(machine != NULL);
    static struct weir__worker_place placements[4];
    EXPECT_STATUS(place_plan(machine, "auto", 4, 0, placements), WEIR_OK);
    for (int w = 0; w < 4; w++) {
        EXPECT_EQ_UINT(placements[w].threads, 1);
        EXPECT_EQ_INT(placements[w].place.numa_node, -1);
        EXPECT(!placements[w].exclusive);
    }
    weir__machine_destroy(machine);
}

static void test_places_name_their_node_and_cache(void) {
    struct weir__machine *machine =
        place_machine("pack:2 numa:2(indexes=3,1,0,2) l3:1 l2:4 l1d:1 core:1 pu:1");
    CHECK(machine != NULL);
    static struct weir__worker_place placements[PLACE_WORKERS_MAX];
    EXPECT_STATUS(place_plan(machine, "auto", 4, 4, placements), WEIR_OK);
    static const int32_t nodes[] = {3, 1, 0, 2};
    for (int w = 0; w < 4; w++) {
        EXPECT_EQ_INT(placements[w].place.numa_node, nodes[w]);
        EXPECT_EQ_STR(placements[w].place.cache, "L3");
        EXPECT(placements[w].exclusive);
    }
    EXPECT_EQ_UINT(placements[1].core_ids[2], 6);
    EXPECT_STATUS(place_plan(machine, "auto", 1, 8, placements), WEIR_OK);
    EXPECT_EQ_INT(placements[0].place.numa_node, -1);
    EXPECT_EQ_STR(placements[0].place.cache, "");
    EXPECT_STATUS(place_plan(machine, "auto", 1, 1, placements), WEIR_OK);
    EXPECT_EQ_STR(placements[0].place.cache, "L1d");
    weir__machine_destroy(machine);
}

/* ---- random machines ---- */

struct shape {
    uint32_t packages, caches, cores, threads;
};

/* Groups that no deal can keep inside one package, if cores with !usable are missing. */
static uint32_t unavoidable(const struct shape *shape, const bool *usable, uint32_t workers) {
    uint32_t inside = 0, size = shape->caches * shape->cores;
    for (uint32_t p = 0; p < shape->packages; p++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < size; i++) count += usable[p * size + i];
        inside += count / shape->threads;
    }
    return workers > inside ? workers - inside : 0;
}

static uint32_t straddlers(const struct shape *shape, const uint32_t *owner, uint32_t workers) {
    uint32_t size = shape->caches * shape->cores, straddling = 0;
    for (uint32_t w = 0; w < workers; w++) {
        uint32_t cores = 0, packages = 0, last = UINT32_MAX;
        for (uint32_t i = 0; i < shape->packages * size; i++) {
            if (owner[i] != w) continue;
            cores++;
            packages += i / size != last;
            last = i / size;
        }
        EXPECT_EQ_UINT(cores, shape->threads);
        straddling += packages > 1;
    }
    return straddling;
}

static void choose_at_random(void) {
    struct shape shape = {1 + (uint32_t)test_random_below(4), 1 + (uint32_t)test_random_below(3),
                          1 + (uint32_t)test_random_below(6), 1 + (uint32_t)test_random_below(6)};
    char text[128];
    snprintf(text, sizeof text, "pack:%u l3:%u core:%u pu:1", shape.packages, shape.caches,
             shape.cores);
    struct weir__machine *machine = place_machine(text);
    if (machine == NULL) return;
    bool usable[128];
    uint32_t owner[128], count = 0;
    uint32_t missing = (uint32_t)test_random_below(100);
    for (uint32_t i = 0; i < machine->core_count; i++) {
        usable[i] = test_random_below(100) >= missing;
        count += usable[i];
    }
    uint32_t workers = 1 + (uint32_t)test_random_below(count + 1);
    if (test_random_below(2)) workers = count / shape.threads; /* as many as there can be */
    if (workers == 0) workers = 1;
    bool fits = weir__choose(machine, usable, workers, shape.threads, owner);
    EXPECT(fits == (workers * shape.threads <= count));
    if (fits) {
        EXPECT_EQ_UINT(straddlers(&shape, owner, workers), unavoidable(&shape, usable, workers));
        for (uint32_t i = 0; i < machine->core_count; i++) {
            EXPECT(owner[i] == WEIR__NO_WORKER || usable[i]);
        }
    }
    weir__machine_destroy(machine);
}

static void test_the_tightest_place_is_taken(void) {
    struct weir__machine *machine = place_machine("pack:2 core:4 pu:1");
    CHECK(machine != NULL);
    const bool usable[8] = {true, true, true, true, true, false, true, true};
    uint32_t owner[8];
    EXPECT(weir__choose(machine, usable, 1, 3, owner));
    for (int i = 0; i < 8; i++) EXPECT_EQ_UINT(owner[i], i >= 4 && i != 5 ? 0 : WEIR__NO_WORKER);
    weir__machine_destroy(machine);
}

static void test_random_machines_are_dealt_with_fewest_straddlers(void) {
    for (int i = 0; i < 500; i++) {
        choose_at_random();
        CHECK_HELPERS();
    }
}

/* ---- lists ---- */

static void test_a_list_is_dealt_in_its_order(void) {
    struct weir__machine *machine = place_machine("pack:2 core:4 pu:2");
    CHECK(machine != NULL);
    place_expect(machine, "0-3,8", 1, 5, "0-3,8");
    place_expect(machine, "0-3,8", 1, 0, "0-3,8");
    place_expect(machine, "8,0,2", 3, 1, "8|0|2");
    place_expect(machine, "6,0,4,2", 2, 0, "0,6|2,4");
    place_expect(machine, "0-15", 2, 3, "0-2|3-5");
    place_expect(machine, "none", 2, 3, "-|-");
    weir__machine_destroy(machine);
}

static void test_processes_share_a_list_in_order(void) {
    static const char *const cores[3][2] = {{"0", "2"}, {"4", "6"}, {"8", "10"}};
    struct weir__machine *machine = place_machine("pack:2 core:4 pu:2");
    static struct weir__worker_place placements[3];
    struct weir_faults faults = WEIR_FAULTS_INIT;
    CHECK(machine != NULL);
    struct weir__place_request request = {.bind = "0,2,4,6,8,10,12", .workers = 2, .shares = 3};
    for (request.share = 0; request.share < 3; request.share++) {
        EXPECT_STATUS(weir__place_plan(machine, &request, &faults, placements), WEIR_OK);
        for (uint32_t w = 0; w < 2; w++)
            EXPECT_EQ_STR(placements[w].place.cores, cores[request.share][w]);
    }
    request.share = 0;
    request.workers = 3;
    EXPECT_STATUS(weir__place_plan(machine, &request, &faults, placements), WEIR_ERR_ARGUMENT);
    EXPECT_CONTAINS(faults.lines[0], "2 cores for each rank of the host");
    weir_faults_clean_up(&faults);
    weir__machine_destroy(machine);
}

static void test_two_workers_on_one_core_are_not_exclusive(void) {
    struct weir__machine *machine = place_machine("core:4 pu:2");
    CHECK(machine != NULL);
    static struct weir__worker_place placements[3];
    EXPECT_STATUS(place_plan(machine, "0,1,4", 3, 1, placements), WEIR_OK);
    EXPECT(!placements[0].exclusive && !placements[1].exclusive && placements[2].exclusive);
    EXPECT_STATUS(place_plan(machine, "0-1,4,6", 2, 2, placements), WEIR_OK);
    EXPECT(placements[0].exclusive && placements[1].exclusive);
    weir__machine_destroy(machine);
}

static void test_malformed_lists_are_refused_and_say_why(void) {
    static const char *const malformed[] = {"",    ",",    "0,",  ",0",   "0-",     "-1",
                                            "3-1", "0--1", "0 1", " 0",   "0-1-2",  "x",
                                            "0x1", "0;1",  "1.",  "Auto", "1234567"};
    struct weir__machine *machine = place_machine("core:4 pu:1");
    CHECK(machine != NULL);
    for (size_t i = 0; i < WEIR__COUNT_OF(malformed); i++) {
        place_expect_refused(machine, malformed[i], 1, 1, "neither a core's number nor a range");
    }
    place_expect_refused(machine, "0,1x,2", 1, 1, "\"1x\"");
    place_expect_refused(machine, "0-4", 1, 1, "no core 4 ");
    place_expect_refused(machine, "7,0,900000-999999", 1, 1, "no core 7,900000-999999 ");
    place_expect_refused(machine, "9", 1, 1, "choose from 0-3");
    place_expect_refused(machine, "0,1,0-1", 1, 1, "core 0-1 stands there twice");
    place_expect_refused(machine, "0-2", 2, 2, "names 3 cores, but 2 workers need 4");
    place_expect_refused(machine, "0", 2, 0, "names 1 core, but 2 workers need 2");
    place_expect_refused(machine, "0", 2, UINT32_MAX, "workers need 8589934590");
    weir__machine_destroy(machine);
}

static void test_a_list_names_all_its_faults(void) {
    struct weir__machine *machine = place_machine("core:4 pu:1");
    CHECK(machine != NULL);
    static struct weir__worker_place placement;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    faults.allocator = test_allocator();
    struct weir__place_request request = {.bind = "0,5,0", .workers = 1, .threads = 1};
    EXPECT_STATUS(weir__place_plan(machine, &request, &faults, &placement), WEIR_ERR_ARGUMENT);
    EXPECT_FAULTS(&faults, "this process has no core 5", "core 0 stands there twice");
    weir_faults_clean_up(&faults);
    weir__machine_destroy(machine);
}

static void test_the_environment_binds_where_options_do_not(void) {
    struct weir__machine *machine = place_machine("core:4 pu:1");
    CHECK(machine != NULL);
    setenv("WEIR_BIND", "3,1", 1);
    place_expect(machine, NULL, 2, 1, "3|1");
    place_expect(machine, "auto", 2, 1, "0|1");
    setenv("WEIR_BIND", "none", 1);
    place_expect(machine, NULL, 2, 1, "-|-");
    setenv("WEIR_BIND", "", 1);
    place_expect(machine, NULL, 2, 1, "0|1");
    unsetenv("WEIR_BIND");
    place_expect(machine, NULL, 2, 2, "0-1|2-3");
    weir__machine_destroy(machine);
}

static void test_long_core_lists_are_cut_at_a_comma(void) {
    struct weir__machine *machine = place_machine("core:64 pu:2");
    CHECK(machine != NULL);
    static struct weir__worker_place placement;
    EXPECT_STATUS(place_plan(machine, "auto", 1, 0, &placement), WEIR_OK);
    EXPECT_EQ_UINT(placement.place.core_count, 64);
    EXPECT_EQ_STR(placement.place.cores,
                  "0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,...");
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    char text[6];
    hwloc_bitmap_set(set, 1234567);
    EXPECT_EQ_STR(weir__list_text(set, text, sizeof text), "...");
    hwloc_bitmap_free(set);
    weir__machine_destroy(machine);
}

/* ---- facts, and failing allocations ---- */

static void test_facts_describe_the_machine(void) {
    struct weir__machine_facts facts;
    struct weir__machine *machine =
        place_machine("pack:2 numa:2(memory=1073741824) l3:1(size=4194304) l2:4 l1d:1 core:1 pu:2");
    CHECK(machine != NULL);
    weir__machine_facts(machine, &facts);
    EXPECT_EQ_UINT(facts.cores, 16);
    EXPECT_EQ_UINT(facts.processing_units, 32);
    EXPECT_EQ_UINT(facts.packages, 2);
    EXPECT_EQ_UINT(facts.numa_nodes, 4);
    EXPECT_EQ_UINT(facts.usable_cores, 16);
    EXPECT_EQ_UINT(facts.l3_count, 4);
    EXPECT_EQ_UINT(facts.l3_bytes, 4194304);
    EXPECT_EQ_UINT(facts.memory_bytes, UINT64_C(4) << 30);
    EXPECT_EQ_STR(facts.model, "synthetic");
    EXPECT(facts.synthetic && facts.quota_cores == 0);
    weir__machine_destroy(machine);

    machine = place_machine(NULL);
    CHECK(machine != NULL);
    weir__machine_facts(machine, &facts);
    EXPECT(!facts.synthetic);
    EXPECT(facts.model[0] != '\0');
    EXPECT(facts.usable_cores >= 1 && facts.usable_cores <= facts.cores);
    EXPECT(facts.cores <= facts.processing_units && facts.memory_bytes > 0);
    weir__machine_destroy(machine);
    weir__machine_destroy(NULL);
    weir__place_unclaim(NULL);
}

static bool plan_with_failure(uint64_t k, const char *bind) {
    static struct weir__worker_place placements[2];
    struct weir__machine *machine = NULL;
    test_allocator_fail_at(k, false);
    setenv("HWLOC_SYNTHETIC", "core:4 pu:1", 1);
    int status = weir__machine_new(test_allocator(), &machine);
    unsetenv("HWLOC_SYNTHETIC");
    if (status == WEIR_OK) status = place_plan(machine, bind, 2, 2, placements);
    bool fired = test_allocator_fired();
    test_allocator_fail_at(0, false);
    EXPECT_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
    weir__machine_destroy(machine);
    return fired;
}

static void test_every_failing_allocation_is_reported(void) {
    static const char *const binds[] = {"auto", "0-3", "none"};
    for (size_t i = 0; i < WEIR__COUNT_OF(binds); i++) {
        uint64_t k = 1;
        while (k < 100 && plan_with_failure(k, binds[i])) k++;
        CHECK(k > 1 && k < 100);
    }
}

/* ---- quotas ---- */

static void write_file(const char *root, const char *path, const char *text) {
    char whole[1024];
    snprintf(whole, sizeof whole, "%s/%s", root, path);
    for (char *slash = whole + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(whole, 0777); /* may be there */
        *slash = '/';
    }
    FILE *file = fopen(whole, "w");
    if (!EXPECT(file != NULL)) return;
    EXPECT(fputs(text, file) >= 0);
    EXPECT_EQ_INT(fclose(file), 0);
}

static void test_a_v2_quota_is_found_anywhere_on_the_way_up(void) {
    const char *root = test_temporary_directory();
    CHECK(root != NULL);
    EXPECT_NEAR(weir__quota_cores(root), 0, 0);
    write_file(root, "proc/self/cgroup", "0::/user/job\n");
    write_file(root, "proc/self/mountinfo",
               "24 1 8:1 / / rw - ext4 /dev/vda rw\n"
               "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
    write_file(root, "sys/fs/cgroup/user/job/cpu.max", "max 100000\n");
    EXPECT_NEAR(weir__quota_cores(root), 0, 0);
    write_file(root, "sys/fs/cgroup/user/cpu.max", "350000 100000\n");
    EXPECT_NEAR(weir__quota_cores(root), 3.5, 0);
    write_file(root, "sys/fs/cgroup/user/job/cpu.max", "500000 100000\n");
    EXPECT_NEAR(weir__quota_cores(root), 3.5, 0);
    write_file(root, "sys/fs/cgroup/user/job/cpu.max", "150000 100000\n");
    EXPECT_NEAR(weir__quota_cores(root), 1.5, 0);
    write_file(root, "sys/fs/cgroup/cpu.max", "50000 100000\n");
    EXPECT_NEAR(weir__quota_cores(root), 0.5, 0);
    write_file(root, "sys/fs/cgroup/cpu.max", "nonsense\n");
    EXPECT_NEAR(weir__quota_cores(root), 1.5, 0);
}

static void test_a_v1_quota_is_found_beside_v2(void) {
    const char *root = test_temporary_directory();
    CHECK(root != NULL);
    write_file(root, "proc/self/cgroup",
               "9:name=systemd:/\n7:cpuset:/\n4:cpuacct,cpu:/docker/12ab/job\n0::/\n");
    write_file(root, "proc/self/mountinfo",
               "30 23 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
               "31 23 0:28 /docker/12ab /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
               "32 23 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    write_file(root, "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
    write_file(root, "sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    EXPECT_NEAR(weir__quota_cores(root), 0, 0);
    write_file(root, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n");
    EXPECT_NEAR(weir__quota_cores(root), 0, 0);
    write_file(root, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    EXPECT_NEAR(weir__quota_cores(root), 2.5, 0);
    /* A process that the mount does not show has the mount's own limit only. */
    write_file(root, "proc/self/cgroup", "4:cpuacct,cpu:/docker/12abcd/job\n0::/\n");
    write_file(root, "sys/fs/cgroup/cpu/docker/12abcd/job/cpu.cfs_quota_us", "100000\n");
    write_file(root, "sys/fs/cgroup/cpu/docker/12abcd/job/cpu.cfs_period_us", "100000\n");
    write_file(root, "sys/fs/cgroup/cpu/cd/job/cpu.cfs_quota_us", "100000\n");
    write_file(root, "sys/fs/cgroup/cpu/cd/job/cpu.cfs_period_us", "100000\n");
    EXPECT_NEAR(weir__quota_cores(root), 2.5, 0);
    write_file(root, "sys/fs/cgroup/unified/cpu.max", "200000 100000\n");
    EXPECT_NEAR(weir__quota_cores(root), 2, 0);
}

static void test_a_quota_counts_as_whole_cores(void) {
    CHECK_EQ_UINT(weir__quota_usable(8, 0), 8);
    CHECK_EQ_UINT(weir__quota_usable(8, 0.5), 1);
    CHECK_EQ_UINT(weir__quota_usable(8, 1.9), 1);
    CHECK_EQ_UINT(weir__quota_usable(8, 4), 4);
    CHECK_EQ_UINT(weir__quota_usable(8, 100), 8);
    struct weir__machine *machine = place_machine("core:8 pu:1");
    CHECK(machine != NULL);
    machine->usable_count = 4;
    place_expect(machine, "auto", 2, 0, "0-1|2-3");
    place_expect(machine, "auto", 2, 3, "-|-");
    static struct weir__worker_place placements[2];
    EXPECT_STATUS(place_plan(machine, "0-7", 2, 0, placements), WEIR_OK);
    EXPECT(placements[0].place.bound && !placements[0].exclusive);
    weir__machine_destroy(machine);
}

/* ---- real processes: cpusets, binding, claims ---- */

/* Runs `body` in a child; gives its exit code, 0 for all well. */
static int in_child(int (*body)(void)) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(body());
    int status = -1;
    if (!EXPECT(child > 0) || !EXPECT(waitpid(child, &status, 0) == child)) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The process's cores as the system tells, without hwloc. */
static int allowed_units(int units[2], cpu_set_t *set) {
    int count = 0;
    CPU_ZERO(set);
    if (sched_getaffinity(0, sizeof *set, set) != 0) return 0;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, set)) continue;
        if (count < 2) units[count] = i;
        count++;
    }
    return count;
}

static int confined_to_one_core(void) {
    int units[2];
    cpu_set_t set;
    if (allowed_units(units, &set) < 2) return 2;
    CPU_ZERO(&set);
    CPU_SET(units[1], &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) return 3;
    struct weir__machine *machine = NULL;
    if (weir__machine_new(NULL, &machine) != WEIR_OK) return 4;
    if (machine->core_count != 1 || machine->usable_count != 1) return 5;
    if ((int)machine->cores[0].unit != units[1]) return 6;
    static struct weir__worker_place placements[2];
    if (place_plan(machine, "auto", 2, 0, placements) != WEIR_OK) return 7;
    if (placements[0].place.bound || placements[1].exclusive) return 8;
    char list[16];
    snprintf(list, sizeof list, "%d", units[0]);
    if (place_plan(machine, list, 1, 1, placements) != WEIR_ERR_ARGUMENT) return 9;
    snprintf(list, sizeof list, "%d", units[1]);
    if (place_plan(machine, list, 1, 1, placements) != WEIR_OK) return 10;
    weir__machine_destroy(machine);
    return 0;
}

static void test_an_inherited_cpuset_is_respected(void) {
    int units[2];
    cpu_set_t set;
    if (allowed_units(units, &set) < 2) SKIP("one core only: a smaller cpuset is not to be had");
    CHECK_EQ_INT(in_child(confined_to_one_core), 0);
}

struct binding {
    struct weir__machine *machine;
    const struct weir__worker_place *placement;
    cpu_set_t set; /* what the thread runs on afterwards */
    int status;
};

static void *bind_and_look(void *context) {
    struct binding *binding = context;
    binding->status = weir__place_bind(binding->machine, binding->placement);
    CPU_ZERO(&binding->set);
    if (sched_getaffinity(0, sizeof binding->set, &binding->set) != 0) binding->status = -1000;
    return NULL;
}

static bool bind_thread(struct weir__machine *machine, const char *bind, cpu_set_t *set) {
    static struct weir__worker_place placement;
    struct binding binding = {.machine = machine, .placement = &placement};
    pthread_t thread;
    if (!EXPECT_STATUS(place_plan(machine, bind, 1, 0, &placement), WEIR_OK)) return false;
    if (!EXPECT_EQ_INT(pthread_create(&thread, NULL, bind_and_look, &binding), 0)) return false;
    if (!EXPECT_EQ_INT(pthread_join(thread, NULL), 0)) return false;
    *set = binding.set;
    return EXPECT_STATUS(binding.status, WEIR_OK);
}

static void test_a_worker_is_bound_and_the_caller_is_not(void) {
    int units[2];
    cpu_set_t before, after, worker;
    int count = allowed_units(units, &before);
    CHECK(count > 0);
    struct weir__machine *machine = place_machine(NULL);
    CHECK(machine != NULL);
    char list[16];
    snprintf(list, sizeof list, "%d", units[count > 1]);
    if (bind_thread(machine, list, &worker)) {
        EXPECT_EQ_INT(CPU_COUNT(&worker), 1);
        EXPECT(CPU_ISSET(units[count > 1], &worker));
    }
    if (bind_thread(machine, "none", &worker)) EXPECT(CPU_EQUAL(&worker, &before));
    weir__machine_destroy(machine);
    machine = place_machine("core:1 pu:1(indexes=0)");
    if (machine != NULL && bind_thread(machine, "auto", &worker)) {
        EXPECT(CPU_EQUAL(&worker, &before));
    }
    weir__machine_destroy(machine);
    allowed_units(units, &after);
    EXPECT(CPU_EQUAL(&before, &after));
}

static int units_of_a_node_that_is_not_there(void) {
    setenv("HWLOC_SYNTHETIC", "core:2 pu:1(indexes=1000,1001)", 1);
    setenv("HWLOC_THISSYSTEM", "1", 1);
    struct weir__machine *machine = NULL;
    if (weir__machine_new(NULL, &machine) != WEIR_OK) return 2;
    static struct weir__worker_place placements[2];
    if (place_plan(machine, "1000,1001", 2, 1, placements) != WEIR_OK) return 3;
    if (weir__place_bind(machine, &placements[1]) != WEIR_ERR_SYSTEM) return 4;
    weir__machine_destroy(machine);
    return 0;
}

static void test_a_refused_binding_is_reported(void) {
    CHECK_EQ_INT(in_child(units_of_a_node_that_is_not_there), 0);
}

WEIR_TEST_SUITE(
    place, TEST(two_packages_of_two_numa_nodes_each), TEST(a_worker_straddles_only_where_it_must),
    TEST(one_processing_unit_per_core), TEST(interleaved_core_numbers_follow_the_machine),
    TEST(more_workers_than_cores_share_unbound), TEST(places_name_their_node_and_cache),
    TEST(the_tightest_place_is_taken), TEST(random_machines_are_dealt_with_fewest_straddlers),
    TEST(a_list_is_dealt_in_its_order), TEST(processes_share_a_list_in_order),
    TEST(two_workers_on_one_core_are_not_exclusive), TEST(malformed_lists_are_refused_and_say_why),
    TEST(a_list_names_all_its_faults), TEST(the_environment_binds_where_options_do_not),
    TEST(long_core_lists_are_cut_at_a_comma), TEST(facts_describe_the_machine),
    TEST(every_failing_allocation_is_reported), TEST(a_v2_quota_is_found_anywhere_on_the_way_up),
    TEST(a_v1_quota_is_found_beside_v2), TEST(a_quota_counts_as_whole_cores),
    TEST(an_inherited_cpuset_is_respected), TEST(a_worker_is_bound_and_the_caller_is_not),
    TEST(a_refused_binding_is_reported))
