#include "planner/simulator/simulator.hpp"

#include <algorithm>
#include <memory>

#include "scenarios/types/check.hpp"

namespace stowage::simulator {
namespace {

constexpr int kSteadySteps = 2;

class Pipeline {
public:
    Pipeline(const std::vector<const program::StepProgram*>& programs, const types::Node& node,
             const SimulationOptions& options)
        : forward_(programs.size()), backward_(programs.size()) {
        for (std::size_t rank = 0; rank < programs.size(); ++rank)
            ranks_.push_back(std::make_unique<RankSimulator>(*programs[rank], node, options, channels_of(rank)));
    }

    /// Result: how long the slowest rank took, or nothing if a rank ran out of memory.
    std::optional<types::Nanoseconds> run(RunStage stage) {
        for (auto& rank : ranks_) rank->begin(stage, clock_);
        run_until_done();
        if (out_of_memory_) return std::nullopt;
        for (const auto* channels : {&forward_, &backward_})
            for (const PeerChannel& channel : *channels)
                STOWAGE_CHECK(channel.balanced(), "a transfer was sent that nobody received");
        Tick end = clock_;
        for (const auto& rank : ranks_) end = std::max(end, rank->finished_at());
        const types::Nanoseconds duration{end - clock_};
        clock_ = end;
        return duration;
    }

    [[nodiscard]] std::optional<std::size_t> out_of_memory() const { return out_of_memory_; }
    RankSimulator& rank(std::size_t number) { return *ranks_[number]; }
    [[nodiscard]] std::size_t size() const { return ranks_.size(); }

private:
    /// A rank that stops needs one of its neighbours to reach a transfer. As long as some rank gets further, all do in
    /// the end.
    void run_until_done() {
        std::vector<bool> done(ranks_.size(), false);
        std::size_t left = ranks_.size();
        while (left > 0) {
            bool moved = false;
            for (std::size_t i = 0; i < ranks_.size(); ++i) {
                if (done[i]) continue;
                const std::uint64_t before = ranks_[i]->progress();
                const RankState state = ranks_[i]->run();
                if (state == RankState::out_of_memory) {
                    out_of_memory_ = i;
                    return;
                }
                done[i] = state == RankState::done;
                left -= done[i] ? 1 : 0;
                moved = moved || done[i] || ranks_[i]->progress() != before;
            }
            STOWAGE_CHECK(moved, "the pipeline deadlocks: every rank waits for a neighbour");
        }
    }

    /// The ranks form a ring: link i joins rank i and the next one.
    RankSimulator::Channels channels_of(std::size_t rank) {
        if (forward_.size() < 2) return {};
        const std::size_t before = (rank + forward_.size() - 1) % forward_.size();
        RankSimulator::Channels channels;
        channels[program::index(program::TransferKind::send_forward)] = &forward_[rank];
        channels[program::index(program::TransferKind::receive_forward)] = &forward_[before];
        channels[program::index(program::TransferKind::send_backward)] = &backward_[before];
        channels[program::index(program::TransferKind::receive_backward)] = &backward_[rank];
        return channels;
    }

    std::vector<PeerChannel> forward_;   ///< outputs, by link
    std::vector<PeerChannel> backward_;  ///< output gradients, by link
    std::vector<std::unique_ptr<RankSimulator>> ranks_;
    Tick clock_ = 0;
    std::optional<std::size_t> out_of_memory_;
};

}  // namespace

Prediction simulate(const std::vector<const program::StepProgram*>& programs, const types::Node& node,
                    const SimulationOptions& options) {
    Pipeline pipeline(programs, node, options);
    Prediction prediction;
    prediction.ranks.resize(pipeline.size());
    auto stage = [&](RunStage which, StageResult RankPrediction::*result) {
        const auto duration = pipeline.run(which);
        prediction.out_of_memory = pipeline.out_of_memory();
        for (std::size_t i = 0; i < pipeline.size(); ++i) prediction.ranks[i].*result = pipeline.rank(i).result();
        return duration.value_or(types::Nanoseconds{0});
    };
    stage(RunStage::setup, &RankPrediction::setup);
    if (!prediction.out_of_memory) prediction.record_time = stage(RunStage::record, &RankPrediction::record);
    for (int i = 0; i < kSteadySteps && !prediction.out_of_memory; ++i)
        prediction.step_time = stage(RunStage::steady, &RankPrediction::steady);
    for (std::size_t i = 0; i < pipeline.size(); ++i) {
        prediction.ranks[i].pinned = pipeline.rank(i).pinned();
        prediction.ranks[i].timeline = pipeline.rank(i).take_timeline();
    }
    return prediction;
}

}  // namespace stowage::simulator
