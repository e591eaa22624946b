"""The recorder changes nothing: same results, same output, same exit status, same death."""

import subprocess

import pytest

import harness

SMALL = ["--steps", "20"]
JOBS = {
    "data-parallel": (4, [*SMALL]),
    "three-dimensional": (8, [*SMALL, "--dp", "2", "--tp", "2", "--pp", "2"]),
    "wrong-results": (4, [*SMALL, "--fault", "redop:rank=2,at=50,to=max"]),
    "exit-status": (2, [*SMALL, "--fault", "exit:at=30,status=7"]),
    "sigkill": (2, [*SMALL, "--fault", "kill:at=30,sig=9"]),
    "sigsegv": (2, [*SMALL, "--fault", "crash:at=30"]),
    "sigterm": (2, [*SMALL, "--fault", "kill:at=30,sig=15"]),
    "sigabrt": (2, [*SMALL, "--fault", "kill:at=30,sig=6"]),
}


def without_launcher(text):
    return sorted(line for line in text.splitlines() if not line.startswith("launch: "))


@pytest.mark.sanitize
@pytest.mark.parametrize("name", JOBS)
def test_same_job_with_and_without(name):
    ranks, arguments = JOBS[name]
    ended = []
    for shim in (False, True):
        with harness.Recording() as recording:
            job = recording.run(ranks, [harness.FR_TRAIN, *arguments], shim=shim, timeout=30)
            ended.append((job.status, job.ranks, job.results, without_launcher(job.stderr)))
            assert bool(list(recording.traces.glob("*.frec"))) == shim
    assert ended[0] == ended[1]
    assert len(ended[0][1]) == ranks


@pytest.mark.sanitize
def test_every_call_is_recorded_once():
    with harness.Recording() as recording:
        job = recording.run(4, [harness.FR_TRAIN, "--steps", "50", "--dp", "2", "--pp", "2",
                                "--count-file", recording.root / "count"])
        assert job.status == 0, job.stderr
        calls = recording.dump()
        for rank in range(4):
            counted = harness.read_count(recording.root / f"count.{rank}")
            recorded = [c for c in calls if c["rank"] == rank and c["op"] in harness.COUNTED_OPS]
            assert len(recorded) == counted.finished == counted.entered
        assert recording.analyze()[1]["verdict"]["type"] == "healthy"


@pytest.mark.parametrize("command", [["true"], ["sh", "-c", "echo hello | cat"], ["python3", "-c", "print(1)"]])
def test_inert_without_nccl(command):
    with harness.Recording() as recording:
        outputs = [subprocess.run(command, env=recording.env(**extra), capture_output=True)
                   for extra in ({}, {"LD_PRELOAD": str(harness.SHIM)})]
        assert [(o.returncode, o.stdout, o.stderr) for o in outputs[:1]] == \
               [(o.returncode, o.stdout, o.stderr) for o in outputs[1:]]
        assert not list(recording.traces.iterdir())
        assert not list(recording.live.rglob("*.live"))


def test_nothing_left_after_a_clean_end():
    with harness.Recording() as recording:
        assert recording.run(2, [harness.FR_TRAIN, *SMALL]).status == 0
        assert len(list(recording.traces.glob("*.frec"))) == 2
        assert not list(recording.live.rglob("*.live"))
