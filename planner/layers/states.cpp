#include "planner/layers/states.hpp"

#include <string>

#include "planner/layers/megatron_stage.hpp"
#include "planner/layers/padding.hpp"
#include "planner/layers/states_formats.hpp"
#include "planner/layers/states_host.hpp"
#include "planner/layers/states_list.hpp"
#include "planner/layers/states_workspaces.hpp"

namespace stowage::layers {
namespace {

using What = StateBuffer::What;
using When = StateBuffer::When;
using types::Scenario;

/// What the parts of a rank's states share.
struct Rank {
    const Scenario& scenario;
    StateFormats formats;
    std::vector<std::vector<Parameter>> chunks;
    std::vector<ParameterBuffer> buffers;
    HostShare host;

    [[nodiscard]] bool distributed() const { return scenario.optimizer.use_distributed_optimizer; }
    [[nodiscard]] std::string name(const ParameterBuffer& buffer) const { return buffer.name(chunks.size() > 1); }
    /// Prefix of the names of a chunk's tensors, where one rank has several chunks of equal names.
    [[nodiscard]] std::string prefix(std::size_t chunk) const {
        return chunks.size() > 1 ? "stage " + std::to_string(chunk) + " " : "";
    }
};

/// Calls `visit(name, parameter)` for every parameter of the rank.
template <class Visit>
void each_parameter(const Rank& rank, Visit visit) {
    for (std::size_t chunk = 0; chunk < rank.chunks.size(); ++chunk)
        for (const Parameter& parameter : rank.chunks[chunk]) visit(rank.prefix(chunk) + parameter.name, parameter);
}

/// Quantised weights of FP8 linears: all that there is of the parameter, or a copy that lives beside it because
/// Transformer Engine quantises a weight once a step, in the first microbatch.
bool quantizes(const Scenario& scenario) {
    return is_fp8(scenario.precision) || scenario.precision == types::Precision::nvfp4;
}

/// Without the distributed optimizer parameters are one tensor each. With it they lie in one buffer per kind; those of
/// MXFP8 do not, since one rank's part of a weight cannot be quantised alone in both directions: they are tensors of
/// their own and a bf16 copy is gathered through the gradient buffer.
void add_weights(StateList& states, const Rank& rank) {
    const bool fp8_parameters = holds_fp8_parameters(rank.scenario);
    if (!rank.distributed())
        each_parameter(rank, [&](const std::string& name, const Parameter& parameter) {
            if (!fp8_parameters || !is_engine_linear(parameter))
                states.add(name, rank.formats.parameter * parameter.elements(), What::weights);
        });
    for (const ParameterBuffer& buffer : rank.buffers) {
        const bool in_buffer =
            rank.distributed() && (!buffer.fp8 || rank.scenario.precision != types::Precision::mxfp8);
        if (in_buffer)
            states.add(rank.name(buffer) + " parameters", (buffer.fp8 ? 1 : rank.formats.parameter) * buffer.padded,
                       What::weights);
        states.add(rank.name(buffer) + " gradients", rank.formats.gradient * buffer.padded, What::gradients);
    }
}

void add_quantized_weights(StateList& states, const Rank& rank) {
    if (!quantizes(rank.scenario)) return;
    const bool fp8_parameters = holds_fp8_parameters(rank.scenario);
    const bool rows_in_buffer =
        fp8_parameters && rank.distributed() && rank.scenario.precision != types::Precision::mxfp8;
    each_parameter(rank, [&](const std::string& name, const Parameter& parameter) {
        if (!is_engine_linear(parameter)) return;
        const Bytes all = quantized_weight(rank.scenario, parameter.shape);
        states.add("quantised " + name, all.count - (rows_in_buffer ? parameter.elements() : 0),
                   fp8_parameters ? What::weights : What::workspace);
    });
}

/// One tensor each per parameter.
void add_separate_states(StateList& states, const Rank& rank) {
    const StateFormats& formats = rank.formats;
    each_parameter(rank, [&](const std::string& name, const Parameter& parameter) {
        states.add("main " + name, formats.main * parameter.elements(), What::optimizer);
    });
    each_parameter(rank, [&](const std::string& name, const Parameter& parameter) {
        states.add("main gradient of " + name, formats.kept_gradient * parameter.elements(), What::gradients,
                   When::between_steps);
    });
    each_parameter(rank, [&](const std::string& name, const Parameter& parameter) {
        states.add("exp_avg " + name, formats.exp_avg * parameter.elements(), What::optimizer,
                   When::first_optimizer_step);
        states.add("exp_avg_sq " + name, formats.exp_avg_sq * parameter.elements(), What::optimizer,
                   When::first_optimizer_step);
    });
}

/// States of this rank's shard of each buffer, less what lives on the host.
void add_sharded_states(StateList& states, const Rank& rank) {
    const StateFormats& formats = rank.formats;
    const When main_when = formats.optimizer_holds_main ? When::first_optimizer_step : When::setup;
    const auto each = [&](const std::string& what, std::int64_t size, What use, When when) {
        for (std::size_t i = 0; i < rank.buffers.size(); ++i)
            states.add(what + rank.name(rank.buffers[i]) + " parameters",
                       size * (rank.buffers[i].shard - rank.host.elements[i]), use, when);
    };
    each("main ", formats.main, What::optimizer, main_when);
    each("main gradients of ", formats.kept_gradient, What::gradients, When::between_steps);
    each("exp_avg ", formats.exp_avg, What::optimizer, When::first_optimizer_step);
    each("exp_avg_sq ", formats.exp_avg_sq, What::optimizer, When::first_optimizer_step);
}

void add_host_states(StateList& states, const HostShare& host) {
    for (const ShardPiece& piece : host.pieces) states.add("main " + piece.name, 4 * piece.elements, What::pinned_host);
    for (const ShardPiece& piece : host.pieces)
        states.add("gradient of " + piece.name, 4 * piece.elements, What::pinned_host, When::first_optimizer_step);
    for (const ShardPiece& piece : host.pieces)
        states.add("moments of " + piece.name, 8 * piece.elements, What::pageable_host, When::first_optimizer_step);
}

}  // namespace

std::vector<StateBuffer> rank_states(const Scenario& scenario, const Dimensions& dimensions, const StageLayers& stage) {
    Rank rank{scenario, state_formats(scenario), parameters_by_chunk(stage), {}, {}};
    rank.buffers = parameter_buffers(scenario, stage.pipeline_rank, rank.chunks);
    rank.host = host_share(scenario, rank.buffers);
    StateList states;
    add_weights(states, rank);
    add_quantized_weights(states, rank);
    if (rank.distributed())
        add_sharded_states(states, rank);
    else
        add_separate_states(states, rank);
    add_host_states(states, rank.host);
    add_workspaces(states, scenario, dimensions, stage);
    return states.take();
}

}  // namespace stowage::layers
