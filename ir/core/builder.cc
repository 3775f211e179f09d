// Builder: see builder.h.
#include "ir/core/builder.h"

#include <algorithm>

#include "ir/core/names.h"

namespace lathe::ir {

Builder::Builder(std::string name, std::string family) : open_(1) {
  kernel_.name = std::move(name);
  kernel_.family = std::move(family);
}

Expr Builder::sym(const std::string& name, int64_t min, int64_t max, int64_t multiple_of) {
  kernel_.symbols.push_back({name, min, max, multiple_of});
  return symbol(name);
}

BufferRef Builder::buffer(const std::string& name, DType type, std::vector<Expr> dims, Place place,
                          std::vector<Expr> strides) {
  Buffer b;
  b.name = name;
  b.type = type;
  b.dims = std::move(dims);
  b.place = place;
  b.strides = std::move(strides);
  kernel_.buffers.push_back(std::move(b));
  return {name, type};
}
BufferRef Builder::in(const std::string& name, DType type, std::vector<Expr> dims, std::vector<Expr> strides) {
  return buffer(name, type, std::move(dims), Place::in, std::move(strides));
}
BufferRef Builder::constant(const std::string& name, DType type, std::vector<Expr> dims, std::vector<Expr> strides) {
  return buffer(name, type, std::move(dims), Place::constant, std::move(strides));
}
BufferRef Builder::out(const std::string& name, DType type, std::vector<Expr> dims, std::vector<Expr> strides) {
  return buffer(name, type, std::move(dims), Place::out, std::move(strides));
}
BufferRef Builder::heap(const std::string& name, DType type, std::vector<Expr> dims) {
  return buffer(name, type, std::move(dims), Place::heap);
}
BufferRef Builder::stack(const std::string& name, DType type, std::vector<Expr> dims) {
  return buffer(name, type, std::move(dims), Place::stack);
}
BufferRef Builder::reg(const std::string& name, DType type, std::vector<Expr> dims) {
  return buffer(name, type, std::move(dims), Place::reg);
}

void Builder::loop(const std::string& iter_name, const Expr& extent, const std::string& role,
                   const std::function<void(const Expr&)>& body, Mark mark, const std::string& intrinsic) {
  open_.emplace_back();
  body(iter(iter_name));
  Stmt s = make_scope(iter_name, extent, std::move(open_.back()), role);
  s.mark = mark;
  s.intrinsic = intrinsic;
  open_.pop_back();
  open_.back().push_back(std::move(s));
}

void Builder::assign(AssignOp op, const Element& target, const Expr& value) {
  open_.back().push_back(make_assign(target.buffer, target.index, op, value));
}

Kernel Builder::build() const {
  Kernel out = kernel_;
  std::stable_partition(out.buffers.begin(), out.buffers.end(), [](const Buffer& b) { return is_param(b.place); });
  out.body = open_.front();
  return out;
}

}  // namespace lathe::ir
