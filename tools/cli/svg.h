/* SPDX-License-Identifier: MIT */
/**
 * Pictures as SVG: one file without links, with its own ground, so that it reads on light and dark
 * pages. A writer's status stays at its first failure; what comes after that is dropped.
 */
#ifndef WEIR_TOOLS_SVG_H
#define WEIR_TOOLS_SVG_H

#include "weir.h"

struct svg {
    weir_write_fn *write;
    void *context; /**< of `write` */
    int status;
};

/** Up to 1,023 bytes, as printf. */
void svg_add(struct svg *svg, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** Text that may hold anything: what XML reads otherwise is written as a reference. */
void svg_add_escaped(struct svg *svg, const char *text);
/** Opens the picture: size in pixels, words for who cannot see it, colours and classes ("ground",
 * "soft"), then the rules of `style`. */
void svg_begin(struct svg *svg, double width, double height, const char *title,
               const char *description, const char *style);
void svg_end(struct svg *svg);

#endif
