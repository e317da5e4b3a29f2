/* SPDX-License-Identifier: MIT */
/* The header of a .npy file: a parser of just the dictionaries that NumPy writes, one pass, no
 * recursion. */
#include "data/npy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAGIC_BYTES = 8, HEADER_MAX = 65535, DTYPE_MAX = 32 };

enum key { KEY_DESCR, KEY_ORDER, KEY_SHAPE, KEY_COUNT };
static const char *const key_names[KEY_COUNT] = {"descr", "fortran_order", "shape"};

/* What the steps of a parse share; `at` never passes `end`. */
struct parser {
    const struct weir__io *io;
    struct weir__array *array;
    const char *begin, *at, *end;
};

#define REFUSE(parser, status, ...)                                                                \
    weir__source_refuse((parser)->io, (parser)->array->source.path, status, __VA_ARGS__)

static int fail_here(const struct parser *p, const char *wanted) {
    return REFUSE(p, WEIR_ERR_FORMAT, "the header is not what NumPy writes: byte %d should be %s",
                  (int)(p->at - p->begin), wanted);
}

/* ---- words ---- */

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_blanks(struct parser *p) {
    while (p->at < p->end && is_blank(*p->at)) {
        p->at++;
    }
}

/* Takes `c`, after blanks, if it comes next. */
static bool take(struct parser *p, char c) {
    skip_blanks(p);
    if (p->at == p->end || *p->at != c) {
        return false;
    }
    p->at++;
    return true;
}

static bool take_word(struct parser *p, const char *word) {
    size_t length = strlen(word);
    skip_blanks(p);
    if ((size_t)(p->end - p->at) < length || memcmp(p->at, word, length) != 0) {
        return false;
    }
    p->at += length;
    return true;
}

/* A text in quotes, without escapes: neither keys nor dtypes have any. */
static bool take_text(struct parser *p, const char **text, size_t *length) {
    skip_blanks(p);
    if (p->at == p->end || (*p->at != '\'' && *p->at != '"')) {
        return false;
    }
    const char *begin = p->at + 1;
    const char *close = memchr(begin, *p->at, (size_t)(p->end - begin));
    if (!close || memchr(begin, '\\', (size_t)(close - begin))) {
        return false;
    }
    *text = begin;
    *length = (size_t)(close - begin);
    p->at = close + 1;
    return true;
}

/* ---- values ---- */

/* A dtype for a message: printable and short, whatever the file says. */
static void show(const char *text, size_t length, char shown[DTYPE_MAX + 1]) {
    size_t count = length < DTYPE_MAX ? length : DTYPE_MAX;
    for (size_t i = 0; i < count; i++) {
        shown[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    }
    shown[count] = 0;
}

static bool dtype_of(const char *text, size_t length, enum weir__number *number) {
    static const struct {
        const char *code;
        enum weir__number number;
    } known[] = {{"b1", WEIR__NUMBER_BOOL}, {"u1", WEIR__NUMBER_U8},  {"i1", WEIR__NUMBER_I8},
                 {"i2", WEIR__NUMBER_I16},  {"i4", WEIR__NUMBER_I32}, {"i8", WEIR__NUMBER_I64},
                 {"f4", WEIR__NUMBER_F32},  {"f8", WEIR__NUMBER_F64}};
    for (size_t i = 0; i < WEIR__COUNT_OF(known) && length == 3; i++) {
        if (memcmp(text + 1, known[i].code, 2) == 0) {
            *number = known[i].number;
            return true;
        }
    }
    return false;
}

static int read_dtype(struct parser *p) {
    const char *text = NULL;
    size_t length = 0;
    char shown[DTYPE_MAX + 1];
    skip_blanks(p);
    if (p->at < p->end && *p->at == '[') {
        return REFUSE(p, WEIR_ERR_UNSUPPORTED,
                      "it has a structured dtype: save each field as an array of its own");
    }
    if (!take_text(p, &text, &length)) {
        return fail_here(p, "the dtype, a text");
    }
    show(text, length, shown);
    if (length > 1 && text[1] == 'O') {
        return REFUSE(p, WEIR_ERR_UNSUPPORTED,
                      "it holds Python objects ('%s'), a pickle, which may run any code: save "
                      "numbers",
                      shown);
    }
    bool known = dtype_of(text, length, &p->array->number);
    bool byte = known && weir__number_bytes(p->array->number) == 1;
    if (known && (text[0] == '<' || (byte && (text[0] == '|' || text[0] == '>')))) {
        return WEIR_OK;
    }
    if (known && text[0] == '>') {
        return REFUSE(p, WEIR_ERR_UNSUPPORTED,
                      "its numbers are big-endian ('%s'): save a.astype('<%c%c')", shown, text[1],
                      text[2]);
    }
    return REFUSE(p, WEIR_ERR_UNSUPPORTED,
                  "dtype '%s' is not read: save a.astype('<f4'), or <f8 |u1 |i1 <i2 <i4 <i8 |b1",
                  shown);
}

static int read_order(struct parser *p) {
    if (take_word(p, "True")) {
        return REFUSE(p, WEIR_ERR_UNSUPPORTED,
                      "it is in Fortran order: save numpy.ascontiguousarray(a)");
    }
    return take_word(p, "False") ? WEIR_OK : fail_here(p, "True or False");
}

static int read_size(struct parser *p, int64_t *size) {
    int64_t value = 0;
    if (p->at == p->end || *p->at < '0' || *p->at > '9') {
        return fail_here(p, "a size, an integer >= 0");
    }
    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++) {
        int64_t digit = *p->at - '0';
        if (value > (INT64_MAX - digit) / 10) {
            return REFUSE(p, WEIR_ERR_FORMAT, "the shape has a size that overflows");
        }
        value = value * 10 + digit;
    }
    if (p->at < p->end && *p->at == 'L') { /* a long integer of Python 2 */
        p->at++;
    }
    *size = value;
    return WEIR_OK;
}

static int read_shape(struct parser *p) {
    uint32_t rank = 0;
    if (!take(p, '(')) {
        return fail_here(p, "the shape, a tuple");
    }
    while (!take(p, ')')) {
        int64_t size = 0;
        skip_blanks(p);
        int status = read_size(p, &size);
        if (status) {
            return status;
        }
        if (rank == WEIR__ARRAY_RANK_MAX) {
            return REFUSE(p, WEIR_ERR_UNSUPPORTED,
                          "it has more than the %d dimensions that Weir reads",
                          WEIR__ARRAY_RANK_MAX);
        }
        p->array->shape[rank++] = size;
        bool comma = take(p, ',');
        if (!comma && rank == 1) { /* (3) is a number, (3,) a tuple */
            return fail_here(p, "a comma");
        }
        if (!comma && !take(p, ')')) {
            return fail_here(p, "a comma or the shape's end");
        }
        if (!comma) {
            break;
        }
    }
    p->array->rank = rank;
    return WEIR_OK;
}

/* ---- the dictionary ---- */

static int read_key(struct parser *p, bool seen[KEY_COUNT], enum key *key) {
    const char *text = NULL;
    size_t length = 0;
    char shown[DTYPE_MAX + 1];
    if (!take_text(p, &text, &length)) {
        return fail_here(p, "a key, a text");
    }
    show(text, length, shown);
    for (int i = 0; i < KEY_COUNT; i++) {
        if (strlen(key_names[i]) != length || memcmp(key_names[i], text, length) != 0) {
            continue;
        }
        if (seen[i]) {
            return REFUSE(p, WEIR_ERR_FORMAT, "the header has '%s' twice", shown);
        }
        seen[i] = true;
        *key = (enum key)i;
        return take(p, ':') ? WEIR_OK : fail_here(p, "a colon");
    }
    return REFUSE(p, WEIR_ERR_FORMAT, "the header has the unknown key '%s'", shown);
}

static int read_entry(struct parser *p, bool seen[KEY_COUNT]) {
    enum key key = KEY_COUNT;
    int status = read_key(p, seen, &key);
    if (status) {
        return status;
    }
    switch (key) {
    case KEY_DESCR: return read_dtype(p);
    case KEY_ORDER: return read_order(p);
    default: return read_shape(p);
    }
}

static int read_dictionary(struct parser *p) {
    bool seen[KEY_COUNT] = {false};
    if (!take(p, '{')) {
        return fail_here(p, "a dictionary's {");
    }
    while (!take(p, '}')) {
        int status = read_entry(p, seen);
        if (status) {
            return status;
        }
        if (take(p, ',')) {
            continue;
        }
        if (!take(p, '}')) {
            return fail_here(p, "a comma or the dictionary's end");
        }
        break;
    }
    skip_blanks(p);
    if (p->at < p->end) {
        return fail_here(p, "the header's end");
    }
    for (int i = 0; i < KEY_COUNT; i++) {
        if (!seen[i]) {
            return REFUSE(p, WEIR_ERR_FORMAT, "the header has no '%s'", key_names[i]);
        }
    }
    return WEIR_OK;
}

/* ---- the file ---- */

static int check_magic(const struct weir__io *io, const struct weir__array *array,
                       const unsigned char *first, size_t bytes) {
    const char *path = array->source.path;
    if (bytes >= 2 && first[0] == 0x1f && first[1] == 0x8b) {
        return weir__source_refuse(io, path, WEIR_ERR_FORMAT,
                                   "it is compressed: unpack it by 'gunzip' first");
    }
    if (bytes >= 2 && first[0] == 'P' && first[1] == 'K') {
        return weir__source_refuse(io, path, WEIR_ERR_FORMAT,
                                   "it is a zip archive, a .npz: unpack it by 'unzip', or let its "
                                   "name end in .npz");
    }
    if (bytes < 6 || memcmp(first, "\x93NUMPY", 6) != 0) {
        return weir__source_refuse(io, path, WEIR_ERR_FORMAT,
                                   "it does not begin with \\x93NUMPY: not a .npy file");
    }
    if (bytes < MAGIC_BYTES) {
        return weir__source_refuse(io, path, WEIR_ERR_FORMAT,
                                   "%zu bytes are too few for a .npy file: it is cut", bytes);
    }
    if (first[6] < 1 || first[6] > 3 || first[7] != 0) {
        return weir__source_refuse(io, path, WEIR_ERR_UNSUPPORTED,
                                   "version %u.%u of .npy is not read, only 1.0, 2.0 and 3.0",
                                   first[6], first[7]);
    }
    return WEIR_OK;
}

/* Where the header begins, and its length, checked against the file and the limit. */
static int find_header(const struct weir__io *io, const struct weir__array *array, uint64_t *begin,
                       size_t *bytes) {
    unsigned char first[MAGIC_BYTES + 4] = {0};
    const struct weir__source *source = &array->source;
    size_t there = source->bytes < sizeof(first) ? (size_t)source->bytes : sizeof(first);
    int status = weir__source_read(source, io, 0, first, there);
    if (!status) {
        status = check_magic(io, array, first, there);
    }
    if (status) {
        return status;
    }
    size_t width = first[6] == 1 ? 2 : 4;
    if (there < MAGIC_BYTES + width) {
        return weir__source_refuse(io, source->path, WEIR_ERR_FORMAT,
                                   "%zu bytes are too few for a .npy file: it is cut", there);
    }
    uint64_t length = first[8] | (uint64_t)first[9] << 8;
    if (width == 4) {
        length |= (uint64_t)first[10] << 16 | (uint64_t)first[11] << 24;
    }
    *begin = MAGIC_BYTES + width;
    if (length > source->bytes - *begin) {
        return weir__source_refuse(io, source->path, WEIR_ERR_FORMAT,
                                   "the header has %llu byte%s, but only %llu follow its length: "
                                   "the file is cut",
                                   (unsigned long long)length, weir__s(length),
                                   (unsigned long long)(source->bytes - *begin));
    }
    if (length > HEADER_MAX) {
        return weir__source_refuse(io, source->path, WEIR_ERR_UNSUPPORTED,
                                   "the header has %llu bytes, more than the limit of %d",
                                   (unsigned long long)length, HEADER_MAX);
    }
    *bytes = (size_t)length;
    return WEIR_OK;
}

static int read_header(const struct weir__io *io, struct weir__array *array) {
    uint64_t begin = 0;
    size_t bytes = 0;
    int status = find_header(io, array, &begin, &bytes);
    if (status) {
        return status;
    }
    char *header = weir__acquire(io->allocator, bytes, 1);
    if (!header) {
        return weir__io_fail(io, ENOMEM, "read", array->source.path);
    }
    status = weir__source_read(&array->source, io, begin, header, bytes);
    if (!status) {
        struct parser parser = {io, array, header, header, header + bytes};
        status = read_dictionary(&parser);
    }
    weir__release(io->allocator, header, bytes, 1);
    array->offset = begin + bytes;
    return status;
}

int weir__npy_open(const struct weir__io *io, const char *path, struct weir__array *array) {
    return weir__array_open_by(io, path, read_header, array);
}

/* ---- writing ---- */

/* A tuple of one has a comma too. The end of the header is a newline, blanks before it fill up. */
size_t weir__npy_header(enum weir__number number, uint32_t rank, const int64_t *shape,
                        char header[WEIR__NPY_HEADER_MAX]) {
    static const char *const types[WEIR__NUMBER_COUNT] = {
        [WEIR__NUMBER_BOOL] = "|b1", [WEIR__NUMBER_U8] = "|u1",  [WEIR__NUMBER_I8] = "|i1",
        [WEIR__NUMBER_I16] = "<i2",  [WEIR__NUMBER_I32] = "<i4", [WEIR__NUMBER_I64] = "<i8",
        [WEIR__NUMBER_F32] = "<f4",  [WEIR__NUMBER_F64] = "<f8"};
    enum { BEGIN = MAGIC_BYTES + 2, UNIT = 64 };
    assert(rank <= WEIR__ARRAY_RANK_MAX && number < WEIR__NUMBER_COUNT);
    size_t used = BEGIN, capacity = WEIR__NPY_HEADER_MAX;
    used += (size_t)snprintf(header + used, capacity - used,
                             "{'descr': '%s', 'fortran_order': False, 'shape': (", types[number]);
    for (uint32_t i = 0; i < rank; i++) {
        used += (size_t)snprintf(header + used, capacity - used, "%s%" PRId64, i > 0 ? " " : "",
                                 shape[i]);
        used += (size_t)snprintf(header + used, capacity - used, "%s",
                                 rank == 1 || i + 1 < rank ? "," : "");
    }
    used += (size_t)snprintf(header + used, capacity - used, "), }");
    size_t bytes = (used + 1 + UNIT - 1) / UNIT * UNIT;
    assert(bytes <= capacity);
    memset(header + used, ' ', bytes - used);
    header[bytes - 1] = '\n';
    memcpy(header, "\x93NUMPY\1\0", MAGIC_BYTES);
    header[MAGIC_BYTES] = (char)((bytes - BEGIN) & 0xff);
    header[MAGIC_BYTES + 1] = (char)((bytes - BEGIN) >> 8);
    return bytes;
}
