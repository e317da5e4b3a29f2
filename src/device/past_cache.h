/* SPDX-License-Identifier: MIT */
/** Copies that leave the caches to what is in them. */
#ifndef WEIR_PAST_CACHE_H
#define WEIR_PAST_CACHE_H

#include <stddef.h>

/** memcpy by stores that pass the caches by, where the processor has them: lines that are written
 * need not be read first. `to` begins a cache line; what is written is there for every thread that
 * is told so afterwards. Any thread. */
void weir__copy_past_cache(void *to, const void *from, size_t bytes);

#endif
