#pragma once

// Matrix products of FP8 operands with a scale for each tensor, as a forward linear layer does them: fast sums, result
// in bf16: the product alone, without the copies to FP8 that the executor's layers make beside it.
//
// Tested by: tests/profiler/calibrate/calibration_gpu_test.cpp.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

namespace stowage::calibrate {

/// y[rows, columns] = x[rows, depth] weight[columns, depth]^T, scales 1.
struct Fp8Sizes {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t depth = 0;
    friend auto operator<=>(const Fp8Sizes&, const Fp8Sizes&) = default;
};
struct Fp8Buffers {
    const void* x = nullptr;
    const void* weight = nullptr;
    void* y = nullptr;
    void* workspace = nullptr;
};

/// For one device, the one that is current when it is made.
class Fp8Products {
public:
    /// Throws: DeviceError.
    explicit Fp8Products(std::int64_t workspace_bytes);
    Fp8Products(const Fp8Products&) = delete;
    Fp8Products& operator=(const Fp8Products&) = delete;
    Fp8Products(Fp8Products&&) noexcept;
    Fp8Products& operator=(Fp8Products&&) noexcept;
    ~Fp8Products();

    /// Chooses the fastest of the library's proposals on these buffers. Throws: DeviceError if there is none, as on
    /// devices without FP8.
    void prepare(const Fp8Sizes& sizes, const Fp8Buffers& buffers, cudaStream_t stream);
    /// Throws: std::logic_error if the product was not prepared; DeviceError.
    void launch(const Fp8Sizes& sizes, const Fp8Buffers& buffers, cudaStream_t stream);

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace stowage::calibrate
