/* SPDX-License-Identifier: MIT */
/**
 * Every CUDA kernel of networks by name: X(name); its symbol in the module is weir_<name>, its file
 * kernels/net/<...>.cu. One list for each file of launchers. A kernel that exists for several
 * dtypes ends in that of what it stores: _f32, _bf16.
 */
#ifndef WEIR_NET_CUDA_KERNEL_MAP_H
#define WEIR_NET_CUDA_KERNEL_MAP_H

/** pointwise.c */
#define WEIR__NET_KERNEL_POINTWISE_MAP(X)                                                          \
    X(gelu_f32)                                                                                    \
    X(gelu_bf16)                                                                                   \
    X(gelu_grad_f32)                                                                               \
    X(gelu_grad_bf16)                                                                              \
    X(each_f32)                                                                                    \
    X(each_bf16)                                                                                   \
    X(each_pair_f32)                                                                               \
    X(each_pair_bf16)                                                                              \
    X(swiglu_grad_f32)                                                                             \
    X(swiglu_grad_bf16)                                                                            \
    X(dropout_f32)                                                                                 \
    X(dropout_bf16)                                                                                \
    X(dropout2d_f32)                                                                               \
    X(dropout2d_bf16)                                                                              \
    X(bias_gelu_f32)                                                                               \
    X(bias_gelu_bf16)                                                                              \
    X(bias_gelu_grad_f32)                                                                          \
    X(bias_gelu_grad_bf16)                                                                         \
    X(bias_dropout_add_f32)                                                                        \
    X(bias_dropout_add_bf16)                                                                       \
    X(softmax_warp_f32)                                                                            \
    X(softmax_warp_bf16)                                                                           \
    X(softmax_block_f32)                                                                           \
    X(softmax_block_bf16)                                                                          \
    X(softmax_grad_warp_f32)                                                                       \
    X(softmax_grad_warp_bf16)                                                                      \
    X(softmax_grad_block_f32)                                                                      \
    X(softmax_grad_block_bf16)                                                                     \
    X(bias_grad_f32)                                                                               \
    X(bias_grad_bf16)

/** image.c */
#define WEIR__NET_KERNEL_IMAGE_MAP(X)                                                              \
    X(max_pool2d_f32)                                                                              \
    X(max_pool2d_bf16)                                                                             \
    X(max_pool2d_grad_f32)                                                                         \
    X(max_pool2d_grad_bf16)                                                                        \
    X(max_pool2d_winners_f32)                                                                      \
    X(max_pool2d_winners_bf16)                                                                     \
    X(max_pool2d_gather_f32)                                                                       \
    X(max_pool2d_gather_bf16)                                                                      \
    X(avg_pool2d_f32)                                                                              \
    X(avg_pool2d_bf16)                                                                             \
    X(avg_pool2d_grad_f32)                                                                         \
    X(avg_pool2d_grad_bf16)                                                                        \
    X(upsample_grad_f32)                                                                           \
    X(upsample_grad_bf16)                                                                          \
    X(upsample)                                                                                    \
    X(concat)                                                                                      \
    X(concat_grad_a)

/** norm.c, image_norm.c */
#define WEIR__NET_KERNEL_NORM_MAP(X)                                                               \
    X(layer_norm_warp_f32)                                                                         \
    X(layer_norm_warp_bf16)                                                                        \
    X(layer_norm_block_f32)                                                                        \
    X(layer_norm_block_bf16)                                                                       \
    X(add_layer_norm_warp_f32)                                                                     \
    X(add_layer_norm_warp_bf16)                                                                    \
    X(add_layer_norm_block_f32)                                                                    \
    X(add_layer_norm_block_bf16)                                                                   \
    X(layer_norm_grad_warp_f32)                                                                    \
    X(layer_norm_grad_warp_bf16)                                                                   \
    X(layer_norm_grad_block_f32)                                                                   \
    X(layer_norm_grad_block_bf16)                                                                  \
    X(add_layer_norm_grad_warp_f32)                                                                \
    X(add_layer_norm_grad_warp_bf16)                                                               \
    X(add_layer_norm_grad_block_f32)                                                               \
    X(add_layer_norm_grad_block_bf16)                                                              \
    X(rms_norm_warp_f32)                                                                           \
    X(rms_norm_warp_bf16)                                                                          \
    X(rms_norm_block_f32)                                                                          \
    X(rms_norm_block_bf16)                                                                         \
    X(rms_norm_grad_warp_f32)                                                                      \
    X(rms_norm_grad_warp_bf16)                                                                     \
    X(rms_norm_grad_block_f32)                                                                     \
    X(rms_norm_grad_block_bf16)                                                                    \
    X(layer_norm_weight_f32)                                                                       \
    X(layer_norm_weight_bf16)                                                                      \
    X(rms_norm_weight_f32)                                                                         \
    X(rms_norm_weight_bf16)                                                                        \
    X(residual_mix_warp_f32)                                                                       \
    X(residual_mix_warp_bf16)                                                                      \
    X(residual_mix_block_f32)                                                                      \
    X(residual_mix_block_bf16)                                                                     \
    X(residual_mix_grad_warp_f32)                                                                  \
    X(residual_mix_grad_warp_bf16)                                                                 \
    X(residual_mix_grad_block_f32)                                                                 \
    X(residual_mix_grad_block_bf16)                                                                \
    X(residual_mix_weight)                                                                         \
    X(fold)                                                                                        \
    X(instance_moments)                                                                            \
    X(instance_means)                                                                              \
    X(instance_weights)                                                                            \
    X(instance_sums_f32)                                                                           \
    X(instance_sums_bf16)                                                                          \
    X(instance_grad_sums_f32)                                                                      \
    X(instance_grad_sums_bf16)                                                                     \
    X(instance_apply_f32)                                                                          \
    X(instance_apply_bf16)                                                                         \
    X(instance_grad_f32)                                                                           \
    X(instance_grad_bf16)                                                                          \
    X(batch_moments)                                                                               \
    X(batch_scale)                                                                                 \
    X(batch_sums)                                                                                  \
    X(batch_deliver)                                                                               \
    X(batch_statistics)                                                                            \
    X(batch_move)

/** table.c: rows of tables, losses */
#define WEIR__NET_KERNEL_TABLE_MAP(X)                                                              \
    X(embedding_f32)                                                                               \
    X(embedding_bf16)                                                                              \
    X(embedding_clear)                                                                             \
    X(embedding_link)                                                                              \
    X(embedding_rows_f32)                                                                          \
    X(embedding_rows_bf16)                                                                         \
    X(position_add_f32)                                                                            \
    X(position_add_bf16)                                                                           \
    X(position_grad_f32)                                                                           \
    X(position_grad_bf16)                                                                          \
    X(cross_entropy_warp_f32)                                                                      \
    X(cross_entropy_warp_bf16)                                                                     \
    X(cross_entropy_block_f32)                                                                     \
    X(cross_entropy_block_bf16)                                                                    \
    X(cross_entropy_grad_warp_f32)                                                                 \
    X(cross_entropy_grad_warp_bf16)                                                                \
    X(cross_entropy_grad_block_f32)                                                                \
    X(cross_entropy_grad_block_bf16)                                                               \
    X(mse_f32)                                                                                     \
    X(mse_bf16)                                                                                    \
    X(mse_grad_f32)                                                                                \
    X(mse_grad_bf16)                                                                               \
    X(bce_f32)                                                                                     \
    X(bce_bf16)                                                                                    \
    X(bce_grad_f32)                                                                                \
    X(bce_grad_bf16)                                                                               \
    X(loss)

/** flat.c */
#define WEIR__NET_KERNEL_FLAT_MAP(X)                                                               \
    X(square_parts)                                                                                \
    X(square_fold)                                                                                 \
    X(accumulate)                                                                                  \
    X(adamw)                                                                                       \
    X(sgd)

/** attention.c */
#define WEIR__NET_KERNEL_ATTENTION_MAP(X)                                                          \
    X(attention_64_f32)                                                                            \
    X(attention_128_f32)                                                                           \
    X(attention_256_f32)                                                                           \
    X(attention_64_bf16)                                                                           \
    X(attention_128_bf16)                                                                          \
    X(attention_256_bf16)                                                                          \
    X(attention_grad_q_64_f32)                                                                     \
    X(attention_grad_q_128_f32)                                                                    \
    X(attention_grad_q_256_f32)                                                                    \
    X(attention_grad_q_64_bf16)                                                                    \
    X(attention_grad_q_128_bf16)                                                                   \
    X(attention_grad_q_256_bf16)                                                                   \
    X(attention_grad_kv_64_f32)                                                                    \
    X(attention_grad_kv_128_f32)                                                                   \
    X(attention_grad_kv_256_f32)                                                                   \
    X(attention_grad_kv_64_bf16)                                                                   \
    X(attention_grad_kv_128_bf16)                                                                  \
    X(attention_grad_kv_256_bf16)                                                                  \
    X(attention_tensor_64_bf16)                                                                    \
    X(attention_tensor_128_bf16)                                                                   \
    X(attention_grad_q_tensor_64_bf16)                                                             \
    X(attention_grad_q_tensor_128_bf16)                                                            \
    X(attention_grad_kv_tensor_64_bf16)                                                            \
    X(attention_grad_kv_tensor_128_bf16)                                                           \
    X(attention_keep_f32)                                                                          \
    X(attention_keep_bf16)                                                                         \
    X(attention_cached_f32)                                                                        \
    X(attention_cached_bf16)                                                                       \
    X(attention_join_f32)                                                                          \
    X(attention_join_bf16)                                                                         \
    X(position_cached_f32)                                                                         \
    X(position_cached_bf16)                                                                        \
    X(rope_f32)                                                                                    \
    X(rope_bf16)                                                                                   \
    X(rope_cached_f32)                                                                             \
    X(rope_cached_bf16)

/** product.c */
#define WEIR__NET_KERNEL_PRODUCT_MAP(X)                                                            \
    X(weight_pack_f32)                                                                             \
    X(weight_pack_bf16)                                                                            \
    X(weight_deliver_f32)                                                                          \
    X(weight_deliver_bf16)                                                                         \
    X(bias_add_f32)                                                                                \
    X(bias_add_bf16)

#define WEIR__NET_KERNEL_MAP(X)                                                                    \
    WEIR__NET_KERNEL_POINTWISE_MAP(X)                                                              \
    WEIR__NET_KERNEL_IMAGE_MAP(X)                                                                  \
    WEIR__NET_KERNEL_NORM_MAP(X)                                                                   \
    WEIR__NET_KERNEL_TABLE_MAP(X)                                                                  \
    WEIR__NET_KERNEL_FLAT_MAP(X)                                                                   \
    WEIR__NET_KERNEL_ATTENTION_MAP(X)                                                              \
    WEIR__NET_KERNEL_PRODUCT_MAP(X)

#endif
