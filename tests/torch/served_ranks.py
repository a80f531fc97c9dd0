"""Processes that run PyTorch's tests one after the other, as ranks: to fork them, and to end them, takes longer than
most tests do. After a failure the next test gets new ones."""

import time
import traceback
import unittest

import torch.distributed as dist
import torch.multiprocessing
from torch.testing._internal import common_utils

LIMIT = 240  # seconds of a test
AFTER_A_FAILURE = 20  # seconds that the other ranks have


class Ranks:
    barrier = None  # of this process and the other ranks

    def __init__(self, case, ranks):
        self.case, self.ranks, self.served = case, ranks, []

    def run(self, name, file_name):
        """What each rank has to say of the test: (rank, "ok", "skipped" or "FAILED", why)."""
        if not self.served:
            context = torch.multiprocessing.get_context("fork")
            Ranks.barrier = context.Barrier(self.ranks)
            self.served = [_start(context, self.case, rank) for rank in range(self.ranks)]
        for _, pipe in self.served:
            pipe.send((name, file_name))
        said, until = [], time.monotonic() + LIMIT
        for rank, (_, pipe) in enumerate(self.served):
            if pipe.poll(max(0.1, until - time.monotonic())):
                said.append((rank, *pipe.recv()))
            else:
                said.append((rank, "FAILED", "it did not end in time"))
            if said[-1][1] == "FAILED":
                until = min(until, time.monotonic() + AFTER_A_FAILURE)
        if any(word == "FAILED" for _, word, _ in said):
            self.close()
        return said

    def close(self):
        for process, _ in self.served:
            process.kill()
            process.join()
        self.served = []


def _start(context, case, rank):
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(case, rank, there), daemon=True)
    process.start()
    return process, here


def _serve(case, rank, pipe):
    while True:
        name, file_name = pipe.recv()
        try:
            test = case(name)
            test.rank, test.file_name = rank, file_name
            common_utils.set_rng_seed()
            test.run_as_rank(name)
            said = ("ok", "")
        except unittest.SkipTest as why:
            said = ("skipped", str(why))
        except BaseException:
            said = ("FAILED", traceback.format_exc())
        if said[0] != "FAILED":
            Ranks.barrier.wait(LIMIT)
            if dist.is_initialized():
                dist.destroy_process_group()
        pipe.send(said)


class Served:
    """Mixed into a MultiProcessTestCase: its ranks are those of `ranks`."""

    ranks = None

    def _spawn_processes(self):
        pass

    def run_as_rank(self, name):
        getattr(self, name)()

    def _join_processes(self, fn):
        said = self.ranks.run(self._current_test_name(), self.file_name)
        failed = [f"rank {rank}: {why}" for rank, word, why in said if word == "FAILED"]
        if failed:
            self.fail("\n".join(failed))
        for _, word, why in said:
            if word == "skipped":
                self.skipTest(why)
