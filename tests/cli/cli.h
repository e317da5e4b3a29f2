/* SPDX-License-Identifier: MIT */
/**
 * What the tests of the installed command share: running it as a person would, reading what it
 * wrote, and small models, texts and data to give it. Paths are in the test's temporary
 * directories.
 */
#ifndef WEIR_TESTS_CLI_H
#define WEIR_TESTS_CLI_H

#include "harness.h"
#include "io/safetensors.h"

#include <jansson.h>
#include <sys/types.h>

/** A model whose steps take microseconds, not bound to cores so that tests disturb nobody. */
#define CLI_MODEL "--layers 2 --width 16 --heads 2 --context 8 --threads-per-stage 1 --bind none"
/** The same for `train`: 5 rows in micro-batches of 2, 2 and 1. */
#define CLI_TRAIN CLI_MODEL " --batch 5 --chunks 3 --eval-batches 1 --sample 0"
/** Of CLI_MODEL: embedding, two blocks, head. */
#define CLI_LAYERS 4

struct cli_run {
    char output[1 << 16];
    int code;
};

/** Runs `weir ARGUMENTS` (printf-like; redirections may stand in them) by sh; what it prints is in
 * `output`. Skips the test where no command is installed. */
#define CLI(run, ...)                                                                              \
    do {                                                                                           \
        if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");         \
        cli_run_at(__FILE__, __LINE__, (run), __VA_ARGS__);                                        \
    } while (0)
/** The same, and checks the exit code; what was printed is shown if it is another. */
#define CLI_CODE(run, wanted, ...)                                                                 \
    do {                                                                                           \
        CLI(run, __VA_ARGS__);                                                                     \
        TEST_RETURN_UNLESS(cli_code_at(__FILE__, __LINE__, (run), (wanted)));                      \
    } while (0)

/** The same in `folder`, whose files then need no path. */
#define CLI_CODE_IN(folder, run, wanted, ...)                                                      \
    do {                                                                                           \
        if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");         \
        cli_run_in((folder), (run), __VA_ARGS__);                                                  \
        TEST_RETURN_UNLESS(cli_code_at(__FILE__, __LINE__, (run), (wanted)));                      \
    } while (0)

void cli_run_at(const char *file, int line, struct cli_run *run, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void cli_run_in(const char *folder, struct cli_run *run, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** Runs a printf-like command by sh in `folder`; the test fails unless it ends with 0. */
bool cli_do(const char *folder, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool cli_code_at(const char *file, int line, const struct cli_run *run, int wanted);

/** Writes a text to FOLDER/NAME; the test fails unless that works. */
void cli_write(const char *folder, const char *name, const char *text);
/** Makes FOLDER/model of config.json, tokenizer.json, which is tests/golden/tokenizers/FAMILY.json
 * (NULL: none), and random weights. Returns FOLDER, which is the test's. */
const char *cli_make_model(const char *config, const char *family);
/** A folder of small text files, some 30 KB, always the same. */
const char *cli_text(void);
/** Writes tensors `input` and `target` for CLI_MODEL with --vocab 32 to DIRECTORY/NAME; the path
 * into `path`. `target_rows` may differ from `rows` to be refused. */
void cli_make_data(const char *directory, const char *name, int64_t rows, int64_t target_rows,
                   char path[512]);

/** What starts ranks, for sh: an mpiexec that may start as many as it is told, and its variables.
 */
const char *cli_launcher(void);
/** Runs `weir ARGUMENTS` (printf-like) as `ranks` processes in the folder; false: the test has
 * ended as skipped, for there is no MPI. */
bool cli_run_ranks(struct cli_run *run, const char *folder, uint32_t ranks, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/** Starts `weir ARGUMENTS` in the background, its stdout to `output` (-1: nowhere). */
pid_t cli_start(int output, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** Waits for its end, a minute at most; the exit code, or 128 + signal. */
int cli_wait(pid_t process);
void cli_sleep_ms(unsigned ms);
/** Waits until the process catches the signal, as Linux tells; false if it ended before. */
bool cli_catches(pid_t process, int signal_number);

/** `step` of a training checkpoint; -1: no file, -2: a file that is not whole (the test fails). */
int64_t cli_saved_step(const char *path);
/** Opens a safetensors file with the test's allocator; NULL (and the test failed) if it cannot. */
struct weir__safetensors *cli_open(const char *path);
/** The whole file, a zero behind it; free() it. NULL if it cannot be read. */
char *cli_read(const char *path, size_t *bytes);
/** Fails the test unless both files hold the same bytes. */
bool cli_same_files(const char *a, const char *b);
/** The same of `alone` and the one file that `weir export` makes of `together`, a folder. */
void cli_same_exported(struct cli_run *run, const char *alone, const char *together);
/** One JSON document; NULL (and the test failed) if it is none. json_decref it. */
json_t *cli_json(const char *path);
/** A file of JSON lines as an array; json_decref it. */
json_t *cli_json_lines(const char *path);
/** A member that must be a number (of any kind), or NaN and the test failed. */
double cli_number(const json_t *object, const char *key);
/** How often `part` stands in the text; no two overlap. */
uint32_t cli_count(const char *text, const char *part);
/** How many tokens FOLDER/NAME is by FOLDER/model, as `weir tokenize` says. */
uint32_t cli_count_ids(const char *folder, const char *name);
/** The loss of a line, from 0, of what --json wrote at folder/name. */
double cli_loss_of_line(const char *folder, const char *name, size_t line);

#endif
