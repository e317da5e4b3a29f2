/* SPDX-License-Identifier: MIT */
/*
 * Goal: whole nets read nothing that was not written, and nothing beside a value. Method: in the
 * programs of a net that is built each operand gets an allocation of its own, as large as the plan
 * has it, which nothing has filled: a value, a call's workspace, and what is kept for backward.
 * Nothing takes another's place, nor is computed in place. What comes of it is, bit for bit, what
 * comes of the planned arenas. On the fake driver memory that nobody has written is NaN, and so it
 * is here on a CPU; on real GPUs memcheck and initcheck see each value, and on CPUs ASan.
 *
 * A kept value has one place for all micro-batches, so there is one at a time.
 */
#include "device/device.h"
#include "engine/engine_gpu.h"
#include "cuda/fake_gpu.h"
#include "harness.h"
#include "net/net_pipes.h"
#include "net/run/net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASES_QUICK = 12, CASES_FULL = 40, GPUS = 2, PLACES_MAX = 8192 };

/* Where what stood at a location stands now; `base` NONE: nowhere any more. */
struct moved {
    struct weir__location from;
    uintptr_t to;
};

struct apart {
    struct weir__device *device; /* of the present stage */
    struct {
        struct weir__device *device; /* NULL: the host's */
        void *memory;
        size_t bytes;
    } places[PLACES_MAX];
    uint32_t place_count;
    struct moved kept[PLACES_MAX], working[PLACES_MAX];
    uint32_t kept_count, working_count;
    uint32_t reads; /* of what was moved */
};

static uintptr_t take(struct apart *apart, size_t bytes) {
    void *memory = NULL;
    bytes = (bytes + WEIR__CACHE_LINE - 1) / WEIR__CACHE_LINE * WEIR__CACHE_LINE;
    if (bytes == 0) bytes = WEIR__CACHE_LINE;
    if (!EXPECT(apart->place_count < PLACES_MAX)) return 0;
    struct weir__device *device = apart->device->memory != 0 ? apart->device : NULL;
    if (device != NULL) {
        EXPECT_STATUS(device->calls->memory_acquire(device, bytes, &memory), WEIR_OK);
    } else {
        memory = aligned_alloc(WEIR__CACHE_LINE, bytes);
        if (EXPECT(memory != NULL)) memset(memory, 0xff, bytes);
    }
    apart->places[apart->place_count].device = device;
    apart->places[apart->place_count].memory = memory;
    apart->places[apart->place_count++].bytes = bytes;
    return (uintptr_t)memory;
}

static void clean_up(struct apart *apart) {
    for (uint32_t i = 0; i < apart->place_count; i++) {
        struct weir__device *device = apart->places[i].device;
        void *memory = apart->places[i].memory;
        if (device != NULL)
            device->calls->memory_release(device, memory, apart->places[i].bytes);
        else
            free(memory);
    }
    apart->place_count = 0;
}

static bool is_working(const struct weir__location *at) {
    return at->base == WEIR__BASE_WORKSPACE;
}

static bool is_kept(const struct weir__location *at) {
    return at->base == WEIR__BASE_SAVED || at->base == WEIR__BASE_SAVED_FOR_INPUT ||
           at->base == WEIR__BASE_LEFT_FOR_WEIGHT ||
           (at->base >= WEIR__BASE_AREAS && at->base < WEIR__BASE_INPUT);
}

/* The last that was noted of the location; 0: none. */
static uintptr_t find(const struct moved *list, uint32_t count, const struct weir__location *at) {
    while (count-- > 0)
        if (list[count].from.base == at->base && list[count].from.offset == at->offset)
            return list[count].to;
    return 0;
}

static void note(struct moved *list, uint32_t *count, const struct weir__location *at,
                 uintptr_t to) {
    if (EXPECT(*count < PLACES_MAX)) list[(*count)++] = (struct moved){*at, to};
}

/* An address, whatever the bases are. */
static void point(struct weir__location *at, uintptr_t address) {
    *at = (struct weir__location){WEIR__BASE_NONE, address};
}

static void move_in(struct apart *apart, struct weir__location *at) {
    uintptr_t to = 0;
    if (is_working(at))
        to = find(apart->working, apart->working_count, at);
    else if (is_kept(at))
        to = find(apart->kept, apart->kept_count, at);
    else
        return;
    if (!EXPECT(to != 0)) return; /* a call reads what none before it wrote */
    point(at, to);
    apart->reads++;
}

static void move_out(struct apart *apart, struct weir__location *at, const struct weir_value *value,
                     int64_t rows) {
    size_t bytes = 0;
    if (!is_working(at) && !is_kept(at)) return;
    EXPECT_STATUS(weir__value_bytes(value, rows, &bytes), WEIR_OK);
    uintptr_t to = is_kept(at) ? find(apart->kept, apart->kept_count, at) : 0;
    if (to == 0) {
        to = take(apart, bytes);
        if (is_kept(at))
            note(apart->kept, &apart->kept_count, at, to);
        else
            note(apart->working, &apart->working_count, at, to);
    }
    point(at, to);
}

/* Behind the nodes' calls stand those that deliver: they read, and write over the border. */
static void move_program(struct apart *apart, const struct weir__slices *slices,
                         enum weir__program_kind kind, struct weir__program *program,
                         int64_t rows) {
    apart->working_count = 0;
    for (uint32_t i = 0; i < program->call_count && !test_has_failed(); i++) {
        struct weir__planned_call *call = &program->calls[i];
        bool delivers = i >= slices->node_counts[kind];
        const struct weir__node *node =
            delivers ? NULL : slices->graph->nodes[slices->nodes[kind][i]];
        for (uint32_t k = 0; k < call->in_count; k++) move_in(apart, &call->in[k]);
        for (uint32_t k = 0; k < call->out_count && !delivers; k++)
            move_out(apart, &call->out[k], node->out[k], rows);
        if (is_working(&call->workspace))
            point(&call->workspace, take(apart, call->node->workspace));
    }
}

/* All programs that the net has, the writers of what is kept before its readers. */
static void move_net(struct apart *apart, struct weir_net *net) {
    for (uint32_t s = 0; s < net->network.stage_count; s++) {
        struct weir__net_stage *stage = &net->stages[s];
        apart->device = stage->at.stream->device;
        for (uint32_t i = 0; i < stage->instance_count; i++) {
            struct weir__instance *instance = stage->instances[i];
            apart->kept_count = 0;
            for (uint32_t kind = 0; kind < WEIR__PROGRAM_COUNT; kind++)
                if (instance->planned >> kind & 1)
                    move_program(apart, &stage->slices, (enum weir__program_kind)kind,
                                 &instance->programs[kind], instance->rows);
        }
    }
}

/* ---- random nets ---- */

static void train(const struct net_problem *problem, const struct weir_net_options *options,
                  const struct trial_data *data, struct apart *apart,
                  struct trial_result results[2]) {
    struct weir_net *net = trial_net(problem->model, options);
    if (net == NULL) return;
    if (apart != NULL) move_net(apart, net);
    if (!test_has_failed()) net_pipe_train_net(problem, net, data, results);
    if (apart != NULL) EXPECT(apart->reads > 0);
    if (apart != NULL) clean_up(apart); /* nothing is under way, and the device is still open */
    weir_net_destroy(net);
}

static void compare(const struct net_problem *problem, const struct weir_net_options *options) {
    static struct apart apart;
    struct trial_data data;
    struct trial_result together[2] = {{0}}, moved[2] = {{0}};
    memset(&apart, 0, sizeof apart);
    net_pipe_data(problem, options, &data);
    train(problem, options, &data, NULL, together);
    if (!test_has_failed()) train(problem, options, &data, &apart, moved);
    for (int i = 0; i < 2 && !test_has_failed(); i++) trial_result_compare(&together[i], &moved[i]);
    for (int i = 0; i < 2; i++) {
        trial_result_clean_up(&together[i]);
        trial_result_clean_up(&moved[i]);
    }
    trial_data_clean_up(&data);
}

static bool coin(void) {
    return test_random_below(2) == 1;
}

static void random_net(const char *const *devices, enum weir_dtype dtype) {
    struct net_problem problem = {0};
    static char table[TRIAL_TABLE_BYTES];
    uint32_t balance[4];
    if (devices != NULL)
        net_problem_init_for_gpus(&problem);
    else
        net_problem_init(&problem);
    if (problem.model == NULL || test_has_failed()) return;
    uint32_t layers = weir_model_layer_count(problem.model);
    uint32_t stages = 1 + (uint32_t)test_random_below(layers < 3 ? layers : 3);
    struct weir_net_options options = trial_options(stages, 1 + (int64_t)test_random_below(6), 1);
    options.dtype = dtype;
    options.input_grads = coin();
    options.pipe.checkpoint = coin() ? WEIR_CHECKPOINT_ALWAYS : WEIR_CHECKPOINT_NEVER;
    options.pipe.clip_norm = coin() ? 0.5 : 0;
    net_pipe_balance(layers, stages, balance);
    options.balance = balance;
    if (coin()) trial_split(&options, 100, table);
    options.pipe.devices = devices;
    options.pipe.device_count = devices != NULL ? stages : 0;
    compare(&problem, &options);
    if (test_has_failed()) net_pipe_print(&problem, &options);
    weir_model_destroy(problem.model);
}

static void random_nets(const char *const *devices, enum weir_dtype dtype) {
    size_t cases = test_count(CASES_QUICK, CASES_FULL);
    for (size_t i = 0; i < cases && !test_has_failed(); i++) random_net(devices, dtype);
}

static void gpu_nets(enum weir_dtype dtype) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open_any();
    if (gpu == NULL) return;
    if (!net_pipe_has_libraries()) return;
    const char *const devices[] = {engine_gpu_name("cuda:0"), engine_gpu_name("cuda:1"),
                                   engine_gpu_name("cuda:0")};
    gpu->reset(test_random_u64(), GPUS, 0);
    CHECK(setenv("WEIR_RAW_MEMORY", "1", 1) == 0);
    random_nets(devices, dtype);
    unsetenv("WEIR_RAW_MEMORY");
    fake_gpus_clean(gpu);
}

static void test_gpus_have_every_value_apart(void) {
    gpu_nets(WEIR_F32);
}

static void test_so_have_gpus_in_bf16(void) {
    gpu_nets(WEIR_BF16);
}

static void test_cpus_have_every_value_apart(void) {
    random_nets(NULL, WEIR_F32);
    random_nets(NULL, WEIR_BF16);
}

WEIR_TEST_SUITE(net_apart, TEST(gpus_have_every_value_apart), TEST(so_have_gpus_in_bf16),
                TEST(cpus_have_every_value_apart))
