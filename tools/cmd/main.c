/* SPDX-License-Identifier: MIT */
/* `weir SUBCOMMAND [options]`: finds the subcommand and hands over. One row each in the table. */
#include "cli/args.h"
#include "base/base.h"
#include "cli/ranks.h"
#include "cmd/commands.h"
#include "device/cuda_kernels.h"
#include "net/cpu/level.h"
#include "world/world.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Written by the build: the commit's hash, or "unknown". */
extern const char weir_build_commit[];

const struct subcommand subcommands[] = {
    {"train", "trains a model over a pipeline; saves, resumes, traces, reports", cmd_train, true},
    {"generate", "continues prompts with a trained GPT or decoder", cmd_generate, true},
    {"chat", "talks with a model of a Hugging Face folder, by its chat template", cmd_chat},
    {"eval", "loss or accuracy of trained weights on a file", cmd_eval, true},
    {"predict", "outputs of trained weights for all rows of a file, as .npy", cmd_predict, true},
    {"grad", "one training step without update: loss, output, gradients into a file", cmd_grad,
     true},
    {"init", "writes freshly initialised weights", cmd_init},
    {"export", "one file of a checkpoint, or a decoder as a Hugging Face folder or GGUF",
     cmd_export},
    {"merge", "puts adapters into the weights of a Hugging Face folder", cmd_merge},
    {"describe", "lists the layers of a model: shapes, parameters, FLOPs, bytes", cmd_describe},
    {"layers", "every layer type: attributes, defaults, shapes, PyTorch's name", cmd_layers},
    {"tokenize", "text to a model's tokens, one number a line, and back", cmd_tokenize},
    {"profile", "times and bytes of each layer, for --balance-by, plan and simulate", cmd_profile,
     true},
    {"plan", "every worker's memory to the byte, for a model and a pipeline", cmd_plan},
    {"simulate", "predicts a step from a schedule and the times of its tasks", cmd_simulate},
    {"schedule", "prints or checks an action table", cmd_schedule},
    {"launch", "starts a job of several ranks, and again on what remains when one is lost",
     cmd_launch},
    {"doctor", "the machine: cores, caches, NUMA nodes, GPUs, libraries, placement", cmd_doctor,
     true},
    {"help", "the options of a subcommand: weir help train", cmd_help},
    {"man", "a manual page as roff: weir man train | man -l -", cmd_man},
    {"completion", "what completes all this in bash, zsh and fish", cmd_completion},
    {NULL, NULL, NULL},
};
#define SUBCOMMANDS (sizeof(subcommands) / sizeof(subcommands[0]) - 1)

void subcommands_usage(FILE *to) {
    fprintf(to, "usage: weir SUBCOMMAND [options]\n"
                "       weir SUBCOMMAND --help\n"
                "       weir --version\n\n"
                "Pipeline-parallel training. Subcommands:\n");
    for (size_t i = 0; i < SUBCOMMANDS; i++) {
        fprintf(to, "  %-10s %s\n", subcommands[i].name, subcommands[i].summary);
    }
}

static int print_version(void) {
    printf("weir %s (%s)\n", weir_version(), weir_build_commit);
    printf("back-ends: cpu (reference");
    for (uint32_t i = 0; weir__level_at(i) != NULL; i++)
        if (weir__level_runs(weir__level_at(i))) printf(", %s", weir__level_at(i)->name);
    printf(")%s\n", weir__cuda_image_count > 0 ? ", cuda" : "");
    return EXIT_DONE;
}

int subcommand_refuse(const char *word) {
    const char *names[SUBCOMMANDS + 1];
    for (size_t i = 0; i < SUBCOMMANDS; i++) {
        names[i] = subcommands[i].name;
    }
    names[SUBCOMMANDS] = NULL;
    char shown[81];
    weir__text_visible(word, shown, sizeof(shown));
    const char *nearest = weir__nearest(word, names);
    if (nearest) {
        fprintf(stderr, "weir: %s: no such subcommand: did you mean 'weir %s'?\n", shown, nearest);
    } else {
        fprintf(stderr, "weir: %s: no such subcommand: 'weir --help' lists them\n", shown);
    }
    return EXIT_REFUSED;
}

/* What a launcher starts several times would do the same several times, and write the same files.
 */
static bool is_for_one(const struct subcommand *found) {
    const struct timespec grace = {.tv_nsec = RANKS_GRACE_MS * 1000000L};
    struct weir__launch launch = weir__launch_read();
    if (launch.by == NULL || launch.size <= 1 || found->joins) return false;
    if (launch.rank == 0)
        fprintf(stderr,
                "weir: %s: started as %" PRIu32
                " processes (%s): only 'train', 'generate', 'eval', 'predict', 'grad', 'profile' "
                "and 'doctor' run over several: start this command without the launcher, or as "
                "one\n",
                found->name, launch.size, launch.by);
    else
        (void)nanosleep(&grace, NULL);
    return true;
}

static int run(int argc, char **argv) {
    if (argc < 2) {
        subcommands_usage(stderr);
        return EXIT_REFUSED;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        subcommands_usage(stdout);
        return EXIT_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        return print_version();
    }
    const struct subcommand *found = subcommand_find(argv[1]);
    if (found && is_for_one(found)) {
        return EXIT_REFUSED;
    }
    if (found) {
        return found->run(argc - 1, argv + 1);
    }
    return subcommand_refuse(argv[1]);
}

/* Where stdout was closed, the next file opened would get its number, and text for people would
 * land in a checkpoint. */
static int occupy_standard_descriptors(void) {
    for (int descriptor = 0; descriptor <= STDERR_FILENO; descriptor++) {
        if (fcntl(descriptor, F_GETFD) == -1 && open("/dev/null", O_RDWR) != descriptor) {
            return -1;
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    signal(SIGXFSZ,
           SIG_IGN); /* a write beyond 'ulimit -f' then fails, and can be told and undone */
    if (occupy_standard_descriptors() != 0) {
        return EXIT_FAILED;
    }
    int code = run(argc, argv);
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == EXIT_DONE) {
        fprintf(stderr, "weir: cannot write stdout: %s\n", strerror(errno));
        return EXIT_FAILED;
    }
    return code;
}
