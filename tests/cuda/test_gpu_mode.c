/* SPDX-License-Identifier: MIT */
/*
 * Goal: the tests on a GPU (weir_tests --gpu) run where there is one, and where there is none fail
 * and say what to do; and so do the benches, and what a portable folder holds. Method: this program
 * once more, and the benches', with the fake driver for the machine's.
 */
#include "harness.h"

#include "device/cuda_kernels.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { OUTPUT_BYTES = 1 << 16 };

static char output[OUTPUT_BYTES];

/* Exit status of this program with such arguments. */
static int run_again(const char *environment, const char *arguments) {
    char self[1024];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (!EXPECT(length > 0)) return -1;
    self[length] = 0;
    return test_shell(output, sizeof output, "env %s '%s' %s", environment, self, arguments);
}

static void test_without_a_gpu_it_fails_and_says_what_to_do(void) {
    CHECK_EQ_INT(run_again("WEIR_CUDA_DRIVER=/none/libcuda.so", "--gpu"), 1);
    CHECK_CONTAINS(output, "nothing was tested on a GPU");
    CHECK_CONTAINS(output, "correct or unset it");
    CHECK(strstr(output, "passed") == NULL);
}

static void pass_on(uint32_t gpus, const char *parts) {
    char environment[1024], arguments[1024];
    snprintf(environment, sizeof environment, "WEIR_CUDA_DRIVER='%s' WEIR_FAKE_CUDA_GPUS=%u",
             test_fake_cuda_path(), gpus);
    snprintf(arguments, sizeof arguments, "--gpu --sanitized --managed-cuda='%s' --seed %llu %s",
             test_managed_cuda_path(), (unsigned long long)test_random_u64(), parts);
    EXPECT_EQ_INT(run_again(environment, arguments), 0);
    EXPECT_CONTAINS(output, "which is the fake driver: nothing is tested on a GPU");
    EXPECT_CONTAINS(output, " 0 failed");
    if (test_has_failed()) puts(output);
}

static void test_its_tests_pass_on_any_driver(void) {
    if (test_fake_cuda_path() == NULL) SKIP("the fake CUDA driver was not built");
    if (test_managed_cuda_path() == NULL) SKIP("the library of managed memory was not built");
    pass_on(1, "kernels_cuda kernels_bits cuda_launch cuda_device gpus");
    CHECK_CONTAINS(output, "ok kernels_cuda/copy_moves_any_bytes");
    CHECK_CONTAINS(output, "ok kernels_bits/");
    CHECK_CONTAINS(output, "ok cuda_launch/casts_go_there_and_back");
    CHECK_CONTAINS(output,
                   "only_enter_changes_the_threads_context: it takes 2 GPUs, and there is 1");
    pass_on(2, "cuda_device/only_enter");
    CHECK_CONTAINS(output, "1 passed");
}

/* The library of managed memory has no mark of the fake driver: it takes kernels as a real one. */
static void test_pipes_of_host_functions_run_on_managed_memory(void) {
    if (test_fake_cuda_path() == NULL) SKIP("the fake CUDA driver was not built");
    if (test_managed_cuda_path() == NULL) SKIP("the library of managed memory was not built");
    if (weir__cuda_image_count == 0) SKIP("this build has no CUDA kernels");
    for (uint32_t gpus = 1; gpus <= 2; gpus++) {
        pass_on(gpus, "engine_cuda");
        CHECK_CONTAINS(output, "ok engine_cuda/hostile_orders_give_the_reference_bits");
        CHECK_CONTAINS(output, "ok engine_cuda/events_are_stamped_by_the_streams");
    }
}

static void test_a_missing_sanitizer_is_named(void) {
    static const char script[] = "build/compute_sanitizer.sh";
    if (access(script, R_OK) != 0) SKIP("the project's folder is not here");
    const char *folder = test_temporary_directory();
    int code = test_shell(output, sizeof output,
                          "printf '#!/bin/sh\\necho ran \"$@\"\\n' >%s/tool && chmod +x %s/tool && "
                          "COMPUTE_SANITIZER=%s/tool sh %s memcheck prog --gpu",
                          folder, folder, folder, script);
    CHECK_EQ_INT(code, 0);
    CHECK_CONTAINS(output, "ran --tool memcheck --error-exitcode 9 --print-limit 20 "
                           "--report-api-errors no prog --gpu");
    if (test_shell(output, sizeof output, "command -v compute-sanitizer") == 0 ||
        access("/usr/local/cuda/bin/compute-sanitizer", X_OK) == 0)
        SKIP("this machine has compute-sanitizer");
    code = test_shell(output, sizeof output, "CUDA_HOME=/none sh %s racecheck prog", script);
    CHECK_EQ_INT(code, 3);
    CHECK_CONTAINS(output, "racecheck: nothing was checked, there is no compute-sanitizer");
}

/* What a toolkit's nvcc is asked for, in `output`; its exit status. The compiler is made up. */
static int ask_toolkit(const char *release, const char *known, const char *arguments) {
    const char *folder = test_temporary_directory();
    return test_shell(output, sizeof output,
                      "{ cat >%s/nvcc <<'END' && chmod +x %s/nvcc && "
                      "sh build/nvcc.sh %s/nvcc '80 90 100' %s\n"
                      "#!/bin/sh\n"
                      "case $1 in\n"
                      "  --version) echo 'Cuda compilation tools, release %s, V1' ;;\n"
                      "  --list-gpu-arch) printf 'compute_%%s\\n' %s ;;\n"
                      "  *) echo \"$@\" ;;\n"
                      "esac\n"
                      "END\n"
                      "}",
                      folder, folder, folder, arguments, release, known);
}

static void test_a_toolkit_is_asked_for_what_it_knows(void) {
    if (access("build/nvcc.sh", R_OK) != 0) SKIP("the project's folder is not here");
    CHECK_EQ_INT(ask_toolkit("12.4", "50 80 90", "-c x.cu"), 0);
    CHECK_EQ_STR(output, "-c x.cu -gencode arch=compute_80,code=sm_80 "
                         "-gencode arch=compute_90,code=[sm_90,compute_90]\n");
    CHECK_EQ_INT(ask_toolkit("12.4", "50 80 90", "--facts"), 0);
    CHECK_EQ_STR(output, "12040, \"80 90+\",\n");
    CHECK_EQ_INT(ask_toolkit("13.1", "80 90 100 120", "x.cu"), 0);
    CHECK_CONTAINS(output, "--compress-mode=size x.cu ");
    CHECK_CONTAINS(output, "arch=compute_100,code=[sm_100,compute_100]");
    CHECK_EQ_INT(ask_toolkit("11.8", "80 90", "x.cu"), 1);
    CHECK_CONTAINS(output, "is of CUDA 11.8, and the kernels take 12.0 or newer: install it");
    CHECK_EQ_INT(ask_toolkit("15.0", "110 120", "x.cu"), 1);
    CHECK_CONTAINS(output, "is for none of the architectures 80 90 100");
}

/* ---- benches ---- */

static void test_benches_of_gpus_run_through(void) {
    const char *folder = test_temporary_directory();
    if (test_fake_cuda_path() == NULL) SKIP("the fake CUDA driver was not built");
    if (test_bench() == NULL) SKIP("the benches were not built");
    CHECK(folder != NULL);
    int code =
        test_shell(output, sizeof output,
                   "cd %s && WEIR_CUDA_DRIVER='%s' '%s' --gpu --quick --repetitions 1 "
                   "--json b.json && grep -c '\"unit\"' b.json && grep -e '\"fake\"' -e sm_hz -e "
                   "power_watts b.json && grep -A 2 held_back_by b.json",
                   folder, test_fake_cuda_path(), test_bench());
    CHECK_EQ_INT(code, 0);
    static const char *const words[] = {"the fake driver: everything runs, nothing is measured",
                                        "gpu-copy:",
                                        "gpu-kernels:",
                                        "gpu-net-kernels:",
                                        "gpu-beside:",
                                        "gpu-overhead:",
                                        "gpu-gpt2:",
                                        "gpu-unet:",
                                        "all right",
                                        "\"fake\": true",
                                        "\"sm_hz_least\": 1.755e9",
                                        "\"power_watts_most\": 650.0",
                                        "     \"power\",\n     \"heat (software)\"\n"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) CHECK_CONTAINS(output, words[i]);
    CHECK(strstr(output, "GB/s of") == NULL); /* no table of what was not measured */
}

/* A program that is a peer of GPT-2, with a loss that cannot be right, and no U-Net's. */
static const char peer[] = "#!/bin/sh\n"
                           "echo \"$@\" >>asked\n"
                           "case $* in *--depth*)\n"
                           "  echo '{\"error\": \"made without a U-Net\"}'; exit 3 ;;\n"
                           "esac\n"
                           "echo '{\"name\": \"eager\", \"skipped\": \"too slow\"}'\n"
                           "echo '{\"ready\": [\"compile\"], \"about\": \"a peer, 1.0\"}'\n"
                           "while read -r word rest; do\n"
                           "  case $word in\n"
                           "    compile) echo '{\"seconds\": 0.25}' ;;\n"
                           "    memory) echo '{\"bytes\": 1000}' ;;\n"
                           "    weights) test -s \"$rest\" && echo '{\"loss\": 1000}' ;;\n"
                           "  esac\n"
                           "done\n";

static void test_benches_of_nets_ask_a_peer(void) {
    const char *folder = test_temporary_directory();
    char path[1024];
    if (test_fake_cuda_path() == NULL) SKIP("the fake CUDA driver was not built");
    if (test_bench() == NULL) SKIP("the benches were not built");
    snprintf(path, sizeof path, "%s/peer", folder);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(peer, file) >= 0 && fclose(file) == 0);
    int code =
        test_shell(output, sizeof output,
                   "cd %s && WEIR_CUDA_DRIVER='%s' WEIR_FAKE_CUDA_GPUS=1 '%s' gpu-gpt2 "
                   "gpu-unet --quick --repetitions 1 --peer 'sh peer' --json b.json 2>&1; r=$?; "
                   "cat asked; grep -e '\"name\"' -e 'a peer' b.json; exit $r",
                   folder, test_fake_cuda_path(), test_bench());
    CHECK_EQ_INT(code, 1);
    static const char *const words[] = {
        "--serve --batch 4 --layers 1 --width 32",
        "--serve --batch 4 --depth 1",
        "WRONG ANSWER: gpu-gpt2: the peer's loss by the same weights",
        "not measured: gpu-unet: against --peer: made without a U-Net",
        "\"name\": \"gpu-gpt2/speed-to/compile\"",
        "\"name\": \"gpu-gpt2/step/compile\"",
        "\"name\": \"gpu-gpt2/memory/peer\"",
        "\"note\": \"a peer, 1.0\"",
        "\"name\": \"gpu-unet/rate/1-stage\""};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) CHECK_CONTAINS(output, words[i]);
    CHECK(strstr(output, "speed-up/2-stages") == NULL);
}

static void test_benches_refuse_what_is_no_gpu(void) {
    if (test_bench() == NULL) SKIP("the benches were not built");
    int code =
        test_shell(output, sizeof output, "WEIR_CUDA_DRIVER=/none.so '%s' gpu-copy", test_bench());
    CHECK_EQ_INT(code, 1);
    CHECK_CONTAINS(output, "bench: nothing was measured on a GPU: ");
    if (test_fake_cuda_path() == NULL) SKIP("the fake CUDA driver was not built");
    code = test_shell(output, sizeof output, "WEIR_CUDA_DRIVER='%s' '%s' --gpu",
                      test_fake_cuda_path(), test_bench());
    CHECK_EQ_INT(code, 1);
    CHECK_CONTAINS(output, "the fake driver, whose times mean nothing");
}

/* ---- the folder for other machines ---- */

/* Links in the places where build/portable.sh puts programs and libraries. */
static bool make_folder(const char *folder) {
    int code = test_shell(
        output, sizeof output,
        "cd %s && mkdir bin lib && ln -s '%s/bin/weir' bin/weir && ln -s '%s' bin/weir_bench && "
        "ln -s /proc/%d/exe bin/weir_tests && ln -s '%s' lib/libweir_managed_cuda.so && "
        "ln -s '%s' lib/libweir_fake_cuda.so && mkdir peers && cp \"$OLDPWD\"/bench/peers/*.py "
        "peers && "
        "cp \"$OLDPWD/build/portable/run\" \"$OLDPWD/build/portable/README\" "
        "\"$OLDPWD/build/compute_sanitizer.sh\" . && "
        "printf '#!/bin/sh\\nexit 9\\n' >finds && chmod +x finds",
        folder, test_install_prefix(), test_bench(), (int)getpid(), test_managed_cuda_path(),
        test_fake_cuda_path());
    return EXPECT_EQ_STR(output, "") && EXPECT_EQ_INT(code, 0);
}

/* Whether there is all that such a folder holds; skips the test where there is not. */
#define NEED_FOLDER()                                                                              \
    do {                                                                                           \
        if (test_fake_cuda_path() == NULL) SKIP("the fake CUDA driver was not built");             \
        if (test_managed_cuda_path() == NULL) SKIP("managed memory's library was not built");      \
        if (test_bench() == NULL || test_install_prefix() == NULL) SKIP("not all is installed");   \
        if (access("build/portable/run", R_OK) != 0) SKIP("the project's folder is not here");     \
    } while (0)

/* Exit status of a folder's `run`; what it prints, and then its summary, is in `output`. */
static int run_folder(const char *environment, const char *arguments) {
    const char *folder = test_temporary_directory();
    if (!EXPECT(folder != NULL) || !make_folder(folder)) return -1;
    return test_shell(output, sizeof output,
                      "cd %s && env %s sh run %s; r=$?; ls results; cat results/summary.md; "
                      "exit $r",
                      folder, environment, arguments);
}

static void test_a_portable_folder_runs_everything(void) {
    NEED_FOLDER();
    CHECK_EQ_INT(run_folder("WEIR_CUDA_DRIVER=/none", ""), 1);
    CHECK_CONTAINS(output, "# First contact: no GPU");
    CHECK_CONTAINS(output, "GPUs        none: WEIR_CUDA_DRIVER names a library that does not open");
    int code = run_folder("COMPUTE_SANITIZER=./finds WEIR_TEST_PARTS=cuda_device PYTHON=/none",
                          "first-contact --fake train cuda_device gradients sanitizer "
                          "gpu-copy gpu-gpt2");
    CHECK_EQ_INT(code, 1);
    static const char *const words[] = {"train bf16                   held",
                                        "tests cuda_device            held",
                                        "sanitizer racecheck          **failed**, exit 9",
                                        "bench gpu-gpt2               held",
                                        "fake-gpu-0-20",
                                        "# First contact: Fake GPU 0",
                                        "| gradients | skipped: there is no /none |",
                                        "| gpu-copy/",
                                        " | at least 0.95 |"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) CHECK_CONTAINS(output, words[i]);
}

/* Each fault with the step that has to find it, and the words by which the summary names it. */
static void test_a_summary_names_what_failed(void) {
    static const struct {
        const char *fault, *step, *words;
    } planted[] = {
        {"image", "train f32", "UNSUPPORTED_PTX_VERSION"},
        {"library", "train f32", "cuBLASLt: not found"},
        {"plan", "train f32", "cublasLtMatmul: it does not run, as planted"},
        {"weir_copy", "tests kernels_cuda", "FAIL kernels_cuda/copy_moves_any_bytes"},
    };
    char environment[64], wanted[64];
    NEED_FOLDER();
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        snprintf(environment, sizeof environment, "WEIR_FAKE_CUDA_FAULT=%s", planted[i].fault);
        snprintf(wanted, sizeof wanted, "### %s: **failed**, exit ", planted[i].step);
        EXPECT_EQ_INT(run_folder(environment, "--fake f32 kernels_cuda"), 1);
        EXPECT_CONTAINS(output, wanted);
        const char *faults = strstr(output, "## What did not hold");
        EXPECT(faults != NULL && strstr(faults, planted[i].words) != NULL);
        if (test_has_failed()) puts(output);
    }
    CHECK_EQ_INT(run_folder("WEIR_FAKE_CUDA_FAULT=none", "--fake f32 kernels_cuda"), 0);
    CHECK_CONTAINS(output, "Nothing that ran.");
}

/* A command that ends by a signal, or never. */
static void test_a_summary_survives_crashes_and_what_hangs(void) {
    const char *folder = test_temporary_directory();
    NEED_FOLDER();
    CHECK(folder != NULL && make_folder(folder));
    int code = test_shell(
        output, sizeof output,
        "cd %s && mv bin/weir bin/own && cat >bin/weir <<'END'\n"
        "#!/bin/sh\n"
        "[ $1 != train ] || kill -SEGV $$\n"
        "[ $1 != profile ] || exec sleep 60\n"
        "exec \"${0%%/*}/own\" \"$@\"\n"
        "END\n"
        "chmod +x bin/weir && sh run --fake --limit 10 doctor f32 profile kernels_cuda; r=$?; "
        "cat results/summary.md; exit $r",
        folder);
    CHECK_EQ_INT(code, 1);
    CHECK_CONTAINS(output, "| train f32 | **crashed**, signal 11 |");
    CHECK_CONTAINS(output, "| profile unet | **did not end** in 10 s |");
    CHECK_CONTAINS(output, "| tests kernels_cuda | held |");
}

static void test_a_healthy_clock_has_its_row(void) {
    NEED_FOLDER();
    CHECK_EQ_INT(run_folder("WEIR_FAKE_CUDA_HELD_BACK=0", "--fake gpu-copy"), 0);
    CHECK_CONTAINS(output, "| 1.755e9 Hz | of 1.98e9 | |");
    CHECK_EQ_INT(run_folder("WEIR_FAKE_CUDA_HELD_BACK=0x4", "--fake gpu-copy"), 0);
    CHECK_CONTAINS(output, "| 1.755e9 Hz | of 1.98e9, held back by ");
}

static void test_nothing_run_is_nothing_held(void) {
    const char *folder = test_temporary_directory();
    NEED_FOLDER();
    CHECK_EQ_INT(run_folder("WEIR_TEST_PARTS=", "--fake no-such"), 1);
    CHECK_CONTAINS(output, "No step's name has any of: no-such");
    CHECK(folder != NULL && make_folder(folder));
    int code =
        test_shell(output, sizeof output,
                   "cd %s && ln -sf \"$PWD/finds\" bin/weir_bench && sh run --fake gpu-copy; "
                   "r=$?; cat results/summary.md; exit $r",
                   folder);
    CHECK_EQ_INT(code, 1);
    CHECK_CONTAINS(output, "### list benches: **failed**, exit 9");
}

static void test_others_results_stay(void) {
    const char *folder = test_temporary_directory();
    NEED_FOLDER();
    CHECK(folder != NULL && make_folder(folder));
    int code = test_shell(output, sizeof output,
                          "cd %s && mkdir of && echo kept >of/some.json && sh run --fake --into of "
                          "2>&1; r=$?; cat of/*; exit $r",
                          folder);
    CHECK_EQ_INT(code, 2);
    CHECK_CONTAINS(output, "of has files and no summary.md");
    CHECK_CONTAINS(output, "\nkept\n");
}

static void test_a_signal_stops_the_step(void) {
    const char *folder = test_temporary_directory();
    NEED_FOLDER();
    CHECK(folder != NULL && make_folder(folder));
    int code = test_shell(
        output, sizeof output,
        "cd %s && mv bin/weir bin/own && cat >bin/weir <<'END'\n"
        "#!/bin/sh\n"
        "[ $1 != train ] || { echo $$ >pid; exec sleep 60; }\n"
        "exec \"${0%%/*}/own\" \"$@\"\n"
        "END\n"
        "chmod +x bin/weir && { sh run --fake f32 & } && run=$! && "
        "until [ -s pid ]; do sleep 0.1; done; kill $run; wait $run; r=$?; "
        "kill -0 $(cat pid) 2>/dev/null && echo 'it runs on'; cat results/summary.md; exit $r",
        folder);
    CHECK_EQ_INT(code, 130);
    CHECK_CONTAINS(output, "### train f32: stopped");
    CHECK(strstr(output, "it runs on") == NULL);
}

WEIR_TEST_SUITE(gpu_mode, TEST(without_a_gpu_it_fails_and_says_what_to_do),
                TEST(its_tests_pass_on_any_driver),
                TEST(pipes_of_host_functions_run_on_managed_memory),
                TEST(a_missing_sanitizer_is_named), TEST(a_toolkit_is_asked_for_what_it_knows),
                TEST(benches_of_gpus_run_through), TEST(benches_of_nets_ask_a_peer),
                TEST(benches_refuse_what_is_no_gpu), TEST(a_portable_folder_runs_everything),
                TEST(a_summary_names_what_failed), TEST(a_summary_survives_crashes_and_what_hangs),
                TEST(a_healthy_clock_has_its_row), TEST(nothing_run_is_nothing_held),
                TEST(others_results_stay), TEST(a_signal_stops_the_step))
