"""The line of code behind every call, from a Python job and from a native one to the tools."""

import re
from pathlib import Path

import pytest

import harness

LINES = {line.strip(): (path.name, number)
         for path in harness.PYTRAIN.parent.glob("*.py")
         for number, line in enumerate(path.read_text().splitlines(), 1)}


def place(text, function):
    """'ddp.py:14 in reduce_bucket' for the line that reads so."""
    file, number = LINES[text]
    return f"{file}:{number} in {function}"


BACKWARD = place("self.comm.all_reduce(bucket)", "reduce_bucket")
LOSS = place("self.comm.all_reduce(1)", "mean_loss")
SAVE = place("self.model.comm.all_gather(4096, pynccl.FLOAT16)", "save_checkpoint")


def test_python_lines():
    with harness.Recording() as recording:
        job = recording.run_python(2, "--steps", 20)
        assert job.status == 0, job.stderr
        calls = recording.dump("--stack")
        data = [c for c in calls if c["op"] in ("AllReduce", "AllGather")]
        assert len(data) == 2 * (20 * 5 + 2)
        for call in data:
            expected = SAVE if call["op"] == "AllGather" else LOSS if call["count"] == 1 else BACKWARD
            assert call["site"] == expected
            stack = call["stack"]
            assert [f["function"] for f in stack[-3:]] == ["train", "main", "<module>"]
            assert Path(stack[0]["file"]) == harness.PYTRAIN.parent / "pynccl.py"
            for frame in stack:
                text = Path(frame["file"]).read_text().splitlines()[frame["line"] - 1]
                assert text.strip() and not text.strip().startswith(("#", '"""', "def "))
        init, = {c["site"] for c in calls if c["op"] == "CommInitRank"}
        assert init == "pytrain.py:%d in main" % LINES[
            "comm = pynccl.Communicator(pynccl.Libraries(), rank, nranks, max(BUCKETS))"][1]
        destroyed, = {c["site"] for c in calls if c["op"] == "CommDestroy"}
        assert destroyed == place("comm.close()", "main")
        text = harness.tool(harness.FR_DUMP, "--stack", recording.traces).stdout
        assert text.count("    at ") == sum(len(c.get("stack", [])) for c in calls)


@pytest.mark.parametrize("frames", [1, 3])
def test_depth(frames):
    with harness.Recording() as recording:
        job = recording.run_python(1, "--steps", 3, env={"FREC_PYFRAMES": frames})
        assert job.status == 0, job.stderr
        stacks = [c["stack"] for c in recording.dump("--stack") if c["op"] == "AllReduce"]
        assert len(stacks) == 15 and all(len(stack) == frames for stack in stacks)


def test_off():
    with harness.Recording() as recording:
        job = recording.run_python(1, "--steps", 3, env={"FREC_PYFRAMES": 0})
        assert job.status == 0, job.stderr
        calls = recording.dump("--stack")
        assert len(calls) > 15 and not [c for c in calls if "stack" in c or "site" in c]


def test_native_functions():
    """fr-train's own functions, by the symbols of the binary."""
    with harness.Recording() as recording:
        job = recording.run(2, [harness.FR_TRAIN, "--dp", 2, "--tp", 1, "--pp", 1, "--steps", 3])
        assert job.status == 0, job.stderr
        calls = [c for c in recording.dump("--stack") if c["op"] in ("AllReduce", "CommSplit", "CommInitRank")]
        assert calls
        for call in calls:
            assert re.fullmatch(r"\w[\w.]*\+0x[0-9a-f]+ in fr-train", call["site"])
            frame, = call["stack"]
            assert Path(frame["module"]) == harness.FR_TRAIN
        assert len({c["site"] for c in calls if c["op"] == "CommInitRank"}) == 1


def test_killed_before_it_was_written():
    """What only the live region knows still has its line."""
    with harness.Recording() as recording:
        job = recording.run_python(2, "--steps", 100000, timeout=2)
        assert job.status == harness.TIMED_OUT
        calls = recording.dump()
        late = {}
        for call in calls:
            late[call["rank"]] = call
        for call in late.values():
            assert call["site"] in (BACKWARD, LOSS, SAVE)
        harness.remove_live(recording)
        file_calls = recording.dump()
        assert len(file_calls) <= len(calls)
        assert all(c["site"] in (BACKWARD, LOSS, SAVE) for c in file_calls if c["op"].startswith("All"))


def test_recovered():
    with harness.Recording() as recording:
        job = recording.run_python(1, "--steps", 100000, timeout=2)
        assert job.status == harness.TIMED_OUT
        done = harness.tool(harness.FR_DUMP, "--recover", "--live-dir", recording.live, recording.traces)
        assert done.returncode == 0, done.stderr
        assert not list(recording.live.rglob("*.live"))
        assert all(c["site"] in (BACKWARD, LOSS, SAVE) for c in recording.dump() if c["op"].startswith("All"))
