/* SPDX-License-Identifier: MIT */
/* One thread, one poll over a connection to every other rank. Of two ranks the higher connects. All
 * of a peer is the thread's own, but for what `lock` protects. */
#include "world/beats.h"

#include "world/hold.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* How long lost ranks are gathered before they are told: with a host all of its ranks go. */
enum { GATHER_MS = 150 };
/* An address that does not answer may be one of another network. */
enum { TRY_MS = 250, TRY_MOST_MS = 2000, CONNECT_MS = 10000 };
enum { JOIN_LEAST_MS = 10000, BEAT_LEAST_MS = 10, BEAT_MOST_MS = 1000, BEATS_PER_TIMEOUT = 10 };
enum { GUESTS = 64, FAREWELL_MS = 500, TOLD_MS = 200 };
#define MS UINT64_C(1000000)

enum state {
    APART,    /* not connected yet, nor given up */
    JOINED,   /* words go both ways */
    LEFT,     /* has said goodbye, or ends because another is lost */
    LOST,     /* dead or silent */
    UNREACHED /* by no address: only MPI tells of it */
};

struct peer {
    struct weir__door door;
    enum state state;
    struct weir__wire wire;
    bool leaves;    /* it has told of a lost one: then it ends too */
    bool greeted;   /* apart: our hello is on its way */
    bool refused;   /* a near one whose door is closed: it is dead */
    uint32_t tries; /* of its ways, over and over */
    uint64_t heard, tried;
};

/* Somebody who connected and has not said who that is. */
struct guest {
    struct weir__wire wire;
    uint64_t since;
};

enum wish { WISH_NOTHING, WISH_ABORT, WISH_END };

struct weir__beats {
    struct weir__beats_options options;
    struct weir__door door;
    pthread_t thread;
    int listener, wake; /* wake: an eventfd; written by anybody, read by the thread */
    uint64_t timeout, interval, limit;
    struct guest guests[GUESTS];
    uint32_t rank, rank_count; /* rank_count 0: nobody is known yet */
    struct peer *peers;        /* [rank_count]; its own is of no use */
    struct pollfd *polled;     /* [2 + GUESTS + rank_count] */
    uint64_t begun, met, turned, beaten, lost_at;
    bool told;
    /* `lock`: */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct peer *given; /* to the thread, which takes them with their numbers */
    struct pollfd *given_polled;
    uint32_t given_rank, given_count;
    uint32_t apart; /* peers that are neither connected nor given up */
    bool wish_done;
    enum wish wish;
    int exit_status;
    struct weir_lost lost;
    _Atomic bool has_lost; /* set under `lock`, once `lost` is there */
    _Atomic bool settled;
};

/* ---- what anybody may ask ---- */

const struct weir__door *weir__beats_door(const struct weir__beats *beats) {
    return &beats->door;
}

bool weir__beats_has_lost(const struct weir__beats *beats) {
    return beats != NULL && atomic_load_explicit(&beats->has_lost, memory_order_acquire);
}

static struct timespec after_ms(uint32_t milliseconds) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    uint64_t ns = (uint64_t)at.tv_nsec + milliseconds * MS;
    at.tv_sec += (time_t)(ns / (1000 * MS));
    at.tv_nsec = (long)(ns % (1000 * MS));
    return at;
}

bool weir__beats_wait_lost(struct weir__beats *beats, uint32_t milliseconds) {
    if (beats == NULL) return false;
    struct timespec until = after_ms(milliseconds);
    pthread_mutex_lock(&beats->lock);
    while (!beats->has_lost &&
           pthread_cond_timedwait(&beats->changed, &beats->lock, &until) != ETIMEDOUT) {}
    bool lost = beats->has_lost;
    pthread_mutex_unlock(&beats->lock);
    return lost;
}

void weir__beats_tell(struct weir__beats *beats, char *text, size_t capacity) {
    pthread_mutex_lock(&beats->lock);
    assert(beats->has_lost && capacity > 0);
    snprintf(text, capacity, "%s", beats->lost.text);
    pthread_mutex_unlock(&beats->lock);
}

static void wake(struct weir__beats *beats) {
    const uint64_t one = 1;
    ssize_t written = write(beats->wake, &one, sizeof one);
    assert(written == sizeof one);
    (void)written;
}

/* ---- who is lost ---- */

static void describe(struct weir__beats *beats, struct weir_lost *lost) {
    char who[128];
    if (lost->rank == beats->rank && lost->how != WEIR_LOST_ABSENT)
        snprintf(who, sizeof who, "this process, rank %u on %s,", lost->rank, lost->host);
    else
        snprintf(who, sizeof who, "rank %u on %s", lost->rank, lost->host);
    const char *more = lost->count > 1 ? " (not the only one)" : "";
    switch (lost->how) {
    case WEIR_LOST_DEAD:
        snprintf(lost->text, sizeof lost->text, "%s is lost%s: its process has ended", who, more);
        break;
    case WEIR_LOST_SILENT:
        snprintf(lost->text, sizeof lost->text,
                 "%s is lost%s: nothing was heard of it for %.1f s (it is stopped, or its host is "
                 "down or cut off)",
                 who, more, lost->seconds);
        break;
    case WEIR_LOST_ABORTED:
        snprintf(lost->text, sizeof lost->text, "%s has ended the run (exit %d)", who,
                 lost->exit_status);
        break;
    case WEIR_LOST_ABSENT:
        snprintf(lost->text, sizeof lost->text,
                 "a rank is lost: %s before all had come together, %.1f s after this one's start",
                 weir__hold_has_heard() ? "a process has failed" : "it did not come",
                 lost->seconds);
        break;
    }
}

/* The lowest rank that lives, as far as is known here, and has not been given up itself. */
static bool has_the_word(const struct weir__beats *beats) {
    const struct weir_lost *lost = &beats->lost;
    if (lost->how == WEIR_LOST_ABORTED) return false;
    if (lost->how == WEIR_LOST_ABSENT) return true;
    for (uint32_t r = 0; r < beats->rank; r++)
        if (beats->peers[r].state != LOST) return false;
    return lost->rank != beats->rank;
}

static void send_to_all(struct weir__beats *beats, const struct weir__word *word) {
    for (uint32_t r = 0; r < beats->rank_count; r++)
        if (r != beats->rank && beats->peers[r].state == JOINED)
            (void)weir__wire_send(&beats->peers[r].wire, word);
}

static struct weir__word word_of_loss(uint32_t rank, enum weir_lost_how how, double seconds) {
    return (struct weir__word){.kind = WEIR__WORD_LOST,
                               .rank = rank,
                               .how = how,
                               .number = (uint32_t)(seconds * 1000)};
}

/* The first that is missed is the one that all name; but who ends all may be heard only after those
 * that it has ended. */
static void lose(struct weir__beats *beats, struct weir_lost lost) {
    bool first = !beats->has_lost;
    bool replaces = lost.how == WEIR_LOST_ABORTED && beats->lost.how != WEIR_LOST_ABORTED;
    if (beats->told || (!first && !replaces)) return;
    if (first) beats->lost_at = weir__now_ns();
    pthread_mutex_lock(&beats->lock);
    lost.size = sizeof lost;
    const char *host = lost.rank < beats->rank_count && lost.rank != beats->rank
                           ? beats->peers[lost.rank].door.host
                           : beats->door.host;
    snprintf(lost.host, sizeof lost.host, "%s", host);
    lost.count = 1;
    describe(beats, &lost);
    beats->lost = lost;
    atomic_store_explicit(&beats->has_lost, true, memory_order_release);
    pthread_cond_broadcast(&beats->changed);
    pthread_mutex_unlock(&beats->lock);
    const struct weir__word word = word_of_loss(lost.rank, lost.how, lost.seconds);
    if (lost.how != WEIR_LOST_ABORTED && lost.how != WEIR_LOST_ABSENT) send_to_all(beats, &word);
}

/* Lets everybody have heard of it first, and counts who else is lost. */
static void tell_loss(struct weir__beats *beats) {
    if (!beats->has_lost || beats->told) return;
    if (weir__now_ns() - beats->lost_at < GATHER_MS * MS) return;
    beats->told = true;
    pthread_mutex_lock(&beats->lock);
    uint32_t count = 0;
    for (uint32_t r = 0; beats->peers != NULL && r < beats->rank_count; r++)
        count += beats->peers[r].state == LOST;
    if (count > 0) beats->lost.count = count;
    beats->lost.speaks = has_the_word(beats);
    describe(beats, &beats->lost);
    struct weir_lost lost = beats->lost;
    pthread_mutex_unlock(&beats->lock);
    if (beats->options.lost != NULL) beats->options.lost(beats->options.context, &lost);
}

static void set_state(struct weir__beats *beats, struct peer *peer, enum state state) {
    if (state == JOINED) peer->heard = weir__now_ns();
    if (state == LOST || state == LEFT) weir__wire_close(&peer->wire);
    pthread_mutex_lock(&beats->lock);
    beats->apart -= peer->state == APART;
    peer->state = state;
    pthread_cond_broadcast(&beats->changed);
    pthread_mutex_unlock(&beats->lock);
}

/* A rank that was stopped finds there what became of it when it goes on. */
static void give_up(struct weir__beats *beats, struct peer *peer, enum weir_lost_how how,
                    double seconds) {
    const struct weir__word word =
        word_of_loss((uint32_t)(peer - beats->peers), how, seconds);
    if (peer->state == JOINED) (void)weir__wire_send(&peer->wire, &word);
    set_state(beats, peer, LOST);
}

static void lose_peer(struct weir__beats *beats, struct peer *peer, enum weir_lost_how how,
                      uint64_t silent_ns) {
    if (peer->leaves) {
        set_state(beats, peer, LEFT);
        return;
    }
    give_up(beats, peer, how, (double)silent_ns * 1e-9);
    lose(beats, (struct weir_lost){.rank = (uint32_t)(peer - beats->peers),
                                   .how = how,
                                   .seconds = (double)silent_ns * 1e-9});
}

/* ---- connecting ---- */

static struct weir__word hello_to(const struct weir__beats *beats, const struct peer *peer) {
    struct weir__word word = {.kind = WEIR__WORD_HELLO, .rank = beats->rank};
    memcpy(word.token, peer->door.token, sizeof word.token);
    return word;
}

static bool is_hello(const struct weir__beats *beats, const struct weir__word *word) {
    return word->kind == WEIR__WORD_HELLO && word->rank < beats->rank_count &&
           memcmp(word->token, beats->door.token, sizeof word->token) == 0;
}

/* One address after the other, with more patience each time round. A near one that is gone refuses
 * on loopback, which no firewall does. */
static void try_next(struct weir__beats *beats, struct peer *peer, uint64_t now) {
    uint32_t ways = weir__door_ways(&beats->door, &peer->door);
    bool near = weir__door_is_near(&beats->door, &peer->door);
    bool on_loopback = near && peer->tries % ways == 0;
    weir__wire_close(&peer->wire);
    peer->greeted = false;
    peer->tried = now;
    peer->wire.descriptor = weir__door_connect(&beats->door, &peer->door, peer->tries++ % ways);
    peer->refused = peer->wire.descriptor < 0 && on_loopback && errno == ECONNREFUSED;
}

static uint64_t patience(const struct weir__beats *beats, const struct peer *peer) {
    uint32_t ways = weir__door_ways(&beats->door, &peer->door);
    uint64_t ns = TRY_MS * MS, most = TRY_MOST_MS * MS;
    assert(ways > 0);
    for (uint32_t round = peer->tries / ways; round > 0 && ns < most; round--) ns *= 2;
    return ns < most ? ns : most;
}

/* A near one that does not come is stopped; one that is far may be behind a firewall. */
static void connect_to(struct weir__beats *beats, struct peer *peer, uint64_t now) {
    bool ours = peer < &beats->peers[beats->rank], open = peer->door.port != 0;
    bool near = weir__door_is_near(&beats->door, &peer->door);
    bool late = now - beats->met > CONNECT_MS * MS;
    if (peer->refused) {
        lose_peer(beats, peer, WEIR_LOST_DEAD, 0);
    } else if (late && near && open) {
        lose_peer(beats, peer, WEIR_LOST_SILENT, now - beats->met);
    } else if (late || (ours ? !open : beats->door.port == 0)) {
        weir__wire_close(&peer->wire);
        set_state(beats, peer, UNREACHED);
    } else if (ours && (peer->tried == 0 || now - peer->tried >= patience(beats, peer))) {
        try_next(beats, peer, now);
    }
}

static void connect_all(struct weir__beats *beats, uint64_t now) {
    for (uint32_t r = 0; r < beats->rank_count; r++)
        if (r != beats->rank && beats->peers[r].state == APART)
            connect_to(beats, &beats->peers[r], now);
}

/* Who connects says hello, is answered with hello, and sends its first beat: then both know. A
 * connection that ends before is tried again. */
static void go_on_connecting(struct weir__beats *beats, struct peer *peer) {
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
        set_state(beats, peer, JOINED);
    else
        weir__wire_close(&peer->wire);
}

static void answer(struct weir__beats *beats, struct guest *guest, const struct weir__word *word) {
    if (!is_hello(beats, word) || word->rank <= beats->rank) goto refuse;
    struct peer *peer = &beats->peers[word->rank];
    if (peer->state != APART) goto refuse;
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

static void hear_guests(struct weir__beats *beats, uint64_t now) {
    for (uint32_t i = 0; i < GUESTS; i++) {
        struct guest *guest = &beats->guests[i];
        struct weir__word word;
        if (guest->wire.descriptor < 0) continue;
        enum weir__wire_news news = weir__wire_receive(&guest->wire, &word);
        if (news == WEIR__WIRE_NOTE)
            answer(beats, guest, &word);
        else if (news == WEIR__WIRE_OVER || now - guest->since > CONNECT_MS * MS)
            weir__wire_close(&guest->wire);
    }
}

/* Who finds no room waits in the listener's queue. */
static void take_guests(struct weir__beats *beats, uint64_t now) {
    for (uint32_t i = 0; i < GUESTS && beats->listener >= 0; i++) {
        struct guest *guest = &beats->guests[i];
        if (guest->wire.descriptor >= 0) continue;
        int descriptor = weir__door_accept(beats->listener);
        if (descriptor < 0) return;
        *guest = (struct guest){.wire = {.descriptor = descriptor}, .since = now};
    }
}

/* ---- words ---- */

static void read_word(struct weir__beats *beats, struct peer *peer, const struct weir__word *word) {
    uint32_t from = (uint32_t)(peer - beats->peers);
    switch (word->kind) {
    case WEIR__WORD_LOST:
        peer->leaves = true;
        if (word->rank >= beats->rank_count || word->how > WEIR_LOST_SILENT) return;
        if (word->rank != beats->rank && beats->peers[word->rank].state == JOINED)
            give_up(beats, &beats->peers[word->rank], (enum weir_lost_how)word->how,
                    word->number * 1e-3);
        lose(beats, (struct weir_lost){.rank = word->rank,
                                       .how = (enum weir_lost_how)word->how,
                                       .seconds = word->number * 1e-3});
        return;
    case WEIR__WORD_ABORT:
        peer->leaves = true;
        lose(beats, (struct weir_lost){
                        .rank = from, .how = WEIR_LOST_ABORTED, .exit_status = (int)word->number});
        return;
    case WEIR__WORD_BYE: set_state(beats, peer, LEFT); return;
    default: return; /* a beat */
    }
}

static void hear(struct weir__beats *beats, struct peer *peer, uint64_t now) {
    struct weir__word word;
    while (peer->state == JOINED) {
        enum weir__wire_news news = weir__wire_receive(&peer->wire, &word);
        if (news == WEIR__WIRE_OVER) lose_peer(beats, peer, WEIR_LOST_DEAD, 0);
        if (news != WEIR__WIRE_NOTE) return;
        peer->heard = now;
        read_word(beats, peer, &word);
    }
}

static void hear_all(struct weir__beats *beats, uint64_t now) {
    for (uint32_t r = 0; r < beats->rank_count; r++) {
        struct peer *peer = &beats->peers[r];
        if (r != beats->rank && peer->state == APART && peer->wire.descriptor >= 0)
            go_on_connecting(beats, peer);
        if (r != beats->rank && peer->state == JOINED) hear(beats, peer, now);
    }
}

/* Time in which this thread did not run says nothing about others. */
static void judge(struct weir__beats *beats, uint64_t now) {
    uint64_t gap = now - beats->turned;
    uint64_t forgiven = gap > 3 * beats->interval ? gap : 0;
    beats->turned = now;
    for (uint32_t r = 0; r < beats->rank_count; r++) {
        struct peer *peer = &beats->peers[r];
        if (r == beats->rank || peer->state != JOINED || peer->leaves) continue;
        peer->heard += forgiven;
        if (peer->heard > now) peer->heard = now;
        if (now - peer->heard > beats->timeout)
            lose_peer(beats, peer, WEIR_LOST_SILENT, now - peer->heard);
    }
}

static void beat(struct weir__beats *beats, uint64_t now) {
    const struct weir__word word = {.kind = WEIR__WORD_BEAT};
    if (now - beats->beaten < beats->interval) return;
    beats->beaten = now;
    send_to_all(beats, &word);
}

/* ---- the thread ---- */

static struct pollfd watch(int descriptor, bool connects) {
    return (struct pollfd){.fd = descriptor, .events = connects ? POLLOUT : POLLIN};
}

static void wait_for_news(struct weir__beats *beats) {
    struct pollfd few[2 + GUESTS], *polled = beats->polled != NULL ? beats->polled : few;
    uint32_t count = 0;
    bool apart = beats->met != 0 && beats->apart > 0;
    polled[count++] = watch(beats->wake, false);
    if (beats->listener >= 0 && beats->rank_count > 0)
        polled[count++] = watch(beats->listener, false);
    for (uint32_t i = 0; i < GUESTS; i++)
        if (beats->guests[i].wire.descriptor >= 0)
            polled[count++] = watch(beats->guests[i].wire.descriptor, false);
    for (uint32_t r = 0; r < beats->rank_count; r++) {
        const struct peer *peer = &beats->peers[r];
        if (r != beats->rank && peer->wire.descriptor >= 0)
            polled[count++] = watch(peer->wire.descriptor, peer->state == APART && !peer->greeted);
    }
    uint64_t ms = beats->interval / MS;
    if (apart && ms > 50) ms = 50;
    if (beats->has_lost && !beats->told && ms > 20) ms = 20;
    (void)poll(polled, count, (int)ms);
    uint64_t woken;
    if (polled[0].revents != 0 && read(beats->wake, &woken, sizeof woken) < 0) return;
}

/* What the run's threads ask for, once; true: to end. */
static bool grant_wish(struct weir__beats *beats) {
    pthread_mutex_lock(&beats->lock);
    enum wish wish = beats->wish_done ? WISH_NOTHING : beats->wish;
    struct weir__word word = {.kind = WEIR__WORD_ABORT, .number = (uint32_t)beats->exit_status};
    pthread_mutex_unlock(&beats->lock);
    if (wish == WISH_NOTHING) return false;
    if (wish == WISH_END) word.kind = WEIR__WORD_BYE;
    send_to_all(beats, &word);
    pthread_mutex_lock(&beats->lock);
    beats->wish_done = true;
    pthread_cond_broadcast(&beats->changed);
    pthread_mutex_unlock(&beats->lock);
    return wish == WISH_END;
}

static void take_given(struct weir__beats *beats, uint64_t now) {
    if (beats->met != 0) return;
    pthread_mutex_lock(&beats->lock);
    beats->peers = beats->given;
    beats->polled = beats->given_polled;
    beats->rank = beats->given_rank;
    beats->rank_count = beats->given_count;
    pthread_mutex_unlock(&beats->lock);
    if (beats->rank_count > 0) beats->met = now;
}

/* Until all have met nobody knows who is missing. */
static void check_limit(struct weir__beats *beats, uint64_t now) {
    if (atomic_load(&beats->settled)) return;
    if (now - beats->begun < beats->limit && !weir__hold_has_heard()) return;
    lose(beats, (struct weir_lost){.rank = beats->rank,
                                   .how = WEIR_LOST_ABSENT,
                                   .seconds = (double)(now - beats->begun) * 1e-9});
}

static void *work(void *context) {
    struct weir__beats *beats = context;
    beats->begun = beats->turned = weir__now_ns();
    while (!grant_wish(beats)) {
        wait_for_news(beats);
        uint64_t now = weir__now_ns();
        take_given(beats, now);
        check_limit(beats, now);
        if (beats->rank_count > 0) {
            take_guests(beats, now);
            hear_guests(beats, now);
            hear_all(beats, now);
            connect_all(beats, now);
            judge(beats, now);
            beat(beats, now);
        }
        tell_loss(beats);
    }
    return NULL;
}

/* ---- beginning ---- */

/* Signals are for the run's threads. */
static int start_thread(struct weir__beats *beats) {
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return WEIR_ERR_SYSTEM;
    int failed = pthread_create(&beats->thread, NULL, work, beats);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed == 0 ? WEIR_OK : WEIR_ERR_SYSTEM;
}

static void set_times(struct weir__beats *beats, double seconds) {
    double ms = seconds * 1000, interval = ms / BEATS_PER_TIMEOUT;
    assert(ms > 0);
    if (interval < BEAT_LEAST_MS) interval = BEAT_LEAST_MS;
    if (interval > BEAT_MOST_MS) interval = BEAT_MOST_MS;
    beats->timeout = (uint64_t)(ms * (double)MS);
    beats->interval = (uint64_t)interval * MS;
    beats->limit = WEIR_JOIN_TIMEOUTS * beats->timeout;
    if (beats->limit < JOIN_LEAST_MS * MS) beats->limit = JOIN_LEAST_MS * MS;
}

static int init_waiting(struct weir__beats *beats) {
    pthread_condattr_t monotonic;
    if (pthread_mutex_init(&beats->lock, NULL) != 0) return WEIR_ERR_SYSTEM;
    int failed = pthread_condattr_init(&monotonic);
    if (failed != 0) goto fail_lock;
    failed = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    if (failed == 0) failed = pthread_cond_init(&beats->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (failed == 0) return WEIR_OK;
fail_lock:
    pthread_mutex_destroy(&beats->lock);
    return WEIR_ERR_SYSTEM;
}

int weir__beats_begin(const struct weir__beats_options *options, struct weir__beats **out) {
    struct weir__beats *beats = weir__acquire(options->allocator, 1, sizeof *beats);
    if (beats == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    beats->options = *options;
    for (uint32_t i = 0; i < GUESTS; i++) beats->guests[i].wire.descriptor = -1;
    set_times(beats, options->peer_timeout);
    int status = WEIR_ERR_SYSTEM;
    if ((beats->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) goto fail_memory;
    if ((status = init_waiting(beats)) != WEIR_OK) goto fail_wake;
    weir__door_make(options->host, &beats->door, &beats->listener);
    if ((status = start_thread(beats)) != WEIR_OK) goto fail_waiting;
    *out = beats;
    return WEIR_OK;

fail_waiting:
    if (beats->listener >= 0) close(beats->listener);
    pthread_cond_destroy(&beats->changed);
    pthread_mutex_destroy(&beats->lock);
fail_wake:
    close(beats->wake);
fail_memory:
    weir__release(options->allocator, beats, 1, sizeof *beats);
    return status;
}

/* ---- meeting ---- */

/* A connection to each, beside what MPI and the run's files take. */
static void allow_descriptors(uint32_t rank_count) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    rlim_t wanted = limit.rlim_cur + rank_count + GUESTS;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* who then cannot be connected to is unreached */
}

static struct peer *make_peers(struct weir__beats *beats, uint32_t rank_count,
                               const struct weir__door *doors, struct pollfd **polled) {
    const struct weir_allocator *allocator = beats->options.allocator;
    struct peer *peers = weir__acquire(allocator, rank_count, sizeof *peers);
    *polled = weir__acquire(allocator, (size_t)rank_count + 2 + GUESTS, sizeof **polled);
    if (peers == NULL || *polled == NULL) {
        weir__release(allocator, peers, rank_count, sizeof *peers);
        weir__release(allocator, *polled, (size_t)rank_count + 2 + GUESTS, sizeof **polled);
        return NULL;
    }
    for (uint32_t r = 0; r < rank_count; r++) {
        peers[r].door = doors[r];
        peers[r].wire.descriptor = -1;
    }
    return peers;
}

static int wait_for_all(struct weir__beats *beats, uint32_t *unreached, uint32_t *first) {
    *unreached = *first = 0;
    pthread_mutex_lock(&beats->lock);
    while (beats->apart > 0 && !beats->has_lost) pthread_cond_wait(&beats->changed, &beats->lock);
    for (uint32_t r = beats->given_count; r-- > 0;) {
        if (r == beats->given_rank || beats->given[r].state != UNREACHED) continue;
        *first = r;
        ++*unreached;
    }
    bool lost = beats->has_lost;
    pthread_mutex_unlock(&beats->lock);
    return lost ? WEIR_ERR_PEER : WEIR_OK;
}

int weir__beats_meet(struct weir__beats *beats, uint32_t rank, uint32_t rank_count,
                     const struct weir__door *doors, uint32_t *unreached, uint32_t *first) {
    struct pollfd *polled;
    assert(rank < rank_count && beats->given_count == 0);
    allow_descriptors(rank_count);
    struct peer *peers = make_peers(beats, rank_count, doors, &polled);
    if (peers == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    pthread_mutex_lock(&beats->lock);
    beats->given = peers;
    beats->given_polled = polled;
    beats->given_rank = rank;
    beats->given_count = rank_count;
    beats->apart = rank_count - 1;
    pthread_mutex_unlock(&beats->lock);
    wake(beats);
    return wait_for_all(beats, unreached, first);
}

void weir__beats_settle(struct weir__beats *beats) {
    atomic_store(&beats->settled, true);
}

/* ---- the end ---- */

static void ask(struct weir__beats *beats, enum wish wish, int exit_status) {
    pthread_mutex_lock(&beats->lock);
    beats->wish = wish;
    beats->wish_done = false;
    beats->exit_status = exit_status;
    pthread_mutex_unlock(&beats->lock);
    wake(beats);
}

void weir__beats_abort(struct weir__beats *beats, int exit_status) {
    if (beats == NULL) return;
    struct timespec until = after_ms(TOLD_MS);
    ask(beats, WISH_ABORT, exit_status);
    pthread_mutex_lock(&beats->lock);
    while (!beats->wish_done &&
           pthread_cond_timedwait(&beats->changed, &beats->lock, &until) != ETIMEDOUT) {}
    pthread_mutex_unlock(&beats->lock);
}

/* A goodbye that is still on its way when its connection is closed may be lost. */
static void wait_until_through(struct weir__beats *beats) {
    const struct timespec moment = {.tv_nsec = (long)MS};
    bool through = false;
    for (uint32_t ms = 0; !through && ms < FAREWELL_MS; ms++) {
        through = true;
        for (uint32_t r = 0; through && r < beats->given_count; r++) {
            const struct peer *peer = &beats->given[r];
            through = peer->state != JOINED || weir__wire_is_through(&peer->wire);
        }
        if (!through) (void)nanosleep(&moment, NULL);
    }
}

void weir__beats_end(struct weir__beats *beats) {
    if (beats == NULL) return;
    const struct weir_allocator *allocator = beats->options.allocator;
    uint32_t count = beats->given_count;
    ask(beats, WISH_END, 0);
    pthread_join(beats->thread, NULL);
    wait_until_through(beats);
    for (uint32_t r = 0; r < count; r++) weir__wire_close(&beats->given[r].wire);
    for (uint32_t i = 0; i < GUESTS; i++) weir__wire_close(&beats->guests[i].wire);
    if (beats->listener >= 0) close(beats->listener);
    close(beats->wake);
    pthread_cond_destroy(&beats->changed);
    pthread_mutex_destroy(&beats->lock);
    weir__release(allocator, beats->given, count, sizeof *beats->given);
    weir__release(allocator, beats->given_polled, (size_t)count + 2 + GUESTS,
                  sizeof *beats->given_polled);
    weir__release(allocator, beats, 1, sizeof *beats);
}
