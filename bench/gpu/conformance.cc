// gpu_conformance: each function of jit/cuda/device_ops.def on a GPU and on a reference, which is an emulator behind
// the same interfaces: equal bytes, but for functions of CUDA's library, which may differ by a few units in the last
// place; and products by Hopper's tensor cores, in equal bytes (bench/gpu/products.h). Shows what printer and emulator
// believe alike and a GPU does not. Prints one JSON line; exit status 1 if something differs.
#include <dlfcn.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

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
    const SymbolValues dims = {{"N", kElements}};
    LATHE_ASSIGN(const Stage stage, build_device_stage(naive, dims, nullptr, device, *codes, {.compile = true}));
    const auto failed = std::make_shared<ir::Status>();
    const Stage hosted = hosted_stage(stage, session, failed);
    LATHE_ASSIGN(const auto bound, hosted.executable->bind(dims, {}, 1));
    std::vector<float> out(kElements, -7.5f);
    std::vector<void*> params;
    for (size_t i = 0; i + 1 < naive.buffers.size(); ++i) params.push_back(inputs[i].data());
    params.push_back(out.data());
    bound->run(params.data(), nullptr, nullptr);
    LATHE_RETURN_IF_ERROR(*failed);
    return out;
  }

  Result<std::vector<uint16_t>> run(const bench::ProductCase& c) {
    LATHE_ASSIGN(const ir::Kernel naive, ir::parse_kernel(bench::product_text(c)));
    LATHE_ASSIGN(const search::Scheduled made, search::hopper_schedule(search::general_kernel(naive), c.tile));
    const SymbolValues dims = {{"M", c.m}, {"N", c.n}, {"K", c.k}};
    LATHE_ASSIGN(const Stage stage, build_device_stage(naive, dims, &made.schedule, device, *codes, {.compile = true}));
    const auto failed = std::make_shared<ir::Status>();
    const Stage hosted = hosted_stage(stage, session, failed);
    LATHE_ASSIGN(const auto bound, hosted.executable->bind(dims, {}, 1));
    std::vector<uint16_t> a = bench::whole_numbers(c.type, c.m * c.k, 1),
                          b = bench::whole_numbers(c.type, c.n * c.k, 2), y(static_cast<size_t>(c.m * c.n), 0x7fff);
    void* params[] = {a.data(), b.data(), y.data()};
    bound->run(params, nullptr, nullptr);
    LATHE_RETURN_IF_ERROR(*failed);
    return y;
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

// Correctly rounded on both sides, or no arithmetic at all.
bool is_exact(std::string_view name) {
  for (const char* of_library : {"exp", "exp2", "log", "tanh", "erf", "rsqrt", "normal_cdf", "sigmoid", "sin", "cos"}) {
    if (name == of_library) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Functions of a GPU against an emulator's"};
  std::string cuda, nvrtc, reference_cuda, reference_nvrtc, reference_store;
  int number = 0;
  app.add_option("--device", number, "Number of the CUDA device");
  app.add_option("--cuda", cuda, "The driver's library");
  app.add_option("--nvrtc", nvrtc, "NVRTC's library");
  app.add_option("--reference-cuda", reference_cuda, "The emulator in the driver's place")->required();
  app.add_option("--reference-nvrtc", reference_nvrtc, "The compiler in NVRTC's place; needed where nothing is stored");
  app.add_option("--reference-store", reference_store, "Where code for the emulator is kept");
  CLI11_PARSE(app, argc, argv);
  Side gpu, reference;
  ir::Status opened = reference.open(reference_cuda, reference_nvrtc, 0, reference_store);
  if (opened.ok()) opened = gpu.open(cuda, nvrtc, number, "");
  nlohmann::json line = {{"schema", "lathe-conformance-1"}, {"event", "summary"}};
  if (!opened.ok()) {
    line["event"] = "error";
    line["message"] = opened.to_string();
    std::puts(line.dump().c_str());
    return 1;
  }
  std::vector<std::vector<float>> inputs = make_inputs();
  nlohmann::json failures = nlohmann::json::array();
  int checked = 0;
  int64_t worst = 0;
  for (const jit::DeviceOpRow& row : bench::kDeviceOps) {
    ++checked;
    const std::string chain = bench::chain_of(row);
    const auto want = reference.run(chain, inputs), got = gpu.run(chain, inputs);
    if (!want.ok() || !got.ok()) {
      failures.push_back(std::string(row.name) + ": " + (want.ok() ? got.status() : want.status()).to_string());
      continue;
    }
    int64_t most = 0;
    size_t at = 0;
    for (size_t i = 0; i < want->size(); ++i) {
      const int64_t ulp = ulp_between((*want)[i], (*got)[i]);
      if (ulp > most) at = i;
      most = std::max(most, ulp);
    }
    if (!is_exact(row.name)) worst = std::max(worst, most);
    if (most > (is_exact(row.name) ? 0 : kMostUlp))
      failures.push_back(fmt::format("{}({:.9g}, {:.9g}) is {:.9g}, expected {:.9g}", row.name, inputs[0][at],
                                     inputs[1][at], (*got)[at], (*want)[at]));
  }
  int products = 0;
  for (const bench::ProductCase& c : bench::kProductCases) {
    if (gpu.device->target().sm != reference.device->target().sm) break;
    ++checked;
    ++products;
    const auto want = reference.run(c), got = gpu.run(c);
    if (!want.ok() || !got.ok()) {
      failures.push_back(std::string(c.name) + ": " + (want.ok() ? got.status() : want.status()).to_string());
      continue;
    }
    const auto [at, other] = std::mismatch(want->begin(), want->end(), got->begin());
    if (at != want->end())
      failures.push_back(
          fmt::format("{}: element {} is {:#06x}, expected {:#06x}", c.name, at - want->begin(), *other, *at));
  }
  line["products"] = products;
  line["gpu"] = gpu.device->target().name;
  line["emulated"] = gpu.device->driver().emulated;
  line["checked"] = checked;
  line["failures"] = failures;
  line["worst_ulp"] = worst;
  std::puts(line.dump().c_str());
  return failures.empty() ? 0 : 1;
}
