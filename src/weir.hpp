// SPDX-License-Identifier: MIT
/**
 * Weir from C++17 and later: handles that free what they hold, spans over what a task points at,
 * callbacks out of member functions, attributes as a list, and failures as exceptions. A header
 * alone: everything is done by weir.h's and weir_net.h's functions, whose comments hold here too,
 * and all of their structs are used as they are. Programs that include it link weir, and weir_net
 * where they use what stands below "networks".
 *
 * @code
 *   struct Stage {
 *       void attach(const weir_attachment &memory);
 *       void forward(const weir_task &task);  // may throw: the step fails with its message
 *       void backward(const weir_task &task);
 *       void update(const weir_task &task);
 *   };
 *   std::vector<Stage> models(3);
 *   std::vector<weir_stage> stages;
 *   for (Stage &model : models) stages.push_back(weir::stage(model));
 *   weir_pipe_options options = weir::pipe_options();
 *   ...
 *   weir::pipe pipe = weir::make_pipe(options);
 *   weir_step step = weir::step();
 *   double loss = weir::run(pipe, step).loss;
 *
 *   weir::model model = weir::make_model(x, target, "cross_entropy");
 *   weir::add(model, "linear", {{"out_features", 10}, {"bias", false}});
 *   weir::net net = weir::make_net(model, options);  // before the model in destruction: declare
 *                                                     // it behind the model
 * @endcode
 */
#ifndef WEIR_HPP
#define WEIR_HPP

#include "weir_net.h"

#include <cstddef>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#pragma GCC system_header /* as the headers in C; see weir_base.h */

namespace weir {

/* ---- failures -------------------------------------------------------------------------------- */

/** A call that failed: its status and every line that it reported. */
class error : public std::runtime_error {
  public:
    error(int status, const std::string &text)
        : std::runtime_error(text.empty() ? weir_status_text(status) : text), code(status) {
    }
    int status() const noexcept {
        return code;
    }

  private:
    int code;
};

/** A list of faults that frees itself; gives itself to calls as struct weir_faults *. */
class faults {
  public:
    faults() = default;
    faults(const faults &) = delete;
    faults &operator=(const faults &) = delete;
    ~faults() {
        weir_faults_clean_up(&list);
    }
    operator weir_faults *() noexcept {
        return &list;
    }
    /** The lines, each ended by a newline but the last. */
    std::string text() const {
        std::string all;
        for (std::uint32_t i = 0; i < list.kept; i++) all += (i > 0 ? "\n" : "") + lines(i);
        return all;
    }
    /** Throws unless `status` is WEIR_OK. */
    void check(int status) const {
        if (status != WEIR_OK) throw error(status, text());
    }

  private:
    std::string lines(std::uint32_t i) const {
        return list.lines[i];
    }
    weir_faults list = WEIR_FAULTS_INIT;
};

/* ---- handles --------------------------------------------------------------------------------- */

/** Calls the C function that frees a thing. */
template <typename T, void (*destroy)(T *)> struct destroyer {
    void operator()(T *thing) const noexcept {
        destroy(thing);
    }
};
template <typename T, void (*destroy)(T *)>
using handle = std::unique_ptr<T, destroyer<T, destroy>>;

using table = handle<weir_table, weir_table_destroy>;
using plan = handle<weir_plan, weir_plan_destroy>;
using pipe = handle<weir_pipe, weir_pipe_destroy>;

namespace detail {

/** "stage 1, micro-batch 0, backward, layer 3 (linear): message", as far as it is known. */
inline std::string text(const weir_error &from) {
    std::string place;
    const auto add = [&place](const std::string &part) {
        place += (place.empty() ? "" : ", ") + part;
    };
    if (from.stage >= 0) add("stage " + std::to_string(from.stage));
    if (from.micro_batch >= 0) add("micro-batch " + std::to_string(from.micro_batch));
    if (from.phase != WEIR_PHASE_COUNT) add(weir_phase_name(from.phase));
    if (from.layer[0] != '\0') add(std::string("layer ") + from.layer);
    if (!place.empty()) place += ": ";
    return place + (from.message[0] != '\0' ? from.message : weir_status_text(from.status));
}

} // namespace detail

/* ---- initialised structs --------------------------------------------------------------------- */

inline weir_table_options table_options() {
    return WEIR_TABLE_OPTIONS_INIT;
}
inline weir_pipe_options pipe_options() {
    return WEIR_PIPE_OPTIONS_INIT;
}
inline weir_step step() {
    return WEIR_STEP_INIT;
}

/* ---- spans ----------------------------------------------------------------------------------- */

/** Numbers that somebody else owns: std::span of C++20, as far as it is needed. */
template <typename T> class span {
  public:
    span() = default;
    span(T *data, std::size_t size) : first(data), count(size) {
    }
    T *data() const noexcept {
        return first;
    }
    std::size_t size() const noexcept {
        return count;
    }
    bool empty() const noexcept {
        return count == 0;
    }
    T *begin() const noexcept {
        return first;
    }
    T *end() const noexcept {
        return first + count;
    }
    T &operator[](std::size_t i) const {
        return first[i];
    }

  private:
    T *first = nullptr;
    std::size_t count = 0;
};

/** The numbers of a view, `per_row` a row; empty where there are none, as of a gradient that nobody
 * wants. T is what the tensor's dtype says. */
template <typename T> span<T> numbers(const weir_view &view, std::size_t per_row = 1) {
    if (view.data == nullptr) return {};
    return {static_cast<T *>(view.data), static_cast<std::size_t>(view.rows) * per_row};
}
/** A block of a stage's lasting memory: an attachment's parameters, gradients … */
template <typename T> span<T> numbers(void *block, std::size_t count) {
    return {static_cast<T *>(block), block != nullptr ? count : 0};
}

/* ---- callbacks out of member functions ------------------------------------------------------- */

namespace detail {

/** Runs `call`, and turns what it throws into a status: no exception may pass through C. */
template <typename Call> int guarded(weir_error *to, Call &&call) noexcept {
    int status = WEIR_ERR_CALLBACK;
    try {
        call();
        return WEIR_OK;
    } catch (const error &thrown) {
        status = thrown.status();
        if (to != nullptr) std::snprintf(to->message, sizeof to->message, "%s", thrown.what());
    } catch (const std::bad_alloc &) {
        return WEIR_ERR_OUT_OF_MEMORY;
    } catch (const std::exception &thrown) {
        if (to != nullptr) std::snprintf(to->message, sizeof to->message, "%s", thrown.what());
    } catch (...) {
        if (to != nullptr)
            std::snprintf(to->message, sizeof to->message, "%s",
                          "an exception that is no std::exception");
    }
    return status;
}

#define WEIR_HPP_TASK(name)                                                                        \
    template <typename S, typename = void> struct name##_of {                                      \
        static constexpr weir_task_fn *call = nullptr;                                             \
    };                                                                                             \
    template <typename S>                                                                          \
    struct name##_of<                                                                              \
        S, std::void_t<decltype(std::declval<S &>().name(std::declval<const weir_task &>()))>> {   \
        static int call(void *context, const weir_task *task) noexcept {                           \
            return guarded(task->error, [&] { static_cast<S *>(context)->name(*task); });          \
        }                                                                                          \
    }
WEIR_HPP_TASK(forward);
WEIR_HPP_TASK(recompute);
WEIR_HPP_TASK(backward);
WEIR_HPP_TASK(backward_input);
WEIR_HPP_TASK(backward_weight);
WEIR_HPP_TASK(norm);
WEIR_HPP_TASK(update);
#undef WEIR_HPP_TASK

template <typename S, typename = void> struct measure_of {
    static constexpr int (*call)(void *, std::int64_t, weir_stage_bytes *) = nullptr;
};
template <typename S>
struct measure_of<S, std::void_t<decltype(std::declval<S &>().measure(
                         std::int64_t(), std::declval<weir_stage_bytes &>()))>> {
    static int call(void *context, std::int64_t rows, weir_stage_bytes *bytes) noexcept {
        return guarded(nullptr, [&] { static_cast<S *>(context)->measure(rows, *bytes); });
    }
};

template <typename S, typename = void> struct attach_of {
    static constexpr int (*call)(void *, const weir_attachment *) = nullptr;
};
template <typename S>
struct attach_of<
    S, std::void_t<decltype(std::declval<S &>().attach(std::declval<const weir_attachment &>()))>> {
    static int call(void *context, const weir_attachment *attachment) noexcept {
        return guarded(nullptr, [&] { static_cast<S *>(context)->attach(*attachment); });
    }
};

template <typename S, typename = void> struct prepare_of {
    static constexpr int (*call)(void *, std::int64_t) = nullptr;
};
template <typename S>
struct prepare_of<S, std::void_t<decltype(std::declval<S &>().prepare(std::int64_t()))>> {
    static int call(void *context, std::int64_t rows) noexcept {
        return guarded(nullptr, [&] { static_cast<S *>(context)->prepare(rows); });
    }
};

template <typename S, typename = void> struct detach_of {
    static constexpr void (*call)(void *) = nullptr;
};
template <typename S> struct detach_of<S, std::void_t<decltype(std::declval<S &>().detach())>> {
    static void call(void *context) noexcept {
        (void)guarded(nullptr, [&] { static_cast<S *>(context)->detach(); });
    }
};

} // namespace detail

/** The callbacks of a class: those of struct weir_stage_calls that it has as public member
 * functions of the same names, taking references for pointers and returning nothing. What one
 * throws fails the call: a weir::error with its status, anything else as WEIR_ERR_CALLBACK. Static
 * storage. */
template <typename S> const weir_stage_calls *calls() {
    static_assert(std::is_function_v<decltype(detail::forward_of<S>::call)>,
                  "a stage needs a public member function forward(const weir_task &)");
    static const weir_stage_calls all = [] {
        weir_stage_calls made = {};
        made.forward = detail::forward_of<S>::call;
        made.recompute = detail::recompute_of<S>::call;
        made.backward = detail::backward_of<S>::call;
        made.backward_input = detail::backward_input_of<S>::call;
        made.backward_weight = detail::backward_weight_of<S>::call;
        made.norm = detail::norm_of<S>::call;
        made.update = detail::update_of<S>::call;
        made.measure = detail::measure_of<S>::call;
        made.attach = detail::attach_of<S>::call;
        made.prepare = detail::prepare_of<S>::call;
        made.detach = detail::detach_of<S>::call;
        return made;
    }();
    return &all;
}

/** A stage whose callbacks are the model's member functions; the model must outlive the pipe, and
 * stay where it is. */
template <typename S> weir_stage stage(S &model) {
    weir_stage made = WEIR_STAGE_INIT;
    made.calls = calls<S>();
    made.context = &model;
    return made;
}

/* ---- the engine ------------------------------------------------------------------------------ */

/** weir_table_new. Throws, as all that follow. */
inline table make_table(const weir_table_options &options) {
    faults found;
    weir_table *made = nullptr;
    found.check(weir_table_new(&options, found, &made));
    return table(made);
}
/** weir_pipe_new. */
inline pipe make_pipe(const weir_pipe_options &options) {
    faults found;
    weir_pipe *made = nullptr;
    found.check(weir_pipe_new(&options, found, &made));
    return pipe(made);
}
/** weir_plan_new. */
inline plan make_plan(const weir_pipe_options &options) {
    faults found;
    weir_plan *made = nullptr;
    found.check(weir_plan_new(&options, found, &made));
    return plan(made);
}
/** weir_pipe_step; what() says where it failed, and the message. */
inline weir_step_result run(const pipe &on, const weir_step &step) {
    weir_step_result result = {};
    int status = weir_pipe_step(on.get(), &step, &result);
    if (status != WEIR_OK) throw error(status, detail::text(result.error));
    return result;
}
/** weir_pipe_infer. */
inline weir_step_result infer(const pipe &on, const weir_step &step) {
    weir_step_result result = {};
    int status = weir_pipe_infer(on.get(), &step, &result);
    if (status != WEIR_OK) throw error(status, detail::text(result.error));
    return result;
}

/* ---- networks -------------------------------------------------------------------------------- */

using model = handle<weir_model, weir_model_destroy>;
using net = handle<weir_net, weir_net_destroy>;

inline weir_net_options net_options() {
    return WEIR_NET_OPTIONS_INIT;
}
inline weir_net_batch net_batch() {
    return WEIR_NET_BATCH_INIT;
}

/** An attribute, of the kind that its value's type says. */
struct attr : weir_attr {
    template <typename T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
    attr(const char *key, T value)
        : weir_attr{key,
                    std::is_same_v<T, bool> ? WEIR_ATTR_KIND_FLAG : WEIR_ATTR_KIND_INT,
                    static_cast<std::int64_t>(value),
                    0.0,
                    nullptr,
                    0} {
    }
    attr(const char *key, double value)
        : weir_attr{key, WEIR_ATTR_KIND_REAL, 0, value, nullptr, 0} {
    }
    attr(const char *key, const char *value)
        : weir_attr{key, WEIR_ATTR_KIND_TEXT, 0, 0.0, value, 0} {
    }
    attr(const char *key, std::int64_t height, std::int64_t width)
        : weir_attr{key, WEIR_ATTR_KIND_PAIR, height, 0.0, nullptr, width} {
    }
};

/** weir_model_new without an allocator; `loss` may be null. */
inline model make_model(const weir_tensor &input, const weir_tensor &target, const char *loss) {
    weir_model *made = nullptr;
    faults().check(
        weir_model_new(nullptr, &input, loss != nullptr ? &target : nullptr, loss, &made));
    return model(made);
}
/** weir_model_add: WEIR_ATTRS is a list in braces here. `name` may be null. */
inline void add(const model &to, const char *type, std::initializer_list<attr> attributes = {},
                const char *name = nullptr) {
    faults found;
    const std::vector<weir_attr> list(attributes.begin(), attributes.end());
    const weir_attrs given = {static_cast<std::uint32_t>(list.size()), list.data()};
    found.check(weir_model_add(to.get(), type, name, given, found));
}
/** weir_net_new; the net must go before the model. */
inline net make_net(const model &of, const weir_net_options &options) {
    faults found;
    weir_net *made = nullptr;
    found.check(weir_net_new(of.get(), &options, found, &made));
    return net(made);
}
/** weir_net_step. */
inline weir_step_result run(const net &on, const weir_net_batch &batch) {
    weir_step_result result = {};
    int status = weir_net_step(on.get(), &batch, &result);
    if (status != WEIR_OK) throw error(status, detail::text(result.error));
    return result;
}
/** weir_net_infer. */
inline weir_step_result infer(const net &on, const weir_net_batch &batch) {
    weir_step_result result = {};
    int status = weir_net_infer(on.get(), &batch, &result);
    if (status != WEIR_OK) throw error(status, detail::text(result.error));
    return result;
}

} // namespace weir

#endif
