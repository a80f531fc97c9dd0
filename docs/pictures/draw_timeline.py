#!/usr/bin/env python3
"""Draws what the ports and the core of rank 0 do in a simulated collective, as SVG.

  weft sim all_reduce ... --timeline t.csv && draw_timeline.py t.csv OUT.svg

A row per port, a bar per message, a colour per round.
"""
import csv
import sys

WIDTH, LEFT, ROW, BAR = 1000, 70, 34, 22
ROWS = ["host tx", "host rx", "rail tx", "rail rx", "core"]


def colour(number):
    return f"hsl({number * 137 % 360},60%,{55 + number % 2 * 12}%)"


def main(source, out):
    with open(source, encoding="utf-8") as file:
        uses = list(csv.DictReader(file))
    end = max(float(u["to_us"]) for u in uses)
    scale = (WIDTH - LEFT - 10) / end
    svg = []
    for row, name in enumerate(ROWS):
        y = 10 + row * ROW
        svg.append(f'<text x="4" y="{y + 15}">{name}</text>')
        for u in uses:
            if u["at"] != name:
                continue
            start, stop = float(u["from_us"]), float(u["to_us"])
            svg.append(f'<rect x="{LEFT + start * scale:.1f}" y="{y}" width="{max(.3, (stop - start) * scale):.1f}" '
                       f'height="{BAR}" fill="{colour(int(u["round"]))}"/>')
    bottom = 10 + len(ROWS) * ROW
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000) if end / s <= 12)
    for i in range(int(end // step) + 1):
        x = LEFT + i * step * scale
        svg.append(f'<path d="M{x:.1f} 6V{bottom}" stroke="#ccc"/><text x="{x:.1f}" y="{bottom + 14}">{i * step}</text>')
    svg.append(f'<text x="4" y="{bottom + 14}">us</text>')
    with open(out, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 20}" '
                   'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>\n')
        file.write("\n".join(svg) + "\n</svg>\n")


main(*sys.argv[1:])
