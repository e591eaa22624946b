"""What the GPU has really done: stream marks, from the job through the tools, on the host lab."""

import pytest

import harness

DATA = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Send", "Recv"}
LOOP = "init world\nrepeat 8 { allreduce world 256 f32 sum }\nsync\n"


def states(recording, rank, ops=DATA):
    """States of a rank's data ops, in order of their calls."""
    calls = [call for call in recording.dump() if call["rank"] == rank and call["op"] in ops]
    return [call["state"] for call in sorted(calls, key=lambda call: call["enter_ns"])]


def check_times(recording):
    for call in recording.dump():
        if call["op"] in DATA and call["state"] == "completed":
            start, end = (call.get(key, call["enter_ns"]) for key in ("gpu_start_ns", "gpu_end_ns"))
            assert call["enter_ns"] <= start and call["enter_ns"] <= end
            assert start <= end or "gpu_end_ns" not in call
        elif call["state"] == "gpu_started":
            assert call["enter_ns"] <= call.get("gpu_start_ns", call["enter_ns"]) and "gpu_end_ns" not in call
        elif call["op"] in DATA:
            assert "gpu_start_ns" not in call and "gpu_end_ns" not in call


def both_ways(recording, check):
    """With the live regions of the killed processes, and on another machine, where only the files are."""
    check()
    harness.remove_live(recording)
    check()


def test_blocked_stream():
    with harness.Recording() as recording:
        job = recording.run_script(2, LOOP, timeout=2, rank_env={1: {"HOSTGPU_BLOCK_STREAM_AT": 5}})
        assert job.status == harness.TIMED_OUT

        def check():
            assert states(recording, 0) == ["completed"] * 4 + ["gpu_started"] + ["enqueued"] * 3
            assert states(recording, 1) == ["completed"] * 4 + ["enqueued"] * 4
            check_times(recording)

        both_ways(recording, check)


def test_blocked_before_anything():
    """No mark is ever reached on this rank, which is as telling."""
    with harness.Recording() as recording:
        job = recording.run_script(2, LOOP, timeout=4, rank_env={1: {"HOSTGPU_BLOCK_STREAM_AT": 1}})
        assert job.status == harness.TIMED_OUT

        def check():
            assert states(recording, 0) == ["gpu_started"] + ["enqueued"] * 7
            assert states(recording, 1) == ["enqueued"] * 8
            status, document = recording.analyze()
            assert status == 1 and document["verdict"]["type"] == "gpu_not_reached"
            assert document["verdict"]["culprit_ranks"] == [1]

        both_ways(recording, check)


def test_silent_op():
    with harness.Recording() as recording:
        job = recording.run_script(2, LOOP, timeout=2, env={"HOSTGPU_SILENT_AT": 3})
        assert job.status == harness.TIMED_OUT

        def check():
            for rank in range(2):
                assert states(recording, rank) == ["completed"] * 2 + ["gpu_started"] + ["enqueued"] * 5

        both_ways(recording, check)


def test_a_host_that_connects_has_not_launched():
    """The first collective waits inside the call: neither enqueued nor seen by any GPU."""
    with harness.Recording() as recording:
        script = "init world\nrank 1: sleep 60000\nallreduce world 256 f32 sum\nsync\n"
        job = recording.run_script(2, script, timeout=4, env={"HOSTGPU_LAZY_CONNECT": 1})
        assert job.status == harness.TIMED_OUT
        assert states(recording, 0) == ["in_call"]
        status, document = recording.analyze()
        assert status == 1 and document["verdict"]["culprit_ranks"] == [1]


def test_marks_outlive_a_kill():
    """All is done on the GPU and nothing of it drained yet: the marks themselves are there."""
    with harness.Recording() as recording:
        job = recording.run_script(2, LOOP + "kill 9\n", timeout=20)
        assert set(job.ranks.values()) == {-9}
        assert states(recording, 0) == states(recording, 1) == ["completed"] * 8


def test_groups_and_streams():
    script = """
init world
split half world rank/2
group { allreduce world 64 f32 sum stream=1; allgather half 64 f32 stream=2; broadcast world 64 f32 0 stream=1 }
group { send half 1-rank%2 64 f32 stream=3; recv half 1-rank%2 64 f32 stream=3 }
repeat 3 { allreduce world 64 f32 sum stream=1; allreduce half 64 f32 sum stream=2 }
sync stream=1
sync stream=2
sync stream=3
kill 9
"""
    with harness.Recording() as recording:
        job = recording.run_script(4, script, timeout=20)
        assert set(job.ranks.values()) == {-9}, job.stderr
        for rank in range(4):
            assert states(recording, rank) == ["completed"] * 11
        check_times(recording)


def test_a_group_is_one_launch():
    """Blocked before a group: none of its ops has begun, on no stream of it on which nothing else ran."""
    script = """
init world
allreduce world 64 f32 sum stream=1
sync stream=1
group { allreduce world 64 f32 sum stream=1; broadcast world 64 f32 0 stream=1 }
sync stream=1
"""
    with harness.Recording() as recording:
        job = recording.run_script(2, script, timeout=2, rank_env={1: {"HOSTGPU_BLOCK_STREAM_AT": 2}})
        assert job.status == harness.TIMED_OUT

        def check():
            assert states(recording, 0) == ["completed"] + ["gpu_started"] * 2
            assert states(recording, 1) == ["completed"] + ["enqueued"] * 2

        both_ways(recording, check)


@pytest.mark.sanitize
def test_nonblocking():
    script = "init world blocking=0\nsleep 300\nwatch world 3000\n" \
             "repeat 4 { allreduce world 256 f32 sum; sleep 200; watch world 3000 }\nsync\n"
    with harness.Recording() as recording:
        job = recording.run_script(2, script, timeout=20)
        assert job.status == 0, job.stderr
        assert states(recording, 0) == ["completed"] * 4


@pytest.mark.sanitize
def test_threads_with_streams():
    script = "init a\ninit b\nthread { repeat 20 { allreduce a 64 f32 sum } ; sync }\n" \
             "thread { repeat 20 { allreduce b 64 f32 sum } ; sync }\njoin\n"
    with harness.Recording() as recording:
        # While one thread registers the marks, another one's launch would get none.
        job = recording.run_script(2, script, timeout=20, env={"HOSTGPU_REGISTER_MS": 50})
        assert job.status == 0, job.stderr
        assert states(recording, 1) == ["completed"] * 40


@pytest.mark.sanitize
def test_captures_get_no_marks():
    """Even when a capture comes first, and the marks are set up for another stream meanwhile."""
    script = """
init world
capture step { allreduce world 64 f32 sum }
allreduce world 64 f32 sum
capture other { repeat 3 { allreduce world 64 f32 sum } }
repeat 5 { replay step; replay other; allreduce world 64 f32 sum }
sync
"""
    with harness.Recording() as recording:
        job = recording.run_script(2, script, timeout=20)
        assert job.status == 0, job.stderr
        calls = sorted((c for c in recording.dump() if c["rank"] == 0 and c["op"] == "AllReduce"),
                       key=lambda call: call["seq"])
        captured = [call["seq"] for call in calls if call.get("captured")]
        assert captured == [1, 3, 4, 5]
        for call in calls:
            assert (call["state"] == "completed") == (call["seq"] not in captured), call


def launches(recording, rank):
    """(graph, replay, calls in it, state) of a rank's launches of graphs, in order."""
    calls = [call for call in recording.dump() if call["rank"] == rank and call["op"] == "GraphLaunch"]
    return [(call["graph"], call["replay"], call["count"], call["state"])
            for call in sorted(calls, key=lambda call: call["enter_ns"])]


@pytest.mark.sanitize
def test_launches_of_graphs():
    script = """
init world
capture first { allreduce world 64 f32 sum; allgather world 64 f32 }
capture second { group { send world 1-rank 64 f32; recv world 1-rank 64 f32 } }
repeat 3 { replay first; allreduce world 64 f32 sum }
sync
thread { replay second stream=1; replay first stream=1; sync stream=1 }
join
sync
"""
    with harness.Recording() as recording:
        job = recording.run_script(2, script, timeout=20)
        assert job.status == 0, job.stderr
        for rank in range(2):
            assert launches(recording, rank) == [(1, n, 2, "completed") for n in range(3)] + [
                (2, 0, 2, "completed"), (1, 3, 2, "completed")]
            captured = {call["op"]: call.get("graph") for call in recording.dump()
                        if call["rank"] == rank and call.get("captured")}
            assert captured == {"AllReduce": 1, "AllGather": 1, "Send": 2, "Recv": 2}
        assert recording.analyze()[0] == 0


def test_a_replay_that_does_not_end():
    script = "init world\ncapture step { repeat 2 { allreduce world 64 f32 sum } }\n" \
             "repeat 5 { replay step }\nsync\n"
    with harness.Recording() as recording:
        job = recording.run_script(2, script, timeout=2, rank_env={1: {"HOSTGPU_BLOCK_STREAM_AT": 5}})
        assert job.status == harness.TIMED_OUT

        def check():
            assert [state for *_, state in launches(recording, 0)] == ["completed"] * 2 + ["gpu_started"] + [
                "enqueued"] * 2
            assert [state for *_, state in launches(recording, 1)] == ["completed"] * 2 + ["enqueued"] * 3

        both_ways(recording, check)


@pytest.mark.parametrize("env, seen", [
    ({}, True),
    ({"FREC_GPU": "auto"}, True),
    ({"FREC_GPU": "off"}, False),
    ({"CUDA_DEVICE_MAX_CONNECTIONS": 1}, False),
    ({"CUDA_DEVICE_MAX_CONNECTIONS": 1, "FREC_GPU": "marks"}, True),
    ({"CUDA_DEVICE_MAX_CONNECTIONS": 8}, True),
])
def test_when_there_are_marks(env, seen):
    with harness.Recording() as recording:
        job = recording.run_script(2, LOOP, timeout=20, env=env)
        assert job.status == 0, job.stderr
        assert states(recording, 0) == ["completed" if seen else "enqueued"] * 8


def test_recovered_and_anonymous_copies_keep_progress(tmp_path):
    with harness.Recording() as recording:
        job = recording.run_script(2, LOOP, timeout=2, rank_env={1: {"HOSTGPU_BLOCK_STREAM_AT": 5}})
        assert job.status == harness.TIMED_OUT
        before = states(recording, 0), states(recording, 1)
        assert harness.tool(harness.FR_DUMP, "--recover", recording.traces).returncode == 0
        harness.remove_live(recording)
        assert (states(recording, 0), states(recording, 1)) == before


@pytest.mark.parametrize("devices", [1, 2])
def test_the_check_for_real_gpus(devices):
    """tests/gpu/run, which is for a machine with a GPU, does what it says: here on the lab."""
    env = {"OUT": str(harness.BUILD), "HOSTGPU_DEVICES": str(devices)}
    headers = harness.BUILD.parent / "deps/include"  # of tests/run, on a machine without CUDA
    if headers.is_dir():
        env["HEADERS"] = str(headers)
    done = harness.tool(harness.SOURCE / "tests/gpu/run", "--lab", env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 failed" in done.stdout
    harness.note(f"tests/gpu/run --lab, {devices} devices: {done.stdout.splitlines()[-1]}")


def test_far_ahead():
    """Two hundred launches wait on the stream."""
    at = 150
    with harness.Recording() as recording:
        job = recording.run_script(2, "init world\nrepeat 200 { allreduce world 256 f32 sum }\nsync\n", timeout=6,
                                   env={"HOSTGPU_SLOW_US": 1000}, rank_env={1: {"HOSTGPU_BLOCK_STREAM_AT": at}})
        assert job.status == harness.TIMED_OUT

        def check():
            assert states(recording, 0) == ["completed"] * (at - 1) + ["gpu_started"] + ["enqueued"] * (200 - at)
            assert states(recording, 1) == ["completed"] * (at - 1) + ["enqueued"] * (201 - at)
            status, document = recording.analyze()
            assert status == 1 and document["verdict"]["type"] == "gpu_not_reached"
            assert document["verdict"]["culprit_ranks"] == [1] and document["verdict"]["seq"] == at

        both_ways(recording, check)


def test_too_far_ahead():
    """So far that not every launch has marks: where the GPU stands is known roughly, and nobody is blamed for it."""
    with harness.Recording() as recording:
        job = recording.run_script(2, "init world\nrepeat 700 { allreduce world 256 f32 sum }\nsync\n", timeout=4,
                                   env={"HOSTGPU_SLOW_US": 1000}, rank_env={1: {"HOSTGPU_BLOCK_STREAM_AT": 450}})
        assert job.status == harness.TIMED_OUT

        def check():
            for rank in (0, 1):
                found = states(recording, rank)
                assert found == ["completed"] * 448 + ["enqueued"] * 252
            _, document = recording.analyze()
            assert not any(f["culprit_ranks"] for f in [document["verdict"], *document["findings"]])

        both_ways(recording, check)


@pytest.mark.parametrize("ops", [60, 440, 900])
def test_caught_up(ops):
    """What had no marks is known to be over once the GPU has passed it."""
    script = f"init world\nrepeat {ops} {{ allreduce world 256 f32 sum }}\nsync\nallreduce world 256 f32 sum\nsync\n"
    with harness.Recording() as recording:
        job = recording.run_script(2, script, timeout=20, env={"HOSTGPU_SLOW_US": 1000})
        assert job.status == 0, job.stderr
        for rank in (0, 1):
            assert states(recording, rank) == ["completed"] * (ops + 1)
        check_times(recording)
