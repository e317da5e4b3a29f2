/* SPDX-License-Identifier: MIT */
/* The planner's layers and memory are those of a model. */
#include "weir_profile.h"

#include "base/pool.h"
#include "device/device.h"
#include "pipe/describe/groups.h"
#include "pipe/describe/microbatch.h"
#include "pipe/lanes/ways.h"

#include <math.h>
#include <string.h>

static const double link_seconds = 5e-6;
/* Of a core's loop over memory: a sum reads two bytes and writes one for each, a message between
 * processes of a host reads and writes one. */
static const double memory_bytes_per_second = 1e10;

struct asking {
    const struct weir_model *model;
    const struct weir_net_options *net;
};

void weir_net_choose(const struct weir_planner_choice *choice, struct weir_net_options *net) {
    assert(choice->micro_batches >= 1 && choice->stages >= 1);
    if (weir_net_micro_batches(net) != choice->micro_batches)
        net->pipe.chunks = choice->micro_batches * weir__replicas(&net->pipe);
    net->stages = choice->stages;
    net->balance = choice->balance;
    net->pipe.workers = choice->workers;
    net->pipe.schedule = choice->schedule;
    net->pipe.table_csv = NULL;
    net->pipe.table_csv_bytes = 0;
    net->pipe.stage_checkpoint = choice->checkpoint;
    net->pipe.recompute_late = choice->recompute_late;
}

static int plan_bytes(void *context, const struct weir_planner_choice *choice, uint64_t *bytes) {
    const struct asking *asking = context;
    struct weir_net_options net = *asking->net;
    struct weir_plan *plan;
    weir_net_choose(choice, &net);
    net.pipe.memory_limit = UINT64_MAX; /* nothing is above it, and nothing kept to save time */
    int status = weir_net_plan(asking->model, &net, NULL, &plan);
    if (status != WEIR_OK) return status;
    *bytes = 0;
    for (uint32_t d = 0; d < plan->device_count; d++)
        if (plan->devices[d].total > *bytes) *bytes = plan->devices[d].total;
    weir_plan_destroy(plan);
    return WEIR_OK;
}

/* A worker's; 0: the host's. */
static uint32_t memory_of(const struct weir_net_options *net, uint32_t worker) {
    const struct weir_pipe_options *pipe = &net->pipe;
    return worker < pipe->device_count ? weir__device_facts(pipe->devices[worker]).memory : 0;
}

static double byte_seconds(bool by_host) {
    enum weir__link_kind kind = by_host ? WEIR__LINK_HOST : WEIR__LINK_PEER;
    return 1e-9 / weir__link_speed(kind)->bytes_per_ns;
}

struct weir_link_cost weir_net_link(const struct weir_net_options *net) {
    struct weir_link_cost link = {.latency = link_seconds};
    uint32_t first = memory_of(net, 0);
    bool apart = false, by_host = first == 0;
    for (uint32_t w = 1; w < net->pipe.device_count; w++) {
        uint32_t memory = memory_of(net, w);
        apart |= memory != first;
        by_host |= memory == 0;
    }
    if (apart) link.seconds_per_byte = byte_seconds(by_host);
    return link;
}

void weir_net_links(const struct weir_net_options *net, uint32_t workers,
                    struct weir_link_cost *links) {
    for (uint32_t i = 0; i < workers * workers; i++) {
        uint32_t from = memory_of(net, i / workers), to = memory_of(net, i % workers);
        links[i] = (struct weir_link_cost){.latency = link_seconds};
        if (from != to) links[i].seconds_per_byte = byte_seconds(from == 0 || to == 0);
    }
}

bool weir_net_worker_costs(const struct weir_net_options *net, uint32_t count,
                           struct weir_worker_cost *workers) {
    uint32_t gpus = 0;
    for (uint32_t w = 0; w < count; w++) {
        workers[w] = (struct weir_worker_cost){.kind = memory_of(net, w) != 0, .pace = 1};
        gpus += workers[w].kind;
    }
    for (uint32_t w = 0; gpus == count && w < count; w++) workers[w].kind = 0; /* all there is */
    return gpus > 0 && gpus < count;
}

void weir_net_shared(const struct weir_net_options *net, struct weir_shared_costs *shared) {
    uint32_t replicas = weir__replicas(&net->pipe), groups = weir__gradient_groups(&net->pipe);
    *shared = (struct weir_shared_costs){
        .replicas = replicas,
        .groups = groups / replicas,
        .add_seconds_per_byte = 3.0 / memory_bytes_per_second,
        .link = {.latency = link_seconds, .seconds_per_byte = 2.0 / memory_bytes_per_second}};
}

/* ---- numbers of micro-batches ---- */

uint32_t weir_net_micro_batches(const struct weir_net_options *net) {
    return weir__groups_of(&net->pipe, 0, net->pipe.rows).count;
}

/* The divisor that is nearest, by ratio, but for less than a factor of sqrt(2); 0: none. */
static uint32_t nearest_divisor(int64_t rows, double target) {
    double most = target * sqrt(2.0), near = sqrt(2.0);
    uint32_t found = 0;
    for (uint32_t d = 1; d <= rows && d < most; d++) {
        double ratio = d < target ? target / d : d / target;
        if (rows % d != 0 || ratio >= near) continue;
        near = ratio;
        found = d;
    }
    return found;
}

uint32_t weir_net_chunks(const struct weir_net_options *net,
                         uint32_t counts[WEIR_NET_CHUNKS_MOST]) {
    uint32_t count = 0, workers = net->pipe.workers > 0 ? net->pipe.workers : net->stages;
    uint32_t groups = weir__gradient_groups(&net->pipe), replicas = weir__replicas(&net->pipe);
    if (net->pipe.rows < 1 || net->pipe.chunks < 1 || net->pipe.rows % groups != 0) return 0;
    uint32_t own = weir__chunk_count(net->pipe.rows, net->pipe.chunks);
    for (uint32_t i = 0; i < WEIR_NET_CHUNKS_MOST; i++) {
        double wanted = 0.5 * workers * (double)(1u << i) * replicas / groups;
        uint32_t next = groups * nearest_divisor(net->pipe.rows / groups, wanted);
        bool known = next == 0 || next == own || (count > 0 && next <= counts[count - 1]);
        if (!known) counts[count++] = next;
    }
    return count;
}

/* A micro-batch of fewer rows takes as much less. */
static const double *scales(struct weir__pool *pool, int64_t rows, uint32_t count,
                            uint32_t chunks) {
    double *scale = weir__pool_take(pool, count, sizeof *scale);
    if (scale != NULL) weir__chunk_parts(rows, chunks, scale);
    return scale;
}

/* ---- the search ---- */

/* Divisors' micro-batches are all alike. */
static int fill_chunks(struct weir__pool *pool, const struct weir_net_options *net,
                       struct weir_planner_options *options, struct weir_faults *faults) {
    int64_t rows = net->pipe.rows;
    bool sound = options->other_count <= WEIR_PLANNER_OTHERS_MOST &&
                 (options->other_count == 0 || options->others != NULL);
    if (!sound) return WEIR_ERR_ARGUMENT;
    struct weir_planner_chunks *others =
        weir__pool_copy(pool, options->others, options->other_count, sizeof *others);
    uint32_t replicas = weir__replicas(&net->pipe);
    options->micro_batches = weir_net_micro_batches(net); /* the first of all have its scales */
    options->micro_batch_scale =
        scales(pool, rows, weir__chunk_count(rows, net->pipe.chunks), net->pipe.chunks);
    if (others == NULL || options->micro_batch_scale == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < options->other_count; i++) {
        uint32_t count = others[i].micro_batches * replicas;
        if (count < 1 || weir__chunk_count(rows, count) != count) {
            weir_faults_add(faults,
                            "scatter does not make %u micro-batch%s of %lld row%s: take a number "
                            "of weir_net_chunks",
                            count, weir__es(count), (long long)rows, weir__s((uint64_t)rows));
            return WEIR_ERR_ARGUMENT;
        }
        others[i].micro_batch_scale = scales(pool, rows, count, count);
        if (others[i].micro_batch_scale == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    }
    options->others = others;
    return WEIR_OK;
}

/* Which costs each worker has, and what lies between them. */
static int fill_workers(struct weir__pool *pool, const struct weir_net_options *net,
                        const struct weir_layer_costs *costs, struct weir_planner_options *options,
                        struct weir_faults *faults) {
    size_t count = options->workers;
    bool linked = options->link.latency > 0 || options->link.seconds_per_byte > 0;
    struct weir_worker_cost *workers = weir__pool_take(pool, count, sizeof *workers);
    if (workers == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    bool differ = weir_net_worker_costs(net, options->workers, workers);
    if (differ && costs->other == NULL) {
        weir_faults_add(faults, "workers on CPUs and GPUs, and costs of one of them: give a "
                                "profile's of both");
        return WEIR_ERR_ARGUMENT;
    }
    if (differ && options->worker_costs == NULL) options->worker_costs = workers;
    if (linked || options->links != NULL) return WEIR_OK;
    options->link = weir_net_link(net);
    if (!differ) return WEIR_OK;
    struct weir_link_cost *links = weir__pool_take(pool, count * count, sizeof *links);
    if (links == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    weir_net_links(net, options->workers, links);
    options->links = links;
    return WEIR_OK;
}

static bool check_groups(const struct weir_net_options *net, struct weir_faults *faults) {
    struct weir_faults own = WEIR_FAULTS_INIT;
    own.allocator = net->pipe.allocator;
    weir__groups_check(&net->pipe, &own);
    bool sound = own.count == 0 && weir__groups_check_rows(&net->pipe, net->pipe.rows, faults);
    for (uint32_t i = 0; i < own.kept; i++) weir_faults_add(faults, "%s", own.lines[i]);
    weir_faults_clean_up(&own);
    return sound;
}

int weir_net_search(struct weir_planner *planner, const struct weir_model *model,
                    const struct weir_net_options *net, const struct weir_layer_costs *costs,
                    const struct weir_planner_options *search, struct weir_faults *faults,
                    struct weir_planner_result *result) {
    if (!weir__is_sized(search) || !weir__is_sized(net)) {
        weir_faults_add(faults, WEIR__BEGIN_WITH,
                        "WEIR_PLANNER_OPTIONS_INIT and WEIR_NET_OPTIONS_INIT");
        return WEIR_ERR_ARGUMENT;
    }
    struct weir_planner_options options = *search;
    struct asking asking = {model, net};
    if (net->pipe.rows < 1 || net->pipe.chunks < 1) {
        weir_faults_add(faults, "no rows, or no chunks: ask for 1 or more of each");
        return WEIR_ERR_ARGUMENT;
    }
    if (!check_groups(net, faults)) return WEIR_ERR_CONFIG;
    struct weir__pool pool;
    weir__pool_init(&pool, net->pipe.allocator);
    options.costs = costs;
    options.workers = net->pipe.workers > 0 ? net->pipe.workers : net->stages;
    struct weir_shared_costs shared;
    weir_net_shared(net, &shared);
    if (options.shared == NULL && weir__gradient_groups(&net->pipe) > 1) options.shared = &shared;
    options.memory = plan_bytes;
    options.memory_context = &asking;
    int status = fill_workers(&pool, net, costs, &options, faults);
    if (status != WEIR_OK) goto out;
    if ((status = fill_chunks(&pool, net, &options, faults)) != WEIR_OK) goto out;
    status = weir_planner_search(planner, &options, faults, result);
out:
    weir__pool_clean_up(&pool);
    return status;
}
