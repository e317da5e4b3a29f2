/* SPDX-License-Identifier: MIT */
/*
 * decide: weir__judge_sum of the sum over the stages' squares, ascending
 *
 * In the order and with the roundings of the host, so that the bits are the same: one left fold, no
 * multiply-add (the build forbids it), IEEE's square root and quotient.
 *
 * Memory: verdict is overwritten (=).
 * Bytes: reads 8 per square, across PCIe where they are in the host's memory: 32 are read at once
 *   and added by one lane. Floor: a round trip (about 2 us) per 32 squares.
 * Launch: threads 32, one block.
 */
#include "device/verdict.h"
#include "platform.cuh"

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
    if (threadIdx.x == 0) weir__judge_sum(sum, clip_norm, verdict);
}
EXPORT_KERNEL(weir_decide);
