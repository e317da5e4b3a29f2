/* SPDX-License-Identifier: MIT */
#include "hosts.h"

#include "cli/pipe_costs.h"
#include "net/compile/compile.h"

#include <string.h>

/* ---- measuring ---- */

static void fill(const struct weir_simulate_options *options, struct hosts_shape *shape) {
    if (options->skip_count > HOSTS_SKIPS_MOST) bench_die("hosts: too many skips");
    shape->skip_count = options->skip_count;
    for (uint32_t s = 0; s < shape->stages; s++) {
        memcpy(shape->seconds[s], &options->stage_seconds[(size_t)s * WEIR_KIND_COUNT],
               sizeof shape->seconds[s]);
        shape->seconds[s][WEIR_KIND_N] = shape->seconds[s][WEIR_KIND_U] = 0.0;
        bool last = s + 1 == shape->stages;
        shape->borders[s] = last ? sizeof(float) : options->border_bytes[s];
    }
    for (uint32_t k = 0; k < options->skip_count; k++) {
        const struct weir_skip_route *route = &options->skips[k];
        struct hosts_skip *skip = &shape->skips[k];
        if (route->reader_count > HOSTS_READERS_MOST) bench_die("hosts: too many readers");
        *skip = (struct hosts_skip){.source = route->source,
                                    .reader_count = route->reader_count,
                                    .bytes = route->bytes,
                                    .differentiable = route->differentiable};
        memcpy(skip->readers, route->readers, route->reader_count * sizeof *skip->readers);
    }
}

static void measure(struct bench *bench, const struct training_job *job,
                    struct hosts_shape *shape) {
    struct training_shape how = {.schedule = shape->schedule,
                                 .stages = shape->stages,
                                 .workers = shape->workers,
                                 .chunks = shape->chunks,
                                 .threads = 1};
    struct weir_profile_options options = WEIR_PROFILE_OPTIONS_INIT;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_profile *profile = NULL;
    struct pipe_step step = {0};
    uint32_t sizes[HOSTS_STAGES_MOST];
    for (uint32_t s = 0; s < shape->stages; s++) how.checkpoint[s] = WEIR_CHECKPOINT_NEVER;
    options.net = training_options(job, &how);
    options.seconds = bench->options.quick ? 0 : 1;
    bench_check_faults(
        weir__partition_model(job->model, job->dtype, shape->stages, NULL, sizes, &faults),
        shape->name, &faults);
    options.net.balance = sizes;
    bench_check_faults(weir_profile_new(job->model, &options, &faults, &profile), shape->name,
                       &faults);
    bench_check_faults(pipe_step_init(&step, profile, &options.net, &faults), shape->name, &faults);
    fill(&step.options, shape);
    pipe_step_clean_up(&step);
    weir_profile_destroy(profile);
}

void hosts_shape_measure(const struct hosts *hosts, const struct training_job *job,
                         const char *name, const char *schedule, uint32_t workers, uint32_t chunks,
                         struct hosts_shape *shape) {
    struct training_job own = *job;
    memset(shape, 0, sizeof *shape);
    if (hosts->world.rank == 0) {
        snprintf(shape->name, sizeof shape->name, "%s", name);
        snprintf(shape->schedule, sizeof shape->schedule, "%s", schedule);
        shape->stages = shape->workers = workers;
        shape->chunks = chunks;
        training_make(hosts->bench, &own);
        measure(hosts->bench, &own, shape);
        training_job_clean_up(&own);
    }
    hosts_tell(hosts, shape, sizeof *shape);
}

/* ---- predicting ---- */

double hosts_shape_predict(const struct hosts *hosts, const struct hosts_shape *shape,
                           bool one_process) {
    struct weir_simulate_options options = WEIR_SIMULATE_OPTIONS_INIT;
    struct weir_table_options table = WEIR_TABLE_OPTIONS_INIT;
    struct weir_skip_route skips[HOSTS_SKIPS_MOST];
    const struct weir_rank_links ranks = {hosts->world.rank_count, hosts->costs, hosts->numbers};
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_simulator *simulator;
    struct weir_prediction prediction;
    struct weir_table *made;
    table.schedule = shape->schedule;
    table.stages = shape->stages;
    table.workers = shape->workers;
    table.micro_batches = shape->chunks;
    table.checkpoint = WEIR_CHECKPOINT_NEVER;
    bench_check_faults(weir_table_new(&table, &faults, &made), shape->name, &faults);
    for (uint32_t k = 0; k < shape->skip_count; k++)
        skips[k] = (struct weir_skip_route){.source = shape->skips[k].source,
                                            .reader_count = shape->skips[k].reader_count,
                                            .readers = shape->skips[k].readers,
                                            .bytes = shape->skips[k].bytes,
                                            .differentiable = shape->skips[k].differentiable};
    options.table = made;
    options.stage_seconds = &shape->seconds[0][0];
    options.border_bytes = shape->borders;
    options.skip_count = shape->skip_count;
    options.skips = skips;
    options.no_causes = true;
    if (!one_process) options.ranks = &ranks;
    bench_check(weir_simulator_new(NULL, &simulator), shape->name);
    bench_check_faults(weir_simulate(simulator, &options, &faults, &prediction), shape->name,
                       &faults);
    weir_simulator_destroy(simulator);
    weir_table_destroy(made);
    return prediction.step;
}
