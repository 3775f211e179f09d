"""Benches two builds of Lathe turn by turn, the old one twice as control, and prints how much faster the new one is: per row the median over
rounds of old time over new time, and the same of the two old ones. What differs by no more than the control spreads has not changed.

  python3 bench/compare_builds.py bench/workloads/*.jsonl --old ../before/build/release/tools/lathe --new build/release/tools/lathe

Every build runs from an empty store of its own: default Schedules, unless --store-old and --store-new name warmed-up ones.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile


def bench(lathe, manifest, store, row_ms, shape):
    """(op, dims) -> us."""
    command = [lathe, "bench", manifest, "--json", "--store", store, "--row-ms", str(row_ms)] + (["--shape", shape] if shape else [])
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    if run.returncode != 0 and not rows:
        raise SystemExit(f"{' '.join(command)}: exit {run.returncode}: {run.stderr.strip()}")
    return {(r["op"], json.dumps(r["dims"], sort_keys=True)): r["us"] for r in rows if r["event"] == "row"}


def median(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def geomean(values):
    values = list(values)
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifests", nargs="+")
    parser.add_argument("--old", required=True, help="the lathe program before")
    parser.add_argument("--new", required=True, help="the lathe program after")
    parser.add_argument("--rounds", type=int, default=7, choices=range(1, 1000), metavar="N")
    parser.add_argument("--row-ms", type=float, default=5)
    parser.add_argument("--filter", default="", help="only lines whose name contains this")
    parser.add_argument("--shape", default="", help="as lathe bench has it: M=8")
    parser.add_argument("--store-old")
    parser.add_argument("--store-new")
    parser.add_argument("--json", action="store_true", help="one object per row")
    flags = parser.parse_args()
    slower = rows = 0
    with tempfile.TemporaryDirectory() as work:
        sides = {"old": (flags.old, flags.store_old), "control": (flags.old, flags.store_old), "new": (flags.new, flags.store_new)}
        for manifest in flags.manifests:
            lines = [line for line in open(manifest) if line.strip() and flags.filter in json.loads(line)["name"]]
            if not lines:
                continue
            chosen = os.path.join(work, os.path.basename(manifest))
            with open(chosen, "w") as out:
                out.writelines(lines)
            us = {side: [] for side in sides}
            for turn in range(flags.rounds):
                order = list(sides)[turn % 3:] + list(sides)[:turn % 3]
                for side in order:
                    lathe, store = sides[side]
                    print(f"{os.path.basename(manifest)}: round {turn + 1} of {flags.rounds}, {side}", file=sys.stderr)
                    us[side].append(bench(lathe, chosen, store or os.path.join(work, side), flags.row_ms, flags.shape))
            common = [key for key in us["old"][0] if all(key in one for side in sides for one in us[side])]
            if not common:
                raise SystemExit(f"{manifest}: no row that every run has")
            gains, controls = {}, {}
            for key in common:
                gains[key] = median([o[key] / n[key] for o, n in zip(us["old"], us["new"])])
                controls[key] = [o[key] / c[key] for o, c in zip(us["old"], us["control"])]
            for key in common:
                # The control's own rounds say how far a ratio of equal builds lies from 1.
                spread = median([abs(math.log(c)) for c in controls[key]])
                worse = math.log(gains[key]) < -max(0.03, 2 * spread)
                slower += worse
                rows += 1
                row = {"op": key[0], "dims": json.loads(key[1]), "old_us": median([one[key] for one in us["old"]]),
                       "new_us": median([one[key] for one in us["new"]]), "gain": gains[key], "control": median(controls[key]), "spread": spread}
                if flags.json:
                    print(json.dumps(row))
                else:
                    dims = " ".join(f"{k}={v}" for k, v in row["dims"].items())
                    print(f"{key[0]:<28} {dims:<16} {row['old_us']:>10.2f} {row['new_us']:>10.2f} us  {gains[key]:.3f}  control {row['control']:.3f} "
                          f"+-{spread:.3f}{'  SLOWER' if worse else ''}")
            missing = set().union(*(one for side in sides for one in us[side])) - set(common)
            summary = {"manifest": manifest, "rows": len(common), "gain": geomean(gains.values()), "control": geomean(median(c) for c in controls.values()),
                       "missing": sorted(map(str, missing))}
            print(json.dumps(summary) if flags.json else f"{manifest}: {len(common)} rows, geometric mean {summary['gain']:.3f}, control {summary['control']:.3f}"
                  + (f", not in every run: {summary['missing']}" if missing else ""))
            sys.stdout.flush()
    print(json.dumps({"rows": rows, "slower": slower}) if flags.json else f"{rows} rows, {slower} slower beyond the control")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
