#include "tests/support/manager_driver.hpp"

#include <algorithm>
#include <memory>
#include <numeric>

#include "planner/program/schedule.hpp"

namespace stowage::tests {
namespace {

using program::ChunkGroups;
using program::GroupRef;
using types::Bytes;
using types::Module;

std::vector<std::shared_ptr<const ChunkGroups>> groups_of(const std::vector<ChunkLayers>& chunks) {
    std::vector<std::shared_ptr<const ChunkGroups>> all;
    for (const ChunkLayers& layers : chunks) {
        auto groups = std::make_shared<ChunkGroups>();
        for (std::uint32_t position = 0; position < layers.size(); ++position)
            for (const Hook& hook : layers[position])
                if (hook.start) groups->push_back({hook.module, position, hook.bytes});
        all.push_back(std::move(groups));
    }
    return all;
}

std::vector<Hook> hooks_of(const ChunkLayers& layers) {
    std::vector<Hook> hooks;
    for (const LayerHooks& layer : layers) hooks.insert(hooks.end(), layer.begin(), layer.end());
    return hooks;
}

/// The group number of each hook: starts count up, a commit belongs to the open start of its name.
std::vector<std::uint32_t> numbers_of(const std::vector<Hook>& hooks) {
    std::vector<std::uint32_t> numbers;
    std::vector<std::uint32_t> open(types::kModuleCount);
    std::uint32_t next = 0;
    for (const Hook& hook : hooks) {
        std::uint32_t& number = open[static_cast<std::size_t>(hook.module)];
        if (hook.start) number = next++;
        numbers.push_back(number);
    }
    return numbers;
}

std::string entry(const char* what, GroupRef ref) {
    return std::string(what) + " c" + std::to_string(ref.chunk) + "g" + std::to_string(ref.group);
}

}  // namespace

LayerHooks flat(const std::vector<Module>& modules, Bytes bytes) {
    LayerHooks hooks;
    for (const Module module : modules) {
        hooks.push_back({true, module, bytes});
        hooks.push_back({false, module, bytes});
    }
    return hooks;
}

LayerHooks nested_attention(Bytes bytes) {
    LayerHooks hooks = flat({Module::qkv_linear, Module::core_attn, Module::attn_proj}, bytes);
    hooks.insert(hooks.begin(), {true, Module::attn_norm, bytes});
    hooks.push_back({false, Module::attn_norm, bytes});
    return hooks;
}

LayerHooks nested_moe(Bytes bytes) {
    LayerHooks hooks = nested_attention(bytes);
    hooks.push_back({true, Module::mlp_norm, bytes});
    const LayerHooks experts = flat({Module::expert_fc1, Module::moe_act}, bytes);
    hooks.insert(hooks.end(), experts.begin(), experts.end());
    hooks.push_back({false, Module::mlp_norm, bytes});
    return hooks;
}

namespace {

/// The steps of a schedule, whose chunks are numbered in the order of their forwards.
std::vector<ChunkStep> computations(const program::PipelineShape& shape) {
    const std::vector<program::Chunk> chunks = program::forward_chunks(shape);
    std::vector<ChunkStep> steps;
    using Kind = program::ScheduleStep::Kind;
    for (const auto& step : program::pipeline_schedule(shape)) {
        if (step.kind != Kind::forward && step.kind != Kind::backward) continue;
        const auto number = std::find(chunks.begin(), chunks.end(), step.chunk) - chunks.begin();
        steps.push_back({step.kind == Kind::forward, static_cast<std::uint32_t>(number)});
    }
    return steps;
}

}  // namespace

ManagerCase plain_pipeline(std::int64_t rank, std::int64_t stages, std::int64_t microbatches,
                           const ChunkLayers& layers) {
    ManagerCase run;
    run.pipeline_rank = rank;
    run.chunks.assign(static_cast<std::size_t>(microbatches), layers);
    run.backward_order.resize(static_cast<std::size_t>(microbatches));
    std::iota(run.backward_order.begin(), run.backward_order.end(), 0U);
    run.steps = computations({.rank = rank, .ranks = stages, .virtual_stages = 1, .microbatches = microbatches});
    return run;
}

ManagerCase interleaved_pipeline(std::int64_t rank, std::int64_t stages, std::int64_t microbatches, std::int64_t group,
                                 const std::vector<ChunkLayers>& virtual_stages) {
    ManagerCase run;
    run.pipeline_rank = rank;
    const auto depth = static_cast<std::int64_t>(virtual_stages.size());
    for (std::int64_t first = 0; first < microbatches; first += group)
        for (std::int64_t stage = 0; stage < depth; ++stage)
            for (std::int64_t i = 0; i < group; ++i) {
                run.chunks.push_back(virtual_stages[static_cast<std::size_t>(stage)]);
                // The backward's i-th chunk of this place in the table is that of the mirrored virtual stage.
                run.backward_order.push_back(
                    static_cast<std::uint32_t>(first * depth + (depth - 1 - stage) * group + i));
            }
    run.steps = computations(
        {.rank = rank, .ranks = stages, .virtual_stages = depth, .microbatches = microbatches, .group = group});
    return run;
}

ManagerDriver::ManagerDriver(ManagerCase run, const types::OffloadChoice& choice, types::RuleSet rules)
    : run_(std::move(run)), manager_(groups_of(run_.chunks), run_.backward_order, run_.pipeline_rank, choice, rules) {
    for (const ChunkLayers& layers : run_.chunks) {
        hook_groups_.push_back(numbers_of(hooks_of(layers)));
        loading_.emplace_back(hook_groups_.back().size() / 2, false);
    }
}

Iteration ManagerDriver::record() {
    manager_.begin_record();
    Iteration seen = iterate();
    manager_.begin_steady();
    return seen;
}

Iteration ManagerDriver::steady() {
    manager_.begin_steady();
    return iterate();
}

Iteration ManagerDriver::iterate() {
    Iteration seen;
    for (auto& chunk : loading_) std::fill(chunk.begin(), chunk.end(), false);
    for (const ChunkStep& step : run_.steps) {
        if (manager_.chunk_mismatch()) break;
        step.forward ? forward(step.chunk, seen) : backward(step.chunk, seen);
    }
    return seen;
}

void ManagerDriver::forward(std::uint32_t chunk, Iteration& seen) {
    manager_.begin_forward(chunk);
    const std::vector<Hook> hooks = hooks_of(run_.chunks[chunk]);
    for (std::size_t i = 0; i < hooks.size(); ++i) {
        const GroupRef ref{chunk, hook_groups_[chunk][i]};
        if (hooks[i].start) {
            manager_.start(ref.chunk, ref.group);
            continue;
        }
        const bool copied = manager_.commit(ref.chunk, ref.group);
        if (copied && hooks[i].bytes > Bytes{0}) ++seen.copies;
        seen.log.push_back(entry(copied ? "off" : "keep", ref));
    }
}

void ManagerDriver::backward(std::uint32_t chunk, Iteration& seen) {
    const std::vector<Hook> hooks = hooks_of(run_.chunks[chunk]);
    for (std::size_t i = hooks.size(); i-- > 0;) {
        const GroupRef ref{chunk, hook_groups_[chunk][i]};
        if (manager_.unmanaged(ref.chunk, ref.group)) continue;
        if (!hooks[i].start) {
            if (const auto awaited = manager_.commit_backward(ref.chunk, ref.group)) {
                loading_[awaited->chunk][awaited->group] = false;
                seen.log.push_back(entry("wait", *awaited));
            }
            continue;
        }
        if (hooks[i].bytes > Bytes{0}) read(chunk, ref.group, seen);
        const auto target = manager_.start_backward(chunk);
        if (!target) continue;
        seen.log.push_back(entry("load", *target));
        if (!manager_.prefetched(*target)) continue;
        ++seen.reloads;
        loading_[target->chunk][target->group] = true;
    }
}

void ManagerDriver::read(std::uint32_t chunk, std::uint32_t group, Iteration& seen) {
    if (loading_[chunk][group]) ++seen.unawaited_reads;
    if (!manager_.read(chunk, group)) return;
    ++seen.inline_reads;
    seen.log.push_back(entry("read", {chunk, group}));
}

std::string ManagerDriver::flags(std::uint32_t chunk) const {
    std::string text;
    for (std::uint32_t group = 0; group < loading_[chunk].size(); ++group)
        text += manager_.flag({chunk, group}) ? '1' : '0';
    return text;
}

}  // namespace stowage::tests
