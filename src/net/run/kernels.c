/* SPDX-License-Identifier: MIT */
/* Which kernels a net runs, for people: ops by library, the fast ones first. */
#include "net/run/net.h"

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

/** Ops by what runs them. */
struct used {
    bool ops[WEIR__OP_COUNT][WEIR__BACKEND_CUDA + 1];
};

static void note_used(const struct weir__slices *slices, enum weir__backend backend,
                      struct used *used) {
    for (uint32_t kind = 0; kind < WEIR__PROGRAM_COUNT; kind++)
        for (uint32_t i = 0; i < slices->node_counts[kind]; i++)
            used->ops[slices->graph->nodes[slices->nodes[kind][i]]->op][backend] = true;
}

static bool is_of(const struct weir_net *net, const struct used *used, uint32_t op,
                  const char *library) {
    for (uint32_t backend = 0; backend <= WEIR__BACKEND_CUDA; backend++) {
        if (!used->ops[op][backend]) continue;
        const struct weir__kernel *kernel =
            weir__kernel_for((enum weir__op_code)op, net->dtype, (enum weir__backend)backend);
        if (kernel != NULL && strcmp(kernel->library, library) == 0) return true;
    }
    return false;
}

static uint32_t list_library(const struct weir_net *net, const struct used *used,
                             const char *library, struct text *text) {
    uint32_t count = 0;
    for (uint32_t op = 0; op < WEIR__OP_COUNT; op++)
        if (is_of(net, used, op, library))
            append(text, "%s%s", count++ == 0 ? "" : ", ", weir__op_name((enum weir__op_code)op));
    if (count == 0) append(text, "none");
    return count;
}

static void list_gpu(const struct weir_net *net, const struct used *used, struct text *text) {
    static const char *const libraries[] = {"cuBLASLt", "cuDNN", "CUDA"};
    for (size_t i = 0; i < WEIR__COUNT_OF(libraries); i++) {
        append(text, "%s: ", libraries[i]);
        list_library(net, used, libraries[i], text);
        append(text, "; ");
    }
}

uint32_t weir_net_kernels(const struct weir_net *net, char *text, size_t capacity) {
    struct used used = {0};
    struct text out = {text, capacity, 0};
    bool gpu = false;
    for (uint32_t s = 0; s < net->network.stage_count; s++) {
        note_used(&net->stages[s].slices, net->stages[s].plan.backend, &used);
        gpu |= net->stages[s].plan.backend == WEIR__BACKEND_CUDA;
    }
    if (gpu) list_gpu(net, &used, &out);
    const char *version = weir__onednn_version();
    if (version[0] != '\0') {
        append(&out, "oneDNN %s: ", version[0] == 'o' ? version + strlen("oneDNN ") : version);
        list_library(net, &used, "oneDNN", &out);
        append(&out, "; ");
    }
    append(&out, "vector: ");
    list_library(net, &used, "vector", &out);
    append(&out, "; reference: ");
    return list_library(net, &used, "reference", &out);
}
