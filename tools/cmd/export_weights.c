/* SPDX-License-Identifier: MIT */
/* Tensors stay mapped in their file; a piece of one is in memory at a time. */
#include "cmd/export_weights.h"

#include "net/run/entries.h"

#include <string.h>

enum { PIECE = 1 << 14 }; /* numbers, whole blocks */

/* ---- the source ---- */

struct weights_source {
    struct export_weights *weights;
    const struct weir__safetensor *tensor;
};

static int next_bytes(void *context, size_t offset, const void **data, size_t *bytes) {
    const struct weights_source *source = context;
    struct export_weights *weights = source->weights;
    if (weights->last != NULL && weights->last != source->tensor)
        weir__archive_drop(weights->archive, weights->last);
    weights->last = source->tensor;
    return weir__archive_next(&weights->io, weights->archive, source->tensor, offset, data, bytes);
}

static bool has_shape(const struct weir__safetensor *tensor, const struct decoder_tensor *wanted) {
    if (tensor->rank != wanted->rank) return false;
    for (uint32_t i = 0; i < wanted->rank; i++)
        if (tensor->shape[i] != wanted->shape[i]) return false;
    return true;
}

static int refuse(const struct weir__io *io, const char *path, const char *name, const char *why) {
    char shortened[96];
    return weir__fail(io->error, WEIR_ERR_CONFIG, "%s: tensor '%.96s' %s",
                      weir__path_text(path, shortened), name, why);
}

static int take(const struct weir__io *io, const char *path, struct export_weights *weights,
                uint32_t index, struct weights_source *source) {
    const struct decoder_tensor *wanted = &weights->tensors[index];
    const struct weir__safetensor *tensor = weir__archive_find(weights->archive, wanted->name);
    if (tensor == NULL)
        return refuse(io, path, wanted->name, "is missing: give weights of --model");
    if (!has_shape(tensor, wanted))
        return refuse(io, path, wanted->name,
                      "has another shape than --model's config.json says: give its weights");
    if (!weir__numbers_known(tensor->dtype))
        return refuse(io, path, wanted->name, "is not of f32, f16 or bf16: give such weights");
    *source = (struct weights_source){weights, tensor};
    weights->items[index] = (struct weir__safetensors_item){.name = wanted->name,
                                                            .dtype = tensor->dtype,
                                                            .rank = tensor->rank,
                                                            .next = next_bytes,
                                                            .context = source};
    memcpy(weights->items[index].shape, tensor->shape, sizeof tensor->shape);
    return WEIR_OK;
}

/** Bit for bit. */
static int are_equal(const struct weir__io *io, struct weir__archive *archive,
                     const struct weir__safetensor *a, const struct weir__safetensor *b,
                     bool *equal) {
    *equal = a != NULL && b != NULL && a->dtype == b->dtype && a->bytes == b->bytes;
    for (size_t offset = 0; *equal && offset < a->bytes;) {
        const void *of_a, *of_b;
        size_t bytes_a, bytes_b;
        int status = weir__archive_next(io, archive, a, offset, &of_a, &bytes_a);
        if (status != WEIR_OK) return status;
        status = weir__archive_next(io, archive, b, offset, &of_b, &bytes_b);
        if (status != WEIR_OK) return status;
        size_t bytes = bytes_a < bytes_b ? bytes_a : bytes_b;
        *equal = memcmp(of_a, of_b, bytes) == 0;
        offset += bytes;
    }
    return WEIR_OK;
}

static int check_superfluous(const struct weir__io *io, const char *path,
                             const struct weir_decoder_options *options,
                             const struct export_weights *weights,
                             const struct weir__safetensor *tensor) {
    bool equal = false;
    if (weir__entry_is_state(tensor->name) || weir__text_ends(tensor->name, ".rotary_emb.inv_freq"))
        return WEIR_OK;
    if (options->tied && strcmp(tensor->name, "lm_head.weight") == 0) {
        int status =
            are_equal(io, weights->archive, tensor,
                      weir__archive_find(weights->archive, weights->tensors[0].name), &equal);
        if (status != WEIR_OK) return status;
    }
    if (equal) return WEIR_OK;
    bool adapter = strstr(tensor->name, ".lora_") != NULL;
    return refuse(io, path, tensor->name,
                  adapter
                      ? "is an adapter's: train --resume it with --save-adapter, then weir merge"
                      : "is not --model's: give its weights");
}

static int check_all(const struct weir__io *io, const char *path,
                     const struct weir_decoder_options *options, struct export_weights *weights) {
    struct weir__name_set names;
    weir__name_set_init(&names, &weights->pool);
    for (uint32_t i = 0; i < weights->count; i++)
        if (!weir__name_set_add(&names, weights->tensors[i].name, i))
            return weir__fail(io->error, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
    for (uint32_t i = 0; i < weir__archive_count(weights->archive); i++) {
        const struct weir__safetensor *tensor = weir__archive_get(weights->archive, i);
        if (weir__name_set_find(&names, tensor->name) != WEIR__NO_NAME) continue;
        int status = check_superfluous(io, path, options, weights, tensor);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

int export_weights_open(const struct weir__io *io, const char *path,
                        const struct weir_decoder_options *options,
                        struct export_weights *weights) {
    *weights = (struct export_weights){.io = *io};
    weights->io.error = &weights->damage;
    weir__pool_init(&weights->pool, io->allocator);
    int status = weir__archive_open(io, path, &weights->archive);
    if (status != WEIR_OK) return status;
    status = decoder_tensors_list(&weights->pool, options, &weights->tensors, &weights->count);
    weights->items = weir__pool_take(&weights->pool, weights->count, sizeof *weights->items);
    struct weights_source *sources =
        weir__pool_take(&weights->pool, weights->count, sizeof *sources);
    if (status != WEIR_OK || weights->pool.failed)
        return weir__fail(io->error, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
    for (uint32_t i = 0; i < weights->count; i++)
        if ((status = take(io, path, weights, i, &sources[i])) != WEIR_OK) return status;
    return check_all(io, path, options, weights);
}

void export_weights_close(struct export_weights *weights) {
    weir__archive_close(weights->archive);
    weir__pool_clean_up(&weights->pool);
}

/* ---- conversion ---- */

struct export_room {
    float numbers[PIECE];
    char bytes[PIECE * sizeof(float)];
};

struct export_room *export_room_new(struct weir__pool *pool) {
    return weir__pool_take(pool, 1, sizeof(struct export_room));
}

static size_t width_of(const struct weir__safetensors_item *item) {
    return item->rank < 2 ? 1 : (size_t)item->shape[item->rank - 1];
}

/** Transformers turns number i of a head with number i + size/2, llama.cpp neighbours: what was in
 * halves is interleaved. */
static size_t source_row(const struct export_stream *stream, size_t row) {
    if (stream->heads == 0) return row;
    size_t size = (size_t)stream->from->shape[0] / stream->heads, at = row % size;
    return row - at + at / 2 + (at % 2 == 1 ? size / 2 : 0);
}

static int fetch(const struct export_stream *stream, size_t first, size_t count, char *raw) {
    const struct weir__safetensors_item *from = stream->from;
    size_t each = weir_dtype_bytes(from->dtype), offset = first * each, end = offset + count * each;
    while (offset < end) {
        const void *data;
        size_t bytes;
        int status = from->next(from->context, offset, &data, &bytes);
        if (status != WEIR_OK) return status;
        if (bytes > end - offset) bytes = end - offset;
        memcpy(raw, data, bytes);
        raw += bytes;
        offset += bytes;
    }
    return WEIR_OK;
}

static int convert(const struct export_stream *stream, size_t count) {
    const struct weir__safetensors_item *from = stream->from;
    if (from->dtype == weir__stored_dtype(stream->type)) return WEIR_OK;
    struct export_room *room = stream->room;
    weir__numbers_read(from->dtype, room->bytes, count, room->numbers);
    if (weir__numbers_write(stream->type, room->numbers, count, room->bytes)) return WEIR_OK;
    return weir__fail(stream->error, WEIR_ERR_UNSUPPORTED,
                      "tensor '%.96s' has a number that is too large, or none: give a --type with "
                      "more room, such as f32",
                      from->name);
}

int export_stream_next(void *context, size_t offset, const void **data, size_t *bytes) {
    struct export_stream *stream = context;
    const struct weir__safetensors_item *from = stream->from;
    size_t block = weir__stored_block(stream->type);
    size_t each = weir__stored_bytes(stream->type, block), all = 1, width = width_of(from);
    for (uint32_t i = 0; i < from->rank; i++) all *= (size_t)from->shape[i];
    assert(offset % each == 0 && (width % block == 0 || block == 1));
    size_t begin = offset / each * block,
           end = stream->heads > 0 ? begin - begin % width + width : all;
    size_t count = end - begin < PIECE ? end - begin : PIECE;
    size_t first = source_row(stream, begin / width) * width + begin % width;
    int status = fetch(stream, first, count, stream->room->bytes);
    if (status != WEIR_OK) return status;
    *data = stream->room->bytes;
    *bytes = weir__stored_bytes(stream->type, count);
    return convert(stream, count);
}
