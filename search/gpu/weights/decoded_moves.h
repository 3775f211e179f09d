// Moves that Schedules of decoded weights share (decoded_weight.h): terms are cut into blocks and these into halves,
// again and again, so that every index of a field is a sum; what a thread decodes of a field goes into its registers
// first.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "search/gpu/decoded_weight.h"
#include "search/gpu/general_kernel.h"
#include "search/gpu/move_list.h"
#include "search/gpu/product_form.h"
#include "search/gpu/weights/group_form.h"
#include "search/moves/schedule.h"

namespace lathe::search {

inline constexpr int64_t kDecodedChunk = 32;  // terms that are decoded together
inline constexpr int64_t kLeastShared = 256;  // terms of a part of a sum that blocks share are multiples of these

// A product with a decoded weight, or those of groups of rows, each group with a weight of its own. Pointers are into
// the Kernel.
struct DecodedForm {
  ProductForm product;
  DecodedWeight weight;
  std::optional<GroupForm> groups;

  const std::string& m() const { return product.m->iter; }
  const std::string& n() const { return product.n->iter; }
  const std::string& k() const { return product.k->iter; }
  // The scope of which an iteration is a tile: how many rows a group has is known on the device alone, so its tiles
  // follow each other in a block.
  std::string tile() const { return groups ? m() + "b" : n() + "b"; }
  std::string activations() const { return activations_of(product, weight); }
};
// UNSUPPORTED: it is no product with a decoded weight.
ir::Result<DecodedForm> decoded_form(const ir::Kernel& kernel);
// Of that product of the Kernel.
ir::Result<DecodedForm> decoded_form(const ir::Kernel& kernel, const ProductForm& product);
ProductShape shape_of(const DecodedForm& form, const ir::SymbolValues& sizes, const ir::SymbolValues& most);
// What the Schedule of it is written for: see whole_or_split(). Sums of groups are whole.
using WriteDecoded =
    std::function<ir::Result<Scheduled>(const ir::Kernel& kernel, const DecodedForm& form, const std::string& summed)>;
ir::Result<Scheduled> whole_or_split(const ir::Kernel& kernel, int64_t terms, const WriteDecoded& write);

// mb { nb { mi { ni } } }, or t @grid { nb { mb { mi { ni } } } } of groups, whose other rows are cleared.
void tile_decoded(MoveList& list, const DecodedForm& form, int64_t rows, int64_t columns);
// The scopes of blocks, once what a tile keeps is there.
void launch_decoded(MoveList& list, const DecodedForm& form);

// A field that goes into registers: how many of its elements, and how many of these are neighbours. dims: of them that
// vary.
struct StagedField {
  std::string name;
  int64_t size = 1, run = 1;
  int dims = 0;
};
using StagedFields = std::vector<StagedField>;

// Terms after which indices begin anew: a power of two that divides the depth; 0: there is none. straight: indices that
// go on to the end will do.
int64_t decoded_block(const ir::Kernel& kernel, const ProductForm& product, const DecodedWeight& weight,
                      bool straight = false);

class DecodedMoves {
 public:
  // All must outlive it. loose: fields that are read where they are used.
  DecodedMoves(MoveList& list, const GeneralKernel& general, const ProductForm& product, const DecodedWeight& weight,
               std::set<std::string> loose)
      : list_(list), general_(general), kernel_(general.kernel), p_(product), w_(weight), loose_(std::move(loose)) {}

  int64_t block(bool straight = false) const { return decoded_block(kernel_, p_, w_, straight); }
  // A scope of `size` iterations into halves of halves, down to `least`, which is the last name.
  std::vector<std::string> halve(const std::string& scope, const std::string& name, int64_t size, int64_t least);
  // What a scope of these terms, or of the first so many, of so many outputs reads of fields goes into registers first.
  void stage_fields(const std::vector<int64_t>& terms, const std::string& scope, int64_t outputs = 1);
  void stage_fields(int64_t chunk, const std::string& scope, int64_t outputs = 1) {
    stage_fields(first_terms(chunk), scope, outputs);
  }
  // How many elements of fields these terms are made of.
  int64_t elements_of(const std::vector<int64_t>& terms) const;
  static std::vector<int64_t> first_terms(int64_t count);
  const StagedFields& staged() const { return staged_; }

 private:
  int64_t width_of(const std::string& field) const;
  // Places of all fields that the terms of the first output read; others: gets fields whose places are not known.
  using Places = std::map<std::string, std::set<std::vector<int64_t>>>;
  Places places_of(const std::vector<int64_t>& terms, std::set<std::string>* others) const;
  StagedFields fields(const std::vector<int64_t>& terms) const;

  MoveList& list_;
  const GeneralKernel& general_;
  const ir::Kernel& kernel_;
  const ProductForm& p_;
  const DecodedWeight& w_;
  const std::set<std::string> loose_;
  StagedFields staged_;
};

// What is staged of a field is a thread's own, and as much as is read; or the field is read where it is used. write:
// gets the fields that are, and adds what it stages of others. loose: those known, and afterwards all.
using WriteStaged = std::function<ir::Result<Scheduled>(const std::set<std::string>& loose, StagedFields& staged)>;
ir::Result<Scheduled> staged_where_own(const WriteStaged& write, std::set<std::string>& loose);

}  // namespace lathe::search
