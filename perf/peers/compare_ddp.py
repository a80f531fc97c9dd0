#!/usr/bin/env python3
"""Steps per second of data parallelism over slow links: `weft train` and PyTorch DDP with Gloo.

  compare_ddp.py PATH/TO/weft [--hosts 4] [--rate 200mbit] [--rounds 3] [--steps 6]

Both train the same model in the lab of network namespaces (`weft lab netlab`, root), one after the
other, round after round; a host is a rank, bound to a core. Needs PyTorch (pip install torch) in the
Python that runs it. Prints medians, and what of weft's gradients' time on the way was waited for.
"""
import argparse
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


def torch_steps(args):
    with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
        command = [sys.executable, os.path.abspath(__file__), args.weft, "--steps",
                   str(args.steps), "--worker", out.name]
        subprocess.run(lab(args, command), check=True, stdout=subprocess.DEVNULL)
        return json.load(out)[WARM_UP:]


def worker(args):
    """A rank of DDP in the lab, which says who it is."""
    import torch
    import torch.distributed as dist
    import torch_gpt
    os.environ["GLOO_SOCKET_IFNAME"] = "rail0"
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    rank = int(os.environ["WEFT_RANK"])
    dist.init_process_group("gloo", init_method="tcp://10.0.0.1:29511", rank=rank,
                            world_size=int(os.environ["WEFT_SIZE"]))
    peer = torch_gpt.Trainer(*SHAPE, wrap=torch.nn.parallel.DistributedDataParallel)
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
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args)
        return
    ours, theirs = [], []
    for _ in range(args.rounds):
        ours += weft_steps(args)
        theirs += torch_steps(args)
    a = 1 / statistics.median(step["seconds"] for step in ours)
    b = 1 / statistics.median(theirs)
    exposed = sum(step["gradients_exposed_s"] for step in ours)
    total = sum(step["gradients_total_s"] for step in ours)
    print(f"{args.hosts} hosts at {args.rate}, medians of {len(ours)} and {len(theirs)} steps: "
          f"weft {a:.2f} steps/s, PyTorch DDP with Gloo {b:.2f} steps/s, ratio {a / b:.2f}; "
          f"of weft's gradients' time on the way {100 * exposed / total:.0f} % exposed")


if __name__ == "__main__":
    main()
