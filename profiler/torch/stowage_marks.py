"""Says, in a PyTorch process, whose work is whose, for the recorder that `stowage profile -- COMMAND` injects.

    import stowage_marks

    marks = stowage_marks.attach(model)               # hooks around the modules whose names are known
    for number in range(5):
        with marks.step("eager"):                     # the recording has one step for each
            for microbatch in range(4):
                marks.microbatch = microbatch
                loss(model(batch)).backward()
            optimizer.step()
    marks.detach()

Everything goes through NVTX, so that the recorder alone sees it, and costs next to nothing where nobody listens:

    stowage:module=core_attn;phase=forward;layer=3;microbatch=0     a range around a forward, a backward, a recomputation
    stowage:save;address=7f00;bytes=4096;storage=7e00;storage_bytes=8192;parameter=0   a tensor was saved for a backward
    stowage:step;stage=eager                                        a range around a step
    stowage:allocate;address=7f00;bytes=4096;time=17...             what PyTorch's allocator did, and when (report_memory)

What is not a module can be marked by `marks.range(module=...)` in a `with`, or, with its backward, by `marks.wrap(function,
module=...)`. Works under CUDA graphs: what is captured is marked as it is captured.

Saved tensors are seen by hooks of autograd, of which only the innermost are called: record without offloading and
without checkpoints that have hooks of their own, or those of their insides are missing.
"""

import contextlib
import re
import time

#: The fields of a mark in the order in which they are written.
FIELDS = ("module", "phase", "work", "layer", "microbatch", "chunk")

#: What the last parts of a module's name say about it. The first that matches counts.
RULES = (
    (r"embedding|word_embeddings|embed_tokens|wte", "embedding"),
    (r"shared_experts?(\..*)?", "shared_expert"),
    (r"router|mlp\.gate", "router"),
    (r"experts(\.\w+)*\.(linear_fc1|w1|w3|gate_proj|up_proj)", "expert_fc1"),
    (r"experts(\.\w+)*\.(linear_fc2|w2|down_proj)", "expert_fc2"),
    (r"input_layernorm|attn_norm|attention_norm", "attn_norm"),
    (r"pre_mlp_layernorm|post_attention_layernorm|mlp_norm|ffn_norm", "mlp_norm"),
    (r"linear_qkv|qkv|qkv_proj|[qkv]_proj|linear_(q|kv)_(down_|up_)?proj", "qkv_linear"),
    (r"core_attention|core_attn", "core_attn"),
    (r"self_attention\.linear_proj|o_proj|(layers|blocks|h)\.\d+\.proj", "attn_proj"),
    (r"linear_fc1|fc1|gate_up_proj|gate_proj|up_proj", "mlp_fc1"),
    (r"linear_fc2|fc2|down_proj", "mlp_fc2"),
    (r"final_layernorm|final_norm|model\.norm", "final_norm"),
    (r"output_layer|lm_head", "output_layer"),
)

_LAYER = re.compile(r"(?:^|\.)(?:layers|blocks|h)\.(\d+)(?:\.|$)")


def mark_text(**fields):
    """The text of a mark, as stowage reads it: known fields in a fixed order, those that are None left out.

    >>> mark_text(layer=3, module="core_attn", phase="forward")
    'stowage:module=core_attn;phase=forward;layer=3'
    """
    unknown = set(fields) - set(FIELDS)
    if unknown:
        raise TypeError(f"a mark has no {sorted(unknown)}; it has {', '.join(FIELDS)}")
    said = [f"{name}={fields[name]}" for name in FIELDS if fields.get(name) is not None]
    return "stowage:" + ";".join(said)


def place_of(name, rules=RULES):
    """(module, layer) of a module by its qualified name; either may be None.

    >>> place_of("decoder.layers.3.self_attention.linear_qkv")
    ('qkv_linear', 3)
    >>> place_of("decoder.layers.3")
    (None, 3)
    """
    layer = _LAYER.search(name)
    number = int(layer.group(1)) if layer else None
    for pattern, module in rules:
        if re.search(rf"(?:^|\.)(?:{pattern})$", name):
            return module, number
    return None, number


def is_layer(name):
    """Whether a qualified name is that of a layer as a whole."""
    return re.search(r"(?:^|\.)(?:layers|blocks|h)\.\d+$", name) is not None


class _TorchNvtx:
    """NVTX as PyTorch has it."""

    def __init__(self):
        from torch.cuda import nvtx

        self.push, self.pop = nvtx.range_push, nvtx.range_pop
        self.start, self.end = nvtx.range_start, nvtx.range_end
        self.mark = nvtx.mark


def _in_backward():
    import torch

    return torch._C._current_graph_task_id() != -1


def _edge():
    """An identity whose backward calls something first."""
    import torch

    class Edge(torch.autograd.Function):
        @staticmethod
        def forward(ctx, action, *tensors):
            ctx.action = action
            return tuple(tensor.view_as(tensor) for tensor in tensors)

        @staticmethod
        def backward(ctx, *gradients):
            ctx.action()
            return (None, *gradients)

    return Edge


class Marks:
    """The marks of one process. `microbatch` and `chunk` are what the next ranges say."""

    def __init__(self, nvtx=None):
        self.microbatch = None
        self.chunk = None
        self._nvtx = nvtx or _TorchNvtx()
        self._handles = []
        self._open = {}  # identifiers of backward ranges, by what they are of
        self._parameters = set()
        self._saving = []
        self._patched = []
        self._layers = []  # that are going forward, the innermost last

    # Ranges

    def text(self, phase, module=None, layer=None, work=None):
        """What a range says, with the microbatch and chunk of now."""
        return mark_text(module=module, phase=phase, layer=layer, work=work, microbatch=self.microbatch, chunk=self.chunk)

    @contextlib.contextmanager
    def range(self, **fields):
        """A range of a thread's work, with any fields of a mark."""
        self._nvtx.push(mark_text(**fields))
        try:
            yield
        finally:
            self._nvtx.pop()

    @contextlib.contextmanager
    def step(self, stage):
        """A step of a run: record, eager or steady."""
        self._nvtx.push(f"stowage:step;stage={stage}")
        try:
            yield
        finally:
            self.close()
            self._nvtx.pop()

    def start_recording(self):
        """Where the recorder was told to wait for the mark stowage:start."""
        self._nvtx.mark("stowage:start")

    def stop_recording(self):
        """The other end. The device has to be idle: synchronise first."""
        self._nvtx.mark("stowage:stop")

    def close(self):
        """Ends backward ranges that no gradient has ended."""
        for stack in self._open.values():
            while stack:
                self._nvtx.end(stack.pop())

    # Ranges of backwards may overlap: gradients of inputs and of weights come as autograd has them.
    def _begin_backward(self, key, module, layer):
        self._open.setdefault(key, []).append(self._nvtx.start(self.text("backward", module, layer)))

    def _end_backward(self, key):
        stack = self._open.get(key)
        if stack:
            self._nvtx.end(stack.pop())

    # Modules

    def attach(self, model, rules=RULES, saved_tensors=True):
        """Hooks around every module that `rules` or its being a layer names, and around what the model saves."""
        for name, child in model.named_modules():
            module, layer = place_of(name, rules)
            if module is not None or is_layer(name):
                self._hook(child, module, layer)
        if saved_tensors:
            self._watch_saved(model)
        return self

    def detach(self):
        """Takes every hook away."""
        self.close()
        for handle in self._handles:
            handle.remove()
        for owner, name, function in self._patched:
            setattr(owner, name, function)
        self._handles, self._patched = [], []

    def _hook(self, child, module, layer):
        def before(*_):
            if module is None:
                self._layers.append(layer)
            self._nvtx.push(self.text("recompute" if _in_backward() else "forward", module, layer))

        def after(*_):
            self._nvtx.pop()
            if module is None and self._layers:
                self._layers.pop()

        def before_backward(*_):
            self._begin_backward(child, module, layer)

        def after_backward(*_):
            self._end_backward(child)

        self._handles += [
            child.register_forward_pre_hook(before),
            child.register_forward_hook(after, always_call=True),
            child.register_full_backward_pre_hook(before_backward),
            child.register_full_backward_hook(after_backward),
        ]

    def wrap(self, function, module):
        """The function with ranges around its forward and its backward, of the layer that calls it."""
        import torch

        edge = _edge()

        def wrapped(*arguments, **named):
            layer = self._layers[-1] if self._layers else None
            key = object()
            tensors = [a for a in arguments if isinstance(a, torch.Tensor) and a.requires_grad]
            passed = iter(edge.apply(lambda: self._end_backward(key), *tensors) if tensors else ())
            arguments = [
                next(passed) if isinstance(a, torch.Tensor) and a.requires_grad else a for a in arguments
            ]
            with self.range(**self._fields("recompute" if _in_backward() else "forward", module, layer)):
                result = function(*arguments, **named)
            if isinstance(result, torch.Tensor) and result.requires_grad:
                (result,) = edge.apply(lambda: self._begin_backward(key, module, layer), result)
            return result

        return wrapped

    def patch(self, owner, name, module):
        """Replaces `owner.name` by itself wrapped, until detach: patch(torch.nn.functional,
        "scaled_dot_product_attention", "core_attn")."""
        function = getattr(owner, name)
        self._patched.append((owner, name, function))
        setattr(owner, name, self.wrap(function, module))

    def _fields(self, phase, module, layer):
        return dict(module=module, phase=phase, layer=layer, microbatch=self.microbatch, chunk=self.chunk)

    # Memory

    def _watch_saved(self, model):
        import torch

        def storages():
            tensors = list(model.parameters()) + list(model.buffers())
            return {address for address in map(_storage_address, tensors) if address is not None}

        def before(*_):
            self._parameters = storages()
            hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda packed: packed)
            hooks.__enter__()
            self._saving.append(hooks)

        def after(*_):
            if self._saving:
                self._saving.pop().__exit__(None, None, None)

        self._handles += [
            model.register_forward_pre_hook(before),
            model.register_forward_hook(after, always_call=True),
        ]

    def _pack(self, tensor):
        text = self.save_text(tensor)
        if text is not None:
            self._nvtx.mark(text)
        return tensor.detach()  # the same storage, without a way back into the graph

    def save_text(self, tensor):
        """What is said of a saved tensor; None of one that is not on a device or has no storage."""
        storage = _storage_address(tensor)
        if storage is None or not tensor.is_cuda:
            return None
        return (
            f"stowage:save;address={tensor.data_ptr():x};bytes={tensor.numel() * tensor.element_size()}"
            f";storage={storage:x};storage_bytes={tensor.untyped_storage().nbytes()}"
            f";parameter={int(storage in self._parameters)}"
        )

    @staticmethod
    def watch_memory(most_events=1_000_000):
        """Has PyTorch's allocator keep what it does, for report_memory."""
        import torch

        torch.cuda.memory._record_memory_history(context=None, max_entries=most_events)

    def report_memory(self, device=None):
        """Tells the recorder, while it records, what the allocator did since watch_memory. Returns how many events."""
        import torch

        device = torch.cuda.current_device() if device is None else device
        events = torch.cuda.memory._snapshot()["device_traces"][device]
        texts = [text for text in map(memory_text, events) if text is not None]
        self._nvtx.mark(f"stowage:clock;time={time.time_ns()}")  # the allocator's times are of this clock
        for text in texts:
            self._nvtx.mark(text)
        torch.cuda.memory._record_memory_history(enabled=None)
        return len(texts)


def memory_text(event):
    """What is said of an event of PyTorch's allocator; None of those that are about whole segments.

    >>> memory_text({"action": "alloc", "addr": 4096, "size": 512, "time_us": 17})
    'stowage:allocate;address=1000;bytes=512;time=17000'
    """
    kinds = {"alloc": "allocate", "free_completed": "free"}
    if event.get("action") not in kinds or "time_us" not in event:
        return None
    kind, address = kinds[event["action"]], event["addr"]
    return f"stowage:{kind};address={address:x};bytes={event['size']};time={event['time_us'] * 1000}"


def _storage_address(tensor):
    """Of subclasses of tensors that have no storage of their own: None."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return None


def attach(model, rules=RULES, saved_tensors=True, nvtx=None):
    """Marks a model's modules and what they save; see Marks."""
    return Marks(nvtx).attach(model, rules, saved_tensors)
