"""Tables of ratios, and the verdict against targets.json. Knows nothing of how times are taken."""

import json
from pathlib import Path
from statistics import median

TARGETS = Path(__file__).resolve().parent / "targets.json"
UNITS = ((1 << 20, "MiB"), (1 << 10, "KiB"))


def human(size):
    for unit, name in UNITS:
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def title(case):
    words = [case.collective, f"{case.ranks} ranks" if case.layout is None else case.place]
    words += ["in place"] * case.in_place + ["back to back"] * case.back_to_back
    return ", ".join(words)


class Results:
    """case -> contender -> the outcomes of all rounds, in order."""

    def __init__(self):
        self.outcomes = {}

    def add(self, case, name, outcome):
        self.outcomes.setdefault(case, {}).setdefault(name, []).append(outcome)

    def failed(self):
        return any("error" in rounds[-1] for outcome in self.outcomes.values()
                   for rounds in outcome.values())

    def value(self, case, name, key="time_us"):
        """Of who failed in a round there is none: a wrong result may have come sooner than a right
        one."""
        rounds = self.outcomes.get(case, {}).get(name, [])
        values = [o[key] for o in rounds if key in o]
        return median(values) if values and "error" not in rounds[-1] else None

    def time_us(self, case, name):
        """`best` is the fastest peer of this run."""
        if name != "best":
            return self.value(case, name)
        peers = [n for n in self.outcomes.get(case, {}) if not n.startswith("weft")]
        times = [self.value(case, n) for n in peers]
        return min((t for t in times if t is not None), default=None)

    def of_bound(self, case, name):
        told = self.value(case, name, "of_bound")
        time_us = self.value(case, name)
        if told is not None or time_us is None or case.layout is None:
            return told
        return case.layout.bound_us(case.collective, case.bytes) / time_us


def show(number):
    return "-" if number is None else f"{number:.2f}" if number < 1000 else f"{number:.0f}"


class Tables:
    """Prints the ratios of each case when it is done, under one head for cases of one kind."""

    def __init__(self, results):
        self.results, self.name, self.columns, self.cases = results, None, [], []

    def add(self, case, columns):
        """columns: who was asked to run it, in their order."""
        if (title(case), columns) != (self.name, self.columns):
            self.end()
            self.name, self.columns = title(case), columns
            print(f"\n{self.name}: p50 in us, then weft / peer")
            heads = columns + [f"{w}/{p}" for w, p in self.pairs()]
            self.widths = [max(len(h), 9) for h in heads]
            print(f"{'bytes':>8}" + self.line(heads))
        self.cases.append(case)
        cells = [self.results.time_us(case, c) for c in columns]
        for pair in self.pairs():
            mine, theirs = (self.results.time_us(case, c) for c in pair)
            cells.append(mine / theirs if mine and theirs else None)
        print(f"{human(case.bytes):>8}" + self.line(map(show, cells)), flush=True)

    def end(self):
        """What follows the last case of a kind."""
        if self.cases and self.cases[0].layout is not None:
            print("share of the bound")
            for case in self.cases:
                shares = [self.results.of_bound(case, c) for c in self.columns]
                print(f"{human(case.bytes):>8}" + self.line(
                    "-" if s is None else format(s, ".3f") for s in shares), flush=True)
        self.name, self.cases = None, []

    def pairs(self):
        baseline = "openmpi" if "openmpi" in self.columns else "best"
        return [(w, p) for w in self.columns if w.startswith("weft")
                for p in dict.fromkeys((baseline, "best"))]

    def line(self, cells):
        return "".join(f"  {c:>{w}}" for c, w in zip(cells, self.widths))


# A program of MPI with libweft_mpi in front keeps weft's targets within 5 %, or this many us.
MPI_MORE, MPI_SLACK_US = 1.05, {8: 0.3}


def targets():
    """One entry for each number of targets.json, and those of libweft_mpi that follow from them."""
    for target in listed():
        yield target
        if (target["memory"] == "malloc" and target["collective"] == "all_reduce"
                and target["scenario"] == "shm" and target["against"] == "openmpi"):
            yield {**target, "memory": "mpi", "max_ratio": target["max_ratio"] * MPI_MORE,
                   "slack_us": MPI_SLACK_US.get(target["bytes"], 0)}


def listed():
    for group in json.loads(TARGETS.read_text())["groups"]:
        kind = "max_ratio" if "max_ratio" in group else "min_of_bound"
        for place, limits in group[kind].items():
            known = group.get("best_known_us", {}).get(place, [])
            for i, (size, limit) in enumerate(zip(group["bytes"], limits, strict=True)):
                yield {
                    "scenario": group["scenario"],
                    "collective": group["collective"],
                    "memory": group["memory"],
                    "place": place,
                    "in_place": group.get("in_place", False),
                    "back_to_back": group.get("back_to_back", False),
                    "bytes": size,
                    "against": group.get("against", "bound"),
                    kind: limit,
                    **({"best_known_us": known[i]} if known else {}),
                }


def belongs(target, case):
    keys = ("scenario", "collective", "place", "in_place", "back_to_back", "bytes")
    return all(target[key] == getattr(case, key) for key in keys)


def judge(results):
    """The targets that this run can judge, each with its `value` and `verdict`."""
    judged = []
    for target in targets():
        case = next((c for c in results.outcomes if belongs(target, c)), None)
        weft = f"weft_{target['memory']}"
        if case is None or weft not in results.outcomes[case]:
            continue
        if "min_of_bound" in target:
            value = results.of_bound(case, weft)
            passed = value is not None and value >= target["min_of_bound"]
        else:
            mine, theirs = results.time_us(case, weft), results.time_us(case, target["against"])
            value = mine / theirs if mine and theirs else None
            slack = target.get("slack_us", 0) / theirs if theirs else 0
            passed = value is not None and value <= target["max_ratio"] + slack
        verdict = "UNKNOWN" if value is None else "PASS" if passed else "MISS"
        judged.append({**target, "value": value, "time_us": results.time_us(case, weft),
                       "verdict": verdict, "title": title(case)})
    return judged


def print_verdicts(judged):
    if judged:
        print("\ntargets")
    for t in judged:
        limit = (f"target >= {t['min_of_bound']:.3f} of the bound" if "min_of_bound" in t
                 else f"target <= {t['max_ratio']:.2f} of {t['against']}")
        value = "not measured" if t["value"] is None else f"{t['value']:.3f}"
        known = f", best known {t['best_known_us']} us" if "best_known_us" in t else ""
        print(f"  {t['verdict']:<7} {t['title']}, {t['memory']} memory, {human(t['bytes'])}: "
              f"{value} ({limit}), {show(t['time_us'])} us{known}")
    count = {v: sum(t["verdict"] == v for t in judged) for v in ("PASS", "MISS", "UNKNOWN")}
    print(f"\n{count['PASS']} targets met, {count['MISS']} missed, {count['UNKNOWN']} not measured")
