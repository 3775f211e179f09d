// Manifests: what is refused and how it is named, and writing as the inverse of reading.
#include "ops/manifest.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/analysis/verifier.h"
#include "ir/core/text_form.h"
#include "ops/lower.h"

namespace lathe::ops {
namespace {

const char* kGate =
    R"({"name":"gate","graph":{"tensors":{"x":{"dtype":"f32","dims":["M",896]},"w":{"dtype":"f32","dims":[4864,896],"const":true}},"nodes":[{"op":"matmul","in":["x","w"],"out":"y","attrs":{"transpose_b":true}}],"outputs":["y"]},"dims":{"M":{"min":1,"max":4096,"multiple_of":1,"hints":[{"value":1,"weight":1}]}},"threads":1,"cache":"cold","allowed":[],"weight":24})";

std::string replaced(const std::string& from, const std::string& to) {
  std::string s = kGate;
  const size_t at = s.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return s.replace(at, from.size(), to);
}

TEST(Manifest, ReadsTheDocumentedLine) {
  const auto r = parse_manifest(std::string(kGate) + "\n\n");
  ASSERT_TRUE(r.ok()) << r.status().to_string();
  ASSERT_EQ(r->size(), 1u);
  const Workload& w = (*r)[0];
  EXPECT_EQ(w.name, "gate");
  EXPECT_EQ(w.cache, CacheState::cold);
  EXPECT_EQ(w.weight, 24);
  EXPECT_EQ(w.dims[0].hints[0].value, 1);
  EXPECT_TRUE(w.graph.tensors[1].constant);
  EXPECT_EQ(parse_workload(to_json_line(w)).value(), w);
}

TEST(Manifest, RefusesNamingLineAndField) {
  const std::pair<std::string, const char*> kRows[] = {
      {replaced("[4864,896]", "[4864,-1]"),
       "line 3: graph.tensors.w.dims[1]: expected a non-negative integer or a symbol"},
      {replaced("[4864,896]", "[4864,1.5]"),
       "line 3: graph.tensors.w.dims[1]: expected a non-negative integer or a symbol"},
      {replaced("[4864,896]", "[4864,18446744073709551615]"),
       "line 3: graph.tensors.w.dims[1]: expected a non-negative integer or a symbol"},
      {replaced("[\"M\",896]", "[\"Q\",896]"), "line 3: graph.tensors.x.dims[0]: symbol \"Q\" is not in dims"},
      {replaced("[4864,896]", "[4864,895]"), "line 3: graph: x.shape[1]: 896, expected 895 (K of w)"},
      {replaced("\"weight\":24", "\"weight\":1e999"), "line 3: a number is out of range"},
      {replaced("\"weight\":24", "\"weight\":-1"), "line 3: weight: expected a number >= 0"},
      {replaced("\"weight\":24", "\"weight\":\"24\""), "line 3: weight: expected a finite number"},
      {replaced("\"weight\":1}", "\"weight\":-1}"), "line 3: dims.M.hints[0].weight: expected a number >= 0"},
      {replaced("\"value\":1,", "\"value\":9999,"),
       "line 3: dims.M.hints[0].value: expected an integer from 1 to 4096"},
      {replaced("\"weight\":24", "\"wait\":24"), "line 3: wait: unknown field"},
      {replaced("\"const\":true", "\"constant\":true"), "line 3: graph.tensors.w.constant: unknown field"},
      {replaced("\"const\":true", "\"const\":1"), "line 3: graph.tensors.w.const: expected true or false"},
      {replaced("\"out\":\"y\",", "\"out\":\"y\",\"x\":1,"), "line 3: graph.nodes[0].x: unknown field"},
      {replaced("\"out\":\"y\",", ""), "line 3: graph.nodes[0].out: missing"},
      {replaced("\"name\":\"gate\"", "\"name\":\"\""), "line 3: name: expected a non-empty string"},
      {replaced("\"name\":\"gate\",", ""), "line 3: name: missing"},
      {replaced("\"name\":\"gate\"", "\"name\":\"gate\",\"name\":\"b\""), "line 3: field \"name\" is repeated"},
      {replaced("\"threads\":1", "\"threads\":0"), "line 3: threads: expected an integer from 1 to 4096"},
      {replaced("\"cold\"", "\"warm\""), "line 3: cache: expected \"hot\" or \"cold\""},
      {replaced("\"allowed\":[]", "\"allowed\":[\"fast\"]"), "line 3: allowed[0]: unknown numeric class \"fast\""},
      {replaced("\"f32\"", "\"f33\""), "line 3: graph.tensors.x.dtype: unknown dtype \"f33\""},
      {replaced("\"dtype\":\"f32\",", ""), "line 3: graph.tensors.x.dtype: missing"},
      {replaced("[\"x\",\"w\"]", "[\"x\",\"v\"]"), "line 3: graph.nodes[0].in[1]: no tensor is named \"v\""},
      {replaced("[\"x\",\"w\"]", "\"x\""), "line 3: graph.nodes[0].in: expected an array"},
      {replaced("\"outputs\":[\"y\"]", "\"outputs\":[\"z\"]"), "line 3: graph.outputs[0]: no tensor is named \"z\""},
      {replaced("\"transpose_b\":true", "\"transpose_b\":null"),
       "line 3: graph.nodes[0].attrs.transpose_b: expected a number, boolean, string or list of "
       "integers"},
      {replaced("\"transpose_b\":true", "\"transpose_c\":true"),
       "line 3: graph: nodes[0]: unknown attribute \"transpose_c\" of matmul"},
      {replaced("\"matmul\"", "\"matmull\""), "line 3: graph: nodes[0]: unknown op \"matmull\""},
      {replaced("[\"M\",896]", "[\"M\",896],\"strides\":[\"896*Q\",1]"),
       "line 3: graph.tensors.x.strides[0]: expected a non-negative integer, a symbol, or a "
       "product such as \"64*L\""},
      {replaced("\"min\":1,", "\"min\":5000,"), "line 3: dims.M.max: expected an integer >= 5000"},
      {replaced("\"M\":{", "\"M-1\":{"), "line 3: dims.M-1: expected a name of letters, digits and _"},
      {"{\"name\":", "line 3: column 9: not JSON"},
      {"[]", "line 3: expected an object"},
      {std::string(5000, '['), "line 3: column 5001: not JSON"},
  };
  for (const auto& [line, error] : kRows) {
    const auto r = parse_manifest(std::string(kGate) + "\n\n" + line + "\n");
    ASSERT_FALSE(r.ok()) << line;
    const std::string text = r.status().to_string();
    EXPECT_EQ(text.substr(text.find(": ") + 2), error);
  }
}

TEST(Manifest, StridesAndDescribedResultsSurviveWriting) {
  const auto w = parse_workload(
      R"({"name":"s","graph":{"tensors":{"p":{"dtype":"f32","dims":["M",2,"len"],"strides":["2*len","len",1]},"y":{"strides":["3*len*2","len",1]}},)"
      R"("nodes":[{"op":"scale","in":["p"],"out":"t","attrs":{"value":0.1}},{"op":"softmax","in":["t"],"out":"y"}],"outputs":["y"]},)"
      R"("dims":{"M":{"min":1,"max":8},"len":{"min":1,"max":64,"multiple_of":2}},"allowed":["reassociate","contract"]})");
  ASSERT_TRUE(w.ok()) << w.status().to_string();
  EXPECT_EQ(w->allowed, 3u);
  const auto again = parse_workload(to_json_line(*w));
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(*again, *w);
  // A finished graph means the same when written.
  const auto finished = finish(w->graph);
  const auto third = parse_workload(to_json_line(make_workload(*finished)));
  ASSERT_TRUE(third.ok()) << third.status().to_string();
  EXPECT_EQ(lower(*finish(third->graph))->kernels.size(), 1u);
  EXPECT_EQ(finish(third->graph)->nodes, finished->nodes);
  EXPECT_EQ(finish(third->graph)->inputs, finished->inputs);
}

constexpr const char* kManifests[] = {"qwen2.5-0.5b",
                                      "smollm2-135m",
                                      "minilm-l6",
                                      "bert-base",
                                      "llama3-8b-layer",
                                      "limits",
                                      "odd_shapes",
                                      "narrow_products",
                                      "low_bits",
                                      "low_bits_bytes",
                                      "limits-llm",
                                      "around",
                                      "gemma3-270m",
                                      "qwen2.5-0.5b-q4_k_m",
                                      "llama3-8b-layer-q4_k_m",
                                      "llama3-8b-layer-bf16",
                                      "qwen2.5-7b-layer",
                                      "qwen3-30b-a3b-layer"};

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Workloads, AreWhatTheScriptDerives) {
  if (std::system("python3 --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "python3 is missing";
  std::string folder = ::testing::TempDir() + "lathe_workloads_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string root = LATHE_SOURCE_DIR;
  ASSERT_EQ(std::system(("python3 " + root + "/bench/make_workloads.py " + folder).c_str()), 0);
  for (const std::string name : kManifests) {
    const std::string file = name + ".jsonl";
    EXPECT_FALSE(contents(folder + "/" + file).empty());
    EXPECT_EQ(contents(folder + "/" + file), contents(root + "/bench/workloads/" + file))
        << "run bench/make_workloads.py";
  }
  std::filesystem::remove_all(folder);
}

TEST(Workloads, ParseFinishLowerAndVerify) {
  for (const std::string name : kManifests) {
    SCOPED_TRACE(name);
    const std::string path = std::string(LATHE_SOURCE_DIR) + "/bench/workloads/" + name + ".jsonl";
    const auto lines = parse_manifest(contents(path));
    ASSERT_TRUE(lines.ok()) << lines.status().to_string();
    EXPECT_GE(lines->size(), 9u);
    for (const Workload& w : *lines) {
      for (const DimDesc& d : w.dims) EXPECT_FALSE(d.hints.empty()) << w.name << ": nothing says which " << d.symbol;
      const auto lowered = lower(*finish(w.graph));
      ASSERT_TRUE(lowered.ok()) << w.name;
      EXPECT_EQ(lowered->kernels.size(), 1u) << w.name << ": a line is one fused group";
      for (const LoweredKernel& k : lowered->kernels) {
        const ir::Status s = ir::verify(k.kernel);
        EXPECT_TRUE(s.ok()) << w.name << ": " << s.to_string();
        const std::string printed = ir::print(k.kernel);
        const auto parsed = ir::parse_kernel(printed);
        ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
        EXPECT_EQ(ir::print(*parsed), printed);
      }
      const auto again = parse_workload(to_json_line(w));
      ASSERT_TRUE(again.ok()) << again.status().to_string();
      EXPECT_EQ(*again, w);
    }
  }
}

}  // namespace
}  // namespace lathe::ops
