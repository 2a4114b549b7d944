"""When a gather on another stream gets its turn beside one kernel, and what it costs that kernel.

Main runs the kernel three times; the other stream sleeps (one block) into the middle of the first and gathers then.
"""

import json
import sys
import time

import torch
import torch.nn.functional as F

from h200_offload_lane import event
from h200_peer_model import make_peer
from h200_sampling import median


def kernels(model, x):
    layer = model.layers[0]
    w = {"qkv": layer.qkv.weight, "proj": layer.proj.weight, "fc1": layer.fc1.weight, "fc2": layer.fc2.weight}
    flat = x.view(4096, 4096)
    wide = torch.randn(4096, 14336, device="cuda", dtype=torch.bfloat16)
    packed = torch.randn(1, 4096, 28672, device="cuda", dtype=torch.bfloat16)
    qkv = layer.qkv(x)
    query, key, value = layer.split_heads(qkv)
    gate, up = packed.chunk(2, dim=-1)
    half = packed[0]
    return query, {
        "qkv": lambda: F.linear(flat, w["qkv"]), "proj": lambda: F.linear(flat, w["proj"]),
        "fc1": lambda: F.linear(flat, w["fc1"]), "fc2": lambda: F.linear(wide, w["fc2"]),
        "fc1 dgrad": lambda: half @ w["fc1"], "fc1 wgrad": lambda: half.t() @ flat,
        "fc2 dgrad": lambda: flat @ w["fc2"], "fc2 wgrad": lambda: flat.t() @ wide,
        "attention": lambda: F.scaled_dot_product_attention(query, key, value, is_causal=True),
        "silu of a half": lambda: F.silu(gate), "mul by a half": lambda: gate * up,
    }


def series(run, lane, query, cycles, gather):
    start = event()
    lane.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(lane):
        torch.cuda._sleep(cycles)
        asked = event()
        held = query.contiguous() if gather else None
        done = event()
    run()
    first = event()
    run()
    run()
    end = event()
    torch.cuda.synchronize()
    del held
    return (start.elapsed_time(first), start.elapsed_time(end), start.elapsed_time(asked), start.elapsed_time(done))


def main(path):
    with torch.no_grad():
        model = make_peer()
        x = torch.randn(1, 4096, 4096, device="cuda", dtype=torch.bfloat16)
        query, table = kernels(model, x)
        lane = torch.cuda.Stream()
        begin = event()
        torch.cuda._sleep(10_000_000)
        end = event()
        torch.cuda.synchronize()
        cycles_per_ms = 10_000_000 / begin.elapsed_time(end)
        warm = time.perf_counter() + 3
        while time.perf_counter() < warm:
            for run in table.values():
                run()
            torch.cuda.synchronize()
        result = {}
        for name, run in table.items():
            run()
            alone = median([series(run, lane, query, 1000, False)[1] for _ in range(20)]) / 3
            rows = {True: [], False: []}
            for share in (0.3, 0.5, 0.7):
                for _ in range(15):
                    for gather in (True, False):
                        rows[gather].append(series(run, lane, query, int(share * alone * cycles_per_ms), gather))
            result[name] = {
                "alone_us": round(1000 * alone, 1),
                "first_without_us": round(1000 * median([r[0] for r in rows[False]]), 1),
                "first_with_us": round(1000 * median([r[0] for r in rows[True]]), 1),
                "asked_us": round(1000 * median([r[2] for r in rows[True]]), 1),
                "gather_done_minus_first_end_us": round(1000 * median([r[3] - r[0] for r in rows[True]]), 1),
                "cost_us": round(1000 * (median([a[1] - b[1] for a, b in zip(rows[True], rows[False])])), 1),
            }
    print(json.dumps(result, indent=1))
    with open(path, "w") as file:
        json.dump({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "kernels": result}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
