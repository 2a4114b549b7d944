"""Of the marks in a PyTorch process. What needs PyTorch, on a CPU, is skipped where it is missing."""

import doctest
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "profiler" / "torch"))
import stowage_marks  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

needs_torch = unittest.skipIf(torch is None, "PyTorch is not installed here")


class FakeNvtx:
    """Writes down what is called."""

    def __init__(self):
        self.log = []
        self.ids = 0

    def push(self, text):
        self.log.append("push " + text)

    def pop(self):
        self.log.append("pop")

    def start(self, text):
        self.ids += 1
        self.log.append(f"start {self.ids} {text}")
        return self.ids

    def end(self, number):
        self.log.append(f"end {number}")

    def mark(self, text):
        self.log.append("mark " + text)


class Text(unittest.TestCase):
    def test_has_the_fields_in_the_order_that_stowage_writes(self):
        text = stowage_marks.mark_text(chunk=1, layer=3, microbatch=0, work="attention", phase="forward", module="core_attn")
        # The same text as in tests/profiler/cupti/raw_events_test.cpp.
        self.assertEqual(text, "stowage:module=core_attn;phase=forward;work=attention;layer=3;microbatch=0;chunk=1")

    def test_leaves_out_what_is_not_known(self):
        self.assertEqual(stowage_marks.mark_text(module="router", layer=None), "stowage:module=router")

    def test_refuses_other_fields(self):
        with self.assertRaisesRegex(TypeError, r"a mark has no \['colour'\]"):
            stowage_marks.mark_text(colour="green")

    def test_examples_of_the_documentation(self):
        self.assertEqual(doctest.testmod(stowage_marks).failed, 0)


class Place(unittest.TestCase):
    def check(self, expected, *names):
        for name in names:
            self.assertEqual(stowage_marks.place_of(name), expected, name)

    def test_of_megatron(self):
        layer = "decoder.layers.12."
        self.check(("attn_norm", 12), layer + "input_layernorm")
        self.check(("qkv_linear", 12), layer + "self_attention.linear_qkv")
        self.check(("core_attn", 12), layer + "self_attention.core_attention")
        self.check(("attn_proj", 12), layer + "self_attention.linear_proj")
        self.check(("mlp_norm", 12), layer + "pre_mlp_layernorm")
        self.check(("mlp_fc1", 12), layer + "mlp.linear_fc1")
        self.check(("mlp_fc2", 12), layer + "mlp.linear_fc2")
        self.check(("router", 12), layer + "mlp.router")
        self.check(("expert_fc1", 12), layer + "mlp.experts.linear_fc1")
        self.check(("expert_fc2", 12), layer + "mlp.experts.local_experts.3.linear_fc2")
        self.check(("shared_expert", 12), layer + "mlp.shared_experts.linear_fc1", layer + "mlp.shared_experts")
        self.check(("final_norm", None), "decoder.final_layernorm")
        self.check(("output_layer", None), "output_layer")
        self.check(("embedding", None), "embedding.word_embeddings")

    def test_of_multi_latent_attention(self):
        attention = "decoder.layers.0.self_attention."
        self.check(
            ("qkv_linear", 0),
            *(attention + name for name in ("linear_q_proj", "linear_q_down_proj", "linear_kv_up_proj")),
        )

    def test_of_hugging_face(self):
        layer = "model.layers.5."
        self.check(("qkv_linear", 5), layer + "self_attn.q_proj", layer + "self_attn.v_proj")
        self.check(("attn_proj", 5), layer + "self_attn.o_proj")
        self.check(("mlp_norm", 5), layer + "post_attention_layernorm")
        self.check(("mlp_fc1", 5), layer + "mlp.gate_proj", layer + "mlp.up_proj")
        self.check(("mlp_fc2", 5), layer + "mlp.down_proj")
        self.check(("expert_fc1", 5), layer + "mlp.experts.7.up_proj")
        self.check(("router", 5), layer + "mlp.gate")
        self.check(("embedding", None), "model.embed_tokens")
        self.check(("final_norm", None), "model.norm")
        self.check(("output_layer", None), "lm_head")

    def test_of_what_is_only_a_layer_or_nothing(self):
        self.check((None, 5), "model.layers.5", "model.layers.5.mlp", "model.layers.5.self_attn.rotary")
        self.check((None, None), "", "model", "my_qkv_thing.other")
        self.assertTrue(stowage_marks.is_layer("model.layers.5"))
        self.assertFalse(stowage_marks.is_layer("model.layers.5.mlp"))


class Ranges(unittest.TestCase):
    def test_steps_and_ranges_are_closed_when_something_is_raised(self):
        nvtx = FakeNvtx()
        marks = stowage_marks.Marks(nvtx)
        with self.assertRaises(ValueError), marks.step("eager"), marks.range(module="loss"):
            raise ValueError
        self.assertEqual(nvtx.log, ["push stowage:step;stage=eager", "push stowage:module=loss", "pop", "pop"])

    def test_text_has_the_microbatch_of_now(self):
        marks = stowage_marks.Marks(FakeNvtx())
        marks.microbatch, marks.chunk = 2, 1
        self.assertEqual(
            marks.text("forward", "core_attn", 3), "stowage:module=core_attn;phase=forward;layer=3;microbatch=2;chunk=1"
        )

    def test_recording_is_started_and_stopped_by_marks(self):
        nvtx = FakeNvtx()
        marks = stowage_marks.Marks(nvtx)
        marks.start_recording()
        marks.stop_recording()
        self.assertEqual(nvtx.log, ["mark stowage:start", "mark stowage:stop"])

    def test_a_step_ends_backward_ranges_that_nothing_has_ended(self):
        nvtx = FakeNvtx()
        marks = stowage_marks.Marks(nvtx)
        with marks.step("eager"):
            marks._begin_backward("a", "qkv_linear", 0)
        self.assertEqual(nvtx.log[1:], ["start 1 stowage:module=qkv_linear;phase=backward;layer=0", "end 1", "pop"])


class Memory(unittest.TestCase):
    def test_events_of_segments_are_left_out(self):
        self.assertIsNone(stowage_marks.memory_text({"action": "segment_alloc", "addr": 1, "size": 2, "time_us": 3}))
        self.assertIsNone(stowage_marks.memory_text({"action": "free_requested", "addr": 1, "size": 2, "time_us": 3}))
        self.assertIsNone(stowage_marks.memory_text({"action": "alloc", "addr": 1, "size": 2}))
        self.assertEqual(
            stowage_marks.memory_text({"action": "free_completed", "addr": 255, "size": 2, "time_us": 3}),
            "stowage:free;address=ff;bytes=2;time=3000",
        )


def small_model():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = torch.nn.Linear(4, 8, bias=False)
            self.fc2 = torch.nn.Linear(8, 4, bias=False)

        def forward(self, x):
            return x + self.fc2(torch.nn.functional.silu(self.fc1(x)))

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([Layer()])

        def forward(self, x):
            return self.layers[0](x)

    return Model()


@needs_torch
class Hooks(unittest.TestCase):
    def setUp(self):
        self.nvtx = FakeNvtx()
        self.model = small_model()
        self.x = torch.randn(2, 4, requires_grad=True)

    def test_ranges_lie_around_forwards_and_backwards(self):
        marks = stowage_marks.attach(self.model, nvtx=self.nvtx)
        marks.microbatch = 1
        self.model(self.x).sum().backward()
        marks.close()
        forward = [line for line in self.nvtx.log if "phase=forward" in line or line == "pop"]
        self.assertEqual(
            forward,
            [
                "push stowage:phase=forward;layer=0;microbatch=1",
                "push stowage:module=mlp_fc1;phase=forward;layer=0;microbatch=1",
                "pop",
                "push stowage:module=mlp_fc2;phase=forward;layer=0;microbatch=1",
                "pop",
                "pop",
            ],
        )
        backward = [line for line in self.nvtx.log if "phase=backward" in line]
        self.assertEqual(
            backward,
            [
                "start 1 stowage:phase=backward;layer=0;microbatch=1",
                "start 2 stowage:module=mlp_fc2;phase=backward;layer=0;microbatch=1",
                "start 3 stowage:module=mlp_fc1;phase=backward;layer=0;microbatch=1",
            ],
        )
        log = self.nvtx.log
        self.assertLess(log.index("end 2"), log.index(backward[2]))  # fc2 is over before fc1 begins
        for number in (1, 2, 3):
            self.assertEqual(log.count(f"end {number}"), 1)

    def test_results_are_the_same(self):
        expected = self.model(self.x)
        expected.sum().backward()
        gradient = self.x.grad.clone()
        self.x.grad = None
        marks = stowage_marks.attach(self.model, nvtx=self.nvtx)
        found = self.model(self.x)
        found.sum().backward()
        self.assertTrue(torch.equal(found, expected))
        self.assertTrue(torch.equal(self.x.grad, gradient))
        marks.detach()

    def test_detached_it_says_nothing(self):
        marks = stowage_marks.attach(self.model, nvtx=self.nvtx)
        marks.detach()
        self.model(self.x).sum().backward()
        self.assertEqual(self.nvtx.log, [])

    def test_recomputation_has_a_phase_of_its_own(self):
        stowage_marks.attach(self.model, nvtx=self.nvtx, saved_tensors=False)
        y = torch.utils.checkpoint.checkpoint(self.model, self.x, use_reentrant=False)
        forwards = sum("phase=forward" in line for line in self.nvtx.log)
        y.sum().backward()
        self.assertEqual(forwards, 3)
        self.assertEqual(sum("phase=forward" in line for line in self.nvtx.log), 3)
        self.assertGreaterEqual(sum("phase=recompute" in line for line in self.nvtx.log), 2)

    def test_a_forward_that_fails_closes_its_ranges(self):
        marks = stowage_marks.attach(self.model, nvtx=self.nvtx)
        with self.assertRaises(RuntimeError):
            self.model(torch.randn(2, 5))
        pushed = sum(line.startswith("push") for line in self.nvtx.log)
        self.assertEqual(self.nvtx.log.count("pop"), pushed)
        self.assertEqual(marks._saving, [])

    def test_functions_have_ranges_too(self):
        marks = stowage_marks.attach(self.model, nvtx=self.nvtx)
        before = torch.nn.functional.silu
        marks.patch(torch.nn.functional, "silu", "mlp_act")
        expected = self.x + self.model.layers[0].fc2(before(self.model.layers[0].fc1(self.x)))
        self.nvtx.log.clear()
        found = self.model(self.x)
        found.sum().backward()
        self.assertTrue(torch.equal(found, expected))
        log = self.nvtx.log
        self.assertIn("push stowage:module=mlp_act;phase=forward;layer=0", log)
        start = next(line for line in log if "module=mlp_act;phase=backward;layer=0" in line)
        self.assertEqual(log.count("end " + start.split()[1]), 1)
        # Of the three parts of the layer's backward the second.
        order = [line.split("module=")[1].split(";")[0] for line in log if line.startswith("start") and "module=" in line]
        self.assertEqual(order, ["mlp_fc2", "mlp_act", "mlp_fc1"])
        marks.detach()
        self.assertIs(torch.nn.functional.silu, before)

    def test_saved_tensors_are_known_by_their_storage(self):
        """On a CPU nothing is said of them; what would be said is the text."""
        marks = stowage_marks.attach(self.model, nvtx=self.nvtx)
        self.model(self.x)
        self.assertFalse(any("stowage:save" in line for line in self.nvtx.log))

        class OnDevice:
            is_cuda = True

            def __init__(self, tensor):
                self.tensor = tensor

            def __getattr__(self, name):
                return getattr(self.tensor, name)

        weight = self.model.layers[0].fc1.weight  # 8 x 4 numbers of 4 bytes
        address = weight.data_ptr()
        self.assertEqual(
            marks.save_text(OnDevice(weight.t())),
            f"stowage:save;address={address:x};bytes=128;storage={address:x};storage_bytes=128;parameter=1",
        )
        other = torch.zeros(10, 4)
        address = other.data_ptr()
        self.assertEqual(
            marks.save_text(OnDevice(other[2:4])),
            f"stowage:save;address={address + 32:x};bytes=32;storage={address:x};storage_bytes=160;parameter=0",
        )

    def test_saved_tensors_die_with_the_graph(self):
        import weakref

        stowage_marks.attach(self.model, nvtx=self.nvtx)
        y = self.model(self.x)
        alive = weakref.ref(y.grad_fn)
        del y
        self.assertIsNone(alive())  # without a cycle that only the collector would find


if __name__ == "__main__":
    unittest.main()
