/* SPDX-License-Identifier: MIT */
#include "cli/svg.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char common[] =
    "svg{--bg:#fff;--ink:#1b1f24;--soft:#57606a;--ground:#eceff3;--line:#fff;"
    "font:13px system-ui,-apple-system,'Segoe UI',Roboto,'Liberation Sans',sans-serif;"
    "font-variant-numeric:tabular-nums}\n"
    "@media (prefers-color-scheme:dark){svg{--bg:#13171b;--ink:#e4e8ec;--soft:#a0abb6;"
    "--ground:#232a31;--line:#13171b}}\n"
    ".bg{fill:var(--bg)}.ground{fill:var(--ground)}text{fill:var(--ink)}.soft{fill:var(--soft)}\n";

static void put(struct svg *svg, const char *text, size_t bytes) {
    if (svg->status == WEIR_OK) svg->status = svg->write(svg->context, text, bytes);
}

void svg_add(struct svg *svg, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length > 0) put(svg, text, strlen(text));
}

void svg_add_escaped(struct svg *svg, const char *text) {
    for (; *text != 0; text++) {
        unsigned char letter = (unsigned char)*text;
        if (letter < ' ')
            put(svg, "?", 1);
        else if (strchr("<&>\"", letter) != NULL)
            svg_add(svg, "&#%d;", letter);
        else
            put(svg, text, 1);
    }
}

void svg_begin(struct svg *svg, double width, double height, const char *title,
               const char *description, const char *style) {
    svg_add(svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
            "height=\"%.0f\" role=\"img\">\n<title>",
            width, height, width, height);
    svg_add_escaped(svg, title);
    svg_add(svg, "</title>\n<desc>");
    svg_add_escaped(svg, description);
    svg_add(svg, "</desc>\n<style>\n");
    put(svg, common, sizeof common - 1);
    put(svg, style, strlen(style));
    svg_add(svg, "</style>\n<rect class=\"bg\" width=\"%.0f\" height=\"%.0f\" rx=\"6\"/>\n", width,
            height);
}

void svg_end(struct svg *svg) {
    svg_add(svg, "</svg>\n");
}
