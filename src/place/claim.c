/* SPDX-License-Identifier: MIT */
/* Claims on cores, so that two Weir processes do not both spin on one. A claim is an abstract Unix
 * socket bound to the core's name: the kernel keeps such a name unique (within a network namespace)
 * and frees it with the process, however that ends; there is no file to be left behind. Where
 * sockets are not to be had, nothing is claimed: a claim is a courtesy, not a lock. */
#include "place/machine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The name after a zero byte, which makes it abstract. */
static socklen_t claim_address(uint32_t core_id, struct sockaddr_un *address) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length =
        snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "weir-core-%u", core_id);
    assert(length > 0 && (size_t)length < sizeof address->sun_path - 1);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static bool is_bound_to(int fd, const struct sockaddr_un *address, socklen_t bytes) {
    assert(fd >= 0);
    struct sockaddr_un own;
    socklen_t own_bytes = sizeof own;
    if (getsockname(fd, (struct sockaddr *)&own, &own_bytes) != 0) return false;
    return own_bytes == bytes && memcmp(&own, address, bytes) == 0;
}

/* A second hold on the claim of another pipe of this process, so that it lasts as long as the
 * longer of both; -1 if no descriptor of ours is that claim. Pipes come and go on other threads,
 * hence the second look after the duplication. */
static int share_claim(const struct sockaddr_un *address, socklen_t bytes) {
    DIR *directory = opendir("/proc/self/fd");
    if (directory == NULL) return -1;
    int shared = -1;
    struct dirent *entry;
    while (shared < 0 && (entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
        int fd = atoi(entry->d_name);
        if (!is_bound_to(fd, address, bytes)) continue;
        shared = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (shared < 0 || is_bound_to(shared, address, bytes)) continue;
        (void)close(shared);
        shared = -1;
    }
    (void)closedir(directory);
    return shared;
}

enum weir__claim weir__claim_core(struct weir__machine *machine, uint32_t core) {
    assert(core < machine->core_count);
    if (machine->synthetic || machine->claims[core] >= 0) return WEIR__CLAIM_OURS;
    struct sockaddr_un address;
    socklen_t bytes = claim_address(machine->cores[core].id, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return WEIR__CLAIM_OURS;
    if (bind(fd, (struct sockaddr *)&address, bytes) == 0) {
        machine->claims[core] = fd;
        return WEIR__CLAIM_OURS;
    }
    bool in_use = errno == EADDRINUSE;
    (void)close(fd);
    if (!in_use) return WEIR__CLAIM_OURS;
    machine->claims[core] = share_claim(&address, bytes);
    return machine->claims[core] >= 0 ? WEIR__CLAIM_SIBLING : WEIR__CLAIM_STRANGER;
}

void weir__unclaim_core(struct weir__machine *machine, uint32_t core) {
    assert(core < machine->core_count);
    if (machine->claims[core] < 0) return;
    (void)close(machine->claims[core]);
    machine->claims[core] = -1;
}

void weir__place_unclaim(struct weir__machine *machine) {
    if (machine == NULL) return;
    for (uint32_t i = 0; i < machine->core_count; i++) weir__unclaim_core(machine, i);
}
