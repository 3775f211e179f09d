// See field_prefetch.h.
#include "search/quantised/field_prefetch.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "ir/analysis/dependence.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr double kLongestBurst = 16, kShortBurst = 8;  // lines
constexpr double kAheadOfSmall = 2;                    // times as far as its share of the bytes
constexpr int64_t kMostLines = 64;

int64_t at_least_one(double n) { return std::max<int64_t>(static_cast<int64_t>(std::ceil(n)), 1); }
bool along_depth(const Stmt& scope) { return scope.role == "k" || scope.role == "groups"; }

void prefetch(Script& s, const std::string& what, bool to_second) {
  to_second ? s.move("prefetch {} to=l2", what) : s.prefetch("{}", what);
}

// Lines of the next panel for each tile, in each iteration of the innermost loop around the read.
void share_next(Script& s, const std::string& field, const std::vector<const Stmt*>& scopes, double panel_lines,
                bool to_second) {
  double iterations = 1, all = 1;
  std::string loop;
  for (const Stmt* scope : scopes) {
    if (!along_depth(*scope)) continue;
    if (is_const_int(scope->extent)) all *= static_cast<double>(scope->extent->ival);
    if (scope->mark != Mark::none || is_const_int(scope->extent, 1)) continue;
    loop = scope->iter;
    iterations = all;
  }
  const int64_t lines = std::min(at_least_one(panel_lines / iterations), kMostLines);
  if (!loop.empty()) prefetch(s, fmt::format("{} {} next=m0 lines={}", field, loop, lines), to_second);
}

// Operands that are read after the sums with an element for each result: lines of the next tile, in each iteration of
// the outermost loop over the depth.
void share_results(Script& s, const std::string& field, double results) {
  const std::vector<Access> reads = collect_accesses(s.kernel().body, {}, &field);
  if (reads.empty()) return;
  const std::vector<const Stmt*>& scopes = reads[0].scopes;
  const auto loop = std::find_if(scopes.begin(), scopes.end(), [](const Stmt* scope) {
    return along_depth(*scope) && scope->mark == Mark::none && is_const_int(scope->extent);
  });
  if (loop == scopes.end()) return;
  const std::string around = (*loop)->iter;
  const double iterations = static_cast<double>((*loop)->extent->ival);
  std::map<std::string, double> lines;
  for (const Access& a : collect_accesses(s.kernel().body)) {
    bool row = false, column = false;
    for (const Stmt* scope : a.scopes) {
      const bool used =
          std::any_of(a.index.begin(), a.index.end(), [&](const Expr& e) { return uses(e, scope->iter); });
      row |= used && scope->role == "m";
      column |= used && scope->role == "n";
    }
    const Buffer& b = *s.kernel().find_buffer(a.buffer);
    if (!a.write && b.place == Place::in && row && column)
      lines[a.buffer] = results * static_cast<double>(dtype_bytes(b.type)) / 64;
  }
  for (const auto& [buffer, all] : lines)
    s.prefetch("{} {} next=m0 lines={}", buffer, around, std::min(at_least_one(all / iterations), kMostLines));
}

}  // namespace

int64_t far_ahead(const Target& target) {
  constexpr int64_t kWideCache = 48 << 10, kInWide = 16384, kInSmall = 4096, kInSecond = 8192;
  if (target.prefetched_cache() == 2) return kInSecond;
  return target.l1_bytes < kWideCache ? kInSmall : kInWide;
}

int64_t usual_distance(const Target& target, int64_t rows, bool plain, bool slow) {
  constexpr int64_t kTwoRows = 2, kFewRows = 4, kOfTwo = 6144, kOfFew = 8192, kInSecond = 16384, kPlainRow = 4096;
  if (rows > kFewRows) return far_ahead(target);
  if (target.prefetches_alone && plain) return rows == 1 ? kPlainRow : 0;
  if (target.prefetches_alone) return rows < kTwoRows || (rows == kTwoRows && !slow) ? 0 : kInSecond;
  return rows <= kTwoRows ? kOfTwo : kOfFew;
}

// Each field about as far ahead in time, in the innermost scope that reads whole lines of its own: bursts would wait
// for each other. Few lines come in a short one, which leaves the core's prefetcher to the large streams.
void prefetch_field(Script& s, const QuantisedField& f, const FieldBytes& bytes, const FieldPrefetch& how) {
  // Exact where it is a whole number.
  const auto lines_of = [&](double weights, double all_bytes) { return weights * all_bytes / (64 * how.weights); };
  const bool largest = f.name == bytes.largest;
  if (largest && how.rows > 0) share_results(s, f.name, static_cast<double>(how.rows * how.columns));
  const std::vector<Access> reads = collect_accesses(s.kernel().body, {}, &f.name);
  if (reads.empty()) return;
  const std::vector<const Stmt*>& scopes = reads[0].scopes;
  if (how.together && how.tiles > 0 && !largest) return;
  if (largest && how.tiles > 0) {
    const double panel =
        lines_of(static_cast<double>(how.depth * how.columns), how.together ? bytes.total : bytes.of.at(f.name));
    return share_next(s, f.name, scopes, panel / static_cast<double>(how.tiles), how.to_second);
  }
  // Weights of an iteration of each scope around the read, from the inside.
  std::vector<double> weights(scopes.size(), 1);
  double inside = 1;
  for (size_t i = scopes.size(); i-- > 0;) {
    if (scopes[i]->role == "groups") inside = std::max(inside, static_cast<double>(how.group));
    weights[i] = inside;
    if (along_depth(*scopes[i]) && is_const_int(scopes[i]->extent))
      inside *= static_cast<double>(scopes[i]->extent->ival);
  }
  std::string best, around;  // the scope, and the one around it
  double lines = 0;
  for (size_t i = 0; i < scopes.size(); ++i) {
    const Stmt& scope = *scopes[i];
    if (scope.mark == Mark::tensor || !along_depth(scope) || is_const_int(scope.extent, 1)) continue;
    const bool steps = std::any_of(reads.begin(), reads.end(), [&](const Access& a) {
      return std::any_of(a.index.begin(), a.index.end(), [&](const Expr& e) { return uses(e, scope.iter); });
    });
    const double here = lines_of(weights[i] * static_cast<double>(how.columns), bytes.of.at(f.name));
    // Where the same lines are read again, as bits of other weights, a short burst beats prefetching them again.
    if (!steps && lines > kLongestBurst) continue;
    if (!steps || (here < 1 && !best.empty())) break;
    if (!best.empty() && lines <= kShortBurst && !largest && !how.together) break;
    around = best;
    best = scope.iter;
    lines = here;
  }
  if (best.empty()) return;
  const double share =
      how.together ? 1.0 : std::min(1.0, kAheadOfSmall * bytes.of.at(f.name) / bytes.of.at(bytes.largest));
  const int64_t ahead = 64 * at_least_one(static_cast<double>(how.ahead) * (largest ? 1 : share) / 64);
  if (largest && how.start && !around.empty())
    prefetch(s, fmt::format("{} {} ahead={} lines=1", f.name, around, 2 * ahead), how.to_second);
  prefetch(s, fmt::format("{} {} ahead={} lines={}", f.name, best, ahead, std::min(at_least_one(lines), kMostLines)),
           how.to_second);
}

}  // namespace lathe::search
