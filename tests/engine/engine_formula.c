/* SPDX-License-Identifier: MIT */
/* The formula of engine_stages.h, forth and back. Everything is computed in f64 and in one fixed
 * order, so that equal bits mean equal inputs. */
#include "engine/engine_formula.h"

#include <string.h>

#define MAGIC 0x7765697273617665u

/* What stands at the head of a saved area. */
struct saved {
    uint64_t magic, mini_batch;
    uint32_t stage, micro_batch;
    int64_t rows;
    uint64_t hash; /* of all that follows but dh of h's area, which backward writes */
    uint64_t unused[3];
};
_Static_assert(sizeof(struct saved) == 64, "what follows is aligned");

/* Places in an area, in doubles after its head. All parts lie in `saved`; of a stage that parts its
 * areas x lies there, the others in saved_for_input, and dh, once I has made it, alone in
 * left_for_weight as well. */
struct layout {
    size_t h[ENGINE_PORTS_MAX]; /* per produced tensor: rows * width */
    size_t x[ENGINE_PORTS_MAX]; /* per consumed tensor, unless inputs are kept */
    size_t error;               /* of output 0, where there is a loss */
    size_t kept;                /* end of what forward writes in h's area */
    size_t dh, dh_count;        /* as h */
    size_t end;
    size_t x_end; /* of x's area, where it is another */
};

/* ---- numbers ---- */

static bool is_float(const struct engine_port *port) {
    return weir_dtype_is_float(port->tensor.dtype);
}

static double load_float(const struct engine_port *port, const void *data, int64_t i) {
    return port->tensor.dtype == WEIR_F32 ? (double)((const float *)data)[i]
                                          : ((const double *)data)[i];
}

static uint64_t load_integer(const struct engine_port *port, const void *data, int64_t i) {
    if (port->tensor.dtype == WEIR_I64) return (uint64_t)((const int64_t *)data)[i];
    return ((const uint8_t *)data)[i];
}

static void store_float(const struct engine_port *port, void *data, int64_t i, double value) {
    if (port->tensor.dtype == WEIR_F32)
        ((float *)data)[i] = (float)value;
    else
        ((double *)data)[i] = value;
}

static void store_integer(const struct engine_port *port, void *data, int64_t i, uint64_t value) {
    if (port->tensor.dtype == WEIR_I64)
        ((int64_t *)data)[i] = (int64_t)value;
    else
        ((uint8_t *)data)[i] = (uint8_t)(port->tensor.dtype == WEIR_BOOL ? value & 1 : value);
}

static double coefficient(uint32_t stage, uint32_t o, uint32_t c) {
    return 0.3 + 0.07 * (double)((stage * 5 + o * 3 + c * 2) % 11);
}

static double squash(double h) {
    return h / (1.0 + h * h);
}

static double squash_slope(double h) {
    return (1.0 - h * h) / ((1.0 + h * h) * (1.0 + h * h));
}

/* The use that the stage's parameter `index` belongs to, or NULL. */
static const struct weir_tie *use_of(const struct engine_stage *stage, uint32_t index) {
    size_t at = index * sizeof(double);
    for (uint32_t i = 0; i < stage->tie_count; i++) {
        const struct weir_tie *tie = &stage->ties[i];
        if (at >= tie->gradient_offset && at - tie->gradient_offset < tie->bytes) return tie;
    }
    return NULL;
}

/* The first use of that name, and its stage. */
static const struct weir_tie *first_use(const struct engine_model *model, const char *name,
                                        uint32_t *stage) {
    for (*stage = 0; *stage < model->stage_count; ++*stage)
        for (uint32_t i = 0; i < model->stages[*stage].tie_count; i++)
            if (strcmp(model->stages[*stage].ties[i].name, name) == 0)
                return &model->stages[*stage].ties[i];
    return NULL;
}

double engine_initial_parameter(const struct engine_model *model, uint32_t stage, uint32_t index) {
    const struct weir_tie *use = use_of(&model->stages[stage], index), *first;
    if (use != NULL && (first = first_use(model, use->name, &stage)) != NULL)
        index += (uint32_t)(first->gradient_offset / sizeof(double)) -
                 (uint32_t)(use->gradient_offset / sizeof(double));
    return 0.4 + 0.1 * (double)((stage * 7 + index * 3) % 10) / 3.0;
}

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

/* ---- the formula ---- */

const void *engine_consumed_data(const struct engine_port *port, const struct weir_task *task) {
    return port->skip ? task->skips[port->place].data : task->inputs[port->place].data;
}

static int64_t at_row(const struct engine_port *port, int64_t row, int64_t e) {
    return (port->replicated ? 0 : row * port->width) + e % port->width;
}

/* x of consumed tensor c, from where backward finds it (x not NULL), or from the task. */
static double operand(const struct engine_stage *stage, const struct weir_task *task, uint32_t c,
                      const double *x, int64_t row, int64_t e) {
    const struct engine_port *port = &stage->consumed[c];
    if (x != NULL) return x[row * port->width + e % port->width];
    return load_float(port, engine_consumed_data(port, task), at_row(port, row, e));
}

static bool enters_h(const struct engine_port *port) {
    return !port->empty && !port->added && is_float(port);
}

static double factor(const struct engine_stage *stage, const double *p, uint32_t o, uint32_t c,
                     int64_t e) {
    double k = coefficient(stage->index, o, c);
    return stage->parameters > 0 ? k * p[(uint64_t)(e + 3 * c + o) % stage->parameters] : k;
}

static double mix(const struct engine_stage *stage, const struct weir_task *task, uint32_t o,
                  int64_t row, int64_t e) {
    double h = 0.01 * (double)(stage->index + 1) + 0.003 * o;
    for (uint32_t c = 0; c < stage->consumed_count; c++) {
        const struct engine_port *port = &stage->consumed[c];
        if (port->empty || port->added) continue;
        if (enters_h(port)) {
            h += factor(stage, task->parameters, o, c, e) *
                 operand(stage, task, c, NULL, row, e + o);
        } else {
            const void *data = engine_consumed_data(port, task);
            h += 0.01 * (double)(load_integer(port, data, at_row(port, row, e + o)) % 16);
        }
    }
    return h;
}

static double added(const struct engine_stage *stage, const struct weir_task *task, uint32_t o,
                    int64_t row, int64_t e) {
    double y = 0.0;
    for (uint32_t c = 0; c < stage->consumed_count; c++) {
        const struct engine_port *port = &stage->consumed[c];
        if (!port->added || port->empty) continue;
        y += 0.125 * load_float(port, engine_consumed_data(port, task), at_row(port, row, e + o));
    }
    return y;
}

static uint64_t add_integers(const struct engine_stage *stage, const struct weir_task *task,
                             uint32_t o, int64_t row, int64_t e) {
    uint64_t sum = stage->index + 3 * o + (uint64_t)e;
    for (uint32_t c = 0; c < stage->consumed_count; c++) {
        const struct engine_port *port = &stage->consumed[c];
        if (port->empty || is_float(port)) continue;
        sum += load_integer(port, engine_consumed_data(port, task), at_row(port, row, e + o));
    }
    return sum;
}

/* The first integer tensor that the stage consumes is its labels. */
static double target(const struct engine_stage *stage, const struct weir_task *task, int64_t row,
                     int64_t e) {
    for (uint32_t c = 0; c < stage->consumed_count; c++) {
        const struct engine_port *port = &stage->consumed[c];
        if (port->empty || is_float(port)) continue;
        const void *data = engine_consumed_data(port, task);
        return 0.05 * (double)(load_integer(port, data, at_row(port, row, e)) % 8);
    }
    return 0.25;
}

/* ---- the saved area ---- */

static struct layout layout_of(const struct engine_stage *stage, int64_t rows) {
    struct layout layout = {0};
    size_t at = 0, n = (size_t)rows;
    for (uint32_t o = 0; o < stage->produced_count; o++) {
        layout.h[o] = at;
        if (is_float(&stage->produced[o])) at += n * (size_t)stage->produced[o].width;
    }
    layout.dh_count = at;
    size_t *x_at = stage->parts_areas ? &layout.x_end : &at;
    for (uint32_t c = 0; c < stage->consumed_count; c++) {
        layout.x[c] = *x_at;
        if (!stage->keeps_inputs && enters_h(&stage->consumed[c]))
            *x_at += n * (size_t)stage->consumed[c].width;
    }
    layout.error = at;
    if (stage->loss_scale != 0.0) at += n * (size_t)stage->produced[0].width;
    layout.kept = at;
    layout.dh = at;
    layout.end = at + layout.dh_count;
    return layout;
}

static size_t area_bytes(size_t doubles) {
    return sizeof(struct saved) + doubles * sizeof(double);
}

void engine_measure_areas(struct engine_stage *stage, int64_t rows,
                          struct weir_stage_bytes *bytes) {
    struct layout layout = layout_of(stage, rows);
    bytes->saved = area_bytes(stage->parts_areas ? layout.x_end : layout.end);
    if (!stage->parts_areas) return;
    if (!stage->lists_areas) {
        bytes->saved_for_input = area_bytes(layout.end);
        bytes->left_for_weight = area_bytes(layout.dh_count);
        return;
    }
    if (!EXPECT(rows < ENGINE_ROWS_MAX)) return;
    struct weir_area *areas = stage->areas[rows];
    areas[0] = (struct weir_area){area_bytes(layout.end), WEIR_AREA_SAVED_FOR_INPUT};
    areas[1] = (struct weir_area){area_bytes(layout.dh_count), WEIR_AREA_LEFT_FOR_WEIGHT};
    areas[2] = (struct weir_area){area_bytes(layout.x_end), WEIR_AREA_SAVED};
    bytes->saved = area_bytes(0);
    bytes->areas = areas, bytes->area_count = 3;
}

static void *for_both(const struct engine_stage *stage, const struct weir_task *task) {
    return stage->lists_areas ? task->areas[2] : task->saved;
}

static void *for_input(const struct engine_stage *stage, const struct weir_task *task) {
    return stage->lists_areas ? task->areas[0] : task->saved_for_input;
}

static void *for_weight(const struct engine_stage *stage, const struct weir_task *task) {
    return stage->lists_areas ? task->areas[1] : task->left_for_weight;
}

static double *doubles(void *area) {
    return (double *)(void *)((char *)area + sizeof(struct saved));
}

static double *x_area(const struct engine_stage *stage, const struct weir_task *task) {
    return doubles(for_both(stage, task));
}

/* Of h, error and dh. */
static double *h_area(const struct engine_stage *stage, const struct weir_task *task) {
    return doubles(stage->parts_areas ? for_input(stage, task) : task->saved);
}

static void seal(const struct engine_stage *stage, const struct weir_task *task, void *area,
                 size_t count) {
    uint64_t hash = hash_bytes(1, doubles(area), count * sizeof(double));
    *(struct saved *)area = (struct saved){
        MAGIC, task->mini_batch, stage->index, task->micro_batch, task->rows, hash, {0}};
}

static void save_inputs(const struct engine_stage *stage, const struct weir_task *task,
                        const struct layout *layout) {
    double *to = x_area(stage, task);
    for (uint32_t c = 0; c < stage->consumed_count && !stage->keeps_inputs; c++) {
        const struct engine_port *port = &stage->consumed[c];
        if (!enters_h(port)) continue;
        for (int64_t r = 0; r < task->rows; r++)
            for (int64_t e = 0; e < port->width; e++)
                to[layout->x[c] + (size_t)(r * port->width + e)] =
                    operand(stage, task, c, NULL, r, e);
    }
    if (stage->parts_areas) seal(stage, task, for_both(stage, task), layout->x_end);
    if (stage->lists_areas) seal(stage, task, task->saved, 0);
}

static void save(const struct engine_stage *stage, const struct weir_task *task) {
    struct layout layout = layout_of(stage, task->rows);
    double *to = h_area(stage, task);
    save_inputs(stage, task, &layout);
    for (uint32_t o = 0; o < stage->produced_count; o++) {
        const struct engine_port *port = &stage->produced[o];
        if (!is_float(port)) continue;
        for (int64_t r = 0; r < task->rows; r++)
            for (int64_t e = 0; e < port->width; e++)
                to[layout.h[o] + (size_t)(r * port->width + e)] = mix(stage, task, o, r, e);
    }
    int64_t width = stage->loss_scale != 0.0 ? stage->produced[0].width : 0;
    for (int64_t i = 0; i < task->rows * width; i++)
        to[layout.error + (size_t)i] =
            squash(to[layout.h[0] + (size_t)i]) - target(stage, task, i / width, i % width);
    /* the whole area is this call's from now on: whoever still reads what lay there must see it */
    memset(&to[layout.dh], 0xFF, layout.dh_count * sizeof *to);
    seal(stage, task, stage->parts_areas ? for_input(stage, task) : task->saved, layout.kept);
}

static void check_area(const struct engine_stage *stage, const struct weir_task *task, void *area,
                       size_t count) {
    const struct saved *head = area;
    bool own = head->magic == MAGIC && head->mini_batch == task->mini_batch &&
               head->stage == stage->index && head->micro_batch == task->micro_batch &&
               head->rows == task->rows;
    if (!own)
        engine_note(stage, task, "the saved area is not this micro-batch's");
    else if (hash_bytes(1, doubles(area), count * sizeof(double)) != head->hash)
        engine_note(stage, task, "the saved area was written to");
}

static void check_saved(const struct engine_stage *stage, const struct weir_task *task) {
    struct layout layout = layout_of(stage, task->rows);
    bool parts = stage->parts_areas, weight = task->phase == WEIR_BACKWARD_WEIGHT;
    check_area(stage, task, for_both(stage, task), parts ? layout.x_end : layout.kept);
    if (stage->lists_areas) check_area(stage, task, task->saved, 0);
    if (parts && !weight) check_area(stage, task, for_input(stage, task), layout.kept);
    if (parts && weight) check_area(stage, task, for_weight(stage, task), layout.dh_count);
}

/* What is kept at the border still has what forward saved of it. */
static void check_inputs(const struct engine_stage *stage, const struct weir_task *task) {
    struct layout layout = layout_of(stage, task->rows);
    for (uint32_t c = 0; c < stage->consumed_count && stage->checks_inputs; c++) {
        const struct engine_port *port = &stage->consumed[c];
        for (int64_t i = 0; enters_h(port) && i < task->rows * port->width; i++) {
            double x = operand(stage, task, c, NULL, i / port->width, i % port->width);
            if (memcmp(&x, &x_area(stage, task)[layout.x[c] + (size_t)i], sizeof x) == 0) continue;
            engine_note(stage, task, "consumed tensor %u has changed", c);
            return;
        }
    }
}

/* ---- forward ---- */

void *engine_produced_data(const struct engine_port *port, const struct weir_task *task) {
    return port->skip ? task->skips[port->place].data : task->outputs[port->place].data;
}

static void produce(const struct engine_stage *stage, const struct weir_task *task, uint32_t o) {
    const struct engine_port *port = &stage->produced[o];
    void *data = engine_produced_data(port, task);
    if (port->empty) return;
    for (int64_t r = 0; r < task->rows; r++) {
        for (int64_t e = 0; e < port->width; e++) {
            int64_t at = r * port->width + e;
            if (is_float(port))
                store_float(port, data, at,
                            squash(mix(stage, task, o, r, e)) + added(stage, task, o, r, e));
            else
                store_integer(port, data, at, add_integers(stage, task, o, r, e));
        }
    }
}

static void lose(const struct engine_stage *stage, const struct weir_task *task) {
    double loss = 0.0;
    int64_t width = stage->produced[0].width;
    for (int64_t r = 0; r < task->rows && stage->loss_scale != 0.0; r++) {
        for (int64_t e = 0; e < width; e++) {
            double error = squash(mix(stage, task, 0, r, e)) - target(stage, task, r, e);
            loss += 0.5 * stage->loss_scale * error * error;
        }
    }
    if (stage->loss_scale != 0.0) *task->loss = loss / task->loss_weight;
}

/* ---- backward ---- */

/* What came back for produced tensor o: NULL is zero. */
static const void *arriving(const struct engine_port *port, const struct weir_task *task) {
    return port->skip ? task->skip_grads[port->place].data : task->output_grads[port->place].data;
}

static void check_arriving(const struct engine_stage *stage, const struct weir_task *task) {
    for (uint32_t o = 0; o < stage->produced_count; o++) {
        const struct engine_port *port = &stage->produced[o];
        if ((port->empty || !port->tensor.differentiable) && arriving(port, task) != NULL)
            engine_note(stage, task, "a gradient came for tensor %u, which has none", o);
    }
}

static void find_dh(const struct engine_stage *stage, const struct weir_task *task) {
    struct layout layout = layout_of(stage, task->rows);
    double *saved = h_area(stage, task);
    for (uint32_t o = 0; o < stage->produced_count; o++) {
        const struct engine_port *port = &stage->produced[o];
        if (!is_float(port)) continue;
        const void *dy = port->empty ? NULL : arriving(port, task);
        for (int64_t i = 0; i < task->rows * port->width; i++) {
            size_t at = layout.h[o] + (size_t)i;
            double d = dy != NULL ? load_float(port, dy, i) : 0.0;
            if (o == 0 && stage->loss_scale != 0.0)
                d += stage->loss_scale * saved[layout.error + (size_t)i] / task->loss_weight;
            saved[layout.dh + at] = d * squash_slope(saved[at]);
        }
    }
}

/* d of consumed tensor c at (row, j): over all elements that used it, in order. */
static double input_gradient(const struct engine_stage *stage, const struct weir_task *task,
                             const struct layout *layout, uint32_t c, int64_t r, int64_t j) {
    const struct engine_port *to = &stage->consumed[c];
    double sum = 0.0;
    for (uint32_t o = 0; o < stage->produced_count; o++) {
        const struct engine_port *port = &stage->produced[o];
        if (!is_float(port)) continue;
        const void *dy = port->empty ? NULL : arriving(port, task);
        for (int64_t e = 0; e < port->width; e++) {
            if ((e + o) % to->width != j) continue;
            int64_t i = r * port->width + e;
            if (to->added)
                sum += dy != NULL ? 0.125 * load_float(port, dy, i) : 0.0;
            else
                sum += h_area(stage, task)[layout->dh + layout->h[o] + (size_t)i] *
                       factor(stage, task->parameters, o, c, e);
        }
    }
    return sum;
}

static void give_input_gradient(const struct engine_stage *stage, const struct weir_task *task,
                                uint32_t c) {
    const struct engine_port *port = &stage->consumed[c];
    struct layout layout = layout_of(stage, task->rows);
    void *to =
        port->skip ? task->skip_grads_out[port->place].data : task->input_grads[port->place].data;
    const void *later = port->skip ? task->skip_grads[port->place].data : NULL;
    if (to == NULL) return;
    if (port->empty || !port->tensor.differentiable) {
        engine_note(stage, task, "a gradient is wanted of tensor %u, which has none", c);
        return;
    }
    for (int64_t r = 0; r < task->rows; r++) {
        for (int64_t j = 0; j < port->width; j++) {
            int64_t at = r * port->width + j;
            double own = input_gradient(stage, task, &layout, c, r, j);
            store_float(port, to, at, later != NULL ? load_float(port, later, at) + own : own);
        }
    }
}

static void give_weight_gradients(const struct engine_stage *stage, const struct weir_task *task) {
    struct layout layout = layout_of(stage, task->rows);
    bool left = stage->parts_areas && task->phase == WEIR_BACKWARD_WEIGHT;
    const double *dh = left ? doubles(for_weight(stage, task)) : h_area(stage, task) + layout.dh;
    double *g = task->gradients;
    if (stage->parameters == 0) return;
    if (task->gradients_first) memset(g, 0, stage->parameters * sizeof *g);
    for (uint32_t o = 0; o < stage->produced_count; o++) {
        const struct engine_port *port = &stage->produced[o];
        if (!is_float(port)) continue;
        for (int64_t i = 0; i < task->rows * port->width; i++) {
            int64_t r = i / port->width, e = i % port->width;
            double d = dh[layout.h[o] + (size_t)i];
            for (uint32_t c = 0; c < stage->consumed_count; c++) {
                if (!enters_h(&stage->consumed[c])) continue;
                const double *x = stage->keeps_inputs ? NULL : x_area(stage, task) + layout.x[c];
                g[(uint64_t)(e + 3 * c + o) % stage->parameters] +=
                    d * coefficient(stage->index, o, c) * operand(stage, task, c, x, r, e + o);
            }
        }
    }
}

/* ---- phases ---- */

static void forward(struct engine_stage *stage, const struct weir_task *task) {
    for (uint32_t o = 0; o < stage->produced_count; o++) produce(stage, task, o);
    lose(stage, task);
    if (task->phase == WEIR_FORWARD && !stage->frozen) save(stage, task);
}

static void backward_input(struct engine_stage *stage, const struct weir_task *task) {
    check_saved(stage, task);
    check_arriving(stage, task);
    check_inputs(stage, task);
    find_dh(stage, task);
    for (uint32_t c = 0; c < stage->consumed_count; c++) give_input_gradient(stage, task, c);
}

/* For W: dh in an area of its own, or not at all. */
static void leave_dh(const struct engine_stage *stage, const struct weir_task *task) {
    struct layout layout = layout_of(stage, task->rows);
    double *dh = h_area(stage, task) + layout.dh;
    size_t bytes = layout.dh_count * sizeof *dh;
    if (stage->parts_areas) {
        memcpy(doubles(for_weight(stage, task)), dh, bytes);
        seal(stage, task, for_weight(stage, task), layout.dh_count);
    } else if (stage->reads_grads) {
        memset(dh, 0xFF, bytes);
    }
}

static void backward_weight(struct engine_stage *stage, const struct weir_task *task) {
    check_saved(stage, task);
    if (task->phase == WEIR_BACKWARD_WEIGHT && stage->reads_grads) find_dh(stage, task);
    give_weight_gradients(stage, task);
}

bool engine_owns(const struct engine_stage *stage, uint32_t i) {
    if (stage->model->reference || stage->replicas <= 1) return true;
    size_t at = i * sizeof(double);
    for (uint32_t k = 0; k < stage->section_count; k++) {
        const struct weir_section *section = &stage->sections[k];
        size_t begin, end;
        weir_section_slice(section, stage->replicas, stage->replica, &begin, &end);
        if (at >= section->offset + begin && at < section->offset + end) return true;
    }
    return false;
}

uint32_t engine_norm_count(const struct engine_stage *stage) {
    bool any = stage->parameters > 0 && !stage->fixed && !stage->frozen;
    return !any ? 0 : stage->model->sliced ? stage->parameters : 2;
}

/* What the stage is given of the name. */
static const struct weir_tied *tied_of(const struct engine_stage *stage,
                                       const struct weir_task *task, const char *name) {
    for (uint32_t t = 0; t < task->tied_count; t++)
        if (strcmp(task->tied[t].name, name) == 0) return &task->tied[t];
    engine_note(stage, task, "nothing is given of the tied parameter %s", name);
    return NULL;
}

/* Whether the use is the first of its name, in whose place all are added up. */
static bool is_first(const struct engine_stage *stage, const struct weir_tie *use) {
    uint32_t owner;
    return first_use(stage->model, use->name, &owner) == use;
}

static void add_up(const struct engine_stage *stage, const struct weir_task *task,
                   const struct weir_tie *use) {
    const struct weir_tied *tied = tied_of(stage, task, use->name);
    double *sum = (double *)task->gradients + use->gradient_offset / sizeof(double);
    if (tied == NULL) return;
    if (tied->gradients[0] != sum) engine_note(stage, task, "the first use lies elsewhere");
    for (uint32_t u = 1; u < tied->use_count; u++)
        for (size_t i = 0; i < use->bytes / sizeof(double); i++)
            if (engine_owns(stage, (uint32_t)(use->gradient_offset / sizeof(double) + i)))
                sum[i] += ((const double *)tied->gradients[u])[i];
}

static void norm(const struct engine_stage *stage, const struct weir_task *task) {
    const double *g = task->gradients;
    if (engine_norm_count(stage) == 0) return;
    for (uint32_t i = 0; i < stage->tie_count; i++)
        if (is_first(stage, &stage->ties[i])) add_up(stage, task, &stage->ties[i]);
    uint32_t count = engine_norm_count(stage);
    for (uint32_t i = 0; i < count; i++) task->norm_squares[i] = 0.0;
    for (uint32_t i = 0; i < stage->parameters; i++) {
        const struct weir_tie *use = use_of(stage, i);
        if (!engine_owns(stage, i)) continue;
        if (use == NULL || is_first(stage, use)) task->norm_squares[i % count] += g[i] * g[i];
    }
}

/* The whole gradient of parameter i. */
static double whole_gradient(const struct engine_stage *stage, const struct weir_task *task,
                             uint32_t i) {
    const struct weir_tie *use = use_of(stage, i);
    if (use == NULL) return ((const double *)task->gradients)[i];
    const struct weir_tied *tied = tied_of(stage, task, use->name);
    if (tied == NULL) return 0.0;
    return ((const double *)tied->gradients[0])[i - use->gradient_offset / sizeof(double)];
}

static void update(const struct engine_stage *stage, const struct weir_task *task) {
    double *p = task->parameters, *m = task->optimizer;
    for (uint32_t i = 0; i < stage->parameters; i++) {
        if (!engine_owns(stage, i)) continue;
        m[i] = 0.9 * m[i] + task->gradient_scale * whole_gradient(stage, task, i);
        p[i] -= 0.05 * m[i];
    }
}

void engine_do_phase(struct engine_stage *stage, const struct weir_task *task) {
    switch (task->phase) {
    case WEIR_FORWARD:
    case WEIR_FORWARD_CHECKPOINT:
    case WEIR_INFER: forward(stage, task); break;
    case WEIR_RECOMPUTE: save(stage, task); break;
    case WEIR_BACKWARD:
        backward_input(stage, task);
        backward_weight(stage, task);
        break;
    case WEIR_BACKWARD_INPUT:
        backward_input(stage, task);
        leave_dh(stage, task);
        break;
    case WEIR_BACKWARD_WEIGHT: backward_weight(stage, task); break;
    case WEIR_NORM: norm(stage, task); break;
    case WEIR_UPDATE: update(stage, task); break;
    default: engine_note(stage, task, "an unknown phase"); break;
    }
}
