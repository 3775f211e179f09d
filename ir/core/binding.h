// Symbols with what is said of them: a value each at one shape, or the range that something serves. Few, so they are
// looked through, in the order in which they were said; nothing here checks them against a Kernel.
#pragma once
#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lathe::ir {

template <class T>
class SymbolMap {
 public:
  using value_type = std::pair<std::string, T>;
  using iterator = typename std::vector<value_type>::iterator;
  using const_iterator = typename std::vector<value_type>::const_iterator;

  SymbolMap() = default;
  SymbolMap(std::initializer_list<value_type> entries) : entries_(entries) {}

  iterator begin() { return entries_.begin(); }
  iterator end() { return entries_.end(); }
  const_iterator begin() const { return entries_.begin(); }
  const_iterator end() const { return entries_.end(); }
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }

  iterator find(std::string_view name) {
    return std::find_if(begin(), end(), [&](const value_type& e) { return e.first == name; });
  }
  const_iterator find(std::string_view name) const {
    return std::find_if(begin(), end(), [&](const value_type& e) { return e.first == name; });
  }
  T value_or(std::string_view name, T otherwise) const {
    const const_iterator found = find(name);
    return found == end() ? otherwise : found->second;
  }
  const T& at(std::string_view name) const {  // there is one
    const const_iterator found = find(name);
    assert(found != end());
    return found->second;
  }
  T& operator[](std::nullptr_t) = delete;  // [0] is no name
  T& operator[](std::string_view name) {
    const iterator found = find(name);
    return found != end() ? found->second : emplace_back(std::string(name), T{}).second;
  }
  value_type& emplace_back(std::string name, T what) { return entries_.emplace_back(std::move(name), std::move(what)); }
  value_type& back() { return entries_.back(); }
  void pop_back() { entries_.pop_back(); }
  bool operator==(const SymbolMap&) const = default;

 private:
  std::vector<value_type> entries_;
};

using SymbolValues = SymbolMap<int64_t>;

// Values of one symbol, ends included.
struct SymbolRange {
  int64_t lo = 0, hi = 0;
  bool holds(int64_t value) const { return value >= lo && value <= hi; }
  bool operator==(const SymbolRange&) const = default;
};
using SymbolRanges = SymbolMap<SymbolRange>;

}  // namespace lathe::ir
