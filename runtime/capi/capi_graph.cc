// C ABI: describing graphs. What one call can see is checked in it; what needs the whole graph, by ops::finish.
#include <algorithm>

#include "ops/op_table.h"
#include "runtime/capi/handle.h"

namespace lathe::runtime {

using ir::invalid;
using ir::Result;
using ir::Status;

namespace {

constexpr size_t kMaxName = 255;
constexpr size_t kMaxTensors = 4096;
constexpr size_t kMaxHints = 256;

Result<ops::DimDesc> read_dim(const lathe_dim& dim, const std::string& where, int index) {
  if (dim.min < 0) return invalid("min {}, expected >= 0", dim.min).with_arg(where, index);
  if (dim.max < dim.min) return invalid("max {} is less than min {}", dim.max, dim.min).with_arg(where, index);
  if (dim.multiple_of < 0) return invalid("multiple_of {}, expected >= 0", dim.multiple_of).with_arg(where, index);
  if (dim.num_hints > 0 && dim.hints == nullptr)
    return invalid("NULL, expected a pointer").with_arg(where + ".hints", index);
  if (dim.num_hints > kMaxHints)
    return invalid("{} hints, expected at most {}", dim.num_hints, kMaxHints).with_arg(where + ".hints", index);
  ops::DimDesc out;
  out.min = dim.min;
  out.max = dim.max;
  out.multiple_of = dim.multiple_of == 0 ? 1 : dim.multiple_of;
  if (dim.symbol != nullptr) {
    LATHE_ASSIGN(out.symbol, read_text(dim.symbol, where + ".symbol", index, kMaxName));
  }
  for (size_t h = 0; h < dim.num_hints; ++h) out.hints.push_back({dim.hints[h].value, dim.hints[h].weight});
  return out;
}

// What DLPack calls the types there are: "f32 (code 2, 32 bits), ...".
std::string known_types() {
  std::string out;
  for (int t = 0; t < ir::kDTypes; ++t) {
    const auto type = static_cast<ir::DType>(t);
    out += fmt::format("{}{} ({}, {})", t == 0 ? "" : ", ", ir::dtype_name(type), ir::dtype_dlpack_code(type),
                       ir::dtype_bits(type));
  }
  return out;
}

// The element type that a description names in one way or the other.
Result<ir::DType> read_dtype(const lathe_tensor_desc& d, const std::string& name, int index) {
  if (d.dtype >= ir::kDTypes) return invalid("{}, expected a lathe_dtype", d.dtype).with_arg(name + ".dtype", index);
  const auto plain = static_cast<ir::DType>(d.dtype);
  const lathe_data_type& t = d.data_type;
  if (t.code == 0 && t.bits == 0 && t.lanes == 0) return plain;
  for (int i = 0; t.lanes == 1 && i < ir::kDTypes; ++i) {
    const auto type = static_cast<ir::DType>(i);
    if (ir::dtype_dlpack_code(type) != t.code || ir::dtype_bits(type) != t.bits) continue;
    if (d.dtype == 0 || plain == type) return type;
    return invalid("{}, expected 0 or {}, which data_type says", ir::dtype_name(plain), ir::dtype_name(type))
        .with_arg(name + ".dtype", index);
  }
  return ir::unsupported("code {} bits {} lanes {}, expected lanes 1 and (code, bits) of one of: {}", t.code, t.bits,
                         t.lanes, known_types())
      .with_arg(name + ".data_type", index);
}

Result<ops::TensorDesc> read_tensor(const lathe_tensor_desc* desc, const std::string& param, int index) {
  lathe_tensor_desc d = LATHE_TENSOR_DESC_INIT;
  LATHE_RETURN_IF_ERROR(read_struct(desc, d, param.c_str(), index));
  ops::TensorDesc t;
  LATHE_ASSIGN(t.name, read_text(d.name, param + ".name", index, kMaxName));
  LATHE_ASSIGN(t.dtype, read_dtype(d, t.name, index));
  if (d.ndim < 0 || d.ndim > ops::kMaxRank)
    return invalid("{}, expected 0..{}", d.ndim, ops::kMaxRank).with_arg(t.name + ".ndim", index);
  if (d.ndim > 0 && d.dims == nullptr) return invalid("NULL, expected a pointer").with_arg(t.name + ".dims", index);
  if ((d.flags & ~uint32_t{LATHE_TENSOR_CONST}) != 0)
    return invalid("{:#x}: unknown bits", d.flags).with_arg(t.name + ".flags", index);
  if (d.reserved != 0) return invalid("expected 0").with_arg(t.name + ".reserved", index);
  if (d.reserved2 != 0) return invalid("expected 0").with_arg(t.name + ".reserved2", index);
  if (d.stride_symbols != nullptr && d.strides == nullptr)
    return invalid("expected NULL, as strides is").with_arg(t.name + ".stride_symbols", index);
  t.constant = (d.flags & LATHE_TENSOR_CONST) != 0;
  for (int i = 0; i < d.ndim; ++i) {
    LATHE_ASSIGN(ops::DimDesc dim, read_dim(d.dims[i], fmt::format("{}.shape[{}]", t.name, i), index));
    t.dims.push_back(std::move(dim));
    if (d.strides == nullptr) continue;
    if (d.strides[i] < 0)
      return invalid("{}, expected >= 0", d.strides[i]).with_arg(fmt::format("{}.strides[{}]", t.name, i), index);
    ir::Expr stride(d.strides[i]);
    if (d.stride_symbols != nullptr && d.stride_symbols[i] != nullptr) {
      const std::string where = fmt::format("{}.stride_symbols[{}]", t.name, i);
      LATHE_ASSIGN(std::string symbol, read_text(d.stride_symbols[i], where, index, kMaxName));
      stride = stride * ir::symbol(std::move(symbol));
    }
    t.strides.push_back(std::move(stride));
  }
  return t;
}

Result<ops::Attr> read_attr(const lathe_attr& a, const std::string& where, int index) {
  ops::Attr out;
  LATHE_ASSIGN(out.name, read_text(a.name, where + ".name", index, kMaxName));
  if (a.reserved != 0) return invalid("expected 0").with_arg(where + ".reserved", index);
  switch (a.type) {
    case LATHE_ATTR_INT:
      out.value = a.i;
      return out;
    case LATHE_ATTR_FLOAT:
      out.value = a.f;
      return out;
    case LATHE_ATTR_BOOL:
      if (a.i != 0 && a.i != 1) return invalid("{}, expected 0 or 1", a.i).with_arg(where + ".i", index);
      out.value = a.i == 1;
      return out;
    case LATHE_ATTR_STRING: {
      LATHE_ASSIGN(std::string s, read_text(a.s, where + ".s", index));
      out.value = std::move(s);
      return out;
    }
    case LATHE_ATTR_INTS:
      if (a.num_ints > 0 && a.ints == nullptr)
        return invalid("NULL, expected a pointer").with_arg(where + ".ints", index);
      if (a.num_ints > kMaxTensors)
        return invalid("{}, expected at most {}", a.num_ints, kMaxTensors).with_arg(where + ".num_ints", index);
      out.value = std::vector<int64_t>(a.ints, a.ints + a.num_ints);
      return out;
    default:
      return invalid("{}, expected a lathe_attr_type", a.type).with_arg(where + ".type", index);
  }
}

Status check_open(const lathe_graph* graph) {
  LATHE_CHECK_HANDLE(graph, 0);
  if (graph->body->finished) return ir::make_error(ir::Code::kSTATE, "the graph is finished").with_arg("graph", 0);
  if (graph->body->graph.tensors.size() >= kMaxTensors)
    return invalid("more than {} tensors", kMaxTensors).with_arg("graph", 0);
  return {};
}

Result<GraphBody> new_graph(lathe_context* ctx, const char* name) {
  LATHE_CHECK_HANDLE(ctx, 0);
  GraphBody body;
  body.state = ctx->body->state;
  LATHE_ASSIGN(body.graph.name, read_text(name, "name", 1, kMaxName));
  return body;
}

Status create_graph(lathe_context* ctx, const char* name, lathe_graph** out) {
  LATHE_CHECK_HANDLE(ctx, 0);
  LATHE_CHECK_POINTER(out, 2);
  LATHE_ASSIGN(GraphBody body, new_graph(ctx, name));
  *out = make_handle<lathe_graph>(std::move(body));
  return {};
}

Status add_graph_tensor(lathe_graph* graph, const lathe_tensor_desc* desc, int32_t* id) {
  LATHE_RETURN_IF_ERROR(check_open(graph));
  LATHE_CHECK_POINTER(desc, 1);
  LATHE_CHECK_POINTER(id, 2);
  LATHE_ASSIGN(ops::TensorDesc t, read_tensor(desc, "desc", 1));
  std::vector<ops::TensorDesc>& tensors = graph->body->graph.tensors;
  tensors.push_back(std::move(t));
  *id = static_cast<int32_t>(tensors.size()) - 1;
  return {};
}

Result<ops::Node> read_node(const char* op, const int32_t* inputs, size_t num_inputs, const lathe_attr* attrs,
                            size_t num_attrs, int op_index, size_t num_tensors) {
  ops::Node node;
  LATHE_ASSIGN(node.op, read_text(op, "op", op_index, kMaxName));
  if (ops::find_op(node.op) == nullptr)
    return ir::unsupported("unknown operator \"{}\"", node.op).with_arg("op", op_index);
  if (num_inputs > kMaxArgs)
    return invalid("{}, expected at most {}", num_inputs, kMaxArgs).with_arg("num_inputs", op_index + 2);
  for (size_t i = 0; i < num_inputs; ++i) {
    if (inputs[i] < 0 || static_cast<size_t>(inputs[i]) >= num_tensors) {
      return invalid("{}: no such tensor", inputs[i]).with_arg(fmt::format("inputs[{}]", i), op_index + 1);
    }
    node.inputs.push_back(inputs[i]);
  }
  if (num_attrs > 0 && attrs == nullptr) return null_argument("attrs", op_index + 3);
  if (num_attrs > kMaxArgs)
    return invalid("{}, expected at most {}", num_attrs, kMaxArgs).with_arg("num_attrs", op_index + 4);
  for (size_t i = 0; i < num_attrs; ++i) {
    LATHE_ASSIGN(ops::Attr a, read_attr(attrs[i], fmt::format("attrs[{}]", i), op_index + 3));
    node.attrs.push_back(std::move(a));
  }
  return node;
}

Status add_graph_op(lathe_graph* graph, const char* op, const int32_t* inputs, size_t num_inputs,
                    const lathe_attr* attrs, size_t num_attrs, const char* output_name, int32_t* id) {
  LATHE_RETURN_IF_ERROR(check_open(graph));
  LATHE_CHECK_POINTER(id, 7);
  if (num_inputs > 0 && inputs == nullptr) return null_argument("inputs", 2);
  ops::Graph& g = graph->body->graph;
  LATHE_ASSIGN(ops::Node node, read_node(op, inputs, num_inputs, attrs, num_attrs, 1, g.tensors.size()));
  LATHE_ASSIGN(std::string name, read_text(output_name, "output_name", 6, kMaxName));
  *id = ops::add_node(g, std::move(node.op), std::move(node.inputs), std::move(name), std::move(node.attrs));
  return {};
}

Status add_graph_output(lathe_graph* graph, int32_t id) {
  LATHE_RETURN_IF_ERROR(check_open(graph));
  ops::Graph& g = graph->body->graph;
  if (id < 0 || static_cast<size_t>(id) >= g.tensors.size()) return invalid("{}: no such tensor", id).with_arg("id", 1);
  g.outputs.push_back(id);
  return {};
}

Status finish_graph(lathe_graph* graph) {
  LATHE_RETURN_IF_ERROR(check_open(graph));
  LATHE_ASSIGN(ops::Graph done, ops::finish(graph->body->graph));
  graph->body->graph = std::move(done);
  graph->body->finished = true;
  return {};
}

Status create_single(lathe_context* ctx, const char* op, const lathe_tensor_desc* inputs, size_t num_inputs,
                     const lathe_attr* attrs, size_t num_attrs, lathe_graph** out) {
  LATHE_CHECK_HANDLE(ctx, 0);
  LATHE_CHECK_POINTER(out, 6);
  if (num_inputs > 0 && inputs == nullptr) return null_argument("inputs", 2);
  if (num_inputs > kMaxArgs) return invalid("{}, expected at most {}", num_inputs, kMaxArgs).with_arg("num_inputs", 3);
  LATHE_ASSIGN(const std::string op_name, read_text(op, "op", 1, kMaxName));
  LATHE_ASSIGN(GraphBody body, new_graph(ctx, op_name.c_str()));
  const char* at = reinterpret_cast<const char*>(inputs);  // the caller's structs may be longer or shorter than ours
  const uint32_t size = num_inputs > 0 ? inputs->struct_size : 0;
  std::vector<int32_t> ids;
  for (size_t i = 0; i < num_inputs; ++i, at += size) {
    const auto* desc = reinterpret_cast<const lathe_tensor_desc*>(at);
    const std::string where = fmt::format("inputs[{}]", i);
    if (desc->struct_size != size)
      return invalid("{}, expected {} as in inputs[0]", desc->struct_size, size).with_arg(where + ".struct_size", 2);
    LATHE_ASSIGN(ops::TensorDesc t, read_tensor(desc, where, 2));
    body.graph.tensors.push_back(std::move(t));
    ids.push_back(static_cast<int32_t>(i));
  }
  LATHE_ASSIGN(ops::Node node, read_node(op, ids.data(), ids.size(), attrs, num_attrs, 1, ids.size()));
  std::string name = "out";
  while (std::any_of(body.graph.tensors.begin(), body.graph.tensors.end(),
                     [&](const ops::TensorDesc& t) { return t.name == name; }))
    name += "_";
  ops::add_node(body.graph, std::move(node.op), std::move(node.inputs), name, std::move(node.attrs));
  body.graph.outputs = ops::results_of(body.graph.nodes.back());
  LATHE_ASSIGN(body.graph, ops::finish(body.graph));
  body.finished = true;
  *out = make_handle<lathe_graph>(std::move(body));
  return {};
}

}  // namespace
}  // namespace lathe::runtime

using namespace lathe::runtime;  // NOLINT: the C ABI of this floor

extern "C" lathe_status lathe_graph_create(lathe_context* ctx, const char* name, lathe_graph** out,
                                           lathe_error* error) {
  return guarded(error, [&] { return create_graph(ctx, name, out); });
}
extern "C" lathe_status lathe_graph_tensor(lathe_graph* graph, const lathe_tensor_desc* desc, int32_t* id,
                                           lathe_error* error) {
  return guarded(error, [&] { return add_graph_tensor(graph, desc, id); });
}
extern "C" lathe_status lathe_graph_op(lathe_graph* graph, const char* op, const int32_t* inputs, size_t num_inputs,
                                       const lathe_attr* attrs, size_t num_attrs, const char* output_name, int32_t* id,
                                       lathe_error* error) {
  return guarded(error, [&] { return add_graph_op(graph, op, inputs, num_inputs, attrs, num_attrs, output_name, id); });
}
extern "C" lathe_status lathe_graph_output(lathe_graph* graph, int32_t id, lathe_error* error) {
  return guarded(error, [&] { return add_graph_output(graph, id); });
}
extern "C" lathe_status lathe_graph_finish(lathe_graph* graph, lathe_error* error) {
  return guarded(error, [&] { return finish_graph(graph); });
}
extern "C" lathe_status lathe_graph_single(lathe_context* ctx, const char* op, const lathe_tensor_desc* inputs,
                                           size_t num_inputs, const lathe_attr* attrs, size_t num_attrs,
                                           lathe_graph** out, lathe_error* error) {
  return guarded(error, [&] { return create_single(ctx, op, inputs, num_inputs, attrs, num_attrs, out); });
}
extern "C" void lathe_graph_destroy(lathe_graph* graph) { destroy_handle(graph); }
