// The file tests of the ir floor: tests/ir/file/*.lir. Commands:
//   roundtrip  prints the kernel, or "identical" if that is the text of the file; with "verify" as argument it must
//              verify too
//   verify     "ok", or the refusal of parser or verifier
//   simplify   the kernel with every index expression simplified
//   run        the outputs after interpreting; "; set: N = 5" gives symbols, inputs hold small integers that depend on
//              their position and lie in the range that a parameter states
#include "tests/common/file_test.h"

#include <cstdlib>

#include "ir/analysis/analysis.h"
#include "ir/analysis/verifier.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"
#include "ir/meaning/interpreter.h"

namespace lathe::ir {
namespace {

using test::FileTest;

std::string without_comments(const std::string& text) {
  std::string out;
  for (const std::string& line : test::lines_of(text)) {
    if (line.empty() || line[0] != ';') out += line + "\n";
  }
  return out;
}

std::string roundtrip(const FileTest& t) {
  Result<Kernel> k = parse_kernel(t.text);
  if (!k.ok()) return k.status().to_string();
  if (const Status status = verify(*k); t.argument == "verify" && !status.ok()) return status.to_string();
  const std::string printed = print(*k);
  Result<Kernel> again = parse_kernel(printed);
  if (!again.ok() || print(*again) != printed) return "printed text does not print the same:\n" + printed;
  return printed == without_comments(t.text) ? "identical" : printed;
}

std::string verify_text(const FileTest& t) {
  Result<Kernel> k = parse_kernel(t.text);
  const Status status = k.ok() ? verify(*k) : k.status();
  return status.ok() ? "ok" : status.to_string();
}

Expr simplify_indices(const Expr& e, const Ranges& ranges) {
  if (!e || e->type == DType::i64) return e ? simplify(e, ranges) : e;
  std::vector<Expr> args;
  for (const Expr& a : e->args) args.push_back(simplify_indices(a, ranges));
  auto node = std::make_shared<ExprNode>(*e);
  node->args = std::move(args);
  return Expr(std::shared_ptr<const ExprNode>(std::move(node)));
}

void simplify_body(std::vector<Stmt>& body, const Ranges& outer) {
  for (Stmt& s : body) {
    Ranges ranges = outer;
    s.extent = simplify_indices(s.extent, ranges);
    for (Expr& e : s.index) e = simplify_indices(e, ranges);
    s.value = simplify_indices(s.value, ranges);
    if (s.kind != Stmt::Kind::scope) continue;
    ranges.enter(s);
    simplify_body(s.body, ranges);
  }
}

std::string simplify_text(const FileTest& t) {
  Result<Kernel> k = parse_kernel(t.text);
  if (!k.ok()) return k.status().to_string();
  simplify_body(k->body, Ranges(*k));
  const Status status = verify(*k);
  return status.ok() ? print(*k) : status.to_string();
}

std::string run_text(const FileTest& t) {
  Result<Kernel> k = parse_kernel(t.text);
  if (!k.ok()) return k.status().to_string();
  if (const Status status = verify(*k); !status.ok()) return status.to_string();
  SymbolValues symbols;
  for (const auto& [name, value] : t.settings) symbols[name] = std::strtoll(value.c_str(), nullptr, 10);
  std::map<std::string, Tensor> tensors;
  for (size_t b = 0; b < k->buffers.size(); ++b) {
    const Buffer& buffer = k->buffers[b];
    if (!has_contents(buffer)) continue;
    const auto dims = evaluate_dims(buffer.dims, symbols);
    if (!dims) return "a size of " + buffer.name + " is not known";
    Tensor& tensor = tensors[buffer.name];
    tensor.dims = *dims;
    size_t count = 1;
    for (const int64_t d : *dims) count *= static_cast<size_t>(d);
    const auto lo = evaluate(buffer.values.lo, symbols), hi = evaluate(buffer.values.hi, symbols);
    for (size_t i = 0; i < count; ++i) {
      const double value = static_cast<double>((i * 7 + b * 3) % 11) - 5;
      tensor.data.push_back(lo && hi ? static_cast<double>(*lo + static_cast<int64_t>(i * 7) % (*hi - *lo + 1))
                                     : value);
    }
  }
  if (const Status status = interpret(*k, symbols, tensors); !status.ok()) return status.to_string();
  std::string out;
  for (const Buffer& buffer : k->buffers) {
    if (buffer.place != Place::out) continue;
    out += buffer.name + ":";
    for (const double v : tensors[buffer.name].data) out += fmt::format(" {:.6g}", v);
    out += "\n";
  }
  return out;
}

class IrFiles : public test::FileTestSuite {};

TEST_P(IrFiles, Matches) {
  check(GetParam(),
        {{"roundtrip", roundtrip}, {"verify", verify_text}, {"simplify", simplify_text}, {"run", run_text}});
}

INSTANTIATE_TEST_SUITE_P(File, IrFiles, testing::ValuesIn(test::list_files("tests/ir/file")), test::file_stem);

TEST(FileTest, AMismatchIsSeen) {
  EXPECT_EQ(test::diff("a\nb\nc\n", "a\nx\nc\n"), "@@ line 2 of the expectation\n- b\n+ x\n");
  EXPECT_EQ(test::diff("a\n", "a\nb\n"), "@@ line 2 of the expectation\n+ b\n");
  EXPECT_GE(test::list_files("tests/ir/file").size(), 12u);
}

}  // namespace
}  // namespace lathe::ir
