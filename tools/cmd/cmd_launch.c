/* SPDX-License-Identifier: MIT */
/* `weir launch`: starts a job of several ranks by mpiexec or srun, and when a rank or a host is
 * lost starts it again from its last checkpoint, on the hosts that still answer. */
#include "base/base.h"
#include "cli/args.h"
#include "cli/ranks_lost.h"
#include "cmd/commands.h"
#include "cmd/launch_job.h"
#include "cmd/launch_train.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOSTS_MAX = 1024, RANKS_MAX = 65536, PROBE_S = 15 };

struct host {
    char name[128];
    uint32_t slots, ranks;
    uint32_t used; /* of `ranks`: those of the coming start */
    bool gone;
};

/* How a launcher is told what it needs. */
enum maker { HYDRA, OPEN_MPI, SRUN };

struct values {
    uint32_t ranks, restarts, launcher;
    const char *hosts;
};

struct launch {
    struct values values;
    struct launch_train train;
    struct host *hosts; /* [HOSTS_MAX]; 0 of them: this machine alone, or Slurm's */
    uint32_t host_count;
    enum maker maker;
    struct launch_share share; /* of the coming start */
    char program[PATH_MAX];
    struct weir_faults *faults;
};

static const char *const launcher_names[] = {"mpiexec", "srun", NULL};
#define AT(member) offsetof(struct values, member)
static const struct arg_option options[] = {
    {"ranks", ARG_U32, AT(ranks), "processes, also -n; each has its share of the workers",
     .value = "R", .least = 1, .most = RANKS_MAX},
    {"hosts", ARG_TEXT, AT(hosts),
     "where they run: a host per line, NAME or NAME:SLOTS, # begins a comment; default: this "
     "machine, or HYDRA_HOST_FILE",
     .value = "FILE", .environment = "HYDRA_HOST_FILE"},
    {"restarts", ARG_U32, AT(restarts), "how often the job is started again when a rank is lost",
     .value = "K", .fallback = "3"},
    {"launcher", ARG_CHOICE, AT(launcher),
     "mpiexec: WEIR_MPIEXEC, or the one of PATH; srun runs where Slurm says, without --hosts",
     .fallback = "mpiexec", .choices = launcher_names},
};
static const struct arg_section sections[] = {
    {"Options", options, sizeof options / sizeof options[0], 0}};
static const struct arg_command command = {
    "launch", "starts a job of several ranks, and again on what remains when one is lost",
    "weir launch -n R [options] -- train ...: program, data and checkpoints lie at the same path "
    "on "
    "every host. When a rank is lost, the job goes on from the checkpoint that --save names, with "
    "the bits that it would have had; fewer ranks then have the same workers between them. What is "
    "refused, or fails by itself, is not started again.",
    sections, 1};

/* ---- hosts ---- */

/* What is wrong with a line; NULL: nothing. */
static const char *read_host(struct launch *l, char *line) {
    char *name = line + strspn(line, " \t"), *end;
    name[strcspn(name, "#\r\n")] = '\0';
    size_t length = strcspn(name, " \t");
    if (name[length + strspn(name + length, " \t")] != '\0')
        return "has more than NAME or NAME:SLOTS";
    name[length] = '\0';
    if (name[0] == '\0') return NULL;
    char *colon = strrchr(name, ':');
    unsigned long slots = 1;
    if (colon != NULL) {
        *colon = '\0';
        slots = strtoul(colon + 1, &end, 10);
        if (end == colon + 1 || *end != '\0' || slots < 1 || slots > RANKS_MAX)
            return "has no number of slots behind the colon: from 1 to 65536";
    }
    struct host *host = &l->hosts[l->host_count];
    if (name[0] == '\0' || name[0] == '-' || strlen(name) >= sizeof host->name)
        return "names no host";
    if (l->host_count >= HOSTS_MAX) return "is one too many: 1024 hosts at most";
    snprintf(host->name, sizeof host->name, "%s", name);
    host->slots = (uint32_t)slots;
    l->host_count++;
    return NULL;
}

/* Slots are filled in the file's order, over and over until all ranks have one. */
static void deal(struct launch *l) {
    uint32_t left = l->values.ranks;
    while (left > 0 && l->host_count > 0)
        for (uint32_t h = 0; h < l->host_count; h++) {
            uint32_t take = l->hosts[h].slots < left ? l->hosts[h].slots : left;
            l->hosts[h].ranks += take;
            left -= take;
        }
}

static void read_hosts(struct launch *l) {
    char line[512];
    uint32_t number = 0;
    if (l->values.hosts == NULL || l->values.launcher == 1) return;
    FILE *file = fopen(l->values.hosts, "re");
    if (file == NULL) {
        weir_faults_add(l->faults, "--hosts %s: %s: name a file with a host per line",
                        l->values.hosts, strerror(errno));
        return;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        number++;
        const char *wrong = read_host(l, line);
        if (wrong != NULL)
            weir_faults_add(l->faults, "--hosts %s: line %u %s", l->values.hosts, number, wrong);
    }
    fclose(file);
    if (l->host_count == 0 && l->faults->count == 0)
        weir_faults_add(l->faults, "--hosts %s names no host", l->values.hosts);
    deal(l);
}

static uint32_t count_ranks(const struct launch *l) {
    uint32_t ranks = 0;
    for (uint32_t h = 0; h < l->host_count; h++)
        if (!l->hosts[h].gone) ranks += l->hosts[h].ranks;
    return l->host_count == 0 ? l->values.ranks : ranks;
}

/* What they share; a host's last ranks are left away where not all are of use. */
static void share_out(struct launch *l) {
    l->share = launch_train_share(&l->train, count_ranks(l));
    uint32_t left = l->share.ranks;
    for (uint32_t h = 0; h < l->host_count; h++) {
        struct host *host = &l->hosts[h];
        host->used = host->gone ? 0 : host->ranks < left ? host->ranks : left;
        left -= host->used;
    }
}

/* ---- commands ---- */

static const char *mpiexec_name(void) {
    const char *named = getenv("WEIR_MPIEXEC");
    return named != NULL && named[0] != '\0' ? named : "mpiexec";
}

/* Open MPI's mpiexec takes other words than MPICH's and its kin. */
static void find_launcher(struct launch *l) {
    static char text[4096];
    struct launch_words words = {0};
    bool srun = l->values.launcher == 1;
    const char *name = srun ? "srun" : mpiexec_name();
    (void)(launch_words_add(&words, name) && launch_words_add(&words, "--version"));
    int code = job_capture(&words, PROBE_S, text, sizeof text);
    if (code == 127 || code < 0)
        weir_faults_add(l->faults, "%s cannot be started: %s", name,
                        srun ? "it is Slurm's: leave --launcher srun away where there is none"
                             : "install an MPI with it, such as 'pip install mpich' in a virtual "
                               "environment whose bin is in PATH");
    bool open = strstr(text, "OpenRTE") != NULL || strstr(text, "Open MPI") != NULL ||
                strstr(text, "PRRTE") != NULL;
    l->maker = srun ? SRUN : open ? OPEN_MPI : HYDRA;
}

/* "a:2,b:1", of one host or of all that are left. */
static char *host_list(const struct launch *l, const struct host *only) {
    char *text = calloc(l->host_count + 1, sizeof l->hosts[0].name + 16);
    size_t used = 0;
    for (uint32_t h = 0; text != NULL && h < l->host_count; h++) {
        const struct host *host = &l->hosts[h];
        if (only != NULL ? only != host : host->used == 0) continue;
        used += (size_t)sprintf(text + used, "%s%s:%u", used > 0 ? "," : "", host->name,
                                only != NULL ? 1 : host->used);
    }
    return text;
}

static bool add_launcher(const struct launch *l, const char *ranks, const char *hosts,
                         struct launch_words *words) {
    bool fits = launch_words_add(words, l->maker == SRUN ? "srun" : mpiexec_name());
    /* those that live say who is lost, and end by themselves */
    if (l->maker == HYDRA) fits = fits && launch_words_add(words, "-disable-auto-cleanup");
    if (l->maker == SRUN) fits = fits && launch_words_add(words, "--kill-on-bad-exit=0");
    if (l->maker == OPEN_MPI) /* the others pass on all variables */
        fits =
            fits && launch_words_add(words, "-x") && launch_words_add(words, RANKS_LOST_VARIABLE);
    if (hosts != NULL)
        fits = fits && launch_words_add(words, l->maker == HYDRA ? "-hosts" : "--host") &&
               launch_words_add(words, hosts);
    return fits && launch_words_add(words, "-n") && launch_words_add(words, ranks);
}

/* ---- what is left ---- */

/* Whether a process can be started there, as the job's would be. */
static bool answers(const struct launch *l, const struct host *host) {
    static char text[256];
    struct launch_words words = {0};
    char *list = host_list(l, host);
    bool does = list != NULL && add_launcher(l, "1", list, &words) &&
                launch_words_add(&words, "true") &&
                job_capture(&words, PROBE_S, text, sizeof text) == 0;
    free(list);
    return does;
}

static void drop_hosts(struct launch *l) {
    for (uint32_t h = 0; h < l->host_count && job_asked() == 0; h++) {
        struct host *host = &l->hosts[h];
        if (host->gone || host->ranks == 0 || answers(l, host)) continue;
        host->gone = true;
        fprintf(stderr,
                "weir: launch: host %s does not answer: the job goes on without its %u "
                "rank%s\n",
                host->name, host->ranks, weir__s(host->ranks));
    }
}

/* ---- starts ---- */

static bool run_once(struct launch *l, struct job_end *end) {
    static struct launch_words words;
    static char texts[3][16];
    char ranks[16], *hosts = l->host_count > 0 ? host_list(l, NULL) : NULL;
    words = (struct launch_words){0};
    snprintf(ranks, sizeof ranks, "%u", l->share.ranks);
    bool fits = (l->host_count == 0 || hosts != NULL) && add_launcher(l, ranks, hosts, &words) &&
                launch_words_add(&words, l->program) &&
                launch_train_add(&l->train, &l->share, texts, &words);
    if (!fits) fprintf(stderr, "weir: launch: the command has too many words\n");
    enum job_ends ends = l->maker == SRUN ? JOB_ENDS_BY_USR2 : JOB_ENDS_BY_TERM;
    bool ran = fits && job_run(&words, ends, l->train.start_timeout, end);
    free(hosts);
    return ran;
}

/* Codes that `train` ends with by itself; a signal's are no other's. */
static bool is_final(const struct job_end *end) {
    static const int codes[] = {EXIT_DONE,    EXIT_FAILED,   EXIT_REFUSED, 127,
                                128 + SIGINT, 128 + SIGTERM, 128 + SIGHUP};
    bool final = end->asked != 0 || end->refused;
    for (size_t i = 0; i < WEIR__COUNT_OF(codes) && !end->lost; i++)
        final = final || end->code == codes[i];
    return final;
}

/* Before hosts are tried, which may take a while. */
static void tell_end(const struct job_end *end) {
    if (end->lost)
        fprintf(stderr, "weir: launch: %s is lost\n", end->what);
    else
        fprintf(stderr,
                "weir: launch: a process was ended by a signal, or the launcher lost a host (its "
                "exit code is %d)\n",
                end->code);
}

static void tell_restart(const struct launch *l, uint32_t restart, bool moved) {
    const struct launch_share *share = &l->share, *whole = &l->train.whole;
    fprintf(stderr, "weir: launch: restart %u of at most %u on %u rank%s", restart,
            l->values.restarts, share->ranks, weir__s(share->ranks));
    if (share->ranks < count_ranks(l)) fprintf(stderr, " of %u", count_ranks(l));
    if (share->replicas < whole->replicas)
        fprintf(stderr, " as %u replica%s, not %u", share->replicas, weir__s(share->replicas),
                whole->replicas);
    if (!launch_train_has_saved(&l->train))
        fprintf(stderr, ", from where the job began: nothing was saved\n");
    else
        fprintf(stderr, ", from %s%s\n", l->train.save,
                moved ? "" : ", which is no further than at the last start");
}

static int own_code(const struct job_end *end) {
    if (end->asked != 0) return 128 + end->asked;
    if (end->refused) return EXIT_REFUSED;
    return end->code >= 0 && !end->lost && is_final(end) && end->code != 127 ? end->code
                                                                             : EXIT_FAILED;
}

static int run_all(struct launch *l) {
    struct job_end end;
    for (uint32_t restart = 0;; restart++) {
        struct saved before = saved_look(l->train.save);
        if (!run_once(l, &end)) return EXIT_FAILED;
        if (is_final(&end)) return own_code(&end);
        tell_end(&end);
        if (restart >= l->values.restarts) break;
        drop_hosts(l);
        if (job_asked() != 0) return 128 + job_asked();
        if (count_ranks(l) == 0) {
            fprintf(stderr, "weir: launch: no host is left\n");
            return EXIT_FAILED;
        }
        share_out(l);
        struct saved now = saved_look(l->train.save);
        tell_restart(l, restart + 1, saved_is_other(&now, &before));
        if (!launch_train_has_saved(&l->train)) launch_train_forget_log(&l->train);
    }
    fprintf(stderr, "weir: launch: no restart is left of %u: give --restarts K\n",
            l->values.restarts);
    return EXIT_FAILED;
}

/* ---- the command line ---- */

/* What is before "--"; -n 2, and -n2, are --ranks. */
static int split(int argc, char **argv) {
    static char ranks[] = "--ranks", joined[32];
    int end = 1;
    for (; end < argc && strcmp(argv[end], "--") != 0; end++) {
        const char *word = argv[end];
        if (strncmp(word, "-n", 2) != 0) continue;
        if (word[2] == '\0') argv[end] = ranks;
        if (word[2] < '0' || word[2] > '9' || strlen(word) > 16) continue;
        snprintf(joined, sizeof joined, "--ranks=%s", word + 2);
        argv[end] = joined;
    }
    return end;
}

static void check(struct launch *l, const struct args *args, int left, char **words) {
    if (!args_given(args, "ranks")) weir_faults_add(l->faults, "how many ranks? give -n R");
    if (l->values.launcher == 1 && args_given(args, "hosts"))
        weir_faults_add(l->faults, "--hosts means nothing to srun: Slurm says which they are");
    if (left < 1 || strcmp(words[0], "train") != 0)
        weir_faults_add(l->faults, "only 'train' goes on where it was: end with -- train and its "
                                   "options");
}

static void warn(const struct launch *l) {
    if (l->values.restarts == 0) return;
    if (l->train.save == NULL || !l->train.saves_often)
        fprintf(stderr, "weir: launch: warning: without --save FILE and --save-every K a restart "
                        "begins anew\n");
}

static int prepare(struct launch *l, int left, char **words) {
    ssize_t length = readlink("/proc/self/exe", l->program, sizeof l->program - 1);
    if (length <= 0) return WEIR_ERR_SYSTEM;
    l->program[length] = '\0';
    l->hosts = calloc(HOSTS_MAX, sizeof *l->hosts);
    if (l->hosts == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    read_hosts(l);
    if (l->faults->count == 0) find_launcher(l);
    launch_train_read(&l->train, left - 1, words + 1, l->values.ranks);
    share_out(l);
    if (launch_train_has_suffix(&l->train))
        weir_faults_add(l->faults, "--resume %s: say where the job saves, too: give --save FILE",
                        l->train.resume);
    return WEIR_OK;
}

int cmd_launch(int argc, char **argv) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct launch l = {.faults = &faults};
    struct weir_error error = {0};
    struct args args;
    int end = split(argc, argv), left = end < argc ? argc - end - 1 : 0;
    if (args_parse(&args, &command, end, argv, &l.values, &faults)) return EXIT_DONE;
    check(&l, &args, left, argv + end + 1);
    job_catch_signals();
    int code, status = faults.count == 0 ? prepare(&l, left, argv + end + 1) : WEIR_OK;
    if (faults.count > 0 || status != WEIR_OK) {
        code = args_end(&command, &faults, status, &error);
    } else {
        warn(&l);
        code = run_all(&l);
    }
    free(l.hosts);
    return code;
}
