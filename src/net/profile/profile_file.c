/* SPDX-License-Identifier: MIT */
/* Profiles as JSON. One table says which number of a layer stands under which name, for writing and
 * for reading. */
#include "io/file.h"
#include "net/profile/profile.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FORM = 1, FILE_BYTES_MAX = 64 << 20, LAYERS_MAX = 65536, RANKS_MAX = 32768 };

struct field {
    const char *name;
    size_t offset;
};

#define SECONDS(name, kind)                                                                        \
    { name, offsetof(struct weir_layer_cost, seconds) + WEIR_KIND_##kind * sizeof(double) }
#define FIELD(name)                                                                                \
    { #name, offsetof(struct weir_layer_cost, name) }
static const struct field times[] = {SECONDS("forward", F),        FIELD(forward_checkpoint),
                                     SECONDS("recompute", R),      FIELD(recompute_last),
                                     SECONDS("backward", B),       SECONDS("backward_input", I),
                                     SECONDS("backward_weight", W)};
static const struct field sizes[] = {FIELD(saved),      FIELD(saved_output),    FIELD(weight_saved),
                                     FIELD(border),     FIELD(border_gradient), FIELD(workspace),
                                     FIELD(parameters), FIELD(trainable),       FIELD(gradients),
                                     FIELD(optimizer),  FIELD(copied)};
static const struct field marks[] = {FIELD(copied_learns), FIELD(no_backward), FIELD(joined)};

static void *field_of(const struct weir_layer_cost *layer, const struct field *field) {
    return (char *)layer + field->offset;
}

/* ---- writing ---- */

static json_t *layer_json(const struct weir_layer_cost *layer) {
    json_t *object = json_object();
    for (size_t i = 0; i < WEIR__COUNT_OF(times); i++)
        json_object_set_new(object, times[i].name,
                            json_real(*(double *)field_of(layer, &times[i])));
    for (size_t i = 0; i < WEIR__COUNT_OF(sizes); i++)
        json_object_set_new(object, sizes[i].name,
                            json_integer((json_int_t) * (uint64_t *)field_of(layer, &sizes[i])));
    for (size_t i = 0; i < WEIR__COUNT_OF(marks); i++)
        json_object_set_new(object, marks[i].name,
                            json_boolean(*(bool *)field_of(layer, &marks[i])));
    json_object_set_new(object, "copied_from", json_integer(layer->copied_from));
    return object;
}

static json_t *skip_json(const struct weir_skip_route *skip) {
    json_t *readers = json_array();
    for (uint32_t r = 0; r < skip->reader_count; r++)
        json_array_append_new(readers, json_integer(skip->readers[r]));
    return json_pack("{s:s, s:s, s:I, s:o, s:I, s:b}", "namespace", skip->name_space, "skip",
                     skip->name, "source", (json_int_t)skip->source, "readers", readers, "bytes",
                     (json_int_t)skip->bytes, "differentiable", skip->differentiable);
}

static json_t *head_json(const struct weir_profile *profile) {
    char model[24];
    const double *whole = profile->seconds;
    snprintf(model, sizeof model, "%016" PRIx64, profile->model);
    return json_pack(
        "{s:i, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:s, s:b, s:b, s:b, s:I, s:f, s:f,"
        " s:I, s:{s:f, s:f, s:f, s:f, s:f}}",
        "weir_profile", FORM, "version", profile->version, "device", profile->device, "machine",
        profile->machine, "libraries", profile->libraries, "model", model, "rows",
        (json_int_t)profile->rows, "threads", (json_int_t)profile->threads, "dtype",
        weir_dtype_name(profile->dtype), "reference", profile->reference, "infer_only",
        profile->infer_only, "measured", profile->measured, "steps", (json_int_t)profile->steps,
        "spread", profile->spread, "task", profile->costs.task_seconds, "optimizer_arrays",
        (json_int_t)profile->costs.optimizer_arrays, "whole", "forward", whole[WEIR_KIND_F],
        "recompute", whole[WEIR_KIND_R], "backward", whole[WEIR_KIND_B], "backward_input",
        whole[WEIR_KIND_I], "backward_weight", whole[WEIR_KIND_W]);
}

static json_t *ranks_json(const struct weir_profile *profile) {
    json_t *ranks = json_array();
    for (uint32_t r = 0; r < profile->costs.rank_count; r++)
        json_array_append_new(ranks, json_pack("{s:s, s:s, s:f}", "host", profile->ranks[r].host,
                                               "machine", profile->ranks[r].machine, "pace",
                                               profile->costs.rank_paces[r]));
    return ranks;
}

static json_t *profile_json(const struct weir_profile *profile) {
    json_t *root = head_json(profile), *layers = json_array(), *skips = json_array();
    for (uint32_t i = 0; i < profile->costs.layer_count; i++)
        json_array_append_new(layers, layer_json(&profile->costs.layers[i]));
    for (uint32_t i = 0; i < profile->costs.skip_count; i++)
        json_array_append_new(skips, skip_json(&profile->costs.skips[i]));
    json_object_set_new(root, "layers", layers);
    json_object_set_new(root, "skips", skips);
    if (profile->costs.rank_count > 0) json_object_set_new(root, "ranks", ranks_json(profile));
    if (profile->other != NULL) json_object_set_new(root, "other", profile_json(profile->other));
    return root;
}

struct writing {
    weir_write_fn *write;
    void *context;
    int status;
};

static int write_some(const char *text, size_t bytes, void *context) {
    struct writing *writing = context;
    writing->status = writing->write(writing->context, text, bytes);
    return writing->status == WEIR_OK ? 0 : -1;
}

int weir_profile_write(const struct weir_profile *profile, weir_write_fn *write, void *context) {
    struct writing writing = {write, context, WEIR_OK};
    json_t *root = profile_json(profile);
    if (root == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int written =
        json_dump_callback(root, write_some, &writing, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    json_decref(root);
    if (writing.status != WEIR_OK) return writing.status;
    return written == 0 ? write(context, "\n", 1) : WEIR_ERR_OUT_OF_MEMORY;
}

static int write_file(void *file, const char *text, size_t bytes) {
    return weir__file_write(file, text, bytes);
}

int weir_profile_save(const struct weir_profile *profile, const char *path,
                      struct weir_error *error) {
    struct weir__io io = {
        .allocator = ((const struct weir__profile_state *)profile)->pool.allocator, .error = error};
    struct weir__file file;
    weir__error_clear(error);
    int status = weir__file_begin(&io, path, &file);
    if (status != WEIR_OK) return status;
    status = weir_profile_write(profile, write_file, &file);
    if (status == WEIR_OK) return weir__file_commit(&file);
    weir__file_abort(&file);
    return status == WEIR_ERR_OUT_OF_MEMORY ? weir__fail(error, status, "out of memory") : status;
}

/* ---- reading: every function gives false after a fault, which names the spot ---- */

struct profile_reading {
    const char *name;
    struct weir_faults *faults;
    const char *within; /* "other.", or "" */
    const char *spot;   /* "layers[3]", or "" */
};

static bool fault(const struct profile_reading *r, const char *key, const char *want) {
    const char *dot = r->spot[0] != '\0' ? "." : "";
    weir_faults_add(r->faults, "%s: %s%s%s%s must be %s: measure again with 'weir profile'",
                    r->name, r->within, r->spot, dot, key, want);
    return false;
}

static bool read_seconds(const struct profile_reading *r, json_t *object, const char *key,
                         double *out) {
    json_t *value = json_object_get(object, key);
    double seconds = json_number_value(value);
    if (!json_is_number(value) || !(seconds >= 0) || seconds > 1e9)
        return fault(r, key, "a number of seconds");
    *out = seconds;
    return true;
}

static bool read_natural(const struct profile_reading *r, json_t *object, const char *key,
                         uint64_t most, uint64_t *out) {
    json_t *value = json_object_get(object, key);
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 0 || (uint64_t)number > most)
        return fault(r, key, "a whole number that is not negative, and not as large");
    *out = (uint64_t)number;
    return true;
}

static bool read_mark(const struct profile_reading *r, json_t *object, const char *key, bool *out) {
    json_t *value = json_object_get(object, key);
    if (!json_is_boolean(value)) return fault(r, key, "true or false");
    *out = json_is_true(value);
    return true;
}

static bool read_text(const struct profile_reading *r, json_t *object, const char *key, char *out,
                      size_t capacity) {
    assert(capacity > 0);
    const char *text = json_string_value(json_object_get(object, key));
    if (text == NULL || strlen(text) >= capacity) return fault(r, key, "a text, and not as long");
    snprintf(out, capacity, "%s", text);
    return true;
}

static bool read_layer(const struct profile_reading *r, json_t *object,
                       struct weir_layer_cost *layer) {
    bool good = true;
    for (size_t i = 0; good && i < WEIR__COUNT_OF(times); i++)
        good = read_seconds(r, object, times[i].name, field_of(layer, &times[i]));
    for (size_t i = 0; good && i < WEIR__COUNT_OF(sizes); i++)
        good =
            read_natural(r, object, sizes[i].name, (uint64_t)1 << 50, field_of(layer, &sizes[i]));
    for (size_t i = 0; good && i < WEIR__COUNT_OF(marks); i++)
        good = read_mark(r, object, marks[i].name, field_of(layer, &marks[i]));
    uint64_t from = 0;
    good = good && read_natural(r, object, "copied_from", LAYERS_MAX, &from);
    layer->copied_from = (uint32_t)from;
    if (good && layer->saved_output > layer->saved)
        return fault(r, "saved_output", "a part of saved");
    if (good && layer->trainable > layer->parameters)
        return fault(r, "trainable", "a part of parameters");
    return good;
}

static bool read_readers(const struct profile_reading *r, struct weir__pool *pool, json_t *list,
                         uint64_t layers, struct weir_skip_route *skip) {
    size_t count = json_array_size(list);
    uint32_t *readers = weir__pool_take(pool, count, sizeof *readers);
    uint32_t before = skip->source;
    bool good = json_is_array(list) && readers != NULL;
    for (size_t i = 0; good && i < count; i++) {
        json_t *value = json_array_get(list, i);
        json_int_t reader = json_integer_value(value);
        good = json_is_integer(value) && reader > (json_int_t)before && reader < (json_int_t)layers;
        before = readers[i] = good ? (uint32_t)reader : 0;
    }
    skip->readers = readers;
    skip->reader_count = (uint32_t)count;
    return good || fault(r, "readers", "layers behind the source, ascending");
}

static bool read_skip(const struct profile_reading *r, struct weir__profile_state *profile,
                      json_t *object, struct weir_skip_route *skip) {
    assert(profile->shown.costs.layer_count >= 1);
    const char *name = json_string_value(json_object_get(object, "skip"));
    const char *space = json_string_value(json_object_get(object, "namespace"));
    uint64_t layers = profile->shown.costs.layer_count, source = 0;
    if (name == NULL || space == NULL) return fault(r, "skip", "a name, with a namespace");
    skip->name = weir__pool_text(&profile->pool, name);
    skip->name_space = weir__pool_text(&profile->pool, space);
    if (!read_natural(r, object, "source", layers - 1, &source)) return false;
    skip->source = (uint32_t)source;
    return read_natural(r, object, "bytes", (uint64_t)1 << 50, &skip->bytes) &&
           read_mark(r, object, "differentiable", &skip->differentiable) &&
           read_readers(r, &profile->pool, json_object_get(object, "readers"), layers, skip);
}

static bool read_whole(const struct profile_reading *r, json_t *object, double *seconds) {
    return read_seconds(r, object, "forward", &seconds[WEIR_KIND_F]) &&
           read_seconds(r, object, "recompute", &seconds[WEIR_KIND_R]) &&
           read_seconds(r, object, "backward", &seconds[WEIR_KIND_B]) &&
           read_seconds(r, object, "backward_input", &seconds[WEIR_KIND_I]) &&
           read_seconds(r, object, "backward_weight", &seconds[WEIR_KIND_W]);
}

static bool read_dtype(const struct profile_reading *r, json_t *root, enum weir_dtype *dtype) {
    char text[16];
    if (!read_text(r, root, "dtype", text, sizeof text)) return false;
    for (uint32_t d = 0; d < WEIR_DTYPE_COUNT; d++) {
        *dtype = (enum weir_dtype)d;
        if (strcmp(text, weir_dtype_name(*dtype)) == 0) return true;
    }
    return fault(r, "dtype", "f32, f64 or bf16");
}

static bool read_counts(const struct profile_reading *r, json_t *root,
                        struct weir_profile *profile) {
    char model[24];
    uint64_t rows = 0, threads = 0, steps = 0;
    bool good = read_natural(r, root, "rows", INT32_MAX, &rows) &&
                read_natural(r, root, "threads", 65535, &threads) &&
                read_natural(r, root, "steps", UINT32_MAX, &steps) &&
                read_text(r, root, "model", model, sizeof model);
    if (!good) return false;
    profile->rows = (int64_t)rows;
    profile->threads = (uint32_t)threads;
    profile->steps = (uint32_t)steps;
    int end = 0;
    bool hex = sscanf(model, "%16" SCNx64 "%n", &profile->model, &end) == 1 && end == 16;
    return (hex && model[16] == '\0') || fault(r, "model", "16 hexadecimal digits");
}

static bool read_arrays(const struct profile_reading *r, json_t *root, uint32_t *out) {
    uint64_t arrays = 0;
    if (!read_natural(r, root, "optimizer_arrays", 16, &arrays)) return false;
    *out = (uint32_t)arrays;
    return true;
}

/** Files from before there were GPUs do not say it. */
static bool read_device(const struct profile_reading *r, json_t *root,
                        struct weir_profile *profile) {
    snprintf(profile->device, sizeof profile->device, "cpu");
    if (json_object_get(root, "device") == NULL) return true;
    return read_text(r, root, "device", profile->device, sizeof profile->device);
}

static bool read_head(const struct profile_reading *r, json_t *root, struct weir_profile *profile) {
    return read_text(r, root, "version", profile->version, sizeof profile->version) &&
           read_device(r, root, profile) &&
           read_text(r, root, "machine", profile->machine, sizeof profile->machine) &&
           read_text(r, root, "libraries", profile->libraries, sizeof profile->libraries) &&
           read_counts(r, root, profile) && read_dtype(r, root, &profile->dtype) &&
           read_mark(r, root, "reference", &profile->reference) &&
           read_mark(r, root, "infer_only", &profile->infer_only) &&
           read_mark(r, root, "measured", &profile->measured) &&
           read_seconds(r, root, "spread", &profile->spread) &&
           read_seconds(r, root, "task", &profile->costs.task_seconds) &&
           read_arrays(r, root, &profile->costs.optimizer_arrays) &&
           read_whole(r, json_object_get(root, "whole"), profile->seconds);
}

static bool read_lists(struct profile_reading *r, json_t *root,
                       struct weir__profile_state *profile) {
    json_t *layers = json_object_get(root, "layers"), *skips = json_object_get(root, "skips");
    size_t skip_count = json_array_size(skips);
    struct weir_skip_route *list = weir__pool_take(&profile->pool, skip_count, sizeof *list);
    char spot[48];
    bool good = json_is_array(skips) && list != NULL;
    if (!good) return fault(r, "skips", "a list");
    r->spot = spot;
    for (uint32_t i = 0; good && i < profile->shown.costs.layer_count; i++) {
        snprintf(spot, sizeof spot, "layers[%u]", i);
        good = read_layer(r, json_array_get(layers, i), &profile->layers[i]);
    }
    for (uint32_t i = 0; good && i < skip_count; i++) {
        snprintf(spot, sizeof spot, "skips[%u]", i);
        good = read_skip(r, profile, json_array_get(skips, i), &list[i]);
    }
    profile->shown.costs.skips = list;
    profile->shown.costs.skip_count = (uint32_t)skip_count;
    r->spot = "";
    return good;
}

/* Of a profile of several ranks. */
static bool read_ranks(struct profile_reading *r, json_t *root,
                       struct weir__profile_state *profile) {
    json_t *list = json_object_get(root, "ranks");
    size_t count = json_array_size(list);
    struct weir_profile_rank *ranks;
    double *paces;
    char spot[48];
    if (list == NULL) return true;
    bool good = json_is_array(list) && count >= 1 && count <= RANKS_MAX;
    if (!good) return fault(r, "ranks", "a list of 1 to 32768");
    if (weir__profile_take_ranks(profile, (uint32_t)count, &paces, &ranks) != WEIR_OK)
        return fault(r, "ranks", "few enough for the memory there is");
    r->spot = spot;
    for (uint32_t i = 0; good && i < count; i++) {
        json_t *rank = json_array_get(list, i), *pace = json_object_get(rank, "pace");
        snprintf(spot, sizeof spot, "ranks[%u]", i);
        good = read_text(r, rank, "host", ranks[i].host, sizeof ranks[i].host) &&
               read_text(r, rank, "machine", ranks[i].machine, sizeof ranks[i].machine);
        paces[i] = json_number_value(pace);
        if (good && !(json_is_number(pace) && paces[i] > 0 && paces[i] <= 1))
            good = fault(r, "pace", "a number above 0, at most 1");
    }
    r->spot = "";
    return good;
}

static int read_profile(struct profile_reading *r, const struct weir_allocator *allocator,
                        json_t *root, struct weir__profile_state **profile) {
    size_t layers = json_array_size(json_object_get(root, "layers"));
    if (json_integer_value(json_object_get(root, "weir_profile")) != FORM) {
        weir_faults_add(r->faults,
                        "%s is no profile of this version: write one with 'weir profile'", r->name);
        return WEIR_ERR_FORMAT;
    }
    if (layers < 1 || layers > LAYERS_MAX) {
        fault(r, "layers", "a list of 1 to 65536");
        return WEIR_ERR_FORMAT;
    }
    int status = weir__profile_acquire(allocator, (uint32_t)layers, profile);
    if (status != WEIR_OK) return status;
    if (read_head(r, root, &(*profile)->shown) && read_lists(r, root, *profile) &&
        read_ranks(r, root, *profile))
        return WEIR_OK;
    weir_profile_destroy(&(*profile)->shown);
    return WEIR_ERR_FORMAT;
}

/** Whether the one is of CPUs, and the other of GPUs, with all else the same. */
static bool are_alike(const struct weir_profile *a, const struct weir_profile *b) {
    bool of_ranks = a->costs.rank_count > 0 || b->costs.rank_count > 0; /* nobody measures that */
    return !of_ranks && a->costs.layer_count == b->costs.layer_count && a->model == b->model &&
           a->rows == b->rows && a->dtype == b->dtype && a->reference == b->reference &&
           a->infer_only == b->infer_only && a->measured == b->measured &&
           strcmp(a->version, b->version) == 0 && strcmp(a->device, "cpu") == 0 &&
           strcmp(b->device, "cuda") == 0;
}

/** And what it says of GPUs, where it does. */
static int read_both(struct profile_reading *r, const struct weir_allocator *allocator,
                     json_t *root, struct weir__profile_state **profile) {
    struct weir__profile_state *other;
    json_t *second = json_object_get(root, "other");
    int status = read_profile(r, allocator, root, profile);
    if (status != WEIR_OK || second == NULL) return status;
    r->within = "other.";
    status = read_profile(r, allocator, second, &other);
    r->within = "";
    if (status == WEIR_OK && are_alike(&(*profile)->shown, &other->shown)) {
        weir__profile_join(*profile, other);
        return WEIR_OK;
    }
    if (status == WEIR_OK) {
        fault(r, "other", "of the same net on GPUs, beside one of CPUs");
        weir_profile_destroy(&other->shown);
    }
    weir_profile_destroy(&(*profile)->shown);
    return status == WEIR_OK ? WEIR_ERR_FORMAT : status;
}

int weir_profile_load(const struct weir_allocator *allocator, const char *path,
                      struct weir_faults *faults, struct weir_profile **profile) {
    struct weir_error error = {0};
    struct weir__io io = {.allocator = allocator, .error = &error};
    struct weir__bytes bytes = {0};
    char short_path[96];
    int status = weir__file_read(&io, path, FILE_BYTES_MAX, &bytes);
    if (status != WEIR_OK) {
        weir_faults_add(faults, "%s", error.message);
        return status;
    }
    struct profile_reading r = {weir__path_text(path, short_path), faults, "", ""};
    struct weir__profile_state *made = NULL;
    json_error_t where;
    json_t *root = json_loadb(bytes.data, bytes.count, JSON_REJECT_DUPLICATES, &where);
    if (root == NULL) {
        weir_faults_add(faults, "%s is no profile: line %d: %s: write one with 'weir profile'",
                        r.name, where.line, where.text);
        status = WEIR_ERR_FORMAT;
    } else {
        status = read_both(&r, allocator, root, &made);
    }
    json_decref(root);
    weir__bytes_release(allocator, &bytes);
    if (status == WEIR_OK) *profile = &made->shown;
    return status;
}
