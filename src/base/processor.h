/* SPDX-License-Identifier: MIT */
/** What the processor that runs us can do, where code is compiled for several. */
#ifndef WEIR_PROCESSOR_H
#define WEIR_PROCESSOR_H

/** 1 to 4: the highest of the x86-64 psABI's levels of which processor and system have all (2:
 * SSE4.2, 3: AVX2, FMA, BMI2 and their like, 4: AVX-512 F, BW, CD, DQ, VL); 5: AVX512-BF16, too. 0
 * elsewhere. Any thread. */
int weir__x86_level(void);

#endif
