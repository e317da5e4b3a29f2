/* SPDX-License-Identifier: MIT */
/* A run may take hours; what would fail at its end is looked for at its beginning. */
#include "cli/net_run.h"

#include "cli/output.h"
#include "io/archive.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void check_folder(const char *option, const char *path, struct weir_faults *faults) {
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL ? NULL : strndup(path, (size_t)(slash - path) + 1);
    if (access(folder == NULL ? "." : folder, W_OK | X_OK) != 0)
        weir_faults_add(faults, "--%s %s: its folder: %s: make it, or choose another", option, path,
                        strerror(errno));
    free(folder);
}

void net_run_check_output(const char *option, const char *path, struct weir_faults *faults) {
    struct stat facts;
    if (path == NULL) return;
    if (output_is_standard(path) || path[0] == '\0')
        weir_faults_add(faults, "--%s '%s' is no file: give its name", option, path);
    else if (stat(path, &facts) != 0 || S_ISREG(facts.st_mode))
        check_folder(option, path, faults);
    else if (S_ISDIR(facts.st_mode))
        weir_faults_add(faults, "--%s %s is a folder: give a file in it", option, path);
}

void net_run_check_checkpoint(const char *option, const char *path, bool several,
                              struct weir_faults *faults) {
    struct weir__io io = {.error = NULL};
    struct stat facts;
    bool there = path != NULL && stat(path, &facts) == 0;
    bool folder = there && weir__archive_is_folder(&io, path);
    if (path == NULL || output_is_standard(path) || path[0] == '\0' || (!several && !folder))
        net_run_check_output(option, path, faults);
    else if (!there)
        check_folder(option, path, faults);
    else if (!S_ISDIR(facts.st_mode))
        weir_faults_add(faults,
                        "--%s %s is a file, and several processes save a folder: give another name",
                        option, path);
    else if (!weir__archive_takes(&io, path))
        weir_faults_add(faults, "--%s %s is a folder with other files: give a new name", option,
                        path);
    else if (access(path, W_OK | X_OK) != 0)
        weir_faults_add(faults, "--%s %s: %s: mend that, or choose another", option, path,
                        strerror(errno));
}

void net_run_check_input(const char *option, const char *path, struct weir_faults *faults) {
    if (path == NULL || access(path, R_OK) == 0) return;
    weir_faults_add(faults, "--%s %s: %s: check the path", option, path, strerror(errno));
}

static void name_faults(const char *path, int status, struct weir_faults *own,
                        struct weir_faults *faults) {
    bool named = status == WEIR_ERR_IO || status == WEIR_ERR_FORMAT;
    for (uint32_t i = 0; i < own->kept; i++)
        weir_faults_add(faults, "%s%s%s", named ? "" : path, named ? "" : ": ", own->lines[i]);
    weir_faults_clean_up(own);
}

int net_run_load(struct weir_net *net, const char *path, struct weir_progress *progress,
                 struct weir_faults *faults) {
    struct weir_faults own = WEIR_FAULTS_INIT;
    int status = weir_net_load(net, path, progress, &own);
    name_faults(path, status, &own, faults);
    return status;
}

int net_run_load_some(struct weir_net *net, const char *path, struct weir_faults *notes,
                      struct weir_faults *faults) {
    struct weir_faults own = WEIR_FAULTS_INIT;
    int status = weir_net_load_some(net, path, notes, &own);
    name_faults(path, status, &own, faults);
    return status;
}

void net_run_error(const struct weir_error *from, struct weir_error *error) {
    const char *reason = from->message[0] != '\0' ? from->message : weir_status_text(from->status);
    *error = *from;
    if (from->stage < 0) return;
    const char *comma = from->layer[0] != '\0' ? ", layer " : "";
    char micro_batch[32] = "", where[128], text[sizeof where + sizeof from->message];
    if (from->micro_batch >= 0) /* an update is of none */
        snprintf(micro_batch, sizeof micro_batch, "micro-batch %d, ", from->micro_batch);
    snprintf(where, sizeof where, "stage %d, %s%s%s%s", from->stage, micro_batch,
             weir_phase_name(from->phase), comma, from->layer);
    snprintf(text, sizeof text, "%s: %s", where, reason);
    memcpy(error->message, text, sizeof error->message - 1);
    error->message[sizeof error->message - 1] = '\0';
}
