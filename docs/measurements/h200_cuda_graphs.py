"""Runs the programs that measure CUDA graphs and gathers what they print into one JSON file.

    python3 h200_cuda_graphs.py FOLDER_OF_BINARIES OUT.json [part ...]      parts: memory, time, copies, framework
"""

import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def memory_cases():
    """(kind, nodes, branches, graphs): one process each."""
    cases = [("kernel64", nodes, 1, 1) for nodes in (1, 10, 24, 100, 1000, 10000)]
    cases += [("kernel64", nodes, 1, 500) for nodes in (1, 2, 5, 10, 20, 24, 50, 100, 200)]
    cases += [("kernel64", 20, 1, graphs) for graphs in (10, 50, 100, 2000)]
    cases += [(kind, 20, 1, 500) for kind in ("kernel8", "kernel256", "kernel1024", "kernel4096", "memcpy", "memset",
                                              "event", "layer")]
    cases += [(kind, 100, 1, 500) for kind in ("kernel8", "kernel256", "kernel1024", "kernel4096", "memcpy", "event")]
    cases += [("kernel64", nodes, branches, 500) for nodes in (20, 100) for branches in (2, 3)]
    cases += [(kind, 1000, 1, 1) for kind in ("memcpy", "event")]
    cases += [("kernel64", nodes, branches, 2000) for nodes in (5, 50) for branches in (1, 2, 3)]
    cases += [("kernel64", 100, 1, 2000), ("layer", 24, 1, 2000), ("memcpy", 20, 2, 2000)]
    return cases


def lines_of(command):
    begin = time.time()
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=HERE, timeout=90)
    except subprocess.TimeoutExpired as late:
        return [{"section": "failed", "command": command[-3:], "error": "90 s", "output": str(late.stdout)[-2000:]}]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode:
        rows.append({"section": "failed", "command": command[-3:], "error": done.stderr[-800:]})
    print(f"{time.time() - begin:6.1f} s {len(rows):4d} rows  {' '.join(command[-5:])}", flush=True)
    return rows


def machine():
    query = "name,driver_version,memory.total,clocks.max.sm,power.limit,pcie.link.gen.max,pcie.link.width.max"
    found = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True)
    script = "import torch; print(torch.__version__, torch.version.cuda, torch.backends.cudnn.version())"
    torch_version = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    return {"gpu": found.stdout.strip(), "torch_cuda_cudnn": torch_version.stdout.strip(), "cores": os.cpu_count(),
            "date": time.strftime("%Y-%m-%d")}


def save(result, out):
    rows = ",\n".join(
        f' "{key}": ' + (json.dumps(value) if isinstance(value, dict) else
                         "[\n  " + ",\n  ".join(json.dumps(row) for row in value) + "]")
        for key, value in result.items())
    with open(out, "w") as file:
        file.write("{\n" + rows + "\n}\n")


def main():
    binaries, out = os.path.abspath(sys.argv[1]), sys.argv[2]
    parts = sys.argv[3:] or ["memory", "time", "copies", "framework"]
    result = {"machine": machine()}
    print(result["machine"], flush=True)
    for part in parts:
        rows = result[part] = []
        if part == "memory":
            program = os.path.join(binaries, "h200_graph_memory")
            rows += lines_of([program, "kernel64", "20", "1", "500", "auto_free"])
            for case in memory_cases():
                rows += lines_of([program, *map(str, case)])
        elif part == "framework":
            for section in ("replay", "callables", "chained", "layers", "many"):
                rows += lines_of([sys.executable, "h200_graph_framework.py", section])
        else:
            rows += lines_of([os.path.join(binaries, f"h200_graph_{part}")])
        save(result, out)


if __name__ == "__main__":
    main()
