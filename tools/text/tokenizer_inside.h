/* SPDX-License-Identifier: MIT */
/** What a tokenizer is made of, for the files that read one and those that use it. */
#ifndef WEIR_TEXT_TOKENIZER_INSIDE_H
#define WEIR_TEXT_TOKENIZER_INSIDE_H

#include "base/name_set.h"
#include "text/normal.h"
#include "text/pattern.h"
#include "text/tokenizer.h"

#include <jansson.h>

#define TEXT_BYTES_MAX (1u << 30)
#define SPLIT_STEPS_MAX 8
#define TEMPLATE_MAX 16

/* ---- what it holds ---- */

struct vocabulary_token {
    const char *text;  /**< NULL: the number is no token's */
    const char *shown; /**< what stands for it: an added token's text is normalized */
    const char *piece;
    uint32_t piece_bytes;
    int16_t byte; /**< that <0x0A> stands for, where the decoder takes it so; -1: none */
    bool added, special;
    bool skipped; /**< where special tokens are: what stands for it is a special one's text */
    bool extra;   /**< only added: not of the vocabulary */
};

/** Which two tokens become which third one; the lowest rank first. Open addressing, half full. */
struct merge_table {
    struct merge_entry {
        uint32_t left, right; /**< left TOKENIZER_NONE: free */
        uint32_t rank, whole;
    } * entries;
    uint32_t mask;
    uint64_t seed;
};

/** Texts to be found in a text: nodes by their first child and next sibling; 0 is none. */
struct added_trie {
    struct added_node {
        uint32_t child, sibling;
        uint32_t id; /**< TOKENIZER_NONE: no text ends here */
        unsigned char byte;
    } * nodes;
    uint32_t count, capacity;
    uint32_t first[256];
};

enum split_kind { SPLIT_PATTERN, SPLIT_DIGITS, SPLIT_BYTES };

struct split_step {
    enum split_kind kind;
    struct pattern *pattern; /**< SPLIT_BYTES: GPT-2's, or NULL */
    bool removes_matches;    /**< SPLIT_PATTERN */
    bool removes_others;     /**< SPLIT_PATTERN */
    bool single;             /**< SPLIT_DIGITS: each one alone */
    bool adds_space;         /**< SPLIT_BYTES: where a piece begins with none */
};

struct tokenizer {
    struct weir__pool pool;
    struct vocabulary_token *tokens;
    uint32_t size;
    struct weir__name_set names;
    uint32_t vocabulary_count; /**< without what is only added */
    /* model */
    bool over_bytes; /**< symbols are bytes, else characters */
    bool ignores_merges, fuses_unknown, falls_back;
    bool leaves_out;        /**< over bytes, of which some are no token, nor is what is unknown */
    uint16_t letters[256];  /**< what stands for a byte in the vocabulary */
    uint32_t unknown;       /**< TOKENIZER_NONE: what is unknown is left out */
    uint32_t byte_ids[256]; /**< over bytes: the symbols; else what it falls back to */
    struct merge_table merges;
    /* around it */
    struct added_trie raw, normalized; /**< found before and behind the normalizer */
    struct normalizer normalizer;
    uint32_t step_count;
    struct split_step steps[SPLIT_STEPS_MAX];
    const uint8_t *marks;   /**< of all code points */
    bool trims;             /**< spans, of blanks */
    bool keeps_first_blank; /**< but for one at the text's beginning, which was added */
    uint32_t before_count, after_count;
    uint32_t before[TEMPLATE_MAX], after[TEMPLATE_MAX];
    bool decodes_bytes;    /**< ByteLevel, else ByteFallback */
    uint32_t strip_blanks; /**< at the beginning of a decoded text */
};

/* ---- bytes as characters ---- */

/** The code point that stands for a byte in GPT-2's alphabet. */
uint32_t byte_letter(unsigned char byte);
/** The reverse; -1: stands for none. */
int byte_of_letter(uint32_t point);

/* ---- reading ---- */

/** A file on its way. Functions give false after a fault, which `status` and the error tell. */
struct tokenizer_reading {
    const char *path;
    struct weir__io io;
    json_t *root;
    struct tokenizer *tokenizer;
    bool has_template;
    int status;
};

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
/** WEIR_ERR_UNSUPPORTED with "PATH: spot: reason". */
bool tokenizer_refuse(struct tokenizer_reading *r, const char *spot, const char *format, ...);
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
/** WEIR_ERR_FORMAT likewise. */
bool tokenizer_malformed(struct tokenizer_reading *r, const char *spot, const char *format, ...);
bool tokenizer_no_memory(struct tokenizer_reading *r);
/** Refuses what is no object, and keys that are not among `keys`, divided by blanks. */
bool tokenizer_check_keys(struct tokenizer_reading *r, const char *spot, const json_t *object,
                          const char *keys);
/** A flag; `missing` where there is none. */
bool tokenizer_flag(struct tokenizer_reading *r, const char *spot, const json_t *object,
                    const char *key, bool missing, bool *flag);
/** A text, borrowed from the file's tree. */
bool tokenizer_text(struct tokenizer_reading *r, const char *spot, const json_t *object,
                    const char *key, const char **text);
/** Takes the parts of a Sequence, whose list is `list`, or a single part, one by one. `spot` is the
 * whole's. */
typedef bool tokenizer_part_fn(struct tokenizer_reading *r, const char *spot, const char *type,
                               const json_t *part);
bool tokenizer_parts(struct tokenizer_reading *r, const char *spot, const char *list,
                     const json_t *part, tokenizer_part_fn *take);

bool tokenizer_read_normalizer(struct tokenizer_reading *r);
bool tokenizer_read_splitter(struct tokenizer_reading *r);
bool tokenizer_read_post(struct tokenizer_reading *r);
bool tokenizer_read_decoder(struct tokenizer_reading *r);
/** Behind the splitter and the decoder. */
bool tokenizer_read_model(struct tokenizer_reading *r);
/** Behind the model and the normalizer. */
bool tokenizer_read_added(struct tokenizer_reading *r);
/** What each token stands for; behind all others. */
bool tokenizer_make_pieces(struct tokenizer_reading *r);

/* ---- using ---- */

/** False: the two do not merge. */
bool merge_find(const struct merge_table *table, uint32_t left, uint32_t right, uint32_t *rank,
                uint32_t *whole);
/** The first of the texts in bytes from … count - 1, and of those that begin there the longest.
 * False: there is none. */
bool added_find(const struct added_trie *trie, const char *bytes, size_t count, size_t from,
                size_t *begin, size_t *end, uint32_t *id);

#endif
