#!/usr/bin/env python3
# What ctest did not run, and why: skipped.py junit.xml. Groups the tests by the reason that they gave.
import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as tree


def reason(case):
    output = case.findtext("system-out") or ""
    found = re.search(r"Skipped\n(.+)", output)
    if found:
        return found.group(1).strip()
    skipped = case.find("skipped")
    if skipped is not None and "SKIP_RETURN_CODE" in (skipped.get("message") or "") and output.strip():
        return output.strip().splitlines()[-1]  # a script's last words
    return (skipped.get("message") if skipped is not None else None) or ("run by another test only" if case.get("status") == "disabled" else "no reason given")


def main(path):
    cases = list(tree.parse(path).getroot().iter("testcase"))
    reasons = collections.defaultdict(list)
    for case in cases:
        if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            reasons[reason(case)].append(case.get("name"))
    print(f"{len(cases)} tests, {sum(map(len, reasons.values()))} skipped")
    for why, names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        print(f"  {len(names)} skipped: {why} ({shown})")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1]).is_file():
        sys.exit("usage: skipped.py JUNIT.xml")
    main(sys.argv[1])
