/* SPDX-License-Identifier: MIT */
/**
 * Command lines as tables. A subcommand lists its options (name, type, where the value goes,
 * default, unit, help); parsing, ranges, `--help`, suggestions for misspelt names and the listing
 * of every fault at once follow from the table. Options that several subcommands share stand in
 * sections.
 *
 * `--name VALUE` and `--name=VALUE`; flags take no value; names are not abbreviated; where an
 * option is given twice the last one counts, but for those that gather (ARG_TEXTS). Written without
 * popt or getopt: both stop at what they do not know, or print themselves, and what they would save
 * is shorter than what they would need.
 *
 * @code
 *   struct values { uint32_t stages; const char *csv; };
 *   static const struct arg_option options[] = {
 *       {"stages", ARG_U32, offsetof(struct values, stages), "parts of the model",
 *        .value = "N", .fallback = "2", .least = 1},
 *       {"csv", ARG_TEXT, offsetof(struct values, csv), "where the table goes, - is stdout",
 *        .value = "FILE"}};
 *   static const struct arg_section sections[] = {{"Options", options, 2, 0}};
 *   static const struct arg_command command = {"schedule", "prints a table", NULL, sections, 1};
 *
 *   struct values values = {0};
 *   struct weir_faults faults = WEIR_FAULTS_INIT;
 *   struct args args;
 *   if (args_parse(&args, &command, argc, argv, &values, &faults)) return 0;   // --help was asked
 *   if (!values.csv) weir_faults_add(&faults, "--csv is missing: give --csv FILE");
 *   if (faults.count) return args_refuse(&command, &faults);                    // 2
 * @endcode
 */
#ifndef WEIR_TOOLS_ARGS_H
#define WEIR_TOOLS_ARGS_H

#include "weir.h"

/** Exit codes of the command. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_REFUSED = 2 };

/** What an option's value is, and the type of its destination. */
enum arg_type {
    ARG_FLAG,     /**< bool: true when given; no value */
    ARG_UNFLAG,   /**< bool: false when given; no value */
    ARG_TEXT,     /**< const char *: borrowed from argv */
    ARG_U32,      /**< uint32_t */
    ARG_U64,      /**< uint64_t */
    ARG_REAL,     /**< double, finite */
    ARG_BYTES,    /**< uint64_t: 4096, 64KiB, 1.5GiB */
    ARG_CHOICE,   /**< uint32_t: index into `choices` */
    ARG_U32_LIST, /**< struct arg_numbers: 3,4,2 */
    ARG_LIST,     /**< struct arg_texts: cpu,cuda:0 */
    ARG_TEXTS,    /**< struct arg_words: the values of all --name VALUE, in their order */
    ARG_PATHS     /**< struct arg_paths: all words up to the next option */
};

#define ARG_LIST_MAX 256

struct arg_numbers {
    uint32_t count;
    uint32_t items[ARG_LIST_MAX];
};

struct arg_texts {
    uint32_t count;
    uint16_t begin[ARG_LIST_MAX]; /**< where each item begins in `text`, zero-terminated */
    char text[1024];
};
/** Item `index` < count. */
const char *arg_texts_get(const struct arg_texts *texts, uint32_t index);

struct arg_words {
    uint32_t count;
    const char *items[ARG_LIST_MAX]; /**< borrowed from argv */
};

struct arg_paths {
    uint32_t count;
    const char *const *items; /**< borrowed from argv */
};

/** All have the first four; the others are named. */
struct arg_option {
    const char *name; /**< without the dashes */
    enum arg_type type;
    size_t offset; /**< of the destination in the section's values */
    const char *help;
    const char *value;    /**< placeholder for the help: "N", "FILE"; NULL: the choices, or none */
    const char *fallback; /**< default, as it would be typed; NULL: the destination stays */
    const char *unit;     /**< "rows"; NULL: none. Sizes are in bytes anyway */
    const char *environment;    /**< a variable that replaces the default, or NULL */
    const char *const *choices; /**< ARG_CHOICE: names, then NULL; ARG_TEXT: some, for shells */
    double least;               /**< numbers (each of a list): the smallest that is taken */
    double most;                /**< the largest; 0: no limit */
};

struct arg_section {
    const char *title;
    const struct arg_option *options;
    uint32_t option_count;
    size_t offset; /**< of the section's values in the command's */
};

#define ARGS_OPTIONS_MAX 128

/** An option that other subcommands have, and why this one does not. */
struct arg_refusal {
    const char *name;
    const char *why; /**< "what is wrong: how to mend it" */
};

struct arg_command {
    const char *name;
    const char *summary; /**< one line */
    const char *details; /**< paragraphs for --help, or NULL */
    const struct arg_section *sections;
    uint32_t section_count;
    const struct arg_refusal *refusals; /**< up to one without a name; NULL: none */
};

/** The outcome of a parse. */
struct args {
    const struct arg_command *command;
    struct weir_faults *faults;
    char *values;
    bool help;
    bool given[ARGS_OPTIONS_MAX]; /**< in table order */
};

/** Fills `values` from defaults, environment and argv[1…] (argv[0] is the subcommand), adding a
 * fault for each thing that is wrong. Returns true where --help (or --help=man, bash, zsh, fish:
 * cli/args_show.h) was asked for and has been printed on stdout. `argv` must live as long as the
 * values; `--paths=X` changes it. */
bool args_parse(struct args *args, const struct arg_command *command, int argc, char **argv,
                void *values, struct weir_faults *faults);
/** Whether an option was on the command line (a default or variable does not count). */
bool args_given(const struct args *args, const char *name);
/** The value of an option as it would be typed, into `text` (cut at its capacity); "" where it has
 * none: a text that was not given, an empty list. `section` and `option` are numbers in the tables.
 * Returns `text`. */
const char *args_value(const struct args *args, uint32_t section, uint32_t option, char *text,
                       size_t capacity);
/** Prints the help. */
void args_help(const struct arg_command *command);

/** Prints every fault as `weir: SUBCOMMAND: FAULT`, cleans `faults` up; returns EXIT_REFUSED. */
int args_refuse(const struct arg_command *command, struct weir_faults *faults);
/** Prints one `weir: SUBCOMMAND: MESSAGE` for work that failed; returns EXIT_FAILED. An empty
 * message says what the status says. */
int args_fail(const struct arg_command *command, const struct weir_error *error);
/** The exit code of work that came to `status`: faults refuse it, a failure says what `error` says,
 * or, where that is empty, the status. */
int args_end(const struct arg_command *command, struct weir_faults *faults, int status,
             struct weir_error *error);

#endif
