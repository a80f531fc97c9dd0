#!/usr/bin/env python3
"""Runs the tests of weft_torch, a line for each: the backend's own, training beside Gloo, and PyTorch's distributed tests.

    all_tests.py [--ranks N,N] [--pytorch FILE] [--only WORD] [--backend weft|gloo]

Ends with 1 where a test failed. What GTEST_OUTPUT=xml:FILE names gets the report that GoogleTest would write."""

import argparse
import os
import pathlib
import sys
import time
import unittest
from xml.sax.saxutils import quoteattr

import backend_test
import distributed_tests
import training


class Report(unittest.TestResult):
    """Prints a line per test, and keeps (suite, name, seconds, outcome, text)."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def startTest(self, test):
        super().startTest(test)
        self.began, self.outcome, self.text = time.monotonic(), "ok", ""

    def addError(self, test, err):
        super().addError(test, err)
        self.outcome, self.text = "FAILED", self._exc_info_to_string(err, test)

    addFailure = addError

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.outcome, self.text = "skipped", reason

    def stopTest(self, test):
        super().stopTest(test)
        suite, name = test.id().split(".")[-2:]
        seconds = time.monotonic() - self.began
        self.rows.append((suite, name, seconds, self.outcome, self.text))
        print(f"{self.outcome:8} {seconds:6.1f} s  {suite}.{name}", flush=True)
        if self.text:
            print("    " + self.text.strip().replace("\n", "\n    "), flush=True)

    def write(self, path):
        lines = ["<testsuites>", "<testsuite>"]
        for suite, name, seconds, outcome, text in self.rows:
            lines.append(
                f'<testcase name="{name}" status="run" time="{seconds:.3f}" classname="{suite}">'
            )
            if outcome != "ok":
                kind = "failure" if outcome == "FAILED" else "skipped"
                lines.append(f"<{kind} message={quoteattr(' '.join(text.split()))}/>")
            lines.append("</testcase>")
        lines += ["</testsuite>", "</testsuites>", ""]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines))


def tests_of(suite):
    for test in suite:
        yield from tests_of(test) if isinstance(test, unittest.TestSuite) else [test]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="2,4", help="of training and of PyTorch's tests (2,4)")
    parser.add_argument("--pytorch", metavar="FILE", help="PyTorch's test_c10d_backend_collectives.py")
    parser.add_argument("--only", default="", help="tests with this in their names")
    parser.add_argument("--backend", choices=["weft", "gloo"], default="weft")
    a = parser.parse_args()
    several = [int(n) for n in a.ranks.split(",")]
    report = Report()

    def run(suite):
        for test in tests_of(suite):
            if a.only in test.id():
                test.run(report)

    if a.backend == "weft":
        run(unittest.defaultTestLoader.loadTestsFromModule(backend_test))
        for ranks in several:
            run(training.tests(ranks))
    # Last: from here on, weft has Gloo's name.
    distributed_tests.run(several, a.pytorch, a.backend, run)
    outcomes = [row[3] for row in report.rows]
    print(
        f"{outcomes.count('ok')} passed, {outcomes.count('FAILED')} failed, "
        f"{outcomes.count('skipped')} skipped"
    )
    output = os.environ.get("GTEST_OUTPUT", "")
    if output.startswith("xml:"):
        report.write(pathlib.Path(output.removeprefix("xml:")))
    return 1 if "FAILED" in outcomes or "ok" not in outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
