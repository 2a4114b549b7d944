"""How GEMMs and attention of all sizes run on a chip that is kept busy: what the shape costs beside the operations.

Every case is a block of about 25 ms of back-to-back calls, timed by events; blocks follow one another without a pause, in
random order within a round, so that all cases see the power and clocks of the mix. The result is the median over the
rounds. GEMMs are replayed as graphs of several calls that take turns over copies of the operands larger together than
the L2 cache, so that neither the host nor the cache plays a part. One untimed call of each case runs under the profiler
for the names of its kernels.
"""

import json
import random
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

from h200_fp8_moe_rates import DEVICE, Cases, bf16, block, over_streams
from h200_sampling import ClockSampler, median

BLOCK_MS, COPIES_BYTES = 25, 250e6
SINGLE = {}


def graph_of(calls, per_graph):
    """A graph that runs the calls in turn, `per_graph` in all."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(per_graph):
            calls[number % len(calls)]()

    def replay(kept=calls):  # The graph knows addresses only: `kept` holds the tensors behind them.
        graph.replay()
    return replay


def add_graph(cases, name, make, size, flops, **work):
    """`make` returns one call on operands of its own, `size` bytes."""
    copies = max(1, min(16, int(COPIES_BYTES / size)))
    per_graph = max(copies, min(64, int(1.5e-3 / (flops / 600e12))))
    try:
        calls = [make() for _ in range(copies)]
        replay = graph_of(calls, per_graph)
    except Exception as error:
        cases.skipped[name] = " ".join(str(error).split())[:300]
        return
    if cases.add(name, replay, flops=flops * per_graph, calls=per_graph, **work):
        SINGLE[name] = calls[0]


def add_gemm(cases, m, k, n, kinds=("forward",)):
    flops = 2.0 * m * k * n

    def forward():
        x, w, out = bf16(m, k), bf16(n, k), torch.empty(m, n, device=DEVICE, dtype=torch.bfloat16)
        return lambda: torch.mm(x, w.t(), out=out)

    def dgrad():
        dy, w, out = bf16(m, n), bf16(n, k), torch.empty(m, k, device=DEVICE, dtype=torch.bfloat16)
        return lambda: torch.mm(dy, w, out=out)

    def wgrad():
        dy, x, out = bf16(m, n), bf16(m, k), torch.empty(n, k, device=DEVICE, dtype=torch.float32)
        return lambda: torch.mm(dy.t(), x, out_dtype=torch.float32, out=out)

    def added():
        dy, x, total = bf16(m, n), bf16(m, k), torch.zeros(n, k, device=DEVICE, dtype=torch.float32)
        return lambda: torch.addmm(total, dy.t(), x, out_dtype=torch.float32, out=total)
    makers = {"forward": forward, "dgrad": dgrad, "wgrad": wgrad, "wgrad added": added}
    for kind in kinds:
        size = 2 * (m * k + n * k + m * n) + (2 * n * k if kind.startswith("wgrad") else 0)
        add_graph(cases, f"gemm {kind} {m} x {k} x {n}", makers[kind], size, flops, m=m, k=k, n=n)


def add_gemms(cases):
    for n in (512, 1024, 1536, 2048, 3072, 4096, 8192, 16384):
        for k in (512, 1024, 2048, 4096, 8192):
            add_gemm(cases, 4096, k, n)
    for tensor in (4, 8):
        for k, n in ((8192, 10240 // tensor), (8192 // tensor, 8192), (8192, 57344 // tensor), (28672 // tensor, 8192)):
            add_gemm(cases, 8192, k, n, ("forward", "dgrad", "wgrad", "wgrad added"))
    for k, n in ((1536, 24576), (512, 32768), (7168, 1536), (7168, 576), (16384, 7168), (4096, 28672), (14336, 4096)):
        add_gemm(cases, 4096, k, n, ("forward", "dgrad", "wgrad"))
    for k, n in ((1536, 24576 // 8), (512, 32768 // 8), (16384 // 8, 7168), (4096, 6144), (4096, 1536), (2048, 640)):
        add_gemm(cases, 4096, k, n, ("forward", "dgrad", "wgrad"))
    for m in (256, 512, 1024, 2048):
        add_gemm(cases, m, 4096, 4096, ("forward", "wgrad"))
    add_gemm(cases, 4096, 4096, 128)
    add_gemm(cases, 4096, 7168, 256)


def add_attention(cases):
    shapes = [(heads, 128, 128, s) for heads in (4, 8, 16, 32, 64, 128) for s in (2048, 4096, 8192, 16384, 32768)
              if heads * s <= 512 * 1024]
    shapes += [(heads, 64, 64, s) for heads, s in ((8, 4096), (32, 4096), (64, 4096), (32, 16384))]
    shapes += [(heads, 256, 256, s) for heads, s in ((4, 4096), (8, 4096), (32, 4096), (16, 16384))]
    shapes += [(heads, 192, 128, s) for heads, s in ((8, 4096), (16, 4096), (128, 4096), (16, 16384))]
    for causal in (True, False):
        for heads, qk, v, s in shapes if causal else [(8, 128, 128, 4096), (32, 128, 128, 4096), (32, 128, 128, 8192)]:
            def make(width, heads=heads, s=s):
                return bf16(1, s, heads, width).transpose(1, 2).requires_grad_()
            query, key, value, grad = make(qk), make(qk), make(v), bf16(1, s, heads, v).transpose(1, 2)
            pairs = heads * float(s) * s * (1 if causal else 2)
            name = f"{heads} heads {qk}/{v} s {s}{'' if causal else ' full'}"

            def forward(query=query, key=key, value=value, causal=causal):
                with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                    return F.scaled_dot_product_attention(query, key, value, is_causal=causal)
            shape = dict(heads=heads, qk=qk, v=v, s=s, calls=1)
            with torch.no_grad():
                if not cases.add(f"attention forward {name}", forward, flops=pairs * (qk + v), **shape):
                    continue
            result = forward()
            cases.add(f"attention backward {name}",
                      lambda result=result, inputs=(query, key, value), grad=grad:
                      torch.autograd.grad(result, inputs, grad, retain_graph=True), flops=pairs * (3 * qk + 2 * v), **shape)


def add_experts(cases):
    """As Transformer Engine runs them on Hopper: one cuBLAS call an expert, in turn over four streams."""
    streams = [torch.cuda.Stream() for _ in range(4)]
    for experts, k, n in ((16, 4096, 3072), (16, 1536, 4096), (8, 7168, 4096), (32, 2880, 5760)):
        w = bf16(experts, n, k)
        total = torch.zeros(experts, n, k, device=DEVICE, dtype=torch.float32)
        for tokens in (128, 256, 512, 1024, 2048):
            rows = tokens * experts
            x, dy = bf16(rows, k), bf16(rows, n)
            out = torch.empty(rows, n, device=DEVICE, dtype=torch.bfloat16)
            parts = [slice(e * tokens, (e + 1) * tokens) for e in range(experts)]

            def forward(x=x, out=out, w=w, parts=parts):
                over_streams([lambda e=e, p=p: torch.mm(x[p], w[e].t(), out=out[p]) for e, p in enumerate(parts)], streams)

            def weights(x=x, dy=dy, total=total, parts=parts):
                over_streams([lambda e=e, p=p: torch.mm(dy[p].t(), x[p], out_dtype=torch.float32, out=total[e])
                              for e, p in enumerate(parts)], streams)
            shape = dict(m=tokens, k=k, n=n, experts=experts)
            add_graph(cases, f"experts forward {experts} x {tokens} x {k} x {n}", lambda call=forward: call, 1e9, 2.0 * rows * k * n, **shape)
            add_graph(cases, f"experts wgrad {experts} x {tokens} x {k} x {n}", lambda call=weights: call, 1e9, 2.0 * rows * k * n, **shape)


def kernel_names(calls):
    """The longest-running kernel of one call of each."""
    names = {}
    try:
        for name, call in calls.items():
            with profile(activities=[ProfilerActivity.CUDA]) as run:
                call()
                torch.cuda.synchronize()
            kernels = sorted(((e.self_device_time_total, e.key) for e in run.key_averages()), reverse=True)
            names[name] = [key[:120] for _, key in kernels[:2]]
    except Exception as error:
        names["error"] = str(error)[:300]
    return names


def main(path, rounds):
    torch.manual_seed(1)
    random.seed(1)
    cases = Cases()
    started = time.perf_counter()
    for add in (add_gemms, add_attention, add_experts):
        add(cases)
        print(add.__name__, round(time.perf_counter() - started), "s", len(cases.calls), "cases", flush=True)
    single = {name: SINGLE.get(name, call) for name, call in cases.calls.items()}
    kernels = kernel_names(single)
    print("names", round(time.perf_counter() - started), "s", flush=True)
    counts = {name: max(1, int(BLOCK_MS / block(call, 2)[0])) for name, call in cases.calls.items()}
    times, windows = {name: [] for name in cases.calls}, {name: [] for name in cases.calls}
    with ClockSampler() as sampler:
        until = time.perf_counter() + 240
        for number in range(rounds + 2):  # The first two warm the chip and do not count.
            if time.perf_counter() > until:
                break
            for name in random.sample(list(cases.calls), len(cases.calls)):
                spent, window = block(cases.calls[name], counts[name])
                if number >= 2:
                    times[name].append(spent)
                    windows[name].append(window)
    rows = {}
    for name, values in times.items():
        work = dict(cases.work[name])
        calls, flops = work.pop("calls"), work.pop("flops")
        us = median(values) * 1e3 / calls
        rows[name] = {"us": round(us, 2), "tflop_per_s": round(flops / calls / us / 1e6, 1), **work,
                      "kernels": kernels.get(name), **sampler.between(windows[name])}
    everything = [window for each in windows.values() for window in each]
    result = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "cuda": torch.version.cuda,
              "device": torch.cuda.get_device_name(), "seconds": round(time.perf_counter() - started),
              "rounds": len(next(iter(times.values()))), "all": sampler.between(everything), "names_error": kernels.get("error"),
              "cases": rows, "skipped": cases.skipped}
    with open(path, "w") as out:
        json.dump(result, out, indent=1)
    print(result["all"], result["rounds"], result["names_error"], result["seconds"])
    for name, row in rows.items():
        print(name, row["tflop_per_s"], row["us"], row.get("sm_clock_mhz_median"), (row["kernels"] or [""])[0][:48])
    for name, reason in cases.skipped.items():
        print("SKIPPED", name, reason[:110])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10)
