/* SPDX-License-Identifier: MIT */
/*
 * Rotary positions. The angles of a token are the same for all heads, and cost more than turning
 * one: so each part of the work takes some tokens, makes a token's sines and cosines once, and
 * turns all its heads. An angle is reduced to an eighth of a turn in double.
 */
#include "net/cpu/rows.h"
#include "net/cpu/vector_calls.h"

#include <math.h>

/* sin and cos on [-pi/4, pi/4]: Taylor's series, of which what is cut off is below 2^-27 of the
 * result. */
#define SIN_3 -0.16666667f
#define SIN_5 8.333331e-3f
#define SIN_7 -1.9841270e-4f
#define SIN_9 2.7557319e-6f
#define COS_4 4.1666668e-2f
#define COS_6 -1.3888889e-3f
#define COS_8 2.4801587e-5f
#define COS_10 -2.7557319e-7f

enum { TOKENS_AT_ONCE = 16 };

struct turn {
    const struct weir__op_call *call;
    float way; /**< 1, or -1 to turn back */
};

int VECTOR(measure_rope)(const struct weir__op_shape *shape, size_t *workspace) {
    size_t size = (size_t)(shape->width / shape->heads);
    *workspace = shape->threads * (size + 2 * LANES) * sizeof(float);
    return WEIR_OK;
}

/** Sines and cosines of the angles of a token at `place`: plain sums and products of floats and
 * doubles, which compilers turn into vectors. */
static void find_angles(const struct weir__op_shape *shape, int64_t place, float way, float *sines,
                        float *cosines) {
    int64_t half = shape->width / shape->heads / 2;
    for (int64_t i = 0; i < half; i++) {
        float angle = shape->frequencies[i] * (float)place;
        double quarters = (double)angle * (2 / 3.14159265358979323846);
        double nearest = floor(quarters + 0.5);
        float x = (float)((quarters - nearest) * (3.14159265358979323846 / 2)), xx = x * x;
        float sine = x + x * xx * (SIN_3 + xx * (SIN_5 + xx * (SIN_7 + xx * SIN_9)));
        float cosine =
            1 - xx * 0.5f + xx * xx * (COS_4 + xx * (COS_6 + xx * (COS_8 + xx * COS_10)));
        int32_t quarter = (int32_t)nearest;
        bool swapped = (quarter & 1) != 0;
        float s = swapped ? cosine : sine, c = swapped ? sine : cosine;
        sines[i] = (quarter & 2) != 0 ? -way * s : way * s;
        cosines[i] = ((quarter + 1) & 2) != 0 ? -c : c;
    }
}

/** Turns one token's heads. */
static void turn_token(const struct weir__op_shape *shape, const float *sines, const float *cosines,
                       const number *x, number *y) {
    int64_t size = shape->width / shape->heads, half = size / 2;
    for (int64_t head = 0; head < shape->width; head += size)
        for (int64_t i = 0; i < half; i += LANES) {
            int64_t lanes = half - i < LANES ? half - i : LANES, at = head + i;
            vfloat s = v_load_some(sines + i, lanes), c = v_load_some(cosines + i, lanes);
            vfloat a = v_load_some(x + at, lanes), b = v_load_some(x + at + half, lanes);
            v_store_some(y + at, v_fma(a, c, -(b * s)), lanes);
            v_store_some(y + at + half, v_fma(b, c, a * s), lanes);
        }
}

/** Of the micro-batch's token m. */
static int64_t place_of(const struct weir__op_call *call, int64_t m) {
    const struct weir__op_shape *shape = call->shape;
    if (shape->op == WEIR__OP_rope_cached)
        return (int64_t)call->places->place[call->row_first + m];
    int64_t first = shape->packed ? weir__document_first(shape, call->in[1], m) : 0;
    return m % shape->tokens - first;
}

static void turn_part(void *context, uint32_t part, uint32_t member) {
    const struct turn *turn = context;
    const struct weir__op_call *call = turn->call;
    const struct weir__op_shape *shape = call->shape;
    int64_t size = shape->width / shape->heads, first = (int64_t)part * TOKENS_AT_ONCE;
    int64_t count = shape->rows * shape->tokens;
    float *sines = (float *)call->workspace + member * (size + 2 * LANES);
    float *cosines = sines + size / 2 + LANES;
    for (int64_t m = first; m < count && m < first + TOKENS_AT_ONCE; m++) {
        find_angles(shape, place_of(call, m), turn->way, sines, cosines);
        turn_token(shape, sines, cosines, (const number *)call->in[0] + m * shape->width,
                   (number *)call->out[0] + m * shape->width);
    }
}

static int turn_all(const struct weir__op_call *call, float way) {
    const struct weir__op_shape *shape = call->shape;
    assert(shape->frequencies != NULL && shape->width / shape->heads % 2 == 0);
    int64_t count = shape->rows * shape->tokens;
    struct turn turn = {call, way};
    weir__share(call, (count + TOKENS_AT_ONCE - 1) / TOKENS_AT_ONCE,
                WEIR__SHARED_NUMBER * (double)(count * shape->width), turn_part, &turn);
    return WEIR_OK;
}

int VECTOR(rope)(const struct weir__op_call *call) {
    return turn_all(call, 1);
}

int VECTOR(rope_grad)(const struct weir__op_call *call) {
    return turn_all(call, -1);
}

int VECTOR(rope_cached)(const struct weir__op_call *call) {
    return turn_all(call, 1);
}
