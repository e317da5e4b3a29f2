/* SPDX-License-Identifier: MIT */
/*
 * Goal: the command offers every schedule, prints tables that it accepts, and computes the same
 * bytes with all of them. Method: `weir schedule` and its own --check; `weir grad` on a small GPT
 * and on a U-Net, whose skips cross stages, against one stage with the same order of accumulation.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int stages, workers; /* of the runs */
    bool descending;     /* gradients are added from the last micro-batch to the first */
} schedules[] = {{"gpipe", 3, 2, true},       {"1f1b", 4, 2, false},   {"interleaved", 4, 2, false},
                 {"looped-bfs", 4, 2, true},  {"zb-h1", 3, 3, false},  {"zb-h2", 3, 3, false},
                 {"zb-v", 4, 2, false},       {"v-half", 4, 2, false}, {"v-min", 4, 2, false},
                 {"dualpipe-v", 4, 2, false}, {"auto", 4, 2, false}};
enum { SCHEDULES = sizeof schedules / sizeof schedules[0] };

static void test_every_schedule_prints_a_table_that_check_accepts(void) {
    static const char *const plain[] = {"", " --plain", " --checkpoint always"};
    struct cli_run run;
    const char *folder = test_temporary_directory();
    CLI_CODE(&run, 0, "schedule --help");
    for (int k = 0; k < SCHEDULES; k++) {
        CHECK_CONTAINS(run.output, schedules[k].name);
        CHECK_EQ_STR(weir_schedule_name((uint32_t)k), schedules[k].name);
    }
    for (int k = 0; k < SCHEDULES; k++)
        for (int i = 0; i < 3; i++) {
            CLI_CODE(&run, 0,
                     "schedule --schedule %s --stages %d --workers %d --chunks 6 --csv - %s "
                     "2>/dev/null >%s/t.csv",
                     schedules[k].name, schedules[k].stages, schedules[k].workers, plain[i],
                     folder);
            CLI_CODE(&run, 0, "schedule --check %s/t.csv --stages %d --workers %d --chunks 6",
                     folder, schedules[k].stages, schedules[k].workers);
            CHECK_CONTAINS(run.output, "complete, nothing twice, no deadlock");
        }
    CHECK_EQ_STR(weir_schedule_name(SCHEDULES), NULL);
}

static void test_recomputation_stands_in_idle_time_or_last(void) {
    struct cli_run run;
    const char *loop = "schedule --schedule 1f1b --stages 3 --workers 2 --chunks 6 --checkpoint "
                       "always --csv - 2>/dev/null";
    CLI_CODE(&run, 0, "%s", loop);
    CHECK_CONTAINS(run.output, "\n1F0,1F1,1R0,1F2,1B0,");
    CLI_CODE(&run, 0, "%s --recompute late", loop);
    CHECK_CONTAINS(run.output, "\n1F0,1F1,1F2,1R0,1B0,");
}

static void test_counts_that_do_not_fit_are_refused_with_the_nearest(void) {
    static const struct {
        const char *options, *reason;
    } refused[] = {
        {"zb-v --stages 5", "the nearest are 4 and 6 stages"},
        {"v-half --stages 1", "the nearest is 2 stages"},
        {"v-min --stages 6 --workers 2", "ask for 3 workers or 4 stages"},
        {"zb-h1 --stages 4 --workers 2", "ask for 4 workers or 2 stages"},
        {"interleaved --stages 3", "the nearest are 2 and 4 stages"},
        {"looped-bfs --stages 7 --workers 3", "the nearest are 6 and 9 stages"},
        {"interleaved --stages 8 --chunks 9", "the nearest are 8 and 10"},
        {"interleaved --stages 4 --workers 2 --chunks 11", "the nearest are 10 and 12"},
        {"dualpipe-v --stages 6 --chunks 4", "the nearest is 6"},
        {"zb-w", "choose one of gpipe, 1f1b, interleaved, looped-bfs, zb-h1, zb-h2, zb-v, v-half"},
    };
    struct cli_run run;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        CLI_CODE(&run, 2, "schedule --schedule %s", refused[i].options);
        CHECK_CONTAINS(run.output, refused[i].reason);
    }
}

/* ---- runs ---- */

/* Small images and masks of `rows` rows. */
static void make_images(const char *folder, int64_t rows, char path[512]) {
    static float numbers[4 * 3 * 16 * 16];
    struct weir__io io = {.allocator = test_allocator()};
    for (uint32_t i = 0; i < 4 * 3 * 16 * 16; i++)
        numbers[i] = (float)((i * 2654435761u) >> 16) / 65536.0f - 0.5f;
    static float masks[4 * 16 * 16];
    for (uint32_t i = 0; i < 4 * 16 * 16; i++) masks[i] = numbers[i] > 0 ? 1.0f : 0.0f;
    struct weir__safetensors_item items[] = {{.name = "input",
                                              .dtype = WEIR_F32,
                                              .rank = 4,
                                              .shape = {rows, 3, 16, 16},
                                              .data = numbers},
                                             {.name = "target",
                                              .dtype = WEIR_F32,
                                              .rank = 4,
                                              .shape = {rows, 1, 16, 16},
                                              .data = masks}};
    snprintf(path, 512, "%s/d", folder);
    EXPECT_STATUS(weir__safetensors_save(&io, path, items, 2, NULL, 0), WEIR_OK);
}

/* All schedules, each under another mode, against one stage; `model` has at least 4 layers. */
static void expect_same_bytes(const char *model, const char *folder, const char *data) {
    static const char *const modes[] = {"always", "except_last", "never"};
    char whole[2][512], own[512];
    struct cli_run run;
    snprintf(own, sizeof own, "%s/own", folder);
    CLI_CODE(&run, 0, "init %s --out %s/w", model, folder);
    for (int i = 0; i < 2; i++) {
        snprintf(whole[i], sizeof whole[i], "%s/whole%d", folder, i);
        CLI_CODE(&run, 0,
                 "grad %s --stages 1 --chunks 4 --schedule %s --checkpoint never --weights %s/w "
                 "--data %s --out %s --bind none",
                 model, i == 0 ? "1f1b" : "gpipe", folder, data, whole[i]);
    }
    for (int k = 0; k < SCHEDULES; k++) {
        CLI_CODE(&run, 0,
                 "grad %s --stages %d --workers %d --chunks 4 --schedule %s --checkpoint %s "
                 "--recompute %s --weights %s/w --data %s --out %s --bind none",
                 model, schedules[k].stages, schedules[k].workers, schedules[k].name, modes[k % 3],
                 k % 2 == 0 ? "early" : "late", folder, data, own);
        if (!EXPECT(cli_same_files(whole[schedules[k].descending], own)))
            TEST_FAIL("%s: %s", schedules[k].name, modes[k % 3]);
    }
}

static void test_a_gpt_has_the_same_bytes_under_every_schedule(void) {
    char data[512];
    const char *folder = test_temporary_directory();
    cli_make_data(folder, "d", 4, 4, data);
    expect_same_bytes("--layers 2 --width 16 --heads 2 --context 8 --vocab 32", folder, data);
}

static void test_a_unet_has_the_same_bytes_under_every_schedule(void) {
    char data[512];
    const char *folder = test_temporary_directory();
    make_images(folder, 4, data);
    expect_same_bytes("--model unet --depth 2 --num-convs 1 --base-channels 2 --image-size 16",
                      folder, data);
}

WEIR_TEST_SUITE(cli_schedules, TEST(every_schedule_prints_a_table_that_check_accepts),
                TEST(recomputation_stands_in_idle_time_or_last),
                TEST(counts_that_do_not_fit_are_refused_with_the_nearest),
                TEST(a_gpt_has_the_same_bytes_under_every_schedule),
                TEST(a_unet_has_the_same_bytes_under_every_schedule))
