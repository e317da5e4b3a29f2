/* SPDX-License-Identifier: MIT */
/*
 * Weights as Hugging Face's transformers save them: "weight_map" of the index says in which file
 * each tensor lies, whole. The files are opened at once, for they alone know dtypes and shapes.
 */
#include "io/archive_index.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct shards {
    const struct weir__io *io;
    const char *folder, *path; /* of the index */
    struct weir__index *index;
};

static int refuse(const struct shards *shards, const char *what, const char *name) {
    char shortened[96];
    return weir__fail(shards->io->error, WEIR_ERR_FORMAT, "%s: '%.64s' %s: give another checkpoint",
                      weir__path_text(shards->path, shortened), name, what);
}

static int no_memory(const struct shards *shards) {
    return weir__fail(shards->io->error, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
}

static int open_part(const struct shards *shards, struct weir__part *part) {
    char path[PATH_MAX];
    int status = weir__path_join(shards->io, shards->folder, part->name, path);
    if (status != WEIR_OK) return status;
    return weir__safetensors_open(shards->io, path, NULL, &part->file);
}

/** The part of that name, opened; *number is which. */
static int find_part(const struct shards *shards, const char *name, uint32_t *number) {
    struct weir__index *index = shards->index;
    for (*number = 0; *number < index->part_count; ++*number)
        if (strcmp(index->parts[*number].name, name) == 0) return WEIR_OK;
    index->parts[index->part_count].name = name;
    int status = open_part(shards, &index->parts[index->part_count]);
    if (status == WEIR_OK) index->part_count++;
    return status;
}

static int add_tensor(const struct shards *shards, const char *name, const json_t *file) {
    struct weir__index *index = shards->index;
    const char *part_name = json_string_value(file);
    uint32_t part, count = index->tensor_count;
    if (!weir__is_part_name(part_name)) return refuse(shards, "lies in no file's name", name);
    int status = find_part(shards, part_name, &part);
    if (status != WEIR_OK) return status;
    const struct weir__safetensor *tensor = weir__safetensors_find(index->parts[part].file, name);
    if (tensor == NULL) return refuse(shards, "is not in the file that it names", name);
    index->tensors[count] = *tensor;
    index->tensor_count++;
    return WEIR_OK;
}

/** Each tensor is one extent, of the part that holds its bytes. */
static void add_extents(struct weir__index *index) {
    for (uint32_t i = 0; i < index->tensor_count; i++) {
        const struct weir__safetensor *tensor = &index->tensors[i];
        uint32_t part = 0;
        while (weir__safetensors_find(index->parts[part].file, tensor->name) == NULL ||
               weir__safetensors_find(index->parts[part].file, tensor->name)->data != tensor->data)
            part++;
        index->first_extents[i] = i;
        index->extents[i] = (struct weir__extent){part, 0, weir__tensor_elements(tensor)};
    }
    index->first_extents[index->tensor_count] = index->tensor_count;
}

static int read_map(const struct shards *shards, json_t *map) {
    struct weir__index *index = shards->index;
    size_t count = json_object_size(map);
    if (!json_is_object(map) || count == 0 || count >= UINT32_MAX)
        return refuse(shards, "is no list of tensors", "weight_map");
    index->parts = weir__pool_take(&index->pool, count, sizeof *index->parts);
    index->tensors = weir__pool_take(&index->pool, count, sizeof *index->tensors);
    index->first_extents = weir__pool_take(&index->pool, count + 1, sizeof *index->first_extents);
    index->extents = weir__pool_take(&index->pool, count, sizeof *index->extents);
    if (index->parts == NULL || index->tensors == NULL || index->first_extents == NULL ||
        index->extents == NULL)
        return no_memory(shards);
    const char *name;
    json_t *file;
    json_object_foreach(map, name, file) {
        int status = add_tensor(shards, name, file);
        if (status != WEIR_OK) return status;
    }
    qsort(index->tensors, index->tensor_count, sizeof *index->tensors, weir__compare_tensors);
    add_extents(index);
    return WEIR_OK;
}

int weir__shards_read(const struct weir__io *io, const char *folder, const char *path,
                      const char *text, size_t bytes, struct weir__index *index) {
    const struct shards shards = {io, folder, path, index};
    json_error_t error;
    weir__pool_init(&index->pool, io->allocator);
    index->root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (index->root == NULL && json_error_code(&error) == json_error_out_of_memory)
        return no_memory(&shards);
    if (index->root == NULL) return refuse(&shards, "is no JSON", error.text);
    return read_map(&shards, json_object_get(index->root, "weight_map"));
}
