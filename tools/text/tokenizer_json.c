/* SPDX-License-Identifier: MIT */
/* Parts of the file by name; what is not known is told with its path. */
#include "text/tokenizer_inside.h"

#include <stdio.h>
#include <string.h>

static bool tell(struct tokenizer_reading *r, int status, const char *spot, const char *format,
                 va_list arguments) {
    char reason[256], path[96];
    vsnprintf(reason, sizeof reason, format, arguments);
    r->status = weir__fail(r->io.error, status, "%s: %s%s%s", weir__path_text(r->path, path), spot,
                           spot[0] != '\0' ? ": " : "", reason);
    return false;
}

bool tokenizer_refuse(struct tokenizer_reading *r, const char *spot, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    tell(r, WEIR_ERR_UNSUPPORTED, spot, format, arguments);
    va_end(arguments);
    return false;
}

bool tokenizer_malformed(struct tokenizer_reading *r, const char *spot, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    tell(r, WEIR_ERR_FORMAT, spot, format, arguments);
    va_end(arguments);
    return false;
}

bool tokenizer_no_memory(struct tokenizer_reading *r) {
    char path[96];
    r->status = weir__fail(r->io.error, WEIR_ERR_OUT_OF_MEMORY, "%s: out of memory",
                           weir__path_text(r->path, path));
    return false;
}

static bool is_among(const char *key, const char *keys) {
    size_t length = strlen(key);
    for (const char *at = keys; *at != '\0'; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        if (strcspn(at, " ") == length && memcmp(at, key, length) == 0) return true;
    }
    return false;
}

bool tokenizer_check_keys(struct tokenizer_reading *r, const char *spot, const json_t *object,
                          const char *keys) {
    if (!json_is_object(object)) return tokenizer_malformed(r, spot, "must be an object");
    for (void *at = json_object_iter((json_t *)object); at != NULL;
         at = json_object_iter_next((json_t *)object, at)) {
        const char *key = json_object_iter_key(at);
        if (!is_among(key, keys))
            return tokenizer_refuse(r, spot, "the field '%.60s' is not known, nor what it changes",
                                    key);
    }
    return true;
}

bool tokenizer_flag(struct tokenizer_reading *r, const char *spot, const json_t *object,
                    const char *key, bool missing, bool *flag) {
    const json_t *value = json_object_get(object, key);
    *flag = value != NULL ? json_is_true(value) : missing;
    if (value == NULL || json_is_boolean(value)) return true;
    return tokenizer_malformed(r, spot, "'%s' must be true or false", key);
}

bool tokenizer_text(struct tokenizer_reading *r, const char *spot, const json_t *object,
                    const char *key, const char **text) {
    *text = json_string_value(json_object_get(object, key));
    return *text != NULL || tokenizer_malformed(r, spot, "'%s' must be a text", key);
}

static bool take_part(struct tokenizer_reading *r, const char *spot, const json_t *part,
                      tokenizer_part_fn *take) {
    const char *type;
    if (!json_is_object(part)) return tokenizer_malformed(r, spot, "must be an object");
    return tokenizer_text(r, spot, part, "type", &type) && take(r, spot, type, part);
}

bool tokenizer_parts(struct tokenizer_reading *r, const char *spot, const char *list,
                     const json_t *part, tokenizer_part_fn *take) {
    char place[96], keys[64];
    const char *type = json_string_value(json_object_get(part, "type"));
    if (type == NULL || strcmp(type, "Sequence") != 0) return take_part(r, spot, part, take);
    snprintf(keys, sizeof keys, "type %s", list);
    if (!tokenizer_check_keys(r, spot, part, keys)) return false;
    const json_t *parts = json_object_get(part, list);
    if (!json_is_array(parts)) return tokenizer_malformed(r, spot, "'%s' must be a list", list);
    for (size_t i = 0; i < json_array_size(parts); i++) {
        snprintf(place, sizeof place, "%s.%s[%zu]", spot, list, i);
        if (!take_part(r, place, json_array_get(parts, i), take)) return false;
    }
    return true;
}
