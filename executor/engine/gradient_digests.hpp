#pragma once

// Digests of every main gradient and of the losses: what bit-exactness is judged by.
//
// Tested by: tests/executor/engine/execution_gpu_test.cpp.

#include <cstdint>
#include <string>
#include <vector>

#include "executor/cuda/device_arena.hpp"
#include "executor/cuda/stream.hpp"
#include "executor/engine/machine.hpp"
#include "executor/engine/parameters.hpp"
#include "scenarios/recording/measurement.hpp"

namespace stowage::executor {

class GradientDigests {
public:
    /// Of nothing yet.
    GradientDigests() = default;
    /// `gradients`, `losses`: addresses on the device. `element_bytes`: of a gradient.
    GradientDigests(const std::vector<PlacedParameter>& parameters, Address gradients, std::int64_t element_bytes,
                    Address losses, std::int64_t microbatches);

    /// One more buffer on the device, before the first digest is issued.
    void add(const std::string& name, Address address, Bytes bytes);

    /// Issues the digests of what the buffers hold at that point of the stream.
    void issue(StreamRef stream) const;
    /// Waits for the device and reads the last ones; adds them to the digest of the run.
    const std::vector<recording::Digest>& read();

    [[nodiscard]] std::uint64_t run_digest() const { return run_digest_; }
    [[nodiscard]] std::int64_t steps() const { return steps_; }

private:
    struct Part {
        Address address = 0;
        std::int64_t bytes = 0;
    };
    std::vector<Part> parts_;
    std::vector<recording::Digest> digests_;
    DeviceBuffer values_;
    std::uint64_t run_digest_ = 0;
    std::int64_t steps_ = 0;
};

}  // namespace stowage::executor
