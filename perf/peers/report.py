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
        values = [o[key] for o in self.outcomes.get(case, {}).get(name, []) if key in o]
        return median(values) if values else None

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


def print_tables(results):
    groups = {}
    for case in results.outcomes:
        groups.setdefault(title(case), []).append(case)
    for name, cases in groups.items():
        columns = list(dict.fromkeys(c for case in cases for c in results.outcomes[case]))
        wefts = [c for c in columns if c.startswith("weft")]
        baseline = "openmpi" if "openmpi" in columns else "best"
        print(f"\n{name}: p50 in us, then weft / peer")
        heads = columns + [f"{w}/{p}" for w in wefts for p in dict.fromkeys((baseline, "best"))]
        print(f"{'bytes':>8}" + "".join(f"  {h:>{max(len(h), 9)}}" for h in heads))
        for case in sorted(cases, key=lambda c: c.bytes):
            cells = [results.time_us(case, c) for c in columns]
            for w in wefts:
                for p in dict.fromkeys((baseline, "best")):
                    mine, theirs = results.time_us(case, w), results.time_us(case, p)
                    cells.append(mine / theirs if mine and theirs else None)
            print(f"{human(case.bytes):>8}" + "".join(
                f"  {show(c):>{max(len(h), 9)}}" for h, c in zip(heads, cells)))
        if cases[0].layout is not None:
            print("share of the bound")
            for case in sorted(cases, key=lambda c: c.bytes):
                cells = [results.of_bound(case, c) for c in columns]
                print(f"{human(case.bytes):>8}" + "".join(
                    f"  {'-' if s is None else format(s, '.3f'):>{max(len(c), 9)}}"
                    for c, s in zip(columns, cells)))


def targets():
    """One entry for each number of targets.json."""
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
            passed = value is not None and value <= target["max_ratio"]
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
