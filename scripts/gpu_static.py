#!/usr/bin/env python3
# What a run of tests/gpu covered, from googletest's JSON: gpu_static.py REPORT [--json].
import json
import sys

# Properties that tests record, summed up. Null: no test recorded it.
SUMS = ["kernels", "spills", "warnings", "opcode_failures", "emulated", "conflicts", "planted", "caught"]


def main():
    cases = [c for s in json.load(open(sys.argv[1]))["testsuites"] for c in s["testsuite"] if c.get("status") == "RUN"]
    failed = [c for c in cases if c.get("failures")]
    skipped = [c["skipped"][0]["message"].strip().splitlines()[-1] for c in cases if c.get("skipped")]

    def total(name):
        values = [int(c[name]) for c in cases if name in c]
        return sum(values) if values else None

    served = [c for c in cases if "compiles_second" in c]  # tests with a second process
    identities = [int(c["identities_equal"]) for c in cases if "identities_equal" in c]
    out = {"state": "failed" if failed else "ok", "nvrtc": next((c["nvrtc"] for c in cases if "nvrtc" in c), None)}
    out.update({name: total(name) for name in SUMS[:5]})
    # Of tests that run kernels; those of the real compiler and of records do not.
    out["emulator_failures"] = sum("emulated" in c or c["classname"].startswith(("Device", "Emulat")) for c in failed)
    out.update({name: total(name) for name in SUMS[5:8]})
    out["fake_served"] = sum(not c.get("failures") for c in served)
    out["fake_compiles_second"] = total("compiles_second")
    out["identities_equal"] = bool(identities) and all(identities)
    out["skipped"] = len(skipped)
    if sys.argv[2:] == ["--json"]:
        print(json.dumps(out))
    else:
        for key, value in out.items():
            print(f"{key}: {'not there yet' if value is None else value}")
        for reason in sorted(set(skipped)):
            print(f"skipped: {reason}")
    for c in failed:
        print(f'failed: {c["classname"]}.{c["name"]}', file=sys.stderr)
    return 1 if failed else 0


sys.exit(main())
