/* SPDX-License-Identifier: MIT */
/**
 * What tests of the net library share: random data for a model, one step on a net made for it, and
 * what came out, to be compared. Memory is test_allocator()'s; failures are reported through the
 * harness, so look at test_has_failed() (CHECK_HELPERS()).
 */
#ifndef WEIR_TESTS_NET_TRIAL_H
#define WEIR_TESTS_NET_TRIAL_H

#include "net/compile/program.h"
#include "weir_net.h"

/** A mini-batch. Integers are below `classes`; floating-point numbers at the net's dtype. */
struct trial_data {
    int64_t rows;
    void *input, *target;
    size_t input_bytes, target_bytes;
};
/** `classes` bounds integer inputs, `labels` integer targets. */
void trial_data_init(struct trial_data *data, const struct weir_tensor *input,
                     const struct weir_tensor *target, enum weir_dtype dtype, int64_t rows,
                     int64_t classes, int64_t labels);
/** What the model takes: no integer reaches `classes`. */
void trial_data_of(struct trial_data *data, const struct weir_model *model, enum weir_dtype dtype,
                   int64_t rows, int64_t classes);
void trial_data_clean_up(struct trial_data *data);

/** Whether both files hold the same bytes. */
bool trial_same_files(const char *a, const char *b);
/** The same of `alone` and the one file that `together`, which may be a folder, is exported to:
 * together.exported. Nothing where the test has failed. */
bool trial_same_exported(const char *alone, const char *together);

/** Everything that a step gives. */
struct trial_result {
    double loss, norm;
    size_t output_bytes, input_grad_bytes, gradient_bytes;
    void *output;
    void *input_grad;   /**< NULL where the net does not differentiate its input */
    void *gradients;    /**< of all parameters but statistics, in layer order */
    double *statistics; /**< what these are before the step, but for counts of mini-batches */
    size_t statistic_count;
};
void trial_result_clean_up(struct trial_result *result);
/** Fails the test where a byte differs. */
void trial_result_compare(const struct trial_result *a, const struct trial_result *b);

/** Options for tests: test_allocator(), not bound, parked waiting, one thread per worker. */
struct weir_net_options trial_options(uint32_t stages, int64_t rows, uint32_t chunks);
enum { TRIAL_TABLE_BYTES = 1 << 15 };
/** Replaces the options' schedule by a table like it of which `percent` of the backwards are split,
 * each W anywhere behind its I; gradients are added up in the same order. `text` holds the table
 * and outlives the options; they are not changed afterwards. */
void trial_split(struct weir_net_options *options, uint32_t percent, char text[TRIAL_TABLE_BYTES]);
/** A model of test_allocator()'s; NULL (and the test failed) if it cannot be made. */
struct weir_model *trial_model(struct weir_tensor input, struct weir_tensor target,
                               const char *loss);
/** Adds a layer; fails the test, with the faults, where that fails. */
void trial_add(struct weir_model *model, const char *type, struct weir_attrs attrs);
/** Adds stash, read_add or pop_add. */
void trial_add_skip(struct weir_model *model, const char *type, const char *skip,
                    const char *name_space);
/** Builds a net and initialises it from seed 7; NULL and the test failed where that fails. */
struct weir_net *trial_net(const struct weir_model *model, const struct weir_net_options *options);
/** Gives adapters numbers of which none is 0, as B's are at first, so that A has a gradient, too.
 */
void trial_fill_adapters(struct weir_net *net);
/** One step without update. */
void trial_step(struct weir_net *net, const struct weir_model *model, const struct trial_data *data,
                struct trial_result *result);
/** trial_net, trial_step, destroy. */
void trial_run(const struct weir_model *model, const struct weir_net_options *options,
               const struct trial_data *data, struct trial_result *result);

/** Compares the gradients of a net in f64 with central differences of its loss. */
void trial_check_net(struct weir_net *net, const struct weir_model *model, bool input_grads,
                     const struct trial_data *data);
/** Compares every gradient of a net in f64 with central differences of its loss. */
void trial_check_gradients(const struct weir_model *model, const struct weir_net_options *options,
                           const struct trial_data *data);

/** Nodes of that op in a program. */
uint32_t trial_count_ops(const struct weir__slices *slices, enum weir__program_kind kind,
                         enum weir__op_code op);

#endif
