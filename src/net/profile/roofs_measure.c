/* SPDX-License-Identifier: MIT */
/* Measuring a machine's roofs. */
#include "net/profile/roofs.h"

#include "net/compile/model_file.h"
#include "net/profile/profile.h"
#include "place/place.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the small nets ---- */

struct small_net {
    const char *text;
    int64_t rows;
    uint32_t steps_least; /* 0: one */
};

#define TEXT(width, heads, context, dropout)                                                       \
    "{\"input\":{\"dtype\":\"i64\",\"shape\":[" context "]},\"target\":{\"dtype\":\"i64\","        \
    "\"shape\":[" context                                                                          \
    "]},\"layers\":[{\"type\":\"gpt_embedding\",\"vocab\":256,\"context\":" context                \
    ",\"width\":" width ",\"dropout\":" dropout "},{\"type\":\"gpt_block\",\"width\":" width       \
    ",\"heads\":" heads ",\"dropout\":" dropout ",\"layers\":1},{\"type\":\"gpt_head\","           \
    "\"width\":" width ",\"vocab\":256}],\"loss\":\"cross_entropy\"}"
#define IMAGE(side, loss, layers)                                                                  \
    "{\"input\":{\"dtype\":\"f32\",\"shape\":[3," side "," side "]}," loss ",\"layers\":[" layers  \
    "]}"
#define CONV(out, kernel, padding)                                                                 \
    "{\"type\":\"conv2d\",\"out_channels\":" out ",\"kernel_size\":" kernel                        \
    ",\"padding\":" padding "},"
#define PLAIN(type) "{\"type\":\"" type "\"},"
#define CLASSES "\"target\":{\"dtype\":\"i64\",\"shape\":[]},\"loss\":\"cross_entropy\""
#define LINEAR(out) "{\"type\":\"linear\",\"out_features\":" out "}"
#define NORM PLAIN("instance_norm2d")
#define STASH(name) "{\"type\":\"stash\",\"skip\":\"" name "\"},"
#define POP(type, name) "{\"type\":\"" type "\",\"skip\":\"" name "\"},"
#define HALF "{\"type\":\"max_pool2d\",\"kernel_size\":2},"
#define DOUBLE "{\"type\":\"upsample\",\"scale_factor\":2},"

static const struct small_net small_nets[] = {
    {TEXT("64", "2", "32", "0.1"), 2},
    {"{\"input\":{\"dtype\":\"f32\",\"shape\":[64]}," CLASSES
     ",\"layers\":[" LINEAR("256") "," PLAIN("relu") LINEAR("256") "," PLAIN("gelu")
         LINEAR("256") "," PLAIN("tanh") PLAIN("layer_norm") PLAIN("rms_norm") PLAIN("sigmoid")
             LINEAR("64") "," PLAIN("softmax") PLAIN("dropout") LINEAR("10") "]}",
     8},
    {IMAGE("16", CLASSES,
           CONV("16", "3", "1") PLAIN("relu") STASH("a") HALF CONV("32", "3", "1") PLAIN("silu")
               CONV("64", "1", "0") PLAIN("gelu") CONV("128", "3", "1") PLAIN("leaky_relu")
                   CONV("256", "3", "1") CONV("128", "1", "0") NORM
           "{\"type\":\"conv2d\",\"out_channels\":64,"
           "\"kernel_size\":3,\"padding\":1,\"groups\":4}," DOUBLE POP(
               "pop_concat", "a") "{\"type\":\"avg_pool2d\",\"kernel_size\":2}," PLAIN("dropout2d")
               PLAIN("sigmoid") "{\"type\":\"adaptive_avg_pool2d\",\"output_size\":"
                                "1}," PLAIN("flatten") LINEAR("10")),
     4},
    {IMAGE("48", "\"target\":{\"dtype\":\"f32\",\"shape\":[1,48,48]},\"loss\":\"bce_with_logits\"",
           CONV("16", "3", "1") NORM PLAIN("leaky_relu") STASH("a") HALF CONV("32", "3", "1")
               NORM PLAIN("leaky_relu") STASH("b") CONV("32", "3", "1") NORM PLAIN(
                   "leaky_relu") POP("pop_add", "b") DOUBLE CONV("16", "3", "1")
                   POP("pop_concat", "a") CONV("8", "3", "1") NORM PLAIN("leaky_relu") CONV(
                       "8", "3", "1") "{\"type\":\"conv2d\",\"out_channels\":1,\"kernel_size\":1}"),
     1},
    {IMAGE("16", CLASSES,
           CONV("64", "3", "1") CONV("64", "3", "1") HALF CONV("384", "1", "0")
               CONV("384", "3", "1") "{\"type\":\"adaptive_avg_pool2d\",\"output_size\":1}," PLAIN(
                   "flatten") LINEAR("10")),
     4}};

/* By which threads are judged. */
static const struct small_net shared_net = {TEXT("256", "4", "128", "0.0"), 2};

/* By which memory is judged, with few rows and with as many as make a tensor of twice the second
 * cache; and what batch norms join. */
static const struct small_net memory_net = {
    "{\"input\":{\"dtype\":\"f32\",\"shape\":[8,32,32]}," CLASSES
    ",\"layers\":[" PLAIN("batch_norm2d") PLAIN("relu") STASH("a") PLAIN("batch_norm2d")
        POP("pop_add", "a") PLAIN("leaky_relu") PLAIN(
            "batch_norm2d") "{\"type\":\"adaptive_avg_pool2d\",\"output_size\":1}," PLAIN("flatten")
            LINEAR("10") "]}",
    2};
static const double ROW_BYTES = 8 * 32 * 32 * 4;
enum { MANY_LEAST = 64, MANY_MOST = 512, MANY_STEPS = 3 };

/* Of a call beyond the cache memory takes so much: at most where the rest is a sample, since that
 * is not known so well; at least where memory is judged, since what small nets touch is nearer than
 * what large ones do. */
#define MEMORY_PART 0.5

enum { SMALL_NETS = sizeof small_nets / sizeof small_nets[0], CALLS_MAX = 256, TURNS = 3 };

/* ---- measuring ---- */

/* A net's calls, in order. */
struct calls {
    struct weir__roofs *roofs; /* which take them as samples; NULL: none */
    uint32_t count;
    double least[CALLS_MAX], typical[CALLS_MAX], bytes[CALLS_MAX];
};

static struct weir__roof_sample *sample_of(struct weir__roofs *roofs,
                                           const struct weir__roof_shape *shape) {
    for (uint32_t i = 0; i < roofs->count; i++)
        if (roofs->samples[i].op == shape->op &&
            memcmp(roofs->samples[i].size, shape->size, sizeof shape->size) == 0)
            return &roofs->samples[i];
    if (roofs->count == WEIR__ROOF_SAMPLES_MAX) return NULL;
    struct weir__roof_sample *sample = &roofs->samples[roofs->count++];
    *sample = (struct weir__roof_sample){.op = shape->op, .rate = INFINITY};
    memcpy(sample->size, shape->size, sizeof sample->size);
    return sample;
}

/* Of calls of one shape the fastest is the sample. */
static void add_sample(struct weir__roofs *roofs, const struct weir__roof_shape *shape,
                       double took) {
    if (!(took > 0) || !(shape->work > 0)) return;
    struct weir__roof_sample *sample = sample_of(roofs, shape);
    if (sample == NULL) return;
    double seconds = fmax(took - weir__roofs_beyond(roofs, shape), (1 - MEMORY_PART) * took);
    sample->rate = fmin(sample->rate, seconds / shape->work);
    if (shape->op == WEIR__OP_linear) roofs->product = fmax(roofs->product, 2 / sample->rate);
}

static void take_call(void *context, const struct weir__profile_call *call) {
    struct calls *calls = context;
    struct weir__roof_shape shape = weir__roof_shape(call->node, call->rows);
    assert(call->least <= call->typical);
    if (calls->count == CALLS_MAX) return;
    if (calls->roofs != NULL) add_sample(calls->roofs, &shape, call->least);
    uint32_t at = calls->count++;
    calls->least[at] = call->least;
    calls->typical[at] = call->typical;
    calls->bytes[at] = shape.bytes;
}

static int time_net(struct calls *calls, const struct small_net *net, const struct weir_profile *of,
                    uint32_t threads) {
    struct weir_profile_options options = WEIR_PROFILE_OPTIONS_INIT;
    struct weir_model *model;
    int status = weir__model_text_read(NULL, net->text, strlen(net->text), "roofs", NULL, &model);
    assert(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY);
    if (status != WEIR_OK) return status;
    options.net.pipe.rows = net->rows;
    options.net.pipe.chunks = 1;
    options.net.pipe.threads_per_worker = threads;
    options.net.pipe.bind = "none";
    options.net.pipe.wait = WEIR_WAIT_SPIN; /* as a worker that has its cores */
    options.net.dtype = of->dtype;
    options.net.reference = of->reference;
    options.net.level = of->dtype == WEIR_F64 || of->reference ? NULL : of->libraries;
    options.warm_up = 0; /* a step's first micro-batch does it */
    options.steps_least = net->steps_least > 0 ? net->steps_least : 1;
    options.seconds = 0.01;
    calls->count = 0;
    status = weir__profile_calls(model, &options, take_call, calls, NULL);
    weir_model_destroy(model);
    return status;
}

/* A net on one thread, and on all of them. */
struct teams {
    const struct weir_profile *of;
    uint32_t threads;
    struct calls alone, team;
};

static int time_teams(struct teams *teams, const struct small_net *net) {
    int status = time_net(&teams->alone, net, teams->of, 1);
    if (status != WEIR_OK || teams->threads == 1) return status;
    return time_net(&teams->team, net, teams->of, teams->threads);
}

/* What each further thread adds to one's speed, where calls took so long on one and on all. */
static double added_by_threads(const struct teams *teams, const double *alone, const double *team,
                               double bytes_least) {
    double by_one = 0, by_all = 0;
    assert(teams->threads > 1 && teams->alone.count == teams->team.count);
    for (uint32_t i = 0; i < teams->alone.count; i++) {
        if (alone[i] <= WEIR__ROOF_SHARED_LEAST || teams->alone.bytes[i] < bytes_least) continue;
        by_one += alone[i];
        by_all += team[i];
    }
    double added = by_all > 0 ? (by_one / by_all - 1) / (teams->threads - 1) : 0;
    return fmin(fmax(added, 0), 1);
}

static void keep_least(double *least, const double *of, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) least[i] = fmin(least[i], of[i]);
}

/* A neighbour's moment takes a core from a team, or slows the one thread, and leaves little of the
 * rest: so each call by its best of some turns. Of a turn that is what it typically took, since
 * quiet moments of all cores at once are few. */
static int measure_threads(struct teams *teams, struct weir__roofs *roofs) {
    double alone[CALLS_MAX], team[CALLS_MAX];
    for (int i = 0; i < CALLS_MAX; i++) alone[i] = team[i] = INFINITY;
    teams->alone.roofs = roofs;
    for (int i = 0; i < TURNS; i++) {
        int status = time_teams(teams, &shared_net);
        if (status != WEIR_OK || teams->threads == 1) return status;
        keep_least(alone, teams->alone.typical, teams->alone.count);
        keep_least(team, teams->team.typical, teams->team.count);
    }
    roofs->thread = added_by_threads(teams, alone, team, 0);
    return WEIR_OK;
}

/* Bytes beyond the cache by the seconds that many rows take and as many times few do not; where
 * none are beyond it, as fast as copies. */
static double memory_rate(const struct weir__roofs *roofs, const struct calls *few,
                          const struct calls *many, double times) {
    double bytes = 0, all = 0, within = 0;
    assert(many->count == few->count && times >= 1);
    for (uint32_t i = 0; i < many->count; i++) {
        if (many->bytes[i] <= roofs->cache) continue;
        bytes += many->bytes[i] - roofs->cache;
        all += many->least[i];
        within += times * few->least[i];
    }
    return bytes > 0 ? bytes / fmax(all - within, MEMORY_PART * all) : roofs->copy_cached;
}

/* Of calls, the least: those that touch memory first wait for the system. */
static int measure_memory(struct teams *teams, struct weir__roofs *roofs) {
    struct calls few = {.roofs = roofs};
    struct small_net many = memory_net;
    assert(roofs->cache >= 0 && roofs->memory > 0);
    many.rows = (int64_t)fmin(fmax(2 * roofs->cache / ROW_BYTES, MANY_LEAST), MANY_MOST);
    many.steps_least = MANY_STEPS;
    int status = time_net(&few, &memory_net, teams->of, 1);
    if (status != WEIR_OK) return status;
    if ((status = time_teams(teams, &many)) != WEIR_OK) return status;
    roofs->memory = memory_rate(roofs, &few, &teams->alone, (double)many.rows / memory_net.rows);
    if (teams->threads > 1)
        roofs->memory_thread =
            added_by_threads(teams, teams->alone.least, teams->team.least, roofs->cache);
    return WEIR_OK;
}

static int measure_nets(const struct weir_profile *of, uint32_t cores, struct weir__roofs *roofs) {
    struct teams teams = {.of = of, .threads = cores};
    struct calls calls = {.roofs = roofs};
    /* f64's and references' rates do not depend on size, and threads do not share them */
    bool slow = of->dtype == WEIR_F64 || of->reference;
    int status = slow ? time_net(&calls, &memory_net, of, 1) : measure_memory(&teams, roofs);
    for (uint32_t i = 0; status == WEIR_OK && i < SMALL_NETS; i++)
        status = time_net(&calls, &small_nets[i], of, 1);
    return status != WEIR_OK || slow ? status : measure_threads(&teams, roofs);
}

/* ---- copies ---- */

enum { CACHED = 256 << 10, COPIES = 3 };

/* The best of some: a roof, not a mean. */
static double cached_copy_rate(void) {
    char *to = weir__acquire(NULL, CACHED, 1), *from = weir__acquire(NULL, CACHED, 1);
    uint64_t best = UINT64_MAX;
    if (to != NULL && from != NULL) {
        memset(to, 1, CACHED);
        memset(from, 2, CACHED);
        for (int i = 0; i < COPIES; i++) {
            uint64_t begin = weir__now_ns();
            memcpy(to, from, CACHED);
            uint64_t took = weir__now_ns() - begin;
            if (took < best) best = took;
        }
    }
    weir__release(NULL, to, CACHED, 1);
    weir__release(NULL, from, CACHED, 1);
    return best > 0 && best < UINT64_MAX ? CACHED / ((double)best * 1e-9) : 0;
}

int weir__roofs_measure(const struct weir_profile *of, struct weir__roofs *roofs) {
    struct weir__machine_facts facts = {.usable_cores = 1};
    struct weir__machine *machine;
    roofs->count = 0;
    roofs->product = roofs->thread = roofs->memory_thread = 0;
    if (weir__machine_new(NULL, &machine) == WEIR_OK) {
        weir__machine_facts(machine, &facts);
        weir__machine_destroy(machine);
    }
    roofs->cache = (double)facts.l2_bytes;
    roofs->copy_cached = cached_copy_rate();
    if (roofs->copy_cached <= 0) return WEIR_ERR_OUT_OF_MEMORY;
    roofs->memory = roofs->copy_cached; /* until it was measured */
    int status = measure_nets(of, facts.usable_cores, roofs);
    return status == WEIR_OK && roofs->product <= 0 ? WEIR_ERR_BACKEND : status;
}
