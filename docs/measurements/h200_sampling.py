"""Clock and power sampling, and the small statistics, of the H200 measurements."""

import threading
import time

import torch

try:
    import pynvml
except ImportError:  # Clocks and power are then missing from the results, and the results say so.
    pynvml = None

FIELD_POWER_INSTANT = 186  # NVML_FI_DEV_POWER_INSTANT: not the one-second average of GetPowerUsage.


class ClockSampler:
    """Samples the SM clock (MHz) and the instantaneous power (W) every 20 ms in a thread."""

    def __init__(self, period_s=0.02):
        self.period_s = period_s
        self.samples = []
        self.running = False

    def __enter__(self):
        if pynvml is None:
            return self
        pynvml.nvmlInit()
        self.handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        self.running = True
        self.thread = threading.Thread(target=self._loop, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        if self.running:
            self.running = False
            self.thread.join()

    def _power(self):
        value = pynvml.nvmlDeviceGetFieldValues(self.handle, [FIELD_POWER_INSTANT])[0]
        if value.nvmlReturn == 0:
            return value.value.uiVal / 1000.0
        return pynvml.nvmlDeviceGetPowerUsage(self.handle) / 1000.0

    def _loop(self):
        while self.running:
            clock = pynvml.nvmlDeviceGetClockInfo(self.handle, pynvml.NVML_CLOCK_SM)
            self.samples.append((time.perf_counter(), clock, self._power()))
            time.sleep(self.period_s)

    def between(self, windows, settle_s=0.01):
        """Median clock and mean power over the samples inside the host-time windows."""
        clocks, powers = [], []
        for begin, end in windows:
            for at, clock, power in self.samples:
                if begin + settle_s <= at <= end:
                    clocks.append(clock)
                    powers.append(power)
        if not clocks:
            return {"samples": 0}
        return {
            "samples": len(clocks),
            "sm_clock_mhz_median": median(clocks),
            "sm_clock_mhz_mean": round(sum(clocks) / len(clocks), 1),
            "power_w_mean": round(sum(powers) / len(powers), 1),
        }


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def median_interval(values, draws=4000):
    """Median with its 95 % bootstrap interval (seeded, so a rerun prints the same)."""
    data = torch.tensor(values, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    picks = torch.randint(len(values), (draws, len(values)), generator=generator)
    medians = data[picks].quantile(0.5, dim=1)
    low, high = medians.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return {"median": round(median(values), 5), "low": round(low, 5), "high": round(high, 5), "n": len(values)}
