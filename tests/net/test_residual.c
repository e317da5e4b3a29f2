/* SPDX-License-Identifier: MIT */
/*
 * Goal: a finished block's sum crosses to each worker that reads it once, per micro-batch, however
 * many stages of it do; and whatever the schedule, checkpoint mode and number of stages, the bits
 * are one. Method: the trace of a step on GPUs (the fake driver's) holds every copy and its bytes:
 * what the borders and the embedding cross is known, the rest is blocks, and must be as counted in
 * advance for loop placement. For the bits, one step of every schedule against one stage's.
 */
#include "cuda/fake_gpu.h"
#include "harness.h"
#include "net/net_trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 3, WIDTH = 8, ROWS = 4, CHUNKS = 2, BLOCKS = 8, LAYERS_MAX = 32 };

static struct weir_model *new_model(uint32_t layers, uint32_t residual_block) {
    struct weir_gpt_options options = {layers, WIDTH, 2, CONTEXT, 5, false, 0.1, residual_block};
    struct weir_model *model = NULL;
    EXPECT_STATUS(weir_model_gpt(test_allocator(), &options, NULL, &model), WEIR_OK);
    return model;
}

static const struct weir_tensor tokens = {.dtype = WEIR_I64, .rank = 1, .shape = {CONTEXT}};

/* ---- what crosses ---- */

struct text {
    char *bytes;
    size_t count, capacity;
};

static int append(void *context, const char *bytes, size_t count) {
    struct text *text = context;
    if (text->count + count + 1 > text->capacity) {
        text->capacity = 2 * (text->count + count + 1);
        text->bytes = realloc(text->bytes, text->capacity);
        if (!EXPECT(text->bytes != NULL)) return WEIR_ERR_OUT_OF_MEMORY;
    }
    memcpy(text->bytes + text->count, bytes, count);
    text->count += count;
    text->bytes[text->count] = '\0';
    return WEIR_OK;
}

/** Bytes of all copies between workers for forward actions. */
static uint64_t forward_bytes(const struct weir_pipe *pipe) {
    struct text text = {NULL, 0, 0};
    uint64_t sum = 0;
    EXPECT_STATUS(weir_pipe_trace_chrome(pipe, append, &text), WEIR_OK);
    for (const char *at = text.bytes; at != NULL; at++) {
        if ((at = strstr(at, "\"name\":\"copy for F ")) == NULL) break;
        const char *bytes = strstr(at, "\"bytes\":"), *from = strstr(at, "\"from\":");
        if (!EXPECT(bytes != NULL && from != NULL)) break;
        if (atoi(from + 7) >= 0) sum += strtoull(bytes + 8, NULL, 10);
    }
    free(text.bytes);
    return sum;
}

/** Block transfers per micro-batch of 8 blocks over `workers` x `rounds` stages, of which the first
 * has the embedding too, and the last the head. */
static uint64_t count_transfers(uint32_t workers, uint32_t rounds) {
    static const char *const names[] = {"cuda:0", "cuda:1", "cuda:2", "cuda:3",
                                        "cuda:4", "cuda:5", "cuda:6", "cuda:7"};
    uint32_t stages = workers * rounds, layers = stages < BLOCKS ? BLOCKS : stages;
    uint32_t balance[LAYERS_MAX];
    uint64_t tensor = (uint64_t)ROWS / CHUNKS * CONTEXT * WIDTH * sizeof(float), bytes = 0;
    struct weir_model *model = new_model(layers, layers / BLOCKS);
    struct weir_net_options options = trial_options(stages, ROWS, CHUNKS);
    struct trial_data data;
    struct trial_result result;
    for (uint32_t s = 0; s < stages; s++)
        balance[s] = layers / stages + (s == 0) + (s == stages - 1);
    options.balance = balance;
    options.dtype = WEIR_F32;
    options.pipe.workers = options.pipe.device_count = workers;
    options.pipe.devices = names;
    options.pipe.schedule = "looped-bfs";
    trial_data_init(&data, &tokens, &tokens, WEIR_F32, ROWS, 5, 5);
    struct weir_net *net = trial_net(model, &options);
    if (net != NULL) {
        trial_step(net, model, &data, &result);
        bytes = forward_bytes(weir_net_pipe(net));
        trial_result_clean_up(&result);
    }
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
    EXPECT_EQ_UINT(bytes % (tensor * CHUNKS), 0);
    uint64_t borders = stages - 1, embedding = workers - 1;
    uint64_t crossed = bytes / tensor / CHUNKS;
    EXPECT(crossed >= borders + embedding);
    return crossed - borders - embedding;
}

static void test_a_block_crosses_to_each_reading_worker_once(void) {
    if (fake_gpus(test_random_u64(), 8, 0) == NULL) return;
    EXPECT_EQ_UINT(count_transfers(4, 2), 18); /* passed from stage to stage: 28 */
    EXPECT_EQ_UINT(count_transfers(4, 4), 20); /* 56 */
    EXPECT_EQ_UINT(count_transfers(8, 4), 46); /* 112 */
}

/* ---- the same bits ---- */

struct way {
    const char *schedule;
    uint32_t rounds; /* stages of a worker */
};

static void run_way(const struct weir_model *model, const struct trial_data *data,
                    const struct way *way, uint32_t stages, enum weir_checkpoint checkpoint,
                    struct trial_result *result) {
    struct weir_net_options options = trial_options(stages, ROWS, ROWS);
    options.dtype = WEIR_F32;
    options.pipe.schedule = way->schedule;
    options.pipe.workers = stages / way->rounds;
    options.pipe.checkpoint = checkpoint;
    trial_run(model, &options, data, result);
}

/** Micro-batches are added up in the order of the schedule, which one stage of it has too. */
static void compare_way(const struct weir_model *model, const struct trial_data *data,
                        const struct way *way) {
    struct trial_result one, several;
    run_way(model, data, way, way->rounds, WEIR_CHECKPOINT_NEVER, &one);
    for (uint32_t stages = way->rounds; stages <= 4; stages += way->rounds)
        for (uint32_t mode = WEIR_CHECKPOINT_ALWAYS; mode <= WEIR_CHECKPOINT_NEVER; mode++) {
            if (test_has_failed()) break;
            run_way(model, data, way, stages, (enum weir_checkpoint)mode, &several);
            trial_result_compare(&several, &one);
            if (test_has_failed())
                TEST_FAIL("%s, %u stages, %s", way->schedule, stages,
                          weir_checkpoint_name((enum weir_checkpoint)mode));
            trial_result_clean_up(&several);
        }
    trial_result_clean_up(&one);
}

static void test_every_pipeline_gives_the_same_bits(void) {
    static const struct way ways[] = {
        {"gpipe", 1}, {"1f1b", 1},   {"zb-h1", 1}, {"zb-h2", 1},      {"interleaved", 2},
        {"zb-v", 2},  {"v-half", 2}, {"v-min", 2}, {"dualpipe-v", 2}, {"looped-bfs", 2}};
    struct weir_model *model = new_model(3, 2);
    struct trial_data data;
    trial_data_init(&data, &tokens, &tokens, WEIR_F32, ROWS, 5, 5);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) compare_way(model, &data, &ways[i]);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

WEIR_TEST_SUITE(residual, TEST(a_block_crosses_to_each_reading_worker_once),
                TEST(every_pipeline_gives_the_same_bits))
