"""The peer's step with copies beside it, its phases, and its GPU time by kernel class."""

import json
import os
import random
import tempfile
import time

import torch

from h200_host_cost import TINY, stack_and_input
from h200_lanes import Feeder, make_lanes
from h200_peer_model import loss_of, make_peer
from h200_sampling import ClockSampler, median, median_interval

MICROBATCHES = 4
IDLE_TAIL_S = 0.008  # The same idle time after every step, whatever the copies still had to do.


def timing_event():
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def kernel_class(name):
    lower = name.lower()
    if "sdpa" in lower or "flash" in lower or "fmha" in lower or "cudnn" in lower:
        return "attention"
    if any(word in lower for word in ("nvjet", "gemm", "cutlass", "splitk", "xmma")):
        return "linear"
    return "rest"


class CopyPlan:
    """What a condition copies: `forward` and `backward` give the lane and the pieces, at the phase or at each layer."""

    def __init__(self, forward_pieces=0, backward_pieces=0, per_layer=False, continuous=()):
        self.forward_pieces = forward_pieces
        self.backward_pieces = backward_pieces
        self.per_layer = per_layer
        self.continuous = continuous


class StepRunner:
    def __init__(self):
        self.model = make_peer()
        self.x = torch.randn(1, 4096, 4096, device="cuda", dtype=torch.bfloat16)
        self.lanes = make_lanes(64)
        self.layer_lanes = make_lanes(96)
        self.trains = []

    def train(self, lane, pieces):
        """Copies that may start once the compute stream gets here."""
        ready = torch.cuda.Event()
        ready.record()
        lane.stream.wait_event(ready)
        lane.begin()
        for _ in range(pieces):
            lane.push()
        lane.in_flight.clear()
        self.trains.append((lane.first, lane.last))

    def set_hooks(self, plan):
        self.model.before_layer = self.model.before_layer_backward = None
        if not plan.per_layer:
            return
        self.model.before_layer = lambda _: self.train(self.layer_lanes["d2h"], plan.forward_pieces)
        self.model.before_layer_backward = lambda _: self.train(self.layer_lanes["h2d"], plan.backward_pieces)

    def phase(self, plan, name):
        pieces = plan.forward_pieces if name == "d2h" else plan.backward_pieces
        if pieces and not plan.per_layer:
            self.train(self.lanes[name], pieces)

    def step(self, plan):
        self.set_hooks(plan)
        self.trains = []
        torch.cuda.synchronize()
        host_begin = time.perf_counter()
        feeder = Feeder([self.lanes[name] for name in plan.continuous])
        marks = []
        for _ in range(MICROBATCHES):
            marks.append(timing_event())
            self.phase(plan, "d2h")
            y = self.model(self.x)
            marks.append(timing_event())
            self.phase(plan, "h2d")
            loss_of(y).backward()
            del y
        marks.append(timing_event())
        marks[-1].synchronize()
        host_end = time.perf_counter()
        feeder.stop()
        torch.cuda.synchronize()
        self.model.zero_grad(set_to_none=True)
        time.sleep(max(0.0, host_end + IDLE_TAIL_S - time.perf_counter()))
        return self.summarise(marks, plan, (host_begin, host_end))

    def summarise(self, marks, plan, window):
        spans = [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
        step_ms = marks[0].elapsed_time(marks[-1])
        covered = sum(a.elapsed_time(b) for a, b in self.trains)
        if plan.continuous:
            covered = step_ms
        return {"step_ms": step_ms, "forward_ms": spans[0::2], "backward_ms": spans[1::2],
                "covered_ms": covered, "window": window}


def plans_for(forward_ms, backward_ms):
    """Full duty covers about 85 % of a phase at 55 GB/s (1.22 ms a piece); half duty paces 96 MiB pieces by layer."""
    return {
        "none": CopyPlan(),
        "d2h_forward_h2d_backward": CopyPlan(int(0.85 * forward_ms / 1.217), int(0.85 * backward_ms / 1.217)),
        "half_duty_by_layer": CopyPlan(1, 2, per_layer=True),
        "both_continuous": CopyPlan(continuous=("d2h", "h2d")),
    }


def mix_section(rounds=24, warm_s=4.0):
    runner = StepRunner()
    end = time.perf_counter() + warm_s
    while time.perf_counter() < end:
        warm = runner.step(CopyPlan())
    plans = plans_for(median(warm["forward_ms"]), median(warm["backward_ms"]))
    for plan in plans.values():
        runner.step(plan)
    order = random.Random(7)
    rows = {name: [] for name in plans}
    with ClockSampler() as sampler:
        for _ in range(rounds):
            names = list(plans)
            order.shuffle(names)
            for name in names:
                rows[name].append(runner.step(plans[name]))
    result = {name: summarise_condition(rows[name], rows["none"], sampler) for name in plans}
    for name, plan in plans.items():
        result[name]["pieces"] = [plan.forward_pieces, plan.backward_pieces]
    result["none"]["step_ms_each"] = [round(row["step_ms"], 3) for row in rows["none"]]
    return result


def profile_section():
    """Last of all sections: what runs after a profiler may run slower."""
    model, x = stack_and_input(4096)
    result = profile_microbatches(model, x, MICROBATCHES, warm_s=3.0)
    result["kernels_full_size"] = kernel_counts(model, x)
    del model, x
    result["kernels_tiny"] = kernel_counts(*stack_and_input(16, **TINY))
    return result


def summarise_condition(rows, base, sampler):
    excess = [a["step_ms"] - b["step_ms"] for a, b in zip(rows, base)]
    result = {
        "step_ms": median_interval([row["step_ms"] for row in rows]),
        "forward_ms": median_interval([ms for row in rows for ms in row["forward_ms"]]),
        "backward_ms": median_interval([ms for row in rows for ms in row["backward_ms"]]),
        "excess_ms": median_interval(excess),
        "covered_ms": round(median([row["covered_ms"] for row in rows]), 2),
        "clocks": sampler.between([row["window"] for row in rows]),
    }
    if result["covered_ms"]:
        result["excess_over_covered"] = median_interval([e / row["covered_ms"] for e, row in zip(excess, rows)])
        for phase in ("forward_ms", "backward_ms"):
            ratios = [sum(a[phase]) / sum(b[phase]) for a, b in zip(rows, base)]
            result[phase.replace("_ms", "_ratio")] = median_interval(ratios)
    return result


def chrome_events(run):
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        run()
        torch.cuda.synchronize()
    path = os.path.join(tempfile.mkdtemp(), "trace.json")
    recorded.export_chrome_trace(path)
    with open(path) as file:
        return json.load(file)["traceEvents"]


def phased_run(model, x, microbatches):
    """Each phase is synchronised inside its range, so a kernel belongs to the range that holds it."""
    from torch.profiler import record_function

    for _ in range(microbatches):
        with record_function("phase:forward"):
            y = model(x)
            torch.cuda.synchronize()
        with record_function("phase:loss"):
            loss = loss_of(y)
            torch.cuda.synchronize()
        with record_function("phase:backward"):
            loss.backward()
            torch.cuda.synchronize()
        del y, loss


def kernels_by_phase(events):
    phases = [(e["ts"], e["ts"] + e["dur"], e["name"][6:]) for e in events
              if e.get("cat") == "user_annotation" and e["name"].startswith("phase:")]
    rows = []
    for event in events:
        if event.get("cat") not in ("kernel", "gpu_memset", "gpu_memcpy"):
            continue
        owner = next((name for begin, end, name in phases if begin <= event["ts"] <= end), "outside")
        rows.append((owner, event["name"], event["dur"]))
    return rows


def profile_microbatches(model, x, microbatches, warm_s):
    end = time.perf_counter() + warm_s
    while time.perf_counter() < end:
        phased_run_plain(model, x)
    events = chrome_events(lambda: phased_run(model, x, microbatches))
    sums, names = {}, {}
    for phase, name, micros in kernels_by_phase(events):
        key = f"{phase}:{kernel_class(name)}"
        entry = sums.setdefault(key, {"ms_per_microbatch": 0.0, "kernels_per_microbatch": 0.0})
        entry["ms_per_microbatch"] += micros / 1000 / microbatches
        entry["kernels_per_microbatch"] += 1 / microbatches
        names.setdefault((phase, name[:90]), []).append(micros)
    for entry in sums.values():
        entry["ms_per_microbatch"] = round(entry["ms_per_microbatch"], 3)
    top = sorted(names.items(), key=lambda item: -sum(item[1]))[:28]
    table = [[phase, name, len(us) // microbatches, round(median(us), 1)] for (phase, name), us in top]
    model.zero_grad(set_to_none=True)
    return {"by_phase_and_class": sums, "top_kernels_phase_name_count_median_us": table}


def phased_run_plain(model, x):
    for _ in range(MICROBATCHES):
        loss_of(model(x)).backward()
    torch.cuda.synchronize()
    model.zero_grad(set_to_none=True)


def kernel_counts(model, x):
    """Kernels a microbatch by phase, gradients already there."""
    phased_run(model, x, 2)
    rows = kernels_by_phase(chrome_events(lambda: phased_run(model, x, 1)))
    counts = {"forward": 0, "loss": 0, "backward": 0}
    for phase, _, _ in rows:
        counts[phase] = counts.get(phase, 0) + 1
    return counts
