/* SPDX-License-Identifier: MIT */
/* One file of a checkpoint: tensors are copied from where they are mapped, one after the other. */
#include "net/run/files.h"

#include "base/pool.h"
#include "io/archive.h"
#include "net/run/entries.h"

#include <string.h>

/** What is exported. */
struct exporting {
    struct weir__io io; /**< for reading */
    struct weir__archive *archive;
    const struct weir__safetensor *last; /**< whose bytes were asked for; NULL: none */
};

/** Where a tensor's bytes come from. */
struct tensor_source {
    struct exporting *exporting;
    const struct weir__safetensor *tensor;
};

/** No more than one tensor at a time stays in memory. */
static int next_bytes(void *context, size_t offset, const void **data, size_t *bytes) {
    const struct tensor_source *source = context;
    struct exporting *exporting = source->exporting;
    if (exporting->last != NULL && exporting->last != source->tensor)
        weir__archive_drop(exporting->archive, exporting->last);
    exporting->last = source->tensor;
    return weir__archive_next(&exporting->io, exporting->archive, source->tensor, offset, data,
                              bytes);
}

static bool is_wanted(const char *name, bool weights) {
    return !weights || !weir__entry_is_state(name);
}

static uint32_t make_items(struct exporting *exporting, bool weights, struct tensor_source *sources,
                           struct weir__safetensors_item *items) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < weir__archive_count(exporting->archive); i++) {
        const struct weir__safetensor *tensor = weir__archive_get(exporting->archive, i);
        if (!is_wanted(tensor->name, weights)) continue;
        sources[count] = (struct tensor_source){exporting, tensor};
        items[count] = (struct weir__safetensors_item){.name = tensor->name,
                                                       .dtype = tensor->dtype,
                                                       .rank = tensor->rank,
                                                       .next = next_bytes,
                                                       .context = &sources[count]};
        memcpy(items[count++].shape, tensor->shape, sizeof tensor->shape);
    }
    return count;
}

/** Of weights nothing but what their model needs. */
static uint32_t choose_texts(const struct weir__archive *archive, bool weights,
                             struct weir__safetensors_text *texts) {
    uint32_t all, count = 0;
    const struct weir__safetensors_text *list = weir__archive_texts(archive, &all);
    for (uint32_t i = 0; i < all; i++)
        if (!weights || strcmp(list[i].key, weir__heads_key) == 0 ||
            strcmp(list[i].key, weir__residual_key) == 0)
            texts[count++] = list[i];
    return count;
}

static int write(const struct weir__io *io, struct weir__archive *archive, const char *to,
                 bool weights) {
    struct weir_error damage = {.status = WEIR_OK};
    struct exporting exporting = {{io->allocator, io->calls, &damage}, archive, NULL};
    struct weir__pool pool;
    uint32_t all;
    (void)weir__archive_texts(archive, &all);
    weir__pool_init(&pool, io->allocator);
    uint32_t count = weir__archive_count(archive);
    struct weir__safetensors_item *items = weir__pool_take(&pool, count, sizeof *items);
    struct tensor_source *sources = weir__pool_take(&pool, count, sizeof *sources);
    struct weir__safetensors_text *texts = weir__pool_take(&pool, all, sizeof *texts);
    int status = WEIR_ERR_OUT_OF_MEMORY;
    if (pool.failed) {
        weir__fail(io->error, status, "out of memory");
        goto out;
    }
    count = make_items(&exporting, weights, sources, items);
    status =
        weir__safetensors_save(io, to, items, count, texts, choose_texts(archive, weights, texts));
    /* why it could not be read says more than that it could not be written */
    if (status != WEIR_OK && damage.status != WEIR_OK && io->error != NULL) *io->error = damage;
out:
    weir__pool_clean_up(&pool);
    return status;
}

int weir__net_export(const struct weir__io *io, const char *from, const char *to, bool weights) {
    struct weir__archive *archive;
    assert(from != NULL && to != NULL);
    int status = weir__archive_open(io, from, &archive);
    if (status != WEIR_OK) return status;
    status = write(io, archive, to, weights);
    weir__archive_close(archive);
    return status;
}
