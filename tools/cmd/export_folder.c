/* SPDX-License-Identifier: MIT */
#include "cmd/export_folder.h"

#include "base/name_set.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COPIED_BYTES_MAX = 1 << 30 };
#define SHARD_BYTES 5000000000u
#define INDEX "model.safetensors.index.json"
#define WHOLE "model.safetensors"

/** What is copied, if it is there. A model card is not: it describes other weights. */
static const char *const copied[] = {
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "LICENSE",
    "LICENSE.txt",
    "LICENSE.md",
    "NOTICE",
    "USE_POLICY.md",
};

static const struct {
    const char *name;
    enum weir__stored type;
} dtypes[] = {
    {"float32", WEIR__STORED_F32}, {"float16", WEIR__STORED_F16}, {"bfloat16", WEIR__STORED_BF16}};

struct folder_writing {
    struct weir__io io;
    const struct export_folder *folder;
    struct weir_error damage; /* what went wrong in converting */
    struct weir__pool pool;
    char out[PATH_MAX], partial[PATH_MAX], former[PATH_MAX];
    struct export_stream *streams;
    struct weir__safetensors_item *items; /* of the streams */
    const char **files;                   /* the name of each one's file */
};

static int no_memory(const struct weir__io *io) {
    return weir__fail(io->error, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
}

/* ---- paths ---- */

/** Where `out` leads, without a slash behind it, and the two names beside it. False: too long. */
static bool name_places(struct folder_writing *w) {
    if (weir__link_follow(&w->io, w->folder->out, w->out) != 0) return false;
    size_t length = strlen(w->out);
    while (length > 1 && w->out[length - 1] == '/') w->out[--length] = '\0';
    int partial = snprintf(w->partial, PATH_MAX, "%s.partial", w->out);
    int former = snprintf(w->former, PATH_MAX, "%s.former", w->out);
    return length > 0 && partial > 0 && partial < PATH_MAX && former > 0 && former < PATH_MAX;
}

/** The name of the next entry, or NULL at the end. */
static const char *next_entry(const struct weir__io *io, DIR *opened) {
    const struct dirent *entry;
    do entry = weir__io_calls_of(io)->readdir(opened);
    while (entry != NULL && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
    return entry != NULL ? entry->d_name : NULL;
}

/** Files of a folder, and it. */
static int remove_folder(const struct weir__io *io, const char *path) {
    const struct weir__io_calls *calls = weir__io_calls_of(io);
    char file[PATH_MAX];
    const char *name;
    int status = WEIR_OK;
    DIR *opened = calls->opendir(path);
    if (opened == NULL && errno == ENOENT) return WEIR_OK;
    if (opened == NULL) return weir__io_fail(io, errno, "open the folder", path);
    while (status == WEIR_OK && (name = next_entry(io, opened)) != NULL) {
        status = weir__path_join(io, path, name, file);
        if (status == WEIR_OK && calls->unlink(file) != 0 && errno != ENOENT)
            status = weir__io_fail(io, errno, "remove", file);
    }
    calls->closedir(opened); /* read only: a failure loses nothing */
    if (status != WEIR_OK) return status;
    return calls->rmdir(path) == 0 ? WEIR_OK : weir__io_fail(io, errno, "remove", path);
}

static int flush_folder(const struct weir__io *io, const char *path) {
    int descriptor = weir__io_open(io, path, O_RDONLY | O_DIRECTORY, 0);
    if (descriptor < 0) return weir__io_fail(io, errno, "open the folder", path);
    int number = weir__io_flush(io, descriptor) == 0 || errno == EINVAL ? 0 : errno;
    weir__io_calls_of(io)->close(descriptor);
    return number == 0 ? WEIR_OK : weir__io_fail(io, number, "flush the folder", path);
}

/* ---- before anything is written ---- */

/** What a folder to be replaced holds. */
struct contents {
    bool any, config, others; /* others: folders, links and the like */
};

static int look(const struct weir__io *io, const char *path, struct contents *contents) {
    char file[PATH_MAX];
    const char *name;
    struct stat facts;
    DIR *opened = weir__io_calls_of(io)->opendir(path);
    *contents = (struct contents){0};
    if (opened == NULL) return errno;
    while ((name = next_entry(io, opened)) != NULL) {
        contents->any = true;
        contents->config = contents->config || strcmp(name, "config.json") == 0;
        if (weir__path_join(io, path, name, file) != WEIR_OK ||
            weir__io_calls_of(io)->lstat(file, &facts) != 0 || !S_ISREG(facts.st_mode))
            contents->others = true;
    }
    weir__io_calls_of(io)->closedir(opened);
    return 0;
}

void export_folder_check(const struct weir__io *io, const struct export_folder *folder,
                         struct weir_faults *faults) {
    struct weir__io quiet = {.allocator = io->allocator, .calls = io->calls};
    struct folder_writing w = {.io = quiet, .folder = folder};
    struct contents contents;
    struct stat facts;
    if (!name_places(&w)) {
        weir_faults_add(faults, "--out %.200s: no path for a folder: give another", folder->out);
        return;
    }
    if (weir__io_calls_of(io)->stat(w.former, &facts) == 0)
        weir_faults_add(faults,
                        "%s is what an export that was cut off would have replaced: move it to "
                        "%s, or away",
                        w.former, w.out);
    if (weir__io_calls_of(io)->stat(w.out, &facts) != 0) return;
    int number = S_ISDIR(facts.st_mode) ? look(&quiet, w.out, &contents) : ENOTDIR;
    if (number != 0)
        weir_faults_add(faults, "--out %s: %s: name a folder that is not there yet", w.out,
                        strerror(number));
    else if (contents.any && !folder->replaces)
        weir_faults_add(faults, "--out %s is there already: name another, or give --overwrite",
                        w.out);
    else if (contents.any && (contents.others || !contents.config))
        weir_faults_add(faults,
                        "--out %s has more than a model's files, or no config.json, and is not "
                        "replaced: name another",
                        w.out);
}

/* ---- files that are copied ---- */

static int write_bytes(const struct folder_writing *w, const char *name, const char *data,
                       size_t bytes) {
    char path[PATH_MAX];
    struct weir__file file;
    int status = weir__path_join(&w->io, w->partial, name, path);
    if (status != WEIR_OK) return status;
    if ((status = weir__file_begin(&w->io, path, &file)) != WEIR_OK) return status;
    if ((status = weir__file_write(&file, data, bytes)) != WEIR_OK) {
        weir__file_abort(&file);
        return status;
    }
    return weir__file_commit(&file);
}

/** `bytes` of `name` in the model's folder; *there says whether there is one. */
static int read_bytes(const struct folder_writing *w, const char *name, bool *there,
                      struct weir__bytes *bytes) {
    char path[PATH_MAX];
    *bytes = (struct weir__bytes){0};
    *there = weir__folder_has(&w->io, w->folder->model, name, path);
    return *there ? weir__file_read(&w->io, path, COPIED_BYTES_MAX, bytes) : WEIR_OK;
}

static int copy(const struct folder_writing *w, const char *name) {
    bool there;
    struct weir__bytes bytes;
    int status = read_bytes(w, name, &there, &bytes);
    if (status == WEIR_OK && there) status = write_bytes(w, name, bytes.data, bytes.count);
    weir__bytes_release(w->io.allocator, &bytes);
    return status;
}

/* ---- config.json ---- */

/** The key of the weights' dtype; NULL: it names none. */
static const char *dtype_key(const json_t *root) {
    if (json_is_string(json_object_get(root, "dtype"))) return "dtype";
    return json_is_string(json_object_get(root, "torch_dtype")) ? "torch_dtype" : NULL;
}

/** The text with that key's value replaced where it first stands, for free(); NULL: not found, or
 * no memory. */
static char *replace_value(const char *text, const char *key, const char *from, const char *to) {
    char quoted[32], value[32];
    snprintf(quoted, sizeof quoted, "\"%s\"", key);
    int length = snprintf(value, sizeof value, "\"%.24s\"", from);
    const char *at = strstr(text, quoted);
    if (at == NULL) return NULL;
    at += strlen(quoted);
    at += strspn(at, " \t\r\n:");
    if (strncmp(at, value, (size_t)length) != 0) return NULL;
    size_t size = strlen(text) + strlen(to) + 1;
    char *made = malloc(size);
    if (made != NULL) snprintf(made, size, "%.*s\"%s\"%s", (int)(at - text), text, to, at + length);
    return made;
}

/** The configuration with another dtype, as the text stands if that can be done, for free(). */
static char *with_dtype(json_t *root, const char *text, const char *key, const char *to) {
    char *made = replace_value(text, key, json_string_value(json_object_get(root, key)), to);
    if (json_object_set_new(root, key, json_string(to)) != 0) {
        free(made);
        return NULL;
    }
    json_t *again = made != NULL ? json_loads(made, JSON_REJECT_DUPLICATES, NULL) : NULL;
    bool right = again != NULL && json_equal(again, root) != 0;
    json_decref(again);
    if (right) return made;
    free(made);
    return json_dumps(root, JSON_INDENT(2));
}

static int write_config(const struct folder_writing *w) {
    bool there;
    struct weir__bytes bytes;
    const char *to = dtypes[w->folder->type].name;
    int status = read_bytes(w, "config.json", &there, &bytes);
    if (status != WEIR_OK || !there) {
        weir__bytes_release(w->io.allocator, &bytes);
        return there ? status
                     : weir__io_fail(&w->io, ENOENT, "read config.json of", w->folder->model);
    }
    json_t *root = json_loadb(bytes.data, bytes.count, JSON_REJECT_DUPLICATES, NULL);
    const char *key = dtype_key(root);
    if (key == NULL || strcmp(json_string_value(json_object_get(root, key)), to) == 0) {
        status = write_bytes(w, "config.json", bytes.data, bytes.count);
    } else {
        char *text = with_dtype(root, bytes.data, key, to);
        status =
            text != NULL ? write_bytes(w, "config.json", text, strlen(text)) : no_memory(&w->io);
        free(text);
    }
    json_decref(root);
    weir__bytes_release(w->io.allocator, &bytes);
    return status;
}

enum weir__stored export_folder_type(const char *model) {
    char path[PATH_MAX];
    enum weir__stored type = WEIR__STORED_F32;
    if (weir__path_join(&(struct weir__io){0}, model, "config.json", path) != WEIR_OK) return type;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    const char *key = dtype_key(root);
    for (size_t i = 0; key != NULL && i < WEIR__COUNT_OF(dtypes); i++)
        if (strcmp(json_string_value(json_object_get(root, key)), dtypes[i].name) == 0)
            type = dtypes[i].type;
    json_decref(root);
    return type;
}

/* ---- weights ---- */

static size_t bytes_of(const struct weir__safetensors_item *item) {
    size_t bytes = weir_dtype_bytes(item->dtype);
    for (uint32_t i = 0; i < item->rank; i++) bytes *= (size_t)item->shape[i];
    return bytes;
}

static int make_items(struct folder_writing *w) {
    const struct export_folder *folder = w->folder;
    struct export_room *room = export_room_new(&w->pool);
    w->streams = weir__pool_take(&w->pool, folder->count, sizeof *w->streams);
    w->items = weir__pool_take(&w->pool, folder->count, sizeof *w->items);
    w->files = weir__pool_take(&w->pool, folder->count, sizeof *w->files);
    if (w->pool.failed) return no_memory(&w->io);
    for (uint32_t i = 0; i < folder->count; i++) {
        w->streams[i] = (struct export_stream){
            .from = &folder->items[i], .type = folder->type, .room = room, .error = &w->damage};
        w->items[i] = folder->items[i];
        w->items[i].dtype = weir__stored_dtype(folder->type);
        w->items[i].next = export_stream_next;
        w->items[i].context = &w->streams[i];
    }
    return WEIR_OK;
}

/** Whether the index of the model's folder names a file for each; then they are these. */
static bool take_files(struct folder_writing *w, const json_t *map) {
    for (uint32_t i = 0; i < w->folder->count; i++) {
        const char *name = json_string_value(json_object_get(map, w->items[i].name));
        if (name == NULL || name[0] == '.' || strchr(name, '/') != NULL ||
            !weir__text_ends(name, ".safetensors"))
            return false;
        w->files[i] = weir__pool_text(&w->pool, name);
    }
    return true;
}

static bool as_in_model(struct folder_writing *w) {
    char path[PATH_MAX];
    if (weir__path_join(&w->io, w->folder->model, INDEX, path) != WEIR_OK) return false;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    bool taken = take_files(w, json_object_get(root, "weight_map"));
    json_decref(root);
    return taken;
}

/** Files filled one after the other, so many bytes each, a larger tensor alone. */
static int fill_files(struct folder_writing *w, uint64_t most) {
    uint32_t number = 1;
    uint64_t held = 0;
    uint32_t *numbers = weir__pool_take(&w->pool, w->folder->count, sizeof *numbers);
    if (numbers == NULL) return no_memory(&w->io);
    for (uint32_t i = 0; i < w->folder->count; i++) {
        size_t bytes = bytes_of(&w->items[i]);
        if (held > 0 && (held >= most || bytes > most - held)) {
            number++;
            held = 0;
        }
        held += bytes;
        numbers[i] = number;
    }
    for (uint32_t i = 0; i < w->folder->count; i++) {
        char name[64];
        snprintf(name, sizeof name, "model-%05u-of-%05u.safetensors", numbers[i], number);
        w->files[i] = weir__pool_text(&w->pool, number == 1 ? WHOLE : name);
    }
    return w->pool.failed ? no_memory(&w->io) : WEIR_OK;
}

/** The tensors of the file that tensor `first` is the first of. */
static int write_file(const struct folder_writing *w, uint32_t first,
                      struct weir__safetensors_item *chosen) {
    static const struct weir__safetensors_text format = {"format", "pt"};
    char path[PATH_MAX];
    uint32_t count = 0;
    for (uint32_t i = first; i < w->folder->count; i++)
        if (strcmp(w->files[i], w->files[first]) == 0) chosen[count++] = w->items[i];
    int status = weir__path_join(&w->io, w->partial, w->files[first], path);
    if (status != WEIR_OK) return status;
    return weir__safetensors_save(&w->io, path, chosen, count, &format, 1);
}

static int write_index(const struct folder_writing *w) {
    json_int_t bytes = 0, numbers = 0;
    json_t *map = json_object();
    bool done = map != NULL;
    for (uint32_t i = 0; i < w->folder->count; i++) {
        size_t all = bytes_of(&w->items[i]);
        bytes += (json_int_t)all;
        numbers += (json_int_t)(all / weir_dtype_bytes(w->items[i].dtype));
        done = done && json_object_set_new(map, w->items[i].name, json_string(w->files[i])) == 0;
    }
    json_t *root = json_pack("{s:{s:I,s:I},s:o}", "metadata", "total_parameters", numbers,
                             "total_size", bytes, "weight_map", map);
    char *text = done && root != NULL ? json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
    int status = text != NULL ? write_bytes(w, INDEX, text, strlen(text)) : no_memory(&w->io);
    free(text);
    json_decref(root);
    return status;
}

static int write_weights(struct folder_writing *w) {
    int status = make_items(w);
    if (status != WEIR_OK) return status;
    uint64_t most = w->folder->shard_bytes;
    if (most > 0 || !as_in_model(w)) status = fill_files(w, most > 0 ? most : SHARD_BYTES);
    struct weir__safetensors_item *chosen =
        weir__pool_take(&w->pool, w->folder->count, sizeof *chosen);
    struct weir__name_set written;
    weir__name_set_init(&written, &w->pool);
    if (status == WEIR_OK && w->pool.failed) status = no_memory(&w->io);
    for (uint32_t i = 0; status == WEIR_OK && i < w->folder->count; i++) {
        if (weir__name_set_find(&written, w->files[i]) != WEIR__NO_NAME) continue;
        if (!weir__name_set_add(&written, w->files[i], i)) return no_memory(&w->io);
        status = write_file(w, i, chosen);
    }
    if (status != WEIR_OK || strcmp(w->files[0], WHOLE) == 0) return status;
    return write_index(w);
}

/* ---- the folder ---- */

/** An empty folder is replaced by the rename itself. */
static int put_in_place(const struct folder_writing *w) {
    const struct weir__io_calls *calls = weir__io_calls_of(&w->io);
    if (calls->rename(w->partial, w->out) == 0) return WEIR_OK;
    if ((errno != ENOTEMPTY && errno != EEXIST) || !w->folder->replaces)
        return weir__io_fail(&w->io, errno, "make the folder", w->out);
    if (calls->rename(w->out, w->former) != 0)
        return weir__io_fail(&w->io, errno, "replace", w->out);
    if (calls->rename(w->partial, w->out) != 0) {
        int status = weir__io_fail(&w->io, errno, "make the folder", w->out);
        if (calls->rename(w->former, w->out) == 0) return status;
        return weir__fail(w->io.error, status, "cannot replace %s: it is now called %s", w->out,
                          w->former);
    }
    return remove_folder(&w->io, w->former);
}

static int write_all(struct folder_writing *w) {
    int status = remove_folder(&w->io, w->partial);
    if (status != WEIR_OK) return status;
    if (weir__io_calls_of(&w->io)->mkdir(w->partial, 0777) != 0)
        return weir__io_fail(&w->io, errno, "make the folder", w->partial);
    for (size_t i = 0; status == WEIR_OK && i < WEIR__COUNT_OF(copied); i++)
        status = copy(w, copied[i]);
    if (status != WEIR_OK) return status;
    if ((status = write_config(w)) != WEIR_OK) return status;
    if ((status = write_weights(w)) != WEIR_OK) return status;
    if ((status = flush_folder(&w->io, w->partial)) != WEIR_OK) return status;
    return put_in_place(w);
}

int export_folder_write(const struct weir__io *io, const struct export_folder *folder) {
    assert(folder->type != WEIR__STORED_Q8_0 && folder->count > 0);
    struct folder_writing w = {.io = *io, .folder = folder};
    struct weir__io quiet = {.allocator = io->allocator, .calls = io->calls};
    if (!name_places(&w)) return weir__io_fail(io, ENAMETOOLONG, "make the folder", folder->out);
    weir__pool_init(&w.pool, io->allocator);
    int status = write_all(&w);
    if (status != WEIR_OK) (void)remove_folder(&quiet, w.partial); /* the first failure counts */
    /* why it could not be converted says more than that it could not be written */
    if (status != WEIR_OK && w.damage.status != WEIR_OK && io->error != NULL) *io->error = w.damage;
    weir__pool_clean_up(&w.pool);
    return status;
}
