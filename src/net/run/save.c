/* SPDX-License-Identifier: MIT */
/* Nets in files: parameters under their own names, the optimizer's arrays under "optimizer.". */
#include "net/run/net.h"

#include "base/name_set.h"
#include "io/safetensors.h"
#include "world/allreduce.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char optimizer_prefix[] = "optimizer.";
enum { PROGRESS_NUMBERS = 3 };
static const char skipped_key[] = "skipped"; /* of runs that skipped any */
static const char *const progress_keys[PROGRESS_NUMBERS] = {"step", "mini_batch", "seed"};

/* ---- the tensors of a net ---- */

/** A tensor of the net: a parameter, or one of its optimizer's arrays. */
struct entry {
    struct weir_parameter parameter;
    const char *name; /* the entry's own */
    void *place;      /* where the stage has it */
    void *data;       /* the same, or a copy of the host's where that is a GPU's memory */
    bool left;        /* of a file to load: it has no such tensor, which is to stay */
};

/** All tensors, parameters first, in a pool. */
struct entries {
    struct weir__pool pool;
    uint32_t count;
    struct entry *list;
    struct weir__name_set names; /* to find what is superfluous in a file; see name_entries */
};

static const char *optimizer_name(struct weir__pool *pool, const struct weir_net *net,
                                  const char *parameter, uint32_t array) {
    char name[320];
    snprintf(name, sizeof name, "%s%s.%s", optimizer_prefix, parameter,
             weir__optimizer_array_name(&net->optimizer, array));
    return weir__pool_text(pool, name);
}

static int add_entries(struct entries *entries, const struct weir_net *net, uint32_t arrays) {
    uint32_t count = weir_net_parameter_count(net);
    for (uint32_t p = 0; p < count; p++) {
        struct entry *entry = &entries->list[entries->count++];
        int status = weir_net_parameter(net, p, &entry->parameter);
        if (status != WEIR_OK) return status;
        entry->name = entry->parameter.name;
        entry->place = entry->parameter.data;
    }
    for (uint32_t p = 0; p < count; p++) {
        /* What is frozen has no state. */
        uint32_t own = entries->list[p].parameter.frozen ? 0 : arrays;
        for (uint32_t a = 0; a < own; a++) {
            struct entry *entry = &entries->list[entries->count++];
            entry->parameter = entries->list[p].parameter;
            entry->name = optimizer_name(&entries->pool, net, entry->parameter.name, a);
            entry->place = entry->parameter.optimizer[a];
            if (entry->name == NULL) return WEIR_ERR_OUT_OF_MEMORY;
        }
    }
    return WEIR_OK;
}

static size_t entry_bytes(const struct entry *entry) {
    return (size_t)entry->parameter.count * weir_dtype_bytes(entry->parameter.dtype);
}

/** Gives every entry memory that the host can touch: of its own where that is a GPU's, or another
 * rank's, or `copies` are wanted. */
static int place_entries(struct entries *entries, const struct weir_net *net, bool copies) {
    copies |= net->pipe_options.world != NULL;
    for (uint32_t i = 0; i < entries->count; i++) {
        struct entry *entry = &entries->list[i];
        entry->data = entry->place;
        if (!copies && !net->stages[entry->parameter.stage].plan.backend->on_gpu) continue;
        entry->data = weir__pool_take(&entries->pool, entry_bytes(entry), 1);
        if (entry->data == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    }
    return WEIR_OK;
}

/** Fills that. */
static int read_entries(const struct entries *entries, const struct weir_net *net,
                        struct weir_error *error) {
    for (uint32_t i = 0; i < entries->count; i++) {
        const struct entry *entry = &entries->list[i];
        if (entry->data == entry->place) continue;
        int status = weir_pipe_read(net->pipe, entry->parameter.stage, entry->data, entry->place,
                                    entry_bytes(entry));
        if (status != WEIR_OK)
            return weir__fail(error, status, "parameters cannot be read from their device: %s",
                              weir_status_text(status));
    }
    return WEIR_OK;
}

static int init_entries(struct entries *entries, const struct weir_net *net, bool all) {
    uint32_t arrays = all && !net->infer_only ? weir__optimizer_arrays(&net->optimizer) : 0;
    *entries = (struct entries){.count = 0};
    weir__pool_init(&entries->pool, net->allocator);
    size_t most = (size_t)weir_net_parameter_count(net) * (1 + arrays);
    entries->list = weir__pool_take(&entries->pool, most, sizeof entries->list[0]);
    int status = entries->list == NULL ? WEIR_ERR_OUT_OF_MEMORY : add_entries(entries, net, arrays);
    if (status != WEIR_OK) weir__pool_clean_up(&entries->pool);
    return status;
}

/* ---- saving ---- */

static struct weir__safetensors_item *make_items(struct entries *entries) {
    struct weir__safetensors_item *items =
        weir__pool_take(&entries->pool, entries->count, sizeof items[0]);
    for (uint32_t i = 0; items != NULL && i < entries->count; i++) {
        const struct entry *entry = &entries->list[i];
        assert(entry->data != NULL || entry_bytes(entry) == 0);
        items[i].name = entry->name;
        items[i].dtype = entry->parameter.dtype;
        items[i].rank = entry->parameter.rank;
        memcpy(items[i].shape, entry->parameter.shape,
               entry->parameter.rank * sizeof items[i].shape[0]);
        items[i].data = entry->data;
    }
    return items;
}

/** Metadata in the making. */
struct texts {
    struct weir__pool *pool;
    struct weir__safetensors_text *list;
    uint32_t count;
};

static bool add_number(struct texts *texts, const char *key, uint64_t value) {
    char number[24];
    snprintf(number, sizeof number, "%" PRIu64, value);
    const char *text = weir__pool_text(texts->pool, number);
    texts->list[texts->count++] = (struct weir__safetensors_text){key, text};
    return text != NULL;
}

static uint64_t heads_of_block(struct weir_attrs attributes) {
    for (uint32_t i = 0; i < attributes.count; i++)
        if (strcmp(attributes.list[i].key, "heads") == 0)
            return (uint64_t)attributes.list[i].integer;
    return 0;
}

/** How many heads each block of a GPT has; 0 where there are no blocks, or blocks differ. */
static uint64_t find_heads(const struct weir_model *model) {
    uint64_t heads = 0;
    for (uint32_t i = 0; i < weir_model_layer_count(model); i++) {
        const char *type, *name;
        struct weir_attrs attributes;
        if (weir_model_layer(model, i, &type, &name, &attributes) != WEIR_OK) return 0;
        if (strcmp(type, "gpt_block") != 0) continue;
        uint64_t found = heads_of_block(attributes);
        if (heads != 0 && heads != found) return 0;
        heads = found;
    }
    return heads;
}

/** What the metadata say; false without memory. `progress` may be NULL. */
static bool make_texts(struct texts *texts, const struct weir_model *model,
                       const struct weir_progress *progress) {
    uint32_t notes = progress != NULL ? progress->note_count : 0;
    uint64_t heads = find_heads(model);
    texts->list = weir__pool_take(texts->pool, 2 + PROGRESS_NUMBERS + notes, sizeof *texts->list);
    if (texts->list == NULL || (heads > 0 && !add_number(texts, "heads", heads))) return false;
    if (progress == NULL) return true;
    bool good = add_number(texts, progress_keys[0], progress->step) &&
                add_number(texts, progress_keys[1], progress->mini_batch) &&
                add_number(texts, progress_keys[2], progress->seed) &&
                (progress->skipped == 0 || add_number(texts, skipped_key, progress->skipped));
    for (uint32_t i = 0; good && i < notes; i++)
        texts->list[texts->count++] =
            (struct weir__safetensors_text){progress->notes[i].key, progress->notes[i].value};
    return good;
}

/** One rank of a world writes for all. */
static bool writes(const struct weir_net *net) {
    return net->pipe_options.world == NULL || net->pipe_options.world->rank == 0;
}

/** All ranks of a world end with the worst. */
static int agree(const struct weir_net *net, int status, struct weir_error *error) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    faults.allocator = net->allocator;
    if (status != WEIR_OK && error != NULL) weir_faults_add(&faults, "%s", error->message);
    int all = weir__world_agree(net->pipe_options.world, status, 0, "files", &faults);
    if (status == WEIR_OK && all != WEIR_OK)
        weir__fail(error, all, "%s", faults.kept > 0 ? faults.lines[0] : weir_status_text(all));
    weir_faults_clean_up(&faults);
    return all;
}

int weir_net_save(const struct weir_net *net, const char *path,
                  const struct weir_progress *progress, struct weir_error *error) {
    struct entries entries;
    weir__error_clear(error);
    int status = init_entries(&entries, net, progress != NULL);
    if (status != WEIR_OK) return weir__fail(error, status, "%s", weir_status_text(status));
    struct weir__io io = {.allocator = net->allocator, .error = error};
    struct texts texts = {.pool = &entries.pool};
    struct weir__safetensors_item *items = NULL;
    if (place_entries(&entries, net, false) == WEIR_OK) items = make_items(&entries);
    if (items == NULL || !make_texts(&texts, net->model, progress)) {
        status = weir__fail(error, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
        goto out;
    }
    if ((status = read_entries(&entries, net, error)) != WEIR_OK) goto out;
    if (writes(net))
        status = weir__safetensors_save(&io, path, items, entries.count, texts.list, texts.count);
out:
    weir__pool_clean_up(&entries.pool);
    return agree(net, status, error);
}

/* ---- saving beside training ---- */

struct weir_net_copy {
    const struct weir_net *net;
    struct entries entries;
    struct weir__safetensors_item *items;
    struct weir__pool pool; /* of the texts */
    struct texts texts;     /* none before the first take */
};

uint64_t weir_net_copy_bytes(const struct weir_model *model,
                             const struct weir_net_options *options) {
    uint32_t layers = weir_model_layer_count(model);
    uint64_t numbers = 0, arrays = weir__optimizer_arrays(&options->optimizer);
    enum weir_dtype dtype = weir__exact_dtype(options->dtype);
    struct weir_layer_facts *facts = weir__acquire(options->pipe.allocator, layers, sizeof *facts);
    if (facts == NULL) return 0;
    bool good = weir_model_infer(model, dtype, facts, NULL) == WEIR_OK;
    for (uint32_t i = 0; i < layers && good; i++)
        numbers += facts[i].parameters + facts[i].statistics + arrays * facts[i].trainable;
    weir__release(options->pipe.allocator, facts, layers, sizeof *facts);
    return numbers * weir_dtype_bytes(dtype);
}

int weir_net_copy_new(const struct weir_net *net, struct weir_net_copy **copy) {
    struct weir_net_copy *made = weir__acquire(net->allocator, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    *made = (struct weir_net_copy){.net = net};
    weir__pool_init(&made->pool, net->allocator);
    int status = init_entries(&made->entries, net, true);
    if (status != WEIR_OK) goto fail_copy;
    if ((status = place_entries(&made->entries, net, true)) != WEIR_OK) goto fail_entries;
    made->items = make_items(&made->entries);
    status = made->items == NULL ? WEIR_ERR_OUT_OF_MEMORY
                                 : read_entries(&made->entries, net, NULL); /* touches it all */
    if (status != WEIR_OK) goto fail_entries;
    *copy = made;
    return WEIR_OK;

fail_entries:
    weir__pool_clean_up(&made->entries.pool);
fail_copy:
    weir__release(net->allocator, made, 1, sizeof *made);
    return status;
}

void weir_net_copy_destroy(struct weir_net_copy *copy) {
    if (copy == NULL) return;
    weir__pool_clean_up(&copy->entries.pool);
    weir__pool_clean_up(&copy->pool);
    weir__release(copy->net->allocator, copy, 1, sizeof *copy);
}

/* Notes are the caller's, and may change before the file is written. */
static bool own_texts(struct texts *texts) {
    for (uint32_t i = 0; i < texts->count; i++) {
        texts->list[i].key = weir__pool_text(texts->pool, texts->list[i].key);
        texts->list[i].value = weir__pool_text(texts->pool, texts->list[i].value);
        if (texts->list[i].key == NULL || texts->list[i].value == NULL) return false;
    }
    return true;
}

int weir_net_copy_take(struct weir_net_copy *copy, const struct weir_progress *progress,
                       struct weir_error *error) {
    assert(copy != NULL && progress != NULL);
    weir__error_clear(error);
    weir__pool_clean_up(&copy->pool);
    weir__pool_init(&copy->pool, copy->net->allocator);
    copy->texts = (struct texts){.pool = &copy->pool};
    if (!make_texts(&copy->texts, copy->net->model, progress) || !own_texts(&copy->texts)) {
        copy->texts.count = 0;
        return weir__fail(error, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
    }
    int status = read_entries(&copy->entries, copy->net, error);
    if (status != WEIR_OK) copy->texts.count = 0;
    return status;
}

int weir_net_copy_save(const struct weir_net_copy *copy, const char *path,
                       struct weir_error *error) {
    assert(copy != NULL && copy->texts.count > 0); /* one was taken */
    weir__error_clear(error);
    if (!writes(copy->net)) return WEIR_OK;
    struct weir__io io = {.allocator = copy->net->allocator, .error = error};
    return weir__safetensors_save(&io, path, copy->items, copy->entries.count, copy->texts.list,
                                  copy->texts.count);
}

/* ---- loading ---- */

static bool same_shape(const struct weir__safetensor *tensor,
                       const struct weir_parameter *parameter) {
    if (tensor->rank != parameter->rank) return false;
    return memcmp(tensor->shape, parameter->shape, tensor->rank * sizeof tensor->shape[0]) == 0;
}

#define OTHER_MODEL ": choose the model that the file was made with, or another file"
#define OTHER_NAME ": a layer of another \"name\" in the model file keeps what the seed draws"

/** What is looked for in a file, and who is told. */
struct wanted {
    struct weir_progress *progress; /* NULL: weights alone */
    struct weir_faults *notes;      /* NULL: tensors that are missing or superfluous are faults */
    struct weir_faults *faults;
};

static bool check_entry(const struct weir__safetensors *file, struct entry *entry,
                        const struct wanted *wants) {
    char wanted[96], found[96];
    const struct weir__safetensor *tensor = weir__safetensors_find(file, entry->name);
    struct weir_tensor shape = {.dtype = entry->parameter.dtype, .rank = entry->parameter.rank};
    memcpy(shape.shape, entry->parameter.shape, sizeof shape.shape);
    weir__tensor_text(&shape, wanted, sizeof wanted);
    entry->left = tensor == NULL && wants->notes != NULL;
    if (entry->left) {
        weir_faults_add(wants->notes, "'%s' %s is missing and stays as it is", entry->name, wanted);
        return true;
    }
    if (tensor == NULL) {
        weir_faults_add(wants->faults, "tensor '%s' %s is missing" OTHER_MODEL, entry->name,
                        wanted);
        return false;
    }
    bool number = tensor->dtype < WEIR_DTYPE_COUNT && weir_dtype_is_float(tensor->dtype);
    if (entry->parameter.dtype == WEIR_I64) number = tensor->dtype == WEIR_I64;
    if (number && same_shape(tensor, &entry->parameter)) return true;
    weir_faults_add(wants->faults, "tensor '%s' is %s, but the model has %s%s", entry->name,
                    weir__safetensor_text(tensor, found, sizeof found), wanted,
                    wants->notes != NULL ? OTHER_NAME : OTHER_MODEL);
    return false;
}

/** False without memory. */
static bool name_entries(struct entries *entries) {
    weir__name_set_init(&entries->names, &entries->pool);
    for (uint32_t i = 0; i < entries->count; i++) {
        const char *name = entries->list[i].name;
        bool is_new = weir__name_set_find(&entries->names, name) == WEIR__NO_NAME;
        if (is_new && !weir__name_set_add(&entries->names, name, i)) return false;
    }
    return true;
}

static bool is_state(const char *name) {
    return strncmp(name, optimizer_prefix, strlen(optimizer_prefix)) == 0;
}

/** Optimizer state is superfluous only where it was asked for. */
static bool check_superfluous(const struct weir__safetensors *file, const struct entries *entries,
                              const struct wanted *wants) {
    bool good = true, all = wants->progress != NULL;
    for (uint32_t i = 0; i < weir__safetensors_count(file); i++) {
        const struct weir__safetensor *tensor = weir__safetensors_get(file, i);
        if (is_state(tensor->name) && !all) continue;
        if (weir__name_set_find(&entries->names, tensor->name) != WEIR__NO_NAME) continue;
        char text[96];
        weir__safetensor_text(tensor, text, sizeof text);
        if (wants->notes != NULL) {
            weir_faults_add(wants->notes, "'%.200s' %s is left over", tensor->name, text);
            continue;
        }
        weir_faults_add(wants->faults, "tensor '%.200s' %s is not the model's" OTHER_MODEL,
                        tensor->name, text);
        good = false;
    }
    return good;
}

static bool read_number(const struct weir__safetensors *file, const char *key, uint64_t *number,
                        struct weir_faults *faults) {
    const char *text = weir__safetensors_metadata(file, key);
    char *end = NULL;
    errno = 0;
    unsigned long long value = text == NULL ? 0 : strtoull(text, &end, 10);
    if (text != NULL && text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0) {
        *number = value;
        return true;
    }
    if (text == NULL)
        weir_faults_add(
            faults, "metadata '%s' is missing: give a training checkpoint, not weights alone", key);
    else
        weir_faults_add(faults, "metadata '%s' is '%.60s', not a number: give a file that is whole",
                        key, text);
    return false;
}

/** Where a checkpoint is wanted and the file has weights alone, it is enough to say so once. */
static bool check_file(const struct weir__safetensors *file, struct entries *entries,
                       const struct wanted *wants) {
    struct weir_progress *progress = wants->progress;
    struct weir_faults *faults = wants->faults;
    bool good = true, weights = weir__safetensors_metadata(file, progress_keys[0]) == NULL;
    for (uint32_t i = 0; i < entries->count; i++)
        if (!weights || !is_state(entries->list[i].name))
            good &= check_entry(file, &entries->list[i], wants);
    good &= check_superfluous(file, entries, wants);
    uint32_t left = 0;
    for (uint32_t i = 0; i < entries->count; i++) left += entries->list[i].left;
    if (left > 0 && left == entries->count) {
        weir_faults_add(faults, "none of its tensors is the model's" OTHER_MODEL);
        return false;
    }
    if (progress == NULL) return good;
    good &= read_number(file, progress_keys[0], &progress->step, faults);
    good &= read_number(file, progress_keys[1], &progress->mini_batch, faults);
    good &= read_number(file, progress_keys[2], &progress->seed, faults);
    if (weir__safetensors_metadata(file, skipped_key) != NULL)
        good &= read_number(file, skipped_key, &progress->skipped, faults);
    if (progress->skipped <= progress->step) return good;
    weir_faults_add(faults,
                    "metadata 'skipped' is above 'step': the file is damaged: use another one");
    return false;
}

/** Files may hold another precision. */
static void copy_entry(const struct weir__safetensors *file, const struct entry *entry) {
    const struct weir__safetensor *tensor = weir__safetensors_find(file, entry->name);
    assert(tensor != NULL);
    if (tensor->dtype == entry->parameter.dtype) {
        memcpy(entry->data, tensor->data, tensor->bytes);
        return;
    }
    for (uint64_t i = 0; i < entry->parameter.count; i++) {
        double value = weir__number_at(tensor->dtype, tensor->data, i);
        if (entry->parameter.dtype == WEIR_F64)
            ((double *)entry->data)[i] = value;
        else
            ((float *)entry->data)[i] = (float)value;
    }
}

static int copy_entries(const struct weir__safetensors *file, const struct entries *entries,
                        const struct weir_net *net) {
    for (uint32_t i = 0; i < entries->count; i++) {
        const struct entry *entry = &entries->list[i];
        if (entry->left) continue;
        copy_entry(file, entry);
        if (entry->data == entry->place) continue;
        int status = weir_pipe_write(net->pipe, entry->parameter.stage, entry->place, entry->data,
                                     entry_bytes(entry));
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static int take_values(const struct weir__safetensors *file, struct entries *entries,
                       struct weir_net *net) {
    int status = place_entries(entries, net, false);
    if (status != WEIR_OK) return status;
    if ((status = copy_entries(file, entries, net)) != WEIR_OK) return status;
    return weir_net_share(net);
}

/** Opens the file and compares it with the net, of which nothing has changed yet. */
static int find(struct weir_net *net, const char *path, const struct wanted *wants,
                struct weir__safetensors **file, struct entries *entries) {
    struct weir_error error = {.status = WEIR_OK};
    struct weir__io io = {.allocator = net->allocator, .error = &error};
    int status = weir__safetensors_open(&io, path, NULL, file);
    if (status != WEIR_OK) {
        weir_faults_add(wants->faults, "%s", error.message);
        return status;
    }
    status = init_entries(entries, net, wants->progress != NULL);
    if (status != WEIR_OK) goto fail_file;
    if (!name_entries(entries))
        status = WEIR_ERR_OUT_OF_MEMORY;
    else if (!check_file(*file, entries, wants))
        status = WEIR_ERR_SHAPE;
    if (status == WEIR_OK) return WEIR_OK;
    weir__pool_clean_up(&entries->pool);
fail_file:
    weir__safetensors_close(*file);
    return status;
}

/** Of all that a file brings; where nobody compares it, nothing. */
static uint64_t digest_of(const struct weir_net *net, const struct weir__safetensors *file,
                          const struct weir_progress *found) {
    const uint64_t numbers[] = {found->step, found->mini_batch, found->seed, found->skipped};
    uint64_t hash = weir__hash(WEIR__HASH_BEGIN, numbers, sizeof numbers);
    if (net->pipe_options.world == NULL) return hash;
    for (uint32_t i = 0; i < weir__safetensors_count(file); i++) {
        const struct weir__safetensor *tensor = weir__safetensors_get(file, i);
        hash = weir__hash(hash, tensor->name, strlen(tensor->name) + 1);
        hash = weir__hash(hash, tensor->data, tensor->bytes);
    }
    return hash;
}

static int load(struct weir_net *net, const char *path, const struct wanted *wants) {
    struct weir_progress *progress = wants->progress, found = {0};
    struct weir__safetensors *file = NULL;
    struct entries entries;
    struct wanted own = *wants;
    own.progress = progress != NULL ? &found : NULL;
    int status = find(net, path, &own, &file, &entries);
    uint64_t digest = status == WEIR_OK ? digest_of(net, file, &found) : 0;
    int all = weir__world_agree(net->pipe_options.world, status, digest,
                                "files of that name: all must see the same one", wants->faults);
    if (status != WEIR_OK) return status;
    if ((status = all) != WEIR_OK) goto out;
    status = take_values(file, &entries, net);
    if (status != WEIR_OK) {
        weir_faults_add(wants->faults, "parameters cannot be brought to their stages: %s",
                        weir_status_text(status));
        goto out;
    }
    net->next_mini_batch = found.mini_batch; /* 0 without progress */
    net->next_update = found.step - found.skipped;
    if (progress != NULL) {
        found.notes = progress->notes;
        found.note_count = progress->note_count;
        *progress = found;
    }
out:
    weir__pool_clean_up(&entries.pool);
    weir__safetensors_close(file);
    return status;
}

int weir_net_load(struct weir_net *net, const char *path, struct weir_progress *progress,
                  struct weir_faults *faults) {
    return load(net, path, &(struct wanted){progress, NULL, faults});
}

int weir_net_load_some(struct weir_net *net, const char *path, struct weir_faults *notes,
                       struct weir_faults *faults) {
    assert(notes != NULL);
    return load(net, path, &(struct wanted){NULL, notes, faults});
}
