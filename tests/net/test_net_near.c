/* SPDX-License-Identifier: MIT */
/*
 * Goal: the built-in models, as they are initialised, get gradients on GPUs, and in bf16 on CPUs,
 * that are as near to the true ones as their dtype allows, whatever the pipeline. Method: two GPTs,
 * a U-Net, a GPT whose embedding and blocks have many readers, two decoders whose heads share keys,
 * and four files of other layers, on
 * the fake driver, on one to three stages over GPUs, and over GPUs and CPUs, and at each level of a
 * CPU that runs here, with data that are always the same; against the f64 reference of the same f32
 * parameters (net_exact.h), which test_golden_nets.c and test_golden_unet.c hold to PyTorch.
 *
 * Distances are norms of differences by the norm of the f64 reference, in the 2-norm of each
 * parameter's gradient; and of the loss. F32 is within 1e-5. BF16 is within 2e-2, unless what is
 * stored as BF16 allows no such thing: f64 arithmetic that rounds where BF16 is stored, and nowhere
 * else, has a distance D of its own, and 9/8 D is the bound where that is more. It is in the U-Net,
 * whose leaky ReLUs change their slope where rounding takes a number past 0: that happens to about
 * one in 2^9 of them, and the gradient moves by the root of that, in each of many units. (PyTorch
 * with activations of BF16 on a CPU is 0.16 to 0.22 from f64 there, in all units but the last two.)
 *
 * BF16's second bound is on the distance from that rounded reference: D / 64. Both round the same
 * numbers, but for the few that F32's sums take to the other side of a middle. It is D / 8 for the
 * U-Net and AmoebaNet's cells, where one such number may change a slope, and 2^-8 on top, because
 * the library may round a weight's gradient (product.c). It is 3/4 D for the GPT of 3 heads, which
 * has more numbers for that to happen to, early ones too; and 2 D for attention on tensor cores,
 * which rounds probabilities too: our kernels' (the GPT of 4 heads, decoders) and a real GPU's
 * library (that of 3, which is the fake driver's library elsewhere). CPUs round none: there
 * it is 5/4 D for the decoder that sees all, and 3/4 D for the other one and both GPTs. A kernel
 * that rounds otherwise, or twice, does not pass.
 */
#include "engine/engine_gpu.h"
#include "cuda/fake_gpu.h"
#include "harness.h"
#include "net/cpu/level.h"
#include "net/net_exact.h"
#include "weir_models.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GPUS = 2, ROWS = 4, CHUNKS = 2 };

/* ---- models ---- */

typedef void init_fn(struct net_problem *problem);

static void init_gpt_of(struct net_problem *problem, uint32_t heads) {
    struct weir_gpt_options options = WEIR_GPT_OPTIONS_INIT;
    options.layers = 3;
    options.heads = heads;
    options.width = heads * 16;
    options.context = 16;
    options.vocab = 61;
    options.tied = true;
    EXPECT_STATUS(weir_model_gpt(test_allocator(), &options, NULL, &problem->model), WEIR_OK);
    problem->input = problem->target =
        (struct weir_tensor){.dtype = WEIR_I64, .rank = 1, .shape = {options.context}};
    problem->classes = problem->labels = options.vocab;
}

/* The fake driver's library has attention for threes of heads only. */
static void init_gpt(struct net_problem *problem) {
    init_gpt_of(problem, 3);
}

static void init_gpt_ours(struct net_problem *problem) {
    init_gpt_of(problem, 4);
}

static void init_unet(struct net_problem *problem) {
    struct weir_unet_options options = WEIR_UNET_OPTIONS_INIT;
    options.depth = 3;
    options.num_convs = 1;
    options.base_channels = 8;
    options.height = options.width = 24;
    EXPECT_STATUS(weir_model_unet(test_allocator(), &options, NULL, &problem->model), WEIR_OK);
    const char *loss;
    weir_model_border(problem->model, &problem->input, &problem->target, &loss);
    problem->classes = problem->labels = 1;
}

/* Every block's output, and the embedding, is read by all that come later. */
static void init_readers(struct net_problem *problem) {
    enum { BLOCKS = 3, WIDTH = 48, CONTEXT = 12, VOCAB = 61 };
    static const char *const names[] = {"embedding", "first", "second"};
    struct weir_attr width = WEIR_ATTR_INT("width", WIDTH), vocab = WEIR_ATTR_INT("vocab", VOCAB);
    problem->input = problem->target =
        (struct weir_tensor){.dtype = WEIR_I64, .rank = 1, .shape = {CONTEXT}};
    problem->classes = problem->labels = VOCAB;
    problem->model = trial_model(problem->input, problem->target, "cross_entropy");
    trial_add(problem->model, "gpt_embedding",
              WEIR_ATTRS(vocab, WEIR_ATTR_INT("context", CONTEXT), width));
    for (int block = 0; block < BLOCKS; block++) {
        trial_add_skip(problem->model, "stash", names[block], "");
        trial_add(problem->model, "gpt_block",
                  WEIR_ATTRS(width, WEIR_ATTR_INT("heads", 4), WEIR_ATTR_INT("layers", BLOCKS)));
        for (int from = 0; from <= block; from++)
            trial_add_skip(problem->model, block + 1 == BLOCKS ? "pop_add" : "read_add",
                           names[from], "");
    }
    trial_add(problem->model, "gpt_head", WEIR_ATTRS(width, vocab));
}

static void init_decoder_of(struct net_problem *problem, struct weir_decoder_options options) {
    options.layers = 2;
    options.width = 32;
    options.inner = 48;
    options.head_size = 16;
    options.context = 20;
    options.vocab = 61;
    EXPECT_STATUS(weir_model_decoder(test_allocator(), &options, NULL, &problem->model), WEIR_OK);
    problem->input = problem->target =
        (struct weir_tensor){.dtype = WEIR_I64, .rank = 1, .shape = {options.context}};
    problem->classes = problem->labels = options.vocab;
}

/* As Qwen 2.5. */
static void init_decoder(struct net_problem *problem) {
    struct weir_decoder_options options = WEIR_DECODER_OPTIONS_INIT;
    options.heads = 4;
    options.kv_heads = 2;
    options.qkv_bias = options.tied = true;
    init_decoder_of(problem, options);
}

/* As Qwen 3, with Mistral's window. */
static void init_decoder_window(struct net_problem *problem) {
    struct weir_decoder_options options = WEIR_DECODER_OPTIONS_INIT;
    options.heads = 3;
    options.kv_heads = 1;
    options.window = 6;
    options.qk_norm = true;
    init_decoder_of(problem, options);
}

/* The golden nets' (test_golden_nets.c). */
static void init_file(struct net_problem *problem, const char *path) {
    const char *loss;
    if (!EXPECT_STATUS(weir_model_read(test_allocator(), path, NULL, &problem->model), WEIR_OK))
        return;
    weir_model_border(problem->model, &problem->input, &problem->target, &loss);
    problem->classes = problem->labels = 5;
}

static void init_text_layers(struct net_problem *problem) {
    init_file(problem, "tests/golden/text_layers.json");
}

static void init_image_layers(struct net_problem *problem) {
    init_file(problem, "tests/golden/image_layers.json");
}

static void init_batch_layers(struct net_problem *problem) {
    init_file(problem, "tests/golden/batch_layers.json");
}

static void init_cells(struct net_problem *problem) {
    init_file(problem, "tests/golden/amoeba_layers.json");
}

static const struct {
    const char *name;
    init_fn *init;
    double share, real_share; /* from the rounded reference: of D, on the fake driver, on a GPU */
    double cpu_share;         /* on a CPU */
    double library;           /* on top */
    double flips;             /* on GPUs, on top of the share: of D, by ReLUs of few numbers */
} models[] = {{"gpt", init_gpt, 0.75, 2, 0.75, 0},
              {"gpt of 4 heads", init_gpt_ours, 2, 2, 0.75, 0},
              {"unet", init_unet, 0x1p-3, 0x1p-3, 0x1p-3, 0x1p-8},
              {"readers", init_readers, 0x1p-6, 0x1p-6, 0x1p-6, 0},
              {"decoder", init_decoder, 2, 2, 1.25, 0},
              {"decoder with a window", init_decoder_window, 2, 2, 0.75, 0},
              {"layers of text", init_text_layers, 0x1p-6, 0x1p-6, 0x1p-6, 0},
              {"layers of images", init_image_layers, 0x1p-6, 0x1p-6, 0x1p-6, 0x1p-8},
              {"batch norms", init_batch_layers, 0x1p-6, 0x1p-6, 0x1p-6, 0x1p-8},
              {"AmoebaNet's cells", init_cells, 0x1p-3, 0x1p-3, 0x1p-3, 0x1p-8, 0.25}};

/* ---- distances ---- */

/* The same whatever the test's seed: of so many numbers one may lie at a ReLU's 0. */
static void fill_data(const struct net_problem *problem, struct trial_data *data) {
    void *at[] = {data->input, data->target};
    const size_t bytes[] = {data->input_bytes, data->target_bytes};
    const struct weir_tensor *tensors[] = {&problem->input, &problem->target};
    uint64_t state = 1;
    for (int k = 0; k < 2; k++) {
        bool is_float = weir_dtype_is_float(tensors[k]->dtype);
        size_t count = bytes[k] / weir_dtype_bytes(tensors[k]->dtype);
        for (size_t i = 0; i < count; i++) {
            state = state * 0x5851f42d4c957f2du + 0x14057b7ef767814fu;
            if (is_float)
                ((float *)at[k])[i] = (float)(state >> 40) * 0x1p-23f - 1;
            else
                ((int64_t *)at[k])[i] = (int64_t)((state >> 33) % (uint64_t)problem->classes);
        }
    }
}

struct bench {
    const char *name;
    size_t model; /* its number */
    struct net_problem problem;
    struct net_parts parts;
    struct trial_data data;
    struct trial_result exact[2], rounded[2]; /* rounded: only for BF16 */
    double share, library;                    /* of the model */
};

static bool bench_init(struct bench *bench, size_t model, enum weir_dtype dtype) {
    const struct net_rounding none = {0, 0}, nearest = {8, 0};
    struct weir_net_options options = trial_options(1, ROWS, CHUNKS);
    memset(bench, 0, sizeof *bench);
    bench->name = models[model].name;
    bench->model = model;
    bench->share = test_gpu_is_real() ? models[model].real_share : models[model].share;
    bench->library = models[model].library;
    models[model].init(&bench->problem);
    if (test_has_failed()) return false;
    options.dtype = WEIR_F32;
    net_exact_parts(&bench->problem, &options, &bench->parts);
    net_pipe_data(&bench->problem, &options, &bench->data);
    fill_data(&bench->problem, &bench->data);
    net_exact_train(&bench->problem, &options, &bench->data, &none, bench->exact);
    if (dtype == WEIR_BF16)
        net_exact_train(&bench->problem, &options, &bench->data, &nearest, bench->rounded);
    return !test_has_failed();
}

static void bench_clean_up(struct bench *bench) {
    for (int i = 0; i < 2; i++) trial_result_clean_up(&bench->exact[i]);
    for (int i = 0; i < 2; i++) trial_result_clean_up(&bench->rounded[i]);
    trial_data_clean_up(&bench->data);
    weir_model_destroy(bench->problem.model);
}

static double distance(const void *got, enum weir_dtype dtype, const struct trial_result *from,
                       const struct net_part *part) {
    return net_exact_distance(got, dtype, from->gradients, part->first, part->count) /
           net_exact_norm(from->gradients, part->first, part->count);
}

/* Running numbers of two updates. */
static void check_statistics(const struct bench *bench, const struct trial_result *got,
                             double most) {
    const struct trial_result *exact = &bench->exact[1];
    double off = 0, size = 0;
    if (!EXPECT_EQ_UINT(got->statistic_count, exact->statistic_count) ||
        exact->statistic_count == 0)
        return;
    for (size_t i = 0; i < exact->statistic_count; i++) {
        off += pow(got->statistics[i] - exact->statistics[i], 2);
        size += pow(exact->statistics[i], 2);
    }
    double is = sqrt(off / size);
    if (!(is <= most)) TEST_FAIL("%s: running numbers are %.3g from f64's", bench->name, is);
}

static double check_single(const struct bench *bench, const struct trial_result *got) {
    double worst = fabs(got->loss - bench->exact->loss) / fabs(bench->exact->loss);
    EXPECT(worst <= 1e-5);
    for (uint32_t i = 0; i < bench->parts.count; i++) {
        const struct net_part *part = &bench->parts.list[i];
        double is = distance(got->gradients, WEIR_F32, bench->exact, part);
        if (!(is <= 1e-5)) TEST_FAIL("%s: %s is %.3g from f64's", bench->name, part->name, is);
        worst = fmax(worst, is);
    }
    return worst;
}

static double check_bf16(const struct bench *bench, const struct trial_result *got) {
    double worst = 0;
    EXPECT(fabs(got->loss - bench->exact->loss) <= 2e-2 * fabs(bench->exact->loss));
    for (uint32_t i = 0; i < bench->parts.count; i++) {
        const struct net_part *part = &bench->parts.list[i];
        double own = distance(bench->rounded->gradients, WEIR_F64, bench->exact, part);
        double is = distance(got->gradients, WEIR_F32, bench->exact, part);
        double from = distance(got->gradients, WEIR_F32, bench->rounded, part);
        if (!(is <= fmax(2e-2, 1.125 * own)))
            TEST_FAIL("%s: %s is %.3g from f64's, which is %.3g itself where it rounds",
                      bench->name, part->name, is, own);
        if (!(from <= bench->share * own + bench->library))
            TEST_FAIL("%s: %s is %.3g from f64's that rounds, whose own distance is %.3g",
                      bench->name, part->name, from, own);
        worst = fmax(worst, is);
    }
    return worst;
}

/* ---- pipelines ---- */

static const struct pipeline {
    const char *devices[3];
    uint32_t stages, workers;
    bool mixed;
    const char *schedule;
    enum weir_checkpoint checkpoint;
} pipelines[] = {
    {{"cuda:0"}, 1, 1, false, "gpipe", WEIR_CHECKPOINT_NEVER},
    {{"cuda:0", "cuda:1"}, 2, 2, false, "gpipe", WEIR_CHECKPOINT_ALWAYS},
    {{"cuda:0", "cuda:1", "cuda:0"}, 3, 3, false, "gpipe", WEIR_CHECKPOINT_EXCEPT_LAST},
    {{"cuda:1", "cuda:0"}, 4, 2, false, "looped-bfs", WEIR_CHECKPOINT_EXCEPT_LAST},
    {{"cuda:0", "cpu", "cuda:1"}, 3, 3, true, "gpipe", WEIR_CHECKPOINT_ALWAYS},
};

static void train(const struct bench *bench, const struct pipeline *pipeline, enum weir_dtype dtype,
                  struct trial_result results[2]) {
    struct weir_net_options options = trial_options(pipeline->stages, ROWS, CHUNKS);
    const char *devices[3];
    for (uint32_t i = 0; i < pipeline->workers; i++) {
        bool is_cpu = strcmp(pipeline->devices[i], "cpu") == 0;
        devices[i] = is_cpu ? "cpu" : engine_gpu_name(pipeline->devices[i]);
    }
    options.dtype = dtype;
    options.pipe.devices = devices;
    options.pipe.device_count = options.pipe.workers = pipeline->workers;
    options.pipe.schedule = pipeline->schedule;
    options.pipe.checkpoint = pipeline->checkpoint;
    net_pipe_train(&bench->problem, &options, &bench->data, results);
}

/* In depth all; otherwise the first, and two others by the model's number, so that every pipeline
 * has a model and every model has pipelines. */
static bool is_wanted(size_t pipeline, size_t model) {
    size_t others = sizeof pipelines / sizeof *pipelines - 1;
    return test_is_full() || pipeline == 0 || (pipeline - 1 + model) % (others / 2) == 0;
}

/* On GPUs alone the bits are those of one GPU. */
static void check_pipelines(const struct weir_fake_cuda_control *gpu, const struct bench *bench,
                            enum weir_dtype dtype) {
    struct trial_result first[2] = {{0}};
    double worst = 0;
    for (size_t p = 0; p < sizeof pipelines / sizeof pipelines[0] && !test_has_failed(); p++) {
        struct trial_result got[2] = {{0}};
        if (!is_wanted(p, bench->model)) continue;
        gpu->reset(test_random_u64(), GPUS, 0);
        train(bench, &pipelines[p], dtype, p == 0 ? first : got);
        const struct trial_result *made = p == 0 ? first : got;
        if (test_has_failed()) break;
        double is = dtype == WEIR_BF16 ? check_bf16(bench, made) : check_single(bench, made);
        check_statistics(bench, &made[1], dtype == WEIR_BF16 ? 2e-2 : 1e-5);
        worst = fmax(worst, is);
        for (int i = 0; p > 0 && !pipelines[p].mixed && i < 2; i++)
            trial_result_compare(&first[i], &got[i]);
        for (int i = 0; i < 2; i++) trial_result_clean_up(&got[i]);
        fake_gpus_clean(gpu);
        if (test_has_failed()) printf("  pipeline %zu of %s\n", p, bench->name);
    }
    for (int i = 0; i < 2; i++) trial_result_clean_up(&first[i]);
    printf("  %s in %s: at most %.3g from f64\n", bench->name, weir_dtype_name(dtype), worst);
}

static void check_models(enum weir_dtype dtype) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open_any();
    if (gpu == NULL || !net_pipe_has_libraries()) return;
    for (size_t m = 0; m < sizeof models / sizeof models[0] && !test_has_failed(); m++) {
        static struct bench bench;
        bool made = bench_init(&bench, m, dtype);
        bench.share += models[m].flips;
        if (made) check_pipelines(gpu, &bench, dtype);
        bench_clean_up(&bench);
    }
}

static void check_levels(const struct bench *bench) {
    const struct weir__level *level;
    for (uint32_t i = 0; (level = weir__level_at(i)) != NULL && !test_has_failed(); i++) {
        struct weir_net_options options = trial_options(2, ROWS, CHUNKS);
        struct trial_result got[2] = {{0}};
        if (!weir__level_runs(level)) continue;
        options.dtype = WEIR_BF16;
        options.level = level->name;
        options.pipe.schedule = "gpipe";
        net_pipe_train(&bench->problem, &options, &bench->data, got);
        double is = test_has_failed() ? 0 : check_bf16(bench, got);
        printf("  %s at %s: at most %.3g from f64\n", bench->name, level->name, is);
        for (int r = 0; r < 2; r++) trial_result_clean_up(&got[r]);
    }
}

static void test_bf16_on_cpus_is_within_what_its_storage_costs(void) {
    for (size_t m = 0; m < sizeof models / sizeof models[0] && !test_has_failed(); m++) {
        static struct bench bench;
        bool made = bench_init(&bench, m, WEIR_BF16);
        bench.share = models[m].cpu_share;
        if (made) check_levels(&bench);
        bench_clean_up(&bench);
    }
}

static void test_f32_is_within_a_hundred_thousandth(void) {
    check_models(WEIR_F32);
}

static void test_bf16_is_within_what_its_storage_costs(void) {
    check_models(WEIR_BF16);
}

WEIR_TEST_SUITE(net_near, TEST(f32_is_within_a_hundred_thousandth),
                TEST(bf16_is_within_what_its_storage_costs),
                TEST(bf16_on_cpus_is_within_what_its_storage_costs))
