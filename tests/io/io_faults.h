/* SPDX-License-Identifier: MIT */
/**
 * System calls that misbehave on request: the table of io/file.h with the k-th call failing, doing
 * only a part, or being interrupted. All else is done for real, but nothing is flushed to the disk,
 * which would only take time. One thread at a time.
 */
#ifndef WEIR_TESTS_IO_FAULTS_H
#define WEIR_TESTS_IO_FAULTS_H

#include "io/file.h"

enum io_fault {
    IO_FAULT_FAIL,     /**< -1 and the given errno; a close still closes */
    IO_FAULT_FULL,     /**< writes do nothing and say so; other calls are as always */
    IO_FAULT_SHORT,    /**< reads and writes do one byte; other calls are as always */
    IO_FAULT_INTERRUPT /**< open, read, write and fsync give EINTR; other calls are as always */
};

/** The k-th call from now on (1 is the next) misbehaves, and with `persistent` all later ones; 0
 * turns this off. */
void io_faults_at(uint64_t k, bool persistent, enum io_fault fault, int number);
/** Whether a call misbehaved since then: loop over k until not. */
bool io_faults_fired(void);
/** From now on, until the next io_faults_at, the disk has room for so many bytes: writes do what
 * fits, then fail with ENOSPC. */
void io_faults_room(size_t bytes);
/** The table. */
const struct weir__io_calls *io_faults_calls(void);
/** Open descriptors of this process. */
int io_open_descriptors(void);
/** Writes `bytes` of `data` to DIRECTORY/NAME; the path into `path`. Fails the test if it cannot.
 * */
void io_make_file(const char *directory, const char *name, const void *data, size_t bytes,
                  char path[512]);
/** Whether the file holds exactly these bytes. */
bool io_file_is(const char *path, const void *data, size_t bytes);

#endif
