/* SPDX-License-Identifier: MIT */
/* The installed command, run and read. */
#include "cli/cli.h"
#include "io/archive.h"
#include "io/io_faults.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- running ---- */

enum { ARGUMENTS_BYTES = 3072 };

static void print_arguments(char *to, const char *file, int line, const char *format,
                            va_list list) {
    int length = vsnprintf(to, ARGUMENTS_BYTES, format, list);
    if (length < 0 || length >= ARGUMENTS_BYTES)
        test_fail(file, line, "the arguments are too long");
}

void cli_run_at(const char *file, int line, struct cli_run *run, const char *format, ...) {
    char arguments[ARGUMENTS_BYTES];
    va_list list;
    va_start(list, format);
    print_arguments(arguments, file, line, format, list);
    va_end(list);
    run->code = test_shell(run->output, sizeof run->output, "{ '%s/bin/weir' %s; }",
                           test_install_prefix(), arguments);
}

void cli_run_in(const char *folder, struct cli_run *run, const char *format, ...) {
    char arguments[ARGUMENTS_BYTES];
    va_list list;
    va_start(list, format);
    print_arguments(arguments, __FILE__, __LINE__, format, list);
    va_end(list);
    run->code = test_shell(run->output, sizeof run->output, "cd '%s' && { '%s/bin/weir' %s; }",
                           folder, test_install_prefix(), arguments);
}

bool cli_do(const char *folder, const char *format, ...) {
    char command[ARGUMENTS_BYTES], output[1024];
    va_list list;
    va_start(list, format);
    print_arguments(command, __FILE__, __LINE__, format, list);
    va_end(list);
    int code = test_shell(output, sizeof output, "cd '%s' && { %s; }", folder, command);
    if (code != 0) TEST_FAIL("%s: exit code %d: %s", command, code, output);
    return code == 0;
}

bool cli_code_at(const char *file, int line, const struct cli_run *run, int wanted) {
    if (run->code == wanted) return true;
    size_t length = strlen(run->output), shown = length > 600 ? 600 : length;
    test_fail(file, line, "exit code %d, not %d: ...%s", run->code, wanted,
              run->output + length - shown);
    return false;
}

const char *cli_launcher(void) {
    static char text[1024];
    const char *folder = test_mpi_path();
    snprintf(text, sizeof text,
             "%s%s%s export HYDRA_LAUNCHER=fork OMPI_ALLOW_RUN_AS_ROOT=1 "
             "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1; mpiexec",
             folder != NULL ? "unset WEIR_MPI; PATH='" : "", folder != NULL ? folder : "",
             folder != NULL ? "/bin':$PATH;" : "");
    return text;
}

bool cli_run_ranks(struct cli_run *run, const char *folder, uint32_t ranks, const char *format,
                   ...) {
    const char *prefix = test_install_prefix();
    char arguments[2048];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    if (prefix == NULL || test_is_sanitized()) {
        test_skip(prefix == NULL ? "no installed command: run by 'zig build test'"
                                 : "a sanitizer looks into MPI's own memory too");
        return false;
    }
    EXPECT(length >= 0 && (size_t)length < sizeof arguments);
    run->code =
        test_shell(run->output, sizeof run->output, "{ cd '%s' && %s -n %u '%s/bin/weir' %s; }",
                   folder, cli_launcher(), ranks, prefix, arguments);
    bool none = strstr(run->output, "mpiexec: not found") != NULL ||
                strstr(run->output, "no MPI library") != NULL;
    if (none && test_mpi_path() == NULL) test_skip("there is no MPI here");
    return !none || test_mpi_path() != NULL;
}

pid_t cli_start(int output, const char *format, ...) {
    char arguments[3072], command[4096];
    va_list list;
    va_start(list, format);
    vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    snprintf(command, sizeof command, "exec '%s/bin/weir' %s", test_install_prefix(), arguments);
    fflush(stdout);
    pid_t process = fork();
    if (process != 0) {
        if (process < 0) TEST_FAIL("fork: %s", strerror(errno));
        return process;
    }
    int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(output >= 0 ? output : null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

int cli_wait(pid_t process) {
    int status = 0;
    for (uint32_t i = 0; i < 300000 / 5 && waitpid(process, &status, WNOHANG) == 0; i++) {
        if (i + 1 == 300000 / 5) {
            TEST_FAIL("the command did not end within five minutes");
            kill(process, SIGKILL);
            waitpid(process, &status, 0);
            break;
        }
        cli_sleep_ms(5);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void cli_sleep_ms(unsigned ms) {
    struct timespec time = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&time, NULL);
}

bool cli_catches(pid_t process, int signal_number) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%ld/status", (long)process);
    for (uint32_t i = 0; i < 60000; i++, cli_sleep_ms(1)) {
        FILE *file = fopen(path, "r");
        unsigned long long caught = 0;
        while (file != NULL && fgets(line, sizeof line, file) != NULL)
            if (strncmp(line, "SigCgt:", 7) == 0) caught = strtoull(line + 7, NULL, 16);
        if (file != NULL) fclose(file);
        if (caught >> (signal_number - 1) & 1) return true;
        if (kill(process, 0) != 0) break;
    }
    TEST_FAIL("the command does not catch signal %d", signal_number);
    return false;
}

/* ---- making ---- */

void cli_write(const char *folder, const char *name, const char *text) {
    char path[512];
    io_make_file(folder, name, text, strlen(text), path);
}

const char *cli_make_model(const char *config, const char *family) {
    static struct cli_run run;
    const char *folder = test_temporary_directory();
    EXPECT(cli_do(folder, "mkdir model"));
    if (family != NULL)
        EXPECT(cli_do(".", "cp tests/golden/tokenizers/%s.json %s/model/tokenizer.json", family,
                      folder));
    cli_write(folder, "model/config.json", config);
    cli_run_in(folder, &run, "init --model model --out model/model.safetensors --seed 3");
    EXPECT_EQ_INT(run.code, 0);
    return folder;
}

/* Sentences of a few words, drawn by a small generator: a bigram model finds much in them. */
static void make_text(char *text, size_t bytes, uint32_t state) {
    static const char *const words[] = {"stage ",  "forward ", "pipe ",     "of ", "the ",
                                        "weir.\n", "water ",   "gradient ", "is ", "kept "};
    size_t used = 0;
    while (used + 1 < bytes) {
        state = state * 1664525u + 1013904223u;
        const char *word = words[(state >> 24) % 10];
        used += (size_t)snprintf(text + used, bytes - used, "%s", word);
    }
}

const char *cli_text(void) {
    static char text[10240];
    const char *directory = test_temporary_directory();
    char path[512];
    for (uint32_t i = 0; directory != NULL && i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "%u.txt", i);
        make_text(text, sizeof text, i + 1);
        io_make_file(directory, name, text, sizeof text - 1, path);
    }
    return directory;
}

void cli_make_data(const char *directory, const char *name, int64_t rows, int64_t target_rows,
                   char path[512]) {
    static int64_t numbers[512];
    struct weir__io io = {.allocator = test_allocator()};
    for (uint32_t i = 0; i < 512; i++) numbers[i] = (int64_t)((i * 2654435761u) >> 20) % 32;
    struct weir__safetensors_item items[] = {
        {.name = "input", .dtype = WEIR_I64, .rank = 2, .shape = {rows, 8}, .data = numbers},
        {.name = "target",
         .dtype = WEIR_I64,
         .rank = 2,
         .shape = {target_rows, 8},
         .data = numbers + 1}};
    snprintf(path, 512, "%s/%s", directory, name);
    EXPECT_STATUS(weir__safetensors_save(&io, path, items, 2, NULL, 0), WEIR_OK);
}

/* ---- reading ---- */

struct weir__safetensors *cli_open(const char *path) {
    struct weir_error error = {0};
    struct weir__io io = {.allocator = test_allocator(), .error = &error};
    struct weir__safetensors *file;
    if (weir__safetensors_open(&io, path, NULL, &file) == WEIR_OK) return file;
    TEST_FAIL("%s", error.message);
    return NULL;
}

int64_t cli_saved_step(const char *path) {
    if (access(path, F_OK) != 0) return -1;
    struct weir__io io = {.allocator = test_allocator()};
    struct weir__archive *file;
    if (!EXPECT_STATUS(weir__archive_open(&io, path, &file), WEIR_OK)) return -2;
    const char *step = weir__archive_metadata(file, "step");
    int64_t number = step == NULL ? -2 : strtoll(step, NULL, 10);
    if (step == NULL) TEST_FAIL("%s: no step in its metadata", path);
    weir__archive_close(file);
    return number;
}

char *cli_read(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    size_t used = 0, got = 1;
    while (file != NULL && got > 0) {
        char *more = realloc(text, used + (1 << 16) + 1);
        if (more == NULL) break;
        text = more;
        got = fread(text + used, 1, 1 << 16, file);
        used += got;
        text[used] = '\0';
    }
    if (file != NULL) fclose(file);
    if (bytes != NULL) *bytes = used;
    return text;
}

bool cli_same_files(const char *a, const char *b) {
    size_t left_bytes, right_bytes;
    char *left = cli_read(a, &left_bytes), *right = cli_read(b, &right_bytes);
    bool same = left != NULL && right != NULL && EXPECT_EQ_UINT(left_bytes, right_bytes) &&
                EXPECT_EQ_BYTES(left, right, left_bytes);
    if (left == NULL || right == NULL) TEST_FAIL("cannot read %s", left == NULL ? a : b);
    free(left);
    free(right);
    return same;
}

json_t *cli_json(const char *path) {
    json_error_t error;
    json_t *json = json_load_file(path, 0, &error);
    if (json == NULL) TEST_FAIL("%s: %s, line %d", path, error.text, error.line);
    return json;
}

json_t *cli_json_lines(const char *path) {
    char *text = cli_read(path, NULL);
    json_t *lines = json_array();
    for (char *line = text, *end; line != NULL && *line != '\0'; line = end + 1) {
        json_error_t error;
        end = strchr(line, '\n');
        if (end == NULL) {
            TEST_FAIL("%s: its last line does not end: %s", path, line);
            break;
        }
        *end = '\0';
        json_t *value = json_loads(line, JSON_ALLOW_NUL, &error);
        if (value == NULL) TEST_FAIL("%s: %s in: %s", path, error.text, line);
        if (value != NULL) json_array_append_new(lines, value);
    }
    if (text == NULL) TEST_FAIL("cannot read %s", path);
    free(text);
    return lines;
}

uint32_t cli_count(const char *text, const char *part) {
    uint32_t count = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part)) count++;
    return count;
}

uint32_t cli_count_ids(const char *folder, const char *name) {
    static struct cli_run run;
    cli_run_in(folder, &run, "tokenize --model model --file %s 2>/dev/null", name);
    EXPECT_EQ_INT(run.code, 0);
    EXPECT(strlen(run.output) + 1 < sizeof run.output);
    return cli_count(run.output, "\n");
}

double cli_loss_of_line(const char *folder, const char *name, size_t line) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    json_t *lines = cli_json_lines(path);
    double loss = NAN;
    if (lines != NULL) loss = cli_number(json_array_get(lines, line), "loss");
    json_decref(lines);
    return loss;
}

double cli_number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (json_is_number(value)) return json_number_value(value);
    TEST_FAIL("'%s' is %s", key, value == NULL ? "missing" : "no number");
    return NAN;
}

void cli_same_exported(struct cli_run *run, const char *alone, const char *together) {
    char exported[600];
    snprintf(exported, sizeof exported, "%s.exported", together);
    CLI_CODE(run, 0, "export --load %s --out %s", together, exported);
    cli_same_files(alone, exported);
}
