/* SPDX-License-Identifier: MIT */
/*
 * The parser of command lines. It never stops at a fault: whoever mistyped three options should
 * learn of all three. Values are strict ("8x", "-1" and "1e3" are no counts), since a number that
 * is silently read as another one costs a night of training.
 */
#include "cli/args.h"
#include "base/base.h"
#include "cli/args_show.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_MAX 64
#define SHOWN 80 /* bytes of a wrong value in a message */

/* Where a value comes from, for messages: "--stages" or "WEIR_BIND". */
struct source {
    struct args *args;
    const struct arg_option *option;
    const char *label;
};

/* ---- values ---- */

static void *destination(const struct args *args, const struct arg_section *section,
                         const struct arg_option *option) {
    return args->values + section->offset + option->offset;
}

static void not_a(const struct source *source, const char *text, const char *wanted) {
    weir_faults_add(source->args->faults, "%s %.*s: not %s", source->label, SHOWN, text, wanted);
}

static bool in_range(const struct source *source, const char *text, double value) {
    const struct arg_option *option = source->option;
    bool small = value < option->least, large = option->most != 0.0 && value > option->most;
    if (small || large) {
        double bound = small ? option->least : option->most;
        bool whole = bound == floor(bound); /* 17 digits of others are not as they were typed */
        weir_faults_add(source->args->faults, "%s %.*s: too %s: give at %s %.*g", source->label,
                        SHOWN, text, small ? "small" : "large", small ? "least" : "most",
                        whole ? 17 : 15, bound);
    }
    return !small && !large;
}

static bool read_count(const struct source *source, const char *text, uint64_t most,
                       uint64_t *value) {
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || text[digits]) {
        not_a(source, text, "a whole number: write digits only, like 8");
        return false;
    }
    errno = 0;
    uint64_t number = strtoull(text, NULL, 10);
    bool large = errno == ERANGE || number > most;
    if (!in_range(source, text, (double)number)) {
        return false;
    }
    if (large) {
        weir_faults_add(source->args->faults, "%s %.*s: too large: give at most %llu",
                        source->label, SHOWN, text, (unsigned long long)most);
        return false;
    }
    *value = number;
    return true;
}

static void read_u32(const struct source *source, const char *text, uint32_t *value) {
    uint64_t number = 0;
    if (read_count(source, text, UINT32_MAX, &number)) {
        *value = (uint32_t)number;
    }
}

static void read_u64(const struct source *source, const char *text, uint64_t *value) {
    uint64_t number = 0;
    if (read_count(source, text, UINT64_MAX, &number)) {
        *value = number;
    }
}

static void read_real(const struct source *source, const char *text, double *value) {
    char *end = NULL;
    size_t plain = strspn(text, "+-.0123456789eE");
    double number = strtod(text, &end);
    if (plain == 0 || text[plain] || *end || !isfinite(number)) {
        not_a(source, text, "a number: write it like 0.001 or 1e-3");
    } else if (in_range(source, text, number)) {
        *value = number;
    }
}

static bool unit_of(const char *text, double *factor) {
    static const struct {
        const char *name;
        double factor;
    } units[] = {{"", 1.0},       {"B", 1.0},      {"KiB", 0x1p10},
                 {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(units[i].name, text) == 0) {
            *factor = units[i].factor;
            return true;
        }
    }
    return false;
}

/* A double holds every whole number of bytes up to 8 PiB exactly. */
static void read_bytes(const struct source *source, const char *text, uint64_t *value) {
    char number[32];
    double factor = 0.0;
    size_t digits = strspn(text, "0123456789.");
    char *end = NULL;
    if (digits == 0 || digits >= sizeof(number) || !unit_of(text + digits, &factor)) {
        not_a(source, text, "a size: write it like 4096, 64KiB, 512MiB or 8GiB");
        return;
    }
    memcpy(number, text, digits);
    number[digits] = 0;
    double bytes = strtod(number, &end) * factor;
    if (*end || end == number || bytes != floor(bytes)) {
        not_a(source, text, "a whole number of bytes: write it like 4096, 64KiB or 8GiB");
    } else if (bytes > 0x1p53) {
        not_a(source, text, "a size below 8192TiB: give less");
    } else if (in_range(source, text, bytes)) {
        *value = (uint64_t)bytes;
    }
}

static void read_choice(const struct source *source, const char *text, uint32_t *value) {
    const char *const *choices = source->option->choices;
    char all[256];
    size_t used = 0;
    for (uint32_t i = 0; choices[i]; i++) {
        if (strcmp(choices[i], text) == 0) {
            *value = i;
            return;
        }
        used += (size_t)snprintf(all + used, sizeof(all) - used, "%s%s", i ? ", " : "", choices[i]);
        assert(used < sizeof(all));
    }
    const char *nearest = weir__nearest(text, choices);
    weir_faults_add(source->args->faults, "%s %.*s: not one of %s%s%s%s", source->label, SHOWN,
                    text, all, nearest ? ": did you mean " : ": choose one", nearest ? nearest : "",
                    nearest ? "?" : "");
}

/* The next item of a comma list into `item`; false at its end. An empty item is "". */
static bool next_item(const char **text, char item[WORD_MAX]) {
    if (!*text) {
        return false;
    }
    const char *comma = strchr(*text, ',');
    size_t bytes = comma ? (size_t)(comma - *text) : strlen(*text);
    snprintf(item, WORD_MAX, "%.*s", (int)(bytes < WORD_MAX ? bytes : WORD_MAX - 1), *text);
    *text = comma ? comma + 1 : NULL;
    return true;
}

static void read_numbers(const struct source *source, const char *text,
                         struct arg_numbers *numbers) {
    char item[WORD_MAX];
    uint32_t count = 0, faults = source->args->faults->count;
    struct arg_numbers read = {0};
    while (next_item(&text, item)) {
        if (count == ARG_LIST_MAX) {
            weir_faults_add(source->args->faults, "%s: more than %d numbers: give fewer",
                            source->label, ARG_LIST_MAX);
            return;
        }
        read_u32(source, item, &read.items[count++]);
    }
    read.count = count;
    if (source->args->faults->count == faults) {
        *numbers = read;
    }
}

static void read_list(const struct source *source, const char *text, struct arg_texts *texts) {
    struct arg_texts read = {0};
    size_t bytes = strlen(text);
    if (bytes >= sizeof(read.text)) {
        not_a(source, text, "a list of at most 1,023 bytes: give fewer");
        return;
    }
    memcpy(read.text, text, bytes + 1);
    for (size_t begin = 0; begin <= bytes;) {
        size_t length = strcspn(read.text + begin, ",");
        if (length == 0 || read.count == ARG_LIST_MAX) {
            not_a(source, text, "a list: separate up to 256 names by single commas");
            return;
        }
        read.begin[read.count++] = (uint16_t)begin;
        read.text[begin + length] = 0;
        begin += length + 1;
    }
    *texts = read;
}

const char *arg_texts_get(const struct arg_texts *texts, uint32_t index) {
    assert(index < texts->count);
    return texts->text + texts->begin[index];
}

static void gather(const struct source *source, const char *text, struct arg_words *words) {
    if (words->count == ARG_LIST_MAX) {
        weir_faults_add(source->args->faults, "%s: given more than %d times: give fewer",
                        source->label, ARG_LIST_MAX);
        return;
    }
    words->items[words->count++] = text;
}

static void read_value(const struct source *source, const char *text, void *value) {
    switch (source->option->type) {
    case ARG_FLAG:
    case ARG_UNFLAG: *(bool *)value = source->option->type == ARG_FLAG; break;
    case ARG_TEXT: *(const char **)value = text; break;
    case ARG_U32: read_u32(source, text, value); break;
    case ARG_U64: read_u64(source, text, value); break;
    case ARG_REAL: read_real(source, text, value); break;
    case ARG_BYTES: read_bytes(source, text, value); break;
    case ARG_CHOICE: read_choice(source, text, value); break;
    case ARG_U32_LIST: read_numbers(source, text, value); break;
    case ARG_LIST: read_list(source, text, value); break;
    case ARG_TEXTS: gather(source, text, value); break;
    case ARG_PATHS: break; /* taken from argv by read_paths */
    }
}

/* ---- the command line ---- */

/* The option called `name`, its section and its number. */
static const struct arg_option *find(const struct arg_command *command, const char *name,
                                     const struct arg_section **section, uint32_t *number) {
    uint32_t before = 0;
    for (uint32_t s = 0; s < command->section_count; s++) {
        const struct arg_section *in = &command->sections[s];
        for (uint32_t i = 0; i < in->option_count; i++) {
            if (strcmp(in->options[i].name, name) == 0) {
                *section = in;
                *number = before + i;
                return &in->options[i];
            }
        }
        before += in->option_count;
    }
    return NULL;
}

/* Whether there is more to say than that it is unknown. */
static bool refuse_option(struct args *args, const char *name) {
    const struct arg_refusal *refusal = args->command->refusals;
    while (refusal != NULL && refusal->name != NULL && strcmp(refusal->name, name) != 0) refusal++;
    if (refusal == NULL || refusal->name == NULL) return false;
    weir_faults_add(args->faults, "--%s: %s", name, refusal->why);
    return true;
}

static void unknown_option(struct args *args, const char *word, const char *name) {
    const char *names[ARGS_OPTIONS_MAX + 2];
    uint32_t count = 0;
    if (refuse_option(args, name)) return;
    for (uint32_t s = 0; s < args->command->section_count; s++) {
        for (uint32_t i = 0; i < args->command->sections[s].option_count; i++) {
            names[count++] = args->command->sections[s].options[i].name;
        }
    }
    names[count++] = "help";
    names[count] = NULL;
    const char *nearest = weir__nearest(name, names);
    if (nearest) {
        weir_faults_add(args->faults, "unknown option %.*s: did you mean --%s?", SHOWN, word,
                        nearest);
    } else {
        weir_faults_add(args->faults, "unknown option %.*s: 'weir %s --help' lists them", SHOWN,
                        word, args->command->name);
    }
}

static bool is_option(const char *word) {
    return word[0] == '-' && word[1] == '-' && word[2];
}

/* All words up to the next option, the first of which may have stood behind a '='. Returns how many
 * words were used. */
static int read_paths(struct args *args, uint32_t number, const char *label, int left, char **words,
                      struct arg_paths *paths) {
    int count = 0;
    while (count < left && !is_option(words[count])) {
        count++;
    }
    if (count == 0) {
        weir_faults_add(args->faults, "%s needs a value: give one or more paths", label);
    } else if (args->given[number]) {
        weir_faults_add(args->faults, "%s is given twice: name all paths after one %s", label,
                        label);
    }
    paths->count = (uint32_t)count;
    paths->items = (const char *const *)words;
    return count;
}

static bool takes_value(const struct arg_option *option) {
    return option->type != ARG_FLAG && option->type != ARG_UNFLAG;
}

/* One option and its value from words[0…left - 1]; returns how many words they are. */
static int read_option(struct args *args, int left, char **words) {
    char name[WORD_MAX], label[WORD_MAX + 2];
    char *equals = strchr(words[0], '=');
    const char *bare = words[0] + strspn(words[0], "-");
    int bytes = equals ? (int)(equals - bare) : (int)strlen(bare);
    const struct arg_section *section = NULL;
    uint32_t number = 0;
    snprintf(name, sizeof(name), "%.*s", bytes > 0 ? bytes : 0, bare);
    const struct arg_option *option =
        is_option(words[0]) ? find(args->command, name, &section, &number) : NULL;
    if (!option) {
        unknown_option(args, words[0], name);
        /* The word after it may be its value: taken along, it is not a second fault. */
        return !equals && left > 1 && words[1][0] != '-' ? 2 : 1;
    }
    snprintf(label, sizeof(label), "--%s", name);
    struct source source = {args, option, label};
    void *value = destination(args, section, option);
    int used = 1;
    if (option->type == ARG_PATHS) {
        words[0] = equals ? equals + 1 : words[0];
        used = read_paths(args, number, label, equals ? left : left - 1, words + !equals, value) +
               !equals;
    } else if (!takes_value(option)) {
        if (equals) {
            weir_faults_add(args->faults, "%s takes no value: write %s", label, label);
        }
        read_value(&source, NULL, value);
    } else if (equals) {
        read_value(&source, equals + 1, value);
    } else if (left > 1 && !is_option(words[1])) {
        read_value(&source, words[1], value);
        used = 2;
    } else {
        weir_faults_add(args->faults, "%s needs a value: write %s %s", label, label,
                        option->value ? option->value : "VALUE");
    }
    args->given[number] = true;
    return used;
}

static void set_default(struct args *args, const struct arg_section *section,
                        const struct arg_option *option) {
    uint32_t faults = args->faults->count;
    struct source source = {args, option, option->name};
    void *value = destination(args, section, option);
    if (option->fallback && takes_value(option)) {
        read_value(&source, option->fallback, value);
        assert(args->faults->count == faults);
    }
    const char *variable = option->environment ? getenv(option->environment) : NULL;
    if (variable && *variable) {
        source.label = option->environment;
        read_value(&source, variable, value);
    }
    (void)faults;
}

static void set_defaults(struct args *args) {
    uint32_t count = 0;
    for (uint32_t s = 0; s < args->command->section_count; s++) {
        const struct arg_section *section = &args->command->sections[s];
        for (uint32_t i = 0; i < section->option_count; i++) {
            set_default(args, section, &section->options[i]);
        }
        count += section->option_count;
    }
    assert(count <= ARGS_OPTIONS_MAX);
    (void)count;
}

/* Prints what `word` asks for instead of a run; false where it is no such word. */
static bool show(const struct arg_command *command, const char *word) {
    static const struct {
        const char *word;
        void (*print)(const struct arg_command *command);
    } forms[] = {{"--help", args_help},
                 {"-h", args_help},
                 {"--help=man", args_man},
                 {"--help=bash", args_complete_bash},
                 {"--help=zsh", args_complete_zsh},
                 {"--help=fish", args_complete_fish}};
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (strcmp(word, forms[i].word) == 0) {
            forms[i].print(command);
            return true;
        }
    }
    return false;
}

bool args_parse(struct args *args, const struct arg_command *command, int argc, char **argv,
                void *values, struct weir_faults *faults) {
    *args = (struct args){.command = command, .faults = faults, .values = values};
    for (int i = 1; i < argc; i++) {
        if (show(command, argv[i])) {
            args->help = true;
            return true;
        }
    }
    set_defaults(args);
    for (int i = 1; i < argc;) {
        if (argv[i][0] == '-' && argv[i][1]) {
            i += read_option(args, argc - i, argv + i);
        } else {
            weir_faults_add(faults, "unexpected '%.*s': options begin with --", SHOWN, argv[i]);
            i++;
        }
    }
    return false;
}

bool args_given(const struct args *args, const char *name) {
    const struct arg_section *section = NULL;
    uint32_t number = 0;
    return find(args->command, name, &section, &number) && args->given[number];
}

/* ---- what went wrong ---- */

int args_refuse(const struct arg_command *command, struct weir_faults *faults) {
    for (uint32_t i = 0; i < faults->kept; i++) {
        fprintf(stderr, "weir: %s: %s\n", command->name, faults->lines[i]);
    }
    if (faults->count > faults->kept) {
        fprintf(stderr, "weir: %s: and %u more fault%s: mend these first\n", command->name,
                faults->count - faults->kept, weir__s(faults->count - faults->kept));
    }
    weir_faults_clean_up(faults);
    return EXIT_REFUSED;
}

int args_fail(const struct arg_command *command, const struct weir_error *error) {
    fprintf(stderr, "weir: %s: %s\n", command->name,
            error->message[0] ? error->message : weir_status_text(error->status));
    return EXIT_FAILED;
}

int args_end(const struct arg_command *command, struct weir_faults *faults, int status,
             struct weir_error *error) {
    if (faults->count > 0) return args_refuse(command, faults);
    if (status == WEIR_OK) return EXIT_DONE;
    if (error->status == WEIR_OK) error->status = status;
    return args_fail(command, error);
}
