#include "planner/layers/states.hpp"

#include <algorithm>
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
/// The tensors that the model is built with move into the buffers once these are there.
void add_weights(StateList& states, const Rank& rank) {
    const bool fp8_parameters = holds_fp8_parameters(rank.scenario);
    const When when = rank.distributed() ? When::construction : When::setup;
    each_parameter(rank, [&](const std::string& name, const Parameter& parameter) {
        if (!fp8_parameters || !is_engine_linear(parameter))
            states.add(name, rank.formats.parameter * parameter.elements(), What::weights, when);
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

/// The pieces whose states stay on the device: those on the host are whole parameters from the end.
std::vector<ShardPiece> device_pieces(const ParameterBuffer& buffer, std::int64_t on_host) {
    if (on_host == 0) return buffer.last_pieces;
    std::int64_t left = -on_host;
    for (const ShardPiece& piece : buffer.pieces) left += piece.elements;
    std::vector<ShardPiece> pieces;
    for (const ShardPiece& piece : buffer.pieces) {
        if (left <= 0) break;
        pieces.push_back(piece);
        left -= piece.elements;
    }
    return pieces;
}

/// States of this rank's shard, less what lives on the host: one tensor for each piece of a parameter. Shown is the
/// last rank of an instance, the one whose memory Megatron logs.
void add_sharded_states(StateList& states, const Rank& rank) {
    const StateFormats& formats = rank.formats;
    const When main_when = formats.optimizer_holds_main ? When::first_optimizer_step : When::setup;
    const auto each = [&](auto visit) {
        for (std::size_t i = 0; i < rank.buffers.size(); ++i)
            for (const ShardPiece& piece : device_pieces(rank.buffers[i], rank.host.elements[i]))
                visit(rank.prefix(rank.buffers[i].chunk) + piece.name, piece.elements);
    };
    each([&](const std::string& name, std::int64_t elements) {
        states.add("main " + name, formats.main * elements, What::optimizer, main_when);
    });
    each([&](const std::string& name, std::int64_t elements) {
        states.add("main gradient of " + name, formats.kept_gradient * elements, What::gradients, When::between_steps);
    });
    each([&](const std::string& name, std::int64_t elements) {
        states.add("exp_avg " + name, formats.exp_avg * elements, What::optimizer, When::first_optimizer_step);
        states.add("exp_avg_sq " + name, formats.exp_avg_sq * elements, What::optimizer, When::first_optimizer_step);
    });
}

void add_host_states(StateList& states, const HostShare& host) {
    for (const ShardPiece& piece : host.pieces) states.add("main " + piece.name, 4 * piece.elements, What::pinned_host);
    for (const ShardPiece& piece : host.pieces)
        states.add("gradient of " + piece.name, 4 * piece.elements, What::pinned_host, When::first_optimizer_step);
    for (const ShardPiece& piece : host.pieces)
        states.add("moments of " + piece.name, 8 * piece.elements, What::pageable_host, When::first_optimizer_step);
}

/// Where the output layer's weight gradients are put off, the gradients of the logits and the layer's inputs wait for
/// the pipeline's flush. Those of the last microbatch come after the peak.
void add_deferred_gradients(StateList& states, const Scenario& scenario, const Dimensions& dim,
                            const StageLayers& stage) {
    const types::ParallelLayout& layout = scenario.parallel;
    if (!layout.defer_embedding_wgrad_compute || stage.pipeline_rank + 1 != stage.pipeline_size) return;
    const std::int64_t earlier = scenario.microbatches() - 1;
    const std::int64_t kept =
        layout.wgrad_deferral_limit > 0 ? std::min(earlier, layout.wgrad_deferral_limit) : earlier;
    for (std::int64_t i = 0; i < kept; ++i) {
        const std::string of = " of microbatch " + std::to_string(i);
        states.add("deferred logits gradient" + of, 2 * dim.tokens * dim.vocabulary, What::workspace,
                   When::within_steps);
        states.add("deferred output layer input" + of, 2 * dim.hidden_elements(), What::workspace, When::within_steps);
    }
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
    add_deferred_gradients(states, scenario, dimensions, stage);
    return states.take();
}

}  // namespace stowage::layers
