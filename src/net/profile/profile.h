/* SPDX-License-Identifier: MIT */
/** Inside a profile: what the graphs say of each layer, and what the clock adds. */
#ifndef WEIR_NET_PROFILE_H
#define WEIR_NET_PROFILE_H

#include "net/profile/roofs.h"
#include "net/run/net.h"
#include "weir_profile.h"

/** A profile with its memory. */
struct weir__profile_state {
    struct weir_profile shown; /**< first */
    struct weir__pool pool;
    struct weir__profile_state *other; /**< what `shown.other` shows; its own */
    struct weir_layer_cost *layers;
    const struct weir__backend *backend; /**< of all layers */
    uint32_t *kernels; /**< [layer] that F runs; weir__profile_bytes counts them */
};

/** An empty profile for `layers` layers. */
int weir__profile_acquire(const struct weir_allocator *allocator, uint32_t layers,
                          struct weir__profile_state **profile);

/** What it is of: all but what was measured. The libraries count, and are asked for their versions,
 * only where it is `timed`. WEIR_ERR_OUT_OF_MEMORY. */
int weir__profile_identity(struct weir__profile_state *profile, const struct weir_model *model,
                           const struct weir_net_options *options, bool timed);

/** The nets that a net's profile is of: itself, or, where workers are CPUs and GPUs, one on the
 * CPUs and one on the first GPU, with as many threads each as its workers have. */
struct weir__profile_kinds {
    uint32_t count;
    struct weir_net_options nets[2];
};
/** WEIR_ERR_OUT_OF_MEMORY. */
int weir__profile_kinds(const struct weir_net_options *options, struct weir__profile_kinds *kinds);
/** Makes the profile of one kind. */
typedef int weir__profile_make_fn(const void *context, const struct weir_model *model,
                                  const struct weir_net_options *net, struct weir_faults *faults,
                                  struct weir__profile_state **profile);
/** Makes that of all kinds, and joins them. */
int weir__profile_make(const struct weir_model *model, const struct weir_net_options *options,
                       weir__profile_make_fn *make, const void *context, struct weir_faults *faults,
                       struct weir_profile **profile);
/** `other` becomes the first one's. */
void weir__profile_join(struct weir__profile_state *profile, struct weir__profile_state *other);
/** Of the profile and its others, that of a device; NULL: there is none. */
const struct weir_profile *weir__profile_of(const struct weir_profile *profile, const char *device);

/** A kernel's call in the model's programs. */
struct weir__profile_call {
    const struct weir__node *node;
    int64_t rows;
    double least, typical; /**< seconds; the latter by weir__profile_typical */
};
typedef void weir__profile_visit_fn(void *context, const struct weir__profile_call *call);
/** Measures F and B as weir_profile_new does, and gives each call's time to `visit`, but for what
 * programs do besides nodes. Statuses as weir_profile_new. */
int weir__profile_calls(const struct weir_model *model, const struct weir_profile_options *options,
                        weir__profile_visit_fn *visit, void *context, struct weir_faults *faults);

/** weir_profile_new of bytes only, but on a CPU with the seconds that its roofs give. */
int weir__profile_estimated(const struct weir_model *model,
                            const struct weir_profile_options *options, struct weir_faults *faults,
                            struct weir__profile_state **profile);

/** Makes one profile of those of all ranks (profile_ranks.c), where each has made its own; every
 * rank comes with its status, and without a profile if that is a failure. Collective; blocks. A
 * failure, of any rank, with its fault. */
int weir__profile_gather(struct weir__profile_state *profile, const struct weir_world *world,
                         int status, struct weir_faults *faults);
/** Room for what a profile says of so many ranks, which it has then. */
int weir__profile_take_ranks(struct weir__profile_state *profile, uint32_t count, double **paces,
                             struct weir_profile_rank **ranks);
/** A GPU to measure on: the rank's own, where the ranks of a host share those that it has. */
void weir__profile_own_gpu(const struct weir_world *world, char name[24]);

/** Sets the optimizer's bytes. */
void weir__profile_optimizer(struct weir__profile_state *profile,
                             const struct weir_optimizer *optimizer);

/** Fills in bytes, skips and marks, for micro-batches of shown.rows rows, and with `roofs` the
 * seconds that these give each layer; NULL: none. `recomputed_last` (in `pool`, one per node of the
 * whole model's graph as one stage) says which forward nodes R runs where their layer ends a stage.
 */
int weir__profile_bytes(struct weir__profile_state *profile, const struct weir_model *model,
                        const struct weir_net_options *options, const struct weir__roofs *roofs,
                        struct weir__pool *pool, const bool **recomputed_last,
                        struct weir_faults *faults);

/** Where a program's seconds stand among a layer's. */
double *weir__profile_share(struct weir_layer_cost *layer, enum weir__program_kind kind);

/** Bounds of random integers: what the model's tables and classes take. */
struct weir__profile_ranges {
    int64_t input, target;
    bool packed; /**< the input is of packed rows (net/kernel.h) */
};
struct weir__profile_ranges weir__profile_ranges(const struct weir__graph *graph);

/** Rows of such a net's largest micro-batch. */
int64_t weir__profile_rows(const struct weir_net_options *options);

/** What a call takes, of many times that it took: their mean, but for those above 1.5 times their
 * median, in which the core did something else. Medians would not add up to a run: calls are late
 * more often than early, and a run has many. Sorts `values`; 0 without any. */
double weir__profile_typical(double *values, uint32_t count);

#endif
