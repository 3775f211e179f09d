// The starter pack: rows measured on a reference machine, kept in the repository (search/pack/*.rows) and embedded at
// build time. Hints where nothing was measured yet; read-only, parsed once at first use. Thread-safe.
#pragma once
#include <string_view>
#include <vector>

#include "search/model/history.h"

namespace lathe::search {

// The embedded text: all files of search/pack in the order of their names.
std::string_view starter_pack_text();
// Its records; empty if there are none, or if they do not parse (a test says they do).
const std::vector<TaskRecord>& starter_pack();

}  // namespace lathe::search
