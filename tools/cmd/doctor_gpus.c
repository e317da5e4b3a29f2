/* SPDX-License-Identifier: MIT */
#include "cmd/doctor_gpus.h"

#include "cli/plan_text.h"
#include "io/cache.h"
#include "net/cuda/cudnn_attention.h"
#include "net/cuda/numerics.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ENGINES_MAX = 64 };

/* What networks compute with must be as they will open it. */
static void look_at_libraries(struct doctor_gpus *gpus, struct weir_faults *problems) {
    const struct weir__gpu_library *library;
    for (uint32_t i = 0; (library = weir__gpu_library_at(i)) != NULL; i++) {
        assert(i < DOCTOR_LIBRARIES_MAX);
        weir__gpu_library_find(library, &gpus->libraries[i]);
        if (gpus->found.count == 0) continue; /* then they need not be good */
        const struct weir__gpu_library_facts *facts = &gpus->libraries[i];
        struct weir_error error = {0};
        gpus->opens[i] = weir__cuda_library_check(library->name, &error) == WEIR_OK;
        if (!gpus->opens[i])
            weir_faults_add(problems, "%s", error.message);
        else if (facts->state == WEIR__LIBRARY_OLD)
            weir_faults_add(problems, "%s %s is too old: install %u.%u or newer", library->name,
                            facts->version, library->least / 10000, library->least / 100 % 100);
        else if (facts->state == WEIR__LIBRARY_BROKEN)
            weir_faults_add(problems, "%s (%s) does not say its version: install it anew",
                            library->name, facts->file);
    }
}

static int capability_of(const struct weir__gpu *gpu) {
    return 10 * gpu->capability_major + gpu->capability_minor;
}

/* All images of a build are for the same architectures. */
static void look_at_images(const struct weir__gpus *found, struct weir_faults *problems,
                           struct weir__cuda_fit fits[]) {
    if (!found->kernels) return;
    size_t image = 0;
    while (
        !weir__cuda_image_serves(weir__cuda_images, weir__cuda_image_count, image, found->version))
        image++;
    for (uint32_t g = 0; g < found->count; g++) {
        int capability = capability_of(&found->gpu[g]);
        fits[g] = weir__cuda_fit(&weir__cuda_images[image], capability, found->version);
        if (fits[g].kind == WEIR__CUDA_OLD_DRIVER)
            weir_faults_add(problems,
                            "cuda:%u takes this build's kernels, of CUDA %d.%d, by a driver for "
                            "CUDA %d.%d or newer, and this one is for %d.%d: update the NVIDIA "
                            "driver, or build with a toolkit of CUDA %d (-Dcuda-path), or for "
                            "both ('portable' with -Dcuda-12)",
                            g, fits[g].toolkit / 1000, fits[g].toolkit % 1000 / 10,
                            fits[g].needs / 1000, fits[g].needs % 1000 / 10, found->version / 1000,
                            found->version % 1000 / 10, found->version / 1000);
        if (fits[g].kind == WEIR__CUDA_OLD_GPU)
            weir_faults_add(problems,
                            "cuda:%u is of compute capability %d.%d, older than all that this "
                            "build has kernels for (%s): use a newer GPU, or cpu",
                            g, capability / 10, capability % 10, weir__cuda_images[image].targets);
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
    gpus->fits = calloc(gpus->found.count + 1u, sizeof *gpus->fits);
    if (gpus->near == NULL || gpus->fits == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    look_at_images(&gpus->found, problems, gpus->fits);
    for (uint32_t g = 0; g < gpus->found.count; g++)
        if (weir__place_near(machine, gpus->found.gpu[g].pci, &gpus->near[g]) != WEIR_OK)
            gpus->near[g].numa_node = -1;
    return WEIR_OK;
}

void doctor_gpus_clean_up(struct doctor_gpus *gpus) {
    free(gpus->fits);
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

static uint32_t index_of(const char *name) {
    uint32_t i = 0;
    while (weir__gpu_library_at(i) != weir__gpu_library_named(name)) i++;
    return i;
}

/* NULL: by cuDNN, as far as its shapes go. */
static const char *why_own_attention(const struct doctor_gpus *gpus, uint32_t g) {
    const uint32_t at = index_of("cuDNN");
    const struct weir__gpu_library_facts *cudnn = &gpus->libraries[at];
    unsigned major = 0, minor = 0, patch = 0;
    (void)sscanf(cudnn->version, "%u.%u.%u", &major, &minor, &patch);
    if (!weir__cudnn_attends_on(capability_of(&gpus->found.gpu[g])))
        return "cuDNN has none that repeats on such a GPU";
    if (cudnn->state != WEIR__LIBRARY_FOUND ||
        major * 10000 + minor * 100 + patch < WEIR__CUDNN_ATTENTION_LEAST)
        return "that takes cuDNN 9.18.1 or newer";
    if (!gpus->opens[at]) return "this cuDNN does not open";
    return gpus->libraries[index_of("NVRTC")].state == WEIR__LIBRARY_FOUND ? NULL
                                                                           : "cuDNN's takes NVRTC";
}

/* By which code a GPU runs: our kernels, and attention in bf16. */
static void print_ways(FILE *to, const struct doctor_gpus *gpus, uint32_t g) {
    static const char *const forms[] = {[WEIR__CUDA_FITS_BINARY] = "binaries",
                                        [WEIR__CUDA_FITS_PTX] = "PTX, compiled at the first start,",
                                        [WEIR__CUDA_OLD_DRIVER] = "too new for the driver,",
                                        [WEIR__CUDA_OLD_GPU] = "not for it,"};
    const struct weir__cuda_fit *fit = &gpus->fits[g];
    const char *why = why_own_attention(gpus, g);
    fprintf(to, "  runs by   ");
    if (gpus->found.kernels && fit->architecture > 0)
        fprintf(to, "%s for %d.%d, of CUDA %d.%d; ", forms[fit->kind], fit->architecture / 10,
                fit->architecture % 10, fit->toolkit / 1000, fit->toolkit % 1000 / 10);
    fprintf(to, "attention in bf16 by %s%s\n",
            why != NULL ? "kernels of Weir's own, for " : "cuDNN", why != NULL ? why : "");
}

/* Which engines of cuDNN runs took here: those of the plans that were kept. */
static void print_engines(FILE *to, const struct doctor_gpus *gpus, uint32_t g) {
    struct weir__cudnn_kept kept[ENGINES_MAX];
    const struct weir__gpu *gpu = &gpus->found.gpu[g];
    char folder[WEIR__CACHE_FOLDER_MAX], name[160];
    weir__cache_find(folder);
    snprintf(name, sizeof name, "%s, %d.%d, %d", gpu->name, gpu->capability_major,
             gpu->capability_minor, (int)gpu->multiprocessors);
    uint32_t count = weir__cudnn_kept(folder, name, gpus->found.version, kept, ENGINES_MAX);
    if (count == 0) return;
    fprintf(to, "  plans     of cuDNN, kept:");
    for (uint32_t i = 0; i < count; i++) {
        bool again = i > 0 && strcmp(kept[i].what, kept[i - 1].what) == 0;
        if (!again) fprintf(to, "%s %s by engine", i > 0 ? ";" : "", kept[i].what);
        fprintf(to, "%s %lld (%u)", again ? "," : "", (long long)kept[i].engine, kept[i].plans);
    }
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
    for (uint32_t g = 0; g < gpus->found.count; g++) {
        print_gpu(to, gpus, g);
        print_ways(to, gpus, g);
        print_engines(to, gpus, g);
    }
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
