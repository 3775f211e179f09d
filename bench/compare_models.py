#!/usr/bin/env python3
"""Measures decoder_loop against llama-bench on one GGUF file, in turn: compare_models.py FILE [options]

Both read a prompt of 128 ids and generate 64 more with one thread on the processor that this script runs on (taskset chooses it). llama-bench
generates behind an empty cache, decoder_loop behind the prompt, which costs it a little more. Prints the median of the rounds and Lathe's share of
llama-bench's; with --json one object. Status 2: a program or the file is missing, or one of them fails (llama-bench's signal is told).
scripts/peers.sh ggml builds llama-bench; the release preset with -DLATHE_BENCH=ON builds decoder_loop.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMPT, TOKENS = 128, 64


def output_of(command):
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    except OSError as problem:
        sys.exit(f"compare_models: {command[0]}: {problem.strerror}")
    if done.returncode != 0:
        why = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        sys.exit(f"compare_models: {command[0]}: {why}: {done.stderr.strip()[-300:]}")
    return done.stdout


def llama_bench(program, file):
    rows = json.loads(output_of([program, "-t", 1, "-m", file, "-p", PROMPT, "-n", TOKENS, "-r", 1, "-o", "json"]))
    return {"prefill" if row["n_prompt"] else "decode": row["avg_ts"] for row in rows}


def decoder_loop(program, file, prompts, options):
    lines = output_of([program, file, "--prompt-ids", prompts, "--tokens", TOKENS + 1, "--json", *options]).splitlines()
    # The first prompt makes what is not made yet.
    rows = [json.loads(line) for line in lines][1:]
    return {what: statistics.median(row[f"{what}_tokens_s"] for row in rows) for what in ("prefill", "decode")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--llama-bench", type=pathlib.Path, default=ROOT / "build/peers/ggml/bin/llama-bench")
    parser.add_argument("--decoder-loop", type=pathlib.Path, default=ROOT / "build/release/bench/decoder_loop/decoder_loop")
    parser.add_argument("--prompt-ids", type=pathlib.Path, default=ROOT / "bench/decoder_loop/plain_text_ids.txt")
    parser.add_argument("--exact", action="store_true", help="decoder_loop with activations in f32")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    for path in (asked.file, asked.llama_bench, asked.decoder_loop, asked.prompt_ids):
        if not path.is_file():
            sys.exit(f"compare_models: {path}: expected a file")
    rounds = {"lathe": [], "llama_bench": []}
    for _ in range(asked.rounds):
        rounds["llama_bench"].append(llama_bench(asked.llama_bench, asked.file))
        rounds["lathe"].append(decoder_loop(asked.decoder_loop, asked.file, asked.prompt_ids, [] if asked.exact else ["--quantised"]))
    row = {"file": asked.file.name, "rounds": asked.rounds, "quantised": not asked.exact}
    for what in ("prefill", "decode"):
        own, other = ([r[what] for r in rounds[name]] for name in ("lathe", "llama_bench"))
        row[f"{what}_tokens_s"] = round(statistics.median(own), 1)
        row[f"{what}_tokens_s_llama_bench"] = round(statistics.median(other), 1)
        row[f"{what}_over_llama_bench"] = round(statistics.median(a / b for a, b in zip(own, other, strict=True)), 3)
        row[f"{what}_rounds"] = [round(a / b, 3) for a, b in zip(own, other, strict=True)]
    if asked.json:
        print(json.dumps(row))
    else:
        for key, value in row.items():
            print(f"{key:<30} {value}")


if __name__ == "__main__":
    try:
        main()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            sys.exit(2)
        raise
