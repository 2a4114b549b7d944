"""Rates of what FP8, multi-latent attention and experts add: FP8 GEMMs, attention by head size, grouped GEMMs, permutes.

Every case is a block of about 45 ms of back-to-back calls, timed by events, then 15 ms of idling: a chip that is kept
busy, as in a training step. The cases of a round run in random order, so that all see the same clocks; the result is
the median over the rounds. Before the rounds bf16 and FP8 GEMMs run alone without any pause, 15 s each.
"""

import json
import random
import sys
import time

import warnings

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from h200_sampling import ClockSampler, median

warnings.filterwarnings("ignore")  # PyTorch's reasons for skipping a backend end up in `skipped`.
BLOCK_MS, IDLE_S = 45, 0.015
DEVICE = "cuda"
BF16, E4M3 = torch.bfloat16, torch.float8_e4m3fn


def bf16(*shape):
    return torch.randn(*shape, device=DEVICE, dtype=BF16)


def fp8(*shape):
    return torch.randn(*shape, device=DEVICE).to(E4M3)


class Cases:
    """Names, what one call does, and what it counts for; a case that cannot run is kept with its reason."""

    def __init__(self):
        self.calls, self.work, self.skipped = {}, {}, {}

    def add(self, name, call, **work):
        try:
            for _ in range(3):
                call()
            torch.cuda.synchronize()
        except Exception as error:  # A backend that does not know the shape says so in its own words.
            self.skipped[name] = " ".join(str(error).split())[:300]
            return False
        self.calls[name], self.work[name] = call, work
        return True


def blockwise_call(a, b, use_1d_weights):
    """cuBLAS's block scaling: 1x128 pieces of the activations, 128x128 (or 1x128) blocks of the weights."""
    from torch.nn.functional import ScalingType, scaled_mm
    m, k = a.shape
    n = b.shape[0]
    one = torch.ones
    scale_a = one(k // 128, m, device=DEVICE).t()
    if use_1d_weights:
        candidates, kind = [one(k // 128, n, device=DEVICE).t(), one(k // 128, n, device=DEVICE)], ScalingType.BlockWise1x128
    else:
        padded = (k // 128 + 3) // 4 * 4
        kind = ScalingType.BlockWise128x128
        candidates = [one(n // 128, padded, device=DEVICE)[:, : k // 128].t(), one(n // 128, padded, device=DEVICE)[:, : k // 128],
                      one(n // 128, k // 128, device=DEVICE).t(), one(n // 128, k // 128, device=DEVICE)]
    errors = []
    for scale_b in candidates:
        def call(scale_b=scale_b):
            return scaled_mm(a, b.t(), scale_a, ScalingType.BlockWise1x128, scale_b, kind, output_dtype=BF16)
        try:
            call()
            torch.cuda.synchronize()
            return call
        except Exception as error:
            errors.append(" ".join(str(error).split())[:120])

    def fail():
        raise RuntimeError(" | ".join(errors))
    return fail


def add_gemms(cases):
    shapes = {"fc1 4096x4096x28672": (4096, 4096, 28672), "qkv 4096x4096x12288": (4096, 4096, 12288),
              "fc2 4096x14336x4096": (4096, 14336, 4096), "mla q_up 4096x1536x24576": (4096, 1536, 24576),
              "mla kv_up 4096x512x32768": (4096, 512, 32768), "mla kv_down 4096x7168x576": (4096, 7168, 576),
              "mla q_down 4096x7168x1536": (4096, 7168, 1536), "mla proj 4096x16384x7168": (4096, 16384, 7168)}
    scale = torch.ones((), device=DEVICE)
    for name, (m, k, n) in shapes.items():
        flops = 2.0 * m * k * n
        x, w = bf16(m, k), bf16(n, k)
        cases.add(f"gemm bf16 {name}", lambda x=x, w=w: F.linear(x, w), flops=flops)
        if k % 128 or n % 128:
            continue
        a, b = fp8(m, k), fp8(n, k)
        for fast in (True, False):
            cases.add(f"gemm fp8 tensorwise {'fast' if fast else 'split'} {name}",
                      lambda a=a, b=b, fast=fast: torch._scaled_mm(a, b.t(), scale, scale, out_dtype=BF16, use_fast_accum=fast),
                      flops=flops)
        cases.add(f"gemm fp8 blockwise 1x128 128x128 {name}", blockwise_call(a, b, False), flops=flops)
        cases.add(f"gemm fp8 blockwise 1x128 1x128 {name}", blockwise_call(a, b, True), flops=flops)
    # Weight gradient: dy^T x, fp32 result; the sum into the main gradient is left out (PyTorch's FP8 call cannot add).
    g, x = bf16(4096, 28672), bf16(4096, 4096)
    cases.add("wgrad bf16 fp32 result 28672x4096x4096", lambda: torch.mm(g.t(), x, out_dtype=torch.float32), flops=2.0 * 4096 * 28672 * 4096)
    gt, xt = fp8(28672, 4096), fp8(4096, 4096)
    cases.add("wgrad fp8 split fp32 result 28672x4096x4096",
              lambda: torch._scaled_mm(gt, xt.t(), scale, scale, out_dtype=torch.float32), flops=2.0 * 4096 * 28672 * 4096)
    try:
        from torch.nn.functional import ScalingType, SwizzleType, scaled_mm
        e8 = torch.full((4096 * 4096 // 32,), 127, device=DEVICE, dtype=torch.uint8).view(torch.float8_e8m0fnu)
        cases.add("gemm mxfp8 4096x4096x4096", lambda: scaled_mm(xt, xt.t(), e8, ScalingType.BlockWise1x32, e8,
                  ScalingType.BlockWise1x32, swizzle_a=SwizzleType.SWIZZLE_32_4_4, swizzle_b=SwizzleType.SWIZZLE_32_4_4,
                  output_dtype=BF16), flops=2.0 * 4096**3)
    except Exception as error:
        cases.skipped["gemm mxfp8"] = str(error)[:200]


def add_attention(cases):
    shapes = [(32, 32, 128, 128, 4096), (32, 32, 128, 128, 8192), (64, 8, 128, 128, 4096), (8, 8, 128, 128, 4096),
              (128, 128, 192, 128, 4096), (32, 32, 192, 128, 4096), (16, 16, 192, 128, 4096), (32, 32, 192, 128, 8192),
              (32, 32, 192, 192, 4096), (32, 32, 256, 256, 4096), (16, 2, 256, 256, 4096), (64, 8, 64, 64, 4096), (64, 8, 64, 64, 8192)]
    for heads, groups, qk, v, s in shapes:
        def make(width, count):
            return bf16(1, s, count, width).transpose(1, 2).requires_grad_()
        query, key, value = make(qk, heads), make(qk, groups), make(v, groups)
        grad = bf16(1, s, heads, v).transpose(1, 2)
        causal = heads * float(s) * s
        for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
            name = f"{backend.name.split('_')[0].lower()} {heads}/{groups} heads {qk}/{v} s {s}"

            def forward(query=query, key=key, value=value, backend=backend, gqa=groups != heads):
                with sdpa_kernel(backend):
                    return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=gqa)
            if not cases.add(f"attention forward {name}", forward, flops=causal * (qk + v)):
                continue
            result = forward()
            cases.add(f"attention backward {name}",
                      lambda result=result, inputs=(query, key, value), grad=grad:
                      torch.autograd.grad(result, inputs, grad, retain_graph=True), flops=causal * (3 * qk + 2 * v))


def graphed(call):
    """A graph of one call: what the device needs, without the host."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()

    def replay(kept=call):  # The graph knows addresses only: `kept` holds the tensors behind them.
        graph.replay()
    return replay


def over_streams(jobs, streams):
    """Transformer Engine's multi-stream GEMMs: one cuBLAS call an expert, in turn over four streams."""
    main = torch.cuda.current_stream()
    for stream in streams:
        stream.wait_stream(main)
    for number, job in enumerate(jobs):
        with torch.cuda.stream(streams[number % len(streams)]):
            job()
    for stream in streams:
        main.wait_stream(stream)


def add_grouped(cases):
    streams = [torch.cuda.Stream() for _ in range(4)]
    scale = torch.ones((), device=DEVICE)
    layers = {"deepseek fc1 7168->4096": (7168, 4096), "deepseek fc2 2048->7168": (2048, 7168), "qwen30 fc1 2048->1536": (2048, 1536)}
    experts = 8
    for layer, (k, n) in layers.items():
        w = bf16(experts, n, k)
        w8 = [fp8(n, k) for _ in range(experts)]
        for tokens in (128, 512, 2048, 4096):
            rows = tokens * experts
            flops = 2.0 * rows * k * n
            name = f"{layer} {experts} experts x {tokens}"
            x, grad = bf16(rows, k), bf16(rows, n)
            offsets = torch.arange(1, experts + 1, device=DEVICE, dtype=torch.int32) * tokens
            cases.add(f"grouped_mm forward {name}", lambda x=x, w=w, offsets=offsets: torch._grouped_mm(x, w.transpose(1, 2), offs=offsets), flops=flops)
            cases.add(f"grouped_mm wgrad {name}", lambda x=x, grad=grad, offsets=offsets: torch._grouped_mm(grad.t(), x, offs=offsets), flops=flops)
            out = torch.empty(rows, n, device=DEVICE, dtype=BF16)
            wgrad = torch.empty(experts, n, k, device=DEVICE, dtype=torch.float32)

            def forward(x=x, out=out, w=w, tokens=tokens):
                over_streams([lambda e=e: torch.mm(x[e * tokens:(e + 1) * tokens], w[e].t(), out=out[e * tokens:(e + 1) * tokens])
                              for e in range(experts)], streams)

            def weights(x=x, grad=grad, wgrad=wgrad, tokens=tokens):
                over_streams([lambda e=e: torch.mm(grad[e * tokens:(e + 1) * tokens].t(), x[e * tokens:(e + 1) * tokens],
                                                   out_dtype=torch.float32, out=wgrad[e]) for e in range(experts)], streams)
            x8 = fp8(rows, k)

            def forward8(x8=x8, w8=w8, out=out, tokens=tokens):
                over_streams([lambda e=e: torch._scaled_mm(x8[e * tokens:(e + 1) * tokens], w8[e].t(), scale, scale, out_dtype=BF16,
                                                           use_fast_accum=True, out=out[e * tokens:(e + 1) * tokens]) for e in range(experts)], streams)
            for kind, call in (("bf16 forward", forward), ("bf16 wgrad", weights), ("fp8 forward", forward8)):
                try:
                    cases.add(f"multi-stream {kind} {name}", graphed(call), flops=flops)
                except Exception as error:
                    cases.skipped[f"multi-stream {kind} {name}"] = " ".join(str(error).split())[:200]


def add_permutes(cases):
    for h, k in ((7168, 8), (2048, 8), (2880, 4)):
        x = bf16(4096, h)
        order = torch.randperm(4096 * k, device=DEVICE)
        source = order % 4096
        rows = bf16(4096 * k, h)
        big = 2.0 * rows.numel()
        into = torch.zeros(4096, h, device=DEVICE, dtype=BF16)
        # Traffic: each of the written rows is read once (a source row is read topk times, mostly from the L2).
        cases.add(f"index_select h {h} topk {k}", lambda x=x, source=source: x.index_select(0, source), bytes=2 * big)
        cases.add(f"index_add h {h} topk {k}", lambda into=into, source=source, rows=rows: into.index_add_(0, source, rows), bytes=2 * big)
        cases.add(f"copy of the same size h {h} topk {k}", lambda rows=rows: rows.clone(), bytes=2 * big)


def block(call, count):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    at = time.perf_counter()
    begin.record()
    for _ in range(count):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / count, (at, time.perf_counter())


def saturate(cases, sampler, seconds):
    """The rate of one case after `seconds` without a pause: the last third of the blocks counts."""
    result = {}
    for name in ("gemm bf16 fc1 4096x4096x28672", "gemm fp8 tensorwise fast fc1 4096x4096x28672"):
        if name not in cases.calls:
            continue
        times, windows, until = [], [], time.perf_counter() + seconds
        while time.perf_counter() < until:
            spent, window = block(cases.calls[name], 60)
            times.append(spent)
            windows.append(window)
        last = len(times) // 3
        result[name] = {"us": median(times[-last:]) * 1e3, "tflop_per_s": cases.work[name]["flops"] / median(times[-last:]) / 1e9,
                        **sampler.between(windows[-last:])}
    return result


def main(path, rounds, seconds):
    torch.manual_seed(1)
    random.seed(1)
    cases = Cases()
    started = time.perf_counter()
    for add in (add_gemms, add_attention, add_grouped, add_permutes):
        add(cases)
        print(add.__name__, round(time.perf_counter() - started), "s", len(cases.calls), "cases", flush=True)
    counts = {name: max(1, int(BLOCK_MS / block(call, 3)[0])) for name, call in cases.calls.items()}
    times, windows = {name: [] for name in cases.calls}, {name: [] for name in cases.calls}
    with ClockSampler() as sampler:
        saturated = saturate(cases, sampler, seconds)
        print("saturated", round(time.perf_counter() - started), "s", flush=True)
        until = started + 400
        for _ in range(rounds):
            if time.perf_counter() > until:
                break
            for name in random.sample(list(cases.calls), len(cases.calls)):
                spent, window = block(cases.calls[name], counts[name])
                times[name].append(spent)
                windows[name].append(window)
                time.sleep(IDLE_S)
    rows = {}
    for name, values in times.items():
        us = median(values) * 1e3
        row = {"us": round(us, 2), "rounds": len(values), **sampler.between(windows[name])}
        work = cases.work[name]
        row["tflop_per_s" if "flops" in work else "gb_per_s"] = round(work["flops"] / us / 1e6 if "flops" in work else work["bytes"] / us / 1e3, 1)
        rows[name] = row
    result = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "cuda": torch.version.cuda,
              "device": torch.cuda.get_device_name(), "seconds": round(time.perf_counter() - started),
              "saturated": saturated, "cases": rows, "skipped": cases.skipped}
    with open(path, "w") as out:
        json.dump(result, out, indent=1)
    for name, row in saturated.items():
        print("SAT", name, round(row["tflop_per_s"]), row.get("sm_clock_mhz_median"), row.get("power_w_mean"))
    for name, row in rows.items():
        print(name, row.get("tflop_per_s", row.get("gb_per_s")), row["us"], row.get("sm_clock_mhz_median"))
    for name, reason in cases.skipped.items():
        print("SKIPPED", name, reason[:110])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 25, float(sys.argv[3]) if len(sys.argv) > 3 else 15)
