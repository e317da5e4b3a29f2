/* SPDX-License-Identifier: MIT */
/* `weir init`: freshly initialised weights, as a safetensors file. */
#include "cmd/commands.h"
#include "cmd/path_uses.h"
#include "cli/model_options.h"
#include "cli/net_run.h"

struct init_values {
    struct model_options model;
    const char *out;
    uint64_t seed;
};

static const struct arg_option own[] = {
    {"out", ARG_TEXT, offsetof(struct init_values, out), "where the weights go (safetensors)",
     .value = "FILE"},
    {"seed", ARG_U64, offsetof(struct init_values, seed), "the same seed gives the same weights",
     .value = "S", .fallback = "1"},
};

int cmd_init(int argc, char **argv) {
    const struct arg_section sections[] = {
        {"Options", own, 2, 0},
        {"Model", model_option_list, model_option_count, offsetof(struct init_values, model)}};
    const struct arg_command command = {"init", "writes freshly initialised weights", NULL,
                                        sections, 2};
    struct init_values values = {0};
    struct args args;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_model *model = NULL;
    struct weir_net *net = NULL;
    struct weir_error error = {0};
    if (args_parse(&args, &command, argc, argv, &values, &faults)) return EXIT_DONE;
    if (values.out == NULL) weir_faults_add(&faults, "--out is missing: give --out FILE");
    net_run_check_output("out", values.out, &faults);
    const struct path_use out = {"out", values.out, PATH_BINARY};
    path_uses_check_own(&out, 1, &values.model, NULL, &faults);
    int status = model_options_build(&values.model, &args, NULL, &faults, &model);
    struct weir_net_options options = WEIR_NET_OPTIONS_INIT;
    options.pipe.rows = 1;
    options.pipe.infer_only = true;
    options.pipe.threads_per_worker = 1;
    options.optimizer.kind = WEIR_OPTIMIZER_NONE;
    if (faults.count == 0 && status == WEIR_OK)
        status = weir_net_new(model, &options, &faults, &net);
    if (faults.count == 0 && status == WEIR_OK) status = weir_net_init(net, values.seed);
    if (faults.count == 0 && status == WEIR_OK)
        status = weir_net_save(net, values.out, NULL, &error);
    int code = args_end(&command, &faults, status, &error);
    weir_net_destroy(net);
    weir_model_destroy(model);
    return code;
}
