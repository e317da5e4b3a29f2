/* SPDX-License-Identifier: MIT */
/* Data sets for tests; see dataset_place.h. */
#include "io/dataset_place.h"

#include "io/data_files.h"
#include "harness.h"
#include "io/io_faults.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PATHS_MAX 4

void dataset_begin(struct dataset_place *place) {
    memset(place, 0, sizeof(*place));
    place->directory = test_temporary_directory();
    place->io = (struct weir__io){test_allocator(), io_faults_calls(), &place->error};
    place->faults.allocator = test_allocator();
    io_faults_at(0, false, IO_FAULT_FAIL, 0);
}

void dataset_end(struct dataset_place *place) {
    weir__dataset_close(place->dataset);
    place->dataset = NULL;
    weir_faults_clean_up(&place->faults);
}

/* Splits "a b" into paths in the directory; "." is the directory itself. */
static uint32_t split(const struct dataset_place *place, const char *names,
                      char paths[PATHS_MAX][512], const char *list[PATHS_MAX]) {
    uint32_t count = 0;
    char text[256];
    snprintf(text, sizeof(text), "%s", names);
    for (char *name = strtok(text, " "); name; name = strtok(NULL, " ")) {
        snprintf(paths[count], 512, "%s/%s", place->directory, name);
        list[count] = paths[count];
        count++;
    }
    return count;
}

int dataset_open(struct dataset_place *place, const char *names, const char *eval_names) {
    static char paths[PATHS_MAX][512], eval_paths[PATHS_MAX][512]; /* outlive the data set */
    static const char *list[PATHS_MAX], *eval_list[PATHS_MAX];
    struct weir__dataset_options options = {
        .paths = list, .eval_paths = eval_list, .whole = place->whole, .words = place->words};
    options.path_count = split(place, names, paths, list);
    options.eval_path_count = split(place, eval_names, eval_paths, eval_list);
    weir_faults_clean_up(&place->faults);
    return weir__dataset_open(&place->io, &options, &place->faults, &place->dataset);
}

void dataset_check_fault(struct dataset_place *place, const char *text) {
    bool found = false;
    for (uint32_t i = 0; i < place->faults.kept; i++)
        found = found || strstr(place->faults.lines[i], text);
    for (uint32_t i = 0; i < place->faults.kept && !found; i++)
        TEST_FAIL("'%s' is not in: %s", text, place->faults.lines[i]);
    EXPECT(place->faults.count > 0);
}

/* ---- models ---- */

struct weir_tensor dataset_tensor(enum weir_dtype dtype, uint32_t rank, int64_t a, int64_t b,
                                  int64_t c) {
    return (struct weir_tensor){.dtype = dtype, .rank = rank, .shape = {a, b, c}};
}

struct weir__dataset_model dataset_token_model(int64_t context, int64_t vocabulary) {
    return (struct weir__dataset_model){dataset_tensor(WEIR_I64, 1, context, 0, 0),
                                        dataset_tensor(WEIR_I64, 1, context, 0, 0), "cross_entropy",
                                        vocabulary, -100};
}

struct weir__dataset_model dataset_image_model(int64_t classes) {
    return (struct weir__dataset_model){dataset_tensor(WEIR_F32, 3, 1, 2, 3),
                                        dataset_tensor(WEIR_I64, 0, 0, 0, 0), "cross_entropy",
                                        classes, -100};
}

struct weir__dataset_model dataset_mask_model(const char *loss) {
    return (struct weir__dataset_model){dataset_tensor(WEIR_F32, 3, 1, 2, 3),
                                        dataset_tensor(WEIR_F32, 3, 1, 2, 3), loss, 0, -100};
}

int dataset_bind(struct dataset_place *place, struct weir__dataset_model model) {
    return weir__dataset_bind(place->dataset, &place->io, &model, &place->faults);
}

const struct weir__dataset_facts *dataset_facts(const struct dataset_place *place) {
    return weir__dataset_facts(place->dataset);
}

void dataset_make_images(const struct dataset_place *place, const char *images, const char *labels,
                         uint32_t count) {
    uint8_t pixels[256 * 6], classes[256];
    for (uint32_t i = 0; i < count; i++) {
        memset(pixels + 6 * i, (int)i, 6);
        classes[i] = (uint8_t)(i % 10);
    }
    data_make_idx(place->directory, images, 3, (uint32_t[]){count, 2, 3}, pixels);
    data_make_idx(place->directory, labels, 1, (uint32_t[]){count}, classes);
}
