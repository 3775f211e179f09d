"""Manifests of language models in the formats that engines serve them in: weights of few bits or bf16, attention as one
operator. A layer's weights that several layers hold in another format each are a line each, weighted by their layers.
"""
from workload_line import KV_LENGTH, Line, size

TOKENS = size(4096, 1, 8, 128)
SEQUENCES = size(64, 1, 8)
PROMPT = size(4096, 128, 512)
# An expert's share of the tokens: 8 of 128 experts take one. All experts of a layer in one kernel: tokens whose experts
# are named, and rows sorted by expert, 8 for each token.
EXPERT_TOKENS = size(1024, 1, 8)
CHOOSING_TOKENS, SORTED_ROWS = size(64, 1, 8), size(8192, 64, 1024)

# What engines allow by the weight's type: products of bytes, and dots of bf16 as PyTorch's CPU products are.
ALLOWED = {"f32": [], "bf16": ["reassociate", "contract", "bf16_dots"]}
QUANTISED = ["reassociate", "contract", "quantised_activations"]
BLOCKS = {"q4_k": (256, 144), "q6_k": (256, 210), "q5_0": (32, 22), "q8_0": (32, 34)}


def weight(line, name, n, k, kind):
    """Operands of a weight [n, k], and the node's attributes; none: a matmul with transpose_b."""
    if kind in ("f32", "bf16"):
        return [line.tensor(name, [n, k], const=True, dtype=kind)], {}
    if kind == "awq":
        group = 128
        return [line.tensor(name, [k, n // 8], const=True, dtype="i32"),
                line.tensor(f"{name}_scales", [k // group, n], const=True, dtype="f16"),
                line.tensor(f"{name}_zeros", [k // group, n // 8], const=True, dtype="i32")], {"format": "awq", "group": group}
    block, size_of = BLOCKS[kind]
    return [line.tensor(name, [n, k // block * size_of], const=True, dtype="u8")], {"format": kind}


def linear(name, times, k, n, kind, bias=False, act=None, residual=False, rows=("M", TOKENS), **attrs):
    """y = act(gate, x * w^T + bias), or that plus the residual; x and y are bf16 where the weight is, else f32."""
    line = Line(name, {rows[0]: rows[1]}, weight=times, allowed=ALLOWED.get(kind, QUANTISED))
    dtype = "bf16" if kind == "bf16" else "f32"
    x = line.tensor("x", [rows[0], k], dtype=dtype)
    operands, given = weight(line, "w", n, k, kind)
    y = line.node("quantized_matmul", [x] + operands, "xw", **given) if given else line.node("matmul", [x] + operands, "xw", transpose_b=True)
    if bias:
        y = line.node("add", [y, line.tensor("bias", [n], const=True, dtype=dtype)], "biased")
    if act:
        y = line.node(act, [line.tensor("gate", [rows[0], n], dtype=dtype), y], "gated", **attrs)
    if residual:
        line.node("add", [y, line.tensor("residual", [rows[0], n], dtype=dtype)], "sum")
    return line


def experts_lines(name, times, k, n, kind, experts, act=None, spread=True, **attrs):
    """What experts make of tokens that name theirs, and of rows sorted by expert. spread: one row of a token for all its experts."""
    (block, size_of), count, used = BLOCKS[kind], experts["count"], experts["used"]
    lines = []
    for family, op, symbol, tokens in (("experts", "quantized_expert_matmul", "M", CHOOSING_TOKENS),
                                       ("grouped", "quantized_grouped_matmul", "R", SORTED_ROWS)):
        line = Line(f"{family}_{name}", {symbol: tokens}, weight=times, allowed=QUANTISED)
        by_id = family == "experts"
        rows = [symbol, used] if by_id else [symbol]
        x = line.tensor("x", [symbol, 1, k] if by_id and spread else rows + [k])
        operands = [x, line.tensor("w", [count, n, k // block * size_of], const=True, dtype="u8"),
                    line.tensor("ids", rows, dtype="i32") if by_id else line.tensor("offsets", [count + 1], dtype="i32")]
        y = line.node(op, operands, "xw", format=kind)
        if act:
            line.node(act, [line.tensor("gate", rows + [n]), y], "gated", **attrs)
        lines.append(line)
    return lines


def rmsnorm(name, times, shape, dtype):
    line = Line(name, {"M": TOKENS}, weight=times)
    line.node("rmsnorm", [line.tensor("x", ["M"] + shape, dtype=dtype), line.tensor("scale", [shape[-1]], const=True)], "y", epsilon=1e-6)
    return line


def rope(name, times, heads, d, dtype):
    line = Line(name, {"M": TOKENS}, weight=times)
    line.node("rope", [line.tensor("x", ["M", heads, d], dtype=dtype), line.tensor("cos", ["M", d // 2]), line.tensor("sin", ["M", d // 2])], "y",
              interleaved=False)
    return line


def attention(times, q, g, d, dtype, window=0):
    """One query each of S sequences whose caches are [L, kv heads, D]; a prompt of T tokens."""
    decode = Line("attend", {"S": SEQUENCES, "L": KV_LENGTH}, weight=times, allowed=ALLOWED[dtype])
    cache = [f"{g * d}*L", d, g * d, 1]
    decode.node("attention", [decode.tensor("q", ["S", q, 1, d], dtype=dtype), decode.tensor("k", ["S", g, "L", d], strides=cache, dtype=dtype),
                              decode.tensor("v", ["S", g, "L", d], strides=cache, dtype=dtype)], "y")
    prompt = Line("attend_prompt", {"T": PROMPT}, weight=times, cache="hot", allowed=ALLOWED[dtype])
    operands = [prompt.tensor("q", [q, "T", d], dtype=dtype)] + [prompt.tensor(name, [g, "T", d], dtype=dtype) for name in "kv"]
    prompt.node("attention", operands, "y", causal=True, **({"window": window} if window else {}))
    return [decode, prompt]


def more_bits(layer, layers):
    """The layers whose v and down weights Q4_K_M gives two bits more."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def in_blocks(kind, k):
    """The format of a row that is no whole number of blocks of 256."""
    return kind if k % 256 == 0 else {"q4_k": "q5_0", "q6_k": "q8_0"}[kind]


def decoder(model, kind, bias=False, head_norms=False, head=None, act="swiglu", window=0, experts=None, **attrs):
    """kind: q4_k_m, awq or bf16. head: the format of the output matrix, which is the embedding, too; none: neither."""
    layers, h, q, g, d, f = (model[name] for name in ("layers", "hidden", "q_heads", "kv_heads", "head_dim", "ffn"))
    dtype = "bf16" if kind == "bf16" else "f32"
    mixed = kind == "q4_k_m"
    many = sum(more_bits(i, layers) for i in range(layers))

    def plain(k):
        return in_blocks("q4_k", k) if mixed else kind

    def lines_of(name, times, k, n, **rest):
        """As many lines as the layers have formats for it."""
        if not mixed:
            return [linear(name, times * layers, k, n, kind, **rest)]
        kinds = [(in_blocks("q4_k", k), layers - many), (in_blocks("q6_k", k), many)]
        return [linear(f"{name}_{used}", times * count, k, n, used, **rest) for used, count in kinds if count]

    lines = [rmsnorm("norm", 2 * layers + (1 if head else 0), [h], dtype)]
    if head:
        embed = Line("embed", {"M": TOKENS})
        embed.node("quantized_gather", weight(embed, "table", model["vocab"], h, head)[0] + [embed.tensor("ids", ["M"], dtype="i32")], "y",
                   format=head)
        lines.append(embed)
    lines += [linear("q_proj", layers, h, q * d, plain(h), bias=bias), linear("k_proj", layers, h, g * d, plain(h), bias=bias)]
    lines += lines_of("v_proj", 1, h, g * d, bias=bias)
    if head_norms:
        lines += [rmsnorm("q_norm", layers, [q, d], dtype), rmsnorm("k_norm", layers, [g, d], dtype)]
    lines += [rope("rope_q", layers, q, d, dtype), rope("rope_k", layers, g, d, dtype)]
    lines += attention(layers, q, g, d, dtype, window)
    lines.append(linear("o_proj", layers, q * d, h, plain(q * d), residual=True))
    if experts:
        # Each expert by itself, as peers compute it, and all of a layer: what a router sends is weighted after.
        rows = ("E", EXPERT_TOKENS)
        used = experts["used"]
        lines.append(linear("router", layers, h, experts["count"], "f32"))
        lines += [linear("expert_gate", used * layers, h, f, plain(h), rows=rows),
                  linear("expert_up", used * layers, h, f, plain(h), act=act, rows=rows, **attrs)]
        lines += lines_of("expert_down", used, f, h, rows=rows)
        lines += experts_lines("gate", layers, h, f, plain(h), experts) + experts_lines("up", layers, h, f, plain(h), experts, act=act, **attrs)
        for used_kind, of_layers in ((in_blocks("q4_k", f), layers - many), (in_blocks("q6_k", f), many)):
            lines += experts_lines(f"down_{used_kind}", of_layers, f, h, used_kind, experts, spread=False)
    else:
        lines += [linear("gate_proj", layers, h, f, plain(h)), linear("up_proj", layers, h, f, plain(h), act=act, **attrs)]
        lines += lines_of("down_proj", 1, f, h, residual=True)
    if head:
        lines.append(linear("lm_head", 1, h, model["vocab"], head, rows=("S", SEQUENCES)))
    return lines


def language_models(models):
    """name of a manifest: its lines"""
    gemma, qwen = models["gemma3-270m"], models["qwen2.5-0.5b"]
    llama, qwen_7b, experts = models["llama3-8b"], models["qwen2.5-7b"], models["qwen3-30b-a3b"]
    return {
        "gemma3-270m": decoder(gemma, "q4_k_m", head_norms=True, head="q8_0", act="geglu", approximate="tanh", window=gemma["window"]),
        "qwen2.5-0.5b-q4_k_m": decoder(qwen, "q4_k_m", bias=True, head="q8_0"),
        "llama3-8b-layer-q4_k_m": decoder(llama, "q4_k_m"),
        "llama3-8b-layer-bf16": decoder(llama, "bf16"),
        "qwen2.5-7b-layer": decoder(qwen_7b, "awq", bias=True),
        "qwen3-30b-a3b-layer": decoder(experts, "q4_k_m", head_norms=True, experts=experts["experts"]),
    }
