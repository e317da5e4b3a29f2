/* SPDX-License-Identifier: MIT */
/**
 * What the ways between ranks cost, and how far their clocks are apart: measured, by messages on
 * channel 0. Internal; statuses as in weir.h, failures of messages WEIR_ERR_PEER with a fault.
 *
 * All calls but the fit are collective, block, and wait for the other ranks as long as these live;
 * who has nothing to measure sleeps. One thread of each rank. Nothing else may be under way.
 */
#ifndef WEIR_LINKS_H
#define WEIR_LINKS_H

#include "base/base.h"
#include "weir_predict.h"
#include "weir_world.h"

/** Messages of 8 B, 16 B … 4 MiB are measured. */
enum { WEIR__LINK_SIZES = 20 };
static inline size_t weir__link_size(uint32_t i) {
    assert(i < WEIR__LINK_SIZES);
    return (size_t)8 << i;
}

/** The alpha and beta of Hockney (1994): seconds = latency + bytes * seconds_per_byte, neither
 * below 0; the least sum of relative errors, so that small messages count as much as large ones,
 * and a few sizes that go otherwise do not bend the rest. Seconds and bytes above 0, sizes rise;
 * one point or more. Any thread. */
struct weir_link_cost weir__link_fit(const double *bytes, const double *seconds, uint32_t count);

/** How to measure; zeroed is well. */
struct weir__links_how {
    const struct weir_allocator *allocator;
    uint64_t size_ns;      /**< for each size and way; 0: 40 ms */
    uint64_t (*now)(void); /**< the clock, ns; NULL: weir__now_ns */
};

/** Measures every pair of ranks, both ways, into costs[from * rank_count + to], on all ranks; a
 * rank's way to itself costs nothing.
 *
 * Of two ranks the lower sends n bytes and gets 8 back, and then the other way round, each size for
 * `size_ns` (below 2 s a pair, by default) and at least three times, but those above the first that
 * takes ten times as long. Of each size the later half counts, when what a link lends to a burst is
 * used up: the lower quartile, above 256 B of means over 5 ms. Half of what 8 B there and 8 B back
 * take is the way back's: the two directions' latencies cannot be told apart, their bandwidths can.
 * Up to eight ranks one pair at a time; more in rounds of disjoint pairs (a tournament by the
 * circle method), which share what hosts share.
 *
 * `costs` has rank_count * rank_count entries, zeroed. WEIR_ERR_PEER, WEIR_ERR_OUT_OF_MEMORY. */
int weir__links_measure(const struct weir_world *world, const struct weir__links_how *how,
                        struct weir_link_cost *costs, struct weir_faults *faults);

/** A rank's clock, less rank 0's at that moment; off by `error_ns` at most. */
struct weir__clock {
    int64_t offset_ns;
    uint64_t error_ns;
};

/** Compares a rank's clock with rank 0's, which alone learns it; both of these call, and no other.
 * Of `rounds` round trips the shortest counts (Cristian 1989): its answer was given within it, so
 * half of it is how far the offset may be off. Channel 0 is open. WEIR_ERR_PEER. */
int weir__clock_compare(const struct weir_world *world, const struct weir__links_how *how,
                        uint32_t rank, uint32_t rounds, struct weir__clock *clock);

/** The same of every rank, by many round trips, into clocks[rank_count], zeroed, on all ranks.
 * Collective; blocks. WEIR_ERR_PEER, WEIR_ERR_OUT_OF_MEMORY. */
int weir__clocks_compare(const struct weir_world *world, const struct weir__links_how *how,
                         struct weir__clock *clocks, struct weir_faults *faults);

/** What the running kernel is known by, whatever its host's names are, as one line. False, and "",
 * where it does not say. */
enum { WEIR__BOOT_ID_BYTES = 64 };
bool weir__boot_id(char text[WEIR__BOOT_ID_BYTES]);

#endif
