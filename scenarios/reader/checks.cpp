#include "scenarios/reader/checks.hpp"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <utility>

#include "scenarios/types/stages.hpp"

namespace stowage::reader {
namespace {

using Paths = std::initializer_list<std::string_view>;

constexpr double kMostParameters = 1e15;
constexpr double kMostElements = 1e15;

/// a * b, or the largest integer if that is less; both at least 0.
std::int64_t product(std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    return __builtin_mul_overflow(a, b, &result) ? std::numeric_limits<std::int64_t>::max() : result;
}

std::int64_t product(std::initializer_list<std::int64_t> factors) {
    std::int64_t result = 1;
    for (std::int64_t factor : factors) result = product(result, factor);
    return result;
}

std::string number(std::int64_t value) { return std::to_string(value); }

/// Whether the value at `path`, or a group around it, could not be read.
bool unread(const Gathered& gathered, std::string_view path) {
    for (;;) {
        if (gathered.failed.find(path) != gathered.failed.end()) return true;
        if (path.empty()) return false;
        const std::size_t dot = path.rfind('.');
        path = dot == std::string_view::npos ? std::string_view{} : path.substr(0, dot);
    }
}

bool all_read(const Gathered& gathered, Paths paths) {
    return std::none_of(paths.begin(), paths.end(), [&](std::string_view path) { return unread(gathered, path); });
}

void report(Gathered& gathered, std::string_view path, std::string message, std::string hint = {}) {
    gathered.diagnostics.add(gathered.where.find(path), std::move(message), std::move(hint));
}

/// `value` at `path` must be a multiple of `divisor`, which is called `name`.
void require_multiple(Gathered& gathered, std::string_view path, const std::string& what, std::int64_t value,
                      const std::string& name, std::int64_t divisor) {
    if (divisor <= 0 || value % divisor == 0) return;
    report(gathered, path, what + " " + number(value) + " is not a multiple of " + name + " " + number(divisor));
}

constexpr std::string_view kTensor = "parallel.tensor_model_parallel_size";
constexpr std::string_view kPipeline = "parallel.pipeline_model_parallel_size";
constexpr std::string_view kContext = "parallel.context_parallel_size";
constexpr std::string_view kExpert = "parallel.expert_model_parallel_size";
constexpr std::string_view kExpertTensor = "parallel.expert_tensor_parallel_size";
constexpr std::string_view kData = "parallel.data_parallel_size";
constexpr std::string_view kSequence = "parallel.sequence_parallel";

bool has_dense_layers(const types::Model& model) {
    if (!model.has_experts()) return true;
    return std::find(model.moe_layer_freq.begin(), model.moe_layer_freq.end(), false) != model.moe_layer_freq.end();
}

void check_attention_split(Gathered& gathered, const types::Scenario& scenario) {
    const types::Model& model = scenario.model;
    const std::int64_t tensor = scenario.parallel.tensor_model_parallel_size;
    const std::string name = "tensor_model_parallel_size";
    if (!all_read(gathered, {kTensor, "model.num_attention_heads"})) return;
    require_multiple(gathered, kTensor, "num_attention_heads", model.num_attention_heads, name, tensor);
    if (unread(gathered, "model.num_query_groups") || model.num_query_groups == model.num_attention_heads) return;
    if (model.num_query_groups < tensor && tensor % model.num_query_groups == 0)
        return report(gathered, kTensor,
                      "num_query_groups " + number(model.num_query_groups) +
                          " is less than tensor_model_parallel_size " + number(tensor) +
                          ": known, but this version cannot plan it yet",
                      "at most one tensor-parallel rank for each key/value head");
    require_multiple(gathered, kTensor, "num_query_groups", model.num_query_groups, name, tensor);
}

void check_width_split(Gathered& gathered, const types::Scenario& scenario) {
    const types::Model& model = scenario.model;
    const std::int64_t tensor = scenario.parallel.tensor_model_parallel_size;
    const std::string name = "tensor_model_parallel_size";
    if (unread(gathered, kTensor)) return;
    if (!unread(gathered, "model.hidden_size"))
        require_multiple(gathered, kTensor, "hidden_size", model.hidden_size, name, tensor);
    if (all_read(gathered, {"model.ffn_hidden_size", "model.hidden_size", "model.moe_layer_freq"}) &&
        has_dense_layers(model))
        require_multiple(gathered, kTensor, "ffn_hidden_size", model.ffn_hidden_size, name, tensor);
    if (!unread(gathered, "model.moe_shared_expert_intermediate_size") && model.has_experts())
        require_multiple(gathered, kTensor, "moe_shared_expert_intermediate_size",
                         model.moe_shared_expert_intermediate_size, name, tensor);
}

void check_expert_split(Gathered& gathered, const types::Scenario& scenario) {
    const types::Model& model = scenario.model;
    const types::ParallelLayout& parallel = scenario.parallel;
    if (unread(gathered, "model.num_experts")) return;
    if (!model.has_experts()) {
        if (!unread(gathered, kExpert) && parallel.expert_model_parallel_size > 1)
            report(
                gathered, kExpert,
                "found " + number(parallel.expert_model_parallel_size) + ", but the model has no experts, expected 1");
        return;
    }
    if (!unread(gathered, kExpert))
        require_multiple(gathered, kExpert, "num_experts", model.num_experts, "expert_model_parallel_size",
                         parallel.expert_model_parallel_size);
    if (all_read(gathered, {kExpertTensor, kTensor, "model.moe_ffn_hidden_size", "model.ffn_hidden_size"}))
        require_multiple(gathered, kExpertTensor, "moe_ffn_hidden_size", model.moe_ffn_hidden_size,
                         gathered.where.contains(kExpertTensor)
                             ? "expert_tensor_parallel_size"
                             : "expert_tensor_parallel_size (by default tensor_model_parallel_size)",
                         parallel.expert_tensor_parallel_size);
    if (all_read(gathered, {kTensor, kSequence}) && parallel.tensor_model_parallel_size > 1 &&
        !parallel.sequence_parallel)
        report(gathered, kSequence,
               "false with experts and tensor_model_parallel_size " + number(parallel.tensor_model_parallel_size) +
                   ", expected true",
               "Megatron trains experts under tensor parallelism only with sequence_parallel: true");
}

void check_layers(Gathered& gathered, const types::Scenario& scenario) {
    const types::ParallelLayout& parallel = scenario.parallel;
    if (!all_read(gathered, {"model.num_layers", kPipeline, "parallel.num_virtual_stages_per_pipeline_rank",
                             "parallel.decoder_first_pipeline_num_layers", "parallel.decoder_last_pipeline_num_layers",
                             "parallel.account_for_embedding_in_pipeline_split",
                             "parallel.account_for_loss_in_pipeline_split", "parallel.pipeline_model_parallel_layout"}))
        return;
    const auto placed = types::stage_table(parallel, scenario.model);
    const auto* no = std::get_if<types::NoStages>(&placed);
    if (no == nullptr) return;
    if (!parallel.pipeline_model_parallel_layout.empty())
        report(gathered, "parallel.pipeline_model_parallel_layout", no->reason,
               "one letter a layer, stages separated by |, for example Et*3|(tt|)*6mL");
    else
        report(gathered, kPipeline, no->reason,
               "decoder_first_pipeline_num_layers, decoder_last_pipeline_num_layers, "
               "account_for_embedding_in_pipeline_split and account_for_loss_in_pipeline_split change the division");
}

void check_batch(Gathered& gathered, const types::Scenario& scenario) {
    const types::Batch& batch = scenario.batch;
    const types::ParallelLayout& parallel = scenario.parallel;
    if (all_read(gathered, {"batch.global_batch_size", "batch.micro_batch_size", kData}) &&
        parallel.data_parallel_size > 0)
        require_multiple(gathered, "batch.global_batch_size", "global_batch_size", batch.global_batch_size,
                         "micro_batch_size x data_parallel_size",
                         product(batch.micro_batch_size, parallel.data_parallel_size));
    if (!all_read(gathered, {"batch.seq_length", kContext, kTensor, kSequence})) return;
    const bool split = parallel.context_parallel_size > 1;
    const std::int64_t pieces = product(split ? 2 * parallel.context_parallel_size : 1, parallel.sequence_shards());
    if (pieces == 1 || batch.seq_length % pieces == 0) return;
    const std::string name =
        split ? (parallel.sequence_shards() > 1 ? "2 x context_parallel_size x tensor_model_parallel_size"
                                                : "2 x context_parallel_size")
              : "tensor_model_parallel_size (sequence_parallel)";
    require_multiple(gathered, "batch.seq_length", "seq_length", batch.seq_length, name, pieces);
}

std::string layout_words(const types::ParallelLayout& parallel) {
    return "tensor " + number(parallel.tensor_model_parallel_size) + " x pipeline " +
           number(parallel.pipeline_model_parallel_size) + " x context " + number(parallel.context_parallel_size);
}

/// Whether the layout covers the hardware; the remaining checks of it make no sense otherwise.
bool check_world(Gathered& gathered, const types::Scenario& scenario) {
    const types::ParallelLayout& parallel = scenario.parallel;
    const types::Hardware& hardware = scenario.hardware;
    if (!all_read(gathered, {kTensor, kPipeline, kContext, kData, "hardware.nodes", "hardware.node.gpus_per_node"}))
        return false;
    const std::string gpus = number(hardware.gpus()) + " GPUs (" + number(hardware.nodes) + " nodes of " +
                             number(hardware.node.gpus_per_node) + ")";
    if (parallel.data_parallel_size == 0) {
        report(gathered, "hardware.nodes", gpus + " are not a multiple of " + layout_words(parallel));
        return false;
    }
    const std::int64_t world = product({parallel.tensor_model_parallel_size, parallel.pipeline_model_parallel_size,
                                        parallel.context_parallel_size, parallel.data_parallel_size});
    if (world == hardware.gpus()) return true;
    report(gathered, kData,
           layout_words(parallel) + " x data " + number(parallel.data_parallel_size) + " is " + number(world) +
               " ranks, but the hardware has " + gpus,
           "leave data_parallel_size out to use all GPUs");
    return false;
}

void check_expert_world(Gathered& gathered, const types::Scenario& scenario) {
    const types::ParallelLayout& parallel = scenario.parallel;
    if (!scenario.model.has_experts() || !all_read(gathered, {kExpert, kExpertTensor, "model.num_experts"})) return;
    const std::int64_t ranks = product({parallel.expert_tensor_parallel_size, parallel.expert_model_parallel_size,
                                        parallel.pipeline_model_parallel_size});
    if (scenario.hardware.gpus() % ranks == 0) return;
    report(gathered, kExpert,
           number(scenario.hardware.gpus()) + " GPUs are not a multiple of expert tensor " +
               number(parallel.expert_tensor_parallel_size) + " x expert " +
               number(parallel.expert_model_parallel_size) + " x pipeline " +
               number(parallel.pipeline_model_parallel_size));
}

/// Sizes of single tensors stay far inside 64-bit arithmetic.
void check_tokens(Gathered& gathered, const types::Scenario& scenario) {
    const types::Model& model = scenario.model;
    if (!all_read(gathered, {"batch.seq_length", "batch.micro_batch_size", "model"})) return;
    const double tokens =
        static_cast<double>(scenario.batch.seq_length) * static_cast<double>(scenario.batch.micro_batch_size);
    const std::int64_t widest =
        std::max({model.hidden_size, model.ffn_hidden_size, model.vocab_size,
                  product(model.num_attention_heads, model.kv_channels),
                  product(std::max<std::int64_t>(model.moe_router_topk, 1), model.moe_ffn_hidden_size)});
    if (tokens * static_cast<double>(widest) <= kMostElements) return;
    report(gathered, "batch.seq_length", "a microbatch has tensors of more than 10^15 elements, expected fewer");
}

}  // namespace

void check_model(Gathered& gathered, const types::Model& model, const std::string& root) {
    const auto path = [&](const char* name) { return root.empty() ? std::string(name) : root + "." + name; };
    const auto given = [&](const char* name) { return gathered.where.contains(path(name)); };
    const auto read = [&](const char* name) { return !unread(gathered, path(name)); };
    if (read("num_attention_heads") && read("num_query_groups") && model.num_query_groups > 0)
        require_multiple(gathered, path("num_query_groups"), "num_attention_heads", model.num_attention_heads,
                         "num_query_groups", model.num_query_groups);
    if (read("num_attention_heads") && read("hidden_size") && !given("kv_channels"))
        require_multiple(gathered, path("hidden_size"), "without kv_channels, hidden_size", model.hidden_size,
                         "num_attention_heads", model.num_attention_heads);
    const bool dense_without_width = has_dense_layers(model) && model.ffn_hidden_size == 0;
    const bool experts_without_width = model.has_experts() && model.moe_ffn_hidden_size == 0;
    if (read("hidden_size") && read("ffn_hidden_size") && read("num_experts") && read("moe_layer_freq") &&
        read("moe_ffn_hidden_size") && (dense_without_width || experts_without_width))
        report(
            gathered, path("hidden_size"),
            "without ffn_hidden_size, hidden_size " + number(model.hidden_size) + " gives an MLP of width 0",
            "give ffn_hidden_size; with swiglu it is 8/3 of hidden_size by default, rounded down to a multiple of 64");
    if (read("moe_router_topk") && read("num_experts") && model.has_experts() &&
        model.moe_router_topk > model.num_experts)
        report(
            gathered, path("moe_router_topk"),
            "found " + number(model.moe_router_topk) + ", expected at most num_experts " + number(model.num_experts));
    const auto listed = static_cast<std::int64_t>(model.moe_layer_freq.size());
    if (read("moe_layer_freq") && read("num_layers") && listed > 0 && listed != model.num_layers)
        report(gathered, path("moe_layer_freq"),
               "found " + number(listed) + " items, expected num_layers " + number(model.num_layers));
    if (read("position_embedding_type") && read("max_position_embeddings") && model.max_position_embeddings == 0 &&
        model.position_embedding_type == types::PositionEmbedding::learned_absolute)
        report(gathered, path("position_embedding_type"), "learned_absolute needs max_position_embeddings");
    if (unread(gathered, root)) return;
    const double width =
        static_cast<double>(std::max(model.hidden_size, model.num_attention_heads * model.kv_channels));
    const double ffn = static_cast<double>(std::max(model.ffn_hidden_size, model.moe_ffn_hidden_size));
    const double experts = static_cast<double>(std::max<std::int64_t>(model.num_experts, 1));
    const double layer = width * (4 * width + 3 * ffn * experts);
    const double parameters =
        layer * static_cast<double>(model.num_layers) + 2 * width * static_cast<double>(model.vocab_size);
    if (parameters > kMostParameters)
        report(gathered, path("num_layers"), "the model has more than 10^15 parameters, expected fewer");
}

void check_scenario(Gathered& gathered, const types::Scenario& scenario) {
    check_attention_split(gathered, scenario);
    check_width_split(gathered, scenario);
    check_expert_split(gathered, scenario);
    check_layers(gathered, scenario);
    check_batch(gathered, scenario);
    check_tokens(gathered, scenario);
    if (check_world(gathered, scenario)) check_expert_world(gathered, scenario);
}

}  // namespace stowage::reader
