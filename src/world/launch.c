/* SPDX-License-Identifier: MIT */
/* Launchers tell a process its rank in its environment, and most the number of ranks. */
#include "world/world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool read_number(const char *variable, uint32_t *number) {
    const char *text = getenv(variable);
    char *end;
    if (text == NULL || text[0] < '0' || text[0] > '9') return false;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    *number = (uint32_t)value;
    return errno == 0 && *end == '\0' && value <= INT32_MAX;
}

/* Slurm's PMIx says no size, but Slurm does. */
static bool is_slurm_pmix(void) {
    const char *name = getenv("PMIX_NAMESPACE");
    return name != NULL && strncmp(name, "slurm.", 6) == 0;
}

struct weir__launch weir__launch_read(void) {
    static const struct {
        const char *rank, *size;
    } known[] = {{"PMI_RANK", "PMI_SIZE"},
                 {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                 {"PMIX_RANK", NULL},
                 {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};
    for (size_t i = 0; i < WEIR__COUNT_OF(known); i++) {
        struct weir__launch launch = {0};
        if (!read_number(known[i].rank, &launch.rank)) continue;
        launch.by = known[i].size != NULL ? known[i].size : known[i].rank;
        if (known[i].size == NULL && !is_slurm_pmix()) return launch;
        if (known[i].size == NULL || !read_number(known[i].size, &launch.size)) continue;
        if (launch.rank < launch.size) return launch;
    }
    return (struct weir__launch){0};
}
