"""The line of code behind every call, from a Python job and from a native one to the tools."""

import json
import re
import subprocess
from pathlib import Path

import pytest

import harness
from frec_reader import FrecReader

LAB = harness.BUILD / "samples/hostgpu"
LINES = {line.strip(): (path.name, number)
         for path in harness.PYTRAIN.parent.glob("*.py")
         for number, line in enumerate(path.read_text().splitlines(), 1)}


def place(text, function):
    """'ddp.py:14 in reduce_bucket' for the line that reads so."""
    file, number = LINES[text]
    return f"{file}:{number} in {function}"


BACKWARD = place("self.comm.all_reduce(bucket)", "reduce_bucket")
LOSS = place("self.comm.all_reduce(1)", "mean_loss")
SAVE = place("self.model.comm.all_gather(4096, pynccl.FLOAT16)", "save_checkpoint")


def test_python_lines():
    with harness.Recording() as recording:
        job = recording.run_python(2, "--steps", 20)
        assert job.status == 0, job.stderr
        calls = recording.dump("--stack")
        data = [c for c in calls if c["op"] in ("AllReduce", "AllGather")]
        assert len(data) == 2 * (20 * 5 + 2)
        for call in data:
            expected = SAVE if call["op"] == "AllGather" else LOSS if call["count"] == 1 else BACKWARD
            assert call["site"] == expected
            stack = call["stack"]
            assert [f["function"] for f in stack[-3:]] == ["train", "main", "<module>"]
            assert Path(stack[0]["file"]) == harness.PYTRAIN.parent / "pynccl.py"
            for frame in stack:
                text = Path(frame["file"]).read_text().splitlines()[frame["line"] - 1]
                assert text.strip() and not text.strip().startswith(("#", '"""', "def "))
        init, = {c["site"] for c in calls if c["op"] == "CommInitRank"}
        assert init == "pytrain.py:%d in main" % LINES[
            "comm = pynccl.Communicator(pynccl.Libraries(), rank, nranks, max(BUCKETS))"][1]
        destroyed, = {c["site"] for c in calls if c["op"] == "CommDestroy"}
        assert destroyed == place("comm.close()", "main")
        text = harness.tool(harness.FR_DUMP, "--stack", recording.traces).stdout
        assert text.count("    at ") == sum(len(c.get("stack", [])) for c in calls)


@pytest.mark.parametrize("frames", [1, 3])
def test_depth(frames):
    with harness.Recording() as recording:
        job = recording.run_python(1, "--steps", 3, env={"FREC_PYFRAMES": frames})
        assert job.status == 0, job.stderr
        stacks = [c["stack"] for c in recording.dump("--stack") if c["op"] == "AllReduce"]
        assert len(stacks) == 15 and all(len(stack) == frames for stack in stacks)


def test_off():
    with harness.Recording() as recording:
        job = recording.run_python(1, "--steps", 3, env={"FREC_PYFRAMES": 0})
        assert job.status == 0, job.stderr
        calls = recording.dump("--stack")
        assert len(calls) > 15 and not [c for c in calls if "stack" in c or "site" in c]


INTERPRETERS = sorted([*Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python3"),
                       *Path("/usr/bin").glob("python3.[0-9]*[0-9]"), *Path("/usr/local/bin").glob("python3.[0-9]*[0-9]")])


@pytest.mark.parametrize("interpreter", INTERPRETERS, ids=str)
def test_interpreters(interpreter):
    """Each CPython of the machine: its lines, or the reason why there are none."""
    asked = subprocess.run([interpreter, "-c", "import ctypes, sys; print(*sys.version_info[:2], sys.abiflags)"],
                           capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        pytest.skip("no ctypes")
    version = tuple(map(int, asked.stdout.split()[:2]))
    free_threaded = "t" in "".join(asked.stdout.split()[2:])
    with harness.Recording() as recording:
        job = recording.run_python(1, "--steps", 5, interpreter=interpreter)
        assert job.status == 0, job.stderr
        sites = {c["site"] for c in recording.dump() if c["op"] == "AllReduce"}
        trace, = recording.traces.glob("*.frec")
        meta = FrecReader(str(trace)).meta
        assert meta["python"].startswith("%d.%d." % version)
        if (3, 14 if free_threaded else 8) <= version <= (3, 15):
            assert sites == {BACKWARD, LOSS} and meta["callsites"] == "python"
        else:
            reason = "free-threaded build" if version == (3, 13) else "version not known"
            assert meta["callsites"] == "native" and meta["callsites_reason"].endswith(reason)


@pytest.mark.sanitize
def test_native_functions():
    """fr-train's own functions, by the symbols of the binary."""
    with harness.Recording() as recording:
        job = recording.run(2, [harness.FR_TRAIN, "--dp", 2, "--tp", 1, "--pp", 1, "--steps", 3])
        assert job.status == 0, job.stderr
        calls = [c for c in recording.dump("--stack") if c["op"] in ("AllReduce", "CommSplit", "CommInitRank")]
        assert calls
        for call in calls:
            assert re.fullmatch(r"\w[\w.]*\+0x[0-9a-f]+ in fr-train", call["site"])
            for frame in call["stack"]:
                assert frame["module"].startswith("/") and re.fullmatch(r"([0-9a-f]{2}){8,32}", frame["build_id"])
            assert Path(call["stack"][0]["module"]) == harness.FR_TRAIN
            assert call["stack"][0]["build_id"] == build_id(harness.FR_TRAIN)
        assert len({c["site"] for c in calls if c["op"] == "CommInitRank"}) == 1
        copy = recording.root / "copy"
        assert harness.tool(harness.FR_DUMP, "--anonymize", copy, recording.traces).returncode == 0
        hidden = harness.tool(harness.FR_DUMP, "--json", "--stack", copy).stdout
        assert '"module":"module-1"' in hidden and "build_id" not in hidden and "fr-train" not in hidden


def build_id(path):
    notes = subprocess.run(["readelf", "-n", path], capture_output=True, text=True, check=True).stdout
    return re.search(r"Build ID: ([0-9a-f]+)", notes)[1]


PROGRAM = """
typedef struct { char internal[128]; } id;
int ncclGetUniqueId(id *); int ncclCommInitRank(void **, int, id, int); int ncclCommDestroy(void *);
int ncclAllReduce(const void *, void *, unsigned long, int, int, void *, void *);
static void *comm;
static float data[16];
__attribute__((noinline)) int inner(int n) { return ncclAllReduce(data, data, n, 7, 0, comm, 0) * 2; }
__attribute__((noinline)) int middle(int n) { return inner(n) + 1; }
__attribute__((noinline)) int outer(int n) { return middle(n) + middle(n + 1) + 3; }
int main(void) {
  id unique;
  int sum = ncclGetUniqueId(&unique) + ncclCommInitRank(&comm, 1, unique, 0);
  for (int i = 0; i < 300; i++) sum += outer(3);
  return ncclCommDestroy(comm) || sum == 1;
}
"""


def compiled(recording, *flags, source=PROGRAM):
    program = recording.root / "program"
    file = recording.root / "program.c"
    file.write_text(source)
    subprocess.run(["cc", "-O2", "-Wl,--build-id=sha1", *flags, file, "-o", program,
                    f"-L{LAB}", "-l:libnccl.so.2", f"-Wl,-rpath,{LAB}", "-Wl,--allow-shlib-undefined"], check=True)
    return program


@pytest.mark.parametrize("limit", [1, 3, 8])
def test_native_stack(limit):
    with harness.Recording() as recording:
        program = compiled(recording, "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls")
        job = recording.run(1, [program], env={"FREC_NATIVE_FRAMES": limit})
        assert job.status == 0, job.stderr
        calls = [c for c in recording.dump("--stack") if c["op"] == "AllReduce"]
        names = {tuple(re.sub(r"\+0x.*", "", f.get("function", "?")) for f in c["stack"])[:4] for c in calls}
        assert len(calls) == 600 and names == {("inner", "middle", "outer", "main")[:limit]}
        assert len({c["stack"][-1]["offset"] for c in calls}) == (2 if limit == 3 else 1)  # two calls of middle
        assert all(c["site"].startswith("inner+0x") for c in calls)
        text = harness.tool(harness.FR_DUMP, "--stack", recording.traces).stdout
        assert text.count("    at middle+0x") == (600 if limit > 1 else 0)


def test_native_elsewhere_in_its_file():
    """Code whose addresses are not its offsets in the file, as some linkers lay it out."""
    with harness.Recording() as recording:
        program = compiled(recording, "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls",
                           "-Wl,--section-start=.text=0x402000")
        assert recording.run(1, [program]).status == 0
        call = [c for c in recording.dump("--stack") if c["op"] == "AllReduce"][0]
        assert [f["function"].split("+")[0] for f in call["stack"][:4]] == ["inner", "middle", "outer", "main"]
        assert int(call["stack"][0]["offset"], 16) < 0x402000


def test_native_without_frame_pointers():
    """The first place is always right, and others come only if they are return addresses."""
    with harness.Recording() as recording:
        program = compiled(recording, "-fomit-frame-pointer", "-fno-optimize-sibling-calls")
        job = recording.run(1, [program])
        assert job.status == 0, job.stderr
        calls = [c for c in recording.dump("--stack") if c["op"] == "AllReduce"]
        assert len(calls) == 600 and all(c["site"].startswith("inner+0x") for c in calls)
        assert len({json.dumps(c["stack"]) for c in calls}) < 5


def test_native_other_build():
    with harness.Recording() as recording:
        program = compiled(recording, "-fno-omit-frame-pointer")
        assert recording.run(1, [program]).status == 0
        before = [c for c in recording.dump("--stack") if c["op"] == "AllReduce"]
        compiled(recording, "-fno-omit-frame-pointer", "-DOTHER", "-Wl,--build-id=md5")
        after = [c for c in recording.dump("--stack") if c["op"] == "AllReduce"]
        assert before[0]["stack"][0]["function"].startswith("inner+")
        for call in after:
            assert re.fullmatch(r"program\+0x[0-9a-f]+ \(another build is here\)", call["site"])
            frame = call["stack"][0]
            assert "function" not in frame and frame["module_is"] == "another build"
        assert [c["stack"][0]["offset"] for c in after] == [c["stack"][0]["offset"] for c in before]
        program.unlink()
        call = [c for c in recording.dump("--stack") if c["op"] == "AllReduce"][0]
        assert re.fullmatch(r"program\+0x[0-9a-f]+", call["site"]) and "module_is" not in call["stack"][0]


def test_little_thread_local_memory():
    """Loaded late, as a plugin, the recorder shares 1,664 bytes of it with all other such libraries."""
    headers = subprocess.run(["readelf", "-lW", harness.SHIM], capture_output=True, text=True, check=True).stdout
    assert int(re.search(r"TLS +(?:0x\w+ +){4}(0x\w+)", headers)[1], 16) <= 640


def test_by_site():
    """What --by-site says is the sum of what the calls say."""
    with harness.Recording() as recording:
        job = recording.run_python(2, "--steps", 12)
        assert job.status == 0, job.stderr
        calls, sums = recording.dump("--stack"), recording.dump("--by-site")
        groups = {}
        for call in calls:
            groups.setdefault((call["op"], call.get("site")), []).append(call)
        assert len(sums) == len(groups)
        times = [(s.get("gpu_ns", 0), s["host_ns"]) for s in sums]
        assert times == sorted(times, reverse=True)
        for entry in sums:
            group = groups[entry["op"], entry.get("site")]
            took = [c["exit_ns"] - c["enter_ns"] for c in group]
            gpu = [c["gpu_end_ns"] - c["gpu_start_ns"] for c in group if "gpu_end_ns" in c and "gpu_start_ns" in c]
            assert entry["calls"] == len(group) and entry["open"] == 0
            assert entry["processes"] == len({c["pid"] for c in group})
            assert entry["bytes"] == sum(c.get("bytes", 0) for c in group)
            assert (entry["host_ns"], entry["host_max_ns"]) == (sum(took), max(took))
            assert (entry.get("gpu_calls", 0), entry.get("gpu_ns", 0)) == (len(gpu), sum(gpu))
        backward, = [s for s in sums if s.get("site") == BACKWARD]
        assert backward["calls"] == 2 * 12 * 4 and backward["op"] == "AllReduce"
        only = recording.dump("--by-site", "--rank", 1, "--op", "AllGather", "--stack")
        stacks = {json.dumps(c["stack"]) for c in calls if c["op"] == "AllGather"}
        assert [json.dumps(s["stack"]) for s in only] == list(stacks) and only[0]["processes"] == 1
        table = harness.tool(harness.FR_DUMP, "--by-site", recording.traces).stdout.splitlines()
        assert len(table) == len(sums) + 1 and any(row.endswith(BACKWARD) for row in table)
        wrong = harness.tool(harness.FR_DUMP, "--by-site", "--csv", recording.traces)
        assert wrong.returncode == 2 and wrong.stderr.startswith("fr-dump: --by-site is a table")


EMBEDDING = """
#include <dlfcn.h>
typedef struct { char internal[128]; } id;
int ncclGetUniqueId(id *); int ncclCommInitRank(void **, int, id, int); int ncclCommDestroy(void *);
int ncclAllReduce(const void *, void *, unsigned long, int, int, void *, void *);
static void *comm;
static float data[16];
int reduce(int n) { return ncclAllReduce(data, data, n, 7, 0, comm, 0) * 2; }
static void *python;
#define PY(name, type) ((type)dlsym(python, #name))
static void *py_reduce(void *self, void *none) {
  reduce(3);
  return PY(PyLong_FromLong, void *(*)(long))(0);
}
static struct { const char *name; void *function; int flags; const char *text; } method = {"reduce", py_reduce, 4, 0};
int main(int argc, char **argv) {
  id unique;
  int sum = ncclGetUniqueId(&unique) + ncclCommInitRank(&comm, 1, unique, 0) + reduce(1);
  python = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!python) return 1;
  PY(Py_InitializeEx, void (*)(int))(0);
  PY(PyModule_AddObject, int (*)(void *, const char *, void *))(
      PY(PyImport_AddModule, void *(*)(const char *))("__main__"), "reduce",
      PY(PyCFunction_NewEx, void *(*)(void *, void *, void *))(&method, 0, 0));
  sum += PY(PyRun_SimpleString, int (*)(const char *))(argv[2]);
  return ncclCommDestroy(comm) || sum;
}
"""
SCRIPT = """import time
def step():
    return reduce()

for i in range(30):
    step()
    time.sleep(0.04)
"""
LIBRARIES = sorted([*Path("~/.pyenv/versions").expanduser().glob("3.*/lib/libpython3.*.so.1.0"),
                    *Path("/usr/lib").glob("*/libpython3.*.so.1.0")])


@pytest.mark.skipif(not LIBRARIES, reason="no libpython")
def test_python_loaded_late():
    """A program that opens an interpreter, for itself alone, after its first calls."""
    for library in LIBRARIES:
        minor = int(re.search(r"libpython3\.(\d+)", library.name)[1])
        if not 8 <= minor <= 15:
            continue
        with harness.Recording() as recording:
            program = compiled(recording, "-fno-optimize-sibling-calls", source=EMBEDDING)
            job = recording.run(1, [program, library, SCRIPT], env={"PYTHONHOME": library.parent.parent}
                                if ".pyenv" in str(library) else {})
            assert job.status == 0, job.stderr
            sites = [c.get("site") for c in recording.dump() if c["op"] == "AllReduce"]
            assert sites[0].startswith("reduce+"), library
            late = sites.index("<string>:3 in step")
            assert late < 30 and set(sites[late:]) == {"<string>:3 in step"}, library


def test_killed_before_it_was_written():
    """What only the live region knows still has its line."""
    with harness.Recording() as recording:
        job = recording.run_python(2, "--steps", 100000, timeout=2)
        assert job.status == harness.TIMED_OUT
        calls = recording.dump()
        late = {}
        for call in calls:
            late[call["rank"]] = call
        for call in late.values():
            assert call["site"] in (BACKWARD, LOSS, SAVE)
        harness.remove_live(recording)
        file_calls = recording.dump()
        assert len(file_calls) <= len(calls)
        assert all(c["site"] in (BACKWARD, LOSS, SAVE) for c in file_calls if c["op"].startswith("All"))


def test_recovered():
    with harness.Recording() as recording:
        job = recording.run_python(1, "--steps", 100000, timeout=2)
        assert job.status == harness.TIMED_OUT
        done = harness.tool(harness.FR_DUMP, "--recover", "--live-dir", recording.live, recording.traces)
        assert done.returncode == 0, done.stderr
        assert not list(recording.live.rglob("*.live"))
        assert all(c["site"] in (BACKWARD, LOSS, SAVE) for c in recording.dump() if c["op"].startswith("All"))
