/* SPDX-License-Identifier: MIT */
/* Shapes into options. What the options do say is left alone: where it is wrong, loading tells. */
#include "cli/gpt_file.h"

#include "io/archive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE_MAX_TAKEN = 1 << 24, GPT2_VOCAB = 50257, GPT2_HEAD = 64 };

/** A file that is looked at. */
struct look {
    const struct weir__archive *file;
    const char *path;
    const struct args *args;
    struct model_options *options;
    struct weir_faults *faults;
};

/* Sizes of a matrix called `name`, or a fault. */
static bool find_matrix(const struct look *look, const char *name, uint32_t sizes[2]) {
    const struct weir__safetensor *tensor = weir__archive_find(look->file, name);
    bool good = tensor != NULL && tensor->rank == 2;
    for (int i = 0; good && i < 2; i++) {
        good = tensor->shape[i] >= 1 && tensor->shape[i] <= SIZE_MAX_TAKEN;
        sizes[i] = good ? (uint32_t)tensor->shape[i] : 0;
    }
    char text[96];
    if (!good && tensor == NULL)
        weir_faults_add(look->faults,
                        "%s holds no '%s': not the weights of a GPT: say by --model whose they are",
                        look->path, name);
    else if (!good)
        weir_faults_add(look->faults,
                        "%s: '%s' is %s, which no GPT has: say by --model whose weights they are",
                        look->path, name, weir__safetensor_text(tensor, text, sizeof text));
    return good;
}

static uint32_t count_blocks(const struct look *look) {
    char name[32];
    uint32_t count = 0;
    do snprintf(name, sizeof name, "h.%u.ln_1.weight", count);
    while (weir__archive_find(look->file, name) != NULL && ++count < SIZE_MAX_TAKEN);
    return count;
}

static void take(const struct look *look, const char *option, uint32_t from, uint32_t *to) {
    if (!args_given(look->args, option)) *to = from;
}

/* As the metadata say it; 0: not at all, or not as a number. */
static uint32_t read_number(const struct weir__archive *file, const char *key) {
    const char *text = weir__archive_metadata(file, key);
    char *end = NULL;
    if (text == NULL || text[0] < '1' || text[0] > '9') return 0;
    unsigned long number = strtoul(text, &end, 10);
    return *end == '\0' && number <= SIZE_MAX_TAKEN ? (uint32_t)number : 0;
}

/* Heads change no shape. */
static void take_heads(const struct look *look) {
    struct model_options *options = look->options;
    const char *text = weir__archive_metadata(look->file, GPT_FILE_HEADS);
    uint32_t heads = read_number(look->file, GPT_FILE_HEADS);
    bool given = args_given(look->args, "heads");
    if (given && heads > 0 && heads != options->heads)
        weir_faults_add(look->faults, "--heads %u, but %s was trained with %u: leave --heads away",
                        options->heads, look->path, heads);
    if (given) return;
    if (heads > 0)
        options->heads = heads;
    else if (text != NULL)
        weir_faults_add(look->faults,
                        "%s: metadata '" GPT_FILE_HEADS "' is '%.60s', not a number: "
                        "give --heads N",
                        look->path, text);
    else if (options->vocab == GPT2_VOCAB && options->width % GPT2_HEAD == 0)
        options->heads = options->width / GPT2_HEAD;
    else
        weir_faults_add(look->faults,
                        "--heads is missing: %s does not say how many heads its attention has: "
                        "give --heads N",
                        look->path);
}

/* The blocks' length changes no shape either, but the file that says none has none. */
static void take_residual_block(const struct look *look) {
    bool mixes = weir__archive_find(look->file, "h.0.attn_res_proj.weight") != NULL;
    uint32_t block = read_number(look->file, GPT_FILE_RESIDUAL),
             *to = &look->options->residual_block;
    bool given = args_given(look->args, "residual-block");
    if (given && block > 0 && block != *to)
        weir_faults_add(look->faults,
                        "--residual-block %u, but %s was trained with %u: leave it away", *to,
                        look->path, block);
    if (!given && mixes && block == 0)
        weir_faults_add(look->faults,
                        "--residual-block is missing: %s does not say of how many layers its "
                        "blocks of residuals are: give --residual-block N",
                        look->path);
    if (!given) *to = block;
}

static void take_all(const struct look *look) {
    uint32_t before = look->faults->count, tokens[2], places[2];
    bool found = find_matrix(look, "wte.weight", tokens);
    if (found) found = find_matrix(look, "wpe.weight", places);
    if (!found) return;
    uint32_t blocks = count_blocks(look);
    if (blocks == 0)
        weir_faults_add(look->faults, "%s holds no 'h.0.ln_1.weight': not the weights of a GPT",
                        look->path);
    if (look->faults->count > before) return;
    take(look, "layers", blocks, &look->options->layers);
    take(look, "vocab", tokens[0], &look->options->vocab);
    take(look, "width", tokens[1], &look->options->width);
    take(look, "context", places[0], &look->options->context);
    if (!args_given(look->args, "tied") && !args_given(look->args, "untied"))
        look->options->tied = weir__archive_find(look->file, "lm_head.weight") == NULL;
    take_heads(look);
    take_residual_block(look);
}

int gpt_file_fill(const char *path, const struct args *args, struct model_options *options,
                  struct weir_faults *faults) {
    if (strcmp(options->model, "gpt") != 0) return WEIR_OK;
    struct weir_error error = {0};
    struct weir__io io = {.error = &error};
    struct weir__archive *file;
    uint32_t before = faults->count;
    int status = weir__archive_open(&io, path, &file);
    if (status == WEIR_ERR_OUT_OF_MEMORY) return status;
    if (status != WEIR_OK) {
        weir_faults_add(faults, "%s", error.message);
        return status;
    }
    take_all(&(struct look){file, path, args, options, faults});
    weir__archive_close(file);
    return faults->count > before ? WEIR_ERR_CONFIG : WEIR_OK;
}

int gpt_file_check_heads(const char *path, const struct model_options *options,
                         struct weir_faults *faults) {
    if (strcmp(options->model, "gpt") != 0) return WEIR_OK;
    struct weir_error error = {0};
    struct weir__io io = {.error = &error};
    struct weir__archive *file;
    int status = weir__archive_open(&io, path, &file);
    if (status != WEIR_OK) return status == WEIR_ERR_OUT_OF_MEMORY ? status : WEIR_OK;
    uint32_t heads = read_number(file, GPT_FILE_HEADS);
    uint32_t block = read_number(file, GPT_FILE_RESIDUAL), before = faults->count;
    weir__archive_close(file);
    if (heads != 0 && heads != options->heads)
        weir_faults_add(faults, "--heads %u, but %s was trained with %u: give --heads %u",
                        options->heads, path, heads, heads);
    if (block != 0 && block != options->residual_block)
        weir_faults_add(faults, "%s was trained with --residual-block %u: give it", path, block);
    return faults->count > before ? WEIR_ERR_CONFIG : WEIR_OK;
}
