// See bodies.h.
#include "search/strategy/bodies.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "search/strategy/prior.h"

namespace lathe::search {

namespace {

// Times of the settings at one length, 0 where unknown; number 0 is the default.
std::vector<double> times_at(const ServedLength& at, const std::vector<Knobs>& settings) {
  std::vector<double> out(settings.size(), 0);
  if (!at.measured.empty()) {
    std::map<Knobs, double> known;
    for (const auto& [knobs, us] : at.measured) known.emplace(knobs, us);
    out[0] = at.measured[0].second;
    for (size_t c = 1; c < settings.size(); ++c) {
      if (const auto it = known.find(settings[c]); it != known.end()) out[c] = it->second;
    }
    return out;
  }
  // Whatever the default takes: only what the others take of it matters.
  out[0] = 1;
  std::vector<int> points;
  for (size_t c = 1; c < settings.size(); ++c) points.push_back(std::max(at.search.space->nearest(settings[c]), 0));
  const std::vector<double> shares = cautious_shares(at.search, points);
  for (size_t c = 1; c < settings.size(); ++c) out[c] = std::exp2(-shares[c - 1]);
  return out;
}

}  // namespace

BodyPlan plan_bodies(const std::vector<ServedLength>& lengths, int k) {
  std::set<Knobs> distinct;
  for (const ServedLength& l : lengths) {
    for (const auto& [knobs, us] : l.measured) distinct.insert(knobs);
  }
  BodyPlan out;
  out.settings.push_back({});
  out.settings.insert(out.settings.end(), distinct.begin(), distinct.end());
  std::vector<int64_t> at;
  std::vector<std::vector<double>> us;
  for (const ServedLength& l : lengths) {
    at.push_back(l.length);
    us.push_back(times_at(l, out.settings));
  }
  out.rules = choose_bodies(at, us, k);
  return out;
}

}  // namespace lathe::search
