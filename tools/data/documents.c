/* SPDX-License-Identifier: MIT */
#include "data/documents.h"

#include "data/corpus.h"
#include "data/packed_rows.h"

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

static int add_tokens(const struct weir__io *io, struct weir__documents *documents,
                      const uint32_t *ids, const bool *learnt, size_t count) {
    documents->allocator = io->allocator;
    int status = weir__bytes_append(io, &documents->ids, ids, count * sizeof *ids);
    if (status != WEIR_OK) return status;
    status = weir__bytes_append(io, &documents->learnt, learnt, count * sizeof *learnt);
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
    int status = weir__bytes_append(io, &documents->passages, &passage, sizeof passage);
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
        struct weir__passage passage = {.first = at,
                                        .count = rest <= context ? (uint32_t)rest : context + 1};
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

/* Those that are held out behind the others, in their order; returns how many those are. */
static int split(const struct weir__io *io, struct weir__documents *documents, uint64_t *kept) {
    uint64_t count = documents->passage_count, period = count < PERIOD ? count : PERIOD, at = 0;
    struct weir__bytes moved = {0};
    int status = WEIR_OK;
    for (int held_out = 0; held_out < 2 && status == WEIR_OK; held_out++)
        for (at = 0; at < count && status == WEIR_OK; at++)
            if ((at % period == period - 1) == (held_out == 1))
                status = weir__bytes_append(io, &moved, &passages_of(documents)[at],
                                            sizeof(struct weir__passage));
    *kept = count - count / period;
    weir__bytes_release(io->allocator, &documents->passages);
    documents->passages = moved;
    return status;
}

/* Passages `first` and on, `count` of them, one to a row. */
static int plan_single(const struct weir__io *io, struct weir__documents *documents, uint64_t first,
                       uint64_t count) {
    int status = WEIR_OK;
    for (uint64_t i = 0; i < count && status == WEIR_OK; i++) {
        uint64_t passage = first + i;
        status = weir__bytes_append(io, &documents->rows, &passage, sizeof passage);
    }
    documents->row_count += count;
    return status;
}

/* Puts the passages of a row behind each other: `ends` of a row is where its next one goes. */
static int gather(const struct weir__io *io, struct weir__documents *documents, uint64_t first,
                  uint64_t count, const uint64_t *row_of, uint64_t rows) {
    struct weir__passage *passages =
        (struct weir__passage *)(void *)documents->passages.data + first;
    struct weir__passage *moved = weir__acquire(io->allocator, count, sizeof *moved);
    uint64_t *ends = weir__acquire(io->allocator, rows + 1, sizeof *ends);
    int status = moved != NULL && ends != NULL ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
    if (status != WEIR_OK) goto out;
    for (uint64_t i = 0; i < count; i++) ends[row_of[i] + 1]++;
    for (uint64_t row = 0; row < rows && status == WEIR_OK; row++) {
        uint64_t begin = first + ends[row];
        ends[row + 1] += ends[row];
        status = weir__bytes_append(io, &documents->rows, &begin, sizeof begin);
    }
    for (uint64_t i = 0; i < count; i++) moved[ends[row_of[i]]++] = passages[i];
    memcpy(passages, moved, count * sizeof *moved);
    documents->row_count += rows;
out:
    weir__release(io->allocator, ends, rows + 1, sizeof *ends);
    weir__release(io->allocator, moved, count, sizeof *moved);
    return status;
}

static int plan_packed(const struct weir__io *io, struct weir__documents *documents, uint64_t first,
                       uint64_t count, uint32_t context) {
    const struct weir__passage *passages = passages_of(documents) + first;
    uint32_t *places = weir__acquire(io->allocator, count, sizeof *places);
    uint64_t *row_of = weir__acquire(io->allocator, count, sizeof *row_of);
    int status = WEIR_ERR_OUT_OF_MEMORY;
    if (places == NULL || row_of == NULL) goto out;
    for (uint64_t i = 0; i < count; i++) places[i] = passages[i].count - 1;
    uint64_t rows = weir__packed_rows(places, count, context, row_of);
    status = gather(io, documents, first, count, row_of, rows);
out:
    weir__release(io->allocator, row_of, count, sizeof *row_of);
    weir__release(io->allocator, places, count, sizeof *places);
    return status;
}

static int plan_part(const struct weir__io *io, struct weir__documents *documents,
                     const struct weir__documents_plan *plan, uint64_t first, uint64_t count) {
    for (uint64_t i = first; i < first + count; i++)
        assert(passages_of(documents)[i].count <= (uint64_t)plan->context + 1);
    return plan->packed && count > 0 ? plan_packed(io, documents, first, count, plan->context)
                                     : plan_single(io, documents, first, count);
}

int weir__documents_plan(const struct weir__io *io, struct weir__documents *documents,
                         const struct weir__documents_plan *plan) {
    uint64_t count = documents->passage_count, kept = count;
    assert(documents->row_count == 0 && (!plan->split || count >= 2));
    documents->allocator = io->allocator;
    documents->packed = plan->packed;
    int status = plan->split ? split(io, documents, &kept) : WEIR_OK;
    if (status != WEIR_OK) return status;
    if ((status = plan_part(io, documents, plan, 0, kept)) != WEIR_OK) return status;
    documents->train_rows = documents->row_count;
    if ((status = plan_part(io, documents, plan, kept, count - kept)) != WEIR_OK) return status;
    return weir__bytes_append(io, &documents->rows, &count, sizeof count);
}

static bool is_split(const struct weir__documents *documents) {
    return documents->train_rows < documents->row_count;
}

uint64_t weir__documents_part(const struct weir__documents *documents, bool held_out) {
    if (!is_split(documents) || !held_out) return documents->train_rows;
    return documents->row_count - documents->train_rows;
}

uint64_t weir__documents_part_row(const struct weir__documents *documents, bool held_out,
                                  uint64_t index) {
    assert(index < weir__documents_part(documents, held_out));
    return held_out && is_split(documents) ? documents->train_rows + index : index;
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
    int64_t *places = documents->packed && input != NULL ? input + context : NULL;
    uint32_t at = 0;
    assert(row < documents->row_count);
    for (uint64_t s = first[0]; s < first[1]; s++) {
        struct weir__passage passage = passages_of(documents)[s];
        const uint32_t *ids = ids_of(documents) + passage.first;
        const char *learnt = documents->learnt.data + passage.first;
        uint32_t begin = at;
        for (uint32_t i = 0; i + 1 < passage.count; i++, at++) {
            if (input != NULL) input[at] = ids[i];
            if (places != NULL) places[at] = begin;
            target[at] = learnt[i + 1] ? ids[i + 1] : ignored;
        }
    }
    for (uint32_t begin = at; at < context; at++) {
        if (input != NULL) input[at] = 0;
        if (places != NULL) places[at] = begin;
        target[at] = ignored;
    }
}

const uint32_t *weir__documents_prompt(const struct weir__documents *documents, uint64_t row,
                                       uint32_t most, uint32_t *count) {
    struct weir__passage passage = passages_of(documents)[rows_of(documents)[row]];
    bool text = documents->learnt.data[passage.first]; /* a conversation's first never is */
    uint32_t used = 1;
    while (used < most && used + 1 < passage.count &&
           (text || !documents->learnt.data[passage.first + used]))
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
