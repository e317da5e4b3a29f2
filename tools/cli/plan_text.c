/* SPDX-License-Identifier: MIT */
/* Bytes in full for checking, and in short next to them for reading. */
#include "cli/plan_text.h"

#include "cli/json_text.h"

#include <inttypes.h>

const char *plan_text_bytes(uint64_t bytes, char text[24]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1024.0 && unit < 4) value /= 1024.0, unit++;
    snprintf(text, 24, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
    return text;
}

struct text_part {
    const char *name;
    size_t offset;
};

#define PART(member)                                                                               \
    { #member, offsetof(struct weir_device_plan, member) }
static const struct text_part parts[] = {PART(parameters),  PART(gradients), PART(optimizer),
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

/* ---- over the step ---- */

enum { CHART_COLUMNS = 60 };

/* The most that is in use in a column's time. */
static uint64_t column_most(const struct weir_plan_curve *curve, double from, double to) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < curve->point_count && curve->points[i].time < to; i++) {
        bool over = i + 1 < curve->point_count && curve->points[i + 1].time <= from;
        if (!over && curve->points[i].bytes > most) most = curve->points[i].bytes;
    }
    return most;
}

static void print_curve(FILE *to, const struct weir_plan *plan, uint32_t d) {
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const struct weir_plan_curve *curve = &plan->curves[d];
    uint64_t total = plan->devices[d].total;
    double width = plan->makespan / CHART_COLUMNS;
    char text[24];
    fprintf(to, "%-12s ", plan->devices[d].name);
    for (int c = 0; c < CHART_COLUMNS; c++) {
        uint64_t most = column_most(curve, c * width, (c + 1) * width);
        uint64_t level = total > 0 ? (8 * most + total - 1) / total : 0;
        fputs(blocks[level < 8 ? level : 8], to);
    }
    fprintf(to, " of %s\n", plan_text_bytes(total, text));
}

void plan_text_print_curves(FILE *to, const struct weir_plan *plan) {
    if (plan->makespan <= 0.0) return;
    fprintf(to, "\nin use over the step, %g forwards long\n", plan->makespan);
    for (uint32_t d = 0; d < plan->device_count; d++) print_curve(to, plan, d);
}

void plan_text_print_receives(FILE *to, const struct weir_plan *plan) {
    static const char *const names[] = {"one each", "handed on", "at once"};
    fprintf(to, "\n%-12s", "receive slots");
    for (int i = 0; i < 3; i++) {
        fprintf(to, "%s%-12s", i > 0 ? "" : "\n", names[i]);
        for (uint32_t d = 0; d < plan->device_count; d++) {
            const struct weir_plan_receive *receive = &plan->receives[d];
            const uint32_t counts[] = {receive->each, receive->slots, receive->most};
            fprintf(to, " %15" PRIu32, counts[i]);
        }
        fputc('\n', to);
    }
}

static bool has_copies(const struct weir_plan *plan) {
    uint64_t all = 0;
    for (uint32_t d = 0; d < plan->device_count; d++)
        all += (uint64_t)plan->copies[d].by_engine + plan->copies[d].by_kernel +
               plan->copies[d].batched;
    return all > 0;
}

void plan_text_print_copies(FILE *to, const struct weir_plan *plan) {
    static const char *const names[] = {"by engine", "by kernel", "batched", "launches"};
    if (!has_copies(plan)) return;
    fprintf(to, "\n%-12s\n", "copies of a step");
    for (int i = 0; i < 4; i++) {
        fprintf(to, "%-12s", names[i]);
        for (uint32_t d = 0; d < plan->device_count; d++) {
            const struct weir_plan_copies *copies = &plan->copies[d];
            const uint32_t counts[] = {copies->by_engine, copies->by_kernel, copies->batched,
                                       copies->launches};
            fprintf(to, " %15" PRIu32, counts[i]);
        }
        fputc('\n', to);
    }
}

void plan_text_print_pinned(FILE *to, const struct weir_plan *plan) {
    static const char *const names[] = {"staging", "hops", "numbers"};
    uint64_t all = 0;
    for (uint32_t d = 0; d < plan->device_count; d++)
        all += plan->pinned[d].staging + plan->pinned[d].hops + plan->pinned[d].numbers;
    if (all == 0) return;
    fprintf(to, "\npinned on the host\n");
    for (int i = 0; i < 3; i++) {
        fprintf(to, "%-12s", names[i]);
        for (uint32_t d = 0; d < plan->device_count; d++) {
            const struct weir_plan_pinned *pinned = &plan->pinned[d];
            const uint64_t bytes[] = {pinned->staging, pinned->hops, pinned->numbers};
            fprintf(to, " %15" PRIu64, bytes[i]);
        }
        fputc('\n', to);
    }
}

static json_t *json_points(const struct weir_plan_curve *curve) {
    json_t *points = json_array();
    for (uint32_t i = 0; i < curve->point_count; i++)
        json_array_append_new(
            points, json_pack("[f, I]", curve->points[i].time, (json_int_t)curve->points[i].bytes));
    return points;
}

json_t *plan_json_devices(const struct weir_plan *plan) {
    json_t *devices = json_array();
    for (uint32_t d = 0; d < plan->device_count; d++) {
        json_t *device = json_pack("{s:s}", "name", plan->devices[d].name);
        for (int i = 0; i < PARTS; i++)
            json_object_set_new(device, parts[i].name,
                                json_integer((json_int_t)part_bytes(&plan->devices[d], i)));
        const struct weir_plan_receive *receive = &plan->receives[d];
        json_object_set_new(device, "receive_slots",
                            json_pack("{s:i, s:i, s:i}", "each", (int)receive->each, "slots",
                                      (int)receive->slots, "most", (int)receive->most));
        const struct weir_plan_copies *copies = &plan->copies[d];
        json_object_set_new(device, "copies",
                            json_pack("{s:i, s:i, s:i, s:i}", "by_engine", (int)copies->by_engine,
                                      "by_kernel", (int)copies->by_kernel, "batched",
                                      (int)copies->batched, "launches", (int)copies->launches));
        const struct weir_plan_pinned *pinned = &plan->pinned[d];
        json_object_set_new(device, "pinned",
                            json_pack("{s:I, s:I, s:I}", "staging", (json_int_t)pinned->staging,
                                      "hops", (json_int_t)pinned->hops, "numbers",
                                      (json_int_t)pinned->numbers));
        json_object_set_new(device, "memory", json_points(&plan->curves[d]));
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
