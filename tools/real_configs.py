#!/usr/bin/env python3
"""Runs `stowage simulate` on every published configuration of tests/data/real_configs.yaml.

    tools/real_configs.py build/stowage --out docs/measurements/real-configs.md

Each row becomes a scenario file in a temporary folder, with the row's model, layout, batch and policy and the shipped
files of models and machines. What the scenario language has no key for is asked of `stowage import megatron`, which
refuses it by name. A row that is refused only for CUDA graphs, an allocator setting or a precision runs a second time
without them, marked so. Needs PyYAML.
"""
import argparse
import json
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROWS = ROOT / "tests/data/real_configs.yaml"
NOTES = ROOT / "docs/measurements/real-configs-notes.yaml"
GIB = 2**30

# GPUs of a row -> the shipped machine. A rack is 64 GPUs; fewer are taken as trays of four.
MACHINES = [
    ("Ascend", None),
    ("GH200", "gh200-4gpu"),
    ("GB300", "gb300-nvl72"),
    ("H100", "h100-8gpu"),
    ("GB200", "gb200-nvl72"),
    ("B200", "b200-8gpu"),
    ("unspecified", "h100-8gpu"),
    ("several", "b200-8gpu"),
]
GPUS_PER_NODE = {"gh200-4gpu": 4, "gb300-nvl72": 64, "gb200-nvl72": 64, "gb200-4gpu": 4, "h100-8gpu": 8, "b200-8gpu": 8}

PRECISIONS = [
    ("fp8 blockwise", "fp8_blockwise"),
    ("nvfp4", "nvfp4"),
    ("fp4", "nvfp4"),
    ("bf16", "bf16"),
    ("mxfp8", "mxfp8"),
    ("fp8", "fp8_delayed"),
]

# Read as features only, where the language's own keys say less: Megatron's argument that names them.
ASKED_OF_IMPORT = {
    "fsdp": ("use-megatron-fsdp", "true"),
    "lora": ("peft", "lora"),
    "layer_offload_num_layers": ("cpu-offloading-num-layers", None),
}
# Refused features without which a row still is the published job, run otherwise.
SEPARABLE = re.compile(r"cuda_graph_impl|caching allocator|precision: nvfp4")


def machine_of(row):
    name = next(machine for key, machine in MACHINES if key in row["gpu"])
    return "gb200-4gpu" if name == "gb200-nvl72" and row["n_gpus"] % 64 else name


def precision_of(row):
    return next(value for key, value in PRECISIONS if row["precision"].startswith(key))


def offload_of(row):
    offload = row["offload"]
    if not isinstance(offload, dict) or "modules" not in offload:
        return {"offload_modules": []}
    keys = {"offload_modules": offload["modules"]}
    if offload.get("delay_offload_until_cuda_graph"):
        keys["delay_offload_until_cuda_graph"] = True
    if "fraction" in offload:
        keys["activation_offload_fraction"] = offload["fraction"]
    if "min_offloaded_tensor_size" in offload:
        keys["min_offloaded_tensor_size"] = offload["min_offloaded_tensor_size"]
    if "max_inflight" in offload:
        keys["fine_grained_offloading_max_inflight_offloads"] = offload["max_inflight"]
    return keys


def recompute_of(row):
    recompute = row["recompute"]
    if recompute == "none":
        return {"recompute_granularity": "none"}
    keys = {"recompute_granularity": recompute["granularity"]}
    if "modules" in recompute:
        keys["recompute_modules"] = recompute["modules"]
    if "method" in recompute:
        keys |= {"recompute_method": recompute["method"], "recompute_num_layers": recompute["num_layers"]}
    return keys


def graphs_of(row):
    graph = row["cuda_graph"]
    if not isinstance(graph, dict):
        return {"cuda_graph_impl": "none"}
    keys = {"cuda_graph_impl": graph["impl"]}
    if "modules" in graph:
        keys["cuda_graph_modules"] = graph["modules"]
    if "warmup_steps" in graph:
        keys["cuda_graph_warmup_steps"] = graph["warmup_steps"]
    return keys


def layout_of(row):
    keys = {
        "tensor_model_parallel_size": row["tp"],
        "pipeline_model_parallel_size": row["pp"],
        "context_parallel_size": row["cp"],
        "expert_model_parallel_size": row["ep"],
        "expert_tensor_parallel_size": row["etp"],
        "data_parallel_size": row["derived"]["dp"],
        "sequence_parallel": row["tp"] > 1,
    }
    if row.get("vpp"):
        keys["num_virtual_stages_per_pipeline_rank"] = row["vpp"]
    if "pp_layout" in row:
        keys["pipeline_model_parallel_layout"] = expand(row["pp_layout"])
    if "first_stage_layers" in row:
        keys["decoder_first_pipeline_num_layers"] = row["first_stage_layers"]
        keys["decoder_last_pipeline_num_layers"] = row["last_stage_layers"]
    if row.get("account_embedding_and_loss"):
        keys |= {"account_for_embedding_in_pipeline_split": True, "account_for_loss_in_pipeline_split": True}
    if "dispatcher" in row:
        kind, backend = row["dispatcher"].split("/")
        keys |= {"moe_token_dispatcher_type": kind, "moe_flex_dispatcher_backend": backend}
    if row.get("ep_overlap"):
        keys["overlap_moe_expert_parallel_comm"] = True
    if row.get("delay_wgrad"):
        keys["delay_wgrad_compute"] = True
    return keys


def expand(layout):
    """`(t*4|)*14` -> `(tttt|)*14`: a repetition inside a repetition, which Megatron's own parser does not take."""
    inner = re.compile(r"(\w)\*(\d+)")
    return re.sub(r"\([^()]*\)", lambda group: inner.sub(lambda found: found[1] * int(found[2]), group[0]), layout)


def model_of(row, folder):
    """The shipped model; with as many prediction layers as the row has."""
    name = row["model"]
    path = ROOT / f"scenarios/models/{name}.yaml"
    model = yaml.safe_load(path.read_text())
    wanted = row.get("mtp", 0)
    if "hybrid_layer_pattern" in model:
        return str(path)
    if model.get("mtp_num_layers", 0) != wanted:
        model["mtp_num_layers"] = wanted
        path = folder / f"{name}-mtp{wanted}.yaml"
        path.write_text(yaml.safe_dump(model, sort_keys=False))
    return str(path)


def optimizer_of(row):
    keys = {"optimizer": "adam", "use_distributed_optimizer": True}
    moments = "moments bf16" in row["precision"]
    if moments:
        keys |= {"use_precision_aware_optimizer": True, "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"}
    if "optimizer_cpu_offload" in row:
        keys |= {
            "use_precision_aware_optimizer": True,
            "optimizer_cpu_offload": True,
            "optimizer_offload_fraction": row["optimizer_cpu_offload"],
        }
    return keys


def scenario_of(row, folder, without=False):
    machine = machine_of(row)
    env = {"NVTE_CPU_OFFLOAD_V1": "1", **{key: str(value) for key, value in row.get("env", {}).items()}}
    if without:
        env.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    precision = precision_of(row)
    offload = offload_of(row)
    if without:
        offload.pop("delay_offload_until_cuda_graph", None)
        precision = "mxfp8" if precision == "nvfp4" else precision
    return {
        "schema": "stowage/scenario/1",
        "model": model_of(row, folder),
        "implementation": "megatron",
        "rules": row.get("rules", "main-2026-08"),
        "env": env,
        "parallel": layout_of(row),
        "batch": {"micro_batch_size": row["mbs"], "global_batch_size": row["gbs"], "seq_length": row["seq"],
                  "routing": "balanced"},
        "precision": precision,
        "optimizer": optimizer_of(row),
        "recompute": recompute_of(row),
        "cuda_graph": {"cuda_graph_impl": "none"} if without else graphs_of(row),
        "offload": offload,
        "hardware": {"node": str(ROOT / f"scenarios/hardware/{machine}.yaml"),
                     "nodes": row["n_gpus"] // GPUS_PER_NODE[machine]},
    }


def asked_of_import(row):
    """Megatron's arguments for what has no key in the scenario language."""
    arguments = {}
    for key, (name, value) in ASKED_OF_IMPORT.items():
        if key in row and row[key]:
            arguments[name] = value
    offload = row["offload"]
    if isinstance(offload, dict) and "layer_offload_num_layers" in offload:
        arguments["cpu-offloading-num-layers"] = offload["layer_offload_num_layers"]
    if row.get("op_fuser"):
        arguments["use-transformer-engine-op-fuser"] = True
    return arguments


def reasons_of(text):
    """The features that a refusal names."""
    lines = [line.strip() for line in text.splitlines()]
    listed = [line[2:] for line in lines if line.startswith("- ")]
    errors = [re.sub(r"^.*?: error: ", "", line) for line in lines if ": error: " in line or line.startswith("error: ")]
    return listed or [error for error in errors if error] or lines[:1]


def cpu_of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Runs:
    def __init__(self, command, folder):
        self.command, self.folder = command, folder

    def simulate(self, name, scenario):
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(scenario, sort_keys=False))
        times = []
        for _ in range(3):  # the fastest: other work on the machine only adds
            before, start = cpu_of_children(), time.perf_counter()
            done = subprocess.run([self.command, "simulate", str(path), "--json"], capture_output=True, text=True)
            times.append((cpu_of_children() - before, time.perf_counter() - start))
            if times[-1][1] < 0.3 or not done.stdout:
                break
        result = {"cpu": min(cpu for cpu, _ in times), "wall": min(wall for _, wall in times)}
        if done.stdout:
            return result | {"answer": json.loads(done.stdout)}
        return result | {"refused": reasons_of(done.stderr)}

    def ask_import(self, name, arguments):
        base = {"num-layers": 4, "hidden-size": 1024, "num-attention-heads": 8, "seq-length": 1024, "vocab-size": 32000,
                "micro-batch-size": 1, "global-batch-size": 8, "max-position-embeddings": 1024, "bf16": True}
        path = self.folder / f"{name}-arguments.yaml"
        path.write_text(yaml.safe_dump(base | arguments))
        done = subprocess.run([self.command, "import", "megatron", str(path), "--world-size", "8", "--out",
                               str(self.folder / "imported.yaml")], capture_output=True, text=True)
        return reasons_of(done.stderr) if done.returncode else []


def beyond_the_language(runs, row):
    """What no key of a scenario can say."""
    refused = []
    if machine_of(row) is None:
        refused.append(f"no machine file for {row['gpu']}")
    if not isinstance(row["mbs"], int) or not isinstance(row["gbs"], int):
        refused.append("batches of varying length (`seq_length` and `micro_batch_size` are numbers)")
    arguments = asked_of_import(row)
    return refused + (runs.ask_import(row["id"], arguments) if arguments else [])


def run_once(runs, row, name, without=False):
    refused = beyond_the_language(runs, row)
    if refused:
        return {"refused": refused}
    done = runs.simulate(name, scenario_of(row, runs.folder, without))
    if "answer" not in done:
        return done
    stops = done["answer"]["predicted"].get("stops_with")
    return {"refused": [stops]} if stops else done


def separable(refused):
    return bool(refused) and all(SEPARABLE.search(reason) for reason in refused)


def run_row(runs, row, notes):
    """One result: `refused` names what stops the row as published, `answer` is a simulation of it or, where it is
    refused, of what `changed` says."""
    note = notes.get(row["id"], {})
    row = row | note.get("supplement", {})
    result = {"row": row, "note": note.get("note", ""), "refused": [], "changed": []} | run_once(runs, row, row["id"])
    if "answer" in result:
        return result
    again, row = result, row | note.get("instead", {})
    result["refused"] = list(result["refused"])
    if "instead" in note:
        result["changed"].append("with " + note["changed"])
        again = run_once(runs, row, row["id"] + "-instead")
    if separable(again.get("refused", [])):
        new = [reason for reason in again["refused"] if reason not in result["refused"]]
        result["refused"] += new
        result["changed"].append("without what is refused")
        again = run_once(runs, row, row["id"] + "-without", without=True)
    if "answer" in again:
        return result | {key: again[key] for key in ("answer", "wall", "cpu")}
    result["refused"] += [reason for reason in again.get("refused", []) if reason not in result["refused"]]
    return result | {"changed": []}


# ---- the table


def layout_text(row):
    stages = f"x{row['vpp']}" if row.get("vpp") else ""
    parts = [f"{row['n_gpus']} {row['gpu']}", f"TP{row['tp']} PP{row['pp']}{stages}"]
    parts += [f"CP{row['cp']}"] if row["cp"] > 1 else []
    parts += [f"EP{row['ep']}"] if row["ep"] > 1 else []
    return ", ".join(parts) + f", {row['mbs']} x {row['seq']}, batch {row['gbs']}, {row['precision']}"


def gib(count):
    return f"{count / GIB:.1f}"


def published_text(row):
    texts = []
    measured = row.get("measured", {})
    if "tflops_per_gpu" in measured:
        texts.append(f"{measured['tflops_per_gpu']} TFLOP/s")
    for key, value in measured.items():
        if key.startswith("mem_max"):
            texts.append(f"{gib(value)} peak ({key.rsplit('_', 1)[1]})")
    if "core_estimator" in row:
        estimate = row["core_estimator"]
        texts.append(f"core: {estimate['weights_grads_optimizer_gib']} + {estimate['activations_gib']}")
    return "; ".join(texts) or "none"


def cells(result):
    row = result["row"]
    start = [f"`{row['id']}`", row["model"], layout_text(row)]
    if "answer" not in result:
        return start + ["", "", "", "", "", published_text(row), ""]
    answer = result["answer"]
    predicted = answer["predicted"]
    fullest = max(answer["ranks"], key=lambda rank: rank["peak_reserved_bytes"])
    steady, first = (gib(fullest[part]["peak_reserved_bytes"]) for part in ("later_iterations", "first_iteration"))
    fits = "" if answer["fits"] else " (over)"
    return start + [
        f"{answer['job']['parameters'] / 1e9:.2f}",
        gib(fullest["static_bytes"]),
        f"{steady} / {first}{fits}",
        f"{predicted['step_time_us'] / 1e6:.2f} / {predicted['first_iteration_us'] / 1e6:.2f}",
        f"{predicted['tflop_per_s_per_gpu']:.0f}",
        published_text(row),
        f"{result['wall']:.2f} / {result['cpu']:.2f}",
    ]


def outcome(result):
    if not result["refused"]:
        return "runs"
    text = "refused: " + "; ".join(short(reason) for reason in result["refused"])
    return text + (". The figures are of a run " + ", ".join(result["changed"]) if result["changed"] else "")


def short(reason):
    """Without the path of the key and the phrase that every refusal has."""
    reason = re.sub(r"^[a-z_-]+(\.[a-zA-Z_0-9]+)*: ", "", reason)
    for phrase in (": known, but this version cannot plan it yet", "this version cannot plan ", "cannot be planned"):
        reason = reason.replace(phrase, "")
    return reason.strip(" .")


HEAD = ["id", "model", "layout", "parameters, 10^9", "static, GiB", "peak, GiB: steady / first",
        "step, s: steady / first", "TFLOP/s a GPU", "published", "simulate, s: wall / CPU"]


def table(results):
    lines = ["| " + " | ".join(HEAD + ["outcome and why"]) + " |", "|" + " --- |" * (len(HEAD) + 1)]
    for result in results:
        text = outcome(result) + (". " + result["note"] if result["note"] else "")
        lines.append("| " + " | ".join(cells(result) + [text.replace("|", "\\|")]) + " |")
    return "\n".join(lines)


def summary(results):
    """How many run and why the others do not."""
    refused = [result for result in results if result["refused"]]
    shown = [result for result in refused if "answer" in result]
    reasons = {}
    for result in refused:
        for reason in result["refused"]:
            reasons.setdefault(re.split(r" \(|: The|, recompute", short(reason))[0], []).append(result)
    lines = [f"{len(results)} rows: {len(results) - len(refused)} run as published, {len(refused)} are refused by "
             f"name, {len(shown)} of these run otherwise.", ""]
    for reason, rows in sorted(reasons.items(), key=lambda item: -len(item[1])):
        lines.append(f"- {len(rows)}: {reason}")
    slow = sorted((result for result in results if "answer" in result), key=lambda result: -result["cpu"])
    names = [f"`{result['row']['id']}` {result['wall']:.2f} / {result['cpu']:.2f} s" for result in slow[:4]]
    wall, cpu = (sum(result[kind] < 1 for result in slow) for kind in ("wall", "cpu"))
    lines += ["", f"Of the {len(slow)} simulations {wall} take less than a second of wall time, {cpu} of CPU time. The "
              "slowest, wall / CPU:",
              ", ".join(names) + "."]
    return "\n".join(lines)


def replaced(text, mark, content):
    return re.sub(f"<!-- {mark} -->.*?<!-- end -->", lambda _: f"<!-- {mark} -->\n{content}\n<!-- end -->", text,
                  flags=re.S)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", help="the stowage command")
    parser.add_argument("--only", help="ids that contain this")
    parser.add_argument("--keep", help="write the scenarios here instead of into a temporary folder")
    parser.add_argument("--out", help="the document whose tables are replaced; without it they go to standard output")
    options = parser.parse_args()
    rows = [row for row in yaml.safe_load(ROWS.read_text()) if row["kind"] == "config"]
    rows = [row for row in rows if not options.only or options.only in row["id"]]
    notes = yaml.safe_load(NOTES.read_text()) if NOTES.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        runs = Runs(str(pathlib.Path(options.command).resolve()), folder)
        results = [run_row(runs, row, notes) for row in rows]
    if not options.out:
        return print(summary(results) + "\n\n" + table(results))
    path = pathlib.Path(options.out)
    text = replaced(path.read_text(), "summary", summary(results))
    path.write_text(replaced(text, "table", table(results)))


if __name__ == "__main__":
    sys.exit(main())
