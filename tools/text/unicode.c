/* SPDX-License-Identifier: MIT */
/* Categories in the order of make_unicode.py. */
#include "text/unicode.h"

#include "text/utf8.h"

#include <assert.h>
#include <string.h>

static const char categories[][3] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                     "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                     "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn"};

uint32_t unicode_categories(const char *name, size_t length) {
    uint32_t set = 0;
    if (length < 1 || length > 2) return 0;
    for (size_t i = 0; i < sizeof categories / sizeof categories[0]; i++)
        if (memcmp(categories[i], name, length) == 0) set |= UINT32_C(1) << i;
    return set;
}

void unicode_fill_marks(uint8_t *marks) {
    assert(unicode_run_count > 0 && unicode_run_first(0) == 0);
    for (uint32_t run = 0; run < unicode_run_count; run++) {
        uint32_t first = unicode_run_first(run);
        uint32_t end = run + 1 < unicode_run_count ? unicode_run_first(run + 1) : UTF8_LIMIT;
        memset(marks + first, (int)unicode_run_marks(run), end - first);
    }
}
