// The measuring worker of tests: as tools/worker.cc, and it plants the faults that Schedules ask for.
#include "tests/worker/plant.h"
#include "tools/worker_main.h"

int main(int argc, char** argv) {
  return lathe::tools::worker_main(argc, argv, std::make_shared<lathe::runtime::PlantingMaker>());
}
