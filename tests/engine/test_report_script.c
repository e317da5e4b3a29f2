/* SPDX-License-Identifier: MIT */
/*
 * Goal: the page's script zooms, pans and tells of what is pointed at, and the page needs none of
 * it. Method: a headless browser, where there is one, opens a page to which a script of the test's
 * own has been added that does what a person would and writes down what it finds.
 */
#include "engine/html.h"
#include "engine/report_pipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUTPUT_BYTES = 1 << 20 };

static const char *find_browser(void) {
    static const char *const names[] = {"chromium", "chromium-browser", "google-chrome"};
    char output[256];
    for (size_t i = 0; i < WEIR__COUNT_OF(names); i++)
        if (test_shell(output, sizeof output, "command -v %s", names[i]) == 0) return names[i];
    return NULL;
}

/* A step of known times: worker 0 runs F0 F1 B0 B1 N U, worker 1 F0 B0 F1 B1 N U. */
static bool write_page(const char *path, const char *script) {
    struct report_options options = {
        .stages = 2, .workers = 2, .chunks = 2, .checkpoint = WEIR_CHECKPOINT_NEVER};
    static struct report_times times;
    static const double x[] = {1, 2, 3, 4}, y[] = {4, 3, 2.5, 2};
    struct weir_report_series series = {"training", x, y, 4, WEIR_REPORT_LINE};
    struct weir_report_chart chart = {"Loss", NULL, "update", &series, 1, false};
    struct weir_report_options page = WEIR_REPORT_OPTIONS_INIT;
    struct report_sink sink = report_sink_new();
    struct weir_snapshot *snapshot;
    struct report_pipe p;
    if (!report_pipe_new(&p, &options)) return false;
    bool good = EXPECT_STATUS(report_pipe_step(&p, REPORT_ROWS, true), WEIR_OK);
    report_times_draw(&times, &p, 1);
    for (uint32_t a = 0; a < times.table->action_count; a++) {
        times.duration[a] = times.table->actions[a].kind >= WEIR_KIND_N ? 2e4 : 1e6;
        times.host[a] = 0.0;
    }
    report_times_simulate(&times);
    report_times_stamp(&times, &p, 1000);
    good &= EXPECT_STATUS(weir_snapshot_new(p.pipe, 0, test_allocator(), &snapshot), WEIR_OK);
    report_pipe_destroy(&p);
    page.snapshot = snapshot, page.charts = &chart, page.chart_count = 1;
    good &= EXPECT_STATUS(weir_report_html(&page, report_sink_write, &sink), WEIR_OK);
    weir_snapshot_destroy(snapshot);
    FILE *file = fopen(path, "w");
    if (!EXPECT(file != NULL)) return false;
    fprintf(file, "%s<script>%s</script>", sink.text, script);
    fclose(file);
    report_sink_destroy(&sink);
    return good;
}

/* The page as it is after its scripts, in the test's memory, or NULL; free() it. */
static char *open_page(const char *browser, const char *directory, const char *script) {
    char path[512];
    snprintf(path, sizeof path, "%s/page.html", directory);
    if (!write_page(path, script)) return NULL;
    char *output = malloc(OUTPUT_BYTES);
    int status = test_shell(output, OUTPUT_BYTES,
                            "timeout 100 %s --headless --no-sandbox --disable-gpu "
                            "--virtual-time-budget=5000 "
                            "--user-data-dir='%s/profile' --window-size=1280,900 --dump-dom "
                            "'file://%s' 2>/dev/null",
                            browser, directory, path);
    if (EXPECT_EQ_INT(status, 0)) return output;
    free(output);
    return NULL;
}

static const char script[] =
    "const found = [], say = (text) => found.push(text);\n"
    "addEventListener('error', (event) => say('error: ' + event.message));\n"
    "addEventListener('load', () => setTimeout(() => {\n"
    "  const view = document.querySelector('.view'), svg = view.querySelector('svg');\n"
    "  const blocks = [...svg.querySelectorAll('.a')];\n"
    "  const detail = () => document.querySelector('.detail').textContent;\n"
    "  const press = (key) => view.dispatchEvent(new KeyboardEvent('keydown',\n"
    "    { key, bubbles: true, cancelable: true }));\n"
    "  const selected = () => view.getAttribute('aria-activedescendant');\n"
    "  const text = (i) => blocks[i].querySelector('text')?.textContent ?? '';\n"
    "  const move = (to, clientX) => to.dispatchEvent(new PointerEvent('pointermove',\n"
    "    { clientX, bubbles: true }));\n"
    "  say('labels ' + text(0) + ' ' + text(4));\n"
    "  press('ArrowRight'); press('ArrowRight'); press('ArrowDown');\n"
    "  say('keys ' + selected() + ' ' + detail());\n"
    "  press('Enter');\n"
    "  say('enter ' + selected() + ' ' + blocks[0].classList.contains('on'));\n"
    "  press('+');\n"
    "  say('plus ' + svg.style.width);\n"
    "  press('0');\n"
    "  say('fit ' + svg.style.width);\n"
    "  press('Escape');\n"
    "  move(blocks[7].querySelector('rect'), 0);\n"
    "  say('hover ' + detail());\n"
    "  svg.dispatchEvent(new PointerEvent('pointerleave'));\n"
    "  const out = new WheelEvent('wheel', { deltaY: 300, cancelable: true });\n"
    "  view.dispatchEvent(out);\n"
    "  say('wheel out ' + out.defaultPrevented + ' ' + svg.style.width);\n"
    "  for (let i = 0; i < 3; i++) view.dispatchEvent(new WheelEvent('wheel', { deltaY: -300,\n"
    "    clientX: view.getBoundingClientRect().left, cancelable: true }));\n"
    "  say(`wheel in ${svg.style.width} at ${Math.round(view.scrollLeft)} ${text(4)}`);\n"
    "  const down = (x) => ({ clientX: x, button: 0, pointerType: 'mouse', bubbles: true });\n"
    "  view.dispatchEvent(new PointerEvent('pointerdown', down(500)));\n"
    "  dispatchEvent(new PointerEvent('pointermove', down(300)));\n"
    "  dispatchEvent(new PointerEvent('pointerup', down(300)));\n"
    "  say('drag ' + Math.round(view.scrollLeft));\n"
    "  for (const [name, part] of [['c0', 0.4], ['m1', 0.5]]) {\n"
    "    const figure = document.querySelector(`[data-plot=${name}]`);\n"
    "    const area = figure.querySelector('.area'), box = area.getBoundingClientRect();\n"
    "    move(area, box.left + part * box.width);\n"
    "    say(name + ' ' + figure.querySelector('output').textContent);\n"
    "  }\n"
    "  document.title = 'found\\n' + found.join('\\n') + '\\nend';\n"
    "}, 200));\n";

static void test_the_script_does_what_a_person_asks(void) {
    static const char *const expected[] = {
        "\nlabels F0 \n",
        "\nkeys a6 F 1:0 forward, stage 1, micro-batch 0, worker 1. From 1.000 ms to 2.000 ms, ",
        "took 1.000 msWaited 1.000 ms for F 0:0 on worker 0 (activations): 1.000 ms waiting",
        "\nenter a0 true\n",
        "\nplus 150%\n",
        "\nfit 100%\n",
        "\nhover B 1:0 backward, stage 1, micro-batch 0, worker 1. From 2.000 ms to 3.000 ms",
        "\nwheel out false 100%\n",
        "\nwheel in 800% at 0 N\n",
        "\ndrag 200\n",
        "\nc0 2: training 3\n",
        "\nm1 3.020 ms: 24.44 KiB in use, activations 5.88 KiB, borders 0.75 KiB, workspace ",
        "\nend"};
    const char *browser = find_browser(), *directory = test_temporary_directory();
    if (browser == NULL) SKIP("no chromium here: the page's script is not run");
    char *page = open_page(browser, directory, script);
    CHECK(page != NULL);
    const char *found = strstr(page, "<title>found");
    if (found == NULL) TEST_FAIL("the test's own script did not end");
    for (size_t i = 0; found != NULL && i < WEIR__COUNT_OF(expected); i++)
        if (strstr(found, expected[i]) == NULL)
            TEST_FAIL("not found: %s in: %.1500s", expected[i], found);
    EXPECT(found == NULL || strstr(found, "\nerror") == NULL);
    free(page);
}

WEIR_TEST_SUITE(report_script, TEST(the_script_does_what_a_person_asks))
