#include "planner/layers/stowage/attention_half.hpp"

#include <cmath>
#include <utility>

#include "planner/layers/stowage/attention_workspace.hpp"
#include "planner/layers/stowage/tensor_shards.hpp"

namespace stowage::layers {
namespace {

using types::RecomputeModule;

bool rotary(const StowageWriter& writer) {
    return writer.model.position_embedding_type == types::PositionEmbedding::rope;
}

/// 2 P a of the causal half: a product with size n takes n times that.
double pair_flops(const AttentionWork& work) { return 2 * work.rows * work.keys; }

/// Of a deterministic backward: one kernel leaves the gradient of the scores in bf16, another one reads it for the
/// gradient of the queries. The masked half is left out.
Bytes score_gradient_traffic(const AttentionWork& work) {
    return Bytes{static_cast<std::int64_t>(2 * 2 * work.rows * work.keys)};
}

std::optional<HeadNorms> declare_head_norms(StowageWriter& writer) {
    if (!writer.model.qk_layernorm) return std::nullopt;
    return HeadNorms{writer.parameter("q_norm.weight", {writer.dim.head_size}),
                     writer.parameter("k_norm.weight", {writer.dim.head_size})};
}

}  // namespace

AttentionHalf::AttentionHalf(StowageWriter& writer)
    : writer_(writer),
      attention_again_(writer.recomputes(RecomputeModule::core_attn)),
      norm_(writer.norm("attn_norm")),
      norm_saves_(writer, norm_, writer.recomputes(RecomputeModule::layernorm)),
      qkv_(writer,
           writer.linear("qkv_linear", writer.dim.qkv_width, writer.dim.hidden,
                         writer.model.add_bias_linear || writer.model.add_qkv_bias),
           norm_saves_.again()),
      projection_(writer,
                  writer.linear("attn_proj", writer.dim.hidden, writer.dim.output_width, writer.model.add_bias_linear),
                  true),
      head_norms_(declare_head_norms(writer)),
      packed_(writer.script.tensor("qkv", writer.dim.full_shape(writer.dim.qkv_width))),
      turned_(writer.script.tensor("qkv.turned", writer.dim.full_shape(writer.dim.qkv_width))),
      output_(writer.script.tensor("core_attn.output", writer.dim.full_shape(writer.dim.output_width))),
      statistics_(writer.script.tensor(
          "core_attn.statistics", {writer.dim.micro_batch, writer.dim.heads, writer.dim.sequence}, DataType::fp32)) {}

CallSizes AttentionHalf::attention_sizes() const {
    const Dimensions& dim = writer_.dim;
    CallSizes sizes = writer_.rows_and_columns(0);
    sizes.heads = dim.heads;
    sizes.groups = dim.groups;
    sizes.head_size = dim.head_size;
    return sizes;
}

/// Causal: a row sees half of the keys on average.
AttentionWork AttentionHalf::attention_work() const {
    const Dimensions& dim = writer_.dim;
    return {.rows = static_cast<double>(dim.tokens * dim.heads),
            .keys = static_cast<double>(dim.sequence) / 2,
            .longest = static_cast<double>(dim.sequence),
            .head_size = static_cast<double>(dim.head_size)};
}

/// Of a forward: query, key, value, output and statistics.
std::int64_t AttentionHalf::attention_traffic() const {
    const Dimensions& dim = writer_.dim;
    return 2 * dim.tokens * (dim.qkv_width + dim.output_width) + 4 * dim.tokens * dim.heads;
}

// ------------------------------------------------------------------------------------------------------------- forward

void AttentionHalf::project_to_packed() {
    ScriptBuilder& script = writer_.script;
    script.part(Part::attn_norm);
    script.start(Module::attn_norm);
    norm_saves_.forward(kInput, Module::attn_norm);
    script.commit(Module::attn_norm);
    script.part(Part::qkv_linear);
    if (!norm_saves_.again()) script.start(Module::qkv_linear);
    qkv_.columns_forward(reads(norm_.output), packed_, Module::qkv_linear);
    if (!qkv_.keeps_copy()) norm_saves_.save_output(Module::qkv_linear);
    if (!norm_saves_.again()) script.commit(Module::qkv_linear);
    script.drop(norm_.output);
}

void AttentionHalf::rotate(Call call, const char* name, Slot packed) {
    if (!rotary(writer_)) return;
    writer_.script.part(Part::rotary);
    const Dimensions& dim = writer_.dim;
    writer_.memory_kernel(name, 4 * dim.tokens * (dim.query_width + dim.key_width),
                          {call, attention_sizes(), {updates(packed), reads(StowageState::rotary_table)}});
}

CallSizes AttentionHalf::head_norm_sizes() const {
    CallSizes sizes = attention_sizes();
    sizes.value = kNormEpsilon;
    sizes.rotary = rotary(writer_);
    return sizes;
}

void AttentionHalf::norm_heads(CallOperand packed) {
    writer_.script.part(Part::rotary);
    writer_.script.allocate(turned_);
    KernelCall call{
        Call::head_norm_forward, head_norm_sizes(), {packed, reads(head_norms_->query), reads(head_norms_->key)}};
    if (call.sizes.rotary) call.operands.push_back(reads(StowageState::rotary_table));
    call.operands.push_back(writes(turned_));
    writer_.memory_kernel("qk_norm.forward", 4 * writer_.dim.tokens * writer_.dim.qkv_width, std::move(call));
}

void AttentionHalf::norm_heads_backward(Slot packed_gradient) {
    const Dimensions& dim = writer_.dim;
    writer_.script.part(Part::rotary);
    const Shape sums{2, norm_partials(dim.tokens), dim.head_size};
    const Slot workspace = writer_.make("qk_norm.partial_sums", sums, DataType::fp32);
    KernelCall call{Call::head_norm_backward,
                    head_norm_sizes(),
                    {writer_.script.operand(saved_packed_), reads(head_norms_->query), reads(head_norms_->key)}};
    call.sizes.workspace_bytes = 4 * sums[0] * sums[1] * sums[2];
    if (call.sizes.rotary) call.operands.push_back(reads(StowageState::rotary_table));
    call.operands.push_back(updates(packed_gradient));
    call.operands.push_back(adds_to(head_norms_->query));
    call.operands.push_back(adds_to(head_norms_->key));
    call.operands.push_back(writes(workspace));
    const std::int64_t traffic = 6 * dim.tokens * (dim.query_width + dim.key_width) + 2 * call.sizes.workspace_bytes;
    writer_.memory_kernel("qk_norm.backward", traffic, std::move(call));
    writer_.script.drop(workspace);
}

/// cuDNN's forward needs little scratch memory: it takes that of the GEMMs.
void AttentionHalf::run_attention(CallOperand packed) {
    ScriptBuilder& script = writer_.script;
    script.allocate(output_);
    script.allocate(statistics_);
    CallSizes sizes = attention_sizes();
    sizes.value = 1 / std::sqrt(static_cast<double>(writer_.dim.head_size));
    sizes.workspace_bytes = kGemmWorkspaceBytes;
    const AttentionWork work = attention_work();
    writer_.attention_kernel("core_attn.forward", pair_flops(work) * 2 * work.head_size, attention_traffic(), work,
                             {Call::attention_forward,
                              sizes,
                              {packed, writes(output_), writes(statistics_), writes(StowageState::workspace)}});
}

void AttentionHalf::attend() {
    ScriptBuilder& script = writer_.script;
    if (head_norms_) norm_heads(reads(packed_));
    script.part(Part::core_attn);
    script.start(Module::core_attn);
    run_attention(reads(head_norms_ ? turned_ : packed_));
    if (head_norms_) script.drop(turned_);
    saved_packed_ = script.save(packed_, Module::core_attn);
    if (!attention_again_) saved_statistics_ = script.save(statistics_, Module::core_attn);
    script.commit(Module::core_attn);
    script.drop(packed_);
    script.drop(statistics_);
}

void AttentionHalf::project(Slot output) {
    ScriptBuilder& script = writer_.script;
    script.part(Part::attn_proj);
    if (!attention_again_) script.start(Module::attn_proj);
    projection_.depth_forward(reads(output_), output, reads(kInput));
    if (!attention_again_) {
        saved_output_ = script.save(output_, Module::attn_proj);
        script.commit(Module::attn_proj);
    }
    script.drop(output_);
}

void AttentionHalf::forward(Slot output) {
    project_to_packed();
    if (!head_norms_) rotate(Call::rotary_forward, "rotary.forward", packed_);
    attend();
    project(output);
    writer_.script.drop(kInput);
}

// ------------------------------------------------------------------------------------------------------------ backward

void AttentionHalf::attend_again() {
    ScriptBuilder& script = writer_.script;
    script.part(Part::core_attn);
    script.commit(Module::core_attn);
    script.read(saved_packed_);
    script.phase(Phase::recompute);
    if (head_norms_) norm_heads(script.operand(saved_packed_));
    script.part(Part::core_attn);
    run_attention(head_norms_ ? reads(turned_) : script.operand(saved_packed_));
    script.phase(Phase::backward);
}

/// Returns the gradient of attention's output; that output stays.
Slot AttentionHalf::projection_backward(Slot gradient) {
    ScriptBuilder& script = writer_.script;
    if (attention_again_) attend_again();
    script.part(Part::attn_proj);
    if (!attention_again_) script.commit(Module::attn_proj);
    const WholeRows whole = whole_rows(writer_, "attn_proj.gradient", reads(gradient));
    const Slot output_gradient = projection_.input_gradient(whole.rows);
    if (saved_output_) script.read(*saved_output_);
    projection_.weight_gradient(whole.rows, saved_output_ ? script.operand(*saved_output_) : reads(output_));
    drop_whole_rows(writer_, whole);
    if (!attention_again_) script.start(Module::attn_proj);
    return output_gradient;
}

/// Drops `output_gradient`; returns the packed tensor's gradient.
Slot AttentionHalf::attention_backward(Slot output_gradient) {
    ScriptBuilder& script = writer_.script;
    script.part(Part::core_attn);
    if (!attention_again_) {
        script.commit(Module::core_attn);
        script.read(saved_packed_);
        script.read(*saved_statistics_);
        script.phase(Phase::recompute);
        if (head_norms_) norm_heads(script.operand(saved_packed_));
        script.phase(Phase::backward);
        script.part(Part::core_attn);
    }
    const Slot packed_gradient = writer_.make("qkv.gradient", writer_.dim.full_shape(writer_.dim.qkv_width));
    CallSizes sizes = attention_sizes();
    sizes.value = 1 / std::sqrt(static_cast<double>(writer_.dim.head_size));
    sizes.workspace_bytes = attention_backward_workspace(writer_.dim);
    sizes.parts = attention_backward_parts(writer_.dim);
    const Slot workspace = writer_.make("core_attn.workspace", {sizes.workspace_bytes}, DataType::uint8);
    AttentionWork work = attention_work();
    work.between = score_gradient_traffic(work);
    const std::int64_t traffic =
        attention_traffic() + 2 * writer_.dim.tokens * (writer_.dim.qkv_width + writer_.dim.output_width);
    writer_.attention_kernel("core_attn.backward", pair_flops(work) * 5 * work.head_size, traffic, work,
                             {Call::attention_backward,
                              sizes,
                              {head_norms_ ? reads(turned_) : script.operand(saved_packed_),
                               saved_output_ ? script.operand(*saved_output_) : reads(output_),
                               saved_statistics_ ? script.operand(*saved_statistics_) : reads(statistics_),
                               reads(output_gradient), writes(packed_gradient), writes(workspace)}});
    script.drop(workspace);
    if (head_norms_) {
        script.drop(turned_);
        norm_heads_backward(packed_gradient);
        script.part(Part::core_attn);
    }
    script.forget(saved_packed_);
    if (attention_again_) {
        script.drop(output_);
        script.drop(statistics_);
    } else {
        script.forget(*saved_statistics_);
        script.forget(*saved_output_);
    }
    script.drop(output_gradient);
    script.start(Module::core_attn);
    return packed_gradient;
}

void AttentionHalf::norm_again() {
    writer_.script.part(Part::attn_norm);
    writer_.script.commit(Module::attn_norm);
    norm_saves_.remake();
}

/// Drops `packed_gradient`; returns the gradient of the norm's output.
Slot AttentionHalf::packed_backward(Slot packed_gradient) {
    ScriptBuilder& script = writer_.script;
    if (!head_norms_) rotate(Call::rotary_backward, "rotary.backward", packed_gradient);
    script.part(Part::qkv_linear);
    if (!norm_saves_.again()) script.commit(Module::qkv_linear);
    const Slot normed_gradient = qkv_.columns_backward(reads(packed_gradient), [this] {
        if (norm_saves_.again()) norm_again();
        writer_.script.part(Part::qkv_linear);
        return norm_saves_.output();
    });
    if (!qkv_.keeps_copy()) norm_saves_.forget_output();
    script.drop(packed_gradient);
    if (!norm_saves_.again()) script.start(Module::qkv_linear);
    return normed_gradient;
}

void AttentionHalf::backward(Slot gradient) {
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
