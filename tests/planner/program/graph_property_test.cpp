#include <gtest/gtest.h>

#include <iostream>
#include <numeric>

#include "planner/layers/megatron_stage.hpp"
#include "planner/program/lowering.hpp"
#include "tests/support/graph_jobs.hpp"
#include "tests/support/program_checker.hpp"
#include "tests/support/seed.hpp"

// Random configurations of graphs and offloading on real layers. What must hold for every one of them: a run allocates
// and frees every tensor once on either side of its graphs, waits only for what was recorded, moves what the counts
// say, and brings everything back.

namespace stowage::program {
namespace {

using tests::GraphJobs;
using tests::ProgramFacts;

Bytes counted(const OffloadCounts& counts) {
    return std::accumulate(counts.bytes.begin(), counts.bytes.end(), Bytes{});
}

/// That the dice do not avoid what is to be tested.
struct Tally {
    int followed = 0;
    int lost_chunks = 0;
    int with_copies_in_graphs = 0;
};

/// The run without its last stage.
ProgramFacts shorter(const StepProgram& program, std::vector<RunStage>& run) {
    run.pop_back();
    return tests::follow(program, run);
}

void check_captures(const StepProgram& program, const types::OffloadChoice& choice, const ProgramFacts& captured,
                    const ProgramFacts& before) {
    // One graph is left with the gradient that the last of them made.
    EXPECT_LE(captured.kept_by_graphs, program.graphs.size() > 1 ? 1 : 0);
    // Where a group in the middle of a layer stays, its end prefetches its neighbour, which the same graph reads
    // without a wait: graph_lowering_test.cpp.
    if (choice.fraction == 1 && choice.delta_bytes_across_pp_ranks == 0) {
        EXPECT_EQ(captured.unawaited_reloads, before.unawaited_reloads) << "reloaded and read in one graph";
    }
    EXPECT_EQ(captured.offloaded, before.offloaded) << "a capture copies nothing";
}

void check(const GraphJobs::Job& job, std::int64_t rank, Tally& tally) {
    const types::Scenario& scenario = job.scenario;
    const layers::StageLayers stage = layers::build_megatron_stage(scenario, rank);
    const Durations durations(scenario.hardware, scenario.parallel);
    const Lowered lowered = lower(stage, scenario.microbatches(), job.choice, scenario.rules, durations);
    if (lowered.chunk_mismatch) {
        ++tally.lost_chunks;
        return;
    }
    std::vector<RunStage> run = tests::whole_run(lowered.program);
    const ProgramFacts facts = tests::follow(lowered.program, run);
    for (const std::string& problem : facts.problems) ADD_FAILURE() << problem;
    const ProgramFacts first = shorter(lowered.program, run);
    EXPECT_EQ(facts.offloaded - first.offloaded, counted(lowered.counts));
    EXPECT_EQ((facts.reloaded - first.reloaded) + (facts.read_inline - first.read_inline), counted(lowered.counts));
    EXPECT_EQ(facts.unawaited_reloads, first.unawaited_reloads) << "in a steady step";
    EXPECT_EQ(facts.launches, 2 * first.launches);
    const ProgramFacts captured = shorter(lowered.program, run);
    check_captures(lowered.program, job.choice, captured, shorter(lowered.program, run));
    ++tally.followed;
    if (facts.by_graphs > Bytes{0}) ++tally.with_copies_in_graphs;
}

constexpr int kRuns = 150;

TEST(GraphPrograms, KeepTheirBooksUnderRandomConfigurations) {
    const std::uint64_t seed = tests::property_seed(20261129);
    GraphJobs jobs(seed);
    Tally tally;
    for (int run = 0; run < kRuns; ++run) {
        const GraphJobs::Job job = jobs.next();
        for (std::int64_t rank = 0; rank < job.scenario.parallel.pipeline_model_parallel_size; ++rank) {
            SCOPED_TRACE("run " + std::to_string(run) + ", rank " + std::to_string(rank) + ": " + text_of(job));
            check(job, rank, tally);
            if (HasFailure()) return;
        }
    }
    std::cout << tally.followed << " ranks followed, " << tally.with_copies_in_graphs << " with copies in graphs, "
              << tally.lost_chunks << " lost a chunk\n";
    EXPECT_GT(tally.followed, kRuns);
    EXPECT_GT(tally.with_copies_in_graphs, kRuns / 4);
}

}  // namespace
}  // namespace stowage::program
