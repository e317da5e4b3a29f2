/* SPDX-License-Identifier: MIT */
/**
 * Text as bytes, for training: files and folders in one buffer, split into a part to train on and a
 * part held out, rows drawn by number, and the loss that a bigram model reaches on what was held
 * out.
 *
 * Order. Paths as given; a folder's entries sorted by the bytes of their names, folders entered
 * where they stand. Inside folders are skipped: names that begin with a dot, `zig-out`, indexes of
 * checkpoints, symbolic links, anything that is neither file nor folder, and files that look binary
 * (a zero byte in the first 8,192). A path that is itself given is always taken.
 *
 * Split. The bytes are cut into blocks; of every ten the tenth is held out. (A tail of the buffer
 * would be the last files alone, another kind of text than the rest.) A block is 4,096 bytes,
 * doubled until eight rows fit; for short texts a tenth of the text. No training row touches
 * held-out bytes. Or there are two texts, one to train on and one held out, each a corpus.
 *
 * Rows are `context` + 1 bytes, the targets one byte on from the inputs. A training row depends on
 * (seed, mini-batch, row) alone: the position in the data is the number of the mini-batch, and a
 * resumed run draws the same rows. Held-out rows do not overlap in their targets and are numbered
 * so that the first few are spread over the whole text.
 */
#ifndef WEIR_IO_CORPUS_H
#define WEIR_IO_CORPUS_H

#include "io/file.h"

/** What the text is for. */
enum weir__corpus_part {
    WEIR__CORPUS_SPLIT,    /**< both: a tenth is held out */
    WEIR__CORPUS_TRAIN,    /**< all of it to train on */
    WEIR__CORPUS_HELD_OUT, /**< nothing of it to train on */
    WEIR__CORPUS_WHOLE,    /**< the same; rows follow each other without a gap, in order */
    WEIR__CORPUS_FILES     /**< the files are wanted, not rows of them */
};

struct weir__corpus_options {
    const char *const *paths; /**< files and folders, at least one */
    uint32_t path_count;
    uint32_t context;   /**< bytes of a row's input, at least 1 */
    uint64_t bytes_max; /**< of text in all; 0: 1 GiB */
    enum weir__corpus_part part;
};

/** A loaded text. Read-only once open, so any number of threads may use it. */
struct weir__corpus {
    const struct weir_allocator *allocator;
    struct weir__bytes text;
    uint32_t context;
    struct weir__bytes ends; /**< size_t: where each file ends in the text; of WEIR__CORPUS_FILES */
    uint32_t file_count;     /**< files read */
    uint32_t skipped_count;  /**< files left out as binary */
    uint64_t fingerprint;    /**< FNV-1a of all bytes: does a resumed run see the same text? */
    size_t block;            /**< bytes of one block of the split */
    size_t period_blocks;    /**< so many blocks, of which … */
    size_t train_blocks;     /**< … the first are for training */
    uint64_t train_bytes;    /**< in all of those */
    uint64_t train_starts;   /**< places where a training row can begin */
    uint64_t held_out_rows;  /**< 0: there is no such part; the same for train_starts */
};

/** Reads everything. A path that is missing or cannot be read: WEIR_ERR_IO with its name. No text,
 * more than the limit, or less than a row in either part: WEIR_ERR_CONFIG. The corpus is in the
 * caller's memory: weir__corpus_clean_up. */
int weir__corpus_open(const struct weir__io *io, const struct weir__corpus_options *options,
                      struct weir__corpus *corpus);
/** Where file `index` < file_count, of WEIR__CORPUS_FILES, ends in the text. */
size_t weir__corpus_file_end(const struct weir__corpus *corpus, uint32_t index);
/** Whether a file or folder of this name is looked at where it lies in a folder. */
bool weir__corpus_wants(const char *name);
/** Accepts a zeroed one. */
void weir__corpus_clean_up(struct weir__corpus *corpus);

/** Training row `row` (there must be such a part) of mini-batch `mini_batch`: context + 1 bytes,
 * the corpus's. */
const uint8_t *weir__corpus_row(const struct weir__corpus *corpus, uint64_t seed,
                                uint64_t mini_batch, uint32_t row);
/** Held-out row `index` < held_out_rows: context + 1 bytes, the corpus's. */
const uint8_t *weir__corpus_held_out(const struct weir__corpus *corpus, uint64_t index);
/** Rows first … first + rows - 1 of a mini-batch as tokens, at their places in inputs (NULL: not
 * wanted) and targets [rows of the mini-batch, context]. */
void weir__corpus_batch(const struct weir__corpus *corpus, uint64_t seed, uint64_t mini_batch,
                        uint32_t first, uint32_t rows, int64_t *inputs, int64_t *targets);
/** The same for held-out rows first … first + rows - 1, all < held_out_rows. */
void weir__corpus_batch_held_out(const struct weir__corpus *corpus, uint64_t first, uint32_t rows,
                                 int64_t *inputs, int64_t *targets);
/** Mean loss in nats per byte, over the targets of the first `rows` held-out rows (0: all) of
 * `held_out`, of a bigram model counted on the training part of `corpus`, which may be the same. To
 * be an honest baseline it is the better of add-one (Laplace) and Witten-Bell smoothing, which
 * falls back on the frequency of single bytes. WEIR_ERR_OUT_OF_MEMORY. */
int weir__corpus_bigram(const struct weir__corpus *corpus, const struct weir__corpus *held_out,
                        uint64_t rows, double *loss);

#endif
