#!/usr/bin/env python3
"""decoder_loop on files of make_gguf.py: decoded values, logits and text of tiny models, and what it says of bad input.

decoder_loop_test.py PROGRAM --loop         against the files beside this one; needs the standard library only
decoder_loop_test.py PROGRAM --reference    those files against reference.py; ends with 77 where a package is missing.
                                            LATHE_BLESS=1 writes them
"""
import importlib.util
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # make_gguf is imported where it lies
HERE = pathlib.Path(__file__).resolve().parent
LOOP = HERE.parent.parent / "bench/decoder_loop"
IDS = HERE / "tiny_ids.txt"
TINY = ("tiny-gemma3", "tiny-qwen2")

spec = importlib.util.spec_from_file_location("make_gguf", LOOP / "make_gguf.py")
make_gguf = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_gguf)


class Runner:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.environment = {**os.environ, "LATHE_CACHE_DIR": str(folder / "store")}

    def __call__(self, *arguments):
        return subprocess.run([self.program, *map(str, arguments)], capture_output=True, env=self.environment, timeout=60,
                              check=False)

    def good(self, *arguments):
        done = self(*arguments)
        assert done.returncode == 0, (arguments, done.returncode, done.stderr)
        return done.stdout.decode()

    def refused(self, arguments, *words):
        """One line on standard error, and status 2."""
        done = self(*arguments)
        message = done.stderr.decode("ascii")
        assert done.returncode == 2, (arguments, done.returncode, message)
        assert message.startswith("decoder_loop: ") and message.count("\n") == 1, (arguments, message)
        assert all(word in message for word in words), (words, message)

    def file(self, name, data):
        path = self.folder / name
        path.write_bytes(data)
        return path


def logits_as_text(data, words):
    values = struct.unpack(f"<{len(data) // 4}f", data)
    return "".join(" ".join(f"{v:.7g}" for v in values[i:i + words]) + "\n" for i in range(0, len(values), words))


def reference_of(name):
    """The file that reference.py would write, of the logits in NAME.logits.txt."""
    sequences = [[int(word) for word in line.split()] for line in IDS.read_text().splitlines()]
    rows = [[float(word) for word in line.split()] for line in (HERE / f"{name}.logits.txt").read_text().splitlines()]
    ids, logits = sum(sequences, []), sum(rows, [])
    head = b"LATHEREF" + struct.pack("<4I", len(sequences), len(sequences[0]), len(rows[0]), 0)
    return head + struct.pack(f"<{len(ids)}i", *ids) + struct.pack(f"<{len(logits)}f", *logits)


def test_decoded_values(run):
    for name in ("formats", *TINY):
        wanted = (HERE / f"{name}.digests.txt").read_text()
        assert run.good(run.folder / f"{name}.gguf", "--digests") == wanted, name
    formats = {line.split()[1] for line in (HERE / "formats.digests.txt").read_text().splitlines()}
    assert formats == set(make_gguf.FORMATS), formats


def test_logits(run):
    for name in TINY:
        model, reference = run.folder / f"{name}.gguf", run.file(f"{name}.ref", reference_of(name))
        for threads in (1, 2):
            row = json.loads(run.good(model, "--check", reference, "--threads", threads, "--json"))
            assert row["kl_exact"] < 1e-10 and row["top1_exact"] == 1 and row["top1_positions"] > 20, row
            assert row["logit_worst_error"] < 5e-5 and row["nll_worst_difference"] < 5e-5, row
            assert row["prompt_worst_error"] < 5e-5, row
            assert abs(row["nll"] - row["nll_reference"]) < 1e-5, row
            assert row["compiles_after_seal"] == 0 and row["searches"] == 0, row
            shares = row["decode_of_read"], row["prefill_of_peak"]
            assert all(share > 0 for share in shares) if threads == 1 else shares == (None, None), row
        # A reference that is off is seen.
        data = bytearray(reference.read_bytes())
        data[-4:] = struct.pack("<f", struct.unpack("<f", data[-4:])[0] + 1)
        row = json.loads(run.good(model, "--check", run.file("off.ref", bytes(data)), "--json"))
        assert row["kl_exact"] > 1e-6 and row["logit_worst_error"] > 0.1, row
        data[-4:] = struct.pack("<f", float("nan"))
        row = json.loads(run.good(model, "--check", run.file("nan.ref", bytes(data)), "--json"))
        assert row["kl_exact"] is None and row["logit_worst_error"] is None, row


def test_tuned(run):
    """Searches end before the seal, the logits are the same, and a seconds count below 0 is refused."""
    model, reference = run.folder / "tiny-gemma3.gguf", run.file("tuned.ref", reference_of("tiny-gemma3"))
    row = json.loads(run.good(model, "--check", reference, "--tune", 0.05, "--json"))
    assert row["kl_exact"] < 1e-10 and row["compiles_after_seal"] == 0 and row["searches"] == 0, row
    done = run(model, "--check", reference, "--tune", -1)
    assert done.returncode == 2 and b"--tune" in done.stderr, done


def test_ragged_batches(run):
    """Sequences of unequal lengths at once are what each is alone, with nothing made after the seal."""
    for name in TINY:
        for more in ((), ("--f32",), ("--threads", 2)):
            row = json.loads(run.good(run.folder / f"{name}.gguf", "--ragged", 60, *more, "--json"))
            assert row["batches"] == 60 and row["ids"] > row["sequences"] > 120 and row["checked"] >= 5, row
            assert row["logit_worst_error"] < 1e-4 and row["same_choice"] == row["checked"], row
            assert row["compiles_after_seal"] == 0 and row["searches"] == 0, row


def test_generated_ids(run):
    """Ids and text of both prompts; a longer run begins with those of a shorter one."""
    rows = [[json.loads(line) for line in run.good(run.folder / "tiny-gemma3.gguf", "--prompt-ids", IDS, "--tokens", tokens,
                                                   "--json").splitlines()] for tokens in (3, 8)]
    for short, long in zip(*rows, strict=True):
        assert len(short["ids"]) == 3 and len(long["ids"]) == 8 and long["ids"][:3] == short["ids"], (short, long)
        assert long["text"] == "".join(f" w{i}" for i in long["ids"]), long


def test_prompts_and_steps(run):
    """An id that goes in as a step, or as the last one of a prompt, of one part or of two, leads to the same ids."""
    chance = random.Random(5)
    ids = [chance.randrange(64) for _ in range(512)]
    for name in TINY:
        for length in (511, 512):
            def generated(prompt, tokens, name=name):
                path = run.file("prompt.txt", (" ".join(map(str, prompt)) + "\n").encode())
                return json.loads(run.good(run.folder / f"{name}.gguf", "--prompt-ids", path, "--tokens", tokens, "--json"))["ids"]
            by_steps = generated(ids[:length], 4)
            assert generated([*ids[:length], by_steps[0]], 3) == by_steps[1:], (name, length, by_steps)


def test_profile(run):
    """Every kernel of a prompt and of the steps, with shares that make up the whole."""
    row = json.loads(run.good(run.folder / "tiny-gemma3.gguf", "--prompt-ids", IDS, "--tokens", 4, "--profile", "--json")
                     .splitlines()[0])
    for what, steps in (("prefill", 1), ("decode", 3)):
        profile = {r["kernel"]: r for r in row[f"{what}_profile"]}
        assert abs(sum(r["of_time"] for r in profile.values()) - 1) < 1e-6, profile
        assert profile["embed"]["calls"] == steps and "the loop" in profile, profile
        products = [r for kernel, r in profile.items() if kernel.startswith("product ")]
        assert len(products) > 4 and all(r["of_peak"] > 0 and r["of_read"] > 0 for r in products), profile
    text = run.good(run.folder / "tiny-qwen2.gguf", "--prompt-ids", IDS, "--tokens", 4, "--profile")
    assert text.count("attention") == 4 and "of peak" in text, text
    assert run(run.folder / "tiny-gemma3.gguf", "--ragged", 2, "--profile").returncode == 2


def metadata(name, changes, tensors=()):
    """A tiny model with other metadata (a key of None goes) and other tensors: name to format and dims."""
    writer = make_gguf.KINDS[name]()
    writer.meta = {key: v for key, v in {**writer.meta, **changes}.items() if v is not None}
    for at, (tensor, form, dims, make) in enumerate(writer.tensors):
        if tensor in dict(tensors):
            writer.tensors[at] = (tensor, *dict(tensors)[tensor], make)
    return writer


def after(data, text, offset, patch):
    """data with patch written offset bytes after the text, a key or a tensor's name."""
    at = data.index(struct.pack("<Q", len(text)) + text.encode()) + 8 + len(text) + offset
    return data[:at] + patch + data[at + len(patch):]


def test_bad_files(run):
    model = (run.folder / "tiny-qwen2.gguf").read_bytes()
    refuse = lambda data, *words: run.refused([run.file("bad.gguf", data), "--digests"], "bad.gguf", *words)
    u32, u64 = (lambda v: struct.pack("<I", v)), (lambda *v: struct.pack(f"<{len(v)}Q", *v))
    refuse(b"", "expected a file that is not empty")
    run.refused([run.folder, "--digests"], "expected a file that is not empty")
    run.refused([run.folder / "none.gguf", "--digests"], "none.gguf", "No such file")
    refuse(b"GGML" + model[4:], "magic", "expected the four bytes GGUF")
    refuse(model[:2], "magic", "expected 4 bytes at offset 0, the file has 2")
    refuse(model[:4] + u32(1) + model[8:], "version: 1, expected 2 or 3")
    refuse(model[:4] + struct.pack(">I", 3) + model[8:], "version", "little endian")
    refuse(model[:16], "metadata count", "expected 8 bytes at offset 16")
    refuse(model[:8] + u64(1 << 63) + model[16:], "tensor", "expected")
    refuse(model[:16] + u64(1 << 63) + model[24:], "key 1", "expected")
    refuse(model[:24] + u64(1 << 63) + model[32:], "key 0", "expected 9223372036854775808 bytes at offset 32")
    refuse(after(model, "general.architecture", 4, u64(len(model))), "general.architecture", "expected")
    refuse(after(model, "qwen2.block_count", 0, u32(13)), "qwen2.block_count: type 13, expected 0 to 12")
    refuse(after(model, "qwen2.block_count", 0, u32(9) + u32(9)), "no array of arrays")
    refuse(after(model, "qwen2.block_count", 0, u32(9) + u32(10) + u64(1 << 61)), "past the end of the file")
    table, name = "token_embd.weight", "tensor token_embd.weight"
    refuse(model[:model.index(table.encode()) + 20], name, "expected")
    refuse(after(model, table, 0, u32(0)), name, "0 dims, expected 1 to 4")
    refuse(after(model, table, 0, u32(5)), name, "5 dims, expected 1 to 4")
    for dims in ((0, 64), (64, 0), (1 << 63, 64), (1 << 32, 1 << 32), (64, 1 << 58), ((1 << 64) - 32, (1 << 64) - 1)):
        refuse(after(model, table, 4, u64(*dims)), name, f"dims [{dims[0]}", "expected none of 0")
    refuse(after(model, table, 4, u64(48)), name, "rows of 48, expected a multiple of 32 (Q8_0)")
    for form in (4, 99, 0xFFFFFFFF):
        refuse(after(model, table, 20, u32(form)), name, f"type {form}, expected one of F32, F16, Q4_0")
    refuse(after(model, table, 24, u64(16)), name, "offset 16, expected a multiple of 32")
    for offset in (len(model) // 32 * 32, (1 << 64) - 32):
        refuse(after(model, table, 24, u64(offset)), name, f"bytes at offset {offset} lie past the end")
    refuse(model[:-64], "lie past the end of the file")
    refuse(after(model, "blk.1.attn_k.bias", -17, b"blk.0.attn_k.bias"), "stands twice, expected once")
    key = "qwen2.attention.key_length"
    refuse(after(model, key, -len(key), b"qwen2.attention.head_count"), "head_count: stands twice, expected once")
    strange = b"\n\x1b\xff" + u32(1) + u64(16) + u32(99)
    refuse(after(model, "blk.0.attn_k.bias", -3, strange), "tensor blk.0.attn_k.b???: type 99, expected")


def test_bad_models(run):
    def refuse(name, changes, *words, tensors=()):
        path = run.folder / "bad.gguf"
        metadata(name, changes, tensors).write(path)
        run.refused([path, "--prompt-ids", IDS], "bad.gguf", *words)
    whole = lambda key, least, most: (f"qwen2.{key}", f"expected {least} to {most}")
    refuse("tiny-qwen2", {"general.architecture": "llama"}, "general.architecture: expected gemma3 or qwen2, found llama")
    refuse("tiny-qwen2", {"general.architecture": 3}, "general.architecture: expected a string")
    for key, most in (("block_count", 1024), ("embedding_length", 1 << 20), ("attention.head_count", 1024)):
        refuse("tiny-qwen2", {f"qwen2.{key}": None}, f"qwen2.{key}", "is missing")
        refuse("tiny-qwen2", {f"qwen2.{key}": "four"}, f"qwen2.{key}", "expected a whole number")
        for value in (0, (1 << 32) - 1):
            refuse("tiny-qwen2", {f"qwen2.{key}": value}, str(value), *whole(key, 1, most))
    refuse("tiny-qwen2", {"qwen2.block_count": 3}, "tensor blk.2.attn_q.weight: is missing, expected dims [64, 64]")
    refuse("tiny-qwen2", {"qwen2.attention.head_count_kv": 3}, "head_count: 4, expected a multiple of head_count_kv, 3")
    refuse("tiny-qwen2", {"qwen2.attention.key_length": 15}, "key_length: 15, expected an even number")
    refuse("tiny-qwen2", {"qwen2.attention.value_length": 32}, "key_length: 16, expected", "value_length the same")
    refuse("tiny-qwen2", {"qwen2.embedding_length": 32}, "token_embd.weight", "[64, 64], expected [32, 64]")
    refuse("tiny-qwen2", {"qwen2.feed_forward_length": 255}, "ffn_gate.weight", "expected [64, 255]")
    for value in (0.0, -1.0, float("nan"), float("inf")):
        refuse("tiny-qwen2", {"qwen2.rope.freq_base": value}, "rope.freq_base", "expected a positive finite number")
    refuse("tiny-qwen2", {"qwen2.attention.layer_norm_rms_epsilon": 1}, "epsilon: expected a floating-point number")
    refuse("tiny-qwen2", {"qwen2.rope.scaling.type": "yarn"}, "rope.scaling.type: expected none")
    refuse("tiny-qwen2", {"general.alignment": 0}, "general.alignment: 0, expected 1 to 1048576")
    refuse("tiny-gemma3", {"gemma3.attention.sliding_window": 0}, "sliding_window: 0, expected 1 to")
    refuse("tiny-gemma3", {}, "output_norm.weight", "[64], expected [32]", tensors={"output_norm.weight": ("F32", (64,))}.items())


def test_bad_arguments(run):
    model, reference = run.folder / "tiny-qwen2.gguf", reference_of("tiny-qwen2")
    for text, words in (("64\n", "id 64, expected 0 to 63"), ("1 -1\n", "id -1, expected 0 to 63"), ("", "holds no ids"),
                        ("1 2\n3 four\n", "line 2: expected whole numbers"), ("99999999999\n", "line 1: expected whole")):
        run.refused([model, "--prompt-ids", run.file("ids.txt", text.encode())], words)
    run.refused([model, "--prompt-ids", run.folder / "none.txt"], "none.txt: cannot be read")
    run.refused([model], "expected --prompt-ids, --check, --ragged or --digests")
    for data, words in ((b"", "that reference.py wrote"), (b"LATHEREX" + reference[8:], "that reference.py wrote"),
                        (reference[:-4], "expected ids and logits of 2 x 12 positions and 64 words"),
                        (reference[:8] + b"\xff" * 12 + reference[20:], "expected ids and logits"),
                        (reference[:8] + bytes(12) + reference[20:], "expected ids and logits"),
                        (reference[:8] + struct.pack("<I", 24) + struct.pack("<I", 1) + reference[16:], "expected 2 or more"),
                        (reference[:16] + struct.pack("<I", 1) + reference[20:24] + bytes(2 * 12 * 8), "vocabulary 1, expected 64"),
                        (reference[:24] + struct.pack("<i", 64) + reference[28:], "id 64, expected 0 to 63")):
        run.refused([model, "--check", run.file("bad.ref", data)], words)
    run.refused([model, "--check", run.folder / "none.ref"], "that reference.py wrote")
    for arguments in ([], [model, "--digests", "--tokens", 1], [model, "--digests", "--prompt-ids", IDS], [model, "--wide"],
                      [model, "--ragged", 0], [model, "--ragged", 2, "--digests"], [model, "--ragged", 2, "--prompt-ids", IDS]):
        assert run(*arguments).returncode == 2, arguments


def test_random_damage(run, seed=14, most=300, seconds=8):
    """Cuts, and bytes written over, most of them where the file says what it holds: an answer or a message, no crash."""
    chance, end = random.Random(seed), time.monotonic() + seconds
    count, answers = 0, {0: 0, 2: 0}
    while count < most and time.monotonic() < end:
        name = TINY[count % 2]
        data = bytearray((run.folder / f"{name}.gguf").read_bytes())
        if chance.random() < 0.2:
            del data[chance.randrange(len(data)):]
        else:
            for _ in range(chance.choice((1, 2, 8))):
                at = chance.randrange(len(data) if chance.random() < 0.1 else 4096)
                data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256), data[at] ^ 1 << chance.randrange(8)))
        path = run.file("damaged.gguf", bytes(data))
        for use in (("--digests",), ("--prompt-ids", IDS, "--tokens", 2)):
            done = run(path, *use)
            assert done.returncode in answers, (seed, count, use, done.returncode, done.stderr)
            assert done.returncode == 0 or done.stderr.startswith(b"decoder_loop: "), (seed, count, use, done.stderr)
            answers[done.returncode] += 1
        count += 1
    print(f"{count} damaged files: {answers[0]} answers, {answers[2]} messages")
    assert count >= 30 and min(answers.values()) > count // 10, answers


def against_reference(folder):
    try:
        import gguf  # noqa: F401
        import numpy  # noqa: F401
    except ImportError as missing:
        print(f"{missing}: pip install numpy gguf")
        return 77
    reference = [sys.executable, LOOP / "reference.py"]
    wanted = {}
    for name in ("formats", *TINY):
        model = folder / f"{name}.gguf"
        done = subprocess.run([*reference, model, "--digests"], check=True, capture_output=True, text=True)
        wanted[f"{name}.digests.txt"] = done.stdout
        if name in TINY:
            subprocess.run([*reference, model, "--ids", IDS, "--out", folder / "made.ref"], check=True)
            data = (folder / "made.ref").read_bytes()
            sequences, length, words, _ = struct.unpack("<4I", data[8:24])
            wanted[f"{name}.logits.txt"] = logits_as_text(data[24 + 4 * sequences * length:], words)
    differ = 0
    for name, text in wanted.items():
        if os.environ.get("LATHE_BLESS"):
            (HERE / name).write_text(text)
        elif (HERE / name).read_text().split() != text.split() and not close((HERE / name).read_text(), text):
            print(f"{name} is not what reference.py says")
            differ = 1
    return differ


def close(have, want):
    """Logits by another numpy may differ in their last digits; digests may not."""
    try:
        pairs = list(zip(map(float, have.split()), map(float, want.split()), strict=True))
    except ValueError:
        return False
    return all(abs(a - b) <= 1e-5 * max(1, abs(b)) for a, b in pairs)


def main():
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        for name in ("formats", *TINY):
            make_gguf.KINDS[name]().write(folder / f"{name}.gguf")
        if sys.argv[2] == "--reference":
            return against_reference(folder)
        run = Runner(sys.argv[1], folder)
        for test in (test_decoded_values, test_logits, test_ragged_batches, test_generated_ids, test_prompts_and_steps,
                     test_profile, test_bad_files, test_bad_models, test_bad_arguments, test_random_damage):
            start = time.monotonic()
            test(run)
            print(f"{test.__name__} {time.monotonic() - start:.2f} s")
        return 0


if __name__ == "__main__":
    sys.exit(main())
