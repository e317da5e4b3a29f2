/* SPDX-License-Identifier: MIT */
/*
 * What does it cost that a pipe's workers are processes, on one host or on several? Run as two
 * ranks, or, for skips past a rank, three: --launcher 'mpiexec -n 2'.
 *
 * Napkin. Within a host MPI hands 4 KiB over in some 2 us (half of a round trip); the engine adds a
 * look at the message, a gate and two stamps, well below one. Large messages are MPI's copies,
 * twice through the cache: the engine adds nothing to a byte. GPT S crosses 16 rows x 128 x 256 f32
 * = 2 MB forth and as much back in a step of 0.4 s: 1 ms by memory, 34 ms over 1 Gbit/s, of which
 * all but the first micro-batch's hide. GPT M, 4 MB each way in 2 s: 2%.
 *
 * Two ranks: a hand-off and crossings against MPI's own ping-pong; GPT S trained by two ranks of a
 * core each against two threads, where the ranks share a host of two cores; and, with stages that
 * only sleep as long as the model's tasks were measured to take, and move its bytes, GPT S against
 * its simulation with the links' alpha and beta measured just before, and GPT M against threads of
 * one process. Three ranks: the U-Net so, whose skips go past the middle one. The peer is
 * torch.distributed.pipelining over gloo, a process on each rank's host.
 */
#include "hosts.h"
#include "peer.h"

#include "world/allreduce.h"
#include "world/links.h"

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static const double HAND_OFF_AT_MOST = 1.5, BANDWIDTH_AT_LEAST = 0.9, TRAINED_AT_MOST = 1.03;
static const double SIMULATED_OFF = 0.05, ASLEEP_AT_MOST = 1.05;

enum { HAND_OFF_BYTES = 4096, CHUNKS = 4, SIZES = 3 };
static const uint64_t large_bytes[SIZES] = {1 << 20, 4 << 20, 16 << 20};

static const struct training_job gpt_s = {
    .topic = "hosts", .rows = 16, .unit = 1, .adamw = true, .gpt = {6, 256, 8, 128, 256, false, 0}};
static const struct training_job gpt_m = {
    .topic = "hosts", .rows = 8, .unit = 1, .adamw = true, .gpt = {8, 512, 8, 256, 256, false, 0}};
static const struct training_job unet = {
    .topic = "hosts", .rows = 16, .unit = 4, .unet = {5, 2, 16, 3, 1, 96, 96, 0.1}};

/* ---- ranks ---- */

void hosts_meet(const struct hosts *hosts) {
    unsigned char mark = 0;
    bench_check(weir__world_gather(&hosts->world, NULL, &mark, 1, NULL), "hosts: meeting");
}

void hosts_tell(const struct hosts *hosts, void *data, size_t bytes) {
    if (hosts->world.rank > 0) memset(data, 0, bytes);
    bench_check(weir__world_gather(&hosts->world, NULL, data, bytes, NULL), "hosts: telling");
}

/* Ranks of one name share a host. */
static void number_hosts(struct hosts *hosts) {
    char names[HOSTS_RANKS_MOST][sizeof hosts->world.host] = {0};
    uint32_t ranks = hosts->world.rank_count;
    memcpy(names[hosts->world.rank], hosts->world.host, sizeof names[0]);
    bench_check(weir__world_gather(&hosts->world, NULL, names, sizeof names, NULL), "hosts: names");
    hosts->one_host = true;
    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t first = 0;
        while (strcmp(names[first], names[r]) != 0) first++;
        hosts->numbers[r] = first;
        hosts->one_host = hosts->one_host && first == 0;
    }
}

static void measure_links(struct hosts *hosts) {
    struct bench *bench = hosts->bench;
    const struct weir__links_how how = {0};
    struct weir_faults faults = WEIR_FAULTS_INIT;
    uint32_t ranks = hosts->world.rank_count;
    bench_check_faults(weir__links_measure(&hosts->world, &how, hosts->costs, &faults),
                       "hosts: the links", &faults);
    for (uint32_t i = 0; i < ranks * ranks; i++) {
        const struct weir_link_cost *cost = &hosts->costs[i];
        uint32_t from = i / ranks, to = i % ranks;
        double *beta = bench_take(bench, 1, sizeof *beta);
        if (from == to) continue;
        *beta = 1.0 / fmax(cost->seconds_per_byte, 1e-15);
        bench_add(bench, "s", &cost->latency, 1, "hosts/link/%u-%u/alpha", from, to);
        bench_add(bench, "B/s", beta, 1, "hosts/link/%u-%u/beta", from, to)->higher_is_better =
            true;
    }
}

/* ---- MPI's own ---- */

struct ping {
    const struct hosts *hosts;
    uint64_t bytes;
    unsigned char *out, *in;
};

static int finish(const struct weir_world *world, struct weir_request *request) {
    bool ended = false;
    for (uint32_t turn = 1; !ended; turn++) {
        int status = world->calls->test(world->context, request, &ended, NULL);
        if (status != WEIR_OK) return status;
        if (turn % 1000 == 0) sched_yield();
    }
    return WEIR_OK;
}

static int send_and_receive(const struct ping *ping, bool sends) {
    const struct weir_world *world = &ping->hosts->world;
    const struct weir_message message = {
        .data = sends ? ping->out : ping->in, .bytes = ping->bytes, .peer = 1 - world->rank};
    struct weir_request request;
    int status = sends ? world->calls->send(world->context, &message, &request)
                       : world->calls->receive(world->context, &message, &request);
    return status == WEIR_OK ? finish(world, &request) : status;
}

/* Half of a round trip, of as many as take some tenths of a second. */
static void sample_ping(struct bench *bench, void *context, double *value) {
    const struct ping *ping = context;
    uint32_t rounds = ping->bytes > HAND_OFF_BYTES ? 10 : 4000;
    bool first = ping->hosts->world.rank == 0;
    if (bench->options.quick) rounds = rounds / 10 + 1;
    hosts_meet(ping->hosts);
    uint64_t begin = weir__now_ns();
    for (uint32_t i = 0; i < rounds; i++) {
        bench_check(send_and_receive(ping, first), "hosts: a ping");
        bench_check(send_and_receive(ping, !first), "hosts: a pong");
    }
    *value = (double)(weir__now_ns() - begin) * 1e-9 / (2.0 * rounds);
}

/* ---- the engine's ---- */

/* Two ways down and back through stages that do nothing, a short one and a long one: what a
 * crossing more takes. */
struct chain {
    const struct hosts *hosts;
    uint64_t bytes;
    uint32_t stages[2], steps;
};

static double time_chain(struct bench *bench, const struct chain *chain, uint32_t stages) {
    struct hosts_shape *shape = bench_take(bench, 1, sizeof *shape);
    struct hosts_pipe *pipe = bench_take(bench, 1, sizeof *pipe);
    double samples[256];
    snprintf(shape->name, sizeof shape->name, "a chain");
    shape->stages = stages;
    shape->workers = 2;
    shape->chunks = 1;
    for (uint32_t s = 0; s < stages; s++) shape->borders[s] = chain->bytes;
    shape->borders[stages - 1] = sizeof(float);
    hosts_pipe_open(bench, pipe, shape, &chain->hosts->world);
    for (uint32_t i = 0; i < 3; i++) (void)hosts_pipe_step(pipe);
    for (uint32_t i = 0; i < chain->steps; i++) samples[i] = hosts_pipe_step(pipe);
    hosts_pipe_close(pipe);
    return bench_median(samples, chain->steps);
}

static void sample_chain(struct bench *bench, void *context, double *value) {
    const struct chain *chain = context;
    double less = time_chain(bench, chain, chain->stages[0]);
    double more = time_chain(bench, chain, chain->stages[1]);
    *value = (more - less) / (2.0 * (chain->stages[1] - chain->stages[0]));
}

static void compare_with_mpi(struct hosts *hosts, uint64_t bytes) {
    struct bench *bench = hosts->bench;
    bool large = bytes > HAND_OFF_BYTES;
    struct ping ping = {.hosts = hosts,
                        .bytes = bytes,
                        .out = bench_take(bench, bytes, 1),
                        .in = bench_take(bench, bytes, 1)};
    struct chain chain = {
        .hosts = hosts, .bytes = bytes, .stages = {4, large ? 12 : 64}, .steps = large ? 5 : 100};
    struct bench_case cases[] = {{.label = "engine", .sample = sample_chain, .context = &chain},
                                 {.label = "mpi", .sample = sample_ping, .context = &ping}};
    const char *unit = large ? "MiB" : "KiB";
    uint32_t size = (uint32_t)(large ? bytes >> 20 : bytes >> 10);
    bench_interleave(bench, cases, 2);
    for (int i = 0; i < 2; i++)
        bench_add(bench, "s", cases[i].samples, cases[i].count, "hosts/crossing/%u%s/%s", size,
                  unit, cases[i].label);
    struct bench_result *result =
        bench_add_ratio(bench, &cases[large], &cases[!large], "hosts/crossing/%u%s/%s", size, unit,
                        large ? "of-mpi" : "to-mpi");
    result->higher_is_better = large; /* MPI's time in the engine's: the part of its bandwidth */
    if (large) result->at_least = BANDWIDTH_AT_LEAST;
    if (!large && hosts->one_host) result->at_most = HAND_OFF_AT_MOST;
}

/* ---- a model trained ---- */

/* In two processes, one where each rank is. */
struct apart {
    const struct hosts *hosts;
    struct peer peer;
    char meet[512]; /* the file that they meet by */
    uint32_t count; /* variants, known to all ranks */
    char names[PEER_NAMES_MOST][48];
};

struct apart_case {
    struct apart *apart;
    uint32_t number;
};

static void start_apart(struct hosts *hosts, const struct training_job *job, struct apart *apart) {
    struct bench *bench = hosts->bench;
    const struct weir_gpt_options *gpt = &job->gpt;
    char arguments[1024], folder[256];
    struct peer_job of = {
        .topic = "hosts/trained/gpt-s", .script = "gpt_pipelining.py", .arguments = arguments};
    if (bench->options.quick) of.not_now = "--quick's times mean nothing";
    if (getcwd(folder, sizeof folder) == NULL) bench_die("hosts: no folder to meet in");
    snprintf(apart->meet, sizeof apart->meet, "%s/.weir-bench-%ld", folder, (long)getpid());
    hosts_tell(hosts, apart->meet, sizeof apart->meet);
    snprintf(arguments, sizeof arguments,
             "--apart --rank %u --meet '%s' --threads 1 --chunks %d --batch %u --layers %u "
             "--width %u --heads %u --context %u --vocab %u --tokens %u",
             hosts->world.rank, apart->meet, CHUNKS, job->rows, gpt->layers, gpt->width, gpt->heads,
             gpt->context, gpt->vocab, gpt->vocab);
    peer_start(bench, &apart->peer, &of);
    if (apart->peer.count > 0 && hosts->world.rank > 0) peer_resume(&apart->peer);
    apart->count = apart->peer.count;
    memcpy(apart->names, apart->peer.names, sizeof apart->names);
    hosts_tell(hosts, &apart->count, sizeof apart->count);
    hosts_tell(hosts, apart->names, sizeof apart->names);
    if (apart->peer.process > 0) peer_pause(&apart->peer);
}

/* Rank 0's says the end to the other, which may still wait for the one that never came. */
static void stop_apart(struct apart *apart) {
    bool first = apart->hosts->world.rank == 0;
    if (apart->peer.process > 0) peer_resume(&apart->peer);
    hosts_meet(apart->hosts);
    if (first) peer_stop(&apart->peer);
    hosts_meet(apart->hosts);
    if (!first && apart->peer.process > 0) kill(-apart->peer.process, SIGTERM);
    peer_stop(&apart->peer);
    if (first) unlink(apart->meet);
}

static void sample_apart(struct bench *bench, void *context, double *value) {
    const struct apart_case *of = context;
    struct apart *apart = of->apart;
    (void)bench;
    *value = 1.0;
    if (apart->peer.process > 0) peer_resume(&apart->peer);
    hosts_meet(apart->hosts);
    if (apart->hosts->world.rank == 0) {
        double first = peer_step(&apart->peer, apart->names[of->number]);
        double second = peer_step(&apart->peer, apart->names[of->number]);
        *value = fmin(first, second);
    }
    hosts_meet(apart->hosts);
    if (apart->peer.process > 0) peer_pause(&apart->peer);
}

struct trained {
    const struct hosts *hosts;
    const struct training_job *job;
    bool over_ranks;
    double loss; /* by the first weights */
};

static void sample_trained(struct bench *bench, void *context, double *value) {
    struct trained *trained = context;
    struct training_shape shape = {.name = trained->over_ranks ? "ranks" : "threads",
                                   .schedule = "zb-h1",
                                   .stages = 2,
                                   .workers = 2,
                                   .chunks = CHUNKS,
                                   .threads = 1,
                                   .checkpoint = {WEIR_CHECKPOINT_NEVER, WEIR_CHECKPOINT_NEVER}};
    struct training training;
    (void)bench;
    *value = 1.0;
    if (trained->over_ranks) shape.world = &trained->hosts->world;
    if (trained->over_ranks || trained->hosts->world.rank == 0) {
        training_new(trained->job, &shape, &training);
        trained->loss = training_loss(&training);
        training_step(&training);
        double first = training_step(&training), second = training_step(&training);
        *value = fmin(first, second);
        training_clean_up(&training);
    }
    hosts_meet(trained->hosts);
}

enum { RANKS, THREADS, TRAINED };

static void add_trained(struct bench *bench, const struct bench_case *cases, uint32_t count,
                        const struct apart *apart) {
    const struct bench_case *best = NULL;
    for (uint32_t i = 0; i < count; i++) {
        const struct bench_case *one = &cases[i];
        bool theirs = one->sample == sample_apart;
        struct bench_result *result =
            bench_add(bench, "s", one->samples, one->count, "hosts/trained/gpt-s/%s", one->label);
        if (!theirs) continue;
        snprintf(result->note, sizeof result->note, "%s", apart->peer.about);
        double median = bench_median(one->samples, one->count);
        if (best == NULL || median < bench_median(best->samples, best->count)) best = one;
    }
    if (best == NULL) return;
    struct bench_result *result =
        bench_add_ratio(bench, &cases[RANKS], best, "hosts/trained/gpt-s/to-peer");
    snprintf(result->note, sizeof result->note, "the peer's best: %s", best->label);
}

/* By two ranks with a core each; threads, where this process has both. */
static void compare_trained(struct hosts *hosts) {
    struct bench *bench = hosts->bench;
    struct training_job job = gpt_s;
    struct apart *apart = bench_take(bench, 1, sizeof *apart);
    struct apart_case variants[PEER_NAMES_MOST];
    bool threads = hosts->one_host && bench->facts.usable_cores >= TRAINING_CORES;
    uint32_t count = threads ? TRAINED : THREADS;
    job.level = bench_level();
    apart->hosts = hosts;
    training_make(bench, &job);
    start_apart(hosts, &job, apart);
    struct trained both[] = {{hosts, &job, true, NAN}, {hosts, &job, false, NAN}};
    struct bench_case cases[TRAINED + PEER_NAMES_MOST] = {
        {.label = "ranks", .sample = sample_trained, .context = &both[RANKS]},
        {.label = "threads", .sample = sample_trained, .context = &both[THREADS]}};
    for (uint32_t i = 0; i < apart->count; i++) {
        variants[i] = (struct apart_case){apart, i};
        cases[count++] = (struct bench_case){
            .label = apart->names[i], .sample = sample_apart, .context = &variants[i]};
    }
    bench_interleave(bench, cases, count);
    add_trained(bench, cases, count, apart);
    stop_apart(apart);
    training_job_clean_up(&job);
    if (!threads) {
        bench_absent(bench, "hosts/trained/gpt-s/threads: ranks of one host with two usable cores");
        return;
    }
    bench_add_ratio(bench, &cases[RANKS], &cases[THREADS], "hosts/trained/gpt-s/to-threads")
        ->at_most = TRAINED_AT_MOST;
    if (hosts->world.rank == 0)
        bench_answer(bench, memcmp(&both[0].loss, &both[1].loss, sizeof both[0].loss) == 0,
                     "hosts/trained/gpt-s: the same loss, to the last bit");
}

/* ---- models asleep ---- */

struct asleep {
    const struct hosts *hosts;
    const struct hosts_shape *shape;
    bool over_ranks;
};

static void sample_asleep(struct bench *bench, void *context, double *value) {
    const struct asleep *asleep = context;
    struct hosts_pipe *pipe = bench_take(bench, 1, sizeof *pipe);
    *value = 1.0;
    if (asleep->over_ranks || asleep->hosts->world.rank == 0) {
        hosts_pipe_open(bench, pipe, asleep->shape,
                        asleep->over_ranks ? &asleep->hosts->world : NULL);
        (void)hosts_pipe_step(pipe);
        *value = hosts_pipe_step(pipe);
        hosts_pipe_close(pipe);
    }
    hosts_meet(asleep->hosts);
}

static void add_simulated(struct bench *bench, const struct bench_case *one, double predicted,
                          const char *name) {
    double *ratios = bench_take(bench, one->count, sizeof *ratios);
    for (uint32_t i = 0; i < one->count; i++) ratios[i] = one->samples[i] / predicted;
    struct bench_result *result =
        bench_add(bench, "ratio", ratios, one->count, "hosts/asleep/%s/to-simulated", name);
    result->ideal = 1.0;
    result->at_least = 1.0 - SIMULATED_OFF;
    result->at_most = 1.0 + SIMULATED_OFF;
}

static void compare_asleep(struct hosts *hosts, const struct training_job *job, const char *name,
                           const char *schedule) {
    struct bench *bench = hosts->bench;
    struct training_job leveled = *job;
    struct hosts_shape *shape = bench_take(bench, 1, sizeof *shape);
    leveled.level = bench_level();
    hosts_shape_measure(hosts, &leveled, name, schedule, hosts->world.rank_count, CHUNKS, shape);
    struct asleep both[] = {{hosts, shape, true}, {hosts, shape, false}};
    struct bench_case cases[] = {
        {.label = "ranks", .sample = sample_asleep, .context = &both[0]},
        {.label = "threads", .sample = sample_asleep, .context = &both[1]}};
    bench_interleave(bench, cases, 2);
    for (int i = 0; i < 2; i++) {
        double predicted = hosts_shape_predict(hosts, shape, i == 1);
        bench_add(bench, "s", cases[i].samples, cases[i].count, "hosts/asleep/%s/%s", name,
                  cases[i].label)
            ->ideal = predicted;
        if (i == 0) add_simulated(bench, &cases[i], predicted, name);
    }
    struct bench_result *result =
        bench_add_ratio(bench, &cases[0], &cases[1], "hosts/asleep/%s/to-threads", name);
    if (job == &gpt_m) result->at_most = ASLEEP_AT_MOST; /* its borders hide */
}

/* ---- the topic ---- */

static void run_cases(struct hosts *hosts) {
    measure_links(hosts);
    if (hosts->world.rank_count == 3) {
        compare_asleep(hosts, &unet, "unet", "1f1b");
        return;
    }
    compare_with_mpi(hosts, HAND_OFF_BYTES);
    for (int i = 0; i < SIZES; i++) compare_with_mpi(hosts, large_bytes[i]);
    compare_trained(hosts);
    compare_asleep(hosts, &gpt_s, "gpt-s", "zb-h1");
    compare_asleep(hosts, &gpt_m, "gpt-m", "zb-h1");
}

void bench_hosts(struct bench *bench) {
    struct hosts *hosts = bench_take(bench, 1, sizeof *hosts);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    hosts->bench = bench;
    bench_check_faults(weir_world_mpi(NULL, NULL, &faults, &hosts->world), "hosts", &faults);
    if (hosts->world.rank_count == 2 || hosts->world.rank_count == 3) {
        number_hosts(hosts);
        run_cases(hosts);
        hosts_meet(hosts);
    } else {
        bench_absent(bench, "hosts: of %u process%s: --launcher 'mpiexec -n 2', and -n 3",
                     hosts->world.rank_count, hosts->world.rank_count == 1 ? "" : "es");
    }
    hosts->world.calls->close(hosts->world.context);
}
