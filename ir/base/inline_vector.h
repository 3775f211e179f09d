// A vector whose first N elements live inside it: for short lists that are made and dropped by the thousand, where the
// heap would cost more than the work. The part of std::vector's interface that its users need; iterators and references
// fall as there.
#pragma once
#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <new>
#include <utility>

namespace lathe::ir {

template <class T, size_t N>
class InlineVector {
 public:
  using value_type = T;
  InlineVector() = default;
  InlineVector(std::initializer_list<T> values) { append(values.begin(), values.end()); }
  InlineVector(const InlineVector& other) { append(other.begin(), other.end()); }
  InlineVector(InlineVector&& other) noexcept { take(other); }
  InlineVector& operator=(const InlineVector& other) {
    if (this != &other) {
      clear();
      append(other.begin(), other.end());
    }
    return *this;
  }
  InlineVector& operator=(InlineVector&& other) noexcept {
    if (this != &other) {
      release();
      take(other);
    }
    return *this;
  }
  ~InlineVector() { release(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }

  void reserve(size_t capacity) {
    if (capacity <= capacity_) return;
    T* data = std::allocator<T>().allocate(capacity);
    std::uninitialized_move(begin(), end(), data);
    drop();
    data_ = data;
    capacity_ = capacity;
  }
  void push_back(T value) {
    if (size_ == capacity_) reserve(2 * capacity_);
    new (data_ + size_) T(std::move(value));
    ++size_;
  }
  T* erase(T* at) {
    std::move(at + 1, end(), at);
    shrink(size_ - 1);
    return at;
  }
  void clear() { shrink(0); }
  // To at most the present size.
  void shrink(size_t size) {
    std::destroy(data_ + size, end());
    size_ = size;
  }

 private:
  T* own() { return reinterpret_cast<T*>(inside_); }
  bool on_heap() { return data_ != own(); }
  void append(const T* first, const T* last) {
    reserve(static_cast<size_t>(last - first));
    size_ = static_cast<size_t>(std::uninitialized_copy(first, last, data_) - data_);
  }
  // The elements and their memory go.
  void drop() {
    std::destroy(begin(), end());
    if (on_heap()) std::allocator<T>().deallocate(data_, capacity_);
  }
  void release() {
    drop();
    data_ = own();
    size_ = 0;
    capacity_ = N;
  }
  // This one is empty and inside; the other becomes so.
  void take(InlineVector& other) {
    if (!other.on_heap()) {
      std::uninitialized_move(other.begin(), other.end(), data_);
      size_ = other.size_;
      other.clear();
      return;
    }
    data_ = std::exchange(other.data_, other.own());
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, N);
  }

  alignas(T) std::byte inside_[N * sizeof(T)];
  T* data_ = own();
  size_t size_ = 0, capacity_ = N;
};

}  // namespace lathe::ir
