"""Wrong input gives the tools' one-line error and exit status 2, and never a crash."""

import os
import shutil
import struct
import zlib

import pytest

import harness

TOOLS = [harness.FR_DUMP, harness.FR_ANALYZE]
names = [tool.name for tool in TOOLS]


@pytest.fixture(scope="module")
def recorded():
    """Two healthy jobs with different ids, in directories of their own."""
    with harness.Recording() as one, harness.Recording() as two:
        for recording, job_id in ((one, "job-one"), (two, "job-two")):
            job = recording.run(2, [harness.FR_TRAIN, "--steps", "20"], options=["--job-id", job_id])
            assert job.status == 0, job.stderr
        yield one.traces, two.traces


def assert_refused(done, *expected):
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    lines = done.stderr.splitlines()
    assert lines and lines[0].startswith(f"{os.path.basename(done.args[0])}: "), done.stderr
    for text in expected:
        assert text in done.stderr
    assert "Sanitizer" not in done.stderr


def assert_survived(done, where):
    assert done.returncode in (0, 1, 2, 3), f"{where}: {done.stderr[-3000:]}"


@pytest.mark.sanitize
@pytest.mark.parametrize("program", TOOLS, ids=names)
class TestBadInput:
    def test_nonexistent(self, program, tmp_path):
        path = tmp_path / "nothing"
        done = harness.tool(program, path)
        assert_refused(done, str(path), "No such file")
        assert len(done.stderr.splitlines()) == 1

    def test_directory_without_traces(self, program, tmp_path):
        (tmp_path / "readme.txt").write_text("no trace")
        assert_refused(harness.tool(program, tmp_path), str(tmp_path))

    @pytest.mark.parametrize("content", [b"", b"x", b"This is a text and not a trace.\n" * 100, os.urandom(5000)],
                             ids=["empty", "byte", "text", "random"])
    def test_not_a_trace(self, program, tmp_path, content):
        path = tmp_path / "host-1.frec"
        path.write_bytes(content)
        assert_refused(harness.tool(program, path), str(path))

    def test_unreadable_kind_of_file(self, program, tmp_path):
        os.mkfifo(tmp_path / "fifo.frec")
        assert_refused(harness.tool(program, tmp_path))

    def test_usage(self, program):
        assert harness.tool(program, "--no-such-option").returncode == 2
        assert harness.tool(program).returncode == 2

    def test_help_and_version(self, program):
        for option in ("--help", "--version"):
            done = harness.tool(program, option)
            assert done.returncode == 0 and program.name in done.stdout and not done.stderr

    def test_newer_major_version(self, program, recorded, tmp_path):
        path = next(recorded[0].glob("*.frec"))
        data = bytearray(path.read_bytes())
        struct.pack_into("<H", data, 8, struct.unpack_from("<H", data, 8)[0] + 1)
        struct.pack_into("<I", data, 60, zlib.crc32(data[:60]))
        (tmp_path / path.name).write_bytes(data)
        assert_refused(harness.tool(program, tmp_path / path.name), "newer")

    def test_every_truncation_is_survived(self, program, recorded, tmp_path):
        source = next(recorded[0].glob("*.frec"))
        data = source.read_bytes()
        for size in range(0, len(data), max(1, len(data) // 25)):
            path = tmp_path / source.name
            path.write_bytes(data[:size])
            assert_survived(harness.tool(program, path), size)

    def test_flipped_bytes_are_survived(self, program, recorded, tmp_path):
        source = next(recorded[0].glob("*.frec"))
        for offset in range(0, source.stat().st_size, max(1, source.stat().st_size // 40)):
            data = bytearray(source.read_bytes())
            data[offset] ^= 0x5A
            path = tmp_path / source.name
            path.write_bytes(data)
            assert_survived(harness.tool(program, path), offset)


def test_mixed_jobs_are_listed_and_chosen(recorded, tmp_path):
    for directory in recorded:
        for path in directory.glob("*.frec"):
            shutil.copy(path, tmp_path)
    done = harness.tool(harness.FR_ANALYZE, tmp_path)
    assert_refused(done, "job-one", "job-two")
    for job in ("job-one", "job-two"):
        status, document = harness.analyze("--job", job, tmp_path)
        assert status == 0 and document["ranks"]["expected"] == 2
        assert document["input"]["files"] == 2
    assert_refused(harness.tool(harness.FR_ANALYZE, "--job", "job-three", tmp_path), "job-three")
    assert harness.analyze("--job", "latest", tmp_path)[0] == 0


def test_two_directories_make_one_job(recorded):
    done = harness.tool(harness.FR_ANALYZE, "--json", *recorded)
    assert_refused(done, "job-one", "job-two")
