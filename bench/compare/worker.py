#!/usr/bin/env python3
"""A participant of compare.py in a process of its own: `worker.py NAME SETTINGS`. Works only when it holds the token, a line of JSON on its
standard input, and hands it back with a line on its standard output.

NAME is lathe, probe, or a peer, that is a module peer_NAME with `Peer(settings)`, whose prepare(row, copies) returns functions of
(copy) that run the row's next call on that copy's operands, by name, and result() the last result as an f32 array.
"""
import importlib
import json
import os
import sys
import time
import traceback

import numpy as np

from operands import Unsupported
from rows import Row


class Participant:
    def __init__(self, name, settings):
        module, of = ("lathe_library", "Lathe") if name == "lathe" else (f"peer_{name}", "Peer")
        self.peer = getattr(importlib.import_module(module), of)(settings)
        self.calls, self.copies, self.at = None, 1, 0

    def prepare(self, line, sizes, threads, copies, out):
        self.calls, self.copies, self.at = None, copies, 0
        row = Row(line, sizes, threads)
        ways = self.peer.prepare(row, copies)
        best = None
        for way, call in ways.items():
            us = min(self.timed(call, max(1, min(copies, 3))) for _ in range(3))
            if best is None or us < best[0]:
                best = us, way
        us, way = best
        self.calls = ways[way]
        self.calls(0)
        np.save(out, self.peer.result(way))
        return {"us": us, "way": way, "version": self.peer.version, "through_c": self.peer.through_c}

    def timed(self, call, count):
        begin = time.perf_counter_ns()
        for _ in range(count):
            call(self.at)
            self.at = self.at + 1 if self.at + 1 < self.copies else 0
        return (time.perf_counter_ns() - begin) / 1000 / count

    def sample(self, calls, best_of):
        self.timed(self.calls, 1)  # what others left in the caches is not this one's fault
        return {"us": min(self.timed(self.calls, calls) for _ in range(best_of))}

    def forget(self):
        self.calls = None
        self.peer.forget()
        return {}


class Probe:
    """What the machine does at the moment, by numpy alone; and whether two results agree."""

    def __init__(self, settings):
        rng = np.random.default_rng(1)
        self.a = rng.standard_normal((384, 384), np.float32)
        self.big = rng.standard_normal(settings["read_bytes"] // 4, np.float32)

    def probe(self):
        def best(of, work):
            least = float("inf")
            for _ in range(of):
                begin = time.perf_counter_ns()
                work()
                least = min(least, time.perf_counter_ns() - begin)
            return least / 1000
        return {"arithmetic_us": best(8, lambda: self.a @ self.a), "read_us": best(3, lambda: self.big.max())}

    def agree(self, first, second):
        """The mean square of the difference over that of the values; and what is not there in only one of them counts as all of it."""
        a, b = (np.load(path).astype(np.float64) for path in (first, second))
        if a.shape != b.shape:
            return {"nmse": float("inf"), "shapes": [list(a.shape), list(b.shape)]}
        if not (np.isfinite(a) == np.isfinite(b)).all():
            return {"nmse": float("inf")}
        return {"nmse": float(((a - b) ** 2).sum() / max((b ** 2).sum(), 1e-300))}


def main():
    name, settings = sys.argv[1], json.loads(sys.argv[2])
    os.sched_setaffinity(0, settings["cpus"])
    # Lines of the protocol go where standard output went; what libraries print goes to standard error.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer):
        channel.write(json.dumps(answer) + "\n")
        channel.flush()

    try:
        own = Probe(settings) if name == "probe" else Participant(name, settings)
    except Exception as error:  # whatever keeps a peer from running is what is told of it
        say({"error": f"{type(error).__name__}: {error}".splitlines()[0]})
        return
    say({})
    for line in sys.stdin:
        order = json.loads(line)
        try:
            say(getattr(own, order.pop("do"))(**order))
        except Exception as error:
            if settings["verbose"]:
                traceback.print_exc()
            text = str(error) if isinstance(error, Unsupported) else f"{type(error).__name__}: {error}"
            say({"error": text.splitlines()[0][:200]})


if __name__ == "__main__":
    main()
