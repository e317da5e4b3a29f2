/* SPDX-License-Identifier: MIT */
/* The table behind a real GPU. */
#include "net/cuda/cublaslt.h"
#include "net/cuda/cudnn.h"

const struct weir__cuda_numerics weir__cuda_libraries = {
    .products_open = weir__cublaslt_open,
    .products_close = weir__cublaslt_close,
    .matmul_new = weir__cublaslt_matmul_new,
    .matmul_destroy = weir__cublaslt_matmul_destroy,
    .matmul_run = weir__cublaslt_matmul_run,
    .convolutions_open = weir__cudnn_open,
    .convolutions_close = weir__cudnn_close,
    .convolution_new = weir__cudnn_convolution_new,
    .convolution_destroy = weir__cudnn_convolution_destroy,
    .convolution_next = weir__cudnn_convolution_next,
    .convolution_run = weir__cudnn_convolution_run,
    .convolution_tell = weir__cudnn_convolution_tell,
    .convolutions_keep = weir__cudnn_dropped_keep,
    .attention_new = weir__cudnn_attention_new,
    .attention_destroy = weir__cudnn_attention_destroy,
    .attention_next = weir__cudnn_attention_next,
    .attention_tell = weir__cudnn_attention_tell,
    .attention_run = weir__cudnn_attention_run,
};
