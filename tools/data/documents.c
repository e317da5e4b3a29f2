/* SPDX-License-Identifier: MIT */
#include "data/documents.h"

#include "data/corpus.h"

#include <string.h>

enum { PERIOD = 10 };

static const uint32_t *ids_of(const struct weir__documents *documents) {
    return (const uint32_t *)(const void *)documents->ids.data;
}

static const struct weir__passage *passages_of(const struct weir__documents *documents) {
    return (const struct weir__passage *)(const void *)documents->passages.data;
}

static const uint64_t *rows_of(const struct weir__documents *documents) {
    return (const uint64_t *)(const void *)documents->rows.data;
}

/* ---- adding ---- */

static int append(const struct weir__io *io, struct weir__bytes *bytes, const void *data,
                  size_t count) {
    int status = weir__bytes_reserve(io, bytes, count);
    if (status != WEIR_OK || count == 0) return status;
    memcpy(bytes->data + bytes->count, data, count);
    bytes->count += count;
    return WEIR_OK;
}

static int add_tokens(const struct weir__io *io, struct weir__documents *documents,
                      const uint32_t *ids, const bool *learnt, size_t count) {
    documents->allocator = io->allocator;
    int status = append(io, &documents->ids, ids, count * sizeof *ids);
    if (status != WEIR_OK) return status;
    status = append(io, &documents->learnt, learnt, count * sizeof *learnt);
    if (status == WEIR_OK) documents->token_count += count;
    return status;
}

int weir__documents_add(const struct weir__io *io, struct weir__documents *documents,
                        const uint32_t *ids, const bool *learnt, size_t count) {
    int status = add_tokens(io, documents, ids, learnt, count);
    documents->document_count += status == WEIR_OK;
    return status;
}

int weir__documents_add_passage(const struct weir__io *io, struct weir__documents *documents,
                                struct weir__passage passage) {
    assert(passage.count >= 2 && passage.first + passage.count <= documents->token_count);
    int status = append(io, &documents->passages, &passage, sizeof passage);
    if (status != WEIR_OK) return status;
    documents->passage_count++;
    documents->place_count += passage.count - 1;
    for (uint64_t i = 1; i < passage.count; i++)
        documents->learnt_count += documents->learnt.data[passage.first + i] != 0;
    return WEIR_OK;
}

/* A file's tokens, and what stands before the next. */
static int add_file(const struct weir__io *io, const struct model_text *words,
                    struct text_encoder *encoder, const char *text, size_t bytes,
                    struct weir__documents *documents) {
    struct text_tokens tokens;
    struct weir__bytes learnt = {0};
    int status = text_encode(encoder, text, bytes, TEXT_ADD_SPECIAL, &tokens);
    if (status != WEIR_OK)
        return weir__fail(io->error, status, "a text of %zu bytes cannot be encoded", bytes);
    bool separates = words->separator != TOKENIZER_NONE;
    if ((status = weir__bytes_reserve(io, &learnt, tokens.count + 1)) != WEIR_OK) return status;
    memset(learnt.data, true, tokens.count + 1);
    const bool *all = (const bool *)learnt.data;
    status = weir__documents_add(io, documents, tokens.ids, all, tokens.count);
    if (status == WEIR_OK && separates)
        status = add_tokens(io, documents, &words->separator, all, 1);
    weir__bytes_release(io->allocator, &learnt);
    return status;
}

/* Each window's last token is the next one's first. */
static int cut(const struct weir__io *io, uint64_t first, uint32_t context,
               struct weir__documents *documents) {
    int status = WEIR_OK;
    for (uint64_t at = first; at + 1 < documents->token_count && status == WEIR_OK; at += context) {
        uint64_t rest = documents->token_count - at;
        struct weir__passage passage = {at, rest <= context ? (uint32_t)rest : context + 1};
        status = weir__documents_add_passage(io, documents, passage);
    }
    return status;
}

int weir__documents_add_text(const struct weir__io *io, const struct model_text *words,
                             const char *const *paths, uint32_t count, uint32_t context,
                             struct weir__documents *documents) {
    struct weir__corpus_options options = {
        .paths = paths, .path_count = count, .context = context, .part = WEIR__CORPUS_FILES};
    struct weir__corpus corpus;
    struct text_encoder *encoder = NULL;
    uint64_t first = documents->token_count;
    size_t begin = 0;
    int status = weir__corpus_open(io, &options, &corpus);
    if (status != WEIR_OK) return status;
    status = text_encoder_new(words->tokenizer, &encoder);
    for (uint32_t i = 0; i < corpus.file_count && status == WEIR_OK; i++) {
        size_t end = weir__corpus_file_end(&corpus, i);
        status = add_file(io, words, encoder, corpus.text.data + begin, end - begin, documents);
        begin = end;
    }
    documents->file_count += corpus.file_count;
    documents->skipped_count += corpus.skipped_count;
    text_encoder_destroy(encoder);
    weir__corpus_clean_up(&corpus);
    return status == WEIR_OK ? cut(io, first, context, documents) : status;
}

/* ---- rows ---- */

int weir__documents_plan(const struct weir__io *io, struct weir__documents *documents,
                         uint32_t context) {
    int status = WEIR_OK;
    uint64_t count = documents->passage_count;
    documents->allocator = io->allocator;
    for (uint64_t passage = 0; passage <= count && status == WEIR_OK; passage++) {
        assert(passage == count || passages_of(documents)[passage].count <= (uint64_t)context + 1);
        status = append(io, &documents->rows, &passage, sizeof passage);
    }
    documents->row_count = count;
    (void)context;
    return status;
}

void weir__documents_split(struct weir__documents *documents) {
    assert(documents->row_count >= 2);
    documents->period = documents->row_count < PERIOD ? documents->row_count : PERIOD;
}

uint64_t weir__documents_part(const struct weir__documents *documents, bool held_out) {
    if (documents->period == 0) return documents->row_count;
    uint64_t count = documents->row_count / documents->period;
    return held_out ? count : documents->row_count - count;
}

uint64_t weir__documents_part_row(const struct weir__documents *documents, bool held_out,
                                  uint64_t index) {
    uint64_t period = documents->period;
    assert(index < weir__documents_part(documents, held_out));
    if (period == 0) return index;
    return held_out ? index * period + period - 1 : index + index / (period - 1);
}

uint32_t weir__documents_largest(const struct weir__documents *documents) {
    uint32_t largest = 0;
    for (uint64_t i = 0; i < documents->token_count; i++)
        if (ids_of(documents)[i] > largest) largest = ids_of(documents)[i];
    return largest;
}

void weir__documents_read(const struct weir__documents *documents, uint64_t row, uint32_t context,
                          int64_t ignored, int64_t *input, int64_t *target) {
    const uint64_t *first = rows_of(documents) + row;
    uint32_t at = 0;
    assert(row < documents->row_count);
    for (uint64_t s = first[0]; s < first[1]; s++) {
        struct weir__passage passage = passages_of(documents)[s];
        const uint32_t *ids = ids_of(documents) + passage.first;
        const char *learnt = documents->learnt.data + passage.first;
        for (uint32_t i = 0; i + 1 < passage.count; i++, at++) {
            if (input != NULL) input[at] = ids[i];
            target[at] = learnt[i + 1] ? ids[i + 1] : ignored;
        }
    }
    for (; at < context; at++) {
        if (input != NULL) input[at] = 0;
        target[at] = ignored;
    }
}

const uint32_t *weir__documents_prompt(const struct weir__documents *documents, uint64_t row,
                                       uint32_t most, uint32_t *count) {
    struct weir__passage passage = passages_of(documents)[rows_of(documents)[row]];
    uint32_t used = 1;
    while (used < most && used + 1 < passage.count && !documents->learnt.data[passage.first + used])
        used++;
    *count = used;
    return ids_of(documents) + passage.first;
}

void weir__documents_clean_up(struct weir__documents *documents) {
    weir__bytes_release(documents->allocator, &documents->ids);
    weir__bytes_release(documents->allocator, &documents->learnt);
    weir__bytes_release(documents->allocator, &documents->passages);
    weir__bytes_release(documents->allocator, &documents->rows);
    *documents = (struct weir__documents){0};
}
