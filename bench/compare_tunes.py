"""Tunes a workload twice, once with 16 measurements for every search and once with a third of all these, and benches what the two stores
serve in turns with the default schedules. Prints the total gain of each over the defaults, weighted as the manifest weighs its rows, and the median
wall clock of the searches that measured 16 candidates.

  python3 bench/compare_tunes.py bench/workloads/qwen2.5-0.5b.jsonl --lathe build/release/tools/lathe --work /tmp/tunes
"""
import argparse
import json
import os
import shutil
import subprocess
import time


def lines(command, **env):
    """The JSON lines of a command; 3 means that a budget was spent."""
    run = subprocess.run(command, stdout=subprocess.PIPE, env={**os.environ, **env}, check=False)
    if run.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(command)}: exit {run.returncode}")
    return [json.loads(line) for line in run.stdout.splitlines()]


def weights(manifest):
    """(op, dims) -> weight: the line's times the hints'."""
    out = {}
    for line in open(manifest):
        task = json.loads(line)
        rows = [({}, task["weight"])]
        for symbol, d in task["dims"].items():
            rows = [({**dims, symbol: h["value"]}, w * h["weight"]) for dims, w in rows for h in d["hints"]]
        for dims, w in rows:
            out[task["name"], json.dumps(dims, sort_keys=True)] = w
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("manifest")
    parser.add_argument("--lathe", default="build/release/tools/lathe")
    parser.add_argument("--work", required=True, help="directory for the stores; emptied")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--row-ms", type=float, default=30)
    parser.add_argument("--budget", type=float, default=600, help="seconds of each tuning")
    flags = parser.parse_args()
    shutil.rmtree(flags.work, ignore_errors=True)
    store = {name: os.path.join(flags.work, name) for name in ("default", "full", "third")}
    lines([flags.lathe, "warmup", flags.manifest, "--tier", "1", "--json", "--store", store["default"]])
    measured, seconds, result = {}, {}, {}

    def tune(name, *more):
        start = time.monotonic()
        command = [flags.lathe, "tune", flags.manifest, "--json", "--budget", str(flags.budget), "--store", store[name], "--candidates", "16"]
        rows = lines(command + list(more))
        summary = rows[-1]
        seconds[name] = time.monotonic() - start
        # A search in one piece: operators of several pieces begin anew in each.
        whole = sorted(row["search_ms"] for row in rows if row["event"] == "row" and row["measured"] == 16)
        if name == "full" and whole:
            result["median_ms_of_16"] = whole[len(whole) // 2]
        measured[name] = summary["measurements"]
        print(f"{name}: {measured[name]} measurements, {seconds[name]:.0f} s", flush=True)

    tune("full", "--first", "16")
    tune("third", "--measurements", str(measured["full"] // 3))
    weight = weights(flags.manifest)
    us = {name: {} for name in store}
    for _ in range(flags.rounds):
        for name, path in store.items():
            for row in lines([flags.lathe, "bench", flags.manifest, "--json", "--store", path, "--row-ms", str(flags.row_ms)]):
                if row["event"] == "row":
                    us[name].setdefault((row["op"], json.dumps(row["dims"], sort_keys=True)), []).append(row["us"])
    total = {name: sum(weight[row] * sorted(v)[len(v) // 2] for row, v in rows.items()) for name, rows in us.items()}
    gain = {name: total["default"] - total[name] for name in ("full", "third")}
    result |= {"default_ms": total["default"] / 1e3, "full_ms": total["full"] / 1e3, "third_ms": total["third"] / 1e3,
              "full_gain": gain["full"] / total["default"], "third_gain": gain["third"] / total["default"],
              "third_of_full_gain": gain["third"] / gain["full"] if gain["full"] else None, "measurements": measured, "seconds": seconds}
    for op in sorted({op for op, _ in us["default"]}):
        by = {name: sum(weight[row] * sorted(v)[len(v) // 2] for row, v in rows.items() if row[0] == op) for name, rows in us.items()}
        print(f"{op:<16} default {by['default'] / 1e3:9.2f} ms  full {by['full'] / by['default']:.3f}  third {by['third'] / by['default']:.3f}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
