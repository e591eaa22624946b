"""fr-analyze --tui: real keys in a pseudo terminal, and what is on the screen then.

The screens in screens/ are of the jobs recorded there (screens/record). After a change that is
meant, FR_UPDATE_SCREENS=1 makes them anew; look at the difference.
"""

import difflib
import fcntl
import os
import pty
import random
import re
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest

import harness

pyte = pytest.importorskip("pyte")

SCREENS = Path(__file__).parent / "screens"
FREC_GEN = harness.BUILD / "tests/unit/format/frec-gen"
UPDATE = bool(os.environ.get("FR_UPDATE_SCREENS"))

# What a terminal of type "linux" sends: pyte understands what is written for that type.
KEYS = {"Up": "\x1b[A", "Down": "\x1b[B", "Right": "\x1b[C", "Left": "\x1b[D", "Home": "\x1b[1~", "End": "\x1b[4~",
        "PgUp": "\x1b[5~", "PgDn": "\x1b[6~", "Enter": "\r", "Esc": "\x1b", "Tab": "\t", "Space": " ",
        "F1": "\x1b[[A", "F2": "\x1b[[B", "F3": "\x1b[[C", "F4": "\x1b[[D", "F5": "\x1b[[E", "F6": "\x1b[17~",
        "F7": "\x1b[18~", "F8": "\x1b[19~", "F9": "\x1b[20~", "F10": "\x1b[21~"}


# The bar at the bottom; while traces are read it has F10 alone.
READY = r"^.+F10Quit"


def has_browser():
    return harness.FR_ANALYZE.exists() and (harness.BUILD / "fr-tui").exists()


pytestmark = pytest.mark.skipif(not has_browser(), reason="built without ncursesw")


class Terminal:
    """The browser in a terminal of its own."""

    def __init__(self, directory, *options, columns=80, rows=24, live=False, program=None, **env):
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
        # The setup of whoever runs the tests is no part of them.
        environment.update({"TERM": "linux", "LC_ALL": "C.UTF-8", "XDG_CONFIG_HOME": "/nonexistent", **env})
        self.status = None
        begin, looked = os.pipe()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.read(begin, 1)  # the program changes the terminal's modes at once
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            if program is None:
                program = [harness.FR_ANALYZE, "--tui", *([] if live else ["--no-live"]), *options, directory]
            os.execvpe(program[0], [str(word) for word in program], environment)
        self.before = termios.tcgetattr(self.fd)
        os.write(looked, b"!")
        os.close(begin)
        os.close(looked)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        os.close(self.fd)

    def wait(self, seconds=20):
        """The exit status, -N for signal N."""
        end = time.monotonic() + seconds
        while self.status is None:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            assert time.monotonic() < end, f"does not end\n{self.text()}"
        return self.status

    def alive(self):
        return self.status is None and os.waitpid(self.pid, os.WNOHANG)[0] == 0

    def read(self, seconds):
        """Takes in what comes; False when nothing does."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.stream.feed(data)
        return bool(data)

    def send(self, data):
        os.write(self.fd, data)

    def keys(self, *names):
        for name in names:
            self.send(KEYS.get(name, name).encode())
            # An Esc that is followed at once by another key would be read as one key.
            while self.read(0.12 if name == "Esc" else 0.02):
                pass

    def resize(self, columns, rows):
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        try:
            os.kill(self.pid, signal.SIGWINCH)
        except ProcessLookupError:
            pass

    def text(self):
        return "\n".join(line.rstrip() for line in self.screen.display) + "\n"

    def until(self, what, seconds=20):
        """Reads until the screen fulfils what: a pattern or a function of its text."""
        fits = what if callable(what) else lambda text: re.search(what, text, re.M)
        end = time.monotonic() + seconds
        while not fits(text := self.text()):
            assert time.monotonic() < end, f"no {what} in\n{text}"
            self.read(0.1)
        return text

    def settle(self):
        self.until(READY)
        while self.read(0.6):
            pass
        return self.text()


def normalised(text):
    """Without what differs from machine to machine: paths, and names found in this machine's libraries."""
    text = re.sub(r"^(Trace: +).*", r"\1PATH", text, flags=re.M)
    return re.sub(r"^( *#\d+ ).*", r"\1FRAME", text, flags=re.M)


def check_screen(terminal, name):
    """Waits until the screen is the one kept under this name."""
    path = SCREENS / f"{name}.txt"
    if UPDATE:
        path.write_text(normalised(terminal.settle()))
        return
    wanted = path.read_text()
    try:
        terminal.until(lambda text: normalised(text) == wanted, seconds=20)
    except AssertionError:
        difference = difflib.unified_diff(wanted.splitlines(), normalised(terminal.text()).splitlines(), name, "screen",
                                          lineterm="")
        raise AssertionError("\n".join(difference)) from None


# Per job: keys, and the name of the screen that they lead to.
HEALTHY = ("healthy", "wide")
TOURS = {
    "healthy": [([], "verdict"), (["2"], "comms"), (["Down", "Down", "Enter"], "members"), (["Enter"], "op"),
                (["Enter"], "call"), (["Esc", "Esc", "Esc", "3"], "ranks"), (["Enter"], "ranks-open"),
                (["4"], "time"), (["-", "-", "-"], "time-out"), (["m"], "time-seq"), (["F1"], "help")],
    "sleep": [([], "verdict"), (["F9"], "finding"), (["d"], "diff"), (["Esc", "Esc", "2"], "comms"), (["3"], "ranks"),
              (["Down", "Enter"], "rank"), (["4", "x"], "time-divergence"), (["s"], "time-stuck")],
    "skip": [([], "verdict"), (["Down", "Enter"], "op"), (["Down", "d"], "diff"), (["Esc", "F8"], "time")],
    "deadlock": [([], "verdict"), (["/", "v", "i", "c", "t", "i", "m", "Esc", "Down", "Enter"], "message"),
                 (["Enter"], "call"), (["4"], "time")],
    "order": [([], "verdict"), (["2"], "comms"), (["3"], "ranks"), (["F7"], "diff")],
    "wide": [([], "verdict"), (["2"], "comms"), (["3"], "ranks"), (["Enter"], "ranks-open"), (["4"], "time"),
             (["m"], "time-seq")],
    "wide-sleep": [([], "verdict"), (["2"], "comms"), (["3"], "ranks"), (["F9"], "finding"), (["d"], "diff"),
                   (["Esc", "F8"], "time"), (["s"], "time-stuck"), (["1", "End", "PgUp"], "evidence")],
}


@pytest.mark.parametrize("columns, rows", [(80, 24), (140, 40)])
@pytest.mark.parametrize("job", TOURS)
def test_screens(job, columns, rows):
    with Terminal(SCREENS / job, columns=columns, rows=rows) as terminal:
        for keys, name in TOURS[job]:
            terminal.until(READY)
            terminal.keys(*keys)
            check_screen(terminal, f"{job}-{name}-{columns}x{rows}")
        terminal.keys("Esc", "F10")
        assert terminal.wait() == (0 if job in HEALTHY else 1)


@pytest.mark.sanitize
def test_every_view_of_every_job():
    """No golden screens: also under sanitizers, where it is slow."""
    for job in TOURS:
        with Terminal(SCREENS / job, columns=100, rows=30) as terminal:
            for keys, _ in TOURS[job]:
                terminal.until(READY, seconds=60)
                terminal.keys(*keys)
            terminal.keys("Esc", "q")
            assert terminal.wait(60) == (0 if job in HEALTHY else 1)


def test_differences_need_no_colour():
    with Terminal(SCREENS / "skip", "-C") as terminal:
        terminal.until(READY)
        terminal.keys("Down", "Enter")
        terminal.until("NOT ENTERED")
        terminal.keys("d")
        terminal.until(r"-----  +>  AllReduce")
        colours = {(c.fg, c.bg) for line in terminal.screen.buffer.values() for c in line.values()}
        assert colours == {("default", "default")}


@pytest.mark.parametrize("options, env", [((), {"NO_COLOR": "1"}), (("-C",), {})])
def test_monochrome(options, env):
    with Terminal(SCREENS / "order", *options, **env) as terminal:
        terminal.until(READY)
        for view in "1234":
            terminal.keys(view)
            terminal.settle()
            assert {c.fg for line in terminal.screen.buffer.values() for c in line.values()} == {"default"}


@pytest.mark.parametrize("options, env", [(("-U",), {}), ((), {"LC_ALL": "C"})])
def test_ascii(options, env):
    with Terminal(SCREENS / "deadlock", *options, **env) as terminal:
        terminal.until(READY)
        for view in "1234":
            terminal.keys(view)
            assert terminal.settle().isascii()


def test_search_filter_sort():
    with Terminal(SCREENS / "sleep", columns=140) as terminal:
        terminal.until(READY)
        terminal.keys("3", "t")
        terminal.until(r"^ +0 +waits [^$]*^ +1 +waits [^$]*^ +2 +culprit [^$]*^ +3 +waits ")
        terminal.keys("I")
        terminal.until(r"^ +3 +waits [^$]*^ +2 +culprit [^$]*^ +1 +waits [^$]*^ +0 +waits ")
        terminal.keys("F4", *"culprit")
        terminal.until(lambda text: "culprit" in text and " waits " not in text)
        terminal.keys("Enter", "Enter")
        terminal.until("rank 2 on node-b")
        terminal.keys("Esc", "Esc")
        terminal.until(r" waits ")
        terminal.keys("/", *"node-a")
        terminal.keys("Enter", "Enter")
        terminal.until("rank [01] on node-a")
        terminal.keys("Esc", "F6", *["Down"] * 3, "Enter")
        terminal.until("LAST CALL[△▽]")


def test_communicators_as_a_list():
    with Terminal(SCREENS / "order") as terminal:
        terminal.until(READY)
        terminal.keys("2")
        terminal.until(r"^├─ A [^$]*^└─ B ")
        terminal.keys("t")
        terminal.until(r"^A [^$]*^B [^$]*^c47ebb5b ")


@pytest.mark.sanitize
@pytest.mark.skipif(not harness.ELSEWHERE.exists(), reason="built without the sample jobs")
def test_runs_of_a_job_that_was_restarted():
    """The last one is shown; the others are a key away, and the way back leads through them."""
    with harness.Recording() as recording:
        (recording.root / "first").write_text("init solo name=before\nallreduce solo 64 f32 sum\nsync\n"
                                              "meet all count=2\nexit 3\n")
        (recording.root / "second").write_text("init world name=after\nallreduce world 8 f32 sum\nsync\n"
                                               "split half world rank name=half\ndestroy half\ndestroy world\n")
        recording.run(2, ["sh", "-c", "export FREC_JOB_ID=again; $run $at/first; $run $at/second"], timeout=20,
                      env={"run": harness.FR_SCRIPT, "at": recording.root})
        with Terminal(recording.traces, columns=120, rows=30) as terminal:
            terminal.until(r"^ healthy .*, run 2 of 2 ")
            terminal.until(r"^Earlier runs [^$]*^ +run 1, .* 2 processes: \w+")
            terminal.keys("2")
            text = terminal.until("after")
            assert "before" not in text and "half" in text
            terminal.keys("r")
            text = terminal.until("before")
            assert "after" not in text and "run 1 of 2, earlier: " in text
            terminal.keys("3")
            terminal.until(r"^ 2 ranks: [^$]*exit 3")
            terminal.keys("x", "4", "s", "x", "m", "1")
            terminal.until("An earlier run of this job")
            terminal.keys("3", "Esc", "Esc", "Esc", "Esc", "Esc")
            terminal.until(r"^ healthy .*, run 2 of 2 ")
            assert "before" not in terminal.text()
            terminal.keys("F9", "r", "F9", "4", "r", "d", "Enter", "r", "q")
            terminal.wait()


@pytest.mark.sanitize
@pytest.mark.skipif(not harness.SHIM.exists(), reason="built without the recorder")
@pytest.mark.parametrize("columns, rows", [(80, 24), (140, 40)])
def test_a_fault_while_browsing(columns, rows):
    """The first views follow a job that runs; what is read in detail stands still."""
    job = [harness.FR_TRAIN, "--steps", 10000000, "--step-us", 2000, "--verify-every", 0, "--dp", 2, "--tp", 2,
           "--fault", "sleep:rank=2,at=4000"]
    with harness.Recording() as recording, harness.running(recording, 4, job):
        end = time.monotonic() + 30
        while len(list(recording.traces.glob("*.frec"))) < 4:
            assert time.monotonic() < end
            time.sleep(0.1)
        with Terminal(recording.traces, "--stall-sec", "3", "--live-dir", recording.live, live=True, columns=columns,
                      rows=rows) as terminal:
            terminal.until(r"^ healthy .* of 4, runs ")
            terminal.keys("3", "Down", "Down", "4", "-", "-", "3", "2", "Enter")
            terminal.until(r"\[Members\]")
            terminal.read(2)  # a screen may come in pieces
            members = terminal.text()
            assert "[Members]" in members
            terminal.read(3)
            assert terminal.text() == members
            terminal.keys("Esc", "Z")
            terminal.until("PAUSED")
            terminal.keys("Z", "1")
            terminal.until(r"^ stuck_outside_nccl .* rank 2 +of 4, runs ", seconds=60)
            terminal.until(r"^  to blame: +rank 2$")
            terminal.keys("3")
            terminal.until(r"^ *2 +culprit ")
            terminal.keys("4", "s")
            terminal.until(r"^ +2!")
            terminal.keys("1", "F9", "Esc", "q")
            assert terminal.wait(60) == 1


@pytest.mark.skipif(not harness.SHIM.exists(), reason="built without the recorder")
def test_signals():
    """One-sided calls say whose signal they are about, and which."""
    with harness.Recording() as recording:
        job = recording.run_script(3, "init world\nwindow world 4096\nrank 0: put world 2 9 f32 0 index=3\n"
                                      "rank 1: signal world 2 context=1\nrank 2: waitsignal world 0 index=3\nsync\n",
                                   options=["--lib", harness.NCCL_2_32])
        assert job.status == 0, job.stderr
        with Terminal(recording.traces, columns=140) as terminal:
            terminal.until(READY)
            terminal.keys("3", "t", "Home", "Enter")
            terminal.until("PutSignal 9 f32 to 2 index 3")
            terminal.keys("Esc", "Down", "Enter")
            terminal.until("Signal to 2 index 0 context 1")
            terminal.keys("Esc", "Down", "Enter")
            terminal.until("WaitSignal 1 from 0 index 3")


@pytest.fixture(scope="module")
def skewed():
    """Ranks 2 and 3 on a host whose clock is 3 s ahead; rank 2 calls something else, and all stand still."""
    with harness.Recording() as recording:
        far = {"ELSEWHERE_HOST": "far", "ELSEWHERE_CLOCK_MS": 3000}
        recording.run_script(4, """init world name=world
            repeat 20 { allreduce world 1024 f32 sum; sync; sleep 20 }
            rank 2: allgather world 512 f32
            except 2: allreduce world 1024 f32 sum
            sync""", timeout=4, rank_env={2: far, 3: far}, preload=[harness.ELSEWHERE])
        yield recording.traces


@pytest.mark.skipif(not harness.ELSEWHERE.exists(), reason="built without the sample jobs")
def test_clocks_are_aligned(skewed):
    def first_mark(text, rank):
        (line,) = re.findall(rf"^ +{rank}[! ](?:\S+)(.*)$", text, re.M)
        return len(line) - len(line.lstrip())

    with Terminal(skewed, columns=140, rows=40) as terminal:
        terminal.until(READY)
        terminal.keys("4", *["-"] * 20)
        text = terminal.settle()
        begins = [first_mark(text, rank) for rank in range(4)]
        # The whole job, some seconds, is on the screen: 3 s would be a third of it at least.
        assert max(begins) - min(begins) < 12, text
        # Evidence is found in a trace whose times are others.
        terminal.keys("1", "/", *"rank 2 (host far", "F3", "Esc", "Enter")
        terminal.until(r"^ world, op 21: AllReduce 1,024 f32 sum; 4 entered, 1 differ")
        # One call began everywhere at nearly the same time.
        assert not re.search(r"[+][0-9.]+ s ", terminal.text())
        terminal.keys("Enter")
        terminal.until(r"^ AllGather 512 f32$|^AllGather 512 f32$")
        terminal.keys("Esc", "3", "t", "Home", "Down", "Down", "Enter")
        terminal.until(r"Clock: +this host's is (2[.]9|3[.]0)[0-9] s ahead of the times here")


def test_way_back():
    with Terminal(SCREENS / "sleep") as terminal:
        first = terminal.settle()
        terminal.keys("F9")
        terminal.until(r"\[Op\]")
        terminal.keys("Enter")
        terminal.until(r"\[(Call|Rank)\]")
        terminal.keys("d")
        terminal.until(r"\[Diff\]")
        terminal.keys("Esc", "Esc", "Esc")
        terminal.until(lambda text: text == first)
        terminal.keys("Esc")
        terminal.until(lambda text: text == first)


def test_mouse():
    def click(terminal, line, column):
        # As xterm reports a press and a release of the left button.
        terminal.send(b"\x1b[<0;%d;%dM\x1b[<0;%d;%dm" % (column, line, column, line))
        while terminal.read(0.05):
            pass

    with Terminal(SCREENS / "sleep", TERM="xterm-256color") as terminal:
        terminal.until(READY)
        click(terminal, 3, 30)
        terminal.until("4 ranks: 1 to blame")
        click(terminal, 6, 3)
        click(terminal, 6, 3)
        terminal.until("rank 2 on node-b")
        click(terminal, 24, terminal.screen.display[23].index("F10Quit") + 1)
        assert terminal.wait() == 1


def test_tagged_ranks_are_compared():
    with Terminal(SCREENS / "skip") as terminal:
        terminal.until(READY)
        terminal.keys("Down", "Enter")
        terminal.until("NOT ENTERED")
        terminal.keys("Home", "Down", "Down", "Space", "Space", "d")
        terminal.until(r"left rank 2 .*right rank 3 .* 0 lines differ")


@pytest.mark.sanitize
def test_resize_storm():
    chance = random.Random(7)
    with Terminal(SCREENS / "sleep") as terminal:
        first = terminal.settle()
        sizes = [(1, 1), (300, 90), (2, 60), (200, 2), (19, 5), (20, 5), (1024, 3)]
        sizes += [(chance.randint(1, 200), chance.randint(1, 70)) for _ in range(25)]
        for n, (columns, rows) in enumerate(sizes):
            terminal.resize(columns, rows)
            terminal.keys(chance.choice(["1", "2", "3", "4", "Enter", "Esc", "Down", "d", "F9", "F1", "m", "F6"]))
            assert terminal.alive(), f"gone at size {n}: {columns}x{rows}"
        terminal.resize(80, 24)
        terminal.keys("Esc", "Esc", "Esc", "1", "Home")
        terminal.until(lambda text: text == first, seconds=40)


@pytest.mark.sanitize
@pytest.mark.parametrize("seed", range(3))
def test_garbage_keys(seed):
    chance = random.Random(seed)
    # Not q, nor the keys with which the terminal itself sends signals.
    allowed = bytes(set(range(256)) - set(b"q\x03\x1a\x1c\x13\x11"))
    with Terminal(SCREENS / "order") as terminal:
        terminal.until(READY)
        for _ in range(40):
            terminal.send(bytes(chance.choices(allowed, k=50)))
            while terminal.read(0.01):
                pass
            assert terminal.alive()
        terminal.keys("Esc", "Esc", "Esc", "Esc")
        terminal.until(READY)
        terminal.keys("F10", "F10", "q")
        assert terminal.wait() == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT])
def test_terminal_is_put_back(number):
    with Terminal(SCREENS / "healthy") as terminal:
        terminal.until(READY)
        assert termios.tcgetattr(terminal.fd) != terminal.before
        os.kill(terminal.pid, number)
        assert terminal.wait() == (0 if number == signal.SIGINT else -number)
        assert termios.tcgetattr(terminal.fd) == terminal.before


# What the widgets owe to any program: the browser, and fr-top on traces that are over.
PROGRAMS = {"fr-analyze": [harness.FR_ANALYZE, "--tui", "--no-live", SCREENS / "sleep"],
            "fr-top": [harness.BUILD / "fr-top/fr-top", "--live-dir", "/nonexistent", SCREENS / "sleep"]}


@pytest.mark.sanitize
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_any_keys_and_sizes(program):
    chance = random.Random(11)
    allowed = bytes(set(range(256)) - set(b"qb\x03\x1a\x1c\x13\x11"))
    with Terminal(None, program=program) as terminal:
        terminal.until(READY, seconds=60)
        for _ in range(30):
            terminal.send(bytes(chance.choices(allowed, k=30)))
            terminal.resize(chance.randint(1, 200), chance.randint(1, 70))
            while terminal.read(0.01):
                pass
            assert terminal.alive()
        terminal.resize(80, 24)
        terminal.keys("Esc", "Esc", "Esc", "Esc")
        terminal.until(READY, seconds=60)
        terminal.keys("F10", "F10", "q")
        assert terminal.wait(60) in (0, 1)


@pytest.mark.sanitize
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_suspended_and_continued(program):
    shell = f"{' '.join(map(str, program))}; echo SUSPENDED; sleep 0.5; fg; true"
    with Terminal(None, program=["sh", "-mc", shell]) as terminal:
        terminal.until(READY, seconds=60)
        terminal.send(b"\x1a")
        terminal.until("^SUSPENDED")
        # Drawn anew: nothing is left of what the shell wrote.
        terminal.until(lambda text: "SUSPENDED" not in text and re.search(READY, text, re.M), seconds=60)
        terminal.keys("q")
        assert terminal.wait(60) == 0


@pytest.mark.sanitize
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_terminal_goes_away(program):
    with Terminal(None, program=program) as terminal:
        terminal.until(READY, seconds=60)
        os.close(terminal.fd)
        terminal.fd = os.open("/dev/null", os.O_RDONLY)
        end = time.monotonic() + 60
        while not (ended := os.waitpid(terminal.pid, os.WNOHANG))[0]:
            assert time.monotonic() < end, "does not end"
            time.sleep(0.05)
        terminal.status = os.waitstatus_to_exitcode(ended[1])
        assert terminal.status == -signal.SIGHUP


def test_without_a_terminal():
    plain = harness.tool(harness.FR_ANALYZE, "--no-live", SCREENS / "order")
    tui = harness.tool(harness.FR_ANALYZE, "--no-live", "--tui", SCREENS / "order")
    assert (tui.returncode, tui.stdout) == (plain.returncode, plain.stdout)


def test_unusable_terminal():
    with Terminal(SCREENS / "order", TERM="dumb-and-unknown") as terminal:
        assert terminal.wait() == 2
        assert "fr-analyze:" in terminal.text()


@pytest.mark.skipif(not FREC_GEN.exists(), reason="built without tests")
def test_many_ranks(tmp_path):
    """Equal ranks are one line; a timeline of thousands is read as far as it is shown."""
    subprocess.run([FREC_GEN, "--ranks", "2048", "--ops", "400", "--stop", "77:300", tmp_path], check=True)
    with Terminal(tmp_path) as terminal:
        began = time.monotonic()
        terminal.until(READY, seconds=60)
        first = time.monotonic() - began
        terminal.keys("3")
        terminal.until(r"^[+]0-76 [^$]*^77 [^$]*^[+]78-2047 ")
        terminal.keys("End", "Enter")
        terminal.until(r"^-78-2047")
        terminal.keys("End")
        terminal.until(r"^└─ 2047 ")
        terminal.keys("4", "m")
        terminal.until(r"^ +0 node0 +[A-Z]{20}")
        slowest = 0
        for key in ["PgDn", "PgDn", "-", "+", "Left", "m", "PgUp", "c"]:
            began = time.monotonic()
            terminal.send(KEYS.get(key, key).encode())
            assert terminal.read(10)
            slowest = max(slowest, time.monotonic() - began)
            while terminal.read(0.2):
                pass
        harness.note(f"browser, 2048 ranks: first screen {first:.2f} s, slowest key {slowest * 1000:.0f} ms")
        terminal.keys("q")
        assert terminal.wait() == 0
