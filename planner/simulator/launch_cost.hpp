#pragma once

#include "planner/program/operation.hpp"
#include "planner/simulator/virtual_device.hpp"
#include "scenarios/types/hardware.hpp"

namespace stowage::simulator {

/// What the call itself takes; a framework's share comes on top.
inline types::Nanoseconds call_cost(const types::HostCosts& host, types::KernelClass kernel_class) {
    const types::Nanoseconds none{0};
    if (kernel_class == types::KernelClass::gemm && host.gemm_call > none) return host.gemm_call;
    if (kernel_class == types::KernelClass::attention && host.attention_call > none) return host.attention_call;
    return host.kernel_launch;
}

/// What the host spends on a kernel, copy, collective or transfer before it is issued.
inline Tick launch_cost(const types::HostCosts& host, const program::Operation& operation) {
    if (operation.kind == program::OperationKind::copy) return host.copy_launch.count();
    if (operation.kind != program::OperationKind::compute) return host.kernel_launch.count();
    const bool forward = operation.phase == layers::Phase::forward || operation.phase == layers::Phase::recompute;
    const types::Nanoseconds framework = forward ? host.framework_forward : host.framework_backward;
    return (call_cost(host, operation.kernel_class) + framework).count();
}

}  // namespace stowage::simulator
