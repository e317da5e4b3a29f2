/* SPDX-License-Identifier: MIT */
/*
 * How fast do GPT-2 124M and torchgpipe's U-Net (5, 64) train on a GPU, and over two of them, in
 * BF16 with F32 master weights, against the GPU's own limits and against PyTorch?
 *
 * Napkin, for an H200 (989 TFLOP/s by data sheet, some 750 by a large product). GPT-2: 855 MFLOP a
 * token, so 1.2 million tokens a second at the peak; products of width 768 reach two thirds of a
 * large one's rate, attention half; what is bound by memory moves some 12 x 34 numbers of 2 bytes
 * and width 768 forward and twice that backward, 2 MB a token: 4.3 TB/s do that for 2.2 million
 * tokens a second, after the products, not beside them. The head's logits, 50,304 x 2 bytes,
 * go four times through memory: 0.1 us a token. So 600 thousand tokens a second would be good.
 * U-Net: 3 x 98 GFLOP an image, so 2,500 images a second at a large product's rate; its units' 0.22
 * GB an image go some six times through memory: 3,300 a second. One after the other.
 *
 * Mini-batches are the same for one stage, for two and for the peer; micro-batches the best of
 * three numbers. Model FLOPs of GPT-2 are 6 N + 12 L C T a token, N without positions, the usual
 * formula: attention as if it were not causal, nothing for recomputation. Of the U-Net, three times
 * the forward pass's, as `weir describe` counts them. A step is forward, loss, backward, clipping
 * and AdamW (GPT-2) or SGD (U-Net, as upstream's benchmark).
 */
#include "gpu_train.h"
#include "peer.h"
#include "weir_models.h"

#include <math.h>
#include <string.h>

enum { TOKENS = 50257 }; /* the vocabulary without what it is padded by */

static struct weir_model *new_gpt(const struct weir_gpt_options *gpt) {
    struct weir_model *model;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    bench_check_faults(weir_model_gpt(NULL, gpt, &faults, &model), "gpu-gpt2", &faults);
    return model;
}

static struct weir_model *new_unet(const struct weir_unet_options *unet) {
    struct weir_model *model;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    bench_check_faults(weir_model_unet(NULL, unet, &faults, &model), "gpu-unet", &faults);
    return model;
}

/* ---- GPT-2 ---- */

/* 6 N + 12 L C T. */
static double gpt_flops(const struct weir_gpt_options *gpt) {
    double c = gpt->width, l = gpt->layers, t = gpt->context;
    double block = 12 * c * c + 13 * c, n = gpt->vocab * c + l * block + 2 * c;
    return 6 * n + 12 * l * c * t;
}

/* Pinned rows, of one token more than the context: inputs, and targets one further. */
struct texts {
    int64_t *input, *target;
    size_t bytes;
};

static struct texts take_texts(struct bench_gpu *gpu, int64_t rows, int64_t context,
                               uint32_t tokens) {
    struct texts texts = {.bytes = (size_t)(rows * context) * sizeof(int64_t)};
    texts.input = gpu_take_pinned(gpu, texts.bytes);
    texts.target = gpu_take_pinned(gpu, texts.bytes);
    peer_fill_texts(texts.input, texts.target, rows, context, tokens);
    return texts;
}

static void give_texts(struct bench_gpu *gpu, const struct texts *texts) {
    gpu_give_pinned(gpu, texts->input, texts->bytes);
    gpu_give_pinned(gpu, texts->target, texts->bytes);
}

static const struct weir_gpt_options gpt_whole = {12, 768, 12, 1024, 50304, true, 0.0};
static const struct weir_gpt_options gpt_small = {12, 96, 12, 64, 128, true, 0.0};
static const struct weir_gpt_options gpt_quick = {1, 32, 2, 16, 128, true, 0.0};
static const struct weir_gpt_options gpt_small_quick = {1, 16, 2, 8, 128, true, 0.0};

void bench_gpu_gpt2(struct bench *bench) {
    bool quick = bench->options.quick;
    const struct weir_gpt_options *gpt = quick ? &gpt_quick : &gpt_whole;
    const struct weir_gpt_options *small = quick ? &gpt_small_quick : &gpt_small;
    uint32_t tokens = quick ? 120 : TOKENS;
    struct gpu_job job = {.topic = "gpu-gpt2",
                          .rate_unit = "tokens/s",
                          .rows = quick ? 4 : 32,
                          .flops_words = "6 N + 12 L C T a token",
                          .mfu_least = 0.5,
                          .lr = 6e-4,
                          .clip_norm = 1.0,
                          .adamw = true,
                          .script = "gpt2_gpu.py",
                          .judged = "compile"};
    struct texts texts = take_texts(bench->gpu, job.rows, gpt->context, tokens);
    struct texts few = take_texts(bench->gpu, GPU_SMALL_ROWS, small->context, small->vocab);
    job.model = new_gpt(gpt);
    job.small = new_gpt(small);
    job.input = texts.input, job.target = texts.target;
    job.small_input = few.input, job.small_target = few.target;
    job.item_count = (double)job.rows * gpt->context;
    job.flops = gpt_flops(gpt) * job.item_count;
    snprintf(job.arguments, sizeof job.arguments,
             "--batch %lld --layers %u --width %u --heads %u --context %u --vocab %u --tokens %u",
             (long long)job.rows, gpt->layers, gpt->width, gpt->heads, gpt->context, gpt->vocab,
             tokens);
    gpu_train(bench, &job);
    weir_model_destroy(job.small);
    weir_model_destroy(job.model);
    give_texts(bench->gpu, &texts);
    give_texts(bench->gpu, &few);
}

/* ---- the U-Net ---- */

static double unet_flops(struct bench *bench, const struct weir_model *model) {
    uint32_t layers = weir_model_layer_count(model);
    struct weir_layer_facts *facts = bench_take(bench, layers, sizeof *facts);
    double flops = 0;
    bench_check(weir_model_infer(model, WEIR_F32, facts, NULL), "gpu-unet");
    for (uint32_t i = 0; i < layers; i++) flops += 3.0 * (double)facts[i].flops;
    return flops;
}

void bench_gpu_unet(struct bench *bench) {
    bool quick = bench->options.quick;
    struct weir_unet_options unet = WEIR_UNET_OPTIONS_INIT;
    if (quick) unet.depth = 1, unet.num_convs = 1, unet.base_channels = 4;
    if (quick) unet.height = unet.width = 16;
    struct weir_unet_options small = unet;
    small.base_channels = quick ? 4 : 8;
    small.height = small.width = quick ? 8 : 64;
    struct gpu_job job = {.topic = "gpu-unet",
                          .rate_unit = "images/s",
                          .rows = quick ? 4 : 32,
                          .flops_words = "3 forward passes",
                          .mfu_least = NAN,
                          .lr = 0.1,
                          .script = "unet_gpu.py",
                          .judged = "compile-channels-last"};
    size_t plane = (size_t)job.rows * unet.height * unet.width;
    size_t input_bytes = 3 * plane * sizeof(float), target_bytes = plane * sizeof(float);
    float *input = gpu_take_pinned(bench->gpu, input_bytes);
    float *target = gpu_take_pinned(bench->gpu, target_bytes);
    peer_fill_images(input, target, (size_t)job.rows, (size_t)unet.height * unet.width);
    job.model = new_unet(&unet);
    job.small = new_unet(&small);
    job.input = job.small_input = input; /* which are as many numbers at least */
    job.target = job.small_target = target;
    job.item_count = (double)job.rows;
    job.flops = unet_flops(bench, job.model) * job.item_count;
    snprintf(job.arguments, sizeof job.arguments,
             "--batch %lld --depth %u --num-convs %u --base-channels %u --image %u",
             (long long)job.rows, unet.depth, unet.num_convs, unet.base_channels, unet.height);
    gpu_train(bench, &job);
    weir_model_destroy(job.small);
    weir_model_destroy(job.model);
    gpu_give_pinned(bench->gpu, input, input_bytes);
    gpu_give_pinned(bench->gpu, target, target_bytes);
}
