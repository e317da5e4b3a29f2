/* SPDX-License-Identifier: MIT */
/*
 * Goal: workers with GPUs sit on cores near them, share these evenly where they must, and cost the
 * workers that compute nothing that can be spared. Method: hwloc makes machines from strings, near
 * cores are named; placements are compared as text ("0-3|7=" is a worker of four cores, then one
 * that does not have its core for itself). Pipes over the fake driver's GPUs find theirs in a
 * made-up /sys.
 */
#include "engine/engine_gpu.h"
#include "harness.h"
#include "net/run/devices.h"
#include "engine/place_plans.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Near cores of each worker's GPU; NULL: it has none; "": it has one, and nobody knows. */
struct asked {
    const char *bind;
    uint32_t threads, workers;
    const char *gpus[PLACE_WORKERS_MAX];
};

static struct weir__near nears[PLACE_WORKERS_MAX];
static struct weir__worker_place placements[PLACE_WORKERS_MAX];

static const struct weir__near *near_of(const struct weir__machine *machine, uint32_t w,
                                        const char *cores) {
    struct weir__near *near = &nears[w];
    if (cores == NULL) return NULL;
    *near = (struct weir__near)WEIR__NEAR_UNKNOWN;
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    EXPECT(hwloc_bitmap_list_sscanf(set, cores) == 0);
    for (uint32_t i = 0; i < machine->core_count; i++)
        if (hwloc_bitmap_isset(set, machine->cores[i].unit))
            near->core_ids[near->core_count++] = machine->cores[i].unit;
    hwloc_bitmap_free(set);
    return near;
}

static const char *as_text(uint32_t workers) {
    static char text[PLACE_WORKERS_MAX * 68];
    size_t used = 0;
    for (uint32_t w = 0; w < workers; w++) {
        const struct weir__worker_place *p = &placements[w];
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s%s", w > 0 ? "|" : "",
                                 p->place.bound ? p->place.cores : "-", p->exclusive ? "" : "=");
    }
    return text;
}

static void expect_on(struct weir__machine *machine, const struct asked *asked,
                      const char *expected) {
    const struct weir__near *gpus[PLACE_WORKERS_MAX];
    for (uint32_t w = 0; w < asked->workers; w++) gpus[w] = near_of(machine, w, asked->gpus[w]);
    struct weir__place_request request = {asked->bind, asked->workers, asked->threads, gpus};
    EXPECT_STATUS(weir__place_plan(machine, &request, NULL, placements), WEIR_OK);
    EXPECT_EQ_STR(as_text(asked->workers), expected);
    for (uint32_t w = 0; w < asked->workers; w++) {
        EXPECT_EQ_UINT(placements[w].place.worker, w);
        if (gpus[w] != NULL) EXPECT_EQ_UINT(placements[w].threads, 1);
    }
}

static void expect_places(const char *synthetic, const struct asked *asked, const char *expected) {
    struct weir__machine *machine = place_machine(synthetic);
    if (machine == NULL) return;
    expect_on(machine, asked, expected);
    weir__machine_destroy(machine);
}

#define EXPECT_AUTO(machine, threads, workers, expected, ...)                                      \
    expect_places(machine, &(struct asked){"auto", threads, workers, {__VA_ARGS__}}, expected)

static const char four_nodes[] = "pack:2 numa:2 core:4 pu:1";

/* ---- threads ---- */

/* A network plans its workspace before there are workers. */
static void test_a_network_expects_the_threads_that_workers_get(void) {
    static const char *const names[] = {"cpu", "cuda:0", "cuda:1"};
    for (int i = 0; i < 300 && !test_has_failed(); i++) {
        const char *devices[PLACE_WORKERS_MAX];
        struct asked asked = {"auto", 0, 1 + (uint32_t)test_random_below(6), {NULL}};
        uint32_t cores = 1 + (uint32_t)test_random_below(16);
        char machine[32], computing = PLACE_WORKERS_MAX;
        for (uint32_t w = 0; w < asked.workers; w++) {
            devices[w] = names[test_random_below(3)];
            asked.gpus[w] = strcmp(devices[w], "cpu") == 0 ? NULL : "";
            if (asked.gpus[w] == NULL) computing = (char)w;
        }
        if (computing == PLACE_WORKERS_MAX) continue;
        snprintf(machine, sizeof machine, "core:%u pu:1", cores);
        struct weir__machine *made = place_machine(machine);
        if (made == NULL) return;
        const struct weir__near *gpus[PLACE_WORKERS_MAX];
        for (uint32_t w = 0; w < asked.workers; w++) gpus[w] = near_of(made, w, asked.gpus[w]);
        struct weir__place_request request = {asked.bind, asked.workers, 0, gpus};
        CHECK_OK(weir__place_plan(made, &request, NULL, placements));
        struct weir_net_options options = WEIR_NET_OPTIONS_INIT;
        options.stages = asked.workers;
        options.pipe.devices = devices, options.pipe.device_count = asked.workers;
        EXPECT_EQ_UINT(weir__net_threads(&options, cores), placements[(int)computing].threads);
        weir__machine_destroy(made);
    }
}

/* ---- "auto" ---- */

static void test_gpus_alone_have_a_core_each_near_them(void) {
    EXPECT_AUTO(four_nodes, 0, 1, "11", "8-11");
    EXPECT_AUTO(four_nodes, 4, 2, "3|11", "0-3", "8-11");
    EXPECT_AUTO(four_nodes, 0, 4, "7|6|15|14", "4-7", "4-7", "12-15", "12-15");
    EXPECT_AUTO("pack:1 core:4 pu:2", 0, 2, "6|4", "0-7", "0-7");
    /* not one that somebody with less choice needs */
    EXPECT_AUTO(four_nodes, 0, 3, "6|7|15", "4-7", "7", "");
}

static void test_gpus_that_are_too_many_share_evenly(void) {
    EXPECT_AUTO(four_nodes, 0, 4, "3=|2=|3=|2=", "2-3", "2-3", "2-3", "2-3");
    EXPECT_AUTO(four_nodes, 0, 3, "5=|5=|15=", "5", "5", "");
    EXPECT_AUTO("core:2 pu:1", 0, 3, "1=|0=|1=", "", "", "");
    EXPECT_AUTO("core:2 pu:1", 1, 3, "0|1=|1=", NULL, "0-1", "0-1");
}

static void test_groups_stay_whole_beside_gpus(void) {
    /* as they would be alone; GPUs take what is left near them */
    EXPECT_AUTO(four_nodes, 3, 5, "0-2|4-6|8-10|12-14|11", NULL, NULL, NULL, NULL, "8-11");
    EXPECT_AUTO(four_nodes, 4, 2, "0-3|7", NULL, "4-7");
    EXPECT_AUTO(four_nodes, 4, 3, "7|0-3|6", "4-7", NULL, "4-7");
    /* groups make room where there is more of it elsewhere */
    EXPECT_AUTO(four_nodes, 4, 3, "8-11|3|12-15", NULL, "0-3", NULL);
    EXPECT_AUTO(four_nodes, 4, 4, "4-7|8-11|12-15|3", NULL, NULL, NULL, "0-3");
    /* also where GPUs then share */
    EXPECT_AUTO(four_nodes, 4, 5, "4-7|8-11|3=|3=|12-15", NULL, NULL, "3", "3", NULL);
}

static void test_gpus_never_cost_a_group_its_cores(void) {
    EXPECT_AUTO(four_nodes, 4, 5, "0-3=|4-7=|8-11=|12-15=|8-11=", NULL, NULL, NULL, NULL, "8-11");
    EXPECT_AUTO("core:2 pu:1", 1, 3, "0=|1=|0-1=", NULL, NULL, "0-1");
    EXPECT_AUTO("core:2 pu:1", 1, 3, "0=|1=|-=", NULL, NULL, "");
    EXPECT_AUTO("core:2 pu:1", 1, 4, "-=|-=|-=|1=", NULL, NULL, NULL, "1");
}

static void test_what_gpus_leave_is_divided(void) {
    EXPECT_AUTO(four_nodes, 0, 3, "0-6|8-14|15", NULL, NULL, "12-15");
    EXPECT_EQ_UINT(placements[0].threads, 7);
    EXPECT_AUTO("core:4 pu:1", 0, 2, "3|0-2", "0-3", NULL);
    EXPECT_AUTO("core:2 pu:1", 0, 2, "0|1", NULL, "0-1");
}

static void test_a_quota_that_is_too_small_is_shared(void) {
    struct weir__machine *machine = place_machine("core:8 pu:1");
    CHECK(machine != NULL);
    machine->usable_count = 4;
    expect_on(machine, &(struct asked){"auto", 2, 3, {NULL, NULL, "4-7"}}, "0-1|2-3|7=");
    expect_on(machine, &(struct asked){"auto", 2, 2, {NULL, "4-7"}}, "0-1|7");
    expect_on(machine, &(struct asked){"auto", 3, 3, {NULL, NULL, "4-7"}}, "-=|-=|4-7=");
    weir__machine_destroy(machine);
}

/* Each GPU sits near, nobody shares while all fit, and groups have the cores that they want. */
static void test_random_machines_seat_everybody_near(void) {
    for (int i = 0; i < 500; i++) {
        static const char *const nodes[] = {"0-3", "4-7", "8-11", "12-15", "0-7", "8-15", ""};
        struct asked asked = {.bind = "auto"};
        uint32_t computing = 0, load[4] = {0};
        asked.workers = 1 + (uint32_t)test_random_below(8);
        asked.threads = 1 + (uint32_t)test_random_below(4);
        for (uint32_t w = 0; w < asked.workers; w++) {
            asked.gpus[w] = test_random_below(2) ? NULL : nodes[test_random_below(4)];
            computing += asked.gpus[w] == NULL;
        }
        struct weir__machine *machine = place_machine(four_nodes);
        CHECK(machine != NULL);
        const struct weir__near *gpus[PLACE_WORKERS_MAX];
        for (uint32_t w = 0; w < asked.workers; w++) gpus[w] = near_of(machine, w, asked.gpus[w]);
        struct weir__place_request request = {"auto", asked.workers, asked.threads, gpus};
        CHECK_OK(weir__place_plan(machine, &request, NULL, placements));
        bool fits = computing * asked.threads <= 16;
        for (uint32_t w = 0; w < asked.workers; w++) {
            const struct weir__worker_place *p = &placements[w];
            uint32_t wanted = fits ? asked.threads : 0, outside = 0;
            if (gpus[w] == NULL) EXPECT_EQ_UINT(p->place.core_count, wanted);
            if (gpus[w] == NULL) continue;
            EXPECT(p->place.bound);
            for (uint32_t k = 0; k < p->place.core_count; k++)
                outside += p->core_ids[k] / 4 != gpus[w]->core_ids[0] / 4;
            EXPECT_EQ_UINT(outside, 0);
            EXPECT_EQ_INT(p->memory_node, p->place.numa_node);
            load[p->core_ids[0] / 4]++;
        }
        bool roomy = load[0] <= 4 && load[1] <= 4 && load[2] <= 4 && load[3] <= 4 &&
                     computing * asked.threads + asked.workers - computing <= 16;
        bool apart = true;
        for (uint32_t w = 0; w < asked.workers; w++) apart &= placements[w].exclusive;
        EXPECT(!roomy || apart);
        weir__machine_destroy(machine);
        CHECK_HELPERS();
    }
}

/* ---- lists, and memory ---- */

#define EXPECT_LIST(list, threads, workers, expected, ...)                                         \
    expect_places(four_nodes, &(struct asked){list, threads, workers, {__VA_ARGS__}}, expected)

static void test_a_list_gives_a_gpu_beside_others_one_core(void) {
    EXPECT_LIST("0-6", 0, 3, "0-2|3|4-6", NULL, "12-15", NULL);
    EXPECT_LIST("0-6", 2, 3, "0-1|2|3-4", NULL, "12-15", NULL);
    EXPECT_LIST("0-3,8-11", 0, 2, "0-3|8-11", "0-3", "8-11");
    EXPECT_LIST("none", 0, 2, "-=|-=", NULL, "8-11");
    struct weir__machine *machine = place_machine(four_nodes);
    CHECK(machine != NULL);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    faults.allocator = test_allocator();
    const struct weir__near *gpus[] = {near_of(machine, 0, "0-3"), NULL};
    struct weir__place_request request = {"0-2", 2, 3, gpus};
    EXPECT_STATUS(weir__place_plan(machine, &request, &faults, placements), WEIR_ERR_ARGUMENT);
    if (EXPECT(faults.kept == 1)) EXPECT_CONTAINS(faults.lines[0], "but 2 workers need 4");
    weir_faults_clean_up(&faults);
    weir__machine_destroy(machine);
}

static void test_memory_is_the_gpus_node_wherever_the_thread_is(void) {
    static const char *const binds[] = {"auto", "none", "0-1"};
    for (size_t i = 0; i < WEIR__COUNT_OF(binds); i++) {
        struct weir__machine *machine = place_machine("pack:2 numa:2(indexes=3,1,0,2) core:4 pu:1");
        CHECK(machine != NULL);
        struct weir__near near = *near_of(machine, 0, "8-11");
        near.numa_node = 0;
        const struct weir__near *gpus[] = {&near, NULL};
        struct weir__place_request request = {binds[i], 2, 1, gpus};
        EXPECT_STATUS(weir__place_plan(machine, &request, NULL, placements), WEIR_OK);
        EXPECT_EQ_INT(placements[0].memory_node, 0);
        EXPECT_EQ_INT(placements[1].memory_node, strcmp(binds[i], "none") == 0 ? -1 : 3);
        weir__machine_destroy(machine);
    }
}

/* ---- pipes ---- */

static struct engine_model model;
static struct engine_trial trial;

/* Two packages of two nodes of four cores each, as Linux tells of them. */
static void make_system(const char *root) {
    char output[256];
    int code = test_shell(
        output, sizeof output,
        "cd %s && mkdir -p sys/devices/system/cpu sys/devices/system/node && "
        "cd sys/devices/system && echo 0-15 >cpu/online && echo 0-3 >node/online && "
        "for i in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do d=cpu/cpu$i/topology && mkdir -p $d && "
        "echo $((i / 8)) >$d/physical_package_id && echo $((i %% 8)) >$d/core_id && "
        "printf '%%08x\\n' $((1 << i)) >$d/thread_siblings && "
        "printf '%%08x\\n' $((255 << i / 8 * 8)) >$d/core_siblings; done && "
        "for n in 0 1 2 3; do mkdir node/node$n && "
        "printf '%%08x\\n' $((15 << n * 4)) >node/node$n/cpumap; done",
        root);
    EXPECT_EQ_STR(output, "");
    EXPECT_EQ_INT(code, 0);
}

static void make_gpu(const char *root, const char *address, const char *node, const char *cores) {
    char output[256];
    int code = test_shell(output, sizeof output,
                          "d=%s/sys/bus/pci/devices/%s; mkdir -p $d && echo %s >$d/numa_node && "
                          "echo %s >$d/local_cpulist",
                          root, address, node, cores);
    EXPECT_EQ_STR(output, "");
    EXPECT_EQ_INT(code, 0);
}

static void expect_pipe(const char *bind, const char *const *devices, const char *expected) {
    struct weir_pipe_options options = engine_options(&model);
    options.devices = devices;
    options.device_count = 3;
    options.threads_per_worker = 2;
    options.bind = bind;
    if (!engine_trial_open(&trial, &model, &options, NULL)) return;
    char text[256] = "";
    for (uint32_t w = 0; w < 3; w++) {
        struct weir_place place;
        EXPECT_STATUS(weir_pipe_place(trial.pipe, w, &place), WEIR_OK);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s@%d", w > 0 ? "|" : "",
                 place.bound ? place.cores : "-", place.numa_node);
    }
    EXPECT_EQ_STR(text, expected);
    engine_trial_step(&trial);
    engine_trial_close(&trial);
}

static void test_a_pipe_finds_its_gpus_places(void) {
    static const char *const devices[] = {"cuda:1", "cpu", "cuda:0"};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    const char *root = test_temporary_directory();
    if (gpu == NULL) return;
    gpu->reset(1, 2, 0);
    gpu->set_pci(0, "0000:3B:00.0");
    gpu->set_pci(1, "0001:AF:00.0");
    make_system(root);
    make_gpu(root, "0000:3b:00.0", "1", "4-7");
    engine_model_init(&model, 3);
    model.gpu = gpu;
    CHECK(setenv("HWLOC_FSROOT", root, 1) == 0);
    expect_pipe("auto", devices, "15@3|0-1@0|7@1"); /* of one of them nothing is known */
    make_gpu(root, "0001:af:00.0", "2", "8-11");
    expect_pipe("auto", devices, "11@2|0-1@0|7@1");
    expect_pipe("12-15", devices, "12@3|13-14@3|15@3");
    unsetenv("HWLOC_FSROOT");
    engine_gpu_expect_clean(gpu);
}

static void test_every_failing_allocation_is_reported(void) {
    uint64_t k = 1;
    for (bool fired = true; fired; k++) {
        struct weir__machine *machine = place_machine(four_nodes);
        CHECK(machine != NULL);
        const struct weir__near *gpus[] = {near_of(machine, 0, "0-3"), NULL};
        struct weir__place_request request = {"auto", 2, 2, gpus};
        test_allocator_fail_at(k, false);
        int status = weir__place_plan(machine, &request, NULL, placements);
        fired = test_allocator_fired();
        test_allocator_fail_at(0, false);
        EXPECT_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
        weir__machine_destroy(machine);
    }
    CHECK_EQ_UINT(k, 4);
}

WEIR_TEST_SUITE(place_gpus, TEST(a_network_expects_the_threads_that_workers_get),
                TEST(gpus_alone_have_a_core_each_near_them),
                TEST(gpus_that_are_too_many_share_evenly), TEST(groups_stay_whole_beside_gpus),
                TEST(gpus_never_cost_a_group_its_cores), TEST(what_gpus_leave_is_divided),
                TEST(a_quota_that_is_too_small_is_shared),
                TEST(random_machines_seat_everybody_near),
                TEST(a_list_gives_a_gpu_beside_others_one_core),
                TEST(memory_is_the_gpus_node_wherever_the_thread_is),
                TEST(a_pipe_finds_its_gpus_places), TEST(every_failing_allocation_is_reported))
