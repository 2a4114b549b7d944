#include "planner/program/stowage_manager.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

// Every layer has one group, so that groups and layers have the same numbers.

namespace stowage::program {
namespace {

using layers::StepKind;
using Log = std::vector<std::string>;

/// Chunks of `leaves.size()` layers; backwards in the order of the forwards.
class Driver {
public:
    Driver(std::size_t chunks, const std::vector<bool>& leaves, std::int64_t reload_ahead, std::int64_t join_after)
        : layers_(static_cast<std::uint32_t>(leaves.size())), manager_(make(chunks, leaves, reload_ahead, join_after)) {
        manager_.begin_record();
    }

    void forward(std::uint32_t chunk) {
        manager_.begin_forward(chunk);
        for (std::uint32_t group = 0; group < layers_; ++group) {
            manager_.start(chunk, group);
            if (manager_.commit(chunk, group)) add("off", {chunk, group});
            if (manager_.joined()) add("join", *manager_.joined());
        }
    }
    void backward(std::uint32_t chunk) {
        for (std::uint32_t group = layers_; group-- > 0;)
            for (const StepKind kind : {StepKind::commit, StepKind::read, StepKind::read, StepKind::start}) {
                const BackwardOrders orders = manager_.backward_hook(kind, chunk, group);
                for (const GroupRef& joined : orders.joins) add("join", joined);
                for (const GroupRef& reloaded : orders.reloads) add("load", reloaded);
                if (orders.wait) add(orders.wait_is_near ? "wait near" : "wait", *orders.wait);
            }
    }
    void next_step() { manager_.begin_steady(); }
    Log take() { return std::exchange(log_, {}); }

private:
    static StowageManager make(std::size_t chunks, const std::vector<bool>& leaves, std::int64_t reload_ahead,
                               std::int64_t join_after) {
        StageGroups groups;
        groups.leaves = leaves;
        for (std::uint32_t group = 0; group < leaves.size(); ++group) {
            groups.positions.push_back(group);
            groups.backward_order.insert(groups.backward_order.begin(), group);
        }
        const auto shared = std::make_shared<const StageGroups>(groups);
        std::vector<std::uint32_t> order(chunks);
        std::iota(order.begin(), order.end(), 0U);
        return StowageManager{std::vector<std::shared_ptr<const StageGroups>>(chunks, shared), order,
                              types::FreeOffload{{}, reload_ahead, join_after}};
    }
    void add(const std::string& what, GroupRef ref) {
        log_.push_back(what + " " + std::to_string(ref.chunk) + "." + std::to_string(ref.group));
    }

    std::uint32_t layers_;
    StowageManager manager_;
    Log log_;
};

TEST(StowageManager, FollowsTheExampleOfItsHeader) {
    Driver driver(1, {true, true, true, true}, 2, 1);
    driver.forward(0);
    EXPECT_EQ(driver.take(), (Log{"off 0.0", "off 0.1", "join 0.0", "off 0.2", "join 0.1", "off 0.3", "join 0.2"}));
    driver.backward(0);
    EXPECT_EQ(driver.take(), (Log{"join 0.3", "load 0.3", "load 0.2", "wait near 0.3", "load 0.1", "wait 0.2",
                                  "load 0.0", "wait 0.1", "wait 0.0"}));
}

TEST(StowageManager, DoesTheSameInEveryStep) {
    Driver driver(1, {true, false, true}, 1, 3);
    driver.forward(0);
    driver.backward(0);
    const Log first = driver.take();
    driver.next_step();
    driver.forward(0);
    driver.backward(0);
    EXPECT_EQ(driver.take(), first);
}

TEST(StowageManager, JoinsAtTheCommitItselfIfItIsToldTo) {
    Driver driver(1, {true, true}, 1, 0);
    driver.forward(0);
    EXPECT_EQ(driver.take(), (Log{"off 0.0", "join 0.0", "off 0.1", "join 0.1"}));
}

TEST(StowageManager, CountsKeptGroupsOnBothWays) {
    // Only layer 0 leaves. Join after 2 commits: at layer 2's. Reload 2 ahead: when layer 2 is done.
    Driver driver(1, {true, false, false, false}, 2, 2);
    driver.forward(0);
    EXPECT_EQ(driver.take(), (Log{"off 0.0", "join 0.0"}));
    driver.backward(0);
    EXPECT_EQ(driver.take(), (Log{"load 0.0", "wait 0.0"}));
}

TEST(StowageManager, ReloadsForTheNextChunkWhereItsForwardIsDone) {
    // Two chunks in flight, as on an early stage of a pipeline: the end of the first backward reloads for the second.
    Driver driver(2, {false, true}, 1, 0);
    driver.forward(0);
    driver.forward(1);
    driver.take();
    driver.backward(0);
    EXPECT_EQ(driver.take(), (Log{"load 0.1", "wait near 0.1", "load 1.1"}));
    driver.backward(1);
    EXPECT_EQ(driver.take(), (Log{"wait 1.1"}));
}

TEST(StowageManager, WaitsWithReloadsForAForwardThatIsStillToCome) {
    // One chunk after another: at the end of the first backward nothing of the second has left.
    Driver driver(2, {true, true}, 3, 5);
    driver.forward(0);
    driver.backward(0);
    driver.take();
    driver.forward(1);
    EXPECT_EQ(driver.take(), (Log{"off 1.0", "off 1.1"}));
    driver.backward(1);
    EXPECT_EQ(driver.take(), (Log{"join 1.0", "join 1.1", "load 1.1", "load 1.0", "wait near 1.1", "wait 1.0"}));
}

TEST(StowageManager, ReloadsAWholeLayerAtTheFirstHookOfTheOneBeforeUnderGraphsOfLayers) {
    // Three layers of two groups, 0 and 1, 2 and 3, 4 and 5; all but the last layer's leave.
    StageGroups groups;
    groups.leaves = {true, true, true, true, false, false};
    groups.positions = {0, 0, 1, 1, 2, 2};
    groups.backward_order = {5, 4, 3, 2, 1, 0};
    StowageManager manager({std::make_shared<const StageGroups>(groups)}, {0}, types::FreeOffload{{}, 1, 0}, true);
    manager.begin_steady();
    for (std::uint32_t group = 0; group < 6; ++group) manager.commit(0, group);
    std::vector<std::size_t> reloads;  // by hook
    for (std::uint32_t group = 6; group-- > 0;)
        for (const StepKind kind : {StepKind::read, StepKind::start})
            reloads.push_back(manager.backward_hook(kind, 0, group).reloads.size());
    EXPECT_EQ(reloads, (std::vector<std::size_t>{2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(StowageManager, PassesOverAChunkWithoutHooks) {
    // The first chunk lies in graphs whole: in the steady step nobody asks about it.
    Driver driver(2, {true, true}, 1, 0);
    driver.forward(1);
    driver.take();
    driver.backward(1);
    EXPECT_EQ(driver.take(), (Log{"load 1.1", "wait near 1.1", "load 1.0", "wait 1.0"}));
}

TEST(StowageManager, RefusesAReloadBehindItsUse) {
    EXPECT_THROW(Driver(1, {true}, 0, 1), std::logic_error);
    EXPECT_THROW(Driver(1, {true}, 1, -1), std::logic_error);
}

}  // namespace
}  // namespace stowage::program
