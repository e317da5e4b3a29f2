/* SPDX-License-Identifier: MIT */
#include "net/cpu/level.h"

#include "base/base.h"
#include "base/processor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* build/levels.zig compiles these. */
#if defined(__x86_64__)
extern const struct weir__level weir__v2_level, weir__v3_level, weir__v4_level,
    weir__v4_pairs_level;
static const struct weir__level *const levels[] = {&weir__v2_level, &weir__v3_level,
                                                   &weir__v4_level, &weir__v4_pairs_level};
#elif defined(__aarch64__)
extern const struct weir__level weir__neon_level;
static const struct weir__level *const levels[] = {&weir__neon_level};
#else
extern const struct weir__level weir__plain_level;
static const struct weir__level *const levels[] = {&weir__plain_level};
#endif

enum { NAMES_MOST = 16 };

const struct weir__level *weir__level_at(uint32_t i) {
    assert(WEIR__COUNT_OF(levels) < NAMES_MOST);
    return i < WEIR__COUNT_OF(levels) ? levels[i] : NULL;
}

bool weir__level_runs(const struct weir__level *level) {
    return level->x86 <= weir__x86_level();
}

static void refuse(const char *name, bool asked, const char *why, struct weir_faults *faults) {
    char list[128] = "";
    const char *names[NAMES_MOST] = {NULL};
    uint32_t count = 0;
    for (uint32_t i = 0; i < WEIR__COUNT_OF(levels); i++) {
        if (!weir__level_runs(levels[i])) continue;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", count > 0 ? ", " : "", levels[i]->name);
        names[count++] = levels[i]->name;
    }
    const char *near = weir__nearest(name, names);
    weir_faults_add(faults, "%s %s: %s: give one of %s%s%s%s", asked ? "--level" : "WEIR_LEVEL is",
                    name, why, list, near != NULL ? " (did you mean " : "",
                    near != NULL ? near : "", near != NULL ? "?)" : "");
}

int weir__level_find(const char *name, struct weir_faults *faults,
                     const struct weir__level **level) {
    bool asked = name != NULL;
    if (!asked) name = getenv("WEIR_LEVEL");
    bool any = name == NULL || (!asked && name[0] == '\0');
    const char *why = "there is no such level";
    for (size_t i = WEIR__COUNT_OF(levels); i-- > 0;) {
        if (!any && strcmp(levels[i]->name, name) != 0) continue;
        if (weir__level_runs(levels[i])) {
            *level = levels[i];
            return WEIR_OK;
        }
        if (!any) why = "this processor has not what it needs";
    }
    if (any)
        weir_faults_add(faults, "this processor is too old: kernels need x86-64-v2 (SSE4.2)");
    else
        refuse(name, asked, why, faults);
    return WEIR_ERR_ARGUMENT;
}
