// What the library starts to measure in: see worker_main.h.
#include "tools/worker_main.h"

int main(int argc, char** argv) {
  return lathe::tools::worker_main(argc, argv, std::make_shared<lathe::runtime::StageMaker>());
}
