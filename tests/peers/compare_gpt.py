#!/usr/bin/env python3
"""Tokens per second of `weft train` and of PyTorch on the CPU: the same model, threads and batch.

  compare_gpt.py PATH/TO/weft [--shape 124m|10m] [--rounds 3] [--steps 7] [--threads 2]

Needs PyTorch (pip install torch) in the Python that runs it. fp32, AdamW, one process. In each round
both train a few steps, one after the other; the first two of each round warm up, the medians of all
others are compared.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

# vocabulary, positions, width, heads, layers, samples
SHAPES = {"124m": (50257, 64, 768, 12, 12, 4), "10m": (256, 128, 320, 10, 8, 8)}
WARM_UP = 2


def weft_seconds(weft, shape, steps, threads):
    vocabulary, positions, width, heads, layers, samples = shape
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as log:
        command = [weft, "train", "-N", "1", "--steps", str(steps), "--sample", "0",
                   "--vocabulary", str(vocabulary), "--positions", str(positions), "--width",
                   str(width), "--heads", str(heads), "--layers", str(layers), "--batch",
                   str(samples), "--micro-batch", str(samples), "--log", log.name]
        cores = sorted(os.sched_getaffinity(0))[:threads]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL,
                       preexec_fn=lambda: os.sched_setaffinity(0, cores))
        return [json.loads(line)["seconds"] for line in log][WARM_UP:]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weft")
    parser.add_argument("--shape", choices=SHAPES, default="124m")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    import torch
    import torch_gpt
    torch.set_num_threads(args.threads)
    shape = SHAPES[args.shape]
    peer = torch_gpt.Trainer(*shape)
    ours, theirs = [], []
    for _ in range(args.rounds):
        ours += weft_seconds(args.weft, shape, args.steps, args.threads)
        theirs += [peer.step() for _ in range(args.steps)][WARM_UP:]
    tokens = shape[1] * shape[5]
    a, b = (tokens / statistics.median(seconds) for seconds in (ours, theirs))
    print(f"{args.shape}, {args.threads} threads, medians of {len(ours)} and {len(theirs)} steps: "
          f"weft {a:.0f} tokens/s, PyTorch {torch.__version__} {b:.0f} tokens/s, ratio {a / b:.2f}")


if __name__ == "__main__":
    main()
