/* SPDX-License-Identifier: MIT */
/*
 * attention_<bucket>: y = softmax(scale * q k^T, over the last `reach` keys up to the query's own,
 *                     or all) v, lse = log of the sum of exp of the scaled scores
 *
 * For each row of the micro-batch and head, whose keys and values may serve several heads. As
 * FlashAttention does, a block keeps 64 queries and goes over the keys, 64 at a time: their scores
 * make shares relative to the largest score so far, and what was summed up before is scaled when
 * there is a larger one. So there are never more than 64 x 64 scores. `bucket` is the least of 64,
 * 128, 256 that holds a head.
 *
 * A score that is not finite gives NaN in lse, and so does NaN in q. One in v or k reaches the
 * queries that see it, and may reach others of its tile of 64, too.
 *
 * Memory: y and lse are overwritten (=). Fast if heads are multiples of 16 bytes.
 * Bytes: reads q, k and v, writes y and lse: little beside the work, 2 x T^2 x size multiplications
 * for each row and head, of which about (T + 64) / 2T are done where keys end at the query. Floor:
 * 4 x half of that / 67 TFLOP/s on an H200, without the tensor cores. Launch: threads 256, blocks
 * ceil(T / 64) x heads x R, shared memory 2 tiles (34 KB).
 */
#include "net/attention_tile.cuh"

/* What is known of a thread's four queries; the 16 threads of a row of a product have the same
 * queries, and each its own part of `sum`. */
struct softmax {
    float largest[OWN], sum[OWN];
};

/* Scores become shares, relative to the largest so far; factor: what older ones are worth. */
__device__ __forceinline__ void share_out(struct softmax &state, float (&score)[OWN][OWN],
                                          float (&factor)[OWN]) {
    float now[OWN];
#pragma unroll
    for (int i = 0; i < OWN; i++)
        now[i] = fmaxf(fmaxf(score[i][0], score[i][1]), fmaxf(score[i][2], score[i][3]));
    max_of_lanes<ACROSS>(now);
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        now[i] = fmaxf(now[i], state.largest[i]);
        const float base = now[i] == -INFINITY ? 0.0f : now[i]; /* -inf - -inf is not a number */
        factor[i] = expf(state.largest[i] - base);
        state.sum[i] *= factor[i];
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            score[i][j] = expf(score[i][j] - base);
            state.sum[i] += score[i][j];
        }
        state.largest[i] = now[i];
    }
}

/* Scaled, and -inf where the query does not see the key. */
__device__ __forceinline__ void mask(float (&score)[OWN][OWN],
                                     const struct weir__cuda_attention &pass, uint32_t query,
                                     uint32_t key) {
#pragma unroll
    for (int i = 0; i < OWN; i++)
#pragma unroll
        for (int j = 0; j < OWN; j++)
            score[i][j] =
                sees(pass, query + i, key + j * ACROSS) ? score[i][j] * pass.scale : -INFINITY;
}

template <int pieces>
__device__ __forceinline__ void scale_rows(float (&numbers)[pieces][OWN][OWN],
                                           const float (&factor)[OWN]) {
#pragma unroll
    for (int piece = 0; piece < pieces; piece++)
#pragma unroll
        for (int i = 0; i < OWN; i++)
#pragma unroll
            for (int j = 0; j < OWN; j++) numbers[piece][i][j] *= factor[i];
}

template <typename T, int pieces>
__device__ __forceinline__ void attend(const struct weir__cuda_attention &pass) {
    DYNAMIC_SHARED(float, a);
    float *b = a + TILE * PITCH;
    const struct block_part part = part_of_block(pass, pass.heads, TILE, true);
    const uint64_t step = pass.step, kv_step = pass.kv_step;
    const uint64_t kv_at = head_at(pass, part.row, part.head / pass.group, kv_step);
    const T *q = static_cast<const T *>(pass.q) + head_at(pass, part.row, part.head, step) +
                 part.first * step;
    const uint32_t rows = pass.tokens - part.first;
    const uint32_t query = part.first + own_row(), lane = threadIdx.x % ACROSS;
    float out[pieces][OWN][OWN] = {}, factor[OWN];
    struct softmax state = {{-INFINITY, -INFINITY, -INFINITY, -INFINITY}, {}};

#pragma unroll 1
    for (uint32_t key = keys_first(pass, part.first) / TILE * TILE;
         key < keys_seen(pass, part.first); key += TILE) {
        const uint32_t keys = pass.tokens - key < TILE ? pass.tokens - key : TILE;
        const uint64_t at = kv_at + key * kv_step;
        float score[OWN][OWN] = {};
        multiply_heads<steps_unrolled<pieces>>(score, a, b, q, step, rows,
                                               static_cast<const T *>(pass.k) + at, kv_step, keys,
                                               pass.size);
        mask(score, pass, query, key + lane);
        share_out(state, score, factor);
        scale_rows(out, factor);
        __syncthreads();
        keep_tile(a, score);
        add_product(out, a, b, static_cast<const T *>(pass.v) + at, kv_step, keys, pass.size,
                    false);
    }

    sum_of_lanes<ACROSS>(state.sum);
    float *lse = pass.lse + (part.row * pass.heads + part.head) * pass.tokens;
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        factor[i] = 1.0f / state.sum[i];
        if (lane == 0 && query + i < pass.tokens)
            lse[query + i] = state.largest[i] + logf(state.sum[i]);
    }
    scale_rows(out, factor);
    const uint64_t width = static_cast<uint64_t>(pass.heads) * pass.size;
    T *y = static_cast<T *>(pass.y) + head_at(pass, part.row, part.head, width);
    store_pieces(y + part.first * width, width, out, rows, pass.size);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    weir_attention_64_f32(struct weir__cuda_attention pass) {
    attend<float, 1>(pass);
}
EXPORT_KERNEL(weir_attention_64_f32);

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    weir_attention_128_f32(struct weir__cuda_attention pass) {
    attend<float, 2>(pass);
}
EXPORT_KERNEL(weir_attention_128_f32);

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    weir_attention_256_f32(struct weir__cuda_attention pass) {
    attend<float, 4>(pass);
}
EXPORT_KERNEL(weir_attention_256_f32);

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    weir_attention_64_bf16(struct weir__cuda_attention pass) {
    attend<bf16, 1>(pass);
}
EXPORT_KERNEL(weir_attention_64_bf16);

/* Of sizes that the tensor cores do not take: one block, so that nothing is spilled. */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    weir_attention_128_bf16(struct weir__cuda_attention pass) {
    attend<bf16, 2>(pass);
}
EXPORT_KERNEL(weir_attention_128_bf16);

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    weir_attention_256_bf16(struct weir__cuda_attention pass) {
    attend<bf16, 4>(pass);
}
EXPORT_KERNEL(weir_attention_256_bf16);
