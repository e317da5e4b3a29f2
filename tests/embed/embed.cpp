/* SPDX-License-Identifier: MIT */
/*
 * From C++. The engine: any number of equal stages, each h = h + w on its own worker, the last of
 * them with the loss mean (h - y)^2 / 2. With y = x + 1 the weights must add up to 1. What a stage
 * throws fails the step with its place and message. And a network over two stages, which must learn
 * which of its inputs is the largest.
 *
 *   c++ embed.cpp $(pkg-config --cflags --libs weir)
 *   c++ -DWITH_NET embed.cpp $(pkg-config --cflags --libs weir_net)
 */
#include "weir.hpp"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace {

constexpr std::int64_t rows = 24;
constexpr double rate = 0.2;

class Stage {
  public:
    explicit Stage(bool is_last) : last(is_last) {
    }

    double weight() const {
        return parameter[0];
    }

    void attach(const weir_attachment &memory) {
        parameter = weir::numbers<double>(memory.parameters, 1);
        gradient = weir::numbers<double>(memory.gradients, 1);
    }

    void forward(const weir_task &task) {
        const auto x = weir::numbers<double>(task.inputs[0]);
        const auto h = weir::numbers<double>(task.outputs[0]);
        double sum = 0;
        for (std::size_t r = 0; r < h.size(); r++) {
            if (!std::isfinite(x[r])) throw std::domain_error("x is not finite");
            h[r] = x[r] + parameter[0];
            if (last) sum += error(task, h[r], r) * error(task, h[r], r);
        }
        if (last && task.loss) *task.loss = sum / 2 / task.loss_weight;
    }

    /* Linear: the gradient needs no activation, but the last stage computes h once more. */
    void backward(const weir_task &task) {
        const auto x = weir::numbers<double>(task.inputs[0]);
        const auto to = weir::numbers<double>(task.input_grads[0]);
        double sum = 0;
        for (std::size_t r = 0; r < x.size(); r++) {
            double grad = last ? error(task, x[r] + parameter[0], r) / task.loss_weight
                               : weir::numbers<double>(task.output_grads[0])[r];
            if (!to.empty()) to[r] = grad;
            sum += grad;
        }
        gradient[0] = task.gradients_first ? sum : gradient[0] + sum;
    }

    void update(const weir_task &task) {
        parameter[0] -= rate * task.gradient_scale * gradient[0];
    }

  private:
    static double error(const weir_task &task, double h, std::size_t row) {
        return h - weir::numbers<double>(task.inputs[1])[row];
    }

    bool last;
    weir::span<double> parameter, gradient;
};

weir::pipe build(std::vector<Stage> &models) {
    weir_tensor data = {};
    data.dtype = WEIR_F64;
    weir_tensor border = data;
    border.differentiable = true;
    std::vector<weir_stage> stages;
    for (Stage &model : models) {
        stages.push_back(weir::stage(model));
        stages.back().outputs = &border;
        stages.back().output_count = 1;
        stages.back().parameter_bytes = stages.back().gradient_bytes = sizeof(double);
    }
    weir_input inputs[2] = {};
    inputs[0].tensor = inputs[1].tensor = data;
    inputs[0].name = "x";
    inputs[1].name = "y";
    inputs[1].stage = static_cast<std::uint32_t>(models.size() - 1);

    weir_pipe_options options = weir::pipe_options();
    options.stages = stages.data();
    options.stage_count = static_cast<std::uint32_t>(stages.size());
    options.inputs = inputs;
    options.input_count = 2;
    options.rows = rows;
    options.chunks = 5;
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    return weir::make_pipe(options);
}

double train(const weir::pipe &pipe) {
    std::vector<double> x(rows), y(rows);
    for (std::int64_t r = 0; r < rows; r++) {
        x[r] = std::sin(static_cast<double>(r));
        y[r] = x[r] + 1;
    }
    const void *inputs[] = {x.data(), y.data()};
    weir_step step = weir::step();
    double loss = 0;
    step.rows = rows;
    step.inputs = inputs;
    for (std::uint64_t i = 0; i < 100; i++) {
        step.mini_batch = step.update = i;
        loss = weir::run(pipe, step).loss;
    }
    return loss;
}

bool refuses(const weir::pipe &pipe) {
    const std::vector<double> x(rows, INFINITY);
    const void *inputs[] = {x.data(), x.data()};
    weir_step step = weir::step();
    step.rows = rows;
    step.inputs = inputs;
    try {
        weir::run(pipe, step);
    } catch (const weir::error &thrown) {
        return thrown.status() == WEIR_ERR_CALLBACK &&
               std::strcmp(thrown.what(), "stage 0, micro-batch 0, forward: x is not finite") == 0;
    }
    return false;
}

int engine() {
    std::vector<Stage> models = {Stage(false), Stage(false), Stage(true)};
    weir::pipe pipe = build(models);
    double loss = train(pipe), sum = 0;
    for (const Stage &model : models) sum += model.weight();
    std::printf("weights add up to %.9f, loss %.3g\n", sum, loss);
    return std::fabs(sum - 1) < 1e-6 && loss < 1e-12 && refuses(pipe) ? 0 : 1;
}

#if defined(WITH_NET)
int network() {
    weir_tensor row = {}, label = {};
    row.rank = 1;
    row.shape[0] = 3;
    label.dtype = WEIR_I64;
    weir::model model = weir::make_model(row, label, "cross_entropy");
    weir::add(model, "linear", {{"out_features", 16}, {"bias", true}});
    weir::add(model, "gelu", {{"approximate", "tanh"}});
    weir::add(model, "dropout", {{"p", 0.05}});
    weir::add(model, "linear", {{"out_features", 3}}, "head");
    weir_net_options options = weir::net_options();
    options.stages = 2;
    options.pipe.rows = rows;
    options.pipe.chunks = 4;
    options.optimizer.lr = 0.05;
    weir::net net = weir::make_net(model, options);
    weir::faults().check(weir_net_init(net.get(), 1));
    std::vector<float> x(3 * rows);
    std::vector<std::int64_t> largest(rows);
    for (std::int64_t r = 0; r < rows; r++) {
        for (int k = 0; k < 3; k++)
            x[3 * r + k] = static_cast<float>(std::sin(1.0 + 7 * r + 3 * k));
        for (int k = 1; k < 3; k++)
            if (x[3 * r + k] > x[3 * r + largest[r]]) largest[r] = k;
    }
    weir_net_batch batch = weir::net_batch();
    batch.rows = rows;
    batch.input = x.data();
    batch.target = largest.data();
    for (int i = 0; i < 200; i++) weir::run(net, batch);
    double loss = weir::infer(net, batch).loss;
    std::printf("loss %.3g\n", loss);
    try {
        weir::add(model, "linear", {{"out_feature", 1}});
        return 1;
    } catch (const weir::error &thrown) {
        if (!std::strstr(thrown.what(), "out_feature")) return 1;
    }
    return loss < 0.05 ? 0 : 1;
}
#else
int network() {
    return 0;
}
#endif

} // namespace

int main() {
    try {
        return engine() + network();
    } catch (const std::exception &exception) {
        std::fprintf(stderr, "embed: %s\n", exception.what());
        return 1;
    }
}
