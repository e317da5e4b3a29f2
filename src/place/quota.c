/* SPDX-License-Identifier: MIT */
/* A container's limit on processor time. A process that binds and spins on more cores than its
 * quota pays for is stopped for most of each period, so the quota counts as a number of cores. */
#include "place/machine.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 4096, PATH_BYTES = 4096 };

/* One cgroup hierarchy: where it is mounted, what of it, and where in it this process is. */
struct hierarchy {
    bool is_v2;
    bool has_path, has_mount;
    char path[PATH_BYTES];  /* from /proc/self/cgroup */
    char root[PATH_BYTES];  /* the part of the hierarchy that the mount shows */
    char mount[PATH_BYTES]; /* where */
};

static FILE *open_below(const char *root, const char *path) {
    char whole[PATH_BYTES];
    int length = snprintf(whole, sizeof whole, "%s%s", root, path);
    if (length < 0 || (size_t)length >= sizeof whole) return NULL;
    return fopen(whole, "re");
}

/* The next line without its end; an overlong one is cut. */
static bool next_line(FILE *file, char line[LINE_BYTES]) {
    if (fgets(line, LINE_BYTES, file) == NULL) return false;
    size_t length = strcspn(line, "\n");
    if (line[length] != '\n') {
        int c;
        do {
            c = fgetc(file);
        } while (c != EOF && c != '\n');
    }
    line[length] = '\0';
    return true;
}

/* Whether `item` stands in a list with commas. */
static bool has_item(const char *list, const char *item) {
    assert(list != NULL && item[0] != 0);
    size_t length = strlen(item);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        if (*at == ',') at++;
        if (strncmp(at, item, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return false;
}

/* "7:cpu,cpuacct:/group" for v1, "0::/group" for v2. */
static void read_path(const char *root, struct hierarchy *hierarchy) {
    FILE *file = open_below(root, "/proc/self/cgroup");
    if (file == NULL) return;
    char line[LINE_BYTES];
    while (!hierarchy->has_path && next_line(file, line)) {
        char *controllers = strchr(line, ':');
        char *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (path == NULL) continue;
        *controllers++ = '\0';
        *path++ = '\0';
        bool ours = hierarchy->is_v2 ? strcmp(line, "0") == 0 && *controllers == '\0'
                                     : has_item(controllers, "cpu");
        if (!ours) continue;
        snprintf(hierarchy->path, sizeof hierarchy->path, "%s", path);
        hierarchy->has_path = true;
    }
    fclose(file);
}

/* "36 35 98:0 /root /mount options optional... - type source options" */
static bool parse_mount(char *line, struct hierarchy *hierarchy) {
    char *tail = strstr(line, " - ");
    if (tail == NULL) return false;
    *tail = '\0';
    char type[32], options[LINE_BYTES];
    if (sscanf(tail + 3, "%31s %*s %4095s", type, options) != 2) return false;
    bool ours = hierarchy->is_v2 ? strcmp(type, "cgroup2") == 0
                                 : strcmp(type, "cgroup") == 0 && has_item(options, "cpu");
    if (!ours) return false;
    return sscanf(line, "%*s %*s %*s %4095s %4095s", hierarchy->root, hierarchy->mount) == 2;
}

static void read_mount(const char *root, struct hierarchy *hierarchy) {
    FILE *file = open_below(root, "/proc/self/mountinfo");
    if (file == NULL) return;
    char line[LINE_BYTES];
    while (!hierarchy->has_mount && next_line(file, line))
        hierarchy->has_mount = parse_mount(line, hierarchy);
    fclose(file);
}

static bool read_number(const char *directory, const char *name, long long *number) {
    FILE *file = open_below(directory, name);
    if (file == NULL) return false;
    int fields = fscanf(file, "%lld", number);
    fclose(file);
    return fields == 1;
}

/* One group's limit in cores, 0 for none: "max 100000" or "150000 100000" in v2, two files in v1.
 */
static double group_quota(const char *directory, bool is_v2) {
    long long quota = 0, period = 0;
    if (is_v2) {
        FILE *file = open_below(directory, "/cpu.max");
        if (file == NULL) return 0;
        int fields = fscanf(file, "%lld %lld", &quota, &period);
        fclose(file);
        if (fields != 2) return 0;
    } else {
        if (!read_number(directory, "/cpu.cfs_quota_us", &quota)) return 0;
        if (!read_number(directory, "/cpu.cfs_period_us", &period)) return 0;
    }
    return quota > 0 && period > 0 ? (double)quota / (double)period : 0;
}

static double smaller(double a, double b) {
    if (a == 0) return b;
    return b == 0 || a < b ? a : b;
}

/* This process's place below the mount, which in a container shows only a part of the hierarchy. */
static const char *below_mount(const struct hierarchy *hierarchy) {
    size_t length = strlen(hierarchy->root);
    if (strcmp(hierarchy->root, "/") == 0) return hierarchy->path;
    if (strncmp(hierarchy->path, hierarchy->root, length) != 0) return "";
    char next = hierarchy->path[length];
    return next == '/' || next == '\0' ? hierarchy->path + length : "";
}

static double hierarchy_quota(const char *root, bool is_v2) {
    struct hierarchy hierarchy = {.is_v2 = is_v2};
    read_path(root, &hierarchy);
    read_mount(root, &hierarchy);
    if (!hierarchy.has_path || !hierarchy.has_mount) return 0;
    char directory[3 * PATH_BYTES];
    int base = snprintf(directory, sizeof directory, "%s%s", root, hierarchy.mount);
    if (base < 0 || (size_t)base >= sizeof directory - PATH_BYTES) return 0;
    strcpy(directory + base, below_mount(&hierarchy));
    double quota = 0;
    for (;;) { /* each turn cuts at least one character */
        quota = smaller(quota, group_quota(directory, is_v2));
        char *slash = strrchr(directory, '/');
        if (slash == NULL || slash < directory + base) return quota;
        *slash = '\0';
    }
}

double weir__quota_cores(const char *root) {
    assert(root != NULL);
    return smaller(hierarchy_quota(root, true), hierarchy_quota(root, false));
}

/* Rounded down: a core that is paid for in part stops its worker, and the others wait for it. */
uint32_t weir__quota_usable(uint32_t cores, double quota_cores) {
    assert(cores > 0);
    if (quota_cores <= 0 || quota_cores >= cores) return cores;
    return quota_cores < 1 ? 1 : (uint32_t)quota_cores;
}
