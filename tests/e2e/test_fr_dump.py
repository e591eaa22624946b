"""fr-dump on recorded jobs: every call with the right fields, in every form."""

import csv
import io
import json
import re
import subprocess
import time

import pytest

import harness

SCRIPT = """
init world name=world
split half world rank%2 name=half
allreduce world 1024 f32 sum
broadcast world 77 i8 2
reduce world 5 f64 max 1
allgather half 16 bf16
rank 0: send world 1 9 i32
rank 1: recv world 0 9 i32
group { allreduce world 3 u64 min; allreduce half 4 u64 min }
sync
destroy half
destroy world
"""

FIELDS = {
    "op": str, "rank": int, "pid": int, "host": str, "comm": str, "comm_name": str, "comm_rank": int, "nranks": int,
    "seq": int, "count": int, "bytes": int, "datatype": str, "redop": str, "root": int, "peer": int, "signal": int,
    "context": int, "color": int, "key": int, "group": int, "stream": str, "thread": int, "enter_ns": int, "exit_ns": int, "gpu_start_ns": int,
    "gpu_end_ns": int, "result": str, "async_error": str, "state": str, "captured": bool, "part": bool, "graph": int,
    "replay": int, "site": str,
}


@pytest.fixture(scope="module")
def recording():
    with harness.Recording() as recording:
        job = recording.run_script(4, SCRIPT, options=["--job-id", "dump-test"])
        assert job.status == 0, job.stderr
        yield recording


def find(calls, op, **fields):
    return [c for c in calls if c["op"] == op and all(c.get(k) == v for k, v in fields.items())]


def test_json_fields(recording):
    calls = recording.dump()
    for call in calls:
        assert set(call) <= set(FIELDS), call
        for name, value in call.items():
            assert type(value) is FIELDS[name], (name, value)
        assert call["exit_ns"] >= call["enter_ns"] > 1_600_000_000 * 10**9
    assert {c["rank"] for c in calls} == {0, 1, 2, 3}
    for rank in range(4):
        mine = [c for c in calls if c["rank"] == rank]
        assert len({c["pid"] for c in mine}) == 1
        assert [c["enter_ns"] for c in mine] == sorted(c["enter_ns"] for c in mine)

        [init] = find(mine, "CommInitRankConfig", comm_name="world") or find(mine, "CommInitRank")
        assert (init["seq"], init["nranks"], init["comm_rank"]) == (0, 4, rank)
        assert re.fullmatch("[0-9a-f]{16}", init["comm"])
        [split] = find(mine, "CommSplit")
        assert (split["seq"], split["color"], split["comm"]) == (1, rank % 2, init["comm"])
        [reduce_] = find(mine, "Reduce")
        assert (reduce_["redop"], reduce_["root"], reduce_["datatype"], reduce_["bytes"]) == ("max", 1, "f64", 40)
        [broadcast] = find(mine, "Broadcast")
        assert (broadcast["root"], broadcast["count"], broadcast["datatype"]) == (2, 77, "i8")
        assert "redop" not in broadcast and "peer" not in broadcast
        [gather] = find(mine, "AllGather")
        assert (gather["comm_name"], gather["nranks"], gather["comm_rank"], gather["seq"]) == ("half", 2, rank // 2, 1)
        grouped = [c for c in mine if c["op"] == "AllReduce" and "group" in c]
        assert len(grouped) == 2 and len({c["group"] for c in grouped}) == 1
        assert {c["state"] for c in grouped} <= {"enqueued", "completed"}, "a group that ended was launched"
        assert [c["count"] for c in find(mine, "GroupEnd")] == [2]
        assert len(find(mine, "CommDestroy")) == 2
    assert len({c["comm"] for c in find(calls, "AllReduce", comm_name="world")}) == 1
    assert len({c["comm"] for c in find(calls, "AllGather")}) == 2
    [send], [recv] = find(calls, "Send"), find(calls, "Recv")
    assert (send["rank"], send["peer"], recv["rank"], recv["peer"]) == (0, 1, 1, 0)
    assert send["seq"] == recv["seq"] == 0 and send["bytes"] == 36


def test_csv_says_the_same(recording):
    done = harness.tool(harness.FR_DUMP, "--csv", recording.traces)
    assert done.returncode == 0
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert list(rows[0]) == list(FIELDS)
    calls = recording.dump()
    assert len(rows) == len(calls)
    for row, call in zip(rows, calls):
        assert {k: v for k, v in row.items() if v} == {
            k: str(v).lower() if v is True else str(v) for k, v in call.items()}


def test_perfetto(recording):
    done = harness.tool(harness.FR_DUMP, "--perfetto", recording.traces)
    assert done.returncode == 0
    events = json.loads(done.stdout)["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert [name.split(" on ")[0] for name in names.values()] == [f"rank {rank}" for rank in range(4)]
    slices = [e for e in events if e["ph"] == "X" and e["tid"] < 1 << 30]  # threads, not streams
    calls = recording.dump()
    assert [e["args"] for e in slices] == calls
    first = slices[0]["ts"] * 1000 - calls[0]["enter_ns"]
    for slice_, call in zip(slices, calls):
        assert (slice_["name"], slice_["tid"]) == (call["op"], call["thread"])
        assert abs(slice_["dur"] * 1000 - (call["exit_ns"] - call["enter_ns"])) < 1
        assert abs(slice_["ts"] * 1000 - call["enter_ns"] - first) < 1000


def test_table(recording):
    done = harness.tool(harness.FR_DUMP, recording.traces)
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    headers = [line for line in lines if line.startswith("rank ")]
    assert len(headers) == 4
    for rank, line in enumerate(headers):
        assert re.fullmatch(rf"rank {rank} of 4, pid \d+ on \S+, fr-script, NCCL \d+\.\d+\.\d+", line)
    assert sum("exited with status 0" in line for line in lines) == 4
    assert re.search(r"^[\d:.]{15} AllReduce +world +2 +1024 f32  sum +\S+ (enqueued|completed)$", done.stdout, re.M)
    assert all(len(line) <= 100 for line in lines)


def test_filters(recording):
    everything = recording.dump()
    assert recording.dump("--rank", "1-2") == [c for c in everything if c["rank"] in (1, 2)]
    assert recording.dump("-o", "reduce,ncclSend") == [c for c in everything if c["op"] in ("Reduce", "Send")]
    assert recording.dump("-c", "half") == [c for c in everything if c.get("comm_name") == "half"]
    uid = find(everything, "Reduce")[0]["comm"]
    assert recording.dump("-c", uid[:10]) == [c for c in everything if c.get("comm") == uid]
    middle = everything[len(everything) // 2]["enter_ns"]
    stamp = f"{middle // 10**9}.{middle % 10**9:09}"
    assert recording.dump("--from", stamp) == [c for c in everything if c["exit_ns"] >= middle]
    assert recording.dump("--to", stamp) == [c for c in everything if c["enter_ns"] <= middle]
    assert recording.dump("--job", "dump-test") == everything
    one = next(recording.traces.glob("*.frec"))
    done = harness.tool(harness.FR_DUMP, "--json", one)
    assert {json.loads(line)["pid"] for line in done.stdout.splitlines()} == {int(one.stem.split("-")[-1])}


def test_other_records(recording):
    done = harness.tool(harness.FR_DUMP, "--json", "--all", "-r", "0", recording.traces)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    types = {r["type"] for r in records if "type" in r}
    assert {"comm", "thread", "frontier", "end"} <= types
    [end] = [r for r in records if r.get("type") == "end"]
    assert (end["reason"], end["status"]) == ("exit", 0)
    assert [r for r in records if "type" not in r] == recording.dump("-r", "0")


def test_verify(recording, tmp_path):
    done = harness.tool(harness.FR_DUMP, "--verify", recording.traces)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["STATE", "ok", "ok", "ok", "ok", "total"]
    assert int(lines[-1].split()[1]) == len(recording.dump())
    source = next(recording.traces.glob("*.frec"))
    data = bytearray(source.read_bytes())
    data[len(data) // 2] ^= 0x10
    (tmp_path / source.name).write_bytes(data)
    done = harness.tool(harness.FR_DUMP, "--verify", tmp_path)
    assert done.returncode == 1
    assert "damaged" in done.stdout.splitlines()[1]


def test_output_that_cannot_be_written(recording):
    with open("/dev/full", "w") as full:
        for mode in ([], ["--json"], ["--csv"], ["--verify"], ["--help"]):
            done = subprocess.run([harness.FR_DUMP, *mode, recording.traces], stdout=full, stderr=subprocess.PIPE,
                                  text=True)
            assert done.returncode == 2
            assert done.stderr == "fr-dump: standard output: No space left on device\n"
    done = subprocess.run(f"{harness.FR_DUMP} --json {recording.traces} | true", shell=True, capture_output=True)
    assert done.stderr == b""


def without_times(calls):
    """A file rounds times to its ticks."""
    return [{k: v for k, v in c.items() if not k.endswith("_ns")} for c in calls]


def test_recover():
    """What only the live region knows survives; a living process is left alone."""
    with harness.Recording() as recording:
        env = {"FREC_JOB_ID": "recover"}
        command = [harness.LAUNCH, "-n", "2", "-t", "30", "--shim", harness.SHIM, "--", harness.FR_TRAIN, "--dp", "2",
                   "--fault", "kill:rank=1,at=30,sig=9"]
        job = subprocess.Popen([str(c) for c in command], env=recording.env(**env), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, cwd=recording.root)
        live = ["--live-dir", recording.live]
        try:
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                done = harness.tool(harness.FR_DUMP, *live, "-r", "1", recording.traces)
                if "gone without a word" in done.stdout:
                    break
                time.sleep(0.05)
            before = recording.dump(*live, "-r", "1")
            assert len(before) > 30
            done = harness.tool(harness.FR_DUMP, "--recover", *live, recording.traces)
            assert done.returncode == 2
            assert re.search(r"still runs; its recorder writes the trace$", done.stderr, re.M)
            assert "recovered" in done.stdout
            assert len(list(recording.live.rglob("*.live"))) == 1
            assert without_times(recording.dump("--no-live", "-r", "1")) == without_times(before)
        finally:
            job.kill()
            job.wait()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:  # until the last process is gone, too
            if harness.tool(harness.FR_DUMP, "--recover", *live, recording.traces).returncode == 0:
                break
            time.sleep(0.1)
        assert not list(recording.live.rglob("*.live"))
        done = harness.tool(harness.FR_DUMP, "--recover", *live, recording.traces)
        assert (done.returncode, done.stdout) == (
            0, "nothing to recover: no live region belongs to these traces\n")


def test_recovery_keeps_the_verdict():
    """That a process is dead is as sure afterwards as the live region made it."""
    with harness.Recording() as recording:
        recording.run_script(4, "init world\nrepeat 20 { allreduce world 64 f32 sum; sync }\nrank 0: kill 9\n"
                                "allreduce world 64 f32 sum\nsync\n", timeout=5)
        live = ["--live-dir", recording.live]
        before = recording.analyze(*live)[1]["verdict"]
        assert harness.tool(harness.FR_DUMP, "--recover", *live, recording.traces).returncode == 0
        after = recording.analyze("--no-live")[1]["verdict"]
        assert (before["type"], before["confidence"], before["culprit_ranks"]) == ("process_dead", "certain", [0])
        assert after == {**before, "evidence": after["evidence"]}


def test_signals():
    """Which signal a one-sided call is about; a wait for several is one call, and told one by one."""
    text = """
init world
window world 4096
rank 0: put world 1 5 f32 0 index=1 context=1
rank 0: signal world 1
rank 0: signal world 1 index=2
rank 1: group { waitsignals world 0 1 0 0 1 2; waitsignal world 0 index=1 context=1 }
rank 0: waitsignals world 1 0 0 1 0 1
allreduce world 8 f32 sum
sync
"""
    with harness.Recording() as recording:
        job = recording.run_script(2, text, options=["--lib", harness.NCCL_2_32])
        assert job.status == 0, job.stderr
        calls = recording.dump()
        told = [(c["op"], c["count"], c.get("peer"), c.get("signal"), c.get("context"), "part" in c)
                for c in calls if c["op"] in ("PutSignal", "WaitSignal", "GroupEnd")]
        assert told == [
            ("PutSignal", 5, 1, 1, 1, False),
            ("WaitSignal", 0, 1, None, None, False),
            ("WaitSignal", 0, 1, 0, 0, True), ("WaitSignal", 0, 1, 1, 0, True),
            ("WaitSignal", 2, 0, None, None, False),
            ("WaitSignal", 1, 0, 0, 0, True), ("WaitSignal", 1, 0, 2, 0, True),
            ("WaitSignal", 1, 0, 1, 1, False),
            ("GroupEnd", 2, None, None, None, False),
        ]
        assert {c["state"] for c in calls if "Signal" in c["op"]} == {"completed"}
        assert [(c["peer"], c["signal"]) for c in calls if c["op"] == "Signal"] == [(1, 0), (1, 2)]
        lines = harness.tool(harness.FR_DUMP, recording.traces).stdout.splitlines()
        tails = [re.sub(r".* (completed|enqueued)", r"\1", line) for line in lines if "Signal" in line]
        assert tails == ["completed signal 1 context 1", "completed", "completed signal 2",
                         "completed several signals", "completed part", "completed signal 1 part",
                         "completed several signals g1", "completed part g1", "completed signal 2 part g1",
                         "completed signal 1 context 1 g1"]
        assert recording.analyze()[1]["verdict"]["type"] == "healthy"


def test_everything_is_documented():
    usage = harness.tool(harness.FR_DUMP, "--help").stdout
    page = (harness.SOURCE / "docs/man/fr-dump.1").read_text().replace("\\-", "-")
    options = set(re.findall(r"--[a-z-]+", usage))
    assert len(options) > 12
    for option in options:
        assert option in page, option
    for field in FIELDS:
        assert field in page, field
