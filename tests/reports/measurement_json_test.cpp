#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reports/measurement_json.hpp"
#include "reports/measurement_reader.hpp"
#include "scenarios/types/error.hpp"
#include "tests/reports/measurement_runs.hpp"

namespace stowage::reports {
namespace {

using recording::Measurement;
using types::Bytes;
using types::Nanoseconds;

Measurement read_back(const MeasuredRun& run) { return read_measurement(measurement_json(run), "m.json"); }

std::string message_of(const Json& document) {
    try {
        (void)read_measurement(document, "m.json");
    } catch (const types::InputError& error) {
        return error.what();
    }
    return "read without an error";
}

// Every value of the sample is another one, and what is written anew is made from what was read.
TEST(MeasurementFile, HoldsWhatWasMeasured) {
    MeasuredRun run = a_measured_run();
    const Json written = measurement_json(run);
    run.measurement = read_measurement(Json::parse(to_text(written)), "m.json");
    EXPECT_EQ(to_text(measurement_json(run)), to_text(written));
}

TEST(MeasurementFile, KeepsNanosecondsBytesAndBits) {
    const Measurement before = a_measured_run().measurement;
    const Measurement after = read_back(a_measured_run());
    EXPECT_EQ(after.event_times, before.event_times);
    EXPECT_EQ(after.wall_times, before.wall_times);
    EXPECT_EQ(after.launch_times, before.launch_times);
    EXPECT_EQ(after.losses, before.losses);
    ASSERT_EQ(after.digests.size(), 3U) << "two buffers of one name are two";
    EXPECT_EQ(after.digests[0].value, 0xffffffffffffffff);
    EXPECT_EQ(after.digests[2].value, 39U);
    EXPECT_EQ(after.run_digest, 0x0123456789abcdefU);
    EXPECT_EQ(after.memory[0].driver_used, Bytes{-27}) << "another process may have given memory back";
    ASSERT_TRUE(after.profile);
    EXPECT_EQ(after.profile->device_to_host.busy, Nanoseconds{24'000'005});
    EXPECT_DOUBLE_EQ(after.profile->device_to_host.largest_rate, 54.5e9);
    EXPECT_FALSE(after.samples[1].power_watts);
    EXPECT_EQ(after.samples[1].throttle_reasons, (std::vector<std::string>{"power cap", "heat"}));
}

TEST(MeasurementFile, GivesTheUnitInTheName) {
    const Json document = measurement_json(a_measured_run());
    EXPECT_EQ(document.at("schema"), "stowage/measurement/1");
    EXPECT_EQ(document.at("step_time_us").at("median"), 366000.019);
    EXPECT_EQ(document.at("step_time_us").at("smallest"), 365000.02);
    EXPECT_EQ(document.at("step_time_us").at("largest"), 367000.021);
    EXPECT_EQ(document.at("machine").at("memory_bytes"), 150'000'000'017);
    EXPECT_EQ(document.at("profile").at("device_to_host").at("from_16_mib_gb_per_s"), 54.5);
    EXPECT_EQ(document.at("profile").at("labels")[0].at("predicted_us"), 66000.013);
    EXPECT_EQ(document.at("digests").at("run"), "0123456789abcdef");
    EXPECT_EQ(document.at("digests").at("last_step")[1].at("digest"), "0000000000000000");
}

// 365 / 366.000019 - 1, 210 / 200 - 1, 380 / 400 - 1, 35 / 35 - 1.
TEST(MeasurementFile, SaysHowFarThePredictionWasOff) {
    const Json errors = measurement_json(a_measured_run()).at("errors");
    EXPECT_DOUBLE_EQ(errors.at("step_time").get<double>(), 365'000'000.0 / 366'000'019.0 - 1);
    EXPECT_NEAR(errors.at("peak_allocated").get<double>(), 0.05, 1e-15);
    EXPECT_NEAR(errors.at("peak_reserved").get<double>(), -0.05, 1e-15);
    EXPECT_EQ(errors.at("pinned"), 0.0);
}

TEST(MeasurementFile, ClaimsNoErrorOfWhatWasNotMeasured) {
    MeasuredRun run = a_measured_run();
    run.debug_modes = {"poison"};
    EXPECT_TRUE(measurement_json(run).at("errors").at("step_time").is_null());
    run.debug_modes.clear();
    run.measurement.event_times.clear();
    run.measurement.pinned = Bytes{0};
    run.measurement.profile.reset();
    const Json document = measurement_json(run);
    EXPECT_TRUE(document.at("step_time_us").is_null());
    EXPECT_TRUE(document.at("errors").at("step_time").is_null());
    EXPECT_TRUE(document.at("errors").at("pinned").is_null());
    EXPECT_TRUE(document.at("profile").is_null());
    const Measurement read = read_back(run);
    EXPECT_TRUE(read.event_times.empty());
    EXPECT_FALSE(read.profile);
}

TEST(MeasurementFile, WritesALossThatIsNoNumberAsNull) {
    MeasuredRun run = a_measured_run();
    run.measurement.losses = {1.5, std::numeric_limits<double>::infinity()};
    EXPECT_EQ(measurement_json(run).at("losses"), Json::parse("[1.5, null]"));
    EXPECT_TRUE(std::isnan(read_back(run).losses[1]));
}

// Of 1, 2, ..., 11 microseconds: ceil(0.1 * 11) = 2 values are at most the 10 % one, ceil(0.9 * 11) = 10 the 90 % one.
TEST(MeasurementFile, TakesPercentilesFromTheTimesThemselves) {
    MeasuredRun run = a_measured_run();
    run.measurement.event_times.clear();
    for (const int time : {11, 3, 7, 1, 9, 5, 2, 10, 6, 8, 4}) run.measurement.event_times.emplace_back(1000 * time);
    const Json times = measurement_json(run).at("step_time_us");
    EXPECT_EQ(times.at("p10"), 2.0);
    EXPECT_EQ(times.at("median"), 6.0);
    EXPECT_EQ(times.at("p90"), 10.0);
    EXPECT_EQ(times.at("all")[0], 11.0) << "in the order in which they ran";
    run.measurement.event_times = {Nanoseconds{5000}};
    const Json one = measurement_json(run).at("step_time_us");
    EXPECT_EQ(one.at("p10"), 5.0);
    EXPECT_EQ(one.at("p90"), 5.0);
}

TEST(MeasurementFile, PointsAtTheValueThatIsWrong) {
    const Json good = measurement_json(a_measured_run());
    EXPECT_EQ(message_of(good), "read without an error");
    const auto broken = [&](const char* pointer, const Json& value) {
        Json document = good;
        document[Json::json_pointer(pointer)] = value;
        return message_of(document);
    };
    const std::string begin = "m.json: error: not as stowage writes it: ";
    EXPECT_EQ(broken("/memory/1/device_calls", "x"),
              begin + "memory[1].device_calls: found \"x\", expected a whole number from 0");
    EXPECT_EQ(broken("/pinned_bytes", -1), begin + "pinned_bytes: found -1, expected a whole number from 0");
    EXPECT_EQ(broken("/pinned_bytes", 1.5), begin + "pinned_bytes: found 1.5, expected a whole number from 0");
    EXPECT_EQ(broken("/pinned_bytes", std::numeric_limits<std::uint64_t>::max()),
              begin + "pinned_bytes: found 18446744073709551615, expected a whole number from 0");
    EXPECT_EQ(broken("/machine/multiprocessors", 3'000'000'000),
              begin + "machine.multiprocessors: found 3000000000, expected a whole number from 0 to 2147483647");
    EXPECT_EQ(broken("/step_time_us/all/2", "soon"), begin + "step_time_us.all[2]: found \"soon\", expected a number");
    EXPECT_EQ(broken("/step_time_us/all/2", -1.5),
              begin + "step_time_us.all[2]: found -1.5, expected microseconds from 0");
    EXPECT_EQ(broken("/step_time_us/all/2", 1e300),
              begin + "step_time_us.all[2]: found 1e+300, expected microseconds from 0");
    EXPECT_EQ(broken("/digests/run", "123"), begin + "digests.run: found \"123\", expected 16 hexadecimal digits");
    EXPECT_EQ(broken("/digests/run", "0x23456789abcdef"),
              begin + "digests.run: found \"0x23456789abcdef\", expected 16 hexadecimal digits");
    EXPECT_EQ(broken("/profile/labels", 3), begin + "profile.labels: found 3, expected a list");
    EXPECT_EQ(broken("/graphs", Json::array()), begin + "graphs: found a list, expected an object");
    Json missing = good;
    missing["profile"]["host_to_device"].erase("busy_us");
    EXPECT_EQ(message_of(missing), begin + "profile.host_to_device.busy_us is missing");
}

TEST(MeasurementFile, LeavesOutNoField) {
    // A default measurement has empty lists; each value of the sample's document must differ from it or be checked
    // above.
    MeasuredRun empty;
    empty.scenario = a_measured_run().scenario;
    const Json sample = measurement_json(a_measured_run());
    const Json plain = measurement_json(empty);
    for (const char* key : {"scenario_name",
                            "implementation",
                            "policy",
                            "allocator",
                            "choice",
                            "pipeline_rank",
                            "machine",
                            "warmup_steps",
                            "samples",
                            "step_time_us",
                            "wall_time_us",
                            "host_launch_us",
                            "memory",
                            "peak_allocated_bytes",
                            "peak_reserved_bytes",
                            "allocator_answers",
                            "pinned_bytes",
                            "pinned_placement",
                            "graphs",
                            "losses",
                            "digests",
                            "profile",
                            "predicted",
                            "errors"})
        EXPECT_NE(sample.at(key), plain.at(key)) << key;
}

TEST(MeasuredPrediction, OfFixedAddressesIsTheArena) {
    search::RankOutcome rank;
    rank.step_time = Nanoseconds{1};
    rank.exposed_copy = Nanoseconds{2};
    rank.steady_peak_allocated = Bytes{3};
    rank.steady_peak_reserved = Bytes{4};
    rank.pinned_arena = Bytes{5};
    rank.record_peak_reserved = Bytes{100};  // of the first iteration: not a steady step's
    const PredictedRank caching = predicted_rank(rank, nullptr);
    EXPECT_EQ(caching.step_time, Nanoseconds{1});
    EXPECT_EQ(caching.exposed_copy, Nanoseconds{2});
    EXPECT_EQ(caching.peak_allocated, Bytes{3});
    EXPECT_EQ(caching.peak_reserved, Bytes{4});
    EXPECT_EQ(caching.pinned, Bytes{5});
    memory::PlannedMemory planned;
    planned.states = {0, 1024, 512};
    planned.step = {1024, 2048, 2000};
    planned.steady_peak = Bytes{1512};  // less than what the arena has to hold: copies and graphs hold on to the rest
    EXPECT_EQ(predicted_rank(rank, &planned).peak_allocated, Bytes{1512});
    EXPECT_EQ(predicted_rank(rank, &planned).peak_reserved, Bytes{3072});
    EXPECT_EQ(predicted_rank(rank, &planned).step_time, Nanoseconds{1});
}

// 100 less 30 of waiting are 70; copies of 80 back to back in one direction take longer.
TEST(MeasuredPrediction, HasTheFloorOfItsOwnCopies) {
    search::RankOutcome rank;
    rank.step_time = Nanoseconds{100};
    rank.exposed_copy = Nanoseconds{30};
    rank.device_to_host_alone = Nanoseconds{60};
    rank.host_to_device_alone = Nanoseconds{50};
    EXPECT_EQ(predicted_rank(rank, nullptr).floor, Nanoseconds{70});
    rank.host_to_device_alone = Nanoseconds{80};
    EXPECT_EQ(predicted_rank(rank, nullptr).floor, Nanoseconds{80});
    rank.device_to_host_alone = Nanoseconds{90};
    EXPECT_EQ(predicted_rank(rank, nullptr).floor, Nanoseconds{90});
}

}  // namespace
}  // namespace stowage::reports
