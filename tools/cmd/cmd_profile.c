/* SPDX-License-Identifier: MIT */
/* `weir profile`: what each layer takes, for people as a table, for other commands as a file. */
#include "cmd/commands.h"
#include "cmd/path_uses.h"
#include "cli/model_options.h"
#include "cli/net_run.h"
#include "cli/output.h"
#include "cli/pipe_costs.h"
#include "cli/plan_text.h"
#include "cli/ranks.h"
#include "cli/step_options.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct profile_values {
    struct model_options model;
    struct pipe_options pipe;
    struct step_options step;
    const char *out;
    uint32_t steps;
    double seconds;
    bool inference;
    struct ranks_times times;
};

static const struct arg_option own[] = {
    {"out", ARG_TEXT, offsetof(struct profile_values, out),
     "keeps the profile (JSON), for --profile; - is stdout", .value = "FILE"},
    {"seconds", ARG_REAL, offsetof(struct profile_values, seconds),
     "goes on so long, for at least 7 steps", .value = "S", .fallback = "2", .unit = "seconds",
     .least = 0, .most = 3600},
    {"steps", ARG_U32, offsetof(struct profile_values, steps), "and for no more than these",
     .value = "N", .fallback = "200", .least = 7, .most = 1000},
    {"inference", ARG_FLAG, offsetof(struct profile_values, inference),
     "measures inference, for generate and eval, not training"},
    RANKS_OPTION_TIMES(offsetof(struct profile_values, times)),
};

static const char details[] =
    "Layers are measured in their real order within the whole model, with random input: a largest\n"
    "micro-batch, as one stage on one worker, with the threads that a stage of the pipeline gets:\n"
    "the cores divided by --workers or --stages, or --threads-per-stage; or on the first GPU of\n"
    "--device; where that names CPUs and GPUs, on both. A profile holds for its model, machine or\n"
    "GPU, rows per micro-batch, threads and dtype, and is refused for others. No other program\n"
    "should be busy meanwhile; 'spread' says how steady the times were. Under mpiexec or srun all\n"
    "ranks measure at once: what is kept is the times of the slowest, and how long each rank took\n"
    "as a part of them.";

/* ---- for people ---- */

static const struct {
    const char *name;
    enum weir_kind kind;
} columns[] = {{"forward", WEIR_KIND_F},
               {"recompute", WEIR_KIND_R},
               {"backward", WEIR_KIND_B},
               {"input", WEIR_KIND_I},
               {"weight", WEIR_KIND_W}};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

static void print_row(FILE *to, const char *number, const char *label, const double *seconds,
                      uint64_t saved, uint64_t border, uint64_t parameters) {
    char text[3][24];
    fprintf(to, "%5s %-28.28s", number, label);
    for (int k = 0; k < COLUMNS; k++) fprintf(to, " %9.3f", seconds[columns[k].kind] * 1e3);
    fprintf(to, " %11s %11s %11s\n", plan_text_bytes(saved, text[0]),
            plan_text_bytes(border, text[1]), plan_text_bytes(parameters, text[2]));
}

static void print_layer(FILE *to, const struct weir_profile *profile,
                        const struct weir_model *model, uint32_t index) {
    const struct weir_layer_cost *layer = &profile->costs.layers[index];
    const char *type = "", *name = "";
    char label[96], number[16];
    weir_model_layer(model, index, &type, &name, NULL);
    snprintf(label, sizeof label, "%s%s%s%s", type, name[0] != '\0' ? " " : "", name,
             layer->joined ? " (joined)" : "");
    snprintf(number, sizeof number, "%" PRIu32, index);
    print_row(to, number, label, layer->seconds, layer->saved, layer->border, layer->parameters);
}

static void print_profile(FILE *to, const struct weir_profile *profile,
                          const struct weir_model *model) {
    uint64_t saved = 0, parameters = 0;
    fprintf(to, "%s, ", profile->machine);
    if (strcmp(profile->device, "cpu") == 0)
        fprintf(to, "%" PRIu32 " thread%s, ", profile->threads, weir__s(profile->threads));
    fprintf(to, "%" PRId64 " row%s, %s; milliseconds and bytes of one micro-batch\n", profile->rows,
            weir__s((uint64_t)profile->rows), weir_dtype_name(profile->dtype));
    fprintf(to, "%5s %-28s", "layer", "");
    for (int k = 0; k < COLUMNS; k++) fprintf(to, " %9s", columns[k].name);
    fprintf(to, " %11s %11s %11s\n", "saved", "output", "parameters");
    for (uint32_t i = 0; i < profile->costs.layer_count; i++) {
        print_layer(to, profile, model, i);
        saved += profile->costs.layers[i].saved;
        parameters += profile->costs.layers[i].parameters;
    }
    print_row(to, "", "the whole, as one stage", profile->seconds, saved,
              profile->costs.layers[profile->costs.layer_count - 1].border, parameters);
    fprintf(to, "%" PRIu32 " step%s, spread %.1f%%; an action %s %.2f us besides\n", profile->steps,
            weir__s(profile->steps), profile->spread * 100,
            strcmp(profile->device, "cpu") == 0 ? "takes" : "is taken to need",
            profile->costs.task_seconds * 1e6);
}

static void print_ranks(FILE *to, const struct weir_profile *profile) {
    for (uint32_t r = 0; r < profile->costs.rank_count; r++)
        fprintf(to, "rank %-4" PRIu32 " takes %.3f of that, on %s: %s\n", r,
                profile->costs.rank_paces[r], profile->ranks[r].host, profile->ranks[r].machine);
}

/* ---- the command ---- */

/* A run of `weir profile`. */
struct profiling {
    const struct profile_values *values;
    const struct args *args;
    struct people people;
    struct ranks ranks;
    struct weir_faults *faults;
    struct weir_error *error;
};

static int save(const struct weir_profile *profile, const char *path, struct weir_error *error) {
    struct output output;
    int status = output_begin(&output, path, error);
    if (status != WEIR_OK) goto fail;
    status = weir_profile_write(profile, output_write, &output);
    if (status != WEIR_OK) goto fail;
    return output_commit(&output);
fail:
    output_abort(&output);
    return status;
}

static int profile_model(struct profiling *m, const struct weir_model *model) {
    const struct profile_values *values = m->values;
    struct weir_profile_options options = WEIR_PROFILE_OPTIONS_INIT;
    struct weir_profile *profile = NULL;
    struct pipe_storage storage;
    int status =
        pipe_options_fill(&values->pipe, m->args, model, &storage, &options.net, m->faults);
    step_options_fill(&values->step, &options.net);
    options.net.pipe.world = ranks_world(&m->ranks);
    options.net.pipe.infer_only = values->inference;
    if (values->inference) options.net.optimizer.kind = WEIR_OPTIMIZER_NONE;
    options.steps_most = values->steps;
    options.seconds = values->seconds;
    if (status == WEIR_OK && m->faults->count == 0)
        status = weir_profile_new(model, &options, m->faults, &profile);
    if (profile != NULL && ranks_leads(&m->ranks)) {
        for (const struct weir_profile *p = profile; p != NULL; p = p->other)
            print_profile(m->people.stream, p, model);
        print_ranks(m->people.stream, profile);
        status = save(profile, values->out, m->error);
    }
    weir_profile_destroy(profile);
    pipe_storage_clean_up(&storage);
    return status;
}

static int run(struct profiling *m, const struct ranks_command *of, struct weir_model **model) {
    const char *out = m->values->out;
    int status = ranks_join(&m->ranks, of);
    if (status != WEIR_OK) return status;
    if (ranks_leads(&m->ranks) && !output_is_standard(out))
        net_run_check_output("out", out, m->faults);
    bool listed = strcmp(of->pipe->bind, "auto") != 0 && strcmp(of->pipe->bind, "none") != 0;
    if (listed && ranks_world(&m->ranks) != NULL)
        weir_faults_add(m->faults,
                        "--bind %s: over several processes each measures on cores of its "
                        "own: leave it to auto, or let the launcher bind them",
                        of->pipe->bind);
    status = step_options_build(&m->values->step, &m->values->model, m->args, m->faults, model);
    return status == WEIR_OK ? profile_model(m, *model) : status;
}

int cmd_profile(int argc, char **argv) {
    const struct arg_section sections[] = {
        {"Options", own, sizeof own / sizeof own[0], 0},
        {"Step", step_option_list, step_option_count, offsetof(struct profile_values, step)},
        {"Model", model_option_list, model_option_count, offsetof(struct profile_values, model)},
        {"Pipeline", pipe_option_list, pipe_option_count, offsetof(struct profile_values, pipe)}};
    const struct arg_command command = {
        "profile", "times and bytes of each layer", details, sections, 4, pipe_refusals};
    struct profile_values values = {0};
    struct args args;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_model *model = NULL;
    struct weir_error error = {0};
    if (args_parse(&args, &command, argc, argv, &values, &faults)) return EXIT_DONE;
    if (values.pipe.profile != NULL || values.pipe.balance_by != PIPE_BALANCE_BY_COST)
        weir_faults_add(&faults, "--profile and --balance-by use what this command makes: give "
                                 "--out FILE");
    const struct path_use out = {"out", values.out, PATH_TEXT};
    path_uses_check_own(&out, 1, &values.model, &values.pipe, &faults);
    struct profiling m = {.values = &values, .args = &args, .faults = &faults, .error = &error};
    people_init(&m.people, output_is_standard(values.out));
    const struct ranks_command of = {.command = &command,
                                     .unit = "layer",
                                     .args = &args,
                                     .pipe = &values.pipe,
                                     .times = values.times,
                                     .people = &m.people,
                                     .faults = &faults,
                                     .error = &error};
    int status = run(&m, &of, &model);
    int code = ranks_end(&m.ranks, status);
    weir_model_destroy(model);
    return ranks_leave(&m.ranks, code);
}
