/* SPDX-License-Identifier: MIT */
/*
 * Reading whole files and replacing them atomically. The order of calls in a commit (flush the
 * file, open the folder early, rename, flush the folder) is what makes a save survive a crash: a
 * rename that reaches the disk before the bytes would leave an empty file under the right name.
 */
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define INTERRUPTIONS_MAX 1000
#define LINKS_MAX 40
#define AT_POSITION (-1)
#define BUFFER_BYTES ((size_t)64 << 10)
#define READ_BYTES ((size_t)64 << 10)

/* ---- the table of calls ---- */

static int system_open(const char *path, int flags, unsigned mode) {
    return open(path, flags, (mode_t)mode);
}

static void *system_map(int descriptor, size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void system_drop(void *memory, size_t bytes) {
    (void)madvise(memory, bytes, MADV_DONTNEED); /* else they stay until somebody needs the room */
}

static int system_stat(const char *path, struct stat *facts) {
    return stat(path, facts);
}

static int system_lstat(const char *path, struct stat *facts) {
    return lstat(path, facts);
}

static int system_fstat(int descriptor, struct stat *facts) {
    return fstat(descriptor, facts);
}

const struct weir__io_calls weir__io_calls_system = {
    .open = system_open,
    .read = read,
    .pread = pread,
    .write = write,
    .fsync = fsync,
    .close = close,
    .rename = rename,
    .unlink = unlink,
    .link = link,
    .stat = system_stat,
    .lstat = system_lstat,
    .fstat = system_fstat,
    .realpath = realpath,
    .readlink = readlink,
    .map = system_map,
    .unmap = munmap,
    .drop = system_drop,
    .opendir = opendir,
    .readdir = readdir,
    .closedir = closedir,
    .mkdir = mkdir,
    .rmdir = rmdir,
};

const struct weir__io_calls *weir__io_calls_of(const struct weir__io *io) {
    return io->calls ? io->calls : &weir__io_calls_system;
}

/* ---- messages ---- */

static const char *way_out(int number) {
    switch (number) {
    case ENOENT:
    case ENOTDIR: return "check the path";
    case EACCES:
    case EPERM:
    case EROFS: return "check its permissions or choose another place";
    case ENOSPC:
    case EDQUOT: return "make room or choose another place";
    case EFBIG: return "raise 'ulimit -f' or choose a place that takes larger files";
    case EMFILE:
    case ENFILE: return "close other files or raise 'ulimit -n'";
    case EISDIR: return "name a file, not a folder";
    case EEXIST: return "remove it or choose another name";
    case ENAMETOOLONG: return "choose a shorter name";
    case EIO: return "check the disk";
    default: return "try again or choose another place";
    }
}

const char *weir__path_text(const char *path, char text[96]) {
    assert(path != NULL);
    size_t length = strlen(path);
    if (length < 96) return path;
    snprintf(text, 96, "...%s", path + length - 92);
    return text;
}

int weir__io_fail(const struct weir__io *io, int number, const char *what, const char *path) {
    assert(number != 0 && what != NULL);
    char shortened[96], reason_memory[96];
    const char *place = weir__path_text(path, shortened);
    const char *reason = strerror_r(number, reason_memory, sizeof reason_memory);
    if (number == ENOMEM)
        return weir__fail(io->error, WEIR_ERR_OUT_OF_MEMORY, "cannot %s %s: out of memory", what,
                          place);
    return weir__fail(io->error, WEIR_ERR_IO, "cannot %s %s: %s: %s", what, place, reason,
                      way_out(number));
}

int weir__path_join(const struct weir__io *io, const char *folder, const char *name, char *path) {
    assert(folder != NULL && name != NULL && name[0] != '\0');
    size_t length = strlen(folder);
    const char *slash = length > 0 && folder[length - 1] == '/' ? "" : "/";
    int used = snprintf(path, PATH_MAX, "%s%s%s", folder, slash, name);
    if (used >= 0 && used < PATH_MAX) return WEIR_OK;
    return weir__io_fail(io, ENAMETOOLONG, "name a file of", folder);
}

bool weir__folder_has(const struct weir__io *io, const char *folder, const char *name, char *path) {
    const struct weir__io quiet = {.allocator = io->allocator, .calls = io->calls};
    struct stat facts;
    if (weir__path_join(&quiet, folder, name, path) != WEIR_OK) return false;
    bool there = weir__io_calls_of(io)->stat(path, &facts) == 0;
    return there || (errno != ENOENT && errno != ENOTDIR);
}

/* ---- single calls ---- */

int weir__io_open(const struct weir__io *io, const char *path, int flags, unsigned mode) {
    int descriptor = -1;
    for (int i = 0; i < INTERRUPTIONS_MAX; i++) {
        descriptor = weir__io_calls_of(io)->open(path, flags | O_CLOEXEC, mode);
        if (descriptor >= 0 || errno != EINTR) break;
    }
    return descriptor;
}

/* At an offset, or, if that is AT_POSITION, where the descriptor stands. */
static ssize_t read_some(const struct weir__io *io, int descriptor, void *memory, size_t bytes,
                         int64_t offset) {
    assert(offset >= 0 || offset == AT_POSITION);
    const struct weir__io_calls *calls = weir__io_calls_of(io);
    ssize_t got = -1;
    for (int i = 0; i < INTERRUPTIONS_MAX; i++) {
        got = offset == AT_POSITION ? calls->read(descriptor, memory, bytes)
                                    : calls->pread(descriptor, memory, bytes, (off_t)offset);
        if (got >= 0 || errno != EINTR) break;
    }
    return got;
}

static ssize_t write_some(const struct weir__io *io, int descriptor, const void *memory,
                          size_t bytes) {
    ssize_t done = -1;
    for (int i = 0; i < INTERRUPTIONS_MAX; i++) {
        done = weir__io_calls_of(io)->write(descriptor, memory, bytes);
        if (done >= 0 || errno != EINTR) break;
    }
    return done;
}

static ssize_t read_all(const struct weir__io *io, int descriptor, void *memory, size_t bytes,
                        int64_t offset) {
    size_t total = 0;
    while (total < bytes) {
        int64_t at = offset == AT_POSITION ? AT_POSITION : offset + (int64_t)total;
        ssize_t got = read_some(io, descriptor, (char *)memory + total, bytes - total, at);
        if (got < 0) return -1;
        if (got == 0) break;
        assert((size_t)got <= bytes - total);
        total += (size_t)got;
    }
    return (ssize_t)total;
}

ssize_t weir__io_read(const struct weir__io *io, int descriptor, void *memory, size_t bytes) {
    return read_all(io, descriptor, memory, bytes, AT_POSITION);
}

ssize_t weir__io_read_at(const struct weir__io *io, int descriptor, void *memory, size_t bytes,
                         uint64_t offset) {
    assert(offset <= INT64_MAX && bytes <= INT64_MAX - offset);
    return read_all(io, descriptor, memory, bytes, (int64_t)offset);
}

int weir__io_write(const struct weir__io *io, int descriptor, const void *memory, size_t bytes) {
    size_t total = 0;
    while (total < bytes) {
        ssize_t done = write_some(io, descriptor, (const char *)memory + total, bytes - total);
        if (done == 0) {
            errno = ENOSPC; /* a file that takes nothing would loop for ever */
        }
        if (done <= 0) return -1;
        assert((size_t)done <= bytes - total);
        total += (size_t)done;
    }
    return 0;
}

int weir__io_flush(const struct weir__io *io, int descriptor) {
    int status = -1;
    for (int i = 0; i < INTERRUPTIONS_MAX; i++) {
        status = weir__io_calls_of(io)->fsync(descriptor);
        if (status == 0 || errno != EINTR) break;
    }
    return status;
}

/* On Linux the descriptor is gone also when close was interrupted: never repeated. */
static int close_once(const struct weir__io *io, int *descriptor) {
    if (*descriptor < 0) return 0;
    int status = weir__io_calls_of(io)->close(*descriptor);
    *descriptor = -1;
    return status != 0 && errno != EINTR ? -1 : 0;
}

/* ---- reading ---- */

int weir__bytes_reserve(const struct weir__io *io, struct weir__bytes *bytes, size_t more) {
    assert(bytes->count <= bytes->capacity);
    size_t needed = 0;
    if (!weir__add(bytes->count, more, &needed) || !weir__add(needed, 1, &needed))
        return weir__fail(io->error, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
    if (bytes->data && needed <= bytes->capacity) return WEIR_OK;
    size_t capacity = needed;
    if (bytes->capacity > 0 && needed < bytes->capacity * 2) capacity = bytes->capacity * 2;
    char *data = weir__acquire(io->allocator, capacity, 1);
    if (!data)
        return weir__fail(io->error, WEIR_ERR_OUT_OF_MEMORY, "out of memory: %zu bytes wanted",
                          capacity);
    if (bytes->count > 0) memcpy(data, bytes->data, bytes->count);
    weir__release(io->allocator, bytes->data, bytes->capacity, 1);
    bytes->data = data;
    bytes->capacity = capacity;
    assert(bytes->capacity - bytes->count > more);
    return WEIR_OK;
}

int weir__bytes_append(const struct weir__io *io, struct weir__bytes *bytes, const void *data,
                       size_t count) {
    int status = weir__bytes_reserve(io, bytes, count);
    if (status != WEIR_OK) return status;
    if (count > 0) memcpy(bytes->data + bytes->count, data, count);
    bytes->count += count;
    bytes->data[bytes->count] = 0;
    return WEIR_OK;
}

void weir__bytes_release(const struct weir_allocator *allocator, struct weir__bytes *bytes) {
    weir__release(allocator, bytes->data, bytes->capacity, 1);
    *bytes = (struct weir__bytes){0};
}

/* One more byte than the limit is asked for, so that "exactly the limit" and "more" differ. */
int weir__file_append(const struct weir__io *io, const char *path, int descriptor, size_t limit,
                      struct weir__bytes *bytes) {
    while (bytes->count <= limit) {
        size_t left = limit - bytes->count;
        size_t room = bytes->data ? bytes->capacity - 1 - bytes->count : 0;
        if (room == 0) {
            int status = weir__bytes_reserve(io, bytes, left < READ_BYTES ? left + 1 : READ_BYTES);
            if (status != WEIR_OK) return status;
            room = bytes->capacity - 1 - bytes->count;
        }
        assert(room > 0 && bytes->count + room < bytes->capacity);
        ssize_t got = weir__io_read(io, descriptor, bytes->data + bytes->count, room);
        if (got < 0) return weir__io_fail(io, errno, "read", path);
        bytes->count += (size_t)got;
        bytes->data[bytes->count] = 0;
        if ((size_t)got < room) break;
    }
    return WEIR_OK;
}

int weir__file_read(const struct weir__io *io, const char *path, size_t limit,
                    struct weir__bytes *bytes) {
    assert(limit < SIZE_MAX / 4);
    struct stat facts;
    struct weir__bytes got = {0};
    char shortened[96];
    int descriptor = weir__io_open(io, path, O_RDONLY, 0);
    if (descriptor < 0) return weir__io_fail(io, errno, "open", path);
    bool known = weir__io_calls_of(io)->fstat(descriptor, &facts) == 0;
    int status = WEIR_OK;
    if (!known || S_ISDIR(facts.st_mode)) {
        status = weir__io_fail(io, known ? EISDIR : errno, "read", path);
        goto fail;
    }
    /* Room for all of a file at once, and the byte that shows that there is no more. */
    size_t guess = S_ISREG(facts.st_mode) ? (size_t)facts.st_size : READ_BYTES;
    status = weir__bytes_reserve(io, &got, (guess < limit ? guess : limit) + 1);
    if (status != WEIR_OK) goto fail;
    status = weir__file_append(io, path, descriptor, limit, &got);
    if (status != WEIR_OK) goto fail;
    if (got.count > limit) {
        status = weir__fail(io->error, WEIR_ERR_IO,
                            "cannot read %s: it has more than %zu bytes: name a smaller file",
                            weir__path_text(path, shortened), limit);
        goto fail;
    }
    close_once(io, &descriptor); /* nothing was written: a failure here loses nothing */
    *bytes = got;
    return WEIR_OK;

fail:
    close_once(io, &descriptor);
    weir__bytes_release(io->allocator, &got);
    return status;
}

/* ---- writing ---- */

static void release_texts(struct weir__file *file) {
    weir__text_release(file->io.allocator, file->path);
    weir__text_release(file->io.allocator, file->partial);
    weir__release(file->io.allocator, file->buffer, BUFFER_BYTES, 1);
    file->path = file->partial = file->buffer = NULL;
    file->buffered = 0;
}

/* Closes and frees everything; the partial file goes if it is there. */
static void drop(struct weir__file *file) {
    close_once(&file->io, &file->descriptor);
    close_once(&file->io, &file->folder);
    if (file->partial_made) {
        weir__io_calls_of(&file->io)->unlink(file->partial);
        file->partial_made = false;
    }
    release_texts(file);
}

static int fail_file(struct weir__file *file, int number, const char *what, const char *path) {
    file->status = weir__io_fail(&file->io, number, what, path);
    drop(file);
    return file->status;
}

int weir__link_follow(const struct weir__io *io, const char *path, char target[PATH_MAX]) {
    char next[PATH_MAX];
    assert(path != NULL && target != NULL && target != path);
    if (snprintf(target, PATH_MAX, "%s", path) >= PATH_MAX) return ENAMETOOLONG;
    for (int links = 0; links < LINKS_MAX; links++) {
        ssize_t length = weir__io_calls_of(io)->readlink(target, next, sizeof next - 1);
        if (length < 0) return errno == EINVAL || errno == ENOENT ? 0 : errno;
        next[length] = 0;
        char *slash = strrchr(target, '/'); /* what does not begin at the root begins beside it */
        size_t kept = next[0] == '/' || !slash ? 0 : (size_t)(slash - target) + 1;
        if (kept + (size_t)length >= PATH_MAX) return ENAMETOOLONG;
        memcpy(target + kept, next, (size_t)length + 1);
    }
    return ELOOP;
}

/* Whether PATH is a device, and which file a link leads to. */
static int choose_target(struct weir__file *file, const char *path, unsigned *mode) {
    const struct weir__io_calls *calls = weir__io_calls_of(&file->io);
    struct stat facts;
    char resolved[PATH_MAX];
    const char *target = path;
    int number;
    if (calls->stat(path, &facts) == 0) {
        if (S_ISDIR(facts.st_mode)) return fail_file(file, EISDIR, "write", path);
        file->direct = !S_ISREG(facts.st_mode);
        *mode = facts.st_mode & 0777;
        if (!file->direct) {
            target = calls->realpath(path, resolved);
            if (!target) return fail_file(file, errno, "write", path);
        }
    } else if (errno != ENOENT) {
        return fail_file(file, errno, "write", path);
    } else if ((number = weir__link_follow(&file->io, path, resolved)) != 0) {
        return fail_file(file, number, "write", path);
    } else {
        target = resolved; /* of a link what it leads to, which is not there yet */
    }
    if (weir__text_copy(file->io.allocator, target, &file->path))
        return fail_file(file, ENOMEM, "write", path);
    return WEIR_OK;
}

static int name_partial(struct weir__file *file) {
    assert(file->path != NULL && file->partial == NULL);
    static const char suffix[] = ".partial";
    char text[PATH_MAX];
    int length = snprintf(text, sizeof text, "%s%s", file->path, suffix);
    if (length < 0 || (size_t)length >= sizeof text)
        return fail_file(file, ENAMETOOLONG, "write", file->path);
    if (weir__text_copy(file->io.allocator, text, &file->partial))
        return fail_file(file, ENOMEM, "write", file->path);
    return WEIR_OK;
}

/* O_EXCL after an unlink: a left-over partial may be a link to something that must stay. */
static int open_partial(struct weir__file *file, unsigned mode) {
    int status = name_partial(file);
    if (status != WEIR_OK) return status;
    weir__io_calls_of(&file->io)->unlink(file->partial);
    file->descriptor = weir__io_open(&file->io, file->partial, O_WRONLY | O_CREAT | O_EXCL, mode);
    if (file->descriptor < 0) return fail_file(file, errno, "create", file->partial);
    file->partial_made = true;
    return WEIR_OK;
}

/* Opened before anything is replaced, so that only its flush can fail after the rename. A folder
 * that may be written but not read cannot be flushed: then the rename alone must do. */
static int open_folder(struct weir__file *file) {
    assert(file->path != NULL);
    char text[PATH_MAX];
    snprintf(text, sizeof text, "%s", file->path);
    char *slash = strrchr(text, '/');
    if (!slash) {
        snprintf(text, sizeof text, ".");
    } else {
        slash[slash == text] = 0;
    }
    file->folder = weir__io_open(&file->io, text, O_RDONLY | O_DIRECTORY, 0);
    if (file->folder < 0 && errno != EACCES) return fail_file(file, errno, "open the folder", text);
    return WEIR_OK;
}

int weir__file_begin(const struct weir__io *io, const char *path, struct weir__file *file) {
    assert(path != NULL && file != NULL);
    *file = (struct weir__file){.io = *io, .descriptor = -1, .folder = -1};
    unsigned mode = 0666;
    int status = choose_target(file, path, &mode);
    if (status != WEIR_OK) return status;
    file->buffer = weir__acquire(io->allocator, BUFFER_BYTES, 1);
    if (!file->buffer) return fail_file(file, ENOMEM, "write", path);
    if (!file->direct) {
        status = open_partial(file, mode);
        return status != WEIR_OK ? status : open_folder(file);
    }
    file->descriptor = weir__io_open(io, file->path, O_WRONLY, 0);
    return file->descriptor < 0 ? fail_file(file, errno, "open", file->path) : WEIR_OK;
}

static const char *written_path(const struct weir__file *file) {
    return file->partial ? file->partial : file->path;
}

static int write_now(struct weir__file *file, const void *data, size_t bytes) {
    if (weir__io_write(&file->io, file->descriptor, data, bytes) != 0)
        return fail_file(file, errno, "write", written_path(file));
    return WEIR_OK;
}

static int write_buffer(struct weir__file *file) {
    assert(file->buffered <= BUFFER_BYTES);
    size_t bytes = file->buffered;
    file->buffered = 0;
    return bytes > 0 ? write_now(file, file->buffer, bytes) : WEIR_OK;
}

int weir__file_write(struct weir__file *file, const void *data, size_t bytes) {
    if (file->status != WEIR_OK || bytes == 0) return file->status;
    assert(file->descriptor >= 0 && data);
    if (bytes <= BUFFER_BYTES - file->buffered) {
        memcpy(file->buffer + file->buffered, data, bytes);
        file->buffered += bytes;
        return WEIR_OK;
    }
    int status = write_buffer(file);
    if (status != WEIR_OK) return status;
    if (bytes >= BUFFER_BYTES) return write_now(file, data, bytes);
    memcpy(file->buffer, data, bytes);
    file->buffered = bytes;
    return WEIR_OK;
}

/* Some file systems cannot flush a folder and say EINVAL: their renames need no flush. */
static int flush_folder(struct weir__file *file) {
    if (file->folder < 0 || weir__io_flush(&file->io, file->folder) == 0 || errno == EINVAL)
        return WEIR_OK;
    char shortened[96], reason[96];
    file->status = weir__fail(file->io.error, WEIR_ERR_IO,
                              "%s is written, but its folder could not be flushed (%s): a power "
                              "cut may bring the old file back: run 'sync'",
                              weir__path_text(file->path, shortened),
                              strerror_r(errno, reason, sizeof reason));
    return file->status;
}

static int put_in_place(struct weir__file *file) {
    assert(file->partial_made && file->buffered == 0);
    if (weir__io_flush(&file->io, file->descriptor) != 0)
        return fail_file(file, errno, "flush", file->partial);
    if (close_once(&file->io, &file->descriptor) != 0)
        return fail_file(file, errno, "close", file->partial);
    if (weir__io_calls_of(&file->io)->rename(file->partial, file->path) != 0)
        return fail_file(file, errno, "replace", file->path);
    file->partial_made = false;
    return flush_folder(file);
}

int weir__file_commit(struct weir__file *file) {
    if (file->status != WEIR_OK) return file->status;
    assert(file->descriptor >= 0);
    int status = write_buffer(file);
    if (status != WEIR_OK) return status;
    if (!file->direct) {
        status = put_in_place(file);
    } else if (close_once(&file->io, &file->descriptor) != 0) {
        status = fail_file(file, errno, "close", file->path);
    }
    drop(file);
    return status;
}

bool weir__file_alias(const struct weir__io *io, const char *from, const char *to) {
    assert(from != NULL && to != NULL);
    const struct weir__io_calls *calls = weir__io_calls_of(io);
    struct weir__io quiet = {.allocator = io->allocator, .calls = io->calls};
    struct weir__file file = {.io = quiet, .descriptor = -1, .folder = -1};
    unsigned mode = 0;
    if (choose_target(&file, to, &mode) != WEIR_OK) return false;
    if (file.direct || name_partial(&file) != WEIR_OK) {
        drop(&file);
        return false;
    }
    calls->unlink(file.partial);
    file.partial_made = calls->link(from, file.partial) == 0;
    bool done = file.partial_made && calls->rename(file.partial, file.path) == 0;
    /* two names of one file: such a rename does nothing, and the partial one goes */
    drop(&file);
    return done;
}

void weir__file_abort(struct weir__file *file) {
    drop(file);
}
