/* SPDX-License-Identifier: MIT */
/*
 * Goal: the real cuDNN takes every graph that is made for it, has an engine that may be used, and
 * loads its plans from disk again. Method: since 9.11 it makes plans for a GPU that is only
 * described, so that none is needed; the GPUs here are those of the table below. Plans that are
 * compiled also need NVRTC and the driver's library, to load into: without them such tests are
 * skipped, and all of them without cuDNN (WEIR_CUDNN names its file). Nothing is run: numbers are
 * test_kernels_net.c's on a GPU.
 */
#include "device/gpus.h"
#include "harness.h"
#include "net/cuda/cudnn_attention.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* ---- GPUs that are not here ---- */

struct gpu {
    const char *name;
    int version, processors, shared, clock, memory_clock, cache;
    int64_t memory;
};

static const struct gpu gpus[] = {
    {"A100", 800, 108, 166912, 1410000, 1593000, 41943040, INT64_C(85094367232)},
    {"RTX 3090", 860, 82, 101376, 1695000, 9751000, 6291456, INT64_C(25438126080)},
    {"RTX 4090", 890, 128, 101376, 2520000, 10501000, 75497472, INT64_C(25393692672)},
    {"H100", 900, 132, 232448, 1980000, 2619000, 52428800, INT64_C(85028896768)},
    {"B200", 1000, 148, 232448, 1965000, 3996000, 132644864, INT64_C(191414534144)},
};

/* What all of them have. */
static const char common[] =
    "\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"reservedSharedMemoryPerBlock\":1024,"
    "\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,"
    "\"maxThreadsPerSM\":2048,\"regsPerBlock\":65536,\"maxBlockSize\":[1024,1024,64],"
    "\"maxGridSize\":[2147483647,65535,65535],\"supportCoopLaunch\":1,\"pciDeviceId\":0,"
    "\"isTccDriver\":0,\"cudaDeviceId\":0,\"driverVer\":13000";

static int describe(const struct weir__cudnn *cudnn, const struct gpu *gpu, void **to) {
    char json[1024];
    int length = snprintf(json, sizeof json,
                          "{%s,\"deviceName\":\"%s\",\"deviceVer\":%d,\"multiProcessorCount\":%d,"
                          "\"maxSharedMemoryPerBlockOptin\":%d,\"smClockRateKHz\":%d,"
                          "\"memClockRateKHz\":%d,\"l2CacheSize\":%d,\"totalGlobalMem\":%lld}",
                          common, gpu->name, gpu->version, gpu->processors, gpu->shared, gpu->clock,
                          gpu->memory_clock, gpu->cache, (long long)gpu->memory);
    int result = cudnn->descriptor_create(WEIR__CUDNN_DEVICE, to);
    if (result == 0)
        result = cudnn->set(*to, WEIR__CUDNN_DEVICE_JSON_REPRESENTATION, WEIR__CUDNN_TYPE_CHAR,
                            length, json);
    return result == 0 ? cudnn->finalize(*to) : result;
}

enum { LEAST = 91100 };

/* The library, for a GPU; whether it is there. It stays in the process. */
static bool open_for(const struct gpu *gpu, struct weir__cudnn *cudnn) {
    struct weir_error error = {0};
    *cudnn = (struct weir__cudnn){0};
    if (weir__gpu_library_open(weir__gpu_library_named("cuDNN"), NULL, &cudnn->library, &error) !=
        WEIR_OK)
        return false;
    EXPECT_STATUS(weir__cudnn_find_functions(cudnn, &error), WEIR_OK);
    void *symbol = dlsym(cudnn->library, "cudnnGetVersion");
    bool can = cudnn->get_version() >= LEAST &&
               weir__cudnn_need_products(cudnn->get_cuda_version() / 1000, symbol, NULL) == WEIR_OK;
    if (can) EXPECT_EQ_INT(describe(cudnn, gpu, &cudnn->described), 0);
    cudnn->capability = gpu->version / 10;
    snprintf(cudnn->gpu, sizeof cudnn->gpu, "%s, cuDNN %zu", gpu->name, cudnn->get_version());
    if (!can) (void)dlclose(cudnn->library);
    return can;
}

static void close_for(struct weir__cudnn *cudnn) {
    weir__cudnn_forget(cudnn, cudnn->described);
    (void)dlclose(cudnn->library);
}

static bool opens(const char *file) {
    void *library = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
    if (library != NULL) (void)dlclose(library);
    return library != NULL;
}

#define LIBRARY_OR_SKIP()                                                                          \
    do {                                                                                           \
        struct weir__cudnn found;                                                                  \
        if (!open_for(&gpus[0], &found))                                                           \
            SKIP("no cuDNN of 9.11 or later is found (WEIR_CUDNN), or not its cuBLASLt");          \
        close_for(&found);                                                                         \
    } while (0)

#define COMPILER_OR_SKIP()                                                                         \
    if (!opens("libcuda.so.1") || !(opens("libnvrtc.so.13") || opens("libnvrtc.so.12")))           \
    SKIP("plans cannot be compiled here: no libnvrtc.so or no libcuda.so.1 is found")

/* ---- convolutions ---- */

struct form {
    int64_t rows, in, out, side, kernel, stride, padding, groups, gap;
};

static const struct form forms[] = {
    {4, 64, 64, 32, 3, 1, 1, 1},    {4, 3, 32, 32, 3, 1, 1, 1},   {4, 64, 1, 32, 1, 1, 0, 1},
    {3, 5, 7, 9, 3, 2, 1, 1},       {2, 64, 128, 16, 1, 2, 0, 1}, {2, 64, 64, 16, 3, 1, 1, 4},
    {2, 32, 32, 16, 3, 1, 1, 32},   {1, 16, 24, 12, 5, 1, 2, 1},  {2, 1, 1, 7, 7, 1, 3, 1},
    {4, 64, 64, 32, 3, 1, 2, 1, 1}, {3, 5, 7, 13, 3, 2, 3, 1, 2}, {2, 32, 32, 16, 3, 1, 4, 32, 3},
    {2, 64, 64, 17, 3, 2, 2, 4, 1},
};

static struct weir__cuda_convolution convolution_of(const struct form *form,
                                                    enum weir__cuda_convolution_kind kind,
                                                    enum weir_dtype dtype) {
    int64_t reach = form->kernel + (form->kernel - 1) * form->gap;
    int64_t out = (form->side + 2 * form->padding - reach) / form->stride + 1;
    return (struct weir__cuda_convolution){.kind = kind,
                                           .rows = form->rows,
                                           .rows_max = form->rows,
                                           .in = form->in,
                                           .out = form->out,
                                           .window = {.in = {form->side, form->side},
                                                      .out = {out, out},
                                                      .kernel = {form->kernel, form->kernel},
                                                      .stride = {form->stride, form->stride},
                                                      .padding = {form->padding, form->padding},
                                                      .gap = {form->gap, form->gap},
                                                      .groups = form->groups},
                                           .image = dtype,
                                           .weight = dtype};
}

/* The result of making the plan; it is kept and found again, if it can be made. */
static int plan(struct weir__cudnn *cudnn, const struct weir__cuda_convolution *convolution) {
    struct weir__cudnn_plan made, loaded;
    size_t workspace;
    EXPECT_STATUS(weir__cuda_convolution_workspace(convolution, &workspace), WEIR_OK);
    struct weir__cudnn_keys keys;
    weir__cudnn_convolution_keys(cudnn, convolution, &keys);
    int result = weir__cudnn_convolution_plan(cudnn, NULL, convolution, workspace, &made);
    if (result != 0) return result;
    EXPECT(made.workspace <= workspace);
    weir__cudnn_cache_save(cudnn, &keys.own, &made);
    if (EXPECT(weir__cudnn_cache_load(cudnn, NULL, &keys, workspace, &loaded))) {
        EXPECT_EQ_UINT(loaded.workspace, made.workspace);
        EXPECT_EQ_INT(loaded.engine, made.engine);
        weir__cudnn_forget(cudnn, loaded.plan);
    }
    weir__cudnn_forget(cudnn, made.plan);
    return 0;
}

static void expect_plan(struct weir__cudnn *cudnn,
                        const struct weir__cuda_convolution *convolution) {
    int result = plan(cudnn, convolution);
    if (result != 0)
        TEST_FAIL("%s, kind %d, %s -> %s, %lld rows, %lld -> %lld channels, groups %lld: %s",
                  cudnn->gpu, (int)convolution->kind, weir_dtype_name(convolution->image),
                  weir_dtype_name(convolution->weight), (long long)convolution->rows,
                  (long long)convolution->in, (long long)convolution->out,
                  (long long)convolution->window.groups, cudnn->get_error_string(result));
}

static void every_convolution(const struct gpu *gpu) {
    struct weir__cudnn cudnn;
    if (!EXPECT(open_for(gpu, &cudnn))) return;
    snprintf(cudnn.folder, sizeof cudnn.folder, "%s", test_temporary_directory());
    for (size_t f = 0; f < WEIR__COUNT_OF(forms); f++)
        for (int kind = WEIR__CUDA_CONVOLVE; kind <= WEIR__CUDA_CONVOLVE_GRAD_WEIGHT; kind++)
            for (int dtype = 0; dtype < 2; dtype++) {
                struct weir__cuda_convolution convolution =
                    convolution_of(&forms[f], (enum weir__cuda_convolution_kind)kind,
                                   dtype == 0 ? WEIR_F32 : WEIR_BF16);
                expect_plan(&cudnn, &convolution);
                if (f % 3 != 0) continue;
                convolution.rows--; /* the engine of the largest count */
                expect_plan(&cudnn, &convolution);
            }
    close_for(&cudnn);
}

static void test_every_convolution_has_a_plan(void) {
    LIBRARY_OR_SKIP();
    for (size_t g = 0; g < WEIR__COUNT_OF(gpus); g++) every_convolution(&gpus[g]);
}

/* A bias in BF16 has an engine for all of them, a gradient of weights in F32 for the most common.
 */
static void test_what_rounds_once_has_a_plan(void) {
    LIBRARY_OR_SKIP();
    COMPILER_OR_SKIP();
    for (size_t g = 0; g < WEIR__COUNT_OF(gpus); g++) {
        struct weir__cudnn cudnn;
        if (!EXPECT(open_for(&gpus[g], &cudnn))) return;
        snprintf(cudnn.folder, sizeof cudnn.folder, "%s", test_temporary_directory());
        for (size_t f = 0; f < 4; f++) {
            struct weir__cuda_convolution convolution =
                convolution_of(&forms[f], WEIR__CUDA_CONVOLVE, WEIR_BF16);
            convolution.has_bias = true;
            expect_plan(&cudnn, &convolution);
        }
        struct weir__cuda_convolution convolution =
            convolution_of(&forms[0], WEIR__CUDA_CONVOLVE_GRAD_WEIGHT, WEIR_BF16);
        convolution.weight = WEIR_F32;
        expect_plan(&cudnn, &convolution);
        close_for(&cudnn);
    }
}

/* ---- attention ---- */

static int (*create)(int kind, void **descriptor);
static int searches; /* for engines */

static int count_searches(int kind, void **descriptor) {
    searches += kind == WEIR__CUDNN_ENGINEHEUR;
    return create(kind, descriptor);
}

/* It has plans, which are kept: the second time no engine is looked for. */
static void expect_attention(struct weir__cudnn *cudnn, const struct weir__cuda_attend *attend) {
    for (int time = 0; time < 2; time++) {
        struct weir__cudnn_attention made;
        searches = 0;
        int result = weir__cudnn_attention_init(cudnn, NULL, attend, &made);
        if (result != 0) {
            TEST_FAIL("%s, %s, %lld of %lld rows, %lld tokens, %lld heads of %lld: %s", cudnn->gpu,
                      attend->backward ? "backward" : "forward", (long long)attend->rows,
                      (long long)attend->rows_max, (long long)attend->tokens,
                      (long long)attend->heads, (long long)attend->size,
                      cudnn->get_error_string(result));
            return;
        }
        EXPECT(made.whole.workspace <= made.room.plan);
        EXPECT_EQ_INT(made.rest.plan != NULL, attend->rows % made.at_once != 0);
        if (time == 1) EXPECT_EQ_INT(searches, 0);
        weir__cudnn_attention_clean_up(cudnn, &made);
    }
}

static const struct weir__cuda_attend attentions[] = {
    {false, 4, 4, 1024, 12, 64}, {true, 7, 7, 1024, 12, 64}, {true, 1, 1, 8192, 16, 128},
    {false, 2, 2, 257, 2, 72},   {true, 4, 4, 1023, 25, 64}, {true, 13, 13, 1023, 5, 64},
    {true, 2, 2, 7, 1, 8}};

static void test_attention_has_plans(void) {
    LIBRARY_OR_SKIP();
    COMPILER_OR_SKIP();
    for (size_t g = 0; g < WEIR__COUNT_OF(gpus); g++) {
        struct weir__cudnn cudnn;
        if (!EXPECT(open_for(&gpus[g], &cudnn))) return;
        bool is_old = cudnn.get_version() < WEIR__CUDNN_ATTENTION_LEAST;
        create = cudnn.descriptor_create;
        cudnn.descriptor_create = count_searches;
        snprintf(cudnn.folder, sizeof cudnn.folder, "%s", test_temporary_directory());
        for (size_t i = 0; i < WEIR__COUNT_OF(attentions) && !is_old; i++) {
            struct weir__cuda_attend_room room;
            EXPECT_STATUS(weir__cuda_attend_room(&attentions[i], &room), WEIR_OK);
            bool orders = !attentions[i].backward || cudnn.capability >= 100;
            if (orders || room.keeps_scores) expect_attention(&cudnn, &attentions[i]);
        }
        close_for(&cudnn);
        if (is_old) SKIP("attention is only asked of cuDNN 9.18.1 or later");
    }
}

WEIR_TEST_SUITE(cudnn_real, TEST(every_convolution_has_a_plan), TEST(what_rounds_once_has_a_plan),
                TEST(attention_has_plans))
