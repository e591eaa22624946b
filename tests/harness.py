"""Runs real jobs on the host lab and the real tools on what they left behind.

The build to test is FR_BUILD (default: build/ in the source tree). FR_PRELOAD_FIRST names
libraries that must come before the recorder, such as a sanitizer's runtime.
"""

import contextlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import jsonschema

SOURCE = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("FR_BUILD", SOURCE / "build")).resolve()
LAUNCH = BUILD / "samples/jobs/launch"
FR_TRAIN = BUILD / "samples/jobs/fr-train"
FR_SCRIPT = BUILD / "samples/jobs/fr-script"
PYTRAIN = SOURCE / "samples/jobs/pytrain/pytrain.py"
FR_DUMP = BUILD / "fr-dump/fr-dump"
FR_ANALYZE = BUILD / "fr-analyze/fr-analyze"
ELSEWHERE = BUILD / "samples/jobs/libelsewhere.so"  # another host, another clock (samples/jobs/elsewhere.c)
NCCL_2_32 = BUILD / "samples/hostgpu/nccl-2.32"
SHIM = BUILD / "recorder-inject/librecorder-inject.so"

TIMED_OUT = 124  # launch's exit status after --timeout


@dataclass
class Job:
    """A job that has ended: launch's exit status and what it said of each rank."""

    status: int
    stdout: str
    stderr: str
    ranks: dict = field(default_factory=dict)  # rank -> exit status, -N for signal N
    killed: set = field(default_factory=set)  # ranks that the launcher had to kill

    @property
    def results(self):
        """What the ranks printed, in an order that does not depend on scheduling."""
        return sorted(self.stdout.splitlines())


def _read_ranks(job):
    for line in job.stderr.splitlines():
        if m := re.match(r"launch: rank (\d+): exit status (\d+)", line):
            job.ranks[int(m[1])] = int(m[2])
        elif m := re.match(r"launch: rank (\d+): (killed by the launcher with|died of) signal (\d+)", line):
            job.ranks[int(m[1])] = -int(m[3])
            if m[2].startswith("killed"):
                job.killed.add(int(m[1]))
    return job


class Recording:
    """A place for one job's traces and live region; a short-lived one in shared memory."""

    def __init__(self, keep=None):
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.root = Path(keep or tempfile.mkdtemp(prefix="frec-test-", dir=base))
        self.traces = self.root / "traces"
        self.live = self.root / "live"
        self.traces.mkdir()
        self.live.mkdir()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.root, ignore_errors=True)

    def env(self, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("FREC_", "HOSTGPU_", "SLURM_"))}
        env.update(FREC_DIR=str(self.traces), FREC_LIVE_DIR=str(self.live), TMPDIR=str(self.root))
        env.update({k: str(v) for k, v in more.items()})
        return env

    def run(self, ranks, argv, *, shim=True, timeout=60.0, options=(), env=None, rank_env=None, preload=()):
        """Launches argv on `ranks` processes; those alive after `timeout` seconds are killed."""
        command = [LAUNCH, "-n", ranks, "-t", timeout, *options]
        first = os.environ.get("FR_PRELOAD_FIRST", "")
        preload = ":".join(filter(None, [first, *map(str, preload), str(SHIM) if shim else ""]))
        if preload:
            command += ["--shim", preload]
        for rank, variables in (rank_env or {}).items():
            for name, value in variables.items():
                command += ["--env", f"{rank}:{name}={value}"]
        done = subprocess.run([str(c) for c in [*command, "--", *argv]], env=self.env(**(env or {})),
                              capture_output=True, text=True, timeout=timeout + 60, cwd=self.root)
        return _read_ranks(Job(done.returncode, done.stdout, done.stderr))

    def run_script(self, ranks, text, **options):
        script = self.root / "job.script"
        script.write_text(text)
        return self.run(ranks, [FR_SCRIPT, script], **options)

    def run_python(self, ranks, *arguments, interpreter=sys.executable, **options):
        """samples/jobs/pytrain; it opens the libraries by name, so somebody must say where they are."""
        lab = [] if "LD_LIBRARY_PATH" in os.environ else ["--lib", BUILD / "samples/hostgpu"]
        return self.run(ranks, [interpreter, "-B", PYTRAIN, *arguments], options=lab, **options)

    def analyze(self, *options):
        return analyze(self.traces, *options)

    def dump(self, *options):
        """All calls as fr-dump --json gives them."""
        done = tool(FR_DUMP, "--json", *options, self.traces)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@contextlib.contextmanager
def running(recording, ranks, argv, *, seconds=120, options=()):
    """A job in the background; ended at the latest with the block."""
    preload = ":".join(filter(None, [os.environ.get("FR_PRELOAD_FIRST", ""), str(SHIM)]))
    command = [LAUNCH, "-n", ranks, "-t", seconds, "--shim", preload, *options, "--", *argv]
    job = subprocess.Popen([str(c) for c in command], env=recording.env(), cwd=recording.root,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield job
    finally:
        job.terminate()
        try:
            job.wait(timeout=10)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()


def tool(program, *args, env=None, **options):
    """Runs a tool; NO_COLOR and no terminal, so the output is plain."""
    environment = {**os.environ, "NO_COLOR": "1", **(env or {})}
    return subprocess.run([str(program), *map(str, args)], env=environment, capture_output=True, text=True,
                          timeout=120, **options)


def analyze(*args):
    """fr-analyze's exit status and JSON document."""
    done = tool(FR_ANALYZE, "--json", *args)
    assert done.returncode in (0, 1, 3), f"exit status {done.returncode}: {done.stderr}"
    document = json.loads(done.stdout)
    jsonschema.validate(document, json.loads((SOURCE / "docs/fr-verdict-1.schema.json").read_text()))
    return done.returncode, document


# Calls that the sample jobs count themselves (NCCL_COUNTED in samples/jobs).
COUNTED_OPS = {"AllReduce", "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AlltoAll", "Gather", "Scatter",
               "Send", "Recv", "CommInitRank", "CommInitRankConfig", "CommSplit"}
COUNT_RING = 16384


@dataclass
class Count:
    """struct job_count of samples/jobs/job.h."""

    entered: int
    finished: int
    ring: tuple

    def finished_at(self, call):
        """When the call (from 0) returned; the oldest time still known if that is forgotten."""
        return self.ring[max(call, self.finished - COUNT_RING) % COUNT_RING]

    @property
    def last_ns(self):
        return self.ring[(self.finished - 1) % COUNT_RING] if self.finished else 0


def read_count(path):
    if not Path(path).exists():  # killed before it called anything
        return Count(0, 0, ())
    entered, finished, *ring = struct.unpack(f"<{2 + COUNT_RING}Q", Path(path).read_bytes())
    return Count(entered, finished, tuple(ring))


def remove_live(recording):
    for path in recording.live.rglob("*.live"):
        path.unlink()


def note(text):
    """A figure worth keeping: appended to FR_NOTES when that is set."""
    if path := os.environ.get("FR_NOTES"):
        with open(path, "a") as file:
            file.write(text + "\n")
