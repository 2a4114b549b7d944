#include "executor/workload/stand_ins.hpp"

#include <algorithm>
#include <array>

#include "executor/cuda/check.hpp"
#include "executor/cuda/device.hpp"
#include "executor/workload/kernels/stand_in.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::executor {
namespace {

using kernels::StandInBuffer;

constexpr std::int64_t kVectorBytes = layers::kStandInPiece;
constexpr std::int64_t kRingVectors = kStandInRing.count / kVectorBytes;
constexpr std::int64_t kScratches = 64;  // more than run at the same time

static_assert(layers::kMostStandInReads <= kernels::kMostStandInBuffers);
static_assert(layers::kMostStandInWrites <= kernels::kMostStandInBuffers);

/// Operands of one side.
struct Side {
    std::array<StandInBuffer, kernels::kMostStandInBuffers> buffers;
    std::size_t count = 0;
    std::int64_t vectors = 0;

    void add(void* buffer, types::Bytes bytes) {
        const std::int64_t piece = bytes.count / kVectorBytes;
        buffers.at(count++) = {buffer, piece};
        vectors += piece;
    }
    [[nodiscard]] std::span<const StandInBuffer> all() const { return {buffers.data(), count}; }
};

DeviceMemory cleared(std::int64_t bytes, const char* doing) {
    DeviceMemory memory = allocate_on_device(bytes, doing);
    check(cudaMemset(memory.get(), 0, static_cast<std::size_t>(bytes)), doing);
    return memory;
}

}  // namespace

void StandIns::prepare() {
    if (ring_.get() != nullptr) return;
    multiprocessors_ = current_device().multiprocessors;
    ring_ = cleared(kStandInRing.count, "allocating the memory that stand-ins read");
    scratch_ = cleared(kScratches * static_cast<std::int64_t>(sizeof(kernels::StandInScratch)),
                       "allocating the sums of stand-ins");
}

void StandIns::launch(const layers::StandInWork& work, std::span<void* const> buffers, const kernels::LoadKey& key,
                      cudaStream_t stream) {
    STOWAGE_CHECK(ring_.get() != nullptr, "a stand-in that was not prepared");
    const bool adds = work.sums > types::Bytes{};
    STOWAGE_CHECK(buffers.size() == work.reads.size() + work.writes.size() + (adds ? 1 : 0) &&
                      work.reads.size() <= layers::kMostStandInReads &&
                      work.writes.size() <= layers::kMostStandInWrites && adds == work.writes.empty(),
                  "the operands are not those of the call");
    Side reads;
    Side writes;
    for (std::size_t i = 0; i < work.reads.size(); ++i) reads.add(buffers[i], work.reads[i]);
    for (std::size_t i = 0; i < work.writes.size(); ++i) writes.add(buffers[work.reads.size() + i], work.writes[i]);
    if (adds) writes.add(buffers.back(), work.sums);
    const std::int64_t moved = reads.vectors + (adds ? 2 : 1) * writes.vectors;

    kernels::StandIn call;
    call.reads = reads.all();
    call.writes = writes.all();
    call.adds = adds;
    call.rest = {ring_.get(), std::max<std::int64_t>(0, work.traffic.count / kVectorBytes - moved)};
    call.rest_first = next_;
    call.rest_ring = kRingVectors;
    call.nanoseconds = work.length.count();
    call.tensor_cores = work.kind != types::KernelClass::memory_bound;
    call.scratch = static_cast<kernels::StandInScratch*>(scratch_.get()) + launches_++ % kScratches;
    next_ = (next_ + call.rest.vectors) % kRingVectors;
    kernels::stand_in(call, key, multiprocessors_, stream);
}

}  // namespace stowage::executor
