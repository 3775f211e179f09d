// quantized_grouped_matmul and quantized_expert_matmul through the C ABI: on every level, with weights as they lie and
// packed, on one thread and two, with f32 activations and with bytes, of bf16 with integers of 64 bits, and with what
// follows them; weights that nothing chooses are not read; integers that choose none are refused, by position, value
// and range, before anything is written.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "tests/common/c_client.h"
#include "tests/common/quant_blocks.h"

namespace lathe::test {
namespace {

using testing::HasSubstr;

// grouped: a[S, K], offsets[E + 1] -> y[S, N]; else a[T, J or 1, K], ids[T, J] -> y[T, J, N]
struct Case {
  bool grouped;
  int64_t rows, chosen, weights, n, blocks;
  std::vector<int32_t> integers;
  bool spread = false;  // one row for all that a token chooses
};

struct Form {
  bool narrow = false;    // a and y are bf16
  bool wide = false;      // integers have 64 bits
  bool followed = false;  // by abs
};

uint16_t to_bf16(float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); }
float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

class Call {
 public:
  Call(const Case& c, const Format& format, const std::string& name, const Form& form = {})
      : c_(c),
        form_(form),
        w_(format, c.weights * c.n, c.blocks),
        name_(name),
        a_(c.grouped ? std::vector{c.rows, w_.k} : std::vector{c.rows, c.spread ? 1 : c.chosen, w_.k}),
        y_(c.grouped ? std::vector{c.rows, c.n} : std::vector{c.rows, c.chosen, c.n}, 77),
        integers_(c.integers),
        shape_{c.weights, c.n, w_.row_bytes},
        integers_shape_(c.grouped ? std::vector{c.weights + 1} : std::vector{c.rows, c.chosen}) {
    // Whole numbers up to 127, which each 16 have: as bytes they stay what they are.
    for (size_t i = 0; i < a_.data.size(); ++i)
      a_.data[i] = i % 16 == 3 ? 127 : static_cast<float>((i * 7 + i / 5) % 255) - 127;
    for (int64_t e = 0; e < c.weights; ++e) {
      if (!is_used(e)) std::fill_n(w_.bytes.begin() + e * c.n * w_.row_bytes, c.n * w_.row_bytes, '\xff');
    }
  }

  bool is_used(int64_t e) const {
    if (!c_.grouped) return std::count(c_.integers.begin(), c_.integers.end(), e) > 0;
    return c_.integers[static_cast<size_t>(e)] < c_.integers[static_cast<size_t>(e) + 1];
  }
  // The weight of a row of y; -1: none.
  int64_t weight_of(int64_t row) const {
    if (!c_.grouped) return c_.integers[static_cast<size_t>(row)];
    const auto next = std::upper_bound(c_.integers.begin(), c_.integers.end(), row);
    return next == c_.integers.end() ? -1 : next - c_.integers.begin() - 1;
  }

  Owned<lathe_kernel> resolved(lathe_context* ctx, const lathe_policy& policy, uint32_t* used = nullptr) const {
    const lathe_dim rows = range(c_.grouped ? "S" : "T", 0, 512);
    const std::vector<lathe_dim> a = c_.grouped ? std::vector{rows, fixed(w_.k)}
                                                : std::vector{rows, fixed(c_.spread ? 1 : c_.chosen), fixed(w_.k)},
                                 w = {fixed(shape_[0]), fixed(shape_[1]), fixed(shape_[2])},
                                 integers = c_.grouped ? std::vector{fixed(c_.weights + 1)}
                                                       : std::vector{rows, fixed(c_.chosen)};
    const lathe_tensor_desc inputs[] = {desc("a", a, 0, form_.narrow ? LATHE_DTYPE_BF16 : LATHE_DTYPE_F32),
                                        desc("w", w, LATHE_TENSOR_CONST, LATHE_DTYPE_U8),
                                        desc("integers", integers, 0, form_.wide ? LATHE_DTYPE_I64 : LATHE_DTYPE_I32)};
    const lathe_attr attr = text_attr("format", name_.c_str());
    lathe_graph* made = nullptr;
    lathe_error e;
    EXPECT_EQ(lathe_graph_create(ctx, "chosen", &made, &e), LATHE_STATUS_OK) << e.message;
    const Owned<lathe_graph> graph(made);
    int32_t in[3], y = 0;
    for (size_t i = 0; i < 3; ++i)
      EXPECT_EQ(lathe_graph_tensor(made, &inputs[i], &in[i], &e), LATHE_STATUS_OK) << e.message;
    const char* op = c_.grouped ? "quantized_grouped_matmul" : "quantized_expert_matmul";
    EXPECT_EQ(lathe_graph_op(made, op, in, 3, &attr, 1, "y", &y, &e), LATHE_STATUS_OK) << e.message;
    if (form_.followed)
      EXPECT_EQ(lathe_graph_op(made, "abs", &y, 1, nullptr, 0, "size", &y, &e), LATHE_STATUS_OK) << e.message;
    EXPECT_EQ(lathe_graph_output(made, y, &e), LATHE_STATUS_OK) << e.message;
    EXPECT_EQ(lathe_graph_finish(made, &e), LATHE_STATUS_OK) << e.message;
    lathe_kernel* kernel = nullptr;
    lathe_kernel_info about = LATHE_KERNEL_INFO_INIT;
    EXPECT_EQ(lathe_resolve(ctx, graph.get(), &policy, &kernel, &about, &e), LATHE_STATUS_OK) << e.message;
    if (used != nullptr) *used = about.numeric_class;
    return Owned<lathe_kernel>(kernel);
  }

  lathe_status run(lathe_kernel* kernel, bool packed, int threads, lathe_error* e) {
    lathe_tensor weight = {w_.bytes.data(), {1, 0}, 3, {1, 8, 1}, shape_.data(), nullptr, 0};
    std::vector<int64_t> wide(integers_.begin(), integers_.end());
    lathe_tensor integers = {
        integers_.data(), {1, 0}, static_cast<int32_t>(integers_shape_.size()), {0, 32, 1}, integers_shape_.data(),
        nullptr,          0};
    if (form_.wide) integers.data = wide.data(), integers.dtype.bits = 64;
    lathe_arg args[] = {a_.arg(),
                        {&weight, w_.bytes.size(), 0, 0, 0},
                        {&integers, integers_.size() * (form_.wide ? 8 : 4), 0, 0, 0},
                        y_.arg()};
    if (!form_.narrow) return run_with_weight(kernel, args, packed, threads, e);
    std::vector<uint16_t> a(a_.data.size()), y(y_.data.size());
    std::transform(a_.data.begin(), a_.data.end(), a.begin(), to_bf16);
    std::transform(y_.data.begin(), y_.data.end(), y.begin(), to_bf16);
    lathe_tensor narrow_a = a_.tensor, narrow_y = y_.tensor;
    narrow_a.data = a.data(), narrow_y.data = y.data();
    narrow_a.dtype = narrow_y.dtype = {4, 16, 1};
    args[0] = {&narrow_a, a.size() * 2, 0, 0, 0};
    args[3] = {&narrow_y, y.size() * 2, 0, 0, 0};
    const lathe_status status = run_with_weight(kernel, args, packed, threads, e);
    std::transform(y.begin(), y.end(), y_.data.begin(), from_bf16);
    return status;
  }

  void check() const {
    for (int64_t row = 0; row * c_.n < static_cast<int64_t>(y_.data.size()); ++row) {
      const int64_t e = weight_of(row), from = c_.spread ? row / c_.chosen : row;
      for (int64_t n = 0; n < c_.n; ++n) {
        double want = 0, all = 0;
        for (int64_t k = 0; e >= 0 && k < w_.k; ++k) {
          const double term = static_cast<double>(a_.data[static_cast<size_t>(from * w_.k + k)]) *
                              w_.values[static_cast<size_t>((e * c_.n + n) * w_.k + k)];
          want += term;
          all += std::abs(term);
        }
        if (form_.followed) want = std::abs(want);
        const double rounding = form_.narrow ? std::abs(want) * 0x1p-8 : 0;
        ASSERT_NEAR(y_.data[static_cast<size_t>(row * c_.n + n)], want, 1e-5 * all + rounding)
            << "row " << row << " column " << n;
      }
    }
  }

  std::vector<int32_t>& integers() { return integers_; }
  Floats& y() { return y_; }

 private:
  const Case c_;
  const Form form_;
  Weight w_;
  const std::string name_;
  Floats a_, y_;
  std::vector<int32_t> integers_;
  std::vector<int64_t> shape_, integers_shape_;
};

const Case kCases[] = {{true, 17, 0, 4, 37, 2, {0, 5, 5, 16, 17}},
                       {true, 9, 0, 3, 64, 1, {2, 4, 4, 7}},
                       {true, 3, 0, 1, 33, 1, {0, 3}},
                       {true, 0, 0, 2, 8, 1, {0, 0, 0}},
                       {false, 1, 2, 5, 96, 2, {3, 1}, true},
                       {false, 3, 2, 5, 17, 1, {0, 4, 4, 4, 1, 0}},
                       {false, 5, 1, 3, 40, 1, {2, 2, 0, 2, 0}}};

TEST(QuantisedGroups, MultiplyByTheirOwnWeightInEveryFormat) {
  for (auto& [name, format] : formats()) {
    for (const char* level : {"portable", "avx2", "avx512"}) {
      const auto ctx = make_context(level, 2);
      int by_bytes[2] = {};  // of experts, of groups; of small products the ranking of some machines prefers floats
      for (const Case& c : kCases) {
        for (const bool bytes : {false, true}) {
          SCOPED_TRACE(fmt::format("{} {} {} rows {} N {} {}", name, level, c.grouped ? "groups" : "experts", c.rows,
                                   c.n, bytes ? "bytes" : "floats"));
          lathe_policy policy = LATHE_POLICY_INIT;
          if (bytes) policy.allowed |= LATHE_CLASS_QUANTISED_ACTIVATIONS;
          uint32_t used = 0;
          Call call(c, format, name);
          const auto kernel = call.resolved(ctx.get(), policy, &used);
          ASSERT_NE(kernel, nullptr);
          const bool quantises = (used & LATHE_CLASS_QUANTISED_ACTIVATIONS) != 0;
          EXPECT_TRUE(bytes || !quantises);
          by_bytes[c.grouped ? 1 : 0] += quantises;
          for (const bool packed : {false, true}) {
            std::fill(call.y().data.begin(), call.y().data.end(), 77);
            lathe_error e;
            ASSERT_EQ(call.run(kernel.get(), packed, packed ? 2 : 1, &e), LATHE_STATUS_OK) << e.message;
            call.check();
            if (HasFatalFailure()) return;
          }
        }
      }
      EXPECT_GT(by_bytes[0], 0) << name << " " << level;
      EXPECT_GT(by_bytes[1], 0) << name << " " << level;
    }
  }
}

TEST(QuantisedGroups, OfOtherTypesAndFollowed) {
  const auto all = formats();
  for (const char* name : {"q4_0", "q6_k"}) {
    for (const char* level : {"portable", "avx2", "avx512"}) {
      const auto ctx = make_context(level, 2);
      for (const Case& c : kCases) {
        for (const Form& form :
             {Form{true, false, false}, {false, true, false}, {false, false, true}, {true, true, true}}) {
          SCOPED_TRACE(fmt::format("{} {} {} rows {} N {}{}{}{}", name, level, c.grouped ? "groups" : "experts", c.rows,
                                   c.n, form.narrow ? " bf16" : "", form.wide ? " i64" : "",
                                   form.followed ? " abs" : ""));
          for (const bool bytes : {false, true}) {
            lathe_policy policy = LATHE_POLICY_INIT;
            if (bytes) policy.allowed |= LATHE_CLASS_QUANTISED_ACTIVATIONS;
            Call call(c, all.at(name), name, form);
            const auto kernel = call.resolved(ctx.get(), policy);
            ASSERT_NE(kernel, nullptr);
            for (const bool packed : {false, true}) {
              std::fill(call.y().data.begin(), call.y().data.end(), 77);
              lathe_error e;
              ASSERT_EQ(call.run(kernel.get(), packed, packed ? 2 : 1, &e), LATHE_STATUS_OK) << e.message;
              call.check();
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

TEST(QuantisedGroups, IntegersThatChooseNoWeightAreRefused) {
  const auto ctx = make_context();
  const Format format = formats().at("q4_0");
  const struct {
    const Case& c;
    std::vector<int32_t> integers;
    const char* message;
  } bad[] = {{kCases[0], {0, 7, 5, 16, 17}, "integers[2]: 5, expected 7..17"},
             {kCases[0], {-1, 5, 5, 16, 17}, "integers[0]: -1, expected 0..17"},
             {kCases[0], {0, 5, 5, 16, 18}, "integers[4]: 18, expected 0..17"},
             {kCases[4], {3, 5}, "integers[0, 1]: 5, expected 0..4"},
             {kCases[4], {-1, 1}, "integers[0, 0]: -1, expected 0..4"}};
  for (size_t i = 0; i < 2 * std::size(bad); ++i) {
    const auto& [c, integers, message] = bad[i / 2];
    Call call(c, format, "q4_0", {.wide = i % 2 == 1});
    call.integers() = integers;
    lathe_policy policy = LATHE_POLICY_INIT;
    const auto kernel = call.resolved(ctx.get(), policy);
    lathe_error e;
    EXPECT_EQ(call.run(kernel.get(), false, 1, &e), LATHE_STATUS_INVALID);
    EXPECT_THAT(e.message, HasSubstr(message));
    EXPECT_EQ(e.arg_index, 2);
    for (const float v : call.y().data) ASSERT_EQ(v, 77);
  }
}

}  // namespace
}  // namespace lathe::test
