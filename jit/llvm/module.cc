// Control flow and registers of a leaf program in LLVM IR. A register is whatever value it holds at
// this point of the walk; where paths meet, every register written on one of them gets a phi:
//   guard:  br (var + step <= extent), body, exit
//   body:   phis; ...; br (var' + step <= extent), body, exit
//   exit:   phis
// Everything a leaf reads from its LeafArgs is loaded once, in the entry block.
#include "jit/llvm/module.h"

#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/raw_ostream.h>

#include <algorithm>
#include <map>

#include "jit/llvm/ops.h"

namespace lathe::jit {
using llvm::BasicBlock;
using llvm::PHINode;
using llvm::Value;

namespace {

class Builder final : public OpContext {
 public:
  Builder(llvm::IRBuilder<>& b, const LeafProgram& program, llvm::Function* function)
      : OpContext(b, program),
        function_(function),
        args_(function->getArg(0)),
        first_mask_(program.num_vregs),
        first_ptr_(first_mask_ + program.num_masks),
        first_var_(first_ptr_ + static_cast<int>(program.ptrs.size())),
        values_(static_cast<size_t>(first_var_ + program.num_vars)) {}

  ir::Status build() {
    entry_ = block("entry");
    BasicBlock* body = block("body");
    builder.SetInsertPoint(entry_);
    entry_end_ = builder.CreateBr(body);
    builder.SetInsertPoint(body);
    for (size_t i = 0; i < program.ptrs.size(); ++i) set_initial_pointer(static_cast<int>(i), program.ptrs[i]);
    LATHE_RETURN_IF_ERROR(nodes(program.body));
    if (contains(program.body, LeafOp::k_store_stream))  // other threads see what was streamed
      builder.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, {}, {});
    builder.CreateRetVoid();
    remove_unused_phis();
    return {};
  }

  Value* vector(int reg) override { return values_[static_cast<size_t>(reg)]; }
  Value* mask(int reg) override { return values_[static_cast<size_t>(first_mask_ + reg)]; }
  Value* var(int index) override {
    return index < 0 ? builder.getInt64(0) : values_[static_cast<size_t>(first_var_ + index)];
  }
  Value* extent(const Extent& e) override {
    Value* base = builder.getInt64(0);
    if (e.arg >= 0) base = arg_i64(offsetof(ir::LeafArgs, extent) + static_cast<size_t>(e.arg) * 8);
    if (e.arg == Extent::kSegLen) base = seg_len_;
    return e.add == 0 ? base : builder.CreateAdd(base, i64(e.add));
  }
  Value* address(const Mem& mem) override {
    Value* p = pointer(mem.ptr);
    if (mem.index_kind != Mem::Index::none) {
      Value* index = mem.index_kind == Mem::Index::var ? var(mem.index) : stride(mem.index);
      p = bytes_on(p, mem.scale == 1 ? index : builder.CreateMul(index, i64(mem.scale)));
    }
    return mem.disp == 0 ? p : bytes_on(p, i64(mem.disp));
  }

 private:
  Value* i64(int64_t v) { return builder.getInt64(static_cast<uint64_t>(v)); }
  Value* bytes_on(Value* p, Value* bytes) { return builder.CreateGEP(builder.getInt8Ty(), p, bytes); }
  Value*& pointer(int i) { return values_[static_cast<size_t>(first_ptr_ + i)]; }
  BasicBlock* block(const char* name) { return BasicBlock::Create(builder.getContext(), name, function_); }

  Value* load_invariant(llvm::Type* type, Value* base, size_t offset) {
    auto* load =
        builder.CreateAlignedLoad(type, builder.CreateConstGEP1_64(builder.getInt8Ty(), base, offset), llvm::Align(8));
    load->setMetadata("invariant.load", llvm::MDNode::get(builder.getContext(), {}));
    return load;
  }
  // A field of LeafArgs.
  Value* arg(llvm::Type* type, size_t offset) {
    Value*& cached = arg_values_[offset];
    if (!cached) {
      llvm::IRBuilderBase::InsertPointGuard guard(builder);
      builder.SetInsertPoint(entry_end_);
      cached = load_invariant(type, args_, offset);
    }
    return cached;
  }
  Value* arg_i64(size_t offset) { return arg(builder.getInt64Ty(), offset); }
  Value* arg_ptr(size_t offset) { return arg(builder.getPtrTy(), offset); }
  Value* stride(int index) {
    const auto slot = static_cast<size_t>(index / ir::kMaxLeafStrides);
    const auto dim = static_cast<size_t>(index % ir::kMaxLeafStrides);
    return arg_i64(slot * sizeof(ir::LeafOperand) + offsetof(ir::LeafOperand, stride) + dim * 8);
  }
  Value* moved(Value* p, int64_t bytes, const std::vector<PtrTerm>& terms) {
    for (const PtrTerm& t : terms) {
      Value* s = stride(t.stride);
      p = bytes_on(p, t.mult == 1 ? s : builder.CreateMul(s, i64(t.mult)));
    }
    return bytes == 0 ? p : bytes_on(p, i64(bytes));
  }
  void set_initial_pointer(int i, const PtrInit& init) {
    if (init.slot < 0 && init.stream < 0) return;
    const size_t offset =
        init.slot >= 0 ? static_cast<size_t>(init.slot) * sizeof(ir::LeafOperand)
                       : offsetof(ir::LeafArgs, stream) + static_cast<size_t>(init.stream) * sizeof(ir::LeafStream);
    pointer(i) = moved(arg_ptr(offset), init.bytes, init.terms);
  }
  void apply(const std::vector<PtrStep>& steps) {
    for (const PtrStep& s : steps) pointer(s.ptr) = moved(pointer(s.ptr), s.bytes, s.terms);
  }

  // Adds to `out` the registers that `body` may write.
  void written(const Nodes& body, std::vector<int>& out) const {
    for (const Node& n : body) {
      if (n.kind == Node::Kind::inst && n.inst.dst >= 0) {
        out.push_back(leaf_op_kind(n.inst.op) == LeafOpKind::kMask ? first_mask_ + n.inst.dst : n.inst.dst);
      }
      for (const PtrStep& s : n.steps) out.push_back(first_ptr_ + s.ptr);
      if (n.kind == Node::Kind::segments) {
        out.push_back(first_ptr_ + n.seg_ptr_a);
        out.push_back(first_ptr_ + n.seg_ptr_b);
      }
      if (n.kind == Node::Kind::loop || n.kind == Node::Kind::set_var) out.push_back(first_var_ + n.var);
      written(n.body, out);
    }
  }
  // The written registers that hold a value here: those a meeting of paths has to merge. The others
  // end with the body.
  std::vector<int> merged(std::vector<int> candidates) const {
    std::sort(candidates.begin(), candidates.end());
    candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
    std::erase_if(candidates, [this](int r) { return values_[static_cast<size_t>(r)] == nullptr; });
    return candidates;
  }
  PHINode* phi(Value* incoming, BasicBlock* from) {
    PHINode* node = builder.CreatePHI(incoming->getType(), 2);
    node->addIncoming(incoming, from);
    phis_.push_back(node);
    return node;
  }

  // Runs `body` in a loop whose first round is taken if `enter()`. `body` ends by giving the
  // condition of another round.
  template <class Enter, class Body>
  ir::Status loop(const std::vector<int>& registers, Enter enter, Body body) {
    BasicBlock *again = block("loop"), *exit = block("after");
    std::vector<Value*> before(values_);
    Value* first = enter();
    BasicBlock* guard = builder.GetInsertBlock();
    builder.CreateCondBr(first, again, exit);
    builder.SetInsertPoint(again);
    std::vector<PHINode*> phis;
    for (int r : registers) {
      auto& value = values_[static_cast<size_t>(r)];
      phis.push_back(phi(value, guard));
      value = phis.back();
    }
    LATHE_ASSIGN(Value * more, body());
    BasicBlock* latch = builder.GetInsertBlock();
    builder.CreateCondBr(more, again, exit);
    builder.SetInsertPoint(exit);
    for (size_t k = 0; k < registers.size(); ++k) {
      const auto r = static_cast<size_t>(registers[k]);
      phis[k]->addIncoming(values_[r], latch);
      PHINode* merged = phi(before[r], guard);
      merged->addIncoming(values_[r], latch);
      before[r] = merged;
    }
    values_ = std::move(before);
    return {};
  }

  ir::Status count_loop(const Node& n) {
    auto& index = values_[static_cast<size_t>(first_var_ + n.var)];
    if (n.init) index = builder.getInt64(0);
    Value* limit = extent(n.extent);
    // var + step <= extent, with the constant on the extent's side: one comparison of the counter.
    Value* last = builder.CreateSub(limit, i64(n.step));
    std::vector<int> registers{first_var_ + n.var};
    for (const PtrStep& s : n.steps) registers.push_back(first_ptr_ + s.ptr);
    written(n.body, registers);
    return loop(
        merged(std::move(registers)), [&] { return builder.CreateICmpSLE(index, last); },
        [&]() -> ir::Result<Value*> {
          LATHE_RETURN_IF_ERROR(nodes(n.body));
          apply(n.steps);
          auto& counter = values_[static_cast<size_t>(first_var_ + n.var)];
          counter = builder.CreateAdd(counter, i64(n.step), "", false, true);
          return builder.CreateICmpSLE(counter, last);
        });
  }

  ir::Status segments(const Node& n) {
    Value* count = arg_i64(offsetof(ir::LeafArgs, nseg));
    Value* list = arg_ptr(offsetof(ir::LeafArgs, seg));
    std::vector<int> registers{first_ptr_ + n.seg_ptr_a, first_ptr_ + n.seg_ptr_b};
    written(n.body, registers);
    registers = merged(std::move(registers));
    BasicBlock* guard = builder.GetInsertBlock();
    Value* const outer_len = seg_len_;
    const ir::Status status = loop(
        registers, [&] { return builder.CreateICmpSGT(count, i64(0)); },
        [&]() -> ir::Result<Value*> {
          PHINode* segment = phi(list, guard);
          PHINode* left = phi(count, guard);
          auto* i64_type = builder.getInt64Ty();
          Value *base_a = pointer(n.seg_base_a), *base_b = pointer(n.seg_base_b);
          pointer(n.seg_ptr_a) = bytes_on(base_a, load_invariant(i64_type, segment, offsetof(ir::LeafSeg, a_off)));
          pointer(n.seg_ptr_b) = bytes_on(base_b, load_invariant(i64_type, segment, offsetof(ir::LeafSeg, b_off)));
          seg_len_ = load_invariant(i64_type, segment, offsetof(ir::LeafSeg, len));
          LATHE_RETURN_IF_ERROR(nodes(n.body));
          Value* next = bytes_on(segment, i64(sizeof(ir::LeafSeg)));
          Value* rest = builder.CreateSub(left, i64(1), "", false, true);
          segment->addIncoming(next, builder.GetInsertBlock());
          left->addIncoming(rest, builder.GetInsertBlock());
          return builder.CreateICmpSGT(rest, i64(0));
        });
    seg_len_ = outer_len;
    return status;
  }

  // Whether any lane of a mask is on.
  Value* any(Value* on) {
    if (avx512()) return builder.CreateOrReduce(on);
    Value* signs = builder.CreateIntrinsic(llvm::Intrinsic::x86_avx_movmsk_ps_256, {},
                                           {builder.CreateBitCast(on, float_type(lanes))});
    return builder.CreateICmpNE(signs, builder.getInt32(0));
  }

  ir::Status conditional(const Node& n, Value* condition) {
    std::vector<int> registers;
    written(n.body, registers);
    registers = merged(std::move(registers));
    std::vector<Value*> before(values_);
    BasicBlock *then = block("then"), *join = block("join"), *from = builder.GetInsertBlock();
    builder.CreateCondBr(condition, then, join);
    builder.SetInsertPoint(then);
    LATHE_RETURN_IF_ERROR(nodes(n.body));
    BasicBlock* end = builder.GetInsertBlock();
    builder.CreateBr(join);
    builder.SetInsertPoint(join);
    for (int reg : registers) {
      const auto r = static_cast<size_t>(reg);
      PHINode* merged = phi(before[r], from);
      merged->addIncoming(values_[r], end);
      before[r] = merged;
    }
    values_ = std::move(before);
    return {};
  }

  ir::Status nodes(const Nodes& body) {
    for (const Node& n : body) LATHE_RETURN_IF_ERROR(node(n));
    return {};
  }
  ir::Status node(const Node& n) {
    switch (n.kind) {
      case Node::Kind::inst: {
        LATHE_ASSIGN(Value * value, emit_op(*this, n.inst));
        const bool mask = leaf_op_kind(n.inst.op) == LeafOpKind::kMask;
        if (value) values_[static_cast<size_t>(n.inst.dst + (mask ? first_mask_ : 0))] = value;
        return {};
      }
      case Node::Kind::loop:
        return count_loop(n);
      case Node::Kind::if_less:
        return conditional(n, builder.CreateICmpSLT(var(n.var), extent(n.extent)));
      case Node::Kind::if_any:
        return conditional(n, any(mask(n.mask)));
      case Node::Kind::segments:
        return segments(n);
      case Node::Kind::set_ptr:
        pointer(n.steps[0].ptr) = moved(pointer(n.from), n.steps[0].bytes, n.steps[0].terms);
        return {};
      case Node::Kind::set_var:
        values_[static_cast<size_t>(first_var_ + n.var)] = builder.getInt64(0);
        return {};
      case Node::Kind::add_stream: {
        const size_t stream = offsetof(ir::LeafArgs, stream) + static_cast<size_t>(n.from) * sizeof(ir::LeafStream);
        Value*& p = pointer(n.steps[0].ptr);
        p = bytes_on(p, arg_i64(stream + offsetof(ir::LeafStream, step)));
        return {};
      }
    }
    return ir::internal_error("llvm: node kind {}", static_cast<int>(n.kind));
  }

  // Registers rewritten before they are read leave phis nobody needs; removing one can free
  // another.
  void remove_unused_phis() {
    for (bool changed = true; changed;) {
      changed = false;
      std::erase_if(phis_, [&changed](PHINode* p) {
        if (std::any_of(p->user_begin(), p->user_end(), [p](llvm::User* u) { return u != p; })) return false;
        p->replaceAllUsesWith(llvm::PoisonValue::get(p->getType()));
        p->eraseFromParent();
        return changed = true;
      });
    }
  }

  llvm::Function* const function_;
  Value* const args_;
  const int first_mask_, first_ptr_, first_var_;  // vector registers come first
  std::vector<Value*> values_;                    // by register; null: undefined here
  std::map<size_t, Value*> arg_values_;           // by offset in LeafArgs
  std::vector<PHINode*> phis_;
  BasicBlock* entry_ = nullptr;
  llvm::Instruction* entry_end_ = nullptr;
  Value* seg_len_ = nullptr;
};

}  // namespace

ir::Result<LlvmTarget> llvm_target(ir::IsaLevel level, int lanes) {
  // What x86-64-v3 and v4 have beyond the level's own bits (ir/base/target.h) is taken out again; so is
  // vzeroupper, which is the walker's.
  static constexpr LlvmTarget kAvx2 = {"x86-64-v3", "-bmi,-bmi2,-lzcnt,-movbe,-vzeroupper", "256"};
  static constexpr LlvmTarget kAvx512 = {"x86-64-v4", "-bmi,-bmi2,-lzcnt,-movbe,-avx512cd,-vzeroupper", "512"};
  static constexpr LlvmTarget kAvx512Narrow = {kAvx512.cpu, kAvx512.features, "256"};
  const ir::IsaLevel vectors = ir::isa_row(level).vectors;
  if (vectors == ir::IsaLevel::avx512 && lanes == 16) return kAvx512;
  if (vectors == ir::IsaLevel::avx512 && lanes == 8) return kAvx512Narrow;
  if (vectors == ir::IsaLevel::avx2 && lanes == 8) return kAvx2;
  return ir::unsupported("llvm: {} lanes at level {}", lanes, ir::isa_name(level));
}

ir::Result<std::unique_ptr<llvm::Module>> build_module(const LeafProgram& program, llvm::LLVMContext& context,
                                                       const llvm::DataLayout& layout) {
  LATHE_ASSIGN(const LlvmTarget target, llvm_target(program.level, program.lanes));
  auto module = std::make_unique<llvm::Module>(program.name, context);
  module->setTargetTriple(kLlvmTriple);
  module->setDataLayout(layout);
  module->setPICLevel(llvm::PICLevel::BigPIC);
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context), {llvm::PointerType::getUnqual(context)}, false);
  auto* function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, program.name, *module);
  function->setDSOLocal(true);
  function->addFnAttr(llvm::Attribute::NoUnwind);
  function->addFnAttr(llvm::Attribute::NoRedZone);  // the size of its frame is all that it uses of the stack
  function->addFnAttr("no-builtins");
  function->addFnAttr("no-jump-tables", "true");
  function->addFnAttr("frame-pointer", "none");
  function->addFnAttr("prefer-vector-width", target.vector_width);
  function->addFnAttr("target-cpu", target.cpu);
  std::string features = target.features;
  if (const uint64_t dot4 = dot4_feature(program.features()); dot4 != 0)
    features += dot4 == ir::kCpu_avx512vnni ? ",+avx512vnni" : ",+avxvnni";
  if (contains(program.body, LeafOp::k_dot2_bf16)) features += ",+avx512bf16";
  function->addFnAttr("target-features", features);
  for (auto attribute : {llvm::Attribute::NoAlias, llvm::Attribute::ReadOnly, llvm::Attribute::NoCapture}) {
    function->addParamAttr(0, attribute);
  }
  llvm::IRBuilder<> builder(context);
  Builder body(builder, program, function);
  LATHE_RETURN_IF_ERROR(body.build());
#ifndef NDEBUG
  std::string text;
  llvm::raw_string_ostream stream(text);
  if (llvm::verifyModule(*module, &stream)) return ir::internal_error("llvm: invalid module: {}", stream.str());
#endif
  return module;
}

}  // namespace lathe::jit
