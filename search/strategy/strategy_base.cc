// See strategy_base.h.
#include "search/strategy/strategy_base.h"

#include <algorithm>

namespace lathe::search {

void StrategyBase::start(const SearchProblem& problem) {
  problem_ = problem;
  random_.seed(problem.seed);
  seen_.assign(static_cast<size_t>(problem.space->size()), 0);
  measured_.clear();
  best_ = -1;
  proposed_ = failed_ = 0;
  waiting_.clear();
  on_start();
}

int StrategyBase::next(std::span<Proposal> out) {
  // Failures cost no measurement, but a space of nothing but failures must end.
  const int most_failures = 4 * budget() + 16;
  int n = 0;
  while (n < static_cast<int>(out.size()) && proposed_ - failed_ < budget() && failed_ < most_failures) {
    std::optional<Proposal> p;
    if (proposed_ == 0) {
      p = Proposal{space().default_index(), "default", 0, 0};
    } else {
      p = pick();
    }
    if (!p || p->point < 0 || seen(p->point)) break;
    seen_.resize(static_cast<size_t>(std::max(space().size(), p->point + 1)), 0);
    seen_[static_cast<size_t>(p->point)] = 1;
    out[static_cast<size_t>(n++)] = *p;
    ++proposed_;
    waiting_.push_back(p->point);
  }
  return n;
}

void StrategyBase::tell(const Tell& outcome) {
  std::erase(waiting_, outcome.point);
  if (outcome.kind == Outcome::timed && outcome.us > 0) {
    measured_.push_back({outcome.point, outcome.us});
    const int last = static_cast<int>(measured_.size()) - 1;
    if (best_ < 0 || outcome.us < measured_[static_cast<size_t>(best_)].us) best_ = last;
  } else {
    ++failed_;
  }
  on_tell(outcome);
}

std::vector<StrategyBase::Measured> StrategyBase::best_few(int n) const {
  std::vector<Measured> out = measured_;
  std::stable_sort(out.begin(), out.end(), [](const Measured& a, const Measured& b) { return a.us < b.us; });
  if (static_cast<int>(out.size()) > n) out.resize(static_cast<size_t>(n));
  return out;
}

int StrategyBase::random_unseen() {
  const int size = space().size();
  for (int tries = 0; tries < 32; ++tries) {
    const int i = static_cast<int>(below(static_cast<uint64_t>(size)));
    if (!seen(i)) return i;
  }
  const int from = static_cast<int>(below(static_cast<uint64_t>(size)));
  for (int n = 0; n < size; ++n) {
    if (!seen((from + n) % size)) return (from + n) % size;
  }
  return -1;
}

int StrategyBase::first_unseen(const std::vector<int>& points) const {
  for (int p : points) {
    if (!seen(p)) return p;
  }
  return -1;
}

int random_neighbour(Space& space, int point, uint64_t random) {
  const std::vector<int> all = space.neighbours(point);
  return all.empty() ? -1 : all[random % all.size()];
}

}  // namespace lathe::search
