/* SPDX-License-Identifier: MIT */
/**
 * Files: reading a whole one under a limit, and writing one that appears complete or not at all.
 *
 * A file is written as `FILE.partial` next to it, flushed to the disk and renamed over FILE, so
 * that whoever looks, also after a crash at any moment, finds the old file or the new one, whole.
 * Every system call of src/io goes through one table, which tests replace to fail, shorten or
 * interrupt the k-th call. Calls that a signal interrupted are repeated, a bounded number of times.
 *
 * Statuses: WEIR_ERR_IO (the message names path, reason and a way out), WEIR_ERR_OUT_OF_MEMORY.
 * Everything here blocks and may be used from any thread, one object by one thread at a time.
 */
#ifndef WEIR_IO_FILE_H
#define WEIR_IO_FILE_H

#include "base/base.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/types.h>

/** The system calls that src/io makes; each as in its manual page. */
struct weir__io_calls {
    int (*open)(const char *path, int flags, unsigned mode);
    ssize_t (*read)(int descriptor, void *memory, size_t bytes);
    ssize_t (*pread)(int descriptor, void *memory, size_t bytes, off_t offset);
    ssize_t (*write)(int descriptor, const void *memory, size_t bytes);
    int (*fsync)(int descriptor);
    int (*close)(int descriptor);
    int (*rename)(const char *from, const char *to);
    int (*unlink)(const char *path);
    int (*link)(const char *from, const char *to);
    int (*stat)(const char *path, struct stat *facts);
    int (*lstat)(const char *path, struct stat *facts);
    int (*fstat)(int descriptor, struct stat *facts);
    char *(*realpath)(const char *path, char *resolved);
    ssize_t (*readlink)(const char *path, char *text, size_t bytes);
    void *(*map)(int descriptor, size_t bytes); /**< read-only, private; NULL on failure */
    int (*unmap)(void *memory, size_t bytes);
    void (*drop)(void *memory, size_t bytes); /**< whole pages of a map, which are read anew */
    DIR *(*opendir)(const char *path);
    struct dirent *(*readdir)(DIR *folder);
    int (*closedir)(DIR *folder);
    int (*mkdir)(const char *path, mode_t mode);
    int (*rmdir)(const char *path);
};
/** The operating system's. */
extern const struct weir__io_calls weir__io_calls_system;

/** What every function of src/io is given. All members may be NULL: the default allocator, the
 * operating system, nobody to tell. */
struct weir__io {
    const struct weir_allocator *allocator;
    const struct weir__io_calls *calls;
    struct weir_error *error; /**< gets status and message on failure; its place is left alone */
};

/** io->calls, or the operating system's. */
const struct weir__io_calls *weir__io_calls_of(const struct weir__io *io);
/** Fails with WEIR_ERR_IO (out of memory: that) and "cannot WHAT PATH: reason: way out" for an
 * errno value. */
int weir__io_fail(const struct weir__io *io, int number, const char *what, const char *path);
/** The end of a long path ("...models/a.safetensors"), so that messages keep room for the reason.
 * Returns `path` itself, or `text`. */
const char *weir__path_text(const char *path, char text[96]);

/** FOLDER/NAME into `path` of PATH_MAX bytes; WEIR_ERR_IO where it does not fit. */
int weir__path_join(const struct weir__io *io, const char *folder, const char *name, char *path);

/** Whether a file `path`, FOLDER/NAME as above, is there, or cannot be asked about: then opening it
 * says why. Fails nothing. */
bool weir__folder_has(const struct weir__io *io, const char *folder, const char *name, char *path);

/* Single calls, repeated while a signal interrupts them, at most 1,000 times in a row. */

/** open(2) with O_CLOEXEC; -1 and errno on failure. */
int weir__io_open(const struct weir__io *io, const char *path, int flags, unsigned mode);
/** fsync(2). */
int weir__io_flush(const struct weir__io *io, int descriptor);
/** Reads until `bytes` or the end of the file; -1 and errno on failure. */
ssize_t weir__io_read(const struct weir__io *io, int descriptor, void *memory, size_t bytes);
/** The same from byte `offset` of the file on, which keeps the descriptor's place. */
ssize_t weir__io_read_at(const struct weir__io *io, int descriptor, void *memory, size_t bytes,
                         uint64_t offset);
/** Writes all `bytes`; -1 and errno on failure. */
int weir__io_write(const struct weir__io *io, int descriptor, const void *memory, size_t bytes);

/** A file's bytes. `data` has a zero after them and is never NULL on success. */
struct weir__bytes {
    char *data;
    size_t count;
    size_t capacity;
};
/** Reads all of `path`, a file or a pipe. More than `limit` bytes: WEIR_ERR_IO. The bytes are the
 * caller's: weir__bytes_release with the same allocator. */
int weir__file_read(const struct weir__io *io, const char *path, size_t limit,
                    struct weir__bytes *bytes);
/** Appends what can be read from an open file, until its end or until `bytes` holds more than
 * `limit` (which the caller checks). On failure what was read so far stays in `bytes`. */
int weir__file_append(const struct weir__io *io, const char *path, int descriptor, size_t limit,
                      struct weir__bytes *bytes);
/** Makes room for `more` bytes and the zero; keeps what is there. WEIR_ERR_OUT_OF_MEMORY. */
int weir__bytes_reserve(const struct weir__io *io, struct weir__bytes *bytes, size_t more);
/** Puts `count` bytes (data may be NULL where it is 0) and the zero behind what is there.
 * WEIR_ERR_OUT_OF_MEMORY. */
int weir__bytes_append(const struct weir__io *io, struct weir__bytes *bytes, const void *data,
                       size_t count);
/** Gives the memory back and empties `bytes`. Accepts an empty or zeroed one. */
void weir__bytes_release(const struct weir_allocator *allocator, struct weir__bytes *bytes);

/**
 * A file being written. Phases: begin; write any number of times; commit or abort. The first
 * failure cleans up at once (the old file is untouched, `.partial` is gone) and stays: later writes
 * and the commit return it again and do nothing, so a caller may ask once, at the commit.
 */
struct weir__file {
    struct weir__io io;
    int status;     /**< the first failure */
    int descriptor; /**< of the partial file; -1: none */
    int folder;     /**< its folder, to be flushed after the rename; -1: none */
    bool direct;    /**< a device or pipe: written straight */
    bool partial_made;
    char *path; /**< what will be replaced: symbolic links are followed first */
    char *partial;
    char *buffer;
    size_t buffered;
};

/** Where a symbolic link leads, through others and whether or not there is a file; a copy of any
 * other path. 0, or an errno value. `target` has PATH_MAX bytes. */
int weir__link_follow(const struct weir__io *io, const char *path, char *target);
/** Opens `PATH.partial`, replacing a left-over one. A folder is refused; a device or pipe is
 * written straight. The replaced file's permissions are kept, less the umask. */
int weir__file_begin(const struct weir__io *io, const char *path, struct weir__file *file);
/** Adds bytes. Small ones are gathered; large ones are not copied. */
int weir__file_write(struct weir__file *file, const void *data, size_t bytes);
/** Flushes to the disk, renames, flushes the folder. If only the last fails, the new file is in
 * place and the message says so. `file` is empty afterwards in every case. */
int weir__file_commit(struct weir__file *file);
/** Makes `to` another name of the file `from`, without a copy, as a commit replaces a file. False
 * where that cannot be done (other file systems, or such as have no links, and any failure): `to`
 * is then as it was. */
bool weir__file_alias(const struct weir__io *io, const char *from, const char *to);
/** Gives up: the old file stays. Does nothing after a commit, a failure (of begin as well) or
 * another abort. */
void weir__file_abort(struct weir__file *file);

#endif
