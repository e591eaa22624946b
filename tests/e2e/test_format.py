"""docs/format.md says what librec does: a second reader, written from that page alone
(frec_reader.py), and librec's own give the same events for the same bytes, whole or damaged.
"""

import json
import random
import re
import struct
import subprocess
import zlib
from pathlib import Path

import pytest
from harness import BUILD, FR_TRAIN, SOURCE, Recording

from frec_reader import FrecReader, NewerVersion, NotATrace

GEN = BUILD / "tests/unit/format/frec-gen"
EVENTS = BUILD / "tests/unit/format/frec-events"


def generate(directory, *options):
    subprocess.run([GEN, *map(str, options), directory], check=True)
    return sorted(Path(directory).glob("*.frec"))


def by_librec(path):
    """(events, stats), or None when librec does not take the file for a trace."""
    done = subprocess.run([EVENTS, path], capture_output=True, check=False)
    if done.returncode == 1:
        return None
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.decode("utf-8", "replace").splitlines()]
    # What the reader itself says of damage is no record.
    return [event for event in lines[:-1] if event.get("why") != 4 or event["event"] != "loss"], lines[-1]


def by_python(path):
    reader = FrecReader(str(path))
    events = [{"event": name, **fields} for name, fields in reader.events()]
    return events, reader


def compare(path):
    ours, stats = by_librec(path)
    theirs, reader = by_python(path)
    for a, b in zip(ours, theirs):
        assert a == b
    assert len(ours) == len(theirs)
    assert bool(stats["torn_tail"]) == reader.torn_tail
    assert bool(stats["closed"]) == reader.closed
    return ours, stats


@pytest.mark.parametrize("pattern", ["train", "moe", "plain", "any"])
def test_same_events(tmp_path, pattern):
    files = generate(tmp_path, "--ranks", 2, "--ops", 5000, "--pattern", pattern)
    assert len(files) == 2
    for path in files:
        events, stats = compare(path)
        assert stats["closed"] and not stats["damages"]
        assert sum(event["event"] == "op" for event in events) >= 5000
        kinds = {event["event"] for event in events}
        assert kinds >= {"comm", "thread", "stream", "op", "frontier", "heartbeat", "end"}
        if pattern == "any":
            assert kinds >= {"redop", "open", "loss", "stall", "callsite"}


def test_recorded_job():
    """What the recorder wrote of a real job, not only what frec-gen makes up."""
    with Recording() as recording:
        job = recording.run(4, [FR_TRAIN, "--dp", 2, "--tp", 2, "--pp", 1, "--steps", 20])
        assert job.status == 0, job.stderr
        files = sorted(recording.traces.glob("*.frec"))
        assert len(files) == 4
        ranks = set()
        for path in files:
            events, stats = compare(path)
            assert stats["closed"] and not stats["damages"]
            assert sum(event["event"] == "op" for event in events) > 100
            assert events[-1]["event"] == "end"
            ranks.add(FrecReader(str(path)).meta["rank"])
        assert ranks == {0, 1, 2, 3}


def test_recorded_graphs():
    """Launches of graphs, and captured calls whose launch is the number of their graph."""
    script = "init world\ncapture a { allreduce world 64 f32 sum; allgather world 64 f32 }\n" \
             "capture b { allreduce world 64 f32 sum }\n" \
             "repeat 40 { replay a; replay b; sync; replay b stream=1; sync stream=1; allreduce world 8 f32 sum }\n"
    with Recording() as recording:
        job = recording.run_script(2, script)
        assert job.status == 0, job.stderr
        for path in recording.traces.glob("*.frec"):
            events, _ = compare(path)
            ops = [event for event in events if event["event"] == "op"]
            assert [op["launch"] for op in ops if op["flags"] & 2] == [1, 1, 2]
            launches = [(op["peer"], op["seq"], op["count"]) for op in ops if op["kind"] == 112]
            assert launches == [launch for n in range(40) for launch in ((1, n, 2), (2, 2 * n, 1), (2, 2 * n + 1, 1))]


def test_metadata(tmp_path):
    for rank, path in enumerate(generate(tmp_path, "--ranks", 3, "--ops", 10)):
        reader = FrecReader(str(path))
        assert reader.meta["rank"] == rank
        assert reader.tick_ns == 64


def test_many_segments_and_parts(tmp_path):
    files = generate(tmp_path, "--ranks", 1, "--ops", 600000, "--flush", 1000, "--max-bytes", 1 << 20)
    assert len(files) > 4
    assert sum(path.stat().st_size for path in files) <= 1 << 20
    parts = {FrecReader(str(path)).part: path for path in files}
    assert 0 not in parts, "the first part is gone"
    ordinal, forgotten, segments = None, 0, 0
    for part in sorted(parts):
        events, stats = compare(parts[part])
        segments += stats["segments"]
        for event in events:
            if event["event"] == "loss":
                assert event["why"] == 3
                forgotten += event["count"]
            elif event["event"] == "op":
                assert ordinal is None or event["ordinal"] == ordinal + 1
                ordinal = event["ordinal"]
    assert ordinal == 599999
    assert segments > 2 * len(parts)
    assert forgotten > 0


def test_unfinished(tmp_path):
    """A process that vanished: everything up to the last piece, and it is no damage."""
    (path,) = generate(tmp_path, "--ranks", 1, "--ops", 5000, "--stop", "0:3210")
    events, stats = compare(path)
    assert sum(event["event"] == "op" for event in events) == 3210
    assert not stats["closed"] and not stats["torn_tail"] and not stats["damages"]


def test_losses(tmp_path):
    (path,) = generate(tmp_path, "--ranks", 1, "--ops", 1000, "--loss", "0:500")
    events, _ = compare(path)
    losses = [event for event in events if event["event"] == "loss"]
    assert [(event["thread"], event["first_ordinal"], event["count"], event["why"]) for event in losses] == [
        (1, 500, 10, 1)
    ]
    ordinals = [event["ordinal"] for event in events if event["event"] == "op"]
    assert ordinals == [*range(500), *range(510, 1000)]


def test_notice(tmp_path):
    """What could not be written is told by the header, behind everything else, unless a later piece came."""
    (path,) = generate(tmp_path, "--ranks", 1, "--ops", 1000, "--stop", "0:700")
    data = bytearray(path.read_bytes())
    pieces = by_librec(path)[1]["pieces"]
    for sequence, told in ((pieces, 3), (pieces - 1, 0)):
        data[64:124] = struct.pack("<IIQQQIiii12x", 28, sequence, 5 * 10**9, 300, 6 * 10**9, 3, 139, 11, 77)
        struct.pack_into("<I", data, 124, zlib.crc32(data[64:124]))
        path.write_bytes(data)
        events, stats = compare(path)
        assert sum(event["event"] == "op" for event in events) == 700
        assert not stats["damages"]
        notice = [event for event in events if event.get("time_ns") in (5 * 10**9, 6 * 10**9)]
        assert [event["event"] for event in notice] == ["heartbeat", "loss", "end"][:told]
        assert notice == events[-3:][:told]
    data[100] ^= 1
    path.write_bytes(data)
    assert compare(path)[1]["damages"] == 1


def damaged(data, rng):
    """One of the things that happen to files."""
    data = bytearray(data)
    kind = rng.randrange(5)
    at = rng.randrange(200, len(data))
    if kind == 0:
        del data[at:]
    elif kind == 1:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 2:
        data[at : at + 4096] = bytes(len(data[at : at + 4096]))
    elif kind == 3:
        data[at:at] = rng.randbytes(rng.randrange(1, 300))
    else:
        del data[at : at + rng.randrange(1, 300)]
    return bytes(data)


def test_damage_is_judged_alike(tmp_path):
    (path,) = generate(tmp_path, "--ranks", 1, "--ops", 2000, "--flush", 50, "--segment-bytes", 2000)
    original = path.read_bytes()
    rng = random.Random(1)
    bad = tmp_path / "bad.frec"
    cost = 0
    for _ in range(150):
        bad.write_bytes(damaged(original, rng))
        if by_librec(bad) is None:
            with pytest.raises(NotATrace):
                FrecReader(str(bad))
            continue
        try:
            events, _ = compare(bad)
        except NotATrace:
            continue  # a damaged header: librec salvages, the page leaves it open
        ops = sum(event["event"] == "op" for event in events)
        cost += 2000 - ops
        assert ops <= 2000
    assert cost > 0


def test_not_a_trace(tmp_path):
    other = tmp_path / "other.frec"
    for content in (b"", b"FREC", b"\x7fELF" + bytes(1000)):
        other.write_bytes(content)
        assert by_librec(other) is None
        with pytest.raises(NotATrace):
            FrecReader(str(other))


def test_newer_major_version(tmp_path):
    (path,) = generate(tmp_path, "--ranks", 1, "--ops", 10)
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, 8, 2)
    struct.pack_into("<I", data, 60, zlib.crc32(data[:60]))
    path.write_bytes(data)
    done = subprocess.run([EVENTS, path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "newer" in done.stderr
    with pytest.raises(NewerVersion):
        FrecReader(str(path))


def test_page_is_of_this_version():
    """Version and record types of the implementation are those of the page."""
    wire = (SOURCE / "librec/format/wire.h").read_text()
    page = (SOURCE / "docs/format.md").read_text()
    major, minor = (re.search(rf"REC_WIRE_{name}\s+(\d+)", wire)[1] for name in ("MAJOR", "MINOR"))
    assert f"version {major}.{minor}\n" in page
    types = re.findall(r"REC_WIRE_\w+ = (\d+),", wire.split("enum rec_wire_type {")[1].split("}")[0])
    assert len(types) >= 14
    for number in types:
        assert f"| {number} |" in page or f"(type {number})" in page
