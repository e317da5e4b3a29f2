/* SPDX-License-Identifier: MIT */
/* The header of an IDX file. */
#include "data/idx.h"

enum { MAGIC_BYTES = 4, SIZE_BYTES = 4 };

static bool type_of(unsigned char code, enum weir__number *number) {
    switch (code) {
    case 0x08: *number = WEIR__NUMBER_U8; return true;
    case 0x09: *number = WEIR__NUMBER_I8; return true;
    case 0x0B: *number = WEIR__NUMBER_I16; return true;
    case 0x0C: *number = WEIR__NUMBER_I32; return true;
    case 0x0D: *number = WEIR__NUMBER_F32; return true;
    case 0x0E: *number = WEIR__NUMBER_F64; return true;
    default: return false;
    }
}

static int read_magic(const struct weir__io *io, struct weir__array *array) {
    unsigned char magic[MAGIC_BYTES];
    const char *path = array->source.path;
    if (array->source.bytes < MAGIC_BYTES) {
        return weir__source_refuse(
            io, path, WEIR_ERR_FORMAT, "%llu byte%s too few for an IDX file, which begins with 4",
            (unsigned long long)array->source.bytes, weir__s_are(array->source.bytes));
    }
    int status = weir__source_read(&array->source, io, 0, magic, sizeof(magic));
    if (status) {
        return status;
    }
    if (magic[0] == 0x1f && magic[1] == 0x8b) {
        return weir__source_refuse(io, path, WEIR_ERR_FORMAT,
                                   "it is compressed: unpack it by 'gunzip' first");
    }
    if (magic[0] != 0 || magic[1] != 0) {
        return weir__source_refuse(io, path, WEIR_ERR_FORMAT,
                                   "it begins with the bytes %02x %02x, an IDX file with two zeros",
                                   magic[0], magic[1]);
    }
    if (!type_of(magic[2], &array->number)) {
        return weir__source_refuse(io, path, WEIR_ERR_FORMAT,
                                   "type 0x%02x is not one of IDX: 08 u8, 09 i8, 0b i16, 0c i32, "
                                   "0d f32, 0e f64",
                                   magic[2]);
    }
    array->rank = magic[3];
    if (array->rank == 0) {
        return weir__source_refuse(io, path, WEIR_ERR_FORMAT, "it has no dimension");
    }
    if (array->rank > WEIR__ARRAY_RANK_MAX) {
        return weir__source_refuse(io, path, WEIR_ERR_UNSUPPORTED,
                                   "%u dimensions are more than the %d that Weir reads",
                                   array->rank, WEIR__ARRAY_RANK_MAX);
    }
    return WEIR_OK;
}

static int read_sizes(const struct weir__io *io, struct weir__array *array) {
    unsigned char sizes[WEIR__ARRAY_RANK_MAX * SIZE_BYTES];
    array->offset = MAGIC_BYTES + (uint64_t)array->rank * SIZE_BYTES;
    if (array->source.bytes < array->offset) {
        return weir__source_refuse(io, array->source.path, WEIR_ERR_FORMAT,
                                   "%llu bytes are too few for a header of %u dimension%s, %llu: "
                                   "the file is cut",
                                   (unsigned long long)array->source.bytes, array->rank,
                                   weir__s(array->rank), (unsigned long long)array->offset);
    }
    int status =
        weir__source_read(&array->source, io, MAGIC_BYTES, sizes, (size_t)array->rank * SIZE_BYTES);
    for (uint32_t i = 0; i < array->rank && !status; i++) {
        const unsigned char *at = sizes + (size_t)i * SIZE_BYTES;
        array->shape[i] = (int64_t)at[0] << 24 | (int64_t)at[1] << 16 | (int64_t)at[2] << 8 | at[3];
    }
    return status;
}

static int read_header(const struct weir__io *io, struct weir__array *array) {
    array->big_endian = true;
    int status = read_magic(io, array);
    return status ? status : read_sizes(io, array);
}

int weir__idx_open(const struct weir__io *io, const char *path, struct weir__array *array) {
    return weir__array_open_by(io, path, read_header, array);
}
