/* SPDX-License-Identifier: MIT */
/**
 * What kept a GPU from its figures: clocks, power, heat and throttling, as NVML says them, which
 * comes with the driver (libnvidia-ml.so.1) and is opened at run time. The fake driver has its
 * symbols as well. Looked at right after work, when clocks are still what they were under it.
 */
#ifndef WEIR_BENCH_GPU_STATE_H
#define WEIR_BENCH_GPU_STATE_H

#include <stdbool.h>
#include <stdint.h>

/** Opaque in NVML. */
struct nvmlDevice_st;

/** Of a run so far; all zero where nothing is known. */
struct gpu_state {
    struct nvmlDevice_st *device; /**< NULL: NVML is not there, or does not know the GPU */
    void *library;
    uint64_t next_ns; /**< not looked at again before */
    uint32_t looks;
    uint32_t sm_mhz_least, sm_mhz_most; /**< that were seen; that the GPU can */
    uint32_t memory_mhz_least;
    uint32_t power_mw_most, power_mw_limit;
    uint32_t celsius_most;
    uint64_t held_back; /**< NVML's reasons, of all looks, but for being idle */
};

/** Finds the GPU at a PCI address in `library`, a driver's own (the fake one's), or NULL for
 * NVML's. Leaves `state` zero where it cannot. */
void gpu_state_open(struct gpu_state *state, void *library, const char *pci);
/** At most ten times a second; what cannot be asked stays 0. Does nothing without NVML. */
void gpu_state_look(struct gpu_state *state);
/** Accepts a zero one. */
void gpu_state_close(struct gpu_state *state);

/** The reasons' name number `i` that is in `held_back`, or NULL after the last. */
const char *gpu_state_reason(const struct gpu_state *state, uint32_t i);

#endif
