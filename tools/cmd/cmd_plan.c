/* SPDX-License-Identifier: MIT */
/* `weir plan`: what a run would need, to the byte, before any of it is allocated. */
#include "cmd/commands.h"
#include "cmd/path_uses.h"
#include "cli/json_text.h"
#include "cli/links_file.h"
#include "cli/model_options.h"
#include "net/compile/compile.h"
#include "pipe/describe/groups.h"
#include "cli/net_run.h"
#include "cli/pipe_costs.h"
#include "cli/plan_text.h"
#include "cli/progress.h"
#include "cli/search.h"
#include "cli/step_options.h"
#include "weir_models.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct plan_values {
    struct model_options model;
    struct pipe_options pipe;
    struct step_options step;
    const char *json, *links;
    uint32_t ranks;
    bool search;
};

static const struct arg_option own[] = {
    {"search", ARG_FLAG, offsetof(struct plan_values, search),
     "for the fastest pipeline within --memory-limit: schedule, stages, layers of each, "
     "chunks, checkpoint, recompute; what is given stays as it is"},
    {"links", ARG_TEXT, offsetof(struct plan_values, links),
     "the workers are on ranks, with links as 'weir doctor --json' writes them under mpiexec",
     .value = "FILE"},
    {"ranks", ARG_U32, offsetof(struct plan_values, ranks),
     "with --search: the workers are on R processes of this host. Where --replicas is not given, "
     "how many share a mini-batch is searched, also with --links",
     .value = "R", .least = 1, .most = LINKS_RANKS_MOST},
    {"json", ARG_TEXT, offsetof(struct plan_values, json),
     "the same facts for programs; - is stdout", .value = "FILE"},
};

/* What is found out of the pipeline. */
struct found {
    const struct links_file *links; /* NULL: none are given */
    struct weir_plan *plan;
    double step;         /* predicted seconds, below 0 for none */
    uint64_t save_bytes; /* of the copy that a run with --save writes from */
};

static int report(const struct plan_values *values, const struct search *search,
                  const struct weir_net_options *net, const struct found *found,
                  struct weir_error *error) {
    struct people people;
    char text[32];
    const struct weir_plan *plan = found->plan;
    double step = found->step;
    const struct weir_planner_choice *winner = search->result.winner;
    people_init(&people, output_is_standard(values->json));
    if (winner != NULL) search_print(people.stream, search, &values->pipe);
    plan_text_print(&people, plan);
    fprintf(people.stream, "train --save takes %" PRIu64 " (%s) more on the host\n",
            found->save_bytes, plan_text_bytes(found->save_bytes, text));
    if (step >= 0) fprintf(people.stream, "predicted step %s\n", time_text(step, text));
    plan_text_print_receives(&people, plan);
    plan_text_print_copies(&people, plan);
    plan_text_print_pinned(&people, plan);
    plan_text_print_curves(&people, plan);
    if (values->json == NULL) return WEIR_OK;
    json_t *pipeline = plan_json_pipeline(&values->pipe, net, plan->device_count);
    uint32_t workers = plan->device_count * weir__replicas(&net->pipe);
    uint32_t hosts = found->links != NULL ? found->links->host_count : 1;
    json_object_set_new(pipeline, "threads_per_stage",
                        json_integer(search_threads(&values->pipe, workers, hosts)));
    json_t *root = json_pack("{s:o, s:o, s:o, s:I}", "devices", plan_json_devices(plan), "step",
                             step >= 0 ? json_real(step) : json_null(), "pipeline", pipeline,
                             "save_bytes", (json_int_t)found->save_bytes);
    if (winner != NULL && search_json(search, root) != WEIR_OK) {
        json_decref(root);
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    return json_text_save(values->json, root, error);
}

/* The sizes of the stages, which the report shows too. */
static int choose_balance(const struct weir_model *model, struct weir_net_options *net,
                          uint32_t **balance, struct weir_faults *faults) {
    *balance = calloc(net->stages, sizeof **balance);
    if (*balance == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status =
        weir__partition_model(model, net->dtype, net->stages, net->balance, *balance, faults);
    net->balance = *balance;
    return status;
}

/* Of measured times, where there are any. */
static int predict(const struct plan_values *values, const struct search *search,
                   const struct weir_model *model, const struct weir_rank_links *ranks,
                   struct pipe_storage *storage, const struct weir_net_options *net, FILE *notes,
                   struct weir_faults *faults, double *step) {
    if (search->result.winner != NULL) {
        *step = search->result.winner->step;
        return WEIR_OK;
    }
    if (values->pipe.profile == NULL && storage->profile == NULL) return WEIR_OK;
    int status = pipe_profile(&values->pipe, model, storage, net, notes, faults);
    return status == WEIR_OK ? pipe_predict(storage->profile, net, ranks, faults, step) : status;
}

static int plan_model(struct plan_values *values, const struct args *args,
                      const struct weir_model *model, const struct links_file *links,
                      struct weir_faults *faults, struct weir_error *error) {
    struct weir_net_options net = WEIR_NET_OPTIONS_INIT;
    struct pipe_storage storage;
    struct found found = {.links = links, .step = -1};
    const struct weir_rank_links *ranks = links != NULL ? &links->ranks : NULL;
    const struct search_how how = {.hosts = links != NULL ? links->host_count : 1,
                                   .ranks = ranks,
                                   .rank_count = values->ranks};
    struct search search = {0};
    uint32_t *balance = NULL;
    int status = WEIR_OK;
    memset(&storage, 0, sizeof storage);
    step_options_fill(&values->step, &net);
    net.weights = model_options_weights(&values->model);
    struct people people;
    people_init(&people, output_is_standard(values->json));
    if (values->search)
        status = search_run(&search, &how, args, model, &net, &values->pipe, people.stream, faults);
    if (faults->count > 0) goto out;
    if (status != WEIR_OK) goto out;
    status = pipe_options_fill(&values->pipe, args, model, &storage, &net, faults);
    if (status != WEIR_OK) goto out;
    status = pipe_balance(&values->pipe, model, true, &storage, &net, people.stream, faults);
    if (status != WEIR_OK || faults->count > 0) goto out;
    status = choose_balance(model, &net, &balance, faults);
    if (status != WEIR_OK || faults->count > 0) goto out;
    status = weir_net_plan(model, &net, faults, &found.plan);
    if (status != WEIR_OK || faults->count > 0) goto out;
    status =
        predict(values, &search, model, ranks, &storage, &net, people.stream, faults, &found.step);
    if (status != WEIR_OK || faults->count > 0) goto out;
    found.save_bytes = weir_net_copy_bytes(model, &net);
    status = report(values, &search, &net, &found, error);
out:
    free(balance);
    weir_plan_destroy(found.plan);
    search_clean_up(&search);
    pipe_storage_clean_up(&storage);
    return status;
}

/* As in a run, each rank has a worker where nothing else is told. */
static void check_ranks(struct plan_values *values, const struct args *args,
                        const struct links_file *links, struct weir_faults *faults) {
    bool told =
        args_given(args, "workers") || args_given(args, "stages") || args_given(args, "balance");
    uint32_t ranks = values->links != NULL ? links->ranks.rank_count : values->ranks;
    if (!told && ranks > 0) values->pipe.workers = ranks;
    if (values->ranks > 0 && !values->search)
        weir_faults_add(faults, "--ranks goes with --search: add it");
    if (values->ranks > 0 && values->links != NULL)
        weir_faults_add(faults, "--ranks and --links, which names %u: give one of them",
                        links->ranks.rank_count);
    if (values->links != NULL && !values->search && values->pipe.profile == NULL)
        weir_faults_add(faults, "--links: nothing is predicted without times: add --search, or "
                                "--profile FILE");
}

static int run(struct plan_values *values, const struct args *args, struct weir_faults *faults,
               struct weir_model **model, struct weir_error *error) {
    struct links_file links = {0};
    int status = step_options_build(&values->step, &values->model, args, faults, model);
    if (status == WEIR_OK && values->links != NULL)
        status = links_file_read(&links, values->links, faults);
    if (status == WEIR_OK) check_ranks(values, args, &links, faults);
    if (status == WEIR_OK && faults->count == 0)
        status =
            plan_model(values, args, *model, values->links != NULL ? &links : NULL, faults, error);
    links_file_clean_up(&links);
    return status;
}

int cmd_plan(int argc, char **argv) {
    const struct arg_section sections[] = {
        {"Options", own, sizeof own / sizeof own[0], 0},
        {"Step", step_option_list, step_option_count, offsetof(struct plan_values, step)},
        {"Model", model_option_list, model_option_count, offsetof(struct plan_values, model)},
        {"Pipeline", pipe_option_list, pipe_option_count, offsetof(struct plan_values, pipe)},
        {"Replicas", pipe_share_list, pipe_share_count, offsetof(struct plan_values, pipe)}};
    const struct arg_command command = {"plan", "every stage's memory to the byte", NULL, sections,
                                        5};
    struct plan_values values = {0};
    struct args args;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_model *model = NULL;
    struct weir_error error = {0};
    if (args_parse(&args, &command, argc, argv, &values, &faults)) return EXIT_DONE;
    if (!output_is_standard(values.json)) net_run_check_output("json", values.json, &faults);
    const struct path_use paths[] = {{"json", values.json, PATH_TEXT},
                                     {"links", values.links, PATH_INPUT}};
    path_uses_check_own(paths, 2, &values.model, &values.pipe, &faults);
    int status = run(&values, &args, &faults, &model, &error);
    int code = args_end(&command, &faults, status, &error);
    weir_model_destroy(model);
    return code;
}
