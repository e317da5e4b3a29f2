/* SPDX-License-Identifier: MIT */
/**
 * Words between the processes of a world, over TCP connections of their own: who is where, that it
 * lives, who is lost. They carry no data. Nothing here blocks. Internal; statuses as in weir.h.
 */
#ifndef WEIR_WORLD_WIRE_H
#define WEIR_WORLD_WIRE_H

#include "base/base.h"

enum { WEIR__DOOR_ADDRESSES = 12, WEIR__TOKEN_BYTES = 16 };

/** Where a process can be reached, in bytes that mean the same to all. IPv4 addresses are mapped
 * into IPv6. */
struct weir__door {
    unsigned char token[WEIR__TOKEN_BYTES]; /**< who connects to it shows that */
    uint64_t network; /**< the same: one network of one host, so that loopback reaches it */
    char host[64];
    uint32_t port; /**< 0: nobody can connect to it */
    uint32_t address_count;
    unsigned char addresses[WEIR__DOOR_ADDRESSES][16];
};

enum weir__word_kind {
    WEIR__WORD_HELLO = 0x57524231, /**< the first each way, with the reader's token */
    WEIR__WORD_BEAT,
    WEIR__WORD_LOST,  /**< `rank` is lost, as `how` says; the writer ends for it */
    WEIR__WORD_ABORT, /**< the writer ends all, with exit status `number` */
    WEIR__WORD_BYE    /**< the writer ends well */
};

struct weir__word {
    uint32_t kind, rank, how, number;
    unsigned char token[WEIR__TOKEN_BYTES];
};

/** A connection. Zeroed but for the descriptor. */
struct weir__wire {
    int descriptor; /**< -1: none */
    uint32_t read, unsent;
    unsigned char in[sizeof(struct weir__word)], out[sizeof(struct weir__word)];
};

/** Begins to listen on every address of this process, and says where that is. Where it cannot, the
 * port is 0 and *listener -1. */
void weir__door_make(const char *host, struct weir__door *door, int *listener);
/** Begins to connect to the address number `which`, of which there is one more than a door says
 * where loopback reaches it: that is the first then. -1: it cannot be begun. */
int weir__door_connect(const struct weir__door *own, const struct weir__door *to, uint32_t which);
uint32_t weir__door_ways(const struct weir__door *own, const struct weir__door *to);
static inline bool weir__door_is_near(const struct weir__door *own, const struct weir__door *to) {
    return own->network == to->network && own->network != 0;
}
/** The next one who connects; -1: nobody now. */
int weir__door_accept(int listener);

/** Sends a word, or nothing of it where the peer takes nothing now. False: the connection is over.
 */
bool weir__wire_send(struct weir__wire *wire, const struct weir__word *word);
enum weir__wire_news { WEIR__WIRE_NOTHING, WEIR__WIRE_NOTE, WEIR__WIRE_OVER };
/** What has come. */
enum weir__wire_news weir__wire_receive(struct weir__wire *wire, struct weir__word *word);
/** Whether the peer's host has all that was sent. */
bool weir__wire_is_through(const struct weir__wire *wire);
void weir__wire_close(struct weir__wire *wire);

#endif
