#!/usr/bin/env python3
"""Times torch.distributed calls with weft and with Gloo, in turns in one job; prints ratios of medians.

    compare.py [--ranks 2] [--rounds 5] [--sizes 8,64K,...] [--calls all_reduce,...]
"""

import argparse
import statistics
import sys
import time

import torch
import torch.distributed as dist

import jobs

SIZES = "8,64,512,4K,32K,256K,1M,4M,16M,64M"


def bytes_of(text):
    return int(text.rstrip("KM")) * {"K": 1024, "M": 1 << 20}.get(text[-1], 1)


def all_reduce(group, count, ranks):
    t = torch.zeros(count)
    return lambda: dist.all_reduce(t, group=group)


def all_gather(group, count, ranks):
    t, out = torch.zeros(max(1, count // ranks)), torch.zeros(max(1, count // ranks) * ranks)
    return lambda: dist.all_gather_into_tensor(out, t, group=group)


def reduce_scatter(group, count, ranks):
    out, t = torch.zeros(max(1, count // ranks)), torch.zeros(max(1, count // ranks) * ranks)
    return lambda: dist.reduce_scatter_tensor(out, t, group=group)


def all_to_all_single(group, count, ranks):
    t = torch.zeros(max(1, count // ranks) * ranks)
    out = torch.zeros_like(t)
    return lambda: dist.all_to_all_single(out, t, group=group)


CALLS = {f.__name__: f for f in (all_reduce, all_gather, reduce_scatter, all_to_all_single)}


def timed(call, times):
    dist.barrier(_GROUPS["gloo"])
    began = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - began) / times * 1e6


_GROUPS = {}


def body(rank, ranks, rounds, sizes, names):
    dist.init_process_group("gloo")
    _GROUPS["gloo"] = dist.group.WORLD
    _GROUPS["weft"] = dist.new_group(backend="weft")
    rows = []
    for name in names:
        for size in sizes:
            us = {"gloo": [], "weft": []}
            calls = {g: CALLS[name](_GROUPS[g], max(1, size // 4), ranks) for g in us}
            times = max(1, min(200, (1 << 24) // max(size, 1)))
            for g in us:
                timed(calls[g], max(1, times // 4))
            for _ in range(rounds):
                for g in us:
                    us[g].append(timed(calls[g], times))
            rows.append((name, size, statistics.median(us["gloo"]), statistics.median(us["weft"])))
    dist.barrier(_GROUPS["gloo"])
    dist.destroy_process_group()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--calls", default=",".join(CALLS))
    a = parser.parse_args()
    sizes = [bytes_of(s) for s in a.sizes.split(",")]
    said = jobs.run(body, a.ranks, a.ranks, a.rounds, sizes, a.calls.split(","), limit=540)
    word, rows = said[0]
    if word != "ok":
        sys.exit(rows)
    print(f"{'call':18} {'bytes':>10} {'gloo us':>10} {'weft us':>10} {'ratio':>6}   {a.ranks} ranks")
    for name, size, gloo, weft in rows:
        print(f"{name:18} {size:10} {gloo:10.1f} {weft:10.1f} {weft / gloo:6.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
