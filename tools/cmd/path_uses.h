/* SPDX-License-Identifier: MIT */
/**
 * Files that a command would read and write, before it does: an output that is another output, or
 * an input, is refused, however its path is written (`./a`, a symbolic link), and so is one that
 * the next run would read as data. Outputs replace files as a whole, so an input that is only
 * linked to the same bytes is safe.
 */
#ifndef WEIR_TOOLS_PATH_USES_H
#define WEIR_TOOLS_PATH_USES_H

#include "cli/model_options.h"
#include "cli/pipe_options.h"

#define PATH_USES_MAX 600

enum path_role {
    PATH_INPUT, /**< a file, or a folder with its files */
    PATH_TEXT, /**< written: lines for people or programs, which a folder's reader takes for text */
    PATH_BINARY /**< written: numbers, which it does not */
};

struct path_use {
    const char *option; /**< "save" */
    const char *path;   /**< NULL: none; "-": stdout, or stdin */
    enum path_role role;
    const char *may_be; /**< of an input: the option of the outputs that may replace it, or NULL */
    bool steps;         /**< its path ends in STEP, which stands for digits */
};

struct path_uses {
    struct path_use list[PATH_USES_MAX];
    uint32_t count;
};

/** Adds a use; those beyond PATH_USES_MAX are left out. Texts are borrowed. */
void path_uses_add(struct path_uses *uses, struct path_use use);
/** Adds the files that these options read: a model, a table, a profile. Either may be NULL. */
void path_uses_add_options(struct path_uses *uses, const struct model_options *model,
                           const struct pipe_options *pipe);
/** A fault for each output that coincides with another use, or is stdout as another is. Devices and
 * pipes are nobody's. */
void path_uses_check(const struct path_uses *uses, struct weir_faults *faults);
/** All of that for a command that has at most eight uses of its own. */
void path_uses_check_own(const struct path_use *own, uint32_t count,
                         const struct model_options *model, const struct pipe_options *pipe,
                         struct weir_faults *faults);

#endif
