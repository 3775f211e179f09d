"""Writes tasks.jsonl, the tasks that bench/search_table measures: manifest lines, one task per hint of the symbol. The name up to "@"
is the group that is held out together. With the argument "live": live_tasks.jsonl, tasks of other sizes that bench/live_search runs in earnest;
with "service": service_tasks.jsonl, whose winners it compares with the default as a host would run them."""
import json
import sys


BYTES = ["reassociate", "contract", "quantised_activations"]
DOTS = ["reassociate", "contract", "bf16_dots"]
BLOCKS = {"q4_0": (32, 18), "q5_0": (32, 22), "q8_0": (32, 34), "q4_k": (256, 144), "q6_k": (256, 210)}


def task(name, tensors, nodes, hints, cold, threads=1, allowed=()):
    """A manifest line; `hints` are the values of the symbol R, none for fixed shapes. A tensor is its dims, whether it is constant, and its
    dtype if that is not f32."""
    dims = {}
    if hints:
        dims = {"R": {"min": 1, "max": 4096, "multiple_of": 1, "hints": [{"value": h, "weight": 1} for h in hints]}}
    graph = {
        "tensors": {n: dict({"dtype": (more or ["f32"])[0], "dims": d}, **({"const": True} if c else {})) for n, (d, c, *more) in tensors.items()},
        "nodes": nodes,
        "outputs": [nodes[-1]["out"]],
    }
    return {"name": name, "graph": graph, "dims": dims, "threads": threads, "cache": "cold" if cold else "hot", "allowed": list(allowed),
            "weight": 1}


def matmul(name, n, k, hints, cold, threads=1):
    """y[R, n] = x[R, k] w[k, n], w packed once."""
    return task(name, {"x": (["R", k], False), "w": ([k, n], True)}, [{"op": "matmul", "in": ["x", "w"], "out": "y"}], hints, cold, threads)


def scores(name, heads, d, hints, threads=1):
    """Each head's q k^T: k lies with the long dimension first."""
    return task(name, {"q": ([heads, "R", d], False), "k": ([heads, "R", d], False)},
                [{"op": "matmul", "in": ["q", "k"], "out": "s", "attrs": {"transpose_b": True}}], hints, False, threads)


def values(name, heads, d, hints, threads=1):
    """Each head's p v."""
    return task(name, {"p": ([heads, "R", "R"], False), "v": ([heads, "R", d], False)}, [{"op": "matmul", "in": ["p", "v"], "out": "o"}], hints, False,
                threads)


def row(name, op, columns, hints, operands=("x",), consts=(), threads=1, attrs=None):
    """A row operator over [R, columns]."""
    tensors = {o: (["R", columns], False) for o in operands}
    tensors.update({c: ([columns], True) for c in consts})
    node = {"op": op, "in": list(operands) + list(consts), "out": "y"}
    if attrs:
        node["attrs"] = attrs
    return task(name, tensors, [node], hints, False, threads)


def transpose(name, rows, columns, threads=1):
    """y[j, i] = x[i, j]."""
    return task(name, {"x": ([rows, columns], False)}, [{"op": "transpose", "in": ["x"], "out": "y", "attrs": {"perm": [1, 0]}}], None, False, threads)


def low_bits(name, n, k, fmt, hints, cold=True, group=0, allowed=BYTES):
    """y[R, n] = x[R, k] times a weight of few bits [n, k], packed once."""
    if fmt in BLOCKS:
        block, size = BLOCKS[fmt]
        weights = {"w": ([n, k // block * size], True, "u8")}
    elif fmt == "int8_channel":
        weights = {"w": ([n, k], True, "i8"), "s": ([n], True)}
    else:
        weights = {"w": ([n, k // group, group // 2], True, "u8"), "s": ([n, k // group], True)}
    attrs = {"format": fmt, **({"group": group} if group else {})}
    return task(name, {"x": (["R", k], False), **weights}, [{"op": "quantized_matmul", "in": ["x", *weights], "out": "y", "attrs": attrs}], hints, cold,
                allowed=allowed)


def bf16(name, n, k, hints, cold, allowed=DOTS, x="bf16"):
    """y[R, n] = x[R, k] w[k, n] of bf16, w packed once."""
    return task(name, {"x": (["R", k], False, x), "w": ([k, n], True, "bf16")}, [{"op": "matmul", "in": ["x", "w"], "out": "y"}], hints, cold, allowed=allowed)


def attention(name, heads, kv_heads, queries, keys, d, hints, cold=False, op="attention", dtype="f32", **attrs):
    """Queries and keys by the symbol R, or as many as given; `cached_attention` has lengths."""
    tensors = {"q": ([1, heads, queries, d], False), "k": ([1, kv_heads, keys, d], False, dtype), "v": ([1, kv_heads, keys, d], False, dtype)}
    if op == "cached_attention":
        tensors["lengths"] = ([1], False, "i32")
        if dtype == "i8":
            tensors |= {scales: ([1, kv_heads, keys], False) for scales in ("ks", "vs")}
            attrs["scales"] = True
    return task(name, tensors, [{"op": op, "in": list(tensors), "out": "y", "attrs": attrs}], hints, cold)


def grouped(name, experts, n, k, hints):
    """Rows sorted by the expert that multiplies them."""
    tensors = {"x": (["R", k], False), "w": ([experts, k, n], True), "offsets": ([experts + 1], False, "i32")}
    return task(name, tensors, [{"op": "grouped_matmul", "in": list(tensors), "out": "y"}], hints, True)


def language_tasks():
    """10 of weights of few bits, 6 of bf16, 6 of attention, 2 of experts."""
    yield low_bits("low_q4_0_2048x2048", 2048, 2048, "q4_0", [1, 8, 32])
    yield low_bits("low_q4_k_2048x2048", 2048, 2048, "q4_k", [1, 16])
    yield low_bits("low_g128_2048x2048", 2048, 2048, "nbits_4", [4, 64], group=128)
    yield low_bits("low_q6_k_4096x1024", 4096, 1024, "q6_k", [8])
    yield low_bits("low_int8_2048x2048", 2048, 2048, "int8_channel", [16])
    yield low_bits("low_q8_0_2048x2048_f32", 2048, 2048, "q8_0", [2], allowed=())
    yield bf16("bf16_2048x2048", 2048, 2048, [1, 8, 32], True)
    yield bf16("bf16_896x896@hot", 896, 896, [128], False)
    yield bf16("bf16_1024x4096", 1024, 4096, [16], True)
    yield bf16("bf16_weight_2048x2048", 2048, 2048, [4], True, allowed=(), x="f32")
    yield attention("attend_causal_14x64", 14, 2, "R", "R", 64, [128, 512], causal=True)
    yield attention("attend_full_8x128", 8, 8, "R", "R", 128, [256])
    yield attention("attend_one_32x128", 32, 8, 1, "R", 128, [1024])
    yield attention("attend_one_32x128@cold", 32, 8, 1, "R", 128, [2048], cold=True)
    yield attention("attend_int8_32x128", 32, 8, 1, "R", 128, [1024], op="cached_attention", dtype="i8", causal=True)
    yield grouped("experts_8_1024x1024", 8, 1024, 1024, [16, 128])


def tasks():
    """24 matmuls, 8 batched, 10 normalisations, 6 elementwise and transposes, then those of language models and plain matmuls last; 9 are on two
    threads."""
    eps = {"epsilon": 1e-5}
    yield row("softmax_896", "softmax", 896, [8, 128])
    yield row("softmax_333", "softmax", 333, [64])
    yield row("layernorm_768", "layernorm", 768, [1, 128], consts=("g", "b"), attrs=eps)
    yield row("rmsnorm_896", "rmsnorm", 896, [1, 128], consts=("g",), attrs=eps)
    yield row("softmax_4096", "softmax", 4096, [64])
    yield row("layernorm_4096_t2", "layernorm", 4096, [256], consts=("g", "b"), threads=2, attrs=eps)
    yield row("softmax_1024_t2", "softmax", 1024, [512], threads=2)
    yield row("gelu_3072", "gelu", 3072, [4, 128])
    yield row("swiglu_4864", "swiglu", 4864, [64], operands=("x", "u"))
    yield transpose("transpose_512x768", 512, 768)
    yield transpose("transpose_333x1000", 333, 1000)
    yield row("gelu_4096_t2", "gelu", 4096, [512], threads=2)
    yield scores("scores_12x64", 12, 64, [32, 128, 197])
    yield values("values_12x64", 12, 64, [32, 128])
    yield task("decode_scores_14x64", {"q": ([14, 1, 64], False), "k": ([14, "R", 64], False)},
               [{"op": "matmul", "in": ["q", "k"], "out": "s", "attrs": {"transpose_b": True}}], [512], False)
    yield scores("scores_8x128_t2", 8, 128, [128], threads=2)
    yield values("values_8x128_t2", 8, 128, [128], threads=2)
    yield from language_tasks()
    yield matmul("mm_896x896", 896, 896, [1, 4, 8, 16, 32], True)
    yield matmul("mm_896x896@hot", 896, 896, [77, 128, 512], False)
    yield matmul("mm_333x1000", 333, 1000, [1, 7, 33], True)
    yield matmul("mm_3072x768", 3072, 768, [128, 197], False)
    yield matmul("mm_4864x896", 4864, 896, [1, 14], True)
    yield matmul("mm_2048x2048", 2048, 2048, [1, 8, 16, 32], True)
    yield matmul("mm_512x512", 512, 512, [2048], False)
    yield matmul("mm_896x896_t2", 896, 896, [1, 16], True, threads=2)
    yield matmul("mm_896x896_t2@hot", 896, 896, [128, 512], False, threads=2)


def live_tasks():
    """Six whose static sizes no table has."""
    yield matmul("live_1536x1024", 1536, 1024, [6], True)
    yield matmul("live_640x1280", 640, 1280, [24], True)
    yield matmul("live_768x1152", 768, 1152, [160], False)
    yield scores("live_scores_16x80", 16, 80, [96])
    yield row("live_softmax_1280", "softmax", 1280, [48])
    yield row("live_layernorm_1152", "layernorm", 1152, [96], consts=("g", "b"), attrs={"epsilon": 1e-5})


def service_tasks():
    """Twenty, half of them on two threads, five cold: rows of a page and what else hangs on where operands lie."""
    eps = {"epsilon": 1e-5}
    yield row("softmax_1024", "softmax", 1024, [600])
    yield row("softmax_896", "softmax", 896, [256])
    yield row("layernorm_1024", "layernorm", 1024, [300], consts=("g", "b"), attrs=eps)
    yield row("gelu_1024", "gelu", 1024, [256])
    yield transpose("transpose_512x1024", 512, 1024)
    yield scores("scores_12x64", 12, 64, [128])
    yield matmul("mm_512x512", 512, 512, [256], False)
    yield matmul("mm_4096x4096", 4096, 4096, [1], True)
    yield matmul("mm_896x896", 896, 896, [1], True)
    yield matmul("mm_2048x2048", 2048, 2048, [8], True)
    yield row("swiglu_2300_t2", "swiglu", 2300, [2048], operands=("x", "u"), threads=2)
    yield transpose("transpose_1024x1024_t2", 1024, 1024, threads=2)
    yield transpose("transpose_333x1000_t2", 333, 1000, threads=2)
    yield row("softmax_1024_t2", "softmax", 1024, [600], threads=2)
    yield row("rmsnorm_2048_t2", "rmsnorm", 2048, [512], consts=("g",), threads=2, attrs=eps)
    yield row("layernorm_4096_t2", "layernorm", 4096, [256], consts=("g", "b"), threads=2, attrs=eps)
    yield values("values_8x128_t2", 8, 128, [128], threads=2)
    yield matmul("mm_896x896_t2@hot", 896, 896, [128], False, threads=2)
    yield matmul("mm_4096x4096_t2", 4096, 4096, [1], True, threads=2)
    yield matmul("mm_896x896_t2", 896, 896, [16], True, threads=2)


if __name__ == "__main__":
    lists = {"": tasks, "live": live_tasks, "service": service_tasks}
    asked = " ".join(sys.argv[1:])
    if asked not in lists:
        sys.exit("usage: make_tasks.py [live|service]")
    for line in lists[asked]():
        print(json.dumps(line, separators=(",", ":")))
