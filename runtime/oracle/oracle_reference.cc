// See oracle_reference.h.
#include "runtime/oracle/oracle_reference.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <sstream>

#include "ir/core/names.h"
#include "ops/family.h"
#include "runtime/oracle/redefinition.h"

namespace lathe::runtime {
namespace {

constexpr double kMeanFloor = -1, kMaxFloor = -2;

struct Tolerance {
  const char* id;
  const char* functions;
  double relative, floor, share;
};
constexpr Tolerance kTolerances[] = {
#define LATHE_TOLERANCE(id, functions, relative, floor, share) {#id, functions, relative, floor, share},
#include "runtime/oracle/tolerances.def"
#undef LATHE_TOLERANCE
};

std::set<std::string> words_of(std::string_view text) {
  std::istringstream in{std::string(text)};
  return {std::istream_iterator<std::string>(in), {}};
}

bool has_words(const std::set<std::string>& words, std::string_view wanted) {
  const std::set<std::string> all = words_of(wanted);
  return std::includes(words.begin(), words.end(), all.begin(), all.end());
}

// functions: of a row of tolerances.def.
bool applies(std::string_view functions, const std::set<std::string>& words) {
  const size_t open = functions.find(" (");
  std::set<std::string> may = words_of(functions.substr(0, open));
  if (!std::includes(words.begin(), words.end(), may.begin(), may.end())) return false;
  if (open != std::string_view::npos) may.merge(words_of(functions.substr(open + 2, functions.size() - open - 3)));
  return std::includes(may.begin(), may.end(), words.begin(), words.end());
}

// Fraction bits of a constant; -1 beyond 12.
int fraction_bits(double v) {
  if (!std::isfinite(v)) return 0;
  for (int bits = 0; bits <= 12; ++bits) {
    if (std::ldexp(v, bits) == std::nearbyint(std::ldexp(v, bits))) return bits;
  }
  return -1;
}

std::map<std::string, ir::Tensor> gather(const SampledKernel& sampled, const Reference& reference,
                                         const ReferenceRequest& request) {
  std::map<std::string, ir::Tensor> tensors;
  sampled.add_picks(reference.picks, &tensors);
  for (size_t i = 0; i < request.shapes->size(); ++i) {
    const OperandShape& s = (*request.shapes)[i];
    if (!s.has_contents()) continue;
    ir::Tensor t;
    for (int d = 0; d < static_cast<int>(s.dims.size()); ++d) {
      const int c = sampled.class_of(s.name, d);
      t.dims.push_back(c >= 0 ? static_cast<int64_t>(reference.picks[c].size()) : s.dims[d]);
    }
    sampled.for_each_picked(s, reference.picks, [&](int64_t, const std::vector<int64_t>& at) {
      int64_t offset = 0;
      for (size_t d = 0; d < at.size(); ++d) offset += at[d] * s.strides[d];
      t.data.push_back(load_element(s.type, (*request.data)[i], offset));
    });
    tensors[s.name] = std::move(t);
  }
  return tensors;
}

double ulp_of(ir::DType type, double r) {
  const double a = std::abs(r);
  const int bits = type == ir::DType::f64 ? 52 : type == ir::DType::f16 ? 10 : type == ir::DType::bf16 ? 7 : 23;
  if (!std::isfinite(a)) return 0;
  const int exponent = a == 0 ? -1000 : std::ilogb(a);
  return std::ldexp(1.0, std::max(exponent, type == ir::DType::f64   ? -1022
                                            : type == ir::DType::f16 ? -14
                                                                     : -126) -
                             bits);
}

// The norms' rows of the table hold for data whose mean is at most four standard deviations. Of this many random values
// it is; of fewer it may be any number of them, and what cancels then is for the a-priori bound to say.
constexpr int64_t kLeastColumns = 8;

bool norm_of_few(const KernelTraits& traits, const std::vector<OperandShape>& shapes) {
  if (!has_words(traits.words, "sum rsqrt") && !has_words(traits.words, "sum sqrt")) return false;
  return std::any_of(shapes.begin(), shapes.end(), [](const OperandShape& s) {
    return s.place == ir::Place::out && (s.dims.empty() || s.dims.back() < kLeastColumns);
  });
}

// A table row's tolerance for every cell; false if no row applies. Where there are several results, some are made
// without the functions, so the bound holds too; and of what becomes an integer only the bound knows.
bool table_tolerance(const KernelTraits& traits, const std::vector<OperandShape>& shapes,
                     const std::vector<size_t>& cells, const std::vector<double>& bound, double of_sum,
                     Reference* reference) {
  for (const Tolerance& row : kTolerances) {
    if (!applies(row.functions, traits.words)) continue;
    double mean = 0, largest = 0;
    int64_t count = 0;
    for (const double r : reference->real) {
      if (!std::isfinite(r)) continue;
      mean += std::abs(r);
      largest = std::max(largest, std::abs(r));
      ++count;
    }
    const double floor = row.floor == kMeanFloor  ? mean / static_cast<double>(std::max<int64_t>(count, 1))
                         : row.floor == kMaxFloor ? largest
                                                  : row.floor;
    for (size_t i = 0; i < reference->real.size(); ++i) {
      reference->tolerance[i] = (row.relative + row.share * of_sum) * std::max(std::abs(reference->real[i]), floor);
    }
    size_t i = 0, output = 0;
    for (const OperandShape& s : shapes) {
      if (s.place != ir::Place::out) continue;
      for (size_t n = cells[output++]; n > 0; --n, ++i) {
        double& tolerance = reference->tolerance[i];
        tolerance += output_rounding(s.type, reference->real[i]);
        if (cells.size() > 1) tolerance = std::min(tolerance, bound[i]);
        if (!ir::is_float(s.type)) tolerance = bound[i];
      }
    }
    return true;
  }
  return false;
}

// Whether the value multiplies two different buffers of sums.
bool multiplies_sums(const ir::Expr& value, const std::set<std::string>& sums) {
  const auto read = [&](const ir::Expr& e) {
    std::set<std::string> out;
    ir::for_each_node(e, [&](const ir::ExprNode& n) {
      if (n.op == ir::Op::k_load && sums.count(n.name) != 0) out.insert(n.name);
    });
    return out;
  };
  bool found = false;
  ir::for_each_node(value, [&](const ir::ExprNode& n) {
    if (n.op != ir::Op::k_mul) return;
    const std::set<std::string> a = read(n.args[0]), b = read(n.args[1]);
    found |= !a.empty() && !b.empty() && a != b;
  });
  return found;
}

}  // namespace

KernelTraits kernel_traits(const ir::Kernel& kernel) {
  KernelTraits out;
  std::set<std::string>& words = out.words;
  std::vector<ir::Expr> values;
  std::set<std::string> sums;
  const ir::Kernel given = ir::as_given(kernel);
  // An input that states its values keeps an index inside with any of them.
  const auto any_load = [&](const ir::Expr& e) {
    bool found = false;
    ir::for_each_node(
        e, [&](const ir::ExprNode& n) { found |= n.op == ir::Op::k_load && !given.find_buffer(n.name)->values; });
    return found;
  };
  ir::for_each_stmt(given.body, [&](const ir::Stmt& s) {
    if (s.kind != ir::Stmt::Kind::assign) return;
    if (s.op == ir::AssignOp::add || s.op == ir::AssignOp::mul) {
      words.insert("sum");
      sums.insert(s.target);
    }
    if (s.op == ir::AssignOp::max || s.op == ir::AssignOp::fmax) {
      const ir::Expr& of = s.value->op == ir::Op::k_cast ? s.value->args[0] : s.value;
      out.largest |= of->op == ir::Op::k_load && ir::is_param(given.find_buffer(of->name)->place);
    }
    out.indirect |= std::any_of(s.index.begin(), s.index.end(), any_load);
    values.push_back(s.value);
  });
  out.sums = words.count("sum") != 0;
  for (const ir::Expr& value : values) {
    if (multiplies_sums(value, sums)) words.insert("product");
    ir::for_each_node(value, [&](const ir::ExprNode& n) {
      if (n.op == ir::Op::k_const_float) {
        const int bits = fraction_bits(n.fval);
        out.fraction_bits = bits < 0 || out.fraction_bits < 0 ? -1 : out.fraction_bits + bits;
      }
      const bool of_float = !n.args.empty() && ir::is_float(n.args[0]->type);
      out.decides |= of_float && ((n.op == ir::Op::k_cast && !ir::is_float(n.type)) ||
                                  ir::op_info(n.op).cls == ir::OpClass::kCompare);
      if (n.op == ir::Op::k_load) out.indirect |= std::any_of(n.args.begin(), n.args.end(), any_load);
      const bool function = ir::op_info(n.op).cls == ir::OpClass::kMath;
      if (function) words.insert(ir::op_info(n.op).id);
      if (function || n.op == ir::Op::k_div) out.math = true;
      if (n.op == ir::Op::k_exp || n.op == ir::Op::k_exp2 || n.op == ir::Op::k_exp2_bf16) out.overflows = true;
    });
  }
  return out;
}

ir::Result<Reference> make_reference(const SampledKernel& sampled, std::vector<std::vector<int64_t>> picks,
                                     const ReferenceRequest& request, const KernelTraits& whole) {
  Reference out;
  out.picks = std::move(picks);
  ir::Kernel kernel = sampled.at(out.picks);
  std::map<std::string, ir::Tensor> tensors = gather(sampled, out, request);
  KernelTraits traits = whole;
  if (request.redefined) {
    LATHE_ASSIGN(kernel, run_first_part(kernel, tensors));
    traits = kernel_traits(kernel);
    traits.fraction_bits = -1;  // its operands are no small integers
  }
  std::map<std::string, ir::Tensor> kept;  // what is updated, as each run finds it
  for (const OperandShape& s : *request.shapes) {
    if (s.kept) kept[s.name] = tensors[s.name];
  }
  ir::InterpreterOptions options;
  options.max_steps = 200'000'000;
  auto run = [&](ir::Arithmetic arithmetic, std::vector<double>* values) -> ir::Status {
    options.arithmetic = arithmetic;
    for (const auto& [name, contents] : kept) tensors[name] = contents;
    LATHE_RETURN_IF_ERROR(ir::interpret(kernel, {}, tensors, options));
    for (const OperandShape& s : *request.shapes) {
      if (s.place != ir::Place::out) continue;
      const std::vector<double>& data = tensors[s.name].data;
      values->insert(values->end(), data.begin(), data.end());
    }
    return {};
  };
  LATHE_RETURN_IF_ERROR(run(ir::Arithmetic::real, &out.real));
  const bool integers =
      request.kind == DataKind::integers && !traits.math && !traits.decides && traits.fraction_bits >= 0;
  if (integers || (request.rho && !traits.decides))
    LATHE_RETURN_IF_ERROR(run(ir::Arithmetic::magnitude, &out.magnitude));
  if (integers) {
    const double limit = std::ldexp(1.0, 24 - traits.fraction_bits);
    const bool exact = std::all_of(out.magnitude.begin(), out.magnitude.end(), [&](double s) { return s <= limit; });
    if (exact) {
      out.gate = Gate::exact;
      out.tolerance.assign(out.real.size(), 0);
      return out;
    }
  }
  std::vector<double> error;
  LATHE_RETURN_IF_ERROR(run(ir::Arithmetic::error_bound, &error));
  out.tolerance.resize(out.real.size());
  std::vector<size_t> cells;  // of each output
  for (const OperandShape& s : *request.shapes) {
    if (s.place == ir::Place::out) cells.push_back(tensors[s.name].data.size());
  }
  size_t i = 0;
  for (const OperandShape& s : *request.shapes) {
    if (s.place != ir::Place::out) continue;
    for (size_t n = tensors[s.name].data.size(); n > 0; --n, ++i) {
      // No rounding on the way: bits. Twice the bound: it follows the order of the text, any other
      // order is as good.
      out.tolerance[i] = error[i] == 0 ? 0 : 2 * error[i] + ulp_of(s.type, out.real[i]) + 0x1p-126;
    }
  }
  const ops::Family* family = ops::find_family(request.naive->family);
  const bool sums = family != nullptr && family->error_rule == ops::ErrorRule::bound_of_sums;
  const std::vector<double> bound = out.tolerance;
  if (!sums && traits.math && request.kind != DataKind::wide && !norm_of_few(traits, *request.shapes) &&
      table_tolerance(traits, *request.shapes, cells, bound, sum_in_sequence(request.kind, sampled.longest_sum()),
                      &out)) {
    out.gate = Gate::table;
    return out;
  }
  out.gate = sums || traits.sums ? Gate::bound : Gate::table;
  return out;
}

double sum_in_sequence(DataKind kind, int64_t terms) {
  const double n = static_cast<double>(terms);
  return 0x1p-24 * (kind == DataKind::integers ? 0.5 * n : 1.5 * std::sqrt(n));
}

double output_rounding(ir::DType type, double r) {
  return type == ir::DType::f16 || type == ir::DType::bf16 ? ulp_of(type, r) : 0;
}

double cell_error(ir::DType type, double y, double r, double tolerance) {
  if (std::isnan(r) || std::isnan(y)) {
    // An infinite tolerance: rounding may have moved an argument out of a function's domain.
    return std::isnan(r) == std::isnan(y) || std::isinf(tolerance) || std::isnan(tolerance) ? 0 : INFINITY;
  }
  const double rounded = ir::round_to(type, r);
  if (y == rounded) return 0;
  if (std::isinf(y) || std::isinf(rounded)) {
    const double largest = type == ir::DType::f16    ? 65504.0
                           : type == ir::DType::bf16 ? 0x1.fep127
                           : type == ir::DType::f64  ? 1.79e308
                                                     : 3.4028e38;
    const bool near = !std::isinf(r) && std::abs(r) + tolerance >= largest && std::signbit(y) == std::signbit(r);
    return near || std::isinf(tolerance) ? 0 : INFINITY;
  }
  if (std::isnan(tolerance)) return 0;
  return tolerance == 0 ? INFINITY : std::abs(y - r) / tolerance;
}

}  // namespace lathe::runtime
