"""The recorder as NCCL's profiler plugin: what it adds to the wrappers, and what it sees without them."""

import statistics
from collections import Counter

import pytest

import harness

JOBS = harness.BUILD / "samples/jobs"
STATIC = {"2.28": JOBS / "fr-script-static", "2.27": JOBS / "fr-script-static-2.27"}
LIBRARIES = {"2.27": harness.BUILD / "samples/hostgpu/nccl-2.27", "2.28": harness.BUILD / "samples/hostgpu",
             "2.32": harness.NCCL_2_32}
PLUGIN = {"FREC_GPU": "plugin", "NCCL_PROFILER_PLUGIN": "STATIC_PLUGIN"}
DATA = {"AllReduce", "Broadcast", "Send", "Recv"}
MIXED = """
init world
repeat 8 { allreduce world 64 f32 sum; broadcast world 32 f64 1; group { send world (rank+1)%world 8 i32
  recv world (rank+world-1)%world 8 i32 } }
sync
destroy world
"""
LOOP = "init world\nrepeat 8 { allreduce world 256 f32 sum }\nsync\n"
SLOW = "init world\nrepeat 6 { rank 1: sleep 40; allreduce world 256 f32 sum; sync }\ndestroy world\n"


def run(recording, text, program=harness.FR_SCRIPT, ranks=2, env=PLUGIN, **options):
    script = recording.root / "job.script"
    script.write_text(text)
    return recording.run(ranks, [program, script], env=env, **options)


def shape(call):
    """What must not depend on how a call was seen; some NCCL tells of as bytes."""
    return tuple(call.get(key) for key in ("rank", "op", "comm_rank", "nranks", "seq", "bytes", "peer", "root"))


def data(recording):
    return sorted((c for c in recording.dump() if c["op"] in DATA), key=lambda c: (c["rank"], c["enter_ns"]))


@pytest.fixture(scope="module")
def wanted():
    with harness.Recording() as recording:
        assert run(recording, MIXED, env={}).status == 0
        return Counter(map(shape, data(recording)))


@pytest.mark.sanitize
@pytest.mark.parametrize("version", LIBRARIES)
def test_with_wrappers(wanted, version):
    """A call that both see is recorded once, and the plugin tells when it ran."""
    with harness.Recording() as recording:
        job = run(recording, MIXED, options=["--lib", LIBRARIES[version]])
        assert job.status == 0, job.stderr
        calls = data(recording)
        assert Counter(map(shape, calls)) == wanted
        assert {call["state"] for call in calls} == {"completed"}
        assert all("redop" in call for call in calls if call["op"] == "AllReduce")
        assert all(call["gpu_start_ns"] <= call["gpu_end_ns"] for call in calls)


@pytest.mark.sanitize
@pytest.mark.parametrize("version", STATIC)
def test_linked_statically(wanted, version):
    """No function can be intercepted; the same calls are there, without their reduction operators."""
    with harness.Recording() as recording:
        job = run(recording, MIXED, STATIC[version])
        assert job.status == 0, job.stderr
        calls = data(recording)
        assert Counter(map(shape, calls)) == wanted
        assert {call["state"] for call in calls} == {"completed"}
        creations = [call for call in recording.dump() if call["op"] == "CommInitRank"]
        assert [call["seq"] for call in creations] == [0, 0]
        status, document = recording.analyze()
        assert status == 0 and document["verdict"]["type"] == "healthy"


@pytest.mark.parametrize("options", [{}, {"program": STATIC["2.28"]}, {"program": STATIC["2.27"]}],
                         ids=["wrappers", "static", "static-2.27"])
def test_times_are_exact(options):
    """Rank 0 waits in the kernel for rank 1, which comes 40 ms later; looking four times a second cannot tell."""
    with harness.Recording() as recording:
        assert run(recording, SLOW, **options).status == 0
        took = {rank: [c["gpu_end_ns"] - c["gpu_start_ns"] for c in data(recording) if c["rank"] == rank]
                for rank in (0, 1)}
        assert len(took[0]) == len(took[1]) == 6
        # Medians: a scheduler's whim may spoil some.
        assert 30e6 < statistics.median(took[0]) < 150e6, took
        assert statistics.median(took[1]) < 20e6, took


@pytest.mark.sanitize
@pytest.mark.parametrize("program", [harness.FR_SCRIPT, *STATIC.values()], ids=["wrappers", "static", "static-2.27"])
def test_blocked_stream(program):
    """One rank's GPU never comes to the op, while the others are in its kernel: the hang of a job whose NCCL nobody
    can intercept, and who is to blame."""
    with harness.Recording() as recording:
        job = run(recording, LOOP, program, ranks=4, timeout=3, rank_env={3: {"HOSTGPU_BLOCK_STREAM_AT": 5}})
        assert job.status == harness.TIMED_OUT
        for _ in range(2):
            states = {rank: [c["state"] for c in data(recording) if c["rank"] == rank] for rank in range(4)}
            assert states[0] == ["completed"] * 4 + ["gpu_started"] + ["enqueued"] * 3
            assert states[3] == ["completed"] * 4 + ["enqueued"] * 4
            status, document = recording.analyze()
            assert status == 1 and document["verdict"]["type"] == "gpu_not_reached"
            assert document["verdict"]["culprit_ranks"] == [3]
            harness.remove_live(recording)


def test_silent_link():
    with harness.Recording() as recording:
        job = run(recording, LOOP, STATIC["2.28"], timeout=3, env={**PLUGIN, "HOSTGPU_SILENT_AT": 5})
        assert job.status == harness.TIMED_OUT
        status, document = recording.analyze()
        assert status == 1 and document["verdict"]["type"] == "stuck_in_kernel"
        assert document["verdict"]["culprit_ranks"] == []


@pytest.mark.parametrize("text, kind, culprit", [
    ("init world\nrepeat 5 { allreduce world 64 f32 sum }\nsync\nexcept 1: allreduce world 64 f32 sum\nrank 1: sleep 60000\nsync\n",
     "stuck_outside_nccl", 1),
    ("init world\nrepeat 5 { allreduce world 64 f32 sum }\nrank 2: allreduce world 65 f32 sum\n"
     "except 2: allreduce world 64 f32 sum\nsync\n", "signature_mismatch", 2),
    ("init world\nrepeat 5 { allreduce world 64 f32 sum }\nsync\nrank 0: send world 1 64 f32\nrank 1: sleep 60000\nsync\n",
     "stuck_outside_nccl", 1)], ids=["sleeps", "count", "message"])
def test_faults_of_a_static_job(text, kind, culprit):
    with harness.Recording() as recording:
        assert run(recording, text, STATIC["2.28"], ranks=3, timeout=3).status == harness.TIMED_OUT
        status, document = recording.analyze()
        found = {(f["type"], *f["culprit_ranks"]) for f in [document["verdict"], *document["findings"]]}
        assert status == 1 and (kind, culprit) in found, found


@pytest.mark.sanitize
def test_hanging_in_the_call():
    """The first collective waits on the host until all ranks have connected: the call is open while it does."""
    text = "init world\nexcept 1: group { send world 1 8 f32; allreduce world 8 f32 sum }\nrank 1: sleep 60000\nsync\n"
    with harness.Recording() as recording:
        job = run(recording, text, STATIC["2.28"], timeout=3, env={**PLUGIN, "HOSTGPU_LAZY_CONNECT": 1})
        assert job.status == harness.TIMED_OUT
        calls = [call for call in recording.dump() if call["rank"] == 0]
        assert [call["state"] for call in calls if call["op"] == "GroupEnd"] == ["in_call"]
        assert [call["op"] for call in calls if call["op"] in DATA] == ["AllReduce"]


def test_by_path_without_preload():
    """NCCL opens the recorder itself, and no other variable is needed."""
    with harness.Recording() as recording:
        job = run(recording, LOOP, shim=False, env={"NCCL_PROFILER_PLUGIN": harness.SHIM})
        assert job.status == 0, job.stderr
        assert [call["state"] for call in data(recording)] == ["completed"] * 16


@pytest.mark.parametrize("env", [{"NCCL_PROFILER_PLUGIN": "STATIC_PLUGIN"},
                                 {"NCCL_PROFILER_PLUGIN": "STATIC_PLUGIN", "FREC_GPU": "off"},
                                 {**PLUGIN, "FREC_DISABLE": 1}], ids=["not asked for", "off", "disabled"])
def test_stays_out(env):
    """Whoever asks for a static plugin without FREC_GPU=plugin does not mean ours."""
    with harness.Recording() as recording:
        assert run(recording, LOOP, STATIC["2.28"], env=env).status == 0
        assert not list(recording.traces.glob("*.frec"))


def test_yields_to_another_plugin():
    """A plugin that the program brings along is found although we stand before it; one named by path anyway."""
    tests = harness.BUILD / "samples/hostgpu/tests"
    with harness.Recording() as recording:
        for program, plugin in (("lab-profiler", "STATIC_PLUGIN"), ("lab-profiler-outside", tests / "liblab-plugin-v4.so")):
            version = "5" if plugin == "STATIC_PLUGIN" else "4"
            for mode in ("marks", "plugin"):
                job = recording.run(1, [tests / program, plugin, version], env={"FREC_GPU": mode}, timeout=60)
                assert job.status == 0, job.stderr
        # The plugin lies in a library behind us in the order of lookups.
        other = tests / "liblab-plugin-v4.so"
        log = recording.root / "log"
        job = run(recording, LOOP, options=["--lib", LIBRARIES["2.27"]], preload=[],
                  env={"NCCL_PROFILER_PLUGIN": "STATIC_PLUGIN", "LAB_PLUGIN_LOG": log,
                       "LD_PRELOAD": f"{harness.SHIM}:{other}"}, shim=False)
        assert job.status == 0, job.stderr
        assert (recording.root / "log.0").read_text().count("start") >= 8


def test_nonblocking():
    """Handed over by a thread of NCCL's own, after the call has returned."""
    text = ("init world blocking=0\nsleep 300\nwatch world 3000\n"
            "repeat 6 { allreduce world 256 f32 sum; watch world 3000 }\nsync\n")
    with harness.Recording() as recording:
        assert run(recording, text).status == 0
        assert [call["state"] for call in data(recording)] == ["completed"] * 12
        assert all("gpu_end_ns" in call for call in data(recording))


def test_captured():
    """What a graph replays is not taken for calls, nor for progress of launches."""
    text = ("init world\nallreduce world 8 f32 sum\ncapture g { allreduce world 16 f32 sum }\n"
            "repeat 3 { replay g }\nallreduce world 24 f32 sum\nsync\n")
    with harness.Recording() as recording:
        assert run(recording, text, STATIC["2.28"]).status == 0
        calls = [call for call in data(recording) if call["rank"] == 0]
        assert [call["count"] for call in calls] == [8, 16, 24]
        assert [call["state"] for call in calls] == ["completed", "captured", "completed"] or calls[1].get("captured")


def test_nobody_tells():
    """One rank alone is a copy without a kernel: not waited for, and what follows on the stream is known."""
    text = ("init world\nsplit solo world rank\nrepeat 3 { allreduce solo 8 f32 sum }\nallreduce world 16 f32 sum\nsync\n"
            "group { allreduce solo 8 f32 sum }\n%s")
    with harness.Recording() as recording:
        assert run(recording, text % "rank 0: sleep 300\nrank 1: sleep 300\n").status == 0
        states = [(c["count"], c["state"]) for c in data(recording) if c["rank"] == 0]
        assert states == [(8, "enqueued")] * 3 + [(16, "completed"), (8, "enqueued")]
        status, document = recording.analyze()
        assert status == 0, document["verdict"]
    with harness.Recording() as recording:
        assert run(recording, text % "allreduce world 24 f32 sum\nsync\n").status == 0
        states = [(c["count"], c["state"]) for c in data(recording) if c["rank"] == 0]
        assert states[-2:] == [(8, "completed"), (24, "completed")]


def test_threads():
    """Several communicators and streams at once, handed over and reported by many threads."""
    with harness.Recording() as recording:
        job = recording.run(1, [harness.BUILD / "samples/hostgpu/tests/lab-soak"], env=PLUGIN, timeout=100)
        assert job.status == 0, job.stderr
        calls = recording.dump()
        assert len(calls) > 100


def test_two_libraries_at_once():
    """What is linked statically is told by NCCL, what another copy does goes through the wrappers, on a communicator
    that these do not know."""
    text = "init world\nwindow world 4096\nallreduce world 64 f32 sum\nrank 0: waitsignal world 1\nsync\n"
    with harness.Recording() as recording:
        job = run(recording, text, STATIC["2.28"], options=["--lib", LIBRARIES["2.32"]], timeout=3)
        assert job.status == harness.TIMED_OUT
        assert Counter(call["op"] for call in recording.dump())["WaitSignal"] == 1
        assert harness.tool(harness.FR_ANALYZE, recording.traces).returncode in (0, 1, 3)


def test_lines_of_python():
    """The calling thread is asked for its line also where NCCL, and not a wrapper, tells of the call."""
    with harness.Recording() as recording:
        job = recording.run_python(2, "--steps", 3, shim=False, env={"NCCL_PROFILER_PLUGIN": harness.SHIM})
        assert job.status == 0, job.stderr
        sites = {call.get("site", "") for call in recording.dump() if call["op"] == "AllReduce"}
        assert sites and all(".py:" in site for site in sites), sites
