#include "planner/search/bounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "planner/program/durations.hpp"
#include "planner/program/frame_layout.hpp"
#include "planner/program/schedule.hpp"

namespace stowage::search {
namespace {

using types::literals::operator""_MiB;

constexpr Bytes kBlockSlack = 1_MiB;

/// Storages of a layer that may go when these modules are offloaded; each once.
Bytes freed_by(const layers::LayerScript& script, types::ModuleSet modules) {
    std::vector<bool> gone(script.tensors.size(), false);
    for (const layers::SavedTensor& saved : script.saved)
        if (saved.group && modules.contains(*saved.group)) gone[layers::index(saved.tensor)] = true;
    for (const layers::Step& step : script.forward) {
        if (step.kind != layers::StepKind::commit || !modules.contains(step.module)) continue;
        for (const layers::Slot slot : script.releases[step.detail]) gone[layers::index(slot)] = true;
    }
    Bytes sum;
    for (std::size_t i = 0; i < gone.size(); ++i)
        if (gone[i] && !script.tensors[i].persistent) sum += script.tensors[i].bytes() + kBlockSlack;
    return sum;
}

/// Time of a set of copies, by direction, each alone on its engine.
using CopyTimes = std::array<Nanoseconds, 2>;

CopyTimes& operator+=(CopyTimes& left, const CopyTimes& right) {
    for (std::size_t i = 0; i < left.size(); ++i) left[i] += right[i];
    return left;
}

struct StageFlags {
    Bytes moved;
    CopyTimes certain{};  ///< of what moves whatever the last-group rule keeps
    Bytes freed;
    std::size_t eligible = 0;
    std::size_t kept = 0;
    std::size_t kept_first = 0;
};

struct Site {
    std::size_t position;
    types::Module module;
    Bytes bytes;
    CopyTimes times;
};

/// The groups of a chunk that have something to move, and how many names have such a group as their last.
struct Sites {
    std::vector<Site> list;
    std::size_t margin = 0;
};

Sites eligible_sites(const Job& job, const layers::StageLayers& stage, const layers::ChunkLayers& chunk,
                     const OffloadChoice& choice) {
    const program::Durations durations(job.scenario.hardware, job.scenario.parallel);
    std::vector<program::FrameLayout> layouts;
    for (const layers::LayerScript& script : stage.scripts) layouts.emplace_back(script, choice);
    Sites sites;
    std::array<bool, types::kModuleCount> last_moves{};
    for (std::size_t position = 0; position < chunk.order.size(); ++position) {
        const std::size_t script = chunk.order[position];
        for (const types::Module module : layouts[script].groups()) {
            const Bytes bytes = layouts[script].group_bytes(module);
            last_moves[static_cast<std::size_t>(module)] = bytes > Bytes{0};
            if (bytes == Bytes{0}) continue;
            CopyTimes times{};
            for (const layers::SavedIndex saved : layouts[script].movable(module)) {
                const Bytes size = stage.scripts[script].saved[layers::index(saved)].bytes();
                times += CopyTimes{durations.copy(program::Direction::device_to_host, size),
                                   durations.copy(program::Direction::host_to_device, size)};
            }
            sites.list.push_back({position, module, bytes, times});
        }
    }
    sites.margin = static_cast<std::size_t>(std::count(last_moves.begin(), last_moves.end(), true));
    return sites;
}

/// Megatron's truncation: how many groups of `count` the fraction drops.
std::size_t dropped(std::size_t count, double fraction) {
    return static_cast<std::size_t>(static_cast<double>(count) * (1 - fraction));
}

StageFlags flag_chunk(const Job& job, const layers::StageLayers& stage, const layers::ChunkLayers& chunk,
                      const OffloadChoice& choice) {
    const Sites sites = eligible_sites(job, stage, chunk, choice);
    StageFlags flags;
    flags.eligible = sites.list.size();
    flags.kept = dropped(flags.eligible, choice.fraction);
    flags.kept_first = dropped(flags.eligible - sites.margin, choice.fraction);
    std::vector<types::ModuleSet> moved(chunk.order.size());
    std::array<CopyTimes, types::kModuleCount> longest{};
    for (std::size_t i = 0; i + flags.kept < flags.eligible; ++i) {
        const Site& site = sites.list[i];
        moved[site.position].insert(site.module);
        flags.moved += site.bytes;
        flags.certain += site.times;
        CopyTimes& times = longest[static_cast<std::size_t>(site.module)];
        for (std::size_t direction = 0; direction < 2; ++direction)
            times[direction] = std::max(times[direction], site.times[direction]);
    }
    // The last-group rule keeps at most one group of each module. What the delta keeps on later ranks is not followed.
    for (const CopyTimes& times : longest)
        for (std::size_t direction = 0; direction < 2; ++direction) flags.certain[direction] -= times[direction];
    if (stage.pipeline_rank * choice.delta_bytes_across_pp_ranks > 0) flags.certain = {};
    // Inside graphs the first microbatch's decisions hold for others too.
    if (stage.graphs.impl != types::CudaGraphImpl::none) flags.certain = {};
    for (std::size_t position = 0; position < moved.size(); ++position)
        flags.freed += freed_by(stage.scripts[chunk.order[position]], moved[position]);
    return flags;
}

/// Tensors that may be alive beside what a choice lets go of, for one microbatch.
Bytes slack_of(const layers::StageLayers& stage, const layers::ChunkLayers& chunk) {
    std::int64_t tensors = 0;
    for (const std::size_t script : chunk.order) tensors += std::ssize(stage.scripts[script].saved) + 2;
    return Bytes{tensors * kBlockSlack.count};
}

}  // namespace

FlaggedGroups flagged_groups(const Job& job, const OffloadChoice& choice) {
    FlaggedGroups flagged;
    flagged.signature = choice.modules.joined() + (choice.delay_until_cuda_graph ? ", delayed" : "");
    if (choice.delta_bytes_across_pp_ranks != 0) flagged.signature += fmt::format(" {}", choice.fraction);
    for (const layers::StageLayers& stage : job.stages) {
        CopyTimes certain{};
        flagged.freed.emplace_back();
        for (const layers::ChunkLayers& chunk : stage.chunks) {
            const StageFlags flags = flag_chunk(job, stage, chunk, choice);
            certain += flags.certain;
            flagged.bytes_per_microbatch += flags.moved;
            flagged.freed.back().push_back(flags.freed);
            flagged.signature += fmt::format(" {}/{}/{}", flags.eligible, flags.kept, flags.kept_first);
        }
        flagged.copy_time.push_back(std::max(certain[0], certain[1]));
    }
    return flagged;
}

std::vector<Bytes> least_peaks(const Job& job, const Outcome& nothing, const FlaggedGroups& flagged) {
    std::vector<Bytes> peaks;
    const std::int64_t microbatches = job.scenario.microbatches();
    for (std::size_t rank = 0; rank < job.stages.size(); ++rank) {
        const layers::StageLayers& stage = job.stages[rank];
        const std::int64_t chunks = microbatches * std::ssize(stage.chunks);
        const std::int64_t in_flight =
            std::min(program::warmup_chunks(program::shape_of(stage, microbatches)) + 1, chunks);
        Bytes largest_chunk;
        for (std::size_t i = 0; i < stage.chunks.size(); ++i)
            largest_chunk = std::max(largest_chunk, flagged.freed[rank][i] + slack_of(stage, stage.chunks[i]));
        const auto lasting = std::count_if(stage.states.begin(), stage.states.end(), [](const auto& state) {
            return state.when != layers::StateBuffer::When::construction;
        });
        const Bytes states{lasting * kBlockSlack.count};
        const Bytes granted = Bytes{in_flight * largest_chunk.count} + states;
        // Whatever moves, the states stay.
        peaks.push_back(
            std::max(nothing.ranks[rank].steady_peak_allocated - granted, nothing.ranks[rank].static_bytes));
    }
    return peaks;
}

Nanoseconds least_step_time(const Job& job, const Outcome& nothing, const FlaggedGroups& flagged) {
    Nanoseconds least = nothing.step_time;
    // The first microbatch in backward order keeps more; leave it out.
    for (const Nanoseconds time : flagged.copy_time) least = std::max(least, (job.scenario.microbatches() - 1) * time);
    return least;
}

}  // namespace stowage::search
