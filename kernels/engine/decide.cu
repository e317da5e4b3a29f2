/* SPDX-License-Identifier: MIT */
/*
 * decide: norm = sqrt(sum over the stages' squares, ascending)
 *   gradient_scale = clip_norm / (norm + 1e-6), if clip_norm > 0 and that is below 1, else 1
 *   applies = norm is finite
 *
 * torch.nn.utils.clip_grad_norm_'s formula, in the order and with the roundings of the executor on
 * the host, so that the bits are the same: one left fold, no multiply-add (the build forbids it),
 * IEEE's square root and quotient. Every device decides alone, from the same numbers.
 *
 * Memory: verdict is overwritten (=).
 * Bytes: reads 8 per square, across PCIe where they are in the host's memory: 32 are read at once
 *   and added by one lane. Floor: a round trip (about 2 us) per 32 squares.
 * Launch: threads 32, one block.
 */
#include "platform.cuh"
#include "weir.h"

extern "C" __global__ void __launch_bounds__(32)
    weir_decide(struct weir_verdict *verdict, const double *squares, /* (count) */
                uint64_t count, double clip_norm) {
    __shared__ double parts[32];
    double sum = 0.0;
    for (uint64_t first = 0; first < count; first += 32) {
        if (first + threadIdx.x < count) parts[threadIdx.x] = squares[first + threadIdx.x];
        __syncwarp();
        const uint64_t here = count - first < 32 ? count - first : 32;
        if (threadIdx.x == 0)
            for (uint64_t i = 0; i < here; i++) sum += parts[i];
        __syncwarp();
    }
    if (threadIdx.x != 0) return;
    const double norm = sqrt(sum);
    const double scale = clip_norm / (norm + 1e-6);
    const bool finite = isfinite(norm);
    verdict->gradient_scale = finite && clip_norm > 0.0 && scale < 1.0 ? scale : 1.0;
    verdict->norm = norm;
    verdict->applies = finite;
}
EXPORT_KERNEL(weir_decide);
