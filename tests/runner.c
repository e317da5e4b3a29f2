/* SPDX-License-Identifier: MIT */
#include "runner.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Of one run of one test. With several jobs it lies in memory that the processes share: the child
 * writes, the parent reads once the child has ended. */
struct record {
    double wall_ms, cpu_ms;
    volatile sig_atomic_t ended; /* `outcome` counts */
    volatile sig_atomic_t named; /* the child has said how it came to its end */
    enum test_outcome outcome;
};

struct job {
    pid_t process; /* 0: free */
    size_t at;     /* of its record */
};

struct run {
    const struct runner_test *tests;
    size_t count; /* of tests */
    const struct runner_options *options;
    struct record *records; /* count * repeat */
    struct job jobs[RUNNER_JOBS_MAX];
};

/* Read by the signal handlers, so: written before a test starts, nothing but numbers and bytes. */
static volatile sig_atomic_t totals[TEST_OUTCOME_COUNT];
static volatile sig_atomic_t timeout_s;
static char name[RUNNER_NAME_BYTES];
static struct record *own; /* in a test's own process; NULL: all run in this one */

/* ---- when a test hangs or crashes: nothing here but what a signal handler may call ----------- */

static void write_text(const char *text) {
    size_t length = strlen(text);
    while (length > 0) {
        ssize_t written = write(STDOUT_FILENO, text, length);
        if (written <= 0) return;
        text += written;
        length -= (size_t)written;
    }
}

static const char *digits_of(int number, char digits[16]) {
    size_t at = 16;
    digits[--at] = 0;
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0 && at > 0);
    return &digits[at];
}

static void write_totals(void) {
    char digits[16];
    write_text(digits_of(totals[TEST_PASSED], digits));
    write_text(" passed, ");
    write_text(digits_of(totals[TEST_FAILED], digits));
    write_text(" failed, ");
    write_text(digits_of(totals[TEST_SKIPPED], digits));
    write_text(" skipped\n");
}

/* In one write, so that other tests' lines stay apart. */
static void write_end(int signal_number) {
    char line[RUNNER_NAME_BYTES + 64], digits[16];
    bool hung = signal_number == SIGALRM;
    strcpy(line, "FAIL ");
    strcat(line, name);
    strcat(line, hung ? ": did not end, seconds " : ": crashed, signal ");
    strcat(line, digits_of(hung ? (int)timeout_s : signal_number, digits));
    strcat(line, "\n");
    write_text(line);
}

static void on_signal(int signal_number) {
    write_end(signal_number);
    if (own != NULL) {
        own->named = 1;
        _exit(1);
    }
    totals[TEST_FAILED] = totals[TEST_FAILED] + 1;
    write_totals();
    _exit(1);
}

static void install_handlers(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND};
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGABRT, &action, NULL);
    if (test_is_sanitized()) return; /* they report these better */
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGFPE, &action, NULL);
    sigaction(SIGILL, &action, NULL);
    sigaction(SIGTRAP, &action, NULL);
}

/* ---- one test -------------------------------------------------------------------------------- */

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static double ms_of(struct timeval time) {
    return (double)time.tv_sec * 1e3 + (double)time.tv_usec * 1e-3;
}

/* The processor's time of this process, or of its children that have ended. */
static double cpu_ms(int who) {
    struct rusage usage;
    if (getrusage(who, &usage) != 0) return 0;
    return ms_of(usage.ru_utime) + ms_of(usage.ru_stime);
}

static double all_cpu_ms(void) {
    return cpu_ms(RUSAGE_SELF) + cpu_ms(RUSAGE_CHILDREN);
}

/* Prints the one line of a test that passed. */
static void run_test(const struct run *run, size_t at) {
    const struct runner_test *test = &run->tests[at % run->count];
    struct record *record = &run->records[at];
    struct test_settings settings = run->options->settings;
    settings.seed += at / run->count;
    test_set_up(&settings);
    memcpy(name, test->name, sizeof name);
    double wall = now_ms(), cpu = all_cpu_ms();
    alarm(run->options->timeout_s);
    record->outcome = test_run(name, test->run);
    alarm(0);
    record->wall_ms = now_ms() - wall;
    record->cpu_ms = all_cpu_ms() - cpu;
    if (record->outcome == TEST_PASSED) {
        printf("ok %s (%.0f ms, %.0f of the processor)\n", name, record->wall_ms, record->cpu_ms);
    }
    fflush(stdout);
    record->ended = 1;
}

static void count_outcome(const struct record *record) {
    enum test_outcome outcome = record->ended ? record->outcome : TEST_FAILED;
    totals[outcome] = totals[outcome] + 1;
}

/* ---- several at a time ----------------------------------------------------------------------- */

/* A process for a test, or a failure of the test where there can be none. */
static void start(struct run *run, struct job *job, size_t at) {
    pid_t parent = getpid();
    fflush(stdout);
    job->at = at;
    job->process = fork();
    if (job->process == 0) {
        own = &run->records[at];
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGHUP, SIG_DFL); /* which nohup has ignored */
        if (getppid() == parent) run_test(run, at);
        _exit(0);
    }
    if (job->process > 0) return;
    job->process = 0;
    printf("FAIL %s: no process: %s\n", run->tests[at % run->count].name, strerror(errno));
    count_outcome(&run->records[at]);
}

/* What a child that said nothing about its end came to. */
static void name_end(const struct run *run, size_t at, int status) {
    const char *test = run->tests[at % run->count].name;
    bool killed = WIFSIGNALED(status);
    printf("FAIL %s: its process ended, %s %d\n", test, killed ? "signal" : "exit status",
           killed ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* NULL: it is no test's. This process may have been another program before, with children. */
static struct job *job_of(struct run *run, pid_t process) {
    for (size_t j = 0; j < RUNNER_JOBS_MAX; j++) {
        if (run->jobs[j].process == process) return &run->jobs[j];
    }
    return NULL;
}

/* Waits until one of the tests has ended, and gives its job; NULL: none runs. */
static struct job *wait_for_one(struct run *run) {
    struct job *job = NULL;
    int status = 0;
    while (job == NULL) {
        pid_t process = waitpid(-1, &status, 0);
        if (process < 0 && errno != EINTR) return NULL;
        if (process > 0) job = job_of(run, process);
    }
    const struct record *record = &run->records[job->at];
    if (!record->ended && !record->named) name_end(run, job->at, status);
    count_outcome(record);
    job->process = 0;
    return job;
}

static struct job *free_job(struct run *run, size_t jobs) {
    for (size_t j = 0; j < jobs; j++) {
        if (run->jobs[j].process == 0) return &run->jobs[j];
    }
    return wait_for_one(run);
}

/* Those that are alone, or all others, at most `jobs` at a time. */
static void run_in_processes(struct run *run, bool alone, size_t jobs) {
    for (size_t at = 0; at < run->count * run->options->repeat; at++) {
        if (run->tests[at % run->count].alone != alone) continue;
        struct job *job = free_job(run, jobs);
        if (job != NULL) start(run, job, at);
    }
    while (wait_for_one(run) != NULL) continue;
}

static void run_here(struct run *run) {
    for (size_t at = 0; at < run->count * run->options->repeat; at++) {
        run_test(run, at);
        count_outcome(&run->records[at]);
    }
}

/* ---- the run --------------------------------------------------------------------------------- */

static int longer_first(const void *left, const void *right) {
    const struct record *a = *(const struct record *const *)left;
    const struct record *b = *(const struct record *const *)right;
    return (a->wall_ms < b->wall_ms) - (a->wall_ms > b->wall_ms);
}

static void print_slowest(const struct run *run) {
    size_t total = run->count * run->options->repeat;
    const struct record **sorted = calloc(total, sizeof(const struct record *));
    if (sorted == NULL) return;
    for (size_t at = 0; at < total; at++) sorted[at] = &run->records[at];
    qsort(sorted, total, sizeof *sorted, longer_first);
    printf("the slowest:\n%10s %10s\n", "ms", "processor");
    for (size_t i = 0; i < total && i < run->options->slowest; i++) {
        size_t at = (size_t)(sorted[i] - run->records);
        printf("%10.0f %10.0f  %s\n", sorted[i]->wall_ms, sorted[i]->cpu_ms,
               run->tests[at % run->count].name);
    }
    free(sorted);
}

void runner_run(const struct runner_test *tests, size_t count,
                const struct runner_options *options) {
    struct run run = {tests, count, options, NULL, {{0}}};
    for (int i = 0; i < TEST_OUTCOME_COUNT; i++) totals[i] = 0;
    own = NULL;
    size_t bytes = count * options->repeat * sizeof *run.records;
    if (bytes == 0) return;
    void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        printf("FAIL tests: no memory for the records of %zu tests\n", count);
        totals[TEST_FAILED] = 1;
        return;
    }
    run.records = shared;
    timeout_s = (sig_atomic_t)options->timeout_s;
    install_handlers();
    double wall = now_ms();
    if (options->jobs > 1) {
        run_in_processes(&run, false, options->jobs);
        run_in_processes(&run, true, 1);
    } else {
        run_here(&run);
    }
    if (options->slowest > 0) print_slowest(&run);
    printf("%.1f s, %.1f s of the processor, jobs: %u\n", (now_ms() - wall) * 1e-3,
           all_cpu_ms() * 1e-3, options->jobs);
    munmap(shared, bytes);
}

int runner_end(void) {
    fflush(stdout);
    write_totals();
    return totals[TEST_FAILED] > 0 || totals[TEST_PASSED] + totals[TEST_SKIPPED] == 0 ? 1 : 0;
}
