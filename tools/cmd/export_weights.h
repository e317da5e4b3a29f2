/* SPDX-License-Identifier: MIT */
/**
 * Weights of a decoder on their way from a checkpoint into another file: found by name, checked
 * against the configuration, and converted piece by piece while they are written.
 *
 * An item's `next` (io/safetensors.h) gives a tensor's bytes from any offset on, as they lie in the
 * source; who has other numbers (merged ones) puts items with a `next` of its own in their place.
 */
#ifndef WEIR_TOOLS_EXPORT_WEIGHTS_H
#define WEIR_TOOLS_EXPORT_WEIGHTS_H

#include "cli/decoder_tensors.h"
#include "io/archive.h"
#include "io/numbers.h"

struct export_weights {
    struct weir__pool pool;
    struct weir__archive *archive;
    const struct weir__safetensor *last; /**< whose bytes were asked for; NULL: none */
    struct weir__io io;                  /**< for reading: its error is `damage` */
    struct weir_error damage;            /**< why the source could not be read */
    const struct decoder_tensor *tensors;
    struct weir__safetensors_item *items; /**< of each tensor, as the source has it */
    uint32_t count;
};

/** Opens `path`, a checkpoint or a folder of weights, which must hold exactly this decoder's. Other
 * than by its own tensors it may differ by an optimizer's, by frequencies of positions, and by a
 * head that is bit for bit the embedding it is tied to. WEIR_ERR_CONFIG names the first tensor that
 * does not fit; else as io/archive.h. In every case the caller's: export_weights_close. */
int export_weights_open(const struct weir__io *io, const char *path,
                        const struct weir_decoder_options *options, struct export_weights *weights);
void export_weights_close(struct export_weights *weights);

/** Room to convert a piece in, for streams that are read one after the other. */
struct export_room;
/** The pool's; NULL without memory. */
struct export_room *export_room_new(struct weir__pool *pool);

/** Numbers of an item as another type. */
struct export_stream {
    const struct weir__safetensors_item *from; /**< the caller's */
    enum weir__stored type;
    uint32_t heads; /**< rows are put into GGUF's order of this many heads; 0: stay */
    struct export_room *room;
    struct weir_error *error; /**< gets what went wrong in converting */
};
/** A `next` whose context is a stream: bytes of the converted tensor. */
int export_stream_next(void *context, size_t offset, const void **data, size_t *bytes);

#endif
