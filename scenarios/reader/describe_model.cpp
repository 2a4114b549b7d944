#include <array>
#include <string>

#include "scenarios/reader/drafts.hpp"

namespace stowage::reader {
namespace {

// Far above any published model, far below what overflows a 64-bit count of bytes.
constexpr IntegerRange kLayers{1, 100'000};
constexpr IntegerRange kWidth{1, 10'000'000};
constexpr IntegerRange kHeads{1, 100'000};
constexpr IntegerRange kVocabulary{0, 1'000'000'000};
constexpr NumberRange kProbability{0, 1};
constexpr NumberRange kLossScaling{0, 1e6};

void describe_sizes(Fields& fields, types::Model& model) {
    fields.count({"num_layers", "transformer layers", true}, model.num_layers, kLayers);
    fields.count({"hidden_size", "width of the residual stream", true}, model.hidden_size, kWidth);
    fields.count({"ffn_hidden_size", "width inside a dense MLP; default 4 x hidden_size, with swiglu 8/3 of it"},
                 model.ffn_hidden_size, kWidth);
    fields.count({"num_attention_heads", "query heads", true}, model.num_attention_heads, kHeads);
    fields.count({"num_query_groups", "key/value heads; default num_attention_heads"}, model.num_query_groups, kHeads);
    fields.count({"kv_channels", "size of one head; default hidden_size / num_attention_heads"}, model.kv_channels,
                 kWidth);
    fields.count({"vocab_size", "tokens of the vocabulary before padding; 0: layers alone", true}, model.vocab_size,
                 kVocabulary);
    fields.count({"make_vocab_size_divisible_by", "padding of the vocabulary per tensor-parallel rank"},
                 model.make_vocab_size_divisible_by, kWidth);
    fields.count({"max_position_embeddings", "learned positions"}, model.max_position_embeddings,
                 IntegerRange{0, 1'000'000'000});
}

/// Megatron spells the activation as flags; without any it is GELU, here as everywhere in this language swiglu.
void describe_activation(Fields& fields, types::Model& model) {
    struct Spelling {
        Key key;
        types::Activation activation;
        std::optional<bool> given;
    };
    std::array<Spelling, 3> spellings{
        {{{"swiglu", "gated SiLU MLP; false: GELU; default true"}, types::Activation::swiglu, {}},
         {{"squared_relu", "squared ReLU MLP"}, types::Activation::squared_relu, {}},
         {{"quick_geglu", "gated MLP with the sigmoid form of GELU"}, types::Activation::quick_geglu, {}}}};
    for (Spelling& spelling : spellings) fields.optional_flag(spelling.key, spelling.given, {});
    const Spelling* chosen = nullptr;
    for (const Spelling& spelling : spellings) {
        if (spelling.given == false && model.activation == spelling.activation)
            model.activation = types::Activation::gelu;
        if (!spelling.given.value_or(false)) continue;
        if (chosen != nullptr)
            fields.problem(spelling.key.name, "found true beside " + std::string(chosen->key.name) +
                                                  ": true, expected at most one activation");
        else
            chosen = &spelling;
    }
    if (chosen != nullptr) model.activation = chosen->activation;
}

void describe_options(Fields& fields, types::Model& model) {
    fields.choice({"normalization", "kind of layer norm"}, model.normalization);
    describe_activation(fields, model);
    fields.choice({"position_embedding_type", "how positions enter"}, model.position_embedding_type);
    fields.flag({"untie_embeddings_and_output_weights", "separate output weights"},
                model.untie_embeddings_and_output_weights);
    fields.flag({"add_bias_linear", "biases in all linear layers"}, model.add_bias_linear);
    fields.choice({"transformer_impl", "whose modules the layers are made of"}, model.transformer_impl);
    fields.flag({"masked_softmax_fusion", "scale, mask and softmax in one kernel (local layers)"},
                model.masked_softmax_fusion);
    fields.flag({"deterministic_mode", "deterministic kernels only"}, model.deterministic_mode);
    fields.number({"attention_dropout", "probability"}, model.attention_dropout, kProbability);
    fields.number({"hidden_dropout", "probability"}, model.hidden_dropout, kProbability);
    fields.count_or_none({"mtp_num_layers", "multi-token-prediction layers after the last one; null: none"},
                         model.mtp_num_layers, IntegerRange{0, 1000});
    fields.number({"mtp_loss_scaling_factor", "of the loss of multi-token prediction beside the model's"},
                  model.mtp_loss_scaling_factor, kLossScaling);
}

}  // namespace

void describe_model(Fields& fields, ModelDraft& draft) {
    fields.schema(kModelFile);
    fields.text({"name", "default: the file's name"}, draft.model.name);
    fields.remark("source");
    fields.remark("sources");
    describe_sizes(fields, draft.model);
    describe_options(fields, draft.model);
    describe_attention(fields, draft);
    describe_experts(fields, draft);
    describe_hybrid(fields, draft);
}

}  // namespace stowage::reader
