//! From Zig: one stage, h = x * w with the loss mean (h - y)^2, whose w must become 5; with -Dnet
//! a network that must learn which of its inputs is the largest; before that, that the module's
//! initialised structs are those of C (initialisers.c).

const std = @import("std");
const weir = @import("weir");
const c = weir.c;
const with_net = @import("options").with_net;

const rows = 8;
const rate = 2.0;

const Stage = struct {
    weight: []f64 = &.{},
    gradient: []f64 = &.{},

    pub fn attach(stage: *Stage, memory: *const c.struct_weir_attachment) !void {
        stage.weight = weir.block(f64, memory.parameters, 1);
        stage.gradient = weir.block(f64, memory.gradients, 1);
    }

    pub fn forward(stage: *Stage, task: *const c.struct_weir_task) !void {
        const x = weir.numbers(f64, task.inputs[0], 1);
        const y = weir.numbers(f64, task.inputs[1], 1);
        var sum: f64 = 0;
        for (x, y, weir.numbers(f64, task.outputs[0], 1)) |from, wanted, *to| {
            if (!std.math.isFinite(from)) return error.NotFinite;
            to.* = from * stage.weight[0];
            sum += (to.* - wanted) * (to.* - wanted);
        }
        if (task.loss != null) task.loss.* = sum / task.loss_weight;
    }

    pub fn backward(stage: *Stage, task: *const c.struct_weir_task) !void {
        const x = weir.numbers(f64, task.inputs[0], 1);
        const y = weir.numbers(f64, task.inputs[1], 1);
        var sum: f64 = 0;
        for (x, y) |from, wanted| {
            sum += 2 * from * (from * stage.weight[0] - wanted) / task.loss_weight;
        }
        stage.gradient[0] = if (task.gradients_first) sum else stage.gradient[0] + sum;
    }

    pub fn update(stage: *Stage, task: *const c.struct_weir_task) !void {
        stage.weight[0] -= rate * task.gradient_scale * stage.gradient[0];
    }
};

fn train(pipe: *c.struct_weir_pipe) !f64 {
    var x: [rows]f64 = undefined;
    var y: [rows]f64 = undefined;
    for (&x, &y, 0..) |*from, *to, i| {
        from.* = @as(f64, @floatFromInt(i)) / rows - 0.5;
        to.* = 5 * from.*;
    }
    const inputs = [_]?*const anyopaque{ &x, &y };
    var result: c.struct_weir_step_result = undefined;
    var step = weir.step();
    step.rows = rows;
    step.inputs = &inputs;
    for (0..200) |i| {
        step.mini_batch = i;
        step.update = i;
        try weir.check(c.weir_pipe_step(pipe, &step, &result));
    }
    x[3] = std.math.inf(f64);
    if (c.weir_pipe_step(pipe, &step, null) != c.WEIR_ERR_CALLBACK) return error.WrongStatus;
    return result.loss;
}

fn engine() !void {
    var model: Stage = .{};
    var number = std.mem.zeroes(c.struct_weir_tensor);
    number.dtype = c.WEIR_F64;
    var inputs: [2]c.struct_weir_input = @splat(std.mem.zeroes(c.struct_weir_input));
    inputs[0].tensor = number;
    inputs[0].name = "x";
    inputs[1].tensor = number;
    inputs[1].name = "y";
    number.differentiable = true;

    var stage = weir.stage(Stage, &model);
    stage.outputs = &number;
    stage.output_count = 1;
    stage.parameter_bytes = @sizeOf(f64);
    stage.gradient_bytes = @sizeOf(f64);

    var options = weir.pipeOptions();
    options.stages = &stage;
    options.stage_count = 1;
    options.inputs = &inputs;
    options.input_count = 2;
    options.rows = rows;
    options.chunks = 2;
    options.schedule = "gpipe";
    options.checkpoint = c.WEIR_CHECKPOINT_NEVER;

    var pipe: ?*c.struct_weir_pipe = null;
    try weir.check(c.weir_pipe_new(&options, null, &pipe));
    defer c.weir_pipe_destroy(pipe);
    const loss = try train(pipe.?);
    const weight = model.weight[0];
    std.debug.print("weight {d:.9}, loss {e:.3}\n", .{ weight, loss });
    if (@abs(weight - 5) > 1e-6 or loss > 1e-10) return error.WrongResult;
}

fn network() !void {
    var row = std.mem.zeroes(c.struct_weir_tensor);
    row.rank = 1;
    row.shape[0] = 3;
    var label = std.mem.zeroes(c.struct_weir_tensor);
    label.dtype = c.WEIR_I64;
    var model: ?*c.struct_weir_model = null;
    try weir.check(c.weir_model_new(null, &row, &label, "cross_entropy", &model));
    defer c.weir_model_destroy(model);
    const first = weir.attrs(&.{ weir.attr("out_features", 16), weir.attr("bias", true) });
    try weir.check(c.weir_model_add(model, "linear", null, first, null));
    const tanh = weir.attrs(&.{weir.attr("approximate", "tanh")});
    try weir.check(c.weir_model_add(model, "gelu", null, tanh, null));
    const last = weir.attrs(&.{weir.attr("out_features", 3)});
    try weir.check(c.weir_model_add(model, "linear", "head", last, null));

    var options = weir.netOptions();
    options.stages = 2;
    options.pipe.rows = rows;
    options.pipe.chunks = 4;
    options.optimizer.lr = 0.05;
    var net: ?*c.struct_weir_net = null;
    try weir.check(c.weir_net_new(model, &options, null, &net));
    defer c.weir_net_destroy(net);
    try weir.check(c.weir_net_init(net, 1));

    var x: [rows][3]f32 = undefined;
    var largest: [rows]i64 = undefined;
    for (&x, &largest, 0..) |*of, *to, r| {
        for (of, 0..) |*number, k| number.* = @sin(@as(f32, @floatFromInt(1 + 7 * r + 3 * k)));
        to.* = @intCast(std.mem.indexOfMax(f32, of));
    }
    var batch = weir.netBatch();
    batch.rows = rows;
    batch.input = &x;
    batch.target = &largest;
    var result: c.struct_weir_step_result = undefined;
    for (0..200) |_| try weir.check(c.weir_net_step(net, &batch, &result));
    std.debug.print("loss {e:.3}\n", .{result.loss});
    if (result.loss > 0.05) return error.WrongResult;
}

extern const initialiser_of_table_options: c.struct_weir_table_options;
extern const initialiser_of_pipe_options: c.struct_weir_pipe_options;
extern const initialiser_of_stage: c.struct_weir_stage;
extern const initialiser_of_step: c.struct_weir_step;
extern const initialiser_of_net_options: c.struct_weir_net_options;
extern const initialiser_of_net_batch: c.struct_weir_net_batch;

fn same(comptime what: []const u8, ours: anytype, wanted: *const @TypeOf(ours)) !void {
    inline for (comptime std.meta.fieldNames(@TypeOf(ours))) |name| {
        const a = @field(ours, name);
        const b = @field(wanted, name);
        const equal = if (comptime std.mem.eql(u8, name, "schedule"))
            std.mem.eql(u8, std.mem.span(a), std.mem.span(b))
        else if (comptime std.mem.eql(u8, name, "pipe"))
            true // compared by itself
        else
            std.meta.eql(a, b);
        if (!equal) {
            std.debug.print("{s}: {s} is not C's\n", .{ what, name });
            return error.WrongInitialiser;
        }
    }
}

fn initialisers() !void {
    try same("tableOptions", weir.tableOptions(), &initialiser_of_table_options);
    try same("pipeOptions", weir.pipeOptions(), &initialiser_of_pipe_options);
    try same("step", weir.step(), &initialiser_of_step);
    try same("netOptions", weir.netOptions(), &initialiser_of_net_options);
    try same("netOptions.pipe", weir.netOptions().pipe, &initialiser_of_net_options.pipe);
    try same("netBatch", weir.netBatch(), &initialiser_of_net_batch);
    var model: Stage = .{};
    var stage = weir.stage(Stage, &model);
    stage.calls = null;
    stage.context = null;
    try same("stage", stage, &initialiser_of_stage);
}

pub fn main() !void {
    try initialisers();
    try engine();
    if (with_net) try network();
}
