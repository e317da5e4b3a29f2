/* SPDX-License-Identifier: MIT */
/* What a machine's roofs say of a call. */
#include "net/profile/roofs.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ---- a call's shape ---- */

static double log_of(double x) {
    return x > 1 ? log2(x) : 0;
}

/* The numbers of all operands, with every row. A sum of gradients is read, too (but for a step's
 * first micro-batch); of a table of tokens only the rows that they name are. */
static double numbers_of(const struct weir__node *node, int64_t rows) {
    double sum = 0;
    for (uint32_t i = 0; i < node->in_count + node->out_count; i++) {
        const struct weir_value *value =
            i < node->in_count ? node->in[i] : node->out[i - node->in_count];
        if (value == NULL) continue;
        double numbers = (double)weir__value_count(value) * (value->batched ? (double)rows : 1);
        bool is_table = !value->batched &&
                        (node->op == WEIR__OP_embedding || node->op == WEIR__OP_embedding_grad);
        if (is_table)
            numbers = fmin(numbers, (double)(rows * node->shape.tokens * weir__value_width(value)));
        sum += value->accumulator != WEIR__NONE ? 2 * numbers : numbers;
    }
    return sum;
}

static int64_t width_of(const struct weir__node *node) {
    const struct weir_value *value = node->in[0] != NULL ? node->in[0] : node->out[0];
    if (value == NULL) return 1;
    return value->channels_last && value->rank > 0 ? value->shape[0] : weir__value_width(value);
}

/* Beyond so many rows a product is as fast as with these. */
static const double ROWS_MOST = 1024;

static void fill_product(struct weir__roof_shape *shape, double rows, double in, double out,
                         double area) {
    shape->work = rows * in * out * area;
    shape->size[0] = log_of(rows < ROWS_MOST ? rows : ROWS_MOST), shape->size[1] = log_of(in);
    shape->size[2] = log_of(out), shape->size[3] = log_of(area);
}

static enum weir__op_code op_of(const struct weir__node *node) {
    if (node->op == WEIR__OP_linear_add) return WEIR__OP_linear;
    return node->op == WEIR__OP_linear_grad_input_add ? WEIR__OP_linear_grad_input : node->op;
}

struct weir__roof_shape weir__roof_shape(const struct weir__node *node, int64_t rows) {
    const struct weir__op_shape *s = &node->shape;
    struct weir__roof_shape shape = {.op = op_of(node), .bytes = numbers_of(node, rows) * 4};
    double r = (double)rows, tokens = (double)s->tokens;
    assert(rows >= 1);
    switch (node->op) {
    case WEIR__OP_linear:
    case WEIR__OP_linear_grad_input:
    case WEIR__OP_linear_add:
    case WEIR__OP_linear_grad_input_add:
    case WEIR__OP_linear_grad_weight:
        fill_product(&shape, r * tokens, (double)s->in, (double)s->out, 1);
        break;
    case WEIR__OP_conv2d:
    case WEIR__OP_conv2d_grad_input:
    case WEIR__OP_conv2d_grad_weight:
        fill_product(&shape, r * (double)(s->window.out.height * s->window.out.width),
                     (double)(s->in / s->window.groups), (double)s->out,
                     (double)(s->window.kernel.height * s->window.kernel.width));
        break;
    case WEIR__OP_attention:
    case WEIR__OP_attention_grad:
        shape.work = r * tokens * tokens * (double)s->width;
        shape.size[0] = log_of(tokens);
        shape.size[1] = log_of((double)s->width / (double)(s->heads > 0 ? s->heads : 1));
        break;
    default:
        shape.work = shape.bytes / 4;
        shape.size[0] = log_of(shape.work);
        shape.size[1] = log_of((double)width_of(node));
    }
    return shape;
}

/* ---- what roofs say ---- */

/* What has no sample: a custom op, or one that no small net has. */
static double unknown_seconds(const struct weir__roofs *roofs, const struct weir__node *node,
                              const struct weir__roof_shape *shape, int64_t rows) {
    const struct weir__op_rule *rule = node->op < WEIR__OP_COUNT ? weir__op_rule(node->op) : NULL;
    double flops = rule != NULL && rule->cost != NULL ? rule->cost(node) * (double)rows : 0;
    return flops / roofs->product + shape->bytes / (2 * roofs->copy_cached);
}

/* How far apart shapes are. How much work a call has says less of its rate than of what kind it is:
 * few inputs or outputs leave parts of registers empty. */
static double square_distance(const double *a, const double *b) {
    double square = 0.01 + 0.25 * (a[0] - b[0]) * (a[0] - b[0]);
    for (int k = 1; k < WEIR__ROOF_SIZES; k++) square += (a[k] - b[k]) * (a[k] - b[k]);
    return square;
}

/* The geometric mean of the op's samples' rates, the nearer the heavier; 0: it has none. */
static double rate_of(const struct weir__roofs *roofs, const struct weir__roof_shape *shape) {
    double sum = 0, weights = 0;
    for (uint32_t i = 0; i < roofs->count; i++) {
        const struct weir__roof_sample *sample = &roofs->samples[i];
        if (sample->op != shape->op) continue;
        double square = square_distance(shape->size, sample->size);
        sum += log(sample->rate) / (square * square);
        weights += 1 / (square * square);
    }
    return weights > 0 ? exp(sum / weights) : 0;
}

double weir__roofs_beyond(const struct weir__roofs *roofs, const struct weir__roof_shape *shape) {
    double beyond = (shape->bytes - roofs->cache) / roofs->memory;
    return beyond > 0 ? beyond : 0;
}

double weir__roofs_seconds(const struct weir__roofs *roofs, const struct weir__node *node,
                           int64_t rows, uint32_t threads) {
    struct weir__roof_shape shape = weir__roof_shape(node, rows);
    double seconds = rate_of(roofs, &shape) * shape.work;
    if (seconds == 0) seconds = unknown_seconds(roofs, node, &shape, rows);
    double beyond = weir__roofs_beyond(roofs, &shape);
    if (seconds + beyond > WEIR__ROOF_SHARED_LEAST && threads > 1) {
        seconds /= 1 + (threads - 1) * roofs->thread;
        beyond /= 1 + (threads - 1) * roofs->memory_thread;
    }
    return seconds + beyond;
}

/* ---- finding them ---- */

/* What the processor can do is the process's, as its level is. */
enum { KEPT = 32 };
static struct {
    pthread_mutex_t lock; /* of the rest */
    uint32_t count;
    struct weir__roofs list[KEPT];
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The number counts changes, of kernels or of measuring, that change rates: roofs of before hold no
 * more. */
static void fill_key(const struct weir_profile *of, struct weir__roofs *roofs) {
    *roofs = (struct weir__roofs){.count = 0};
    snprintf(roofs->key, sizeof roofs->key, "weir roofs 10: %s: %s: %s %s", of->version,
             of->machine, of->libraries, weir_dtype_name(of->dtype));
}

/* With the lock. There are fewer levels and dtypes than kept ones. */
static int find(const struct weir_profile *of, const struct weir__roofs **roofs) {
    struct weir__roofs wanted, kept;
    fill_key(of, &wanted);
    for (uint32_t i = 0; i < known.count; i++) {
        *roofs = &known.list[i];
        if (strcmp(known.list[i].key, wanted.key) == 0) return WEIR_OK;
    }
    if (!weir__roofs_load(&wanted)) {
        int status = weir__roofs_measure(of, &wanted);
        if (status != WEIR_OK) return status;
        weir__roofs_keep(&wanted);
        fill_key(of, &kept); /* rounded, as later processes have them */
        if (weir__roofs_load(&kept)) wanted = kept;
    }
    if (known.count == KEPT) return WEIR_ERR_OUT_OF_MEMORY;
    known.list[known.count] = wanted;
    *roofs = &known.list[known.count++];
    return WEIR_OK;
}

int weir__roofs_find(const struct weir_profile *of, const struct weir__roofs **roofs) {
    pthread_mutex_lock(&known.lock);
    int status = find(of, roofs);
    pthread_mutex_unlock(&known.lock);
    return status;
}
