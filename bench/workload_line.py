"""One line of a manifest, and the sizes that lines vary in. For make_workloads.py and what it imports."""
import json


def size(most, *hints):
    return {"min": 1, "max": most, "multiple_of": 1, "hints": [{"value": v, "weight": 1} for v in hints]}


TOKENS = size(4096, 1, 2, 4, 8, 128)
SEQUENCES = size(256, 1, 2, 4, 8)
KV_LENGTH = size(4096, 128, 1024)


class Line:
    """One line of a manifest, built node by node."""

    def __init__(self, name, dims=None, threads=1, cache="cold", weight=1, allowed=()):
        self.name, self.dims = name, dims or {}
        self.threads, self.cache, self.weight, self.allowed = threads, cache, weight, list(allowed)
        self.tensors, self.nodes, self.outputs = {}, [], []

    def tensor(self, name, dims, const=False, strides=None, dtype="f32"):
        self.tensors[name] = {"dtype": dtype, "dims": dims}
        if strides:
            self.tensors[name]["strides"] = strides
        if const:
            self.tensors[name]["const"] = True
        return name

    def node(self, op, inputs, out, **attrs):
        self.nodes.append({"op": op, "in": inputs, "out": out} | ({"attrs": attrs} if attrs else {}))
        return out

    def text(self):
        graph = {"tensors": self.tensors, "nodes": self.nodes, "outputs": self.outputs or [self.nodes[-1]["out"]]}
        return json.dumps({"name": self.name, "graph": graph, "dims": self.dims, "threads": self.threads,
                           "cache": self.cache, "allowed": self.allowed, "weight": self.weight}, separators=(",", ":"))
