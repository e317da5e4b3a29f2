/* SPDX-License-Identifier: MIT */
/*
 * A step as a drawing: a line per worker, a scale, a legend. A pipe's last one, or a predicted one.
 *
 *   update 20: 12.6 ms, 2 workers, 2 stages, 4 micro-batches
 *   worker 0 |F0fffF1fff.....B0bbbbb.F2fff..B1bbbbbF3fff...B2bbbbb......B3bbbbbN| 71%
 *   worker 1 |......F0fffB0bbbbbF1fffB1bbbbb..F2fffB2bbbbb..F3fffB3bbbbb........| 75%
 *             |0                 |4 ms             |8 ms             |12 ms       busy
 *   F forward  B backward  N norm  U update  . waiting
 *
 * A cell shows the action that fills most of it, or a dot where at least half of it was waited.
 * What fills several cells in a row begins with the kind's letter, the micro-batch where it fits
 * (behind the stage and a colon on a worker of several stages), and goes on in small letters. All
 * sums are of whole nanoseconds: the same events give the same drawing everywhere.
 */
#include "trace/timeline.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS_LEAST = 40, COLUMNS_MOST = 1000, TICK_COLUMNS = 12, BUSY_COLUMNS = 5 };

#define WAITING UINT32_MAX

struct timeline {
    const struct weir__timeline *source;
    uint64_t first, span; /* ns */
    uint32_t width;       /* cells of a line */
    uint32_t gutter;      /* columns before them, with the bar */
    uint32_t micro_batches;
    bool seen[WEIR_KIND_COUNT];
    bool several; /* a worker of several stages is there */
    bool colour;
    unsigned background; /* the ANSI colour that is on, 0: none */
    struct weir__text text;
};

/* ---- the step ---- */

static struct weir__timeline_line line_of(const struct timeline *t, uint32_t w) {
    assert(w < t->source->worker_count);
    return t->source->line(t->source->context, w);
}

static const struct weir_trace_event *event_of(const struct weir__timeline_line *line, uint32_t i) {
    assert(i < line->count);
    return &line->events[(line->first + i) % line->capacity];
}

static void survey(struct timeline *t) {
    uint64_t first = UINT64_MAX, last = 0;
    for (uint32_t w = 0; w < t->source->worker_count; w++) {
        struct weir__timeline_line line = line_of(t, w);
        for (uint32_t i = 0; i < line.count; i++) {
            const struct weir_trace_event *event = event_of(&line, i);
            if (event->waited < first) first = event->waited;
            if (event->end > last) last = event->end;
            if (event->action.micro_batch >= t->micro_batches)
                t->micro_batches = event->action.micro_batch + 1;
            t->seen[event->action.kind] = true;
        }
    }
    t->first = first < last ? first : last;
    assert(t->first <= last);
    t->span = last - t->first;
}

/* ---- cells ---- */

static uint64_t overlap(uint64_t a, uint64_t b, uint64_t low, uint64_t high) {
    uint64_t from = a > low ? a : low, to = b < high ? b : high;
    return to > from ? to - from : 0;
}

/* cells[c]: the number of the event that is seen there, or WAITING. */
static void fill_cells(const struct timeline *t, const struct weir__timeline_line *line,
                       uint32_t *cells) {
    assert(0 < t->width && t->width <= COLUMNS_MOST);
    uint32_t from = 0;
    for (uint32_t c = 0; c < t->width; c++) {
        uint64_t low = t->first + t->span * c / t->width;
        uint64_t high = t->first + t->span * (c + 1) / t->width;
        while (from < line->count && event_of(line, from)->end <= low) from++;
        uint64_t busy = 0, most = 0;
        cells[c] = WAITING;
        for (uint32_t i = from; i < line->count; i++) {
            const struct weir_trace_event *event = event_of(line, i);
            if (event->start >= high) break;
            uint64_t part = overlap(event->start, event->end, low, high);
            busy += part;
            if (part > most) most = part, cells[c] = i;
        }
        if (2 * busy <= high - low) cells[c] = WAITING;
    }
}

/* ---- drawing ---- */

static void set_colour(struct timeline *t, unsigned background) {
    if (!t->colour || background == t->background) return;
    if (background == 0)
        weir__text_add(&t->text, "\x1b[0m");
    else
        weir__text_add(&t->text, "\x1b[30;%um", background);
    t->background = background;
}

static void repeat(struct timeline *t, char character, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) weir__text_bytes(&t->text, &character, 1);
}

/* What stands at the beginning of an action's cells: as much as fits, the letter at least. */
static uint32_t label(const struct weir_action *action, bool several, uint32_t room,
                      char text[32]) {
    assert(room > 0);
    const struct weir__kind_facts *kind = &weir__kinds[action->kind];
    unsigned stage = action->stage, micro_batch = action->micro_batch;
    int length = 1;
    if (kind->per_micro_batch && several) {
        length = snprintf(text, 32, "%c%u:%u", kind->letter, stage, micro_batch);
    } else if (kind->per_micro_batch) {
        length = snprintf(text, 32, "%c%u", kind->letter, micro_batch);
    } else if (several) {
        length = snprintf(text, 32, "%c%u", kind->letter, stage);
    } else {
        text[0] = kind->letter;
    }
    return (uint32_t)length <= room ? (uint32_t)length : 1;
}

static void draw_action(struct timeline *t, const struct weir_action *action, bool several,
                        uint32_t run) {
    char text[32];
    uint32_t length = label(action, several, run, text);
    /* neighbouring stages of one worker are told apart by brightness */
    bool bright = several && action->stage % 2 == 1;
    set_colour(t, weir__kinds[action->kind].background + (bright ? 60u : 0u));
    weir__text_bytes(&t->text, text, length);
    repeat(t, (char)tolower((unsigned char)text[0]), run - length);
}

static void draw_cells(struct timeline *t, const struct weir__timeline_line *line) {
    uint32_t cells[COLUMNS_MOST];
    fill_cells(t, line, cells);
    for (uint32_t c = 0, run; c < t->width; c += run) {
        run = 1;
        while (c + run < t->width && cells[c + run] == cells[c]) run++;
        if (cells[c] == WAITING) {
            set_colour(t, 0);
            repeat(t, '.', run);
        } else {
            draw_action(t, &event_of(line, cells[c])->action, line->several, run);
        }
    }
    set_colour(t, 0);
}

static void draw_worker(struct timeline *t, uint32_t w) {
    struct weir__timeline_line line = line_of(t, w);
    uint64_t busy = 0;
    for (uint32_t i = 0; i < line.count; i++) {
        const struct weir_trace_event *event = event_of(&line, i);
        busy += event->end - event->start;
    }
    weir__text_add(&t->text, "worker %-*" PRIu32 "|", (int)t->gutter - 8, w);
    draw_cells(t, &line);
    t->several |= line.several;
    weir__text_add(&t->text, "|%3u%%\n",
                   t->span == 0 ? 0 : (unsigned)((busy * 100 + t->span / 2) / t->span));
}

/* ---- scale and legend ---- */

struct unit {
    const char *name;
    uint64_t ns;
};

/* So that the whole step is at least ten of them. */
static const struct unit *unit_of(uint64_t span) {
    static const struct unit units[] = {
        {"s", 1000000000}, {"ms", 1000000}, {"us", 1000}, {"ns", 1}};
    uint32_t i = 0;
    while (i + 1 < WEIR__COUNT_OF(units) && span < 10 * units[i].ns) i++;
    return &units[i];
}

/* 1, 2 or 5 times a power of ten of the unit, at least TICK_COLUMNS wide. */
static uint64_t tick_of(const struct timeline *t, const struct unit *unit) {
    assert(t->width > 0 && unit->ns > 0);
    static const uint64_t steps[] = {1, 2, 5};
    uint64_t least = t->span * TICK_COLUMNS / t->width, power = unit->ns;
    for (;; power *= 10)
        for (uint32_t i = 0; i < WEIR__COUNT_OF(steps); i++)
            if (steps[i] * power >= least) return steps[i] * power;
}

static void draw_scale(struct timeline *t) {
    const struct unit *unit = unit_of(t->span);
    uint64_t tick = tick_of(t, unit);
    uint32_t at = 0;
    repeat(t, ' ', t->gutter);
    for (uint64_t ns = 0; ns <= t->span; ns += tick) {
        char text[48];
        uint32_t place = t->span == 0 ? 0 : (uint32_t)(ns * t->width / t->span);
        int length =
            ns == 0 ? snprintf(text, sizeof text, "|0")
                    : snprintf(text, sizeof text, "|%" PRIu64 " %s", ns / unit->ns, unit->name);
        if (place + (uint32_t)length > t->width) break;
        assert(at <= place);
        repeat(t, ' ', place - at);
        weir__text_bytes(&t->text, text, (size_t)length);
        at = place + (uint32_t)length;
    }
    repeat(t, ' ', t->width - at);
    weir__text_add(&t->text, " busy\n");
}

/* Cut at the line's width; `used` columns so far. Returns those then used. */
static uint32_t add_entry(struct timeline *t, uint32_t used, unsigned colour, char letter,
                          const char *name) {
    uint32_t columns = t->gutter + t->width + BUSY_COLUMNS;
    uint32_t gap = used == 0 ? 0 : 2, needed = 1 + (uint32_t)strlen(name);
    if (used + gap + needed > columns) {
        weir__text_add(&t->text, "\n");
        used = gap = 0;
    }
    repeat(t, ' ', gap);
    set_colour(t, colour);
    weir__text_bytes(&t->text, &letter, 1);
    set_colour(t, 0);
    weir__text_add(&t->text, "%s", name);
    return used + gap + needed;
}

static uint32_t add_kind(struct timeline *t, uint32_t used, uint32_t kind) {
    char name[48];
    snprintf(name, sizeof name, " %s", weir__kinds[kind].name);
    return add_entry(t, used, weir__kinds[kind].background, weir__kinds[kind].letter, name);
}

static void draw_legend(struct timeline *t) {
    uint32_t used = 0;
    for (uint32_t k = 0; k < WEIR_KIND_COUNT; k++)
        if (t->seen[k]) used = add_kind(t, used, k);
    used = add_entry(t, used, 0, '.', " waiting");
    if (t->several) add_entry(t, used, 0, 'F', "1:2 is stage 1, micro-batch 2");
    weir__text_add(&t->text, "\n");
}

static uint32_t count_digits(uint32_t number) {
    uint32_t count = 1;
    while (number >= 10) number /= 10, count++;
    return count;
}

static void draw_title(struct timeline *t) {
    const struct unit *unit = unit_of(t->span);
    uint64_t whole = t->span / unit->ns, tenth = t->span % unit->ns * 10 / unit->ns;
    uint32_t workers = t->source->worker_count, stages = t->source->stage_count;
    char text[160];
    snprintf(text, sizeof text,
             "%s: %" PRIu64 ".%u %s, %" PRIu32 " worker%s, %" PRIu32 " stage%s, %" PRIu32
             " micro-batch%s",
             t->source->title, whole, (unsigned)tenth, unit->name, workers, weir__s(workers),
             stages, weir__s(stages), t->micro_batches, weir__es(t->micro_batches));
    weir__text_add(&t->text, "%.*s\n", (int)(t->gutter + t->width + BUSY_COLUMNS), text);
}

int weir__timeline_text(const struct weir__timeline *source, uint32_t columns, bool colour,
                        weir_write_fn *write, void *context) {
    assert(source->worker_count > 0);
    struct timeline t = {.source = source, .colour = colour};
    if (columns < COLUMNS_LEAST) columns = COLUMNS_LEAST;
    if (columns > COLUMNS_MOST) columns = COLUMNS_MOST;
    t.gutter = 9 + count_digits(source->worker_count - 1);
    t.width = columns - t.gutter - BUSY_COLUMNS;
    survey(&t);
    weir__text_begin(&t.text, write, context);
    draw_title(&t);
    for (uint32_t w = 0; w < source->worker_count; w++) draw_worker(&t, w);
    draw_scale(&t);
    draw_legend(&t);
    return weir__text_end(&t.text);
}

/* ---- a pipe's last step ---- */

struct last_step {
    const struct weir_pipe *pipe;
    uint64_t step, update;
};

static bool find_last_step(struct last_step *last) {
    bool any = false;
    for (uint32_t w = 0; w < last->pipe->worker_count; w++) {
        const struct weir__worker *worker = &last->pipe->workers[w];
        uint32_t count = weir__trace_count(worker);
        if (count == 0) continue;
        const struct weir_trace_event *event = weir__trace_event_at(worker, count - 1);
        if (!any || event->step > last->step) last->step = event->step;
        if (event->step == last->step) last->update = weir__trace_update(last->pipe, event);
        any = true;
    }
    return any;
}

static bool has_several_stages(const struct weir_pipe *pipe, uint32_t worker) {
    const struct weir__row_plan *prepared = pipe->prepared[0];
    uint32_t count = 0;
    for (uint32_t s = 0; s < prepared->table->stage_count; s++)
        count += prepared->stage_worker[s] == worker;
    return count > 1;
}

static struct weir__timeline_line last_step_line(const void *context, uint32_t w) {
    const struct last_step *last = context;
    const struct weir__worker *worker = &last->pipe->workers[w];
    uint32_t begin = weir__trace_step_begin(worker, last->step);
    uint32_t end = weir__trace_step_begin(worker, last->step + 1);
    uint64_t kept = weir__trace_count(worker);
    return (struct weir__timeline_line){
        .events = worker->events,
        .first = (uint32_t)((worker->event_count - kept + begin) % worker->event_capacity),
        .count = end - begin,
        .capacity = worker->event_capacity,
        .several = has_several_stages(last->pipe, w)};
}

int weir_pipe_trace_text(const struct weir_pipe *pipe, uint32_t columns, bool colour,
                         weir_write_fn *write, void *context) {
    if (pipe == NULL || write == NULL) return WEIR_ERR_ARGUMENT;
    struct last_step last = {.pipe = pipe};
    char title[32];
    int status = weir__stamps_read(pipe);
    if (status != WEIR_OK) return status;
    if (!find_last_step(&last)) return WEIR_ERR_NOT_FOUND;
    /* steps are what a pipe counts, updates what people do, if the caller counts them */
    snprintf(title, sizeof title, last.update > 0 ? "update %" PRIu64 : "step %" PRIu64,
             last.update > 0 ? last.update : last.step);
    struct weir__timeline source = {.title = title,
                                    .worker_count = pipe->worker_count,
                                    .stage_count = pipe->prepared[0]->table->stage_count,
                                    .line = last_step_line,
                                    .context = &last};
    return weir__timeline_text(&source, columns, colour, write, context);
}
