/* SPDX-License-Identifier: MIT */
/*
 * Goal: the page says what the snapshot says, and no text can break it. Method: pages are read back
 * by a reader that accepts only sound HTML; their outline, all tags and attributes' names, must not
 * depend on any text.
 */
#include "engine/html.h"
#include "engine/report_pipe.h"

#include "schedule/facts.h"
#include "trace/html.h"
#include "trace/page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct report_options plain = {.stages = 2, .workers = 2, .chunks = 4};

/* ---- pages ---- */

static const char *write_page(const struct weir_report_options *options, struct report_sink *sink) {
    sink->used = 0;
    EXPECT_STATUS(weir_report_html(options, report_sink_write, sink), WEIR_OK);
    return sink->text;
}

/* A page with everything on it; the snapshot is the caller's. */
struct whole {
    struct weir_report_options options;
    struct weir_report_series series[3];
    struct weir_report_chart charts[2];
    struct weir_report_fact facts[2];
    struct weir_report_table table;
    const char *notes[4];
    double x[5], y[5];
};

static void make_whole(struct whole *w, const struct weir_snapshot *snapshot, const char *text) {
    static const double x[] = {1, 2, 3, 4, 5}, y[] = {3, 2.5, 2, 2.25, 1.5};
    *w = (struct whole){.options = WEIR_REPORT_OPTIONS_INIT, .notes = {text, text, text, text}};
    memcpy(w->x, x, sizeof x);
    memcpy(w->y, y, sizeof y);
    w->series[0] = (struct weir_report_series){text, w->x, w->y, 5, WEIR_REPORT_LINE};
    w->series[1] = (struct weir_report_series){text, w->x, w->y, 3, WEIR_REPORT_POINTS};
    w->series[2] = (struct weir_report_series){text, NULL, w->y, 1, WEIR_REPORT_LEVEL};
    w->charts[0] = (struct weir_report_chart){text, text, text, w->series, 3, false};
    w->charts[1] = (struct weir_report_chart){text, NULL, NULL, w->series, 1, true};
    w->facts[0] = (struct weir_report_fact){text, text, true};
    w->facts[1] = (struct weir_report_fact){text, text, false};
    w->table = (struct weir_report_table){text, w->facts, 2};
    w->options.title = w->options.summary = w->options.warning = w->options.command = text;
    w->options.snapshot = snapshot;
    w->options.stage_notes = w->notes;
    w->options.figures = w->facts;
    w->options.figure_count = 2;
    w->options.charts = w->charts;
    w->options.chart_count = 2;
    w->options.tables = &w->table;
    w->options.table_count = 1;
}

static bool take(struct report_pipe *p, const struct report_options *options,
                 struct weir_snapshot **snapshot) {
    if (!report_pipe_new(p, options)) return false;
    bool good = EXPECT_STATUS(report_pipe_step(p, p->pipe->setup.options.rows, true), WEIR_OK);
    return EXPECT_STATUS(weir_snapshot_new(p->pipe, 0, test_allocator(), snapshot), WEIR_OK) &&
           good;
}

/* ---- hostile texts ---- */

static void test_no_text_changes_the_page(void) {
    static const char *const hostile[] = {"</script><script>alert(1)</script>",
                                          "</title></style><img src=x onerror=alert(1)>",
                                          "\"><svg onload=alert(1)>' onclick='x' `",
                                          "<!-- <script> <![CDATA[ ]]> -->",
                                          "&lt;script&gt; &amp; &#60; &",
                                          "\x01\x02\x08\x0b\x1b[31m\x7f \xc2\x85 \xc2\x9b",
                                          "\xff\xc0\xaf\xed\xa0\x80\xf4\x90\xe2\x82",
                                          "\xe2\x80\xae reversed \xe2\x80\xa8 line",
                                          ""};
    const char *names[2] = {"a", "b"};
    struct report_options options = plain;
    struct report_sink sink = report_sink_new();
    char *outline = NULL;
    for (size_t i = 0; i <= WEIR__COUNT_OF(hostile); i++) {
        const char *text = i == 0 ? "harmless" : hostile[i - 1];
        struct report_pipe p;
        struct weir_snapshot *snapshot;
        struct whole whole;
        static struct report_times times;
        names[0] = names[1] = text;
        options.names = names;
        CHECK(report_pipe_new(&p, &options));
        CHECK_OK(report_pipe_step(&p, REPORT_ROWS, true));
        if (i == 0) report_times_draw(&times, &p, 1000); /* the same times for all */
        times.plan = p.pipe->prepared[0];
        times.table = times.plan->table;
        report_times_simulate(&times);
        report_times_stamp(&times, &p, 1000);
        CHECK_OK(weir_snapshot_new(p.pipe, 0, test_allocator(), &snapshot));
        make_whole(&whole, snapshot, text);
        const char *page = write_page(&whole.options, &sink);
        char *own = html_outline(page);
        json_t *data = html_data(page);
        EXPECT_EQ_UINT(html_count(page, "<script"), 2);
        if (outline == NULL) outline = own, own = NULL;
        if (own != NULL) EXPECT_EQ_STR(own, outline);
        free(own);
        json_decref(data);
        weir_snapshot_destroy(snapshot);
        report_pipe_destroy(&p);
    }
    free(outline);
    report_sink_destroy(&sink);
}

static void test_texts_are_shown_as_they_are(void) {
    static const char text[] = "weir train --data 'a<b>&\"c\"' µ\n\xff";
    struct weir_report_options options = WEIR_REPORT_OPTIONS_INIT;
    struct report_sink sink = report_sink_new();
    options.command = text;
    char *shown = html_text_of(write_page(&options, &sink), "command");
    EXPECT_EQ_STR(shown, "weir train --data 'a<b>&\"c\"' µ\n\xef\xbf\xbd");
    free(shown);
    report_sink_destroy(&sink);
}

static void test_the_page_asks_for_nothing(void) {
    static const char *const reaching[] = {" src=",   " href=",  "@import", "url(",      "fetch(",
                                           "XMLHttp", "import(", "http:",   "https:",    "<link",
                                           "<img",    "<iframe", "<object", "innerHTML", "eval("};
    struct report_pipe p;
    struct weir_snapshot *snapshot;
    struct report_sink sink = report_sink_new();
    struct whole whole;
    CHECK(take(&p, &plain, &snapshot));
    make_whole(&whole, snapshot, "text");
    const char *page = write_page(&whole.options, &sink);
    for (size_t i = 0; i < WEIR__COUNT_OF(reaching); i++)
        if (strstr(page, reaching[i]) != NULL) TEST_FAIL("the page holds '%s'", reaching[i]);
    EXPECT_CONTAINS(page, "content=\"default-src 'none';");
    weir_snapshot_destroy(snapshot);
    report_pipe_destroy(&p);
    report_sink_destroy(&sink);
}

/* ---- the data ---- */

static int64_t item(const json_t *array, size_t index) {
    return json_integer_value(json_array_get(array, index));
}

static void check_worker(const json_t *data, const struct weir_snapshot *s, uint32_t w) {
    const json_t *worker = json_array_get(json_object_get(data, "workers"), w);
    const json_t *memory = json_object_get(worker, "memory");
    const struct weir_worker_time *time = &s->report.workers[w];
    const struct {
        const char *key;
        double value;
    } parts[] = {{"busy", time->busy},
                 {"idle", time->idle},
                 {"dependency", time->dependency},
                 {"copy", time->copy},
                 {"host", time->host},
                 {"imbalance", time->imbalance},
                 {"peak", (double)s->workers[w].peak},
                 {"planned", (double)s->workers[w].plan.total},
                 {"lasting", (double)s->workers[w].lasting}};
    for (size_t i = 0; i < WEIR__COUNT_OF(parts); i++)
        CHECK_NEAR(json_number_value(json_object_get(worker, parts[i].key)), parts[i].value,
                   1e-8 * fabs(parts[i].value));
    CHECK_EQ_UINT(json_array_size(memory), s->workers[w].memory_count);
    for (uint32_t i = 0; i < s->workers[w].memory_count; i++) {
        const json_t *point = json_array_get(memory, i);
        const struct weir_snapshot_memory *m = &s->workers[w].memory[i];
        CHECK_EQ_INT(item(point, 0), (int64_t)m->ns);
        CHECK_EQ_INT(item(point, 1), (int64_t)m->activations);
        CHECK_EQ_INT(item(point, 2), (int64_t)m->borders);
        CHECK_EQ_INT(item(point, 3), (int64_t)m->portals);
        CHECK_EQ_INT(item(point, 4), (int64_t)m->workspace);
    }
}

static void check_action(const json_t *data, const struct weir_snapshot *s, uint32_t i) {
    const json_t *row = json_array_get(json_object_get(data, "actions"), i);
    const struct weir_snapshot_action *a = &s->actions[i];
    const int64_t expected[] = {a->worker,
                                a->action.kind,
                                a->action.stage,
                                a->action.micro_batch,
                                (int64_t)a->waited,
                                (int64_t)a->start,
                                (int64_t)a->end,
                                (int64_t)a->waiting,
                                (int64_t)a->copy,
                                (int64_t)a->host,
                                a->waited_for,
                                a->awaited == WEIR_NO_ACTION ? -1 : (int64_t)a->awaited,
                                a->cause};
    CHECK_EQ_UINT(json_array_size(row), WEIR__COUNT_OF(expected));
    for (size_t k = 0; k < WEIR__COUNT_OF(expected); k++) CHECK_EQ_INT(item(row, k), expected[k]);
}

static void test_the_data_are_the_snapshots(void) {
    struct report_options options = {.stages = 4,
                                     .workers = 2,
                                     .chunks = 5,
                                     .checkpoint = WEIR_CHECKPOINT_ALWAYS,
                                     .copies = true,
                                     .schedule = "gpipe"};
    struct report_pipe p;
    struct weir_snapshot *s;
    struct report_sink sink = report_sink_new();
    struct whole whole;
    CHECK(take(&p, &options, &s));
    make_whole(&whole, s, "text");
    json_t *data = html_data(write_page(&whole.options, &sink));
    EXPECT_EQ_INT(json_integer_value(json_object_get(data, "step")), (int64_t)s->step);
    EXPECT_EQ_INT(json_integer_value(json_object_get(data, "span")), (int64_t)s->span);
    EXPECT_EQ_UINT(json_array_size(json_object_get(data, "actions")), s->action_count);
    for (uint32_t i = 0; i < s->action_count; i++) check_action(data, s, i);
    for (uint32_t w = 0; w < s->worker_count; w++) check_worker(data, s, w);
    const json_t *answers = json_object_get(data, "what_if");
    EXPECT_EQ_UINT(json_object_size(answers), WEIR_WHAT_IF_COUNT);
    for (uint32_t i = 0; i < WEIR_WHAT_IF_COUNT; i++)
        EXPECT_NEAR(
            json_number_value(json_object_get(answers, weir_what_if_text((enum weir_what_if)i))),
            s->what_if[i], 1e-8 * s->what_if[i]);
    json_decref(data);
    weir_snapshot_destroy(s);
    report_pipe_destroy(&p);
    report_sink_destroy(&sink);
}

/* The slices of the Chrome trace of the same step, by track and time. */
static void test_the_events_are_those_of_the_trace(void) {
    struct report_options options = {.stages = 3, .workers = 3, .chunks = 6, .trace_actions = 1000};
    struct report_pipe p;
    struct weir_snapshot *s;
    struct report_sink sink = report_sink_new(), trace = report_sink_new();
    struct weir_report_options page = WEIR_REPORT_OPTIONS_INIT;
    CHECK(take(&p, &options, &s));
    weir_snapshot_destroy(s);
    for (int i = 0; i < 4; i++) CHECK_OK(report_pipe_step(&p, REPORT_ROWS, true));
    CHECK_OK(weir_snapshot_new(p.pipe, 0, test_allocator(), &s));
    CHECK_OK(weir_pipe_trace_chrome(p.pipe, report_sink_write, &trace));
    page.snapshot = s;
    json_t *data = html_data(write_page(&page, &sink));
    json_t *chrome = json_loads(trace.text, 0, NULL), *event;
    const json_t *actions = json_object_get(data, "actions");
    double origin = NAN;
    size_t index, row = 0;
    json_array_foreach(json_object_get(chrome, "traceEvents"), index, event) {
        const json_t *args = json_object_get(event, "args"), *kind = json_object_get(args, "kind");
        if (kind == NULL || json_integer_value(json_object_get(args, "step")) != (int64_t)s->step)
            continue;
        const json_t *action = json_array_get(actions, row++);
        double start = json_number_value(json_object_get(event, "ts")) * 1e3;
        double dur = json_number_value(json_object_get(event, "dur")) * 1e3;
        const json_t *name =
            json_array_get(json_object_get(data, "kinds"), (size_t)item(action, 1));
        if (isnan(origin)) origin = start - (double)item(action, 5);
        CHECK_EQ_INT(item(action, 0), json_integer_value(json_object_get(event, "tid")));
        CHECK_EQ_STR(json_string_value(json_array_get(name, 0)), json_string_value(kind));
        CHECK_EQ_INT(item(action, 2), json_integer_value(json_object_get(args, "stage")));
        CHECK_EQ_INT(item(action, 3), json_integer_value(json_object_get(args, "micro_batch")));
        CHECK_NEAR((double)item(action, 5), start - origin, 0.01);
        CHECK_NEAR((double)(item(action, 6) - item(action, 5)), dur, 0.01);
        CHECK_NEAR((double)(item(action, 5) - item(action, 4)),
                   json_number_value(json_object_get(args, "waited_us")) * 1e3, 0.01);
        CHECK_EQ_INT(item(action, 10), json_integer_value(json_object_get(args, "waited_for")));
    }
    EXPECT_EQ_UINT(row, json_array_size(actions));
    json_decref(data);
    json_decref(chrome);
    weir_snapshot_destroy(s);
    report_pipe_destroy(&p);
    report_sink_destroy(&sink);
    report_sink_destroy(&trace);
}

/* ---- what is drawn ---- */

/* Without a rule of its own a kind is black. */
static void test_every_kind_has_a_colour(void) {
    for (uint32_t k = 0; k < WEIR_KIND_COUNT; k++) {
        char rule[] = {'\n', '.', weir__kinds[k].letter, ' ', '{', 0};
        EXPECT_CONTAINS(weir__page_style, rule);
    }
}

static void test_every_action_is_drawn_once(void) {
    struct report_options options = {.stages = 4, .workers = 2, .chunks = 6};
    struct report_pipe p;
    struct weir_snapshot *s;
    struct report_sink sink = report_sink_new();
    struct weir_report_options page = WEIR_REPORT_OPTIONS_INIT;
    CHECK(take(&p, &options, &s));
    page.snapshot = s;
    const char *text = write_page(&page, &sink);
    EXPECT_EQ_UINT(html_count(text, "<svg class=\"a "), s->action_count);
    EXPECT_EQ_UINT(html_count(text, "<svg class=\"a F"), 4 * 6);
    EXPECT_EQ_UINT(html_count(text, "<svg class=\"a U"), 4);
    EXPECT_EQ_UINT(html_count(text, "<title>"), s->action_count + 1);
    EXPECT_EQ_UINT(html_count(text, "forward, stage 3, micro-batch 5\n"), 1);
    EXPECT_EQ_UINT(html_count(text, "<tr><th scope=\"row\">worker 1"), 3);
    EXPECT_EQ_UINT(html_count(text, "<tr><th scope=\"row\">with"), WEIR_WHAT_IF_COUNT - 1);
    EXPECT_EQ_UINT(html_count(text, "data-plot=\"m"), 2);
    weir_snapshot_destroy(s);
    report_pipe_destroy(&p);
    report_sink_destroy(&sink);
}

static void test_a_page_without_a_step_says_so(void) {
    struct report_sink sink = report_sink_new();
    struct whole whole;
    make_whole(&whole, NULL, "text");
    const char *page = write_page(&whole.options, &sink);
    char *outline = html_outline(page);
    json_t *data = html_data(page);
    EXPECT_CONTAINS(page, "No training step was traced to its end");
    EXPECT(strstr(page, "id=\"timeline\"") == NULL);
    EXPECT(json_object_get(data, "actions") == NULL);
    EXPECT_EQ_UINT(json_array_size(json_object_get(data, "charts")), 2);
    json_decref(data);
    free(outline);
    report_sink_destroy(&sink);
}

/* Curves of nothing, of one point, of what is not finite; a step without length. */
static void test_odd_numbers_leave_a_sound_page(void) {
    static const double odd[][3] = {
        {1, NAN, 3}, {INFINITY, -INFINITY, NAN}, {0, 0, 0}, {1e308, -1e308, 1e-308}, {-5, -4, -3}};
    struct report_pipe p;
    struct weir_snapshot *s;
    struct report_sink sink = report_sink_new();
    struct whole whole;
    CHECK(take(&p, &plain, &s));
    weir_snapshot_destroy(s);
    for (uint32_t w = 0; w < 2; w++)
        for (uint32_t i = 0; i < p.pipe->workers[w].event_capacity; i++) {
            struct weir_trace_event *event = &p.pipe->workers[w].events[i];
            event->waited = event->start = event->end = 7;
        }
    CHECK_OK(weir_snapshot_new(p.pipe, 0, test_allocator(), &s));
    make_whole(&whole, s, "text");
    for (size_t i = 0; i < 3 * WEIR__COUNT_OF(odd); i++) {
        memcpy(whole.y, odd[i / 3], sizeof odd[0]);
        memcpy(whole.x, odd[i / 3], i % 3 == 2 ? sizeof odd[0] : 0);
        whole.series[0].count = whole.series[1].count = i % 3 == 0 ? 0 : i % 3 == 1 ? 1 : 3;
        const char *page = write_page(&whole.options, &sink);
        char *outline = html_outline(page);
        json_t *data = html_data(page);
        EXPECT(strstr(page, "nan") == NULL);
        EXPECT(strstr(page, "inf") == NULL);
        free(outline);
        json_decref(data);
    }
    weir_snapshot_destroy(s);
    report_pipe_destroy(&p);
    report_sink_destroy(&sink);
}

static void test_a_large_run_fits_a_megabyte(void) {
    struct report_options options = {
        .stages = 2, .workers = 2, .chunks = 64, .checkpoint = WEIR_CHECKPOINT_ALWAYS};
    static double x[400], y[400];
    struct report_pipe p;
    struct weir_snapshot *s;
    struct report_sink sink = report_sink_new();
    struct whole whole;
    for (int i = 0; i < 400; i++) x[i] = i + 1, y[i] = test_random_unit() + 400.0 / (i + 100);
    CHECK(take(&p, &options, &s));
    make_whole(&whole, s, "text");
    for (int i = 0; i < 3; i++) whole.series[i].x = x, whole.series[i].y = y;
    whole.series[0].count = whole.series[1].count = 400;
    char *outline = html_outline(write_page(&whole.options, &sink));
    EXPECT_EQ_UINT(s->action_count, 2 * (64 * 3 + 2));
    EXPECT(sink.used > 100000 && sink.used < 1000000);
    free(outline);
    weir_snapshot_destroy(s);
    report_pipe_destroy(&p);
    report_sink_destroy(&sink);
}

/* ---- writing ---- */

static void test_the_first_failure_of_write_ends_it(void) {
    struct report_pipe p;
    struct weir_snapshot *s;
    struct report_sink sink = report_sink_new();
    struct whole whole;
    CHECK(take(&p, &plain, &s));
    make_whole(&whole, s, "text");
    write_page(&whole.options, &sink);
    uint32_t calls = sink.calls;
    EXPECT(calls > 5);
    for (uint32_t at = 1; at <= calls; at++) {
        sink.used = sink.calls = 0;
        sink.fail_at = at;
        EXPECT_EQ_INT(weir_report_html(&whole.options, report_sink_write, &sink), 70 + (int)at);
        EXPECT_EQ_UINT(sink.calls, at);
    }
    weir_snapshot_destroy(s);
    report_pipe_destroy(&p);
    report_sink_destroy(&sink);
}

static void test_writing_allocates_nothing(void) {
    struct report_pipe p;
    struct weir_snapshot *s;
    struct report_sink sink = report_sink_new();
    struct whole whole;
    CHECK(take(&p, &plain, &s));
    make_whole(&whole, s, "text");
    uint64_t before = test_allocator_count();
    write_page(&whole.options, &sink);
    EXPECT_EQ_UINT(test_allocator_count(), before);
    weir_snapshot_destroy(s);
    report_pipe_destroy(&p);
    report_sink_destroy(&sink);
}

static void test_wrong_arguments_are_refused(void) {
    struct weir_report_options options = WEIR_REPORT_OPTIONS_INIT;
    struct report_sink sink = {.fail_at = 1};
    EXPECT_STATUS(weir_report_html(NULL, report_sink_write, &sink), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir_report_html(&options, NULL, &sink), WEIR_ERR_ARGUMENT);
    options.size--;
    EXPECT_STATUS(weir_report_html(&options, report_sink_write, &sink), WEIR_ERR_ARGUMENT);
    EXPECT_EQ_UINT(sink.calls, 0);
}

/* ---- numbers ---- */

/* What one call writes. */
#define WRITTEN(sink, call)                                                                        \
    do {                                                                                           \
        struct weir__text text;                                                                    \
        (sink)->used = 0;                                                                          \
        (sink)->text[0] = 0;                                                                       \
        weir__text_begin(&text, report_sink_write, (sink));                                        \
        call;                                                                                      \
        EXPECT_STATUS(weir__text_end(&text), WEIR_OK);                                             \
    } while (0)

static void test_numbers_are_written_for_people(void) {
    static const struct {
        double value;
        uint32_t decimals;
        const char *text;
    } cases[] = {{0, 0, "0"},
                 {1234.5, 0, "1,235"},
                 {-0.04, 1, "0.0"},
                 {-0.06, 1, "−0.1"},
                 {1234567.891, 2, "1,234,567.89"},
                 {0.9999, 3, "1.000"},
                 {999.9999, 3, "1,000.000"},
                 {NAN, 2, "–"},
                 {-INFINITY, 0, "–"},
                 {1e30, 1, "1e30"}};
    struct report_sink sink = report_sink_new();
    for (size_t i = 0; i < WEIR__COUNT_OF(cases); i++) {
        WRITTEN(&sink, weir__html_fixed(&text, cases[i].value, cases[i].decimals));
        EXPECT_EQ_STR(sink.text, cases[i].text);
    }
    WRITTEN(&sink, weir__html_percent(&text, -0.07142));
    EXPECT_EQ_STR(sink.text, "−7.1%");
    WRITTEN(&sink, weir__html_share(&text, 1, 3));
    EXPECT_EQ_STR(sink.text, "33.3333%");
    WRITTEN(&sink, weir__html_share(&text, 5, 0));
    EXPECT_EQ_STR(sink.text, "0.0000%");
    report_sink_destroy(&sink);
}

static void test_numbers_are_written_for_programs(void) {
    static const double values[] = {0,     1,      -1,     0.1,           123456789, 1234567890123,
                                    1e15,  1e16,   1e-5,   9.87654321e-5, 1e-6,      -2.5e-300,
                                    1e300, 5e-324, 1.0 / 3};
    struct report_sink sink = report_sink_new();
    for (size_t i = 0; i < WEIR__COUNT_OF(values); i++) {
        WRITTEN(&sink, weir__html_real(&text, values[i]));
        json_t *read = json_loads(sink.text, JSON_DECODE_ANY, NULL);
        if (!json_is_number(read)) TEST_FAIL("'%s' is no number", sink.text);
        EXPECT_NEAR(json_number_value(read), values[i], 1e-8 * fabs(values[i]));
        json_decref(read);
    }
    WRITTEN(&sink, weir__html_real(&text, NAN));
    EXPECT_EQ_STR(sink.text, "null");
    WRITTEN(&sink, weir__html_real(&text, 0.0625));
    EXPECT_EQ_STR(sink.text, "0.0625");
    WRITTEN(&sink, weir__html_json(&text, "a</b>&\"\\\n\xff µ"));
    EXPECT_EQ_STR(sink.text, "\"a\\u003c/b\\u003e\\u0026\\u0022\\u005c\\u000a\\ufffd µ\"");
    report_sink_destroy(&sink);
}

static void test_units_suit_their_numbers(void) {
    static const struct {
        double ns, bytes;
        const char *time, *size;
    } cases[] = {{1, 1, "1 ns", "1 bytes"},
                 {1500, 1536, "1.500 µs", "1.500 KiB"},
                 {12345678, 12582912, "12.35 ms", "12.00 MiB"},
                 {9.9e9, 4.2949e12, "9,900.0 ms", "3.906 TiB"},
                 {12.3456e9, 0, "12.35 s", "0 bytes"}};
    struct report_sink sink = report_sink_new();
    for (size_t i = 0; i < WEIR__COUNT_OF(cases); i++) {
        struct weir__unit time = weir__unit_of_time(cases[i].ns);
        struct weir__unit size = weir__unit_of_size(cases[i].bytes);
        WRITTEN(&sink, weir__html_with(&text, &time, cases[i].ns));
        EXPECT_EQ_STR(sink.text, cases[i].time);
        WRITTEN(&sink, weir__html_with(&text, &size, cases[i].bytes));
        EXPECT_EQ_STR(sink.text, cases[i].size);
    }
    report_sink_destroy(&sink);
}

static void check_ticks(double from, double to, uint32_t most, double first, double step,
                        uint32_t count, uint32_t decimals) {
    struct weir__ticks ticks = weir__ticks_of(from, to, most, false);
    EXPECT_NEAR(ticks.first, first, 1e-12);
    EXPECT_NEAR(ticks.step, step, 1e-12);
    EXPECT_EQ_UINT(ticks.count, count);
    EXPECT_EQ_UINT(ticks.decimals, decimals);
}

static void test_ticks_are_round(void) {
    check_ticks(0, 100, 5, 0, 20, 6, 0);
    check_ticks(0, 101, 5, 0, 50, 3, 0);
    check_ticks(0.0011, 0.0041, 5, 0.002, 0.001, 3, 3);
    check_ticks(-7, 7.4, 8, -6, 2, 7, 0);
    check_ticks(0, 0, 8, 0, 0, 0, 0);
    check_ticks(1, NAN, 8, 0, 0, 0, 0);
    check_ticks(-1e308, 1e308, 8, 0, 0, 0, 0);
    EXPECT_NEAR(weir__ticks_of(1, 3, 8, true).step, 1, 0);
    EXPECT_EQ_UINT(weir__ticks_of(1, 3, 8, true).count, 3);
}

/* ---- updates ---- */

/* What of the kept step's the page, its snapshot and the trace say. */
static void check_update(struct report_pipe *p, uint64_t step, uint64_t update, const char *title) {
    struct weir_report_options options = WEIR_REPORT_OPTIONS_INIT;
    struct report_sink sink = report_sink_new();
    struct weir_snapshot *s;
    char member[48];
    CHECK_OK(weir_snapshot_new(p->pipe, step, test_allocator(), &s));
    EXPECT_EQ_UINT(s->update, update);
    options.snapshot = s;
    EXPECT_CONTAINS(write_page(&options, &sink), title);
    sink.used = 0;
    CHECK_OK(weir_pipe_trace_chrome(p->pipe, report_sink_write, &sink));
    snprintf(member, sizeof member, "\"step\":%u,\"update\":%u,", (unsigned)step, (unsigned)update);
    EXPECT_EQ_UINT(html_count(sink.text, member), update > 0 ? s->action_count : 0);
    weir_snapshot_destroy(s);
    report_sink_destroy(&sink);
}

static void check_title(const struct report_pipe *p, const char *begin) {
    struct report_sink sink = report_sink_new();
    CHECK_OK(weir_pipe_trace_text(p->pipe, 80, false, report_sink_write, &sink));
    sink.text[strlen(begin)] = 0;
    EXPECT_EQ_STR(sink.text, begin);
    report_sink_destroy(&sink);
}

static void test_updates_are_counted_from_the_first(void) {
    struct report_options options = plain;
    struct report_pipe p;
    options.trace_actions = 1000;
    CHECK(report_pipe_new(&p, &options));
    for (int i = 0; i < 3; i++) CHECK_OK(report_pipe_step(&p, REPORT_ROWS, true));
    check_update(&p, 1, 0, "step 1 of the trace");
    check_update(&p, 3, 0, "step 3 of the trace");
    check_title(&p, "step 3: ");
    report_pipe_destroy(&p);
    CHECK(report_pipe_new(&p, &options));
    for (p.updates = 0; p.updates < 3; p.updates++)
        CHECK_OK(report_pipe_step(&p, REPORT_ROWS, true));
    check_title(&p, "update 3: ");
    CHECK_OK(report_pipe_infer(&p)); /* does not know of updates */
    check_update(&p, 1, 1, "update 1<");
    check_update(&p, 3, 3, "update 3<");
    report_pipe_destroy(&p);
}

WEIR_TEST_SUITE(report, TEST(updates_are_counted_from_the_first), TEST(no_text_changes_the_page),
                TEST(texts_are_shown_as_they_are), TEST(the_page_asks_for_nothing),
                TEST(the_data_are_the_snapshots), TEST(the_events_are_those_of_the_trace),
                TEST(every_kind_has_a_colour), TEST(every_action_is_drawn_once),
                TEST(a_page_without_a_step_says_so), TEST(odd_numbers_leave_a_sound_page),
                TEST(a_large_run_fits_a_megabyte), TEST(the_first_failure_of_write_ends_it),
                TEST(writing_allocates_nothing), TEST(wrong_arguments_are_refused),
                TEST(numbers_are_written_for_people), TEST(numbers_are_written_for_programs),
                TEST(units_suit_their_numbers), TEST(ticks_are_round))
