/* SPDX-License-Identifier: MIT */
/* Reading checkpoints: a file as it is, a folder piece by piece. */
#include "io/checkpoint.h"

#include "io/checkpoint_index.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_BYTES_MAX ((size_t)1 << 30)

struct weir__checkpoint {
    const struct weir_allocator *allocator;
    struct weir__safetensors *file; /* NULL: a folder */
    char *folder;                   /* the path of one */
    uint64_t digest;                /* of its index */
    struct weir__index index;
};

/* ---- opening ---- */

static int open_index(const struct weir__io *io, const char *folder,
                      struct weir__checkpoint *checkpoint) {
    char path[PATH_MAX], shortened[96];
    struct weir__bytes text = {0};
    struct stat facts;
    if (snprintf(path, sizeof path, "%s/" WEIR__CHECKPOINT_INDEX, folder) >= PATH_MAX)
        return weir__io_fail(io, ENAMETOOLONG, "open", folder);
    if (weir__io_calls_of(io)->stat(path, &facts) != 0 && errno == ENOENT)
        return weir__fail(io->error, WEIR_ERR_IO,
                          "cannot open %s: it is a folder without " WEIR__CHECKPOINT_INDEX
                          ": no save to it was ever complete: give another checkpoint",
                          weir__path_text(folder, shortened));
    int status = weir__file_read(io, path, INDEX_BYTES_MAX, &text);
    if (status != WEIR_OK) return status;
    checkpoint->digest = weir__xxh64(text.data, text.count);
    status = weir__index_read(io, path, text.data, text.count, &checkpoint->index);
    weir__bytes_release(io->allocator, &text);
    return status;
}

int weir__checkpoint_open(const struct weir__io *io, const char *path,
                          struct weir__checkpoint **checkpoint) {
    assert(path != NULL && checkpoint != NULL);
    struct stat facts;
    struct weir__checkpoint *made = weir__acquire(io->allocator, 1, sizeof *made);
    if (made == NULL) return weir__io_fail(io, ENOMEM, "open", path);
    made->allocator = io->allocator;
    bool folder = weir__io_calls_of(io)->stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
    int status;
    if (!folder)
        status = weir__safetensors_open(io, path, NULL, &made->file);
    else if (weir__text_copy(io->allocator, path, &made->folder) != WEIR_OK)
        status = weir__io_fail(io, ENOMEM, "open", path);
    else
        status = open_index(io, path, made);
    if (status == WEIR_OK)
        *checkpoint = made;
    else
        weir__checkpoint_close(made);
    return status;
}

void weir__checkpoint_close(struct weir__checkpoint *checkpoint) {
    if (checkpoint == NULL) return;
    weir__safetensors_close(checkpoint->file);
    if (checkpoint->folder != NULL) weir__index_clean_up(&checkpoint->index);
    weir__text_release(checkpoint->allocator, checkpoint->folder);
    weir__release(checkpoint->allocator, checkpoint, 1, sizeof *checkpoint);
}

/* ---- asking ---- */

uint32_t weir__checkpoint_count(const struct weir__checkpoint *checkpoint) {
    return checkpoint->file != NULL ? weir__safetensors_count(checkpoint->file)
                                    : checkpoint->index.tensor_count;
}

const struct weir__safetensor *weir__checkpoint_get(const struct weir__checkpoint *checkpoint,
                                                    uint32_t index) {
    assert(index < weir__checkpoint_count(checkpoint));
    return checkpoint->file != NULL ? weir__safetensors_get(checkpoint->file, index)
                                    : &checkpoint->index.tensors[index];
}

static int compare_names(const void *left, const void *right) {
    const struct weir__safetensor *a = left, *b = right;
    return strcmp(a->name, b->name);
}

const struct weir__safetensor *weir__checkpoint_find(const struct weir__checkpoint *checkpoint,
                                                     const char *name) {
    if (checkpoint->file != NULL) return weir__safetensors_find(checkpoint->file, name);
    const struct weir__safetensor wanted = {.name = name};
    return bsearch(&wanted, checkpoint->index.tensors, checkpoint->index.tensor_count,
                   sizeof wanted, compare_names);
}

const struct weir__safetensors_text *
weir__checkpoint_texts(const struct weir__checkpoint *checkpoint, uint32_t *count) {
    if (checkpoint->file != NULL) return weir__safetensors_texts(checkpoint->file, count);
    *count = checkpoint->index.text_count;
    return checkpoint->index.texts;
}

static int compare_keys(const void *left, const void *right) {
    const struct weir__safetensors_text *a = left, *b = right;
    return strcmp(a->key, b->key);
}

const char *weir__checkpoint_metadata(const struct weir__checkpoint *checkpoint, const char *key) {
    uint32_t count;
    const struct weir__safetensors_text wanted = {.key = key},
                                        *texts = weir__checkpoint_texts(checkpoint, &count);
    const struct weir__safetensors_text *found =
        count > 0 ? bsearch(&wanted, texts, count, sizeof wanted, compare_keys) : NULL;
    return found != NULL ? found->value : NULL;
}

uint64_t weir__checkpoint_digest(const struct weir__checkpoint *checkpoint) {
    return checkpoint->file != NULL ? weir__safetensors_digest(checkpoint->file, false)
                                    : checkpoint->digest;
}

/* ---- parts ---- */

/* Where a part is not what was saved. */
static int refuse_part(const struct weir__io *io, const char *path, const char *reason) {
    char shortened[96];
    return weir__fail(io->error, WEIR_ERR_FORMAT, "%s %s: give another checkpoint",
                      weir__path_text(path, shortened), reason);
}

static int check_part(const struct weir__io *io, const char *path, const struct weir__part *part) {
    char reason[128];
    size_t bytes = weir__safetensors_size(part->file);
    if (bytes != part->bytes) {
        snprintf(reason, sizeof reason, "has %zu byte%s, but the index says %llu", bytes,
                 weir__s(bytes), (unsigned long long)part->bytes);
        return refuse_part(io, path, reason);
    }
    if (weir__safetensors_digest(part->file, true) == part->digest) return WEIR_OK;
    return refuse_part(io, path, "has another header than was saved");
}

static int open_part(const struct weir__io *io, struct weir__checkpoint *checkpoint,
                     struct weir__part *part) {
    char path[PATH_MAX];
    if (part->file != NULL) return WEIR_OK;
    if (snprintf(path, sizeof path, "%s/%s", checkpoint->folder, part->name) >= PATH_MAX)
        return weir__io_fail(io, ENAMETOOLONG, "open", checkpoint->folder);
    int status = weir__safetensors_open(io, path, NULL, &part->file);
    if (status != WEIR_OK) return status;
    if ((status = check_part(io, path, part)) != WEIR_OK) goto fail;
    uint32_t count = weir__safetensors_count(part->file);
    part->compared = weir__pool_take(&checkpoint->index.pool, count, sizeof *part->compared);
    if (part->compared != NULL) return WEIR_OK;
    status = weir__io_fail(io, ENOMEM, "open", path);
fail:
    weir__safetensors_close(part->file);
    part->file = NULL;
    return status;
}

/* By the metadata of its part. */
static bool has_digest(const struct weir__safetensors *file, const struct weir__safetensor *tensor,
                       uint64_t begin) {
    char wanted[48];
    const char *said = weir__safetensors_metadata(file, tensor->name);
    int used = snprintf(wanted, sizeof wanted, "%016llx",
                        (unsigned long long)weir__xxh64(tensor->data, tensor->bytes));
    if (said == NULL || strncmp(said, wanted, (size_t)used) != 0) return false;
    if (said[used] == '\0') return begin == 0;
    snprintf(wanted, sizeof wanted, "@%llu", (unsigned long long)begin);
    return strcmp(said + used, wanted) == 0;
}

/* The tensor of a part that is the piece. */
static int open_piece(const struct weir__io *io, struct weir__checkpoint *checkpoint,
                      const struct weir__safetensor *tensor, const struct weir__span *span,
                      const struct weir__safetensor **piece) {
    struct weir__part *part = &checkpoint->index.parts[span->part];
    char path[PATH_MAX], reason[160];
    int status = open_part(io, checkpoint, part);
    if (status != WEIR_OK) return status;
    snprintf(path, sizeof path, "%s/%s", checkpoint->folder, part->name);
    *piece = weir__safetensors_find(part->file, tensor->name);
    uint64_t count = span->end - span->begin;
    if (*piece == NULL || (*piece)->dtype != tensor->dtype ||
        weir__tensor_elements(*piece) != count) {
        snprintf(reason, sizeof reason, "does not hold the piece of '%.64s' that its index names",
                 tensor->name);
        return refuse_part(io, path, reason);
    }
    bool *compared = &part->compared[*piece - weir__safetensors_get(part->file, 0)];
    if (*compared || has_digest(part->file, *piece, span->begin)) {
        *compared = true;
        return WEIR_OK;
    }
    snprintf(reason, sizeof reason, "is damaged: '%.64s' is not what was saved", tensor->name);
    return refuse_part(io, path, reason);
}

static const struct weir__span *find_span(const struct weir__index *index,
                                          const struct weir__safetensor *tensor, uint64_t element) {
    uint32_t number = (uint32_t)(tensor - index->tensors);
    assert(number < index->tensor_count);
    uint32_t low = index->first_spans[number], high = index->first_spans[number + 1];
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (index->spans[middle].begin <= element)
            low = middle;
        else
            high = middle;
    }
    return &index->spans[low];
}

int weir__checkpoint_next(const struct weir__io *io, struct weir__checkpoint *checkpoint,
                          const struct weir__safetensor *tensor, size_t offset, const void **data,
                          size_t *bytes) {
    assert(offset < tensor->bytes);
    *data = tensor->data != NULL ? (const char *)tensor->data + offset : NULL;
    *bytes = tensor->bytes - offset;
    if (checkpoint->file != NULL) return WEIR_OK;
    size_t size = weir_dtype_bytes(tensor->dtype);
    const struct weir__span *span = find_span(&checkpoint->index, tensor, offset / size);
    const struct weir__safetensor *piece = NULL;
    int status = open_piece(io, checkpoint, tensor, span, &piece);
    if (status != WEIR_OK) return status;
    size_t within = offset - (size_t)span->begin * size;
    assert(within < piece->bytes);
    *data = (const char *)piece->data + within;
    *bytes = piece->bytes - within;
    return WEIR_OK;
}
