//! One stage, h = x * w with the loss mean (h - y)^2, written in Zig: w must become 5.

const std = @import("std");
const weir = @import("weir");

const rows = 8;
const rate = 2.0;

const Stage = struct {
    weight: *f64 = undefined,
    gradient: *f64 = undefined,
};

fn stageOf(context: ?*anyopaque) *Stage {
    return @ptrCast(@alignCast(context));
}

fn view(one: weir.struct_weir_view, task: *const weir.struct_weir_task) []f64 {
    const data: [*]f64 = @ptrCast(@alignCast(one.data));
    return data[0..@intCast(task.rows)];
}

fn attach(context: ?*anyopaque, memory: [*c]const weir.struct_weir_attachment) callconv(.c) c_int {
    const stage = stageOf(context);
    stage.weight = @ptrCast(@alignCast(memory.*.parameters));
    stage.gradient = @ptrCast(@alignCast(memory.*.gradients));
    return weir.WEIR_OK;
}

fn forward(context: ?*anyopaque, pointer: [*c]const weir.struct_weir_task) callconv(.c) c_int {
    const task: *const weir.struct_weir_task = pointer;
    const x = view(task.inputs[0], task);
    const y = view(task.inputs[1], task);
    const h = view(task.outputs[0], task);
    var sum: f64 = 0;
    for (x, y, h) |from, wanted, *to| {
        to.* = from * stageOf(context).weight.*;
        sum += (to.* - wanted) * (to.* - wanted);
    }
    if (task.loss != null) task.loss.* = sum / task.loss_weight;
    return weir.WEIR_OK;
}

fn backward(context: ?*anyopaque, pointer: [*c]const weir.struct_weir_task) callconv(.c) c_int {
    const task: *const weir.struct_weir_task = pointer;
    const stage = stageOf(context);
    var sum: f64 = 0;
    for (view(task.inputs[0], task), view(task.inputs[1], task)) |x, y| {
        sum += 2 * x * (x * stage.weight.* - y) / task.loss_weight;
    }
    stage.gradient.* = if (task.gradients_first) sum else stage.gradient.* + sum;
    return weir.WEIR_OK;
}

fn update(context: ?*anyopaque, task: [*c]const weir.struct_weir_task) callconv(.c) c_int {
    const stage = stageOf(context);
    stage.weight.* -= rate * task.*.gradient_scale * stage.gradient.*;
    return weir.WEIR_OK;
}

fn train(pipe: *weir.struct_weir_pipe) !f64 {
    var x: [rows]f64 = undefined;
    var y: [rows]f64 = undefined;
    for (&x, &y, 0..) |*from, *to, i| {
        from.* = @as(f64, @floatFromInt(i)) / rows - 0.5;
        to.* = 5 * from.*;
    }
    const inputs = [_]?*const anyopaque{ &x, &y };
    var result: weir.struct_weir_step_result = undefined;
    for (0..200) |i| {
        var step = std.mem.zeroes(weir.struct_weir_step);
        step.size = @sizeOf(weir.struct_weir_step);
        step.rows = rows;
        step.inputs = &inputs;
        step.mini_batch = i;
        step.update = i;
        step.accumulate_first = true;
        step.accumulate_last = true;
        if (weir.weir_pipe_step(pipe, &step, &result) != weir.WEIR_OK) return error.Step;
    }
    return result.loss;
}

pub fn main() !void {
    var model: Stage = .{};
    var calls = std.mem.zeroes(weir.struct_weir_stage_calls);
    calls.forward = forward;
    calls.backward = backward;
    calls.update = update;
    calls.attach = attach;

    var number = std.mem.zeroes(weir.struct_weir_tensor);
    number.dtype = weir.WEIR_F64;
    var inputs = [2]weir.struct_weir_input{
        std.mem.zeroes(weir.struct_weir_input), std.mem.zeroes(weir.struct_weir_input),
    };
    inputs[0].tensor = number;
    inputs[0].name = "x";
    inputs[1].tensor = number;
    inputs[1].name = "y";
    number.differentiable = true;

    var stage = std.mem.zeroes(weir.struct_weir_stage);
    stage.size = @sizeOf(weir.struct_weir_stage);
    stage.calls = &calls;
    stage.context = &model;
    stage.outputs = &number;
    stage.output_count = 1;
    stage.inputs_kept = std.math.maxInt(u64);
    stage.parameter_bytes = @sizeOf(f64);
    stage.gradient_bytes = @sizeOf(f64);

    var options = std.mem.zeroes(weir.struct_weir_pipe_options);
    options.size = @sizeOf(weir.struct_weir_pipe_options);
    options.stages = &stage;
    options.stage_count = 1;
    options.inputs = &inputs;
    options.input_count = 2;
    options.rows = rows;
    options.chunks = 2;
    options.schedule = "gpipe";
    options.checkpoint = weir.WEIR_CHECKPOINT_NEVER;

    var pipe: ?*weir.struct_weir_pipe = null;
    if (weir.weir_pipe_new(&options, null, &pipe) != weir.WEIR_OK) return error.Build;
    defer weir.weir_pipe_destroy(pipe);
    const loss = try train(pipe.?);
    const weight = model.weight.*;
    std.debug.print("weight {d:.9}, loss {e:.3}\n", .{ weight, loss });
    if (@abs(weight - 5) > 1e-6 or loss > 1e-10) return error.WrongResult;
}
