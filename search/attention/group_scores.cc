// Scores of a few queries whose heads share keys: the loops of a step of keys. See parts.h.
#include "ir/analysis/analysis.h"
#include "search/attention/parts.h"
#include "search/sketches/sketch.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

// The sums' beginnings, the sums (_s), and what is made of them (_f).
void split_parts(Script& s, const Scores& of) {
  for (const std::string& scope : {of.heads, of.keys}) {
    s.move("split_scope {} after=0 as {}_s", scope, scope);
    s.move("split_scope {}_s after=0 as {}_f", scope, scope);
  }
}
void unroll_parts(Script& s, const Scores& of) {
  for (const char* part : {"", "_s", "_f"}) {
    s.move("unroll_scope {}{}", of.heads, part);
    s.move("unroll_scope {}{}", of.keys, part);
  }
}

}  // namespace

void scores_by_vectors(Script& s, const AttentionParts& p, const Scores& of, int64_t most_depth, int64_t depth_vectors,
                       int64_t lanes) {
  const std::string d = p.depth->iter + of.suffix;
  split_parts(s, of);
  const int64_t step = depth_vectors * lanes;
  const bool steps = most_depth > step;
  if (steps) {
    s.move("tile_scope {} {} tail={} as {}o,{}i", d, step, tail_of(p.depth->extent, step, s.kernel()), d, d);
    s.move("swap_scopes {}_s {}o", of.heads, d);
    s.move("swap_scopes {}_s {}o", of.keys, d);
  }
  const std::string inner = steps ? d + "i" : d;
  // A vector of each query and one of a key meet before the next ones are read.
  s.move("tile_scope {} {} tail={} as {}v,{}l", inner, lanes,
         tail_of(p.depth->extent, steps ? step : lanes, s.kernel()), inner, inner);
  s.move("swap_scopes {}_s {}v", of.heads, inner);
  s.move("swap_scopes {}_s {}v", of.keys, inner);
  s.move("unroll_scope {}v", inner);
  s.move("vectorize_scope {}l", inner);
  unroll_parts(s, of);
}

void scores_by_rows(Script& s, const AttentionParts& p, const Scores& of, int64_t lanes) {
  const std::string d = p.depth->iter + of.suffix, partial = of.sums + "_l";
  split_parts(s, of);
  s.move("tile_scope {} {} tail=exact as {}o,{}l", d, lanes, d, d);
  s.move("swap_scopes {}_s {}o", of.heads, d);
  s.move("split_reduction {} {}l at={} as {}", of.sums, d, of.step, partial);
  // Where there is one key, it has no scope of its own.
  for (const char* way : {"", "b"}) {
    std::vector<std::string> inner;
    for (int dim = 1; dim <= 2; ++dim) {
      const std::string scope = fmt::format("{}_{}{}", partial, dim, way);
      if (s.ok() && find_scope(s.kernel(), scope) != nullptr) inner.push_back(scope);
    }
    for (const std::string& scope : inner) s.move("swap_scopes {}_0{} {}", partial, way, scope);
    for (const std::string& scope : inner) s.move("unroll_scope {}", scope);
    s.move("vectorize_scope {}_0{}", partial, way);
  }
  unroll_parts(s, of);
  s.move("unroll_scope {}o", d);
  s.move("vectorize_scope {}l", d);
  s.move("move_to_register {} {}", partial, of.step);
}

}  // namespace lathe::search
