/* SPDX-License-Identifier: MIT */
/*
 * Goal: the trace of a pipe over GPUs shows what its streams did: copies on tracks of their own,
 * recomputation while the gradient is on its way, waits for copies by their name; and no step waits
 * for the driver to tell it. Method: the fake driver in its plain orders, callbacks that take their
 * time; JSON is read back by jansson.
 */
#include "engine/engine_gpu.h"
#include "pipe/run/pipe.h"
#include "weir_report.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHUNKS = 3, ROWS = 6, CLOCKS_NS = 1000000, SLOW_NS = 20000000 };

static struct engine_model model;
static struct weir_pipe *pipe_;
static _Atomic uint64_t last_call_ns; /* workers write it */
static enum weir_phase slow_phase;
static uint32_t slow_stage;

static int take_time(void *context, const struct weir_task *task) {
    (void)context;
    if (task->stage == slow_stage && task->phase == slow_phase)
        nanosleep(&(struct timespec){.tv_nsec = SLOW_NS}, NULL);
    last_call_ns = weir__now_ns();
    return WEIR_OK;
}

static bool open_pipe(const struct weir_fake_cuda_control *gpu, const char *const *devices,
                      enum weir_fake_cuda_order order, bool late) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    faults.allocator = test_allocator();
    gpu->reset(1, 2, 0);
    gpu->set_order(order);
    uint32_t stages = devices[1] != NULL ? 2 : 1;
    engine_model_init(&model, stages);
    model.gpu = gpu;
    model.hook = take_time;
    struct weir_pipe_options options = engine_options(&model);
    options.schedule = "gpipe";
    options.chunks = CHUNKS;
    options.rows = ROWS;
    options.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    options.recompute_late = late;
    options.devices = devices;
    options.device_count = stages;
    options.wait = WEIR_WAIT_PARK;
    pipe_ = NULL;
    int status = weir_pipe_new(&options, &faults, &pipe_);
    if (!EXPECT_STATUS(status, WEIR_OK) && faults.kept > 0) TEST_FAIL("%s", faults.lines[0]);
    weir_faults_clean_up(&faults);
    return status == WEIR_OK;
}

static void run_step(void) {
    struct engine_batch batch;
    struct weir_step_result result;
    engine_batch_init(&batch, &model, ROWS, 1);
    struct weir_step step = engine_step(&batch);
    EXPECT_STATUS(weir_pipe_step(pipe_, &step, &result), WEIR_OK);
    engine_batch_clean_up(&batch);
}

/* ---- the Chrome trace ---- */

static char text[1 << 20];
static size_t used;

static int keep(void *context, const char *piece, size_t bytes) {
    (void)context;
    if (used + bytes > sizeof text) return WEIR_ERR_IO;
    memcpy(text + used, piece, bytes);
    used += bytes;
    return WEIR_OK;
}

static json_t *read_trace(json_t **events) {
    json_error_t error;
    used = 0;
    *events = NULL;
    if (!EXPECT_STATUS(weir_pipe_trace_chrome(pipe_, keep, NULL), WEIR_OK)) return NULL;
    json_t *root = json_loadb(text, used, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) TEST_FAIL("line %d: %s", error.line, error.text);
    *events = json_object_get(root, "traceEvents");
    return root;
}

struct slice {
    int64_t track, start, end; /* ns */
    const json_t *arguments;
};

static const char *string_of(const json_t *event, const char *key) {
    const char *string = json_string_value(json_object_get(event, key));
    return string != NULL ? string : "";
}

static int64_t ns_of(const json_t *event, const char *key) {
    return llround(json_number_value(json_object_get(event, key)) * 1e3);
}

/* The only slice of that name. */
static struct slice find(const json_t *events, const char *name) {
    struct slice found = {0};
    uint32_t count = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (strcmp(string_of(event, "ph"), "X") != 0) continue;
        if (strcmp(string_of(event, "name"), name) != 0) continue;
        found.track = json_integer_value(json_object_get(event, "tid"));
        found.start = ns_of(event, "ts");
        found.end = found.start + ns_of(event, "dur");
        found.arguments = json_object_get(event, "args");
        count++;
    }
    if (!EXPECT_EQ_UINT(count, 1)) TEST_FAIL("%s", name);
    return found;
}

static const char *track_name(const json_t *events, int64_t track) {
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (strcmp(string_of(event, "name"), "thread_name") == 0 &&
            json_integer_value(json_object_get(event, "tid")) == track)
            return string_of(json_object_get(event, "args"), "name");
    }
    return "";
}

/* Whether an arrow leads from inside the one to the start of the other. */
static bool has_arrow(const json_t *events, const struct slice *from, const struct slice *to) {
    for (size_t i = 0; i + 1 < json_array_size(events); i++) {
        const json_t *tail = json_array_get(events, i), *head = json_array_get(events, i + 1);
        if (strcmp(string_of(tail, "ph"), "s") != 0) continue;
        int64_t ts = ns_of(tail, "ts");
        if (json_integer_value(json_object_get(tail, "tid")) == from->track && ts >= from->start &&
            ts <= from->end && ns_of(head, "ts") == to->start &&
            json_integer_value(json_object_get(head, "tid")) == to->track)
            return true;
    }
    return false;
}

static struct slice find_of(const json_t *events, const char *what, uint32_t stage, uint32_t i) {
    char name[48];
    snprintf(name, sizeof name, "%s %u:%u", what, stage, i);
    return find(events, name);
}

static void check_gate(const json_t *events, uint32_t i, bool late) {
    struct slice r = find_of(events, "R", 0, i), b = find_of(events, "B", 0, i);
    struct slice copy = find_of(events, "copy for B", 0, i), made = find_of(events, "B", 1, i);
    EXPECT_EQ_STR(track_name(events, copy.track), "copies to worker 0 from worker 1");
    EXPECT_EQ_INT(json_integer_value(json_object_get(copy.arguments, "from")), 1);
    EXPECT_EQ_INT(json_integer_value(json_object_get(copy.arguments, "to")), 0);
    EXPECT(json_integer_value(json_object_get(copy.arguments, "bytes")) > 0);
    EXPECT(copy.start >= made.end - CLOCKS_NS && copy.end >= copy.start);
    EXPECT(b.start >= copy.end - CLOCKS_NS);
    EXPECT(has_arrow(events, &made, &copy) && has_arrow(events, &copy, &b));
    if (late)
        EXPECT(r.start >= made.end - CLOCKS_NS);
    else
        EXPECT(r.end < copy.end && r.start < copy.start);
}

/* Late recomputation, for comparison, begins when the gradient is made. */
static void test_recompute_runs_while_the_gradient_is_on_its_way(void) {
    static const char *const devices[] = {"cuda:0", "cuda:1"};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    slow_stage = 1, slow_phase = WEIR_BACKWARD;
    for (int late = 0; gpu != NULL && late <= 1; late++) {
        json_t *events;
        CHECK(open_pipe(gpu, devices, WEIR_FAKE_CUDA_EAGER, late != 0));
        run_step();
        json_t *root = read_trace(&events);
        for (uint32_t i = 0; i < CHUNKS; i++) check_gate(events, i, late != 0);
        struct slice entering = find_of(events, "copy for F", 0, 0);
        EXPECT_EQ_STR(track_name(events, entering.track), "copies to worker 0 from the caller");
        EXPECT_EQ_INT(json_integer_value(json_object_get(entering.arguments, "from")), -1);
        struct weir_step_report report;
        EXPECT_STATUS(weir_pipe_report(pipe_, &report), WEIR_OK);
        double hidden = 0.0, all = 0.0; /* the last stage has no gradient to wait for */
        for (uint32_t i = 0; i < 2 * CHUNKS; i++) {
            struct slice r = find_of(events, "R", i % 2, i / 2);
            hidden += i % 2 == 0 ? (double)(r.end - r.start) : 0.0;
            all += (double)(r.end - r.start);
        }
        if (!late) EXPECT_NEAR(report.recompute_hidden, hidden / all, 0.01);
        json_decref(root);
        weir_pipe_destroy(pipe_);
        engine_gpu_expect_clean(gpu);
    }
}

/* Not before the device has been given backward of the micro-batch that is next. */
static int recompute_slowly(void *context, const struct weir_task *task) {
    enum { PATIENCE_S = 120 };
    const struct weir_table *table = pipe_->prepared[0]->table;
    struct weir__worker *reader = &pipe_->workers[1];
    (void)context;
    if (task->stage == 0 && task->phase == WEIR_BACKWARD && task->micro_batch > 0) {
        uint32_t a = table->lines[1];
        while (table->actions[a].kind != WEIR_KIND_B ||
               table->actions[a].micro_batch != task->micro_batch - 1)
            a++;
        uint32_t given = reader->base + (a + 1 - table->lines[1]);
        EXPECT(weir__gate_wait(&reader->progress, given, 0, PATIENCE_S * UINT64_C(1000000000)));
    }
    if (task->stage == 0 && task->phase == WEIR_RECOMPUTE)
        nanosleep(&(struct timespec){.tv_nsec = SLOW_NS}, NULL);
    return WEIR_OK;
}

/* Where a CPU recomputes, its thread cannot see the gradient come. */
static void test_a_cpu_recomputes_while_its_gradient_is_copied(void) {
    static const char *const devices[] = {"cpu", "cuda:0"};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    json_t *events;
    if (gpu == NULL) return;
    CHECK(open_pipe(gpu, devices, WEIR_FAKE_CUDA_EAGER, false));
    model.hook = recompute_slowly;
    run_step();
    json_t *root = read_trace(&events);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        struct slice r = find_of(events, "R", 0, i), b = find_of(events, "B", 0, i);
        struct slice copy = find_of(events, "copy for B", 0, i), made = find_of(events, "B", 1, i);
        EXPECT(copy.start >= made.end - CLOCKS_NS && b.start >= copy.end - CLOCKS_NS);
        EXPECT(has_arrow(events, &made, &copy) && has_arrow(events, &copy, &b));
        /* of the first the gradient may not be on its way when it begins */
        if (i + 1 < CHUNKS) EXPECT(copy.start < r.end);
    }
    json_decref(root);
    weir_pipe_destroy(pipe_);
    engine_gpu_expect_clean(gpu);
}

/* ---- what was waited for ---- */

static void expect_cause(enum weir_kind kind, uint32_t stage, enum weir_kind by) {
    struct weir_snapshot *snapshot = NULL;
    if (!EXPECT_STATUS(weir_snapshot_new(pipe_, 0, test_allocator(), &snapshot), WEIR_OK)) return;
    uint32_t seen = 0;
    for (uint32_t a = 0; a < snapshot->action_count; a++) {
        const struct weir_snapshot_action *action = &snapshot->actions[a];
        if (action->action.kind != kind || action->action.stage != stage) continue;
        EXPECT_EQ_INT(action->waited_for, (int)(1 - stage));
        EXPECT_EQ_STR(weir_cause_text(action->cause), "a copy");
        if (!EXPECT(action->awaited != WEIR_NO_ACTION)) continue;
        const struct weir_action *awaited = &snapshot->actions[action->awaited].action;
        EXPECT_EQ_INT(awaited->kind, by);
        EXPECT_EQ_UINT(awaited->stage, 1 - stage);
        EXPECT_EQ_UINT(awaited->micro_batch, action->action.micro_batch);
        seen++;
    }
    EXPECT_EQ_UINT(seen, CHUNKS);
    weir_snapshot_destroy(snapshot);
}

static void test_a_wait_for_a_copy_says_so(void) {
    static const char *const devices[][2] = {
        {"cuda:0", "cuda:1"}, {"cuda:0", "cpu"}, {"cpu", "cuda:0"}};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    for (size_t i = 0; gpu != NULL && i < WEIR__COUNT_OF(devices); i++) {
        CHECK(open_pipe(gpu, devices[i], WEIR_FAKE_CUDA_EAGER, false));
        slow_stage = 0, slow_phase = WEIR_FORWARD_CHECKPOINT;
        run_step();
        expect_cause(WEIR_KIND_F, 1, WEIR_KIND_F);
        slow_stage = 1, slow_phase = WEIR_BACKWARD;
        run_step();
        run_step();
        expect_cause(WEIR_KIND_B, 0, WEIR_KIND_B);
        weir_pipe_destroy(pipe_);
        engine_gpu_expect_clean(gpu);
    }
}

/* ---- when stamps are taken ---- */

static uint64_t calls_of(const struct weir_fake_cuda_control *gpu, void (*run)(void)) {
    uint64_t before = gpu->calls_made();
    run();
    return gpu->calls_made() - before;
}

static void read_stamps(void) {
    EXPECT_EQ_UINT(weir_pipe_trace(pipe_, 0, 0, NULL), 0);
}

/* In the lazy order nothing runs before its step has been given as a whole: true stamps are later
 * than the last callback, the host's would not be. */
static void expect_true_stamps(uint64_t last_call) {
    struct weir_trace_event events[64];
    uint32_t count = weir_pipe_trace(pipe_, 0, 64, events), seen = 0;
    uint64_t newest = events[count - 1].step;
    for (uint32_t i = 0; i < count; i++) {
        if (events[i].step + 1 != newest) continue;
        EXPECT(events[i].end + CLOCKS_NS >= last_call);
        seen++;
    }
    EXPECT(seen > 0);
}

static void test_no_step_asks_for_its_own_stamps(void) {
    static const char *const devices[] = {"cuda:0", NULL};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    slow_stage = UINT32_MAX;
    if (gpu == NULL) return;
    CHECK(open_pipe(gpu, devices, WEIR_FAKE_CUDA_LAZY, false));
    uint64_t step = calls_of(gpu, run_step), reading = calls_of(gpu, read_stamps);
    EXPECT(reading > 0);
    EXPECT_EQ_UINT(calls_of(gpu, read_stamps), 0); /* they are there */
    EXPECT_EQ_UINT(calls_of(gpu, run_step), step);
    uint64_t last_call = last_call_ns;        /* nobody reads this one's: the next step does */
    uint64_t third = calls_of(gpu, run_step); /* on a thread whose context it is: fewer calls */
    EXPECT(third > step && third <= step + reading);
    expect_true_stamps(last_call);
    weir_pipe_destroy(pipe_);
    engine_gpu_expect_clean(gpu);
}

/* ---- several readers ---- */

enum { READERS = 3 };

static _Atomic uint32_t readers_there;

static void *read_at_once(void *argument) {
    (void)argument;
    readers_there++;
    while (readers_there < READERS) sched_yield();
    read_stamps();
    return NULL;
}

/* Each copy is there once, stamped by whoever came first. */
static void test_several_readers_stamp_a_step_once(void) {
    static const char *const devices[] = {"cuda:0", "cuda:1"};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    slow_stage = UINT32_MAX;
    if (gpu == NULL) return;
    CHECK(open_pipe(gpu, devices, WEIR_FAKE_CUDA_EAGER, false));
    for (uint64_t step = 0; step < 50 && !test_has_failed(); step++) {
        pthread_t threads[READERS];
        uint64_t before[2], each = 0;
        for (int w = 0; w < 2; w++) before[w] = pipe_->workers[w].copy_event_count;
        run_step();
        readers_there = 0;
        for (int i = 0; i < READERS; i++)
            CHECK_EQ_INT(pthread_create(&threads[i], NULL, read_at_once, NULL), 0);
        for (int i = 0; i < READERS; i++) pthread_join(threads[i], NULL);
        const struct weir__row_plan *p = pipe_->prepared[0];
        for (int w = 0; w < 2; w++, each = 0) {
            for (uint32_t i = 0; i < p->copy_count; i++)
                each += p->copies[i].unit == i && p->lanes[p->copies[i].lane].worker == (uint32_t)w;
            EXPECT(each > 0);
            EXPECT_EQ_UINT(pipe_->workers[w].copy_event_count - before[w], each);
        }
    }
    weir_pipe_destroy(pipe_);
    engine_gpu_expect_clean(gpu);
}

/* ---- what is not waited for ---- */

static uint32_t own_waits(void) {
    const struct weir__row_plan *p = pipe_->prepared[0];
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->copy_count; i++) {
        const struct weir__prepared_copy *copy = &p->copies[i];
        if (copy->lane == WEIR__NO_LANE || copy->unit != i) continue;
        for (uint32_t k = copy->wait_begin; k < copy->wait_end; k++)
            count +=
                p->waits[k].copy != WEIR__NO_COPY && p->copies[p->waits[k].copy].lane == copy->lane;
    }
    return count;
}

static void count_own_waits(const struct weir_fake_cuda_control *gpu, uint32_t counts[2]) {
    static const char *const devices[] = {"cuda:0", "cuda:1", "cuda:0", "cuda:1",
                                          "cuda:0", "cuda:1", "cuda:0", "cuda:1"};
    static struct engine_random run;
    engine_random_choose(&run, &model);
    run.options.devices = devices;
    run.options.device_count = run.options.workers > 0 ? run.options.workers : model.stage_count;
    run.options.debug_inputs = false;
    run.options.link_delay_ns = 0;
    run.options.link = WEIR_LINK_AUTO;
    model.gpu = gpu;
    for (int hops = 0; hops <= 1; hops++) {
        gpu->reset(1, 2, hops != 0 ? WEIR_FAKE_CUDA_NO_PEERS : 0);
        CHECK_OK(weir_pipe_new(&run.options, NULL, &pipe_));
        counts[hops] += own_waits();
        weir_pipe_destroy(pipe_);
        engine_gpu_expect_clean(gpu);
    }
}

/* Through slots that are used again, copies wait for each other where nothing else keeps them in
 * order; in a stream they are. */
static void test_copies_wait_for_each_other_only_in_hops(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    uint32_t counts[2] = {0};
    for (int i = 0; gpu != NULL && i < 300 && counts[1] == 0; i++) {
        count_own_waits(gpu, counts);
        CHECK_HELPERS();
    }
    CHECK_EQ_UINT(counts[0], 0);
    CHECK(gpu == NULL || counts[1] > 0);
}

/* ---- a profiler's ranges ---- */

static uint32_t count_ranges(const struct weir_fake_cuda_control *gpu) {
    struct weir_fake_cuda_range range;
    uint32_t count = 0;
    while (gpu->range(count, &range)) count++;
    return count;
}

/* How many ranges there are of an action of this name, each of which has ended, is in no other, and
 * is on the thread of its worker. */
static uint32_t count_named(const struct weir_fake_cuda_control *gpu, const char *name,
                            int *thread) {
    struct weir_fake_cuda_range range;
    uint32_t found = 0;
    for (uint64_t i = 0; gpu->range(i, &range); i++) {
        if (strcmp(range.name, name) != 0) continue;
        found++;
        EXPECT(range.ended && range.depth == 0);
        if (*thread == 0) *thread = range.thread;
        EXPECT_EQ_INT(range.thread, *thread);
    }
    return found;
}

static void test_an_attached_profiler_sees_each_action_as_a_range(void) {
    static const char *const devices[] = {"cuda:0", "cuda:1", NULL};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    slow_stage = UINT32_MAX;
    if (gpu == NULL) return;
    CHECK(setenv("WEIR_NVTX", test_fake_cuda_path(), 1) == 0);
    CHECK(open_pipe(gpu, devices, WEIR_FAKE_CUDA_RANDOM, false)); /* nobody is attached */
    run_step();
    weir_pipe_destroy(pipe_);
    CHECK_EQ_UINT(count_ranges(gpu), 0);
    CHECK(setenv("NVTX_INJECTION64_PATH", "/a/profiler.so", 1) == 0);
    CHECK(open_pipe(gpu, devices, WEIR_FAKE_CUDA_RANDOM, false));
    run_step();
    const struct weir_table *table = pipe_->prepared[0]->table;
    int threads[2] = {0};
    for (uint32_t w = 0; w < table->worker_count; w++) {
        for (uint32_t i = table->lines[w]; i < table->lines[w + 1]; i++) {
            char name[24];
            CHECK_EQ_UINT(
                count_named(gpu, weir__action_text(&table->actions[i], name), &threads[w]), 1);
        }
    }
    CHECK_EQ_UINT(count_ranges(gpu), table->action_count);
    CHECK(threads[0] != threads[1]);
    weir_pipe_destroy(pipe_);
    CHECK(setenv("WEIR_NVTX", "/none/nvtx.so", 1) == 0); /* runs all the same */
    CHECK(open_pipe(gpu, devices, WEIR_FAKE_CUDA_RANDOM, false));
    run_step();
    weir_pipe_destroy(pipe_);
    engine_gpu_expect_clean(gpu);
}

WEIR_TEST_SUITE(trace_gpu, TEST(an_attached_profiler_sees_each_action_as_a_range),
                TEST(recompute_runs_while_the_gradient_is_on_its_way),
                TEST(a_cpu_recomputes_while_its_gradient_is_copied),
                TEST(a_wait_for_a_copy_says_so), TEST(no_step_asks_for_its_own_stamps),
                TEST(several_readers_stamp_a_step_once),
                TEST(copies_wait_for_each_other_only_in_hops))
