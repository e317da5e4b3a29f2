/* SPDX-License-Identifier: MIT */
/* A net is built as any other; before its first step its nodes' kernels are replaced by ones that
 * call them and round what they wrote. */
#include "net/net_exact.h"

#include "harness.h"
#include "net/run/net.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rounding ---- */

enum { SINGLE_DIGITS = 24, SUM_DIGITS = 22 };

/* In [0, 1): the same for the same number at the same place, as for a weight whenever it is used.
 */
static double chance(double number, size_t place, uint64_t seed) {
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    bits = (bits ^ (seed + place * 0xd1342543de82ef95u)) * 0x9e3779b97f4a7c15u;
    bits = (bits ^ (bits >> 29)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 32)) * 0x94d049bb133111ebu;
    return (double)(bits >> 11) * 0x1p-53;
}

/* Up where what is beyond the digits is more than `middle` of the last; at 0.5 to even. */
static double to_digits(double number, uint32_t digits, double middle) {
    int exponent;
    double scaled = ldexp(frexp(number, &exponent), (int)digits), whole = floor(scaled);
    if (middle == 0.5)
        whole = nearbyint(scaled);
    else
        whole += scaled - whole > middle;
    return ldexp(whole, exponent - (int)digits);
}

/* At random it also takes the error of F32's sums on, which numbers have that are round already. */
static double rounded(double number, size_t place, uint32_t digits, uint64_t seed) {
    if (digits == 0 || number == 0 || !isfinite(number)) return number;
    if (seed == 0) return to_digits(number, digits, 0.5);
    bool alike = seed % 2 == 1;
    double middle = alike ? 0.25 + chance(0, 0, seed) / 2 : chance(number, place, seed);
    double error = ldexp(2 * chance(number, place, ~seed) - 1, -SUM_DIGITS);
    if (digits < SUM_DIGITS) number = to_digits(number, digits, middle);
    return number * (1 + error);
}

static void round_all(void *numbers, enum weir_dtype dtype, size_t count, uint32_t digits,
                      uint64_t seed) {
    double *wide = numbers;
    float *single = numbers;
    for (size_t i = 0; i < count; i++) {
        if (dtype == WEIR_F64)
            wide[i] = rounded(wide[i], i, digits, seed);
        else
            single[i] = (float)rounded((double)single[i], i, digits, seed);
    }
}

/* ---- kernels that round ---- */

/* In the place of a node's kernel, and its state. */
struct rounder {
    const struct weir__kernel *within;
    const struct weir__node *node;
    struct net_rounding rounding;
    struct weir__kernel row;
};

static bool takes_weights(enum weir__op_code op) {
    return op == WEIR__OP_linear || op == WEIR__OP_linear_grad_input || op == WEIR__OP_linear_add ||
           op == WEIR__OP_linear_grad_input_add || op == WEIR__OP_conv2d ||
           op == WEIR__OP_conv2d_grad_input;
}

static size_t numbers_of(const struct weir_value *value, int64_t rows) {
    return (size_t)weir__value_count(value) * (size_t)(value->batched ? rows : 1);
}

static void *room_for(size_t count) {
    void *room = malloc(count * sizeof(double));
    if (room == NULL) abort();
    return room;
}

static void *rounded_weights(const struct rounder *rounder, uint32_t k, const void *weights) {
    const struct weir_value *value = rounder->node->in[k];
    size_t count = numbers_of(value, 1);
    void *own = room_for(count);
    memcpy(own, weights, count * weir_dtype_bytes(value->dtype));
    round_all(own, value->dtype, count, rounder->rounding.digits, rounder->rounding.seed);
    return own;
}

static bool is_loss(enum weir__op_code op) {
    return op == WEIR__OP_cross_entropy || op == WEIR__OP_mse || op == WEIR__OP_bce_with_logits;
}

/* Losses are doubles, as are a channel's numbers; gradients of parameters, and statistics, which
 * are further outputs, F32. */
static uint32_t digits_of(const struct rounder *rounder, uint32_t k) {
    const struct weir_value *value = rounder->node->out[k];
    uint32_t digits = rounder->rounding.digits;
    bool of_channels = !value->batched && value->accumulator == WEIR__NONE;
    if (of_channels || (k == 0 && is_loss(rounder->node->op))) return 0;
    bool stored = k == 0 && value->accumulator == WEIR__NONE;
    return stored || digits == 0 ? digits : SINGLE_DIGITS;
}

/* ---- a fused kernel's parts, each of which rounds ---- */

/* Calls the reference's row for `op` at the shape of `call`, and rounds its first output. */
static int run_part(const struct weir__op_call *call, enum weir__op_code op, const void *const *in,
                    void *const *out) {
    const struct rounder *rounder = call->state;
    struct weir__op_shape shape = *call->shape;
    struct weir__op_call part = *call;
    size_t count = (size_t)(shape.rows * shape.tokens * shape.width);
    bool pointwise = op == WEIR__OP_leaky_relu || op == WEIR__OP_leaky_relu_grad ||
                     op == WEIR__OP_relu || op == WEIR__OP_add;
    shape.op = op;
    if (pointwise) shape.width *= shape.tokens;
    part.shape = &shape;
    part.state = NULL;
    part.in = in;
    part.out = out;
    const struct weir__kernel *row = weir__backend_reference.kernel(op, shape.dtype);
    int status = row->run(&part);
    round_all(out[0], shape.dtype, count, rounder->rounding.digits, rounder->rounding.seed);
    return status;
}

static void *image_of(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    return room_for((size_t)(shape->rows * shape->tokens * shape->width));
}

static int run_norm_act(const struct weir__op_call *call) {
    void *dropped = image_of(call);
    int status = run_part(call, WEIR__OP_dropout2d, call->in, (void *[]){dropped});
    if (status == WEIR_OK)
        status = run_part(call, WEIR__OP_instance_norm, (const void *[]){dropped}, call->out);
    if (status == WEIR_OK)
        status = run_part(call, WEIR__OP_leaky_relu, (const void *[]){call->out[0]}, call->out);
    free(dropped);
    return status;
}

static int run_norm_act_grad(const struct weir__op_call *call) {
    const void *dy = call->in[0], *y = call->in[1], *x = call->in[2];
    const void *mean = call->in[3], *rstd = call->in[4];
    void *dropped = image_of(call), *leaked = image_of(call), *normal = image_of(call);
    int status = run_part(call, WEIR__OP_dropout2d, &x, (void *[]){dropped});
    if (status == WEIR_OK)
        status =
            run_part(call, WEIR__OP_leaky_relu_grad, (const void *[]){dy, y}, (void *[]){leaked});
    if (status == WEIR_OK)
        status = run_part(call, WEIR__OP_instance_norm_grad_input,
                          (const void *[]){leaked, dropped, mean, rstd}, (void *[]){normal});
    if (status == WEIR_OK)
        status = run_part(call, WEIR__OP_dropout2d, (const void *[]){normal}, call->out);
    free(dropped);
    free(leaked);
    free(normal);
    return status;
}

static int run_batch_act(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    void *y = call->out[0], *normal = image_of(call);
    int status = run_part(call, WEIR__OP_batch_norm, call->in,
                          (void *[]){normal, call->out[1], call->out[2]});
    const void *last = normal;
    if (status == WEIR_OK && shape->adds) {
        status = run_part(call, WEIR__OP_add, (const void *[]){normal, call->in[5]}, &y);
        last = y;
    }
    if (status == WEIR_OK && shape->activates) status = run_part(call, WEIR__OP_relu, &last, &y);
    free(normal);
    return status;
}

static int run_product_add(const struct weir__op_call *call) {
    struct weir__op_shape shape = *call->shape;
    struct weir__op_call own = *call;
    const bool forward = shape.op == WEIR__OP_linear_add;
    const void *bias = forward && shape.has_bias ? call->in[3] : NULL;
    shape.width = forward ? shape.out : shape.in;
    own.shape = &shape;
    void *product = image_of(&own);
    int status = run_part(&own, forward ? WEIR__OP_linear : WEIR__OP_linear_grad_input,
                          (const void *[]){call->in[0], call->in[1], bias}, (void *[]){product});
    if (status == WEIR_OK)
        status = run_part(&own, WEIR__OP_add, (const void *[]){call->in[2], product}, call->out);
    free(product);
    return status;
}

/* ---- any kernel ---- */

static int run_within(const struct rounder *rounder, const struct weir__op_call *call) {
    struct weir__op_call own = *call;
    own.state = NULL;
    if (rounder->rounding.digits == 0) return rounder->within->run(&own);
    switch (call->shape->op) {
    case WEIR__OP_instance_norm_act: return run_norm_act(call);
    case WEIR__OP_instance_norm_act_grad: return run_norm_act_grad(call);
    case WEIR__OP_batch_norm_act: return run_batch_act(call);
    case WEIR__OP_linear_add:
    case WEIR__OP_linear_grad_input_add: return run_product_add(call);
    default: return rounder->within->run(&own);
    }
}

static int run_rounded(const struct weir__op_call *call) {
    const struct rounder *rounder = call->state;
    const struct weir__node *node = rounder->node;
    struct weir__op_call own = *call;
    const void *in[WEIR__NODE_IN_MAX];
    void *weights = NULL, *bias = NULL;
    for (uint32_t k = 0; k < node->in_count; k++) in[k] = call->in[k];
    if (takes_weights(node->op)) in[1] = weights = rounded_weights(rounder, 1, call->in[1]);
    /* A product's bias is cast with its weights; a convolution's is added in F32. */
    const bool adds = node->op == WEIR__OP_linear_add;
    const uint32_t at = adds ? 3 : 2;
    if ((adds || node->op == WEIR__OP_linear) && call->shape->has_bias)
        in[at] = bias = rounded_weights(rounder, at, call->in[at]);
    own.in = in;
    int status = run_within(rounder, &own);
    for (uint32_t k = 0; status == WEIR_OK && k < node->out_count; k++)
        if (call->out[k] != NULL)
            round_all(call->out[k], call->shape->dtype, numbers_of(node->out[k], call->shape->rows),
                      digits_of(rounder, k), rounder->rounding.seed);
    free(weights);
    free(bias);
    return status;
}

static void round_node(struct weir__node_call *call, const struct weir__node *node,
                       const struct net_rounding *rounding, struct rounder *rounder) {
    if (call->kernel == NULL) return;
    EXPECT(call->state == NULL && call->kernel->release == NULL && call->kernel->pack == NULL);
    *rounder = (struct rounder){call->kernel, node, *rounding, *call->kernel};
    rounder->row.run = run_rounded;
    call->kernel = &rounder->row;
    call->state = rounder;
}

/* Room for a rounder per node; the caller frees it after the net. */
static struct rounder *round_net(struct weir_net *net, const struct net_rounding *rounding) {
    struct weir__net_stage *stage = &net->stages[0];
    const struct weir__graph *graph = &stage->compiled->graph;
    size_t count = (size_t)graph->node_count * stage->instance_count;
    struct rounder *rounders = calloc(count, sizeof *rounders);
    if (rounders == NULL) abort();
    for (uint32_t i = 0; i < stage->instance_count; i++)
        for (uint32_t n = 0; n < graph->node_count; n++)
            round_node(&stage->instances[i]->nodes[n], graph->nodes[n], rounding,
                       &rounders[i * graph->node_count + n]);
    return rounders;
}

/* ---- training ---- */

static struct weir_net_options exact_options(const struct weir_net_options *from,
                                             const struct net_rounding *rounding) {
    struct weir_net_options options =
        trial_options(1, from->pipe.rows, (uint32_t)from->pipe.chunks);
    options.pipe.schedule = from->pipe.schedule;
    options.pipe.clip_norm = from->pipe.clip_norm;
    options.optimizer = from->optimizer;
    options.input_grads = from->input_grads;
    options.seed = from->seed;
    options.dtype = rounding->seed == 0 ? WEIR_F64 : WEIR_F32;
    options.reference = true;
    return options;
}

static void narrow_parameters(struct weir_net *net) {
    for (uint32_t i = 0; i < weir_net_parameter_count(net); i++) {
        struct weir_parameter parameter;
        EXPECT_STATUS(weir_net_parameter(net, i, &parameter), WEIR_OK);
        if (parameter.dtype != WEIR_F64) continue;
        double *numbers = parameter.data;
        for (uint64_t k = 0; k < parameter.count; k++) numbers[k] = (double)(float)numbers[k];
    }
    EXPECT_STATUS(weir_net_share(net), WEIR_OK);
}

/* `from` has f32, `to` the net's dtype; integers stay what they are. */
static void convert(const struct weir_tensor *tensor, enum weir_dtype dtype, const void *from,
                    void *to, size_t bytes, const struct net_rounding *rounding) {
    const float *single = from;
    double *wide = to;
    bool is_float = weir_dtype_is_float(tensor->dtype);
    size_t count = bytes / weir_dtype_bytes(dtype);
    if (!is_float || dtype == WEIR_F32) memcpy(to, from, bytes);
    for (size_t i = 0; is_float && dtype == WEIR_F64 && i < count; i++) wide[i] = (double)single[i];
    if (is_float) round_all(to, dtype, count, rounding->digits, rounding->seed);
}

static void convert_data(const struct net_problem *problem, const struct weir_net_options *options,
                         const struct trial_data *from, const struct net_rounding *rounding,
                         struct trial_data *to) {
    net_pipe_data(problem, options, to);
    convert(&problem->input, options->dtype, from->input, to->input, to->input_bytes, rounding);
    convert(&problem->target, options->dtype, from->target, to->target, to->target_bytes, rounding);
}

void net_exact_train(const struct net_problem *problem, const struct weir_net_options *options,
                     const struct trial_data *data, const struct net_rounding *rounding,
                     struct trial_result results[2]) {
    struct weir_net_options own = exact_options(options, rounding);
    struct trial_data converted;
    struct weir_net *net = trial_net(problem->model, &own);
    if (net == NULL) return;
    narrow_parameters(net);
    struct rounder *rounders = round_net(net, rounding);
    convert_data(problem, &own, data, rounding, &converted);
    net_pipe_train_net(problem, net, &converted, results);
    weir_net_destroy(net);
    free(rounders);
    trial_data_clean_up(&converted);
}

/* ---- measuring ---- */

void net_exact_parts(const struct net_problem *problem, const struct weir_net_options *options,
                     struct net_parts *parts) {
    const struct net_rounding none = {0, 0};
    struct weir_net_options own = exact_options(options, &none);
    struct weir_net *net = trial_net(problem->model, &own);
    size_t first = 0;
    parts->count = 0;
    for (uint32_t i = 0; net != NULL && i < weir_net_parameter_count(net); i++) {
        struct weir_parameter parameter;
        if (!EXPECT_STATUS(weir_net_parameter(net, i, &parameter), WEIR_OK)) break;
        if (parameter.statistic) continue;
        if (!EXPECT(parts->count < NET_PARTS_MAX)) break;
        struct net_part *part = &parts->list[parts->count++];
        snprintf(part->name, sizeof part->name, "%s", parameter.name);
        part->first = first;
        part->count = (size_t)parameter.count;
        part->frozen = parameter.frozen;
        first += part->count;
    }
    weir_net_destroy(net);
}

static double number(const void *numbers, enum weir_dtype dtype, size_t i) {
    if (dtype == WEIR_F64) return ((const double *)numbers)[i];
    if (dtype == WEIR_F32) return (double)((const float *)numbers)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)numbers)[i] << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return (double)wide;
}

double net_exact_distance(const void *got, enum weir_dtype dtype, const void *exact, size_t first,
                          size_t count) {
    double squares = 0;
    for (size_t i = first; i < first + count; i++) {
        double error = number(got, dtype, i) - ((const double *)exact)[i];
        squares += error * error;
    }
    return sqrt(squares);
}

double net_exact_norm(const void *exact, size_t first, size_t count) {
    double squares = 0;
    for (size_t i = first; i < first + count; i++)
        squares += ((const double *)exact)[i] * ((const double *)exact)[i];
    return sqrt(squares);
}
