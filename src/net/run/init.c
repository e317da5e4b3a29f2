/* SPDX-License-Identifier: MIT */
/* Initial values: a function of the seed, the parameter's place in the list and the element's place
 * in it, so that they depend on neither partition nor dtype (but for its rounding). */
#include "net/run/net.h"
#include "net/scalar.h"

#include <math.h>

/** Four random words for elements 4 * group …; the last counter word sets them apart from
 * dropout's, whose mini-batches never get that far. */
static void words_of(uint64_t seed, uint32_t parameter, uint64_t group, uint32_t out[4]) {
    const uint32_t counter[4] = {(uint32_t)group, (uint32_t)(group >> 32), parameter, UINT32_MAX};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    weir__philox(counter, key, out);
}

/** In (0, 1). */
static double unit(uint32_t word) {
    return ((double)word + 0.5) * 0x1p-32;
}

/** Box and Muller's pair of normal numbers. */
static void normal_pair(uint32_t a, uint32_t b, double out[2]) {
    double radius = sqrt(-2 * weir__log(unit(a)));
    out[0] = radius * weir__cos_of_turns(unit(b));
    out[1] = radius * weir__sin_of_turns(unit(b));
}

static void values_of(const struct weir_init *init, const uint32_t words[4], double out[4]) {
    if (init->kind == WEIR_INIT_NORMAL) { /* which takes most of the time */
        normal_pair(words[0], words[1], out);
        normal_pair(words[2], words[3], out + 2);
    }
    for (int k = 0; k < 4; k++) {
        switch (init->kind) {
        case WEIR_INIT_ZERO: out[k] = 0; break;
        case WEIR_INIT_ONE: out[k] = 1; break;
        case WEIR_INIT_NORMAL: out[k] *= init->scale; break;
        case WEIR_INIT_UNIFORM: out[k] = init->scale * (2 * unit(words[k]) - 1); break;
        }
    }
}

static void store(void *data, enum weir_dtype dtype, uint64_t index, double value) {
    assert(dtype == WEIR_F64 || dtype == WEIR_F32 || dtype == WEIR_I64);
    if (dtype == WEIR_I64)
        ((int64_t *)data)[index] = (int64_t)value;
    else if (dtype == WEIR_F64)
        ((double *)data)[index] = value;
    else
        ((float *)data)[index] = (float)value;
}

static void fill(const struct weir_init *init, uint64_t seed, uint32_t index,
                 const struct weir_parameter *parameter, void *data) {
    for (uint64_t i = 0; i < parameter->count; i += 4) {
        uint32_t words[4];
        double values[4];
        words_of(seed, index, i / 4, words);
        values_of(init, words, values);
        for (uint64_t k = 0; k < 4 && i + k < parameter->count; k++)
            store(data, parameter->dtype, i + k, values[k]);
    }
}

/** Its number: adapters have numbers of their own, so that all else begins as without them. */
static uint32_t place_of(const struct weir_net *net, uint32_t index) {
    const struct weir__network *network = &net->network;
    bool adapter = network->parameters[network->named[index]].adapter;
    uint32_t place = 0;
    for (uint32_t i = 0; i < index; i++)
        place += network->parameters[network->named[i]].adapter == adapter;
    return adapter ? place | UINT32_C(1) << 31 : place;
}

static int init_parameter(struct weir_net *net, uint64_t seed, uint32_t index) {
    struct weir_parameter parameter;
    int status = weir_net_parameter(net, index, &parameter);
    if (status != WEIR_OK || parameter.data == NULL) return status; /* another rank's */
    if (parameter.mapped) return WEIR_OK;
    size_t bytes = (size_t)parameter.count * weir_dtype_bytes(parameter.dtype);
    void *data = weir__acquire(net->allocator, bytes, 1);
    if (data == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    fill(&net->network.parameters[net->network.named[index]].init, seed, place_of(net, index),
         &parameter, data);
    status = weir_pipe_write(net->pipe, parameter.stage, parameter.data, data, bytes);
    weir__release(net->allocator, data, bytes, 1);
    return status;
}

int weir_net_init(struct weir_net *net, uint64_t seed) {
    weir__net_weights_given(net);
    for (uint32_t p = 0; p < weir_net_parameter_count(net); p++) {
        int status = init_parameter(net, seed, p);
        if (status != WEIR_OK) return status;
    }
    net->next_mini_batch = net->next_update = 0;
    return weir_net_share(net);
}
