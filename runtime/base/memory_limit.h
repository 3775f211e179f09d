// How much memory this process may have: what it takes beyond that a container is killed for. Any thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lathe::runtime {

// The least of the machine's memory, of the limits of its control group and those around it, and of its own
// (RLIMIT_AS). Bytes.
int64_t memory_limit();
// Of control groups alone: root is where they are mounted, own the text of /proc/self/cgroup. INT64_MAX: none.
int64_t control_group_limit(const std::string& root, std::string_view own);

}  // namespace lathe::runtime
