/* SPDX-License-Identifier: MIT */
/*
 * `weir schedule`: prints the action table of a schedule as CSV, or checks a table that somebody
 * else made. No model is needed: a table follows from stages, workers and micro-batches alone. So
 * that a table is printed as the schedule is drawn in the papers, the default here is no
 * checkpoint.
 */
#include "cli/args.h"
#include "cmd/commands.h"
#include "cmd/path_uses.h"
#include "cli/json_text.h"
#include "cli/kind_times.h"
#include "cli/net_run.h"
#include "cli/output.h"
#include "cli/pipe_options.h"
#include "weir_predict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_BYTES_MAX ((size_t)1 << 28)

struct schedule_values {
    const char *schedule;
    uint32_t stages, workers, chunks;
    uint32_t checkpoint; /* index into pipe_checkpoint_names */
    uint32_t recompute;  /* and into pipe_recompute_names */
    const char *csv, *json;
    bool plain;
    struct arg_texts time;
    uint32_t activation_limit;
    const char *check;
    uint32_t links, receive; /* indices into link_names and receive_names */
};

#define AT(member) offsetof(struct schedule_values, member)

static const char *const link_names[] = {"all", "0", "1", "unbounded", NULL};
static const uint32_t link_depths[] = {0, 0, 1, WEIR_LINKS_UNBOUNDED};
static const char *const receive_names[] = {"order", "late", NULL};

static const struct arg_option table_options[] = {
    {"schedule", ARG_TEXT, AT(schedule), PIPE_SCHEDULES ", or auto: searched for", .value = "NAME",
     .fallback = "1f1b"},
    PIPE_COUNT_OPTION("stages", "N", AT(stages), .fallback = "2", .help = "model stages"),
    PIPE_COUNT_OPTION("workers", "P", AT(workers),
                      .help = "workers, each with N / P stages (default: N; N / 2 for interleaved, "
                              "looped-bfs, zb-v, v-half, v-min and dualpipe-v)"),
    PIPE_COUNT_OPTION("chunks", "M", AT(chunks), .fallback = "8", .help = "micro-batches"),
    PIPE_CHOICE_OPTION("checkpoint", pipe_checkpoint_names, AT(checkpoint), .fallback = "never",
                       .help = "which micro-batches have an R"),
    PIPE_CHOICE_OPTION("recompute", pipe_recompute_names, AT(recompute), .fallback = "early",
                       .help = "R in idle time, where memory allows; or directly before their "
                               "backward"),
    {"csv", ARG_TEXT, AT(csv), "where the table goes; - is stdout", .value = "FILE",
     .fallback = "-"},
    {"plain", ARG_FLAG, AT(plain), "leave R and U out, for torch.distributed.pipelining"},
};

static const struct arg_option search_options[] = {
    KIND_TIMES_OPTION(AT(time)),
    PIPE_COUNT_OPTION("activation-limit", "N", AT(activation_limit),
                      .help = "no worker keeps more activations than this, a stage's of a "
                              "micro-batch counted once"),
};

static const struct arg_option check_options[] = {
    {"check", ARG_TEXT, AT(check),
     "check this table instead: complete, without duplicates, without deadlock. Where "
     "--stages, --workers or --chunks are given, it must be for those",
     .value = "FILE.csv"},
    PIPE_CHOICE_OPTION("links", link_names, AT(links), .fallback = "all",
                       .help = "how many messages a link between workers holds; over 0 a send ends "
                               "when its receive has begun"),
    PIPE_CHOICE_OPTION("receive", receive_names, AT(receive), .fallback = "order",
                       .help =
                           "where a worker receives: in the order of sends of a replay, or "
                           "late, directly before the action that reads it; a deadlock of these "
                           "is a fault"),
};

static const struct arg_option fact_options[] = {
    {"json", ARG_TEXT, AT(json),
     "counts, and the order in which gradients add up, for programs; - is stdout", .value = "FILE"},
};

static const struct arg_section sections[] = {
    {"Printing a table", table_options, sizeof(table_options) / sizeof(table_options[0]), 0},
    {"Searching (--schedule auto)", search_options,
     sizeof(search_options) / sizeof(search_options[0]), 0},
    {"Checking a table", check_options, sizeof(check_options) / sizeof(check_options[0]), 0},
    {"Both", fact_options, sizeof(fact_options) / sizeof(fact_options[0]), 0},
};

static const struct arg_command command = {
    "schedule", "prints the action table of a schedule, or checks one",
    "One row per worker, one cell per action: <stage><kind><micro-batch>, like 0F3. Kinds: F "
    "forward, "
    "R recompute, B backward, I input gradient, W weight gradient, U update.",
    sections, sizeof(sections) / sizeof(sections[0])};

static struct weir_table_options options_of(const struct schedule_values *values) {
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    options.schedule = values->schedule;
    options.stages = values->stages;
    options.workers = values->workers;
    options.micro_batches = values->chunks;
    options.checkpoint = (enum weir_checkpoint)(WEIR_CHECKPOINT_ALWAYS + values->checkpoint);
    options.recompute_late = values->recompute == 1;
    return options;
}

static void print_facts(FILE *to, const char *name, const struct weir_table *table) {
    fprintf(to, "%s: %u stage%s on %u worker%s, %u micro-batch%s, %u action%s", name,
            table->stage_count, weir__s(table->stage_count), table->worker_count,
            weir__s(table->worker_count), table->micro_batch_count,
            weir__es(table->micro_batch_count), table->action_count, weir__s(table->action_count));
}

/* Which is part of what decides bits: "gradients add up in ascending order". */
static void print_order(FILE *to, const struct weir_table *table) {
    char order[WEIR_ORDER_BYTES];
    bool shared = weir_table_order(table, order);
    fprintf(to, "gradients add up in %s order of micro-batches%s\n", order,
            shared ? "" : ", another one in other stages");
}

static int write_facts(const struct schedule_values *values, const char *name,
                       const struct weir_table *table, struct weir_error *error) {
    char order[WEIR_ORDER_BYTES];
    if (!values->json) return WEIR_OK;
    bool shared = weir_table_order(table, order);
    json_t *facts =
        json_pack("{s:o, s:i, s:i, s:i, s:i, s:s, s:b}", "schedule", json_text_string(name),
                  "stages", (int)table->stage_count, "workers", (int)table->worker_count,
                  "micro_batches", (int)table->micro_batch_count, "actions",
                  (int)table->action_count, "order", order, "order_is_shared", (int)shared);
    return json_text_save(values->json, facts, error);
}

/* ---- printing ---- */

static int write_table(const struct schedule_values *values, const struct weir_table *table,
                       struct weir_error *error) {
    size_t bytes = weir_table_format(table, values->plain, NULL, 0);
    char *text = malloc(bytes + 1);
    if (!text) {
        error->status = WEIR_ERR_OUT_OF_MEMORY;
        return error->status;
    }
    weir_table_format(table, values->plain, text, bytes + 1);
    int status = output_text(values->csv, text, bytes, error);
    free(text);
    return status;
}

/* What says nothing where nothing is searched for or checked. */
static void refuse_idle(const struct schedule_values *values, const struct args *args,
                        struct weir_faults *faults) {
    static const char *const searching[] = {"time", "activation-limit"};
    static const char *const checking[] = {"links", "receive"};
    for (size_t i = 0; i < 2 && strcmp(values->schedule, "auto") != 0; i++) {
        if (args_given(args, searching[i])) {
            weir_faults_add(faults,
                            "--%s goes with --schedule auto: %s is made by counts alone; leave it "
                            "out",
                            searching[i], values->schedule);
        }
    }
    for (size_t i = 0; i < 2; i++) {
        if (args_given(args, checking[i])) {
            weir_faults_add(faults, "--%s goes with --check: add that, or leave it out",
                            checking[i]);
        }
    }
}

static int make(const struct schedule_values *values, struct weir_faults *faults,
                struct weir_table **table) {
    struct weir_table_options options = options_of(values);
    struct weir_simulate_options costs = WEIR_SIMULATE_OPTIONS_INIT;
    struct weir_search_options search = WEIR_SEARCH_OPTIONS_INIT;
    kind_times_read(&values->time, costs.kind_seconds, faults);
    search.costs = &costs;
    search.activation_limit = values->activation_limit;
    options.search = &search;
    return weir_table_new(&options, faults, table);
}

static int print(const struct schedule_values *values, const struct args *args,
                 struct weir_faults *faults) {
    struct weir_error error = {0};
    struct weir_table *table = NULL;
    struct people people;
    refuse_idle(values, args, faults);
    int status = make(values, faults, &table);
    if (faults->count) {
        weir_table_destroy(table);
        return args_refuse(&command, faults);
    }
    if (!status) {
        status = write_table(values, table, &error);
    }
    if (!status) {
        status = write_facts(values, values->schedule, table, &error);
    }
    if (status) {
        weir_table_destroy(table);
        error.status = status;
        return args_fail(&command, &error);
    }
    people_init(&people, output_is_standard(values->csv) || output_is_standard(values->json));
    print_facts(people.stream, values->schedule, table);
    fprintf(people.stream, "\n");
    print_order(people.stream, table);
    weir_table_destroy(table);
    return EXIT_DONE;
}

/* ---- checking ---- */

/* Every fault of `from`, with the file's name before it. */
static void name_faults(const char *file, struct weir_faults *from, struct weir_faults *to) {
    for (uint32_t i = 0; i < from->kept; i++) {
        weir_faults_add(to, "%s: %s", file, from->lines[i]);
    }
    if (from->count > from->kept) {
        weir_faults_add(to, "%s: and %u more fault%s: mend these first", file,
                        from->count - from->kept, weir__s(from->count - from->kept));
    }
    weir_faults_clean_up(from);
}

static int check_links(const struct weir_table *table, uint32_t links, uint32_t receive,
                       struct weir_faults *faults) {
    struct weir_links_options options = WEIR_LINKS_OPTIONS_INIT;
    options.depth = link_depths[links];
    options.receive = (enum weir_receive)receive;
    return weir_table_check_links(table, &options, faults);
}

/* What each depth that was asked for does to the table, where it is no fault. */
static void print_links(FILE *to, const struct schedule_values *values,
                        const struct weir_table *table) {
    static const char *const texts[] = {"", "links of depth 0", "links of depth 1",
                                        "unbounded links"};
    for (uint32_t k = 1; k <= 3; k++) {
        struct weir_faults late = WEIR_FAULTS_INIT;
        if (values->links != 0 && values->links != k) continue;
        bool ends = check_links(table, k, WEIR_RECEIVE_LATE, &late) == WEIR_OK;
        fprintf(to, "%s: no deadlock%s%s\n", texts[k], ends ? ", also with late receives" : "",
                ends || late.kept == 0 ? "" : "; with late receives:");
        for (uint32_t i = 0; !ends && i < late.kept; i++) fprintf(to, "  %s\n", late.lines[i]);
        weir_faults_clean_up(&late);
    }
}

static int check_all_links(const struct schedule_values *values, const struct weir_table *table,
                           struct weir_faults *faults) {
    int status = WEIR_OK;
    for (uint32_t k = 1; k <= 3; k++) {
        if (values->links != 0 && values->links != k) continue;
        int found = check_links(table, k, values->receive, faults);
        status = status == WEIR_OK ? found : status;
    }
    return status;
}

static int print_checked(const struct schedule_values *values, const struct weir_table *table,
                         struct weir_error *error) {
    FILE *to = output_is_standard(values->json) ? stderr : stdout;
    print_facts(to, values->check, table);
    fprintf(to, ": complete, nothing twice, no deadlock\n");
    print_order(to, table);
    print_links(to, values, table);
    return write_facts(values, values->check, table, error);
}

static int check_table(const struct schedule_values *values, const struct weir__bytes *text,
                       struct weir_faults *faults, struct weir_error *error) {
    struct weir_faults found = WEIR_FAULTS_INIT, notes = WEIR_FAULTS_INIT;
    struct weir_table_options options = options_of(values);
    struct weir_table *table = NULL;
    int status = weir_table_parse(&options, text->data, text->count, &found, &notes, &table);
    if (!status) {
        status = weir_table_check(table, NULL, &found);
    }
    if (!status) {
        status = check_all_links(values, table, &found);
    }
    if (status && !found.count) {
        weir_faults_add(&found, "%s", weir_status_text(status));
    }
    name_faults(values->check, &found, faults);
    for (uint32_t i = 0; i < notes.kept; i++) {
        fprintf(stderr, "weir: %s: note: %s\n", command.name, notes.lines[i]);
    }
    weir_faults_clean_up(&notes);
    if (!status && faults->count == 0) {
        status = print_checked(values, table, error);
    }
    weir_table_destroy(table);
    return status;
}

static int check(struct schedule_values *values, const struct args *args,
                 struct weir_faults *faults) {
    static const char *const others[] = {"schedule", "checkpoint", "recompute",       "csv",
                                         "plain",    "time",       "activation-limit"};
    struct weir_error error = {0};
    struct weir__io io = {.error = &error};
    struct weir__bytes text = {0};
    int status = WEIR_OK;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (args_given(args, others[i])) {
            weir_faults_add(faults, "--%s does not go with --check: leave one of them out",
                            others[i]);
        }
    }
    values->stages = args_given(args, "stages") ? values->stages : 0;
    values->chunks = args_given(args, "chunks") ? values->chunks : 0;
    if (weir__file_read(&io, values->check, TABLE_BYTES_MAX, &text)) {
        weir_faults_add(faults, "%s", error.message);
    } else {
        status = check_table(values, &text, faults, &error);
    }
    weir__bytes_release(NULL, &text);
    return args_end(&command, faults, status, &error);
}

int cmd_schedule(int argc, char **argv) {
    struct schedule_values values = {0};
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct args args;
    if (args_parse(&args, &command, argc, argv, &values, &faults)) {
        return EXIT_DONE;
    }
    if (output_is_standard(values.json) && !args_given(&args, "csv")) {
        values.csv = NULL;
    }
    if (!output_is_standard(values.csv)) {
        net_run_check_output("csv", values.csv, &faults);
    }
    if (!output_is_standard(values.json)) {
        net_run_check_output("json", values.json, &faults);
    }
    const struct path_use paths[] = {{"csv", values.csv, PATH_TEXT},
                                     {"json", values.json, PATH_TEXT},
                                     {"check", values.check, PATH_INPUT}};
    path_uses_check_own(paths, 3, NULL, NULL, &faults);
    if (values.check) {
        return check(&values, &args, &faults);
    }
    return print(&values, &args, &faults);
}
