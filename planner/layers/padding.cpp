#include "planner/layers/padding.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include "planner/layers/head.hpp"
#include "planner/layers/states_formats.hpp"

namespace stowage::layers {
namespace {

using types::Scenario;

constexpr std::int64_t kStartAlignment = 64;
constexpr std::int64_t kBucketAlignment = 128;

std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }

/// Copies of the embedding's table on several stages: of a tied output layer and of multi-token prediction.
bool is_shared(const Scenario& scenario, const Parameter& parameter) {
    if (scenario.parallel.pipeline_model_parallel_size == 1) return false;
    const bool tied = output_weight(scenario) == OutputWeight::copy;
    if (parameter.name == "embedding.word_embeddings.weight") return tied || scenario.model.mtp_num_layers > 0;
    return tied && parameter.name == "output_layer.weight";
}

struct LayoutRules {
    bool distributed = false;
    std::int64_t unit = 1;  ///< bucket ends are multiples of it
    std::optional<std::int64_t> bucket_size;
};

/// Where a parameter lies in its buffer.
struct Placed {
    const Parameter* parameter = nullptr;
    std::size_t number = 0;  ///< in model order
    std::int64_t begin = 0;
    std::size_t bucket = 0;
};

/// Lays parameters into buckets, last parameter first.
class BufferLayout {
public:
    explicit BufferLayout(const LayoutRules& rules) : rules_(rules) {}

    void add(const Parameter& parameter, std::size_t number, bool shared) {
        const bool own_bucket = rules_.distributed && shared;
        if (rules_.distributed) end_ = round_up(end_, kStartAlignment);
        if (own_bucket && end_ > bucket_begin_) close();
        placed_.push_back({&parameter, number, end_, buckets_.size()});
        end_ += parameter.elements();
        const bool full = rules_.bucket_size && end_ - bucket_begin_ >= *rules_.bucket_size;
        if (own_bucket || full) close();
    }
    void finish(ParameterBuffer& buffer) {
        if (end_ > bucket_begin_) close();
        buffer.padded = end_;
        buffer.buckets = buckets_;
        buffer.completes.resize(buckets_.size());
        buffer.shard = end_ / buffer.shards;
        std::int64_t bucket_begin = 0;
        std::size_t bucket = 0;
        for (const Placed& placed : placed_) {
            for (; bucket < placed.bucket; ++bucket) bucket_begin += buckets_[bucket];
            buffer.completes[bucket] = placed.number;  // the last one placed stays
            const std::int64_t owned_end = bucket_begin + buckets_[bucket] / buffer.shards;
            const std::int64_t part = std::min(placed.parameter->elements(), owned_end - placed.begin);
            if (part > 0) buffer.pieces.push_back({placed.parameter->name, part});
            const std::int64_t last_begin = bucket_begin + buckets_[bucket] / buffer.shards * (buffer.shards - 1);
            const std::int64_t end = placed.begin + placed.parameter->elements();
            if (end > last_begin)
                buffer.last_pieces.push_back({placed.parameter->name, end - std::max(placed.begin, last_begin)});
        }
    }

private:
    void close() {
        if (rules_.distributed) end_ = round_up(end_, rules_.unit);
        buckets_.push_back(end_ - bucket_begin_);
        bucket_begin_ = end_;
    }

    LayoutRules rules_;
    std::vector<Placed> placed_;
    std::vector<std::int64_t> buckets_;
    std::int64_t bucket_begin_ = 0;
    std::int64_t end_ = 0;
};

LayoutRules rules_of(const Scenario& scenario, std::int64_t pipeline_rank, std::size_t chunk, std::int64_t shards) {
    LayoutRules rules;
    rules.distributed = scenario.optimizer.use_distributed_optimizer;
    rules.unit = std::lcm(shards, kBucketAlignment);
    if (scenario.optimizer.overlap_grad_reduce && pipeline_rank == 0 && chunk == 0)
        rules.bucket_size = std::max(std::int64_t{40'000'000}, 1'000'000 * scenario.parallel.data_parallel_size);
    return rules;
}

/// Megatron's buffer keys: kind and type of the parameter.
struct BufferKey {
    ParameterKind kind{};
    bool fp8 = false;
};

bool belongs(const Parameter& parameter, const BufferKey& key, bool fp8_parameters) {
    return parameter.kind == key.kind && (fp8_parameters && is_engine_linear(parameter)) == key.fp8;
}

ParameterBuffer buffer_of(const Scenario& scenario, std::int64_t pipeline_rank, std::size_t chunk,
                          const std::vector<Parameter>& parameters, const BufferKey& key) {
    ParameterBuffer buffer;
    buffer.kind = key.kind;
    buffer.chunk = chunk;
    buffer.fp8 = key.fp8;
    const types::ParallelLayout& layout = scenario.parallel;
    buffer.replicas = key.kind == ParameterKind::dense ? layout.dense_replicas() : layout.expert_replicas();
    if (scenario.optimizer.use_distributed_optimizer)
        buffer.shards = buffer.replicas / scenario.optimizer.num_distributed_optimizer_instances;
    BufferLayout laid_out(rules_of(scenario, pipeline_rank, chunk, buffer.shards));
    for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
        if (!belongs(*it, key, holds_fp8_parameters(scenario))) continue;
        laid_out.add(*it, static_cast<std::size_t>(parameters.rend() - it) - 1, is_shared(scenario, *it));
        buffer.elements += it->elements();
    }
    laid_out.finish(buffer);
    return buffer;
}

}  // namespace

bool is_engine_linear(const Parameter& parameter) {
    const std::string& name = parameter.name;
    return parameter.shape.size() == 2 && name.find("embeddings") == std::string::npos &&
           name.find("router.weight") == std::string::npos && name.find("gate_weight") == std::string::npos &&
           name != "output_layer.weight";
}

std::string ParameterBuffer::name(bool several_chunks) const {
    std::string text = fp8 ? "FP8 " : "";
    text += kind == ParameterKind::dense ? "dense" : "expert";
    return several_chunks ? text + " (stage " + std::to_string(chunk) + ")" : text;
}

std::vector<ParameterBuffer> parameter_buffers(const Scenario& scenario, std::int64_t pipeline_rank,
                                               const std::vector<std::vector<Parameter>>& chunks) {
    std::vector<ParameterBuffer> buffers;
    for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk)
        for (const BufferKey key : {BufferKey{ParameterKind::dense, false}, BufferKey{ParameterKind::dense, true},
                                    BufferKey{ParameterKind::expert, false}, BufferKey{ParameterKind::expert, true}}) {
            ParameterBuffer buffer = buffer_of(scenario, pipeline_rank, chunk, chunks[chunk], key);
            if (buffer.elements > 0) buffers.push_back(std::move(buffer));
        }
    return buffers;
}

}  // namespace stowage::layers
