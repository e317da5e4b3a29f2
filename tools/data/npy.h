/* SPDX-License-Identifier: MIT */
/**
 * .npy files, as numpy.save writes them (numpy.lib.format): "\x93NUMPY", a major and a minor
 * version, the header's length (2 bytes in version 1, 4 in 2 and 3, little-endian), the header, a
 * Python dictionary such as {'descr': '<f4', 'fortran_order': False, 'shape': (10, 3), }, and the
 * numbers.
 *
 * Read: versions 1.0, 2.0 and 3.0, C order, dtypes |b1 |u1 |i1 <i2 <i4 <i8 <f4 <f8.
 *
 * The reader trusts nothing, and never evaluates the header: it is parsed by the few rules that
 * NumPy's own writer follows (three keys in any order, each once; texts in either quotes; a tuple
 * of integers; blanks anywhere, blanks and newlines at the end). WEIR_ERR_FORMAT, each with its own
 * message, for
 *   1. a file that does not begin with the magic (said of a .npz: data/npz.h, and of gzip: unpack
 * it), or is shorter than its lengths say;
 *   2. a header that is not such a dictionary, that misses a key, has one twice or another one;
 *   3. a shape with a size that is negative or overflows, or a size in bytes that overflows;
 *   4. a size in bytes that is not exactly what follows the header.
 * WEIR_ERR_UNSUPPORTED, each with the reason and what to do in NumPy, for
 *   5. another version;
 *   6. a header longer than 65,535 bytes;
 *   7. Python objects (a pickle, which may run any code), structured dtypes, big-endian numbers,
 *      every other dtype;
 *   8. Fortran order;
 *   9. more than 8 dimensions.
 */
#ifndef WEIR_IO_NPY_H
#define WEIR_IO_NPY_H

#include "data/array.h"

/** Opens and checks `path`; the array is the caller's: weir__array_close. Written only on success.
 * WEIR_ERR_IO, WEIR_ERR_FORMAT, WEIR_ERR_UNSUPPORTED, WEIR_ERR_OUT_OF_MEMORY. */
int weir__npy_open(const struct weir__io *io, const char *path, struct weir__array *array);

/** All that stands before the numbers of an array of at most WEIR__ARRAY_RANK_MAX dimensions, in
 * version 1 and C order, into `header`; returns its bytes, a multiple of 64. Little-endian numbers
 * of the shape follow it. */
#define WEIR__NPY_HEADER_MAX 320
size_t weir__npy_header(enum weir__number number, uint32_t rank, const int64_t *shape,
                        char header[WEIR__NPY_HEADER_MAX]);

#endif
