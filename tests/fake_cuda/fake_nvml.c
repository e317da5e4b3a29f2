/* SPDX-License-Identifier: MIT */
/* NVML's symbols, as far as the benches ask (bench/gpu_state.c): one GPU for all addresses, always
 * the same. The environment's WEIR_FAKE_CUDA_HELD_BACK, a mask, is why its clock is low. */
#include <stdlib.h>
#include <string.h>

enum { NO_SUCH = 6, CLOCK_SM = 1 };

struct nvmlDevice_st {
    unsigned power_mw, power_mw_limit, celsius;
    unsigned long long reasons;
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, struct nvmlDevice_st **device);
int nvmlDeviceGetClockInfo(struct nvmlDevice_st *device, int which, unsigned *mhz);
int nvmlDeviceGetMaxClockInfo(struct nvmlDevice_st *device, int which, unsigned *mhz);
int nvmlDeviceGetPowerUsage(struct nvmlDevice_st *device, unsigned *milliwatts);
int nvmlDeviceGetEnforcedPowerLimit(struct nvmlDevice_st *device, unsigned *milliwatts);
int nvmlDeviceGetTemperature(struct nvmlDevice_st *device, int sensor, unsigned *celsius);
int nvmlDeviceGetCurrentClocksThrottleReasons(struct nvmlDevice_st *device,
                                              unsigned long long *reasons);

int nvmlInit_v2(void) {
    return 0;
}

int nvmlShutdown(void) {
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, struct nvmlDevice_st **device) {
    /* idle, and held back by power and heat */
    static struct nvmlDevice_st all = {650000, 700000, 71, 0x1 | 0x4 | 0x20};
    if (strchr(pci, ':') == NULL) return NO_SUCH;
    *device = &all;
    return 0;
}

int nvmlDeviceGetClockInfo(struct nvmlDevice_st *device, int which, unsigned *mhz) {
    (void)device;
    *mhz = which == CLOCK_SM ? 1755 : 2619;
    return 0;
}

int nvmlDeviceGetMaxClockInfo(struct nvmlDevice_st *device, int which, unsigned *mhz) {
    (void)device;
    *mhz = which == CLOCK_SM ? 1980 : 2619;
    return 0;
}

int nvmlDeviceGetPowerUsage(struct nvmlDevice_st *device, unsigned *milliwatts) {
    *milliwatts = device->power_mw;
    return 0;
}

int nvmlDeviceGetEnforcedPowerLimit(struct nvmlDevice_st *device, unsigned *milliwatts) {
    *milliwatts = device->power_mw_limit;
    return 0;
}

int nvmlDeviceGetTemperature(struct nvmlDevice_st *device, int sensor, unsigned *celsius) {
    *celsius = device->celsius;
    return sensor == 0 ? 0 : NO_SUCH;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(struct nvmlDevice_st *device,
                                              unsigned long long *reasons) {
    const char *given = getenv("WEIR_FAKE_CUDA_HELD_BACK");
    *reasons = given != NULL ? strtoull(given, NULL, 0) : device->reasons;
    return 0;
}
