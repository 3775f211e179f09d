// See data_sets.h. One 64-bit mix per element gives the value. f32 and bytes of any value are stored directly, other
// types through round_to.
#include "runtime/oracle/data_sets.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "ir/analysis/analysis.h"
#include "ir/core/names.h"

namespace lathe::runtime {
namespace {

uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  return x ^ (x >> 32);
}

double small_integer(uint64_t h, int64_t range) {
  const int64_t v = static_cast<int64_t>(h % static_cast<uint64_t>(2 * range)) - range;
  return static_cast<double>(v >= 0 ? v + ((h >> 40) % 8 != 0) : v);
}

// Sum of four uniforms: mean 0, variance 1, no outlier beyond 3.5.
double normal_value(uint64_t h) {
  const int64_t sum =
      static_cast<int64_t>((h & 0xffff) + (h >> 16 & 0xffff) + (h >> 32 & 0xffff) + (h >> 48)) - 2 * 0xffff;
  return static_cast<double>(sum) * (1.7320508075688772 / 65536.0);
}

// Of an exponent that a normal number has.
double power_of_two(int exponent) { return std::bit_cast<double>(static_cast<uint64_t>(1023 + exponent) << 52); }

constexpr double kBeyondNormal = 3.75, kSecondBeyondNormal = 3.625, kMostLimited = 40, kBeyondLimited = 130;

// Neighbours mostly cancel: equal in odd operands, opposite in even ones.
double wide_value(uint64_t seed, int64_t i, int number, bool limited) {
  const uint64_t own = mix(seed + static_cast<uint64_t>(i));
  const bool follows = (i & 1) != 0 && (own >> 60) != 0;
  const uint64_t h = follows ? mix(seed + static_cast<uint64_t>(i - 1)) : own;
  const int reach = limited ? 5 : 10;
  const double v =
      normal_value(mix(h)) * power_of_two(static_cast<int>(h % static_cast<uint64_t>(2 * reach + 1)) - reach);
  const double signed_v = follows && number % 2 == 0 ? -v : v;
  return limited ? std::clamp(signed_v, -kMostLimited, kMostLimited) : signed_v;
}

// Adding it again and again meets every one of so many numbers before it meets one twice, neighbours far apart: near
// the golden section of them.
int64_t spreading_step(int64_t numbers) {
  const int64_t golden = std::max<int64_t>(numbers * 618 / 1000, 1);
  for (int64_t off = 0;; ++off) {
    if (std::gcd(golden + off, numbers) == 1) return golden + off;
    if (golden > off && std::gcd(golden - off, numbers) == 1) return golden - off;
  }
}

struct Largest {
  double value, second;
  bool last, twice;
};

// Stores the largest element of rows: of two rows of three at one end or the other (last: the first of three at the
// last), or of all rows, spread over the columns so that none has a second one before each has its first. A
// neighbour is equal (twice) or, all over the columns, the second largest: behind it (last) or before it, and once
// more some columns behind, as what follows an equal one; of every other row, the element of the largest magnitude
// is negative. Rows of few elements would be the same everywhere.
template <class Store>
void fill_largest(const OperandShape& shape, const Largest& largest, const DataRecipe& recipe, Store&& store) {
  constexpr int64_t kLeastRow = 8;
  if (shape.dims.empty() || shape.dims.back() < kLeastRow || shape.strides.back() != 1) return;
  const int64_t columns = shape.dims.back(), rows = shape.elements / columns, spread = spreading_step(columns);
  const int64_t step = shape.dims.size() > 1 ? shape.strides[shape.dims.size() - 2] : columns;
  const bool all_over = recipe.peaks > 0;
  for (int64_t r = 0; step >= columns && r < rows && r * step + columns <= shape.span; ++r) {
    const int64_t number = 2 * recipe.peak_sets * r + 2 * (recipe.peaks - 1) + largest.last;
    if (!all_over && r % 3 == 2) continue;
    const int64_t at = all_over ? number % columns * spread % columns : (r % 3 == 0) == largest.last ? columns - 1 : 0;
    const bool behind = at == 0 || (at + 1 < columns && (largest.twice || largest.last));
    store(r * step + at, largest.value);
    if (largest.twice || all_over)
      store(r * step + (behind ? at + 1 : at - 1), largest.twice ? largest.value : largest.second);
    if (!largest.twice && all_over) store(r * step + (at + 3 + columns / 8) % columns, largest.second);
    if ((r + recipe.peaks) % 2 == 1 && all_over) store(r * step + (at + columns - 3) % columns, -largest.value - 1);
  }
}

template <class Store>
void fill_with(const OperandShape& shape, int number, const DataRecipe& recipe, Store&& store) {
  const uint64_t seed =
      mix(recipe.seed * 8 + static_cast<uint64_t>(recipe.kind)) + (static_cast<uint64_t>(number) << 48);
  switch (recipe.kind) {
    case DataKind::integers:
      for (int64_t i = 0; i < shape.span; ++i)
        store(i, small_integer(mix(seed + static_cast<uint64_t>(i)), recipe.integer_range));
      fill_largest(shape,
                   {.value = static_cast<double>(recipe.integer_range + 2),
                    .second = static_cast<double>(recipe.integer_range + 1),
                    .last = true,
                    .twice = recipe.peaks == 0 || recipe.peaks == 2},
                   recipe, store);
      break;
    case DataKind::normal:
      for (int64_t i = 0; i < shape.span; ++i)
        store(i, normal_value(mix(seed + static_cast<uint64_t>(i))) + recipe.mean);
      fill_largest(shape,
                   {.value = kBeyondNormal + recipe.mean,
                    .second = kSecondBeyondNormal + recipe.mean,
                    .last = false,
                    .twice = recipe.peaks == 2},
                   recipe, store);
      break;
    case DataKind::wide:
      for (int64_t i = 0; i < shape.span; ++i) store(i, wide_value(seed, i, number, recipe.limited));
      if (recipe.peaked)
        fill_largest(shape, {.value = kBeyondLimited, .second = 0, .last = true, .twice = false}, recipe, store);
      break;
  }
}

void store_integer(ir::DType type, char* data, int64_t index, int64_t value) {
  std::memcpy(data + index * ir::dtype_bytes(type), &value, static_cast<size_t>(ir::dtype_bytes(type)));
}

void fill_range(const OperandShape& shape, int number, const DataRecipe& recipe, char* data) {
  const uint64_t seed = recipe.seed + (static_cast<uint64_t>(number) << 48);
  std::vector<int64_t> values(static_cast<size_t>(shape.span));
  for (int64_t i = 0; i < shape.span; ++i)
    values[static_cast<size_t>(i)] = value_in(*shape.values, seed + static_cast<uint64_t>(i));
  if (shape.rises) std::sort(values.begin(), values.end());
  if (!values.empty() && recipe.peaks == 0) {
    const auto [lo, hi] = *shape.values;
    if (shape.rises) {
      // All that there is: in equal parts, or in the last one.
      const auto parts = std::max<int64_t>(std::ssize(values) - 1, 1);
      for (int64_t i = 0; i <= parts && i < std::ssize(values); ++i)
        values[static_cast<size_t>(i)] =
            recipe.kind == DataKind::normal ? (i < parts ? lo : hi) : lo + (hi - lo) * i / parts;
    } else if (recipe.kind == DataKind::wide) {
      // The least, which may mean none at all, and the next one.
      values.front() = lo;
      if (values.size() > 1) values[1] = std::min(lo + 1, hi);
    } else {
      // One that is much larger than another; that one is a power of two and one, as much over whole tiles and pages.
      const auto half = static_cast<uint64_t>(std::midpoint(lo, hi) - lo);
      const int64_t middle = half == 0 ? lo : lo + static_cast<int64_t>(std::bit_floor(half - 1)) + 1;
      values.front() = recipe.kind == DataKind::integers ? hi : middle;
      values.back() = recipe.kind == DataKind::integers ? middle : hi;
    }
  }
  for (int64_t i = 0; i < shape.span; ++i) store_integer(shape.type, data, i, values[static_cast<size_t>(i)]);
}

// So small that scores of attention stay near one another.
int64_t small_byte(uint64_t h) { return static_cast<int64_t>(h % 7) - 3; }

// Few of them, near where 8 and 16 bits end, and anywhere.
int64_t any_integer(ir::DType type, uint64_t h) {
  const int64_t near = 112 + static_cast<int64_t>((h >> 8) % 176);
  switch (h >> 61) {
    case 0:
      return static_cast<int8_t>(h);
    case 1:
      return near;
    case 2:
      return -near;
    case 3:
      return static_cast<int16_t>(h);
    default:
      return type == ir::DType::i32 ? static_cast<int32_t>(h) : static_cast<int64_t>(h) >> 12;
  }
}

// Whether a loop runs from one element of it to the next.
bool bounds_loops(const ir::Kernel& kernel, const std::string& buffer) {
  const auto loads = [&](const ir::Expr& e) {
    const ir::ExprNode& n = e->op == ir::Op::k_cast ? *e->args[0] : *e;
    return n.op == ir::Op::k_load && n.name == buffer;
  };
  bool found = false;
  ir::for_each_stmt(kernel.body, [&](const ir::Stmt& s) {
    if (s.kind != ir::Stmt::Kind::scope) return;
    ir::for_each_node(s.extent, [&](const ir::ExprNode& n) {
      found |= n.op == ir::Op::k_sub && loads(n.args[0]) && loads(n.args[1]);
    });
  });
  return found;
}

bool counts_loops(const ir::Kernel& kernel, const std::string& buffer) {
  bool found = false;
  ir::for_each_stmt(kernel.body, [&](const ir::Stmt& s) {
    if (s.kind != ir::Stmt::Kind::scope) return;
    ir::for_each_node(s.extent, [&](const ir::ExprNode& n) { found |= n.op == ir::Op::k_load && n.name == buffer; });
  });
  return found;
}

ir::Status shape_of(const ir::Buffer& b, SymbolValues* symbols, OperandShape* out) {
  const std::optional<std::vector<int64_t>> dims = ir::evaluate_dims(ir::given_dims(b), *symbols);
  if (!dims) return ir::invalid("{} has a size without value", b.name);
  out->name = b.name;
  out->type = ir::given_type(b);
  out->place = b.place;
  out->kept = b.kept;
  out->dims = *dims;
  out->elements = 1;
  for (const int64_t d : *dims) {
    if (__builtin_mul_overflow(out->elements, d, &out->elements) || out->elements > int64_t{1} << 40) {
      return ir::unsupported("{} is too large to check", b.name);
    }
  }
  int64_t compact = 1;
  out->strides.assign(dims->size(), 0);
  for (int d = static_cast<int>(dims->size()) - 1; d >= 0; --d) {
    out->strides[d] = compact;
    if (!b.strides.empty()) {
      const ir::Expr& e = b.strides[d];
      std::optional<int64_t> value = ir::evaluate(e, *symbols);
      if (!value && e->op == ir::Op::k_symbol) {
        symbols->emplace_back(e->name, compact);
        value = compact;
      }
      if (!value || *value < 0) return ir::unsupported("stride {} of {} has no value", d, b.name);
      out->strides[d] = *value;
    }
    compact *= std::max<int64_t>((*dims)[d], 1);
  }
  out->span = out->elements == 0 ? 0 : 1;
  for (size_t d = 0; d < dims->size() && out->span > 0; ++d) {
    int64_t reach;
    if (__builtin_mul_overflow((*dims)[d] - 1, out->strides[d], &reach) || reach > int64_t{1} << 40) {
      return ir::unsupported("{} spans too much memory to check", b.name);
    }
    out->span += reach;
  }
  auto values = values_of(b.values, *symbols, out->elements);
  if (!values.ok()) return values.status().with_context(b.name);
  out->values = *values;
  return {};
}

}  // namespace

ir::Result<std::optional<ir::SymbolRange>> values_of(const ir::ValueRange& range, const SymbolValues& symbols,
                                                     int64_t elements) {
  if (!range) return std::optional<ir::SymbolRange>();
  const std::optional<int64_t> lo = ir::evaluate(range.lo, symbols), hi = ir::evaluate(range.hi, symbols);
  if (!lo || !hi) return ir::invalid("a range of values without numbers");
  if (*lo > *hi && elements > 0) return ir::unsupported("no value lies in {}..{}", *lo, *hi);
  return std::optional(ir::SymbolRange{*lo, *hi});
}

ir::Result<std::vector<OperandShape>> operand_shapes(const ir::Kernel& kernel, SymbolValues* symbols) {
  std::vector<OperandShape> out;
  for (const ir::Buffer& b : kernel.buffers) {
    if (!ir::is_param(b.place)) continue;
    if (ir::dtype_bytes(b.type) == 0)
      return ir::unsupported("{}: elements of {} share bytes", b.name, ir::dtype_name(b.type));
    LATHE_RETURN_IF_ERROR(shape_of(b, symbols, &out.emplace_back()));
    out.back().rises = out.back().values && bounds_loops(kernel, b.name);
    out.back().counts = out.back().values && counts_loops(kernel, b.name);
  }
  return out;
}

std::vector<ArgLayout> arg_layouts(const ir::Kernel& kernel, const std::vector<OperandShape>& shapes) {
  std::vector<ArgLayout> out;
  for (const ir::Buffer& b : kernel.buffers) {
    if (!ir::is_param(b.place)) continue;
    const OperandShape& s = shapes[out.size()];
    out.emplace_back();
    if (!b.strides.empty()) out.back().strides = s.strides;
  }
  return out;
}

const char* data_kind_name(DataKind kind) {
  return kind == DataKind::integers ? "integers" : kind == DataKind::normal ? "normal" : "wide";
}

int64_t value_in(const ir::SymbolRange& values, uint64_t random) {
  const uint64_t h = mix(random), count = static_cast<uint64_t>(values.hi) - static_cast<uint64_t>(values.lo) + 1;
  if (h % 8 == 0 || values.hi <= values.lo) return values.lo;
  if (h % 8 == 1) return values.hi;
  const uint64_t above = count == 0 ? h >> 8 : (h >> 8) % count;
  return static_cast<int64_t>(static_cast<uint64_t>(values.lo) + above);
}

void fill_operand(const OperandShape& shape, int number, const DataRecipe& recipe, char* data) {
  if (shape.values) {
    fill_range(shape, number, recipe, data);
  } else if (!ir::is_float(shape.type)) {
    // Indices, masks: 0 or 1 fits every tensor.
    const bool any = recipe.any_integer && shape.type != ir::DType::b8;
    const bool few = recipe.kind == DataKind::normal && shape.type == ir::DType::i8;
    const bool bytes = ir::dtype_bytes(shape.type) == 1;
    for (int64_t i = 0; i < shape.span; ++i) {
      const uint64_t h = mix(recipe.seed + static_cast<uint64_t>(i));
      if (bytes)
        data[i] = static_cast<char>(!any ? h & 1 : few ? static_cast<uint64_t>(small_byte(h)) : h);
      else
        store_element(shape.type, data, i, static_cast<double>(any ? any_integer(shape.type, h) : h & 1));
    }
  } else if (shape.type == ir::DType::f32) {
    fill_with(shape, number, recipe,
              [&](int64_t i, double v) { reinterpret_cast<float*>(data)[i] = static_cast<float>(v); });
  } else {
    fill_with(shape, number, recipe, [&](int64_t i, double v) { store_element(shape.type, data, i, v); });
  }
}

void fill_tame(ir::DType type, uint64_t seed, char* data, int64_t bytes, const std::optional<ir::SymbolRange>& values) {
  if (values) {
    for (int64_t i = 0; (i + 1) * ir::dtype_bytes(type) <= bytes; ++i)
      store_integer(type, data, i, value_in(*values, mix(seed) + static_cast<uint64_t>(i)));
  } else if (type == ir::DType::f32) {
    auto state = static_cast<uint32_t>(mix(seed));
    for (int64_t i = 0; i + 4 <= bytes; i += 4) {
      state = state * 1664525u + 1013904223u;
      const uint32_t bits = 0x3f000000u | state >> 9;
      std::memcpy(data + i, &bits, 4);
    }
  } else if (type == ir::DType::bf16 || type == ir::DType::f16) {
    const int mantissa = type == ir::DType::bf16 ? 7 : 10;
    const uint32_t half = type == ir::DType::bf16 ? 0x3f00 : 0x3800;
    auto state = static_cast<uint32_t>(mix(seed));
    for (int64_t i = 0; i + 2 <= bytes; i += 2) {
      state = state * 1664525u + 1013904223u;
      const auto bits = static_cast<uint16_t>((state >> 16 & 0x8000) | half | (state >> 8 & ((1u << mantissa) - 1)));
      std::memcpy(data + i, &bits, 2);
    }
  } else if (ir::dtype_bytes(type) == 1) {
    for (int64_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i & 1);
  } else {
    std::memset(data, ir::is_float(type) ? 0x3b : 0, static_cast<size_t>(bytes));
  }
}

std::optional<CountedIntegers> counted_integers(const std::vector<OperandShape>& shapes, size_t i) {
  const OperandShape& s = shapes[i];
  const bool some = std::any_of(shapes.begin(), shapes.end(), [](const OperandShape& o) { return o.counts; });
  if (!some || !s.values || (s.type != ir::DType::i32 && s.type != ir::DType::i64)) return std::nullopt;
  return CountedIntegers{s.type, *s.values, s.rises ? s.dims.back() : 1, s.rises, s.counts};
}

void fill_counted(const CountedIntegers& integers, char* data, int64_t count) {
  const auto [lo, hi] = integers.values;
  const int64_t span = hi - lo, step = spreading_step(span + 1), steps = std::max<int64_t>(integers.row - 1, 1);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t evenly = span * (i % integers.row) / steps;
    store_integer(integers.type, data, i,
                  lo + (integers.rises    ? evenly
                        : integers.counts ? span
                                          : i * step % (span + 1)));
  }
}

double load_element(ir::DType type, const char* data, int64_t index) {
  const char* p = data + index * ir::dtype_bytes(type);
  auto as = [p](auto zero) {
    std::memcpy(&zero, p, sizeof zero);
    return zero;
  };
  switch (type) {
    case ir::DType::f32:
      return as(float{});
    case ir::DType::f64:
      return as(double{});
    case ir::DType::f16:
      return ir::f16_to_f32(as(uint16_t{}));
    case ir::DType::bf16:
      return ir::bf16_to_f32(as(uint16_t{}));
    case ir::DType::i8:
      return as(int8_t{});
    case ir::DType::i32:
      return as(int32_t{});
    case ir::DType::i64:
      return static_cast<double>(as(int64_t{}));
    default:
      return as(uint8_t{});
  }
}

void store_element(ir::DType type, char* data, int64_t index, double value) {
  char* p = data + index * ir::dtype_bytes(type);
  auto put = [p](auto v) { std::memcpy(p, &v, sizeof v); };
  const double rounded = ir::round_to(type, value);
  switch (type) {
    case ir::DType::f32:
      put(static_cast<float>(rounded));
      break;
    case ir::DType::f64:
      put(rounded);
      break;
    case ir::DType::f16:
      put(ir::f32_to_f16(static_cast<float>(rounded)));
      break;
    case ir::DType::bf16:
      put(ir::f32_to_bf16(static_cast<float>(rounded)));
      break;
    case ir::DType::i8:
      put(static_cast<int8_t>(rounded));
      break;
    case ir::DType::i32:
      put(static_cast<int32_t>(rounded));
      break;
    case ir::DType::i64:
      put(static_cast<int64_t>(rounded));
      break;
    default:
      put(static_cast<uint8_t>(rounded));
      break;
  }
}

// A quiet f32 NaN with its lower half a bf16 and f16 NaN as well.
constexpr uint32_t kPoison = 0x7fe57fe5;

void poison(ir::DType type, char* data, int64_t count) {
  const int64_t bytes = ir::dtype_bytes(type, count);
  int64_t i = 0;
  for (; i + 4 <= bytes; i += 4) std::memcpy(data + i, &kPoison, 4);
  std::memcpy(data + i, &kPoison, static_cast<size_t>(bytes - i));
}

void poison_scratch(char* data, int64_t bytes, bool negative) {
  const uint32_t word = negative ? kPoison | 0x80008000u : kPoison;
  for (int64_t i = 0; i + 4 <= bytes; i += 4) std::memcpy(data + i, &word, 4);
}

bool is_poison(ir::DType type, const char* data, int64_t index) {
  const int bytes = ir::dtype_bytes(type);
  if (bytes == 1) return false;  // every byte is a legal value
  const char* p = data + index * bytes;
  for (int i = 0; i < bytes; i += 2) {
    uint16_t half;
    std::memcpy(&half, p + i, 2);
    if (half != (kPoison & 0xffff)) return false;
  }
  return true;
}

namespace {

template <class Word>
bool any_is(Word word, const char* data, int64_t count) {
  Word any = 0;
  for (int64_t i = 0; i < count; ++i) {
    Word bits;
    std::memcpy(&bits, data + static_cast<int64_t>(sizeof bits) * i, sizeof bits);
    any |= bits == word;
  }
  return any != 0;
}

}  // namespace

bool maybe_poison(ir::DType type, const char* data, int64_t count) {
  if (ir::dtype_bytes(type) == 4) return any_is(kPoison, data, count);
  return ir::dtype_bytes(type) != 2 || any_is(static_cast<uint16_t>(kPoison), data, count);
}

}  // namespace lathe::runtime
