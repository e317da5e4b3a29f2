/* SPDX-License-Identifier: MIT */
/*
 * Bytes for training. A row is found by arithmetic alone (no list of rows, no shuffling state), so
 * the data's position is the number of the mini-batch and nothing has to be saved to resume.
 */
#include "data/corpus.h"

#include "data/folder.h"
#include "io/archive.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#define BYTES_MAX ((uint64_t)1 << 30)
#define DEPTH_MAX 64
#define SNIFF_BYTES 8192
#define BLOCK_BYTES 4096
#define ROWS_PER_BLOCK 8
#define PERIOD 10 /* of so many blocks the last is held out */
#define SYMBOLS 256
/* The op number of the rows' random numbers: no layer has index 0xFFFFFF. */
#define RANDOM_OP UINT32_MAX

/* What the steps of an opening share. */
struct walk {
    const struct weir__io *io;
    struct weir__corpus *corpus;
    uint64_t bytes_max;
    bool files; /* their ends are wanted */
};

/* ---- gathering files ---- */

static bool is_binary(const char *data, size_t bytes) {
    return memchr(data, 0, bytes) != NULL;
}

static int add_end(struct walk *walk) {
    const size_t end = walk->corpus->text.count;
    return weir__bytes_append(walk->io, &walk->corpus->ends, &end, sizeof(end));
}

/* The first bytes say whether the file is wanted at all; the rest follows. */
static int append_file(struct walk *walk, const char *path, int descriptor, bool given) {
    struct weir__corpus *corpus = walk->corpus;
    struct weir__bytes *text = &corpus->text;
    char shortened[96];
    size_t before = text->count;
    int status = weir__bytes_reserve(walk->io, text, SNIFF_BYTES);
    if (status) {
        return status;
    }
    ssize_t got = weir__io_read(walk->io, descriptor, text->data + before, SNIFF_BYTES);
    if (got < 0) {
        return weir__io_fail(walk->io, errno, "read", path);
    }
    if (!given && is_binary(text->data + before, (size_t)got)) {
        corpus->skipped_count++;
        text->data[before] = 0;
        return WEIR_OK;
    }
    corpus->file_count++;
    text->count += (size_t)got;
    text->data[text->count] = 0;
    if (got == SNIFF_BYTES) {
        status = weir__file_append(walk->io, path, descriptor, (size_t)walk->bytes_max, text);
    }
    if (!status && text->count > walk->bytes_max) {
        status = weir__fail(walk->io->error, WEIR_ERR_CONFIG,
                            "the text up to %s has more than %llu bytes: name fewer or smaller "
                            "files",
                            weir__path_text(path, shortened), (unsigned long long)walk->bytes_max);
    }
    return status || !walk->files ? status : add_end(walk);
}

static int take_file(struct walk *walk, const char *path, bool given) {
    int descriptor = weir__io_open(walk->io, path, O_RDONLY, 0);
    if (descriptor < 0) {
        return weir__io_fail(walk->io, errno, "open", path);
    }
    int status = append_file(walk, path, descriptor, given);
    weir__io_calls_of(walk->io)->close(descriptor); /* read only: a failure loses nothing */
    return status;
}

bool weir__corpus_wants(const char *name) {
    static const char index[] = WEIR__ARCHIVE_INDEX; /* or its .partial */
    return name[0] != '.' && strcmp(name, "zig-out") != 0 &&
           strncmp(name, index, strlen(index)) != 0;
}

static int take(struct walk *walk, const char *path, bool given, int depth);

static int take_folder(struct walk *walk, const char *path, int depth) {
    struct weir__names names = {0};
    char inner[PATH_MAX], shortened[96];
    if (depth >= DEPTH_MAX) {
        return weir__fail(walk->io->error, WEIR_ERR_IO,
                          "folders are more than %d deep at %s: name one further in", DEPTH_MAX,
                          weir__path_text(path, shortened));
    }
    int status = weir__folder_list(walk->io, path, &names);
    for (uint32_t i = 0; i < names.count && !status; i++) {
        if (!weir__corpus_wants(names.list[i])) {
            continue;
        }
        status = weir__path_join(walk->io, path, names.list[i], inner);
        if (!status) {
            status = take(walk, inner, false, depth + 1);
        }
    }
    weir__names_release(walk->io, &names);
    return status;
}

/* A link that is given is followed; one that is found could lead in circles. */
static int take(struct walk *walk, const char *path, bool given, int depth) {
    const struct weir__io_calls *calls = weir__io_calls_of(walk->io);
    struct stat facts;
    if ((given ? calls->stat : calls->lstat)(path, &facts) != 0) {
        return weir__io_fail(walk->io, errno, "read", path);
    }
    if (S_ISDIR(facts.st_mode)) {
        return take_folder(walk, path, depth);
    }
    return given || S_ISREG(facts.st_mode) ? take_file(walk, path, given) : WEIR_OK;
}

/* ---- the split ---- */

/* Bytes to train on in the period that begins at `begin`. */
static size_t train_run(const struct weir__corpus *corpus, size_t begin) {
    size_t run = corpus->train_blocks * corpus->block, rest = corpus->text.count - begin;
    return rest < run ? rest : run;
}

static size_t period_bytes(const struct weir__corpus *corpus) {
    return corpus->period_blocks * corpus->block;
}

static size_t full_periods(const struct weir__corpus *corpus) {
    return corpus->text.count / period_bytes(corpus);
}

static uint64_t starts_in(const struct weir__corpus *corpus, size_t run) {
    return run > corpus->context ? run - corpus->context : 0;
}

/* Held-out rows share their first byte with the target of the row before: no target twice. */
static uint64_t held_out_rows_in(const struct weir__corpus *corpus, size_t bytes) {
    return bytes > 0 ? (bytes - 1) / corpus->context : 0;
}

static size_t held_out_bytes(const struct weir__corpus *corpus) {
    return (corpus->period_blocks - corpus->train_blocks) * corpus->block;
}

static size_t last_held_out(const struct weir__corpus *corpus) {
    size_t rest = corpus->text.count - full_periods(corpus) * period_bytes(corpus);
    size_t run = corpus->train_blocks * corpus->block;
    return rest > run ? rest - run : 0;
}

static bool is_held_out(enum weir__corpus_part part) {
    return part == WEIR__CORPUS_HELD_OUT || part == WEIR__CORPUS_WHOLE;
}

/* A text that is for training as a whole is one block. */
static void choose_block(struct weir__corpus *corpus, enum weir__corpus_part part) {
    size_t row = (size_t)corpus->context + 1, count = corpus->text.count;
    corpus->period_blocks = part == WEIR__CORPUS_SPLIT ? PERIOD : 1;
    corpus->train_blocks = is_held_out(part) ? 0 : 1;
    if (part == WEIR__CORPUS_SPLIT) {
        corpus->train_blocks = PERIOD - 1;
    }
    corpus->block = part == WEIR__CORPUS_TRAIN || part == WEIR__CORPUS_WHOLE ? count : BLOCK_BYTES;
    while (corpus->block / ROWS_PER_BLOCK < row && corpus->block < count) {
        corpus->block *= 2;
    }
    if (corpus->block > count / corpus->period_blocks) {
        corpus->block = count / corpus->period_blocks;
    }
}

static int check_size(const struct weir__io *io, const struct weir__corpus *corpus,
                      enum weir__corpus_part part) {
    size_t row = (size_t)corpus->context + 1, count = corpus->text.count;
    if (count == 0) {
        return weir__fail(io->error, WEIR_ERR_CONFIG,
                          "there is no text in %u file%s (%u left out as binary): name files with "
                          "text",
                          corpus->file_count, weir__s(corpus->file_count), corpus->skipped_count);
    }
    if (part == WEIR__CORPUS_FILES) {
        return WEIR_OK;
    }
    if (part == WEIR__CORPUS_SPLIT && count / PERIOD < row) {
        return weir__fail(io->error, WEIR_ERR_CONFIG,
                          "the text has %zu byte%s, too few for a context of %u: a tenth is held "
                          "out and must hold a row of %zu: name more text or a smaller context",
                          count, weir__s(count), corpus->context, row);
    }
    if (count < row) {
        return weir__fail(io->error, WEIR_ERR_CONFIG,
                          "the %s text has %zu byte%s, but a row of context %u has %zu: name more "
                          "text or a smaller context",
                          part == WEIR__CORPUS_TRAIN      ? "training"
                          : part == WEIR__CORPUS_HELD_OUT ? "held-out"
                                                          : "given",
                          count, weir__s(count), corpus->context, row);
    }
    return WEIR_OK;
}

static int split(const struct weir__io *io, struct weir__corpus *corpus,
                 enum weir__corpus_part part) {
    int status = check_size(io, corpus, part);
    if (status || part == WEIR__CORPUS_FILES) {
        return status;
    }
    choose_block(corpus, part);
    size_t periods = full_periods(corpus), begin = periods * period_bytes(corpus);
    corpus->train_bytes = periods * corpus->train_blocks * corpus->block + train_run(corpus, begin);
    corpus->train_starts = periods * starts_in(corpus, corpus->train_blocks * corpus->block) +
                           starts_in(corpus, train_run(corpus, begin));
    corpus->held_out_rows = periods * held_out_rows_in(corpus, held_out_bytes(corpus)) +
                            held_out_rows_in(corpus, last_held_out(corpus));
    assert(corpus->train_starts > 0 || is_held_out(part));
    assert(corpus->held_out_rows > 0 || part == WEIR__CORPUS_TRAIN);
    return WEIR_OK;
}

int weir__corpus_open(const struct weir__io *io, const struct weir__corpus_options *options,
                      struct weir__corpus *corpus) {
    assert(options->context > 0 && options->context < UINT32_MAX);
    struct weir__corpus made = {.allocator = io->allocator, .context = options->context};
    struct walk walk = {io, &made, options->bytes_max ? options->bytes_max : BYTES_MAX,
                        options->part == WEIR__CORPUS_FILES};
    int status = WEIR_OK;
    for (uint32_t i = 0; i < options->path_count && !status; i++) {
        status = take(&walk, options->paths[i], true, 0);
    }
    if (!status) {
        status = split(io, &made, options->part);
    }
    if (status) {
        weir__corpus_clean_up(&made);
        return status;
    }
    made.fingerprint = weir__hash(WEIR__HASH_BEGIN, made.text.data, made.text.count);
    *corpus = made;
    return WEIR_OK;
}

size_t weir__corpus_file_end(const struct weir__corpus *corpus, uint32_t index) {
    assert(corpus->ends.count == corpus->file_count * sizeof(size_t) && index < corpus->file_count);
    return ((const size_t *)(const void *)corpus->ends.data)[index];
}

void weir__corpus_clean_up(struct weir__corpus *corpus) {
    weir__bytes_release(corpus->allocator, &corpus->text);
    weir__bytes_release(corpus->allocator, &corpus->ends);
    *corpus = (struct weir__corpus){0};
}

/* ---- rows ---- */

const uint8_t *weir__corpus_row(const struct weir__corpus *corpus, uint64_t seed,
                                uint64_t mini_batch, uint32_t row) {
    uint32_t words[4];
    weir__philox_words(seed, mini_batch, RANDOM_OP, row, 0, words);
    uint64_t random = (uint64_t)words[0] << 32 | words[1];
    /* The high half of the product: a uniform number below train_starts. */
    uint64_t start = (uint64_t)(((unsigned __int128)random * corpus->train_starts) >> 64);
    uint64_t per_period = starts_in(corpus, corpus->train_blocks * corpus->block);
    size_t begin = (size_t)(start / per_period) * period_bytes(corpus);
    size_t place = begin + (size_t)(start % per_period);
    assert(place - begin + corpus->context < train_run(corpus, begin));
    return (const uint8_t *)corpus->text.data + place;
}

/* First one row of every held-out block, then the second of every one, and so on; the shorter block
 * at the end, if there is one, comes last. */
const uint8_t *weir__corpus_held_out(const struct weir__corpus *corpus, uint64_t index) {
    assert(index < corpus->held_out_rows);
    uint64_t periods = full_periods(corpus);
    uint64_t in_full = periods * held_out_rows_in(corpus, held_out_bytes(corpus));
    uint64_t period = index < in_full ? index % periods : periods;
    uint64_t within = index < in_full ? index / periods : index - in_full;
    size_t block = (size_t)(period * corpus->period_blocks + corpus->train_blocks);
    size_t place = block * corpus->block + (size_t)(within * corpus->context);
    assert(place + corpus->context < corpus->text.count);
    return (const uint8_t *)corpus->text.data + place;
}

static void to_tokens(const struct weir__corpus *corpus, const uint8_t *row, uint32_t at,
                      int64_t *inputs, int64_t *targets) {
    size_t first = (size_t)at * corpus->context;
    for (uint32_t i = 0; i < corpus->context; i++) {
        targets[first + i] = row[i + 1];
        if (inputs) {
            inputs[first + i] = row[i];
        }
    }
}

void weir__corpus_batch(const struct weir__corpus *corpus, uint64_t seed, uint64_t mini_batch,
                        uint32_t first, uint32_t rows, int64_t *inputs, int64_t *targets) {
    for (uint32_t i = first; i < first + rows; i++) {
        to_tokens(corpus, weir__corpus_row(corpus, seed, mini_batch, i), i, inputs, targets);
    }
}

void weir__corpus_batch_held_out(const struct weir__corpus *corpus, uint64_t first, uint32_t rows,
                                 int64_t *inputs, int64_t *targets) {
    for (uint32_t i = 0; i < rows; i++) {
        to_tokens(corpus, weir__corpus_held_out(corpus, first + i), i, inputs, targets);
    }
}

/* ---- the bigram model ---- */

struct bigram {
    uint64_t pairs[SYMBOLS][SYMBOLS]; /* [before][after] */
    uint64_t before[SYMBOLS];         /* pairs that begin with a byte */
    uint64_t followers[SYMBOLS];      /* different bytes after it */
    uint64_t after[SYMBOLS];
    uint64_t total;
};

static void count_pairs(const struct weir__corpus *corpus, struct bigram *bigram) {
    const uint8_t *text = (const uint8_t *)corpus->text.data;
    for (size_t begin = 0; begin < corpus->text.count; begin += period_bytes(corpus)) {
        size_t run = train_run(corpus, begin);
        for (size_t i = 0; i + 1 < run; i++) {
            uint8_t before = text[begin + i], after = text[begin + i + 1];
            bigram->followers[before] += bigram->pairs[before][after]++ == 0;
            bigram->before[before]++;
            bigram->after[after]++;
            bigram->total++;
        }
    }
}

static double laplace(const struct bigram *bigram, uint8_t before, uint8_t after) {
    return ((double)bigram->pairs[before][after] + 1.0) /
           ((double)bigram->before[before] + SYMBOLS);
}

static double witten_bell(const struct bigram *bigram, uint8_t before, uint8_t after) {
    double single = ((double)bigram->after[after] + 1.0) / ((double)bigram->total + SYMBOLS);
    double types = (double)bigram->followers[before];
    if (bigram->before[before] == 0) {
        return single;
    }
    return ((double)bigram->pairs[before][after] + types * single) /
           ((double)bigram->before[before] + types);
}

int weir__corpus_bigram(const struct weir__corpus *corpus, const struct weir__corpus *held_out,
                        uint64_t rows, double *loss) {
    assert(rows <= held_out->held_out_rows && corpus->context == held_out->context);
    struct bigram *bigram = weir__acquire(corpus->allocator, 1, sizeof(*bigram));
    if (!bigram) {
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    count_pairs(corpus, bigram);
    double sum_laplace = 0.0, sum_witten_bell = 0.0;
    uint64_t wanted = rows ? rows : held_out->held_out_rows;
    for (uint64_t i = 0; i < wanted; i++) {
        const uint8_t *row = weir__corpus_held_out(held_out, i);
        for (uint32_t j = 0; j < corpus->context; j++) {
            sum_laplace -= log(laplace(bigram, row[j], row[j + 1]));
            sum_witten_bell -= log(witten_bell(bigram, row[j], row[j + 1]));
        }
    }
    weir__release(corpus->allocator, bigram, 1, sizeof(*bigram));
    double sum = sum_laplace < sum_witten_bell ? sum_laplace : sum_witten_bell;
    *loss = sum / ((double)wanted * corpus->context);
    return WEIR_OK;
}
