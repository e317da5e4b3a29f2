/* SPDX-License-Identifier: MIT */
/** Task times as the command line gives them: `--time F=1,B=2`. */
#ifndef WEIR_TOOLS_KIND_TIMES_H
#define WEIR_TOOLS_KIND_TIMES_H

#include "cli/args.h"
#include "weir.h"

/** What a kind takes that is not named, as help shows it. */
#define KIND_TIMES_FALLBACK "F=1,R=1,B=2,I=1,W=1,U=0"
/** The option, whose struct arg_texts lies at `at`. */
#define KIND_TIMES_OPTION(at)                                                                      \
    {                                                                                              \
        .name = "time", .type = ARG_LIST, .offset = (at), .value = "F=1,R=1,...",                  \
        .fallback = KIND_TIMES_FALLBACK, .unit = "seconds",                                        \
        .help = "of one task of each kind; what is not named keeps its default"                    \
    }

/** Fills seconds[WEIR_KIND_COUNT] from the fallback, then from `texts`; what cannot be read is in
 * `faults`. */
void kind_times_read(const struct arg_texts *texts, double *seconds, struct weir_faults *faults);

#endif
