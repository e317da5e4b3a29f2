/* SPDX-License-Identifier: MIT */
/* Measuring a machine's roofs. */
#include "net/profile/roofs.h"

#include "device/device.h"
#include "net/compile/model_file.h"
#include "net/profile/profile.h"
#include "place/place.h"

#include <string.h>

/* ---- the small nets ---- */

struct small_net {
    const char *text;
    int64_t rows;
    bool shared; /* the one by which threads are judged: the last */
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
    {TEXT("64", "2", "32", "0.1"), 2, false},
    {"{\"input\":{\"dtype\":\"f32\",\"shape\":[64]}," CLASSES
     ",\"layers\":[" LINEAR("256") "," PLAIN("relu") LINEAR("256") "," PLAIN("gelu")
         LINEAR("256") "," PLAIN("tanh") PLAIN("layer_norm") PLAIN("rms_norm") PLAIN("sigmoid")
             LINEAR("64") "," PLAIN("softmax") PLAIN("dropout") LINEAR("10") "]}",
     8, false},
    {IMAGE("16", CLASSES,
           CONV("16", "3", "1") PLAIN("relu") STASH("a") HALF CONV("32", "3", "1") PLAIN("silu")
               CONV("64", "1", "0") PLAIN("gelu") CONV("128", "3", "1") PLAIN("leaky_relu")
                   CONV("256", "3", "1") CONV("128", "1", "0") NORM
           "{\"type\":\"conv2d\",\"out_channels\":64,"
           "\"kernel_size\":3,\"padding\":1,\"groups\":4}," DOUBLE POP(
               "pop_concat", "a") "{\"type\":\"avg_pool2d\",\"kernel_size\":2}," PLAIN("dropout2d")
               PLAIN("sigmoid") "{\"type\":\"adaptive_avg_pool2d\",\"output_size\":"
                                "1}," PLAIN("flatten") LINEAR("10")),
     4, false},
    {IMAGE("48", "\"target\":{\"dtype\":\"f32\",\"shape\":[1,48,48]},\"loss\":\"bce_with_logits\"",
           CONV("16", "3", "1") NORM PLAIN("leaky_relu") STASH("a") HALF CONV("32", "3", "1")
               NORM PLAIN("leaky_relu") STASH("b") CONV("32", "3", "1") NORM PLAIN(
                   "leaky_relu") POP("pop_add", "b") DOUBLE CONV("16", "3", "1")
                   POP("pop_concat", "a") CONV("8", "3", "1") NORM PLAIN("leaky_relu") CONV(
                       "8", "3", "1") "{\"type\":\"conv2d\",\"out_channels\":1,\"kernel_size\":1}"),
     1, false},
    {IMAGE("32", CLASSES,
           CONV("64", "3", "1") CONV("64", "3", "1") HALF HALF CONV("384", "1", "0")
               CONV("384", "3", "1") "{\"type\":\"adaptive_avg_pool2d\",\"output_size\":1}," PLAIN(
                   "flatten") LINEAR("10")),
     1, false},
    {TEXT("256", "4", "128", "0.0"), 1, true}};

/* What memory takes of a sample is not known so well that more may be taken off. */
#define PART_LEAST 0.5

enum { SMALL_NETS = sizeof small_nets / sizeof small_nets[0], CALLS_MAX = 256 };

/* ---- measuring ---- */

struct sampling {
    struct weir__roofs *roofs;
    double alone[CALLS_MAX]; /* seconds of the judged net's calls on one thread */
    uint32_t call_count;
    bool team; /* the same calls, on all threads */
    double long_alone, long_team;
};

/* A call that shares its op and shape with an earlier one says nothing new. */
static bool is_known(const struct weir__roofs *roofs, const struct weir__roof_shape *shape) {
    for (uint32_t i = 0; i < roofs->count; i++)
        if (roofs->samples[i].op == shape->op &&
            memcmp(roofs->samples[i].size, shape->size, sizeof shape->size) == 0)
            return true;
    return false;
}

static void add_sample(struct weir__roofs *roofs, const struct weir__profile_call *call) {
    struct weir__roof_shape shape = weir__roof_shape(call->node, call->rows);
    bool takes = call->seconds > 0 && shape.work > 0 && roofs->count < WEIR__ROOF_SAMPLES_MAX;
    if (!takes || is_known(roofs, &shape)) return;
    double seconds = call->seconds - weir__roofs_beyond(roofs, &shape);
    if (seconds < PART_LEAST * call->seconds) seconds = PART_LEAST * call->seconds;
    struct weir__roof_sample *sample = &roofs->samples[roofs->count++];
    *sample = (struct weir__roof_sample){.op = shape.op, .rate = seconds / shape.work};
    memcpy(sample->size, shape.size, sizeof sample->size);
    if (shape.op == WEIR__OP_linear && 2 / sample->rate > roofs->product)
        roofs->product = 2 / sample->rate;
}

static void take_call(void *context, const struct weir__profile_call *call) {
    struct sampling *sampling = context;
    bool wanted = call->kind == WEIR__PROGRAM_FORWARD || call->kind == WEIR__PROGRAM_BACKWARD;
    if (!wanted || sampling->call_count == CALLS_MAX) return;
    uint32_t at = sampling->call_count++;
    if (!sampling->team) {
        sampling->alone[at] = call->seconds;
        add_sample(sampling->roofs, call);
    } else if (sampling->alone[at] > WEIR__ROOF_SHARED_LEAST) {
        sampling->long_alone += sampling->alone[at];
        sampling->long_team += call->seconds;
    }
}

static int sample_net(struct sampling *sampling, const struct small_net *net,
                      const struct weir_profile *of, uint32_t threads) {
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
    options.warm_up = 1;
    options.steps_least = net->shared ? 5 : 1;
    options.seconds = 0.01;
    sampling->call_count = 0;
    status = weir__profile_calls(model, &options, take_call, sampling, NULL);
    weir_model_destroy(model);
    return status;
}

static int sample_nets(struct sampling *sampling, const struct weir_profile *of, uint32_t cores) {
    bool slow = of->dtype == WEIR_F64 || of->reference; /* whose rates do not depend on size */
    for (uint32_t i = 0; i < SMALL_NETS; i++) {
        if (slow && small_nets[i].shared) continue;
        int status = sample_net(sampling, &small_nets[i], of, 1);
        if (status != WEIR_OK) return status;
    }
    if (slow || cores == 1) return WEIR_OK;
    sampling->team = true;
    int status = sample_net(sampling, &small_nets[SMALL_NETS - 1], of, cores);
    if (status != WEIR_OK || sampling->long_team <= 0) return status;
    double added = (sampling->long_alone / sampling->long_team - 1) / (cores - 1);
    sampling->roofs->thread = added < 0 ? 0 : added > 1 ? 1 : added;
    return WEIR_OK;
}

/* ---- copies ---- */

enum { CACHED = 256 << 10, MEMORY = 24 << 20, COPIES = 3 };

/* The best of some: a roof, not a mean. */
static double copy_rate(size_t bytes, uint64_t last_cache_bytes) {
    char *to = weir__acquire(NULL, bytes, 1), *from = weir__acquire(NULL, bytes, 1);
    uint64_t best = UINT64_MAX;
    if (to != NULL && from != NULL) {
        memset(to, 1, bytes);
        memset(from, 2, bytes);
        for (int i = 0; i < COPIES; i++) {
            uint64_t begin = weir__now_ns();
            weir__cpu_copy(to, from, bytes, weir__copy_stream_min(last_cache_bytes));
            uint64_t took = weir__now_ns() - begin;
            if (took < best) best = took;
        }
    }
    weir__release(NULL, to, bytes, 1);
    weir__release(NULL, from, bytes, 1);
    return best > 0 && best < UINT64_MAX ? (double)bytes / ((double)best * 1e-9) : 0;
}

int weir__roofs_measure(const struct weir_profile *of, struct weir__roofs *roofs) {
    struct weir__machine_facts facts = {.usable_cores = 1};
    struct weir__machine *machine;
    struct sampling sampling = {.roofs = roofs};
    roofs->count = 0;
    roofs->product = 0;
    roofs->thread = of->reference || of->dtype == WEIR_F64 ? 0 : 1; /* those share nothing */
    if (weir__machine_new(NULL, &machine) == WEIR_OK) {
        weir__machine_facts(machine, &facts);
        weir__machine_destroy(machine);
    }
    uint64_t last = facts.l3_bytes > 0 ? facts.l3_bytes : facts.l2_bytes;
    roofs->cache = (double)facts.l2_bytes;
    roofs->copy_cached = copy_rate(CACHED, last);
    roofs->copy_memory = copy_rate(MEMORY, last);
    if (roofs->copy_cached <= 0 || roofs->copy_memory <= 0) return WEIR_ERR_OUT_OF_MEMORY;
    int status = sample_nets(&sampling, of, facts.usable_cores);
    return status == WEIR_OK && roofs->product <= 0 ? WEIR_ERR_BACKEND : status;
}
