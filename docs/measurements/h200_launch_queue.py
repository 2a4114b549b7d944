"""How many calls a stream takes behind a kernel that does not end, before the host has to wait: by kind of call.

    python3 docs/measurements/h200_launch_queue.py OUT.json
"""

import json
import sys
import time

import torch

SPIN_CYCLES = 400_000_000  # 0.2 s and more
STUCK_S = 0.002
MOST = 6000


def accepted(calls, prepare):
    """How many of `calls`, taken in turn, are accepted before one takes longer than STUCK_S."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call(stream)
        torch.cuda.synchronize()
        prepare()
        torch.cuda._sleep(SPIN_CYCLES)
        for number in range(MOST):
            begin = time.perf_counter()
            calls[number % len(calls)](stream)
            if time.perf_counter() - begin > STUCK_S:
                break
    torch.cuda.synchronize()
    return number


def main(path):
    small = torch.zeros(1024, device="cuda")
    large = torch.zeros(8 << 20, device="cuda")
    host = torch.zeros(8 << 20, pin_memory=True)
    other = torch.cuda.Stream()
    pending = torch.cuda.Event()

    def kernel(_):
        small.add_(1)

    def memset(_):
        small.zero_()

    def copy(_):
        host.copy_(large, non_blocking=True)

    def record(stream):
        torch.cuda.Event().record(stream)

    def wait(stream):
        stream.wait_event(pending)

    def wait_done(stream):
        stream.wait_event(done)

    def prepare():
        with torch.cuda.stream(other):
            torch.cuda._sleep(2 * SPIN_CYCLES)
            pending.record(other)

    done = torch.cuda.Event()
    done.record()
    kinds = {"kernel": [kernel], "memset": [memset], "copy": [copy], "record": [record], "wait, pending": [wait],
             "wait, done": [wait_done], "kernel and memset": [kernel, memset], "kernel and record": [kernel, record],
             "kernel and wait": [kernel, wait], "kernel, record, wait": [kernel, record, wait]}
    result = {}
    for name, calls in kinds.items():
        result[name] = accepted(calls, prepare)
    with open(path, "w") as file:
        json.dump({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "accepted": result}, file)
        file.write("\n")
    print(result)


if __name__ == "__main__":
    main(sys.argv[1])
