/* SPDX-License-Identifier: MIT */
/**
 * The kinds of device that this build knows, for device.c: a new kind is a file and a row there.
 */
#ifndef WEIR_DEVICE_KINDS_H
#define WEIR_DEVICE_KINDS_H

#include "device/device.h"

/** Opens one kind; `name` is well formed and fits weir__device.name, `ordinal` the N of "kind:N", 0
 * without. */
typedef int weir__device_open_fn(const char *name, uint32_t ordinal,
                                 const struct weir_allocator *allocator, struct weir_error *error,
                                 struct weir__device **device);

/** Whether "kind:N" is there, as weir__device_check says. */
typedef int weir__device_probe_fn(uint32_t ordinal, struct weir_error *error);

/** As weir__device_reach says. */
typedef uint64_t weir__device_reach_fn(uint32_t ordinal);

weir__device_open_fn weir__cpu_open;
weir__device_probe_fn weir__cpu_probe;
weir__device_open_fn weir__cuda_open;
weir__device_probe_fn weir__cuda_probe;
weir__device_reach_fn weir__cuda_reach;

#endif
