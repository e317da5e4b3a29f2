/* SPDX-License-Identifier: MIT */
/**
 * The engine's own CUDA kernels (kernels/engine): which there are, their compiled images, and a
 * launcher for each; and sets of kernels, of which a library above the engine brings its own.
 *
 * A launcher chooses the launch shape, enqueues and returns at once. Its result is that of
 * weir__cuda_launch: WEIR_OK, or the device's error; nothing to do (no bytes, no rows) is WEIR_OK
 * without a launch. Pointers are the device's, or others that it reaches (a peer's, the host's
 * pinned memory); the caller keeps what they point to until the stream is past the launch.
 * Arguments themselves are taken at the call. Destination and source must not overlap. Thread: the
 * stream's owner. No launcher allocates or blocks.
 *
 * `blocks_max` bounds the blocks of a launch, so that a copy beside a computation leaves it the
 * other multiprocessors: 0 is as many as the work can use. Speed depends on it, results never.
 */
#ifndef WEIR_DEVICE_CUDA_KERNELS_H
#define WEIR_DEVICE_CUDA_KERNELS_H

#include "device/cuda_arguments.h"
#include "device/cuda_kernel_map.h"
#include "device/device.h"

/* ---- the kernels ---- */

enum weir__cuda_kernel {
#define WEIR__CUDA_KERNEL_ENUM(name) WEIR__CUDA_KERNEL_##name,
    WEIR__CUDA_KERNEL_MAP(WEIR__CUDA_KERNEL_ENUM)
#undef WEIR__CUDA_KERNEL_ENUM
        WEIR__CUDA_KERNEL_COUNT
};

/** A launch shape: blocks, threads of a block (x, y, z), and dynamic shared memory of a block. */
struct weir__cuda_grid {
    uint32_t blocks[3], threads[3];
    uint32_t shared_bytes;
};

/** One .cu file, compiled for every architecture (a fatbin, for cuModuleLoadData). A build that is
 * for older drivers too has each file twice: see device/cuda_fit.h. */
struct weir__cuda_image {
    const char *name;
    const void *data;
    size_t bytes;
    int toolkit;         /**< of CUDA that compiled it: 1000 * major + 10 * minor */
    const char *targets; /**< "80 90 100+": architectures, ascending; PTX of the last */
};

/** Written by the build, from kernels/engine. None (count 0, one unused element) where it had no
 * nvcc. */
extern const struct weir__cuda_image weir__cuda_images[];
extern const size_t weir__cuda_image_count;

/** A library's kernels. Constant, and known by its address. */
struct weir__cuda_set {
    const char *const *names; /**< [kernel]: symbols */
    uint32_t kernel_count;
    const struct weir__cuda_image *images;
    const size_t *image_count;
};
extern const struct weir__cuda_set weir__cuda_engine_kernels;

/** Loads the set's images into the device, unless they are there; until it is closed. The engine's
 * are from the beginning. Any thread. WEIR_ERR_UNSUPPORTED where they do not fit the driver or GPU,
 * with the reason. */
int weir__cuda_set_need(struct weir__device *device, const struct weir__cuda_set *set,
                        struct weir_error *error);
/** As weir__cuda_launch, of kernel `kernel` of a set. One that is not loaded is: who must not wait
 * for that needs it before. */
int weir__cuda_launch_of(struct weir_stream *stream, const struct weir__cuda_set *set,
                         uint32_t kernel, const struct weir__cuda_grid *grid, void **arguments);

/** Enqueues `kernel` on a CUDA stream. `arguments[i]` points to the kernel's parameter i, which is
 * copied before this returns. */
int weir__cuda_launch(struct weir_stream *stream, enum weir__cuda_kernel kernel,
                      const struct weir__cuda_grid *grid, void **arguments);

/* ---- copies (cuda_copy.c) ---- */

/** Contiguous, within what the device holds; any alignment, fastest if `to` and `from` are the same
 * modulo 16. */
int weir__cuda_copy(struct weir_stream *stream, void *to, const void *from, uint64_t bytes,
                    uint32_t blocks_max);
/** The same, where `to` is a peer's memory; enqueue it on the device that holds `from`. */
int weir__cuda_push(struct weir_stream *stream, void *to, const void *from, uint64_t bytes,
                    uint32_t blocks_max);
/** The same, where `from` is a peer's memory; enqueue it on the device that holds `to`. A push is
 * faster where there is the choice: a write need not wait for an answer. */
int weir__cuda_pull(struct weir_stream *stream, void *to, const void *from, uint64_t bytes,
                    uint32_t blocks_max);

/** `count` copies, a launch for every WEIR__CUDA_BATCH_COPIES of them that are not empty. `items`
 * is the caller's again when this returns. */
int weir__cuda_copy_batch(struct weir_stream *stream, const struct weir__copy_item *items,
                          size_t count);

/** Rows that stand `to_pitch` and `from_pitch` bytes apart. A gather: to_pitch = row_bytes; a
 * scatter: from_pitch = row_bytes. `rows->width` is chosen here. WEIR_ERR_ARGUMENT if rows
 * would overlap (a pitch below row_bytes). */
int weir__cuda_copy_rows(struct weir_stream *stream, const struct weir__cuda_rows *rows,
                         uint32_t blocks_max);

/** `images` images of `channels` x `pixels` elements of `element_bytes` (1, 2, 4 or 8), to
 * whose size `to` and `from` are aligned. WEIR_ERR_ARGUMENT for other sizes, or more than 2^31
 * tiles. */
int weir__cuda_nchw_to_nhwc(struct weir_stream *stream, void *to, const void *from, uint64_t images,
                            uint64_t channels, uint64_t pixels, size_t element_bytes);
int weir__cuda_nhwc_to_nchw(struct weir_stream *stream, void *to, const void *from, uint64_t images,
                            uint64_t channels, uint64_t pixels, size_t element_bytes);

/** Copies `elements` numbers into another dtype, rounding to nearest even: F32 to BF16 or F16, and
 * back; any other pair is WEIR_ERR_ARGUMENT. A NaN stays one, its payload may not. */
int weir__cuda_cast(struct weir_stream *stream, void *to, enum weir_dtype to_dtype,
                    const void *from, enum weir_dtype from_dtype, uint64_t elements,
                    uint32_t blocks_max);

/* ---- others (cuda_fill.c) ---- */

/** Repeats an element of `element_bytes` (1, 2, 4, 8 or 16, else WEIR_ERR_ARGUMENT). */
int weir__cuda_fill(struct weir_stream *stream, void *to, const void *element, size_t element_bytes,
                    uint64_t elements);

/** Element e of row r is word e % 4 of weir__philox_words(seed, mini_batch, op, row_first + r,
 * e / 4). */
int weir__cuda_random_words(struct weir_stream *stream, const struct weir__cuda_random *random);

/** The verdict on a step's gradients, from the stages' partial sums of squares: the same bits as
 * the host's. `squares` is pinned or the device's, `verdict` the device's. clip_norm 0: no
 * clipping. */
int weir__cuda_decide(struct weir_stream *stream, struct weir_verdict *verdict,
                      const double *squares, uint64_t count, double clip_norm);

#endif
