/* SPDX-License-Identifier: MIT */
/**
 * A kernel with operands of the right sizes, for the tests of net/cpu: numbers are held as doubles
 * that f32 has too, converted to the dtype under test for each run, and every buffer is exactly as
 * long as its operand, so that the test allocator sees a byte too far.
 */
#ifndef WEIR_TESTS_KERNELS_H
#define WEIR_TESTS_KERNELS_H

#include "toys/operands.h"
#include "net/cpu/cpu.h"
#include "net/cpu/level.h"

/** A random shape of ragged sizes, all members that the op reads. */
struct weir__op_shape kernel_any_shape(enum weir__op_code op);

/** custom and custom_grad: no backend has them. Tests of all ops leave these two out. */
bool kernel_is_the_users(enum weir__op_code op);
/** Ops without a vector row, which are CUDA's only. The one list of them. */
bool kernel_lacks_vector(enum weir__op_code op);

/** Inputs of one call, and what accumulating outputs held before it. */
struct kernel_case {
    struct weir__op_shape shape;
    struct operands operands;
    double *in[KERNEL_INS];     /**< OPERAND_REAL */
    int64_t *index[KERNEL_INS]; /**< OPERAND_INDEX */
    double *old[KERNEL_OUTS];
    uint32_t *sequence, *place; /**< [row of the micro-batch], of ops with a cache */
    bool overwrite, infer;
    bool own; /**< attention: without a state, which is by our kernels, whatever a library has */
    uint64_t seed, mini_batch;
    int64_t row_first;
    double loss_weight;
    struct weir_error *error; /**< or NULL */
};

/** Random inputs (numbers within ±2, indices in range, a few ignored, places apart); the residuals
 * that a gradient takes are made by the f64 reference. shape.rows, tokens … must be set. */
void kernel_case_init(struct kernel_case *test, const struct weir__op_shape *shape);
/** The same with all inputs 0, to be filled. */
void kernel_case_empty(struct kernel_case *test, const struct weir__op_shape *shape);
void kernel_case_clean_up(struct kernel_case *test);

enum kernel_backend {
    KERNEL_F64,
    KERNEL_F32,
    KERNEL_LEVEL_1, /**< our own kernels at the lowest level: v2 on x86-64 */
    KERNEL_LEVEL_2, /**< at the next one, if it runs here; else at the best that does */
    KERNEL_VECTOR,  /**< at the best that runs here */
    KERNEL_FAST,
    KERNEL_CUDA, /**< on the fake driver */
    KERNEL_CUDA_BF16,
    KERNEL_LEVEL_1_BF16, /**< our own at the lowest level, and those above it, as above */
    KERNEL_LEVEL_2_BF16,
    KERNEL_LEVEL_3_BF16,
    KERNEL_LEVEL_4_BF16
};
/** "f64 reference" … */
const char *kernel_backend_name(enum kernel_backend backend);
bool kernel_is_bf16(enum kernel_backend backend);
/** Not so: of CUDA, where the fake driver was not built. */
bool kernel_runs_here(enum kernel_backend backend);
/** The level of our own kernels; NULL for the others. */
const struct weir__level *kernel_level(enum kernel_backend backend);
/** What a net gets that asks for no level. */
const struct weir__backend *kernel_fast(void);
/** KERNEL_FAST is what a net gets. Those of levels are the reference for ops that
 * kernel_lacks_vector. NULL: CUDA, or a level in BF16, has none. */
const struct weir__kernel *kernel_of(enum weir__op_code op, enum kernel_backend backend);

/** Rounds the inputs, and what outputs held, to what BF16 has, where kernels of it store that;
 * residuals are those of the rounded inputs. */
void kernel_case_narrow(struct kernel_case *test);

/** Results, as doubles. */
struct kernel_results {
    const struct kernel_case *test;
    double *out[KERNEL_OUTS];
};
/** Runs the op, by a team of shape.threads on a CPU, in buffers that begin `shift` bytes after the
 * allocator's alignment; workspace and outputs hold rubbish before; weights are packed by another
 * state, for shape.rows_max rows. The status of the first call that failed is returned. */
int kernel_run(const struct kernel_case *test, enum kernel_backend backend, size_t shift,
               struct kernel_results *results);
/** Empty results to be filled: what another source wants. */
void kernel_results_init(struct kernel_results *results, const struct kernel_case *test);
void kernel_results_clean_up(struct kernel_results *results);

/** The largest magnitude of an output, at least `least`. */
double kernel_largest(const struct kernel_results *results, int output, double least);
/** What errors of an output are relative to: its largest magnitude (of the terms, where it is a
 * difference). */
double kernel_magnitude(const struct kernel_results *wanted, int output);
/** Fails the test where outputs differ by more than `tolerance` times kernel_magnitude of `wanted`;
 * `what` is for the message. */
void kernel_expect_near(const struct kernel_results *got, const struct kernel_results *wanted,
                        double tolerance, const char *what);
/** Fails the test where any number differs. */
void kernel_expect_same(const struct kernel_results *got, const struct kernel_results *wanted,
                        const char *what);
/** f32's tolerance, relative to the largest magnitude of an output: rounding errors of random sign
 * over the op's longest sum, of `length` numbers, and a constant for the formula around it:
 * 2^-24 * (16 + 4 sqrt(length)). A norm multiplies the error of x - mean by 1 / deviation: so is
 * this, by the largest one. */
double kernel_tolerance(const struct kernel_results *wanted);
/** BF16's: half a unit, 2^-8, of what is stored more; as much again where a convolution is rounded
 * before its bias is added; where a part's result is rounded beside a norm, half a unit of that
 * times 1 / deviation more; and where an op rounds operands of a product, which attention does with
 * its shares, and its gradient with those and theirs, as much for each: their errors have random
 * signs, but so have the terms that they are part of. */
double kernel_tolerance_bf16(const struct kernel_results *wanted);

#endif
