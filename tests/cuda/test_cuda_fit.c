/* SPDX-License-Identifier: MIT */
/*
 * Goal: of a file's images each driver loads the one that is for it, and what stands between a GPU
 * and its code is told. Method: tables made up, of one toolkit and of two, against the cases of
 * CUDA's Compatibility Guide.
 */
#include "device/cuda_fit.h"
#include "harness.h"

static const struct weir__cuda_image both[] = {
    {.name = "copy", .toolkit = 13000, .targets = "80 90 100+"},
    {.name = "rows", .toolkit = 13000, .targets = "80 90 100+"},
    {.name = "copy", .toolkit = 12090, .targets = "80 90 100+"},
    {.name = "rows", .toolkit = 12090, .targets = "80 90 100+"},
};

static void expect_served(size_t count, int driver, unsigned wanted) {
    unsigned served = 0;
    for (size_t i = 0; i < count; i++)
        served |= (unsigned)weir__cuda_image_serves(both, count, i, driver) << i;
    EXPECT_EQ_UINT(served, wanted);
}

static void test_a_driver_loads_the_newest_that_it_takes(void) {
    expect_served(4, 13000, 3);
    expect_served(4, 13020, 3);
    expect_served(4, 14000, 3);
    expect_served(4, 12090, 12);
    expect_served(4, 12000, 12); /* binaries hold for the whole major version */
    expect_served(2, 12090, 3);  /* the only ones: its refusal is told */
    expect_served(4, 11080, 12);
}

static void expect_fit(int capability, int driver, enum weir__cuda_fit_kind kind, int architecture,
                       int needs) {
    static const struct weir__cuda_image image = {.toolkit = 12080, .targets = "80 86 100+"};
    struct weir__cuda_fit fit = weir__cuda_fit(&image, capability, driver);
    EXPECT_EQ_INT(fit.kind, kind);
    EXPECT_EQ_INT(fit.architecture, architecture);
    EXPECT_EQ_INT(fit.toolkit, 12080);
    if (kind == WEIR__CUDA_OLD_DRIVER) EXPECT_EQ_INT(fit.needs, needs);
}

static void test_of_one_toolkit_the_first_is_loaded(void) {
    static const struct weir__cuda_image twice[] = {{.name = "copy", .toolkit = 12090},
                                                    {.name = "copy", .toolkit = 12090}};
    for (int driver = 11080; driver <= 13080; driver += 1000) {
        EXPECT(weir__cuda_image_serves(twice, 2, 0, driver));
        EXPECT(!weir__cuda_image_serves(twice, 2, 1, driver));
    }
}

static void test_what_a_gpu_runs_is_known(void) {
    expect_fit(80, 12000, WEIR__CUDA_FITS_BINARY, 80, 0);
    expect_fit(89, 12000, WEIR__CUDA_FITS_BINARY, 86, 0); /* the same major, the nearest minor */
    expect_fit(103, 13000, WEIR__CUDA_FITS_BINARY, 100, 0);
    expect_fit(120, 12080, WEIR__CUDA_FITS_PTX, 100, 0);
    expect_fit(120, 12040, WEIR__CUDA_OLD_DRIVER, 100, 12080); /* PTX: to the minor version */
    expect_fit(80, 11080, WEIR__CUDA_OLD_DRIVER, 80, 12000);
    expect_fit(90, 13000, WEIR__CUDA_OLD_GPU, 0, 0); /* no binary of 9.x, and PTX is for newer */
    expect_fit(75, 13000, WEIR__CUDA_OLD_GPU, 0, 0);
}

WEIR_TEST_SUITE(cuda_fit, TEST(a_driver_loads_the_newest_that_it_takes),
                TEST(of_one_toolkit_the_first_is_loaded), TEST(what_a_gpu_runs_is_known))
