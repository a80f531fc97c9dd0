"""Starts the ranks of small torch.distributed jobs as processes of this machine.

Ranks are forks of this process, which has imported PyTorch: a fork takes a tenth of a second, an import of
PyTorch eight seconds of a core. So this process itself starts no threads and makes no process group."""

import atexit
import os
import queue
import socket
import sys
import time
import traceback

import torch
import torch.multiprocessing as mp

import weft_torch  # noqa: F401

torch.set_num_threads(1)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _rank(body, rank, ranks, port, results, arguments):
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(ranks),
        LOCAL_RANK=str(rank),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    code = 0
    try:
        results.put((rank, "ok", body(rank, *arguments)))
    except Exception as error:
        results.put((rank, type(error).__name__, f"{error}\n{traceback.format_exc()}"))
        code = 1
    results.close()
    results.join_thread()
    if code == 0:
        atexit._run_exitfuncs()  # as where Python ends: weft_torch ends the groups that are left
    os._exit(code)


def run(body, ranks, *arguments, limit=240, lost=()):
    """What body(rank, *arguments) returned on each rank: (word, value), "ok" or an exception's name.

    `lost`: the ranks that will not say."""
    context = mp.get_context("fork")
    results = context.Queue()
    port = free_port()
    processes = [
        context.Process(target=_rank, args=(body, r, ranks, port, results, arguments))
        for r in range(ranks)
    ]
    for p in processes:
        p.start()
    said, until = {}, time.monotonic() + limit
    try:
        while len(said) < ranks - len(lost):
            rank, word, value = results.get(timeout=max(0.1, until - time.monotonic()))
            said[rank] = (word, value)
    except queue.Empty:
        sys.exit(f"after {limit} s only ranks {sorted(said)} of {ranks} have ended")
    finally:
        for p in processes:
            p.join(timeout=20)
            if p.is_alive():
                p.kill()
    return said
