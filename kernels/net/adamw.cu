/* SPDX-License-Identifier: MIT */
/*
 * adamw: with g = gradient * scale, for every number of the spans
 *   m = m + fresh1 * (g - m), v = v * beta2 + fresh2 * g * g,
 *   w = w * decay - rate * (m / (sqrt(v) / root2 + eps))
 * in float, each operation rounded (IEEE's square root and quotients): the bits of
 * the reference's. decay is 1 in spans whose mark is 0; scale is the verdict's, and nothing is
 * done where that does not apply.
 *
 * Memory: w, m, v in place. Fast where a tile begins at a multiple of 16 bytes.
 * Bytes: reads 16, writes 12 a number. Floor: 28 n / bandwidth.
 * Launch: threads 256; blocks: tiles. Two chunks of each of the four arrays are under way at once:
 *   128 bytes of a thread.
 */
#include "net/tile.cuh"
#include "weir.h"

template <bool whole>
__device__ __forceinline__ void update(const struct weir__cuda_adamw &call, const struct tile &tile,
                                       float scale, uint32_t first) {
    constexpr uint32_t count = 2;
    const float decay = tile.mark != 0 ? call.decay : 1.0f;
    float *w = call.w + tile.at, *m = call.m + tile.at, *v = call.v + tile.at;
    chunk<float> kept_w[count], kept_m[count], kept_v[count], kept_g[count];
#pragma unroll
    for (uint32_t k = 0; k < count; k++) {
        const uint32_t i = tile_chunk(first + k);
        kept_g[k] = load_chunk<whole>(call.g + tile.at, i, tile.count);
        kept_m[k] = load_chunk<whole>(m, i, tile.count);
        kept_v[k] = load_chunk<whole>(v, i, tile.count);
        kept_w[k] = load_chunk<whole>(w, i, tile.count);
    }
#pragma unroll
    for (uint32_t k = 0; k < count; k++) {
        const uint32_t i = tile_chunk(first + k);
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) {
            const float g = kept_g[k].at[e] * scale;
            const float new_m = kept_m[k].at[e] + call.fresh1 * (g - kept_m[k].at[e]);
            const float new_v = kept_v[k].at[e] * call.beta2 + call.fresh2 * g * g;
            const float step = new_m / (sqrtf(new_v) / call.root2 + call.eps);
            kept_w[k].at[e] = kept_w[k].at[e] * decay - call.rate * step;
            kept_m[k].at[e] = new_m;
            kept_v[k].at[e] = new_v;
        }
        store_chunk<whole>(m, i, tile.count, kept_m[k]);
        store_chunk<whole>(v, i, tile.count, kept_v[k]);
        store_chunk<whole>(w, i, tile.count, kept_w[k]);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    weir_adamw(const __grid_constant__ struct weir__cuda_flat flat,
               const __grid_constant__ struct weir__cuda_adamw call,
               const struct weir_verdict *verdict) {
    if (verdict->applies == 0) return;
    const float scale = static_cast<float>(verdict->gradient_scale);
    const struct tile tile = tile_of(flat, blockIdx.x);
    const bool whole = is_whole(tile, call.w) && is_whole(tile, call.g) && is_whole(tile, call.m) &&
                       is_whole(tile, call.v);
#pragma unroll 1
    for (uint32_t k = 0; k < tile_chunks; k += 2) {
        if (whole)
            update<true>(call, tile, scale, k);
        else
            update<false>(call, tile, scale, k);
    }
}
EXPORT_KERNEL(weir_adamw);
