#include "executor/engine/dump.hpp"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "executor/cuda/check.hpp"
#include "executor/workload/random.hpp"

namespace stowage::executor {
namespace {

using Json = nlohmann::ordered_json;

void write_file(const std::filesystem::path& path, const void* bytes, std::size_t count) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(count));
    if (!file) throw types::InputError(path.string() + ": error: cannot be written");
}

void write_buffer(const std::filesystem::path& path, Address address, std::int64_t bytes) {
    std::vector<char> host(static_cast<std::size_t>(bytes));
    check(cudaMemcpy(host.data(), pointer(address), host.size(), cudaMemcpyDeviceToHost),
          "reading what is to be dumped");
    write_file(path, host.data(), host.size());
}

/// The tokens of places `shift` and on, of every microbatch of step 0.
void write_tokens(const std::filesystem::path& path, const ExecutionRequest& request, std::uint64_t shift) {
    const types::Scenario& scenario = request.scenario;
    const auto tokens = static_cast<std::uint64_t>(scenario.batch.seq_length * scenario.batch.micro_batch_size);
    const auto vocabulary = static_cast<std::uint64_t>(scenario.model.vocab_size);
    std::vector<std::int32_t> values;
    for (std::int64_t microbatch = 0; microbatch < scenario.microbatches(); ++microbatch) {
        const std::uint64_t key = stream_key(request.seed, 0, static_cast<std::uint64_t>(microbatch));
        for (std::uint64_t i = 0; i < tokens; ++i) values.push_back(random_token(key, i + shift, vocabulary));
    }
    write_file(path, values.data(), values.size() * sizeof(std::int32_t));
}

std::vector<int> moe_layers(const types::Model& model) {
    std::vector<int> layers;
    for (std::int64_t layer = 0; layer < model.num_layers; ++layer) layers.push_back(model.is_moe_layer(layer) ? 1 : 0);
    if (model.mtp_num_layers > 0) layers.push_back(layers.back());  // the one of the prediction
    return layers;
}

Json experts(const types::Scenario& scenario) {
    const types::Model& model = scenario.model;
    return {{"count", model.num_experts},
            {"ranks", scenario.parallel.expert_model_parallel_size},
            {"topk", model.moe_router_topk},
            {"layers", moe_layers(model)},
            {"shared", model.moe_shared_expert_intermediate_size > 0},
            {"padded", model.drop_and_pad()},
            {"sigmoid", model.moe_router_score_function == types::RouterScore::sigmoid},
            {"softmax_first", model.moe_router_pre_softmax},
            {"scaling", model.moe_router_topk_scaling_factor}};
}

Json latent_attention(const types::Model& model) {
    return {{"query", model.q_lora_rank},
            {"key_value", model.kv_lora_rank},
            {"plain", model.qk_head_dim},
            {"turned", model.qk_pos_emb_head_dim},
            {"value", model.v_head_dim}};
}

Json description(const ExecutionRequest& request, const DumpedStep& step) {
    const types::Model& model = request.scenario.model;
    Json json{{"layers", model.num_layers},
              {"hidden_size", model.hidden_size},
              {"heads", model.num_attention_heads},
              {"groups", model.num_query_groups},
              {"head_size", model.kv_channels},
              {"ffn_hidden_size", model.ffn_hidden_size},
              {"vocabulary", model.vocab_size},
              {"layer_norm", model.normalization == types::Normalization::LayerNorm},
              {"gated", model.gated()},
              {"rotary", model.position_embedding_type == types::PositionEmbedding::rope},
              {"sequence", request.scenario.batch.seq_length},
              {"micro_batch_size", request.scenario.batch.micro_batch_size},
              {"microbatches", request.scenario.microbatches()},
              {"gradient_bytes", request.scenario.optimizer.grad_reduce_in_bf16 ? 2 : 4},
              {"losses", step.losses}};
    if (model.mtp_num_layers > 0) json["prediction_scaling"] = model.mtp_loss_scaling_factor;
    if (model.multi_latent_attention) json["latent"] = latent_attention(model);
    if (model.has_experts()) json["experts"] = experts(request.scenario);
    for (const PlacedParameter& parameter : step.parameters)
        json["parameters"].push_back(
            {{"name", parameter.name}, {"shape", parameter.shape}, {"place", parameter.place}});
    return json;
}

}  // namespace

void write_dump(const std::string& folder, const ExecutionRequest& request, const DumpedStep& step) {
    const std::filesystem::path path(folder);
    std::error_code failed;
    std::filesystem::create_directories(path, failed);
    if (failed) throw types::InputError(folder + ": error: cannot be made: " + failed.message());
    const std::string text = description(request, step).dump(2) + "\n";
    write_file(path / "step.json", text.data(), text.size());
    write_tokens(path / "tokens.bin", request, 0);
    const auto next = static_cast<std::uint64_t>(request.scenario.batch.micro_batch_size);
    write_tokens(path / "labels.bin", request, next);
    if (request.scenario.model.mtp_num_layers > 0) write_tokens(path / "later_labels.bin", request, 2 * next);
    const std::int64_t element = request.scenario.optimizer.grad_reduce_in_bf16 ? 2 : 4;
    write_buffer(path / "parameters.bin", step.weights, 2 * (step.gradient_bytes.count / element));
    write_buffer(path / "gradients.bin", step.gradients, step.gradient_bytes.count);
    if (step.assignment != 0) write_buffer(path / "assignment.bin", step.assignment, step.assignment_bytes.count);
}

}  // namespace stowage::executor
