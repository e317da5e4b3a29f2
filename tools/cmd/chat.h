/* SPDX-License-Identifier: MIT */
/**
 * `weir chat`, in parts: the options and the order of things (cmd_chat.c), the conversation
 * (chat.c), and what comes from stdin (chat_input.c).
 *
 * A conversation is a list of messages. For each reply all of it is encoded by the chat template;
 * as far as its tokens are those whose keys and values are kept, from the reply before, they are
 * not read again.
 */
#ifndef WEIR_TOOLS_CHAT_H
#define WEIR_TOOLS_CHAT_H

#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/pipe_options.h"
#include "cmd/generator.h"
#include "cmd/sampling_options.h"
#include "text/reply.h"

struct chat_values {
    struct model_options model;
    struct pipe_options pipe;
    struct sampling_options sampling;
    const char *load, *system, *json;
    uint32_t form;   /**< of model_text_templates */
    uint32_t tokens; /**< of a reply, at most; 0: what the context has room for */
};

/** Lines of stdin. Zeroed; then cleaned up. */
struct chat_input {
    struct weir__bytes held; /**< read, but not given yet */
    struct weir__bytes message;
    bool ended;
};

/** A run. Zeroed, then cleaned up as a whole. */
struct chat {
    struct chat_values *values;
    const struct args *args;
    struct weir_faults *faults;
    struct weir_error *error;
    struct weir__io io;
    struct people people;
    struct output json;
    struct chat_input input;
    struct weir_model *model;
    struct pipe_storage storage;
    struct weir_net_options options;
    struct generator generator;
    struct generator_times times;
    struct model_text text;
    struct text_encoder *encoder;
    struct reply reply;

    struct chat_message *messages; /**< each text is owned */
    size_t count, capacity;
    struct chat_tokens tokens; /**< of the messages, with the beginning of a reply */
    uint32_t *kept;            /**< [context + 1]: tokens … */
    uint32_t kept_count;       /**< … so many of which have their keys and values */

    uint32_t replies; /**< that have been made */
    uint64_t drawn;
    int failed; /**< the first failure while a reply came */
};

/** The next message: a line of stdin, or several where all but the last end in a backslash; blank
 * ones are none. Sound UTF-8; broken parts are U+FFFD. Its text is the input's, until the next
 * call. False: none comes, for stdin has ended, or a signal came. WEIR_ERR_IO,
 * WEIR_ERR_OUT_OF_MEMORY. */
int chat_input_next(struct chat *chat, bool *found);
void chat_input_clean_up(struct chat_input *input);

/** Adds a message to the conversation. WEIR_ERR_OUT_OF_MEMORY. */
int chat_add(struct chat *chat, enum chat_role role, const char *text, size_t bytes);
/** Forgets all messages but the system's. */
void chat_forget_all(struct chat *chat);
/** Replies to the last message, prints the reply as it comes and adds it to the conversation.
 * Where the conversation is too long for the context, its oldest messages are left out, which is
 * told; where the last one alone is, that is taken back, which is told too. What fails is the
 * generator's or WEIR_ERR_OUT_OF_MEMORY. */
int chat_reply(struct chat *chat);
void chat_clean_up(struct chat *chat);

#endif
