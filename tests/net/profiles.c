/* SPDX-License-Identifier: MIT */
/* Small models, and quick profiles of them. */
#include "net/profiles.h"

#include "harness.h"
#include "net/net_trial.h"
#include "weir_models.h"

#include <stdio.h>

struct weir_profile_options profile_options(int64_t rows, uint32_t chunks) {
    struct weir_profile_options options = WEIR_PROFILE_OPTIONS_INIT;
    options.net = trial_options(1, rows, chunks);
    options.net.dtype = WEIR_F32;
    options.warm_up = 1;
    options.steps_least = options.steps_most = 5;
    options.seconds = 0;
    return options;
}

struct weir_profile *profile_of(const struct weir_model *model,
                                const struct weir_profile_options *options) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_profile *profile = NULL;
    if (model == NULL) return NULL;
    EXPECT_STATUS(weir_profile_new(model, options, &faults, &profile), WEIR_OK);
    for (uint32_t i = 0; i < faults.kept; i++) TEST_FAIL("fault: %s", faults.lines[i]);
    weir_faults_clean_up(&faults);
    return profile;
}

struct weir_model *gpt_model(bool tied, double dropout) {
    struct weir_gpt_options options = WEIR_GPT_OPTIONS_INIT;
    struct weir_model *model = NULL;
    options.layers = 2;
    options.width = 16;
    options.heads = 2;
    options.context = 8;
    options.vocab = 40;
    options.tied = tied;
    options.dropout = dropout;
    EXPECT_STATUS(weir_model_gpt(test_allocator(), &options, NULL, &model), WEIR_OK);
    return model;
}

struct weir_model *unet_model(void) {
    struct weir_unet_options options = WEIR_UNET_OPTIONS_INIT;
    struct weir_model *model = NULL;
    options.depth = 2;
    options.num_convs = 1;
    options.base_channels = 4;
    options.height = options.width = 16;
    EXPECT_STATUS(weir_model_unet(test_allocator(), &options, NULL, &model), WEIR_OK);
    return model;
}

char *profile_read_file(const char *path) {
    static char text[1 << 18];
    FILE *file = fopen(path, "r");
    if (!EXPECT(file != NULL)) return NULL;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

void profile_write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    if (!EXPECT(file != NULL)) return;
    EXPECT(fputs(text, file) >= 0);
    EXPECT(fclose(file) == 0);
}
