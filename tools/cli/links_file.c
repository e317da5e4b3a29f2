/* SPDX-License-Identifier: MIT */
#include "cli/links_file.h"

#include "base/base.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct links_reading {
    struct links_file *file;
    const char *path;
    struct weir_faults *faults;
    json_t *root;
};

#define FAULT(reading, format, ...)                                                                \
    weir_faults_add((reading)->faults, "--links %s: " format, (reading)->path, __VA_ARGS__)

static const char list_form[] = "give \"links\": [{from, to, alpha, bandwidth}], as 'weir doctor "
                                "--json' writes it under mpiexec";

/* ---- ranks ---- */

/* The number of the first rank with that name. */
static uint32_t host_of(const json_t *ranks, uint32_t rank) {
    const char *name = json_string_value(json_object_get(json_array_get(ranks, rank), "host"));
    for (uint32_t r = 0; name != NULL && r < rank; r++) {
        const char *other = json_string_value(json_object_get(json_array_get(ranks, r), "host"));
        if (other != NULL && strcmp(name, other) == 0) return r;
    }
    return rank;
}

static int read_ranks(struct links_reading *reading) {
    struct links_file *file = reading->file;
    const json_t *ranks = json_object_get(reading->root, "ranks");
    json_int_t count =
        json_is_integer(ranks) ? json_integer_value(ranks) : (json_int_t)json_array_size(ranks);
    if (count < 1 || count > LINKS_RANKS_MOST) {
        FAULT(reading, "%s: give \"ranks\", a list of 1 to %d", "it names no ranks, or too many",
              LINKS_RANKS_MOST);
        return WEIR_ERR_ARGUMENT;
    }
    uint32_t ranks_count = (uint32_t)count;
    file->costs = malloc((size_t)ranks_count * ranks_count * sizeof *file->costs);
    file->hosts = calloc(ranks_count, sizeof *file->hosts);
    if (file->costs == NULL || file->hosts == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (size_t i = 0; i < (size_t)ranks_count * ranks_count; i++)
        file->costs[i] = (struct weir_link_cost){NAN, NAN};
    for (uint32_t r = 0; r < ranks_count; r++) {
        file->hosts[r] = json_is_array(ranks) ? host_of(ranks, r) : r;
        file->host_count += file->hosts[r] == r; /* a host's number is its first rank's */
    }
    file->ranks = (struct weir_rank_links){ranks_count, file->costs, file->hosts};
    return WEIR_OK;
}

/* ---- links ---- */

/* False: a number is missing, or cannot be. */
static bool read_cost(struct links_reading *reading, const json_t *link, size_t at,
                      struct weir_link_cost *cost) {
    const json_t *alpha = json_object_get(link, "alpha");
    const json_t *bandwidth = json_object_get(link, "bandwidth");
    double seconds = json_number_value(alpha), bytes = json_number_value(bandwidth);
    bool sound = json_is_number(alpha) && json_is_number(bandwidth) && seconds >= 0.0 &&
                 bytes > 0.0 && isfinite(seconds) && isfinite(1.0 / bytes);
    *cost = (struct weir_link_cost){seconds, sound ? 1.0 / bytes : 0.0};
    if (!sound)
        FAULT(reading,
              "link %zu: give \"alpha\", seconds from 0 on, and \"bandwidth\", bytes a second "
              "above 0",
              at);
    return sound;
}

/* One link of a pair. */
static void read_link(struct links_reading *reading, const json_t *link, size_t at) {
    const json_t *from = json_object_get(link, "from"), *to = json_object_get(link, "to");
    json_int_t count = reading->file->ranks.rank_count;
    json_int_t a = json_integer_value(from), b = json_integer_value(to);
    struct weir_link_cost cost;
    if (!json_is_integer(from) || !json_is_integer(to) || a < 0 || b < 0 || a >= count ||
        b >= count || a == b) {
        FAULT(reading, "link %zu: \"from\" and \"to\" must be two of ranks 0 to %d", at,
              (int)count - 1);
        return;
    }
    struct weir_link_cost *own = &reading->file->costs[a * count + b];
    if (!isnan(own->latency)) {
        FAULT(reading, "link %zu: there is another one from rank %d to %d", at, (int)a, (int)b);
    } else if (read_cost(reading, link, at, &cost)) {
        *own = cost;
    }
}

/* Of the pairs that have no link of their own; names one that is left. */
static void complete(struct links_reading *reading, const struct weir_link_cost *cost) {
    uint32_t count = reading->file->ranks.rank_count;
    for (uint32_t from = 0; from < count; from++) {
        for (uint32_t to = 0; to < count; to++) {
            struct weir_link_cost *own = &reading->file->costs[(size_t)from * count + to];
            if (from == to) *own = (struct weir_link_cost){0.0, 0.0};
            if (isnan(own->latency)) *own = *cost;
            if (!isnan(own->latency)) continue;
            FAULT(reading,
                  "there is no link from rank %u to %u: give one, or one without \"from\" "
                  "and \"to\" for all others",
                  from, to);
            return;
        }
    }
}

static void read_links(struct links_reading *reading) {
    const json_t *links = json_object_get(reading->root, "links");
    struct weir_link_cost other = {NAN, NAN};
    uint32_t before = reading->faults->count;
    if (!json_is_array(links)) {
        FAULT(reading, "it has no links: %s", list_form);
        return;
    }
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *link = json_array_get(links, i);
        bool pair = json_object_get(link, "from") != NULL || json_object_get(link, "to") != NULL;
        if (pair) {
            read_link(reading, link, i);
        } else if (!isnan(other.latency)) {
            FAULT(reading, "link %zu: there is another one without \"from\" and \"to\"", i);
        } else {
            (void)read_cost(reading, link, i, &other);
        }
    }
    if (reading->faults->count == before) complete(reading, &other);
}

int links_file_read(struct links_file *file, const char *path, struct weir_faults *faults) {
    struct links_reading reading = {.file = file, .path = path, .faults = faults};
    uint32_t before = faults->count;
    json_error_t error;
    reading.root = json_load_file(path, 0, &error);
    if (reading.root == NULL) {
        FAULT(&reading, "%s%s", error.text, error.line > 0 ? " (it must be JSON)" : "");
        return WEIR_ERR_ARGUMENT;
    }
    int status = read_ranks(&reading);
    if (status == WEIR_OK) read_links(&reading);
    json_decref(reading.root);
    return status == WEIR_OK && faults->count > before ? WEIR_ERR_ARGUMENT : status;
}

void links_file_clean_up(struct links_file *file) {
    free(file->costs);
    free(file->hosts);
    *file = (struct links_file){0};
}

json_t *links_file_json(const struct weir_link_cost *costs, uint32_t rank_count) {
    json_t *list = json_array();
    for (uint32_t from = 0; from < rank_count; from++) {
        for (uint32_t to = 0; to < rank_count; to++) {
            const struct weir_link_cost *cost = &costs[(size_t)from * rank_count + to];
            double bandwidth = cost->seconds_per_byte > 1e-15 ? 1.0 / cost->seconds_per_byte : 1e15;
            if (from == to) continue;
            json_array_append_new(list, json_pack("{s:i, s:i, s:f, s:f}", "from", (int)from, "to",
                                                  (int)to, "alpha", cost->latency, "bandwidth",
                                                  bandwidth));
        }
    }
    return list;
}
