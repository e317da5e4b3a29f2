/* SPDX-License-Identifier: MIT */
/* Searching for the pipeline's options that were not given. */
#include "cli/search.h"

#include "base/base.h"
#include "device/device.h"
#include "place/place.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Predictions are no finer than this; of what is equally fast the smallest is best. */
static const double step_slack = 0.01;

const char *const search_plan_names[] = {"given", "auto", NULL};

/* How many of so many workers are on GPUs, which take a thread each. */
static uint32_t count_gpus(const struct pipe_options *options, uint32_t workers) {
    uint32_t gpus = 0;
    for (uint32_t i = 0; i < options->device.count; i++)
        gpus += !weir__device_facts(arg_texts_get(&options->device, i)).synchronous;
    return options->device.count == 1 ? gpus * workers : gpus; /* one is for all */
}

uint32_t search_threads(const struct pipe_options *options, uint32_t workers, uint32_t hosts) {
    struct weir__machine *machine;
    struct weir__machine_facts facts;
    if (options->threads_per_stage > 0) return options->threads_per_stage;
    uint32_t gpus = count_gpus(options, workers);
    if (gpus >= workers) return 1;
    if (weir__machine_new(NULL, &machine) != WEIR_OK) return 1;
    weir__machine_facts(machine, &facts);
    weir__machine_destroy(machine);
    uint32_t here = (workers - gpus + hosts - 1) / hosts, taken = (gpus + hosts - 1) / hosts;
    uint32_t left = facts.usable_cores > taken ? facts.usable_cores - taken : 0;
    return left > here ? left / here : 1;
}

/* ---- what is fixed ---- */

/* The options, of so many replicas, without what only a chosen schedule can tell. */
static struct pipe_options plain_options(const struct pipe_options *options, uint32_t replicas) {
    struct pipe_options plain = *options;
    uint32_t v = options->virtual_stages, stages = options->stages;
    if (options->balance.count > 0) stages = options->balance.count;
    if (v > 1 && options->workers == 0 && stages > 0 && stages % v == 0)
        plain.workers = stages / v * replicas;
    plain.virtual_stages = 0;
    plain.replicas = replicas;
    return plain;
}

static void fix(const struct pipe_options *options, const struct args *args,
                const struct weir_net_options *net, struct weir_planner_options *search,
                struct weir_faults *faults) {
    uint32_t workers = net->pipe.workers > 0 ? net->pipe.workers : net->stages;
    search->memory_limit = options->memory_limit;
    search->step_slack = step_slack;
    if (net->pipe.table_csv != NULL)
        weir_faults_add(faults,
                        "--schedule %s: a table is no search: give a name, or leave it to "
                        "the search",
                        options->schedule);
    if (options->balance_by != PIPE_BALANCE_BY_COST)
        weir_faults_add(faults, "--balance-by: the search chooses the layers of each stage: leave "
                                "it away");
    if (args_given(args, "schedule")) search->schedule = options->schedule;
    if (options->virtual_stages > 0) search->stages = workers * options->virtual_stages;
    if (options->stages > 0 || options->balance.count > 0) {
        if (search->stages > 0 && search->stages != net->stages)
            weir_faults_add(faults, "--virtual-stages %u: that is not %u stage%s on %u worker%s",
                            options->virtual_stages, net->stages, weir__s(net->stages), workers,
                            weir__s(workers));
        search->stages = net->stages;
    }
    if (options->balance.count > 0) search->balance = options->balance.items;
    if (args_given(args, "checkpoint") && net->pipe.stage_checkpoint != NULL) {
        search->stage_checkpoint = net->pipe.stage_checkpoint;
        search->stages = net->stages;
    } else if (args_given(args, "checkpoint")) {
        search->checkpoint = net->pipe.checkpoint;
    }
    if (args_given(args, "recompute"))
        search->recompute = options->recompute == 1 ? WEIR_RECOMPUTE_LATE : WEIR_RECOMPUTE_EARLY;
}

/* ---- what was chosen ---- */

__attribute__((format(printf, 3, 4))) static void append(char *text, size_t capacity,
                                                         const char *format, ...) {
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, capacity - used, format, arguments);
    va_end(arguments);
}

/* "never", or one per stage. */
static void checkpoint_text(const struct weir_planner_choice *choice, char *text, size_t capacity) {
    bool equal = true;
    text[0] = '\0';
    for (uint32_t s = 1; s < choice->stages; s++)
        equal = equal && choice->checkpoint[s] == choice->checkpoint[0];
    for (uint32_t s = 0; s < (equal ? 1 : choice->stages); s++)
        append(text, capacity, "%s%s", s == 0 ? "" : ",",
               weir_checkpoint_name(choice->checkpoint[s]));
}

static void adopt(struct search *search, const struct weir_planner_choice *choice,
                  struct pipe_options *options, struct weir_faults *faults) {
    char *text = search->repeat;
    size_t room = sizeof search->repeat;
    if (choice->stages > ARG_LIST_MAX) {
        weir_faults_add(faults,
                        "the search chose %u stages, more than options can name: fix fewer "
                        "by --stages",
                        choice->stages);
        return;
    }
    uint32_t own = weir_schedule_virtual_stages(choice->schedule), replicas = search->replicas;
    options->schedule = choice->schedule;
    options->stages = options->balance.count = choice->stages;
    for (uint32_t s = 0; s < choice->stages; s++) options->balance.items[s] = choice->balance[s];
    options->workers = choice->workers * replicas;
    options->replicas = replicas;
    options->virtual_stages =
        own > 1 && choice->stages % choice->workers == 0 ? choice->stages / choice->workers : 0;
    options->recompute = choice->recompute_late;
    if (search_has_other_chunks(search)) options->chunks = search_chunks(search, choice);
    checkpoint_text(choice, search->checkpoint, sizeof search->checkpoint);
    options->checkpoint = search->checkpoint;
    text[0] = '\0';
    if (replicas > 1) snprintf(text, room, "--replicas %u ", replicas);
    if (search->groups > 1) append(text, room, "--gradient-groups %u ", search->groups);
    append(text, room, "--schedule %s --workers %u --balance ", choice->schedule, options->workers);
    for (uint32_t s = 0; s < choice->stages; s++)
        append(text, room, "%s%u", s == 0 ? "" : ",", choice->balance[s]);
    append(text, room, " --checkpoint %s --recompute %s --chunks %u --threads-per-stage %u",
           search->checkpoint, choice->recompute_late ? "late" : "early", options->chunks,
           search_threads(options, options->workers, search->hosts));
}

static void refuse(const struct search *search, const struct pipe_options *options,
                   struct weir_faults *faults) {
    weir_faults_add(faults,
                    "--memory-limit %" PRIu64 ": no pipeline that was tried on %u worker%s fits: "
                    "the smallest limit %s would do is %" PRIu64 "; or give more --workers%s, or "
                    "fix less",
                    options->memory_limit, search->workers * search->replicas,
                    weir__s(search->workers * search->replicas),
                    search->result.is_smallest ? "that" : "found that",
                    search->result.smallest_limit, search->cost_count > 1 ? "" : " or --chunks");
}

uint32_t search_chunks(const struct search *search, const struct weir_planner_choice *choice) {
    uint32_t i = 0;
    while (search->cost_list[i].micro_batches != choice->micro_batches) i++;
    assert(i < search->cost_count);
    return search->cost_list[i].whole;
}

bool search_has_other_chunks(const struct search *search) {
    const struct weir_planner_choice *winner = search->result.winner;
    return winner != NULL && winner->micro_batches != search->cost_list[0].micro_batches;
}

static int search_once(struct search *search, const struct weir_model *model,
                       const struct weir_net_options *net, struct weir_planner_options *fixed,
                       struct weir_faults *faults) {
    struct weir_planner_chunks others[WEIR_NET_CHUNKS_MOST];
    for (uint32_t i = 1; i < search->cost_count; i++) {
        const struct search_costs *costs = &search->cost_list[i];
        others[i - 1] =
            (struct weir_planner_chunks){costs->micro_batches, &costs->profile->costs, NULL};
    }
    fixed->other_count = search->cost_count - 1;
    fixed->others = others;
    uint64_t begin = weir__now_ns();
    int status = weir_planner_new(NULL, &search->planner);
    if (status != WEIR_OK) return status;
    status = weir_net_search(search->planner, model, net, &search->cost_list[0].profile->costs,
                             fixed, faults, &search->result);
    search->seconds = (double)(weir__now_ns() - begin) * 1e-9;
    return status;
}

/* ---- workers ---- */

/* Nobody who asked for no search waits a second for one: of more than so many workers times
 * micro-batches times layers only the even cuts are tried. */
enum { TRIALS_MOST = 16, FULL_MOST = 256 };

/* A number of replicas, and of workers of all; 0: as options say. */
struct trial {
    uint32_t replicas, workers;
};

/* What is asked for, and what every trial is made with. */
struct trying {
    const struct search_how *how;
    const struct args *args;
    const struct weir_model *model;
    const struct weir_net_options *wanted;
    const struct pipe_options *options;
    FILE *notes;
    struct weir_faults *faults;
    struct weir__machine_facts machine;
    bool within_machine; /* it is to be kept within three quarters of the memory there is … */
    uint64_t least;      /* … or, where that cannot be, within this */
};

/* Whether the workers follow from what is given. */
static bool is_told(const struct trying *t) {
    static const char *const telling[] = {"workers",        "stages", "balance",
                                          "virtual-stages", "device", "profile"};
    /* a mode for each stage, or each replica a pipeline */
    bool told = strchr(t->options->checkpoint, ',') != NULL || t->options->replicas > 1;
    for (size_t i = 0; i < sizeof telling / sizeof telling[0]; i++)
        told = told || args_given(t->args, telling[i]);
    return told || !t->how->workers;
}

static void find_machine(struct trying *t) {
    struct weir__machine *machine;
    t->machine = (struct weir__machine_facts){.usable_cores = 1};
    if (weir__machine_new(NULL, &machine) != WEIR_OK) return;
    weir__machine_facts(machine, &t->machine);
    weir__machine_destroy(machine);
}

/* Replicas that ranks can make, one first. */
static uint32_t find_replicas(const struct trying *t, struct trial trials[TRIALS_MOST]) {
    uint32_t ranks = t->how->ranks != NULL ? t->how->ranks->rank_count : t->how->rank_count;
    uint32_t groups = t->options->gradient_groups, given = t->options->replicas, count = 0;
    bool told = args_given(t->args, "replicas") || given > 1 || ranks < 2 || t->how->keeps_replicas;
    trials[count++] = (struct trial){told && given > 0 ? given : 1, 0};
    for (uint32_t d = 2; !told && d <= ranks && count < TRIALS_MOST; d *= 2)
        if (ranks % d == 0 && (groups == 0 || groups % d == 0))
            trials[count++] = (struct trial){d, 0};
    return count;
}

/* Numbers of workers, the most first, or, where what is given tells them, of replicas. */
static uint32_t find_trials(struct trying *t, struct trial trials[TRIALS_MOST]) {
    const struct pipe_options plain = plain_options(t->options, 1);
    uint32_t count = 0;
    find_machine(t);
    if (is_told(t)) return find_replicas(t, trials);
    uint32_t threads = t->options->threads_per_stage > 0 ? t->options->threads_per_stage : 1;
    uint32_t most = t->machine.usable_cores / threads;
    uint32_t fit = weir_model_layer_count(t->model) / pipe_virtual_stages(&plain);
    if (most > fit) most = fit;
    for (uint32_t w = most > 0 ? most : 1; w > 0 && count < TRIALS_MOST; w /= 2)
        trials[count++] = (struct trial){1, w};
    return count;
}

/* What the search is told of a net whose options are filled in. */
static void fill_search(const struct trying *t, const struct weir_net_options *net,
                        struct search *search, struct weir_planner_options *fixed) {
    uint32_t all = search->workers * search->replicas;
    fix(t->options, t->args, net, fixed, t->faults);
    fixed->order = t->how->order;
    fixed->ranks = t->how->ranks;
    if (t->within_machine) fixed->memory_limit = t->machine.memory_bytes / 4 * 3 / all;
    if (t->within_machine && t->least > fixed->memory_limit) fixed->memory_limit = t->least;
    search->chunks_kept = t->how->keeps_chunks || args_given(t->args, "chunks");
}

static int try_one(struct trying *t, struct trial trial, struct search *search) {
    struct weir_planner_options fixed = WEIR_PLANNER_OPTIONS_INIT;
    struct weir_net_options net = *t->wanted;
    struct pipe_options plain = plain_options(t->options, trial.replicas);
    struct pipe_storage storage;
    if (trial.workers > 0) plain.workers = trial.workers;
    int status = pipe_options_fill(&plain, t->args, t->model, &storage, &net, t->faults);
    if (status != WEIR_OK) goto out;
    if (net.pipe.workers == 0) net.pipe.workers = net.stages;
    search->workers = net.pipe.workers;
    search->replicas = trial.replicas;
    search->groups = t->options->gradient_groups;
    search->groups_kept = search->groups > 0 || trial.replicas == 1;
    if (search->groups == 0) search->groups = trial.replicas;
    search->hosts = t->how->hosts > 0 ? t->how->hosts : 1;
    net.pipe.threads_per_worker =
        search_threads(t->options, search->workers * search->replicas, search->hosts);
    fill_search(t, &net, search, &fixed);
    if (t->faults->count > 0) goto out;
    status = search_costs_find(search, t->options, t->model, &net, t->notes, t->faults);
    if (status != WEIR_OK || t->faults->count > 0) goto out;
    uint64_t tasks = (uint64_t)search->workers * search->cost_list[0].micro_batches;
    bool many = tasks * weir_model_layer_count(t->model) > FULL_MOST;
    if (t->how->workers && many) fixed.effort = WEIR_PLANNER_QUICK;
    status = search_once(search, t->model, &net, &fixed, t->faults);
out:
    pipe_storage_clean_up(&storage);
    return status;
}

/* A runner-up is the best of the others, whichever number of workers and replicas it has. */
static void note_second(struct search *search, const struct search *of,
                        const struct weir_planner_choice *choice) {
    if (choice == NULL || (search->second[0] != '\0' && choice->step >= search->second_step))
        return;
    uint32_t workers = choice->workers * of->replicas;
    snprintf(search->second, sizeof search->second, "%s on %u worker%s", choice->schedule, workers,
             weir__s(workers));
    if (of->replicas > 1)
        append(search->second, sizeof search->second, ", %u replicas", of->replicas);
    search->second_step = choice->step;
}

/* Whether `b` is to be chosen instead of `a`, which has more workers, or fewer replicas. */
static bool is_better(const struct search *a, const struct search *b) {
    const struct weir_planner_result *x = &a->result, *y = &b->result;
    if (a->planner == NULL) return true;
    if (x->winner == NULL && y->winner == NULL) return y->smallest_limit < x->smallest_limit;
    if (x->winner == NULL || y->winner == NULL) return y->winner != NULL;
    return y->winner->step < x->winner->step * (1 - step_slack);
}

/* Keeps the better one in `best`, and nothing of the other but what it would take. */
static void keep_better(struct search *best, struct search *next) {
    if (is_better(best, next)) {
        struct search worse = *best;
        *best = *next;
        *next = worse;
    }
    note_second(best, next, next->result.winner);
    search_clean_up(next);
}

/* What so many workers cannot do fewer may; if none can, it says why the last ones cannot. */
static int try_all(struct trying *t, struct search *best) {
    struct trial trials[TRIALS_MOST];
    uint32_t count = find_trials(t, trials), refused = 0;
    struct weir_faults *faults = t->faults;
    int all = WEIR_ERR_MEMORY_LIMIT, status = WEIR_OK;
    for (uint32_t i = 0; i < count; i++) {
        struct search next = {.planner = NULL};
        struct weir_faults own = WEIR_FAULTS_INIT;
        t->faults = &own;
        status = try_one(t, trials[i], &next);
        t->faults = faults;
        bool ends = status != WEIR_OK && status != WEIR_ERR_MEMORY_LIMIT && own.count == 0;
        refused += own.count > 0;
        if (status == WEIR_OK && own.count == 0) all = WEIR_OK;
        if (own.count == 0) note_second(&next, &next, next.result.runner_up);
        if (own.count == 0) keep_better(best, &next);
        for (uint32_t k = 0; refused == count && k < own.kept; k++)
            weir_faults_add(faults, "%s", own.lines[k]);
        if (own.count > 0) search_clean_up(&next);
        weir_faults_clean_up(&own);
        if (ends) return status;
    }
    return refused == count ? status : all;
}

int search_run(struct search *search, const struct search_how *how, const struct args *args,
               const struct weir_model *model, const struct weir_net_options *wanted,
               struct pipe_options *options, FILE *notes, struct weir_faults *faults) {
    struct trying trying = {.how = how,
                            .args = args,
                            .model = model,
                            .wanted = wanted,
                            .options = options,
                            .notes = notes,
                            .faults = faults,
                            .within_machine = how->workers && options->memory_limit == 0 &&
                                              count_gpus(options, 1) == 0};
    int status = try_all(&trying, search);
    if (status == WEIR_ERR_MEMORY_LIMIT && trying.within_machine) {
        trying.least = search->result.smallest_limit; /* who is not asked refuses nothing */
        trying.within_machine = trying.least > 0;
        search_clean_up(search);
        *search = (struct search){.planner = NULL};
        status = try_all(&trying, search);
    }
    if (faults->count > 0) return status;
    if (status == WEIR_OK) adopt(search, search->result.winner, options, faults);
    if (status == WEIR_ERR_MEMORY_LIMIT && options->memory_limit > 0)
        refuse(search, options, faults);
    else if (status == WEIR_ERR_MEMORY_LIMIT)
        status = WEIR_OK; /* no plan at all can be: the pipeline as it is given says why */
    return status;
}

void search_clean_up(struct search *search) {
    weir_planner_destroy(search->planner);
    for (uint32_t i = 0; i < search->cost_count; i++)
        weir_profile_destroy(search->cost_list[i].profile);
    search->planner = NULL;
    search->cost_count = 0;
}
