/* SPDX-License-Identifier: MIT */
/** Reading a report's page in a test: whether it is sound, what it is made of, what it says. */
#ifndef WEIR_TESTS_HTML_H
#define WEIR_TESTS_HTML_H

#include "harness.h"

#include <jansson.h>

/** Every tag with its attributes' names, in order: what no text may change. NULL, and the test
 * failed, where the page is not sound: elements that do not nest, attributes without quotes,
 * characters that should be escaped, control characters, bytes that are no UTF-8. free() it. */
char *html_outline(const char *page);
/** The object in <script id="data">; NULL, and the test failed, if there is none. json_decref it.
 */
json_t *html_data(const char *page);
/** The text of the element with this id, which holds no other but <bdi> and <code>, without
 * escapes. free() it. NULL, and the test failed, if there is none. */
char *html_text_of(const char *page, const char *id);
/** How often a text stands in another. */
uint32_t html_count(const char *page, const char *part);

#endif
