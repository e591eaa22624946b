"""Compares captured Python stacks with what the interpreter itself says.

Run by each interpreter in turn: check_python.py PROBE.so. Standard library only, 3.8 and later.
CALLSITE_TEST_ROUNDS multiplies the work of the longer checks.
"""
import asyncio
import ctypes
import functools
import gc
import importlib
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types

PROBE = sys.argv[1]
ROUNDS = int(os.environ.get("CALLSITE_TEST_ROUNDS", "1"))
FREE_THREADED = "t" in sys.abiflags
KNOWN = (3, 14 if FREE_THREADED else 8) <= sys.version_info < (3, 16)
MANY = 1 << 20

released = ctypes.CDLL(PROBE)  # the interpreter's lock is released around calls
held = ctypes.PyDLL(PROBE)  # it is kept
for library in released, held:
    library.probe_time.restype = ctypes.c_double
    library.probe_counter.restype = ctypes.c_ulonglong
    library.probe_describe.restype = ctypes.c_long
    library.probe_describe.argtypes = [ctypes.c_uint, ctypes.c_char_p, ctypes.c_size_t]
    library.probe_foreign_thread.argtypes = [ctypes.c_ulonglong]
    library.probe_capture_native.argtypes = [ctypes.c_ulonglong]

capture = released.probe_capture


def start(size=4 * MANY, frames=16, lie=""):
    assert released.probe_init(size, frames, lie.encode())


def status():
    text = ctypes.create_string_buffer(400)
    released.probe_status(text, 400)
    return text.value.decode().split("|", 2)


def counter(name):
    return released.probe_counter(name.encode())


def describe(site):
    text = ctypes.create_string_buffer(1 << 16)
    length = released.probe_describe(site, text, len(text))
    assert length >= 0, "no such site: %d" % site
    lines = text.raw[:length].decode().splitlines()
    return [(file, name, int(line)) for file, name, line in (entry.split("\t") for entry in lines)]


def wanted(frames, stack=None):
    """What the interpreter says of its caller's stack, innermost first."""
    stack = stack or traceback.extract_stack()[:-1]
    return [(f.filename, f.name, f.lineno or 0) for f in reversed(stack)][:frames]


def compare(site, stack, frames=16):
    got, want = describe(site), wanted(frames, stack)
    assert got == want, "\n  got  %r\n  want %r" % (got, want)
    return site


def both():
    """Captures here; the caller's frame is what gets compared."""
    stack = traceback.extract_stack()
    compare(capture(), stack[:-1] + [traceback.FrameSummary(__file__, BOTH_LINE, "both", lookup_line=False)])
    return stack


BOTH_LINE = both.__code__.co_firstlineno + 3

# ---- one check per kind of code ----


def check_recursion():
    def down(n):
        return down(n - 1) if n else (capture(), traceback.extract_stack())

    for frames in (1, 2, 16, 64):
        start(frames=frames)
        for depth in (0, 1, 14, 15, 16, 63, 200):
            compare(*down(depth), frames=frames)


def check_generators():
    start()

    def inner(n):
        for i in range(n):
            both()
            yield i

    def outer(n):
        yield from inner(n)
        both()
        yield from (both() and x for x in range(n))

    for _ in outer(3):
        both()
    [both() for _ in range(3)]
    {both() is None for _ in range(3)}
    assert sum(1 for _ in map(lambda x: both(), range(3))) == 3
    sorted(range(3), key=lambda x: len(both()))

    def receiver():
        while (yield both()) is not None:
            both()

    stream = receiver()
    next(stream)
    stream.send(1)
    stream.close()


def check_async():
    start()

    async def leaf():
        both()
        await asyncio.sleep(0)
        both()

    async def produce():
        for i in range(2):
            both()
            yield i
            await leaf()

    async def middle():
        async for _ in produce():
            both()
        await leaf()

    async def main():
        await middle()
        await asyncio.gather(*(middle() for _ in range(3)))
        asyncio.get_running_loop().call_soon(both)
        await asyncio.sleep(0.001)

    asyncio.run(main())


def check_functions():
    start()

    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            both()
            return function(*args, **kwargs)

        return wrapper

    @decorate
    @decorate
    def decorated():
        both()

    class Thing:
        both()

        def __init__(self):
            both()

        @property
        def value(self):
            return both()

        @classmethod
        def make(cls):
            return cls()

        def __enter__(self):
            return self

        def __exit__(self, *args):
            both()

        def __del__(self):
            both()

    decorated()
    with Thing.make() as thing:
        assert thing.value
        (lambda: (lambda: both())())()
        functools.partial(both)()
    del thing
    try:
        both()
        raise ValueError
    except ValueError:
        both()
    finally:
        both()
    max(
        1,
        len(
            both()
        ),
        2,
    )
    loop = Thing()
    loop.self = loop
    del loop
    gc.collect()


def check_tracing():
    start()

    def traced(n):
        for _ in range(n):
            n = (lambda x: x + 1)(n)
        return n

    events = []

    def trace(frame, event, arg):
        if frame.f_code is traced.__code__:
            events.append(event)
            both()
        return trace

    sys.settrace(trace)
    try:
        both()
        [both() for _ in range(3)]
        traced(3)
    finally:
        sys.settrace(None)
    assert {"call", "line", "return"} <= set(events)
    sys.setprofile(lambda *args: None)
    try:
        both()
    finally:
        sys.setprofile(None)


def check_warm_code():
    """The interpreter rewrites instructions after some calls, and lines stay the same."""
    start()

    def warm(i):
        both()
        total = i + 1
        both()
        return total

    class Warm:
        def __init__(self):
            self.site = capture()

    for i in range(300):
        warm(i)
        Warm()
    assert counter("sites") < 20
    misses = counter("misses")
    for i in range(300):
        assert Warm().site
    assert counter("misses") < misses + 10, counter("misses") - misses


def check_exec():
    start()
    names = {"both": both}
    exec("both()\n\n\nboth()", names)
    exec(compile("\n\ndef f():\n\n  both()\nf()", "<generated.7>", "exec"), names)
    for file in ("/a/módulo.py", "/a/日本語.py", "/a/\U0001d54f.py", "/é" * 40, "x"):
        exec(compile("\ndef fünc(): both()\nfünc()", file, "exec"), names)
    exec(compile("both()\n" * 2000, "long.py", "exec"), names)
    exec(compile("def f():\n" + "  x = 1\n" * 70000 + "  both()\nf()", "longer.py", "exec"), names)
    exec(compile("x = 1" + "\n" * 100000 + "both()", "jump.py", "exec"), names)

    # Only the end of a very long path is kept, the start of a long name, and no bytes that are no text.
    exec(compile("site = capture()", "/" + "d" * 600 + "/end.py", "exec"), globals())
    assert describe(globals()["site"])[0][0] == "d" * (511 - len("/end.py")) + "/end.py"
    exec(compile("site = capture()", "/bad\udcff.py", "exec"), globals())
    assert describe(globals()["site"])[0][0] == "/bad?.py"
    name = "n" * 300
    exec("def %s():\n  global site\n  site = capture()\n%s()" % (name, name), globals())
    assert describe(globals()["site"])[0][1] == name[:255]


def check_foreign_names():
    """Names that are no plain str are not read, and do not turn anything off."""
    start()
    both()

    class Text(str):
        pass

    def target():
        return capture()

    code = target.__code__.replace(co_filename=Text("subclass.py"))
    first = types.FunctionType(code, globals())()
    assert describe(first)[0][1] == "target" and describe(first)[0][0] in ("?", "subclass.py")
    assert status()[0] != "off"
    both()


def check_reload():
    start(frames=2)
    with tempfile.TemporaryDirectory() as directory:
        sys.path.insert(0, directory)
        sys.dont_write_bytecode = True
        path = os.path.join(directory, "reloaded_module.py")
        module = None
        try:
            for i in range(60 * ROUNDS):
                blank = (i * 7) % 11
                with open(path, "w") as file:
                    file.write("def run(capture):\n%s    return capture()\n" % ("\n" * blank))
                importlib.invalidate_caches()
                module = importlib.reload(module) if module else importlib.import_module("reloaded_module")
                assert describe(module.run(capture))[0] == (path, "run", blank + 2)
        finally:
            sys.path.remove(directory)


def check_threads():
    start(frames=8)
    wrong = []

    def work(seed):
        names = {"capture": capture, "traceback": traceback}
        exec("%sdef go(n):\n  return go(n - 1) if n else (capture(), traceback.extract_stack())" % ("\n" * seed), names)
        for i in range(400):
            site, stack = names["go"](i % 11)
            if site and describe(site) != wanted(8, stack):
                wrong.append((describe(site), wanted(8, stack)))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]


def check_short_threads():
    """The same code in threads that come and go: free-threaded builds make and free copies of it for each."""
    start(frames=2)
    names = {"capture": capture}
    exec("def go(n):\n%s" % "".join("  if n == %d: return capture()\n" % i for i in range(50)), names)
    wrong, checked = [], []

    def work(seed):
        for i in range(seed, seed + 200):
            site = names["go"](i % 50)
            if site:
                checked.append(i)
            if site and describe(site)[0] != ("<string>", "go", i % 50 + 2):
                wrong.append((describe(site), i % 50 + 2))

    for _ in range(20 * ROUNDS):
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gc.collect()
    assert not wrong, wrong[0]
    assert len(checked) > 10000, len(checked)


def check_reused_addresses():
    """Code objects are freed and made again at the same address, alike but for one thing."""
    start(size=32 * MANY, frames=2)
    seen, reused, checked = set(), 0, 0
    names = {"capture": capture}

    def run(code, want):
        nonlocal reused, checked
        if FREE_THREADED and checked % 50 == 0:
            gc.collect()  # there nothing else frees code objects
        reused += id(code) in seen
        seen.add(id(code))
        site = types.FunctionType(code, names)()
        checked += 1
        got = describe(site)[0]
        assert got == want, (got, want)

    template = "def f():\n%s  return capture()\n"
    for i in range(3000 * ROUNDS):
        # The line only: all else, even the lengths, is equal.
        blank = i % 5 + 1
        code = compile(template % ("\n" * blank), "<same>", "exec").co_consts[0]
        run(code, ("<same>", "f", blank + 2))
        del code
    base = compile(template % "", "<same>", "exec").co_consts[0]
    for i in range(3000 * ROUNDS):
        run(base.replace(co_firstlineno=i % 7 + 1), ("<same>", "f", i % 7 + 2))
        run(base.replace(co_name="n%d" % (i % 7)), ("<same>", "n%d" % (i % 7), 2))
        run(base.replace(co_filename="<f%d>" % (i % 7)), ("<f%d>" % (i % 7), "f", 2))
    assert reused > checked / 2, (reused, checked)
    assert counter("lost_full") == 0 and status()[0] != "off"


def check_churn():
    """Millions of captures while other threads make and free code objects."""
    start(size=16 * MANY)
    stop, made = [], [0]

    def churn():
        base = check_churn.__code__
        while not stop:
            for i in range(200):
                base.replace(co_firstlineno=i + 1)
            exec(compile("def f():\n  return 1\nf()", "<churn>", "exec"), {})
            made[0] += 201

    def down(n, times):
        return down(n - 1, times) if n else (released.probe_capture_many(times), traceback.extract_stack())

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for depth in range(20):
            compare(*down(depth, 100000 * ROUNDS))
    finally:
        stop.append(1)
        for thread in threads:
            thread.join()
    assert made[0] > 1000, made
    return "%d code objects" % made[0]


def check_same_number():
    start()
    first = [capture() for _ in range(100)]
    second = [capture() for _ in range(100)]
    assert len(set(first)) == 1 and len(set(second)) == 1 and first[0] != second[0]
    assert 0 not in first and counter("sites") == 2


def check_foreign_threads():
    start()
    both()
    assert released.probe_foreign_thread(0) == 0
    site = released.probe_foreign_thread(0x1234567890)
    text = ctypes.create_string_buffer(100)
    released.probe_describe(site, text, 100)
    assert text.value == b"native\t%d\n" % 0x1234567890, text.value
    assert released.probe_foreign_thread(0x1234567890) == site
    assert released.probe_foreign_thread(0x1234567891) == site + 1
    results = []
    callback = ctypes.CFUNCTYPE(None)(lambda: results.append((capture(), wanted(16))))
    for _ in range(3):
        assert released.probe_callback_thread(callback)
    assert len(results) == 3 and all(describe(site)[1:] == want[1:] for site, want in results)


def stored_hash(value):
    """What the object keeps as its hash: -1 = not computed yet."""
    return ctypes.c_int64.from_address(id(value) + 24).value


def check_nothing_is_written():
    """Recording leaves the interpreter's objects as they were: no hash has been computed behind its back."""
    start()

    def target():
        return capture()

    for file in ("/some/path.py", "/é/ü.py", "/日本.py", "/\U0001d54f.py"):
        code = target.__code__.replace(co_filename=file[:-1] + file[-1], co_name="n" + file[1:3])
        lines = code.co_lnotab if sys.version_info < (3, 10) else code.co_linetable
        values = code.co_filename, lines
        before = [stored_hash(value) for value in values]
        assert types.FunctionType(code, globals())()
        assert [stored_hash(value) for value in values] == before


def check_much_text():
    """A stack with more text than one slow path takes gets its number all the same, some captures later."""
    start(frames=64)
    names = {"capture": capture}
    calls = ["capture()"]
    for i in range(63):
        file = "/%s/%d.py" % ("d" * 480, i)
        exec(compile("def f%d(): return %s" % (i, calls[-1]), file, "exec"), names)
        calls.append("f%d()" % i)
    sites = [names["f62"]() for _ in range(10)]
    assert sites[0] == 0 and sites[-1] and status()[0] == "proved", (sites, status())
    assert [frame[:2] for frame in describe(sites[-1])] == [
        ("/%s/%d.py" % ("d" * 480, i), "f%d" % i) for i in range(63)
    ] + [(__file__, "<listcomp>" if sys.version_info < (3, 12) else "check_much_text")]


def check_errno():
    start()
    assert released.probe_errno_kept() and released.probe_errno_kept()


def check_memory_full():
    start(size=16 << 10)
    sites = []
    for i in range(300):
        names = {"capture": capture}
        exec("def f%d():\n  return capture()" % i, names)
        function = names["f%d" % i]
        sites.append((function, function()))
    known = [(f, site) for f, site in sites if site]
    assert 0 < len(known) < 300 and counter("lost_full") > 0
    for function, site in known:
        assert describe(site)[0][1] == function.__name__


def check_zero_frames():
    start(frames=0)
    assert capture() == 0 and status() == ["none", "", ""]
    assert released.probe_capture_native(77) == 1


def check_fork():
    start()
    both()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            start()
            both()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    both()


def check_sub_interpreter():
    """Neither a crash nor a wrong line: the sub-interpreter's own frames, or where it was entered."""
    start()
    try:
        interpreters = importlib.import_module("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    except ImportError:
        return "no module"
    # The next interpreter lies where the last one lay, and so does its code; only the line differs.
    seen = {capture_in(interpreters, i % 5) for i in range(20 * ROUNDS)}
    both()
    return ", ".join(sorted(seen))


def capture_in(interpreters, blank):
    site = ctypes.c_uint(0)
    script = (
        "import ctypes\n"
        "def inside():\n"
        "  lib = ctypes.CDLL(%r)\n"
        "%s  ctypes.c_uint.from_address(%d).value = lib.probe_capture()\n"
        "inside()" % (PROBE, "\n" * blank, ctypes.addressof(site))
    )
    number = (
        interpreters.create("legacy")
        if sys.version_info >= (3, 13)
        else interpreters.create(isolated=False)
        if sys.version_info >= (3, 9)
        else interpreters.create()
    )
    try:
        interpreters.run_string(number, script)
    finally:
        interpreters.destroy(number)
    innermost = describe(site.value)[0]
    if innermost[1] == "inside":
        assert innermost[2] == 4 + blank, innermost
        return "seen inside"
    assert innermost[1] == "capture_in", innermost
    return "seen where entered"


def check_finalization():
    """The interpreter ends while daemon threads go on capturing without its lock."""
    script = (
        "import ctypes, threading, time\n"
        "lib = ctypes.CDLL(%r)\n"
        "assert lib.probe_init(1 << 20, 16, b'')\n"
        "def down(n): down(n - 1) if n else lib.probe_time(1 << 28)\n"
        "for _ in range(2): threading.Thread(target=down, args=(12,), daemon=True).start()\n"
        "time.sleep(0.02)\n" % PROBE
    )
    for _ in range(8 * ROUNDS):
        assert subprocess.run([*ARGV0, "-c", script]).returncode == 0


def check_confirmed():
    start()
    assert status()[0] == "pending"
    assert released.probe_capture() and status()[0] == "proved"
    assert held.probe_capture() and status()[0] == "confirmed"
    assert status()[1] == sys.version.split()[0]
    start()
    assert held.probe_capture() and status()[0] == "confirmed"


def check_lies():
    """Whatever the interpreter is not as expected: off, with a reason, and no crash."""
    lies = {"no-python": None, "thread-state": "thread's id", "code-type": "code object", "3.99.0 x": "not known"}
    lies["bytes-type"] = "line table" if sys.version_info >= (3, 11) else "outside its code"
    lies["str-type"] = "no plain str"
    if sys.version_info >= (3, 13):
        lies["runtime"] = "debug offsets"
    for lie, reason in lies.items():
        start(lie=lie)
        assert capture() == 0, lie
        assert released.probe_capture_native(5) != 0
        if reason is None:
            assert status() == ["none", "", ""]
        else:
            state, version, why = status()
            assert state == "off" and reason in why, (lie, status())
            assert why.startswith("Python %s: " % version), why
    # A proof by structure does not see this one; the interpreter's own answer does.
    start(lie="frame-line")
    assert released.probe_capture() != 0 and status()[0] == "proved"
    exec("\n\n\nheld.probe_capture()\n", globals())
    assert status()[0] == "off" and "another line" in status()[2], status()
    assert released.probe_capture() == 0


def check_wrong_versions():
    """Layouts of other versions are found out, by reads that cannot fault."""
    same = {8: (8, 9), 9: (8, 9)}.get(sys.version_info[1], (sys.version_info[1],))
    for minor in range(8, 16):
        if minor not in same:
            start(lie="3.%d.0 (another)" % minor)
            for library in released, held:
                assert library.probe_capture() == 0
            assert status()[0] == "off" and status()[2], status()


def check_unknown():
    start()
    assert capture() == 0 and capture() == 0
    state, version, why = status()
    reason = "free-threaded build" if sys.version_info[:2] == (3, 13) else "version not known"
    assert state == "off" and version == sys.version.split()[0] and why.endswith(": " + reason), why
    assert released.probe_capture_native(5) != 0


# An interpreter that is started through a wrapper says how.
ARGV0 = os.environ["CALLSITE_TEST_PYTHON"].split() if "CALLSITE_TEST_PYTHON" in os.environ else [sys.executable]
EITHER_WAY = ("recursion", "generators", "async", "functions", "tracing", "warm_code", "exec", "reused_addresses")


def main():
    global capture
    failed = passed = 0
    names = [name[6:] for name in globals() if name.startswith("check_")]
    names = [name for name in names if (name == "unknown") != KNOWN]
    only = sys.argv[2:] or names
    for name in names:
        if name not in only:
            continue
        for library in (released, held) if name in EITHER_WAY else (released,):
            capture = library.probe_capture
            label = name + (" with the lock held" if library is held else "")
            begin = time.monotonic()
            try:
                note = globals()["check_" + name]()
                passed += 1
                print("ok   %s (%.2f s)%s" % (label, time.monotonic() - begin, ": " + note if note else ""), flush=True)
            except BaseException:
                failed += 1
                print("FAIL %s\n%s" % (label, traceback.format_exc()), flush=True)
    print("Python %s: %d passed, %d failed" % (sys.version.split()[0], passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
