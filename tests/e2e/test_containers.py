"""Ranks in PID namespaces of their own, as in containers that share the host's name and memory."""

import subprocess
import threading
import time

import pytest

import harness

UNSHARE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
HEALTHY = """
init world
repeat 5 { allreduce world 1024 f32 sum; sync }
meet paused
sleep 4500
allreduce world 1024 f32 sum
sync
"""
STUCK = """
init world
repeat 5 { allreduce world 1024 f32 sum; sync }
rank 1: sleep 60000
allreduce world 1024 f32 sum
sync
"""


@pytest.fixture(autouse=True)
def may_unshare():
    if subprocess.run([*UNSHARE, "true"], capture_output=True).returncode != 0:
        pytest.skip("no PID namespaces here")


def run(recording, script, timeout):
    (recording.root / "job.script").write_text(script)
    return recording.run(3, [*UNSHARE, harness.FR_SCRIPT, recording.root / "job.script"], timeout=timeout)


def test_running_seen_from_outside():
    """The job computes for longer than the patience with the dead: nobody is dead, nobody is late."""
    with harness.Recording() as recording:
        job = threading.Thread(target=run, args=(recording, HEALTHY, 20))
        job.start()
        try:
            while not list(recording.root.glob("launch.*/meet.paused*.2")):
                assert job.is_alive()
            job.join(3.5)
            for place in ([], ["--no-live"]):
                status, document = harness.analyze(*place, recording.traces)
                assert (status, document["verdict"]["type"]) == (0, "healthy"), document["verdict"]["summary"]
                assert document["ranks"]["dead"] == []
        finally:
            job.join()


def test_stuck():
    with harness.Recording() as recording:
        assert run(recording, STUCK, 4.3).status == harness.TIMED_OUT
        time.sleep(3.5)  # only their silence tells that they are gone
        for _ in ("live", "files"):
            status, document = recording.analyze()
            assert status == 1
            assert document["verdict"]["type"] == "stuck_outside_nccl"
            assert document["verdict"]["culprit_ranks"] == [1]
            harness.remove_live(recording)
