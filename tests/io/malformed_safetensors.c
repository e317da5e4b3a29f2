/* SPDX-License-Identifier: MIT */
/*
 * Malformed safetensors files. The length of the header is put before the text, and a ' in it reads
 * as a ", so that headers can be read here; `zeros` is the buffer behind it. Raw ones are the whole
 * file.
 */
#include "io/safetensors.h"
#include "io/malformed.h"

#include <stdio.h>
#include <string.h>

#define BAD(what, part, text, zeros) MALFORMED(what, WEIR_ERR_FORMAT, part, text, zeros)
#define RAW(what, part, text) MALFORMED_RAW(what, WEIR_ERR_FORMAT, part, text)
#define T(name, dtype, shape, offsets)                                                             \
    "'" name "':{'dtype':" dtype ",'shape':" shape ",'data_offsets':" offsets "}"
#define ONE(dtype, shape, offsets) "{" T("x", dtype, shape, offsets) "}"
#define X "{" T("x", "'U8'", "[1]", "[0,1]")

#define NOT_BEGUN "the header does not begin with '{': not a safetensors file"
#define NOT_UTF8 "the header is not UTF-8"
#define SIZE_0 "tensor 'x' has a shape whose size 0 is no integer >= 0 below 2^63"
#define OFFSETS "tensor 'x' has data_offsets that are not two integers >= 0 below 2^63"
#define OVERFLOWS ", whose size in bytes overflows"

static const struct malformed list[] = {
    /* the length */
    RAW("an empty file", ": 0 bytes are too few", ""),
    RAW("a byte", ": 1 byte is too few", "{"),
    RAW("a length cut short", ": 7 bytes are too few", "\2\0\0\0\0\0\0"),
    RAW("a length of zero", NOT_BEGUN, "\0\0\0\0\0\0\0\0"),
    RAW("a length of zero before a header", NOT_BEGUN, "\0\0\0\0\0\0\0\0{}"),
    RAW("a length and nothing", "has 2 bytes, but only 0 follow its length: the file is cut",
        "\2\0\0\0\0\0\0\0"),
    RAW("a header cut short", "has 3 bytes, but only 2 follow", "\3\0\0\0\0\0\0\0{}"),
    RAW("a length that counts itself", "has 10 bytes, but only 2 follow", "\12\0\0\0\0\0\0\0{}"),
    RAW("a length inside the header", "not JSON, at byte 1: a string is missing",
        "\1\0\0\0\0\0\0\0{}"),
    RAW("a length beyond the limit", "has 100000001 bytes, more than the limit of 100000000",
        "\1\341\365\5\0\0\0\0{}"),
    RAW("a length of 2^31", "has 2147483648 bytes, more", "\0\0\0\200\0\0\0\0{}"),
    RAW("a length of 2^32 + 2", "has 4294967298 bytes, more", "\2\0\0\0\1\0\0\0{}"),
    RAW("a length of 2^63", "has 9223372036854775808 bytes, more", "\0\0\0\0\0\0\0\200{}"),
    RAW("a length that wraps with its own", "has 18446744073709551608 bytes, more",
        "\370\377\377\377\377\377\377\377{}"),
    RAW("a length of 2^64 - 1", "has 18446744073709551615 bytes, more",
        "\377\377\377\377\377\377\377\377{}"),
    RAW("a length in the other byte order", "has 144115188075855872 bytes, more",
        "\0\0\0\0\0\0\0\2{}"),
    RAW("a length of four bytes", "bytes, more than the limit", "\6\0\0\0{}    "),
    RAW("a header without its length", "it is text: give", "{\"x\":{\"dtype\":\"U8\"}}"),
    RAW("a zip archive", "it is one of torch.save: save the weights by safetensors.torch.save_file",
        "PK\3\4\0\0\10\10\0\0\0\0\0\0archive/data"),
    RAW("a pickle", "it is one of torch.save", "\x80\2}q\0(X\4\0\0\0"),
    RAW("a GGUF file", "it is a GGUF file, which is not read", "GGUF\0\0\0\0\3\0\0\0"),
    RAW("a NumPy array", "it is a NumPy array: ", "\x93NUMPY\1\0v\0{'descr'"),
    RAW("an archive of gzip", "it is compressed by gzip: unpack it", "\37\213\10\0\0\0\0\0\0\3"),
    RAW("a pointer", "'git lfs pull'", "version https://git-lfs.github.com/spec/v1\noid"),
    RAW("a text",
        "not a safetensors file: it is text: ", "Weights of the model,\nr\303\251sum\303\251.\n"),

    /* where it begins */
    BAD("a header of a space first", NOT_BEGUN, " {}", 0),
    BAD("a list for a header", NOT_BEGUN, "[]", 0),
    BAD("a text for a header", NOT_BEGUN, "'x'", 0),
    BAD("null for a header", NOT_BEGUN, "null", 0),
    BAD("a number for a header", NOT_BEGUN, "1e999", 0),
    BAD("a byte order mark", NOT_BEGUN, "\357\273\277{}", 0),
    BAD("a comment first", NOT_BEGUN, "/**/{}", 0),
    BAD("zeros for a header", NOT_BEGUN, "\0\0\0\0", 0),
    BAD("UTF-16", "not JSON, at byte 1: a string is missing", "{\0}\0", 0),

    /* UTF-8 */
    BAD("a byte of 255", NOT_UTF8, "{'\377':1}", 0),
    BAD("a continuation alone", NOT_UTF8, "{'\200':1}", 0),
    BAD("Latin-1", NOT_UTF8, "{'\351t\351':1}", 0),
    BAD("an overlong slash", NOT_UTF8, "{'\300\257':1}", 0),
    BAD("an overlong zero", NOT_UTF8, "{'\300\200':1}", 0),
    BAD("an overlong sequence of three", NOT_UTF8, "{'\340\200\200':1}", 0),
    BAD("an overlong sequence of four", NOT_UTF8, "{'\360\200\200\200':1}", 0),
    BAD("a surrogate", NOT_UTF8, "{'\355\240\200':1}", 0),
    BAD("beyond Unicode", NOT_UTF8, "{'\364\220\200\200':1}", 0),
    BAD("a sequence of five", NOT_UTF8, "{'\370\200\200\200\200':1}", 0),
    BAD("a sequence cut by the header's end", NOT_UTF8, "{'\303", 0),
    BAD("a bad byte behind the object", NOT_UTF8, "{}\303", 0),

    /* JSON */
    BAD("an object that does not end", "at byte 1: a string is missing", "{", 0),
    BAD("a tensor that does not end", "',' or '}' is missing", "{'x':{'dtype':'U8'", 0),
    BAD("a header that does not end", "',' or '}' is missing", X, 1),
    BAD("a shape that does not end", "a value is missing", "{'x':{'shape':[1,", 0),
    BAD("a string that does not end", "a string does not end", "{'x", 0),
    BAD("a comma at the end", "a string is missing", X ",}", 1),
    BAD("a comma at an entry's end", "a string is missing", "{'x':{'dtype':'U8',}}", 0),
    BAD("a comma at a shape's end", "at byte 17: a value is missing", "{'x':{'shape':[1,]}}", 0),
    BAD("a comma first", "a string is missing", "{,}", 0),
    BAD("two commas", "a string is missing", X ",," T("y", "'U8'", "[0]", "[1,1]") "}", 1),
    BAD("no comma", "',' or '}' is missing", X T("y", "'U8'", "[0]", "[1,1]") "}", 1),
    BAD("no colon", "':' is missing", "{'x'{}}", 0),
    BAD("no value", "a value is missing", "{'x':}", 0),
    BAD("no key", "a string is missing", "{:{}}", 0),
    BAD("a key that is a number", "a string is missing", "{1:{}}", 0),
    BAD("a key without quotes", "a string is missing", "{x:{}}", 0),
    RAW("single quotes", "a string is missing", "\10\0\0\0\0\0\0\0{'x':{}}"),
    BAD("a comment of a line", "a string is missing", "{//\n}", 0),
    BAD("a comment", "a string is missing", "{/**/}", 0),
    BAD("a comment of a script", "a string is missing", "{#\n}", 0),
    BAD("text behind", "at byte 2: text goes on behind its end", "{}x", 0),
    BAD("an object behind", "text goes on behind its end", "{}{}", 0),
    BAD("a brace too many", "text goes on behind its end", "{}}", 0),
    BAD("a zero behind", "text goes on behind its end", "{}\0", 0),
    BAD("the wrong bracket", "at byte 1: a string is missing", "{]", 0),
    BAD("the wrong bracket in a shape", "',' or ']' is missing", "{'x':{'shape':[1}}", 0),
    BAD("a vertical tab for a space", "a string is missing", "{\v}", 0),
    BAD("a no-break space", "a string is missing", "{\302\240}", 0),
    BAD("a zero for a space", "a string is missing", "{\0}", 0),
    BAD("a zero in a name", "a control character in a string", "{'x\0y':{}}", 0),
    BAD("a line end in a name", "a control character in a string", "{'x\r\n':{}}", 0),
    BAD("a tab in a name", "a control character in a string", "{'\t':{}}", 0),
    BAD("an escaped zero", "a string holds a zero byte", "{'x\\u0000y':{}}", 0),
    BAD("an unknown escape", "at byte 3: an escape that JSON does not have", "{'\\x41':{}}", 0),
    BAD("an escape of C", "an escape that JSON", "{'\\a':{}}", 0),
    BAD("an escape of a zero", "an escape that JSON does not have", "{'\\\0':{}}", 0),
    BAD("an escape at the end", "an escape that JSON does not have", "{'\\", 0),
    BAD("a short code", "\\u needs four hexadecimal digits", "{'\\u41':{}}", 0),
    BAD("a code cut by the end", "\\u needs four hexadecimal digits", "{'\\u004", 0),
    BAD("a code with a sign", "\\u needs four hexadecimal digits", "{'\\u+041':{}}", 0),
    BAD("a high surrogate alone", "half a surrogate pair", "{'\\ud800':{}}", 0),
    BAD("a low surrogate alone", "half a surrogate pair", "{'\\udc00':{}}", 0),
    BAD("two high surrogates", "half a surrogate pair", "{'\\ud800\\ud800':{}}", 0),
    BAD("a high surrogate and a letter", "half a surrogate pair", "{'\\ud800\\u0041':{}}", 0),
    BAD("a high surrogate at the end", "half a surrogate pair", "{'\\ud800", 0),

    /* keys that stand twice */
    BAD("a tensor twice", "the header has a key twice: 'x'",
        X "," T("x", "'U8'", "[1]", "[1,2]") "}", 2),
    BAD("a tensor twice, written otherwise", "the header has a key twice: 'x'",
        X "," T("\\u0078", "'U8'", "[1]", "[1,2]") "}", 2),
    BAD("an empty name twice", "the header has a key twice: ''",
        "{" T("", "'U8'", "[0]", "[0,0]") "," T("", "'U8'", "[0]", "[0,0]") "}", 0),
    BAD("a tensor twice around others", "the header has a key twice: 'x'",
        X "," T("a", "'U8'", "[1]", "[1,2]") "," T("x", "'U8'", "[1]", "[2,3]") "}", 3),
    BAD("a dtype twice", "tensor 'x' has a key twice: 'dtype'", "{'x':{'dtype':'U8','dtype':'U8'}}",
        0),
    BAD("a shape twice", "tensor 'x' has a key twice: 'shape'", "{'x':{'shape':[],'shape':[]}}", 0),
    BAD("offsets twice", "tensor 'x' has a key twice: 'data_offsets'",
        "{'x':{'data_offsets':[0,1],'data_offset\\u0073':[0,1]}}", 1),
    BAD("metadata twice", "the header has a key twice: '__metadata__'",
        "{'__metadata__':{},'__metadata__':{}}", 0),
    BAD("a line of metadata twice", "'__metadata__' has a key twice: 'k'",
        "{'__metadata__':{'k':'1','j':'2','k':'1'}}", 0),
    BAD("a line of metadata twice, written otherwise", "'__metadata__' has a key twice: 'k'",
        "{'__metadata__':{'\\u006b':'1','k':'2'}}", 0),

    /* metadata */
    BAD("metadata that are a number", "'__metadata__' is not an object of texts",
        "{'__metadata__':3}", 0),
    BAD("metadata that are null", "'__metadata__' is not an object of texts",
        "{'__metadata__':null}", 0),
    BAD("metadata that are a list", "'__metadata__' is not an object of texts",
        "{'__metadata__':[]}", 0),
    BAD("metadata that are a text", "'__metadata__' is not an object of texts",
        "{'__metadata__':'step'}", 0),
    BAD("metadata without a value", "a value is missing", "{'__metadata__':}", 0),
    BAD("a number in the metadata", "a value that is not text, at 'step'",
        "{'__metadata__':{'step':3}}", 0),
    BAD("null in the metadata", "a value that is not text, at 'step'",
        "{'__metadata__':{'step':null}}", 0),
    BAD("true in the metadata", "a value that is not text, at 'b'",
        "{'__metadata__':{'a':'1','b':true}}", 0),
    BAD("an object in the metadata", "a value that is not text, at 'a'",
        "{'__metadata__':{'a':{'b':'c'}}}", 0),
    BAD("nothing in the metadata", "a value is missing", "{'__metadata__':{'a':}}", 0),
    BAD("a tensor called __metadata__", "a value that is not text, at 'shape'",
        "{" T("__metadata__", "'U8'", "[1]", "[0,1]") "}", 1),
    BAD("metadata that do not end", "',' or '}' is missing", "{'__metadata__':{'a':'b'", 0),

    /* a tensor's form */
    BAD("a tensor that is a list", "tensor 'x' is not an object", "{'x':[]}", 0),
    BAD("a tensor that is null", "tensor 'x' is not an object", "{'x':null}", 0),
    BAD("a tensor that is a number", "tensor 'x' is not an object", "{'x':-1}", 0),
    BAD("a tensor that is a text", "tensor 'x' is not an object", "{'x':'U8'}", 0),
    BAD("a tensor of nothing", "tensor 'x' has no 'dtype'", "{'x':{}}", 0),
    BAD("no dtype", "tensor 'x' has no 'dtype'", "{'x':{'shape':[1],'data_offsets':[0,1]}}", 1),
    BAD("no shape", "tensor 'x' has no 'shape'", "{'x':{'dtype':'U8','data_offsets':[0,1]}}", 1),
    BAD("no offsets", "tensor 'x' has no 'data_offsets'", "{'x':{'dtype':'U8','shape':[1]}}", 1),
    BAD("an unknown key", "tensor 'x' has the unknown key 'stride'",
        "{'x':{'dtype':'U8','shape':[1],'data_offsets':[0,1],'stride':[1]}}", 1),
    BAD("a key of other letters", "tensor 'x' has the unknown key 'Shape'",
        "{'x':{'dtype':'U8','Shape':[1],'data_offsets':[0,1]}}", 1),
    BAD("a key with a space", "tensor 'x' has the unknown key 'dtype '", "{'x':{'dtype ':'U8'}}",
        0),
    BAD("an empty key", "tensor 'x' has the unknown key ''", "{'x':{'':1}}", 0),
    BAD("a tensor in a tensor", "tensor 'x' has the unknown key 'x'", "{'x':{'x':{'x':{}}}}", 0),
    BAD("a long name, cut in the message",
        "tensor 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' is not",
        "{'"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "a"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "':1}",
        0),

    /* dtypes */
    BAD("a dtype that is a number", "tensor 'x' has a dtype that is not text",
        ONE("8", "[1]", "[0,1]"), 1),
    BAD("a dtype that is null", "a dtype that is not text", ONE("null", "[1]", "[0,1]"), 1),
    BAD("a dtype that is a list", "a dtype that is not text", ONE("['U8']", "[1]", "[0,1]"), 1),
    BAD("a dtype that is nothing", "a value is missing", ONE("", "[1]", "[0,1]"), 1),
    BAD("an empty dtype", "tensor 'x' has the unknown dtype ''", ONE("''", "[1]", "[0,1]"), 1),
    BAD("an unknown dtype", "tensor 'x' has the unknown dtype 'F31'", ONE("'F31'", "[1]", "[0,4]"),
        4),
    BAD("a dtype in small letters", "the unknown dtype 'f32'", ONE("'f32'", "[1]", "[0,4]"), 4),
    BAD("a dtype of another library", "the unknown dtype 'float32'",
        ONE("'float32'", "[1]", "[0,4]"), 4),
    BAD("a dtype with a space", "the unknown dtype 'F32 '", ONE("'F32 '", "[1]", "[0,4]"), 4),
    BAD("a dtype and a zero", "a string holds a zero byte", ONE("'F32\\u0000'", "[1]", "[0,4]"), 4),

    /* shapes */
    BAD("a shape that is a number", "tensor 'x' has a shape that is not a list",
        ONE("'U8'", "1", "[0,1]"), 1),
    BAD("a shape that is null", "a shape that is not a list", ONE("'U8'", "null", "[0,1]"), 1),
    BAD("a shape that is a text", "a shape that is not a list", ONE("'U8'", "'1'", "[0,1]"), 1),
    BAD("a shape that is an object", "a shape that is not a list", ONE("'U8'", "{}", "[0,1]"), 1),
    BAD("a negative size", "a shape whose size 1 is no integer >= 0 below 2^63",
        ONE("'U8'", "[2,-1]", "[0,1]"), 1),
    BAD("two negative sizes", SIZE_0, ONE("'U8'", "[-1,-1]", "[0,1]"), 1),
    BAD("a size of -0", SIZE_0, ONE("'U8'", "[-0]", "[0,0]"), 0),
    BAD("a size with a fraction", SIZE_0, ONE("'U8'", "[1.0]", "[0,1]"), 1),
    BAD("a size with an exponent", SIZE_0, ONE("'U8'", "[1e0]", "[0,1]"), 1),
    BAD("a size of 1e999", SIZE_0, ONE("'U8'", "[1e999]", "[0,1]"), 1),
    BAD("a size of 2^63", SIZE_0, ONE("'U8'", "[9223372036854775808]", "[0,1]"), 1),
    BAD("a size of 2^64 + 1", SIZE_0, ONE("'U8'", "[18446744073709551617]", "[0,1]"), 1),
    BAD("a size of forty digits", SIZE_0,
        ONE("'U8'", "[1000000000000000000000000000000000000001]", "[0,1]"), 1),
    BAD("a size of a zero and more", SIZE_0, ONE("'U8'", "[01]", "[0,1]"), 1),
    BAD("a size with a plus", "a value is missing", ONE("'U8'", "[+1]", "[0,1]"), 1),
    BAD("a hexadecimal size", "',' or ']' is missing", ONE("'U8'", "[0x1]", "[0,1]"), 1),
    BAD("a size that is no number", "a value is missing", ONE("'U8'", "[NaN]", "[0,1]"), 1),
    BAD("an infinite size", SIZE_0, ONE("'U8'", "[-Infinity]", "[0,1]"), 1),
    BAD("a size that is a text", SIZE_0, ONE("'U8'", "['1']", "[0,1]"), 1),
    BAD("a size that is null", SIZE_0, ONE("'U8'", "[null]", "[0,1]"), 1),
    BAD("a size that is true", SIZE_0, ONE("'U8'", "[true]", "[0,1]"), 1),
    BAD("a shape in a shape", SIZE_0, ONE("'U8'", "[[1]]", "[0,1]"), 1),
    MALFORMED("nine dimensions", WEIR_ERR_UNSUPPORTED,
              "tensor 'x' has more than the 8 dimensions that Weir reads",
              ONE("'U8'", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1),
    MALFORMED("nine dimensions, one of them empty", WEIR_ERR_UNSUPPORTED, "8 dimensions",
              ONE("'U8'", "[1,1,1,1,1,1,1,1,0]", "[0,0]"), 0),
    BAD("no dimensions and no bytes", "U8 [], 1 bytes, but its data_offsets [0, 0] hold 0",
        ONE("'U8'", "[]", "[0,0]"), 0),
    BAD("a size of zero and a byte", "U8 [0], 0 bytes, but its data_offsets [0, 1] hold 1",
        ONE("'U8'", "[0]", "[0,1]"), 1),

    /* products */
    BAD("a product of 2^64", "U8 [4294967296, 4294967296]" OVERFLOWS,
        ONE("'U8'", "[4294967296,4294967296]", "[0,0]"), 0),
    BAD("a product that wraps to 1", "U8 [274177, 67280421310721]" OVERFLOWS,
        ONE("'U8'", "[274177,67280421310721]", "[0,1]"), 1),
    BAD("bytes that wrap to 0", "F32 [4611686018427387904]" OVERFLOWS,
        ONE("'F32'", "[4611686018427387904]", "[0,0]"), 0),
    BAD("bytes that wrap to 8", "F64 [2305843009213693953]" OVERFLOWS,
        ONE("'F64'", "[2305843009213693953]", "[0,8]"), 8),
    BAD("bits that wrap", "U8 [2305843009213693952]" OVERFLOWS,
        ONE("'U8'", "[2305843009213693952]", "[0,0]"), 0),
    BAD("the largest size", "U8 [9223372036854775807]" OVERFLOWS,
        ONE("'U8'", "[9223372036854775807]", "[0,9223372036854775807]"), 0),
    BAD("a product that overflows before its zero", "U8 [9223372036854775807, 4, 0]" OVERFLOWS,
        ONE("'U8'", "[9223372036854775807,4,0]", "[0,0]"), 0),
    BAD("many sizes that overflow together", OVERFLOWS,
        ONE("'U8'", "[65536,65536,65536,65536,65536,65536,65536,65536]", "[0,0]"), 0),
    BAD("half a byte", "F4 [3], which is no whole number of bytes", ONE("'F4'", "[3]", "[0,2]"), 2),
    BAD("three quarters of a byte", "F6_E2M3 [], which is no whole number of bytes",
        ONE("'F6_E2M3'", "[]", "[0,1]"), 1),

    /* offsets */
    BAD("offsets that are an object", OFFSETS, ONE("'U8'", "[1]", "{}"), 1),
    BAD("offsets that are a text", OFFSETS, ONE("'U8'", "[1]", "'0,1'"), 1),
    BAD("offsets that are null", OFFSETS, ONE("'U8'", "[1]", "null"), 1),
    BAD("no offsets in the list", OFFSETS, ONE("'U8'", "[0]", "[]"), 0),
    BAD("one offset", OFFSETS, ONE("'U8'", "[1]", "[1]"), 1),
    BAD("three offsets", OFFSETS, ONE("'U8'", "[1]", "[0,1,2]"), 1),
    BAD("a negative offset", OFFSETS, ONE("'U8'", "[1]", "[-1,0]"), 1),
    BAD("an offset with a fraction", OFFSETS, ONE("'U8'", "[1]", "[0,1.0]"), 1),
    BAD("an offset of 1e999", OFFSETS, ONE("'U8'", "[1]", "[0,1e999]"), 1),
    BAD("an offset of 2^63", OFFSETS, ONE("'U8'", "[1]", "[0,9223372036854775808]"), 1),
    BAD("an offset that wraps to 1", OFFSETS, ONE("'U8'", "[1]", "[0,18446744073709551617]"), 1),
    BAD("an offset that is a text", OFFSETS, ONE("'U8'", "[1]", "[0,'1']"), 1),
    BAD("offsets in offsets", OFFSETS, ONE("'U8'", "[1]", "[[0,1]]"), 1),
    BAD("offsets with a comma at the end", "a value is missing", ONE("'U8'", "[1]", "[0,1,]"), 1),
    BAD("offsets that run backwards", "data_offsets [1, 0] that run backwards",
        ONE("'U8'", "[1]", "[1,0]"), 1),
    BAD("an end outside the buffer", "data_offsets [0, 2] outside the buffer of 1 bytes",
        ONE("'U8'", "[2]", "[0,2]"), 1),
    BAD("an empty tensor outside the buffer", "data_offsets [5, 5] outside the buffer of 0 bytes",
        ONE("'U8'", "[0]", "[5,5]"), 0),
    BAD("an end at 2^63 - 1", "[9223372036854775806, 9223372036854775807] outside the buffer",
        ONE("'U8'", "[1]", "[9223372036854775806,9223372036854775807]"), 1),
    BAD("no data at all", "data_offsets [0, 4] outside the buffer of 0 bytes",
        ONE("'F32'", "[1]", "[0,4]"), 0),
    BAD("data cut by a byte",
        "data_offsets [0, 4] outside the buffer of 3 bytes: the file is cut, or damaged",
        ONE("'F32'", "[1]", "[0,4]"), 3),
    BAD("fewer bytes than the shape", "F32 [2, 2], 16 bytes, but its data_offsets [0, 12] hold 12",
        ONE("'F32'", "[2,2]", "[0,12]"), 12),
    BAD("more bytes than the shape", "F32 [2, 2], 16 bytes, but its data_offsets [0, 20] hold 20",
        ONE("'F32'", "[2,2]", "[0,20]"), 20),
    BAD("elements for bytes", "I64 [3], 24 bytes, but its data_offsets [0, 3] hold 3",
        ONE("'I64'", "[3]", "[0,3]"), 3),

    /* tensors against each other */
    BAD("a hole before the first", "a hole of 1 byte before tensor 'x'",
        ONE("'U8'", "[1]", "[1,2]"), 2),
    BAD("a hole between two", "a hole of 2 bytes before tensor 'y'",
        X "," T("y", "'U8'", "[1]", "[3,4]") "}", 4),
    BAD("an overlap", "tensors 'x' and 'y' overlap",
        ONE("'U8'", "[2]", "[0,2]},'y':{'dtype':'U8','shape':[2],'data_offsets':[1,3]"), 3),
    BAD("an overlap, the later one first", "tensors 'y' and 'x' overlap",
        ONE("'U8'", "[2]", "[1,3]},'y':{'dtype':'U8','shape':[2],'data_offsets':[0,2]"), 3),
    BAD("two tensors in one place", "tensors 'x' and 'y' overlap",
        X "," T("y", "'U8'", "[1]", "[0,1]") "}", 1),
    BAD("a tensor in a tensor's place", "tensors 'x' and 'y' overlap",
        ONE("'U8'", "[4]", "[0,4]},'y':{'dtype':'U8','shape':[2],'data_offsets':[1,3]"), 4),
    BAD("an empty tensor inside another", "tensors 'x' and 'y' overlap",
        ONE("'U8'", "[4]", "[0,4]},'y':{'dtype':'U8','shape':[0],'data_offsets':[2,2]"), 4),
    BAD("an overlap by another dtype", "tensors 'x' and 'y' overlap",
        ONE("'F32'", "[1]", "[0,4]},'y':{'dtype':'F16','shape':[1],'data_offsets':[2,4]"), 4),
    BAD("bytes behind the last", "the last 3 bytes belong to no tensor", X "}", 4),
    BAD("bytes and no tensor", "the last 1 byte belongs to no tensor", "{}", 1),
    BAD("bytes and metadata only", "the last 8 bytes belong to no tensor",
        "{'__metadata__':{'a':'b'}}", 8),
    BAD("bytes behind an empty tensor", "the last 1 byte belongs to no tensor",
        ONE("'U8'", "[0]", "[0,0]"), 1),
};

static const struct malformed whole = MALFORMED(
    "a sound file", WEIR_OK, "",
    "{'__metadata__':{'step':'12','a\\\\b':''}," T("w", "'F32'", "[2,1]", "[0,8]") "," T(
        "\\ud83d\\ude00/\\n", "'I64'", "[]", "[8,16]") "," T("e", "'F16'", "[0,3]", "[16,16]") "}",
    16);

static size_t write(const struct malformed *malformed, char *bytes) {
    for (int i = 0; i < 8; i++) {
        bytes[i] = (char)((uint64_t)malformed->text_bytes >> (8 * i) & 0xFF);
    }
    for (size_t i = 0; i < malformed->text_bytes; i++) {
        bytes[8 + i] = malformed->text[i] == '\'' ? '"' : malformed->text[i];
    }
    memset(bytes + 8 + malformed->text_bytes, 0, malformed->zeros);
    return 8 + malformed->text_bytes + malformed->zeros;
}

static int read(const struct weir__io *io, const char *path, char *message, size_t capacity) {
    struct weir_error error = {0};
    struct weir__io own = {io->allocator, io->calls, &error};
    struct weir__safetensors *file = NULL;
    int status = weir__safetensors_open(&own, path, NULL, &file);
    EXPECT_EQ_INT(status == WEIR_OK, file != NULL);
    weir__safetensors_close(file);
    snprintf(message, capacity, "%s", error.message);
    return status;
}

const struct malformed_set malformed_safetensors = {
    "safetensors", list, sizeof list / sizeof list[0], write, read, &whole};
