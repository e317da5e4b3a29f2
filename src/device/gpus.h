/* SPDX-License-Identifier: MIT */
/**
 * What CUDA there is on this machine, for `weir doctor`: GPUs and how they are linked, and the
 * libraries that run networks on them. Nothing is opened for use: no context is made.
 */
#ifndef WEIR_DEVICE_GPUS_H
#define WEIR_DEVICE_GPUS_H

#include "base/base.h"

#define WEIR__GPUS_MAX 64

struct weir__gpu {
    char name[96]; /**< the maker's */
    char pci[16];  /**< for weir__place_near */
    uint64_t memory_bytes;
    uint64_t reaches; /**< bit g: its copies and kernels may use GPU g's memory directly */
    int32_t capability_major, capability_minor;
    int32_t multiprocessors;
};

struct weir__gpus {
    uint32_t count;  /**< at most WEIR__GPUS_MAX; further ones are left out */
    int32_t version; /**< of CUDA that the driver is for: 1000 * major + 10 * minor */
    bool kernels;    /**< this build has CUDA kernels */
    bool fake;       /**< the driver is the tests', which brings kernels and libraries of its own */
    struct weir__gpu gpu[WEIR__GPUS_MAX];
};

/** Asks the driver. What weir__device_check refuses is refused with the same statuses and words,
 * but for a build without kernels; `gpus` is then all zero but for `kernels`. Any thread. */
int weir__gpus_survey(struct weir__gpus *gpus, struct weir_error *error);

/** The maker's name of the GPU that a device's name, "cuda:1", stands for; "unknown" of others. */
const char *weir__gpus_name(const struct weir__gpus *gpus, const char *device);

/** How a library is asked for its version. */
enum weir__gpu_library_asks {
    WEIR__ASKS_BY_VALUE,   /**< size_t version_symbol(void) */
    WEIR__ASKS_BY_POINTER, /**< int version_symbol(int *version), and 0 is good */
    WEIR__ASKS_BY_PARTS,   /**< int version_symbol(int *major, int *minor), and 0 is good */
};

enum { WEIR__GPU_LIBRARY_FILES_MAX = 4 };

/** A library that is found at run time, by the first of its names that serves. */
struct weir__gpu_library {
    const char *name; /**< "cuBLASLt" */
    /** Newest first, ended by NULL; tried in the driver's order (weir__gpu_library_order). */
    const char *files[WEIR__GPU_LIBRARY_FILES_MAX];
    const char *version_symbol; /**< a function that says the version */
    enum weir__gpu_library_asks asks;
    uint32_t least;          /**< 10000 * major + 100 * minor + patch, as they count */
    const char *environment; /**< a variable that names another file, which alone counts then; NULL:
                                  none */
    const char *package;     /**< what to install to have it: "the CUDA toolkit's libcublas, …" */
    const char *purpose;     /**< what is done with it; NULL: a GPU computes, and cannot without */
};

enum weir__gpu_library_state {
    WEIR__LIBRARY_FOUND,
    WEIR__LIBRARY_OLD,     /**< found, below `least` */
    WEIR__LIBRARY_BROKEN,  /**< opened, and does not say its version */
    WEIR__LIBRARY_MISSING, /**< not opened under any of its names */
};

struct weir__gpu_library_facts {
    enum weir__gpu_library_state state;
    char version[24]; /**< "13.0.2"; "" if it was not said */
    const char *file; /**< under which it was opened; NULL: missing. The environment's stays as long
                           as that is not changed */
};

/** The libraries, by index; NULL after the last. Static storage. */
const struct weir__gpu_library *weir__gpu_library_at(uint32_t index);
/** The library called so, "cuDNN"; it must be one of them. */
const struct weir__gpu_library *weir__gpu_library_named(const char *name);
/** Fills in the library's files as they are tried beside a driver for CUDA `driver` (as
 * weir__gpus.version; 0: unknown): those of a newer CUDA than the driver's come last, for they open
 * there and then make no handle. Libraries that CUDA's versions do not number stay in order, since
 * theirs are lower. */
void weir__gpu_library_order(const struct weir__gpu_library *library, int driver,
                             const char *files[WEIR__GPU_LIBRARY_FILES_MAX]);
/** Opens the library, by the first file in this machine's order that says a version not too old,
 * and closes it again; where none is, `facts` are of the first that opens. Any thread. */
void weir__gpu_library_find(const struct weir__gpu_library *library,
                            struct weir__gpu_library_facts *facts);

/** Whether a library that is found and new enough serves, such as by making a handle. */
struct weir__gpu_library_trial {
    /** A status, and its words in `error`; WEIR_ERR_OUT_OF_MEMORY ends the search, for it says
     * nothing about the library. `facts` have its version. */
    int (*serves)(void *context, void *opened, const struct weir__gpu_library_facts *facts,
                  struct weir_error *error);
    void *context;
};
/** Opens the library for use, by the first file in this machine's order that is new enough and
 * serves (`trial` NULL: every one does): `opened` is dlopen's, for dlclose, and it stays in the
 * process. WEIR_ERR_NOT_FOUND where all are missing; else what was wrong with the first one that
 * opened, WEIR_ERR_UNSUPPORTED where it is old or broken, or the trial's status. `error` (may be
 * NULL) says what to install. Any thread. */
int weir__gpu_library_open(const struct weir__gpu_library *library,
                           const struct weir__gpu_library_trial *trial, void **opened,
                           struct weir_error *error);

#endif
