/* SPDX-License-Identifier: MIT */
/* Dtypes and border tensors: their bytes, text and equality. */
#include "base/base.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct dtype_entry {
    size_t bytes;
    const char *name;
};

static const struct dtype_entry dtypes[] = {
#define DTYPE_ENTRY(name, bytes, text, file) [WEIR_##name] = {bytes, text},
    WEIR_DTYPE_MAP(DTYPE_ENTRY)
#undef DTYPE_ENTRY
};
_Static_assert(WEIR__COUNT_OF(dtypes) == WEIR_DTYPE_COUNT, "every dtype has an entry");

static bool dtype_is_known(enum weir_dtype dtype) {
    return (size_t)dtype < WEIR_DTYPE_COUNT;
}

size_t weir_dtype_bytes(enum weir_dtype dtype) {
    return dtype_is_known(dtype) ? dtypes[dtype].bytes : 0;
}

const char *weir_dtype_name(enum weir_dtype dtype) {
    return dtype_is_known(dtype) ? dtypes[dtype].name : "unknown";
}

bool weir_dtype_is_float(enum weir_dtype dtype) {
    return dtype == WEIR_F32 || dtype == WEIR_F64 || dtype == WEIR_BF16 || dtype == WEIR_F16;
}

static double half_value(uint16_t bits) {
    double sign = bits >> 15 ? -1 : 1, fraction = bits & 0x3ff;
    int exponent = bits >> 10 & 0x1f;
    if (exponent == 31) return fraction > 0 ? (double)NAN : sign * HUGE_VAL;
    return sign * (exponent == 0 ? ldexp(fraction, -24) : ldexp(fraction + 1024, exponent - 25));
}

double weir__number_at(enum weir_dtype dtype, const void *numbers, uint64_t index) {
    assert(weir_dtype_is_float(dtype));
    const char *from = (const char *)numbers + index * weir_dtype_bytes(dtype);
    uint16_t half;
    float single;
    double value;
    switch (dtype) {
    case WEIR_F64: memcpy(&value, from, sizeof value); return value;
    case WEIR_F32: memcpy(&single, from, sizeof single); return (double)single;
    case WEIR_F16: memcpy(&half, from, sizeof half); return half_value(half);
    default: break; /* BF16 is the upper half of an F32 */
    }
    memcpy(&half, from, sizeof half);
    uint32_t bits = (uint32_t)half << 16;
    memcpy(&single, &bits, sizeof single);
    return (double)single;
}

int weir__tensor_bytes(const struct weir_tensor *tensor, int64_t rows, size_t *bytes) {
    assert(tensor != NULL && bytes != NULL);
    assert(rows >= 0);
    if (tensor->rank > WEIR_RANK_MAX || !dtype_is_known(tensor->dtype)) return WEIR_ERR_SHAPE;
    size_t total = weir_dtype_bytes(tensor->dtype);
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] < 1) return WEIR_ERR_SHAPE;
        if (!weir__multiply(total, (size_t)tensor->shape[i], &total)) return WEIR_ERR_OVERFLOW;
    }
    if (!weir__multiply(total, (size_t)rows, &total)) return WEIR_ERR_OVERFLOW;
    *bytes = total;
    return WEIR_OK;
}

/* Appends like snprintf; a full text stays full. */
__attribute__((format(printf, 4, 5))) static size_t append(char *text, size_t capacity, size_t used,
                                                           const char *format, ...) {
    if (used + 1 >= capacity) return used;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text + used, capacity - used, format, arguments);
    va_end(arguments);
    if (length < 0) return used;
    size_t after = used + (size_t)length;
    return after < capacity ? after : capacity - 1;
}

const char *weir__tensor_text(const struct weir_tensor *tensor, char *text, size_t capacity) {
    assert(tensor != NULL && text != NULL && capacity > 0);
    text[0] = '\0';
    uint32_t rank = tensor->rank < WEIR_RANK_MAX ? tensor->rank : WEIR_RANK_MAX;
    size_t used = append(text, capacity, 0, "%s [", weir_dtype_name(tensor->dtype));
    for (uint32_t i = 0; i < rank; i++) {
        const char *comma = i > 0 ? ", " : "";
        used = append(text, capacity, used, "%s%lld", comma, (long long)tensor->shape[i]);
    }
    append(text, capacity, used, "]");
    return text;
}

bool weir__tensor_equal(const struct weir_tensor *a, const struct weir_tensor *b) {
    assert(a != NULL && b != NULL);
    if (a->dtype != b->dtype || a->rank != b->rank) return false;
    for (uint32_t i = 0; i < a->rank && i < WEIR_RANK_MAX; i++) {
        if (a->shape[i] != b->shape[i]) return false;
    }
    return a->differentiable == b->differentiable;
}
