/* SPDX-License-Identifier: MIT */
/** The doctor's part on ranks: under mpiexec or srun, who is where, and what lies between. */
#ifndef WEIR_TOOLS_DOCTOR_WORLD_H
#define WEIR_TOOLS_DOCTOR_WORLD_H

#include "place/place.h"
#include "weir_world.h"
#include "world/links.h"

#include <jansson.h>
#include <stdio.h>

/** What a rank says of itself. */
struct doctor_rank {
    char host[64];
    char level[32];
    char weir[96];    /**< version and commit */
    char library[96]; /**< that carries messages */
    uint32_t cores, usable_cores;
};

/** Zeroed, then doctor_world_join; doctor_world_leave in every case. */
struct doctor_world {
    struct weir_world world;
    bool joined;
    struct doctor_rank *ranks;    /**< [rank_count]; NULL: one process */
    struct weir_link_cost *costs; /**< [from * rank_count + to] */
    struct weir__clock *clocks;
};

/** Joins the launcher's world, if there is one. */
int doctor_world_join(struct doctor_world *doctor, struct weir_faults *faults);
/** Whether there are other ranks, and whether this one is to speak. */
bool doctor_world_has_others(const struct doctor_world *doctor);
bool doctor_world_leads(const struct doctor_world *doctor);
/** Whether all ranks come with WEIR_OK; says whose failure it is. Collective. */
int doctor_world_agree(struct doctor_world *doctor, int status, struct weir_faults *faults);
/** All ranks' facts, links and clocks; what a run would refuse is added to `problems`. Nothing in
 * one process. Collective; some seconds. */
int doctor_world_look(struct doctor_world *doctor, const struct weir__machine_facts *facts,
                      const char *level, struct weir_faults *problems, struct weir_faults *faults);
/** Ranks, and what lies between them: each pair, or of many the middle and the ends. */
void doctor_world_print(FILE *to, const struct doctor_world *doctor);
/** Adds `mpi`, `ranks` and `links`, where there are ranks. */
void doctor_world_json(const struct doctor_world *doctor, json_t *object);
/** A failure ends all ranks, and this process. Returns the exit code. */
int doctor_world_leave(struct doctor_world *doctor, int code);

#endif
