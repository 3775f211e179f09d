// gpu_conformance: each function of jit/cuda/device_ops.def on a GPU and on a reference, which is an emulator behind
// the same interfaces: equal bytes, but for functions of CUDA's library, which may differ by a few units in the last
// place; and products by tensor cores and reductions of rows, in equal bytes (bench/gpu/products.h). Shows what printer
// and emulator believe alike and a GPU does not. Prints one JSON line; exit status 1 if something differs.
#include <dlfcn.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "bench/gpu/held_products.h"
#include "bench/gpu/op_chains.h"
#include "bench/gpu/products.h"
#include "ir/core/text_form.h"
#include "runtime/cuda/device_stage.h"
#include "runtime/cuda/measure/hosted_stage.h"

namespace {

using namespace lathe;           // NOLINT: a program
using namespace lathe::runtime;  // NOLINT
using ir::Result;

constexpr int64_t kElements = 4099;
constexpr int64_t kMostUlp =
    8;  // of a function of CUDA's library, which documents up to 5 of one, and rounds in between

// A GPU, or what stands for one.
struct Side {
  std::shared_ptr<CudaDevice> device;
  std::shared_ptr<DeviceSession> session;
  std::unique_ptr<Store> store;
  Stats stats;
  std::unique_ptr<DeviceCodes> codes;

  ir::Status open(const std::string& cuda, const std::string& nvrtc, int number, const std::string& folder) {
    LATHE_ASSIGN(device, cuda_device(cuda, number));
    LATHE_ASSIGN(session, DeviceSession::open(device));
    StoreOptions options;
    options.cache_dir = folder;
    options.mode = folder.empty() ? StoreMode::off : StoreMode::read_write;
    LATHE_ASSIGN(store, Store::open(options, &stats));
    codes = std::make_unique<DeviceCodes>(nvrtc, store.get(), &stats);
    return {};
  }

  Result<std::vector<float>> run(const std::string& chain, std::vector<std::vector<float>>& inputs) {
    LATHE_ASSIGN(const ir::Kernel naive, ir::parse_kernel(chain));
    std::vector<float> out(kElements, -7.5f);
    std::vector<void*> params;
    for (size_t i = 0; i + 1 < naive.buffers.size(); ++i) params.push_back(inputs[i].data());
    params.push_back(out.data());
    LATHE_RETURN_IF_ERROR(run(naive, {{"N", kElements}}, nullptr, params.data()));
    return out;
  }

  Result<std::vector<uint16_t>> run(const bench::ProductCase& c) {
    LATHE_ASSIGN(const ir::Kernel naive, ir::parse_kernel(bench::product_text(c.type, c.turn_a, c.turn_b)));
    LATHE_ASSIGN(const search::Scheduled made, bench::scheduled(c, search::general_kernel(naive)));
    std::vector<uint16_t> a = bench::whole_numbers(c.type, c.m * c.k, 1),
                          b = bench::whole_numbers(c.type, c.n * c.k, 2), y(static_cast<size_t>(c.m * c.n), 0x7fff);
    void* params[] = {a.data(), b.data(), y.data()};
    LATHE_RETURN_IF_ERROR(run(naive, {{"M", c.m}, {"N", c.n}, {"K", c.k}}, &made.schedule, params));
    return y;
  }

  Result<std::vector<uint16_t>> run(const bench::HeldCase& c) {
    LATHE_ASSIGN(const ir::Kernel naive, ir::parse_kernel(bench::held_text(c)));
    LATHE_ASSIGN(const search::Scheduled made, search::tensor_attention(search::general_kernel(naive), c.tile));
    const int64_t depth = bench::kHeldDepth;
    std::vector<uint16_t> q = bench::whole_scores(c.type, c.queries * depth, 1),
                          k = bench::whole_scores(c.type, c.keys * depth, 2),
                          v = bench::whole_numbers(c.type, c.keys * depth, 3),
                          y(static_cast<size_t>(c.queries * depth), 0x7fff);
    void* params[] = {q.data(), k.data(), v.data(), y.data()};
    LATHE_RETURN_IF_ERROR(run(naive, {{"B", 1}, {"S", c.queries}, {"T", c.keys}}, &made.schedule, params));
    return y;
  }

  Result<std::vector<float>> run(const bench::FloatCase& c) {
    LATHE_ASSIGN(const ir::Kernel naive, ir::parse_kernel(bench::product_text("f32", c.turn_a, c.turn_b)));
    LATHE_ASSIGN(const search::Scheduled made, search::product_schedule(search::general_kernel(naive), c.tile));
    std::vector<float> a = whole_floats(c.m * c.k, 1), b = whole_floats(c.n * c.k, 2),
                       y(static_cast<size_t>(c.m * c.n), -7.5f);
    void* params[] = {a.data(), b.data(), y.data()};
    LATHE_RETURN_IF_ERROR(run(naive, {{"M", c.m}, {"N", c.n}, {"K", c.k}}, &made.schedule, params));
    return y;
  }

  Result<std::vector<float>> run(const bench::RowCase& c) {
    LATHE_ASSIGN(const ir::Kernel naive, ir::parse_kernel(bench::row_text(c)));
    std::vector<float> x = whole_floats(c.rows * c.columns, 1), y(static_cast<size_t>(c.rows), -7.5f);
    void* params[] = {x.data(), y.data()};
    LATHE_RETURN_IF_ERROR(run(naive, {{"M", c.rows}, {"N", c.columns}}, nullptr, params));
    return y;
  }

 private:
  static std::vector<float> whole_floats(int64_t count, uint64_t state) {
    std::vector<float> out;
    for (const uint16_t bits : bench::whole_numbers("bf16", count, state))
      out.push_back(std::bit_cast<float>(uint32_t{bits} << 16));
    return out;
  }
  ir::Status run(const ir::Kernel& naive, const SymbolValues& dims, const search::Schedule* schedule, void** params) {
    LATHE_ASSIGN(const Stage stage, build_device_stage(naive, dims, schedule, device, *codes, {.compile = true}));
    const auto failed = std::make_shared<ir::Status>();
    const Stage hosted = hosted_stage(stage, session, failed);
    LATHE_ASSIGN(const auto bound, hosted.executable->bind(dims, {}, 1));
    bound->run(params, nullptr, nullptr);
    return *failed;
  }
};

// Whatever bits there are, and those where functions are special.
std::vector<std::vector<float>> make_inputs() {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float special[] = {0.f, -0.f, 1.f, -1.f, inf, -inf, nan, 1e-45f, -1e-40f, 3.4e38f, 0.5f, -2.5f, 88.7f, -103.f};
  constexpr size_t kSpecial = std::size(special);
  std::vector<std::vector<float>> out(2, std::vector<float>(kElements));
  uint64_t state = 1;
  for (size_t i = 0; i < static_cast<size_t>(kElements); ++i) {
    for (size_t k = 0; k < 2; ++k) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const auto bits = static_cast<uint32_t>(state >> 32);
      float v = 0;
      std::memcpy(&v, &bits, sizeof v);
      out[k][i] = (i & 3) == 0 ? v : static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-26f;
    }
    if (i < kSpecial * kSpecial) {
      out[0][i] = special[i / kSpecial];
      out[1][i] = special[i % kSpecial];
    }
  }
  return out;
}

int64_t ulp_between(float a, float b) {
  if (std::isnan(a) && std::isnan(b)) return 0;
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<int64_t>::max();
  const auto place = [](float v) {
    int32_t bits = 0;
    std::memcpy(&bits, &v, sizeof bits);
    return bits < 0 ? int64_t{std::numeric_limits<int32_t>::min()} - bits : int64_t{bits};
  };
  return std::abs(place(a) - place(b));
}

// That of softmax is 0 below the normal numbers (docs/operators.md).
float normal(std::string_view name, float v) {
  return name == "exp2" && std::fabs(v) < std::numeric_limits<float>::min() ? 0 : v;
}

// Correctly rounded on both sides, or no arithmetic at all.
bool is_exact(std::string_view name) {
  for (const char* of_library : {"exp", "exp2", "log", "tanh", "erf", "rsqrt", "normal_cdf", "sigmoid", "sin", "cos"}) {
    if (name == of_library) return false;
  }
  return true;
}

// What is checked, by name, and what differs.
class Comparison {
 public:
  Comparison(Side& reference, Side& gpu, const std::vector<std::string>& only)
      : reference_(reference), gpu_(gpu), only_(only), inputs_(make_inputs()) {}

  void functions() {
    for (const jit::DeviceOpRow& row : bench::kDeviceOps) {
      if (!wanted(row.name)) continue;
      const std::string chain = bench::chain_of(row);
      const auto want = reference_.run(chain, inputs_), got = gpu_.run(chain, inputs_);
      if (!both_ran(row.name, want, got)) continue;
      int64_t most = 0;
      size_t at = 0;
      for (size_t i = 0; i < want->size(); ++i) {
        const int64_t ulp = ulp_between(normal(row.name, (*want)[i]), normal(row.name, (*got)[i]));
        if (ulp > most) at = i;
        most = std::max(most, ulp);
      }
      if (!is_exact(row.name)) worst_ = std::max(worst_, most);
      if (most > (is_exact(row.name) ? 0 : kMostUlp))
        failures_.push_back(fmt::format("{}({:.9g}, {:.9g}) is {:.9g}, expected {:.9g}", row.name, inputs_[0][at],
                                        inputs_[1][at], (*got)[at], (*want)[at]));
    }
  }

  template <class Case>
  void equal_bytes(const Case& c) {
    if (!wanted(c.name)) return;
    const auto want = reference_.run(c), got = gpu_.run(c);
    if (!both_ran(c.name, want, got)) return;
    ++together_;
    for (size_t i = 0; i < want->size(); ++i) {
      if (std::memcmp(&(*want)[i], &(*got)[i], sizeof(*want)[i]) == 0) continue;
      failures_.push_back(fmt::format("{}: element {} is {}, expected {}", c.name, i, (*got)[i], (*want)[i]));
      return;
    }
  }

  void say(nlohmann::json& line) const {
    line["together"] = together_;
    line["checked"] = checked_;
    line["failures"] = failures_;
    line["worst_ulp"] = worst_;
  }
  bool failed() const { return !failures_.empty(); }

 private:
  bool wanted(const std::string& name) const {
    return only_.empty() || std::find(only_.begin(), only_.end(), name) != only_.end();
  }
  template <class T>
  bool both_ran(const std::string& name, const Result<T>& want, const Result<T>& got) {
    ++checked_;
    if (!want.ok() || !got.ok())
      failures_.push_back(name + ": " + (want.ok() ? got.status() : want.status()).to_string());
    return want.ok() && got.ok();
  }

  Side &reference_, &gpu_;
  const std::vector<std::string>& only_;
  std::vector<std::vector<float>> inputs_;
  std::vector<std::string> failures_;
  int checked_ = 0, together_ = 0;
  int64_t worst_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Functions of a GPU against an emulator's"};
  std::string cuda, nvrtc, store, reference_cuda, reference_nvrtc, reference_store;
  std::vector<std::string> only;
  int number = 0;
  app.add_option("--only", only, "What is checked, by name; may be repeated");
  app.add_option("--device", number, "Number of the CUDA device");
  app.add_option("--cuda", cuda, "The driver's library");
  app.add_option("--nvrtc", nvrtc, "NVRTC's library");
  app.add_option("--store", store, "Where code for the GPU is kept");
  app.add_option("--reference-cuda", reference_cuda, "The emulator in the driver's place")->required();
  app.add_option("--reference-nvrtc", reference_nvrtc, "The compiler in NVRTC's place; needed where nothing is stored");
  app.add_option("--reference-store", reference_store, "Where code for the emulator is kept");
  CLI11_PARSE(app, argc, argv);
  Side gpu, reference;
  ir::Status opened = reference.open(reference_cuda, reference_nvrtc, 0, reference_store);
  if (opened.ok()) opened = gpu.open(cuda, nvrtc, number, store);
  nlohmann::json line = {{"schema", "lathe-conformance-1"}, {"event", "summary"}};
  if (!opened.ok()) {
    line["event"] = "error";
    line["message"] = opened.to_string();
    std::puts(line.dump().c_str());
    return 1;
  }
  Comparison comparison(reference, gpu, only);
  comparison.functions();
  for (const bench::RowCase& c : bench::kRowCases) comparison.equal_bytes(c);
  for (const bench::ProductCase& c : bench::kWarpCases) comparison.equal_bytes(c);
  for (const bench::FloatCase& c : bench::kFloatCases) comparison.equal_bytes(c);
  if (gpu.device->target().sm == bench::kHopper && reference.device->target().sm == bench::kHopper) {
    for (const bench::ProductCase& c : bench::kProductCases) comparison.equal_bytes(c);
    for (const bench::HeldCase& c : bench::kHeldCases) comparison.equal_bytes(c);
  }
  line["gpu"] = gpu.device->target().name;
  line["emulated"] = gpu.device->driver().emulated;
  comparison.say(line);
  std::puts(line.dump().c_str());
  return comparison.failed() ? 1 : 0;
}
