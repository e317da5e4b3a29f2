/* SPDX-License-Identifier: MIT */
/** jansson's objects to where results for programs go. */
#ifndef WEIR_TOOLS_JSON_TEXT_H
#define WEIR_TOOLS_JSON_TEXT_H

#include "cli/output.h"

#include <jansson.h>

/** Writes `value` indented and with a newline to `path` (`-`: stdout), complete or not at all;
 * takes the reference. A NULL value is WEIR_ERR_OUT_OF_MEMORY. */
int json_text_save(const char *path, json_t *value, struct weir_error *error);
/** One compact line to an open output; takes the reference. */
int json_text_line(struct output *output, json_t *value);
/** Text as a JSON string, which is UTF-8: each byte that is part of no such sequence (of a file's
 * name, or drawn by a model) becomes U+FFFD. A new reference, or NULL without memory. */
json_t *json_text_string(const char *text);
/** The same of `count` bytes, zeros among them. */
json_t *json_text_bytes(const char *bytes, size_t count);
/** A number, or null where it is not finite: JSON has no NaN. */
json_t *json_text_real(double value);

#endif
