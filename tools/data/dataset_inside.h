/* SPDX-License-Identifier: MIT */
/** Inside a data set: which files it is made of, and its two kinds of parts that are not text. */
#ifndef WEIR_IO_DATASET_INSIDE_H
#define WEIR_IO_DATASET_INSIDE_H

#include "data/array.h"
#include "data/dataset.h"
#include "data/documents.h"
#include "data/tokens.h"

/** How many blocks the fingerprint looks at, over all files, and at least in each. */
#define WEIR__DATA_HASH_BLOCKS 1024u
#define WEIR__DATA_HASH_BLOCKS_MIN 4u

/** How paths are looked at. */
enum weir__data_look {
    WEIR__LOOK_ALL,  /**< *.jsonl is text */
    WEIR__LOOK_TEXT, /**< everything is text */
    WEIR__LOOK_CHATS /**< *.jsonl are conversations */
};
/** The files that paths stand for. */
struct weir__data_paths {
    enum weir__data_kind kind;
    struct weir__names files; /**< of all kinds but text and words, which have none here */
    bool two_files;           /**< the paths were just two files */
    bool each;                /**< every file was given by itself */
    enum weir__data_look look;
};

/** Finds out the kind and lists the files; text is WEIR__DATA_TEXT here, whatever it is read by. On
 * failure nothing has to be released. */
int weir__data_paths_find(const struct weir__io *io, const char *const *paths, uint32_t count,
                          enum weir__data_look look, struct weir_faults *faults,
                          struct weir__data_paths *found);
void weir__data_paths_release(const struct weir__io *io, struct weir__data_paths *found);
/** Whether a file's name says that it is of the held-out part. */
bool weir__data_is_held_out(const char *path);

/** A pair of files; both NULL: there is none. Borrowed. */
struct weir__data_pair {
    const char *input, *target;
};
/** Chooses by order or by names, as dataset.h says; `held_out` NULL: such files are left alone. */
int weir__data_pair_choose(const struct weir__data_paths *found, struct weir_faults *faults,
                           struct weir__data_pair *train, struct weir__data_pair *held_out);
/** For the files that were given as held out. */
int weir__data_pair_choose_eval(const struct weir__data_paths *found, struct weir_faults *faults,
                                struct weir__data_pair *pair);
/** For inputs alone: the file that was given, or the one of those; `target` is NULL. */
int weir__data_input_choose(const struct weir__data_paths *found, struct weir_faults *faults,
                            struct weir__data_pair *pair);

/** Inputs and targets, and the samples of them that make a part. */
struct weir__array_part {
    struct weir__array input, target;
    bool borrowed; /**< the arrays are another part's */
    uint64_t first, count;
};

/** What samples are turned into; found by weir__arrays_bind. */
struct weir__array_rule {
    struct weir_tensor input, target;
    uint64_t input_numbers, target_numbers; /**< of one sample */
    size_t input_bytes, target_bytes;
    float target_scale; /**< 1 or 255: u8 targets are divided by it */
    bool labels, ignores;
    int64_t classes, ignore_index;
};

/** Opens a pair and checks one file against the other; without a target its array stays zeroed. */
int weir__array_part_open(const struct weir__io *io, const struct weir__data_pair *pair,
                          struct weir_faults *faults, struct weir__array_part *part);
/** Accepts a zeroed one. */
void weir__array_part_close(struct weir__array_part *part);
/** Makes the last tenth of `train` the held-out part. */
int weir__array_part_split(struct weir__array_part *train, struct weir_faults *faults,
                           struct weir__array_part *held_out);
/** Checks both parts against the model. */
int weir__arrays_bind(const struct weir__array_part parts[2], const struct weir__io *io,
                      const struct weir__dataset_model *model, struct weir_faults *faults,
                      struct weir__array_rule *rule);
/** Sample `index` < count of the part; `input` may be NULL. */
int weir__array_part_read(const struct weir__array_part *part, const struct weir__array_rule *rule,
                          const struct weir__io *io, uint64_t index, void *input, void *target);

/** Files of tokens and the windows of them that make a part. */
struct weir__token_part {
    struct weir__tokens *files; /**< owned, unless borrowed */
    uint64_t *windows;          /**< before each file: [file_count + 1] */
    uint32_t file_count;
    bool borrowed;
    uint64_t tokens;
    uint64_t first, count;
};

/** Opens those of the files that are of the held-out part, or those that are not, or all. */
enum weir__token_choice { WEIR__TOKENS_ALL, WEIR__TOKENS_TRAIN, WEIR__TOKENS_HELD_OUT };
/** By the file's name. */
bool weir__token_chosen(const char *path, enum weir__token_choice choice);
int weir__token_part_open(const struct weir__io *io, const struct weir__data_paths *found,
                          enum weir__token_choice choice, struct weir_faults *faults,
                          struct weir__token_part *part);
/** Accepts a zeroed one. */
void weir__token_part_close(const struct weir__io *io, struct weir__token_part *part);
/** Counts the windows of `context` tokens, and looks at the first tokens of each file: all must be
 * below `vocabulary`. */
int weir__token_part_bind(struct weir__token_part *part, const struct weir__io *io,
                          uint32_t context, int64_t vocabulary, struct weir_faults *faults);
/** Makes the last tenth of `train`'s windows the held-out part. */
int weir__token_part_split(struct weir__token_part *train, struct weir_faults *faults,
                           struct weir__token_part *held_out);
/** Window `index` < count of the part: `context` tokens and their successors. */
int weir__token_part_read(const struct weir__token_part *part, const struct weir__io *io,
                          uint32_t context, int64_t vocabulary, uint64_t index, int64_t *input,
                          int64_t *target);

/** Documents as the parts of a data set. Zeroed, then opened, then bound. */
struct weir__word_part {
    struct weir__names files; /**< of conversations */
    struct weir__documents documents;
};
/** Takes the files of conversations that are of a part: those of the held-out part, or those that
 * are not, or all. WEIR_ERR_OUT_OF_MEMORY. */
int weir__word_part_open(const struct weir__io *io, const struct weir__data_paths *found,
                         enum weir__token_choice choice, struct weir__word_part *part);
/** What documents become rows by. */
struct weir__word_rule {
    const struct model_text *words;
    const char *const *paths; /**< of text */
    uint32_t path_count;
    int64_t vocabulary;
    struct weir__documents_plan plan;
};
/** Reads and encodes everything: the files, or else the paths. */
int weir__word_part_bind(struct weir__word_part *part, const struct weir__io *io,
                         const struct weir__word_rule *rule, struct weir_faults *faults);
/** Of everything that decides what is learnt. */
uint64_t weir__word_part_hash(const struct weir__word_part *part, uint64_t hash);
/** Accepts a zeroed one. */
void weir__word_part_close(const struct weir__io *io, struct weir__word_part *part);

/** Adds an error's message as a line, unless it is out of memory; returns its status. */
int weir__data_fault(struct weir_faults *faults, const struct weir_error *error);

#endif
