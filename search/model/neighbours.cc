// neighbours(): see neighbours.h. Changed Schedules are replayed from the start, so a move that others needed takes
// them along into refusal, and what is returned is legal.
#include "search/model/neighbours.h"

#include <algorithm>
#include <charconv>
#include <random>
#include <set>

#include "search/cut/cut.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {
constexpr size_t kTriesPerNeighbour = 12;  // replays for each Schedule asked for, at most
constexpr size_t kProposalsPerRow = 8;     // of each row of the table, at each of the places below
constexpr size_t kInsertPlaces = 4;        // before a move, beside the end

struct Draft {
  Schedule schedule;
  std::string why;
};

std::string moves_text(const Schedule& s) {
  std::string text;
  for (const Move& m : s.moves) text += to_text(m) + "\n";
  return text;
}

// Beyond its recipe: the knobs say nothing about it any more.
Schedule without_recipe(const Schedule& from) {
  Schedule out = from;
  out.recipe.clear();
  out.knobs.clear();
  return out;
}

// Sizes and tails of the moves there are, and each move left out.
std::vector<Draft> edit_drafts(const Target& target, const Schedule& from) {
  std::vector<Draft> out;
  const auto changed = [&](size_t i, Move move) {
    Draft d{without_recipe(from), fmt::format("{} -> {}", to_text(from.moves[i]), to_text(move))};
    d.schedule.moves[i] = std::move(move);
    out.push_back(std::move(d));
  };
  for (size_t i = 0; i < from.moves.size(); ++i) {
    const Move& move = from.moves[i];
    Draft less{without_recipe(from), "- " + to_text(move)};
    less.schedule.moves.erase(less.schedule.moves.begin() + static_cast<std::ptrdiff_t>(i));
    out.push_back(std::move(less));
    if (move.name != "tile_scope") continue;
    int64_t size = 0;
    const std::string& text = move.args[1];
    std::from_chars(text.data(), text.data() + text.size(), size);
    for (const int64_t other : {size * 2, size / 2, size + target.lanes, size - target.lanes, size + 1, size - 1}) {
      if (other < 1 || other == size) continue;
      Move resized = move;
      resized.args[1] = std::to_string(other);
      changed(i, resized);
      if (resized.options.at("tail") != "exact") continue;
      resized.options["tail"] = "mask";
      changed(i, std::move(resized));
    }
    for (const char* tail : {"exact", "mask", "peel", "clamp"}) {
      if (move.options.at("tail") == tail) continue;
      Move other = move;
      other.options["tail"] = tail;
      if (other.created.size() > 2) other.created.resize(2);
      changed(i, std::move(other));
    }
  }
  return out;
}

// A legal move more, at the end or before some move.
std::vector<Draft> insert_drafts(const Problem& problem, const Target& target, const Schedule& from,
                                 const std::vector<Kernel>& steps, std::mt19937_64& random) {
  const bool stream = may_stream(problem, target);
  std::vector<size_t> places = {from.moves.size()};
  for (size_t i = 0; i < kInsertPlaces && !from.moves.empty(); ++i) places.push_back(random() % from.moves.size());
  std::vector<Draft> out;
  for (const size_t at : places) {
    const Kernel& kernel = at == 0 ? problem.kernel : steps[at - 1];
    for (const Transform& row : transforms()) {
      if (!row.serves(Where::cpu) || (!stream && row.name == std::string_view("stream_stores"))) continue;
      std::vector<Move> moves = row.propose(kernel);
      std::shuffle(moves.begin(), moves.end(), random);
      if (moves.size() > kProposalsPerRow) moves.resize(kProposalsPerRow);
      for (Move& move : moves) {
        Draft d{without_recipe(from),
                fmt::format("+ {}{}", to_text(move), at == from.moves.size() ? "" : fmt::format(" (move {})", at + 1))};
        d.schedule.moves.insert(d.schedule.moves.begin() + static_cast<std::ptrdiff_t>(at), std::move(move));
        out.push_back(std::move(d));
      }
    }
  }
  return out;
}
}  // namespace

std::vector<Neighbour> neighbours(const Problem& problem, const Target& target, const Schedule& from, int at_most,
                                  uint64_t seed) {
  std::vector<Neighbour> out;
  if (at_most <= 0) return out;
  std::vector<Kernel> steps;
  if (!replay(problem.kernel, from, &steps).ok()) return out;
  std::mt19937_64 random(seed);
  std::vector<Draft> drafts = edit_drafts(target, from);
  for (Draft& d : insert_drafts(problem, target, from, steps, random)) drafts.push_back(std::move(d));
  std::shuffle(drafts.begin(), drafts.end(), random);

  std::set<std::string> seen = {moves_text(from)};
  size_t tries = 0;
  for (Draft& d : drafts) {
    if (out.size() >= static_cast<size_t>(at_most) || tries >= kTriesPerNeighbour * static_cast<size_t>(at_most)) break;
    if (!seen.insert(moves_text(d.schedule)).second) continue;
    ++tries;
    const Result<Kernel> scheduled = replay(problem.kernel, d.schedule);
    if (!scheduled.ok() || !cut(*scheduled).ok()) continue;
    d.schedule.numeric = scheduled->numeric;
    out.push_back({std::move(d.schedule), std::move(d.why)});
  }
  return out;
}

}  // namespace lathe::search
