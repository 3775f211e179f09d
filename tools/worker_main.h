// The measuring worker: evaluates tasks read from descriptor 0 and answers on it
// (runtime/measure/worker_protocol.h), until the other end closes. Started by runtime/measure/worker_client, in a
// process group of its own; what it runs may crash or hang it, so all it owns is its memory. usage:
// lathe-worker <memory MB> <CPU seconds per task> [plug-in directory]
#pragma once
#include <memory>

#include "runtime/oracle/stage_maker.h"

namespace lathe::tools {

int worker_main(int argc, char** argv, std::shared_ptr<runtime::StageMaker> stages);

}  // namespace lathe::tools
