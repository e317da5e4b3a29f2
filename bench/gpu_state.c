/* SPDX-License-Identifier: MIT */
#include "gpu_state.h"

#include "base/base.h"
#include "harness.h"

#include <dlfcn.h>
#include <string.h>

enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, SENSOR_GPU = 0 }; /* NVML's numbers */
enum { PAUSE_NS = 100000000 };

/* nvmlClocksEventReasons; idle (1) is none. */
static const struct {
    uint64_t bit;
    const char *name;
} reasons[] = {{0x2, "clocks that were set"}, {0x4, "power"},
               {0x8, "hardware slowdown"},    {0x10, "sync boost"},
               {0x20, "heat (software)"},     {0x40, "heat (hardware)"},
               {0x80, "power brake"},         {0x100, "display clocks"}};

/* False, and 0, where the function is missing or fails. */
static bool ask(const struct gpu_state *state, const char *symbol, uint32_t *value) {
    union {
        void *found;
        int (*call)(struct nvmlDevice_st *device, unsigned *value);
    } function = {.found = dlsym(state->library, symbol)};
    *value = 0;
    return function.found != NULL && function.call(state->device, value) == 0;
}

static bool ask_of(const struct gpu_state *state, const char *symbol, int which, uint32_t *value) {
    union {
        void *found;
        int (*call)(struct nvmlDevice_st *device, int which, unsigned *value);
    } function = {.found = dlsym(state->library, symbol)};
    *value = 0;
    return function.found != NULL && function.call(state->device, which, value) == 0;
}

static uint64_t ask_reasons(const struct gpu_state *state) {
    union {
        void *found;
        int (*call)(struct nvmlDevice_st *device, unsigned long long *value);
    } function = {.found = dlsym(state->library, "nvmlDeviceGetCurrentClocksThrottleReasons")};
    unsigned long long value = 0;
    if (function.found == NULL || function.call(state->device, &value) != 0) return 0;
    return value;
}

static int call_library(const struct gpu_state *state, const char *symbol) {
    union {
        void *found;
        int (*call)(void);
    } function = {.found = dlsym(state->library, symbol)};
    return function.found != NULL ? function.call() : -1;
}

void gpu_state_open(struct gpu_state *state, void *library, const char *pci) {
    *state = (struct gpu_state){.library = library};
    if (library == NULL) state->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (state->library == NULL || call_library(state, "nvmlInit_v2") != 0) return;
    union {
        void *found;
        int (*call)(const char *pci, struct nvmlDevice_st **device);
    } find = {.found = dlsym(state->library, "nvmlDeviceGetHandleByPciBusId_v2")};
    if (find.found == NULL || find.call(pci, &state->device) != 0) state->device = NULL;
    if (state->device == NULL) return;
    (void)ask_of(state, "nvmlDeviceGetMaxClockInfo", CLOCK_SM, &state->sm_mhz_most);
    (void)ask(state, "nvmlDeviceGetEnforcedPowerLimit", &state->power_mw_limit);
}

static void keep_least(uint32_t *least, uint32_t value) {
    if (*least == 0 || value < *least) *least = value;
}

static void keep_most(uint32_t *most, uint32_t value) {
    if (value > *most) *most = value;
}

void gpu_state_look(struct gpu_state *state) {
    uint64_t now = weir__now_ns();
    uint32_t value;
    if (state->device == NULL || now < state->next_ns) return;
    state->next_ns = now + PAUSE_NS;
    state->looks++;
    if (ask_of(state, "nvmlDeviceGetClockInfo", CLOCK_SM, &value))
        keep_least(&state->sm_mhz_least, value);
    if (ask_of(state, "nvmlDeviceGetClockInfo", CLOCK_MEMORY, &value))
        keep_least(&state->memory_mhz_least, value);
    if (ask(state, "nvmlDeviceGetPowerUsage", &value)) keep_most(&state->power_mw_most, value);
    if (ask_of(state, "nvmlDeviceGetTemperature", SENSOR_GPU, &value))
        keep_most(&state->celsius_most, value);
    state->held_back |= ask_reasons(state) & ~UINT64_C(1);
}

void gpu_state_close(struct gpu_state *state) {
    if (state->device != NULL) (void)call_library(state, "nvmlShutdown");
    *state = (struct gpu_state){0};
}

const char *gpu_state_reason(const struct gpu_state *state, uint32_t i) {
    for (size_t r = 0; r < WEIR__COUNT_OF(reasons); r++)
        if ((state->held_back & reasons[r].bit) != 0 && i-- == 0) return reasons[r].name;
    return NULL;
}
