/* SPDX-License-Identifier: MIT */
#include "world/links.h"
#include "world/allreduce.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t default_ns = 40 * UINT64_C(1000000); /* for one size, one way */
enum {
    ROUNDS_LEAST = 3,
    ROUNDS_MOST = 4000,
    SMALL_MOST = 256,
    ONE_BY_ONE_MOST = 8,
    CLOCK_ROUNDS = 200
};
enum { BLOCKS = 8 };
enum { SLOW = 10 }; /* a message of so many times its time is the largest */
/* Tests between two that let others run. */
enum { SPINS = 100 };

/* What the asking rank says of its message. */
enum word { MORE = 1, NEXT_SIZE, LAST_SIZE };

/* ---- the fit ---- */

struct points {
    const double *bytes, *seconds;
    uint32_t count;
    struct weir_link_cost best; /* so far, with the least sum of relative errors */
    double least;
};

static void try_line(struct points *points, double latency, double seconds_per_byte) {
    double sum = 0.0;
    if (latency < 0.0 || seconds_per_byte < 0.0) return;
    for (uint32_t i = 0; i < points->count; i++)
        sum += fabs((latency + points->bytes[i] * seconds_per_byte) / points->seconds[i] - 1.0);
    if (sum >= points->least) return;
    points->least = sum;
    points->best = (struct weir_link_cost){latency, seconds_per_byte};
}

/* The sum is linear between the lines through two of the points, or one where a line without
 * latency or bytes goes through it: one of these is the best. */
struct weir_link_cost weir__link_fit(const double *bytes, const double *seconds, uint32_t count) {
    struct points points = {bytes, seconds, count, {0}, INFINITY};
    assert(count > 0);
    for (uint32_t i = 0; i < count; i++) {
        assert(seconds[i] > 0.0 && bytes[i] > 0.0 && (i == 0 || bytes[i] > bytes[i - 1]));
        try_line(&points, seconds[i], 0.0);
        try_line(&points, 0.0, seconds[i] / bytes[i]);
        for (uint32_t j = 0; j < i; j++) {
            double slope = (seconds[i] - seconds[j]) / (bytes[i] - bytes[j]);
            try_line(&points, seconds[i] - slope * bytes[i], slope);
        }
    }
    return points.best;
}

/* ---- messages ---- */

/* Waits for both, or one where `second` is NULL. */
static int wait(const struct weir_world *world, struct weir_request *first,
                struct weir_arrival *arrival, struct weir_request *second) {
    bool first_over = false, second_over = second == NULL;
    for (uint32_t turn = 1;; turn++) {
        int status = WEIR_OK;
        if (!first_over) status = world->calls->test(world->context, first, &first_over, arrival);
        if (status == WEIR_OK && !second_over)
            status = world->calls->test(world->context, second, &second_over, NULL);
        if (status != WEIR_OK || (first_over && second_over)) return status;
        if (turn % SPINS == 0) sched_yield();
    }
}

/* One side of a pair: where its messages come from and go to. */
struct pair_side {
    const struct weir_world *world;
    uint32_t peer;
    unsigned char *out, *in;    /* of the largest size */
    struct weir__links_how how; /* with its defaults */
    struct weir_error error;    /* of a gather */
};

/* Links are the last kind of talk. */
static uint32_t tag_of(uint32_t what) {
    return weir__talk_tag(WEIR__TALK_LINK, what);
}

/* Sends, and waits for the answer. */
static int ask(const struct pair_side *side, size_t out, size_t in, uint32_t tag,
               uint64_t *took_ns) {
    const struct weir_world *world = side->world;
    struct weir_request sent, received;
    struct weir_arrival arrival = {0};
    const struct weir_message answer = {.data = side->in, .bytes = in, .peer = side->peer};
    const struct weir_message question = {
        .data = side->out, .bytes = out, .peer = side->peer, .tag = tag_of(tag)};
    int status = world->calls->receive(world->context, &answer, &received);
    if (status != WEIR_OK) return status;
    uint64_t begin = side->how.now();
    status = world->calls->send(world->context, &question, &sent);
    if (status != WEIR_OK) return status;
    status = wait(world, &received, &arrival, &sent);
    *took_ns = side->how.now() - begin;
    if (status != WEIR_OK) return status;
    return arrival.bytes == in && arrival.tag == tag_of(0) ? WEIR_OK : WEIR_ERR_PEER;
}

/* Waits for a question, and answers it. `clock`: with the time. */
static int answer(const struct pair_side *side, size_t in, size_t out, bool clock, uint32_t *tag) {
    const struct weir_world *world = side->world;
    struct weir_request request;
    struct weir_arrival arrival = {0};
    const struct weir_message question = {.data = side->in, .bytes = in, .peer = side->peer};
    const struct weir_message reply = {
        .data = side->out, .bytes = out, .peer = side->peer, .tag = tag_of(0)};
    int status = world->calls->receive(world->context, &question, &request);
    if (status != WEIR_OK) return status;
    if ((status = wait(world, &request, &arrival, NULL)) != WEIR_OK) return status;
    if (arrival.bytes != in || arrival.tag < tag_of(0)) return WEIR_ERR_PEER;
    *tag = arrival.tag - tag_of(0);
    uint64_t now = side->how.now();
    if (clock) memcpy(side->out, &now, sizeof now);
    status = world->calls->send(world->context, &reply, &request);
    return status == WEIR_OK ? wait(world, &request, NULL, NULL) : status;
}

/* ---- a pair ---- */

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What a round takes: the lower quartile of the later half, for others on the machine disturb only
 * upwards; of means over `block` seconds, as a paced link lets messages of some KB pass in turns,
 * so that single ones say nothing. */
static double settled(double *samples, uint32_t count, double block) {
    uint32_t blocks = 0, own = 0;
    double sum = 0.0;
    assert(count > 0);
    for (uint32_t i = count / 2; i < count; i++) { /* the means take the first half's place */
        sum += samples[i];
        own++;
        bool rest = blocks == 0 && i + 1 == count;
        if (sum < block && !rest) continue;
        samples[blocks++] = sum / own;
        own = 0;
        sum = 0.0;
    }
    qsort(samples, blocks, sizeof *samples, compare_doubles);
    return samples[blocks / 4];
}

/* The round trips of one size: `there` bytes, and `back`. *last: no larger ones. */
static int time_size(const struct pair_side *side, size_t there, size_t back, bool *last,
                     double *seconds) {
    double samples[ROUNDS_MOST];
    uint64_t begin = side->how.now(), took = 0;
    for (uint32_t i = 0; i < ROUNDS_MOST; i++) {
        uint64_t spent = side->how.now() - begin;
        bool ends = i + 1 == ROUNDS_MOST || (i + 1 >= ROUNDS_LEAST && spent > side->how.size_ns);
        *last = *last || took > SLOW * side->how.size_ns;
        uint32_t tag = !ends ? MORE : *last ? LAST_SIZE : NEXT_SIZE;
        int status = ask(side, there, back, tag, &took);
        if (status != WEIR_OK) return status;
        samples[i] = (double)(took > 0 ? took : 1) * 1e-9;
        if (!ends) continue;
        bool small = there <= SMALL_MOST && back <= SMALL_MOST;
        double block = small ? 0.0 : (double)side->how.size_ns * 1e-9 / BLOCKS;
        *seconds = settled(samples, i + 1, block);
        break;
    }
    return WEIR_OK;
}

/* What a size takes one way, of its round trips, whose answers have the least size. */
static void fit_way(double *seconds, uint32_t count, double back, struct weir_link_cost *cost) {
    double bytes[WEIR__LINK_SIZES];
    for (uint32_t i = 0; i < count; i++) {
        bytes[i] = (double)weir__link_size(i);
        seconds[i] = seconds[i] > 2.0 * back ? seconds[i] - back : 0.5 * seconds[i];
    }
    *cost = weir__link_fit(bytes, seconds, count);
}

static int ask_pair(const struct pair_side *side, struct weir_link_cost *out,
                    struct weir_link_cost *in) {
    double seconds[2][WEIR__LINK_SIZES];
    uint32_t counts[2] = {0};
    for (int way = 0; way < 2; way++) {
        bool last = false;
        for (uint32_t i = 0; i < WEIR__LINK_SIZES && !last; i++) {
            size_t most = weir__link_size(i), least = weir__link_size(0);
            last = i + 1 == WEIR__LINK_SIZES;
            int status = time_size(side, way == 0 ? most : least, way == 0 ? least : most, &last,
                                   &seconds[way][i]);
            if (status != WEIR_OK) return status;
            counts[way] = i + 1;
        }
    }
    double least = seconds[0][0] < seconds[1][0] ? seconds[0][0] : seconds[1][0];
    fit_way(seconds[0], counts[0], 0.5 * least, out);
    fit_way(seconds[1], counts[1], 0.5 * least, in);
    return WEIR_OK;
}

static int answer_pair(const struct pair_side *side) {
    for (int way = 0; way < 2; way++) {
        uint32_t tag = NEXT_SIZE;
        for (uint32_t i = 0; i < WEIR__LINK_SIZES && tag == NEXT_SIZE; i++) {
            size_t most = weir__link_size(i), least = weir__link_size(0);
            do {
                int status =
                    answer(side, way == 0 ? most : least, way == 0 ? least : most, false, &tag);
                if (status != WEIR_OK) return status;
            } while (tag == MORE);
        }
    }
    return WEIR_OK;
}

/* ---- all pairs ---- */

/* Whom a rank meets in a round; itself: nobody. Rank `ranks` - 1 stays, the others go round. */
static uint32_t opponent(uint32_t ranks, uint32_t round, uint32_t rank) {
    uint32_t even = ranks + ranks % 2, turns = even - 1;
    uint32_t other = rank;
    if (rank == even - 1) {
        for (uint32_t r = 0; r < turns; r++)
            if (2 * r % turns == round % turns) other = r;
    } else {
        other = (round + turns - rank) % turns;
        if (other == rank) other = even - 1;
    }
    return other < ranks ? other : rank;
}

static int meet(const struct pair_side *side, struct weir_link_cost *costs) {
    size_t ranks = side->world->rank_count, own = side->world->rank, peer = side->peer;
    assert(own != peer);
    if (own > peer) return answer_pair(side);
    return ask_pair(side, &costs[own * ranks + peer], &costs[peer * ranks + own]);
}

/* A round's pairs at once, or one after the other, by their lower rank. */
static int play(struct pair_side *side, uint32_t round, bool alone, struct weir_link_cost *costs) {
    const struct weir_world *world = side->world;
    uint32_t ranks = world->rank_count;
    unsigned char mark = 0;
    for (uint32_t turn = 0; turn < (alone ? ranks : 1); turn++) {
        uint32_t peer = opponent(ranks, round, world->rank);
        uint32_t lower = peer < world->rank ? peer : world->rank;
        side->peer = peer;
        int status = WEIR_OK;
        if (alone && opponent(ranks, round, turn) <= turn) continue; /* no pair's lower rank */
        if (peer != world->rank && (!alone || lower == turn)) status = meet(side, costs);
        if (status == WEIR_OK && alone)
            status = weir__world_gather(world, NULL, &mark, 1, &side->error);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static int play_all(struct pair_side *side, struct weir_link_cost *costs) {
    const struct weir_world *world = side->world;
    uint32_t ranks = world->rank_count, rounds = ranks + ranks % 2 - 1;
    bool alone = ranks <= ONE_BY_ONE_MOST;
    for (uint32_t round = 0; round < rounds; round++) {
        int status = play(side, round, alone, costs);
        if (status != WEIR_OK) return status;
    }
    return weir__world_gather(world, side->how.allocator, costs,
                              (size_t)ranks * ranks * sizeof *costs, &side->error);
}

/* `error` says why where it has a message. */
static int fail(const struct weir_world *world, int status, const struct weir_error *error,
                struct weir_faults *faults) {
    if (status == WEIR_OK) return status;
    const char *why =
        status == WEIR_ERR_PEER ? world->calls->reason(world->context) : weir_status_text(status);
    weir_faults_add(faults, "rank %u on %s cannot measure its links: %.200s", world->rank,
                    world->host, error->message[0] != '\0' ? error->message : why);
    return status;
}

static struct weir__links_how complete(const struct weir__links_how *how) {
    struct weir__links_how own = *how;
    if (own.size_ns == 0) own.size_ns = default_ns;
    if (own.now == NULL) own.now = weir__now_ns;
    return own;
}

int weir__links_measure(const struct weir_world *world, const struct weir__links_how *how,
                        struct weir_link_cost *costs, struct weir_faults *faults) {
    size_t bytes = weir__link_size(WEIR__LINK_SIZES - 1);
    assert(world != NULL && costs != NULL);
    if (world->rank_count == 1) return WEIR_OK;
    struct pair_side side = {.world = world,
                             .how = complete(how),
                             .out = weir__acquire(how->allocator, bytes, 1),
                             .in = weir__acquire(how->allocator, bytes, 1)};
    int status = WEIR_ERR_OUT_OF_MEMORY;
    if (side.out == NULL || side.in == NULL) goto out;
    if ((status = world->calls->open(world->context, 1)) != WEIR_OK) goto out;
    status = play_all(&side, costs);
out:
    weir__release(how->allocator, side.in, bytes, 1);
    weir__release(how->allocator, side.out, bytes, 1);
    return fail(world, status, &side.error, faults);
}

/* ---- clocks ---- */

static int ask_clock(const struct pair_side *side, uint32_t rounds, struct weir__clock *clock) {
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < rounds; i++) {
        uint64_t begin = side->how.now(), took, theirs;
        int status = ask(side, sizeof theirs, sizeof theirs, MORE, &took);
        uint64_t end = side->how.now();
        if (status != WEIR_OK) return status;
        memcpy(&theirs, side->in, sizeof theirs);
        if (end - begin >= least) continue;
        least = end - begin;
        clock->offset_ns = (int64_t)(theirs - (begin + least / 2));
        clock->error_ns = (least + 1) / 2;
    }
    return WEIR_OK;
}

int weir__clock_compare(const struct weir_world *world, const struct weir__links_how *how,
                        uint32_t rank, uint32_t rounds, struct weir__clock *clock) {
    unsigned char out[sizeof(uint64_t)] = {0}, in[sizeof(uint64_t)];
    struct pair_side side = {.world = world, .out = out, .in = in, .how = complete(how)};
    int status = WEIR_OK;
    uint32_t tag;
    assert(rank > 0 && (world->rank == 0 || world->rank == rank));
    side.peer = world->rank == 0 ? rank : 0;
    if (world->rank == 0) return ask_clock(&side, rounds, clock);
    for (uint32_t i = 0; i < rounds && status == WEIR_OK; i++)
        status = answer(&side, sizeof(uint64_t), sizeof(uint64_t), true, &tag);
    return status;
}

int weir__clocks_compare(const struct weir_world *world, const struct weir__links_how *how,
                         struct weir__clock *clocks, struct weir_faults *faults) {
    size_t bytes = world->rank_count * sizeof *clocks;
    struct weir_error error = {0};
    if (world->rank_count == 1) return WEIR_OK;
    int status = world->calls->open(world->context, 1);
    for (uint32_t r = 1; r < world->rank_count && status == WEIR_OK; r++)
        if (world->rank == 0 || world->rank == r)
            status = weir__clock_compare(world, how, r, CLOCK_ROUNDS, &clocks[r]);
    if (status != WEIR_OK) return fail(world, status, &error, faults);
    status = weir__world_gather(world, how->allocator, clocks, bytes, &error);
    return fail(world, status, &error, faults);
}

/* ---- kernels ---- */

bool weir__boot_id(char text[WEIR__BOOT_ID_BYTES]) {
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    bool known = file != NULL && fgets(text, WEIR__BOOT_ID_BYTES, file) != NULL;
    assert(text != NULL);
    if (file != NULL) fclose(file);
    if (!known) text[0] = '\0';
    return known;
}
