/* SPDX-License-Identifier: MIT */
#include "net/run/entries.h"

#include "pipe/run/pipe.h"

#include <stdio.h>
#include <string.h>

static const char optimizer_prefix[] = "optimizer.";

bool weir__entry_is_state(const char *name) {
    return strncmp(name, optimizer_prefix, strlen(optimizer_prefix)) == 0;
}

size_t weir__entry_bytes(const struct weir__entry *entry, uint64_t elements) {
    assert(elements <= entry->parameter.count);
    return (size_t)elements * weir_dtype_bytes(entry->parameter.dtype);
}

static const char *optimizer_name(struct weir__pool *pool, const struct weir_net *net,
                                  const char *parameter, uint32_t array) {
    char name[320];
    snprintf(name, sizeof name, "%s%s.%s", optimizer_prefix, parameter,
             weir__optimizer_array_name(&net->optimizer, array));
    return weir__pool_text(pool, name);
}

static int add_parameter(struct weir__entries *entries, const struct weir_net *net, uint32_t p) {
    struct weir__entry *entry = &entries->list[entries->count++];
    int status = weir_net_parameter(net, p, &entry->parameter);
    if (status != WEIR_OK) return status;
    entry->name = entry->filed = entry->parameter.name;
    entry->place = entry->parameter.data;
    if (entry->place != NULL) entry->held.count = entry->parameter.count;
    weir__net_optimizer_slice(net, p, &entry->written.begin, &entry->written.count);
    assert(entry->written.begin + entry->written.count <= entry->parameter.count);
    return WEIR_OK;
}

static int add_state(struct weir__entries *entries, const struct weir_net *net, uint32_t p,
                     uint32_t array) {
    const struct weir__entry *of = &entries->list[p];
    struct weir__entry *entry = &entries->list[entries->count++];
    entry->parameter = of->parameter;
    entry->name = optimizer_name(&entries->pool, net, of->name, array);
    entry->filed = entry->name;
    entry->place = of->parameter.optimizer[array];
    entry->held = entry->written = of->written;
    return entry->name != NULL ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

static int add_entries(struct weir__entries *entries, const struct weir_net *net, uint32_t arrays) {
    uint32_t count = weir_net_parameter_count(net);
    for (uint32_t p = 0; p < count; p++) {
        int status = add_parameter(entries, net, p);
        if (status != WEIR_OK) return status;
    }
    for (uint32_t p = 0; p < count; p++) {
        /* What is frozen has no state. */
        uint32_t own = entries->list[p].parameter.frozen ? 0 : arrays;
        for (uint32_t a = 0; a < own; a++) {
            int status = add_state(entries, net, p, a);
            if (status != WEIR_OK) return status;
        }
    }
    return WEIR_OK;
}

int weir__entries_init(struct weir__entries *entries, const struct weir_net *net, bool all) {
    uint32_t arrays = all && !net->infer_only ? weir__optimizer_arrays(&net->optimizer) : 0;
    *entries = (struct weir__entries){.count = 0};
    weir__pool_init(&entries->pool, net->allocator);
    size_t most = (size_t)weir_net_parameter_count(net) * (1 + arrays);
    entries->list = weir__pool_take(&entries->pool, most, sizeof entries->list[0]);
    int status = entries->list == NULL ? WEIR_ERR_OUT_OF_MEMORY : add_entries(entries, net, arrays);
    if (status != WEIR_OK) weir__pool_clean_up(&entries->pool);
    return status;
}

bool weir__entries_name(struct weir__entries *entries) {
    weir__name_set_init(&entries->names, &entries->pool);
    for (uint32_t i = 0; i < entries->count; i++) {
        const char *name = entries->list[i].filed;
        bool is_new = weir__name_set_find(&entries->names, name) == WEIR__NO_NAME;
        if (is_new && !weir__name_set_add(&entries->names, name, i)) return false;
    }
    return true;
}

/** "base_model.model." and the name that transformers have for it, whose GPT-2 calls what stands
 * below its head "transformer". */
static const char *peft_name(struct weir__entries *entries, const struct weir_net *net,
                             const struct weir_parameter *parameter) {
    const struct weir_layer *layer = net->network.model->layers[parameter->layer];
    bool gpt = layer->type->prefix == WEIR_PREFIX_ORDINAL;
    char name[320];
    snprintf(name, sizeof name, "base_model.model.%s%s", gpt ? "transformer." : "",
             parameter->name);
    return weir__pool_text(&entries->pool, name);
}

bool weir__entries_file_adapters(struct weir__entries *entries, const struct weir_net *net) {
    for (uint32_t i = 0; i < entries->count; i++) {
        struct weir__entry *entry = &entries->list[i];
        if (entry->parameter.adapter) entry->filed = peft_name(entries, net, &entry->parameter);
        if (entry->filed == NULL) return false;
    }
    return true;
}

int weir__entries_place(struct weir__entries *entries, const struct weir_net *net, bool copies) {
    for (uint32_t i = 0; i < entries->count; i++) {
        struct weir__entry *entry = &entries->list[i];
        entry->data = entry->place;
        if (entry->held.count == 0 || entry->parameter.mapped) continue;
        if (!copies && !net->stages[entry->parameter.stage].plan.backend->on_gpu) continue;
        size_t bytes = weir__entry_bytes(entry, entry->held.count);
        entry->data = weir__pool_take(&entries->pool, bytes, 1);
        if (entry->data == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    }
    return WEIR_OK;
}

int weir__entries_read(const struct weir__entries *entries, const struct weir_net *net,
                       struct weir_error *error) {
    for (uint32_t i = 0; i < entries->count; i++) {
        const struct weir__entry *entry = &entries->list[i];
        if (entry->data == entry->place) continue;
        int status = weir__pipe_read_own(net->pipe, entry->parameter.stage, entry->data,
                                         entry->place, weir__entry_bytes(entry, entry->held.count));
        if (status != WEIR_OK)
            return weir__fail(error, status, "parameters cannot be read from their device: %s",
                              weir_status_text(status));
    }
    return WEIR_OK;
}

uint64_t weir__entries_bytes(const struct weir__entries *entries) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < entries->count; i++)
        if (!entries->list[i].parameter.mapped)
            bytes += weir__entry_bytes(&entries->list[i], entries->list[i].held.count);
    return bytes;
}
