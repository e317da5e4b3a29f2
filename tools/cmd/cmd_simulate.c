/* SPDX-License-Identifier: MIT */
/*
 * `weir simulate`: what a step of a schedule takes when its tasks take given times, or those of a
 * model. Without a model the default is no checkpoint, so that a schedule is seen as the papers
 * draw it.
 */
#include "cli/args.h"
#include "cmd/commands.h"
#include "cli/json_text.h"
#include "cli/kind_times.h"
#include "cli/links_file.h"
#include "cli/model_options.h"
#include "cli/net_run.h"
#include "cmd/path_uses.h"
#include "cmd/simulate.h"
#include "pipe/describe/groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASES_MAX = 64, SEEDS_MAX = 10000, SECTIONS = 6, CHUNKS_DEFAULT = 8 };

static const double TRACE_SECONDS_MAX = 1e9;

struct simulate_values {
    struct arg_texts time, compare;
    double copy, copy_per_byte, host, noise;
    uint64_t border_bytes, activation_bytes, gradient_bytes;
    uint32_t seeds, activation_limit;
    const char *json, *trace, *svg, *links;
    struct pipe_options pipe;
    struct model_options model;
    struct step_options step;
};

#define AT(member) offsetof(struct simulate_values, member)

static const struct arg_option cost_options[] = {
    KIND_TIMES_OPTION(AT(time)),
    {"copy", ARG_REAL, AT(copy), "from a task's end until another worker has its result",
     .value = "X", .fallback = "0", .unit = "seconds"},
    {"copy-per-byte", ARG_REAL, AT(copy_per_byte), "added to it for each byte of the border",
     .value = "X", .fallback = "0", .unit = "seconds"},
    {"links", ARG_TEXT, AT(links),
     "the workers are on ranks, with links as 'weir doctor --json' writes them under mpiexec; "
     "--copy is then within a rank",
     .value = "FILE"},
    {"border-bytes", ARG_BYTES, AT(border_bytes), "between neighbour stages, of one micro-batch",
     .value = "N", .fallback = "1"},
    {"activation-bytes", ARG_BYTES, AT(activation_bytes), "that a stage saves of one micro-batch",
     .value = "N", .fallback = "1"},
    {"gradient-bytes", ARG_BYTES, AT(gradient_bytes),
     "of a stage, which replicas send each other, and as many of its parameters", .value = "N",
     .fallback = "1"},
    {"host", ARG_REAL, AT(host), "that a worker needs to start a task", .value = "X",
     .fallback = "0", .unit = "seconds"},
    {"noise", ARG_REAL, AT(noise),
     "each task's time is off by up to this part, at random, as --seed says (default: 0; "
     "0.1 to compare)",
     .value = "X", .most = 1},
    {"activation-limit", ARG_U32, AT(activation_limit),
     "with --schedule auto: no worker keeps more activations than this, a stage's of a "
     "micro-batch counted once",
     .value = "N", .least = 1},
};

static const struct arg_option output_options[] = {
    {"compare", ARG_LIST, AT(compare),
     "several schedules in one table; alone: all that fit the counts. A --model is cut anew for "
     "each, by time if nothing else was asked for",
     .value = "[NAME|FILE.csv,...]"},
    {"seeds", ARG_U32, AT(seeds), "to compare: how often the noise is drawn", .value = "N",
     .fallback = "25", .least = 1, .most = SEEDS_MAX},
    {"json", ARG_TEXT, AT(json), "the same facts for programs; - is stdout", .value = "FILE"},
    {"trace", ARG_TEXT, AT(trace), "Chrome trace events, which Perfetto opens",
     .value = "FILE.json"},
    {"svg", ARG_TEXT, AT(svg), "a picture", .value = "FILE"},
};

static const char details[] =
    "Runs the action table as the executor would. Kinds: F forward, R recompute, B backward, I\n"
    "input gradient, W weight gradient, U update (which counts for no figure).\n"
    "Without --model each task takes what --time says, nothing is checkpointed unless asked for,\n"
    "and of the pipeline's options the counts, --schedule, --checkpoint, --recompute and --seed\n"
    "(of the noise) count, and --replicas, with N for the norm; P is 4 unless given. --time and "
    "--activation-bytes are a worker's "
    "share\n"
    "of the model, which V stages per worker divide among them; with --stages or --virtual-stages\n"
    "they are a stage's.\n"
    "With --model the tasks take what its layers were measured to take: by 'weir profile' in\n"
    "--profile FILE, or now. Stages, balance and bytes are then those of a run.";

#define SECTION(title, list)                                                                       \
    { title, list, sizeof(list) / sizeof((list)[0]), 0 }

/* Lists of other files are no constants. */
static void list_sections(struct arg_section sections[SECTIONS]) {
    sections[0] = (struct arg_section)SECTION("Costs", cost_options);
    sections[1] = (struct arg_section)SECTION("Results", output_options);
    sections[2] = (struct arg_section){"Step", step_option_list, step_option_count, AT(step)};
    sections[3] = (struct arg_section){"Model", model_option_list, model_option_count, AT(model)};
    sections[4] = (struct arg_section){"Pipeline", pipe_option_list, pipe_option_count, AT(pipe)};
    sections[5] = (struct arg_section){"Replicas", pipe_share_list, pipe_share_count, AT(pipe)};
}

/* ---- what was asked ---- */

struct simulate_request {
    struct simulate_values *values;
    const struct args *args;
    struct simulate_costs costs;
    struct simulate_model model; /* its model NULL: none */
};

static struct simulate_costs costs_of(const struct simulate_values *values,
                                      struct weir_faults *faults) {
    struct simulate_costs costs = {.link = {values->copy, values->copy_per_byte},
                                   .host = values->host,
                                   .noise = values->noise,
                                   .border_bytes = values->border_bytes,
                                   .activation_bytes = values->activation_bytes,
                                   .gradient_bytes = values->gradient_bytes,
                                   .seed = values->pipe.seed,
                                   .recompute_late = values->pipe.recompute == 1};
    kind_times_read(&values->time, costs.seconds, faults);
    return costs;
}

/* What replicas share, as the command line counts it: workers and micro-batches are of all. */
static int share(struct simulate_request *request, struct simulate_counts *counts,
                 struct weir_faults *faults) {
    const struct pipe_options *pipe = &request->values->pipe;
    struct weir_pipe_options of = WEIR_PIPE_OPTIONS_INIT;
    uint32_t before = faults->count;
    of.replicas = pipe->replicas;
    of.gradient_groups = pipe->gradient_groups;
    of.chunks = counts->chunks > 0 ? counts->chunks : CHUNKS_DEFAULT;
    weir__groups_check(&of, faults);
    if (faults->count == before && !weir__text_ends(counts->schedule, ".csv")) {
        (void)weir__groups_check_rows(&of, of.chunks, faults);
        counts->chunks = weir__groups_of(&of, 0, of.chunks).count;
    }
    if (pipe->workers % pipe->replicas != 0)
        weir_faults_add(faults, "--workers %u are those of all %u replicas: give a multiple",
                        pipe->workers, pipe->replicas);
    counts->workers = pipe->workers / pipe->replicas;
    request->costs.replicas = pipe->replicas;
    request->costs.groups = weir__gradient_groups(&of) / pipe->replicas;
    return faults->count > before ? WEIR_ERR_ARGUMENT : WEIR_OK;
}

static struct simulate_counts counts_of(const struct simulate_request *request) {
    const struct pipe_options *pipe = &request->values->pipe;
    return (struct simulate_counts){.recompute_late = pipe->recompute == 1,
                                    .stages = pipe->stages,
                                    .virtual_stages = pipe->virtual_stages,
                                    .chunks =
                                        args_given(request->args, "chunks") ? pipe->chunks : 0,
                                    .costs = &request->costs,
                                    .activation_limit = request->values->activation_limit,
                                    .checkpoint = WEIR_CHECKPOINT_NEVER};
}

/* Without a model one mode serves all stages. */
static int read_checkpoint(const struct simulate_request *request, struct simulate_counts *counts,
                           struct weir_faults *faults) {
    const char *text = request->values->pipe.checkpoint;
    if (!args_given(request->args, "checkpoint")) return WEIR_OK;
    int status = weir_checkpoint_parse(text, &counts->checkpoint);
    if (status != WEIR_OK)
        weir_faults_add(faults,
                        "--checkpoint %s: give one of always, except_last, never; one per stage "
                        "goes with --model",
                        text);
    return status;
}

/* The case of a schedule, with all that it costs. Clean up in every case. */
static int make_case(struct simulate_request *request, const char *schedule,
                     struct simulate_case *c, struct weir_faults *faults,
                     struct weir_faults *notes) {
    if (request->model.model != NULL && request->values->activation_limit > 0) {
        *c = (struct simulate_case){0};
        weir_faults_add(faults, "--activation-limit goes without --model: leave it out");
        return WEIR_ERR_ARGUMENT;
    }
    if (request->model.model != NULL)
        return simulate_model_case(&request->model, schedule, &request->costs, c, faults);
    struct simulate_counts counts = counts_of(request);
    counts.schedule = schedule;
    counts.same_share = counts.stages == 0 && counts.virtual_stages == 0;
    *c = (struct simulate_case){0};
    int status = read_checkpoint(request, &counts, faults);
    if (status != WEIR_OK) return status;
    if ((status = share(request, &counts, faults)) != WEIR_OK) return status;
    status = simulate_case_init(c, &counts, faults, notes);
    if (status != WEIR_OK) return status;
    simulate_case_cost(c, &request->costs);
    return WEIR_OK;
}

/* ---- results ---- */

static int save_trace(const struct simulate_values *values, const struct simulate_case *c,
                      struct weir_error *error) {
    struct output output;
    int status = output_begin(&output, values->trace, error);
    if (status != WEIR_OK || values->trace == NULL) return status;
    status = weir_prediction_chrome(c->table, &c->prediction, output_write, &output);
    if (status != WEIR_OK) {
        output_abort(&output);
        return status;
    }
    return output_commit(&output);
}

/* Everything that was asked of `count` cases but what is printed. */
static int save(const struct simulate_values *values, const struct simulate_case *cases,
                uint32_t count, json_t *json, struct weir_error *error) {
    int status = WEIR_OK;
    if (values->json != NULL) {
        status = json_text_save(values->json, json, error);
    } else {
        json_decref(json);
    }
    if (status == WEIR_OK && values->trace != NULL) status = save_trace(values, cases, error);
    if (status == WEIR_OK && values->svg != NULL) {
        status = simulate_svg(values->svg, cases, count, error);
    }
    return status;
}

static void init_people(const struct simulate_values *values, struct people *people) {
    people_init(people, output_is_standard(values->json) || output_is_standard(values->trace) ||
                            output_is_standard(values->svg));
}

static void print_notes(struct weir_faults *notes) {
    for (uint32_t i = 0; i < notes->kept; i++) {
        fprintf(stderr, "weir: simulate: note: %s\n", notes->lines[i]);
    }
    weir_faults_clean_up(notes);
}

/* Before anything is printed. */
static void check_trace(const struct simulate_values *values, const struct simulate_case *c,
                        struct weir_faults *faults) {
    if (values->trace != NULL && c->prediction.total > TRACE_SECONDS_MAX)
        weir_faults_add(faults, "--trace: the step takes longer than it can count: give shorter "
                                "times with --time");
}

static int simulate_one(struct simulate_request *request, struct weir_faults *faults,
                        struct weir_error *error) {
    const struct simulate_values *values = request->values;
    struct weir_faults notes = WEIR_FAULTS_INIT;
    struct simulate_case c;
    struct people people;
    init_people(values, &people);
    int status = make_case(request, values->pipe.schedule, &c, faults, &notes);
    if (status != WEIR_OK) goto out;
    c.options.want_actions = simulate_is_drawn(&c) || values->trace != NULL || values->svg != NULL;
    status = simulate_case_run(&c, faults);
    if (status != WEIR_OK) goto out;
    check_trace(values, &c, faults);
    if (faults->count > 0) goto out;
    status = simulate_print(&people, &c);
    if (status != WEIR_OK) goto out;
    status = save(values, &c, 1, simulate_json(&c), error);
out:
    print_notes(&notes);
    simulate_case_clean_up(&c);
    return status;
}

/* ---- comparing ---- */

/** The cases that fit, and what is known of each. */
struct case_comparison {
    struct simulate_request *request;
    struct simulate_case cases[CASES_MAX];
    uint32_t count;
    struct simulate_noise noise;
    struct people people;
};

/* A schedule that does not fit is said and left out. */
static int add_case(struct case_comparison *comparison, const char *schedule) {
    struct weir_faults faults = WEIR_FAULTS_INIT, notes = WEIR_FAULTS_INIT;
    struct simulate_case *c = &comparison->cases[comparison->count];
    int status = make_case(comparison->request, schedule, c, &faults, &notes);
    bool fits = status == WEIR_OK;
    if (fits) {
        c->options.want_actions = true;
        c->options.noise = 0.0;
        status = simulate_case_run(c, &faults);
    }
    if (fits && status == WEIR_OK) {
        const struct simulate_noise *noise = &comparison->noise;
        double *factors = &noise->factors[(size_t)comparison->count * noise->seeds];
        status = simulate_with_noise(c, noise->part, noise->seeds, factors);
        comparison->count++;
    } else {
        fprintf(comparison->people.stream, "%s is left out: %s\n", schedule,
                faults.kept > 0 ? faults.lines[0] : weir_status_text(status));
        simulate_case_clean_up(c);
    }
    weir_faults_clean_up(&faults);
    print_notes(&notes);
    return fits || status == WEIR_ERR_OUT_OF_MEMORY ? status : WEIR_OK;
}

static int add_cases(struct case_comparison *comparison) {
    const struct arg_texts *wanted = &comparison->request->values->compare;
    bool all = wanted->count == 1 && strcmp(arg_texts_get(wanted, 0), "all") == 0;
    int status = WEIR_OK;
    for (uint32_t i = 0; status == WEIR_OK && i < CASES_MAX; i++) {
        const char *name = all                 ? weir_schedule_name(i)
                           : i < wanted->count ? arg_texts_get(wanted, i)
                                               : NULL;
        if (name == NULL) break;
        status = add_case(comparison, name);
    }
    return status;
}

static json_t *comparison_json(const struct case_comparison *comparison) {
    json_t *list = json_array();
    uint32_t seeds = comparison->noise.seeds;
    for (uint32_t i = 0; i < comparison->count; i++) {
        const double *factors = &comparison->noise.factors[(size_t)i * seeds];
        json_t *object = simulate_json(&comparison->cases[i]);
        json_object_set_new(object, "noise",
                            json_pack("{s:f, s:i, s:f, s:f}", "part", comparison->noise.part,
                                      "seeds", (int)seeds, "median", factors[seeds / 2], "worst",
                                      factors[seeds - 1]));
        json_array_append_new(list, object);
    }
    return json_pack("{s:o}", "schedules", list);
}

static int compare(struct simulate_request *request, struct weir_faults *faults,
                   struct weir_error *error) {
    const struct simulate_values *values = request->values;
    struct case_comparison *comparison = calloc(1, sizeof *comparison);
    double *factors = calloc((size_t)CASES_MAX * values->seeds, sizeof *factors);
    int status = WEIR_ERR_OUT_OF_MEMORY;
    if (comparison == NULL || factors == NULL) goto out;
    comparison->request = request;
    comparison->noise = (struct simulate_noise){request->costs.noise, values->seeds, factors};
    init_people(values, &comparison->people);
    status = add_cases(comparison);
    if (status != WEIR_OK) goto out;
    if (comparison->count == 0) {
        weir_faults_add(faults, "none of these schedules fits: choose other --stages, "
                                "--workers or --chunks");
        goto out;
    }
    simulate_print_compared(&comparison->people, comparison->cases, comparison->count,
                            &comparison->noise);
    status = save(values, comparison->cases, comparison->count, comparison_json(comparison), error);
out:
    for (uint32_t i = 0; comparison != NULL && i < comparison->count; i++) {
        simulate_case_clean_up(&comparison->cases[i]);
    }
    free(factors);
    free(comparison);
    return status;
}

/* ---- the command ---- */

/* A --compare without a list means all. */
static char **name_all(int argc, char **argv) {
    static char all[] = "--compare=all";
    char **copy = calloc((size_t)argc + 1, sizeof *copy);
    for (int i = 0; copy != NULL && i < argc; i++) {
        bool alone = i + 1 == argc || strncmp(argv[i + 1], "--", 2) == 0;
        copy[i] = alone && strcmp(argv[i], "--compare") == 0 ? all : argv[i];
    }
    return copy;
}

static void check_together(const struct simulate_values *values, const struct args *args,
                           struct weir_faults *faults) {
    if (values->compare.count == 0) {
        if (args_given(args, "seeds"))
            weir_faults_add(faults, "--seeds goes with --compare: add it, or leave --seeds out");
        return;
    }
    if (args_given(args, "schedule"))
        weir_faults_add(faults, "--schedule does not go with --compare: name it there");
    if (values->trace != NULL)
        weir_faults_add(faults, "--trace does not go with --compare: choose one --schedule");
    for (uint32_t i = 0; i < values->compare.count; i++) {
        const char *name = arg_texts_get(&values->compare, i);
        if (strcmp(name, "all") == 0 || weir__text_ends(name, ".csv") ||
            weir_schedule_virtual_stages(name) > 0)
            continue;
        const char *near = weir__nearest(name, pipe_schedule_names);
        weir_faults_add(faults,
                        "--compare: there is no schedule '%.64s': 'weir simulate --compare' names "
                        "all, a table's file ends in .csv%s%s%s",
                        name, near != NULL ? " (did you mean " : "", near != NULL ? near : "",
                        near != NULL ? "?)" : "");
    }
    if (values->compare.count > CASES_MAX)
        weir_faults_add(faults, "--compare names %u schedules: give at most %d",
                        values->compare.count, CASES_MAX);
}

/* What only a model gives a meaning to, and what it takes it from. */
static void check_model(const struct simulate_values *values, const struct args *args,
                        struct weir_faults *faults) {
    static const char *const always[] = {"stages",   "workers",        "virtual-stages", "chunks",
                                         "schedule", "checkpoint",     "recompute",      "seed",
                                         "replicas", "gradient-groups"};
    static const char *const given[] = {"time", "border-bytes", "activation-bytes",
                                        "gradient-bytes"};
    const struct arg_command *command = args->command;
    bool measured = args_given(args, "model");
    for (size_t i = 0; measured && i < sizeof given / sizeof given[0]; i++)
        if (args_given(args, given[i]))
            weir_faults_add(faults, "--%s does not go with --model, which is measured: give one",
                            given[i]);
    for (uint32_t s = 2; !measured && s < command->section_count; s++)
        for (uint32_t k = 0; k < command->sections[s].option_count; k++) {
            const char *name = command->sections[s].options[k].name;
            bool means = false;
            for (size_t i = 0; i < sizeof always / sizeof always[0]; i++)
                means |= strcmp(name, always[i]) == 0;
            if (!means && args_given(args, name))
                weir_faults_add(faults, "--%s needs --model: add it, or leave --%s out", name,
                                name);
        }
    check_together(values, args, faults);
}

/* Better now than after minutes of measuring. */
static void check_outputs(const struct simulate_values *values, struct weir_faults *faults) {
    const struct path_use paths[] = {{"json", values->json, PATH_TEXT},
                                     {"trace", values->trace, PATH_TEXT},
                                     {"svg", values->svg, PATH_TEXT},
                                     {"links", values->links, PATH_INPUT}};
    for (size_t i = 0; i < 3; i++)
        if (!output_is_standard(paths[i].path))
            net_run_check_output(paths[i].option, paths[i].path, faults);
    path_uses_check_own(paths, 4, &values->model, &values->pipe, faults);
}

static int run(struct simulate_request *request, struct weir_faults *faults,
               struct weir_error *error) {
    bool several = request->values->compare.count > 0;
    struct weir_profile *profiles[CASES_MAX];
    struct people people;
    init_people(request->values, &people);
    request->model.profiles = profiles;
    request->model.notes = people.stream;
    int status = several ? compare(request, faults, error) : simulate_one(request, faults, error);
    for (uint32_t i = 0; i < request->model.profile_count; i++) weir_profile_destroy(profiles[i]);
    return status;
}

/* As in a run, each rank has a worker where nothing else is told. */
static int read_links(struct simulate_request *request, struct links_file *links,
                      const struct args *args, struct weir_faults *faults) {
    struct pipe_options *pipe = &request->values->pipe;
    bool told =
        args_given(args, "workers") || args_given(args, "stages") || args_given(args, "balance");
    int status = links_file_read(links, request->values->links, faults);
    if (status == WEIR_OK && !told) pipe->workers = links->ranks.rank_count;
    request->costs.ranks = &links->ranks;
    return status;
}

static int simulate(struct simulate_values *values, const struct args *args,
                    struct weir_faults *faults) {
    struct weir_error error = {0};
    struct weir_model *model = NULL;
    struct links_file links = {0};
    bool several = values->compare.count > 0;
    if (several && !args_given(args, "noise")) values->noise = 0.1;
    struct simulate_request request = {
        .values = values,
        .args = args,
        .costs = costs_of(values, faults),
        .model = {.pipe = &values->pipe,
                  .args = args,
                  .step = &values->step,
                  .balance_by_time = several && !args_given(args, "balance-by")}};
    check_model(values, args, faults);
    check_outputs(values, faults);
    int status = values->links != NULL ? read_links(&request, &links, args, faults) : WEIR_OK;
    if (status == WEIR_OK && args_given(args, "model"))
        status = step_options_build(&values->step, &values->model, args, faults, &model);
    request.model.model = model;
    if (status == WEIR_OK && faults->count == 0) status = run(&request, faults, &error);
    weir_model_destroy(model);
    links_file_clean_up(&links);
    return args_end(args->command, faults, status, &error);
}

int cmd_simulate(int argc, char **argv) {
    struct arg_section sections[SECTIONS];
    const struct arg_command command = {"simulate",
                                        "predicts a step from its schedule and the times of its "
                                        "tasks",
                                        details,
                                        sections,
                                        SECTIONS,
                                        pipe_refusals};
    struct simulate_values values = {0};
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct args args;
    char **words = name_all(argc, argv);
    list_sections(sections);
    if (words == NULL) {
        struct weir_error error = {.status = WEIR_ERR_OUT_OF_MEMORY};
        return args_fail(&command, &error);
    }
    bool help = args_parse(&args, &command, argc, words, &values, &faults);
    int code = help ? EXIT_DONE : simulate(&values, &args, &faults);
    free(words);
    return code;
}
