/* SPDX-License-Identifier: MIT */
/* What kernels of all of the CPU's backends call. */
#include "device/device.h"
#include "net/cpu/cpu.h"
#include "net/scalar.h"

#include <math.h>

int weir__index_error(const struct weir__op_call *call, const char *what, int64_t place,
                      int64_t index, int64_t limit) {
    assert(index < 0 || index >= limit);
    return weir__fail(call->error, WEIR_ERR_ARGUMENT,
                      "%s %lld of the micro-batch is %lld, which is outside [0, %lld)", what,
                      (long long)place, (long long)index, (long long)limit);
}

int weir__check_targets(const struct weir__op_call *call, const int64_t *target, int64_t classes) {
    const struct weir__op_shape *shape = call->shape;
    for (int64_t m = 0; m < shape->rows * shape->tokens; m++)
        if (target[m] != shape->ignore_index && (target[m] < 0 || target[m] >= classes))
            return weir__index_error(call, "target", m, target[m], classes);
    return WEIR_OK;
}

int weir__check_batch(const struct weir__op_call *call) {
    assert(call->shape->rows >= 1 && call->shape->tokens >= 1);
    if (call->shape->rows * call->shape->tokens > 1) return WEIR_OK;
    return weir__fail(call->error, WEIR_ERR_ROWS,
                      "batch_norm2d needs more than one number per channel in each micro-batch: "
                      "use fewer chunks, or larger images");
}

/* All micro-batches but the last have as many rows as this one, or this is the last. */
struct weir__moment_weights weir__moment_weights_of(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    double count = (double)(shape->rows * shape->tokens);
    if (!shape->plain) return (struct weir__moment_weights){count, count, 1, count};
    int64_t rest = call->rows_total - call->row_first - shape->rows;
    uint64_t later = rest <= 0 ? 0 : (uint64_t)((rest + shape->rows - 1) / shape->rows);
    double own =
        shape->momentum < 0 ? 1 : shape->momentum * weir__power(1 - shape->momentum, later);
    return (struct weir__moment_weights){own, own * count / (count - 1), 0, 1};
}

double weir__weighted(double sum, double weight) {
    return weight > 0 ? sum / weight : 0;
}

/* k * 2^-24 >= p for whole k is k >= p * 2^24, and that product is exact. */
uint32_t weir__dropout_threshold(double p) {
    assert(p >= 0 && p <= 1);
    return (uint32_t)ceil(p * 0x1p24);
}

void weir__share(const struct weir__op_call *call, int64_t parts, double work, weir__team_fn *run,
                 void *context) {
    assert(parts >= 0 && parts <= UINT32_MAX && work >= 0);
    struct weir__team *team = call->stream == NULL ? NULL : call->stream->team;
    uint32_t members = work < 2 * WEIR__SHARED_LEAST ? 1 : call->shape->threads;
    weir__team_run(team, members, (uint32_t)parts, run, context);
}

double weir__conv_multiply_adds(const struct weir__op_shape *shape, int64_t rows) {
    const struct weir__window *window = &shape->window;
    double pixels = (double)window->out.height * (double)window->out.width;
    double taps = (double)window->kernel.height * (double)window->kernel.width;
    return (double)rows * pixels * taps * (double)shape->out * (double)(shape->in / window->groups);
}

static enum weir__op_code product_of(enum weir__op_code op) {
    if (op == WEIR__OP_conv2d) return WEIR__OP_linear;
    if (op == WEIR__OP_conv2d_grad_input) return WEIR__OP_linear_grad_input;
    assert(op == WEIR__OP_conv2d_grad_weight);
    return WEIR__OP_linear_grad_weight;
}

bool weir__conv_as_product(const struct weir__op_shape *shape, struct weir__op_shape *product) {
    const struct weir__window *window = &shape->window;
    bool single = window->kernel.height == 1 && window->kernel.width == 1;
    bool padded = window->padding.height > 0 || window->padding.width > 0;
    if (!single || padded || window->groups > 1) return false;
    *product = (struct weir__op_shape){.op = product_of(shape->op),
                                       .dtype = shape->dtype,
                                       .threads = shape->threads,
                                       .rows = shape->rows,
                                       .rows_max = shape->rows_max,
                                       .tokens = window->out.height * window->out.width,
                                       .in = shape->in,
                                       .out = shape->out,
                                       .has_bias = shape->has_bias};
    return true;
}

/* ---- packed rows ---- */

int64_t weir__token_number(const struct weir__op_shape *shape, const int64_t *index, int64_t m) {
    if (!shape->packed) return index[m];
    return index[m / shape->tokens * 2 * shape->tokens + m % shape->tokens];
}

int64_t weir__document_first(const struct weir__op_shape *shape, const int64_t *documents,
                             int64_t m) {
    if (!shape->packed) return 0;
    return documents[(m / shape->tokens * 2 + 1) * shape->tokens + m % shape->tokens];
}

int weir__check_documents(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    if (!shape->packed) return WEIR_OK;
    for (int64_t m = 0; m < shape->rows * shape->tokens; m++) {
        int64_t t = m % shape->tokens, first = weir__document_first(shape, call->in[0], m);
        int64_t before = t == 0 ? 0 : weir__document_first(shape, call->in[0], m - 1);
        if (first == t || (t > 0 && first == before)) continue;
        return weir__fail(call->error, WEIR_ERR_ARGUMENT,
                          "the document of token %lld of the micro-batch's row %lld begins at "
                          "token %lld: it begins at %lld, or there as the one before at %lld",
                          (long long)t, (long long)(m / shape->tokens), (long long)first,
                          (long long)t, (long long)before);
    }
    return WEIR_OK;
}

/* ---- attention ---- */

int64_t weir__head_group(const struct weir__op_shape *shape) {
    int64_t kv_heads = shape->kv_heads == 0 ? shape->heads : shape->kv_heads;
    assert(kv_heads >= 1 && shape->heads % kv_heads == 0);
    return shape->heads / kv_heads;
}

struct weir__head_place weir__head_place(const struct weir__op_shape *shape, int64_t row,
                                         int64_t head) {
    assert(shape->width % shape->heads == 0 && head < shape->heads);
    int64_t width = shape->width, size = width / shape->heads, tokens = shape->tokens;
    struct weir__head_place place = {.y = row * tokens * width + head * size};
    if (shape->kv_heads == 0) {
        place.step = place.kv_step = 3 * width;
        place.q = row * tokens * 3 * width + head * size;
        place.k = place.q + width;
        place.v = place.k + width;
        return place;
    }
    place.k_operand = 1;
    place.v_operand = 2;
    place.step = width;
    place.kv_step = shape->kv_heads * size;
    place.q = place.y;
    place.k = place.v = row * tokens * place.kv_step + head / weir__head_group(shape) * size;
    return place;
}

int64_t weir__keys_first(const struct weir__op_shape *shape, int64_t token) {
    assert(shape->reach == 0 || !shape->sees_all);
    return shape->reach > 0 && token >= shape->reach ? token + 1 - shape->reach : 0;
}

int64_t weir__keys_end(const struct weir__op_shape *shape, int64_t token) {
    return shape->sees_all ? shape->tokens : token + 1;
}
