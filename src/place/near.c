/* SPDX-License-Identifier: MIT */
/* What is near a PCI device, from the kernel's own files: hwloc says the same, but has to be told
 * to look at devices at all, which makes every start slower. */
#include "place/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_BYTES_MAX = 4096 };

/* "0000:3B:00.0" or "3b:0.0" to the kernel's spelling; the driver's is upper case. */
static bool spell(const char *address, char *text, size_t capacity) {
    assert(address != NULL && capacity > 0);
    unsigned domain = 0, bus, device, function;
    int end = 0;
    if (sscanf(address, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &end) != 4) {
        domain = 0;
        if (sscanf(address, "%2x:%2x.%1x%n", &bus, &device, &function, &end) != 3) return false;
    }
    if (address[end] != '\0') return false;
    int length = snprintf(text, capacity, "%04x:%02x:%02x.%x", domain, bus, device, function);
    return length > 0 && (size_t)length < capacity;
}

/* A file of one line, without its end. */
static bool read_line(const char *root, const char *address, const char *name, char *line,
                      size_t capacity) {
    char path[512];
    int length = snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/%s", root, address, name);
    if (length < 0 || (size_t)length >= sizeof path) return false;
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    bool got = fgets(line, (int)capacity, file) != NULL;
    fclose(file);
    if (got) line[strcspn(line, "\n")] = '\0';
    return got;
}

/* The cores of the list that we may use; none where the kernel gives no list. */
static int fill_cores(const struct weir__machine *machine, const char *list,
                      struct weir__near *near) {
    assert(near->core_count == 0 && machine->core_count <= WEIR__PLACE_CORES_MAX);
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (set == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    bool good = hwloc_bitmap_list_sscanf(set, list) == 0 &&
                hwloc_bitmap_and(set, set, machine->allowed) == 0;
    if (good && !hwloc_bitmap_iszero(set)) weir__list_text(set, near->cores, sizeof near->cores);
    for (uint32_t i = 0; good && i < machine->core_count; i++) {
        uint32_t unit = machine->cores[i].unit;
        if (hwloc_bitmap_isset(set, unit)) near->core_ids[near->core_count++] = unit;
    }
    hwloc_bitmap_free(set);
    return WEIR_OK;
}

int weir__near_read(const struct weir__machine *machine, const char *root, const char *address,
                    struct weir__near *near) {
    char spelled[32], line[LIST_BYTES_MAX];
    assert(machine != NULL && address != NULL && near != NULL);
    if (!spell(address, spelled, sizeof spelled)) return WEIR_ERR_ARGUMENT;
    if (!read_line(root, spelled, "numa_node", line, sizeof line)) return WEIR_ERR_NOT_FOUND;
    *near = (struct weir__near){.numa_node = (int32_t)strtol(line, NULL, 10)};
    if (near->numa_node < 0) near->numa_node = -1;
    if (!read_line(root, spelled, "local_cpulist", line, sizeof line)) return WEIR_OK;
    return fill_cores(machine, line, near);
}

int weir__place_near(const struct weir__machine *machine, const char *address,
                     struct weir__near *near) {
    const char *root = machine->synthetic ? getenv("HWLOC_FSROOT") : "";
    return root == NULL ? WEIR_ERR_NOT_FOUND : weir__near_read(machine, root, address, near);
}
