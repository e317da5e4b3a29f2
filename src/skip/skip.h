/* SPDX-License-Identifier: MIT */
/**
 * Skip connections: who stashes, who reads, over which routes, and the portals that carry them.
 * After torchgpipe's skip package (arXiv 2004.09910, section 4.2; torch.distributed.pipeline.sync),
 * with reads as well as pops, one portal per reading worker, and every fault reported at once.
 *
 * Owners are whatever declares the uses: layers in the net library, stages in the engine; their
 * order is the order of execution.
 */
#ifndef WEIR_SKIP_H
#define WEIR_SKIP_H

#include "base/pool.h"

#define WEIR__NO_ROUTE UINT32_MAX

/** One declared use. Texts are borrowed. */
struct weir__skip_decl {
    uint32_t owner;
    struct weir_skip_use use;
};

/** Checks that stashes and their uses match (UPSTREAM SK-1…4, 7, 8's order): stashed but never read
 * or popped; popped (read) but never stashed; stashed twice; popped twice; stashed and popped (or
 * read) by the same owner; used before its stash in owner order; read after the pop. `owner_name`
 * (may be NULL: "owner 3") gives an owner's name for messages, copied at once. Every fault is a
 * line, sorted by namespace and name. `declarations` in owner order, within an owner in order of
 * execution. WEIR_ERR_SKIP; WEIR_ERR_OUT_OF_MEMORY, from the allocator of `faults` (NULL: the
 * default one). */
int weir__skip_verify(const struct weir__skip_decl *declarations, uint32_t count,
                      const char *(*owner_name)(void *context, uint32_t owner), void *context,
                      struct weir_faults *faults);
/** The declarations' indexes into order[count], sorted by namespace, name, then position: the uses
 * of one skip stand together. In place, n log n. */
void weir__skip_sort(const struct weir__skip_decl *declarations, uint32_t count, uint32_t *order);

/** The routes of all skips, from owner to owners (torchgpipe's SkipLayout). */
struct weir__skip_layout {
    uint32_t route_count;
    struct weir_skip_route *routes; /**< in the order of their stashes, so sources ascend. `bytes`
                                         are not known yet; texts are the declarations' */
    uint32_t *route_of;             /**< [declaration]: its skip's route, or WEIR__NO_ROUTE */
};

/** Of declarations that passed verify. Arrays are the pool's. WEIR_ERR_OUT_OF_MEMORY. */
int weir__skip_layout_init(struct weir__skip_layout *layout, struct weir__pool *pool,
                           const struct weir__skip_decl *declarations, uint32_t count);
/** The index of the route that the skip is copied over. WEIR_ERR_NOT_FOUND, naming the skip in
 * `error` (may be NULL), if it is no portal: unknown, empty, or read by its own owner alone. */
int weir__skip_layout_find(const struct weir__skip_layout *layout, const char *name_space,
                           const char *name, struct weir_error *error, uint32_t *route);
/** Whether source and readers are below `count`, and the readers ascend behind the source. */
bool weir__skip_route_is_valid(const struct weir_skip_route *route, uint32_t count);

/**
 * A portal: one skip of one micro-batch on its way to one reading worker. Life: uses left. Set full
 * at `put` (1 for each reading stage of that worker, 1 more where the stage's recompute reads it),
 * down by one at each `use`, at zero the value may not be used again. Putting it again in recompute
 * (a stash under recompute) reuses the portal and does not resurrect it. Its gradient is put once
 * and used once. What is put is a pointer to the users' memory, and the only way by which it comes
 * into their views. Owned by one tracker; touched by the source's worker until it is put, by the
 * reading worker from then on (the hand-off is the derived dependency).
 */
struct weir__portal {
    const char *name; /**< the route's, for messages */
    void *value;
    void *gradient;
    uint32_t life;
    uint32_t life_full;
    enum { WEIR__PORTAL_NEW, WEIR__PORTAL_PUT } state;
    enum { WEIR__GRADIENT_NONE, WEIR__GRADIENT_PUT, WEIR__GRADIENT_USED } gradient_state;
};

/** Makes the portal new for a step: `life_full` uses. */
void weir__portal_reset(struct weir__portal *portal, const char *name, uint32_t life_full);
/** The value is there. Again after the first time (recompute): keeps value and life. WEIR_OK. */
int weir__portal_put(struct weir__portal *portal, void *value, struct weir_error *error);
/** One use: *value is the memory. It is written only where it was another, so that who has seen it
 * may go on reading it. WEIR_ERR_PORTAL before put or at life 0, naming the skip. */
int weir__portal_use(struct weir__portal *portal, void **value, struct weir_error *error);
/** Once a step: WEIR_ERR_PORTAL the second time. */
int weir__portal_put_gradient(struct weir__portal *portal, void *gradient,
                              struct weir_error *error);
/** Once. WEIR_ERR_PORTAL if not put, or used already. */
int weir__portal_use_gradient(struct weir__portal *portal, void **gradient,
                              struct weir_error *error);

/** One micro-batch's portals: [route][reading worker], and [route][reader] for gradients. */
struct weir__tracker {
    uint32_t portal_count;
    struct weir__portal *portals;
    void **homes; /**< what lies ready for each portal's users: the block, or their worker's copy */
};

#endif
