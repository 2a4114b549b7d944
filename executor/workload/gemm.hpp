#pragma once

// The matrix products of linear layers and of experts, through cuBLASLt, each by the algorithm of a table.
//
// Tested by: tests/executor/workload/gemm_gpu_test.cpp.

#include <cuda_runtime_api.h>

#include <memory>
#include <span>

#include "executor/workload/gemm_key.hpp"
#include "executor/workload/gemm_table.hpp"

namespace stowage::executor {

/// For one device, the one that is current when it is made. Not for several threads at once.
class Gemms {
public:
    /// Throws: DeviceError.
    Gemms();
    Gemms(const Gemms&) = delete;
    Gemms& operator=(const Gemms&) = delete;
    Gemms(Gemms&&) noexcept;
    Gemms& operator=(Gemms&&) noexcept;
    ~Gemms();

    [[nodiscard]] const GemmTable& table() const;
    /// Uses the algorithms of `table`. `name` is what messages call it. Throws: types::InputError if it is another
    /// device's or another version's.
    void use_table(const GemmTable& table, const std::string& name);

    /// Makes a product ready to launch: by the table's algorithm, otherwise by one that is measured now and added to
    /// the table. Returns whether it was measured. Throws: DeviceError, also if the table's algorithm needs more than
    /// `workspace_bytes`.
    bool prepare(const GemmKey& key, std::int64_t workspace_bytes);

    /// Throws: std::logic_error if the product was not prepared or the operands do not fit; DeviceError.
    void launch(layers::Call call, const layers::CallSizes& sizes, std::span<void* const> buffers, cudaStream_t stream);

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace stowage::executor
