/* SPDX-License-Identifier: MIT */
#include "cmd/launch_job.h"

#include "base/base.h"
#include "cli/ranks_lost.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* A launcher whose ranks have ended may wait for a host that is gone; and so may ranks that start,
 * of which no other knows yet: the limit is since the last of them began. */
enum { STAYS_S = 6, TERM_S = 3, TURN_MS = 50 };
#define SECOND UINT64_C(1000000000)

bool launch_words_add(struct launch_words *words, const char *word) {
    if (words->count >= LAUNCH_WORDS) return false;
    words->list[words->count++] = word;
    words->list[words->count] = NULL;
    return true;
}

/* ---- signals: a handler can reach nothing but globals ---- */

static volatile sig_atomic_t asked, times_asked;

static void note(int number) {
    asked = number;
    times_asked++;
}

void job_catch_signals(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = note}, former;
    sigemptyset(&action.sa_mask);
    (void)signal(SIGCHLD, SIG_DFL); /* ignored, no child would leave its exit code */
    for (size_t i = 0; i < WEIR__COUNT_OF(numbers); i++) {
        bool ignored = sigaction(numbers[i], NULL, &former) == 0 && former.sa_handler == SIG_IGN;
        if (numbers[i] != SIGHUP || !ignored) (void)sigaction(numbers[i], &action, NULL);
    }
}

int job_asked(void) {
    return asked;
}

/* ---- a process ---- */

struct started {
    pid_t process;
    int errors; /* the reading end of its stderr */
    char line[1024];
    size_t used;
    char mark[96];
    uint64_t lost_at;        /* when a rank was lost or refused; 0: not yet */
    uint64_t starting_at;    /* since when nothing is heard of ranks that start; 0: nobody waits */
    bool is_started;         /* all ranks were there */
    int passed_on, ended_by; /* signals passed on; 0, SIGTERM or SIGKILL */
    uint64_t start_limit;    /* of `starting_at`, in nanoseconds */
    enum job_ends ends;
    struct job_end *end;
};

/* In the child: a group of its own, so that all of it can be ended, and so that a terminal's Ctrl-C
 * comes once. Its launcher must not outlive this process. */
static void become(const struct launch_words *command, int output, int errors) {
    int null = open("/dev/null", O_RDONLY);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(errors, STDERR_FILENO) < 0) _exit(127);
    if (output >= 0 && dup2(output, STDOUT_FILENO) < 0) _exit(127);
    execvp(command->list[0], (char *const *)command->list);
    fprintf(stderr, "weir: launch: %s: %s\n", command->list[0], strerror(errno));
    _exit(127);
}

static bool start(struct started *job, const struct launch_words *command, bool with_output) {
    int ends[2];
    fflush(NULL);
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    job->process = fork();
    if (job->process == 0) become(command, with_output ? ends[1] : -1, ends[1]);
    close(ends[1]);
    job->errors = ends[0];
    if (job->process > 0) return true;
    close(ends[0]);
    return false;
}

static int code_of(int status) {
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void end_group(const struct started *job, int number) {
    if (kill(-job->process, number) != 0) (void)kill(job->process, number);
}

/* ---- what it says ---- */

static const char unstarted[] = "a rank that was starting";

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

static void take_loss(struct started *job, const char *who, size_t length) {
    if (!job->end->lost) snprintf(job->end->what, sizeof job->end->what, "%.*s", (int)length, who);
    job->end->lost = true;
    if (job->lost_at == 0) job->lost_at = weir__now_ns();
}

static void take_line(struct started *job) {
    const char *mark = strstr(job->line, job->mark);
    if (mark == NULL) {
        fputs(job->line, stderr);
        return;
    }
    const char *news = mark + strlen(job->mark), *who = news + strlen(RANKS_LOST);
    if (begins(news, RANKS_STARTED)) job->is_started = true;
    job->starting_at = job->is_started ? 0 : weir__now_ns();
    if (begins(news, RANKS_LOST)) take_loss(job, who, strcspn(who, "\n"));
    if (begins(news, RANKS_BROKEN)) take_loss(job, unstarted, strlen(unstarted));
    if (begins(news, RANKS_REFUSED)) job->end->refused = true;
    if (job->end->refused && job->lost_at == 0) job->lost_at = weir__now_ns();
}

/* Whole lines, and those that are too long in parts. */
static void take_text(struct started *job, const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        job->line[job->used++] = text[i];
        if (text[i] != '\n' && job->used < sizeof job->line - 1) continue;
        job->line[job->used] = '\0';
        take_line(job);
        job->used = 0;
    }
}

/* False: nobody has the writing end any more. */
static bool take_news(struct started *job, int wait_ms) {
    char text[4096];
    struct pollfd polled = {.fd = job->errors, .events = POLLIN};
    if (poll(&polled, 1, wait_ms) <= 0) return true;
    ssize_t got = read(job->errors, text, sizeof text);
    if (got < 0) return errno == EINTR;
    take_text(job, text, (size_t)got);
    return got > 0;
}

/* ---- running ---- */

static void pass_signals_on(struct started *job) {
    if (job->passed_on == times_asked) return;
    job->passed_on = times_asked;
    /* MPICH's dies of a SIGHUP and takes all ranks along */
    int number = asked == SIGHUP ? SIGTERM : asked;
    (void)kill(job->process, job->ends == JOB_ENDS_BY_USR2 ? SIGUSR2 : number);
}

static void end_what_starts(struct started *job) {
    if (job->starting_at == 0 || weir__now_ns() - job->starting_at < job->start_limit) return;
    take_loss(job, unstarted, strlen(unstarted));
}

static void end_what_stays(struct started *job) {
    if (job->lost_at == 0 || job->ended_by == SIGKILL) return;
    uint64_t waited = weir__now_ns() - job->lost_at;
    if (waited > (STAYS_S + TERM_S) * SECOND) {
        end_group(job, job->ended_by = SIGKILL);
    } else if (waited > STAYS_S * SECOND && job->ended_by == 0) {
        (void)kill(job->process, job->ended_by = SIGTERM);
    }
}

bool job_run(const struct launch_words *command, enum job_ends ends, double start_timeout,
             struct job_end *end) {
    struct started job = {.end = end, .ends = ends, .passed_on = times_asked};
    char word[32];
    int status = 0;
    bool open = true;
    assert(command->count > 0 && start_timeout > 0);
    job.start_limit = (uint64_t)(start_timeout * (double)SECOND);
    *end = (struct job_end){.code = -1};
    snprintf(word, sizeof word, "%" PRIx64, weir__now_ns() ^ ((uint64_t)getpid() << 40));
    snprintf(job.mark, sizeof job.mark, RANKS_LOST_MARK " %s ", word);
    if (setenv(RANKS_LOST_VARIABLE, word, 1) != 0 || !start(&job, command, false)) return false;
    while (waitpid(job.process, &status, WNOHANG) == 0) {
        if (!open) (void)poll(NULL, 0, TURN_MS);
        if (open) open = take_news(&job, TURN_MS);
        pass_signals_on(&job);
        end_what_starts(&job);
        end_what_stays(&job);
    }
    struct pollfd left = {.fd = job.errors, .events = POLLIN};
    while (open && poll(&left, 1, 0) > 0 && (left.revents & POLLIN) != 0) open = take_news(&job, 0);
    if (job.used > 0) take_text(&job, "\n", 1);
    if (job.lost_at != 0) (void)kill(-job.process, SIGKILL); /* the launcher's own helpers */
    close(job.errors);
    end->code = code_of(status);
    end->asked = asked;
    return true;
}

int job_capture(const struct launch_words *command, unsigned limit_s, char *text, size_t capacity) {
    struct started job = {0};
    int status = 0;
    size_t used = 0;
    uint64_t until = weir__now_ns() + limit_s * SECOND;
    assert(capacity > 0);
    text[0] = '\0';
    if (!start(&job, command, true)) return -1;
    while (waitpid(job.process, &status, WNOHANG) == 0) {
        struct pollfd polled = {.fd = job.errors, .events = POLLIN};
        bool late = weir__now_ns() > until || asked != 0;
        if (late) end_group(&job, SIGKILL);
        if (poll(&polled, 1, TURN_MS) <= 0) continue;
        char rest[512];
        ssize_t got = read(job.errors, rest, sizeof rest);
        for (ssize_t i = 0; i < got && used + 1 < capacity; i++) text[used++] = rest[i];
        text[used] = '\0';
        if (got == 0) (void)poll(NULL, 0, TURN_MS);
    }
    close(job.errors);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
