/* SPDX-License-Identifier: MIT */
/* When an event was done, by the host's clock. The driver gives the time between two events, as
 * milliseconds in a float: exact to half a microsecond up to 4 seconds, to a second after a day. So
 * events are measured from a base, which is made anew when one lies too far from it.
 *
 * A base's own host time is known to the time between just before its record and just after it was
 * seen done, some microseconds on an idle stream; the tightest of a few is taken. The clocks' rates
 * differ by tens of parts per million (100 us in 4 s), and by hundreds while NTP turns the host's.
 * So before an event is measured the base is made anew if it is old: what was done before then lies
 * between two bases and is known as they are, whatever the rate. What is done after a base is off
 * by the rate's error for at most a span: 16 ms while it is unknown (1.6 us at 100 parts per
 * million), then 256 ms (5 us / 0.5 s of the first bases' error: 2.6 us). A base takes some 50 us,
 * 0.02% of that. */
#include "device/cuda.h"

#include <math.h>
#include <stdatomic.h>

enum { TRIES = 8, QUERIES_MAX = 100000 };

/* A rate beyond this is no clock's: one of them was set, or the machine slept. */
#define RATE_ERROR_MAX 1e-3
/* Before so much has passed, the bases' own error says more than the rate's. */
#define RATE_AFTER_NS 5e8
#define SPAN_UNKNOWN_NS UINT64_C(16000000)
#define SPAN_NS UINT64_C(256000000)
/* Bases so close to each other are one: the rate between them would be their errors'. */
#define CLOSE_NS 8e6

/* ---- the mapping ---- */

void weir__cuda_clock_begin(struct weir__cuda_clock *clock, uint64_t host_ns) {
    *clock = (struct weir__cuda_clock){
        .first_host_ns = host_ns, .base_host_ns = host_ns, .rate = 1.0, .former_rate = 1.0};
}

static bool is_rate(double rate) {
    return rate > 1.0 - RATE_ERROR_MAX && rate < 1.0 + RATE_ERROR_MAX;
}

/* What passed since the base before; nothing if that is no rate. */
static void set_former(struct weir__cuda_clock *clock, double host_ns, double gpu_ns) {
    if (host_ns < CLOSE_NS) {
        host_ns += clock->former_gpu_ns * clock->former_rate;
        gpu_ns += clock->former_gpu_ns;
    }
    bool is_known = gpu_ns > 0.0 && is_rate(host_ns / gpu_ns);
    clock->former_gpu_ns = is_known ? gpu_ns : 0.0;
    clock->former_rate = is_known ? host_ns / gpu_ns : clock->rate;
}

void weir__cuda_clock_rebase(struct weir__cuda_clock *clock, uint64_t host_ns, float milliseconds) {
    assert(clock->rate > 0.0);
    double gpu_ns = (double)milliseconds * 1e6;
    set_former(clock, (double)(int64_t)(host_ns - clock->base_host_ns), gpu_ns);
    clock->base_gpu_ns += gpu_ns;
    clock->base_host_ns = host_ns;
    if (clock->base_gpu_ns < RATE_AFTER_NS) return;
    double host_passed = (double)(int64_t)(host_ns - clock->first_host_ns);
    double rate = host_passed / clock->base_gpu_ns;
    if (is_rate(rate))
        clock->rate = rate;
    else
        weir__cuda_clock_begin(clock, host_ns);
}

uint64_t weir__cuda_clock_span_ns(const struct weir__cuda_clock *clock) {
    return clock->base_gpu_ns < RATE_AFTER_NS ? SPAN_UNKNOWN_NS : SPAN_NS;
}

uint64_t weir__cuda_clock_map(const struct weir__cuda_clock *clock, float milliseconds) {
    double gpu_ns = (double)milliseconds * 1e6, between = 0.0;
    if (gpu_ns < 0.0) between = gpu_ns > -clock->former_gpu_ns ? gpu_ns : -clock->former_gpu_ns;
    double after = between * clock->former_rate + (gpu_ns - between) * clock->rate;
    return clock->base_host_ns + (uint64_t)(int64_t)(after < 0.0 ? after - 0.5 : after + 0.5);
}

/* ---- bases ---- */

static int wait_done(struct weir__cuda_device *device, struct CUevent_st *event) {
    for (int i = 0; i < QUERIES_MAX; i++) {
        int result = device->driver.event_query(event);
        if (result != WEIR__CUDA_NOT_READY) return weir__cuda_check(device, "cuEventQuery", result);
    }
    int result = device->driver.stream_synchronize(device->own);
    return weir__cuda_check(device, "cuStreamSynchronize", result);
}

/* Records bases[1], as well placed as can be; bases[2] is for trials. */
static int place_base(struct weir__cuda_device *device, uint64_t *host_ns) {
    uint64_t tightest = UINT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        uint64_t before = weir__now_ns();
        int result = device->driver.event_record(device->bases[2], device->own);
        int status = weir__cuda_check(device, "cuEventRecord", result);
        if (status != WEIR_OK) return status;
        if ((status = wait_done(device, device->bases[2])) != WEIR_OK) return status;
        uint64_t took = weir__now_ns() - before;
        if (took >= tightest) continue;
        tightest = took;
        *host_ns = before + took / 2;
        struct CUevent_st *trial = device->bases[2];
        device->bases[2] = device->bases[1];
        device->bases[1] = trial;
    }
    return WEIR_OK;
}

static void swap_base(struct weir__cuda_device *device) {
    struct CUevent_st *former = device->bases[0];
    device->bases[0] = device->bases[1];
    device->bases[1] = former;
}

static int elapsed(struct weir__cuda_device *device, struct CUevent_st *start,
                   struct CUevent_st *end, float *milliseconds) {
    int result = device->driver.event_elapsed(milliseconds, start, end);
    return weir__cuda_check(device, "cuEventElapsedTime", result);
}

static int renew_base(struct weir__cuda_device *device) {
    uint64_t host_ns = 0;
    float passed = 0.0f;
    int status = place_base(device, &host_ns);
    if (status != WEIR_OK) return status;
    if ((status = elapsed(device, device->bases[0], device->bases[1], &passed)) != WEIR_OK)
        return status;
    weir__cuda_clock_rebase(&device->clock, host_ns, passed);
    swap_base(device);
    return WEIR_OK;
}

/* What is far from the base is near to now, and asks for a new base; or it is old, and a new base
 * is of no use: then it is mapped less exactly, and so are others for a while. */
static int measure(struct weir__cuda_device *device, struct CUevent_st *event, float *since) {
    const uint64_t far_ns = (uint64_t)(WEIR__CUDA_CLOCK_FAR_MS * 1e6f);
    const struct weir__cuda_clock *clock = &device->clock;
    int status = WEIR_OK;
    if (weir__now_ns() - clock->base_host_ns >= weir__cuda_clock_span_ns(clock))
        status = renew_base(device);
    if (status != WEIR_OK) return status;
    status = elapsed(device, device->bases[0], event, since);
    if (status != WEIR_OK || fabsf(*since) < WEIR__CUDA_CLOCK_FAR_MS) return status;
    if (weir__now_ns() < device->in_vain_until_ns) return WEIR_OK;
    if ((status = renew_base(device)) != WEIR_OK) return status;
    status = elapsed(device, device->bases[0], event, since);
    if (fabsf(*since) >= WEIR__CUDA_CLOCK_FAR_MS)
        device->in_vain_until_ns = weir__now_ns() + far_ns;
    return status;
}

static int ask(struct weir__event *event, uint64_t *ns) {
    struct weir__cuda_device *device = weir__cuda_device(event->device);
    struct weir__cuda_scope scope;
    float since = 0.0f;
    pthread_mutex_lock(&device->lock);
    int status = weir__cuda_scope_begin(device, &scope);
    if (status != WEIR_OK) goto out;
    if ((status = measure(device, event->native, &since)) != WEIR_OK) goto out;
    *ns = weir__cuda_clock_map(&device->clock, since);
out:
    weir__cuda_scope_end(device, &scope);
    pthread_mutex_unlock(&device->lock);
    return status;
}

/* Who waited for an event asks too: once is enough. */
int weir__cuda_event_time(struct weir__event *event, uint64_t *ns) {
    uint64_t told = atomic_load_explicit(&event->told_ns, memory_order_relaxed);
    int status = told != 0 ? WEIR_OK : ask(event, &told);
    if (status != WEIR_OK) return status;
    atomic_store_explicit(&event->told_ns, told, memory_order_relaxed);
    *ns = told;
    return WEIR_OK;
}

int weir__cuda_clock_new(struct weir__cuda_device *device) {
    const struct weir__cuda_driver *driver = &device->driver;
    int result =
        driver->stream_create(&device->own, WEIR__CUDA_STREAM_NON_BLOCKING, device->priorities[0]);
    int status = weir__cuda_check(device, "cuStreamCreateWithPriority", result);
    for (size_t i = 0; status == WEIR_OK && i < WEIR__COUNT_OF(device->bases); i++)
        status =
            weir__cuda_check(device, "cuEventCreate", driver->event_create(&device->bases[i], 0));
    uint64_t host_ns = 0;
    if (status != WEIR_OK) return status;
    if ((status = place_base(device, &host_ns)) != WEIR_OK) return status;
    swap_base(device);
    weir__cuda_clock_begin(&device->clock, host_ns);
    return WEIR_OK;
}

void weir__cuda_clock_destroy(struct weir__cuda_device *device) {
    for (size_t i = 0; i < WEIR__COUNT_OF(device->bases); i++) {
        if (device->bases[i] != NULL) (void)device->driver.event_destroy(device->bases[i]);
        device->bases[i] = NULL;
    }
    if (device->own != NULL) (void)device->driver.stream_destroy(device->own);
    device->own = NULL;
}
