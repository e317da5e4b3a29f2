/* SPDX-License-Identifier: MIT */
/**
 * What the benches of GPUs have in common: the GPU, and times on it. A stream is held on a kernel
 * that spins until all that is timed has been given to it, so that the host's time is no part of
 * it; two events stand around the work.
 *
 * With the fake driver (WEIR_CUDA_DRIVER) everything runs and no number means anything: only
 * --quick is taken, nothing is printed as a result, and the JSON's context says so.
 */
#ifndef WEIR_BENCH_GPU_H
#define WEIR_BENCH_GPU_H

#include "gpu_state.h"
#include "harness.h"
#include "toys/toys.h"

enum { GPU_PART_BYTES = 4 << 20 };

struct bench_gpu {
    char name[96];
    bool fake;
    uint32_t count; /**< GPUs here */
    int version;    /**< of the driver, 1000 * major + 10 * minor */
    int multiprocessors, capability_major, capability_minor;
    uint64_t memory_bytes;
    double memory_roof;     /**< bytes read or written per second, by clock and bus; 0: not told */
    struct gpu_state state; /**< in all that was timed */
    struct weir__device *device, *peer; /**< cuda:0; cuda:1, or NULL */
    struct weir_stream *stream, *beside;
    struct weir__event start, end, beside_end;
    struct toys toys;
    struct CUfunc_st *spin, *gemm, *add;
    uint32_t *spun;
    uint64_t spins;      /**< turns for which a stream is held */
    unsigned char *part; /**< pinned, GPU_PART_BYTES */
    FILE *table;         /**< for topics' own tables: nowhere with the fake driver */
};

/** Opens the first GPU (once in a run) or dies, saying what is missing. */
struct bench_gpu *bench_gpu_open(struct bench *bench);
/** At the end of the run; also where none was opened. */
void bench_gpu_close(struct bench *bench);
/** Dies with the driver's words. */
void gpu_check(const struct bench_gpu *gpu, int status, const char *what);

/** Device memory, 256-byte aligned; to be given back before the topic ends. */
void *gpu_take(struct bench_gpu *gpu, struct weir__device *device, size_t bytes);
void gpu_give(struct weir__device *device, void *memory, size_t bytes);
/** The host's, pinned. */
void *gpu_take_pinned(struct bench_gpu *gpu, size_t bytes);
void gpu_give_pinned(struct bench_gpu *gpu, void *memory, size_t bytes);

/** Byte i of the pattern that copies are checked by. */
static inline unsigned char gpu_pattern(uint64_t i, uint32_t seed) {
    return (unsigned char)((i / 4 * 2654435761u + seed) >> (i % 4 * 8));
}
/** Writes the pattern into memory of any GPU; done when it returns. */
void gpu_fill(struct bench_gpu *gpu, void *memory, size_t bytes, uint32_t seed);
/** Whether it is there. */
bool gpu_matches(struct bench_gpu *gpu, const void *memory, size_t bytes, uint32_t seed);
/** Random numbers: F32 or BF16 within ±2, or I64 from 0 below `limit`; done when it returns. */
struct gpu_numbers {
    void *memory;
    size_t count;
    enum weir_dtype dtype;
    uint64_t limit;
};
void gpu_fill_numbers(struct bench_gpu *gpu, const struct gpu_numbers *numbers, uint64_t seed);
/** Copies at once between any memories. */
void gpu_copy(struct bench_gpu *gpu, void *to, const void *from, size_t bytes);

/** Gives one piece of work to a stream. */
typedef void gpu_work_fn(struct bench_gpu *gpu, struct weir_stream *stream, const void *context);

struct gpu_work {
    gpu_work_fn *enqueue;
    const void *context;
    uint32_t count; /**< times */
};

/** Seconds on the GPU of all of `work`. */
double gpu_time(struct bench_gpu *gpu, const struct gpu_work *work);

struct gpu_times {
    double work, beside; /**< seconds from the common start to the end of each */
};
/** The same for two that start together, on streams of their own. */
struct gpu_times gpu_time_beside(struct bench_gpu *gpu, const struct gpu_work *work,
                                 const struct gpu_work *beside);

/** Adds "TOPIC/CASE", what a kernel took that moved `bytes` (read and written), and
 * "TOPIC/CASE/to-copy", its bytes per second by those of the plain copy `copy` of `copy_bytes`, of
 * the same rounds. Returns the latter, for a bound. */
struct bench_result *gpu_add_to_copy(struct bench *bench, const char *topic,
                                     const struct bench_case *measured, size_t bytes,
                                     const struct bench_case *copy, size_t copy_bytes);

/** c = a b of the toys, all `side` x `side` (a multiple of 64). */
struct gpu_gemm {
    float *c, *a, *b;
    uint32_t side;
};
gpu_work_fn gpu_enqueue_gemm;

/* ---- roofs of arithmetic (gpu_roofs.c) ---- */

/** A product of two large BF16 matrices by the library that nets use (cuBLASLt), as fast as it gets
 * on this GPU. The run's; gpu_product_destroy before the topic ends. Answer checked. */
struct gpu_product;
struct gpu_product *gpu_product_new(struct bench *bench);
void gpu_product_destroy(struct gpu_product *product);
/** Context: the product. */
gpu_work_fn gpu_enqueue_product;
/** Of one. */
double gpu_product_flops(const struct gpu_product *product);
/** Dense BF16 FLOP/s by data sheet, for this many multiprocessors; NaN for a GPU that is not known
 * here. `words` says how it is counted. */
double gpu_peak_bf16(const struct bench_gpu *gpu, char words[96]);
/** Bytes in use on the first GPU, by whomever; 0 where the driver cannot tell. */
uint64_t gpu_bytes_in_use(const struct bench_gpu *gpu);

#endif
