"""PyTorch's distributed tests, of which those in gloo_passes.txt pass with Gloo."""

import os
import pathlib
import shutil
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent


def run(ranks, names, backend, runner):
    """Gives a suite of these tests, or of all that pass with Gloo, to `runner`. From then on Gloo's name is weft's
    in this process."""
    folder = tempfile.mkdtemp(prefix="weft_torch_")
    os.environ.update(
        BACKEND="gloo",  # what the tests go by
        WORLD_SIZE=str(ranks),
        TEMP_DIR=folder,
        WEFT_TEST_BACKEND=backend,
        CUDA_VISIBLE_DEVICES="",
    )
    # PyTorch's tests read it when they are imported: it stays the same.
    os.environ.setdefault("INIT_METHOD", f"file://{folder}/init_dir/shared_init_file")
    sys.path.insert(0, str(HERE))
    try:
        import distributed_cases

        wanted = names or (HERE / "gloo_passes.txt").read_text().split()
        case = type(f"Distributed{ranks}", (distributed_cases.Cases,), {})
        runner(unittest.TestSuite(case(name) for name in wanted))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
