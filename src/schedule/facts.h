/* SPDX-License-Identifier: MIT */
/**
 * What is known of a kind of action, and of a kind in a stage: all who read tables ask here. A kind
 * has an entry in weir__kinds. What it means to others follows from what it reads and writes, so
 * that they need not name it.
 */
#ifndef WEIR_SCHEDULE_FACTS_H
#define WEIR_SCHEDULE_FACTS_H

#include "base/base.h"
#include "weir_predict.h"

/* ---- kinds ---- */

/** What an action touches, per stage and micro-batch; bits of a mask. */
enum weir__effect {
    WEIR__INPUTS = 1u << 0,       /**< border inputs: the previous stage's outputs */
    WEIR__OUTPUTS = 1u << 1,      /**< border outputs */
    WEIR__SKIPS_IN = 1u << 2,     /**< skips read or popped here */
    WEIR__SKIPS_OUT = 1u << 3,    /**< skips stashed here */
    WEIR__SAVED = 1u << 4,        /**< activations */
    WEIR__OUTPUT_GRADS = 1u << 5, /**< gradients of border outputs */
    WEIR__INPUT_GRADS = 1u << 6,
    WEIR__SKIP_GRADS_IN = 1u << 7,  /**< running sums that come to this stage */
    WEIR__SKIP_GRADS_OUT = 1u << 8, /**< running sums that leave it */
    WEIR__WEIGHT_INPUTS = 1u << 9,  /**< what I leaves for W */
    WEIR__PARAM_GRADS = 1u << 10,   /**< per stage, not per micro-batch */
    WEIR__NORMS = 1u << 11,         /**< every stage's: a barrier over stages */
    WEIR__PARAMETERS = 1u << 12,
    WEIR__SAVED_FOR_INPUT = 1u << 13, /**< activations that W does not read; written and read with
                                          SAVED, whose dependencies hold for it too */
    WEIR__TIED_GRADS = 1u << 14       /**< of other stages' uses of parameters that this one owns */
};

/** One entry per kind. An effect's writer is, of the kinds that a stage and micro-batch has, the
 * last that writes it: so F writes SAVED only where no R of it stands in the table. An action of a
 * kind marked `waits_gradient_late` also reads OUTPUT_GRADS and SKIP_GRADS_IN when recomputation is
 * late. */
struct weir__kind_facts {
    char letter; /**< this and the name are WEIR_KIND_MAP's */
    const char *name;
    enum weir_phase phase; /**< of a plain call; F becomes FORWARD_CHECKPOINT or INFER by context.
                                WEIR_PHASE_COUNT: it calls nothing */
    uint32_t reads, writes;
    double units;       /**< its time where nothing is measured, above 0 */
    uint8_t background; /**< ANSI's colour; the bright one is 60 above */
    bool per_micro_batch;
    bool exported;    /**< stands in CSV; N does not */
    bool plain;       /**< stands in torch.distributed.pipelining's CSV too; R and U do not */
    bool in_step;     /**< counts for makespan and bubble; N and U do not */
    bool of_backward; /**< what stages without backward do not have */
    bool waits_gradient_late;
};
extern const struct weir__kind_facts weir__kinds[WEIR_KIND_COUNT];

/** Whether a kind reads, or writes, any of the effects. */
static inline bool weir__reads(uint32_t kind, uint32_t effects) {
    assert(kind < WEIR_KIND_COUNT);
    return (weir__kinds[kind].reads & effects) != 0;
}
static inline bool weir__writes(uint32_t kind, uint32_t effects) {
    assert(kind < WEIR_KIND_COUNT);
    return (weir__kinds[kind].writes & effects) != 0;
}
/** What it reads, where recomputation waits for the gradient or does not. */
static inline uint32_t weir__reads_of(uint32_t kind, bool recompute_late) {
    bool waits = recompute_late && weir__kinds[kind].waits_gradient_late;
    return weir__kinds[kind].reads | (waits ? WEIR__OUTPUT_GRADS | WEIR__SKIP_GRADS_IN : 0u);
}

/** What a stage does once per micro-batch; B and I are one. */
enum weir__pass {
    WEIR__PASS_FORWARD,
    WEIR__PASS_RECOMPUTE,
    WEIR__PASS_GRADIENT,
    WEIR__PASS_WEIGHT,
    WEIR__PASSES
};

/** WEIR__PASSES for what is no such thing. */
static inline enum weir__pass weir__pass_of(uint32_t kind) {
    if (weir__writes(kind, WEIR__OUTPUTS)) return WEIR__PASS_FORWARD;
    if (weir__writes(kind, WEIR__INPUT_GRADS)) return WEIR__PASS_GRADIENT;
    if (weir__writes(kind, WEIR__SAVED)) return WEIR__PASS_RECOMPUTE;
    return weir__writes(kind, WEIR__PARAM_GRADS) ? WEIR__PASS_WEIGHT : WEIR__PASSES;
}
/** The gradients of the inputs and of the parameters at once: B, which is I and W. */
static inline bool weir__is_whole(uint32_t kind) {
    return weir__writes(kind, WEIR__INPUT_GRADS) && weir__writes(kind, WEIR__PARAM_GRADS);
}
/** The kind that does a pass alone, or GRADIENT with WEIGHT if `whole`. */
static inline enum weir_kind weir__pass_kind(enum weir__pass pass, bool whole) {
    static const enum weir_kind kinds[WEIR__PASSES] = {WEIR_KIND_F, WEIR_KIND_R, WEIR_KIND_I,
                                                       WEIR_KIND_W};
    assert(pass < WEIR__PASSES);
    return whole && pass == WEIR__PASS_GRADIENT ? WEIR_KIND_B : kinds[pass];
}

/* ---- times by kind ---- */

/** seconds[kind] where nothing is measured: of what is in the step. */
void weir__unit_seconds(double seconds[WEIR_KIND_COUNT]);
static inline double weir__pass_seconds(const double *seconds, enum weir__pass pass) {
    return seconds[weir__pass_kind(pass, false)];
}
/** The least that a backward takes: as a whole, or in halves where it need not be whole. */
static inline double weir__least_backward(const double *seconds, bool whole) {
    double b = seconds[weir__pass_kind(WEIR__PASS_GRADIENT, true)];
    double halves = weir__pass_seconds(seconds, WEIR__PASS_GRADIENT) +
                    weir__pass_seconds(seconds, WEIR__PASS_WEIGHT);
    return whole || b < halves ? b : halves;
}
/** The least time until a backward has given its gradient on. */
static inline double weir__least_gradient(const double *seconds, bool whole) {
    double b = seconds[weir__pass_kind(WEIR__PASS_GRADIENT, true)];
    double half = weir__pass_seconds(seconds, WEIR__PASS_GRADIENT);
    return whole || b < half ? b : half;
}

/* ---- kinds in a stage ---- */

/** What is kept of a micro-batch until its backward is done counts in bytes, and as one. */
enum { WEIR__BYTES, WEIR__ACTIVATIONS, WEIR__AMOUNTS };

struct weir__stage_facts {
    double seconds[WEIR_KIND_COUNT];
    uint64_t kept[WEIR__AMOUNTS], saved[WEIR__AMOUNTS]; /**< from F on; from F, or its R */
    uint32_t worker;
    uint32_t ahead;      /**< 0, or how far its F runs ahead of the next stage's */
    uint32_t recomputed; /**< in a search: micro-batches below this have an R */
    bool backward;
};

/** By the costs that are given. `crosses`: the next stage is another worker's. */
struct weir__stage_facts weir__stage_facts_of(const struct weir_simulate_options *costs, uint32_t s,
                                              uint32_t worker, bool backward, bool crosses);
/** What an action begins to keep. `later`: an R of its micro-batch comes. */
static inline uint64_t weir__stage_begins(const struct weir__stage_facts *stage, uint32_t kind,
                                          bool later, int amount) {
    if (weir__writes(kind, WEIR__OUTPUTS))
        return stage->kept[amount] + (later ? 0 : stage->saved[amount]);
    return weir__writes(kind, WEIR__SAVED) ? stage->saved[amount] : 0;
}
/** What it frees at its end. */
static inline uint64_t weir__stage_frees(const struct weir__stage_facts *stage, uint32_t kind,
                                         int amount) {
    bool ends = weir__writes(kind, WEIR__PARAM_GRADS);
    return ends ? stage->kept[amount] + stage->saved[amount] : 0;
}

/* ---- between stages ---- */

static inline uint64_t weir__border_bytes(const struct weir_simulate_options *costs,
                                          uint32_t border) {
    return costs->border_bytes != NULL ? costs->border_bytes[border] : 0;
}
static inline bool weir__border_differentiable(const struct weir_simulate_options *costs,
                                               uint32_t border) {
    return costs->border_differentiable == NULL || costs->border_differentiable[border];
}
/** A worker's rank. */
static inline uint32_t weir__dealt_rank(uint32_t rank_count, uint32_t worker_count,
                                        uint32_t worker) {
    assert(worker < worker_count);
    return (uint32_t)((uint64_t)worker * rank_count / worker_count);
}
/** Whether what goes from one worker to another is a message between ranks. */
static inline bool weir__crosses_ranks(const struct weir_simulate_options *costs,
                                       uint32_t worker_count, uint32_t from, uint32_t to) {
    if (costs->ranks == NULL || from == UINT32_MAX || to == UINT32_MAX) return false;
    uint32_t ranks = costs->ranks->rank_count;
    return weir__dealt_rank(ranks, worker_count, from) != weir__dealt_rank(ranks, worker_count, to);
}
/** Adds what links cannot be between ranks of so many workers to `faults`. */
void weir__check_rank_links(const struct weir_rank_links *ranks, uint32_t worker_count,
                            struct weir_faults *faults);
/** What bytes cost from one worker to another. */
const struct weir_link_cost *weir__link_between(const struct weir_simulate_options *costs,
                                                uint32_t worker_count, uint32_t from, uint32_t to);
/** How long bytes take between two workers, either of which may be UINT32_MAX: nobody. */
double weir__copy_seconds(const struct weir_simulate_options *costs, uint32_t worker_count,
                          uint32_t from, uint32_t to, uint64_t bytes);
/** Whether a list like weir__flow's marks the stage. */
static inline bool weir__no_backward(const bool *no_backward, uint32_t stage) {
    return no_backward != NULL && no_backward[stage];
}

#endif
