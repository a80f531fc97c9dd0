#!/usr/bin/env python3
"""Draws the last step of a run from the traces that `weft train --trace run.json` wrote, as SVG.

  draw_step.py run.json OUT.svg --tp 2 --dp 2 --pp 2

A row per rank: F and B of each micro-batch, and below them what the rank sent, by the axis to which
the receiver belongs; arrows are activations and errors between stages. Below: who sent how much to
whom in this step.
"""
import argparse
import json
import pathlib

WIDTH, LEFT, ROW, BAR, LANE = 1000, 70, 40, 18, 5
COLOURS = {"F": "#9ecae1", "B": "#fdae6b", "W": "#c7e9c0", "tensor": "#6a51a3", "data": "#238b45",
           "pipeline": "#cb181d", "other": "#969696"}


def events(path):
    return json.loads(path.read_text())["traceEvents"]


def name_of_rank(path, rank, middle=""):
    return path.with_name(f"{path.stem}{middle}.rank{rank}{path.suffix}")


def axis(args, a, b):
    """The axis along which ranks a and b differ; order tp, dp, pp."""
    def at(r):
        return r % args.tp, r // args.tp % args.dp, r // args.tp // args.dp
    differ = [x != y for x, y in zip(at(a), at(b))]
    names = ["tensor", "data", "pipeline"]
    return names[differ.index(True)] if sum(differ) == 1 else "other"


def mark(begin, end, top, lane, colour):
    return (f'<rect x="{begin:.1f}" y="{top + BAR + 1 + lane * LANE}" '
            f'width="{max(end - begin, 0.8):.1f}" height="{LANE - 1}" fill="{colour}"/>')


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    for name in ("tp", "dp", "pp"):
        parser.add_argument(f"--{name}", type=int, default=1)
    args = parser.parse_args()
    ranks = args.tp * args.dp * args.pp
    passes = [[e for e in events(name_of_rank(args.trace, r, ".pipeline"))
               if e.get("cat") == "pipeline"] for r in range(ranks)]
    sends = [[e for e in events(name_of_rank(args.trace, r))
              if e.get("cat") == "transfer" and e["name"].startswith("send")]
             for r in range(ranks)]
    begin = min(e["ts"] for row in passes for e in row)
    sends = [[e for e in row if e["ts"] >= begin] for row in sends]
    end = max(e["ts"] + e["dur"] for row in passes + sends for e in row)

    def x(us):
        return LEFT + (us - begin) * (WIDTH - LEFT - 10) / (end - begin)

    svg, bytes_between = [], {}
    for r in range(ranks):
        top = 24 + r * ROW
        svg.append(f'<text x="4" y="{top + 13}">rank {r}</text>')
        for e in passes[r]:
            if e["dur"] == 0:
                continue
            a, w = x(e["ts"]), x(e["ts"] + e["dur"]) - x(e["ts"])
            svg.append(f'<rect x="{a:.1f}" y="{top}" width="{w:.1f}" height="{BAR}" '
                       f'fill="{COLOURS[e["name"][0]]}" stroke="#fff"/>')
            if w > 16:
                svg.append(f'<text x="{a + 2:.1f}" y="{top + 13}">{e["name"]}</text>')
        drawn = {}  # lane: [begin, end, colour]; what follows at once is drawn with it
        for e in sends[r] + [None]:
            if e is None:
                for lane, (a, b, colour) in drawn.items():
                    svg.append(mark(a, b, top, lane, colour))
                break
            peer, size = e["args"]["peer"], e["args"]["bytes"]
            kind = axis(args, r, peer)
            bytes_between[r, peer] = bytes_between.get((r, peer), 0) + size
            lane = {"tensor": 0, "data": 1, "pipeline": 2, "other": 2}[kind]
            a, b = x(e["ts"]), x(e["ts"] + e["dur"])
            if lane in drawn and a > drawn[lane][1] + 1:
                svg.append(mark(*drawn[lane][:2], top, lane, drawn[lane][2]))
                del drawn[lane]
            drawn[lane] = (drawn.get(lane, (a,))[0], max(b, drawn.get(lane, (a, b))[1]),
                           COLOURS[kind])
            if kind == "pipeline" and size > 1024:
                to = 24 + peer * ROW + (0 if peer > r else BAR)
                svg.append(f'<line x1="{a:.1f}" y1="{top + (BAR if peer > r else 0)}" '
                           f'x2="{x(e["ts"] + e["dur"]):.1f}" y2="{to}" '
                           f'stroke="{COLOURS[kind]}" stroke-width="0.6"/>')
    y = 24 + ranks * ROW + 14
    svg.append(f'<text x="{LEFT}" y="{y}">{(end - begin) / 1000:.1f} ms</text>')
    at = LEFT + 90
    for key, text in (("F", "forward"), ("B", "backward"), ("tensor", "sent: tensor"),
                      ("data", "sent: data"), ("pipeline", "sent: pipeline"),
                      ("other", "sent: other")):
        svg.append(f'<rect x="{at}" y="{y - 9}" width="10" height="10" fill="{COLOURS[key]}"/>'
                   f'<text x="{at + 14}" y="{y}">{text}</text>')
        at += 120
    y += 24
    svg.append(f'<text x="4" y="{y}">kilobytes sent, row to column</text>')
    for a in range(ranks):
        svg.append(f'<text x="{LEFT + 60 * a + 8}" y="{y + 18}">{a}</text>'
                   f'<text x="{LEFT - 20}" y="{y + 36 + 18 * a}">{a}</text>')
        for b in range(ranks):
            size = bytes_between.get((a, b), 0)
            if size:
                svg.append(f'<text x="{LEFT + 60 * b + 8}" y="{y + 36 + 18 * a}" '
                           f'fill="{COLOURS[axis(args, a, b)]}">{size / 1000:.1f}</text>')
    height = y + 36 + 18 * ranks
    args.out.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="11">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>\n' + "\n".join(svg) + "\n</svg>\n")


if __name__ == "__main__":
    main()
