"""PyTorch's own distributed tests, with weft where they say Gloo.

The tests look at the backend's name to know what they may ask of it, so weft is registered under Gloo's. When they are
imported they look at the number of ranks: distributed_tests.py imports this module for each. Processes that run tests
are forks of the one that does.
"""

import importlib.util
import os
import shutil
import unittest.mock
from datetime import timedelta

import torch.distributed as dist
from torch.testing._internal.distributed import distributed_test

import served_ranks

distributed_test.Barrier.sync = lambda *_, **__: served_ranks.Ranks.barrier.wait(
    served_ranks.LIMIT
)


def _fresh_folders():
    folder = os.environ["TEMP_DIR"]
    for name in ("barrier", "test_dir", "init_dir"):
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
        os.mkdir(os.path.join(folder, name))


distributed_test.initialize_temp_directories = _fresh_folders
distributed_test.cleanup_temp_dir = lambda: None


class Cases(
    served_ranks.Served,
    distributed_test.TestDistBackend,
    distributed_test.DistributedTest._DistTestBase,
):
    def run_as_rank(self, name):
        dist.init_process_group(
            "gloo",
            init_method=self.init_method,
            world_size=int(self.world_size),
            rank=self.rank,
            timeout=timedelta(seconds=distributed_test.default_pg_timeout),
        )
        super().run_as_rank(name)

    if os.environ["WEFT_TEST_BACKEND"] == "weft":

        def test_ddp_logging_data_cpu(self):
            # PyTorch's log calls every backend that is not its own "custom".
            with unittest.mock.patch.object(dist, "get_backend", lambda group=None: "custom"):
                super().test_ddp_logging_data_cpu()


def collectives(path, ranks):
    """The tests of Gloo in PyTorch's test_c10d_backend_collectives.py, which no wheel has, with so many ranks."""
    spec = importlib.util.spec_from_file_location("test_c10d_backend_collectives", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    bases = (served_ranks.Served, module.BackendCollectivesTest)
    case = type(f"Collectives{ranks}", bases, {"world_size": ranks})
    return case, [name for name in dir(case) if name.startswith("test_") and "_gloo" in name]
