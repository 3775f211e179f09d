#!/usr/bin/env python3
# Draws the rooms of docs/architecture.md's table and what includes what: a band per floor, rooms from left to right by
# what they rest on, an arrow from each room to the rooms named with it. Writes docs/rooms.svg; --check only compares.
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLOORS = ["tools", "runtime", "jit", "search", "ops", "ir"]  # from the top
WIDTH, LEFT, BOX_W, BOX_H, GAP_X, GAP_Y = 1180, 90, 84, 26, 22, 12
STYLE = 'font-family="sans-serif" font-size="12"'


def rooms_of(text):
    """Floor -> room -> rooms of the same floor that it includes, from the rows `| `floor/room` | ... | includes |`."""
    floors = {floor: {} for floor in FLOORS}
    for line in text.splitlines():
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        names = re.findall(r"`(\w+)/(\w+)`", cells[0]) if len(cells) == 3 else []
        groups = cells[2].split(";") if names else []
        for i, (floor, room) in enumerate(names):
            named = groups[i] if len(groups) == len(names) else cells[2]
            floors[floor][room] = [w for w in re.findall(r"\w+", named) if w != room]
        if cells[0] == "`ir` itself":
            floors["ir"]["nest, leaf ABI"] = re.findall(r"\w+", cells[2])
    for floor, rooms in floors.items():
        if not rooms:
            rooms[floor] = []
    return floors


def levels(rooms):
    """How many rooms lie below each one at most."""
    out = {}

    def level(room):
        if room not in out:
            out[room] = 1 + max((level(r) for r in rooms[room] if r in rooms), default=-1)
        return out[room]

    for room in rooms:
        level(room)
    return out


def svg(floors):
    body, y = [], 20
    for floor in FLOORS:
        rooms, level = floors[floor], levels(floors[floor])
        columns = {}
        for room in rooms:
            columns.setdefault(level[room], []).append(room)
        rows = max(len(c) for c in columns.values())
        height = rows * BOX_H + (rows - 1) * GAP_Y + 28
        body.append(f'<rect x="10" y="{y}" width="{WIDTH - 20}" height="{height}" fill="#f3f6fa" stroke="#c5d0de"/>'
                    f'<text x="22" y="{y + height / 2 + 5:.0f}" {STYLE} font-weight="bold">{floor}</text>')
        place = {}
        for column, names in columns.items():
            top = y + (height - len(names) * BOX_H - (len(names) - 1) * GAP_Y) / 2
            for i, room in enumerate(names):
                place[room] = (LEFT + column * (BOX_W + GAP_X), top + i * (BOX_H + GAP_Y))
        for room, below in rooms.items():
            for other in below:
                if other in place:
                    (x, top), (to_x, to_top) = place[room], place[other]
                    body.append(f'<line x1="{x}" y1="{top + BOX_H / 2:.0f}" x2="{to_x + BOX_W}" y2="{to_top + BOX_H / 2:.0f}" '
                                'stroke="#8094ad" marker-end="url(#arrow)"/>')
        for room, (x, top) in place.items():
            body.append(f'<rect x="{x}" y="{top:.0f}" width="{BOX_W}" height="{BOX_H}" rx="4" fill="white" stroke="#42618a"/>'
                        f'<text x="{x + BOX_W / 2}" y="{top + 17:.0f}" {STYLE} text-anchor="middle">{room}</text>')
        y += height + 14
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 20}">'
            f'<rect width="{WIDTH}" height="{y + 20}" fill="white"/>'
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0,0 L8,4 L0,8 z" fill="#8094ad"/></marker></defs>')
    foot = (f'<text x="22" y="{y + 8}" {STYLE}>An arrow points to a room that is included. A floor also includes the floors '
            'below it; jit, search and ops do not see each other.</text></svg>')
    return head + "\n" + "\n".join(body) + "\n" + foot + "\n"


def main(argv):
    picture = svg(rooms_of((ROOT / "docs/architecture.md").read_text(encoding="utf-8")))
    path = ROOT / "docs/rooms.svg"
    if argv[1:] == ["--check"]:
        if path.read_text(encoding="utf-8") == picture:
            return 0
        print("docs/rooms.svg does not show the table of docs/architecture.md: run scripts/draw_rooms.py", file=sys.stderr)
        return 1
    if argv[1:]:
        print("usage: draw_rooms.py [--check]", file=sys.stderr)
        return 2
    path.write_text(picture, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
