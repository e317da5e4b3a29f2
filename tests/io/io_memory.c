/* SPDX-License-Identifier: MIT */
/* The file in memory; see io_memory.h. */
#include "io/io_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define DESCRIPTORS 8
#define FIRST 1000000 /* far from the system's own */

static struct {
    const char *bytes;
    size_t count;
    bool is_open[DESCRIPTORS];
    size_t position[DESCRIPTORS];
    uint32_t open_count;
} state;

void io_memory_file(const void *bytes, size_t count) {
    state.bytes = bytes;
    state.count = count;
}

uint32_t io_memory_open_count(void) {
    return state.open_count;
}

static bool is_known(int descriptor) {
    int i = descriptor - FIRST;
    if (i >= 0 && i < DESCRIPTORS && state.is_open[i]) return true;
    errno = EBADF;
    return false;
}

static int fail(int number) {
    errno = number;
    return -1;
}

/* ---- reading ---- */

static int memory_open(const char *path, int flags, unsigned mode) {
    (void)path, (void)mode;
    if ((flags & O_ACCMODE) != O_RDONLY) return fail(EROFS);
    for (int i = 0; i < DESCRIPTORS; i++) {
        if (state.is_open[i]) continue;
        state.is_open[i] = true;
        state.position[i] = 0;
        state.open_count++;
        return FIRST + i;
    }
    return fail(EMFILE);
}

static int memory_close(int descriptor) {
    if (!is_known(descriptor)) return -1;
    state.is_open[descriptor - FIRST] = false;
    state.open_count--;
    return 0;
}

static ssize_t copy(size_t offset, void *memory, size_t bytes) {
    size_t left = offset < state.count ? state.count - offset : 0;
    size_t count = bytes < left ? bytes : left;
    if (count > 0) memcpy(memory, state.bytes + offset, count);
    return (ssize_t)count;
}

static ssize_t memory_read(int descriptor, void *memory, size_t bytes) {
    if (!is_known(descriptor)) return -1;
    size_t *position = &state.position[descriptor - FIRST];
    ssize_t count = copy(*position, memory, bytes);
    *position += (size_t)count;
    return count;
}

static ssize_t memory_pread(int descriptor, void *memory, size_t bytes, off_t offset) {
    if (!is_known(descriptor) || offset < 0) return -1;
    return copy((size_t)offset, memory, bytes);
}

static int describe(struct stat *facts) {
    memset(facts, 0, sizeof *facts);
    facts->st_mode = S_IFREG | 0444;
    facts->st_size = (off_t)state.count;
    return 0;
}

static int memory_stat(const char *path, struct stat *facts) {
    (void)path;
    return describe(facts);
}

static int memory_fstat(int descriptor, struct stat *facts) {
    return is_known(descriptor) ? describe(facts) : -1;
}

static char *memory_realpath(const char *path, char *resolved) {
    size_t length = strlen(path);
    errno = ENAMETOOLONG;
    return length < 4096 ? memcpy(resolved, path, length + 1) : NULL;
}

static void *memory_map(int descriptor, size_t bytes) {
    if (!is_known(descriptor) || bytes > state.count) return NULL;
    void *memory = malloc(bytes);
    if (!memory) return NULL;
    copy(0, memory, bytes);
    state.open_count++;
    return memory;
}

static int memory_unmap(void *memory, size_t bytes) {
    (void)bytes;
    free(memory);
    state.open_count--;
    return 0;
}

/* ---- what there is not ---- */

static ssize_t no_write(int descriptor, const void *memory, size_t bytes) {
    (void)descriptor, (void)memory, (void)bytes;
    return fail(EROFS);
}

static int no_fsync(int descriptor) {
    (void)descriptor;
    return fail(EROFS);
}

static int no_rename(const char *from, const char *to) {
    (void)from, (void)to;
    return fail(EROFS);
}

static int no_unlink(const char *path) {
    (void)path;
    return fail(EROFS);
}

static DIR *no_opendir(const char *path) {
    (void)path;
    errno = ENOTDIR;
    return NULL;
}

static struct dirent *no_readdir(DIR *folder) {
    (void)folder;
    return NULL;
}

static int no_closedir(DIR *folder) {
    (void)folder;
    return fail(EBADF);
}

const struct weir__io_calls *io_memory_calls(void) {
    static const struct weir__io_calls calls = {
        .open = memory_open,
        .read = memory_read,
        .pread = memory_pread,
        .write = no_write,
        .fsync = no_fsync,
        .close = memory_close,
        .rename = no_rename,
        .unlink = no_unlink,
        .stat = memory_stat,
        .lstat = memory_stat,
        .fstat = memory_fstat,
        .realpath = memory_realpath,
        .map = memory_map,
        .unmap = memory_unmap,
        .opendir = no_opendir,
        .readdir = no_readdir,
        .closedir = no_closedir,
    };
    return &calls;
}
