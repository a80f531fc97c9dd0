"""weft as a backend of torch.distributed: import weft_torch, then init_process_group("weft").

Process groups of this backend take tensors of the CPU and of CUDA. docs/pytorch.md of weft says more.
"""

import atexit
import sys
import weakref
from datetime import timedelta

import torch.distributed as dist

from . import _C

__all__ = ["register"]

_alive = weakref.WeakSet()


def register(name="weft", devices=("cpu", "cuda")):
    """Registers the backend with torch.distributed, under this name."""

    def create(options, backend_options):
        timeout = options.timeout
        backend = _C.create(
            options.store,
            options.group_rank,
            options.group_size,
            timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout),
            name,
            options.group_id,
            list(options.global_ranks_in_group),
        )
        _alive.add(backend)
        return backend

    dist.Backend.register_backend(name, create, extended_api=True, devices=list(devices))


def _leave():
    """Ends the groups that the program has not destroyed, when Python ends.

    After an exception the other ranks are told of it: they may wait for this one."""
    failure = getattr(sys, "last_value", None)
    for backend in list(_alive):
        if failure is not None:
            backend.give_up(f"{type(failure).__name__}: {failure}")
        backend.shutdown()


register()
atexit.register(_leave)
