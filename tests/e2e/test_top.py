"""fr-top on running jobs: snapshots, metrics, and the screen in a real terminal (tmux)."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

import harness

FR_TOP = harness.BUILD / "fr-top/fr-top"
RANKS = 4
FOREVER = ["--steps", "10000000", "--step-us", "2000", "--verify-every", "0", "--dp", "2", "--tp", "2"]
sockets = itertools.count()
PROMPT = r"^[#$] *$"

pytestmark = pytest.mark.skipif(not FR_TOP.exists(), reason="built without ncursesw")


def running(recording, *arguments, seconds=120):
    """A job in the background that goes on for ever, unless arguments break it."""
    return harness.running(recording, RANKS, [harness.FR_TRAIN, *FOREVER, *arguments], seconds=seconds,
                           options=["--job-id", "job 1"])


def snapshot(recording, *options):
    done = harness.tool(FR_TOP, "--json", *options, env=recording.env())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def wait_for(what, seconds=40):
    """The first true value of what()."""
    end = time.monotonic() + seconds
    while not (value := what()):
        assert time.monotonic() < end, "did not come"
        time.sleep(0.1)
    return value


def when(recording, condition, *options, seconds=40):
    """The first snapshot for which condition holds."""
    def look():
        document = snapshot(recording, *options)
        return document if condition(document) else None
    return wait_for(look, seconds)


def all_run(document):
    return document["totals"]["up"] == RANKS and all(r["ops"] > 100 for r in document["ranks"])


def states(document):
    return {rank["rank"]: rank["state"] for rank in document["ranks"]}


@pytest.mark.sanitize
def test_running_job():
    with harness.Recording() as recording, running(recording):
        document = when(recording, all_run)
        assert document["schema"] == "fr-top/1"
        assert document["job"] == "job 1"
        assert [r["rank"] for r in document["ranks"]] == list(range(RANKS))
        assert document["totals"]["expected_ranks"] == RANKS
        assert document["totals"]["ops_per_s"] > 0 and document["totals"]["bytes_per_s"] > 0
        assert document["totals"]["lost_ops"] == 0
        (world,) = [c for c in document["communicators"] if c["nranks"] == RANKS]
        assert [m["rank"] for m in world["members"]] == list(range(RANKS))
        assert world["spread"] == max(m["next_seq"] for m in world["members"]) - min(
            m["next_seq"] for m in world["members"])
        # The same through the directory; nothing through another one.
        assert len(snapshot(recording, recording.traces)["ranks"]) == RANKS
        assert snapshot(recording, recording.root)["ranks"] == []
        text = harness.tool(FR_TOP, "--once", env=recording.env()).stdout
        assert re.search(r"^ranks 4 up of 4, 0 stalled, 0 ended", text, re.M)
        assert len(re.findall(r"^ +[0-3] \S+ +\d+ (running|in_call|idle) ", text, re.M)) == RANKS


@pytest.mark.sanitize
def test_late_rank():
    with harness.Recording() as recording, running(recording, "--fault", "sleep:rank=2,at=300"):
        document = when(recording, lambda d: set(states(d).values()) == {"late", "stalled"}, "--stall", "1")
        assert [rank for rank, state in states(document).items() if state == "late"] == [2]
        ranks = {rank["rank"]: rank for rank in document["ranks"]}
        assert ranks[2]["lag"] >= 1
        # What it called last is over on the GPU; somebody's is not.
        assert ranks[2]["last"]["state"] == "completed" and ranks[2]["gpu_pending"] == 0
        assert any(r["gpu_pending"] and r["last"]["state"] in ("enqueued", "gpu_started") for r in ranks.values())
        # The same engine as fr-analyze.
        document = when(recording, lambda d: d["verdict"]["status"] == "fault", "--stall", "1")
        _, verdict = harness.analyze("--stall-sec", "1", "--live-dir", recording.live, recording.traces)
        told = document["verdict"]
        assert (told["type"], told["culprit_ranks"]) == (verdict["verdict"]["type"], [2])
        assert {r["rank"]: r.get("role") for r in document["ranks"]}[2] == "culprit"
        text = harness.tool(FR_TOP, "--once", "--stall", "1", env=recording.env()).stdout
        assert f"\nverdict: {told['type']} (" in text
        assert "verdict" not in snapshot(recording, "--no-verdict")


@pytest.mark.parametrize("fault, state, end", [("kill", "dead", "gone"), ("crash", "crashed", "SIGSEGV")])
def test_ended_rank(fault, state, end):
    with harness.Recording() as recording, running(recording, "--fault", f"{fault}:rank=1,at=300"):
        document = when(recording, lambda d: states(d).get(1) == state)
        rank = next(r for r in document["ranks"] if r["rank"] == 1)
        assert rank["end"].startswith(end)
        assert document["totals"]["ended"] == 1


def test_stopped_rank():
    with harness.Recording() as recording, running(recording):
        document = when(recording, all_run)
        pid = document["ranks"][3]["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            when(recording, lambda d: states(d)[3] == "silent")
        finally:
            os.kill(pid, signal.SIGCONT)
        when(recording, lambda d: states(d)[3] != "silent")


def test_other_host():
    """Traces alone tell the same, more or less: as if the job ran elsewhere."""
    with harness.Recording() as recording, running(recording, "--fault", "sleep:rank=2,at=300"):
        stuck = {"late", "stalled"}
        when(recording, lambda d: set(states(d).values()) == stuck, "--stall", "1")
        document = when(recording, lambda d: set(states(d).values()) == stuck, "--live-dir", recording.root, "--stall",
                        "1", recording.traces)
        assert states(document)[2] == "late"
        near = {c["comm"]: c["front_seq"] for c in snapshot(recording)["communicators"]}
        assert {c["comm"]: c["front_seq"] for c in document["communicators"]} == near


def metrics_of(text):
    """A strict reader of what OpenMetrics 1.0 allows of the forms used here."""
    assert text.endswith("# EOF\n")
    families, samples, current = {}, {}, None
    for line in text.splitlines()[:-1]:
        if m := re.fullmatch(r"# (TYPE|UNIT|HELP) ([a-z_]+) (.+)", line):
            if m[1] == "TYPE":
                assert m[2] not in families, "families must not interleave"
                current = m[2]
                families[current] = m[3]
            else:
                assert m[2] == current
            if m[1] == "UNIT":
                assert current.endswith("_" + m[3])
            continue
        m = re.fullmatch(r'([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\]|\\.)*",?)*\})? (\S+)', line)
        assert m, line
        assert m[1] == current + ("_total" if families[current] == "counter" else "")
        key = m[1] + (m[2] or "")
        assert key not in samples
        samples[key] = float(m[3])
    return samples


def test_openmetrics():
    with harness.Recording() as recording, running(recording):
        when(recording, all_run)
        path = recording.root / "frec.prom"
        exporter = subprocess.Popen([FR_TOP, "-d", "0.2", "--openmetrics", path], env=recording.env(),
                                    stdout=subprocess.DEVNULL)
        try:
            wait_for(path.exists)
            first = metrics_of(path.read_text())
            ops = [k for k in first if k.startswith("frec_ops_total")]
            assert len(ops) == RANKS and all('job="job 1"' in k for k in ops)
            wait_for(lambda: all(metrics_of(path.read_text())[k] > first[k] for k in ops))
        finally:
            exporter.terminate()
        assert exporter.wait() == 0
        assert [p.name for p in recording.root.glob("frec.prom*")] == ["frec.prom"]


@pytest.mark.parametrize("arguments, message", [
    (["/no/such"], "fr-top: /no/such: No such file or directory"),
    (["/etc/passwd"], "fr-top: /etc/passwd: Not a directory"),
    (["a", "b"], "fr-top: one directory at most"),
    (["--delay", "0"], "fr-top: --delay: '0' is no number of seconds from 0.1 to 3600"),
    (["--once", "--openmetrics", "/no/such/file"], "fr-top: /no/such/file: No such file or directory"),
])
def test_errors(arguments, message, tmp_path):
    done = harness.tool(FR_TOP, "--live-dir", tmp_path, *arguments)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == message
    assert done.stdout == ""


# ---- the screen ----


class Screen:
    """A shell in a terminal of its own, and fr-top in it."""

    def __init__(self, recording, columns=80, rows=24, **env):
        self.socket = f"fr-top-{os.getpid()}-{next(sockets)}"
        environment = recording.env(**{"PS1": "$ ", "LC_ALL": "C.UTF-8", "XDG_CONFIG_HOME": recording.root / "config",
                                       **env})
        for name in ("TMUX", "NO_COLOR"):
            if name not in env:
                environment.pop(name, None)
        subprocess.run(["tmux", "-L", self.socket, "-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y",
                        str(rows), "sh"], env=environment, check=True, cwd=recording.root)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["tmux", "-L", self.socket, "kill-server"], check=False)

    def tmux(self, *arguments):
        return subprocess.run(["tmux", "-L", self.socket, *arguments], check=True, capture_output=True, text=True).stdout

    def start(self, *arguments):
        self.type(" ".join(["clear;", str(FR_TOP), *map(str, arguments)]))
        self.keys("Enter")
        return self.until("F10Quit")

    def type(self, text):
        self.tmux("send-keys", "-l", text)

    def keys(self, *names):
        self.tmux("send-keys", *names)

    def resize(self, columns, rows):
        self.tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def text(self, *options):
        return self.tmux("capture-pane", "-p", *options)

    def until(self, pattern, seconds=40):
        """The screen once it shows pattern."""
        def look():
            text = self.text()
            return text if re.search(pattern, text, re.M) else None
        try:
            return wait_for(look, seconds)
        except AssertionError:
            raise AssertionError(f"no '{pattern}' in\n{self.text()}") from None


needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux")


@pytest.fixture(scope="module")
def job():
    with harness.Recording() as recording, running(recording, seconds=300):
        when(recording, all_run)
        yield recording


@needs_tmux
@pytest.mark.parametrize("columns, rows", [(80, 24), (140, 40), (300, 90)])
def test_screen_views(job, columns, rows):
    with Screen(job, columns, rows) as screen:
        text = screen.start()
        lines = text.splitlines()
        assert "4/4 up]" in lines[0] and "Job: job 1" in lines[0]
        assert re.search(r"^ *RANK△ +HOST +STATE +VERDICT +OP +AT +FOR +COMM +SEQ +LAG", text, re.M)
        assert len(re.findall(r"^ +[0-3] \S+ +(running|in_call|idle) ", text, re.M)) == RANKS
        assert lines[-1].startswith("F1Help"), text
        screen.keys("Tab")
        screen.until(r"^tensor .* 2/2 ")
        screen.keys("t")
        screen.until(r"^-\w+ +4/4 [^$]*├─-\w+ +2/2 [^$]*├─ rank 0 ")
        screen.keys("3", "F5")
        screen.until(r"└─ rank 3 (running|in_call|idle)")
        screen.keys("4")
        screen.until(r"^AllReduce +4 +[0-9.]+k? ")
        screen.keys("t")
        screen.until(r"└─ rank 3 \S+ +[0-9.]+k? ")
        screen.keys("5")
        screen.until(r"^ +0 \S+ +[█▒·]+$")
        screen.keys("F1")
        screen.until(r"F10 q +quit|fr-top: keys")
        screen.keys("Escape")
        screen.keys("1")
        screen.until("RANK△")
        screen.keys("Down", "Enter")
        screen.until(r"Rank 1 on \S+, pid \d+: ")
        screen.keys("q")
        screen.until("RANK△")


@pytest.mark.sanitize
@needs_tmux
def test_screen_sort_search_filter(job):
    with Screen(job) as screen:
        screen.start()
        screen.keys("I")
        screen.until(r"RANK▽[^$]*^ +3 [^$]*^ +0 ")
        screen.keys("F6")
        screen.until("^Sort by")
        screen.keys("End", "Enter")
        screen.keys("<")
        screen.until("^Sort by")
        screen.keys("Escape")
        screen.keys("1", "\\")
        screen.type("nothing like this")
        screen.until("Filter: nothing like this")
        assert not re.search(r"^ +[0-3] \S+ +(running|in_call|idle) ", screen.text(), re.M)
        screen.keys("Escape")
        screen.until(r"^ +3 \S+ +(running|in_call|idle) ")
        screen.keys("/")
        screen.type("zzz")
        screen.until("not found")
        screen.keys("Enter", "Z")
        screen.until("PAUSED")
        screen.keys("Z", "F10")
        screen.until(PROMPT)


@pytest.mark.sanitize
@needs_tmux
@pytest.mark.parametrize("columns, rows", [(80, 24), (140, 40)])
def test_fault_while_watching(columns, rows):
    """The verdict comes by itself, and the browser opens on it and gives the screen back."""
    with harness.Recording() as recording, \
            running(recording, "--fault", "sleep:rank=2,at=1500"), \
            Screen(recording, columns, rows) as screen:
        when(recording, all_run, "--no-verdict")
        screen.start("--stall", "2")
        screen.until(r"^ Verdict: healthy, as of ")
        screen.until(r"^ Verdict: stuck_outside_nccl \([a-z]+\): rank 2 ", seconds=60)
        screen.until(r"^ +2 \S+ +late +culprit ")
        screen.until(r"^ +[013] \S+ +stalled +waits ")
        screen.keys("Home", "Enter")
        screen.until(r"^Rank 0 on \S+, pid \d+: stalled; verdict: waits")
        screen.until(r"^Launches that the GPU has not finished: \d+")
        screen.keys("Escape")
        screen.until(r"^ +2 \S+ +late +culprit ")
        screen.keys("F9")
        screen.until(r"^ stuck_outside_nccl .* rank 2 +of 4")
        screen.keys("3")
        screen.until(r"^2 +culprit ")
        screen.keys("q")
        screen.until(r"^ +2 \S+ +late +culprit ")
        screen.keys("q")
        screen.until(PROMPT)


@needs_tmux
def test_setup_is_kept(job):
    config = job.root / "config"
    for columns in ("HOST STATE VERDICT OP", "HOST VERDICT OP"):
        with Screen(job, XDG_CONFIG_HOME=str(config)) as screen:
            screen.start()
            screen.until(r"^ *RANK△ +" + columns.replace(" ", " +"))
            screen.keys("F2", "Down", "Down", "Space")
            screen.until(r"^\[ \] STATE" if "STATE" in columns else r"^\[x\] STATE")
            screen.keys("Escape")
            screen.until("F10Quit")
            screen.keys("q")
            screen.until(PROMPT)
    assert (config / "flight-recorder/fr-top.conf").read_text().startswith("Ranks.hide =\n")


@needs_tmux
def test_screen_without_colour_and_unicode(job):
    with Screen(job, NO_COLOR="1") as screen:
        screen.start("-U")
        screen.keys("2", "t")
        text = screen.until(r"^\| [|`]- rank 0 ")
        assert text.isascii()
        assert not re.search(r"\x1b\[[0-9;]*[34][0-7]m", screen.text("-e"))


@pytest.mark.sanitize
@needs_tmux
def test_screen_sizes(job):
    with Screen(job) as screen:
        screen.start("-d", "0.2")
        for columns, rows in [(40, 10), (1, 1), (17, 3), (200, 5), (30, 60), (2, 40), (80, 24)]:
            screen.resize(columns, rows)
            time.sleep(0.3)
            assert len(screen.text().splitlines()) <= rows
        screen.resize(19, 4)
        screen.until("too small")
        screen.resize(80, 24)
        text = screen.until(r"^F1Help")
        assert text.splitlines()[0].rstrip().endswith(("s", "1"))
        assert len(re.findall("RANK", text)) == 1, text  # nothing is left over


@needs_tmux
def test_terminal_is_put_back(job):
    with Screen(job) as screen:
        screen.type("stty -a > before\n")
        pid_file = job.root / "pid"
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGABRT):
            screen.type(f"clear; sh -c 'echo $$ > {pid_file}; exec {FR_TOP}'; echo ended $?; stty -a > after\n")
            screen.until("F10Quit")
            os.kill(int(pid_file.read_text()), number)
            text = screen.until(r"^ended \d+")
            expected = 0 if number == signal.SIGINT else 128 + number
            assert f"ended {expected}" in text, text
            wait_for(lambda: (job.root / "after").exists() and
                     (job.root / "after").read_text() == (job.root / "before").read_text())
            pid_file.unlink()
            (job.root / "after").unlink()


@needs_tmux
def test_suspend(job):
    with Screen(job) as screen:
        screen.type("set -m\n")
        screen.start()
        screen.keys("C-z")
        screen.until("Stopped|Suspended")
        assert "F10Quit" not in screen.text()
        screen.type("fg\n")
        screen.until(r"^F1Help")
        screen.keys("q")
        screen.until(PROMPT)
