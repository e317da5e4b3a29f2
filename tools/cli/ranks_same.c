/* SPDX-License-Identifier: MIT */
/* Whether all ranks are one program that was told the same. What a command does goes by that, and
 * so does when its ranks meet: one that saves alone would wait for the others for ever. */
#include "base/base.h"
#include "cli/ranks.h"
#include "world/wait.h"

#include <stdio.h>
#include <string.h>

/* Written by the build: the commit's hash, or "unknown". */
extern const char weir_build_commit[];

/* As many in every build, so that one that has other options is told, and no message is lost. */
enum { BUILD, COMMAND, FIRST_OPTION, ENTRIES = 256 };
_Static_assert(FIRST_OPTION + ARGS_OPTIONS_MAX <= ENTRIES, "every option has its entry");
enum { VALUE_BYTES = 8192, SHOWN_BYTES = 80, TEXT_BYTES = 512 };

/* Of files that may lie elsewhere on each host what is in them is compared, not their names. */
static const char *const own_paths[] = {"data", "eval-data", "load", NULL};
/* Of a rank and its host alone. */
static const char *const own_means[] = {"bind", "wait", NULL};

/* What a rank says of the first entry in which it is not as rank 0. */
struct difference {
    uint32_t entry; /* + 1; 0: there is none */
    bool given;     /* an option */
    char host[64], value[SHOWN_BYTES];
};

/* The option of an entry; NULL: there are fewer. */
static const struct arg_option *option_of(const struct args *args, uint32_t entry,
                                          uint32_t *section, uint32_t *option) {
    *option = entry - FIRST_OPTION;
    for (*section = 0; *section < args->command->section_count; ++*section) {
        const struct arg_section *in = &args->command->sections[*section];
        if (*option < in->option_count) return &in->options[*option];
        *option -= in->option_count;
    }
    return NULL;
}

static bool is_one_of(const struct arg_option *option, const char *const *names) {
    while (*names != NULL && strcmp(option->name, *names) != 0) names++;
    return *names != NULL;
}

/* False: there are no more entries. */
static bool value_of(const struct ranks_command *of, uint32_t entry, char *text, size_t capacity) {
    uint32_t section, option;
    if (entry == BUILD) {
        snprintf(text, capacity, "%s (%.40s)", weir_version(), weir_build_commit);
    } else if (entry == COMMAND) {
        snprintf(text, capacity, "%s", of->command->name);
    } else {
        const struct arg_option *is = option_of(of->args, entry, &section, &option);
        if (is == NULL) return false;
        args_value(of->args, section, option, text, capacity);
        if (is_one_of(is, own_paths) && text[0] != '\0') snprintf(text, capacity, "a file");
        if (is_one_of(is, own_means)) text[0] = '\0';
    }
    return true;
}

/* Whether it was on the command line: some options do something else then, with one value. */
static bool is_given(const struct ranks_command *of, uint32_t entry) {
    uint32_t section, option;
    if (entry < FIRST_OPTION) return true;
    return of->args->given[entry - FIRST_OPTION] &&
           !is_one_of(option_of(of->args, entry, &section, &option), own_means);
}

/* "a b" is another value than "a" and "b". */
static uint64_t hash_words(const struct ranks_command *of, uint32_t entry, uint64_t hash) {
    uint32_t section, option;
    const struct arg_option *is =
        entry < FIRST_OPTION ? NULL : option_of(of->args, entry, &section, &option);
    if (is == NULL || is->type != ARG_TEXTS) return hash;
    const struct arg_words *words =
        (const void *)(of->args->values + of->args->command->sections[section].offset + is->offset);
    for (uint32_t i = 0; i < words->count; i++)
        hash = weir__hash(hash, words->items[i], strlen(words->items[i]) + 1);
    return hash;
}

static void hash_values(const struct ranks_command *of, uint64_t hashes[ENTRIES]) {
    char text[VALUE_BYTES];
    memset(hashes, 0, ENTRIES * sizeof *hashes);
    for (uint32_t e = 0; e < ENTRIES && value_of(of, e, text, sizeof text); e++) {
        unsigned char given = is_given(of, e);
        uint64_t hash = weir__hash(WEIR__HASH_BEGIN, &given, 1);
        hashes[e] = hash_words(of, e, weir__hash(hash, text, strlen(text)));
    }
}

static const char *quoted(const char *value, char text[SHOWN_BYTES + 2]) {
    if (value[0] == '\0') return "none";
    snprintf(text, SHOWN_BYTES + 2, "'%s'", value);
    return text;
}

/* Where both have the same value. */
static const char *said_of(bool alike, bool given) {
    return !alike ? "" : given ? ", given" : ", not given";
}

/* As rank 0 tells it. */
static void tell(const struct ranks_command *of, uint32_t rank, const struct difference *theirs,
                 char text[TEXT_BYTES]) {
    uint32_t entry = theirs->entry - 1, section, option;
    char value[VALUE_BYTES], shown[SHOWN_BYTES], own[SHOWN_BYTES + 2], other[SHOWN_BYTES + 2];
    (void)value_of(of, entry, value, sizeof value);
    snprintf(shown, sizeof shown, "%.*s", SHOWN_BYTES - 1, value);
    bool alike = strcmp(theirs->value, shown) == 0;
    if (entry == BUILD)
        snprintf(text, TEXT_BYTES,
                 "rank %u on %s is Weir %s, rank 0 is %s: install one build on all hosts", rank,
                 theirs->host, theirs->value, shown);
    else if (entry == COMMAND)
        snprintf(text, TEXT_BYTES,
                 "rank %u on %s runs 'weir %s', rank 0 'weir %s': start one command on all ranks",
                 rank, theirs->host, theirs->value, shown);
    else
        snprintf(text, TEXT_BYTES,
                 "--%s: rank %u on %s has %s%s, rank 0 has %s%s: give all ranks the same options",
                 option_of(of->args, entry, &section, &option)->name, rank, theirs->host,
                 quoted(theirs->value, other), said_of(alike, theirs->given), quoted(shown, own),
                 said_of(alike, is_given(of, entry)));
}

/* Of this rank. */
static void find_difference(const struct ranks *ranks, const uint64_t own[ENTRIES],
                            const uint64_t first[ENTRIES], struct difference *found) {
    char value[VALUE_BYTES];
    for (uint32_t e = 0; e < ENTRIES && found->entry == 0; e++) {
        if (own[e] == first[e]) continue;
        (void)value_of(&ranks->of, e, value, sizeof value);
        found->entry = e + 1;
        found->given = is_given(&ranks->of, e);
        snprintf(found->host, sizeof found->host, "%s", ranks->world.host);
        snprintf(found->value, sizeof found->value, "%.*s", SHOWN_BYTES - 1, value);
    }
}

int ranks_same(struct ranks *ranks) {
    uint64_t own[ENTRIES], first[ENTRIES];
    char text[TEXT_BYTES] = "";
    uint32_t count = ranks->world.rank_count;
    struct difference *found = weir__acquire(NULL, count, sizeof *found);
    if (found == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    memset(found, 0, count * sizeof *found);
    hash_values(&ranks->of, own);
    memcpy(first, own, sizeof first);
    int status = ranks_share(ranks, first, sizeof first);
    if (status != WEIR_OK) goto out;
    find_difference(ranks, own, first, &found[ranks->world.rank]);
    if ((status = ranks_gather(ranks, found, count * sizeof *found)) != WEIR_OK) goto out;
    for (uint32_t r = 1; r < count && text[0] == '\0' && ranks->world.rank == 0; r++)
        if (found[r].entry != 0) tell(&ranks->of, r, &found[r], text);
    if ((status = ranks_share(ranks, text, sizeof text)) != WEIR_OK || text[0] == '\0') goto out;
    weir_faults_add(ranks->of.faults, "%s", text);
    status = WEIR_ERR_CONFIG;
out:
    weir__release(NULL, found, count, sizeof *found);
    return status;
}
