// See nest_form.h.
#include "runtime/walk/nest_form.h"

#include <algorithm>

#include "runtime/walk/nest_steps.h"

namespace lathe::runtime {
namespace {

using ir::Op;

constexpr size_t kMaxMinimum = 8;

bool fits(__int128 v) { return v >= INT64_MIN && v <= INT64_MAX; }
__int128 floor_div(__int128 a, __int128 b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }

template <class L>
L combine(const L& a, const L& b, int sign) {
  L out;
  out.base = a.base + sign * b.base;
  out.terms = a.terms;
  for (const auto& [level, coeff] : b.terms) {
    auto it = std::find_if(out.terms.begin(), out.terms.end(), [&](const auto& t) { return t.first == level; });
    if (it == out.terms.end()) {
      out.terms.emplace_back(level, sign * coeff);
    } else {
      it->second += sign * coeff;
    }
  }
  std::erase_if(out.terms, [](const auto& t) { return t.second == 0; });
  std::sort(out.terms.begin(), out.terms.end());
  return out;
}

template <class L>
L scaled(const L& a, __int128 by) {
  L out = a;
  out.base *= by;
  for (auto& t : out.terms) t.second *= by;
  if (by == 0) out.terms.clear();
  return out;
}

}  // namespace

const FormBuilder::Loop* FormBuilder::find_loop(const std::string& iter) const {
  for (auto it = loops_.rbegin(); it != loops_.rend(); ++it) {
    if (it->iter == iter) return &*it;
  }
  return nullptr;
}

const FormBuilder::Input* FormBuilder::find_input(const ir::Expr& load) const {
  if (load->op != Op::k_load || load->args.size() != 1) return nullptr;
  const auto at = std::find_if(inputs_.begin(), inputs_.end(), [&](const Input& i) { return i.name == load->name; });
  return at == inputs_.end() ? nullptr : &*at;
}

FormBuilder::Wide FormBuilder::range(const Linear& a) const {
  Wide r{a.base, a.base};
  for (const auto& [level, coeff] : a.terms) {
    const Wide of = range_of_level(level);
    r.first += coeff * (coeff > 0 ? of.first : of.second);
    r.second += coeff * (coeff > 0 ? of.second : of.first);
  }
  return r;
}

void FormBuilder::prune(Minimum* m) const {
  for (size_t i = 0; i < m->size() && m->size() > 1;) {
    bool redundant = false;
    for (size_t j = 0; j < m->size() && !redundant; ++j) {
      redundant = j != i && range(combine((*m)[i], (*m)[j], -1)).first >= 0;
    }
    if (redundant) {
      m->erase(m->begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

// x = by * q + r with r in [0, by) whatever the iterators: then x // by = q and x % by = r.
FormBuilder::Minimum FormBuilder::divide(const Minimum& a, int64_t by, bool want_mod, bool round_up) {
  Minimum out;
  if (by <= 0 || (want_mod && a.size() != 1)) return out;
  for (Linear x : a) {
    if (round_up) x.base += by - 1;
    Linear q, r;
    q.base = floor_div(x.base, by);
    r.base = x.base - q.base * by;
    for (const auto& [level, coeff] : x.terms) {
      if (coeff % by == 0) {
        q.terms.emplace_back(level, coeff / by);
      } else {
        r.terms.emplace_back(level, coeff);
      }
    }
    const Wide rest = range(r);
    const __int128 low = floor_div(rest.first, by);
    if (low != floor_div(rest.second, by)) return {};
    q.base += low;
    r.base -= low * by;
    out.push_back(want_mod ? r : q);
  }
  return out;
}

FormBuilder::Minimum FormBuilder::minimum(const ir::Expr& e) {
  Minimum out = combined(e);
  if (!out.empty()) return out;
  if (const std::optional<Linear> value = local(e)) out.push_back(*value);
  return out;
}

// Of iterators and locals: those of its parts, that is.
FormBuilder::Minimum FormBuilder::combined(const ir::Expr& e) {
  Linear one;
  switch (e->op) {
    case Op::k_const_int:
      one.base = e->ival;
      return {one};
    case Op::k_symbol:
      for (const auto& [name, value] : symbols_) {
        if (name == e->name) {
          one.base = value;
          return {one};
        }
      }
      return {};
    case Op::k_iter: {
      const Loop* loop = find_loop(e->name);
      if (loop == nullptr) return {};
      if (loop->level >= 0) one.terms.emplace_back(loop->level, 1);
      return {one};
    }
    case Op::k_cast:
      return find_input(e->args[0]) != nullptr ? minimum(e->args[0]) : Minimum();
    case Op::k_load:
      return {};
    default:
      break;
  }
  Minimum a, b;
  if (!e->args.empty()) a = minimum(e->args[0]);
  if (e->args.size() > 1) b = minimum(e->args[1]);
  const bool constant_b = b.size() == 1 && b[0].terms.empty(), constant_a = a.size() == 1 && a[0].terms.empty();
  if (a.empty() || (e->args.size() > 1 && b.empty())) return {};
  Minimum out;
  switch (e->op) {
    case Op::k_add:
      for (const Linear& x : a) {
        for (const Linear& y : b) out.push_back(combine(x, y, 1));
      }
      break;
    case Op::k_sub:
      if (b.size() != 1) return {};
      for (const Linear& x : a) out.push_back(combine(x, b[0], -1));
      break;
    case Op::k_neg:
      if (a.size() != 1) return {};
      out.push_back(scaled(a[0], -1));
      break;
    case Op::k_mul: {
      if (!constant_a && !constant_b) return {};
      const __int128 by = constant_b ? b[0].base : a[0].base;
      const Minimum& x = constant_b ? a : b;
      if ((by < 0 && x.size() != 1) || !fits(by)) return {};
      for (const Linear& l : x) out.push_back(scaled(l, by));
      break;
    }
    case Op::k_min:
      out = a;
      out.insert(out.end(), b.begin(), b.end());
      break;
    case Op::k_max:
      if (a.size() != 1 || b.size() != 1) return {};
      if (range(combine(a[0], b[0], -1)).first >= 0) return a;
      if (range(combine(b[0], a[0], -1)).first >= 0) return b;
      return {};
    case Op::k_floordiv:
    case Op::k_mod:
    case Op::k_ceildiv:
      if (!constant_b || !fits(b[0].base)) return {};
      out = divide(a, static_cast<int64_t>(b[0].base), e->op == Op::k_mod, e->op == Op::k_ceildiv);
      break;
    default:
      return {};
  }
  prune(&out);
  if (out.size() > kMaxMinimum) return {};
  for (const Linear& l : out) {
    if (!fits(l.base)) return {};
    for (const auto& t : l.terms) {
      if (!fits(t.second)) return {};
    }
  }
  return out;
}

// Interval of any integer expression; refuses what cannot be bound.
ir::Result<FormBuilder::Wide> FormBuilder::range(const ir::Expr& e) {
  const Minimum m = minimum(e);
  if (!m.empty()) {
    Wide r = range(m[0]);
    for (const Linear& l : m) {
      const Wide x = range(l);
      r = {std::min(r.first, x.first), std::min(r.second, x.second)};
    }
    if (!fits(r.first) || !fits(r.second)) return ir::invalid("an index of this shape exceeds 63 bits");
    return r;
  }
  return range_of_parts(e);
}

ir::Result<FormBuilder::Wide> FormBuilder::range_of_parts(const ir::Expr& e) {
  if (e->op == Op::k_symbol) return ir::invalid("no value for symbol {}", e->name);
  if (e->op == Op::k_iter) return ir::internal_error("iterator {} is not a nest loop here", e->name);
  if (const Input* input = find_input(e)) {
    LATHE_RETURN_IF_ERROR(range(e->args[0]).status());
    return Wide{input->values.lo, input->values.hi};
  }
  if (e->op == Op::k_cast && find_input(e->args[0]) != nullptr) return range(e->args[0]);
  if (!step_kind(e->op)) return ir::unsupported("a nest expression uses '{}'", ir::op_info(e->op).id);
  std::vector<Wide> r;
  for (const ir::Expr& a : e->args) {
    LATHE_ASSIGN(Wide w, range(a));
    r.push_back(w);
  }
  Wide out{0, 1};
  auto corners = [&](auto f) {
    const __int128 v[4] = {f(r[0].first, r[1].first), f(r[0].first, r[1].second), f(r[0].second, r[1].first),
                           f(r[0].second, r[1].second)};
    out = {*std::min_element(v, v + 4), *std::max_element(v, v + 4)};
  };
  switch (e->op) {
    case Op::k_add:
      out = {r[0].first + r[1].first, r[0].second + r[1].second};
      break;
    case Op::k_sub:
      out = {r[0].first - r[1].second, r[0].second - r[1].first};
      break;
    case Op::k_mul:
      corners([](__int128 a, __int128 b) { return a * b; });
      break;
    case Op::k_neg:
      out = {-r[0].second, -r[0].first};
      break;
    case Op::k_abs:
      out = {0, std::max(-r[0].first, r[0].second)};
      break;
    case Op::k_min:
      out = {std::min(r[0].first, r[1].first), std::min(r[0].second, r[1].second)};
      break;
    case Op::k_max:
      out = {std::max(r[0].first, r[1].first), std::max(r[0].second, r[1].second)};
      break;
    case Op::k_select:
      out = {std::min(r[1].first, r[2].first), std::max(r[1].second, r[2].second)};
      break;
    case Op::k_floordiv:
    case Op::k_ceildiv:
    case Op::k_mod:
      if (r[1].first <= 0) return ir::invalid("a divisor of this shape is not positive");
      if (e->op == Op::k_floordiv) corners([](__int128 a, __int128 b) { return floor_div(a, b); });
      if (e->op == Op::k_ceildiv) corners([](__int128 a, __int128 b) { return -floor_div(-a, b); });
      if (e->op == Op::k_mod) out = {0, r[1].second - 1};
      break;
    default:
      break;  // comparisons and logic: 0 or 1
  }
  if (!fits(out.first) || !fits(out.second)) return ir::invalid("an index of this shape exceeds 63 bits");
  return out;
}

ir::Status FormBuilder::emit(const ir::Expr& e, int depth, Program* out) {
  using K = ProgramStep::Kind;
  if (depth >= kMaxNestStack) return ir::unsupported("a nest expression is too deep");
  const Minimum m = minimum(e);
  if (m.size() == 1 && m[0].terms.empty()) {
    out->steps.push_back({K::constant, static_cast<int64_t>(m[0].base)});
    return {};
  }
  if (m.size() == 1 && m[0].base == 0 && m[0].terms.size() == 1 && m[0].terms[0].second == 1) {
    const int level = m[0].terms[0].first;
    out->steps.push_back({K::iterator, level});
    out->levels |= levels_of(level);
    return {};
  }
  return emit_parts(e, depth, out);
}

ir::Status FormBuilder::emit_parts(const ir::Expr& e, int depth, Program* out) {
  if (e->op == Op::k_cast) return emit(e->args[0], depth, out);
  if (const Input* input = find_input(e)) {
    LATHE_ASSIGN(const Wide number, range(e->args[0]));
    out->anywhere = out->anywhere && number.first >= 0 && number.second < input->elements;
    LATHE_RETURN_IF_ERROR(emit(e->args[0], depth, out));
    LATHE_ASSIGN(const ProgramStep::Kind load, load_kind(input->type));
    out->steps.push_back({load, input->argument});
    return {};
  }
  for (size_t i = 0; i < e->args.size(); ++i) LATHE_RETURN_IF_ERROR(emit(e->args[i], depth + static_cast<int>(i), out));
  out->steps.push_back({*step_kind(e->op)});
  return {};
}

Form FormBuilder::store(const Program& program) {
  Form out;
  out.kind = Form::Kind::program;
  out.levels = program.levels;
  out.first = static_cast<uint32_t>(out_->program.size());
  out.count = static_cast<uint32_t>(program.steps.size());
  out_->program.insert(out_->program.end(), program.steps.begin(), program.steps.end());
  return out;
}

ir::Result<Affine> FormBuilder::store(const Linear& a, int64_t scale, int inner_level, int64_t* inner_step) {
  const Linear s = scaled(a, scale);
  const Wide r = range(s);
  if (!fits(r.first) || !fits(r.second)) return ir::invalid("an index of this shape exceeds 63 bits");
  Affine out;
  out.base = static_cast<int64_t>(s.base);
  out.first_term = static_cast<uint32_t>(out_->terms.size());
  for (const auto& [level, coeff] : s.terms) {
    if (!fits(coeff)) return ir::invalid("an index of this shape exceeds 63 bits");
    if (level == inner_level) {
      *inner_step = static_cast<int64_t>(coeff);
    } else {
      out_->terms.push_back({static_cast<int64_t>(coeff), level});
      ++out.num_terms;
    }
  }
  return out;
}

ir::Result<FormBuilder::Built> FormBuilder::build(const ir::Expr& e) {
  Built out;
  LATHE_ASSIGN(const Wide w, range(e));
  out.range = {static_cast<int64_t>(w.first), static_cast<int64_t>(w.second)};
  if (w.first == w.second) {
    out.form.value = out.range.lo;
    return out;
  }
  const Minimum m = minimum(e);
  if (!m.empty()) {
    out.form.kind = Form::Kind::minimum;
    out.form.count = static_cast<uint32_t>(m.size());
    std::vector<Affine> affines;
    for (const Linear& l : m) {
      LATHE_ASSIGN(const Affine a, store(l, 1, -1, nullptr));
      affines.push_back(a);
      for (const auto& t : l.terms) out.form.levels |= levels_of(t.first);
    }
    out.form.first = static_cast<uint32_t>(out_->affines.size());
    out_->affines.insert(out_->affines.end(), affines.begin(), affines.end());
    return out;
  }
  Program program;
  LATHE_RETURN_IF_ERROR(emit(e, 0, &program));
  out.form = store(program);
  return out;
}

ir::Result<std::optional<Affine>> FormBuilder::build_affine(const ir::Expr& e, int64_t scale, int inner_level,
                                                            int64_t* inner_step) {
  *inner_step = 0;
  LATHE_RETURN_IF_ERROR(range(e).status());
  const Minimum m = minimum(e);
  if (m.size() != 1) return std::optional<Affine>();
  LATHE_ASSIGN(const Affine a, store(m[0], scale, inner_level, inner_step));
  return std::optional<Affine>(a);
}

ir::Result<int64_t> FormBuilder::constant(const ir::Expr& e) {
  LATHE_ASSIGN(const Built b, build(e));
  if (b.range.lo != b.range.hi) return ir::internal_error("a nest constant depends on a loop");
  return b.range.lo;
}

}  // namespace lathe::runtime
