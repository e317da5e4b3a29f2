/* SPDX-License-Identifier: MIT */
/*
 * Goal: `mpiexec -n R weir train` trains as one process does, and what cannot be done so is refused
 * once, and soon. Method: the installed command by whatever MPI is here (--mpi, or an mpiexec on
 * PATH), on one host; what is saved is compared byte for byte, as one file.
 */
#include "cli/cli.h"
#include "net/cpu/level.h"

#include "io/archive.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Nothing about the pipeline but how often it is cut. */
#define RUN CLI_TRAIN " --layers 4 --steps 6 --plan given --chunks 4"

static bool run_ranks(struct cli_run *run, const char *folder, uint32_t ranks,
                      const char *arguments) {
    return cli_run_ranks(run, folder, ranks, "%s", arguments);
}

static struct cli_run run;

static void test_ranks_save_what_one_process_saves(void) {
    const char *folder = test_temporary_directory();
    char arguments[1024], alone[512], together[512], resumed[512];
    snprintf(alone, sizeof alone, "%s/alone", folder);
    snprintf(together, sizeof together, "%s/together", folder);
    snprintf(resumed, sizeof resumed, "%s/resumed", folder);
    CLI_CODE(&run, 0, "train --data %s " RUN " --save-every 2 --stages 3 --save %s", cli_text(),
             alone);
    for (uint32_t ranks = 2; ranks <= 3 && !test_has_failed(); ranks++) {
        snprintf(arguments, sizeof arguments,
                 "train --data %s " RUN " --save-every 2 --stages 3 --save %s", cli_text(),
                 together);
        if (!run_ranks(&run, folder, ranks, arguments)) return;
        if (!EXPECT_EQ_INT(run.code, 0)) puts(run.output);
        EXPECT(strstr(run.output, "update") != NULL);
        cli_same_exported(&run, alone, together);
    }
    /* and goes on from half of the way, to the same end: alone, and by another number */
    snprintf(arguments, sizeof arguments,
             "train --data %s " RUN " --stages 3 --steps 3 --lr-schedule constant --save %s",
             cli_text(), together);
    run_ranks(&run, folder, 3, arguments);
    CLI_CODE(&run, 0, "train --data %s " RUN " --lr-schedule constant --resume %s --save %s",
             cli_text(), together, resumed);
    CLI_CODE(&run, 0, "train --data %s " RUN " --lr-schedule constant --save %s", cli_text(),
             alone);
    cli_same_files(alone, resumed);
    snprintf(arguments, sizeof arguments,
             "train --data %s " RUN " --stages 2 --lr-schedule constant --resume %s", cli_text(),
             together);
    run_ranks(&run, folder, 2, arguments);
    EXPECT_EQ_INT(run.code, 0);
    cli_same_exported(&run, alone, together);
}

static void test_without_options_each_rank_has_one_worker(void) {
    const char *folder = test_temporary_directory();
    char arguments[1024], alone[512], together[512];
    snprintf(alone, sizeof alone, "%s/alone", folder);
    snprintf(together, sizeof together, "%s/together", folder);
    snprintf(arguments, sizeof arguments, "train --data %s " CLI_TRAIN " --steps 3 --save %s",
             cli_text(), together);
    if (!run_ranks(&run, folder, 2, arguments)) return;
    EXPECT_EQ_INT(run.code, 0);
    EXPECT_CONTAINS(run.output, "plan      --schedule "); /* searched by rank 0 for both */
    const char *pipeline = strstr(run.output, " stages on 2 workers, ");
    if (EXPECT(pipeline != NULL)) /* and one of them speaks */
        EXPECT(strstr(pipeline + 1, " stages on 2 workers, ") == NULL);
    CLI_CODE(&run, 0, "train --data %s " CLI_TRAIN " --steps 3 --workers 2 --stages 2 --save %s",
             cli_text(), alone);
    cli_same_exported(&run, alone, together);
}

/* Names of the folder's entries into `run.output`. */
static void expect_files(const char *folder, const char *names, const char *wanted) {
    test_shell(run.output, sizeof run.output, "cd '%s' && printf '%%s ' $(ls -d %s)", folder,
               names);
    EXPECT_EQ_STR(run.output, wanted);
}

static void test_the_newest_stay_and_have_another_name(void) {
    const char *folder = test_temporary_directory();
    char arguments[1024], alone[512], named[512];
    snprintf(alone, sizeof alone, "%s/alone", folder);
    snprintf(named, sizeof named, "%s/k", folder);
    snprintf(arguments, sizeof arguments,
             "train --data %s " RUN " --stages 2 --save-every 2 --keep 2 --save k", cli_text());
    if (!run_ranks(&run, folder, 2, arguments)) return;
    EXPECT_EQ_INT(run.code, 0);
    expect_files(folder, "k*", "k k-4 k-6 ");
    CLI_CODE(&run, 0, "train --data %s " RUN " --save %s", cli_text(), alone);
    cli_same_exported(&run, alone, named);
    /* a resumed run goes on with them, and leaves nothing of them behind */
    snprintf(arguments, sizeof arguments,
             "train --data %s " CLI_TRAIN " --layers 4 --steps 10 --plan given --chunks 4 --stages "
             "3 --save-every 2 --keep 2 --resume k",
             cli_text());
    run_ranks(&run, folder, 3, arguments);
    EXPECT_EQ_INT(run.code, 0);
    EXPECT_EQ_INT(cli_saved_step(named), 10);
    test_shell(run.output, sizeof run.output, "rm -f '%s'/k.exported", folder);
    expect_files(folder, "k*", "k k-10 k-8 ");
    test_shell(run.output, sizeof run.output, "ls '%s/k' | wc -l", folder);
    EXPECT_EQ_INT(atoi(run.output), 3 + 1);
}

/* Of all validations the one that one process finds; and a resumed run knows how good it was, on
 * rank 0: where it gets no better no rank writes, and where it does all do. */
static void test_the_best_is_that_of_one_process(void) {
    const char *folder = test_temporary_directory();
    char arguments[1024], alone[512], together[512], name[600];
    snprintf(alone, sizeof alone, "%s/alone", folder);
    snprintf(together, sizeof together, "%s/together", folder);
    static const char *const parts[] = {" --steps 6 --save", " --lr 0 --steps 8 --resume",
                                        " --lr 0.5 --steps 12 --resume"};
    for (int i = 0; i < 3 && !test_has_failed(); i++) {
        const char *from = parts[i];
        snprintf(arguments, sizeof arguments,
                 "train --data %s " CLI_TRAIN " --layers 4 --plan given --chunks 4 --stages 2 "
                 "--lr-schedule constant --eval-every 2 --keep-best%s %s",
                 cli_text(), from, together);
        if (!run_ranks(&run, folder, 2, arguments)) return;
        if (!EXPECT_EQ_INT(run.code, 0)) puts(run.output);
        CLI_CODE(&run, 0,
                 "train --data %s " CLI_TRAIN " --layers 4 --plan given --chunks 4 --stages 2 "
                 "--lr-schedule constant --eval-every 2 --keep-best%s %s",
                 cli_text(), from, alone);
        snprintf(name, sizeof name, "%s-best", alone);
        int64_t step = cli_saved_step(name);
        EXPECT(step > 0);
        CLI_CODE(&run, 0, "export --load %s-best --out %s-b", together, together);
        snprintf(arguments, sizeof arguments, "%s-b", together);
        cli_same_files(name, arguments);
        cli_same_exported(&run, alone, together);
        test_shell(run.output, sizeof run.output, "ls '%s-best' | wc -l", together);
        EXPECT_EQ_INT(atoi(run.output), 2 + 1);
        test_shell(run.output, sizeof run.output, "rm -f '%s'.exported '%s'-b", together, together);
    }
}

/* From some moment on the files of one rank may hold no more than 400 bytes. */
static void test_a_save_that_fails_on_one_rank_is_told_and_leaves_the_former(void) {
    const char *folder = test_temporary_directory(), *prefix = test_install_prefix();
    char text[2048], saved[512];
    snprintf(text, sizeof text, "train --data %s " CLI_TRAIN " --steps 1", cli_text());
    if (!run_ranks(&run, folder, 2, text)) return; /* or there is an MPI */
    test_shell(run.output, sizeof run.output, "command -v prlimit");
    if (run.output[0] != '/') SKIP("there is no prlimit");
    snprintf(saved, sizeof saved, "%s/saved", folder);
    snprintf(text, sizeof text,
             "train --data %s " CLI_TRAIN " --steps 100000000 --save-every 20 --save saved "
             "--quiet",
             cli_text());
    run.code = test_shell(
        run.output, sizeof run.output,
        "{ cd '%s' && %s -n 2 sh -c 'echo $$ > pid.${PMI_RANK:-$OMPI_COMM_WORLD_RANK}; exec "
        "\"%s/bin/weir\" %s' 2> said & P=$!; w() { I=0; while ! eval \"$1\" && [ $I -lt 600 ]; do "
        "sleep 0.1; I=$((I+1)); done; }; w '[ -e saved/" WEIR__ARCHIVE_INDEX " ]'; "
        "prlimit --fsize=400:400 -p $(cat pid.1); w 'grep -q warning said'; "
        "kill -TERM $(cat pid.0); wait $P; C=$?; cut -c1-300 said; exit $C; }",
        folder, cli_launcher(), prefix, text);
    EXPECT_EQ_INT(run.code, 1);
    EXPECT_CONTAINS(run.output, "weir: train: warning: the save after update");
    EXPECT_CONTAINS(run.output, "failed: rank 1: cannot write saved/part-");
    int64_t step = cli_saved_step(saved);
    EXPECT(step > 0 && step % 20 == 0);
    test_shell(run.output, sizeof run.output, "ls '%s' | wc -l", saved);
    EXPECT_EQ_INT(atoi(run.output), 2 + 1);
    CLI_CODE(&run, 0, "export --load %s --out %s.file", saved, saved);
}

/* One process with the groups, and replicas of one and of two ranks. */
static void test_replicas_save_what_one_process_saves(void) {
    const char *folder = test_temporary_directory();
    char arguments[1024], alone[512], together[512];
    snprintf(alone, sizeof alone, "%s/alone", folder);
    snprintf(together, sizeof together, "%s/together", folder);
    CLI_CODE(&run, 0, "train --data %s " RUN " --gradient-groups 2 --stages 2 --save %s",
             cli_text(), alone);
    for (uint32_t ranks = 2; ranks <= 4 && !test_has_failed(); ranks += 2) {
        snprintf(arguments, sizeof arguments,
                 "train --data %s " RUN " --gradient-groups 2 --replicas 2 --save %s", cli_text(),
                 together);
        if (!run_ranks(&run, folder, ranks, arguments)) return;
        if (!EXPECT_EQ_INT(run.code, 0)) puts(run.output);
        EXPECT_CONTAINS(run.output, "2 replicas, 2 groups of gradients");
        cli_same_exported(&run, alone, together);
    }
    CLI_CODE(&run, 0, "train --data %s " RUN " --gradient-groups 1 --resume %s", cli_text(),
             together);
    EXPECT_CONTAINS(run.output, "--gradient-groups is 1, but");
}

static void test_replicas_without_their_processes_are_told_how_to_start(void) {
    CLI_CODE(&run, 2, "train --data %s " RUN " --replicas 4", cli_text());
    EXPECT_CONTAINS(run.output, "there is 1: start them by mpiexec -n 4 weir train");
    CLI_CODE(&run, 2, "train --data %s " RUN " --gradient-groups 8", cli_text());
    EXPECT_CONTAINS(run.output, "cannot be 8 groups of gradients: give gradient_groups 2");
    CLI_CODE(&run, 0, "plan --layers 4 --chunks 4 --replicas 2 --workers 4 --gradient-groups 4");
}

/* Rank 1 alone is told to end, when rank 0 has saved; all save the same update and end so. */
static void end_one_rank(const char *name, int number) {
    const char *folder = test_temporary_directory();
    char text[2048], saved[512];
    snprintf(saved, sizeof saved, "%s/saved", folder);
    snprintf(text, sizeof text,
             "train --data %s " CLI_TRAIN " --steps 100000000 --save-every 20 --save saved",
             cli_text());
    run.code = test_shell(
        run.output, sizeof run.output,
        "{ cd '%s' && %s -n 2 sh -c 'echo $$ > pid.${PMI_RANK:-$OMPI_COMM_WORLD_RANK}; exec "
        "\"%s/bin/weir\" %s' & P=$!; I=0; while [ ! -e saved/" WEIR__ARCHIVE_INDEX
        " ] && [ $I -lt 600 ]; do sleep 0.1; "
        "I=$((I+1)); done; kill -%s $(cat pid.1); wait $P; }",
        folder, cli_launcher(), test_install_prefix(), text, name);
    EXPECT_EQ_INT(run.code, 128 + number);
    EXPECT_CONTAINS(run.output, "interrupted after");
    EXPECT(cli_saved_step(saved) > 0);
}

static void test_a_signal_to_one_rank_ends_all_with_a_save(void) {
    if (!run_ranks(&run, test_temporary_directory(), 2, "eval --load none")) return; /* no MPI */
    end_one_rank("TERM", SIGTERM);
    end_one_rank("HUP", SIGHUP);
}

/* As on a machine that has no more. */
static void test_ranks_take_the_highest_level_that_all_have(void) {
    const char *folder = test_temporary_directory(), *prefix = test_install_prefix();
    char text[512];
    snprintf(text, sizeof text, "train --data %s " RUN, cli_text());
    if (!run_ranks(&run, folder, 2, text)) return; /* or there is an MPI */
    run.code = test_shell(run.output, sizeof run.output,
                          "{ cd '%s' && %s -n 2 sh -c '[ ${PMI_RANK:-$OMPI_COMM_WORLD_RANK} = 0 ] "
                          "|| export WEIR_LEVEL=%s; exec \"%s/bin/weir\" %s'; }",
                          folder, cli_launcher(), weir__level_at(0)->name, prefix, text);
    snprintf(text, sizeof text, "kernels   vector (%s)", weir__level_at(0)->name);
    EXPECT_EQ_INT(run.code, 0);
    EXPECT_CONTAINS(run.output, text);
}

static void expect_in_file(const char *folder, const char *name, const char *text) {
    char path[512];
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    char *read = cli_read(path, &bytes);
    if (EXPECT(read != NULL)) EXPECT_CONTAINS(read, text);
    free(read);
}

static void test_one_trace_and_one_report_show_all_ranks(void) {
    const char *folder = test_temporary_directory();
    char text[512];
    snprintf(text, sizeof text, "train --data %s " RUN " --trace t.json --report r.html --json -",
             cli_text());
    if (!run_ranks(&run, folder, 2, text)) return;
    EXPECT_EQ_INT(run.code, 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        snprintf(text, sizeof text, "\"rank %u on ", rank);
        expect_in_file(folder, "t.json", text);
        snprintf(text, sizeof text, "\"pid\":%u,\"tid\":%u,\"name\":\"F %u:2\"", rank + 1, rank,
                 rank);
        expect_in_file(folder, "t.json", text);
        snprintf(text, sizeof text, "worker %u</th><td>%u on ", rank, rank);
        expect_in_file(folder, "r.html", text);
    }
    EXPECT_CONTAINS(run.output, "\"bubble\":0.");
    EXPECT(strstr(run.output, "\"bubble\":0.0,") == NULL); /* it is measured */
}

static void test_what_is_for_one_process_is_refused_once(void) {
    const char *folder = test_temporary_directory();
    char arguments[512];
    if (!run_ranks(&run, folder, 2, "layers")) return;
    EXPECT(strstr(run.output, "'profile' and 'doctor' run over several") != NULL);
    snprintf(arguments, sizeof arguments, "train --data %s " RUN " --balance-by time", cli_text());
    if (!run_ranks(&run, folder, 2, arguments)) return;
    EXPECT(run.code != 0);
    const char *first = strstr(run.output, "--balance-by time: over several processes");
    if (EXPECT(first != NULL))
        EXPECT(strstr(first + 1, "--balance-by time: over several processes") == NULL);
}

/* What ranks measure together is a profile that each of them, and who is alone, may go by. */
static void test_ranks_measure_one_profile(void) {
    const char *folder = test_temporary_directory();
    char arguments[1024], alone[512], together[512], path[512];
    snprintf(path, sizeof path, "%s/p", folder);
    snprintf(alone, sizeof alone, "%s/alone", folder);
    snprintf(together, sizeof together, "%s/together", folder);
    snprintf(arguments, sizeof arguments,
             "profile " CLI_MODEL " --batch 8 --chunks 4 --seconds 0.1 --bind none --out p");
    if (!run_ranks(&run, folder, 2, arguments)) return;
    if (!EXPECT_EQ_INT(run.code, 0)) puts(run.output);
    EXPECT_CONTAINS(run.output, "rank 1    takes ");
    json_t *root = cli_json(path), *ranks = json_object_get(root, "ranks");
    double most = 0;
    EXPECT_EQ_UINT(json_array_size(ranks), 2);
    for (size_t r = 0; r < json_array_size(ranks); r++) {
        double pace = json_number_value(json_object_get(json_array_get(ranks, r), "pace"));
        EXPECT(pace > 0 && pace <= 1);
        most = pace > most ? pace : most;
    }
    EXPECT_NEAR(most, 1.0, 0.0);
    uint32_t threads = (uint32_t)json_integer_value(json_object_get(root, "threads"));
    json_decref(root);
    snprintf(arguments, sizeof arguments,
             "train --data %s " CLI_TRAIN
             " --batch 8 --chunks 4 --steps 2 --balance-by time --profile p --bind none --save %s",
             cli_text(), together);
    run_ranks(&run, folder, 2, arguments);
    if (!EXPECT_EQ_INT(run.code, 0)) puts(run.output);
    EXPECT_CONTAINS(run.output, "balance by time: --balance ");
    CLI_CODE(&run, 0,
             "train --data %s " CLI_TRAIN " --batch 8 --chunks 4 --steps 2 --workers 2 --stages 2 "
             "--bind none --save %s",
             cli_text(), alone);
    cli_same_exported(&run, alone, together);
    CLI_CODE_IN(folder, &run, 0,
                "plan " CLI_MODEL " --batch 8 --chunks 4 --workers 2 --threads-per-stage %u "
                "--search --profile p --bind none",
                threads);
    CLI_CODE_IN(folder, &run, 2,
                "plan " CLI_MODEL " --batch 8 --chunks 4 --workers 1 --threads-per-stage %u "
                "--search --profile p --bind none",
                threads);
    EXPECT_CONTAINS(run.output, "the times are of 2 ranks, and there is 1 worker");
}

/* Bits are the groups': with links rank 0 is free to choose how many replicas share them. Of two
 * micro-batches a pipeline waits for a third of its time, replicas for nothing but links. */
static void test_links_choose_replicas_where_groups_are_given(void) {
    static const char *const rates[] = {"1e15", "1e3"};
    const char *folder = test_temporary_directory();
    char arguments[1024], alone[512], together[512], name[600];
    snprintf(alone, sizeof alone, "%s/alone", folder);
    snprintf(name, sizeof name, "%s/links", folder);
    CLI_CODE(&run, 0,
             "train --data %s " CLI_TRAIN " --batch 8 --chunks 2 --steps 3 --plan given --stages 2 "
             "--gradient-groups 2 --save %s",
             cli_text(), alone);
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(name, "w");
        CHECK(file != NULL);
        fprintf(file, "{\"ranks\": 2, \"links\": [{\"alpha\": 0, \"bandwidth\": %s}]}", rates[i]);
        CHECK(fclose(file) == 0);
        snprintf(together, sizeof together, "%s/together-%d", folder, i);
        snprintf(arguments, sizeof arguments,
                 "train --data %s " CLI_TRAIN
                 " --batch 8 --chunks 2 --steps 3 --gradient-groups 2 --links links --save %s",
                 cli_text(), together);
        if (!run_ranks(&run, folder, 2, arguments)) return;
        if (!EXPECT_EQ_INT(run.code, 0)) puts(run.output);
        EXPECT_EQ_INT(strstr(run.output, "2 replicas, 2 groups") != NULL, i == 0);
        cli_same_exported(&run, alone, together);
    }
    snprintf(arguments, sizeof arguments,
             "train --data %s " CLI_TRAIN " --batch 8 --chunks 2 --steps 1 --links links",
             cli_text());
    run_ranks(&run, folder, 2, arguments); /* who gives no groups has one, as without links */
    EXPECT_EQ_INT(run.code, 0);
    EXPECT(strstr(run.output, "replicas") == NULL);
    run_ranks(&run, folder, 3, arguments);
    EXPECT_EQ_INT(run.code, 2);
    EXPECT_CONTAINS(run.output, "--links links: it is of 2 ranks, and there are 3");
    CLI_CODE_IN(folder, &run, 2, "train --data %s " CLI_TRAIN " --links links", cli_text());
    EXPECT_CONTAINS(run.output, "--links links: this process is alone");
}

/* Through the host's memory: the fake NCCL is of one process. */
static void test_gpus_of_ranks_save_what_those_of_one_process_do(void) {
    const char *folder = test_temporary_directory();
    char arguments[1024], alone[512], together[512], replicas[2][512];
    if (test_fake_cuda_path() == NULL) SKIP("the fake CUDA driver was not built");
    CHECK(setenv("WEIR_CUDA_DRIVER", test_fake_cuda_path(), 1) == 0);
    CHECK(setenv("WEIR_FAKE_CUDA_GPUS", "2", 1) == 0);
    CHECK(setenv("WEIR_FAKE_CUDA_RUNS", "1", 1) == 0);
    CHECK(setenv("WEIR_NCCL", "/none", 1) == 0);
    snprintf(alone, sizeof alone, "%s/alone", folder);
    snprintf(together, sizeof together, "%s/together", folder);
    for (int i = 0; i < 2; i++) snprintf(replicas[i], 512, "%s/replicas-%d", folder, i);
    snprintf(arguments, sizeof arguments,
             "train --data %s " CLI_TRAIN
             " --steps 3 --plan given --stages 2 --device cuda:0,cuda:0 --save %s",
             cli_text(), together);
    if (!run_ranks(&run, folder, 2, arguments)) return;
    if (!EXPECT_EQ_INT(run.code, 0)) puts(run.output);
    EXPECT_CONTAINS(run.output, "GPUs of different ranks exchange through the host's memory");
    CLI_CODE(&run, 0,
             "train --data %s " CLI_TRAIN
             " --steps 3 --plan given --stages 2 --device cuda:0,cuda:1 --save %s",
             cli_text(), alone);
    cli_same_exported(&run, alone, together);
    snprintf(arguments, sizeof arguments,
             "train --data %s " CLI_TRAIN " --steps 3 --plan given --stages 2 --device "
             "cuda:0,cuda:0 --replicas 2 --gradient-groups 2 --save %s",
             cli_text(), replicas[0]);
    if (!run_ranks(&run, folder, 4, arguments)) return;
    if (!EXPECT_EQ_INT(run.code, 0)) puts(run.output);
    CLI_CODE(&run, 0,
             "train --data %s " CLI_TRAIN " --steps 3 --plan given --stages 2 --device "
             "cuda:0,cuda:1 --gradient-groups 2 --save %s",
             cli_text(), replicas[1]);
    cli_same_exported(&run, replicas[1], replicas[0]);
    const char *generate = "generate --load alone --prompt weir --tokens 6 --temperature 0 "
                           "--stages 2 --device cuda:0,cuda:0 2>/dev/null";
    static struct cli_run other;
    CLI_CODE_IN(folder, &other, 0, "%s", generate);
    if (!run_ranks(&run, folder, 2, generate)) return;
    EXPECT_EQ_INT(run.code, 0);
    EXPECT_EQ_STR(run.output, other.output);
}

static json_t *doctors_file(const char *folder) {
    char path[512];
    snprintf(path, sizeof path, "%s/doctor.json", folder);
    return json_load_file(path, 0, NULL);
}

static void test_doctor_measures_what_lies_between_ranks(void) {
    const char *folder = test_temporary_directory();
    if (!run_ranks(&run, folder, 3, "doctor --json doctor.json")) return;
    if (!EXPECT_EQ_INT(run.code, 0)) puts(run.output);
    const char *ranks = strstr(run.output, "ranks       3 on 1 host");
    if (EXPECT(ranks != NULL)) EXPECT(strstr(ranks + 1, "ranks       3 on 1 host") == NULL);
    EXPECT_CONTAINS(run.output, "link 2 > 1  alpha ");
    json_t *root = doctors_file(folder);
    CHECK(root != NULL);
    EXPECT_EQ_UINT(json_array_size(json_object_get(root, "ranks")), 3);
    const json_t *links = json_object_get(root, "links");
    EXPECT_EQ_UINT(json_array_size(links), 6);
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *link = json_array_get(links, i);
        EXPECT(json_number_value(json_object_get(link, "alpha")) >= 0.0);
        EXPECT(json_number_value(json_object_get(link, "bandwidth")) > 1e3);
    }
    json_decref(root);
    CLI_CODE_IN(folder, &run, 0, "simulate --links doctor.json");
    EXPECT_CONTAINS(run.output, "3 stages on 3 workers");
}

static void test_where_a_folder_cannot_be_is_refused(void) {
    const char *folder = test_temporary_directory();
    char arguments[512];
    test_shell(run.output, sizeof run.output,
               "cd '%s' && echo mine > file && mkdir other empty && "
               "echo mine > other/mine",
               folder);
    snprintf(arguments, sizeof arguments, "train --data %s " RUN " --save file", cli_text());
    if (!run_ranks(&run, folder, 2, arguments)) return;
    EXPECT(run.code != 0);
    EXPECT_CONTAINS(run.output, "--save file is a file, and several processes save a folder");
    snprintf(arguments, sizeof arguments, "train --data %s " RUN " --save other", cli_text());
    run_ranks(&run, folder, 2, arguments);
    EXPECT_CONTAINS(run.output, "--save other is a folder with other files");
    snprintf(arguments, sizeof arguments, "train --data %s " RUN " --save empty/", cli_text());
    run_ranks(&run, folder, 2, arguments);
    EXPECT_EQ_INT(run.code, 0);
    test_shell(run.output, sizeof run.output, "cd '%s' && cat file other/mine", folder);
    EXPECT_EQ_STR(run.output, "mine\nmine\n");
}

/* As on two hosts that share no disk. */
static void test_a_folder_that_one_rank_does_not_see_is_refused(void) {
    const char *folder = test_temporary_directory(), *prefix = test_install_prefix();
    char text[2048];
    snprintf(text, sizeof text, "train --data %s " CLI_TRAIN " --steps 1", cli_text());
    if (!run_ranks(&run, folder, 2, text)) return; /* or there is an MPI */
    if (test_shell(run.output, sizeof run.output,
                   "cd '%s' && mkdir own && unshare -m mount -t tmpfs none own", folder) != 0)
        SKIP("there is no mount of a process's own here");
    snprintf(text, sizeof text, "train --data %s " CLI_TRAIN " --steps 1 --save own/saved",
             cli_text());
    run.code = test_shell(run.output, sizeof run.output,
                          "{ cd '%s' && %s -n 2 sh -c '[ ${PMI_RANK:-$OMPI_COMM_WORLD_RANK} = 0 ] "
                          "&& exec \"%s/bin/weir\" %s; exec unshare -m sh -c \"mount -t tmpfs none "
                          "own && exec %s/bin/weir %s\"'; }",
                          folder, cli_launcher(), prefix, text, prefix, text);
    EXPECT(run.code != 0);
    EXPECT_CONTAINS(run.output, "does not see what rank 0 writes to own/: name a folder that all");
    test_shell(run.output, sizeof run.output, "ls -A '%s/own'", folder);
    EXPECT_EQ_STR(run.output, "");
}

/* Debian's, of which each has the commands under a name of its own; false: there is none. */
static bool by_older(const char *name, const char *alone) {
    const char *folder = test_temporary_directory();
    char together[512];
    snprintf(together, sizeof together, "%s/together", folder);
    if (test_shell(run.output, sizeof run.output, "command -v mpicc.%s mpiexec.%s", name, name))
        return false;
    run.code = test_shell(run.output, sizeof run.output,
                          "mpicc.%s -std=c11 -O2 -shared -fPIC -Isrc build/mpi_shim.c -o "
                          "'%s/libweir_mpi.so' && %s.%s --version && "
                          "WEIR_MPI='%s/libweir_mpi.so' mpiexec.%s -n 2 '%s/bin/weir' train --data "
                          "%s " RUN " --stages 2 --save '%s'",
                          name, folder, cli_launcher(), name, folder, name, test_install_prefix(),
                          cli_text(), together);
    if (!EXPECT_EQ_INT(run.code, 0)) puts(run.output);
    cli_same_exported(&run, alone, together);
    return true;
}

static void test_an_older_mpi_serves_by_the_small_library(void) {
    char alone[512];
    if (test_install_prefix() == NULL) SKIP("no installed command: run by 'zig build test'");
    if (test_is_sanitized()) SKIP("a sanitizer looks into MPI's own memory too");
    snprintf(alone, sizeof alone, "%s/alone", test_temporary_directory());
    CLI_CODE(&run, 0, "train --data %s " RUN " --stages 2 --save %s", cli_text(), alone);
    bool open = by_older("openmpi", alone), mpich = by_older("mpich", alone);
    if (!open && !mpich) SKIP("there is neither libopenmpi-dev nor libmpich-dev here");
}

/* One that does what the others do not would be waited for, or would wait, for ever. */
static void test_options_that_one_rank_has_alone_are_refused(void) {
    const char *folder = test_temporary_directory(), *text = cli_text();
    char base[1024];
    static const struct {
        const char *alone, *said;
    } cases[] = {
        {"--save saved", "--save: rank 1 on "},
        {"--save-weights saved", " has 'saved', rank 0 has none: give all ranks the same options"},
        {"--sample 4", "--sample: rank 1 on "},
        {"--eval-batches 3", " has '3', rank 0 has '"},
        {"--load missing", "--load: rank 1 on "},
        {"--schedule gpipe", " has 'gpipe', rank 0 has '1f1b': "},
        {"--schedule 1f1b", " has '1f1b', given, rank 0 has '1f1b', not given: "}};
    snprintf(base, sizeof base, "train --data %s " CLI_TRAIN " --steps 1", text);
    if (!run_ranks(&run, folder, 2, base)) return; /* or there is an MPI */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run.code = test_shell(
            run.output, sizeof run.output,
            "{ cd '%s' && %s -n 2 sh -c 'W=\"%s/bin/weir\"; [ "
            "${PMI_RANK:-$OMPI_COMM_WORLD_RANK} = 0 ] && exec $W %s; exec $W %s %s' 2>&1; }",
            folder, cli_launcher(), test_install_prefix(), base, base, cases[i].alone);
        EXPECT_EQ_INT(run.code, 2);
        EXPECT_CONTAINS(run.output, cases[i].said);
    }
}

/* Nor may what they are judged by differ. */
static void test_other_held_out_data_are_refused(void) {
    const char *folder = test_temporary_directory();
    char base[1024];
    snprintf(base, sizeof base, "train --data %s " CLI_TRAIN " --steps 1 --eval-data text",
             cli_text());
    if (!cli_do(folder, "for R in 0 1; do mkdir $R; seq $((R+1)) 5000 > $R/text; done; "
                        "cp 0/text text"))
        return;
    if (!run_ranks(&run, folder, 2, base)) return;
    EXPECT_EQ_INT(run.code, 0);
    run.code = test_shell(run.output, sizeof run.output,
                          "{ cd '%s' && %s -n 2 sh -c 'cd "
                          "${PMI_RANK:-$OMPI_COMM_WORLD_RANK} && exec \"%s/bin/weir\" %s' 2>&1; }",
                          folder, cli_launcher(), test_install_prefix(), base);
    EXPECT_EQ_INT(run.code, 2);
    EXPECT_CONTAINS(run.output, "the ranks have different data: the same files must lie where");
}

static void test_doctor_refuses_once(void) {
    static const char refusal[] = "--json none/x: its folder: No such file";
    if (!run_ranks(&run, test_temporary_directory(), 3, "doctor --json none/x")) return;
    EXPECT_EQ_INT(run.code, 2);
    const char *first = strstr(run.output, refusal);
    if (EXPECT(first != NULL)) EXPECT(strstr(first + 1, refusal) == NULL);
}

static void test_more_ranks_than_workers_are_told_how_many_there_are(void) {
    char arguments[512];
    snprintf(arguments, sizeof arguments, "train --data %s " RUN " --workers 2 --stages 2",
             cli_text());
    if (!run_ranks(&run, test_temporary_directory(), 3, arguments)) return;
    EXPECT(run.code != 0);
    EXPECT(strstr(run.output, "2 workers for 3 ranks") != NULL);
}

WEIR_TEST_SUITE(cli_ranks, TEST(an_older_mpi_serves_by_the_small_library),
                TEST(options_that_one_rank_has_alone_are_refused),
                TEST(other_held_out_data_are_refused), TEST(replicas_save_what_one_process_saves),
                TEST(replicas_without_their_processes_are_told_how_to_start),
                TEST(ranks_save_what_one_process_saves),
                TEST(without_options_each_rank_has_one_worker),
                TEST(the_newest_stay_and_have_another_name), TEST(the_best_is_that_of_one_process),
                TEST(a_save_that_fails_on_one_rank_is_told_and_leaves_the_former),
                TEST(a_signal_to_one_rank_ends_all_with_a_save),
                TEST(ranks_take_the_highest_level_that_all_have),
                TEST(one_trace_and_one_report_show_all_ranks),
                TEST(where_a_folder_cannot_be_is_refused),
                TEST(a_folder_that_one_rank_does_not_see_is_refused),
                TEST(gpus_of_ranks_save_what_those_of_one_process_do),
                TEST(what_is_for_one_process_is_refused_once), TEST(ranks_measure_one_profile),
                TEST(links_choose_replicas_where_groups_are_given),
                TEST(doctor_measures_what_lies_between_ranks), TEST(doctor_refuses_once),
                TEST(more_ranks_than_workers_are_told_how_many_there_are))
