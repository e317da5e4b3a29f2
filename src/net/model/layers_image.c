/* SPDX-License-Identifier: MIT */
/* Layer types for images, and softmax: entries of the table in layers.c. Names, attributes,
 * defaults and initial values are PyTorch's. */
#include "net/model/layer.h"
#include "weir_models.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define SIDES(name, default_, least_)                                                              \
    { .key = name, .kind = WEIR_ATTR_KIND_PAIR, .integer = default_, .least = least_ }

static const struct weir_init one = {WEIR_INIT_ONE, 0};
static const struct weir_init zero = {WEIR_INIT_ZERO, 0};

/* ---- convolutions ---- */

#define CONV_SIDES                                                                                 \
    {.key = "out_channels", .kind = WEIR_ATTR_KIND_INT, .required = true, .least = 1},             \
        {.key = "kernel_size", .kind = WEIR_ATTR_KIND_PAIR, .required = true, .least = 1},         \
        SIDES("stride", 1, 1), SIDES("padding", 0, 0), {                                           \
        .key = "dilation", .kind = WEIR_ATTR_KIND_PAIR, .integer = 1, .least = 1, .later = true    \
    }
#define CONV_REST                                                                                  \
    {.key = "groups", .kind = WEIR_ATTR_KIND_INT, .integer = 1, .least = 1},                       \
        {.key = "bias", .kind = WEIR_ATTR_KIND_FLAG, .integer = 1},                                \
        WEIR__OF_INPUT("in_channels", 1), WEIR__ONLY_TEXT("padding_mode", "zeros")

static const struct weir_attr_rule conv2d_attrs[] = {
    CONV_SIDES,
    CONV_REST,
    {.key = "init", .kind = WEIR_ATTR_KIND_TEXT, .text = "default", .choices = "default|fan_out"},
};
static const struct weir_attr_rule conv_transpose2d_attrs[] = {
    CONV_SIDES, SIDES("output_padding", 0, 0), CONV_REST};

static struct weir_conv_options conv_options(const struct weir_layer *layer) {
    struct weir_conv_options options = {.groups = weir_layer_int(layer, "groups")};
    weir_layer_pair(layer, "stride", options.stride);
    weir_layer_pair(layer, "padding", options.padding);
    weir_layer_pair(layer, "dilation", options.dilation);
    return options;
}

/** PyTorch's default, or torchvision's kaiming_normal_(mode="fan_out", nonlinearity="relu"). */
static struct weir_init init_of(const int64_t shape[4], bool fan_out) {
    double taps = (double)shape[2] * (double)shape[3];
    if (fan_out) return (struct weir_init){WEIR_INIT_NORMAL, sqrt(2 / ((double)shape[0] * taps))};
    return (struct weir_init){WEIR_INIT_UNIFORM, 1 / sqrt((double)shape[1] * taps)};
}

/* Its weight, [first, second, kernel]; *bias is NULL where none is wanted. */
static struct weir_value *parameters(struct weir_builder *b, const struct weir_layer *layer,
                                     int64_t first, int64_t second, bool fan_out,
                                     struct weir_value **bias) {
    int64_t out = weir_layer_int(layer, "out_channels"), shape[4] = {first, second};
    weir_layer_pair(layer, "kernel_size", shape + 2);
    struct weir_value *weight = weir_parameter(b, "weight", 4, shape, init_of(shape, fan_out));
    *bias = weir_layer_flag(layer, "bias")
                ? weir_parameter(b, "bias", 1, &out, init_of(shape, false))
                : NULL;
    return weight;
}

struct weir_value *weir__build_conv(struct weir_builder *b, struct weir_value *x, const char *name,
                                    const struct weir__conv_part *part) {
    if (x == NULL || name == NULL) return NULL;
    struct weir_tensor in = weir_value_tensor(x); /* what is no image is said by the op */
    int64_t shape[4] = {part->out, in.rank == 3 ? in.shape[0] : 1, part->kernel[0],
                        part->kernel[1]};
    struct weir_conv_options options = {.groups = 1};
    memcpy(options.stride, part->stride, sizeof options.stride);
    memcpy(options.padding, part->padding, sizeof options.padding);
    struct weir_value *weight = weir_parameter(b, name, 4, shape, init_of(shape, part->fan_out));
    return weight == NULL ? NULL : weir_conv2d(b, x, weight, NULL, &options);
}

static struct weir_value *build_conv2d(struct weir_builder *b, const struct weir_layer *layer,
                                       struct weir_value *x) {
    struct weir_tensor in = weir_value_tensor(x);
    struct weir_conv_options options = conv_options(layer);
    /* What does not fit is said by the op. */
    int64_t per_group =
        in.rank == 3 && in.shape[0] >= options.groups ? in.shape[0] / options.groups : 1;
    int64_t out = weir_layer_int(layer, "out_channels");
    bool fan_out = strcmp(weir_layer_text(layer, "init"), "fan_out") == 0;
    struct weir_value *bias, *weight = parameters(b, layer, out, per_group, fan_out, &bias);
    return weight == NULL ? NULL : weir_conv2d(b, x, weight, bias, &options);
}

static struct weir_value *build_conv_transpose2d(struct weir_builder *b,
                                                 const struct weir_layer *layer,
                                                 struct weir_value *x) {
    struct weir_tensor in = weir_value_tensor(x);
    struct weir_conv_options options = conv_options(layer);
    int64_t out = weir_layer_int(layer, "out_channels");
    weir_layer_pair(layer, "output_padding", options.output_padding);
    if (out % options.groups != 0)
        return weir_builder_fail(b, WEIR_ERR_SHAPE,
                                 "conv_transpose2d's %lld groups must divide its %lld output "
                                 "channels",
                                 (long long)options.groups, (long long)out);
    int64_t channels = in.rank == 3 ? in.shape[0] : 1;
    struct weir_value *bias,
        *weight = parameters(b, layer, channels, out / options.groups, false, &bias);
    return weight == NULL ? NULL : weir_conv_transpose2d(b, x, weight, bias, &options);
}

/* ---- normalisation, dropout2d ---- */

static const struct weir_attr_rule instance_norm2d_attrs[] = {
    {.key = "eps", .kind = WEIR_ATTR_KIND_REAL, .real = 1e-5, .below = 1},
    {.key = "affine", .kind = WEIR_ATTR_KIND_FLAG},
    WEIR__OF_INPUT("num_features", 1),
    WEIR__ONLY_FLAG("track_running_stats", false),
};

static struct weir_value *build_instance_norm2d(struct weir_builder *b,
                                                const struct weir_layer *layer,
                                                struct weir_value *x) {
    int64_t channels = weir_value_tensor(x).shape[0];
    struct weir_value *weight = NULL, *bias = NULL;
    if (weir_layer_flag(layer, "affine")) {
        weight = weir_parameter(b, "weight", 1, &channels, one);
        bias = weir_parameter(b, "bias", 1, &channels, zero);
    }
    return weir_instance_norm2d(b, x, weight, bias, weir_layer_real(layer, "eps"));
}

/* `cumulative` is PyTorch's momentum=None; a file may say that with a null, too. */
static const struct weir_attr_rule batch_norm2d_attrs[] = {
    {.key = "eps", .kind = WEIR_ATTR_KIND_REAL, .real = 1e-5, .below = 1},
    {.key = "momentum", .kind = WEIR_ATTR_KIND_REAL, .real = 0.1, .below = 1 + DBL_EPSILON},
    {.key = "cumulative", .kind = WEIR_ATTR_KIND_FLAG},
    {.key = "affine", .kind = WEIR_ATTR_KIND_FLAG, .integer = 1},
    {.key = "track_running_stats", .kind = WEIR_ATTR_KIND_FLAG, .integer = 1},
    {.key = "deferred", .kind = WEIR_ATTR_KIND_FLAG, .integer = 1},
    {.key = "zero_init", .kind = WEIR_ATTR_KIND_FLAG, .later = true},
    WEIR__OF_INPUT("num_features", 1),
};

static struct weir_value *build_batch_norm2d(struct weir_builder *b, const struct weir_layer *layer,
                                             struct weir_value *x) {
    const struct weir_batch_norm_options options = {
        .eps = weir_layer_real(layer, "eps"),
        .momentum = weir_layer_real(layer, "momentum"),
        .cumulative = weir_layer_flag(layer, "cumulative"),
        .affine = weir_layer_flag(layer, "affine"),
        .track_running_stats = weir_layer_flag(layer, "track_running_stats"),
        .deferred = weir_layer_flag(layer, "deferred"),
        .zero_init = weir_layer_flag(layer, "zero_init")};
    return weir_batch_norm2d(b, x, "", &options);
}

static const struct weir_attr_rule dropout2d_attrs[] = {
    {.key = "p", .kind = WEIR_ATTR_KIND_REAL, .real = 0.5, .below = 1},
};

static struct weir_value *build_dropout2d(struct weir_builder *b, const struct weir_layer *layer,
                                          struct weir_value *x) {
    return weir_dropout2d(b, x, weir_layer_real(layer, "p"));
}

/* ---- activations ---- */

static const struct weir_attr_rule leaky_relu_attrs[] = {
    {.key = "negative_slope", .kind = WEIR_ATTR_KIND_REAL, .real = 0.01, .below = 1e30},
};

static struct weir_value *build_leaky_relu(struct weir_builder *b, const struct weir_layer *layer,
                                           struct weir_value *x) {
    return weir_leaky_relu(b, x, weir_layer_real(layer, "negative_slope"));
}

static struct weir_value *build_silu(struct weir_builder *b, const struct weir_layer *layer,
                                     struct weir_value *x) {
    (void)layer;
    return weir_silu(b, x);
}

static struct weir_value *build_sigmoid(struct weir_builder *b, const struct weir_layer *layer,
                                        struct weir_value *x) {
    (void)layer;
    return weir_sigmoid(b, x);
}

static struct weir_value *build_tanh(struct weir_builder *b, const struct weir_layer *layer,
                                     struct weir_value *x) {
    (void)layer;
    return weir_tanh(b, x);
}

/* PyTorch counts the rows' dimension too: 1 is a row's first, -1 its last. */
static const struct weir_attr_rule softmax_attrs[] = {
    {.key = "dim", .kind = WEIR_ATTR_KIND_INT, .integer = -1, .least = -WEIR_RANK_MAX},
};

static struct weir_value *build_softmax(struct weir_builder *b, const struct weir_layer *layer,
                                        struct weir_value *x) {
    int64_t rank = weir_value_tensor(x).rank, dim = weir_layer_int(layer, "dim");
    int64_t of_row = dim < 0 ? rank + dim : dim - 1;
    if (of_row >= 0 && of_row < rank) return weir_softmax(b, x, (uint32_t)of_row);
    weir__builder_note(b, WEIR_ERR_SHAPE,
                       "dim is %lld, but must be from 1 to %lld or from -%lld to -1: rows are "
                       "dimension 0 and independent",
                       (long long)dim, (long long)rank, (long long)rank);
    return x;
}

/* ---- pooling, upsampling ---- */

/* stride 0 stands for the kernel's size, PyTorch's default. */
static const struct weir_attr_rule max_pool2d_attrs[] = {
    {.key = "kernel_size", .kind = WEIR_ATTR_KIND_PAIR, .required = true, .least = 1},
    SIDES("stride", 0, 1),
    SIDES("padding", 0, 0),
    WEIR__ONLY_PAIR("dilation", 1),
    WEIR__ONLY_FLAG("ceil_mode", false),
    WEIR__ONLY_FLAG("return_indices", false),
};

static const struct weir_attr_rule avg_pool2d_attrs[] = {
    {.key = "kernel_size", .kind = WEIR_ATTR_KIND_PAIR, .required = true, .least = 1},
    SIDES("stride", 0, 1),
    SIDES("padding", 0, 0),
    {.key = "count_include_pad", .kind = WEIR_ATTR_KIND_FLAG, .integer = 1},
    WEIR__ONLY_FLAG("ceil_mode", false),
};

static struct weir_pool_options pool_options(const struct weir_layer *layer) {
    struct weir_pool_options options = {.count_include_pad = false};
    weir_layer_pair(layer, "kernel_size", options.kernel);
    weir_layer_pair(layer, "stride", options.stride);
    weir_layer_pair(layer, "padding", options.padding);
    if (options.stride[0] == 0) memcpy(options.stride, options.kernel, sizeof options.stride);
    return options;
}

static struct weir_value *build_max_pool2d(struct weir_builder *b, const struct weir_layer *layer,
                                           struct weir_value *x) {
    struct weir_pool_options options = pool_options(layer);
    return weir_max_pool2d(b, x, &options);
}

static struct weir_value *build_avg_pool2d(struct weir_builder *b, const struct weir_layer *layer,
                                           struct weir_value *x) {
    struct weir_pool_options options = pool_options(layer);
    options.count_include_pad = weir_layer_flag(layer, "count_include_pad");
    return weir_avg_pool2d(b, x, &options);
}

static const struct weir_attr_rule adaptive_avg_pool2d_attrs[] = {
    {.key = "output_size", .kind = WEIR_ATTR_KIND_PAIR, .required = true, .least = 1},
};

static struct weir_value *build_adaptive_avg_pool2d(struct weir_builder *b,
                                                    const struct weir_layer *layer,
                                                    struct weir_value *x) {
    int64_t size[2];
    weir_layer_pair(layer, "output_size", size);
    return weir_adaptive_avg_pool2d(b, x, size);
}

static const struct weir_attr_rule upsample_attrs[] = {
    {.key = "scale_factor", .kind = WEIR_ATTR_KIND_PAIR, .required = true, .least = 1},
    WEIR__ONLY_TEXT("mode", "nearest"),
};

static struct weir_value *build_upsample(struct weir_builder *b, const struct weir_layer *layer,
                                         struct weir_value *x) {
    int64_t scale[2];
    weir_layer_pair(layer, "scale_factor", scale);
    return weir_upsample(b, x, scale);
}

/* ---- the rows ---- */

static const struct weir_layer_type conv2d = {
    .name = "conv2d",
    WEIR__ATTRS(conv2d_attrs),
    .build = build_conv2d,
    WEIR__SAYS("nn.Conv2d", "in_channels, height, width", "out_channels, height, width")};
static const struct weir_layer_type conv_transpose2d = {
    .name = "conv_transpose2d",
    WEIR__ATTRS(conv_transpose2d_attrs),
    .build = build_conv_transpose2d,
    WEIR__SAYS("nn.ConvTranspose2d", "in_channels, height, width", "out_channels, height, width")};
static const struct weir_layer_type instance_norm2d = {
    .name = "instance_norm2d",
    WEIR__ATTRS(instance_norm2d_attrs),
    .build = build_instance_norm2d,
    WEIR__SAYS("nn.InstanceNorm2d", "num_features, height, width", "num_features, height, width")};
static const struct weir_layer_type batch_norm2d = {
    .name = "batch_norm2d",
    WEIR__ATTRS(batch_norm2d_attrs),
    .build = build_batch_norm2d,
    WEIR__SAYS("nn.BatchNorm2d", "num_features, height, width", "num_features, height, width"),
    .about = "by each micro-batch's numbers; the running ones move once per update, by those of "
             "the whole mini-batch; not deferred: by each micro-batch's in turn; zero_init: the "
             "weight begins as 0"};
static const struct weir_layer_type dropout2d = {
    .name = "dropout2d",
    WEIR__ATTRS(dropout2d_attrs),
    .build = build_dropout2d,
    WEIR__SAYS("nn.Dropout2d", "channels, height, width", "channels, height, width")};
static const struct weir_layer_type leaky_relu = {.name = "leaky_relu",
                                                  WEIR__ATTRS(leaky_relu_attrs),
                                                  .build = build_leaky_relu,
                                                  WEIR__SAYS("nn.LeakyReLU", "...", "...")};
static const struct weir_layer_type silu = {
    .name = "silu", .build = build_silu, WEIR__SAYS("nn.SiLU", "...", "...")};
static const struct weir_layer_type sigmoid = {
    .name = "sigmoid", .build = build_sigmoid, WEIR__SAYS("nn.Sigmoid", "...", "...")};
static const struct weir_layer_type tanh_type = {
    .name = "tanh", .build = build_tanh, WEIR__SAYS("nn.Tanh", "...", "...")};
static const struct weir_layer_type softmax = {.name = "softmax",
                                               WEIR__ATTRS(softmax_attrs),
                                               .build = build_softmax,
                                               WEIR__SAYS("nn.Softmax", "...", "..."),
                                               .about = "dim counts rows as 0, as in PyTorch"};
static const struct weir_layer_type max_pool2d = {
    .name = "max_pool2d",
    WEIR__ATTRS(max_pool2d_attrs),
    .build = build_max_pool2d,
    WEIR__SAYS("nn.MaxPool2d", "channels, height, width", "channels, height, width"),
    .about = "without a stride it is the kernel's size"};
static const struct weir_layer_type avg_pool2d = {
    .name = "avg_pool2d",
    WEIR__ATTRS(avg_pool2d_attrs),
    .build = build_avg_pool2d,
    WEIR__SAYS("nn.AvgPool2d", "channels, height, width", "channels, height, width"),
    .about = "without a stride it is the kernel's size"};
static const struct weir_layer_type adaptive_avg_pool2d = {
    .name = "adaptive_avg_pool2d",
    WEIR__ATTRS(adaptive_avg_pool2d_attrs),
    .build = build_adaptive_avg_pool2d,
    WEIR__SAYS("nn.AdaptiveAvgPool2d", "channels, height, width", "channels, output_size")};
static const struct weir_layer_type upsample = {
    .name = "upsample",
    WEIR__ATTRS(upsample_attrs),
    .build = build_upsample,
    WEIR__SAYS("nn.Upsample", "channels, height, width",
               "channels, height x scale, width x scale")};

const struct weir_layer_type *const weir__image_layers[] = {
    &conv2d,
    &conv_transpose2d,
    &instance_norm2d,
    &batch_norm2d,
    &dropout2d,
    &leaky_relu,
    &silu,
    &sigmoid,
    &tanh_type,
    &softmax,
    &max_pool2d,
    &avg_pool2d,
    &adaptive_avg_pool2d,
    &upsample,
};
const uint32_t weir__image_layer_count = WEIR__COUNT_OF(weir__image_layers);
