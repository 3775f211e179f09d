// Locals of a nest: see nest_form.h. A local is computed wherever the loops run that it names, and then nothing says
// that the loops inside them do: an element that is read for it has to be there in any case.
#include <algorithm>

#include "runtime/walk/nest_form.h"
#include "runtime/walk/nest_steps.h"

namespace lathe::runtime {

FormBuilder::Wide FormBuilder::range_of_level(int level) const {
  if (level >= kMaxNestDepth) return known_[static_cast<size_t>(level - kMaxNestDepth)].range;
  for (const Loop& l : loops_) {
    if (l.level == level) return {0, l.hi};
  }
  return {0, 0};
}

uint64_t FormBuilder::levels_of(int level) const {
  return level >= kMaxNestDepth ? known_[static_cast<size_t>(level - kMaxNestDepth)].levels : uint64_t{1} << level;
}

// The innermost loop of these levels.
std::vector<FormBuilder::Local>& FormBuilder::locals_of(uint64_t levels) {
  for (auto loop = loops_.rbegin(); loop != loops_.rend(); ++loop) {
    if (loop->level >= 0 && (levels >> loop->level & 1) != 0) return loop->locals;
  }
  return base_;
}

std::optional<FormBuilder::Linear> FormBuilder::local(const ir::Expr& e) {
  const Input* input = find_input(e);
  if (known_.size() == kMaxNestLocals || (input == nullptr && !step_kind(e->op))) return std::nullopt;
  const auto of_level = [](int level) { return Linear{0, {{level, 1}}}; };
  const auto named = [&](const Local& l) { return ir::equal(l.value, e); };
  if (const auto at = std::find_if(base_.begin(), base_.end(), named); at != base_.end())
    return of_level(at->bound.level);
  for (const Loop& loop : loops_) {
    const auto at = std::find_if(loop.locals.begin(), loop.locals.end(), named);
    if (at != loop.locals.end()) return of_level(at->bound.level);
  }
  const ir::Result<Wide> values = range_of_parts(e);
  if (!values.ok()) return std::nullopt;
  if (values->first == values->second) return Linear{values->first, {}};
  BoundLocal b;
  if (input != nullptr) {
    const ir::Result<ProgramStep::Kind> load = load_kind(input->type);
    if (!load.ok() || minimum(e->args[0]).empty()) return std::nullopt;
    const ir::Result<Built> element = build(e->args[0]);
    if (!element.ok() || element->range.lo < 0 || element->range.hi >= input->elements) return std::nullopt;
    b.loads = true;
    b.load = {*load, input->argument};
    b.form = element->form;
  } else {
    Program program;
    if (!emit_parts(e, 0, &program).ok() || !program.anywhere) return std::nullopt;
    b.form = store(program);
  }
  if (known_.size() == kMaxNestLocals) return std::nullopt;
  b.level = kMaxNestDepth + static_cast<int>(known_.size());
  known_.push_back({*values, b.form.levels});
  locals_of(b.form.levels).push_back({e, b});
  return of_level(b.level);
}

LocalRange FormBuilder::take_locals() {
  std::vector<Local>& from = loops_.empty() ? base_ : loops_.back().locals;
  const LocalRange out{static_cast<uint32_t>(out_->locals.size()), static_cast<uint32_t>(from.size())};
  for (const Local& l : from) out_->locals.push_back(l.bound);
  from.clear();
  return out;
}

}  // namespace lathe::runtime
