// The moves of products with weights of few bits in integers: see recipe_dots.cc.
#include <numeric>

#include "ir/analysis/dependence.h"
#include "search/quantised/activation_rows.h"
#include "search/quantised/dots_sketch.h"
#include "search/quantised/field_prefetch.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kFarPart = 4;  // of L2: beyond it results and what is read like them leave it between panels

}  // namespace

Status DotsSketch::write(Script& s, const Setting& k) const {
  const char* sums = in_parts(k) ? " sums=scales" : reads_panels(k) ? " bytes=signed" : "";
  s.move("quantize_activations {} group={} scale={}{} as kg", p_.k->iter, g_.group, scale(k), sums);
  write_activation_rows(
      s, {.lanes = t_.lanes, .depth = k_, .scale = scale(k), .group = g_.group, .parallel = k.parallel != 0});
  write_prologues(s, p_.clears, problem_, t_.lanes);
  write_products(s, k);
  return {};
}

// The depth of a group: periods, quads, in each the parts that share bytes. What is too long for straight code is a
// loop: periods, or quads some beside each other.
void DotsSketch::cut_quads(Script& s, const std::string& depth) const {
  std::string rest = depth;
  std::vector<std::string> loops;
  if (g_.period < g_.group) {
    s.move("tile_scope {} {} tail=exact as ks,kr", rest, g_.period);
    loops.emplace_back("ks");
    rest = "kr";
  }
  if (g_.part < g_.period) {
    s.move("tile_scope {} {} tail=exact as kp,ki", rest, g_.part);
    rest = "ki";
  }
  s.move("tile_scope {} {} tail=exact as kq,kj", rest, kQuad);
  loops.emplace_back("kq");
  if (g_.part < g_.period) {
    if (g_.parts_share) s.move("swap_scopes kp kq");
    s.move("unroll_scope kp");
  }
  if (!g_.straight()) {
    const std::string loop = loops.front();
    loops.erase(loops.begin());
    const int64_t each = loop == "ks" ? g_.period / kQuad : g_.period / g_.part;
    const int64_t beside =
        std::gcd(loop == "ks" ? g_.group / g_.period : g_.part / kQuad, std::max<int64_t>(kBeside / each, 1));
    if (beside > 1) s.move("tile_scope {} {} tail=exact as {}o,ku", loop, beside, loop);
    if (beside > 1) s.move("unroll_scope ku");
  }
  for (const std::string& scope : loops) s.move("unroll_scope {}", scope);
}

void DotsSketch::write_products(Script& s, const Setting& k) const {
  if (!s.ok()) return;
  const std::string m = p_.m->iter, n = p_.n->iter, depth = p_.k->iter, sums = p_.k->body[0].target;
  const std::string integers = find_scope(s.kernel(), "kg")->body[0].target;
  const std::string sums_of_part = in_parts(k) ? find_scope(s.kernel(), "kg_s")->body[0].target : "";
  std::string part;
  const int64_t columns = k.panel_columns * k.streams;
  const char* tail = tail_of(p_.n->extent, columns, problem_.kernel);
  s.move("tile_scope {} {} tail={} as m0,m1", m, k.tile_rows, tail_of(p_.m->extent, k.tile_rows, problem_.kernel));
  s.move("tile_scope {} {} tail={} as n0,n1", n, columns, tail);
  s.move("swap_scopes m1 n0");
  s.move("swap_scopes m0 n0");
  const std::string outermost = outermost_scope(s, p_, problem_);
  // Start, groups, end; in each group its start, sums and end.
  const auto split = [&](const std::string& from, const std::string& to) {
    for (const char* scope : {"n", "m"}) s.move("split_scope {}{} after=0 as {}{}", scope, from, scope, to);
  };
  std::string piece = "_groups";
  const auto inside = [&](const std::string& around) {
    for (const char* scope : {"n", "m"}) s.move("swap_scopes {}{} {}", scope, piece, around);
  };
  split("1", piece);
  split(piece, "_end");
  // Those groups of a block that are not alike by the binary digits of their number, of which indices are sums.
  std::vector<std::string> digits;
  std::string group = in_parts(k) ? "kg_s" : "kg", prefix = in_parts(k) ? "kh" : "kg";
  const auto divide = [&](int64_t by, const std::string& outer) {
    const std::string inner = fmt::format("{}{}", prefix, by);
    s.move("tile_scope {} {} tail=exact as {},{}", group, by, outer, inner);
    inside(outer);
    group = inner;
  };
  const auto divide_in_digits = [&](int64_t all, int64_t of_one) {
    for (int64_t half = all / 2; half > 1; half /= 2) {
      digits.push_back(fmt::format("kd{}", half * of_one));
      divide(half, digits.back());
    }
  };
  const int64_t one = in_one(k), block = this->block(k) / one, unrolled = this->unrolled(k) / one;
  if (block > 1) divide(block, "kb");
  if (unrolled > 1 && unrolled < block) divide(unrolled, "kl");
  divide_in_digits(unrolled, one);
  inside(group);
  if (unrolled > 1) digits.push_back(group);
  if (in_parts(k)) {
    part = group;
    prefix = "kg";
    split(piece, "_parts");
    piece = "_parts";
    split(piece, "_part_scale");
    group = "kg";
    divide_in_digits(one, 1);
    inside(group);
    digits.push_back(group);
  }
  split(piece, "_quads");
  split("_quads", "_scale");
  piece = "_quads";
  inside(depth);
  if (k.tiles != 0 && !reads_panels(k)) {
    s.move("hold_bytes {} at={} as {}", depth, group, kHeld);
    s.move("move_to_stack {} {}", kHeld, group);
  }
  if (reads_panels(k)) {
    s.move("unroll_scope {}", group);
  } else {
    cut_quads(s, k.tiles != 0 ? fmt::format("{}_0", kHeld) : depth);
  }
  for (const std::string& scope : digits) s.move("unroll_scope {}", scope);
  for (const QuantisedField& f : p_.fields) {
    int quads = -1;
    for_each_node(g_.weight.byte, [&](const ExprNode& load) {
      if (load.op != Op::k_load || load.name != f.name) return;
      for (size_t d = 0; d < load.args.size(); ++d) {
        if (uses(load.args[d], depth)) quads = static_cast<int>(d);
      }
    });
    pack_field(s, f, k.panel_columns, quads);
  }
  if (together_) interleave_fields(s, p_, bytes_.largest);
  std::vector<std::string> pieces = {"1", "_groups", "_quads", "_scale", "_end"};
  if (in_parts(k)) pieces.insert(pieces.end(), {"_parts", "_part_scale"});
  for (const std::string& piece : pieces) {
    // Sums in tiles are of so many rows that their code would be too long.
    if (k.tiles == 0 || piece == "_groups" || piece == "_quads") s.move("unroll_scope m{}", piece);
    vectorize_columns(s, fmt::format("n{}", piece), k.streams > 1 ? k.panel_columns : 0, t_.lanes, tail);
  }
  if (k.tiles != 0) {
    if (!reads_panels(k)) write_held(s);
    write_tile(s, k, depth);
    s.move("move_to_stack {} {}", integers, group);
    s.move("move_to_stack {} m0", sums);
  } else {
    s.move("tensorize kj dot4_u8s8");
    s.move("{} {} m0", sums_fit(k) ? "move_to_register" : "move_to_stack", sums);
    if (in_parts(k)) s.move("move_to_register {} {}", sums_of_part, part);
    s.move("move_to_register {} {}", integers, group);
  }
  if (reads_panels(k)) {
    prefetch_panels(s, k);
    if (k.parallel != 0) s.move("parallelize {}", outermost);
    return;
  }
  FieldPrefetch prefetch{
      .ahead = k.prefetch > 0 ? k.prefetch : far_ahead(t_), .start = k.start != 0, .group = g_.group};
  prefetch.weights = static_cast<double>(n_) * static_cast<double>(k_);
  prefetch.columns = columns;
  prefetch.together = together_;
  prefetch.to_second = k.tiles != 0;
  prefetch.depth = k_;
  if (k.prefetch == -1) prefetch.tiles = (m_ + k.tile_rows - 1) / k.tile_rows;
  if (m_ > k.tile_rows && m_ * n_ * 4 > t_.l2_bytes / kFarPart) prefetch.rows = k.tile_rows;
  for (size_t f = 0; k.prefetch != 0 && s.ok() && f < p_.fields.size(); ++f)
    prefetch_field(s, p_.fields[f], bytes_, prefetch);
  if (k.parallel != 0) s.move("parallelize {}", outermost);
}

}  // namespace lathe::search
