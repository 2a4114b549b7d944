#!/usr/bin/env python3
"""Simulates what was published about offloading and recomputation, and prints computed beside published figures.

    tools/published_effects.py build/stowage --out docs/measurements/published-effects.md

Needs PyYAML.
"""
import argparse
import pathlib
import re
import sys
import tempfile

import yaml

from real_configs import ROOT, Runs

MIB = 2**20
ALL_MODULES = ["attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act"]


def model(shipped, **changes):
    return yaml.safe_load((ROOT / f"scenarios/models/{shipped}.yaml").read_text()) | changes


def scenario(runs, name, the_model, parallel, batch, node, nodes, **more):
    path = runs.folder / f"{name}-model.yaml"
    path.write_text(yaml.safe_dump(the_model, sort_keys=False))
    return {
        "schema": "stowage/scenario/1", "model": str(path), "implementation": "megatron",
        "rules": more.pop("rules", "main-2026-08"), "env": {"NVTE_CPU_OFFLOAD_V1": "1"}, "parallel": parallel,
        "batch": {"routing": "balanced", **batch}, "precision": more.pop("precision", "bf16"),
        "optimizer": {"optimizer": "adam", "use_distributed_optimizer": True} | more.pop("optimizer", {}),
        "cuda_graph": {"cuda_graph_impl": "none"}, "offload": {"offload_modules": more.pop("offload", [])},
        "hardware": {"node": str(ROOT / f"scenarios/hardware/{node}.yaml"), "nodes": nodes}, **more}


def recomputing(modules):
    return {"recompute_granularity": "selective", "recompute_modules": modules} if modules else \
        {"recompute_granularity": "none"}


def allocated(rank):
    """The allocator's peak of later iterations, which is what Megatron's logs and the publishers quote."""
    return rank["later_iterations"]["peak_allocated_bytes"]


def run(runs, name, content):
    done = runs.simulate(name, content)
    if "answer" not in done:
        raise SystemExit(f"{name}: {done['refused']}")
    return done["answer"]


def row(*cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def head(*cells):
    return [row(*cells), "|" + " --- |" * len(cells)]


def pull_1752(runs):
    """14 layers as 4, 3, 3 and 4; queries of 64 heads and keys and values of 8 groups are 80 MiB a microbatch."""
    proxy = model("qwen3-235b-a22b", name="proxy", num_layers=14, num_query_groups=8, num_experts=32)
    layout = {"data_parallel_size": 4, "expert_model_parallel_size": 4, "pipeline_model_parallel_size": 2,
              "num_virtual_stages_per_pipeline_rank": 2, "pipeline_model_parallel_layout": "Etttt|ttt|ttt|ttttL"}
    batch = {"micro_batch_size": 1, "global_batch_size": 32, "seq_length": 4096}
    lines = head("offloaded", "saved on stage 0, MiB", "on stage 1", "step, ms")
    lines.append(row("published: `offload_qkv`", "1437.76 of 1440 expected", "800 expected", "1262 (1249.7) -> 1253.8"))
    base = None
    for modules in ([], ["core_attn"], ["core_attn", "attn_proj"], ["qkv_linear"]):
        answer = run(runs, "pull-1752", scenario(runs, "pull-1752", proxy, layout, batch, "h100-8gpu", 1,
                                                offload=modules, rules="core-0.18"))
        peaks = [allocated(rank) for rank in answer["ranks"]]
        step = answer["predicted"]["step_time_us"] / 1e3
        if base is None:
            base = peaks
            whole = [f"of {peak / MIB:.1f}" for peak in peaks]
            lines.append(row("computed: nothing", *whole, f"{step:.1f}"))
            continue
        saved = [(before - after) / MIB for before, after in zip(base, peaks)]
        lines.append(row("computed: " + ", ".join(modules), f"{saved[0]:.2f}", f"{saved[1]:.2f}", f"{step:.1f}"))
    return lines


def proxy_on_four_stages(runs):
    """DeepSeek-V3's layers, 16 of them, one dense."""
    proxy = model("deepseek-v3", name="proxy", num_layers=16, moe_layer_freq="([0]*1+[1]*15)", mtp_num_layers=0)
    layout = {"data_parallel_size": 32, "expert_model_parallel_size": 32, "pipeline_model_parallel_size": 4}
    batch = {"micro_batch_size": 1, "global_batch_size": 512, "seq_length": 4096}
    lines = head("offloaded", "stage 0", "stage 1", "stage 2", "stage 3", "step")
    lines.append(row("published", "-25.5 %", "-25.8 %", "-22.7 %", "-14.2 %", ""))
    base = None
    for modules in ([], ["expert_fc1"], ["expert_fc1", "moe_act"], ["core_attn", "attn_proj"],
                    ["qkv_linear", "core_attn", "attn_proj"], ["core_attn", "attn_proj", "expert_fc1"], ALL_MODULES):
        answer = run(runs, "proxy", scenario(runs, "proxy", proxy, layout, batch, "h100-8gpu", 16, offload=modules,
                                            rules="core-0.18"))
        peaks = [allocated(rank) for rank in answer["ranks"]]
        step = answer["predicted"]["step_time_us"]
        if base is None:
            base = peaks, step
            lines.append(row("nothing", *(f"{peak / 2**30:.1f} GiB" for peak in peaks), f"{step / 1e6:.2f} s"))
            continue
        lines.append(row(", ".join(modules), *(f"{100 * (after / before - 1):.1f} %"
                                              for before, after in zip(base[0], peaks)),
                         f"{100 * (step / base[1] - 1):+.1f} %"))
    return lines


def recompute_table(runs, name, content, published):
    lines = head("recomputed", "peak, GB: published", "computed", "less than none: published", "computed",
                 "step, ms: published", "computed", "more than none: published", "computed")
    base = None
    for modules, gigabytes, milliseconds in published:
        answer = run(runs, name, content | {"recompute": recomputing(modules)})
        peak = max(allocated(rank) for rank in answer["ranks"]) / 1e9
        step = answer["predicted"]["step_time_us"] / 1e3
        base = base or (gigabytes, peak, milliseconds, step)
        slower = f"{100 * (milliseconds / base[2] - 1):+.1f} %" if milliseconds and base[2] else "not run"
        lines.append(row(" + ".join(modules) or "none", f"{gigabytes:.3f}", f"{peak:.3f}", f"{base[0] - gigabytes:.3f}",
                         f"{base[1] - peak:.3f}", milliseconds or "out of memory", f"{step:.1f}", slower,
                         f"{100 * (step / base[3] - 1):+.1f} %"))
    return lines


def moonlight(runs):
    shipped = yaml.safe_load((ROOT / "scenarios/moonlight-16b-a3b-tp2-ep8.yaml").read_text())
    content = shipped | {"model": str(ROOT / "scenarios" / shipped["model"]),
                         "offload": {"offload_modules": []},
                         "hardware": {"node": str(ROOT / "scenarios/hardware/h100-8gpu.yaml"), "nodes": 1}}
    published = [([], 36.618, 457.18), (["core_attn"], 36.614, 474.80), (["mla_up_proj"], 35.902, 480.89),
                 (["mla_up_proj", "mlp"], 35.917, 496.73), (["moe_act"], 35.941, 466.26),
                 (["layernorm", "moe_act"], 35.949, 506.53)]
    return recompute_table(runs, "moonlight", content, published)


def nemotron(runs):
    """One microbatch a rank; bf16 gradients and fp32 moments as in Bridge's benchmark recipe of this model."""
    layout = {"data_parallel_size": 16, "expert_model_parallel_size": 8, "moe_token_dispatcher_type": "flex",
              "moe_flex_dispatcher_backend": "hybridep"}
    batch = {"micro_batch_size": 1, "global_batch_size": 16, "seq_length": 8192}
    content = scenario(runs, "nemotron", model("nemotron3-nano-30b-a3b"), layout, batch, "h100-8gpu", 2,
                       optimizer={"grad_reduce_in_bf16": True})
    published = [([], 66.297, None), (["moe_act"], 62.103, None), (["moe"], 64.653, 657.42),
                 (["moe", "layernorm"], 63.639, 677.62)]
    return recompute_table(runs, "nemotron", content, published)


def deepseek_activations(runs):
    """What PP4 and EP64 on 256 GPUs hold before anything is done about it."""
    lines = head("", "parameters and states", "activations", "in all")
    lines.append(row("published, GB", "68.5", "131.0", "199.5"))
    for text, virtual, layout in (("computed, PP 4", 1, "Et*15|t*16|t*16|t*14mL"),
                                  ("computed, PP 4 x 4", 4, "Et*4|" + "tttt|" * 14 + "tmL")):
        parallel = {"data_parallel_size": 64, "expert_model_parallel_size": 64, "pipeline_model_parallel_size": 4,
                    "num_virtual_stages_per_pipeline_rank": virtual, "pipeline_model_parallel_layout": layout}
        content = scenario(runs, "deepseek", model("deepseek-v3"), parallel,
                           {"micro_batch_size": 1, "global_batch_size": 2048, "seq_length": 4096}, "gb300-nvl72", 4)
        answer = run(runs, "deepseek", content)
        fullest = max(answer["ranks"], key=allocated)
        static, peak = fullest["static_bytes"] / 1e9, allocated(fullest) / 1e9
        lines.append(row(text + ", GB", f"{static:.1f}", f"{peak - static:.1f}", f"{peak:.1f}"))
    return lines


def overlap(runs):
    """Qwen3-235B-A22B on 256 H100, without and with the exchanges of experts beside compute."""
    lines = head("", "step, s: published", "computed", "TFLOP/s a GPU: published", "computed")
    published = (("exchanges after compute", False, 19.7, 245), ("beside compute", True, 17.6, 276))
    for text, beside, seconds, rate in published:
        parallel = {"tensor_model_parallel_size": 2, "sequence_parallel": True, "pipeline_model_parallel_size": 8,
                    "num_virtual_stages_per_pipeline_rank": 4, "expert_model_parallel_size": 32,
                    "expert_tensor_parallel_size": 1, "data_parallel_size": 16,
                    "account_for_embedding_in_pipeline_split": True, "account_for_loss_in_pipeline_split": True,
                    "moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "deepep",
                    "overlap_moe_expert_parallel_comm": beside}
        content = scenario(runs, "overlap", model("qwen3-235b-a22b"), parallel,
                           {"micro_batch_size": 1, "global_batch_size": 2048, "seq_length": 4096}, "h100-8gpu", 32,
                           recompute=recomputing(["moe_act", "layernorm"]))
        predicted = run(runs, "overlap", content)["predicted"]
        lines.append(row(text, seconds, f"{predicted['step_time_us'] / 1e6:.2f}", rate,
                         f"{predicted['tflop_per_s_per_gpu']:.0f}"))
    return lines


TABLES = {"pull-1752": pull_1752, "four-stages": proxy_on_four_stages, "moonlight": moonlight, "nemotron": nemotron,
          "deepseek-activations": deepseek_activations, "overlap": overlap}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", help="the stowage command")
    parser.add_argument("--only", choices=TABLES, help="one table")
    parser.add_argument("--out", help="the document whose tables are replaced; without it they go to standard output")
    options = parser.parse_args()
    text = pathlib.Path(options.out).read_text() if options.out else ""
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(str(pathlib.Path(options.command).resolve()), pathlib.Path(folder))
        for name, table in TABLES.items():
            if options.only not in (None, name):
                continue
            lines = "\n".join(table(runs))
            if options.out:
                text = re.sub(f"<!-- {name} -->.*?<!-- end -->", lambda _: f"<!-- {name} -->\n{lines}\n<!-- end -->",
                              text, flags=re.S)
            else:
                print(f"{name}\n\n{lines}\n")
    if options.out:
        pathlib.Path(options.out).write_text(text)


if __name__ == "__main__":
    sys.exit(main())
