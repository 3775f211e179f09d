"""ggml, through C: products with weights in its own formats, f16, bf16 or f32, with what follows them, as a graph that is made once. Weights lie in
the kind of buffer that llama.cpp would take: the first of the CPU's that can multiply them, so that they are repacked.
"""
import ctypes as c
import os
import pathlib

import numpy as np

from operands import Unsupported, operand, output_shape

TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "q4_k": 12, "q5_k": 13, "q6_k": 14, "bf16": 30}
I32 = 26
PTR = c.c_void_p
BUFFER_FIELD = 8  # ggml_tensor: its type, then its buffer


class InitParams(c.Structure):
    _fields_ = [("mem_size", c.c_size_t), ("mem_buffer", PTR), ("no_alloc", c.c_bool)]


def bind(library, name, result, *arguments):
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments
    return function


class Ggml:
    """The functions of the two libraries."""

    def __init__(self, folder):
        base = c.CDLL(str(folder / "libggml-base.so"), mode=c.RTLD_GLOBAL)
        cpu = c.CDLL(str(folder / "libggml-cpu.so"), mode=c.RTLD_GLOBAL)
        i64, size = c.c_int64, c.c_size_t
        self.version = bind(base, "ggml_version", c.c_char_p)().decode()
        self.init = bind(base, "ggml_init", PTR, InitParams)
        self.free = bind(base, "ggml_free", None, PTR)
        self.tensor_2d = bind(base, "ggml_new_tensor_2d", PTR, PTR, c.c_int, i64, i64)
        self.tensor_1d = bind(base, "ggml_new_tensor_1d", PTR, PTR, c.c_int, i64)
        self.mul_mat = bind(base, "ggml_mul_mat", PTR, PTR, PTR, PTR)
        self.get_rows = bind(base, "ggml_get_rows", PTR, PTR, PTR, PTR)
        self.add = bind(base, "ggml_add", PTR, PTR, PTR, PTR)
        self.swiglu = bind(base, "ggml_swiglu_split", PTR, PTR, PTR, PTR)
        self.geglu = bind(base, "ggml_geglu_split", PTR, PTR, PTR, PTR)
        self.nbytes = bind(base, "ggml_nbytes", size, PTR)
        self.graph = bind(base, "ggml_new_graph", PTR, PTR)
        self.expand = bind(base, "ggml_build_forward_expand", None, PTR, PTR)
        self.overhead = bind(base, "ggml_tensor_overhead", size)() * 16 + bind(base, "ggml_graph_overhead", size)()
        self.alloc = bind(base, "ggml_backend_alloc_ctx_tensors_from_buft", PTR, PTR, PTR)
        self.buffer = bind(base, "ggml_backend_buft_alloc_buffer", PTR, PTR, size)
        self.buffer_free = bind(base, "ggml_backend_buffer_free", None, PTR)
        self.set = bind(base, "ggml_backend_tensor_set", None, PTR, PTR, size, size)
        self.get = bind(base, "ggml_backend_tensor_get", None, PTR, PTR, size, size)
        self.compute = bind(base, "ggml_backend_graph_compute", c.c_int, PTR, PTR)
        self.supports = bind(base, "ggml_backend_dev_supports_op", c.c_bool, PTR, PTR)
        self.buft_name = bind(base, "ggml_backend_buft_name", c.c_char_p, PTR)
        registry = bind(cpu, "ggml_backend_cpu_reg", PTR)()
        self.device = bind(base, "ggml_backend_reg_dev_get", PTR, PTR, size)(registry, 0)
        self.plain = bind(base, "ggml_backend_cpu_buffer_type", PTR)()
        found = bind(base, "ggml_backend_reg_get_proc_address", PTR, PTR, c.c_char_p)(registry, b"ggml_backend_dev_get_extra_bufts")
        self.kinds = []
        if found:
            listed = c.CFUNCTYPE(c.POINTER(PTR), PTR)(found)(self.device)
            while listed and listed[len(self.kinds)]:
                self.kinds.append(listed[len(self.kinds)])
        self.backend = bind(cpu, "ggml_backend_cpu_init", PTR)()
        self.set_threads = bind(cpu, "ggml_backend_cpu_set_n_threads", None, PTR, c.c_int)


def survives(call):
    """Whether this process would go on after it: a virtual machine may announce instructions that it refuses."""
    child = os.fork()
    if child == 0:
        call()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class Peer:
    through_c = True

    def __init__(self, settings):
        folder = pathlib.Path(settings["ggml"])
        if not (folder / "libggml-cpu.so").is_file():
            raise Unsupported("scripts/peers.sh ggml builds it")
        self.g = Ggml(folder)
        self.version = self.g.version
        self.g.set_threads(self.g.backend, settings["threads"])
        self.contexts, self.buffers = [], []
        self.g.kinds = [buft for buft in self.g.kinds if survives(lambda buft=buft: self.try_kind(buft))]
        self.forget()

    def try_kind(self, buft):
        """A product of 16 rows by a weight of each format that this kind of buffer takes."""
        self.g.kinds = [buft]
        for kind in TYPES:
            n, k, m = 64, 256, 16
            if self.kind_of_buffer(kind, n, k, m) != buft:
                continue
            context, others = self.context(), self.context()
            weight, x = self.g.tensor_2d(context, TYPES[kind], k, n), self.g.tensor_2d(others, TYPES["f32"], k, m)
            self.g.alloc(context, buft)
            self.place(weight, np.zeros(n * k * 4, np.uint8)[:self.g.nbytes(weight)])
            product, graph = self.g.mul_mat(others, weight, x), self.g.graph(others)
            self.g.expand(graph, product)
            self.g.alloc(others, self.g.plain)
            self.place(x, np.zeros((m, k), np.float32))
            self.g.compute(self.g.backend, graph)

    def forget(self):
        for buffer in self.buffers:
            self.g.buffer_free(buffer)
        for context in self.contexts:
            self.g.free(context)
        self.contexts, self.buffers, self.out = [], [], None

    def context(self):
        self.contexts.append(self.g.init(InitParams(self.g.overhead, None, True)))
        return self.contexts[-1]

    def kind_of_buffer(self, kind, n, k, m):
        g, context = self.g, self.context()
        weight = g.tensor_2d(context, TYPES[kind], k, n)
        product = g.mul_mat(context, weight, g.tensor_2d(context, TYPES["f32"], k, m))
        for buft in g.kinds:
            buffer = g.buffer(buft, 0)
            c.cast(weight + BUFFER_FIELD, c.POINTER(PTR))[0] = buffer
            fits = g.supports(g.device, product)
            if buffer:
                g.buffer_free(buffer)
            if fits:
                return buft
        return g.plain

    def place(self, tensor, array):
        array = np.ascontiguousarray(array)
        self.g.set(tensor, array.ctypes.data, 0, array.nbytes)

    def prepare(self, row, copies):
        self.forget()
        first, attrs = row.nodes[0], row.nodes[0].get("attrs", {})
        gather = first["op"] == "quantized_gather"
        w, x = first["in"][:2] if gather else first["in"][1::-1]
        quantised = gather or first["op"] == "quantized_matmul"
        kind = attrs.get("format") if quantised else row.tensors[w]["dtype"]
        if not (quantised or first["op"] == "matmul" and attrs.get("transpose_b")) or kind not in TYPES or not row.constant(w):
            raise Unsupported("products x * w^T and rows of w, a constant, in f32, f16, bf16 or a format of its own")
        if row.tensors[x]["dtype"] != ("i32" if gather else "f32") or len(row.shape(x)) != (1 if gather else 2):
            raise Unsupported("x is a matrix of f32 there, ids are a vector of i32")
        m, columns = output_shape(row)
        n, k = (row.shape(w)[0], columns) if gather else (columns, row.shape(x)[1])
        g, everything = self.g, row.all_rotate()
        buft = g.plain if gather else self.kind_of_buffer(kind, n, k, m)
        weight = operand(row, w)
        rest = {name: operand(row, name) for name in row.inputs if name not in (x, w)}
        graphs, weights, others = [], [], None
        for i in range(copies):
            if i == 0 or everything or row.constant(w):
                context = self.context()
                weights.append(g.tensor_2d(context, TYPES[kind], k, n))
                self.buffers.append(g.alloc(context, buft))
                self.place(weights[-1], weight)
            if i == 0 or everything:
                context = self.context()
                others = {x: g.tensor_1d(context, I32, m) if gather else g.tensor_2d(context, TYPES["f32"], k, m)}
                others |= {name: g.tensor_2d(context, TYPES["f32"], a.shape[-1], a.shape[0] if a.ndim > 1 else 1) for name, a in rest.items()}
                self.buffers.append(g.alloc(context, g.plain))
                self.place(others[x], operand(row, x))
                for name, a in rest.items():
                    self.place(others[name], a)
                results = None
            context = self.context()
            made = dict(others)
            made[first["out"]] = (g.get_rows if gather else g.mul_mat)(context, weights[-1], others[x])
            for node in row.nodes[1:]:
                made[node["out"]] = self.follower(context, node, [made[name] for name in node["in"]])
            graph = g.graph(context)
            g.expand(graph, made[row.nodes[-1]["out"]])
            results = g.alloc(context, g.plain)
            self.buffers.append(results)
            graphs.append(graph)
            if i == 0:
                self.out = made[row.nodes[-1]["out"]], (m, columns)

        def call(copy):
            if g.compute(g.backend, graphs[copy]):
                raise RuntimeError("a call failed")

        return {g.buft_name(buft).decode(): call}

    def follower(self, context, node, operands):
        op, attrs = node["op"], node.get("attrs", {})
        if op == "add":
            return self.g.add(context, *operands)
        if op == "swiglu":
            return self.g.swiglu(context, *operands)
        if op == "geglu" and attrs.get("approximate") == "tanh":
            return self.g.geglu(context, *operands)
        raise Unsupported(f"{op} after a product is not in the comparison")

    def result(self, way):
        tensor, shape = self.out
        out = np.zeros(shape, np.float32)
        self.g.get(tensor, out.ctypes.data, 0, out.nbytes)
        return out
