#!/usr/bin/env python3
"""Adds up what tests/run did: prints "N passed, N failed" and exits with 1 when anything failed.

Counts cmocka's own tests where an executable reports them, pytest's cases, and a step (a build,
the style check) that failed without a result of its own.
"""

import json
import re
import sys
import xml.etree.ElementTree as xml
from pathlib import Path


def count_meson(path):
    passed = failed = skipped = 0
    for line in path.read_text().splitlines():
        test = json.loads(line)
        output = test.get("stdout", "") + test.get("stderr", "")
        ok = sum(map(int, re.findall(r"\[  PASSED  \] (\d+) test", output)))
        bad = sum(map(int, re.findall(r"\[  FAILED  \] (\d+) test", output)))
        if test["result"] == "SKIP":
            skipped += 1
        elif test["result"] == "OK":
            passed += max(ok, 1)
        else:  # also a crash or a timeout, which reports nothing
            passed += ok
            failed += max(bad, 1)
    return passed, failed, skipped


def count_pytest(path):
    passed = failed = skipped = 0
    for case in xml.parse(path).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None:  # expected failures too
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def main():
    results = Path(sys.argv[1])
    total = [0, 0, 0]
    for step in sorted(results.glob("*.step")):
        name, ok = step.stem, step.read_text().strip() == "ok"
        counts = (0, 0, 0)
        if (file := results / f"{name}.json").exists():
            counts = count_meson(file)
        elif (file := results / f"{name}.xml").exists():
            counts = count_pytest(file)
        elif ok:
            counts = (int(name.startswith(("style", "build", "fuzz"))), 0, 0)
        if not ok and counts[1] == 0:
            counts = (counts[0], 1, counts[2])
        total = [a + b for a, b in zip(total, counts)]
    if total[0] + total[1] == 0:
        total[1] = 1
    print(f"{total[0]} passed, {total[1]} failed" + (f", {total[2]} skipped" if total[2] else ""))
    return total[1] > 0


if __name__ == "__main__":
    sys.exit(main())
