"""Starts the ranks of a small torch.distributed job as processes of this machine."""

import os
import queue
import socket
import sys
import time
import traceback

import torch.multiprocessing as mp


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
    import torch

    import weft_torch  # noqa: F401

    torch.set_num_threads(1)
    try:
        results.put((rank, "ok", body(rank, *arguments)))
    except Exception as error:
        results.put((rank, type(error).__name__, f"{error}\n{traceback.format_exc()}"))
        results.close()
        results.join_thread()
        os._exit(1)


def run(body, ranks, *arguments, limit=240, lost=()):
    """What body(rank, *arguments) returned on each rank: (word, value), "ok" or an exception's name.

    `lost`: the ranks that will not say."""
    context = mp.get_context("spawn")
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
