/* SPDX-License-Identifier: MIT */
/* Dropout's masks, made again from the counter as the kernels make them. */
#include "net/run/net.h"

static void fill_mask(const struct weir__dropout_site *dropout, uint64_t seed, uint64_t mini_batch,
                      int64_t rows, int64_t count, uint8_t *mask) {
    uint32_t words[4];
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t i = 0; i < count; i++) {
            int64_t e = i / dropout->pixels;
            if (e % 4 == 0)
                weir__philox_words(seed, mini_batch, dropout->random_op, (uint32_t)row,
                                   (uint32_t)(e / 4), words);
            mask[row * count + i] = (double)(words[e % 4] >> 8) * 0x1p-24 >= dropout->p;
        }
    }
}

int weir_net_masks(const struct weir_net *net, uint64_t mini_batch, int64_t rows,
                   weir_mask_fn *visit, void *context) {
    if (rows < 1) return WEIR_ERR_ARGUMENT;
    for (uint32_t d = 0; d < net->network.dropout_count; d++) {
        const struct weir__dropout_site *dropout = &net->network.dropouts[d];
        struct weir_tensor shape = dropout->tensor;
        shape.dtype = WEIR_U8;
        shape.differentiable = false;
        size_t bytes;
        int status = weir__tensor_bytes(&shape, rows, &bytes);
        if (status != WEIR_OK) return status;
        uint8_t *mask = weir__acquire(net->allocator, bytes, 1);
        if (mask == NULL) return WEIR_ERR_OUT_OF_MEMORY;
        fill_mask(dropout, net->seed, mini_batch, rows, (int64_t)bytes / rows, mask);
        status = visit(context, dropout->name, &shape, rows, mask);
        weir__release(net->allocator, mask, bytes, 1);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}
