/* SPDX-License-Identifier: MIT */
/** What the tests of data sets share: opening one from names in the test's folder, models for it to
 * fit, and images whose numbers tell where they came from. */
#ifndef WEIR_TESTS_DATASET_PLACE_H
#define WEIR_TESTS_DATASET_PLACE_H

#include "data/dataset.h"

struct dataset_place {
    const char *directory;
    struct weir_error error;
    struct weir__io io; /**< the test's allocator, the table of io_faults.h, this error */
    struct weir_faults faults;
    struct weir__dataset *dataset;
    bool whole;                     /**< opened as one that is held out as a whole */
    const struct model_text *words; /**< of the model, or NULL */
};

void dataset_begin(struct dataset_place *place);
/** Closes the data set and forgets the faults. */
void dataset_end(struct dataset_place *place);
/** Opens paths, given as names in the directory with blanks between them ("." is the directory
 * itself), and those of the held-out part ("" for none). */
int dataset_open(struct dataset_place *place, const char *names, const char *eval_names);
/** Fails the test, showing all faults, unless one of them holds the text. */
void dataset_check_fault(struct dataset_place *place, const char *text);

struct weir_tensor dataset_tensor(enum weir_dtype dtype, uint32_t rank, int64_t a, int64_t b,
                                  int64_t c);
/** Rows of `context` tokens. */
struct weir__dataset_model dataset_token_model(int64_t context, int64_t vocabulary);
/** Images of 2 x 3 and a class each. */
struct weir__dataset_model dataset_image_model(int64_t classes);
/** Images of 2 x 3 and a mask of that size. */
struct weir__dataset_model dataset_mask_model(const char *loss);

int dataset_bind(struct dataset_place *place, struct weir__dataset_model model);
const struct weir__dataset_facts *dataset_facts(const struct dataset_place *place);

/** IDX files: `count` <= 256 images of 2 x 3 bytes, all bytes of image i being i, and labels i %
 * 10. */
void dataset_make_images(const struct dataset_place *place, const char *images, const char *labels,
                         uint32_t count);

#endif
