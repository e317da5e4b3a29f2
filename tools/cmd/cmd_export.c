/* SPDX-License-Identifier: MIT */
/* `weir export`: one file of a checkpoint, or a decoder for other programs. */
#include "cmd/commands.h"
#include "cmd/export_folder.h"
#include "cmd/export_gguf.h"
#include "cmd/path_uses.h"
#include "cli/decoder_config.h"
#include "cli/net_run.h"
#include "net/run/files.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct export_values {
    const char *model, *load, *out;
    uint32_t format, type;
    uint64_t shard_bytes;
    bool weights, overwrite;
};

enum format { FORMAT_SAFETENSORS, FORMAT_HF, FORMAT_GGUF };
static const char *const formats[] = {"safetensors", "hf", "gguf", NULL};
static const char *const types[] = {"f32", "f16", "bf16", "q8_0", NULL}; /* enum weir__stored */

#define AT(member) offsetof(struct export_values, member)
static const struct arg_option own[] = {
    {"model", ARG_TEXT, AT(model),
     "the folder, of Hugging Face's transformers, that the model came from: its configuration and "
     "tokenizer",
     .value = "FOLDER"},
    {"load", ARG_TEXT, AT(load),
     "a checkpoint: a folder that several processes saved, or a file; without it the weights are "
     "those of --model",
     .value = "CHECKPOINT"},
    {"out", ARG_TEXT, AT(out), "the file that it becomes, or the folder", .value = "PATH"},
    {"format", ARG_CHOICE, AT(format),
     "safetensors: what one process would have saved, byte for byte: train --resume takes it; hf: "
     "a folder like --model, with these weights; gguf: one file, with the tokenizer, for llama.cpp "
     "and its relatives",
     .fallback = "safetensors", .choices = formats},
    {"type", ARG_CHOICE, AT(type),
     "hf, gguf: of the weights; by default what --model's config.json says, or f32; q8_0, gguf "
     "alone, takes a byte for each and a scale for 32",
     .choices = types},
    {"shard-size", ARG_BYTES, AT(shard_bytes),
     "hf: the most of a file of weights; by default they are divided as in --model, else above "
     "5 GB",
     .value = "BYTES", .least = 1},
    {"overwrite", ARG_FLAG, AT(overwrite), "hf: --out may replace such a folder"},
    {"weights-only", ARG_FLAG, AT(weights), "safetensors: without optimizer state, step and notes"},
};

/* ---- what was asked for ---- */

static void check_options(const struct args *args, const struct export_values *values,
                          struct weir_faults *faults) {
    static const char *const of_folders[] = {"type", "shard-size", "overwrite"};
    bool folder = values->format == FORMAT_HF, decoder = values->format != FORMAT_SAFETENSORS;
    const char *format = formats[values->format];
    for (size_t i = 0; i < WEIR__COUNT_OF(of_folders); i++) {
        bool takes = i == 0 ? decoder : folder;
        if (!takes && args_given(args, of_folders[i]))
            weir_faults_add(faults, "--%s means nothing to --format %s: give --format hf",
                            of_folders[i], format);
    }
    if (folder && args_given(args, "type") && values->type == WEIR__STORED_Q8_0)
        weir_faults_add(faults,
                        "--type q8_0: safetensors have no such numbers: give --format gguf, "
                        "or f16");
    if (decoder && values->weights)
        weir_faults_add(faults, "--weights-only goes without saying for --format %s: leave it away",
                        format);
    if (decoder && values->model == NULL)
        weir_faults_add(faults, "--model is missing: give the folder that the model came from");
    if (!decoder && values->model == NULL && values->load == NULL)
        weir_faults_add(faults, "--load is missing: give --load CHECKPOINT");
    if (values->model != NULL && !decoder_config_is(values->model))
        weir_faults_add(faults, "--model %.200s is no folder with a config.json: give one",
                        values->model);
    if (values->out == NULL)
        weir_faults_add(faults, "--out is missing: give --out %s", folder ? "FOLDER" : "FILE");
}

static void check_paths(const struct export_values *values, struct weir_faults *faults) {
    net_run_check_input("model", values->model, faults);
    net_run_check_input("load", values->load, faults);
    if (values->format != FORMAT_HF) net_run_check_output("out", values->out, faults);
    const struct path_use uses[] = {{"out", values->out, PATH_BINARY},
                                    {"load", values->load, PATH_INPUT},
                                    {"model", values->model, PATH_INPUT}};
    path_uses_check_own(uses, 3, NULL, NULL, faults);
}

/* ---- a decoder ---- */

/* q8_0 has no blocks for some rows: that they stay wider is said. */
static int write_gguf(const struct weir__io *io, const struct export_values *values,
                      const struct export_gguf *gguf) {
    uint32_t narrow = 0;
    int status = export_gguf_write(io, gguf, &narrow);
    if (status == WEIR_OK && narrow > 0)
        fprintf(stderr,
                "weir: export: note: %s: %" PRIu32 " matri%s of rows that 32 does not divide "
                "stay%s f16\n",
                values->out, narrow, narrow == 1 ? "x" : "ces", narrow == 1 ? "s" : "");
    return status;
}

static int write_folder(const struct weir__io *io, struct export_folder *folder,
                        const struct export_weights *weights) {
    folder->items = weights->items;
    folder->count = weights->count;
    return export_folder_write(io, folder);
}

static int write_decoder(const struct weir__io *io, const struct args *args,
                         const struct export_values *values, struct weir_faults *faults) {
    struct weir_decoder_options options;
    struct export_weights weights;
    uint32_t most;
    bool is_folder = values->format == FORMAT_HF;
    struct export_folder folder = {.model = values->model,
                                   .out = values->out,
                                   .replaces = values->overwrite,
                                   .shard_bytes = values->shard_bytes};
    int status = decoder_config_read(values->model, &options, &most, faults);
    if (is_folder) export_folder_check(io, &folder, faults);
    if (faults->count > 0) return status;
    folder.type = args_given(args, "type") ? (enum weir__stored)values->type
                                           : export_folder_type(values->model);
    const struct export_gguf gguf = {.model = values->model,
                                     .out = values->out,
                                     .type = folder.type,
                                     .options = &options,
                                     .context = most,
                                     .weights = &weights};
    const char *from = values->load != NULL ? values->load : values->model;
    status = export_weights_open(io, from, &options, &weights);
    if (status != WEIR_OK) goto out;
    status = is_folder ? write_folder(io, &folder, &weights) : write_gguf(io, values, &gguf);
out:
    /* why it could not be read says more than that it could not be written */
    if (status != WEIR_OK && weights.damage.status != WEIR_OK) *io->error = weights.damage;
    export_weights_close(&weights);
    return status;
}

int cmd_export(int argc, char **argv) {
    const struct arg_section sections[] = {{"Options", own, sizeof own / sizeof own[0], 0}};
    const struct arg_command command = {
        "export",
        "makes one file of a checkpoint, a folder of Hugging Face's transformers, or GGUF", NULL,
        sections, 1};
    struct export_values values = {0};
    struct args args;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_error error = {0};
    if (args_parse(&args, &command, argc, argv, &values, &faults)) return EXIT_DONE;
    check_options(&args, &values, &faults);
    check_paths(&values, &faults);
    struct weir__io io = {.error = &error};
    int status = WEIR_OK;
    if (faults.count == 0 && values.format != FORMAT_SAFETENSORS)
        status = write_decoder(&io, &args, &values, &faults);
    else if (faults.count == 0 && values.load == NULL)
        status = weir__net_export(&io, values.model, values.out, true);
    else if (faults.count == 0)
        status = weir__net_export(&io, values.load, values.out, values.weights);
    return args_end(&command, &faults, status, &error);
}
