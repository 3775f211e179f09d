"""ONNX Runtime: a model of the row's operators with its constants as initialisers, so that it packs them before, and operands that are bound, so
that a call allocates nothing. Where it has several operators for one row, the fastest counts. Cold constants: a session for each copy.
"""
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from operands import NUMPY, Unsupported, as_f32, operand, output_dtype, output_shape

TYPES = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16, "i8": TensorProto.INT8, "u8": TensorProto.UINT8,
         "i32": TensorProto.INT32, "b8": TensorProto.BOOL}
SAME_NAME = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "minimum": "Min", "maximum": "Max", "neg": "Neg", "abs": "Abs", "exp": "Exp",
             "log": "Log", "sqrt": "Sqrt", "tanh": "Tanh", "erf": "Erf", "sigmoid": "Sigmoid", "sin": "Sin", "cos": "Cos", "floor": "Floor",
             "round": "Round", "relu": "Relu", "where": "Where", "copy": "Identity"}
MICROSOFT = "com.microsoft"


class Model:
    """Nodes of one way to do a row."""

    def __init__(self, row, way):
        self.row, self.way = row, way
        self.nodes, self.initialisers, self.inputs, self.made = [], [], [], 0

    def node(self, op, inputs, out=None, domain="", **attrs):
        self.made += out is None
        out = out or f"t{self.made}"
        self.nodes.append(helper.make_node(op, inputs, [out], domain=domain, **attrs))
        return out

    def constant(self, array, name=None):
        self.made += name is None
        name = name or f"c{self.made}"
        self.initialisers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def input(self, name):
        """An operand as it is."""
        row = self.row
        if row.constant(name):
            if row.tensors[name]["dtype"] == "bf16":
                bits = operand(row, name)
                self.initialisers.append(helper.make_tensor(name, TensorProto.BFLOAT16, bits.shape, bits.tobytes(), raw=True))
            else:
                self.constant(operand(row, name), name)
        elif name not in self.inputs:
            self.inputs.append(name)
        return name

    def scalar(self, value):
        return self.constant(np.array(value, NUMPY[output_dtype(self.row)]))

    def silu(self, x, out=None):
        return self.node("Mul", [x, self.node("Sigmoid", [x])], out)

    def add(self, node):
        op, out, attrs = node["op"], node["out"], node.get("attrs", {})
        known = {n["out"] for n in self.row.nodes}
        if op == "quantized_matmul":
            return self.quantised(node)
        if op == "matmul":
            return self.product(node)
        names = [n if n in known else self.input(n) for n in node["in"]]
        if op in SAME_NAME:
            return self.node(SAME_NAME[op], names, out)
        if op == "attention":
            return self.attention(names, out, attrs)
        if op == "softmax":
            return self.node("Softmax", names, out, axis=-1)
        if op == "layernorm" and len(names) > 1:
            return self.node("LayerNormalization", names, out, axis=-1, epsilon=attrs.get("epsilon", 1e-5))
        if op == "rmsnorm" and len(names) > 1:
            return self.node("SimplifiedLayerNormalization", names, out, axis=-1, epsilon=attrs.get("epsilon", 1e-5))
        if op == "gelu":
            return self.node("Gelu", names, out, approximate=attrs.get("approximate", "none"))
        if op == "silu":
            return self.silu(names[0], out)
        if op == "swiglu":
            return self.node("Mul", [self.silu(names[0]), names[1]], out)
        if op == "geglu":
            return self.node("Mul", [self.node("Gelu", names[:1], approximate=attrs.get("approximate", "none")), names[1]], out)
        if op in ("scale", "add_scalar"):
            return self.node("Mul" if op == "scale" else "Add", [names[0], self.scalar(attrs["value"])], out)
        if op == "transpose":
            return self.node("Transpose", names, out, perm=attrs["perm"])
        if op == "cast":
            return self.node("Cast", names, out, to=TYPES[attrs["to"]])
        raise Unsupported(f"{op} is not in the comparison")

    def product(self, node):
        row, attrs = self.row, node.get("attrs", {})
        a, b = node["in"]
        turned = attrs.get("transpose_b", False)
        if turned and row.constant(b):  # a MatMul with a constant in its own order is packed
            return self.node("MatMul", [self.input(a), self.constant(np.swapaxes(operand(row, b), -1, -2), b)], node["out"])
        if turned or attrs.get("transpose_a"):
            return self.node("FusedMatMul", [self.input(a), self.input(b)], node["out"], MICROSOFT, transA=int(attrs.get("transpose_a", False)),
                             transB=int(turned))
        return self.node("MatMul", [self.input(a), self.input(b)], node["out"])

    def quantised(self, node):
        row, attrs = self.row, node["attrs"]
        kind, a = attrs["format"], self.input(node["in"][0])
        weights = [operand(row, name) for name in node["in"][1:]]
        n, k = output_shape(row)[-1], row.shape(node["in"][0])[-1]
        level = 4 if self.way == "bytes" else 0
        if kind == "int8_channel":
            if self.way != "bytes":
                raise Unsupported("f32 activations with weights of a byte")
            scales = self.constant(weights[1])
            return self.node("DynamicQuantizeMatMul", [a, self.constant(weights[0].T), scales], node["out"], MICROSOFT)
        if kind == "q4_0":
            blocks = weights[0].reshape(n, k // 32, 18)
            scales = blocks[..., :2].copy().view(np.float16)[..., 0].astype(np.float32)
            low, high = blocks[..., 2:] & 15, blocks[..., 2:] >> 4
            values = np.concatenate([low, high], axis=2)
            weights, bits, group = [values[..., ::2] | values[..., 1::2] << 4, scales], 4, 32
        elif kind == "q8_0":
            blocks = weights[0].reshape(n, k // 32, 34)
            weights = [blocks[..., 2:] ^ 0x80, blocks[..., :2].copy().view(np.float16)[..., 0].astype(np.float32)]
            bits, group = 8, 32
        elif kind.startswith("nbits_"):
            bits, group = int(kind[6]), attrs["group"]
        else:
            raise Unsupported(f"format {kind}")
        operands = [self.constant(w.astype(np.float32) if w.dtype == np.float16 else w) for w in weights]
        return self.node("MatMulNBits", [a] + operands, node["out"], MICROSOFT, K=k, N=n, bits=bits, block_size=group, accuracy_level=level)

    def attention(self, names, out, attrs):
        row = self.row
        q, k, v = names[:3]
        shapes = [row.shape(name) for name in row.nodes[0]["in"]]
        heads, kv_heads, depth = shapes[0][-3], shapes[1][-3], shapes[0][-1]
        if attrs.get("window") or len(names) > 3 or attrs.get("soft_cap"):
            raise Unsupported("attention with a window, a mask or a cap is not in the comparison")
        scale = attrs.get("scale") or depth ** -0.5
        batch = int(np.prod(shapes[0][:-3]))
        queries, keys = shapes[0][-2], shapes[1][-2]
        causal = attrs.get("causal", False)
        if causal and queries != keys:
            raise Unsupported("causal attention of fewer queries than keys is not in the comparison")
        as_four = [self.node("Reshape", [name, self.constant(np.array([batch, s[-3], s[-2], s[-1]], np.int64))]) for name, s in zip((q, k, v), shapes)]
        if self.way == "attention":
            y = self.node("Attention", as_four, None, is_causal=int(causal), scale=float(scale))
        else:
            each = heads // kv_heads
            qs = self.node("Reshape", [q, self.constant(np.array([batch, kv_heads, each * queries, depth], np.int64))])
            scores = self.node("FusedMatMul", [qs, as_four[1]], None, MICROSOFT, transB=1, alpha=float(scale))
            if causal:
                hidden = np.triu(np.full((queries, keys), -np.inf, np.float32), 1)
                scores = self.node("Add", [scores, self.constant(np.tile(hidden, (each, 1)))])
            y = self.node("MatMul", [self.node("Softmax", [scores], axis=-1), as_four[2]])
        return self.node("Reshape", [y, self.constant(np.array(output_shape(row), np.int64))], out)

    def bytes(self):
        for node in self.row.nodes:
            self.add(node)
        row = self.row
        inputs = [helper.make_tensor_value_info(n, TYPES[row.tensors[n]["dtype"]], row.shape(n)) for n in self.inputs]
        out = row.graph["outputs"][0]
        output = helper.make_tensor_value_info(out, TYPES[output_dtype(row)], output_shape(row))
        graph = helper.make_graph(self.nodes, "row", inputs, [output], self.initialisers)
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=11).SerializeToString()


def ways_of(row):
    op = row.main_node()["op"]
    if op == "quantized_matmul":
        return ["bytes"] if "quantised_activations" in row.line.get("allowed", []) else ["floats"]
    return ["attention", "composed"] if op == "attention" else ["nodes"]


class Peer:
    through_c = False

    def __init__(self, settings):
        self.version = ort.__version__
        self.options = ort.SessionOptions()
        self.options.intra_op_num_threads = settings["threads"]
        self.options.inter_op_num_threads = 1
        self.options.log_severity_level = 4
        # Its threads would spin while another one has the token.
        self.options.add_session_config_entry("session.force_spinning_stop", "1")
        self.forget()

    def forget(self):
        self.kept, self.outputs = [], {}

    def prepare(self, row, copies):
        self.forget()
        calls, refused = {}, None
        for way in ways_of(row):
            try:
                calls[way] = self.way(row, way, copies)
            except Unsupported:
                raise
            except Exception as error:  # what its sessions throw is of no one type
                refused = error
        if not calls:
            raise Unsupported(str(refused))
        return calls

    def way(self, row, way, copies):
        model = Model(row, way)
        text = model.bytes()
        everything = row.all_rotate()
        constants = any(row.constant(name) for name in row.inputs)
        session_of = [ort.InferenceSession(text, self.options, providers=["CPUExecutionProvider"]) for _ in range(copies if constants else 1)]
        values = {name: operand(row, name) for name in model.inputs}
        bindings = []
        for i in range(copies):
            session = session_of[i % len(session_of)]
            if i == 0 or everything:
                inputs = {name: self.value(row.tensors[name]["dtype"], array.copy()) for name, array in values.items()}
                output = self.value(output_dtype(row), np.zeros(output_shape(row), NUMPY[output_dtype(row)]))
            binding = session.io_binding()
            for name, value in inputs.items():
                binding.bind_ortvalue_input(name, value)
            binding.bind_ortvalue_output(row.graph["outputs"][0], output)
            bindings.append((session, binding))
            if i == 0:
                self.outputs[way] = output, row
        self.kept.append((session_of, bindings))

        def call(copy):
            session, binding = bindings[copy]
            session.run_with_iobinding(binding)

        call(0)
        return call

    def value(self, dtype, array):
        if dtype == "bf16":
            return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, TensorProto.BFLOAT16)
        return ort.OrtValue.ortvalue_from_numpy(array)

    def result(self, way):
        output, row = self.outputs[way]
        return as_f32(output.numpy(), output_dtype(row))
