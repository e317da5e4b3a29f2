/* SPDX-License-Identifier: MIT */
/* Opening a tokenizer, and what it says of its tokens. */
#include "text/tokenizer_inside.h"
#include "text/unicode.h"
#include "text/utf8.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { FILE_BYTES_MAX = 256 << 20 };

static bool check_root(struct tokenizer_reading *r) {
    static const char *const nulls[] = {"truncation", "padding"};
    const char *version = json_string_value(json_object_get(r->root, "version"));
    if (!tokenizer_check_keys(r, "", r->root,
                              "version truncation padding added_tokens normalizer pre_tokenizer "
                              "model post_processor decoder"))
        return false;
    if (version == NULL || strcmp(version, "1.0") != 0)
        return tokenizer_refuse(r, "version", "must be 1.0");
    for (size_t i = 0; i < WEIR__COUNT_OF(nulls); i++) {
        const json_t *value = json_object_get(r->root, nulls[i]);
        if (value != NULL && !json_is_null(value))
            return tokenizer_refuse(r, nulls[i], "must be null");
    }
    return true;
}

static bool read_parts(struct tokenizer_reading *r) {
    uint8_t *marks = weir__pool_take(&r->tokenizer->pool, UTF8_LIMIT, 1);
    if (marks == NULL) return tokenizer_no_memory(r);
    unicode_fill_marks(marks);
    r->tokenizer->marks = marks;
    return check_root(r) && tokenizer_read_normalizer(r) && tokenizer_read_splitter(r) &&
           tokenizer_read_post(r) && tokenizer_read_decoder(r) && tokenizer_read_model(r) &&
           tokenizer_read_added(r) && tokenizer_make_pieces(r);
}

static int parse(struct tokenizer_reading *r) {
    struct weir__bytes bytes = {.data = NULL};
    json_error_t error;
    int status = weir__file_read(&r->io, r->path, FILE_BYTES_MAX, &bytes);
    if (status != WEIR_OK) return status;
    r->root = json_loadb(bytes.data, bytes.count, JSON_REJECT_DUPLICATES, &error);
    weir__bytes_release(r->io.allocator, &bytes);
    if (r->root != NULL) return WEIR_OK;
    if (json_error_code(&error) == json_error_out_of_memory)
        tokenizer_no_memory(r);
    else
        tokenizer_malformed(r, "", "line %d: %.160s", error.line, error.text);
    return r->status;
}

/* A folder's file. */
static int find_file(const struct weir__io *io, const char *path, char file[PATH_MAX]) {
    struct stat facts;
    bool folder = weir__io_calls_of(io)->stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
    int length = snprintf(file, PATH_MAX, "%s%s", path, folder ? "/tokenizer.json" : "");
    if (length < PATH_MAX) return WEIR_OK;
    return weir__fail(io->error, WEIR_ERR_IO, "the path of the tokenizer is too long");
}

int tokenizer_open(const struct weir__io *io, const char *path, struct tokenizer **tokenizer) {
    char file[PATH_MAX];
    struct tokenizer_reading r = {.path = file, .io = *io};
    int status = find_file(io, path, file);
    if (status != WEIR_OK) return status;
    status = parse(&r);
    if (status != WEIR_OK) return status;
    r.tokenizer = weir__acquire(io->allocator, 1, sizeof *r.tokenizer);
    if (r.tokenizer == NULL) {
        json_decref(r.root);
        tokenizer_no_memory(&r);
        return r.status;
    }
    weir__pool_init(&r.tokenizer->pool, io->allocator);
    weir__name_set_init(&r.tokenizer->names, &r.tokenizer->pool);
    bool good = read_parts(&r);
    json_decref(r.root);
    if (good)
        *tokenizer = r.tokenizer;
    else
        tokenizer_close(r.tokenizer);
    assert(good == (r.status == WEIR_OK));
    return r.status;
}

void tokenizer_close(struct tokenizer *tokenizer) {
    if (tokenizer == NULL) return;
    const struct weir_allocator *allocator = tokenizer->pool.allocator;
    for (uint32_t i = 0; i < tokenizer->step_count; i++)
        pattern_destroy(tokenizer->steps[i].pattern);
    weir__pool_clean_up(&tokenizer->pool);
    weir__release(allocator, tokenizer, 1, sizeof *tokenizer);
}

uint32_t tokenizer_size(const struct tokenizer *tokenizer) {
    return tokenizer->size;
}

uint32_t tokenizer_find(const struct tokenizer *tokenizer, const char *text) {
    _Static_assert(TOKENIZER_NONE == WEIR__NO_NAME, "no token is no name");
    return weir__name_set_find(&tokenizer->names, text);
}

bool tokenizer_get(const struct tokenizer *tokenizer, uint32_t id, struct tokenizer_token *token) {
    if (id >= tokenizer->size || tokenizer->tokens[id].text == NULL) return false;
    const struct vocabulary_token *known = &tokenizer->tokens[id];
    *token = (struct tokenizer_token){known->text, known->piece, known->piece_bytes, known->added,
                                      known->special};
    return true;
}
