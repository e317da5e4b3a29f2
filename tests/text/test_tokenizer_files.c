/* SPDX-License-Identifier: MIT */
/*
 * Goal: a tokenizer.json that could not be followed exactly is refused by the path of what is in
 * the way, and no file does worse than that. Method: one that opens, changed at one place; patterns
 * with what Oniguruma and PCRE2 do not share; a thousand files changed at random.
 */
#include "harness.h"
#include "io/io_memory.h"
#include "text/pattern.h"
#include "text/tokenizer.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "tests/golden/tokenizers/"

/* Opens a file that is `text`, and gives its error's message. */
static int open_text(const char *text, size_t bytes, char message[512],
                     struct tokenizer **tokenizer) {
    struct weir_error error = {0};
    const struct weir__io io = {test_allocator(), io_memory_calls(), &error};
    io_memory_file(text, bytes);
    int status = tokenizer_open(&io, "t.json", tokenizer);
    snprintf(message, 512, "%s", error.message);
    EXPECT_STATUS(error.status, status);
    EXPECT_EQ_UINT(io_memory_open_count(), 0);
    return status;
}

/* ---- one change ---- */

struct change {
    const char *family;
    const char *path;  /* names and numbers, divided by slashes; a last "+" appends to a list */
    const char *value; /* as JSON; NULL: taken away */
    int status;
    const char *message;
};

#define SPLIT_AT(pattern)                                                                          \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern                                        \
    "\"},\"behavior\":\"Isolated\",\"invert\":false}"

static const struct change changes[] = {
    {"qwen", "version", "\"2.0\"", WEIR_ERR_UNSUPPORTED, "t.json: version: must be 1.0"},
    {"qwen", "unigram", "1", WEIR_ERR_UNSUPPORTED, "t.json: the field 'unigram' is not known"},
    {"qwen", "truncation", "{}", WEIR_ERR_UNSUPPORTED, "truncation: must be null"},
    {"qwen", "padding", "{}", WEIR_ERR_UNSUPPORTED, "padding: must be null"},
    {"qwen", "normalizer", "{\"type\":\"NFKC\"}", WEIR_ERR_UNSUPPORTED,
     "normalizer: the type 'NFKC'"},
    {"qwen", "normalizer", "{\"type\":\"NFC\",\"x\":1}", WEIR_ERR_UNSUPPORTED,
     "normalizer: the field 'x'"},
    {"qwen", "normalizer", "3", WEIR_ERR_FORMAT, "normalizer: must be an object"},
    {"llama2", "normalizer/normalizers/1/pattern", "{\"Regex\":\" \"}", WEIR_ERR_UNSUPPORTED,
     "normalizer.normalizers[1]: the field 'Regex'"},
    {"llama2", "normalizer/normalizers/1/pattern", "{\"String\":\"\"}", WEIR_ERR_UNSUPPORTED,
     "normalizer.normalizers[1]: replaces nothing"},
    {"llama2", "normalizer/normalizers/0/prepend", "3", WEIR_ERR_FORMAT,
     "normalizer.normalizers[0]: 'prepend' must be a text"},
    {"llama2", "normalizer/normalizers", "{}", WEIR_ERR_FORMAT, "'normalizers' must be a list"},
    {"qwen", "pre_tokenizer/pretokenizers/0/type", "\"Whitespace\"", WEIR_ERR_UNSUPPORTED,
     "pre_tokenizer.pretokenizers[0]: the type 'Whitespace'"},
    {"qwen", "pre_tokenizer/pretokenizers/0/behavior", "\"MergedWithNext\"", WEIR_ERR_UNSUPPORTED,
     "pre_tokenizer.pretokenizers[0]: the behavior 'MergedWithNext'"},
    {"qwen", "pre_tokenizer/pretokenizers/0", SPLIT_AT("^a"), WEIR_ERR_UNSUPPORTED,
     "an unescaped '.', '^' or '$' at byte 0 of the pattern"},
    {"qwen", "pre_tokenizer/pretokenizers/+", SPLIT_AT("a"), WEIR_ERR_UNSUPPORTED,
     "pre_tokenizer.pretokenizers[2]: stands behind ByteLevel"},
    {"smollm", "pre_tokenizer/pretokenizers/0/individual_digits", "\"yes\"", WEIR_ERR_FORMAT,
     "'individual_digits' must be true or false"},
    {"qwen", "post_processor", "{\"type\":\"BertProcessing\"}", WEIR_ERR_UNSUPPORTED,
     "post_processor: the type 'BertProcessing'"},
    {"llama3", "post_processor/processors/+", "{\"type\":\"ByteLevel\"}", WEIR_ERR_UNSUPPORTED,
     "post_processor.processors[2]: stands behind a template"},
    {"llama3", "post_processor/processors/1/single", "[]", WEIR_ERR_UNSUPPORTED,
     "'single' has not one Sequence A"},
    {"llama3", "post_processor/processors/1/special_tokens", "{}", WEIR_ERR_FORMAT,
     "a special token has no 'ids'"},
    {"llama2", "post_processor/special_tokens/<s>/ids/0", "100000", WEIR_ERR_FORMAT,
     "post_processor: an id is no token's"},
    {"qwen", "decoder", "null", WEIR_ERR_UNSUPPORTED, "decoder: is missing"},
    {"qwen", "decoder/type", "\"WordPiece\"", WEIR_ERR_UNSUPPORTED,
     "decoder: the type 'WordPiece'"},
    {"llama2", "decoder/decoders/1/type", "\"Strip\"", WEIR_ERR_UNSUPPORTED,
     "decoder.decoders[1]: only"},
    {"llama2", "decoder/decoders/0/content", "\"_\"", WEIR_ERR_UNSUPPORTED,
     "decoder.decoders[0]: replaces"},
    {"llama2", "decoder/decoders/3/stop", "1", WEIR_ERR_UNSUPPORTED, "decoder.decoders[3]: strips"},
    {"llama2", "decoder/decoders", "[]", WEIR_ERR_UNSUPPORTED, "decoder.decoders: is too short"},
    {"qwen", "model/type", "\"Unigram\"", WEIR_ERR_UNSUPPORTED, "model: the type 'Unigram'"},
    {"qwen", "model/dropout", "0.1", WEIR_ERR_UNSUPPORTED, "model.dropout: must be null"},
    {"qwen", "model/end_of_word_suffix", "\"</w>\"", WEIR_ERR_UNSUPPORTED,
     "'end_of_word_suffix' must be null or empty"},
    {"qwen", "model/unk_token", "\"<what>\"", WEIR_ERR_FORMAT, "model.unk_token: is not in"},
    {"qwen", "model/vocab", "{}", WEIR_ERR_FORMAT, "model.vocab: must be an object with tokens"},
    {"qwen", "model/vocab/!", "-1", WEIR_ERR_FORMAT, "model.vocab: '!' is not numbered from 0 to"},
    {"qwen", "model/vocab/!", "1e3", WEIR_ERR_FORMAT, "model.vocab: '!' is not numbered"},
    {"qwen", "model/vocab/!", "1", WEIR_ERR_FORMAT, "have one number"},
    {"llama2", "model/vocab/<0x41>", NULL, WEIR_ERR_UNSUPPORTED,
     "byte_fallback, but <0x41> is missing"},
    {"qwen", "model/merges", "{}", WEIR_ERR_FORMAT, "model.merges: must be a list"},
    {"qwen", "model/merges/0", "\"a b c\"", WEIR_ERR_FORMAT, "model.merges: number 0 is no pair"},
    {"qwen", "model/merges/1", "[\"a\",\"what\"]", WEIR_ERR_FORMAT,
     "model.merges: number 1 is not of the vocabulary"},
    {"qwen", "added_tokens", "{}", WEIR_ERR_FORMAT, "added_tokens: must be a list"},
    {"qwen", "added_tokens/1/lstrip", "true", WEIR_ERR_UNSUPPORTED,
     "added_tokens[1]: 'lstrip' must be false"},
    {"qwen", "added_tokens/1/single_word", "true", WEIR_ERR_UNSUPPORTED,
     "'single_word' must be false"},
    {"qwen", "added_tokens/1/rank", "true", WEIR_ERR_UNSUPPORTED,
     "added_tokens[1]: the field 'rank'"},
    {"qwen", "added_tokens/1/content", "\"\"", WEIR_ERR_UNSUPPORTED, "has not 1 to 4096 bytes"},
    {"qwen", "added_tokens/1/content", "\"<|endoftext|>\"", WEIR_ERR_UNSUPPORTED,
     "has the number 601 where tokenizers gives it 600"},
    {"qwen", "added_tokens/1/id", "604", WEIR_ERR_UNSUPPORTED,
     "'<|im_start|>' has the number 604 where tokenizers gives it 601"},
    {"qwen", "added_tokens/1/id", "\"601\"", WEIR_ERR_FORMAT, "'id' must be a number"},
    {"qwen", "added_tokens/6", "{\"id\":606,\"content\":\"\\u00e9t\\u00c5\",\"normalized\":true}",
     WEIR_ERR_UNSUPPORTED, "another added token has the same text"},
};

/* Makes one change in the tree of a file. */
static void make_change(json_t *root, const struct change *change) {
    char path[128];
    json_t *at = root;
    snprintf(path, sizeof path, "%s", change->path);
    char *rest = path, *name = strsep(&rest, "/");
    for (; rest != NULL; name = strsep(&rest, "/"))
        at = json_is_array(at) ? json_array_get(at, (size_t)atoi(name)) : json_object_get(at, name);
    json_t *value = change->value ? json_loads(change->value, JSON_DECODE_ANY, NULL) : NULL;
    EXPECT(at != NULL && (value != NULL || change->value == NULL));
    if (value == NULL)
        EXPECT_EQ_INT(json_object_del(at, name), 0);
    else if (strcmp(name, "+") == 0)
        json_array_append_new(at, value);
    else if (json_is_array(at))
        json_array_set_new(at, (size_t)atoi(name), value);
    else
        json_object_set_new(at, name, value);
}

static void test_what_is_not_exact_is_refused_by_its_path(void) {
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        char path[128], message[512];
        struct tokenizer *tokenizer = NULL;
        snprintf(path, sizeof path, FOLDER "%s.json", changes[i].family);
        json_t *root = json_load_file(path, 0, NULL);
        make_change(root, &changes[i]);
        char *text = json_dumps(root, JSON_COMPACT);
        int status = open_text(text, strlen(text), message, &tokenizer);
        free(text);
        json_decref(root);
        tokenizer_close(status == WEIR_OK ? tokenizer : NULL);
        EXPECT_STATUS(status, changes[i].status);
        EXPECT_CONTAINS(message, changes[i].message);
        if (test_has_failed()) TEST_FAIL("change %zu: %s", i, changes[i].path);
        CHECK_HELPERS();
    }
}

static void test_what_is_no_tokenizer_is_malformed(void) {
    static const char *const texts[] = {
        "", "{", "[]", "{\"a\":1,\"a\":2}", "{\"version\":\"\xff\"}", "{\"version\":\"\\u0000\"}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char message[512];
        struct tokenizer *tokenizer = NULL;
        CHECK_STATUS(open_text(texts[i], strlen(texts[i]), message, &tokenizer), WEIR_ERR_FORMAT);
        CHECK_CONTAINS(message, "t.json: ");
    }
    struct weir_error error = {0};
    const struct weir__io io = {.allocator = test_allocator(), .error = &error};
    struct tokenizer *none = NULL;
    CHECK_STATUS(tokenizer_open(&io, "tests/golden", &none), WEIR_ERR_IO);
    CHECK_CONTAINS(error.message, "tests/golden/tokenizer.json");
}

/* ---- patterns ---- */

static void test_patterns_are_taken_where_both_libraries_agree(void) {
    static const struct {
        const char *text, *why; /* NULL: taken */
    } patterns[] = {
        {"(?i:'s|'t)| ?\\p{L}+|[^\\s\\p{L}]{1,3}|\\s+(?!\\S)", NULL},
        {"[a-z\\u4e00-\\u4e01]+?|a++|\\r|(b)(?=c)|[\\-x-]|\\P{Lu}", "an escape like this"},
        {"[a-z\u4e00-\u9fff]+?|a++|\\r|(b)(?=c)|[\\-x-]|\\P{Lu}", NULL},
        {"", "1 to 4096 bytes"},
        {"a*", "may match nothing"},
        {"a|", "may match nothing"},
        {"a.b", "'.'"},
        {"a$", "'$'"},
        {"\\d", "an escape"},
        {"\\w", "an escape"},
        {"\\b", "an escape"},
        {"\\p{Greek}", "no general category"},
        {"\\pL", "without {}"},
        {"(?<=a)b", "a group '(?'"},
        {"(?>a)", "a group '(?'"},
        {"(a", "'(' without ')'"},
        {"a)", "')' without '('"},
        {"[a", "'[' without ']'"},
        {"[]a]", "begins with ']'"},
        {"[a[b]]", "a set in a set"},
        {"[a&&b]", "a set in a set"},
        {"[b-a]", "a range"},
        {"[a-c-e]", "'-' in the middle"},
        {"a**", "a repetition"},
        {"*a", "a repetition"},
        {"(?=a)*b", "a repetition"},
        {"a{,3}", "no interval"},
        {"a{3,1}", "an interval"},
        {"a{2}+", "what follows an interval"},
        {"a{1,2}?", "what follows an interval"},
        {"(?i:ss)", "ff, fi, fl, ss or st"},
        {"(?i:\u00e9)", "not ASCII's in (?i:"},
        {"(?i:[a])", "a set in (?i:"}};
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        struct weir__pool pool;
        struct pattern *pattern = NULL;
        char why[128];
        weir__pool_init(&pool, test_allocator());
        int status = pattern_new(&pool, patterns[i].text, why, &pattern);
        EXPECT_STATUS(status, patterns[i].why ? WEIR_ERR_UNSUPPORTED : WEIR_OK);
        EXPECT_CONTAINS(why, patterns[i].why ? patterns[i].why : "");
        if (status == WEIR_OK) pattern_destroy(pattern);
        weir__pool_clean_up(&pool);
        if (test_has_failed()) TEST_FAIL("pattern %s", patterns[i].text);
        CHECK_HELPERS();
    }
}

/* ---- changes at random ---- */

/* Another byte, a part twice, a part less, or a part of elsewhere. */
static size_t mutate(char *text, size_t bytes, size_t room) {
    size_t from = test_random_below(bytes), length = test_random_below(40);
    if (from + length > bytes) length = bytes - from;
    switch (test_random_below(4)) {
    case 0: text[from] = "0123456789{}[],:\"\\ntfals"[test_random_below(24)]; return bytes;
    case 1:
        if (bytes + length > room) return bytes;
        memmove(text + from + length, text + from, bytes - from);
        return bytes + length;
    case 2:
        memmove(text + from, text + from + length, bytes - from - length);
        return bytes - length;
    default: memmove(text + from, text + test_random_below(bytes - length), length); return bytes;
    }
}

static void use(struct tokenizer *tokenizer) {
    static const char text[] = "It's 12 <|im_end|> caf\u00e9 e\u0301 \xff\n  x \u2581<s>";
    struct text_encoder *encoder = NULL;
    struct text_tokens tokens;
    CHECK_OK(text_encoder_new(tokenizer, &encoder));
    EXPECT_STATUS(
        text_encode(encoder, text, sizeof text - 1, TEXT_ADD_SPECIAL | TEXT_SPANS, &tokens),
        WEIR_OK);
    for (size_t i = 0; i < tokens.count; i++) {
        struct tokenizer_token token;
        EXPECT(tokenizer_get(tokenizer, tokens.ids[i], &token));
        EXPECT(tokens.spans[i].begin <= tokens.spans[i].end && tokens.spans[i].end < sizeof text);
    }
    text_encoder_destroy(encoder);
}

static void test_a_thousand_changed_files_are_refused_or_work(void) {
    static const char *const families[] = {"qwen", "llama2", "llama3", "smollm"};
    size_t opened = 0, count = test_count(1000, 20000);
    for (size_t i = 0; i < count; i++) {
        char path[128], message[512];
        struct tokenizer *tokenizer = NULL;
        struct weir__bytes file = {.data = NULL};
        const struct weir__io io = {.allocator = test_allocator()};
        snprintf(path, sizeof path, FOLDER "%s.json", families[i % 4]);
        CHECK_OK(weir__file_read(&io, path, 1 << 20, &file));
        size_t bytes = file.count, times = 1 + test_random_below(3);
        for (size_t k = 0; k < times; k++) bytes = mutate(file.data, bytes, file.capacity);
        int status = open_text(file.data, bytes, message, &tokenizer);
        EXPECT(status == WEIR_OK || status == WEIR_ERR_FORMAT || status == WEIR_ERR_UNSUPPORTED);
        if (status == WEIR_OK) use(tokenizer), tokenizer_close(tokenizer), opened++;
        weir__bytes_release(io.allocator, &file);
        CHECK_HELPERS();
    }
    CHECK(opened > 0 && opened < count);
}

WEIR_TEST_SUITE(tokenizer_files, TEST(what_is_not_exact_is_refused_by_its_path),
                TEST(what_is_no_tokenizer_is_malformed),
                TEST(patterns_are_taken_where_both_libraries_agree),
                TEST(a_thousand_changed_files_are_refused_or_work))
