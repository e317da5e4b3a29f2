/* SPDX-License-Identifier: MIT */
#include "cmd/train_save.h"

#include "cli/plan_text.h"
#include "cmd/train.h"
#include "data/folder.h"
#include "io/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char best_suffix[] = "-best", loss_key[] = "validation_loss";
static const uint64_t nothing = UINT64_MAX;

/* What the thread is asked for: the copy as FILE, as FILE-best, or as both. */
struct job {
    uint64_t step;
    bool latest, best;
};

struct saver {
    struct weir__gate asked; /* counts jobs; advanced by the run */
    struct weir__gate done;  /* advanced by the thread */
    const char *path;
    uint32_t keep;
    bool elsewhere; /* another rank writes */
    struct weir_net_copy *copy;
    uint64_t bytes;
    pthread_t thread;
    /* From `asked` to `done` the thread's, else the run's. */
    struct job job;
    bool ends;
    int status;
    struct weir_error error;
    bool missed;    /* FILE was to be written, and is not */
    uint64_t *kept; /* steps of this run's FILE-STEP, ascending; room for keep + 1 */
    uint32_t kept_count;
    /* The run's. */
    uint32_t jobs;
    bool judged;    /* the last job's failure has been told */
    uint64_t saved; /* the step that FILE has, or will have */
    double best;    /* HUGE_VAL: none */
};

/* ---- the thread ---- */

static void step_path(const char *path, uint64_t step, char text[PATH_MAX]) {
    snprintf(text, PATH_MAX, "%s-%" PRIu64, path, step);
}

static void best_path(const char *path, char text[PATH_MAX]) {
    snprintf(text, PATH_MAX, "%s%s", path, best_suffix);
}

/* What is gone already need not be removed. */
static int remove_oldest(struct saver *saver) {
    char path[PATH_MAX];
    struct weir__io io = {.error = &saver->error};
    step_path(saver->path, saver->kept[0], path);
    saver->kept_count--;
    memmove(saver->kept, saver->kept + 1, saver->kept_count * sizeof *saver->kept);
    if (unlink(path) == 0 || errno == ENOENT) return WEIR_OK;
    return weir__io_fail(&io, errno, "remove", path);
}

static void note_kept(struct saver *saver, uint64_t step) {
    uint32_t at = saver->kept_count;
    if (at > 0 && saver->kept[at - 1] == step) return;
    assert(at == 0 || saver->kept[at - 1] < step);
    saver->kept[saver->kept_count++] = step;
}

/* The newest `keep` stay, whatever became of FILE; the status of the last failure. */
static int rotate(struct saver *saver) {
    int failure = WEIR_OK;
    while (saver->kept_count > saver->keep) {
        int status = remove_oldest(saver);
        if (status != WEIR_OK) failure = status;
    }
    return failure;
}

static int write_rotated(struct saver *saver, uint64_t step) {
    char path[PATH_MAX];
    struct weir__io io = {.error = NULL};
    step_path(saver->path, step, path);
    int status = weir_net_copy_save(saver->copy, path, &saver->error);
    if (status != WEIR_OK) return status;
    note_kept(saver, step);
    if (!weir__file_alias(&io, path, saver->path))
        status = weir_net_copy_save(saver->copy, saver->path, &saver->error);
    int rotated = rotate(saver);
    return status != WEIR_OK ? status : rotated;
}

static int write_latest(struct saver *saver) {
    if (saver->keep > 0) return write_rotated(saver, saver->job.step);
    return weir_net_copy_save(saver->copy, saver->path, &saver->error);
}

static int write_best(struct saver *saver) {
    char path[PATH_MAX];
    best_path(saver->path, path);
    return weir_net_copy_save(saver->copy, path, &saver->error);
}

/* The best one first: who goes on from the latest knows of it. */
static int write_job(struct saver *saver) {
    if (saver->elsewhere) return WEIR_OK;
    int best = saver->job.best ? write_best(saver) : WEIR_OK;
    struct weir_error first = saver->error;
    int latest = saver->job.latest ? write_latest(saver) : WEIR_OK;
    saver->missed = latest != WEIR_OK;
    if (best != WEIR_OK) saver->error = first;
    return best != WEIR_OK ? best : latest;
}

static void *work(void *context) {
    struct saver *saver = context;
    for (uint32_t job = 1;; job++) {
        weir__gate_wait(&saver->asked, job, 0, 0);
        if (saver->ends) return NULL;
        saver->error = (struct weir_error){.status = WEIR_OK, .stage = -1, .micro_batch = -1};
        saver->status = write_job(saver);
        weir__gate_advance(&saver->done, job);
    }
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
    if (!weir__gate_reached(&saver->done, saver->jobs) || !has_failed(t)) return;
    fprintf(stderr, "weir: train: warning: the save after update %" PRIu64 " failed: %s: %s\n",
            saver->job.step, saver->error.message, then);
}

static void wait_for(struct saver *saver) {
    weir__gate_wait(&saver->done, saver->jobs, 0, 0);
}

/* `loss` is the best one's. */
static int ask(struct train *t, bool latest, bool best, double loss) {
    struct saver *saver = t->save.saver;
    struct weir_note notes[TRAIN_NOTES_MAX + 1];
    struct weir_progress progress = t->progress;
    char text[32];
    wait_for(saver);
    tell(t, "training goes on, and ends with exit code 1");
    if (best) {
        snprintf(text, sizeof text, "%.17g", loss);
        memcpy(notes, progress.notes, progress.note_count * sizeof notes[0]);
        notes[progress.note_count++] = (struct weir_note){loss_key, text};
        progress.notes = notes;
    }
    int status = weir_net_copy_take(saver->copy, &progress, t->error);
    if (status != WEIR_OK) return status;
    if (latest) saver->saved = progress.step;
    saver->job = (struct job){progress.step, latest, best};
    saver->judged = false;
    weir__gate_advance(&saver->asked, ++saver->jobs);
    return WEIR_OK;
}

static bool is_best(struct train *t, double loss) {
    struct saver *saver = t->save.saver;
    if (!t->values->keep_best || !(loss < saver->best)) return false;
    saver->best = loss;
    return true;
}

int train_save_update(struct train *t, const struct train_line *line) {
    uint64_t every = t->values->save_every;
    if (t->save.saver == NULL) return WEIR_OK;
    tell(t, "training goes on, and ends with exit code 1");
    if (train_world(t) != NULL && t->save.failed > 0) return train_save_judge(t); /* of all ranks */
    /* the last one's follows anyway */
    bool due = every > 0 && line->step % every == 0 && line->step != t->steps;
    bool best = line->scored && is_best(t, line->score.loss);
    return due || best ? ask(t, due, best, line->score.loss) : WEIR_OK;
}

int train_save_best(struct train *t, double loss) {
    if (t->save.saver == NULL || !is_best(t, loss)) return WEIR_OK;
    return ask(t, false, true, loss);
}

int train_save_end(struct train *t) {
    struct saver *saver = t->save.saver;
    if (saver == NULL) return WEIR_OK;
    wait_for(saver);
    tell(t, "training goes on, and ends with exit code 1");
    if (train_world(t) != NULL && t->save.failed > 0) return train_save_judge(t);
    int status = saver->saved != t->progress.step ? ask(t, true, false, 0) : WEIR_OK;
    if (status != WEIR_OK) return status;
    wait_for(saver);
    if (saver->saved == t->progress.step && saver->judged) return WEIR_OK; /* a best one failed */
    if (saver->status != WEIR_OK) *t->error = saver->error;
    return saver->status;
}

void train_save_tell_last(struct train *t) {
    if (t->save.saver == NULL) return;
    struct saver *saver = t->save.saver;
    struct weir_error first = *t->error;
    wait_for(saver);
    tell(t, "go on from an earlier one");
    if (first.status != WEIR_ERR_NONFINITE || saver->saved == t->progress.step) return;
    if (ask(t, true, false, 0) == WEIR_OK) wait_for(saver);
    tell(t, "go on from an earlier one");
    *t->error = first;
    if (saver->status == WEIR_OK && saver->saved == t->progress.step)
        fprintf(stderr, "weir: train: update %" PRIu64 ", the last that was done, is in %s\n",
                t->progress.step, t->values->save);
}

int train_save_judge(struct train *t) {
    struct saver *saver = t->save.saver;
    if (saver != NULL) {
        wait_for(saver);
        has_failed(t);
    }
    if (t->save.failed == 0) return WEIR_OK;
    *t->error = t->save.first;
    return t->error->status;
}

/* ---- what is there from before ---- */

static uint64_t metadata_step(const struct weir__safetensors *file) {
    const char *number = weir__safetensors_metadata(file, "step");
    return number != NULL ? strtoull(number, NULL, 10) : nothing;
}

/* Whether the file is a checkpoint that this run wrote before it was resumed, by what it says of
 * itself: then *step is its step, and *loss that of its validation, where it has one. What may be
 * removed for it must say the same of `all` that decides bits, but for the run's end; a loss is
 * compared where model and data are the same. */
static bool is_own(const struct train *t, const char *path, bool all, uint64_t *step,
                   double *loss) {
    struct weir__io io = {.error = NULL};
    struct weir__safetensors *file;
    char seed[24];
    if (weir__safetensors_open(&io, path, NULL, &file) != WEIR_OK) return false;
    snprintf(seed, sizeof seed, "%" PRIu64, t->progress.seed);
    const char *found = weir__safetensors_metadata(file, "seed");
    bool own = found != NULL && strcmp(found, seed) == 0 && train_notes_match(t, file, all);
    const char *least = weir__safetensors_metadata(file, loss_key);
    *step = metadata_step(file);
    *loss = least != NULL ? strtod(least, NULL) : HUGE_VAL;
    weir__safetensors_close(file);
    return own && *step <= t->progress.step;
}

static int compare_steps(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The step of NAME = BASE-STEP; `nothing` of another name. */
static uint64_t step_of(const char *name, const char *base) {
    size_t length = strlen(base);
    if (strncmp(name, base, length) != 0 || name[length] != '-') return nothing;
    const char *digits = name + length + 1;
    size_t count = strspn(digits, "0123456789");
    bool plain =
        count > 0 && count < 20 && digits[count] == '\0' && (digits[0] != '0' || count == 1);
    return plain ? strtoull(digits, NULL, 10) : nothing;
}

static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* A resumed run goes on with the rotation of its former parts, but for the file that it was resumed
 * from. */
static int find_kept(const struct train *t, struct saver *saver) {
    const char *slash = strrchr(saver->path, '/'), *base = slash ? slash + 1 : saver->path;
    const char *last = strrchr(t->values->resume, '/'), *from = last ? last + 1 : t->values->resume;
    char folder[PATH_MAX] = ".";
    struct weir__io io = {.error = t->error};
    struct weir__names names = {0};
    double loss;
    if (slash != NULL)
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - saver->path + 1), saver->path);
    int status = weir__folder_list(&io, folder, &names);
    if (status != WEIR_OK) goto out;
    free(saver->kept);
    saver->kept = calloc((size_t)names.count + saver->keep + 1, sizeof *saver->kept);
    status = saver->kept == NULL ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK;
    for (uint32_t i = 0; status == WEIR_OK && i < names.count; i++) {
        uint64_t step = step_of(names.list[i], base), said;
        char path[PATH_MAX];
        if (step == nothing) continue;
        step_path(saver->path, step, path);
        if (step_of(from, base) == step && same_file(t->values->resume, path)) continue;
        if (is_own(t, path, true, &said, &loss) && said == step)
            saver->kept[saver->kept_count++] = step;
    }
    if (saver->kept_count > 0)
        qsort(saver->kept, saver->kept_count, sizeof *saver->kept, compare_steps);
out:
    weir__names_release(&io, &names);
    return status;
}

static int look_back(struct train *t, struct saver *saver) {
    char best[PATH_MAX];
    uint64_t step;
    double loss;
    if (t->values->resume == NULL || saver->elsewhere) return WEIR_OK;
    /* ranks would not all see the same files, and must save alike */
    if (train_world(t) == NULL && same_file(t->values->resume, saver->path))
        saver->saved = t->progress.step;
    best_path(saver->path, best);
    if (t->values->keep_best && is_own(t, best, false, &step, &loss)) saver->best = loss;
    return saver->keep > 0 ? find_kept(t, saver) : WEIR_OK;
}

/* ---- beginning and end ---- */

/* Where FILE ends in the path of a FILE-STEP or FILE-best that is what its name says. */
static void cut_suffix(const char *path, size_t *length) {
    struct weir__io io = {.error = NULL};
    struct weir__safetensors *file;
    const char *dash = strrchr(path, '-');
    if (dash == NULL || dash == path || strchr(dash, '/') != NULL) return;
    if (weir__safetensors_open(&io, path, NULL, &file) != WEIR_OK) return;
    const char *step = weir__safetensors_metadata(file, "step");
    bool best = strcmp(dash, best_suffix) == 0;
    bool found = best ? weir__safetensors_metadata(file, loss_key) != NULL
                      : step != NULL && strcmp(dash + 1, step) == 0;
    weir__safetensors_close(file);
    if (found) *length = (size_t)(dash - path);
}

/* Of a checkpoint; `nothing` of all else. */
static uint64_t saved_step(const char *path) {
    struct weir__io io = {.error = NULL};
    struct weir__safetensors *file;
    if (weir__safetensors_open(&io, path, NULL, &file) != WEIR_OK) return nothing;
    uint64_t step = metadata_step(file);
    weir__safetensors_close(file);
    return step;
}

/* A FILE-STEP or FILE-best may be older than FILE, which nobody asked to replace. */
static void refuse_newer(struct train *t, const char *path) {
    uint64_t newer = saved_step(path), step = saved_step(t->values->resume);
    if (newer == nothing || newer <= step) return;
    weir_faults_add(t->faults,
                    "--resume %s would go on as %s, which is further (update %" PRIu64
                    "): name another file with --save, or give --resume %s",
                    t->values->resume, path, newer, path);
}

int train_save_choose(struct train *t) {
    const char *resume = t->values->resume;
    if (resume == NULL || t->values->save != NULL) return WEIR_OK;
    size_t length = strlen(resume);
    cut_suffix(resume, &length);
    t->values->save = t->save.base = strndup(resume, length);
    if (t->save.base == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    refuse_newer(t, t->save.base);
    return WEIR_OK;
}

const char *train_save_best_path(const struct train *t, char *path) {
    best_path(t->values->save, path);
    return path;
}

int train_save_begin(struct train *t) {
    if (t->values->save == NULL) return WEIR_OK;
    struct saver *saver = weir__acquire(NULL, 1, sizeof *saver);
    if (saver == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    *saver = (struct saver){.path = t->values->save,
                            .keep = t->values->keep,
                            .elsewhere = !train_world_leads(t),
                            .saved = nothing,
                            .best = HUGE_VAL,
                            .kept = calloc((size_t)t->values->keep + 1, sizeof *saver->kept),
                            .bytes = weir_net_copy_bytes(t->model, &t->options)};
    int status = saver->kept == NULL ? WEIR_ERR_OUT_OF_MEMORY : look_back(t, saver);
    if (status != WEIR_OK) goto fail_kept;
    if ((status = weir_net_copy_new(t->net, &saver->copy)) != WEIR_OK) goto fail_kept;
    if (pthread_create(&saver->thread, NULL, work, saver) != 0) {
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
    weir__gate_wait(&saver->done, saver->jobs, 0, 0);
    saver->ends = true;
    weir__gate_advance(&saver->asked, saver->jobs + 1);
    pthread_join(saver->thread, NULL);
    weir_net_copy_destroy(saver->copy);
    free(saver->kept);
    weir__release(NULL, saver, 1, sizeof *saver);
    t->save.saver = NULL;
}

uint64_t train_save_bytes(const struct train *t) {
    return t->save.saver != NULL ? t->save.saver->bytes : 0;
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
    if (v->keep_best) fprintf(to, "; the best as %s%s", v->save, best_suffix);
    fprintf(to, "; from a copy of %s on the host\n", plan_text_bytes(train_save_bytes(t), bytes));
}
