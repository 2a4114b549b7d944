#include "planner/search/bounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

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

struct StageFlags {
    Bytes moved;
    Bytes certainly_moved;
    Bytes freed;
    std::size_t eligible = 0;
    std::size_t kept = 0;
    std::size_t kept_first = 0;
};

struct Site {
    std::size_t position;
    types::Module module;
    Bytes bytes;
};

std::vector<Site> eligible_sites(const layers::StageLayers& stage, const OffloadChoice& choice) {
    std::vector<program::FrameLayout> layouts;
    for (const layers::LayerScript& script : stage.scripts) layouts.emplace_back(script, choice);
    std::vector<Site> sites;
    for (std::size_t position = 0; position < stage.order.size(); ++position)
        for (const types::Module module : layouts[stage.order[position]].groups()) {
            const Bytes bytes = layouts[stage.order[position]].group_bytes(module);
            if (bytes > Bytes{0}) sites.push_back({position, module, bytes});
        }
    return sites;
}

/// Megatron's truncation: how many groups of `count` the fraction drops.
std::size_t dropped(std::size_t count, double fraction) {
    return static_cast<std::size_t>(static_cast<double>(count) * (1 - fraction));
}

StageFlags flag_stage(const layers::StageLayers& stage, const OffloadChoice& choice) {
    const std::vector<Site> sites = eligible_sites(stage, choice);
    StageFlags flags;
    flags.eligible = sites.size();
    flags.kept = dropped(sites.size(), choice.fraction);
    const std::size_t margin = std::min<std::size_t>(sites.size(), static_cast<std::size_t>(choice.modules.size()));
    flags.kept_first = dropped(sites.size() - margin, choice.fraction);
    std::vector<types::ModuleSet> moved(stage.order.size());
    Bytes last_of_each[types::kModuleCount];
    for (std::size_t i = 0; i + flags.kept < sites.size(); ++i) {
        moved[sites[i].position].insert(sites[i].module);
        flags.moved += sites[i].bytes;
        Bytes& largest = last_of_each[static_cast<std::size_t>(sites[i].module)];
        largest = std::max(largest, sites[i].bytes);
    }
    flags.certainly_moved = flags.moved;
    for (const Bytes& bytes : last_of_each) flags.certainly_moved -= bytes;
    flags.certainly_moved = std::max(flags.certainly_moved, Bytes{0});
    for (std::size_t position = 0; position < moved.size(); ++position)
        flags.freed += freed_by(stage.scripts[stage.order[position]], moved[position]);
    return flags;
}

/// Tensors that may be alive beside what a choice lets go of, for one microbatch.
Bytes slack_of(const layers::StageLayers& stage) {
    std::int64_t tensors = 0;
    for (const std::size_t script : stage.order) tensors += std::ssize(stage.scripts[script].saved) + 2;
    return Bytes{tensors * kBlockSlack.count};
}

}  // namespace

FlaggedGroups flagged_groups(const Job& job, const OffloadChoice& choice) {
    FlaggedGroups flagged;
    flagged.signature = choice.modules.joined();
    for (const layers::StageLayers& stage : job.stages) {
        const StageFlags flags = flag_stage(stage, choice);
        flagged.bytes_per_microbatch += flags.moved;
        flagged.moved.push_back(flags.moved);
        flagged.certainly_moved.push_back(flags.certainly_moved);
        flagged.freed.push_back(flags.freed);
        flagged.signature += fmt::format(" {}/{}/{}", flags.eligible, flags.kept, flags.kept_first);
    }
    return flagged;
}

std::vector<Bytes> least_peaks(const Job& job, const Outcome& nothing, const FlaggedGroups& flagged) {
    std::vector<Bytes> peaks;
    const std::int64_t microbatches = job.scenario.microbatches();
    for (std::size_t rank = 0; rank < job.stages.size(); ++rank) {
        const layers::StageLayers& stage = job.stages[rank];
        const std::int64_t in_flight = std::min(
            program::warmup_microbatches(stage.pipeline_rank, stage.pipeline_size, microbatches) + 1, microbatches);
        const Bytes per_microbatch = flagged.freed[rank] + slack_of(stage);
        const Bytes states{std::ssize(stage.states) * kBlockSlack.count};
        const Bytes granted = Bytes{in_flight * per_microbatch.count} + states;
        peaks.push_back(std::max(nothing.ranks[rank].steady_peak_allocated - granted, Bytes{0}));
    }
    return peaks;
}

Nanoseconds least_step_time(const Job& job, const Outcome& nothing, const FlaggedGroups& flagged) {
    const types::CopyEngines& engines = job.scenario.hardware.node.copy;
    // The fastest point of the curve: no copy of any size beats it.
    auto best_rate = [](const types::CopyCurve& curve) {
        double rate = 0;
        for (const types::CopyPoint& point : curve.points())
            rate =
                std::max(rate, static_cast<double>(point.size.count) * 1e9 / static_cast<double>(point.time.count()));
        return types::BytesPerSecond{rate};
    };
    Nanoseconds least = nothing.step_time;
    for (const Bytes& bytes : flagged.certainly_moved) {
        // The first microbatch in backward order keeps more; leave it out.
        const Bytes step{bytes.count * (job.scenario.microbatches() - 1)};
        least = std::max(least, types::transfer_time(step, best_rate(engines.device_to_host)));
        least = std::max(least, types::transfer_time(step, best_rate(engines.host_to_device)));
    }
    return least;
}

}  // namespace stowage::search
