/* SPDX-License-Identifier: MIT */
#include "gpu_train.h"
#include "peer.h"

#include "net/cuda/numerics.h"

#include <math.h>
#include <string.h>

/* Steps of a sample; micro-batches between which the host's time is the slope; numbers of
 * micro-batches that are tried. */
enum {
    SAMPLE_STEPS = 5,
    HOST_FEW = 4,
    HOST_MANY = GPU_SMALL_ROWS,
    CHUNKS_TRIED = 3,
    STAGES_MOST = 2
};
static const double PEER_AT_LEAST = 1.0, LOSS_TOLERANCE = 0x1p-8; /* BF16's unit */

struct training {
    const struct gpu_job *job;
    const char *name;
    uint32_t stages, chunks;
    struct weir_net *net;
    uint64_t steps;
    double first_loss;
};

struct peer_case {
    struct peer *peer;
    const char *name;
};

/* ---- nets ---- */

static struct weir_net_options options_of(const struct gpu_job *job, uint32_t stages,
                                          uint32_t chunks) {
    static const char *const devices[STAGES_MOST] = {"cuda:0", "cuda:1"};
    struct weir_net_options options = WEIR_NET_OPTIONS_INIT;
    struct weir_optimizer adamw = WEIR_ADAMW_INIT, sgd = WEIR_SGD_INIT;
    adamw.beta2 = 0.95;
    adamw.weight_decay = 0.1;
    adamw.decay_matrices_only = true;
    options.dtype = WEIR_BF16;
    options.stages = stages;
    options.optimizer = job->adamw ? adamw : sgd;
    options.optimizer.lr = job->lr;
    options.pipe.rows = job->rows;
    options.pipe.chunks = chunks;
    options.pipe.checkpoint = WEIR_CHECKPOINT_NEVER;
    options.pipe.clip_norm = job->clip_norm;
    options.pipe.devices = devices;
    options.pipe.device_count = stages;
    return options;
}

/* False, and why, where it cannot be built: it may be too large. */
static bool build(struct training *out, char why[256]) {
    struct weir_net_options options = options_of(out->job, out->stages, out->chunks);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    int status = weir_net_new(out->job->model, &options, &faults, &out->net);
    snprintf(why, 256, "%s", faults.kept > 0 ? faults.lines[0] : weir_status_text(status));
    weir_faults_clean_up(&faults);
    if (status == WEIR_OK) bench_check(weir_net_init(out->net, 1), out->job->topic);
    return status == WEIR_OK;
}

static double step(struct training *training) {
    const struct gpu_job *job = training->job;
    struct weir_step_result result;
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = job->rows;
    batch.input = job->input;
    batch.target = job->target;
    batch.mini_batch = training->steps;
    batch.update = training->steps;
    if (weir_net_step(training->net, &batch, &result) != WEIR_OK)
        bench_die("%s: %s: %s", job->topic, training->name, result.error.message);
    training->steps++;
    return (double)result.ns * 1e-9;
}

/* Of a forward pass without dropout. */
static double loss_of(struct training *training) {
    const struct gpu_job *job = training->job;
    struct weir_step_result result;
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = job->rows;
    batch.input = job->input;
    batch.target = job->target;
    if (weir_net_infer(training->net, &batch, &result) != WEIR_OK)
        bench_die("%s: %s: %s", job->topic, training->name, result.error.message);
    return result.loss;
}

static double steps_mean(struct training *training, uint32_t count) {
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) sum += step(training);
    return sum / count;
}

/* ---- the best number of micro-batches ---- */

/* Seconds of a step with training->chunks; infinite where it cannot be built. */
static double try_chunks(struct bench *bench, struct training training) {
    char why[256], text[32];
    double seconds = HUGE_VAL;
    if (build(&training, why)) {
        (void)step(&training);
        seconds = steps_mean(&training, bench->options.quick ? 1 : SAMPLE_STEPS);
        snprintf(why, sizeof why, "%s a step", bench_value_text(seconds, "s", text));
        weir_net_destroy(training.net);
    }
    fprintf(bench->gpu->table, "%s, %u micro-batches: %s\n", training.name, training.chunks, why);
    return seconds;
}

/* One stage has no bubble; two have one of 1 / (chunks + 1). */
static void choose_chunks(struct bench *bench, struct training *training) {
    static const uint32_t tried[STAGES_MOST][CHUNKS_TRIED] = {{1, 2, 4}, {4, 8, 16}};
    const uint32_t *list = tried[training->stages - 1];
    double best = HUGE_VAL;
    uint32_t choice = 0;
    for (int i = 0; i < (bench->options.quick ? 1 : CHUNKS_TRIED); i++) {
        training->chunks = list[i];
        double seconds = try_chunks(bench, *training);
        if (seconds < best) best = seconds, choice = list[i];
    }
    if (choice == 0) bench_die("%s: %s: it cannot be built", training->job->topic, training->name);
    training->chunks = choice;
    fflush(bench->text);
}

static struct training *training_new(struct bench *bench, const struct gpu_job *job,
                                     const char *name, uint32_t stages) {
    struct training *training = bench_take(bench, 1, sizeof *training);
    char why[256];
    *training = (struct training){.job = job, .name = name, .stages = stages};
    choose_chunks(bench, training);
    if (!build(training, why)) bench_die("%s: %s: %s", job->topic, name, why);
    training->first_loss = loss_of(training);
    return training;
}

/* ---- the host's time ---- */

struct host {
    struct gpu_job job;
    struct training training;
};

static struct host *host_new(struct bench *bench, const struct gpu_job *job) {
    struct host *host = bench_take(bench, 1, sizeof *host);
    char why[256];
    host->job = *job;
    host->job.model = job->small;
    host->job.rows = HOST_MANY;
    host->job.input = job->small_input;
    host->job.target = job->small_target;
    host->training = (struct training){&host->job, "host", 1, HOST_MANY, NULL, 0, 0};
    if (!build(&host->training, why)) bench_die("%s: host: %s", job->topic, why);
    bench_check(weir_pipe_prepare(weir_net_pipe(host->training.net), HOST_FEW, NULL), job->topic);
    return host;
}

static double host_step(struct host *host, int64_t rows, uint32_t times) {
    double best = HUGE_VAL;
    host->job.rows = rows;
    for (uint32_t i = 0; i < times; i++) best = fmin(best, step(&host->training));
    return best;
}

/* The fake driver takes its time: there one short step shows that it runs. */
static void sample_host(struct bench *bench, void *context, double *value) {
    struct host *host = context;
    if (bench->gpu->fake) {
        *value = host_step(host, HOST_FEW, 1);
        return;
    }
    double many = host_step(host, HOST_MANY, SAMPLE_STEPS);
    *value = (many - host_step(host, HOST_FEW, SAMPLE_STEPS)) / (HOST_MANY - HOST_FEW) / 2;
}

/* ---- samples ---- */

static void sample_ours(struct bench *bench, void *context, double *value) {
    *value = steps_mean(context, bench->options.quick ? 1 : SAMPLE_STEPS);
    gpu_state_look(&bench->gpu->state);
}

static void sample_product(struct bench *bench, void *context, double *value) {
    struct gpu_work work = {gpu_enqueue_product, context, bench->gpu->fake ? 1 : 16};
    *value = gpu_time(bench->gpu, &work) / work.count;
}

static void sample_peer(struct bench *bench, void *context, double *value) {
    const struct peer_case *of = context;
    uint32_t count = bench->options.quick ? 1 : SAMPLE_STEPS;
    double sum = 0;
    peer_resume(of->peer);
    for (uint32_t i = 0; i < count; i++) sum += peer_step(of->peer, of->name);
    peer_pause(of->peer);
    *value = sum / count;
}

/* ---- the peer ---- */

static void start_peer(struct bench *bench, const struct gpu_job *job, struct peer *peer) {
    struct peer_job of = {.topic = job->topic, .script = job->script, .arguments = job->arguments};
    if (bench->gpu->fake) of.not_now = "the fake driver's times mean nothing";
    peer_start(bench, peer, &of);
}

/* Weights that have learned something, so that a wrong model would not have their loss. */
static void compare_losses(struct bench *bench, struct training *training, struct peer *peer) {
    if (peer->count == 0) return;
    double theirs = peer_loss(peer, training->net), ours = loss_of(training);
    fprintf(bench->gpu->table, "%s: loss by the same weights: ours %.5f, the peer's %.5f\n",
            training->job->topic, ours, theirs);
    bench_answer(bench, fabs(ours - theirs) <= LOSS_TOLERANCE * fmax(1, fabs(ours)),
                 "%s: the peer's loss by the same weights", training->job->topic);
}

/* ---- results ---- */

enum { PRODUCT, HOST, ONE, AGAIN, TWO, OWN_MOST };

struct run {
    const struct gpu_job *job;
    struct gpu_product *product;
    struct training *trainings[STAGES_MOST];
    uint32_t training_count, case_count;
    struct bench_case cases[OWN_MOST + PEER_NAMES_MOST];
    struct peer peer;
    struct peer_case peers[PEER_NAMES_MOST];
    uint64_t bytes_used;
    double peer_bytes; /* NaN: not told */
};

/* flops / seconds as part of `roof[round]` or, where that is NULL, of `peak`. */
static struct bench_result *add_share(struct bench *bench, const struct run *run,
                                      const struct bench_case *one, uint32_t gpus, bool of_roof,
                                      double peak) {
    double *shares = bench_take(bench, one->count, sizeof *shares);
    const struct bench_case *product = &run->cases[PRODUCT];
    for (uint32_t i = 0; i < one->count; i++) {
        double roof = of_roof ? gpu_product_flops(run->product) / product->samples[i] : peak;
        shares[i] = run->job->flops / one->samples[i] / (roof * gpus);
    }
    struct bench_result *result =
        bench_add(bench, "fraction", shares, one->count, "%s/%s/%s", run->job->topic,
                  of_roof ? "of-roof" : "mfu", one->label);
    result->higher_is_better = true;
    result->ideal = 1.0;
    return result;
}

static void add_rates(struct bench *bench, const struct run *run, const struct bench_case *one,
                      const struct training *training) {
    const struct gpu_job *job = run->job;
    char words[96];
    double peak = gpu_peak_bf16(bench->gpu, words);
    double *rates = bench_take(bench, one->count, sizeof *rates);
    for (uint32_t i = 0; i < one->count; i++) rates[i] = job->item_count / one->samples[i];
    struct bench_result *result =
        bench_add(bench, job->rate_unit, rates, one->count, "%s/rate/%s", job->topic, one->label);
    result->higher_is_better = true;
    result = add_share(bench, run, one, training->stages, true, 0);
    snprintf(result->note, sizeof result->note, "of the product's; %s", job->flops_words);
    if (isfinite(peak)) {
        result = add_share(bench, run, one, training->stages, false, peak);
        snprintf(result->note, sizeof result->note, "of %s", words);
    }
    if (training->stages == 1) result->at_least = job->mfu_least;
}

static struct bench_result *add_step(struct bench *bench, const struct run *run,
                                     const struct bench_case *one,
                                     const struct training *training) {
    const struct gpu_job *job = run->job;
    double roof = gpu_product_flops(run->product) /
                  bench_median(run->cases[PRODUCT].samples, run->cases[PRODUCT].count);
    struct bench_result *result =
        bench_add(bench, "s", one->samples, one->count, "%s/step/%s", job->topic, one->label);
    result->ideal = job->flops / roof / (training == NULL ? 1 : training->stages);
    if (training != NULL)
        snprintf(result->note, sizeof result->note, "%lld rows in %u micro-batches",
                 (long long)job->rows, training->chunks);
    return result;
}

static struct bench_result *add_one_bytes(struct bench *bench, const struct run *run,
                                          const char *what, double bytes) {
    double *value = bench_take(bench, 1, sizeof *value);
    *value = bytes;
    return bench_add(bench, "B", value, 1, "%s/memory/%s", run->job->topic, what);
}

static void add_bytes(struct bench *bench, const struct run *run) {
    const struct weir_plan *plan = weir_pipe_plan(weir_net_pipe(run->trainings[0]->net));
    const struct weir_device_plan *device = &plan->devices[0];
    struct bench_result *result = add_one_bytes(bench, run, "plan", (double)device->total);
    snprintf(result->note, sizeof result->note, "activations %.3g GB, workspace %.3g GB",
             (double)device->activations * 1e-9, (double)device->workspace * 1e-9);
    if (run->bytes_used > 0) {
        result = add_one_bytes(bench, run, "used", (double)run->bytes_used);
        snprintf(result->note, sizeof result->note,
                 "what the GPU has less once the net has trained: the plan, libraries, kernels");
    }
    if (run->peer.count == 0 || !isfinite(run->peer_bytes)) return;
    result = add_one_bytes(bench, run, "peer", run->peer_bytes);
    snprintf(result->note, sizeof result->note, "the most it had, over all its variants");
}

static void add_roofs(struct bench *bench, const struct run *run) {
    const struct bench_case *product = &run->cases[PRODUCT], *host = &run->cases[HOST];
    double *flops = bench_take(bench, product->count, sizeof *flops);
    char words[96];
    for (uint32_t i = 0; i < product->count; i++)
        flops[i] = gpu_product_flops(run->product) / product->samples[i];
    struct bench_result *result =
        bench_add(bench, "FLOP/s", flops, product->count, "%s/roof/product", run->job->topic);
    result->higher_is_better = true;
    result->ideal = gpu_peak_bf16(bench->gpu, words);
    snprintf(result->note, sizeof result->note, "data sheet: %s", words);
    result = bench_add(bench, "s", host->samples, host->count, "%s/host/per-task", run->job->topic);
    snprintf(result->note, sizeof result->note,
             "half a micro-batch's time in a net of as many, but tiny, kernels: at most");
}

static void add_against(struct bench *bench, const struct run *run) {
    for (uint32_t i = 0; i < run->peer.count; i++) {
        const struct bench_case *peer = &run->cases[run->case_count + i];
        snprintf(add_step(bench, run, peer, NULL)->note, BENCH_NOTE_BYTES, "%s", run->peer.about);
        struct bench_result *result = bench_add_ratio(
            bench, peer, &run->cases[ONE], "%s/speed-to/%s", run->job->topic, peer->label);
        result->higher_is_better = true;
        if (strcmp(peer->label, run->job->judged) == 0) result->at_least = PEER_AT_LEAST;
        snprintf(result->note, sizeof result->note, "its time by ours of one stage; goal 1.2x");
    }
}

static void report(struct bench *bench, const struct run *run) {
    add_roofs(bench, run);
    for (uint32_t i = 0; i < run->training_count; i++) {
        const struct bench_case *one = &run->cases[i == 0 ? ONE : TWO];
        add_step(bench, run, one, run->trainings[i]);
        add_rates(bench, run, one, run->trainings[i]);
    }
    if (run->training_count > 1)
        bench_add_ratio(bench, &run->cases[ONE], &run->cases[TWO], "%s/speed-up/2-stages",
                        run->job->topic)
            ->higher_is_better = true;
    add_bytes(bench, run);
    add_against(bench, run);
    bench_add_ratio(bench, &run->cases[ONE], &run->cases[AGAIN], "%s/control", run->job->topic)
        ->control = true;
}

/* ---- the run ---- */

static void check_answers(struct bench *bench, const struct run *run) {
    const char *topic = run->job->topic;
    double first = run->trainings[0]->first_loss;
    for (uint32_t i = 0; i < run->training_count; i++) {
        struct training *training = run->trainings[i];
        double last = loss_of(training);
        fprintf(bench->gpu->table, "%s: %s: loss %.5f, after %llu steps %.5f\n", topic,
                training->name, training->first_loss, (unsigned long long)training->steps, last);
        bench_answer(bench, last < training->first_loss, "%s: %s: the loss falls", topic,
                     training->name);
        bench_answer(bench, fabs(training->first_loss - first) <= LOSS_TOLERANCE * fabs(first),
                     "%s: %s: the first loss is the same", topic, training->name);
    }
}

static void add_case(struct run *run, uint32_t at, const char *label,
                     void (*sample)(struct bench *, void *, double *), void *context) {
    run->cases[at] = (struct bench_case){.label = label, .sample = sample, .context = context};
}

static void make_cases(struct bench *bench, struct run *run, struct host *host) {
    const struct gpu_job *job = run->job;
    uint64_t before = gpu_bytes_in_use(bench->gpu);
    run->trainings[run->training_count++] = training_new(bench, job, "1-stage", 1);
    (void)step(run->trainings[0]);
    uint64_t after = gpu_bytes_in_use(bench->gpu);
    run->bytes_used = after > before ? after - before : 0;
    if (bench->gpu->count > 1)
        run->trainings[run->training_count++] = training_new(bench, job, "2-stages", 2);
    add_case(run, PRODUCT, "product", sample_product, run->product);
    add_case(run, HOST, "host", sample_host, host);
    add_case(run, ONE, "1-stage", sample_ours, run->trainings[0]);
    add_case(run, AGAIN, "1-stage", sample_ours, run->trainings[0]);
    run->case_count = TWO;
    if (run->training_count > 1)
        add_case(run, run->case_count++, "2-stages", sample_ours, run->trainings[1]);
    start_peer(bench, job, &run->peer);
    for (uint32_t i = 0; i < run->peer.count; i++) {
        run->peers[i] = (struct peer_case){&run->peer, run->peer.names[i]};
        add_case(run, run->case_count + i, run->peer.names[i], sample_peer, &run->peers[i]);
    }
}

static bool libraries_are_there(struct bench *bench, const struct gpu_job *job) {
    static const char *const libraries[] = {"cuBLASLt", "cuDNN"};
    for (size_t i = 0; i < WEIR__COUNT_OF(libraries) && !bench->gpu->fake; i++) {
        struct weir_error error = {0};
        if (weir__cuda_library_check(libraries[i], &error) == WEIR_OK) continue;
        fprintf(bench->text, "%s: not measured: %s\n", job->topic, error.message);
        return false;
    }
    return true;
}

void gpu_train(struct bench *bench, const struct gpu_job *job) {
    struct run *run = bench_take(bench, 1, sizeof *run);
    run->job = job;
    if (!libraries_are_there(bench, job)) return;
    run->product = gpu_product_new(bench);
    struct host *host = host_new(bench, job);
    make_cases(bench, run, host);
    bench_interleave(bench, run->cases, run->case_count + run->peer.count);
    check_answers(bench, run);
    run->peer_bytes = run->peer.count > 0 ? peer_ask(&run->peer, "memory", "bytes") : NAN;
    compare_losses(bench, run->trainings[0], &run->peer);
    report(bench, run);
    peer_stop(&run->peer);
    for (uint32_t i = 0; i < run->training_count; i++) weir_net_destroy(run->trainings[i]->net);
    weir_net_destroy(host->training.net);
    gpu_product_destroy(run->product);
}
