"""NCCL and the CUDA runtime through ctypes, opened by path as vLLM does it. No compiled Python extension."""

import ctypes
import os
from pathlib import Path
from time import sleep

FLOAT32 = 7
FLOAT16 = 6
SUM = 0


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def open_library(*names):
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as problem:
            error = problem
    raise error


class Libraries:
    def __init__(self):
        self.nccl = open_library(os.environ.get("NCCL_SO_PATH", "libnccl.so.2"))
        self.cudart = open_library("libcudart.so.13", "libcudart.so.12", "libcudart.so")
        self.nccl.ncclGetErrorString.restype = ctypes.c_char_p

    def check(self, result):
        if result:
            raise RuntimeError(self.nccl.ncclGetErrorString(result).decode())

    def check_cuda(self, error):
        if error:
            raise RuntimeError(f"CUDA error {error}")


class Communicator:
    """One communicator of all ranks, with a stream and a buffer of its own."""

    def __init__(self, libraries, rank, nranks, elements):
        self.lib = libraries
        self.rank, self.nranks, self.elements = rank, nranks, elements
        devices = ctypes.c_int()
        libraries.check_cuda(libraries.cudart.cudaGetDeviceCount(ctypes.byref(devices)))
        libraries.check_cuda(libraries.cudart.cudaSetDevice(rank % devices.value))
        self.stream = ctypes.c_void_p()
        libraries.check_cuda(libraries.cudart.cudaStreamCreate(ctypes.byref(self.stream)))
        self.buffer = self._allocate(4 * elements)
        self.gathered = self._allocate(4 * elements * nranks)
        self.handle = ctypes.c_void_p()
        libraries.check(libraries.nccl.ncclCommInitRank(ctypes.byref(self.handle), nranks, self._meet(), rank))

    def _allocate(self, size):
        pointer = ctypes.c_void_p()
        self.lib.check_cuda(self.lib.cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)))
        return pointer

    def _meet(self):
        """Rank 0's unique id, through a file in the directory that all ranks share."""
        path = Path(os.environ["JOB_RENDEZVOUS"]) / "pytrain-id"
        unique_id = UniqueId()
        if self.rank == 0:
            self.lib.check(self.lib.nccl.ncclGetUniqueId(ctypes.byref(unique_id)))
            path.with_suffix(".new").write_bytes(bytes(unique_id))
            path.with_suffix(".new").rename(path)
        while not path.exists():
            sleep(0.01)
        return UniqueId.from_buffer_copy(path.read_bytes())

    def all_reduce(self, count, dtype=FLOAT32):
        self.lib.check(self.lib.nccl.ncclAllReduce(self.buffer, self.buffer, ctypes.c_size_t(count), dtype, SUM,
                                                   self.handle, self.stream))

    def all_gather(self, count, dtype=FLOAT32):
        self.lib.check(self.lib.nccl.ncclAllGather(self.buffer, self.gathered, ctypes.c_size_t(count), dtype,
                                                   self.handle, self.stream))

    def synchronize(self):
        self.lib.check_cuda(self.lib.cudart.cudaStreamSynchronize(self.stream))

    def close(self):
        self.lib.check(self.lib.nccl.ncclCommDestroy(self.handle))
