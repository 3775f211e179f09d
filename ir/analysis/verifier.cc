// The verifier. Rules, each named by the first word of its message:
//   names        kernel, buffers, symbols and iterators have valid names, unique among all of them; what is used is
//                declared; iterators are used inside their scope only
//   symbols      0 <= min <= max, multiple_of >= 1, and a multiple lies in the range
//   parameters   in, const and out come before other buffers; in and const are never written, every out is; a temporary
//                that is read is written; only an output keeps what is not written
//   sizes        sizes and strides are i64 and depend on symbols only; constants are not negative; only parameters
//                leave sizes out (then nothing is said about bounds) or have strides (one per dimension, not with a
//                layout or padding; no stride 0 where an output is longer than 1); reg buffers have constant sizes
//   layout       every dimension once: whole, or above and inside one tile >= 1
//   padding      one amount >= 0 per dimension
//   swizzle      32, 64 or 128 bytes, of a shared buffer of whole lines of so many, eight by eight
//   values       only of integers that are read as the caller gives them; both ends are affine in symbols; or of
//                integers of a temporary, which numbers between two numbers are assigned to
//   scopes       an extent of type i64; at most 64 deep; @vector: at most 1024; @tensor, and only it, names an
//                intrinsic
//   ranks        one index per dimension
//   types        operands agree, indices are i64, divisors of // % ceildiv positive, a value has the type of its target
//   expressions  no part missing, at most 400 deep
//   bounds       no access leaves its buffer. sampled: an index that is not proven inside and leaves it at one of the
//                points tried is an error, loads under a select are exempt; proven: an index that is not proven inside
//                is one, wherever it is
//   launch       launch_check.h: where @grid and @block scopes stand
//   threads      what is read of a stack or reg buffer was written inside the same @parallel, @grid or @block scope, or
//                outside of all as well: each thread has its own; what is read of a reg or shared buffer inside a @grid
//                scope, inside the same one; a shared buffer is used in @grid scopes alone
//   stream       only an output that no statement reads
//   prefetch     a buffer and, if any, an enclosing iterator; no negative amount
#include "ir/analysis/verifier.h"

#include <algorithm>
#include <optional>
#include <set>

#include "ir/analysis/expr_check.h"
#include "ir/analysis/filled.h"
#include "ir/analysis/intrinsics.h"
#include "ir/analysis/launch_check.h"
#include "ir/core/layout_steps.h"
#include "ir/core/made_sums.h"
#include "ir/core/names.h"
#include "ir/core/swizzle.h"
#include "ir/core/text_form.h"

namespace lathe::ir {

namespace {

constexpr int64_t kMaxVectorExtent = 1024;
constexpr int64_t kMostStep = int64_t{1} << 31;  // elements between those of a constant
constexpr int kTrials = 48;                      // points tried for an access that is not proven in bounds
constexpr int64_t kMaxTried = int64_t{1} << 30;  // larger symbol values are not tried

// A fixed sequence: verify() is a function of the kernel.
class Sequence {
 public:
  uint64_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return state_ >> 33;
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }

 private:
  uint64_t state_ = 1;
};

// What the statements of one scope that threads share out, or of none, do with a stack or reg buffer.
struct OwnUse {
  const Buffer* buffer = nullptr;
  const Stmt* shared_out = nullptr;
  bool read = false, written = false;
};

class Verifier {
 public:
  Verifier(const Kernel& kernel, Bounds bounds) : kernel_(kernel), bounds_(bounds) {}

  Status run() {
    if (!is_valid_name(kernel_.name)) return invalid("names: '{}' cannot name a kernel", kernel_.name);
    if (!kernel_.family.empty() && !is_valid_name(kernel_.family))
      return invalid("names: '{}' cannot name a family", kernel_.family);
    LATHE_RETURN_IF_ERROR(check_symbols());
    ranges_ = Ranges(kernel_);
    LATHE_RETURN_IF_ERROR(check_buffers());
    LATHE_RETURN_IF_ERROR(check_body(kernel_.body));
    LATHE_RETURN_IF_ERROR(check_threads());
    return check_use();
  }

 private:
  Status claim(const std::string& name, const char* what) {
    if (!is_valid_name(name)) return invalid("names: '{}' cannot name {}", name, what);
    if (!names_.insert(name).second) return invalid("names: {} is used twice", name);
    return {};
  }

  ExprChecker checker() {
    ExprChecker out(kernel_, scopes_, &ranges_);
    out.on_load = [this](const ExprNode& load, bool guarded, const std::vector<Expr>& holding) -> Status {
      read_.insert(load.name);
      note_thread(*kernel_.find_buffer(load.name), true);
      if (guarded && bounds_ == Bounds::sampled) return {};
      return check_bounds(*kernel_.find_buffer(load.name), load.args, holding);
    };
    return out;
  }

  Status check_symbols() {
    for (const Symbol& s : kernel_.symbols) {
      LATHE_RETURN_IF_ERROR(claim(s.name, "a symbol"));
      if (s.min < 0 || s.max < s.min) {
        return invalid("symbols: {} in {}..{}: expected 0 <= min <= max", s.name, s.min, s.max);
      }
      if (s.multiple_of < 1) return invalid("symbols: {}: multiple {}, expected at least 1", s.name, s.multiple_of);
      if (s.max / s.multiple_of * s.multiple_of < s.min) {
        return invalid("symbols: {}: no multiple of {} in {}..{}", s.name, s.multiple_of, s.min, s.max);
      }
    }
    return {};
  }

  Status check_buffers() {
    bool temporaries = false;
    for (const Buffer& b : kernel_.buffers) {
      LATHE_RETURN_IF_ERROR(claim(b.name, "a buffer"));
      if (is_param(b.place) && temporaries) {
        return invalid("parameters: {} comes after a temporary", b.name);
      }
      temporaries = temporaries || !is_param(b.place);
      if (b.kept && b.place != Place::out) return invalid("parameters: {} keeps its contents, it is no output", b.name);
      if (b.dims.size() > kMaxRank) return invalid("sizes: {} has more than {} dimensions", b.name, kMaxRank);
      LATHE_RETURN_IF_ERROR(check_sizes(b).with_context("buffer " + b.name));
      LATHE_RETURN_IF_ERROR(check_layout(b));
      LATHE_RETURN_IF_ERROR(check_swizzle(b));
      LATHE_RETURN_IF_ERROR(check_made(b));
      LATHE_RETURN_IF_ERROR(ExprChecker(kernel_, scopes_, &ranges_).check_values(b));
    }
    return {};
  }

  Status check_sizes(const Buffer& b) {
    ExprChecker expr(kernel_, scopes_, &ranges_);
    for (const Expr& e : b.dims) {
      if (!e && is_param(b.place)) continue;
      if (!e) return invalid("sizes: only parameters leave sizes out");
      LATHE_RETURN_IF_ERROR(expr.check_size(e));
      if (is_const_int(e) && e->ival < 0) return invalid("sizes: {} is negative", e->ival);
      if ((b.place == Place::reg || b.place == Place::shared) && !is_const_int(e))
        return invalid("sizes: {}: a {} buffer has constant sizes", print(e), place_name(b.place));
    }
    if (b.strides.empty()) return {};
    if (!is_param(b.place)) return invalid("sizes: only parameters have strides");
    const bool packed = !b.layout.empty() || !b.padding.empty();
    if (packed && b.place != Place::constant) return invalid("sizes: strides with a layout or padding");
    if (!b.made && b.strides.size() != b.dims.size()) {  // of one that is made they are of the given dims
      return invalid("sizes: {} strides, expected {}", b.strides.size(), b.dims.size());
    }
    for (size_t d = 0; d < b.strides.size(); ++d) {
      const Expr& e = b.strides[d];
      if (!e) continue;
      LATHE_RETURN_IF_ERROR(expr.check_size(e));
      if (is_const_int(e) && e->ival < 0) return invalid("sizes: stride {} is negative", e->ival);
      const bool one = is_const_int(b.dims[d]) && b.dims[d]->ival <= 1;
      if (b.place == Place::out && is_const_int(e, 0) && !one) return invalid("sizes: stride 0 in an output");
    }
    return {};
  }

  Status check_made(const Buffer& b) {
    if (!b.made) return {};
    if (b.place != Place::constant) return invalid("made: buffer {}: expected a constant", b.name);
    if (!b.strides.empty() && b.strides.size() != given_dims(b).size())
      return invalid("made: buffer {}: {} strides for {} dims that are given", b.name, b.strides.size(),
                     given_dims(b).size());
    if (b.made->type != b.type)
      return invalid("made: buffer {}: {}, expected {}", b.name, dtype_name(b.made->type), dtype_name(b.type));
    const Expr terms = terms_summed(b);
    if (terms && (b.type != DType::i32 || !b.layout.empty()))
      return invalid("made: buffer {}: a sum of {}, expected an i32 without a layout", b.name, dtype_name(b.type));
    Ranges ranges = ranges_;
    for (size_t d = 0; d < b.dims.size(); ++d) ranges.enter(fmt::format("d{}", d), b.dims[d]);
    if (terms) ranges.enter(fmt::format("d{}", b.dims.size()), terms);
    const bool none = std::any_of(b.dims.begin(), b.dims.end(), [](const Expr& d) { return is_const_int(d, 0); }) ||
                      (terms && is_const_int(terms, 0));
    bool own = false, others = false;
    std::string outside;
    for_each_node(b.made, [&](const ExprNode& n) {
      const bool itself =
          n.op == Op::k_load && n.name == b.name && n.args.size() == b.given_dims.size() && n.type == b.given;
      own |= itself;
      others |= (n.op == Op::k_load && !itself) || n.op == Op::k_symbol ||
                (n.op == Op::k_iter && (b.given_dims.empty() || !ranges.find(n.name)));
      for (size_t d = 0; itself && d < n.args.size(); ++d) {
        if (n.args[d]->type != DType::i64) outside = print(n.args[d]);
        if (bounds_ != Bounds::proven || none) continue;
        if (interval(n.args[d], ranges).lo < 0 || !proves_lt(n.args[d], b.given_dims[d], ranges))
          outside = print(n.args[d]);
      }
    });
    if (!own || others) return invalid("made: buffer {}: expected an expression of {}[] alone", b.name, b.name);
    if (!outside.empty()) return invalid("made: buffer {}: index {} is not proven inside", b.name, outside);
    return {};
  }

  static Status check_steps(const Buffer& b) {
    if (!has_steps(b)) return {};
    if (b.place != Place::constant) return invalid("layout: buffer {}: steps, expected a constant", b.name);
    for (size_t d = 0; d < b.layout.size(); ++d) {
      const int64_t step = stated_step(b, d), size = step == 0 ? 0 : elements_inside(b, d);
      if (size < 0 || size > step || step > kMostStep)
        return invalid("layout: buffer {}: step {}, expected at least the size of what is inside, {}", b.name, step,
                       size);
    }
    return {};
  }

  static Status check_layout(const Buffer& b) {
    const size_t rank = b.dims.size();
    if (!b.padding.empty() && b.padding.size() != rank) {
      return invalid("padding: buffer {} has {} amounts, expected {}", b.name, b.padding.size(), rank);
    }
    for (const int64_t pad : b.padding) {
      if (pad < 0) return invalid("padding: buffer {}: {} is negative", b.name, pad);
    }
    LATHE_RETURN_IF_ERROR(check_steps(b));
    if (b.layout.empty()) return {};
    std::vector<const LayoutDim*> seen[3];
    for (auto& list : seen) list.resize(rank);
    for (const LayoutDim& l : b.layout) {
      if (l.dim < 0 || static_cast<size_t>(l.dim) >= rank) {
        return invalid("layout: buffer {} has no dimension {}", b.name, l.dim);
      }
      const LayoutDim*& slot = seen[static_cast<size_t>(l.part)][static_cast<size_t>(l.dim)];
      if (slot) return invalid("layout: buffer {}: dimension {} appears twice", b.name, l.dim);
      if (l.part != LayoutDim::Part::whole && l.tile < 1) {
        return invalid("layout: buffer {}: tile {} of dimension {}, expected at least 1", b.name, l.tile, l.dim);
      }
      slot = &l;
    }
    for (size_t d = 0; d < rank; ++d) {
      const LayoutDim *whole = seen[0][d], *outer = seen[1][d], *inner = seen[2][d];
      const bool tiled = outer && inner && outer->tile == inner->tile;
      if (whole ? outer || inner : !tiled) {
        return invalid("layout: buffer {}: expected dimension {} whole, or above and inside one tile", b.name, d);
      }
    }
    return {};
  }

  Status check_body(const std::vector<Stmt>& body) {
    for (const Stmt& s : body) {
      switch (s.kind) {
        case Stmt::Kind::scope:
          LATHE_RETURN_IF_ERROR(check_scope(s));
          break;
        case Stmt::Kind::assign:
          LATHE_RETURN_IF_ERROR(check_assign(s));
          break;
        case Stmt::Kind::prefetch:
          LATHE_RETURN_IF_ERROR(check_prefetch(s));
          break;
      }
    }
    return {};
  }

  Status check_scope(const Stmt& s) {
    LATHE_RETURN_IF_ERROR(claim(s.iter, "an iterator"));
    if (scopes_.size() >= kMaxScopeDepth) return invalid("scopes: {}: deeper than {}", s.iter, kMaxScopeDepth);
    const std::string place = "scope " + s.iter;
    LATHE_RETURN_IF_ERROR(checker().check_index(s.extent).with_context(place));
    if (!s.role.empty() && !is_valid_name(s.role)) return invalid("names: '{}' cannot name a role", s.role);
    if (s.mark == Mark::vector && interval(s.extent, ranges_).hi > kMaxVectorExtent &&
        !proves_le(s.extent, Expr(kMaxVectorExtent), ranges_)) {
      return invalid("scopes: {}: extent {} of a vector scope may exceed {}", s.iter, print(s.extent),
                     kMaxVectorExtent);
    }
    if ((s.mark == Mark::tensor) != !s.intrinsic.empty())
      return invalid("scopes: {}: @tensor and only it names an intrinsic", s.iter);
    if (s.mark == Mark::tensor && !find_intrinsic(s.intrinsic))
      return invalid("scopes: {}: no intrinsic is called {}", s.iter, s.intrinsic);
    LATHE_RETURN_IF_ERROR(check_launch_scope(s, scopes_, ranges_));
    const bool idle = interval(s.extent, ranges_).hi < 1;
    idle_ += idle;
    std::optional<Ranges> outer;  // what learn() says of symbols holds inside only
    if (bounds_ == Bounds::proven && !is_const_int(s.extent)) outer = ranges_;
    ranges_.enter(s);
    if (bounds_ == Bounds::proven) ranges_.learn(s.extent, 1);
    scopes_.push_back(&s);
    const size_t known = inside_.size();
    LATHE_RETURN_IF_ERROR(check_body(s.body));
    inside_.resize(known);
    scopes_.pop_back();
    idle_ -= idle;
    if (outer) {
      ranges_ = std::move(*outer);
    } else {
      ranges_.leave();
    }
    return {};
  }

  Status check_assign(const Stmt& s) {
    const Buffer* target = kernel_.find_buffer(s.target);
    if (!target) return invalid("names: buffer {} is not declared", s.target);
    const std::string place = "statement on " + s.target;
    if (is_input(target->place))
      return invalid("parameters: {} is written, it is {}", s.target, place_name(target->place));
    if (s.index.size() != target->dims.size())
      return invalid("ranks: {} has {} indices, expected {}", s.target, s.index.size(), target->dims.size());
    ExprChecker expr = checker();
    for (const Expr& e : s.index) LATHE_RETURN_IF_ERROR(expr.check_index(e).with_context(place));
    // GPUs load only what is not filled; what is read of the value must have its form.
    fills_ = s.op == AssignOp::set && is_launched() && ExprChecker(kernel_, scopes_, &ranges_).check(s.value).ok() &&
             &unfilled(s.value) != &s.value;
    LATHE_RETURN_IF_ERROR(expr.check(s.value).with_context(place));
    if (s.value->type != target->type) {
      return invalid("types: {} is {}, its value is {}", s.target, dtype_name(target->type), dtype_name(s.value->type));
    }
    if (s.op == AssignOp::fmax && !is_float(target->type))
      return invalid("types: fmax= on {}, expected floats", s.target);
    if (s.op != AssignOp::set && target->type == DType::b8) return invalid("types: {} is b8, expected '='", s.target);
    if (target->values && !(s.op == AssignOp::set && is_one_of(s.value, target->values)))
      return invalid("values: {}: expected numbers from {} to {}, or a choice of them", s.target,
                     print(target->values.lo), print(target->values.hi));
    written_.insert(s.target);
    if (target->stream && s.op != AssignOp::set) return invalid("stream: {} is updated", s.target);
    note_thread(*target, s.op != AssignOp::set);
    return check_bounds(*target, s.index);
  }

  // Of a temporary that states its values: numbers among them.
  static bool is_one_of(const Expr& e, const ValueRange& values) {
    if (e->op == Op::k_select) return is_one_of(e->args[1], values) && is_one_of(e->args[2], values);
    return is_const_int(e) && e->ival >= values.lo->ival && e->ival <= values.hi->ival;
  }

  Status check_prefetch(const Stmt& s) const {
    if (!kernel_.find_buffer(s.target)) return invalid("names: buffer {} is not declared", s.target);
    if (s.distance < 0 || s.lines < 0) return invalid("prefetch: {}: a negative amount", s.target);
    const bool open = std::any_of(scopes_.begin(), scopes_.end(), [&](const Stmt* o) { return o->iter == s.iter; });
    if (!s.iter.empty() && !open) return invalid("prefetch: {}: {} is not an enclosing iterator", s.target, s.iter);
    return {};
  }

  Status check_use() const {
    for (const Buffer& b : kernel_.buffers) {
      const bool written = written_.count(b.name) > 0;
      if (b.stream && (b.place != Place::out || read_.count(b.name) > 0)) {
        return invalid("stream: {} is {}", b.name, b.place == Place::out ? "read" : "not an output");
      }
      if (b.place == Place::out && !written) return invalid("parameters: output {} is never written", b.name);
      if (!is_param(b.place) && !written && read_.count(b.name) > 0) {
        return invalid("parameters: {} is read and never written", b.name);
      }
    }
    return {};
  }

  bool is_launched() const { return !scopes_.empty() && scopes_[0]->mark == Mark::grid; }
  void note_thread(const Buffer& b, bool read) {
    if (b.place != Place::stack && b.place != Place::reg && b.place != Place::shared) return;
    // Registers and shared memory of a launch belong to a block: which of its threads has what is for code to settle.
    const bool launched = b.place != Place::stack && is_launched();
    const auto innermost = std::find_if(scopes_.rbegin(), scopes_.rend(), [&](const Stmt* s) {
      return launched ? is_of_grid(s->mark) : is_shared_out(s->mark);
    });
    const Stmt* scope = innermost == scopes_.rend() ? nullptr : *innermost;
    const auto same = [&](const OwnUse& u) { return u.buffer == &b && u.shared_out == scope; };
    auto known = std::find_if(own_.begin(), own_.end(), same);
    if (known == own_.end()) known = own_.insert(own_.end(), {&b, scope});
    (read ? known->read : known->written) = true;
    if (b.place == Place::shared && !launched) outside_ = b.name;
  }

  Status check_threads() const {
    if (!outside_.empty()) return invalid("threads: {}, a shared buffer, is used outside of @grid scopes", outside_);
    for (const OwnUse& u : own_) {
      if (!u.read || u.written) continue;
      const std::string where = u.shared_out == nullptr
                                    ? "outside of @parallel scopes, but written inside one"
                                    : fmt::format("in @{} scope {}, but not written there",
                                                  mark_name(u.shared_out->mark), u.shared_out->iter);
      const bool elsewhere =
          std::any_of(own_.begin(), own_.end(), [&](const OwnUse& o) { return o.buffer == u.buffer && o.written; });
      if (elsewhere)
        return invalid("threads: {}, a {} buffer, is read {}", u.buffer->name, place_name(u.buffer->place), where);
    }
    return {};
  }

  // holding: conditions that hold there.
  Status check_bounds(const Buffer& b, const std::vector<Expr>& index, const std::vector<Expr>& holding = {}) {
    for (size_t d = 0; d < index.size(); ++d) {
      const Expr& i = index[d];
      const Expr& size = b.dims[d];
      if (!size && bounds_ == Bounds::proven)
        return invalid("bounds: buffer {}: the size of dimension {} is not stated", b.name, d);
      if (!size || idle_ > 0 || known_inside(i, size) || kept_inside(i, size, holding)) continue;
      const std::string witness = leaves_buffer(i, size);
      if (!witness.empty())
        return invalid("bounds: buffer {}: dimension {}: index {} {}", b.name, d, print(i), witness);
      if (bounds_ == Bounds::proven)
        return invalid("bounds: buffer {}: dimension {}: index {} is not proven to stay below {}", b.name, d, print(i),
                       print(size));
    }
    return {};
  }

  // Several accesses of a scope have the same index; what was shown of it around this scope holds here too.
  bool known_inside(const Expr& index, const Expr& size) {
    const bool known = std::any_of(inside_.begin(), inside_.end(),
                                   [&](const auto& k) { return equal(k.first, index) && equal(k.second, size); });
    if (!known && !proves_inside(index, size, ranges_, scopes_)) return false;
    if (!known) inside_.emplace_back(index, size);
    return true;
  }

  // Where a < b, and so i < i - a + b.
  bool kept_inside(const Expr& index, const Expr& size, const std::vector<Expr>& holding) const {
    if (!fills_ || holding.empty() || !proves_le(Expr(0), index, ranges_)) return false;
    return proves_le(simplify(index - holding[0]->args[0] + holding[0]->args[1], ranges_), size, ranges_);
  }

  // The index where what it loads is the least or the largest of its range; null where a range is empty.
  Expr at_end(const Expr& index, const SymbolValues& symbols, bool least) const {
    bool empty = false;
    const Expr out = rewrite(index, [&](const Expr& e) -> Expr {
      if (e->op != Op::k_load) return {};
      const ValueRange& values = kernel_.find_buffer(e->name)->values;
      empty |= evaluate(values.lo, symbols).value_or(0) > evaluate(values.hi, symbols).value_or(INT64_MAX);
      return least ? values.lo : values.hi;
    });
    return empty ? Expr() : out;
  }

  // Tries points of the iteration space; "reaches 32 at N = 31, the size is 31" for one outside the buffer, else empty.
  std::string leaves_buffer(const Expr& index, const Expr& size) const {
    Sequence sequence;
    for (int trial = 0; trial < kTrials; ++trial) {
      SymbolValues values;
      if (!choose_point(trial, sequence, values)) continue;
      const auto at = evaluate(at_end(index, values, trial % 2 == 0), values), limit = evaluate(size, values);
      if (!at || !limit || (*at >= 0 && *at < *limit)) continue;
      std::string point;
      for (const auto& [name, value] : values) {
        if (!uses(index, name) && !uses(size, name)) continue;
        point += fmt::format("{}{} = {}", point.empty() ? " at " : ", ", name, value);
      }
      return fmt::format("reaches {}{}, the size is {}", *at, point, *limit);
    }
    return {};
  }

  // The first two points are the least and the largest of everything, then random ones, with the ends preferred.
  bool choose_point(int trial, Sequence& sequence, SymbolValues& values) const {
    const auto choose = [&](int64_t count) -> int64_t {
      if (trial == 0) return 0;
      if (trial == 1) return count - 1;
      const int64_t kind = sequence.below(4);
      return kind == 0 ? 0 : kind < 3 ? count - 1 : sequence.below(count);
    };
    for (const Symbol& s : kernel_.symbols) {
      const int64_t lo = (s.min / s.multiple_of) + (s.min % s.multiple_of != 0);
      const int64_t hi = std::max(std::min(s.max, std::max(s.min, kMaxTried)) / s.multiple_of, lo);
      values.emplace_back(s.name, (lo + choose(hi - lo + 1)) * s.multiple_of);
    }
    for (const Stmt* s : scopes_) {
      const auto extent = evaluate(s->extent, values);
      if (!extent || *extent < 1) return false;
      values.emplace_back(s->iter, choose(*extent));
    }
    return true;
  }

  const Kernel& kernel_;
  const Bounds bounds_;
  Ranges ranges_;
  int idle_ = 0;  // enclosing scopes that never run: nothing in them is an access
  std::vector<const Stmt*> scopes_;
  bool fills_ = false;                         // the value that is checked is select(a < b, value, 0) in a launch
  std::vector<std::pair<Expr, Expr>> inside_;  // 0 <= first < second was proven where the scopes around run
  std::set<std::string> names_, read_, written_;
  std::vector<OwnUse> own_;
  std::string outside_;  // a shared buffer that is used outside of launches
};

}  // namespace

Status verify(const Kernel& kernel, Bounds bounds) { return Verifier(kernel, bounds).run(); }

}  // namespace lathe::ir
