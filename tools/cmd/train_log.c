/* SPDX-License-Identifier: MIT */
/* Metrics of a run as files that other programs follow. */
#include "cmd/train_log.h"

#include "cli/event_file.h"
#include "cmd/train.h"
#include "io/file.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { CSV_BYTES_MAX = 1 << 30, COLUMNS = EVENT_SCALARS_MAX };

/* ---- names ---- */

/* What TensorBoard looks for; no two runs have one name. */
static int events_path(const struct train *t, char path[PATH_MAX]) {
    struct weir__io io = {.error = t->error};
    char host[65] = "", name[160];
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') strcpy(host, "localhost");
    snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%ld.weir", (long long)time(NULL),
             host, (long)getpid());
    return weir__path_join(&io, t->values->log_dir, name, path);
}

/* ---- what is logged ---- */

/* Tags are for TensorBoard, which groups by what stands before the slash; CSV's columns are JSON's
 * names. */
struct metrics {
    struct event_scalar scalars[COLUMNS];
    const char *columns[COLUMNS];
    uint32_t count;
};

static void add(struct metrics *m, const char *tag, const char *column, double value) {
    assert(m->count < COLUMNS);
    m->scalars[m->count] = (struct event_scalar){tag, value};
    m->columns[m->count++] = column;
}

static void add_line(const struct train *t, struct metrics *m, const struct train_line *line) {
    bool samples = t->task.data->kind == WEIR__DATA_ARRAYS;
    add(m, "train/loss", "loss", line->loss);
    add(m, "train/lr", "lr", line->lr);
    add(m, "train/grad_norm", "grad_norm", line->grad_norm);
    add(m, samples ? "train/samples_per_second" : "train/tokens_per_second", train_rate_key(t),
        line->units_per_second);
}

static void add_score(const struct train *t, struct metrics *m, const struct task_score *score) {
    add(m, "validation/loss", "validation_loss", score->loss);
    if (t->task.metric == TASK_ACCURACY) add(m, "validation/accuracy", "accuracy", score->accuracy);
    if (t->task.metric != TASK_IOU) return;
    add(m, "validation/iou", "iou", score->iou);
    add(m, "validation/pixel_accuracy", "pixel_accuracy", score->accuracy);
}

/* ---- beginning ---- */

/* The nearest folder above that is there. */
static bool can_be_made(const char *path) {
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    while (access(folder, F_OK) != 0) {
        char *slash = strrchr(folder, '/');
        if (slash == NULL)
            snprintf(folder, sizeof folder, "./");
        else if (slash[1] != '\0')
            slash[1] = '\0';
        else if (slash == folder)
            break;
        else
            *slash = '\0';
    }
    struct stat facts;
    bool file = stat(folder, &facts) == 0 && !S_ISDIR(facts.st_mode);
    if (file) errno = ENOTDIR;
    return !file && access(folder, W_OK | X_OK) == 0;
}

static int make_folders(const char *path) {
    char folder[PATH_MAX];
    struct stat facts;
    if (snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder) return ENAMETOOLONG;
    for (char *at = folder + 1; *at != '\0'; at++) {
        if (*at != '/') continue;
        *at = '\0';
        if (mkdir(folder, 0777) != 0 && errno != EEXIST) return errno;
        *at = '/';
    }
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) return errno;
    if (stat(folder, &facts) != 0) return errno;
    return S_ISDIR(facts.st_mode) ? 0 : ENOTDIR;
}

void train_log_check(const struct train *t) {
    const char *folder = t->values->log_dir;
    if (folder == NULL) return;
    struct weir__io io = {.error = NULL};
    char csv[PATH_MAX];
    struct stat facts;
    if (weir__path_join(&io, folder, TRAIN_LOG_CSV, csv) != WEIR_OK)
        weir_faults_add(t->faults, "--log-dir has too many letters: name another folder");
    else if (folder[0] == '\0')
        weir_faults_add(t->faults, "--log-dir '' is no folder: give its name");
    else if (stat(folder, &facts) == 0 && !S_ISDIR(facts.st_mode))
        weir_faults_add(t->faults, "--log-dir %s is a file: name a folder", folder);
    else if (!can_be_made(folder))
        weir_faults_add(t->faults, "--log-dir %s: %s: choose another folder", folder,
                        strerror(errno));
    else if (t->values->resume == NULL && access(csv, F_OK) == 0)
        weir_faults_add(t->faults,
                        "--log-dir %s holds the log of another run (" TRAIN_LOG_CSV
                        "): name another "
                        "folder, or remove that one",
                        folder);
}

/* The lines up to update `step`, and the header: bytes. */
static size_t keep_lines(const char *text, size_t bytes, uint64_t step) {
    size_t at = 0;
    while (at < bytes) {
        const char *end = memchr(text + at, '\n', bytes - at);
        if (end == NULL || (at > 0 && strtoull(text + at, NULL, 10) > step)) break;
        at = (size_t)(end - text) + 1;
    }
    return at;
}

/* What was logged after the checkpoint that is resumed will be logged again. */
static int cut_csv(const struct train *t, const char *path) {
    struct weir__io io = {.error = t->error};
    struct weir__bytes text = {0};
    if (access(path, F_OK) != 0) return WEIR_OK;
    int status = weir__file_read(&io, path, CSV_BYTES_MAX, &text);
    if (status != WEIR_OK) return status;
    size_t kept = keep_lines(text.data, text.count, t->progress.step);
    if (kept < text.count && truncate(path, (off_t)kept) != 0)
        status = weir__io_fail(&io, errno, "shorten", path);
    weir__bytes_release(NULL, &text);
    return status;
}

static void write_header(const struct train *t, FILE *csv) {
    struct metrics m = {.count = 0};
    add_line(t, &m, &(struct train_line){0});
    add_score(t, &m, &(struct task_score){0});
    fprintf(csv, "step");
    for (uint32_t i = 0; i < m.count; i++) fprintf(csv, ",%s", m.columns[i]);
    fputc('\n', csv);
}

static int open_files(struct train *t, struct train_log *log) {
    struct weir__io io = {.error = t->error};
    int status = cut_csv(t, log->csv_path);
    if (status != WEIR_OK) return status;
    log->csv = fopen(log->csv_path, "ae");
    if (log->csv == NULL) return weir__io_fail(&io, errno, "write", log->csv_path);
    if (ftell(log->csv) == 0) write_header(t, log->csv);
    log->events = event_file_open(&io, log->events_path, t->progress.step + 1);
    return log->events >= 0 ? WEIR_OK : t->error->status;
}

int train_log_begin(struct train *t, struct train_log *log) {
    const char *folder = t->values->log_dir;
    if (folder == NULL) return WEIR_OK;
    struct weir__io io = {.error = t->error};
    int number = make_folders(folder);
    if (number != 0) {
        weir_faults_add(t->faults, "--log-dir %s: %s: choose another folder", folder,
                        strerror(number));
        return WEIR_ERR_ARGUMENT;
    }
    log->events = -1;
    int status = weir__path_join(&io, folder, TRAIN_LOG_CSV, log->csv_path);
    if (status != WEIR_OK) return status;
    if ((status = events_path(t, log->events_path)) != WEIR_OK) return status;
    return open_files(t, log);
}

/* ---- during ---- */

/* Columns that `m` has not stay empty: those of a score, or all but those. */
static void write_csv(FILE *csv, uint64_t update, const struct metrics *m, uint32_t before,
                      uint32_t after) {
    fprintf(csv, "%" PRIu64, update);
    for (uint32_t i = 0; i < before; i++) fputc(',', csv);
    for (uint32_t i = 0; i < m->count; i++) fprintf(csv, ",%.9g", m->scalars[i].value);
    for (uint32_t i = 0; i < after; i++) fputc(',', csv);
    fputc('\n', csv);
}

static int write_line(struct train_log *log, uint64_t update, const struct metrics *m,
                      uint32_t before, uint32_t after, struct weir_error *error) {
    struct weir__io io = {.error = error};
    write_csv(log->csv, update, m, before, after);
    if (fflush(log->csv) != 0) return weir__io_fail(&io, errno, "write", log->csv_path);
    return event_file_add(&io, log->events, log->events_path, update, m->scalars, m->count);
}

static void write_both(const struct train *t, struct train_log *log, uint64_t update,
                       const struct metrics *m, uint32_t before, uint32_t after) {
    struct weir_error error = {0};
    if (write_line(log, update, m, before, after, &error) == WEIR_OK) return;
    fprintf(stderr, "weir: train: --log-dir %s: %s; the run goes on without it\n",
            t->values->log_dir, error.message);
    train_log_end(log);
}

/* Columns of a validation. */
static uint32_t score_columns(const struct train *t) {
    struct metrics m = {.count = 0};
    add_score(t, &m, &(struct task_score){0});
    return m.count;
}

void train_log_update(const struct train *t, struct train_log *log, const struct train_line *line) {
    struct metrics m = {.count = 0};
    if (log->csv == NULL) return;
    add_line(t, &m, line);
    if (line->scored) add_score(t, &m, &line->score);
    write_both(t, log, line->step, &m, 0, line->scored ? 0 : score_columns(t));
}

void train_log_validation(const struct train *t, struct train_log *log, uint64_t update,
                          const struct task_score *score) {
    struct metrics line = {.count = 0}, m = {.count = 0};
    if (log->csv == NULL) return;
    add_line(t, &line, &(struct train_line){0});
    add_score(t, &m, score);
    write_both(t, log, update, &m, line.count, 0);
}

void train_log_end(struct train_log *log) {
    if (log->csv == NULL) return;
    fclose(log->csv);
    if (log->events >= 0) close(log->events);
    log->csv = NULL;
}
