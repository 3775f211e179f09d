// How rows of activations become bytes: the nest that the move quantize_activations puts before a product.
#pragma once
#include <cstdint>

#include "search/sketches/recipe.h"

namespace lathe::search {

struct ActivationRows {
  int64_t lanes = 0;  // of a vector
  int64_t depth = 0;  // activations of a row
  int64_t scale = 0;  // that share a scale
  int64_t group = 0;  // that share a sum
  bool parallel = false;
};
// Vectors along the depth.
void write_activation_rows(Script& s, const ActivationRows& of);

}  // namespace lathe::search
