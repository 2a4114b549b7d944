#include "planner/program/durations.hpp"

#include <gtest/gtest.h>

namespace stowage::program {
namespace {

using layers::CollectiveKind;
using layers::CommGroup;
using layers::Kernel;
using layers::Phase;
using types::KernelClass;

/// Round figures: NVLink 100 GB/s and 2 us, network 10 GB/s and 5 us, eight devices a node.
types::Hardware hardware() {
    types::Hardware machine;
    machine.nodes = 4;
    types::Node& node = machine.node;
    node.gpus_per_node = 8;
    node.nvlink = {{100e9}, Nanoseconds{2000}};
    node.network = {{10e9}, Nanoseconds{5000}};
    node.device.gemm_bf16 = {100e12};
    node.device.attention_forward_bf16 = {50e12};
    node.device.attention_backward_bf16 = {40e12};
    node.device.memory_bandwidth = {1e12};
    node.device.kernel_overhead = Nanoseconds{700};
    node.copy.device_to_host = types::CopyCurve({{Bytes{1000}, Nanoseconds{100}}, {Bytes{2000}, Nanoseconds{200}}});
    node.copy.host_to_device = types::CopyCurve({{Bytes{1000}, Nanoseconds{300}}, {Bytes{2000}, Nanoseconds{400}}});
    return machine;
}

/// The sizes of a layout that matter here.
struct Spread {
    std::int64_t tensor = 1;
    std::int64_t pipeline = 1;
    std::int64_t experts = 1;
    std::int64_t expert_tensor = 1;
    std::int64_t data = 1;
};

types::ParallelLayout layout_of(const Spread& spread) {
    types::ParallelLayout layout;
    layout.tensor_model_parallel_size = spread.tensor;
    layout.pipeline_model_parallel_size = spread.pipeline;
    layout.expert_model_parallel_size = spread.experts;
    layout.expert_tensor_parallel_size = spread.expert_tensor;
    layout.data_parallel_size = spread.data;
    return layout;
}

/// In nanoseconds.
std::int64_t collective(const Spread& spread, CollectiveKind kind, CommGroup group, std::int64_t bytes) {
    const types::Hardware machine = hardware();
    const types::ParallelLayout layout = layout_of(spread);
    return Durations(machine, layout)
        .collective({.name = "c", .kind = kind, .group = group, .bytes = Bytes{bytes}})
        .count();
}

std::int64_t kernel(const Kernel& kernel, Phase phase) {
    const types::Hardware machine = hardware();
    const types::ParallelLayout layout;
    return Durations(machine, layout).kernel(kernel, phase).count();
}

std::int64_t peer(const Spread& spread, std::int64_t stage) {
    const types::Hardware machine = hardware();
    const types::ParallelLayout layout = layout_of(spread);
    return Durations(machine, layout).peer_transfer(stage, Bytes{1'000'000}).count();
}

// ------------------------------------------------------------------------------------------------------------ kernels

// 1e9 FLOPs at 100 TFLOPS are 10 us, 1e6 bytes at 1 TB/s are 1 us; the longer of them, and 0.7 us.
TEST(Durations, TakesTheLongerOfArithmeticAndTraffic) {
    EXPECT_EQ(kernel({"gemm", KernelClass::gemm, 1e9, Bytes{1'000'000}, false, {}}, Phase::forward), 10'000 + 700);
    EXPECT_EQ(kernel({"gemm", KernelClass::gemm, 1e7, Bytes{1'000'000}, false, {}}, Phase::forward), 1'000 + 700);
}

TEST(Durations, CountsNoArithmeticForMemoryBoundKernels) {
    EXPECT_EQ(kernel({"norm", KernelClass::memory_bound, 1e12, Bytes{3'000'000}, false, {}}, Phase::forward),
              3'000 + 700);
}

// 1.25 times as fast at a duty of a half, and attention 1.6 times; a norm takes what it takes.
TEST(Durations, MultipliesFasterOnADeviceThatWaits) {
    types::Hardware machine = hardware();
    machine.node.device.rates_by_duty = {{0.5, 1.25, 1.6}};
    const types::ParallelLayout layout;
    const Durations waiting(machine, layout, 0.5);
    const auto time = [&](const char* name, KernelClass kind) {
        return waiting.kernel({name, kind, 1e9, Bytes{1'000'000}, false, {}}, Phase::backward).count();
    };
    EXPECT_EQ(time("gemm", KernelClass::gemm), 8'000 + 700);
    EXPECT_EQ(time("attention", KernelClass::attention), 15'625 + 700);
    EXPECT_EQ(time("norm", KernelClass::memory_bound), 1'000 + 700);
}

// 1e9 FLOPs: 20 us at 50 TFLOPS forward, also when recomputed, 25 us at 40 TFLOPS backward.
TEST(Durations, GivesAttentionItsOwnRateInEachDirection) {
    const Kernel attention{"attention", KernelClass::attention, 1e9, Bytes{0}, false, {}};
    EXPECT_EQ(kernel(attention, Phase::forward), 20'000 + 700);
    EXPECT_EQ(kernel(attention, Phase::recompute), 20'000 + 700);
    EXPECT_EQ(kernel(attention, Phase::backward), 25'000 + 700);
}

TEST(Durations, UsesAMeasuredTimeAsItIs) {
    EXPECT_EQ(kernel({"gemm", KernelClass::gemm, 1e15, Bytes{1}, false, Nanoseconds{1234}}, Phase::forward), 1234);
}

// Read and write: 2 * 5e5 bytes at 1 TB/s are 1 us.
TEST(Durations, GathersWithOneReadAndOneWrite) {
    const types::Hardware machine = hardware();
    const types::ParallelLayout layout;
    EXPECT_EQ(Durations(machine, layout).gather(Bytes{500'000}).count(), 1'000 + 700);
}

TEST(Durations, CopiesByTheCurveOfTheDirection) {
    const types::Hardware machine = hardware();
    const types::ParallelLayout layout;
    const Durations durations(machine, layout);
    EXPECT_EQ(durations.copy(Direction::device_to_host, Bytes{1500}).count(), 150);
    EXPECT_EQ(durations.copy(Direction::host_to_device, Bytes{1500}).count(), 350);
}

// -------------------------------------------------------------------------------------------------------- collectives

// Eight ranks in one node: 7/8 of 8e6 bytes at 100 GB/s are 70 us, all_reduce twice that, and 2 us once.
TEST(Durations, RunsARingInsideANodeOnNvlink) {
    const Spread layout{.tensor = 8};
    EXPECT_EQ(collective(layout, CollectiveKind::all_gather, CommGroup::tensor, 8'000'000), 70'000 + 2'000);
    EXPECT_EQ(collective(layout, CollectiveKind::reduce_scatter, CommGroup::tensor, 8'000'000), 70'000 + 2'000);
    EXPECT_EQ(collective(layout, CollectiveKind::all_reduce, CommGroup::tensor, 8'000'000), 140'000 + 2'000);
}

// Replicas of a tensor-parallel pair: eight, four of them on each of two nodes. They share 4 * 10 GB/s: 7/8 of 8e6
// bytes are 175 us.
TEST(Durations, RunsARingAcrossNodesOnThePortsOfTheMembersOfOneNode) {
    const Spread layout{.tensor = 2, .data = 8};
    EXPECT_EQ(collective(layout, CollectiveKind::all_gather, CommGroup::dense_replicas, 8'000'000), 175'000 + 5'000);
    EXPECT_EQ(collective(layout, CollectiveKind::all_reduce, CommGroup::dense_replicas, 8'000'000), 350'000 + 5'000);
}

// Tensor parallel over the whole node leaves one replica a node and its one port: 3/4 of 4e6 bytes at 10 GB/s, 300 us.
TEST(Durations, RunsARingOfOneMemberANodeOnOnePort) {
    const Spread layout{.tensor = 8, .data = 4};
    EXPECT_EQ(collective(layout, CollectiveKind::all_gather, CommGroup::dense_replicas, 4'000'000), 300'000 + 5'000);
}

// Sixteen ranks with eight ports of 20 GB/s each node would have 160 GB/s; NVLink's 100 GB/s carry the ring inside.
TEST(Durations, RunsNoRingFasterThanNvlink) {
    types::Hardware machine = hardware();
    machine.node.network.rate = {20e9};
    const types::ParallelLayout layout = layout_of({.data = 16});
    const Durations durations(machine, layout);
    // 15/16 of 16e6 bytes at 100 GB/s
    EXPECT_EQ(durations.collective({"c", CollectiveKind::all_gather, CommGroup::dense_replicas, Bytes{16'000'000}}),
              Nanoseconds{150'000 + 5'000});
}

// Eight experts' ranks in a node: each sends 7/8 of its 8e5 bytes at 100 GB/s.
TEST(Durations, ExchangesInsideANodeOnNvlink) {
    const Spread layout{.experts = 8, .data = 8};
    EXPECT_EQ(collective(layout, CollectiveKind::all_to_all, CommGroup::expert, 800'000), 7'000 + 2'000);
}

// Sixteen on two nodes: of 16e5 bytes 7e5 stay (7 us at 100 GB/s), 8e5 leave through the rank's own port (80 us).
TEST(Durations, ExchangesAcrossNodesAtTheSlowerOfTheTwoLinks) {
    const Spread layout{.experts = 16, .data = 16};
    EXPECT_EQ(collective(layout, CollectiveKind::all_to_all, CommGroup::expert, 1'600'000), 80'000 + 5'000);
}

layers::Collective tokens_of(std::int64_t bytes, std::int64_t copies, std::int64_t places) {
    return {.name = "c",
            .kind = CollectiveKind::all_to_all,
            .group = CommGroup::expert,
            .bytes = Bytes{bytes},
            .copies = copies,
            .places = places};
}

// Two copies of 8e5 bytes for 16 experts, one a rank, on two nodes: a node has none of a token's with chance
// 8/16 * 7/15, so 8e5 * 23/30 bytes = 613,333 leave at 10 GB/s, not 8e5. Over NVLink 14 ranks * 8e5 * 1/8, 14 us.
TEST(Durations, SendsATokenOnceToANodeThatHasSeveralOfItsExperts) {
    const types::Hardware machine = hardware();
    const types::ParallelLayout layout = layout_of({.experts = 16, .data = 16});
    EXPECT_EQ(Durations(machine, layout).collective(tokens_of(1'600'000, 2, 16)), Nanoseconds{61'334 + 5'000});
}

// Eight ranks of a node with two of 16 experts each: a rank has none of two with chance 14/16 * 13/15, so 7 * 8e5 *
// 29/120 bytes = 1,353,333 cross, not 7/8 of 16e5.
TEST(Durations, SendsATokenOnceToARankThatHasSeveralOfItsExperts) {
    const types::Hardware machine = hardware();
    const types::ParallelLayout layout = layout_of({.experts = 8, .data = 8});
    EXPECT_EQ(Durations(machine, layout).collective(tokens_of(1'600'000, 2, 16)), Nanoseconds{13'534 + 2'000});
}

// With expert-tensor parallelism of 2 the eight ranks of the group are every other one: four a node, 3/8 stay, 4/8 go.
TEST(Durations, CountsTheMembersOfAStridedGroupInANode) {
    const Spread layout{.experts = 8, .expert_tensor = 2, .data = 16};
    EXPECT_EQ(collective(layout, CollectiveKind::all_to_all, CommGroup::expert, 800'000), 40'000 + 5'000);
    // the pair of one expert is in a node: 1/2 of 8e5 bytes
    EXPECT_EQ(collective(layout, CollectiveKind::all_gather, CommGroup::expert_tensor, 800'000), 4'000 + 2'000);
}

// 32 ranks, experts over 8: four replicas, one a node, 3/4 of 4e6 bytes at 10 GB/s.
TEST(Durations, ReducesExpertGradientsOverTheExpertReplicas) {
    const Spread layout{.experts = 8, .data = 32};
    EXPECT_EQ(collective(layout, CollectiveKind::reduce_scatter, CommGroup::expert_replicas, 4'000'000),
              300'000 + 5'000);
}

// The shared embedding is on the first and the last stage. Eight stages of one rank: ranks 0 and 7, one node, 2 * 1/2
// of 1e6 bytes at 100 GB/s. Sixteen: ranks 0 and 15, at 10 GB/s.
TEST(Durations, ReducesTheEmbeddingBetweenTheFirstStageAndTheLast) {
    const auto reduce = [](std::int64_t stages) {
        return collective({.pipeline = stages}, CollectiveKind::all_reduce, CommGroup::embedding, 1'000'000);
    };
    EXPECT_EQ(reduce(1), 0);
    EXPECT_EQ(reduce(2), 10'000 + 2'000);
    EXPECT_EQ(reduce(8), 10'000 + 2'000);
    EXPECT_EQ(reduce(16), 100'000 + 5'000);
}

TEST(Durations, TakesNoTimeForAGroupOfOne) {
    for (const CommGroup group : {CommGroup::tensor, CommGroup::expert, CommGroup::expert_tensor,
                                  CommGroup::dense_replicas, CommGroup::expert_replicas, CommGroup::embedding})
        EXPECT_EQ(collective({}, CollectiveKind::all_reduce, group, 1'000'000), 0);
}

// ---------------------------------------------------------------------------------------------------------- neighbours

// 1e6 bytes: 10 us on NVLink, 100 us on the network. Stages of four ranks: two to a node, so every second border is one
// between nodes.
TEST(Durations, SendsToANeighbourInTheNodeOnNvlinkAndElseOnTheNetwork) {
    const Spread two_a_node{.tensor = 4, .pipeline = 4};
    EXPECT_EQ(peer(two_a_node, 0), 10'000 + 2'000);
    EXPECT_EQ(peer(two_a_node, 1), 100'000 + 5'000);
    EXPECT_EQ(peer(two_a_node, 2), 10'000 + 2'000);
    const Spread one_node{.pipeline = 8};
    for (std::int64_t stage = 0; stage < 7; ++stage) EXPECT_EQ(peer(one_node, stage), 10'000 + 2'000);
    const Spread one_a_node{.tensor = 8, .pipeline = 2};
    EXPECT_EQ(peer(one_a_node, 0), 100'000 + 5'000);
}

}  // namespace
}  // namespace stowage::program
