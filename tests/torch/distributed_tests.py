#!/usr/bin/env python3
"""Runs PyTorch's distributed tests with weft, prints a table, and ends with 1 where one fails that
passes with Gloo.

    distributed_tests.py [--ranks 4] [--only NAME,...] [--backend weft|gloo] [--list]
"""

import argparse
import os
import pathlib
import shutil
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--only", help="names, separated by commas; else all of gloo_passes.txt")
    parser.add_argument("--backend", choices=["weft", "gloo"], default="weft")
    return parser.parse_args()


def main():
    arguments = parse()
    folder = tempfile.mkdtemp(prefix="weft_torch_")
    os.environ.update(
        BACKEND="gloo",  # what the tests go by
        WORLD_SIZE=str(arguments.ranks),
        TEMP_DIR=folder,
        INIT_METHOD=f"file://{folder}/init_dir/shared_init_file",
        WEFT_TEST_BACKEND=arguments.backend,
        CUDA_VISIBLE_DEVICES="",
        PYTHONPATH=f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        OMP_NUM_THREADS="1",
    )
    sys.path.insert(0, str(HERE))
    try:
        import distributed_cases

        names = (HERE / "gloo_passes.txt").read_text().split()
        if arguments.only:
            names = arguments.only.split(",")
        counts = {"ok": 0, "skipped": 0, "FAILED": 0}
        for name in names:
            result = unittest.TestResult()
            began = time.monotonic()
            distributed_cases.Cases(name).run(result)
            seconds = time.monotonic() - began
            wrong = result.failures + result.errors
            outcome = "FAILED" if wrong else "skipped" if result.skipped else "ok"
            counts[outcome] += 1
            print(f"{outcome:8} {seconds:6.1f} s  {name}", flush=True)
            for _, text in wrong:
                print("    " + text.strip().replace("\n", "\n    "), flush=True)
        print(
            f"{arguments.backend}, {arguments.ranks} ranks: {counts['ok']} passed, "
            f"{counts['FAILED']} failed, {counts['skipped']} skipped"
        )
        return 1 if counts["FAILED"] or not counts["ok"] else 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
