/* SPDX-License-Identifier: MIT */
#include "cli/saved.h"

#include "io/archive.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

struct saved saved_look(const char *path) {
    char index[PATH_MAX];
    struct stat facts;
    if (path == NULL || stat(path, &facts) != 0) return (struct saved){0};
    if (S_ISDIR(facts.st_mode)) {
        int length = snprintf(index, sizeof index, "%s/" WEIR__ARCHIVE_INDEX, path);
        if (length >= (int)sizeof index || stat(index, &facts) != 0) return (struct saved){0};
    }
    return (struct saved){facts.st_dev, facts.st_ino, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec};
}

bool saved_is_there(const struct saved *saved) {
    return saved->inode != 0;
}

bool saved_is_other(const struct saved *saved, const struct saved *than) {
    return saved->device != than->device || saved->inode != than->inode ||
           saved->seconds != than->seconds || saved->nanoseconds != than->nanoseconds;
}
