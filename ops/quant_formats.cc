// See quant_formats.h.
#include "ops/quant_formats.h"

#include <algorithm>
#include <span>

#include "ir/analysis/analysis.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"

namespace lathe::ops {

using ir::Expr;

namespace {

constexpr int64_t kMostGroup = 65536;

struct Row {
  const char* name;
  FieldsIn place;
  const char* meaning;
};
constexpr Row kRows[] = {
#define LATHE_QUANT_FORMAT(name, place, meaning) {#name, FieldsIn::place, meaning},
#include "ops/quant_formats.def"
#undef LATHE_QUANT_FORMAT
};

// Of another form of a row's meaning.
struct OtherRow {
  std::string_view name;
  const char* kernel;
};
constexpr OtherRow kPackedRows[] = {
#define LATHE_QUANT_FORMAT(name, place, meaning)
#define LATHE_QUANT_PACKED(name, kernel) {#name, kernel},
#include "ops/quant_formats.def"
#undef LATHE_QUANT_FORMAT
};
constexpr OtherRow kReorderedRows[] = {
#define LATHE_QUANT_FORMAT(name, place, meaning)
#define LATHE_QUANT_REORDERED(name, kernel) {#name, kernel},
#include "ops/quant_formats.def"
#undef LATHE_QUANT_FORMAT
};

// Bytes of a field in one block as the caller has it: its dims after the row and the block.
int64_t bytes_in_block(const ir::Buffer& field) {
  int64_t bytes = ir::dtype_bytes(ir::given_type(field));
  const std::vector<Expr>& dims = ir::given_dims(field);
  for (size_t d = 2; d < dims.size(); ++d) bytes *= dims[d]->ival;
  return bytes;
}

bool is_group_of_k(const ir::ExprNode& e) {
  return e.op == ir::Op::k_floordiv && e.args[0]->op == ir::Op::k_iter && e.args[0]->name == "k" &&
         e.args[1]->op == ir::Op::k_symbol && e.args[1]->name == "G";
}

// False: there is a row of that name, which does not parse.
bool parse_other(std::span<const OtherRow> rows, std::string_view name, ir::Kernel& out) {
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const OtherRow& r) { return r.name == name; });
  if (row == rows.end()) return true;
  ir::Result<ir::Kernel> kernel = ir::parse_kernel(row->kernel);
  if (kernel.ok()) out = std::move(*kernel);
  return kernel.ok();
}

std::vector<QuantFormat> parse_rows() {
  std::vector<QuantFormat> out;
  for (const Row& row : kRows) {
    ir::Result<ir::Kernel> meaning = ir::parse_kernel(row.meaning);
    if (!meaning.ok()) continue;  // the test of the table says so
    QuantFormat f;
    f.name = row.name;
    f.place = row.place;
    f.meaning = std::move(*meaning);
    if (!parse_other(kPackedRows, f.name, f.packed) || !parse_other(kReorderedRows, f.name, f.reordered)) continue;
    f.block = f.meaning.find_symbol("K")->multiple_of;
    f.grouped = f.meaning.find_symbol("G") != nullptr;
    for (const ir::Buffer& b : f.meaning.buffers) {
      if (f.place == FieldsIn::kBlocks && b.place == ir::Place::constant) f.block_bytes += bytes_in_block(b);
      f.made |= static_cast<bool>(b.made);
    }
    out.push_back(std::move(f));
  }
  return out;
}

// Numbers for K and G, and an expression for N.
std::vector<std::pair<std::string, Expr>> sizes_of(const QuantWeight& w, const Expr& n) {
  return {{"N", n}, {"K", Expr(w.k)}, {"G", Expr(w.group)}};
}

ir::Status wrong_size(const TensorDesc& t, size_t d, const std::string& expected) {
  return ir::invalid("{}, expected {}", dim_text(t.dims[d]), expected).with_arg(fmt::format("{}.shape[{}]", t.name, d));
}

// Of the field's dims, the value of the symbol in them, from the operand's from the dimension `first` on: dims that are
// the symbol, or its quotient by a number.
int64_t solved(const ir::Buffer& field, const TensorDesc& t, size_t first, const std::string& symbol, int64_t group) {
  const std::vector<Expr>& dims = ir::given_dims(field);
  for (size_t d = 0; d < dims.size(); ++d) {
    const Expr& e = dims[d];
    const bool quotient = e->op == ir::Op::k_floordiv || e->op == ir::Op::k_ceildiv;
    const Expr& name = quotient ? e->args[0] : e;
    if (name->op != ir::Op::k_symbol || name->name != symbol || !t.dims[first + d].fixed()) continue;
    const int64_t by = !quotient ? 1 : ir::is_const_int(e->args[1]) ? e->args[1]->ival : group;
    return t.dims[first + d].max * by;
  }
  return 0;
}

// Dimensions before those of one matrix.
size_t first_dim(const QuantWeight& w) { return w.count > 0 ? 1 : 0; }

ir::Status check_block_rows(const QuantWeight& w, const TensorDesc& t) {
  const int64_t bytes = w.k / w.format->block * w.format->block_bytes;
  const size_t row = first_dim(w) + 1;
  if (!same_dim(t.dims[row], fixed_dim(bytes)))
    return wrong_size(t, row,
                      fmt::format("{} ({} bytes for each {} of {} inputs, {})", bytes, w.format->block_bytes,
                                  w.format->block, w.k, w.format->name));
  return {};
}

ir::Status check_tensors(const QuantWeight& w, const std::vector<const TensorDesc*>& operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    const ir::Buffer& field = w.format->meaning.buffers[i];
    const TensorDesc& t = *operands[i];
    const std::vector<Expr>& dims = ir::given_dims(field);
    for (size_t d = 0; d < dims.size(); ++d) {
      const bool of_n = dims[d]->op == ir::Op::k_symbol && dims[d]->name == "N";
      const Expr size = ir::simplify(ir::substitute(dims[d], sizes_of(w, Expr(w.n.max))));
      const size_t at = first_dim(w) + d;
      const bool fits = of_n ? same_dim(t.dims[at], w.n) : same_dim(t.dims[at], fixed_dim(size->ival));
      if (!fits)
        return wrong_size(
            t, at,
            fmt::format("{} ({} of {}, K {}{})", of_n ? dim_text(w.n) : ir::print(size), ir::print(dims[d]),
                        w.format->name, w.k, w.format->grouped ? fmt::format(", G {}", w.group) : ""));
    }
  }
  return {};
}

// Of several matrices: each operand has as many, and sizes are numbers.
ir::Status check_count(const std::vector<const TensorDesc*>& operands) {
  const DimDesc& count = operands[0]->dims[0];
  for (const TensorDesc* t : operands) {
    if (!count.fixed() || count.max < 1) return wrong_size(*operands[0], 0, "a fixed number of weights, at least 1");
    if (!same_dim(t->dims[0], count))
      return wrong_size(*t, 0, fmt::format("{} (the weights of {})", count.max, operands[0]->name));
    for (size_t d = 1; d < t->dims.size(); ++d) {
      if (!t->dims[d].fixed()) return wrong_size(*t, d, "a fixed size: weights stand one after another");
    }
  }
  return {};
}

ir::Status check_dtypes(const QuantFormat& f, const std::vector<const TensorDesc*>& operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    const ir::DType type = operands[i]->dtype;
    const ir::DType wanted = f.place == FieldsIn::kBlocks ? ir::DType::u8 : ir::given_type(f.meaning.buffers[i]);
    const bool half = wanted == ir::DType::f32 && (type == ir::DType::f16 || type == ir::DType::bf16);
    if (type != wanted && !half)
      return ir::invalid("dtype {}, expected {}{} ({})", ir::dtype_name(type), ir::dtype_name(wanted),
                         wanted == ir::DType::f32 ? ", f16 or bf16" : "", f.name)
          .with_arg(operands[i]->name);
  }
  return {};
}

ir::Status check_group(const QuantFormat& f, int64_t group, const std::string& where) {
  const ir::Symbol* g = f.meaning.find_symbol("G");
  if (g == nullptr) {
    if (group == 0) return {};
    return ir::invalid("group {}, expected none: {} has groups of its own", group, f.name).with_arg(where);
  }
  if (group >= g->min && group <= kMostGroup && group % g->multiple_of == 0) return {};
  return ir::invalid("group {}, expected {} in {}..{} ({})", group,
                     g->multiple_of == 1 ? "one" : fmt::format("a multiple of {}", g->multiple_of), g->min, kMostGroup,
                     f.name)
      .with_arg(where);
}

}  // namespace

size_t QuantFormat::tensors() const {
  return place == FieldsIn::kBlocks ? 1 : static_cast<size_t>(meaning.num_params()) - 1;
}

const std::vector<QuantFormat>& quant_formats() {
  static const std::vector<QuantFormat> kFormats = parse_rows();
  return kFormats;
}

const QuantFormat* find_quant_format(std::string_view name) {
  for (const QuantFormat& f : quant_formats()) {
    if (f.name == name) return &f;
  }
  return nullptr;
}

std::string quant_format_names() {
  std::string out;
  for (const Row& row : kRows) out += fmt::format("{}{}", out.empty() ? "" : ", ", row.name);
  return out;
}

ir::Result<QuantWeight> quant_weight(const QuantFormat& f, int64_t k, int64_t group,
                                     const std::vector<const TensorDesc*>& operands, bool many) {
  const TensorDesc& first = *operands[0];
  const size_t before = many ? 1 : 0;
  LATHE_RETURN_IF_ERROR(check_group(f, group, first.name));
  LATHE_RETURN_IF_ERROR(check_dtypes(f, operands));
  const auto rank_of = [&](size_t i) {
    return before + (f.place == FieldsIn::kBlocks ? 2 : ir::given_dims(f.meaning.buffers[i]).size());
  };
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i]->dims.size() != rank_of(i))
      return ir::invalid("{} dimensions, expected {} ({})", operands[i]->dims.size(), rank_of(i), f.name)
          .with_arg(operands[i]->name + ".shape");
    if (f.made && f.place == FieldsIn::kTensors && !operands[i]->constant)
      return ir::unsupported("no constant, expected one: {} is put in another order when it is packed", f.name)
          .with_arg(operands[i]->name);
    if (!operands[i]->strides.empty())
      return ir::unsupported("strided, expected compact rows ({})", f.name).with_arg(operands[i]->name);
  }
  if (many) LATHE_RETURN_IF_ERROR(check_count(operands));
  QuantWeight w{&f, {}, k, group};
  if (many) w.count = first.dims[0].max;
  if (f.place == FieldsIn::kBlocks) {
    const DimDesc& row = first.dims[before + 1];
    w.n = first.dims[before];
    if (k == 0 && row.fixed()) w.k = row.max / f.block_bytes * f.block;
  } else {
    for (size_t i = 0; i < operands.size() && (w.k == 0 || w.n.max == 0); ++i) {
      const ir::Buffer& field = f.meaning.buffers[i];
      if (w.k == 0) w.k = solved(field, *operands[i], before, "K", group);
      if (w.n.max == 0) w.n = fixed_dim(solved(field, *operands[i], before, "N", group));
    }
  }
  if (w.k % f.block != 0 || (f.place == FieldsIn::kBlocks && w.k == 0))
    return ir::invalid("K {}, expected a multiple of {} ({})", w.k, f.block, f.name).with_arg(first.name);
  LATHE_RETURN_IF_ERROR(f.place == FieldsIn::kBlocks ? check_block_rows(w, first) : check_tensors(w, operands));
  return w;
}

// One more dimension before the field's own.
static void add_matrices(ir::Buffer& b, int64_t count) {
  if (b.made) {
    std::vector<std::pair<std::string, Expr>> behind;
    for (size_t d = 0; d < b.dims.size(); ++d)
      behind.emplace_back(fmt::format("d{}", d), ir::iter(fmt::format("d{}", d + 1)));
    b.made = ir::rewrite(ir::substitute(b.made, behind), [&](const Expr& e) -> Expr {
      if (e->op != ir::Op::k_load) return {};
      std::vector<Expr> index = e->args;
      index.insert(index.begin(), ir::iter("d0"));
      return ir::load(e->name, std::move(index), e->type);
    });
  }
  b.dims.insert(b.dims.begin(), Expr(count));
  if (!b.given_dims.empty()) b.given_dims.insert(b.given_dims.begin(), Expr(count));
}

std::vector<QuantField> quant_fields(const QuantWeight& w, const std::vector<const TensorDesc*>& operands) {
  const QuantFormat& f = *w.format;
  const auto sizes = sizes_of(w, dim_expr(w.n));
  const auto sized = [&](std::vector<Expr>& dims) {
    for (Expr& d : dims) d = ir::simplify(ir::substitute(d, sizes));
  };
  std::vector<QuantField> out;
  int64_t offset = 0;
  for (const ir::Buffer& b : w.kernel().buffers) {
    if (b.place != ir::Place::constant) continue;
    QuantField field{b, out.size(), 0, false};
    sized(field.buffer.dims);
    sized(field.buffer.given_dims);
    if (f.place == FieldsIn::kTensors) {
      if (!b.made) field.buffer.type = operands[field.operand]->dtype;
    } else {
      const int64_t bytes = bytes_in_block(b), element = ir::dtype_bytes(ir::given_type(b)),
                    block = f.block_bytes / element;
      field.operand = 0;
      field.offset = offset;
      field.part = true;
      field.buffer.strides = {Expr(w.k / f.block * block), Expr(block)};
      if (ir::given_dims(b).size() > 2) field.buffer.strides.emplace_back(1);
      if (w.count > 0)
        field.buffer.strides.insert(field.buffer.strides.begin(), Expr(w.n.max) * field.buffer.strides[0]);
      offset += bytes;
    }
    if (w.count > 0) add_matrices(field.buffer, w.count);
    out.push_back(std::move(field));
  }
  return out;
}

Expr quant_value(const QuantWeight& w, const std::vector<QuantField>& fields, const std::vector<std::string>& names,
                 const Expr& n, const Expr& k, const QuantAt& at) {
  Expr value = w.kernel().body[0].body[0].body[0].value;
  if (at.group_of_k) {
    value = ir::rewrite(value, [&](const Expr& e) -> Expr { return is_group_of_k(*e) ? at.group_of_k : Expr(); });
  }
  const Expr placed = ir::substitute(value, {{"n", n}, {"k", k}, {"K", Expr(w.k)}, {"G", Expr(w.group)}});
  return ir::rewrite(placed, [&](const Expr& e) -> Expr {
    if (e->op == ir::Op::k_cast && e->type == e->args[0]->type) return e->args[0];  // a scale that is f32
    if (e->op != ir::Op::k_load) return {};
    for (size_t i = 0; i < fields.size(); ++i) {
      if (fields[i].buffer.name != e->name) continue;
      std::vector<Expr> index = e->args;
      if (w.count > 0) index.insert(index.begin(), at.matrix);
      return ir::load(names[i], std::move(index), fields[i].buffer.type);
    }
    return {};
  });
}

}  // namespace lathe::ops
