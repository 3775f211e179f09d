// See packed_places.h.
#include "runtime/compile/packed_places.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "ir/analysis/analysis.h"

namespace lathe::runtime {

namespace {

constexpr int64_t kAlign = 64;  // of what begins a stretch of its own
constexpr int64_t kMostPeriod = 1 << 22, kMostPieces = 1 << 12;

}  // namespace

ir::Result<std::vector<PackedDim>> packed_dims(const PackedParam& packed, const SymbolValues& symbols) {
  std::vector<PackedDim> out(packed.dims.size());
  int64_t step = 1;
  for (size_t d = out.size(); d-- > 0;) {
    const std::optional<int64_t> size = ir::evaluate(packed.dims[d], symbols);
    std::optional<int64_t> stated = step;
    if (!packed.strides.empty()) stated = ir::evaluate(packed.strides[d], symbols);
    if (!size || !stated) return ir::invalid("a symbol of the packed layout has no value");
    out[d] = {*size, *stated};
    if (__builtin_mul_overflow(std::max<int64_t>(*size, 1), *stated, &step))
      return ir::invalid("packed size overflows");
  }
  return out;
}

// Its pieces; nowhere yet.
static ir::Result<PackedPlace> pieces_of(const PackedParam& packed, const SymbolValues& symbols) {
  PackedPlace out;
  LATHE_ASSIGN(out.span, packed_bytes(packed, symbols));
  LATHE_ASSIGN(const std::vector<PackedDim> dims, packed_dims(packed, symbols));
  out.offsets = {0};
  out.piece = out.period = out.span;
  const auto apart = [&](size_t d) {
    return dims[d].step != (d + 1 == dims.size() ? 1 : dims[d + 1].size * dims[d + 1].step);
  };
  size_t outermost = 0;
  while (outermost < dims.size() && !apart(outermost)) ++outermost;
  out.shares = outermost < dims.size() && out.span > 0;
  if (!out.shares) return out;
  const int64_t element = ir::dtype_bytes(packed.type, 1);
  out.period = dims[outermost].step * element;
  for (size_t d = 0; d <= outermost; ++d) out.count *= dims[d].size;
  out.piece = element;
  out.innermost = dims.back().size;
  for (size_t d = dims.size(); d-- > outermost + 1;) {
    const size_t before = out.offsets.size();
    if (before == 1 && dims[d].step * element == out.piece) {
      out.piece *= dims[d].size;
      if (d + 1 < dims.size()) out.outermost = dims[d].size;
    } else if (static_cast<int64_t>(before) * dims[d].size > kMostPieces) {
      return ir::unsupported("a packed layout of {} pieces", static_cast<int64_t>(before) * dims[d].size);
    } else {
      for (int64_t i = 1; i < dims[d].size; ++i) {
        for (size_t o = 0; o < before; ++o) out.offsets.push_back(out.offsets[o] + i * dims[d].step * element);
      }
    }
  }
  if (out.period > kMostPeriod) return ir::unsupported("a packed layout with steps of {} bytes", out.period);
  return out;
}

namespace {

// Places parameters one after another, and between the pieces of the last one where they fit.
class Placing {
 public:
  explicit Placing(PackedPlaces& out) : out_(out) {}
  ir::Status place(PackedPlace* p);
  // What comes next shares no room with what was placed.
  void close() {
    out_.gaps |= std::find(used_.begin(), used_.end(), false) != used_.end();
    used_.clear();
  }

 private:
  // Whether the pieces fit between those before, the first one at `at`.
  bool is_free(const PackedPlace& p, int64_t at) const {
    return std::all_of(p.offsets.begin(), p.offsets.end(), [&](int64_t o) {
      const auto from = used_.begin() + at + o;
      return std::find(from, from + p.piece, true) == from + p.piece;
    });
  }

  PackedPlaces& out_;
  int64_t first_ = 0, count_ = 0;  // where the periods that are shared begin, and how many there are
  std::vector<bool> used_;         // bytes of a period
};

ir::Status Placing::place(PackedPlace* p) {
  const int64_t last = *std::max_element(p->offsets.begin(), p->offsets.end()) + p->piece;
  int64_t unit = p->piece | p->period | kAlign;  // no finer than all of its pieces are aligned
  for (const int64_t o : p->offsets) unit |= o;
  unit &= -unit;
  int64_t at = 0;
  bool between = p->shares && static_cast<int64_t>(used_.size()) == p->period && count_ == p->count;
  while (between && at + last <= p->period && !is_free(*p, at)) at += unit;
  between = between && at + last <= p->period;
  if (!between) {
    close();
    first_ = (out_.bytes + kAlign - 1) / kAlign * kAlign;
    out_.gaps |= first_ != out_.bytes;
    at = 0;
    count_ = p->count;
    if (p->shares) used_.assign(static_cast<size_t>(p->period), false);
  }
  p->at = first_ + at;
  for (const int64_t o : p->offsets) {
    if (p->shares) std::fill_n(used_.begin() + at + o, p->piece, true);
  }
  int64_t end = 0;
  if (__builtin_add_overflow(p->at, p->span, &end) || end > INT64_MAX - kAlign)
    return ir::invalid("packed size overflows");
  out_.bytes = std::max(out_.bytes, end);
  return {};
}

// Caches follow what goes on upwards, so pieces lie in the order in which they are read: what has few of them in a
// period is read once, and first. Of as many, what does not lie in quads as the largest pieces do is scales: of a
// group, whose products come first. Those of several groups, of which the largest pieces consist as well, are read
// with the first one.
bool read_last(const PackedPlace& p, const std::vector<PackedPlace>& all) {
  const PackedPlace* largest = &p;
  for (const PackedPlace& other : all) {
    const bool alike = other.shares && other.offsets.size() == p.offsets.size();
    if (alike && other.piece > largest->piece) largest = &other;
  }
  return p.shares && p.innermost != largest->innermost && p.outermost != largest->outermost;
}

}  // namespace

ir::Result<PackedPlaces> packed_places(const std::vector<const PackedParam*>& packed, const SymbolValues& symbols) {
  PackedPlaces out;
  for (const PackedParam* p : packed) {
    LATHE_ASSIGN(PackedPlace place, pieces_of(*p, symbols));
    out.places.push_back(std::move(place));
  }
  std::vector<PackedPlace*> order;
  for (PackedPlace& place : out.places) order.push_back(&place);
  std::stable_sort(order.begin(), order.end(), [&](const PackedPlace* a, const PackedPlace* b) {
    const auto rank = [&](const PackedPlace& p) {
      return std::tuple(p.shares ? p.offsets.size() : 0, read_last(p, out.places), p.shares ? p.piece : 0);
    };
    return rank(*a) < rank(*b);
  });
  Placing placing(out);
  for (PackedPlace* place : order) LATHE_RETURN_IF_ERROR(placing.place(place));
  placing.close();
  return out;
}

}  // namespace lathe::runtime
