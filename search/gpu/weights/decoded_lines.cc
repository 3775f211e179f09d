// See decoded_lines.h.
#include "search/gpu/weights/decoded_lines.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "ir/analysis/analysis.h"
#include "ir/core/names.h"
#include "search/gpu/move_list.h"
#include "search/gpu/product_form.h"
#include "search/gpu/split_sum.h"
#include "search/gpu/tile_rounds.h"
#include "search/gpu/weights/decoded_moves.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kLanes = 32, kChunk = kDecodedChunk, kVector = 4;
constexpr int64_t kLeastLanes = 4, kMostOutputs = 4, kMostSums = 32, kMostAtOnce = 4;
constexpr int64_t kMostRegisters = 255;

int shared_bytes(const DecodedLines& t, int64_t terms, int bytes) { return static_cast<int>(t.rows * terms * bytes); }

Status no_blocks(const Kernel& kernel) {
  return unsupported("the terms of {} are no whole blocks of a power of two", kernel.name);
}

class Writer {
 public:
  // kernel: the general one, or what it is once blocks share its sums over `summed`.
  Writer(const GeneralKernel& general, const Kernel& kernel, const DecodedForm& form, const DecodedLines& lines,
         std::string summed, std::set<std::string> loose)
      : kernel_(kernel),
        f_(form),
        p_(form.product),
        w_(form.weight),
        t_(lines),
        summed_(std::move(summed)),
        list_(general.kernel, "decoded_lines.1"),
        moves_(list_, general, p_, w_, std::move(loose)),
        m_(form.m()),
        n_(form.n()),
        k_(form.k()) {}

  Result<Scheduled> run() {
    const int64_t block = moves_.block();
    if (block == 0) return no_blocks(kernel_);
    list_.knob("rows", t_.rows);
    list_.knob("outputs", t_.outputs);
    list_.knob("lanes", t_.lanes);
    list_.knob("warps", t_.warps);
    if (t_.at_once > 1) list_.knob("at_once", t_.at_once);
    if (t_.terms > 0) split_sum(list_, summed_, t_.terms);
    results();
    terms(block);
    return finish();
  }
  const StagedFields& staged() const { return moves_.staged(); }

 private:
  // A thread has some outputs of all rows of the block.
  void results() {
    tile_decoded(list_, f_, t_.rows, t_.warps * kLanes / t_.lanes * t_.outputs);
    list_.move("tile_scope {0}i {1} tail=mask as {0}t,{0}r", n_, t_.outputs);
    list_.move("swap_scopes {}i {}t", m_, n_);
    for (const std::string& s : {n_ + "r", m_ + "i"}) {
      list_.move("split_scope {0} after=1 as {0}e", s);
      list_.move("split_scope {0} after=0 as {0}k", s);
    }
    list_.move("move_to_register {} {}t", p_.sum, n_);
    list_.move("swap_scopes {}rk {}", n_, k_);
    list_.move("swap_scopes {}ik {}", m_, k_);
  }

  void terms(int64_t block) {
    const std::string m = m_ + "ik", n = n_ + "rk";
    list_.move("tile_scope {0} {1} tail=exact as {0}b,{0}r", k_, block);
    std::vector<std::string> halves = moves_.halve(k_ + "r", k_, block, kVector);
    inner_ = halves.back();
    halves.pop_back();
    list_.move("swap_scopes {} {}", inner_, m);
    list_.move("swap_scopes {} {}", inner_, n);
    // Halves of more than a chunk, the last of which lanes have.
    const auto chunks = halves.begin() + std::countr_zero(static_cast<uint64_t>(block / kChunk));
    std::vector<std::string> turns(halves.begin(), chunks), is = turns;
    steps_.assign(chunks, halves.end());
    int64_t left = t_.lanes;
    for (; left > 1 && !turns.empty(); left /= 2, turns.pop_back()) lanes_.insert(lanes_.begin(), turns.back());
    is.insert(is.begin(), k_ + "b");
    if (left > 1) {
      list_.move("deal_scope {0}b {1} as {0}l,{0}t", k_, left);
      is[0] = k_ + "t";
      is.insert(is.begin(), k_ + "l");
      lanes_.insert(lanes_.begin(), k_ + "l");
    }
    list_.sort(is, lanes_);
    std::string outer = left > 1 ? k_ + "t" : k_ + "b";
    int64_t once = t_.at_once;
    for (auto turn = turns.rbegin(); turn != turns.rend() && once > 1; ++turn, once /= 2) unrolled_.push_back(*turn);
    if (once > 1) {
      list_.move("tile_scope {0} {1} tail=exact as {0}o,{0}u", outer, once);
      outer += "u";
      unrolled_.push_back(outer);
    }
    const std::string chunk = turns.empty() ? outer : turns.back(), step = steps_.back(), a = f_.activations();
    if (t_.staged) list_.move("create_temporary {0} {0}_s at={1} mode=stage", a, f_.tile());
    for (const std::string& x : {w_.buffer, t_.staged ? a + "_s" : a}) {
      list_.move("create_temporary {0} {0}_r at={1} mode=stage", x, step);
      list_.move("move_to_register {}_r {}", x, step);
    }
    for (const std::string& made : p_.made) list_.move("inline_temporary {}", made);
    if (t_.staged && !f_.groups) list_.move("move_to_stack {}_s {}", a, f_.tile());
    moves_.stage_fields(kChunk, chunk, t_.outputs);
  }

  // Threads copy the rows, 16 bytes at a time.
  void share(const std::string& a) {
    const int64_t vector = 16 / dtype_bytes(kernel_.find_buffer(a)->type);
    const std::string s = a + "_s", terms = fmt::format("{}_{}", s, t_.rows > 1 ? 1 : 0);
    list_.move("tile_scope {0} {1} tail=exact as {0}c,{0}v", terms, vector);
    list_.move("tile_scope {0}c {1} tail=mask as {0}o,{0}t", terms, t_.warps * kLanes);
    if (t_.rows > 1) {
      list_.move("swap_scopes {}_0 {}o", s, terms);
      list_.move("unroll_scope {}_0", s);
    }
    list_.move("parallelize_block {}t", terms);
    list_.move("vectorize_scope {}v", terms);
  }

  Result<Scheduled> finish() {
    const std::string a = f_.activations(), w = w_.buffer;
    const bool given = is_input(kernel_.find_buffer(a)->place);
    launch_decoded(list_, f_);
    if (t_.staged) list_.move("move_to_shared {}_s {}", a, f_.tile());
    list_.move("parallelize_block {}t", n_);
    for (const std::string& l : lanes_) list_.move("parallelize_block {}", l);
    // All rows and outputs of a thread are computed alike, once their factors are.
    const std::string rows = t_.staged ? a + "_s" : a;
    if (t_.rows > 1 && given) pad(rows + (t_.staged ? "_0" : "_r_0"), " reads=last");
    if (t_.rows > 1 && t_.staged) pad(rows + "_r_0", "");
    if (t_.staged) share(a);
    if (t_.outputs > 1) pad(w + "_r_0", "");
    for (const std::string& scope : {m_ + "i", m_ + "ik", n_ + "r", n_ + "rk"}) pad(scope, "");
    if (t_.rows > 1) list_.move("unroll_scope {}_r_0", rows);
    list_.move("vectorize_scope {}_r_{}", rows, t_.rows > 1 ? 1 : 0);
    for (int d = 0; d < (t_.outputs > 1 ? 2 : 1); ++d) list_.move("unroll_scope {}_r_{}", w, d);
    for (const auto* scopes : {&unrolled_, &steps_}) {
      for (const std::string& s : *scopes) list_.move("unroll_scope {}", s);
    }
    list_.move("vectorize_scope {}", inner_);
    for (const char* part : {"i", "ik", "ie"}) list_.move("unroll_scope {}{}", m_, part);
    for (const char* part : {"r", "rk", "re"}) list_.move("unroll_scope {}{}", n_, part);
    if (t_.terms > 0) add_up_parts(list_, kernel_);
    return list_.finish();
  }
  void pad(const std::string& scope, const char* reads) {
    if (!list_.is_constant(scope)) list_.move("pad_scope {}{}", scope, reads);
  }

  const Kernel& kernel_;
  const DecodedForm& f_;
  const ProductForm& p_;
  const DecodedWeight& w_;
  const DecodedLines& t_;
  const std::string summed_;
  MoveList list_;
  DecodedMoves moves_;
  const std::string m_, n_, k_;
  std::string inner_;  // the terms that are multiplied together
  // Scopes of terms: of lanes, of chunks that are on their way together, inside of one.
  std::vector<std::string> lanes_, unrolled_, steps_;
};

// Cycles of a GPU, for ordering only; below 0: it has no room for a block. bytes: of an activation.
double cycles_of(const DecodedLines& t, const ProductShape& s, int bytes, const GpuTarget& gpu) {
  constexpr double kDecode = 6;     // instructions for a weight
  constexpr double kLoads = 4;      // of fields, for a chunk of an output
  constexpr double kLatency = 900;  // from a load to its first use
  const SumParts parts(t, s);
  const int64_t blocks = s.batch * ceil_div(std::max<int64_t>(s.rows, 1), t.rows) * parts.count *
                         ceil_div(std::max<int64_t>(s.columns, 1), t.warps * kLanes / t.lanes * t.outputs);
  const auto rows = static_cast<double>(t.rows), outputs = static_cast<double>(t.outputs),
             lanes = static_cast<double>(t.lanes), warps = static_cast<double>(t.warps);
  const auto turns = static_cast<double>(ceil_div(parts.depth, t.lanes * kChunk));
  const double issue = kChunk * outputs * (kDecode + rows) + kChunk / kVector * rows + 3 * kLoads * outputs + 40;
  // Lines of the L1 cache, or turns of shared memory, that a warp asks for.
  const double reads = kChunk / kVector * rows * lanes;
  const double lines = reads + kLoads * outputs * std::max(4.0, kLanes / lanes);
  TileWork work;
  work.tiles = blocks;
  work.threads = t.warps * kLanes;
  work.registers = t.rows == 1 ? 40 + (20 + 30 * t.at_once) * t.outputs
                               : std::min<int64_t>(kMostRegisters, 96 + (24 + 2 * t.rows) * t.outputs);
  work.shared = t.staged ? shared_bytes(t, parts.depth, bytes) : 0;
  if (work.shared > most_shared(gpu) || work.registers * work.threads > kRegisters) return -1;
  const auto all = static_cast<double>(blocks), chips = static_cast<double>(std::max(gpu.multiprocessors, 1));
  const auto resident = static_cast<double>(resident_blocks(work, gpu));
  const double rounds = std::ceil(all / (chips * resident)), most = std::ceil(all / chips);
  const double busy = most * warps * turns * std::max(issue / 4, lines);
  const double waiting = rounds * turns * (kLatency / static_cast<double>(t.at_once) + issue);
  const double copies = t.staged ? all * rows * static_cast<double>(parts.depth * bytes) / kL2Bytes + kLatency : 0;
  return std::max(busy, waiting) + 0.1 * waiting + copies + parts.cycles;
}

// Outputs of a lane at most: a single row shares little, and what chooses between bits takes much code.
int64_t most_outputs(const DecodedLines& t, const DecodedWeight& weight) {
  bool chooses = false;
  for_each_node(weight.value, [&](const ExprNode& e) { chooses = chooses || e.op == Op::k_select; });
  return t.rows == 1 || chooses ? kMostOutputs / 2 : kMostOutputs;
}

// All that may be worth it for so many rows, of a weight with such blocks. Where rows have no room together, some of
// them have.
std::vector<DecodedLines> lines_of(const ProductShape& shape, const DecodedForm& form, int64_t block,
                                   const GpuTarget& gpu) {
  const auto below = [](int64_t n) { return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n))); };
  const int64_t chunks = std::max<int64_t>(shape.depth / kChunk, 1);
  const auto most = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(shape.rows, 1))));
  std::vector<DecodedLines> out;
  DecodedLines t;
  for (t.rows = most; t.rows >= std::max<int64_t>(most / 4, 1); t.rows /= 2) {
    t.staged = t.rows > 1;
    for (const int64_t lanes : {4, 8, 16, 32}) {
      if (lanes > chunks && lanes > kLeastLanes) break;
      t.lanes = std::min(lanes, below(chunks));
      const int64_t most_sums = form.groups ? kMostSums / 2 : kMostSums;  // bounds of groups take registers
      for (t.outputs = 1; t.outputs <= most_outputs(t, form.weight) && t.outputs * t.rows <= most_sums;
           t.outputs *= 2) {
        const int64_t most_at_once = t.rows == 1 ? kMostAtOnce / t.outputs : 1;
        for (t.at_once = 1; t.at_once <= most_at_once; t.at_once *= 2) {
          for (const int64_t parts : {1, 2, 4, 8, 16}) {
            if (parts > 1 && form.groups) break;
            if (parts > 1 && shape.depth % (parts * std::max(block, kLeastShared)) != 0) break;
            t.terms = parts > 1 ? shape.depth / parts : 0;
            if (parts > 1 && !shape.has_room_for(t.terms)) break;
            const int64_t of_part = parts > 1 ? t.terms / kChunk : chunks;
            if ((parts > 1 || t.at_once > 1) && of_part % (t.lanes * t.at_once) != 0) continue;
            for (t.warps = 4; t.warps <= 8; t.warps *= 2) {
              const int64_t blocks = ceil_div(shape.columns, t.warps * kLanes / t.lanes * t.outputs) * parts / 2;
              if (parts == 1 || blocks < (t.staged ? 4 : 1) * gpu.multiprocessors) out.push_back(t);
            }
          }
        }
      }
    }
  }
  return out;
}

}  // namespace

Result<std::vector<DecodedLines>> decoded_lines_of(const GeneralKernel& general, const SymbolValues& sizes,
                                                   const GpuTarget& target) {
  LATHE_ASSIGN(const DecodedForm form, decoded_form(general.kernel));
  const ProductShape shape = shape_of(form, sizes, general.most);
  if (shape.rows > kFewRows) return unsupported("{} rows, expected at most {}", shape.rows, kFewRows);
  const int64_t block = decoded_block(general.kernel, form.product, form.weight);
  if (block == 0) return no_blocks(general.kernel);
  const int bytes = dtype_bytes(general.kernel.find_buffer(form.activations())->type);
  std::vector<DecodedLines> all;
  std::vector<double> cycles;
  for (const DecodedLines& t : lines_of(shape, form, block, target)) {
    const double c = cycles_of(t, shape, bytes, target);
    if (c < 0) continue;
    all.push_back(t);
    cycles.push_back(c);
  }
  if (all.empty()) return unsupported("{} has no room for {} rows", target.name, shape.rows);
  return ranked(all, cycles);
}

Result<Scheduled> decoded_lines(const GeneralKernel& general, const DecodedLines& lines) {
  return whole_or_split(general.kernel, lines.terms,
                        [&](const Kernel& kernel, const DecodedForm& form, const std::string& summed) {
                          std::set<std::string> known;
                          return staged_where_own(
                              [&](const std::set<std::string>& loose, StagedFields& staged) {
                                Writer writer(general, kernel, form, lines, summed, loose);
                                Result<Scheduled> made = writer.run();
                                staged = writer.staged();
                                return made;
                              },
                              known);
                        });
}

Result<Scheduled> decoded_lines(const GeneralKernel& general, const SymbolValues& sizes, const GpuTarget& target) {
  LATHE_ASSIGN(const std::vector<DecodedLines> all, decoded_lines_of(general, sizes, target));
  return first_made(all, [&](const DecodedLines& lines) { return decoded_lines(general, lines); });
}

}  // namespace lathe::search
