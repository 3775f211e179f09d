// The page of a tuning run: a table of the operators, a roofline, the search curves. One file, no script, nothing
// fetched.
#pragma once
#include <string>
#include <vector>

namespace lathe::tools {

struct ReportOp {
  std::string op, dims, schedule, verdict;  // verdict: "won", "tie", "stored", "pinned", ...
  double default_us = 0, best_us = 0;       // 0: not measured
  double of_roofline = 0;                   // share, 0: not known
  double flops = 0, bytes = 0;              // of one call, compulsory
  double weight = 1;                        // calls
  int measurements = 0;
  std::vector<double> curve;                        // us, best so far after each measurement
  std::vector<std::pair<double, double>> expected;  // us of a candidate as the search expected it, and as measured
};

struct ReportPage {
  std::string title, machine;
  double peak_gflops = 0, read_gbs = 0;  // of the threads used
  std::vector<ReportOp> ops;
  double seconds = 0;
  int measurements = 0;
};

std::string html_report(const ReportPage& page);

}  // namespace lathe::tools
