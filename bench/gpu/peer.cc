// gpu_peer: products of a workload as Lathe serves them on a GPU, and cuBLASLt beside them in the same rounds, a JSON
// line for each. Without the library it says so, and its exit status is 3. Options of Lathe are those of the
// environment.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "bench/gpu/cublaslt.h"
#include "ops/manifest.h"
#include "ops/op_table.h"
#include "runtime/base/read_file.h"
#include "runtime/bench/device_bench.h"
#include "runtime/cuda/device_choice.h"
#include "runtime/serve/operator.h"

namespace {

using namespace lathe;           // NOLINT: a program
using namespace lathe::runtime;  // NOLINT
using ir::Result;
using nlohmann::json;

json line_of(const char* event) { return {{"schema", "lathe-peer-2"}, {"event", event}}; }
int say(const char* event, const std::string& message, int code) {
  json line = line_of(event);
  line["message"] = message;
  std::puts(line.dump().c_str());
  return code;
}

// UNSUPPORTED: it is not one product of two matrices of known sizes and one type.
Result<bench::Product> product_of(const ops::Graph& g) {
  const auto fixed = [](const ops::TensorDesc& t) {
    return t.dims.size() == 2 && t.strides.empty() && t.dims[0].fixed() && t.dims[1].fixed();
  };
  if (g.nodes.size() != 1 || g.nodes[0].op != "matmul") return ir::unsupported("it is not one matmul");
  const ops::Node& node = g.nodes[0];
  const ops::TensorDesc &a = g.tensors[static_cast<size_t>(node.inputs[0])],
                        &b = g.tensors[static_cast<size_t>(node.inputs[1])],
                        &y = g.tensors[static_cast<size_t>(node.output)];
  if (!fixed(a) || !fixed(b) || a.dtype != b.dtype || a.dtype != y.dtype)
    return ir::unsupported("no matrices of known sizes and one type");
  if (a.dtype != ir::DType::f32 && a.dtype != ir::DType::bf16) return ir::unsupported("of {}", ir::dtype_name(a.dtype));
  if (ops::attr_bool(node, ops::AttrId::transpose_a)) return ir::unsupported("its first factor is turned");
  const bool b_rows = ops::attr_bool(node, ops::AttrId::transpose_b);
  return bench::Product{a.dims[0].max, b.dims[b_rows ? 0 : 1].max, a.dims[1].max, a.dtype == ir::DType::bf16, b_rows};
}

Result<DeviceBenchRow> run(const ops::Graph& graph, const ops::Workload& item, const std::shared_ptr<Context>& context,
                           const DeviceChoice& on, const std::shared_ptr<DeviceSession>& session, bench::CublasLt& peer,
                           const BenchOptions& options) {
  LATHE_ASSIGN(const bench::Product product, product_of(graph));
  LATHE_ASSIGN(const bench::CublasLt::Prepared theirs, peer.prepare(product));
  LATHE_ASSIGN(const std::shared_ptr<Operator> op, Operator::create(context, graph));
  PrepareRequest request;
  request.allowed = item.allowed;
  request.device = on.number;
  request.compile = true;
  LATHE_RETURN_IF_ERROR(op->stages().prepare_on_device(request).status());
  return DeviceBench(op, session, options).run({}, theirs.graph.get());
}

Result<std::shared_ptr<Context>> context_with(const std::string& store) {
  ContextConfig config;
  LATHE_ASSIGN(config.options, ir::Options::from_environment());
  if (!store.empty()) LATHE_RETURN_IF_ERROR(config.options.set(ir::OptionId::cache_dir, store));
  return Context::create(std::move(config));
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kNoLibrary = 3;
  CLI::App app{"Products beside cuBLASLt's"};
  std::string library, store, manifest, device = "0";
  BenchOptions options;
  app.add_option("--device", device, "Number of the CUDA device");
  app.add_option("--cublaslt", library, "cuBLASLt's library");
  app.add_option("--store", store, "Where code and decisions are; an absolute path");
  app.add_option("--row-ms", options.row_ms, "Aim for each product");
  app.add_option("--rounds", options.min_rounds, "At least")->check(CLI::Range(1, 1000));
  app.add_option("workload", manifest, "Operators of which products are timed")->required();
  CLI11_PARSE(app, argc, argv);
  const auto text = read_file(manifest);
  if (!text.ok()) return say("error", text.status().message(), 2);
  const auto items = ops::parse_manifest(*text);
  if (!items.ok()) return say("error", items.status().message(), 2);
  const auto context = context_with(store);
  if (!context.ok()) return say("error", context.status().message(), 2);
  const auto on = choose_device((*context)->options().text(ir::OptionId::cuda), device);
  if (!on.ok()) return say("error", on.status().message(), 1);
  if (on->device == nullptr) return say("error", device + " is a kind: nothing runs without a device", 2);
  auto opened = DeviceSession::open(on->device);
  if (!opened.ok()) return say("error", opened.status().message(), 1);
  const std::shared_ptr<DeviceSession> session = std::move(*opened);
  const auto peer = bench::CublasLt::open(library, session);
  if (!peer.ok()) return say("skipped", peer.status().message(), kNoLibrary);
  bool failed = false;
  for (const ops::Workload& item : *items) {
    const auto graph = ops::finish(item.graph);
    if (graph.ok() && !product_of(*graph).ok()) continue;
    const Result<DeviceBenchRow> row = graph.ok() ? run(*graph, item, *context, *on, session, **peer, options)
                                                  : Result<DeviceBenchRow>(graph.status());
    json line = line_of("row");
    line["op"] = item.name;
    if (row.ok()) {
      line["us"] = row->us;
      line["tier"] = row->tier;
      line["tflops"] = row->tflops;
      line["spread"] = row->spread;
      line["peer_us"] = row->peer_us;
      line["of_peer"] = row->of_peer;
    } else {
      line["note"] = row.status().message();
      failed = true;
    }
    std::puts(line.dump().c_str());
    std::fflush(stdout);
    if (!on->device->working().ok()) break;
  }
  return failed ? 1 : 0;
}
