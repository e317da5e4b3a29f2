/* SPDX-License-Identifier: MIT */
/* `weir merge`: W + scale * B A in place of W, row by row while the folder is written. */
#include "cmd/commands.h"
#include "cmd/export_folder.h"
#include "cmd/path_uses.h"
#include "cli/adapter_config.h"
#include "cli/decoder_config.h"
#include "cli/net_run.h"
#include "net/model/layer.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct merge_values {
    const char *model, *adapter, *out;
    uint32_t type;
    bool overwrite;
};

static const char *const types[] = {"f32", "f16", "bf16", NULL}; /* enum weir__stored */

#define AT(member) offsetof(struct merge_values, member)
static const struct arg_option own[] = {
    {"model", ARG_TEXT, AT(model), "a folder of Hugging Face's transformers, with its weights",
     .value = "FOLDER"},
    {"adapter", ARG_TEXT, AT(adapter),
     "adapters (LoRA): a folder with an adapter_config.json, of PEFT or of train --save-adapter",
     .value = "FOLDER"},
    {"out", ARG_TEXT, AT(out), "the folder that both become", .value = "FOLDER"},
    {"type", ARG_CHOICE, AT(type),
     "of the weights; by default what --model's config.json says, or f32", .choices = types},
    {"overwrite", ARG_FLAG, AT(overwrite), "--out may replace such a folder"},
};

/* ---- a product ---- */

/** A weight [out, in], and its adapter's [rank, in] and [out, rank]. */
struct merged {
    struct weir__safetensors_item from;
    const float *down, *up;
    size_t rank, width;
    double scale;
    float *row; /**< room for one, all products' */
    char *raw;
};

static int fetch_row(const struct merged *merged, size_t row) {
    size_t each = weir_dtype_bytes(merged->from.dtype), all = merged->width * each;
    for (size_t at = 0; at < all;) {
        const void *data;
        size_t bytes;
        int status = merged->from.next(merged->from.context, row * all + at, &data, &bytes);
        if (status != WEIR_OK) return status;
        if (bytes > all - at) bytes = all - at;
        memcpy(merged->raw + at, data, bytes);
        at += bytes;
    }
    weir__numbers_read(merged->from.dtype, merged->raw, merged->width, merged->row);
    return WEIR_OK;
}

static int next_merged(void *context, size_t offset, const void **data, size_t *bytes) {
    const struct merged *merged = context;
    size_t row_bytes = merged->width * sizeof(float), row = offset / row_bytes;
    int status = fetch_row(merged, row);
    if (status != WEIR_OK) return status;
    const float *up = merged->up + row * merged->rank;
    for (size_t i = 0; i < merged->width; i++) {
        double sum = 0;
        for (size_t r = 0; r < merged->rank; r++)
            sum += (double)up[r] * (double)merged->down[r * merged->width + i];
        merged->row[i] = (float)((double)merged->row[i] + merged->scale * sum);
    }
    *data = (const char *)merged->row + offset % row_bytes;
    *bytes = row_bytes - offset % row_bytes;
    return WEIR_OK;
}

/* ---- all of them ---- */

struct merging {
    const struct weir__io *io;
    const struct merge_values *values;
    struct weir__pool pool;
    struct weir_decoder_options options;
    struct adapter_config config;
    struct export_weights weights;
    struct weir__safetensors *file; /**< the adapter's */
    struct weir_faults *faults;
    uint32_t used; /**< tensors of that */
};

/** An adapter's tensor as F32; NULL, with a fault, if it is not of this shape. */
static const float *part(struct merging *m, const char *product, int length, char letter,
                         int64_t rows, int64_t columns) {
    char name[320];
    snprintf(name, sizeof name, "base_model.model.%.*s.lora_%c.weight", length, product, letter);
    const struct weir__safetensor *tensor = weir__safetensors_find(m->file, name);
    bool good = tensor != NULL && tensor->rank == 2 && tensor->shape[0] == rows &&
                tensor->shape[1] == columns && weir__numbers_known(tensor->dtype);
    if (!good) {
        weir_faults_add(m->faults, "%s: tensor '%s' [%lld, %lld] is missing, or something else",
                        m->values->adapter, name, (long long)rows, (long long)columns);
        return NULL;
    }
    size_t count = (size_t)(rows * columns);
    float *numbers = weir__pool_take(&m->pool, count, sizeof *numbers);
    if (numbers != NULL) weir__numbers_read(tensor->dtype, tensor->data, count, numbers);
    m->used++;
    return numbers;
}

/** Whether target `index` takes the weight. */
static bool takes(const struct merging *m, uint32_t index, const char *weight) {
    static const char embedding[] = "model.embed_tokens.weight", head[] = "lm_head.weight";
    char name[256];
    size_t length = weir__product_name(weight, false);
    if (strcmp(weight, embedding) == 0) return false;
    snprintf(name, sizeof name, "%.*s", (int)length, weight);
    return weir__lora_takes(m->config.lora.targets[index], name, strcmp(weight, head) == 0);
}

static int merge_item(struct merging *m, struct weir__safetensors_item *item, float *row,
                      char *raw) {
    const struct weir_lora *lora = &m->config.lora;
    double rank = (double)lora->rank;
    int length = (int)weir__product_name(item->name, false);
    struct merged *merged = weir__pool_take(&m->pool, 1, sizeof *merged);
    if (merged == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    *merged = (struct merged){.from = *item,
                              .rank = lora->rank,
                              .width = (size_t)item->shape[1],
                              .scale = lora->alpha / (lora->rslora ? sqrt(rank) : rank),
                              .row = row,
                              .raw = raw};
    merged->down = part(m, item->name, length, 'A', lora->rank, item->shape[1]);
    merged->up = part(m, item->name, length, 'B', item->shape[0], lora->rank);
    if (m->pool.failed) return WEIR_ERR_OUT_OF_MEMORY;
    item->dtype = WEIR_F32;
    item->next = next_merged;
    item->context = merged;
    return WEIR_OK;
}

/** Every target takes a product, every product has its tensors, every tensor a product. */
static int merge_items(struct merging *m) {
    size_t widest = 1;
    struct weir__safetensors_item *items = m->weights.items;
    for (uint32_t i = 0; i < m->weights.count; i++)
        if (items[i].rank == 2 && (size_t)items[i].shape[1] > widest)
            widest = (size_t)items[i].shape[1];
    float *row = weir__pool_take(&m->pool, widest, sizeof *row);
    char *raw = weir__pool_take(&m->pool, widest, sizeof(double));
    bool *found = weir__pool_take(&m->pool, m->config.lora.target_count, sizeof *found);
    if (m->pool.failed) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < m->weights.count; i++) {
        bool taken = false;
        for (uint32_t k = 0; items[i].rank == 2 && k < m->config.lora.target_count; k++) {
            bool own_one = takes(m, k, items[i].name);
            taken |= own_one;
            found[k] |= own_one;
        }
        int status = taken ? merge_item(m, &items[i], row, raw) : WEIR_OK;
        if (status != WEIR_OK) return status;
    }
    for (uint32_t k = 0; k < m->config.lora.target_count; k++)
        if (!found[k])
            weir_faults_add(m->faults, "%s: no product of %s is named like '%.80s'",
                            m->values->adapter, m->values->model, m->config.lora.targets[k]);
    if (m->faults->count == 0 && m->used != weir__safetensors_count(m->file))
        weir_faults_add(m->faults,
                        "%s: it has %u tensors, but its targets take %u: they would be "
                        "left out",
                        m->values->adapter, weir__safetensors_count(m->file), m->used);
    return m->faults->count > 0 ? WEIR_ERR_CONFIG : WEIR_OK;
}

static int merge(struct merging *m, const struct args *args) {
    const struct merge_values *values = m->values;
    struct export_folder folder = {
        .model = values->model, .out = values->out, .replaces = values->overwrite};
    char path[PATH_MAX];
    uint32_t most;
    int status = decoder_config_read(values->model, &m->options, &most, m->faults);
    int read = adapter_config_read(values->adapter, &m->config, m->faults);
    export_folder_check(m->io, &folder, m->faults);
    if (m->faults->count > 0) return status != WEIR_OK ? status : read;
    folder.type = args_given(args, "type") ? (enum weir__stored)values->type
                                           : export_folder_type(values->model);
    status = weir__path_join(m->io, values->adapter, ADAPTER_WEIGHTS, path);
    if (status != WEIR_OK) return status;
    status = weir__safetensors_open(m->io, path, NULL, &m->file);
    if (status != WEIR_OK) return status;
    status = export_weights_open(m->io, values->model, &m->options, &m->weights);
    if (status != WEIR_OK) goto out;
    if ((status = merge_items(m)) != WEIR_OK) goto out;
    folder.items = m->weights.items;
    folder.count = m->weights.count;
    status = export_folder_write(m->io, &folder);
out:
    /* why it could not be read says more than that it could not be written */
    if (status != WEIR_OK && m->weights.damage.status != WEIR_OK) *m->io->error = m->weights.damage;
    export_weights_close(&m->weights);
    return status;
}

static void check_values(const struct merge_values *values, struct weir_faults *faults) {
    if (values->model == NULL) weir_faults_add(faults, "--model is missing: give --model FOLDER");
    if (values->adapter == NULL)
        weir_faults_add(faults, "--adapter is missing: give --adapter FOLDER");
    if (values->out == NULL) weir_faults_add(faults, "--out is missing: give --out FOLDER");
    if (values->model != NULL && !decoder_config_is(values->model))
        weir_faults_add(faults, "--model %.200s is no folder with a config.json: give one",
                        values->model);
    const struct path_use uses[] = {{"out", values->out, PATH_BINARY},
                                    {"model", values->model, PATH_INPUT},
                                    {"adapter", values->adapter, PATH_INPUT}};
    path_uses_check_own(uses, 3, NULL, NULL, faults);
}

int cmd_merge(int argc, char **argv) {
    const struct arg_section sections[] = {{"Options", own, sizeof own / sizeof own[0], 0}};
    const struct arg_command command = {"merge", "puts adapters into the weights of a model", NULL,
                                        sections, 1};
    struct merge_values values = {0};
    struct args args;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_error error = {0};
    if (args_parse(&args, &command, argc, argv, &values, &faults)) return EXIT_DONE;
    check_values(&values, &faults);
    const struct weir__io io = {.error = &error};
    struct merging merging = {.io = &io, .values = &values, .faults = &faults};
    weir__pool_init(&merging.pool, NULL);
    int status = faults.count == 0 ? merge(&merging, &args) : WEIR_OK;
    adapter_config_clean_up(&merging.config);
    weir__safetensors_close(merging.file);
    weir__pool_clean_up(&merging.pool);
    return args_end(&command, &faults, status, &error);
}
