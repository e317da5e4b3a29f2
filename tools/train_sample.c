/* SPDX-License-Identifier: MIT */
/* The sample at the end: bytes drawn one after the other from the model's own forward pass. Every
 * byte costs a whole context, which is fine for a few hundred; `generate` will keep keys and
 * values. */
#include "net_run.h"
#include "train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char prompt[] = "static int ";
static const double temperature = 0.8;

/* Draws from softmax(logits / temperature) by one number in [0, 1). */
static uint8_t draw(const double *logits, double uniform) {
    double weights[256], sum = 0.0, most = -HUGE_VAL;
    for (int b = 0; b < 256; b++) most = fmax(most, logits[b]);
    for (int b = 0; b < 256; b++) sum += weights[b] = exp((logits[b] - most) / temperature);
    double target = uniform * sum;
    int b = 0;
    while (b < 255 && target >= weights[b]) target -= weights[b++];
    return (uint8_t)b;
}

/* The model's logits after the last `length` bytes of `text`. */
static int logits_after(struct train *t, const uint8_t *text, size_t length, void *output,
                        double logits[256]) {
    size_t context = (size_t)t->input.shape[0];
    size_t used = length < context ? length : context;
    int64_t *inputs = t->inputs;
    for (size_t i = 0; i < context; i++) inputs[i] = i < used ? text[length - used + i] : 0;
    struct weir_net_batch batch = {
        .rows = 1, .input = t->inputs, .target = t->inputs, .output = output, .lr = -1.0};
    struct weir_step_result result;
    int status = weir_net_infer(t->net, &batch, &result);
    if (status != WEIR_OK) net_run_error(&result.error, t->error);
    size_t first = (used - 1) * (size_t)t->classes;
    for (size_t b = 0; status == WEIR_OK && b < 256; b++)
        logits[b] = t->options.dtype == WEIR_F64 ? ((const double *)output)[first + b]
                                                 : (double)((const float *)output)[first + b];
    return status;
}

/* What is not text would upset a terminal. */
static void print_byte(FILE *to, uint8_t byte) {
    bool plain = (byte >= 32 && byte < 127) || byte == '\n' || byte == '\t';
    fputc(plain ? byte : '?', to);
}

static int sample_bytes(struct train *t, uint8_t *text, size_t length, uint32_t count,
                        void *output) {
    for (uint32_t i = 0; i < count && !train_interrupted(); i++) {
        double logits[256];
        uint32_t words[4];
        int status = logits_after(t, text, length, output, logits);
        if (status != WEIR_OK) return status;
        weir__random_words(t->progress.seed, UINT32_MAX, 0, 0, i, words);
        text[length++] = draw(logits, (double)words[0] * 0x1p-32);
        print_byte(t->people.stream, text[length - 1]);
        fflush(t->people.stream);
    }
    fputc('\n', t->people.stream);
    return WEIR_OK;
}

int train_sample(struct train *t, uint32_t count) {
    size_t length = sizeof prompt - 1;
    uint8_t *text = malloc(length + count);
    void *output =
        malloc((size_t)t->input.shape[0] * (size_t)t->classes * weir_dtype_bytes(t->options.dtype));
    int status = WEIR_ERR_OUT_OF_MEMORY;
    if (text != NULL && output != NULL) {
        memcpy(text, prompt, length);
        fprintf(t->people.stream, "\nsample\n%s", prompt);
        status = sample_bytes(t, text, length, count, output);
    }
    free(text);
    free(output);
    return status;
}
