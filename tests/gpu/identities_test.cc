// Identities of the CPU are those from before there were devices: a store stays what it is.
#include <gtest/gtest.h>

#include "runtime/store/key.h"

namespace lathe::runtime {
namespace {

TEST(CpuIdentities, EqualTheirGoldens) {
  GraphFields graph;
  graph.structure = "matmul";
  graph.allowed_classes = 3;
  RequestFields request;
  request.semantic_key = semantic_key(graph).hash;
  request.threads = 2;
  request.cache = "cold";
  MachineFields machine;
  machine.cpu_vendor = "AuthenticAMD";
  machine.cpu_family = 26;
  machine.isa = "avx512";
  machine.lanes = 16;
  LeafFields leaf;
  leaf.text = "kernel leaf";
  leaf.backend = "xbyak";
  leaf.isa = "avx512";
  CodeFields code;
  code.codegen_epoch = 5;
  code.leaf_abi = 1;
  code.backend_versions = "xbyak 6.68";
  code.os = "linux";
  code.arch = "x86_64";
  const std::pair<std::string, const char*> goldens[] = {
      {semantic_key(graph).hash, "b03b2a6a53cc3a5918750abab5e344a862c8c583"},
      {decision_base(request).hash, "de94eddb226ae8aca3b84a1e388abcc786208555"},
      {decision_environment(machine).hash, "70f639385e0870e69e22fe92e9607dcaebb2dc24"},
      {leaf_key(leaf).hash, "038d5a38e2a741e0741005189fa6471c4b49011a"},
      {code_environment(code).hash, "231c8a8e258c3c08a5b0af20b41be7e597b5522a"}};
  for (const auto& [hash, golden] : goldens) EXPECT_EQ(hash, golden);
  RecordProperty("identities_equal", HasFailure() ? 0 : 1);
}

}  // namespace
}  // namespace lathe::runtime
