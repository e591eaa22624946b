"""Ranks that run more than one process: restarts, and what is none."""

import pytest

import harness

HELPER = "init solo ranks={rank} name=solo\nrepeat 5 {{ allreduce solo 64 f32 sum }}\nsync\n{wait}\ndestroy solo\n"
MAIN = "init world\nrepeat 40 { allreduce world 1024 f32 sum; sync; sleep 10 }\ndestroy world\n"


def run_both(recording, command, wait=""):
    """Each rank runs a shell with `command`, which finds the two scripts as $main and $helper.RANK."""
    for rank in range(3):
        (recording.root / f"helper.{rank}").write_text(HELPER.format(rank=rank, wait=wait))
    (recording.root / "main").write_text(MAIN)
    env = dict(run=harness.FR_SCRIPT, helper=recording.root / "helper", main=recording.root / "main")
    job = recording.run(3, ["sh", "-c", command], env=env)
    assert job.status == 0, job.stderr
    return recording.analyze()


def check(status, document, generations):
    assert (status, document["verdict"]["type"]) == (0, "healthy"), document["verdict"]
    assert [(g["processes"], g["ranks"]) for g in document["generations"]] == generations
    assert document["ranks"] == {"expected": 3, "present": [0, 1, 2], "missing": [], "dead": []}


def test_two_processes_of_a_rank_at_once():
    with harness.Recording() as recording:
        status, document = run_both(recording, '$run $helper.$RANK & $run $main && wait', "sleep 300")
    check(status, document, [(6, [0, 1, 2])])
    assert sorted(c["ranks"] for c in document["communicators"] if c["name"] == "solo") == ["0", "1", "2"]


def test_a_check_of_the_machine_before_the_job():
    with harness.Recording() as recording:
        status, document = run_both(recording, 'export FREC_JOB_ID=both; $run $helper.$RANK && $run $main',
                                    "meet helpers")
    check(status, document, [(3, [0, 1, 2]), (3, [0, 1, 2])])
    assert document["generations"][0]["verdict"]["type"] == "healthy"
    assert {c["name"]: c["generation"] for c in document["communicators"]} == {"solo": 0, "": 1}


def test_a_check_that_takes_longer_on_one_rank():
    """It ends when the job has begun on the others, but not on its own rank."""
    with harness.Recording() as recording:
        status, document = run_both(recording, 'export FREC_JOB_ID=both; $run $helper.$RANK && $run $main',
                                    "meet helpers\nrank 1: sleep 500")
    check(status, document, [(3, [0, 1, 2]), (3, [0, 1, 2])])


def test_a_helper_of_one_rank_is_no_generation():
    with harness.Recording() as recording:
        command = 'export FREC_JOB_ID=both; if [ $RANK = 1 ]; then $run $helper.1; fi; $run $main'
        status, document = run_both(recording, command)
    check(status, document, [(4, [0, 1, 2])])


@pytest.mark.skipif(not harness.ELSEWHERE.exists(), reason="built without the sample jobs")
def test_hosts_of_the_run_that_hangs():
    """Rank 1 moved to another host with the restart: the one it left is not to be drained for what it does now."""
    with harness.Recording() as recording:
        for restart, host in enumerate(["left", "there"]):
            recording.run_script(3, """
                init world
                repeat 5 { allreduce world 64 f32 sum; sync }
                except 1: allreduce world 64 f32 sum
                rank 1: sleep 60000
                sync""", timeout=4, rank_env={1: {"ELSEWHERE_HOST": host}}, preload=[harness.ELSEWHERE],
                options=["--job-id", "moved", "--env", f"TORCHELASTIC_RESTART_COUNT={restart}"])
        _, document = recording.analyze()
    assert len(document["generations"]) == 2
    assert document["verdict"]["culprit_ranks"] == [1]
    assert document["verdict"]["culprit_hosts"] == ["there"]


def test_the_census_lists_lineage_and_notes_orders():
    with harness.Recording() as recording:
        job = recording.run_script(4, """
            init world
            split a world 0 name=A
            split b world 0 name=B
            split half world rank/2 name=half
            repeat 5 { allreduce a 64 f32 sum; allreduce b 64 f32 sum stream=1 }
            sync; sync stream=1
            meet before
            except 3: { allreduce a 8 f32 sum; allreduce b 8 f32 sum stream=1 }
            rank 3: { allreduce b 8 f32 sum stream=1; allreduce a 8 f32 sum }
            sync; sync stream=1
            destroy half; destroy b; destroy a; destroy world
        """)
        assert job.status == 0, job.stderr
        status, document = recording.analyze()
        text = harness.tool(harness.FR_ANALYZE, "--census", recording.traces).stdout
    assert (status, document["verdict"]["type"]) == (0, "healthy")
    [difference] = document["order"]["differences"]
    uids = {c["name"]: c["uid"] for c in document["communicators"]}
    assert {difference["a"], difference["b"]} == {uids["A"], uids["B"]}
    assert 3 in (difference["a_first_rank"], difference["b_first_rank"]) and document["order"]["whole"]
    assert "issued in different orders" in document["notes"][0]
    assert "Ops of communicator" in text and "CommSplit of #1" in text
    assert text.count('"half"') == 2 and "2-3" in text
