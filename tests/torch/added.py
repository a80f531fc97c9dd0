#!/usr/bin/env python3
"""What PyTorch and the binding add to a call of weft's C interface: all_reduce in place, in turns in one
job, medians of rounds.

    added.py [--ranks 2] [--rounds 9] [--sizes 8,64K,...]

c: the C function, without what a call through ctypes takes; backend: `backend.allreduce()`;
torch: `torch.distributed.all_reduce()`."""

import argparse
import ctypes
import os
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist

import jobs
from compare import bytes_of

SIZES = "8,4K,64K,1M,16M"
FLOAT32 = SUM = 0  # WEFT_FLOAT32, WEFT_SUM


def c_interface(rank, ranks):
    """(all_reduce(tensor), a call that does nothing), of a World of its own."""
    import weft_torch

    os.environ["WEFT_PROGRESS_THREAD"] = "1"  # as a process group has one
    lib = ctypes.CDLL(str(next(pathlib.Path(weft_torch.__file__).parent.glob("libweft.so*"))))
    raw = (ctypes.c_char * 1024)()
    if rank == 0:
        assert lib.weft_unique_id_create(raw) == 0
    told = [bytes(raw)]
    dist.broadcast_object_list(told, src=0)
    raw = ctypes.create_string_buffer(told[0], 1024)
    world, comm = ctypes.c_void_p(), ctypes.c_void_p()
    assert lib.weft_world_from_id(raw, rank, ranks, None, ctypes.byref(world)) == 0
    assert lib.weft_world_comm(world, ctypes.byref(comm)) == 0
    number = ctypes.c_int()

    def all_reduce(t):
        data = ctypes.c_void_p(t.data_ptr())
        words = (comm, data, data, ctypes.c_size_t(t.numel()), FLOAT32, SUM, None)
        return lambda: lib.weft_all_reduce(*words)

    words = (comm, ctypes.byref(number), None, None, None, None, None)
    return all_reduce, lambda: lib.weft_comm_rank(*words)


def timed(call, times):
    dist.barrier()
    began = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - began) / times * 1e6


def body(rank, ranks, rounds, sizes):
    dist.init_process_group("weft")
    c_all_reduce, nothing = c_interface(rank, ranks)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    options = dist.AllreduceOptions()
    options.asyncOp = False
    rows = []
    for size in sizes:
        t = torch.zeros(max(1, size // 4))
        calls = {
            "ctypes": nothing,
            "c": c_all_reduce(t),
            "backend": lambda t=t: backend.allreduce([t], options),
            "torch": lambda t=t: dist.all_reduce(t),
        }
        times = max(5, min(2000, (1 << 26) // size))
        us = {name: [] for name in calls}
        for _ in range(rounds):
            for name, call in calls.items():
                us[name].append(timed(call, times))
        middle = {name: statistics.median(of) for name, of in us.items()}
        middle["c"] -= middle["ctypes"]
        rows.append((size, middle))
    dist.destroy_process_group()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sizes", default=SIZES)
    a = parser.parse_args()
    sizes = [bytes_of(s) for s in a.sizes.split(",")]
    word, rows = jobs.run(body, a.ranks, a.ranks, a.rounds, sizes, limit=540)[0]
    if word != "ok":
        sys.exit(rows)
    print(f"{'bytes':>10} {'c us':>10} {'backend us':>10} {'torch us':>10}   {a.ranks} ranks")
    for size, us in rows:
        print(f"{size:10} {us['c']:10.2f} {us['backend']:10.2f} {us['torch']:10.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
