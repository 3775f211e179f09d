// Reading and writing manifests with nlohmann-json, whose exceptions end here: see manifest.h.
#include "ops/manifest.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "ir/core/names.h"
#include "ops/monomial.h"

namespace lathe::ops {

namespace {
using ir::invalid;
using ir::Result;
using ir::Status;
using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 16;
constexpr int kMaxThreads = 4096;

// Reads one line. Every error carries "line N: path.to.field".
class Reader {
 public:
  explicit Reader(int line) : line_(line) {}
  Result<Workload> read(std::string_view text);

 private:
  Status error(const std::string& path, const std::string& message) const {
    return invalid("{}", message).with_arg(fmt::format("line {}{}{}", line_, path.empty() ? "" : ": ", path));
  }
  Result<Json> parse(std::string_view text) const;
  // An object with these fields only; `required` ones all there.
  Status fields(const Json& j, const std::string& path, const std::vector<std::string>& required,
                const std::vector<std::string>& optional) const;
  Result<int64_t> integer(const Json& j, const std::string& path, int64_t min, int64_t max = INT64_MAX) const;
  Result<double> number(const Json& j, const std::string& path) const;
  Result<std::string> text(const Json& j, const std::string& path) const;
  Status array(const Json& j, const std::string& path) const {
    return j.is_array() ? Status() : error(path, "expected an array");
  }
  Result<DimDesc> symbol(const Json& j, const std::string& name, const std::string& path) const;
  Result<DimDesc> dim(const Json& j, const std::string& path) const;
  Result<ir::Expr> stride(const Json& j, const std::string& path) const;
  Result<TensorDesc> tensor(const Json& j, const std::string& name, const std::string& path) const;
  Result<Attr> attribute(const Json& j, const std::string& name, const std::string& path) const;
  Status node(const Json& j, const std::string& path);
  Result<int> find(const std::string& name, const std::string& path) const;
  Status graph(const Json& j);

  int line_;
  Workload w_;
};

Result<Json> Reader::parse(std::string_view text) const {
  std::vector<std::set<std::string>> keys;
  std::string problem;
  const Json::parser_callback_t watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > kMaxDepth && problem.empty()) problem = fmt::format("nested deeper than {}", kMaxDepth);
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second && problem.empty()) {
      problem = fmt::format("field \"{}\" is repeated", value.get<std::string>());
    }
    return depth <= kMaxDepth;
  };
  try {
    Json j = Json::parse(text, watch);
    if (!problem.empty()) return error("", problem);
    return j;
  } catch (const nlohmann::json::parse_error& e) {
    return error("", fmt::format("column {}: not JSON", e.byte));
  } catch (const nlohmann::json::exception& e) {
    return error("", "a number is out of range");
  }
}

Status Reader::fields(const Json& j, const std::string& path, const std::vector<std::string>& required,
                      const std::vector<std::string>& optional) const {
  if (!j.is_object()) return error(path, "expected an object");
  const std::string prefix = path.empty() ? "" : path + ".";
  for (const std::string& name : required) {
    if (!j.contains(name)) return error(prefix + name, "missing");
  }
  for (const auto& [key, value] : j.items()) {
    if (std::count(required.begin(), required.end(), key) + std::count(optional.begin(), optional.end(), key) == 0) {
      return error(prefix + key, "unknown field");
    }
  }
  return {};
}

Result<int64_t> Reader::integer(const Json& j, const std::string& path, int64_t min, int64_t max) const {
  const bool fits = j.is_number_integer() && !(j.is_number_unsigned() && j.get<uint64_t>() > INT64_MAX);
  if (!fits || j.get<int64_t>() < min || j.get<int64_t>() > max) {
    return error(path, max == INT64_MAX ? fmt::format("expected an integer >= {}", min)
                                        : fmt::format("expected an integer from {} to {}", min, max));
  }
  return j.get<int64_t>();
}

Result<double> Reader::number(const Json& j, const std::string& path) const {
  if (!j.is_number() || !std::isfinite(j.get<double>())) return error(path, "expected a finite number");
  return j.get<double>();
}

Result<std::string> Reader::text(const Json& j, const std::string& path) const {
  if (!j.is_string() || j.get_ref<const std::string&>().empty()) return error(path, "expected a non-empty string");
  return j.get<std::string>();
}

Result<DimDesc> Reader::symbol(const Json& j, const std::string& name, const std::string& path) const {
  if (!ir::is_valid_name(kernel_symbol(name))) return error(path, "expected a name of letters, digits and _");
  LATHE_RETURN_IF_ERROR(fields(j, path, {"min", "max"}, {"multiple_of", "hints"}));
  DimDesc d;
  d.symbol = name;
  LATHE_ASSIGN(d.min, integer(j["min"], path + ".min", 0));
  LATHE_ASSIGN(d.max, integer(j["max"], path + ".max", d.min));
  if (j.contains("multiple_of")) {
    LATHE_ASSIGN(d.multiple_of, integer(j["multiple_of"], path + ".multiple_of", 1));
  }
  if (!j.contains("hints")) return d;
  LATHE_RETURN_IF_ERROR(array(j["hints"], path + ".hints"));
  for (size_t i = 0; i < j["hints"].size(); ++i) {
    const Json& h = j["hints"][i];
    const std::string at = fmt::format("{}.hints[{}]", path, i);
    LATHE_RETURN_IF_ERROR(fields(h, at, {"value"}, {"weight"}));
    Hint hint;
    LATHE_ASSIGN(hint.value, integer(h["value"], at + ".value", d.min, d.max));
    if (h.contains("weight")) {
      LATHE_ASSIGN(hint.weight, number(h["weight"], at + ".weight"));
      if (hint.weight < 0) return error(at + ".weight", "expected a number >= 0");
    }
    d.hints.push_back(hint);
  }
  return d;
}

Result<DimDesc> Reader::dim(const Json& j, const std::string& path) const {
  if (j.is_string()) {
    const std::string name = j.get<std::string>();
    for (const DimDesc& d : w_.dims) {
      if (d.symbol == name) return d;
    }
    return error(path, fmt::format("symbol \"{}\" is not in dims", name));
  }
  const Result<int64_t> size = integer(j, path, 0);
  if (!size.ok()) return error(path, "expected a non-negative integer or a symbol");
  return fixed_dim(*size);
}

// 64, "L" or "64*L".
Result<ir::Expr> Reader::stride(const Json& j, const std::string& path) const {
  const Status bad = error(path, "expected a non-negative integer, a symbol, or a product such as \"64*L\"");
  if (!j.is_string()) {
    const Result<int64_t> value = integer(j, path, 0);
    return value.ok() ? Result<ir::Expr>(ir::Expr(*value)) : Result<ir::Expr>(bad);
  }
  const std::string all = j.get<std::string>();
  std::optional<Monomial> out = Monomial{};
  for (size_t begin = 0; begin <= all.size() && out;) {
    const size_t end = std::min(all.find('*', begin), all.size());
    const std::string factor = all.substr(begin, end - begin);
    const bool known =
        std::any_of(w_.dims.begin(), w_.dims.end(), [&](const DimDesc& d) { return d.symbol == factor; });
    int64_t value = 0;
    const auto [stop, code] = std::from_chars(factor.data(), factor.data() + factor.size(), value);
    if (known) {
      out = product(*out, Monomial{1, {factor}});
    } else if (!factor.empty() && code == std::errc() && stop == factor.data() + factor.size() && value >= 0) {
      out = product(*out, Monomial{value, {}});
    } else {
      return bad;
    }
    begin = end + 1;
  }
  if (!out) return bad;
  return to_expr(*out);
}

Result<TensorDesc> Reader::tensor(const Json& j, const std::string& name, const std::string& path) const {
  LATHE_RETURN_IF_ERROR(fields(j, path, {}, {"dtype", "dims", "strides", "const"}));
  TensorDesc t;
  t.name = name;
  if (name.empty()) return error(path, "expected a name");
  t.inferred = !j.contains("dims") && !j.contains("dtype");
  if (!t.inferred) {
    LATHE_RETURN_IF_ERROR(fields(j, path, {"dtype", "dims"}, {"strides", "const"}));
    LATHE_ASSIGN(const std::string dtype, text(j["dtype"], path + ".dtype"));
    const auto parsed = ir::parse_dtype(dtype);
    if (!parsed) return error(path + ".dtype", fmt::format("unknown dtype \"{}\"", dtype));
    t.dtype = *parsed;
    LATHE_RETURN_IF_ERROR(array(j["dims"], path + ".dims"));
    for (size_t i = 0; i < j["dims"].size(); ++i) {
      LATHE_ASSIGN(DimDesc d, dim(j["dims"][i], fmt::format("{}.dims[{}]", path, i)));
      t.dims.push_back(std::move(d));
    }
  }
  if (j.contains("strides")) {
    LATHE_RETURN_IF_ERROR(array(j["strides"], path + ".strides"));
    for (size_t i = 0; i < j["strides"].size(); ++i) {
      LATHE_ASSIGN(ir::Expr e, stride(j["strides"][i], fmt::format("{}.strides[{}]", path, i)));
      t.strides.push_back(std::move(e));
    }
  }
  if (j.contains("const")) {
    if (!j["const"].is_boolean()) return error(path + ".const", "expected true or false");
    t.constant = j["const"].get<bool>();
  }
  return t;
}

Result<Attr> Reader::attribute(const Json& j, const std::string& name, const std::string& path) const {
  if (j.is_boolean()) return Attr{name, j.get<bool>()};
  if (j.is_string()) return Attr{name, j.get<std::string>()};
  if (j.is_number_float()) {
    LATHE_ASSIGN(const double value, number(j, path));
    return Attr{name, value};
  }
  if (j.is_array()) {
    std::vector<int64_t> list;
    for (size_t i = 0; i < j.size(); ++i) {
      LATHE_ASSIGN(const int64_t value, integer(j[i], fmt::format("{}[{}]", path, i), INT64_MIN));
      list.push_back(value);
    }
    return Attr{name, std::move(list)};
  }
  if (!j.is_number_integer()) return error(path, "expected a number, boolean, string or list of integers");
  LATHE_ASSIGN(const int64_t value, integer(j, path, INT64_MIN));
  return Attr{name, value};
}

Result<int> Reader::find(const std::string& name, const std::string& path) const {
  const auto& tensors = w_.graph.tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == name) return static_cast<int>(i);
  }
  return error(path, fmt::format("no tensor is named \"{}\"", name));
}

// The name of a node's result, or the list of them.
std::vector<Json> results(const Json& node) {
  const Json& out = node["out"];
  return out.is_array() ? std::vector<Json>(out.begin(), out.end()) : std::vector<Json>{out};
}

Status Reader::node(const Json& j, const std::string& path) {
  LATHE_RETURN_IF_ERROR(fields(j, path, {"op", "in", "out"}, {"attrs"}));
  Node n;
  LATHE_ASSIGN(n.op, text(j["op"], path + ".op"));
  LATHE_RETURN_IF_ERROR(array(j["in"], path + ".in"));
  for (size_t i = 0; i < j["in"].size(); ++i) {
    const std::string at = fmt::format("{}.in[{}]", path, i);
    LATHE_ASSIGN(const std::string name, text(j["in"][i], at));
    LATHE_ASSIGN(const int t, find(name, at));
    n.inputs.push_back(t);
  }
  const std::vector<Json> outs = results(j);
  if (outs.empty()) return error(path + ".out", "expected a name, or a list of names");
  for (size_t i = 0; i < outs.size(); ++i) {
    const std::string at = j["out"].is_array() ? fmt::format("{}.out[{}]", path, i) : path + ".out";
    LATHE_ASSIGN(const std::string out, text(outs[i], at));
    LATHE_ASSIGN(const int t, find(out, at));
    if (i == 0) n.output = t;
    if (i > 0) n.also.push_back(t);
  }
  if (j.contains("attrs")) {
    if (!j["attrs"].is_object()) return error(path + ".attrs", "expected an object");
    for (const auto& [key, value] : j["attrs"].items()) {
      LATHE_ASSIGN(Attr a, attribute(value, key, path + ".attrs." + key));
      n.attrs.push_back(std::move(a));
    }
  }
  w_.graph.nodes.push_back(std::move(n));
  return {};
}

Status Reader::graph(const Json& j) {
  LATHE_RETURN_IF_ERROR(fields(j, "graph", {"tensors", "nodes", "outputs"}, {}));
  if (!j["tensors"].is_object()) return error("graph.tensors", "expected an object");
  for (const auto& [name, value] : j["tensors"].items()) {
    LATHE_ASSIGN(TensorDesc t, tensor(value, name, "graph.tensors." + name));
    w_.graph.tensors.push_back(std::move(t));
  }
  const Json& nodes = j["nodes"];
  LATHE_RETURN_IF_ERROR(array(nodes, "graph.nodes"));
  // Results that are not described are tensors too; they follow the others.
  for (const Json& n : nodes) {
    if (!n.is_object() || !n.contains("out")) continue;  // node() says what is wrong
    for (const Json& out : results(n)) {
      if (!out.is_string() || out.get<std::string>().empty() || find(out.get<std::string>(), "").ok()) continue;
      TensorDesc t;
      t.name = out.get<std::string>();
      t.inferred = true;
      w_.graph.tensors.push_back(std::move(t));
    }
  }
  for (size_t i = 0; i < nodes.size(); ++i) LATHE_RETURN_IF_ERROR(node(nodes[i], fmt::format("graph.nodes[{}]", i)));
  LATHE_RETURN_IF_ERROR(array(j["outputs"], "graph.outputs"));
  for (size_t i = 0; i < j["outputs"].size(); ++i) {
    const std::string at = fmt::format("graph.outputs[{}]", i);
    LATHE_ASSIGN(const std::string name, text(j["outputs"][i], at));
    LATHE_ASSIGN(const int t, find(name, at));
    w_.graph.outputs.push_back(t);
  }
  const Result<Graph> finished = finish(w_.graph);
  if (finished.ok()) return {};
  const Status& s = finished.status();
  return ir::make_error(s.code(), "{}{}{}", s.arg(), s.arg().empty() ? "" : ": ", s.message())
      .with_arg(fmt::format("line {}: graph", line_));
}

Result<Workload> Reader::read(std::string_view line) {
  LATHE_ASSIGN(const Json j, parse(line));
  LATHE_RETURN_IF_ERROR(fields(j, "", {"name", "graph"}, {"dims", "threads", "cache", "allowed", "weight"}));
  LATHE_ASSIGN(w_.name, text(j["name"], "name"));
  if (j.contains("dims")) {
    if (!j["dims"].is_object()) return error("dims", "expected an object");
    for (const auto& [name, value] : j["dims"].items()) {
      LATHE_ASSIGN(DimDesc d, symbol(value, name, "dims." + name));
      w_.dims.push_back(std::move(d));
    }
  }
  if (j.contains("threads")) {
    LATHE_ASSIGN(const int64_t threads, integer(j["threads"], "threads", 1, kMaxThreads));
    w_.threads = static_cast<int>(threads);
  }
  if (j.contains("cache")) {
    LATHE_ASSIGN(const std::string cache, text(j["cache"], "cache"));
    if (cache != "hot" && cache != "cold") return error("cache", "expected \"hot\" or \"cold\"");
    w_.cache = cache == "hot" ? CacheState::hot : CacheState::cold;
  }
  if (j.contains("allowed")) {
    LATHE_RETURN_IF_ERROR(array(j["allowed"], "allowed"));
    for (size_t i = 0; i < j["allowed"].size(); ++i) {
      const std::string at = fmt::format("allowed[{}]", i);
      LATHE_ASSIGN(const std::string name, text(j["allowed"][i], at));
      const auto bits = ir::parse_numeric_name(name);
      if (!bits || *bits == 0) return error(at, fmt::format("unknown numeric class \"{}\"", name));
      w_.allowed |= *bits;
    }
  }
  if (j.contains("weight")) {
    LATHE_ASSIGN(w_.weight, number(j["weight"], "weight"));
    if (w_.weight < 0) return error("weight", "expected a number >= 0");
  }
  w_.graph.name = w_.name;
  LATHE_RETURN_IF_ERROR(graph(j["graph"]));
  return std::move(w_);
}
}  // namespace

const char* cache_name(CacheState cache) { return cache == CacheState::hot ? "hot" : "cold"; }

Result<Workload> parse_workload(std::string_view line, int line_number) { return Reader(line_number).read(line); }

Result<std::vector<Workload>> parse_manifest(std::string_view text) {
  std::vector<Workload> out;
  int line = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view one = text.substr(begin, end - begin);
    begin = end + 1;
    ++line;
    if (one.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    LATHE_ASSIGN(Workload w, parse_workload(one, line));
    out.push_back(std::move(w));
  }
  return out;
}

}  // namespace lathe::ops
