// The framework of the moves: their text, the check of a move's shape against its row, apply and
// applicable. The rows are in transform_table.cc, the rewrites in transform_<group>.cc.
#include "search/moves/transform.h"

#include <algorithm>

#include "ir/analysis/dependence.h"
#include "ir/analysis/intrinsics.h"
#include "ir/analysis/verifier.h"
#include "ir/base/inline_vector.h"
#include "ir/core/swizzle.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

std::string to_text(const Move& move) {
  std::string text = move.name;
  for (const std::string& a : move.args) text += " " + a;
  for (const auto& [key, value] : move.options) text += " " + key + "=" + value;
  if (!move.created.empty()) text += fmt::format(" as {}", fmt::join(move.created, ","));
  return text;
}

using Words = InlineVector<std::string_view, 8>;

static Words split(std::string_view text, std::string_view separators) {
  Words out;
  const auto separates = [&](char c) {
    return std::any_of(separators.begin(), separators.end(), [&](char s) { return s == c; });
  };
  size_t start = 0;
  for (size_t at = 0; at <= text.size(); ++at) {
    if (at < text.size() && !separates(text[at])) continue;
    if (at > start) out.push_back(text.substr(start, at - start));
    start = at + 1;
  }
  return out;
}

Result<Move> parse_move(std::string_view line) {
  const Words words = split(line, " \t");
  if (words.empty()) return invalid("expected the name of a move");
  Move move;
  move.name = words[0];
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string_view word = words[i];
    const size_t equals = word.find('=');
    if (word == "as") {
      if (i + 2 != words.size()) return invalid("expected one list of names after `as`, like n0,n1");
      for (const std::string_view name : split(words[i + 1], ",")) move.created.emplace_back(name);
      break;
    }
    if (equals != std::string::npos) {
      if (!move.options.emplace(word.substr(0, equals), word.substr(equals + 1)).second) {
        return invalid("option {} is given twice", word.substr(0, equals));
      }
    } else if (move.options.empty()) {
      move.args.emplace_back(word);
    } else {
      return invalid("expected key=value or `as` after the options, got `{}`", word);
    }
  }
  return move;
}

// One of the words a|b|c, or any word if there is no bar.
static Status check_choice(std::string_view allowed, const std::string& value, std::string_view what) {
  if (allowed.find('|') == std::string_view::npos) return {};
  const Words words = split(allowed, "|");
  if (std::find(words.begin(), words.end(), value) != words.end()) return {};
  return invalid("expected {} to be one of {}, got `{}`", what, allowed, value);
}

// The row's argument line says it all: `scope size tail=exact|peel as outer,inner[,tail]`,
// `[key=word]` for an option that may be left out.
static Status check_shape(const Transform& row, const Move& move) {
  size_t positional = 0, created_at_most = 0;
  Words keys;
  const Words words = split(row.args, " ");
  for (size_t i = 0; i < words.size(); ++i) {
    std::string_view word = words[i];
    if (word == "as") {
      created_at_most = split(words[i + 1], ",[]").size();
      break;
    }
    const bool optional = word.front() == '[';
    if (optional) word = word.substr(1, word.size() - 2);
    const size_t equals = word.find('=');
    if (equals == std::string::npos) {
      if (positional < move.args.size()) LATHE_RETURN_IF_ERROR(check_choice(word, move.args[positional], "argument"));
      ++positional;
      continue;
    }
    keys.push_back(word.substr(0, equals));
    const auto option = move.options.find(std::string(keys.back()));
    if (option != move.options.end()) {
      LATHE_RETURN_IF_ERROR(check_choice(word.substr(equals + 1), option->second, keys.back()));
    } else if (!optional) {
      return invalid("expected option {}", word);
    }
  }
  if (move.args.size() != positional) return invalid("expected {} arguments, got {}", positional, move.args.size());
  for (const auto& [key, value] : move.options) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) return invalid("unknown option {}={}", key, value);
  }
  if (move.created.size() > created_at_most) {
    return invalid("expected at most {} names after `as`, got {}", created_at_most, move.created.size());
  }
  return {};
}

const Transform* find_transform(std::string_view name) {
  if (name.empty()) return nullptr;
  for (const Transform& row : transforms()) {
    if (name[0] == row.name[0] && name == row.name) return &row;
  }
  return nullptr;
}

// A bound tile stays one, whatever a move did around it.
static Status check_bound_tiles(const Kernel& kernel) {
  Status status;
  for_each_stmt(kernel.body, [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::scope || s.mark != Mark::tensor || !status.ok()) return;
    const Intrinsic* intrinsic = find_intrinsic(s.intrinsic);
    std::string why;
    if (intrinsic && matches_intrinsic(kernel, s, *intrinsic, &why)) return;
    status = unsupported("scope `{}` would no longer be the tile {} it is bound to: {}", s.iter, s.intrinsic, why);
  });
  return status;
}

// An output streamed before the move stays unread.
static Status check_streams(const std::vector<std::string>& streamed, const Kernel& kernel) {
  if (streamed.empty()) return {};
  for (const Access& a : collect_accesses(kernel.body)) {
    if ((!a.write || a.reduction) && std::find(streamed.begin(), streamed.end(), a.buffer) != streamed.end())
      return unsupported("streamed output `{}` would be read", a.buffer);
  }
  return {};
}

// Buffers swizzled before the move still have whole lines.
static Status check_swizzles(const std::vector<std::string>& swizzled, const Kernel& kernel) {
  for (const std::string& name : swizzled) {
    const Buffer* b = kernel.find_buffer(name);
    if (b != nullptr && !check_swizzle(*b).ok())
      return unsupported("swizzled `{}` would no longer have whole groups of lines of {} bytes", name, b->swizzle);
  }
  return {};
}

static thread_local uint64_t t_moves = 0;
uint64_t moves_applied() { return t_moves; }

static Status apply_to(TransformResult& result, const Move& move, const TransformParams& params) {
  ++t_moves;
  const Transform* row = find_transform(move.name);
  if (!row) return invalid("expected the name of a move, got `{}`", move.name);
  const Status shape = check_shape(*row, move);
  if (!shape.ok()) return shape.with_context(fmt::format("{}, as in `{} {}`", to_text(move), row->name, row->args));
  std::vector<std::string> streamed, swizzled;
  for (const Buffer& b : result.kernel.buffers) {
    if (b.stream) streamed.push_back(b.name);
    if (b.swizzle != 0) swizzled.push_back(b.name);
  }
  const Status rewritten = row->apply(result, move, params);
  if (!rewritten.ok()) return rewritten.with_context(to_text(move));
  const Status tiles = check_bound_tiles(result.kernel);
  if (!tiles.ok()) return tiles.with_context(to_text(move));
  const Status streams = check_streams(streamed, result.kernel);
  if (!streams.ok()) return streams.with_context(to_text(move));
  const Status swizzles = check_swizzles(swizzled, result.kernel);
  if (!swizzles.ok()) return swizzles.with_context(to_text(move));
  const Status verified = params.verify ? verify(result.kernel) : Status();
  if (!verified.ok()) return internal_error("{}: the result does not verify: {}", to_text(move), verified.message());
  return {};
}

Result<TransformResult> apply(const Kernel& kernel, const Move& move, const TransformParams& params) {
  TransformResult result{kernel, {}};
  LATHE_RETURN_IF_ERROR(apply_to(result, move, params));
  return result;
}

Status apply_in_place(Kernel& kernel, const Move& move, const TransformParams& params) {
  TransformResult result{std::move(kernel), {}};
  const Status applied = apply_to(result, move, params);
  kernel = std::move(result.kernel);
  return applied;
}

std::vector<Candidate> applicable(const Kernel& kernel, bool with_refusals, Where side) {
  std::vector<Candidate> out;
  for (const Transform& row : transforms()) {
    if (!row.serves(side)) continue;
    for (Move& move : row.propose(kernel)) {
      const Result<TransformResult> result = apply(kernel, move);
      if (result.ok()) {
        out.push_back({std::move(move), {}});
      } else if (with_refusals) {
        out.push_back({std::move(move), result.status().message()});
      }
    }
  }
  return out;
}

}  // namespace lathe::search
