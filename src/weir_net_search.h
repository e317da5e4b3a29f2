/* SPDX-License-Identifier: MIT */
/**
 * The planner on a model: what weir_planner.h searches, with this model's layers and with memory
 * planned to the byte as weir_net_new would.
 *
 * Errors and statuses are those of weir.h.
 *
 * @code
 *   struct weir_planner_options search = WEIR_PLANNER_OPTIONS_INIT;
 *   struct weir_planner_result result;
 *   int status = weir_profile_estimate(model, &net, &faults, &profile);   // or weir_profile_new
 *   search.memory_limit = net.pipe.memory_limit;
 *   status = weir_net_search(planner, model, &net, &profile->costs, &search, &faults, &result);
 *   if (status == WEIR_OK) weir_net_choose(result.winner, &net);
 *   status = weir_net_new(model, &net, &faults, &made);
 * @endcode
 */
#ifndef WEIR_NET_SEARCH_H
#define WEIR_NET_SEARCH_H

#include "weir_planner.h"
#include "weir_profile.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A profile without measuring: bytes as weir_profile_new finds them; seconds from the layers'
 * FLOPs and bytes, on a CPU at 20 GFLOP/s per thread and 10 GB/s, on a GPU as an H100 takes for
 * them and for the kernels' starts (src/net/profile/roofs.h), whatever GPU it is, and without one:
 * forward once, recompute as much, backward twice (with nothing to learn once). Which layers weigh
 * more than others it says well, how long a step takes only by order of magnitude. Its `measured`
 * is false. Statuses and ownership as weir_profile_new. */
int weir_profile_estimate(const struct weir_model *model, const struct weir_net_options *net,
                          struct weir_faults *faults, struct weir_profile **profile);

/** A profile for the micro-batches of `net`, from known ones (at least one) for other rows: bytes
 * as weir_profile_new finds them; a layer's seconds on the line between the known profiles with the
 * next fewer and the next more rows, and beyond all of them as the estimate of
 * weir_profile_estimate grows from the nearest. Kernel times are no straight lines, so it is good
 * for saying which number of rows is worth measuring: what wins is best measured at its own.
 * WEIR_ERR_CONFIG: the known ones are not of this model, device, dtype and number of threads; else
 * as weir_profile_estimate. */
int weir_profile_scale(const struct weir_model *model, const struct weir_net_options *net,
                       const struct weir_profile *const *known, uint32_t count,
                       struct weir_faults *faults, struct weir_profile **profile);

/** Numbers of micro-batches that are worth trying beside that of the net's own chunks: ascending
 * divisors of its rows near half as many as workers, as many, twice … 16 times as many. Returns how
 * many there are; none without rows or chunks. */
#define WEIR_NET_CHUNKS_MOST 6
uint32_t weir_net_chunks(const struct weir_net_options *net, uint32_t counts[WEIR_NET_CHUNKS_MOST]);

/** What a crossing between two of the net's workers is taken to cost, without measuring: 5
 * microseconds, and where their memories differ the time of the bytes over an H100's NVLink, or,
 * where one of them is a CPU, over its PCIe. */
struct weir_link_cost weir_net_link(const struct weir_net_options *net);

/** Searches for the pipeline of a net. Of `net` rows, chunks, workers (0: its stages), threads,
 * dtype, optimizer and such count; stages, balance, schedule, checkpoint modes and recompute are
 * what is searched, and memory_limit is not looked at. Of `search` costs, workers, micro_batches,
 * scales and memory are filled in here; what is fixed, effort and limit are the caller's, and so is
 * which other numbers of micro-batches may be chosen, with their costs (`others`: what scatter
 * makes of the rows). A link of 0 is taken as weir_net_link's. Statuses and the result as of
 * weir_planner_search. Each ask for memory compiles the stages anew: milliseconds. */
int weir_net_search(struct weir_planner *planner, const struct weir_model *model,
                    const struct weir_net_options *net, const struct weir_layer_costs *costs,
                    const struct weir_planner_options *search, struct weir_faults *faults,
                    struct weir_planner_result *result);

/** Writes the choice into the options of a net, whose arrays are then the choice's: borrowed until
 * the planner's next call. Its chunks change where they make another number of micro-batches. */
void weir_net_choose(const struct weir_planner_choice *choice, struct weir_net_options *net);

#ifdef __cplusplus
}
#endif
#endif
