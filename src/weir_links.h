/* SPDX-License-Identifier: MIT */
/**
 * A table over links: what weir_table_check proves of actions, with sends and receives spelled out
 * as a runtime without shared memory has them, where each blocks its worker.
 *
 * Lowering. What an action gives to another worker is one message (over the border, and one for all
 * its skips). The sender sends it directly after the action; of several, first to the worker with
 * the lowest number, and to one worker in the order in which that reads. The receiver receives
 * before the action that reads it first:
 *
 *   WEIR_RECEIVE_IN_ORDER   where a replay of the table (all actions take one unit, B two) has it
 *                           sent, as torch.distributed.pipelining places receives by a simulation.
 *                           Sends and receives then follow one order that all workers agree on
 *                           (receives of what is sent during an action stand before that action's
 *                           own sends), so a table that weir_table_check proves runs over links of
 *                           any depth
 *   WEIR_RECEIVE_LATE       directly before that action, border before skips: what a runtime does
 *                           that receives when it needs something. 1f1b then deadlocks over links
 *                           of depth 0
 *
 * A link leads from one worker to another and carries all messages between them; a receive takes
 * the message that it names. Over a link of depth 0 (rendezvous) a send ends when its receive has
 * begun; of depth d it ends when at most d messages are on the link. Whether a program comes to its
 * end then does not depend on how fast who is. Updates and norms are collective and left out.
 *
 * @code
 *   struct weir_links_options options = WEIR_LINKS_OPTIONS_INIT;
 *   options.depth = 1, options.receive = WEIR_RECEIVE_LATE;
 *   int status = weir_table_check_links(table, &options, &faults);
 * @endcode
 */
#ifndef WEIR_LINKS_H
#define WEIR_LINKS_H

#include "weir_simulate.h"

#ifdef __cplusplus
extern "C" {
#endif

enum weir_receive { WEIR_RECEIVE_IN_ORDER, WEIR_RECEIVE_LATE };

#define WEIR_LINKS_UNBOUNDED UINT32_MAX

/** Borrowed for the call only. */
struct weir_links_options {
    size_t size;
    const struct weir_allocator *allocator;
    uint32_t depth; /**< of all links: 0, 1 … or WEIR_LINKS_UNBOUNDED */
    enum weir_receive receive;
    const bool *border_differentiable; /**< [stage_count - 1]; NULL: all */
    const bool *no_backward;           /**< [stage_count], or NULL */
    uint32_t skip_count;
    const struct weir_simulate_skip *skips; /**< their bytes are not read */
    bool recompute_late;
};
#define WEIR_LINKS_OPTIONS_INIT                                                                    \
    { sizeof(struct weir_links_options), 0, 0, WEIR_RECEIVE_IN_ORDER, 0, 0, 0, 0, false }

/** Proves a training table executable over links. WEIR_ERR_SCHEDULE with every fault of
 * weir_table_check, or else every circle of workers that wait for each other, naming the actions
 * whose results they wait to send and to receive; WEIR_ERR_ARGUMENT, WEIR_ERR_OUT_OF_MEMORY,
 * WEIR_ERR_OVERFLOW. From any thread. */
int weir_table_check_links(const struct weir_table *table, const struct weir_links_options *options,
                           struct weir_faults *faults);

#ifdef __cplusplus
}
#endif
#endif
