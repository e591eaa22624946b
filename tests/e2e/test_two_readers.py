"""What fr-dump says of a real job is what the independent reader finds in its files."""

import json
import re

import harness
from frec_reader import FrecReader

SCRIPT = """
init world name=everybody
split half world rank/2 name=half
redop twice world f32 2
repeat 3000 { allreduce world 1+i%7 f32 twice; broadcast half 64*(i%3+1) bf16 1 }
group { repeat world { send world i i*16+rank f64; recv world i rank*16+i f64 } }
thread { repeat 50 { allgather half 100 i64 } ; sync }
join
sync
destroy half
destroy world
"""


def kinds():
    text = (harness.SOURCE / "librec/rec/model.h").read_text()
    return {int(number): name for number, name in re.findall(r'X\((\d+), [A-Z_]+, "(\w+)"', text)}


def by_reader(path):
    """The calls of one file in fr-dump's words."""
    reader, names, comms, calls = FrecReader(str(path)), kinds(), {}, []
    for event, fields in reader.events():
        if event == "comm":
            comms[fields["id"]] = f"{fields['uid']:016x}"
        elif event == "op":
            calls.append(fields)
    assert reader.closed and not reader.damaged_bytes
    return sorted((c["enter_ns"], c["exit_ns"], names[c["kind"]], reader.meta["pid"], comms.get(c["comm"]),
                   c["count"] if names[c["kind"]] in DATA else None, c["seq"] if names[c["kind"]] in DATA else None)
                  for c in calls)


DATA = harness.COUNTED_OPS - {"CommInitRank", "CommInitRankConfig", "CommSplit"}


def test_same_calls():
    with harness.Recording() as recording:
        job = recording.run_script(4, SCRIPT)
        assert job.status == 0, job.stderr
        dumped = sorted((c["enter_ns"], c["exit_ns"], c["op"], c["pid"], c.get("comm"),
                         c["count"] if c["op"] in DATA else None, c["seq"] if c["op"] in DATA else None)
                        for c in recording.dump())
        read = sorted(call for path in recording.traces.glob("*.frec") for call in by_reader(path))
        assert len(read) > 4 * 6000
        assert dumped == read


def test_metadata():
    with harness.Recording() as recording:
        assert recording.run_script(2, "init world\ndestroy world\n", options=["--scheme", "slurm"]).status == 0
        metas = [FrecReader(str(path)).meta for path in recording.traces.glob("*.frec")]
        assert sorted(meta["rank"] for meta in metas) == [0, 1]
        for meta in metas:
            assert meta["world_size"] == 2
            assert meta["rank_source"] == "SLURM_PROCID"
            assert meta["job"]["source"] == "SLURM_JOB_ID"
            assert meta["cmdline"][0].endswith("fr-script")
            assert json.dumps(meta)
