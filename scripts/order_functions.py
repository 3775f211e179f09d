#!/usr/bin/env python3
"""Writes runtime/first_resolve.ld: the functions that a first resolve calls, for the linker to put side by side.

  scripts/order_functions.py build/release > /tmp/first_resolve.ld && mv /tmp/first_resolve.ld runtime/

BUILD is a release build with -DLATHE_BENCH=ON -DLATHE_ORDER_FUNCTIONS=OFF. Each family of bench/serving_latency is
resolved under callgrind (valgrind). The functions that ran are written as patterns of mangled names: a prefix stands
for all names below it where those that ran are at least half of their bytes. A list that is out of date costs page
faults, nothing else.
"""
import bisect
import re
import subprocess
import sys
import tempfile

FAMILIES = "matmul scores softmax layernorm rmsnorm add gelu rope transpose linear_relu gated".split()
SHARE = 0.5


def functions(library):
    """[(address, size, name)], by address."""
    out = []
    for line in subprocess.check_output(["nm", "-S", "--defined-only", library], text=True).splitlines():
        fields = line.split()
        if len(fields) == 4 and fields[2] in "tTwWV":
            name = re.sub(r"\.(isra|part|constprop|cold).*", "", fields[3])
            out.append((int(fields[0], 16), int(fields[1], 16), name))
    return sorted(out)


def addresses_run(profile):
    """Addresses of the library's instructions in a profile of callgrind, relative to its start."""
    objects, inside, address, after_calls = {}, False, 0, False
    for line in open(profile):
        named = re.match(r"ob=\((\d+)\)(?: (.*))?$", line) or re.match(r"cob=\((\d+)\)(?: (.*))?$", line)
        if named:
            if named[2]:
                objects[named[1]] = named[2]
            if line.startswith("ob="):
                inside = "liblathe.so" in objects[named[1]]
        elif line.startswith("calls="):
            after_calls = True
        elif cost := re.match(r"(0x[0-9a-f]+|\+\d+|-\d+|\*) \S+ \d+", line):
            at = cost[1]
            address = address if at == "*" else int(at, 16) if at.startswith("0x") else address + int(at)
            if inside and not after_calls:
                yield address
            after_calls = False


def run(build, family):
    with tempfile.TemporaryDirectory() as store, tempfile.NamedTemporaryFile() as profile:
        program = f"{build}/bench/serving_latency/serving_latency"
        subprocess.run(["valgrind", "--tool=callgrind", "--dump-instr=yes", "--toggle-collect=lathe_resolve",
                        f"--callgrind-out-file={profile.name}", program, "--first", family, store],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return set(addresses_run(profile.name))


def patterns(size, ran):
    """Prefixes of names, and names. size: bytes by name; ran: names."""
    names = sorted(size)
    out = []

    def visit(first, last, depth):
        group = names[first:last]
        hot = sum(size[n] for n in group if n in ran)
        if hot == 0:
            return
        if hot >= SHARE * sum(size[n] for n in group):
            out.append(names[first][:depth] + "*")
            return
        if len(names[first]) == depth:
            if names[first] in ran:
                out.append(names[first])
            first += 1
        while first < last:
            end = first
            while end < last and names[end][depth] == names[first][depth]:
                end += 1
            visit(first, end, depth + 1)
            first = end

    sys.setrecursionlimit(10000)
    visit(0, len(names), 0)
    return out


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    symbols = functions(f"{sys.argv[1]}/runtime/liblathe.so")
    starts = [s[0] for s in symbols]
    size, ran = {}, set()
    for _, length, name in symbols:
        size[name] = max(length, size.get(name, 0))
    for family in FAMILIES:
        for address in run(sys.argv[1], family):
            at, length, _ = symbols[bisect.bisect_right(starts, address) - 1]
            if address < at + length:
                first, last = bisect.bisect_left(starts, at), bisect.bisect_right(starts, at)
                ran.update(name for _, _, name in symbols[first:last])
    print("/* Functions that first resolves call, side by side: scripts/order_functions.py writes this file. */")
    print("SECTIONS {\n  .text.first_resolve : {")
    for pattern in patterns(size, ran):
        clones = "" if pattern.endswith("*") else f" .text.{pattern}.*"
        print(f"    *(.text.{pattern}{clones})")
    print("  }\n} INSERT BEFORE .text;")


main()
