// Files in the form of a cubin that hold code for the host: the fake compiler writes them, the fake driver reads them,
// and what reads cubins in between finds all that it looks for.
#pragma once
#include <string>
#include <string_view>

namespace lathe::test {

// registers: what the file says of the kernel. code: a shared object.
std::string write_fake_cubin(int sm, const std::string& kernel, int registers, std::string_view code, int cluster = 1);
// The shared object in it; empty: it is none of these files. The size is the file's own affair.
std::string_view host_code(const void* cubin);
int fake_cubin_sm(const void* cubin);

}  // namespace lathe::test
