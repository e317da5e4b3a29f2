/* SPDX-License-Identifier: MIT */
/* The directory of a zip archive (APPNOTE.TXT 4.3): a record at the end says where it lies; with
 * zip64, which NumPy uses for large arrays, numbers that do not fit stand elsewhere. */
#include "data/npz.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum {
    END_BYTES = 22,
    COMMENT_MAX = 65535,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    NAME_MAX_BYTES = 512,
    EXTRA_MAX = 65535,
    ENTRIES_MAX = 65535
};

static uint64_t number(const unsigned char *at, int bytes) {
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;) value = value << 8 | at[i];
    return value;
}

struct archive {
    const struct weir__io *io;
    const struct weir__source *source;
    uint64_t at, end; /* of the directory */
};

struct npz_entry {
    char name[NAME_MAX_BYTES + 1];
    unsigned flags, method;
    uint64_t packed, bytes, header; /* its sizes, and where its header is */
};

#define REFUSE(archive, status, ...)                                                               \
    weir__source_refuse((archive)->io, (archive)->source->path, status, __VA_ARGS__)

static int refuse_cut(const struct archive *a) {
    return REFUSE(a, WEIR_ERR_FORMAT, "not a whole .npz archive: its directory is not there");
}

static int read_at(const struct archive *a, uint64_t offset, unsigned char *to, size_t bytes) {
    if (offset > a->source->bytes || bytes > a->source->bytes - offset) {
        return refuse_cut(a);
    }
    return weir__source_read(a->source, a->io, offset, to, bytes);
}

/* ---- the end of the archive ---- */

static int find_directory64(struct archive *a, uint64_t end_at) {
    unsigned char locator[LOCATOR_BYTES], end[END64_BYTES];
    int status = read_at(a, end_at - LOCATOR_BYTES, locator, sizeof(locator));
    if (status) {
        return status;
    }
    if (number(locator, 4) != 0x07064b50) {
        return refuse_cut(a);
    }
    status = read_at(a, number(locator + 8, 8), end, sizeof(end));
    if (status) {
        return status;
    }
    a->at = number(end + 48, 8);
    a->end = a->at + number(end + 40, 8);
    return number(end, 4) == 0x06064b50 ? WEIR_OK : refuse_cut(a);
}

static int take_end(struct archive *a, const unsigned char *end, uint64_t end_at) {
    a->at = number(end + 16, 4);
    a->end = a->at + number(end + 12, 4);
    bool wide = number(end + 16, 4) == UINT32_MAX || number(end + 12, 4) == UINT32_MAX ||
                number(end + 10, 2) == UINT16_MAX;
    int status = wide && end_at >= LOCATOR_BYTES ? find_directory64(a, end_at) : WEIR_OK;
    if (status) {
        return status;
    }
    return a->at <= a->end && a->end <= end_at ? WEIR_OK : refuse_cut(a);
}

/* The record is the last thing but for a comment, which may hold anything. */
static int find_directory(struct archive *a) {
    uint64_t bytes = a->source->bytes;
    size_t tail = bytes < END_BYTES + COMMENT_MAX ? (size_t)bytes : END_BYTES + COMMENT_MAX;
    if (bytes < END_BYTES) {
        return refuse_cut(a);
    }
    unsigned char *last = weir__acquire(a->io->allocator, tail, 1);
    if (!last) {
        return weir__io_fail(a->io, ENOMEM, "read", a->source->path);
    }
    int status = read_at(a, bytes - tail, last, tail);
    size_t at = tail - END_BYTES;
    while (!status && at > 0 && number(last + at, 4) != 0x06054b50) {
        at--;
    }
    if (!status && number(last + at, 4) != 0x06054b50) {
        status = refuse_cut(a);
    } else if (!status) {
        status = take_end(a, last + at, bytes - tail + at);
    }
    weir__release(a->io->allocator, last, tail, 1);
    return status;
}

/* ---- entries ---- */

/* What did not fit 32 bits stands in the extra field of type 1, in this order. */
static void take_wide(struct npz_entry *entry, const unsigned char *extra, size_t bytes) {
    uint64_t *numbers[] = {&entry->bytes, &entry->packed, &entry->header};
    for (size_t at = 0; at + 4 <= bytes;) {
        size_t length = number(extra + at + 2, 2), used = 0;
        const unsigned char *field = extra + at + 4;
        at += 4 + length;
        if (number(field - 4, 2) != 1 || at > bytes) {
            continue;
        }
        for (int i = 0; i < 3; i++) {
            if (*numbers[i] != UINT32_MAX || used + 8 > length) {
                continue;
            }
            *numbers[i] = number(field + used, 8);
            used += 8;
        }
    }
}

static int read_extra(const struct archive *a, uint64_t offset, size_t bytes,
                      struct npz_entry *entry) {
    unsigned char *extra = weir__acquire(a->io->allocator, bytes + 1, 1);
    if (!extra) {
        return weir__io_fail(a->io, ENOMEM, "read", a->source->path);
    }
    int status = read_at(a, offset, extra, bytes);
    if (!status) {
        take_wide(entry, extra, bytes);
    }
    weir__release(a->io->allocator, extra, bytes + 1, 1);
    return status;
}

/* The entry at a->at, which moves behind it. */
static int next_entry(struct archive *a, struct npz_entry *entry) {
    unsigned char head[ENTRY_BYTES];
    int status = read_at(a, a->at, head, sizeof(head));
    if (status) {
        return status;
    }
    size_t name = number(head + 28, 2), extra = number(head + 30, 2);
    if (number(head, 4) != 0x02014b50) {
        return refuse_cut(a);
    }
    if (name > NAME_MAX_BYTES) {
        return REFUSE(a, WEIR_ERR_UNSUPPORTED, "a name of %zu bytes is longer than %d", name,
                      NAME_MAX_BYTES);
    }
    entry->flags = (unsigned)number(head + 8, 2);
    entry->method = (unsigned)number(head + 10, 2);
    entry->packed = number(head + 20, 4);
    entry->bytes = number(head + 24, 4);
    entry->header = number(head + 42, 4);
    status = read_at(a, a->at + ENTRY_BYTES, (unsigned char *)entry->name, name);
    entry->name[name] = 0;
    if (!status) {
        status = read_extra(a, a->at + ENTRY_BYTES + name, extra, entry);
    }
    a->at += ENTRY_BYTES + name + extra + number(head + 32, 2);
    return status;
}

static bool is_array(const char *name) {
    size_t length = strlen(name);
    return length > 4 && strcmp(name + length - 4, ".npy") == 0;
}

static int list_entries(struct archive *a, const char *path, struct weir__names *names) {
    char full[PATH_MAX];
    struct npz_entry entry;
    int status = WEIR_OK;
    while (!status && a->at < a->end) {
        status = next_entry(a, &entry);
        if (status || !is_array(entry.name)) {
            continue;
        }
        status = weir__path_join(a->io, path, entry.name, full);
        if (!status) {
            status = weir__names_add(a->io, names, full);
        }
    }
    return status;
}

int weir__npz_list(const struct weir__io *io, const char *path, struct weir__names *names) {
    struct weir__source source;
    int status = weir__source_open(io, path, &source);
    if (status) {
        return status;
    }
    struct archive archive = {.io = io, .source = &source};
    uint32_t before = names->count;
    status = find_directory(&archive);
    if (!status) {
        status = list_entries(&archive, path, names);
    }
    if (!status && names->count == before) {
        status = REFUSE(&archive, WEIR_ERR_FORMAT, "it holds no array: no NAME.npy is in it");
    }
    weir__source_close(&source);
    return status;
}

/* ---- one of them ---- */

size_t weir__npz_archive(const char *path) {
    const char *last = NULL;
    for (const char *at = path; (at = strstr(at, ".npz/")); at++) {
        last = at;
    }
    return last ? (size_t)(last - path) + 4 : 0;
}

static int find_entry(struct archive *a, const char *name, struct npz_entry *entry) {
    while (a->at < a->end) {
        int status = next_entry(a, entry);
        if (status || strcmp(entry->name, name) == 0) {
            return status;
        }
    }
    return REFUSE(a, WEIR_ERR_FORMAT, "it holds no %.80s", name);
}

/* Where its bytes begin, behind a header of its own. */
static int check_entry(const struct archive *a, const struct npz_entry *entry, uint64_t *begin) {
    unsigned char head[LOCAL_BYTES];
    if (entry->flags & 1 || entry->method != 0 || entry->packed != entry->bytes) {
        return REFUSE(a, WEIR_ERR_UNSUPPORTED,
                      "%.80s is %s: save it by numpy.savez, not numpy.savez_compressed, or unpack "
                      "it by 'unzip'",
                      entry->name, entry->flags & 1 ? "encrypted" : "compressed");
    }
    int status = read_at(a, entry->header, head, sizeof(head));
    if (status) {
        return status;
    }
    *begin = entry->header + LOCAL_BYTES + number(head + 26, 2) + number(head + 28, 2);
    bool inside = *begin <= a->source->bytes && entry->bytes <= a->source->bytes - *begin;
    return inside && number(head, 4) == 0x04034b50 ? WEIR_OK : refuse_cut(a);
}

int weir__npz_open(const struct weir__io *io, const char *path, struct weir__source *source) {
    char name[PATH_MAX];
    struct weir__source whole;
    struct npz_entry entry;
    uint64_t begin = 0;
    size_t bytes = weir__npz_archive(path);
    assert(bytes > 0);
    if (snprintf(name, sizeof(name), "%.*s", (int)bytes, path) >= PATH_MAX) {
        return weir__io_fail(io, ENAMETOOLONG, "open", path);
    }
    int status = weir__source_open(io, name, &whole);
    if (status) {
        return status;
    }
    struct archive archive = {.io = io, .source = &whole};
    status = find_directory(&archive);
    if (!status) {
        status = find_entry(&archive, path + bytes + 1, &entry);
    }
    if (!status) {
        status = check_entry(&archive, &entry, &begin);
    }
    if (!status) {
        status = weir__source_narrow(&whole, io, path, begin, entry.bytes);
    }
    if (status) {
        weir__source_close(&whole);
        return status;
    }
    *source = whole;
    return WEIR_OK;
}
