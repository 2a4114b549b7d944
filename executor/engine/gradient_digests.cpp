#include "executor/engine/gradient_digests.hpp"

#include "executor/cuda/check.hpp"
#include "executor/workload/kernels/debug.hpp"
#include "executor/workload/random.hpp"

namespace stowage::executor {
GradientDigests::GradientDigests(const std::vector<PlacedParameter>& parameters, Address gradients,
                                 std::int64_t element_bytes, Address losses, std::int64_t microbatches)
    : values_(Bytes{static_cast<std::int64_t>((parameters.size() + 1) * sizeof(std::uint64_t))}) {
    parts_.push_back({losses, 4 * microbatches});
    digests_.push_back({"losses", 0});
    for (const PlacedParameter& parameter : parameters) {
        parts_.push_back(
            {gradients + static_cast<Address>(parameter.place * element_bytes), parameter.elements * element_bytes});
        digests_.push_back({parameter.name, 0});
    }
}

void GradientDigests::add(const std::string& name, Address address, Bytes bytes) {
    parts_.push_back({address, bytes.count});
    digests_.push_back({name, 0});
    values_ = DeviceBuffer(Bytes{static_cast<std::int64_t>(parts_.size() * sizeof(std::uint64_t))});
}

void GradientDigests::issue(StreamRef stream) const {
    auto* const values = reinterpret_cast<std::uint64_t*>(values_.data());
    for (std::size_t i = 0; i < parts_.size(); ++i)
        kernels::digest(pointer(parts_[i].address), parts_[i].bytes, values + i, stream.get());
    check(cudaGetLastError(), "launching the digests of gradients");
}

const std::vector<recording::Digest>& GradientDigests::read() {
    std::vector<std::uint64_t> values(parts_.size());
    check(cudaDeviceSynchronize(), "waiting for the digests of gradients");
    check(cudaMemcpy(values.data(), values_.data(), values.size() * sizeof(std::uint64_t), cudaMemcpyDeviceToHost),
          "reading the digests of gradients");
    for (std::size_t i = 0; i < values.size(); ++i) {
        digests_[i].value = values[i];
        run_digest_ = mix(run_digest_ ^ values[i]);
    }
    ++steps_;
    return digests_;
}

}  // namespace stowage::executor
