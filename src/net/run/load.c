/* SPDX-License-Identifier: MIT */
/* Files into nets: all is compared before anything changes, and each rank reads what it has. */
#include "net/run/entries.h"

#include "io/archive.h"
#include "io/numbers.h"
#include "net/run/files.h"
#include "world/allreduce.h"
#include "weir_models.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *const weir__progress_keys[WEIR__PROGRESS_NUMBERS] = {"step", "mini_batch", "seed"};
const char weir__skipped_key[] = "skipped", weir__heads_key[] = "heads",
           weir__residual_key[] = "residual_block";

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
    bool adapters;                  /* alone, under PEFT's names */
    struct weir_faults *faults;
};

static bool check_entry(const struct weir__archive *file, struct weir__entry *entry,
                        const struct wanted *wants) {
    char wanted[96], found[96];
    const struct weir__safetensor *tensor = weir__archive_find(file, entry->filed);
    struct weir_tensor shape = {.dtype = entry->parameter.dtype, .rank = entry->parameter.rank};
    memcpy(shape.shape, entry->parameter.shape, sizeof shape.shape);
    weir__tensor_text(&shape, wanted, sizeof wanted);
    /* weights of others have no adapters, and adapters no other weights */
    bool adapter = entry->parameter.adapter;
    entry->left = wants->adapters ? !adapter : adapter && tensor == NULL && wants->progress == NULL;
    if (entry->left) return true;
    entry->left = tensor == NULL && wants->notes != NULL;
    if (entry->left) {
        weir_faults_add(wants->notes, "'%s' %s is missing and stays as it is", entry->name, wanted);
        return true;
    }
    if (tensor == NULL) {
        weir_faults_add(wants->faults, "tensor '%s' %s is missing" OTHER_MODEL, entry->filed,
                        wanted);
        return false;
    }
    bool number = tensor->dtype < WEIR_DTYPE_COUNT && weir_dtype_is_float(tensor->dtype);
    if (entry->parameter.dtype == WEIR_I64) number = tensor->dtype == WEIR_I64;
    if (number && same_shape(tensor, &entry->parameter)) return true;
    weir_faults_add(wants->faults, "tensor '%s' is %s, but the model has %s%s", entry->filed,
                    weir__safetensor_text(tensor, found, sizeof found), wanted,
                    wants->notes != NULL ? OTHER_NAME : OTHER_MODEL);
    return false;
}

/** What transformers' files have besides parameters: the angles of rotary positions, and a head
 * that is the token embedding once more. */
static bool is_transformers(const struct weir__archive *file,
                            const struct weir__safetensor *tensor) {
    const struct weir__safetensor *tied = weir__archive_find(file, "model.embed_tokens.weight");
    if (weir__text_ends(tensor->name, ".rotary_emb.inv_freq")) return true;
    return strcmp(tensor->name, "lm_head.weight") == 0 && tied != NULL && tied->data != NULL &&
           tensor->data != NULL && tied->dtype == tensor->dtype && tied->bytes == tensor->bytes &&
           memcmp(tied->data, tensor->data, tensor->bytes) == 0;
}

/** Optimizer state is superfluous only where it was asked for. */
static bool check_superfluous(const struct weir__archive *file, const struct weir__entries *entries,
                              const struct wanted *wants) {
    bool good = true, all = wants->progress != NULL;
    for (uint32_t i = 0; i < weir__archive_count(file); i++) {
        const struct weir__safetensor *tensor = weir__archive_get(file, i);
        if (weir__entry_is_state(tensor->name) && !all) continue;
        uint32_t found = weir__name_set_find(&entries->names, tensor->name);
        if (found != WEIR__NO_NAME && !entries->list[found].left) continue;
        if (!wants->adapters && is_transformers(file, tensor)) continue;
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

static bool read_number(const struct weir__archive *file, const char *key, uint64_t *number,
                        struct weir_faults *faults) {
    const char *text = weir__archive_metadata(file, key);
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
static bool check_file(const struct weir__archive *file, struct weir__entries *entries,
                       const struct wanted *wants) {
    struct weir_progress *progress = wants->progress;
    struct weir_faults *faults = wants->faults;
    bool good = true, weights = weir__archive_metadata(file, weir__progress_keys[0]) == NULL;
    for (uint32_t i = 0; i < entries->count; i++)
        if (!weights || !weir__entry_is_state(entries->list[i].name))
            good &= check_entry(file, &entries->list[i], wants);
    good &= check_superfluous(file, entries, wants);
    uint32_t left = 0;
    for (uint32_t i = 0; i < entries->count; i++) left += entries->list[i].left;
    if (left > 0 && left == entries->count) {
        weir_faults_add(faults, "none of its tensors is the model's" OTHER_MODEL);
        return false;
    }
    if (progress == NULL) return good;
    good &= read_number(file, weir__progress_keys[0], &progress->step, faults);
    good &= read_number(file, weir__progress_keys[1], &progress->mini_batch, faults);
    good &= read_number(file, weir__progress_keys[2], &progress->seed, faults);
    if (weir__archive_metadata(file, weir__skipped_key) != NULL)
        good &= read_number(file, weir__skipped_key, &progress->skipped, faults);
    if (progress->skipped <= progress->step) return good;
    weir_faults_add(faults,
                    "metadata 'skipped' is above 'step': the file is damaged: use another one");
    return false;
}

/** Files may hold another precision. */
static void take_numbers(const struct weir__entry *entry, uint64_t at, enum weir_dtype dtype,
                         const void *numbers, uint64_t count) {
    assert(at + count <= entry->held.count);
    char *to = (char *)entry->data + weir__entry_bytes(entry, at);
    if (dtype == entry->parameter.dtype) {
        memcpy(to, numbers, weir__entry_bytes(entry, count));
        return;
    }
    if (entry->parameter.dtype == WEIR_F32 && weir__numbers_known(dtype)) {
        weir__numbers_read(dtype, numbers, (size_t)count, (float *)to);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        double value = weir__number_at(dtype, numbers, i);
        if (entry->parameter.dtype == WEIR_F64)
            ((double *)to)[i] = value;
        else
            ((float *)to)[i] = (float)value;
    }
}

/** Whether these are the numbers that the entry has, from the one at `at` on, in the file where it
 * stays. */
static bool same_numbers(const struct weir__entry *entry, uint64_t at, enum weir_dtype dtype,
                         const void *numbers, uint64_t count) {
    const char *stays = (const char *)entry->place + weir__entry_bytes(entry, at);
    enum weir_dtype stored = entry->parameter.dtype;
    assert(entry->parameter.mapped && at + count <= entry->held.count);
    if (stays == numbers) return true;
    if (dtype == stored) return memcmp(stays, numbers, weir__entry_bytes(entry, count)) == 0;
    for (uint64_t i = 0; i < count; i++)
        if (weir__number_at(stored, stays, i) != weir__number_at(dtype, numbers, i)) return false;
    return true;
}

/** What is done with the numbers of an entry, from the one at `at` on. */
typedef int numbers_fn(const struct weir__io *io, const struct weir__entry *entry, uint64_t at,
                       enum weir_dtype dtype, const void *numbers, uint64_t count);

/** Nothing of the net may change for a file that turns out to be damaged, or not to be this
 * net's. */
static int compare_numbers(const struct weir__io *io, const struct weir__entry *entry, uint64_t at,
                           enum weir_dtype dtype, const void *numbers, uint64_t count) {
    if (!entry->parameter.mapped || same_numbers(entry, at, dtype, numbers, count)) return WEIR_OK;
    return weir__fail(
        io->error, WEIR_ERR_CONFIG,
        "'%.200s' stays in the file that the net was made with, and has other numbers "
        "here: make the net with this file",
        entry->name);
}

static int take_numbers_of(const struct weir__io *io, const struct weir__entry *entry, uint64_t at,
                           enum weir_dtype dtype, const void *numbers, uint64_t count) {
    (void)io;
    if (!entry->parameter.mapped) take_numbers(entry, at, dtype, numbers, count);
    return WEIR_OK;
}

/** Reads what this rank holds of an entry, piece by piece. */
static int read_entry(const struct weir__io *io, struct weir__archive *file,
                      const struct weir__entry *entry, numbers_fn *visit) {
    const struct weir__safetensor *tensor = weir__archive_find(file, entry->filed);
    assert(tensor != NULL);
    size_t size = weir_dtype_bytes(tensor->dtype), at = (size_t)entry->held.begin * size;
    size_t begin = at, end = at + (size_t)entry->held.count * size;
    while (at < end) {
        const void *data;
        size_t bytes;
        int status = weir__archive_next(io, file, tensor, at, &data, &bytes);
        if (status != WEIR_OK) return status;
        if (bytes > end - at) bytes = end - at;
        assert(bytes % size == 0);
        status = visit(io, entry, (at - begin) / size, tensor->dtype, data, bytes / size);
        if (status != WEIR_OK) return status;
        at += bytes;
    }
    return WEIR_OK;
}

static int compare_entries(const struct weir__io *io, struct weir__archive *file,
                           const struct weir__entries *entries) {
    for (uint32_t i = 0; i < entries->count; i++) {
        if (entries->list[i].left) continue;
        const struct weir__entry *entry = &entries->list[i];
        int status = read_entry(io, file, entry, compare_numbers);
        if (entry->parameter.mapped)
            weir__archive_drop(file, weir__archive_find(file, entry->filed));
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static int take_entries(const struct weir__io *io, struct weir__archive *file,
                        const struct weir__entries *entries, const struct weir_net *net) {
    for (uint32_t i = 0; i < entries->count; i++) {
        const struct weir__entry *entry = &entries->list[i];
        if (entry->left || entry->held.count == 0) continue;
        int status = read_entry(io, file, entry, take_numbers_of);
        if (status != WEIR_OK) return status;
        if (entry->parameter.mapped) continue;
        weir__archive_drop(file, weir__archive_find(file, entry->filed));
        if (entry->data == entry->place) continue;
        status = weir_pipe_write(net->pipe, entry->parameter.stage, entry->place, entry->data,
                                 weir__entry_bytes(entry, entry->held.count));
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static int take_values(const struct weir__io *io, struct weir__archive *file,
                       struct weir__entries *entries, struct weir_net *net) {
    int status = weir__entries_place(entries, net, false);
    if (status != WEIR_OK) return status;
    weir__net_weights_given(net);
    if ((status = take_entries(io, file, entries, net)) != WEIR_OK) return status;
    return weir_net_share(net);
}

/** The file in which parameters of the net stay is the first that is loaded of that path. */
static int open_file(const struct weir__io *io, struct weir_net *net, const char *path,
                     struct weir__archive **file) {
    struct weir__net_weights *weights = &net->weights;
    assert(path != NULL && (!weights->fresh || weights->archive != NULL));
    bool own = weights->fresh && strcmp(weights->path, path) == 0;
    if (!own) return weir__archive_open(io, path, file);
    weights->fresh = false;
    *file = weights->archive;
    return WEIR_OK;
}

static void close_file(const struct weir_net *net, struct weir__archive *file) {
    if (file != net->weights.archive) weir__archive_close(file);
}

/** Opens the file and compares it with the net, of which nothing has changed yet. */
static int find(const struct weir__io *io, struct weir_net *net, const char *path,
                const struct wanted *wants, struct weir__archive **file,
                struct weir__entries *entries) {
    int status = open_file(io, net, path, file);
    if (status != WEIR_OK) {
        weir_faults_add(wants->faults, "%s", io->error->message);
        return status;
    }
    status = weir__entries_init(entries, net, wants->progress != NULL);
    if (status != WEIR_OK) goto fail_file;
    if ((wants->adapters && !weir__entries_file_adapters(entries, net)) ||
        !weir__entries_name(entries))
        status = WEIR_ERR_OUT_OF_MEMORY;
    else if (!check_file(*file, entries, wants))
        status = WEIR_ERR_SHAPE;
    if (status != WEIR_OK) goto fail_entries;
    if ((status = compare_entries(io, *file, entries)) == WEIR_OK) return WEIR_OK;
    weir_faults_add(wants->faults, "%s", io->error->message);
fail_entries:
    weir__pool_clean_up(&entries->pool);
fail_file:
    close_file(net, *file);
    return status;
}

/** Of all that a file brings; where nobody compares it, nothing. */
static uint64_t digest_of(const struct weir_net *net, const struct weir__archive *file,
                          const struct weir_progress *found) {
    const uint64_t numbers[] = {found->step, found->mini_batch, found->seed, found->skipped};
    uint64_t hash = weir__hash(WEIR__HASH_BEGIN, numbers, sizeof numbers);
    if (net->pipe_options.world == NULL) return hash;
    uint64_t all = weir__archive_digest(file);
    return weir__hash(hash, &all, sizeof all);
}

static int load(struct weir_net *net, const char *path, const struct wanted *wants) {
    struct weir_progress *progress = wants->progress, found = {0};
    struct weir_error error = {.status = WEIR_OK};
    const struct weir__io io = {.allocator = net->allocator, .error = &error};
    struct weir__archive *file = NULL;
    struct weir__entries entries;
    struct wanted own = *wants;
    own.progress = progress != NULL ? &found : NULL;
    int status = find(&io, net, path, &own, &file, &entries);
    uint64_t digest = status == WEIR_OK ? digest_of(net, file, &found) : 0;
    int all = weir__world_agree(net->pipe_options.world, status, digest,
                                "files of that name: all must see the same one", wants->faults);
    if (status != WEIR_OK) return status;
    if ((status = all) != WEIR_OK) goto out;
    status = take_values(&io, file, &entries, net);
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
    close_file(net, file);
    return status;
}

int weir_net_load(struct weir_net *net, const char *path, struct weir_progress *progress,
                  struct weir_faults *faults) {
    return load(net, path, &(struct wanted){.progress = progress, .faults = faults});
}

int weir_net_load_some(struct weir_net *net, const char *path, struct weir_faults *notes,
                       struct weir_faults *faults) {
    assert(notes != NULL);
    return load(net, path, &(struct wanted){.notes = notes, .faults = faults});
}

int weir_net_load_adapters(struct weir_net *net, const char *path, struct weir_faults *faults) {
    return load(net, path, &(struct wanted){.adapters = true, .faults = faults});
}
