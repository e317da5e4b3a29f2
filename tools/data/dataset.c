/* SPDX-License-Identifier: MIT */
/* A data set of any kind: what is to train on, what is held out, and rows of both by number. */
#include "data/dataset.h"

#include "data/corpus.h"
#include "data/dataset_inside.h"
#include "data/npz.h"
#include "data/permutation.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TRAIN, HELD_OUT, PARTS };

struct weir__dataset {
    const struct weir_allocator *allocator;
    const struct weir__io_calls *calls;
    struct weir__dataset_options options; /* text is read at bind: its rows are the model's */
    enum weir__data_kind kind;
    struct weir__dataset_facts facts;
    uint32_t context;
    bool packed; /* rows of words are shared: inputs are twice as long */
    int64_t vocabulary;
    struct weir__corpus text[PARTS]; /* the second only where it is another text */
    struct weir__token_part tokens[PARTS];
    struct weir__array_part arrays[PARTS];
    struct weir__array_rule rule;
    struct weir__word_part words[PARTS]; /* likewise */
    int64_t ignored;
};

static struct weir__io io_of(const struct weir__dataset *dataset, struct weir_error *error) {
    return (struct weir__io){dataset->allocator, dataset->calls, error};
}

static bool is_words(const struct weir__dataset *dataset) {
    return dataset->kind == WEIR__DATA_WORDS || dataset->kind == WEIR__DATA_CHATS;
}

/* The documents that hold a part. */
static const struct weir__documents *documents_of(const struct weir__dataset *dataset, int part) {
    bool own = dataset->words[HELD_OUT].documents.row_count > 0;
    return &dataset->words[own ? part : TRAIN].documents;
}

static uint64_t rows_of(const struct weir__dataset *dataset, int part) {
    if (is_words(dataset)) {
        return weir__documents_part(documents_of(dataset, part), part == HELD_OUT);
    }
    return dataset->kind == WEIR__DATA_ARRAYS ? dataset->arrays[part].count
                                              : dataset->tokens[part].count;
}

/* ---- opening ---- */

static int open_arrays(struct weir__dataset *dataset, const struct weir__io *io,
                       const struct weir__data_paths *train, const struct weir__data_paths *eval,
                       struct weir_faults *faults) {
    struct weir__data_pair pairs[PARTS] = {{NULL, NULL}, {NULL, NULL}};
    if (dataset->options.whole) {
        int chosen = dataset->options.inputs
                         ? weir__data_input_choose(train, faults, &pairs[TRAIN])
                         : weir__data_pair_choose_eval(train, faults, &pairs[TRAIN]);
        dataset->arrays[HELD_OUT].borrowed = true;
        return chosen ? chosen
                      : weir__array_part_open(io, &pairs[TRAIN], faults, &dataset->arrays[TRAIN]);
    }
    int status =
        weir__data_pair_choose(train, faults, &pairs[TRAIN], eval ? NULL : &pairs[HELD_OUT]);
    int other = eval ? weir__data_pair_choose_eval(eval, faults, &pairs[HELD_OUT]) : WEIR_OK;
    if (status || other) {
        return status ? status : other;
    }
    status = weir__array_part_open(io, &pairs[TRAIN], faults, &dataset->arrays[TRAIN]);
    if (pairs[HELD_OUT].input) {
        other = weir__array_part_open(io, &pairs[HELD_OUT], faults, &dataset->arrays[HELD_OUT]);
        return status ? status : other;
    }
    return status ? status
                  : weir__array_part_split(&dataset->arrays[TRAIN], faults,
                                           &dataset->arrays[HELD_OUT]);
}

static uint32_t count_held_out(const struct weir__data_paths *found) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < found->files.count; i++) {
        count += weir__data_is_held_out(found->files.list[i]);
    }
    return count;
}

/* Words are read at bind; of conversations the files are known now. */
static int open_part(struct weir__dataset *dataset, const struct weir__io *io,
                     const struct weir__data_paths *found, enum weir__token_choice which,
                     struct weir_faults *faults, int part) {
    return dataset->kind == WEIR__DATA_CHATS
               ? weir__word_part_open(io, found, which, &dataset->words[part])
               : weir__token_part_open(io, found, which, faults, &dataset->tokens[part]);
}

/* Tokens and conversations: files are told apart by their names. */
static int open_files(struct weir__dataset *dataset, const struct weir__io *io,
                      const struct weir__data_paths *train, const struct weir__data_paths *eval,
                      struct weir_faults *faults) {
    const struct weir__data_paths *other = eval ? eval : train;
    uint32_t marked = count_held_out(train);
    bool whole = dataset->options.whole, by_name = marked > 0 && marked < train->files.count;
    enum weir__token_choice all = whole && marked > 0 ? WEIR__TOKENS_HELD_OUT
                                  : !whole && by_name ? WEIR__TOKENS_TRAIN
                                                      : WEIR__TOKENS_ALL;
    int status = open_part(dataset, io, train, all, faults, TRAIN);
    if (status || whole || (!eval && !by_name)) {
        return status;
    }
    all = count_held_out(other) > 0 ? WEIR__TOKENS_HELD_OUT : WEIR__TOKENS_ALL;
    return open_part(dataset, io, other, all, faults, HELD_OUT);
}

static int open_found(struct weir__dataset *dataset, const struct weir__io *io,
                      const struct weir__data_paths *train, const struct weir__data_paths *eval,
                      struct weir_faults *faults) {
    static const char *const names[] = {"text", "tokens", "arrays", "text", "conversations"};
    bool words = train->kind == WEIR__DATA_TEXT && dataset->options.words;
    dataset->kind = words ? WEIR__DATA_WORDS : train->kind;
    if (eval && eval->kind != train->kind) {
        weir_faults_add(faults,
                        "the data to train on are %s, but the held-out data are %s: "
                        "give both in one form",
                        names[train->kind], names[eval->kind]);
        return WEIR_ERR_CONFIG;
    }
    switch (train->kind) {
    case WEIR__DATA_ARRAYS: return open_arrays(dataset, io, train, eval, faults);
    case WEIR__DATA_TOKENS:
    case WEIR__DATA_CHATS: return open_files(dataset, io, train, eval, faults);
    default: return WEIR_OK;
    }
}

static int find_and_open(struct weir__dataset *dataset, const struct weir__io *io,
                         struct weir_faults *faults) {
    const struct weir__dataset_options *options = &dataset->options;
    struct weir__data_paths train = {.kind = WEIR__DATA_TEXT}, eval = {.kind = WEIR__DATA_TEXT};
    bool has_eval = options->eval_path_count > 0;
    enum weir__data_look look = options->text    ? WEIR__LOOK_TEXT
                                : options->words ? WEIR__LOOK_CHATS
                                                 : WEIR__LOOK_ALL;
    int status =
        weir__data_paths_find(io, options->paths, options->path_count, look, faults, &train);
    int other = has_eval ? weir__data_paths_find(io, options->eval_paths, options->eval_path_count,
                                                 look, faults, &eval)
                         : WEIR_OK;
    status = status ? status : other;
    if (!status) {
        status = open_found(dataset, io, &train, has_eval ? &eval : NULL, faults);
    }
    weir__data_paths_release(io, &train);
    weir__data_paths_release(io, &eval);
    return status;
}

int weir__dataset_open(const struct weir__io *io, const struct weir__dataset_options *options,
                       struct weir_faults *faults, struct weir__dataset **dataset) {
    assert(options->path_count > 0);
    struct weir__dataset *made = weir__acquire(io->allocator, 1, sizeof(*made));
    if (!made) {
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    made->allocator = io->allocator;
    made->calls = io->calls;
    made->options = *options;
    int status = find_and_open(made, io, faults);
    if (status) {
        weir__dataset_close(made);
        return status;
    }
    *dataset = made;
    return WEIR_OK;
}

void weir__dataset_close(struct weir__dataset *dataset) {
    if (!dataset) {
        return;
    }
    struct weir__io io = io_of(dataset, NULL);
    for (int i = HELD_OUT; i >= TRAIN; i--) {
        if (dataset->text[i].text.data) {
            weir__corpus_clean_up(&dataset->text[i]);
        }
        weir__token_part_close(&io, &dataset->tokens[i]);
        weir__array_part_close(&dataset->arrays[i]);
        weir__word_part_close(&io, &dataset->words[i]);
    }
    weir__release(dataset->allocator, dataset, 1, sizeof(*dataset));
}

/* ---- asking ---- */

enum weir__data_kind weir__dataset_kind(const struct weir__dataset *dataset) {
    return dataset->kind;
}

static void sample_of(const struct weir__array *array, struct weir_tensor *sample) {
    bool real = weir__number_is_real(array->number);
    bool pixels = array->number == WEIR__NUMBER_U8 || array->number == WEIR__NUMBER_BOOL;
    bool floats = real || (pixels && array->rank > 1);
    *sample = (struct weir_tensor){.dtype = floats ? WEIR_F32 : WEIR_I64};
    if (array->rank == 3) {
        sample->shape[sample->rank++] = 1;
    }
    for (uint32_t i = 1; i < array->rank; i++) {
        sample->shape[sample->rank++] = array->shape[i];
    }
}

void weir__dataset_sample(const struct weir__dataset *dataset, struct weir_tensor *input,
                          struct weir_tensor *target) {
    assert(dataset->kind == WEIR__DATA_ARRAYS);
    sample_of(&dataset->arrays[TRAIN].input, input);
    sample_of(&dataset->arrays[TRAIN].target, target);
}

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Of an array in an archive both names. */
static const char *shown_name(const char *path) {
    size_t archive = weir__npz_archive(path);
    if (archive == 0) {
        return base_of(path);
    }
    while (archive > 0 && path[archive - 1] != '/') {
        archive--;
    }
    return path + archive;
}

static bool is_scaled(const struct weir__array *array, float scale) {
    return array->number == WEIR__NUMBER_U8 && scale > 1;
}

/* What bytes of inputs are divided by, once that is known. */
static float input_scale(const struct weir__dataset *dataset) {
    bool bound = dataset->facts.fingerprint != 0;
    return bound && weir_dtype_is_float(dataset->rule.input.dtype) ? 255 : 1;
}

bool weir__dataset_scales(const struct weir__dataset *dataset) {
    const struct weir__array_part *part = &dataset->arrays[TRAIN];
    return dataset->kind == WEIR__DATA_ARRAYS &&
           (is_scaled(&part->input, input_scale(dataset)) ||
            (part->target.source.path && is_scaled(&part->target, dataset->rule.target_scale)));
}

/* "x.npy u8 [60000, 28, 28] / 255": what its bytes are divided by is said. */
static void describe(const struct weir__array *array, float scale, char *text, size_t capacity) {
    char shape[96];
    snprintf(text, capacity, "%s %s%s", shown_name(array->source.path),
             weir__array_text(array, shape, sizeof(shape)),
             is_scaled(array, scale) ? " / 255" : "");
}

const char *weir__dataset_text(const struct weir__dataset *dataset, char *text, size_t capacity) {
    assert(capacity > 0);
    text[0] = 0;
    if (dataset->kind != WEIR__DATA_ARRAYS) {
        return text;
    }
    const struct weir__array_part *part = &dataset->arrays[TRAIN];
    describe(&part->input, input_scale(dataset), text, capacity);
    if (part->target.source.path) {
        size_t used = strlen(text);
        snprintf(text + used, capacity - used, " and ");
        used = strlen(text);
        describe(&part->target, dataset->rule.target_scale, text + used, capacity - used);
    }
    return text;
}

const struct weir__dataset_facts *weir__dataset_facts(const struct weir__dataset *dataset) {
    return &dataset->facts;
}

int weir__dataset_bigram(const struct weir__dataset *dataset, uint64_t rows, double *loss) {
    if (dataset->kind != WEIR__DATA_TEXT || dataset->options.whole) {
        *loss = NAN;
        return WEIR_OK;
    }
    bool two = dataset->options.eval_path_count > 0;
    return weir__corpus_bigram(&dataset->text[TRAIN], &dataset->text[two ? HELD_OUT : TRAIN], rows,
                               loss);
}

/* ---- the fingerprint ---- */

static int hash_files(const struct weir__io *io, const struct weir__source *const *sources,
                      uint32_t count, uint64_t *hash) {
    uint32_t blocks = WEIR__DATA_HASH_BLOCKS / count;
    if (blocks < WEIR__DATA_HASH_BLOCKS_MIN) {
        blocks = WEIR__DATA_HASH_BLOCKS_MIN;
    }
    int status = WEIR_OK;
    for (uint32_t i = 0; i < count && !status; i++) {
        status = weir__source_hash(sources[i], io, blocks, hash);
    }
    return status;
}

static int hash_arrays(const struct weir__array_part *part, const struct weir__io *io,
                       uint64_t *hash) {
    const struct weir__source *sources[] = {&part->input.source, &part->target.source};
    return hash_files(io, sources, part->target.source.path ? 2 : 1, hash);
}

static int hash_tokens(const struct weir__token_part *part, const struct weir__io *io,
                       uint64_t *hash) {
    const struct weir__source **sources =
        weir__acquire(io->allocator, part->file_count, sizeof(*sources));
    if (!sources) {
        return weir__fail(io->error, WEIR_ERR_OUT_OF_MEMORY, "out of memory for %u token file%s",
                          part->file_count, weir__s(part->file_count));
    }
    for (uint32_t i = 0; i < part->file_count; i++) {
        sources[i] = &part->files[i].source;
    }
    int status = hash_files(io, sources, part->file_count, hash);
    weir__release(io->allocator, sources, part->file_count, sizeof(*sources));
    return status;
}

int weir__dataset_hash_held_out(const struct weir__dataset *dataset, const struct weir__io *io,
                                uint64_t *hash) {
    const struct weir__array_part *arrays = &dataset->arrays[HELD_OUT];
    const struct weir__token_part *tokens = &dataset->tokens[HELD_OUT];
    assert(dataset->facts.fingerprint != 0);
    if (is_words(dataset)) {
        bool own = dataset->words[HELD_OUT].documents.row_count > 0;
        *hash = own ? weir__word_part_hash(&dataset->words[HELD_OUT], *hash) : *hash;
    } else if (dataset->kind == WEIR__DATA_TEXT) {
        const uint64_t *fingerprint = &dataset->text[HELD_OUT].fingerprint;
        *hash = weir__hash(*hash, fingerprint, sizeof(*fingerprint));
    } else if (dataset->kind == WEIR__DATA_ARRAYS) {
        return arrays->count > 0 && !arrays->borrowed ? hash_arrays(arrays, io, hash) : WEIR_OK;
    } else if (tokens->file_count > 0 && !tokens->borrowed) {
        return hash_tokens(tokens, io, hash);
    }
    return WEIR_OK;
}

/* ---- binding ---- */

/* Tokens, and for each where its conversation begins. */
static bool is_packed(const struct weir_tensor *input) {
    return input->rank == 2 && input->shape[0] == 2;
}

static bool is_token_model(const struct weir__dataset *dataset,
                           const struct weir__dataset_model *model) {
    struct weir_tensor input = model->input;
    if (is_packed(&input) && dataset->kind == WEIR__DATA_CHATS) {
        input = (struct weir_tensor){input.dtype, 1, {input.shape[1]}};
    }
    const struct weir_tensor *target = model->loss ? &model->target : &input;
    return input.dtype == WEIR_I64 && target->dtype == WEIR_I64 && input.rank == 1 &&
           target->rank == 1 && input.shape[0] == target->shape[0] && input.shape[0] < UINT32_MAX;
}

static int check_token_model(const struct weir__dataset *dataset,
                             const struct weir__dataset_model *model, struct weir_faults *faults) {
    char input[96], target[96];
    const char *what = dataset->kind == WEIR__DATA_TEXT ? "text, bytes" : "tokens";
    if (!is_token_model(dataset, model) && !model->loss) {
        weir_faults_add(faults,
                        "the data are %s in rows, but the model takes the input %s: give a .npy or "
                        "IDX file of inputs",
                        what, weir__tensor_text(&model->input, input, sizeof(input)));
        return WEIR_ERR_SHAPE;
    }
    if (!is_token_model(dataset, model)) {
        weir_faults_add(faults,
                        "the data are %s in rows, but the model takes the input %s and the target "
                        "%s: give arrays, a .npy or IDX file of inputs and one of targets",
                        what, weir__tensor_text(&model->input, input, sizeof(input)),
                        weir__tensor_text(&model->target, target, sizeof(target)));
        return WEIR_ERR_SHAPE;
    }
    if (dataset->kind == WEIR__DATA_TEXT && model->classes < 256) {
        weir_faults_add(faults,
                        "the data are text, read as bytes, but the model's vocabulary has %" PRId64
                        ": use at least 256 (--vocab)",
                        model->classes);
        return WEIR_ERR_SHAPE;
    }
    return WEIR_OK;
}

static int bind_text(struct weir__dataset *dataset, const struct weir__io *io,
                     struct weir_faults *faults) {
    const struct weir__dataset_options *given = &dataset->options;
    struct weir__corpus *text = dataset->text;
    bool two = given->eval_path_count > 0;
    struct weir__corpus_options options = {given->paths, given->path_count, dataset->context, 0,
                                           given->whole ? WEIR__CORPUS_WHOLE
                                           : two        ? WEIR__CORPUS_TRAIN
                                                        : WEIR__CORPUS_SPLIT};
    int status = weir__corpus_open(io, &options, &text[TRAIN]);
    if (!status && two) {
        options.paths = given->eval_paths;
        options.path_count = given->eval_path_count;
        options.part = WEIR__CORPUS_HELD_OUT;
        status = weir__corpus_open(io, &options, &text[HELD_OUT]);
    }
    if (status) {
        return weir__data_fault(faults, io->error);
    }
    dataset->facts.file_count = text[TRAIN].file_count;
    dataset->facts.skipped_count = text[TRAIN].skipped_count;
    dataset->facts.units = text[TRAIN].text.count;
    dataset->facts.pass_rows = (double)text[TRAIN].train_bytes / dataset->context;
    dataset->facts.held_out_rows = text[two ? HELD_OUT : TRAIN].held_out_rows;
    dataset->facts.fingerprint = text[TRAIN].fingerprint;
    return WEIR_OK;
}

static int bind_tokens(struct weir__dataset *dataset, const struct weir__io *io,
                       struct weir_faults *faults) {
    struct weir__token_part *parts = dataset->tokens;
    int status =
        weir__token_part_bind(&parts[TRAIN], io, dataset->context, dataset->vocabulary, faults);
    if (!status && dataset->options.whole) {
        parts[HELD_OUT] = parts[TRAIN];
        parts[HELD_OUT].borrowed = true;
    } else if (!status && parts[HELD_OUT].files) {
        status = weir__token_part_bind(&parts[HELD_OUT], io, dataset->context, dataset->vocabulary,
                                       faults);
    } else if (!status) {
        status = weir__token_part_split(&parts[TRAIN], faults, &parts[HELD_OUT]);
    }
    if (status) {
        return status;
    }
    dataset->facts.file_count = parts[TRAIN].file_count;
    dataset->facts.units = parts[TRAIN].tokens;
    dataset->facts.pass_rows = (double)parts[TRAIN].count;
    dataset->facts.held_out_rows = parts[HELD_OUT].count;
    status = hash_tokens(&parts[TRAIN], io, &dataset->facts.fingerprint);
    return status ? weir__data_fault(faults, io->error) : WEIR_OK;
}

static int bind_words(struct weir__dataset *dataset, const struct weir__io *io,
                      struct weir_faults *faults) {
    const struct weir__dataset_options *given = &dataset->options;
    struct weir__word_part *parts = dataset->words;
    bool two = given->eval_path_count > 0 || parts[HELD_OUT].files.count > 0;
    struct weir__word_rule rule = {given->words,
                                   given->paths,
                                   given->path_count,
                                   dataset->vocabulary,
                                   {dataset->context, dataset->packed, !two && !given->whole}};
    int status = weir__word_part_bind(&parts[TRAIN], io, &rule, faults);
    rule.paths = given->eval_paths;
    rule.path_count = given->eval_path_count;
    int other = two ? weir__word_part_bind(&parts[HELD_OUT], io, &rule, faults) : WEIR_OK;
    if (status || other) {
        return status ? status : other;
    }
    const struct weir__documents *documents = &parts[TRAIN].documents;
    dataset->facts.file_count = documents->file_count;
    dataset->facts.skipped_count = documents->skipped_count;
    dataset->facts.units = documents->token_count;
    dataset->facts.document_count = documents->document_count;
    dataset->facts.learnt = documents->learnt_count;
    dataset->facts.row_tokens = (double)documents->place_count / (double)documents->row_count;
    dataset->facts.pass_rows = (double)rows_of(dataset, TRAIN);
    dataset->facts.held_out_rows = rows_of(dataset, HELD_OUT);
    dataset->facts.ignores = true;
    dataset->facts.fingerprint = weir__word_part_hash(&parts[TRAIN], dataset->facts.fingerprint);
    return WEIR_OK;
}

static int bind_arrays(struct weir__dataset *dataset, const struct weir__io *io,
                       const struct weir__dataset_model *model, struct weir_faults *faults) {
    struct weir__array_part *parts = dataset->arrays;
    int status = weir__arrays_bind(parts, io, model, faults, &dataset->rule);
    if (status) {
        return status;
    }
    if (dataset->options.whole) {
        parts[HELD_OUT] = parts[TRAIN];
        parts[HELD_OUT].borrowed = true;
    }
    dataset->facts.file_count = parts[TRAIN].target.source.path ? 2 : 1;
    dataset->facts.units = parts[TRAIN].count;
    dataset->facts.pass_rows = (double)parts[TRAIN].count;
    dataset->facts.held_out_rows = parts[HELD_OUT].count;
    dataset->facts.ignores = dataset->rule.ignores;
    status = hash_arrays(&parts[TRAIN], io, &dataset->facts.fingerprint);
    return status ? weir__data_fault(faults, io->error) : WEIR_OK;
}

int weir__dataset_bind(struct weir__dataset *dataset, const struct weir__io *io,
                       const struct weir__dataset_model *model, struct weir_faults *faults) {
    struct weir_error error = {.status = WEIR_OK};
    struct weir__io own = {io->allocator, io->calls, &error};
    assert(dataset->facts.fingerprint == 0);
    dataset->facts =
        (struct weir__dataset_facts){.kind = dataset->kind, .fingerprint = WEIR__HASH_BEGIN};
    if (dataset->kind == WEIR__DATA_ARRAYS) {
        return bind_arrays(dataset, &own, model, faults);
    }
    int status = check_token_model(dataset, model, faults);
    if (status) {
        return status;
    }
    dataset->packed = is_packed(&model->input);
    dataset->context = (uint32_t)model->input.shape[dataset->packed ? 1 : 0];
    dataset->vocabulary = model->classes;
    dataset->ignored = model->ignore_index;
    if (is_words(dataset)) {
        return bind_words(dataset, &own, faults);
    }
    return dataset->kind == WEIR__DATA_TEXT ? bind_text(dataset, &own, faults)
                                            : bind_tokens(dataset, &own, faults);
}

/* ---- reading ---- */

static void *advance(void *memory, uint32_t rows, size_t bytes) {
    return memory ? (char *)memory + rows * bytes : NULL;
}

/* Row `index` of a part that is not bytes of text, into row `row` of the buffers. */
static int read_row(const struct weir__dataset *dataset, const struct weir__io *io, int part,
                    uint64_t index, uint32_t row, void *input, void *target) {
    if (dataset->kind == WEIR__DATA_ARRAYS) {
        const struct weir__array_rule *rule = &dataset->rule;
        return weir__array_part_read(&dataset->arrays[part], rule, io, index,
                                     advance(input, row, rule->input_bytes),
                                     advance(target, row, rule->target_bytes));
    }
    size_t bytes = dataset->context * sizeof(int64_t);
    if (is_words(dataset)) {
        const struct weir__documents *documents = documents_of(dataset, part);
        weir__documents_read(
            documents, weir__documents_part_row(documents, part == HELD_OUT, index),
            dataset->context, dataset->ignored,
            advance(input, row, dataset->packed ? 2 * bytes : bytes), advance(target, row, bytes));
        return WEIR_OK;
    }
    return weir__token_part_read(&dataset->tokens[part], io, dataset->context, dataset->vocabulary,
                                 index, advance(input, row, bytes), advance(target, row, bytes));
}

/* Which training row is row `row` of a mini-batch. */
static uint64_t index_of(const struct weir__dataset *dataset, uint64_t seed, uint64_t mini_batch,
                         uint32_t rows, uint32_t row) {
    uint64_t count = rows_of(dataset, TRAIN);
    unsigned __int128 number = (unsigned __int128)mini_batch * rows + row;
    return weir__permute(seed, (uint64_t)(number / count), count, (uint64_t)(number % count));
}

struct weir__dataset_origin weir__dataset_origin_of(const struct weir__dataset *dataset,
                                                    uint64_t seed, uint64_t mini_batch,
                                                    uint32_t rows, uint32_t row) {
    assert(dataset->kind == WEIR__DATA_ARRAYS && !dataset->options.whole && row < rows);
    const struct weir__array_part *part = &dataset->arrays[TRAIN];
    return (struct weir__dataset_origin){part->first +
                                             index_of(dataset, seed, mini_batch, rows, row),
                                         part->input.source.path, part->target.source.path};
}

int weir__dataset_read(const struct weir__dataset *dataset, const struct weir__io *io,
                       uint64_t seed, uint64_t mini_batch, uint32_t rows, void *input,
                       void *target) {
    return weir__dataset_read_part(dataset, io, seed, mini_batch, rows, 0, rows, input, target);
}

int weir__dataset_read_part(const struct weir__dataset *dataset, const struct weir__io *io,
                            uint64_t seed, uint64_t mini_batch, uint32_t rows, uint32_t first,
                            uint32_t count, void *input, void *target) {
    assert(!dataset->options.whole && first <= rows && count <= rows - first);
    if (dataset->kind == WEIR__DATA_TEXT) {
        weir__corpus_batch(&dataset->text[TRAIN], seed, mini_batch, first, count, input, target);
        return WEIR_OK;
    }
    int status = WEIR_OK;
    for (uint32_t i = first; i < first + count && !status; i++) {
        uint64_t index = index_of(dataset, seed, mini_batch, rows, i);
        status = read_row(dataset, io, TRAIN, index, i, input, target);
    }
    return status;
}

int weir__dataset_read_held_out(const struct weir__dataset *dataset, const struct weir__io *io,
                                uint64_t first, uint32_t rows, void *input, void *target) {
    assert(first + rows <= dataset->facts.held_out_rows);
    if (dataset->kind == WEIR__DATA_TEXT) {
        bool two = dataset->options.eval_path_count > 0;
        weir__corpus_batch_held_out(&dataset->text[two ? HELD_OUT : TRAIN], first, rows, input,
                                    target);
        return WEIR_OK;
    }
    uint64_t count = rows_of(dataset, HELD_OUT);
    int status = WEIR_OK;
    for (uint32_t i = 0; i < rows && !status; i++) {
        /* always the same order, with which the training has nothing to do */
        uint64_t index = dataset->options.whole ? first + i : weir__permute(0, 0, count, first + i);
        status = read_row(dataset, io, HELD_OUT, index, i, input, target);
    }
    return status;
}

const uint32_t *weir__dataset_prompt(const struct weir__dataset *dataset, uint32_t most,
                                     uint32_t *count) {
    if (!is_words(dataset)) {
        return NULL;
    }
    const struct weir__documents *documents = documents_of(dataset, HELD_OUT);
    return weir__documents_prompt(documents, weir__documents_part_row(documents, true, 0), most,
                                  count);
}
