#!/usr/bin/env python3
"""Writes GGUF files of random weights. Needs no package, and writes the same bytes everywhere.

make_gguf.py qwen2.5-0.5b OUT.gguf    its dimensions and the formats of a Q4_K_M file (about 400 MB)
make_gguf.py tiny-gemma3 OUT.gguf     each architecture of decoder_loop in a few ten KB
make_gguf.py tiny-qwen2 OUT.gguf
make_gguf.py formats OUT.gguf         no model: a tensor of 200 random blocks per format

Blocks are random bytes; their scales are set so that weights have a deviation of about 1 / sqrt(row length). What such
a model says means nothing: only agreement with reference.py counts."""
import random
import struct
import sys

U32, F32, STRING, ARRAY = 4, 6, 8, 9
# Number in the file, values and bytes of a block.
FORMATS = {
    "F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24),
    "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "BF16": (30, 1, 2),
}
# Where f16 scales and minima lie in a block, and what they are times the root of the row length.
SCALES = {
    "Q4_0": {0: 0.217}, "Q4_1": {0: 0.217, 2: -1.63}, "Q5_0": {0: 0.109}, "Q5_1": {0: 0.109, 2: -1.68}, "Q8_0": {0: 0.0135},
    "Q4_K": {0: 0.0039, 2: 0.0285}, "Q5_K": {0: 0.00195, 2: 0.0285}, "Q6_K": {208: 0.00073},
}


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value(v):
    if isinstance(v, str):
        return struct.pack("<I", STRING) + text(v)
    if isinstance(v, list):
        return struct.pack("<IIQ", ARRAY, STRING, len(v)) + b"".join(text(word) for word in v)
    return struct.pack("<If", F32, v) if isinstance(v, float) else struct.pack("<II", U32, v)


class Writer:
    """Makes tensors one at a time, as they are written."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.meta, self.tensors = {}, []

    def add(self, name, form, *dims, make=None):
        self.tensors.append((name, form, dims, make or self.blocks))

    def random_bytes(self, count):
        return b"".join(self.random.randbytes(min(count - i, 1 << 24)) for i in range(0, count, 1 << 24))

    def normal(self, dims, mean, deviation):
        return b"".join(struct.pack("<f", self.random.gauss(mean, deviation)) for _ in range(dims[0]))

    def norm_scale(self, form, dims):
        return self.normal(dims, 1.0, 0.1)

    def bias(self, form, dims):
        return self.normal(dims, 0.0, 0.1)

    def blocks(self, form, dims):
        _, values, size = FORMATS[form]
        count = dims[0] * (dims[1] if len(dims) > 1 else 1) // values
        data = bytearray(self.random_bytes(count * size))
        for at, factor in SCALES[form].items():
            scale = struct.pack("<e", factor / dims[0] ** 0.5)
            data[at::size] = bytes([scale[0]]) * count
            data[at + 1::size] = bytes([scale[1]]) * count
        return bytes(data)

    def write(self, path):
        infos, at = b"", 0
        for name, form, dims, _ in self.tensors:
            number, values, size = FORMATS[form]
            infos += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
            infos += struct.pack("<IQ", number, at)
            elements = dims[0] * (dims[1] if len(dims) > 1 else 1)
            at += (elements // values * size + 31) // 32 * 32
        with open(path, "wb") as out:
            out.write(b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.meta)))
            out.write(b"".join(text(key) + value(v) for key, v in self.meta.items()) + infos)
            out.write(bytes(-out.tell() % 32))
            for _, form, dims, make in self.tensors:
                data = make(form, dims)
                out.write(data + bytes(-len(data) % 32))


def model(name, layers, hidden, inner, heads, groups, width, words, form, seed, **more):
    """form(tensor, layer): the format of a matrix."""
    w = Writer(seed)
    w.meta = {"general.architecture": name}
    sizes = {"block_count": layers, "embedding_length": hidden, "feed_forward_length": inner, "attention.head_count": heads,
             "attention.head_count_kv": groups, "attention.key_length": width, "attention.value_length": width,
             "attention.layer_norm_rms_epsilon": 1e-6, **more}
    w.meta.update({f"{name}.{key}": v for key, v in sizes.items()})
    gemma = name == "gemma3"
    if gemma:
        w.meta.update({"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": [f"\u2581w{i}" for i in range(words)]})
    w.add("token_embd.weight", form("token_embd", 0), hidden, words)
    w.add("output_norm.weight", "F32", hidden, make=w.norm_scale)
    for i in range(layers):
        matrices = {"attn_q": (hidden, heads * width), "attn_k": (hidden, groups * width), "attn_v": (hidden, groups * width),
                    "attn_output": (heads * width, hidden), "ffn_gate": (hidden, inner), "ffn_up": (hidden, inner),
                    "ffn_down": (inner, hidden)}
        for tensor, dims in matrices.items():
            w.add(f"blk.{i}.{tensor}.weight", form(tensor, i), *dims)
            if not gemma and tensor in ("attn_q", "attn_k", "attn_v"):
                w.add(f"blk.{i}.{tensor}.bias", "F32", dims[1], make=w.bias)
        norms = {"attn_norm": hidden, "ffn_norm": hidden}
        if gemma:
            norms.update({"attn_q_norm": width, "attn_k_norm": width, "post_attention_norm": hidden, "post_ffw_norm": hidden})
        for norm, size in norms.items():
            w.add(f"blk.{i}.{norm}.weight", "F32", size, make=w.norm_scale)
    return w


def qwen(tensor, layer, layers=24):
    """What llama.cpp writes as Q4_K_M: rows of 896 are no multiple of 256."""
    eighth = layers // 8
    better = layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2
    if tensor == "token_embd":
        return "Q8_0"
    if tensor == "attn_v":
        return "Q8_0" if better else "Q5_0"
    if tensor == "ffn_down":
        return "Q6_K" if better else "Q4_K"
    return "Q5_0"


def tiny(tensor, layer):
    """Every format of 32 values in turns, and the K formats where rows have 256."""
    if tensor == "ffn_down":
        return ("Q4_K", "Q5_K", "Q6_K")[layer % 3]
    order = ("token_embd", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up")
    return ("Q8_0", "Q4_0", "Q5_0", "Q4_1", "Q5_1")[(order.index(tensor) + layer) % 5]


def formats():
    w = Writer(4)
    w.meta = {"general.architecture": "none"}

    def finite(form, dims):
        """Random bytes with scales of any finite size, denormals included; the first block is zeros."""
        _, values, size = FORMATS[form]
        data = bytearray(w.random_bytes(dims[0] // values * size))
        high_bytes = [at + 1 for at in SCALES.get(form, ())] or [size - 1]
        for start in range(0, len(data), size):
            for at in high_bytes:
                if data[start + at] & 0x7C == 0x7C:
                    data[start + at] &= 0xBF
        data[:size] = bytes(size)
        return bytes(data)

    for form, (_, values, _) in FORMATS.items():
        w.add(form.lower(), form, 200 * values, make=finite)
    return w


KINDS = {
    "qwen2.5-0.5b": lambda: model("qwen2", 24, 896, 4864, 14, 2, 64, 151936, qwen, 1, **{"rope.freq_base": 1e6}),
    "tiny-gemma3": lambda: model("gemma3", 6, 32, 256, 4, 2, 16, 64, tiny, 2,
                                 **{"rope.freq_base": 1e6, "attention.sliding_window": 5}),
    "tiny-qwen2": lambda: model("qwen2", 2, 64, 256, 4, 1, 16, 64, tiny, 3, **{"rope.freq_base": 1e6}),
    "formats": formats,
}

if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in KINDS:
        sys.exit(f"usage: make_gguf.py {'|'.join(KINDS)} OUT.gguf")
    KINDS[sys.argv[1]]().write(sys.argv[2])
