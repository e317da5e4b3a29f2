/* SPDX-License-Identifier: MIT */
/*
 * ResNet-101 as torchgpipe's benchmark has it, flat: bottlenecks of eleven layers, of which the
 * first stashes the block's input and the last but one adds it again, through a convolution and a
 * batch norm of its own where shapes differ. Parameters are named as torchvision's.
 */
#include "net/model/layer.h"
#include "weir_models.h"

#include <stdio.h>

/* ---- the residual ---- */

static const struct weir_attr_rule residual_attrs[] = {
    {.key = "skip", .kind = WEIR_ATTR_KIND_TEXT, .required = true},
    {.key = "namespace", .kind = WEIR_ATTR_KIND_TEXT, .text = ""},
    {.key = "downsample", .kind = WEIR_ATTR_KIND_FLAG},
    {.key = "stride", .kind = WEIR_ATTR_KIND_PAIR, .integer = 1, .least = 1},
};

static struct weir_value *build_residual(struct weir_builder *b, const struct weir_layer *layer,
                                         struct weir_value *x) {
    const struct weir_batch_norm_options norm = WEIR_BATCH_NORM_OPTIONS_INIT;
    struct weir_value *skip =
        weir_read(b, weir_layer_text(layer, "namespace"), weir_layer_text(layer, "skip"));
    struct weir__conv_part conv = {
        .out = weir_value_tensor(x).shape[0], .kernel = {1, 1}, .fan_out = true};
    weir_layer_pair(layer, "stride", conv.stride);
    if (weir_layer_flag(layer, "downsample")) {
        skip = weir__build_conv(b, skip, "downsample.0.weight", &conv);
        skip = skip == NULL ? NULL : weir_batch_norm2d(b, skip, "downsample.1.", &norm);
    }
    return weir_sum(b, x, skip);
}

const struct weir_layer_type weir__layer_residual = {
    .name = "residual",
    WEIR__ATTRS(residual_attrs),
    .skip_count = 1,
    .skips = {{WEIR_SKIP_POP, "skip", "namespace"}},
    .composite = true,
    .build = build_residual,
    .input = "channels, height, width",
    .output = "channels, height, width",
    .about = "its input + the skip; with downsample the skip goes through a 1x1 convolution and "
             "a batch norm"};

/* ---- the model ---- */

/** The model as it grows; the first failure is kept. */
struct resnet_list {
    struct weir_model *model;
    struct weir_faults *faults;
    uint32_t blocks; /* so far */
    bool zero_init;  /* of blocks' last batch norms */
    int64_t channels;
    int status;
};

static void add(struct resnet_list *list, const char *type, const char *name,
                struct weir_attrs attrs) {
    if (list->status != WEIR_OK) return;
    list->status = weir_model_add(list->model, type, name, attrs, list->faults);
}

/** Convolution and batch norm `number` of a block; of the stem without one. */
static void add_conv(struct resnet_list *list, const char *block, int number, int64_t out,
                     int64_t kernel, int64_t stride) {
    char name[48];
    snprintf(name, sizeof name, "%sconv%d", block, number);
    add(list, "conv2d", name,
        WEIR_ATTRS(WEIR_ATTR_INT("out_channels", out), WEIR_ATTR_INT("kernel_size", kernel),
                   WEIR_ATTR_INT("stride", stride), WEIR_ATTR_INT("padding", kernel / 2),
                   WEIR_ATTR_FLAG("bias", false), WEIR_ATTR_TEXT("init", "fan_out")));
    snprintf(name, sizeof name, "%sbn%d", block, number);
    const struct weir_attr zero = WEIR_ATTR_FLAG("zero_init", true);
    add(list, "batch_norm2d", name,
        list->zero_init && number == 3 ? WEIR_ATTRS(zero) : WEIR_NO_ATTRS);
}

static void add_bottleneck(struct resnet_list *list, const char *name, int64_t planes,
                           int64_t stride) {
    char block[48], name_space[16];
    bool differs = stride != 1 || list->channels != 4 * planes;
    snprintf(block, sizeof block, "%s.", name);
    snprintf(name_space, sizeof name_space, "%u", list->blocks++);
    const struct weir_attr skip = WEIR_ATTR_TEXT("skip", "identity");
    const struct weir_attr space = WEIR_ATTR_TEXT("namespace", name_space);
    add(list, "stash", NULL, WEIR_ATTRS(skip, space));
    add_conv(list, block, 1, planes, 1, 1);
    add(list, "relu", NULL, WEIR_NO_ATTRS);
    add_conv(list, block, 2, planes, 3, stride);
    add(list, "relu", NULL, WEIR_NO_ATTRS);
    add_conv(list, block, 3, 4 * planes, 1, 1);
    add(list, "residual", name,
        WEIR_ATTRS(skip, space, WEIR_ATTR_FLAG("downsample", differs),
                   WEIR_ATTR_INT("stride", stride)));
    add(list, "relu", NULL, WEIR_NO_ATTRS);
    list->channels = 4 * planes;
}

static int add_layers(struct resnet_list *list, const struct weir_resnet_options *options) {
    static const uint32_t depths[] = {3, 4, 23, 3};
    char name[32];
    list->channels = 64;
    add_conv(list, "", 1, list->channels, 7, 2);
    add(list, "relu", NULL, WEIR_NO_ATTRS);
    add(list, "max_pool2d", NULL,
        WEIR_ATTRS(WEIR_ATTR_INT("kernel_size", 3), WEIR_ATTR_INT("stride", 2),
                   WEIR_ATTR_INT("padding", 1)));
    for (uint32_t i = 0; i < WEIR__COUNT_OF(depths); i++)
        for (uint32_t k = 0; k < depths[i]; k++) {
            snprintf(name, sizeof name, "layer%u.%u", i + 1, k);
            add_bottleneck(list, name, 64 << i, i > 0 && k == 0 ? 2 : 1);
        }
    add(list, "adaptive_avg_pool2d", NULL, WEIR_ATTRS(WEIR_ATTR_INT("output_size", 1)));
    add(list, "flatten", NULL, WEIR_NO_ATTRS);
    add(list, "linear", "fc", WEIR_ATTRS(WEIR_ATTR_INT("out_features", options->classes)));
    return list->status;
}

bool weir__check_images(uint32_t classes, uint32_t height, uint32_t width,
                        struct weir_faults *faults) {
    const struct {
        const char *name;
        uint32_t value;
    } numbers[] = {
        {"--classes", classes}, {"--image-size's height", height}, {"--image-size's width", width}};
    bool good = true;
    for (size_t i = 0; i < WEIR__COUNT_OF(numbers); i++) {
        if (numbers[i].value >= 1 && numbers[i].value <= 1u << 20) continue;
        weir_faults_add(faults, "%s is %u, but must be from 1 to %u", numbers[i].name,
                        numbers[i].value, 1u << 20);
        good = false;
    }
    return good;
}

int weir__classifier_new(const struct weir_allocator *allocator, uint32_t height, uint32_t width,
                         struct weir_model **model) {
    assert(height >= 1 && width >= 1);
    const struct weir_tensor image = {.dtype = WEIR_F32, .rank = 3, .shape = {3, height, width}};
    const struct weir_tensor label = {.dtype = WEIR_I64};
    return weir_model_new(allocator, &image, &label, "cross_entropy", model);
}

int weir_model_resnet101(const struct weir_allocator *allocator,
                         const struct weir_resnet_options *options, struct weir_faults *faults,
                         struct weir_model **model) {
    assert(options != NULL && model != NULL);
    if (!weir__check_images(options->classes, options->height, options->width, faults))
        return WEIR_ERR_ARGUMENT;
    struct resnet_list list = {.faults = faults, .zero_init = options->zero_init_residual};
    int status = weir__classifier_new(allocator, options->height, options->width, &list.model);
    if (status != WEIR_OK) return status;
    if ((status = add_layers(&list, options)) == WEIR_OK)
        *model = list.model;
    else
        weir_model_destroy(list.model);
    return status;
}
