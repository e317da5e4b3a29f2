/* SPDX-License-Identifier: MIT */
/**
 * Another program that does the same work, timed in turns with ours in one run. It is run by sh,
 * prints lines of JSON, and reads lines:
 *
 *   first   {"ready": [NAME, …]}: what it can do, with "about": TEXT, its versions, or
 *           {"error": TEXT} and ends; lines of anything else may come before, such as
 *           {"name": NAME, "skipped": REASON}, which are kept as absent
 *   NAME    one step: {"seconds": S}
 *   weights FILE   reads a safetensors file into all of its models: {"loss": L}, of a forward pass
 *           by these without dropout
 *   memory  {"bytes": B}: the most that it had of its GPU so far
 *
 * It is stopped (SIGSTOP) while ours are timed: its threads may spin between steps.
 */
#ifndef WEIR_BENCH_PEER_H
#define WEIR_BENCH_PEER_H

#include "harness.h"
#include "weir_net.h"

#include <sys/types.h>

enum { PEER_NAMES_MOST = 4 };

struct peer {
    pid_t process; /**< 0: none was started */
    FILE *to, *from;
    uint32_t count;
    char names[PEER_NAMES_MOST][48];
    char about[BENCH_NOTE_BYTES];
};

/** Zeroed but for what is set. */
struct peer_job {
    const char *topic;
    const char *script;    /**< in options.peers; options.peer stands for it */
    const char *arguments; /**< before --serve */
    const char *settings;  /**< of its environment, as sh reads them: "A=1 B=2"; NULL: none */
    const char *not_now;   /**< why it is not to be started without options.peer; NULL: it is */
};

/** Starts it and waits until it is ready, then stops it. Where it does not get ready, says why:
 * what is not there is not measured, and no failure of ours. Its count is 0 then. */
void peer_start(struct bench *bench, struct peer *peer, const struct peer_job *job);
void peer_resume(struct peer *peer);
void peer_pause(struct peer *peer);
/** Seconds of one step, while it is resumed. Dies if the peer does. */
double peer_step(struct peer *peer, const char *name);
/** Its loss by the net's weights. */
double peer_loss(struct peer *peer, const struct weir_net *net);
/** Sends it a line, resumed for that: the number `key` of its answer, NaN where it has none. */
double peer_ask(struct peer *peer, const char *line, const char *key);
/** Ends it; also where none was started. */
void peer_stop(struct peer *peer);

/** The data that the peers make: rows of one token more than the context, as inputs, and as targets
 * one further. */
void peer_fill_texts(int64_t *input, int64_t *target, int64_t rows, int64_t context,
                     uint32_t tokens);
/** Images of three planes, and their first planes, which can be learned, as targets (or NULL). */
void peer_fill_images(float *input, float *target, size_t rows, size_t pixels);

#endif
