// Products of awkward sizes, Lathe's default Schedules against cblas_sgemm of an OpenBLAS opened by name: one thread,
// operands in the cache, turn by turn, results compared first. Lathe is called through its C ABI as a host calls it; a
// constant weight is prepacked, which OpenBLAS cannot do. OPENBLAS_CORETYPE says which kernels OpenBLAS takes (SkylakeX
// on a CPU with AVX-512 that it does not know).
//
//   openblas --library PATH/libscipy_openblas.so
#include <dlfcn.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

#include "include/lathe.h"
#include "runtime/base/clock.h"
#include "runtime/oracle/data_sets.h"

namespace {

using lathe::runtime::now_us;

// y[b, g, m, n] = sum over k of a[b, g, m, k] * w[b, k, n], or w[b, n, k]: `groups` products share each w.
struct Product {
  int64_t m, n, k;
  bool constant = true, transposed = false;
  int64_t batch = 1, groups = 1;
  std::string name() const {
    const char* kind = constant ? "" : transposed ? "_bt" : "_b";
    return batch * groups > 1 ? fmt::format("{}x{}x{}x{}x{}{}", batch, groups, m, k, n, kind)
                              : fmt::format("{}x{}x{}{}", m, k, n, kind);
  }
};

// One over, one under and half-way between tiles of 6 x 16 and 8 x 32, 30 to 400; then scores and values of 14 query
// heads over 2 key heads.
std::vector<Product> products() {
  std::vector<Product> out;
  const int64_t sizes[][3] = {{31, 33, 64},    {37, 49, 96},    {49, 40, 65},   {61, 65, 128},   {97, 81, 100},
                              {100, 129, 127}, {127, 127, 256}, {199, 200, 96}, {257, 255, 192}, {385, 399, 300}};
  for (const bool constant : {true, false}) {
    for (const auto& [m, n, k] : sizes) out.push_back({m, n, k, constant});
  }
  for (const auto& [m, n, k] : sizes) out.push_back({m, n, k, false, true});
  for (const int64_t length : {128, 255, 512}) {
    out.push_back({length, length, 64, false, true, 2, 7});
    out.push_back({length, 64, length, false, false, 2, 7});
  }
  return out;
}

using Sgemm = void (*)(int order, int ta, int tb, int m, int n, int k, float alpha, const float* a, int lda,
                       const float* b, int ldb, float beta, float* c, int ldc);

struct Flags {
  std::string library, filter;
  bool json = false;
  int rounds = 15;
};

// Cache lines apart from the starts of pages: operands that all start at one offset of their pages compete for the same
// lines.
struct Floats {
  explicit Floats(int64_t n, int line)
      : count(n),
        memory(
            static_cast<char*>(std::aligned_alloc(4096, (static_cast<size_t>(n) * 4 + 64 * 64 + 4095) / 4096 * 4096)),
            std::free),
        data(reinterpret_cast<float*>(memory.get() + 64 * line)) {}
  void fill(uint64_t seed) {
    lathe::runtime::fill_tame(lathe::ir::DType::f32, seed, reinterpret_cast<char*>(data), 4 * count);
  }
  int64_t count;
  std::unique_ptr<char, void (*)(void*)> memory;
  float* data;
};

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

// Throws a text: this is a program of its own.
void check(const char* what, lathe_status status, const lathe_error& error) {
  if (status != LATHE_STATUS_OK)
    throw std::runtime_error(fmt::format("{}: {}: {}", what, lathe_status_name(status), error.message));
}

struct Handles {
  ~Handles() {
    lathe_pinned_destroy(pinned);
    lathe_kernel_destroy(kernel);
    lathe_graph_destroy(graph);
  }
  lathe_graph* graph = nullptr;
  lathe_kernel* kernel = nullptr;
  lathe_pinned* pinned = nullptr;
};

class Comparison {
 public:
  Comparison(lathe_context* context, Sgemm sgemm, const Product& p)
      : p_(p),
        sgemm_(sgemm),
        a_(p.batch * p.groups * p.m * p.k, 3),
        b_(p.batch * p.k * p.n, 17),
        ours_(p.batch * p.groups * p.m * p.n, 29),
        theirs_(p.batch * p.groups * p.m * p.n, 29),
        packed_(1, 0),
        workspace_(1, 0) {
    a_.fill(1);
    b_.fill(2);
    resolve(context);
  }

  // Ratio of OpenBLAS's time to Lathe's: above 1 Lathe is ahead.
  double run(int rounds, double* ours_us, double* theirs_us) {
    lathe();
    openblas();
    double most = 0;
    for (int64_t i = 0; i < p_.batch * p_.groups * p_.m * p_.n; ++i)
      most = std::max(most, static_cast<double>(std::fabs(ours_.data[i] - theirs_.data[i])));
    if (!(most <= 1e-5 * static_cast<double>(p_.k)))
      throw std::runtime_error(fmt::format("results differ by {:.3g}", most));
    const auto time = [&](auto&& call, int64_t reps) {
      double best = 0;
      for (int again = 0; again < 3; ++again) {
        const double start = now_us();
        for (int64_t r = 0; r < reps; ++r) call();
        const double us = (now_us() - start) / static_cast<double>(reps);
        if (again == 0 || us < best) best = us;
      }
      return best;
    };
    const auto ours = [&] { lathe(); };
    const auto theirs = [&] { openblas(); };
    const int64_t reps = static_cast<int64_t>(200 / std::max(std::min(time(ours, 1), time(theirs, 1)), 0.01)) + 1;
    std::vector<double> o, t, ratios;
    for (int round = 0; round < rounds; ++round) {
      if (round % 2 == 0) o.push_back(time(ours, reps));
      t.push_back(time(theirs, reps));
      if (round % 2 != 0) o.push_back(time(ours, reps));
      ratios.push_back(t.back() / o.back());
    }
    *ours_us = median(o);
    *theirs_us = median(t);
    return median(ratios);
  }

 private:
  void lathe() {
    float* args[] = {a_.data, layout_ != 0 ? packed_.data : b_.data, ours_.data};
    (void)lathe_pinned_run(handles_.pinned, reinterpret_cast<void* const*>(args), &exec_);
  }
  void openblas() {
    constexpr int kRowMajor = 101, kNo = 111, kYes = 112;
    for (int64_t i = 0; i < p_.batch * p_.groups; ++i) {
      sgemm_(kRowMajor, kNo, p_.transposed ? kYes : kNo, static_cast<int>(p_.m), static_cast<int>(p_.n),
             static_cast<int>(p_.k), 1, a_.data + i * p_.m * p_.k, static_cast<int>(p_.k),
             b_.data + i / p_.groups * p_.k * p_.n, static_cast<int>(p_.transposed ? p_.k : p_.n), 0,
             theirs_.data + i * p_.m * p_.n, static_cast<int>(p_.n));
    }
  }

  std::vector<int64_t> shape(int64_t rows, int64_t columns, bool grouped) const {
    if (p_.batch * p_.groups == 1) return {rows, columns};
    return {p_.batch, grouped ? p_.groups : 1, rows, columns};
  }

  void resolve(lathe_context* context) {
    lathe_error error = {};
    std::vector<std::vector<int64_t>> shapes = {shape(p_.m, p_.k, true),
                                                p_.transposed ? shape(p_.n, p_.k, false) : shape(p_.k, p_.n, false),
                                                shape(p_.m, p_.n, true)};
    std::vector<std::vector<lathe_dim>> dims(2);
    std::vector<lathe_tensor_desc> descs;
    for (int t = 0; t < 2; ++t) {
      for (const int64_t size : shapes[static_cast<size_t>(t)])
        dims[static_cast<size_t>(t)].push_back({size, size, 1, nullptr, nullptr, 0});
      lathe_tensor_desc desc = LATHE_TENSOR_DESC_INIT;
      desc.name = t == 0 ? "a" : "b";
      desc.ndim = static_cast<int32_t>(dims[static_cast<size_t>(t)].size());
      desc.dims = dims[static_cast<size_t>(t)].data();
      desc.flags = t == 1 && p_.constant ? LATHE_TENSOR_CONST : 0;
      descs.push_back(desc);
    }
    lathe_attr attr = {};
    attr.name = "transpose_b";
    attr.type = LATHE_ATTR_BOOL;
    attr.i = p_.transposed;
    check("graph", lathe_graph_single(context, "matmul", descs.data(), descs.size(), &attr, 1, &handles_.graph, &error),
          error);
    check("resolve", lathe_resolve(context, handles_.graph, nullptr, &handles_.kernel, nullptr, &error), error);
    std::vector<lathe_tensor> tensors(3);
    float* data[] = {a_.data, b_.data, ours_.data};
    for (size_t t = 0; t < 3; ++t) {
      tensors[t].data = data[t];
      tensors[t].device.type = 1;
      tensors[t].dtype = {2, 32, 1};
      tensors[t].ndim = static_cast<int32_t>(shapes[t].size());
      tensors[t].shape = shapes[t].data();
    }
    std::vector<lathe_arg> args(3);
    for (size_t t = 0; t < 3; ++t) args[t].tensor = &tensors[t];
    if (p_.constant) {
      lathe_pack_info info = {};
      check("prepack_query", lathe_prepack_query(handles_.kernel, 1, &info, &error), error);
      if (info.bytes > 0) {
        packed_ = Floats(static_cast<int64_t>(info.bytes / 4), 17);
        check("prepack", lathe_prepack(handles_.kernel, 1, &tensors[1], packed_.data, info.bytes, &error), error);
        args[1].layout_id = layout_ = info.layout_id;
        tensors[1].data = packed_.data;
      }
    }
    check("pin", lathe_pin(handles_.kernel, args.data(), args.size(), 1, &handles_.pinned, &error), error);
    exec_.workspace_bytes = lathe_pinned_workspace_bytes(handles_.pinned);
    workspace_ = Floats(static_cast<int64_t>(exec_.workspace_bytes / 4) + 16, 41);
    exec_.workspace = workspace_.data;
  }

  Product p_;
  Sgemm sgemm_;
  Floats a_, b_, ours_, theirs_, packed_, workspace_;
  Handles handles_;
  uint64_t layout_ = 0;
  lathe_exec exec_ = LATHE_EXEC_INIT;
};

int run(const Flags& flags) {
  void* library = dlopen(flags.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(fmt::format("{}; --library takes a libopenblas.so", dlerror()));
  const auto find = [&](const std::string& name) {
    void* const plain = dlsym(library, name.c_str());
    return plain != nullptr ? plain : dlsym(library, ("scipy_" + name).c_str());
  };
  const auto sgemm = reinterpret_cast<Sgemm>(find("cblas_sgemm"));
  const auto threads = reinterpret_cast<void (*)(int)>(find("openblas_set_num_threads"));
  if (sgemm == nullptr || threads == nullptr)
    throw std::runtime_error(flags.library + " has no cblas_sgemm or openblas_set_num_threads");
  threads(1);
  lathe_context* context = nullptr;
  lathe_error error = {};
  check("context", lathe_context_create(nullptr, &context, &error), error);
  const std::regex wanted(flags.filter);
  double logs = 0, worst = 0;
  int rows = 0;
  for (const Product& p : products()) {
    if (!std::regex_search(p.name(), wanted)) continue;
    double ours = 0, theirs = 0;
    const double ratio = Comparison(context, sgemm, p).run(flags.rounds, &ours, &theirs);
    if (flags.json) {
      fmt::print(
          "{}\n",
          nlohmann::json{{"event", "row"}, {"case", p.name()}, {"us", ours}, {"openblas_us", theirs}, {"ratio", ratio}}
              .dump());
    } else {
      fmt::print("{:<22} {:>9.2f} us  openblas {:>9.2f} us  {:.3f}\n", p.name(), ours, theirs, ratio);
    }
    std::fflush(stdout);
    worst = rows++ == 0 ? ratio : std::min(worst, ratio);
    logs += std::log(ratio);
  }
  lathe_context_destroy(context);
  const double mean = rows > 0 ? std::exp(logs / rows) : 0;
  if (flags.json) {
    fmt::print("{}\n",
               nlohmann::json{{"event", "summary"}, {"rows", rows}, {"worst", worst}, {"geomean", mean}}.dump());
  } else {
    fmt::print("{} rows; OpenBLAS's time over Lathe's: worst {:.3f}, geometric mean {:.3f}\n", rows, worst, mean);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app{"Lathe's default Schedules against OpenBLAS, one thread, operands in the cache."};
  app.add_option("--library", flags.library, "libopenblas.so to compare with")->required();
  app.add_flag("--json", flags.json, "one object per line");
  app.add_option("--filter", flags.filter, "regular expression over the names of products");
  app.add_option("--rounds", flags.rounds, "turns of each product");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(flags);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
