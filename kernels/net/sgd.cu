/* SPDX-License-Identifier: MIT */
/*
 * sgd: for every number of the spans, step = g * scale + decay * w; with momentum,
 *   m = first ? step : factor * m + step, step = nesterov ? step + factor * m : m;
 *   w = w - lr * step
 * in float, each operation rounded: the reference's bits. decay is 0 in spans whose mark is
 * 0; scale is the verdict's, and nothing is done where that does not apply.
 *
 * Memory: w, m in place; m is NULL without momentum. Fast where a tile begins at a multiple of 16
 *   bytes.
 * Bytes: reads 8, writes 4 a number; with momentum 12 and 8. Floor: that / bandwidth.
 * Launch: threads 256; blocks: tiles. Two chunks of each array are under way at once.
 */
#include "net/tile.cuh"
#include "weir.h"

template <bool whole>
__device__ __forceinline__ void update(const struct weir__cuda_sgd &call, const struct tile &tile,
                                       float scale, uint32_t first) {
    constexpr uint32_t count = 2;
    const float decay = tile.mark != 0 ? call.decay : 0.0f;
    const bool reads_m = call.m != nullptr && call.first == 0;
    chunk<float> w[count], m[count], g[count];
#pragma unroll
    for (uint32_t k = 0; k < count; k++) {
        const uint32_t i = tile_chunk(first + k);
        g[k] = load_chunk<whole>(call.g + tile.at, i, tile.count);
        w[k] = load_chunk<whole>(call.w + tile.at, i, tile.count);
        if (reads_m) m[k] = load_chunk<whole>(call.m + tile.at, i, tile.count);
    }
#pragma unroll
    for (uint32_t k = 0; k < count; k++) {
        const uint32_t i = tile_chunk(first + k);
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) {
            float step = g[k].at[e] * scale + decay * w[k].at[e];
            if (call.m != nullptr) {
                m[k].at[e] = reads_m ? call.factor * m[k].at[e] + step : step;
                step = call.nesterov != 0 ? step + call.factor * m[k].at[e] : m[k].at[e];
            }
            w[k].at[e] = w[k].at[e] - call.lr * step;
        }
        if (call.m != nullptr) store_chunk<whole>(call.m + tile.at, i, tile.count, m[k]);
        store_chunk<whole>(call.w + tile.at, i, tile.count, w[k]);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    weir_sgd(const __grid_constant__ struct weir__cuda_flat flat,
             const __grid_constant__ struct weir__cuda_sgd call,
             const struct weir_verdict *verdict) {
    if (verdict->applies == 0) return;
    const float scale = static_cast<float>(verdict->gradient_scale);
    const struct tile tile = tile_of(flat, blockIdx.x);
    const bool whole = is_whole(tile, call.w) && is_whole(tile, call.g) && is_whole(tile, call.m);
#pragma unroll 1
    for (uint32_t k = 0; k < tile_chunks; k += 2) {
        if (whole)
            update<true>(call, tile, scale, k);
        else
            update<false>(call, tile, scale, k);
    }
}
EXPORT_KERNEL(weir_sgd);
