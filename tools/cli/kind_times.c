/* SPDX-License-Identifier: MIT */
/* Task times from the command line. */
#include "cli/kind_times.h"

#include "schedule/facts.h"

#include <math.h>
#include <stdlib.h>

static int kind_of(char letter) {
    for (int kind = 0; kind < WEIR_KIND_COUNT; kind++) {
        if (weir__kinds[kind].letter == letter) return kind;
    }
    return -1;
}

/* "F=1.5" */
static void read_time(const char *text, double *seconds, struct weir_faults *faults) {
    int kind = text[0] != 0 && text[1] == '=' ? kind_of(text[0]) : -1;
    char *end = NULL;
    double value = kind >= 0 ? strtod(text + 2, &end) : -1.0;
    if (kind < 0 || end == text + 2 || *end != 0 || !isfinite(value) || value < 0.0) {
        weir_faults_add(faults,
                        "--time %.40s: give a kind and seconds that are not negative, as in F=1.5; "
                        "kinds are F, R, B, I, W and U",
                        text);
        return;
    }
    seconds[kind] = value;
}

void kind_times_read(const struct arg_texts *texts, double *seconds, struct weir_faults *faults) {
    weir__unit_seconds(seconds);
    for (uint32_t i = 0; i < texts->count; i++) {
        read_time(arg_texts_get(texts, i), seconds, faults);
    }
}
