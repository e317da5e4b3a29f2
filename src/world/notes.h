/* SPDX-License-Identifier: MIT */
/**
 * Notes between the processes of a world, over TCP connections of their own: who is where, that it
 * lives, who is lost. They carry no data. Nothing here blocks. Internal; statuses as in weir.h.
 */
#ifndef WEIR_WORLD_NOTES_H
#define WEIR_WORLD_NOTES_H

#include "base/base.h"

enum { WEIR__PLACE_ADDRESSES = 12, WEIR__TOKEN_BYTES = 16 };

/** Where a process can be reached, in bytes that mean the same to all. IPv4 addresses are mapped
 * into IPv6. */
struct weir__place {
    unsigned char token[WEIR__TOKEN_BYTES]; /**< who connects to it shows that */
    uint64_t network; /**< the same: one network of one host, so that loopback reaches it */
    char host[64];
    uint32_t port; /**< 0: nobody can connect to it */
    uint32_t address_count;
    unsigned char addresses[WEIR__PLACE_ADDRESSES][16];
};

enum weir__note_kind {
    WEIR__NOTE_HELLO = 0x57524231, /**< the first each way, with the reader's token */
    WEIR__NOTE_BEAT,
    WEIR__NOTE_LOST,  /**< `rank` is lost, as `how` says; the writer ends for it */
    WEIR__NOTE_ABORT, /**< the writer ends all, with exit status `number` */
    WEIR__NOTE_BYE    /**< the writer ends well */
};

struct weir__note {
    uint32_t kind, rank, how, number;
    unsigned char token[WEIR__TOKEN_BYTES];
};

/** A connection. Zeroed but for the descriptor. */
struct weir__link {
    int descriptor; /**< -1: none */
    uint32_t read, unsent;
    unsigned char in[sizeof(struct weir__note)], out[sizeof(struct weir__note)];
};

/** Begins to listen on every address of this process, and says where that is. Where it cannot, the
 * port is 0 and *listener -1. */
void weir__place_make(const char *host, struct weir__place *place, int *listener);
/** Begins to connect to the address number `which`, of which there is one more than a place says
 * where loopback reaches it: that is the first then. -1: it cannot be begun. */
int weir__place_connect(const struct weir__place *own, const struct weir__place *to,
                        uint32_t which);
uint32_t weir__place_ways(const struct weir__place *own, const struct weir__place *to);
static inline bool weir__place_is_near(const struct weir__place *own,
                                       const struct weir__place *to) {
    return own->network == to->network && own->network != 0;
}
/** The next one who connects; -1: nobody now. */
int weir__place_accept(int listener);

/** Sends a note, or nothing of it where the peer takes nothing now. False: the connection is over.
 */
bool weir__link_send(struct weir__link *link, const struct weir__note *note);
enum weir__link_news { WEIR__LINK_NOTHING, WEIR__LINK_NOTE, WEIR__LINK_OVER };
/** What has come. */
enum weir__link_news weir__link_receive(struct weir__link *link, struct weir__note *note);
/** Whether the peer's host has all that was sent. */
bool weir__link_is_through(const struct weir__link *link);
void weir__link_close(struct weir__link *link);

#endif
