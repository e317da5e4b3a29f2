/* SPDX-License-Identifier: MIT */
/* One file of a checkpoint: tensors are copied from where they are mapped, one after the other. */
#include "net/run/files.h"

#include "base/pool.h"
#include "io/checkpoint.h"
#include "net/run/entries.h"

#include <string.h>

/** What a tensor's bytes come from. */
struct source {
    const struct weir__io *io;
    struct weir__checkpoint *checkpoint;
    const struct weir__safetensor *tensor;
};

static int next_bytes(void *context, size_t offset, const void **data, size_t *bytes) {
    const struct source *source = context;
    return weir__checkpoint_next(source->io, source->checkpoint, source->tensor, offset, data,
                                 bytes);
}

static bool is_wanted(const char *name, bool weights) {
    return !weights || !weir__entry_is_state(name);
}

static uint32_t make_items(const struct weir__io *io, struct weir__checkpoint *checkpoint,
                           bool weights, struct source *sources,
                           struct weir__safetensors_item *items) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < weir__checkpoint_count(checkpoint); i++) {
        const struct weir__safetensor *tensor = weir__checkpoint_get(checkpoint, i);
        if (!is_wanted(tensor->name, weights)) continue;
        sources[count] = (struct source){io, checkpoint, tensor};
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
static uint32_t choose_texts(const struct weir__checkpoint *checkpoint, bool weights,
                             struct weir__safetensors_text *texts) {
    uint32_t all, count = 0;
    const struct weir__safetensors_text *list = weir__checkpoint_texts(checkpoint, &all);
    for (uint32_t i = 0; i < all; i++)
        if (!weights || strcmp(list[i].key, weir__heads_key) == 0) texts[count++] = list[i];
    return count;
}

static int write(const struct weir__io *io, struct weir__checkpoint *checkpoint, const char *to,
                 bool weights) {
    struct weir_error damage = {.status = WEIR_OK};
    const struct weir__io reads = {io->allocator, io->calls, &damage};
    struct weir__pool pool;
    uint32_t all;
    (void)weir__checkpoint_texts(checkpoint, &all);
    weir__pool_init(&pool, io->allocator);
    uint32_t count = weir__checkpoint_count(checkpoint);
    struct weir__safetensors_item *items = weir__pool_take(&pool, count, sizeof *items);
    struct source *sources = weir__pool_take(&pool, count, sizeof *sources);
    struct weir__safetensors_text *texts = weir__pool_take(&pool, all, sizeof *texts);
    int status = WEIR_ERR_OUT_OF_MEMORY;
    if (pool.failed) {
        weir__fail(io->error, status, "out of memory");
        goto out;
    }
    count = make_items(&reads, checkpoint, weights, sources, items);
    status = weir__safetensors_save(io, to, items, count, texts,
                                    choose_texts(checkpoint, weights, texts));
    /* why it could not be read says more than that it could not be written */
    if (status != WEIR_OK && damage.status != WEIR_OK && io->error != NULL) *io->error = damage;
out:
    weir__pool_clean_up(&pool);
    return status;
}

int weir__net_export(const struct weir__io *io, const char *from, const char *to, bool weights) {
    struct weir__checkpoint *checkpoint;
    assert(from != NULL && to != NULL);
    int status = weir__checkpoint_open(io, from, &checkpoint);
    if (status != WEIR_OK) return status;
    status = write(io, checkpoint, to, weights);
    weir__checkpoint_close(checkpoint);
    return status;
}
