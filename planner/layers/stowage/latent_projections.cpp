#include "planner/layers/stowage/latent_projections.hpp"

namespace stowage::layers {
namespace {

using types::RecomputeModule;

std::int64_t key_value_width(const StowageWriter& writer) {
    return writer.dim.heads * (writer.model.qk_head_dim + writer.model.v_head_dim);
}

LinearWeights declare_query_down(StowageWriter& writer) {
    const bool compressed = writer.model.q_lora_rank > 0;
    return writer.linear(compressed ? "q_down" : "q_proj",
                         compressed ? writer.model.q_lora_rank : writer.dim.query_width, writer.dim.hidden, false);
}

}  // namespace

LatentProjections::Latent LatentProjections::declare_latent(StowageWriter& writer, const char* norm, const char* up,
                                                            std::int64_t width, std::int64_t stride,
                                                            std::int64_t columns) {
    const bool again = writer.recomputes(RecomputeModule::mla_up_proj);
    const StowageNorm made = writer.latent_norm(norm, width, stride);
    return {made, NormSaves(writer, made, again), writer.linear(up, columns, width, false)};
}

LatentProjections::LatentProjections(StowageWriter& writer)
    : writer_(writer),
      again_(writer.recomputes(RecomputeModule::mla_up_proj)),
      rope_(writer.model.qk_pos_emb_head_dim),
      query_down_(declare_query_down(writer)),
      query_(writer.model.q_lora_rank > 0
                 ? std::optional(declare_latent(writer, "q_latent_norm", "q_up", writer.model.q_lora_rank, 0,
                                                writer.dim.query_width))
                 : std::nullopt),
      key_value_down_(writer.linear("kv_down", writer.model.kv_lora_rank + rope_, writer.dim.hidden, false)),
      key_value_(declare_latent(writer, "kv_latent_norm", "kv_up", writer.model.kv_lora_rank,
                                writer.model.kv_lora_rank + rope_, key_value_width(writer))),
      key_value_latent_(
          writer.script.tensor("kv_down.output", writer.dim.full_shape(writer.model.kv_lora_rank + rope_))),
      all_queries_(writer.script.tensor(query_ ? "q_up.output" : "q_proj.output",
                                        writer.dim.full_shape(writer.dim.query_width))),
      keys_and_values_(writer.script.tensor("kv_up.output", writer.dim.full_shape(key_value_width(writer)))),
      packed_(writer.script.tensor("qkv", writer.dim.full_shape(writer.dim.qkv_width))) {
    if (query_) query_latent_ = writer.script.tensor("q_down.output", writer.dim.full_shape(writer.model.q_lora_rank));
}

// ------------------------------------------------------------------------------------------------------------- forward

void LatentProjections::down(Slot normed) {
    writer_.run_linear(query_down_, reads(normed), query_ ? query_latent_ : all_queries_);
    writer_.run_linear(key_value_down_, reads(normed), key_value_latent_);
}

void LatentProjections::latent_forward(Latent& latent, Slot input, Slot output, Module group) {
    latent.saves.forward(input, group);
    writer_.run_linear(latent.up, reads(latent.norm.output), output);
    latent.saves.save_output(group);
    writer_.script.drop(latent.norm.output);
}

CallSizes LatentProjections::pack_sizes() const {
    CallSizes sizes = writer_.rows_and_columns(0);
    sizes.heads = sizes.groups = writer_.dim.heads;
    sizes.head_size = writer_.dim.head_size;
    sizes.value_size = writer_.dim.value_head_size;
    sizes.rope_size = rope_;
    sizes.stride = key_value_down_.columns;
    return sizes;
}

/// Queries, keys and values as projected, the columns that all keys share, and the packed row.
std::int64_t LatentProjections::pack_traffic() const {
    const Dimensions& dim = writer_.dim;
    return 2 * dim.tokens * (dim.query_width + key_value_width(writer_) + rope_ + dim.qkv_width);
}

/// Drops what came from the projections up.
void LatentProjections::pack(CallOperand query, CallOperand down) {
    ScriptBuilder& script = writer_.script;
    script.part(Part::rotary);
    script.allocate(packed_);
    writer_.memory_kernel("latent_pack.forward", pack_traffic(),
                          {Call::latent_pack_forward,
                           pack_sizes(),
                           {query, reads(keys_and_values_), down, reads(StowageState::rotary_table), writes(packed_)}});
    script.drop(keys_and_values_);
}

void LatentProjections::up(Module group) {
    ScriptBuilder& script = writer_.script;
    script.part(Part::qkv_linear);
    if (query_) {
        latent_forward(*query_, query_latent_, all_queries_, group);
        script.drop(query_latent_);
    } else if (again_) {
        saved_query_ = script.save(all_queries_, group);
    }
    latent_forward(key_value_, key_value_latent_, keys_and_values_, group);
    pack(reads(all_queries_), reads(key_value_latent_));
    script.drop(all_queries_);
    script.drop(key_value_latent_);
}

// ------------------------------------------------------------------------------------------------------------ backward

void LatentProjections::latent_again(Latent& latent, Slot output) {
    latent.saves.remake();
    writer_.script.phase(Phase::recompute);
    writer_.run_linear(latent.up, latent.saves.output(), output);
}

void LatentProjections::up_again() {
    ScriptBuilder& script = writer_.script;
    script.part(Part::qkv_linear);
    if (query_)
        latent_again(*query_, all_queries_);
    else
        script.read(*saved_query_);
    latent_again(key_value_, keys_and_values_);
    script.phase(Phase::recompute);
    pack(query_ ? reads(all_queries_) : script.operand(*saved_query_), key_value_.saves.input());
    script.phase(Phase::backward);
    if (query_)
        script.drop(all_queries_);
    else
        script.forget(*saved_query_);
}

/// Drops `gradient`, of the projection's output.
void LatentProjections::latent_backward(Latent& latent, Slot gradient, Slot input_gradient) {
    ScriptBuilder& script = writer_.script;
    const Slot normed_gradient = writer_.input_gradient(latent.up, reads(gradient));
    writer_.weight_gradient(latent.up, reads(gradient), latent.saves.output());
    latent.saves.forget_output();
    script.drop(gradient);
    latent.saves.backward({normed_gradient, std::nullopt, input_gradient});
    script.drop(normed_gradient);
}

void LatentProjections::up_backward(Slot packed_gradient) {
    ScriptBuilder& script = writer_.script;
    const Dimensions& dim = writer_.dim;
    script.part(Part::rotary);
    const Slot queries = writer_.make("q_up.output_gradient", dim.full_shape(dim.query_width));
    const Slot keys_and_values = writer_.make("kv_up.output_gradient", dim.full_shape(key_value_width(writer_)));
    key_value_gradient_ = writer_.make("kv_down.output_gradient", dim.full_shape(key_value_down_.columns));
    writer_.memory_kernel("latent_pack.backward", pack_traffic(),
                          {Call::latent_pack_backward,
                           pack_sizes(),
                           {reads(packed_gradient), reads(StowageState::rotary_table), writes(queries),
                            writes(keys_and_values), writes(key_value_gradient_)}});
    script.drop(packed_gradient);
    script.part(Part::qkv_linear);
    latent_backward(key_value_, keys_and_values, key_value_gradient_);
    query_gradient_ = queries;
    if (!query_) return;
    query_gradient_ = script.tensor("q_down.output_gradient", dim.full_shape(writer_.model.q_lora_rank));
    latent_backward(*query_, queries, query_gradient_);
}

Slot LatentProjections::input_gradient() {
    const Slot sum = writer_.input_gradient(query_down_, reads(query_gradient_));
    const Slot other = writer_.input_gradient(key_value_down_, reads(key_value_gradient_));
    writer_.memory_kernel("attn_norm.join_gradients", 3 * 2 * writer_.dim.hidden_elements(),
                          {Call::add, writer_.rows_and_columns(writer_.dim.hidden), {updates(sum), reads(other)}});
    writer_.script.drop(other);
    return sum;
}

void LatentProjections::down_weight_gradients(CallOperand normed) {
    writer_.weight_gradient(query_down_, reads(query_gradient_), normed);
    writer_.weight_gradient(key_value_down_, reads(key_value_gradient_), normed);
    writer_.script.drop(query_gradient_);
    writer_.script.drop(key_value_gradient_);
}

}  // namespace stowage::layers
