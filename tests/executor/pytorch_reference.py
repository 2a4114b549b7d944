"""Does one step of a dumped model in PyTorch and compares losses and gradients with the executor's.

    stowage execute scenarios/dense-tiny.yaml --dump FOLDER
    python3 tests/executor/pytorch_reference.py FOLDER

The dump holds parameters, tokens, losses and main gradients of step 0 (executor/engine/dump.hpp). Two references are
made: one in fp32 and one in bf16 as PyTorch rounds it. Judged by: the executor's distance from the fp32 reference may be
at most twice what PyTorch's own bf16 run has (both round as they go, in different places), and losses agree within
0.5 %. Layers may have experts, all of them on the one rank (tokens go where the dump says), norms of heads, and
multi-latent attention; a layer of multi-token prediction may follow them. Exits with 0 if so, 1 if not, 77 if PyTorch is
missing (says so), 2 for a wrong command line and for a dump that no reference is made for.
"""

import json
import pathlib
import sys

try:
    import numpy
    import torch
    from torch.nn import functional
except ImportError as missing:
    print(f"not compared: {missing.name} is not installed here")
    sys.exit(77)

EPSILON = 1e-5
ROTARY_BASE = 10000.0


class Dump:
    def __init__(self, folder):
        self.step = json.loads((folder / "step.json").read_text())
        self.tokens = self.integers(folder / "tokens.bin")
        self.labels = self.integers(folder / "labels.bin")
        # One token further on than the labels: what a prediction's loss is about.
        self.later = self.integers(folder / "later_labels.bin") if "prediction_scaling" in self.step else self.labels
        if "experts" in self.step:
            choices = torch.from_numpy(numpy.fromfile(folder / "assignment.bin", dtype=numpy.int32).astype(numpy.int64))
            self.step["assignment"] = choices.reshape(-1, self.step["experts"]["topk"])
        self.parameters = self.tensors(folder / "parameters.bin", 2)
        self.gradients = self.tensors(folder / "gradients.bin", self.step["gradient_bytes"])

    def integers(self, path):
        values = torch.from_numpy(numpy.fromfile(path, dtype=numpy.int32).astype(numpy.int64))
        # By microbatch; a row is place * sequences + sequence.
        return values.reshape(self.step["microbatches"], self.step["sequence"], self.step["micro_batch_size"])

    def tensors(self, path, size):
        raw = torch.from_numpy(numpy.fromfile(path, dtype=numpy.int16 if size == 2 else numpy.float32))
        values = raw.view(torch.bfloat16) if size == 2 else raw
        return {
            one["name"]: values[one["place"] : one["place"] + int(numpy.prod(one["shape"]))].reshape(one["shape"]).clone()
            for one in self.step["parameters"]
        }


class Model:
    """The layers of implementation stowage, in plain PyTorch. Activations are [sequence, sequences, width]."""

    def __init__(self, step, parameters):
        self.step = step
        self.parameters = parameters

    def norm(self, name, x):
        """Over the last dimension: a row, a part of one, or a head."""
        weight = self.parameters[name + ".weight"]
        if self.step["layer_norm"]:
            return functional.layer_norm(x, x.shape[-1:], weight, self.parameters[name + ".bias"], EPSILON)
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)).to(x.dtype) * weight

    def linear(self, name, x):
        return functional.linear(x, self.parameters[name + ".weight"], self.parameters.get(name + ".bias"))

    def rotate(self, heads):
        """heads: [s, b, h, d]; pairs (i, i + d/2)."""
        half = heads.shape[-1] // 2
        places = torch.arange(heads.shape[0], device=heads.device, dtype=torch.float32)
        rates = ROTARY_BASE ** (-torch.arange(half, device=heads.device, dtype=torch.float32) / half)
        angles = (places[:, None] * rates[None, :])[:, None, None, :]
        first, second = heads[..., :half].float(), heads[..., half:].float()
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(heads.dtype)

    def attention(self, prefix, normed):
        if "latent" in self.step:
            return self.latent_attention(prefix, normed)
        packed = self.linear(prefix + "qkv_linear", normed)
        heads, groups, size = (self.step[key] for key in ("heads", "groups", "head_size"))
        s, b = packed.shape[:2]
        query, key, value = packed.split([heads * size, groups * size, groups * size], -1)
        query, key, value = (t.reshape(s, b, -1, size) for t in (query, key, value))
        if prefix + "q_norm.weight" in self.parameters:
            query, key = self.norm(prefix + "q_norm", query), self.norm(prefix + "k_norm", key)
        if self.step["rotary"]:
            query, key = self.rotate(query), self.rotate(key)
        key, value = (t.repeat_interleave(heads // groups, 2) for t in (key, value))
        return self.mix(query, key, value)

    def mix(self, query, key, value):
        """[s, b, h, d] each, value with a d of its own; scores are scaled by the square root of the query's d."""
        query, key, value = (t.permute(1, 2, 0, 3) for t in (query, key, value))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return mixed.permute(2, 0, 1, 3).flatten(2)

    def latent_attention(self, prefix, normed):
        sizes = self.step["latent"]
        s, b = normed.shape[:2]
        if sizes["query"]:
            latent = self.norm(prefix + "q_latent_norm", self.linear(prefix + "q_down", normed))
            query = self.linear(prefix + "q_up", latent)
        else:
            query = self.linear(prefix + "q_proj", normed)
        latent, turned = self.linear(prefix + "kv_down", normed).split([sizes["key_value"], sizes["turned"]], -1)
        both = self.linear(prefix + "kv_up", self.norm(prefix + "kv_latent_norm", latent))
        query = query.reshape(s, b, self.step["heads"], -1)
        both = both.reshape(s, b, self.step["heads"], -1)
        plain_query, turned_query = query.split([sizes["plain"], sizes["turned"]], -1)
        plain_key, value = both.split([sizes["plain"], sizes["value"]], -1)
        turned_key = self.rotate(turned.unsqueeze(2)).expand(-1, -1, self.step["heads"], -1)
        query = torch.cat([plain_query, self.rotate(turned_query)], -1)
        return self.mix(query, torch.cat([plain_key, turned_key], -1), value)

    def activation(self, g):
        if not self.step["gated"]:
            return functional.gelu(g)
        gate, value = g.chunk(2, -1)
        return functional.silu(gate) * value

    def router_weights(self, prefix, rows, assignment):
        """fp32 [tokens, topk]; logits are fp32 sums of products of what the layers hold."""
        router = self.step["experts"]
        logits = functional.linear(rows.float(), self.parameters[prefix + "router.weight"].float())
        if router["sigmoid"]:
            scores = logits.sigmoid().gather(1, assignment)
            return scores / scores.sum(-1, keepdim=True) * router["scaling"]
        if router["softmax_first"]:
            return logits.softmax(-1).gather(1, assignment) * router["scaling"]
        return logits.gather(1, assignment).softmax(-1) * router["scaling"]

    def experts(self, prefix, normed):
        """Weights multiply in front of the second linear; a token's sum is rounded once."""
        rows = normed.flatten(0, 1)
        assignment = self.step["assignment"].to(rows.device)
        weights = self.router_weights(prefix, rows, assignment)
        first = self.parameters[prefix + "expert_fc1.weight"]
        second = self.parameters[prefix + "expert_fc2.weight"]
        total = torch.zeros(rows.shape, dtype=torch.float32, device=rows.device)
        for expert in range(self.step["experts"]["count"]):
            tokens, choices = (assignment == expert).nonzero(as_tuple=True)
            hidden = self.activation(functional.linear(rows[tokens], first[expert]))
            hidden = (hidden.float() * weights[tokens, choices, None]).to(rows.dtype)
            total = total.index_add(0, tokens, functional.linear(hidden, second[expert]).float())
        return total.to(rows.dtype).view_as(normed)

    def feed_forward(self, prefix, number, x):
        normed = self.norm(prefix + "mlp_norm", x)
        experts = self.step.get("experts")
        if not experts or not experts["layers"][number]:
            return x + self.linear(prefix + "mlp_fc2", self.activation(self.linear(prefix + "mlp_fc1", normed)))
        if experts["shared"]:
            hidden = self.activation(self.linear(prefix + "shared_expert.fc1", normed))
            x = x + self.linear(prefix + "shared_expert.fc2", hidden)
        return x + self.experts(prefix, normed)

    def layer(self, number, x, prefix=None):
        prefix = prefix or f"layers.{number}."
        mixed = self.attention(prefix, self.norm(prefix + "attn_norm", x))
        x = x + self.linear(prefix + "attn_proj", mixed)
        return self.feed_forward(prefix, number, x)

    def embed(self, tokens):
        return functional.embedding(tokens, self.parameters["embedding.word_embeddings.weight"])

    def predict(self, normed, labels):
        """Normed rows of what comes after the labels, by one layer more."""
        next_token = self.norm("mtp.0.enorm", self.embed(labels))
        both = torch.cat([next_token, self.norm("mtp.0.hnorm", normed)], -1)
        x = self.layer(self.step["layers"], self.linear("mtp.0.eh_proj", both), "mtp.0.")
        return self.norm("mtp.0.final_norm", x)

    def entropy(self, normed, labels):
        logits = self.linear("output_layer", normed)
        return functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())

    def loss(self, tokens, labels, later):
        x = self.embed(tokens)
        for number in range(self.step["layers"]):
            x = self.layer(number, x)
        normed = self.norm("final_norm", x)
        loss = self.entropy(normed, labels)
        if "prediction_scaling" in self.step:
            loss = loss + self.step["prediction_scaling"] * self.entropy(self.predict(normed, labels), later)
        return loss


def run(dump, precision, device):
    parameters = {name: value.to(device, precision).requires_grad_() for name, value in dump.parameters.items()}
    model = Model(dump.step, parameters)
    sums = {name: torch.zeros(value.shape, dtype=torch.float32, device=device) for name, value in parameters.items()}
    losses = []
    for tokens, labels, later in zip(dump.tokens.to(device), dump.labels.to(device), dump.later.to(device)):
        loss = model.loss(tokens, labels, later)
        loss.backward()
        losses.append(loss.item())
        for name, value in parameters.items():
            sums[name] += value.grad.float()
            value.grad = None
    return losses, sums


def distance(left, right):
    return ((left - right).norm() / right.norm().clamp_min(1e-30)).item()


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    dump = Dump(pathlib.Path(sys.argv[1]))
    experts = dump.step.get("experts", {"ranks": 1, "padded": False})
    if experts["ranks"] != 1 or experts["padded"]:
        print("experts of other ranks, and rows that pad experts, are made up: there is nothing to compare with")
        return 2
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = False
    exact_losses, exact = run(dump, torch.float32, device)
    _, rounded = run(dump, torch.bfloat16, device)
    good = True
    for ours, theirs in zip(dump.step["losses"], exact_losses):
        good = good and abs(ours - theirs) <= 0.005 * abs(theirs)
    print("losses  ", dump.step["losses"], "\nPyTorch ", exact_losses)
    print(f"{'gradient':40s} {'executor':>10s} {'PyTorch bf16':>13s}   (distance from fp32, relative)")
    for name, expected in exact.items():
        ours = distance(dump.gradients[name].to(device).float(), expected)
        theirs = distance(rounded[name], expected)
        fits = ours <= 2 * theirs + 1e-3
        good = good and fits
        print(f"{name:40s} {ours:10.5f} {theirs:13.5f} {'' if fits else '  TOO FAR'}")
    print("agrees" if good else "DISAGREES")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
