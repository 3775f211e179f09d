"""Draws what README shows of bench/results: time of OpenBLAS over Lathe's on odd products (openblas.txt), and what share
of its limit each row of the Qwen2.5-0.5B workload reaches (qwen2.5-0.5b.bench.jsonl). Writes bench/results/summary.svg.

  python3 bench/plot_results.py bench/results
"""
import json
import pathlib
import sys

WIDTH, LEFT, PLOT_W = 860, 60, 780
OURS, LINE, TEXT = "#1f77b4", "#ddd", 'font-family="sans-serif" font-size="11"'


def openblas_rows(path):
    """Name and ratio of each row: name, us, "us", "openblas", us, "us", ratio."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        words = line.split()
        if len(words) == 7 and words[3] == "openblas":
            rows.append((words[0], float(words[6])))
    return rows


def roofline_rows(path):
    """Name and share of the limit (arithmetic, read or copy bandwidth) of each row that has one."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row.get("event") == "row" and row.get("of_roofline") is not None:
            dims = ",".join(f"{k}{v}" for k, v in sorted(row["dims"].items()))
            rows.append((f'{row["op"]} {dims}', row["of_roofline"], row["limit"]))
    return rows


def panel(out, top, height, title, bars, low, high, marks):
    """bars: (label, value, colour), drawn from `low` upwards; marks: values with a line."""
    out.append(f'<text x="{LEFT}" y="{top - 26}" font-family="sans-serif" font-size="13" font-weight="bold">{title}</text>')
    y_of = lambda v: top + height * (1 - (min(max(v, low), high) - low) / (high - low))
    for m in marks:
        bold = ' stroke-width="2" stroke="#555"' if m == 1 else f' stroke="{LINE}"'
        out.append(f'<line x1="{LEFT}" x2="{LEFT + PLOT_W}" y1="{y_of(m):.1f}" y2="{y_of(m):.1f}"{bold}/>'
                   f'<text x="{LEFT - 34}" y="{y_of(m) + 4:.1f}" {TEXT}>{m:.2f}</text>')
    step = PLOT_W / len(bars)
    for i, (label, value, colour) in enumerate(bars):
        x, y = LEFT + i * step, y_of(value)
        out.append(f'<rect x="{x + step * .15:.1f}" y="{y:.1f}" width="{step * .7:.1f}" height="{top + height - y:.1f}" '
                   f'fill="{colour}"><title>{label}: {value:.3f}</title></rect>')
        out.append(f'<text transform="translate({x + step * .5 + 3:.1f},{top + height + 6}) rotate(90)" '
                   f'font-family="sans-serif" font-size="8">{label}</text>')


def svg(products, rows):
    colours = {"peak": "#1f77b4", "read": "#2ca02c", "copy": "#9467bd"}
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="650">',
           f'<rect width="{WIDTH}" height="650" fill="white"/>']
    panel(out, 40, 180, "Time of OpenBLAS over Lathe's, odd products of f32, one thread (above 1: Lathe is faster)",
          [(name, ratio, OURS if ratio >= 1 else "#d62728") for name, ratio in products], .8, 1.8, (.8, 1, 1.2, 1.4, 1.6, 1.8))
    panel(out, 370, 180, "Qwen2.5-0.5B: share of the measured limit per row (arithmetic, read or copy bandwidth)",
          [(name, share, colours.get(limit, colours["peak"])) for name, share, limit in rows], 0, 1.2, (0, .25, .5, .75, 1))
    for i, (name, colour) in enumerate(colours.items()):
        text = {"peak": "limit: arithmetic", "read": "limit: read bandwidth", "copy": "limit: copy bandwidth"}[name]
        out.append(f'<rect x="{LEFT + 180 * i}" y="350" width="10" height="10" fill="{colour}"/>'
                   f'<text x="{LEFT + 180 * i + 14}" y="359" {TEXT}>{text}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main(argv):
    if len(argv) != 2 or not pathlib.Path(argv[1]).is_dir():
        print("usage: plot_results.py FOLDER (with openblas.txt and qwen2.5-0.5b.bench.jsonl)", file=sys.stderr)
        return 2
    folder = pathlib.Path(argv[1])
    try:
        products = openblas_rows(folder / "openblas.txt")
        rows = roofline_rows(folder / "qwen2.5-0.5b.bench.jsonl")
    except OSError as e:
        print(f"plot_results: {e}", file=sys.stderr)
        return 1
    if not products or not rows:
        print(f"plot_results: no rows in {folder}", file=sys.stderr)
        return 1
    (folder / "summary.svg").write_text(svg(products, rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
