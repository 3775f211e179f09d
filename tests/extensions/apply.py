"""Applies an example of tests/extensions to a copy of the project: copies its own files and makes its edits.

  apply.py TREE NAME          prints how many files it edited
  apply.py --about TREE NAME  prints how many it may edit, and the filter of its tests

tests/extensions/NAME/edits.txt has these lines; what is under tests/extensions/NAME/files is copied to the same path:

  limit 3                 files that it may edit
  tests Outer*:Sweep*     the tests that show it
  file ops/ops.def        the file that the next edits are in
  after LATHE_OP(rope     the first line that holds this text; the lines below, each after "> ", come after it
  > LATHE_OP(outer, ...)
  instead LATHE_OP(rope   as after, but the lines below come in place of it
"""
import pathlib
import shutil
import sys


def parse(path):
    about, edits = {}, []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        word, _, rest = line.partition(" ")
        if word in ("limit", "tests"):
            about[word] = rest
        elif word == "file":
            current = rest
        elif word in ("after", "instead"):
            edits.append((current, word, rest, []))
        elif word == ">" or line == ">":
            edits[-1][3].append(rest)
        elif line and word != "#":
            raise SystemExit(f"{path}:{number}: \"{line}\", expected limit, tests, file, after, instead or >")
    return about, edits


def apply(tree, name):
    example = tree / "tests/extensions" / name
    _, edits = parse(example / "edits.txt")
    files = example / "files"
    if files.is_dir():
        shutil.copytree(files, tree, dirs_exist_ok=True)
    for path, how, anchor, new in edits:
        lines = (tree / path).read_text(encoding="utf-8").splitlines()
        at = next((i for i, line in enumerate(lines) if anchor in line), None)
        if at is None:
            raise SystemExit(f"{path}: no line holds \"{anchor}\", which {name}/edits.txt looks for")
        lines[at + (how == "after"):at + 1] = new
        (tree / path).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len({path for path, *_ in edits})


def main(argv):
    if len(argv) == 4 and argv[1] == "--about":
        about, _ = parse(pathlib.Path(argv[2]) / "tests/extensions" / argv[3] / "edits.txt")
        print(about["limit"], about["tests"])
        return 0
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    print(apply(pathlib.Path(argv[1]), argv[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
