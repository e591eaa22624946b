"""fr-dump --perfetto against the rules of Chrome's Trace Event Format."""

import bisect
import json
import re
from collections import defaultdict

import pytest

import harness

SCRIPT = """
init world name=world
split half world rank%2 name=half
repeat 20 { allreduce world 64 f32 sum; rank 3: sleep 2; allgather half 8 bf16; sync }
rank 0: send world 1 9 i32
rank 1: recv world 0 9 i32
group { allreduce world 3 u64 min; allreduce half 4 u64 min }
thread { repeat 5 { broadcast half 16 i64 0 }; sync }
join
sync
"""
GOOD_END = "destroy half\ndestroy world\n"
BAD_END = "rank 2: sleep 60000\nallreduce world 64 f32 sum\nsync\n"


def timeline(recording, *options):
    done = harness.tool(harness.FR_DUMP, "--perfetto", *options, recording.traces)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return json.loads(done.stdout)["traceEvents"]


@pytest.fixture(scope="module")
def healthy():
    with harness.Recording() as recording:
        assert recording.run_script(4, SCRIPT + GOOD_END).status == 0
        yield recording


@pytest.fixture(scope="module")
def hung():
    with harness.Recording() as recording:
        recording.run_script(4, SCRIPT + BAD_END, timeout=5, env={"FREC_STALL_SEC": 1})
        yield recording


def check_rules(events):
    """What the format asks for, whatever the content."""
    names = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    processes = {e["pid"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    slices = defaultdict(list)
    for event in events:
        assert event["ph"] in "MXistf", "B and E are not needed, the rest is unknown here"
        assert type(event["pid"]) is type(event["tid"]) is int and event["name"]
        assert event["pid"] in processes and (event["pid"], event["tid"]) in names, "a track without a name"
        if event["ph"] == "M":
            continue
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
            slices[event["pid"], event["tid"]].append((round(event["ts"] * 1000), round(event["dur"] * 1000)))
        if event["ph"] == "i":
            assert event["s"] in "gpt"
    for track, spans in slices.items():
        assert spans == sorted(spans, key=lambda span: span[0]), f"{track}: not in the order of time"
        ends = []
        for start, duration in sorted(spans, key=lambda span: (span[0], -span[1])):
            while ends and ends[-1] <= start:
                ends.pop()
            assert not ends or start + duration <= ends[-1], f"{track}: slices overlap without nesting"
            ends.append(start + duration)
    flows = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            at = round(event["ts"] * 1000)
            track = slices[event["pid"], event["tid"]]
            nearest = track[:bisect.bisect_right(track, (at, float("inf")))][-2:]
            assert any(start <= at <= start + duration for start, duration in nearest), \
                "an arrow that is tied to no slice"
            assert event["ph"] == "s" or event["bp"] == "e"
            flows[event["cat"], event["id"]].append((at, event["pid"], event["ph"]))
    for arrow in flows.values():
        phases = "".join(phase for _, _, phase in sorted(arrow))
        assert re.fullmatch("st*f", phases), f"an arrow needs one beginning, before its end: {phases}"
    return flows


@pytest.mark.sanitize
def test_rules_and_arrows(healthy):
    events = timeline(healthy)
    flows = check_rules(events)
    calls = healthy.dump()
    sets = defaultdict(int)
    for call in calls:
        if call["op"] in ("Send", "Recv"):
            sets["message", call["comm"], call["seq"]] += 1
        elif "seq" in call and not call["op"].startswith(("CommDestroy", "CommFinalize")):
            sets["op", call["comm"], call["seq"]] += 1
    expected = sorted((key[0], count) for key, count in sets.items() if count > 1)
    assert sorted((cat, len(arrow)) for (cat, _), arrow in flows.items()) == expected
    [message] = [arrow for (cat, _), arrow in flows.items() if cat == "message"]
    assert {pid for _, pid, _ in message} == {0, 1}


def test_threads_and_processes_have_names(healthy):
    events = timeline(healthy)
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    threads = {(c["rank"], c["thread"]) for c in healthy.dump()}
    assert len(threads) == 8  # two per rank
    assert all(names[track].startswith("fr-script") for track in threads)


def test_filters_keep_arrows_whole(healthy):
    calls = healthy.dump()
    middle = calls[len(calls) // 5]["enter_ns"]
    stamp = f"{middle // 10**9}.{middle % 10**9:09}"
    for options in (["--rank", "0-1"], ["--from", stamp], ["--to", stamp], ["--op", "AllReduce"], ["-c", "half"]):
        assert check_rules(timeline(healthy, *options)), options
    assert not check_rules(timeline(healthy, "--rank", "2"))


def test_marks(hung, healthy):
    events = timeline(hung)
    check_rules(events)
    marks = defaultdict(list)
    for event in events:
        if event["ph"] == "i":
            marks[event["cat"]].append(event)
    assert marks["stall"] and all(m["args"]["threads"] > 0 for m in marks["stall"])
    [finding] = marks["finding"]
    assert (finding["name"], finding["pid"], finding["args"]["confidence"]) == ("stuck_outside_nccl", 2, "certain")
    assert finding["args"]["summary"].startswith("rank 2")
    assert [m["name"] for m in timeline(healthy) if m["ph"] == "i" and m["cat"] == "end"] == ["exit 0"] * 4


def test_an_open_call_lasts_to_the_end(hung):
    last = [e for e in timeline(hung) if e["ph"] == "X" and e["args"].get("state") == "in_call"]
    for event in last:
        assert event["dur"] > 1e6  # in microseconds


def test_losses_are_marked():
    with harness.Recording() as recording:
        recording.run_script(2, "init world\nrepeat 5000 { allreduce world 64 f32 sum }\nsync\ndestroy world\n",
                             rank_env={1: {"FREC_RING_SLOTS": 128}}, timeout=40)
        events = timeline(recording)
        check_rules(events)
        lost = [e for e in events if e["ph"] == "i" and e["cat"] == "loss"]
        assert lost and all((e["pid"], e["args"]["why"]) == (1, "ring_full") for e in lost)
        calls = [c for c in recording.dump() if c["op"] == "AllReduce"]
        assert sum(e["args"]["count"] for e in lost) >= 10000 - len(calls) > 0
