// Looks at an image's text before anything runs it: every byte decodes, in one sweep, to instructions a leaf may have;
// jumps land on instructions of the image, addresses relative to the code inside it; nothing calls out, traps, enters
// the system, or changes segments, control words or the direction of strings; and no encoding needs a CPU feature the
// image does not declare. It says nothing of what the code computes.
#pragma once
#include "ir/base/status.h"
#include "jit/program/backend.h"

namespace lathe::jit {

// INVALID names the offset and the complaint.
ir::Status lint_image(const CodeImage& image);

}  // namespace lathe::jit
