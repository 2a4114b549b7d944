"""What the peer's stack holds and reserves, iteration by iteration, while Megatron-LM's own offload manager drives it.

    python3 h200_peer_memory.py MANAGER.py MODULES OUT.json [key=value ...]

MANAGER.py is Megatron-LM's fine_grained_activation_offload.py, as it is; MODULES a list with commas, or "nothing". OUT
gets the allocator's events of the first iterations, how far the host was ahead of the device at every layer, and the
peaks after every iteration. One process a mode: what is reserved stays reserved.
"""

import importlib.util
import json
import sys
import time
import types

import torch
import torch.nn.functional as F

from h200_peer_model import Peer, loss_of

MICROBATCHES = 4
TOKENS, HIDDEN = 4096, 4096


def load_manager(path):
    """The module, with what it imports from its package replaced by what a plain eager run would answer."""
    stubs = {"megatron.core.transformer.cuda_graphs": {"is_graph_capturing": lambda: False},
             "megatron.core.utils": {"nvtx_range_push": lambda _: None, "nvtx_range_pop": lambda _: None},
             "megatron.core.extensions.transformer_engine": {"cpu_offload": types.SimpleNamespace()}}
    for name in ("megatron", "megatron.core", "megatron.core.transformer", "megatron.core.extensions"):
        sys.modules[name] = types.ModuleType(name)
    for name, members in stubs.items():
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(members)
    spec = importlib.util.spec_from_file_location("offload_manager", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.print_offload_summary_table = lambda table: print(table)
    copy_large_views_whole(module.ChunkOffloadHandler)
    return module.FineGrainedActivationOffloadingInterface


def copy_large_views_whole(handler):
    """What main does since August 2026 and releases up to 0.19 do not: a view of at least half of its storage is not
    gathered, but the storage is copied as it lies."""
    gathering, reloading = handler.offload, handler.reload

    def offload(self, source, pin_memory=True, use_cpu_pool=True):
        storage_bytes = source.untyped_storage().nbytes()
        viewed = source.numel() * source.element_size()
        if source.is_contiguous() or 2 * viewed < storage_bytes or storage_bytes % source.element_size():
            return gathering(self, source, pin_memory, use_cpu_pool)
        flat = source.as_strided((storage_bytes // source.element_size(),), (1,), 0)
        view = (source.size(), source.stride(), source.storage_offset())
        return gathering(self, flat, pin_memory, use_cpu_pool) + (view,)

    def reload(self, state, non_blocking=None):
        flat = reloading(self, state[:3], non_blocking)
        return flat.as_strided(*state[3]) if len(state) > 3 else flat

    handler.offload, handler.reload = offload, reload


class Scope:
    """The manager's scope around one module, or nothing at all where the module stays."""

    def __init__(self, interface, modules, name, tensor):
        self.scope = interface(True, tensor, name) if name in modules else None
        self.tensor = None if self.scope else tensor

    def __enter__(self):
        return self.scope.__enter__() if self.scope else self.tensor

    def __exit__(self, *error):
        if self.scope:
            self.scope.__exit__(*error)

    def commit(self, tensor, released=()):
        return self.scope.group_offload(tensor, forced_released_tensors=list(released)) if self.scope else tensor


class Driver:
    def __init__(self, interface, modules, options):
        self.interface, self.modules, self.options = interface, modules, options
        self.marks, self.output = [], None
        self.model = self.make_model()
        self.x = torch.randn(1, TOKENS, HIDDEN, device="cuda", dtype=torch.bfloat16).requires_grad_(True)

    def make_model(self):
        if self.options["init"] == "bf16":
            torch.set_default_dtype(torch.bfloat16)
            with torch.device("cuda"):
                model = Peer()
            torch.set_default_dtype(torch.float32)
            return model
        with torch.device("cuda"):
            return Peer().to(torch.bfloat16)

    def scope(self, name, tensor):
        return Scope(self.interface, self.modules, name, tensor)

    def mark(self, name, number):
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.marks.append((name, number, time.perf_counter(), event))

    def layer_forward(self, layer, number, x):
        """Names are dropped where Megatron's own functions return, so that nothing lives longer than there."""
        if number % 4 == 0:
            self.mark("forward", number)
        norm_scope = self.scope("attn_norm", x)
        with norm_scope as norm_input:
            normed = layer.attn_norm(norm_input)
        del norm_input
        scope = self.scope("qkv_linear", normed)
        with scope as normed:
            qkv = layer.qkv(normed)
        qkv = scope.commit(qkv)
        del normed, scope
        query, key, value = layer.split_heads(qkv)
        del qkv
        scope = self.scope("core_attn", query)
        with scope as query:
            context = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            context = context.transpose(1, 2).reshape(x.shape)
        context = scope.commit(context, (query, key, value))
        del query, key, value, scope
        scope = self.scope("attn_proj", context)
        with scope as context:
            projected = layer.proj(context)
        projected = scope.commit(projected, (context,))
        del context, scope
        middle = norm_scope.commit(x + projected)
        del projected, x, norm_scope
        scope = self.scope("mlp_norm", middle)
        with scope as norm_input:
            normed = layer.mlp_norm(norm_input)
        del norm_input
        gate, up = layer.fc1(normed).chunk(2, dim=-1)
        del normed
        output = scope.commit(middle + layer.fc2(F.silu(gate) * up))
        if number % 4 == 3:
            output.register_hook(lambda _: self.mark("backward", number))
        return output

    def microbatch(self):
        if self.modules:
            self.interface.init_chunk_handler(0, 1, None, 1024 * 1024, 0, 1.0)
        x = self.x
        for number, layer in enumerate(self.model.layers):
            x = self.layer_forward(layer, number, x)
        if self.options["output"] == "replaced":
            self.output = x
        loss = loss_of(x)
        if self.options["output"] == "dropped":
            del x
        loss.backward()

    def iteration(self):
        for _ in range(MICROBATCHES):
            self.microbatch()
        self.model.zero_grad(set_to_none=True)
        if self.options["x_grad"] == "dropped":
            self.x.grad = None
        if self.modules:
            self.interface.reset()
        if self.options["synchronise"] == "1":
            torch.cuda.synchronize()

    def lead(self, base_host, base_event):
        """[mark, layer, host ms, device ms] since `base`."""
        torch.cuda.synchronize()
        rows = [[name, number, round(1e3 * (host - base_host), 3), round(base_event.elapsed_time(event), 3)]
                for name, number, host, event in self.marks]
        self.marks = []
        return rows


def peaks():
    stats = torch.cuda.memory_stats()
    return [stats["allocated_bytes.all.peak"], stats["active_bytes.all.peak"], stats["reserved_bytes.all.peak"],
            torch.cuda.memory_reserved()]


def rows_of(entries, first_us):
    """[action, address, bytes, stream, us], consecutive; streams and actions by their short names."""
    short = {"alloc": "a", "free_requested": "r", "free_completed": "f", "segment_alloc": "s", "segment_free": "S"}
    return [[short.get(e["action"], e["action"]), e["addr"], e["size"], e["stream"], e["time_us"] - first_us]
            for e in entries]


def main(path, modules, out, *settings):
    options = {"init": "fp32", "output": "replaced", "x_grad": "dropped", "synchronise": "1", "traced": "3",
               "iterations": "8"}
    options.update(setting.split("=") for setting in settings)
    chosen = () if modules == "nothing" else tuple(modules.split(","))
    traced = int(options["traced"])
    if traced:
        torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=1000000)
    driver = Driver(load_manager(path), chosen, options)
    after_start = peaks()
    rows, marks, base_host, base_event = [], [], None, None
    for number in range(int(options["iterations"])):
        if number == traced and traced:
            snapshot = torch.cuda.memory._snapshot()["device_traces"][0]
            torch.cuda.memory._record_memory_history(enabled=None)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        base_event, base_host = torch.cuda.Event(enable_timing=True), time.perf_counter()
        base_event.record()
        base_us = time.time_ns() // 1000
        driver.iteration()
        host_ms = 1e3 * (time.perf_counter() - base_host)
        marks.append({"begin_us": base_us, "host_ms": round(host_ms, 3), "marks": driver.lead(base_host, base_event)})
        rows.append(peaks() + [round(1e3 * (time.perf_counter() - base_host), 2)])
    result = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "modules": chosen, "options": options,
              "columns": "peaks of allocated, active, reserved bytes; reserved bytes at the end; ms",
              "after_start": after_start, "iterations": rows, "lead": marks}
    print(json.dumps({key: result[key] for key in ("modules", "options", "after_start", "iterations")}))
    if traced:
        first_us = snapshot[0]["time_us"]
        result["first_us"] = first_us
        result["events"] = rows_of(snapshot, first_us)
    with open(out, "w") as file:
        json.dump(result, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
