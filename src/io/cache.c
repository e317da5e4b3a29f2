/* SPDX-License-Identifier: MIT */
#include "io/cache.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool make_folder(const char *path) {
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

void weir__cache_find(char folder[WEIR__CACHE_FOLDER_MAX]) {
    const char *own = getenv("WEIR_CACHE"), *cache = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    int used = -1;
    if (own != NULL)
        used = snprintf(folder, WEIR__CACHE_FOLDER_MAX, "%s", own);
    else if (cache != NULL && cache[0] == '/')
        used = snprintf(folder, WEIR__CACHE_FOLDER_MAX, "%s", cache);
    else if (home != NULL && home[0] == '/')
        used = snprintf(folder, WEIR__CACHE_FOLDER_MAX, "%s/.cache", home);
    bool made = used > 0 && used + 6 < WEIR__CACHE_FOLDER_MAX && make_folder(folder);
    if (made && own == NULL) {
        memcpy(folder + used, "/weir", 6);
        made = make_folder(folder);
    }
    if (!made) folder[0] = '\0';
}
