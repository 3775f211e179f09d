// A vector whose first N elements live inside it: for short lists that are made and dropped by the thousand, where the
// heap would cost more than the work. The part of std::vector's interface that its users need; iterators and references
// fall as there.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace lathe::ir {

// Whether an object may be moved to other memory as bytes, and the old memory forgotten: nothing points into it. A type
// that is more than its bytes says so by a specialisation.
template <class T>
inline constexpr bool kMovesAsBytes = std::is_trivially_copyable_v<T>;
template <class T>
inline constexpr bool kMovesAsBytes<std::shared_ptr<T>> = true;

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
  T* begin() { return on_heap() ? heap_ : reinterpret_cast<T*>(inside_); }
  T* end() { return begin() + size_; }
  const T* begin() const { return on_heap() ? heap_ : reinterpret_cast<const T*>(inside_); }
  const T* end() const { return begin() + size_; }
  T& operator[](size_t i) { return begin()[i]; }
  const T& operator[](size_t i) const { return begin()[i]; }
  T& back() { return begin()[size_ - 1]; }
  const T& back() const { return begin()[size_ - 1]; }

  void reserve(size_t capacity) {
    if (capacity <= capacity_) return;
    T* data = std::allocator<T>().allocate(capacity);
    relocate(begin(), size_, data);
    if (on_heap()) std::allocator<T>().deallocate(heap_, capacity_);
    heap_ = data;
    capacity_ = static_cast<uint32_t>(capacity);
  }
  void push_back(T value) {
    if (size_ == capacity_) reserve(2 * size_t{capacity_});
    new (end()) T(std::move(value));
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
    std::destroy(begin() + size, end());
    size_ = static_cast<uint32_t>(size);
  }

 private:
  bool on_heap() const { return capacity_ > N; }
  void append(const T* first, const T* last) {
    reserve(static_cast<size_t>(last - first));
    T* data = begin();
    size_ = static_cast<uint32_t>(std::uninitialized_copy(first, last, data) - data);
  }
  // n elements to memory that holds none; they are no longer at `from`.
  static void relocate(T* from, size_t n, T* to) {
    if constexpr (kMovesAsBytes<T>) {
      if (n != 0) std::memcpy(static_cast<void*>(to), static_cast<const void*>(from), n * sizeof(T));
    } else {
      std::uninitialized_move_n(from, n, to);
      std::destroy_n(from, n);
    }
  }
  void release() {
    std::destroy(begin(), end());
    if (on_heap()) std::allocator<T>().deallocate(heap_, capacity_);
    size_ = 0;
    capacity_ = N;
  }
  // This one is empty and inside; the other becomes so.
  void take(InlineVector& other) {
    if (other.on_heap()) {
      heap_ = other.heap_;
    } else {
      relocate(other.begin(), other.size_, begin());
    }
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, static_cast<uint32_t>(N));
  }

  union {
    alignas(T) std::byte inside_[N * sizeof(T)];
    T* heap_;  // while the capacity is more than N
  };
  uint32_t size_ = 0, capacity_ = N;
};
template <class T, size_t N>
inline constexpr bool kMovesAsBytes<InlineVector<T, N>> = kMovesAsBytes<T>;

}  // namespace lathe::ir
