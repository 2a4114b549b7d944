"""What pinned copies cost the kernels beside them, on one NVIDIA H200 (PyTorch 2.11, plain torch).

    python3 docs/measurements/h200_copy_interference.py [sections...]

Sections: memory host duplex kernels mix profile. Writes JSON to $OUT (or the working directory).
ROUNDS=70 in the environment sets the paired blocks of each kernel (30) and leaves out the sustained blocks.
Blocks of about 45 ms alternate between conditions in random order, with the same idle tail after each, so that power
and temperature are shared by what is compared; a ratio is always to the block without copies of the same round.
"""

import json
import os
import random
import subprocess
import sys
import time
import traceback

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from h200_host_cost import TINY, api_costs, segment_costs, stack_cost
from h200_lanes import DIRECTIONS, duplex_rates, make_lanes
from h200_memory_trace import memory_section
from h200_peer_step import mix_section, profile_section
from h200_sampling import ClockSampler, median, median_interval

TOKENS, HIDDEN, FFN, HEADS = 4096, 4096, 14336, 32
BLOCK_MS = 45.0
IDLE_TAIL_S = 0.005


def random_bf16(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def gemm_forward():
    x = random_bf16(TOKENS, HIDDEN)
    weights = [random_bf16(width, HIDDEN) * 0.02 for width in (3 * HIDDEN, 2 * FFN)]
    return lambda: [F.linear(x, weight) for weight in weights]


def gemm_weight_gradient():
    x = random_bf16(TOKENS, HIDDEN)
    grads = [random_bf16(TOKENS, width) for width in (3 * HIDDEN, 2 * FFN)]
    return lambda: [grad.t() @ x for grad in grads]


def attention_inputs(requires_grad):
    qkv = random_bf16(1, TOKENS, 3, HEADS, HIDDEN // HEADS)
    return [part.detach().requires_grad_(requires_grad) for part in qkv.transpose(1, 3).unbind(2)]


def attention(query, key, value):
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def attention_forward():
    query, key, value = attention_inputs(False)
    return lambda: attention(query, key, value)


def attention_backward():
    inputs = attention_inputs(True)
    out = attention(*inputs)
    grad = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, grad, retain_graph=True)


def graphed(body):
    """One launch for many short kernels: otherwise the host would set the pace."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.no_grad():
        body()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        body()
    return graph.replay


def rms_norm():
    xs = [random_bf16(TOKENS, HIDDEN) for _ in range(8)]
    weight = torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16)
    return graphed(lambda: [F.rms_norm(x, (HIDDEN,), weight) for x in xs * 4] and None)


def swiglu():
    xs = [random_bf16(TOKENS, 2 * FFN) for _ in range(2)]

    def body():
        for x in xs * 4:
            gate, up = x.chunk(2, dim=-1)
            F.silu(gate) * up

    return graphed(body)


KERNELS = {
    "gemm_forward": gemm_forward,
    "gemm_weight_gradient": gemm_weight_gradient,
    "attention_forward": attention_forward,
    "attention_backward": attention_backward,
    "rms_norm": rms_norm,
    "swiglu": swiglu,
}
CLASSES = {
    "gemm": ("gemm_forward", "gemm_weight_gradient"),
    "attention": ("attention_forward", "attention_backward"),
    "memory_bound": ("rms_norm", "swiglu"),
}


def block(unit, repeats, lanes):
    """Runs the unit `repeats` times with the lanes busy throughout: (milliseconds, host window, lane rates)."""
    torch.cuda.synchronize()
    window_begin = time.perf_counter()
    for lane in lanes:
        lane.begin()
        lane.top_up()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(repeats):
        unit()
    end.record()
    while not end.query():
        for lane in lanes:
            lane.top_up()
        time.sleep(0.0001)
    window_end = time.perf_counter()
    torch.cuda.synchronize()
    time.sleep(max(0.0, window_end + IDLE_TAIL_S - time.perf_counter()))
    rates = {lane.direction: lane.rate_gb_per_s() for lane in lanes}
    return begin.elapsed_time(end), (window_begin, window_end), rates


def repeats_for(unit, warm_s, block_ms):
    unit_ms, repeats = 1.0, 5
    finish = time.perf_counter() + warm_s
    while time.perf_counter() < finish:
        unit_ms = block(unit, repeats, [])[0] / repeats
        repeats = max(1, round(block_ms / unit_ms))
    return repeats


def interleave(unit, repeats, lanes, rounds, seed):
    order = random.Random(f"{seed}/{rounds}")
    rows = {condition: [] for condition in DIRECTIONS}
    for _ in range(rounds):
        conditions = list(DIRECTIONS)
        order.shuffle(conditions)
        for condition in conditions:
            rows[condition].append(block(unit, repeats, [lanes[name] for name in DIRECTIONS[condition]]))
    return rows


def summarise(rows, repeats, sampler):
    result = {}
    for condition, blocks in rows.items():
        ratios = [one[0] / none[0] for one, none in zip(blocks, rows["none"])]
        result[condition] = {
            "unit_us_median": round(median([one[0] for one in blocks]) / repeats * 1000, 2),
            "ratio": median_interval(ratios),
            "clocks": sampler.between([one[1] for one in blocks]),
            "copy_gb_per_s": {name: round(median([one[2][name] for one in blocks]), 2) for name in blocks[0][2]},
        }
    return result


def class_ratios(all_rows):
    """A class's ratio in a round: the sum of its members' unit times, each member weighing one unit."""
    result = {}
    for name, members in CLASSES.items():
        result[name] = {}
        for condition in ("d2h", "h2d", "both"):
            ratios = []
            for row in zip(*(zip(all_rows[m][0][condition], all_rows[m][0]["none"]) for m in members)):
                scale = [1 / all_rows[m][1] for m in members]
                ratios.append(sum(pair[0][0] * s for pair, s in zip(row, scale))
                              / sum(pair[1][0] * s for pair, s in zip(row, scale)))
            result[name][condition] = median_interval(ratios)
    return result


def kernels_section(warm_s=2.5):
    rounds = int(os.environ.get("ROUNDS", "30"))
    lanes = make_lanes()
    result, all_rows = {"kernels": {}}, {}
    for seed, (name, make) in enumerate(KERNELS.items()):
        unit = make()
        repeats = repeats_for(unit, warm_s + (3.0 if seed == 0 else 0.0), BLOCK_MS)
        with ClockSampler() as sampler:
            rows = interleave(unit, repeats, lanes, rounds, seed)
        all_rows[name] = (rows, repeats)
        result["kernels"][name] = {"repeats": repeats, "conditions": summarise(rows, repeats, sampler)}
        if "ROUNDS" not in os.environ and name in ("gemm_forward", "attention_forward", "swiglu"):
            result["kernels"][name]["sustained"] = sustained(unit, repeats, lanes)
        del unit
        torch.cuda.empty_cache()
    result["classes"] = class_ratios(all_rows)
    return result


def sustained(unit, repeats, lanes):
    """Blocks of about 0.8 s, long enough for power and clock to settle under each condition."""
    long_repeats = min(900, max(1, round(repeats * 800 / BLOCK_MS)))
    rows = {condition: [] for condition in DIRECTIONS}
    with ClockSampler() as sampler:
        for condition in list(DIRECTIONS) + list(reversed(DIRECTIONS)):
            rows[condition].append(block(unit, long_repeats, [lanes[name] for name in DIRECTIONS[condition]]))
    result = {}
    for condition, blocks in rows.items():
        windows = [(begin + 0.4 * (end - begin), end) for _, (begin, end), _ in blocks]
        result[condition] = {"unit_us": [round(one[0] / long_repeats * 1000, 2) for one in blocks],
                             "clocks": sampler.between(windows)}
    return result


def host_section():
    return {
        "calls_us": api_costs(),
        "segments": segment_costs(),
        "stack_tiny": stack_cost(60, 16, **TINY),
        "stack_full_size": stack_cost(12, TOKENS),
    }


def machine():
    query = "name,driver_version,power.limit,clocks.max.sm,temperature.gpu,pcie.link.gen.current,pcie.link.width.current"
    smi = subprocess.run(["nvidia-smi", "--query-gpu=" + query, "--format=csv,noheader"], capture_output=True, text=True)
    return {"nvidia_smi": smi.stdout.strip(), "fields": query, "torch": torch.__version__, "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(), "python": sys.version.split()[0],
            "sms": torch.cuda.get_device_properties(0).multi_processor_count}


def save(results, name):
    with open(os.path.join(os.environ.get("OUT", "."), name), "w") as file:
        json.dump(results, file, separators=(",", ":"))


def attempt(results, name, section):
    begin = time.perf_counter()
    try:
        results[name] = section()
    except Exception:
        results[name] = {"failed": traceback.format_exc()[-1500:]}
        print(name, "failed:", results[name]["failed"], flush=True)
    torch.cuda.empty_cache()
    results.setdefault("section_s", {})[name] = round(time.perf_counter() - begin, 1)
    save(results, "h200_copy_interference.json")
    print(f"{name}: {results['section_s'][name]} s", flush=True)


def memory_and_trace():
    summary, trace = memory_section()
    save(trace, "h200_peer_memory_trace.json")
    return summary


def table(results):
    for name, row in results.get("kernels", {}).get("classes", {}).items():
        cells = [f"{c} {v['median']:.4f} [{v['low']:.4f},{v['high']:.4f}]" for c, v in row.items()]
        print(f"{name:14s}", "  ".join(cells))
    for name, kernel in results.get("kernels", {}).get("kernels", {}).items():
        cells = [f"{c} {v['unit_us_median']}us x{v['ratio']['median']:.4f} {v['clocks'].get('sm_clock_mhz_mean')}MHz"
                 f" {v['clocks'].get('power_w_mean')}W {v['copy_gb_per_s']}" for c, v in kernel["conditions"].items()]
        print(f"{name:20s}", " | ".join(cells))
    print(json.dumps({k: v for k, v in results.items() if k != "kernels"}, separators=(",", ":"))[:9000])


def main():
    torch.manual_seed(0)
    sections = {"memory": memory_and_trace, "host": host_section, "duplex": duplex_rates,
                "kernels": kernels_section, "mix": mix_section, "profile": profile_section}
    results = {"machine": machine()}
    for name in sys.argv[1:] or sections:
        attempt(results, name, sections[name])
    table(results)


if __name__ == "__main__":
    main()
