"""PyTorch, eager, one call an operator: products by linear, attention by scaled_dot_product_attention."""
import numpy as np
import torch
import torch.nn.functional as F

from operands import Unsupported, operand, output_dtype

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "b8": torch.bool}
SIMPLE = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "minimum": torch.minimum, "maximum": torch.maximum,
          "neg": torch.neg, "abs": torch.abs, "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "tanh": torch.tanh,
          "erf": torch.erf, "sigmoid": torch.sigmoid, "sin": torch.sin, "cos": torch.cos, "floor": torch.floor, "round": torch.round,
          "relu": torch.relu, "silu": F.silu, "where": torch.where}


def step(row, node):
    """A function of the node's operands."""
    op, attrs = node["op"], node.get("attrs", {})
    if op in SIMPLE:
        return SIMPLE[op]
    if op == "matmul":
        if attrs.get("transpose_a"):
            raise Unsupported("a product with its first operand transposed is not in the comparison")
        if attrs.get("transpose_b") and len(row.shape(node["in"][1])) == 2:
            return F.linear
        return (lambda a, b: a @ b.transpose(-1, -2)) if attrs.get("transpose_b") else torch.matmul
    if op == "attention":
        if attrs.get("window") or attrs.get("soft_cap"):
            raise Unsupported("attention with a window or a cap is not in the comparison")
        q, k = row.shape(node["in"][0]), row.shape(node["in"][1])
        causal = attrs.get("causal", False)
        if causal and q[-2] != k[-2]:
            raise Unsupported("causal attention of fewer queries than keys is not in the comparison")
        named = {"is_causal": causal, "enable_gqa": q[-3] != k[-3]} | ({"scale": attrs["scale"]} if attrs.get("scale") else {})
        if len(node["in"]) > 3:
            raise Unsupported("attention with a mask is not in the comparison")
        if len(q) == 3:
            return lambda q, k, v: F.scaled_dot_product_attention(q[None], k[None], v[None], **named)[0]
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **named)
    if op == "softmax":
        return lambda x: torch.softmax(x, -1)
    if op == "layernorm":
        return lambda x, *given: F.layer_norm(x, x.shape[-1:], *given, eps=attrs.get("epsilon", 1e-5))
    if op == "rmsnorm":
        return lambda x, *given: F.rms_norm(x, x.shape[-1:], *(g.to(x.dtype) for g in given), eps=attrs.get("epsilon", 1e-5))
    if op == "gelu":
        return lambda x: F.gelu(x, approximate=attrs.get("approximate", "none"))
    if op == "swiglu":
        return lambda a, b: F.silu(a) * b
    if op == "geglu":
        return lambda a, b: F.gelu(a, approximate=attrs.get("approximate", "none")) * b
    if op == "scale":
        return lambda x: x * attrs["value"]
    if op == "add_scalar":
        return lambda x: x + attrs["value"]
    if op == "transpose":
        return lambda x: x.permute(attrs["perm"]).contiguous()
    if op == "cast":
        return lambda x: x.to(DTYPES[attrs["to"]])
    raise Unsupported(f"{op} is not in the comparison")


class Peer:
    through_c = False

    def __init__(self, settings):
        torch.set_num_threads(settings["threads"])
        torch.set_grad_enabled(False)
        self.version = torch.__version__
        self.forget()

    def forget(self):
        self.kept = self.out = None

    def tensor(self, row, name):
        dtype = row.tensors[name]["dtype"]
        array = operand(row, name)
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if dtype == "bf16" else torch.from_numpy(array)

    def prepare(self, row, copies):
        steps = [(step(row, node), node["in"], node["out"]) for node in row.nodes]
        everything = row.all_rotate()
        first = {name: self.tensor(row, name) for name in row.inputs}
        if any(t.dtype != DTYPES[output_dtype(row)] and row.nodes[0]["op"] == "matmul" for t in first.values()):
            raise Unsupported("products of two dtypes")
        kept = [first]
        for _ in range(copies - 1):
            kept.append({name: t.clone() if everything or row.constant(name) else t for name, t in first.items()})
        self.kept = kept

        def call(copy):
            values = dict(kept[copy])
            for function, names, out in steps:
                values[out] = function(*(values[name] for name in names))
            self.out = values[steps[-1][2]]

        call(0)
        return {"eager": call}

    def result(self, way):
        return self.out.to(torch.float32).numpy()
