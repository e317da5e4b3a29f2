/* SPDX-License-Identifier: MIT */
#include "cmd/doctor_gpus.h"

#include "cli/plan_text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void look_at_libraries(struct doctor_gpus *gpus, struct weir_faults *problems) {
    const struct weir__gpu_library *library;
    for (uint32_t i = 0; (library = weir__gpu_library_at(i)) != NULL; i++) {
        assert(i < DOCTOR_LIBRARIES_MAX);
        weir__gpu_library_find(library, &gpus->libraries[i]);
        if (gpus->found.count == 0 || gpus->found.fake) continue; /* then none is used */
        const struct weir__gpu_library_facts *facts = &gpus->libraries[i];
        if (facts->state == WEIR__LIBRARY_OLD)
            weir_faults_add(problems, "%s %s is too old: install %u.%u or newer", library->name,
                            facts->version, library->least / 10000, library->least / 100 % 100);
        if (facts->state == WEIR__LIBRARY_BROKEN)
            weir_faults_add(problems, "%s (%s) does not say its version: install it anew",
                            library->name, facts->file);
    }
}

int doctor_gpus_look(struct doctor_gpus *gpus, const struct weir__machine *machine,
                     struct weir_faults *problems) {
    int status = weir__gpus_survey(&gpus->found, &gpus->error);
    if (status != WEIR_OK && status != WEIR_ERR_NOT_FOUND)
        weir_faults_add(problems, "%s", gpus->error.message);
    if (gpus->found.count > 0 && !gpus->found.kernels && !gpus->found.fake)
        weir_faults_add(problems,
                        "there are GPUs, but this build has no CUDA kernels, for nvcc was "
                        "not found: install the CUDA toolkit and build again");
    look_at_libraries(gpus, problems);
    gpus->near = calloc(gpus->found.count + 1u, sizeof *gpus->near);
    if (gpus->near == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t g = 0; g < gpus->found.count; g++)
        if (weir__place_near(machine, gpus->found.gpu[g].pci, &gpus->near[g]) != WEIR_OK)
            gpus->near[g].numa_node = -1;
    return WEIR_OK;
}

void doctor_gpus_clean_up(struct doctor_gpus *gpus) {
    free(gpus->near);
}

/* ---- for people ---- */

static void print_gpu(FILE *to, const struct doctor_gpus *gpus, uint32_t g) {
    const struct weir__gpu *gpu = &gpus->found.gpu[g];
    const struct weir__near *near = &gpus->near[g];
    char memory[24];
    fprintf(to, "cuda:%-6" PRIu32 " %s, %s, compute capability %d.%d, %d multiprocessors, PCI %s, ",
            g, gpu->name, plan_text_bytes(gpu->memory_bytes, memory), gpu->capability_major,
            gpu->capability_minor, gpu->multiprocessors, gpu->pci);
    if (near->numa_node >= 0)
        fprintf(to, "NUMA node %" PRId32, near->numa_node);
    else
        fprintf(to, "NUMA node unknown");
    if (near->cores[0] != '\0') fprintf(to, ", near cores %s", near->cores);
    fputc('\n', to);
}

/* A row per GPU: which others' memory it uses directly. */
static void print_links(FILE *to, const struct doctor_gpus *gpus) {
    uint32_t count = gpus->found.count;
    if (count < 2) return;
    fprintf(to, "links       ");
    for (uint32_t g = 0; g < count; g++) fprintf(to, "%8s%-2" PRIu32, "to cuda:", g);
    for (uint32_t g = 0; g < count; g++) {
        fprintf(to, "\n  cuda:%-4" PRIu32 " ", g);
        for (uint32_t other = 0; other < count; other++) {
            bool direct = gpus->found.gpu[g].reaches >> other & 1u;
            fprintf(to, "%10s", other == g ? "-" : direct ? "direct" : "staged");
        }
    }
    fputc('\n', to);
}

static void print_library(FILE *to, const struct weir__gpu_library *library,
                          const struct weir__gpu_library_facts *facts) {
    fprintf(to, ", %s %s", library->name,
            facts->state == WEIR__LIBRARY_MISSING  ? "missing"
            : facts->state == WEIR__LIBRARY_BROKEN ? "broken"
                                                   : facts->version);
    if (facts->state == WEIR__LIBRARY_OLD) fprintf(to, " (too old)");
    if (facts->state == WEIR__LIBRARY_MISSING) fprintf(to, " (%s)", library->files[0]);
}

void doctor_gpus_print(FILE *to, const struct doctor_gpus *gpus) {
    const struct weir__gpu_library *library;
    if (gpus->found.count == 0) fprintf(to, "GPUs        none: %s\n", gpus->error.message);
    for (uint32_t g = 0; g < gpus->found.count; g++) print_gpu(to, gpus, g);
    print_links(to, gpus);
    fprintf(to, "CUDA        ");
    if (gpus->found.version > 0)
        fprintf(to, "driver for %d.%d, ", gpus->found.version / 1000,
                gpus->found.version % 1000 / 10);
    fprintf(to, "%skernels in this build", gpus->found.kernels ? "" : "no ");
    for (uint32_t i = 0; (library = weir__gpu_library_at(i)) != NULL; i++)
        print_library(to, library, &gpus->libraries[i]);
    fputc('\n', to);
}

/* ---- for programs ---- */

json_t *doctor_gpus_json(const struct doctor_gpus *gpus) {
    json_t *list = json_array();
    for (uint32_t g = 0; g < gpus->found.count; g++) {
        const struct weir__gpu *gpu = &gpus->found.gpu[g];
        char capability[32];
        json_t *reaches = json_array();
        for (uint32_t other = 0; other < gpus->found.count; other++)
            if (gpu->reaches >> other & 1u) json_array_append_new(reaches, json_integer(other));
        snprintf(capability, sizeof capability, "%d.%d", gpu->capability_major,
                 gpu->capability_minor);
        json_array_append_new(list, json_pack("{s:s, s:I, s:s, s:i, s:s, s:i, s:s, s:o}", "name",
                                              gpu->name, "memory", (json_int_t)gpu->memory_bytes,
                                              "capability", capability, "multiprocessors",
                                              (int)gpu->multiprocessors, "pci", gpu->pci,
                                              "numa_node", (int)gpus->near[g].numa_node, "cores",
                                              gpus->near[g].cores, "reaches", reaches));
    }
    return list;
}

void doctor_gpus_json_libraries(const struct doctor_gpus *gpus, json_t *libraries) {
    const struct weir__gpu_library *library;
    char text[32] = "";
    if (gpus->found.version > 0)
        snprintf(text, sizeof text, "%d.%d", gpus->found.version / 1000,
                 gpus->found.version % 1000 / 10);
    json_object_set_new(libraries, "cuda", json_string(text));
    for (uint32_t i = 0; (library = weir__gpu_library_at(i)) != NULL; i++) {
        size_t length = strlen(library->name);
        assert(length < sizeof text);
        for (size_t c = 0; c <= length; c++)
            text[c] = (char)tolower((unsigned char)library->name[c]);
        json_object_set_new(libraries, text, json_string(gpus->libraries[i].version));
    }
}
