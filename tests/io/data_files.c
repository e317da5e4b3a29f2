/* SPDX-License-Identifier: MIT */
/* Files of data; see data_files.h. */
#include "io/data_files.h"

#include "harness.h"
#include "io/io_faults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void make(const char *directory, const char *name, const void *header, size_t header_bytes,
                 const void *data, size_t bytes) {
    char path[512];
    char *file = malloc(header_bytes + bytes + 1);
    if (!EXPECT(file != NULL)) return;
    memcpy(file, header, header_bytes);
    if (bytes > 0) memcpy(file + header_bytes, data, bytes);
    io_make_file(directory, name, file, header_bytes + bytes, path);
    free(file);
}

void data_make_npy(const char *directory, const char *name, const char *descr, const char *shape,
                   const void *data, size_t bytes) {
    char header[256];
    int length =
        snprintf(header + 10, sizeof header - 10,
                 "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }\n", descr, shape);
    memcpy(header, "\x93NUMPY\1\0", 8);
    header[8] = (char)length, header[9] = 0;
    make(directory, name, header, 10 + (size_t)length, data, bytes);
}

void data_make_idx(const char *directory, const char *name, uint32_t rank, const uint32_t *sizes,
                   const uint8_t *data) {
    uint8_t header[4 + 4 * 8] = {0, 0, 8, (uint8_t)rank};
    size_t bytes = 1;
    for (uint32_t i = 0; i < rank; i++) {
        for (int k = 0; k < 4; k++) header[4 + 4 * i + k] = (uint8_t)(sizes[i] >> (24 - 8 * k));
        bytes *= sizes[i];
    }
    make(directory, name, header, 4 + 4 * (size_t)rank, data, bytes);
}

void data_make_tokens(const char *directory, const char *name, uint32_t count, uint32_t first,
                      uint32_t step) {
    static const uint32_t magic = 20240520, version = 1;
    char header[1024] = {0};
    uint16_t *tokens = malloc((count + 1) * sizeof *tokens);
    if (!EXPECT(tokens != NULL)) return;
    memcpy(header, &magic, 4);
    memcpy(header + 4, &version, 4);
    memcpy(header + 8, &count, 4);
    for (uint32_t i = 0; i < count; i++) tokens[i] = (uint16_t)(first + i * step);
    make(directory, name, header, sizeof header, tokens, count * sizeof *tokens);
    free(tokens);
}

void data_make_folder(const char *directory, const char *name, char path[512]) {
    snprintf(path, 512, "%s/%s", directory, name);
    EXPECT_EQ_INT(mkdir(path, 0777), 0);
}
