#!/usr/bin/env python3
"""Tokens per second of `weft train` and of PyTorch on the CPU: the same model, threads and batch.

  compare_gpt.py PATH/TO/weft [--shape 124m|10m] [--steps 6] [--threads 2]

Needs PyTorch (pip install torch) in the Python that runs it. fp32, AdamW, one process. The median
step counts on both sides; the first two warm up.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

# vocabulary, positions, width, heads, layers, samples
SHAPES = {"124m": (50257, 64, 768, 12, 12, 4), "10m": (256, 128, 320, 10, 8, 8)}


def weft_rate(weft, shape, steps, threads):
    vocabulary, positions, width, heads, layers, samples = shape
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as log:
        command = [weft, "train", "-n", "1", "--steps", str(steps), "--sample", "0",
                   "--vocabulary", str(vocabulary), "--positions", str(positions), "--width",
                   str(width), "--heads", str(heads), "--layers", str(layers), "--batch",
                   str(samples), "--micro-batch", str(samples), "--log", log.name]
        cores = sorted(os.sched_getaffinity(0))[:threads]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL,
                       preexec_fn=lambda: os.sched_setaffinity(0, cores))
        seconds = [json.loads(line)["seconds"] for line in log]
    return samples * positions / statistics.median(seconds[2:])


def torch_rate(shape, steps, threads):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    vocabulary, positions, width, heads, layers, samples = shape
    torch.set_num_threads(threads)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            q, k, v = (self.qkv(self.norm1(x))
                       .reshape(samples, positions, 3, heads, width // heads)
                       .permute(2, 0, 3, 1, 4))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(a.transpose(1, 2).reshape(samples, positions, width))
            return x + self.shrink(F.gelu(self.grow(self.norm2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.LayerNorm(width)

        def forward(self, tokens):
            x = self.wte(tokens) + self.wpe.weight
            for block in self.blocks:
                x = block(x)
            return F.linear(self.norm(x), self.wte.weight)

    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95))
    tokens = torch.randint(0, 256, (samples, positions))
    seconds = []
    for _ in range(steps):
        start = time.monotonic()
        loss = F.cross_entropy(model(tokens).reshape(-1, vocabulary), tokens.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds.append(time.monotonic() - start)
    return samples * positions / statistics.median(seconds[2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weft")
    parser.add_argument("--shape", choices=SHAPES, default="124m")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    shape = SHAPES[args.shape]
    ours = weft_rate(args.weft, shape, args.steps, args.threads)
    theirs = torch_rate(shape, args.steps, args.threads)
    print(f"{args.shape}: weft {ours:.0f} tokens/s, PyTorch {theirs:.0f} tokens/s, "
          f"ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
