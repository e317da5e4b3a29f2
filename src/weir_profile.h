/* SPDX-License-Identifier: MIT */
/**
 * Profiles: what each layer of a model takes, in seconds and bytes, measured on this machine; what
 * weir_planner.h cuts lists by, and what a predicted step is made of.
 *
 * How it is measured. The whole model runs as one stage in a net of its own, in training steps
 * without update, with a clock reading between any two kernel calls; a call's time is its layer's.
 * So layers run in their real order, each with the caches as its neighbours leave them, and kernels
 * that join layers run joined (a joined kernel's time is the last layer's, and the others are
 * marked). Each step has one micro-batch that warms up and packs weights, which is not counted, one
 * with F and B, one with F, R and B, one with F, I and W. Times are means over steps, but for
 * those above 1.5 times the median, in which the core did something else. Nothing of the caller's
 * is touched: not the parameters, statistics or gradients of any net of the model.
 *
 * On a GPU events stand for the clock, and the stream is waited for after each program, so that the
 * host never runs ahead from one to the next. Its kernels' starts are in the times, and the host's
 * where it cannot give kernels as fast as they end. What an action takes besides (task_seconds) is
 * not measured there: with the waits it would be another thing than in a step.
 *
 * Where a pipe has CPUs and GPUs, all layers are measured on both: the profile is the CPUs', and
 * its `other` the GPUs'. Which of the two a stage costs, its worker says (weir_net_worker_costs).
 *
 * What it does not say. Workers that run at the same time share caches and memory, and what one of
 * them made the other reads from afar: stages bound by memory, and those that begin with large
 * borders or skips, get slower than measured here.
 * Packing weights, once per step, is left out. Kernel times are those of one row count: they are no
 * line through others (kernels choose by shape, caches overflow), so a profile is refused for
 * another one; bytes would scale.
 *
 * Errors and statuses are those of weir.h. Life: (1) weir_profile_new or weir_profile_load; (2)
 * weir_profile_fit says whether it is of this model and pipe; (3) weir_profile_destroy.
 *
 * @code
 *   struct weir_profile_options options = WEIR_PROFILE_OPTIONS_INIT;
 *   options.net = net_options;                          // rows, chunks, threads, dtype, optimizer
 *   struct weir_profile *profile;
 *   int status = weir_profile_new(model, &options, &faults, &profile);
 *   printf("%g s\n", profile->costs.layers[3].seconds[WEIR_KIND_F]);
 *   status = weir_profile_save(profile, "model.profile", &error);
 *   weir_profile_destroy(profile);
 * @endcode
 */
#ifndef WEIR_PROFILE_H
#define WEIR_PROFILE_H

#include "weir_net.h"
#include "weir_planner.h"

#ifdef __cplusplus
#pragma GCC system_header
extern "C" {
#endif

struct weir_profile_options {
    size_t size;
    /** The net that will run. What counts: pipe.rows and chunks (their largest micro-batch is
     * measured), threads_per_worker (0: the cores divided by workers, or by stages), bind, wait,
     * allocator, infer_only (F alone), dtype, reference, seed, optimizer, and devices, the first of
     * each kind of which measures; NULL: a CPU. */
    struct weir_net_options net;
    bool bytes_only;    /**< measure nothing: seconds are 0 */
    const void *input;  /**< a micro-batch's rows, in the dtypes of steps; NULL: random ones */
    const void *target; /**< as `input`, and given with it */
    uint32_t warm_up;   /**< steps before the measured ones */
    uint32_t
        steps_least; /**< measured steps: until `seconds` have passed, but so many at least … */
    uint32_t steps_most; /**< … and at most, 1 … 1000 */
    double seconds;
};
#define WEIR_PROFILE_OPTIONS_INIT                                                                  \
    {                                                                                              \
        .size = sizeof(struct weir_profile_options), .net = WEIR_NET_OPTIONS_INIT, .warm_up = 2,   \
        .steps_least = 7, .steps_most = 50, .seconds = 1.0                                         \
    }

/** One of several processes that measured. */
struct weir_profile_rank {
    char host[64];
    char machine[160]; /**< as in struct weir_profile */
};

/** A profile; all of it is its own and read-only. */
struct weir_profile {
    struct weir_layer_costs costs;
    char version[32];   /**< of the library that measured */
    char device[8];     /**< what all layers run on: "cpu" or "cuda" */
    char machine[160];  /**< processor and cores, or the GPU; of several ranks the slowest's */
    char libraries[64]; /**< "v4", the level of a CPU's kernels, "cuBLASLt 12.9.1, cuDNN 9.10.2", or
                           "none" */
    uint64_t model;     /**< weir_model_fingerprint */
    int64_t rows;       /**< of a micro-batch */
    uint32_t threads;   /**< of the worker; 1 on a GPU */
    enum weir_dtype dtype;
    bool reference;                  /**< plain-C kernels */
    bool measured;                   /**< false: bytes only */
    bool infer_only;                 /**< F alone, as inference runs it */
    uint32_t steps;                  /**< that were measured */
    double seconds[WEIR_KIND_COUNT]; /**< of the whole model as one stage, per micro-batch */
    /** Of all ranks the largest (p90 - p10) / median of its F and B: above 0.1 the machine was busy
     * with something else, and the times are to be taken with care. */
    double spread;
    const struct weir_profile_rank *ranks; /**< [costs.rank_count] */
    const struct weir_profile *other; /**< of the pipe's GPUs, where this one is of its CPUs; its
                                           costs are costs.other. NULL: workers are of one kind */
};

/** What a list of layers is, freezes included, as one number: the same on every machine, another
 * for another list. */
uint64_t weir_model_fingerprint(const struct weir_model *model);

/** Measures. Blocks for options.seconds and longer; makes a net of its own, whose memory is gone at
 * the end. With options.net.pipe.world all ranks measure at the same time, each on its own cores or
 * a GPU of its own, and have the same profile then: the times of the rank that took longest, and in
 * costs.rank_paces what each took as a part of that. Every rank must call it, with the same options
 * and devices of one kind. With bytes_only nobody is asked: each rank finds its own, of both kinds
 * of devices too, and there are no rank_paces. WEIR_ERR_CONFIG, WEIR_ERR_ARGUMENT,
 * WEIR_ERR_UNSUPPORTED (an op without a kernel on the GPU) and what weir_net_new and weir_net_step
 * give, every reason in `faults`. The profile is the caller's: weir_profile_destroy. */
int weir_profile_new(const struct weir_model *model, const struct weir_profile_options *options,
                     struct weir_faults *faults, struct weir_profile **profile);
/** Accepts NULL. */
void weir_profile_destroy(struct weir_profile *profile);

/** Checks that the profile is of this model, these kinds of devices (GPUs must be of one name),
 * machine (of several ranks: of this one of as many, or without a world one of its processors), row
 * count, dtype and number of threads, and sets its optimizer bytes to these options' optimizer.
 * Where it is not, each difference is a line in `faults`, and the status
 * WEIR_ERR_CONFIG. Of `options` what struct weir_profile_options says.
 */
int weir_profile_fit(struct weir_profile *profile, const struct weir_model *model,
                     const struct weir_net_options *options, struct weir_faults *faults);

/**
 * Writes the profile as JSON; returns what a write returned if that is not 0. Times in seconds,
 * sizes in bytes, of one micro-batch; members as in struct weir_profile and struct weir_layer_cost:
 *
 * {"weir_profile": 1, "version": "0.1.0", "device": "cpu", "machine": "…, 2 cores",
 *  "libraries": "v4", "model": "c0ffee…", "rows": 4, "threads": 1, "dtype": "f32",
 * "reference": false, "infer_only": false, "measured": true, "steps": 21, "spread": 0.01, "task":
 * 1e-7, "optimizer_arrays": 2, "whole": {"forward": …, "recompute": …, "backward": …,
 * "backward_input": …, "backward_weight": …}, "layers": [{"forward": …, "forward_checkpoint": …,
 * "recompute": …, "recompute_last": …, "backward": …, "backward_input": …, "backward_weight": …,
 * "saved": …, "saved_output": …, "weight_saved": …, "border": …, "border_gradient": …, "workspace":
 * …, "parameters": …, "trainable": …, "gradients": …, "optimizer": …, "copied": 0, "copied_from":
 * 0, "copied_learns": false, "no_backward": false, "joined": false}, …], "skips": [{"namespace":
 * "", "skip": "a", "source": 1, "readers": [4], "bytes": …, "differentiable": true}, …],
 * "ranks": [{"host": "a", "machine": "…", "pace": 0.8}, …] where it is of several ranks,
 * "other": {the same of the GPUs, where there are CPUs and GPUs}}
 */
int weir_profile_write(const struct weir_profile *profile, weir_write_fn *write, void *context);
/** Writes it into a file, which appears complete or not at all. WEIR_ERR_IO says why in `error`. */
int weir_profile_save(const struct weir_profile *profile, const char *path,
                      struct weir_error *error);
/** Reads one. Nothing in the file is trusted; every fault is a line in `faults`. WEIR_ERR_IO: it
 * cannot be read; WEIR_ERR_FORMAT: it is no profile. The profile is the caller's. */
int weir_profile_load(const struct weir_allocator *allocator, const char *path,
                      struct weir_faults *faults, struct weir_profile **profile);

/* ---- search over a network ------------------------------------------------------------------- */

/**
 * The planner on a model: what weir_planner.h searches, with this model's layers and with memory
 * planned to the byte as weir_net_new would.
 *
 * Errors and statuses are those of weir.h.
 *
 * @code
 *   struct weir_planner_options search = WEIR_PLANNER_OPTIONS_INIT;
 *   struct weir_planner_result result;
 *   int status = weir_profile_estimate(model, &net, &faults, &profile);   // or weir_profile_new
 *   search.memory_limit = net.pipe.memory_limit;
 *   status = weir_net_search(planner, model, &net, &profile->costs, &search, &faults, &result);
 *   if (status == WEIR_OK) weir_net_choose(result.winner, &net);
 *   status = weir_net_new(model, &net, &faults, &made);
 * @endcode
 */

/** A profile without measuring the model: bytes as weir_profile_new finds them. On a CPU seconds
 * are its kernel calls' at the rates of this machine, which are measured once, in some tenths of a
 * second, and kept in the folder that the environment's WEIR_CACHE names, or $XDG_CACHE_HOME/weir,
 * or ~/.cache/weir (src/net/profile/roofs.h); a step is then predicted to about a quarter. On a GPU
 * they follow from the layers' FLOPs and bytes as an H100 takes for them and for the kernels'
 * starts, whatever GPU it is, and without one: forward once, recompute as much, backward twice
 * (with nothing to learn once); which layers weigh more than others that says well, how long a step
 * takes only by order of magnitude. Its `measured` is false. Statuses and ownership as
 * weir_profile_new.
 */
int weir_profile_estimate(const struct weir_model *model, const struct weir_net_options *net,
                          struct weir_faults *faults, struct weir_profile **profile);

/** A profile for the micro-batches of `net`, from known ones (at least one) for other rows: bytes
 * as weir_profile_new finds them; a layer's seconds on the line between the known profiles with the
 * next fewer and the next more rows, and beyond all of them as the estimate of
 * weir_profile_estimate grows from the nearest. Kernel times are no straight lines, so it is good
 * for saying which number of rows is worth measuring: what wins is best measured at its own.
 * WEIR_ERR_CONFIG: the known ones are not of this model, device, dtype and number of threads; else
 * as weir_profile_estimate. */
int weir_profile_scale(const struct weir_model *model, const struct weir_net_options *net,
                       const struct weir_profile *const *known, uint32_t count,
                       struct weir_faults *faults, struct weir_profile **profile);

/** How many micro-batches of a mini-batch the net's first replica has, which has the most. */
uint32_t weir_net_micro_batches(const struct weir_net_options *net);
/** Numbers of micro-batches, of all replicas, that are worth trying beside that of the net's own
 * chunks: ascending divisors of its rows near half as many as a replica's workers for each, as
 * many, twice … 16 times as many, in groups of one size. Returns how many there are; none without
 * rows or chunks. */
#define WEIR_NET_CHUNKS_MOST 6
uint32_t weir_net_chunks(const struct weir_net_options *net, uint32_t counts[WEIR_NET_CHUNKS_MOST]);

/** What a crossing between two of the net's workers is taken to cost, without measuring: 5
 * microseconds, and where their memories differ the time of the bytes over an H100's NVLink, or,
 * where one of them is a CPU, over its PCIe. */
struct weir_link_cost weir_net_link(const struct weir_net_options *net);
/** The same of each pair, into links[from * workers + to]: where devices differ, so do they. */
void weir_net_links(const struct weir_net_options *net, uint32_t workers,
                    struct weir_link_cost *links);
/** Which of a profile's costs each worker of the net has, into workers[count]; false: all have the
 * same, the first. */
bool weir_net_worker_costs(const struct weir_net_options *net, uint32_t count,
                           struct weir_worker_cost *workers);

/** What the net's replicas and groups are taken to cost, without measuring: where no links between
 * ranks are known all are on one host, and memory gives a core 10 GB/s. Without bytes. */
void weir_net_shared(const struct weir_net_options *net, struct weir_shared_costs *shared);

/** Searches for the pipeline of a net. Of `net` rows, chunks, workers (0: its stages), threads,
 * dtype, optimizer, replicas, groups and such count; stages, balance, schedule, checkpoint modes
 * and recompute are what is searched, and memory_limit is not looked at. Of `search` costs,
 * workers, micro_batches, scales and memory are filled in here; what is fixed, effort and limit are
 * the caller's, and so is which other numbers of micro-batches may be chosen, with their costs
 * (`others`: what scatter makes of the rows; of one replica). worker_costs of NULL are taken as
 * weir_net_worker_costs says them, a link of 0 as weir_net_link's or, where workers differ,
 * weir_net_links', `shared` of NULL as weir_net_shared's. The choice's workers and micro-batches
 * are of one replica. Bytes are those of a net with a memory limit, which keeps nothing just to
 * save time (packed weights). Statuses and the result as of weir_planner_search. Each ask for
 * memory compiles the stages anew: milliseconds. */
int weir_net_search(struct weir_planner *planner, const struct weir_model *model,
                    const struct weir_net_options *net, const struct weir_layer_costs *costs,
                    const struct weir_planner_options *search, struct weir_faults *faults,
                    struct weir_planner_result *result);

/** Writes the choice into the options of a net, whose arrays are then the choice's: borrowed until
 * the planner's next call. Its chunks change where they make another number of micro-batches. */
void weir_net_choose(const struct weir_planner_choice *choice, struct weir_net_options *net);

#ifdef __cplusplus
}
#endif
#endif
