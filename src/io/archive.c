/* SPDX-License-Identifier: MIT */
/* Reading checkpoints: a file as it is, a folder piece by piece. */
#include "io/archive.h"

#include "io/archive_index.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_BYTES_MAX ((size_t)1 << 30)

struct weir__archive {
    const struct weir_allocator *allocator;
    struct weir__safetensors *file; /* NULL: a folder */
    char *folder;                   /* the path of one */
    bool shards;                    /* transformers' */
    uint64_t digest;                /* of its index */
    struct weir__index index;
};

/* ---- opening ---- */

static const char whole[] = "model.safetensors", shards[] = "model.safetensors.index.json";

bool weir__archive_has_weights(const struct weir__io *io, const char *folder) {
    const char *const names[] = {WEIR__ARCHIVE_INDEX, whole, shards};
    char path[PATH_MAX];
    bool has = false;
    assert(folder != NULL);
    for (size_t i = 0; i < WEIR__COUNT_OF(names); i++)
        has = has || weir__folder_has(io, folder, names[i], path);
    return has;
}

static int open_folder(const struct weir__io *io, const char *folder,
                       struct weir__archive *archive) {
    assert(archive->file == NULL && archive->folder != NULL);
    char path[PATH_MAX], shortened[96];
    struct weir__bytes text = {0};
    bool own = weir__folder_has(io, folder, WEIR__ARCHIVE_INDEX, path);
    if (!own && weir__folder_has(io, folder, whole, path))
        return weir__safetensors_open(io, path, NULL, &archive->file);
    if (!own && !weir__folder_has(io, folder, shards, path))
        return weir__fail(io->error, WEIR_ERR_IO,
                          "cannot open %s: it is a folder without " WEIR__ARCHIVE_INDEX
                          " (no save to it was ever complete), and without model.safetensors and "
                          "its index: give another checkpoint",
                          weir__path_text(folder, shortened));
    int status = weir__file_read(io, path, INDEX_BYTES_MAX, &text);
    if (status != WEIR_OK) return status;
    archive->digest = weir__xxh64(text.data, text.count);
    archive->shards = !own;
    status = own ? weir__index_read(io, path, text.data, text.count, &archive->index)
                 : weir__shards_read(io, folder, path, text.data, text.count, &archive->index);
    weir__bytes_release(io->allocator, &text);
    return status;
}

int weir__archive_open(const struct weir__io *io, const char *path,
                       struct weir__archive **archive) {
    assert(path != NULL && archive != NULL);
    struct stat facts;
    struct weir__archive *made = weir__acquire(io->allocator, 1, sizeof *made);
    if (made == NULL) return weir__io_fail(io, ENOMEM, "open", path);
    made->allocator = io->allocator;
    bool folder = weir__io_calls_of(io)->stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
    int status;
    if (!folder)
        status = weir__safetensors_open(io, path, NULL, &made->file);
    else if (weir__text_copy(io->allocator, path, &made->folder) != WEIR_OK)
        status = weir__io_fail(io, ENOMEM, "open", path);
    else
        status = open_folder(io, path, made);
    if (status == WEIR_OK)
        *archive = made;
    else
        weir__archive_close(made);
    return status;
}

void weir__archive_close(struct weir__archive *archive) {
    if (archive == NULL) return;
    weir__safetensors_close(archive->file);
    if (archive->folder != NULL) weir__index_clean_up(&archive->index);
    weir__text_release(archive->allocator, archive->folder);
    weir__release(archive->allocator, archive, 1, sizeof *archive);
}

/* ---- asking ---- */

uint32_t weir__archive_count(const struct weir__archive *archive) {
    return archive->file != NULL ? weir__safetensors_count(archive->file)
                                 : archive->index.tensor_count;
}

const struct weir__safetensor *weir__archive_get(const struct weir__archive *archive,
                                                 uint32_t index) {
    assert(index < weir__archive_count(archive));
    return archive->file != NULL ? weir__safetensors_get(archive->file, index)
                                 : &archive->index.tensors[index];
}

int weir__compare_tensors(const void *left, const void *right) {
    const struct weir__safetensor *a = left, *b = right;
    return strcmp(a->name, b->name);
}

const struct weir__safetensor *weir__archive_find(const struct weir__archive *archive,
                                                  const char *name) {
    assert(archive != NULL && name != NULL);
    if (archive->file != NULL) return weir__safetensors_find(archive->file, name);
    const struct weir__safetensor wanted = {.name = name};
    return bsearch(&wanted, archive->index.tensors, archive->index.tensor_count, sizeof wanted,
                   weir__compare_tensors);
}

const struct weir__safetensors_text *weir__archive_texts(const struct weir__archive *archive,
                                                         uint32_t *count) {
    assert(archive != NULL && count != NULL);
    if (archive->file != NULL) return weir__safetensors_texts(archive->file, count);
    *count = archive->index.text_count;
    return archive->index.texts;
}

static int compare_keys(const void *left, const void *right) {
    const struct weir__safetensors_text *a = left, *b = right;
    return strcmp(a->key, b->key);
}

const char *weir__archive_metadata(const struct weir__archive *archive, const char *key) {
    assert(archive != NULL && key != NULL);
    uint32_t count;
    const struct weir__safetensors_text wanted = {.key = key},
                                        *texts = weir__archive_texts(archive, &count);
    const struct weir__safetensors_text *found =
        count > 0 ? bsearch(&wanted, texts, count, sizeof wanted, compare_keys) : NULL;
    return found != NULL ? found->value : NULL;
}

uint64_t weir__archive_digest(const struct weir__archive *archive) {
    if (archive->file != NULL) return weir__safetensors_digest(archive->file, false);
    uint64_t digest = archive->digest;
    for (uint32_t i = 0; archive->shards && i < archive->index.part_count; i++) {
        assert(archive->index.parts[i].file != NULL);
        uint64_t part = weir__safetensors_digest(archive->index.parts[i].file, false);
        digest = weir__hash(digest, &part, sizeof part);
    }
    return digest;
}

/* ---- parts ---- */

/* Where a part is not what was saved. */
static int refuse_part(const struct weir__io *io, const char *path, const char *reason) {
    char shortened[96];
    return weir__fail(io->error, WEIR_ERR_FORMAT, "%s %s: give another checkpoint",
                      weir__path_text(path, shortened), reason);
}

static int check_part(const struct weir__io *io, const char *path, const struct weir__part *part) {
    assert(part->file != NULL);
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

static int open_part(const struct weir__io *io, struct weir__archive *archive,
                     struct weir__part *part) {
    char path[PATH_MAX];
    if (part->file != NULL) return WEIR_OK;
    int status = weir__path_join(io, archive->folder, part->name, path);
    if (status != WEIR_OK) return status;
    status = weir__safetensors_open(io, path, NULL, &part->file);
    if (status != WEIR_OK) return status;
    if ((status = check_part(io, path, part)) != WEIR_OK) goto fail;
    uint32_t count = weir__safetensors_count(part->file);
    part->compared = weir__pool_take(&archive->index.pool, count, sizeof *part->compared);
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
    assert(tensor->data != NULL || tensor->bytes == 0);
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
static int open_piece(const struct weir__io *io, struct weir__archive *archive,
                      const struct weir__safetensor *tensor, const struct weir__extent *extent,
                      const struct weir__safetensor **piece) {
    assert(extent->part < archive->index.part_count && extent->begin < extent->end);
    struct weir__part *part = &archive->index.parts[extent->part];
    char path[PATH_MAX], reason[160];
    int status = open_part(io, archive, part);
    if (status != WEIR_OK) return status;
    if ((status = weir__path_join(io, archive->folder, part->name, path)) != WEIR_OK) return status;
    *piece = weir__safetensors_find(part->file, tensor->name);
    uint64_t count = extent->end - extent->begin;
    if (*piece == NULL || (*piece)->dtype != tensor->dtype ||
        weir__tensor_elements(*piece) != count) {
        snprintf(reason, sizeof reason, "does not hold the piece of '%.64s' that its index names",
                 tensor->name);
        return refuse_part(io, path, reason);
    }
    bool *compared = &part->compared[*piece - weir__safetensors_get(part->file, 0)];
    if (*compared || has_digest(part->file, *piece, extent->begin)) {
        *compared = true;
        return WEIR_OK;
    }
    snprintf(reason, sizeof reason, "is damaged: '%.64s' is not what was saved", tensor->name);
    return refuse_part(io, path, reason);
}

static const struct weir__extent *find_extent(const struct weir__index *index,
                                              const struct weir__safetensor *tensor,
                                              uint64_t element) {
    uint32_t number = (uint32_t)(tensor - index->tensors);
    assert(number < index->tensor_count);
    uint32_t low = index->first_extents[number], high = index->first_extents[number + 1];
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (index->extents[middle].begin <= element)
            low = middle;
        else
            high = middle;
    }
    return &index->extents[low];
}

int weir__archive_next(const struct weir__io *io, struct weir__archive *archive,
                       const struct weir__safetensor *tensor, size_t offset, const void **data,
                       size_t *bytes) {
    assert(offset < tensor->bytes);
    *data = tensor->data != NULL ? (const char *)tensor->data + offset : NULL;
    *bytes = tensor->bytes - offset;
    if (*data != NULL || archive->file != NULL) return WEIR_OK;
    size_t size = weir_dtype_bytes(tensor->dtype);
    const struct weir__extent *extent = find_extent(&archive->index, tensor, offset / size);
    const struct weir__safetensor *piece = NULL;
    int status = open_piece(io, archive, tensor, extent, &piece);
    if (status != WEIR_OK) return status;
    size_t within = offset - (size_t)extent->begin * size;
    assert(within < piece->bytes);
    *data = (const char *)piece->data + within;
    *bytes = piece->bytes - within;
    return WEIR_OK;
}

void weir__archive_drop(const struct weir__archive *archive,
                        const struct weir__safetensor *tensor) {
    if (archive->file != NULL) {
        weir__safetensors_drop(archive->file, tensor);
        return;
    }
    const struct weir__index *index = &archive->index;
    uint32_t number = (uint32_t)(tensor - index->tensors);
    assert(number < index->tensor_count);
    for (uint32_t i = index->first_extents[number]; i < index->first_extents[number + 1]; i++) {
        const struct weir__safetensors *part = index->parts[index->extents[i].part].file;
        const struct weir__safetensor *piece =
            part != NULL ? weir__safetensors_find(part, tensor->name) : NULL;
        if (piece != NULL) weir__safetensors_drop(part, piece);
    }
}
