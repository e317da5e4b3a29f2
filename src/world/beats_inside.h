/* SPDX-License-Identifier: MIT */
/**
 * What the parts of the beats' thread share: beats.c judges and tells, beats_connect.c brings the
 * ranks together. All functions here are the thread's own.
 */
#ifndef WEIR_WORLD_BEATS_INSIDE_H
#define WEIR_WORLD_BEATS_INSIDE_H

#include "world/beats.h"

#include <pthread.h>

#define BEATS_MS UINT64_C(1000000)
enum { BEATS_GUESTS = 64 };

enum beats_state {
    APART,    /* not connected yet, nor given up */
    JOINED,   /* words go both ways */
    LEFT,     /* has said goodbye, or ends because another is lost */
    LOST,     /* dead or silent */
    UNREACHED /* by no address: only MPI tells of it */
};

struct weir__peer {
    struct weir__door door;
    enum beats_state state;
    struct weir__wire wire;
    bool leaves;    /* it has told of a lost one: then it ends too */
    bool greeted;   /* apart: our hello is on its way */
    bool refused;   /* a near one whose door is closed: it is dead */
    uint32_t tries; /* of its ways, over and over; of who comes to us as it says */
    uint64_t heard, tried;
};

/* Somebody who connected and has not said who that is. */
struct weir__guest {
    struct weir__wire wire;
    uint64_t since;
};

enum beats_errand { ERRAND_NOTHING, ERRAND_ABORT, ERRAND_END };

struct weir__beats {
    struct weir__beats_options options;
    struct weir__door door;
    pthread_t thread;
    int listener, wake; /* wake: an eventfd; written by anybody, read by the thread */
    uint64_t timeout, interval, limit;
    struct weir__guest guests[BEATS_GUESTS];
    uint32_t rank, rank_count; /* rank_count 0: nobody is known yet */
    struct weir__peer *peers;  /* [rank_count]; its own is of no use */
    struct pollfd *polled;     /* [2 + BEATS_GUESTS + rank_count] */
    uint64_t begun, met, turned, beaten, lost_at;
    bool told;
    /* `lock`: */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct weir__peer *given; /* to the thread, which takes them with their numbers */
    struct pollfd *given_polled;
    uint32_t given_rank, given_count;
    uint32_t apart; /* peers that are neither connected nor given up */
    bool errand_done;
    enum beats_errand errand;
    int exit_status;
    struct weir_lost lost;
    _Atomic bool has_lost; /* set under `lock`, once `lost` is there */
    _Atomic bool settled;
};

/** A new state, which who waits for all to meet is told of; LOST and LEFT close the wire. */
void weir__beats_set_state(struct weir__beats *beats, struct weir__peer *peer,
                           enum beats_state state);
/** It is lost, unless it ends because another is; all are told. */
void weir__beats_lose_peer(struct weir__beats *beats, struct weir__peer *peer,
                           enum weir_lost_how how, uint64_t silent_ns);

/** Who comes to this rank: takes them in, and hears who they are. */
void weir__beats_take_guests(struct weir__beats *beats, uint64_t now);
void weir__beats_hear_guests(struct weir__beats *beats, uint64_t now);
/** Goes to those ranks that this one goes to, and gives up those that it waits for too long. */
void weir__beats_connect_all(struct weir__beats *beats, uint64_t now);
/** Of a peer that is apart and has a wire. */
void weir__beats_go_on_connecting(struct weir__beats *beats, struct weir__peer *peer);

#endif
