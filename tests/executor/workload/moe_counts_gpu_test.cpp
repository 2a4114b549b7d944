#include <string>

#include "executor/cuda/graph.hpp"
#include "scenarios/types/error.hpp"
#include "tests/executor/workload/workload_fixture.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;

class Counts : public WorkloadGpu {
protected:
    static CallSizes sizes() {
        CallSizes sizes;
        sizes.rows = 10;
        sizes.topk = 1;
        sizes.experts = 4;
        sizes.depth = 5;  // rows of an expert at most
        return sizes;
    }
    void copy(const Buffer& counts, const LaunchPlace& place) { run(Call::counts_to_host, sizes(), {&counts}, place); }
    std::string complaint() {
        try {
            workload().check_counts();
        } catch (const types::Error& error) {
            EXPECT_EQ(error.code(), types::ExitCode::no);
            return error.what();
        }
        return "";
    }
};

TEST_F(Counts, AreFineUpToWhatWasPlannedAndAnErrorThatNamesTheExpertAbove) {
    const Buffer counts = int_buffer({5, 0, 4, 1});
    copy(counts, {.microbatch = 0, .layer = 3});
    EXPECT_EQ(complaint(), "");
    EXPECT_EQ(complaint(), "") << "nothing came since";
    counts.write(std::vector<std::int32_t>{2, 1, 6, 1});
    copy(counts, {.microbatch = 2, .layer = 3});
    EXPECT_EQ(complaint(),
              "layer 3, microbatch 2: the routing gives 6 rows of this rank to expert 2, the plan has room for 5\n"
              "hint: plan with a greater skew of the routing");
}

TEST_F(Counts, OfSeveralLayersAreAllLookedAtInWhateverOrderTheyCome) {
    const Buffer good = int_buffer({3, 3, 3, 1});
    const Buffer bad = int_buffer({0, 9, 1, 0});
    for (const std::int64_t layer : {0, 1, 2}) copy(good, {.microbatch = 0, .layer = layer});
    EXPECT_EQ(complaint(), "");
    copy(bad, {.microbatch = 0, .layer = 1});  // not the one that came first before
    EXPECT_NE(complaint().find("layer 1, microbatch 0: the routing gives 9 rows of this rank to expert 1"),
              std::string::npos);
}

TEST_F(Counts, OfAReplayedCopyAreLookedAtToo) {
    const Buffer counts = int_buffer({1, 2, 3, 4});
    const CallShape shape{Call::counts_to_host, sizes()};
    workload().prepare({&shape, 1});
    Capture capture(stream().ref());
    void* pointer = counts.get();
    workload().launch(shape.call, shape.sizes, {&pointer, 1}, stream().get(), {.microbatch = 0, .layer = 7});
    const Graph graph = capture.finish();
    const GraphExec executable(graph);
    EXPECT_EQ(complaint(), "") << "a capture copies nothing";
    executable.launch(stream().ref());
    stream().synchronize("waiting for a replay");
    EXPECT_EQ(complaint(), "");
    counts.write(std::vector<std::int32_t>{0, 0, 0, 10});
    check(cudaDeviceSynchronize(), "waiting for what a test wrote");
    executable.launch(stream().ref());
    stream().synchronize("waiting for a replay");
    EXPECT_NE(complaint().find("layer 7, microbatch 0: the routing gives 10 rows of this rank to expert 3"),
              std::string::npos);
}

}  // namespace
}  // namespace stowage::executor
