"""Prints what a capture costs under this interpreter: bench_python.py PROBE.so

ns: best of many runs, in a loop. "two stacks" alternates between two depths, as a program does that
calls from several places; cold: other work used the caches in between. Both include reading two cold or
warm clocks less what that takes alone. New: a stack never seen before; first: the proof included.
"""
import ctypes
import sys
import time

probe = ctypes.PyDLL(sys.argv[1])
probe.probe_time.restype = ctypes.c_double
probe.probe_time_cold.restype = ctypes.c_double
probe.probe_instructions.restype = ctypes.c_long


# A chain of functions, each with code of its own, four to a file: like those of a framework, some lines long.
def file_of(first):
    source = ["# comment" + "\n" * first]
    for i in range(first, first + 4):
        source.append("def f%d(function, *args):" % i)
        source.append("  values = [x + 1 for x in args if x is None]\n\n  if len(values) > len(args):")
        source.append("    raise ValueError('f%d', values, args)" % i)
        source.append("  return f%d(function, *args)\n" % (i - 1) if i > 1 else "  return function(*args)\n")
    path = "/usr/lib/python3/site-packages/framework/parallel/module_%d.py" % first
    exec(compile("\n".join(source), path, "exec"), chain)


chain = {}
for i in range(1, 80, 4):
    file_of(i)


def down(n, function, *args):
    return chain["f%d" % n](function, *args)


def best(function, runs=40):
    return min(function() for _ in range(runs))


def two_stacks(frames, times=5000):
    """Median of single captures, less what taking the time costs."""

    def median():
        samples = []
        for i in range(times):
            samples.append(down(frames + 4 + i % 2, probe.probe_time, 1))
        return sorted(samples)[times // 2]

    assert probe.probe_init(1 << 22, frames, b"")
    capture = min(median() for _ in range(5))
    assert probe.probe_init(1 << 22, 0, b"")
    return capture - min(median() for _ in range(5))


def cold(frames):
    assert probe.probe_init(1 << 22, frames, b"")
    capture = min(down(frames + 4, probe.probe_time_cold) for _ in range(3))
    assert probe.probe_init(1 << 22, 0, b"")
    return capture - min(down(frames + 4, probe.probe_time_cold) for _ in range(3))


def first(frames):
    assert probe.probe_init(1 << 22, frames, b"")
    return down(frames + 4, probe.probe_time, 1)


def new_stacks(frames):
    assert probe.probe_init(1 << 22, frames, b"")
    names = {"capture": probe.probe_capture}
    source = "def f():\n" + "  capture()\n" * 500
    exec(compile(source, "%d.%d" % (frames, time.perf_counter_ns()), "exec"), names)
    begin = time.perf_counter_ns()
    down(frames, names["f"])
    return (time.perf_counter_ns() - begin) / 500


print("CPython %s" % sys.version.split()[0])
print("%-7s %7s %13s %11s %7s %8s %9s" % ("frames", "ns", "instructions", "two stacks", "cold", "new, ns", "first, ns"))
for frames in 1, 4, 16, 64:
    start = min(first(frames) for _ in range(5))
    ns = best(lambda: down(frames + 4, probe.probe_time, 20000))
    steps = down(frames + 4, probe.probe_instructions)
    row = frames, ns, steps if steps >= 0 else "-", two_stacks(frames), cold(frames)
    print("%-7d %7.1f %13s %11.0f %7.0f" % row, end="")
    print(" %8.0f %9.0f" % (min(new_stacks(frames) for _ in range(5)), start))
