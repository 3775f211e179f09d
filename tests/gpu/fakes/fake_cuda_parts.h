// What the parts of the fake driver share. Private to it.
#pragma once
#include <cstddef>
#include <functional>

namespace lathe::test {

inline constexpr int kCudaOk = 0, kCudaInvalidValue = 1, kCudaInvalidContext = 201, kCudaUnsafeInCapture = 900;

int current_device();  // of the context that this thread pushed last; -1: there is none
// The stream captures: the work is kept for its graph. False: it does not.
bool captured(void* stream, std::function<int()> work);
// Some stream captures, and this thread did not say that it may do what ends captures.
bool would_end_a_capture();

}  // namespace lathe::test
