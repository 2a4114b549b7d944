#include "planner/layers/mla.hpp"

#include "planner/layers/attention.hpp"

namespace stowage::layers {
namespace {

bool compresses_query(const Writer& writer) { return writer.model.q_lora_rank > 0; }

bool fused_rotary(const Writer& writer) { return writer.model.rope_type == types::RopeType::yarn; }

bool rebuilds_up(const Writer& writer) { return writer.recomputes(types::RecomputeModule::mla_up_proj); }

/// Width of the rotary part of a head.
std::int64_t rotary_width(const Writer& writer) { return writer.model.qk_pos_emb_head_dim; }

std::int64_t key_value_width(const Writer& writer) {
    return writer.dim.heads * (writer.model.qk_head_dim + writer.model.v_head_dim);
}

Shape local_shape(const Dimensions& dim, std::int64_t width) {
    return {dim.local_tokens / dim.micro_batch, dim.micro_batch, width};
}

LinearSite down_site(const std::string& name, std::int64_t width) {
    LinearSite site;
    site.name = name;
    site.part = Part::qkv_linear;
    site.width = width;
    site.group = Module::qkv_linear;
    site.split = Split::none;
    return site;
}

LinearSite query_down_site(const Writer& writer) { return down_site("q_down", writer.model.q_lora_rank); }

LinearSite key_value_down_site(const Writer& writer) {
    return down_site("kv_down", writer.model.kv_lora_rank + rotary_width(writer));
}

LinearSite up_site(const std::string& name, const std::string& norm, std::int64_t latent, std::int64_t width) {
    LinearSite site;
    site.name = name;
    site.norm_name = norm;
    site.part = Part::qkv_linear;
    site.norm_part = Part::qkv_linear;
    site.width = width;
    site.group = Module::qkv_linear;
    site.other_width = latent;
    return site;
}

LinearSite query_up_site(const Writer& writer) {
    return up_site("q_up", "q_latent_norm", writer.model.q_lora_rank, writer.dim.query_width);
}

/// Straight from the normed input, where the query has no latent.
LinearSite query_site(const Writer& writer) { return up_site("q_proj", {}, writer.dim.hidden, writer.dim.query_width); }

LinearSite key_value_up_site(const Writer& writer) {
    return up_site("kv_up", "kv_latent_norm", writer.model.kv_lora_rank, key_value_width(writer));
}

using AnyLinear = std::variant<std::monostate, Linear, NormLinear>;

Slot output_of(const AnyLinear& linear) {
    if (const auto* normed = std::get_if<NormLinear>(&linear)) return normed->output;
    return std::get<Linear>(linear).output;
}

AnyLinear up_forward(Writer& writer, const LinearSite& site, Slot latent) {
    if (writer.model.qk_layernorm) return norm_linear_forward(writer, site, latent);
    return linear_forward(writer, site, latent);
}

/// Drops `gradient`; returns the latent's.
Slot up_backward(Writer& writer, const LinearSite& site, const AnyLinear& linear, Slot gradient) {
    const auto* normed = std::get_if<NormLinear>(&linear);
    if (normed == nullptr) return linear_backward(writer, site, std::get<Linear>(linear), gradient);
    const Slot result = writer.script.tensor(site.name + ".input_gradient", local_shape(writer.dim, site.other_width));
    norm_linear_backward(writer, site, *normed, gradient, result);
    return result;
}

void up_parameters(Writer& writer, const LinearSite& site) {
    if (writer.model.qk_layernorm)
        norm_linear_parameters(writer, site);
    else
        linear_parameters(writer, site);
}

// --------------------------------------------------------------------------------------------------- rotary embedding

/// Tables of one use of the unfused embedding, saved for its backward.
void save_angles(Writer& writer, const std::string& name, std::vector<SavedIndex>& angles) {
    for (const char* table : {".cos", ".sin"}) {
        const Slot slot = writer.make(name + table, {writer.dim.sequence, 1, 1, rotary_width(writer)});
        angles.push_back(writer.script.save(slot, Module::qkv_linear));
        writer.script.drop(slot);
    }
}

/// A new tensor with its rotary channels turned, next to the channels that are not.
Slot concatenate(Writer& writer, const std::string& name, std::int64_t rotated_heads, UpProjection& up) {
    const Dimensions& dim = writer.dim;
    const Slot turned = writer.make(name + ".rotary", head_shape(dim, rotated_heads, rotary_width(writer)));
    writer.memory_kernel(name + ".rotary", 4 * dim.tokens * rotated_heads * rotary_width(writer));
    save_angles(writer, name, up.angles);
    const Slot whole = writer.make(name + ".rotated", head_shape(dim, dim.heads, dim.head_size));
    writer.memory_kernel(name + ".concatenate", 4 * dim.tokens * dim.query_width);
    writer.script.drop(turned);
    return whole;
}

Heads rotate(Writer& writer, UpProjection& up) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const Slot query = output_of(up.query);
    const Slot key_value = output_of(up.key_value);
    Heads heads;
    script.part(Part::rotary);
    if (fused_rotary(writer)) {
        heads.query = query;
        writer.memory_kernel("query.rotary", 4 * dim.tokens * dim.heads * rotary_width(writer));
        heads.key = writer.make("key.rotated", head_shape(dim, dim.heads, dim.head_size));
        heads.value = writer.make("value.contiguous", head_shape(dim, dim.heads, dim.value_head_size));
        writer.memory_kernel("key.rotary",
                             2 * dim.tokens * (key_value_width(writer) + dim.key_width + dim.value_width));
    } else {
        heads.query = concatenate(writer, "query", dim.heads, up);
        script.drop(query);
        heads.key = concatenate(writer, "key", 1, up);
        heads.value = copy_heads(writer, "value.contiguous", dim.heads, dim.value_head_size);
    }
    script.drop(key_value);
    return heads;
}

struct LatentGradients {
    Slot query{};      ///< of q_up's output
    Slot key_value{};  ///< of kv_up's output
    Slot rotary_key{};
};

/// Drops the gradients that it takes, or hands them on where the kernel works in place.
LatentGradients rotate_back(Writer& writer, const UpProjection& up, const HeadGradients& gradients) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::rotary);
    LatentGradients result;
    for (SavedIndex index : up.angles) script.read(index);
    result.key_value = writer.make("kv_up.output_gradient", dim.full_shape(key_value_width(writer)));
    result.rotary_key = writer.make("rotary_key.gradient", dim.full_shape(rotary_width(writer)));
    writer.memory_kernel("key.rotary_backward",
                         2 * dim.tokens * (key_value_width(writer) + dim.key_width + dim.value_width));
    if (gradients.key) script.drop(*gradients.key);
    script.drop(gradients.value);
    result.query = gradients.query;
    if (fused_rotary(writer)) {
        writer.memory_kernel("query.rotary_backward", 4 * dim.tokens * dim.heads * rotary_width(writer));
    } else {
        result.query = writer.make("q_up.output_gradient", dim.full_shape(dim.query_width));
        writer.memory_kernel("query.rotary_backward", 4 * dim.tokens * dim.query_width);
        script.drop(gradients.query);
    }
    for (SavedIndex index : up.angles) script.forget(index);
    return result;
}

// --------------------------------------------------------------------------------------------------------- projections

/// What the down projections hand to the up projections.
struct Latents {
    Slot query{};       ///< the normed input where the query has no latent
    Slot key_value{};   ///< kv_down's output, latent and rotary key side by side
    Slot rotary_key{};  ///< of all tokens; a slice of the above without sequence parallelism
};

Slot gather_rotary_key(Writer& writer, Slot key_value) {
    const Dimensions& dim = writer.dim;
    if (!dim.sequence_parallel) return key_value;
    const std::int64_t width = rotary_width(writer);
    const Slot own = writer.make("rotary_key.slice", local_shape(dim, width));
    writer.memory_kernel("rotary_key.slice", 4 * dim.local_tokens * width);
    const Slot all = writer.make("rotary_key", dim.full_shape(width));
    writer.tensor_collective("rotary_key.gather", CollectiveKind::all_gather, dim.tokens * width);
    writer.script.drop(own);
    return all;
}

Latents project_down(Writer& writer, LatentAttention& attention) {
    const SeparateNorm& norm = attention.norm;
    Latents latents{norm.output, {}, {}};
    const auto saved_as = norm.rebuilt ? std::optional<Slot>(norm.saved_as) : std::nullopt;
    if (compresses_query(writer)) {
        attention.query_down = linear_forward(writer, query_down_site(writer), norm.output, saved_as);
        latents.query = attention.query_down->output;
    }
    attention.key_value_down = linear_forward(writer, key_value_down_site(writer), norm.output, saved_as);
    latents.key_value = attention.key_value_down.output;
    latents.rotary_key = gather_rotary_key(writer, latents.key_value);
    return latents;
}

/// Norms, up projections and rotary embedding.
UpProjection project_up(Writer& writer, const SeparateNorm& norm, const Latents& latents) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    UpProjection up;
    script.part(Part::qkv_linear);
    if (compresses_query(writer))
        up.query = up_forward(writer, query_up_site(writer), latents.query);
    else
        up.query = linear_forward(writer, query_site(writer), norm.output,
                                  norm.rebuilt ? std::optional<Slot>(norm.saved_as) : std::nullopt);
    const Slot latent = writer.make("kv_latent", local_shape(dim, writer.model.kv_lora_rank));
    writer.memory_kernel("kv_latent.copy", 4 * dim.local_tokens * writer.model.kv_lora_rank);
    up.key_value = up_forward(writer, key_value_up_site(writer), latent);
    script.drop(latent);
    up.heads = rotate(writer, up);
    return up;
}

void drop_heads(Writer& writer, const Heads& heads) {
    for (const auto& slot : {heads.query, heads.key, heads.value}) writer.script.drop(*slot);
}

/// The checkpoint's inputs, saved in the group qkv_linear, and the up projections without a trace.
void project_up_in_checkpoint(Writer& writer, LatentAttention& attention, const Latents& latents) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const Slot query = compresses_query(writer) ? latents.query : attention.norm.saved_as;
    attention.waiting.push_back(script.save(query, Module::qkv_linear));
    // The latent is most of kv_down's output, so its whole storage is copied; the rotary key beside it is gathered.
    attention.waiting.push_back(script.save(latents.key_value, Module::qkv_linear));
    attention.waiting.push_back(script.save_view("rotary_key", latents.rotary_key, Module::qkv_linear,
                                                 dim.full_shape(rotary_width(writer)),
                                                 dim.sequence_parallel ? CopyForm::contiguous : CopyForm::gathered));
    attention.latents = {latents.query, latents.key_value, latents.rotary_key};
    const Saving before = script.saving(Saving::nothing);
    attention.up = project_up(writer, attention.norm, latents);
    script.saving(before);
    attention.up.heads.rebuilt = true;
}

/// Query, key and value again, with all that the up projections' backward needs.
void project_up_again(Writer& writer, LatentAttention& attention) {
    ScriptBuilder& script = writer.script;
    const Latents latents{attention.latents[0], attention.latents[1], attention.latents[2]};
    for (SavedIndex index : attention.waiting) script.read(index);
    script.phase(Phase::recompute);
    const Saving before = script.saving(Saving::rebuild);
    attention.up = project_up(writer, attention.norm, latents);
    script.saving(before);
    script.phase(Phase::backward);
    attention.up.heads.rebuilt = true;
    attention.core.heads = attention.up.heads;
}

/// The rotary key's gradient back to this rank's tokens; drops what it takes.
Slot scatter_rotary_key(Writer& writer, Slot gradient) {
    const Dimensions& dim = writer.dim;
    if (!dim.sequence_parallel) return gradient;
    const Slot own = writer.make("rotary_key.gradient_shard", local_shape(dim, rotary_width(writer)));
    writer.tensor_collective("rotary_key.scatter", CollectiveKind::reduce_scatter, dim.tokens * rotary_width(writer));
    writer.script.drop(gradient);
    return own;
}

/// kv_down's output gradient from its two slices'.
Slot join_slices(Writer& writer, Slot latent, Slot rotary_key) {
    const Dimensions& dim = writer.dim;
    const std::int64_t width = writer.model.kv_lora_rank + rotary_width(writer);
    const Slot joined = writer.make("kv_down.output_gradient", local_shape(dim, width));
    writer.memory_kernel("kv_down.join_gradients", 4 * dim.local_tokens * width);
    writer.script.drop(latent);
    writer.script.drop(rotary_key);
    return joined;
}

/// From the gradients of query, key and value to that of the normed input.
Slot project_back(Writer& writer, const LatentAttention& attention, const HeadGradients& heads) {
    ScriptBuilder& script = writer.script;
    const LatentGradients gradients = rotate_back(writer, attention.up, heads);
    const Slot latent = up_backward(writer, key_value_up_site(writer), attention.up.key_value, gradients.key_value);
    Slot query{};
    if (compresses_query(writer))
        query = up_backward(writer, query_up_site(writer), attention.up.query, gradients.query);
    else
        query = linear_backward(writer, query_site(writer), std::get<Linear>(attention.up.query), gradients.query);
    if (rebuilds_up(writer)) {
        drop_heads(writer, attention.up.heads);
        for (SavedIndex index : attention.waiting) script.forget(index);
    }
    script.part(Part::qkv_linear);
    const Slot joined = join_slices(writer, latent, scatter_rotary_key(writer, gradients.rotary_key));
    const Slot normed = linear_backward(writer, key_value_down_site(writer), attention.key_value_down, joined);
    const Slot other = compresses_query(writer)
                           ? linear_backward(writer, query_down_site(writer), *attention.query_down, query)
                           : query;
    writer.memory_kernel("attn_norm.join_gradients", 3 * 2 * writer.dim.hidden_elements());
    script.drop(other);
    return normed;
}

}  // namespace

LatentAttention latent_attention_forward(Writer& writer, Slot input, bool windowed) {
    ScriptBuilder& script = writer.script;
    LatentAttention attention;
    script.part(Part::attn_norm);
    script.start(Module::attn_norm);
    attention.norm = separate_norm_forward(writer, "attn_norm", Part::attn_norm, input, Module::attn_norm);
    script.part(Part::qkv_linear);
    script.start(Module::qkv_linear);
    const Latents latents = project_down(writer, attention);
    if (rebuilds_up(writer))
        project_up_in_checkpoint(writer, attention, latents);
    else
        attention.up = project_up(writer, attention.norm, latents);
    script.part(Part::qkv_linear);
    script.commit(Module::qkv_linear, {attention.norm.output});
    attention.core = core_attention_forward(writer, attention.up.heads, windowed);
    if (rebuilds_up(writer)) drop_heads(writer, attention.up.heads);
    script.part(Part::attn_proj);
    script.start(Module::attn_proj);
    attention.projection = row_linear_forward(writer, projection_site(writer), attention.core.output);
    script.commit(Module::attn_proj, {attention.core.output});
    script.drop(attention.core.output);
    if (!rebuilds_up(writer)) drop_heads(writer, attention.up.heads);
    if (compresses_query(writer)) script.drop(latents.query);
    if (writer.dim.sequence_parallel) script.drop(latents.rotary_key);
    script.drop(latents.key_value);
    separate_norm_done(writer, attention.norm);
    return attention;
}

void latent_attention_backward(Writer& writer, LatentAttention& attention, Slot grad_input) {
    ScriptBuilder& script = writer.script;
    separate_norm_restore(writer, attention.norm);
    script.part(Part::attn_proj);
    script.commit(Module::attn_proj);
    const Slot output_gradient = row_linear_backward(writer, projection_site(writer), attention.projection);
    script.start(Module::attn_proj);
    if (rebuilds_up(writer)) project_up_again(writer, attention);
    const HeadGradients heads = core_attention_backward(writer, attention.core, output_gradient);
    script.part(Part::qkv_linear);
    script.commit(Module::qkv_linear);
    const Slot normed = project_back(writer, attention, heads);
    script.start(Module::qkv_linear);
    script.part(Part::attn_norm);
    script.allocate(grad_input);
    separate_norm_backward(writer, attention.norm);
    script.drop(normed);
    script.start(Module::attn_norm);
}

void latent_attention_parameters(Writer& writer) {
    writer.norm_parameters("attn_norm", writer.dim.hidden);
    if (compresses_query(writer)) {
        linear_parameters(writer, query_down_site(writer));
        up_parameters(writer, query_up_site(writer));
    } else {
        linear_parameters(writer, query_site(writer));
    }
    linear_parameters(writer, key_value_down_site(writer));
    up_parameters(writer, key_value_up_site(writer));
    core_attention_parameters(writer);
    row_linear_parameters(writer, projection_site(writer));
}

}  // namespace stowage::layers
