/* SPDX-License-Identifier: MIT */
/*
 * fill: to[i] = pattern[i % 16], bytes
 *
 * Memory: to is overwritten (=). Fast if it is aligned to 16 bytes.
 * Bytes: writes n. Floor: n / bandwidth.
 * Launch: threads 256; blocks ceil(n / 16 KiB), four times 16 bytes a thread.
 */
#include "device/cuda_arguments.h"
#include "engine/span.cuh"

extern "C" __global__ void __launch_bounds__(256)
    weir_fill(const __grid_constant__ struct weir__cuda_fill fill) {
    const struct lane lane = grid_lane();
    unsigned char *to = static_cast<unsigned char *>(fill.to);
    const uint64_t vectors = reinterpret_cast<uint64_t>(to) % 16 == 0 ? fill.bytes / 16 : 0;
    const uint4 pattern = {fill.pattern[0], fill.pattern[1], fill.pattern[2], fill.pattern[3]};
    uint4 *body = reinterpret_cast<uint4 *>(to);
    for (uint64_t i = lane.rank; i < vectors; i += lane.count) body[i] = pattern;
    for (uint64_t i = vectors * 16 + lane.rank; i < fill.bytes; i += lane.count)
        to[i] = static_cast<unsigned char>(fill.pattern[i % 16 / 4] >> i % 4 * 8);
}
EXPORT_KERNEL(weir_fill);
