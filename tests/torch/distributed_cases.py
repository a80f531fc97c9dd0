"""PyTorch's own distributed tests, with weft where they say Gloo.

The tests look at the backend's name to know what they may ask of it, so weft is registered under
Gloo's. Processes that run a test are forks of the one that imports this module (distributed_tests.py).
"""

import os
import shutil
import unittest.mock

import torch
import torch.distributed as dist
import torch.multiprocessing

if os.environ.get("WEFT_TEST_BACKEND", "weft") == "weft":
    import weft_torch

    dist.Backend._ensure_backend_registered("gloo")
    weft_torch.register("gloo")

from torch.testing._internal.distributed import distributed_test  # noqa: E402

_sync = distributed_test.Barrier.sync.__func__


# Ten seconds are too short for four ranks on two busy cores.
distributed_test.Barrier.sync = classmethod(
    lambda cls, wait_for=None, timeout=120: _sync(cls, wait_for, max(timeout, 120))
)


def _fresh_folders():
    folder = os.environ["TEMP_DIR"]
    for name in ("barrier", "test_dir", "init_dir"):
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
        os.mkdir(os.path.join(folder, name))


distributed_test.initialize_temp_directories = _fresh_folders
distributed_test.cleanup_temp_dir = lambda: None


class Cases(
    distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase
):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

    if os.environ.get("WEFT_TEST_BACKEND", "weft") == "weft":

        def test_ddp_logging_data_cpu(self):
            # PyTorch's log calls every backend that is not its own "custom".
            with unittest.mock.patch.object(dist, "get_backend", lambda group=None: "custom"):
                super().test_ddp_logging_data_cpu()
