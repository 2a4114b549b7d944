"""Whole steps of the peer with Megatron's device-to-host lane beside them, part by part.

Four microbatches back to back, as the peer runs them. `wait` makes the main stream wait for the lane where the first
reload would be needed (after the last layer's backward, or after the next layer's MLP backward), so that the chip idles
there as it does in the peer. Nothing is reloaded and no tensor is freed early.
"""

import json
import random
import sys
import time

import torch
import torch.nn.functional as F

from h200_offload_lane import CHOICES, Lane, event, keep_contiguous
from h200_peer_model import loss_of, make_peer
from h200_sampling import median

MICROBATCHES = 4


class PartLane(Lane):
    """As Lane, with only some of its work: gathers, copies, or both."""

    def __init__(self, modules, gathers=True, copies=True):
        super().__init__(modules)
        self.gathers, self.copies = gathers, copies

    def commit(self, module, number, tensors):
        if module not in self.modules or number == 7:
            return
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream), torch.no_grad():
            for name, tensor, gathered in tensors:
                begin = event()
                source = tensor.detach()
                if gathered:
                    source = source.contiguous() if self.gathers else source.as_strided((tensor.numel(),), (1,))
                middle = event()
                if self.copies:
                    self.host(source).copy_(source.reshape(-1), non_blocking=True)
                self.spans.append((name, number, begin, middle, event()))
                self.kept.append((tensor.detach(), source))


class Step:
    def __init__(self, model, x, lane, wait=None, contiguous=False):
        self.model, self.x, self.lane, self.wait, self.contiguous = model, x, lane, wait, contiguous

    def hook(self, tensor):
        def wait_for_lane(_):
            torch.cuda.current_stream().wait_stream(self.lane.stream)
            self.waits.append(event())
        tensor.register_hook(wait_for_lane)

    def attention(self, query, key, value):
        if not self.contiguous:
            return F.scaled_dot_product_attention(query, key, value, is_causal=True)
        with torch.autograd.graph.saved_tensors_hooks(keep_contiguous, lambda tensor: tensor):
            return F.scaled_dot_product_attention(query, key, value, is_causal=True)

    def forward(self):
        x, lane = self.x, self.lane
        for number, layer in enumerate(self.model.layers):
            normed = layer.attn_norm(x)
            qkv = layer.qkv(normed)
            lane.commit("qkv_linear", number, [("normed", normed, False), ("qkv_weight", layer.qkv.weight, False)])
            query, key, value = layer.split_heads(qkv)
            context = self.attention(query, key, value)
            flat = context.transpose(1, 2).reshape(x.shape)
            lane.commit("core_attn", number,
                        [("q", query, True), ("k", key, True), ("v", value, True), ("out", flat, False)])
            projected = layer.proj(flat)
            lane.commit("attn_proj", number, [("proj_input", flat, False), ("proj_weight", layer.proj.weight, False)])
            middle = x + projected
            lane.commit("attn_norm", number, [("x", x, False)])
            if self.wait == "middle" and number == 6:
                self.hook(middle)
            gate, up = layer.fc1(layer.mlp_norm(middle)).chunk(2, dim=-1)
            x = middle + layer.fc2(F.silu(gate) * up)
            lane.commit("mlp_norm", number, [("middle", middle, False)])
            if self.wait == "layer" and number == 6:
                self.hook(x)
        return x

    def run(self):
        torch.cuda.synchronize()
        marks, self.waits, ends, gathers = [], [], [], []
        self.lane.used = {}
        for _ in range(MICROBATCHES):
            self.lane.begin()
            marks.append(event())
            y = self.forward()
            marks.append(event())
            loss_of(y).backward()
            if self.lane.spans:
                ends.append(self.lane.spans[-1][4])
                gathers.append([(name, number, a, b, c) for name, number, a, b, c in self.lane.spans])
            # Memory of the lane stays until the step ends: `gathers` holds events only, `kept` the tensors.
            self.keep = getattr(self, "keep", []) + self.lane.kept
            del y
        marks.append(event())
        torch.cuda.synchronize()
        self.keep = []
        self.model.zero_grad(set_to_none=True)
        begins = marks[0:-1:2]
        result = {"step_ms": marks[0].elapsed_time(marks[-1]),
                  "forward_ms": median([a.elapsed_time(b) for a, b in zip(marks[0::2], marks[1::2])])}
        if ends:
            result["lane_end_ms"] = median([a.elapsed_time(b) for a, b in zip(begins, ends)])
            result["gathers_ms"] = median([sum(s[2].elapsed_time(s[3]) for s in g if s[0] in "qkv") for g in gathers])
            result["copies_ms"] = median([sum(s[3].elapsed_time(s[4]) for s in g) for g in gathers])
        if self.waits:
            result["wait_passed_ms"] = median([a.elapsed_time(b) for a, b in zip(begins, self.waits)])
        time.sleep(0.008)
        return result, gathers, begins


def conditions(model, x):
    def step(name, wait=None, contiguous=False, **parts):
        return Step(model, x, PartLane(CHOICES[name], **parts), wait, contiguous)
    return {
        "none": step("none"),
        "contiguous saved": step("none", contiguous=True),
        "core_attn": step("core_attn"),
        "core_attn, no copies": step("core_attn", copies=False),
        "core_attn, no gathers": step("core_attn", gathers=False),
        "norms": step("norms"),
        "qkv+core_attn+attn_proj, wait": step("qkv+core_attn+attn_proj", wait="middle"),
        "qkv+core_attn+attn_proj, no gathers, wait": step("qkv+core_attn+attn_proj", wait="middle", gathers=False),
        "all, wait": step("all", wait="layer"),
        "all, no gathers, wait": step("all", wait="layer", gathers=False),
    }


def main(path, rounds=14):
    model = make_peer()
    x = torch.randn(1, 4096, 4096, device="cuda", dtype=torch.bfloat16).requires_grad_(True)
    steps = conditions(model, x)
    for step in steps.values():
        step.run()
    end = time.perf_counter() + 4
    while time.perf_counter() < end:
        steps["none"].run()
    rows, order = {name: [] for name in steps}, random.Random(3)
    details = {}
    for _ in range(rounds):
        names = list(steps)
        order.shuffle(names)
        for name in names:
            result, gathers, begins = steps[name].run()
            rows[name].append(result)
            if gathers:
                details[name] = [[n, k, round(begins[1].elapsed_time(a), 3), round(a.elapsed_time(b), 3),
                                  round(b.elapsed_time(c), 3)] for n, k, a, b, c in gathers[1]]
    summary = {name: {key: round(median([row[key] for row in rows[name]]), 2) for key in rows[name][0]}
               for name in rows}
    base = [row["step_ms"] for row in rows["none"]]
    for name in rows:
        excess = [row["step_ms"] - b for row, b in zip(rows[name], base)]
        summary[name]["excess_ms"] = round(median(excess), 2)
    print(json.dumps(summary, indent=1))
    keep = {name: details[name] for name in details if "no " not in name}
    with open(path, "w") as file:
        json.dump({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "summary": summary,
                   "one_microbatch_name_layer_begin_gather_copy_ms": keep}, file, indent=None)
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
