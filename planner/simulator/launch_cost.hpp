#pragma once

#include "planner/program/operation.hpp"
#include "planner/simulator/virtual_device.hpp"
#include "scenarios/types/hardware.hpp"

namespace stowage::simulator {

/// What the host spends on a kernel, copy, collective or transfer before it is issued.
inline Tick launch_cost(const types::HostCosts& host, const program::Operation& operation) {
    if (operation.kind == program::OperationKind::copy) return host.copy_launch.count();
    if (operation.kind != program::OperationKind::compute) return host.kernel_launch.count();
    const bool forward = operation.phase == layers::Phase::forward || operation.phase == layers::Phase::recompute;
    return (host.kernel_launch + (forward ? host.framework_forward : host.framework_backward)).count();
}

}  // namespace stowage::simulator
