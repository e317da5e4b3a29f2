/* SPDX-License-Identifier: MIT */
/**
 * Vectors of sixteen floats, the alphabet of our own kernels. Written out instead of left to the
 * compiler, so that the order of every sum stands in the source: lanes are added as v_sum says, on
 * every instruction set. Wide vectors are lowered to what the target has; AVX-512 holds one in a
 * register.
 *
 * The functions below are always inlined: kernels live in registers, so this header holds code.
 * Errors are stated in units of the last place (ulp) of the exact result.
 */
#ifndef WEIR_VECTOR_H
#define WEIR_VECTOR_H

#include <stdint.h>
#include <string.h>

/* ---- levels ---- */

/** vector_*.c are compiled once for each level (net/cpu/level.h), into functions and tables whose
 * names hold the level's: VECTOR(linear) is weir__v3_linear at level v3. */
#if !defined(WEIR_LEVEL) /* for whoever looks at one file: the build always says */
#define WEIR_LEVEL v2
#endif
#define VECTOR_F32(name) VECTOR_OF(WEIR_LEVEL, name)
#define VECTOR_OF(level, name) VECTOR_JOINED(level, name)
#define VECTOR_JOINED(level, name) weir__##level##_##name

/** Kernels compute with floats and keep sums, statistics and all that belongs to parameters as
 * such. Activations and their gradients are a `number` each: a float, or, where the same file is
 * compiled again (build/levels.zig), a bf16, which v_load widens and v_store rounds to. What is of
 * both is VECTOR(name), weir__v3_bf16_linear the second time; what is made once, VECTOR_F32(name).
 */
#define VECTOR_BF16(name) VECTOR_F32(bf16_##name)
#if defined(WEIR_STORED_BF16)
#define VECTOR(name) VECTOR_BF16(name)
typedef struct weir__bf16 number;
#else
#define VECTOR(name) VECTOR_F32(name)
typedef float number;
#endif

#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#endif

#if defined(__has_builtin)
#define V_HAS_ELEMENTWISE_FMA __has_builtin(__builtin_elementwise_fma)
#else
#define V_HAS_ELEMENTWISE_FMA 0
#endif

/* Vectors wider than the target's registers cross no function that is not inlined. */
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

#define LANES 16

typedef float vfloat __attribute__((vector_size(64)));
typedef int32_t vint __attribute__((vector_size(64)));
typedef uint32_t vword __attribute__((vector_size(64)));
typedef uint16_t vhalf __attribute__((vector_size(32)));
typedef double vdouble8 __attribute__((vector_size(64)));
typedef int64_t vlong8 __attribute__((vector_size(64)));

/** Before a loop of constant length over an array of vectors: without it some compilers keep the
 * array in memory, at a third of the speed. */
#if defined(__clang__)
#define V_UNROLL _Pragma("clang loop unroll(full)")
#else
#define V_UNROLL _Pragma("GCC unroll 32")
#endif

/** Hides what is known of a pointer from the compiler. */
#define V_OPAQUE(pointer) __asm__("" : "+r"(pointer))

/** Sets all of a register's lanes to the float at `from`, by a load of its own: compilers that see
 * several neighbours loaded so may shuffle them out of one register, or keep sums in memory. */
#if defined(__AVX512F__)
#define V_BROADCAST(v, from) __asm__("vbroadcastss %1, %0" : "=v"(v) : "m"(*(from)))
#elif defined(__AVX__)
#define V_BROADCAST(v, from) __asm__("vbroadcastss %1, %0" : "=x"(v) : "m"(*(from)))
#else
#define V_BROADCAST(v, from) ((v) = *(from) - (__typeof__(v)){0})
#endif

/** AVX-512: an instruction that adds to c what it makes of b and of the float at `from`, in all
 * lanes. Compilers use it for a number that is multiplied once, and not twice. */
#define V_BROADCAST_IN(instruction, c, from, b)                                                    \
    __asm__(instruction " %1%{1to16%}, %2, %0" : "+v"(c) : "m"(*(from)), "v"(b))

#define VECTOR_INLINE static inline __attribute__((always_inline, unused))

/** The upper half of a float's bits. */
struct weir__bf16 {
    uint16_t bits;
};

/* ---- sizes ---- */

VECTOR_INLINE int64_t v_least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/** Of `part` each, the last one maybe less. */
VECTOR_INLINE int64_t v_parts(int64_t length, int64_t part) {
    return (length + part - 1) / part;
}

/** The next multiple of `unit`. */
VECTOR_INLINE int64_t v_up(int64_t count, int64_t unit) {
    return v_parts(count, unit) * unit;
}

/* ---- memory: any alignment; the `some` forms touch `count` (0 … 16) numbers only ---- */

/** Of floats or bf16, by the pointer's type. */
#define v_load(from) V_BY_TYPE(from, v_load)(from)
#define v_store(to, v) V_BY_TYPE(to, v_store)(to, v)
/** Lanes from `count` on are 0. */
#define v_load_some(from, count) V_BY_TYPE(from, v_load_some)(from, count)
#define v_store_some(to, v, count) V_BY_TYPE(to, v_store_some)(to, v, count)
/** A single number. */
#define v_load_one(from) V_BY_TYPE(from, v_load_one)(from)
#define v_store_one(to, x) V_BY_TYPE(to, v_store_one)(to, x)
#define V_BY_TYPE(pointer, name)                                                                   \
    _Generic((pointer),                                                                            \
        const float *: name##_f32,                                                                 \
        float *: name##_f32,                                                                       \
        const struct weir__bf16 *: name##_bf16,                                                    \
        struct weir__bf16 *: name##_bf16)

VECTOR_INLINE vfloat v_load_f32(const float *from) {
    vfloat v;
    memcpy(&v, from, sizeof v);
    return v;
}

VECTOR_INLINE void v_store_f32(float *to, vfloat v) {
    memcpy(to, &v, sizeof v);
}

/** Past the caches: what is written once and read long after. `to` is a line's, and v_past_done
 * comes before others read it. */
VECTOR_INLINE void v_store_past(float *to, vfloat v) {
#if defined(__clang__)
    __builtin_nontemporal_store(v, (vfloat *)to);
#else
    v_store_f32(to, v);
#endif
}

VECTOR_INLINE void v_past_done(void) {
#if defined(__x86_64__)
    __builtin_ia32_sfence();
#else
    __atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

VECTOR_INLINE vfloat v_all(float x) {
    return (vfloat){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}

VECTOR_INLINE vfloat v_load_some_f32(const float *from, int64_t count) {
#if defined(__AVX512F__)
    return (vfloat)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), from);
#elif defined(__AVX2__)
    static const int32_t masks[2 * LANES] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                             -1, -1, -1, -1, -1, -1, -1, -1};
    const int32_t *mask = masks + LANES - count; /* of the first lanes */
    vfloat v;
    __m256i low, high;
    memcpy(&low, mask, sizeof low);
    memcpy(&high, mask + LANES / 2, sizeof high);
    __m256 halves[] = {_mm256_maskload_ps(from, low), _mm256_maskload_ps(from + LANES / 2, high)};
    memcpy(&v, halves, sizeof v);
    return v;
#else
    if (count == LANES) return v_load_f32(from);
    vfloat v = v_all(0);
    for (int64_t i = 0; i < count; i++) v[i] = from[i];
    return v;
#endif
}

VECTOR_INLINE void v_store_some_f32(float *to, vfloat v, int64_t count) {
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), (__m512)v);
#else
    if (count == LANES) v_store_f32(to, v);
    for (int64_t i = 0; i < count % LANES; i++) to[i] = v[i];
#endif
}

/** As memcpy of `count` floats, in the level's own vectors: for the pieces of some lines that
 * products gather, of which a call would be half the time. */
VECTOR_INLINE void v_copy(float *to, const float *from, int64_t count) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) v_store_f32(to + i, v_load_f32(from + i));
    if (i < count) v_store_some_f32(to + i, v_load_some_f32(from + i, count - i), count - i);
}

VECTOR_INLINE float v_load_one_f32(const float *from) {
    return *from;
}

VECTOR_INLINE void v_store_one_f32(float *to, float x) {
    *to = x;
}

VECTOR_INLINE vfloat v_from_bf16(vhalf bits) {
    return (vfloat)(__builtin_convertvector(bits, vword) << 16);
}

/** Rounded to nearest, ties to even, beyond the largest to infinity; NaNs stay (quiet) ones. */
VECTOR_INLINE vhalf v_to_bf16(vfloat v) {
    vword bits = (vword)v, is_number = (vword)(v == v);
    vword rounded = bits + 0x7fff + (bits >> 16 & 1);
    return __builtin_convertvector(((rounded & is_number) | ((bits | 0x400000) & ~is_number)) >> 16,
                                   vhalf);
}

VECTOR_INLINE vfloat v_load_bf16(const struct weir__bf16 *from) {
    vhalf bits;
    memcpy(&bits, from, sizeof bits);
    return v_from_bf16(bits);
}

VECTOR_INLINE void v_store_bf16(struct weir__bf16 *to, vfloat v) {
    vhalf bits = v_to_bf16(v);
    memcpy(to, &bits, sizeof bits);
}

VECTOR_INLINE vfloat v_load_some_bf16(const struct weir__bf16 *from, int64_t count) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    return v_from_bf16((vhalf)_mm256_maskz_loadu_epi16((__mmask16)((1u << count) - 1), from));
#else
    if (count == LANES) return v_load_bf16(from);
    vhalf bits = {0};
    for (int64_t i = 0; i < count; i++) bits[i] = from[i].bits;
    return v_from_bf16(bits);
#endif
}

VECTOR_INLINE void v_store_some_bf16(struct weir__bf16 *to, vfloat v, int64_t count) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    _mm256_mask_storeu_epi16(to, (__mmask16)((1u << count) - 1), (__m256i)v_to_bf16(v));
#else
    if (count == LANES) v_store_bf16(to, v);
    vhalf bits = v_to_bf16(v);
    for (int64_t i = 0; i < count % LANES; i++) to[i].bits = bits[i];
#endif
}

/** As it would be loaded again. */
VECTOR_INLINE vfloat v_as_stored(vfloat v) {
    return sizeof(number) == sizeof(float) ? v : v_from_bf16(v_to_bf16(v));
}

VECTOR_INLINE float v_load_one_bf16(const struct weir__bf16 *from) {
    return v_from_bf16((vhalf){from->bits})[0];
}

VECTOR_INLINE void v_store_one_bf16(struct weir__bf16 *to, float x) {
    to->bits = v_to_bf16(v_all(x))[0];
}

/* ---- arithmetic ---- */

/** a * b + c, in one rounding where the target has that. */
VECTOR_INLINE vfloat v_fma(vfloat a, vfloat b, vfloat c) {
#if defined(__AVX512F__)
    return (vfloat)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif (defined(__FMA__) || defined(__aarch64__)) && V_HAS_ELEMENTWISE_FMA
    return __builtin_elementwise_fma(a, b, c);
#elif defined(__FMA__)
    __m256 x[2], y[2], z[2];
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    memcpy(z, &c, sizeof z);
    for (int i = 0; i < 2; i++) z[i] = _mm256_fmadd_ps(x[i], y[i], z[i]);
    memcpy(&c, z, sizeof z);
    return c;
#elif defined(__aarch64__)
    vfloat sum;
    for (int i = 0; i < LANES; i++) sum[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return sum;
#else
    return a * b + c;
#endif
}

/** Where `mask` (all ones or all zeros in a lane) is set a, else b. */
VECTOR_INLINE vfloat v_select(vint mask, vfloat a, vfloat b) {
    return (vfloat)(((vint)a & mask) | ((vint)b & ~mask));
}

VECTOR_INLINE vfloat v_max(vfloat a, vfloat b) {
    return v_select(a > b, a, b);
}

/** Lanes where `mask` is zeros become 0, the others stay. */
VECTOR_INLINE vfloat v_keep(vint mask, vfloat a) {
    return (vfloat)((vint)a & mask);
}

/** Correctly rounded. */
VECTOR_INLINE vfloat v_sqrt(vfloat a) {
#if defined(__AVX512F__)
    return (vfloat)_mm512_sqrt_ps((__m512)a);
#else
    for (int i = 0; i < LANES; i++) a[i] = __builtin_sqrtf(a[i]);
    return a;
#endif
}

VECTOR_INLINE vfloat v_abs(vfloat a) {
    return (vfloat)((vint)a & 0x7fffffff);
}

/** Lane i of the result is lane i + distance, for the first lanes. */
#define V_FOLD(v, distance)                                                                        \
    __builtin_shufflevector(v, v, (0 + (distance)) % 16, (1 + (distance)) % 16,                    \
                            (2 + (distance)) % 16, (3 + (distance)) % 16, (4 + (distance)) % 16,   \
                            (5 + (distance)) % 16, (6 + (distance)) % 16, (7 + (distance)) % 16,   \
                            (8 + (distance)) % 16, (9 + (distance)) % 16, (10 + (distance)) % 16,  \
                            (11 + (distance)) % 16, (12 + (distance)) % 16,                        \
                            (13 + (distance)) % 16, (14 + (distance)) % 16,                        \
                            (15 + (distance)) % 16)

/** Halves are added until one lane is left: 8 apart, 4, 2, 1. */
VECTOR_INLINE float v_sum(vfloat v) {
    v += V_FOLD(v, 8);
    v += V_FOLD(v, 4);
    v += V_FOLD(v, 2);
    v += V_FOLD(v, 1);
    return v[0];
}

VECTOR_INLINE float v_largest(vfloat v) {
    v = v_max(v, V_FOLD(v, 8));
    v = v_max(v, V_FOLD(v, 4));
    v = v_max(v, V_FOLD(v, 2));
    v = v_max(v, V_FOLD(v, 1));
    return v[0];
}

VECTOR_INLINE double v_sum8(vdouble8 v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

/** The lower and upper eight lanes as doubles. */
VECTOR_INLINE void v_widen(vfloat v, vdouble8 *low, vdouble8 *high) {
    typedef float half __attribute__((vector_size(32)));
    half parts[2];
    memcpy(parts, &v, sizeof v);
    *low = __builtin_convertvector(parts[0], vdouble8);
    *high = __builtin_convertvector(parts[1], vdouble8);
}

VECTOR_INLINE vint v_lane_numbers(void) {
    return (vint){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
}

/** Exchanges lanes whose numbers differ in the bit `s` between rows that differ in it. */
#define V_EXCHANGE_LOW(a, b, s)                                                                    \
    __builtin_shufflevector(a, b, V_LOW(0, s), V_LOW(1, s), V_LOW(2, s), V_LOW(3, s), V_LOW(4, s), \
                            V_LOW(5, s), V_LOW(6, s), V_LOW(7, s), V_LOW(8, s), V_LOW(9, s),       \
                            V_LOW(10, s), V_LOW(11, s), V_LOW(12, s), V_LOW(13, s), V_LOW(14, s),  \
                            V_LOW(15, s))
#define V_EXCHANGE_HIGH(a, b, s)                                                                   \
    __builtin_shufflevector(a, b, V_HIGH(0, s), V_HIGH(1, s), V_HIGH(2, s), V_HIGH(3, s),          \
                            V_HIGH(4, s), V_HIGH(5, s), V_HIGH(6, s), V_HIGH(7, s), V_HIGH(8, s),  \
                            V_HIGH(9, s), V_HIGH(10, s), V_HIGH(11, s), V_HIGH(12, s),             \
                            V_HIGH(13, s), V_HIGH(14, s), V_HIGH(15, s))
#define V_LOW(lane, s) (((lane) & (s)) ? 16 + (lane) - (s) : (lane))
#define V_HIGH(lane, s) (((lane) & (s)) ? 16 + (lane) : (lane) + (s))
#define V_EXCHANGE(rows, s)                                                                        \
    V_UNROLL                                                                                       \
    for (int i = 0; i < LANES; i++) {                                                              \
        if (i & (s)) continue;                                                                     \
        vfloat low = V_EXCHANGE_LOW((rows)[i], (rows)[i + (s)], s);                                \
        (rows)[i + (s)] = V_EXCHANGE_HIGH((rows)[i], (rows)[i + (s)], s);                          \
        (rows)[i] = low;                                                                           \
    }

/** rows[i][j] becomes rows[j][i]. */
VECTOR_INLINE void v_transpose(vfloat rows[LANES]){V_EXCHANGE(rows, 8) V_EXCHANGE(rows, 4)
                                                       V_EXCHANGE(rows, 2) V_EXCHANGE(rows, 1)}

/** Eight rows of eight numbers, with so many floats from row to row, become columns. */
VECTOR_INLINE void v_turn_quarter(const float *from, int64_t from_row, float *to, int64_t to_row) {
    typedef float eight __attribute__((vector_size(32)));
    eight rows[8], pairs[8];
    V_UNROLL
    for (int i = 0; i < 8; i++) memcpy(&rows[i], from + i * from_row, sizeof rows[i]);
    V_UNROLL
    for (int i = 0; i < 8; i += 2) {
        eight a = rows[i], b = rows[i + 1];
        pairs[i] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
        pairs[i + 1] = __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
    }
    V_UNROLL
    for (int i = 0; i < 4; i++) {
        int first = i / 2 * 4 + i % 2;
        eight a = pairs[first], b = pairs[first + 2];
        rows[i / 2 * 4 + i % 2 * 2] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
        rows[i / 2 * 4 + i % 2 * 2 + 1] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    }
    V_UNROLL
    for (int i = 0; i < 4; i++) {
        eight low = __builtin_shufflevector(rows[i], rows[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        eight high = __builtin_shufflevector(rows[i], rows[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
        memcpy(to + i * to_row, &low, sizeof low);
        memcpy(to + (i + 4) * to_row, &high, sizeof high);
    }
}

/** The same for 16 rows in memory, which need not be in registers all at a time. */
VECTOR_INLINE void v_turn(const float *from, int64_t from_row, float *to, int64_t to_row) {
    V_UNROLL
    for (int i = 0; i < LANES; i += 8) {
        V_UNROLL
        for (int j = 0; j < LANES; j += 8)
            v_turn_quarter(from + i * from_row + j, from_row, to + j * to_row + i, to_row);
    }
}

/* ---- functions; polynomials fitted by Remez exchange, coefficients lowest power last ---- */

/** x = r + power * ln 2 with r within ln 2 / 2 of 0; returns q with exp(r) = 1 + r * q. For what
 * exp does not overflow on; garbage below -2^22. */
VECTOR_INLINE vfloat v_exp_split(vfloat x, vfloat *r, vword *power) {
    /* Adding 1.5 * 2^23 rounds to a whole number, which then stands in the low bits. */
    const vfloat shift = v_all(12582912.0f);
    vfloat turns = v_fma(x, v_all(1.44269504f), shift);
    *power = (vword)turns - (vword)shift;
    turns -= shift;
    /* ln 2 in two parts, the first with few enough bits that turns * part is exact. */
    *r = v_fma(turns, v_all(-0.693359375f), x);
    *r = v_fma(turns, v_all(2.12194440e-4f), *r);
    vfloat p = v_all(1.381454414e-3f);
    p = v_fma(p, *r, v_all(8.368745387e-3f));
    p = v_fma(p, *r, v_all(4.166839073e-2f));
    p = v_fma(p, *r, v_all(1.66665204e-1f));
    p = v_fma(p, *r, v_all(4.999999343e-1f));
    return v_fma(p, *r, v_all(1.0f));
}

/** exp(x) for x <= 88: within 2 ulp; 0 below -87.3, where floats lose digits. NaN stays NaN. */
VECTOR_INLINE vfloat v_exp(vfloat x) {
    vfloat r;
    vword power;
    vfloat p = v_exp_split(x, &r, &power);
    p = v_fma(p, r, v_all(1.0f));
    vfloat scaled = p * (vfloat)((power + 127) << 23);
    return v_select(x < v_all(-87.3f), v_all(0), scaled);
}

/** log(1 + f) + turns * ln 2 for 1 + f in [sqrt 1/2, sqrt 2). */
VECTOR_INLINE vfloat v_log_join(vfloat f, vfloat turns) {
    vfloat p = v_all(-7.634486246e-2f);
    p = v_fma(p, f, v_all(1.276156433e-1f));
    p = v_fma(p, f, v_all(-1.316018088e-1f));
    p = v_fma(p, f, v_all(1.420176024e-1f));
    p = v_fma(p, f, v_all(-1.662335779e-1f));
    p = v_fma(p, f, v_all(2.000122677e-1f));
    p = v_fma(p, f, v_all(-2.500082101e-1f));
    p = v_fma(p, f, v_all(3.333333171e-1f));
    vfloat square = f * f;
    /* log(1 + f) = f - f^2 / 2 + f^3 p; ln 2 in two parts as above. */
    vfloat rest = v_fma(turns, v_all(-2.12194440e-4f), p * (f * square));
    rest = v_fma(square, v_all(-0.5f), rest);
    return v_fma(turns, v_all(0.693359375f), f + rest);
}

/** log(x) for normal x > 0: within 2 ulp. NaN stays NaN. */
VECTOR_INLINE vfloat v_log(vfloat x) {
    /* x = (1 + f) * 2^power with 1 + f in [sqrt 1/2, sqrt 2): 0x3f3504f3 is sqrt 1/2. */
    vint bits = (vint)x - 0x3f3504f3;
    vint power = bits >> 23;
    vfloat f = (vfloat)((bits & 0x007fffff) + 0x3f3504f3) - 1.0f;
    vfloat sum = v_log_join(f, __builtin_convertvector(power, vfloat));
    return v_select(x == x, sum, x);
}

/** log(1 + x) for x in [0, 1]: within 2 ulp. NaN stays NaN. */
VECTOR_INLINE vfloat v_log_above_1(vfloat x) {
    vint high = x > v_all(0.41421354f);
    return v_log_join(v_select(high, (x - 1.0f) * 0.5f, x), v_select(high, v_all(1), v_all(0)));
}

/** The normal distribution: its share below x, within 2^-22 (2 ulp of 1), on the lower tail also
 * within 2^-20 of its own size while exp(-x^2 / 2) is; and its density without the factor 1 /
 * sqrt(2 pi), exp(-x^2 / 2). */
VECTOR_INLINE vfloat v_normal_share(vfloat x, vfloat *density) {
    /* Mills' ratio is smooth in 1 / (1 + 0.34 |x|); fitted up to |x| = 13.3. */
    vfloat t = 1.0f / v_fma(v_all(0.34f), v_abs(x), v_all(1.0f));
    vfloat p = v_all(-2.647195202e-2f);
    p = v_fma(p, t, v_all(1.411503662e-1f));
    p = v_fma(p, t, v_all(-2.764146067e-1f));
    p = v_fma(p, t, v_all(2.057780699e-1f));
    p = v_fma(p, t, v_all(-4.708490428e-2f));
    p = v_fma(p, t, v_all(1.163142717e-1f));
    p = v_fma(p, t, v_all(1.149675292e-1f));
    p = v_fma(p, t, v_all(1.361423824e-1f));
    p = v_fma(p, t, v_all(1.356188562e-1f));
    *density = v_exp(x * x * -0.5f);
    vfloat tail = *density * (p * t);
    return v_select(x > v_all(0), 1.0f - tail, tail);
}

/** What 1 / (1 + exp(-x)) and its slope share: share = that, spread = share * (1 - share). Within
 * 3 and 5 ulp where |x| <= 16; further out the rounding of x itself weighs more. */
VECTOR_INLINE vfloat v_sigmoid(vfloat x, vfloat *spread) {
    vfloat small = v_exp(-v_abs(x));
    vfloat inverse = 1.0f / (1.0f + small);
    vfloat other = small * inverse;
    *spread = inverse * other;
    return v_select(x < v_all(0), other, inverse);
}

/** tanh(x): within 3 ulp. NaN stays NaN. */
VECTOR_INLINE vfloat v_tanh(vfloat x) {
    vfloat twice = v_abs(x) * -2.0f, r;
    vword power;
    vfloat p = v_exp_split(twice, &r, &power);
    vfloat scale = (vfloat)((power + 127) << 23);
    vfloat below_1 = v_fma(scale, p * r, scale - 1.0f); /* exp(-2 |x|) - 1 */
    below_1 = v_select(twice < v_all(-87.3f), v_all(-1), below_1);
    vfloat size = v_abs(below_1 / (below_1 + 2.0f));
    return (vfloat)((vint)size | ((vint)x & INT32_MIN));
}

/** x where `gate` is above 0, else slope * x: a leaky ReLU, and its gradient. */
VECTOR_INLINE vfloat v_leaky(vfloat gate, vfloat x, float slope) {
    return v_select(gate > v_all(0), x, x * slope);
}

#endif
