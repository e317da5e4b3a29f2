/* SPDX-License-Identifier: MIT */
/* From JSON to a list of layers, in which blocks are written out. A layer that is refused leaves an
 * identity in its place, so that the ones behind it keep their index in messages; such a model is
 * never handed out. */
#include "net/compile/model_file.h"
#include "net/compile/compile.h"
#include "weir_models.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum {
    FILE_BYTES_MAX = 16 << 20,
    VALUES_MAX = 1 << 20,
    LAYERS_MAX = 65536,
    ATTRS_MAX = 32,
    BLOCKS_MAX = 8, /* one in another */
    PATH_BYTES = 160
};

/* A block whose layers are being read. */
struct file_block {
    const struct file_block *outer;
    json_t *stashed;        /* {namespace: {skip: true}}: what its layers stash, as they write it */
    const char *name_space; /* of its repeats' skips; NULL: they keep theirs */
    int64_t repeat, turn;
    bool frozen;
};

struct reading {
    const struct weir_allocator *allocator;
    const char *name;           /* of the file */
    struct weir_faults *faults; /* NULL while a block repeats, whose faults were told */
    struct weir_faults *all_faults;
    struct weir_model *model;
    int status;                     /* the first that went wrong */
    bool skips_known;               /* no layer was refused that may have used a skip */
    const struct file_block *block; /* the innermost; NULL: none */
    uint32_t depth;                 /* of blocks */
    size_t path_bytes;
    char path[PATH_BYTES]; /* of the present layer: "layers[3].layers[1]" */
    char next[192];        /* the present layer, for messages */
};

#define FAULT(reading, status_, ...)                                                               \
    do {                                                                                           \
        weir_faults_add((reading)->faults, __VA_ARGS__);                                           \
        if ((reading)->status == WEIR_OK) (reading)->status = (status_);                           \
    } while (0)

static bool is_one_of(const char *text, const char *const *list) {
    for (; *list != NULL; list++)
        if (strcmp(text, *list) == 0) return true;
    return false;
}

/** A member that is null counts as missing. */
static json_t *member(json_t *object, const char *key) {
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

/* ---- the border ---- */

static bool read_dtype(const char *text, enum weir_dtype *dtype) {
    for (uint32_t d = 0; d < WEIR_DTYPE_COUNT; d++) {
        if (strcmp(text, weir_dtype_name((enum weir_dtype)d)) != 0) continue;
        *dtype = (enum weir_dtype)d;
        return true;
    }
    return false;
}

static bool read_shape(struct reading *r, const char *what, json_t *shape,
                       struct weir_tensor *tensor) {
    size_t rank = json_array_size(shape);
    if (!json_is_array(shape) || rank > WEIR_RANK_MAX) {
        FAULT(r, WEIR_ERR_ARGUMENT, "%s: %s.shape must be a list of at most %d sizes", r->name,
              what, WEIR_RANK_MAX);
        return false;
    }
    tensor->rank = (uint32_t)rank;
    for (size_t i = 0; i < rank; i++) {
        json_t *size = json_array_get(shape, i);
        tensor->shape[i] = json_integer_value(size);
        if (json_is_integer(size) && tensor->shape[i] >= 1 && tensor->shape[i] <= INT32_MAX)
            continue;
        FAULT(r, WEIR_ERR_ARGUMENT, "%s: %s.shape[%zu] must be a whole number from 1 to %d",
              r->name, what, i, INT32_MAX);
        return false;
    }
    return true;
}

/** "input" or "target". */
static bool read_tensor(struct reading *r, const char *what, json_t *value,
                        struct weir_tensor *tensor) {
    *tensor = (struct weir_tensor){.dtype = WEIR_F32};
    if (!json_is_object(value)) {
        FAULT(r, WEIR_ERR_ARGUMENT,
              "%s: %s must be an object like {\"dtype\": \"f32\", \"shape\": [3, 32, 32]}", r->name,
              what);
        return false;
    }
    const char *key, *text = json_string_value(json_object_get(value, "dtype"));
    json_t *unused;
    bool good = true;
    json_object_foreach(value, key, unused) {
        if (strcmp(key, "dtype") == 0 || strcmp(key, "shape") == 0) continue;
        FAULT(r, WEIR_ERR_ARGUMENT, "%s: %s has no member '%.40s': it takes dtype and shape",
              r->name, what, key);
        good = false;
    }
    if (text == NULL || !read_dtype(text, &tensor->dtype)) {
        FAULT(r, WEIR_ERR_ARGUMENT, "%s: %s.dtype must be f32 or i64%s%.40s", r->name, what,
              text == NULL ? "" : ", not ", text == NULL ? "" : text);
        good = false;
    } else if (tensor->dtype != WEIR_F32 && tensor->dtype != WEIR_I64) {
        FAULT(r, WEIR_ERR_ARGUMENT, "%s: %s.dtype is %s, but must be f32 or i64", r->name, what,
              text);
        good = false;
    }
    return read_shape(r, what, json_object_get(value, "shape"), tensor) && good;
}

static void read_ignore_index(struct reading *r, json_t *value) {
    if (value == NULL) return;
    if (!json_is_integer(value))
        FAULT(r, WEIR_ERR_ARGUMENT, "%s: ignore_index must be a whole number", r->name);
    else if (r->model != NULL && r->model->loss != WEIR__LOSS_CROSS_ENTROPY)
        FAULT(r, WEIR_ERR_ARGUMENT,
              "%s: ignore_index means nothing without the loss cross_entropy: leave it away",
              r->name);
    else if (r->model != NULL)
        weir_model_ignore_index(r->model, json_integer_value(value));
}

static void read_freeze(struct reading *r, json_t *list) {
    size_t index;
    json_t *value;
    bool good = list == NULL || json_is_array(list);
    json_array_foreach(list, index, value) {
        const char *pattern = json_string_value(value);
        good &= pattern != NULL && pattern[0] != '\0';
        int status = good ? weir_model_freeze(r->model, pattern) : WEIR_OK;
        if (status != WEIR_OK) FAULT(r, status, "%s: out of memory", r->name);
    }
    if (!good)
        FAULT(r, WEIR_ERR_ARGUMENT,
              "%s: freeze must be a list of patterns of parameter names, like [\"h.0.*\"]",
              r->name);
}

static bool read_targets(struct reading *r, json_t *list, struct weir_lora *lora) {
    size_t count = json_array_size(list), index;
    const char **targets = weir__pool_take(&r->model->pool, count, sizeof *targets);
    json_t *value;
    bool good = json_is_array(list) && count > 0 && targets != NULL;
    json_array_foreach(list, index, value) {
        if (good) targets[index] = json_string_value(value);
    }
    lora->targets = targets;
    lora->target_count = (uint32_t)count;
    return good;
}

static void read_lora(struct reading *r, json_t *object) {
    static const char *const keys[] = {"rank", "alpha", "dropout", "rslora", "targets", NULL};
    const char *key;
    json_t *value, *rank = json_object_get(object, "rank"), *alpha = member(object, "alpha"),
                   *dropout = member(object, "dropout"), *rslora = member(object, "rslora");
    if (object == NULL) return;
    struct weir_lora lora = {.alpha = json_number_value(alpha),
                             .dropout = json_number_value(dropout),
                             .rslora = json_is_true(rslora)};
    bool good = json_is_integer(rank) && json_is_number(alpha);
    good &= dropout == NULL || json_is_number(dropout);
    good &= rslora == NULL || json_is_boolean(rslora);
    json_object_foreach(object, key, value) good &= is_one_of(key, keys);
    if (json_integer_value(rank) >= 1 && json_integer_value(rank) <= INT32_MAX)
        lora.rank = (uint32_t)json_integer_value(rank);
    good = good && read_targets(r, member(object, "targets"), &lora);
    int status = good ? weir_model_lora(r->model, &lora) : WEIR_ERR_ARGUMENT;
    if (status == WEIR_ERR_ARGUMENT)
        FAULT(r, status,
              "%s: lora must be an object like {\"rank\": 8, \"alpha\": 16, \"targets\": "
              "[\"all-linear\"]}, with a dropout below 1 and rslora at will",
              r->name);
    else if (status != WEIR_OK)
        FAULT(r, status, "%s: out of memory", r->name);
}

static void read_border(struct reading *r, json_t *root) {
    struct weir_tensor input, target;
    json_t *target_value = member(root, "target"), *loss_value = member(root, "loss");
    const char *loss = json_string_value(loss_value);
    bool good = read_tensor(r, "input", json_object_get(root, "input"), &input);
    if (target_value != NULL) good &= read_tensor(r, "target", target_value, &target);
    if (loss_value != NULL && loss == NULL)
        FAULT(r, WEIR_ERR_ARGUMENT, "%s: loss must be a text", r->name);
    if ((target_value == NULL) != (loss_value == NULL))
        FAULT(r, WEIR_ERR_ARGUMENT, "%s: target and loss go together, but %s is missing", r->name,
              target_value == NULL ? "target" : "loss");
    if (good && (target_value == NULL) == (loss == NULL)) {
        int status = weir_model_new(r->allocator, &input, target_value == NULL ? NULL : &target,
                                    loss, &r->model);
        if (status == WEIR_ERR_LOSS)
            FAULT(r, WEIR_ERR_ARGUMENT,
                  "%s: loss '%.40s' is not known; losses are: cross_entropy bce_with_logits mse",
                  r->name, loss);
        else if (status == WEIR_ERR_SHAPE)
            FAULT(r, status, "%s: a row of the input or the target is larger than any memory",
                  r->name);
        else if (status != WEIR_OK)
            FAULT(r, status, "%s: %s", r->name, weir_status_text(status));
    }
    read_ignore_index(r, member(root, "ignore_index"));
}

/* ---- layers ---- */

/** False where no attribute can look like `value`. */
static bool read_attribute(const char *key, json_t *value, struct weir_attr *attr) {
    *attr = (struct weir_attr){.key = key};
    switch (json_typeof(value)) {
    case JSON_INTEGER:
        attr->kind = WEIR_ATTR_KIND_INT;
        attr->integer = json_integer_value(value);
        return true;
    case JSON_REAL:
        attr->kind = WEIR_ATTR_KIND_REAL;
        attr->real = json_real_value(value);
        return true;
    case JSON_TRUE:
    case JSON_FALSE:
        attr->kind = WEIR_ATTR_KIND_FLAG;
        attr->integer = json_is_true(value);
        return true;
    case JSON_STRING:
        attr->kind = WEIR_ATTR_KIND_TEXT;
        attr->text = json_string_value(value);
        return true;
    case JSON_ARRAY:
        if (json_array_size(value) == 1 && json_is_integer(json_array_get(value, 0)))
            return read_attribute(key, json_array_get(value, 0), attr); /* a shape of one size */
        attr->kind = WEIR_ATTR_KIND_PAIR;
        attr->integer = json_integer_value(json_array_get(value, 0));
        attr->second = json_integer_value(json_array_get(value, 1));
        return json_array_size(value) == 2 && json_is_integer(json_array_get(value, 0)) &&
               json_is_integer(json_array_get(value, 1));
    default: return false;
    }
}

/** What is no attribute: the layer's own, and what `describe` adds. */
static const char *const not_attributes[] = {
    "type", "name", "output_shape", "parameters", "flops", "activation_bytes", "stage", NULL};

static const char *text_of(json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? "" : text;
}

/** PyTorch's momentum=None: no default, but another rule. */
static bool is_cumulative(const char *type, const char *key, const json_t *value) {
    return json_is_null(value) && strcmp(type, "batch_norm2d") == 0 && strcmp(key, "momentum") == 0;
}

/** All members that are attributes. `but` (may be NULL) is none. */
static bool read_attributes(struct reading *r, const char *but, json_t *layer,
                            struct weir_attr *list, uint32_t *count) {
    const char *key, *type = text_of(layer, "type");
    json_t *value;
    bool good = true;
    *count = 0;
    json_object_foreach(layer, key, value) {
        bool cumulative = is_cumulative(type, key, value);
        if (is_one_of(key, not_attributes) || (json_is_null(value) && !cumulative)) continue;
        if (but != NULL && strcmp(key, but) == 0) continue;
        if (*count == ATTRS_MAX) {
            FAULT(r, WEIR_ERR_ARGUMENT, "layer %s (%.20s): more than %d attributes", r->next, type,
                  ATTRS_MAX);
            return false;
        }
        if (cumulative) list[*count] = (struct weir_attr)WEIR_ATTR_FLAG("cumulative", true);
        if (cumulative || read_attribute(key, value, &list[*count])) {
            ++*count;
            continue;
        }
        FAULT(r, WEIR_ERR_ARGUMENT,
              "layer %s (%.20s): %.40s must be a number, a text, true, false, or two whole numbers",
              r->next, type, key);
        good = false;
    }
    return good;
}

static bool repeats(const struct reading *r) {
    for (const struct file_block *block = r->block; block != NULL; block = block->outer)
        if (block->repeat > 1) return true;
    return false;
}

static bool check_name(struct reading *r, const char *type, json_t *name) {
    if (name == NULL) return true;
    if (!json_is_string(name))
        FAULT(r, WEIR_ERR_ARGUMENT, "layer %s (%.20s): its name must be a text", r->next, type);
    else if (repeats(r))
        FAULT(r, WEIR_ERR_ARGUMENT,
              "layer %s (%.20s): the name '%.48s' would be every repeat's: leave it out, and its "
              "parameters are called by its index",
              r->next, type, json_string_value(name));
    else
        return true;
    return false;
}

/** The namespace that a skip has in the flat list, into `text`; false: it is too long. Blocks that
 * stash it put their own in front, the outermost first. */
static bool name_space_of(const struct file_block *block, const char *given, const char *skip,
                          char *text, size_t capacity) {
    if (block == NULL) return (size_t)snprintf(text, capacity, "%s", "") < capacity;
    if (!name_space_of(block->outer, given, skip, text, capacity)) return false;
    bool own = json_object_get(json_object_get(block->stashed, given), skip) != NULL;
    if (!own || block->name_space == NULL) return true;
    size_t used = strlen(text);
    int more = snprintf(text + used, capacity - used, "%s%s.%lld", used == 0 ? "" : ".",
                        block->name_space, (long long)block->turn);
    return more > 0 && (size_t)more < capacity - used;
}

/** Adds an attribute, or takes the place of the one that is called so. */
static void set_attribute(struct weir_attr *list, uint32_t *count, struct weir_attr attr) {
    uint32_t at = 0;
    assert(*count < ATTRS_MAX + 2);
    while (at < *count && strcmp(list[at].key, attr.key) != 0) at++;
    if (at == *count) ++*count;
    list[at] = attr;
}

/** Puts the layer's skip into the namespace of its blocks' repeats. */
static bool place_skip(struct reading *r, json_t *layer, struct weir_attr *list, uint32_t *count,
                       char *text, size_t capacity) {
    assert(*count <= ATTRS_MAX && capacity > 0);
    const char *given = text_of(layer, "namespace"), *skip = text_of(layer, "skip");
    bool fits = name_space_of(r->block, given, skip, text, capacity);
    size_t used = fits ? strlen(text) : 0;
    if (used == 0 && fits) return true; /* no block's own: as it is */
    int more = snprintf(text + used, capacity - used, "%s%s", given[0] == '\0' ? "" : ".", given);
    if (!fits || (size_t)more >= capacity - used) {
        FAULT(r, WEIR_ERR_ARGUMENT, "layer %s: its namespaces are longer than %zu bytes together",
              r->next, capacity - 1);
        return false;
    }
    set_attribute(list, count, (struct weir_attr)WEIR_ATTR_TEXT("namespace", text));
    return true;
}

static bool is_frozen(const struct reading *r) {
    const struct file_block *block = r->block;
    while (block != NULL && !block->frozen) block = block->outer;
    return block != NULL;
}

static bool add_layer(struct reading *r, json_t *layer) {
    assert(r->model != NULL);
    struct weir_attr list[ATTRS_MAX + 2];
    char name_space[256];
    uint32_t count;
    const char *type = json_string_value(json_object_get(layer, "type"));
    json_t *name = member(layer, "name");
    if (!json_is_object(layer) || type == NULL) {
        FAULT(r, WEIR_ERR_ARGUMENT,
              "layer %s: it must be an object with a type, like {\"type\": \"relu\"}", r->next);
        return false;
    }
    bool good = check_name(r, type, name);
    if (!read_attributes(r, NULL, layer, list, &count) || !good) return false;
    if (!place_skip(r, layer, list, &count, name_space, sizeof name_space)) return false;
    if (is_frozen(r)) set_attribute(list, &count, (struct weir_attr)WEIR_ATTR_FLAG("frozen", true));
    int status = weir_model_add(r->model, type, json_string_value(name),
                                (struct weir_attrs){count, list}, r->faults);
    if (status != WEIR_OK && r->status == WEIR_OK) r->status = status;
    return status == WEIR_OK;
}

static bool may_use_skips(const struct reading *r, json_t *layer) {
    const char *name = json_string_value(json_object_get(layer, "type"));
    const struct weir_layer_type *type = name == NULL ? NULL : weir__model_type(r->model, name);
    return type == NULL || type->skip_count > 0 || type->skip_at != NULL;
}

/** An identity in place of what was refused. False: not even that. */
static bool replace_layer(struct reading *r, json_t *layer) {
    if (may_use_skips(r, layer)) r->skips_known = false;
    const char *name = json_string_value(member(layer, "name"));
    int status = weir_model_add(r->model, "identity", name, WEIR_NO_ATTRS, NULL);
    if (status != WEIR_OK) status = weir_model_add(r->model, "identity", NULL, WEIR_NO_ATTRS, NULL);
    return status == WEIR_OK;
}

/* ---- blocks ---- */

static bool is_block(json_t *layer) {
    return strcmp(text_of(layer, "type"), weir__layer_block.name) == 0;
}

/** Notes what the layers stash, those of blocks in them too. */
static void gather_stashes(json_t *layers, uint32_t depth, json_t *stashed) {
    assert(depth <= BLOCKS_MAX && json_is_object(stashed));
    size_t index;
    json_t *layer;
    json_array_foreach(layers, index, layer) {
        if (is_block(layer) && depth < BLOCKS_MAX)
            gather_stashes(json_object_get(layer, "layers"), depth + 1, stashed);
        if (strcmp(text_of(layer, "type"), "stash") != 0) continue;
        const char *space = text_of(layer, "namespace");
        if (json_object_get(stashed, space) == NULL)
            json_object_set_new(stashed, space, json_object());
        json_object_set_new(json_object_get(stashed, space), text_of(layer, "skip"), json_true());
    }
}

static bool read_layers(struct reading *r, json_t *layers);

/** Attributes and layers of a block; faults for what is wrong with them. */
static bool check_block(struct reading *r, json_t *layer, struct weir_attrs *attrs) {
    struct weir_attr list[ATTRS_MAX];
    uint32_t count;
    char label[256];
    json_t *layers = json_object_get(layer, "layers");
    bool good = true;
    if (json_object_get(layer, "name") != NULL) {
        FAULT(r, WEIR_ERR_ARGUMENT, "layer %s (block): a block has no name: name its layers",
              r->next);
        good = false;
    }
    if (json_array_size(layers) == 0) {
        FAULT(r, WEIR_ERR_ARGUMENT, "layer %s (block): layers must be a list of at least one layer",
              r->next);
        good = false;
    }
    if (r->depth == BLOCKS_MAX) {
        FAULT(r, WEIR_ERR_ARGUMENT, "layer %s (block): it is in more than %d blocks", r->next,
              BLOCKS_MAX);
        good = false;
    }
    if (!read_attributes(r, "layers", layer, list, &count)) return false;
    snprintf(label, sizeof label, "%s (block)", r->next);
    int status = weir__attrs_copy(&r->model->pool, &weir__layer_block, label,
                                  (struct weir_attrs){count, list}, attrs, r->faults);
    if (status != WEIR_OK && r->status == WEIR_OK) r->status = status;
    return good && status == WEIR_OK;
}

/** The skips of a block's repeats must differ. */
static bool check_stashes(struct reading *r, const struct file_block *block) {
    if (block->repeat == 1 || block->name_space != NULL || json_object_size(block->stashed) == 0)
        return true;
    const char *skip = json_object_iter_key(
        json_object_iter(json_object_iter_value(json_object_iter(block->stashed))));
    FAULT(r, WEIR_ERR_ARGUMENT,
          "layer %s (block): each of its %lld repeats stashes '%.40s': give the block a "
          "\"namespace\", and each repeat has skips of its own",
          r->next, (long long)block->repeat, skip);
    return false;
}

/** Writes a block out. False: it was refused, and nothing stands in its place. */
static bool read_block(struct reading *r, json_t *layer) {
    struct weir_attrs attrs;
    if (!check_block(r, layer, &attrs)) return false;
    struct weir_layer of = {.type = &weir__layer_block, .attrs = attrs};
    const char *name_space = weir_layer_text(&of, "namespace");
    struct file_block block = {.outer = r->block,
                               .stashed = json_object(),
                               .name_space = name_space[0] == '\0' ? NULL : name_space,
                               .repeat = weir_layer_int(&of, "repeat"),
                               .frozen = weir_layer_flag(&of, "frozen")};
    json_t *layers = json_object_get(layer, "layers");
    struct weir_faults *faults = r->faults;
    gather_stashes(layers, r->depth, block.stashed);
    bool good = check_stashes(r, &block);
    r->block = &block;
    r->depth++;
    for (; good && block.turn < block.repeat && read_layers(r, layers); block.turn++)
        r->faults = NULL; /* what is wrong with a layer is told once */
    r->depth--;
    r->block = block.outer;
    r->faults = faults;
    json_decref(block.stashed);
    return good;
}

/** Where the present layer stands: said where its index in the list does not say it. */
static void place_layer(struct reading *r, size_t index) {
    size_t begin = r->path_bytes;
    int more = snprintf(r->path + begin, sizeof r->path - begin, "%slayers[%zu]",
                        begin == 0 ? "" : ".", index);
    assert(more > 0 && (size_t)more < sizeof r->path - begin);
    r->path_bytes = begin + (size_t)more;
    bool plain = r->block == NULL && index == weir_model_layer_count(r->model);
    r->model->place = plain ? NULL : r->path;
    weir__model_next(r->model, r->next);
}

/** False: there are too many, or no memory, and no more are read. */
static bool read_layers(struct reading *r, json_t *layers) {
    size_t index, begin = r->path_bytes;
    json_t *layer;
    assert(json_array_size(layers) > 0 && r->depth <= BLOCKS_MAX);
    json_array_foreach(layers, index, layer) {
        if (weir_model_layer_count(r->model) == LAYERS_MAX) {
            r->faults = r->all_faults;
            FAULT(r, WEIR_ERR_ARGUMENT, "%s: more than %d layers, blocks written out", r->name,
                  LAYERS_MAX);
            return false;
        }
        place_layer(r, index);
        bool good = is_block(layer) ? read_block(r, layer) : add_layer(r, layer);
        if (!good && !replace_layer(r, layer)) return false;
        r->path_bytes = begin;
        r->model->place = NULL;
    }
    return true;
}

static void read_list(struct reading *r, json_t *layers) {
    if (!json_is_array(layers) || json_array_size(layers) > LAYERS_MAX)
        FAULT(r, WEIR_ERR_ARGUMENT, "%s: layers must be a list of at most %d layers", r->name,
              LAYERS_MAX);
    else if (json_array_size(layers) == 0)
        FAULT(r, WEIR_ERR_ARGUMENT,
              "%s: layers is empty: give at least one, like {\"type\": \"relu\"}", r->name);
    else
        read_layers(r, layers);
    r->model->place = NULL;
}

/* ---- the file ---- */

static const char *const members[] = {"input",        "target",     "layers", "loss",
                                      "ignore_index", "freeze",     "lora",   "skips",
                                      "stages",       "parameters", NULL};

static void read_root(struct reading *r, json_t *root) {
    const char *key;
    json_t *unused;
    if (!json_is_object(root)) {
        FAULT(r, WEIR_ERR_ARGUMENT, "%s: a model is an object with input, layers, target and loss",
              r->name);
        return;
    }
    json_object_foreach(root, key, unused) {
        if (!is_one_of(key, members))
            FAULT(r, WEIR_ERR_ARGUMENT,
                  "%s: no member '%.40s'; a model has: input target layers loss ignore_index "
                  "freeze lora",
                  r->name, key);
    }
    read_border(r, root);
    /* Without a border the layers are still looked at, for their faults. */
    struct weir_tensor any = {.dtype = WEIR_F32};
    if (r->model == NULL && weir_model_new(r->allocator, &any, NULL, NULL, &r->model) != WEIR_OK)
        FAULT(r, WEIR_ERR_OUT_OF_MEMORY, "%s: out of memory", r->name);
    if (r->model != NULL) read_list(r, json_object_get(root, "layers"));
    if (r->model != NULL) read_freeze(r, member(root, "freeze"));
    if (r->model != NULL) read_lora(r, member(root, "lora"));
    /* A model that is handed out is verified when it is used; this one will not be. */
    if (r->model != NULL && r->status != WEIR_OK && r->skips_known)
        weir__model_check_skips(r->model, r->faults);
}

/** Every value begins the text, or stands behind one of these. Counted before a tree is made, which
 * may take 75 times the memory of its text. */
static bool has_too_many_values(const char *text, size_t bytes) {
    size_t count = 1;
    for (size_t i = 0; i < bytes; i++)
        count += text[i] == ',' || text[i] == ':' || text[i] == '[' || text[i] == '{';
    return count > VALUES_MAX;
}

static json_t *load(struct reading *r, const char *text, size_t bytes) {
    json_error_t error;
    if (has_too_many_values(text, bytes)) {
        FAULT(r, WEIR_ERR_FORMAT, "%s: a model has at most %d values", r->name, VALUES_MAX);
        return NULL;
    }
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL && json_error_code(&error) == json_error_out_of_memory)
        r->status = WEIR_ERR_OUT_OF_MEMORY;
    else if (root == NULL)
        FAULT(
            r, WEIR_ERR_FORMAT,
            "%s: line %d, column %d: %s: a model file is JSON, like what 'weir describe --json -' "
            "prints",
            r->name, error.line, error.column, error.text);
    return root;
}

int weir__model_text_read(const struct weir_allocator *allocator, const char *text, size_t bytes,
                          const char *name, struct weir_faults *faults, struct weir_model **model) {
    struct reading r = {.allocator = allocator,
                        .name = name,
                        .faults = faults,
                        .all_faults = faults,
                        .skips_known = true};
    json_t *root = load(&r, text, bytes);
    if (root != NULL) read_root(&r, root);
    json_decref(root);
    if (r.status == WEIR_OK)
        *model = r.model;
    else
        weir_model_destroy(r.model);
    return r.status;
}

int weir__model_file_read(const struct weir__io *io, const char *path, struct weir_faults *faults,
                          struct weir_model **model) {
    struct weir__bytes bytes = {0};
    char text[96];
    int status = weir__file_read(io, path, FILE_BYTES_MAX, &bytes);
    if (status != WEIR_OK) return status;
    status = weir__model_text_read(io->allocator, bytes.data, bytes.count,
                                   weir__path_text(path, text), faults, model);
    weir__bytes_release(io->allocator, &bytes);
    return status;
}

int weir_model_read(const struct weir_allocator *allocator, const char *path,
                    struct weir_faults *faults, struct weir_model **model) {
    struct weir_error error = {0};
    struct weir__io io = {.allocator = allocator, .error = &error};
    int status = weir__model_file_read(&io, path, faults, model);
    if (status == WEIR_ERR_IO) weir_faults_add(faults, "%s", error.message);
    return status;
}
