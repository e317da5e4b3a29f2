/* SPDX-License-Identifier: MIT */
/* One thread, one poll over a connection to every other rank, for the end of a process is seen on
 * each of them. Beats go to fewer: of many ranks each has those at distances of powers of two, both
 * ways, so that R ranks send R log R of them, and some of a host's ranks are heard on others. Who
 * finds one silent tells all. Of two ranks the higher connects. All of a peer is the thread's own,
 * but for what `lock` protects. */
#include "world/beats_inside.h"

#include "world/hold.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* How long lost ranks are gathered before they are told: with a host all of its ranks go. */
enum { GATHER_MS = 150 };
/* And at most, while a lower rank has said nothing of one that is silent: maybe it is, too. */
enum { GATHER_MOST_MS = 600 };
enum { ALL_HEAR_ALL = 16 }; /* so many ranks at most */
enum { BEAT_LEAST_MS = 10, BEAT_MOST_MS = 1000, BEATS_PER_TIMEOUT = 10 };
enum { FAREWELL_MS = 500, TOLD_MS = 200 };

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
    uint64_t ns = (uint64_t)at.tv_nsec + milliseconds * BEATS_MS;
    at.tv_sec += (time_t)(ns / (1000 * BEATS_MS));
    at.tv_nsec = (long)(ns % (1000 * BEATS_MS));
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

/* Of the lower ranks. All that live tell of a silent one as soon as they hear of it: who does not
 * went with it, even where this rank hears none of its beats. */
static bool may_speak(const struct weir__beats *beats, const struct weir__peer *peer) {
    if (peer->state == LOST) return false;
    return beats->lost.how != WEIR_LOST_SILENT || peer->state == LEFT || peer->leaves;
}

/* The lowest rank that lives, as far as is known here, and has not been given up itself. */
static bool has_the_word(const struct weir__beats *beats) {
    const struct weir_lost *lost = &beats->lost;
    if (lost->how == WEIR_LOST_ABORTED) return false;
    if (lost->how == WEIR_LOST_ABSENT) return true;
    for (uint32_t r = 0; r < beats->rank; r++)
        if (may_speak(beats, &beats->peers[r])) return false;
    return lost->rank != beats->rank;
}

/* Whether it is too early to say who has the word. */
static bool gathers(const struct weir__beats *beats) {
    uint64_t since = weir__now_ns() - beats->lost_at;
    if (beats->lost.how == WEIR_LOST_ABORTED || since >= GATHER_MOST_MS * BEATS_MS) return false;
    if (since < GATHER_MS * BEATS_MS) return true;
    uint32_t unheard = 0;
    for (uint32_t r = 0; beats->peers != NULL && r < beats->rank; r++)
        unheard += beats->peers[r].state == JOINED && !may_speak(beats, &beats->peers[r]);
    return unheard > 0;
}

static void send_to_all(struct weir__beats *beats, const struct weir__word *word) {
    for (uint32_t r = 0; r < beats->rank_count; r++)
        if (r != beats->rank && beats->peers[r].state == JOINED)
            (void)weir__wire_send(&beats->peers[r].wire, word);
}

static struct weir__word word_of_loss(uint32_t rank, enum weir_lost_how how, double seconds) {
    return (struct weir__word){
        .kind = WEIR__WORD_LOST, .rank = rank, .how = how, .number = (uint32_t)(seconds * 1000)};
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
    if (!beats->has_lost || beats->told || gathers(beats)) return;
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

void weir__beats_set_state(struct weir__beats *beats, struct weir__peer *peer,
                           enum beats_state state) {
    if (state == JOINED) peer->heard = weir__now_ns();
    if (state == LOST || state == LEFT) weir__wire_close(&peer->wire);
    pthread_mutex_lock(&beats->lock);
    beats->apart -= peer->state == APART;
    peer->state = state;
    pthread_cond_broadcast(&beats->changed);
    pthread_mutex_unlock(&beats->lock);
}

/* A rank that was stopped finds there what became of it when it goes on. */
static void give_up(struct weir__beats *beats, struct weir__peer *peer, enum weir_lost_how how,
                    double seconds) {
    const struct weir__word word = word_of_loss((uint32_t)(peer - beats->peers), how, seconds);
    if (peer->state == JOINED) (void)weir__wire_send(&peer->wire, &word);
    weir__beats_set_state(beats, peer, LOST);
}

void weir__beats_lose_peer(struct weir__beats *beats, struct weir__peer *peer,
                           enum weir_lost_how how, uint64_t silent_ns) {
    if (peer->leaves) {
        weir__beats_set_state(beats, peer, LEFT);
        return;
    }
    give_up(beats, peer, how, (double)silent_ns * 1e-9);
    lose(beats, (struct weir_lost){.rank = (uint32_t)(peer - beats->peers),
                                   .how = how,
                                   .seconds = (double)silent_ns * 1e-9});
}

/* ---- words ---- */

static void read_word(struct weir__beats *beats, struct weir__peer *peer,
                      const struct weir__word *word) {
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
    case WEIR__WORD_BYE: weir__beats_set_state(beats, peer, LEFT); return;
    default: return; /* a beat */
    }
}

static void hear(struct weir__beats *beats, struct weir__peer *peer, uint64_t now) {
    struct weir__word word;
    while (peer->state == JOINED) {
        enum weir__wire_news news = weir__wire_receive(&peer->wire, &word);
        if (news == WEIR__WIRE_OVER) weir__beats_lose_peer(beats, peer, WEIR_LOST_DEAD, 0);
        if (news != WEIR__WIRE_NOTE) return;
        peer->heard = now;
        read_word(beats, peer, &word);
    }
}

static void hear_all(struct weir__beats *beats, uint64_t now) {
    for (uint32_t r = 0; r < beats->rank_count; r++) {
        struct weir__peer *peer = &beats->peers[r];
        if (r != beats->rank && peer->state == APART && peer->wire.descriptor >= 0)
            weir__beats_go_on_connecting(beats, peer);
        if (r != beats->rank && peer->state == JOINED) hear(beats, peer, now);
    }
}

/* Whether the two ranks hear of each other by beats. */
static bool hear_each_other(const struct weir__beats *beats, uint32_t rank) {
    uint32_t up = (rank + beats->rank_count - beats->rank) % beats->rank_count;
    uint32_t down = beats->rank_count - up;
    return beats->rank_count <= ALL_HEAR_ALL || (up & (up - 1)) == 0 || (down & (down - 1)) == 0;
}

/* Time in which this thread did not run says nothing about others. */
static void judge(struct weir__beats *beats, uint64_t now) {
    uint64_t gap = now - beats->turned;
    uint64_t forgiven = gap > 3 * beats->interval ? gap : 0;
    beats->turned = now;
    for (uint32_t r = 0; r < beats->rank_count; r++) {
        struct weir__peer *peer = &beats->peers[r];
        if (r == beats->rank || peer->state != JOINED || peer->leaves) continue;
        peer->heard += forgiven;
        if (peer->heard > now) peer->heard = now;
        if (hear_each_other(beats, r) && now - peer->heard > beats->timeout)
            weir__beats_lose_peer(beats, peer, WEIR_LOST_SILENT, now - peer->heard);
    }
}

static void beat(struct weir__beats *beats, uint64_t now) {
    const struct weir__word word = {.kind = WEIR__WORD_BEAT};
    if (now - beats->beaten < beats->interval) return;
    beats->beaten = now;
    for (uint32_t r = 0; r < beats->rank_count; r++)
        if (r != beats->rank && beats->peers[r].state == JOINED && hear_each_other(beats, r))
            (void)weir__wire_send(&beats->peers[r].wire, &word);
}

/* ---- the thread ---- */

static struct pollfd watch(int descriptor, bool connects) {
    return (struct pollfd){.fd = descriptor, .events = connects ? POLLOUT : POLLIN};
}

/* Milliseconds until one of those whose beats come is silent for too long, or a beat is due. */
static uint64_t time_left(const struct weir__beats *beats) {
    uint64_t now = weir__now_ns(), least = beats->interval;
    for (uint32_t r = 0; r < beats->rank_count; r++) {
        const struct weir__peer *peer = &beats->peers[r];
        if (r == beats->rank || peer->state != JOINED || peer->leaves || !hear_each_other(beats, r))
            continue;
        uint64_t until = peer->heard + beats->timeout, left = until > now ? until - now : 0;
        if (left < least) least = left;
    }
    return least / BEATS_MS + (least < beats->interval);
}

static void wait_for_news(struct weir__beats *beats) {
    struct pollfd few[2 + BEATS_GUESTS], *polled = beats->polled != NULL ? beats->polled : few;
    uint32_t count = 0;
    bool apart = beats->met != 0 && beats->apart > 0;
    polled[count++] = watch(beats->wake, false);
    if (beats->listener >= 0 && beats->rank_count > 0)
        polled[count++] = watch(beats->listener, false);
    for (uint32_t i = 0; i < BEATS_GUESTS; i++)
        if (beats->guests[i].wire.descriptor >= 0)
            polled[count++] = watch(beats->guests[i].wire.descriptor, false);
    for (uint32_t r = 0; r < beats->rank_count; r++) {
        const struct weir__peer *peer = &beats->peers[r];
        if (r != beats->rank && peer->wire.descriptor >= 0)
            polled[count++] = watch(peer->wire.descriptor, peer->state == APART && !peer->greeted);
    }
    uint64_t ms = time_left(beats);
    if (apart && ms > 50) ms = 50;
    if (beats->has_lost && !beats->told && ms > 20) ms = 20;
    (void)poll(polled, count, (int)ms);
    uint64_t woken;
    if (polled[0].revents != 0 && read(beats->wake, &woken, sizeof woken) < 0) return;
}

/* What the run's threads ask for, once; true: to end. */
static bool do_errand(struct weir__beats *beats) {
    pthread_mutex_lock(&beats->lock);
    enum beats_errand errand = beats->errand_done ? ERRAND_NOTHING : beats->errand;
    struct weir__word word = {.kind = WEIR__WORD_ABORT, .number = (uint32_t)beats->exit_status};
    pthread_mutex_unlock(&beats->lock);
    if (errand == ERRAND_NOTHING) return false;
    if (errand == ERRAND_END) word.kind = WEIR__WORD_BYE;
    send_to_all(beats, &word);
    pthread_mutex_lock(&beats->lock);
    beats->errand_done = true;
    pthread_cond_broadcast(&beats->changed);
    pthread_mutex_unlock(&beats->lock);
    return errand == ERRAND_END;
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
    while (!do_errand(beats)) {
        wait_for_news(beats);
        uint64_t now = weir__now_ns();
        take_given(beats, now);
        check_limit(beats, now);
        if (beats->rank_count > 0) {
            weir__beats_take_guests(beats, now);
            weir__beats_hear_guests(beats, now);
            hear_all(beats, now);
            weir__beats_connect_all(beats, now);
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

static void set_times(struct weir__beats *beats) {
    double ms = beats->options.peer_timeout * 1000, interval = ms / BEATS_PER_TIMEOUT;
    double start = beats->options.start_timeout;
    assert(ms > 0 && start >= 0);
    if (interval < BEAT_LEAST_MS) interval = BEAT_LEAST_MS;
    if (interval > BEAT_MOST_MS) interval = BEAT_MOST_MS;
    beats->timeout = (uint64_t)(ms * (double)BEATS_MS);
    beats->interval = (uint64_t)interval * BEATS_MS;
    beats->limit = WEIR_JOIN_TIMEOUTS * beats->timeout;
    if (beats->limit < WEIR_JOIN_LEAST_S * 1000 * BEATS_MS)
        beats->limit = WEIR_JOIN_LEAST_S * 1000 * BEATS_MS;
    if (start > 0) beats->limit = (uint64_t)(start * 1000 * (double)BEATS_MS);
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
    for (uint32_t i = 0; i < BEATS_GUESTS; i++) beats->guests[i].wire.descriptor = -1;
    set_times(beats);
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
    rlim_t wanted = limit.rlim_cur + rank_count + BEATS_GUESTS;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* who then cannot be connected to is unreached */
}

static struct weir__peer *make_peers(struct weir__beats *beats, uint32_t rank_count,
                                     const struct weir__door *doors, struct pollfd **polled) {
    const struct weir_allocator *allocator = beats->options.allocator;
    struct weir__peer *peers = weir__acquire(allocator, rank_count, sizeof *peers);
    *polled = weir__acquire(allocator, (size_t)rank_count + 2 + BEATS_GUESTS, sizeof **polled);
    if (peers == NULL || *polled == NULL) {
        weir__release(allocator, peers, rank_count, sizeof *peers);
        weir__release(allocator, *polled, (size_t)rank_count + 2 + BEATS_GUESTS, sizeof **polled);
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
    struct weir__peer *peers = make_peers(beats, rank_count, doors, &polled);
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

static void ask(struct weir__beats *beats, enum beats_errand errand, int exit_status) {
    pthread_mutex_lock(&beats->lock);
    beats->errand = errand;
    beats->errand_done = false;
    beats->exit_status = exit_status;
    pthread_mutex_unlock(&beats->lock);
    wake(beats);
}

void weir__beats_abort(struct weir__beats *beats, int exit_status) {
    if (beats == NULL) return;
    struct timespec until = after_ms(TOLD_MS);
    ask(beats, ERRAND_ABORT, exit_status);
    pthread_mutex_lock(&beats->lock);
    while (!beats->errand_done &&
           pthread_cond_timedwait(&beats->changed, &beats->lock, &until) != ETIMEDOUT) {}
    pthread_mutex_unlock(&beats->lock);
}

/* A goodbye that is still on its way when its connection is closed may be lost. */
static void wait_until_through(struct weir__beats *beats) {
    const struct timespec moment = {.tv_nsec = (long)BEATS_MS};
    bool through = false;
    for (uint32_t ms = 0; !through && ms < FAREWELL_MS; ms++) {
        through = true;
        for (uint32_t r = 0; through && r < beats->given_count; r++) {
            const struct weir__peer *peer = &beats->given[r];
            through = peer->state != JOINED || weir__wire_is_through(&peer->wire);
        }
        if (!through) (void)nanosleep(&moment, NULL);
    }
}

void weir__beats_end(struct weir__beats *beats) {
    if (beats == NULL) return;
    const struct weir_allocator *allocator = beats->options.allocator;
    uint32_t count = beats->given_count;
    ask(beats, ERRAND_END, 0);
    pthread_join(beats->thread, NULL);
    wait_until_through(beats);
    for (uint32_t r = 0; r < count; r++) weir__wire_close(&beats->given[r].wire);
    for (uint32_t i = 0; i < BEATS_GUESTS; i++) weir__wire_close(&beats->guests[i].wire);
    if (beats->listener >= 0) close(beats->listener);
    close(beats->wake);
    pthread_cond_destroy(&beats->changed);
    pthread_mutex_destroy(&beats->lock);
    weir__release(allocator, beats->given, count, sizeof *beats->given);
    weir__release(allocator, beats->given_polled, (size_t)count + 2 + BEATS_GUESTS,
                  sizeof *beats->given_polled);
    weir__release(allocator, beats, 1, sizeof *beats);
}
