#include "planner/layers/hybrid_dimensions.hpp"

#include <algorithm>

namespace stowage::layers {
namespace {

std::int64_t chunks_of(std::int64_t sequence, std::int64_t chunk) { return (sequence + chunk - 1) / chunk; }

}  // namespace

MambaDimensions mamba_dimensions(const Dimensions& dimensions, const types::Model& model) {
    MambaDimensions d;
    d.state = model.mamba_state_dim;
    d.head_size = model.mamba_head_dim;
    d.heads = model.mamba_num_heads / dimensions.tensor;
    d.groups = model.mamba_num_groups / dimensions.tensor;
    d.inner = d.heads * d.head_size;
    d.convolved = d.inner + 2 * d.groups * d.state;
    d.in_width = d.inner + d.convolved + d.heads;

    const std::int64_t ranks = dimensions.context;
    d.repeats = std::max<std::int64_t>(ranks / d.groups, 1);
    d.scan_sequence = dimensions.full_sequence;
    d.scan_tokens = dimensions.micro_batch * d.scan_sequence;
    d.scan_heads = d.heads / ranks;
    d.scan_groups = d.groups * d.repeats / ranks;
    d.scan_inner = d.inner / ranks;
    d.scan_convolved = d.scan_inner + 2 * d.scan_groups * d.state;
    d.scan_in_width = d.scan_inner + d.scan_convolved + d.scan_heads;
    d.chunks = chunks_of(d.scan_sequence, MambaDimensions::kChunk);
    return d;
}

DeltaDimensions delta_dimensions(const Dimensions& dimensions, const types::Model& model) {
    DeltaDimensions d;
    d.taps = model.linear_conv_kernel_dim;
    d.key_size = model.linear_key_head_dim;
    d.value_size = model.linear_value_head_dim;
    d.key_heads = model.linear_num_key_heads / dimensions.tensor;
    d.value_heads = model.linear_num_value_heads / dimensions.tensor;
    d.key_width = d.key_heads * d.key_size;
    d.value_width = d.value_heads * d.value_size;
    d.convolved = 2 * d.key_width + d.value_width;
    d.in_width = d.convolved + d.value_width + 2 * d.value_heads;

    const std::int64_t ranks = dimensions.context;
    d.scan_sequence = dimensions.full_sequence;
    d.scan_tokens = dimensions.micro_batch * d.scan_sequence;
    d.scan_key_heads = d.key_heads / ranks;
    d.scan_value_heads = d.value_heads / ranks;
    d.scan_value_width = d.value_width / ranks;
    d.scan_in_width = d.in_width / ranks;
    d.scan_convolved = d.convolved / ranks;
    d.chunks = chunks_of(d.scan_sequence, DeltaDimensions::kChunk);
    return d;
}

}  // namespace stowage::layers
