/* SPDX-License-Identifier: MIT */
/*
 * Plans on disk, for making one can take a second of heuristics and compiling: a file for each, of
 * one line that says for what it is (format, GPU, versions, shape), one with the length and
 * a hash of the rest and which engine it is of, and the library's own JSON. What does not begin and
 * end as it should is no plan: it is passed over and written anew.
 */
#include "io/file.h"
#include "net/cuda/cudnn.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_MAX = 1024, JSON_MAX = 8 << 20 };
#define KEY_BEGIN "weir cudnn plan 4: "

/* ---- for what ---- */

void weir__cudnn_key_init(const struct weir__cudnn *cudnn, const char *what, const int64_t *numbers,
                          size_t count, struct weir__cudnn_key *key) {
    size_t capacity = sizeof key->text;
    int used =
        snprintf(key->text, capacity, KEY_BEGIN "%s: %s: %s", cudnn->gpu, cudnn->versions, what);
    for (size_t i = 0; i < count; i++)
        used += snprintf(key->text + used, capacity - (size_t)used, " %" PRId64, numbers[i]);
    assert(used < (int)capacity);
}

static uint64_t hash_of(const char *data, size_t bytes) {
    return weir__hash(WEIR__HASH_BEGIN, data, bytes);
}

struct path {
    char text[WEIR__CACHE_FOLDER_MAX + 64];
};

static void path_of(const struct weir__cudnn *cudnn, const char *key, struct path *path) {
    snprintf(path->text, sizeof path->text, "%s/cudnn-%016" PRIx64, cudnn->folder,
             hash_of(key, strlen(key)));
}

/** What a file's head says of the plan behind it. */
struct head {
    int64_t engine;
    uint64_t settings;
};

static int write_head(const char *key, const struct head *of, const char *json, size_t bytes,
                      char head[HEAD_MAX]) {
    return snprintf(head, HEAD_MAX, "%s\n%zu %016" PRIx64 " %" PRId64 " %016" PRIx64 "\n", key,
                    bytes, hash_of(json, bytes), of->engine, of->settings);
}

/* ---- loading ---- */

/** The JSON behind a head that is right; NULL: it is not. */
static const char *find_json(const struct weir__bytes *bytes, const char *key, struct head *of,
                             size_t *count) {
    char head[HEAD_MAX];
    const char *line = memchr(bytes->data, '\n', bytes->count);
    const char *end = line == NULL ? NULL : strchr(line + 1, '\n');
    if (end == NULL) return NULL;
    if (sscanf(line + 1, "%*u %*x %" SCNd64 " %" SCNx64, &of->engine, &of->settings) != 2)
        return NULL;
    const char *json = end + 1;
    *count = bytes->count - (size_t)(json - bytes->data);
    int length = write_head(key, of, json, *count, head);
    bool right = length > 0 && length < HEAD_MAX && length == json - bytes->data &&
                 memcmp(head, bytes->data, (size_t)length) == 0;
    return right ? json : NULL;
}

static int plan_from(const struct weir__cudnn *cudnn, void *handle, const char *json, size_t count,
                     struct weir__cudnn_plan *plan) {
    int result = cudnn->descriptor_create(WEIR__CUDNN_EXECUTION_PLAN, &plan->plan);
    if (result == 0) result = weir__cudnn_plan_place(cudnn, handle, plan);
    if (result == 0)
        result = cudnn->set(plan->plan, WEIR__CUDNN_EXECUTION_PLAN_JSON_REPRESENTATION,
                            WEIR__CUDNN_TYPE_CHAR, (int64_t)count, json);
    if (result != 0) return result;
    if ((result = cudnn->finalize(plan->plan)) != 0) return result;
    return weir__cudnn_plan_measure(cudnn, plan);
}

static bool read_file(const struct weir__cudnn *cudnn, const char *key, struct weir__bytes *bytes) {
    const struct weir__io io = {NULL, NULL, NULL};
    struct path path;
    *bytes = (struct weir__bytes){NULL, 0, 0};
    if (cudnn->folder[0] == '\0') return false;
    path_of(cudnn, key, &path);
    return weir__file_read(&io, path.text, JSON_MAX + HEAD_MAX, bytes) == WEIR_OK;
}

bool weir__cudnn_cache_load(const struct weir__cudnn *cudnn, void *handle,
                            const struct weir__cudnn_keys *keys, size_t workspace_max,
                            struct weir__cudnn_plan *plan) {
    struct weir__bytes bytes;
    struct head head;
    size_t count = 0;
    *plan = (struct weir__cudnn_plan){NULL, 0, 0, 0};
    if (!read_file(cudnn, keys->own.text, &bytes)) return false;
    const char *json = find_json(&bytes, keys->own.text, &head, &count);
    bool loaded = json != NULL && !weir__cudnn_is_dropped(cudnn, &keys->shape, head.settings) &&
                  plan_from(cudnn, handle, json, count, plan) == 0 &&
                  plan->workspace <= workspace_max;
    weir__bytes_release(NULL, &bytes);
    if (loaded) {
        plan->engine = head.engine;
        plan->settings = head.settings;
        return true;
    }
    weir__cudnn_forget(cudnn, plan->plan);
    *plan = (struct weir__cudnn_plan){NULL, 0, 0, 0};
    return false;
}

/* ---- saving ---- */

static void write_file(const struct weir__cudnn *cudnn, const char *key, const struct head *of,
                       const char *json, size_t count) {
    const struct weir__io io = {NULL, NULL, NULL};
    struct weir__file file;
    struct path path;
    char head[HEAD_MAX];
    int length = write_head(key, of, json, count, head);
    path_of(cudnn, key, &path);
    if (weir__file_begin(&io, path.text, &file) != WEIR_OK) return;
    (void)weir__file_write(&file, head, (size_t)length);
    (void)weir__file_write(&file, json, count);
    (void)weir__file_commit(&file);
}

void weir__cudnn_cache_save(const struct weir__cudnn *cudnn, const struct weir__cudnn_key *key,
                            const struct weir__cudnn_plan *plan) {
    const int attribute = WEIR__CUDNN_EXECUTION_PLAN_JSON_REPRESENTATION;
    int64_t capacity = 0, count = 0;
    if (cudnn->folder[0] == '\0' || atomic_load(&cudnn->unproven)) return;
    int result = cudnn->get(plan->plan, attribute, WEIR__CUDNN_TYPE_CHAR, 0, &capacity, NULL);
    if (result != 0 || capacity <= 0 || capacity > JSON_MAX) return;
    char *json = weir__acquire(NULL, (size_t)capacity, 1);
    if (json == NULL) return;
    result = cudnn->get(plan->plan, attribute, WEIR__CUDNN_TYPE_CHAR, capacity, &count, json);
    if (count > capacity) count = 0;
    while (count > 0 && json[count - 1] == '\0') count--;
    const struct head head = {plan->engine, plan->settings};
    if (result == 0 && count > 0) write_file(cudnn, key->text, &head, json, (size_t)count);
    weir__release(NULL, json, (size_t)capacity, 1);
}

/* ---- what there is ---- */

static int by_what(const void *a, const void *b) {
    const struct weir__cudnn_kept *x = a, *y = b;
    int order = strcmp(x->what, y->what);
    return order != 0 ? order : (x->engine > y->engine) - (x->engine < y->engine);
}

/** The head of a file that is whole, and its first line. */
static bool read_head(const char *folder, const char *name, char key[HEAD_MAX], struct head *of) {
    const struct weir__io io = {NULL, NULL, NULL};
    struct weir__bytes bytes = {NULL, 0, 0};
    struct path path;
    size_t count;
    snprintf(path.text, sizeof path.text, "%s/%.48s", folder, name);
    if (weir__file_read(&io, path.text, JSON_MAX + HEAD_MAX, &bytes) != WEIR_OK) return false;
    const char *line = memchr(bytes.data, '\n', bytes.count);
    size_t length = line != NULL ? (size_t)(line - bytes.data) : HEAD_MAX;
    bool whole = length < HEAD_MAX;
    if (whole) snprintf(key, HEAD_MAX, "%.*s", (int)length, bytes.data);
    whole = whole && find_json(&bytes, key, of, &count) != NULL;
    weir__bytes_release(NULL, &bytes);
    return whole;
}

static void count_plan(const char *what, int64_t engine, struct weir__cudnn_kept *list,
                       uint32_t most, uint32_t *count) {
    struct weir__cudnn_kept one = {.engine = engine, .plans = 1};
    snprintf(one.what, sizeof one.what, "%.*s", (int)strcspn(what, " "), what);
    uint32_t i = 0;
    while (i < *count && by_what(&list[i], &one) != 0) i++;
    if (i < *count)
        list[i].plans++;
    else if (*count < most)
        list[(*count)++] = one;
}

uint32_t weir__cudnn_kept(const char *folder, const char *gpu, int driver,
                          struct weir__cudnn_kept *list, uint32_t most) {
    char begin[320], key[HEAD_MAX];
    uint32_t count = 0;
    DIR *files = folder[0] != '\0' ? opendir(folder) : NULL;
    if (files == NULL) return 0;
    int length = snprintf(begin, sizeof begin, KEY_BEGIN "%.200s: driver %d,", gpu, driver);
    for (const struct dirent *file; (file = readdir(files)) != NULL;) {
        struct head of;
        if (strncmp(file->d_name, "cudnn-", strlen("cudnn-")) != 0) continue;
        if (!read_head(folder, file->d_name, key, &of)) continue;
        if (strncmp(key, begin, (size_t)length) != 0) continue;
        const char *what = strrchr(key, ':');
        if (what != NULL && what[1] == ' ') count_plan(what + 2, of.engine, list, most, &count);
    }
    (void)closedir(files);
    qsort(list, count, sizeof *list, by_what);
    return count;
}

/* ---- what is no more used ---- */

static uint64_t dropped_hash(const struct weir__cudnn_key *shape, uint64_t settings) {
    return weir__hash(hash_of(shape->text, strlen(shape->text)), &settings, sizeof settings);
}

/** A file of its own, without a plan. */
static void key_of_dropped(uint64_t hash, struct weir__cudnn_key *key) {
    snprintf(key->text, sizeof key->text, KEY_BEGIN "never %016" PRIx64, hash);
}

static bool is_on_disk(const struct weir__cudnn *cudnn, const char *key) {
    struct weir__bytes bytes;
    struct head head;
    size_t count = 0;
    if (!read_file(cudnn, key, &bytes)) return false;
    bool found = find_json(&bytes, key, &head, &count) != NULL;
    weir__bytes_release(NULL, &bytes);
    return found;
}

bool weir__cudnn_drop(struct weir__cudnn *cudnn, const struct weir__cudnn_key *shape,
                      uint64_t settings) {
    uint64_t hash = dropped_hash(shape, settings);
    assert(hash != 0 && shape->text[0] != '\0');
    for (size_t i = 0; i < WEIR__CUDNN_DROPPED_MAX; i++) {
        uint64_t found = 0;
        if (!atomic_compare_exchange_strong(&cudnn->dropped[i], &found, hash) && found != hash)
            continue;
        atomic_store(&cudnn->unproven, true); /* after it, for who keeps looks in this order */
        return true;
    }
    return false;
}

void weir__cudnn_dropped_keep(void *convolutions) {
    static const struct head none = {-1, 0};
    struct weir__cudnn *cudnn = convolutions;
    struct weir__cudnn_key key;
    if (!atomic_exchange(&cudnn->unproven, false) || cudnn->folder[0] == '\0') return;
    for (size_t i = 0; i < WEIR__CUDNN_DROPPED_MAX; i++) {
        uint64_t hash = atomic_load(&cudnn->dropped[i]);
        if (hash == 0) return;
        key_of_dropped(hash, &key);
        if (!is_on_disk(cudnn, key.text)) write_file(cudnn, key.text, &none, "{}", 2);
    }
}

bool weir__cudnn_is_dropped(const struct weir__cudnn *cudnn, const struct weir__cudnn_key *shape,
                            uint64_t settings) {
    struct weir__cudnn_key key;
    uint64_t hash = dropped_hash(shape, settings);
    for (size_t i = 0; i < WEIR__CUDNN_DROPPED_MAX; i++)
        if (atomic_load(&cudnn->dropped[i]) == hash) return true;
    key_of_dropped(hash, &key);
    return is_on_disk(cudnn, key.text);
}
