#!/usr/bin/env python3
"""Draws of_bound of what `auto` takes, simulated, by collective, hosts and bytes, as an SVG.

  draw_grid.py WEFT CELLS.csv OUT.svg

Simulates the cells that CELLS.csv lacks with WEFT, appends each as it is done, and draws them all: what is
stopped goes on later. HOSTS, BYTES and COLLECTIVES in the environment choose a part; all hosts have 8 ranks and 8 rails.
"""
import csv
import json
import os
import subprocess
import sys

COLLECTIVES = "all_reduce all_gather reduce_scatter all_to_all broadcast reduce gather scatter"
HOSTS = "2 4 5 8 17 32 33 65 100 128"
BYTES = "1G 256M 64M 16M 1M 64K"
CELL, ROW, LEFT, TOP, PANELS = 44, 24, 46, 34, 2


def chosen(name, otherwise):
    return os.environ.get(name, otherwise).split()


def simulate(weft, collective, hosts, size):
    ranks = 8 * int(hosts)
    answer = subprocess.run([weft, "sim", collective, "--ranks", str(ranks), "--hosts", hosts, "--rails", "8",
                             "--bytes", size, "--json", "-"], check=True, capture_output=True, text=True)
    row = json.loads(answer.stdout)["rows"][0]
    return [collective, hosts, size, row["algorithm"], f'{row["time_us"]:.1f}', f'{row["of_bound"]:.3f}']


def panel(cells, collective, hosts, sizes, x, y):
    svg = [f'<text x="{x}" y="{y + 12}" class="head">{collective}</text>']
    for i, h in enumerate(hosts):
        svg.append(f'<text x="{x + LEFT + (i + .5) * CELL}" y="{y + TOP - 6}" class="mid">{h}</text>')
    for j, size in enumerate(sizes):
        row = y + TOP + j * ROW
        svg.append(f'<text x="{x + LEFT - 6}" y="{row + 16}" class="end">{size}</text>')
        for i, h in enumerate(hosts):
            if (collective, h, size) not in cells:
                continue
            part = float(cells[collective, h, size])
            # Light where it is far from the bound, dark where it is at it.
            ink = "#fff" if part > .6 else "#222"
            svg.append(f'<rect x="{x + LEFT + i * CELL}" y="{row}" width="{CELL - 2}" height="{ROW - 2}" '
                       f'fill="hsl(212,{30 + 40 * part:.0f}%,{94 - 62 * part:.0f}%)"/>'
                       f'<text x="{x + LEFT + (i + .5) * CELL - 1}" y="{row + 15}" class="mid" fill="{ink}">{part:.2f}</text>')
    return svg


def main(weft, path, out):
    collectives, hosts, sizes = (chosen("COLLECTIVES", COLLECTIVES), chosen("HOSTS", HOSTS), chosen("BYTES", BYTES))
    cells = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            cells = {(c, h, b): part for c, h, b, _, _, part in csv.reader(file)}
    with open(path, "a", encoding="utf-8") as file:
        for h in hosts:
            for c in collectives:
                for b in sizes:
                    if (c, h, b) not in cells:
                        row = simulate(weft, c, h, b)
                        cells[c, h, b] = row[5]
                        file.write(",".join(row) + "\n")
                        file.flush()
    width, height = LEFT + len(hosts) * CELL + 30, TOP + len(sizes) * ROW + 18
    svg = []
    for i, c in enumerate(collectives):
        svg += panel(cells, c, hosts, sizes, 10 + i % PANELS * width, 10 + i // PANELS * height)
    rows = (len(collectives) + PANELS - 1) // PANELS
    bottom = 10 + rows * height
    svg.append(f'<text x="10" y="{bottom + 12}">share of the lower bound (1: no algorithm is faster); across: hosts of 8 ranks, '
               'down: bytes of the message</text>')
    with open(out, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {10 + PANELS * width} {bottom + 22}" '
                   'font-family="sans-serif" font-size="11"><style>.mid{text-anchor:middle}.end{text-anchor:end}'
                   '.head{font-size:13px;font-weight:bold}</style><rect width="100%" height="100%" fill="#fff"/>'
                   + "\n".join(svg) + "</svg>\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
