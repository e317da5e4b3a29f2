/* SPDX-License-Identifier: MIT */
/** --template, the same wherever conversations become a model's tokens. */
#ifndef WEIR_TOOLS_TEMPLATE_OPTION_H
#define WEIR_TOOLS_TEMPLATE_OPTION_H

#include "cli/args.h"
#include "text/model_text.h"

/** `place`: of its uint32_t, a number in model_text_templates. */
#define TEMPLATE_OPTION(place)                                                                     \
    {                                                                                              \
        "template", ARG_CHOICE, (place),                                                           \
            "how the model reads conversations; auto: as the --model folder's chat template, "     \
            "where it is a published one that is known",                                           \
            .fallback = "auto", .choices = model_text_templates                                    \
    }

/** --no-pack, where conversations become rows. `place`: of its bool. */
#define NO_PACK_OPTION(place)                                                                      \
    {                                                                                              \
        "no-pack", ARG_FLAG, (place),                                                              \
            "each conversation has a row of its own, which is filled up; by default several "      \
            "share one, of which none sees another, where all workers are CPUs"                    \
    }

#endif
