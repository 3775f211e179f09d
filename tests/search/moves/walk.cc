// Random walks: see walk.h.
#include "tests/search/moves/walk.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/analysis/analysis.h"
#include "ir/analysis/dependence.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

constexpr double kMostRedefined = 1e-3;  // sums may cancel

std::vector<WalkKernel> walk_kernels(bool operators) {
  const auto folder = std::filesystem::path(LATHE_SOURCE_DIR) / "tests/search/kernels";
  const std::vector<std::string> traps = {
      "copied",        "held",           "overwritten",    "recurrence",    "rescaled",     "stale",
      "shared_cells",  "twice",          "row_made_first", "ragged",        "weights_kept", "made_between",
      "rounded",       "launched",       "changed_terms",  "filled_before", "shorter",      "masked_kept",
      "masked_values", "masked_nothing", "split",          "staged_late",   "staged_kept",  "named_cells",
      "tied",          "held_late",      "held_bytes",     "wide_bytes"};
  std::vector<WalkKernel> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().stem().string();
    if (operators && std::find(traps.begin(), traps.end(), name) != traps.end()) continue;
    std::ifstream in(entry.path());
    std::stringstream text;
    text << in.rdbuf();
    Result<Kernel> kernel = parse_kernel(text.str());
    out.push_back({name, kernel.ok() ? *kernel : Kernel{}});
  }
  std::sort(out.begin(), out.end(), [](const WalkKernel& a, const WalkKernel& b) { return a.name < b.name; });
  return out;
}

Result<Tensors> outputs(const Kernel& kernel, const SymbolValues& symbols, const Tensors& inputs) {
  Tensors tensors = inputs;
  LATHE_RETURN_IF_ERROR(interpret(kernel, symbols, tensors));
  std::erase_if(tensors, [&](const auto& t) {
    const Buffer* b = kernel.find_buffer(t.first);
    return !b || b->place != Place::out;
  });
  return tensors;
}

static bool same(double want, double got, double tolerance) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (tolerance == 0 || std::isinf(want) || std::isinf(got)) return std::memcmp(&want, &got, sizeof want) == 0;
  return std::fabs(want - got) <= tolerance * (1 + std::fabs(want));
}

std::string difference(const Tensors& want, const Tensors& got, double tolerance) {
  for (const auto& [name, w] : want) {
    const auto it = got.find(name);
    if (it == got.end() || it->second.data.size() != w.data.size()) return "output " + name + " has another size";
    for (size_t i = 0; i < w.data.size(); ++i) {
      if (same(w.data[i], it->second.data[i], tolerance)) continue;
      return fmt::format("{}[{}] is {}, expected {}", name, i, it->second.data[i], w.data[i]);
    }
  }
  return {};
}

// Over the mean square of what is wanted, or of the sums without signs where that is larger: those of a few cells may
// cancel together, what they lose does not. Cells that no Kernel writes are NaN in all.
static double mean_square_difference(const Tensors& want, const Tensors& got, const Tensors& without_signs) {
  double difference = 0, size = 0, uncancelled = 0;
  for (const auto& [name, w] : want) {
    const std::vector<double>& g = got.at(name).data;
    for (size_t i = 0; i < w.data.size(); ++i) {
      if (std::isnan(w.data[i]) && std::isnan(g[i])) continue;
      difference += (w.data[i] - g[i]) * (w.data[i] - g[i]);
      size += w.data[i] * w.data[i];
      uncancelled += std::pow(without_signs.at(name).data[i], 2);
    }
  }
  return difference == 0 ? 0 : difference / std::max(size, uncancelled);
}

// A scope with running sums has an order.
static void reverse_marked(const Kernel& kernel, std::vector<Stmt>& body) {
  for (Stmt& s : body) {
    if (s.kind != Stmt::Kind::scope) continue;
    reverse_marked(kernel, s.body);
    const bool in_lanes = s.mark == Mark::vector && running_sums(kernel, s).empty();
    if (!is_shared_out(s.mark) && !in_lanes) continue;
    const std::string name = s.iter;
    const Expr mirrored = s.extent - Expr(1) - iter(name);
    for_each_stmt(s.body, [&](Stmt& inner) {
      for (Expr& e : inner.index) e = substitute(e, {{name, mirrored}});
      if (inner.value) inner.value = substitute(inner.value, {{name, mirrored}});
      if (inner.extent) inner.extent = substitute(inner.extent, {{name, mirrored}});
    });
  }
}

// What a @role scope does is done as far ahead of the rest as there are places.
//   for n < N: {for r < 1 @role: F(n)}; S(n)  ->  for n < N + A: {if n < N: F(n)}; {if n >= A: S(n - A)}
static void run_ahead(std::vector<Stmt>& body) {
  for (Stmt& s : body) {
    run_ahead(s.body);
    if (s.body.size() < 2 || s.body[0].mark != Mark::role) continue;
    int64_t places = INT64_MAX;  // the fewest of what it hands over
    for_each_stmt(s.body[0].body, [&](const Stmt& inner) {
      if (inner.kind != Stmt::Kind::assign) return;
      const bool ring = !inner.index.empty() && inner.index[0]->op == Op::k_mod;
      places = std::min(places, ring ? inner.index[0]->args[1]->ival : 1);
    });
    const int64_t ahead = places == INT64_MAX ? 0 : places - 1;
    const Expr n = iter(s.iter), late = n - Expr(ahead);
    Stmt first = std::move(s.body[0]);
    first.extent = ir::min(Expr(1), ir::max(s.extent - n, Expr(0)));
    std::vector<Stmt> rest(std::make_move_iterator(s.body.begin() + 1), std::make_move_iterator(s.body.end()));
    for_each_stmt(rest, [&](Stmt& inner) {
      for (Expr& e : inner.index) e = substitute(e, {{s.iter, late}});
      if (inner.value) inner.value = substitute(inner.value, {{s.iter, late}});
      if (inner.extent) inner.extent = substitute(inner.extent, {{s.iter, late}});
    });
    s.extent = ir::max(s.extent, Expr(0)) + Expr(ahead);
    s.body.clear();
    s.body.push_back(
        make_scope(first.iter + "_late", ir::min(Expr(1), ir::max(late + Expr(1), Expr(0))), std::move(rest)));
    s.body.insert(s.body.begin(), std::move(first));
  }
}

// The first value written to a streamed cell stays: it may not matter which does. Cells that nothing wrote are NaN.
static void keep_first(Kernel& kernel, const Buffer& buffer) {
  for_each_stmt(kernel.body, [&](Stmt& s) {
    if (s.kind != Stmt::Kind::assign || s.target != buffer.name) return;
    const Expr now = load(s.target, s.index, buffer.type);
    s.value = select(make(Op::k_ne, {now, now}), s.value, now);
  });
}

Kernel reversed(const Kernel& kernel) {
  Kernel out = kernel;
  reverse_marked(kernel, out.body);
  run_ahead(out.body);
  for (const Buffer& b : kernel.buffers) {
    if (b.stream) keep_first(out, b);
  }
  for (Buffer& b : out.buffers) b.stream = false;
  return out;
}

namespace {
using Random = std::mt19937_64;
constexpr double kCancelled = 10;  // terms of few sums are not all of one sign
size_t below(Random& random, size_t n) { return static_cast<size_t>(random() % n); }
const Transform& any_row(Random& random) { return transforms()[below(random, transforms().size())]; }

SymbolValues random_symbols(const Kernel& kernel, Random& random) {
  SymbolValues out;
  for (const Symbol& s : kernel.symbols) {
    const int64_t step = s.multiple_of, lo = (s.min + step - 1) / step, hi = s.max / step;
    out[s.name] = step * (lo + static_cast<int64_t>(below(random, static_cast<size_t>(hi - lo + 1))));
  }
  return out;
}

// Whole numbers make sums exact in any order; others show every rounding. Integers that state their values have those.
Tensors random_inputs(const Kernel& kernel, const SymbolValues& symbols, bool whole, Random& random) {
  Tensors out;
  for (const Buffer& b : kernel.buffers) {
    if (!is_input(b.place)) continue;
    Tensor t;
    int64_t size = 1;
    for (const Expr& d : b.dims) {
      t.dims.push_back(evaluate(d, symbols).value_or(0));
      size *= t.dims.back();
    }
    const int64_t least = b.values ? evaluate(b.values.lo, symbols).value_or(0) : 0,
                  most = b.values ? evaluate(b.values.hi, symbols).value_or(0) : 0;
    for (int64_t i = 0; i < size && b.values; ++i)
      t.data.push_back(static_cast<double>(least) +
                       static_cast<double>(below(random, static_cast<size_t>(most - least + 1))));
    for (int64_t i = 0; i < size && !b.values; ++i) {
      const double value = static_cast<double>(below(random, 9)) - 4;
      t.data.push_back(
          whole ? value
                : round_to(b.type, static_cast<float>(value / 3 + 0.01 * static_cast<double>(below(random, 7)))));
    }
    out[b.name] = std::move(t);
  }
  return out;
}

Tensors without_signs(const Kernel& kernel, Tensors inputs) {
  for (const Buffer& b : kernel.buffers) {
    if (!is_input(b.place) || b.values) continue;
    for (double& value : inputs.at(b.name).data) value = std::abs(value);
  }
  return inputs;
}
}  // namespace

Tensors whole_inputs(const Kernel& kernel, const SymbolValues& symbols) {
  Random random(1);
  return random_inputs(kernel, symbols, true, random);
}

std::string walk(const WalkKernel& start, uint64_t seed, const WalkOptions& options,
                 std::map<std::string, int>& applied) {
  Random random(seed);
  const SymbolValues symbols = random_symbols(start.kernel, random);
  const bool whole = below(random, 2) == 0;
  const Tensors inputs = random_inputs(start.kernel, symbols, whole, random);
  Result<Tensors> want = outputs(start.kernel, symbols, inputs);
  if (!want.ok()) return start.name + ": " + want.status().to_string();
  Kernel kernel = start.kernel;
  Schedule schedule;
  const auto report = [&](const std::string& what) {
    std::string shape;
    for (const auto& [name, value] : symbols) shape += fmt::format(" {}={}", name, value);
    return fmt::format("{}{} seed {}: {}\n{}{}", start.name, shape, seed, what, to_text(schedule), print(kernel));
  };
  const size_t length = 1 + below(random, static_cast<size_t>(options.max_moves));
  for (size_t step = 0; step < length; ++step) {
    const bool aimed = !options.row.empty() && below(random, 2) == 0;
    const Transform* chosen = aimed ? find_transform(options.row) : &any_row(random);
    std::vector<Move> moves = chosen->propose(kernel);
    if (moves.empty()) moves = (chosen = &any_row(random))->propose(kernel);
    if (moves.empty()) continue;
    const Transform& row = *chosen;
    TransformParams params;
    if (row.name == options.row) params.disabled_precondition = options.disabled_precondition;
    for (int attempt = 0; attempt < 6; ++attempt) {
      const Move& move = moves[below(random, moves.size())];
      Result<TransformResult> next = apply(kernel, move, params);
      if (!next.ok() && next.status().code() != Code::kINTERNAL) continue;
      schedule.moves.push_back(move);
      if (!next.ok()) return report(next.status().to_string());
      kernel = std::move(next->kernel);
      ++applied[row.name];
      const Result<Tensors> got = outputs(reversed(kernel), symbols, inputs);
      if (!got.ok()) return report(got.status().to_string());
      if ((row.numeric & kRedefining) != 0) {  // near what it was, and from then on what is kept
        const Result<Tensors> sums = outputs(start.kernel, symbols, without_signs(start.kernel, inputs));
        if (!sums.ok()) return report(sums.status().to_string());
        const double moved = mean_square_difference(*want, *got, *sums);
        if (!(moved <= kCancelled * kMostRedefined)) return report(fmt::format("{} of the mean square is lost", moved));
        want = *got;
        continue;
      }
      const std::string differs = difference(*want, *got, kernel.numeric & (kReassociate | kContract) ? 1e-4 : 0);
      if (!differs.empty()) return report(differs);
      break;
    }
  }
  return {};
}

}  // namespace lathe::search
