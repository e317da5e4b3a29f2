/* SPDX-License-Identifier: MIT */
/**
 * What `weir train --data PATH...` trains on: files and folders become rows of mini-batches.
 *
 * Kinds. A file is what its name says: *.npy, *.npz, *.idx and MNIST's names (*-idx3-ubyte,
 * *.idx1-ubyte) are arrays, *.bin are tokens, all else is text; but a file that is itself given,
 * not found in a folder, and begins as a .npy or token file does is one. A folder holds arrays or
 * tokens if such files lie in it, by their names alone (not in folders below; other files there
 * are left alone), and is text otherwise. All paths must be of one kind.
 *
 *   text     files and folders as bytes: data/corpus.h. A row is `context` bytes and their
 * successors. tokens   llm.c's .bin files: data/tokens.h. The files, sorted in a folder, each cut
 * from its beginning into windows of `context` tokens and their successors; a rest shorter than
 *            that is left out.
 *   words    text where a tokenizer is given: data/documents.h.
 *   chats    *.jsonl where a tokenizer is given: likewise. A folder holds conversations if such
 *            files lie in it, and names mark those that are held out, as of tokens.
 *   arrays   a pair of .npy or IDX files (data/npy.h, data/idx.h), inputs and targets, whose first
 *            dimension counts the samples. A row is a sample. The arrays of a .npz are such files
 *            (data/npz.h); two without meaning in their names are a pair in their order.
 *
 * Pairs. Two files are inputs and targets in this order. Otherwise (a folder, more files) names
 * decide, in upper or lower case: inputs hold "image" or "input" or the word "x", targets "label",
 * "mask" or "target" or the word "y"; a word ends at everything but letters and digits. Names that
 * hold the word t10k, test, val, valid, validation or eval are of the held-out part, all others of
 * the training part. There must be one of each in the training part, and both or none in the
 * held-out part; of files that are given one by one none may be neither. So MNIST's folder is a
 * pair to train on and a pair to evaluate on.
 *
 * Held out, for evaluation: what `eval_paths` name, by the same rules (of two pairs the held-out
 * one); else what names mark as held out (arrays as above, tokens by the same words, fineweb_val_
 * for one; if all of them are marked, none is); else a tenth: of text every tenth block, of tokens
 * and arrays the last tenth of the rows, at least one; of words and conversations every tenth row.
 * Files that are sorted by class have a last
 * tenth that is not like the rest: shuffle them, or give `eval_paths`.
 *
 * Order. Rows of text are drawn by number (data/corpus.h). Tokens and arrays are visited in passes;
 * each pass is a permutation of all training rows (data/permutation.h). Row r of mini-batch m with
 * `rows` rows is number m * rows + r since the beginning, so a mini-batch may end one pass and
 * begin the next, none is short, and the number of the mini-batch is the whole position.
 *
 * Conversion. To floats: u8 inputs are divided by 255, all other inputs are taken as they are.
 * Targets likewise, but u8 targets are divided by 255 only if one of them is above 1 (masks of 0
 * and 255 or of 0 and 1 give 0 to 1 both). To integers: every type of integer as it is; floats are
 * refused. Sizes of 1 at the beginning of a shape count nothing: (N, 28, 28) fits [1, 28, 28], and
 * (N, 1) one label per sample. All other shapes must be the model's.
 *
 * Phases: open, which looks at names, headers and sizes; bind, which checks the data against a
 * model (targets of arrays are read once, for their range); read, any number of times and from any
 * number of threads; close. Every fault of open and bind, but for lack of memory, is a line in
 * `faults` that says what was found and what was expected. Reading allocates nothing.
 *
 * Statuses: WEIR_ERR_CONFIG (not what can be trained on), WEIR_ERR_SHAPE (does not fit the model),
 * WEIR_ERR_IO, WEIR_ERR_FORMAT, WEIR_ERR_UNSUPPORTED, WEIR_ERR_OUT_OF_MEMORY.
 */
#ifndef WEIR_IO_DATASET_H
#define WEIR_IO_DATASET_H

#include "io/file.h"

struct model_text;

enum weir__data_kind {
    WEIR__DATA_TEXT,
    WEIR__DATA_TOKENS,
    WEIR__DATA_ARRAYS,
    WEIR__DATA_WORDS, /**< text by a model's tokenizer */
    WEIR__DATA_CHATS  /**< conversations by its tokenizer and chat template */
};

struct weir__dataset_options {
    const char *const *paths; /**< files and folders, at least one; they outlive the data set */
    uint32_t path_count;
    const char *const *eval_paths; /**< what is held out; the same */
    uint32_t eval_path_count;      /**< 0: see above */
    bool text;                     /**< everything is text, whatever its name */
    bool whole;  /**< all of `paths` is held out and read in order, as if `eval_paths` named it;
                    there is nothing to train on */
    bool inputs; /**< with `whole`: no targets are wanted. Arrays are one file of inputs, the one
                    given or the one that names mark; others are left alone, and bind and read leave
                    targets of arrays away */
    /** The model's own tokenizer: text is its tokens and no bytes, and *.jsonl are conversations,
     * whose chat template is chosen by the time of bind. NULL: none. It outlives the binding. */
    const struct model_text *words;
};

/** What data must fit. */
struct weir__dataset_model {
    struct weir_tensor input, target; /**< one row each, in the dtypes that steps take */
    const char *loss; /**< its name; "cross_entropy" checks labels, "bce…" range; NULL: no target */
    int64_t classes;      /**< labels and tokens are 0 … classes - 1 */
    int64_t ignore_index; /**< and this label, which weighs nothing */
};

/** After bind. */
struct weir__dataset_facts {
    enum weir__data_kind kind;
    uint32_t file_count;    /**< to train on */
    uint32_t skipped_count; /**< text: files left out as binary */
    uint64_t units;         /**< samples to train on; of all else all, held out or not */
    double pass_rows;       /**< rows that make one pass over the training part */
    uint64_t held_out_rows;
    /** Of the training files: all bytes of text; for other files their headers and, where a file is
     * large, evenly spread blocks, 64 MiB in all (data/source.h). */
    uint64_t fingerprint;
    bool ignores; /**< some target is the ignored label: weights of mini-batches differ */
    /** Words and conversations: files or conversations to train on; their tokens that are learnt;
     * and the tokens of a row that are not padding, on average. */
    uint64_t document_count, learnt;
    double row_tokens;
};

struct weir__dataset;

/** Looks at the paths. The data set is the caller's: weir__dataset_close. Of `io` the error is not
 * used, here and in bind. Writes *dataset only on success. */
int weir__dataset_open(const struct weir__io *io, const struct weir__dataset_options *options,
                       struct weir_faults *faults, struct weir__dataset **dataset);
/** Accepts NULL. No other thread may be reading. */
void weir__dataset_close(struct weir__dataset *dataset);

/** Whether a path is a file of conversations, or a folder with some. */
bool weir__dataset_has_chats(const char *path);
/** Whether a file that is put at FOLDER/INNER would be read where the folder is given, by its name,
 * and where the folder is text by its bytes: `text` tells what these are. */
bool weir__dataset_would_take(const char *folder, const char *inner, bool text);

enum weir__data_kind weir__dataset_kind(const struct weir__dataset *dataset);
/** Arrays: one sample of each, from which a model's shape may be taken: (N, H, W) as [1, H, W];
 * f32 for reals, and for u8 and bool but where a sample is one number, i64 for all else. */
void weir__dataset_sample(const struct weir__dataset *dataset, struct weir_tensor *input,
                          struct weir_tensor *target);
/** Whether bytes of arrays are divided by 255; once bound. */
bool weir__dataset_scales(const struct weir__dataset *dataset);
/** Arrays: "train-images-idx3-ubyte u8 [12000, 28, 28] / 255 and train-labels-idx1-ubyte u8
 * [12000]" into `text`, cut if need be, once bound with what bytes are divided by; text and tokens:
 * "". For people. Returns `text`. */
const char *weir__dataset_text(const struct weir__dataset *dataset, char *text, size_t capacity);

/** Checks the data against a model and reads what is read once. May be called once. */
int weir__dataset_bind(struct weir__dataset *dataset, const struct weir__io *io,
                       const struct weir__dataset_model *model, struct weir_faults *faults);
/** After bind. */
const struct weir__dataset_facts *weir__dataset_facts(const struct weir__dataset *dataset);
/** Goes on from `hash` with the held-out part's files, where it has files of its own, as
 * `fingerprint` does with the others. Bound. WEIR_ERR_IO, WEIR_ERR_OUT_OF_MEMORY, with `io`'s
 * error. */
int weir__dataset_hash_held_out(const struct weir__dataset *dataset, const struct weir__io *io,
                                uint64_t *hash);
/** Mean loss of a bigram model on the first `rows` held-out rows of text (data/corpus.h); NaN for
 * other kinds. WEIR_ERR_OUT_OF_MEMORY. */
int weir__dataset_bigram(const struct weir__dataset *dataset, uint64_t rows, double *loss);

/** Training rows (not of a data set that is held out as a whole) of a mini-batch into `input`
 * (NULL: not wanted) and `target`, `rows` rows each. Of `io` only the error is used; it names the
 * file. WEIR_ERR_IO; WEIR_ERR_CONFIG (a token or label out of range in a file that has changed, or
 * that bind did not look at). */
int weir__dataset_read(const struct weir__dataset *dataset, const struct weir__io *io,
                       uint64_t seed, uint64_t mini_batch, uint32_t rows, void *input,
                       void *target);
/** Of the same mini-batch the `count` rows from `first` on alone, at their places in `input` and
 * `target`. */
int weir__dataset_read_part(const struct weir__dataset *dataset, const struct weir__io *io,
                            uint64_t seed, uint64_t mini_batch, uint32_t rows, uint32_t first,
                            uint32_t count, void *input, void *target);
/** The same for held-out rows first … first + rows - 1, all below held_out_rows, which are numbered
 * so that the first few are spread over the whole part; of a data set that is `whole` they stand in
 * their order. */
int weir__dataset_read_held_out(const struct weir__dataset *dataset, const struct weir__io *io,
                                uint64_t first, uint32_t rows, void *input, void *target);
/** Words and conversations: tokens to ask a model by: those before the first reply of the first
 * held-out row, or the first of a text; `most` at most. NULL for other kinds. They are the data
 * set's. */
const uint32_t *weir__dataset_prompt(const struct weir__dataset *dataset, uint32_t most,
                                     uint32_t *count);
/** Arrays: the sample, counted from 0 in its file, that is row `row` of that mini-batch; the files'
 * paths are the data set's. */
struct weir__dataset_origin {
    uint64_t sample;
    const char *input_path, *target_path;
};
struct weir__dataset_origin weir__dataset_origin_of(const struct weir__dataset *dataset,
                                                    uint64_t seed, uint64_t mini_batch,
                                                    uint32_t rows, uint32_t row);

#endif
