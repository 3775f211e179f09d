// See key.h.
#include "runtime/store/key.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>

#include "ir/analysis/analysis.h"
#include "ir/leaf_abi.h"
#include "jit/host/host_cpu.h"

namespace lathe::runtime {
namespace {

constexpr size_t kHashDigits = 40;
constexpr size_t kMaxName = 180;

void add_value(std::string& out, int64_t v) { out += std::to_string(v); }
void add_value(std::string& out, const std::vector<SymbolRange>& v) {
  for (const SymbolRange& r : v) fmt::format_to(std::back_inserter(out), "{}.{}-", r.lo, r.hi);
}
// Lines after the first are indented, so that no value can look like a field.
void add_value(std::string& out, std::string_view v) {
  while (!v.empty()) {
    const size_t end = v.find('\n');
    const size_t line = end == std::string_view::npos ? v.size() : end + 1;
    out += v.substr(0, line);
    if (end != std::string_view::npos) out += "  ";
    v.remove_prefix(line);
  }
}

class Text {
 public:
  // title: with the number of the form of what is stored under the identity.
  Text(char identity, std::string_view title) : identity_(identity), text_(title) { text_ += '\n'; }
  template <class T>
  void field(const char* name, const T& value, std::string_view identities) {
    if (identities.find(identity_) == std::string_view::npos) return;
    text_ += name;
    text_ += ": ";
    add_value(text_, value);
    text_ += '\n';
  }
  Identity done() {
    std::string hash = ir::content_hash(text_.data(), text_.size()).substr(0, kHashDigits);
    return {std::move(hash), std::move(text_)};
  }

 private:
  char identity_;
  std::string text_;
};

std::optional<int64_t> take_number(std::string_view* text) {
  int64_t v = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), v);
  if (error != std::errc() || v < 0) return std::nullopt;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return v;
}

std::string_view take_line(std::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return line;
}

}  // namespace

Identity semantic_key(const GraphFields& fields) {
  Text t('S', "semantic 2");
#define LATHE_GRAPH_FIELD(type, name, identities) t.field(#name, fields.name, identities);
#include "runtime/store/key_fields.def"
  return t.done();
}

Identity decision_base(const RequestFields& all) {
  RequestFields fields = all;
  fields.ranges.clear();
  Text t('D', "decision 2");
#define LATHE_REQUEST_FIELD(type, name, identities) t.field(#name, fields.name, identities);
#include "runtime/store/key_fields.def"
  return t.done();
}

Identity decision_environment(const MachineFields& fields) {
  Text t('E', "machine 1");
#define LATHE_MACHINE_FIELD(type, name, identities) t.field(#name, fields.name, identities);
#include "runtime/store/key_fields.def"
  return t.done();
}

Identity leaf_key(const LeafFields& fields) {
  Text t('L', "leaf 1");
#define LATHE_LEAF_FIELD(type, name, identities) t.field(#name, fields.name, identities);
#include "runtime/store/key_fields.def"
  return t.done();
}

Identity code_environment(const CodeFields& fields) {
  Text t('C', "code 1");
#define LATHE_CODE_FIELD(type, name, identities) t.field(#name, fields.name, identities);
#include "runtime/store/key_fields.def"
  return t.done();
}

Identity device_environment(const DeviceFields& fields) {
  Text t('V', "device 1");
#define LATHE_DEVICE_FIELD(type, name, identities) t.field(#name, fields.name, identities);
#include "runtime/store/key_fields.def"
  return t.done();
}

Identity device_code_environment(const DeviceCodeFields& fields) {
  Text t('G', "device code 1");
#define LATHE_DEVICE_CODE_FIELD(type, name, identities) t.field(#name, fields.name, identities);
#include "runtime/store/key_fields.def"
  return t.done();
}

std::string decision_name(const std::string& base, const std::vector<SymbolRange>& ranges) {
  std::string out = base;
  for (const SymbolRange& r : ranges) out += fmt::format("-{}.{}", r.lo, r.hi);
  if (out.size() <= kMaxName) return out;
  std::string rest;  // found by exact ranges only
  add_value(rest, ranges);
  return fmt::format("{}-h{}", base, ir::content_hash(rest.data(), rest.size()).substr(0, kHashDigits));
}

std::optional<std::vector<SymbolRange>> decision_ranges(std::string_view name) {
  std::vector<SymbolRange> out;
  name.remove_prefix(std::min(name.find('-'), name.size()));
  while (!name.empty()) {
    if (name[0] != '-') return std::nullopt;
    name.remove_prefix(1);
    const auto lo = take_number(&name);
    if (!lo || name.empty() || name[0] != '.') return std::nullopt;
    name.remove_prefix(1);
    const auto hi = take_number(&name);
    if (!hi || *hi < *lo) return std::nullopt;
    out.push_back({*lo, *hi});
  }
  return out;
}

SymbolRange default_range(int64_t value, SymbolRange declared) {
  SymbolRange r{value, value};
  if (value > 1) {
    const auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(value - 1)));
    r.lo = below + 1;
    r.hi = below > INT64_MAX / 2 ? INT64_MAX : 2 * below;
  }
  return {std::max(r.lo, declared.lo), std::min(r.hi, declared.hi)};
}

std::string first_difference(std::string_view a, std::string_view b) {
  std::string field;
  while (!a.empty() || !b.empty()) {
    const std::string_view x = take_line(&a), y = take_line(&b);
    const std::string_view named = x.empty() ? y : x;
    if (!named.empty() && named[0] != ' ') field = named.substr(0, named.find(':'));
    if (x != y) return field;
  }
  return {};
}

CodeFields code_fields(const std::string& backend_versions) {
  CodeFields f;
  f.codegen_epoch = kCodegenEpoch;
  f.leaf_abi = ir::kLeafAbi;
  f.backend_versions = backend_versions;
  f.os = "linux";
  f.arch = jit::kArch;
  return f;
}

}  // namespace lathe::runtime
