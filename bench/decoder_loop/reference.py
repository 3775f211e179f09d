#!/usr/bin/env python3
"""A decoder in numpy, f64 throughout, its weights decoded by the gguf package: what decoder_loop is compared with.

reference.py FILE.gguf --ids IDS --out REF     logits after each id of each line, for decoder_loop --check
reference.py FILE.gguf --digests               what decoder_loop --digests prints

Needs the packages numpy and gguf. It shares no code with decoder_loop."""
import argparse
import struct
import sys

try:
    import gguf
    import numpy as np
except ModuleNotFoundError as missing:
    sys.exit(f"reference: {missing}: it needs the packages numpy and gguf")


def decoded(tensor):
    if tensor.tensor_type == gguf.GGMLQuantizationType.F32:
        return np.array(tensor.data, dtype=np.float32)
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)


def digest(values):
    bits = np.ascontiguousarray(values, dtype=np.float32).reshape(-1).view(np.uint32).astype(np.uint64)
    return int((bits * np.arange(1, bits.size + 1, dtype=np.uint64)).sum(dtype=np.uint64))


def rms(x, scale, epsilon):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * scale


def rotated(x, base):
    """x: [ids, heads, width]; halves are pairs."""
    half = x.shape[-1] // 2
    angle = np.outer(np.arange(x.shape[0]), base ** (-2.0 * np.arange(half) / x.shape[-1]))[:, None, :]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)


class Model:
    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.tensors = {t.name: t for t in self.reader.tensors}
        self.name = self.meta("general.architecture", prefix=False)
        if self.name not in ("gemma3", "qwen2"):
            raise SystemExit(f"{path}: architecture {self.name}, expected gemma3 or qwen2")
        self.embedding = self.weight("token_embd.weight")
        self.head = self.weight("output.weight") if "output.weight" in self.tensors else self.embedding

    def meta(self, key, default=None, prefix=True):
        field = self.reader.get_field(f"{self.name}.{key}" if prefix else key)
        return default if field is None else field.contents()

    def weight(self, name):
        return decoded(self.tensors[name]).astype(np.float64)

    def logits(self, ids):
        gemma = self.name == "gemma3"
        heads, groups = self.meta("attention.head_count"), self.meta("attention.head_count_kv")
        hidden = self.embedding.shape[1]
        width = self.meta("attention.key_length", hidden // heads)
        epsilon = self.meta("attention.layer_norm_rms_epsilon")
        count = len(ids)
        distance = np.arange(count)[:, None] - np.arange(count)[None, :]
        x = self.embedding[ids] * (np.sqrt(hidden) if gemma else 1)
        for layer in range(self.meta("block_count")):
            def weight(name, layer=layer):
                return self.weight(f"blk.{layer}.{name}")

            def linear(y, name, bias=False):
                z = y @ weight(f"{name}.weight").T
                return z + weight(f"{name}.bias") if bias else z

            local = gemma and layer % 6 != 5
            y = rms(x, weight("attn_norm.weight"), epsilon)
            q = linear(y, "attn_q", not gemma).reshape(count, heads, width)
            k = linear(y, "attn_k", not gemma).reshape(count, groups, width)
            v = linear(y, "attn_v", not gemma).reshape(count, groups, width)
            if gemma:
                q = rms(q, weight("attn_q_norm.weight"), epsilon)
                k = rms(k, weight("attn_k_norm.weight"), epsilon)
            base = 10000.0 if local else self.meta("rope.freq_base", 10000.0)
            q, k = rotated(q, base), rotated(k, base)
            k, v = np.repeat(k, heads // groups, 1), np.repeat(v, heads // groups, 1)
            scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(width)
            seen = (distance >= 0) & (distance < (self.meta("attention.sliding_window") if local else count))
            scores = np.where(seen, scores, -np.inf)
            p = np.exp(scores - scores.max(-1, keepdims=True))
            p /= p.sum(-1, keepdims=True)
            y = linear(np.einsum("hqk,khd->qhd", p, v).reshape(count, heads * width), "attn_output")
            x = x + (rms(y, weight("post_attention_norm.weight"), epsilon) if gemma else y)
            y = rms(x, weight("ffn_norm.weight"), epsilon)
            gate, up = linear(y, "ffn_gate"), linear(y, "ffn_up")
            if gemma:
                gate = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
            else:
                gate = gate / (1 + np.exp(-gate))
            y = linear(gate * up, "ffn_down")
            x = x + (rms(y, weight("post_ffw_norm.weight"), epsilon) if gemma else y)
        return rms(x, self.weight("output_norm.weight"), epsilon) @ self.head.T


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--ids", help="lines of as many ids each")
    parser.add_argument("--out", help="the reference to write")
    parser.add_argument("--digests", action="store_true")
    args = parser.parse_args()
    if args.digests:
        for tensor in sorted(gguf.GGUFReader(args.file).tensors, key=lambda t: t.name.encode()):
            print(f"{tensor.name} {tensor.tensor_type.name} {digest(decoded(tensor)):016x}")
        return
    if not args.ids or not args.out:
        parser.error("expected --ids and --out, or --digests")
    with open(args.ids, encoding="ascii") as lines:
        ids = np.array([[int(word) for word in line.split()] for line in lines if line.strip()], dtype=np.int32)
    model = Model(args.file)
    with open(args.out, "wb") as out:
        out.write(b"LATHEREF" + struct.pack("<4I", *ids.shape, model.head.shape[0], 0) + ids.tobytes())
        for sequence in ids:
            out.write(model.logits(sequence).astype(np.float32).tobytes())


if __name__ == "__main__":
    main()
