/* SPDX-License-Identifier: MIT */
/**
 * The search for a pipeline, as `plan --search` and `--plan auto` share it: what it may change, by
 * what costs it goes by, and what is said of it. It chooses by estimates or by a profile, which
 * change no bit: what it tries gives the same results, but for the chunks where these are searched.
 * What was chosen is written back into the
 * pipeline's options, as if it had been given on the command line: so the options that are printed
 * are those that are run.
 */
#ifndef WEIR_TOOLS_SEARCH_H
#define WEIR_TOOLS_SEARCH_H

#include "cli/output.h"
#include "cli/pipe_options.h"
#include "weir_profile.h"

#include <jansson.h>

enum { SEARCH_COSTS_MOST = 1 + WEIR_NET_CHUNKS_MOST };

/** What layers cost with so many chunks. */
struct search_costs {
    uint32_t micro_batches; /**< of a replica, which has the most */
    uint32_t whole;         /**< of the mini-batch */
    uint32_t chunks;        /**< that make them; 0: as the net has it */
    struct weir_profile *profile;
};

/** A search and all that its result points to; search_clean_up. Zeroed before. */
struct search {
    struct weir_planner *planner;
    struct search_costs cost_list[SEARCH_COSTS_MOST]; /**< first those of the chunks asked for */
    uint32_t cost_count;
    uint32_t workers; /**< it is for, of a replica */
    uint32_t replicas;
    uint32_t groups;  /**< of gradients */
    bool groups_kept; /**< as given, or as one replica has them */
    uint32_t hosts;   /**< as in search_how, at least 1 */
    bool chunks_kept; /**< they are not searched */
    struct weir_planner_result result;
    char costs[160];       /**< what it went by: "of FILE", "estimated" … */
    char second[64];       /**< the runner-up: "zb-v on 2 workers"; "": there is none */
    double second_step;    /**< that it would take */
    char checkpoint[4096]; /**< of the pipe options chosen */
    char repeat[8192];     /**< "--schedule zb-v --workers 2 …" */
    double seconds;        /**< the search took, without measuring */
};

/** Of --plan: "given", "auto". */
extern const char *const search_plan_names[];

/** What a search may do. */
struct search_how {
    bool keeps_chunks; /**< also where they are not given: bits are to stay */
    bool workers; /**< they are searched too, with a share of the cores each, where nothing that
                       is given tells them */
    bool keeps_replicas; /**< also where they are not given: they are 1 then */
    uint32_t hosts;      /**< that share the workers, each like this one; 0: this one alone */
    const struct weir_rank_links *ranks; /**< workers are on several; NULL: in one process … */
    uint32_t rank_count; /**< … or on so many on this host, if not 0. Where they are not told, all
                              powers of two are tried as replicas that divide it, and the groups of
                              gradients, or, where these are not given, are so many (which decides
                              bits) */
    const char *order;   /**< of adding up gradients, which a search never changes: as
                              weir_table_order says it; NULL: ascending, as all begin */
};

/** Searches for the pipeline of `wanted`, a net but for what pipe_options_fill fills in, changing
 * what `args` do not fix, and writes the choice into `options`, which borrow from `search`.
 * `notes` as in pipe_profile. Faults: what cannot be, and that nothing is within the limit, with
 * the smallest that would do. */
int search_run(struct search *search, const struct search_how *how, const struct args *args,
               const struct weir_model *model, const struct weir_net_options *wanted,
               struct pipe_options *options, FILE *notes, struct weir_faults *faults);
void search_clean_up(struct search *search);

/** A choice's micro-batches, of all replicas. */
uint32_t search_chunks(const struct search *search, const struct weir_planner_choice *choice);
/** The winner's chunks are others than those asked for: so are the bits of results. */
bool search_has_other_chunks(const struct search *search);

/** search_costs.c: the costs for the net's workers and threads. */
int search_costs_find(struct search *search, const struct pipe_options *options,
                      const struct weir_model *model, const struct weir_net_options *net,
                      FILE *notes, struct weir_faults *faults);

/** The front, and why the winner wins. */
void search_print(FILE *to, const struct search *search, const struct pipe_options *options);
/** One line: what was chosen, by what, the options that repeat it, and what the runner-up would
 * take. */
void search_print_choice(FILE *to, const struct search *search);
/** "front", "why", "options" and "costs" into a plan's object. */
int search_json(const struct search *search, json_t *root);
/** Threads of a worker: asked for, or what a run takes where nothing was. `workers` are all, on so
 * many hosts. */
uint32_t search_threads(const struct pipe_options *options, uint32_t workers, uint32_t hosts);

#endif
