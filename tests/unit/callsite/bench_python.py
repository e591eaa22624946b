"""Prints what a capture costs under this interpreter: bench_python.py PROBE.so

ns: best of many runs, in a loop. "two stacks" alternates between two depths, as a program does that
calls from several places; ctypes' own cost is measured beside it. New: a stack never seen before.
"""
import ctypes
import sys
import time

probe = ctypes.PyDLL(sys.argv[1])
probe.probe_time.restype = ctypes.c_double
probe.probe_instructions.restype = ctypes.c_long


def down(n, function, *args):
    return down(n - 1, function, *args) if n > 1 else function(*args)


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


def new_stacks(frames):
    assert probe.probe_init(1 << 22, frames, b"")
    names = {"capture": probe.probe_capture}
    source = "def f():\n" + "  capture()\n" * 500
    exec(compile(source, "%d.%d" % (frames, time.perf_counter_ns()), "exec"), names)
    begin = time.perf_counter_ns()
    down(frames, names["f"])
    return (time.perf_counter_ns() - begin) / 500


print("CPython %s" % sys.version.split()[0])
print("%-8s %8s %13s %12s %9s" % ("frames", "ns", "instructions", "two stacks", "new, ns"))
for frames in 1, 4, 16, 64:
    assert probe.probe_init(1 << 22, frames, b"")
    ns = best(lambda: down(frames + 4, probe.probe_time, 20000))
    steps = down(frames + 4, probe.probe_instructions)
    two = two_stacks(frames)
    new = min(new_stacks(frames) for _ in range(5))
    print("%-8d %8.1f %13s %12.1f %9.0f" % (frames, ns, steps if steps >= 0 else "-", two, new))
