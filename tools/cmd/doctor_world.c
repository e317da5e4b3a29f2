/* SPDX-License-Identifier: MIT */
#include "cmd/doctor_world.h"

#include "cli/args.h"
#include "cli/json_text.h"
#include "cli/links_file.h"
#include "cli/plan_text.h"
#include "cli/progress.h"
#include "world/allreduce.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern const char weir_build_commit[];

enum { PAIRS_SHOWN = 30 };
/* How long a rank that fails leaves to rank 0 to say why, and the launcher to pass it on. */
enum { GRACE_MS = 300 };

/* ---- joining and leaving ---- */

int doctor_world_join(struct doctor_world *doctor, struct weir_faults *faults) {
    int status = weir_world_mpi(NULL, NULL, faults, &doctor->world);
    doctor->joined = status == WEIR_OK;
    return status;
}

bool doctor_world_has_others(const struct doctor_world *doctor) {
    return doctor->joined && doctor->world.rank_count > 1;
}

bool doctor_world_leads(const struct doctor_world *doctor) {
    return !doctor_world_has_others(doctor) || doctor->world.rank == 0;
}

int doctor_world_agree(struct doctor_world *doctor, int status, struct weir_faults *faults) {
    const struct weir_world *world = doctor_world_has_others(doctor) ? &doctor->world : NULL;
    return weir__world_agree(world, status, 0, "views", faults);
}

int doctor_world_leave(struct doctor_world *doctor, int code) {
    free(doctor->ranks);
    free(doctor->costs);
    free(doctor->clocks);
    if (!doctor->joined) return code;
    const struct weir_world_calls *calls = doctor->world.calls;
    const struct timespec grace = {.tv_nsec =
                                       (doctor_world_leads(doctor) ? 1 : 2) * GRACE_MS * 1000000L};
    if (code != EXIT_DONE && doctor_world_has_others(doctor)) {
        fflush(NULL);
        (void)nanosleep(&grace, NULL);
        calls->abort(doctor->world.context, code);
    }
    calls->close(doctor->world.context);
    return code;
}

/* ---- looking ---- */

/* A text of all ranks that a run asks to be one: which there are, and the first that has each. */
static void compare(const struct doctor_world *doctor, size_t offset, const char *what,
                    struct weir_faults *problems) {
    const char *first = (const char *)&doctor->ranks[0] + offset;
    for (uint32_t r = 1; r < doctor->world.rank_count; r++) {
        const char *own = (const char *)&doctor->ranks[r] + offset;
        if (strcmp(own, first) == 0) continue;
        weir_faults_add(problems,
                        "rank 0 on %s has %s %s, rank %" PRIu32 " on %s has %s: a run "
                        "must have the same on all ranks",
                        doctor->ranks[0].host, what, first, r, doctor->ranks[r].host, own);
        return;
    }
}

static void describe_self(const struct doctor_world *doctor,
                          const struct weir__machine_facts *facts, const char *level,
                          struct doctor_rank *own) {
    own->cores = facts->cores;
    own->usable_cores = facts->usable_cores;
    snprintf(own->host, sizeof own->host, "%s", doctor->world.host);
    snprintf(own->library, sizeof own->library, "%s", doctor->world.name);
    snprintf(own->level, sizeof own->level, "%s", level);
    snprintf(own->weir, sizeof own->weir, "%s (%s)", weir_version(), weir_build_commit);
}

static int measure(struct doctor_world *doctor, struct weir_faults *faults) {
    const struct weir__links_how how = {0};
    int status = weir__clocks_compare(&doctor->world, &how, doctor->clocks, faults);
    if (status != WEIR_OK) return status;
    return weir__links_measure(&doctor->world, &how, doctor->costs, faults);
}

int doctor_world_look(struct doctor_world *doctor, const struct weir__machine_facts *facts,
                      const char *level, struct weir_faults *problems, struct weir_faults *faults) {
    size_t count = doctor->world.rank_count;
    struct weir_error error = {0};
    if (!doctor_world_has_others(doctor)) return WEIR_OK;
    doctor->ranks = calloc(count, sizeof *doctor->ranks);
    doctor->costs = calloc(count * count, sizeof *doctor->costs);
    doctor->clocks = calloc(count, sizeof *doctor->clocks);
    bool room = doctor->ranks != NULL && doctor->costs != NULL && doctor->clocks != NULL;
    int status = doctor_world_agree(doctor, room ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY, faults);
    if (status != WEIR_OK) return status;
    describe_self(doctor, facts, level, &doctor->ranks[doctor->world.rank]);
    status = weir__world_gather(&doctor->world, NULL, doctor->ranks, count * sizeof *doctor->ranks,
                                &error);
    if (status != WEIR_OK) weir_faults_add(faults, "%.200s", error.message);
    if (status != WEIR_OK) return status;
    compare(doctor, offsetof(struct doctor_rank, weir), "version", problems);
    compare(doctor, offsetof(struct doctor_rank, level), "kernels of level", problems);
    compare(doctor, offsetof(struct doctor_rank, library), "the library", problems);
    return measure(doctor, faults);
}

/* ---- for people ---- */

static uint32_t count_hosts(const struct doctor_world *doctor) {
    uint32_t hosts = 0;
    for (uint32_t r = 0; r < doctor->world.rank_count; r++) {
        bool known = false;
        for (uint32_t before = 0; before < r && !known; before++)
            known = strcmp(doctor->ranks[before].host, doctor->ranks[r].host) == 0;
        hosts += !known;
    }
    return hosts;
}

static void print_link(FILE *to, const char *title, const struct weir_link_cost *cost) {
    char latency[32];
    double bandwidth = cost->seconds_per_byte > 0.0 ? 1e-9 / cost->seconds_per_byte : 0.0;
    fprintf(to, "%-11s alpha %s, beta %.3g GB/s\n", title,
            time_text_seconds(cost->latency, latency), bandwidth);
}

static int compare_costs(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The least, the middle and the most of each, by themselves. */
static void print_spread(FILE *to, const struct doctor_world *doctor) {
    static const char *const titles[] = {"least", "median", "most"};
    size_t ranks = doctor->world.rank_count, count = 0;
    double *latencies = calloc(ranks * ranks, sizeof *latencies);
    double *slopes = calloc(ranks * ranks, sizeof *slopes);
    for (size_t i = 0; latencies != NULL && slopes != NULL && i < ranks * ranks; i++) {
        if (i / ranks == i % ranks) continue;
        latencies[count] = doctor->costs[i].latency;
        slopes[count++] = doctor->costs[i].seconds_per_byte;
    }
    if (count > 0) {
        qsort(latencies, count, sizeof *latencies, compare_costs);
        qsort(slopes, count, sizeof *slopes, compare_costs);
    }
    for (size_t i = 0; count > 0 && i < 3; i++) {
        const size_t at = i * (count - 1) / 2;
        const struct weir_link_cost cost = {latencies[at], slopes[count - 1 - at]};
        print_link(to, titles[i], &cost);
    }
    free(latencies);
    free(slopes);
}

void doctor_world_print(FILE *to, const struct doctor_world *doctor) {
    if (!doctor_world_has_others(doctor)) return;
    uint32_t ranks = doctor->world.rank_count, hosts = count_hosts(doctor);
    fprintf(to, "ranks       %" PRIu32 " on %" PRIu32 " host%s, by %s\n", ranks, hosts,
            weir__s(hosts), doctor->world.name);
    for (uint32_t r = 0; r < ranks; r++) {
        const struct doctor_rank *rank = &doctor->ranks[r];
        const struct weir__clock *clock = &doctor->clocks[r];
        fprintf(to, "rank %-6" PRIu32 " %s, %" PRIu32 " of %" PRIu32 " core%s, level %s", r,
                rank->host, rank->usable_cores, rank->cores, weir__s(rank->cores), rank->level);
        if (r > 0)
            fprintf(to, ", clock %+.1f us, within %.1f us", (double)clock->offset_ns * 1e-3,
                    (double)clock->error_ns * 1e-3);
        fputc('\n', to);
    }
    bool all = (uint64_t)ranks * (ranks - 1) <= PAIRS_SHOWN;
    for (uint32_t i = 0; all && i < ranks * ranks; i++) {
        char title[32];
        snprintf(title, sizeof title, "link %" PRIu32 " > %" PRIu32, i / ranks, i % ranks);
        if (i / ranks != i % ranks) print_link(to, title, &doctor->costs[i]);
    }
    if (!all) print_spread(to, doctor);
}

/* ---- for programs ---- */

void doctor_world_json(const struct doctor_world *doctor, json_t *object) {
    if (!doctor_world_has_others(doctor)) return;
    json_t *ranks = json_array();
    for (uint32_t r = 0; r < doctor->world.rank_count; r++) {
        const struct doctor_rank *rank = &doctor->ranks[r];
        const struct weir__clock *clock = &doctor->clocks[r];
        json_array_append_new(
            ranks, json_pack("{s:i, s:o, s:i, s:i, s:s, s:s, s:o, s:f, s:f}", "rank", (int)r,
                             "host", json_text_string(rank->host), "cores", (int)rank->cores,
                             "usable_cores", (int)rank->usable_cores, "level", rank->level,
                             "version", rank->weir, "mpi", json_text_string(rank->library),
                             "clock_offset", (double)clock->offset_ns * 1e-9, "clock_error",
                             (double)clock->error_ns * 1e-9));
    }
    json_object_set_new(object, "mpi", json_text_string(doctor->world.name));
    json_object_set_new(object, "ranks", ranks);
    json_object_set_new(object, "links", links_file_json(doctor->costs, doctor->world.rank_count));
}
