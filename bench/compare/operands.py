"""Operands of a row as numpy arrays, the same in every process that makes them, and results as f32. Bytes of bf16 are u16 here."""
import numpy as np


class Unsupported(Exception):
    """What a participant cannot do, and why."""


NUMPY = {"f32": np.float32, "bf16": np.uint16, "f16": np.float16, "i8": np.int8, "u8": np.uint8, "i32": np.int32, "b8": np.bool_}


def to_bf16(values):
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def as_f32(array, dtype):
    return from_bf16(array) if dtype == "bf16" else array.astype(np.float32)


def halves(rng, rows, blocks, most):
    """Scales of blocks, positive, as their two bytes."""
    return (rng.random((rows, blocks, 1), np.float32) * most + most / 8).astype(np.float16).view(np.uint8)


# Of a block: its values, its bytes, and its fields: so many bytes, or a scale, for values of a deviation of 1; below 0, an offset.
BLOCKS = {
    "q4_0": (32, 18, [1 / 5, 16]), "q4_1": (32, 20, [1 / 5, -1.0, 16]), "q5_0": (32, 22, [1 / 9, 4 + 16]),
    "q5_1": (32, 24, [1 / 9, -1.0, 4 + 16]), "q8_0": (32, 34, [1 / 73, 32]), "q4_k": (256, 144, [1 / 150, 1 / 30, 12 + 128]),
    "q5_k": (256, 176, [1 / 300, 1 / 30, 12 + 32 + 128]), "q6_k": (256, 210, [128 + 64 + 16, 1 / 1300])}


def values_in(kind, row_bytes):
    """How many values of a format a row of so many bytes has."""
    values, bytes_, _ = BLOCKS[kind]
    return row_bytes // bytes_ * values


def block_bytes(kind, rng, rows, inputs):
    """Random blocks of a format whose values have a deviation around 1 / sqrt(inputs)."""
    unit = 1 / np.sqrt(inputs)
    block, _, fields = BLOCKS[kind]
    blocks = inputs // block
    parts = []
    for field in fields:
        if isinstance(field, int):
            parts.append(rng.integers(0, 256, (rows, blocks, field), np.uint8))
        else:
            scale = halves(rng, rows, blocks, abs(field) * unit)
            if field < 0:
                scale[..., 1] |= 0x80
            parts.append(scale)
    return np.concatenate(parts, axis=2).reshape(rows, -1)


def operand(row, name, seed=7):
    """The operand `name` of a row, with its strides."""
    values, strides = values_of(row, name, seed), row.strides(name)
    if strides is None:
        return values
    last = sum((size - 1) * stride for size, stride in zip(values.shape, strides))
    memory = np.zeros(last + 1, values.dtype)
    placed = np.lib.stride_tricks.as_strided(memory, values.shape, [s * values.itemsize for s in strides])
    placed[...] = values
    return placed


def memory_of(array):
    """All elements from the first to the last in memory, those between included."""
    last = sum((size - 1) * stride for size, stride in zip(array.shape, array.strides)) // array.itemsize
    return np.lib.stride_tricks.as_strided(array, (last + 1,), (array.itemsize,))


def values_of(row, name, seed):
    tensor, shape = row.tensors[name], row.shape(name)
    rng = np.random.default_rng([seed, row.inputs.index(name)])
    node = row.main_node()
    dtype = tensor["dtype"]
    if node["op"] == "quantized_matmul" and name in node["in"][1:]:
        return weight_part(node["attrs"]["format"], node["in"].index(name), rng, shape, dtype, row.shape(node["in"][0])[-1])
    if node["op"] == "quantized_gather":
        table, ids = node["in"]
        if name == ids:
            return rng.integers(0, row.shape(table)[0], shape, NUMPY[dtype])
        kind = node["attrs"]["format"]
        return block_bytes(kind, rng, shape[0], values_in(kind, row.shape(table)[1]))
    if dtype in ("i32", "i8", "u8", "b8"):
        raise ValueError(f"{name}: operands of {dtype} are made for weights only")
    values = rng.standard_normal(shape, np.float32)
    if node["op"] == "matmul" and name == node["in"][1]:
        values /= np.float32(np.sqrt(row.shape(node["in"][0])[-1]))
    return to_bf16(values) if dtype == "bf16" else values.astype(NUMPY[dtype])


def weight_part(kind, place, rng, shape, dtype, inputs):
    if "_k" in kind or kind[0] == "q":
        return block_bytes(kind, rng, shape[0], inputs)
    if place == 1:  # the bits
        info = np.iinfo(NUMPY[dtype])
        low = -127 if dtype == "i8" else info.min
        return rng.integers(low, info.max, shape, NUMPY[dtype], endpoint=True)
    if dtype in ("u8", "i32"):  # zero points
        info = np.iinfo(NUMPY[dtype])
        return rng.integers(info.min, info.max, shape, NUMPY[dtype], endpoint=True)
    bits = 7 if kind.startswith(("int8", "nbits_8")) else 3
    scales = (rng.random(shape, np.float32) + 0.25) / np.float32(2 ** bits * np.sqrt(inputs))
    return to_bf16(scales) if dtype == "bf16" else scales.astype(NUMPY[dtype])


def output_dtype(row):
    """As the operators infer it: that of the first input, unless a cast is last."""
    last = row.nodes[-1]
    if last["op"] == "cast":
        return last["attrs"]["to"]
    return "f32" if row.main_node()["op"] == "quantized_gather" else row.tensors[row.main_node()["in"][0]]["dtype"]


def output_shape(row):
    """Shapes of results, operator by operator."""
    shapes = {name: row.shape(name) for name in row.inputs}
    for node in row.nodes:
        first = shapes[node["in"][0]]
        attrs = node.get("attrs", {})
        op = node["op"]
        if isinstance(node["out"], list):
            raise ValueError(f"{op}: operators of several results are not compared")
        if op == "matmul":
            second = shapes[node["in"][1]]
            lead = np.broadcast_shapes(first[:-2], second[:-2])
            rows = first[-1] if attrs.get("transpose_a") else first[-2]
            shape = [*lead, rows, second[-2] if attrs.get("transpose_b") else second[-1]]
        elif op == "quantized_matmul":
            weight = shapes[node["in"][1]]
            kind = attrs["format"]
            columns = weight[1] * 8 if kind == "awq" else weight[1] if kind.startswith("gptq") else weight[0]
            shape = [*first[:-1], columns]
        elif op == "quantized_gather":
            shape = [*shapes[node["in"][1]], values_in(attrs["format"], first[1])]
        elif op in ("attention", "cached_attention"):
            shape = [*first[:-1], shapes[node["in"][2]][-1]]
        elif op == "transpose":
            shape = [first[d] for d in attrs["perm"]]
        elif op in ("sum", "max", "mean"):
            shape = first[:-1] + ([1] if attrs.get("keepdims") else [])
        else:
            shape = list(np.broadcast_shapes(*(shapes[name] for name in node["in"]))) if len(node["in"]) > 1 and op not in (
                "layernorm", "rmsnorm", "rope") else first
        shapes[node["out"]] = list(shape)
    return shapes[row.nodes[-1]["out"]]
