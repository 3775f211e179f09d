// The flat form of a matmul prototype's table as measured tasks: see measured_table.h. A size that covers its whole
// dimension becomes 0, as in the recipe's knobs.
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "bench/search/measured_table.h"
#include "ir/core/text_form.h"

namespace lathe::bench {

using ir::Result;
using nlohmann::json;

Result<std::vector<MeasuredTask>> parse_flat_table(const std::vector<std::string>& lines) {
  std::vector<MeasuredTask> out;
  std::map<std::tuple<int64_t, int64_t, int64_t, bool>, size_t> index;
  for (size_t i = 0; i < lines.size(); ++i) {
    const json j = json::parse(lines[i], nullptr, false);
    try {
      if (j.is_discarded()) return ir::invalid("line {}: not an object", i + 1);
      const json& task = j.at("task");
      const int64_t m = task.at("M"), n = task.at("N"), k = task.at("K");
      const bool cold = task.at("cold").get<int>() != 0;
      const auto [at, fresh] = index.emplace(std::tuple(m, n, k, cold), out.size());
      if (fresh) {
        MeasuredTask t;
        t.name = fmt::format("{}x{}x{}{}", m, n, k, cold ? "" : " hot");
        t.group = fmt::format("{}x{}", n, k);
        t.length = m;
        t.isa = "avx512";
        t.recipe = "panel.1";
        LATHE_ASSIGN(
            t.problem.kernel,
            ir::parse_kernel(fmt::format(
                "kernel matmul(a: f32[{0}, {2}] in, b: f32[{2}, {1}] const, y: f32[{0}, {1}] out) family matmul\n"
                "  c: f32[{0}, {1}] heap\n"
                "  for m < {0} [m]:\n"
                "    for n < {1} [n]:\n"
                "      c[m, n] = 0.0\n"
                "      for k < {2} [k]:\n"
                "        c[m, n] += a[m, k] * b[k, n]\n"
                "      y[m, n] = c[m, n]\n",
                m, n, k)));
        t.problem.cold = cold;
        for (const auto& [name, value] : j.at("cfg").items()) t.knob_names.push_back(name);
        out.push_back(std::move(t));
      }
      TableRow r;
      for (const auto& [name, value] : j.at("cfg").items()) r.knobs[name] = value;
      if (r.knobs["kc"] >= k) r.knobs["kc"] = 0;
      if (r.knobs["mc"] >= m) r.knobs["mc"] = 0;
      for (double us : j.at("us")) r.passes.push_back({us});
      if (j.contains("confirm")) r.confirm = j.at("confirm").get<std::vector<double>>();
      out[at->second].rows.push_back(std::move(r));
    } catch (const json::exception& e) {
      return ir::invalid("line {}: {}", i + 1, e.what());
    }
  }
  return out;
}

}  // namespace lathe::bench
