// What the analyses found out, so that they need not find it out again. The moves of a Schedule, the verifier after
// each of them and the Schedules of a search ask the same of the same scopes over and over: one proof in a hundred is a
// new one. An answer belongs to a question: expressions and all that is known of the names that count. No result
// depends on what is kept. Private to this floor's analyses.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/analysis/canon.h"
#include "ir/base/hash.h"

namespace lathe::ir {

// What is asked, word for word, and of the ranges what is known of the names in it and, as a name's extent counts, of
// the names in that, in the order in which they were entered.
class Question {
 public:
  Question(const Expr& e, const Ranges& ranges) : ranges_(ranges) {
    add(e);
    add_names();
  }
  Question(const Poly& p, const Ranges& ranges) : ranges_(ranges) {
    add(p.terms.size());
    for (const Term& t : p.terms) {
      add(static_cast<uint64_t>(t.coef));
      add(t.atoms.size());
      for (const Expr& a : t.atoms) add(a);
    }
    add_names();
  }
  // False: nothing is kept. It is too long, too many names are known, or an extent has an inner one.
  bool fits() const { return fits_; }
  std::span<const uint64_t> words() const { return {words_.data(), size_}; }

 private:
  static constexpr int kMostNames = 64;
  static constexpr size_t kMostWords = 1024;

  void add(uint64_t word) {
    if (size_ < kMostWords) {
      words_[size_++] = word;
    } else {
      fits_ = false;
    }
  }
  void add(const std::string& text) {
    if (text.size() <= sizeof(uint64_t)) return add(name_tag(text));
    uint64_t word = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      if (i % sizeof(word) == 0 && i != 0) add(std::exchange(word, 0));
      word = word << 8 | static_cast<unsigned char>(text[i]);
    }
    add(word);
  }
  void add(const Expr& e) {
    if (!e) return add(UINT64_MAX);
    const ExprNode& n = *e;
    add(static_cast<uint64_t>(n.op) | static_cast<uint64_t>(n.type) << 8 | n.args.size() << 16 | n.name.size() << 32);
    if (n.op == Op::k_const_int) add(static_cast<uint64_t>(n.ival));
    if (n.op == Op::k_const_float) add(std::bit_cast<uint64_t>(n.fval));
    if (!n.name.empty()) {
      add(n.name);
      find(n.name);
    }
    for (const Expr& a : n.args) add(a);
  }
  // A name that counts.
  void find(const std::string& name) {
    const int depth = ranges_.depth_of(name);
    if (depth < 0) return;
    fits_ &= depth < below_;
    if (depth >= below_) return;
    found_ |= uint64_t{1} << depth;
  }
  // What is known of them, the inner ones first: extents find further ones, outside of theirs.
  void add_names() {
    while (found_ != 0) {
      below_ = std::bit_width(found_) - 1;
      found_ ^= uint64_t{1} << below_;
      const Ranges::Entry& known = ranges_.entries_[static_cast<size_t>(below_)];
      const Interval range = ranges_.range_of(known);
      add(known.name.size() << 1 | static_cast<bool>(known.extent));
      add(known.name);
      add(static_cast<uint64_t>(range.lo));
      add(static_cast<uint64_t>(range.hi));
      add(static_cast<uint64_t>(known.multiple));
      if (known.extent) add(known.extent);  // the points follow from these
    }
  }

  const Ranges& ranges_;
  uint64_t found_ = 0;      // by depth
  int below_ = kMostNames;  // that are found from now on have less depth
  std::array<uint64_t, kMostWords> words_;
  size_t size_ = 0;
  bool fits_ = true;
};

enum class Asked : uint8_t { nonnegative, simplified, interval };

// The latest answers of one kind on this thread, at most `slots`; they live as long as the thread.
template <Asked kind, class Answer, size_t slots>
class Answers {
 public:
  // The answer to the question, from ask() if it is not known.
  template <class Ask>
  static Answer get(const Question& q, const Ask& ask) {
    if (!q.fits()) return ask();
    static thread_local std::unique_ptr<Slot[]> kept;
    if (kept == nullptr) kept = std::make_unique<Slot[]>(slots);
    Slot& s = kept[hash_bytes(q.words().data(), q.words().size_bytes()) % slots];
    if (std::equal(q.words().begin(), q.words().end(), s.words.begin(), s.words.end())) return s.answer;
    Answer answer = ask();  // which may ask in turn
    s.words.assign(q.words().begin(), q.words().end());
    s.answer = answer;
    return answer;
  }

 private:
  struct Slot {
    std::vector<uint64_t> words;  // empty: of no question
    Answer answer{};
  };
};

}  // namespace lathe::ir
