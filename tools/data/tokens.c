/* SPDX-License-Identifier: MIT */
/* llm.c's token files: a header to check, and integers to widen. */
#include "data/tokens.h"

#include <string.h>

#define PIECE_BYTES 16384u

static const struct {
    uint32_t magic, version, token_bytes;
} forms[] = {{20240520, 1, 2}, {20240801, 7, 4}};

static uint32_t number_at(const unsigned char *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

bool weir__tokens_magic(const unsigned char first[4]) {
    return number_at(first) == forms[0].magic || number_at(first) == forms[1].magic;
}

static int read_form(const struct weir__io *io, struct weir__tokens *tokens,
                     const unsigned char *header) {
    const char *path = tokens->source.path;
    uint32_t magic = number_at(header), version = number_at(header + 4);
    for (size_t i = 0; i < WEIR__COUNT_OF(forms); i++) {
        if (forms[i].magic != magic) {
            continue;
        }
        if (forms[i].version != version) {
            return weir__source_refuse(io, path, WEIR_ERR_UNSUPPORTED,
                                       "version %u of token files with magic %u is not read, only "
                                       "%u",
                                       version, magic, forms[i].version);
        }
        tokens->token_bytes = forms[i].token_bytes;
        return WEIR_OK;
    }
    return weir__source_refuse(io, path, WEIR_ERR_FORMAT,
                               "its first number is %u, but a token file of llm.c begins with %u "
                               "or %u: give it another name than .bin to read it as bytes",
                               magic, forms[0].magic, forms[1].magic);
}

static int read_header(const struct weir__io *io, struct weir__tokens *tokens) {
    unsigned char header[12];
    const struct weir__source *source = &tokens->source;
    if (source->bytes < WEIR__TOKENS_HEADER_BYTES) {
        return weir__source_refuse(io, source->path, WEIR_ERR_FORMAT,
                                   "%llu byte%s too few for a token file, whose header has %u",
                                   (unsigned long long)source->bytes, weir__s_are(source->bytes),
                                   WEIR__TOKENS_HEADER_BYTES);
    }
    int status = weir__source_read(source, io, 0, header, sizeof(header));
    if (!status) {
        status = read_form(io, tokens, header);
    }
    if (status) {
        return status;
    }
    uint32_t count = number_at(header + 8);
    uint64_t there = source->bytes - WEIR__TOKENS_HEADER_BYTES;
    if (count > INT32_MAX) {
        return weir__source_refuse(io, source->path, WEIR_ERR_FORMAT,
                                   "the header counts %d tokens, a negative number",
                                   (int)((int64_t)count - ((int64_t)UINT32_MAX + 1)));
    }
    uint64_t bytes = (uint64_t)count * tokens->token_bytes; /* at most 2^33 */
    if (bytes != there) {
        return weir__source_refuse(io, source->path, WEIR_ERR_FORMAT,
                                   "%u token%s %llu bytes, but %llu follow the header: the "
                                   "file is %s",
                                   count, count == 1 ? " has" : "s have", (unsigned long long)bytes,
                                   (unsigned long long)there,
                                   there < bytes ? "cut" : "longer than its tokens");
    }
    tokens->count = count;
    return WEIR_OK;
}

int weir__tokens_open(const struct weir__io *io, const char *path, struct weir__tokens *tokens) {
    struct weir__tokens made = {.token_bytes = 0};
    int status = weir__source_open(io, path, &made.source);
    if (status) {
        return status;
    }
    status = read_header(io, &made);
    if (status) {
        weir__tokens_close(&made);
        return status;
    }
    *tokens = made;
    return WEIR_OK;
}

void weir__tokens_close(struct weir__tokens *tokens) {
    weir__source_close(&tokens->source);
    *tokens = (struct weir__tokens){.token_bytes = 0};
}

int weir__tokens_read(const struct weir__tokens *tokens, const struct weir__io *io, uint64_t first,
                      uint64_t count, int64_t *out) {
    unsigned char piece[PIECE_BYTES];
    size_t width = tokens->token_bytes;
    assert(first <= tokens->count && count <= tokens->count - first);
    while (count > 0) {
        size_t some = count < PIECE_BYTES / width ? (size_t)count : PIECE_BYTES / width;
        uint64_t offset = WEIR__TOKENS_HEADER_BYTES + first * width;
        int status = weir__source_read(&tokens->source, io, offset, piece, some * width);
        if (status) {
            return status;
        }
        for (size_t i = 0; i < some; i++) {
            const unsigned char *at = piece + i * width;
            *out++ = width == 2 ? at[0] | (int64_t)at[1] << 8 : (int64_t)number_at(at);
        }
        first += some;
        count -= some;
    }
    return WEIR_OK;
}
