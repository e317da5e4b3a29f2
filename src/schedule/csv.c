/* SPDX-License-Identifier: MIT */
/*
 * Tables as CSV, in the notation of torch.distributed.pipelining. The reader trusts nothing: it
 * looks at each byte a bounded number of times, allocates in proportion to the text, goes on after
 * a bad cell so that all of them are told, and leaves the question whether the table makes sense to
 * weir_table_check. Only then are the R and U added that the text leaves out.
 */
#include "schedule/schedules.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TEXT_BYTES_MAX (UINT32_C(1) << 30)
#define STAGE_MAX (UINT16_MAX - 1)
#define MICRO_BATCH_MAX ((UINT32_C(1) << 31) - 1)

/** PyTorch's communication, which Weir derives; any may have WAIT_ in front. */
static const char *const words[] = {"SEND_F",        "RECV_F",        "SEND_B",
                                    "RECV_B",        "UNSHARD",       "RESHARD",
                                    "SEND_F_RECV_B", "SEND_B_RECV_F", "REDUCE_GRAD"};
#define WORD_COUNT WEIR__COUNT_OF(words)

/** Part of the text. */
struct csv_span {
    const char *begin, *end;
};

struct csv_reader {
    const struct weir_table_options *options;
    struct weir_faults *faults;
    struct weir__table_builder builder; /**< what the text says */
    uint32_t line, cell;                /**< where it is, from 1, for messages */
    uint32_t fault_count;
    uint32_t stage_count, micro_batch_count; /**< 1 + the highest number so far */
    bool recomputes;                         /**< the text has an R */
    uint32_t skipped[2 * WORD_COUNT];        /**< cells of each word, then with WAIT_ */
};

/* ---- spans ---- */

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static struct csv_span trim(struct csv_span span) {
    assert(span.begin <= span.end);
    while (span.begin < span.end && is_blank(span.begin[0])) span.begin++;
    while (span.begin < span.end && is_blank(span.end[-1])) span.end--;
    return span;
}

/* Up to the separator, which is taken too; `rest` begins behind it. */
static struct csv_span split(struct csv_span *rest, char separator) {
    assert(rest->begin <= rest->end);
    struct csv_span part = *rest;
    const char *at = memchr(rest->begin, separator, (size_t)(rest->end - rest->begin));
    part.end = at != NULL ? at : rest->end;
    rest->begin = at != NULL ? at + 1 : rest->end;
    return part;
}

static bool equals(struct csv_span span, const char *text) {
    size_t length = strlen(text);
    return (size_t)(span.end - span.begin) == length && memcmp(span.begin, text, length) == 0;
}

/* ---- faults ---- */

/* A fault of the cell at hand. The cell is shown cut and without anything unprintable. */
static void fault(struct csv_reader *reader, struct csv_span span, const char *what) {
    assert(reader->line > 0 && reader->cell > 0);
    char shown[41];
    size_t length = 0;
    for (const char *c = span.begin; c < span.end && length < sizeof shown - 1; c++)
        shown[length++] = (char)(*c >= ' ' && *c <= '~' ? *c : '?');
    shown[length] = 0;
    weir_faults_add(reader->faults, "line %" PRIu32 ", cell %" PRIu32 ": '%s' %s", reader->line,
                    reader->cell, shown, what);
    reader->fault_count++;
}

/* ---- one action ---- */

/* Takes the digits at the front; false if there are none or they are above `most`. */
static bool take_number(struct csv_span *span, uint32_t most, uint32_t *number) {
    assert(most < UINT32_MAX);
    const char *begin = span->begin;
    uint64_t value = 0;
    while (span->begin < span->end && is_digit(span->begin[0])) {
        value = value * 10 + (uint64_t)(span->begin[0] - '0');
        value = value > most ? (uint64_t)most + 1 : value;
        span->begin++;
    }
    *number = (uint32_t)value;
    return span->begin > begin && value <= most;
}

static struct csv_span take_word(struct csv_span *span) {
    struct csv_span word = {span->begin, span->begin};
    while (word.end < span->end && ((*word.end >= 'A' && *word.end <= 'Z') || *word.end == '_'))
        word.end++;
    span->begin = word.end;
    return word;
}

/* The exported kind with that letter, or WEIR_KIND_COUNT. */
static uint32_t find_kind(struct csv_span word) {
    if (word.end - word.begin == 1) {
        for (uint32_t kind = 0; kind < WEIR_KIND_COUNT; kind++) {
            if (weir__kinds[kind].exported && weir__kinds[kind].letter == word.begin[0])
                return kind;
        }
    }
    return WEIR_KIND_COUNT;
}

/* True if the word is communication; counts it. */
static bool skip_word(struct csv_reader *reader, struct csv_span word) {
    size_t base = 0;
    if (word.end - word.begin > 5 && memcmp(word.begin, "WAIT_", 5) == 0) {
        word.begin += 5;
        base = WORD_COUNT;
    }
    for (size_t i = 0; i < WORD_COUNT; i++) {
        if (equals(word, words[i])) {
            reader->skipped[base + i]++;
            return true;
        }
    }
    return false;
}

static void add_action(struct csv_reader *reader, struct csv_span text, struct csv_span rest,
                       uint32_t kind, uint32_t stage) {
    assert(kind < WEIR_KIND_COUNT && stage <= STAGE_MAX);
    uint32_t micro_batch = 0;
    if (weir__kinds[kind].per_micro_batch) {
        if (!take_number(&rest, MICRO_BATCH_MAX, &micro_batch)) {
            fault(reader, text, "needs a micro-batch of 0 to 2147483647, as in 2F0");
            return;
        }
        if (micro_batch >= reader->micro_batch_count) reader->micro_batch_count = micro_batch + 1;
    }
    if (rest.begin != rest.end) {
        fault(reader, text, "goes on where it should end, as in 2F0 or 2U");
        return;
    }
    reader->stage_count = stage >= reader->stage_count ? stage + 1 : reader->stage_count;
    reader->recomputes = reader->recomputes || weir__pass_of(kind) == WEIR__PASS_RECOMPUTE;
    weir__table_add(&reader->builder, (enum weir_kind)kind, stage, micro_batch);
}

/* <stage><kind><micro-batch>, or nothing. */
static void read_action(struct csv_reader *reader, struct csv_span text) {
    text = trim(text);
    struct csv_span rest = text;
    uint32_t stage = 0, micro_batch = 0;
    if (text.begin == text.end) return;
    if (!take_number(&rest, STAGE_MAX, &stage)) {
        fault(reader, text, "does not begin with a stage of 0 to 65534, as in 2F0");
        return;
    }
    struct csv_span word = take_word(&rest);
    uint32_t kind = find_kind(word);
    if (kind < WEIR_KIND_COUNT)
        add_action(reader, text, rest, kind, stage);
    else if (!skip_word(reader, word))
        fault(reader, text, "has no kind that is known: F, R, B, I, W or U, as in 2F0");
    else if (rest.begin < rest.end &&
             (!take_number(&rest, MICRO_BATCH_MAX, &micro_batch) || rest.begin < rest.end))
        fault(reader, text, "does not end with a micro-batch, as in 2SEND_F0");
}

/* (0F7;7B3)OVERLAP_F_B: its parts in order. */
static void read_overlap(struct csv_reader *reader, struct csv_span text) {
    assert(text.begin < text.end && text.begin[0] == '(');
    struct csv_span tail = {text.begin + 1, text.end};
    struct csv_span parts = split(&tail, ')');
    if (parts.end == text.end || !equals(trim(tail), "OVERLAP_F_B")) {
        fault(reader, text, "is no overlap, which reads (0F7;7B3)OVERLAP_F_B");
        return;
    }
    while (parts.begin < parts.end) read_action(reader, split(&parts, ';'));
}

/* ---- cells and lines ---- */

static void read_cell(struct csv_reader *reader, struct csv_span cell) {
    cell = trim(cell);
    if (cell.begin < cell.end && cell.begin[0] == '(')
        read_overlap(reader, cell);
    else
        read_action(reader, cell);
}

/* Up to the comma or the line's end, where a quote hides commas. */
static struct csv_span take_cell(struct csv_reader *reader, struct csv_span *line) {
    struct csv_span lead = *line;
    while (lead.begin < lead.end && is_blank(lead.begin[0])) lead.begin++;
    if (lead.begin == lead.end || lead.begin[0] != '"') return split(line, ',');
    struct csv_span rest = {lead.begin + 1, line->end};
    struct csv_span cell = split(&rest, '"');
    if (cell.end == line->end) {
        fault(reader, lead, "has no closing quote");
        line->begin = line->end;
        return rest;
    }
    struct csv_span behind = trim(split(&rest, ','));
    *line = rest;
    if (behind.begin < behind.end) fault(reader, behind, "stands behind a closing quote");
    return cell;
}

static void read_line(struct csv_reader *reader, struct csv_span line) {
    weir__table_line(&reader->builder);
    reader->cell = 0;
    while (line.begin < line.end) {
        reader->cell++;
        read_cell(reader, take_cell(reader, &line));
    }
}

static uint32_t count_lines(struct csv_span text) {
    uint32_t count = 0;
    while (text.begin < text.end) {
        struct csv_span line = trim(split(&text, '\n'));
        count += line.begin < line.end ? 1 : 0;
    }
    return count;
}

static void read_lines(struct csv_reader *reader, struct csv_span text) {
    for (reader->line = 1; text.begin < text.end; reader->line++) {
        struct csv_span line = trim(split(&text, '\n'));
        if (line.begin < line.end) read_line(reader, line);
    }
}

/* ---- counts ---- */

/* Against what the run wants, 0 being anything. */
/* `what` is counted, and ends in `plural` where it is not one. */
static void check_count(struct csv_reader *reader, const char *what, const char *plural,
                        uint32_t has, uint32_t wanted) {
    if (wanted != 0 && has != wanted) {
        weir_faults_add(reader->faults, "the table is for %" PRIu32 " %s%s, the run has %" PRIu32,
                        has, what, has == 1 ? "" : plural, wanted);
        reader->fault_count++;
    }
}

static int check_counts(struct csv_reader *reader) {
    if (reader->builder.failed) return WEIR_ERR_OUT_OF_MEMORY;
    if (reader->fault_count > 0) return WEIR_ERR_FORMAT;
    if (reader->stage_count == 0 || reader->micro_batch_count == 0) {
        weir_faults_add(reader->faults, "the table has no action of a micro-batch");
        return WEIR_ERR_FORMAT;
    }
    check_count(reader, "stage", "s", reader->stage_count, reader->options->stages);
    check_count(reader, "worker", "s", reader->builder.worker_count, reader->options->workers);
    check_count(reader, "micro-batch", "es", reader->micro_batch_count,
                reader->options->micro_batches);
    return reader->fault_count > 0 ? WEIR_ERR_CONFIG : WEIR_OK;
}

/* Cells of the text that the run's stages have no use for. */
static uint32_t count_frozen(const struct csv_reader *reader) {
    const struct weir__table_builder *in = &reader->builder;
    uint32_t count = 0;
    for (uint32_t a = 0; a < in->count; a++) {
        const struct weir_action *action = &in->actions[a];
        count += weir__kinds[action->kind].of_backward &&
                 weir__no_backward(reader->options->no_backward, action->stage);
    }
    return count;
}

static void write_notes(const struct csv_reader *reader, struct weir_faults *notes) {
    uint32_t frozen = count_frozen(reader);
    if (frozen > 0) {
        weir_faults_add(
            notes, "%" PRIu32 " R, B, I or W cells are left out: their stages have no backward",
            frozen);
    }
    for (size_t i = 0; i < 2 * WORD_COUNT; i++) {
        if (reader->skipped[i] > 0) {
            weir_faults_add(notes,
                            "%" PRIu32 " %s%s cells are skipped: communication follows from the "
                            "actions",
                            reader->skipped[i], i >= WORD_COUNT ? "WAIT_" : "",
                            words[i % WORD_COUNT]);
        }
    }
}

/* ---- what the text leaves out ---- */

/* Copies a line with its missing R. `updated` marks stages that have their U. */
static void complete_line(const struct csv_reader *reader, const struct weir_table_options *options,
                          uint32_t line, bool *updated, struct weir__table_builder *out) {
    const struct weir__table_builder *in = &reader->builder;
    assert(line < in->line_count);
    uint32_t begin = in->lines[line];
    uint32_t end = line + 1 < in->line_count ? in->lines[line + 1] : in->count;
    weir__table_line(out);
    for (uint32_t a = begin; a < end; a++) {
        const struct weir_action *action = &in->actions[a];
        bool backward = weir__pass_of(action->kind) == WEIR__PASS_GRADIENT;
        if (backward && !reader->recomputes &&
            weir__checkpointed(options, action->stage, action->micro_batch))
            weir__table_add(out, WEIR_KIND_R, action->stage, action->micro_batch);
        weir__table_add(out, (enum weir_kind)action->kind, action->stage, action->micro_batch);
    }
    for (uint32_t a = begin; a < end; a++) {
        uint32_t stage = in->actions[a].stage;
        if (!updated[stage]) {
            updated[stage] = true;
            weir__table_add(out, WEIR_KIND_U, stage, 0);
        }
    }
}

static int complete(const struct csv_reader *reader, struct weir_table **table) {
    const struct weir__table_builder *in = &reader->builder;
    assert(reader->stage_count > 0 && !in->failed);
    struct weir_table_options options = *reader->options;
    options.stages = reader->stage_count;
    options.micro_batches = reader->micro_batch_count;
    bool *updated = weir__acquire(in->allocator, options.stages, sizeof *updated);
    if (updated == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t a = 0; a < in->count; a++) {
        if (weir__writes(in->actions[a].kind, WEIR__PARAMETERS))
            updated[in->actions[a].stage] = true;
    }
    struct weir__table_builder out;
    weir__table_begin(&out, in->allocator, options.stages, in->worker_count, options.micro_batches);
    out.no_backward = options.no_backward;
    for (uint32_t line = 0; line < in->worker_count; line++)
        complete_line(reader, &options, line, updated, &out);
    weir__release(in->allocator, updated, options.stages, sizeof *updated);
    return weir__table_finish(&out, table);
}

/* ---- reading and writing ---- */

static int check_options(const struct weir_table_options *options, size_t bytes,
                         struct weir_faults *faults) {
    struct weir_faults own = {.allocator = options->allocator};
    struct weir_faults *list = faults != NULL ? faults : &own;
    uint32_t before = list->count;
    if (bytes > TEXT_BYTES_MAX) {
        weir_faults_add(list, "a table of %zu bytes is too long: at most %" PRIu32 " are read",
                        bytes, TEXT_BYTES_MAX);
    }
    if (options->stages == 0 && options->stage_checkpoint != NULL)
        weir_faults_add(list, "checkpoint modes per stage need the number of stages");
    if (options->stages == 0 && options->no_backward != NULL)
        weir_faults_add(list, "a list of stages without backward needs the number of stages");
    weir__checkpoint_check(options, list);
    bool refused = list->count > before;
    weir_faults_clean_up(&own);
    return refused ? WEIR_ERR_ARGUMENT : WEIR_OK;
}

int weir_table_parse(const struct weir_table_options *options, const char *text, size_t bytes,
                     struct weir_faults *faults, struct weir_faults *notes,
                     struct weir_table **table) {
    if (!weir__is_sized(options) || text == NULL || table == NULL) {
        weir_faults_add(faults, "weir_table_parse: an argument is NULL, or " WEIR__BEGIN_WITH,
                        "WEIR_TABLE_OPTIONS_INIT");
        return WEIR_ERR_ARGUMENT;
    }
    struct weir_table_options own = *options;
    int status = check_options(&own, bytes, faults);
    if (status != WEIR_OK) return status;
    struct csv_span span = {text, text + bytes};
    if (bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        span.begin += 3; /* a byte order mark, as spreadsheets write it */
    }
    struct csv_reader reader = {.options = &own, .faults = faults};
    weir__table_begin(&reader.builder, own.allocator, 0, count_lines(span), 0);
    read_lines(&reader, span);
    status = check_counts(&reader);
    if (status != WEIR_OK) goto out;
    write_notes(&reader, notes);
    status = complete(&reader, table);
out:
    weir__table_abandon(&reader.builder);
    return status;
}

/** Text that is counted beyond its room; the end's zero may overwrite its last byte. */
struct sink {
    char *text;
    size_t capacity, used;
};

static void put_text(struct sink *sink, const char *text) {
    for (; *text != 0; text++, sink->used++) {
        if (sink->used < sink->capacity) sink->text[sink->used] = *text;
    }
}

static bool is_written(const struct weir_action *action, bool plain) {
    if (action->kind >= WEIR_KIND_COUNT) return false;
    return plain ? weir__kinds[action->kind].plain : weir__kinds[action->kind].exported;
}

size_t weir_table_format(const struct weir_table *table, bool plain, char *text, size_t capacity) {
    struct sink sink = {text, capacity, 0};
    for (uint32_t w = 0; w < table->worker_count; w++) {
        bool first = true;
        for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
            const struct weir_action *action = &table->actions[a];
            if (is_written(action, plain)) {
                char cell[24];
                put_text(&sink, first ? "" : ",");
                put_text(&sink, weir__action_text(action, cell));
                first = false;
            }
        }
        put_text(&sink, "\n");
    }
    if (capacity > 0) text[sink.used < capacity ? sink.used : capacity - 1] = 0;
    return sink.used;
}
