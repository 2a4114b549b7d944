"""The measured stack: 8 layers of RMSNorm, QKV linear, causal SDPA, output linear, residual, RMSNorm, SwiGLU, residual."""

import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, hidden, ffn, heads, split):
        super().__init__()
        self.heads = heads
        self.split = split
        self.attn_norm = nn.RMSNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.proj = nn.Linear(hidden, hidden, bias=False)
        self.mlp_norm = nn.RMSNorm(hidden)
        self.fc1 = nn.Linear(hidden, 2 * ffn, bias=False)
        self.fc2 = nn.Linear(ffn, hidden, bias=False)

    def split_heads(self, qkv):
        batch, tokens, width = qkv.shape
        dim = width // 3 // self.heads
        if self.split == "unbind":
            parts = qkv.view(batch, tokens, 3, self.heads, dim).unbind(2)
        else:
            parts = [part.view(batch, tokens, self.heads, dim) for part in qkv.chunk(3, dim=-1)]
        return [part.transpose(1, 2) for part in parts]

    def forward(self, x):
        query, key, value = self.split_heads(self.qkv(self.attn_norm(x)))
        context = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.proj(context.transpose(1, 2).reshape(x.shape))
        gate, up = self.fc1(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.fc2(F.silu(gate) * up)


class Peer(nn.Module):
    def __init__(self, layers=8, hidden=4096, ffn=14336, heads=32, split="chunk"):
        super().__init__()
        self.layers = nn.ModuleList(Layer(hidden, ffn, heads, split) for _ in range(layers))
        self.before_layer = None  # Called with the layer's number as its forward is enqueued.
        self.before_layer_backward = None  # Called with the layer's number as its backward is enqueued.

    def set_split(self, split):
        for layer in self.layers:
            layer.split = split

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            if self.before_layer:
                self.before_layer(number)
            x = layer(x)
            if self.before_layer_backward:
                x.register_hook(lambda grad, number=number: self.before_layer_backward(number))
        return x


def make_peer(**shape):
    with torch.device("cuda"):
        return Peer(**shape).to(torch.bfloat16)


def loss_of(y):
    return y.float().pow(2).mean()
