"""Lathe through the C library of a build: structs of include/lathe.h, the graph of a row, sealed calls of what the store has."""
import ctypes as c

import numpy as np

from operands import Unsupported, as_f32, memory_of, operand, output_dtype, output_shape

CODES = {"f32": (0, (2, 32)), "f16": (2, (2, 16)), "bf16": (3, (4, 16)), "i8": (4, (0, 8)), "u8": (5, (1, 8)), "i32": (6, (0, 32)),
         "b8": (8, (6, 8))}
CLASSES = {"reassociate": 1, "contract": 2, "approximate": 4, "reduced_accumulate": 8, "quantised_activations": 16, "winograd": 32, "bf16_dots": 64}
MISS, STORED, NOW, SEAL_ERROR = 3, 2, 0, 3


def struct(name, *fields):
    return type(name, (c.Structure,), {"_fields_": [(f, t) for f, t in fields]})


I32, U32, I64, U64, F64, TEXT, PTR = c.c_int32, c.c_uint32, c.c_int64, c.c_uint64, c.c_double, c.c_char_p, c.c_void_p
Error = struct("Error", ("code", I32), ("arg_index", I32), ("arg_name", c.c_char * 32), ("os_errno", I32), ("message", c.c_char * 256))
Layer = struct("Layer", ("path", TEXT), ("kind", U32), ("reserved", U32))
ContextOptions = struct("ContextOptions", ("struct_size", U32), ("version", U32), ("layers", c.POINTER(Layer)), ("num_layers", c.c_size_t),
                        ("max_isa", TEXT), ("worker_path", TEXT), ("plugin_dir", TEXT), ("own_threads", I32), ("reserved", U32), ("tune", U32),
                        ("tune_cpu", U32), ("background_threads", I32), ("reserved2", U32))
Hint = struct("Hint", ("value", I64), ("weight", F64))
Dim = struct("Dim", ("min", I64), ("max", I64), ("multiple_of", I64), ("symbol", TEXT), ("hints", c.POINTER(Hint)), ("num_hints", c.c_size_t))
DataType = struct("DataType", ("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16))
TensorDesc = struct("TensorDesc", ("struct_size", U32), ("version", U32), ("name", TEXT), ("dtype", U32), ("ndim", I32), ("dims", c.POINTER(Dim)),
                    ("strides", c.POINTER(I64)), ("flags", U32), ("reserved", U32), ("data_type", DataType), ("reserved2", U32), ("stride_symbols", c.POINTER(TEXT)))
Attr = struct("Attr", ("name", TEXT), ("type", U32), ("reserved", U32), ("i", I64), ("f", F64), ("s", TEXT), ("ints", c.POINTER(I64)),
              ("num_ints", c.c_size_t))
Policy = struct("Policy", ("struct_size", U32), ("version", U32), ("wait", U32), ("allowed", U32), ("deadline_ns", U64), ("max_workspace", U64),
                ("threads", I32), ("cold", U32))
Device = struct("Device", ("type", I32), ("id", I32))
Tensor = struct("Tensor", ("data", PTR), ("device", Device), ("ndim", I32), ("dtype", DataType), ("shape", c.POINTER(I64)),
                ("strides", c.POINTER(I64)), ("byte_offset", U64))
Arg = struct("Arg", ("tensor", c.POINTER(Tensor)), ("bytes", U64), ("flags", U32), ("reserved", U32), ("layout_id", U64))
PackInfo = struct("PackInfo", ("layout_id", U64), ("bytes", U64), ("align", U64))
Exec = struct("Exec", ("struct_size", U32), ("version", U32), ("pool", PTR), ("threads", I32), ("reserved", U32), ("workspace", PTR),
              ("workspace_bytes", U64), ("stream", PTR))


def sized(kind, **fields):
    return kind(c.sizeof(kind), 1, **fields)


def lines(bytes_, kind=np.uint8):
    """Memory that begins on a cache line."""
    whole = np.zeros(bytes_ + 128, np.uint8)
    start = -whole.ctypes.data % 64
    return whole[start:start + bytes_].view(kind)


def on_lines(array):
    out = lines(array.nbytes)
    out[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return out


class Lathe:
    through_c = True

    def __init__(self, settings):
        self.library = c.CDLL(settings["library"])
        self.library.lathe_version.restype = U32
        self.library.lathe_pinned_workspace_bytes.restype = U64
        number = self.library.lathe_version()
        self.version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
        self.error = Error()
        self.wait = NOW if settings["defaults"] else STORED
        layers = (Layer * 1)(Layer(settings["store"].encode(), 0, 0))
        options = sized(ContextOptions, layers=layers, num_layers=1, own_threads=settings["threads"], background_threads=-1)
        self.context = PTR()
        self.check(self.library.lathe_context_create(c.byref(options), c.byref(self.context), c.byref(self.error)))
        if not settings["defaults"]:
            self.check(self.library.lathe_seal(self.context, SEAL_ERROR, c.byref(self.error)))
        self.forget()

    def check(self, status):
        if status == MISS:
            raise Unsupported("the store has no Schedule of it (lathe warmup makes one)")
        if status:
            raise RuntimeError(self.error.message.decode())

    def forget(self):
        self.kept, self.out = [], None

    def keep(self, thing):
        self.kept.append(thing)
        return thing

    def dim(self, row, value):
        if isinstance(value, int):
            return Dim(value, value, 1, None, None, 0)
        d = row.line["dims"][value]
        hints = self.keep((Hint * len(d["hints"]))(*(Hint(h["value"], h.get("weight", 1)) for h in d["hints"])))
        return Dim(d["min"], d["max"], d.get("multiple_of", 1), value.encode(), hints, len(hints))

    def strides(self, given):
        """Of each stride such as "128*L" the number and the symbol."""
        if given is None:
            return {}
        numbers, symbols = [], []
        for stride in given:
            parts = str(stride).split("*")
            found = [p for p in parts if not p.isdigit()]
            if len(found) > 1:
                raise Unsupported(f"stride {stride}: the C library takes a number times one symbol")
            numbers.append(int(np.prod([int(p) for p in parts if p.isdigit()])))
            symbols.append(found[0].encode() if found else None)
        n = len(numbers)
        return {"strides": self.keep((I64 * n)(*numbers)), "stride_symbols": self.keep((TEXT * n)(*symbols))}

    def attribute(self, name, value):
        a = Attr(name=name.encode())
        if isinstance(value, bool):
            a.type, a.i = 2, value
        elif isinstance(value, int):
            a.type, a.i = 0, value
        elif isinstance(value, float):
            a.type, a.f = 1, value
        elif isinstance(value, str):
            a.type, a.s = 3, self.keep(value.encode())
        else:
            a.type, a.num_ints, a.ints = 4, len(value), self.keep((I64 * len(value))(*value))
        return a

    def graph_of(self, row):
        error, graph, ids = c.byref(self.error), PTR(), {}
        self.check(self.library.lathe_graph_create(self.context, row.name.encode(), c.byref(graph), error))
        for name in row.inputs:
            tensor = row.tensors[name]
            dims = (Dim * len(tensor["dims"]))(*(self.dim(row, d) for d in tensor["dims"]))
            desc = sized(TensorDesc, name=name.encode(), dtype=CODES[tensor["dtype"]][0], ndim=len(dims), dims=dims,
                         flags=1 if row.constant(name) else 0, **self.strides(tensor.get("strides")))
            number = I32()
            self.check(self.library.lathe_graph_tensor(graph, c.byref(desc), c.byref(number), error))
            ids[name] = number.value
        for node in row.nodes:
            inputs = (I32 * len(node["in"]))(*(ids[name] for name in node["in"]))
            attrs = node.get("attrs", {})
            given = (Attr * len(attrs))(*(self.attribute(*item) for item in attrs.items()))
            number = I32()
            self.check(self.library.lathe_graph_op(graph, node["op"].encode(), inputs, c.c_size_t(len(inputs)), given, c.c_size_t(len(given)),
                                                   node["out"].encode(), c.byref(number), error))
            ids[node["out"]] = number.value
        self.check(self.library.lathe_graph_output(graph, ids[row.graph["outputs"][0]], error))
        self.check(self.library.lathe_graph_finish(graph, error))
        return graph

    def tensor(self, shape, dtype, data, strides):
        sizes = [self.keep((I64 * len(shape))(*given)) if given else None for given in (shape, strides)]
        return self.keep(Tensor(data.ctypes.data, Device(1, 0), len(shape), DataType(*CODES[dtype][1], 1), *sizes, 0))

    def prepare(self, row, copies):
        self.forget()
        error = c.byref(self.error)
        if len(row.graph["outputs"]) != 1:
            raise Unsupported("the comparison has rows of one result only")
        graph, kernel, pinned = self.graph_of(row), PTR(), PTR()
        allowed = 0
        for name in row.line.get("allowed", []):
            allowed |= CLASSES[name]
        policy = sized(Policy, wait=self.wait, allowed=allowed, threads=row.threads, cold=int(row.cache == "cold"))
        self.check(self.library.lathe_resolve(self.context, graph, c.byref(policy), c.byref(kernel), None, error))
        names, args, memory = row.inputs + [None], [], []
        everything = row.all_rotate()
        for number, name in enumerate(names):
            shape, dtype = (row.shape(name), row.tensors[name]["dtype"]) if name else (output_shape(row), output_dtype(row))
            data = on_lines(memory_of(operand(row, name))) if name else lines(int(np.prod(shape)) * CODES[dtype][1][1] // 8)
            tensor = self.tensor(shape, dtype, data, row.strides(name) if name else None)
            arg = Arg(c.pointer(tensor), data.nbytes, 0, 0, 0)
            if name and row.constant(name):
                info = PackInfo()
                self.check(self.library.lathe_prepack_query(kernel, number, c.byref(info), error))
                if info.layout_id:
                    packed = lines(info.bytes)
                    self.check(self.library.lathe_prepack(kernel, number, c.byref(tensor), PTR(packed.ctypes.data), U64(info.bytes), error))
                    tensor.data, arg.bytes, arg.layout_id, data = packed.ctypes.data, info.bytes, info.layout_id, packed
            args.append(arg)
            rotates = everything or (name is not None and row.constant(name))
            memory.append([data] + [on_lines(data) for _ in range(copies - 1 if rotates else 0)])
        self.kept.append(memory)
        self.out = (memory[-1][0], shape, dtype)
        given = (Arg * len(args))(*args)
        self.check(self.library.lathe_pin(kernel, given, c.c_size_t(len(args)), row.threads, c.byref(pinned), error))
        self.library.lathe_kernel_destroy(kernel)
        self.library.lathe_graph_destroy(graph)
        room = self.library.lathe_pinned_workspace_bytes(pinned)
        workspace = self.keep(lines(max(room, 64)))
        execution = c.byref(self.keep(sized(Exec, threads=row.threads, workspace=workspace.ctypes.data, workspace_bytes=room)))
        calls = [(PTR * len(args))(*(m[i % len(m)].ctypes.data for m in memory)) for i in range(copies)]
        run = self.library.lathe_pinned_run

        def call(copy):
            if run(pinned, calls[copy], execution):
                raise RuntimeError("a call failed")

        self.kept.append(Pin(self.library, pinned))
        return {"served": call}

    def result(self, way):
        data, shape, dtype = self.out
        kind = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}[dtype]
        return as_f32(data.view(kind)[:int(np.prod(shape))].reshape(shape), dtype)


class Pin:
    """Destroys a pinned call with what it is kept with."""

    def __init__(self, library, pinned):
        self.library, self.pinned = library, pinned

    def __del__(self):
        self.library.lathe_pinned_destroy(self.pinned)
