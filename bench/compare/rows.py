"""Rows of a manifest as compare.py measures them: a line at one set of sizes, its family, and who is strongest there.

Reads manifests as docs/workloads.md describes them; `lathe` itself checks them, so this only finds what it needs.
"""
import itertools
import json
import pathlib

DTYPE_BYTES = {"f32": 4, "bf16": 2, "f16": 2, "i8": 1, "u8": 1, "i32": 4, "b8": 1}
REDUCTIONS = ("softmax", "layernorm", "rmsnorm", "sum", "max", "mean")
# Of one family the peer that has to have run, else a row is not judged: measured on one core of Zen 5, those of bf16 on Intel too.
STRONGEST = {"matmul_f32": "onnxruntime", "matmul_narrow": "torch", "low_bits": "onnxruntime", "low_bits_ggml": "ggml", "gather": "ggml",
             "prefill": "onnxruntime", "prefill_narrow": "torch", "decode": "torch", "rows": "onnxruntime",
             "rows_narrow": "torch"}
GGML_FORMATS = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k")
DECODE_QUERIES = 4  # of a sequence; more are a prompt
MOST_COPIES = 512   # a session each, of some peers


class BadManifest(Exception):
    pass


def cold_bytes(cache_bytes):
    """What copies of cold operands are together: eight last-level caches, between two and 1 GiB, as in `lathe bench`."""
    return min(8 * cache_bytes, max(1 << 30, 2 * cache_bytes))


def number(value, sizes):
    """A size, or a stride such as "128*L", at these sizes."""
    if isinstance(value, int):
        return value
    product = 1
    for part in value.split("*"):
        product *= int(part) if part.isdigit() else sizes[part]
    return product


class Row:
    """A line at given sizes."""

    def __init__(self, line, sizes, threads):
        self.line, self.sizes = line, sizes
        self.name, self.cache = line["name"], line.get("cache", "hot")
        self.threads = threads or line.get("threads", 1)
        self.graph = line["graph"]
        self.tensors = self.graph["tensors"]
        self.nodes = self.graph["nodes"]
        made = {node["out"] for node in self.nodes}
        self.inputs = [name for name in self.tensors if name not in made]

    def shape(self, name):
        return [number(d, self.sizes) for d in self.tensors[name]["dims"]]

    def strides(self, name):
        """In elements; None: compact."""
        given = self.tensors[name].get("strides")
        return given and [number(s, self.sizes) for s in given]

    def constant(self, name):
        return self.tensors[name].get("const", False)

    def input_bytes(self, name):
        elements = 1
        for d in self.shape(name):
            elements *= d
        return elements * DTYPE_BYTES[self.tensors[name]["dtype"]]

    def all_rotate(self):
        """Cold: the constants rotate where they are half of what is read or more, as in `lathe bench`; else everything."""
        read = sum(self.input_bytes(n) for n in self.inputs)
        return 2 * sum(self.input_bytes(n) for n in self.inputs if self.constant(n)) < read

    def copies(self, cache_bytes):
        if self.cache != "cold":
            return 1
        everything = self.all_rotate()
        rotating = sum(self.input_bytes(n) for n in self.inputs if everything or self.constant(n))
        return max(1, min(MOST_COPIES, -(-cold_bytes(cache_bytes) // max(rotating, 1))))

    def main_node(self):
        """The one that its family is named by: the first that is more than elementwise, else the first."""
        heavy = ("matmul", "quantized_matmul", "quantized_gather", "attention", "cached_attention") + REDUCTIONS
        return next((n for n in self.nodes if n["op"] in heavy), self.nodes[0])

    def family(self):
        node = self.main_node()
        if node["op"] == "matmul":
            return "matmul_f32" if self.tensors[node["in"][1]]["dtype"] == "f32" else "matmul_narrow"
        if node["op"] == "quantized_matmul":
            return "low_bits_ggml" if node["attrs"]["format"] in GGML_FORMATS else "low_bits"
        if node["op"] == "quantized_gather":
            return "gather"
        if node["op"] in ("attention", "cached_attention"):
            if self.shape(node["in"][0])[-2] <= DECODE_QUERIES:
                return "decode"
            return "prefill" if self.tensors[node["in"][1]]["dtype"] == "f32" else "prefill_narrow"  # ONNX Runtime has it in f32 only
        return "rows" if self.tensors[node["in"][0]]["dtype"] != "bf16" else "rows_narrow"  # nor has it rows of bf16

    def dims_text(self):
        return " ".join(f"{symbol}={value}" for symbol, value in self.sizes.items())

    def text(self):
        return f"{self.name} {self.dims_text()}".strip()


def rows_of(path, threads, matches):
    """Of each line that matches(name), a row for each combination of its hints."""
    try:
        lines = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines() if line.strip()]
        return [Row(line, dict(zip(line.get("dims", {}), values)), threads) for line in lines if matches(line["name"])
                for values in itertools.product(*([h["value"] for h in d["hints"]] for d in line.get("dims", {}).values()))]
    except OSError as error:
        raise BadManifest(f"{path}: {error.strerror}") from None
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise BadManifest(f"{path}: expected a manifest of docs/workloads.md ({type(error).__name__}: {error})") from None


def find_manifest(name, folder):
    """A file, or the name of one in bench/workloads."""
    path = pathlib.Path(name)
    if path.is_file():
        return path
    named = folder / (path.name if path.name.endswith(".jsonl") else path.name + ".jsonl")
    if named.is_file():
        return named
    known = ", ".join(sorted(p.stem for p in folder.glob("*.jsonl")))
    raise BadManifest(f"{name}: no such file, and not one of {known}")
