/* SPDX-License-Identifier: MIT */
/* Listing folders. */
#include "data/folder.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int grow(const struct weir__io *io, struct weir__names *names) {
    if (names->count < names->capacity) {
        return WEIR_OK;
    }
    uint32_t capacity = names->capacity ? 2 * names->capacity : 32;
    char **list = weir__acquire(io->allocator, capacity, sizeof(*list));
    if (!list) {
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    if (names->count > 0) {
        memcpy(list, names->list, names->count * sizeof(*list));
    }
    weir__release(io->allocator, names->list, names->capacity, sizeof(*list));
    names->list = list;
    names->capacity = capacity;
    return WEIR_OK;
}

int weir__names_add(const struct weir__io *io, struct weir__names *names, const char *name) {
    if (grow(io, names) || weir__text_copy(io->allocator, name, &names->list[names->count])) {
        return weir__io_fail(io, ENOMEM, "list", name);
    }
    names->count++;
    return WEIR_OK;
}

void weir__names_release(const struct weir__io *io, struct weir__names *names) {
    for (uint32_t i = 0; i < names->count; i++) {
        weir__text_release(io->allocator, names->list[i]);
    }
    weir__release(io->allocator, names->list, names->capacity, sizeof(*names->list));
    *names = (struct weir__names){0};
}

static int compare_texts(const void *left, const void *right) {
    return strcmp(*(char *const *)left, *(char *const *)right);
}

int weir__folder_list(const struct weir__io *io, const char *path, struct weir__names *names) {
    const struct weir__io_calls *calls = weir__io_calls_of(io);
    DIR *folder = calls->opendir(path);
    if (!folder) {
        return weir__io_fail(io, errno, "open the folder", path);
    }
    int status = WEIR_OK;
    while (!status) {
        errno = 0;
        struct dirent *entry = calls->readdir(folder);
        if (!entry) {
            status = errno ? weir__io_fail(io, errno, "read the folder", path) : WEIR_OK;
            break;
        }
        if (entry->d_name[0] != '.') {
            status = weir__names_add(io, names, entry->d_name);
        }
    }
    calls->closedir(folder);
    if (!status && names->count > 0) {
        qsort(names->list, names->count, sizeof(*names->list), compare_texts);
    }
    return status;
}
