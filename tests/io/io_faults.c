/* SPDX-License-Identifier: MIT */
/* The misbehaving table of system calls; see io_faults.h. */
#include "io/io_faults.h"

#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct {
    uint64_t count, k;
    bool persistent, fired;
    enum io_fault fault;
    int number;
    bool limited; /* room is what the disk still takes */
    size_t room;
} state;

void io_faults_at(uint64_t k, bool persistent, enum io_fault fault, int number) {
    state.count = 0;
    state.k = k;
    state.persistent = persistent;
    state.fault = fault;
    state.number = number;
    state.fired = false;
    state.limited = false;
}

void io_faults_room(size_t bytes) {
    io_faults_at(0, false, IO_FAULT_FAIL, 0);
    state.limited = true;
    state.room = bytes;
}

bool io_faults_fired(void) {
    return state.fired;
}

static bool is_struck(void) {
    state.count++;
    bool struck =
        state.k > 0 && (state.count == state.k || (state.persistent && state.count > state.k));
    state.fired = state.fired || struck;
    return struck;
}

/* Whether a call that cannot be interrupted or shortened fails. */
static bool fails(void) {
    if (!is_struck() || state.fault != IO_FAULT_FAIL) return false;
    errno = state.number;
    return true;
}

/* The same for one that can be interrupted; *bytes are what it may do. */
static bool stops(size_t *bytes) {
    if (!is_struck() || state.fault == IO_FAULT_FULL) return false;
    if (state.fault == IO_FAULT_SHORT) {
        *bytes = *bytes > 0 ? 1 : 0;
        return false;
    }
    errno = state.fault == IO_FAULT_FAIL ? state.number : EINTR;
    return true;
}

static const struct weir__io_calls *real(void) {
    return &weir__io_calls_system;
}

static int faulty_open(const char *path, int flags, unsigned mode) {
    size_t none = 0;
    return stops(&none) ? -1 : real()->open(path, flags, mode);
}

static ssize_t faulty_read(int descriptor, void *memory, size_t bytes) {
    return stops(&bytes) ? -1 : real()->read(descriptor, memory, bytes);
}

static ssize_t faulty_pread(int descriptor, void *memory, size_t bytes, off_t offset) {
    return stops(&bytes) ? -1 : real()->pread(descriptor, memory, bytes, offset);
}

static ssize_t faulty_write(int descriptor, const void *memory, size_t bytes) {
    if (state.fault == IO_FAULT_FULL)
        return is_struck() ? 0 : real()->write(descriptor, memory, bytes);
    if (stops(&bytes)) return -1;
    if (state.limited && bytes > state.room) bytes = state.room;
    state.fired = state.fired || (state.limited && bytes == 0);
    if (state.limited && bytes == 0) {
        errno = ENOSPC;
        return -1;
    }
    ssize_t done = real()->write(descriptor, memory, bytes);
    if (state.limited && done > 0) state.room -= (size_t)done;
    return done;
}

static int faulty_fsync(int descriptor) {
    size_t none = 0;
    return stops(&none) || fcntl(descriptor, F_GETFD) < 0 ? -1 : 0;
}

static int faulty_close(int descriptor) {
    int status = real()->close(descriptor);
    return fails() ? -1 : status;
}

static int faulty_rename(const char *from, const char *to) {
    return fails() ? -1 : real()->rename(from, to);
}

static int faulty_unlink(const char *path) {
    return fails() ? -1 : real()->unlink(path);
}

static int faulty_link(const char *from, const char *to) {
    return fails() ? -1 : real()->link(from, to);
}

static int faulty_stat(const char *path, struct stat *facts) {
    return fails() ? -1 : real()->stat(path, facts);
}

static int faulty_lstat(const char *path, struct stat *facts) {
    return fails() ? -1 : real()->lstat(path, facts);
}

static int faulty_fstat(int descriptor, struct stat *facts) {
    return fails() ? -1 : real()->fstat(descriptor, facts);
}

static char *faulty_realpath(const char *path, char *resolved) {
    return fails() ? NULL : real()->realpath(path, resolved);
}

static ssize_t faulty_readlink(const char *path, char *text, size_t bytes) {
    return fails() ? -1 : real()->readlink(path, text, bytes);
}

static void *faulty_map(int descriptor, size_t bytes) {
    return fails() ? NULL : real()->map(descriptor, bytes);
}

static DIR *faulty_opendir(const char *path) {
    return fails() ? NULL : real()->opendir(path);
}

static struct dirent *faulty_readdir(DIR *folder) {
    return fails() ? NULL : real()->readdir(folder);
}

static int faulty_closedir(DIR *folder) {
    int status = real()->closedir(folder);
    return fails() ? -1 : status;
}

static int faulty_mkdir(const char *path, mode_t mode) {
    return fails() ? -1 : real()->mkdir(path, mode);
}

static int faulty_rmdir(const char *path) {
    return fails() ? -1 : real()->rmdir(path);
}

const struct weir__io_calls *io_faults_calls(void) {
    static struct weir__io_calls calls;
    calls = (struct weir__io_calls){
        .open = faulty_open,
        .read = faulty_read,
        .pread = faulty_pread,
        .write = faulty_write,
        .fsync = faulty_fsync,
        .close = faulty_close,
        .rename = faulty_rename,
        .unlink = faulty_unlink,
        .link = faulty_link,
        .stat = faulty_stat,
        .lstat = faulty_lstat,
        .fstat = faulty_fstat,
        .realpath = faulty_realpath,
        .readlink = faulty_readlink,
        .map = faulty_map,
        .unmap = real()->unmap,
        .drop = real()->drop,
        .opendir = faulty_opendir,
        .readdir = faulty_readdir,
        .closedir = faulty_closedir,
        .mkdir = faulty_mkdir,
        .rmdir = faulty_rmdir,
    };
    return &calls;
}

int io_open_descriptors(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count;
}

void io_make_file(const char *directory, const char *name, const void *data, size_t bytes,
                  char path[512]) {
    snprintf(path, 512, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes) TEST_FAIL("cannot write %s", path);
    if (file) fclose(file);
}

bool io_file_is(const char *path, const void *data, size_t bytes) {
    char read[1 << 18];
    FILE *file = fopen(path, "rb");
    if (!file) return false;
    size_t got = fread(read, 1, sizeof(read), file);
    fclose(file);
    return got == bytes && memcmp(read, data, bytes) == 0;
}
