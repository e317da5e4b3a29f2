/* SPDX-License-Identifier: MIT */
/*
 * Nets into files. One process writes one file; of several each writes a part of a folder, with
 * what it has, and the first commits them. No rank holds, sends or writes what is another's.
 */
#include "net/run/entries.h"

#include "io/archive.h"
#include "net/run/files.h"
#include "world/allreduce.h"
#include "weir_models.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- metadata ---- */

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

static uint64_t number_of_block(struct weir_attrs attributes, const char *key) {
    for (uint32_t i = 0; i < attributes.count; i++)
        if (strcmp(attributes.list[i].key, key) == 0) return (uint64_t)attributes.list[i].integer;
    return 0;
}

/** What each block of a GPT has for `key`; 0 where there are no blocks, or blocks differ. */
static uint64_t find_number(const struct weir_model *model, const char *key) {
    uint64_t number = 0;
    for (uint32_t i = 0; i < weir_model_layer_count(model); i++) {
        const char *type, *name;
        struct weir_attrs attributes;
        if (weir_model_layer(model, i, &type, &name, &attributes) != WEIR_OK) return 0;
        if (strcmp(type, "gpt_block") != 0 && strcmp(type, "gpt_residual_block") != 0) continue;
        uint64_t found = number_of_block(attributes, key);
        if (number != 0 && number != found) return 0;
        number = found;
    }
    return number;
}

/** What the metadata say; false without memory. `progress` may be NULL. */
static bool make_texts(struct texts *texts, const struct weir_model *model,
                       const struct weir_progress *progress) {
    uint32_t notes = progress != NULL ? progress->note_count : 0;
    uint64_t heads = find_number(model, weir__heads_key);
    uint64_t residual_block = find_number(model, weir__residual_key);
    texts->list =
        weir__pool_take(texts->pool, 3 + WEIR__PROGRESS_NUMBERS + notes, sizeof *texts->list);
    if (texts->list == NULL || (heads > 0 && !add_number(texts, weir__heads_key, heads)))
        return false;
    if (residual_block > 0 && !add_number(texts, weir__residual_key, residual_block)) return false;
    if (progress == NULL) return true;
    bool good = add_number(texts, weir__progress_keys[0], progress->step) &&
                add_number(texts, weir__progress_keys[1], progress->mini_batch) &&
                add_number(texts, weir__progress_keys[2], progress->seed) &&
                (progress->skipped == 0 || add_number(texts, weir__skipped_key, progress->skipped));
    for (uint32_t i = 0; good && i < notes; i++)
        texts->list[texts->count++] =
            (struct weir__safetensors_text){progress->notes[i].key, progress->notes[i].value};
    return good;
}

/* ---- what is written ---- */

/** One save, of numbers that the host can touch. */
struct net_writing {
    const struct weir_net *net;
    const struct weir__entries *entries;
    const struct texts *texts;
    uint64_t step;
    uint32_t token; /**< of this save alone; the same on all ranks */
};

static uint32_t rank_count(const struct weir_net *net) {
    return net->pipe_options.world != NULL ? net->pipe_options.world->rank_count : 1;
}

static uint32_t own_rank(const struct weir_net *net) {
    return net->pipe_options.world != NULL ? net->pipe_options.world->rank : 0;
}

/** Several ranks write a folder, and so does one process where there is one. */
static bool is_folder(const struct weir__io *io, const struct net_writing *writing,
                      const char *path) {
    return rank_count(writing->net) > 1 || weir__archive_is_folder(io, path);
}

static void fill_item(const struct weir__entry *entry, struct weir__safetensors_item *item) {
    item->name = entry->name;
    item->dtype = entry->parameter.dtype;
    item->rank = entry->parameter.rank;
    memcpy(item->shape, entry->parameter.shape, item->rank * sizeof item->shape[0]);
    item->data = entry->data;
}

/** Of all entries; NULL without memory. */
static struct weir__safetensors_item *make_items(const struct weir__entries *entries,
                                                 struct weir__pool *pool) {
    struct weir__safetensors_item *items = weir__pool_take(pool, entries->count, sizeof items[0]);
    for (uint32_t i = 0; items != NULL && i < entries->count; i++)
        fill_item(&entries->list[i], &items[i]);
    return items;
}

/** What this rank writes. */
static struct weir__archive_piece *make_pieces(const struct weir__entries *entries,
                                               struct weir__pool *pool, uint32_t *count) {
    struct weir__archive_piece *pieces = weir__pool_take(pool, entries->count, sizeof pieces[0]);
    *count = 0;
    for (uint32_t i = 0; pieces != NULL && i < entries->count; i++) {
        const struct weir__entry *entry = &entries->list[i];
        const struct weir__slice *written = &entry->written, *held = &entry->held;
        if (written->count == 0) continue;
        assert(written->begin >= held->begin);
        assert(written->begin + written->count <= held->begin + held->count);
        struct weir__archive_piece *piece = &pieces[(*count)++];
        fill_item(entry, &piece->item);
        piece->item.data =
            (const char *)entry->data + weir__entry_bytes(entry, written->begin - held->begin);
        piece->whole = written->count == entry->parameter.count;
        piece->begin = written->begin;
        piece->count = written->count;
    }
    return pieces;
}

static int no_memory(const struct weir__io *io) {
    return weir__fail(io->error, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
}

static int write_file(const struct weir__io *io, const char *path,
                      const struct net_writing *writing) {
    struct weir__pool pool;
    weir__pool_init(&pool, io->allocator);
    struct weir__safetensors_item *items = make_items(writing->entries, &pool);
    int status = items == NULL
                     ? no_memory(io)
                     : weir__safetensors_save(io, path, items, writing->entries->count,
                                              writing->texts->list, writing->texts->count);
    weir__pool_clean_up(&pool);
    return status;
}

static int write_part(const struct weir__io *io, const char *folder,
                      const struct net_writing *writing) {
    char name[WEIR__PART_NAME_BYTES];
    uint32_t count;
    struct weir__pool pool;
    weir__pool_init(&pool, io->allocator);
    weir__part_name(writing->step, writing->token, own_rank(writing->net), name);
    struct weir__archive_piece *pieces = make_pieces(writing->entries, &pool, &count);
    int status = pieces == NULL ? no_memory(io) : weir__archive_prepare(io, folder);
    if (status != WEIR_OK) goto out;
    status = weir__archive_write(io, folder, name, pieces, count);
out:
    weir__pool_clean_up(&pool);
    return status;
}

/** What this rank wrote of a folder for a save that is not to be; the disk may be full. */
static void drop_part(const char *folder, const struct net_writing *writing) {
    const struct weir__io quiet = {0};
    char name[WEIR__PART_NAME_BYTES], path[PATH_MAX];
    weir__part_name(writing->step, writing->token, own_rank(writing->net), name);
    if (weir__path_join(&quiet, folder, name, path) == WEIR_OK) (void)unlink(path);
}

/** On the first rank, when all have written theirs. */
static int commit_parts(const struct weir__io *io, const char *folder,
                        const struct net_writing *writing) {
    uint32_t ranks = rank_count(writing->net);
    struct weir__pool pool;
    weir__pool_init(&pool, io->allocator);
    struct weir__archive_commit commit = {.part_count = ranks,
                                          .tensors = make_items(writing->entries, &pool),
                                          .tensor_count = writing->entries->count,
                                          .texts = writing->texts->list,
                                          .text_count = writing->texts->count};
    char(*names)[WEIR__PART_NAME_BYTES] = weir__pool_take(&pool, ranks, sizeof *names);
    const char **parts = weir__pool_take(&pool, ranks, sizeof *parts);
    int status = pool.failed ? no_memory(io) : WEIR_OK;
    if (status != WEIR_OK) goto out;
    for (uint32_t r = 0; r < ranks; r++) {
        weir__part_name(writing->step, writing->token, r, names[r]);
        parts[r] = names[r];
    }
    commit.parts = parts;
    status = weir__archive_commit(io, folder, &commit);
out:
    weir__pool_clean_up(&pool);
    return status;
}

/** A file, or this rank's part. */
static int write_own(const struct weir__io *io, const char *path,
                     const struct net_writing *writing) {
    return is_folder(io, writing, path) ? write_part(io, path, writing)
                                        : write_file(io, path, writing);
}

/** Nothing for a file, which is whole already, and on other ranks. */
static int commit(const struct weir__io *io, const char *path, const struct net_writing *writing) {
    bool commits = own_rank(writing->net) == 0 && is_folder(io, writing, path);
    return commits ? commit_parts(io, path, writing) : WEIR_OK;
}

/** A number that no other save has, as good as surely; the first rank's on all. Collective. */
static int draw_token(const struct weir_net *net, uint64_t *token) {
    const uint64_t seen[] = {weir__now_ns(), (uint64_t)getpid(), (uint64_t)(uintptr_t)net, *token};
    *token = weir__xxh64(seen, sizeof seen);
    return weir__world_share(net->pipe_options.world, token);
}

/* ---- saving ---- */

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

static int save_own(const struct weir__io *io, const char *path, struct weir__entries *entries,
                    const struct weir_progress *progress, struct texts *texts,
                    const struct net_writing *writing) {
    if (weir__entries_place(entries, writing->net, false) != WEIR_OK ||
        !make_texts(texts, writing->net->model, progress))
        return no_memory(io);
    int status = weir__entries_read(entries, writing->net, io->error);
    return status == WEIR_OK ? write_own(io, path, writing) : status;
}

int weir_net_save(const struct weir_net *net, const char *path,
                  const struct weir_progress *progress, struct weir_error *error) {
    struct weir__entries entries;
    struct weir_error own = {.stage = -1, .micro_batch = -1};
    struct weir__io io = {.allocator = net->allocator, .error = error != NULL ? error : &own};
    uint64_t token = 0;
    weir__error_clear(io.error);
    int status = draw_token(net, &token);
    if (status != WEIR_OK) return weir__fail(io.error, status, "the ranks cannot be asked");
    status = weir__entries_init(&entries, net, progress != NULL);
    if (status != WEIR_OK) {
        weir__fail(io.error, status, "%s", weir_status_text(status));
        return agree(net, status, io.error);
    }
    struct texts texts = {.pool = &entries.pool};
    const struct net_writing writing = {.net = net,
                                        .entries = &entries,
                                        .texts = &texts,
                                        .step = progress != NULL ? progress->step : 0,
                                        .token = (uint32_t)token};
    status = agree(net, save_own(&io, path, &entries, progress, &texts, &writing), io.error);
    if (status != WEIR_OK) {
        drop_part(path, &writing);
        goto out;
    }
    status = agree(net, commit(&io, path, &writing), io.error);
out:
    weir__pool_clean_up(&entries.pool);
    return status;
}

/* ---- adapters ---- */

static int save_adapters(const struct weir__io *io, const char *path, struct weir__entries *entries,
                         const struct weir_net *net) {
    static const struct weir__safetensors_text format = {"format", "pt"};
    uint32_t count = 0;
    if (weir__entries_place(entries, net, false) != WEIR_OK ||
        !weir__entries_file_adapters(entries, net))
        return no_memory(io);
    int status = weir__entries_read(entries, net, io->error);
    struct weir__safetensors_item *items = make_items(entries, &entries->pool);
    if (status != WEIR_OK || items == NULL) return status != WEIR_OK ? status : no_memory(io);
    for (uint32_t i = 0; i < entries->count; i++) {
        if (!entries->list[i].parameter.adapter) continue;
        items[count] = items[i];
        items[count++].name = entries->list[i].filed;
    }
    return weir__safetensors_save(io, path, items, count, &format, 1);
}

int weir_net_save_adapters(const struct weir_net *net, const char *path, struct weir_error *error) {
    struct weir__entries entries;
    struct weir_error own = {.stage = -1, .micro_batch = -1};
    struct weir__io io = {.allocator = net->allocator, .error = error != NULL ? error : &own};
    weir__error_clear(io.error);
    if (net->network.model->lora == NULL)
        return weir__fail(io.error, WEIR_ERR_CONFIG, "the model has no adapters");
    if (rank_count(net) > 1)
        return weir__fail(io.error, WEIR_ERR_UNSUPPORTED,
                          "one process writes adapters: save a checkpoint, and resume it alone");
    int status = weir__entries_init(&entries, net, false);
    if (status != WEIR_OK) return no_memory(&io);
    status = save_adapters(&io, path, &entries, net);
    weir__pool_clean_up(&entries.pool);
    return status;
}

/* ---- saving beside training ---- */

struct weir_net_copy {
    const struct weir_net *net;
    struct weir__entries entries;
    struct weir__pool pool; /* of the texts */
    struct texts texts;     /* none before the first take */
    uint64_t token;         /* drawn once; each take makes its own of it */
    uint64_t step, takes;
};

static struct net_writing writing_of(const struct weir_net_copy *copy) {
    const uint64_t token[] = {copy->token, copy->takes};
    return (struct net_writing){.net = copy->net,
                                .entries = &copy->entries,
                                .texts = &copy->texts,
                                .step = copy->step,
                                .token = (uint32_t)weir__xxh64(token, sizeof token)};
}

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
    if (!good) return 0;
    return (numbers - weir__net_mapped_count(model, options)) * weir_dtype_bytes(dtype);
}

int weir_net_copy_new(const struct weir_net *net, struct weir_net_copy **copy) {
    struct weir_net_copy *made = weir__acquire(net->allocator, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    *made = (struct weir_net_copy){.net = net};
    weir__pool_init(&made->pool, net->allocator);
    int status = draw_token(net, &made->token);
    if (status != WEIR_OK) goto fail_copy;
    if ((status = weir__entries_init(&made->entries, net, true)) != WEIR_OK) goto fail_copy;
    if ((status = weir__entries_place(&made->entries, net, true)) != WEIR_OK) goto fail_entries;
    status = weir__entries_read(&made->entries, net, NULL); /* touches it all */
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
    copy->step = progress->step;
    copy->takes++;
    if (!make_texts(&copy->texts, copy->net->model, progress) || !own_texts(&copy->texts)) {
        copy->texts.count = 0;
        return weir__fail(error, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
    }
    int status = weir__entries_read(&copy->entries, copy->net, error);
    if (status != WEIR_OK) copy->texts.count = 0;
    return status;
}

int weir_net_copy_save(const struct weir_net_copy *copy, const char *path,
                       struct weir_error *error) {
    assert(copy != NULL && copy->texts.count > 0); /* one was taken */
    weir__error_clear(error);
    const struct net_writing writing = writing_of(copy);
    return write_own(&(struct weir__io){copy->net->allocator, NULL, error}, path, &writing);
}

int weir_net_copy_commit(const struct weir_net_copy *copy, const char *path,
                         struct weir_error *error) {
    assert(copy != NULL && copy->texts.count > 0);
    weir__error_clear(error);
    const struct net_writing writing = writing_of(copy);
    return commit(&(struct weir__io){copy->net->allocator, NULL, error}, path, &writing);
}

void weir__net_copy_drop(const struct weir_net_copy *copy, const char *path) {
    const struct net_writing writing = writing_of(copy);
    drop_part(path, &writing);
}

uint64_t weir__net_copy_held(const struct weir_net_copy *copy) {
    return weir__entries_bytes(&copy->entries);
}
