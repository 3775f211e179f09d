#!/usr/bin/env python3
"""Measures Lathe against other libraries, row by row of a workload: compare.py SHAPES [options]

SHAPES is a manifest or the name of one in bench/workloads. Lathe runs as a host runs it, through the C library of the release build, sealed, with
the Schedules that a warm-up stored (`lathe warmup SHAPES`). Each participant is a process of its own, pinned to the same processors, and works only
while it holds the token. Results are compared before anything is timed; probes of the machine before and after a block of rounds say whether it
stood still. docs/measuring.md has the protocol. scripts/peers.sh makes the environment that the peers live in.

Prints a line a row and a summary; with --json one JSON object a line. Status 1: results differ. Status 2: something is missing or unknown.
"""
import argparse
import fnmatch
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench/compare"))
from rows import STRONGEST, BadManifest, find_manifest, rows_of  # noqa: E402

PEERS = ("onnxruntime", "torch", "openblas", "ggml")
PYTHON_CALL_US = 100   # a call shorter than that is compared through C only: one from Python costs 2 to 8 us
SAMPLE_US = {"hot": 300, "cold": 2000}
BEST_OF = 3
BLOCK = 3              # rounds between two probes
TRIES = 3              # as many blocks again, at most, while the machine moves
STILL = 0.05           # a probe that moves further says that it did
# Of the mean square, by what is rounded: sums in another order; 16-bit operands; activations to bytes, on both sides.
AGREES = {"exact": 1e-9, "narrow": 1e-4, "bytes": 2e-3}


def fail(text):
    print(f"compare: {text}", file=sys.stderr)
    sys.exit(2)


class Participant:
    """The other end of worker.py."""

    def __init__(self, python, name, settings):
        self.name = name
        self.process = subprocess.Popen([python, ROOT / "bench/compare/worker.py", name, json.dumps(settings)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=None if settings["verbose"] else subprocess.DEVNULL, text=True)
        self.missing = self.answer().get("error")

    def answer(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": f"its process ended with status {self.process.wait()}"}

    def ask(self, do, **order):
        if self.missing:
            return {"error": self.missing}
        try:
            self.process.stdin.write(json.dumps({"do": do, **order}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self.answer()
        if "error" in answer and self.process.poll() is not None:
            self.missing = answer["error"]
        return answer

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def cpu_facts():
    """Its name and vendor, and the features that peers choose kernels by."""
    facts = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    return {"name": facts.get("model name", "?"), "flags": set(facts.get("flags", "").split())}


def cache_bytes():
    """Of the last level, as this processor shares it; getconf counts those of all processors of some machines."""
    try:
        size = pathlib.Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text().strip()
        return int(size.rstrip("KM")) << {"K": 10, "M": 20}.get(size[-1], 0)
    except (OSError, ValueError):
        return 32 << 20


def agreement(row):
    if "quantised_activations" in row.line.get("allowed", []) and row.main_node()["op"] == "quantized_matmul":
        return AGREES["bytes"]
    return AGREES["narrow"] if any(row.tensors[n]["dtype"] in ("bf16", "f16") for n in row.inputs) else AGREES["exact"]


class Comparison:
    def __init__(self, flags, python, settings):
        self.flags = flags
        self.cache = cache_bytes()
        self.lathe = Participant(python, "lathe", settings)
        if self.lathe.missing:
            fail(f"{flags.library}: {self.lathe.missing}")
        self.probe = Participant(python, "probe", settings)
        self.peers = {name: Participant(python, name, settings) for name in flags.peers}
        self.random = random.Random(flags.seed)
        self.folder = tempfile.TemporaryDirectory()

    def end(self):
        for participant in [self.lathe, self.probe, *self.peers.values()]:
            participant.end()
        self.folder.cleanup()

    def prepare(self, row):
        """Those that can do the row, Lathe first, with what they said; and why the others cannot."""
        ready, missing = {}, {}
        copies = row.copies(self.cache)
        for participant in [self.lathe, *self.peers.values()]:
            name = participant.name
            out = str(pathlib.Path(self.folder.name) / f"{name}.npy")
            said = participant.ask("prepare", line=row.line, sizes=row.sizes, threads=row.threads, copies=copies, out=out)
            if "error" in said:
                missing[name] = said["error"]
                if participant is self.lathe:
                    return {}, missing, []
                continue
            ready[name] = said
        differ = []
        for name in list(ready)[1:]:
            paths = [str(pathlib.Path(self.folder.name) / f"{who}.npy") for who in ("lathe", name)]
            nmse = self.probe.ask("agree", first=paths[0], second=paths[1]).get("nmse", math.inf)
            ready[name]["nmse"] = nmse
            if not nmse <= agreement(row):
                differ.append(f"{name}: NMSE {nmse:.2g}, expected at most {agreement(row):.0e}")
                del ready[name]
        return ready, missing, differ

    def still(self, before, after):
        return all(abs(after[key] / before[key] - 1) <= STILL for key in before)

    def rounds(self, row, ready):
        """Times by participant, of the blocks in which the machine stood still; none if it never did."""
        who = {name: self.lathe if name == "lathe" else self.peers[name] for name in ready}
        reps = {name: max(1, math.ceil(SAMPLE_US[row.cache] / max(said["us"], 0.01))) for name, said in ready.items()}
        times = {name: [] for name in ready}
        blocks = math.ceil(self.flags.rounds / BLOCK)
        before = self.probe.ask("probe")
        for _ in range(TRIES * blocks):
            if len(times["lathe"]) >= blocks * BLOCK:
                break
            block = {name: [] for name in ready}
            for _ in range(BLOCK):
                order = list(ready)
                start = self.random.randrange(len(order))
                for name in order[start:] + order[:start]:
                    said = who[name].ask("sample", calls=reps[name], best_of=BEST_OF)
                    if "error" in said:
                        return None, f"{name}: {said['error']}"
                    block[name].append(said["us"])
            after = self.probe.ask("probe")
            if self.still(before, after):
                for name, samples in block.items():
                    times[name] += samples
            before = after
        return (times, None) if times["lathe"] else (None, "the machine moved in every block")

    def measure(self, row):
        family, strongest = row.family(), STRONGEST[row.family()]
        out = {"event": "row", "op": row.name, "dims": row.sizes, "family": family, "threads": row.threads, "cache": row.cache,
               "copies": row.copies(self.cache), "us": None, "peers": {}, "ways": {}, "missing": {}, "vs_best_peer": None, "best_peer": None,
               "not_judged": None, "differs": []}
        ready, out["missing"], out["differs"] = self.prepare(row)
        if not ready:
            out["not_judged"] = f"lathe: {out['missing']['lathe']}"
        elif len(ready) == 1:
            out["not_judged"] = f"no peer ran; {strongest} is its family's strongest"
        else:
            times, why = self.rounds(row, ready)
            if times is None:
                out["not_judged"] = why
            else:
                self.judge(row, ready, times, strongest, out)
        for participant in [self.lathe, *self.peers.values()]:
            participant.ask("forget")
        return out

    def judge(self, row, ready, times, strongest, out):
        out["us"] = statistics.median(times["lathe"])
        out["rounds"] = len(times["lathe"])
        for name in list(ready)[1:]:
            out["peers"][name] = statistics.median(times[name])
            out["ways"][name] = ready[name]["way"]
        ratios = {name: statistics.median(t / o for t, o in zip(times[name], times["lathe"])) for name in out["peers"]}
        short = [n for n in ratios if not ready[n]["through_c"] and min(out["us"], out["peers"][n]) < PYTHON_CALL_US]
        fair = {name: ratio for name, ratio in ratios.items() if name not in short}
        if strongest not in ratios:
            out["not_judged"] = f"{strongest}, its family's strongest, did not run: {out['missing'].get(strongest, 'it was not asked')}"
        elif strongest in short:
            out["not_judged"] = f"under {PYTHON_CALL_US} us, of which a call of {strongest} from Python costs 2 to 8"
        else:
            out["best_peer"] = min(fair, key=fair.get)
            out["vs_best_peer"] = fair[out["best_peer"]]


def text_of(row, line):
    peers = ", ".join(f"{name} {us:.1f} ({line['ways'][name]})" for name, us in line["peers"].items())
    us = f"{line['us']:10.1f}" if line["us"] else f"{'-':>10}"
    verdict = f"{line['vs_best_peer']:6.2f} of {line['best_peer']}" if line["vs_best_peer"] else f"not judged: {line['not_judged']}"
    return "\n".join([f"{row.text():<36} {us} us  {peers}  {verdict}"] + [f"  results differ: {text}" for text in line["differs"]])


def summary(lines):
    judged = [line for line in lines if line["vs_best_peer"]]
    ratios = [line["vs_best_peer"] for line in judged]
    worst = min(judged, key=lambda line: line["vs_best_peer"], default=None)
    return {"event": "summary", "rows": len(lines), "peers_run": sorted({name for line in lines for name in line["peers"]}),
            "not_judged": len(lines) - len(judged), "geomean_vs_best_peer": math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None,
            "worst_vs_best_peer": min(ratios, default=None),
            "worst_row": worst and " ".join([worst["op"], *(f"{s}={v}" for s, v in worst["dims"].items())]),
            "differ": sum(bool(line["differs"]) for line in lines)}


def parse():
    default = os.environ.get("LATHE_CACHE_DIR", str(ROOT / "build/store"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shapes", metavar="SHAPES", help="a manifest, or the name of one in bench/workloads")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--threads", type=int, default=0, help="instead of the workload's")
    parser.add_argument("--peers", default=",".join(PEERS), help="which, separated by commas; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=9, help="samples of each participant; default: %(default)s")
    parser.add_argument("--filter", default="*", metavar="PATTERN", help="operators with such names only, several separated by commas")
    parser.add_argument("--defaults", action="store_true", help="Lathe's default Schedules where the store has none")
    parser.add_argument("--store", default=default, help="of the warm-up; default: %(default)s")
    parser.add_argument("--library", default=str(ROOT / "build/release/runtime/liblathe.so"), help="default: %(default)s")
    parser.add_argument("--environment", default=str(ROOT / "build/peers"), help="made by scripts/peers.sh; default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--verbose", action="store_true", help="what the participants print on standard error")
    return parser.parse_args()


def main():
    flags = parse()
    flags.peers = [name for name in flags.peers.split(",") if name]
    for name in flags.peers:
        if name not in PEERS:
            fail(f"--peers: {name}, expected some of {','.join(PEERS)}")
    if flags.rounds < 1 or flags.threads < 0:
        fail("--rounds: expected at least 1" if flags.rounds < 1 else f"--threads: {flags.threads}, expected 1 or more")
    patterns = flags.filter.split(",")
    try:
        path = find_manifest(flags.shapes, ROOT / "bench/workloads")
        rows = rows_of(path, flags.threads, lambda name: any(fnmatch.fnmatch(name, p) for p in patterns))
    except BadManifest as error:
        fail(error)
    if not rows:
        fail(f"{path}: no operator is named like {flags.filter}")
    if not pathlib.Path(flags.library).is_file():
        fail(f"{flags.library} is missing: cmake --preset release && cmake --build --preset release")
    python = pathlib.Path(flags.environment) / "bin/python"
    if not python.is_file():
        fail(f"{python} is missing: scripts/peers.sh makes it")
    threads = max(row.threads for row in rows)
    cpus = sorted(os.sched_getaffinity(0))[:threads]
    if len(cpus) < threads:
        fail(f"{threads} threads: this process may use {len(cpus)} processors")
    cpu = cpu_facts()
    settings = {"library": flags.library, "store": flags.store, "defaults": flags.defaults, "threads": threads, "cpus": cpus,
                "isa": sorted(f for f in cpu["flags"] if f.startswith(("avx", "amx"))), "read_bytes": 64 << 20, "verbose": flags.verbose,
                "ggml": str(pathlib.Path(flags.environment) / "ggml/bin")}
    settings["isa"] = " ".join(settings["isa"])
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(threads)
    comparison = Comparison(flags, python, settings)
    lines = []
    if flags.json:
        print(json.dumps({"event": "machine", "cpu": cpu["name"], "isa": settings["isa"],
                          "missing": {n: p.missing for n, p in comparison.peers.items() if p.missing}}), flush=True)
    for row in rows:
        lines.append(comparison.measure(row))
        print(json.dumps(lines[-1]) if flags.json else text_of(row, lines[-1]), flush=True)
    comparison.end()
    said = summary(lines)
    if flags.json:
        print(json.dumps(said))
    else:
        number = {key: "-" if said[key] is None else f"{said[key]:.3f}" for key in ("geomean_vs_best_peer", "worst_vs_best_peer")}
        print(f"{said['rows']} rows, {said['not_judged']} not judged; peers: {', '.join(said['peers_run']) or 'none'}; time of the best peer over "
              f"Lathe's: geomean {number['geomean_vs_best_peer']}, worst {number['worst_vs_best_peer']} ({said['worst_row'] or '-'})")
        for name, peer in comparison.peers.items():
            if peer.missing:
                print(f"{name} did not run: {peer.missing}")
    return 1 if said["differ"] else 0


if __name__ == "__main__":
    sys.exit(main())
