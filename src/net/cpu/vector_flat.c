/* SPDX-License-Identifier: MIT */
/*
 * Flat arrays. Sums of squares go in four chains of eight doubles, which hides the adder's latency;
 * the updates' loops are element by element, for the compiler to widen.
 */
#include "device/device.h"
#include "net/scalar.h"
#include "net/cpu/cpu.h"
#include "net/cpu/vector.h"

#include <math.h>

static double square_sum(const float *x, uint64_t count) {
    assert(x != NULL || count == 0);
    vdouble8 sum[4] = {{0}, {0}, {0}, {0}};
    uint64_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        vdouble8 a[4];
        v_widen(v_load(x + i), &a[0], &a[1]);
        v_widen(v_load(x + i + LANES), &a[2], &a[3]);
        V_UNROLL
        for (int v = 0; v < 4; v++) sum[v] += a[v] * a[v];
    }
    for (; i < count; i += LANES) {
        vdouble8 a[2];
        v_widen(v_load_some(x + i, count - i < LANES ? (int64_t)(count - i) : LANES), &a[0], &a[1]);
        sum[0] += a[0] * a[0];
        sum[1] += a[1] * a[1];
    }
    return v_sum8((sum[0] + sum[2]) + (sum[1] + sum[3]));
}

/* ---- spans, cut into pieces that a team shares ---- */

/** Numbers of a piece, but for a span's last: its sum is one thread's. */
enum { PIECE = 1 << 16 };

/** A call's arguments, and what its pieces have in common. */
struct flat_work {
    const struct weir__spans *spans;
    const struct weir__update *update;
    const void *data;
    float *sum;
    double *sums;
    bool small; /* a piece each */
    void (*run)(const struct flat_work *work, const struct weir__span *piece, uint64_t number);
};

static uint64_t pieces_of(const struct weir__span *span) {
    return span->count / PIECE + (span->count % PIECE != 0);
}

static uint64_t count_pieces(const struct weir__spans *spans) {
    uint64_t count = 0;
    for (uint32_t s = 0; s < spans->count; s++) count += pieces_of(&spans->list[s]);
    assert(count <= UINT32_MAX);
    return count;
}

static void run_piece(void *context, uint32_t part, uint32_t member) {
    const struct flat_work *work = context;
    const struct weir__span *span = work->spans->list;
    uint64_t number = part;
    (void)member;
    if (work->small) span += number, number = 0;
    for (; number >= pieces_of(span); span++) number -= pieces_of(span);
    struct weir__span piece = *span;
    piece.first += number * PIECE;
    piece.count -= number * PIECE;
    if (piece.count > PIECE) piece.count = PIECE;
    work->run(work, &piece, part);
}

static int share_pieces(struct flat_work *work) {
    const struct weir_stream *stream = work->spans->stream;
    struct weir__team *team = stream == NULL ? NULL : stream->team;
    uint64_t count = count_pieces(work->spans);
    bool none = false;
    for (uint32_t s = 0; s < work->spans->count; s++) none |= work->spans->list[s].count == 0;
    work->small = !none && count == work->spans->count;
    weir__team_run(team, UINT32_MAX, (uint32_t)count, run_piece, work);
    return WEIR_OK;
}

static void square_piece(const struct flat_work *work, const struct weir__span *piece,
                         uint64_t number) {
    work->sums[number] = square_sum((const float *)work->data + piece->first, piece->count);
}

static size_t squares_workspace(const struct weir__spans *spans) {
    return count_pieces(spans) * sizeof(double);
}

static int squares(const struct weir__spans *spans, const void *data, double *sums,
                   void *workspace) {
    const double *of = workspace;
    share_pieces(
        &(struct flat_work){.spans = spans, .data = data, .sums = workspace, .run = square_piece});
    for (uint32_t s = 0; s < spans->count; s++) {
        double sum = 0;
        for (uint64_t i = pieces_of(&spans->list[s]); i > 0; i--) sum += *of++;
        sums[spans->list[s].result] = sum;
    }
    return WEIR_OK;
}

/* ---- the rest ---- */

static void add_piece(const struct flat_work *work, const struct weir__span *piece,
                      uint64_t number) {
    float *restrict to = work->sum + piece->first;
    const float *restrict from = (const float *)work->data + piece->first;
    (void)number;
    for (uint64_t i = 0; i < piece->count; i++) to[i] += from[i];
}

static int accumulate(struct weir_stream *stream, void *restrict y, const void *restrict x,
                      uint64_t count) {
    assert(y != x || count == 0);
    const struct weir__span all = {.count = count};
    const struct weir__spans spans = {&all, 1, stream};
    return share_pieces(
        &(struct flat_work){.spans = &spans, .data = x, .sum = y, .run = add_piece});
}

/** AdamW's factors, made in double and rounded once. */
struct factors {
    float scale, fresh1, beta2, fresh2, root2, eps, rate, decay;
};

VECTOR_INLINE void adamw_loop(const struct factors *f, uint64_t count, float *restrict w,
                              const float *restrict g, float *restrict m, float *restrict v) {
    const struct factors k = *f;
    for (uint64_t i = 0; i < count; i++) {
        float gradient = g[i] * k.scale;
        float first = m[i] + k.fresh1 * (gradient - m[i]);
        float second = v[i] * k.beta2 + k.fresh2 * gradient * gradient;
        m[i] = first;
        v[i] = second;
        w[i] = w[i] * k.decay - k.rate * (first / (__builtin_sqrtf(second) / k.root2 + k.eps));
    }
}

static void adamw_piece(const struct flat_work *work, const struct weir__span *span,
                        uint64_t number) {
    const struct weir__update *update = work->update;
    const struct weir_optimizer *o = update->optimizer;
    double correction1 = 1 - weir__power(o->beta1, update->number);
    double correction2 = 1 - weir__power(o->beta2, update->number);
    struct factors factors = {.scale = (float)update->gradient_scale,
                              .fresh1 = (float)(1 - o->beta1),
                              .beta2 = (float)o->beta2,
                              .fresh2 = (float)(1 - o->beta2),
                              .root2 = (float)sqrt(correction2),
                              .eps = (float)o->eps,
                              .rate = (float)(update->lr / correction1),
                              .decay =
                                  span->decays ? (float)(1 - update->lr * o->weight_decay) : 1};
    uint64_t at = span->first;
    (void)number;
    adamw_loop(&factors, span->count, (float *)update->parameters + at,
               (const float *)update->gradients + at, (float *)update->first + at,
               (float *)update->second + at);
}

static int adamw(const struct weir__spans *spans, const struct weir__update *update) {
    assert(update->number >= 1);
    return share_pieces(&(struct flat_work){.spans = spans, .update = update, .run = adamw_piece});
}

VECTOR_INLINE void sgd_loop(const struct weir__update *update, float decay, uint64_t count,
                            float *restrict w, const float *restrict g, float *restrict buffer,
                            const bool first, const bool nesterov) {
    float lr = (float)update->lr, factor = (float)update->optimizer->momentum;
    float scale = (float)update->gradient_scale;
    for (uint64_t i = 0; i < count; i++) {
        float step = g[i] * scale + decay * w[i];
        float sum = first ? step : factor * buffer[i] + step;
        buffer[i] = sum;
        w[i] -= lr * (nesterov ? step + factor * sum : sum);
    }
}

static void sgd_plain(const struct weir__update *update, float decay, uint64_t count,
                      float *restrict w, const float *restrict g) {
    assert(update->optimizer->momentum == 0);
    float lr = (float)update->lr, scale = (float)update->gradient_scale;
    for (uint64_t i = 0; i < count; i++) w[i] -= lr * (g[i] * scale + decay * w[i]);
}

static void sgd_piece(const struct flat_work *work, const struct weir__span *span,
                      uint64_t number) {
    const struct weir__update *update = work->update;
    const struct weir_optimizer *o = update->optimizer;
    bool first = update->number == 1;
    float decay = span->decays ? (float)o->weight_decay : 0;
    float *w = (float *)update->parameters + span->first;
    const float *g = (const float *)update->gradients + span->first;
    float *m = o->momentum == 0 ? NULL : (float *)update->first + span->first;
    (void)number;
    if (m == NULL)
        sgd_plain(update, decay, span->count, w, g);
    else if (first && o->nesterov)
        sgd_loop(update, decay, span->count, w, g, m, true, true);
    else if (first)
        sgd_loop(update, decay, span->count, w, g, m, true, false);
    else if (o->nesterov)
        sgd_loop(update, decay, span->count, w, g, m, false, true);
    else
        sgd_loop(update, decay, span->count, w, g, m, false, false);
}

static int sgd(const struct weir__spans *spans, const struct weir__update *update) {
    assert(update->first != NULL || update->optimizer->momentum == 0 || spans->count == 0);
    return share_pieces(&(struct flat_work){.spans = spans, .update = update, .run = sgd_piece});
}

const struct weir__flat_calls VECTOR_F32(flat_f32) = {
    .accumulate = accumulate,
    .squares = squares,
    .squares_workspace = squares_workspace,
    .update = {[WEIR_OPTIMIZER_ADAMW] = adamw, [WEIR_OPTIMIZER_SGD] = sgd}};
