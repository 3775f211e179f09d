// Tensor scopes of tile_bf16, tile_u8s8 and tile_s8s8: sums of up to 32 x 32, or 16 x 64, wait in four tile registers
// while the steps of K run.
//
//   for k < seglen @tensor(tile_bf16):                         c0 .. c3 = tiles of c
//     for q < 16, j < 2, m < 32 @unroll: for n < 32 @vector:   steps: load a0, a1, b0, b1; four tile_dot_bf16
//       c[m, n] += f32(a[m, 32k + 2q + j]) * f32(b[..])        tiles of c = c0 .. c3
//
// Zeros that the statement before puts into all of c are those of c0 .. c3, and are not stored.
//
// A row of a is 64 bytes of k, a row of b the pairs (of bytes: the fours) of 16 columns: both, and c, are read where
// they lie. Of tile_u8s8_32 a row of a is 32 bytes, and b has 8 rows.
#include <algorithm>
#include <cmath>
#include <utility>

#include "ir/analysis/analysis.h"
#include "ir/core/text_form.h"
#include "jit/lower/lowering.h"
#include "jit/program/tile_shape.h"

namespace lathe::jit {

using ir::Expr;
using ir::Stmt;

namespace {

constexpr int64_t kColumns = kTileBytes / 4, kMostRows = 2 * kTileRows, kMostColumns = 2 * kColumns;

bool moves(const std::vector<Expr>& index, const std::string& iter) {
  return std::any_of(index.begin(), index.end(), [&](const Expr& e) { return ir::uses(e, iter); });
}

// b - a, where nothing but the place differs.
std::optional<Linear> distance(const std::optional<Access>& a, const std::optional<Access>& b) {
  if (!a || !b) return {};
  Linear out = b->base;
  out.add(a->base, -1);
  Access same = *b;
  same.base = a->base;
  return same == *a ? std::optional(out) : std::nullopt;
}

bool is(const std::optional<Linear>& d, int64_t bytes) { return d && d->step(bytes); }

}  // namespace

// Whether the statement puts 0 into elements of a buffer and does nothing else.
bool Lowering::fills_with_zeros(const Stmt& s) {
  if (s.kind == Stmt::Kind::scope)
    return s.mark != ir::Mark::tensor && ir::is_const_int(s.extent) && s.body.size() == 1 &&
           fills_with_zeros(s.body[0]);
  if (s.kind != Stmt::Kind::assign || s.op != ir::AssignOp::set) return false;
  const Expr& v = s.value;
  return v->op == ir::Op::k_const_float ? v->fval == 0 && !std::signbit(v->fval) : ir::is_const_int(v, 0);
}

// Whether that is what a sum in tiles begins with, so that tile_product() may do without it.
bool Lowering::starts_tiles(const Stmt& fill, const Stmt& next) {
  if (lane_ || fill.kind != Stmt::Kind::scope || next.mark != ir::Mark::tensor || !next.intrinsic.starts_with("tile_"))
    return false;
  std::string filled;
  ir::for_each_stmt(fill.body, [&](const Stmt& s) { filled = s.target; });
  bool same = fills_with_zeros(fill);
  ir::for_each_stmt(next.body, [&](const Stmt& s) { same &= s.kind != Stmt::Kind::assign || s.target == filled; });
  return same;
}

void Emitter::tile(LeafOp op, uint32_t tiles) { emit(op, -1, level()).imm = tiles; }

void Emitter::tile(LeafOp op, int number, const Access& at, const Linear& step) {
  Mem m = mem(at, false);
  const auto moves = std::find_if(step.strides.begin(), step.strides.end(), [](int64_t mult) { return mult != 0; });
  const bool known = step.constant() && step.bytes == static_cast<int32_t>(step.bytes);
  if (!known && (step.constant() || step.bytes != 0 || *moves != 1 ||
                 step.strides.end() - moves > 1 + std::count(moves + 1, step.strides.end(), 0))) {
    fail(ir::unsupported("rows of a tile that are no stride apart"));
    return;
  }
  if (!known) {
    m.index_kind = Mem::Index::stride;
    m.index = step.first + static_cast<int>(moves - step.strides.begin());
    m.scale = 1;
  }
  Inst& i = emit(op, -1, level());
  i.imm = static_cast<uint32_t>(number);
  i.mem = m;
  i.var_add = known ? step.bytes : 0;
}

// The product of a tensor scope: the scopes along each side, outermost first, and how its operands step.
struct Lowering::Tiles {
  const Stmt* update = nullptr;
  std::vector<const Stmt*> rows, columns, depth;
  const Expr *a = nullptr, *b = nullptr;  // loads
  Linear a_step, b_step, c_step;          // from one row of a tile to the next
  LeafOp dot = LeafOp::k_tile_dot_bf16;
  int64_t m = 1, n = 1;
  int down() const { return static_cast<int>((m + kTileRows - 1) / kTileRows); }
  int across() const { return static_cast<int>(n / kColumns); }
};

// The access of a load, or of the result (null), at numbers of rows, columns and depth.
std::optional<Access> Lowering::tile_at(const Tiles& t, const Expr* load, int64_t m, int64_t n, int64_t k) {
  const size_t outside = env_.size();
  const auto bind = [&](const std::vector<const Stmt*>& scopes, int64_t at) {
    for (size_t i = scopes.size(); i-- > 0; at /= scopes[i]->extent->ival)
      env_.push_back({scopes[i]->iter, Binding::Kind::number, at % scopes[i]->extent->ival, 1, nullptr});
  };
  bind(t.rows, m);
  bind(t.columns, n);
  bind(t.depth, k);
  const std::string& name = load != nullptr ? (*load)->name : t.update->target;
  const int slot = slot_of(name);
  std::optional<Access> out;
  if (slot >= 0 && leaf_.buffers[static_cast<size_t>(slot)].place != ir::Place::reg)
    out =
        access(leaf_.buffers[static_cast<size_t>(slot)], slot, load != nullptr ? (*load)->args : t.update->index, env_);
  env_.resize(outside);
  return out;
}

// Whether the statement fills the sums of the tiles and no more: its scopes step through columns, then through rows.
bool Lowering::fills(const Tiles& t, const Stmt& fill, const Access& sums) {
  std::vector<const Stmt*> scopes;
  const Stmt* at = &fill;
  for (; at->kind == Stmt::Kind::scope; at = &at->body[0]) scopes.push_back(at);
  const auto where = [&](const Stmt* moved) {
    const size_t outside = env_.size();
    for (const Stmt* c : scopes) env_.push_back({c->iter, Binding::Kind::number, c == moved ? 1 : 0, 1, nullptr});
    std::optional<Access> out = access(leaf_.buffers[static_cast<size_t>(sums.slot)], sums.slot, at->index, env_);
    env_.resize(outside);
    return out;
  };
  const std::optional<Access> first = where(nullptr);
  if (!is(distance(sums, first), 0) || !t.c_step.constant()) return false;
  std::vector<std::pair<int64_t, int64_t>> steps;  // bytes, and how many
  for (const Stmt* c : scopes) {
    if (c->extent->ival == 1) continue;
    const std::optional<Linear> d = distance(first, where(c));
    if (!d || !d->constant()) return false;
    steps.emplace_back(d->bytes, c->extent->ival);
  }
  std::sort(steps.begin(), steps.end());
  int64_t columns = 1, rows = 1;
  for (const auto& [bytes, count] : steps) {
    const bool across = columns < t.n;
    if (bytes != (across ? 4 * columns : t.c_step.bytes * rows)) return false;
    (across ? columns : rows) *= count;
  }
  return columns == t.n && rows == t.m;
}

void Lowering::tile_bf16(const Stmt& s) { tile_product(s, 2, kTileRows); }
void Lowering::tile_u8s8(const Stmt& s) { tile_product(s, 4, kTileRows); }
void Lowering::tile_s8s8(const Stmt& s) { tile_product(s, 4, kTileRows); }
void Lowering::tile_u8s8_32(const Stmt& s) { tile_product(s, 4, kTileRows / 2); }

// parts: elements of a lane; lines: rows of a tile of b.
void Lowering::tile_product(const Stmt& s, int64_t parts, int lines) {
  const int64_t element = 4 / parts;
  Tiles t;
  std::vector<const Stmt*> scopes;
  for (const Stmt* at = &s; t.update == nullptr;) {
    const Stmt* inner = nullptr;
    for (const Stmt& c : at->body) {
      if (c.kind != Stmt::Kind::prefetch) inner = &c;
    }
    if (inner == nullptr) break;
    if (inner->kind == Stmt::Kind::assign)
      t.update = inner;
    else
      scopes.push_back(inner);
    at = inner;
  }
  const auto refuse = [&](const char* why) { fail(ir::unsupported("scope {}: {}", s.iter, why)); };
  const bool product = t.update != nullptr && t.update->op == ir::AssignOp::add && t.update->value->op == ir::Op::k_mul;
  if (!product) return refuse("not a sum of products");
  for (const Expr& factor : t.update->value->args) {
    const Expr& load = ir::unwidened(factor);
    const bool fits =
        parts == 2 ? load->type == ir::DType::bf16 : load->type == ir::DType::i8 || load->type == ir::DType::u8;
    if (load->op != ir::Op::k_load || !fits)
      return refuse(parts == 2 ? "expected factors of bf16" : "expected factors of bytes");
    const bool by_column = std::any_of(scopes.begin(), scopes.end(), [&](const Stmt* c) {
      return moves(load->args, c->iter) && moves(t.update->index, c->iter) && c->mark == ir::Mark::vector;
    });
    (by_column ? t.b : t.a) = &load;
  }
  if (t.a == nullptr || t.b == nullptr) return refuse("expected one factor along columns");
  if (parts == 4) {
    const bool a_signed = (*t.a)->type == ir::DType::i8, b_signed = (*t.b)->type == ir::DType::i8;
    if (!a_signed && !b_signed) return refuse("expected a signed factor");
    t.dot = !a_signed ? LeafOp::k_tile_dot_u8s8 : b_signed ? LeafOp::k_tile_dot_s8s8 : LeafOp::k_tile_dot_s8u8;
  }
  for (const Stmt* c : scopes) {
    if (!ir::is_const_int(c->extent)) return refuse("a side that is not constant");
    const bool summed = !moves(t.update->index, c->iter), column = !summed && moves((*t.b)->args, c->iter);
    (summed ? t.depth : column ? t.columns : t.rows).push_back(c);
    if (!summed) (column ? t.n : t.m) *= c->extent->ival;
  }
  const int64_t most = t.m > kTileRows ? kMostColumns : 2 * kMostColumns;
  if (t.m > kMostRows || t.n > most || t.n % kColumns != 0) return refuse("sides that are no tiles");

  env_.push_back({s.iter, Binding::Kind::number, 0, 1, nullptr});
  const auto a = [&](int64_t m, int64_t k) { return tile_at(t, t.a, m, 0, k); };
  const auto b = [&](int64_t n, int64_t k) { return tile_at(t, t.b, 0, n, k); };
  const auto c = [&](int64_t m, int64_t n) { return tile_at(t, nullptr, m, n, 0); };
  const auto a_step = distance(a(0, 0), a(t.m > 1 ? 1 : 0, 0)), b_step = distance(b(0, 0), b(0, parts)),
             c_step = distance(c(0, 0), c(t.m > 1 ? 1 : 0, 0));
  bool fits = a_step && b_step && c_step;
  for (int64_t k = 1; k < parts * lines && fits; ++k) fits = is(distance(a(0, 0), a(0, k)), element * k);
  for (int64_t n = 0; n < t.n && fits; ++n) {
    const int64_t first = n - n % kColumns, bytes = 4 * (n - first);  // of the tile that column n is in
    fits = is(distance(b(first, 0), b(n, 0)), bytes) && is(distance(c(0, first), c(0, n)), bytes);
    for (int64_t j = 1; j < parts && fits; ++j) fits = is(distance(b(n, 0), b(n, j)), element * j);
  }
  for (int64_t m = 1; m < t.m && fits; ++m) {  // rows of a tile are evenly apart
    if (m % kTileRows != 0) fits = distance(a(m - 1, 0), a(m, 0)) == a_step && distance(c(m - 1, 0), c(m, 0)) == c_step;
  }
  bool together = fits;  // the tiles of sums are one rectangle
  for (int64_t down = 0; down < t.down(); ++down) {
    for (int64_t across = 0; across < t.across() && together; ++across)
      together = is(distance(c(0, 0), c(down * kTileRows, across * kColumns)),
                    down * kTileRows * c_step->bytes + 4 * across * kColumns);
  }
  const std::optional<Access> sums = c(0, 0);
  env_.pop_back();
  if (!fits || leaf_.find_buffer(t.update->target)->type != (parts == 2 ? ir::DType::f32 : ir::DType::i32))
    return refuse("pairs, rows, columns or sums that do not lie evenly in memory");
  t.a_step = *a_step;
  t.b_step = *b_step;
  t.c_step = *c_step;

  uint8_t rows[kMaxTiles] = {};
  for (int down = 0; down < t.down(); ++down) {
    const auto count = static_cast<uint8_t>(std::min<int64_t>(kTileRows, t.m - down * kTileRows));
    for (int across = 0; across < t.across(); ++across) rows[2 * down + across] = count;
    rows[kFirstTileOfA + down] = count;
  }
  for (int across = 0; across < t.across(); ++across) rows[kFirstTileOfB + across % 2] = static_cast<uint8_t>(lines);
  LeafProgram& program = e_.program();
  if (has_tiles(program) && !std::equal(rows, rows + kMaxTiles, program.tile_rows))
    return refuse("tiles of two sizes in one leaf");
  std::copy(rows, rows + kMaxTiles, program.tile_rows);

  const Stmt* start = std::exchange(start_of_tiles_, nullptr);
  const bool zeros = start != nullptr && together && fills(t, *start, *sums);
  if (start != nullptr && !zeros) statement(*start);
  const auto each_sum = [&](LeafOp op) {
    for (int down = 0; down < t.down(); ++down) {
      for (int across = 0; across < t.across(); ++across) {
        if (op == LeafOp::k_tile_zero) {
          e_.tile(op, static_cast<uint32_t>(2 * down + across));
        } else if (const std::optional<Access> at = c(down * kTileRows, across * kColumns))
          e_.tile(op, 2 * down + across, *at, t.c_step);
      }
    }
  };
  each_sum(zeros ? LeafOp::k_tile_zero : LeafOp::k_tile_load);
  tiles_ = &t;
  mma(s);
  tiles_ = nullptr;
  each_sum(LeafOp::k_tile_store);
  e_.stored(sums->slot);
  e_.forget_values();
}

// The loads and products of one step; the environment says which.
void Lowering::tile_step(const std::function<void(int at, int of)>& before) {
  const Tiles& t = *tiles_;
  const int all = t.across() + t.down() * (1 + t.across());
  int at = 0;
  const auto load = [&](int tile, const Expr* from, int64_t m, int64_t n, const Linear& step) {
    before(at++, all);
    if (const std::optional<Access> place = tile_at(t, from, m, n, 0)) e_.tile(LeafOp::k_tile_load, tile, *place, step);
  };
  for (int down = 0; down < t.down(); ++down) {
    load(kFirstTileOfA + down, t.a, down * kTileRows, 0, t.a_step);
    for (int across = 0; across < t.across(); ++across) {
      // Both of a pair of columns come before their products: loads of the second do not wait for the first product.
      for (int pair = across; down == 0 && across % 2 == 0 && pair < std::min(across + 2, t.across()); ++pair)
        load(kFirstTileOfB + pair % 2, t.b, 0, pair * kColumns, t.b_step);
      const auto factors = static_cast<uint32_t>((kFirstTileOfA + down) << 4 | (kFirstTileOfB + across % 2) << 8);
      before(at++, all);
      e_.tile(t.dot, static_cast<uint32_t>(2 * down + across) | factors);
    }
  }
}

}  // namespace lathe::jit
