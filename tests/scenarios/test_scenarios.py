"""Runs every case of this directory: a small job that really blocks, and the verdict that is right.

A case is a TOML file:

    source, title       where the bug comes from, what happens
    ranks, timeout      processes; seconds after which all that still run are killed (4.3: signs of life are written
                        to files every 2 s, so these tell of 4 s)
    job                 a script for fr-script, or
    train               arguments of fr-train, or
    python              arguments of samples/jobs/pytrain
    before              the job's first run, which the launcher restarts: {job, ends, timeout, ranks} as here
    env, rank_env       variables for all ranks, and by rank
    ends                "hang" (the timeout strikes), "ok" (all exit with 0), "fails",
                        "any" (where NCCL may do this or that)
    hosts               {name: {ranks = [...], clock_ms = N}}: these ranks seem to run on another host, whose
                        clock is ahead by so much
    scheme              of launch: whose rank variables are set
    nccl                "2.32": on the lab's library of that release
    sanitize            also run on the builds with sanitizers
    remove_rank         traces of this rank are deleted before the analysis
    [expect]
    status              exit status of fr-analyze
    type                verdict type, or several that are right
    culprits            exactly these ranks are blamed
    never               blaming one of these anywhere is a failure
    seq                 where the verdict points to
    text                patterns that the summary or the evidence must contain
    notes               patterns that the notes must contain
    generations         of a restarted job
    past                {type, culprits} of the one before the last
    clocks              {host: ms}: by how much its clock is ahead of the first one's; within 5 ms, and within
                        the uncertainty that is told
    lineage             {communicator: parent}, by name or the call that made it
    advice              {type, ranks}: a finding that must be there beside the verdict
    suspects            ranks named as possible only
    xfail               why the answer is not right yet
    [files]             what else to expect where only the files are left
"""

import re
import tomllib
from pathlib import Path

import pytest

import harness

CASES = sorted(Path(__file__).parent.glob("*.toml"))
FAULT_FREE = {"healthy", "straggler", "trace_missing", "inconclusive"}


def load(path):
    case = tomllib.loads(path.read_text())
    marks = [pytest.mark.sanitize] if case.get("sanitize") else []
    if "xfail" in case["expect"]:
        marks.append(pytest.mark.xfail(reason=case["expect"]["xfail"], strict=False))
    return pytest.param(case, id=path.stem, marks=marks)


def run(case, recording):
    rank_env = {rank: dict(env) for rank, env in case.get("rank_env", {}).items()}
    for host, where in case.get("hosts", {}).items():
        for rank in where["ranks"]:
            rank_env.setdefault(str(rank), {}).update(ELSEWHERE_HOST=host, ELSEWHERE_CLOCK_MS=where.get("clock_ms", 0))
    launch = ["--scheme", case.get("scheme", "torchrun")]
    options = dict(timeout=case.get("timeout", 4.3), env=case.get("env"), rank_env=rank_env, options=launch,
                   preload=[harness.ELSEWHERE] if "hosts" in case else [])
    if case.get("nccl") == "2.32":
        launch += ["--lib", harness.NCCL_2_32]
    if "train" in case:
        return recording.run(case["ranks"], [harness.FR_TRAIN, *case["train"]], **options)
    if "before" in case:
        first = {**{k: v for k, v in case.items() if k != "before"}, **case["before"], "restart": 0}
        check_end(first, run(first, recording))
        case = {**case, "restart": 1}
    if "restart" in case:
        launch += ["--job-id", "scenario", "--env", f"TORCHELASTIC_RESTART_COUNT={case['restart']}"]
    if "python" in case:
        del options["options"]
        return recording.run_python(case["ranks"], *case["python"], **options)
    return recording.run_script(case["ranks"], case["job"], **options)


def check_end(case, job):
    if case["ends"] == "hang":
        assert job.status == harness.TIMED_OUT, f"the job did not hang: {job.stderr}"
    elif case["ends"] == "ok":
        assert job.status == 0, job.stderr
    elif case["ends"] == "fails":
        assert job.status not in (0, harness.TIMED_OUT), job.stderr


def remove_rank(recording, rank):
    """As if the trace had never been collected: neither file nor live region."""
    pids = {call["pid"] for call in recording.dump() if call["rank"] == rank}
    assert len(pids) == 1, f"rank {rank} has left no trace"
    pid = pids.pop()
    for path in [*recording.traces.glob(f"*-{pid}*.frec"), *recording.live.glob(f"**/{pid}-*.live")]:
        path.unlink()


def wording(document):
    """Everything that a person would read of the verdict."""
    verdict = document["verdict"]
    return "\n".join([verdict["summary"], *(e if isinstance(e, str) else e["text"] for e in verdict["evidence"])])


def check_lineage(lineage, communicators):
    names = {c["uid"]: c["name"] or c["made_by"] for c in communicators}
    found = {names[c["uid"]]: names[c["parent"]] for c in communicators if "parent" in c}
    assert {child: found.get(child) for child in lineage} == lineage, found


def check_verdict(expect, status, document):
    verdict, findings = document["verdict"], document["findings"]
    said = f"{verdict['type']}: {verdict['summary']}"
    types = expect["type"] if isinstance(expect["type"], list) else [expect["type"]]
    assert verdict["type"] in types, said
    assert sorted(verdict["culprit_ranks"]) == expect.get("culprits", []), said
    assert status == expect["status"], said
    for finding in findings:
        if finding["type"] not in FAULT_FREE:
            blamed = set(finding["culprit_ranks"]) & set(expect.get("never", []))
            assert not blamed, f"{sorted(blamed)} blamed: {finding['type']}: {finding['summary']}"
    if "seq" in expect:
        assert verdict["seq"] == expect["seq"], said
    for pattern in expect.get("text", []):
        assert re.search(pattern, wording(document), re.IGNORECASE), f"no {pattern!r} in {wording(document)}"
    if "advice" in expect:
        wanted = (expect["advice"]["type"], expect["advice"]["ranks"])
        assert wanted in [(f["type"], f["culprit_ranks"]) for f in findings], findings
    for pattern in expect.get("notes", []):
        assert re.search(pattern, "\n".join(document["notes"])), f"no {pattern!r} in {document['notes']}"
    assert len(document["generations"]) == expect.get("generations", 1)
    if "past" in expect:
        past = document["generations"][-2]["verdict"]
        assert (past["type"], past["culprit_ranks"]) == (expect["past"]["type"], expect["past"]["culprits"]), past
    for host, ms in expect.get("clocks", {}).items():
        clock = next(c for c in document["clocks"] if c["host"] == host)
        error = abs(clock["offset_ns"] - ms * 1_000_000)
        harness.note(f"clock of {host}: off by {error / 1e6:.3f} ms, told ±{clock['uncertainty_ns'] / 1e6:.3f} ms")
        assert error <= clock["uncertainty_ns"] and error < 5_000_000, clock
    check_lineage(expect.get("lineage", {}), document["communicators"])
    if "suspects" in expect:
        assert verdict.get("suspect_ranks") == expect["suspects"], said


@pytest.mark.parametrize("case", [load(path) for path in CASES])
def test_scenario(case):
    with harness.Recording() as recording:
        job = run(case, recording)
        check_end(case, job)
        if "remove_rank" in case:
            remove_rank(recording, case["remove_rank"])
        check_verdict(case["expect"], *recording.analyze())
        # On another machine there are only the files, at most 250 ms behind.
        harness.remove_live(recording)
        check_verdict({**case["expect"], **case.get("files", {})}, *recording.analyze())
