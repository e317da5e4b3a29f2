/* SPDX-License-Identifier: MIT */
/*
 * A toy layer: y = a x + b per column, its gradients, and what goes with it in a training step.
 * Every sum is a left fold in ascending order by one thread, and no product is fused with a sum:
 * so the host's plain loops give the same bits.
 */
#include "platform.cuh"
#include "weir.h"

/* Launch: any, one element a thread at a time. y[r][c] = a[c] x[r][c] + b[c] */
extern "C" __global__ void weir_affine(float *y,       /* (rows, columns) */
                                       const float *x, /* (rows, columns) */
                                       const float *a, /* (columns) */
                                       const float *b, /* (columns) */
                                       uint64_t rows, uint64_t columns) {
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * columns; i += step)
        y[i] = a[i % columns] * x[i] + b[i % columns];
}
EXPORT_KERNEL(weir_affine);

/* Launch: any. dx[r][c] = a[c] dy[r][c] */
extern "C" __global__ void weir_affine_input_gradient(float *dx,       /* (rows, columns) */
                                                      const float *dy, /* (rows, columns) */
                                                      const float *a,  /* (columns) */
                                                      uint64_t rows, uint64_t columns) {
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * columns; i += step)
        dx[i] = a[i % columns] * dy[i];
}
EXPORT_KERNEL(weir_affine_input_gradient);

/* Launch: any, a column a thread at a time. da[c] += sum over r of dy x, db[c] += sum of dy: the
 * row sums are made first, then added to what is there. */
extern "C" __global__ void weir_affine_weight_gradient(float *da,       /* (columns), += */
                                                       float *db,       /* (columns), += */
                                                       const float *dy, /* (rows, columns) */
                                                       const float *x,  /* (rows, columns) */
                                                       uint64_t rows, uint64_t columns) {
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    for (uint64_t c = blockIdx.x * blockDim.x + threadIdx.x; c < columns; c += step) {
        float a = 0.0f, b = 0.0f;
        for (uint64_t r = 0; r < rows; r++) {
            a += dy[r * columns + c] * x[r * columns + c];
            b += dy[r * columns + c];
        }
        da[c] += a;
        db[c] += b;
    }
}
EXPORT_KERNEL(weir_affine_weight_gradient);

/* Launch: any. y[i] = x[i] + skip[i] */
extern "C" __global__ void weir_add(float *y,          /* (n) */
                                    const float *x,    /* (n) */
                                    const float *skip, /* (n) */
                                    uint64_t n) {
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        y[i] = x[i] + skip[i];
}
EXPORT_KERNEL(weir_add);

/* Launch: one thread. loss += sum of (y - target)^2 / n, dy[i] = 2 (y - target) / n */
extern "C" __global__ void weir_square_loss(double *loss,        /* (1), += */
                                            float *dy,           /* (n) */
                                            const float *y,      /* (n) */
                                            const float *target, /* (n) */
                                            uint64_t n, double whole) {
    double sum = 0.0;
    for (uint64_t i = 0; i < n; i++) {
        const double difference = static_cast<double>(y[i]) - static_cast<double>(target[i]);
        sum += difference * difference;
        dy[i] = static_cast<float>(2.0 * difference / whole);
    }
    *loss += sum / whole;
}
EXPORT_KERNEL(weir_square_loss);

/* Launch: one thread. square = sum of g[i]^2 */
extern "C" __global__ void weir_square_sum(double *square, /* (1) */
                                           const float *g, /* (n) */
                                           uint64_t n) {
    double sum = 0.0;
    for (uint64_t i = 0; i < n; i++) {
        const double value = static_cast<double>(g[i]);
        sum += value * value;
    }
    *square = sum;
}
EXPORT_KERNEL(weir_square_sum);

/* Launch: any. p[i] -= rate * (g[i] * scale), unless it was decided to leave them alone. */
extern "C" __global__ void weir_descend(float *p,       /* (n) */
                                        const float *g, /* (n) */
                                        const struct weir_verdict *verdict, float rate,
                                        uint64_t n) {
    if (verdict->applies == 0) return;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    const float scale = static_cast<float>(verdict->gradient_scale);
    for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        p[i] -= rate * (g[i] * scale);
}
EXPORT_KERNEL(weir_descend);
