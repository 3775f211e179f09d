// What every strategy shares: the first proposal is the default, no point is proposed twice, the budget counts
// measurements and not failures, a failed candidate is remembered and never waited for. A strategy adds pick().
#pragma once
#include <optional>
#include <random>

#include "search/strategy/strategy.h"

namespace lathe::search {

class StrategyBase : public Strategy {
 public:
  void start(const SearchProblem& problem) final;
  int next(std::span<Proposal> out) final;
  void tell(const Tell& outcome) final;

 protected:
  // A point that was never proposed, or nothing when the strategy has no more to say.
  virtual std::optional<Proposal> pick() = 0;
  virtual void on_start() {}
  virtual void on_tell(const Tell&) {}
  // Measurements it may ask for.
  virtual int budget() const { return problem_.budget; }

  struct Measured {
    int point;
    double us;
  };

  Space& space() const { return *problem_.space; }
  const SearchProblem& problem() const { return problem_; }
  bool seen(int point) const {
    return point < static_cast<int>(seen_.size()) && seen_[static_cast<size_t>(point)] != 0;
  }
  // Proposals so far, the default included.
  int proposed() const { return proposed_; }
  int waiting() const { return static_cast<int>(waiting_.size()); }
  const std::vector<int>& waiting_points() const { return waiting_; }  // proposed, nothing told of them yet
  const std::vector<Measured>& measured() const { return measured_; }  // timed ones, as they were told
  const Measured* best() const { return best_ < 0 ? nullptr : &measured_[static_cast<size_t>(best_)]; }
  // The n fastest, fastest first, ties by order of measurement.
  std::vector<Measured> best_few(int n) const;

  uint64_t below(uint64_t n) { return random_() % n; }
  double unit() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  // Uniform over the points not proposed yet; -1: none left.
  int random_unseen();
  // The first not proposed yet of the list; -1: none.
  int first_unseen(const std::vector<int>& points) const;

 private:
  SearchProblem problem_;
  std::mt19937_64 random_;
  std::vector<char> seen_;
  std::vector<Measured> measured_;
  int best_ = -1, proposed_ = 0, failed_ = 0;
  std::vector<int> waiting_;
};

// One neighbour of `point`, chosen at random (seen ones too); -1: it has none.
int random_neighbour(Space& space, int point, uint64_t random);

}  // namespace lathe::search
