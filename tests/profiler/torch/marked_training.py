"""A few steps of a small transformer with marks, to be recorded on a device: eager, then its layers as graphs.

It prints what PyTorch thinks it did, so that the recording can be held against it.
"""

import pathlib
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "profiler" / "torch"))
import stowage_marks  # noqa: E402

HIDDEN, FFN, HEADS, TOKENS, LAYERS, MICROBATCHES = 1024, 2816, 8, 1024, 2, 2


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attn_norm = torch.nn.RMSNorm(HIDDEN)
        self.qkv = torch.nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.proj = torch.nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.mlp_norm = torch.nn.RMSNorm(HIDDEN)
        self.fc1 = torch.nn.Linear(HIDDEN, 2 * FFN, bias=False)
        self.fc2 = torch.nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x):
        batch, tokens, _ = x.shape
        parts = self.qkv(self.attn_norm(x)).chunk(3, dim=-1)
        query, key, value = (part.view(batch, tokens, HEADS, -1).transpose(1, 2) for part in parts)
        context = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.proj(context.transpose(1, 2).reshape(x.shape))
        gate, up = self.fc1(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.fc2(torch.nn.functional.silu(gate) * up)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def train_step(model, marks, x):
    for microbatch in range(MICROBATCHES):
        marks.microbatch = microbatch
        model(x).float().pow(2).mean().backward()


def main():
    with torch.device("cuda"):
        model = Model().to(torch.bfloat16)
        x = torch.randn(1, TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    marks = stowage_marks.attach(model)
    marks.patch(torch.nn.functional, "scaled_dot_product_attention", "core_attn")
    train_step(model, marks, x)  # warms up
    torch.cuda.synchronize()
    marks.watch_memory()
    with marks.step("record"):
        train_step(model, marks, x)
        torch.cuda.synchronize()
        print("memory events", marks.report_memory(), flush=True)
    with marks.step("eager"):
        train_step(model, marks, x)
        torch.cuda.synchronize()
    torch.cuda.nvtx.mark(f"clock time={time.time_ns()}")
    # One microbatch, forward and backward, as a graph: marked as it is captured, launched twice without marks. What is
    # captured has to have run on another stream than the default one before.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        train_step(model, marks, x)
    torch.cuda.current_stream().wait_stream(side)
    for tensor in [x, *model.parameters()]:
        tensor.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        marks.microbatch = None
        model(x).float().pow(2).mean().backward()
    with marks.step("steady"):
        for _ in range(MICROBATCHES):
            graph.replay()
        torch.cuda.synchronize()
    marks.detach()
    print("done", flush=True)


if __name__ == "__main__":
    main()
