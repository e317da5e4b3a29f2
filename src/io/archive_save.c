/* SPDX-License-Identifier: MIT */
/*
 * Writing a folder. The order is what makes it safe: parts and their names are flushed before the
 * index that names them is, and nothing is removed before that has taken its place.
 */
#include "io/archive_index.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTIAL ".partial"
#define COPY_BYTES ((size_t)1 << 20)
#define INDEX_BYTES_MAX ((size_t)1 << 30)
enum { ENTRIES_MAX = 1 << 24, NAME_SHOWN = 64 }; /* of a folder */

/* ---- names ---- */

void weir__part_name(uint64_t step, uint32_t token, uint32_t rank,
                     char name[WEIR__PART_NAME_BYTES]) {
    snprintf(name, WEIR__PART_NAME_BYTES, "part-%" PRIu64 "-%08" PRIx32 "-%" PRIu32 ".safetensors",
             step, token, rank);
}

/* Takes one to `most` of those characters. */
static bool take(const char **at, const char *of, size_t most) {
    size_t count = strspn(*at, of);
    *at += count;
    return count >= 1 && count <= most;
}

static bool take_text(const char **at, const char *text) {
    if (strncmp(*at, text, strlen(text)) != 0) return false;
    *at += strlen(text);
    return true;
}

static bool is_part(const char *at) {
    static const char digits[] = "0123456789", hex[] = "0123456789abcdef";
    if (!take_text(&at, "part-") || !take(&at, digits, 20) || !take_text(&at, "-")) return false;
    if (!take(&at, hex, 8) || !take_text(&at, "-") || !take(&at, digits, 10)) return false;
    return take_text(&at, ".safetensors") && (*at == '\0' || strcmp(at, PARTIAL) == 0);
}

static bool is_index(const char *name) {
    return strcmp(name, WEIR__ARCHIVE_INDEX) == 0 || strcmp(name, WEIR__ARCHIVE_INDEX PARTIAL) == 0;
}

/* What a network's file system calls a file that is open and removed. */
static bool is_hidden(const char *name) {
    return name[0] == '.';
}

/* ---- a folder's entries ---- */

typedef int visit_fn(const struct weir__io *io, const char *folder, const char *name,
                     void *context);

static int visit_folder(const struct weir__io *io, const char *folder, visit_fn *visit,
                        void *context) {
    assert(folder != NULL && visit != NULL);
    const struct weir__io_calls *calls = weir__io_calls_of(io);
    DIR *opened = calls->opendir(folder);
    if (opened == NULL) return weir__io_fail(io, errno, "open the folder", folder);
    int status = WEIR_OK;
    for (int i = 0; i < ENTRIES_MAX && status == WEIR_OK; i++) {
        errno = 0;
        struct dirent *entry = calls->readdir(opened);
        if (entry == NULL) {
            if (errno != 0) status = weir__io_fail(io, errno, "read the folder", folder);
            break;
        }
        if (!is_hidden(entry->d_name)) status = visit(io, folder, entry->d_name, context);
    }
    calls->closedir(opened); /* read only: a failure loses nothing */
    return status;
}

static int refuse_other(const struct weir__io *io, const char *folder, const char *name,
                        void *context) {
    char shortened[96];
    (void)context;
    if (is_part(name) || is_index(name)) return WEIR_OK;
    return weir__fail(io->error, WEIR_ERR_IO,
                      "cannot save to %s: it is a folder with other files (%.60s): name a new one",
                      weir__path_text(folder, shortened), name);
}

static int note_part(const struct weir__io *io, const char *folder, const char *name,
                     void *context) {
    bool *any = context;
    (void)io, (void)folder;
    *any = *any || is_part(name);
    return WEIR_OK;
}

/* Then whatever else lies there stays, and does no harm. */
static bool has_index(const struct weir__io *io, const char *folder) {
    char path[PATH_MAX];
    return weir__folder_has(io, folder, WEIR__ARCHIVE_INDEX, path);
}

bool weir__archive_takes(const struct weir__io *io, const char *path) {
    struct weir__io quiet = {.allocator = io->allocator, .calls = io->calls};
    struct stat facts;
    if (weir__io_calls_of(io)->stat(path, &facts) != 0 || !S_ISDIR(facts.st_mode)) return false;
    return has_index(io, path) || visit_folder(&quiet, path, refuse_other, NULL) == WEIR_OK;
}

bool weir__archive_is_folder(const struct weir__io *io, const char *path) {
    struct weir__io quiet = {.allocator = io->allocator, .calls = io->calls};
    bool any = false;
    if (!weir__archive_takes(io, path)) return false;
    return has_index(io, path) || (visit_folder(&quiet, path, note_part, &any) == WEIR_OK && any);
}

/* Such as cannot be flushed need not be. */
static int flush_folder(const struct weir__io *io, const char *folder) {
    int descriptor = weir__io_open(io, folder, O_RDONLY | O_DIRECTORY, 0);
    if (descriptor < 0 && errno == EACCES) return WEIR_OK;
    if (descriptor < 0) return weir__io_fail(io, errno, "open the folder", folder);
    int flushed = weir__io_flush(io, descriptor) == 0 || errno == EINVAL ? 0 : errno;
    weir__io_calls_of(io)->close(descriptor);
    return flushed != 0 ? weir__io_fail(io, flushed, "flush the folder", folder) : WEIR_OK;
}

/* The folder's own name must outlive a power cut, too. */
static int flush_parent(const struct weir__io *io, const char *folder) {
    char parent[PATH_MAX];
    if (snprintf(parent, sizeof parent, "%s", folder) >= PATH_MAX)
        return weir__io_fail(io, ENAMETOOLONG, "save to", folder);
    size_t length = strlen(parent);
    while (length > 1 && parent[length - 1] == '/') length--;
    while (length > 0 && parent[length - 1] != '/') length--;
    parent[length] = '\0';
    return flush_folder(io, length > 0 ? parent : ".");
}

int weir__archive_prepare(const struct weir__io *io, const char *folder) {
    assert(folder != NULL);
    struct stat facts;
    char shortened[96];
    if (weir__io_calls_of(io)->mkdir(folder, 0777) == 0) return flush_parent(io, folder);
    int number = errno;
    if (number != EEXIST) return weir__io_fail(io, number, "make the folder", folder);
    if (weir__io_calls_of(io)->stat(folder, &facts) != 0)
        return weir__io_fail(io, errno, "save to", folder);
    if (!S_ISDIR(facts.st_mode))
        return weir__fail(io->error, WEIR_ERR_IO,
                          "cannot save to %s: it is a file, and several processes save a folder: "
                          "name another",
                          weir__path_text(folder, shortened));
    return has_index(io, folder) ? WEIR_OK : visit_folder(io, folder, refuse_other, NULL);
}

/* ---- parts ---- */

enum { DIGEST_BYTES = 48 };

/* The piece as its part holds it, and the line of metadata that proves it. */
static int make_item(const struct weir__io *io, const struct weir__archive_piece *piece,
                     struct weir__safetensors_item *item, struct weir__safetensors_text *text,
                     char digest[DIGEST_BYTES]) {
    uint64_t count = piece->whole ? 1 : piece->count;
    for (uint32_t i = 0; i < piece->item.rank && piece->whole; i++)
        count *= (uint64_t)piece->item.shape[i];
    size_t bytes = 0;
    if (!weir__multiply((size_t)count, weir_dtype_bytes(piece->item.dtype), &bytes))
        return weir__fail(io->error, WEIR_ERR_OVERFLOW, "'%.*s' has a size that overflows",
                          NAME_SHOWN, piece->item.name);
    int used = snprintf(digest, DIGEST_BYTES, "%016" PRIx64, weir__xxh64(piece->item.data, bytes));
    if (!piece->whole)
        snprintf(digest + used, DIGEST_BYTES - (size_t)used, "@%" PRIu64, piece->begin);
    *item = piece->item;
    if (!piece->whole) item->rank = 1, item->shape[0] = (int64_t)count;
    *text = (struct weir__safetensors_text){piece->item.name, digest};
    return WEIR_OK;
}

int weir__archive_write(const struct weir__io *io, const char *folder, const char *name,
                        const struct weir__archive_piece *pieces, uint32_t count) {
    assert(is_part(name) && (pieces != NULL || count == 0));
    char path[PATH_MAX];
    struct weir__pool pool;
    weir__pool_init(&pool, io->allocator);
    struct weir__safetensors_item *items = weir__pool_take(&pool, count, sizeof *items);
    struct weir__safetensors_text *texts = weir__pool_take(&pool, count, sizeof *texts);
    char(*digests)[DIGEST_BYTES] = weir__pool_take(&pool, count, sizeof *digests);
    int status = pool.failed ? weir__io_fail(io, ENOMEM, "write", name) : WEIR_OK;
    if (status != WEIR_OK) goto out;
    if ((status = weir__path_join(io, folder, name, path)) != WEIR_OK) goto out;
    for (uint32_t i = 0; i < count; i++) {
        status = make_item(io, &pieces[i], &items[i], &texts[i], digests[i]);
        if (status != WEIR_OK) goto out;
    }
    status = weir__safetensors_save(io, path, items, count, texts, count);
out:
    weir__pool_clean_up(&pool);
    return status;
}

/* ---- the index ---- */

/* A piece in the making. */
struct located {
    uint32_t tensor, part;
    uint64_t begin, end;
};

struct committing {
    const struct weir__io *io;
    const char *folder;
    const struct weir__archive_commit *commit;
    struct weir__pool pool;
    const struct weir__safetensors_item **by_name;
    struct located *found;
    uint32_t found_count, found_capacity;
    json_t *files;
};

static int no_memory(const struct committing *c) {
    return weir__io_fail(c->io, ENOMEM, "save to", c->folder);
}

static int compare_items(const void *left, const void *right) {
    const struct weir__safetensors_item *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

static int compare_found(const void *left, const void *right) {
    const struct located *a = left, *b = right;
    if (a->tensor != b->tensor) return a->tensor < b->tensor ? -1 : 1;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* What a part holds, as its own header says. */
static int read_piece(struct committing *c, const char *path, uint32_t part,
                      const struct weir__safetensors *file, const struct weir__safetensor *tensor) {
    const struct weir__safetensors_item wanted = {.name = tensor->name}, *key = &wanted;
    const struct weir__safetensors_item *const *item = NULL;
    uint32_t count = c->commit->tensor_count;
    if (count > 0) item = bsearch(&key, c->by_name, count, sizeof *c->by_name, compare_items);
    const char *digest = weir__safetensors_metadata(file, tensor->name);
    char shortened[96];
    if (item == NULL || digest == NULL || tensor->dtype != (*item)->dtype)
        return weir__fail(c->io->error, WEIR_ERR_FORMAT,
                          "%s holds '%.*s', which is not of this checkpoint: save again",
                          weir__path_text(path, shortened), NAME_SHOWN, tensor->name);
    const char *at = strchr(digest, '@');
    struct located found = {.tensor = (uint32_t)(*item - c->commit->tensors), .part = part};
    found.begin = at != NULL ? strtoull(at + 1, NULL, 10) : 0;
    found.end = found.begin + weir__tensor_elements(tensor);
    if (found.end == found.begin) return WEIR_OK;
    bool added = weir__pool_add(&c->pool, &c->found, &c->found_count, &c->found_capacity, &found,
                                sizeof found);
    return added ? WEIR_OK : no_memory(c);
}

static int read_part(struct committing *c, uint32_t part) {
    assert(part < c->commit->part_count);
    const char *name = c->commit->parts[part];
    struct weir__safetensors *file = NULL;
    char path[PATH_MAX], digest[24];
    int status = weir__path_join(c->io, c->folder, name, path);
    if (status != WEIR_OK) return status;
    if ((status = weir__safetensors_open(c->io, path, NULL, &file)) != WEIR_OK) return status;
    snprintf(digest, sizeof digest, "%016" PRIx64, weir__safetensors_digest(file, true));
    json_t *facts = json_pack("{s:s, s:I, s:s}", "name", name, "bytes",
                              (json_int_t)weir__safetensors_size(file), "digest", digest);
    if (json_array_append_new(c->files, facts) != 0) status = no_memory(c);
    for (uint32_t i = 0; status == WEIR_OK && i < weir__safetensors_count(file); i++)
        status = read_piece(c, path, part, file, weir__safetensors_get(file, i));
    weir__safetensors_close(file);
    return status;
}

/* Shape, dtype and pieces, from `*at` of what was found on. */
static json_t *tensor_facts(const struct committing *c, uint32_t tensor, uint32_t *at) {
    assert(tensor < c->commit->tensor_count && *at <= c->found_count);
    const struct weir__safetensors_item *item = &c->commit->tensors[tensor];
    const char *dtype = NULL;
    for (uint32_t i = 0; i < WEIR__SAFETENSORS_DTYPES && dtype == NULL; i++)
        if (weir__safetensors_dtypes[i].dtype == item->dtype)
            dtype = weir__safetensors_dtypes[i].name;
    json_t *shape = json_array(), *pieces = json_array();
    int failed = shape == NULL || pieces == NULL;
    for (uint32_t i = 0; i < item->rank; i++)
        failed |= json_array_append_new(shape, json_integer(item->shape[i]));
    for (; *at < c->found_count && c->found[*at].tensor == tensor; (*at)++) {
        const struct located *found = &c->found[*at];
        json_t *piece = json_pack("[I,I,I]", (json_int_t)found->part, (json_int_t)found->begin,
                                  (json_int_t)found->end);
        failed |= json_array_append_new(pieces, piece);
    }
    json_t *facts = json_pack("{s:s, s:o, s:o}", "dtype", dtype, "shape", shape, "pieces", pieces);
    if (!failed) return facts;
    json_decref(facts);
    return NULL;
}

static int build_index(struct committing *c, json_t *root) {
    json_t *metadata = json_object(), *tensors = json_object();
    int failed = json_object_set_new(root, "format", json_string("weir checkpoint"));
    failed |= json_object_set_new(root, "version", json_integer(1));
    failed |= json_object_set_new(root, "metadata", metadata);
    failed |= json_object_set(root, "files", c->files);
    failed |= json_object_set_new(root, "tensors", tensors);
    for (uint32_t i = 0; i < c->commit->text_count && !failed; i++)
        failed = json_object_set_new(metadata, c->commit->texts[i].key,
                                     json_string(c->commit->texts[i].value));
    uint32_t at = 0;
    for (uint32_t i = 0; i < c->commit->tensor_count && !failed; i++)
        failed = json_object_set_new(tensors, c->commit->tensors[i].name, tensor_facts(c, i, &at));
    return failed ? no_memory(c) : WEIR_OK;
}

/* Whoever writes it reads it first: what has a hole is not committed. */
static int write_index(const struct weir__io *io, const char *folder, const char *text,
                       size_t bytes) {
    assert(text != NULL && bytes > 0);
    char path[PATH_MAX];
    struct weir__index index;
    struct weir__file file;
    int status = weir__path_join(io, folder, WEIR__ARCHIVE_INDEX, path);
    if (status != WEIR_OK) return status;
    status = weir__index_read(io, path, text, bytes, &index);
    weir__index_clean_up(&index);
    if (status != WEIR_OK) return status;
    if ((status = weir__file_begin(io, path, &file)) != WEIR_OK) return status;
    (void)weir__file_write(&file, text, bytes); /* its failure is the commit's */
    return weir__file_commit(&file);
}

static bool is_kept(const struct weir__archive_commit *commit, const char *name) {
    assert(commit->parts != NULL || commit->part_count == 0);
    for (uint32_t i = 0; i < commit->part_count; i++)
        if (strcmp(commit->parts[i], name) == 0) return true;
    return strcmp(name, WEIR__ARCHIVE_INDEX) == 0;
}

static int remove_superseded(const struct weir__io *io, const char *folder, const char *name,
                             void *context) {
    char path[PATH_MAX];
    if (!is_part(name) || is_kept(context, name)) return WEIR_OK;
    int status = weir__path_join(io, folder, name, path);
    if (status != WEIR_OK) return status;
    if (weir__io_calls_of(io)->unlink(path) == 0 || errno == ENOENT) return WEIR_OK;
    return weir__io_fail(io, errno, "remove what is superseded,", path);
}

static int commit_index(struct committing *c) {
    assert(json_array_size(c->files) == c->commit->part_count);
    json_t *root = json_object();
    char *text = NULL;
    int status = root == NULL ? no_memory(c) : build_index(c, root);
    if (status != WEIR_OK) goto out;
    text = json_dumps(root, JSON_COMPACT);
    status = text == NULL ? no_memory(c) : write_index(c->io, c->folder, text, strlen(text));
    if (status != WEIR_OK) goto out;
    status = visit_folder(c->io, c->folder, remove_superseded, (void *)c->commit);
out:
    free(text);
    json_decref(root);
    return status;
}

int weir__archive_commit(const struct weir__io *io, const char *folder,
                         const struct weir__archive_commit *commit) {
    assert(commit->part_count > 0);
    struct committing c = {.io = io, .folder = folder, .commit = commit, .files = json_array()};
    weir__pool_init(&c.pool, io->allocator);
    c.by_name = weir__pool_take(&c.pool, commit->tensor_count, sizeof *c.by_name);
    int status = c.files == NULL || c.by_name == NULL ? no_memory(&c) : WEIR_OK;
    if (status != WEIR_OK) goto out;
    for (uint32_t i = 0; i < commit->tensor_count; i++) c.by_name[i] = &commit->tensors[i];
    qsort(c.by_name, commit->tensor_count, sizeof *c.by_name, compare_items);
    for (uint32_t r = 0; r < commit->part_count; r++)
        if ((status = read_part(&c, r)) != WEIR_OK) goto out;
    if (c.found_count > 0) qsort(c.found, c.found_count, sizeof *c.found, compare_found);
    status = commit_index(&c);
out:
    json_decref(c.files);
    weir__pool_clean_up(&c.pool);
    return status;
}

/* ---- another name ---- */

static int copy_bytes(const struct weir__io *io, const char *from, int descriptor,
                      struct weir__file *file, char *memory) {
    for (;;) {
        ssize_t got = weir__io_read(io, descriptor, memory, COPY_BYTES);
        if (got < 0) return weir__io_fail(io, errno, "read", from);
        if (got == 0) return WEIR_OK;
        int status = weir__file_write(file, memory, (size_t)got);
        if (status != WEIR_OK) return status;
    }
}

static int copy_file(const struct weir__io *io, const char *from, const char *to) {
    struct weir__file file;
    int descriptor = weir__io_open(io, from, O_RDONLY, 0);
    if (descriptor < 0) return weir__io_fail(io, errno, "open", from);
    char *memory = weir__acquire(io->allocator, COPY_BYTES, 1);
    int status = memory == NULL ? weir__io_fail(io, ENOMEM, "copy", from) : WEIR_OK;
    if (status != WEIR_OK) goto out;
    if ((status = weir__file_begin(io, to, &file)) != WEIR_OK) goto out;
    status = copy_bytes(io, from, descriptor, &file, memory);
    if (status != WEIR_OK) {
        weir__file_abort(&file);
        goto out;
    }
    status = weir__file_commit(&file);
out:
    weir__release(io->allocator, memory, COPY_BYTES, 1);
    weir__io_calls_of(io)->close(descriptor);
    return status;
}

/* A part never changes, so one that has the name is the same. */
static int link_part(const struct weir__io *io, const char *from, const char *to,
                     const char *name) {
    char here[PATH_MAX], there[PATH_MAX];
    int status = weir__path_join(io, from, name, here);
    if (status != WEIR_OK) return status;
    if ((status = weir__path_join(io, to, name, there)) != WEIR_OK) return status;
    if (weir__io_calls_of(io)->link(here, there) == 0 || errno == EEXIST) return WEIR_OK;
    return copy_file(io, here, there);
}

static int alias_parts(const struct weir__io *io, const char *from, const char *to,
                       const struct weir__bytes *text) {
    struct weir__index index;
    struct weir__archive_commit commit = {0};
    int status = weir__index_read(io, from, text->data, text->count, &index);
    if (status != WEIR_OK) goto out;
    const char **names = weir__pool_take(&index.pool, index.part_count, sizeof *names);
    status = names == NULL ? weir__io_fail(io, ENOMEM, "save to", to) : WEIR_OK;
    if (status != WEIR_OK) goto out;
    for (uint32_t i = 0; i < index.part_count; i++) {
        names[i] = index.parts[i].name;
        if ((status = link_part(io, from, to, names[i])) != WEIR_OK) goto out;
    }
    commit = (struct weir__archive_commit){.parts = names, .part_count = index.part_count};
    if ((status = flush_folder(io, to)) != WEIR_OK) goto out;
    if ((status = write_index(io, to, text->data, text->count)) != WEIR_OK) goto out;
    status = visit_folder(io, to, remove_superseded, &commit);
out:
    weir__index_clean_up(&index);
    return status;
}

int weir__archive_alias(const struct weir__io *io, const char *from, const char *to) {
    assert(from != NULL && to != NULL);
    char path[PATH_MAX];
    struct weir__bytes text = {0};
    int status = weir__archive_prepare(io, to);
    if (status != WEIR_OK) return status;
    if ((status = weir__path_join(io, from, WEIR__ARCHIVE_INDEX, path)) != WEIR_OK) return status;
    if ((status = weir__file_read(io, path, INDEX_BYTES_MAX, &text)) != WEIR_OK) return status;
    status = alias_parts(io, from, to, &text);
    weir__bytes_release(io->allocator, &text);
    return status;
}

/* ---- removing ---- */

static int remove_own(const struct weir__io *io, const char *folder, const char *name,
                      void *context) {
    char path[PATH_MAX];
    (void)context;
    if (!is_part(name) && !is_index(name)) return WEIR_OK;
    int status = weir__path_join(io, folder, name, path);
    if (status != WEIR_OK) return status;
    if (weir__io_calls_of(io)->unlink(path) == 0 || errno == ENOENT) return WEIR_OK;
    return weir__io_fail(io, errno, "remove", path);
}

/* The index first: what is left of it after a failure is no checkpoint, and says so. */
int weir__archive_remove(const struct weir__io *io, const char *path) {
    assert(path != NULL);
    const struct weir__io_calls *calls = weir__io_calls_of(io);
    struct stat facts;
    if (calls->lstat(path, &facts) != 0)
        return errno == ENOENT ? WEIR_OK : weir__io_fail(io, errno, "remove", path);
    if (!S_ISDIR(facts.st_mode))
        return calls->unlink(path) == 0 || errno == ENOENT
                   ? WEIR_OK
                   : weir__io_fail(io, errno, "remove", path);
    int status = remove_own(io, path, WEIR__ARCHIVE_INDEX, NULL);
    if (status != WEIR_OK) return status;
    if ((status = visit_folder(io, path, remove_own, NULL)) != WEIR_OK) return status;
    if (calls->rmdir(path) == 0 || errno == ENOENT || errno == ENOTEMPTY || errno == EEXIST)
        return WEIR_OK;
    return weir__io_fail(io, errno, "remove", path);
}
