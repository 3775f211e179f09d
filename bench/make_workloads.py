#!/usr/bin/env python3
"""Derives the manifests in bench/workloads/ from models.json: `python3 bench/make_workloads.py [folder]` writes them.

Each manifest holds every operator of one forward pass of a model, except embedding look-up and the append to the KV
cache, as fused groups that become one kernel each; `weight` is how often the pass runs it. Format: docs/workloads.md.
"""
import json
import math
import pathlib
import sys

from language_models import language_models
from workload_line import KV_LENGTH, SEQUENCES, TOKENS, Line

HERE = pathlib.Path(__file__).resolve().parent / "workloads"
# What models.json does not say: biases of the projections, epsilon of the norms.
DETAILS = {
    "qwen2.5-0.5b": {"qkv_bias": True, "epsilon": 1e-6},
    "smollm2-135m": {"qkv_bias": False, "epsilon": 1e-5},
    "llama3-8b": {"qkv_bias": False, "epsilon": 1e-5},
    "minilm-l6": {"qkv_bias": True, "epsilon": 1e-12},
    "bert-base": {"qkv_bias": True, "epsilon": 1e-12},
}


def linear(name, weight, k, n, bias=False, act=None, residual=False, gate=False, rows=("M", TOKENS), **attrs):
    """y = follower(x * w^T + bias): the follower an activation, swiglu with the gate's result, or the residual."""
    line = Line(name, {rows[0]: rows[1]}, weight=weight)
    y = line.node("matmul", [line.tensor("x", [rows[0], k]), line.tensor("w", [n, k], const=True)], "xw", transpose_b=True)
    if bias:
        y = line.node("add", [y, line.tensor("bias", [n], const=True)], "biased")
    if act:
        y = line.node(act, [y], "activated", **attrs)
    if gate:
        y = line.node("swiglu", [line.tensor("gate", [rows[0], n]), y], "gated")
    if residual:
        line.node("add", [y, line.tensor("residual", [rows[0], n])], "sum")
    return line


def norm(model, details, weight):
    h = model["hidden"]
    rms = model["norm"] == "rms"
    line = Line("norm", {"M": TOKENS}, weight=weight)
    operands = [line.tensor("x", ["M", h]), line.tensor("scale", [h], const=True)]
    if not rms:
        operands.append(line.tensor("bias", [h], const=True))
    line.node("rmsnorm" if rms else "layernorm", operands, "y", epsilon=details["epsilon"])
    return line


def rope(name, weight, heads, d):
    line = Line(name, {"M": TOKENS}, weight=weight)
    line.node("rope", [line.tensor("x", ["M", heads, d]), line.tensor("cos", ["M", d // 2]), line.tensor("sin", ["M", d // 2])],
              "y", interleaved=False)
    return line


def attention(weight, dims, batch, heads, rows, d, length, q, kv, out):
    """Scores with scale and mask, softmax, and the weighted sum; q, kv and out are strides (None: compact)."""
    lead = [batch, heads]
    scores = Line("scores", dims, weight=weight)
    y = scores.node("matmul", [scores.tensor("q", lead + [rows, d], strides=q),
                               scores.tensor("k", lead + [length, d], strides=kv)], "qk", transpose_b=True)
    y = scores.node("scale", [y], "scaled", value=1 / math.sqrt(d))
    scores.node("add", [y, scores.tensor("mask", [batch, 1, 1, length])], "masked")
    soft = Line("softmax", dims, weight=weight)
    soft.node("softmax", [soft.tensor("x", lead + [rows, length])], "y")
    context = Line("context", dims, weight=weight)
    operands = [context.tensor("p", lead + [rows, length]), context.tensor("v", lead + [length, d], strides=kv)]
    if out:
        context.tensor("y", lead + [rows, d], strides=out)
    context.node("matmul", operands, "y")
    return [scores, soft, context]


def decoder(model, details, layers, head):
    h, q, g, d, f = (model[k] for k in ("hidden", "q_heads", "kv_heads", "head_dim", "ffn"))
    lines = [norm(model, details, 2 * layers + (1 if head else 0)),
             linear("q_proj", layers, h, q * d, bias=details["qkv_bias"]),
             linear("kv_proj", 2 * layers, h, g * d, bias=details["qkv_bias"]),
             rope("rope_q", layers, q, d), rope("rope_k", layers, g, d)]
    # Each token's sequence has a cache [L, kv heads, D]; the query heads of a group are the rows of its matmul.
    cache = [f"{g * d}*L", d, g * d, 1]
    lines += attention(layers, {"M": TOKENS, "L": KV_LENGTH}, "M", g, q // g, d, "L", None, cache, None)
    lines += [linear("o_proj", layers, q * d, h, residual=True),
              linear("gate_proj", layers, h, f),
              linear("up_proj", layers, h, f, gate=True),
              linear("down_proj", layers, f, h, residual=True)]
    if head:
        lines.append(linear("lm_head", 1, h, model["vocab"], rows=("S", SEQUENCES)))
    return lines


def encoder(model, details):
    layers, h, q, d, f = (model[k] for k in ("layers", "hidden", "q_heads", "head_dim", "ffn"))
    longest = 512
    length = {"min": 1, "max": longest, "multiple_of": 1, "hints": [{"value": v, "weight": 1} for v in model["seq"]]}
    batch = {"min": 1, "max": 64, "multiple_of": 1, "hints": [{"value": 1, "weight": 1}]}
    lines = [norm(model, details, 2 * layers + 1), linear("qkv_proj", 3 * layers, h, h, bias=True)]
    heads_of = [f"{h}*T", d, h, 1]  # heads inside [batch, T, hidden]
    lines += attention(layers, {"B": batch, "T": length}, "B", q, "T", d, "T", heads_of, heads_of, heads_of)
    lines += [linear("o_proj", layers, h, h, bias=True, residual=True),
              linear("ffn_in", layers, h, f, bias=True, act="gelu", approximate="none"),
              linear("ffn_out", layers, f, h, bias=True, residual=True),
              linear("pooler", 1, h, h, bias=True, act="tanh", rows=("S", SEQUENCES))]
    return lines


def matmul(m, k, n, threads=1, cache="hot", transposed=False):
    suffix = "" if threads == 1 else f"_t{threads}"
    line = Line(f"matmul_{m}x{k}x{n}{suffix}", threads=threads, cache=cache)
    b = line.tensor("b", [n, k] if transposed else [k, n], const=True)
    line.node("matmul", [line.tensor("a", [m, k]), b], "y", **({"transpose_b": True} if transposed else {}))
    return line


def row(op, vectors, m, n, cache="hot"):
    """vectors: constants of one row; -1: a second operand like the first."""
    line = Line(f"{op}_{m}x{n}", cache=cache)
    operands = [line.tensor("x", [m, n])]
    operands += [line.tensor("u", [m, n])] if vectors < 0 else []
    operands += [line.tensor(name, [n], const=True) for name in ("scale", "bias")[:max(vectors, 0)]]
    line.node(op, operands, "y")
    return line


ROWS = (("softmax", 0), ("layernorm", 2), ("rmsnorm", 1), ("gelu", 0), ("swiglu", -1))


def limits():
    """The operators that the limits of the machine are read from."""
    lines = [matmul(n, n, n) for n in (1024, 512, 256, 64)]
    lines += [matmul(1024, 1024, 1024, threads=2), matmul(1, 4096, 4096, cache="cold", transposed=True)]
    lines += [row(op, vectors, m, n, cache) for m, n, cache in ((128, 896, "hot"), (4096, 1024, "cold")) for op, vectors in ROWS]
    return lines


def odd_shapes():
    """Sizes that no tile and no vector divides: products one over, one under and half-way between tiles, products of one column, rows beside their
    even neighbours, reductions of a sum (a residual, a mask), attention of 14 query heads over 2 key heads."""
    sizes = ((31, 64, 33), (37, 96, 49), (49, 65, 40), (61, 128, 65), (97, 100, 81), (100, 127, 129), (127, 256, 127), (199, 96, 200), (257, 192, 255), (385, 300, 399), (64, 256, 1), (512, 512, 1), (2048, 2048, 1))
    lines = [matmul(m, k, n) for m, k, n in sizes]
    lines += [row(op, vectors, m, n) for m, n in ((128, 1023), (128, 1024), (600, 83), (600, 80), (4, 30001), (4, 30000), (4096, 1023)) for op, vectors in ROWS]
    for m, n in ((128, 1024), (128, 1023)):
        for op, vectors in ROWS[:3]:
            line = Line(f"add_{op}_{m}x{n}", cache="hot")
            total = line.node("add", [line.tensor("x", [m, n]), line.tensor("u", [m, n])], "t")
            line.node(op, [total] + [line.tensor(f"s{v}", [n], const=True) for v in range(vectors)], "y")
            lines.append(line)
    for length in (128, 255, 512):
        scores = Line(f"scores_14x{length}x64x{length}", cache="hot")
        scores.node("matmul", [scores.tensor("q", [2, 7, length, 64]), scores.tensor("k", [2, 1, length, 64])], "y", transpose_b=True)
        values = Line(f"values_14x{length}x{length}x64", cache="hot")
        values.node("matmul", [values.tensor("p", [2, 7, length, length]), values.tensor("v", [2, 1, length, 64])], "y")
        lines += [scores, values]
    return lines


def narrow_products():
    """Products of 4096 x 4096 weights in f32, bf16 and f16, from one row to 128: what a byte of weights less saves, and where arithmetic ends it."""
    lines = []
    for m in (1, 2, 4, 8, 16, 32, 128):
        for a, w in (("f32", "f32"), ("f32", "bf16"), ("bf16", "bf16"), ("f32", "f16"), ("f16", "f16")):
            line = Line(f"matmul_{m}x4096x4096_{a}_{w}")
            line.node("matmul", [line.tensor("a", [m, 4096], dtype=a), line.tensor("b", [4096, 4096], const=True, dtype=w)], "y")
            lines.append(line)
    return lines


def low_bits(quantised=False):
    """Products of 4096 x 4096 weights of few bits, from one row to 128: beside f32, or with quantised activations."""
    kind, allowed = ("_bytes", ["reassociate", "contract", "quantised_activations"]) if quantised else ("", [])
    blocks = {"q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q8_0": (32, 34), "q4_k": (256, 144), "q5_k": (256, 176), "q6_k": (256, 210)}
    n = k = 4096
    lines = []
    for m in (1, 4, 8, 16, 32, 128):
        f32 = Line(f"matmul_{m}x{n}x{k}_f32")
        f32.node("matmul", [f32.tensor("a", [m, k]), f32.tensor("b", [n, k], const=True)], "y", transpose_b=True)
        if not quantised:
            lines.append(f32)
        for name, (block, size) in blocks.items():
            line = Line(f"{name}{kind}_{m}x{n}x{k}", allowed=allowed)
            line.node("quantized_matmul", [line.tensor("a", [m, k]), line.tensor("w", [n, k // block * size], const=True, dtype="u8")], "y", format=name)
            lines.append(line)
        for group in (32, 128):
            line = Line(f"nbits_4_g{group}{kind}_{m}x{n}x{k}", allowed=allowed)
            operands = [line.tensor("a", [m, k]), line.tensor("w", [n, k // group, group // 2], const=True, dtype="u8"),
                        line.tensor("s", [n, k // group], const=True)]
            line.node("quantized_matmul", operands, "y", format="nbits_4", group=group)
            lines.append(line)
        line = Line(f"int8_channel{kind}_{m}x{n}x{k}", allowed=allowed)
        line.node("quantized_matmul", [line.tensor("a", [m, k]), line.tensor("w", [n, k], const=True, dtype="i8"), line.tensor("s", [n], const=True)], "y",
                  format="int8_channel")
        lines.append(line)
    return lines


def limits_llm():
    """The rows of a language model that one limit of the machine binds; a name begins with its family's prefix."""
    n = k = 4096
    lines = []
    blocks = {"q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q8_0": (32, 34), "q4_k": (256, 144), "q5_k": (256, 176), "q6_k": (256, 210)}

    def low(name, m, weights, **attrs):
        line = Line(f"{name}_{m}x{n}x{k}", allowed=["reassociate", "contract", "quantised_activations"])
        operands = [line.tensor("a", [m, k])] + [line.tensor(t, dims, const=True, dtype=dtype) for t, dims, dtype in weights]
        line.node("quantized_matmul", operands, "y", **attrs)
        lines.append(line)

    formats = {name: ([("w", [n, k // block * size], "u8")], {"format": name}) for name, (block, size) in blocks.items()}
    for group in (32, 128):
        formats[f"g{group}"] = ([("w", [n, k // group, group // 2], "u8"), ("s", [n, k // group], "f32")], {"format": "nbits_4", "group": group})
    formats["nbits_8"] = ([("w", [n, k // 32, 32], "u8"), ("s", [n, k // 32], "f32")], {"format": "nbits_8", "group": 32})
    # With zero points: of MatMulNBits, AWQ and GPTQ.
    words = [("s", [k // 128, n], "f16"), ("z", [k // 128, n // 8], "i32")]
    zeros = {
        "g32": ([("w", [n, k // 32, 16], "u8"), ("s", [n, k // 32], "f32"), ("z", [n, k // 64], "u8")], {"format": "nbits_4_zeros", "group": 32}),
        "awq": ([("w", [k, n // 8], "i32")] + words, {"format": "awq", "group": 128}),
        "gptq": ([("w", [k // 8, n], "i32")] + words, {"format": "gptq", "group": 128})}
    for name, (weights, attrs) in zeros.items():
        for m in (1, 2, 4):
            low(f"gemv_zeros_{name}", m, weights, **attrs)
        for m in (8, 16, 32):
            low(f"low_zeros_{name}", m, weights, **attrs)
    channel = ([("w", [n, k], "i8"), ("s", [n], "f32")], {"format": "int8_channel"})
    for name, (weights, attrs) in {**formats, "int8": channel}.items():
        for m in (1, 2, 4):
            low(f"gemv_{name}", m, weights, **attrs)
        for m in (4, 8, 16, 32):
            low("int8_channel" if name == "int8" else f"low_{name}", m, weights, **attrs)

    def product(name, m, n, k, dtype="f32", cache="cold", const=True, transpose=False):
        allowed = ["reassociate", "contract", "bf16_dots"] if dtype == "bf16" else []  # the peak of its figures is that of dots
        line = Line(f"{name}_{m}x{n}x{k}", cache=cache, allowed=allowed)
        operands = [line.tensor("a", [m, k], dtype=dtype), line.tensor("b", [n, k] if transpose else [k, n], const=const, dtype=dtype)]
        line.node("matmul", operands, "y", **({"transpose_b": True} if transpose else {}))
        lines.append(line)

    for dtype in ("f32", "bf16"):
        for n_, k_ in ((4096, 4096), (14336, 4096)):
            for m in (1, 4, 8, 14, 16, 32, 64):
                product(f"mm_{dtype}", m, n_, k_, dtype)
        for size in (256, 512, 1000, 1024) if dtype == "f32" else (512, 1024):
            product(f"square_{dtype}", size, size, size, dtype, cache="hot")

    for size in (256, 512, 1024):
        product("packed_f32", size, size, size, cache="hot", const=False)

    def given_bytes(name, m, n, k, cache, requantised):
        """Activations and weights of i8: i32 sums, or bytes again with scales of rows and channels."""
        line = Line(f"{name}_{m}x{n}x{k}", cache=cache)
        y = line.node("matmul_integer", [line.tensor("a", [m, k], dtype="i8"), line.tensor("b", [n, k], const=True, dtype="i8")], "c", transpose_b=True)
        if requantised:
            y = line.node("cast", [y], "r", to="f32")
            y = line.node("mul", [y, line.tensor("s", [n], const=True)], "scaled")
            y = line.node("mul", [y, line.tensor("rows", [m, 1])], "real")
            y = line.node("add", [y, line.tensor("bias", [n], const=True)], "biased")
            line.node("cast", [y], "y", to="i8")
        lines.append(line)

    for size in (512, 1024):
        given_bytes("square_int8", size, size, size, "hot", False)
    for m in (1, 8, 16, 32):
        given_bytes("int8_given", m, 4096, 4096, "cold", True)
    for transpose in (False, True):
        for m in (1, 4, 16, 128):
            product("plain_nk" if transpose else "plain_kn", m, 4096, 4096, const=False, transpose=transpose)
    for size in (16, 32, 64, 96):
        product("tiny", size, size, size, cache="hot")

    def attention(name, heads, kv_heads, queries, keys, dtype, cache, **attrs):
        allowed = ["reassociate", "contract", "bf16_dots"] if dtype == "bf16" else []
        line = Line(name, cache=cache, allowed=allowed)
        operands = [line.tensor("q", [1, heads, queries, 128], dtype=dtype), line.tensor("k", [1, kv_heads, keys, 128], dtype=dtype),
                    line.tensor("v", [1, kv_heads, keys, 128], dtype=dtype)]
        line.node("attention", operands, "y", **attrs)
        lines.append(line)

    for dtype in ("f32", "bf16"):
        attention(f"prefill_full_{dtype}", 32, 32, 512, 512, dtype, "hot")
        attention(f"prefill_causal_{dtype}", 32, 32, 512, 512, dtype, "hot", causal=True)
        attention(f"prefill_causal_32_8_{dtype}", 32, 8, 512, 512, dtype, "hot", causal=True)
    for dtype in ("f32", "bf16"):
        for kv_heads in (8, 32):
            for cache in ("hot", "cold"):
                attention(f"decode_{cache}_32_{kv_heads}_{dtype}", 32, kv_heads, 1, 1024, dtype, cache)
    lines += limits_of_caches() + limits_of_experts() + limits_of_rows() + limits_of_threads()
    return lines


def limits_of_caches():
    """Decode by pages beside the same keys without, and bytes with scales: 32 heads over 8 of keys, 1024 keys."""
    lines = [cached_attention("contiguous_f32_32_8", "cached_attention", 32, 8, 1, 1, cache="hot"),
             cached_attention("kv_int8_cold_32_8", "cached_attention", 32, 8, 1, 1, dtype="i8")]
    for page in (16, 32, 128):
        lines.append(cached_attention(f"paged_{page}_f32_32_8", "paged_attention", 32, 8, 1, 1, cache="hot", page=page))
    return lines


def limits_of_experts():
    """Eight experts with as many rows each, in one kernel, beside the product of one of them."""
    lines = []
    n = k = 2048
    for dtype, part in (("f32", ""), ("bf16", "bf16_")):
        allowed = ["reassociate", "contract", "bf16_dots"] if dtype == "bf16" else []
        for m in (4, 16):
            grouped = Line(f"grouped_{part}8x{m}x{n}x{k}", allowed=allowed)
            operands = [grouped.tensor("a", [8 * m, k], dtype=dtype), grouped.tensor("b", [8, k, n], const=True, dtype=dtype),
                        grouped.tensor("offsets", [9], dtype="i32")]
            grouped.node("grouped_matmul", operands, "y")
            single = Line(f"single_{part}{m}x{n}x{k}", allowed=allowed)
            single.node("matmul", [single.tensor("a", [m, k], dtype=dtype), single.tensor("b", [k, n], const=True, dtype=dtype)], "y")
            lines += [grouped, single]
    return lines + limits_of_quantised_experts()


def limits_of_quantised_experts():
    """The same with weights of few bits; eight rows, one each, are those of a token's experts."""
    lines = []
    allowed = ["reassociate", "contract", "quantised_activations"]
    for kind, block, size, shapes in (("q4_0", 32, 18, [(8, 2048, 2048)]), ("q4_k", 256, 144, [(1, 768, 2048)] + [(m, 2048, 2048) for m in (4, 8, 16)])):
        for m, n, k in shapes:
            row = k // block * size
            grouped = Line(f"grouped_{kind}_8x{m}x{n}x{k}", allowed=allowed)
            operands = [grouped.tensor("a", [8 * m, k]), grouped.tensor("w", [8, n, row], const=True, dtype="u8"), grouped.tensor("offsets", [9], dtype="i32")]
            grouped.node("quantized_grouped_matmul", operands, "y", format=kind)
            single = Line(f"single_{kind}_{m}x{n}x{k}", allowed=allowed)
            single.node("quantized_matmul", [single.tensor("a", [m, k]), single.tensor("w", [n, row], const=True, dtype="u8")], "y", format=kind)
            lines += [grouped, single]
    return lines


def limits_of_rows():
    """Rows of 128 to 16384: 64 K elements in the near caches, and 8 M that come from memory."""
    lines = []
    for op, vectors in (("softmax", 0), ("rmsnorm", 1)):
        for dtype in ("f32", "bf16"):
            for n in (128, 1024, 4096, 16384):
                for where, elements, cache in (("hot", 1 << 16, "hot"), ("cold", 1 << 23, "cold")):
                    line = Line(f"rows_{where}_{op}_{dtype}_{elements // n}x{n}", cache=cache)
                    operands = [line.tensor("x", [elements // n, n], dtype=dtype)]
                    operands += [line.tensor("scale", [n], const=True, dtype=dtype) for _ in range(vectors)]
                    line.node(op, operands, "y")
                    lines.append(line)
    return lines


def limits_of_threads():
    """What two threads make of rows that one thread has too, by the names of those."""
    q4 = Line("two_gemv_q4_0_1x4096x4096", threads=2, allowed=["reassociate", "contract", "quantised_activations"])
    q4.node("quantized_matmul", [q4.tensor("a", [1, 4096]), q4.tensor("w", [4096, 4096 // 32 * 18], const=True, dtype="u8")], "y", format="q4_0")
    f32 = Line("two_mm_f32_8x4096x4096", threads=2)
    f32.node("matmul", [f32.tensor("a", [8, 4096]), f32.tensor("b", [4096, 4096], const=True)], "y")
    square = Line("two_square_f32_1024x1024x1024", threads=2, cache="hot")
    square.node("matmul", [square.tensor("a", [1024, 1024]), square.tensor("b", [1024, 1024], const=True)], "y")
    prefill = Line("two_prefill_causal_32_8_f32", threads=2, cache="hot")
    operands = [prefill.tensor("q", [1, 32, 512, 128])] + [prefill.tensor(t, [1, 8, 512, 128]) for t in "kv"]
    prefill.node("attention", operands, "y", causal=True)
    lines = [q4, f32, square, prefill]
    for threads, before in ((1, ""), (2, "two_")):
        # Three sequences: their keys are shared out, or their heads.
        for name, op, more in (("lengths", "cached_attention", {}), ("ragged_16", "ragged_attention", {"page": 16, "ragged": True})):
            line = cached_attention(f"{before}{name}_3_f32_32_8", op, 32, 8, 3, 1, cache="hot", **more)
            line.threads = threads
            lines.append(line)
    return lines


def around():
    """What stands around the products and attention of a language model: rows of a vocabulary, sums with their norms, appends to a cache."""
    lines = []
    for n in (128256, 151936, 262144):
        for rows in (1, 4):
            for dtype in ("f32", "bf16"):
                for op, attrs in (("softmax", {}), ("argmax", {"to": "i32"})):
                    line = Line(f"{op}_{dtype}_{rows}x{n}", cache="hot")
                    line.node(op, [line.tensor("x", [rows, n], dtype=dtype)], "y", **attrs)
                    lines.append(line)
            line = Line(f"top_k_f32_{rows}x{n}", cache="hot")
            line.outputs = line.node("top_k", [line.tensor("x", [rows, n])], ["y", "indices"], k=64)
            lines.append(line)
    for rows, n in ((1, 128256), (64, 4096)):
        line = Line(f"cumsum_f32_{rows}x{n}", cache="hot")
        line.node("cumsum", [line.tensor("x", [rows, n])], "y")
        lines.append(line)
    columns = Line("cumsum_columns_f32_64x64x1024", cache="hot")
    columns.node("cumsum", [columns.tensor("x", [64, 64, 1024])], "y", axis=1)
    lines.append(columns)
    for dtype in ("f32", "bf16"):
        for rows in (1, 128):
            for op in ("rmsnorm", "layernorm"):
                dims = [rows, 4096]
                both = Line(f"add_{op}_{dtype}_{rows}x4096", cache="hot")
                h = both.node("add", [both.tensor("x", dims, dtype=dtype), both.tensor("r", dims, dtype=dtype)], "h")
                both.node(op, [h, both.tensor("scale", [4096], const=True, dtype=dtype)], "y")
                both.outputs = ["h", "y"]
                norm_alone = Line(f"{op}_{dtype}_{rows}x4096", cache="hot")
                norm_alone.node(op, [norm_alone.tensor("h", dims, dtype=dtype), norm_alone.tensor("scale", [4096], const=True, dtype=dtype)], "y")
                lines += [both, norm_alone]
            alone = Line(f"add_{dtype}_{rows}x4096", cache="hot")
            alone.node("add", [alone.tensor("x", [rows, 4096], dtype=dtype), alone.tensor("r", [rows, 4096], dtype=dtype)], "h")
            lines.append(alone)
    heads, width, room = 8, 128, 4096
    for op, dtype in (("kv_append", "f32"), ("kv_append", "bf16"), ("kv_append_int8", "i8")):
        for tokens in (1, 512):
            line = Line(f"{op}_{dtype}_{tokens}x{heads}x{width}", cache="hot")
            operands = [line.tensor("x", [tokens, heads, width]), line.tensor("slots", [tokens], dtype="i32"),
                        line.tensor("cache", [room, heads, width], dtype=dtype)]
            if dtype == "i8":
                operands.append(line.tensor("scales", [room, heads]))
            operands += [line.tensor("cos", [room, width // 2]), line.tensor("sin", [room, width // 2]),
                         line.tensor("positions", [tokens], dtype="i32"), line.tensor("norm", [width])]
            line.node(op, operands, "y")
            lines.append(line)
    return lines


def cached_attention(name, op, heads, kv_heads, batch, queries, cache="cold", page=0, ragged=False, dtype="f32", width=128, keys=1024):
    """Caches with room for `keys` keys a sequence, contiguous or in pages; their lengths are inputs of the call."""
    line = Line(name, cache=cache)
    pages = keys // page if page else 0
    rows = [batch * pages, kv_heads, page] if page else [batch, kv_heads, keys]
    q = [batch * queries, heads, width] if ragged else [batch, heads, queries, width]
    operands = [line.tensor("q", q)] + [line.tensor(t, rows + [width], const=cache == "cold", dtype=dtype) for t in "kv"]
    operands.append(line.tensor("lengths", [batch], dtype="i32"))
    if page:
        operands.append(line.tensor("pages", [batch, pages], dtype="i32"))
    if ragged:
        operands.append(line.tensor("offsets", [batch + 1], dtype="i32"))
    if dtype == "i8":
        operands += [line.tensor(t, rows, const=cache == "cold") for t in ("k_scales", "v_scales")]
    attrs = {"causal": True} | ({"scales": True} if dtype == "i8" else {})
    line.node(op, operands, "y", **attrs)
    return line


def attention_caches():
    """Keys and values as caches hold them, beside contiguous ones of the same sizes: pages, sequences of unequal lengths, bytes with scales."""
    lines = []
    keys = 1024

    def cached(*args, **rest):
        lines.append(cached_attention(*args, **rest))

    for kv_heads in (8, 32):
        for batch in (1, 8):
            sizes = f"32_{kv_heads}_{batch}x{keys}"
            for dtype in ("f32", "i8"):
                cached(f"decode_contiguous_{dtype}_{sizes}", "cached_attention", 32, kv_heads, batch, 1, dtype=dtype)
                for page in (16, 32, 128) if dtype == "f32" else (16,):
                    cached(f"decode_pages{page}_{dtype}_{sizes}", "paged_attention", 32, kv_heads, batch, 1, page=page, dtype=dtype)
            cached(f"decode_ragged16_f32_{sizes}", "ragged_attention", 32, kv_heads, batch, 1, page=16, ragged=True)
    cached("mixed_ragged16_f32_32_8_8x16", "ragged_attention", 32, 8, 8, 16, cache="hot", page=16, ragged=True)
    cached("prefill_contiguous_f32_32_8_1x512", "cached_attention", 32, 8, 1, 512, cache="hot")
    for page in (16, 128):
        cached(f"prefill_pages{page}_f32_32_8_1x512", "paged_attention", 32, 8, 1, 512, cache="hot", page=page)
    return lines


def main(folder):
    models = json.loads((HERE / "models.json").read_text())["transformers"]
    manifests = {"limits": limits(), "odd_shapes": odd_shapes(), "narrow_products": narrow_products(), "low_bits": low_bits(),
                 "low_bits_bytes": low_bits(quantised=True), "limits-llm": limits_llm(), "around": around(),
                 "attention_caches": attention_caches()}
    for name in ("qwen2.5-0.5b", "smollm2-135m"):
        manifests[name] = decoder(models[name], DETAILS[name], models[name]["layers"], head=True)
    manifests["llama3-8b-layer"] = decoder(models["llama3-8b"], DETAILS["llama3-8b"], 1, head=False)
    for name in ("minilm-l6", "bert-base"):
        manifests[name] = encoder(models[name], DETAILS[name])
    manifests |= language_models(models)
    for name, lines in manifests.items():
        (folder / f"{name}.jsonl").write_text("".join(line.text() + "\n" for line in lines))


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    if len(sys.argv) > 2 or not folder.is_dir():
        sys.exit("usage: make_workloads.py [FOLDER], one that exists")
    main(folder)
