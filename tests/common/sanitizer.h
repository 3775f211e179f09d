// Which sanitizer this binary was built with: long property tests repeat less under one, and what a
// sanitizer cannot run says so. Not for hiding findings.
#pragma once

namespace lathe::test {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

// Repetitions of a property test; a sanitizer slows each by about a factor of ten.
constexpr int repetitions(int plain) { return kAddressSanitizer || kThreadSanitizer ? (plain + 9) / 10 : plain; }

}  // namespace lathe::test
