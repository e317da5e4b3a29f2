/* SPDX-License-Identifier: MIT */
/**
 * A disk that loses power. The system calls of io/file.h are done for real and written down; then
 * the disk can be had as it may be after a cut behind any of them:
 *
 * - What was written and not flushed has reached the disk in any part: of the sectors that were
 *   written some hold the new bytes, the others what was there before, or zeros or anything where
 *   there was nothing; and the file has its old length, its new one, or one between.
 * - What was done in the folder (created, renamed, removed) and not flushed has reached the disk or
 *   not, each name for itself.
 * - What was flushed is there, unless the disk is told to lie.
 *
 * That is less than any real file system promises. Of one folder, the path itself and PATH.partial
 * are watched. One thread, one recording at a time.
 */
#ifndef WEIR_TESTS_POWER_CUT_H
#define WEIR_TESTS_POWER_CUT_H

#include "io/file.h"

/** What the disk says that it did, and did not. */
enum power_cut_lie { POWER_CUT_HONEST, POWER_CUT_NO_FLUSH, POWER_CUT_NO_FOLDER_FLUSH };

/** Begins to record what happens to `path`; what is there now is on the disk. */
void power_cut_begin(const char *path, enum power_cut_lie lie);
/** The table to work with. Static storage. */
const struct weir__io_calls *power_cut_calls(void);
/** Steps so far: the power may go after 0 … this many of them. A long write has many. */
uint32_t power_cut_steps(void);
/** Frees the recording. Accepts that there is none. */
void power_cut_end(void);

/** How much of what was not flushed has arrived. */
enum power_cut_part {
    POWER_CUT_NONE,
    POWER_CUT_ALL,
    POWER_CUT_PREFIX,  /**< up to some byte */
    POWER_CUT_SECTORS, /**< some sectors; the others hold zeros */
    POWER_CUT_JUNK,    /**< some sectors; the others hold anything */
    POWER_CUT_PARTS
};

/** A file after the cut. */
struct power_cut_file {
    bool exists;
    char *bytes;
    size_t count;
};

/** The path and its .partial after a cut behind `step` steps, drawn by test_random_u64. Both are
 * the caller's: power_cut_file_release. False and the test failed if there is no memory. */
bool power_cut_recover(uint32_t step, enum power_cut_part part, size_t sector_bytes,
                       struct power_cut_file *file, struct power_cut_file *partial);
void power_cut_file_release(struct power_cut_file *file);

#endif
