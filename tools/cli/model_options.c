/* SPDX-License-Identifier: MIT */
/* One table of options, one function per built-in model. */
#include "cli/model_options.h"
#include "base/base.h"
#include "cli/adapter_config.h"
#include "cli/decoder_config.h"
#include "io/archive.h"
#include "weir_models.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define AT(member) offsetof(struct model_options, member)

static const char *const model_names[] = {"gpt",       "gpt2-124m",  "gpt2-350m",
                                          "gpt2-774m", "gpt2-1558m", "unet",
                                          "resnet101", "amoebanetd", NULL};

const struct arg_option model_option_list[] = {
    {"model", ARG_TEXT, AT(model),
     "gpt (of bytes), gpt2-124m, gpt2-350m, gpt2-774m, gpt2-1558m, unet, resnet101, amoebanetd, a "
     "file of layers that ends in .json, or a folder with a config.json, of Hugging Face's "
     "transformers",
     .value = "NAME|FILE|FOLDER", .fallback = "gpt", .choices = model_names},
    {"layers", ARG_U32, AT(layers),
     "gpt: transformer blocks; amoebanetd: normal cells, a multiple of 3, by default 18",
     .value = "N", .fallback = "4", .least = 1, .most = 250},
    {"width", ARG_U32, AT(width), "gpt: numbers per token", .value = "N", .fallback = "256",
     .least = 1, .most = 65536},
    {"heads", ARG_U32, AT(heads), "gpt: attention heads; they divide the width", .value = "N",
     .fallback = "8", .least = 1, .most = 65536},
    {"context", ARG_U32, AT(context),
     "gpt, decoders: length of a row; of a --model folder generate takes what its texts need, "
     "chat 4096",
     .value = "N", .fallback = "128", .unit = "tokens", .least = 1, .most = 1048576},
    {"vocab", ARG_U32, AT(vocab), "gpt: distinct tokens; 256 for bytes", .value = "N",
     .fallback = "256", .least = 2, .most = 16777216},
    {"tied", ARG_FLAG, AT(tied), "gpt: the head's weight is the token embedding"},
    {"untied", ARG_UNFLAG, AT(tied), "gpt: a head of its own"},
    {"dropout", ARG_REAL, AT(dropout),
     "gpt: on the embedding and each residual branch (default 0); unet: of channels "
     "(default 0.1)",
     .value = "P", .least = 0, .most = 0.999},
    {"residual-block", ARG_U32, AT(residual_block),
     "gpt: layers of a block, whose sums all later layers mix: block attention residuals",
     .value = "N", .least = 1, .most = 250},
    {"depth", ARG_U32, AT(depth), "unet: levels, each half as large as the one before",
     .value = "N", .fallback = "5", .least = 1, .most = 16},
    {"num-convs", ARG_U32, AT(num_convs), "unet: convolutions per level", .value = "B",
     .fallback = "5", .least = 1, .most = 4096},
    {"base-channels", ARG_U32, AT(base_channels),
     "unet: channels of the first level; they double from level to level", .value = "C",
     .fallback = "64", .least = 2, .most = 16384},
    {"in-channels", ARG_U32, AT(in_channels), "unet: channels of the images", .value = "N",
     .fallback = "3", .least = 1, .most = 1048576},
    {"out-channels", ARG_U32, AT(out_channels), "unet: channels of the masks", .value = "N",
     .fallback = "1", .least = 1, .most = 1048576},
    {"filters", ARG_U32, AT(filters), "amoebanetd: four times the channels of the first layer",
     .value = "D", .fallback = "256", .least = 8, .most = 16384},
    {"classes", ARG_U32, AT(classes), "resnet101, amoebanetd: what images are told apart by",
     .value = "N", .fallback = "1000", .least = 1, .most = 1048576},
    {"zero-init-residual", ARG_FLAG, AT(zero_init_residual),
     "resnet101: blocks begin as identities, by batch norms whose weights are 0"},
    {"image-size", ARG_TEXT, AT(image_size),
     "where there are no data to take it from; of unet by default 192, else 224", .value = "N|HxW",
     .unit = "pixels"},
    {"freeze", ARG_LIST, AT(freeze),
     "parameters that do not learn: names with * and ?, such as 'h.0.*'", .value = "PATTERN,..."},
    {"adapter", ARG_TEXT, AT(adapter),
     "adapters (LoRA) beside the model's weights: a folder with an adapter_config.json, of Hugging "
     "Face's PEFT or of train --save-adapter; they alone learn",
     .value = "FOLDER"},
    {"lora-rank", ARG_U32, AT(lora_rank),
     "new adapters of this rank beside the products; they alone learn", .value = "R", .least = 1,
     .most = 65536},
    {"lora-alpha", ARG_REAL, AT(lora_alpha),
     "times alpha / rank counts what they give (default twice the rank)", .value = "X", .least = 0},
    {"lora-dropout", ARG_REAL, AT(lora_dropout), "of what they take (default 0)", .value = "P",
     .least = 0, .most = 0.999},
    {"lora-targets", ARG_LIST, AT(lora_targets),
     "beside which products: names with * and ?, or their ends, such as 'q_proj,v_proj'; "
     "all-linear: all but the head",
     .value = "PATTERN,...", .fallback = "all-linear"},
    {"rslora", ARG_FLAG, AT(rslora), "it counts times alpha / root of the rank"},
};
const uint32_t model_option_count = sizeof model_option_list / sizeof model_option_list[0];

/* ---- which options belong to which model ---- */

/** Bits of the models that take an option. */
enum { GPT = 1, UNET = 2, FILE_MODEL = 4, RESNET = 8, AMOEBANET = 16, DECODER = 32 };

static const struct {
    const char *option;
    unsigned models;
} takers[] = {
    {"layers", GPT | AMOEBANET},
    {"width", GPT},
    {"heads", GPT},
    {"context", GPT | DECODER},
    {"vocab", GPT},
    {"tied", GPT},
    {"untied", GPT},
    {"dropout", GPT | UNET},
    {"residual-block", GPT},
    {"depth", UNET},
    {"num-convs", UNET},
    {"base-channels", UNET},
    {"in-channels", UNET},
    {"out-channels", UNET},
    {"filters", AMOEBANET},
    {"classes", RESNET | AMOEBANET},
    {"image-size", UNET | RESNET | AMOEBANET},
    {"zero-init-residual", RESNET},
};

static int check_given(const struct model_options *options, const struct args *args, unsigned model,
                       struct weir_faults *faults) {
    int status = WEIR_OK;
    for (size_t i = 0; i < sizeof takers / sizeof takers[0]; i++) {
        if ((takers[i].models & model) != 0 || !args_given(args, takers[i].option)) continue;
        weir_faults_add(faults, "--%s means nothing to --model %s: leave it away", takers[i].option,
                        options->model);
        status = WEIR_ERR_ARGUMENT;
    }
    if (args_given(args, "tied") && args_given(args, "untied")) {
        weir_faults_add(faults, "--tied and --untied: give one of them");
        status = WEIR_ERR_ARGUMENT;
    }
    return status;
}

/* ---- models ---- */

/** GPT-2 as published, of context 1024, 50257 tokens and a tied head. */
static const struct {
    const char *name;
    uint32_t layers, heads, width;
} gpt2_sizes[] = {{"gpt2-124m", 12, 12, 768},
                  {"gpt2-350m", 24, 16, 1024},
                  {"gpt2-774m", 36, 20, 1280},
                  {"gpt2-1558m", 48, 25, 1600}};

/** The sizes of a published GPT-2 for options that were not given. */
static void take_gpt2(const struct model_options *options, const struct args *args,
                      struct weir_gpt_options *gpt) {
    for (size_t i = 0; i < sizeof gpt2_sizes / sizeof gpt2_sizes[0]; i++) {
        if (strcmp(options->model, gpt2_sizes[i].name) != 0) continue;
        if (!args_given(args, "layers")) gpt->layers = gpt2_sizes[i].layers;
        if (!args_given(args, "heads")) gpt->heads = gpt2_sizes[i].heads;
        if (!args_given(args, "width")) gpt->width = gpt2_sizes[i].width;
        if (!args_given(args, "context")) gpt->context = 1024;
        if (!args_given(args, "vocab")) gpt->vocab = 50257;
        gpt->tied = !args_given(args, "untied");
    }
}

static int build_gpt(const struct model_options *options, const struct args *args,
                     const struct model_data *data, struct weir_faults *faults,
                     struct weir_model **model) {
    (void)data;
    struct weir_gpt_options gpt = {.layers = options->layers,
                                   .width = options->width,
                                   .heads = options->heads,
                                   .context = options->context,
                                   .vocab = options->vocab,
                                   .tied = options->tied,
                                   .residual_block = options->residual_block};
    take_gpt2(options, args, &gpt);
    if (args_given(args, "dropout")) gpt.dropout = options->dropout;
    return weir_model_gpt(NULL, &gpt, faults, model);
}

/** "96" or "96x128" (height x width). */
static bool parse_image_size(const char *text, uint32_t size[2]) {
    char *end;
    if (text[0] < '0' || text[0] > '9') return false;
    unsigned long height = strtoul(text, &end, 10), width = height;
    if (*end == 'x' && end[1] >= '0' && end[1] <= '9') width = strtoul(end + 1, &end, 10);
    if (*end != '\0' || height < 1 || width < 1 || height > 1u << 20 || width > 1u << 20)
        return false;
    size[0] = (uint32_t)height;
    size[1] = (uint32_t)width;
    return true;
}

static bool is_image(const struct weir_tensor *tensor) {
    return tensor != NULL && tensor->rank == 3;
}

/** What the data say and an option denies. */
static void check_against_data(const struct args *args, const char *option, uint32_t value,
                               int64_t of_data, struct weir_faults *faults) {
    if (args_given(args, option) && (int64_t)value != of_data)
        weir_faults_add(faults, "--%s is %u, but the data have %lld: leave the option away", option,
                        value, (long long)of_data);
}

/** Height and width: the option's, the data's where there are any, else as they are. */
static int find_image_size(const struct model_options *options, const struct args *args,
                           const struct model_data *data, struct weir_faults *faults,
                           uint32_t size[2]) {
    bool given = options->image_size != NULL;
    if (given && !parse_image_size(options->image_size, size)) {
        weir_faults_add(faults,
                        "--image-size %.40s: not a size: write it like 192, or HEIGHTxWIDTH like "
                        "96x128, up to 1048576",
                        options->image_size);
        return WEIR_ERR_ARGUMENT;
    }
    if (data == NULL || !is_image(data->input)) return WEIR_OK;
    const int64_t *shape = data->input->shape;
    if (given && (size[0] != (uint64_t)shape[1] || size[1] != (uint64_t)shape[2]))
        weir_faults_add(faults,
                        "--image-size is %ux%u, but the data are %lldx%lld: leave the "
                        "option away",
                        size[0], size[1], (long long)shape[1], (long long)shape[2]);
    size[0] = (uint32_t)shape[1];
    size[1] = (uint32_t)shape[2];
    return WEIR_OK;
}

static int build_unet(const struct model_options *options, const struct args *args,
                      const struct model_data *data, struct weir_faults *faults,
                      struct weir_model **model) {
    struct weir_unet_options unet = WEIR_UNET_OPTIONS_INIT;
    uint32_t size[] = {unet.height, unet.width};
    unet.depth = options->depth;
    unet.num_convs = options->num_convs;
    unet.base_channels = options->base_channels;
    unet.in_channels = options->in_channels;
    unet.out_channels = options->out_channels;
    if (args_given(args, "dropout")) unet.dropout = options->dropout;
    int status = find_image_size(options, args, data, faults, size);
    if (status != WEIR_OK) return status;
    unet.height = size[0];
    unet.width = size[1];
    if (data != NULL && is_image(data->input)) {
        int64_t channels = data->input->shape[0];
        check_against_data(args, "in-channels", unet.in_channels, channels, faults);
        unet.in_channels = (uint32_t)channels;
    }
    if (data != NULL && is_image(data->target)) {
        check_against_data(args, "out-channels", unet.out_channels, data->target->shape[0], faults);
        unet.out_channels = (uint32_t)data->target->shape[0];
    }
    return weir_model_unet(NULL, &unet, faults, model);
}

static int build_resnet(const struct model_options *options, const struct args *args,
                        const struct model_data *data, struct weir_faults *faults,
                        struct weir_model **model) {
    struct weir_resnet_options resnet = WEIR_RESNET_OPTIONS_INIT;
    uint32_t size[] = {resnet.height, resnet.width};
    int status = find_image_size(options, args, data, faults, size);
    if (status != WEIR_OK) return status;
    resnet.classes = options->classes;
    resnet.height = size[0];
    resnet.width = size[1];
    resnet.zero_init_residual = options->zero_init_residual;
    return weir_model_resnet101(NULL, &resnet, faults, model);
}

static int build_amoebanet(const struct model_options *options, const struct args *args,
                           const struct model_data *data, struct weir_faults *faults,
                           struct weir_model **model) {
    struct weir_amoebanet_options amoebanet = WEIR_AMOEBANET_OPTIONS_INIT;
    uint32_t size[] = {amoebanet.height, amoebanet.width};
    int status = find_image_size(options, args, data, faults, size);
    if (status != WEIR_OK) return status;
    if (args_given(args, "layers")) amoebanet.layers = options->layers;
    amoebanet.filters = options->filters;
    amoebanet.classes = options->classes;
    amoebanet.height = size[0];
    amoebanet.width = size[1];
    return weir_model_amoebanetd(NULL, &amoebanet, faults, model);
}

static int build_file(const struct model_options *options, const struct args *args,
                      const struct model_data *data, struct weir_faults *faults,
                      struct weir_model **model) {
    (void)args, (void)data;
    return weir_model_read(NULL, options->model, faults, model);
}

/** Rows of --context tokens, unless that is more than the model was made for. */
static int build_decoder(const struct model_options *options, const struct args *args,
                         const struct model_data *data, struct weir_faults *faults,
                         struct weir_model **model) {
    uint32_t most;
    struct weir_decoder_options decoder;
    int status = decoder_config_read(options->model, &decoder, &most, faults);
    if (status != WEIR_OK) return status;
    decoder.packed = data != NULL && data->packed;
    decoder.context = options->context;
    if (decoder.context > most && !args_given(args, "context")) decoder.context = most;
    if (decoder.context > most) {
        weir_faults_add(faults,
                        "--context %u, but %s was made for at most %u tokens: give up to "
                        "%u",
                        decoder.context, options->model, most, most);
        return WEIR_ERR_ARGUMENT;
    }
    return weir_model_decoder(NULL, &decoder, faults, model);
}

/* ---- adapters ---- */

static int check_lora(const struct model_options *options, const struct args *args,
                      struct weir_faults *faults) {
    static const char *const own[] = {"lora-rank", "lora-alpha", "lora-dropout", "lora-targets",
                                      "rslora"};
    uint32_t before = faults->count;
    for (size_t i = 0; i < WEIR__COUNT_OF(own); i++) {
        if (!args_given(args, own[i])) continue;
        if (options->adapter != NULL)
            weir_faults_add(faults, "--%s: the --adapter says it: leave one of them away", own[i]);
        else if (options->lora_rank == 0)
            weir_faults_add(faults, "--%s goes with --lora-rank: give both", own[i]);
    }
    if (args_given(args, "lora-alpha") && !(options->lora_alpha > 0))
        weir_faults_add(faults, "--lora-alpha is 0, and nothing would be added: give more");
    return faults->count > before ? WEIR_ERR_ARGUMENT : WEIR_OK;
}

static int add_given(const struct model_options *options, struct weir_model *model,
                     struct weir_faults *faults) {
    struct adapter_config config = {0};
    int status = adapter_config_read(options->adapter, &config, faults);
    if (status != WEIR_OK) goto out;
    status = weir_model_lora(model, &config.lora);
    if (status == WEIR_ERR_ARGUMENT)
        weir_faults_add(faults, "--adapter %s: the model file has adapters already: leave it away",
                        options->adapter);
out:
    adapter_config_clean_up(&config);
    return status;
}

static int add_new(const struct model_options *options, const struct args *args,
                   struct weir_model *model, struct weir_faults *faults) {
    const char *targets[ARG_LIST_MAX];
    struct weir_lora lora = {.rank = options->lora_rank,
                             .alpha = 2.0 * options->lora_rank,
                             .rslora = options->rslora,
                             .targets = targets,
                             .target_count = options->lora_targets.count};
    if (args_given(args, "lora-alpha")) lora.alpha = options->lora_alpha;
    if (args_given(args, "lora-dropout")) lora.dropout = options->lora_dropout;
    for (uint32_t i = 0; i < lora.target_count; i++)
        targets[i] = arg_texts_get(&options->lora_targets, i);
    int status = weir_model_lora(model, &lora);
    if (status == WEIR_ERR_ARGUMENT)
        weir_faults_add(faults, "--lora-rank: the model file has adapters already: leave it away");
    return status;
}

static int add_adapters(const struct model_options *options, const struct args *args,
                        struct weir_model *model, struct weir_faults *faults) {
    int status = check_lora(options, args, faults);
    if (status != WEIR_OK) return status;
    if (options->adapter != NULL) return add_given(options, model, faults);
    return options->lora_rank > 0 ? add_new(options, args, model, faults) : WEIR_OK;
}

static bool adapts(const struct model_options *options) {
    return options->adapter != NULL || options->lora_rank > 0;
}

int model_options_load_adapter(const struct model_options *options, struct weir_net *net,
                               struct weir_faults *faults) {
    return options->adapter != NULL ? adapter_load(net, options->adapter, faults) : WEIR_OK;
}

/** What builds --model, and its bit. */
struct model_kind {
    const char *name;
    unsigned bit;
    int (*build)(const struct model_options *options, const struct args *args,
                 const struct model_data *data, struct weir_faults *faults,
                 struct weir_model **model);
};
static const struct model_kind kinds[] = {{"gpt", GPT, build_gpt},
                                          {"gpt2-124m", GPT, build_gpt},
                                          {"gpt2-350m", GPT, build_gpt},
                                          {"gpt2-774m", GPT, build_gpt},
                                          {"gpt2-1558m", GPT, build_gpt},
                                          {"unet", UNET, build_unet},
                                          {"resnet101", RESNET, build_resnet},
                                          {"amoebanetd", AMOEBANET, build_amoebanet}};
static const struct model_kind file_kind = {"", FILE_MODEL, build_file};
static const struct model_kind decoder_kind = {"", DECODER, build_decoder};

/** NULL: there is none of that name. */
static const struct model_kind *find_kind(const char *name) {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(name, kinds[i].name) == 0) return &kinds[i];
    if (decoder_config_is(name)) return &decoder_kind;
    return strchr(name, '/') != NULL || weir__text_ends(name, ".json") ? &file_kind : NULL;
}

bool model_options_is_folder(const struct model_options *options) {
    return find_kind(options->model) == &decoder_kind;
}

const char *model_options_weights(const struct model_options *options) {
    struct weir__io io = {.error = NULL};
    if (!model_options_is_folder(options)) return NULL;
    bool has = adapts(options) || weir__archive_has_weights(&io, options->model);
    return has ? options->model : NULL;
}

bool model_options_is_file(const struct model_options *options) {
    return find_kind(options->model) == &file_kind;
}

static int build(const struct model_options *options, const struct args *args,
                 const struct model_data *data, struct weir_faults *faults,
                 struct weir_model **model) {
    const struct model_kind *kind = find_kind(options->model);
    if (kind == NULL) {
        const char *near = weir__nearest(options->model, model_names);
        weir_faults_add(faults,
                        "--model %.80s is not known%s%s%s: choose gpt, gpt2-124m, gpt2-350m, "
                        "gpt2-774m, gpt2-1558m, unet, resnet101 or amoebanetd, or name a file that "
                        "ends in .json or a folder with a config.json",
                        options->model, near != NULL ? " (did you mean " : "",
                        near != NULL ? near : "", near != NULL ? "?)" : "");
        return WEIR_ERR_ARGUMENT;
    }
    int status = check_given(options, args, kind->bit, faults);
    int built = kind->build(options, args, data, faults, model);
    if (built == WEIR_OK && status != WEIR_OK) {
        weir_model_destroy(*model);
        *model = NULL;
    }
    return built != WEIR_OK ? built : status;
}

static int add_freezes(const struct model_options *options, struct weir_model *model) {
    for (uint32_t i = 0; i < options->freeze.count; i++) {
        const char *pattern = arg_texts_get(&options->freeze, i);
        assert(pattern[0] != '\0'); /* a list has no empty items */
        int status = weir_model_freeze(model, pattern);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

int model_options_build(const struct model_options *options, const struct args *args,
                        const struct model_data *data, struct weir_faults *faults,
                        struct weir_model **model) {
    int status = build(options, args, data, faults, model);
    if (status != WEIR_OK) goto fail;
    if ((status = add_freezes(options, *model)) != WEIR_OK) goto fail;
    if ((status = add_adapters(options, args, *model, faults)) != WEIR_OK) goto fail;
    return WEIR_OK;
fail:
    weir_model_destroy(*model);
    *model = NULL;
    return status;
}
