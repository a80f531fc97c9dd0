"""weft as a backend of torch.distributed: import weft_torch, then init_process_group("weft").

Process groups of this backend take tensors of the CPU and of CUDA. docs/pytorch.md of weft says more.
"""

import atexit
import sys
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist

from . import _C

__all__ = ["Compression", "all_reduce_compressed", "compressed_hook", "register"]

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


def all_reduce_compressed(
    tensor, codec="int8", average=False, residual=None, group=None, async_op=False
):
    """Sums (or averages) a float32 tensor of the CPU in place, a byte of each value on the way.

    codec: "int8" or "fp8", the same on all ranks. residual: None, or a tensor like `tensor` for error
    feedback, zero before the first call and the same one in each call. Returns a Work with
    async_op=True. docs/compression.md of weft has the bound of the error."""
    group = group or dist.group.WORLD
    backend = group._get_backend(torch.device("cpu"))
    if not isinstance(backend, _C.WeftBackend):
        raise RuntimeError(
            f"weft: all_reduce_compressed: the group's backend for the CPU is "
            f"{type(backend).__name__}; make the group with backend 'weft' or 'cpu:weft'"
        )
    work = backend.all_reduce_compressed(tensor, codec, average, residual, async_op)
    return work if async_op else None


class Compression:
    """The state of compressed_hook(): the codec, the process group, and each bucket's residual.

    One thread at a time uses it, for one model. feedback=False keeps no residuals."""

    def __init__(self, codec="int8", group=None, feedback=True):
        self.codec, self.group, self.feedback = codec, group, feedback
        self._residuals = {}

    def residual(self, bucket):
        if not self.feedback:
            return None
        # DDP creates its buckets again after the first step, so buckets are identified by their
        # parameters.
        key = tuple(id(p) for p in bucket.parameters())
        if key not in self._residuals:
            self._residuals[key] = torch.zeros_like(bucket.buffer())
        return self._residuals[key]


def compressed_hook(state, bucket):
    """Averages gradients a byte each: model.register_comm_hook(weft_torch.Compression(), compressed_hook)."""
    work = all_reduce_compressed(
        bucket.buffer(), state.codec, True, state.residual(bucket), state.group, async_op=True
    )
    return work.get_future().then(lambda future: future.value()[0])


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
