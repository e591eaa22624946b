"""The launcher of the sample jobs: variables, exit statuses, no process left behind."""

import os
import signal
import subprocess
import time
import uuid

import pytest

import harness


def launch(*arguments, **options):
    return subprocess.run([str(harness.LAUNCH), *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          **options)


def running(mark):
    """Processes with this text in their command line."""
    return subprocess.run(["pgrep", "-f", "--", mark], capture_output=True, text=True).stdout.split()


@pytest.mark.parametrize("scheme, variables", [
    ("torchrun", "$RANK $WORLD_SIZE $LOCAL_RANK $TORCHELASTIC_RUN_ID"),
    ("slurm", "$SLURM_PROCID $SLURM_NTASKS $SLURM_LOCALID $SLURM_JOB_ID"),
    ("ompi", "$OMPI_COMM_WORLD_RANK $OMPI_COMM_WORLD_SIZE $OMPI_COMM_WORLD_LOCAL_RANK $OMPI_MCA_ess_base_jobid"),
    ("pmi", "$PMI_RANK $PMI_SIZE $MPI_LOCALRANKID $FREC_JOB_ID"),
])
def test_rank_variables(scheme, variables):
    done = launch("-n", 3, "--scheme", scheme, "--job-id", "j7", "--", "sh", "-c", f"echo {variables}")
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == [f"{rank} 3 {rank} j7" for rank in range(3)]


def test_status_of_the_lowest_failing_rank():
    done = launch("-n", 3, "--", "sh", "-c", "exit $((RANK * 5))")
    assert done.returncode == 5
    assert "rank 2: exit status 10" in done.stderr


def test_signal_is_told():
    done = launch("-n", 2, "--", "sh", "-c", "[ $RANK = 0 ] || kill -11 $$")
    assert done.returncode == 128 + signal.SIGSEGV
    assert "rank 1: died of signal 11" in done.stderr


def test_variable_for_one_rank():
    done = launch("-n", 2, "--env", "1:WHO=one", "--env", "ALL=x", "--", "sh", "-c", "echo $ALL$WHO")
    assert sorted(done.stdout.split()) == ["x", "xone"]


def test_timeout_kills_everything_even_daemons():
    mark = uuid.uuid4().hex
    script = f"(setsid sh -c 'sleep 60; : {mark}' &) ; trap '' TERM; sleep 60; : {mark}"
    began = time.monotonic()
    done = launch("-n", 2, "-t", 0.5, "--", "sh", "-c", script)
    assert done.returncode == harness.TIMED_OUT
    assert time.monotonic() - began < 5
    assert not running(mark)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_rank_outlives_the_launcher(number, tmp_path):
    mark = uuid.uuid4().hex
    process = subprocess.Popen([str(harness.LAUNCH), "-n", "3", "--", "sh", "-c", f"sleep 60; : {mark}"],
                               stderr=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(tmp_path)})
    time.sleep(0.3)
    os.kill(process.pid, number)
    process.wait(10)
    deadline = time.monotonic() + 5
    while running(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(mark)


@pytest.mark.parametrize("arguments", [[], ["-n", "0", "true"], ["-n", "x", "true"], ["-n", "1"],
                                       ["-n", "1", "--env", "novalue", "true"], ["-n", "1", "--scheme", "q", "true"]])
def test_wrong_usage(arguments):
    done = launch(*arguments)
    assert done.returncode == 2
    assert done.stderr
