/* SPDX-License-Identifier: MIT */
/*
 * Goal: `plan`, `describe` and `doctor` say what is, in the form that programs rely on; a plan adds
 * up to the byte and is what a run allocates. Method: the installed command; its JSON is added up
 * and compared with what `train` reports. Machines are made up by HWLOC_SYNTHETIC.
 */
#include "cli/cli.h"
#include "device/cuda_kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- plan ---- */

static const char *const parts[] = {"parameters", "gradients", "optimizer", "activations",
                                    "borders",    "portals",   "workspace", "padding"};

/* Bytes of all devices; their parts add up. */
static double check_devices(const json_t *plan, uint32_t workers) {
    const json_t *devices = json_object_get(plan, "devices"), *device;
    size_t index;
    double all = 0.0;
    EXPECT_EQ_UINT(json_array_size(devices), workers);
    json_array_foreach(devices, index, device) {
        double sum = 0.0, total = cli_number(device, "total");
        for (uint32_t i = 0; i < 8; i++) sum += cli_number(device, parts[i]);
        EXPECT(sum == total && total > 0.0);
        EXPECT(json_is_string(json_object_get(device, "name")));
        all += total;
    }
    return all;
}

static double planned_by(const char *options, const char *folder, uint32_t workers) {
    struct cli_run run;
    char path[512];
    double bytes;
    snprintf(path, sizeof path, "%s/p", folder);
    cli_run_at(__FILE__, __LINE__, &run, "plan " CLI_MODEL " --batch 5 --json %s %s", path,
               options);
    if (!cli_code_at(__FILE__, __LINE__, &run, 0)) return -1.0;
    json_t *plan = cli_json(path);
    bytes = check_devices(plan, workers);
    EXPECT(json_is_null(json_object_get(plan, "step")));
    json_decref(plan);
    return bytes;
}

static double planned_in_a_run(const char *options, const char *folder) {
    struct cli_run run;
    char path[512];
    snprintf(path, sizeof path, "%s/j", folder);
    cli_run_at(__FILE__, __LINE__, &run,
               "train " CLI_MODEL " --plan given --batch 5 --sample 10 --data %s/0.txt --steps 1 "
               "--json %s %s",
               folder, path, options);
    if (!cli_code_at(__FILE__, __LINE__, &run, 0)) return -2.0;
    json_t *lines = cli_json_lines(path);
    double bytes =
        cli_number(json_object_get(json_array_get(lines, 1), "summary"), "planned_bytes");
    json_decref(lines);
    return bytes;
}

/* Code, libraries, the text: 48 MiB, whatever the plan. */
static void test_a_process_takes_little_besides_its_plan(void) {
    static const char *const widths[] = {"--width 32 --heads 4", "--width 512 --heads 8"};
    const double besides = 48.0 * 1024 * 1024;
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    const char *folder = test_temporary_directory(), *text = cli_text();
    for (int i = 0; i < 2; i++) {
        struct cli_run run;
        char path[512];
        snprintf(path, sizeof path, "%s/j%d", folder, i);
        CLI(&run,
            "train --layers 2 --context 64 --batch 8 --sample 0 --steps 2 --eval-batches 1 "
            "--data %s --json %s %s",
            text, path, widths[i]);
        CHECK(cli_code_at(__FILE__, __LINE__, &run, 0));
        json_t *lines = cli_json_lines(path);
        json_t *summary = json_object_get(json_array_get(lines, 2), "summary");
        double planned = cli_number(summary, "planned_bytes");
        double peak = cli_number(summary, "peak_bytes");
        json_decref(lines);
        EXPECT(planned > 0 && peak > planned / 2);
        if (peak - planned > besides)
            TEST_FAIL("peak %.0f, planned %.0f, %.0f allowed besides", peak, planned, besides);
    }
}

static void test_a_plan_adds_up_and_is_what_a_run_takes(void) {
    static const struct {
        const char *options;
        uint32_t workers;
    } cases[] = {{"--chunks 3", 2},
                 {"--chunks 1 --stages 1", 1},
                 {"--chunks 5 --stages 4 --checkpoint always --schedule gpipe", 4},
                 {"--chunks 3 --stages 4 --workers 2 --checkpoint never", 2},
                 {"--chunks 2 --balance 1,2,1 --dtype f64", 3},
                 {"--chunks 4 --optimizer sgd --dropout 0.5", 2}};
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    const char *text = cli_text();
    for (uint32_t i = 0; i < 6; i++) {
        double bytes = planned_by(cases[i].options, text, cases[i].workers);
        EXPECT(bytes > 0.0 && bytes == planned_in_a_run(cases[i].options, text));
        if (test_has_failed()) TEST_FAIL("with %s", cases[i].options);
        CHECK_HELPERS();
    }
}

static void test_a_plan_names_what_was_chosen(void) {
    struct cli_run run;
    char path[512];
    snprintf(path, sizeof path, "%s/p", test_temporary_directory());
    CLI_CODE(&run, 0,
             "plan " CLI_MODEL " --stages 3 --schedule gpipe --checkpoint always --json - >%s",
             path);
    CHECK_CONTAINS(run.output, "total"); /* the table: on stderr */
    json_t *plan = cli_json(path), *pipeline = json_object_get(plan, "pipeline");
    const json_t *balance = json_object_get(pipeline, "balance");
    int64_t layers = 0;
    EXPECT_EQ_UINT(json_array_size(balance), 3);
    for (size_t i = 0; i < json_array_size(balance); i++)
        layers += json_integer_value(json_array_get(balance, i));
    EXPECT_EQ_INT(layers, CLI_LAYERS);
    EXPECT(cli_number(pipeline, "stages") == 3);
    EXPECT(cli_number(pipeline, "workers") == 3);
    EXPECT(cli_number(pipeline, "chunks") == 8);
    EXPECT(cli_number(pipeline, "threads_per_stage") == 1);
    EXPECT_EQ_STR(json_string_value(json_object_get(pipeline, "schedule")), "gpipe");
    EXPECT_EQ_STR(json_string_value(json_object_get(pipeline, "checkpoint")), "always");
    json_decref(plan);
}

/* JSON is UTF-8, file names are bytes. */
static void test_a_table_may_have_any_name(void) {
    struct cli_run run;
    const char *folder = test_temporary_directory();
    CLI_CODE(&run, 0,
             "--version >/dev/null; cd %s; weir='%s/bin/weir'; name=$(printf '\\377.csv'); "
             "$weir schedule --schedule gpipe --stages 2 --chunks 5 --csv table >/dev/null; "
             "mv table $name; $weir plan " CLI_MODEL " --batch 5 --chunks 5 --schedule $name "
             "--json - 2>&1 >json; cat json",
             folder, test_install_prefix());
    CHECK_CONTAINS(run.output, "\"schedule\": \"\xEF\xBF\xBD.csv\"");
}

static void test_a_memory_limit_is_exact_and_names_what_is_missing(void) {
    struct cli_run run;
    const char *text = cli_text();
    char path[512], wanted[128];
    snprintf(path, sizeof path, "%s/p", text);
    /* without what a plan keeps just to save time, which a limit leaves out */
    CLI_CODE(&run, 0, "plan " CLI_MODEL " --batch 5 --chunks 3 --memory-limit 1TiB --json %s",
             path);
    json_t *plan = cli_json(path);
    json_t *devices = json_object_get(plan, "devices");
    long long first = (long long)cli_number(json_array_get(devices, 0), "total");
    long long second = (long long)cli_number(json_array_get(devices, 1), "total");
    long long most = first > second ? first : second;
    json_decref(plan);
    CLI_CODE(&run, 0,
             "train " CLI_TRAIN " --plan given --data %s/0.txt --steps 1 --memory-limit %lld", text,
             most);
    CLI_CODE(&run, 2,
             "train " CLI_TRAIN " --plan given --data %s/0.txt --steps 1 --memory-limit %lld", text,
             most - 1);
    snprintf(wanted, sizeof wanted, "needs %lld bytes, 1 more than the limit of %lld", most,
             most - 1);
    CHECK_CONTAINS(run.output, wanted);
    CLI_CODE(&run, 2, "plan " CLI_MODEL " --batch 5 --chunks 3 --memory-limit 1KiB --json %s/q",
             text);
    snprintf(wanted, sizeof wanted, "worker 0 needs %lld bytes, %lld more than", first,
             first - 1024);
    CHECK_CONTAINS(run.output, wanted);
    snprintf(wanted, sizeof wanted, "worker 1 needs %lld bytes, %lld more than", second,
             second - 1024);
    CHECK_CONTAINS(run.output, wanted);
    CHECK(test_shell(run.output, sizeof run.output, "ls %s/q", text) != 0);
}

/* "…is schedule zb-h1, chunks 32: it…" as options. */
static void advised_options(const char *output, char options[256]) {
    const char *at = strstr(output, "the cheapest change that fits within ");
    options[0] = 0;
    if (!EXPECT(at != NULL) || (at = strstr(at, " is ")) == NULL) return;
    for (at += 4; *at != ':' && *at != 0;) {
        char name[32], value[32];
        int used = 0;
        if (!EXPECT(sscanf(at, "%31s %31[^,:]%n", name, value, &used) == 2)) return;
        size_t length = strlen(options);
        snprintf(options + length, 256 - length, " --%s %s", name, value);
        at += used + (at[used] == ',' ? 2 : 0);
    }
}

static void test_the_advice_of_a_refusal_fits(void) {
    const char *text = cli_text();
    for (int part = 40; part <= 95; part += 11) {
        struct cli_run run;
        char path[512], options[256];
        snprintf(path, sizeof path, "%s/advice", text);
        CLI_CODE(&run, 0,
                 "plan " CLI_MODEL " --stages 2 --schedule gpipe --checkpoint never --batch 16 "
                 "--chunks 8 --memory-limit 1TiB --json %s",
                 path);
        json_t *plan = cli_json(path);
        double most = 0.0;
        for (size_t d = 0; d < 2; d++) {
            double total = cli_number(json_array_get(json_object_get(plan, "devices"), d), "total");
            if (total > most) most = total;
        }
        json_decref(plan);
        long long limit = (long long)(most * part / 100);
        CLI_CODE(&run, 2,
                 "plan " CLI_MODEL " --stages 2 --schedule gpipe --checkpoint never --batch 16 "
                 "--chunks 8 --memory-limit %lld",
                 limit);
        if (strstr(run.output, "fits within") != NULL && strstr(run.output, " no checkpoint "))
            continue;
        advised_options(run.output, options);
        CHECK_HELPERS();
        CLI_CODE(&run, 0,
                 "plan " CLI_MODEL " --stages 2 --schedule gpipe --checkpoint never --batch 16 "
                 "--chunks 8 --memory-limit %lld%s",
                 limit, options);
    }
}

/* Of eight workers, each has its column, and no line is wider than 100 columns; the curves are of
 * characters of three bytes. */
static void test_many_workers_stand_below_each_other(void) {
    struct cli_run run;
    CLI_CODE(&run, 0, "plan --layers 9 --width 16 --heads 2 --context 8 --stages 8");
    char *end = strstr(run.output, "in use over the step");
    CHECK(end != NULL);
    *end = '\0';
    for (int w = 0; w < 8; w++) {
        char name[16];
        snprintf(name, sizeof name, " cpu/%d", w);
        CHECK_CONTAINS(run.output, name);
    }
    for (const char *line = run.output; *line != '\0'; line += strcspn(line, "\n") + 1)
        if (strcspn(line, "\n") > 100) TEST_FAIL("%.120s", line);
}

static void test_a_plan_shows_memory_over_the_step(void) {
    struct cli_run run;
    char path[512];
    snprintf(path, sizeof path, "%s/p", test_temporary_directory());
    CLI_CODE(&run, 0, "plan " CLI_MODEL " --stages 2 --batch 16 --chunks 8 --json %s", path);
    CHECK_CONTAINS(run.output, "in use over the step");
    CHECK_CONTAINS(run.output,
                   "Receive slots are places for tensors that come from other workers.");
    CHECK_CONTAINS(run.output, "\nplanned, handed on ");
    json_t *plan = cli_json(path), *device;
    size_t d;
    json_array_foreach(json_object_get(plan, "devices"), d, device) {
        const json_t *points = json_object_get(device, "memory"), *slots;
        double most = 0.0;
        for (size_t i = 0; i < json_array_size(points); i++) {
            const json_t *point = json_array_get(points, i);
            double bytes = (double)json_integer_value(json_array_get(point, 1));
            if (bytes > most) most = bytes;
        }
        EXPECT(most == cli_number(device, "total") - cli_number(device, "padding"));
        slots = json_object_get(device, "receive_slots");
        EXPECT(cli_number(slots, "each") == 8.0);
        EXPECT(cli_number(slots, "slots") == cli_number(slots, "most"));
    }
    json_decref(plan);
}

/* ---- describe ---- */

static void test_describe_lists_the_layers_in_the_model_files_form(void) {
    struct cli_run run;
    char path[512];
    json_t *layer;
    size_t index;
    double sum = 0.0;
    snprintf(path, sizeof path, "%s/d", test_temporary_directory());
    CLI_CODE(&run, 0,
             "describe --layers 2 --width 16 --heads 2 --context 8 --vocab 32 --json - >%s", path);
    CHECK_CONTAINS(run.output, "gpt_block");
    json_t *model = cli_json(path);
    CHECK(model != NULL);
    json_t *input = json_object_get(model, "input"), *layers = json_object_get(model, "layers");
    EXPECT_EQ_STR(json_string_value(json_object_get(input, "dtype")), "i64");
    EXPECT_EQ_INT(json_integer_value(json_array_get(json_object_get(input, "shape"), 0)), 8);
    EXPECT(json_equal(input, json_object_get(model, "target")));
    EXPECT_EQ_STR(json_string_value(json_object_get(model, "loss")), "cross_entropy");
    EXPECT_EQ_UINT(json_array_size(layers), CLI_LAYERS);
    json_array_foreach(layers, index, layer) {
        const char *type = index == 0 ? "gpt_embedding" : index == 3 ? "gpt_head" : "gpt_block";
        json_t *shape = json_object_get(layer, "output_shape");
        EXPECT_EQ_STR(json_string_value(json_object_get(layer, "type")), type);
        EXPECT_EQ_UINT(json_array_size(shape), 2);
        EXPECT_EQ_INT(json_integer_value(json_array_get(shape, 0)), 8);
        EXPECT_EQ_INT(json_integer_value(json_array_get(shape, 1)), index == 3 ? 32 : 16);
        EXPECT(cli_number(layer, "flops") > 0.0);
        sum += cli_number(layer, "parameters");
    }
    /* embeddings; per block 2 x 2 x 16, 16 x 48 + 48, 16 x 16 + 16, 2 x 16 x 64 + 64 + 16; norm,
     * head */
    EXPECT(sum == 40 * 16 + 2 * (64 + 816 + 272 + 2128) + 32 + 512);
    EXPECT(cli_number(model, "parameters") == sum);
    json_decref(model);
}

static void test_describe_counts_gpt2s_parameters(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    static const struct {
        const char *options, *count;
    } models[] = {{"gpt2-124m", " 124439808 "},
                  {"gpt2-350m", " 354823168 "},
                  {"gpt2-774m", " 774030080 "},
                  {"gpt2-1558m", " 1557611200 "},
                  {"gpt2-124m --residual-block 2", " 124478208 "}, /* 25 x 2 x 768 more */
                  {"gpt2-124m --untied --context 512", " 162643968 "}};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct cli_run run;
        CLI_CODE(&run, 0, "describe --model %s", models[i].options);
        CHECK_CONTAINS(run.output, models[i].count);
    }
}

static void test_describe_shows_a_partition(void) {
    struct cli_run run;
    char path[512];
    snprintf(path, sizeof path, "%s/d", test_temporary_directory());
    CLI_CODE(&run, 0, "describe --layers 2 --width 16 --heads 2 --balance 1,3 --json %s", path);
    CHECK_CONTAINS(run.output, "stage  layer  type");
    json_t *model = cli_json(path), *layers = json_object_get(model, "layers");
    for (uint32_t i = 0; i < CLI_LAYERS; i++)
        EXPECT(cli_number(json_array_get(layers, i), "stage") == (i > 0));
    json_decref(model);
    CLI_CODE(&run, 2, "describe --layers 2 --width 16 --heads 2 --stages 9 --json %s", path);
    CHECK_CONTAINS(run.output, "9 stages cannot be made of 4 layers: use 1 to 4");
}

/* ---- doctor ---- */

static json_t *doctor(const char *machine, const char *options) {
    struct cli_run run;
    char path[512];
    snprintf(path, sizeof path, "%s/d", test_temporary_directory());
    run.code = test_shell(run.output, sizeof run.output, "%s%s%s '%s/bin/weir' doctor --json %s %s",
                          machine ? "HWLOC_SYNTHETIC='" : "", machine ? machine : "",
                          machine ? "'" : "", test_install_prefix(), path, options);
    if (!cli_code_at(__FILE__, __LINE__, &run, 0)) return NULL;
    EXPECT_CONTAINS(run.output, "cores ");
    EXPECT_CONTAINS(run.output, "caches ");
    EXPECT_CONTAINS(run.output, "NUMA");
    EXPECT_CONTAINS(run.output, "hwloc ");
    return cli_json(path);
}

static void check_place(const json_t *doctor, uint32_t worker, const char *cores, int64_t node) {
    const json_t *place = json_array_get(json_object_get(doctor, "places"), worker);
    EXPECT_EQ_STR(json_string_value(json_object_get(place, "cores")), cores);
    EXPECT_EQ_INT((int64_t)cli_number(place, "numa_node"), node);
}

static void test_doctor_names_the_machine(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    json_t *here = doctor(NULL, "");
    CHECK(here != NULL);
    const json_t *roofs = json_object_get(here, "roofs");
    EXPECT(cli_number(here, "cores") >= 1);
    EXPECT(cli_number(here, "numa_nodes") >= 1);
    EXPECT(json_is_array(json_object_get(here, "gpus")));
    EXPECT(json_is_string(json_object_get(json_object_get(here, "libraries"), "hwloc")));
    EXPECT(cli_number(roofs, "gemm_flops") > 1e6);
    EXPECT(cli_number(roofs, "memory_bytes_per_second") > 1e6);
    EXPECT_EQ_UINT(json_array_size(json_object_get(here, "problems")), 0);
    EXPECT_EQ_UINT(json_array_size(json_object_get(here, "places")), 2);
    json_decref(here);
}

static void test_doctor_shows_gpus_links_and_libraries(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    if (!test_fake_cuda_path()) SKIP("the fake CUDA driver was not built");
    CHECK(setenv("WEIR_CUDA_DRIVER", test_fake_cuda_path(), 1) == 0);
    json_t *here = doctor(NULL, "");
    CHECK(here != NULL);
    const json_t *gpus = json_object_get(here, "gpus");
    EXPECT_EQ_UINT(json_array_size(gpus), 2);
    const json_t *second = json_array_get(gpus, 1);
    EXPECT_EQ_STR(json_string_value(json_object_get(second, "name")), "Fake GPU 1");
    EXPECT_EQ_STR(json_string_value(json_object_get(second, "capability")), "9.0");
    EXPECT_EQ_STR(json_string_value(json_object_get(second, "pci")), "0000:1C:00.0");
    EXPECT(cli_number(second, "memory") == 1073741824.0);
    EXPECT(json_is_integer(json_object_get(second, "numa_node")));
    const json_t *reaches = json_object_get(second, "reaches");
    EXPECT_EQ_UINT(json_array_size(reaches), 1);
    EXPECT_EQ_INT(json_integer_value(json_array_get(reaches, 0)), 0);
    const json_t *libraries = json_object_get(here, "libraries");
    EXPECT_EQ_STR(json_string_value(json_object_get(libraries, "cuda")), "13.0");
    EXPECT(json_is_string(json_object_get(libraries, "cublaslt")));
    EXPECT(json_is_string(json_object_get(libraries, "cudnn")));
    EXPECT(json_is_string(json_object_get(libraries, "nvrtc")));
    EXPECT(json_is_string(json_object_get(libraries, "nccl")));
    EXPECT_EQ_UINT(json_array_size(json_object_get(here, "places")), 2);
    json_decref(here);
    struct cli_run run;
    CLI_CODE(&run, 0, "doctor");
    EXPECT_CONTAINS(run.output, "cuda:1      Fake GPU 1, 1.00 GiB, compute capability 9.0");
    EXPECT_CONTAINS(run.output, "  cuda:0             -    direct");
    EXPECT_CONTAINS(run.output, "driver for 13.0");
    EXPECT_CONTAINS(run.output, ", NVRTC ");
    EXPECT_CONTAINS(run.output, "attention in bf16 by ");
}

/* This build's images are of the toolkit's CUDA, or of two. */
static void test_doctor_compares_images_and_the_driver(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    if (!test_fake_cuda_path()) SKIP("the fake CUDA driver was not built");
    if (weir__cuda_image_count == 0) SKIP("this build has no CUDA kernels");
    struct cli_run run;
    char version[16];
    CHECK(setenv("WEIR_CUDA_DRIVER", test_fake_cuda_path(), 1) == 0);
    snprintf(version, sizeof version, "%d", weir__cuda_images[0].toolkit);
    CHECK(setenv("WEIR_FAKE_CUDA_VERSION", version, 1) == 0);
    CLI_CODE(&run, 0, "doctor");
    EXPECT_CONTAINS(run.output, "runs by   binaries for 9.0, of CUDA ");
    EXPECT(strstr(run.output, "kernels, of CUDA") == NULL);
    bool older = false;
    for (size_t i = 0; i < weir__cuda_image_count; i++)
        older |= weir__cuda_images[i].toolkit < 13000;
    CHECK(setenv("WEIR_FAKE_CUDA_VERSION", "12040", 1) == 0);
    CLI_CODE(&run, 0, "doctor");
    if (older) {
        EXPECT_CONTAINS(run.output, "runs by   binaries for 9.0, of CUDA 12.");
        EXPECT(strstr(run.output, "kernels, of CUDA") == NULL);
        return;
    }
    EXPECT_CONTAINS(run.output, "runs by   too new for the driver, for 9.0, of CUDA 13.");
    EXPECT_CONTAINS(run.output, "problem     cuda:0 takes this build's kernels, of CUDA 13.");
    EXPECT_CONTAINS(run.output, "this one is for 12.4: update the NVIDIA driver, or build with a "
                                "toolkit of CUDA 12 (-Dcuda-path)");
}

/* Without a GPU nothing is wrong; a driver that does not work is. */
static void test_doctor_says_why_there_is_no_gpu(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    struct cli_run run;
    CHECK(setenv("WEIR_CUDA_DRIVER", "/none/driver", 1) == 0);
    CLI_CODE(&run, 0, "doctor");
    EXPECT_CONTAINS(run.output, "GPUs        none: WEIR_CUDA_DRIVER names a library");
    CHECK(strstr(run.output, "problem ") == NULL);
    CHECK(setenv("WEIR_CUDA_DRIVER", "libm.so.6", 1) == 0);
    json_t *here = doctor(NULL, "");
    CHECK(here != NULL);
    const json_t *problems = json_object_get(here, "problems");
    EXPECT_EQ_UINT(json_array_size(problems), 1);
    EXPECT_EQ_UINT(json_array_size(json_object_get(here, "gpus")), 0);
    EXPECT_EQ_UINT(json_array_size(json_object_get(here, "places")), 2);
    EXPECT_EQ_STR(json_string_value(json_object_get(json_object_get(here, "libraries"), "cuda")),
                  "");
    EXPECT_CONTAINS(json_string_value(json_array_get(problems, 0)), "no CUDA driver");
    json_decref(here);
}

static void test_doctor_places_workers_on_made_up_machines(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    json_t *two = doctor("pack:2 numa:2 core:4 pu:1", "--workers 4 --bind auto");
    CHECK(two != NULL);
    EXPECT(cli_number(two, "cores") == 16 && cli_number(two, "numa_nodes") == 4);
    check_place(two, 0, "0-3", 0);
    check_place(two, 3, "12-15", 3);
    json_decref(two);
    /* one package whose nodes' cores are numbered in turn, as many firmwares do */
    json_t *turns = doctor("numa:2 core:4 pu:1(indexes=0,2,4,6,1,3,5,7)",
                           "--workers 2 --bind auto --threads-per-stage 4");
    CHECK(turns != NULL);
    check_place(turns, 0, "0,2,4,6", 0);
    check_place(turns, 1, "1,3,5,7", 1);
    json_decref(turns);
    json_t *list = doctor("pack:2 numa:2 core:4 pu:1", "--workers 2 --bind 0-3,99");
    CHECK(list != NULL);
    const json_t *problem = json_array_get(json_object_get(list, "problems"), 0);
    EXPECT_CONTAINS(json_string_value(problem), "no core 99");
    json_decref(list);
}

WEIR_TEST_SUITE(cli_plan, TEST(a_process_takes_little_besides_its_plan),
                TEST(a_table_may_have_any_name), TEST(a_plan_adds_up_and_is_what_a_run_takes),
                TEST(a_plan_names_what_was_chosen),
                TEST(a_memory_limit_is_exact_and_names_what_is_missing),
                TEST(the_advice_of_a_refusal_fits), TEST(a_plan_shows_memory_over_the_step),
                TEST(many_workers_stand_below_each_other),
                TEST(describe_lists_the_layers_in_the_model_files_form),
                TEST(describe_counts_gpt2s_parameters), TEST(describe_shows_a_partition),
                TEST(doctor_names_the_machine), TEST(doctor_shows_gpus_links_and_libraries),
                TEST(doctor_compares_images_and_the_driver), TEST(doctor_says_why_there_is_no_gpu),
                TEST(doctor_places_workers_on_made_up_machines))
