/* SPDX-License-Identifier: MIT */
/*
 * Goal: who waits for a training run sees how far it is, and how long it will take: on a terminal
 * in one line, elsewhere in few; and the metrics can be followed by other programs. Method: the
 * installed command on a pseudo-terminal and behind a pipe; its event files are read here by the
 * rules of TFRecord and protobuf, and compared with what `--json` says.
 */
#include "../../tools/cli/event_file.c"
#include "../../tools/cli/progress.c"
#include "cli/cli_terminal.h"

#include <glob.h>
#include <math.h>

#define NEEDS_COMMAND                                                                              \
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'")
#define TERMINAL "NO_COLOR=1 TERM=xterm"

static struct cli_terminal terminal;

/* ---- times ---- */

static void test_times_read_as_people_say_them(void) {
    static const struct {
        double seconds;
        const char *text, *clock;
    } cases[] = {{0, "0 s", "0:00"},
                 {3.12e-5, "31.2 us", "0:00"},
                 {0.2914, "291.4 ms", "0:00"},
                 {0.99996, "1 s", "0:01"},
                 {12.3456, "12.35 s", "0:12"},
                 {59.4, "59.4 s", "0:59"},
                 {59.7, "1:00 min", "1:00"},
                 {125, "2:05 min", "2:05"},
                 {3599.7, "1:00 h", "1:00:00"},
                 {11520, "3:12 h", "3:12:00"},
                 {266523, "74:02 h", "3 d 2:02:03"},
                 {NAN, NULL, "-"}};
    char text[32];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (cases[i].text != NULL) EXPECT_EQ_STR(time_text(cases[i].seconds, text), cases[i].text);
        EXPECT_EQ_STR(time_text_clock(cases[i].seconds, text), cases[i].clock);
    }
}

/* ---- the terminal ---- */

static void test_a_terminal_has_one_line_that_renews_itself(void) {
    NEEDS_COMMAND;
    CHECK(cli_terminal_start(&terminal, TERMINAL,
                             "train " CLI_TRAIN " --data %s/0.txt --steps 40 --eval-every 30",
                             cli_text()));
    CHECK_EQ_INT(cli_terminal_end(&terminal), 0);
    CHECK_CONTAINS(terminal.output, "\rupdate 1/40  loss ");
    CHECK_CONTAINS(terminal.output, " tokens/s ");
    CHECK_CONTAINS(terminal.output, " left");
    CHECK_CONTAINS(terminal.output, "\r     30 validation ");
    const char *last = strstr(terminal.output, "\rupdate 40/40  loss ");
    CHECK(last != NULL && strstr(last, "left") == NULL && strchr(last, '\n') != NULL);
    CHECK(cli_count(terminal.output, " loss ") < 20 &&
          strstr(terminal.output, "bubble  hidden") == NULL);
}

static void test_a_line_is_never_wider_than_the_terminal(void) {
    FILE *screen = tmpfile();
    CHECK(screen != NULL);
    struct people people = {.stream = screen, .terminal = true}; /* no terminal: 100 columns */
    struct progress progress;
    char text[1024] = "";
    progress_begin(&progress, &people, 0, 2);
    progress_show(&progress, 1, "%0150d", 0);
    progress_show(&progress, 2, "short");
    progress_clear(&progress);
    rewind(screen);
    size_t bytes = fread(text, 1, sizeof text - 1, screen);
    fclose(screen);
    CHECK(bytes > 200 && text[0] == '\r' && text[100] == '\r');
    CHECK_EQ_UINT(strspn(text + 1, "0"), 99);
    CHECK(strncmp(text + 101, "short  0:00", 11) == 0);
    CHECK_EQ_UINT(strspn(text + 112, " "), 99 - 11); /* nothing of the longer line is left */
}

/* ---- elsewhere ---- */

static uint32_t count_lines(const char *text, const char *begin, const char *end) {
    const char *from = strstr(text, begin), *to = from != NULL ? strstr(from, end) : NULL;
    uint32_t count = 0;
    if (!EXPECT(from != NULL && to != NULL)) return 0;
    for (; from < to; from++) count += *from == '\n';
    return count - 1;
}

static void test_elsewhere_lines_come_by_time_or_as_asked(void) {
    NEEDS_COMMAND;
    struct cli_run run;
    const char *text = cli_text();
    CLI_CODE(&run, 0, "train " CLI_TRAIN " --data %s/0.txt --steps 200", text);
    uint32_t lines = count_lines(run.output, " update      loss", "\nthe last update\n");
    CHECK(lines >= 2 && lines < 20); /* the first and the last, unless seconds pass */
    CHECK(strchr(run.output, '\r') == NULL);
    CLI_CODE(&run, 0, "train " CLI_TRAIN " --data %s/0.txt --steps 7 --log-every 2", text);
    CHECK_EQ_UINT(count_lines(run.output, " update      loss", "\nthe last update\n"), 4);
    CLI_CODE(&run, 0, "train " CLI_TRAIN " --data %s/0.txt --steps 3 --quiet --json %s/j 2>&1",
             text, text);
    CHECK_EQ_STR(run.output, "");
    char path[512];
    snprintf(path, sizeof path, "%s/j", text);
    json_t *json = cli_json_lines(path);
    CHECK_EQ_UINT(json_array_size(json), 4);
    json_decref(json);
}

/* ---- event files ---- */

static void test_checksums_are_crc_32c(void) {
    static const unsigned char zeros[32];
    CHECK_EQ_UINT(event_file_crc("123456789", 9), 0xe3069283u); /* RFC 3720, B.4 */
    CHECK_EQ_UINT(event_file_crc(zeros, sizeof zeros), 0x8a9136aau);
}

/* A field of a protobuf message. */
struct field {
    uint64_t number, value; /* of BYTES the length */
    const unsigned char *bytes;
};

static uint64_t get_varint(const unsigned char **at) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        value |= (uint64_t)(**at & 127) << shift;
        if (*(*at)++ < 128) break;
    }
    return value;
}

static bool next_field(const unsigned char **at, const unsigned char *end, struct field *field) {
    if (*at >= end) return false;
    uint64_t key = get_varint(at), type = key & 7;
    *field = (struct field){.number = key >> 3};
    if (type == 0) {
        field->value = get_varint(at);
    } else if (type == 2) {
        field->value = get_varint(at);
        field->bytes = *at;
        *at += field->value;
    } else {
        memcpy(&field->value, *at, type == 1 ? 8 : 4);
        *at += type == 1 ? 8 : 4;
    }
    return EXPECT(*at <= end && (type == 0 || type == 1 || type == 2 || type == 5));
}

struct scalar_event {
    char tag[64];
    uint64_t step;
    float value;
};

/* All scalars of an event file, and what its first two records say. */
struct events {
    struct scalar_event list[256];
    uint32_t count, records;
    uint64_t restarted; /* the step of SessionLog.START */
};

static void read_summary(struct events *events, uint64_t step, const struct field *summary) {
    const unsigned char *at = summary->bytes;
    struct field value, member;
    while (next_field(&at, summary->bytes + summary->value, &value)) {
        struct scalar_event *event = &events->list[events->count++];
        const unsigned char *inner = value.bytes;
        EXPECT_EQ_UINT(value.number, 1);
        event->step = step;
        while (next_field(&inner, value.bytes + value.value, &member)) {
            uint32_t bits = (uint32_t)member.value;
            if (member.number == 1)
                snprintf(event->tag, sizeof event->tag, "%.*s", (int)member.value, member.bytes);
            if (member.number == 2) memcpy(&event->value, &bits, 4);
        }
    }
}

static void read_event(struct events *events, const unsigned char *message, size_t bytes) {
    const unsigned char *at = message;
    struct field field;
    uint64_t step = 0;
    while (next_field(&at, message + bytes, &field)) {
        double seconds;
        memcpy(&seconds, &field.value, 8);
        if (field.number == 1) EXPECT(seconds > 1.5e9 && seconds < 1e11);
        if (field.number == 2) step = field.value;
        if (field.number == 3)
            EXPECT(events->records == 0 && field.value == 13 &&
                   memcmp(field.bytes, "brain.Event:2", 13) == 0);
        if (field.number == 5) read_summary(events, step, &field);
        if (field.number == 7) {
            EXPECT(events->records == 1 && field.value == 2 && field.bytes[1] == 1);
            events->restarted = step;
        }
    }
    events->records++;
}

static uint32_t checked_mask(const void *data, size_t bytes) {
    uint32_t crc = event_file_crc(data, bytes);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static void read_events(const char *folder, struct events *events) {
    char pattern[512];
    glob_t found;
    size_t bytes = 0;
    *events = (struct events){.count = 0};
    snprintf(pattern, sizeof pattern, "%s/events.out.tfevents.*", folder);
    if (!EXPECT_EQ_INT(glob(pattern, 0, NULL, &found), 0)) return;
    EXPECT_EQ_UINT(found.gl_pathc, 1);
    char *file = cli_read(found.gl_pathv[0], &bytes);
    globfree(&found);
    for (size_t at = 0; file != NULL && at < bytes && !test_has_failed();) {
        uint64_t length;
        uint32_t crc[2];
        memcpy(&length, file + at, 8);
        if (!EXPECT(length <= bytes - at - 16)) break;
        memcpy(&crc[0], file + at + 8, 4);
        memcpy(&crc[1], file + at + 12 + length, 4);
        EXPECT_EQ_UINT(crc[0], checked_mask(file + at, 8));
        EXPECT_EQ_UINT(crc[1], checked_mask(file + at + 12, length));
        read_event(events, (const unsigned char *)file + at + 12, length);
        at += length + 16;
    }
    free(file);
}

static void check_event(const struct events *events, const char *tag, uint64_t step, double value) {
    for (uint32_t i = 0; i < events->count; i++) {
        const struct scalar_event *event = &events->list[i];
        if (strcmp(event->tag, tag) != 0 || event->step != step) continue;
        EXPECT_NEAR(event->value, value, 1e-6 * fabs(value));
        return;
    }
    TEST_FAIL("no event %s of update %u", tag, (unsigned)step);
}

static void test_events_and_csv_say_what_json_says(void) {
    NEEDS_COMMAND;
    struct cli_run run;
    static struct events events;
    char path[512];
    const char *text = cli_text();
    CLI_CODE(&run, 0,
             "train " CLI_TRAIN " --data %s/0.txt --steps 5 --eval-every 2 --log-dir %s/a/b --json "
             "%s/j",
             text, text, text);
    snprintf(path, sizeof path, "%s/j", text);
    json_t *lines = cli_json_lines(path);
    snprintf(path, sizeof path, "%s/a/b", text);
    read_events(path, &events);
    CHECK_EQ_UINT(events.restarted, 1);
    CHECK_EQ_UINT(events.count, 5 * 4 + 3);
    snprintf(path, sizeof path, "%s/a/b/metrics.csv", text);
    FILE *csv = fopen(path, "r");
    char line[512];
    CHECK(csv != NULL && fgets(line, sizeof line, csv) != NULL);
    CHECK_EQ_STR(line, "step,loss,lr,grad_norm,tokens_per_second,validation_loss\n");
    for (uint32_t i = 0; i < 5; i++) {
        const json_t *wanted = json_array_get(lines, i);
        double loss = cli_number(wanted, "loss"), lr, norm, rate, found, score = NAN;
        unsigned step;
        check_event(&events, "train/loss", i + 1, loss);
        check_event(&events, "train/lr", i + 1, cli_number(wanted, "lr"));
        check_event(&events, "train/grad_norm", i + 1, cli_number(wanted, "grad_norm"));
        check_event(&events, "train/tokens_per_second", i + 1,
                    cli_number(wanted, "tokens_per_second"));
        CHECK(fgets(line, sizeof line, csv) != NULL);
        int read = sscanf(line, "%u,%lf,%lf,%lf,%lf,%lf", &step, &found, &lr, &norm, &rate, &score);
        EXPECT_EQ_INT(read, i % 2 == 1 ? 6 : 5);
        EXPECT_EQ_UINT(step, i + 1);
        EXPECT_NEAR(found, loss, 1e-8 * loss);
        EXPECT_NEAR(lr, cli_number(wanted, "lr"), 1e-8 * lr);
        EXPECT_NEAR(norm, cli_number(wanted, "grad_norm"), 1e-8 * norm);
        EXPECT_NEAR(rate, cli_number(wanted, "tokens_per_second"), 1e-5 * rate);
        if (i % 2 == 1) {
            EXPECT_NEAR(score, cli_number(wanted, "validation_loss"), 1e-8 * score);
            check_event(&events, "validation/loss", i + 1, score);
        }
    }
    const json_t *summary = json_object_get(json_array_get(lines, 5), "summary");
    check_event(&events, "validation/loss", 5, cli_number(summary, "validation_loss"));
    fclose(csv);
    json_decref(lines);
}

/* A run that died after its checkpoint: what it logged since is logged once. */
static void test_a_resumed_run_goes_on_in_its_log(void) {
    NEEDS_COMMAND;
    struct cli_run run;
    const char *text = cli_text();
#define RUN "train " CLI_TRAIN " --data 0.txt --lr-schedule constant --log-dir "
    CLI_CODE_IN(text, &run, 0, RUN "whole --steps 6");
    CLI_CODE_IN(text, &run, 0, RUN "cut --steps 3 --save s");
    CLI_CODE_IN(text, &run, 0, RUN "cut --steps 5 --resume s");
    CLI_CODE_IN(text, &run, 0, RUN "cut --steps 6 --resume s");
    /* all but speed and the validations at the ends */
    CHECK(cli_do(text, "for i in whole cut; do grep -v ',,,,' $i/metrics.csv | cut -d, -f1-4 "
                       ">$i.txt; done; cmp whole.txt cut.txt && test $(wc -l <cut.txt) = 7"));
    CLI_CODE_IN(text, &run, 2, RUN "cut --steps 3");
    CHECK_CONTAINS(run.output, "holds the log of another run (metrics.csv): name another folder");
    CLI_CODE_IN(text, &run, 2, RUN "s --steps 3");
    CHECK_CONTAINS(run.output, "s is a file: name a folder");
    CLI_CODE_IN(text, &run, 2, RUN "s/below --level sse --schedule none");
    CHECK_CONTAINS(run.output, "--log-dir s/below: Not a directory: choose another folder");
    CHECK_CONTAINS(run.output, "there is no such level");
    CHECK_CONTAINS(run.output, "there is no schedule 'none'");
    CLI_CODE_IN(text, &run, 2, RUN "/proc/weir --steps 3"); /* as root, only trying tells */
    CHECK_CONTAINS(run.output, "--log-dir /proc/weir: ");
}

WEIR_TEST_SUITE(progress, TEST(times_read_as_people_say_them),
                TEST(a_terminal_has_one_line_that_renews_itself),
                TEST(a_line_is_never_wider_than_the_terminal),
                TEST(elsewhere_lines_come_by_time_or_as_asked), TEST(checksums_are_crc_32c),
                TEST(events_and_csv_say_what_json_says), TEST(a_resumed_run_goes_on_in_its_log))
