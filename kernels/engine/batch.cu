/* SPDX-License-Identifier: MIT */
/*
 * copy_batch: for each copy c: to_c[i] = from_c[i]
 *
 * The portals and borders of one micro-batch are many small tensors: a launch each (2 to 4 us)
 * would cost more than their bytes. The list travels in the launch's parameters, which the driver
 * keeps, so no memory must outlive the call. Work is cut into tiles of 16 KiB, the last of each
 * copy shorter; a block finds its copy by bisection of the tiles counted so far.
 *
 * Memory: every to is overwritten (=). Any alignment and size; ranges do not overlap.
 * Bytes: reads and writes the sum of all n_c. Floor: 2 sum / bandwidth.
 * Launch: threads 256, blocks = the number of tiles.
 */
#include "device/cuda_arguments.h"
#include "engine/span.cuh"

/* The last copy whose first tile is not behind `tile`; empty copies are not in the list. */
__device__ __forceinline__ uint32_t find_copy(const struct weir__cuda_batch &batch, uint64_t tile) {
    uint32_t low = 0, high = batch.count;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (batch.copies[middle].first_tile <= tile)
            low = middle;
        else
            high = middle;
    }
    return low;
}

extern "C" __global__ void __launch_bounds__(256)
    weir_copy_batch(const __grid_constant__ struct weir__cuda_batch batch) {
    const struct weir__cuda_batch_copy &copy = batch.copies[find_copy(batch, blockIdx.x)];
    const uint64_t start = (blockIdx.x - copy.first_tile) * WEIR__CUDA_BATCH_TILE;
    const uint64_t left = copy.bytes - start;
    copy_span<4>(static_cast<unsigned char *>(copy.to) + start,
                 static_cast<const unsigned char *>(copy.from) + start,
                 left < WEIR__CUDA_BATCH_TILE ? left : WEIR__CUDA_BATCH_TILE,
                 {threadIdx.x, blockDim.x});
}
EXPORT_KERNEL(weir_copy_batch);
