/* SPDX-License-Identifier: MIT */
/** What tests of profiles share. Memory is test_allocator()'s, and the caller's to destroy;
 * failures go to the harness. */
#ifndef WEIR_TESTS_PROFILES_H
#define WEIR_TESTS_PROFILES_H

#include "weir_profile.h"

/** Five steps of f32 on one thread, after one that warms up. */
struct weir_profile_options profile_options(int64_t rows, uint32_t chunks);
/** NULL where the model is, or where the test fails with the faults. */
struct weir_profile *profile_of(const struct weir_model *model,
                                const struct weir_profile_options *options);

/** Two blocks, 8 tokens of 40. */
struct weir_model *gpt_model(bool tied, double dropout);
/** Two levels, images of 16 x 16. */
struct weir_model *unet_model(void);

/** The whole file, in one buffer for all; NULL, and the test failed, if it cannot be read. */
char *profile_read_file(const char *path);
void profile_write_file(const char *path, const char *text);

#endif
