#include "executor/workload/random.hpp"
#include "scenarios/types/error.hpp"
#include "tests/executor/workload/workload_fixture.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;

constexpr std::uint64_t kSeed = 7;  // of the fixture

class Load : public WorkloadGpu {};

CallSizes tokens(std::int64_t rows, std::int64_t vocabulary) {
    CallSizes sizes;
    sizes.rows = rows;
    sizes.columns = vocabulary;
    return sizes;
}

std::vector<std::int32_t> expected_tokens(std::int64_t rows, std::int64_t vocabulary, std::uint64_t step,
                                          std::uint64_t microbatch, std::uint64_t first) {
    std::vector<std::int32_t> result;
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(rows); ++i) {
        result.push_back(
            random_token(stream_key(kSeed, step, microbatch), i + first, static_cast<std::uint64_t>(vocabulary)));
    }
    return result;
}

TEST_F(Load, GivesTheTokensOfSeedStepAndMicrobatch) {
    const Buffer out(4 * 1001);
    run(Call::load_tokens, tokens(1001, 32000), {&out}, {.microbatch = 3, .layer = 0});
    EXPECT_EQ(out.read<std::int32_t>(), expected_tokens(1001, 32000, 0, 3, 0));
    workload().begin_step(12, stream().get());
    run(Call::load_tokens, tokens(1001, 32000), {&out}, {.microbatch = 3, .layer = 0});
    EXPECT_EQ(out.read<std::int32_t>(), expected_tokens(1001, 32000, 12, 3, 0));
}

// Rows go place by place, the sequences of a batch side by side: the next token of a sequence is `batch` rows on.
TEST_F(Load, GivesAsLabelsTheNextTokenOfEachSequence) {
    CallSizes sizes = tokens(64, 1000);
    sizes.batch = 2;
    sizes.shift = true;
    const Buffer labels(4 * 64);
    run(Call::load_tokens, sizes, {&labels});
    EXPECT_EQ(labels.read<std::int32_t>(), expected_tokens(64, 1000, 0, 0, 2));
}

// Three parts of 64 rows, two sequences: labels one token on, then two, then three.
TEST_F(Load, GivesLaterTokensInLaterParts) {
    CallSizes sizes = tokens(192, 1000);
    sizes.batch = 2;
    sizes.shift = true;
    sizes.depths = 3;
    const Buffer labels(4 * 192);
    run(Call::load_tokens, sizes, {&labels});
    std::vector<std::int32_t> expected;
    for (const std::uint64_t first : {2U, 4U, 6U})
        for (const std::int32_t token : expected_tokens(64, 1000, 0, 0, first)) expected.push_back(token);
    EXPECT_EQ(labels.read<std::int32_t>(), expected);
    sizes.rows = 190;
    EXPECT_THROW(run(Call::load_tokens, sizes, {&labels}), types::UnsupportedError);
}

TEST_F(Load, GivesTheSameHiddenStatesAsTheHost) {
    for (const std::int64_t columns : {8, 13}) {
        CallSizes sizes;
        sizes.rows = 129;
        sizes.columns = columns;
        const Buffer out = empty_bf16(129 * columns);
        run(Call::load_hidden, sizes, {&out}, {.microbatch = 1, .layer = 0});
        Values expected;
        for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(129 * columns); ++i) {
            expected.push_back(round_to_bf16(random_hidden(stream_key(kSeed, 0, 1), i)));
        }
        EXPECT_EQ(out.read_bf16(), expected) << columns << " columns";
    }
}

// The step is read on the device when the graph runs, not when it was captured.
TEST_F(Load, SeesTheStepOfEachReplayOfAGraph) {
    const Buffer out(4 * 256);
    const CallSizes sizes = tokens(256, 5000);
    void* pointer = out.get();
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream().get(), cudaStreamCaptureModeThreadLocal), "beginning a capture");
    workload().launch(Call::load_tokens, sizes, {&pointer, 1}, stream().get(), {});
    check(cudaStreamEndCapture(stream().get(), &graph), "ending a capture");
    cudaGraphExec_t executable = nullptr;
    check(cudaGraphInstantiate(&executable, graph, 0), "making a graph");
    for (const std::uint64_t step : {4U, 5U}) {
        workload().begin_step(step, stream().get());
        check(cudaGraphLaunch(executable, stream().get()), "launching a graph");
        stream().synchronize();
        EXPECT_EQ(out.read<std::int32_t>(), expected_tokens(256, 5000, step, 0, 0));
    }
    check(cudaGraphExecDestroy(executable), "releasing a graph");
    check(cudaGraphDestroy(graph), "releasing a graph");
}

TEST_F(Load, RefusesOperandsThatAreNotThoseOfTheCall) {
    void* pointers[2] = {nullptr, nullptr};
    EXPECT_THROW(workload().launch(Call::load_tokens, tokens(8, 8), pointers, stream().get(), {}), std::logic_error);
    EXPECT_THROW(workload().launch(Call::none, tokens(8, 8), pointers, stream().get(), {}), std::logic_error);
}

TEST_F(Load, ClearsAndCopiesBytes) {
    CallSizes bytes;
    bytes.rows = 100;
    const Buffer source = int_buffer(std::vector<std::int32_t>(50, 77));
    const Buffer target = int_buffer(std::vector<std::int32_t>(50, 1));
    run(Call::copy, bytes, {&source, &target});
    std::vector<std::int32_t> expected(50, 1);
    std::fill(expected.begin(), expected.begin() + 25, 77);
    EXPECT_EQ(target.read<std::int32_t>(), expected);
    run(Call::clear, bytes, {&source});
    EXPECT_EQ(source.read<std::int32_t>()[24], 0);
    EXPECT_EQ(source.read<std::int32_t>()[25], 77);
}

}  // namespace
}  // namespace stowage::executor
