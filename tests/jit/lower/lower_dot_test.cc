// Steps of dot4_u8s8 in leaves: bytes made of bytes, with what bits they may have, against the interpreter on every
// level.
#include <functional>

#include "ir/meaning/interpreter.h"
#include "tests/jit/lower/leaf_case.h"

namespace lathe::jit {
namespace {

constexpr int64_t kColumns = 24, kQuads = 5, kRows = 2;

// c[m, n] = sum of p0[m, 4*q + j] * byte(n, 4*q + j), p1 as [q, n, j]; columns in vectors of the target's, masked.
std::string leaf_text(const std::string& byte, int lanes, const std::string& type, int64_t columns) {
  const std::string all = std::to_string(columns);
  const auto each = [&](const std::string& row, int first, const std::string& statement) {
    return tile_text(row, first, kRows, columns, lanes, statement);
  };
  return "kernel leaf(p0: i8[_, _] in strides [" + std::to_string(4 * kQuads) + ", 1], p1: " + type +
         "[_, _, _] in strides [" + std::to_string(4 * columns) + ", 4, 1], p2: i32[_, _] out strides [" + all +
         ", 1]) family leaf where e0 in 0..9223372036854775807\n"
         "  r0: i32[2, " +
         std::to_string((columns + lanes - 1) / lanes * lanes) + "] reg\n" + each("  ", 0, "r0[M, N] = 7:i32") +
         "  for i3 < e0:\n    for i4 < 4 @tensor(dot4_u8s8):\n" +
         each("      ", 5, "r0[M, N] += i32(p0[M, 4*i3 + i4]) * (" + byte + ")") + each("  ", 8, "p2[M, N] = r0[M, N]");
}

class Dot4 : public testing::TestWithParam<int64_t> {};

void expect_sums(const std::string& byte, const std::string& type, int64_t columns) {
  std::mt19937 random(5);
  std::vector<int8_t> a(static_cast<size_t>(kRows * 4 * kQuads));
  std::vector<uint8_t> b(static_cast<size_t>(kQuads * columns * 4));
  for (int8_t& x : a) x = static_cast<int8_t>(random());
  for (uint8_t& x : b) x = static_cast<uint8_t>(random());
  for (const ir::Target& target : test_targets()) {
    const std::string text = leaf_text(byte, target.lanes, type, columns);
    const auto kernel = ir::parse_kernel(text);
    ASSERT_TRUE(kernel.ok()) << kernel.status().to_string() << text;
    std::map<std::string, ir::Tensor> tensors;
    tensors["p0"] = {{kRows, 4 * kQuads}, {a.begin(), a.end()}};
    tensors["p1"] = {{kQuads, columns, 4}, {}};
    for (const uint8_t x : b) tensors["p1"].data.push_back(type == "i8" ? static_cast<int8_t>(x) : x);
    tensors["p2"] = {{kRows, columns}, std::vector<double>(static_cast<size_t>(kRows * columns), 0)};
    ir::Kernel open = *kernel;
    for (ir::Buffer& buffer : open.buffers) {
      buffer.strides.clear();
      if (tensors.count(buffer.name) == 0) continue;
      for (size_t i = 0; i < buffer.dims.size(); ++i) buffer.dims[i] = ir::Expr(tensors[buffer.name].dims[i]);
    }
    const ir::Status ran = ir::interpret(open, {{"e0", kQuads}}, tensors);
    ASSERT_TRUE(ran.ok()) << ran.to_string() << text;
    const auto p = lower_leaf(*kernel, target);
    ASSERT_TRUE(p.ok()) << p.status().to_string() << text;
    std::vector<int32_t> out(static_cast<size_t>(kRows * columns), -1), code_out = out;
    ir::LeafArgs args{};
    args.op[0].ptr = reinterpret_cast<char*>(a.data());
    args.op[0].stride[0] = 4 * kQuads;
    args.op[1].ptr = reinterpret_cast<char*>(b.data());
    args.op[1].stride[0] = 4 * columns;
    args.op[2].ptr = reinterpret_cast<char*>(out.data());
    args.op[2].stride[0] = 4 * columns;
    args.extent[0] = kQuads;
    execute_portable(*p, args);
    for (size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(out[i], static_cast<int32_t>(tensors["p2"].data[i]))
          << i << " at " << ir::isa_name(target.level) << "\n"
          << text << to_text(*p);
    args.op[2].ptr = reinterpret_cast<char*>(code_out.data());
    if (!x64_test::run_generated(*p, args)) continue;
    ASSERT_EQ(out, code_out) << ir::isa_name(target.level) << "\n" << to_text(*p);
  }
}

TEST_P(Dot4, sums_bytes_that_are_made_of_bytes) {
  const std::string q = "i32(p1[i3, N, i4])";
  for (const std::string& byte :
       {q, q + " & 15:i32", q + " >> 4", q + " >> 4 & 15:i32", q + " >> 3 & 7:i32", q + " >> 1",
        "(" + q + " & 3:i32) << 4 | " + q + " >> 4", "(" + q + " >> 6) << 2", "15:i32 & " + q,
        "(" + q + " & 15:i32) + 240:i32", "(" + q + " & 127:i32) + (" + q + " >> 1 & 127:i32)",
        "(" + q + " >> 2 >> 2) & 255:i32", "(" + q + " & 1:i32) << 7", q + " >> i4 // 4",
        "select(i4 // 4 < 1, " + q + " & 63:i32, " + q + " >> 6)",
        "select(1 < i4 // 4 + 1, " + q + ", " + q + " >> 6)"}) {
    expect_sums(byte, "u8", GetParam());
    if (HasFatalFailure()) return;
  }
  expect_sums("i32(p1[i3, N, i4]) + 128:i32", "i8", GetParam());
}
INSTANTIATE_TEST_SUITE_P(Columns, Dot4, testing::Values(1, 7, 16, kColumns, 32));

std::string refusal(const std::string& byte, const std::string& type) {
  const auto kernel = ir::parse_kernel(leaf_text(byte, 8, type, kColumns));
  if (!kernel.ok()) return kernel.status().to_string();
  const auto p = lower_leaf(*kernel, ir::bare_target(ir::IsaLevel::avx2));
  return p.ok() ? "none" : p.status().to_string();
}

TEST(Dot4Refusals, bits_that_leave_their_byte) {
  const std::string q = "i32(p1[i3, N, i4])";
  for (const std::string& byte : {q + " << 1", q + " + 1:i32", q + " & 511:i32 << 1", q + " - 1:i32", q + " >> i4",
                                  q + " * 2:i32", "select(i4 < 2, " + q + ", " + q + " >> 6)"}) {
    EXPECT_NE(refusal(byte, "u8").find("not made of bytes"), std::string::npos) << byte << ": " << refusal(byte, "u8");
  }
  EXPECT_NE(refusal("i32(p1[i3, N, i4])", "i8").find("expected"), std::string::npos)
      << refusal("i32(p1[i3, N, i4])", "i8");
  EXPECT_NE(refusal("i32(p1[i3, N, i4]) & 15:i32", "i8").find("not made of bytes"), std::string::npos);
  EXPECT_NE(refusal("i32(p1[i3, N, 0]) & 15:i32", "u8").find("four bytes side by side"), std::string::npos);
  EXPECT_NE(refusal("i32(p1[i3, N, 3 - i4]) & 15:i32", "u8").find("four bytes side by side"), std::string::npos);
}

// p1[q, n, 0 .. 3] = the bytes made of p0[q, n, 0 .. 3].
std::string decode_text(const std::string& byte, const std::string& type, int lanes, int64_t columns,
                        const std::string& to = "u8") {
  const std::string strides = fmt::format("strides [{}, 4, 1]", 4 * columns);
  return "kernel leaf(p0: " + type + "[_, _, _] in " + strides + ", p1: " + to + "[_, _, _] out " + strides +
         ") family leaf where e0 in 0..9223372036854775807\n"
         "  for i3 < e0:\n    for i4 < 4 @tensor(decode4_u8):\n" +
         tile_text("      ", 5, 1, columns, lanes, "p1[i3, N, i4] = u8(" + byte + ")");
}

TEST_P(Dot4, decodes_bytes_that_are_made_of_bytes) {
  const int64_t columns = GetParam();
  const std::string q = "i32(p0[i3, N, i4])";
  std::mt19937 random(7);
  std::vector<uint8_t> from(static_cast<size_t>(kQuads * columns * 4));
  for (uint8_t& x : from) x = static_cast<uint8_t>(random());
  const std::pair<std::string, std::function<int(int)>> cases[] = {
      {q, [](int x) { return x; }},
      {q + " & 15:i32", [](int x) { return x & 15; }},
      {q + " >> 4", [](int x) { return x >> 4; }},
      {"(" + q + " & 3:i32) << 4 | " + q + " >> 4", [](int x) { return (x & 3) << 4 | x >> 4; }},
      {q + " + 128:i32", [](int x) { return static_cast<int8_t>(x) + 128; }}};
  for (const auto& [byte, wanted] : cases) {
    const std::string type = byte == q + " + 128:i32" ? "i8" : "u8";
    for (const ir::Target& target : test_targets()) {
      const std::string text = decode_text(byte, type, target.lanes, columns);
      const auto kernel = ir::parse_kernel(text);
      ASSERT_TRUE(kernel.ok()) << kernel.status().to_string() << text;
      const auto p = lower_leaf(*kernel, target);
      ASSERT_TRUE(p.ok()) << p.status().to_string() << text;
      std::vector<uint8_t> out(from.size() + 4, 77), code_out = out;
      ir::LeafArgs args{};
      args.op[0].ptr = reinterpret_cast<char*>(from.data());
      args.op[0].stride[0] = 4 * columns;
      args.op[1].ptr = reinterpret_cast<char*>(out.data());
      args.op[1].stride[0] = 4 * columns;
      args.extent[0] = kQuads;
      execute_portable(*p, args);
      for (size_t i = 0; i < from.size(); ++i) ASSERT_EQ(out[i], wanted(from[i])) << i << "\n" << text << to_text(*p);
      for (size_t i = from.size(); i < out.size(); ++i) ASSERT_EQ(out[i], 77) << "behind the last column";
      args.op[1].ptr = reinterpret_cast<char*>(code_out.data());
      if (!x64_test::run_generated(*p, args)) continue;
      ASSERT_EQ(out, code_out) << ir::isa_name(target.level) << "\n" << to_text(*p);
    }
  }
}

TEST(Dot4Refusals, what_is_decoded_is_bytes) {
  const auto why = [](const std::string& byte, const std::string& type, const std::string& to = "u8") {
    const auto kernel = ir::parse_kernel(decode_text(byte, type, 8, kColumns, to));
    if (!kernel.ok()) return kernel.status().to_string();
    const auto p = lower_leaf(*kernel, ir::bare_target(ir::IsaLevel::avx2));
    return p.ok() ? "none" : p.status().to_string();
  };
  const std::string q = "i32(p0[i3, N, i4])";
  EXPECT_EQ(why(q, "u8"), "none");
  EXPECT_NE(why(q, "i8").find("expected bytes of 0 to 255"), std::string::npos);
  EXPECT_NE(why(q + " - 1:i32", "u8").find("not made of bytes"), std::string::npos);
  EXPECT_NE(why("i32(p0[i3, N, 3 - i4])", "u8").find("four bytes side by side"), std::string::npos);
}

}  // namespace
}  // namespace lathe::jit
