/* SPDX-License-Identifier: MIT */
/**
 * Another program that does the same work, timed in turns with ours in one run. It is run by sh,
 * prints lines of JSON, and reads lines:
 *
 *   first   {"ready": [NAME, …]}: what it can do, with "about": TEXT, its versions, or
 *           {"error": TEXT} and ends; lines of anything else may come before, such as
 *           {"name": NAME, "skipped": REASON}
 *   NAME    one step: {"seconds": S}
 *   weights FILE   reads a safetensors file into all of its models: {"loss": L}, of a forward pass
 *           by these without dropout (as the next one, what bench/peers/..._gpu.py know)
 *   memory  {"bytes": B}: the most that it had of its GPU so far
 *
 * It is stopped (SIGSTOP) while ours are timed.
 */
#ifndef WEIR_BENCH_PEER_H
#define WEIR_BENCH_PEER_H

#include "harness.h"

#include <sys/types.h>

enum { PEER_NAMES_MOST = 4 };

struct peer {
    pid_t process; /**< 0: none was started */
    FILE *to, *from;
    uint32_t count;
    char names[PEER_NAMES_MOST][48];
    char about[BENCH_NOTE_BYTES];
};

/** Starts it and waits until it is ready, then stops it. False, and why, where it did not get
 * ready: nothing is left to do then. */
bool peer_start(struct peer *peer, const char *command, char why[256]);
void peer_resume(struct peer *peer);
void peer_pause(struct peer *peer);
/** Seconds of one step, while it is resumed. Dies if the peer does. */
double peer_step(struct peer *peer, const char *name);
/** Sends it a line, resumed for that: the number `key` of its answer, NaN where it has none. */
double peer_ask(struct peer *peer, const char *line, const char *key);
/** Ends it; also where none was started. */
void peer_stop(struct peer *peer);

#endif
