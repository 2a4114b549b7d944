"""Host-side cost: microseconds a launched kernel in eager PyTorch, and of the calls an offload engine makes."""

import gc
import time

import torch

from h200_peer_model import loss_of, make_peer
from h200_sampling import median

MIB = 1 << 20
TINY = {"hidden": 64, "ffn": 224, "heads": 1}  # The same operations, too small to hide the host.


def per_call_us(call, calls=500, repeats=5, before=torch.cuda.synchronize):
    """Median over repeats of the mean host time of a call, without the loop's own cost."""
    times = []
    for _ in range(repeats):
        before()
        begin = time.perf_counter_ns()
        for _ in range(calls):
            call()
        times.append((time.perf_counter_ns() - begin) / calls / 1000)
    begin = time.perf_counter_ns()
    for _ in range(calls):
        pass
    loop = (time.perf_counter_ns() - begin) / calls / 1000
    return round(median(times) - loop, 3)


def api_costs():
    side = torch.cuda.Stream()
    event = torch.cuda.Event()
    event.record()
    held = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    del held
    small_host = torch.zeros(64 * 1024, dtype=torch.uint8, pin_memory=True)
    small = torch.zeros(64 * 1024, dtype=torch.uint8, device="cuda")
    large_host = torch.zeros(64 * MIB, dtype=torch.uint8, pin_memory=True)
    large = torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")

    def cached():
        torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")

    def cached_with_record_stream():
        torch.empty(64 * MIB, dtype=torch.uint8, device="cuda").record_stream(side)

    def switch_stream():
        with torch.cuda.stream(side):
            pass

    return {
        "empty_64mib_from_cache_and_free": per_call_us(cached),
        "the_same_with_record_stream": per_call_us(cached_with_record_stream, calls=200),
        "record_stream_again_on_one_tensor": per_call_us(lambda: large.record_stream(side)),
        "event_record": per_call_us(event.record),
        "event_create_and_record": per_call_us(lambda: torch.cuda.Event().record()),
        "event_query": per_call_us(event.query),
        "stream_wait_event": per_call_us(lambda: side.wait_event(event)),
        "stream_context_switch": per_call_us(switch_stream),
        "copy_d2h_64kib_pinned_non_blocking": per_call_us(lambda: small_host.copy_(small, non_blocking=True), 200),
        "copy_h2d_64kib_pinned_non_blocking": per_call_us(lambda: small.copy_(small_host, non_blocking=True), 200),
        "copy_d2h_64mib_pinned_non_blocking": per_call_us(lambda: large_host.copy_(large, non_blocking=True), 20),
        "copy_h2d_64mib_pinned_non_blocking": per_call_us(lambda: large.copy_(large_host, non_blocking=True), 20),
        "synchronize_idle": per_call_us(torch.cuda.synchronize),
        "elementwise_launch_add_": per_call_us(lambda: small.add_(1), 300),
    }


def segment_costs():
    """cudaMalloc and cudaFree through the caching allocator, which misses after empty_cache."""
    rows = {}
    for mib, count in ((2, 20), (64, 20), (1024, 5)):
        torch.cuda.empty_cache()
        torch.cuda.synchronize()
        held, times = [], []
        for _ in range(count):
            begin = time.perf_counter_ns()
            held.append(torch.empty(mib * MIB, dtype=torch.uint8, device="cuda"))
            times.append((time.perf_counter_ns() - begin) / 1000)
        held.clear()
        before = torch.cuda.memory_reserved()
        begin = time.perf_counter_ns()
        torch.cuda.empty_cache()
        free_us = (time.perf_counter_ns() - begin) / 1000
        rows[f"{mib}_mib"] = {"alloc_us_median": round(median(times), 1), "alloc_us_max": round(max(times), 1),
                              "free_us_each": round(free_us / count, 1),
                              "released_bytes": before - torch.cuda.memory_reserved()}
    return rows


def host_times_us(model, x, rounds):
    """Host microseconds of (forward, loss, backward), each begun on an idle GPU; gradients accumulate."""
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        t0 = time.perf_counter_ns()
        y = model(x)
        t1 = time.perf_counter_ns()
        loss = loss_of(y)
        t2 = time.perf_counter_ns()
        loss.backward()
        t3 = time.perf_counter_ns()
        times.append((t1 - t0, t2 - t1, t3 - t2))
        del y, loss
    return [round(median([row[i] for row in times]) / 1000, 1) for i in range(3)]


def stack_and_input(tokens, **shape):
    model = make_peer(**shape)
    hidden = model.layers[0].qkv.in_features
    return model, torch.randn(1, tokens, hidden, device="cuda", dtype=torch.bfloat16)


def stack_cost(rounds, tokens, **shape):
    """Kernels are counted in a later section: a profiler once started could slow every launch after it."""
    model, x = stack_and_input(tokens, **shape)
    host_times_us(model, x, 5)
    gc.collect()
    gc.disable()
    forward, loss, backward = host_times_us(model, x, rounds)
    gc.enable()
    return {"tokens": tokens, "forward_us": forward, "loss_us": loss, "backward_us": backward}
