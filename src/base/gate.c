/* SPDX-License-Identifier: MIT */
/* Spin first, then futex: a spinning hand-off between two cores takes a fraction of a microsecond,
 * a parked one some twenty. The writer pays one locked store, and enters the kernel only when
 * somebody sleeps.
 *
 * No wake is lost (Dekker): the waiter counts itself in and then looks at the value, the writer
 * stores the value and then looks at the count, all sequentially consistent; so at least one sees
 * the other. Between the waiter's look and its sleep the kernel compares the value once more. */
#include "base/base.h"
#include "base/portable.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The clock costs more than a look at the gate: read it once in that many. */
enum { SPINS_PER_CLOCK = 64 };
#define NANOSECONDS UINT64_C(1000000000)
#define NEVER UINT64_MAX

_Static_assert(sizeof(_Atomic uint32_t) == 4, "the futex is the value itself");
_Static_assert(sizeof(struct weir__gate) == WEIR__CACHE_LINE, "a gate has a line of its own");

void weir__gate_advance(struct weir__gate *gate, uint32_t value) {
    atomic_store_explicit(&gate->value, value, memory_order_seq_cst);
    if (WEIR__LIKELY(atomic_load_explicit(&gate->sleepers, memory_order_seq_cst) == 0)) return;
    syscall(SYS_futex, &gate->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static uint64_t later(uint64_t now, uint64_t ns) {
    return ns > NEVER - now ? NEVER : now + ns;
}

static bool spin(struct weir__gate *gate, uint32_t wanted, uint64_t until) {
    do {
        for (int i = 0; i < SPINS_PER_CLOCK; i++) {
            if (weir__gate_reached(gate, wanted)) return true;
            weir__pause();
        }
    } while (weir__now_ns() < until);
    return weir__gate_reached(gate, wanted);
}

/* Sleeps while the value is `seen`, until `deadline` at most. Returns early for any reason. */
static void sleep_on(struct weir__gate *gate, uint32_t seen, uint64_t deadline) {
    struct timespec limit = {.tv_sec = (time_t)(deadline / NANOSECONDS),
                             .tv_nsec = (long)(deadline % NANOSECONDS)};
    long status = syscall(SYS_futex, &gate->value, FUTEX_WAIT_BITSET_PRIVATE, seen,
                          deadline == NEVER ? NULL : &limit, NULL, FUTEX_BITSET_MATCH_ANY);
    bool expected = status == 0 || errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT;
    if (!expected) sched_yield(); /* a sandbox without futexes: polling is slow but right */
}

static bool park(struct weir__gate *gate, uint32_t wanted, uint64_t deadline) {
    bool reached = false;
    atomic_fetch_add_explicit(&gate->sleepers, 1, memory_order_seq_cst);
    for (;;) {
        uint32_t seen = atomic_load_explicit(&gate->value, memory_order_seq_cst);
        reached = (int32_t)(seen - wanted) >= 0;
        if (reached || (deadline != NEVER && weir__now_ns() >= deadline)) break;
        sleep_on(gate, seen, deadline);
    }
    uint32_t before = atomic_fetch_sub_explicit(&gate->sleepers, 1, memory_order_relaxed);
    assert(before > 0);
    (void)before;
    return reached;
}

bool weir__gate_wait(struct weir__gate *gate, uint32_t wanted, uint64_t spin_ns,
                     uint64_t timeout_ns) {
    assert(gate != NULL);
    if (weir__gate_reached(gate, wanted)) return true;
    uint64_t now = weir__now_ns();
    uint64_t deadline = timeout_ns == 0 ? NEVER : later(now, timeout_ns);
    uint64_t spin_until = later(now, spin_ns);
    if (spin_until > deadline) spin_until = deadline;
    if (spin_ns > 0 && spin(gate, wanted, spin_until)) return true;
    return park(gate, wanted, deadline);
}
