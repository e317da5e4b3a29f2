/* SPDX-License-Identifier: MIT */
/*
 * Malformed .npy, IDX and token files. The text of a .npy file is its header, which gets the magic
 * of version 1 and its length before it and `zeros` bytes of data behind; that of a token file is
 * the first 12 bytes, which get the rest of the header. Raw ones, and all of IDX, are whole files.
 */
#include "io/malformed.h"

#include "data/idx.h"
#include "data/npy.h"
#include "data/tokens.h"

#include <stdio.h>
#include <string.h>

#define BAD(what, part, text, zeros) MALFORMED(what, WEIR_ERR_FORMAT, part, text, zeros)
#define NOT_READ(what, part, text, zeros) MALFORMED(what, WEIR_ERR_UNSUPPORTED, part, text, zeros)
#define RAW(what, part, text) MALFORMED_RAW(what, WEIR_ERR_FORMAT, part, text)

/* ---- .npy ---- */

#define HEADER(descr, order, shape)                                                                \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }\n"
#define SHAPE(shape) HEADER("'|u1'", "False", shape)
#define DTYPE(descr) HEADER(descr, "False", "(3,)")
#define SIZE "should be a size, an integer >= 0"

static const struct malformed npy[] = {
    /* the beginning */
    RAW("an empty file", "does not begin with \\x93NUMPY", ""),
    RAW("a magic cut short", "does not begin with \\x93NUMPY", "\223NUMP"),
    RAW("a magic alone", "6 bytes are too few for a .npy file: it is cut", "\223NUMPY"),
    RAW("a length cut short", "9 bytes are too few for a .npy file: it is cut", "\223NUMPY\1\0\2"),
    RAW("a long length cut short", "11 bytes are too few", "\223NUMPY\2\0\2\0\0"),
    RAW("a header cut short", "the header has 60 bytes, but only 2 follow its length",
        "\223NUMPY\1\0\74\0{}"),
    RAW("a header of 2^32 - 1 bytes", "the header has 4294967295 bytes, but only 2",
        "\223NUMPY\3\0\377\377\377\377{}"),
    RAW("a header of nothing", "byte 0 should be a dictionary's {", "\223NUMPY\1\0\0\0\1\2\3"),
    RAW("a magic of other letters", "does not begin with \\x93NUMPY", "\223numpy\1\0\2\0{}"),
    RAW("a magic as text", "does not begin with \\x93NUMPY", "\302\223NUMPY\1\0\2\0{}"),
    RAW("an archive", "it is a zip archive, a .npz: unpack it", "PK\3\4\24\0\0\0\0\0arr_0.npy"),
    RAW("a compressed file", "it is compressed: unpack it", "\37\213\10\0\0\0\0\0\0\3"),
    RAW("a pickle", "does not begin with \\x93NUMPY", "\200\4\225\20\0\0\0\0\0\0\0\214\5numpy"),
    MALFORMED_RAW("version 0", WEIR_ERR_UNSUPPORTED, "version 0.0 of .npy is not read",
                  "\223NUMPY\0\0\2\0{}"),
    MALFORMED_RAW("version 1.1", WEIR_ERR_UNSUPPORTED, "version 1.1 of .npy is not read",
                  "\223NUMPY\1\1\2\0{}"),
    MALFORMED_RAW("version 4", WEIR_ERR_UNSUPPORTED, "version 4.0 of .npy is not read",
                  "\223NUMPY\4\0\2\0\0\0{}"),
    MALFORMED_RAW("version 255", WEIR_ERR_UNSUPPORTED, "version 255.255 of .npy is not read",
                  "\223NUMPY\377\377\2\0{}"),

    /* the dictionary */
    BAD("a list for a header", "byte 0 should be a dictionary's {", "[1, 2]", 3),
    BAD("code for a header", "byte 0 should be a dictionary's {", "__import__('os').abort()", 3),
    BAD("a comment first", "byte 0 should be a dictionary's {", "#\n" SHAPE("(3,)"), 3),
    BAD("a dictionary that does not end", "should be a key", "{'descr': '|u1', ", 3),
    BAD("nothing in the dictionary", "the header has no 'descr'", "{}", 0),
    BAD("no dtype", "has no 'descr'", "{'fortran_order': False, 'shape': (3,)}", 3),
    BAD("no order", "has no 'fortran_order'", "{'descr': '|u1', 'shape': (3,)}", 3),
    BAD("no shape", "has no 'shape'", "{'descr': '|u1', 'fortran_order': False}", 3),
    BAD("a dtype twice", "has 'descr' twice", "{'descr': '|u1', 'descr': '|u1'}", 3),
    BAD("a shape twice", "has 'shape' twice", "{'shape': (3,), \"shape\": (3,)}", 3),
    BAD("an unknown key", "has the unknown key 'extra'", "{'extra': 1}", 3),
    BAD("a key of other letters", "has the unknown key 'Shape'", "{'Shape': (3,)}", 3),
    BAD("an empty key", "has the unknown key ''", "{'': 1}", 3),
    BAD("a key with a zero", "has the unknown key 'shape?'", "{'shape\0': (3,)}", 3),
    BAD("a key with an escape", "should be a key, a text", "{'sh\\141pe': (3,)}", 3),
    BAD("a key that does not end", "should be a key, a text", "{'shape: (3,)}", 3),
    BAD("a key in both quotes", "should be a key, a text", "{'shape\": (3,)}", 3),
    BAD("a key without quotes", "should be a key, a text", "{shape: (3,)}", 3),
    BAD("bytes for a key", "should be a key, a text", "{b'shape': (3,)}", 3),
    BAD("no colon", "should be a colon", "{'shape' (3,)}", 3),
    BAD("no comma", "should be a comma or the dictionary's end", "{'shape': (3,) 'descr': 1}", 3),
    BAD("two commas", "should be a key, a text", "{'shape': (3,),, 'descr': '|u1'}", 3),
    BAD("text behind", "should be the header's end", SHAPE("(3,)") "x", 3),
    BAD("a dictionary behind", "should be the header's end", SHAPE("(3,)") "{}", 3),
    BAD("a zero behind", "should be the header's end", SHAPE("(3,)") "\0", 3),
    BAD("a zero for a space", "should be a key, a text", "{\0'shape': (3,)}", 3),

    /* dtypes and orders */
    BAD("a dtype that is a number", "should be the dtype, a text", DTYPE("4"), 3),
    BAD("a dtype that is None", "should be the dtype, a text", DTYPE("None"), 3),
    NOT_READ("a structured dtype", "it has a structured dtype", DTYPE("[('a', '<f4')]"), 3),
    NOT_READ("Python objects", "it holds Python objects ('|O'), a pickle", DTYPE("'|O'"), 3),
    NOT_READ("Python objects of a width", "it holds Python objects", DTYPE("'<O8'"), 3),
    NOT_READ("big-endian numbers", "its numbers are big-endian ('>i4')", DTYPE("'>i4'"), 3),
    NOT_READ("complex numbers", "dtype '<c8' is not read", DTYPE("'<c8'"), 3),
    NOT_READ("texts", "dtype '<U5' is not read", DTYPE("'<U5'"), 3),
    NOT_READ("dates", "dtype '<M8[ns]' is not read", DTYPE("'<M8[ns]'"), 3),
    NOT_READ("unsigned numbers of two bytes", "dtype '<u2' is not read", DTYPE("'<u2'"), 6),
    NOT_READ("a dtype without its order", "dtype 'f4' is not read", DTYPE("'f4'"), 12),
    NOT_READ("a dtype by its name", "dtype 'float32' is not read", DTYPE("'float32'"), 12),
    NOT_READ("an empty dtype", "dtype '' is not read", DTYPE("''"), 3),
    NOT_READ("a dtype of a terminal's commands", "dtype '?[2J' is not read", DTYPE("'\033[2J'"), 3),
    NOT_READ("Fortran order", "it is in Fortran order", HEADER("'|u1'", "True", "(3,)"), 3),
    BAD("an order that is a number", "should be True or False", HEADER("'|u1'", "0", "(3,)"), 3),
    BAD("an order in small letters", "should be True or False", HEADER("'|u1'", "false", "(3,)"),
        3),
    BAD("an order that goes on", "should be a comma", HEADER("'|u1'", "Falsey", "(3,)"), 3),

    /* shapes */
    BAD("a shape that is a number", "should be the shape, a tuple", SHAPE("3"), 3),
    BAD("a shape that is a list", "should be the shape, a tuple", SHAPE("[3]"), 3),
    BAD("a number in brackets", "should be a comma", SHAPE("(3)"), 3),
    BAD("a shape of a comma", SIZE, SHAPE("(,)"), 0),
    BAD("a shape of two commas", SIZE, SHAPE("(3,,)"), 3),
    BAD("a shape that does not end", "should be", "{'shape': (3,", 3),
    BAD("a negative size", SIZE, SHAPE("(-3,)"), 3),
    BAD("two negative sizes", SIZE, SHAPE("(-1, -3)"), 3),
    BAD("a size with a plus", SIZE, SHAPE("(+3,)"), 3),
    BAD("a size with a fraction", "should be a comma", SHAPE("(3.0,)"), 3),
    BAD("a size with an exponent", "should be a comma", SHAPE("(1e999,)"), 3),
    BAD("a hexadecimal size", "should be a comma", SHAPE("(0x3,)"), 3),
    BAD("a size that is None", SIZE, SHAPE("(None,)"), 3),
    BAD("a size that is a text", SIZE, SHAPE("('3',)"), 3),
    BAD("a shape in a shape", SIZE, SHAPE("((3,),)"), 3),
    BAD("a sum", "should be a comma", SHAPE("(1+2,)"), 3),
    BAD("a size of 2^63", "a size that overflows", SHAPE("(9223372036854775808,)"), 3),
    BAD("a size of forty digits", "a size that overflows",
        SHAPE("(1000000000000000000000000000000000000001,)"), 3),
    BAD("a product of 2^64", "the size of u8 [4294967296, 4294967296] overflows",
        SHAPE("(4294967296, 4294967296)"), 0),
    BAD("a product that wraps to 1", "the size of u8 [274177, 67280421310721] overflows",
        SHAPE("(274177, 67280421310721)"), 1),
    BAD("bytes that wrap to 8", "the size of f64 [2305843009213693953] overflows",
        HEADER("'<f8'", "False", "(2305843009213693953,)"), 8),
    BAD("a product that overflows before its zero", "overflows",
        SHAPE("(9223372036854775807, 4, 0)"), 0),
    NOT_READ("nine dimensions", "more than the 8 dimensions", SHAPE("(1,1,1,1,1,1,1,1,3)"), 3),
    BAD("data cut by a byte", "u8 [3] has 3 bytes, but 2 follow the header: the file is cut",
        SHAPE("(3,)"), 2),
    BAD("no data", "u8 [3] has 3 bytes, but 0 follow the header: the file is cut", SHAPE("(3,)"),
        0),
    BAD("a byte too much", "u8 [3] has 3 bytes, but 4 follow the header: the file is longer",
        SHAPE("(3,)"), 4),
    BAD("elements for bytes", "f64 [3] has 24 bytes, but 3 follow",
        HEADER("'<f8'", "False", "(3,)"), 3),
    BAD("a byte and nothing to hold", "u8 [0] has 0 bytes, but 1 follow", SHAPE("(0,)"), 1),
};

static const struct malformed npy_whole =
    MALFORMED("a sound file", WEIR_OK, "", HEADER("'<i2'", "False", "(2, 1)"), 4);

static size_t write_npy(const struct malformed *malformed, char *bytes) {
    memcpy(bytes, "\223NUMPY\1", 8);
    bytes[8] = (char)(malformed->text_bytes & 0xFF);
    bytes[9] = (char)(malformed->text_bytes >> 8 & 0xFF);
    memcpy(bytes + 10, malformed->text, malformed->text_bytes);
    memset(bytes + 10 + malformed->text_bytes, 0, malformed->zeros);
    return 10 + malformed->text_bytes + malformed->zeros;
}

/* ---- IDX ---- */

static const struct malformed idx[] = {
    RAW("an empty file", "0 bytes are too few for an IDX file", ""),
    RAW("a magic cut short", "3 bytes are too few for an IDX file", "\0\0\10"),
    RAW("a magic alone", "4 bytes are too few for a header of 1 dimension,", "\0\0\10\1"),
    RAW("a first byte that is not zero", "begins with the bytes 01 00", "\1\0\10\1\0\0\0\0"),
    RAW("a second byte that is not zero", "begins with the bytes 00 01", "\0\1\10\1\0\0\0\0"),
    RAW("a magic in the other byte order", "begins with the bytes 01 08", "\1\10\0\0\1\0\0\0\3"),
    RAW("a compressed file", "it is compressed: unpack it", "\37\213\10\0\0\0\0\0\0\3"),
    RAW("type 0", "type 0x00 is not one of IDX", "\0\0\0\1\0\0\0\0"),
    RAW("type 10", "type 0x0a is not one of IDX", "\0\0\12\1\0\0\0\0"),
    RAW("type 15", "type 0x0f is not one of IDX", "\0\0\17\1\0\0\0\0"),
    RAW("type 255", "type 0xff is not one of IDX", "\0\0\377\1\0\0\0\0"),
    RAW("no dimension", "it has no dimension", "\0\0\10\0\1"),
    MALFORMED_RAW("nine dimensions", WEIR_ERR_UNSUPPORTED, "9 dimensions are more than the 8",
                  "\0\0\10\11\0\0\0\1"),
    MALFORMED_RAW("255 dimensions", WEIR_ERR_UNSUPPORTED, "255 dimensions are more than the 8",
                  "\0\0\10\377"),
    RAW("sizes cut short", "11 bytes are too few for a header of 2 dimensions, 12",
        "\0\0\10\2\0\0\0\1\0\0\0"),
    RAW("data cut by a byte", "u8 [3] has 3 bytes, but 2 follow", "\0\0\10\1\0\0\0\3ab"),
    RAW("no data", "u8 [3] has 3 bytes, but 0 follow the header: the file is cut",
        "\0\0\10\1\0\0\0\3"),
    RAW("a byte too much", "u8 [3] has 3 bytes, but 4 follow the header: the file is longer",
        "\0\0\10\1\0\0\0\3abcd"),
    RAW("elements for bytes", "f64 [2] has 16 bytes, but 2 follow", "\0\0\16\1\0\0\0\2ab"),
    RAW("a size in the other byte order", "u8 [50331648] has 50331648 bytes, but 3 follow",
        "\0\0\10\1\3\0\0\0abc"),
    RAW("a size of 2^32 - 1", "u8 [4294967295] has 4294967295 bytes", "\0\0\10\1\377\377\377\377"),
    RAW("a size with the sign bit", "u8 [2147483648] has 2147483648 bytes", "\0\0\10\1\200\0\0\0"),
    RAW("a product of 2^64", "overflows", "\0\0\10\3\200\0\0\0\200\0\0\0\0\0\0\4"),
    RAW("bytes that overflow", "the size of f64 [4294967295, 4294967295] overflows",
        "\0\0\16\2\377\377\377\377\377\377\377\377"),
    RAW("a product that overflows before its zero", "overflows",
        "\0\0\10\4\377\377\377\377\377\377\377\377\377\377\377\377\0\0\0\0"),
    RAW("a byte and nothing to hold", "u8 [0] has 0 bytes, but 1 follow", "\0\0\10\1\0\0\0\0a"),
};

static const struct malformed idx_whole =
    MALFORMED_RAW("a sound file", WEIR_OK, "", "\0\0\13\2\0\0\0\2\0\0\0\1abcd");

/* ---- tokens ---- */

#define GPT2 "\210\3304\1"
#define LLAMA "\241\3314\1"

static const struct malformed tokens[] = {
    RAW("an empty file", "0 bytes are too few for a token file, whose header has 1024", ""),
    RAW("a header cut short", "12 bytes are too few", GPT2 "\1\0\0\0\0\0\0\0"),
    BAD("no magic", "its first number is 0, but a token file", "\0\0\0\0\1\0\0\0\2\0\0\0", 4),
    BAD("a magic in the other byte order", "its first number is 2295870465",
        "\1\64\330\210\1\0\0\0\2\0\0\0", 4),
    BAD("tokens without a header", "its first number is 65536", "\0\0\1\0\2\0\3\0\4\0\5\0", 4),
    BAD("a text", "but a token file of llm.c begins with", "Once upon a ", 4),
    NOT_READ("version 0", "version 0 of token files", GPT2 "\0\0\0\0\2\0\0\0", 4),
    NOT_READ("the other magic's version", "version 7 of token files with magic 20240520",
             GPT2 "\7\0\0\0\2\0\0\0", 4),
    NOT_READ("the other version's magic", "version 1 of token files with magic 20240801",
             LLAMA "\1\0\0\0\2\0\0\0", 8),
    NOT_READ("version 2^32 - 1", "version 4294967295 of token files",
             GPT2 "\377\377\377\377\2\0\0\0", 4),
    BAD("a negative count", "the header counts -1 tokens", GPT2 "\1\0\0\0\377\377\377\377", 4),
    BAD("the most negative count", "the header counts -2147483648 tokens",
        GPT2 "\1\0\0\0\0\0\0\200", 4),
    BAD("a count of 2^31 - 1", "2147483647 tokens have 4294967294 bytes, but 4 follow",
        GPT2 "\1\0\0\0\377\377\377\177", 4),
    BAD("a count whose bytes pass 2^32", "2147483647 tokens have 8589934588 bytes, but 4 follow",
        LLAMA "\7\0\0\0\377\377\377\177", 4),
    BAD("a count in the other byte order", "33554432 tokens have 67108864 bytes, but 4 follow",
        GPT2 "\1\0\0\0\0\0\0\2", 4),
    BAD("data cut by a byte", "2 tokens have 4 bytes, but 3 follow the header: the file is cut",
        GPT2 "\1\0\0\0\2\0\0\0", 3),
    BAD("half a token too much", "2 tokens have 4 bytes, but 5 follow the header: the file is",
        GPT2 "\1\0\0\0\2\0\0\0", 5),
    BAD("tokens of half the width", "2 tokens have 8 bytes, but 4 follow", LLAMA "\7\0\0\0\2\0\0\0",
        4),
    BAD("bytes and no tokens", "0 tokens have 0 bytes, but 2 follow", GPT2 "\1\0\0\0\0\0\0\0", 2),
};

static const struct malformed tokens_whole =
    MALFORMED("a sound file", WEIR_OK, "", GPT2 "\1\0\0\0\2\0\0\0", 4);

static size_t write_tokens(const struct malformed *malformed, char *bytes) {
    size_t count = WEIR__TOKENS_HEADER_BYTES + malformed->zeros;
    memset(bytes, 0, count);
    memcpy(bytes, malformed->text, malformed->text_bytes);
    return count;
}

/* ---- reading ---- */

static int read_array(const struct weir__io *io, const char *path, char *message, size_t capacity,
                      int (*open)(const struct weir__io *io, const char *path,
                                  struct weir__array *array)) {
    struct weir_error error = {0};
    struct weir__io own = {io->allocator, io->calls, &error};
    struct weir__array array = {.rank = 0};
    int status = open(&own, path, &array);
    weir__array_close(&array);
    snprintf(message, capacity, "%s", error.message);
    return status;
}

static int read_npy(const struct weir__io *io, const char *path, char *message, size_t capacity) {
    return read_array(io, path, message, capacity, weir__npy_open);
}

static int read_idx(const struct weir__io *io, const char *path, char *message, size_t capacity) {
    return read_array(io, path, message, capacity, weir__idx_open);
}

static int read_tokens(const struct weir__io *io, const char *path, char *message,
                       size_t capacity) {
    struct weir_error error = {0};
    struct weir__io own = {io->allocator, io->calls, &error};
    struct weir__tokens file = {.count = 0};
    int status = weir__tokens_open(&own, path, &file);
    weir__tokens_close(&file);
    snprintf(message, capacity, "%s", error.message);
    return status;
}

const struct malformed_set malformed_npy = {"npy",     npy,      sizeof npy / sizeof npy[0],
                                            write_npy, read_npy, &npy_whole};
const struct malformed_set malformed_idx = {"idx", idx,      sizeof idx / sizeof idx[0],
                                            NULL,  read_idx, &idx_whole};
const struct malformed_set malformed_tokens = {
    "tokens", tokens, sizeof tokens / sizeof tokens[0], write_tokens, read_tokens, &tokens_whole};
