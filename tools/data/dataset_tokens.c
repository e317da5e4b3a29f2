/* SPDX-License-Identifier: MIT */
/* Token files as windows. */
#include "data/dataset_inside.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { PART = 10, PIECE = 1024, LOOKED_AT = 65536 };

/* ---- opening ---- */

bool weir__token_chosen(const char *path, enum weir__token_choice choice) {
    return choice == WEIR__TOKENS_ALL ||
           weir__data_is_held_out(path) == (choice == WEIR__TOKENS_HELD_OUT);
}

int weir__token_part_open(const struct weir__io *io, const struct weir__data_paths *found,
                          enum weir__token_choice choice, struct weir_faults *faults,
                          struct weir__token_part *part) {
    struct weir_error error = {.status = WEIR_OK};
    struct weir__io own = {io->allocator, io->calls, &error};
    uint32_t chosen = 0;
    *part = (struct weir__token_part){.files = NULL};
    for (uint32_t i = 0; i < found->files.count; i++) {
        chosen += weir__token_chosen(found->files.list[i], choice);
    }
    part->file_count = chosen;
    part->files = weir__acquire(io->allocator, chosen, sizeof(*part->files));
    part->windows = weir__acquire(io->allocator, (size_t)chosen + 1, sizeof(*part->windows));
    int status = part->files && part->windows ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0, k = 0; i < found->files.count && !status; i++) {
        if (!weir__token_chosen(found->files.list[i], choice)) {
            continue;
        }
        status = weir__tokens_open(&own, found->files.list[i], &part->files[k]);
        if (status) {
            weir__data_fault(faults, &error);
            break;
        }
        part->tokens += part->files[k++].count;
    }
    if (status) {
        weir__token_part_close(io, part);
    }
    return status;
}

void weir__token_part_close(const struct weir__io *io, struct weir__token_part *part) {
    for (uint32_t i = 0; part->files && !part->borrowed && i < part->file_count; i++) {
        weir__tokens_close(&part->files[i]);
    }
    if (!part->borrowed) {
        weir__release(io->allocator, part->files, part->file_count, sizeof(*part->files));
        weir__release(io->allocator, part->windows, (size_t)part->file_count + 1,
                      sizeof(*part->windows));
    }
    *part = (struct weir__token_part){.files = NULL};
}

/* ---- windows ---- */

static int check_tokens(const struct weir__tokens *file, const struct weir__io *io, uint64_t first,
                        uint64_t count, int64_t vocabulary, const int64_t *tokens) {
    for (uint64_t i = 0; i < count; i++) {
        if (tokens[i] >= vocabulary) {
            return weir__source_refuse(io, file->source.path, WEIR_ERR_CONFIG,
                                       "token %" PRIu64 " is %" PRId64
                                       ", but the model's vocabulary has %" PRId64
                                       ": give a --vocab above it",
                                       first + i, tokens[i], vocabulary);
        }
    }
    return WEIR_OK;
}

/* A vocabulary that is too small is seen at once in any text; the rest is checked as it is read. */
static int look_at(const struct weir__tokens *file, const struct weir__io *io, int64_t vocabulary) {
    int64_t tokens[PIECE];
    uint64_t end = file->count < LOOKED_AT ? file->count : LOOKED_AT;
    int status = WEIR_OK;
    for (uint64_t at = 0; at < end && !status; at += PIECE) {
        uint64_t count = end - at < PIECE ? end - at : PIECE;
        status = weir__tokens_read(file, io, at, count, tokens);
        if (!status) {
            status = check_tokens(file, io, at, count, vocabulary, tokens);
        }
    }
    return status;
}

int weir__token_part_bind(struct weir__token_part *part, const struct weir__io *io,
                          uint32_t context, int64_t vocabulary, struct weir_faults *faults) {
    struct weir_error error = {.status = WEIR_OK};
    struct weir__io own = {io->allocator, io->calls, &error};
    char shortened[96];
    assert(context > 0);
    for (uint32_t i = 0; i < part->file_count; i++) {
        uint64_t count = part->files[i].count;
        part->windows[i + 1] = part->windows[i] + (count > 0 ? (count - 1) / context : 0);
        int status = look_at(&part->files[i], &own, vocabulary);
        if (status) {
            return weir__data_fault(faults, &error);
        }
    }
    part->count = part->windows[part->file_count];
    if (part->count > 0) {
        return WEIR_OK;
    }
    weir_faults_add(faults,
                    "%s%s: %" PRIu64 " token%s, but a row of context %" PRIu32 " needs %" PRIu64
                    ": name more of them or a smaller context",
                    weir__path_text(part->files[0].source.path, shortened),
                    part->file_count > 1 ? " and others" : "", part->tokens, weir__s(part->tokens),
                    context, (uint64_t)context + 1);
    return WEIR_ERR_CONFIG;
}

int weir__token_part_split(struct weir__token_part *train, struct weir_faults *faults,
                           struct weir__token_part *held_out) {
    char shortened[96];
    uint64_t tenth = train->count >= PART ? train->count / PART : 1;
    if (train->count < 2) {
        weir_faults_add(faults,
                        "%s holds one row of the context, but one is to train on and one held out: "
                        "name more tokens, a smaller context, or --eval-data",
                        weir__path_text(train->files[0].source.path, shortened));
        return WEIR_ERR_CONFIG;
    }
    *held_out = *train;
    held_out->borrowed = true;
    train->count -= tenth;
    held_out->first = train->count;
    held_out->count = tenth;
    return WEIR_OK;
}

/* The file that holds a window: the last whose first window is not beyond it. */
static uint32_t file_of(const struct weir__token_part *part, uint64_t window) {
    uint32_t low = 0, high = part->file_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (part->windows[middle] <= window) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The targets are the inputs from the second on, and one token more. */
int weir__token_part_read(const struct weir__token_part *part, const struct weir__io *io,
                          uint32_t context, int64_t vocabulary, uint64_t index, int64_t *input,
                          int64_t *target) {
    assert(index < part->count);
    uint64_t window = part->first + index;
    uint32_t file = file_of(part, window);
    uint64_t at = (window - part->windows[file]) * context;
    int64_t first = 0;
    int status = weir__tokens_read(&part->files[file], io, at, 1, &first);
    if (!status) {
        status = weir__tokens_read(&part->files[file], io, at + 1, context, target);
    }
    if (!status) {
        status = check_tokens(&part->files[file], io, at, 1, vocabulary, &first);
    }
    if (!status) {
        status = check_tokens(&part->files[file], io, at + 1, context, vocabulary, target);
    }
    if (!status && input) {
        input[0] = first;
        memcpy(input + 1, target, (context - 1) * sizeof(*input));
    }
    return status;
}
