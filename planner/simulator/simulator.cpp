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
        : channels_(programs.size() > 1 ? programs.size() - 1 : 0) {
        for (std::size_t rank = 0; rank < programs.size(); ++rank)
            ranks_.push_back(std::make_unique<RankSimulator>(*programs[rank], node, options,
                                                             rank > 0 ? &channels_[rank - 1] : nullptr,
                                                             rank + 1 < programs.size() ? &channels_[rank] : nullptr));
    }

    /// Result: how long the slowest rank took.
    types::Nanoseconds run(RunStage stage) {
        for (auto& rank : ranks_) rank->begin(stage, clock_);
        run_until_done();
        for (const PeerChannel& channel : channels_)
            STOWAGE_CHECK(channel.balanced(), "a transfer was sent that nobody received");
        Tick end = clock_;
        for (const auto& rank : ranks_) end = std::max(end, rank->finished_at());
        const types::Nanoseconds duration{end - clock_};
        clock_ = end;
        return duration;
    }

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
                done[i] = ranks_[i]->run();
                left -= done[i] ? 1 : 0;
                moved = moved || done[i] || ranks_[i]->progress() != before;
            }
            STOWAGE_CHECK(moved, "the pipeline deadlocks: every rank waits for a neighbour");
        }
    }

    std::vector<PeerChannel> channels_;
    std::vector<std::unique_ptr<RankSimulator>> ranks_;
    Tick clock_ = 0;
};

}  // namespace

Prediction simulate(const std::vector<const program::StepProgram*>& programs, const types::Node& node,
                    const SimulationOptions& options) {
    Pipeline pipeline(programs, node, options);
    Prediction prediction;
    prediction.ranks.resize(pipeline.size());
    auto collect = [&](StageResult RankPrediction::*stage) {
        for (std::size_t i = 0; i < pipeline.size(); ++i) prediction.ranks[i].*stage = pipeline.rank(i).result();
    };
    pipeline.run(RunStage::setup);
    collect(&RankPrediction::setup);
    prediction.record_time = pipeline.run(RunStage::record);
    collect(&RankPrediction::record);
    for (int i = 0; i < kSteadySteps; ++i) prediction.step_time = pipeline.run(RunStage::steady);
    collect(&RankPrediction::steady);
    for (std::size_t i = 0; i < pipeline.size(); ++i) {
        prediction.ranks[i].pinned = pipeline.rank(i).pinned();
        prediction.ranks[i].timeline = pipeline.rank(i).take_timeline();
    }
    return prediction;
}

}  // namespace stowage::simulator
