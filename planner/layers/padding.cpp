#include "planner/layers/padding.hpp"

#include <numeric>

namespace stowage::layers {
namespace {

constexpr std::int64_t kStartAlignment = 64;
constexpr std::int64_t kBucketAlignment = 128;

std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }

bool is_shared(const Parameter& parameter) {
    return parameter.name == "embedding.word_embeddings.weight" || parameter.name == "output_layer.weight";
}

std::int64_t padded_length(const std::vector<Parameter>& parameters, ParameterKind kind, std::int64_t replicas,
                           bool shared_embedding) {
    const std::int64_t unit = std::lcm(replicas, kBucketAlignment);
    std::int64_t end = 0;
    for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
        if (it->kind != kind) continue;
        const bool own_bucket = shared_embedding && is_shared(*it);
        if (own_bucket) end = round_up(end, unit);
        end = round_up(end, kStartAlignment) + it->elements();
        if (own_bucket) end = round_up(end, unit);
    }
    return round_up(end, unit);
}

}  // namespace

std::vector<ParameterBuffer> parameter_buffers(const std::vector<Parameter>& parameters,
                                               const types::ParallelLayout& layout, bool distributed,
                                               bool shared_embedding) {
    std::vector<ParameterBuffer> buffers;
    for (ParameterKind kind : {ParameterKind::dense, ParameterKind::expert}) {
        ParameterBuffer buffer{.kind = kind};
        for (const Parameter& parameter : parameters)
            if (parameter.kind == kind) buffer.elements += parameter.elements();
        if (buffer.elements == 0) continue;
        buffer.replicas = kind == ParameterKind::dense ? layout.dense_replicas() : layout.expert_replicas();
        buffer.padded =
            distributed ? padded_length(parameters, kind, buffer.replicas, shared_embedding) : buffer.elements;
        buffer.shard = distributed ? buffer.padded / buffer.replicas : buffer.elements;
        buffers.push_back(buffer);
    }
    return buffers;
}

}  // namespace stowage::layers
