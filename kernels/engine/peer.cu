/* SPDX-License-Identifier: MIT */
/*
 * push, pull: to[i] = from[i], where one of the two is another GPU's memory
 *
 * What differs from copy is on which side of the link the waiting is. A push reads its own memory
 * and writes across: writes are posted, no thread waits for them, so four loads in flight per
 * thread are plenty. A pull reads across, and every load waits for the way there and back (one to
 * two microseconds, two or three times the own memory's): so eight are in flight. Neither needs a
 * fence: the end of a kernel makes its writes visible to whoever waits for an event behind it.
 *
 * Memory: to is overwritten (=). Any alignment; ranges do not overlap.
 * Bytes: n over the link. Floor: n / link (NVLink 4: 450 GB/s a direction; PCIe 5 x16: 63).
 * Launch: push on from's device, pull on to's; threads 256; blocks ceil(n / 16 KiB) (push),
 *   ceil(n / 32 KiB) (pull), or fewer: a link needs a few multiprocessors only, the grid strides.
 */
#include "engine/span.cuh"

extern "C" __global__ void __launch_bounds__(256) weir_push(unsigned char *to, /* (n), the peer's */
                                                            const unsigned char *from, /* (n) */
                                                            uint64_t n) {
    copy_span<4>(to, from, n, grid_lane());
}
EXPORT_KERNEL(weir_push);

extern "C" __global__ void __launch_bounds__(256)
    weir_pull(unsigned char *to,         /* (n) */
              const unsigned char *from, /* (n), the peer's */
              uint64_t n) {
    copy_span<8>(to, from, n, grid_lane());
}
EXPORT_KERNEL(weir_pull);
