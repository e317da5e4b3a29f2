/* SPDX-License-Identifier: MIT */
/*
 * How fast do models of users train on two cores: as one stage with two threads, as the best
 * pipeline of two stages, as `weir train` chooses by itself, and against PyTorch and its pipelines?
 *
 * Napkin, at 120 GFLOP/s per core. GPT S (6 layers, width 256) has 4.9 million parameters and 2,048
 * tokens a step: 6 FLOPs for each of both are 60 GFLOP, attention 5 more: 0.27 s. GPT M (8 layers,
 * width 512) has 25.6 million and as many tokens: 310 and 26 GFLOP, 1.4 s. AdamW reads four numbers
 * of each parameter and writes three: 0.7 GB for M, 35 ms. So products decide, what stands between
 * them costs little where micro-batches fit the caches, and ZB-H1 leaves a small bubble.
 *
 * torchgpipe's U-Net (B = 2, C = 16, 96 x 96, batch 16, SGD): 3 x 0.62 GFLOP x 16 rows = 30 GFLOP,
 * 125 ms. Its units' tensors (dropout2d, instance norm, leaky ReLU around each convolution)
 * are 12.5 MB a row: forward reads and writes each a few times, 2 to 3 GB in all, as long again at
 * 20 GB/s if nothing stayed in cache.
 *
 * ResNet-101 at 64 x 64, batch 64: 3 x 1.27 GFLOP x 64 rows = 245 GFLOP, 1 s; batch norm and ReLU
 * read and write 11 MB a row some ten times: 7 GB, 0.35 s. AmoebaNet-D (6, 64) at 224 x 224, batch
 * 8: many small convolutions, whose memory decides. Their batch norm goes by micro-batches: so what
 * is planned has a single one, which computes what PyTorch does on the whole mini-batch.
 *
 * The U-Net (5, 64) at 192 x 192, batch 4, is what torchgpipe was made for: three stages on two
 * workers, everything recomputed, against torchgpipe's own three partitions.
 *
 * SmolLM2-135M (context 512, batch 4), in full and by adapters of rank 16, is what people fine-tune
 * at home: 134.5 million parameters, 2,048 tokens: 6 FLOPs for each of both are 1,650 GFLOP, and by
 * adapters 4: 1,100. Against transformers and peft.
 *
 * Each with the best level of kernels, and with v3, which is all that most processors have: PyTorch
 * is then held to AVX2. GPT M in bf16, too, where the level has instructions for it, in turns with
 * our f32: its products take half as long, which are four fifths of the step, so 0.6 of it. The
 * peers are timed in turns with ours (peer.h), each variant with the number of threads that it
 * likes best, up to ours.
 */
#include "peer.h"
#include "training.h"
#include "weir_models.h"

#include <math.h>
#include <string.h>

static const double PEER_AT_MOST = 1.0;
/* Of images' classifiers, what `weir train` chooses against each; of the U-Net that recomputes. */
static const double EAGER_AT_MOST = 1 / 1.3, COMPILED_AT_MOST = 1 / 1.1, ALWAYS_AT_MOST = 1 / 2.0;
static const double DECODER_AT_MOST = 1 / 1.3;
/* Of losses: the order of sums, in f32; in bf16 every layer's rounding by 2^-9. */
static const double LOSS_TOLERANCE = 1e-5, LOSS_TOLERANCE_BF16 = 1e-2;
/* Before they have learned, running numbers do not hold a hundred layers' outputs in bounds. */
static const double LOSS_TOLERANCE_NORMS = 1e-3;

enum { PEERS_MOST = 3, LEARNED_STEPS = 4, TOPIC_BYTES = 64 };

enum { GPT_S, GPT_M, GPT_M_BF16, UNET, UNET_ALWAYS, RESNET, AMOEBANET, SMOLLM, SMOLLM_LORA };
#define SMOLLM2_135M                                                                               \
    {                                                                                              \
        .layers = 30, .width = 576, .inner = 1536, .heads = 9, .kv_heads = 3, .head_size = 64,     \
        .context = 512, .vocab = 49152, .eps = 1e-5, .tied = true, .rope_theta = 1e5,              \
        .rope_factor = 1, .rope_low = 1, .rope_high = 4                                            \
    }
static const struct training_job jobs[] = {
    [GPT_S] = {.topic = "models/gpt-s",
               .rows = 16,
               .unit = 1,
               .adamw = true,
               .gpt = {6, 256, 8, 128, 256, false, 0}},
    [GPT_M] = {.topic = "models/gpt-m",
               .rows = 8,
               .unit = 1,
               .adamw = true,
               .gpt = {8, 512, 8, 256, 256, false, 0}},
    [GPT_M_BF16] = {.topic = "models/gpt-m",
                    .dtype = WEIR_BF16,
                    .rows = 8,
                    .unit = 1,
                    .adamw = true,
                    .gpt = {8, 512, 8, 256, 256, false, 0}},
    [UNET] = {.topic = "models/unet", .rows = 16, .unit = 4, .unet = {5, 2, 16, 3, 1, 96, 96, 0.1}},
    [UNET_ALWAYS] = {.topic = "models/always",
                     .rows = 4,
                     .unit = 4,
                     .unet = {5, 5, 64, 3, 1, 192, 192, 0.1}},
    [RESNET] = {.topic = "models/resnet101",
                .rows = 64,
                .unit = 11,
                .chunks = 1,
                .resnet = {.classes = 1000, .height = 64, .width = 64}},
    [AMOEBANET] = {.topic = "models/amoebanetd",
                   .rows = 8,
                   .unit = 1,
                   .chunks = 1,
                   .amoebanet = {6, 64, 1000, 224, 224}},
    [SMOLLM] = {.topic = "models/smollm2",
                .rows = 4,
                .unit = 1,
                .adamw = true,
                .chunks = 2,
                .decoder = SMOLLM2_135M},
    [SMOLLM_LORA] = {.topic = "models/smollm2-lora",
                     .rows = 4,
                     .unit = 1,
                     .adamw = true,
                     .chunks = 2,
                     .decoder = SMOLLM2_135M,
                     .lora_rank = 16},
};

/* In `peers`; `begin` stands before the model's own arguments. */
static const struct peer_kind {
    const char *script, *begin;
    bool chunks; /* as many micro-batches as ours */
} peer_kinds[][PEERS_MOST] = {
    [GPT_S] = {{"gpt_eager.py", "", false},
               {"gpt_pipelining.py", "", true},
               {"torchgpipe_cpu.py", "gpt", true}},
    [GPT_M] = {{"gpt_eager.py", "", false}},
    [GPT_M_BF16] = {{"gpt_eager.py", "--dtype bf16", false}},
    [UNET] = {{"unet_eager.py", "", false}, {"torchgpipe_cpu.py", "unet", true}},
    [UNET_ALWAYS] = {{"torchgpipe_cpu.py", "unet --variants torchgpipe-always --devices 3", true}},
    [RESNET] = {{"classifier_eager.py", "resnet101", false}},
    [AMOEBANET] = {{"classifier_eager.py", "amoebanetd", false}},
    [SMOLLM] = {{"decoder_eager.py", "", false}},
    [SMOLLM_LORA] = {{"decoder_eager.py", "", false}},
};

/* What holds PyTorch to a level's instructions; NULL: nothing need. */
static const char *settings_of(const char *level) {
    return strcmp(level, "v3") == 0
               ? "ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 "
                 "TORCHINDUCTOR_CPP_MARCH=x86-64-v3"
               : NULL;
}

/* A peer's variant as a case. */
struct peer_case {
    struct peer *peer;
    const char *name;
};

enum { ONE, PIPELINE, PLANNED, PIPELINE_AGAIN, OURS };
enum { CASES_MOST = OURS + PEERS_MOST * PEER_NAMES_MOST + 1 /* f32 */ };

/* One model by one level. */
struct contest {
    struct training_job job;
    char topic[TOPIC_BYTES];
    double flops; /* FLOP/s of the level, all cores */
    struct training trainings[OURS];
    struct peer peers[PEERS_MOST];
    struct peer_case peer_cases[CASES_MOST];
    struct bench_case cases[CASES_MOST];
    uint32_t case_count;
    struct training f32; /* of another dtype's contest: what the plan is timed against, too */
};

static bool is_classifier(const struct training_job *job) {
    return job->resnet.classes > 0 || job->amoebanet.classes > 0;
}

/* ---- peers ---- */

static void sample_peer(struct bench *bench, void *context, double *value) {
    const struct peer_case *of = context;
    (void)bench;
    peer_resume(of->peer);
    double first = peer_step(of->peer, of->name), second = peer_step(of->peer, of->name);
    peer_pause(of->peer);
    *value = fmin(first, second);
}

static void write_arguments(const struct contest *contest, const struct peer_kind *kind, char *text,
                            size_t capacity) {
    const struct training_job *job = &contest->job;
    const struct weir_gpt_options *gpt = &job->gpt;
    const struct weir_unet_options *unet = &job->unet;
    size_t used = (size_t)snprintf(text, capacity, "%s --threads %d --parameters %llu --batch %u ",
                                   kind->begin, TRAINING_CORES, (unsigned long long)job->parameters,
                                   job->rows);
    if (kind->chunks)
        used += (size_t)snprintf(text + used, capacity - used, "--chunks %u ",
                                 contest->trainings[PIPELINE].shape.chunks);
    if (job->resnet.classes > 0)
        snprintf(text + used, capacity - used, "--classes %u --image %u", job->resnet.classes,
                 job->resnet.height);
    else if (job->amoebanet.classes > 0)
        snprintf(text + used, capacity - used, "--classes %u --image %u --layers %u --filters %u",
                 job->amoebanet.classes, job->amoebanet.height, job->amoebanet.layers,
                 job->amoebanet.filters);
    else if (job->decoder.layers > 0)
        snprintf(text + used, capacity - used, "--layers %u --context %u --vocab %u --lora-rank %u",
                 job->decoder.layers, job->decoder.context, job->decoder.vocab, job->lora_rank);
    else if (unet->depth > 0)
        snprintf(text + used, capacity - used,
                 "--depth %u --num-convs %u --base-channels %u --image %u", unet->depth,
                 unet->num_convs, unet->base_channels, unet->height);
    else
        snprintf(text + used, capacity - used,
                 "--layers %u --width %u --heads %u --context %u --vocab %u --tokens %u",
                 gpt->layers, gpt->width, gpt->heads, gpt->context, gpt->vocab, gpt->vocab);
}

static void start_peer(struct bench *bench, struct contest *contest, const struct peer_kind *kind,
                       struct peer *peer) {
    char arguments[512];
    struct peer_job of = {.topic = contest->topic,
                          .script = kind->script,
                          .arguments = arguments,
                          .settings = settings_of(contest->job.level)};
    if (bench->options.quick) of.not_now = "--quick's times mean nothing";
    write_arguments(contest, kind, arguments, sizeof arguments);
    peer_start(bench, peer, &of);
    for (uint32_t i = 0; i < peer->count; i++) {
        struct peer_case *own = &contest->peer_cases[contest->case_count];
        *own = (struct peer_case){peer, peer->names[i]};
        contest->cases[contest->case_count++] =
            (struct bench_case){.label = own->name, .sample = sample_peer, .context = own};
    }
}

static void start_peers(struct bench *bench, struct contest *contest, int model) {
    for (int i = 0; i < PEERS_MOST && peer_kinds[model][i].script != NULL; i++) {
        if (i > 0 && bench->options.peer != NULL) break; /* it stands for all of them */
        start_peer(bench, contest, &peer_kinds[model][i], &contest->peers[i]);
    }
}

/* ---- answers ---- */

static double tolerance_of(const struct contest *contest) {
    if (is_classifier(&contest->job)) return LOSS_TOLERANCE_NORMS;
    return contest->job.dtype == WEIR_BF16 ? LOSS_TOLERANCE_BF16 : LOSS_TOLERANCE;
}

/* The peers' by weights that have learned something, so that a wrong model would not have the
 * same. */
static void check_peers(struct bench *bench, struct contest *contest) {
    struct training *one = &contest->trainings[ONE];
    for (int i = 0; i < LEARNED_STEPS; i++) training_step(one);
    double ours = training_loss(one);
    for (int i = 0; i < PEERS_MOST; i++) {
        struct peer *peer = &contest->peers[i];
        if (peer->count == 0) continue;
        double theirs = peer_loss(peer, one->net);
        fprintf(bench->text, "%s: loss by the same weights: ours %.7f, that of %s %.7f\n",
                contest->topic, ours, peer->names[0], theirs);
        bench_answer(bench, fabs(ours - theirs) <= tolerance_of(contest) * ours,
                     "%s: by the same weights the loss of %s", contest->topic, peer->names[0]);
    }
}

/* By the first weights. */
static void check_answers(struct bench *bench, struct contest *contest) {
    double one = training_loss(&contest->trainings[ONE]);
    bool bounded = one < 10 || is_classifier(&contest->job);
    bench_answer(bench, isfinite(one) && one > 0 && bounded, "%s: a loss", contest->topic);
    for (int i = PIPELINE; i < OURS; i++) {
        double loss = training_loss(&contest->trainings[i]);
        /* Other micro-batches and other threads. */
        bench_answer(bench, fabs(one - loss) <= tolerance_of(contest) * one,
                     "%s: the first loss is the same within rounding: %s", contest->topic,
                     contest->trainings[i].shape.name);
    }
}

/* ---- results ---- */

static double median_of(const struct bench_case *one) {
    return bench_median(one->samples, one->count);
}

static void add_step(struct bench *bench, const struct contest *contest, uint32_t at,
                     const char *note) {
    const struct bench_case *one = &contest->cases[at];
    struct bench_result *result =
        bench_add(bench, "s", one->samples, one->count, "%s/step/%s", contest->topic, one->label);
    if (contest->job.dtype == WEIR_F32) result->ideal = contest->job.flops / contest->flops;
    snprintf(result->note, sizeof result->note, "%s", note);
}

/* What `weir train` chooses against one peer. */
static void add_bound(struct bench *bench, const struct contest *contest, uint32_t at) {
    const char *name = contest->cases[at].label;
    struct bench_result *result =
        bench_add_ratio(bench, &contest->cases[PLANNED], &contest->cases[at], "%s/planned-to/%s",
                        contest->topic, name);
    result->at_most = strncmp(name, "compile", 7) == 0 ? COMPILED_AT_MOST : EAGER_AT_MOST;
}

static void add_results(struct bench *bench, const struct contest *contest) {
    uint32_t best = OURS;
    for (uint32_t i = 0; i < PIPELINE_AGAIN; i++)
        add_step(bench, contest, i, contest->trainings[i].shape.note);
    for (uint32_t i = OURS; i < contest->case_count; i++) {
        add_step(bench, contest, i, contest->peer_cases[i].peer->about);
        if (median_of(&contest->cases[i]) < median_of(&contest->cases[best])) best = i;
    }
    for (int i = ONE; i < PIPELINE_AGAIN && contest->case_count > OURS; i++) {
        struct bench_result *result =
            bench_add_ratio(bench, &contest->cases[i], &contest->cases[best], "%s/against/%s",
                            contest->topic, contest->cases[i].label);
        if (i == PIPELINE) result->at_most = PEER_AT_MOST;
        snprintf(result->note, sizeof result->note, "the peers' best: %s",
                 contest->cases[best].label);
    }
    bench_add_ratio(bench, &contest->cases[PLANNED], &contest->cases[PIPELINE], "%s/plan-to-scan",
                    contest->topic);
    struct bench_result *control =
        bench_add_ratio(bench, &contest->cases[PIPELINE], &contest->cases[PIPELINE_AGAIN],
                        "%s/control", contest->topic);
    control->control = true;
    for (uint32_t i = OURS; i < contest->case_count && is_classifier(&contest->job); i++)
        add_bound(bench, contest, i);
}

/* The same plan in f32, in turns with the others. */
static void open_f32(struct contest *contest, struct training_job *job,
                     const struct training_shape *planned) {
    *job = contest->job;
    job->dtype = WEIR_F32;
    training_new(job, planned, &contest->f32);
    contest->cases[contest->case_count] =
        (struct bench_case){.label = "f32", .sample = training_sample, .context = &contest->f32};
}

static void add_f32(struct bench *bench, const struct contest *contest) {
    const struct bench_case *f32 = &contest->cases[contest->case_count];
    bench_add_ratio(bench, f32, &contest->cases[PLANNED], "%s/f32-to-planned", contest->topic);
}

/* ---- the topics ---- */

static void train(struct bench *bench, struct contest *contest, int model) {
    const struct training_job *job = &contest->job;
    struct training_job job_of_f32;
    bool bf16 = job->dtype == WEIR_BF16;
    struct training_shape pipeline = training_best_shape(bench, job, "2-stages", 2);
    const struct training_shape shapes[OURS] = {
        [ONE] = training_best_shape(bench, job, "1-stage", 1),
        [PIPELINE] = pipeline,
        [PLANNED] = training_planned_shape(bench, job, NULL),
        [PIPELINE_AGAIN] = pipeline};
    for (int i = 0; i < OURS; i++) {
        training_new(job, &shapes[i], &contest->trainings[i]);
        contest->cases[i] = (struct bench_case){
            .label = shapes[i].name, .sample = training_sample, .context = &contest->trainings[i]};
    }
    contest->case_count = OURS;
    start_peers(bench, contest, model);
    check_answers(bench, contest);
    check_peers(bench, contest);
    if (bf16) open_f32(contest, &job_of_f32, &shapes[PLANNED]);
    bench_interleave(bench, contest->cases, contest->case_count + bf16);
    add_results(bench, contest);
    if (bf16) add_f32(bench, contest);
    if (bf16) training_clean_up(&contest->f32);
    for (int i = 0; i < PEERS_MOST; i++) peer_stop(&contest->peers[i]);
    for (int i = 0; i < OURS; i++) training_clean_up(&contest->trainings[i]);
}

/* What `train` chooses, with some of it given, against each peer. */
static void train_planned(struct bench *bench, struct contest *contest, int model,
                          const char *const *given, const char *name, double at_most) {
    enum { AGAIN = PIPELINE, CASES };
    struct training_shape shape = training_planned_shape(bench, &contest->job, given);
    shape.name = name;
    for (int i = ONE; i < CASES; i++) {
        training_new(&contest->job, &shape, &contest->trainings[i]);
        contest->cases[i] = (struct bench_case){
            .label = shape.name, .sample = training_sample, .context = &contest->trainings[i]};
    }
    contest->case_count = CASES;
    start_peers(bench, contest, model);
    check_peers(bench, contest);
    bench_interleave(bench, contest->cases, contest->case_count);
    add_step(bench, contest, ONE, contest->trainings[ONE].shape.note);
    for (uint32_t i = CASES; i < contest->case_count; i++) {
        add_step(bench, contest, i, contest->peer_cases[i].peer->about);
        bench_add_ratio(bench, &contest->cases[ONE], &contest->cases[i], "%s/against/%s",
                        contest->topic, contest->cases[i].label)
            ->at_most = at_most;
    }
    bench_add_ratio(bench, &contest->cases[ONE], &contest->cases[AGAIN], "%s/control",
                    contest->topic)
        ->control = true;
    for (int i = 0; i < PEERS_MOST; i++) peer_stop(&contest->peers[i]);
    for (int i = ONE; i < CASES; i++) training_clean_up(&contest->trainings[i]);
}

/* Names of results: "models/gpt-s/…", and with a `suffix` "models/gpt-s/v3/…". */
static void run_level(struct bench *bench, int model, const char *level, const char *suffix) {
    struct contest *contest = bench_take(bench, 1, sizeof *contest);
    contest->job = jobs[model];
    contest->job.level = level;
    snprintf(contest->topic, sizeof contest->topic, "%s%s", jobs[model].topic, suffix);
    contest->job.topic = contest->topic;
    contest->flops = bench_level_flops(bench, level);
    training_make(bench, &contest->job);
    /* everything is recomputed, and three stages share two workers */
    static const char *const always[] = {"--stages",     "3",      "--workers", "2",
                                         "--checkpoint", "always", NULL};
    if (model == UNET_ALWAYS)
        train_planned(bench, contest, model, always, "3-stages", ALWAYS_AT_MOST);
    else if (contest->job.decoder.layers > 0) /* a scan would take an hour */
        train_planned(bench, contest, model, NULL, "planned", DECODER_AT_MOST);
    else
        train(bench, contest, model);
    training_job_clean_up(&contest->job);
    bench_save(bench);
}

static void run_model(struct bench *bench, int model) {
    const char *best = bench_level();
    if (bench->facts.usable_cores < TRAINING_CORES) {
        fprintf(bench->text, "fewer than two usable cores: nothing to measure here\n");
        return;
    }
    run_level(bench, model, best, "");
    /* their plans take the time, and one is as good as two */
    if (bench->options.quick && model >= RESNET) return;
    /* and peft's compilation alone takes ten minutes */
    if (strncmp(best, "v4", 2) == 0 && model < SMOLLM) run_level(bench, model, "v3", "/v3");
    if (model == GPT_M && strcmp(best, "v4-bf16") == 0) run_level(bench, GPT_M_BF16, best, "/bf16");
}

void bench_models_gpt_s(struct bench *bench) {
    run_model(bench, GPT_S);
}

void bench_models_gpt_m(struct bench *bench) {
    run_model(bench, GPT_M);
}

void bench_models_unet(struct bench *bench) {
    run_model(bench, UNET);
}

void bench_models_always(struct bench *bench) {
    run_model(bench, UNET_ALWAYS);
}

void bench_models_resnet101(struct bench *bench) {
    run_model(bench, RESNET);
}

void bench_models_amoebanetd(struct bench *bench) {
    run_model(bench, AMOEBANET);
}

void bench_models_smollm2(struct bench *bench) {
    run_model(bench, SMOLLM);
}

void bench_models_smollm2_lora(struct bench *bench) {
    run_model(bench, SMOLLM_LORA);
}
