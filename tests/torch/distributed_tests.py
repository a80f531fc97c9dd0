"""PyTorch's distributed tests, of which those in gloo_passes.txt pass with Gloo."""

import importlib
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

import torch.distributed as dist

import served_ranks
import weft_torch

HERE = pathlib.Path(__file__).resolve().parent


def run(several, file, backend, runner):
    """Gives suites of these tests, and of those in `file` (PyTorch's test_c10d_backend_collectives.py; empty: none), with
    several numbers of ranks to `runner`. From then on Gloo's name is weft's in this process."""
    folder = tempfile.mkdtemp(prefix="weft_torch_")
    os.environ.update(
        BACKEND="gloo",  # what the tests go by
        TEMP_DIR=folder,
        INIT_METHOD=f"file://{folder}/init_dir/shared_init_file",
        WEFT_TEST_BACKEND=backend,
        CUDA_VISIBLE_DEVICES="",
    )
    try:
        if backend == "weft":
            dist.Backend._ensure_backend_registered("gloo")
            weft_torch.register("gloo")
        wanted = (HERE / "gloo_passes.txt").read_text().split()
        for ranks in several:
            os.environ["WORLD_SIZE"] = str(ranks)
            for name in ("torch.testing._internal.distributed.distributed_test", "distributed_cases"):
                sys.modules.pop(name, None)
                distributed_cases = importlib.import_module(name)
            cases = [(type(f"Distributed{ranks}", (distributed_cases.Cases,), {}), wanted)]
            if file:
                cases.append(distributed_cases.collectives(file, ranks))
            for case, names in cases:
                case.ranks = served_ranks.Ranks(case, ranks)
                runner(unittest.TestSuite(case(name) for name in names))
                case.ranks.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
