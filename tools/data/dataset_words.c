/* SPDX-License-Identifier: MIT */
/* Text and conversations by a model's tokenizer, as the parts of a data set. */
#include "data/dataset_inside.h"

#include <inttypes.h>

int weir__word_part_open(const struct weir__io *io, const struct weir__data_paths *found,
                         enum weir__token_choice choice, struct weir__word_part *part) {
    int status = WEIR_OK;
    for (uint32_t i = 0; i < found->files.count && !status; i++) {
        const char *path = found->files.list[i];
        if (weir__token_chosen(path, choice)) {
            status = weir__names_add(io, &part->files, path);
        }
    }
    return status;
}

void weir__word_part_close(const struct weir__io *io, struct weir__word_part *part) {
    weir__names_release(io, &part->files);
    weir__documents_clean_up(&part->documents);
}

/* Lack of memory need not be told. */
static int tell(struct weir_faults *faults, const struct weir__io *io, int status) {
    return status == WEIR_ERR_OUT_OF_MEMORY ? status : weir__data_fault(faults, io->error);
}

/* All files are looked at, so that all faults are listed. */
static int add_chats(struct weir__word_part *part, const struct weir__io *io,
                     const struct model_text *words, uint32_t context, struct weir_faults *faults) {
    int first = WEIR_OK;
    for (uint32_t i = 0; i < part->files.count; i++) {
        int status = weir__documents_add_chats(io, words, part->files.list[i], context, faults,
                                               &part->documents);
        if (status && status != WEIR_ERR_CONFIG) {
            return tell(faults, io, status);
        }
        first = first ? first : status;
    }
    return first;
}

static int check(const struct weir__word_part *part, const struct weir__word_rule *rule,
                 struct weir_faults *faults) {
    const struct weir__documents *documents = &part->documents;
    uint32_t largest = weir__documents_largest(documents);
    char shortened[96];
    if (documents->passage_count == 0 && part->files.count > 0) {
        weir_faults_add(faults, "%s%s: there is no conversation: give one a line",
                        weir__path_text(part->files.list[0], shortened),
                        part->files.count > 1 ? " and others" : "");
        return WEIR_ERR_CONFIG;
    }
    if (documents->passage_count == 0) {
        weir_faults_add(faults, "the text has %" PRIu64 " token%s, too few for a row: name more",
                        documents->token_count, weir__s(documents->token_count));
        return WEIR_ERR_CONFIG;
    }
    if (documents->passage_count == 1 && rule->plan.split) {
        weir_faults_add(faults,
                        "there is one %s, but one is to train on and one held out: name "
                        "more%s, or --eval-data",
                        part->files.count > 0 ? "conversation" : "row of the context",
                        part->files.count > 0 ? "" : ", a smaller --context");
        return WEIR_ERR_CONFIG;
    }
    if (largest < rule->vocabulary) {
        return WEIR_OK;
    }
    weir_faults_add(faults,
                    "the tokenizer gives token %" PRIu32 " of %" PRIu32
                    ", but the model's vocabulary has %" PRId64
                    ": give the folder its own tokenizer.json",
                    largest, tokenizer_size(rule->words->tokenizer), rule->vocabulary);
    return WEIR_ERR_CONFIG;
}

int weir__word_part_bind(struct weir__word_part *part, const struct weir__io *io,
                         const struct weir__word_rule *rule, struct weir_faults *faults) {
    uint32_t context = rule->plan.context;
    int status;
    if (part->files.count > 0) {
        status = add_chats(part, io, rule->words, context, faults);
    } else {
        status = weir__documents_add_text(io, rule->words, rule->paths, rule->path_count, context,
                                          &part->documents);
        if (status) {
            return tell(faults, io, status);
        }
    }
    status = status ? status : check(part, rule, faults);
    return status ? status : weir__documents_plan(io, &part->documents, &rule->plan);
}

uint64_t weir__word_part_hash(const struct weir__word_part *part, uint64_t hash) {
    const struct weir__documents *documents = &part->documents;
    const struct weir__bytes *all[] = {&documents->ids, &documents->learnt, &documents->passages,
                                       &documents->rows};
    for (size_t i = 0; i < WEIR__COUNT_OF(all); i++) {
        hash = weir__hash(hash, all[i]->data, all[i]->count);
    }
    return hash;
}
