// Keys: each row of key_fields.def changes exactly the identities it declares; ranges; what
// differs; what a mutation may not touch.
#include "runtime/store/key.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>

namespace lathe::runtime {
namespace {

struct All {
  GraphFields graph;
  RequestFields request;
  MachineFields machine;
  LeafFields leaf;
  CodeFields code;
  DeviceFields device;
  DeviceCodeFields device_code;
};

// S, D, E, L, C, V, G in this order. The request's semantic key is the graph's, as in production.
std::array<std::string, 7> identities(All a) {
  const std::string semantic = semantic_key(a.graph).hash;
  a.request.semantic_key += semantic;
  return {semantic,
          decision_name(decision_base(a.request).hash, a.request.ranges),
          decision_environment(a.machine).hash,
          leaf_key(a.leaf).hash,
          code_environment(a.code).hash,
          device_environment(a.device).hash,
          device_code_environment(a.device_code).hash};
}

void mutate(std::string* v) { *v += "x"; }
void mutate(int64_t* v) { ++*v; }
void mutate(std::vector<SymbolRange>* v) { v->push_back({1, 2}); }

struct Row {
  const char* name;
  std::string identities;
  std::function<void(All*)> change;
};
const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
#define LATHE_GRAPH_FIELD(type, name, ids) {#name, ids, [](All* a) { mutate(&a->graph.name); }},
#define LATHE_REQUEST_FIELD(type, name, ids) {#name, ids, [](All* a) { mutate(&a->request.name); }},
#define LATHE_MACHINE_FIELD(type, name, ids) {#name, ids, [](All* a) { mutate(&a->machine.name); }},
#define LATHE_LEAF_FIELD(type, name, ids) {#name, ids, [](All* a) { mutate(&a->leaf.name); }},
#define LATHE_CODE_FIELD(type, name, ids) {#name, ids, [](All* a) { mutate(&a->code.name); }},
#define LATHE_DEVICE_FIELD(type, name, ids) {#name, ids, [](All* a) { mutate(&a->device.name); }},
#define LATHE_DEVICE_CODE_FIELD(type, name, ids) {#name, ids, [](All* a) { mutate(&a->device_code.name); }},
#include "runtime/store/key_fields.def"
  };
  return all;
}

TEST(Key, EachFieldChangesExactlyTheDeclaredIdentities) {
  const std::array<std::string, 7> before = identities({});
  const std::string letters = "SDELCVG";
  for (const Row& r : rows()) {
    All a;
    r.change(&a);
    const auto after = identities(a);
    for (size_t i = 0; i < letters.size(); ++i) {
      bool declared = r.identities.find(letters[i]) != std::string::npos;
      if (letters[i] == 'D') declared |= r.identities.find('S') != std::string::npos;  // it contains the semantic key
      EXPECT_EQ(after[i] != before[i], declared) << r.name << " and " << letters[i];
    }
  }
}

TEST(Key, NoValueCanLookLikeAnotherField) {
  LeafFields a, b;
  a.text = "x\nbackend: llvm";
  a.backend = "xbyak";
  b.text = "x";
  b.backend = "llvm\nbackend: xbyak";
  EXPECT_NE(leaf_key(a).hash, leaf_key(b).hash);
  a = {};
  a.text = "x\nbackend: ";
  b = {};
  b.text = "x";
  EXPECT_NE(leaf_key(a).text, leaf_key(b).text);
}

TEST(Key, TheFirstDifferingFieldIsNamed) {
  MachineFields a;
  a.cpu_vendor = "AuthenticAMD";
  MachineFields b = a;
  b.l2_bytes = 1;
  b.smt = 2;
  EXPECT_EQ(first_difference(decision_environment(a).text, decision_environment(b).text), "l2_bytes");
  EXPECT_EQ(first_difference(decision_environment(a).text, decision_environment(a).text), "");
}

TEST(Key, DefaultRangesArePowersOfTwoWithinTheDeclared) {
  EXPECT_EQ(default_range(1, {1, 4096}), (SymbolRange{1, 1}));
  EXPECT_EQ(default_range(3, {1, 4096}), (SymbolRange{3, 4}));
  EXPECT_EQ(default_range(197, {1, 4096}), (SymbolRange{129, 256}));
  EXPECT_EQ(default_range(4096, {1, 4096}), (SymbolRange{2049, 4096}));
  EXPECT_EQ(default_range(130, {129, 140}), (SymbolRange{129, 140}));
  EXPECT_EQ(default_range(0, {0, 9}), (SymbolRange{0, 0}));
  EXPECT_EQ(default_range(INT64_MAX, {0, INT64_MAX}), (SymbolRange{(int64_t{1} << 62) + 1, INT64_MAX}));
}

TEST(Key, NamesCarryTheirRanges) {
  const std::string base(40, 'a');
  const std::vector<SymbolRange> ranges{{1, 1}, {128, 255}};
  EXPECT_EQ(decision_name(base, ranges), base + "-1.1-128.255");
  EXPECT_EQ(decision_ranges(base + "-1.1-128.255"), ranges);
  EXPECT_EQ(decision_ranges(base), std::vector<SymbolRange>{});
  for (const char* bad : {"-", "-1", "-1.", "-2.1", "-1.1x", "-1.1-", "--1.2", "-99999999999999999999.1"}) {
    EXPECT_EQ(decision_ranges(base + bad), std::nullopt) << bad;
  }
  const std::vector<SymbolRange> wide(6, {INT64_MAX - 1, INT64_MAX});
  const std::string name = decision_name(base, wide);
  EXPECT_LT(name.size(), 200u);
  EXPECT_EQ(decision_ranges(name), std::nullopt);
}

TEST(Key, ThisMachineIsTheSameTwice) {
  const ir::Target t;
  EXPECT_EQ(decision_environment(machine_fields(t)).text, decision_environment(machine_fields(t)).text);
  EXPECT_NE(decision_environment(machine_fields(t)).text.find("cpu_vendor: "), std::string::npos);
}

}  // namespace
}  // namespace lathe::runtime
