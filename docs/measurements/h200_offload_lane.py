"""What Megatron's device-to-host lane does beside the peer's forward, and what reloaded layouts cost its backward.

The lane gathers q, k and v (views of the packed projection) before it copies them. Timed: the gathers alone, each piece
of the lane beside a forward, the forward itself, and the backward when q, k, v come back contiguous.
"""

import json
import sys
import time

import torch
import torch.nn.functional as F

from h200_peer_model import make_peer
from h200_sampling import median

CHOICES = {
    "none": [],
    "norms": ["attn_norm", "mlp_norm"],
    "core_attn": ["core_attn"],
    "core_attn+attn_proj": ["core_attn", "attn_proj"],
    "qkv+core_attn+attn_proj": ["qkv_linear", "core_attn", "attn_proj"],
    "all": ["attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm"],
}


def event():
    mark = torch.cuda.Event(enable_timing=True)
    mark.record()
    return mark


class Lane:
    """Copies as the manager does at a commit: wait for the main stream, then gather and copy one after the other."""

    def __init__(self, modules):
        self.modules = modules
        self.stream = torch.cuda.Stream()
        self.pool = {}
        self.kept, self.spans = [], []

    def begin(self):
        self.kept, self.spans, self.used = [], [], {}

    def host(self, tensor):
        key = tensor.numel()
        number = self.used.get(key, 0)
        self.used[key] = number + 1
        buffers = self.pool.setdefault(key, [])
        while len(buffers) <= number:
            buffers.append(torch.empty(key, dtype=torch.bfloat16, pin_memory=True))
        return buffers[number]

    def commit(self, module, number, tensors):
        if module not in self.modules or number == 7:  # The last layer stays.
            return
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for name, tensor, gathered in tensors:
                begin = event()
                source = tensor.contiguous() if gathered else tensor
                middle = event()
                self.host(source).copy_(source.reshape(-1), non_blocking=True)
                self.spans.append((name, number, begin, middle, event()))
                self.kept.append((tensor, source))


def forward(model, x, lane):
    for number, layer in enumerate(model.layers):
        normed = layer.attn_norm(x)
        qkv = layer.qkv(normed)
        lane.commit("qkv_linear", number, [("normed", normed, False), ("qkv_weight", layer.qkv.weight, False)])
        query, key, value = layer.split_heads(qkv)
        context = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        flat = context.transpose(1, 2).reshape(x.shape)
        lane.commit("core_attn", number, [("q", query, True), ("k", key, True), ("v", value, True), ("out", flat, False)])
        projected = layer.proj(flat)
        lane.commit("attn_proj", number, [("proj_input", flat, False), ("proj_weight", layer.proj.weight, False)])
        middle = x + projected
        lane.commit("attn_norm", number, [("x", x, False)])
        gate, up = layer.fc1(layer.mlp_norm(middle)).chunk(2, dim=-1)
        x = middle + layer.fc2(F.silu(gate) * up)
        lane.commit("mlp_norm", number, [("middle", middle, False)])
    return x


def one(model, x, lane):
    lane.begin()
    torch.cuda.synchronize()
    begin = event()
    with torch.no_grad():
        forward(model, x, lane)
    end = event()
    torch.cuda.synchronize()
    result = {"forward_ms": begin.elapsed_time(end)}
    pieces = {}
    for name, number, a, b, c in lane.spans:
        pieces.setdefault(name, []).append((a.elapsed_time(b), b.elapsed_time(c), begin.elapsed_time(a)))
    if lane.spans:
        result["lane_end_ms"] = begin.elapsed_time(lane.spans[-1][4])
    return result, pieces


def lanes_section(model, x, rounds=30):
    lanes = {name: Lane(modules) for name, modules in CHOICES.items()}
    rows = {name: [] for name in lanes}
    pieces = {name: {} for name in lanes}
    for i in range(rounds + 3):
        for name, lane in lanes.items():
            result, parts = one(model, x, lane)
            if i < 3:
                continue
            rows[name].append(result)
            for part, spans in parts.items():
                pieces[name].setdefault(part, []).extend(spans)
    summary = {}
    for name in lanes:
        summary[name] = {key: round(median([row[key] for row in rows[name]]), 3) for key in rows[name][0]}
        summary[name]["pieces_ms_gather_copy"] = {
            part: [round(median([s[0] for s in spans]), 3), round(median([s[1] for s in spans]), 3),
                   round(sum(s[0] for s in spans) / rounds, 3), round(sum(s[1] for s in spans) / rounds, 3)]
            for part, spans in pieces[name].items()}
    return summary


def gather_alone(model, x, repeats=60):
    with torch.no_grad():
        query, _, _ = model.layers[0].split_heads(model.layers[0].qkv(x))
        for _ in range(5):
            query.contiguous()
        begin = event()
        for _ in range(repeats):
            query.contiguous()
        end = event()
    torch.cuda.synchronize()
    return 1000 * begin.elapsed_time(end) / repeats


def keep_contiguous(tensor):
    """A view of a larger storage is kept as the manager brings it back: contiguous."""
    view = tensor.dim() == 4 and tensor.untyped_storage().nbytes() > 2 * tensor.numel() * tensor.element_size()
    return tensor.contiguous() if view else tensor


def attention_backward(model, x, contiguous, repeats=40):
    """Backward of chunk, attention and reshape, from the gradient of its output to that of the packed projection."""
    layer = model.layers[0]
    keep = keep_contiguous if contiguous else lambda tensor: tensor
    qkv = layer.qkv(x).detach().requires_grad_(True)
    grad = torch.randn_like(x)
    times = []
    for _ in range(repeats):
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            query, key, value = layer.split_heads(qkv)
            out = F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).reshape(x.shape)
        torch.cuda.synchronize()
        begin = event()
        torch.autograd.grad(out, qkv, grad)
        end = event()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return median(times[5:])


def profile_backward(model, x, contiguous):
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        attention_backward(model, x, contiguous, repeats=12)
    names = {}
    for item in recorded.key_averages():
        names[item.key[:80]] = [item.count, round(item.device_time_total / max(item.count, 1), 1)]
    return names


if __name__ == "__main__":
    model = make_peer()
    x = torch.randn(1, 4096, 4096, device="cuda", dtype=torch.bfloat16)
    end = time.perf_counter() + 5
    idle = Lane([])
    idle.begin()
    while time.perf_counter() < end:
        with torch.no_grad():
            forward(model, x, idle)
        torch.cuda.synchronize()
    result = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    result["gather_alone_us"] = round(gather_alone(model, x), 2)
    result["forward"] = lanes_section(model, x)
    result["attention_backward_ms"] = {
        "views": round(attention_backward(model, x, False), 4), "contiguous": round(attention_backward(model, x, True), 4),
        "views_again": round(attention_backward(model, x, False), 4),
        "contiguous_again": round(attention_backward(model, x, True), 4)}
    result["attention_backward_kernels_count_us"] = {
        "views": profile_backward(model, x, False), "contiguous": profile_backward(model, x, True)}
    text = json.dumps(result, indent=1)
    print(text)
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as file:
            file.write(text + "\n")
