/* SPDX-License-Identifier: MIT */
/* The text grows at its end. Behind `told` it may still be cut: a stop string begins there or not
 * at all. */
#include "text/reply.h"

#include "text/utf8.h"

#include <assert.h>
#include <string.h>

int reply_init(const struct weir__io *io, const struct model_text *model, const char *const *stops,
               uint32_t stop_count, struct reply *reply) {
    *reply = (struct reply){.io = *io, .model = model, .stops = stops, .stop_count = stop_count};
    for (uint32_t i = 0; i < stop_count; i++) assert(stops[i][0] != '\0');
    return model == NULL ? WEIR_OK : text_decoder_new(model->tokenizer, true, &reply->decoder);
}

void reply_clean_up(struct reply *reply) {
    text_decoder_destroy(reply->decoder);
    weir__bytes_release(reply->io.allocator, &reply->text);
    *reply = (struct reply){0};
}

void reply_begin(struct reply *reply) {
    if (reply->decoder != NULL) text_decoder_go_on(reply->decoder);
    reply->text.count = reply->told = 0;
    reply->end = REPLY_GOES_ON;
}

/* Whether a stop string, or the beginning of one, stands at byte `at` of the text. */
static bool may_stop(const struct reply *reply, size_t at, bool *whole) {
    const struct weir__bytes *text = &reply->text;
    size_t left = text->count - at;
    bool found = false;
    *whole = false;
    for (uint32_t i = 0; i < reply->stop_count && !*whole; i++) {
        size_t length = strlen(reply->stops[i]);
        if (memcmp(text->data + at, reply->stops[i], left < length ? left : length) != 0) continue;
        found = true;
        *whole = left >= length;
    }
    return found;
}

/* A character that is not whole yet; the decoder gives whole ones. */
static bool may_go_on(const struct reply *reply, size_t at) {
    uint32_t point;
    if (reply->decoder != NULL) return false;
    utf8_next(reply->text.data + at, reply->text.count - at, &point);
    return point == UTF8_CUT;
}

/* What no stop string can cut off any more; all where nothing follows. */
static void tell(struct reply *reply, bool all, const char **text, size_t *bytes) {
    size_t at = reply->told;
    bool whole = false;
    while (at < reply->text.count && !(may_stop(reply, at, &whole) && (whole || !all)) &&
           (all || !may_go_on(reply, at)))
        at++;
    if (whole) {
        reply->text.count = at;
        reply->end = REPLY_STOP;
    }
    *text = reply->text.data == NULL ? "" : reply->text.data + reply->told;
    *bytes = at - reply->told;
    reply->told = at;
}

int reply_put(struct reply *reply, uint32_t token, const char **text, size_t *bytes) {
    const char byte = (char)token, *piece = &byte;
    size_t count = 1;
    int status = WEIR_OK;
    assert(reply->end == REPLY_GOES_ON);
    *text = "", *bytes = 0;
    if (reply->model != NULL && model_text_ends(reply->model, token)) {
        reply->end = REPLY_TOKEN;
        return WEIR_OK;
    }
    if (reply->decoder != NULL) status = text_decoder_put(reply->decoder, token, &piece, &count);
    if (status != WEIR_OK) return status == WEIR_ERR_NOT_FOUND ? WEIR_OK : status;
    if ((status = weir__bytes_append(&reply->io, &reply->text, piece, count)) != WEIR_OK)
        return status;
    tell(reply, false, text, bytes);
    return WEIR_OK;
}

int reply_finish(struct reply *reply, const char **text, size_t *bytes) {
    const char *rest = "";
    size_t count = 0;
    int status = WEIR_OK;
    *text = "", *bytes = 0;
    if (reply->end == REPLY_STOP) return WEIR_OK;
    if (reply->decoder != NULL) status = text_decoder_end(reply->decoder, &rest, &count);
    if (status != WEIR_OK) return status;
    if ((status = weir__bytes_append(&reply->io, &reply->text, rest, count)) != WEIR_OK)
        return status;
    tell(reply, true, text, bytes);
    return WEIR_OK;
}
