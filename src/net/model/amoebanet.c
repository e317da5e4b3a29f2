/* SPDX-License-Identifier: MIT */
/*
 * AmoebaNet-D as torchgpipe's benchmark has it: three stems (the last two are reduction cells),
 * then normal cells in three thirds with a reduction cell between, and a classifier. A cell reads
 * the outputs of the two layers before it. The nearer is its input; the farther is a skip, which
 * the layer before stashes: its own input. Parameters are named as those of upstream's modules.
 */
#include "net/model/layer.h"
#include "weir_models.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/** The name of a part, which lives as long as the network. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static const char *
named(struct weir_builder *b, const char *format, ...) {
    char text[96];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const char *kept = weir__pool_text(b->graph->pool, text);
    return kept != NULL ? kept : weir_builder_fail(b, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
}

static struct weir_value *norm(struct weir_builder *b, struct weir_value *x, const char *prefix) {
    const struct weir_batch_norm_options options = WEIR_BATCH_NORM_OPTIONS_INIT;
    if (x == NULL || prefix == NULL) return NULL;
    return weir_batch_norm2d(b, x, prefix, &options);
}

/** ReLU, convolution, batch norm: modules first, first + 1 and first + 2 of a Sequential. */
static struct weir_value *unit(struct weir_builder *b, struct weir_value *x, const char *place,
                               int first, const struct weir__conv_part *conv) {
    const char *weight = named(b, "%s.%d.weight", place, first + 1);
    const char *prefix = named(b, "%s.%d.", place, first + 2);
    x = weir__build_conv(b, weir_relu(b, x), weight, conv);
    return norm(b, x, prefix);
}

/** Two convolutions of every second pixel: of those from (0, 0) on, and those from (1, 1) on, with
 * zeros where there are none. */
static struct weir_value *factorized_reduce(struct weir_builder *b, struct weir_value *x,
                                            const char *place, int64_t out) {
    const char *weights[] = {named(b, "%s.conv1.weight", place),
                             named(b, "%s.conv2.weight", place)};
    const char *prefix = named(b, "%s.bn.", place);
    struct weir__conv_part half = {.out = out / 2, .kernel = {1, 1}, .stride = {2, 2}};
    x = weir_relu(b, x);
    struct weir_value *even = weir__build_conv(b, x, weights[0], &half);
    half.stride[0] = half.stride[1] = 1;
    struct weir_value *odd = weir__build_conv(b, weir__every_second(b, x, 1), weights[1], &half);
    return even == NULL || odd == NULL ? NULL : norm(b, weir_concat(b, even, odd), prefix);
}

/* ---- what cells are made of ---- */

enum operation { NONE, AVG_POOL_3, MAX_POOL_2, CONV_1, CONV_3, CONV_7 };

struct step {
    uint32_t state; /* what it reads: the reduced inputs are 0 and 1, sums of two steps follow */
    enum operation operation;
};
enum { STEPS = 10, STATES = 2 + STEPS / 2 };

/* Upstream's max_pool_3x3 is an average: so it is here. */
static const struct step normal_steps[STEPS] = {
    {1, CONV_1}, {1, AVG_POOL_3}, {1, NONE}, {0, CONV_7},     {0, CONV_1},
    {0, CONV_7}, {2, AVG_POOL_3}, {2, NONE}, {1, AVG_POOL_3}, {5, CONV_1}};
static const struct step reduction_steps[STEPS] = {
    {0, MAX_POOL_2}, {0, AVG_POOL_3}, {2, NONE},       {1, CONV_3},     {2, CONV_7},
    {2, AVG_POOL_3}, {3, NONE},       {1, MAX_POOL_2}, {2, AVG_POOL_3}, {3, CONV_1}};

/** A row of convolutions whose inner ones have a quarter of the channels. */
static struct weir_value *bottleneck(struct weir_builder *b, struct weir_value *x,
                                     const char *place, int64_t channels,
                                     const struct weir__conv_part *inner, uint32_t count) {
    assert(count >= 1 && inner != NULL);
    struct weir__conv_part outer = {.out = channels / 4, .kernel = {1, 1}, .stride = {1, 1}};
    x = unit(b, x, place, 0, &outer);
    for (uint32_t i = 0; i < count; i++) x = unit(b, x, place, 3 * (int)(i + 1), &inner[i]);
    outer.out = channels;
    return unit(b, x, place, 3 * (int)(count + 1), &outer);
}

static struct weir_value *pool(struct weir_builder *b, struct weir_value *x,
                               enum operation operation, int64_t stride) {
    bool largest = operation == MAX_POOL_2;
    int64_t side = largest ? 2 : 3, around = largest ? 0 : 1;
    const struct weir_pool_options options = {
        .kernel = {side, side}, .stride = {stride, stride}, .padding = {around, around}};
    return largest ? weir_max_pool2d(b, x, &options) : weir_avg_pool2d(b, x, &options);
}

static struct weir_value *operate(struct weir_builder *b, struct weir_value *x, const char *place,
                                  enum operation operation, int64_t stride) {
    if (x == NULL) return NULL;
    int64_t channels = x->shape[0], inner = channels / 4;
    const struct weir__conv_part single = {channels, {1, 1}, {stride, stride}, {0, 0}, false};
    const struct weir__conv_part three = {inner, {3, 3}, {stride, stride}, {1, 1}, false};
    const struct weir__conv_part sevens[] = {{inner, {1, 7}, {1, stride}, {0, 3}, false},
                                             {inner, {7, 1}, {stride, 1}, {3, 0}, false}};
    switch (operation) {
    case NONE: return stride == 1 ? x : factorized_reduce(b, x, place, channels);
    case AVG_POOL_3:
    case MAX_POOL_2: return pool(b, x, operation, stride);
    case CONV_1: return unit(b, x, place, 0, &single);
    case CONV_3: return bottleneck(b, x, place, channels, &three, 1);
    case CONV_7: return bottleneck(b, x, place, channels, sevens, 2);
    }
    return NULL;
}

/* ---- cells ---- */

#define FLAG(name)                                                                                 \
    { .key = name, .kind = WEIR_ATTR_KIND_FLAG }
#define TEXT(name, default_)                                                                       \
    { .key = name, .kind = WEIR_ATTR_KIND_TEXT, .text = default_ }
#define CHANNELS(name, least_)                                                                     \
    { .key = name, .kind = WEIR_ATTR_KIND_INT, .required = true, .least = least_ }

static const struct weir_attr_rule cell_attrs[] = {CHANNELS("channels", 4), FLAG("reduction"),
                                                   FLAG("reduction_prev"),  TEXT("skip", "state"),
                                                   TEXT("namespace", ""),   TEXT("next", "")};

/** The farther input, in the shape of the reduced nearer one. */
static struct weir_value *reduce_farther(struct weir_builder *b, const struct weir_layer *layer,
                                         struct weir_value *x) {
    int64_t channels = weir_layer_int(layer, "channels");
    const struct weir__conv_part single = {.out = channels, .kernel = {1, 1}, .stride = {1, 1}};
    if (x == NULL) return NULL;
    if (weir_layer_flag(layer, "reduction_prev"))
        return factorized_reduce(b, x, "reduce2", channels);
    return x->shape[0] == channels ? x : unit(b, x, "reduce2", 0, &single);
}

static struct weir_value *run_steps(struct weir_builder *b, const struct weir_layer *layer,
                                    struct weir_value *states[STATES]) {
    bool reduction = weir_layer_flag(layer, "reduction");
    const struct step *steps = reduction ? reduction_steps : normal_steps;
    for (uint32_t i = 0; i < STEPS; i++) {
        const struct step *step = &steps[i];
        const char *place = named(b, "operations.%u", i);
        int64_t stride = reduction && step->state < 2 ? 2 : 1;
        if (place == NULL || states[step->state] == NULL) return NULL;
        struct weir_value *made = operate(b, states[step->state], place, step->operation, stride);
        uint32_t sum = 2 + i / 2;
        states[sum] = i % 2 == 0 ? made : weir_sum(b, states[sum], made);
    }
    uint32_t first = reduction ? 4 : 0;
    struct weir_value *y = states[first];
    static const uint32_t normal_rest[] = {3, 4, 6}, reduction_rest[] = {5, 6};
    const uint32_t *rest = reduction ? reduction_rest : normal_rest;
    for (uint32_t i = 0; i < (reduction ? 2 : 3); i++) y = weir_concat(b, y, states[rest[i]]);
    return y;
}

/** A lone first input is both. */
static struct weir_value *build_cell(struct weir_builder *b, const struct weir_layer *layer,
                                     struct weir_value *x) {
    struct weir_value *states[STATES] = {NULL}, *farther = x;
    const char *skip = weir_layer_text(layer, "skip");
    int64_t channels = weir_layer_int(layer, "channels");
    const struct weir__conv_part single = {.out = channels, .kernel = {1, 1}, .stride = {1, 1}};
    if (channels % 4 != 0)
        return weir_builder_fail(b, WEIR_ERR_SHAPE,
                                 "its channels are %lld, but must be a multiple "
                                 "of 4",
                                 (long long)channels);
    for (uint32_t i = 0; i < layer->type->skip_count; i++) {
        if (layer->type->skips[i].verb == WEIR_SKIP_STASH)
            weir_stash(b, weir_layer_text(layer, "next"), skip, x);
        else
            farther = weir_read(b, weir_layer_text(layer, "namespace"), skip);
    }
    states[0] = unit(b, x, "reduce1", 0, &single);
    states[1] = reduce_farther(b, layer, farther);
    return run_steps(b, layer, states);
}

#define ABOUT_CELL "AmoebaNet-D's cell; `reduction` halves its images, `reduction_prev` says that "
#define CELL(name_, about_)                                                                        \
    .name = name_, WEIR__ATTRS(cell_attrs), .prefix = WEIR_PREFIX_INDEX, .composite = true,        \
    .build = build_cell, .input = "channels, height, width",                                       \
    .output = "4 or 3 x channels, height, width", .about = about_

const struct weir_layer_type weir__layer_amoeba_cell = {
    CELL("amoeba_cell", ABOUT_CELL "the cell before did; pops that one's input, stashes its own"),
    .skip_count = 2,
    .skips = {{WEIR_SKIP_POP, "skip", "namespace"}, {WEIR_SKIP_STASH, "skip", "next"}}};
const struct weir_layer_type weir__layer_amoeba_first_cell = {
    CELL("amoeba_first_cell", "the first amoeba_cell: it stashes its input, and pops nothing"),
    .skip_count = 1, .skips = {{WEIR_SKIP_STASH, "skip", "next"}}};
const struct weir_layer_type weir__layer_amoeba_last_cell = {
    CELL("amoeba_last_cell", "the last amoeba_cell: it pops, and stashes nothing"), .skip_count = 1,
    .skips = {{WEIR_SKIP_POP, "skip", "namespace"}}};

/* ---- the ends ---- */

static const struct weir_attr_rule stem_attrs[] = {CHANNELS("out_channels", 1)};

static struct weir_value *build_stem(struct weir_builder *b, const struct weir_layer *layer,
                                     struct weir_value *x) {
    const struct weir__conv_part conv = {.out = weir_layer_int(layer, "out_channels"),
                                         .kernel = {3, 3},
                                         .stride = {2, 2},
                                         .padding = {1, 1}};
    return norm(b, weir__build_conv(b, weir_relu(b, x), "conv.weight", &conv), "bn.");
}

const struct weir_layer_type weir__layer_amoeba_stem = {
    .name = "amoeba_stem",
    WEIR__ATTRS(stem_attrs),
    .composite = true,
    .build = build_stem,
    .input = "channels, height, width",
    .output = "out_channels, height / 2, width / 2",
    .about = "ReLU, a convolution of every second pixel, batch norm"};

static const struct weir_attr_rule classify_attrs[] = {CHANNELS("out_features", 1)};

static struct weir_value *build_classify(struct weir_builder *b, const struct weir_layer *layer,
                                         struct weir_value *x) {
    const struct weir_pool_options seven = {
        .kernel = {7, 7}, .stride = {7, 7}, .count_include_pad = true};
    x = weir_avg_pool2d(b, x, &seven);
    if (x == NULL) return NULL;
    int64_t out = weir_layer_int(layer, "out_features"), count = weir__value_count(x);
    struct weir_init init = weir__linear_init(count);
    struct weir_value *weight = weir_parameter(b, "fc.weight", 2, (int64_t[]){out, count}, init);
    struct weir_value *bias = weir_parameter(b, "fc.bias", 1, &out, init);
    return weir_linear(b, weir_reshape(b, x, 1, &count), weight, bias, false);
}

const struct weir_layer_type weir__layer_amoeba_classify = {
    .name = "amoeba_classify",
    WEIR__ATTRS(classify_attrs),
    .composite = true,
    .build = build_classify,
    .input = "channels, height, width",
    .output = "out_features",
    .about = "the mean of 7x7 pixels, then a linear layer"};

/* ---- the model ---- */

/** The model as it grows; the first failure is kept. */
struct cell_list {
    struct weir_model *model;
    struct weir_faults *faults;
    int64_t channels;     /* of the next cell */
    uint32_t cells, last; /* so far; the number of the last */
    bool reduced;         /* the cell before did */
    int status;
};

static void add_cell(struct cell_list *list, const char *name, bool reduction) {
    char before[16], after[16];
    bool first = list->cells == 0, last = list->cells == list->last;
    if (list->status != WEIR_OK) return;
    if (reduction) list->channels *= 2;
    snprintf(before, sizeof before, "%u", list->cells);
    snprintf(after, sizeof after, "%u", ++list->cells);
    list->status = weir_model_add(list->model,
                                  first  ? "amoeba_first_cell"
                                  : last ? "amoeba_last_cell"
                                         : "amoeba_cell",
                                  name,
                                  WEIR_ATTRS(WEIR_ATTR_INT("channels", list->channels),
                                             WEIR_ATTR_FLAG("reduction", reduction),
                                             WEIR_ATTR_FLAG("reduction_prev", list->reduced),
                                             WEIR_ATTR_TEXT("namespace", before),
                                             WEIR_ATTR_TEXT("next", after)),
                                  list->faults);
    list->reduced = reduction;
}

static void add_normal_cells(struct cell_list *list, uint32_t number, uint32_t count) {
    char name[32];
    for (uint32_t i = 1; i <= count; i++) {
        snprintf(name, sizeof name, "cell%u_normal%u", number, i);
        add_cell(list, name, false);
    }
}

static int add_layers(struct weir_model *model, const struct weir_amoebanet_options *options,
                      struct weir_faults *faults) {
    struct cell_list list = {.model = model,
                             .faults = faults,
                             .channels = options->filters / 4,
                             .last = options->layers + 3};
    list.status = weir_model_add(model, "amoeba_stem", "stem1",
                                 WEIR_ATTRS(WEIR_ATTR_INT("out_channels", list.channels)), faults);
    add_cell(&list, "stem2", true);
    add_cell(&list, "stem3", true);
    add_normal_cells(&list, 1, options->layers / 3);
    add_cell(&list, "cell2_reduction", true);
    add_normal_cells(&list, 3, options->layers / 3);
    add_cell(&list, "cell4_reduction", true);
    add_normal_cells(&list, 5, options->layers / 3);
    if (list.status != WEIR_OK) return list.status;
    return weir_model_add(model, "amoeba_classify", "classify",
                          WEIR_ATTRS(WEIR_ATTR_INT("out_features", options->classes)), faults);
}

static bool check(const struct weir_amoebanet_options *options, struct weir_faults *faults) {
    bool good = true;
    if (options->layers < 3 || options->layers % 3 != 0 || options->layers > 3000) {
        weir_faults_add(faults, "--layers is %u: give a multiple of 3, up to 3000",
                        options->layers);
        good = false;
    }
    if (options->filters < 8 || options->filters % 8 != 0 || options->filters > 16384) {
        weir_faults_add(faults, "--filters is %u: give a multiple of 8, up to 16384",
                        options->filters);
        good = false;
    }
    return weir__check_images(options->classes, options->height, options->width, faults) && good;
}

int weir_model_amoebanetd(const struct weir_allocator *allocator,
                          const struct weir_amoebanet_options *options, struct weir_faults *faults,
                          struct weir_model **model) {
    assert(options != NULL && model != NULL);
    if (!check(options, faults)) return WEIR_ERR_ARGUMENT;
    struct weir_model *made;
    int status = weir__classifier_new(allocator, options->height, options->width, &made);
    if (status != WEIR_OK) return status;
    if ((status = add_layers(made, options, faults)) == WEIR_OK)
        *model = made;
    else
        weir_model_destroy(made);
    return status;
}
