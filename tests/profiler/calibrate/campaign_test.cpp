#include "profiler/calibrate/campaign.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/profiler/calibrate/fake_bench.hpp"

namespace stowage::calibrate {
namespace {

using types::operator""_GiB;
using types::operator""_KiB;

CampaignOptions few_rounds() {
    CampaignOptions options;
    options.copy_rounds = 3;
    options.host_rounds = 3;
    options.kernel_rounds = 4;
    options.beside_rounds = 6;
    return options;
}

Measurements measure(FakeBench& bench, const CampaignOptions& options = few_rounds()) {
    return run_campaign(bench, options, [](const std::string&) {});
}

std::vector<std::string> asked_for(const FakeBench& bench, const std::string& beginning) {
    std::vector<std::string> result;
    for (const std::string& one : bench.asked())
        if (one.starts_with(beginning)) result.push_back(one);
    return result;
}

// Drift of clocks and power is the same for all cases of a round, and no case always follows the same one.
TEST(Campaign, RunsEveryKernelOnceARoundInAnotherOrder) {
    FakeBench bench;
    measure(bench);
    const std::vector<std::string> runs = asked_for(bench, "run ");
    const std::size_t cases = fitted_kernels().size();
    ASSERT_EQ(runs.size(), 4 * cases);
    std::set<std::vector<std::string>> orders;
    for (std::size_t round = 0; round < 4; ++round) {
        const auto begin = runs.begin() + static_cast<std::ptrdiff_t>(round * cases);
        const std::vector<std::string> order(begin, begin + static_cast<std::ptrdiff_t>(cases));
        EXPECT_EQ(std::set<std::string>(order.begin(), order.end()).size(), cases);
        orders.insert(order);
    }
    EXPECT_EQ(orders.size(), 4U);
}

TEST(Campaign, SetsBlocksBesideCopiesNextToThoseWithout) {
    FakeBench bench;
    const Measurements measurements = measure(bench);
    ASSERT_EQ(measurements.beside_copies.size(), beside_kernels().size());
    const std::vector<std::string> blocks = asked_for(bench, "beside ");
    const std::size_t each = 1 + 6 * kBesides;  // the first one brings the chip to its power
    ASSERT_EQ(blocks.size(), beside_kernels().size() * each);
    std::set<std::string> orders;
    for (std::size_t kernel = 0; kernel < beside_kernels().size(); ++kernel) {
        for (std::size_t round = 0; round < 6; ++round) {
            std::string order;
            std::set<std::string> kinds;
            for (std::size_t i = 0; i < kBesides; ++i) {
                const std::string& block = blocks[kernel * each + 1 + round * kBesides + i];
                EXPECT_NE(block.find(name_of(beside_kernels()[kernel].kernel)), std::string::npos) << block;
                kinds.insert(block.substr(0, 8));
                order += block[7];
            }
            EXPECT_EQ(kinds.size(), kBesides) << "every kind once a round";
            orders.insert(order);
        }
    }
    EXPECT_GT(orders.size(), 6U);
}

// The memory of graphs that were destroyed is used again, and rates are those of a chip that has been busy for a while.
TEST(Campaign, MakesGraphsFirstAndLoadsTheChipBeforeItMeasuresRates) {
    FakeBench bench;
    measure(bench);
    const std::vector<std::string>& asked = bench.asked();
    EXPECT_EQ(asked.front(), "stock graphs");
    const auto place = [&](const std::string& beginning) {
        return std::ranges::find_if(asked, [&](const std::string& one) { return one.starts_with(beginning); }) -
               asked.begin();
    };
    EXPECT_LT(place("copy "), place("mix "));
    EXPECT_LT(place("mix "), place("run "));
    EXPECT_LT(place("run "), place("beside "));
    const std::vector<std::string> mixes = asked_for(bench, "mix ");
    const std::vector<std::string> expected{"mix 1.000000", "mix 1.000000", "mix 0.750000",
                                            "mix 0.750000", "mix 0.500000", "mix 0.500000"};
    EXPECT_EQ(mixes, expected) << "settling, then measuring, at each duty cycle";
}

TEST(Campaign, CopiesEverySizeInBothDirectionsPinnedAndPageable) {
    FakeBench bench;
    const Measurements measurements = measure(bench);
    EXPECT_EQ(copy_sizes().front(), 64_KiB);
    EXPECT_EQ(copy_sizes().back(), 1_GiB);
    std::map<std::pair<CopyDirection, bool>, std::size_t> sizes;
    for (const CopyTimes& times : measurements.copies) {
        ++sizes[{times.copy.direction, times.copy.pinned}];
        EXPECT_EQ(times.copy_us.size(), times.copy.pinned ? 3U : 2U);
    }
    for (const CopyDirection direction : {CopyDirection::device_to_host, CopyDirection::host_to_device}) {
        EXPECT_EQ((sizes[{direction, true}]), copy_sizes().size());
        EXPECT_EQ((sizes[{direction, false}]), copy_sizes().size() - 1) << "a GiB of pageable memory takes too long";
    }
    EXPECT_EQ(measurements.duplex.size(), copy_sizes().size());
    EXPECT_TRUE(measurements.shared_copies.empty());
}

TEST(Campaign, CopiesOnAllDevicesWhereThereAreSeveral) {
    FakeBench bench;
    bench.set_devices(4);
    const Measurements measurements = measure(bench);
    ASSERT_EQ(measurements.shared_copies.size(), 4U);
    EXPECT_EQ(measurements.shared_copies.front().gb_per_s.size(), 4U);
}

TEST(Campaign, GoesOnWithoutWhatTheMachineCannotRun) {
    FakeBench bench;
    bench.refuse("heads of 256");
    const Measurements measurements = measure(bench);
    EXPECT_TRUE(asked_for(bench, "run attention forward 16 heads of 256").empty());
    EXPECT_EQ(measurements.kernels.size(), fitted_kernels().size() - 2);
    ASSERT_EQ(measurements.notes.size(), 2U);
    EXPECT_EQ(measurements.notes[0], "not measured: attention forward 16 heads of 256, 1 x 4096 tokens: no");
}

TEST(Campaign, SaysThatClocksAreNotKnown) {
    FakeBench bench;
    bench.hide_clocks();
    const Measurements measurements = measure(bench);
    ASSERT_EQ(measurements.notes.size(), 1U);
    EXPECT_EQ(measurements.notes[0], "clocks and power are not known: there is no management library");
}

// The fake's clock goes on by half a second whenever it is read, before and after a phase.
TEST(Campaign, TellsWhatItDoesAndHowLongThatTook) {
    FakeBench bench;
    std::vector<std::string> told;
    const Measurements measurements =
        run_campaign(bench, few_rounds(), [&](const std::string& line) { told.push_back(line); });
    ASSERT_EQ(measurements.phases.size(), told.size());
    for (std::size_t i = 0; i < told.size(); ++i) {
        EXPECT_EQ(measurements.phases[i].name, told[i]);
        EXPECT_EQ(measurements.phases[i].seconds, 0.5);
    }
}

TEST(Campaign, OfOneSeedAsksTheSameInTheSameOrder) {
    FakeBench one;
    FakeBench two;
    FakeBench other;
    measure(one);
    measure(two);
    CampaignOptions options = few_rounds();
    options.seed = 2;
    measure(other, options);
    EXPECT_EQ(one.asked(), two.asked());
    EXPECT_NE(one.asked(), other.asked());
}

}  // namespace
}  // namespace stowage::calibrate
