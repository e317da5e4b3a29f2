/* SPDX-License-Identifier: MIT */
/**
 * What a model goes on with, as text while it comes: tokens are decoded one by one, what may become
 * another character yet is held back, and so is what may become a stop string. The text ends at a
 * token that ends texts, or before the first stop string; neither is part of it.
 *
 * @code
 *   struct reply reply = {0};
 *   int status = reply_init(&io, &model_text, stops, 2, &reply);
 *   reply_begin(&reply);
 *   while (status == WEIR_OK && reply.end == REPLY_GOES_ON && draw(&token)) {
 *       status = reply_put(&reply, token, &text, &bytes);
 *       show(text, bytes);
 *   }
 *   if (status == WEIR_OK) status = reply_finish(&reply, &text, &bytes);
 *   reply_clean_up(&reply);
 * @endcode
 *
 * WEIR_ERR_OUT_OF_MEMORY is all that can fail. One thread.
 */
#ifndef WEIR_TEXT_REPLY_H
#define WEIR_TEXT_REPLY_H

#include "text/model_text.h"

enum reply_end {
    REPLY_GOES_ON,
    REPLY_TOKEN, /**< a token came that ends texts */
    REPLY_STOP   /**< a stop string came */
};

/** Zeroed, then initialised; cleaned up as a whole. */
struct reply {
    struct weir__io io;
    const struct model_text *model; /**< NULL: a token is a byte */
    struct text_decoder *decoder;   /**< NULL likewise */
    const char *const *stops;
    uint32_t stop_count;
    struct weir__bytes text; /**< so far; once it is finished, all of it */
    size_t told;             /**< bytes of it that were given out */
    enum reply_end end;
};

/** `model` and the stops, none of them empty, are borrowed until reply_clean_up. */
int reply_init(const struct weir__io *io, const struct model_text *model, const char *const *stops,
               uint32_t stop_count, struct reply *reply);
/** A new text that goes on from another one begins; the former is gone. */
void reply_begin(struct reply *reply);
/** Takes a token while the reply goes on. What has become certain, perhaps nothing, is `bytes`
 * bytes of `text`, until the next call. A number that is no token's is no text. */
int reply_put(struct reply *reply, uint32_t token, const char **text, size_t *bytes);
/** No more tokens come: what was held back is certain now. */
int reply_finish(struct reply *reply, const char **text, size_t *bytes);
/** Accepts a zeroed one. */
void reply_clean_up(struct reply *reply);

#endif
