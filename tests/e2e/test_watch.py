"""fr-analyze --watch beside a live job: each fault once and in time, no false alarm, an end."""

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import jsonschema
import pytest

import harness

STALL = 2
IN_TIME = 5  # seconds after the stall time in which the verdict must be there
SCHEMA = json.loads((harness.SOURCE / "docs/fr-verdict-1.schema.json").read_text())
TRAIN = [harness.FR_TRAIN, "--dp", 2, "--tp", 2, "--step-us", 20000]
SIMPLE = [harness.FR_TRAIN, "--dp", 4, "--step-us", 20000]

# Every call of the command leaves a directory with what it was given.
HOOK = """d=$(mktemp -d "$HOOK_DIR/call-XXXXXX") && cat >"$d/input" && env | grep '^FREC_[VSC]' | sort >"$d/env" """


class Watch:
    """A running fr-analyze --watch, and when each of its lines came."""

    def __init__(self, recording, *options, json_lines=True, interval=1):
        command = [harness.FR_ANALYZE, "--watch", "--interval", interval, "--stall-sec", STALL, "--live-dir",
                   recording.live, *(["--json"] if json_lines else []), *options, recording.traces]
        self.lines, self.times, self.json_lines = [], [], json_lines
        self.process = subprocess.Popen(
            [str(c) for c in command], env={**os.environ, "NO_COLOR": "1", "HOOK_DIR": str(recording.root)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            self.times.append(time.time())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.reader.join()

    def wait_for_line(self, number, timeout=40):
        deadline = time.monotonic() + timeout
        while len(self.lines) < number:
            assert time.monotonic() < deadline, f"no line {number}: {self.lines}"
            assert self.process.poll() is None or len(self.lines) >= number, "the watch has ended"
            time.sleep(0.02)
        return self.lines[number - 1]

    def finish(self, timeout=40):
        status = self.process.wait(timeout)
        self.reader.join()
        return status

    @property
    def documents(self):
        documents = [json.loads(line) for line in self.lines]
        for document in documents:
            jsonschema.validate(document, SCHEMA)
        return documents

    @property
    def events(self):
        return [document["watch"]["event"] for document in self.documents]


class Launch:
    """A job in the background; ends with the block."""

    def __init__(self, recording, ranks, argv, timeout=60):
        preload = ":".join(filter(None, [os.environ.get("FR_PRELOAD_FIRST"), str(harness.SHIM)]))
        command = [harness.LAUNCH, "-q", "-n", ranks, "-t", timeout, "--shim", preload, "--", *argv]
        self.process = subprocess.Popen([str(c) for c in command], env=recording.env(), cwd=recording.root,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        return self.process

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(20)


def hook_calls(recording):
    """(document, environment) of every call of the command."""
    calls = []
    for path in sorted(recording.root.glob("call-*")):
        env = dict(line.split("=", 1) for line in (path / "env").read_text().splitlines())
        calls.append((json.loads((path / "input").read_text()), env))
    return calls


def longest_pause_of(recording, rank):
    """When the rank's longest pause between two calls began (seconds since the epoch)."""
    calls = [c for c in recording.dump() if c["rank"] == rank]
    pauses = [(after["enter_ns"] - before["exit_ns"], before["exit_ns"]) for before, after in zip(calls, calls[1:])]
    return max(pauses)[1] / 1e9


def test_a_fault_that_passes():
    with harness.Recording() as recording, Watch(recording, "--on-fault", HOOK) as watch:
        assert watch.process.stderr.readline().endswith("no trace (*.frec) found; waiting\n")
        fault = ["--steps", 150, "--fault", f"sleep:rank=2,at=120,ms={(STALL + IN_TIME) * 1000}"]
        with Launch(recording, 4, TRAIN + fault) as job:
            assert job.wait(60) == 0
        assert watch.finish() == 0
        assert watch.events == ["fault", "healthy", "ended"]
        found, again, last = watch.documents
        assert (found["verdict"]["type"], found["verdict"]["culprit_ranks"]) == ("stuck_outside_nccl", [2])
        assert found["verdict"]["confidence"] == "certain"
        assert again["status"] == last["status"] == "healthy"
        late = watch.times[0] - longest_pause_of(recording, 2) - STALL
        harness.note(f"watch: the verdict came {late:.1f} s after the stall time")
        assert -0.5 < late <= IN_TIME
        [(document, env)] = hook_calls(recording)
        assert document == found
        assert env == {"FREC_VERDICT": "stuck_outside_nccl", "FREC_STATUS": "fault", "FREC_CULPRIT_RANKS": "2",
                       "FREC_CULPRIT_HOSTS": os.uname().nodename}
        assert watch.process.stderr.read() == ""


@pytest.mark.sanitize
def test_a_hang_that_ends_by_kill():
    with harness.Recording() as recording, Watch(recording, "--on-fault", HOOK) as watch:
        with Launch(recording, 4, [*SIMPLE, "--steps", 100000, "--fault", "skip:rank=1,at=100"]):
            watch.wait_for_line(1)
            time.sleep(2 * STALL)  # nothing more is said while it hangs
            assert watch.events == ["fault"]
        assert watch.finish() == 1
        assert watch.events == ["fault", "ended"]
        for document in watch.documents:
            assert (document["verdict"]["type"], document["verdict"]["culprit_ranks"]) == ("op_mismatch", [1])
        assert len(hook_calls(recording)) == 1


def test_a_crash_between_two_looks():
    with harness.Recording() as recording, Watch(recording, "--on-fault", HOOK, interval=2) as watch:
        script = recording.root / "job.script"
        script.write_text("init world\nrepeat 5 { allreduce world 8 f32 sum; sync }\nrank 1: crash\n"
                          "rank 0: watch world 200\nrank 0: quit 1\n")
        with Launch(recording, 2, [harness.FR_SCRIPT, script]) as job:
            job.wait(30)
        assert watch.finish() == 1
        assert watch.documents[-1]["verdict"]["type"] == "process_dead"
        assert watch.documents[-1]["verdict"]["culprit_ranks"] == [1]
        assert watch.events[-1] == "ended"
        deadline = time.monotonic() + 10  # the command may outlive the watch
        while not hook_calls_complete(recording, 1) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(hook_calls(recording)) == 1


def hook_calls_complete(recording, number):
    return len([p for p in recording.root.glob("call-*/env") if "FREC_VERDICT" in p.read_text()]) == number


def test_a_slow_rank_is_no_fault():
    with harness.Recording() as recording, Watch(recording, "--on-fault", HOOK) as watch:
        script = recording.root / "job.script"
        script.write_text("init world\nrepeat 180 { sleep 10; rank 6: sleep 20; allreduce world 64 f32 sum; sync }\n"
                          "destroy world\n")
        with Launch(recording, 8, [harness.FR_SCRIPT, script]) as job:
            assert job.wait(60) == 0
        assert watch.finish() == 0
        assert watch.events == ["ended"]
        assert watch.documents[0]["status"] == "healthy"
        assert hook_calls(recording) == []


def test_a_stuck_command_holds_up_nothing():
    stuck = 'echo $$ >"$HOOK_DIR/pid"; exec sleep 300'
    with harness.Recording() as recording, Watch(recording, "--on-fault", stuck, json_lines=False) as watch:
        pid = recording.root / "pid"
        try:
            fault = ["--steps", 110, "--fault", f"sleep:rank=3,at=100,ms={(STALL + 6) * 1000}"]
            with Launch(recording, 4, TRAIN + fault) as job:
                assert job.wait(60) == 0
            assert watch.finish() == 0
            os.kill(int(pid.read_text()), 0)  # it still runs
            headings = [line[25:].strip() for line in watch.lines if line[:2] == "20"]
            assert headings == ["fault found", "healthy again: the job makes progress", "the job has ended"]
            assert sum("hanging ranks: [3]" in line for line in watch.lines) == 1
        finally:
            if pid.exists():
                os.kill(int(pid.read_text()), signal.SIGKILL)


def test_commands_run_one_at_a_time():
    slow = 'echo "$FREC_CULPRIT_RANKS" >>"$HOOK_DIR/calls"; while [ ! -e "$HOOK_DIR/go" ]; do sleep 0.05; done'
    with harness.Recording() as recording, Watch(recording, "--on-fault", slow) as watch:
        script, calls = recording.root / "job.script", recording.root / "calls"
        steps = "repeat 20 { allreduce world 8 f32 sum; sync; sleep 20 }\n"
        pause = f"sleep {(STALL + 8) * 1000}\n"
        script.write_text(f"init world\n{steps}rank 1: {pause}{steps}rank 2: {pause}{steps}sleep 3000\n")
        try:
            with Launch(recording, 3, [harness.FR_SCRIPT, script]):
                watch.wait_for_line(3)
                assert watch.events == ["fault", "healthy", "fault"]
                assert calls.read_text() == "1\n"
                (recording.root / "go").touch()
                deadline = time.monotonic() + 5
                while calls.read_text() != "1\n2\n" and time.monotonic() < deadline:
                    time.sleep(0.05)
                assert calls.read_text() == "1\n2\n"
        finally:
            (recording.root / "go").touch()


def test_signals_end_it_with_the_last_status():
    with harness.Recording() as recording, Watch(recording, "--on-fault", "exit 5") as watch:
        with Launch(recording, 4, TRAIN + ["--steps", 100000, "--fault", "sleep:rank=0,at=80"]):
            watch.wait_for_line(1)
            time.sleep(0.5)
            watch.process.send_signal(signal.SIGTERM)
            assert watch.finish(10) == 1
        assert "--on-fault: the command ended with exit status 5\n" in watch.process.stderr.read()


def test_nothing_to_watch(tmp_path):
    missing = tmp_path / "later"
    process = subprocess.Popen([harness.FR_ANALYZE, "--watch", "--interval", "1", "--no-live", missing],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(1.5)
    missing.mkdir()
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (2, "")
    assert err == (f"fr-analyze: {missing}: not there yet; waiting\n"
                   f"fr-analyze: {missing}: no trace appeared\n")


@pytest.mark.parametrize("options, message", [
    (["--watch", "--interval", "0"], "--interval: no number of seconds: 0"),
    (["--watch", "--interval", "x"], "--interval: no number of seconds: x"),
    (["--interval", "3"], "--interval needs --watch"),
    (["--on-fault", "true"], "--on-fault needs --watch"),
    (["--watch", "--tui"], "--watch and --tui exclude each other"),
])
def test_wrong_options(options, message, tmp_path):
    done = harness.tool(harness.FR_ANALYZE, *options, tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"fr-analyze: {message}"


def test_documented():
    page = Path(harness.SOURCE / "docs/man/fr-analyze.1").read_text().replace("\\-", "-")
    for word in ("--watch", "--interval", "--on-fault", "FREC_CULPRIT_RANKS", "FREC_CULPRIT_HOSTS", "FREC_VERDICT",
                 "FREC_STATUS"):
        assert word in page, word


def read_bytes(process):
    """What a process has read from files so far."""
    lines = Path(f"/proc/{process.pid}/io").read_text().splitlines()
    return int(lines[0].removeprefix("rchar: "))


def test_heartbeats_are_not_read_again():
    """Files of other hosts grow by heartbeats while their job stands still: that needs no new analysis."""
    with harness.Recording() as recording, Watch(recording, "--no-live") as watch:
        with Launch(recording, 4, [*SIMPLE, "--steps", 100000, "--fault", "skip:rank=1,at=100"]):
            watch.wait_for_line(1)
            time.sleep(STALL + 7)
            traces = list(recording.traces.glob("*.frec"))
            size, before = sum(path.stat().st_size for path in traces), read_bytes(watch.process)
            time.sleep(6)
            assert sum(path.stat().st_size for path in traces) > size, "no heartbeats"
            assert read_bytes(watch.process) - before < size
            assert watch.events == ["fault"]
        assert watch.finish(90) == 1
        assert watch.events == ["fault", "ended"]
