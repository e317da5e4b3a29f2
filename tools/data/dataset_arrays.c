/* SPDX-License-Identifier: MIT */
/* Pairs of arrays as samples: shapes against the model's, numbers into its dtypes. */
#include "data/dataset_inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PART = 10, PIECE = 1024 };

/* ---- opening ---- */

static int check_samples(const struct weir__array *array, struct weir_faults *faults) {
    char text[128], shortened[96];
    const char *path = weir__path_text(array->source.path, shortened);
    const char *reason = array->rank == 0                  ? "a single number"
                         : array->count == 0               ? "no numbers"
                         : array->rank - 1 > WEIR_RANK_MAX ? "too many dimensions"
                                                           : NULL;
    if (!reason) {
        return WEIR_OK;
    }
    weir_faults_add(faults,
                    "%s: %s has %s: give samples of 0 to %d dimensions, the first dimension of the "
                    "file counting them",
                    path, weir__array_text(array, text, sizeof(text)), reason, WEIR_RANK_MAX);
    return WEIR_ERR_CONFIG;
}

static int check_pair(const struct weir__array_part *part, struct weir_faults *faults) {
    char texts[2][128], shortened[2][96];
    const struct weir__array *input = &part->input, *target = &part->target;
    int status = check_samples(input, faults);
    int other = target->source.path ? check_samples(target, faults) : WEIR_OK;
    if (status || other) {
        return status ? status : other;
    }
    if (!target->source.path || input->shape[0] == target->shape[0]) {
        return WEIR_OK;
    }
    weir_faults_add(faults,
                    "%s holds %s, but %s holds %s: the first dimensions count the samples and must "
                    "be equal",
                    weir__path_text(input->source.path, shortened[0]),
                    weir__array_text(input, texts[0], sizeof(texts[0])),
                    weir__path_text(target->source.path, shortened[1]),
                    weir__array_text(target, texts[1], sizeof(texts[1])));
    return WEIR_ERR_CONFIG;
}

int weir__array_part_open(const struct weir__io *io, const struct weir__data_pair *pair,
                          struct weir_faults *faults, struct weir__array_part *part) {
    struct weir_error error = {.status = WEIR_OK};
    struct weir__io own = {io->allocator, io->calls, &error};
    struct weir__array_part made = {.borrowed = false};
    int status = weir__array_open(&own, pair->input, &made.input);
    if (status) {
        weir__data_fault(faults, &error);
    }
    int other = pair->target ? weir__array_open(&own, pair->target, &made.target) : WEIR_OK;
    if (other) {
        weir__data_fault(faults, &error);
    }
    status = status ? status : other;
    if (!status) {
        status = check_pair(&made, faults);
    }
    if (status) {
        weir__array_part_close(&made);
        return status;
    }
    made.count = (uint64_t)made.input.shape[0];
    *part = made;
    return WEIR_OK;
}

void weir__array_part_close(struct weir__array_part *part) {
    if (!part->borrowed) {
        weir__array_close(&part->input);
        weir__array_close(&part->target);
    }
    *part = (struct weir__array_part){.borrowed = false};
}

int weir__array_part_split(struct weir__array_part *train, struct weir_faults *faults,
                           struct weir__array_part *held_out) {
    char shortened[96];
    uint64_t tenth = train->count >= PART ? train->count / PART : 1;
    if (train->count < 2) {
        weir_faults_add(faults,
                        "%s holds one sample, but one is to train on and one held out: give more, "
                        "or --eval-data",
                        weir__path_text(train->input.source.path, shortened));
        return WEIR_ERR_CONFIG;
    }
    *held_out = *train;
    held_out->borrowed = true;
    train->count -= tenth;
    held_out->first = train->count;
    held_out->count = tenth;
    return WEIR_OK;
}

/* ---- shapes and types ---- */

static struct weir_tensor sample_of(const struct weir__array *array) {
    struct weir_tensor sample = {.dtype = WEIR_F32, .rank = array->rank - 1};
    for (uint32_t i = 0; i < sample.rank; i++) {
        sample.shape[i] = array->shape[i + 1];
    }
    return sample;
}

static uint32_t leading_ones(const struct weir_tensor *tensor) {
    uint32_t count = 0;
    while (count < tensor->rank && tensor->shape[count] == 1) {
        count++;
    }
    return count;
}

static bool same_shape(const struct weir_tensor *a, const struct weir_tensor *b) {
    uint32_t skip_a = leading_ones(a), skip_b = leading_ones(b);
    uint32_t rank = a->rank - skip_a;
    return rank == b->rank - skip_b && (rank == 0 || memcmp(a->shape + skip_a, b->shape + skip_b,
                                                            rank * sizeof(a->shape[0])) == 0);
}

/* "[3, 96, 96]" of a tensor's "f32 [3, 96, 96]". */
static const char *shape_text(const struct weir_tensor *tensor, char *text, size_t capacity) {
    const char *bracket = strchr(weir__tensor_text(tensor, text, capacity), '[');
    return bracket ? bracket : text;
}

static int check_fit(const struct weir__array *array, const struct weir_tensor *tensor,
                     const char *role, struct weir_faults *faults) {
    char wanted[96], found[96], shortened[96];
    const char *path = weir__path_text(array->source.path, shortened);
    struct weir_tensor sample = sample_of(array);
    int status = WEIR_OK;
    if (!same_shape(&sample, tensor)) {
        weir_faults_add(faults,
                        "%s: its samples are %s %s, but the model's %s is %s: convert them, or "
                        "choose another model",
                        path, weir__number_name(array->number),
                        shape_text(&sample, found, sizeof(found)), role,
                        weir__tensor_text(tensor, wanted, sizeof(wanted)));
        status = WEIR_ERR_SHAPE;
    }
    if (tensor->dtype == WEIR_I64 && weir__number_is_real(array->number)) {
        weir_faults_add(faults, "%s holds %s, but the model's %s is integers: save them as i64",
                        path, weir__number_name(array->number), role);
        status = WEIR_ERR_SHAPE;
    }
    return status;
}

static int make_rule(const struct weir__dataset_model *model, struct weir_faults *faults,
                     struct weir__array_rule *rule) {
    const struct weir_tensor *tensors[2] = {&model->input, &model->target};
    for (int i = 0; i < (model->loss ? 2 : 1); i++) {
        enum weir_dtype dtype = tensors[i]->dtype;
        if (dtype != WEIR_F32 && dtype != WEIR_F64 && dtype != WEIR_I64) {
            weir_faults_add(faults, "the model's %s is %s, but arrays are read as f32, f64 or i64",
                            i == 0 ? "input" : "target", weir_dtype_name(dtype));
            return WEIR_ERR_SHAPE;
        }
    }
    *rule = (struct weir__array_rule){.input = model->input,
                                      .target = model->target,
                                      .target_scale = 1,
                                      .labels =
                                          model->loss && strcmp(model->loss, "cross_entropy") == 0,
                                      .classes = model->classes,
                                      .ignore_index = model->ignore_index};
    int status = weir__tensor_bytes(&model->input, 1, &rule->input_bytes);
    if (!status && model->loss) {
        status = weir__tensor_bytes(&model->target, 1, &rule->target_bytes);
    }
    if (status) {
        weir_faults_add(faults, "the model's input or target has no size");
        return status;
    }
    rule->input_numbers = rule->input_bytes / weir_dtype_bytes(model->input.dtype);
    if (!model->loss) {
        return WEIR_OK;
    }
    rule->target_numbers = rule->target_bytes / weir_dtype_bytes(model->target.dtype);
    return WEIR_OK;
}

/* ---- the one pass over the targets ---- */

static int check_labels(const struct weir__array *array, const struct weir__array_rule *rule,
                        const struct weir__io *io, uint64_t first, uint64_t count,
                        const int64_t *labels, bool *ignored) {
    for (uint64_t i = 0; i < count; i++) {
        bool ignore = labels[i] == rule->ignore_index;
        *ignored = *ignored || ignore;
        if (!ignore && (labels[i] < 0 || labels[i] >= rule->classes)) {
            return weir__source_refuse(io, array->source.path, WEIR_ERR_CONFIG,
                                       "sample %" PRIu64 " has the label %" PRId64
                                       ", but the model's labels are 0 to %" PRId64
                                       ": correct it, or give the model more classes",
                                       (first + i) / rule->target_numbers, labels[i],
                                       rule->classes - 1);
        }
    }
    return WEIR_OK;
}

static int scan_labels(const struct weir__array_part *part, const struct weir__io *io,
                       struct weir__array_rule *rule) {
    int64_t labels[PIECE];
    uint64_t end = (part->first + part->count) * rule->target_numbers;
    for (uint64_t at = part->first * rule->target_numbers; at < end; at += PIECE) {
        uint64_t count = end - at < PIECE ? end - at : PIECE;
        int status = weir__array_read_i64(&part->target, io, at, count, labels);
        if (!status) {
            status = check_labels(&part->target, rule, io, at, count, labels, &rule->ignores);
        }
        if (status) {
            return status;
        }
    }
    return WEIR_OK;
}

/* u8 masks: their scale. Others, where the loss wants a share of 1: whether they are. */
static int scan_shares(const struct weir__array_part *part, const struct weir__io *io, bool shares,
                       struct weir__array_rule *rule) {
    double values[PIECE];
    bool bytes = part->target.number == WEIR__NUMBER_U8;
    uint64_t end = (part->first + part->count) * rule->target_numbers;
    for (uint64_t at = part->first * rule->target_numbers; at < end && (bytes || shares);
         at += PIECE) {
        uint64_t count = end - at < PIECE ? end - at : PIECE;
        int status = weir__array_read_f64(&part->target, io, at, count, values);
        if (status) {
            return status;
        }
        for (uint64_t i = 0; i < count; i++) {
            if (bytes && values[i] > 1) {
                rule->target_scale = 255;
                return WEIR_OK;
            }
            if (!bytes && !(values[i] >= 0 && values[i] <= 1)) {
                return weir__source_refuse(
                    io, part->target.source.path, WEIR_ERR_CONFIG,
                    "sample %" PRIu64
                    " has the target %g, but the loss takes 0 to 1: scale the targets",
                    (at + i) / rule->target_numbers, values[i]);
            }
        }
    }
    return WEIR_OK;
}

int weir__arrays_bind(const struct weir__array_part parts[2], const struct weir__io *io,
                      const struct weir__dataset_model *model, struct weir_faults *faults,
                      struct weir__array_rule *rule) {
    struct weir_error error = {.status = WEIR_OK};
    struct weir__io own = {io->allocator, io->calls, &error};
    bool shares = model->loss && strncmp(model->loss, "bce", 3) == 0;
    int status = make_rule(model, faults, rule);
    if (status) {
        return status;
    }
    if (!model->loss) {
        return check_fit(&parts[0].input, &model->input, "input", faults);
    }
    for (int i = 0; i < 2; i++) {
        if (parts[i].borrowed) {
            continue; /* the same files */
        }
        int input = check_fit(&parts[i].input, &model->input, "input", faults);
        int target = check_fit(&parts[i].target, &model->target, "target", faults);
        status = status ? status : input ? input : target;
    }
    for (int i = 0; i < 2 && !status; i++) {
        status = model->target.dtype != WEIR_I64 ? scan_shares(&parts[i], &own, shares, rule)
                 : rule->labels                  ? scan_labels(&parts[i], &own, rule)
                                                 : WEIR_OK;
        if (status) {
            weir__data_fault(faults, &error);
        }
    }
    return status;
}

/* ---- reading ---- */

static int read_numbers(const struct weir__array *array, const struct weir__io *io,
                        enum weir_dtype dtype, uint64_t first, uint64_t count, void *out) {
    switch (dtype) {
    case WEIR_F32: return weir__array_read_f32(array, io, first, count, out);
    case WEIR_F64: return weir__array_read_f64(array, io, first, count, out);
    default: return weir__array_read_i64(array, io, first, count, out);
    }
}

/* A division, as PyTorch's ToTensor does it: a product with 1/255 has other last bits. */
static void divide(enum weir_dtype dtype, float by, uint64_t count, void *numbers) {
    if (dtype == WEIR_F32) {
        float *out = numbers;
        for (uint64_t i = 0; i < count; i++) {
            out[i] /= by;
        }
    } else if (dtype == WEIR_F64) {
        double *out = numbers;
        for (uint64_t i = 0; i < count; i++) {
            out[i] /= (double)by;
        }
    }
}

int weir__array_part_read(const struct weir__array_part *part, const struct weir__array_rule *rule,
                          const struct weir__io *io, uint64_t index, void *input, void *target) {
    assert(index < part->count);
    uint64_t sample = part->first + index;
    bool ignored = false;
    int status = WEIR_OK;
    if (input) {
        status = read_numbers(&part->input, io, rule->input.dtype, sample * rule->input_numbers,
                              rule->input_numbers, input);
        if (!status && part->input.number == WEIR__NUMBER_U8) {
            divide(rule->input.dtype, 255, rule->input_numbers, input);
        }
    }
    uint64_t first = sample * rule->target_numbers;
    if (!part->target.source.path) {
        return status;
    }
    if (!status) {
        status = read_numbers(&part->target, io, rule->target.dtype, first, rule->target_numbers,
                              target);
    }
    if (!status && rule->labels && rule->target.dtype == WEIR_I64) {
        status =
            check_labels(&part->target, rule, io, first, rule->target_numbers, target, &ignored);
    }
    if (!status && part->target.number == WEIR__NUMBER_U8 && rule->target_scale > 1) {
        divide(rule->target.dtype, rule->target_scale, rule->target_numbers, target);
    }
    return status;
}
