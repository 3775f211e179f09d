// See oracle_case.h.
#include "runtime/oracle/oracle_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

namespace lathe::runtime {
namespace {

constexpr int64_t kLarge = int64_t{64} << 20;

ir::Status copy_guarded(const char* source, size_t bytes, size_t alignment, GuardSide side, GuardMemory* out) {
  LATHE_ASSIGN(*out, GuardMemory::map(bytes, alignment, side));
  if (bytes > 0) std::memcpy(out->data(), source, bytes);
  out->set_writable(false);
  return {};
}

}  // namespace

HostData OracleCase::host() const {
  HostData out;
  for (const auto& m : inputs) out.push_back(m ? m->sides[0].data() : nullptr);
  return out;
}

ir::Status fill_inputs(OracleCase* c, const DataRecipe& recipe, const OracleCase* first) {
  for (size_t i = 0; i < c->shapes.size(); ++i) {
    const OperandShape& s = c->shapes[i];
    c->inputs.emplace_back();
    if (!s.has_contents()) continue;
    if (first && s.place == ir::Place::constant && s.bytes() > kLarge) {
      c->inputs.back() = first->inputs[i];
      continue;
    }
    auto memory = std::make_shared<OperandMemory>();
    const size_t element = static_cast<size_t>(ir::dtype_bytes(s.type));
    LATHE_ASSIGN(memory->sides[0], GuardMemory::map(static_cast<size_t>(s.bytes()), element, GuardSide::after));
    fill_operand(s, static_cast<int>(i), recipe, memory->sides[0].data());
    memory->sides[0].set_writable(false);
    if (s.bytes() <= kLarge) {
      LATHE_RETURN_IF_ERROR(copy_guarded(memory->sides[0].data(), static_cast<size_t>(s.bytes()), element,
                                         GuardSide::before, &memory->sides[1]));
    }
    c->inputs.back() = std::move(memory);
  }
  return {};
}

ir::Result<char*> packed_input(OracleCase* c, const PackedParam& packed, GuardSide side) {
  if (packed.param < 0 || packed.param >= static_cast<int>(c->inputs.size()) || !c->inputs[packed.param]) {
    return ir::internal_error("packed parameter {}", packed.param);
  }
  OperandMemory& m = *c->inputs[packed.param];
  LATHE_ASSIGN(const int64_t bytes, packed_bytes(packed, c->symbols));
  const std::pair<uint64_t, int64_t> key{packed.layout_id, bytes};
  if (!m.packed.count(key)) {
    if (bytes > kLarge) m.packed.clear();
    OperandMemory::Packed made;
    LATHE_ASSIGN(made.sides[0], GuardMemory::map(static_cast<size_t>(bytes), 64, GuardSide::after));
    LATHE_RETURN_IF_ERROR(
        run_pack(packed, c->symbols, c->layouts[packed.param], m.at(GuardSide::after), made.sides[0].data(), nullptr));
    made.sides[0].set_writable(false);
    if (bytes <= kLarge) {
      LATHE_RETURN_IF_ERROR(
          copy_guarded(made.sides[0].data(), static_cast<size_t>(bytes), 64, GuardSide::before, &made.sides[1]));
    }
    m.packed.emplace(key, std::move(made));
  }
  const OperandMemory::Packed& p = m.packed.at(key);
  return p.sides[side == GuardSide::before && p.sides[1].data() != nullptr].data();
}

std::string check_written(const OperandShape& shape, const char* data) {
  if (shape.kept) return "";  // what is there was there before, or is compared
  int64_t bad = -1;
  if (shape.dense()) {
    // Most outputs have no such pattern anywhere: found by one quick pass.
    if (!maybe_poison(shape.type, data, shape.span)) return "";
    for (int64_t i = 0; i < shape.span && bad < 0; ++i) {
      if (is_poison(shape.type, data, i)) bad = i;
    }
    return bad < 0 ? "" : cell_name(shape, bad) + " never written";
  }
  std::vector<bool> cell(static_cast<size_t>(shape.span), false);
  for_each_cell(shape, [&](int64_t, int64_t offset) {
    cell[static_cast<size_t>(offset)] = true;
    if (is_poison(shape.type, data, offset)) bad = offset;
    return bad < 0;
  });
  if (bad >= 0) return cell_name(shape, bad) + " never written";
  if (ir::dtype_bytes(shape.type) == 1) return "";
  for (int64_t i = 0; i < shape.span; ++i) {
    if (!cell[static_cast<size_t>(i)] && !is_poison(shape.type, data, i)) {
      return fmt::format("{} written between its rows, at element {}", shape.name, i);
    }
  }
  return "";
}

int64_t first_difference(const OperandShape& shape, const char* a, const char* b) {
  const size_t bytes = static_cast<size_t>(ir::dtype_bytes(shape.type));
  if (std::memcmp(a, b, static_cast<size_t>(shape.bytes())) == 0) return -1;
  int64_t found = -1;
  for_each_cell(shape, [&](int64_t, int64_t offset) {
    const size_t at = static_cast<size_t>(offset) * bytes;
    if (std::memcmp(a + at, b + at, bytes) != 0) found = offset;
    return found < 0;
  });
  return found;
}

std::vector<int64_t> cell_index(const OperandShape& shape, int64_t offset) {
  std::vector<int64_t> out(shape.dims.size(), 0);
  for_each_cell(shape, [&](int64_t linear, int64_t here) {
    if (here != offset) return true;
    for (int d = static_cast<int>(out.size()) - 1; d >= 0; --d) {
      out[d] = linear % shape.dims[d];
      linear /= shape.dims[d];
    }
    return false;
  });
  return out;
}

std::string cell_name(const OperandShape& shape, int64_t offset) {
  return fmt::format("{}[{}]", shape.name, fmt::join(cell_index(shape, offset), ", "));
}

}  // namespace lathe::runtime
