/* SPDX-License-Identifier: MIT */
/*
 * Goal: `weir simulate` gives the papers' closed forms for every schedule, and its files are what
 * they are meant to be. Method: the installed command; its JSON against the formulas, printed as a
 * table; traces and pictures counted; what cannot be is refused.
 */
#include "cli/cli.h"
#include "io/io_faults.h"
#include "schedule/facts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- closed forms ---- */

/** What a schedule promises at equal times (tF = tI = tW, B = I + W), for p workers, m
 * micro-batches and V stages per worker, in units of one stage's forward. NAN, or -1: it promises
 * nothing. */
struct form {
    const char *schedule;
    uint32_t stages_per_worker;
    uint32_t micro_batches_least; /* times p */
    double (*bubble)(double p, double m, double v);
    double (*window)(double p); /* the largest idle time inside a worker's window */
    double (*peak)(double p, double m, double s); /* activations of worker s, in stages */
    double (*peak_most)(double p);                /* the most of a worker */
};

static double bubble_flat(double p, double m, double v) {
    (void)v;
    return (p - 1) / (m + p - 1);
}
static double bubble_loop(double p, double m, double v) {
    return (p - 1) / (v * m + p - 1);
}
static double window_h1(double p) {
    return p - 1; /* (p - 1)(tF + tI - tW) */
}
static double window_none(double p) {
    (void)p; /* zb-h2: (p - 1)(tF + tI - 2 tW) */
    return 0;
}
static double peak_all(double p, double m, double s) {
    (void)p, (void)s;
    return m;
}
static double peak_twice(double p, double m, double s) {
    (void)p, (void)s;
    return 2 * m;
}
static double peak_1f1b(double p, double m, double s) {
    return fmin(p - s, m);
}
static double peak_h1(double p, double m, double s) {
    (void)m;
    return s == 0 ? p : -1;
}
static double peak_h2(double p, double m, double s) {
    (void)m;
    return s == 0 ? 2 * p - 1 : -1;
}
static double peak_v(double p, double m, double s) {
    (void)m, (void)s;
    return 2 * p;
}
static double most_half(double p) {
    return 2 * floor((p + 2) / 2);
}
static double most_min(double p) {
    return 2 * floor((p + 4) / 3);
}
static double most_dualpipe(double p) {
    return 2 * p + 1;
}
static double window_half(double p) {
    return fmod(p, 2) > 0 ? 3 * p - 4 : 3 * p - 3;
}
static double window_min(double p) {
    return fmod(p, 3) > 0 ? 4 * p - 5 : 4 * p - 3;
}
/* Only the first worker's start and the last one's end are idle, of stages of half size. */
static double bubble_ends(double p, double m, double v) {
    return (p - 1) / (3 * v * m + p - 1);
}

static const struct form forms[] = {
    {"gpipe", 1, 1, bubble_flat, NULL, peak_all, NULL},
    {"1f1b", 1, 1, bubble_flat, NULL, peak_1f1b, NULL},
    {"interleaved", 2, 1, bubble_loop, NULL, NULL, NULL},
    {"interleaved", 3, 2, bubble_loop, NULL, NULL, NULL},
    {"looped-bfs", 2, 1, bubble_loop, NULL, peak_twice, NULL},
    {"zb-h1", 1, 2, NULL, window_h1, peak_h1, NULL},
    {"zb-h2", 1, 2, bubble_ends, window_none, peak_h2, NULL},
    {"zb-v", 2, 2, bubble_ends, window_none, peak_v, NULL},
    {"v-half", 2, 3, NULL, window_half, NULL, most_half},
    {"v-min", 2, 3, NULL, window_min, NULL, most_min},
    {"dualpipe-v", 2, 2, bubble_ends, NULL, NULL, most_dualpipe},
};

static json_t *simulated(const char *path, const char *options) {
    struct cli_run run;
    cli_run_at(__FILE__, __LINE__, &run, "simulate --json %s %s", path, options);
    return cli_code_at(__FILE__, __LINE__, &run, 0) ? cli_json(path) : NULL;
}

static double largest_in_window(const json_t *root) {
    const json_t *workers = json_object_get(root, "workers"), *worker;
    size_t w;
    double most = 0.0;
    json_array_foreach(workers, w, worker) {
        double window = cli_number(worker, "window"), busy = cli_number(worker, "busy");
        most = fmax(most, window - busy);
    }
    return most;
}

static double peak_of(const json_t *root, uint32_t worker) {
    const json_t *object = json_array_get(json_object_get(root, "workers"), worker);
    double peak = cli_number(object, "peak_activations");
    EXPECT_NEAR(cli_number(object, "peak_bytes"), peak, 0.0); /* of one byte each */
    return peak;
}

static void check_peaks(const json_t *root, const struct form *form, double p, double m) {
    double most = 0.0;
    for (uint32_t s = 0; s < p; s++) {
        double wanted = form->peak != NULL ? form->peak(p, m, s) : -1.0;
        double found = peak_of(root, s);
        most = fmax(most, found);
        if (wanted >= 0.0) EXPECT_NEAR(found, wanted, 0.0);
    }
    if (form->peak != NULL) {
        printf(", peak of worker 0 %g (%g)", peak_of(root, 0), form->peak(p, m, 0));
    }
    if (form->peak_most != NULL) {
        printf(", largest peak %g (%g)", most, form->peak_most(p));
        EXPECT_NEAR(most, form->peak_most(p), 0.0);
    }
}

static void check_form(const struct form *form, uint32_t p, uint32_t m, const char *path) {
    char options[160];
    uint32_t v = form->stages_per_worker;
    snprintf(options, sizeof options, "--schedule %s --workers %u --virtual-stages %u --chunks %u",
             form->schedule, p, v, m);
    json_t *root = simulated(path, options);
    if (root == NULL) return;
    double bubble = cli_number(root, "bubble"), steady = cli_number(root, "bubble_steady");
    double window = largest_in_window(root);
    printf("%-12s p %u, m %2u, V %u: step %g, bubble %.6f", form->schedule, p, m, v,
           cli_number(root, "step"), bubble);
    if (form->bubble != NULL) {
        printf(" (%.6f)", form->bubble(p, m, v));
        EXPECT_NEAR(bubble, form->bubble(p, m, v), 1e-12);
    }
    printf(", in window %g", window);
    if (form->window != NULL) {
        printf(" (%g)", form->window(p));
        EXPECT_NEAR(window, form->window(p), 1e-9);
        EXPECT((steady > 0.0) == (form->window(p) > 0.0));
    }
    check_peaks(root, form, p, m);
    printf("\n");
    json_decref(root);
}

static void test_closed_forms_hold_for_every_schedule(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    char path[512];
    snprintf(path, sizeof path, "%s/j", test_temporary_directory());
    printf("equal times; in brackets what the papers' formulas say\n");
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        for (uint32_t p = 2; p <= 5; p++) {
            check_form(&forms[i], p, forms[i].micro_batches_least * p, path);
            check_form(&forms[i], p, 4 * p, path);
        }
    }
}

static double step_of(const char *path, const char *options) {
    json_t *root = simulated(path, options);
    double step = root != NULL ? cli_number(root, "step") : NAN;
    json_decref(root);
    return step;
}

/* The gain of early recompute under GPipe is (p - 1) tF. */
static void test_late_recompute_costs_a_forward_per_stage_but_one(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    char path[512];
    snprintf(path, sizeof path, "%s/j", test_temporary_directory());
    for (uint32_t p = 1; p <= 5; p++) {
        double step[2];
        for (int late = 0; late < 2; late++) {
            char options[160];
            snprintf(options, sizeof options,
                     "--schedule gpipe --stages %u --chunks 6 --checkpoint always --recompute %s",
                     p, late ? "late" : "early");
            step[late] = step_of(path, options);
        }
        printf("gpipe, always, p %u: early %g, late %g\n", p, step[0], step[1]);
        EXPECT_NEAR(step[1] - step[0], p - 1.0, 1e-9);
    }
}

static void test_late_recompute_runs_under_every_schedule(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    char path[512];
    snprintf(path, sizeof path, "%s/j", test_temporary_directory());
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        double step[2];
        for (int late = 0; late < 2; late++) {
            char options[160];
            snprintf(options, sizeof options,
                     "--schedule %s --workers 4 --virtual-stages %u --checkpoint always "
                     "--recompute %s",
                     forms[i].schedule, forms[i].stages_per_worker, late ? "late" : "early");
            step[late] = step_of(path, options);
        }
        EXPECT(step[0] <= step[1]);
    }
}

/* Fewer bubbles, more crossings: which schedule is faster depends on the links. */
static void test_slow_links_turn_the_ranking_round(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    static const char *const copies[] = {"0", "2"};
    char path[512], options[160];
    double flat[2], loop[2];
    snprintf(path, sizeof path, "%s/j", test_temporary_directory());
    for (int i = 0; i < 2; i++) {
        snprintf(options, sizeof options, "--schedule gpipe --workers 4 --copy %s", copies[i]);
        flat[i] = step_of(path, options);
        snprintf(options, sizeof options,
                 "--schedule interleaved --workers 4 --time F=0.5,B=1 --copy %s", copies[i]);
        loop[i] = step_of(path, options);
    }
    EXPECT(loop[0] < flat[0]);
    EXPECT(loop[1] > flat[1]);
}

/* ---- the parts of idle time ---- */

static void test_parts_of_idle_time_add_up(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    char path[512];
    size_t w;
    const json_t *worker;
    snprintf(path, sizeof path, "%s/j", test_temporary_directory());
    json_t *root = simulated(path, "--workers 3 --chunks 7 --copy 0.25 --host 0.125 --noise 0.3 "
                                   "--checkpoint except_last --recompute late");
    CHECK(root != NULL);
    double busy = 0.0, step = cli_number(root, "step");
    json_array_foreach(json_object_get(root, "workers"), w, worker) {
        double parts = cli_number(worker, "dependency") + cli_number(worker, "copy") +
                       cli_number(worker, "imbalance") + cli_number(worker, "host");
        EXPECT_NEAR(parts, cli_number(worker, "idle"), 1e-9);
        EXPECT_NEAR(cli_number(worker, "idle") + cli_number(worker, "busy"), step, 1e-9);
        busy += cli_number(worker, "busy");
    }
    EXPECT_NEAR(cli_number(root, "bubble"), 1.0 - busy / (3.0 * step), 1e-12);
    EXPECT_NEAR(cli_number(root, "actions"), 3.0 * (7 + 7 + 6), 0.0);
    json_decref(root);
}

/* ---- models ---- */

#define MODEL "--model gpt " CLI_MODEL " --batch 6 --chunks 3 "
#define PROFILE "profile " MODEL "--seconds 0 --steps 7 --out "

/* A profile of CLI_MODEL whose layers take these seconds forward and recomputing, and twice that
 * backward, half of it each for input and weights. */
static const char *make_times(char path[512], const double *seconds) {
    struct cli_run run;
    snprintf(path, 512, "%s/profile.json", test_temporary_directory());
    cli_run_at(__FILE__, __LINE__, &run, PROFILE "%s", path);
    if (!cli_code_at(__FILE__, __LINE__, &run, 0)) return NULL;
    json_t *root = cli_json(path), *layers = json_object_get(root, "layers");
    for (size_t k = 0; k < CLI_LAYERS; k++) {
        json_t *layer = json_array_get(layers, k);
        json_object_set_new(layer, "forward", json_real(seconds[k]));
        json_object_set_new(layer, "forward_checkpoint", json_real(seconds[k]));
        json_object_set_new(layer, "recompute", json_real(seconds[k]));
        json_object_set_new(layer, "recompute_last", json_real(seconds[k]));
        json_object_set_new(layer, "backward", json_real(2 * seconds[k]));
        json_object_set_new(layer, "backward_input", json_real(seconds[k]));
        json_object_set_new(layer, "backward_weight", json_real(seconds[k]));
    }
    json_object_set_new(root, "task", json_real(0));
    EXPECT(json_dump_file(root, path, 0) == 0);
    json_decref(root);
    return path;
}

static void check_balance(const json_t *root, const int *sizes, size_t count) {
    const json_t *balance = json_object_get(root, "balance");
    EXPECT_EQ_UINT(json_array_size(balance), count);
    for (size_t i = 0; i < count; i++)
        EXPECT_EQ_INT(json_integer_value(json_array_get(balance, i)), sizes[i]);
}

static void test_a_step_of_a_model_is_the_plans(void) {
    static const double seconds[CLI_LAYERS] = {3, 1, 1, 1};
    struct cli_run run;
    char path[512], options[900];
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    CHECK(make_times(path, seconds) != NULL);
    snprintf(options, sizeof options,
             MODEL "--stages 2 --checkpoint never --balance-by time --profile %s", path);
    char to[600];
    snprintf(to, sizeof to, "%s.step", path);
    json_t *root = simulated(to, options);
    CHECK(root != NULL);
    check_balance(root, (const int[]){1, 3}, 2);
    EXPECT_NEAR(cli_number(root, "step"), (3 + 1) * 9.0, 1e-9); /* 1F1B of 3, F 3 and B 6 */
    EXPECT_NEAR(cli_number(root, "bubble"), 0.25, 1e-9);
    EXPECT_NEAR(cli_number(root, "actions"), 12, 0);
    CLI_CODE(&run, 0, "plan %s --json %s.plan", options, path);
    snprintf(to, sizeof to, "%s.plan", path);
    json_t *plan = cli_json(to);
    EXPECT_NEAR(cli_number(plan, "step"), cli_number(root, "step"), 1e-9);
    json_decref(plan);
    json_decref(root);
}

/* Of a schedule that is searched the table is another one where recomputation is late. */
static void test_late_recompute_has_a_table_of_its_own(void) {
    static const double seconds[CLI_LAYERS] = {1, 1, 1, 1};
    struct cli_run run;
    char path[512], table[600], to[600], options[2048];
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    CHECK(make_times(path, seconds) != NULL);
    snprintf(table, sizeof table, "%s.csv", path);
    snprintf(to, sizeof to, "%s.step", path);
    CLI_CODE(&run, 0,
             "schedule --schedule auto --stages 2 --chunks 3 --checkpoint always --recompute late "
             "--csv %s",
             table);
    double steps[2];
    for (int k = 0; k < 2; k++) {
        snprintf(options, sizeof options,
                 MODEL "--balance 2,2 --checkpoint always --recompute late --profile %s "
                       "--schedule %s",
                 path, k == 0 ? "auto" : table);
        json_t *root = simulated(to, options);
        CHECK(root != NULL);
        steps[k] = cli_number(root, "step");
        json_decref(root);
    }
    EXPECT_NEAR(steps[0], steps[1], 1e-9);
}

/* What the worker holds at most: as many of its stage's activations as 1F1B keeps. */
static void test_peaks_of_a_model_are_bytes(void) {
    static const double seconds[CLI_LAYERS] = {1, 1, 1, 1};
    struct cli_run run;
    char path[512], to[600];
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    CHECK(make_times(path, seconds) != NULL);
    json_t *profile = cli_json(path);
    const json_t *layers = json_object_get(profile, "layers");
    double most[2] = {0, 0}; /* saved and borders, each counted at most once */
    for (size_t k = 0; k < CLI_LAYERS; k++)
        most[k / 2] += cli_number(json_array_get(layers, k), "saved") +
                       cli_number(json_array_get(layers, k), "border");
    double saved = cli_number(json_array_get(layers, 1), "saved");
    json_decref(profile);
    snprintf(to, sizeof to, "%s.step", path);
    CLI_CODE(&run, 0, "simulate " MODEL "--balance 2,2 --checkpoint never --profile %s --json %s",
             path, to);
    CHECK_CONTAINS(run.output, "1f1b: --balance 2,2\n");
    json_t *root = cli_json(to), *workers = json_object_get(root, "workers");
    for (uint32_t w = 0; w < 2; w++) {
        const json_t *worker = json_array_get(workers, w);
        double peak = cli_number(worker, "peak_bytes");
        EXPECT_NEAR(cli_number(worker, "peak_activations"), 2 - w, 0);
        EXPECT(peak > 0 && peak <= (2 - w) * (most[w] + most[0]));
        if (w == 0) EXPECT(peak >= 2 * saved);
    }
    json_decref(root);
}

/* Equal layers are cut evenly for two stages each; a heavy first one moves the cut of a loop, and
 * under V the first and last stage share a worker. */
static void test_a_comparison_cuts_a_model_for_each_schedule(void) {
    static const double seconds[CLI_LAYERS] = {3, 1, 1, 1};
    struct cli_run run;
    char path[512], to[600];
    size_t i;
    const json_t *schedule;
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    CHECK(make_times(path, seconds) != NULL);
    snprintf(to, sizeof to, "%s.all", path);
    CLI_CODE(&run, 0,
             "simulate --compare 1f1b,zb-v,dualpipe-v " MODEL
             "--workers 2 --checkpoint never --profile %s --json %s",
             path, to);
    CHECK_CONTAINS(run.output, "1f1b: --balance 1,3\n");
    CHECK_CONTAINS(run.output, "zb-v: --balance 1,1,1,1\n");
    CHECK_CONTAINS(run.output, "dualpipe-v is left out: "); /* fewer micro-batches than stages */
    CHECK(strstr(run.output, "measuring") == NULL);
    json_t *root = cli_json(to), *list = json_object_get(root, "schedules");
    EXPECT_EQ_UINT(json_array_size(list), 2);
    json_array_foreach(list, i, schedule) {
        double share = cli_number(schedule, "stage_share");
        EXPECT_NEAR(share, i == 0 ? 1 : 0.5, 0);
    }
    json_decref(root);
}

static void test_a_model_that_was_not_measured_is_measured_once(void) {
    struct cli_run run;
    char path[512];
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    snprintf(path, sizeof path, "%s/new.profile", test_temporary_directory());
    CLI_CODE(&run, 0, "simulate --compare gpipe,1f1b " MODEL "--workers 2 --profile %s", path);
    const char *first = strstr(run.output, "measuring layers");
    CHECK(first != NULL && strstr(first + 1, "measuring") == NULL);
    CLI_CODE(&run, 0, "simulate " MODEL "--workers 2 --profile %s", path);
    CHECK(strstr(run.output, "measuring") == NULL);
    /* of another row count: refused, not measured again */
    CLI_CODE(&run, 2,
             "simulate --model gpt " CLI_MODEL " --batch 9 --chunks 3 --workers 2 --profile %s",
             path);
    CHECK_CONTAINS(run.output, "is of 2 rows per micro-batch, not 3: measure again");
}

static void test_a_limit_leaves_out_what_does_not_fit(void) {
    static const double seconds[CLI_LAYERS] = {1, 1, 1, 1};
    struct cli_run run;
    char path[512];
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    CHECK(make_times(path, seconds) != NULL);
    CLI_CODE(&run, 2, "simulate " MODEL "--workers 2 --profile %s --memory-limit 1KiB", path);
    CHECK_CONTAINS(run.output, "raise the limit to ");
    CLI_CODE(&run, 0, "simulate " MODEL "--workers 2 --profile %s --memory-limit 1GiB", path);
}

/* ---- files ---- */

static void test_a_trace_holds_every_action(void) {
    struct cli_run run;
    char path[512];
    size_t i, slices = 0;
    const json_t *event;
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    snprintf(path, sizeof path, "%s/t", test_temporary_directory());
    CLI_CODE(&run, 0, "simulate --stages 3 --chunks 5 --trace %s", path);
    CHECK_CONTAINS(run.output, "worker 2");
    CHECK_CONTAINS(run.output, "3 stages on 3 workers, 5 micro-batches, 30 actions");
    json_t *root = cli_json(path);
    json_array_foreach(json_object_get(root, "traceEvents"), i, event) {
        slices += strcmp(json_string_value(json_object_get(event, "ph")), "X") == 0;
    }
    EXPECT_EQ_UINT(slices, 33); /* and an update per stage */
    json_decref(root);
}

static void test_a_picture_shows_every_action_and_nothing_from_elsewhere(void) {
    struct cli_run run;
    char path[512];
    size_t bytes;
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    if (access("docs", R_OK) != 0) SKIP("the project's folder is not here");
    snprintf(path, sizeof path, "%s/p.svg", test_temporary_directory());
    CLI_CODE(&run, 0, "simulate --compare gpipe,1f1b,zb-v --workers 4 --svg %s", path);
    char *text = cli_read(path, &bytes);
    CHECK(text != NULL);
    EXPECT_EQ_UINT(cli_count(text, "<rect class=\"F"), 32 + 32 + 64 + 1); /* and the legend */
    EXPECT_EQ_UINT(cli_count(text, "<rect class=\"B"), 32 + 32 + 1);
    EXPECT_EQ_UINT(cli_count(text, "<rect class=\"W"), 64 + 1);
    EXPECT_EQ_UINT(cli_count(text, "http"), 1); /* the name of SVG itself */
    EXPECT_EQ_UINT(cli_count(text, "url("), 0);
    EXPECT_CONTAINS(text, "prefers-color-scheme:dark");
    for (uint32_t k = 0; k < WEIR_KIND_COUNT; k++) { /* what has no rule is black */
        char rule[] = {'r', 'e', 'c', 't', '.', weir__kinds[k].letter, '{', 0};
        EXPECT_CONTAINS(text, rule);
    }
    free(text);
    cli_same_files(path, "docs/schedules.svg"); /* the README's; make it anew if this differs */
}

/* ---- comparing ---- */

static void test_a_comparison_says_what_noise_does(void) {
    struct cli_run run;
    char path[512];
    size_t i;
    const json_t *schedule;
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    snprintf(path, sizeof path, "%s/c", test_temporary_directory());
    CLI_CODE(&run, 0, "simulate --compare --copy 0.1 --json %s", path);
    json_t *root = cli_json(path);
    const json_t *list = json_object_get(root, "schedules");
    json_array_foreach(list, i, schedule) {
        const json_t *noise = json_object_get(schedule, "noise");
        double median = cli_number(noise, "median"), worst = cli_number(noise, "worst");
        CHECK_CONTAINS(run.output, json_string_value(json_object_get(schedule, "schedule")));
        EXPECT(median > 0.9 && median < 1.1 && worst >= median && worst < 1.1);
    }
    EXPECT(json_array_size(list) >= 10);
    json_decref(root);
}

static void test_a_schedule_that_does_not_fit_is_named_and_left_out(void) {
    struct cli_run run;
    CLI_CODE(&run, 0, "simulate --compare gpipe,dualpipe-v --workers 4 --chunks 3");
    CHECK_CONTAINS(run.output, "dualpipe-v is left out: ");
    CLI_CODE(&run, 2, "simulate --compare dualpipe-v --workers 4 --chunks 3");
    CLI_CODE(&run, 2, "simulate --compare gpipe,dualpip-v");
    CHECK_CONTAINS(run.output, "there is no schedule 'dualpip-v'");
}

/* ---- tables and faults ---- */

static void make_table(const char *text, char path[512]) {
    io_make_file(test_temporary_directory(), "t.csv", text, strlen(text), path);
}

static void test_a_table_from_a_file_runs(void) {
    struct cli_run run;
    char path[512];
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    make_table("0F0,0F1,0I0,0W0,0B1\n1F0,1I0,1F1,1B1,1W0\n", path);
    CLI_CODE(&run, 0, "simulate --schedule %s", path);
    /* 0F0 0F1 . 0I0 0W0 0B1 0B1 and . 1F0 1I0 1F1 1B1 1B1 1W0 */
    CHECK_CONTAINS(run.output, "2 stages on 2 workers, 2 micro-batches, 10 actions");
    CHECK_CONTAINS(run.output, "step 8 s");
    CLI_CODE(&run, 2, "simulate --schedule %s --chunks 3", path);
    CHECK_CONTAINS(run.output, "2 micro-batches, the run has 3");
}

/* 0R0 stands in slack, before its gradient can be there. */
static void test_a_table_that_late_recompute_ties_up_is_named(void) {
    struct cli_run run;
    char path[512];
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    make_table("0F0,0R0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n", path);
    CLI_CODE(&run, 0, "simulate --schedule %s", path);
    CLI_CODE(&run, 2, "simulate --schedule %s --recompute late", path);
    CHECK_CONTAINS(run.output, "worker 0 waits at 0R0 for 1B0");
}

static void test_what_cannot_be_is_refused(void) {
    struct cli_run run;
    CLI_CODE(&run, 2, "simulate --time F=-1,Q=2,B --copy -1 --noise 2");
    CHECK_CONTAINS(run.output, "--time F=-1");
    CHECK_CONTAINS(run.output, "--time Q=2");
    CHECK_CONTAINS(run.output, "--time B");
    CHECK_CONTAINS(run.output, "--copy");
    CHECK_CONTAINS(run.output, "noise");
    CLI_CODE(&run, 2, "simulate --stages 7 --virtual-stages 2 --workers 3");
    CHECK_CONTAINS(run.output, "the nearest is --stages 6");
    CLI_CODE(&run, 2, "simulate --schedule 2f2b");
    CHECK_CONTAINS(run.output, "there is no schedule '2f2b'");
    CLI_CODE(&run, 2, "simulate --compare --trace x");
    CLI_CODE(&run, 2, "simulate --time F=1e308");
    CHECK_CONTAINS(run.output, "too large to add up");
    CLI_CODE(&run, 2, "simulate --schedule none.csv");
    CHECK_CONTAINS(run.output, "none.csv");
}

/* The same question, asked alone and among others. */
static void test_alone_and_compared_a_schedule_takes_the_same(void) {
    static const char *const options[] = {"--workers 4 --chunks 8", "--stages 8 --chunks 8",
                                          "--workers 2 --chunks 4 --time F=3,B=5,I=2,W=3",
                                          "--virtual-stages 2 --workers 3 --chunks 6"};
    struct cli_run run;
    char path[512];
    snprintf(path, sizeof path, "%s/j", test_temporary_directory());
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        CLI_CODE(&run, 0, "simulate --schedule zb-v %s --json %s", options[i], path);
        json_t *one = cli_json(path);
        CLI_CODE(&run, 0, "simulate --compare zb-v %s --json %s", options[i], path);
        json_t *all = cli_json(path);
        const json_t *other = json_array_get(json_object_get(all, "schedules"), 0);
        EXPECT_NEAR(cli_number(one, "step"), cli_number(other, "step"), 0);
        EXPECT_NEAR(cli_number(one, "stage_share"), cli_number(other, "stage_share"), 0);
        json_decref(one);
        json_decref(all);
    }
    CLI_CODE(&run, 0, "simulate --schedule zb-v --workers 4 --chunks 8");
    CHECK_CONTAINS(run.output, "step 25.5 s, bubble 5.88%");
    CHECK_CONTAINS(run.output, "a stage takes 0.5 of --time, which is a worker's share");
    CHECK_CONTAINS(run.output, "0 s            4            4\n"); /* activations, bytes */
}

WEIR_TEST_SUITE(cli_simulate, TEST(alone_and_compared_a_schedule_takes_the_same),
                TEST(closed_forms_hold_for_every_schedule),
                TEST(late_recompute_costs_a_forward_per_stage_but_one),
                TEST(late_recompute_runs_under_every_schedule),
                TEST(slow_links_turn_the_ranking_round), TEST(parts_of_idle_time_add_up),
                TEST(a_step_of_a_model_is_the_plans), TEST(late_recompute_has_a_table_of_its_own),
                TEST(peaks_of_a_model_are_bytes), TEST(a_comparison_cuts_a_model_for_each_schedule),
                TEST(a_model_that_was_not_measured_is_measured_once),
                TEST(a_limit_leaves_out_what_does_not_fit), TEST(a_trace_holds_every_action),
                TEST(a_picture_shows_every_action_and_nothing_from_elsewhere),
                TEST(a_comparison_says_what_noise_does),
                TEST(a_schedule_that_does_not_fit_is_named_and_left_out),
                TEST(a_table_from_a_file_runs), TEST(a_table_that_late_recompute_ties_up_is_named),
                TEST(what_cannot_be_is_refused))
