/* SPDX-License-Identifier: MIT */
/**
 * A command over several processes: under mpiexec or srun each is a rank with its share of the
 * workers. All make the same calls on the net; rank 0 alone speaks and writes files (but for
 * checkpoints). What others have to say on stderr is held back, for it is mostly what rank 0 says
 * too, and told if the command fails there.
 *
 * Life: ranks_join, once the command line is read; the command, which asks ranks_leads before it
 * writes, ranks_agree before it runs, and ranks_stopped between steps; ranks_end, which says what
 * went wrong; ranks_leave, when all else is given back. One process is a world of one: then none of
 * this does anything else than the command alone would.
 */
#ifndef WEIR_TOOLS_RANKS_H
#define WEIR_TOOLS_RANKS_H

#include "cli/args.h"
#include "cli/output.h"
#include "cli/pipe_options.h"
#include "cli/ranks_lost.h"
#include "weir_world.h"

struct search;

/** The bits of a step's flags that are an exit code. */
enum { RANKS_CODE = 255 };

/** How long a rank that fails by itself leaves to rank 0, which mostly fails with the same, to say
 * why: a launcher ends all when the first has failed. */
enum { RANKS_GRACE_MS = 300 };

/** Seconds: a rank that lives may be unheard for so long where its machine is busy. */
#define RANKS_TIMEOUT_LEAST 0.1

/** How long ranks are waited for, in seconds. */
struct ranks_times {
    double peer;  /**< that is silent */
    double start; /**< that has not come; 0: weir_world_options' */
};

/** --peer-timeout and --start-timeout, of commands that run over ranks. `place`: of their struct
 * ranks_times. */
#define RANKS_OPTION_TIMES(place)                                                                  \
    {"peer-timeout",                                                                               \
     ARG_REAL,                                                                                     \
     (place) + offsetof(struct ranks_times, peer),                                                 \
     "over several processes: how long one of them may be silent; then all end. One that "         \
     "dies is known at once",                                                                      \
     .value = "S",                                                                                 \
     .fallback = "10",                                                                             \
     .unit = "seconds",                                                                            \
     .least = RANKS_TIMEOUT_LEAST,                                                                 \
     .most = 86400},                                                                               \
    {                                                                                              \
        "start-timeout", ARG_REAL, (place) + offsetof(struct ranks_times, start),                  \
            "and how long they may take to come together; 0: six times that, ten seconds at "      \
            "least",                                                                               \
            .value = "S", .fallback = "0", .unit = "seconds", .least = 0, .most = 86400            \
    }

/** What a command brings; borrowed until ranks_leave. */
struct ranks_command {
    const struct arg_command *command;
    const char *unit; /**< what it counts, for ranks_at: "update" */
    const struct args *args;
    struct pipe_options *pipe; /**< what is not said of level, threads and workers is filled in */
    struct ranks_times times;
    struct people *people; /**< silenced on ranks but 0 */
    struct weir_faults *faults;
    struct weir_error *error;
    const char *bits; /**< of a run that goes on: where no level is said it is the highest that all
                           have of those that give these (weir__level's); NULL: of any */
    bool saves;       /**< the command writes checkpoints … */
    const char *save; /**< … here; NULL: nowhere */
};

/** Zeroed: one process, or not joined yet. */
struct ranks {
    struct ranks_command of;
    struct weir_world world;
    bool joined;      /**< with one rank, too */
    uint32_t stopped; /**< the exit code of a rank that has been asked to end, which all learnt with
                           a step; 0: none has */
    bool agreed;      /**< the failure came from a step, and so to all ranks */
    struct ranks_lost lost;
    FILE *held; /**< of ranks but 0: what was written to stderr since `lost.errors` is kept */
};

/** Joins the launcher's world, if there is one, whose ranks must be one build and have the same
 * options (but for where data and weights lie, --bind and --wait); a loss then ends the process
 * (ranks_lost.h); faults say why it cannot be, or what cannot be done in one. On ranks but 0 text
 * for people and errors are silenced; other outputs the command leaves out itself. Blocks: every
 * rank must come. */
int ranks_join(struct ranks *ranks, const struct ranks_command *of);
/** The world, or NULL where this process is alone. */
const struct weir_world *ranks_world(const struct ranks *ranks);
/** Whether this process writes files and speaks. */
bool ranks_leads(const struct ranks *ranks);
/** Whether all ranks are one program that was told the same; else a fault that says what differs,
 * and WEIR_ERR_CONFIG. Collective, of several: the first thing that ranks_join asks. */
int ranks_same(struct ranks *ranks);
/** Whether all ranks come with WEIR_OK and the same digest of the files they read; else a fault.
 * Collective; alone the own status. */
int ranks_agree(struct ranks *ranks, int status, uint64_t digest);
/** Every rank comes with the same number of bytes, all 0 but for what it alone has to say; each
 * leaves with what all said. Collective, of several. A failure is told in the command's error. */
int ranks_gather(struct ranks *ranks, void *data, size_t bytes);
/** Each rank leaves with rank 0's bytes. Collective; alone nothing. Fails as that does. */
int ranks_share(struct ranks *ranks, void *data, size_t bytes);

/** The flags of a step's batch, by which all ranks hear who was asked to end; and what the step
 * gave, with its failure, which then all ranks have. */
uint32_t ranks_flags(void);
void ranks_heard(struct ranks *ranks, int status, uint32_t flags);
/** Whether the command was asked to end: the same answer on all ranks, between two steps. */
bool ranks_stopped(const struct ranks *ranks);

/** The pipeline that rank 0 has searched, from there to all others: each would choose by its own
 * machine. Collective; where rank 0 fails before, that ends all. `search` keeps the texts. */
int ranks_give_pipeline(struct ranks *ranks);
int ranks_take_pipeline(struct ranks *ranks, struct search *search);

/** Says what went wrong, as args_end does, and returns the exit code, by signals too. Of a lost
 * rank it ends the process. */
int ranks_end(struct ranks *ranks, int status);
/** Leaves the world with the exit code, which it returns; a failure ends all ranks, and this
 * process. */
int ranks_leave(struct ranks *ranks, int code);

#endif
