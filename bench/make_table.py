#!/usr/bin/env python3
# A Markdown table from the lines of `lathe bench --json` and `lathe warmup --json` in a folder: make_table.py bench/results.
# Prints what was measured and nothing else; a folder without lines gives an empty report.
import json
import pathlib
import sys


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def share(value):
    return "-" if value is None else f"{100 * value:.0f}%"


def dims(row):
    return " ".join(f"{k}={v}" for k, v in row["dims"].items()) or "-"


def warmup_gains(path):
    """(op, dims) -> default time / chosen time, of rows that were measured."""
    if not path.exists():
        return {}
    rows = [r for r in lines(path) if r["event"] == "row" and r.get("us") and r.get("default_us")]
    return {(r["op"], dims(r)): r["default_us"] / r["us"] for r in rows}


def report(folder):
    out = ["# Results", "", "Made by `scripts/report.sh`; shares are of probes of the same machine in the same round.", ""]
    machine = folder / "machine.json"
    if machine.exists():
        t = lines(machine)[-1]["target"]
        out += [f"Machine: {t['vendor']} family {t['family']} model {t['model']}, {t['isa']}, {t['cores']} cores.", ""]
    for bench in sorted(folder.glob("*.bench.jsonl")):
        name = bench.name.removesuffix(".bench.jsonl")
        events = lines(bench)
        gains = warmup_gains(folder / f"{name}.warmup.jsonl")
        out += [f"## {name}", "", "| op | dims | threads | cache | tier | us | spread | of peak | of read | of copy | gain over default |",
                "|---|---|---|---|---|---|---|---|---|---|---|"]
        for r in events:
            if r["event"] != "row":
                continue
            gain = gains.get((r["op"], dims(r)))
            out.append(f"| {r['op']} | {dims(r)} | {r['threads']} | {r['cache']} | {r['tier']} | {r['us']:.1f} | {share(r['spread'])} "
                       f"| {share(r['of_peak'])} | {share(r['of_read'])} | {share(r['of_copy'])} | {'-' if gain is None else f'{gain:.2f}x'} |")
        for s in events:
            if s["event"] == "summary":
                out += ["", f"{s['rows']} rows, {s['from_store']} from the store; compiled: {s['compiled_xbyak']} by xbyak, "
                        f"{s['compiled_llvm']} by LLVM; {s['searches']} searches; worst share of the roofline: {s['worst_row']}.", ""]
    return "\n".join(out)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit("usage: make_table.py FOLDER, of results")
    print(report(pathlib.Path(sys.argv[1])))
