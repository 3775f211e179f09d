"""Draws what search_replay --curves wrote as an SVG: share of the best against measurements, a line per strategy."""
import json
import math
import sys

WIDTH, HEIGHT, LEFT, TOP = 860, 520, 60, 30
PLOT_W, PLOT_H = 560, 430
COLORS = ["#000000", "#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf"]


def x_of(budget):
    return LEFT + PLOT_W * math.log2(budget) / 6


def y_of(share, low):
    return TOP + PLOT_H * (1 - (max(share, low) - low) / (1.0 - low))


def svg(curves, title, low):
    """Only noise-free curves are comparable with each other; the noisy one of the default is dashed."""
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', f'<text x="{LEFT}" y="18">{title}</text>']
    step = 0.02 if low >= 0.8 else 0.05
    share = low
    while share <= 1.0001:
        y = y_of(share, low)
        out.append(f'<line x1="{LEFT}" x2="{LEFT + PLOT_W}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/><text x="{LEFT - 36}" y="{y + 4:.1f}">{share:.2f}</text>')
        share += step
    for b in (1, 2, 4, 8, 16, 32, 64):
        out.append(f'<text x="{x_of(b) - 6:.1f}" y="{TOP + PLOT_H + 18}">{b}</text>')
    out.append(f'<text x="{LEFT + PLOT_W / 2 - 40}" y="{TOP + PLOT_H + 40}">measurements</text>')
    for i, c in enumerate(curves):
        color = COLORS[i % len(COLORS)]
        dash = ' stroke-dasharray="5,4"' if c["noisy"] else ' stroke-dasharray="2,3"' if i >= len(COLORS) else ""
        points = " ".join(f"{x_of(int(b)):.1f},{y_of(v, low):.1f}" for b, v in sorted(c["share"].items(), key=lambda p: int(p[0])))
        out.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="{2.5 if c["strategy"] == "lathe" else 1.2}"{dash}/>')
        label = c["strategy"] + (", noisy" if c["noisy"] else "")
        y = TOP + 16 * i + 8
        out.append(f'<line x1="{LEFT + PLOT_W + 20}" x2="{LEFT + PLOT_W + 50}" y1="{y}" y2="{y}" stroke="{color}" stroke-width="2"{dash}/>')
        out.append(f'<text x="{LEFT + PLOT_W + 58}" y="{y + 4}">{label}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main(argv):
    if len(argv) != 3:
        print("usage: plot_replay.py CURVES.json OUT_PREFIX (writes OUT_PREFIX.history.svg and OUT_PREFIX.bare.svg)", file=sys.stderr)
        return 2
    with open(argv[1], encoding="utf-8") as f:
        curves = json.load(f)
    for history, name, title in ((True, "history", "target held out, with the history of the others"), (False, "bare", "no history")):
        chosen = [c for c in curves if c["history"] == history]
        if not chosen:
            continue
        low = math.floor(min(v for c in chosen for v in c["share"].values()) * 20) / 20
        with open(f"{argv[2]}.{name}.svg", "w", encoding="utf-8") as f:
            f.write(svg(chosen, title, max(0.3, min(low, 0.9))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
