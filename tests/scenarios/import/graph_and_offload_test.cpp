#include <gtest/gtest.h>

#include "tests/scenarios/import/arguments.hpp"

namespace stowage::reader::testing {
namespace {

using types::CudaGraph;
using types::CudaGraphImpl;
using types::CudaGraphModule;

struct OlderGraph {
    const char* arguments;
    CudaGraphImpl impl;
    std::vector<CudaGraphModule> modules;
};

TEST(MegatronGraphs, AreTheSameInOlderSpellings) {
    const std::vector<CudaGraphModule> attn{CudaGraphModule::attn};
    for (const OlderGraph& older : std::vector<OlderGraph>{
             {"cuda-graph-impl: transformer_engine\ncuda-graph-modules: attn\n", CudaGraphImpl::transformer_engine,
              attn},
             {"cuda-graph-impl: transformer_engine\ncuda-graph-scope: attn\n", CudaGraphImpl::transformer_engine, attn},
             {"external-cuda-graph: true\ncuda-graph-scope: '[attn]'\n", CudaGraphImpl::transformer_engine, attn},
             {"external-cuda-graph: true\ncuda-graph-scope: full\n", CudaGraphImpl::transformer_engine, {}},
             {"enable-cuda-graph: true\n", CudaGraphImpl::local, {}},
             {"cuda-graph-impl: local\ncuda-graph-scope: full_iteration\n", CudaGraphImpl::full_iteration, {}},
             {"cuda-graph-scope: full_iteration\n", CudaGraphImpl::full_iteration, {}},
             {"cuda-graph-impl: local\ncuda-graph-modules: full_iteration_inference\n", CudaGraphImpl::local, {}},
             {"cuda-graph-impl: transformer_engine\ncuda-graph-modules: '[attn moe_router moe_preprocess]'\n",
              CudaGraphImpl::transformer_engine,
              {CudaGraphModule::attn, CudaGraphModule::moe_router, CudaGraphModule::moe_preprocess}}}) {
        const CudaGraph graph = import_small(older.arguments).cuda_graph;
        EXPECT_EQ(graph.cuda_graph_impl, older.impl) << older.arguments;
        EXPECT_EQ(graph.cuda_graph_modules, older.modules) << older.arguments;
    }
    EXPECT_EQ(import_small("cuda-graph-warmup-steps: 0\n").cuda_graph.cuda_graph_warmup_steps, 0);
}

TEST(MegatronGraphs, AreNotSpelledTwice) {
    EXPECT_NE(error_of("enable-cuda-graph: true\ncuda-graph-impl: local\n").find("beside cuda-graph-impl"),
              std::string::npos);
    EXPECT_NE(error_of("enable-cuda-graph: true\nexternal-cuda-graph: true\n").find("beside enable-cuda-graph"),
              std::string::npos);
    EXPECT_NE(error_of("cuda-graph-scope: attn\ncuda-graph-modules: attn\n").find("its newer name"), std::string::npos);
    EXPECT_NE(error_of("cuda-graph-modules: moe_ruoter\n").find("did you mean 'moe_router'?"), std::string::npos);
}

/// The rule, severity and line of the only finding.
void expect_finding(const std::string& arguments, const std::string& rule, bool illegal, int line) {
    const ImportedScenario imported = import_text(kSmallJob + arguments);
    ASSERT_EQ(imported.findings.size(), 1U) << arguments;
    EXPECT_EQ(imported.findings[0].rule, rule) << arguments;
    EXPECT_EQ(imported.findings[0].illegal, illegal) << arguments;
    EXPECT_EQ(imported.findings[0].at.at.line, line) << arguments;
}

TEST(ArgumentRules, TellWhatMegatronRejectsOrChanges) {
    expect_finding("cuda-graph-impl: transformer_engine\ncuda-graph-scope: full attn\n", "G1", true, 7);
    expect_finding("cuda-graph-impl: transformer_engine\ncuda-graph-scope: full_iteration\n", "G3", true, 7);
    expect_finding("cuda-graph-impl: local\ncuda-graph-scope: full_iteration\n", "G3", false, 7);
    expect_finding("inference-cuda-graph-scope: block\n", "G4", true, 6);
    expect_finding("cuda-graph-impl: local\ninference-cuda-graph-scope: none\n", "G4", true, 7);
    expect_finding("fine-grained-activation-offloading: true\n", "O2", true, 6);
    expect_finding("offload-modules: core_attn\n", "fine_grained_activation_offloading", false, 6);
    expect_finding("recompute-modules: core_attn\n", "recompute_modules", false, 6);
    EXPECT_TRUE(
        import_text(kSmallJob + "cuda-graph-impl: local\ninference-cuda-graph-scope: layer\n").findings.empty());
}

TEST(MegatronOffload, HasAllItsKnobs) {
    using types::Module;
    const types::Offload offload =
        import_small(
            "fine-grained-activation-offloading: true\noffload-modules: '[core_attn attn_proj]'\n"
            "activation-offload-fraction: 0.5\nmin-offloaded-tensor-size: 1024\n"
            "delta-offload-bytes-across-pp-ranks: 4096\nfine-grained-offloading-max-inflight-offloads: 1\n"
            "delay-offload-until-cuda-graph: true\n")
            .offload;
    EXPECT_EQ(offload.offload_modules, (types::ModuleSet{Module::core_attn, Module::attn_proj}));
    EXPECT_EQ(offload.activation_offload_fraction, 0.5);
    EXPECT_EQ(offload.min_offloaded_tensor_size, 1024);
    EXPECT_EQ(offload.delta_offload_bytes_across_pp_ranks, 4096);
    EXPECT_EQ(offload.fine_grained_offloading_max_inflight_offloads, 1);
    EXPECT_EQ(offload.delay_offload_until_cuda_graph, true);
    EXPECT_TRUE(import_small("offload-modules: core_attn\n").offload.offload_modules->empty());
}

}  // namespace
}  // namespace stowage::reader::testing
