/* SPDX-License-Identifier: MIT */
/*
 * attention_grad_q_<bucket>, attention_grad_kv_<bucket>: with p = exp(scale * q k^T - lse) over the
 *   last `reach` keys up to the query's own, or all,
 *   and ds = scale * p * (dy v^T - delta), delta = dy . y:
 *   dq = ds k;  dk = ds^T q, dv = p^T dy
 *
 * For each row of the micro-batch and head. Nothing of the forward pass's 64 x 64 shares is kept:
 * they are made again, by a block for each 64 queries, which goes over the keys that they see and
 * sums dq, and by one for each 64 keys, which goes over the queries that see them, of all heads
 * that the keys serve, one head after the other, and sums dk and dv. So every sum has one owner and
 * one order; the price is that p and dy v^T are made twice, 7 products instead of 5. dq's kernel
 * also makes delta, which the other one needs: it goes first.
 *
 * Memory: dq is overwritten (=) by the first kernel, dk and dv by the second; delta is written by
 *   the first. Fast if heads are multiples of 16 bytes.
 * Bytes: dy, q, k, v, y, lse, dq, dk and dv once: little beside the work, 7 x T^2 x size
 * multiplications for each row and head, of which about (T + 64) / 2T are done where keys end at
 * the query. Floor: 14 x half of that / 67 TFLOP/s on an H200, without the tensor cores. Launch:
 * threads 256, blocks ceil(T / 64) x heads x R, for dk and dv as many as there are heads of keys;
 * shared memory 2 tiles and 2 x 64 numbers (34.5 KB).
 */
#include "net/attention_tile.cuh"

/* Four threads for each of the block's queries. */
template <typename T>
__device__ __forceinline__ void make_delta(float *shared, const struct query_head<T> &head,
                                           uint32_t first, uint32_t tokens, uint32_t size) {
    constexpr uint32_t together = THREADS / TILE;
    const uint32_t own = threadIdx.x / together, lane = threadIdx.x % together;
    const uint64_t at = (first + static_cast<uint64_t>(own)) * head.width;
    float sum[1] = {0.0f};
    if (first + own < tokens)
        for (uint32_t i = lane; i < size; i += together)
            sum[0] = fmaf(widen(head.dy[at + i]), widen(head.y[at + i]), sum[0]);
    sum_of_lanes<together>(sum);
    if (lane != 0) return;
    shared[own] = sum[0];
    if (first + own < tokens) head.delta[first + own] = sum[0];
}

template <typename T, int pieces>
__device__ __forceinline__ void grad_q(const struct weir__cuda_attention &pass) {
    DYNAMIC_SHARED(float, a);
    float *b = a + TILE * PITCH, *delta = b + TILE * PITCH;
    const struct block_part part = part_of_block(pass, pass.heads, TILE, true);
    const struct query_head<T> head = query_head_of<T>(pass, part.row, part.head);
    const uint64_t kv_at = head_at(pass, part.row, part.head / pass.group, pass.kv_step);
    const T *q = head.q + part.first * pass.step, *dy = head.dy + part.first * head.width;
    const uint32_t rows = pass.tokens - part.first, lane = threadIdx.x % ACROSS;
    const uint32_t query = part.first + own_row();
    float dq[pieces][OWN][OWN] = {}, lse[OWN];
    make_delta(delta, head, part.first, pass.tokens, pass.size);
#pragma unroll
    for (int i = 0; i < OWN; i++) lse[i] = query + i < pass.tokens ? head.lse[query + i] : 0.0f;

#pragma unroll 1
    for (uint32_t key = keys_first(pass, part.first) / TILE * TILE;
         key < keys_seen(pass, part.first); key += TILE) {
        const uint32_t keys = pass.tokens - key < TILE ? pass.tokens - key : TILE;
        const uint64_t at = kv_at + key * pass.kv_step;
        const T *k = static_cast<const T *>(pass.k) + at, *v = static_cast<const T *>(pass.v) + at;
        float dp[OWN][OWN] = {}, score[OWN][OWN] = {};
        multiply_heads<steps_unrolled<pieces>>(dp, a, b, dy, head.width, rows, v, pass.kv_step,
                                               keys, pass.size);
        multiply_heads<steps_unrolled<pieces>>(score, a, b, q, pass.step, rows, k, pass.kv_step,
                                               keys, pass.size);
#pragma unroll
        for (int i = 0; i < OWN; i++)
#pragma unroll
            for (int j = 0; j < OWN; j++) {
                const bool seen = sees(pass, query + i, key + lane + j * ACROSS);
                const float p = seen ? expf(score[i][j] * pass.scale - lse[i]) : 0.0f;
                score[i][j] = pass.scale * p * (dp[i][j] - delta[own_row() + i]);
            }
        __syncthreads();
        keep_tile(a, score);
        add_product(dq, a, b, k, pass.kv_step, keys, pass.size, true);
    }

    store_pieces(head.dq + part.first * pass.step, pass.step, dq, rows, pass.size);
}

/* Shares p of the queries (columns) in the keys (rows), and dp becomes ds. lse and delta are the
 * queries'. */
__device__ __forceinline__ void make_shares(float (&p)[OWN][OWN], float (&dp)[OWN][OWN],
                                            const struct weir__cuda_attention &pass,
                                            const float *lse, const float *delta, uint32_t key,
                                            uint32_t query) {
#pragma unroll
    for (int i = 0; i < OWN; i++)
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            const uint32_t column = threadIdx.x % ACROSS + j * ACROSS;
            const bool seen =
                sees(pass, query + column, key + own_row() + i) && query + column < pass.tokens;
            p[i][j] = seen ? expf(p[i][j] * pass.scale - lse[column]) : 0.0f;
            dp[i][j] = pass.scale * p[i][j] * (dp[i][j] - delta[column]);
        }
}

template <typename T, int pieces>
__device__ __forceinline__ void grad_kv(const struct weir__cuda_attention &pass) {
    DYNAMIC_SHARED(float, a);
    float *b = a + TILE * PITCH, *lse = b + TILE * PITCH, *delta = lse + TILE;
    const struct block_part part = part_of_block(pass, pass.heads / pass.group, TILE, false);
    const uint64_t at =
        head_at(pass, part.row, part.head, pass.kv_step) + part.first * pass.kv_step;
    const uint32_t left_keys = pass.tokens - part.first, keys = left_keys < TILE ? left_keys : TILE;
    const uint32_t begin = first_reader(pass, part.first);
    const uint32_t end = readers_end(pass, part.first + keys - 1);
    float dk[pieces][OWN][OWN] = {}, dv[pieces][OWN][OWN] = {};

    /* One loop over heads and queries: what is found anew for each tile takes no register. */
    uint32_t query = begin;
#pragma unroll 1
    for (uint32_t member = 0; member < pass.group;) {
        const uint32_t left = pass.tokens - query, queries = left < TILE ? left : TILE;
        const struct query_head<T> head =
            query_head_of<T>(pass, part.row, part.head * pass.group + member);
        const T *k = static_cast<const T *>(pass.k) + at, *v = static_cast<const T *>(pass.v) + at;
        const T *q = head.q + query * pass.step, *dy = head.dy + query * head.width;
        float p[OWN][OWN] = {}, dp[OWN][OWN] = {};
        multiply_heads<steps_unrolled<pieces>>(p, a, b, k, pass.kv_step, keys, q, pass.step,
                                               queries, pass.size);
        if (threadIdx.x < TILE) { /* nobody reads them between two of multiply_heads' barriers */
            lse[threadIdx.x] = threadIdx.x < left ? head.lse[query + threadIdx.x] : 0.0f;
            delta[threadIdx.x] = threadIdx.x < left ? head.delta[query + threadIdx.x] : 0.0f;
        }
        multiply_heads<steps_unrolled<pieces>>(dp, a, b, v, pass.kv_step, keys, dy, head.width,
                                               queries, pass.size);
        make_shares(p, dp, pass, lse, delta, part.first, query);
        __syncthreads();
        keep_tile(a, p);
        add_product(dv, a, b, dy, head.width, queries, pass.size, true);
        __syncthreads();
        keep_tile(a, dp);
        add_product(dk, a, b, q, pass.step, queries, pass.size, false);
        query += TILE;
        if (query >= end) query = begin, member++;
    }

    store_pieces(static_cast<T *>(pass.dk) + at, pass.kv_step, dk, keys, pass.size);
    store_pieces(static_cast<T *>(pass.dv) + at, pass.kv_step, dv, keys, pass.size);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    weir_attention_grad_q_64_f32(struct weir__cuda_attention pass) {
    grad_q<float, 1>(pass);
}
EXPORT_KERNEL(weir_attention_grad_q_64_f32);

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    weir_attention_grad_q_128_f32(struct weir__cuda_attention pass) {
    grad_q<float, 2>(pass);
}
EXPORT_KERNEL(weir_attention_grad_q_128_f32);

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    weir_attention_grad_q_256_f32(struct weir__cuda_attention pass) {
    grad_q<float, 4>(pass);
}
EXPORT_KERNEL(weir_attention_grad_q_256_f32);

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    weir_attention_grad_q_64_bf16(struct weir__cuda_attention pass) {
    grad_q<bf16, 1>(pass);
}
EXPORT_KERNEL(weir_attention_grad_q_64_bf16);

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    weir_attention_grad_q_128_bf16(struct weir__cuda_attention pass) {
    grad_q<bf16, 2>(pass);
}
EXPORT_KERNEL(weir_attention_grad_q_128_bf16);

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    weir_attention_grad_q_256_bf16(struct weir__cuda_attention pass) {
    grad_q<bf16, 4>(pass);
}
EXPORT_KERNEL(weir_attention_grad_q_256_bf16);

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    weir_attention_grad_kv_64_f32(struct weir__cuda_attention pass) {
    grad_kv<float, 1>(pass);
}
EXPORT_KERNEL(weir_attention_grad_kv_64_f32);

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    weir_attention_grad_kv_128_f32(struct weir__cuda_attention pass) {
    grad_kv<float, 2>(pass);
}
EXPORT_KERNEL(weir_attention_grad_kv_128_f32);

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    weir_attention_grad_kv_256_f32(struct weir__cuda_attention pass) {
    grad_kv<float, 4>(pass);
}
EXPORT_KERNEL(weir_attention_grad_kv_256_f32);

/* Of sizes that the tensor cores do not take: one block, so that nothing is spilled. */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    weir_attention_grad_kv_64_bf16(struct weir__cuda_attention pass) {
    grad_kv<bf16, 1>(pass);
}
EXPORT_KERNEL(weir_attention_grad_kv_64_bf16);

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    weir_attention_grad_kv_128_bf16(struct weir__cuda_attention pass) {
    grad_kv<bf16, 2>(pass);
}
EXPORT_KERNEL(weir_attention_grad_kv_128_bf16);

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    weir_attention_grad_kv_256_bf16(struct weir__cuda_attention pass) {
    grad_kv<bf16, 4>(pass);
}
EXPORT_KERNEL(weir_attention_grad_kv_256_bf16);
