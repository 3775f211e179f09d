// Moves that change how a buffer lies in memory and nothing else: tile_buffer, swap_dims,
// increment_padding, repeat_padding, vectorize_buffer, space_dim, swizzle_buffer. Indices stay logical, so all but the
// last have no legality rule; what is refused has the wrong shape.
#include "ir/core/layout_steps.h"
#include "ir/core/swizzle.h"
#include "search/moves/legality.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

static constexpr int64_t kMostPadding = 4096;  // elements that repeat_padding may add up to

// A buffer whose layout is ours to choose, its layout written out.
static Result<Buffer*> find_layout(Kernel& kernel, const std::string& name) {
  Buffer* b = kernel.find_buffer(name);
  if (!b || b->place == Place::in || b->place == Place::out) {
    return invalid("expected a constant or temporary buffer, got `{}`", name);
  }
  if (b->dims.empty()) return invalid("expected a buffer with dimensions, got `{}`", name);
  if (has_steps(*b)) return invalid("expected a buffer without steps, got `{}`", name);
  b->layout = full_layout(*b);
  return b;
}

// Row-major order is written as no layout.
static void normalise(Buffer& b) {
  for (size_t p = 0; p < b.layout.size(); ++p) {
    if (b.layout[p].part != LayoutDim::Part::whole || b.layout[p].dim != static_cast<int>(p)) return;
  }
  b.layout.clear();
}

static std::vector<std::string> layout_buffers(const Kernel& kernel) {
  std::vector<std::string> out;
  for (const Buffer& b : kernel.buffers) {
    if (b.place != Place::in && b.place != Place::out && !b.dims.empty()) out.push_back(b.name);
  }
  return out;
}

//   w[N, K]  ->  w layout [0/T, 0%T, 1]: split where it stands
Status apply_tile_buffer(TransformResult& result, const Move& move, const TransformParams&) {
  LATHE_ASSIGN(Buffer * b, find_layout(result.kernel, move.args[0]));
  LATHE_ASSIGN(const int64_t dim, int_arg(move.args[1], "a dimension", 0, static_cast<int64_t>(b->dims.size()) - 1));
  LATHE_ASSIGN(const int64_t tile, int_arg(move.args[2], "a tile size", 2, int64_t{1} << 31));
  for (size_t p = 0; p < b->layout.size(); ++p) {
    LayoutDim& l = b->layout[p];
    if (l.dim != dim) continue;
    if (l.part != LayoutDim::Part::whole)
      return invalid("expected dimension {} of `{}` not to be tiled yet", dim, b->name);
    l.part = LayoutDim::Part::outer;
    l.tile = tile;
    b->layout.insert(b->layout.begin() + static_cast<std::ptrdiff_t>(p) + 1,
                     {static_cast<int>(dim), LayoutDim::Part::inner, tile});
    break;
  }
  return {};
}

std::vector<Move> propose_tile_buffer(const Kernel& kernel) {
  std::vector<Move> out;
  for (const std::string& name : layout_buffers(kernel)) {
    for (size_t d = 0; d < kernel.find_buffer(name)->dims.size(); ++d) {
      for (const char* size : {"4", "8", "16", "32"})
        out.push_back({"tile_buffer", {name, std::to_string(d), size}, {}, {}});
    }
  }
  return out;
}

//   w layout [0, 1]  ->  w layout [1, 0]
Status apply_swap_dims(TransformResult& result, const Move& move, const TransformParams&) {
  LATHE_ASSIGN(Buffer * b, find_layout(result.kernel, move.args[0]));
  const int64_t last = static_cast<int64_t>(b->layout.size()) - 1;
  LATHE_ASSIGN(const int64_t p, int_arg(move.args[1], "a physical dimension", 0, last));
  LATHE_ASSIGN(const int64_t q, int_arg(move.args[2], "a physical dimension", 0, last));
  if (p == q) return invalid("expected two different physical dimensions, got {} twice", p);
  std::swap(b->layout[static_cast<size_t>(p)], b->layout[static_cast<size_t>(q)]);
  normalise(*b);
  return {};
}

std::vector<Move> propose_swap_dims(const Kernel& kernel) {
  std::vector<Move> out;
  for (const std::string& name : layout_buffers(kernel)) {
    const size_t n = physical_dims(*kernel.find_buffer(name)).size();
    for (size_t p = 0; p < n; ++p) {
      for (size_t q = p + 1; q < n; ++q)
        out.push_back({"swap_dims", {name, std::to_string(p), std::to_string(q)}, {}, {}});
    }
  }
  return out;
}

//   w[30]  ->  w[30] pad [2]
Status apply_increment_padding(TransformResult& result, const Move& move, const TransformParams&) {
  LATHE_ASSIGN(Buffer * b, find_layout(result.kernel, move.args[0]));
  LATHE_ASSIGN(const int64_t dim, int_arg(move.args[1], "a dimension", 0, static_cast<int64_t>(b->dims.size()) - 1));
  LATHE_ASSIGN(const int64_t multiple, int_arg(move.args[2], "a multiple", 2, int64_t{1} << 31));
  const auto d = static_cast<size_t>(dim);
  if (!is_const_int(b->dims[d])) return invalid("expected dimension {} of `{}` to be constant", dim, b->name);
  if (b->padding.empty()) b->padding.assign(b->dims.size(), 0);
  const int64_t size = b->dims[d]->ival + b->padding[d], rounded = (size + multiple - 1) / multiple * multiple;
  if (rounded == size)
    return invalid("expected dimension {} of `{}` not to be a multiple of {} yet", dim, b->name, multiple);
  b->padding[d] += rounded - size;
  normalise(*b);
  return {};
}

//   w[64]  ->  w[64] pad [16]: a whole multiple more, so that rows do not share the sets of a cache
Status apply_repeat_padding(TransformResult& result, const Move& move, const TransformParams&) {
  LATHE_ASSIGN(Buffer * b, find_layout(result.kernel, move.args[0]));
  LATHE_ASSIGN(const int64_t dim, int_arg(move.args[1], "a dimension", 0, static_cast<int64_t>(b->dims.size()) - 1));
  LATHE_ASSIGN(const int64_t multiple, int_arg(move.args[2], "a multiple", 2, int64_t{1} << 31));
  const auto d = static_cast<size_t>(dim);
  if (b->padding.empty()) b->padding.assign(b->dims.size(), 0);
  if (!proves_divisible(b->dims[d] + Expr(b->padding[d]), multiple, Ranges(result.kernel))) {
    return invalid("expected dimension {} of `{}` to be a multiple of {} with its padding", dim, b->name, multiple);
  }
  if (b->padding[d] + multiple > kMostPadding) return invalid("expected at most {} elements of padding", kMostPadding);
  b->padding[d] += multiple;
  normalise(*b);
  return {};
}

static std::vector<Move> propose_padding(const Kernel& kernel, const char* row) {
  std::vector<Move> out;
  for (const std::string& name : layout_buffers(kernel)) {
    for (size_t d = 0; d < kernel.find_buffer(name)->dims.size(); ++d) {
      for (const char* size : {"8", "16", "32"}) out.push_back({row, {name, std::to_string(d), size}, {}, {}});
    }
  }
  return out;
}
std::vector<Move> propose_increment_padding(const Kernel& kernel) {
  return propose_padding(kernel, "increment_padding");
}
std::vector<Move> propose_repeat_padding(const Kernel& kernel) { return propose_padding(kernel, "repeat_padding"); }

//   w[M, 64]  ->  w layout [0, 1/16, 1%16]: whole vectors in the innermost dimension; addresses
//   stay as they were
Status apply_vectorize_buffer(TransformResult& result, const Move& move, const TransformParams&) {
  LATHE_ASSIGN(Buffer * b, find_layout(result.kernel, move.args[0]));
  LATHE_ASSIGN(const int64_t size, int_arg(move.args[1], "a vector size", 2, 64));
  LayoutDim& last = b->layout.back();
  const Expr extent = physical_dims(*b).back();
  if (last.part != LayoutDim::Part::whole || !proves_divisible(extent, size, Ranges(result.kernel))) {
    return invalid("expected the innermost dimension of `{}` to be whole and a multiple of {}", b->name, size);
  }
  last.part = LayoutDim::Part::outer;
  last.tile = size;
  b->layout.push_back({last.dim, LayoutDim::Part::inner, size});
  return {};
}

std::vector<Move> propose_vectorize_buffer(const Kernel& kernel) {
  std::vector<Move> out;
  for (const std::string& name : layout_buffers(kernel)) {
    for (const char* size : {"4", "8", "16"}) out.push_back({"vectorize_buffer", {name, size}, {}, {}});
  }
  return out;
}

//   w layout [0/32, 1, 0%32]  ->  w layout [0/32, 1:96, 0%32]: room for other constants between
Status apply_space_dim(TransformResult& result, const Move& move, const TransformParams&) {
  Buffer* b = result.kernel.find_buffer(move.args[0]);
  if (b == nullptr || b->place != Place::constant) return invalid("expected a constant, got `{}`", move.args[0]);
  b->layout = full_layout(*b);
  const int64_t last = static_cast<int64_t>(b->layout.size()) - 1;
  LATHE_ASSIGN(const int64_t at, int_arg(move.args[1], "a physical dimension", 0, last));
  const auto d = static_cast<size_t>(at);
  if (b->layout[d].part != LayoutDim::Part::whole)
    return invalid("expected physical dimension {} of `{}` to be whole", at, b->name);
  for (size_t i = 0; i <= d; ++i) {
    if (stated_step(*b, i) != 0) return invalid("expected steps of `{}` from the inside", b->name);
  }
  const int64_t least = elements_inside(*b, d);
  if (least < 1) return invalid("expected a known size inside physical dimension {} of `{}`", at, b->name);
  LATHE_ASSIGN(b->layout[d].tile, int_arg(move.args[2], "a step", least, int64_t{1} << 31));
  return {};
}

std::vector<Move> propose_space_dim(const Kernel& kernel) {
  std::vector<Move> out;
  for (const std::string& name : layout_buffers(kernel)) {
    const Buffer& b = *kernel.find_buffer(name);
    for (size_t d = 0; d < full_layout(b).size(); ++d) {
      for (const int64_t more : {0, 8})
        out.push_back({"space_dim", {name, std::to_string(d), std::to_string(elements_inside(b, d) + more)}, {}, {}});
    }
  }
  return out;
}

//   t[64, 64] shared  ->  t[64, 64] shared swizzle 128: what lies below each other is in different banks
Status apply_swizzle_buffer(TransformResult& result, const Move& move, const TransformParams& params) {
  const Legality legality("swizzle_buffer", params);
  Buffer* b = result.kernel.find_buffer(move.args[0]);
  if (b == nullptr || b->place != Place::shared) return invalid("expected a shared buffer, got `{}`", move.args[0]);
  if (b->swizzle != 0) return invalid("expected a buffer that is not swizzled yet, got `{}`", b->name);
  LATHE_ASSIGN(const int64_t bytes, int_arg(move.args[1], "bytes of a line", 32, 128));
  LATHE_RETURN_IF_ERROR(legality.require(0, has_whole_lines(*b, bytes)));
  LATHE_RETURN_IF_ERROR(legality.require(1, has_whole_groups(*b, bytes)));
  b->swizzle = static_cast<int>(bytes);
  return {};
}

std::vector<Move> propose_swizzle_buffer(const Kernel& kernel) {
  std::vector<Move> out;
  for (const Buffer& b : kernel.buffers) {
    if (b.place != Place::shared || b.swizzle != 0) continue;
    for (const char* bytes : {"32", "64", "128"}) out.push_back({"swizzle_buffer", {b.name, bytes}, {}, {}});
  }
  return out;
}

}  // namespace lathe::search
