/* SPDX-License-Identifier: MIT */
/*
 * Goal: a rank that is killed or stopped ends a run over several processes soon, is named once, and
 * leaves files whole; `weir launch` goes on to the file that an undisturbed run writes. Method: the
 * installed command by MPICH's mpiexec on one host, told not to end the living itself (other
 * launchers do so, which leaves nothing to see); ranks are killed by the kernel, at random moments
 * of a printed seed.
 */
#include "cli/cli.h"
#include "io/archive.h"
#include "net/cpu/level.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A run that ends by a fault only; one that takes some seconds. */
#define RUN CLI_MODEL " --batch 6 --chunks 3 --eval-batches 1 --sample 0 --plan given --stages 3"
enum { RANKS = 3 };

static const char *environment(void) {
    static char words[1024];
    const char *folder = test_mpi_path();
    snprintf(words, sizeof words, "%s%s%s export HYDRA_LAUNCHER=fork",
             folder != NULL ? "unset WEIR_MPI WEIR_MPIEXEC; PATH='" : "",
             folder != NULL ? folder : "", folder != NULL ? "/bin':$PATH;" : "");
    return words;
}

/* False: the test has ended. */
static bool can_run(void) {
    char said[4096];
    if (test_install_prefix() == NULL || test_is_sanitized()) {
        test_skip(test_install_prefix() == NULL ? "no installed command: run by 'zig build test'"
                                                : "a sanitizer looks into MPI's own memory too");
        return false;
    }
    int code = test_shell(said, sizeof said, "{ %s; mpiexec --version; }", environment());
    if (code == 0 && strstr(said, "HYDRA") != NULL) return true;
    if (test_mpi_path() != NULL)
        TEST_FAIL("the MPI that was brought has no mpiexec of MPICH's");
    else
        test_skip("there is no mpiexec of MPICH's here");
    return false;
}

static struct cli_run run;
static const char *text; /* what is trained on: one folder for a test */

/* Starts the ranks, each under a shell so that its launcher sees none end by a signal, by which it
 * would end all (a failure it tells all others by SIGUSR1); gives rank `victim` the
 * signal `wait_ms` after the first save, or after the start; and waits for the others. The last
 * lines are how long they took, in ms, and when the signal was given, in ns; a line before it is
 * said who is lost is when that was. */
static void fault(const char *folder, const char *number, uint32_t victim, bool saved,
                  uint32_t wait_ms, const char *options) {
    run.code = test_shell(
        run.output, sizeof run.output,
        "{ cd '%s' && %s && rm -rf saved saved.partial pid.*; mpiexec -disable-auto-cleanup -n %d "
        "sh -c 'trap : USR1; \"%s/bin/weir\" train --data %s " RUN
        " --steps 100000000 --save-every 5 --save saved %s & W=$!; echo $W > pid.$PMI_RANK; "
        "while kill -0 $W; do wait $W; C=$?; done 2>/dev/null; exit $C' "
        "2>&1 | while IFS= read -r L; do case \"$L\" in *'is lost'*) echo said $(date +%%s%%N);; "
        "esac; printf '%%s\\n' \"$L\"; done & P=$!; I=0; while [ $I -lt 300 ] && ! { [ -s pid.0 ] "
        "&& [ -s pid.1 ] && "
        "[ -s pid.2 ] && { [ %d = 0 ] || [ -e saved/" WEIR__ARCHIVE_INDEX
        " ]; }; }; do sleep 0.1; I=$((I+1)); done; "
        "sleep %u.%03u; V=$(cat pid.%u); kill -%s $V; S=$(date +%%s%%N); for R in 0 1 2; do "
        "[ $R = %u ] || while kill -0 $(cat pid.$R) 2>/dev/null && [ $(( ($(date +%%s%%N) - S) / "
        "1000000000 )) -lt 40 ]; do sleep 0.05; done; done; E=$(( ($(date +%%s%%N) - S) / 1000000 "
        "));"
        " kill -KILL $V 2>/dev/null; wait $P; echo; echo took $E; echo given $S; }",
        folder, environment(), RANKS, test_install_prefix(), text, options, saved, wait_ms / 1000,
        wait_ms % 1000, victim, number, victim);
}

static uint32_t took_ms(void) {
    const char *at = strstr(run.output, "\ntook ");
    unsigned ms = UINT32_MAX;
    if (EXPECT(at != NULL)) sscanf(at, "\ntook %u", &ms);
    return ms;
}

/* From the signal until a line said so. */
static uint32_t named_ms(void) {
    const char *said = strstr(run.output, "said "), *given = strstr(run.output, "\ngiven ");
    if (!EXPECT(said != NULL && given != NULL)) return UINT32_MAX;
    return (uint32_t)((strtoull(said + 5, NULL, 10) - strtoull(given + 7, NULL, 10)) / 1000000);
}

static void expect_named(uint32_t victim, const char *how) {
    char rank[64];
    snprintf(rank, sizeof rank, "rank %u on ", victim);
    EXPECT_CONTAINS(run.output, rank);
    EXPECT_CONTAINS(run.output, how);
    EXPECT_EQ_UINT(cli_count(run.output, "is lost"), 1);
    EXPECT_EQ_UINT(cli_count(run.output, "micro-batch -"), 0);
}

static void test_a_rank_that_is_killed_is_named_once_and_soon(void) {
    const char *folder = test_temporary_directory();
    char saved[512];
    if (!can_run()) return;
    text = cli_text();
    snprintf(saved, sizeof saved, "%s/saved", folder);
    for (uint32_t i = 0; i < test_count(3, 200) && !test_has_failed(); i++) {
        uint32_t victim = i < RANKS ? i : (uint32_t)test_random_below(RANKS);
        fault(folder, "KILL", victim, true, (uint32_t)test_random_below(1000), "");
        expect_named(victim, "its process has ended");
        EXPECT_CONTAINS(run.output, "--resume saved goes on from the last checkpoint");
        EXPECT(took_ms() < 5000);
        EXPECT(cli_saved_step(saved) > 0); /* what was committed is whole */
        if (test_has_failed()) puts(run.output);
    }
}

static void test_a_rank_that_is_killed_at_the_start_holds_up_nobody(void) {
    const char *folder = test_temporary_directory();
    if (!can_run()) return;
    text = cli_text();
    for (uint32_t i = 0; i < test_count(2, 40) && !test_has_failed(); i++) {
        fault(folder, "KILL", (uint32_t)test_random_below(RANKS), false,
              (uint32_t)test_random_below(400), "--peer-timeout 1");
        /* before they met each speaks for itself, if the launcher does not fall over it, too */
        EXPECT(cli_count(run.output, "is lost") >= 1 ||
               cli_count(run.output, "process manager error") >= 1);
        EXPECT(took_ms() < 14000); /* the least that the start is given, and the end's */
        if (test_has_failed()) puts(run.output);
    }
}

/* A rank that never joins: the other cannot know which it is, but ends when it was told to. (Its
 * launcher may leave the first one alone then.) */
static void test_the_start_ends_with_its_time_out(void) {
    const char *folder = test_temporary_directory();
    if (!can_run()) return;
    const char *data = cli_text();
    uint64_t from = weir__now_ns();
    run.code = test_shell(
        run.output, sizeof run.output,
        "{ cd '%s' && %s && timeout 60 mpiexec -n 2 sh -c 'if [ \"$PMI_RANK\" = 1 ]; then "
        "while [ ! -e over ]; do sleep 0.1; done; exit 1; fi; \"%s/bin/weir\" train --data %s " RUN
        " --steps 2 --peer-timeout 100 --start-timeout 2; C=$?; touch over; exit $C' 2>&1; }",
        folder, environment(), test_install_prefix(), data);
    EXPECT(weir__now_ns() - from >= UINT64_C(2000000000));
    EXPECT(run.code != 0 && run.code != 124);
    EXPECT_CONTAINS(run.output, "did not come");
    if (test_has_failed()) puts(run.output);
}

/* How long it was silent, as the one that names it has counted; in ms. */
static uint32_t silent_ms(void) {
    static const char said[] = "nothing was heard of it for ";
    const char *at = strstr(run.output, said);
    return EXPECT(at != NULL) ? (uint32_t)(strtod(at + sizeof said - 1, NULL) * 1000 + 0.5) : 0;
}

/* Who watches counts no time in which it did not run itself: so what it says is exact on a busy
 * machine, too. Until it is said may take long there; what no try of three comes below is no
 * chance.
 */
static void test_a_rank_that_is_stopped_is_named_within_the_time_out_and_a_second(void) {
    enum { TIMEOUT_MS = 1500, TRIES = 3 };
    const char *folder = test_temporary_directory();
    if (!can_run()) return;
    text = cli_text();
    for (uint32_t i = 0; i < test_count(2, 20) && !test_has_failed(); i++) {
        uint32_t least = UINT32_MAX;
        for (uint32_t k = 0; k < TRIES && least >= TIMEOUT_MS + 1000 && !test_has_failed(); k++) {
            fault(folder, "STOP", i % RANKS, true, (uint32_t)test_random_below(500),
                  "--peer-timeout 1.5");
            expect_named(i % RANKS, "nothing was heard of it for ");
            EXPECT(silent_ms() >= TIMEOUT_MS && silent_ms() < TIMEOUT_MS + 1000);
            EXPECT(took_ms() < 5000);
            uint32_t named = named_ms();
            EXPECT(named >= TIMEOUT_MS - 200); /* a beat may have come just before */
            least = named < least ? named : least;
        }
        EXPECT(least < TIMEOUT_MS + 1000);
        if (test_has_failed()) puts(run.output);
    }
}

static void test_a_run_that_ends_well_loses_nobody(void) {
    const char *folder = test_temporary_directory();
    if (!can_run()) return;
    run.code = test_shell(run.output, sizeof run.output,
                          "{ cd '%s' && %s && mpiexec -n %d '%s/bin/weir' train --data %s " RUN
                          " --steps 4 --peer-timeout 0.5 2>&1; }",
                          folder, environment(), RANKS, test_install_prefix(), cli_text());
    EXPECT_EQ_INT(run.code, 0);
    EXPECT(strstr(run.output, "is lost") == NULL && strstr(run.output, "warning") == NULL);
    if (test_has_failed()) puts(run.output);
}

static void test_one_process_has_no_peers_to_wait_for(void) {
    CLI_CODE(&run, 0, "train --data %s " RUN " --steps 1 --peer-timeout 3 2>&1", cli_text());
    EXPECT_CONTAINS(run.output, "warning: --peer-timeout: one process waits for no other");
    CLI_CODE(&run, 2, "train --data %s " RUN " --steps 1 --peer-timeout 0.05 2>&1", cli_text());
    EXPECT_CONTAINS(run.output, "--peer-timeout 0.05: too small: give at least 0.1\n");
}

/* ---- launch ---- */

#define LONG RUN " --steps 600 --save-every 10 --log-dir"

/* Kills a rank of the job that saves to folder/saved, so many times: each is the child of a process
 * with the same command line. */
static void launch_and_kill(const char *folder, uint32_t kills, const char *options) {
    run.code = test_shell(
        run.output, sizeof run.output,
        "{ cd '%s' && %s && { '%s/bin/weir' launch -n %d --restarts 20 -- train --data %s " LONG
        " log --save '%s/saved' %s 2>&1 & } ; P=$!; K=0; while [ $K -lt %u ] && kill -0 $P "
        "2>/dev/null; do sleep 0.%03u; F=; for D in /proc/[0-9]*; do case \"$(tr '\\0' ' ' < "
        "$D/cmdline 2>/dev/null)\" in \"%s/bin/weir train \"*\"%s/saved\"*) cmp -s $D/cmdline "
        "/proc/$(sed -n 's/^PPid:[^0-9]*//p' $D/status)/cmdline && F=${D#/proc/};; esac; "
        "done; [ -z \"$F\" ] || [ ! -e saved/" WEIR__ARCHIVE_INDEX
        " ] || { kill -KILL $F; K=$((K+1)); }; done; wait $P; }",
        folder, environment(), test_install_prefix(), RANKS, cli_text(), folder, options, kills,
        (uint32_t)(300 + test_random_below(600)), test_install_prefix(), folder);
}

static void same_curves(const char *folder) {
    char output[256];
    EXPECT_EQ_INT(test_shell(output, sizeof output,
                             "{ cd '%s' && cut -d, -f1,2 log/metrics.csv > a && cut -d, -f1,2 "
                             "log.alone/metrics.csv > b && cmp a b; }",
                             folder),
                  0);
}

static void test_launch_goes_on_to_the_file_of_an_undisturbed_run(void) {
    const char *folder = test_temporary_directory();
    char alone[512], saved[512];
    if (!can_run()) return;
    snprintf(alone, sizeof alone, "%s/alone", folder);
    snprintf(saved, sizeof saved, "%s/saved", folder);
    CLI_CODE_IN(folder, &run, 0, "train --data %s " LONG " log.alone --workers 3 --save alone",
                cli_text());
    launch_and_kill(folder, test_count(1, 8), "");
    if (!EXPECT_EQ_INT(run.code, 0)) puts(run.output);
    EXPECT_CONTAINS(run.output, "is lost: its process has ended");
    EXPECT_CONTAINS(run.output, "restart 1 of at most 20 on 3 ranks, from ");
    EXPECT_CONTAINS(run.output, "resumed from ");
    cli_same_exported(&run, alone, saved);
    same_curves(folder);
}

/* An mpiexec that runs all on this machine, and in whose sight host b is gone with a file. */
static bool write_launcher(const char *folder) {
    return cli_do(folder,
                  "cat > launcher <<'END'\n"
                  "#!/bin/sh\nA=\nwhile [ $# -gt 0 ]; do\nif [ \"$1\" = -hosts ]; then\n"
                  "case \"$2\" in *b:*) [ -e \"${0%%/*}/gone\" ] && exit 1;; esac\nshift 2\n"
                  "else A=\"$A '$1'\"; shift; fi\ndone\neval exec mpiexec $A\nEND\n"
                  "chmod +x launcher && printf 'a:2\\nb:2\\n' > hosts");
}

/* Four replicas of a rank each, whose groups of gradients stay when two ranks are left. */
static void test_launch_goes_on_with_fewer_replicas(void) {
    static const char options[] = CLI_MODEL
        " --batch 8 --chunks 4 --eval-batches 1 --sample 0 --plan given --stages 2 --steps 600 "
        "--save-every 10";
    const char *folder = test_temporary_directory();
    char alone[512], saved[512];
    if (!can_run() || !write_launcher(folder)) return;
    snprintf(alone, sizeof alone, "%s/alone", folder);
    snprintf(saved, sizeof saved, "%s/saved", folder);
    CLI_CODE_IN(folder, &run, 0, "train --data %s %s --gradient-groups 4 --save alone", cli_text(),
                options);
    run.code = test_shell(
        run.output, sizeof run.output,
        "{ cd '%s' && %s && { WEIR_MPIEXEC=$PWD/launcher '%s/bin/weir' launch -n 4 --hosts hosts "
        "-- train --data %s %s --replicas 4 --save '%s/saved' 2>&1 & } ; P=$!; while [ ! -e "
        "saved/" WEIR__ARCHIVE_INDEX
        " ] && kill -0 $P 2>/dev/null; do sleep 0.1; done; touch gone; for D in /proc/[0-9]*; do "
        "case \"$(tr '\\0' ' ' < $D/cmdline 2>/dev/null)\" in \"%s/bin/weir train "
        "\"*\"%s/saved\"*) "
        "F=${D#/proc/};; esac; done; kill -KILL $F; wait $P; }",
        folder, environment(), test_install_prefix(), cli_text(), options, folder,
        test_install_prefix(), folder);
    if (!EXPECT_EQ_INT(run.code, 0)) puts(run.output);
    EXPECT_CONTAINS(run.output, "host b does not answer");
    EXPECT_CONTAINS(run.output, "on 2 ranks as 2 replicas, not 4, from ");
    EXPECT_CONTAINS(run.output, "2 replicas, 4 groups of gradients");
    cli_same_exported(&run, alone, saved);
}

/* A checkpoint of the least level goes on as such under launch, on hosts that have more. */
static void test_a_level_does_not_rise_when_a_job_goes_on(void) {
    const char *folder = test_temporary_directory(), *least = weir__level_at(0)->name;
    char kernels[64];
    if (!can_run()) return;
    snprintf(kernels, sizeof kernels, "vector (%s)", least);
    for (int i = 0; i < 2 && !test_has_failed(); i++) {
        CLI_CODE_IN(folder, &run, 0,
                    "train --data %s " RUN
                    " --lr-schedule constant --level %s --steps 2 --save saved",
                    cli_text(), least);
        run.code = test_shell(
            run.output, sizeof run.output,
            "{ cd '%s' && %s && WEIR_LAUNCH=word mpiexec -n %d '%s/bin/weir' train --data %s " RUN
            " --lr-schedule constant --steps 4 --resume saved --save saved.%d 2>&1; }",
            folder, environment(), 1 + i, test_install_prefix(), cli_text(), i);
        if (!EXPECT_EQ_INT(run.code, 0)) puts(run.output);
        EXPECT_CONTAINS(run.output, kernels);
        EXPECT(strstr(run.output, "computes here") == NULL);
    }
}

/* A first start that is lost before it has looked at anything. */
static void test_launch_leaves_a_log_alone_that_is_not_its_own(void) {
    const char *folder = test_temporary_directory();
    if (!can_run()) return;
    if (!cli_do(folder,
                "cat > launcher <<'END'\n"
                "#!/bin/sh\n[ \"$1\" = --version ] || [ -e once ] || { touch once; exit 139; }\n"
                "exec mpiexec \"$@\"\nEND\n"
                "chmod +x launcher && mkdir log && echo foreign > log/metrics.csv"))
        return;
    run.code = test_shell(run.output, sizeof run.output,
                          "{ cd '%s' && %s && WEIR_MPIEXEC=$PWD/launcher '%s/bin/weir' launch -n 2 "
                          "-- train --data %s " RUN " --steps 2 --log-dir log 2>&1; }",
                          folder, environment(), test_install_prefix(), cli_text());
    EXPECT_EQ_INT(run.code, 2);
    EXPECT_CONTAINS(run.output, "restart 1 of at most 3");
    EXPECT_CONTAINS(run.output, "train: --log-dir log");
    test_shell(run.output, sizeof run.output, "cat '%s/log/metrics.csv'", folder);
    EXPECT_EQ_STR(run.output, "foreign\n");
}

/* Some ranks have begun, and then nothing is heard: for as long as the job says. */
static void test_launch_ends_a_start_with_its_time_out(void) {
    const char *folder = test_temporary_directory();
    if (!can_run()) return;
    if (!cli_do(folder, "cat > launcher <<'END'\n"
                        "#!/bin/sh\n[ \"$1\" = --version ] || [ -e once ] || { touch once\n"
                        "echo \"weir-launch $WEIR_LAUNCH starting\" >&2; exec sleep 100; }\n"
                        "exec mpiexec \"$@\"\nEND\nchmod +x launcher"))
        return;
    const char *data = cli_text();
    uint64_t from = weir__now_ns();
    run.code =
        test_shell(run.output, sizeof run.output,
                   "{ cd '%s' && %s && WEIR_MPIEXEC=$PWD/launcher timeout 50 '%s/bin/weir' "
                   "launch -n 2 -- train --data %s " RUN " --steps 2 --peer-timeout 2 2>&1; }",
                   folder, environment(), test_install_prefix(), data);
    EXPECT(weir__now_ns() - from >= UINT64_C(12000000000));
    EXPECT_EQ_INT(run.code, 0);
    EXPECT_CONTAINS(run.output, "launch: a rank that was starting is lost");
    if (test_has_failed()) puts(run.output);
}

/* As when a host goes while MPI starts: the ranks end in it, and the launcher waits. */
static void test_a_start_that_breaks_holds_up_nobody(void) {
    const char *folder = test_temporary_directory();
    if (!can_run()) return;
    if (!cli_do(folder, "cat > launcher <<'END'\n"
                        "#!/bin/sh\n[ \"$1\" = --version ] || [ -e once ] || { touch once\n"
                        "echo \"weir-launch $WEIR_LAUNCH starting\" >&2\n"
                        "echo \"weir-launch $WEIR_LAUNCH broken\" >&2; exec sleep 100; }\n"
                        "exec mpiexec \"$@\"\nEND\nchmod +x launcher"))
        return;
    run.code = test_shell(run.output, sizeof run.output,
                          "{ cd '%s' && %s && WEIR_MPIEXEC=$PWD/launcher timeout 60 '%s/bin/weir' "
                          "launch -n 2 -- train --data %s " RUN " --steps 2 2>&1; }",
                          folder, environment(), test_install_prefix(), cli_text());
    EXPECT_EQ_INT(run.code, 0);
    EXPECT_CONTAINS(run.output, "launch: a rank that was starting is lost");
    EXPECT_CONTAINS(run.output, "restart 1 of at most 3");
    EXPECT(strstr(run.output, "weir-launch") == NULL);
}

/* The others may wait for it in MPI for ever. */
static void test_a_rank_that_is_refused_at_the_start_ends_the_job(void) {
    const char *folder = test_temporary_directory();
    if (!can_run()) return;
    run.code = test_shell(run.output, sizeof run.output,
                          "{ cd '%s' && %s && timeout 60 '%s/bin/weir' launch -n 2 -- train --data "
                          "%s " RUN " --steps 2 2>&1; }",
                          folder, environment(), test_install_prefix(), cli_text());
    EXPECT_EQ_INT(run.code, 0); /* without what follows it runs */
    if (!cli_do(folder, "cat > launcher <<'END'\n"
                        "#!/bin/sh\n[ \"$1\" = --version ] && exec mpiexec --version\n"
                        "shift $(($# > 3 ? 3 : 0))\n"
                        "exec mpiexec -disable-auto-cleanup -n 1 env WEIR_MPI=/none \"$@\" : "
                        "-n 1 \"$@\"\nEND\nchmod +x launcher"))
        return;
    run.code = test_shell(run.output, sizeof run.output,
                          "{ cd '%s' && %s && WEIR_MPIEXEC=$PWD/launcher timeout 60 '%s/bin/weir' "
                          "launch -n 2 -- train --data %s " RUN " --steps 2 2>&1; }",
                          folder, environment(), test_install_prefix(), cli_text());
    EXPECT_EQ_INT(run.code, 2);
    EXPECT_CONTAINS(run.output, "/none");
    EXPECT(strstr(run.output, "restart 1") == NULL);
    if (test_has_failed()) puts(run.output);
}

/* Ends by itself: no restart. */
static void expect_code(const char *folder, int code, const char *part, const char *arguments) {
    run.code =
        test_shell(run.output, sizeof run.output, "{ cd '%s' && %s && '%s/bin/weir' %s 2>&1; }",
                   folder, environment(), test_install_prefix(), arguments);
    EXPECT_EQ_INT(run.code, code);
    EXPECT_CONTAINS(run.output, part);
    EXPECT(strstr(run.output, "restart 1") == NULL);
    if (test_has_failed()) puts(run.output);
}

static void test_what_cannot_be_launched_is_refused(void) {
    const char *folder = test_temporary_directory();
    char arguments[512];
    CLI_CODE(&run, 2, "launch -- train 2>&1");
    EXPECT_CONTAINS(run.output, "how many ranks? give -n R");
    CLI_CODE(&run, 2, "launch -n2 2>&1");
    EXPECT_CONTAINS(run.output, "end with -- train");
    CLI_CODE(&run, 2, "launch -n 0 -- grad 2>&1");
    EXPECT_CONTAINS(run.output, "only 'train' goes on where it was");
    CLI_CODE(&run, 2, "launch -n 2 --hosts /none -- train 2>&1");
    EXPECT_CONTAINS(run.output, "--hosts /none: No such file");
    CLI_CODE(&run, 2, "launch -n 2 --launcher srun --hosts /none -- train 2>&1");
    EXPECT_CONTAINS(run.output, "--hosts means nothing to srun");
    CLI_CODE_IN(folder, &run, 0,
                "layers > /dev/null; printf 'a:2\\nb:x # no\\na "
                "slots=2\\n-x\\n' > hosts");
    CLI_CODE_IN(folder, &run, 2, "launch -n 2 --hosts hosts -- train 2>&1");
    EXPECT_CONTAINS(run.output, "--hosts hosts: line 2 has no number of slots behind");
    EXPECT_CONTAINS(run.output, "--hosts hosts: line 3 has more than NAME or NAME:SLOTS");
    EXPECT_CONTAINS(run.output, "--hosts hosts: line 4 names no host");
    CLI_CODE(&run, 2, "launch -n 2 -- train --resume run-400 2>&1");
    EXPECT_CONTAINS(run.output, "--resume run-400: say where the job saves, too");
    if (!can_run()) return;
    expect_code(folder, 2, "unknown option --stpes", "launch -n 2 -- train --stpes 3 --save s");
    snprintf(arguments, sizeof arguments,
             "launch -n 3 -- train --data %s " RUN " --workers 2 --save s", cli_text());
    expect_code(folder, 2, "2 workers for 3 ranks", arguments);
}

static void test_launch_passes_a_signal_on_and_does_not_start_again(void) {
    const char *folder = test_temporary_directory();
    char saved[512];
    if (!can_run()) return;
    snprintf(saved, sizeof saved, "%s/saved", folder);
    run.code =
        test_shell(run.output, sizeof run.output,
                   "{ cd '%s' && %s && { '%s/bin/weir' launch -n %d -- train --data %s " RUN
                   " --steps 100000000 --save-every 10 --save saved 2>&1 & } ; P=$!; I=0; while [ "
                   "! -e saved ] "
                   "&& [ $I -lt 300 ]; do sleep 0.1; I=$((I+1)); done; kill -INT $P; wait $P; }",
                   folder, environment(), test_install_prefix(), RANKS, cli_text());
    EXPECT_EQ_INT(run.code, 128 + SIGINT);
    EXPECT(strstr(run.output, "restart") == NULL);
    EXPECT(cli_saved_step(saved) > 0);
    if (test_has_failed()) puts(run.output);
}

/* Which kills all ranks of a SIGTERM that it gets itself. */
static void test_under_slurm_a_signal_to_launch_ends_with_a_save(void) {
    const char *folder = test_temporary_directory();
    char saved[512];
    if (!can_run()) return;
    if (test_shell(run.output, sizeof run.output, "timeout 10 srun -n 2 true") != 0)
        SKIP("there is no Slurm of two processors here");
    snprintf(saved, sizeof saved, "%s/saved", folder);
    run.code = test_shell(
        run.output, sizeof run.output,
        "{ cd '%s' && %s && { '%s/bin/weir' launch -n 2 --launcher srun -- train --data %s " RUN
        " --workers 2 --stages 2 --steps 100000000 --save-every 10 --save saved 2>&1 & } ; P=$!; "
        "I=0; while [ ! -e saved/" WEIR__ARCHIVE_INDEX
        " ] && [ $I -lt 600 ]; do sleep 0.1; I=$((I+1)); done; kill -TERM $P; wait $P; }",
        folder, environment(), test_install_prefix(), cli_text());
    EXPECT_EQ_INT(run.code, 128 + SIGTERM);
    EXPECT_CONTAINS(run.output, "interrupted after");
    EXPECT(cli_saved_step(saved) > 0);
}

WEIR_TEST_SUITE(cli_faults, TEST(a_rank_that_is_killed_is_named_once_and_soon),
                TEST(a_rank_that_is_killed_at_the_start_holds_up_nobody),
                TEST(a_rank_that_is_stopped_is_named_within_the_time_out_and_a_second),
                TEST(a_run_that_ends_well_loses_nobody), TEST(one_process_has_no_peers_to_wait_for),
                TEST(launch_goes_on_to_the_file_of_an_undisturbed_run),
                TEST(launch_goes_on_with_fewer_replicas),
                TEST(launch_leaves_a_log_alone_that_is_not_its_own),
                TEST(the_start_ends_with_its_time_out), TEST(launch_ends_a_start_with_its_time_out),
                TEST(a_start_that_breaks_holds_up_nobody),
                TEST(a_rank_that_is_refused_at_the_start_ends_the_job),
                TEST(a_level_does_not_rise_when_a_job_goes_on),
                TEST(what_cannot_be_launched_is_refused),
                TEST(launch_passes_a_signal_on_and_does_not_start_again),
                TEST(under_slurm_a_signal_to_launch_ends_with_a_save))
