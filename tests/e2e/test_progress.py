"""fr-analyze on a job that takes a while: the terminal is painted at once, and can be left meanwhile."""

import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest

import harness

BENCH = harness.BUILD / "tests/bench/bench-analyze"
BUSY = r"Looking for traces: |Reading traces: |Comparing the ranks: "

pytestmark = pytest.mark.skipif(not BENCH.exists(), reason="built without tests")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """1,024 ranks that hang; a second or so of work."""
    traces = tmp_path_factory.mktemp("large")
    subprocess.run([BENCH, "1024", "6000", traces], check=True, stdout=subprocess.DEVNULL)
    return traces


def browser(*arguments, **env):
    module = pytest.importorskip("test_browse")
    if not module.has_browser():
        pytest.skip("built without ncursesw")
    return module.Terminal(*arguments, **env)


def test_painted_while_working(large):
    with browser(large) as terminal:
        terminal.until(lambda text: re.search(BUSY, text) and "F10Quit" in text)
        terminal.until(r"Rank 341 .*made no NCCL call", 60)
        terminal.keys("q")
        assert terminal.wait() == 1


@pytest.mark.parametrize("key", ["q", "F10", "\x03"])
def test_left_while_working(large, key):
    with browser(large) as terminal:
        terminal.until(BUSY)
        terminal.keys(key)
        assert terminal.wait(5) == 3
        assert termios.tcgetattr(terminal.fd) == terminal.before


def test_killed_while_working(large):
    with browser(large) as terminal:
        terminal.until(BUSY)
        os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.wait(5) == -signal.SIGTERM


def test_nothing_to_load(tmp_path):
    with browser(tmp_path, columns=200) as terminal:
        assert terminal.wait() == 2
        while terminal.read(0.2):
            pass
        assert "no trace" in terminal.text()


def read_all(fd, seconds):
    text, end = b"", time.monotonic() + seconds
    while time.monotonic() < end and select.select([fd], [], [], 0.05)[0]:
        text += os.read(fd, 65536)
    return text.decode()


def test_line_on_standard_error(large):
    """What takes more than a second is told, and nothing of it stays. Stopped meanwhile, it takes that long."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([harness.FR_ANALYZE, "--no-live", large], stdout=subprocess.PIPE, stderr=theirs)
    while int(re.search(r"rchar: (\d+)", Path(f"/proc/{process.pid}/io").read_text())[1]) < 300000:
        assert process.poll() is None
    os.kill(process.pid, signal.SIGSTOP)  # it is reading the traces
    time.sleep(1.2)
    os.kill(process.pid, signal.SIGCONT)
    report = process.communicate(timeout=60)[0].decode()
    text = read_all(ours, 5)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 1 and "stuck_outside_nccl" in report
    assert re.match(rf"\r({BUSY})", text) and text.endswith("\r\x1b[K")


def test_no_line_elsewhere(large):
    result = subprocess.run([harness.FR_ANALYZE, "--no-live", large], capture_output=True, text=True)
    assert result.stderr == ""


@pytest.mark.parametrize("delay, back", [("", True), ("4000", False)])
def test_key_that_comes_in_pieces(delay, back):
    """After Esc alone: 20 ms later it goes back, unless the terminal's line is known to tear keys apart."""
    screens = Path(__file__).parent / "screens"
    with browser(screens / "skip", ESCDELAY=delay) as terminal:
        terminal.until("Evidence")
        terminal.keys("3")
        terminal.until(r"^ *RANK")
        terminal.send(b"\x1b")
        time.sleep(0.3)
        terminal.send(b"[B")
        time.sleep(0.3)
        while terminal.read(0.1):
            pass
        assert ("Evidence" in terminal.text()) == back
