#include "planner/layers/stowage/latent_attention_half.hpp"

#include <cmath>

#include "planner/layers/stowage/attention_workspace.hpp"

namespace stowage::layers {
namespace {

using types::RecomputeModule;

/// 2 P a of the causal half: a product with size n takes n times that.
double pair_flops(const AttentionWork& work) { return 2 * work.rows * work.keys; }

/// Of a deterministic backward: one kernel leaves the gradient of the scores in bf16, another one reads it for the
/// gradient of the queries. The masked half is left out.
Bytes score_gradient_traffic(const AttentionWork& work) {
    return Bytes{static_cast<std::int64_t>(2 * 2 * work.rows * work.keys)};
}

}  // namespace

LatentAttentionHalf::LatentAttentionHalf(StowageWriter& writer)
    : writer_(writer),
      attention_again_(writer.recomputes(RecomputeModule::core_attn)),
      norm_(writer.norm("attn_norm")),
      norm_saves_(writer, norm_, writer.recomputes(RecomputeModule::layernorm)),
      projections_(writer),
      projection_(writer.linear("attn_proj", writer.dim.hidden, writer.dim.output_width, false)),
      output_(writer.script.tensor("core_attn.output", writer.dim.full_shape(writer.dim.output_width))),
      statistics_(writer.script.tensor(
          "core_attn.statistics", {writer.dim.micro_batch, writer.dim.heads, writer.dim.sequence}, DataType::fp32)) {}

CallSizes LatentAttentionHalf::attention_sizes() const {
    const Dimensions& dim = writer_.dim;
    CallSizes sizes = writer_.rows_and_columns(0);
    sizes.heads = sizes.groups = dim.heads;
    sizes.head_size = dim.head_size;
    sizes.value_size = dim.value_head_size;
    sizes.value = 1 / std::sqrt(static_cast<double>(dim.head_size));
    return sizes;
}

/// Causal: a row sees half of the keys on average.
AttentionWork LatentAttentionHalf::attention_work() const {
    const Dimensions& dim = writer_.dim;
    return {.rows = static_cast<double>(dim.tokens * dim.heads),
            .keys = static_cast<double>(dim.sequence) / 2,
            .longest = static_cast<double>(dim.sequence),
            .head_size = static_cast<double>(dim.head_size + dim.value_head_size) / 2};
}

/// Of a forward: query, key, value, output and statistics.
std::int64_t LatentAttentionHalf::attention_traffic() const {
    const Dimensions& dim = writer_.dim;
    return 2 * dim.tokens * (dim.qkv_width + dim.output_width) + 4 * dim.tokens * dim.heads;
}

CallOperand LatentAttentionHalf::packed_operand() const {
    return saved_packed_ ? writer_.script.operand(*saved_packed_) : reads(projections_.packed());
}
CallOperand LatentAttentionHalf::statistics_operand() const {
    return saved_statistics_ ? writer_.script.operand(*saved_statistics_) : reads(statistics_);
}
CallOperand LatentAttentionHalf::output_operand() const {
    return saved_output_ ? writer_.script.operand(*saved_output_) : reads(output_);
}

// ------------------------------------------------------------------------------------------------------------- forward

void LatentAttentionHalf::project_to_packed() {
    ScriptBuilder& script = writer_.script;
    script.part(Part::attn_norm);
    script.start(Module::attn_norm);
    norm_saves_.forward(kInput, Module::attn_norm);
    script.commit(Module::attn_norm);
    script.part(Part::qkv_linear);
    if (has_linear_group()) script.start(Module::qkv_linear);
    projections_.down(norm_.output);
    norm_saves_.save_output(Module::qkv_linear);
    if (!projections_.again()) projections_.up(Module::qkv_linear);
    script.part(Part::qkv_linear);
    if (has_linear_group()) script.commit(Module::qkv_linear);
    script.drop(norm_.output);
}

/// cuDNN's forward needs little scratch memory: it takes that of the GEMMs.
void LatentAttentionHalf::run_attention(CallOperand packed) {
    ScriptBuilder& script = writer_.script;
    script.part(Part::core_attn);
    script.allocate(output_);
    script.allocate(statistics_);
    CallSizes sizes = attention_sizes();
    sizes.workspace_bytes = kGemmWorkspaceBytes;
    const AttentionWork work = attention_work();
    const auto products = static_cast<double>(writer_.dim.head_size + writer_.dim.value_head_size);
    writer_.attention_kernel("core_attn.forward", pair_flops(work) * products, attention_traffic(), work,
                             {Call::attention_forward,
                              sizes,
                              {packed, writes(output_), writes(statistics_), writes(StowageState::workspace)}});
}

void LatentAttentionHalf::attend() {
    ScriptBuilder& script = writer_.script;
    script.part(Part::core_attn);
    script.start(Module::core_attn);
    if (projections_.again()) projections_.up(Module::core_attn);
    run_attention(reads(projections_.packed()));
    if (!projections_.again()) saved_packed_ = script.save(projections_.packed(), Module::core_attn);
    if (!attention_again_) saved_statistics_ = script.save(statistics_, Module::core_attn);
    script.commit(Module::core_attn);
    script.drop(projections_.packed());
    script.drop(statistics_);
}

void LatentAttentionHalf::project(Slot output) {
    ScriptBuilder& script = writer_.script;
    script.part(Part::attn_proj);
    if (!attention_again_) script.start(Module::attn_proj);
    writer_.run_linear(projection_, reads(output_), output, reads(kInput));
    if (!attention_again_) {
        saved_output_ = script.save(output_, Module::attn_proj);
        script.commit(Module::attn_proj);
    }
    script.drop(output_);
}

void LatentAttentionHalf::forward(Slot output) {
    project_to_packed();
    attend();
    project(output);
    writer_.script.drop(kInput);
}

// ------------------------------------------------------------------------------------------------------------ backward

/// Makes what attention's backward reads and what was not saved.
void LatentAttentionHalf::begin_core_backward() {
    ScriptBuilder& script = writer_.script;
    script.part(Part::core_attn);
    script.commit(Module::core_attn);
    if (saved_packed_) script.read(*saved_packed_);
    if (projections_.again()) projections_.up_again();
    script.part(Part::core_attn);
    if (saved_statistics_) script.read(*saved_statistics_);
    if (!attention_again_) return;
    script.phase(Phase::recompute);
    run_attention(packed_operand());
    script.phase(Phase::backward);
}

/// Returns the gradient of attention's output; that output stays.
Slot LatentAttentionHalf::projection_backward(Slot gradient) {
    ScriptBuilder& script = writer_.script;
    if (attention_again_) begin_core_backward();
    script.part(Part::attn_proj);
    if (!attention_again_) script.commit(Module::attn_proj);
    const Slot output_gradient = writer_.input_gradient(projection_, reads(gradient));
    if (saved_output_) script.read(*saved_output_);
    writer_.weight_gradient(projection_, reads(gradient), output_operand());
    if (!attention_again_) script.start(Module::attn_proj);
    return output_gradient;
}

/// Drops `output_gradient`; returns the packed tensor's gradient.
Slot LatentAttentionHalf::attention_backward(Slot output_gradient) {
    ScriptBuilder& script = writer_.script;
    const Dimensions& dim = writer_.dim;
    if (!attention_again_) begin_core_backward();
    const Slot packed_gradient = writer_.make("qkv.gradient", dim.full_shape(dim.qkv_width));
    CallSizes sizes = attention_sizes();
    sizes.workspace_bytes = attention_backward_workspace(dim);
    sizes.parts = attention_backward_parts(dim);
    const Slot workspace = writer_.make("core_attn.workspace", {sizes.workspace_bytes}, DataType::uint8);
    AttentionWork work = attention_work();
    work.between = score_gradient_traffic(work);
    const std::int64_t traffic = attention_traffic() + 2 * dim.tokens * (dim.qkv_width + dim.output_width);
    // Scores again and the gradients of query and key; the gradients of scores and value.
    const auto products = static_cast<double>(3 * dim.head_size + 2 * dim.value_head_size);
    writer_.attention_kernel("core_attn.backward", pair_flops(work) * products, traffic, work,
                             {Call::attention_backward,
                              sizes,
                              {packed_operand(), output_operand(), statistics_operand(), reads(output_gradient),
                               writes(packed_gradient), writes(workspace)}});
    script.drop(workspace);
    if (saved_packed_)
        script.forget(*saved_packed_);
    else
        script.drop(projections_.packed());
    if (attention_again_) {
        script.drop(output_);
        script.drop(statistics_);
    } else {
        script.forget(*saved_statistics_);
        script.forget(*saved_output_);
    }
    script.drop(output_gradient);
    return packed_gradient;
}

/// Drops `packed_gradient`; returns the gradient of the norm's output.
Slot LatentAttentionHalf::packed_backward(Slot packed_gradient) {
    ScriptBuilder& script = writer_.script;
    if (projections_.again()) projections_.up_backward(packed_gradient);
    script.part(Part::core_attn);
    script.start(Module::core_attn);
    script.part(Part::qkv_linear);
    if (has_linear_group()) script.commit(Module::qkv_linear);
    if (!projections_.again()) projections_.up_backward(packed_gradient);
    const Slot normed_gradient = projections_.input_gradient();
    if (norm_saves_.again()) {
        if (has_linear_group()) script.start(Module::qkv_linear);
        script.part(Part::attn_norm);
        script.commit(Module::attn_norm);
        norm_saves_.remake();
        script.part(Part::qkv_linear);
    }
    projections_.down_weight_gradients(norm_saves_.output());
    norm_saves_.forget_output();
    if (!norm_saves_.again()) script.start(Module::qkv_linear);
    return normed_gradient;
}

void LatentAttentionHalf::backward(Slot gradient) {
    ScriptBuilder& script = writer_.script;
    const Slot output_gradient = projection_backward(gradient);
    const Slot packed_gradient = attention_backward(output_gradient);
    const Slot normed_gradient = packed_backward(packed_gradient);
    script.part(Part::attn_norm);
    if (!norm_saves_.again()) script.commit(Module::attn_norm);
    norm_saves_.backward({normed_gradient, gradient, kGradInput});
    script.drop(normed_gradient);
    script.drop(gradient);
    script.start(Module::attn_norm);
}

}  // namespace stowage::layers
