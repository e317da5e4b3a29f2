/* SPDX-License-Identifier: MIT */
#include "cmd/export_gguf.h"

#include "cmd/gguf_text.h"

#include <math.h>
#include <string.h>

enum { VERSION = 3, ALIGNMENT = 32, QUANTIZATION = 2 };

/* By enum weir__stored: ggml's type of a tensor, llama.cpp's of a file. */
static const uint32_t tensor_types[] = {0, 1, 30, 8}, file_types[] = {0, 1, 32, 7};

struct gguf_writing {
    struct weir__io io;
    const struct export_gguf *gguf;
    struct weir_error damage; /* what went wrong in converting */
    struct weir__pool pool;
    struct gguf_keys keys, tensors;
    struct export_stream *streams;
    uint64_t *bytes;  /* of each stream */
    float *frequency; /* Llama 3.1's factors of each; NULL: none */
    uint64_t place;   /* in the data, of the next tensor */
    uint32_t narrow;
};

/* ---- the configuration ---- */

static const char *name_of(const struct weir_decoder_options *options) {
    return options->qk_norm ? "qwen3" : options->qkv_bias ? "qwen2" : "llama";
}

static int check(const struct gguf_writing *w) {
    const struct weir_decoder_options *o = w->gguf->options;
    bool llama = !o->qk_norm && !o->qkv_bias;
    const char *what = !llama && (o->bias || o->mlp_bias) ? "such biases"
                       : !llama && o->rope_original > 0   ? "a rope_type of llama3"
                                                          : NULL;
    if (what == NULL) return WEIR_OK;
    return weir__fail(w->io.error, WEIR_ERR_UNSUPPORTED,
                      "llama.cpp has no %s with %s: give --format hf, whose readers have it",
                      name_of(o), what);
}

/* llama.cpp has no windows for these: within one all tokens are seen anyway. */
static uint32_t context_of(const struct export_gguf *gguf) {
    uint32_t window = gguf->options->window;
    return window > 0 && window < gguf->context ? window : gguf->context;
}

static void put_rope(struct gguf_keys *keys, const struct weir_decoder_options *o) {
    gguf_put_u32(keys, "%.rope.dimension_count", o->head_size);
    gguf_put_f32(keys, "%.rope.freq_base", o->rope_theta);
    if (o->rope_original > 0 || o->rope_factor == 1) return;
    gguf_put_text(keys, "%.rope.scaling.type", "linear", 6);
    gguf_put_f32(keys, "%.rope.scaling.factor", o->rope_factor);
}

static void put_config(struct gguf_writing *w) {
    const struct weir_decoder_options *o = w->gguf->options;
    struct gguf_keys *keys = &w->keys;
    const char *model = w->gguf->model, *name = name_of(o);
    size_t end = strlen(model);
    while (end > 1 && model[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && model[begin - 1] != '/') begin--;
    keys->prefix = name;
    gguf_put_text(keys, "general.architecture", name, strlen(name));
    gguf_put_text(keys, "general.type", "model", 5);
    gguf_put_text(keys, "general.name", model + begin, end - begin);
    gguf_put_u32(keys, "general.file_type", file_types[w->gguf->type]);
    gguf_put_u32(keys, "general.quantization_version", QUANTIZATION);
    gguf_put_u32(keys, "%.block_count", o->layers);
    gguf_put_u32(keys, "%.context_length", context_of(w->gguf));
    gguf_put_u32(keys, "%.embedding_length", o->width);
    gguf_put_u32(keys, "%.feed_forward_length", o->inner);
    gguf_put_u32(keys, "%.attention.head_count", o->heads);
    gguf_put_u32(keys, "%.attention.head_count_kv", o->kv_heads);
    gguf_put_f32(keys, "%.attention.layer_norm_rms_epsilon", o->eps);
    gguf_put_u32(keys, "%.attention.key_length", o->head_size);
    gguf_put_u32(keys, "%.attention.value_length", o->head_size);
    gguf_put_u32(keys, "%.vocab_size", o->vocab);
    put_rope(keys, o);
}

/* ---- tensors ---- */

static uint64_t padded(uint64_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void add_tensor(struct gguf_writing *w, const char *name, uint32_t rank,
                       const int64_t *shape, enum weir__stored type, uint64_t bytes) {
    gguf_put_tensor(&w->tensors, name, rank, shape, tensor_types[type], w->place);
    w->tensors.count++;
    w->place += padded(bytes);
}

/* Divided by these, frequencies are those of Llama 3.1. */
static int make_frequencies(struct gguf_writing *w) {
    const struct weir_decoder_options *o = w->gguf->options;
    uint32_t count = o->head_size / 2;
    if (o->rope_original == 0) return WEIR_OK;
    w->frequency = weir__pool_take(&w->pool, count, sizeof *w->frequency);
    if (w->frequency == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        double turn = 2.0 * acos(-1.0) * pow(o->rope_theta, 2.0 * i / o->head_size);
        double turns = o->rope_original / turn; /* within the original length */
        double smooth = (turns - o->rope_low) / (o->rope_high - o->rope_low);
        if (smooth < 0) smooth = 0;
        if (smooth > 1) smooth = 1;
        w->frequency[i] = (float)(1.0 / ((1.0 - smooth) / o->rope_factor + smooth));
    }
    const int64_t shape[] = {count};
    add_tensor(w, "rope_freqs.weight", 1, shape, WEIR__STORED_F32, count * sizeof(float));
    return WEIR_OK;
}

static enum weir__stored type_of(struct gguf_writing *w,
                                 const struct weir__safetensors_item *item) {
    enum weir__stored type = item->rank < 2 ? WEIR__STORED_F32 : w->gguf->type;
    if (item->rank < 2 || item->shape[1] % weir__stored_block(type) == 0) return type;
    w->narrow++;
    return WEIR__STORED_F16;
}

static int make_tensors(struct gguf_writing *w) {
    const struct export_weights *weights = w->gguf->weights;
    bool turns = strcmp(name_of(w->gguf->options), "llama") == 0;
    struct export_room *room = export_room_new(&w->pool);
    w->streams = weir__pool_take(&w->pool, weights->count, sizeof *w->streams);
    w->bytes = weir__pool_take(&w->pool, weights->count, sizeof *w->bytes);
    if (w->pool.failed) return WEIR_ERR_OUT_OF_MEMORY;
    int status = make_frequencies(w);
    for (uint32_t i = 0; i < weights->count && status == WEIR_OK; i++) {
        const struct weir__safetensors_item *item = &weights->items[i];
        const struct decoder_tensor *tensor = &weights->tensors[i];
        enum weir__stored type = type_of(w, item);
        size_t numbers = 1;
        for (uint32_t k = 0; k < item->rank; k++) numbers *= (size_t)item->shape[k];
        w->streams[i] = (struct export_stream){.from = item,
                                               .type = type,
                                               .heads = turns ? tensor->heads : 0,
                                               .room = room,
                                               .error = &w->damage};
        w->bytes[i] = weir__stored_bytes(type, numbers);
        add_tensor(w, tensor->gguf, item->rank, item->shape, type, w->bytes[i]);
    }
    return status;
}

/* ---- the file ---- */

static void write_padding(struct weir__file *file, uint64_t bytes) {
    static const char zeros[ALIGNMENT];
    weir__file_write(file, zeros, (size_t)(padded(bytes) - bytes));
}

static void write_head(const struct gguf_writing *w, struct weir__file *file) {
    const uint32_t version = VERSION;
    const uint64_t counts[] = {w->tensors.count, w->keys.count};
    weir__file_write(file, "GGUF", 4);
    weir__file_write(file, &version, sizeof version);
    weir__file_write(file, counts, sizeof counts);
    weir__file_write(file, w->keys.bytes.data, w->keys.bytes.count);
    weir__file_write(file, w->tensors.bytes.data, w->tensors.bytes.count);
    write_padding(file, 4 + sizeof version + sizeof counts + w->keys.bytes.count +
                            w->tensors.bytes.count);
}

static int write_tensor(struct gguf_writing *w, uint32_t index, struct weir__file *file) {
    for (uint64_t offset = 0; offset < w->bytes[index];) {
        const void *data;
        size_t bytes;
        int status = export_stream_next(&w->streams[index], (size_t)offset, &data, &bytes);
        if (status != WEIR_OK) return status;
        weir__file_write(file, data, bytes);
        offset += bytes;
    }
    write_padding(file, w->bytes[index]);
    return file->status;
}

static int write_file(struct gguf_writing *w) {
    struct weir__file file;
    int status = weir__file_begin(&w->io, w->gguf->out, &file);
    if (status != WEIR_OK) return status;
    write_head(w, &file);
    if (w->frequency != NULL) {
        uint64_t bytes = w->gguf->options->head_size / 2 * sizeof *w->frequency;
        weir__file_write(&file, w->frequency, (size_t)bytes);
        write_padding(&file, bytes);
    }
    for (uint32_t i = 0; i < w->gguf->weights->count && status == WEIR_OK; i++)
        status = write_tensor(w, i, &file);
    if (status == WEIR_OK) return weir__file_commit(&file);
    weir__file_abort(&file);
    return status;
}

static int make(struct gguf_writing *w) {
    int status = check(w);
    if (status != WEIR_OK) return status;
    put_config(w);
    status = gguf_put_words(&w->keys, w->gguf->model, w->gguf->options->vocab);
    if (status != WEIR_OK) return status;
    if ((status = make_tensors(w)) != WEIR_OK) return status;
    if (w->keys.status != WEIR_OK) return w->keys.status;
    return w->tensors.status != WEIR_OK ? w->tensors.status : write_file(w);
}

int export_gguf_write(const struct weir__io *io, const struct export_gguf *gguf, uint32_t *narrow) {
    struct gguf_writing w = {.io = *io, .gguf = gguf};
    w.keys.io = w.tensors.io = &w.io;
    weir__pool_init(&w.pool, io->allocator);
    int status = make(&w);
    *narrow = w.narrow;
    /* why it could not be converted says more than that it could not be written */
    if (status != WEIR_OK && w.damage.status != WEIR_OK && io->error != NULL) *io->error = w.damage;
    gguf_keys_clean_up(&w.keys);
    gguf_keys_clean_up(&w.tensors);
    weir__pool_clean_up(&w.pool);
    return status;
}
