/* SPDX-License-Identifier: MIT */
/*
 * Goal: each message that a user can meet says what is wrong and how to mend it, and the advice is
 * right. Method: the installed command in a folder of small files, given one wrong thing each. A
 * refusal exits with 2 and leaves stdout empty and the folder as it was; each line of stderr reads
 * `weir: SUBCOMMAND: what: how`; a command that does what the advice says exits with 0. What
 * belongs to one subcommand's work stands in test_cli_<subcommand>.c; what a malformed file is
 * told, in malformed_<format>.c.
 */
#include "cli/cli.h"
#include "io/data_files.h"
#include "io/io_faults.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/** A refusal. */
struct message {
    const char *arguments; /**< of the command, the subcommand first */
    const char *line;      /**< of stderr, from behind `weir: SUBCOMMAND: ` on, or its beginning */
    const char *mended;    /**< arguments that follow the advice and succeed; NULL: not tried */
};

/* ---- a folder of small files ---- */

#define CONV "{\"type\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 3, \"padding\": 1"
#define IMAGES "{\"input\": {\"dtype\": \"f32\", \"shape\": [3, 8, 8]}, \"layers\": "

#define LINE "the quick brown fox jumps over the lazy dog, and once more over the dog\n"

static const struct {
    const char *name, *text;
} files[] = {
    {"plain.json", IMAGES "[{\"type\": \"relu\"}]}"},
    {"no-json.json", "layers: relu"},
    {"list.json", "[]"},
    {"type.json", IMAGES "[{\"type\": \"conv3d\"}, {\"type\": \"relu\", \"p\": 1}]}"},
    {"skips.json", IMAGES "[" CONV "}, {\"type\": \"stash\", \"skip\": \"a\"}]}"},
    {"escape.json", IMAGES "[{\"type\": \"stash\", \"skip\": \"\\u001b[2J\"}]}"},
    {"groups.json",
     "{\"input\": {\"dtype\": \"f32\", \"shape\": [3, 8, 8]}, \"target\": {\"dtype\": \"f32\", "
     "\"shape\": [4]}, \"loss\": \"mse\", \"layers\": [" CONV ", \"groups\": 2}, "
     "{\"type\": \"softmax\", \"dim\": 4}, " CONV "}, "
     "{\"type\": \"max_pool2d\", \"kernel_size\": 8}, {\"type\": \"instance_norm2d\"}, "
     "{\"type\": \"avg_pool2d\", \"kernel_size\": 2}, {\"type\": \"softmax\", \"dim\": 9}]}"},
    {"both.json", IMAGES "[" CONV ", \"groups\": 2}, {\"type\": \"stash\", \"skip\": \"a\"}, "
                         "{\"type\": \"softmax\", \"dim\": 9}]}"},
    {"large.json", "{\"input\": {\"dtype\": \"f32\", \"shape\": [64]}, \"layers\": [{\"type\": "
                   "\"linear\", \"out_features\": 2147483647}, {\"type\": \"linear\", "
                   "\"out_features\": 2147483647}]}"},
    {"rank.json", "{\"input\": {\"dtype\": \"i64\", \"shape\": [8]}, \"layers\": [{\"type\": "
                  "\"relu\"}]}"},
    {"loss.json", "{\"input\": {\"dtype\": \"f32\", \"shape\": [4]}, \"target\": {\"dtype\": "
                  "\"f32\", \"shape\": [3]}, \"loss\": \"mse\", \"layers\": [{\"type\": "
                  "\"relu\"}]}"},
    {"names.json", IMAGES "[" CONV ", \"name\": \"a\"}, " CONV ", \"name\": \"a\"}]}"},
    {"short.csv", "0F0,0B0\n"},
    {"text", LINE LINE LINE LINE},
    {"prompts", "\n\n"},
    {"empty", ""},
};

static void write_images(const char *folder, const char *name, int64_t target_channels) {
    static float numbers[2 * 3 * 8 * 8];
    struct weir__io io = {.allocator = test_allocator()};
    char path[512];
    struct weir__safetensors_item items[] = {
        {.name = "input", .dtype = WEIR_F32, .rank = 4, .shape = {2, 3, 8, 8}, .data = numbers},
        {.name = "target",
         .dtype = WEIR_F32,
         .rank = 4,
         .shape = {2, target_channels, 8, 8},
         .data = numbers}};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    EXPECT_STATUS(weir__safetensors_save(&io, path, items, target_channels > 0 ? 2 : 1, NULL, 0),
                  WEIR_OK);
}

static const char *make_folder(void) {
    const char *folder = test_temporary_directory();
    char path[512];
    for (size_t i = 0; i < COUNT(files); i++)
        io_make_file(folder, files[i].name, files[i].text, strlen(files[i].text), path);
    cli_make_data(folder, "rows", 5, 5, path);
    write_images(folder, "images", 1);
    write_images(folder, "inputs", 0);
    struct cli_run run;
    cli_run_at(__FILE__, __LINE__, &run,
               "init --layers 1 --width 16 --heads 2 --context 8 --out "
               "%s/weights && cd %s && mkdir folder",
               folder, folder);
    cli_code_at(__FILE__, __LINE__, &run, 0);
    return folder;
}

static uint32_t count_files(const char *folder) {
    DIR *directory = opendir(folder);
    uint32_t count = 0;
    while (directory != NULL && readdir(directory) != NULL) count++;
    if (directory != NULL) closedir(directory);
    return count;
}

/* ---- judging ---- */

static int run_in(const char *folder, const char *arguments, struct cli_run *run) {
    const char *output = test_temporary_directory();
    char rest[256] = "";
    run->code = test_shell(run->output, sizeof run->output,
                           "{ cd '%s' && '%s/bin/weir' %s 2>&1 >'%s/stdout'; }", folder,
                           test_install_prefix(), arguments, output);
    if (run->code != 0) test_shell(rest, sizeof rest, "head -c 200 '%s/stdout'", output);
    if (rest[0] != '\0') TEST_FAIL("%s: stdout holds: %s", arguments, rest);
    return run->code;
}

/* Each line of stderr is `weir: SUBCOMMAND: what: how`, and shows nothing but what can be seen. */
static void check_shape(const char *arguments, const char *errors) {
    char begin[32];
    int length =
        snprintf(begin, sizeof begin, "weir: %.*s: ", (int)strcspn(arguments, " "), arguments);
    for (const char *line = errors; *line != '\0'; line += strcspn(line, "\n") + 1) {
        size_t bytes = strcspn(line, "\n");
        bool begins = strncmp(line, begin, (size_t)length) == 0;
        const char *colon = begins ? strstr(line + length, ": ") : NULL;
        if (colon == NULL || colon > line + bytes)
            TEST_FAIL("%s: this says not what is wrong and how to mend it: %.*s", arguments,
                      (int)bytes, line);
        for (size_t i = 0; i < bytes; i++)
            if ((unsigned char)line[i] < ' ') TEST_FAIL("%s: byte %d", arguments, line[i]);
        if (line[bytes] == '\0') TEST_FAIL("%s: the last line does not end", arguments);
        if (test_has_failed()) return;
    }
}

static void check_message(const char *folder, const struct message *message) {
    struct cli_run run;
    uint32_t before = count_files(folder);
    int code = run_in(folder, message->arguments, &run);
    if (code != 2) TEST_FAIL("%s: exit code %d: %s", message->arguments, code, run.output);
    check_shape(message->arguments, run.output);
    char wanted[700];
    snprintf(wanted, sizeof wanted, "weir: %.*s: %s", (int)strcspn(message->arguments, " "),
             message->arguments, message->line);
    EXPECT_CONTAINS(run.output, wanted);
    EXPECT_EQ_UINT(count_files(folder), before);
    if (message->mended == NULL) return;
    code = run_in(folder, message->mended, &run);
    if (code != 0) TEST_FAIL("%s: exit code %d: %s", message->mended, code, run.output);
}

static void check_messages(const struct message *messages, size_t count) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    const char *folder = make_folder();
    for (size_t i = 0; i < count; i++) check_message(folder, &messages[i]);
}

/* ---- the command line ---- */

static const struct message of_options[] = {
    {"describe --modle gpt", "unknown option --modle: did you mean --model?\n",
     "describe --model gpt"},
    {"describe --colour red", "unknown option --colour: 'weir describe --help' lists them\n",
     "describe --help"},
    {"describe gpt", "unexpected 'gpt': options begin with --\n", NULL},
    {"describe -m", "unknown option -m: 'weir describe --help' lists them\n", NULL},
    {"describe --model", "--model needs a value: write --model NAME|FILE|FOLDER\n", NULL},
    {"describe --tied=yes", "--tied takes no value: write --tied\n", "describe --tied"},
    {"describe --layers 8x", "--layers 8x: not a whole number: write digits only, like 8\n",
     "describe --layers 8"},
    {"describe --layers -1", "--layers -1: not a whole number: write digits only, like 8\n", NULL},
    {"describe --layers 0", "--layers 0: too small: give at least 1\n", "describe --layers 1"},
    {"describe --layers 251", "--layers 251: too large: give at most 250\n", NULL},
    {"describe --layers 4294967296", "--layers 4294967296: too large: give at most 250\n",
     "describe --layers 250"},
    {"describe --dropout 1", "--dropout 1: too large: give at most 0.999\n",
     "describe --dropout 0.999"},
    {"describe --dropout some", "--dropout some: not a number: write it like 0.001 or 1e-3\n",
     "describe --dropout 1e-3"},
    {"describe --dtype f16", "--dtype f16: not one of f32, f64: choose one\n",
     "describe --dtype f32"},
    {"describe --dtype half", "--dtype half: not one of f32, f64: choose one\n", NULL},
    {"describe --balance 1,x", "--balance x: not a whole number: write digits only", NULL},
    {"describe --freeze ''", "--freeze : not a list: separate up to 256 names by single commas\n",
     NULL},
    {"describe --freeze a,,b", "--freeze a,,b: not a list: separate up to 256 names by single",
     NULL},
    {"plan --memory-limit much",
     "--memory-limit much: not a size: write it like 4096, 64KiB, 512MiB or 8GiB\n",
     "plan --memory-limit 8GiB"},
    {"plan --memory-limit 1.0001KiB",
     "--memory-limit 1.0001KiB: not a whole number of bytes: write", NULL},
    {"plan --memory-limit 9000TiB", "--memory-limit 9000TiB: not a size below 8192TiB: give less\n",
     NULL},
    {"plan --wait spinn", "--wait spinn: not one of auto, spin, park: did you mean spin?\n",
     "plan --wait spin"},
    {"eval --data", "--data needs a value: give one or more paths\n", NULL},
    {"eval --data text --data text", "--data is given twice: name all paths after one --data\n",
     NULL},
    {"generate $(seq -f '--prompt %g' 257)", "--prompt: given more than 256 times: give fewer\n",
     NULL},
    {"describe $(seq 300)", "and 44 more faults: mend these first\n", NULL},
};

static void test_command_lines_are_mended_by_what_is_said(void) {
    check_messages(of_options, COUNT(of_options));
}

static void test_variables_are_named_where_they_are_wrong(void) {
    struct cli_run run;
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    run.code = test_shell(run.output, sizeof run.output,
                          "{ WEIR_WAIT=sleep '%s/bin/weir' plan 2>&1 >/dev/null; }",
                          test_install_prefix());
    CHECK_EQ_INT(run.code, 2);
    CHECK_CONTAINS(run.output, "weir: plan: WEIR_WAIT sleep: not one of auto, spin, park: ");
    check_shape("plan", run.output);
}

static void test_a_word_cannot_write_to_the_terminal(void) {
    struct cli_run run;
    CLI(&run, "\"$(printf 'a\\033[2J\\n\\377')\" 2>&1 >/dev/null");
    CHECK_EQ_INT(run.code, 2);
    CHECK_EQ_STR(run.output,
                 "weir: a\\x1b[2J\\n\\xff: no such subcommand: 'weir --help' lists them\n");
    CLI(&run, "describe \"$(printf -- '--\\302\\233\\tx')\" 2>&1 >/dev/null");
    CHECK_CONTAINS(run.output, "unknown option --\\xc2\\x9b\\tx: ");
}

/* ---- models ---- */

#define SMALL_UNET "--model unet --num-convs 1 --base-channels 2 "

static const struct message of_models[] = {
    {"describe --model gptt",
     "--model gptt is not known (did you mean gpt?): choose gpt, gpt2-124m, gpt2-350m, gpt2-774m, "
     "gpt2-1558m, unet, resnet101 or amoebanetd",
     "describe --model gpt"},
    {"describe --model unet --residual-block 2",
     "--residual-block means nothing to --model unet: leave it away", NULL},
    {"describe --layers 64 --residual-block 1",
     "--residual-block 1 makes 64 blocks of 64 layers, but 63 are the most: give --residual-block "
     "2 "
     "or more",
     "describe --layers 64 --residual-block 2"},
    {"describe --model none.json",
     "cannot open none.json: No such file or directory: check the path", NULL},
    {"describe --model folder/", "cannot read folder/: Is a directory: name a file, not a folder\n",
     NULL},
    {"describe --model no-json.json", "no-json.json: line 1, column 6: ", NULL},
    {"describe --model ./empty", "./empty: line 1, column 0: ", NULL},
    {"describe --model list.json", "list.json: a model is an object with input, layers, target",
     NULL},
    {"describe --model type.json", "layer 0: there is no type 'conv3d': did you mean 'conv2d'?\n",
     NULL},
    {"describe --model type.json", "layer 1 (relu): no attribute 'p'; it takes: none\n", NULL},
    {"describe --model skips.json",
     "skip 'a' is stashed by 1 (stash) but never popped: pop or read it in a later one, or drop",
     NULL},
    {"describe --model escape.json",
     "layer 0 (stash): skip is '\\x1b[2J', which holds a control character: use letters", NULL},
    {"describe --model large.json",
     "layer 1 (linear): its parameter 'weight' would be f32 "
     "[2147483647, 2147483647], which no memory holds\n",
     NULL},
    {"describe --model rank.json", "layer 0 (relu): relu ", NULL},
    {"plan --model loss.json", "loss: mse ", NULL},
    {"describe --model names.json", "layer 1: the name 'a' is layer 0's already: ", NULL},
    {"plan --model plain.json",
     "a model without target and loss cannot be trained, only inferred: give both\n", NULL},
    {"describe --depth 3", "--depth means nothing to --model gpt: leave it away\n", "describe"},
    {"describe --model plain.json --layers 2",
     "--layers means nothing to --model plain.json: leave it away\n",
     "describe --model plain.json"},
    {"describe --width 250", "--width 250 is not a multiple of --heads 8: give --width 248\n",
     "describe --width 248"},
    {"describe --freeze 'nothing.*'",
     "no parameter matches the pattern 'nothing.*' that is to be frozen: the first is named "
     "'wte.weight'\n",
     "describe --freeze 'wte.*'"},
    {"plan --freeze '*'", "all parameters are frozen: nothing is left to train", NULL},
    {"describe " SMALL_UNET "--image-size 32",
     "images of 32x32 are too small for 5 levels, each of which halves them: use at least 64x64, "
     "or --depth 4 at most\n",
     "describe " SMALL_UNET "--image-size 64"},
    {"describe " SMALL_UNET "--image-size 32", "images of 32x32 are too small ",
     "describe " SMALL_UNET "--image-size 32 --depth 4"},
    {"describe " SMALL_UNET "--image-size 31x64", "images of 31x64 are too small for 5 levels, ",
     "describe " SMALL_UNET "--image-size 32x64"},
    {"describe " SMALL_UNET "--image-size 1 --depth 1",
     "images of 1x1 are too small for 1 levels, each of which halves them: use at least 4x4\n",
     "describe " SMALL_UNET "--image-size 4 --depth 1"},
    {"describe --model unet --image-size big",
     "--image-size big: not a size: write it like 192, or HEIGHTxWIDTH like 96x128", NULL},
    {"describe --model unet --image-size 96x",
     "--image-size 96x: not a size: write it like 192, or HEIGHTxWIDTH like 96x128",
     "describe " SMALL_UNET "--image-size 96x128"},
};

static void test_models_are_mended_by_what_is_said(void) {
    check_messages(of_models, COUNT(of_models));
}

static void test_every_shape_that_is_known_is_judged(void) {
    static const char *const lines[] = {
        ": layer 0 (conv2d): conv2d's 2 groups must divide its 3 input and 4 output channels\n",
        ": layer 1 (softmax): dim is 4, but must be from 1 to 3 or from -3 to -1: rows are "
        "dimension 0 and independent\n",
        ": layer 4 (instance_norm2d): instance_norm2d needs more than one pixel per channel, but "
        "its input is [4, 1, 1]: use larger images or fewer levels\n",
        ": layer 5 (avg_pool2d): avg_pool2d's kernel of 2x2 is larger than its input, which is f32 "
        "[4, 1, 1]\n"};
    static const char *const cuts[] = {"describe", "plan --balance 7", "plan --balance 2,5",
                                       "plan --stages 3", "plan --balance 1,1,1,1,1,1,1"};
    struct cli_run run;
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    const char *folder = make_folder();
    /* layer 6 gets no known shape; how the list is cut changes nothing */
    for (size_t i = 0; i < COUNT(cuts); i++) {
        char arguments[96];
        snprintf(arguments, sizeof arguments, "%s --model groups.json", cuts[i]);
        CHECK_EQ_INT(run_in(folder, arguments, &run), 2);
        uint32_t found = 0;
        for (const char *line = run.output; *line != '\0'; line += strcspn(line, "\n") + 1) found++;
        CHECK_EQ_UINT(found, COUNT(lines));
        for (size_t k = 0; k < COUNT(lines); k++) CHECK_CONTAINS(run.output, lines[k]);
    }
    /* skips that do not match hide no shape before them */
    CHECK_EQ_INT(run_in(folder, "describe --model both.json", &run), 2);
    CHECK_EQ_STR(run.output,
                 "weir: describe: skip 'a' is stashed by 1 (stash) but never popped: pop or read "
                 "it in a later one, or drop the stash\n"
                 "weir: describe: layer 0 (conv2d): conv2d's 2 groups must divide its 3 input and "
                 "4 output channels\n");
}

/* ---- files and pipelines ---- */

#define GRAD CLI_MODEL " --vocab 32 --data rows --weights weights --out g"

static const struct message of_files[] = {
    {"describe --json /none/j",
     "--json /none/j: its folder: No such file or directory: make it, or choose another\n",
     "describe --json -"},
    {"describe --json folder", "--json folder is a folder: give a file in it\n",
     "describe --json folder/j"},
    {"describe --json ''", "--json '' is no file: give its name\n", NULL},
    {"plan --json /none/j", "--json /none/j: its folder: No such file or directory: make it", NULL},
    {"doctor --json /none/j", "--json /none/j: its folder: No such file or directory: make it",
     NULL},
    {"doctor --workers 1025", "--workers 1025: too large: give at most 1024\n", NULL},
    {"schedule --csv /none/t", "--csv /none/t: its folder: No such file or directory: make it",
     "schedule --csv folder/t"},
    {"init", "--out is missing: give --out FILE\n", "init --out folder/w"},
    {"init --out -", "--out '-' is no file: give its name\n", NULL},
    {"grad --model plain.json --weights weights --out g --data images",
     "the model has no loss, so there are no gradients: give its file a \"target\" and a \"loss\"",
     NULL},
    {"grad --model unet --weights weights --out g --data inputs --depth 2",
     "inputs holds no tensor 'target': write it with rows first\n", NULL},
    {"grad --model unet --weights weights --out g --data images --in-channels 1 --depth 2",
     "--in-channels is 1, but the data have 3: leave the option away\n", NULL},
    {"grad --model unet --weights weights --out g --data images --out-channels 2 --depth 2",
     "--out-channels is 2, but the data have 1: leave the option away\n", NULL},
    {"grad --model unet --weights weights --out g --data images --image-size 9 --depth 2",
     "--image-size is 9x9, but the data are 8x8: leave the option away\n", NULL},
    {"grad --model unet --weights weights --out g --data images --depth 3",
     "images of 8x8 are too small for 3 levels, each of which halves them: use at least 16x16, or "
     "--depth 2 at most\n",
     NULL},
    {"grad " GRAD " --weights text", "text: not a safetensors file: it is text: give weights, ",
     NULL},
    {"grad " GRAD,
     "weights: tensor 'wte.weight' is F32 [256, 16], but the model has f32 [32, 16]: choose the "
     "model that the file was made with, or another file\n",
     NULL},
    {"generate --load text --prompt a", "text: not a safetensors file: it is text: give weights, ",
     NULL},
    {"generate --load weights --heads 2 --prompt-file prompts",
     "--prompt-file prompts holds no prompt: write one per line\n",
     "generate --load weights --heads 2 --prompt a"},
    {"generate --load weights --heads 2", "there is no prompt: give --prompt TEXT or --prompt-file",
     NULL},
    {"generate --load images --prompt a",
     "images holds no 'wte.weight': not the weights of a GPT: say by --model whose they are\n",
     NULL},
    {"eval --data text --heads 2", "--load is missing: give a file of weights\n",
     "eval --data text --heads 2 --load weights"},
    {"eval --data empty --heads 2 --load weights",
     "there is no text in 1 file (0 left out as binary): name files with text\n",
     "eval --data text --heads 2 --load weights"},
    {"eval --heads 2 --load weights", "--data is missing: give PATH...\n", NULL},
    {"train --data empty",
     "there is no text in 1 file (0 left out as binary): name files with text\n", NULL},
    {"train --data text --epochs 1 --steps 1", "--epochs and --steps: give one of them\n", NULL},
    {"train --eval-data text", "--eval-data needs --data: give both\n", NULL},
    {"train --data text --trace - --json -",
     "--trace - and --json -: only one of them can have stdout\n", NULL},
    {"train --data text --report - --json -",
     "--report - and --json -: only one of them can have stdout\n", NULL},
    {"train --data text --optimizer sgd --nesterov",
     "--nesterov needs --momentum above 0: give both, like 0.9\n", NULL},
    {"train --layers 1 --width 16 --heads 2 --context 8 --data text --resume weights",
     "weights: metadata 'step' is missing: give a training checkpoint, not weights alone\n", NULL},
    {"train", "no --data, and no project text (src, bench, tests, tools, README.md) in this", NULL},
    {"profile --steps 6", "--steps 6: too small: give at least 7\n", NULL},
    {"profile --seconds -1", "--seconds -1: too small: give at least 0\n", NULL},
    {"profile --out /none/p", "--out /none/p: its folder: No such file or directory: make it",
     NULL},
    {"profile --profile p", "--profile and --balance-by use what this command makes: give --out",
     "profile --layers 1 --width 16 --heads 2 --context 8 --seconds 0 --steps 7"},
    {"profile --balance-by size", "--profile and --balance-by use what this command makes: give",
     NULL},
    {"plan --profile text", "--profile: text is no profile: line 1: ", NULL},
    {"plan --profile folder", "--profile: cannot read folder: Is a directory: name a file, not",
     NULL},
    {"plan --profile /none/p", "--profile /none/p: its folder: No such file or directory: make it",
     NULL},
    {"schedule --csv - --json -", "--csv - and --json -: only one of them can have stdout\n",
     "schedule --json -"},
    {"schedule --check short.csv --json short.csv",
     "--json short.csv is an input file of --check short.csv: give another name\n", NULL},
    {"schedule --check short.csv --stages 2", "short.csv: ", "schedule --check short.csv"},
    {"schedule --check none.csv", "cannot open none.csv: No such file or directory: check", NULL},
    {"plan --stages 2 --device cpu,cpu,cpu",
     "--device names 3, but there are 2 workers: name one for each, or give --workers 3\n",
     "plan --stages 2 --device cpu,cpu"},
    {"schedule --stages 2 --workers 3 --checkpoint some --schedule gpip",
     "there is no schedule 'gpip'", NULL},
    {"schedule --schedule zbv",
     "there is no schedule 'zbv': choose one of gpipe, 1f1b, interleaved, looped-bfs, zb-h1, "
     "zb-h2, "
     "zb-v, v-half, v-min, dualpipe-v, auto (did you mean zb-v?)\n",
     "schedule --schedule zb-v --stages 4 --workers 2 --csv -"},
    {"layers linaer", "there is no type 'linaer': did you mean 'linear'?\n", NULL},
    {"layers nothing", "there is no type 'nothing': 'weir layers' lists them\n", NULL},
    {"layers linear --markdown -", "--markdown has all types: leave 'linear' away\n", NULL},
};

static void test_files_are_mended_by_what_is_said(void) {
    check_messages(of_files, COUNT(of_files));
}

static const struct message of_simulations[] = {
    {"simulate --time F=-1",
     "--time F=-1: give a kind and seconds that are not negative, as in F=1.5; kinds are F, R, B, "
     "I, W and U\n",
     "simulate --time F=1.5"},
    {"simulate --time Q=2", "--time Q=2: give a kind and seconds that are not negative, ", NULL},
    {"simulate --time B", "--time B: give a kind and seconds that are not negative, ", NULL},
    {"simulate --time F=nan", "--time F=nan: give a kind and seconds that are not negative, ",
     NULL},
    {"simulate --time F=1e18 --trace folder/t",
     "--trace: the step takes longer than it can count: give shorter times with --time\n",
     "simulate --time F=1 --trace folder/t"},
    {"simulate --copy -1", "--copy -1: too small: give at least 0\n", "simulate --copy 0"},
    {"simulate --copy-per-byte -1", "--copy-per-byte -1: too small: give at least 0\n", NULL},
    {"simulate --host -0.5", "--host -0.5: too small: give at least 0\n", NULL},
    {"simulate --noise -0.5", "--noise -0.5: too small: give at least 0\n", NULL},
    {"simulate --noise 2", "--noise 2: too large: give at most 1\n", "simulate --noise 1"},
    {"simulate --seeds 3", "--seeds goes with --compare: add it, or leave --seeds out\n",
     "simulate --compare --seeds 3"},
    {"simulate --compare --seeds 0", "--seeds 0: too small: give at least 1\n", NULL},
    {"simulate --compare --schedule zb-v", "--schedule does not go with --compare: name it there\n",
     "simulate --compare zb-v"},
    {"simulate --compare --trace folder/t",
     "--trace does not go with --compare: choose one --schedule\n",
     "simulate --schedule zb-v --trace folder/t"},
    {"simulate --compare $(seq -s , -f '%gx' 65)",
     "--compare names 65 schedules: give at most 64\n", NULL},
    {"simulate --json /none/j", "--json /none/j: its folder: No such file or directory: make it",
     "simulate --json folder/j"},
    {"simulate --trace /none/t", "--trace /none/t: its folder: No such file or directory: make it",
     NULL},
    {"simulate --svg folder", "--svg folder is a folder: give a file in it\n",
     "simulate --svg folder/s"},
    {"simulate --svg s --json ./s", "--json ./s is also the file of --svg s: give another name\n",
     NULL},
    {"simulate --svg - --json -", "--json - and --svg -: only one of them can have stdout\n", NULL},
    {"simulate --layers 2", "--layers needs --model: add it, or leave --layers out\n",
     "simulate --stages 2"},
    {"simulate --batch 4", "--batch needs --model: add it, or leave --batch out\n", NULL},
    {"simulate --balance 2,2", "--balance needs --model: add it, or leave --balance out\n", NULL},
    {"simulate --profile p", "--profile needs --model: add it, or leave --profile out\n", NULL},
    {"simulate --model gpt --time F=2",
     "--time does not go with --model, which is measured: give one\n", "simulate --time F=2"},
    {"simulate --model gpt --border-bytes 8",
     "--border-bytes does not go with --model, which is measured: give one\n", NULL},
    {"simulate --model gpt --activation-bytes 8",
     "--activation-bytes does not go with --model, which is measured: give one\n", NULL},
    {"simulate --model gptt", "--model gptt is not known (did you mean gpt?): ", NULL},
    {"simulate --model gpt --stages 7", "--stages 7: the model has 6 layers: choose 1 to 6\n",
     NULL},
    {"simulate --model gpt --balance 2,2",
     "--balance adds up to 4 layers, the model has 6: ", NULL},
    {"simulate --model gpt --balance 3,3 --balance-by time",
     "--balance and --balance-by: give one of them\n", NULL},
    {"simulate --model gpt --profile /none/p",
     "--profile /none/p: its folder: No such file or directory: make it", NULL},
    {"simulate --model gpt --profile text", "--profile: text is no profile: line 1: ", NULL},
    {"simulate --model plain.json",
     "a model without target and loss cannot be trained, only inferred: give both\n", NULL},
    {"simulate --schedule 2f2b", "there is no schedule '2f2b'", NULL},
    {"simulate --schedule zbv",
     "there is no schedule 'zbv': choose one of gpipe, 1f1b, interleaved, looped-bfs, zb-h1, "
     "zb-h2, "
     "zb-v, v-half, v-min, dualpipe-v, auto (did you mean zb-v?)\n",
     NULL},
    {"simulate --compare gpipe,dualpip-v",
     "--compare: there is no schedule 'dualpip-v': 'weir simulate --compare' names all, a table's "
     "file ends in .csv (did you mean dualpipe-v?)\n",
     "simulate --compare gpipe,dualpipe-v --chunks 4"},
    {"simulate --schedule none.csv",
     "--schedule none.csv: cannot open none.csv: No such file or directory: check", NULL},
    {"simulate --schedule short.csv --stages 2",
     "--schedule short.csv: the table is for 1 stage, the run has 2\n",
     "simulate --schedule short.csv"},
    {"simulate --stages 7 --virtual-stages 2 --workers 3",
     "--stages 7 with --virtual-stages 2: stages are workers x virtual stages; the nearest is "
     "--stages 6\n",
     "simulate --stages 6 --virtual-stages 2 --workers 3 --schedule interleaved --chunks 6"},
};

static void test_simulations_are_mended_by_what_is_said(void) {
    check_messages(of_simulations, COUNT(of_simulations));
}

/* The advice of a memory limit names the number of bytes that suffices. */
static void test_a_memory_limit_that_is_raised_as_told_suffices(void) {
    struct cli_run run;
    CLI(&run, "plan " CLI_MODEL " --memory-limit 1KiB 2>&1 >/dev/null");
    CHECK_EQ_INT(run.code, 2);
    unsigned long most = 0;
    for (const char *at = run.output; (at = strstr(at, "raise the limit to ")) != NULL; at++) {
        unsigned long bytes = strtoul(at + strlen("raise the limit to "), NULL, 10);
        most = bytes > most ? bytes : most;
    }
    CHECK(most > 1024);
    CLI_CODE(&run, 0, "plan " CLI_MODEL " --memory-limit %lu", most);
    CLI_CODE(&run, 2, "plan " CLI_MODEL " --memory-limit %lu", most - 1);
}

/* ---- many ---- */

enum { SKIPS = 32768 };

/* A list is judged in a time that grows as its length. The limit is to a search among all skips for
 * each one, which takes 32 seconds of the processor, what it is to a hang; 0.7 are enough. */
static void test_many_skips_take_little_time(void) {
    struct cli_run run;
    const char *folder = test_temporary_directory();
    char path[512];
    snprintf(path, sizeof path, "%s/m.json", folder);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fprintf(file, "{\"input\": {\"dtype\": \"f32\", \"shape\": [1]}, \"layers\": [");
    for (uint32_t i = 0; i < 2 * SKIPS; i++)
        fprintf(file, "%s{\"type\": \"%s\", \"skip\": \"s%u\"}", i > 0 ? "," : "",
                i < SKIPS ? "stash" : "pop_add", i < SKIPS ? i : 2 * SKIPS - 1 - i);
    fprintf(file, "]}");
    fclose(file);
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    run.code = test_shell(run.output, sizeof run.output,
                          "ulimit -t 20; '%s/bin/weir' describe --model %s --stages 3 | tail -n 1",
                          test_install_prefix(), path);
    CHECK_EQ_INT(run.code, 0);
    CHECK_CONTAINS(run.output, "s32767         layer 32767 -> 32768    f32 [1] ");
}

WEIR_TEST_SUITE(cli_messages, TEST(command_lines_are_mended_by_what_is_said),
                TEST(variables_are_named_where_they_are_wrong),
                TEST(a_word_cannot_write_to_the_terminal), TEST(models_are_mended_by_what_is_said),
                TEST(every_shape_that_is_known_is_judged), TEST(files_are_mended_by_what_is_said),
                TEST(simulations_are_mended_by_what_is_said),
                TEST(a_memory_limit_that_is_raised_as_told_suffices),
                TEST(many_skips_take_little_time))
