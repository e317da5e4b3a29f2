/* SPDX-License-Identifier: MIT */
/* Numbers are written with as many digits as it takes to read the same double back. */
#include "cli/json_text.h"

#include "io/safetensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    COMPACT = JSON_COMPACT | JSON_REAL_PRECISION(17),
    INDENTED = JSON_INDENT(2) | JSON_REAL_PRECISION(17)
};

static int write_line(struct output *output, const char *text) {
    int status = output_write(output, text, strlen(text));
    if (status != WEIR_OK) return status;
    return output_write(output, "\n", 1);
}

static int begin_with(struct output *output, const char *path, const char *text,
                      struct weir_error *error) {
    int status = output_begin(output, path, error);
    if (status != WEIR_OK) return status;
    return write_line(output, text);
}

int json_text_save(const char *path, json_t *value, struct weir_error *error) {
    char *text = value != NULL ? json_dumps(value, INDENTED) : NULL;
    json_decref(value);
    if (text == NULL) return weir__fail(error, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
    struct output output;
    int status = begin_with(&output, path, text, error);
    int committed = output_commit(&output);
    free(text);
    return status != WEIR_OK ? status : committed;
}

int json_text_line(struct output *output, json_t *value) {
    char *text = value != NULL ? json_dumps(value, COMPACT) : NULL;
    json_decref(value);
    if (text == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = write_line(output, text);
    free(text);
    return status;
}

/* Bytes of the valid UTF-8 sequence at the beginning; 0: there is none. */
static size_t sequence(const char *bytes, size_t left) {
    for (size_t length = 1; length <= 4 && length <= left; length++)
        if (weir__utf8_valid(bytes, length)) return length;
    return 0;
}

json_t *json_text_bytes(const char *bytes, size_t count) {
    static const char replacement[] = "\xEF\xBF\xBD";
    char *text = malloc(3 * count + 1);
    if (text == NULL) return NULL;
    size_t used = 0;
    for (size_t at = 0; at < count;) {
        size_t length = sequence(bytes + at, count - at);
        size_t written = length > 0 ? length : sizeof replacement - 1;
        memcpy(text + used, length > 0 ? bytes + at : replacement, written);
        used += written;
        at += length > 0 ? length : 1;
    }
    json_t *string = json_stringn(text, used);
    free(text);
    return string;
}

json_t *json_text_string(const char *text) {
    return json_text_bytes(text, strlen(text));
}

json_t *json_text_real(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}
