// What all who write a Schedule for attention have: the naive nest with the names of its scopes, and the list of moves.
#pragma once
#include <string>

#include "search/attention/parts.h"
#include "search/gpu/move_list.h"

namespace lathe::search {

class AttentionWriter {
 protected:
  AttentionWriter(const ir::Kernel& kernel, const AttentionParts& p, const char* sketch)
      : kernel_(kernel), p_(p), list_(kernel, sketch) {}

  // Scopes: of queries; of keys, for scores, powers and sums of values; of columns; of the depth.
  const std::string& i() const { return p_.row->iter; }
  const std::string& j() const { return p_.scores->iter; }
  const std::string& j1() const { return p_.powers->iter; }
  const std::string& j2() const { return p_.values->iter; }
  const std::string& n() const { return p_.columns->iter; }
  const std::string& d() const { return p_.depth->iter; }
  int64_t depth() const { return p_.depth->extent->ival; }
  int64_t columns() const { return p_.columns->extent->ival; }
  // Whether sequences have numbers of queries of their own.
  bool ragged() const { return !p_.clear.empty(); }

  const ir::Kernel& kernel_;
  const AttentionParts& p_;
  MoveList list_;
};

}  // namespace lathe::search
