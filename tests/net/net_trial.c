/* SPDX-License-Identifier: MIT */
/* One net, one step, all results. */
#include "net/net_trial.h"

#include "harness.h"
#include "io/file.h"
#include "net/run/files.h"
#include "schedule/action.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- data ---- */

static void fill(void *data, size_t bytes, enum weir_dtype dtype, int64_t below) {
    size_t count = bytes / weir_dtype_bytes(dtype);
    for (size_t i = 0; i < count; i++) {
        double value = 2 * test_random_unit() - 1;
        if (dtype == WEIR_F32)
            ((float *)data)[i] = (float)value;
        else if (dtype == WEIR_F64)
            ((double *)data)[i] = value;
        else
            ((int64_t *)data)[i] = (int64_t)test_random_below((uint64_t)below);
    }
}

static void *random_tensor(const struct weir_tensor *like, enum weir_dtype dtype, int64_t rows,
                           int64_t below, size_t *bytes) {
    struct weir_tensor tensor = *like;
    if (weir_dtype_is_float(tensor.dtype)) tensor.dtype = dtype;
    if (!EXPECT_STATUS(weir__tensor_bytes(&tensor, rows, bytes), WEIR_OK)) return NULL;
    void *data = weir__acquire(test_allocator(), *bytes, 1);
    if (EXPECT(data != NULL)) fill(data, *bytes, tensor.dtype, below);
    return data;
}

void trial_data_init(struct trial_data *data, const struct weir_tensor *input,
                     const struct weir_tensor *target, enum weir_dtype dtype, int64_t rows,
                     int64_t classes, int64_t labels) {
    memset(data, 0, sizeof *data);
    data->rows = rows;
    data->input = random_tensor(input, dtype, rows, classes, &data->input_bytes);
    data->target = random_tensor(target, dtype, rows, labels, &data->target_bytes);
}

void trial_data_of(struct trial_data *data, const struct weir_model *model, enum weir_dtype dtype,
                   int64_t rows, int64_t classes) {
    struct weir_tensor input, target;
    const char *loss;
    weir_model_border(model, &input, &target, &loss);
    trial_data_init(data, &input, &target, dtype, rows, classes, classes);
}

void trial_data_clean_up(struct trial_data *data) {
    weir__release(test_allocator(), data->input, data->input_bytes, 1);
    weir__release(test_allocator(), data->target, data->target_bytes, 1);
    memset(data, 0, sizeof *data);
}

/* ---- models and nets ---- */

struct weir_net_options trial_options(uint32_t stages, int64_t rows, uint32_t chunks) {
    struct weir_net_options options = WEIR_NET_OPTIONS_INIT;
    options.pipe.allocator = test_allocator();
    options.pipe.rows = rows;
    options.pipe.chunks = chunks;
    options.pipe.threads_per_worker = 1;
    options.pipe.bind = "none";
    options.pipe.wait = WEIR_WAIT_PARK;
    options.stages = stages;
    options.dtype = WEIR_F64;
    options.seed = 5;
    return options;
}

/* ---- tables with split backwards ---- */

struct splitting {
    char *text;
    size_t length;
    struct weir_action waiting[1024]; /* W that are due, in order */
    uint32_t waiting_count;
};

static void put_action(struct splitting *to, enum weir_kind kind, const struct weir_action *like) {
    struct weir_action action = *like;
    char cell[24];
    action.kind = (uint8_t)kind;
    size_t left = TRIAL_TABLE_BYTES - to->length;
    int length = snprintf(to->text + to->length, left, "%s,", weir__action_text(&action, cell));
    if (EXPECT((size_t)length < left)) to->length += (size_t)length;
}

static void put_waiting(struct splitting *to, uint32_t index) {
    struct weir_action action = to->waiting[index];
    to->waiting_count--;
    memmove(&to->waiting[index], &to->waiting[index + 1],
            (to->waiting_count - index) * sizeof to->waiting[0]);
    put_action(to, WEIR_KIND_W, &action);
}

/* A stage's gradients are added up in the order of its B and W. */
static void put_waiting_of(struct splitting *to, uint32_t stage) {
    for (uint32_t i = 0; i < to->waiting_count;) {
        if (to->waiting[i].stage == stage)
            put_waiting(to, i);
        else
            i++;
    }
}

static void split_row(struct splitting *to, const struct weir_table *table, uint32_t w,
                      uint32_t percent) {
    for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
        const struct weir_action *action = &table->actions[a];
        if (action->kind == WEIR_KIND_U) continue;
        bool splits = action->kind == WEIR_KIND_B && test_random_below(100) < percent;
        if (action->kind == WEIR_KIND_B && !splits) put_waiting_of(to, action->stage);
        put_action(to, splits ? WEIR_KIND_I : (enum weir_kind)action->kind, action);
        if (splits && EXPECT(to->waiting_count < 1024)) to->waiting[to->waiting_count++] = *action;
        while (to->waiting_count > 0 && test_random_below(3) == 0) put_waiting(to, 0);
    }
    while (to->waiting_count > 0) put_waiting(to, 0);
}

void trial_split(struct weir_net_options *options, uint32_t percent, char text[TRIAL_TABLE_BYTES]) {
    static struct splitting to;
    struct weir_table_options like = WEIR_TABLE_OPTIONS_INIT;
    int64_t rows = options->pipe.rows, chunks = options->pipe.chunks;
    int64_t size = (rows + chunks - 1) / chunks;
    struct weir_table *table;
    like.allocator = test_allocator();
    like.schedule = options->pipe.schedule;
    like.stages = options->stages;
    like.workers = options->pipe.workers;
    like.micro_batches = (uint32_t)((rows + size - 1) / size);
    like.checkpoint = options->pipe.checkpoint;
    like.stage_checkpoint = options->pipe.stage_checkpoint;
    like.recompute_late = options->pipe.recompute_late;
    if (!EXPECT_STATUS(weir_table_new(&like, NULL, &table), WEIR_OK)) return;
    memset(&to, 0, sizeof to);
    to.text = text;
    for (uint32_t w = 0; w < table->worker_count; w++) {
        split_row(&to, table, w, percent);
        if (to.length > 0) text[to.length - 1] = '\n';
    }
    weir_table_destroy(table);
    options->pipe.table_csv = text;
    options->pipe.table_csv_bytes = to.length;
}

struct weir_model *trial_model(struct weir_tensor input, struct weir_tensor target,
                               const char *loss) {
    struct weir_model *model = NULL;
    EXPECT_STATUS(weir_model_new(test_allocator(), &input, &target, loss, &model), WEIR_OK);
    return model;
}

static void report_faults(struct weir_faults *faults) {
    for (uint32_t i = 0; i < faults->kept; i++) TEST_FAIL("fault: %s", faults->lines[i]);
    weir_faults_clean_up(faults);
}

void trial_add(struct weir_model *model, const char *type, struct weir_attrs attrs) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    if (model == NULL) return;
    EXPECT_STATUS(weir_model_add(model, type, NULL, attrs, &faults), WEIR_OK);
    report_faults(&faults);
}

void trial_add_skip(struct weir_model *model, const char *type, const char *skip,
                    const char *name_space) {
    trial_add(model, type,
              WEIR_ATTRS(WEIR_ATTR_TEXT("skip", skip), WEIR_ATTR_TEXT("namespace", name_space)));
}

struct weir_net *trial_net(const struct weir_model *model, const struct weir_net_options *options) {
    struct weir_net *net = NULL;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    bool made = EXPECT_STATUS(weir_net_new(model, options, &faults, &net), WEIR_OK);
    report_faults(&faults);
    if (!made) return NULL;
    EXPECT_STATUS(weir_net_init(net, 7), WEIR_OK);
    return net;
}

/* ---- steps ---- */

static size_t parameter_bytes(const struct weir_parameter *parameter) {
    return (size_t)parameter->count * weir_dtype_bytes(parameter->dtype);
}

static void take_gradients(struct weir_net *net, struct trial_result *result) {
    struct weir_parameter parameter;
    for (uint32_t i = 0; i < weir_net_parameter_count(net); i++)
        if (EXPECT_STATUS(weir_net_parameter(net, i, &parameter), WEIR_OK) && !parameter.statistic)
            result->gradient_bytes += parameter_bytes(&parameter);
    result->gradients = weir__acquire(test_allocator(), result->gradient_bytes, 1);
    if (!EXPECT(result->gradients != NULL)) return;
    char *next = result->gradients;
    for (uint32_t i = 0; i < weir_net_parameter_count(net); i++) {
        EXPECT_STATUS(weir_net_parameter(net, i, &parameter), WEIR_OK);
        if (parameter.statistic) continue;
        EXPECT(parameter.frozen == (parameter.gradient == NULL));
        if (parameter.gradient != NULL)
            EXPECT_STATUS(weir_pipe_read(weir_net_pipe(net), parameter.stage, next,
                                         parameter.gradient, parameter_bytes(&parameter)),
                          WEIR_OK);
        next += parameter_bytes(&parameter);
    }
}

static void take_statistic(struct weir_net *net, const struct weir_parameter *parameter,
                           double *to) {
    unsigned char *numbers = weir__acquire(test_allocator(), parameter_bytes(parameter), 1);
    if (!EXPECT(numbers != NULL)) return;
    EXPECT_STATUS(weir_pipe_read(weir_net_pipe(net), parameter->stage, numbers, parameter->data,
                                 parameter_bytes(parameter)),
                  WEIR_OK);
    for (uint64_t k = 0; k < parameter->count; k++)
        to[k] = weir__number_at(parameter->dtype, numbers, k);
    weir__release(test_allocator(), numbers, parameter_bytes(parameter), 1);
}

static void take_statistics(struct weir_net *net, struct trial_result *result) {
    struct weir_parameter parameter;
    for (int pass = 0; pass < 2; pass++) {
        size_t count = 0;
        for (uint32_t i = 0; i < weir_net_parameter_count(net); i++) {
            EXPECT_STATUS(weir_net_parameter(net, i, &parameter), WEIR_OK);
            if (!parameter.statistic || parameter.dtype == WEIR_I64) continue;
            if (pass == 1) take_statistic(net, &parameter, result->statistics + count);
            count += (size_t)parameter.count;
        }
        if (pass == 1) break;
        result->statistic_count = count;
        result->statistics = weir__acquire(test_allocator(), count, sizeof(double));
        if (!EXPECT(result->statistics != NULL)) return;
    }
}

static size_t output_bytes(const struct weir_model *model, enum weir_dtype dtype, int64_t rows) {
    static struct weir_layer_facts facts[512];
    size_t bytes = 0;
    uint32_t count = weir_model_layer_count(model);
    if (!EXPECT(count > 0 && count <= 512)) return 0;
    EXPECT_STATUS(weir_model_infer(model, dtype, facts, NULL), WEIR_OK);
    EXPECT_STATUS(weir__tensor_bytes(&facts[count - 1].output, rows, &bytes), WEIR_OK);
    return bytes;
}

void trial_fill_adapters(struct weir_net *net) {
    static double values[4096];
    struct weir_parameter p;
    for (uint32_t i = 0; weir_net_parameter(net, i, &p) == WEIR_OK; i++) {
        size_t bytes = (size_t)p.count * weir_dtype_bytes(p.dtype);
        if (!p.adapter || !EXPECT(p.count <= WEIR__COUNT_OF(values))) continue;
        for (uint64_t k = 0; k < p.count; k++) {
            double value = 0.3 * sin((double)(i * 100 + k));
            if (p.dtype == WEIR_F64)
                values[k] = value;
            else
                ((float *)values)[k] = (float)value;
        }
        EXPECT_STATUS(weir_pipe_write(weir_net_pipe(net), p.stage, p.data, values, bytes), WEIR_OK);
    }
    EXPECT_STATUS(weir_net_share(net), WEIR_OK);
}

void trial_step(struct weir_net *net, const struct weir_model *model, const struct trial_data *data,
                struct trial_result *result) {
    memset(result, 0, sizeof *result);
    struct weir_parameter parameter = {.dtype = WEIR_F32};
    weir_net_parameter(net, 0, &parameter);
    result->output_bytes = output_bytes(model, parameter.dtype, data->rows);
    result->output = weir__acquire(test_allocator(), result->output_bytes, 1);
    result->input_grad_bytes = data->input_bytes;
    result->input_grad = weir__acquire(test_allocator(), result->input_grad_bytes, 1);
    if (!EXPECT(result->output != NULL && result->input_grad != NULL)) return;
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = data->rows;
    batch.input = data->input;
    batch.target = data->target;
    batch.output = result->output;
    batch.input_grad = result->input_grad;
    batch.mini_batch = 3;
    batch.no_update = true;
    struct weir_step_result step;
    int status = weir_net_step(net, &batch, &step);
    if (!EXPECT_STATUS(status, WEIR_OK)) TEST_FAIL("%s: %s", step.error.layer, step.error.message);
    result->loss = step.loss;
    result->norm = step.gradient_norm;
    take_gradients(net, result);
    take_statistics(net, result);
}

void trial_run(const struct weir_model *model, const struct weir_net_options *options,
               const struct trial_data *data, struct trial_result *result) {
    memset(result, 0, sizeof *result);
    struct weir_net *net = trial_net(model, options);
    if (net == NULL) return;
    trial_step(net, model, data, result);
    weir_net_destroy(net);
}

void trial_result_clean_up(struct trial_result *result) {
    weir__release(test_allocator(), result->output, result->output_bytes, 1);
    weir__release(test_allocator(), result->input_grad, result->input_grad_bytes, 1);
    weir__release(test_allocator(), result->gradients, result->gradient_bytes, 1);
    weir__release(test_allocator(), result->statistics, result->statistic_count, sizeof(double));
    memset(result, 0, sizeof *result);
}

void trial_result_compare(const struct trial_result *a, const struct trial_result *b) {
    EXPECT_EQ_BYTES(&a->loss, &b->loss, sizeof a->loss);
    EXPECT_EQ_BYTES(&a->norm, &b->norm, sizeof a->norm);
    if (EXPECT_EQ_UINT(a->output_bytes, b->output_bytes))
        EXPECT_EQ_BYTES(a->output, b->output, a->output_bytes);
    if (EXPECT_EQ_UINT(a->input_grad_bytes, b->input_grad_bytes))
        EXPECT_EQ_BYTES(a->input_grad, b->input_grad, a->input_grad_bytes);
    if (EXPECT_EQ_UINT(a->gradient_bytes, b->gradient_bytes))
        EXPECT_EQ_BYTES(a->gradients, b->gradients, a->gradient_bytes);
    if (EXPECT_EQ_UINT(a->statistic_count, b->statistic_count))
        EXPECT_EQ_BYTES(a->statistics, b->statistics, a->statistic_count * sizeof(double));
}

/* ---- central differences ---- */

static double loss_of(struct weir_net *net, const struct trial_data *data) {
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = data->rows;
    batch.input = data->input;
    batch.target = data->target;
    batch.mini_batch = 3;
    batch.no_update = true;
    struct weir_step_result step;
    EXPECT_STATUS(weir_net_step(net, &batch, &step), WEIR_OK);
    return step.loss;
}

static double loss_at(struct weir_net *net, const struct trial_data *data, double *number,
                      double value) {
    double kept = *number;
    *number = value;
    EXPECT_STATUS(weir_net_share(net), WEIR_OK);
    double loss = loss_of(net, data);
    *number = kept;
    EXPECT_STATUS(weir_net_share(net), WEIR_OK);
    return loss;
}

/** Five points: the error is about h^4 from the fifth derivative and epsilon / h from rounding. */
static double difference(struct weir_net *net, const struct trial_data *data, double *number,
                         double h) {
    double x = *number;
    double near = loss_at(net, data, number, x + h) - loss_at(net, data, number, x - h);
    double far = loss_at(net, data, number, x + 2 * h) - loss_at(net, data, number, x - 2 * h);
    return (8 * near - far) / (12 * h);
}

/** Losses here are of order 1. Where the large step fails it may have crossed a ReLU's kink; the
 * small one, less exact, hardly ever does. */
static void check_numbers(struct weir_net *net, const struct trial_data *data, double *numbers,
                          const double *gradient, uint64_t count, const char *name) {
    for (uint64_t i = 0; i < count && !test_has_failed(); i++) {
        double wanted = difference(net, data, &numbers[i], 1e-4);
        if (fabs(gradient[i] - wanted) <= 1e-9 * (1 + fabs(wanted))) continue;
        wanted = difference(net, data, &numbers[i], 1e-6);
        if (!EXPECT_NEAR(gradient[i], wanted, 2e-9 * (1 + fabs(wanted))))
            TEST_FAIL("gradient of %s[%llu]", name, (unsigned long long)i);
    }
}

void trial_check_net(struct weir_net *net, const struct weir_model *model, bool input_grads,
                     const struct trial_data *data) {
    struct trial_result result = {0};
    trial_step(net, model, data, &result);
    const double *gradient = result.gradients;
    for (uint32_t i = 0; i < weir_net_parameter_count(net) && !test_has_failed(); i++) {
        struct weir_parameter parameter;
        EXPECT_STATUS(weir_net_parameter(net, i, &parameter), WEIR_OK);
        if (parameter.statistic) continue;
        if (parameter.gradient != NULL)
            check_numbers(net, data, parameter.data, gradient, parameter.count, parameter.name);
        gradient += parameter.count;
    }
    if (input_grads && !test_has_failed())
        check_numbers(net, data, data->input, result.input_grad, data->input_bytes / sizeof(double),
                      "input");
    trial_result_clean_up(&result);
}

void trial_check_gradients(const struct weir_model *model, const struct weir_net_options *options,
                           const struct trial_data *data) {
    struct weir_net *net = trial_net(model, options);
    if (net != NULL) trial_check_net(net, model, options->input_grads, data);
    weir_net_destroy(net);
}

bool trial_same_files(const char *a, const char *b) {
    struct weir__io io = {.allocator = test_allocator()};
    struct weir__bytes left = {0}, right = {0};
    bool same = EXPECT_STATUS(weir__file_read(&io, a, 1 << 26, &left), WEIR_OK) &&
                EXPECT_STATUS(weir__file_read(&io, b, 1 << 26, &right), WEIR_OK) &&
                EXPECT_EQ_UINT(left.count, right.count) &&
                EXPECT_EQ_BYTES(left.data, right.data, left.count);
    weir__bytes_release(test_allocator(), &left);
    weir__bytes_release(test_allocator(), &right);
    return same;
}

bool trial_same_exported(const char *alone, const char *together) {
    struct weir__io io = {.allocator = test_allocator()};
    char exported[1024];
    if (test_has_failed()) return false;
    snprintf(exported, sizeof exported, "%s.exported", together);
    return EXPECT_STATUS(weir__net_export(&io, together, exported, false), WEIR_OK) &&
           trial_same_files(alone, exported);
}

uint32_t trial_count_ops(const struct weir__slices *slices, enum weir__program_kind kind,
                         enum weir__op_code op) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < slices->node_counts[kind]; i++)
        count += slices->graph->nodes[slices->nodes[kind][i]]->op == op;
    return count;
}
