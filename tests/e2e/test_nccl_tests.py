"""Unmodified nccl-tests on the host lab: they run as well with the recorder as without it, and what it recorded
is exactly what they were told to issue.

NCCL_TESTS names the folder with their binaries (all_reduce_perf and so on), linked to the shared CUDA runtime;
without it nothing here runs. Built without MPI, one process is one job; the launcher starts several of these.
"""

import os
from collections import Counter, defaultdict
from pathlib import Path

import harness
import pytest

FOLDER = Path(os.environ.get("NCCL_TESTS", ""))
pytestmark = pytest.mark.skipif(not os.environ.get("NCCL_TESTS"),
                                reason="NCCL_TESTS does not name a folder with the binaries of nccl-tests")

BINARIES = ["all_gather", "all_reduce", "alltoall", "alltoallv", "broadcast", "gather", "hypercube", "reduce",
            "reduce_scatter", "scatter", "sendrecv"]
WIDTH = 4  # float, the default
MIN, MAX, FACTOR, WARMUPS, ITERATIONS = 1024, 16384, 4, 2, 5
SPREAD = 0.5  # of alltoallv's sizes

# What to add to the command line: threads × devices per thread, and what else it does.
SHAPES = {
    "devices": dict(devices=4),
    "threads": dict(threads=4),
    "both": dict(threads=2, devices=2),
    "graphs": dict(devices=2, graphs=3),
    "graphs of threads": dict(threads=2, devices=1, graphs=2),
    "registered": dict(threads=2, devices=2, register=1),
    "windows": dict(threads=2, devices=2, register=2),
    "processes": dict(devices=2, processes=3),
}
MORE_SHAPES = {
    "blocking": dict(threads=2, devices=2, blocking=1),
    "no barrier": dict(threads=2, devices=2, blocking=2),
    "waits": dict(threads=2, devices=2, blocking=3),
    "aggregated": dict(devices=2, aggregate=4),
    "aggregated graphs": dict(devices=2, aggregate=4, graphs=2),
    "default stream": dict(devices=2, null_stream=1),
    "parallel init": dict(threads=2, devices=2, parallel_init=1),
    "eight": dict(devices=8),
    "one": dict(devices=1),
}


def arguments(threads=1, devices=1, graphs=0, register=0, blocking=0, aggregate=1, null_stream=0, parallel_init=0,
              processes=1):
    return ["-b", MIN, "-e", MAX, "-f", FACTOR, "-w", WARMUPS, "-n", ITERATIONS, "-c", 0, "-t", threads, "-g", devices,
            "-G", graphs, "-R", register, "-z", blocking, "-m", aggregate, "-y", null_stream, "-p", parallel_init]


def sizes(factor):
    size = MIN
    while size <= MAX:
        yield size
        size *= factor


def per_peer(elements, nranks):
    """An nranks-th part, on a 16-byte boundary."""
    return elements // nranks & ~(16 // WIDTH - 1)


def distance_weighted(source, target, nranks, total):
    """alltoallv's bytes from source to target, as its description says: more with the distance."""
    if nranks == 1:
        return total & ~15
    even = total / nranks
    weighted = (target - source) % nranks * total / (nranks * (nranks - 1) // 2)
    return int((1.0 - SPREAD) * even + SPREAD * weighted) & ~15


def one_collective(binary, size, rank, nranks):
    """The calls of one rank for one size, each as (op, count, peer or root)."""
    whole = size // WIDTH
    part = per_peer(whole, nranks)
    if binary in ("all_reduce", "broadcast", "reduce"):
        name = {"all_reduce": "AllReduce", "broadcast": "Broadcast", "reduce": "Reduce"}[binary]
        return [(name, whole, None if binary == "all_reduce" else 0)]
    if binary in ("all_gather", "reduce_scatter", "alltoall"):
        return [({"all_gather": "AllGather", "reduce_scatter": "ReduceScatter", "alltoall": "AlltoAll"}[binary],
                 part, None)]
    if binary in ("gather", "scatter"):
        return [(binary.capitalize(), part, 0)]
    if binary == "sendrecv":
        return [("Send", whole, (rank + 1) % nranks), ("Recv", whole, (rank - 1) % nranks)]
    if binary == "hypercube":
        return [(op, part << bit, rank ^ 1 << bit) for bit in range(nranks.bit_length() - 1)
                for op in ("Send", "Recv")]
    assert binary == "alltoallv"
    total = part * nranks * WIDTH
    calls = [("Send", distance_weighted(rank, peer, nranks, total) // WIDTH, peer) for peer in range(nranks)]
    calls += [("Recv", distance_weighted(peer, rank, nranks, total) // WIDTH, peer) for peer in range(nranks)]
    return [call for call in calls if call[1]]


def expected(binary, rank, nranks, aggregate):
    """All calls of one rank: warm-up in doubling sizes, then each size out of place and in place, one call ahead of
    the measured ones. Graphs are launched again, not called again."""
    calls = Counter()
    for size in sizes(2):
        for call in one_collective(binary, size, rank, nranks):
            calls[call] += WARMUPS
    for size in sizes(FACTOR):
        for call in one_collective(binary, size, rank, nranks):
            calls[call] += 2 * (1 + ITERATIONS * aggregate)
    return calls


def run(recording, binary, shape, shim, libraries="samples/hostgpu"):
    processes = shape.get("processes", 1)
    job = recording.run(processes, [FOLDER / f"{binary}_perf", *arguments(**shape)], shim=shim, timeout=120,
                        options=["--lib", f"{harness.BUILD / libraries}:{harness.BUILD / 'samples/hostgpu'}"],
                        env={"NCCL_TESTS_ALLTOALLV_SPREAD": SPREAD})
    assert job.status == 0, job.stdout + job.stderr
    return job


def check_recorded(recording, binary, shape):
    """Every rank's calls, and their places in the communicator. Returns how many there were."""
    nranks = shape.get("threads", 1) * shape.get("devices", 1)
    found, places = defaultdict(Counter), defaultdict(list)
    for call in recording.dump():
        if "datatype" not in call or call["op"] not in harness.COUNTED_OPS:
            continue
        rank = (call["pid"], call["comm"], call["comm_rank"])
        assert call["nranks"] == nranks and call["datatype"] == "f32", call
        assert call.get("redop") == ("sum" if "Reduce" in call["op"] else None), call
        found[rank][call["op"], call["count"], call.get("peer", call.get("root"))] += 1
        places[rank, call["op"] if call["op"] in ("Send", "Recv") else None, call.get("peer")].append(call["seq"])
    assert len({(pid, comm) for pid, comm, _ in found}) == shape.get("processes", 1)
    assert len(found) == shape.get("processes", 1) * nranks
    for rank, calls in found.items():
        assert calls == expected(binary, rank[2], nranks, shape.get("aggregate", 1)), rank
    for seqs in places.values():
        assert sorted(seqs) == list(range(min(seqs), min(seqs) + len(seqs)))
    return sum(calls.total() for calls in found.values())


def check_launches(recording, shape):
    """Each rank captures the measured calls of a size into one graph, out of place and in place, and launches it."""
    nranks = shape.get("threads", 1) * shape.get("devices", 1) * shape.get("processes", 1)
    calls = recording.dump()
    launches = [call for call in calls if call["op"] == "GraphLaunch"]
    graphs = {call["graph"] for call in launches}
    assert graphs == {call["graph"] for call in calls if call.get("captured")}
    assert len(graphs) == len(list(sizes(FACTOR))) * 2 * nranks
    assert {call["replay"] for call in launches} == set(range(shape["graphs"]))
    assert len(launches) == len(graphs) * shape["graphs"]
    assert {call["state"] for call in launches} == {"completed"}
    assert recording.analyze()[0] == 0
    return len(launches)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("binary", BINARIES)
def test_binary(binary, shape):
    with harness.Recording() as recording:
        run(recording, binary, SHAPES[shape], shim=False)
        assert not list(recording.traces.iterdir())
        run(recording, binary, SHAPES[shape], shim=True)
        count = check_recorded(recording, binary, SHAPES[shape])
        if "graphs" in SHAPES[shape]:
            count += check_launches(recording, SHAPES[shape])
        harness.note(f"nccl-tests {binary}, {shape}: {count} operations recorded, all as issued")


@pytest.mark.parametrize("shape", MORE_SHAPES)
def test_more(shape):
    with harness.Recording() as recording:
        run(recording, "all_reduce", MORE_SHAPES[shape], shim=False)
        run(recording, "all_reduce", MORE_SHAPES[shape], shim=True)
        check_recorded(recording, "all_reduce", MORE_SHAPES[shape])


@pytest.mark.parametrize("binary", ["all_reduce", "alltoall", "sendrecv"])
def test_newer_nccl(binary):
    """The same binary on a libnccl that speaks as 2.32."""
    shape = dict(threads=2, devices=2, register=2)
    with harness.Recording() as recording:
        run(recording, binary, shape, shim=True, libraries="samples/hostgpu/nccl-2.32")
        check_recorded(recording, binary, shape)
