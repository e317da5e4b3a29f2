/* SPDX-License-Identifier: MIT */
/* From paths to files: what kind of data they are, and which of them is what. Names decide, so that
 * nothing depends on what a folder's files happen to hold. */
#include "data/dataset_inside.h"

#include "data/corpus.h"
#include "data/npz.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

int weir__data_fault(struct weir_faults *faults, const struct weir_error *error) {
    assert(error->status != WEIR_OK);
    if (error->status != WEIR_ERR_OUT_OF_MEMORY) {
        weir_faults_add(faults, "%s", error->message);
    }
    return error->status;
}

static const char *const kind_names[] = {"text", "tokens", "arrays", "text", "conversations"};
static const char *const file_names[] = {"", " (.bin)", " (.npy, IDX)", "", " (.jsonl)"};

/* ---- names ---- */

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* -idx3-ubyte, .idx1-ubyte and the like. */
static bool is_mnist_name(const char *name) {
    for (const char *at = name; (at = strstr(at, "idx")); at++) {
        bool begins = at > name && (at[-1] == '-' || at[-1] == '.');
        if (begins && isdigit((unsigned char)at[3])) {
            return true;
        }
    }
    return false;
}

static enum weir__data_kind kind_of_name(const char *path, enum weir__data_look look) {
    const char *name = base_of(path);
    if (look == WEIR__LOOK_CHATS && weir__text_ends(name, ".jsonl")) {
        return WEIR__DATA_CHATS;
    }
    if (weir__text_ends(name, ".npy") || weir__text_ends(name, ".npz") ||
        weir__text_ends(name, ".idx") || is_mnist_name(name)) {
        return WEIR__DATA_ARRAYS;
    }
    return weir__text_ends(name, ".bin") ? WEIR__DATA_TOKENS : WEIR__DATA_TEXT;
}

static bool has_word(const char *name, const char *word) {
    size_t length = strlen(word);
    for (const char *at = name; *at;) {
        size_t letters = 0;
        while (isalnum((unsigned char)at[letters])) {
            letters++;
        }
        if (letters == length && strncasecmp(at, word, length) == 0) {
            return true;
        }
        at += letters + (at[letters] != 0);
    }
    return false;
}

static bool holds(const char *name, const char *part) {
    for (; *name; name++) {
        if (strncasecmp(name, part, strlen(part)) == 0) {
            return true;
        }
    }
    return false;
}

bool weir__data_is_held_out(const char *path) {
    static const char *const words[] = {"t10k", "test", "val", "valid", "validation", "eval"};
    for (size_t i = 0; i < WEIR__COUNT_OF(words); i++) {
        if (has_word(base_of(path), words[i])) {
            return true;
        }
    }
    return false;
}

enum role { ROLE_NONE, ROLE_INPUT, ROLE_TARGET };

static enum role role_of(const char *path) {
    const char *name = base_of(path);
    bool input = holds(name, "image") || holds(name, "input") || has_word(name, "x");
    bool target =
        holds(name, "label") || holds(name, "mask") || holds(name, "target") || has_word(name, "y");
    return input == target ? ROLE_NONE : input ? ROLE_INPUT : ROLE_TARGET;
}

/* ---- kinds ---- */

/* A given file may have any name: its first bytes may say what it is. */
static int sniff(const struct weir__io *io, const char *path, enum weir__data_kind *kind) {
    struct weir__source source;
    unsigned char first[6] = {0};
    int status = weir__source_open(io, path, &source);
    if (status) {
        return status;
    }
    if (source.bytes >= sizeof(first)) {
        status = weir__source_read(&source, io, 0, first, sizeof(first));
    }
    weir__source_close(&source);
    if (!status && memcmp(first, "\x93NUMPY", 6) == 0) {
        *kind = WEIR__DATA_ARRAYS;
    } else if (!status && weir__tokens_magic(first)) {
        *kind = WEIR__DATA_TOKENS;
    }
    return status;
}

/* Of an archive its arrays. */
static int add_file(const struct weir__io *io, const char *path, struct weir__data_paths *found) {
    return weir__text_ends(path, ".npz") ? weir__npz_list(io, path, &found->files)
                                         : weir__names_add(io, &found->files, path);
}

static int take_file(const struct weir__io *io, const char *path, bool regular,
                     struct weir__data_paths *found, enum weir__data_kind *kind) {
    *kind = kind_of_name(path, found->look);
    if (*kind == WEIR__DATA_TEXT && regular) {
        int status = sniff(io, path, kind);
        if (status) {
            return status;
        }
    }
    return *kind == WEIR__DATA_TEXT ? WEIR_OK : add_file(io, path, found);
}

static int take_folder(const struct weir__io *io, const char *path, struct weir__data_paths *found,
                       enum weir__data_kind *kind) {
    struct weir__names names = {0};
    char inner[PATH_MAX], shortened[96];
    int status = weir__folder_list(io, path, &names);
    *kind = WEIR__DATA_TEXT;
    for (uint32_t i = 0; i < names.count && !status; i++) {
        enum weir__data_kind own = kind_of_name(names.list[i], found->look);
        if (own == WEIR__DATA_TEXT) {
            continue;
        }
        if (*kind != WEIR__DATA_TEXT && *kind != own) {
            enum weir__data_kind a = own > *kind ? own : *kind, b = own > *kind ? *kind : own;
            status = weir__fail(io->error, WEIR_ERR_CONFIG,
                                "%s holds both %s%s and %s%s: name the files themselves",
                                weir__path_text(path, shortened), kind_names[a], file_names[a],
                                kind_names[b], file_names[b]);
            break;
        }
        *kind = own;
        status = weir__path_join(io, path, names.list[i], inner);
        if (!status) {
            status = add_file(io, inner, found);
        }
    }
    weir__names_release(io, &names);
    return status;
}

static int take(const struct weir__io *io, const char *path, struct weir__data_paths *found,
                enum weir__data_kind *kind, bool *folder) {
    struct stat facts;
    if (weir__io_calls_of(io)->stat(path, &facts) != 0) {
        return weir__io_fail(io, errno, "read", path);
    }
    *folder = S_ISDIR(facts.st_mode);
    return *folder ? take_folder(io, path, found, kind)
                   : take_file(io, path, S_ISREG(facts.st_mode), found, kind);
}

/* By all the names on the way. */
static bool is_text_of_folder(const char *inner) {
    char name[NAME_MAX + 1];
    for (const char *at = inner; *at;) {
        size_t length = strcspn(at, "/");
        snprintf(name, sizeof(name), "%.*s", (int)length, at);
        if (!weir__corpus_wants(name)) {
            return false;
        }
        at += length + (at[length] != 0);
    }
    return true;
}

bool weir__dataset_would_take(const char *folder, const char *inner, bool text) {
    struct weir__io io = {.error = NULL};
    struct weir__data_paths found = {.kind = WEIR__DATA_TEXT};
    bool here = strchr(inner, '/') == NULL;
    if (here && kind_of_name(inner, WEIR__LOOK_ALL) != WEIR__DATA_TEXT) {
        return inner[0] != '.';
    }
    if (!text || !is_text_of_folder(inner)) {
        return false;
    }
    int status = take_folder(&io, folder, &found, &found.kind);
    weir__data_paths_release(&io, &found);
    return !status && found.kind == WEIR__DATA_TEXT;
}

bool weir__dataset_has_chats(const char *path) {
    struct weir__io io = {.error = NULL};
    struct weir_faults none = WEIR_FAULTS_INIT;
    struct weir__data_paths found;
    bool has = false;
    if (weir__data_paths_find(&io, &path, 1, WEIR__LOOK_CHATS, &none, &found) == WEIR_OK) {
        has = found.kind == WEIR__DATA_CHATS;
        weir__data_paths_release(&io, &found);
    }
    weir_faults_clean_up(&none);
    return has;
}

/* What numpy.savez was given without names: arr_0.npy and arr_1.npy, in their order. */
static bool are_nameless(const struct weir__data_paths *found) {
    return role_of(found->files.list[0]) == ROLE_NONE && role_of(found->files.list[1]) == ROLE_NONE;
}

int weir__data_paths_find(const struct weir__io *io, const char *const *paths, uint32_t count,
                          enum weir__data_look look, struct weir_faults *faults,
                          struct weir__data_paths *found) {
    struct weir_error error = {.status = WEIR_OK};
    struct weir__io own = {io->allocator, io->calls, &error};
    char shortened[2][96];
    bool folders = false;
    int status = WEIR_OK;
    *found = (struct weir__data_paths){.kind = WEIR__DATA_TEXT, .look = look};
    for (uint32_t i = 0; i < count && look != WEIR__LOOK_TEXT && !status; i++) {
        enum weir__data_kind kind = WEIR__DATA_TEXT;
        bool folder = false;
        status = take(&own, paths[i], found, &kind, &folder);
        folders = folders || folder;
        if (!status && i > 0 && kind != found->kind) {
            status = weir__fail(&error, WEIR_ERR_CONFIG,
                                "%s is %s, but %s is %s: give paths of one kind",
                                weir__path_text(paths[0], shortened[0]), kind_names[found->kind],
                                weir__path_text(paths[i], shortened[1]), kind_names[kind]);
        }
        found->kind = kind;
    }
    found->each = !folders && found->files.count == count;
    found->two_files = !folders && found->files.count == 2 && (count == 2 || are_nameless(found));
    if (status) {
        weir__data_paths_release(io, found);
        return weir__data_fault(faults, &error);
    }
    return WEIR_OK;
}

void weir__data_paths_release(const struct weir__io *io, struct weir__data_paths *found) {
    weir__names_release(io, &found->files);
}

/* ---- pairs ---- */

/* "a.npy, b.npy, … (3 files)" */
static const char *list_text(const struct weir__names *files, char *text, size_t capacity) {
    size_t used = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < files->count && used < capacity; i++) {
        const char *name = base_of(files->list[i]);
        size_t rest = capacity - used;
        int more = rest > strlen(name) + 32
                       ? snprintf(text + used, rest, "%s%s", i ? ", " : "", name)
                       : snprintf(text + used, rest, ", … (%u files)", files->count);
        used += more > 0 ? (size_t)more : 0;
        if (rest <= strlen(name) + 32) {
            break;
        }
    }
    return text;
}

static int refuse_names(const struct weir__data_paths *found, struct weir_faults *faults,
                        const char *reason) {
    char text[240];
    weir_faults_add(
        faults,
        "found %s: %s: name one of inputs (image, input or x in its name) and one of "
        "targets (label, mask, target or y), or give two files, inputs first",
        found->files.count > 0 ? list_text(&found->files, text, sizeof(text)) : "no array", reason);
    return WEIR_ERR_CONFIG;
}

/* The pair of one part. None of either is a pair of NULL. */
static int choose(const struct weir__data_paths *found, bool held_out, struct weir_faults *faults,
                  struct weir__data_pair *pair) {
    uint32_t counts[3] = {0};
    const char *other = NULL; /* one that would be left alone, though it was asked for */
    *pair = (struct weir__data_pair){NULL, NULL};
    for (uint32_t i = 0; i < found->files.count; i++) {
        const char *path = found->files.list[i];
        if (weir__data_is_held_out(path) != held_out) {
            continue;
        }
        enum role role = role_of(path);
        counts[role]++;
        if (role == ROLE_NONE && found->each) other = base_of(path);
        if (role == ROLE_INPUT) {
            pair->input = path;
        } else if (role == ROLE_TARGET) {
            pair->target = path;
        }
    }
    char reason[160];
    snprintf(reason, sizeof(reason),
             "%s part has %u file%s of inputs and %u of targets by their names",
             held_out ? "the held-out" : "the training", counts[ROLE_INPUT],
             weir__s(counts[ROLE_INPUT]), counts[ROLE_TARGET]);
    bool none = counts[ROLE_INPUT] == 0 && counts[ROLE_TARGET] == 0;
    bool one = counts[ROLE_INPUT] == 1 && counts[ROLE_TARGET] == 1;
    if (!one && !(none && held_out)) return refuse_names(found, faults, reason);
    if (other == NULL) return WEIR_OK;
    snprintf(reason, sizeof(reason), "%.64s is neither by its name", other);
    return refuse_names(found, faults, reason);
}

static void take_in_order(const struct weir__data_paths *found, struct weir__data_pair *pair) {
    assert(found->files.count == 2);
    *pair = (struct weir__data_pair){found->files.list[0], found->files.list[1]};
}

int weir__data_pair_choose(const struct weir__data_paths *found, struct weir_faults *faults,
                           struct weir__data_pair *train, struct weir__data_pair *held_out) {
    if (held_out) {
        *held_out = (struct weir__data_pair){NULL, NULL};
    }
    if (found->two_files) {
        take_in_order(found, train);
        return WEIR_OK;
    }
    int status = choose(found, false, faults, train);
    return status || !held_out ? status : choose(found, true, faults, held_out);
}

/* The inputs of one part; false where names leave it open. */
static bool choose_input(const struct weir__data_paths *found, bool held_out, const char **input) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < found->files.count; i++) {
        const char *path = found->files.list[i];
        if (weir__data_is_held_out(path) == held_out && role_of(path) == ROLE_INPUT) {
            *input = path;
            count++;
        }
    }
    return count == 1;
}

int weir__data_input_choose(const struct weir__data_paths *found, struct weir_faults *faults,
                            struct weir__data_pair *pair) {
    char text[240];
    *pair = (struct weir__data_pair){NULL, NULL};
    if (found->files.count == 1) {
        pair->input = found->files.list[0];
        return WEIR_OK;
    }
    if (choose_input(found, true, &pair->input) || choose_input(found, false, &pair->input)) {
        return WEIR_OK;
    }
    weir_faults_add(faults,
                    "found %s: which one holds the inputs? Give that file alone, or put image, "
                    "input or x into its name",
                    found->files.count > 0 ? list_text(&found->files, text, sizeof(text))
                                           : "no array");
    return WEIR_ERR_CONFIG;
}

int weir__data_pair_choose_eval(const struct weir__data_paths *found, struct weir_faults *faults,
                                struct weir__data_pair *pair) {
    if (found->two_files) {
        take_in_order(found, pair);
        return WEIR_OK;
    }
    int status = choose(found, true, faults, pair);
    return status || pair->input ? status : choose(found, false, faults, pair);
}
