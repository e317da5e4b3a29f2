/* SPDX-License-Identifier: MIT */
/* Which kernels a net runs, for people: ops by library, the fast ones first. */
#include "net/run/net.h"

#include "net/cpu/level.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct text {
    char *data;
    size_t capacity;
    size_t used; /* what the whole needs, written or not */
};

static void append(struct text *text, const char *format, ...) {
    assert(text->capacity == 0 || text->data != NULL);
    va_list arguments;
    va_start(arguments, format);
    size_t at = text->used < text->capacity ? text->used : text->capacity;
    int more = vsnprintf(text->capacity > 0 ? text->data + at : NULL, text->capacity - at, format,
                         arguments);
    va_end(arguments);
    if (more > 0) text->used += (size_t)more;
}

static void note_used(const struct weir_net *net, uint32_t s, const char *library, bool *used) {
    const struct weir__slices *slices = &net->stages[s].slices;
    for (uint32_t kind = 0; kind < WEIR__PROGRAM_COUNT; kind++)
        for (uint32_t i = 0; i < slices->node_counts[kind]; i++) {
            enum weir__op_code op = slices->graph->nodes[slices->nodes[kind][i]]->op;
            const struct weir__kernel *kernel = net->backends[s]->kernel(op, net->dtype);
            used[op] |= kernel != NULL && strcmp(kernel->library, library) == 0;
        }
}

static bool uses(const struct weir_net *net, const char *library, bool used[WEIR__OP_COUNT]) {
    bool any = false;
    for (uint32_t s = 0; s < net->network.stage_count; s++) note_used(net, s, library, used);
    for (uint32_t op = 0; op < WEIR__OP_COUNT; op++) any |= used[op];
    return any;
}

static uint32_t list_library(const struct weir_net *net, const char *library, struct text *text) {
    bool used[WEIR__OP_COUNT] = {false};
    uint32_t count = 0;
    uses(net, library, used);
    for (uint32_t op = 0; op < WEIR__OP_COUNT; op++)
        if (used[op])
            append(text, "%s%s", count++ == 0 ? "" : ", ", weir__op_name((enum weir__op_code)op));
    if (count == 0) append(text, "none");
    return count;
}

static void list_gpu(const struct weir_net *net, struct text *text) {
    static const char *const libraries[] = {"cuBLASLt", "cuDNN", "CUDA"};
    for (size_t i = 0; i < WEIR__COUNT_OF(libraries); i++) {
        append(text, "%s: ", libraries[i]);
        list_library(net, libraries[i], text);
        append(text, "; ");
    }
}

uint32_t weir_net_kernels(const struct weir_net *net, char *text, size_t capacity) {
    struct text out = {text, capacity, 0};
    bool gpu = false;
    for (uint32_t s = 0; s < net->network.stage_count; s++) gpu |= net->backends[s]->on_gpu;
    if (gpu) list_gpu(net, &out);
    append(&out, "vector (%s): ", net->level->name);
    list_library(net, "vector", &out);
    append(&out, "; reference: ");
    return list_library(net, "reference", &out);
}
