/* SPDX-License-Identifier: MIT */
/* How ranks come together: of two the higher connects, to one address after the other. */
#include "world/beats_inside.h"

#include <errno.h>
#include <string.h>

/* An address that does not answer may be one of another network. */
enum { TRY_MS = 250, TRY_MOST_MS = 2000, CONNECT_MS = 10000 };

static struct weir__word hello_to(const struct weir__beats *beats, const struct weir__peer *peer) {
    struct weir__word word = {.kind = WEIR__WORD_HELLO, .rank = beats->rank, .number = peer->tries};
    memcpy(word.token, peer->door.token, sizeof word.token);
    return word;
}

static bool is_hello(const struct weir__beats *beats, const struct weir__word *word) {
    return word->kind == WEIR__WORD_HELLO && word->rank < beats->rank_count &&
           memcmp(word->token, beats->door.token, sizeof word->token) == 0;
}

/* One address after the other, with more patience each time round. A near one that is gone refuses
 * on loopback, which no firewall does. */
static void try_next(struct weir__beats *beats, struct weir__peer *peer, uint64_t now) {
    uint32_t ways = weir__door_ways(&beats->door, &peer->door);
    bool near = weir__door_is_near(&beats->door, &peer->door);
    bool on_loopback = near && peer->tries % ways == 0;
    weir__wire_close(&peer->wire);
    peer->greeted = false;
    peer->tried = now;
    peer->wire.descriptor = weir__door_connect(&beats->door, &peer->door, peer->tries++ % ways);
    peer->refused = peer->wire.descriptor < 0 && on_loopback && errno == ECONNREFUSED;
}

static uint64_t patience(const struct weir__beats *beats, const struct weir__peer *peer) {
    uint32_t ways = weir__door_ways(&beats->door, &peer->door);
    uint64_t ns = TRY_MS * BEATS_MS, most = TRY_MOST_MS * BEATS_MS;
    assert(ways > 0);
    for (uint32_t round = peer->tries / ways; round > 0 && ns < most; round--) ns *= 2;
    return ns < most ? ns : most;
}

/* A near one that does not come is stopped; one that is far may be behind a firewall. */
static void connect_to(struct weir__beats *beats, struct weir__peer *peer, uint64_t now) {
    bool ours = peer < &beats->peers[beats->rank], open = peer->door.port != 0;
    bool near = weir__door_is_near(&beats->door, &peer->door);
    bool late = now - beats->met > CONNECT_MS * BEATS_MS;
    if (peer->refused) {
        weir__beats_lose_peer(beats, peer, WEIR_LOST_DEAD, 0);
    } else if (late && near && open) {
        weir__beats_lose_peer(beats, peer, WEIR_LOST_SILENT, now - beats->met);
    } else if (late || (ours ? !open : beats->door.port == 0)) {
        weir__wire_close(&peer->wire);
        weir__beats_set_state(beats, peer, UNREACHED);
    } else if (ours && (peer->tried == 0 || now - peer->tried >= patience(beats, peer))) {
        try_next(beats, peer, now);
    }
}

void weir__beats_connect_all(struct weir__beats *beats, uint64_t now) {
    for (uint32_t r = 0; r < beats->rank_count; r++)
        if (r != beats->rank && beats->peers[r].state == APART)
            connect_to(beats, &beats->peers[r], now);
}

/* Who connects says hello, is answered with hello, and sends its first beat: then both know. A
 * connection that ends before is tried again. */
void weir__beats_go_on_connecting(struct weir__beats *beats, struct weir__peer *peer) {
    static const struct weir__word beat = {.kind = WEIR__WORD_BEAT};
    struct weir__word word = hello_to(beats, peer);
    bool ours = peer < &beats->peers[beats->rank];
    if (!peer->greeted) peer->greeted = weir__wire_send(&peer->wire, &word);
    enum weir__wire_news news =
        peer->greeted ? weir__wire_receive(&peer->wire, &word) : WEIR__WIRE_OVER;
    if (news == WEIR__WIRE_NOTHING) return;
    bool good = news == WEIR__WIRE_NOTE;
    if (good && ours) good = is_hello(beats, &word) && &beats->peers[word.rank] == peer;
    if (good && ours) good = weir__wire_send(&peer->wire, &beat);
    if (good)
        weir__beats_set_state(beats, peer, JOINED);
    else
        weir__wire_close(&peer->wire);
}

static void answer(struct weir__beats *beats, struct weir__guest *guest,
                   const struct weir__word *word) {
    if (!is_hello(beats, word) || word->rank <= beats->rank) goto refuse;
    struct weir__peer *peer = &beats->peers[word->rank];
    if (peer->state != APART || word->number < peer->tries) goto refuse; /* given up since */
    peer->tries = word->number;
    const struct weir__word hello = hello_to(beats, peer);
    if (!weir__wire_send(&guest->wire, &hello)) goto refuse;
    weir__wire_close(&peer->wire);
    peer->wire = guest->wire;
    peer->greeted = true;
    guest->wire = (struct weir__wire){.descriptor = -1};
    return;
refuse:
    weir__wire_close(&guest->wire);
}

void weir__beats_hear_guests(struct weir__beats *beats, uint64_t now) {
    for (uint32_t i = 0; i < BEATS_GUESTS; i++) {
        struct weir__guest *guest = &beats->guests[i];
        struct weir__word word;
        if (guest->wire.descriptor < 0) continue;
        enum weir__wire_news news = weir__wire_receive(&guest->wire, &word);
        if (news == WEIR__WIRE_NOTE)
            answer(beats, guest, &word);
        else if (news == WEIR__WIRE_OVER || now - guest->since > CONNECT_MS * BEATS_MS)
            weir__wire_close(&guest->wire);
    }
}

/* Who finds no room waits in the listener's queue. */
void weir__beats_take_guests(struct weir__beats *beats, uint64_t now) {
    for (uint32_t i = 0; i < BEATS_GUESTS && beats->listener >= 0; i++) {
        struct weir__guest *guest = &beats->guests[i];
        if (guest->wire.descriptor >= 0) continue;
        int descriptor = weir__door_accept(beats->listener);
        if (descriptor < 0) return;
        *guest = (struct weir__guest){.wire = {.descriptor = descriptor}, .since = now};
    }
}
