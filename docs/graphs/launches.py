#!/usr/bin/env python3
"""The graph launches in a trace that `stowage simulate --trace` wrote: one line each, in milliseconds.

    python3 docs/graphs/launches.py TRACE [--rank R] [--phase forward|backward] [--first N]

start      of the graph's first node
event      when the main stream goes on: the external event, or the graph's end where it has none
copies     until its last copy has ended
next       start of the next launch
waits      how long the next launch waited for these copies alone: from the last work of the main stream before it
"""

import argparse
import json


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--phase", choices=["forward", "backward"], default="forward")
    parser.add_argument("--first", type=int, default=8, help="how many lines")
    options = parser.parse_args()
    with open(options.trace, encoding="utf-8") as file:
        events = [event for event in json.load(file)["traceEvents"] if event["pid"] == options.rank]
    print("\n".join(lines(events, options.phase)[: options.first + 1]))


def lines(events, phase):
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    slices = [event for event in events if event["ph"] == "X"]
    wholes = sorted((event for event in slices if event["cat"] == "graph"), key=lambda event: event["ts"])
    main = sorted(end(event) for event in slices if tracks[event["tid"]] == "main")
    instants = {}
    for event in events:
        if event["ph"] == "i":
            instants.setdefault(event["tid"], []).append(event["ts"])
    result = [f"{'graph':<34} {'layer':>5} {'microbatch':>10} {'start':>8} {'event':>8} {'copies':>8} {'next':>8} {'waits':>7}"]
    for graph, following in zip(wholes, wholes[1:] + [None]):
        if ("backward" in graph["name"]) != (phase == "backward"):
            continue
        inside = [e for e in slices if e["args"].get("graph") and graph["ts"] <= e["ts"] <= end(graph)]
        copies = [end(event) for event in inside if event["cat"] == "copy"]
        event = min((at for at in instants.get(graph["tid"], []) if graph["ts"] <= at <= end(graph)), default=end(graph))
        result.append(line(graph, event, max(copies, default=None), following, main))
    return result


def line(graph, event, copied, following, main):
    start_of_next = following["ts"] if following else None
    waits = None
    if following and copied is not None:
        ready = max([at for at in main if at <= start_of_next] + [event])
        waits = max(0.0, start_of_next - ready) if copied > ready else 0.0
    args = graph["args"]
    return (f"{graph['name']:<34} {args['layer']:>5} {args['microbatch']:>10} {ms(graph['ts'])} {ms(event)} {ms(copied)} "
            f"{ms(start_of_next)} {ms(waits, 7)}")


def end(event):
    return event["ts"] + event["dur"]


def ms(microseconds, width=8):
    return f"{'-':>{width}}" if microseconds is None else f"{microseconds / 1000:>{width}.3f}"


if __name__ == "__main__":
    main()
