"""Trains small models by four of PyTorch's parallelisms, with Gloo and with weft: the same losses.

What the ranks import is imported here, once: they are forks of this process."""

import unittest

import torch
import torch._dynamo  # which optimizers import
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import jobs

STEPS, BATCH, WIDTH = 5, 8, 16


def model():
    torch.manual_seed(1)
    # Tensor parallelism takes no number of ranks that does not divide what is between the layers.
    layers = [nn.Linear(WIDTH, 3 * WIDTH), nn.GELU(), nn.Linear(3 * WIDTH, WIDTH)]
    return nn.Sequential(*layers).double()


def data(step, part=0):
    g = torch.Generator().manual_seed(1000 * part + step)
    x = torch.randn(BATCH, WIDTH, generator=g, dtype=torch.float64)
    return x, torch.sin(x.flip(1))


def train(net, forward, part=0):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for step in range(STEPS):
        x, y = data(step, part)
        loss = nn.functional.mse_loss(forward(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def ddp(rank, ranks):
    net = nn.parallel.DistributedDataParallel(model(), bucket_cap_mb=0.001)
    return train(net, net, part=rank)


def fsdp2(rank, ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    net = model()
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return train(net, net, part=rank)


def tp(rank, ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    net = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return train(net, net)


def pipeline(rank, ranks):
    torch.manual_seed(1)
    stages = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).double() for _ in range(ranks)]
    net = stages[rank]
    stage = PipelineStage(net, rank, ranks, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for step in range(STEPS):
        x, y = data(step)
        optimizer.zero_grad()
        if ranks == 1:
            schedule.step(x, target=y, losses=(mine := []))
        elif rank == 0:
            schedule.step(x)
        elif rank == ranks - 1:
            schedule.step(target=y, losses=(mine := []))
        else:
            schedule.step()
        optimizer.step()
        if rank == ranks - 1:
            losses.append(sum(m.item() for m in mine))
    return losses


KINDS = {"ddp": ddp, "fsdp2": fsdp2, "tp": tp, "pipeline": pipeline}


def body(rank, kind, backend, ranks):
    dist.init_process_group(backend)
    losses = KINDS[kind](rank, ranks)
    dist.barrier()
    dist.destroy_process_group()
    return losses


class Training(unittest.TestCase):
    def __init__(self, kind, ranks):
        self.kind, self.ranks = kind, ranks
        setattr(self, name := f"{kind}_{ranks}_ranks", self.same_losses)
        super().__init__(name)

    def same_losses(self):
        gloo, weft = (jobs.run(body, self.ranks, self.kind, b, self.ranks) for b in ("gloo", "cpu:weft"))
        some = False
        for rank in range(self.ranks):
            (how, a), (which, b) = gloo[rank], weft[rank]
            self.assertEqual((how, which), ("ok", "ok"), f"rank {rank}: gloo: {a}\nweft: {b}")
            self.assertEqual(len(a), len(b))
            for x, y in zip(a, b, strict=True):
                self.assertLessEqual(abs(x - y), 1e-10)
                some = True
        self.assertTrue(some, "no rank has a loss")


def tests(ranks):
    return unittest.TestSuite(Training(kind, ranks) for kind in KINDS)
