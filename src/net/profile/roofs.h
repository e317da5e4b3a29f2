/* SPDX-License-Identifier: MIT */
/**
 * What a layer is taken to need where nothing was measured:
 *
 *   F = FLOPs / flops + (passes * (saved + output) + parameters) / bytes + kernels * start
 *
 * The figures of a CPU are round ones, of one core. Those of a GPU are an H100's (SXM), and hold
 * for every GPU, since a plan is made without opening one: which layers weigh more than others is
 * said well, how long a step takes on another GPU only by order of magnitude. Peaks are those of
 * NVIDIA's data sheet of the H100: 67 TFLOP/s in f32 without TF32, 989 in bf16 with dense matrices,
 * 3.35 TB/s of memory. Of these a product is given 0.8 in f32 and 0.6 in bf16, as large ones reach
 * in cuBLAS, and a kernel 0.9 of the memory's, which Weir's own are asked for. What is kept is
 * written once and read once. A kernel starts as far behind the one before it as in
 * src/pipe/lanes/ways.h (2.5 us). None of them was measured by Weir's own bench.
 */
#ifndef WEIR_NET_ROOFS_H
#define WEIR_NET_ROOFS_H

#define WEIR__ROOF_CPU_FLOPS 20e9      /* a second, and so on */
#define WEIR__ROOF_CPU_BF16_FLOPS 40e9 /* by pairs */
#define WEIR__ROOF_CPU_BYTES 10e9
#define WEIR__ROOF_CPU_TASK 1e-6 /* what an action takes besides its layers, seconds */

#define WEIR__ROOF_GPU_F32_FLOPS (0.8 * 67e12)
#define WEIR__ROOF_GPU_BF16_FLOPS (0.6 * 989e12)
#define WEIR__ROOF_GPU_BYTES (0.9 * 3.35e12)
#define WEIR__ROOF_GPU_PASSES 2.0
#define WEIR__ROOF_GPU_START 2.5e-6
/** The host runs ahead of a GPU, and gives it actions while it works; what is left is a wait for
 * another stream's event, which takes as long as a kernel's start. */
#define WEIR__ROOF_GPU_TASK 2.5e-6

#endif
