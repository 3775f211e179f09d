// Large pages for what streams from memory: of pages of 4 KiB the hardware's prefetcher sees one at a time, and each
// costs a walk of two levels of page tables on a virtual machine.
#pragma once
#include <cstddef>

namespace lathe::runtime {

// Asks the system to back what of the memory fills whole large pages with such, once it is written: best before it is.
// A wish: contents, addresses and errors are as without. Any thread.
void ask_for_large_pages(void* data, size_t bytes);

}  // namespace lathe::runtime
