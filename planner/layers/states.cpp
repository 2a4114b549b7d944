#include "planner/layers/states.hpp"

#include <set>
#include <string>

#include "planner/layers/head.hpp"

namespace stowage::layers {
namespace {

using What = StateBuffer::What;
using When = StateBuffer::When;
using types::Scenario;

constexpr int kHopper = 90;
constexpr std::int64_t kMebibyte = 1 << 20;

std::string kind_name(ParameterKind kind) { return kind == ParameterKind::dense ? "dense" : "expert"; }

class States {
public:
    void add(std::string name, std::int64_t bytes, What what, When when = When::setup) {
        if (bytes > 0) list_.push_back({std::move(name), Bytes{bytes}, what, when});
    }
    std::vector<StateBuffer> take() { return std::move(list_); }

private:
    std::vector<StateBuffer> list_;
};

/// Without the distributed optimizer: parameters, main parameters and moments are one tensor each per parameter.
void add_separate_tensors(States& states, const std::vector<Parameter>& parameters,
                          const std::vector<ParameterBuffer>& buffers) {
    for (const Parameter& parameter : parameters) states.add(parameter.name, 2 * parameter.elements(), What::weights);
    for (const ParameterBuffer& buffer : buffers)
        states.add(kind_name(buffer.kind) + " gradients", 4 * buffer.padded, What::gradients);
    for (const Parameter& parameter : parameters)
        states.add("main " + parameter.name, 4 * parameter.elements(), What::optimizer);
    for (const Parameter& parameter : parameters)
        for (const char* moment : {"exp_avg ", "exp_avg_sq "})
            states.add(moment + parameter.name, 4 * parameter.elements(), What::optimizer, When::first_optimizer_step);
}

/// With it: one parameter and one gradient buffer per kind, of one padded length; states for this rank's shard.
void add_buffers(States& states, const std::vector<ParameterBuffer>& buffers) {
    for (const ParameterBuffer& buffer : buffers) {
        states.add(kind_name(buffer.kind) + " parameters", 2 * buffer.padded, What::weights);
        states.add(kind_name(buffer.kind) + " gradients", 4 * buffer.padded, What::gradients);
    }
    for (const ParameterBuffer& buffer : buffers)
        states.add("main " + kind_name(buffer.kind) + " parameters", 4 * buffer.shard, What::optimizer);
    for (const ParameterBuffer& buffer : buffers)
        for (const char* moment : {"exp_avg ", "exp_avg_sq "})
            states.add(moment + kind_name(buffer.kind) + " parameters", 4 * buffer.shard, What::optimizer,
                       When::first_optimizer_step);
}

/// Transformer Engine's GEMM workspace: 4 MiB before Hopper, 32 MiB and 1 KiB (alignment) from it on.
/// Source: Transformer Engine, pytorch/cpp_extensions/gemm.py.
std::int64_t engine_workspace(const Scenario& scenario) {
    return scenario.hardware.node.device.compute_capability >= kHopper ? 32 * kMebibyte + 1024 : 4 * kMebibyte;
}

void add_library_workspaces(States& states, const Scenario& scenario, bool last_stage) {
    // One per thread that calls torch.matmul: the main thread in forward, autograd's in backward. Only the output
    // layer does; the layers call Transformer Engine's GEMM.
    if (last_stage)
        for (const char* thread : {"forward", "backward"})
            states.add(std::string{"cuBLAS workspace, "} + thread + " thread", cublas_workspace(scenario).count,
                       What::workspace);
    states.add("Transformer Engine GEMM workspace", engine_workspace(scenario), What::workspace);
    // Grouped GEMM spreads the experts over four streams, each with a workspace of its own.
    if (scenario.model.has_experts())
        for (int stream = 0; stream < 4; ++stream)
            states.add("Transformer Engine grouped GEMM workspace " + std::to_string(stream),
                       engine_workspace(scenario), What::workspace);
}

/// Linears, and the embedding's table where it is also the output layer's weight.
bool has_fused_gradient(const Parameter& parameter, bool shared_output) {
    const std::string& name = parameter.name;
    if (name == "embedding.word_embeddings.weight") return shared_output;
    return parameter.shape.size() == 2 && name.find("embeddings") == std::string::npos &&
           name.find("router.weight") == std::string::npos;
}

/// With gradient accumulation fused into the GEMM, autograd is handed an empty bf16 gradient for each linear; they are
/// cached by shape. Source: Transformer Engine, pytorch/module/base.py; Megatron-LM, core/tensor_parallel/layers.py.
void add_dummy_gradients(States& states, const std::vector<Parameter>& parameters, bool shared_output) {
    std::set<Shape> shapes;
    for (const Parameter& parameter : parameters) {
        if (!has_fused_gradient(parameter, shared_output) || !shapes.insert(parameter.shape).second) continue;
        states.add("dummy gradient like " + parameter.name, 2 * parameter.elements(), What::workspace);
    }
}

/// Megatron caches what the rotary embedding returns: the angle of every position and channel, fp32, on every stage.
/// Source: Megatron-LM, core/models/common/embeddings/rotary_pos_embedding.py (forward is an lru_cache).
void add_rotary_angles(States& states, const Scenario& scenario, const Dimensions& dim) {
    if (scenario.model.position_embedding_type != types::PositionEmbedding::rope) return;
    states.add("rotary frequencies", 4 * (dim.head_size / 2), What::workspace);
    states.add("rotary angles", 4 * dim.sequence * dim.head_size, What::workspace);
}

/// Values that parallelism keeps between steps.
void add_leftovers(States& states, const Scenario& scenario, const Dimensions& dim, std::int64_t rank, bool last) {
    // Megatron's global memory buffer holds the output layer's gathered input; it only grows and is never freed.
    if (last && dim.sequence_parallel) states.add("global memory buffer", 2 * dim.tokens * dim.hidden, What::workspace);
    // The block keeps the last tensor it received as an attribute, and with it that tensor's gradient.
    if (scenario.parallel.pipeline_model_parallel_size > 1 && rank > 0)
        for (const char* name : {"last received input", "its gradient"})
            states.add(name, 2 * dim.hidden_elements(), What::workspace);
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

std::vector<StateBuffer> rank_states(const Scenario& scenario, const Dimensions& dimensions, std::int64_t pipeline_rank,
                                     const std::vector<Parameter>& parameters) {
    States states;
    const bool last = pipeline_rank + 1 == scenario.parallel.pipeline_model_parallel_size;
    const bool distributed = scenario.optimizer.use_distributed_optimizer;
    const bool shared = output_weight(scenario) == OutputWeight::copy;
    const auto buffers = parameter_buffers(parameters, scenario.parallel, distributed, shared);
    if (distributed)
        add_buffers(states, buffers);
    else
        add_separate_tensors(states, parameters, buffers);
    add_library_workspaces(states, scenario, last);
    add_dummy_gradients(states, parameters, output_weight(scenario) == OutputWeight::shared);
    add_rotary_angles(states, scenario, dimensions);
    add_leftovers(states, scenario, dimensions, pipeline_rank, last);
    return states.take();
}

}  // namespace stowage::layers
