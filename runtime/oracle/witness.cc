// See witness.h. Tile sizes keep their divisors: those of a register tile (a multiple of 8) become an eighth, a quarter
// where eights are among them (vectors of eight lanes, inside larger tiles), those of a cache block a sixty-fourth; a
// constant size becomes the least that holds two of its tiles and leaves the same kind of rest.
#include "runtime/oracle/witness.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>

#include "ir/analysis/analysis.h"
#include "ir/analysis/verifier.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"
#include "runtime/oracle/data_sets.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

constexpr int64_t kSteps = 400'000;  // of one interpretation
constexpr int64_t kSmall = 16;       // sizes up to here stay: they are groups, heads, taps
constexpr int64_t kBlock = 256;      // tiles from here on are cache blocks
constexpr double kRealTolerance = 1e-9;

std::optional<int64_t> number(const std::string& text) {
  int64_t v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return v;
}

// Calls f on each tile size of a Schedule.
template <class F>
void for_each_tile(search::Schedule& schedule, F&& f) {
  for (search::Move& m : schedule.moves) {
    const size_t at = m.name == "tile_scope" ? 1 : m.name == "tile_buffer" ? 2 : m.args.size();
    if (at >= m.args.size()) continue;
    if (const auto v = number(m.args[at]); v && *v > 0) m.args[at] = std::to_string(f(*v));
  }
}

struct Shrinking {
  int strength;
  int64_t by;  // of register tiles
};

int64_t small_tile(int64_t v, Shrinking how) {
  if (how.strength >= 2 && v >= kBlock && v % 64 == 0) return v / 64;
  return how.strength >= 1 && v >= 2 * how.by && v % 8 == 0 ? v / how.by : v;
}

// The least size with the rests that v leaves, and room for a body.
int64_t small_size(int64_t v, const std::set<int64_t>& tiles, Shrinking how) {
  int64_t unit = 1, most = 2;
  for (const int64_t t : tiles) {
    const int64_t s = small_tile(t, how);
    if (v % t == 0) unit = std::lcm(unit, s);
    if (t < v) most = std::max(most, 2 * s);
  }
  for (int64_t size = unit; size < v; size += unit) {
    bool fits = size > most;
    for (const int64_t t : tiles) fits &= v % t == 0 || t >= v || size % small_tile(t, how) != 0;
    if (fits) return size;
  }
  return v;
}

void replace_constants(ir::Kernel* kernel, const std::map<int64_t, int64_t>& sizes) {
  const auto replace = [&](const ir::Expr& e) {
    return ir::rewrite(e, [&](const ir::Expr& n) {
      const auto found = ir::is_const_int(n) ? sizes.find(n->ival) : sizes.end();
      return found == sizes.end() ? ir::Expr() : ir::Expr(found->second);
    });
  };
  for (ir::Buffer& b : kernel->buffers) {
    for (ir::Expr& d : b.dims) d = replace(d);
    for (ir::Expr& s : b.strides) {
      if (s) s = replace(s);
    }
    if (b.values) b.values = {replace(b.values.lo), replace(b.values.hi)};
  }
  ir::rewrite_exprs(kernel->body, replace);
}

bool has_functions(const ir::Kernel& kernel) {
  bool found = false;
  const auto look = [&](const ir::Expr& e) {
    ir::for_each_node(e, [&](const ir::ExprNode& n) {
      found |= ir::op_info(n.op).cls == ir::OpClass::kMath || n.op == ir::Op::k_max || n.op == ir::Op::k_min;
    });
  };
  ir::for_each_stmt(kernel.body, [&](const ir::Stmt& s) {
    if (s.kind != ir::Stmt::Kind::assign) return;
    look(s.value);
    found |= s.op == ir::AssignOp::max || s.op == ir::AssignOp::min || s.op == ir::AssignOp::fmax;
  });
  return found;
}

double input_value(ir::DType type, uint64_t seed, int64_t i, bool mild) {
  const uint64_t h = ir::hash_bytes(&i, sizeof i, seed);
  if (!ir::is_float(type)) return static_cast<double>(h & 1);
  const double v = (static_cast<double>(h % 4096) - 2048) / 512;
  return mild ? v : v + (v >= 0 ? 1 : -1) / 64.0;
}

std::string cell(const ir::Tensor& t, const std::string& name, size_t linear) {
  std::vector<int64_t> at(t.dims.size());
  for (int d = static_cast<int>(at.size()) - 1; d >= 0; --d) {
    at[static_cast<size_t>(d)] = static_cast<int64_t>(linear) % t.dims[static_cast<size_t>(d)];
    linear /= static_cast<size_t>(t.dims[static_cast<size_t>(d)]);
  }
  return fmt::format("{}[{}]", name, fmt::join(at, ", "));
}

// Where the outputs differ; empty if nowhere.
std::string difference(const ir::Kernel& kernel, const std::map<std::string, ir::Tensor>& a,
                       const std::map<std::string, ir::Tensor>& b, double tolerance) {
  for (const ir::Buffer& out : kernel.buffers) {
    if (out.place != ir::Place::out) continue;
    const ir::Tensor &x = a.at(out.name), &y = b.at(out.name);
    for (size_t i = 0; i < x.data.size(); ++i) {
      const double p = x.data[i], q = y.data[i];
      const bool same = p == q || (std::isnan(p) && std::isnan(q)) ||
                        (tolerance > 0 && std::abs(p - q) <= tolerance * std::max({1.0, std::abs(p), std::abs(q)}));
      if (!same) return cell(x, out.name, i);
    }
  }
  return "";
}

}  // namespace

Shrunken shrink(const ir::Kernel& kernel, const search::Schedule& schedule, int strength) {
  Shrunken out{kernel, schedule, {}};
  std::set<int64_t> tiles, sizes;
  for_each_tile(out.schedule, [&](int64_t v) {
    tiles.insert(v);
    return v;
  });
  const Shrinking how = {strength, tiles.count(8) > 0 ? 4 : 8};
  for_each_tile(out.schedule, [&](int64_t v) {
    out.tiles.push_back(small_tile(v, how));
    return small_tile(v, how);
  });
  std::sort(out.tiles.begin(), out.tiles.end());
  out.schedule.recipe.clear();
  out.schedule.knobs.clear();
  const auto take = [&](const ir::Expr& e) {
    if (e && ir::is_const_int(e) && e->ival > kSmall) sizes.insert(e->ival);
  };
  for (const ir::Buffer& b : kernel.buffers) {
    for (const ir::Expr& d : b.dims) take(d);
  }
  ir::for_each_stmt(kernel.body, [&](const ir::Stmt& s) {
    if (s.kind == ir::Stmt::Kind::scope) take(s.extent);
  });
  std::map<int64_t, int64_t> map;
  for (const int64_t v : sizes) {
    if (strength > 0) map[v] = small_size(v, tiles, how);
  }
  replace_constants(&out.kernel, map);
  return out;
}

Status Witness::naive_results(const ir::Kernel& naive, const Shape& shape, ir::Arithmetic arithmetic,
                              std::map<std::string, ir::Tensor>* out) {
  std::string key = fmt::format("{}\n{}", ir::print(naive), static_cast<int>(arithmetic));
  for (const auto& [name, value] : shape.symbols) key += fmt::format(" {}={}", name, value);
  const auto known = results_.find(key);
  if (known != results_.end()) {
    *out = known->second;
    return {};
  }
  *out = shape.inputs;
  ir::InterpreterOptions options;
  options.arithmetic = arithmetic;
  options.max_steps = kSteps;
  LATHE_RETURN_IF_ERROR(ir::interpret(naive, shape.symbols, *out, options));
  results_.emplace(std::move(key), *out);
  return {};
}

Result<Witness::Verdict> Witness::compare(const ir::Kernel& naive, const ir::Kernel& scheduled,
                                          const std::vector<int64_t>& tiles) {
  Verdict verdict;
  int64_t largest = 1;
  for (const int64_t t : tiles) largest = t <= 2 * kSmall ? std::max(largest, t) : largest;
  // A body and a tail; the least; one short of a tile.
  for (const int64_t wish : {2 * largest + 3, int64_t{1}, largest - 1}) {
    Shape shape;
    std::string at;
    for (const ir::Symbol& s : naive.symbols) {
      const int64_t step = std::max<int64_t>(s.multiple_of, 1);
      const int64_t v = std::clamp(std::max<int64_t>(wish, 1), s.min, s.max) / step * step;
      shape.symbols[s.name] = v < s.min ? s.min : v;
      at += fmt::format(" {}={}", s.name, shape.symbols[s.name]);
    }
    const bool functions = has_functions(naive);
    for (const ir::Buffer& b : naive.buffers) {
      if (!ir::has_contents(b)) continue;
      const auto dims = ir::evaluate_dims(b.dims, shape.symbols);
      if (!dims) return ir::unsupported("a size without value");
      ir::Tensor t{*dims, {}};
      const int64_t n = std::accumulate(dims->begin(), dims->end(), int64_t{1}, std::multiplies<>());
      if (n > kSteps) return ir::unsupported("operands are not small");
      const uint64_t seed = ir::hash_text(b.name, seed_);
      LATHE_ASSIGN(const std::optional<ir::SymbolRange> values, values_of(b.values, shape.symbols, n));
      for (int64_t i = 0; i < n; ++i) {
        t.data.push_back(values ? static_cast<double>(value_in(*values, seed + static_cast<uint64_t>(i)))
                                : input_value(b.type, seed, i, functions));
      }
      shape.inputs.emplace(b.name, std::move(t));
    }
    std::string found;
    const auto run = [&](ir::Arithmetic arithmetic, double tolerance) -> Status {
      std::map<std::string, ir::Tensor> want, got = shape.inputs;
      LATHE_RETURN_IF_ERROR(naive_results(naive, shape, arithmetic, &want));
      ir::InterpreterOptions options;
      options.arithmetic = arithmetic;
      options.max_steps = 4 * kSteps;
      // A scheduled Kernel that reads or writes outside its buffers is wrong, whatever it computes.
      const Status status = ir::interpret(scheduled, shape.symbols, got, options);
      if (status.code() == ir::Code::kINTERNAL)
        found = status.message();
      else if (!status.ok())
        return status;
      else
        found = difference(naive, want, got, tolerance);
      return {};
    };
    const Status field = run(ir::Arithmetic::finite_field, 0);
    const bool exact = field.ok() && !functions;
    // A function other than exp maps residues arbitrarily, and so does the order of a maximum: f64 decides.
    if (!exact && (!field.ok() || !found.empty())) {
      found.clear();
      LATHE_RETURN_IF_ERROR(run(ir::Arithmetic::real, kRealTolerance));
    }
    verdict.checked = true;
    if (!found.empty()) {
      verdict.difference =
          fmt::format("{} differs at{} ({})", found, at.empty() ? " its size" : at, exact ? "finite field" : "f64");
      return verdict;
    }
    if (naive.symbols.empty()) break;
  }
  return verdict;
}

Witness::Verdict Witness::check(const search::Schedule& schedule, const Replay& replay) {
  // As small as possible; a Schedule that small sizes do not bear is tried with larger ones.
  for (const int strength : {2, 1, 0}) {
    const Shrunken small = shrink(naive_, schedule, strength);
    if (!ir::verify(small.kernel).ok()) continue;
    const std::string key = search::to_text(small.schedule) + "\n" + ir::print(small.kernel);
    if (const auto known = known_.find(key); known != known_.end() && !replay) return known->second;
    const Result<ir::Kernel> scheduled =
        replay ? replay(small.kernel, small.schedule) : search::replay(small.kernel, small.schedule);
    if (!scheduled.ok()) continue;
    const Result<ir::Kernel> meant = search::redefined(small.kernel, small.schedule);
    if (!meant.ok()) continue;
    const Result<Verdict> verdict = compare(*meant, *scheduled, small.tiles);
    if (!verdict.ok()) continue;
    ++interpreted_;
    if (!replay) known_[key] = *verdict;
    return *verdict;
  }
  return {};
}

}  // namespace lathe::runtime
