/* SPDX-License-Identifier: MIT */
/**
 * A run's checkpoints. At the end of an update the net is copied, and a thread writes the copy
 * while training goes on; the next save waits for the former. A save that fails is told after the
 * next update and fails the run at its end. All of this is called by the run's own thread.
 *
 * Over ranks each writes its own, all at once, into a folder, which the first commits when all
 * have. Nobody waits for that: it is heard of with the steps.
 *
 * With --keep N each save is FILE-STEP, the N newest of this run stay, and FILE is another name of
 * the newest. With --keep-best FILE-best is the update with the least validation loss.
 */
#ifndef WEIR_TOOLS_TRAIN_SAVE_H
#define WEIR_TOOLS_TRAIN_SAVE_H

#include "weir_net.h"

struct saver;
struct train;
struct train_line;

/** A note of checkpoints that were the best: their validation's loss. */
#define TRAIN_SAVE_LOSS_KEY "validation_loss"

/** What is saved to; zeroed, then cleaned up. */
struct train_save {
    char *base;              /**< where --resume alone goes on saving; owned */
    struct saver *saver;     /**< NULL: nothing is saved */
    uint64_t failed;         /**< saves that failed so far */
    bool is_cut_off;         /**< the last of them as other ranks could not be reached */
    struct weir_error first; /**< the first of these, for the end */
};

/** What the options leave open: --resume FILE goes on saving to FILE, or where that is a FILE-STEP
 * or FILE-best, to FILE; a fault where FILE is further. Before anything runs. */
int train_save_choose(struct train *t);
/** FILE-best of --save FILE, into `path` of PATH_MAX bytes; returns it. */
const char *train_save_best_path(const struct train *t, char *path);
/** Takes from former parts of a resumed run what it goes on with. */
int train_save_look_back(struct train *t, struct saver *saver);
/** Over ranks: refuses (WEIR_ERR_CONFIG and a fault) to save where not every rank sees what the
 * first writes, and the first what every other does. Collective. */
int train_probe(struct train *t);
/** Memory for the copy, and the thread; once parameters and progress are there. Collective. */
int train_save_begin(struct train *t);
/** One line: what will be saved, or that nothing will be. */
void train_save_print(const struct train *t);
/** Bytes of this rank's copy; 0 where nothing is saved. */
uint64_t train_save_bytes(const struct train *t);
/** What a step tells the other ranks of a save under way, in its flags, above the low 8 bits; and
 * what it has heard, of the same step on all ranks. */
uint32_t train_save_flags(struct train *t);
void train_save_heard(struct train *t, uint32_t flags);
/** After an update, and its validation if one followed: saves if that is due, or the loss the best,
 * for both from one copy; and tells of a save that has failed since. */
int train_save_update(struct train *t, const struct train_line *line);
/** After the last validation, whose loss may be the best. */
int train_save_best(struct train *t, double loss);
/** The last save, unless it is there already. Waits until everything is written, on all ranks;
 * fails as that does. Collective. */
int train_save_end(struct train *t);
/** Of a run that has failed: waits until everything is written, and warns where that failed. Where
 * a gradient was not finite, all is as its update found it, and is saved. */
void train_save_tell_last(struct train *t);
/** Fails where an earlier save has failed. */
int train_save_judge(struct train *t);
/** Also after a failure: waits for the thread. */
void train_save_clean_up(struct train *t);

#endif
