// Kernel helpers: see kernel.h.
#include "ir/core/kernel.h"

#include "ir/core/made_sums.h"
#include "ir/core/names.h"

namespace lathe::ir {

const Buffer* Kernel::find_buffer(std::string_view buffer) const {
  for (const Buffer& b : buffers) {
    if (b.name == buffer) return &b;
  }
  return nullptr;
}
Buffer* Kernel::find_buffer(std::string_view buffer) {
  return const_cast<Buffer*>(static_cast<const Kernel*>(this)->find_buffer(buffer));
}
const Symbol* Kernel::find_symbol(std::string_view symbol) const {
  for (const Symbol& s : symbols) {
    if (s.name == symbol) return &s;
  }
  return nullptr;
}
int Kernel::num_params() const {
  int n = 0;
  for (const Buffer& b : buffers) n += is_param(b.place);
  return n;
}

Stmt make_scope(std::string iter, Expr extent, std::vector<Stmt> body, std::string role) {
  Stmt s;
  s.kind = Stmt::Kind::scope;
  s.iter = std::move(iter);
  s.extent = std::move(extent);
  s.body = std::move(body);
  s.role = std::move(role);
  return s;
}

Stmt make_assign(std::string target, std::vector<Expr> index, AssignOp op, Expr value) {
  Stmt s;
  s.kind = Stmt::Kind::assign;
  s.target = std::move(target);
  s.index = std::move(index);
  s.op = op;
  s.value = std::move(value);
  return s;
}

static const Stmt* find_in(const std::vector<Stmt>& body, std::string_view iter) {
  for (const Stmt& s : body) {
    if (s.kind != Stmt::Kind::scope) continue;
    if (s.iter == iter) return &s;
    if (const Stmt* inner = find_in(s.body, iter)) return inner;
  }
  return nullptr;
}
const Stmt* find_scope(const Kernel& kernel, std::string_view iter) { return find_in(kernel.body, iter); }
Stmt* find_scope(Kernel& kernel, std::string_view iter) { return const_cast<Stmt*>(find_in(kernel.body, iter)); }

void rewrite_exprs(std::vector<Stmt>& body, const std::function<Expr(const Expr&)>& f, uint64_t holding) {
  const auto holds = [&](const Expr& e) { return e && (holding == 0 || (e->holds & holding) != 0); };
  for_each_stmt(body, [&](Stmt& s) {
    if (holds(s.extent)) s.extent = rewrite(s.extent, f, holding);
    for (Expr& e : s.index) {
      if (holds(e)) e = rewrite(e, f, holding);
    }
    if (holds(s.value)) s.value = rewrite(s.value, f, holding);
  });
}

Expr substitute(const Expr& e, const std::vector<std::pair<std::string, Expr>>& map) {
  uint64_t names = 0;
  for (const auto& [name, value] : map) names |= holds_name(name);
  if (names == 0) return e;
  const auto value_of = [&](const Expr& node) -> Expr {
    if (node->op != Op::k_iter && node->op != Op::k_symbol) return {};
    for (const auto& [name, value] : map) {
      if (node->name == name) return value;
    }
    return {};
  };
  return rewrite(e, value_of, names);
}

Expr made_element(const Buffer& b, const std::string& from, const std::vector<Expr>& index) {
  std::vector<std::pair<std::string, Expr>> own;
  for (size_t d = 0; d < index.size(); ++d) own.emplace_back("d" + std::to_string(d), index[d]);
  return rewrite(substitute(b.made, own), [&](const Expr& e) -> Expr {
    if (e->op != Op::k_load || e->name != b.name) return {};
    return load(from, e->args.empty() ? index : e->args, b.given);
  });
}

bool is_shared_out(Mark mark) { return mark == Mark::parallel || is_of_grid(mark) || mark == Mark::block; }

bool has_contents(const Buffer& buffer) { return is_input(buffer.place) || buffer.kept; }

DType given_type(const Buffer& b) { return b.made ? b.given : b.type; }
const std::vector<Expr>& given_dims(const Buffer& b) { return b.given_dims.empty() ? b.dims : b.given_dims; }

Kernel as_given(const Kernel& kernel) {
  Kernel out = kernel;
  std::vector<Buffer> first;
  for (Buffer& b : out.buffers) {
    if (!b.made) continue;
    Buffer whole = b;
    whole.name += "_made";
    int loads = 0;
    for_each_node(b.made, [&](const ExprNode& n) { loads += n.op == Op::k_load; });
    const bool once = loads > 1 || terms_summed(b);
    rewrite_exprs(out.body, [&](const Expr& e) -> Expr {
      if (e->op != Op::k_load || e->name != b.name) return {};
      return once ? load(whole.name, e->args, e->type) : made_element(b, b.name, e->args);
    });
    if (once) {
      out.body.insert(out.body.begin(), elements_made(b, b.name, whole.name, whole.name + "_"));
      whole.place = Place::heap;
      whole.made = Expr();
      whole.given_dims.clear();
      whole.strides.clear();
      whole.layout.clear();
      whole.padding.clear();
      first.push_back(std::move(whole));
    }
    b.dims = given_dims(b);
    b.type = b.given;
    b.given_dims.clear();
    b.made = Expr();
  }
  out.buffers.insert(out.buffers.end(), first.begin(), first.end());
  return out;
}

// The padded logical size of dimension d.
static Expr padded(const Buffer& buffer, int d) {
  const Expr& size = buffer.dims[d];
  const int64_t pad = buffer.padding.empty() ? 0 : buffer.padding[d];
  if (pad == 0) return size;
  return is_const_int(size) ? Expr(size->ival + pad) : size + Expr(pad);
}

std::vector<LayoutDim> full_layout(const Buffer& buffer) {
  if (!buffer.layout.empty()) return buffer.layout;
  std::vector<LayoutDim> out;
  for (size_t d = 0; d < buffer.dims.size(); ++d) out.push_back({static_cast<int>(d), LayoutDim::Part::whole, 0});
  return out;
}

std::vector<Expr> physical_dims(const Buffer& buffer) {
  std::vector<Expr> out;
  if (buffer.layout.empty()) {
    for (size_t d = 0; d < buffer.dims.size(); ++d) out.push_back(padded(buffer, static_cast<int>(d)));
    return out;
  }
  for (const LayoutDim& l : buffer.layout) {
    const Expr size = padded(buffer, l.dim);
    switch (l.part) {
      case LayoutDim::Part::whole:
        out.push_back(size);
        break;
      case LayoutDim::Part::inner:
        out.push_back(Expr(l.tile));
        break;
      case LayoutDim::Part::outer:
        out.push_back(is_const_int(size) ? Expr((size->ival + l.tile - 1) / l.tile) : ceildiv(size, Expr(l.tile)));
        break;
    }
  }
  return out;
}

}  // namespace lathe::ir
