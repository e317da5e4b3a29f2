/* SPDX-License-Identifier: MIT */
/**
 * More of what weir_net.h has: batch norm, networks of images and of text that are built in,
 * adapters, and copies that are saved beside training.
 * Errors, threads and lives are weir_net.h's.
 */
#ifndef WEIR_MODELS_H
#define WEIR_MODELS_H

#include "weir_net.h"

#ifdef __cplusplus
extern "C" {
#endif

/** PyTorch's BatchNorm2d, but that the running numbers move once per update, by the mean and the
 * unbiased variance of all rows since the last one: torchgpipe's DeferredBatchNorm, with exact
 * sums, so that neither their order nor recomputing is in them. Without an optimizer
 * (WEIR_OPTIMIZER_NONE) there is no update, and they stay.
 *
 * Not deferred, they become by the update what PyTorch's would by one micro-batch after the other,
 * first to last, in whatever order these were done; num_batches_tracked counts micro-batches. A
 * step that accumulates mini-batches is refused with WEIR_ERR_UNSUPPORTED. */
struct weir_batch_norm_options {
    double eps;
    double momentum;          /**< of what is new, 0 to 1 */
    bool cumulative;          /**< instead: the mean over all updates (PyTorch's momentum=None) */
    bool affine;              /**< parameters "weight" and "bias" */
    bool track_running_stats; /**< false: inference takes its micro-batch's numbers, too */
    bool deferred;            /**< the numbers move by the whole mini-batch at once */
    bool zero_init;           /**< the weight begins as 0, not as 1 */
};
#define WEIR_BATCH_NORM_OPTIONS_INIT                                                               \
    { .eps = 1e-5, .momentum = 0.1, .affine = true, .track_running_stats = true, .deferred = true }
/** In training each micro-batch is normalised by its own mean and biased variance, in inference all
 * rows by the running ones. Makes the parameters `prefix`weight and `prefix`bias, and the
 * statistics `prefix`running_mean, `prefix`running_var and `prefix`num_batches_tracked, which are
 * saved, loaded and initialised under these names, but not learnt; in a frozen layer they stay.
 * `prefix` is "" or ends in a dot. A micro-batch with one number per channel fails its step with
 * WEIR_ERR_ROWS. */
struct weir_value *weir_batch_norm2d(struct weir_builder *builder, struct weir_value *x,
                                     const char *prefix,
                                     const struct weir_batch_norm_options *options);

/** torchgpipe's U-Net (B, C) = (num_convs, base_channels), trained as upstream's benchmark does
 * with binary cross-entropy on the logits. Odd sizes work: what was pooled away is padded again. */
struct weir_unet_options {
    uint32_t depth, num_convs, base_channels, in_channels, out_channels;
    uint32_t height, width; /**< of the images */
    double dropout;         /**< of whole channels, in each unit */
};
#define WEIR_UNET_OPTIONS_INIT                                                                     \
    {                                                                                              \
        .depth = 5, .num_convs = 5, .base_channels = 64, .in_channels = 3, .out_channels = 1,      \
        .height = 192, .width = 192, .dropout = 0.1                                                \
    }
/** The model is the caller's. WEIR_ERR_ARGUMENT: sizes out of range, images too small. */
int weir_model_unet(const struct weir_allocator *allocator, const struct weir_unet_options *options,
                    struct weir_faults *faults, struct weir_model **model);

/** ResNet-101 (He et al., 2015) as torchgpipe's benchmark flattens it: 370 layers, parameters named
 * as torchvision's, trained with cross-entropy. */
struct weir_resnet_options {
    uint32_t classes;
    uint32_t height, width; /**< of the images, of three channels */
    /** torchvision's (Goyal et al., 2017): the last batch norm of each block begins with weights of
     * 0, so that the blocks begin as identities. Small batches learn sooner by it. */
    bool zero_init_residual;
};
#define WEIR_RESNET_OPTIONS_INIT                                                                   \
    { .classes = 1000, .height = 224, .width = 224 }
/** The model is the caller's. WEIR_ERR_ARGUMENT: sizes out of range. */
int weir_model_resnet101(const struct weir_allocator *allocator,
                         const struct weir_resnet_options *options, struct weir_faults *faults,
                         struct weir_model **model);

/** AmoebaNet-D (L, D) = (layers, filters) (Real et al., 2018) as torchgpipe's benchmark has it:
 * layers + 6 layers, whose "max_pool_3x3" is a mean, trained with cross-entropy. */
struct weir_amoebanet_options {
    uint32_t layers;  /**< normal cells, a multiple of 3 */
    uint32_t filters; /**< a multiple of 16: the first cells have a quarter of them */
    uint32_t classes;
    uint32_t height, width; /**< of the images, of three channels */
};
#define WEIR_AMOEBANET_OPTIONS_INIT                                                                \
    { .layers = 18, .filters = 256, .classes = 1000, .height = 224, .width = 224 }
/** The model is the caller's. WEIR_ERR_ARGUMENT: sizes out of range, images too small. */
int weir_model_amoebanetd(const struct weir_allocator *allocator,
                          const struct weir_amoebanet_options *options, struct weir_faults *faults,
                          struct weir_model **model);

/** A decoder of text of Llama's family (Llama 2 and 3, SmolLM2, Mistral, Qwen 2.5 and 3), with the
 * parameter names and numbers of Hugging Face's transformers, trained with cross-entropy. Matrices
 * are drawn with a standard deviation of 0.02, the token embedding, too, as published models were.
 * The input is a row's tokens, i64 [context]; or, with `packed`, [2, context]: tokens of several
 * documents one after the other, then for each token the place in the row of its document's first
 * (on CPUs alone).
 * Each document is computed as in a row of its own. A net with sequences takes tokens one by one,
 * packed or not.
 */
struct weir_decoder_options {
    uint32_t layers, width, inner, heads, kv_heads, head_size, context, vocab;
    uint32_t window; /**< tokens that a token sees, its own the last; 0: all before it */
    double eps;      /**< of the norms */
    bool qkv_bias;   /**< queries, keys and values have biases: Qwen 2.5 */
    bool bias;       /**< so has attention's output: Llama's attention_bias */
    bool mlp_bias;
    bool qk_norm; /**< an RMSNorm of each head's queries and keys: Qwen 3 */
    bool tied;    /**< the head's weight is the token embedding */
    double rope_theta;
    double rope_factor; /**< by which positions are stretched; 1: not */
    double rope_low, rope_high;
    uint32_t rope_original; /**< > 0: stretched as Llama 3.1's: in full where a turn takes more than
                                 original / low tokens, not where less than original / high */
    bool packed;            /**< rows hold several documents */
};
#define WEIR_DECODER_OPTIONS_INIT                                                                  \
    { .eps = 1e-6, .rope_theta = 10000, .rope_factor = 1, .rope_low = 1, .rope_high = 4 }
/** The model is the caller's. WEIR_ERR_ARGUMENT: sizes of 0, or sizes that do not go together. */
int weir_model_decoder(const struct weir_allocator *allocator,
                       const struct weir_decoder_options *options, struct weir_faults *faults,
                       struct weir_model **model);

/** Adapters of low rank (LoRA, Hu et al., 2021): beside a product W x of the layers stands
 * scale * B (A dropout(x)), with A [rank, in] and B [out, rank], as the parameters
 * "….lora_A.weight" and "….lora_B.weight". A begins as PEFT has it, uniform within 1 / sqrt(in), B
 * as 0. */
struct weir_lora {
    uint32_t rank;
    double alpha;   /**< scale = alpha / rank */
    bool rslora;    /**< scale = alpha / sqrt(rank) */
    double dropout; /**< of what the adapters take, from 0 to below 1 */
    /** Patterns of the products' names (`*`, `?`), or of any end of a name after a point: "q_proj"
     * takes "model.layers.0.self_attn.q_proj". "all-linear" takes all but a model's head. */
    const char *const *targets;
    uint32_t target_count;
};
/** Gives the model adapters, and freezes all else; once. A pattern that takes no product is refused
 * when a net is made. Texts are copied. WEIR_ERR_ARGUMENT: a rank or an alpha of 0, a dropout out
 * of range, no targets, empty ones, or adapters given before. */
int weir_model_lora(struct weir_model *model, const struct weir_lora *lora);
/** What was given, the model's; NULL: no adapters. */
const struct weir_lora *weir_model_adapters(const struct weir_model *model);
/** Reads the adapters alone, under PEFT's names ("base_model.model.….lora_A.weight"), as
 * weir_net_load, which passes over their absence in a file of weights. */
int weir_net_load_adapters(struct weir_net *net, const char *path, struct weir_faults *faults);
/** Writes them so: PEFT's adapter_model.safetensors. Of a net of one process.
 * WEIR_ERR_UNSUPPORTED; WEIR_ERR_CONFIG: there are none. */
int weir_net_save_adapters(const struct weir_net *net, const char *path, struct weir_error *error);

/** A copy in the host's memory of all that a training checkpoint holds: taken between two steps, it
 * can be written while the next ones run. */
struct weir_net_copy;
/** The bytes of its numbers, of all ranks; 0 for a model that has faults, or without memory. */
uint64_t weir_net_copy_bytes(const struct weir_model *model,
                             const struct weir_net_options *options);
/** Memory for one, of what this rank has, which is touched; what is mapped needs none. The net must
 * outlive it. The caller's: weir_net_copy_destroy. Collective. WEIR_ERR_OUT_OF_MEMORY, or as a
 * device or the world fails. */
int weir_net_copy_new(const struct weir_net *net, struct weir_net_copy **copy);
/** Accepts NULL. */
void weir_net_copy_destroy(struct weir_net_copy *copy);
/** Copies the numbers as they are, with `progress` and its notes; between steps, and not while the
 * copy is being written. After a failure there is nothing to write. */
int weir_net_copy_take(struct weir_net_copy *copy, const struct weir_progress *progress,
                       struct weir_error *error);
/** Writes what was taken, as weir_net_save does; each rank its own, and none asks another. On any
 * thread, also during a step, if the net's allocator allows that. */
int weir_net_copy_save(const struct weir_net_copy *copy, const char *path,
                       struct weir_error *error);
/** Commits a folder, when all ranks are known to have written; a file needs none. On any thread. */
int weir_net_copy_commit(const struct weir_net_copy *copy, const char *path,
                         struct weir_error *error);

#ifdef __cplusplus
}
#endif
#endif
