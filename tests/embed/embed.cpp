/* SPDX-License-Identifier: MIT */
/*
 * The engine from C++: any number of equal stages, each h = h + w on its own worker, the last of
 * them with the loss mean (h - y)^2 / 2. With y = x + 1 the weights must add up to 1. What a stage
 * throws may not leave its callback, so it is turned into a status there.
 *
 *   c++ embed.cpp $(pkg-config --cflags --libs weir)
 */
#include "weir.h"

#include <cmath>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int64_t rows = 24;
constexpr double rate = 0.2;

class Stage {
  public:
    explicit Stage(bool is_last) : last(is_last) {
    }

    double weight() const {
        return *parameter;
    }

    void attach(const weir_attachment &attachment) {
        parameter = static_cast<double *>(attachment.parameters);
        gradient = static_cast<double *>(attachment.gradients);
    }

    void forward(const weir_task &task) {
        const double *x = view(task.inputs[0]);
        double *h = view(task.outputs[0]);
        double sum = 0;
        for (int64_t r = 0; r < task.rows; r++) {
            h[r] = x[r] + *parameter;
            if (last) sum += error(task, h[r], r) * error(task, h[r], r);
        }
        if (last && task.loss) *task.loss = sum / 2 / task.loss_weight;
    }

    /* Linear: the gradient needs no activation, but the last stage computes h once more. */
    void backward(const weir_task &task) {
        const double *x = view(task.inputs[0]);
        double sum = 0;
        for (int64_t r = 0; r < task.rows; r++) {
            double h = x[r] + *parameter;
            double grad =
                last ? error(task, h, r) / task.loss_weight : view(task.output_grads[0])[r];
            if (task.input_grads[0].data) view(task.input_grads[0])[r] = grad;
            sum += grad;
        }
        *gradient = task.gradients_first ? sum : *gradient + sum;
    }

    void update(const weir_task &task) {
        *parameter -= rate * task.gradient_scale * *gradient;
    }

  private:
    static double *view(const weir_view &view) {
        return static_cast<double *>(view.data);
    }

    static double error(const weir_task &task, double h, int64_t row) {
        return h - view(task.inputs[1])[row];
    }

    bool last;
    double *parameter = nullptr;
    double *gradient = nullptr;
};

/* A callback of C out of a member function. */
template <void (Stage::*member)(const weir_task &)> int call(void *context, const weir_task *task) {
    try {
        (static_cast<Stage *>(context)->*member)(*task);
        return WEIR_OK;
    } catch (const std::exception &exception) {
        std::snprintf(task->error->message, sizeof task->error->message, "%s", exception.what());
        return WEIR_ERR_CALLBACK;
    }
}

int attach(void *context, const weir_attachment *attachment) {
    static_cast<Stage *>(context)->attach(*attachment);
    return WEIR_OK;
}

struct PipeDeleter {
    void operator()(weir_pipe *pipe) const {
        weir_pipe_destroy(pipe);
    }
};
using Pipe = std::unique_ptr<weir_pipe, PipeDeleter>;

Pipe build(std::vector<Stage> &models) {
    weir_stage_calls calls = {};
    calls.forward = call<&Stage::forward>;
    calls.backward = call<&Stage::backward>;
    calls.update = call<&Stage::update>;
    calls.attach = attach;

    weir_tensor data = {};
    data.dtype = WEIR_F64;
    weir_tensor border = data;
    border.differentiable = true;
    std::vector<weir_stage> stages(models.size(), weir_stage WEIR_STAGE_INIT);
    for (size_t s = 0; s < stages.size(); s++) {
        stages[s].calls = &calls;
        stages[s].context = &models[s];
        stages[s].outputs = &border;
        stages[s].output_count = 1;
        stages[s].parameter_bytes = stages[s].gradient_bytes = sizeof(double);
    }
    weir_input inputs[2] = {};
    inputs[0].tensor = inputs[1].tensor = data;
    inputs[0].name = "x";
    inputs[1].name = "y";
    inputs[1].stage = static_cast<uint32_t>(models.size() - 1);

    weir_pipe_options options = WEIR_PIPE_OPTIONS_INIT;
    options.stages = stages.data();
    options.stage_count = static_cast<uint32_t>(stages.size());
    options.inputs = inputs;
    options.input_count = 2;
    options.rows = rows;
    options.chunks = 5;
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    weir_faults faults = WEIR_FAULTS_INIT;
    weir_pipe *pipe = nullptr;
    int status = weir_pipe_new(&options, &faults, &pipe);
    std::string reason = faults.kept > 0 ? faults.lines[0] : weir_status_text(status);
    weir_faults_clean_up(&faults);
    if (status != WEIR_OK) throw std::runtime_error(reason);
    return Pipe(pipe);
}

double train(weir_pipe *pipe) {
    std::vector<double> x(rows), y(rows);
    for (int64_t r = 0; r < rows; r++) {
        x[r] = std::sin(static_cast<double>(r));
        y[r] = x[r] + 1;
    }
    const void *inputs[] = {x.data(), y.data()};
    weir_step_result result = {};
    for (uint64_t i = 0; i < 100; i++) {
        weir_step step = WEIR_STEP_INIT;
        step.rows = rows;
        step.inputs = inputs;
        step.mini_batch = step.update = i;
        int status = weir_pipe_step(pipe, &step, &result);
        if (status != WEIR_OK) throw std::runtime_error(result.error.message);
    }
    return result.loss;
}

} // namespace

int main() {
    std::vector<Stage> models = {Stage(false), Stage(false), Stage(true)};
    try {
        Pipe pipe = build(models);
        double loss = train(pipe.get());
        double sum = 0;
        for (const Stage &model : models) sum += model.weight();
        std::printf("weights add up to %.9f, loss %.3g\n", sum, loss);
        return std::fabs(sum - 1) < 1e-6 && loss < 1e-12 ? 0 : 1;
    } catch (const std::exception &exception) {
        std::fprintf(stderr, "embed: %s\n", exception.what());
        return 1;
    }
}
