/* SPDX-License-Identifier: MIT */
/*
 * When a run saves, and how its ranks come to know that all have written: the steps' own exchange
 * tells, by two flags that each rank brings along. Only who must wait asks the others.
 */
#include "cmd/train_save.h"

#include "cli/plan_text.h"
#include "cmd/train.h"
#include "cmd/train_saver.h"
#include "net/run/files.h"
#include "world/allreduce.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t nothing = SAVER_NOTHING;

/* A rank's thread is not done yet; or it is, and failed. Below are exit codes. */
enum { FLAG_BUSY = 1 << 8, FLAG_FAILED = 1 << 9 };

/* ---- what all ranks know ---- */

uint32_t train_save_flags(struct train *t) {
    struct saver *saver = t->save.saver;
    if (saver == NULL || saver->phase == SAVER_IDLE) return 0;
    if (!saver_is_done(saver)) return FLAG_BUSY;
    return saver->status != WEIR_OK ? FLAG_FAILED : 0;
}

/* Why it failed comes to all ranks, and the save ends. Where they cannot be asked the run ends
 * with the next step, which says why. */
static void end_failed(struct train *t) {
    struct saver *saver = t->save.saver;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    uint64_t number = 0;
    if (saver->status != WEIR_OK) weir_faults_add(&faults, "%s", saver->error.message);
    int own = saver->status;
    saver->status = weir__world_agree(ranks_world(&t->ranks), own, 0, "saves", &faults);
    if (own == WEIR_OK)
        weir__fail(&saver->error, saver->status, "%s", faults.kept > 0 ? faults.lines[0] : "");
    weir_faults_clean_up(&faults);
    if (weir__world_share(ranks_world(&t->ranks), &number) != WEIR_OK) t->save.is_cut_off = true;
    if (saver->phase == SAVER_WRITING) saver_drop(saver);
    saver->missed = saver->job.latest;
    saver->phase = SAVER_IDLE;
}

/* All are done with the phase. */
static void end_phase(struct train *t) {
    struct saver *saver = t->save.saver;
    bool wrote = saver->phase == SAVER_WRITING;
    saver->phase = wrote ? SAVER_COMMITTING : SAVER_IDLE;
    if (wrote && saver->leads) saver_ask(saver, SAVER_COMMIT);
}

void train_save_heard(struct train *t, uint32_t flags) {
    struct saver *saver = t->save.saver;
    if (saver == NULL || saver->phase == SAVER_IDLE || (flags & FLAG_BUSY) != 0) return;
    if ((flags & FLAG_FAILED) != 0)
        end_failed(t);
    else
        end_phase(t);
}

/* Until the save is over, on all ranks; between steps. */
static void settle(struct train *t) {
    struct saver *saver = t->save.saver;
    saver_wait(saver);
    while (saver->phase != SAVER_IDLE) {
        saver_wait(saver);
        int all = weir__world_agree(ranks_world(&t->ranks), saver->status, 0, "saves", NULL);
        if (all != WEIR_OK)
            end_failed(t);
        else
            end_phase(t);
    }
}

static bool is_over(struct saver *saver) {
    return saver->phase == SAVER_IDLE && saver_is_done(saver);
}

/* ---- asking it ---- */

/* Counts the last job's failure, once. */
static bool has_failed(struct train *t) {
    struct saver *saver = t->save.saver;
    if (saver->judged || saver->status == WEIR_OK) return false;
    saver->judged = true;
    if (saver->missed) saver->saved = nothing;
    if (t->save.failed++ == 0) t->save.first = saver->error;
    return true;
}

/* The run goes on without it: training is worth more than one of its saves. */
static void tell(struct train *t, const char *then) {
    struct saver *saver = t->save.saver;
    if (!is_over(saver) || !has_failed(t) || t->save.is_cut_off) return;
    fprintf(stderr, "weir: train: warning: the save after update %" PRIu64 " failed: %s: %s\n",
            saver->job.step, saver->error.message, then);
}

/* Where this rank alone has no copy all come to know it, as of a save that fails. */
static int miss(struct train *t, int status, const struct weir_error *before) {
    struct saver *saver = t->save.saver;
    if (ranks_world(&t->ranks) == NULL) return status;
    saver->status = status;
    saver->error = *t->error;
    *t->error = *before;
    saver->phase = SAVER_WRITING;
    return WEIR_OK;
}

/* `loss` is the best one's. */
static int ask(struct train *t, bool latest, bool best, double loss) {
    struct saver *saver = t->save.saver;
    struct weir_note notes[TRAIN_NOTES_MAX + 1];
    struct weir_progress progress = t->progress;
    char text[32];
    settle(t);
    tell(t, "training goes on, and ends with exit code 1");
    if (best) {
        snprintf(text, sizeof text, "%.17g", loss);
        memcpy(notes, progress.notes, progress.note_count * sizeof notes[0]);
        notes[progress.note_count++] = (struct weir_note){TRAIN_SAVE_LOSS_KEY, text};
        progress.notes = notes;
    }
    struct weir_error before = *t->error;
    int status = weir_net_copy_take(saver->copy, &progress, t->error);
    if (latest) saver->saved = progress.step;
    bool alone = ranks_world(&t->ranks) == NULL;
    saver->job = (struct saver_job){.step = progress.step, .latest = latest, .best = best};
    saver->judged = false;
    if (status != WEIR_OK) return miss(t, status, &before);
    saver->phase = alone ? SAVER_IDLE : SAVER_WRITING;
    saver_ask(saver, alone ? SAVER_WRITE | SAVER_COMMIT : SAVER_WRITE);
    return WEIR_OK;
}

/* The first rank knows what the former parts of a resumed run had. */
static int judge_best(struct train *t, double loss, bool *best) {
    struct saver *saver = t->save.saver;
    uint64_t number = loss < saver->best;
    *best = false;
    if (!t->values->keep_best) return WEIR_OK;
    int status = weir__world_share(ranks_world(&t->ranks), &number);
    if (status != WEIR_OK) return weir__fail(t->error, status, "the ranks cannot be asked");
    *best = number != 0;
    if (*best) saver->best = loss;
    return WEIR_OK;
}

int train_save_update(struct train *t, const struct train_line *line) {
    uint64_t every = t->values->save_every;
    if (t->save.saver == NULL) return WEIR_OK;
    tell(t, "training goes on, and ends with exit code 1");
    /* the last one's follows anyway */
    bool due = every > 0 && line->step % every == 0 && line->step != t->steps;
    bool best = false;
    int status = line->scored ? judge_best(t, line->score.loss, &best) : WEIR_OK;
    if (status != WEIR_OK) return status;
    return due || best ? ask(t, due, best, line->score.loss) : WEIR_OK;
}

int train_save_best(struct train *t, double loss) {
    bool best;
    if (t->save.saver == NULL) return WEIR_OK;
    int status = judge_best(t, loss, &best);
    return status == WEIR_OK && best ? ask(t, false, true, loss) : status;
}

/* Of a failure that all ranks know none has to be told by an abort; if they can be reached. */
static void note_agreed(struct train *t) {
    uint64_t number = 0;
    const struct weir_world *world = ranks_world(&t->ranks);
    if (world != NULL) t->ranks.agreed = weir__world_share(world, &number) == WEIR_OK;
}

int train_save_end(struct train *t) {
    struct saver *saver = t->save.saver;
    if (saver == NULL) return WEIR_OK;
    settle(t);
    tell(t, "training goes on, and ends with exit code 1");
    int status = saver->saved != t->progress.step ? ask(t, true, false, 0) : WEIR_OK;
    if (status != WEIR_OK) return status;
    settle(t);
    if (saver->saved == t->progress.step && saver->judged) return WEIR_OK; /* a best one failed */
    if (saver->status == WEIR_OK) return WEIR_OK;
    *t->error = saver->error;
    note_agreed(t);
    return saver->status;
}

void train_save_tell_last(struct train *t) {
    if (t->save.saver == NULL) return;
    struct saver *saver = t->save.saver;
    struct weir_error first = *t->error;
    saver_wait(saver);
    /* all ranks know of such a gradient; of another failure perhaps none but this one */
    if (first.status == WEIR_ERR_NONFINITE) settle(t);
    tell(t, "go on from an earlier one");
    if (first.status != WEIR_ERR_NONFINITE || saver->saved == t->progress.step) return;
    if (ask(t, true, false, 0) == WEIR_OK) settle(t);
    tell(t, "go on from an earlier one");
    *t->error = first;
    if (saver->status == WEIR_OK && saver->saved == t->progress.step)
        fprintf(stderr, "weir: train: update %" PRIu64 ", the last that was done, is in %s\n",
                t->progress.step, t->values->save);
}

int train_save_judge(struct train *t) {
    struct saver *saver = t->save.saver;
    if (saver != NULL) {
        settle(t);
        has_failed(t);
    }
    if (t->save.failed == 0) return WEIR_OK;
    *t->error = t->save.first;
    note_agreed(t);
    return t->error->status;
}

/* ---- beginning and end ---- */

const char *train_save_best_path(const struct train *t, char *path) {
    saver_best_path(t->values->save, path);
    return path;
}

int train_save_begin(struct train *t) {
    int status = ranks_world(&t->ranks) != NULL ? train_probe(t) : WEIR_OK;
    if (status != WEIR_OK || t->values->save == NULL) return status;
    struct saver *saver = weir__acquire(NULL, 1, sizeof *saver);
    if (saver == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    *saver = (struct saver){.path = t->values->save,
                            .keep = t->values->keep,
                            .leads = ranks_leads(&t->ranks),
                            .saved = nothing,
                            .best = HUGE_VAL,
                            .kept = calloc((size_t)t->values->keep + 1, sizeof *saver->kept)};
    status = saver->kept == NULL ? WEIR_ERR_OUT_OF_MEMORY : train_save_look_back(t, saver);
    if (status != WEIR_OK) goto fail_kept;
    if ((status = weir_net_copy_new(t->net, &saver->copy)) != WEIR_OK) goto fail_kept;
    if (saver_start(saver) != WEIR_OK) {
        status = weir__fail(t->error, WEIR_ERR_SYSTEM, "no thread can be made to save");
        goto fail_copy;
    }
    t->save.saver = saver;
    return WEIR_OK;

fail_copy:
    weir_net_copy_destroy(saver->copy);
fail_kept:
    free(saver->kept);
    weir__release(NULL, saver, 1, sizeof *saver);
    return status;
}

void train_save_clean_up(struct train *t) {
    struct saver *saver = t->save.saver;
    free(t->save.base);
    t->save.base = NULL;
    if (saver == NULL) return;
    saver_stop(saver);
    weir_net_copy_destroy(saver->copy);
    free(saver->kept);
    weir__release(NULL, saver, 1, sizeof *saver);
    t->save.saver = NULL;
}

uint64_t train_save_bytes(const struct train *t) {
    return t->save.saver != NULL ? weir__net_copy_held(t->save.saver->copy) : 0;
}

void train_save_print(const struct train *t) {
    const struct train_values *v = t->values;
    FILE *to = t->people.stream;
    char bytes[24];
    if (v->save == NULL) {
        fprintf(to, "saves     %s%s: give --save FILE to go on from it later\n",
                v->save_weights != NULL ? "weights alone, at the end: " : "nothing",
                v->save_weights != NULL ? v->save_weights : "");
        return;
    }
    fprintf(to, "saves     %s, at the end", v->save);
    if (v->save_every > 0)
        fprintf(to, " and every %" PRIu64 " update%s", v->save_every, weir__s(v->save_every));
    if (v->keep > 0) fprintf(to, "; the %" PRIu32 " newest as %s-STEP", v->keep, v->save);
    if (v->keep_best) fprintf(to, "; the best as %s%s", v->save, SAVER_BEST_SUFFIX);
    fprintf(to, "; from a copy of %s on the host%s\n", plan_text_bytes(train_save_bytes(t), bytes),
            ranks_world(&t->ranks) != NULL ? ", which is rank 0's share" : "");
}
