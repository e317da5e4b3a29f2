/* SPDX-License-Identifier: MIT */
/* Streams are queues of operations that nothing empties until something is forced. A wait stands in
 * its stream's queue until the record that it was bound to is done. Since a wait is bound when it
 * is submitted, to a record submitted before, the oldest operation of all can always run: what is
 * forced always ends.
 *
 * Where the order is RANDOM each force draws how it goes about:
 *   latest    the stream whose last operation was submitted latest: readers before the writers they
 *             forgot to wait for, next writers before readers
 *   priority  streams in an order that the seed fixes, each as far as it can go
 *   uniform   any operation that can run
 *   needed    only what the target needs
 *   delay     where a wait was dropped: what it would have waited for comes last of all
 * and, when the target is done, whether other work goes on. */
#include "fake_state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum policy { LATEST, PRIORITY, UNIFORM, NEEDED, DELAY };

/* ---- streams ---- */

struct fake_stream *fake_stream_new(struct fake_context *context, bool blocking, bool standard) {
    struct fake_stream *stream = fake_new(sizeof *stream);
    stream->context = context;
    stream->blocking = blocking;
    stream->index = fake.stream_count++;
    stream->priority = fake_random();
    if (!standard) {
        stream->number = ++fake.stream_numbers;
        stream->handle = fake_handle_new(FAKE_STREAM, stream);
        fake.counts.streams++;
    }
    stream->next = fake.streams;
    fake.streams = stream;
    return stream;
}

static void forget_stream(struct fake_stream *stream) {
    struct fake_stream **at = &fake.streams;
    while (*at != stream) at = &(*at)->next;
    *at = stream->next;
    free(stream->known);
    free(stream);
}

void fake_stream_end(struct fake_stream *stream) {
    fake_handle_end(stream->handle);
    fake.counts.streams--;
    stream->destroyed = true;
    if (stream->head == NULL) forget_stream(stream);
}

struct fake_stream *fake_stream_of(const void *handle) {
    if (handle != NULL) return fake_handle_find(FAKE_STREAM, (uint64_t)(uintptr_t)handle);
    struct fake_context *context = fake_current();
    if (context == NULL) return NULL;
    if (context->standard == NULL) context->standard = fake_stream_new(context, false, true);
    return context->standard;
}

/* ---- what a stream knows to be done before its next work ---- */

static void learn(uint64_t **known, size_t *count, size_t index, uint64_t position) {
    if (index >= *count) {
        uint64_t *grown = realloc(*known, (index + 1) * sizeof *grown);
        if (grown == NULL) abort();
        memset(&grown[*count], 0, (index + 1 - *count) * sizeof *grown);
        *known = grown;
        *count = index + 1;
    }
    if ((*known)[index] < position) (*known)[index] = position;
}

bool fake_is_implied(const struct fake_stream *stream, const struct fake_record *record) {
    if (record->stream_index == stream->index) return true;
    return record->stream_index < stream->known_count &&
           stream->known[record->stream_index] >= record->position;
}

/* ---- operations ---- */

struct fake_op *fake_op_new(enum fake_work work, uint64_t entry) {
    struct fake_op *op = fake_new(sizeof *op);
    op->work = work;
    op->entry = entry;
    return op;
}

static void free_op(struct fake_op *op) {
    if (op->message != NULL) fake_message_forget(op);
    fake_record_release(op->record);
    if (op->staged) free((void *)(uintptr_t)op->from);
    free(op->arguments);
    free(op);
}

static void append(struct fake_stream *stream, struct fake_op *op) {
    op->sequence = ++fake.sequence;
    stream->position++;
    if (stream->tail != NULL)
        stream->tail->next = op;
    else
        stream->head = op;
    stream->tail = op;
    fake.counts.pending++;
}

/* A moment after all that was submitted to the stream. */
static struct fake_record *record_new(struct fake_stream *stream) {
    struct fake_record *record = fake_new(sizeof *record);
    struct fake_op *op = fake_op_new(FAKE_RECORD, UINT64_MAX);
    record->references = 2; /* the operation's and the caller's */
    record->stream = stream;
    record->stream_index = stream->index;
    op->record = record;
    append(stream, op);
    record->position = stream->position;
    for (size_t i = 0; i < stream->known_count; i++)
        learn(&record->known, &record->known_count, i, stream->known[i]);
    learn(&record->known, &record->known_count, stream->index, stream->position);
    return record;
}

void fake_record_release(struct fake_record *record) {
    if (record == NULL || --record->references > 0) return;
    free(record->known);
    free(record);
}

static void append_wait(struct fake_stream *stream, struct fake_record *record, uint64_t entry) {
    struct fake_op *op = fake_op_new(FAKE_WAIT, entry);
    op->record = record;
    record->references++;
    append(stream, op);
    for (size_t i = 0; i < record->known_count; i++)
        learn(&stream->known, &stream->known_count, i, record->known[i]);
}

/* The default stream and those that were made without NON_BLOCKING wait for each other. */
static void order_with(struct fake_stream *stream, struct fake_stream *other) {
    if (other == NULL || other->head == NULL || other == stream) return;
    struct fake_record *record = record_new(other);
    append_wait(stream, record, UINT64_MAX);
    fake_record_release(record);
}

static void order_with_default(struct fake_stream *stream) {
    if (stream->blocking) order_with(stream, stream->context->standard);
    if (stream != stream->context->standard) return;
    for (struct fake_stream *other = fake.streams; other != NULL; other = other->next)
        if (other->blocking && other->context == stream->context) order_with(stream, other);
}

static void run_all(void);

void fake_submit(struct fake_stream *stream, struct fake_op *op) {
    order_with_default(stream);
    append(stream, op);
    if (fake.order == WEIR_FAKE_CUDA_EAGER) run_all();
}

struct fake_record *fake_submit_record(struct fake_stream *stream) {
    order_with_default(stream);
    struct fake_record *record = record_new(stream);
    if (fake.order == WEIR_FAKE_CUDA_EAGER) run_all();
    return record;
}

void fake_submit_wait(struct fake_stream *stream, struct fake_record *record, uint64_t entry) {
    append_wait(stream, record, entry);
    if (fake.order == WEIR_FAKE_CUDA_EAGER) run_all();
}

/* ---- running one ---- */

static bool is_work(const struct fake_op *op) {
    return op->work != FAKE_RECORD && op->work != FAKE_WAIT;
}

static bool may_touch(struct fake_context *context, const void *start, size_t bytes) {
    if (fake_place_of(context, start, bytes, "running work") != FAKE_FORBIDDEN) return true;
    fake_context_break(context, WEIR__CUDA_ILLEGAL_ADDRESS);
    return false;
}

static void run_kernel(struct fake_context *context, const struct fake_op *op) {
    if (fake_is_planted(op->kernel->name)) return;
    op->kernel->run(op->grid, op->block, op->shared_bytes, op->arguments);
    const char *wrong = fake_cuda_fault();
    if (wrong == NULL) return;
    fake_fault("kernel %s: %s", op->kernel->name, wrong);
    fake_context_break(context, WEIR__CUDA_LAUNCH_FAILED);
}

/* Which may take as long as it likes: meanwhile others may look. */
static void run_host(const struct fake_op *op) {
    fake.host_runs = true;
    pthread_mutex_unlock(&fake.look);
    op->run(op->arguments);
    pthread_mutex_lock(&fake.look);
    fake.host_runs = false;
}

static void run_work(struct fake_context *context, const struct fake_op *op) {
    bool may = true;
    if (op->to != NULL) may = may_touch(context, op->to, op->bytes);
    if (may && op->from != NULL && !op->staged) may = may_touch(context, op->from, op->bytes);
    if (!may) return;
    fake_memory_open(context);
    if (op->work == FAKE_COPY) memmove(op->to, op->from, op->bytes);
    if (op->work == FAKE_FILL) memset(op->to, op->value, op->bytes);
    if (op->work == FAKE_RUN && op->kernel != NULL) run_kernel(context, op);
    if (op->work == FAKE_RUN && op->kernel == NULL) run_host(op);
}

static void end_op(struct fake_op *op) {
    if (op->work == FAKE_RECORD) {
        op->record->done = true;
        op->record->ns = fake_clock_ns();
    }
    fake.counts.pending--;
    free_op(op);
}

static struct fake_op *take_head(struct fake_stream *stream) {
    struct fake_op *op = stream->head;
    stream->head = op->next;
    if (stream->head == NULL) stream->tail = NULL;
    fake.ran++;
    if (op->entry < fake.entry_count) fake.entries[op->entry].ran = fake.ran;
    return op;
}

static void leave_op(struct fake_stream *stream, struct fake_op *op) {
    end_op(op);
    if (stream->destroyed && stream->head == NULL) forget_stream(stream);
}

/* Both of its sides end. */
static void run_message(struct fake_stream *stream) {
    struct fake_stream *other = fake_message_run(stream->head);
    if (other != NULL) leave_op(other, take_head(other));
    leave_op(stream, take_head(stream));
}

static void run_head(struct fake_stream *stream) {
    if (stream->head->work == FAKE_MESSAGE) {
        run_message(stream);
        return;
    }
    struct fake_op *op = take_head(stream);
    if (is_work(op) && stream->context->broken != 0)
        fake.counts.lost_work++;
    else if (is_work(op))
        run_work(stream->context, op);
    leave_op(stream, op);
}

/* ---- which one ---- */

static bool is_ready(const struct fake_stream *stream) {
    const struct fake_op *head = stream->head;
    if (head != NULL && head->work == FAKE_MESSAGE) return fake_message_is_ready(head);
    return head != NULL && (head->work != FAKE_WAIT || head->record->done);
}

static uint64_t rank(const struct fake_stream *stream, enum policy policy) {
    if (policy == LATEST || policy == DELAY) return stream->tail->sequence;
    return policy == PRIORITY ? stream->priority : fake_random();
}

static struct fake_stream *pick(enum policy policy) {
    struct fake_stream *best = NULL;
    uint64_t best_rank = 0;
    for (struct fake_stream *stream = fake.streams; stream != NULL; stream = stream->next) {
        if (!is_ready(stream)) continue;
        if (policy == DELAY && !fake.dropped->done && stream == fake.dropped->stream) continue;
        uint64_t own = rank(stream, policy);
        if (best == NULL || own > best_rank) {
            best = stream;
            best_rank = own;
        }
    }
    return best;
}

static void run_all(void) {
    struct fake_stream *stream;
    while ((stream = pick(LATEST)) != NULL) run_head(stream);
    fake_memory_open(NULL);
}

static bool is_done(const struct fake_record *record, const struct fake_stream *stream) {
    return record != NULL ? record->done : stream->head == NULL;
}

/* The stream whose head is what the target waits for, at the end of all waits. NULL: a message, of
 * which the other side is not given yet. Who waits for messages in a circle waits for ever, as on a
 * GPU. */
static struct fake_stream *needed(const struct fake_record *record, struct fake_stream *stream) {
    enum { STEPS_MAX = 100000 };
    struct fake_stream *at = record != NULL ? record->stream : stream;
    for (uint32_t steps = 0; !is_ready(at); steps++) {
        assert(at->head != NULL);
        at = at->head->work == FAKE_MESSAGE ? fake_message_other(at->head)
                                            : at->head->record->stream;
        if (at == NULL || steps > STEPS_MAX) return NULL;
    }
    return at;
}

static enum policy draw(void) {
    static const enum policy likely[] = {LATEST,   LATEST,   LATEST,  LATEST,
                                         PRIORITY, PRIORITY, UNIFORM, NEEDED};
    if (fake.order != WEIR_FAKE_CUDA_RANDOM) return NEEDED;
    if (fake.dropped != NULL && !fake.dropped->done && fake_random_below(8) > 0) return DELAY;
    return likely[fake_random_below(sizeof likely / sizeof likely[0])];
}

/* Half of the time nothing, else a few operations, or all that can run. */
static void go_on(enum policy policy) {
    uint64_t some = fake_random_below(4);
    uint64_t count = some == 3 ? UINT64_MAX : some == 2 ? fake_random_below(16) : 0;
    struct fake_stream *stream;
    while (count-- > 0 && (stream = pick(policy)) != NULL) run_head(stream);
}

/* Others may give meanwhile what keeps the target. */
static void let_others(void) {
    static const struct timespec little = {.tv_nsec = 20000}; /* a yield would starve them */
    fake_unlock();
    (void)nanosleep(&little, NULL);
    fake_lock();
}

static void force(struct fake_record *record, struct fake_stream *stream) {
    enum policy policy = draw();
    if (record != NULL) record->references++;
    while (!is_done(record, stream)) {
        struct fake_stream *next = policy == NEEDED ? NULL : pick(policy);
        if (next == NULL) next = needed(record, stream);
        if (next != NULL)
            run_head(next);
        else
            let_others();
    }
    if (fake.order == WEIR_FAKE_CUDA_RANDOM && policy != NEEDED) go_on(policy);
    fake_record_release(record);
    fake_memory_open(NULL);
}

bool fake_go_on(void) {
    struct fake_stream *next = pick(draw());
    if (next == NULL) next = pick(UNIFORM);
    if (next == NULL) return false;
    run_head(next);
    fake_memory_open(NULL);
    return true;
}

void fake_force_stream(struct fake_stream *stream) {
    force(NULL, stream);
}

void fake_force_record(struct fake_record *record) {
    force(record, NULL);
}

bool fake_poll(struct fake_record *record, struct fake_stream *stream) {
    if (is_done(record, stream)) return true;
    struct fake_stream *next = needed(record, stream);
    if (next == NULL) return false;
    if (next->head->work == FAKE_RUN && next->head->kernel == NULL) return false;
    run_head(next);
    fake_memory_open(NULL);
    return is_done(record, stream);
}

/* ---- the end ---- */

static void drop_all(struct fake_stream *stream) {
    while (stream->head != NULL) {
        struct fake_op *op = stream->head;
        stream->head = op->next;
        fake.counts.lost_work += is_work(op);
        end_op(op);
    }
    stream->tail = NULL;
}

uint64_t fake_streams_end(const struct fake_context *context) {
    uint64_t ended = 0;
    struct fake_stream *next;
    for (struct fake_stream *stream = fake.streams; stream != NULL; stream = next) {
        next = stream->next;
        if (context != NULL && stream->context != context) continue;
        drop_all(stream);
        if (stream->number > 0 && !stream->destroyed) {
            fake_handle_end(stream->handle);
            fake.counts.streams--;
            ended++;
        }
        forget_stream(stream);
    }
    return ended;
}
