/* SPDX-License-Identifier: MIT */
/*
 * attention_tensor_<bucket>: as attention_<bucket>, for BF16 on the tensor cores
 *
 * For heads of up to 128 numbers, a multiple of 8; `bucket` is the least of 64, 128 that holds one.
 * A block keeps 128 queries, 16 to a warp, and goes over the keys, 64 (or, for wide heads, 32) at a
 * time. Shares are rounded to BF16 before they are multiplied by v, their sum is not.
 *
 * Memory: y and lse are overwritten (=). q, k, v and y are multiples of 16 bytes, tokens too.
 * Work: 4 x T^2 x size operations for each row and head, of which about (T + 128) / 2T are done
 *   where keys end at the query.
 *   mma.sync reaches some 60% of an H200's 990 TFLOP/s; besides, a multiprocessor makes 16
 *   exponentials a cycle, which for heads of 64 numbers takes 60% of what the products do.
 * Launch: threads 256, blocks ceil(T / 128) x heads x R, shared memory 4 tiles: 36 KB, 34 KB.
 */
#include "net/attention_tensor.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS, QUERIES = WARP_ROWS * WARPS };

/* What is known of a lane's two queries; four lanes have the same ones, and each its own part of
 * `sum`. `scale` makes scores powers of 2. */
struct tile_softmax {
    float scale;
    float largest[2], sum[2];
};

/* -inf where the query does not see the key. */
template <int count>
__device__ __forceinline__ void mask(sums<count> &score, const struct weir__cuda_attention &pass,
                                     uint32_t query, uint32_t key) {
    const uint32_t lane = threadIdx.x % 32;
    query += lane / 4;
    key += lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < count; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (!sees(pass, query + i / 2 * EIGHT, key + n * EIGHT + i % 2))
                score[n][i] = -INFINITY;
}

/* Scores become shares, relative to the largest so far; factor: what older ones are worth. */
template <int count>
__device__ __forceinline__ void share_out(struct tile_softmax &state, sums<count> &score,
                                          float (&factor)[2]) {
    float now[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int n = 0; n < count; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) now[i / 2] = fmaxf(now[i / 2], score[n][i]);
    max_of_lanes<4>(now);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        now[half] = fmaxf(now[half], state.largest[half]);
        /* -inf - -inf is not a number */
        const float base = now[half] == -INFINITY ? 0.0f : now[half] * state.scale;
        factor[half] = exp2f(fmaf(state.largest[half], state.scale, -base));
        state.largest[half] = now[half];
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < count; n++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float &share = score[n][2 * half + j];
                share = exp2f(fmaf(share, state.scale, -base));
                sum += share;
            }
        state.sum[half] = fmaf(state.sum[half], factor[half], sum);
    }
}

template <int head>
__device__ __forceinline__ void scale_rows(float (&sum)[head / 64][EIGHT][4],
                                           const float (&factor)[2]) {
#pragma unroll
    for (int piece = 0; piece < head / 64; piece++)
#pragma unroll
        for (int n = 0; n < EIGHT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sum[piece][n][i] *= factor[i / 2];
}

template <int head, int keys>
__device__ __forceinline__ void fetch_keys(struct stream_buffer<head, keys> *buffer, const bf16 *k,
                                           const bf16 *v, uint32_t key,
                                           const struct weir__cuda_attention &pass) {
    const uint64_t at = key * pass.kv_step;
    const uint32_t left = pass.tokens - key;
    fetch_tile<head, keys, THREADS>(buffer->tile[0], k + at, pass.kv_step, left, pass.size);
    fetch_tile<head, keys, THREADS>(buffer->tile[1], v + at, pass.kv_step, left, pass.size);
}

template <int head>
__device__ __forceinline__ void attend(const struct weir__cuda_attention &pass) {
    constexpr int keys = head > 64 ? 32 : 64; /* of a wide head the sums need the registers */
    using buffer = stream_buffer<head, keys>;
    DYNAMIC_SHARED(buffer, buffers);
    const struct block_part part = part_of_block(pass, pass.heads, QUERIES, true);
    const uint32_t kv_head = part.head / pass.group;
    const bf16 *q =
        static_cast<const bf16 *>(pass.q) + head_at(pass, part.row, part.head, pass.step);
    const bf16 *k = kv_head_of(pass, static_cast<const bf16 *>(pass.k), part.row, kv_head);
    const bf16 *v = kv_head_of(pass, static_cast<const bf16 *>(pass.v), part.row, kv_head);
    const uint32_t left = pass.tokens - part.first,
                   end = left < QUERIES ? pass.tokens : part.first + QUERIES,
                   keys_end = keys_seen(pass, end - 1);
    const uint32_t warp = threadIdx.x / 32, first = part.first + warp * WARP_ROWS;
    struct tile_softmax state = {pass.scale * log2_e, {-INFINITY, -INFINITY}, {}};
    struct strip<head> queries;
    float out[head / 64][EIGHT][4] = {}, factor[2];

    bf16 *staging = buffers->tile[0]; /* all of the buffers */
    fetch_tile<head, QUERIES, THREADS>(staging, q + part.first * pass.step, pass.step, left,
                                       pass.size);
    copy_async_wait();
    __syncthreads();
    take_strip(queries, staging + warp * WARP_ROWS * pitch<head>);
    __syncthreads();
    const uint32_t begin = keys_first(pass, part.first) / keys * keys;
    fetch_keys(&buffers[0], k, v, begin, pass);
    uint32_t at = 0;
#pragma unroll 1
    for (uint32_t key = begin; key < keys_end; key += keys, at ^= 1) {
        copy_async_wait();
        __syncthreads();
        if (key + keys < keys_end) fetch_keys(&buffers[at ^ 1], k, v, key + keys, pass);
        if (first >= end || key >= keys_seen(pass, first + WARP_ROWS - 1) ||
            key + keys <= keys_first(pass, first))
            continue; /* the warp sees none of them */
        float score[keys / EIGHT][4] = {};
        rows_by_rows<head, keys / EIGHT>(score, queries, buffers[at].tile[0], pass.size);
        if (key + keys > keys_seen(pass, first) || key < keys_first(pass, first + WARP_ROWS - 1))
            mask<keys / EIGHT>(score, pass, first, key);
        share_out<keys / EIGHT>(state, score, factor);
        scale_rows<head>(out, factor);
        rows_by_columns<head, keys / EIGHT>(out, score, buffers[at].tile[1], pass.size);
    }

    sum_of_lanes<4>(state.sum);
    if (first >= end) return;
    const uint32_t lane = threadIdx.x % 32;
    float *lse = pass.lse + (part.row * pass.heads + part.head) * pass.tokens;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t query = first + lane / 4 + half * EIGHT;
        factor[half] = 1.0f / state.sum[half];
        if (lane % 4 == 0 && query < end)
            lse[query] = fmaf(state.largest[half], pass.scale, logf(state.sum[half]));
    }
    const uint64_t width = static_cast<uint64_t>(pass.heads) * pass.size;
    bf16 *y = static_cast<bf16 *>(pass.y) + head_at(pass, part.row, part.head, width);
    store_sums<head>(y + first * width, width, out, factor, end - first, pass.size);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    weir_attention_tensor_64_bf16(struct weir__cuda_attention pass) {
    attend<64>(pass);
}
EXPORT_KERNEL(weir_attention_tensor_64_bf16);

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    weir_attention_tensor_128_bf16(struct weir__cuda_attention pass) {
    attend<128>(pass);
}
EXPORT_KERNEL(weir_attention_tensor_128_bf16);
