"""The backend's own tests: types, operators, uneven calls, bad input, failures, torchrun."""

import json
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.flight_recorder import fr_trace

import jobs
import weft_torch

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def same(got, wanted, what):
    check(torch.equal(got, wanted), f"{what}: got {got}, not {wanted}")


def fails(words, call, kind=RuntimeError):
    try:
        call()
    except kind as error:
        check(words in str(error), f"'{words}' is not in: {error}")
        return str(error)
    raise AssertionError(f"no error with '{words}'")


def group(name="weft", **more):
    dist.init_process_group(name, **more)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    check("WeftBackend" in type(backend).__name__, f"the backend is a {type(backend)}")
    return dist.get_rank(), dist.get_world_size()


def types(_):
    me, n = group()
    ops = {"SUM": sum, "MIN": min, "MAX": max}
    for dtype in INTEGERS + FLOATS:
        for name, of in ops.items():
            t = torch.full((5,), me + 1, dtype=dtype)
            dist.all_reduce(t, getattr(dist.ReduceOp, name))
            same(t, torch.full((5,), of(range(1, n + 1)), dtype=dtype), f"{dtype} {name}")
        out = torch.empty(n, 3, dtype=dtype)
        dist.all_gather_into_tensor(out, torch.full((1, 3), me, dtype=dtype))
        same(out[:, 0], torch.arange(n).to(dtype), f"all_gather_into_tensor {dtype}")
        part = torch.empty(2, dtype=dtype)
        dist.reduce_scatter_tensor(part, torch.ones(2 * n, dtype=dtype))
        same(part, torch.full((2,), n, dtype=dtype), f"reduce_scatter_tensor {dtype}")
    t = torch.tensor([me == 0, True, False])
    dist.all_reduce(t, dist.ReduceOp.MAX)
    same(t, torch.tensor([True, True, False]), "bool MAX")
    t = torch.tensor([1 << me])
    dist.all_reduce(t, dist.ReduceOp.BOR)
    same(t, torch.tensor([(1 << n) - 1]), "BOR")
    t = torch.tensor([float(me)])
    dist.all_reduce(t, dist.ReduceOp.AVG)
    same(t, torch.tensor([(n - 1) / 2]), "AVG")
    t = torch.tensor([complex(me, 1)])  # what moves may have any type
    dist.broadcast(t, 1)
    same(t, torch.tensor([complex(1, 1)]), "complex broadcast")
    t = torch.tensor([complex(me, 1)])
    dist.all_reduce(t)
    same(t, torch.tensor([complex(n * (n - 1) / 2, n)]), "complex sum, which PyTorch splits")
    t = torch.tensor([1.0]).to(torch.float8_e4m3fn)
    dist.broadcast(t, 0)


def calls(_):
    me, n = group("cpu:weft")
    # Rank r sends r + 1 rows to every rank.
    sent, received = [me + 1] * n, [r + 1 for r in range(n)]
    out = torch.empty(sum(received), 2)
    dist.all_to_all_single(out, torch.full((sum(sent), 2), float(me)), received, sent)
    same(out[:, 1], torch.repeat_interleave(torch.arange(float(n)), torch.tensor(received)), "uneven")
    outs = [torch.empty(r + 1) for r in range(n)]
    dist.all_to_all(outs, [torch.full((me + 1,), float(me)) for _ in range(n)])
    for r in range(n):
        same(outs[r], torch.full((r + 1,), float(r)), "all_to_all of lists")
    outs = [torch.empty(r + 1) for r in range(n)]
    dist.all_gather(outs, torch.full((me + 1,), float(me)))
    same(outs[-1], torch.full((n,), float(n - 1)), "all_gather of different sizes")
    dist.reduce_scatter(part := torch.empty(3), [torch.ones(3) for _ in range(n)])
    same(part, torch.full((3,), float(n)), "reduce_scatter of lists")
    gathered = [torch.empty(1) for _ in range(n)] if me == 0 else None
    dist.gather(torch.tensor([float(me)]), gathered, dst=0)
    dist.scatter(t := torch.empty(1), gathered, src=0)
    same(t, torch.tensor([float(me)]), "gather and scatter")
    dist.reduce(t, dst=n - 1)

    # Many at once, not waited for in order; futures; coalescing.
    ts = [torch.full((100,), float(i)) for i in range(20)]
    works = [dist.all_reduce(t, async_op=True) for t in ts]
    for work in reversed(works):
        work.wait()
        check(work.is_completed() and work.is_success(), "an all_reduce is not over")
    for i, t in enumerate(ts):
        same(t, torch.full((100,), float(i * n)), "async")
    future = dist.all_reduce(ts[1], async_op=True).get_future()
    value = future.then(lambda f: f.value()[0] + 1).wait()
    same(value, torch.full((100,), float(n * n + 1)), "future")
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as several:
        for t in ts[2:5]:
            dist.all_reduce(t)
    several.wait()
    same(ts[4], torch.full((100,), float(4 * n * n)), "coalesced")
    dist.all_reduce(dropped := torch.ones(1000), async_op=True)  # nobody waits
    dist.barrier()

    half = dist.new_group([0, 1])
    if me < 2:
        dist.all_reduce(t := torch.ones(1), group=half)
        same(t, torch.tensor([2.0]), "new_group")
    part = dist.split_group(split_ranks=[[0], list(range(1, n))])
    dist.all_reduce(t := torch.ones(1), group=part)
    same(t, torch.tensor([1.0 if me == 0 else n - 1.0]), "split_group")
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": me})
    check(objects[-1] == {"rank": n - 1}, "objects")

    # Tags out of order, any source, a message before its receive.
    if me == 0:
        for tag in (1, 2, 3):
            dist.send(torch.tensor([tag]), 1, tag=tag)
    if me == 1:
        for tag in (3, 1, 2):
            dist.recv(t := torch.zeros(1, dtype=torch.long), 0, tag=tag)
            same(t, torch.tensor([tag]), "tags")
    if me == 0:
        sources = {dist.recv(torch.empty(1)) for _ in range(n - 1)}
        check(sources == set(range(1, n)), f"any source: {sources}")
    else:
        dist.send(torch.ones(1), 0)
    if me == 0:
        dist.send(torch.ones(3), 1)
    if me == 1:
        fails("rank 0 sent 12 bytes", lambda: dist.recv(torch.empty(2), 0))
    dist.monitored_barrier(wait_all_ranks=True)
    dist.destroy_process_group()


def compressed(_):
    me, n = group()
    x = torch.arange(3000.0) % 100 - 50
    for codec, e in ("int8", 1 / 254), ("fp8", 1 / 16):
        for average in False, True:
            times, bound = (1, 1) if average else (n, n)
            t = x.clone()
            weft_torch.all_reduce_compressed(t, codec, average)
            check((t - times * x).abs().max() <= bound * (2 * e + e * e) * 50 + 1e-3, f"{codec}")
            check(not torch.equal(t, times * x), f"{codec} was not used")
    t = x.clone()
    work = weft_torch.all_reduce_compressed(t, async_op=True)
    work.wait()
    reduce = weft_torch.all_reduce_compressed
    fails("only float is compressed", lambda: reduce(torch.ones(2, dtype=torch.float64)))
    fails("pass int8 or fp8", lambda: reduce(torch.ones(2), "int4"))
    fails("residual", lambda: reduce(torch.ones(2), residual=torch.ones(3)))

    # DDP: the same curve, but for the rounding that the residuals make up for.
    def losses(state):
        torch.manual_seed(1)
        net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16))
        net = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.001)
        if state:
            net.register_comm_hook(state, weft_torch.compressed_hook)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        g = torch.Generator().manual_seed(me)
        said = []
        for _ in range(30):
            inputs = torch.randn(8, 16, generator=g)
            loss = torch.nn.functional.mse_loss(net(inputs), torch.sin(inputs.flip(1)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            said.append(loss.item())
        weights = torch.cat([p.detach().flatten() for p in net.parameters()])
        lowest, highest = weights.clone(), weights.clone()
        dist.all_reduce(lowest, dist.ReduceOp.MIN)
        dist.all_reduce(highest, dist.ReduceOp.MAX)
        same(lowest, highest, "the replicas' weights")
        return said

    plain = losses(None)
    for state in weft_torch.Compression(), weft_torch.Compression("fp8"), weft_torch.Compression(feedback=False):
        with_hook = losses(state)
        check(with_hook != plain, "the hook was not used")
        for a, b in zip(plain, with_hook, strict=True):
            check(abs(a - b) <= 0.01 * a, f"{state.codec}: loss {b}, not {a}")


def bad_input(_):
    me, n = group()
    fails("not contiguous", lambda: dist.all_reduce(torch.ones(4, 4).t()))
    fails("operator SUM only", lambda: dist.all_reduce(torch.eye(3).to_sparse(), dist.ReduceOp.MAX))
    w = dist.group.WORLD
    fails("view_as_real", lambda: w.allreduce([torch.ones(2, dtype=torch.cfloat)]))
    fails("not defined", lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND))
    fails("does not reduce", lambda: dist.all_reduce(torch.ones(2).to(torch.float8_e4m3fn)))
    backend = w._get_backend(torch.device("cpu"))  # PyTorch's dispatcher refuses these by itself
    fails("is on meta", lambda: backend.allreduce([torch.ones(2, device="meta")]))
    fails("is sparse", lambda: backend.broadcast([torch.eye(3).to_sparse_csr()]))
    fails("add up to", lambda: dist.all_to_all_single(torch.empty(n), torch.empty(n), [n] * n, [1] * n))
    fails("elements", lambda: dist.all_gather_into_tensor(torch.empty(n + 1), torch.empty(1)), Exception)
    fails("cannot send", lambda: w.send([torch.ones(1)], me, 0))
    dist.all_reduce(t := torch.ones(1))  # nothing has been sent, and all go on
    same(t, torch.tensor([float(n)]), "after bad input")
    # Ranks that disagree are told.
    fails("rank", lambda: dist.all_reduce(torch.ones(2 + me)))


def killed(rank, how):
    me, n = group(timeout=timedelta(seconds=20))
    if me == 1:
        if how == "kill":
            dist.all_reduce(torch.ones(1000))
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("no such file")
    began = time.monotonic()

    def go_on():
        while True:
            dist.all_reduce(torch.ones(1000))

    text = fails("rank 1", go_on)
    return text, time.monotonic() - began


def late(_):
    me, n = group(timeout=timedelta(seconds=2))
    if me == 0:
        fails("Timed out", lambda: dist.barrier())
        check(dist.group.WORLD._get_backend(torch.device("cpu")) is not None, "gone")
    else:
        time.sleep(5)


def aborted(_):
    me, n = group()
    work = None
    if me == 0:
        time.sleep(0.5)
        dist.group.WORLD.abort()
    else:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        fails("rank 0 aborted", work.wait)
        fails("rank 0", work.get_future().wait)


# Rank 1 never makes the last call, and has not asked whether its call before that is over. Rank 2 uses the older names.
def missed(rank, folder):
    buffer, file = ("FR_BUFFER_SIZE", "FR_DUMP_TEMP_FILE")
    if rank == 2:
        os.environ.pop("TORCH_FR_DUMP_TEMP_FILE", None)
        buffer, file = ("NCCL_TRACE_BUFFER_SIZE", "NCCL_DEBUG_INFO_TEMP_FILE")
    os.environ.update({f"TORCH_{buffer}": "100", f"TORCH_{file}": f"{folder}/rank_"})
    me, n = group(timeout=timedelta(seconds=4))
    dist.barrier()
    dist.all_reduce(torch.ones(2))
    if me != 1:
        time.sleep(0.5)  # PyTorch asks a Work when the call begins: rank 1's is not over then
    work = dist.all_reduce(torch.ones(3), async_op=True)
    if me == 1:
        time.sleep(8)
        return None
    work.wait()
    doctor = None
    if me == 0:
        command = [os.environ["WEFT_PROGRAM"], "doctor", "--pid", str(os.getpid()), "--json"]
        doctor = subprocess.Popen(
            ["sh", "-c", 'sleep 1.5; exec "$@"', "sh", *command], stdout=subprocess.PIPE
        )
    text = fails("rank 1 never called all_reduce", lambda: dist.all_reduce(torch.ones(4)))
    return text, doctor and json.loads(doctor.communicate(timeout=60)[0])


class Backend(unittest.TestCase):
    def all_right(self, said):
        for rank, (word, value) in said.items():
            self.assertEqual(word, "ok", f"rank {rank}: {value}")

    def test_types(self):
        self.all_right(jobs.run(types, 2))

    def test_calls(self):
        self.all_right(jobs.run(calls, 3))

    def test_compressed(self):
        self.all_right(jobs.run(compressed, 3))

    def test_bad_input(self):
        self.all_right(jobs.run(bad_input, 2))

    def test_killed_rank_is_named(self):
        said = jobs.run(killed, 3, "kill", lost=(1,))
        self.all_right(said)
        for text, seconds in (said[0][1], said[2][1]):
            self.assertIn("died", text)
            self.assertLess(seconds, 20)  # the timeout

    def test_rank_that_is_late(self):
        self.all_right(jobs.run(late, 2))

    def test_flight_recorder_and_doctor_name_the_same_rank(self):
        folder = tempfile.mkdtemp(prefix="weft_torch_")
        self.addCleanup(shutil.rmtree, folder)
        said = jobs.run(missed, 3, folder)
        self.all_right(said)
        fr_trace.main([folder, "-p", "rank_", "-o", f"{folder}/analysis"])
        with open(f"{folder}/analysis", "rb") as file:
            _, analysis = pickle.load(file)
        [[_, [job]]] = [said[0][1]]
        self.assertEqual(job["rank"], 1, job)
        self.assertTrue(all(c.pass_check for c in analysis.collectives), analysis.collectives)
        calls = [(c.collective_name, c.input_sizes, c.missing_ranks) for c in analysis.collectives]
        self.assertEqual(
            calls,
            [
                ("weft:barrier", [], None),
                ("weft:all_reduce", [[2]], None),
                ("weft:all_reduce", [[3]], None),
                ("weft:all_reduce", [[4]], {1}),
            ],
        )

    def test_abort(self):
        self.all_right(jobs.run(aborted, 2))

    def test_torchrun(self):
        # It does not import weft_torch: PyTorch finds the entry point where that is installed.
        script = pathlib.Path(__file__).parent / "all_reduce.py"
        ended = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
            + ["--master-port", str(jobs.free_port()), str(script)],
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.assertEqual(ended.returncode, 0, ended.stderr)
        for rank in (0, 1):
            self.assertIn(f"rank {rank} has 2", ended.stdout)
