// See leaf_error.h.
#include "runtime/base/leaf_error.h"

#include <algorithm>
#include <regex>

#include "ir/core/names.h"
#include "ir/core/text_form.h"

namespace lathe::runtime {
namespace {

const ir::NestCall* first_call(const std::vector<ir::NestNode>& nodes, int leaf) {
  for (const ir::NestNode& n : nodes) {
    if (n.kind == ir::NestNode::Kind::loop) {
      if (const ir::NestCall* found = first_call(n.body, leaf)) return found;
    } else if (std::find(n.call.leaves.begin(), n.call.leaves.end(), leaf) != n.call.leaves.end()) {
      return &n.call;
    }
  }
  return nullptr;
}

// By the nest's numbers: parameters, then scratch.
std::string buffer_name(const ir::CutKernel& cut, int number) {
  if (number >= cut.nest.num_params) return cut.nest.scratch[static_cast<size_t>(number - cut.nest.num_params)].name;
  for (const ir::Buffer& b : cut.kernel.buffers) {
    if (ir::is_param(b.place) && number-- == 0) return b.name;
  }
  return {};
}

// Of one canonical name; itself where a caller has none for it.
std::string callers_name(const std::string& name, const ir::CutKernel& cut, const ir::NestCall& call) {
  const size_t number = std::stoul(name.substr(1));
  if (name[0] == 'p' && number < call.operands.size()) return buffer_name(cut, call.operands[number].buffer);
  if (name[0] == 'e' && number < call.extents.size()) return ir::print(call.extents[number]);
  return name;
}

}  // namespace

ir::Status leaf_error(const ir::Status& status, const ir::CutKernel& cut, int leaf) {
  const ir::NestCall* call = first_call(cut.nest.phases, leaf);
  if (status.ok() || call == nullptr) return status;
  static const std::regex kHead("^leaf: "), kLoop(R"(\bscope i\d{1,6}\b)"), kRegister(R"(\br\d{1,6}: )"),
      kName(R"(\b[pe]\d{1,6}\b)");
  std::string text = std::regex_replace(status.message(), kHead, "");
  text = std::regex_replace(std::regex_replace(text, kLoop, "a loop"), kRegister, "a register: ");
  std::string out;
  auto from = text.cbegin();
  for (std::sregex_iterator m(text.begin(), text.end(), kName), end; m != end; ++m) {
    out.append(from, (*m)[0].first);
    out += callers_name(m->str(), cut, *call);
    from = (*m)[0].second;
  }
  out.append(from, text.cend());
  return ir::make_error_impl(status.code(), out, status.arg(), status.arg_index(), status.os_errno());
}

}  // namespace lathe::runtime
