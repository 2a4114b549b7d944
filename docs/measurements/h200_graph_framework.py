"""What PyTorch adds to CUDA graphs: host time of a replay and of graphed callables, memory of captured layers.

Prints one JSON object a line. One process a section, so that pools do not carry over:

    python3 h200_graph_framework.py replay|callables|chained|layers|many
"""

import gc
import json
import sys
import time

import torch

from h200_sampling import median

MIB = 1 << 20


def show(section, **values):
    print(json.dumps({"section": section, **values}), flush=True)


def host_us(call, rounds=60, prepare=lambda: None, idle=True):
    """Median host time of one call, each begun on an idle device unless told otherwise; the first five are dropped."""
    times = []
    gc.collect()
    gc.disable()
    for _ in range(rounds + 5):
        prepared = prepare()
        if idle:
            torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        call(prepared) if prepared is not None else call()
        times.append((time.perf_counter_ns() - begin) / 1000)
    gc.enable()
    torch.cuda.synchronize()
    return round(median(times[5:]), 2)


def loop_us(call, calls=200, rounds=7):
    """Median over rounds of the mean host time of a call in a loop without synchronisation."""
    times = []
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        for _ in range(calls):
            call()
        times.append((time.perf_counter_ns() - begin) / calls / 1000)
    gc.enable()
    torch.cuda.synchronize()
    return round(median(times), 2)


def replay():
    x = torch.zeros(1024, device="cuda")
    for kernels in (1, 10, 24, 100, 1000):
        x.add_(1)
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(kernels):
                x.add_(1)
        capture_us = (time.perf_counter_ns() - begin) / 1000
        graph.replay()
        static, source = torch.zeros(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")

        def copy_and_replay():
            static.copy_(source)
            graph.replay()

        show("replay", kernels=kernels, capture_us=round(capture_us, 1), replay_us=host_us(graph.replay),
             replay_in_a_loop_us=loop_us(graph.replay), copy_and_replay_us=host_us(copy_and_replay),
             copy_and_replay_in_a_loop_us=loop_us(copy_and_replay), copy_in_a_loop_us=loop_us(lambda: static.copy_(source)),
             eager_us=host_us(lambda: [x.add_(1) for _ in range(kernels)], rounds=20))


def small_stack(layers):
    parts = []
    for _ in range(layers):
        parts += [torch.nn.Linear(64, 64), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts).cuda()


def costs_of(module, parameters, x, gradient):
    """Host microseconds of a forward, and of a forward and its backward with gradients made afresh."""
    def clear():
        for parameter in parameters:
            parameter.grad = None
        x.grad = None

    def both():
        clear()
        module(x).backward(gradient)

    def backward_after_forward():
        clear()
        return module(x)

    return {"forward_us": host_us(lambda: module(x)), "forward_in_a_loop_us": loop_us(lambda: module(x)),
            "backward_us": host_us(lambda y: y.backward(gradient), prepare=backward_after_forward),
            "both_in_a_loop_us": loop_us(both)}


def callables():
    for layers in (1, 4, 16):
        for frozen in (False, True):
            model = small_stack(layers)
            for parameter in model.parameters():
                parameter.requires_grad_(not frozen)
            sample = torch.randn(16, 64, device="cuda", requires_grad=True)
            other = torch.randn(16, 64, device="cuda", requires_grad=True)
            gradient = torch.randn(16, 64, device="cuda")
            parameters = list(model.parameters())
            eager = costs_of(model, parameters, other, gradient)
            begin = time.perf_counter_ns()
            graphed = torch.cuda.make_graphed_callables(model, (sample,))
            make_ms = round((time.perf_counter_ns() - begin) / 1e6, 1)
            show("callables", layers=layers, parameters=len(parameters), frozen=frozen, make_ms=make_ms, eager=eager,
                 graphed=costs_of(graphed, parameters, other, gradient),
                 graphed_with_its_own_input=costs_of(graphed, parameters, sample, gradient))


def chained():
    """Several graphed callables in one forward and one backward: the slope over their number is the price of one."""
    for parameters_each in (2, 8, 32):
        for gradients in ("frozen parameters", "made afresh", "added to"):
            rows = {}
            for count in (2, 12):
                model = [small_stack(parameters_each // 2) for _ in range(count)]
                parameters = [p for part in model for p in part.parameters()]
                for parameter in parameters:
                    parameter.requires_grad_(gradients != "frozen parameters")
                samples = [torch.randn(16, 64, device="cuda", requires_grad=True) for _ in model]
                graphed = torch.cuda.make_graphed_callables(tuple(model), tuple((x,) for x in samples))
                x = torch.randn(16, 64, device="cuda", requires_grad=True)
                gradient = torch.randn(16, 64, device="cuda")

                def forward():
                    y = x
                    for part in graphed:
                        y = part(y)
                    return y

                def prepare():
                    x.grad = None
                    if gradients == "made afresh":
                        for parameter in parameters:
                            parameter.grad = None
                    return forward()

                rows[count] = (host_us(forward, rounds=100),
                               host_us(lambda y: y.backward(gradient), rounds=100, prepare=prepare))
            each = [round((rows[12][i] - rows[2][i]) / 10, 2) for i in range(2)]
            show("chained", parameters_each=parameters_each, gradients=gradients, two_us=rows[2], twelve_us=rows[12],
                 forward_us_each=each[0], backward_us_each=each[1])


def books():
    """What the allocator holds, by pool, and what the driver says is used beyond that."""
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    stats = torch.cuda.memory_stats()
    pools = {}
    for segment in torch.cuda.memory_snapshot():
        pool = str(tuple(segment.get("segment_pool_id", (0, 0))))
        row = pools.setdefault(pool, {"segments": [], "allocated": 0, "active": 0, "streams": []})
        row["segments"].append(segment["total_size"])
        row["allocated"] += segment["allocated_size"]
        row["active"] += segment["active_size"]
        if segment["stream"] not in row["streams"]:
            row["streams"].append(segment["stream"])
    for row in pools.values():
        row["streams"] = len(row["streams"])
    return {"allocated": stats["allocated_bytes.all.current"], "reserved": stats["reserved_bytes.all.current"],
            "active": stats["active_bytes.all.current"], "inactive_split": stats["inactive_split_bytes.all.current"],
            "used_beyond_reserved": total - free - stats["reserved_bytes.all.current"], "pools": pools}


def big_layer():
    return torch.nn.Sequential(torch.nn.Linear(4096, 4096, bias=False), torch.nn.ReLU(),
                               torch.nn.Linear(4096, 4096, bias=False)).cuda().bfloat16()


def layers():
    torch.zeros(1, device="cuda")
    show("layers", step="context and one small tensor", **books())
    model = [big_layer() for _ in range(4)]
    inputs = [torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in model]
    show("layers", step="4 layers and 4 inputs", **books())
    for layer, x in zip(model, inputs):
        layer(x).backward(x.detach())
        for parameter in layer.parameters():
            parameter.grad = None
        x.grad = None
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    show("layers", step="after an eager pass and empty_cache", **books())

    pool = torch.cuda.graph_pool_handle()
    kept = []
    for index, (layer, x) in enumerate(zip(model, inputs)):
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph, pool=pool):
            y = layer(x)
        kept.append((graph, y))
        show("layers", step=f"forward of layer {index} captured, output kept", **books())
    for entry in kept:
        entry[0].replay()
    show("layers", step="replayed", **books())
    kept.clear()
    del graph, y, entry
    torch.cuda.synchronize()
    show("layers", step="graphs and outputs deleted", **books())
    torch.cuda.empty_cache()
    show("layers", step="and empty_cache", **books())

    graphed = torch.cuda.make_graphed_callables(tuple(model), tuple((x,) for x in inputs))
    torch.cuda.synchronize()
    show("layers", step="make_graphed_callables of the 4 layers", **books())
    torch.cuda.empty_cache()
    show("layers", step="and empty_cache", **books())
    x = inputs[0]
    for layer in graphed:
        x = layer(x)
    x.backward(torch.ones_like(x))
    show("layers", step="one forward and backward of them", **books())


def many():
    """A hundred graphs of a layer's forward in one pool: what the driver takes for each."""
    layer = big_layer()
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        show("many", step="layer and input", **books())
        layer(x)
        show("many", step="an eager pass", **books())
        with torch.cuda.stream(torch.cuda.Stream()):
            layer(x)
        show("many", step="and one on another stream", **books())
        empty = torch.cuda.CUDAGraph()
        with torch.cuda.graph(empty):
            x.add_(0)
        show("many", step="a graph of one kernel that is no GEMM", **books())
    pool = torch.cuda.graph_pool_handle()
    kept = []
    for count in range(1, 101):
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph, pool=pool):
            y = x
            for _ in range(8):
                y = layer(y)
        del y
        kept.append(graph)
        if count in (1, 2, 10, 50, 100):
            show("many", step=f"{count} graphs of 24 kernels", **books())
    for graph in kept:
        graph.replay()
    show("many", step="replayed", **books())
    begin = time.perf_counter_ns()
    with torch.no_grad(), torch.cuda.graph(torch.cuda.CUDAGraph(), pool=pool):
        layer(x)
    show("many", capture_of_3_kernels_ms=round((time.perf_counter_ns() - begin) / 1e6, 2))


if __name__ == "__main__":
    torch.manual_seed(1)
    {"replay": replay, "callables": callables, "chained": chained,
     "layers": layers, "many": many}[sys.argv[1]]()
