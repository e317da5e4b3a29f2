/* SPDX-License-Identifier: MIT */
/* Bytes in full for checking, and in short next to them for reading. */
#include "cli/plan_text.h"

#include "cli/json_text.h"
#include "pipe/describe/groups.h"

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

/* ---- tables with a column per device ---- */

/* The number of a device in row `row`. */
typedef uint64_t value_fn(const struct weir_plan *plan, uint32_t device, uint32_t row);

enum { NAME_COLUMNS = 19, CELL_COLUMNS = 16 };

struct plan_table {
    const char *title;
    const char *const *names; /**< of the rows */
    uint32_t rows;
    value_fn *value;
    value_fn *in_short; /**< of the last row, which is bytes; or NULL */
};

static void print_rows(FILE *to, const struct plan_table *table, const struct weir_plan *plan,
                       uint32_t first, uint32_t end) {
    fprintf(to, "%-*s", NAME_COLUMNS, table->title);
    for (uint32_t d = first; d < end; d++) fprintf(to, " %15s", plan->devices[d].name);
    for (uint32_t i = 0; i < table->rows; i++) {
        fprintf(to, "\n%-*s", NAME_COLUMNS, table->names[i]);
        for (uint32_t d = first; d < end; d++) fprintf(to, " %15" PRIu64, table->value(plan, d, i));
    }
    fputc('\n', to);
    if (table->in_short == NULL) return;
    char text[24];
    fprintf(to, "%-*s", NAME_COLUMNS, "");
    for (uint32_t d = first; d < end; d++)
        fprintf(to, " %15s", plan_text_bytes(table->in_short(plan, d, table->rows - 1), text));
    fputc('\n', to);
}

/* As many devices beside each other as the terminal allows, the others below. */
static void print_table(const struct people *people, const struct plan_table *table,
                        const struct weir_plan *plan) {
    uint32_t columns = people_columns(people), fit = 1;
    if (columns >= NAME_COLUMNS + 2 * CELL_COLUMNS) fit = (columns - NAME_COLUMNS) / CELL_COLUMNS;
    for (uint32_t first = 0, end; first < plan->device_count; first = end) {
        end = plan->device_count - first < fit ? plan->device_count : first + fit;
        if (first > 0) fputc('\n', people->stream);
        print_rows(people->stream, table, plan, first, end);
    }
}

static uint64_t part_of(const struct weir_plan *plan, uint32_t device, uint32_t row) {
    return part_bytes(&plan->devices[device], (int)row);
}

static uint64_t mapped_of(const struct weir_plan *plan, uint32_t device, uint32_t row) {
    (void)row;
    return plan->devices[device].mapped;
}

/* The system has these in memory while there is room for them. */
static void print_mapped(const struct people *people, const struct weir_plan *plan) {
    static const char *const names[] = {"mapped files"};
    const struct plan_table table = {"besides", names, 1, mapped_of, mapped_of};
    uint64_t all = 0;
    for (uint32_t d = 0; d < plan->device_count; d++) all += plan->devices[d].mapped;
    if (all > 0) print_table(people, &table, plan);
}

void plan_text_print(const struct people *people, const struct weir_plan *plan) {
    const char *names[PARTS];
    for (int i = 0; i < PARTS; i++) names[i] = parts[i].name;
    const struct plan_table table = {"bytes", names, PARTS, part_of, part_of};
    print_table(people, &table, plan);
    print_mapped(people, plan);
}

/* ---- over the step ---- */

enum { CHART_COLUMNS = 60, CHART_GUTTER = 13, CHART_TAIL = 16 };

/* The most that is in use in a column's time. */
static uint64_t column_most(const struct weir_plan_curve *curve, double from, double to) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < curve->point_count && curve->points[i].time < to; i++) {
        bool over = i + 1 < curve->point_count && curve->points[i + 1].time <= from;
        if (!over && curve->points[i].bytes > most) most = curve->points[i].bytes;
    }
    return most;
}

static void print_curve(FILE *to, uint32_t columns, const struct weir_plan *plan, uint32_t d) {
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const struct weir_plan_curve *curve = &plan->curves[d];
    uint64_t total = plan->devices[d].total;
    double width = plan->makespan / columns;
    char text[24];
    fprintf(to, "%-12s ", plan->devices[d].name);
    for (uint32_t c = 0; c < columns; c++) {
        uint64_t most = column_most(curve, c * width, (c + 1) * width);
        uint64_t level = total > 0 ? (8 * most + total - 1) / total : 0;
        fputs(blocks[level < 8 ? level : 8], to);
    }
    fprintf(to, " of %s\n", plan_text_bytes(total, text));
}

void plan_text_print_curves(const struct people *people, const struct weir_plan *plan) {
    uint32_t columns = people_columns(people);
    if (plan->makespan <= 0.0) return;
    columns = people->terminal ? columns - CHART_GUTTER - CHART_TAIL : CHART_COLUMNS;
    fprintf(people->stream, "\nin use over the step, %g forwards long\n", plan->makespan);
    for (uint32_t d = 0; d < plan->device_count; d++) print_curve(people->stream, columns, plan, d);
}

static uint64_t receive_of(const struct weir_plan *plan, uint32_t device, uint32_t row) {
    const struct weir_plan_receive *receive = &plan->receives[device];
    const uint32_t counts[] = {receive->each, receive->slots, receive->most};
    return counts[row];
}

void plan_text_print_receives(const struct people *people, const struct weir_plan *plan) {
    static const char *const names[] = {"one per tensor", "planned, handed on",
                                        "ever full at once"};
    const struct plan_table table = {"receive slots", names, 3, receive_of, NULL};
    fputc('\n', people->stream);
    people_wrap(people, "",
                "Receive slots are places for tensors that come from other workers. One is handed "
                "on: what was in it has been read, and the next tensor comes into it.");
    print_table(people, &table, plan);
}

static uint64_t copies_of(const struct weir_plan *plan, uint32_t device, uint32_t row) {
    const struct weir_plan_copies *copies = &plan->copies[device];
    const uint32_t counts[] = {copies->by_engine, copies->by_kernel, copies->batched,
                               copies->launches};
    return counts[row];
}

void plan_text_print_copies(const struct people *people, const struct weir_plan *plan) {
    static const char *const names[] = {"by engine", "by kernel", "batched", "launches"};
    const struct plan_table table = {"copies of a step", names, 4, copies_of, NULL};
    uint64_t all = 0;
    for (uint32_t d = 0; d < plan->device_count; d++)
        for (uint32_t i = 0; i < 3; i++) all += copies_of(plan, d, i);
    if (all == 0) return;
    fputc('\n', people->stream);
    print_table(people, &table, plan);
}

static uint64_t pinned_of(const struct weir_plan *plan, uint32_t device, uint32_t row) {
    const struct weir_plan_pinned *pinned = &plan->pinned[device];
    const uint64_t bytes[] = {pinned->staging, pinned->hops, pinned->numbers};
    return bytes[row];
}

void plan_text_print_pinned(const struct people *people, const struct weir_plan *plan) {
    static const char *const names[] = {"staging", "hops", "numbers"};
    const struct plan_table table = {"pinned on the host", names, 3, pinned_of, NULL};
    uint64_t all = 0;
    for (uint32_t d = 0; d < plan->device_count; d++)
        for (uint32_t i = 0; i < 3; i++) all += pinned_of(plan, d, i);
    if (all == 0) return;
    fputc('\n', people->stream);
    print_table(people, &table, plan);
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
        json_object_set_new(device, "mapped", json_integer((json_int_t)plan->devices[d].mapped));
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
    uint32_t replicas = weir__replicas(&net->pipe), groups = weir__gradient_groups(&net->pipe);
    return json_pack("{s:i, s:o, s:i, s:i, s:i, s:i, s:i, s:o, s:s, s:s, s:s, s:i, s:I}", "stages",
                     (int)net->stages, "balance", balance, "workers", (int)(workers * replicas),
                     "replicas", (int)replicas, "gradient_groups", (int)groups, "virtual_stages",
                     (int)pipe_virtual_stages(options), "chunks", (int)options->chunks, "schedule",
                     json_text_string(options->schedule), "checkpoint",
                     pipe_checkpoint_text(options), "recompute", pipe_recompute_text(options),
                     "dtype", pipe_dtype_text(options), "threads_per_stage",
                     (int)options->threads_per_stage, "memory_limit",
                     (json_int_t)options->memory_limit);
}
