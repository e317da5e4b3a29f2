/* SPDX-License-Identifier: MIT */
/* `weir help`, `weir man` and `weir completion`: what the option tables of all subcommands say, in
 * the forms that people, man and shells want. Each subcommand prints its own part. */
#include "cmd/commands.h"
#include "cli/args_show.h"

#include <stdio.h>
#include <string.h>

const struct subcommand *subcommand_find(const char *name) {
    const struct subcommand *at = subcommands;
    while (at->name != NULL && strcmp(at->name, name) != 0) at++;
    return at->name != NULL ? at : NULL;
}

static int show(const struct subcommand *subcommand, const char *option) {
    char name[32], form[32];
    char *words[] = {name, form, NULL};
    snprintf(name, sizeof name, "%s", subcommand->name);
    snprintf(form, sizeof form, "%s", option);
    return subcommand->run(2, words);
}

/* Of one word, which may be missing. */
static int refuse_words(const char *name, const char *usage) {
    fprintf(stderr, "weir: %s: give one word at most: weir %s\n", name, usage);
    return EXIT_REFUSED;
}

static bool asks_help(int argc, char **argv) {
    return argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
}

int cmd_help(int argc, char **argv) {
    if (argc > 2) return refuse_words("help", "help SUBCOMMAND");
    if (argc < 2 || asks_help(argc, argv)) {
        subcommands_usage(stdout);
        return EXIT_DONE;
    }
    const struct subcommand *found = subcommand_find(argv[1]);
    return found != NULL ? show(found, "--help") : subcommand_refuse(argv[1]);
}

/* ---- man ---- */

static void print_overview(void) {
    printf(".TH WEIR 1 \"\" \"weir %s\" \"Weir\"\n.SH NAME\nweir \\- pipeline\\-parallel training\n"
           ".SH SYNOPSIS\n\\fBweir\\fR \\fISUBCOMMAND\\fR [\\fIoptions\\fR]\n.SH SUBCOMMANDS\n",
           weir_version());
    for (const struct subcommand *at = subcommands; at->name != NULL; at++) {
        printf(".TP\n\\fB%s\\fR\n", at->name);
        args_man_text(at->summary);
        putchar('\n');
    }
    puts(".SH SEE ALSO\n\\fBweir\\-train\\fR(1) and so on, a page for each subcommand");
}

int cmd_man(int argc, char **argv) {
    if (argc > 2) return refuse_words("man", "man SUBCOMMAND");
    if (asks_help(argc, argv)) {
        puts("usage: weir man [SUBCOMMAND]\n\nprints a manual page as roff: 'weir man train | man "
             "-l -' shows it");
        return EXIT_DONE;
    }
    if (argc < 2) {
        print_overview();
        return EXIT_DONE;
    }
    const struct subcommand *found = subcommand_find(argv[1]);
    return found != NULL ? show(found, "--help=man") : subcommand_refuse(argv[1]);
}

/* ---- shells ---- */

/* What needs no options: three words of their own. */
static bool is_plain(const struct subcommand *at) {
    return at->run == cmd_help || at->run == cmd_man || at->run == cmd_completion;
}

static void print_parts(const char *form) {
    for (const struct subcommand *at = subcommands; at->name != NULL; at++)
        if (!is_plain(at)) show(at, form);
}

static void print_bash(void) {
    static const char script[] =
        "_weir() {\n"
        "    local current=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} option= before=0 i\n"
        "    local -a kind\n"
        "    COMPREPLY=()\n"
        "    [[ $current == = ]] && current=\n"
        "    if ((COMP_CWORD == 1)); then\n"
        "        COMPREPLY=($(compgen -W \"$_weir_commands --help --version\" -- \"$current\"))\n"
        "        return\n"
        "    fi\n"
        "    case $command in\n"
        "    help|man) COMPREPLY=($(compgen -W \"$_weir_commands\" -- \"$current\")); return ;;\n"
        "    completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$current\")); return ;;\n"
        "    esac\n"
        "    declare -F \"_weir_value_$command\" > /dev/null || return\n"
        "    for ((i = COMP_CWORD - 1; i > 1; i--)); do\n"
        "        case ${COMP_WORDS[i]} in\n"
        "        --*) option=${COMP_WORDS[i]}; break ;;\n"
        "        =) ;;\n"
        "        *) ((before++)) ;;\n"
        "        esac\n"
        "    done\n"
        "    kind=($(\"_weir_value_$command\" \"$option\"))\n"
        "    [[ -z $option ]] && kind=(flag)\n"
        "    if [[ $current != -* ]] && ((before == 0)) && [[ ${kind[0]} != flag ]] ||\n"
        "        [[ $current != -* && ${kind[0]} == paths ]]; then\n"
        "        COMPREPLY=($(compgen -W \"${kind[*]:1}\" -- \"$current\"))\n"
        "        if [[ ${kind[0]} == file || ${kind[0]} == paths ]]; then\n"
        "            compopt -o filenames 2> /dev/null\n"
        "            while IFS= read -r i; do COMPREPLY+=(\"$i\"); done < <(compgen -f -- "
        "\"$current\")\n"
        "        fi\n"
        "        return\n"
        "    fi\n"
        "    COMPREPLY=($(compgen -W \"$(\"_weir_options_$command\")\" -- \"$current\"))\n"
        "}\n"
        "complete -F _weir weir";
    fputs("# bash completion of weir, by 'weir completion bash'\n_weir_commands='", stdout);
    for (const struct subcommand *at = subcommands; at->name != NULL; at++)
        printf("%s%s", at > subcommands ? " " : "", at->name);
    puts("'");
    print_parts("--help=bash");
    puts(script);
}

static void print_zsh(void) {
    puts("#compdef weir\n# zsh completion of weir, by 'weir completion zsh'\n_weir() {\n"
         "    local -a commands=(");
    for (const struct subcommand *at = subcommands; at->name != NULL; at++) {
        fputs("        ", stdout);
        args_describe_zsh(at->name, at->summary);
        putchar('\n');
    }
    puts("    )\n    if ((CURRENT == 2)); then\n        _describe -t commands subcommand commands\n"
         "        return\n    fi\n    local command=$words[2]\n    words=(\"${words[@]:1}\")\n"
         "    ((CURRENT--))\n    case $command in\n"
         "    help|man) _describe -t commands subcommand commands ;;\n"
         "    completion) _values shell bash zsh fish ;;");
    print_parts("--help=zsh");
    puts(
        "    esac\n}\nif [[ $funcstack[1] == _weir ]]; then _weir \"$@\"; else compdef _weir weir; "
        "fi");
}

static void print_fish(void) {
    puts("# fish completion of weir, by 'weir completion fish'\ncomplete -c weir -f");
    for (const struct subcommand *at = subcommands; at->name != NULL; at++) {
        printf("complete -c weir -n __fish_use_subcommand -a %s -d ", at->name);
        args_quote_fish(at->summary);
        putchar('\n');
        if (at->run == cmd_help || at->run == cmd_man) continue;
        printf("complete -c weir -n '__fish_seen_subcommand_from help man' -a %s\n", at->name);
    }
    puts("complete -c weir -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'");
    print_parts("--help=fish");
}

int cmd_completion(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*print)(void);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    if (asks_help(argc, argv)) {
        puts("usage: weir completion bash|zsh|fish\n\nprints what lets the shell complete weir's "
             "options, for example: source <(weir completion bash)");
        return EXIT_DONE;
    }
    for (size_t i = 0; argc == 2 && i < sizeof shells / sizeof shells[0]; i++) {
        if (strcmp(argv[1], shells[i].name) != 0) continue;
        shells[i].print();
        return EXIT_DONE;
    }
    fputs("weir: completion: name the shell: weir completion bash, zsh or fish\n", stderr);
    return EXIT_REFUSED;
}
