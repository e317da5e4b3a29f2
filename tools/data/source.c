/* SPDX-License-Identifier: MIT */
/* Files that are read at any place. */
#include "data/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PIECE_BYTES ((size_t)64 << 10)

int weir__source_refuse(const struct weir__io *io, const char *path, int status, const char *format,
                        ...) {
    char reason[256], shortened[96];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    return weir__fail(io->error, status, "%s: %s", weir__path_text(path, shortened), reason);
}

static int check_kind(const struct weir__io *io, const char *path, const struct stat *facts) {
    if (S_ISDIR(facts->st_mode)) {
        return weir__io_fail(io, EISDIR, "read", path);
    }
    if (!S_ISREG(facts->st_mode)) {
        return weir__source_refuse(io, path, WEIR_ERR_IO,
                                   "not a file but a pipe or device: name a file");
    }
    return WEIR_OK;
}

int weir__source_open(const struct weir__io *io, const char *path, struct weir__source *source) {
    struct stat facts;
    struct weir__source made = {.allocator = io->allocator, .calls = weir__io_calls_of(io)};
    /* Non-blocking only so that a pipe without a writer is refused and not waited for. */
    made.descriptor = weir__io_open(io, path, O_RDONLY | O_NONBLOCK, 0);
    if (made.descriptor < 0) {
        return weir__io_fail(io, errno, "open", path);
    }
    int status = WEIR_OK;
    if (made.calls->fstat(made.descriptor, &facts) != 0) {
        status = weir__io_fail(io, errno, "read", path);
    } else {
        status = check_kind(io, path, &facts);
    }
    if (!status && weir__text_copy(io->allocator, path, &made.path)) {
        status = weir__io_fail(io, ENOMEM, "open", path);
    }
    if (status) {
        made.calls->close(made.descriptor); /* read only: a failure loses nothing */
        return status;
    }
    made.bytes = (uint64_t)facts.st_size;
    *source = made;
    return WEIR_OK;
}

int weir__source_narrow(struct weir__source *source, const struct weir__io *io, const char *path,
                        uint64_t begin, uint64_t bytes) {
    char *name = NULL;
    assert(source->begin == 0 && begin <= source->bytes && bytes <= source->bytes - begin);
    if (weir__text_copy(source->allocator, path, &name)) {
        return weir__io_fail(io, ENOMEM, "open", path);
    }
    weir__text_release(source->allocator, source->path);
    source->path = name;
    source->begin = begin;
    source->bytes = bytes;
    return WEIR_OK;
}

void weir__source_close(struct weir__source *source) {
    if (source->path) {
        source->calls->close(source->descriptor); /* read only: a failure loses nothing */
        weir__text_release(source->allocator, source->path);
    }
    *source = (struct weir__source){0};
}

int weir__source_read(const struct weir__source *source, const struct weir__io *io, uint64_t offset,
                      void *memory, size_t bytes) {
    struct weir__io own = {source->allocator, source->calls, io->error};
    assert(offset <= source->bytes && bytes <= source->bytes - offset);
    ssize_t got = weir__io_read_at(&own, source->descriptor, memory, bytes, source->begin + offset);
    if (got < 0) {
        return weir__io_fail(&own, errno, "read", source->path);
    }
    if ((size_t)got < bytes) {
        return weir__source_refuse(&own, source->path, WEIR_ERR_IO,
                                   "it was cut: byte %llu of %llu is not there any more: leave "
                                   "files alone while they are used",
                                   (unsigned long long)offset + (unsigned long long)got,
                                   (unsigned long long)source->bytes);
    }
    return WEIR_OK;
}

/* Block i of n begins so that the last one ends with the file. */
static uint64_t block_begin(uint64_t bytes, uint32_t blocks, uint32_t index) {
    uint64_t room = bytes - PIECE_BYTES;
    return blocks > 1 ? (uint64_t)((unsigned __int128)room * index / (blocks - 1)) : room;
}

int weir__source_hash(const struct weir__source *source, const struct weir__io *io, uint32_t blocks,
                      uint64_t *hash) {
    unsigned char piece[4096];
    uint64_t sum = weir__hash(*hash, &source->bytes, sizeof(source->bytes));
    bool whole = source->bytes <= (uint64_t)blocks * PIECE_BYTES;
    uint64_t pieces = whole ? (source->bytes + PIECE_BYTES - 1) / PIECE_BYTES : blocks;
    assert(blocks > 0);
    for (uint32_t i = 0; i < pieces; i++) {
        uint64_t at = whole ? (uint64_t)i * PIECE_BYTES : block_begin(source->bytes, blocks, i);
        uint64_t end = source->bytes - at < PIECE_BYTES ? source->bytes : at + PIECE_BYTES;
        while (at < end) {
            size_t bytes = end - at < sizeof(piece) ? (size_t)(end - at) : sizeof(piece);
            int status = weir__source_read(source, io, at, piece, bytes);
            if (status) {
                return status;
            }
            sum = weir__hash(sum, piece, bytes);
            at += bytes;
        }
    }
    *hash = sum;
    return WEIR_OK;
}
