"""Runs gpu-job with and without the recorder and checks what was recorded; see run. Standard library only."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

OUT = Path(sys.argv[1]).resolve()
SHIM = OUT / "recorder-inject/librecorder-inject.so"
CALLS = 50
PLUGIN = {"FREC_GPU": "plugin", "NCCL_PROFILER_PLUGIN": "STATIC_PLUGIN"}
passed = failed = 0


def check(name, ok, detail=""):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    print(f"{'ok    ' if ok else 'FAILED'} {name}" + ("" if ok else f": {detail}"), flush=True)


class Run:
    """One gpu-job, recorded unless told otherwise."""

    def __init__(self, *arguments, job="gpu-job", shim=True, until=None, **env):
        self.root = Path(tempfile.mkdtemp(prefix="gpu-check-"))
        clean = {k: v for k, v in os.environ.items() if not k.startswith("FREC_") and k != "NCCL_PROFILER_PLUGIN"}
        self.env = {**clean, "FREC_DIR": str(self.root / "traces"), "FREC_LIVE_DIR": str(self.root), **env}
        if shim:
            self.env["LD_PRELOAD"] = str(SHIM)
        job = subprocess.Popen([str(OUT / job), *map(str, arguments)], env=self.env, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
        self.output = ""
        if until:
            for line in job.stdout:
                self.output += line
                if line.strip() == until:
                    break
            time.sleep(1)
            job.kill()
        try:
            self.output += job.communicate(timeout=240)[0]
        except subprocess.TimeoutExpired:
            job.kill()
            self.output += job.communicate()[0] + "\nhangs"
        self.status = job.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.root, ignore_errors=True)

    def figure(self, name):
        found = re.search(rf"^{name} ([0-9.]+)$", self.output, re.M)
        return float(found[1]) if found else float("nan")

    def calls(self, op="AllReduce"):
        done = subprocess.run([OUT / "fr-dump/fr-dump", "--json", self.root / "traces"], capture_output=True, text=True)
        calls = [json.loads(line) for line in done.stdout.splitlines()]
        return sorted((c for c in calls if c["op"] == op), key=lambda c: c["enter_ns"])

    def states(self, op="AllReduce"):
        return Counter(c["state"] for c in self.calls(op) if not c.get("captured"))

    def why(self):
        return f"exit status {self.status}; {self.output.strip()[-400:]}"


def release():
    with Run("loop", 1, shim=False) as run:
        found = re.match(r"release (\d+) (\d+) (\d+)", run.output)
        if run.status != 0 or not found:
            sys.exit(f"gpu-job does not run without the recorder: {run.why()}")
        nccl, cuda, gpus = map(int, found.groups())
        print(f"NCCL {nccl // 10000}.{nccl // 100 % 100}.{nccl % 100}, driver for CUDA "
              f"{cuda // 1000}.{cuda % 1000 // 10}, {gpus} GPU{'s' * (gpus > 1)}")
        return gpus


def all_are(run, gpus, **states):
    found = run.states(states.pop("op", "AllReduce"))
    return found == Counter({state: n * gpus for state, n in states.items()}), f"{dict(found)}; {run.why()}"


def check_marks(gpus):
    with Run("loop", CALLS) as run:
        check("the job runs under the recorder, results are right", run.status == 0, run.why())
        check("every call completed on the GPU", *all_are(run, gpus, completed=CALLS))
        order = all(c.get("gpu_end_ns", c["enter_ns"]) >= c["enter_ns"] for c in run.calls())
        check("no call ends before it begins", order, run.why())
    with Run("loop", CALLS, FREC_GPU="off") as run:
        check("FREC_GPU=off: nothing of the GPU is known", run.status == 0 and run.states().keys() == {"enqueued"},
              dict(run.states()))


def check_plugin(gpus):
    with Run("loop", CALLS, **PLUGIN) as run:
        check("FREC_GPU=plugin: the job runs", run.status == 0, run.why())
        found = run.states()
        check("FREC_GPU=plugin: every call is recorded", sum(found.values()) == CALLS * gpus, dict(found))
        took = [c["gpu_end_ns"] - c["gpu_start_ns"] for c in run.calls() if "gpu_end_ns" in c and "gpu_start_ns" in c]
        print(f"       times of kernels: {len(took)} of {CALLS * gpus}"
              + (f", median {sorted(took)[len(took) // 2] / 1000:.1f} us" if took else ""))
    with Run("graph", CALLS, **PLUGIN) as run:
        check("FREC_GPU=plugin: graphs run, results are right", run.status == 0, run.why())
        check("FREC_GPU=plugin: launches of graphs are recorded",
              sum(run.states("GraphLaunch").values()) == CALLS * gpus, dict(run.states("GraphLaunch")))


def check_hang(gpus):
    with Run("block", CALLS, until="blocked") as run:
        check("behind a blocked stream: completed before, not reached after",
              *all_are(run, gpus, completed=CALLS, enqueued=CALLS))


def check_graphs(gpus, job):
    with Run("graph", CALLS, job=job) as run:
        check(f"{job}: graphs run under the recorder, results are right", run.status == 0, run.why())
        launches = run.calls("GraphLaunch")
        check(f"{job}: every launch is recorded and completed",
              *all_are(run, gpus, op="GraphLaunch", completed=CALLS))
        check(f"{job}: with the calls in it", {c["count"] for c in launches} == {3 * gpus} or
              {c["count"] for c in launches} == {3}, launches[:1])
        captured = [c for c in run.calls() if c.get("captured")]
        check(f"{job}: captured calls name their graph", len(captured) == 3 * gpus and
              all(c.get("graph") for c in captured), captured[:1])
    with Run("blockgraph", CALLS, job=job, until="blocked") as run:
        check(f"{job}: launches behind a blocked stream are not reached",
              *all_are(run, gpus, op="GraphLaunch", completed=CALLS, enqueued=CALLS))


def figures():
    print(f"\n{'what a call costs':<34}{'call, us':>12}{'with GPU, us':>14}")
    for name, env in [("without the recorder", None), ("FREC_GPU=off", {"FREC_GPU": "off"}),
                      ("FREC_GPU=marks", {"FREC_GPU": "marks"}), ("FREC_GPU=plugin", PLUGIN)]:
        with Run("cost", 2000, shim=env is not None, **(env or {})) as run:
            print(f"{name:<34}{run.figure('call_us'):>12.2f}{run.figure('round_us'):>14.2f}")
    print(f"\n{'two large calls on two streams':<34}{'round, us':>12}")
    one = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    for name, shim, env in [("without the recorder", False, {}), ("with it", True, {}),
                            ("1 connection, without", False, one), ("1 connection, with it", True, one),
                            ("1 connection, FREC_GPU=marks", True, {**one, "FREC_GPU": "marks"})]:
        with Run("overlap", 30, shim=shim, **env) as run:
            check(f"{name}: runs", run.status == 0, run.why())
            print(f"{name:<34}{run.figure('round_us'):>12.0f}")


def main():
    gpus = release()
    check_marks(gpus)
    check_plugin(gpus)
    check_hang(gpus)
    for job in ("gpu-job", "gpu-job-static"):
        if (OUT / job).exists():
            check_graphs(gpus, job)
    if "--no-figures" not in sys.argv:
        figures()
    print(f"\n{passed} passed, {failed} failed")
    sys.exit(failed != 0)


main()
