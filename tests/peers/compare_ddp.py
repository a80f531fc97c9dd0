#!/usr/bin/env python3
"""Steps per second of data parallelism over slow links: `weft train`, and PyTorch's DDP and FSDP2
with Gloo and with weft_torch.

  compare_ddp.py PATH/TO/weft [--hosts 4] [--rate 200mbit] [--rounds 3] [--steps 6] [--fsdp] [--bucket-mb 1]

All train the same model in the lab of network namespaces (`weft lab netlab`, root), one after the
other, round after round; a host is a rank, bound to a core. Needs PyTorch (pip install torch) in the
Python that runs it; weft_torch is left out where it is not installed. Prints medians, and what of
weft's gradients' time on the way was waited for.
"""
import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile

# vocabulary, positions, width, heads, layers, samples per rank
SHAPE = (256, 128, 128, 4, 6, 16)
WARM_UP = 2


def lab(args, command):
    return [args.weft, "lab", "netlab", "--hosts", str(args.hosts), "--ppn", "1", "--rails", "1",
            "--rate", args.rate, "--"] + command


def weft_steps(args):
    vocabulary, positions, width, heads, layers, samples = SHAPE
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as log:
        command = ["weft", "train", "--dp", str(args.hosts), "--steps", str(args.steps),
                   "--sample", "0", "--vocabulary", str(vocabulary), "--positions", str(positions),
                   "--width", str(width), "--heads", str(heads), "--layers", str(layers),
                   "--micro-batch", str(samples), "--batch", str(samples * args.hosts),
                   "--bucket-bytes", "1000000", "--log", log.name]
        subprocess.run(lab(args, command), check=True, stdout=subprocess.DEVNULL)
        return [json.loads(line) for line in log][WARM_UP:]


def torch_steps(args, backend):
    with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
        command = [sys.executable, os.path.abspath(__file__), args.weft, "--steps",
                   str(args.steps), "--backend", backend, "--worker", out.name]
        if args.fsdp:
            command.append("--fsdp")
        if args.bucket_mb:
            command += ["--bucket-mb", str(args.bucket_mb)]
        subprocess.run(lab(args, command), check=True, stdout=subprocess.DEVNULL)
        return json.load(out)[WARM_UP:]


def worker(args):
    """A rank of DDP or FSDP2 in the lab, which says who it is."""
    import torch
    import torch.distributed as dist
    import torch_gpt
    os.environ["GLOO_SOCKET_IFNAME"] = "rail0"
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    rank = int(os.environ["WEFT_RANK"])
    ranks = int(os.environ["WEFT_SIZE"])
    if args.backend == "weft":
        import weft_torch  # noqa: F401
    dist.init_process_group(args.backend, init_method="tcp://10.0.0.1:29511", rank=rank,
                            world_size=ranks)

    def sharded(model):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (ranks,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    def replicated(model):
        return torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=args.bucket_mb)

    wrap = sharded if args.fsdp else replicated
    peer = torch_gpt.Trainer(*SHAPE, wrap=wrap)
    seconds = [peer.step() for _ in range(args.steps)]
    if rank == 0:
        with open(args.worker, "w", encoding="utf-8") as out:
            json.dump(seconds, out)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weft")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rate", default="200mbit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--fsdp", action="store_true", help="FSDP2 in place of DDP")
    parser.add_argument("--bucket-mb", type=float, help="of DDP, for both (PyTorch's default: 25)")
    parser.add_argument("--backend", default="gloo", help=argparse.SUPPRESS)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args)
        return
    backends = ["gloo"]
    if importlib.util.find_spec("weft_torch"):
        backends.append("weft")
    ours, theirs = [], {backend: [] for backend in backends}
    for _ in range(args.rounds):
        if not args.fsdp:
            ours += weft_steps(args)
        for backend in backends:
            theirs[backend] += torch_steps(args, backend)
    rate = {name: 1 / statistics.median(seconds) for name, seconds in theirs.items()}
    what = "FSDP2" if args.fsdp else "DDP"
    print(f"{args.hosts} hosts at {args.rate}, medians of {len(theirs['gloo'])} steps: "
          f"PyTorch {what} with Gloo {rate['gloo']:.2f} steps/s")
    if "weft" in rate:
        print(f"PyTorch {what} with weft {rate['weft']:.2f} steps/s, "
              f"ratio {rate['weft'] / rate['gloo']:.2f}")
    if ours:
        a = 1 / statistics.median(step["seconds"] for step in ours)
        exposed = sum(step["gradients_exposed_s"] for step in ours)
        total = sum(step["gradients_total_s"] for step in ours)
        print(f"weft train {a:.2f} steps/s, ratio {a / rate['gloo']:.2f}; of its gradients' time "
              f"on the way {100 * exposed / total:.0f} % exposed")


if __name__ == "__main__":
    main()
