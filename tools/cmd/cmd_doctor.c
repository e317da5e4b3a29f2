/* SPDX-License-Identifier: MIT */
/* `weir doctor`: what the machine and its GPUs are, what Weir found on it, where it would put
 * workers, and how fast one core is, measured in some tenths of a second. Under a launcher also who
 * the ranks are, and what lies between them; then rank 0 alone speaks, and of its own machine. */
#include "cmd/commands.h"
#include "cli/args.h"
#include "cmd/doctor_gpus.h"
#include "cmd/doctor_world.h"
#include "cli/json_text.h"
#include "cli/net_run.h"
#include "net/cpu/level.h"
#include "net/profile/roofs.h"
#include "place/place.h"
#include "world/world.h"
#include "cli/plan_text.h"

#include <hwloc.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct doctor_values {
    const char *json, *bind;
    uint32_t workers, threads;
};

static const struct arg_option own[] = {
    {"workers", ARG_U32, offsetof(struct doctor_values, workers), "whose places are shown",
     .value = "P", .fallback = "2", .least = 1, .most = 1024},
    {"threads-per-stage", ARG_U32, offsetof(struct doctor_values, threads),
     "default: cores / workers", .value = "T", .least = 1, .most = 1024},
    {"bind", ARG_TEXT, offsetof(struct doctor_values, bind), "cores, e.g. 0-3,8",
     .value = "auto|none|LIST", .fallback = "auto", .environment = "WEIR_BIND"},
    {"json", ARG_TEXT, offsetof(struct doctor_values, json),
     "the same facts for programs; - is stdout", .value = "FILE"},
};

struct doctor {
    const struct doctor_values *values;
    struct weir__machine *machine;
    struct weir__machine_facts facts;
    struct weir__worker_place *placements;
    struct weir_faults problems;
    bool placed; /* the placements can be had */
    struct weir__roofs roofs;
    struct doctor_gpus gpus;
    struct doctor_world world;
};

/* ---- roofs ---- */

/* WEIR_LEVEL's, which is a problem where there is none such, or the best. */
static const struct weir__level *find_level(struct weir_faults *problems) {
    const struct weir__level *level = weir__level_at(0);
    if (weir__level_find(NULL, problems, &level) == WEIR_OK) return level;
    for (uint32_t i = 0; weir__level_at(i) != NULL; i++)
        if (weir__level_runs(weir__level_at(i))) level = weir__level_at(i);
    return level;
}

static const char *level_name(void) {
    return find_level(NULL)->name;
}

/* Measured now, as estimates of layers take them. */
static int measure_roofs(struct weir__roofs *roofs) {
    struct weir_profile of = {.dtype = WEIR_F32};
    snprintf(of.libraries, sizeof of.libraries, "%s", level_name());
    return weir__roofs_measure(&of, roofs);
}

/* ---- for people ---- */

static void print_machine(FILE *to, const struct weir__machine_facts *f) {
    char l1[24], l2[24], l3[24], memory[24];
    fprintf(to, "processor   %s%s\n", f->model,
            f->synthetic ? " (synthetic: nothing is bound)" : "");
    fprintf(to,
            "cores       %" PRIu32 " (%" PRIu32 " thread%s, %" PRIu32 " package%s, %" PRIu32
            " NUMA node%s); usable here: %" PRIu32,
            f->cores, f->processing_units, weir__s(f->processing_units), f->packages,
            weir__s(f->packages), f->numa_nodes, weir__s(f->numa_nodes), f->usable_cores);
    if (f->quota_cores > 0.0) fprintf(to, ", limited to %.2f by a cgroup", f->quota_cores);
    fprintf(to, "\ncaches      L1d %s, L2 %s, L3 %s x %" PRIu32 "\n",
            plan_text_bytes(f->l1d_bytes, l1), plan_text_bytes(f->l2_bytes, l2),
            plan_text_bytes(f->l3_bytes, l3), f->l3_count);
    fprintf(to, "memory      %s\n", plan_text_bytes(f->memory_bytes, memory));
}

static void print_doctor(FILE *to, const struct doctor *d) {
    print_machine(to, &d->facts);
    doctor_gpus_print(to, &d->gpus);
    fprintf(to, "kernels     level %s\n", level_name());
    fprintf(to, "libraries   hwloc %d.%d.%d, jansson %s\n", HWLOC_API_VERSION >> 16,
            HWLOC_API_VERSION >> 8 & 255, HWLOC_API_VERSION & 255, JANSSON_VERSION);
    for (uint32_t w = 0; d->placed && w < d->values->workers; w++) {
        const struct weir__worker_place *p = &d->placements[w];
        fprintf(to, "worker %-4" PRIu32 " ", w);
        if (!p->place.bound)
            fprintf(to, "not bound, %" PRIu32 " thread%s", p->threads, weir__s(p->threads));
        else
            fprintf(to, "cores %s, NUMA node %" PRId32 "%s%s", p->place.cores, p->place.numa_node,
                    p->place.cache[0] != '\0' ? ", sharing " : "", p->place.cache);
        fprintf(to, "%s\n",
                p->exclusive ? ", its own: waits by spinning" : ", shared: waits parked");
    }
    fprintf(to, "one core    %.0f GFLOP/s in products, copies %.1f GB/s in cache;\n",
            d->roofs.product * 1e-9, d->roofs.copy_cached * 1e-9);
    fprintf(to, "            each GB of operands beyond it takes %.0f ms more\n",
            1e12 / d->roofs.memory);
    doctor_world_print(to, &d->world);
    for (uint32_t i = 0; i < d->problems.kept; i++)
        fprintf(to, "problem     %s\n", d->problems.lines[i]);
}

/* ---- for programs ---- */

static json_t *places_json(const struct doctor *d) {
    json_t *places = json_array();
    for (uint32_t w = 0; d->placed && w < d->values->workers; w++) {
        const struct weir__worker_place *p = &d->placements[w];
        json_array_append_new(
            places, json_pack("{s:i, s:b, s:s, s:i, s:s, s:b, s:i}", "worker", (int)w, "bound",
                              p->place.bound, "cores", p->place.cores, "numa_node",
                              (int)p->place.numa_node, "cache", p->place.cache, "exclusive",
                              p->exclusive, "threads", (int)p->threads));
    }
    return places;
}

static json_t *doctor_json(const struct doctor *d) {
    const struct weir__machine_facts *f = &d->facts;
    char hwloc[32];
    json_t *problems = json_array();
    for (uint32_t i = 0; i < d->problems.kept; i++)
        json_array_append_new(problems, json_text_string(d->problems.lines[i]));
    snprintf(hwloc, sizeof hwloc, "%d.%d.%d", HWLOC_API_VERSION >> 16, HWLOC_API_VERSION >> 8 & 255,
             HWLOC_API_VERSION & 255);
    json_t *caches = json_pack("{s:I, s:I, s:I, s:i}", "l1d", (json_int_t)f->l1d_bytes, "l2",
                               (json_int_t)f->l2_bytes, "l3", (json_int_t)f->l3_bytes, "l3_count",
                               (int)f->l3_count);
    json_t *libraries = json_pack("{s:s, s:s, s:s}", "hwloc", hwloc, "jansson", JANSSON_VERSION,
                                  "level", level_name());
    doctor_gpus_json_libraries(&d->gpus, libraries);
    json_t *roofs =
        json_pack("{s:f, s:f, s:f}", "gemm_flops", d->roofs.product, "copy_cached_bytes",
                  d->roofs.copy_cached, "memory_bytes_per_second", d->roofs.memory);
    json_t *root = json_pack(
        "{s:s, s:i, s:i, s:f, s:i, s:i, s:o, s:I, s:o, s:o, s:o, s:o, s:o}", "model", f->model,
        "cores", (int)f->cores, "usable_cores", (int)f->usable_cores, "quota_cores", f->quota_cores,
        "packages", (int)f->packages, "numa_nodes", (int)f->numa_nodes, "caches", caches, "memory",
        (json_int_t)f->memory_bytes, "gpus", doctor_gpus_json(&d->gpus), "libraries", libraries,
        "places", places_json(d), "roofs", roofs, "problems", problems);
    doctor_world_json(&d->world, root);
    return root;
}

static int examine(struct doctor *d) {
    int status = weir__machine_new(NULL, &d->machine);
    if (status != WEIR_OK) return status;
    weir__machine_facts(d->machine, &d->facts);
    d->placements = calloc(d->values->workers, sizeof *d->placements);
    if (d->placements == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    /* what cannot be bound is a finding, not a failure */
    struct weir__place_request request = {
        .bind = d->values->bind, .workers = d->values->workers, .threads = d->values->threads};
    (void)weir__place_plan(d->machine, &request, &d->problems, d->placements);
    d->placed = d->problems.count == 0;
    (void)find_level(&d->problems);
    if (!doctor_world_leads(&d->world)) return WEIR_OK; /* nor disturbs what is measured */
    status = doctor_gpus_look(&d->gpus, d->machine, &d->problems);
    return status == WEIR_OK ? measure_roofs(&d->roofs) : status;
}

static int run(struct doctor *d, struct weir_faults *faults, struct weir_error *error) {
    struct people people;
    int status = doctor_world_agree(&d->world, examine(d), faults);
    if (status != WEIR_OK) return status;
    status = doctor_world_look(&d->world, &d->facts, level_name(), &d->problems, faults);
    if (status != WEIR_OK || !doctor_world_leads(&d->world)) return status;
    people_init(&people, output_is_standard(d->values->json));
    print_doctor(people.stream, d);
    if (d->values->json == NULL) return WEIR_OK;
    return json_text_save(d->values->json, doctor_json(d), error);
}

/* Of options that cannot be all ranks come to know, before they end. */
static int start(struct doctor *d, struct weir_faults *faults, struct weir_error *error) {
    int asked = faults->count > 0 ? WEIR_ERR_ARGUMENT : WEIR_OK;
    int status = doctor_world_join(&d->world, faults);
    if (status != WEIR_OK) return status;
    status = doctor_world_agree(&d->world, asked, faults);
    return status == WEIR_OK ? run(d, faults, error) : status;
}

/* What is wrong rank 0 says, for all. */
static int end(const struct doctor *d, const struct arg_command *command,
               struct weir_faults *faults, int status, struct weir_error *error) {
    if (doctor_world_leads(&d->world)) return args_end(command, faults, status, error);
    weir_faults_clean_up(faults);
    return status == WEIR_OK ? EXIT_DONE : EXIT_FAILED;
}

int cmd_doctor(int argc, char **argv) {
    const struct arg_section sections[] = {{"Options", own, sizeof own / sizeof own[0], 0}};
    const struct arg_command command = {"doctor", "the machine, and where workers would go", NULL,
                                        sections, 1};
    struct doctor_values values = {0};
    struct args args;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_error error = {0};
    struct doctor doctor = {.values = &values, .problems = WEIR_FAULTS_INIT};
    if (args_parse(&args, &command, argc, argv, &values, &faults)) return EXIT_DONE;
    if (weir__launch_read().rank == 0 && !output_is_standard(values.json))
        net_run_check_output("json", values.json, &faults);
    int status = start(&doctor, &faults, &error);
    int code = end(&doctor, &command, &faults, status, &error);
    doctor_gpus_clean_up(&doctor.gpus);
    free(doctor.placements);
    weir__machine_destroy(doctor.machine);
    weir_faults_clean_up(&doctor.problems);
    return doctor_world_leave(&doctor.world, code);
}
