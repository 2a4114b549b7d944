#include "planner/simulator/simulator.hpp"

#include <algorithm>
#include <concepts>
#include <memory>
#include <type_traits>

#include "planner/simulator/step_row.hpp"
#include "planner/simulator/unshared_rank.hpp"
#include "planner/simulator/workers.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::simulator {
namespace {

constexpr int kSteadySteps = 2;

/// Whether the iteration asked the device for memory, or gave some back: the next one may then be another.
bool takes_memory(const RankPrediction& rank) {
    return rank.steady.device_allocation_calls > 0 || rank.steady.cache_flushes > 0;
}

template <class Rank>
class Pipeline {
    static constexpr bool kMemoryFirst = std::same_as<Rank, UnsharedRank>;

public:
    Pipeline(const std::vector<const program::StepProgram*>& programs, const types::Node& node,
             const SimulationOptions& options)
        : forward_(programs.size()),
          backward_(programs.size()),
          workers_(std::max(1, std::min(options.threads, static_cast<int>(programs.size())))) {
        for (std::size_t rank = 0; rank < programs.size(); ++rank)
            ranks_.push_back(std::make_unique<Rank>(*programs[rank], node, options, channels_of(rank)));
    }

    void begin(RunStage stage) {
        for (auto& rank : ranks_) rank->begin(stage, clock_);
        if constexpr (kMemoryFirst) workers_.run(ranks_.size(), [&](std::size_t i) { ranks_[i]->walk(); });
    }

    void begin_row(int steps) {
        for (auto& rank : ranks_) rank->begin(RunStage::steady, clock_, steps);
    }

    /// Runs what was begun. Result: how long the slowest rank took, or nothing if a rank ran out of memory.
    std::optional<types::Nanoseconds> run() {
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

    /// Whether it is known of a stage that was begun that a rank will ask the device for memory, and all will get it.
    [[nodiscard]] bool will_take_memory() const {
        if constexpr (kMemoryFirst)
            return std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->takes_memory(); }) &&
                   std::none_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->full(); });
        return false;
    }

    [[nodiscard]] std::optional<std::size_t> out_of_memory() const { return out_of_memory_; }
    Rank& rank(std::size_t number) { return *ranks_[number]; }
    [[nodiscard]] std::size_t size() const { return ranks_.size(); }

private:
    /// A rank that stops needs one of its neighbours to reach a transfer. As long as some rank gets further, all do in
    /// the end. Ranks that are not neighbours run at once: they share no channel, so the result is the same whoever is
    /// faster. Where the memory has been walked before, what is left is less than threads would wait for each other.
    void run_until_done() {
        states_.assign(ranks_.size(), RankState::needs_neighbour);
        std::vector<std::size_t> running;
        while (std::any_of(states_.begin(), states_.end(), [](RankState state) { return state != RankState::done; })) {
            moved_.assign(ranks_.size(), 0);
            for (std::size_t turn = 0; turn < 3; ++turn) {
                running.clear();
                for (std::size_t i = 0; i < ranks_.size(); ++i)
                    if (turn_of(i) == turn && states_[i] != RankState::done) running.push_back(i);
                if constexpr (kMemoryFirst)
                    for (const std::size_t i : running) advance(i);
                else if (!running.empty())
                    workers_.run(running.size(), [&](std::size_t i) { advance(running[i]); });
                if (ran_out_of_memory()) return;
            }
            const bool moved = std::any_of(moved_.begin(), moved_.end(), [](char rank) { return rank != 0; });
            STOWAGE_CHECK(moved, "the pipeline deadlocks: every rank waits for a neighbour");
        }
    }

    /// Notes the first rank that did.
    bool ran_out_of_memory() {
        const auto rank = std::find(states_.begin(), states_.end(), RankState::out_of_memory);
        if (rank != states_.end()) out_of_memory_ = static_cast<std::size_t>(rank - states_.begin());
        return out_of_memory_.has_value();
    }

    /// Even ranks, odd ranks, and the last of an odd number, which has the first for its neighbour.
    [[nodiscard]] std::size_t turn_of(std::size_t rank) const {
        const bool closes_odd_ring = ranks_.size() % 2 == 1 && ranks_.size() > 1 && rank + 1 == ranks_.size();
        return closes_odd_ring ? 2 : rank % 2;
    }

    void advance(std::size_t rank) {
        const std::uint64_t before = ranks_[rank]->progress();
        states_[rank] = ranks_[rank]->run();
        moved_[rank] = states_[rank] == RankState::done || ranks_[rank]->progress() != before ? 1 : 0;
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
    Workers workers_;
    std::vector<RankState> states_;
    std::vector<char> moved_;  ///< in this round, by rank
    std::vector<std::unique_ptr<Rank>> ranks_;
    Tick clock_ = 0;
    std::optional<std::size_t> out_of_memory_;
};

template <class Rank>
Prediction run_stages(const std::vector<const program::StepProgram*>& programs, const types::Node& node,
                      const SimulationOptions& options) {
    Pipeline<Rank> pipeline(programs, node, options);
    Prediction prediction;
    prediction.ranks.resize(pipeline.size());
    const auto finish = [&](StageResult RankPrediction::*result) {
        const auto duration = pipeline.run();
        prediction.out_of_memory = pipeline.out_of_memory();
        for (std::size_t i = 0; i < pipeline.size(); ++i) prediction.ranks[i].*result = pipeline.rank(i).result();
        return duration.value_or(types::Nanoseconds{0});
    };
    const auto stage = [&](RunStage which, StageResult RankPrediction::*result) {
        pipeline.begin(which);
        return finish(result);
    };
    stage(RunStage::setup, &RankPrediction::setup);
    if (!prediction.out_of_memory) prediction.record_time = stage(RunStage::record, &RankPrediction::record);
    const auto has = [&](RunStage which) {
        return std::any_of(programs.begin(), programs.end(),
                           [which](const program::StepProgram* one) { return !one->instances(which).empty(); });
    };
    if (has(RunStage::eager) && !prediction.out_of_memory)
        prediction.eager_time = stage(RunStage::eager, &RankPrediction::eager);
    if (has(RunStage::capture) && !prediction.out_of_memory)
        prediction.capture_time = stage(RunStage::capture, &RankPrediction::capture);
    if constexpr (std::is_same_v<Rank, RankSimulator>)
        if (const int steps = steps_in_row(programs, node); steps > 1 && !prediction.out_of_memory) {
            pipeline.begin_row(steps);
            finish(&RankPrediction::steady);
        }
    for (int i = 0; i < kSteadySteps && !prediction.out_of_memory; ++i) {
        pipeline.begin(RunStage::steady);
        // Another one follows and is reported: nobody asks how long this one takes.
        if (i + 1 < kSteadySteps && pipeline.will_take_memory()) continue;
        prediction.step_time = finish(&RankPrediction::steady);
        if (std::none_of(prediction.ranks.begin(), prediction.ranks.end(), takes_memory)) break;
    }
    for (std::size_t i = 0; i < pipeline.size(); ++i) {
        prediction.ranks[i].pinned = pipeline.rank(i).pinned();
        prediction.ranks[i].timeline = pipeline.rank(i).take_timeline();
    }
    if constexpr (std::is_same_v<Rank, RankSimulator>)
        if (prediction.out_of_memory) prediction.shortage = pipeline.rank(*prediction.out_of_memory).shortage();
    return prediction;
}

}  // namespace

Prediction simulate(const std::vector<const program::StepProgram*>& programs, const types::Node& node,
                    const SimulationOptions& options) {
    STOWAGE_CHECK(!options.alone || programs.size() == 1, "a rank that runs alone is the only one");
    const bool unshared = std::all_of(programs.begin(), programs.end(), [&](const program::StepProgram* program) {
        return UnsharedRank::handles(*program, node, options);
    });
    if (unshared && !options.plain) {
        Prediction prediction = run_stages<UnsharedRank>(programs, node, options);
        if (!prediction.out_of_memory) return prediction;
    }
    return run_stages<RankSimulator>(programs, node, options);
}

}  // namespace stowage::simulator
