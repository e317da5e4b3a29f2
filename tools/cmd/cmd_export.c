/* SPDX-License-Identifier: MIT */
/* `weir export`: one file of a checkpoint. */
#include "cmd/commands.h"
#include "cmd/path_uses.h"
#include "cli/net_run.h"
#include "net/run/files.h"

struct export_values {
    const char *load, *out;
    uint32_t format;
    bool weights;
};

static const char *const formats[] = {"safetensors", NULL};

#define AT(member) offsetof(struct export_values, member)
static const struct arg_option own[] = {
    {"load", ARG_TEXT, AT(load), "a checkpoint: a folder that several processes saved, or a file",
     .value = "CHECKPOINT"},
    {"out", ARG_TEXT, AT(out), "the file that it becomes", .value = "FILE"},
    {"format", ARG_CHOICE, AT(format),
     "what one process would have saved, byte for byte: train --resume takes it",
     .fallback = "safetensors", .choices = formats},
    {"weights-only", ARG_FLAG, AT(weights), "without optimizer state, step and notes"},
};

static void check_paths(const struct export_values *values, struct weir_faults *faults) {
    if (values->load == NULL) weir_faults_add(faults, "--load is missing: give --load CHECKPOINT");
    if (values->out == NULL) weir_faults_add(faults, "--out is missing: give --out FILE");
    net_run_check_input("load", values->load, faults);
    net_run_check_output("out", values->out, faults);
    const struct path_use uses[] = {{"out", values->out, PATH_BINARY},
                                    {"load", values->load, PATH_INPUT}};
    path_uses_check_own(uses, 2, NULL, NULL, faults);
}

int cmd_export(int argc, char **argv) {
    const struct arg_section sections[] = {{"Options", own, sizeof own / sizeof own[0], 0}};
    const struct arg_command command = {"export", "makes one file of a checkpoint", NULL, sections,
                                        1};
    struct export_values values = {0};
    struct args args;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_error error = {0};
    if (args_parse(&args, &command, argc, argv, &values, &faults)) return EXIT_DONE;
    check_paths(&values, &faults);
    struct weir__io io = {.error = &error};
    int status = WEIR_OK;
    if (faults.count == 0) status = weir__net_export(&io, values.load, values.out, values.weights);
    return args_end(&command, &faults, status, &error);
}
