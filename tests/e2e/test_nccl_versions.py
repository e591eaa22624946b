"""The recorder on libnccl of several releases: the lab's own tests run under it as they do without it, and what
they call is recorded."""

import json
from collections import Counter, defaultdict

import harness
import pytest

LAB = harness.BUILD / "samples/hostgpu"
TESTS = LAB / "tests"


def run(recording, program, *arguments):
    job = recording.run(1, [TESTS / program, *arguments], timeout=120)
    assert job.status == 0, job.stderr
    calls = []
    for path in recording.traces.glob("*.frec"):
        done = harness.tool(harness.FR_DUMP, "--json", path)
        assert done.returncode == 0, done.stderr
        calls += [json.loads(line) for line in done.stdout.splitlines()]
    return calls


@pytest.mark.parametrize("version, library", [(21801, "nccl-2.18/libnccl.so.2"), (22703, "nccl-2.27/libnccl.so.2"),
                                              (22809, "libnccl.so.2"), (23203, "nccl-2.32/libnccl.so.2")])
def test_names(version, library):
    """A program that looks functions up finds those of its NCCL under the recorder too, and no others."""
    with harness.Recording() as recording:
        calls = run(recording, "lab-versions", LAB / library, version, harness.SOURCE / "samples/hostgpu/nccl/symbols.txt")
        ops = Counter(call["op"] for call in calls)
        assert ops["CommInitRankConfig"] == 5 and ops["CommDestroy"] == 5 and ops["AllReduce"] == 2


def test_newer_functions():
    """What 2.29 to 2.32 added."""
    with harness.Recording() as recording:
        calls = run(recording, "lab-newer")
        ops = Counter(call["op"] for call in calls if call.get("result") == "Success")
        for op in ("CommGrow", "CommGetUniqueId", "CommSuspend", "CommResume", "CommWindowRegister",
                   "CommWindowDeregister", "PutSignal", "Signal", "WaitSignal", "AllReduce", "AlltoAll", "Gather"):
            assert ops[op], f"{op} in {ops}"
        # 100 000 words around rings of 1 and 4, 20 rounds of both.
        assert Counter(call["count"] for call in calls if call["op"] == "PutSignal")[100000] == 5 * 20
        # The signals of these rounds took turns.
        signals = {op: Counter((call["signal"], call["context"]) for call in calls
                               if call["op"] == op and "signal" in call) for op in ("PutSignal", "WaitSignal")}
        turns = {(i % 3, i % 2) for i in range(20)}
        assert turns <= set(signals["PutSignal"]) and turns <= set(signals["WaitSignal"])
        assert signals["PutSignal"][2, 1] == signals["WaitSignal"][2, 1] > 0
        # The five ranks of a grown communicator know it by one name, old and new ones alike.
        members = defaultdict(set)
        for call in calls:
            if call["op"] == "AllReduce" and call["nranks"] == 5:
                members[call["comm"]].add(call["comm_rank"])
        assert list(members.values()) == [{0, 1, 2, 3, 4}]


def test_nonblocking():
    with harness.Recording() as recording:
        calls = run(recording, "lab-nonblocking")
        assert Counter(call["op"] for call in calls)["AllReduce"] >= 2 * 50 * 4
