//! Weir from Zig: the C interface as it is (`c`, whose headers are the manual), and what C has by
//! macros: initialised structs and attributes; with statuses as errors, slices over what a task
//! points at, and callbacks out of methods.
//!
//!     const weir = @import("weir"); // "weir_net" for networks too
//!     var stages = [_]weir.c.struct_weir_stage{weir.stage(Stage, &model)};
//!     var options = weir.pipeOptions();
//!     try weir.check(weir.c.weir_pipe_new(&options, null, &pipe));

const std = @import("std");
pub const c = @import("weir_c");

// ---- statuses -----------------------------------------------------------------------------------

pub const Error = error{
    OutOfMemory,
    Argument,
    Config,
    Skip,
    Schedule,
    MemoryLimit,
    Rows,
    Busy,
    Timeout,
    Nonfinite,
    Torn,
    Device,
    /// Any other; weir_status_text says which.
    Weir,
};

/// Nothing for WEIR_OK, else the status as an error.
pub fn check(status: c_int) Error!void {
    return switch (status) {
        c.WEIR_OK => {},
        c.WEIR_ERR_OUT_OF_MEMORY => error.OutOfMemory,
        c.WEIR_ERR_ARGUMENT => error.Argument,
        c.WEIR_ERR_CONFIG => error.Config,
        c.WEIR_ERR_SKIP => error.Skip,
        c.WEIR_ERR_SCHEDULE => error.Schedule,
        c.WEIR_ERR_MEMORY_LIMIT => error.MemoryLimit,
        c.WEIR_ERR_ROWS => error.Rows,
        c.WEIR_ERR_BUSY => error.Busy,
        c.WEIR_ERR_TIMEOUT => error.Timeout,
        c.WEIR_ERR_NONFINITE => error.Nonfinite,
        c.WEIR_ERR_TORN => error.Torn,
        c.WEIR_ERR_DEVICE => error.Device,
        else => error.Weir,
    };
}

// ---- initialised structs: what WEIR_…_INIT are in C ---------------------------------------------

fn sized(comptime T: type) T {
    var made = std.mem.zeroes(T);
    made.size = @sizeOf(T);
    return made;
}

pub fn tableOptions() c.struct_weir_table_options {
    var made = sized(c.struct_weir_table_options);
    made.schedule = "1f1b";
    made.stages = 1;
    made.micro_batches = 1;
    return made;
}

pub fn pipeOptions() c.struct_weir_pipe_options {
    var made = sized(c.struct_weir_pipe_options);
    made.chunks = 1;
    made.schedule = "1f1b";
    return made;
}

pub fn step() c.struct_weir_step {
    var made = sized(c.struct_weir_step);
    made.accumulate_first = true;
    made.accumulate_last = true;
    return made;
}

pub fn adamw() c.struct_weir_optimizer {
    var made = std.mem.zeroes(c.struct_weir_optimizer);
    made.kind = c.WEIR_OPTIMIZER_ADAMW;
    made.lr = 1e-3;
    made.weight_decay = 0.01;
    made.beta1 = 0.9;
    made.beta2 = 0.999;
    made.eps = 1e-8;
    return made;
}

pub fn netOptions() c.struct_weir_net_options {
    var made = sized(c.struct_weir_net_options);
    made.pipe = pipeOptions();
    made.stages = 1;
    made.optimizer = adamw();
    return made;
}

pub fn netBatch() c.struct_weir_net_batch {
    var made = sized(c.struct_weir_net_batch);
    made.mini_batch = c.WEIR_NET_NEXT;
    made.update = c.WEIR_NET_NEXT;
    made.lr = -1;
    return made;
}

/// A stage whose callbacks are the methods of S, with `model` as their self; it must outlive the
/// pipe.
pub fn stage(comptime S: type, model: *S) c.struct_weir_stage {
    var made = sized(c.struct_weir_stage);
    made.inputs_kept = std.math.maxInt(u64);
    made.inputs_recomputed = std.math.maxInt(u64);
    made.weight_reads = .{
        .inputs = std.math.maxInt(u64),
        .skips = std.math.maxInt(u64),
        .output_grads = std.math.maxInt(u64),
        .skip_grads = std.math.maxInt(u64),
    };
    made.calls = &Calls(S).all;
    made.context = model;
    return made;
}

// ---- callbacks out of methods -------------------------------------------------------------------

/// Those of struct weir_stage_calls that S has as methods (self: *S, task: *const Task) !void, of
/// the same names; `attach` takes an attachment, `measure` rows and bytes, `prepare` rows.
fn Calls(comptime S: type) type {
    return struct {
        const all: c.struct_weir_stage_calls = made: {
            var calls = std.mem.zeroes(c.struct_weir_stage_calls);
            for (.{
                "forward",         "recompute", "backward", "backward_input",
                "backward_weight", "norm",      "update",
            }) |name| {
                if (@hasDecl(S, name)) @field(calls, name) = Task(name).call;
            }
            if (@hasDecl(S, "attach")) calls.attach = attach;
            if (@hasDecl(S, "measure")) calls.measure = measure;
            if (@hasDecl(S, "prepare")) calls.prepare = prepare;
            if (@hasDecl(S, "detach")) calls.detach = detach;
            break :made calls;
        };

        fn self(context: ?*anyopaque) *S {
            return @ptrCast(@alignCast(context.?));
        }

        fn Task(comptime name: []const u8) type {
            return struct {
                const Args = c.struct_weir_task;
                fn call(context: ?*anyopaque, task: [*c]const Args) callconv(.c) c_int {
                    return statusOf(@field(S, name)(self(context), task));
                }
            };
        }
        const Memory = c.struct_weir_attachment;
        fn attach(context: ?*anyopaque, memory: [*c]const Memory) callconv(.c) c_int {
            return statusOf(S.attach(self(context), memory));
        }
        const Bytes = c.struct_weir_stage_bytes;
        fn measure(context: ?*anyopaque, rows: i64, bytes: [*c]Bytes) callconv(.c) c_int {
            return statusOf(S.measure(self(context), rows, bytes));
        }
        fn prepare(context: ?*anyopaque, rows: i64) callconv(.c) c_int {
            return statusOf(S.prepare(self(context), rows));
        }
        fn detach(context: ?*anyopaque) callconv(.c) void {
            S.detach(self(context));
        }
    };
}

fn statusOf(result: anytype) c_int {
    const payload = @typeInfo(@TypeOf(result));
    if (payload != .error_union) return c.WEIR_OK;
    result catch return c.WEIR_ERR_CALLBACK;
    return c.WEIR_OK;
}

// ---- slices -------------------------------------------------------------------------------------

/// The numbers of a view, `per_row` a row; empty where there are none, as of a gradient that nobody
/// wants. T is what the tensor's dtype says.
pub fn numbers(comptime T: type, view: c.struct_weir_view, per_row: usize) []T {
    return block(T, view.data, @as(usize, @intCast(view.rows)) * per_row);
}

/// A block of a stage's lasting memory: an attachment's parameters, gradients …
pub fn block(comptime T: type, memory: ?*anyopaque, count: usize) []T {
    const first: [*]T = @ptrCast(@alignCast(memory orelse return &.{}));
    return first[0..count];
}

// ---- attributes ---------------------------------------------------------------------------------

/// An attribute of a layer, of the kind that its value's type says; two whole numbers are a PAIR.
pub fn attr(key: [*:0]const u8, value: anytype) c.struct_weir_attr {
    var made = std.mem.zeroes(c.struct_weir_attr);
    made.key = key;
    switch (@typeInfo(@TypeOf(value))) {
        .bool => {
            made.kind = c.WEIR_ATTR_KIND_FLAG;
            made.integer = @intFromBool(value);
        },
        .int, .comptime_int => {
            made.kind = c.WEIR_ATTR_KIND_INT;
            made.integer = value;
        },
        .float, .comptime_float => {
            made.kind = c.WEIR_ATTR_KIND_REAL;
            made.real = value;
        },
        .array => {
            made.kind = c.WEIR_ATTR_KIND_PAIR;
            made.integer = value[0];
            made.second = value[1];
        },
        else => {
            made.kind = c.WEIR_ATTR_KIND_TEXT;
            made.text = value;
        },
    }
    return made;
}

/// Borrowed: as long as the list.
pub fn attrs(list: []const c.struct_weir_attr) c.struct_weir_attrs {
    return .{ .count = @intCast(list.len), .list = list.ptr };
}
