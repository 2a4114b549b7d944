#include "executor/workload/host_counts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "executor/cuda/check.hpp"
#include "executor/workload/kernels/moe.hpp"
#include "scenarios/types/check.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::executor {
namespace {

constexpr std::int64_t kPlacesOfSlab = 4096;  // 2 MiB for 128 experts
constexpr std::int32_t kNothing = -1;         // no count: the place was looked at, and nothing came since

/// The only layer with experts that has no number is that of multi-token prediction.
std::string name_of_layer(std::int64_t layer) {
    return layer < 0 ? "multi-token prediction" : fmt::format("layer {}", layer);
}

}  // namespace

void HostCounts::prepare(std::int64_t experts) {
    STOWAGE_CHECK(experts > 0, "counts of no experts");
    if (experts <= experts_) return;
    experts_ = experts;
    add_slab();
}

void HostCounts::add_slab() {
    const types::Bytes bytes{kPlacesOfSlab * experts_ * static_cast<std::int64_t>(sizeof(std::int32_t))};
    slabs_.push_back({PinnedBuffer(bytes), experts_, 0});
}

HostCounts::Copy& HostCounts::copy_at(const layers::CallSizes& sizes, const LaunchPlace& place) {
    const auto [entry, is_new] = of_place_.try_emplace({place.layer, place.microbatch}, copies_.size());
    if (!is_new) {
        Copy& known = copies_[entry->second];
        STOWAGE_CHECK(known.experts == sizes.experts, "two copies of counts at one place");
        known.planned = sizes.depth;
        return known;
    }
    if (slabs_.back().used == kPlacesOfSlab) add_slab();
    Slab& slab = slabs_.back();
    auto* counts = reinterpret_cast<std::int32_t*>(slab.memory.data()) + slab.used * slab.experts;
    ++slab.used;
    counts[0] = kNothing;
    copies_.push_back({counts, sizes.experts, sizes.depth, place});
    return copies_.back();
}

void HostCounts::copy(const layers::CallSizes& sizes, std::span<void* const> buffers, const LaunchPlace& place,
                      cudaStream_t stream) {
    STOWAGE_CHECK(buffers.size() == 1, "the operands are not those of the call");
    STOWAGE_CHECK(sizes.experts > 0 && sizes.experts <= experts_, "counts of experts that were not prepared");
    const Copy& copy = copy_at(sizes, place);
    kernels::counts_to_host(static_cast<const std::int32_t*>(buffers[0]), copy.counts, sizes.experts, stream);
    check(cudaGetLastError(), "launching the kernel that writes counts of rows to the host");
}

/// Whether something was there.
bool HostCounts::take(Copy& copy) {
    if (copy.counts[0] == kNothing) return false;
    for (std::int64_t expert = 0; expert < copy.experts; ++expert) {
        const std::int64_t rows = copy.counts[expert];
        if (rows <= copy.planned) continue;
        throw types::Error(
            types::ExitCode::no,
            fmt::format(
                "{}, microbatch {}: the routing gives {} rows of this rank to expert {}, the plan has room for {}\n"
                "hint: plan with a greater skew of the routing",
                name_of_layer(copy.place.layer), copy.place.microbatch, rows, expert, copy.planned));
    }
    copy.counts[0] = kNothing;
    return true;
}

void HostCounts::require_planned() {
    std::size_t taken = 0;
    while (taken < copies_.size() && take(copies_[next_])) {
        ++taken;
        next_ = (next_ + 1) % copies_.size();
    }
    if (taken > 0) return;
    for (std::size_t i = 0; i < copies_.size(); ++i) {
        if (take(copies_[i])) next_ = (i + 1) % copies_.size();
    }
}

}  // namespace stowage::executor
