/* SPDX-License-Identifier: MIT */
/**
 * The search for a pipeline, as `plan --search` and `--plan auto` share it: what it may change, by
 * what costs it goes by, and what is said of it. What was chosen is written back into the
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
    uint32_t micro_batches;
    uint32_t chunks; /**< that make them; 0: as the net has it */
    struct weir_profile *profile;
    bool known; /**< measured, not from others */
};

/** A search and all that its result points to; search_clean_up. Zeroed before. */
struct search {
    struct weir_planner *planner;
    struct search_costs cost_list[SEARCH_COSTS_MOST]; /**< first those of the chunks asked for */
    uint32_t cost_count;
    bool chunks_kept; /**< they are not searched */
    bool measures;    /**< times are measured where that is quick */
    double measured;  /**< seconds that this has taken */
    struct weir_planner_result result;
    char costs[128];       /**< what it went by: "measured in 1.2 s", "estimated" … */
    char checkpoint[4096]; /**< of the pipe options chosen */
    char repeat[8192];     /**< "--schedule zb-v --workers 2 …" */
    double seconds;        /**< the search took, without measuring */
};

/** Of --plan: "given", "auto". */
extern const char *const search_plan_names[];

struct search_how {
    bool measures;     /**< by times measured now where that is quick, if there is no --profile;
                            else by estimates */
    bool keeps_chunks; /**< also where they are not given: bits are to stay */
    const char *order; /**< of adding up gradients, which a search never changes: as
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

/** The winner's chunks are others than those asked for: so are the bits of results. */
bool search_has_other_chunks(const struct search *search);

/** search_costs.c: the costs to begin with, and after a search those that matter most, measured;
 * *changed: there are some, so the search is to be made again. */
int search_costs_find(struct search *search, bool measures, const struct pipe_options *options,
                      const struct weir_model *model, const struct weir_net_options *net,
                      FILE *notes, struct weir_faults *faults);
int search_costs_refine(struct search *search, const struct weir_model *model,
                        const struct weir_net_options *net, struct weir_faults *faults,
                        bool *changed);

/** The front, and why the winner wins. */
void search_print(FILE *to, const struct search *search, const struct pipe_options *options);
/** One line: what was chosen, by what, and the options that repeat it. */
void search_print_choice(FILE *to, const struct search *search);
/** "front", "why", "options" and "costs" into a plan's object. */
int search_json(const struct search *search, json_t *root);
/** Threads of a worker: asked for, or what a run takes where nothing was. */
uint32_t search_threads(const struct pipe_options *options, uint32_t workers);

#endif
