// See device_bench.h.
#include "runtime/bench/device_bench.h"

#include <algorithm>

#include "runtime/bench/bench_operands.h"
#include "runtime/measure/timing.h"
#include "runtime/measure/work.h"
#include "runtime/oracle/data_sets.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

constexpr int64_t kBeyondCaches = int64_t{128} << 20;  // of all copies together: the largest L2 has 60 MB
constexpr int64_t kLeastCopy = 4096;
constexpr size_t kAlign = 256;
constexpr int kMostRounds = 101;

// Copies of the operands of a call, by copy and argument, and a workspace.
struct Operands {
  std::vector<DeviceMemory> memory;
  std::vector<std::vector<void*>> args;
  DeviceMemory workspace;
};

}  // namespace

Result<DeviceBenchRow> DeviceBench::run(const SymbolValues& dims, const DeviceGraph* peer) {
  DeviceSession& s = *session_;
  std::vector<TensorPacking> packings;
  bool packed = false;
  for (size_t a = 0; a < op_->arg_tensors().size(); ++a) {
    LATHE_ASSIGN(TensorPacking packing, op_->stages().packing(static_cast<int>(a), dims));
    packed |= !packing.parts.empty();
    packings.push_back(std::move(packing));
  }
  LATHE_ASSIGN(const BoundOp* bound, op_->shapes().bound({.symbols = dims, .packed = packed}));
  if (bound->empty) return ir::unsupported("no output has an element: nothing runs");
  const Work work = work_at(op_->graph(), dims);
  const double bytes = work.read_bytes + work.write_bytes;
  int64_t copies = 1;
  if (options_.cold)
    copies = std::clamp<int64_t>(static_cast<int64_t>(static_cast<double>(kBeyondCaches) / std::max(bytes, 1.0)) + 1, 1,
                                 DeviceSession::kLaunches);
  if (static_cast<double>(copies) * bytes > static_cast<double>(options_.ram))
    return ir::unsupported("its operands need more than {} MiB", options_.ram >> 20);
  Operands operands;
  for (int64_t c = 0; c < copies; ++c) {
    operands.args.emplace_back();
    for (size_t a = 0; a < op_->arg_tensors().size(); ++a) {
      const ops::TensorDesc& tensor = op_->graph().tensors[static_cast<size_t>(op_->arg_tensors()[a])];
      LATHE_ASSIGN(const std::optional<ir::SymbolRange> values, argument_values(*op_, a, dims));
      const int64_t size = ir::dtype_bytes(tensor.dtype, span_at(tensor, dims));
      LATHE_ASSIGN(DeviceMemory memory, DeviceMemory::map(s.device(), static_cast<size_t>(size), kAlign));
      std::vector<char> data(static_cast<size_t>(size));
      fill_argument(*op_, a, dims, values, options_.seed + operands.memory.size(), data.data(), size);
      LATHE_RETURN_IF_ERROR(s.to_device(memory.data(), data.data(), data.size()));
      LATHE_RETURN_IF_ERROR(s.finish());
      if (!packings[a].parts.empty()) {
        const auto bytes = static_cast<size_t>(packings[a].bytes);
        LATHE_ASSIGN(DeviceMemory form, DeviceMemory::map(s.device(), bytes, kAlign));
        LATHE_RETURN_IF_ERROR(launch_pack(packings[a], memory.data(), form.data(), s.stream()));
        LATHE_RETURN_IF_ERROR(s.finish());
        memory = std::move(form);
      }
      operands.args.back().push_back(memory.data());
      operands.memory.push_back(std::move(memory));
    }
  }
  LATHE_ASSIGN(operands.workspace, DeviceMemory::map(s.device(), static_cast<size_t>(bound->workspace_bytes), kAlign));
  size_t next = 0;
  LATHE_ASSIGN(const std::unique_ptr<DeviceGraph> calls, s.record([&](void* stream) {
    return bound->launch(operands.args[next++ % operands.args.size()].data(), operands.workspace.data(), stream);
  }));
  // Half of the bytes are read, half written, from places that rotate as the operands do.
  const auto copied = std::max(static_cast<size_t>(bytes / 2), static_cast<size_t>(kLeastCopy));
  std::vector<DeviceMemory> places;
  for (int64_t i = 0; i < 2 * copies; ++i) {
    LATHE_ASSIGN(DeviceMemory place, DeviceMemory::map(s.device(), copied, kAlign));
    places.push_back(std::move(place));
  }
  size_t place = 0;
  LATHE_ASSIGN(const std::unique_ptr<DeviceGraph> copying, s.record([&](void*) {
    const size_t from = place, to = place + 1;
    place = (place + 2) % places.size();
    return s.copy(places[to].data(), places[from].data(), copied);
  }));
  DeviceBenchRow row;
  row.tier = bound->tier;
  std::vector<double> copy_us, ratios, peer_us, peer_ratios;
  LATHE_ASSIGN(const double warm, s.time(*calls));
  if (peer != nullptr) LATHE_RETURN_IF_ERROR(s.time(*peer).status());
  const double round_us = std::max(warm * calls->launches(), 1.0);
  const int rounds =
      std::clamp(static_cast<int>(1e3 * options_.row_ms / (2 * round_us)), options_.min_rounds, kMostRounds);
  for (row.rounds = 0; row.rounds < rounds; ++row.rounds) {
    LATHE_ASSIGN(const double us, s.time(*calls));
    LATHE_ASSIGN(const double copy, s.time(*copying));
    row.samples.push_back(us);
    copy_us.push_back(copy);
    ratios.push_back(copy / std::max(us, 1e-9) * bytes / (2 * static_cast<double>(copied)));
    if (peer == nullptr) continue;
    LATHE_ASSIGN(const double theirs, s.time(*peer));
    peer_us.push_back(theirs);
    peer_ratios.push_back(theirs / std::max(us, 1e-9));
  }
  std::vector<double> sorted = row.samples;
  std::sort(sorted.begin(), sorted.end());
  row.us = median_of(row.samples);
  row.min_us = sorted.front();
  row.spread = (sorted[sorted.size() * 3 / 4] - sorted[sorted.size() / 4]) / std::max(row.us, 1e-9);
  row.gbs = bytes / std::max(row.us, 1e-9) * 1e-3;
  row.tflops = work.flops / std::max(row.us, 1e-9) * 1e-6;
  row.copy_gbs = 2 * static_cast<double>(copied) / std::max(median_of(copy_us), 1e-9) * 1e-3;
  row.of_copy = median_of(ratios);
  if (peer != nullptr) {
    row.peer_us = median_of(peer_us);
    row.of_peer = median_of(peer_ratios);
  }
  return row;
}

}  // namespace lathe::runtime
