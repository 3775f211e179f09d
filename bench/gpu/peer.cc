// gpu_peer: times of cuBLASLt on a GPU, a JSON line for each product that is named, as `lathe bench --device` has them.
// Without the library it says so, and its exit status is 3.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "bench/gpu/cublaslt.h"

namespace {

using namespace lathe;  // NOLINT: a program

int say(const char* event, const std::string& message, int code) {
  const nlohmann::json line = {{"schema", "lathe-peer-1"}, {"event", event}, {"message", message}};
  std::puts(line.dump().c_str());
  return code;
}

// "4096x4096x4096", "1x8192x8192t" (b has rows of k), each with "bf16:" in front or not.
bool parse(const std::string& text, bench::Product* out) {
  const size_t colon = text.find(':');
  const std::string type = colon == std::string::npos ? "f32" : text.substr(0, colon);
  const std::string sizes = colon == std::string::npos ? text : text.substr(colon + 1);
  char last = 0;
  long long m = 0, n = 0, k = 0;
  const int read = std::sscanf(sizes.c_str(), "%lldx%lldx%lld%c", &m, &n, &k, &last);
  *out = {m, n, k, type == "bf16", last == 't'};
  return read >= 3 && (type == "f32" || type == "bf16") && m > 0 && n > 0 && k > 0 && (read == 3 || last == 't');
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kNoLibrary = 3;
  CLI::App app{"Products by cuBLASLt"};
  std::string cuda, library;
  std::vector<std::string> products;
  int number = 0, rounds = 9;
  app.add_option("--device", number, "Number of the CUDA device");
  app.add_option("--cuda", cuda, "The driver's library");
  app.add_option("--cublaslt", library, "cuBLASLt's library");
  app.add_option("--rounds", rounds, "Graphs of 20 launches each")->check(CLI::Range(1, 1000));
  app.add_option("products", products, "MxNxK, bf16:MxNxKt, ...")->required();
  CLI11_PARSE(app, argc, argv);
  std::vector<bench::Product> wanted;
  for (const std::string& text : products) {
    if (!parse(text, &wanted.emplace_back())) return say("error", text + ": expected MxNxK", 2);
  }
  const auto device = runtime::cuda_device(cuda, number);
  if (!device.ok()) return say("error", device.status().message(), 1);
  auto opened = runtime::DeviceSession::open(*device);
  if (!opened.ok()) return say("error", opened.status().message(), 1);
  const std::shared_ptr<runtime::DeviceSession> session = std::move(*opened);
  const auto peer = bench::CublasLt::open(library, session);
  if (!peer.ok()) return say("skipped", peer.status().message(), kNoLibrary);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto us = (*peer)->time(wanted[i], rounds);
    nlohmann::json line = {{"schema", "lathe-peer-1"}, {"event", "row"}, {"product", products[i]}};
    if (us.ok())
      line["us"] = *us;
    else
      line["note"] = us.status().message();
    std::puts(line.dump().c_str());
  }
  return 0;
}
