/* SPDX-License-Identifier: MIT */
/*
 * attention_grad_q_tensor_<bucket>, attention_grad_kv_tensor_<bucket>: as attention_grad_q_<bucket>
 *   and attention_grad_kv_<bucket>, for BF16 on the tensor cores
 *
 * For heads as in attention_tensor. A block keeps 64 queries (or keys), 16 to a warp: q and dy (or
 * k and v) stay in registers. Of keys against queries it is the transposed product that is made, so
 * that p and ds are left operands both times. p and ds are rounded to BF16 before they are
 * multiplied; scale, which ds lacks, comes at the end.
 *
 * Memory: dq is overwritten (=) by the first kernel, dk and dv by the second; delta is written by
 *   the first. Pointers are multiples of 16 bytes, and so are tokens.
 * Work: 14 x T^2 x size operations for each row and head, of which about (T + 64) / 2T are done
 *   where keys end at the query, at
 *   up to 60% of an H200's 990 TFLOP/s.
 * Launch: threads 128, blocks ceil(T / 64) x heads x R, for dk and dv as many as there are heads of
 *   keys; shared memory 4 tiles and 1 KB: 37 KB, 35 KB.
 */
#include "net/attention_tensor.cuh"

enum { WARPS = 4, THREADS = 32 * WARPS, TOKENS = WARP_ROWS * WARPS };

/* An operand of a block's 64 tokens comes through the buffers into registers. */
template <int head, int rows>
__device__ __forceinline__ void take_operand(struct strip<head> &strip,
                                             struct stream_buffer<head, rows> *buffers,
                                             const bf16 *from, uint64_t step, uint32_t tokens,
                                             uint32_t size) {
    static_assert(TOKENS <= 4 * rows, "it finds room");
    bf16 *staging = buffers->tile[0];
    fetch_tile<head, TOKENS, THREADS>(staging, from, step, tokens, size);
    copy_async_wait();
    __syncthreads();
    take_strip(strip, staging + threadIdx.x / 32 * WARP_ROWS * pitch<head>);
    __syncthreads();
}

/* The next two tiles, from token `first` on. */
template <int head, int rows>
__device__ __forceinline__ void fetch_both(struct stream_buffer<head, rows> *buffer, const bf16 *a,
                                           uint64_t step_a, const bf16 *b, uint64_t step_b,
                                           uint32_t first, uint32_t tokens, uint32_t size) {
    fetch_tile<head, rows, THREADS>(buffer->tile[0], a + first * step_a, step_a, tokens - first,
                                    size);
    fetch_tile<head, rows, THREADS>(buffer->tile[1], b + first * step_b, step_b, tokens - first,
                                    size);
}

/* dy . y of the lane's two queries; rows is how many the warp has. */
template <int head>
__device__ __forceinline__ void make_delta(float (&delta)[2], const struct strip<head> &dy,
                                           const bf16 *y, uint64_t step, uint32_t rows,
                                           uint32_t size) {
    const uint32_t lane = threadIdx.x % 32, pair = lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t row = lane / 4 + half * EIGHT;
        delta[half] = 0.0f;
#pragma unroll
        for (uint32_t n = 0; n < head / EIGHT; n++) {
            if (row >= rows || n * EIGHT >= size) break;
            const uint32_t a = dy.at[n / 2][half + n % 2 * 2];
            const uint32_t b =
                *reinterpret_cast<const uint32_t *>(y + row * step + n * EIGHT + pair);
            delta[half] = fmaf(f32_from_bits(a << 16), f32_from_bits(b << 16), delta[half]);
            delta[half] =
                fmaf(f32_from_bits(a >> 16 << 16), f32_from_bits(b >> 16 << 16), delta[half]);
        }
    }
    sum_of_lanes<4>(delta);
}

/* score and dp of the warp's queries become ds (without scale), in dp. */
template <int count>
__device__ __forceinline__ void make_ds(sums<count> &dp, const sums<count> &score,
                                        const struct weir__cuda_attention &pass,
                                        const float (&lse)[2], const float (&delta)[2],
                                        uint32_t query, uint32_t key) {
    const uint32_t lane = threadIdx.x % 32;
    const float scale = pass.scale * log2_e;
    query += lane / 4;
    key += lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < count; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const bool seen = sees(pass, query + i / 2 * EIGHT, key + n * EIGHT + i % 2);
            const float p = exp2f(fmaf(score[n][i], scale, -lse[i / 2]));
            dp[n][i] = seen ? p * (dp[n][i] - delta[i / 2]) : 0.0f;
        }
}

template <int head>
__device__ __forceinline__ void grad_q(const struct weir__cuda_attention &pass) {
    constexpr int keys = head > 64 ? 32 : 64; /* of a wide head the sums need the registers */
    using buffer = stream_buffer<head, keys>;
    DYNAMIC_SHARED(buffer, buffers);
    const struct block_part part = part_of_block(pass, pass.heads, TOKENS, true);
    const struct query_head<bf16> at = query_head_of<bf16>(pass, part.row, part.head);
    const uint32_t kv_head = part.head / pass.group;
    const bf16 *keys_at = kv_head_of(pass, static_cast<const bf16 *>(pass.k), part.row, kv_head);
    const bf16 *values_at = kv_head_of(pass, static_cast<const bf16 *>(pass.v), part.row, kv_head);
    const uint32_t left = pass.tokens - part.first;
    const uint32_t end = left < TOKENS ? pass.tokens : part.first + TOKENS;
    const uint32_t first = part.first + threadIdx.x / 32 * WARP_ROWS, lane = threadIdx.x % 32;
    const uint32_t rows = first < end ? end - first : 0;
    struct strip<head> q, dy;
    float dq[head / 64][EIGHT][4] = {}, delta[2], lse[2] = {};
    const uint32_t begin = keys_first(pass, part.first) / keys * keys;
    take_operand(q, buffers, at.q + part.first * pass.step, pass.step, left, pass.size);
    take_operand(dy, buffers, at.dy + part.first * at.width, at.width, left, pass.size);
    fetch_both(&buffers[0], keys_at, pass.kv_step, values_at, pass.kv_step, begin, pass.tokens,
               pass.size);
    make_delta(delta, dy, at.y + first * at.width, at.width, rows, pass.size);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t row = lane / 4 + half * EIGHT;
        if (row >= rows) continue;
        lse[half] = at.lse[first + row] * log2_e;
        if (lane % 4 == 0) at.delta[first + row] = delta[half];
    }

    uint32_t which = 0;
#pragma unroll 1
    for (uint32_t key = begin; key < keys_seen(pass, end - 1); key += keys, which ^= 1) {
        copy_async_wait();
        __syncthreads();
        if (key + keys < keys_seen(pass, end - 1))
            fetch_both(&buffers[which ^ 1], keys_at, pass.kv_step, values_at, pass.kv_step,
                       key + keys, pass.tokens, pass.size);
        if (rows == 0 || key >= keys_seen(pass, first + WARP_ROWS - 1) ||
            key + keys <= keys_first(pass, first))
            continue; /* the warp sees none of them */
        const bf16 *k = buffers[which].tile[0], *v = buffers[which].tile[1];
        float score[keys / EIGHT][4] = {}, dp[keys / EIGHT][4] = {};
        rows_by_rows<head, keys / EIGHT>(score, q, k, pass.size);
        rows_by_rows<head, keys / EIGHT>(dp, dy, v, pass.size);
        make_ds<keys / EIGHT>(dp, score, pass, lse, delta, first, key);
        rows_by_columns<head, keys / EIGHT>(dq, dp, k, pass.size);
    }
    const float factor[2] = {pass.scale, pass.scale};
    if (rows > 0)
        store_sums<head>(at.dq + first * pass.step, pass.step, dq, factor, rows, pass.size);
}

/* lse and delta of the queries in a buffer. */
template <int rows> struct statistics { float lse[rows], delta[rows]; };

template <int rows>
__device__ __forceinline__ void take_statistics(struct statistics<rows> *to,
                                                const struct query_head<bf16> &at, uint32_t first,
                                                uint32_t tokens) {
    static_assert(rows <= THREADS, "a thread for each");
    if (threadIdx.x >= rows) return;
    const uint32_t query = first + threadIdx.x;
    to->lse[threadIdx.x] = query < tokens ? at.lse[query] * log2_e : 0.0f;
    to->delta[threadIdx.x] = query < tokens ? at.delta[query] : 0.0f;
}

/* The transposed product of scores becomes p, and that of dp becomes ds (without scale). */
template <int count>
__device__ __forceinline__ void make_shares(sums<count> &p, sums<count> &dp,
                                            const struct weir__cuda_attention &pass,
                                            const struct statistics<count * EIGHT> &of,
                                            uint32_t key, uint32_t query) {
    const uint32_t lane = threadIdx.x % 32, pair = lane % 4 * 2;
    const float scale = pass.scale * log2_e;
    key += lane / 4;
    query += pair;
#pragma unroll
    for (int n = 0; n < count; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t column = n * EIGHT + i % 2;
            const bool seen = sees(pass, query + column, key + i / 2 * EIGHT);
            const float share = exp2f(fmaf(p[n][i], scale, -of.lse[column + pair]));
            p[n][i] = seen ? share : 0.0f;
            dp[n][i] = seen ? share * (dp[n][i] - of.delta[column + pair]) : 0.0f;
        }
}

/* Begins to copy the queries from `query` on, and what belongs to them. */
template <int head, int queries>
__device__ __forceinline__ void fetch_queries(struct stream_buffer<head, queries> *buffer,
                                              struct statistics<queries> *of,
                                              const struct weir__cuda_attention &pass,
                                              const struct query_head<bf16> &at, uint32_t query) {
    fetch_both(buffer, at.q, pass.step, at.dy, at.width, query, pass.tokens, pass.size);
    take_statistics(of, at, query, pass.tokens);
}

template <int head>
__device__ __forceinline__ void grad_kv(const struct weir__cuda_attention &pass) {
    constexpr int queries = head > 64 ? 16 : 64;
    using buffer = stream_buffer<head, queries>;
    DYNAMIC_SHARED(buffer, buffers);
    struct statistics<queries> *of = reinterpret_cast<struct statistics<queries> *>(buffers + 2);
    const struct block_part part = part_of_block(pass, pass.heads / pass.group, TOKENS, false);
    const uint64_t kv_at = head_at(pass, part.row, part.head, pass.kv_step);
    const uint32_t left = pass.tokens - part.first, tokens = left < TOKENS ? left : TOKENS;
    const uint32_t own = threadIdx.x / 32 * WARP_ROWS, first = part.first + own;
    const uint32_t rows = own < left ? left - own : 0;
    struct strip<head> k, v;
    float dk[head / 64][EIGHT][4] = {}, dv[head / 64][EIGHT][4] = {};
    const uint64_t kv_first = kv_at + part.first * pass.kv_step;
    take_operand(k, buffers, static_cast<const bf16 *>(pass.k) + kv_first, pass.kv_step, left,
                 pass.size);
    take_operand(v, buffers, static_cast<const bf16 *>(pass.v) + kv_first, pass.kv_step, left,
                 pass.size);
    const uint32_t begin = first_reader(pass, part.first);
    const uint32_t end = readers_end(pass, part.first + tokens - 1);
    uint32_t member = part.head * pass.group, which = 0;
    const uint32_t last = member + pass.group - 1;
    struct query_head<bf16> at = query_head_of<bf16>(pass, part.row, member);
    fetch_queries(&buffers[0], &of[0], pass, at, begin);

    /* the heads that the keys serve, one after the other, without a stop between them */
#pragma unroll 1
    for (uint32_t query = begin; query < end; which ^= 1) {
        const uint32_t now = query;
        copy_async_wait();
        __syncthreads();
        query += queries;
        if (query >= end && member < last) {
            query = begin;
            at = query_head_of<bf16>(pass, part.row, ++member);
        }
        if (query < end) fetch_queries(&buffers[which ^ 1], &of[which ^ 1], pass, at, query);
        if (rows == 0 || now + queries <= first_reader(pass, first) ||
            now >= readers_end(pass, first + WARP_ROWS - 1))
            continue; /* none of them sees the warp's keys */
        const bf16 *q = buffers[which].tile[0], *dy = buffers[which].tile[1];
        float p[queries / EIGHT][4] = {}, dp[queries / EIGHT][4] = {};
        rows_by_rows<head, queries / EIGHT>(p, k, q, pass.size);
        rows_by_rows<head, queries / EIGHT>(dp, v, dy, pass.size);
        make_shares<queries / EIGHT>(p, dp, pass, of[which], first, now);
        rows_by_columns<head, queries / EIGHT>(dv, p, dy, pass.size);
        rows_by_columns<head, queries / EIGHT>(dk, dp, q, pass.size);
    }
    if (rows == 0) return;
    const float scale[2] = {pass.scale, pass.scale}, one[2] = {1.0f, 1.0f};
    const uint64_t to = kv_at + first * pass.kv_step;
    store_sums<head>(static_cast<bf16 *>(pass.dk) + to, pass.kv_step, dk, scale, rows, pass.size);
    store_sums<head>(static_cast<bf16 *>(pass.dv) + to, pass.kv_step, dv, one, rows, pass.size);
}

extern "C" __global__ void __launch_bounds__(THREADS, 3)
    weir_attention_grad_q_tensor_64_bf16(struct weir__cuda_attention pass) {
    grad_q<64>(pass);
}
EXPORT_KERNEL(weir_attention_grad_q_tensor_64_bf16);

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    weir_attention_grad_q_tensor_128_bf16(struct weir__cuda_attention pass) {
    grad_q<128>(pass);
}
EXPORT_KERNEL(weir_attention_grad_q_tensor_128_bf16);

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    weir_attention_grad_kv_tensor_64_bf16(struct weir__cuda_attention pass) {
    grad_kv<64>(pass);
}
EXPORT_KERNEL(weir_attention_grad_kv_tensor_64_bf16);

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    weir_attention_grad_kv_tensor_128_bf16(struct weir__cuda_attention pass) {
    grad_kv<128>(pass);
}
EXPORT_KERNEL(weir_attention_grad_kv_tensor_128_bf16);
