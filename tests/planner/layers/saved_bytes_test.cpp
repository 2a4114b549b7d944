#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "planner/layers/inventory.hpp"
#include "planner/layers/megatron_stage.hpp"
#include "tests/planner/layers/replay.hpp"
#include "tests/planner/layers/scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::Scenario;

/// A dense layer's saved bytes in closed form. T tokens, Ts tokens outside tensor-parallel regions, H = 2 Ts h.
///   two norms fused into linears: input and output 2 H each, statistics 4 Ts (RMSNorm) or 8 Ts
///   query, key, value 2 T (a + 2g) k / t; output 2 T a k / t; softmax statistics 4 T a / t
///   fc1's output and the activation's output 2 T (F1 + F) / t; with hidden dropout two masks of Ts h
std::int64_t dense_closed_form(const Scenario& scenario) {
    const types::Model& m = scenario.model;
    const std::int64_t t = scenario.parallel.tensor_model_parallel_size;
    const std::int64_t tokens = scenario.batch.micro_batch_size * scenario.batch.seq_length;
    const std::int64_t own = tokens / scenario.parallel.sequence_shards();
    const std::int64_t hidden = 2 * own * m.hidden_size;
    const std::int64_t row = m.normalization == types::Normalization::LayerNorm ? 8 : 4;
    const std::int64_t heads = m.num_attention_heads + 2 * m.num_query_groups;
    std::int64_t bytes = 2 * (2 * hidden + row * own);
    bytes += 2 * tokens * heads * m.kv_channels / t;
    bytes += 2 * tokens * m.num_attention_heads * m.kv_channels / t + 4 * tokens * m.num_attention_heads / t;
    bytes += 2 * tokens * m.ffn_hidden_size * (m.gated() ? 3 : 2) / t;
    if (m.hidden_dropout > 0) bytes += 2 * own * m.hidden_size;
    if (m.qk_layernorm)
        bytes += (2 * tokens * m.kv_channels + row * tokens) * (m.num_attention_heads + m.num_query_groups) / t;
    return bytes;
}

TEST(SavedBytes, OfADenseLayerAreTheClosedForm) {
    for (Scenario scenario : {llama3_70b(), small_gpt()}) {
        for (const bool normed : {false, true}) {
            scenario.model.qk_layernorm = normed;
            for (const std::int64_t tensor : {1, 2, 8}) {
                scenario.parallel.tensor_model_parallel_size = tensor;
                for (const bool sequence_parallel : {false, true}) {
                    scenario.parallel.sequence_parallel = sequence_parallel;
                    const LayerScript layer = script_of(scenario, ScriptKind::dense_layer);
                    EXPECT_EQ(saved_bytes(layer), Bytes{dense_closed_form(scenario)})
                        << "tensor " << tensor << " sequence parallel " << sequence_parallel;
                }
            }
        }
    }
}

// The layer of Megatron's small test by hand, T = 4096, H = 4,194,304, with cuDNN's attention:
// 2 (2H + 8T) 16,842,752 + qkv 12,582,912 + output 4,194,304 + statistics 131,072 + masks 4,194,304
// + fc1 and activation 33,554,432.
TEST(SavedBytes, OfTheSmallLayerByHand) {
    EXPECT_EQ(saved_bytes(script_of(small_gpt(), ScriptKind::dense_layer)), Bytes{71'499'776});
}

// Grouped queries without rotary embedding: all three are copied, packed does not stay.
TEST(SavedBytes, OfGroupedQueriesDoNotDependOnTheRotaryEmbedding) {
    Scenario scenario = llama3_70b();
    const Bytes rotary = saved_bytes(script_of(scenario, ScriptKind::dense_layer));
    scenario.model.position_embedding_type = types::PositionEmbedding::none;
    EXPECT_EQ(saved_bytes(script_of(scenario, ScriptKind::dense_layer)), rotary);
}

// Qwen3-30B-A3B, T = 4096, h 2048, H = 16,777,216, TP1, N = 32,768 rows, width 768:
//   attention: norm 2H + 4T; query and key norm inputs 2 T 36 * 128 and 4 T 36; query, key, value 2 T 40 * 128; output
//   2 T 32 * 128; statistics 4 T 32
//   experts: norm 2H + 4T; router T 128 * 8 + 8 N; permutation 8 N and 5 T 128; fc1 input 2 N h; fc1 output 2 N 1536;
//   routing weights 4 N; activation output 2 N 768
TEST(SavedBytes, OfAMoeLayerAreTheClosedForm) {
    constexpr std::int64_t kTokens = 4096;
    constexpr std::int64_t kHidden = 16'777'216;
    constexpr std::int64_t kRows = 32'768;
    const std::int64_t attention = 2 * kHidden + 4 * kTokens + (2 * 128 + 4) * kTokens * 36 + 2 * kTokens * 40 * 128 +
                                   2 * kTokens * 32 * 128 + 4 * kTokens * 32;
    const std::int64_t experts = 2 * kHidden + 4 * kTokens + kTokens * 128 * (8 + 5) + 8 * kRows + 8 * kRows +
                                 2 * kRows * 2048 + 2 * kRows * 1536 + 4 * kRows + 2 * kRows * 768;
    EXPECT_EQ(saved_bytes(script_of(qwen3_30b_a3b(), ScriptKind::moe_layer)), Bytes{attention + experts});
}

// TP4 with sequence parallelism, experts split by 2, EP2: Ts = 1024, R = 1024 * 8, N = 2 R = 16,384 rows of width 384.
TEST(SavedBytes, OfSplitExpertsFollowTheRowsAfterDispatch) {
    Scenario scenario = qwen3_30b_a3b();
    scenario.parallel.tensor_model_parallel_size = 4;
    scenario.parallel.expert_tensor_parallel_size = 2;
    scenario.parallel.expert_model_parallel_size = 2;
    scenario.parallel.sequence_parallel = true;
    const LayerScript layer = script_of(scenario, ScriptKind::moe_layer);
    for (const SavedTensor& saved : layer.saved) {
        if (saved.name == "expert_fc1.output") {
            EXPECT_EQ(saved.shape, (std::vector<std::int64_t>{16'384, 768}));
        }
        if (saved.name == "router.logits") {
            EXPECT_EQ(saved.shape, (std::vector<std::int64_t>{1024, 128}));
        }
    }
}

// Two bytes of logits and four of their copy for each of 4096 * 50,304 entries, twice: in forward and in backward; the
// rest of the head's own forward: normed input and kInput 2H, statistics 8T, attention mask 4 * 1024^2, vectors.
TEST(SavedBytes, TheLossTakesSixBytesATokenAndVocabularyEntry) {
    const LayerScript head = script_of(small_gpt(), ScriptKind::head);
    Replay replay(head);
    replay.forward();
    constexpr std::int64_t kLogits = 4096 * 50'304;
    constexpr std::int64_t kHidden = 4'194'304;
    // labels, their transpose, target int64; loss mask, maximum, predicted, sum, loss fp32; target mask bool
    constexpr std::int64_t kVectors = 4096 * (3 * 8 + 5 * 4 + 1);
    EXPECT_EQ(replay.peak(), Bytes{6 * kLogits + 2 * kHidden + 8 * 4096 + 4 * 1024 * 1024 + kVectors});
    // Saved: softmax, both hidden tensors, statistics, target and its mask.
    EXPECT_EQ(replay.live(), Bytes{4 * kLogits + 2 * kHidden + 8 * 4096 + 9 * 4096});
}

// Full weight gradient of the table beside the gathered gradient: 2 * 50,304 * 512 + dropout's gradient.
TEST(SavedBytes, TheEmbeddingsBackwardMakesAWholeTableGradient) {
    const LayerScript embedding = script_of(small_gpt(), ScriptKind::embedding);
    const auto gradient = std::find_if(embedding.tensors.begin(), embedding.tensors.end(), [](const Tensor& tensor) {
        return tensor.name == "embedding.word_embeddings.gradient";
    });
    ASSERT_NE(gradient, embedding.tensors.end());
    EXPECT_EQ(gradient->bytes(), Bytes{2 * 50'304 * 512});
}

}  // namespace
}  // namespace stowage::layers::testing
