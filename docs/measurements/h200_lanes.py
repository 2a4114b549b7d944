"""Copy lanes: pinned copies in one direction that keep a copy stream busy."""

import collections
import threading
import time

import torch

MIB = 1 << 20
DIRECTIONS = {"none": (), "d2h": ("d2h",), "h2d": ("h2d",), "both": ("d2h", "h2d")}


class Lane:
    """One direction: rotates over eight device buffers (so that L2 does not serve them) and two pinned ones."""

    def __init__(self, direction, piece_mib=64):
        self.direction = direction
        self.piece_bytes = piece_mib * MIB
        self.stream = torch.cuda.Stream()
        self.device = [torch.randint(256, (self.piece_bytes,), dtype=torch.uint8, device="cuda") for _ in range(8)]
        self.host = [torch.zeros(self.piece_bytes, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
        self.count = 0
        self.in_flight = collections.deque()

    def begin(self):
        self.first = torch.cuda.Event(enable_timing=True)
        self.last = self.first
        self.first.record(self.stream)
        self.pieces = 0

    def push(self):
        device = self.device[self.count % 8]
        host = self.host[self.count % 2]
        with torch.cuda.stream(self.stream):
            if self.direction == "d2h":
                host.copy_(device, non_blocking=True)
            else:
                device.copy_(host, non_blocking=True)
            self.last = torch.cuda.Event(enable_timing=True)
            self.last.record(self.stream)
        self.in_flight.append(self.last)
        self.count += 1
        self.pieces += 1

    def top_up(self, depth=3):
        while self.in_flight and self.in_flight[0].query():
            self.in_flight.popleft()
        while len(self.in_flight) < depth:
            self.push()

    def covered_ms(self):
        """Milliseconds from begin() to the end of the last piece; call after a synchronise."""
        return self.first.elapsed_time(self.last) if self.pieces else 0.0

    def rate_gb_per_s(self):
        return self.pieces * self.piece_bytes / self.covered_ms() / 1e6 if self.pieces else 0.0


class Feeder:
    """Keeps lanes busy from a thread until stop(); for work that occupies the main thread."""

    def __init__(self, lanes):
        self.lanes = lanes
        self.running = bool(lanes)
        for lane in lanes:
            lane.begin()
            lane.top_up(4)
        if lanes:
            self.thread = threading.Thread(target=self._loop)
            self.thread.start()

    def _loop(self):
        while self.running:
            for lane in self.lanes:
                lane.top_up(4)
            time.sleep(0.0005)

    def stop(self):
        if self.lanes:
            self.running = False
            self.thread.join()


def make_lanes(piece_mib=64):
    return {direction: Lane(direction, piece_mib) for direction in ("d2h", "h2d")}


def duplex_rates(repeats=5, pieces=16):
    """GB/s of 256 MiB pieces alone and with both directions at once (only while both are running)."""
    lanes = make_lanes(256)
    results = {"d2h_alone": [], "h2d_alone": [], "d2h_with_h2d": [], "h2d_with_d2h": []}
    for _ in range(repeats):
        for name in ("d2h", "h2d"):
            _run_pieces([lanes[name]], pieces)
            results[name + "_alone"].append(round(lanes[name].rate_gb_per_s(), 2))
        marks = _run_pieces([lanes["d2h"], lanes["h2d"]], pieces)
        together = min(marks["d2h"][-1], marks["h2d"][-1])
        for name, other in (("d2h", "h2d"), ("h2d", "d2h")):
            inside = [at for at in marks[name] if at <= together]
            rate = len(inside) * 256 * MIB / inside[-1] / 1e6
            results[f"{name}_with_{other}"].append(round(rate, 2))
    return results


def _run_pieces(lanes, pieces):
    torch.cuda.synchronize()
    events = {lane.direction: [] for lane in lanes}
    for lane in lanes:
        lane.in_flight.clear()
        lane.begin()
    for _ in range(pieces):
        for lane in lanes:
            lane.push()
            events[lane.direction].append(lane.last)
    torch.cuda.synchronize()
    return {lane.direction: [lane.first.elapsed_time(event) for event in events[lane.direction]] for lane in lanes}
