// Whether the threads of a block wait for each other where they must, found from the program alone: all of them go
// through it in step, sizes may be anything, and what each may touch of shared memory since the last barrier is kept
// for every element.
#pragma once
#include "ir/analysis/analysis.h"
#include "jit/cuda/device_program.h"

namespace lathe::jit {

// INVALID, naming the element: one thread may touch what another touches, one of them stores it, and no barrier is
// between them; or it is touched before its copy has arrived, or stored to while products may read it; or a copy is on
// its way at the end.
ir::Status check_waits(const DeviceProgram& program);

// Whether what groups of warps compute with is handed over to them, and theirs while they compute (device_products.cc).
// INVALID, naming the rule `products`: sums that a thread touches while they are on their way, or that no fence handed
// over; a factor that a thread has stored to with no fence before the barrier; products that nothing waits for.
ir::Status check_products(const DeviceProgram& program);

// Whether threads may go apart for good where a program says so, and blocks are a cluster (device_roles.cc). INVALID,
// naming the rule `roles` or `cluster`.
ir::Status check_roles(const DeviceProgram& program);

// The form of a product of a group of warps, of an asynchronous copy and of a take, whose operands are there.
ir::Status check_group_form(const DeviceProgram& program, const DeviceStmt& product);
// Where one of its tiles begins.
ir::Status check_group_tile(const DeviceProgram& program, const DeviceStmt& product, size_t tile,
                            const ir::Ranges& ranges);
ir::Status check_take_form(const DeviceProgram& program, const DeviceStmt& take);
ir::Status check_copy_form(const DeviceProgram& program, const DeviceStmt& copy);

// Of shared memory, of rings and of maps, and of a statement on them (ring_forms.cc). INVALID, naming the rule.
ir::Status check_shared(const DeviceProgram& program);
ir::Status check_ring_statement(const DeviceProgram& program, const DeviceStmt& statement);
// Whether places of rings are filled and read in turn: the program is followed for several sizes, with what each warp
// of a cluster knows of what others have done (vector clocks). INVALID, naming the rule: a place that is filled while
// products may read it or its last box is on its way; one that is read by a warp that has not waited for the box in it;
// two boxes for the same lines; threads that wait for ever.
ir::Status check_rings(const DeviceProgram& program);

}  // namespace lathe::jit
