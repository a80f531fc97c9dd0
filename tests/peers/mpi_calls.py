"""Open MPI with and without libweft_mpi.so, in turns: a table of medians and their ratio.

mpi_calls.py LIBRARY [--ranks 2,4] [--rounds 9]

Compiles mpi_calls.c, and shm_floor.c, whose times stand beside the calls that it has. Needs mpicc.openmpi and
mpirun.openmpi.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("library", type=pathlib.Path)
parser.add_argument("--ranks", default="2,4")
parser.add_argument("--rounds", type=int, default=9)
given = parser.parse_args()
here = pathlib.Path(__file__).parent
built = pathlib.Path(tempfile.mkdtemp())
for compiler, name in [("mpicc.openmpi", "mpi_calls"), ("cc", "shm_floor")]:
    subprocess.run([compiler, "-O2", "-o", built / name, here / f"{name}.c"], check=True)
environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def mpirun(ranks, *options):
    return ["mpirun.openmpi", "--oversubscribe", "-n", ranks, *options, built / "mpi_calls"]


for ranks in given.ranks.split(","):
    sides = [mpirun(ranks), mpirun(ranks, "-x", f"LD_PRELOAD={given.library.resolve()}"),
             [built / "shm_floor", ranks]]
    times = {}
    for _ in range(given.rounds):
        for side, command in enumerate(sides):
            run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
            for line in run.stdout.splitlines():
                name, size, us = line.split()
                times.setdefault((name, int(size)), ([], [], []))[side].append(float(us))
    ratios = {cell: statistics.median(weft) / statistics.median(mpi) for cell, (mpi, weft, _) in times.items()}
    print(f"\n{ranks} ranks: of {len(ratios)} cells {sum(r <= 1 for r in ratios.values())} are at 1.0 or "
          f"below, {sum(r <= 1.05 for r in ratios.values())} at 1.05 or below\n")
    print("| call | bytes | Open MPI us | weft us | ratio | bare us |\n|---|---|---|---|---|---|")
    for (name, size), sides_of in times.items():
        mpi, weft, bare = (f"{statistics.median(side):.2f}" if side else "" for side in sides_of)
        print(f"| {name} | {size} | {mpi} | {weft} | {ratios[name, size]:.2f} | {bare} |")
