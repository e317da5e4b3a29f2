/* SPDX-License-Identifier: MIT */
/*
 * torchgpipe's U-Net as a list of layers: `depth` encoder levels, each stashed before it is pooled,
 * a bottleneck, decoder levels that pop in reverse order, and a 1x1 convolution. A unit is conv2d
 * (3x3, no bias), dropout2d, instance_norm2d, leaky_relu; channels double from level to level.
 */
#include "net/model/layer.h"
#include "weir_models.h"

#include <stdio.h>

#define ADD(list, type, ...)                                                                       \
    add(list, type,                                                                                \
        (struct weir_attrs){sizeof((struct weir_attr[]){__VA_ARGS__}) / sizeof(struct weir_attr),  \
                            (struct weir_attr[]){__VA_ARGS__}})

/** The model as it grows; the first failure is kept. */
struct unet_list {
    struct weir_model *model;
    const struct weir_unet_options *options;
    struct weir_faults *faults;
    int status;
};

static void add(struct unet_list *list, const char *type, struct weir_attrs attrs) {
    if (list->status != WEIR_OK) return;
    list->status = weir_model_add(list->model, type, NULL, attrs, list->faults);
}

static void add_unit(struct unet_list *list, int64_t out) {
    ADD(list, "conv2d", WEIR_ATTR_INT("out_channels", out), WEIR_ATTR_INT("kernel_size", 3),
        WEIR_ATTR_INT("padding", 1), WEIR_ATTR_FLAG("bias", false));
    ADD(list, "dropout2d", WEIR_ATTR_REAL("p", list->options->dropout));
    add(list, "instance_norm2d", WEIR_NO_ATTRS);
    add(list, "leaky_relu", WEIR_NO_ATTRS);
}

/** num_convs units; all but the last have `mid` channels. */
static void add_stack(struct unet_list *list, int64_t mid, int64_t out) {
    assert(list->options->num_convs >= 1 && mid >= 1 && out >= 1);
    for (uint32_t i = 1; i < list->options->num_convs; i++) add_unit(list, mid);
    add_unit(list, out);
}

static void add_skip(struct unet_list *list, const char *type, uint32_t level) {
    char name_space[16];
    snprintf(name_space, sizeof name_space, "%u", level);
    ADD(list, type, WEIR_ATTR_TEXT("skip", "skip"), WEIR_ATTR_TEXT("namespace", name_space));
}

static void add_layers(struct unet_list *list) {
    const struct weir_unet_options *options = list->options;
    int64_t base = options->base_channels;
    uint32_t depth = options->depth;
    for (uint32_t i = 0; i < depth; i++) {
        add_stack(list, base << i, base << i);
        add_skip(list, "stash", i);
        ADD(list, "max_pool2d", WEIR_ATTR_INT("kernel_size", 2));
    }
    add_stack(list, base << depth, base << (depth - 1));
    for (uint32_t i = depth; i-- > 0;) {
        int64_t out = i == 0 ? base / 2 : base << (i - 1);
        ADD(list, "upsample", WEIR_ATTR_INT("scale_factor", 2));
        add_skip(list, "pop_concat", i);
        add_stack(list, out, out);
    }
    ADD(list, "conv2d", WEIR_ATTR_INT("out_channels", options->out_channels),
        WEIR_ATTR_INT("kernel_size", 1), WEIR_ATTR_FLAG("bias", false));
}

/** The bottleneck's instance norm needs more than one pixel. */
static bool leaves_pixels(const struct weir_unet_options *options, uint32_t depth) {
    assert(depth < 32);
    uint32_t height = options->height >> depth, width = options->width >> depth;
    return height >= 1 && width >= 1 && (height > 1 || width > 1);
}

static bool check_size(const struct weir_unet_options *options, struct weir_faults *faults) {
    char shallower[48] = "";
    uint32_t depth = options->depth, least = 2u << depth;
    if (leaves_pixels(options, depth)) return true;
    while (depth > 0 && !leaves_pixels(options, depth)) depth--;
    if (depth > 0) snprintf(shallower, sizeof shallower, ", or --depth %u at most", depth);
    weir_faults_add(faults,
                    "images of %ux%u are too small for %u levels, each of which halves them: "
                    "use at least %ux%u%s",
                    options->height, options->width, options->depth, least, least, shallower);
    return false;
}

static bool check(const struct weir_unet_options *options, struct weir_faults *faults) {
    bool good = true;
    const struct {
        const char *name;
        uint32_t value, least, most;
    } numbers[] = {
        {"--depth", options->depth, 1, 16},
        {"--num-convs", options->num_convs, 1, 4096},
        {"--base-channels", options->base_channels, 2, 16384},
        {"--in-channels", options->in_channels, 1, 1u << 20},
        {"--out-channels", options->out_channels, 1, 1u << 20},
        {"--image-size's height", options->height, 1, 1u << 20},
        {"--image-size's width", options->width, 1, 1u << 20},
    };
    for (size_t i = 0; i < WEIR__COUNT_OF(numbers); i++) {
        if (numbers[i].value >= numbers[i].least && numbers[i].value <= numbers[i].most) continue;
        weir_faults_add(faults, "%s is %u, but must be from %u to %u", numbers[i].name,
                        numbers[i].value, numbers[i].least, numbers[i].most);
        good = false;
    }
    if (!(options->dropout >= 0 && options->dropout < 1)) {
        weir_faults_add(faults, "--dropout is %g, but must be from 0 to below 1", options->dropout);
        good = false;
    }
    return good && check_size(options, faults);
}

int weir_model_unet(const struct weir_allocator *allocator, const struct weir_unet_options *options,
                    struct weir_faults *faults, struct weir_model **model) {
    assert(options != NULL && model != NULL);
    if (!check(options, faults)) return WEIR_ERR_ARGUMENT;
    struct weir_tensor input = {.dtype = WEIR_F32,
                                .rank = 3,
                                .shape = {options->in_channels, options->height, options->width}};
    struct weir_tensor target = input;
    target.shape[0] = options->out_channels;
    /* What the decoder puts out is as large as the largest skip, which is the input. */
    struct weir_model *made;
    int status = weir_model_new(allocator, &input, &target, "bce_with_logits", &made);
    if (status != WEIR_OK) return status;
    struct unet_list list = {.model = made, .options = options, .faults = faults};
    add_layers(&list);
    if (list.status == WEIR_OK)
        *model = made;
    else
        weir_model_destroy(made);
    return list.status;
}
