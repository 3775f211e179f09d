// See profile.h.
#include "bench/decoder_loop/profile.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace lathe::decoder {

void Profile::add(const std::string& kernel, double seconds, double operations, double bytes) {
  Row& row = rows_[kernel];
  row.kernel = kernel;
  ++row.calls;
  row.seconds += seconds;
  row.operations += operations;
  row.bytes += bytes;
}

std::vector<Profile::Row> Profile::take(double seconds) {
  std::vector<Row> out;
  for (const auto& [name, row] : rows_) {
    out.push_back(row);
    seconds -= row.seconds;
  }
  std::sort(out.begin(), out.end(), [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  out.push_back({"the loop", 1, seconds, 0, 0});
  rows_.clear();
  return out;
}

nlohmann::json profile_json(const std::vector<Profile::Row>& rows, double seconds, const Rates& rates) {
  nlohmann::json out = nlohmann::json::array();
  for (const Profile::Row& r : rows) {
    nlohmann::json row = {
        {"kernel", r.kernel}, {"calls", r.calls}, {"us", r.seconds * 1e6}, {"of_time", r.seconds / seconds}};
    if (r.operations > 0) {
      row["of_peak"] = r.operations / r.seconds / rates.operations;
      row["of_read"] = r.bytes / r.seconds / rates.read;
    }
    out.push_back(row);
  }
  return out;
}

void print_profile(const char* what, const nlohmann::json& profile) {
  std::printf("%-32s %6s %10s %7s %7s %7s\n", what, "calls", "us", "of time", "of peak", "of read");
  for (const nlohmann::json& row : profile) {
    std::printf("%-32s %6lld %10.1f %7.3f", row["kernel"].get<std::string>().c_str(), row["calls"].get<long long>(),
                row["us"].get<double>(), row["of_time"].get<double>());
    if (row.contains("of_peak"))
      std::printf(" %7.3f %7.3f", row["of_peak"].get<double>(), row["of_read"].get<double>());
    std::printf("\n");
  }
}

}  // namespace lathe::decoder
