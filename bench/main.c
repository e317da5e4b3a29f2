/* SPDX-License-Identifier: MIT */
/*
 * bench [options] [TOPIC...]: measures, prints tables, writes JSON. bench --compare A B: two runs.
 * Exit 0: done; 1: an answer was wrong, or something got worse; 2: wrong usage.
 */
#include "gpu.h"
#include "harness.h"
#include "world/world.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct topic {
    const char *name;
    const char *question;
    void (*run)(struct bench *bench);
    bool gpu; /* takes one: runs only where it, or all of these, are asked for */
};

static const struct topic topics[] = {
    {"overhead", "what does the engine cost per micro-batch and stage?", bench_overhead},
    {"pipeline", "how fast is the default GPT, against fewer workers and against the plan?",
     bench_pipeline},
    {"planner-gpt", "does the planner choose what is fastest, on a small GPT?", bench_planner_gpt},
    {"planner-unet", "the same on a small U-Net", bench_planner_unet},
    {"recompute", "does recomputing before the gradient is there gain what the table says?",
     bench_recompute},
    {"schedules-equal",
     "does a better schedule gain what its table says, on stages that are equal?",
     bench_schedules_equal},
    {"schedules-gpt", "the same on the default GPT", bench_schedules_gpt},
    {"schedules-unet", "the same on a U-Net", bench_schedules_unet},
    {"simulate", "does the simulator say what a step takes, and how fast does it say it?",
     bench_simulate},
    {"models/gpt-s", "how fast does a small GPT train, as one stage, as two, against PyTorch?",
     bench_models_gpt_s},
    {"models/gpt-m", "the same for a larger GPT", bench_models_gpt_m},
    {"models/unet", "the same for a U-Net", bench_models_unet},
    {"models/residual", "what do block attention residuals cost a GPT?", bench_models_residual},
    {"models/always", "a large U-Net in three stages that recompute, against torchgpipe",
     bench_models_always},
    {"models/resnet101", "how fast does ResNet-101 train, against PyTorch?",
     bench_models_resnet101},
    {"models/amoebanetd", "the same for AmoebaNet-D", bench_models_amoebanetd},
    {"models/smollm2", "how fast does SmolLM2-135M train, against transformers?",
     bench_models_smollm2},
    {"models/smollm2-lora", "the same for adapters, against peft, too", bench_models_smollm2_lora},
    {"ablation", "what do copies on their own, portals and early recompute gain, one by one?",
     bench_ablation},
    {"oneway", "threads inside ops, rows in parallel or a pipeline: which way wins where?",
     bench_oneway},
    {"hosts", "as ranks (mpiexec -n 2, or 3): what do processes and hosts cost, against threads?",
     bench_hosts},
    {"copy", "how fast does memory move, and is the engine's copy the best known?", bench_copy},
    {"kernels", "how near do the CPU's kernels come to what a core can do?", bench_kernels},
    {"gpu-copy", "how fast does memory move to, from and on GPUs, and by which way?",
     bench_gpu_copy, true},
    {"gpu-kernels", "how near do our copy kernels come to a plain copy?", bench_gpu_kernels, true},
    {"gpu-net-kernels", "and how near those of networks?", bench_gpu_net_kernels, true},
    {"gpu-beside", "what do copies cost a computation that runs beside them?", bench_gpu_beside,
     true},
    {"gpu-overhead", "what does a task on a GPU cost its host?", bench_gpu_overhead, true},
    {"gpu-gpt2", "how fast does GPT-2 124M train on GPUs, in bf16, and against PyTorch?",
     bench_gpu_gpt2, true},
    {"gpu-unet", "the same for the U-Net", bench_gpu_unet, true},
};

enum { REPETITIONS = 20, REPETITIONS_QUICK = 3, USAGE = 2 };

struct arguments {
    struct bench_options options;
    const char *topics[WEIR__COUNT_OF(topics)];
    const char *compare[2];
    const char *results, *check_results;
    const char *launcher;
    bool list, help;
};

/* ---- arguments ---- */

static void print_usage(FILE *to) {
    fprintf(
        to,
        "usage: zig build bench -- [options] [TOPIC...]\n\n"
        "  --json FILE        results for programs too; - is stdout\n"
        "  --gpu              topics of GPUs (all of them, or those named)\n"
        "  --repetitions N    rounds (default 20; 3 with --quick)\n"
        "  --quick            a smoke test: everything runs, no number means anything\n"
        "  --seed N           of the order of cases and of resampling (default 1)\n"
        "  --peers FOLDER     what models, gpu-gpt2 and gpu-unet are timed in turns with (default\n"
        "                     bench/peers), by the environment's PYTHON, or python3; what is not\n"
        "                     there is not measured; nor is it by models with --quick\n"
        "  --peer COMMAND     instead of that, run with more arguments\n"
        "  --launcher COMMAND of 'hosts': run by it, as 'mpiexec -n 2', or -n 3\n"
        "  --compare A B      compares two JSON files; exit 1 if B is worse beyond noise\n"
        "  --results FOLDER   makes FOLDER/RESULTS.md and pictures of the runs in FOLDER/results\n"
        "  --check-results FOLDER\n"
        "                     only looks whether these are so; exit 1 if not\n"
        "  --list             names the topics\n"
        "  --help             this\n\ntopics (default: all but those of GPUs)\n");
    for (size_t i = 0; i < WEIR__COUNT_OF(topics); i++)
        fprintf(to, "  %-18s %s\n", topics[i].name, topics[i].question);
}

static bool parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *out) {
    char *end;
    if (text == NULL || text[0] < '0' || text[0] > '9') return false;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 0);
    if (errno != 0 || *end != 0 || value < least || value > most) return false;
    *out = value;
    return true;
}

/* "--key VALUE" or "--key=VALUE"; NULL if argv[*i] is something else or has no value. */
static const char *option_value(char **argv, int *i, const char *key) {
    size_t length = strlen(key);
    if (strncmp(argv[*i], key, length) != 0) return NULL;
    if (argv[*i][length] == '=') return argv[*i] + length + 1;
    if (argv[*i][length] != 0 || argv[*i + 1] == NULL) return NULL;
    return argv[++*i];
}

static bool parse_option(char **argv, int *i, struct arguments *out) {
    const char *value;
    uint64_t number;
    if (strcmp(argv[*i], "--quick") == 0) {
        out->options.quick = true;
    } else if (strcmp(argv[*i], "--gpu") == 0) {
        out->options.gpu = true;
    } else if (strcmp(argv[*i], "--list") == 0) {
        out->list = true;
    } else if (strcmp(argv[*i], "--help") == 0) {
        out->help = true;
    } else if ((value = option_value(argv, i, "--json")) != NULL) {
        out->options.json = value;
    } else if ((value = option_value(argv, i, "--peer")) != NULL) {
        out->options.peer = value;
    } else if ((value = option_value(argv, i, "--peers")) != NULL) {
        out->options.peers = value;
    } else if ((value = option_value(argv, i, "--launcher")) != NULL) {
        out->launcher = value;
    } else if ((value = option_value(argv, i, "--results")) != NULL) {
        out->results = value;
    } else if ((value = option_value(argv, i, "--check-results")) != NULL) {
        out->check_results = value;
    } else if ((value = option_value(argv, i, "--seed")) != NULL) {
        return parse_number(value, 0, UINT64_MAX, &out->options.seed);
    } else if ((value = option_value(argv, i, "--repetitions")) != NULL) {
        if (!parse_number(value, 1, BENCH_ROUNDS_MOST, &number)) return false;
        out->options.repetitions = (uint32_t)number;
    } else if ((value = option_value(argv, i, "--compare")) != NULL && argv[*i + 1] != NULL) {
        out->compare[0] = value;
        out->compare[1] = argv[++*i];
    } else {
        return false;
    }
    return true;
}

/* "schedules" names "schedules-gpt" and its siblings as well, "models" all of "models/". */
static bool names_topic(const char *wanted, const char *name) {
    size_t length = strlen(wanted);
    return strncmp(wanted, name, length) == 0 && strchr("-/", name[length]) != NULL;
}

static bool is_topic(const char *name) {
    for (size_t i = 0; i < WEIR__COUNT_OF(topics); i++)
        if (names_topic(name, topics[i].name)) return true;
    return false;
}

static bool is_named(const struct bench_options *options, const char *name) {
    for (uint32_t i = 0; i < options->topic_count; i++)
        if (names_topic(options->topics[i], name)) return true;
    return false;
}

/* None named: all of the kind. */
static bool is_wanted(const struct bench_options *options, const struct topic *topic) {
    if (options->topic_count == 0) return topic->gpu == options->gpu;
    return is_named(options, topic->name);
}

static bool add_topic(struct arguments *out, const char *name) {
    if (!is_topic(name)) {
        fprintf(stderr, "bench: %s: no such topic: see --list\n", name);
        return false;
    }
    if (is_named(&out->options, name)) return true;
    if (out->options.topic_count == WEIR__COUNT_OF(topics)) return true; /* all there are */
    out->topics[out->options.topic_count++] = name;
    return true;
}

/* Prints what is wrong. */
static bool parse(char **argv, struct arguments *out) {
    out->options.topics = out->topics;
    for (int i = 1; argv[i] != NULL; i++) {
        const char *argument = argv[i];
        if (argument[0] != '-') {
            if (!add_topic(out, argument)) return false;
        } else if (!parse_option(argv, &i, out)) {
            fprintf(stderr,
                    "bench: %s: unknown option, or its value is missing or bad: see "
                    "--help\n",
                    argument);
            return false;
        }
    }
    if (out->options.repetitions == 0)
        out->options.repetitions = out->options.quick ? REPETITIONS_QUICK : REPETITIONS;
    return true;
}

/* ---- the run ---- */

static void run_topic(struct bench *bench, const struct topic *topic) {
    uint32_t first = bench->result_count;
    if (!is_wanted(&bench->options, topic)) return;
    fprintf(bench->text, "\n%s: %s\n", topic->name, topic->question);
    fflush(bench->text);
    topic->run(bench);
    if (bench->gpu == NULL || !bench->gpu->fake) bench_print_results(bench, first);
    bench_save(bench);
}

/* Before anything takes time: without a GPU this ends the program. */
static void open_gpu(struct bench *bench) {
    for (size_t i = 0; i < WEIR__COUNT_OF(topics); i++)
        if (topics[i].gpu && is_wanted(&bench->options, &topics[i])) (void)bench_gpu_open(bench);
}

/* Becomes the launcher, which starts this program again with the other arguments. */
static int launch(const char *launcher, char **argv) {
    char self[PATH_MAX] = {0};
    char command[8192];
    size_t used;
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) bench_die("no path of its own");
    used = (size_t)snprintf(command, sizeof command, "exec %s '%s'", launcher, self);
    for (int i = 1; argv[i] != NULL && used < sizeof command; i++) {
        if (option_value(argv, &i, "--launcher") != NULL) continue;
        used += (size_t)snprintf(command + used, sizeof command - used, " '%s'", argv[i]);
    }
    if (used >= sizeof command) bench_die("too many arguments for a launcher");
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    bench_die("no sh for the launcher");
}

/* As one of several processes: rank 0 alone speaks, and only one topic knows what to do. False:
 * another is asked for. */
static bool join_launch(struct bench_options *options, bool *follows) {
    struct weir__launch launch = weir__launch_read();
    bool only = options->topic_count == 1 && strcmp(options->topics[0], "hosts") == 0;
    *follows = false;
    if (launch.by == NULL || launch.size == 1) return true;
    *follows = launch.rank > 0;
    if (*follows) options->json = NULL;
    if (!only && launch.rank == 0)
        fprintf(stderr,
                "bench: started as %u processes (%s): name the topic 'hosts', the only one "
                "for several\n",
                launch.size, launch.by);
    return only;
}

static int run_all(struct bench_options *options) {
    bool follows;
    if (!join_launch(options, &follows)) return USAGE;
    bool taken = options->json != NULL && strcmp(options->json, "-") == 0;
    struct bench bench = {
        .options = *options, .text = taken ? stderr : stdout, .random = options->seed};
    if (follows && (bench.text = fopen("/dev/null", "w")) == NULL) return 1;
    weir__pool_init(&bench.pool, NULL);
    bench_check(weir__machine_new(NULL, &bench.machine), "looking at the machine");
    weir__machine_facts(bench.machine, &bench.facts);
    open_gpu(&bench);
    if (!follows) bench_measure_roofs(&bench);
    bench_print_context(&bench);
    for (size_t i = 0; i < WEIR__COUNT_OF(topics); i++) run_topic(&bench, &topics[i]);
    bool right = bench_all_right(&bench);
    fprintf(bench.text, "\n%u answers checked: %s\n", bench.answer_count,
            right ? "all right" : "NOT ALL RIGHT");
    bench_write_json(&bench);
    bench_gpu_close(&bench);
    weir__machine_destroy(bench.machine);
    weir__pool_clean_up(&bench.pool);
    if (follows) fclose(bench.text);
    return right ? 0 : 1;
}

int main(int argc, char **argv) {
    struct arguments arguments = {.options = {.seed = 1, .peers = "bench/peers"}};
    if (argc < 1 || !parse(argv, &arguments)) return USAGE;
    if (arguments.help) {
        print_usage(stdout);
        return 0;
    }
    if (arguments.list) {
        for (size_t i = 0; i < WEIR__COUNT_OF(topics); i++) puts(topics[i].name);
        return 0;
    }
    if (arguments.results != NULL) return bench_results(arguments.results, false);
    if (arguments.check_results != NULL) return bench_results(arguments.check_results, true);
    if (arguments.launcher != NULL) return launch(arguments.launcher, argv);
    if (arguments.compare[0] != NULL)
        return bench_compare(arguments.compare[0], arguments.compare[1], arguments.options.seed);
    return run_all(&arguments.options);
}
