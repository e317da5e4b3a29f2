/* SPDX-License-Identifier: MIT */
/* Bytes in full for checking, and in short next to them for reading. */
#include "plan_text.h"

#include "json_text.h"

#include <inttypes.h>

const char *plan_text_bytes(uint64_t bytes, char text[24]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1024.0 && unit < 4) value /= 1024.0, unit++;
    snprintf(text, 24, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
    return text;
}

struct part {
    const char *name;
    size_t offset;
};

#define PART(member)                                                                               \
    { #member, offsetof(struct weir_device_plan, member) }
static const struct part parts[] = {PART(parameters),  PART(gradients), PART(optimizer),
                                    PART(activations), PART(borders),   PART(portals),
                                    PART(workspace),   PART(padding),   PART(total)};
enum { PARTS = sizeof parts / sizeof parts[0] };

static uint64_t part_bytes(const struct weir_device_plan *device, int i) {
    return *(const uint64_t *)((const char *)device + parts[i].offset);
}

void plan_text_print(FILE *to, const struct weir_plan *plan) {
    fprintf(to, "%-12s", "bytes");
    for (uint32_t d = 0; d < plan->device_count; d++) fprintf(to, " %15s", plan->devices[d].name);
    fputc('\n', to);
    for (int i = 0; i < PARTS; i++) {
        fprintf(to, "%-12s", parts[i].name);
        for (uint32_t d = 0; d < plan->device_count; d++)
            fprintf(to, " %15" PRIu64, part_bytes(&plan->devices[d], i));
        fputc('\n', to);
    }
    fprintf(to, "%-12s", "");
    for (uint32_t d = 0; d < plan->device_count; d++) {
        char text[24];
        fprintf(to, " %15s", plan_text_bytes(plan->devices[d].total, text));
    }
    fputc('\n', to);
}

json_t *plan_json_devices(const struct weir_plan *plan) {
    json_t *devices = json_array();
    for (uint32_t d = 0; d < plan->device_count; d++) {
        json_t *device = json_pack("{s:s}", "name", plan->devices[d].name);
        for (int i = 0; i < PARTS; i++)
            json_object_set_new(device, parts[i].name,
                                json_integer((json_int_t)part_bytes(&plan->devices[d], i)));
        json_array_append_new(devices, device);
    }
    return devices;
}

json_t *plan_json_pipeline(const struct pipe_options *options, const struct weir_net_options *net,
                           uint32_t workers) {
    json_t *balance = json_array();
    for (uint32_t s = 0; net->balance != NULL && s < net->stages; s++)
        json_array_append_new(balance, json_integer(net->balance[s]));
    return json_pack("{s:i, s:o, s:i, s:i, s:i, s:o, s:s, s:s, s:s, s:i, s:I}", "stages",
                     (int)net->stages, "balance", balance, "workers", (int)workers,
                     "virtual_stages", (int)pipe_virtual_stages(options), "chunks",
                     (int)options->chunks, "schedule", json_text_string(options->schedule),
                     "checkpoint", pipe_checkpoint_text(options), "recompute",
                     pipe_recompute_text(options), "dtype", pipe_dtype_text(options),
                     "threads_per_stage", (int)options->threads_per_stage, "memory_limit",
                     (json_int_t)options->memory_limit);
}
