/* SPDX-License-Identifier: MIT */
/**
 * What layers are taken to need where they were not measured. Estimates choose plans and cuts; no
 * bit of a result depends on one, but for the plan's choice of what a caller lets it choose.
 *
 * On a CPU: roofs of this machine. Some small nets that have every op in a few shapes are measured
 * as weir_profile_new measures, on one thread; each call is a sample: seconds per unit of work
 * (multiply-adds of products, numbers of all else) at a shape. A call's estimate is its work at the
 * rate of its op's samples, weighted by how near their shapes are. What its operands have beyond a
 * core's cache comes on top of that, each byte in the time that a net of many rows takes besides as
 * many times one of few. Threads share what is long enough as well as they shared the largest net,
 * and what is beyond the cache as well as they shared the net of many rows. There is no constant of
 * any one machine in this.
 *
 * Measuring takes 0.7 to 1.1 s, once per machine: samples are kept in the folder of
 * weir__cache_find (io/cache.h), in the file roofs-<hash>, for a key of the file's format, the
 * library's version, the processor and its usable cores, the level and the dtype. What is not
 * exactly such a file counts as none, and so does one that is a day old: it may be from a time when
 * the machine was busy. Where nothing can be kept they are measured once per process.
 *
 * On a GPU:
 *
 *   F = FLOPs / flops + (2 * (saved + output) + parameters) / bytes + kernels * start
 *
 * with an H100's figures (SXM) for every GPU, since a plan is made without opening one: which
 * layers weigh more than others is said well, how long a step takes on another GPU only by order of
 * magnitude. Peaks are those of NVIDIA's data sheet of the H100: 67 TFLOP/s in f32 without TF32,
 * 989 in bf16 with dense matrices, 3.35 TB/s of memory. Of these a product is given 0.8 in f32 and
 * 0.6 in bf16, as large ones reach in cuBLAS, and a kernel 0.9 of the memory's, which Weir's own
 * are asked for. What is kept is written once and read once. A kernel starts as far behind the one
 * before it as in src/pipe/lanes/ways.h (2.5 us). None of them was measured by Weir's own bench.
 */
#ifndef WEIR_NET_ROOFS_H
#define WEIR_NET_ROOFS_H

#include "net/model/graph.h"
#include "weir_profile.h"

#define WEIR__ROOF_CPU_TASK 1e-6 /* what an action takes besides its layers, seconds */

#define WEIR__ROOF_GPU_F32_FLOPS (0.8 * 67e12) /* a second, and so on */
#define WEIR__ROOF_GPU_BF16_FLOPS (0.6 * 989e12)
#define WEIR__ROOF_GPU_BYTES (0.9 * 3.35e12)
#define WEIR__ROOF_GPU_PASSES 2.0
#define WEIR__ROOF_GPU_START 2.5e-6
/** The host runs ahead of a GPU, and gives it actions while it works; what is left is a wait for
 * another stream's event, which takes as long as a kernel's start. */
#define WEIR__ROOF_GPU_TASK 2.5e-6

/** A team takes some microseconds to share a call, so those that are shorter are not shared. */
#define WEIR__ROOF_SHARED_LEAST 20e-6

enum { WEIR__ROOF_SAMPLES_MAX = 512, WEIR__ROOF_SIZES = 4, WEIR__ROOF_KEY_MAX = 384 };

/** What decides how fast an op's call is, in powers of two: of a product rows (1024 at most),
 * inputs, outputs and a window's area; of attention tokens and a head's width; of all else numbers
 * and the width. */
struct weir__roof_shape {
    enum weir__op_code op; /**< what an op's rate is taken from: products that add are products */
    double work, bytes, size[WEIR__ROOF_SIZES];
};

struct weir__roof_sample {
    enum weir__op_code op;
    double rate; /**< seconds per unit of work */
    double size[WEIR__ROOF_SIZES];
};

/** A machine's, at one level and dtype. Read-only. */
struct weir__roofs {
    char key[WEIR__ROOF_KEY_MAX]; /**< of what; one line */
    double product;               /**< FLOP a second of the fastest product, on one thread */
    double copy_cached;           /**< bytes copied a second by one thread, within the cache */
    double memory;                /**< bytes of operands a second, of those beyond it, on top */
    double thread;                /**< what each further thread adds to one's speed, 0 … 1 … */
    double memory_thread;         /**< … and to how fast it moves what is beyond the cache */
    double cache;                 /**< bytes of a core's own: of L2 */
    uint32_t count;
    struct weir__roof_sample samples[WEIR__ROOF_SAMPLES_MAX];
};

/** The roofs of what a profile on a CPU is of (its machine, libraries, dtype and reference are
 * read): kept ones, or measured now. They are the process's, for ever. Any thread; blocks while
 * they are measured. WEIR_ERR_OUT_OF_MEMORY, or what a step gave. */
int weir__roofs_find(const struct weir_profile *of, const struct weir__roofs **roofs);
/** The same, measured now; the key stays. */
int weir__roofs_measure(const struct weir_profile *of, struct weir__roofs *roofs);

/** A node's call with so many rows on so many threads. */
double weir__roofs_seconds(const struct weir__roofs *roofs, const struct weir__node *node,
                           int64_t rows, uint32_t threads);
/** What moving its operands takes of that on one thread, beyond a core's cache; samples are without
 * it. */
double weir__roofs_beyond(const struct weir__roofs *roofs, const struct weir__roof_shape *shape);
struct weir__roof_shape weir__roof_shape(const struct weir__node *node, int64_t rows);

/** roofs_file.c: those kept for roofs->key; false: there are none. */
bool weir__roofs_load(struct weir__roofs *roofs);
/** Keeps them where that can be done. */
void weir__roofs_keep(const struct weir__roofs *roofs);

#endif
