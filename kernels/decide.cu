/* SPDX-License-Identifier: MIT */
/*
 * decide: norm = sqrt(sum over stages s, ascending, of the sum over its parts i, ascending)
 *   scale = clip_norm / (norm + 1e-6), if clip_norm > 0 and that is below 1, else 1
 *   apply = norm is finite
 *
 * torch.nn.utils.clip_grad_norm_'s formula, in the order and with the roundings of the executor on
 * the host, so that the bits are the same: one left fold, no multiply-add (the build forbids it),
 * IEEE's square root and quotient. Every device decides alone, from the same numbers.
 *
 * Memory: decision is overwritten (=).
 * Bytes: reads 8 per part, across PCIe where they are in the host's memory: the parts are read by
 *   32 lanes at once and added by one. Floor: a round trip (about 2 us) per 32 parts of a stage.
 * Launch: threads 32, one block.
 */
#include "device/cuda_arguments.h"
#include "platform.cuh"

extern "C" __global__ void __launch_bounds__(32)
    weir_decide(struct weir__cuda_decision *decision,
                const struct weir__cuda_squares *squares, /* (stages) */
                uint32_t stages, double clip_norm) {
    __shared__ double parts[32];
    double sum = 0.0;
    for (uint32_t stage = 0; stage < stages; stage++) {
        const struct weir__cuda_squares at = squares[stage];
        for (uint64_t first = 0; first < at.count; first += 32) {
            if (first + threadIdx.x < at.count) parts[threadIdx.x] = at.parts[first + threadIdx.x];
            __syncwarp();
            const uint64_t count = at.count - first < 32 ? at.count - first : 32;
            if (threadIdx.x == 0)
                for (uint64_t i = 0; i < count; i++) sum += parts[i];
            __syncwarp();
        }
    }
    if (threadIdx.x != 0) return;
    const double norm = sqrt(sum);
    const double scale = clip_norm / (norm + 1e-6);
    const bool finite = isfinite(norm);
    decision->scale = finite && clip_norm > 0.0 && scale < 1.0 ? scale : 1.0;
    decision->norm = norm;
    decision->apply = finite;
}
EXPORT_KERNEL(weir_decide);
