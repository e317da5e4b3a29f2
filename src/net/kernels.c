/* SPDX-License-Identifier: MIT */
/* Which kernels a net runs, for people: ops by library, the fast ones first. */
#include "net/net.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct text {
    char *data;
    size_t capacity;
    size_t used; /* what the whole needs, written or not */
};

static void append(struct text *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    size_t at = text->used < text->capacity ? text->used : text->capacity;
    int more = vsnprintf(text->capacity > 0 ? text->data + at : NULL, text->capacity - at, format,
                         arguments);
    va_end(arguments);
    if (more > 0) text->used += (size_t)more;
}

static void note_used(const struct weir__slices *slices, bool used[WEIR__OP_COUNT]) {
    for (uint32_t kind = 0; kind < WEIR__PROGRAM_COUNT; kind++)
        for (uint32_t i = 0; i < slices->node_counts[kind]; i++)
            used[slices->graph->nodes[slices->nodes[kind][i]]->op] = true;
}

static uint32_t list_library(const struct weir_net *net, const bool used[WEIR__OP_COUNT],
                             const char *library, struct text *text) {
    uint32_t count = 0;
    for (uint32_t op = 0; op < WEIR__OP_COUNT; op++) {
        if (!used[op]) continue;
        const struct weir__kernel *kernel =
            weir__kernel_for((enum weir__op)op, net->dtype, net->reference);
        if (kernel == NULL || strcmp(kernel->library, library) != 0) continue;
        append(text, "%s%s", count++ == 0 ? "" : ", ", weir__op_name((enum weir__op)op));
    }
    if (count == 0) append(text, "none");
    return count;
}

uint32_t weir_net_kernels(const struct weir_net *net, char *text, size_t capacity) {
    bool used[WEIR__OP_COUNT] = {false};
    struct text out = {text, capacity, 0};
    for (uint32_t s = 0; s < net->network.stage_count; s++) note_used(&net->stages[s].slices, used);
    const char *version = weir__onednn_version();
    if (version[0] != '\0') {
        append(&out, "oneDNN %s: ", version[0] == 'o' ? version + strlen("oneDNN ") : version);
        list_library(net, used, "oneDNN", &out);
        append(&out, "; ");
    }
    append(&out, "vector: ");
    list_library(net, used, "vector", &out);
    append(&out, "; reference: ");
    return list_library(net, used, "reference", &out);
}
