/* SPDX-License-Identifier: MIT */
/* Finds the MPI library and fills the table. The one beside the mpiexec of PATH comes first: a
 * world is made by its launcher, and a virtual environment is on no loader's path.
 *
 * The library is opened RTLD_NODELETE: it has threads and handlers of its own, and unloading it
 * under them is not supported. */
#include "world/world.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ABI_NAME "libmpi_abi.so.1"
#define SHIM_NAME "libweir_mpi.so"

/* ---- where it may be ---- */

/* Every file that was looked for in vain. */
struct places {
    char text[384];
};

static void add_tried(struct places *tried, const char *path) {
    size_t used = strlen(tried->text);
    snprintf(tried->text + used, sizeof tried->text - used, "%s%s", used > 0 ? ", " : "", path);
}

/* The folder that holds a path, in its place; "" is the root. */
static void go_up(char *path) {
    char *slash = strrchr(path, '/');
    if (slash != NULL) *slash = '\0';
}

/* The mpiexec that a shell would start, where links end. */
static bool find_launcher(char file[PATH_MAX]) {
    const char *path = getenv("PATH");
    char name[PATH_MAX];
    while (path != NULL && *path != '\0') {
        int length = (int)strcspn(path, ":");
        int used = snprintf(name, sizeof name, "%.*s/mpiexec", length, path);
        if (used < (int)sizeof name && access(name, X_OK) == 0 && realpath(name, file) != NULL)
            return true;
        path += length + (path[length] == ':');
    }
    return false;
}

static bool find_program(char file[PATH_MAX]) {
    ssize_t length = readlink("/proc/self/exe", file, PATH_MAX - 1);
    file[length > 0 ? length : 0] = '\0';
    return length > 0;
}

static bool look(const char *folder, const char *name, struct places *tried,
                 struct weir__mpi *mpi) {
    int length = snprintf(mpi->path, sizeof mpi->path, "%s/%s", folder, name);
    if (length < (int)sizeof mpi->path && access(mpi->path, F_OK) == 0) return true;
    add_tried(tried, mpi->path);
    return false;
}

/* Sets the path to a file that is there. */
static bool find_file(struct places *tried, struct weir__mpi *mpi) {
    char path[PATH_MAX];
    if (!find_launcher(path)) {
        add_tried(tried, "the folder of PATH's mpiexec, of which there is none");
    } else {
        go_up(path);
        go_up(path);
        if (look(path, "lib/" ABI_NAME, tried, mpi)) return true;
    }
    if (!find_program(path)) return false;
    go_up(path);
    if (look(path, SHIM_NAME, tried, mpi)) return true;
    go_up(path);
    return look(path, "lib/" SHIM_NAME, tried, mpi);
}

/* ---- opening ---- */

static bool open_path(struct weir__mpi *mpi) {
    mpi->library = dlopen(mpi->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return mpi->library != NULL;
}

static int fail_open(const struct weir__mpi *mpi, const char *why, struct weir_faults *faults) {
    const char *reason = dlerror();
    weir_faults_add(faults, "%s does not open as an MPI library (%.200s): %s", mpi->path,
                    reason != NULL ? reason : "it does not say why", why);
    return WEIR_ERR_NOT_FOUND;
}

static int fail_none(const struct places *tried, struct weir_faults *faults) {
    weir_faults_add(faults, "there is no MPI library to reach the other processes by: tried %s",
                    tried->text);
    weir_faults_add(faults,
                    "install an MPI of the standard ABI with its mpiexec ('pip install mpich' in "
                    "a virtual environment whose bin is in PATH), or build Weir with -Dmpicc=mpicc "
                    "for the MPI that is here, or name a library in WEIR_MPI");
    return WEIR_ERR_NOT_FOUND;
}

static int open_library(const char *library, struct weir_faults *faults, struct weir__mpi *mpi) {
    struct places tried = {{0}};
    if (library == NULL || library[0] == '\0') library = getenv("WEIR_MPI");
    if (library != NULL && library[0] != '\0') {
        int length = snprintf(mpi->path, sizeof mpi->path, "%s", library);
        if (length < (int)sizeof mpi->path && open_path(mpi)) return WEIR_OK;
        return fail_open(mpi, "correct or unset WEIR_MPI", faults);
    }
    if (find_file(&tried, mpi))
        return open_path(mpi)
                   ? WEIR_OK
                   : fail_open(mpi, "install it anew, or name another in WEIR_MPI", faults);
    snprintf(mpi->path, sizeof mpi->path, "%s", ABI_NAME);
    if (open_path(mpi)) return WEIR_OK;
    add_tried(&tried, ABI_NAME " of the loader's path");
    return fail_none(&tried, faults);
}

/* ---- filling ---- */

static int fail_other(const struct weir__mpi *mpi, const char *what, struct weir_faults *faults) {
    weir_faults_add(faults,
                    "%.300s %s: take " ABI_NAME " of an MPI that has it (MPICH 5), or what "
                    "'mpicc -shared -fPIC -Isrc build/mpi_shim.c -o " SHIM_NAME "' makes in Weir's "
                    "sources",
                    mpi->path, what);
    return WEIR_ERR_UNSUPPORTED;
}

static int copy_shim(struct weir__mpi *mpi, const struct weir__mpi_calls *shim,
                     struct weir_faults *faults) {
    if (shim->size != sizeof mpi->calls)
        return fail_other(mpi, "is of another version of Weir", faults);
    mpi->calls = *shim;
    return WEIR_OK;
}

/* Before anything is started: MPI_Abi_get_version may be called then. */
static int check_abi(struct weir__mpi *mpi, struct weir_faults *faults) {
    int (*get_version)(int *major, int *minor);
    int major = -1, minor = -1;
    void *function = dlsym(mpi->library, "MPI_Abi_get_version");
    if (dlsym(mpi->library, "MPI_Init_thread") == NULL)
        return fail_other(mpi, "is no MPI library", faults);
    _Static_assert(sizeof function == sizeof get_version, "functions and objects are as long");
    memcpy(&get_version, &function, sizeof function);
    if (function == NULL || get_version(&major, &minor) != WEIR__MPI_SUCCESS ||
        major != WEIR__MPI_ABI_MAJOR)
        return fail_other(mpi, "is an MPI library without the standard ABI of MPI 5", faults);
    return WEIR_OK;
}

static int fill_table(struct weir__mpi *mpi, struct weir_faults *faults) {
    void *function = dlsym(mpi->library, WEIR__MPI_SHIM);
    if (function != NULL) return copy_shim(mpi, function, faults);
    int status = check_abi(mpi, faults);
    if (status != WEIR_OK) return status;
    mpi->calls.size = sizeof mpi->calls;
#define FIND(member, symbol, parameters)                                                           \
    if ((function = dlsym(mpi->library, #symbol)) == NULL)                                         \
        return fail_other(mpi, "is an MPI library without " #symbol, faults);                      \
    memcpy(&mpi->calls.member, &function, sizeof function);
    WEIR__MPI_CALL_MAP(FIND)
#undef FIND
    return WEIR_OK;
}

int weir__mpi_open(const char *library, struct weir_faults *faults, struct weir__mpi *mpi) {
    assert(mpi != NULL);
    *mpi = (struct weir__mpi){0};
    int status = open_library(library, faults, mpi);
    return status != WEIR_OK ? status : fill_table(mpi, faults);
}
