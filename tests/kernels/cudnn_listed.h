/* SPDX-License-Identifier: MIT */
/**
 * A library in cuDNN's place: it keeps descriptors and their attributes, and offers the engines
 * that a test lists. A plan's JSON is "engine E rows R": the place in the list, the rows of the
 * graph's image or sequences.
 */
#ifndef WEIR_TESTS_CUDNN_LISTED_H
#define WEIR_TESTS_CUDNN_LISTED_H

#include "net/cuda/cudnn_attention.h"

enum { CUDNN_JSON = 64, CUDNN_IDS = 24 };

struct cudnn_engine {
    int note; /* -1: none */
    int64_t workspace;
    int64_t refused_rows; /* it cannot be made for so many; 0: any */
    int64_t stream_k;     /* the knob's value; -1: it has none */
    bool fallback;        /* offered by that mode alone */
    int operations;       /* for graphs of so many; 0: any */
};

struct cudnn_listed {
    const struct cudnn_engine *engines;
    int engine_count;
    int alive, handles, heuristics;
    int64_t heuristic_rows;
    int calls, fail_at, executed;
    int refusal;               /* an engine's, of refused_rows; 0: NOT_SUPPORTED */
    char ran_json[CUDNN_JSON]; /* of the last plan that was run */
    int64_t tensors;           /* of a variant pack */
    size_t version;
    const void *ran[8][CUDNN_IDS]; /* where the tensors of a run were, by id; NULL: not named */
    float numbers[8][CUDNN_IDS];   /* of those by value */
    void *workspaces[8];           /* of a run */
    int64_t wanted[8];             /* bytes that its plan's engine needs there */
};
/* What it knows and counts; alive: descriptors. The fail_at-th of its calls fails. */
extern struct cudnn_listed cudnn_listed;

/* The functions; `engines` stay the caller's. */
void cudnn_listed_init(struct weir__cudnn *cudnn, const struct cudnn_engine *engines, int count);
/* Calls and runs are counted from zero. */
void cudnn_listed_begin(void);
/* Nothing may be left of it. */
void cudnn_listed_clean_up(struct weir__cudnn *cudnn);
void cudnn_listed_json(const void *plan, char json[CUDNN_JSON]);

#define SOME_STREAM ((struct CUstream_st *)(uintptr_t)16)

#endif
