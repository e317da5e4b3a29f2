/* SPDX-License-Identifier: MIT */
/*
 * Does the planner choose what measurement would? A small GPT and a small U-Net on two workers are
 * profiled, and searched without a limit and within what lasts, the workspace and two fifths of all
 * else that gpipe without checkpoints takes. Then its choice runs in turns with the rest of its
 * front and with the best that it finds for every schedule and number of stages, each at the chunks
 * that it likes best there; what is run for one limit counts for the other where it fits.
 *
 * Napkin. Predictions are off by some percent where workers share caches and memory, by about as
 * much for every pipeline of one model: what is wrong for all alike costs nothing. What is left is
 * what tells candidates apart that are predicted within a few percent of each other, of which there
 * are many (every zero-bubble schedule): so the choice is no more than that slower than the best.
 */
#include "subject.h"

#include "weir_profile.h"

#include <math.h>
#include <string.h>

enum { LIMITS = 2, CANDIDATES_MOST = 48, FRONT_MOST = 6, SHARING_MOST = 2, CHUNKS_ASKED = 4 };
static const double CHOICE_AT_MOST = 1.05, MOVING_PART = 0.4;
static const char *const limit_names[LIMITS] = {"no-limit", "tight"};

/* A pipeline that is run. */
struct candidate {
    struct subject_run sampled; /* first: what the case's context points to */
    struct weir_planner_choice choice;
    double undisturbed; /* simulated with the shortest tasks that were seen */
    const char *chosen; /* for which limit, or NULL */
    bool again;         /* the control */
};

struct group {
    struct bench *bench;
    struct subject subject; /* one step per sample */
    void *context;
    const struct weir_model *model;
    struct weir_net_options net;
    uint32_t counts[WEIR_NET_CHUNKS_MOST], count; /* of other chunks */
    struct weir_profile *profiles[WEIR_NET_CHUNKS_MOST + 1];
    struct weir_planner *planner;
    uint64_t limits[LIMITS];
    uint32_t winners[LIMITS];
    struct candidate candidates[CANDIDATES_MOST];
    struct bench_case cases[CANDIDATES_MOST];
    uint32_t candidate_count;
};

/* ---- what is searched ---- */

static void profile_all(struct group *group) {
    group->count = weir_net_chunks(&group->net, group->counts);
    for (uint32_t i = 0; i <= group->count; i++) {
        struct weir_profile_options options = WEIR_PROFILE_OPTIONS_INIT;
        struct weir_faults faults = WEIR_FAULTS_INIT;
        options.net = group->net;
        if (i > 0) options.net.pipe.chunks = group->counts[i - 1];
        options.seconds = group->bench->options.quick ? 0 : 1;
        bench_check_faults(weir_profile_new(group->model, &options, &faults, &group->profiles[i]),
                           "a profile", &faults);
    }
}

/* NULL: nothing fits, or the schedule cannot be so. */
static const struct weir_planner_result *search(struct group *group, uint64_t limit,
                                                const char *schedule, uint32_t stages,
                                                struct weir_planner_result *result) {
    struct weir_planner_options options = WEIR_PLANNER_OPTIONS_INIT;
    struct weir_planner_chunks others[WEIR_NET_CHUNKS_MOST];
    for (uint32_t i = 0; i < group->count; i++)
        others[i] =
            (struct weir_planner_chunks){group->counts[i], &group->profiles[i + 1]->costs, NULL};
    options.memory_limit = limit;
    options.step_slack = 0.01; /* as the tools have it */
    options.schedule = schedule;
    options.stages = stages;
    options.other_count = group->count;
    options.others = others;
    if (schedule != NULL) options.memory_asks = 8;
    if (group->bench->options.quick) options.effort = WEIR_PLANNER_QUICK;
    int status = weir_net_search(group->planner, group->model, &group->net,
                                 &group->profiles[0]->costs, &options, NULL, result);
    if (status == WEIR_OK) return result;
    if (status != WEIR_ERR_MEMORY_LIMIT && status != WEIR_ERR_ARGUMENT)
        bench_check(status, "a search");
    return NULL;
}

/* What lasts, and a part of the rest, of gpipe that recomputes nothing. */
static uint64_t tight_limit(const struct group *group) {
    struct weir_net_options net = group->net;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_plan *plan;
    double most = 0;
    net.stages = SUBJECT_WORKERS;
    net.pipe.schedule = "gpipe";
    net.pipe.checkpoint = WEIR_CHECKPOINT_NEVER;
    bench_check_faults(weir_net_plan(group->model, &net, &faults, &plan), "a plan", &faults);
    for (uint32_t d = 0; d < plan->device_count; d++) {
        const struct weir_device_plan *at = &plan->devices[d];
        double lasts = (double)(at->parameters + at->gradients + at->optimizer + at->workspace);
        most =
            fmax(most, lasts + MOVING_PART * (double)(at->activations + at->borders + at->portals));
    }
    weir_plan_destroy(plan);
    return (uint64_t)most;
}

/* ---- what is run ---- */

static bool is_same(const struct weir_planner_choice *a, const struct weir_planner_choice *b) {
    return strcmp(a->schedule, b->schedule) == 0 && a->stages == b->stages &&
           a->micro_batches == b->micro_batches && a->recompute_late == b->recompute_late &&
           memcmp(a->balance, b->balance, a->stages * sizeof a->balance[0]) == 0 &&
           memcmp(a->checkpoint, b->checkpoint, a->stages * sizeof a->checkpoint[0]) == 0;
}

/* A copy: the planner's goes with its next call. */
static void keep_choice(struct bench *bench, const struct weir_planner_choice *from,
                        struct weir_planner_choice *to) {
    uint32_t *balance = bench_take(bench, from->stages, sizeof *balance);
    enum weir_checkpoint *modes = bench_take(bench, from->stages, sizeof *modes);
    memcpy(balance, from->balance, from->stages * sizeof *balance);
    memcpy(modes, from->checkpoint, from->stages * sizeof *modes);
    *to = *from;
    to->balance = balance;
    to->checkpoint = modes;
}

static uint32_t add(struct group *group, const struct weir_planner_choice *choice, bool again) {
    for (uint32_t i = 0; i < group->candidate_count && !again; i++)
        if (is_same(&group->candidates[i].choice, choice)) return i;
    if (group->candidate_count == CANDIDATES_MOST)
        bench_die("planner: more than %d candidates", CANDIDATES_MOST);
    struct candidate *candidate = &group->candidates[group->candidate_count];
    keep_choice(group->bench, choice, &candidate->choice);
    candidate->again = again;
    return group->candidate_count++;
}

static void add_front(struct group *group, const struct weir_planner_result *result) {
    uint32_t first = 0;
    while (first < result->front_count && !result->front[first].fits) first++;
    uint32_t count = result->front_count - first;
    uint32_t stride = (count + FRONT_MOST - 1) / FRONT_MOST;
    for (uint32_t i = 0; i < count; i += stride) (void)add(group, &result->front[first + i], false);
}

static void add_candidates(struct group *group, uint32_t limit) {
    struct weir_planner_result result;
    const char *name;
    if (search(group, group->limits[limit], NULL, 0, &result) == NULL)
        bench_die("planner: nothing fits within %llu bytes",
                  (unsigned long long)group->limits[limit]);
    group->winners[limit] = add(group, result.winner, false);
    group->candidates[group->winners[limit]].chosen = limit_names[limit];
    if (result.runner_up != NULL) (void)add(group, result.runner_up, false);
    if (result.plain != NULL && result.plain->fits) (void)add(group, result.plain, false);
    add_front(group, &result);
    for (uint32_t i = 0; (name = weir_schedule_name(i)) != NULL; i++)
        for (uint32_t v = 1; v <= SHARING_MOST && !weir_schedule_is_searched(name); v++)
            if (search(group, group->limits[limit], name, v * SUBJECT_WORKERS, &result) != NULL)
                (void)add(group, result.winner, false);
}

static uint64_t planned(const struct weir_pipe *pipe) {
    const struct weir_plan *plan = weir_pipe_plan(pipe);
    uint64_t most = 0;
    for (uint32_t d = 0; d < plan->device_count; d++)
        if (plan->devices[d].total > most) most = plan->devices[d].total;
    return most;
}

static void open_candidate(struct group *group, uint32_t index) {
    struct candidate *candidate = &group->candidates[index];
    const struct weir_planner_choice *choice = &candidate->choice;
    struct subject_run *run = &candidate->sampled;
    struct weir_pipe_options how = group->net.pipe;
    how.schedule = choice->schedule;
    how.workers = choice->workers;
    how.chunks = choice->micro_batches;
    how.stage_checkpoint = choice->checkpoint;
    how.recompute_late = choice->recompute_late;
    run->subject = &group->subject;
    snprintf(run->name, sizeof run->name, "%s/%s/%u-stages/%u-chunks/%u%s", group->subject.name,
             choice->schedule, choice->stages, choice->micro_batches, index,
             candidate->again ? "-again" : "");
    run->trial =
        group->subject.open(group->bench, group->context, &how, choice->stages, choice->balance);
    group->cases[index] =
        (struct bench_case){.label = run->name, .sample = subject_sample, .context = run};
    bench_answer(group->bench, planned(group->subject.pipe(run->trial)) == choice->bytes,
                 "planner/%s: takes the bytes that were said", run->name);
}

/* ---- what came out ---- */

static double median_of(const struct group *group, uint32_t index) {
    return bench_median(group->cases[index].samples, group->cases[index].count);
}

static bool fits(const struct group *group, uint32_t index, uint32_t limit) {
    return group->limits[limit] == 0 ||
           group->candidates[index].choice.bytes <= group->limits[limit];
}

static double undisturbed_of(const struct group *group, uint32_t index) {
    return group->candidates[index].undisturbed;
}

static uint32_t best_of(const struct group *group, uint32_t limit,
                        double (*value)(const struct group *group, uint32_t index)) {
    uint32_t best = group->winners[limit];
    for (uint32_t i = 0; i < group->candidate_count; i++)
        if (fits(group, i, limit) && value(group, i) < value(group, best)) best = i;
    return best;
}

/* "2 always, 2 never" */
static void modes_text(const struct weir_planner_choice *choice, char text[48]) {
    size_t used = 0;
    text[0] = '\0';
    for (int m = WEIR_CHECKPOINT_ALWAYS; m <= WEIR_CHECKPOINT_NEVER; m++) {
        uint32_t count = 0;
        for (uint32_t s = 0; s < choice->stages; s++)
            count += choice->checkpoint[s] == (enum weir_checkpoint)m;
        if (count > 0)
            used += (size_t)snprintf(text + used, 48 - used, "%s%u %s", used > 0 ? ", " : "", count,
                                     weir_checkpoint_name((enum weir_checkpoint)m));
    }
}

static void report_candidate(struct group *group, uint32_t index) {
    const struct candidate *candidate = &group->candidates[index];
    const struct weir_planner_choice *choice = &candidate->choice;
    const struct bench_case *one = &group->cases[index];
    char measured[32], predicted[32], undisturbed[32], modes[48];
    double *ratios = bench_take(group->bench, one->count, sizeof *ratios);
    for (uint32_t i = 0; i < one->count; i++) ratios[i] = choice->step / one->samples[i];
    struct bench_result *result =
        bench_add(group->bench, "ratio", ratios, one->count, "planner/%s/predicted-to-measured",
                  candidate->sampled.name);
    result->ideal = 1.0;
    result->tabled = true;
    double ratio = result->median;
    result = bench_add(group->bench, "s", one->samples, one->count, "planner/%s/step",
                       candidate->sampled.name);
    result->ideal = choice->step;
    result->tabled = true;
    modes_text(choice, modes);
    fprintf(group->bench->text, "%-38s %10s %11s %10s %7.4f %7.4f %9.2f MB  %-26s %s%s\n",
            candidate->sampled.name, bench_value_text(result->median, "s", measured),
            bench_value_text(candidate->undisturbed, "s", undisturbed),
            bench_value_text(choice->step, "s", predicted), ratio,
            choice->step / candidate->undisturbed, (double)choice->bytes * 1e-6, modes,
            candidate->chosen != NULL ? "chosen: " : "",
            candidate->chosen != NULL ? candidate->chosen : "");
}

/* By what was measured. */
static void report_candidates(struct group *group) {
    bool done[CANDIDATES_MOST] = {false};
    fprintf(group->bench->text, "\n%-38s %10s %11s %10s %7s %7s %12s  checkpoint\n", "", "measured",
            "undisturbed", "predicted", "ratio", "to und.", "worst worker");
    for (uint32_t i = 0; i < group->candidate_count; i++)
        group->candidates[i].undisturbed =
            steps_undisturbed(group->bench, &group->candidates[i].sampled.steps);
    for (uint32_t n = 0; n < group->candidate_count; n++) {
        uint32_t next = UINT32_MAX;
        for (uint32_t i = 0; i < group->candidate_count; i++)
            if (!done[i] && (next == UINT32_MAX || median_of(group, i) < median_of(group, next)))
                next = i;
        done[next] = true;
        report_candidate(group, next);
    }
}

/* By what a busy machine hides. */
static void compare_undisturbed(struct group *group, uint32_t limit) {
    uint32_t winner = group->winners[limit], best = best_of(group, limit, undisturbed_of);
    double *ratio = bench_take(group->bench, 1, sizeof *ratio);
    *ratio = undisturbed_of(group, winner) / undisturbed_of(group, best);
    struct bench_result *result =
        bench_add(group->bench, "ratio", ratio, 1, "planner/%s/%s/choice-to-best-undisturbed",
                  group->subject.name, limit_names[limit]);
    result->ideal = 1.0;
    snprintf(result->note, sizeof result->note, "the best is %s",
             group->candidates[best].sampled.name);
}

static void compare_choice(struct group *group, uint32_t limit) {
    uint32_t winner = group->winners[limit], slower = 0, all = 0;
    uint32_t best = best_of(group, limit, median_of);
    struct bench_result *result =
        bench_add_ratio(group->bench, &group->cases[winner], &group->cases[best],
                        "planner/%s/%s/choice-to-best", group->subject.name, limit_names[limit]);
    for (uint32_t i = 0; i < group->candidate_count; i++) {
        if (!fits(group, i, limit) || i == winner) continue;
        all++;
        slower += median_of(group, i) >= median_of(group, winner);
    }
    result->ideal = 1.0;
    result->at_most = CHOICE_AT_MOST;
    snprintf(result->note, sizeof result->note, "no slower than %u of %u; the best is %s", slower,
             all, group->candidates[best].sampled.name);
    compare_undisturbed(group, limit);
}

/* The same chunks: the loss is the same bits under every schedule. */
static void check_answers(struct group *group) {
    for (uint32_t i = 0; i < group->candidate_count; i++) {
        struct candidate *candidate = &group->candidates[i];
        uint32_t first = 0;
        while (group->candidates[first].choice.micro_batches != candidate->choice.micro_batches)
            first++;
        bench_answer(group->bench,
                     candidate->sampled.loss == group->candidates[first].sampled.loss &&
                         subject_same_again(&candidate->sampled),
                     "planner/%s: the loss of all with its chunks, and the same again",
                     candidate->sampled.name);
    }
}

/* ---- the topics ---- */

static void begin(struct bench *bench, const struct subject *subject, struct group *group) {
    group->bench = bench;
    group->subject = *subject;
    group->subject.steps_per_sample = 1;
    group->context = subject->new_context(bench);
    group->model = subject->model(group->context);
    group->net = (struct weir_net_options)WEIR_NET_OPTIONS_INIT;
    group->net.pipe.rows = subject->rows;
    group->net.pipe.memory_limit = UINT64_MAX; /* as a search counts: nothing to save time */
    group->net.pipe.chunks = CHUNKS_ASKED;
    group->net.pipe.workers = SUBJECT_WORKERS;
    group->net.pipe.threads_per_worker = 1;
    group->net.optimizer.kind = WEIR_OPTIMIZER_NONE;
    bench_check(weir_planner_new(NULL, &group->planner), "a planner");
    profile_all(group);
    group->limits[1] = tight_limit(group);
}

static void end(struct group *group) {
    for (uint32_t i = 0; i < group->candidate_count; i++)
        group->subject.close(group->candidates[i].sampled.trial);
    for (uint32_t i = 0; i <= group->count; i++) weir_profile_destroy(group->profiles[i]);
    weir_planner_destroy(group->planner);
    group->subject.destroy_context(group->context);
}

static void measure(struct bench *bench, const struct subject *subject) {
    struct group *group = bench_take(bench, 1, sizeof *group);
    if (bench->facts.usable_cores < SUBJECT_WORKERS) {
        fprintf(bench->text, "fewer than two usable cores: nothing to plan for here\n");
        return;
    }
    begin(bench, subject, group);
    for (uint32_t limit = 0; limit < LIMITS; limit++) add_candidates(group, limit);
    uint32_t control = add(group, &group->candidates[group->winners[0]].choice, true);
    for (uint32_t i = 0; i < group->candidate_count; i++) open_candidate(group, i);
    bench_interleave(bench, group->cases, group->candidate_count);
    report_candidates(group);
    check_answers(group);
    for (uint32_t limit = 0; limit < LIMITS; limit++) compare_choice(group, limit);
    struct bench_result *result =
        bench_add_ratio(bench, &group->cases[control], &group->cases[group->winners[0]],
                        "planner/%s/control", subject->name);
    result->control = true;
    result->ideal = 1.0;
    end(group);
}

void bench_planner_gpt(struct bench *bench) {
    measure(bench, &subject_gpt);
}

void bench_planner_unet(struct bench *bench) {
    measure(bench, &subject_unet);
}
