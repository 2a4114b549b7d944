"""Peak allocated bytes of the peer's step and the allocator's event sequence of one microbatch."""

import difflib
import itertools
import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from h200_peer_model import loss_of, make_peer

EXPECTED_PEAK = 14_164_698_112  # The same stack in an earlier run, nothing offloaded.
TOKENS, HIDDEN = 4096, 4096


def new_input(requires_grad=False):
    x = torch.randn(1, TOKENS, HIDDEN, device="cuda", dtype=torch.bfloat16)
    return x.requires_grad_(requires_grad)


def microbatch(model, x, hold_output):
    if hold_output:
        y = model(x)
        loss = loss_of(y)
        loss.backward()
    else:
        loss_of(model(x)).backward()


def peak_of(model, inputs, requires_grad, hold_output):
    xs = [new_input(requires_grad) for _ in range(inputs)]
    model.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    for i in range(4):
        microbatch(model, xs[i % inputs], hold_output)
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    model.zero_grad(set_to_none=True)
    return peak


def variants(model):
    rows = []
    options = itertools.product(("chunk", "unbind"), (1, 4), (False, True), (True, False))
    for split, inputs, requires_grad, hold_output in options:
        model.set_split(split)
        peak = peak_of(model, inputs, requires_grad, hold_output)
        rows.append({"qkv_split": split, "inputs_held": inputs, "input_requires_grad": requires_grad,
                     "output_held": hold_output, "peak_bytes": peak, "minus_expected_bytes": peak - EXPECTED_PEAK})
    return rows


class OpLog(TorchDispatchMode):
    """Logs every dispatched operation with its host-time window; the autograd thread inherits the mode."""

    def __init__(self):
        super().__init__()
        self.ops = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        begin = time.time_ns() // 1000
        result = func(*args, **(kwargs or {}))
        shapes = [list(a.shape) for a in args if isinstance(a, torch.Tensor)]
        self.ops.append((begin, time.time_ns() // 1000, str(func), shapes, torch.cuda.memory_allocated()))
        return result


def traced(run):
    """The allocator's entries while run() executes, in order."""
    torch.cuda.synchronize()
    torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=200000)
    run()
    torch.cuda.synchronize()
    entries = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    return [e for e in entries if e["action"] in ("alloc", "free_completed")]


def compact(entries):
    """[["a", id, bytes] | ["f", id]]: ids number the allocations; ["f", -1, bytes] was allocated before."""
    live, rows, next_id = {}, [], 0
    for entry in entries:
        if entry["action"] == "alloc":
            live[entry["addr"]] = next_id
            rows.append(["a", next_id, entry["size"]])
            next_id += 1
        else:
            known = live.pop(entry["addr"], -1)
            rows.append(["f", known] if known >= 0 else ["f", -1, entry["size"]])
    return rows


def replay_peak(rows, start):
    sizes, now, peak = {}, start, start
    for row in rows:
        if row[0] == "a":
            sizes[row[1]] = (row[2] + 511) // 512 * 512
            now += sizes[row[1]]
            peak = max(peak, now)
        else:
            now -= sizes.pop(row[1]) if row[1] >= 0 else (row[2] + 511) // 512 * 512
    return peak, now


def labelled(entries, ops):
    """For each entry the operation whose host window holds it, or None."""
    labels, at = [], 0
    for entry in entries:
        when = entry["time_us"]
        while at < len(ops) and ops[at][1] < when:
            at += 1
        inside = at < len(ops) and ops[at][0] <= when <= ops[at][1]
        labels.append(at if inside else None)
    return labels


def carry_labels(plain, watched, labels):
    """Labels of the watched run on the events of the plain one.

    The two differ: the watching mode holds references, so that autograd adds out of place where it otherwise adds in
    place. Only events of matching runs of (action, bytes) get a label.
    """
    def keys(rows):
        sizes = {row[1]: row[2] for row in rows if row[0] == "a"}
        return [(row[0], sizes.get(row[1], row[-1])) for row in rows]

    carried = [None] * len(plain)
    for match in difflib.SequenceMatcher(None, keys(plain), keys(watched), autojunk=False).get_matching_blocks():
        carried[match.a:match.a + match.size] = labels[match.b:match.b + match.size]
    return carried


def one_microbatch(model, x, hold_output):
    marks = {}

    def run(log=None):
        y = model(x)
        marks["forward_ops"] = len(log.ops) if log else 0
        loss = loss_of(y)
        if not hold_output:
            del y
        marks["loss_ops"] = len(log.ops) if log else 0
        loss.backward()

    torch.cuda.synchronize()
    start = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    entries = traced(run)
    peak = torch.cuda.max_memory_allocated()
    rows = compact(entries)
    replayed, end = replay_peak(rows, start)
    return {"start_bytes": start, "end_bytes": torch.cuda.memory_allocated(), "peak_bytes": peak,
            "replayed_peak_bytes": replayed, "replayed_end_bytes": end, "events": rows}, run, marks


def trace_step(model, hold_output):
    """Events of the first microbatch (gradients appear) and of the second (gradients accumulate)."""
    x = new_input()
    model.zero_grad(set_to_none=True)
    first, _, _ = one_microbatch(model, x, hold_output)
    second, run, marks = one_microbatch(model, x, hold_output)
    log = OpLog()

    def logged():
        with log:
            run(log)

    entries = traced(logged)
    rows = compact(entries)
    second["op_of_event"] = carry_labels(second["events"], rows, labelled(entries, log.ops))
    names = sorted({op[2] for op in log.ops})
    second["labels_apply"] = same
    second["label_of_event"] = labelled(entries, log.ops)
    if not same:
        second["events_with_labels"] = rows
    second["op_names"] = names
    second["ops"] = [[names.index(op[2]), op[3], op[4]] for op in log.ops]
    second["first_loss_op"], second["first_backward_op"] = marks["forward_ops"], marks["loss_ops"]
    model.zero_grad(set_to_none=True)
    return {"first_microbatch": first, "second_microbatch": second,
            "legend": "events: ['a', id, requested bytes] allocates, ['f', id] frees (['f', -1, bytes]: allocated before the trace);"
                      " op_of_event: index into ops, null between operations;"
                      " ops: [index into op_names, shapes of tensor arguments, allocated bytes after]"}


def memory_section():
    model = make_peer()
    torch.cuda.synchronize()
    model_bytes = torch.cuda.memory_allocated()
    peak_of(model, 1, False, True)  # Creates the cuBLAS workspace, which the allocator counts.
    torch.cuda.empty_cache()
    workspace = torch.cuda.memory_allocated() - model_bytes
    torch.cuda.reset_peak_memory_stats()
    rows = variants(model)
    best = min(rows, key=lambda row: abs(row["minus_expected_bytes"]))
    model.set_split(best["qkv_split"])
    trace = trace_step(model, best["output_held"])
    summary = {"parameters": sum(p.numel() for p in model.parameters()), "model_bytes": model_bytes,
               "left_after_first_step_bytes": workspace, "expected_peak_bytes": EXPECTED_PEAK,
               "closest": best, "variants": rows,
               "reserved_bytes": torch.cuda.memory_reserved()}
    return summary, trace
