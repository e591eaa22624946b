"""Runs check_python.py with every CPython of this machine: run_interpreters.py PROBE.so [CHECK…].

CALLSITE_PYTHONS names further commands, separated by ':'. One interpreter for each distinct version.
"""
import glob
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SKIPPED = 77  # what meson takes for a skipped test
QUESTION = "import sys; print(sys.implementation.name, sys.hexversion, sys.version.replace('\\n', ' '))"


def candidates():
    yield from (command for command in os.environ.get("CALLSITE_PYTHONS", "").split(":") if command)
    yield sys.executable
    yield shutil.which("python3") or ""
    for pattern in ("/usr/bin/python3.*[0-9]", "/usr/local/bin/python3.*[0-9]", "~/.pyenv/versions/*/bin/python3"):
        yield from sorted(glob.glob(os.path.expanduser(pattern)))


def interpreters():
    known = {}
    for command in candidates():
        try:
            answer = subprocess.run([*command.split(), "-c", QUESTION], capture_output=True, text=True, timeout=60)
        except (OSError, IndexError, subprocess.TimeoutExpired):
            continue
        name, _, rest = answer.stdout.strip().partition(" ")
        number, _, version = rest.partition(" ")
        # ctypes is missing where an interpreter was built without libffi.
        if name != "cpython" or int(number) < 0x3080000 or version in known:
            continue
        if subprocess.run([*command.split(), "-c", "import ctypes"], capture_output=True).returncode == 0:
            known[version] = command
    return known


def main():
    found = interpreters()
    failed = []
    for version, command in found.items():
        print("== %s: %s" % (command, version), flush=True)
        environment = dict(os.environ, CALLSITE_TEST_PYTHON=command)
        check = [*command.split(), os.path.join(HERE, "check_python.py"), *sys.argv[1:]]
        if subprocess.run(check, env=environment).returncode != 0:
            failed.append(command)
    print("%d interpreters, %d failed %s" % (len(found), len(failed), " ".join(failed)))
    return 1 if failed else 0 if found else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
