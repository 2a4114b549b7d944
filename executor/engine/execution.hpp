#pragma once

// What is asked of an execution, and what it answers: plain types, so that the command, which links no CUDA library,
// can speak of them.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/layers/layer_script.hpp"
#include "planner/memory/allocator_config.hpp"
#include "planner/program/timeline.hpp"
#include "profiler/cupti/raw_events.hpp"
#include "scenarios/recording/measurement.hpp"
#include "scenarios/types/enum_names.hpp"
#include "scenarios/types/offload_choice.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::executor {

enum class AllocatorKind : std::uint8_t { caching, planned };

/// Modes that show faults and cost time: nothing measured under them is a step time.
struct DebugModes {
    std::optional<std::uint64_t> spin_seed;  ///< kernels that wait 0 to `longest_spin` before copies and events
    std::int64_t longest_spin_us = 5000;
    bool poison = false;              ///< memory is full of NaN when it is allocated and after it is freed
    bool fences = false;              ///< every buffer lies between two fences that are looked at when it is freed
    std::optional<std::string> dump;  ///< folder for parameters, tokens, losses and gradients of the first step
    std::optional<types::Module> extra_save;  ///< this module saves one tensor more in every layer; nobody reads it
};

/// What is recorded instead of measured: see Execution::record.
struct RecordedSteps {
    bool first = false;       ///< the first iteration, with its memory; needs the caching allocator
    std::int64_t steady = 0;  ///< so many later ones, back to back, after warm-up and the steps that are timed; none:
                              ///< the run ends behind the first iteration
};

struct ExecutionRequest {
    types::Scenario scenario;
    types::OffloadChoice choice;
    std::int64_t pipeline_rank = 0;
    /// What runs in place of the scenario's own layers: the rank's, all of whose kernels are stand-ins
    /// (program/stand_ins.hpp). Nothing: the layers of implementation stowage.
    std::shared_ptr<const layers::StageLayers> stand_ins;
    std::string policy = "megatron";  ///< as it is reported: none, megatron, stowage
    AllocatorKind allocator = AllocatorKind::caching;
    memory::AllocatorConfig caching_config;  ///< as the scenario's environment says
    std::int64_t steps = 20;
    std::int64_t warmup_steps = 5;
    double warmup_seconds = 0;      ///< at least so long, for clocks and power to settle
    std::int64_t launch_steps = 5;  ///< on an idle device, whose launches are timed
    std::uint64_t seed = 1;
    std::optional<double> routing_skew;     ///< of the tokens' routing, where it is not the one that is planned for
    bool digest_every_step = false;         ///< gradients of every step count, not only those of the last
    bool profile = true;                    ///< one more step under CUPTI
    std::optional<RecordedSteps> record;    ///< for a recording
    std::optional<std::string> gemm_table;  ///< file: read if it is there, written if not
    /// Pinned memory of at least that size is kept for executions that follow in this process: pinning takes 0.6 s a
    /// GiB. Nothing: none is kept, and none that was is used.
    std::optional<types::Bytes> keep_pinned;
    DebugModes debug;
};

struct ExecutionResult {
    recording::Measurement measurement;
    program::StageTimeline timeline;  ///< of the profiled step
    std::vector<profiler::RawStep> recorded_steps;
};

/// Told what is going on, in words, for a user who waits.
using Progress = std::function<void(const std::string&)>;

/// `transformer_engine attn moe_router`, as measurements have it.
inline std::string graphs_text(const types::CudaGraph& graph) {
    std::string text(types::name_of(graph.cuda_graph_impl));
    for (const types::CudaGraphModule module : graph.cuda_graph_modules)
        text += " " + std::string(types::name_of(module));
    return text;
}

}  // namespace stowage::executor

template <>
struct stowage::types::EnumNames<stowage::executor::AllocatorKind> {
    static constexpr std::array<std::pair<stowage::executor::AllocatorKind, std::string_view>, 2> values{
        {{stowage::executor::AllocatorKind::caching, "caching"},
         {stowage::executor::AllocatorKind::planned, "planned"}}};
};
