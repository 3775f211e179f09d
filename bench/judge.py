#!/usr/bin/env python3
# Judges the lines of `lathe bench --json` by a table of least values: judge.py TARGETS BENCH [MACHINE]
# TARGETS: `targets`, of which the first with a pattern that a row's operator matches counts: `key` of the row has to be
# at least `least`; of_peak with `of: ceiling` is taken over the row's `ceiling`. `why_not`: the row is not judged.
# Nor is one by an of_peak that does not name the instruction, `peak_of`.
# MACHINE: what scripts/report.sh writes of the machine, which has one of the levels `isa`. On another family than
# `machine` names, a row whose other limit binds, or is so near that their ratio is at most `near`, needs `roofline` of
# the larger of of_peak / ceiling and of_read instead.
# BENCH may hold several runs, one after another: the median of each number of a row counts then.
# Prints a line a row and a summary; ends with 1 if a row misses its value.
import fnmatch
import json
import pathlib
import statistics
import sys


def text_of(path):
    try:
        return pathlib.Path(path).read_text()
    except OSError as error:
        sys.exit(f"judge: {path}: {error.strerror}")


def parse(path, text):
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        sys.exit(f"judge: {path}: {error}, expected JSON")


def lines(path):
    return [parse(path, line) for line in text_of(path).splitlines() if line.strip()]


def medians(runs):
    """One row an operator, with the median of each number that its runs have."""
    by_name = {}
    for row in runs:
        by_name.setdefault(row["op"], []).append(row)
    out = []
    for rows in by_name.values():
        row = dict(rows[-1])
        for key, value in row.items():
            if isinstance(value, (int, float)):
                row[key] = statistics.median(r[key] for r in rows if r.get(key) is not None)
        out.append(row)
    return out


def beside(row, target, rows):
    """(verdict, what it says) of a target with `over`."""
    prefix, other = target["over"]
    reference = rows.get(row["op"].replace(prefix, other, 1))
    if reference is None:
        return "not judged", f"no row {row['op'].replace(prefix, other, 1)}"
    key = target["key"]
    if key == "of_peak" and row.get("peak_of") != reference.get("peak_of", ""):
        return "not judged", f"its peak_of is not that of {reference['op']}"
    if key == "speed":
        value = target.get("times", 1) * reference["us"] / row["us"]
    else:
        value = (row.get(key) or 0) / (reference.get(key) or float("inf"))
    return "met" if value >= target["least"] else "missed", f"{key} {value:.2f} of {reference['op']}, expected {target['least']:.2f}"


def judge(row, table, machine, rows):
    """(verdict, what it says): met, missed or not judged."""
    target = next((t for t in table["targets"] if any(fnmatch.fnmatch(row["op"], p) for p in t["rows"])), None)
    if target is None:
        return "not judged", "no target names it"
    if "why_not" in target:
        return "not judged", target["why_not"]
    asked = table["machine"]
    if machine is not None and machine["isa"] not in asked["isa"]:
        return "not judged", f"the figures are of {' and '.join(asked['isa'])}, this machine has {machine['isa']}"
    if "over" in target:
        return beside(row, target, rows)
    shares = {key: row[key] for key in {"of_peak", "of_read", target["key"]} if row.get(key) is not None}
    if "of_peak" in shares and not row.get("peak_of"):
        del shares["of_peak"]
        if target["key"] == "of_peak":
            return "not judged", "the row has no peak_of"
    limits = dict(shares)
    if "of_peak" in shares:
        limits["of_peak"] /= row.get("ceiling", 1)
    of_ceiling = target.get("of") == "ceiling"
    value = (limits if of_ceiling else shares).get(target["key"])
    missing = target["key"] if value is None else "ceiling" if of_ceiling and "ceiling" not in row else None
    if missing:
        return "not judged", f"the row has no {missing}"
    of = f" of the ceiling {row['ceiling']:.2f}" if of_ceiling else ""
    text = f"{target['key']} {value:.2f}{of}, expected {target['least']:.2f}"
    if value >= target["least"]:
        return "met", text
    other = {"of_peak": "of_read", "of_read": "of_peak"}.get(target["key"])
    elsewhere = machine is not None and machine["family"] != asked["family"]
    if elsewhere and limits.get(other, 0) * table["near"] > limits[target["key"]]:
        roofline = max(limits[target["key"]], limits[other])
        text = f"{text}; {other} {limits[other]:.2f} binds or is near, {table['roofline']:.2f} expected of the larger"
        return "met" if roofline >= table["roofline"] else "missed", text
    return "missed", text


def main(targets, bench, machine=None):
    table = parse(targets, text_of(targets))
    target = lines(machine)[-1]["target"] if machine else None
    counts = {"met": 0, "missed": 0, "not judged": 0}
    rows = medians(row for row in lines(bench) if row["event"] == "row")
    by_name = {row["op"]: row for row in rows}
    for row in rows:
        verdict, text = judge(row, table, target, by_name)
        counts[verdict] += 1
        print(f"{verdict:<11} {row['op']:<28} {text}")
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 1 if counts["missed"] else 0


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("judge: expected TARGETS BENCH [MACHINE]")
    sys.exit(main(*sys.argv[1:]))
