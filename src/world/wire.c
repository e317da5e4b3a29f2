/* SPDX-License-Identifier: MIT */
#include "world/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/* ---- doors ---- */

/* Of the host, as it was started, and of its network that this process sees; 0: unknown. */
static uint64_t read_network(void) {
    char boot[64] = "";
    struct stat of = {0};
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    bool known = file != NULL && fgets(boot, sizeof boot, file) != NULL &&
                 stat("/proc/self/ns/net", &of) == 0;
    if (file != NULL) fclose(file);
    uint64_t inode = of.st_ino, hash = weir__hash(WEIR__HASH_BEGIN, boot, sizeof boot);
    return known ? weir__hash(hash, &inode, sizeof inode) : 0;
}

/* Addresses that mean something on another host. */
static bool read_address(const struct ifaddrs *each, unsigned char address[16]) {
    if (each->ifa_addr == NULL || (each->ifa_flags & IFF_LOOPBACK) != 0 ||
        (each->ifa_flags & IFF_UP) == 0)
        return false;
    if (each->ifa_addr->sa_family == AF_INET) {
        struct sockaddr_in four;
        memcpy(&four, each->ifa_addr, sizeof four);
        memcpy(address, mapped, sizeof mapped);
        memcpy(address + sizeof mapped, &four.sin_addr, sizeof four.sin_addr);
        return true;
    }
    if (each->ifa_addr->sa_family != AF_INET6) return false;
    struct sockaddr_in6 six;
    memcpy(&six, each->ifa_addr, sizeof six);
    if (IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr)) return false;
    memcpy(address, &six.sin6_addr, sizeof six.sin6_addr);
    return true;
}

static void list_addresses(struct weir__door *door) {
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) != 0) return;
    for (const struct ifaddrs *each = list;
         each != NULL && door->address_count < WEIR__DOOR_ADDRESSES; each = each->ifa_next)
        door->address_count += read_address(each, door->addresses[door->address_count]);
    freeifaddrs(list);
}

static int open_socket(int family) {
    int descriptor = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    if (descriptor >= 0) (void)setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return descriptor;
}

/* Of both families where the host has both. */
static int begin_to_listen(uint32_t *port) {
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_storage bound;
    socklen_t bytes = sizeof bound;
    int off = 0, descriptor = open_socket(AF_INET6);
    if (descriptor >= 0 &&
        (setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0 ||
         bind(descriptor, (struct sockaddr *)&six, sizeof six) != 0)) {
        close(descriptor);
        descriptor = -1;
    }
    if (descriptor < 0 && (descriptor = open_socket(AF_INET)) >= 0 &&
        bind(descriptor, (struct sockaddr *)&four, sizeof four) != 0)
        goto fail;
    if (descriptor < 0) return -1;
    if (listen(descriptor, BACKLOG) != 0 ||
        getsockname(descriptor, (struct sockaddr *)&bound, &bytes) != 0)
        goto fail;
    memcpy(bound.ss_family == AF_INET6 ? (void *)&six : (void *)&four, &bound,
           bound.ss_family == AF_INET6 ? sizeof six : sizeof four);
    *port = ntohs(bound.ss_family == AF_INET6 ? six.sin6_port : four.sin_port);
    return descriptor;
fail:
    close(descriptor);
    return -1;
}

void weir__door_make(const char *host, struct weir__door *door, int *listener) {
    assert(door != NULL && listener != NULL);
    *door = (struct weir__door){.network = read_network()};
    snprintf(door->host, sizeof door->host, "%s", host);
    list_addresses(door);
    *listener = -1;
    if (getrandom(door->token, sizeof door->token, 0) != sizeof door->token) return;
    *listener = begin_to_listen(&door->port);
    assert((*listener >= 0) == (door->port != 0));
}

uint32_t weir__door_ways(const struct weir__door *own, const struct weir__door *to) {
    return to->port == 0 ? 0 : to->address_count + weir__door_is_near(own, to);
}

int weir__door_connect(const struct weir__door *own, const struct weir__door *to, uint32_t which) {
    static const unsigned char loopback[4] = {127, 0, 0, 1};
    bool near = weir__door_is_near(own, to);
    unsigned char address[16];
    assert(which < weir__door_ways(own, to));
    memcpy(address, mapped, sizeof mapped);
    memcpy(address + sizeof mapped, loopback, sizeof loopback);
    if (!near || which > 0) memcpy(address, to->addresses[which - near], sizeof address);
    bool is_four = memcmp(address, mapped, sizeof mapped) == 0;
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)to->port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)to->port)};
    memcpy(&six.sin6_addr, address, sizeof six.sin6_addr);
    memcpy(&four.sin_addr, address + sizeof mapped, sizeof four.sin_addr);
    int descriptor = open_socket(is_four ? AF_INET : AF_INET6);
    if (descriptor < 0) return -1;
    int begun = is_four ? connect(descriptor, (struct sockaddr *)&four, sizeof four)
                        : connect(descriptor, (struct sockaddr *)&six, sizeof six);
    if (begun == 0 || errno == EINPROGRESS) return descriptor;
    close(descriptor);
    return -1;
}

int weir__door_accept(int listener) {
    int on = 1, descriptor = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor >= 0) (void)setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return descriptor;
}

/* ---- wires ---- */

/* False: the connection is over. */
static bool flush(struct weir__wire *wire) {
    while (wire->unsent > 0) {
        ssize_t sent = send(wire->descriptor, wire->out + sizeof wire->out - wire->unsent,
                            wire->unsent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return errno == EAGAIN || errno == ENOTCONN;
        wire->unsent -= (uint32_t)sent;
    }
    return true;
}

bool weir__wire_send(struct weir__wire *wire, const struct weir__word *word) {
    assert(wire->descriptor >= 0 && wire->unsent <= sizeof wire->out);
    if (!flush(wire)) return false;
    if (wire->unsent > 0) return true;
    memcpy(wire->out, word, sizeof *word);
    wire->unsent = sizeof *word;
    return flush(wire);
}

enum weir__wire_news weir__wire_receive(struct weir__wire *wire, struct weir__word *word) {
    assert(wire->descriptor >= 0 && wire->read < sizeof wire->in);
    while (wire->read < sizeof wire->in) {
        ssize_t got =
            recv(wire->descriptor, wire->in + wire->read, sizeof wire->in - wire->read, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return WEIR__WIRE_NOTHING;
        if (got <= 0) return WEIR__WIRE_OVER;
        wire->read += (uint32_t)got;
    }
    memcpy(word, wire->in, sizeof *word);
    wire->read = 0;
    return WEIR__WIRE_NOTE;
}

bool weir__wire_is_through(const struct weir__wire *wire) {
    int bytes = 0;
    return ioctl(wire->descriptor, SIOCOUTQ, &bytes) != 0 || bytes == 0;
}

void weir__wire_close(struct weir__wire *wire) {
    if (wire->descriptor >= 0) close(wire->descriptor);
    *wire = (struct weir__wire){.descriptor = -1};
}
