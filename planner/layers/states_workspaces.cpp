#include "planner/layers/states_workspaces.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "planner/layers/head.hpp"
#include "planner/layers/megatron_stage.hpp"
#include "planner/layers/moe_dispatch.hpp"
#include "planner/layers/padding.hpp"

namespace stowage::layers {
namespace {

using What = StateBuffer::What;
using types::Scenario;

constexpr int kHopper = 90;
constexpr std::int64_t kMebibyte = 1 << 20;

bool is_transformer(ScriptKind kind) {
    return kind == ScriptKind::dense_layer || kind == ScriptKind::moe_layer || kind == ScriptKind::mtp;
}

/// Frames of a chunk whose script `matches`.
template <class Matches>
std::int64_t count_frames(const StageLayers& stage, const ChunkLayers& chunk, Matches matches) {
    return std::count_if(chunk.order.begin(), chunk.order.end(),
                         [&](std::size_t script) { return matches(stage.scripts[script].kind); });
}

template <class Matches>
bool any_frame(const StageLayers& stage, Matches matches) {
    return std::any_of(stage.chunks.begin(), stage.chunks.end(),
                       [&](const ChunkLayers& chunk) { return count_frames(stage, chunk, matches) > 0; });
}

bool is_local(const Scenario& scenario) { return scenario.model.transformer_impl == types::TransformerImpl::local; }

bool has_head(const StageLayers& stage) {
    return any_frame(stage, [](ScriptKind kind) { return kind == ScriptKind::head; });
}

/// Transformer Engine's GEMM workspace: 4 MiB before Hopper, 32 MiB and 1 KiB (alignment) from it on.
/// Source: Transformer Engine, pytorch/cpp_extensions/gemm.py.
std::int64_t engine_workspace(const Scenario& scenario) {
    return scenario.hardware.node.device.compute_capability >= kHopper ? 32 * kMebibyte + 1024 : 4 * kMebibyte;
}

/// Megatron's own layers call torch.matmul alone, but their router Transformer Engine's GEMM.
bool calls_engine(const Scenario& scenario) { return !is_local(scenario) || scenario.model.has_experts(); }

void add_library_workspaces(StateList& states, const Scenario& scenario, bool loss) {
    // One per thread that calls torch.matmul: the main thread in forward, autograd's in backward. Of Transformer
    // Engine's models only the output layer does; the layers call its own GEMM.
    if (loss || is_local(scenario))
        for (const char* thread : {"forward", "backward"})
            states.add(std::string{"cuBLAS workspace, "} + thread + " thread", cublas_workspace(scenario).count,
                       What::workspace);
    if (!calls_engine(scenario)) return;
    states.add("Transformer Engine GEMM workspace", engine_workspace(scenario), What::workspace);
    // GEMMs with transfers inside run on three streams: one more workspace, three times as large. The buffers of the
    // transfers are not PyTorch's.
    if (scenario.parallel.tp_comm_overlap && scenario.parallel.tensor_model_parallel_size > 1)
        states.add("Transformer Engine GEMM workspace for overlapped transfers", 3 * engine_workspace(scenario),
                   What::workspace);
    // Grouped GEMM spreads the experts over four streams, each with a workspace of its own.
    if (scenario.model.has_experts() && scenario.model.moe_grouped_gemm)
        for (int stream = 0; stream < 4; ++stream)
            states.add("Transformer Engine grouped GEMM workspace " + std::to_string(stream),
                       engine_workspace(scenario), What::workspace);
}

/// Linears, the output layer, and the embedding's table where it is the output layer's weight too.
bool has_fused_gradient(const Parameter& parameter, bool shared_output) {
    if (parameter.name == "embedding.word_embeddings.weight") return shared_output;
    return is_engine_linear(parameter) || parameter.name == "output_layer.weight";
}

/// With gradient accumulation fused into the GEMM, autograd is handed an empty bf16 gradient for each linear; they are
/// cached by shape. Source: Transformer Engine, pytorch/module/base.py; Megatron-LM, core/tensor_parallel/layers.py.
void add_dummy_gradients(StateList& states, const Scenario& scenario, const StageLayers& stage) {
    if (!scenario.optimizer.gradient_accumulation_fusion) return;
    const bool shared_output = output_weight(scenario) == OutputWeight::shared;
    std::set<Shape> shapes;
    for (const Parameter& parameter : stage_parameters(stage)) {
        if (!has_fused_gradient(parameter, shared_output) || !shapes.insert(parameter.shape).second) continue;
        states.add("dummy gradient like " + parameter.name, 2 * parameter.elements(), What::workspace);
    }
}

/// Megatron caches what a rotary embedding returns: the angle of every position and channel, fp32, of this rank's part
/// of the sequence. One embedding for each virtual stage; with multi-latent attention one in every layer.
/// Source: Megatron-LM, core/models/common/embeddings/rotary_pos_embedding.py (forward is an lru_cache).
void add_rotary_angles(StateList& states, const Dimensions& dim, std::int64_t channels, const std::string& where) {
    states.add("rotary frequencies" + where, 4 * (channels / 2), What::workspace);
    states.add("rotary angles" + where, 4 * (dim.tokens / dim.micro_batch) * channels, What::workspace);
}

/// YaRN keeps cosine and sine too, in the parameters' type, for the positions that the model was first trained with:
/// 4096 unless the configuration says otherwise. Source: Megatron-LM, core/models/common/embeddings/
/// yarn_rotary_pos_embedding.py.
void add_yarn_tables(StateList& states, std::int64_t channels, const std::string& where) {
    constexpr std::int64_t kOriginalPositions = 4096;
    for (const char* table : {"YaRN cosine", "YaRN sine"})
        states.add(table + where, 2 * kOriginalPositions * channels, What::workspace);
}

void add_rotary_tables(StateList& states, const Scenario& scenario, const Dimensions& dim, const StageLayers& stage) {
    const types::Model& model = scenario.model;
    if (model.position_embedding_type != types::PositionEmbedding::rope) return;
    for (std::size_t chunk = 0; chunk < stage.chunks.size(); ++chunk) {
        const std::string where = stage.chunks.size() > 1 ? ", stage " + std::to_string(chunk) : "";
        if (!model.multi_latent_attention) {
            add_rotary_angles(states, dim, model.kv_channels, where);
            continue;
        }
        const std::int64_t layers = count_frames(stage, stage.chunks[chunk], is_transformer);
        for (std::int64_t layer = 0; layer < layers; ++layer) {
            const std::string place = where + ", layer " + std::to_string(layer);
            if (model.rope_type == types::RopeType::yarn) add_yarn_tables(states, model.qk_pos_emb_head_dim, place);
            add_rotary_angles(states, dim, model.qk_pos_emb_head_dim, place);
        }
    }
}

/// Megatron's global memory buffer is as large as the largest request for it and is never freed. It holds the gathered
/// input of the output layer (of every linear in Megatron's own layers), the tokens gathered for the experts by the
/// allgather dispatcher, and the scores of Megatron's own attention. The flex dispatcher has buffers of its own.
void add_global_buffer(StateList& states, const Scenario& scenario, const Dimensions& dim, const StageLayers& stage) {
    std::int64_t elements = 0;
    if ((has_head(stage) || is_local(scenario)) && dim.sequence_parallel) elements = dim.tokens * dim.hidden;
    if (is_local(scenario))
        elements = std::max(elements, dim.micro_batch * dim.heads * dim.sequence * dim.full_sequence);
    const bool experts = std::any_of(stage.scripts.begin(), stage.scripts.end(), [](const LayerScript& script) {
        return std::any_of(script.parameters.begin(), script.parameters.end(),
                           [](const Parameter& parameter) { return parameter.kind == ParameterKind::expert; });
    });
    const std::int64_t gathered = dim.expert * dim.expert_tensor;
    if (experts && gathered > 1 && scenario.parallel.moe_token_dispatcher_type == types::TokenDispatcher::allgather)
        elements = std::max(elements, gathered * dim.local_tokens * dim.routed_width);
    states.add("global memory buffer", 2 * elements, What::workspace);
    if (experts)
        states.add("receive buffers of the flex dispatcher", fused_dispatch_buffer(scenario, dim).count,
                   What::workspace);
}

/// The allgather dispatcher of each layer keeps what it was called with last: the map of its experts' tokens, where
/// each row came from, and the rows' probabilities, bf16 as the router makes them by default. Source: Megatron-LM,
/// core/transformer/moe/token_dispatcher.py.
void add_dispatcher_attributes(StateList& states, const Scenario& scenario, const Dimensions& dim,
                               const StageLayers& stage) {
    if (scenario.parallel.moe_token_dispatcher_type != types::TokenDispatcher::allgather) return;
    const std::int64_t tokens = dim.local_tokens * dim.expert * dim.expert_tensor;
    for (const ChunkLayers& chunk : stage.chunks) {
        const std::int64_t layers =
            count_frames(stage, chunk, [](ScriptKind kind) { return kind == ScriptKind::moe_layer; });
        for (std::int64_t layer = 0; layer < layers; ++layer) {
            const auto keep = [&](const char* name, std::int64_t bytes) {
                states.add(std::string{"dispatcher's "} + name, bytes, What::workspace,
                           StateBuffer::When::between_steps);
            };
            keep("map", tokens * dim.local_experts);
            keep("places", 8 * dim.expert_tokens);
            keep("probabilities", 2 * dim.expert_tokens);
        }
    }
}

/// A block keeps the last tensor it received as an attribute, and with it that tensor's gradient: every virtual stage
/// but the first. Source: Megatron-LM, core/transformer/transformer_block.py (set_input_tensor),
/// core/pipeline_parallel/schedules.py (forward_backward_pipelining_with_interleaving).
void add_leftovers(StateList& states, const Dimensions& dim, const StageLayers& stage) {
    for (std::size_t chunk = 0; chunk < stage.chunks.size(); ++chunk) {
        if (stage.pipeline_size == 1 || (stage.pipeline_rank == 0 && chunk == 0)) continue;
        const std::string where = stage.chunks.size() > 1 ? ", stage " + std::to_string(chunk) : "";
        // Within a step of interleaved stages the attributes are tensors that are there anyway: inputs under way.
        const auto when = stage.chunks.size() > 1 ? StateBuffer::When::between_steps : StateBuffer::When::setup;
        for (const char* name : {"last received input", "its gradient"})
            states.add(name + where, 2 * dim.hidden_elements(), What::workspace, when);
    }
    // The interleaved schedule's variable for what it receives is set last when the warm-up ends, if transfers overlap
    // compute from then on: that input and its gradient stay until the step's end.
    if (stage.chunks.size() > 1 && stage.overlapped_transfers)
        for (const char* name : {"input received last in the warm-up", "gradient of the input received last"})
            states.add(name, 2 * dim.hidden_elements(), What::workspace, StateBuffer::When::within_steps);
    // Scalars of optimizer, clipping and losses: seven 512-byte blocks, measured rather than traced one by one.
    for (int scalar = 0; scalar < 7; ++scalar) states.add("scalar " + std::to_string(scalar), 512, What::workspace);
}

/// Bytes of ":size_kib:count[:size_kib:count]", or 0 if it does not read so.
std::int64_t parse_workspace(const std::string& text) {
    std::vector<std::int64_t> numbers;
    std::size_t at = 0;
    while (at < text.size() && text[at] == ':') {
        std::size_t end = at + 1;
        std::int64_t value = 0;
        while (end < text.size() && text[end] >= '0' && text[end] <= '9' && value < kMebibyte)
            value = 10 * value + (text[end++] - '0');
        if (end == at + 1) return 0;
        numbers.push_back(value);
        at = end;
    }
    if (at != text.size() || numbers.size() % 2 != 0) return 0;
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < numbers.size(); i += 2) bytes += numbers[i] * 1024 * numbers[i + 1];
    return bytes;
}

}  // namespace

Bytes cublas_workspace(const Scenario& scenario) {
    // Source: PyTorch, aten/src/ATen/cuda/CublasHandlePool.cpp.
    const auto setting = scenario.env.find("CUBLAS_WORKSPACE_CONFIG");
    const std::int64_t given = setting == scenario.env.end() ? 0 : parse_workspace(setting->second);
    if (given > 0) return Bytes{given};
    const bool large = scenario.hardware.node.device.compute_capability >= kHopper;
    return Bytes{large ? 4096 * 1024 * 8 : 4096 * 1024 * 2 + 16 * 1024 * 8};
}

void add_workspaces(StateList& states, const Scenario& scenario, const Dimensions& dimensions,
                    const StageLayers& stage) {
    add_library_workspaces(states, scenario, has_head(stage));
    add_dummy_gradients(states, scenario, stage);
    add_rotary_tables(states, scenario, dimensions, stage);
    add_global_buffer(states, scenario, dimensions, stage);
    add_dispatcher_attributes(states, scenario, dimensions, stage);
    add_leftovers(states, dimensions, stage);
}

}  // namespace stowage::layers
