/* SPDX-License-Identifier: MIT */
/* `weir tokenize`: text to a model's tokens, and back. */
#include "cmd/commands.h"
#include "cmd/path_uses.h"
#include "cli/net_run.h"
#include "text/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NUMBER_CHARACTERS_MAX = 10 };

struct tokenize_values {
    const char *model, *file;
    bool decode, spans, adds_special, special_as_text, skips_special;
};

#define AT(member) offsetof(struct tokenize_values, member)
static const struct arg_option own[] = {
    {"model", ARG_TEXT, AT(model), "a Hugging Face folder, or its tokenizer.json", .value = "PATH"},
    {"file", ARG_TEXT, AT(file), "the text, or the tokens to decode; - is stdin", .value = "FILE",
     .fallback = "-"},
    {"decode", ARG_FLAG, AT(decode), "tokens to text: numbers between blanks or newlines"},
    {"spans", ARG_FLAG, AT(spans),
     "also which bytes of the text a token stands for: the first one, and the one behind the last"},
    {"add-special", ARG_FLAG, AT(adds_special),
     "also the special tokens that the file's template puts around a text"},
    {"special-as-text", ARG_FLAG, AT(special_as_text),
     "special tokens that stand in the text are text like any other"},
    {"skip-special", ARG_FLAG, AT(skips_special), "with --decode: special tokens give nothing"},
};

static void check(const struct tokenize_values *values, struct weir_faults *faults) {
    bool encodes = values->spans || values->adds_special || values->special_as_text;
    if (values->model == NULL)
        weir_faults_add(faults, "--model is missing: give --model FOLDER, with a tokenizer.json");
    net_run_check_input("model", values->model, faults);
    if (strcmp(values->file, "-") != 0) net_run_check_input("file", values->file, faults);
    if (values->decode && encodes)
        weir_faults_add(faults, "--decode makes text: leave --spans, --add-special and "
                                "--special-as-text away");
    if (!values->decode && values->skips_special)
        weir_faults_add(faults, "--skip-special is for --decode: give both, or none");
}

/* Output that fails is told once, at its end. */
static int finish(struct weir_error *error) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return WEIR_OK;
    return weir__fail(error, WEIR_ERR_IO, "cannot write to stdout: is its reader gone?");
}

static int encode(const struct tokenizer *tokenizer, const struct tokenize_values *values,
                  const struct weir__bytes *text, struct weir_error *error) {
    struct text_encoder *encoder = NULL;
    struct text_tokens tokens;
    unsigned flags = (values->adds_special ? TEXT_ADD_SPECIAL : 0u) |
                     (values->special_as_text ? TEXT_SPECIAL_AS_TEXT : 0u) |
                     (values->spans ? TEXT_SPANS : 0u);
    int status = text_encoder_new(tokenizer, &encoder);
    if (status != WEIR_OK) return status;
    status = text_encode(encoder, text->data, text->count, flags, &tokens);
    if (status != WEIR_OK) goto end;
    for (size_t i = 0; i < tokens.count; i++) {
        printf("%" PRIu32, tokens.ids[i]);
        if (values->spans)
            printf(" %" PRIu32 " %" PRIu32, tokens.spans[i].begin, tokens.spans[i].end);
        putchar('\n');
    }
    status = finish(error);
end:
    text_encoder_destroy(encoder);
    return status;
}

/* The next number of a list, or TOKENIZER_NONE at its end and, with `bad`, where there is none. */
static uint32_t next_number(const char **at, bool *bad) {
    const char *from = *at + strspn(*at, " \t\r\n");
    size_t digits = strspn(from, "0123456789");
    uint64_t number = strtoull(from, NULL, 10);
    *at = from + digits;
    *bad = *from != '\0' && (digits == 0 || digits > NUMBER_CHARACTERS_MAX ||
                             number >= TOKENIZER_NONE || strchr(" \t\r\n", **at) == NULL);
    return *from == '\0' || *bad ? TOKENIZER_NONE : (uint32_t)number;
}

static int decode_list(struct text_decoder *decoder, const struct weir__bytes *list,
                       struct weir_error *error) {
    const char *text = NULL;
    size_t bytes = 0;
    bool bad = false;
    int status;
    for (const char *at = list->data;;) {
        uint32_t id = next_number(&at, &bad);
        if (id == TOKENIZER_NONE) break;
        status = text_decoder_put(decoder, id, &text, &bytes);
        if (status == WEIR_ERR_NOT_FOUND)
            return weir__fail(error, status, "no token has the number %" PRIu32, id);
        if (status != WEIR_OK) return status;
        fwrite(text, 1, bytes, stdout);
    }
    if (bad || memchr(list->data, '\0', list->count) != NULL)
        return weir__fail(error, WEIR_ERR_FORMAT, "the list has something that is no number");
    status = text_decoder_end(decoder, &text, &bytes);
    if (status != WEIR_OK) return status;
    fwrite(text, 1, bytes, stdout);
    return finish(error);
}

static int decode(const struct tokenizer *tokenizer, const struct tokenize_values *values,
                  const struct weir__bytes *list, struct weir_error *error) {
    struct text_decoder *decoder = NULL;
    int status = text_decoder_new(tokenizer, values->skips_special, &decoder);
    if (status != WEIR_OK) return status;
    status = decode_list(decoder, list, error);
    text_decoder_destroy(decoder);
    return status;
}

static int run(const struct tokenize_values *values, struct weir_error *error) {
    struct weir__io io = {.error = error};
    struct tokenizer *tokenizer = NULL;
    struct weir__bytes bytes = {.data = NULL};
    bool standard = strcmp(values->file, "-") == 0;
    const size_t limit = (size_t)1 << 30;
    int status = tokenizer_open(&io, values->model, &tokenizer);
    if (status != WEIR_OK) return status;
    status = standard ? weir__file_append(&io, "stdin", STDIN_FILENO, limit, &bytes)
                      : weir__file_read(&io, values->file, limit, &bytes);
    if (status != WEIR_OK) goto end;
    status = values->decode ? decode(tokenizer, values, &bytes, error)
                            : encode(tokenizer, values, &bytes, error);
end:
    weir__bytes_release(NULL, &bytes);
    tokenizer_close(tokenizer);
    return status;
}

int cmd_tokenize(int argc, char **argv) {
    const struct arg_section sections[] = {{"Options", own, sizeof own / sizeof own[0], 0}};
    const struct arg_command command = {
        "tokenize", "text to a model's tokens, one number a line, and back",
        "Reads the tokenizer.json of a Hugging Face folder and gives what the library tokenizers "
        "gives; what it could not do exactly is refused by its name in the file.",
        sections, 1};
    struct tokenize_values values = {0};
    struct args args;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_error error = {0};
    if (args_parse(&args, &command, argc, argv, &values, &faults)) return EXIT_DONE;
    check(&values, &faults);
    if (faults.count > 0) return args_refuse(&command, &faults);
    return args_end(&command, &faults, run(&values, &error), &error);
}
