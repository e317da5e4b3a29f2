/* SPDX-License-Identifier: MIT */
/* Finds a device's kind by its name: one entry per kind. */
#include "device/device.h"
#include "device/kinds.h"

#include <string.h>

struct kind {
    const char *name;
    weir__device_open_fn *open;
    weir__device_probe_fn *probe;
    weir__device_reach_fn *reach; /* NULL: it reaches all */
    bool own_memory;              /* each number has a memory of its own; else it is the host's */
    bool synchronous;
};

static const struct kind kinds[] = {
    {"cpu", weir__cpu_open, weir__cpu_probe, NULL, false, true},
    {"cuda", weir__cuda_open, weir__cuda_probe, weir__cuda_reach, true, false},
};

_Static_assert(WEIR__COUNT_OF(kinds) == 2, "find names all kinds");

enum { ORDINAL_DIGITS_MAX = 6 };

static bool is_lower(char c) {
    return c >= 'a' && c <= 'z';
}

/* "kind" or "kind:N": the kind's length and N. False for anything else. */
static bool parse(const char *name, size_t *kind_length, uint32_t *ordinal) {
    assert(name != NULL);
    size_t length = 0;
    while (is_lower(name[length])) length++;
    if (length == 0) return false;
    *kind_length = length;
    *ordinal = 0;
    if (name[length] == '\0') return true;
    if (name[length] != ':') return false;
    const char *digits = &name[length + 1];
    size_t count = strspn(digits, "0123456789");
    if (count == 0 || count > ORDINAL_DIGITS_MAX || digits[count] != '\0') return false;
    for (size_t i = 0; i < count; i++) *ordinal = *ordinal * 10 + (uint32_t)(digits[i] - '0');
    return true;
}

static const struct kind *find_kind(const char *name, size_t length) {
    assert(name != NULL && length > 0);
    for (size_t i = 0; i < WEIR__COUNT_OF(kinds); i++)
        if (strlen(kinds[i].name) == length && strncmp(kinds[i].name, name, length) == 0)
            return &kinds[i];
    return NULL;
}

struct weir__device_facts weir__device_facts(const char *name) {
    struct weir__device_facts facts = {0, true};
    size_t length;
    uint32_t ordinal;
    if (name == NULL || !parse(name, &length, &ordinal)) return facts;
    const struct kind *kind = find_kind(name, length);
    if (kind == NULL) return facts;
    return (struct weir__device_facts){kind->own_memory ? 1 + ordinal : 0, kind->synchronous};
}

uint64_t weir__device_reach(const char *name) {
    size_t length;
    uint32_t ordinal;
    if (name == NULL || !parse(name, &length, &ordinal)) return UINT64_MAX;
    const struct kind *kind = find_kind(name, length);
    return kind == NULL || kind->reach == NULL ? UINT64_MAX : kind->reach(ordinal);
}

/* Gives the kind and the number that the name says, or tells why there is none. */
static int find(const char *name, struct weir_error *error, const struct kind **kind,
                uint32_t *ordinal) {
    assert(kind != NULL && ordinal != NULL);
    size_t length;
    if (name == NULL || strlen(name) >= sizeof((struct weir__device *)0)->name ||
        !parse(name, &length, ordinal))
        return weir__fail(error, WEIR_ERR_ARGUMENT,
                          "a device is named by its kind and perhaps a number, like cpu, cuda or "
                          "cuda:1");
    *kind = find_kind(name, length);
    if (*kind != NULL) return WEIR_OK;
    return weir__fail(error, WEIR_ERR_NOT_FOUND,
                      "there is no such kind of device: use cpu or cuda");
}

int weir__device_open(const char *name, const struct weir_allocator *allocator,
                      struct weir_error *error, struct weir__device **device) {
    assert(device != NULL);
    const struct kind *kind;
    uint32_t ordinal;
    int status = find(name, error, &kind, &ordinal);
    return status != WEIR_OK ? status : kind->open(name, ordinal, allocator, error, device);
}

int weir__device_check(const char *name, struct weir_error *error) {
    const struct kind *kind;
    uint32_t ordinal;
    int status = find(name, error, &kind, &ordinal);
    return status != WEIR_OK ? status : kind->probe(ordinal, error);
}
