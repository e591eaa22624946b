"""When recording is impossible the job does not notice, and the loss is told."""

import contextlib
import os
import shutil
import subprocess

import pytest

import harness

RANKS = 4
ARGUMENTS = ["--steps", "400", "--dp", "2", "--tp", "2", "--verify-every", "10"]
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")


@pytest.fixture(scope="module")
def plain():
    """The job's results without a recorder."""
    with harness.Recording() as recording:
        job = recording.run(RANKS, [harness.FR_TRAIN, *ARGUMENTS], shim=False)
        assert job.status == 0, job.stderr
        return job


def run(recording, **env):
    return recording.run(RANKS, [harness.FR_TRAIN, *ARGUMENTS], env=env)


def assert_same(job, plain):
    assert (job.status, job.results) == (plain.status, plain.results), job.stderr


@contextlib.contextmanager
def mounted(path, options):
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@root_only
def test_full_disk(plain):
    with harness.Recording() as recording, mounted(recording.traces, "size=32k"):
        job = recording.run(RANKS, [harness.FR_TRAIN, *ARGUMENTS, "--count-file", recording.root / "count"])
        assert_same(job, plain)
        counted = sum(harness.read_count(recording.root / f"count.{rank}").finished for rank in range(RANKS))

        def recorded():
            return sum(c["op"] in harness.COUNTED_OPS for c in recording.dump())

        # What did not fit into the file stays in the live region, which then outlives a clean end.
        assert recorded() == counted
        assert recording.analyze()[1]["verdict"]["type"] == "healthy"
        harness.remove_live(recording)
        assert recorded() < counted, "the disk was not full"
        # The files alone: their headers, which need no room, tell how much is missing and how the job ended.
        _, document = recording.analyze()
        assert document["verdict"]["type"] in ("healthy", "inconclusive", "trace_missing")
        assert document["verdict"]["culprit_ranks"] == []
        assert document["input"]["dropped_ops"] >= counted - recorded()
        verified = harness.tool(harness.FR_DUMP, "--verify", recording.traces)
        assert verified.returncode == 0
        assert "could not be written to its end: No space left on device" in verified.stdout
        ends = [event for event in recording.dump("--all") if event.get("type") == "end"]
        assert [(end["reason"], end["status"]) for end in ends] == [("exit", 0)] * RANKS


@root_only
def test_disk_full_from_the_start(plain):
    with harness.Recording() as recording, mounted(recording.traces, "size=4k"):
        (recording.traces / "filler").write_bytes(b"x" * 4096)
        assert_same(run(recording), plain)


@root_only
def test_read_only_directory(plain):
    with harness.Recording() as recording, mounted(recording.traces, "size=1m,ro"):
        assert_same(run(recording), plain)


@root_only
def test_full_live_directory(plain):
    with harness.Recording() as recording, mounted(recording.live, "size=64k"):
        assert_same(run(recording), plain)


@pytest.mark.parametrize("directory", ["/nonexistent/frec", "/dev/null/frec", "/proc", "", "x" * 5000])
def test_impossible_directory(plain, directory):
    with harness.Recording() as recording:
        assert_same(run(recording, FREC_DIR=directory), plain)


def test_impossible_live_directory(plain):
    with harness.Recording() as recording:
        job = run(recording, FREC_LIVE_DIR="/nonexistent/live")
        assert_same(job, plain)


def test_live_directory_is_a_trap(plain):
    """Somebody else's link in a shared directory must not be followed."""
    with harness.Recording() as recording:
        (recording.live / f"frec-{os.geteuid()}").symlink_to(recording.root / "elsewhere")
        (recording.root / "elsewhere").mkdir()
        assert_same(run(recording), plain)
        assert not list((recording.root / "elsewhere").iterdir())


@root_only
def test_no_permission(plain):
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if subprocess.run([*nobody, str(harness.LAUNCH), "--help"], capture_output=True).returncode:
        pytest.skip("the build is not readable for another user")
    with harness.Recording() as recording:
        os.chmod(recording.root, 0o777)
        os.chmod(recording.traces, 0o755)
        os.chmod(recording.live, 0o755)
        done = subprocess.run([*nobody, str(harness.LAUNCH), "-n", str(RANKS), "-t", "60", "--shim", str(harness.SHIM),
                               "--", str(harness.FR_TRAIN), *ARGUMENTS], env=recording.env(), capture_output=True,
                              text=True)
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == plain.results
        assert not list(recording.traces.iterdir())


@pytest.mark.skipif(not shutil.which("prlimit"), reason="needs prlimit")
class TestDescriptors:
    def run(self, recording, limit, *arguments, shim=True):
        return recording.run(RANKS, ["prlimit", f"--nofile={limit}", harness.FR_TRAIN, *ARGUMENTS, *arguments],
                             shim=shim)

    def test_as_many_as_the_job_needs(self, plain):
        """Where they are few the recorder keeps none, and does without where it can get none."""
        def enough(limit):
            with harness.Recording() as recording:
                return self.run(recording, limit, shim=False).status == 0

        least = next(limit for limit in range(4, 64) if enough(limit))
        with harness.Recording() as recording:
            assert_same(self.run(recording, least), plain)
        with harness.Recording() as recording:
            assert_same(self.run(recording, least + 1), plain)
            assert len(list(recording.traces.glob("*.frec"))) == RANKS
            assert recording.analyze()[1]["input"]["dropped_ops"] == 0

    def test_none_left_after_a_while(self, plain):
        with harness.Recording() as recording:
            assert_same(self.run(recording, 64, "--fault", "leak:at=100"), plain)
            assert len(list(recording.traces.glob("*.frec"))) == RANKS


def test_tiny_ring_counts_its_losses(plain):
    """Ring slots for a fraction of the ops between two wake-ups: losses, but no wait and no wrong count."""
    with harness.Recording() as recording:
        job = recording.run(RANKS, [harness.FR_TRAIN, *ARGUMENTS, "--count-file", recording.root / "count"],
                            env={"FREC_RING_SLOTS": "128"})
        assert_same(job, plain)
        _, document = recording.analyze()
        recorded = sum(c["op"] in harness.COUNTED_OPS for c in recording.dump())
        counted = sum(harness.read_count(recording.root / f"count.{rank}").finished for rank in range(RANKS))
        assert counted - recorded <= document["input"]["dropped_ops"]
