"""fr-dump --anonymize: the copy gives the same verdict and tells nothing of where it was made."""

import getpass
import json
import struct

import pytest

import harness
from frec_reader import FrecReader

NOT_SECRET = {"live", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "FREC_JOB_ID", "TORCHELASTIC_RUN_ID"}
LONG = "rank_of_the_moon"  # a name that cannot be there by chance

SCRIPTS = {
    "healthy": (2, f"init world name={LONG}\nredop mine world f32 3\n"
                   "repeat 3000 { allreduce world 1+i%7 f32 mine; sync }\ndestroy world\n"),
    "mismatch": (4, "init world name=everybody_here\nsplit half world rank%2 name=half_of_them\n"
                    "repeat 40 { allreduce world 64 f32 sum; allgather half 8 bf16; sync }\n"
                    "rank 3: allreduce world 128 f32 sum\nexcept 3: allreduce world 64 f32 sum\nsync\n"),
    "crash": (4, "init world\nrepeat 20 { allreduce world 64 f32 sum; sync }\nrank 1: crash\n"
                 "allreduce world 64 f32 sum\nsync\n"),
    "sleeper": (4, "init world\nrepeat 20 { allreduce world 64 f32 sum; sync }\nrank 2: sleep 60000\n"
                   "allreduce world 64 f32 sum\nsync\n"),
    "killed": (4, "init world\nrepeat 20 { allreduce world 64 f32 sum; sync }\nrank 0: kill 9\n"
                  "allreduce world 64 f32 sum\nsync\n"),
}


class RawReader(FrecReader):
    """Keeps the decompressed bytes."""

    def __init__(self, path):
        self.raw = b""
        super().__init__(str(path))

    def records(self, segment, raw):
        self.raw += raw
        yield from super().records(segment, raw)


def texts_of(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)


def secrets_of(path):
    """Every text of the file that is somebody's own, whole and the parts of paths, and every identifier."""
    reader, texts, words = RawReader(path), set(), set()
    meta = {k: v for k, v in reader.meta.items() if k not in ("recorder_version", "compressor", "clock")}
    texts.update(texts_of(meta))
    for event, fields in reader.events():
        if event in ("comm", "thread"):
            texts.add(fields["name"])
        if event == "comm":
            words.update(fields[key] for key in ("uid", "parent_uid", "comm_hash", "handle"))
        if event == "stall":
            texts.update(thread["name"] for thread in fields["threads"])
        if event in ("stall", "end"):
            texts.update(fields["modules"])
    words.add(int(reader.meta["proc_uid"], 16))
    texts.update(part for text in list(texts) if "/" in text for part in text.split("/"))
    texts.update({getpass.getuser(), harness.os.uname().nodename} - {"root", "vm"})
    return ({text for text in texts if len(text) >= 4 and not text.isdigit() and text not in NOT_SECRET},
            {word for word in words if word > 0xffffffff})


def assert_clean(copies, texts, words):
    for path in copies:
        reader = RawReader(path)
        list(reader.events())
        assert not reader.damaged_bytes and reader.closed
        for data in (reader.data, reader.raw, path.name.encode()):
            for text in texts:
                assert text.encode() not in data, text
            for word in words:
                assert struct.pack("<Q", word) not in data, hex(word)


def calls_of(*arguments):
    """What must be as it was. A name inside a Send's pair and all times stay."""
    done = harness.tool(harness.FR_DUMP, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    calls = [json.loads(line) for line in done.stdout.splitlines()]
    hidden = ("host", "comm", "comm_name", "stream", "site")
    return [{k: v for k, v in c.items() if k not in hidden and not k.endswith("_ns")} for c in calls], calls


def verdict_of(*arguments):
    status, document = harness.analyze(*arguments)
    verdict = document["verdict"]
    return (status, verdict["type"], verdict["confidence"], verdict["culprit_ranks"], verdict["seq"],
            verdict["comm"] and verdict["comm"]["nranks"], len(document["findings"]), document["ranks"])


def anonymize(out, *arguments):
    done = harness.tool(harness.FR_DUMP, "--anonymize", out, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", SCRIPTS)
def test_same_verdict_and_no_names(name, tmp_path):
    ranks, script = SCRIPTS[name]
    with harness.Recording() as recording:
        recording.run_script(ranks, script, timeout=5, env={"FREC_STALL_SEC": 1})
        live = ["--live-dir", recording.live]
        out = tmp_path / "copy"
        said = anonymize(out, *live, recording.traces)
        copies = sorted(out.glob("*.frec"))
        assert len(copies) == ranks
        assert verdict_of(*live, recording.traces) == verdict_of("--no-live", out)
        plain, before = calls_of(*live, recording.traces)
        assert (plain, len(before)) == (calls_of("--no-live", out)[0], len(before))
        secrets = [secrets_of(path) for path in recording.traces.glob("*.frec")]
        texts, words = set.union(*(s[0] for s in secrets)), set.union(*(s[1] for s in secrets))
        assert len(texts) > 8 and len(words) > ranks
        if name in ("crash", "sleeper"):  # stacks name modules
            assert any(".so" in text for text in texts)
        assert_clean(copies, texts, words)
        host = harness.os.uname().nodename
        assert f"host-1 = {host}\n" in said and all(path.name.startswith("host-1-") for path in copies)


def test_times_and_joins_stay(tmp_path):
    """Equal things stay equal over all files, and times are what they were."""
    with harness.Recording() as recording:
        recording.run_script(4, SCRIPTS["mismatch"][1], timeout=3)
        harness.remove_live(recording)
        anonymize(tmp_path / "copy", "--no-live", recording.traces)
        before, after = calls_of(recording.traces)[1], calls_of("--no-live", tmp_path / "copy")[1]
        times = ("enter_ns", "exit_ns", "gpu_start_ns", "gpu_end_ns")
        assert [[c.get(t) for t in times] for c in before] == [[c.get(t) for t in times] for c in after]
        for field in ("host", "comm", "comm_name", "stream"):
            pairs = {(b.get(field), a.get(field)) for b, a in zip(before, after)}
            assert len(pairs) == len({b for b, _ in pairs}) == len({a for _, a in pairs}), field
        names = {a.get("comm_name") for a in after} - {None}
        assert names == {"comm-1", "comm-2"}


def test_lines_of_python(tmp_path):
    """Files and functions go, the shape of the stacks and the line numbers stay."""
    with harness.Recording() as recording:
        assert recording.run_python(2, "--steps", 5).status == 0
        anonymize(tmp_path / "copy", recording.traces)
        before = [c.get("stack") for c in recording.dump("--stack")]
        after = [c.get("stack") for c in calls_of("--stack", tmp_path / "copy")[1]]
        frames = [(b, a) for old, new in zip(before, after) for b, a in zip(old or [], new or [])]
        assert len(frames) > 50 and [len(x or []) for x in before] == [len(x or []) for x in after]
        for field in ("file", "function"):
            pairs = {(b[field], a[field]) for b, a in frames if field in b}
            assert len(pairs) == len({b for b, _ in pairs}) == len({a for _, a in pairs})
        assert all(b.get("line") == a.get("line") for b, a in frames)
        texts = {text for b, _ in frames for text in (b.get("file"), b.get("function")) if text and len(text) > 4}
        texts |= {part for text in texts for part in text.split("/") if len(part) > 4}
        assert "reduce_bucket" in texts
        assert_clean(sorted((tmp_path / "copy").glob("*.frec")), texts, set())


def test_two_copies_cannot_be_joined(tmp_path):
    dump = harness.SOURCE / "samples/dumps/healthy"
    for name in ("a", "b"):
        anonymize(tmp_path / name, dump)
    uids = [{c["comm"] for c in calls_of(tmp_path / name)[1] if "comm" in c} for name in ("a", "b")]
    assert uids[0] and not uids[0] & uids[1]


@pytest.mark.sanitize
@pytest.mark.parametrize("name", ["healthy", "mismatch", "missing-rank", "killed"])
def test_recorded_cases(name, tmp_path):
    dump = harness.SOURCE / "samples/dumps" / name
    anonymize(tmp_path / "copy", dump)
    assert verdict_of(dump) == verdict_of(tmp_path / "copy")


@pytest.mark.sanitize
def test_one_rank_only(tmp_path):
    anonymize(tmp_path / "copy", "--rank", "1", harness.SOURCE / "samples/dumps/healthy")
    assert {c["rank"] for c in calls_of(tmp_path / "copy")[1]} == {1}


def test_refusals(tmp_path):
    dump = harness.SOURCE / "samples/dumps/healthy"
    taken = tmp_path / "taken"
    anonymize(taken, dump)
    done = harness.tool(harness.FR_DUMP, "--anonymize", taken, dump)
    assert (done.returncode, done.stderr) == (
        2, f"fr-dump: {taken}: has traces already; name a new directory\n")
    done = harness.tool(harness.FR_DUMP, "--anonymize", tmp_path / "no/such/place", dump)
    assert done.returncode == 2 and done.stderr.endswith("No such file or directory\n")
    done = harness.tool(harness.FR_DUMP, "--anonymize", tmp_path / "empty", tmp_path)
    assert done.returncode == 2 and "no trace" in done.stderr
    done = harness.tool(harness.FR_DUMP, "--anonymize", tmp_path / "x", "--json", dump)
    assert done.returncode == 2 and "choose one of" in done.stderr
