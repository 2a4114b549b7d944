#include <gtest/gtest.h>

#include "scenarios/reader/megatron_arguments_lists.hpp"
#include "tests/scenarios/import/arguments.hpp"

namespace stowage::reader::testing {
namespace {

TEST(ArgumentNames, AreTheSameWithDashesOrUnderscores) {
    const std::string dashes =
        "--num-layers: 12\n--hidden-size: 512\n--num-attention-heads: 8\n--seq-length: 1024\n"
        "--max-position-embeddings: 1024\n--swiglu: true\n";
    std::string underscores = dashes;
    for (std::size_t at = underscores.find("--"); at != std::string::npos; at = underscores.find("--"))
        underscores.erase(at, 2);
    for (char& letter : underscores)
        if (letter == '-') letter = '_';
    EXPECT_EQ(import_text(dashes).scenario.model, import_text(underscores).scenario.model);
    EXPECT_EQ(import_text(dashes).scenario.model, import_small("swiglu: true\n").model);
    EXPECT_EQ(error_of("--num_layers: 12\n"),
              "args.yaml:6:15: error: --num_layers: the argument stands here a second time\n"
              "  --num_layers: 12\n"
              "                ^\n"
              "hint: --num-layers, num-layers and num_layers are one argument");
}

TEST(ArgumentFlags, AreTrueEmptyOrNothing) {
    for (const char* value : {" true", " True", " ''", "", " null"})
        EXPECT_TRUE(import_small(std::string("qk-layernorm:") + value + "\n").model.qk_layernorm) << value;
    for (const char* value : {" false", " False"})
        EXPECT_FALSE(import_small(std::string("qk-layernorm:") + value + "\n").model.qk_layernorm) << value;
    EXPECT_EQ(error_of("qk-layernorm: 3\n"),
              "args.yaml:6:15: error: qk-layernorm: found '3', expected a flag: true, false or nothing\n"
              "  qk-layernorm: 3\n"
              "                ^");
}

TEST(ArgumentLists, HaveThreeSpellings) {
    using types::RecomputeModule;
    const std::vector<RecomputeModule> both{RecomputeModule::core_attn, RecomputeModule::layernorm};
    for (const char* value : {"'[core_attn layernorm]'", "core_attn layernorm", "[core_attn, layernorm]",
                              "[core_attn layernorm]", "core_attn,layernorm", "\"['core_attn', 'layernorm']\""})
        EXPECT_EQ(import_small(std::string("recompute-granularity: selective\nrecompute-modules: ") + value + "\n")
                      .recompute.recompute_modules,
                  both)
            << value;
    EXPECT_EQ(error_of("recompute-granularity: selective\nrecompute-modules: core_atn\n"),
              "args.yaml:7:20: error: recompute-modules: found 'core_atn', expected one of core_attn, moe_act, "
              "layernorm, mla_up_proj, mlp, moe, shared_experts, gdn_norm_out, gdp_in_proj, gdp_qkv, mhc\n"
              "  recompute-modules: core_atn\n"
              "                     ^\n"
              "hint: did you mean 'core_attn'?");
}

TEST(ArgumentLists, OfNothingHaveNoWords) {
    EXPECT_TRUE(list_words("").empty());
    EXPECT_TRUE(list_words("[]").empty());
    EXPECT_EQ(list_words("[ a  b,c ]"), (std::vector<std::string>{"a", "b", "c"}));
}

TEST(ArgumentNumbers, MayStandInQuotes) {
    EXPECT_EQ(import_small("ffn-hidden-size: '1024'\n").model.ffn_hidden_size, 1024);
    EXPECT_NE(error_of("ffn-hidden-size: wide\n").find("args.yaml:6:18: error: ffn-hidden-size: found 'wide'"),
              std::string::npos);
    EXPECT_NE(error_of("ffn-hidden-size: 0\n"), "");
}

TEST(ArgumentFile, MayBeATestCaseOfMegatron) {
    const types::Scenario scenario = import_text(
                                         "ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\nTEST_TYPE: regular\n"
                                         "MODEL_ARGS:\n  --num-layers: 12\n  --hidden-size: 512\n"
                                         "  --num-attention-heads: 8\n  --seq-length: 1024\n"
                                         "  --max-position-embeddings: 1024\n")
                                         .scenario;
    EXPECT_EQ(scenario.model.num_layers, 12);
    EXPECT_EQ(scenario.env.at("CUDA_DEVICE_MAX_CONNECTIONS"), "1");
}

TEST(ArgumentFile, SaysWhatIsRequired) {
    const support::TemporaryFolder folder;
    support::write_text(folder / "args.yaml", "bf16: true\n");
    try {
        import_megatron(folder / "args.yaml", ImportedHardware{shipped_h100(), {}, {}});
        FAIL();
    } catch (const types::InputError& error) {
        for (const char* name : {"num_layers", "hidden_size", "num_attention_heads", "seq_length"})
            EXPECT_NE(std::string(error.what()).find(std::string("argument ") + name + " is required"),
                      std::string::npos)
                << error.what();
    }
}

TEST(ArgumentFile, MustBeAMapOfArguments) {
    const support::TemporaryFolder folder;
    const ImportedHardware hardware{shipped_h100(), {}, {}};
    for (const char* text : {"", "- a\n- b\n", "just text\n", "num-layers: [1\n", "env: text\nnum-layers: 1\n"}) {
        support::write_text(folder / "args.yaml", text);
        EXPECT_THROW(import_megatron(folder / "args.yaml", hardware), types::InputError) << text;
    }
    EXPECT_THROW(import_megatron(folder / "missing.yaml", hardware), types::InputError);
}

TEST(ArgumentsWithoutEffect, ArePassedOverSilently) {
    EXPECT_EQ(notes_of("lr: 0.0001\nseed: 1234\ndata-path: /data\nsave: /checkpoints\nlog-interval: 1\n"
                       "wandb-project: x\ntrain-iters: 50\nadam-beta2: 0.95\nclip-grad: 1.0\neval-iters: 10\n"
                       "tensorboard-dir: /logs\nno-load-optim: true\ndistributed-backend: nccl\n"),
              "");
}

TEST(ArgumentsNobodyKnows, AreNotedWithTheNearest) {
    EXPECT_EQ(notes_of("frobnicate: 3\n"), "args.yaml:6:13: frobnicate: unknown argument, passed over\n");
    EXPECT_EQ(notes_of("cross-entropy-los-fusion: true\n"),
              "args.yaml:6:27: cross-entropy-los-fusion: unknown argument, passed over; did you mean "
              "cross_entropy_loss_fusion?\n");
}

TEST(ArgumentsWhoseEffectIsNotPlanned, AreNoted) {
    EXPECT_EQ(notes_of("no-align-grad-reduce: true\nno-rope-fusion:\ncross-entropy-loss-fusion: false\n"),
              "args.yaml:6:23: no-align-grad-reduce: planned without alignment of reductions\n"
              "args.yaml:7:1: no-rope-fusion: planned with fused rotary embeddings\n");
    EXPECT_EQ(notes_of("moe-router-topk: 8\nq-lora-rank: 512\nmamba-state-dim: 64\n"),
              "args.yaml:7:14: q-lora-rank: no effect without multi-latent-attention\n"
              "args.yaml:8:18: mamba-state-dim: no effect without hybrid-layer-pattern\n"
              "args.yaml:6:18: moe-router-topk: no effect without num-experts\n");
}

TEST(ArgumentsThatTheLanguageLacks, AreRefusedByName) {
    EXPECT_EQ(error_of("use-megatron-fsdp: true\n"),
              "args.yaml:6:20: error: use-megatron-fsdp: Megatron-FSDP cannot be planned\n"
              "  use-megatron-fsdp: true\n"
              "                     ^\n"
              "hint: use-distributed-optimizer is planned");
    for (const char* argument :
         {"transformer-impl: inference_optimized", "optimizer: muon", "use-torch-fsdp2: true",
          "use-legacy-models:", "cpu-offloading-num-layers: 20", "position-embedding-type: mrope",
          "first-last-layers-bf16: true", "spec: a b", "fp32-residual-connection: true", "hybrid-attention-ratio: 0.1",
          "checkpoint-activations: true", "cp-comm-type: p2p a2a"})
        EXPECT_NE(error_of(std::string(argument) + "\n").find("args.yaml:6:"), std::string::npos) << argument;
}

TEST(ArgumentsThatTheLanguageLacks, AreTakenWhereTheyChangeNothing) {
    for (const char* argument :
         {"transformer-impl: transformer_engine", "optimizer: adam", "use-megatron-fsdp: false",
          "cpu-offloading-num-layers: 0", "spec: null", "hybrid-attention-ratio: 0.0", "hybrid-mlp-ratio: 0",
          "data-parallel-sharding-strategy: no_shard", "cp-comm-type: p2p p2p"})
        EXPECT_EQ(error_of(std::string(argument) + "\n"), "") << argument;
}

TEST(ArgumentErrors, AreAllReportedAtOnceAndInTheFilesOrder) {
    const std::string error = error_of("optimizer: muon\nffn-hidden-size: wide\nuse-torch-fsdp2: true\n");
    const std::size_t first = error.find("args.yaml:6:");
    const std::size_t second = error.find("args.yaml:7:");
    const std::size_t third = error.find("args.yaml:8:");
    EXPECT_LT(first, second);
    EXPECT_LT(second, third);
    EXPECT_NE(third, std::string::npos);
}

TEST(ArgumentErrors, OfTheWholeScenarioPointAtTheArgument) {
    EXPECT_NE(error_of("tensor-model-parallel-size: 3\n").find("args.yaml:6:"), std::string::npos);
    EXPECT_NE(error_of("num-experts: 4\nexpert-model-parallel-size: 3\n").find("args.yaml:7:"), std::string::npos);
}

}  // namespace
}  // namespace stowage::reader::testing
