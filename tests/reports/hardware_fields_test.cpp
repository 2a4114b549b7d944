// A plan reloads to the machine that it was made for, down to every figure.
#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <type_traits>

#include "reports/scenario_json.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/reports/scenario_fields.hpp"

namespace stowage::reports {
namespace {

/// What each figure of a machine is set to in turn: no default and no shipped file has it.
class Figures {
public:
    double number() { return static_cast<double>(++last_); }
    std::int64_t whole() { return ++last_; }

private:
    std::int64_t last_ = 7000;
};

template <class Field>
void set(Field& field, Figures& figures) {
    using types::fields_of;
    if constexpr (std::is_same_v<Field, std::string>)
        field = "name " + std::to_string(figures.whole());
    else if constexpr (std::is_same_v<Field, int>)
        field = static_cast<int>(60 + figures.whole() % 100);
    else if constexpr (std::is_same_v<Field, std::int64_t>)
        field = figures.whole();
    else if constexpr (std::is_same_v<Field, double>)
        field = 0.5 + 1.0 / figures.number();
    else if constexpr (std::is_same_v<Field, types::Bytes>)
        field = types::Bytes{figures.whole()};
    else if constexpr (std::is_same_v<Field, types::Nanoseconds>)
        field = types::Nanoseconds{figures.whole()};
    else if constexpr (std::is_same_v<Field, types::FlopsPerSecond>)
        field.rate = figures.number() * 1e12;
    else if constexpr (std::is_same_v<Field, types::BytesPerSecond>)
        field.rate = figures.number() * 1e9;
    else if constexpr (std::is_same_v<Field, std::vector<types::CopyPoint>>)
        field = {{types::Bytes{figures.whole()}, types::Nanoseconds{figures.whole()}},
                 {types::Bytes{figures.whole()}, types::Nanoseconds{figures.whole()}}};
    else if constexpr (std::is_same_v<Field, std::vector<types::HeadSizeRate>>)
        field = {{65, 0.61, 0.62}, {129, 0.63, 0.64}};
    else if constexpr (std::is_same_v<Field, std::vector<types::DutyRate>>)
        field = {{0.51, 1.16, 1.22}, {0.76, 1.13, 1.17}};
    else if constexpr (std::is_array_v<Field>)
        for (auto& one : field) set(one, figures);
    else
        // What fields_of gives of something that may be written to may be written to as well.
        std::apply(
            [&](const auto&... inside) {
                // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): `field` itself may be written to
                (set(const_cast<std::remove_cvref_t<decltype(inside)>&>(inside), figures), ...);
            },
            fields_of(field));
}

template <class Field>
void expect_same(const Field& read, const Field& written, const std::string& place) {
    using types::fields_of;
    if constexpr (std::is_same_v<Field, double>) {
        EXPECT_DOUBLE_EQ(read, written) << place;
    } else if constexpr (requires { read.rate; } && sizeof(Field) == sizeof(double)) {
        EXPECT_DOUBLE_EQ(read.rate, written.rate) << place;
    } else if constexpr (
        requires { read == written; } && !std::is_array_v<Field> && !requires { read.begin(); }) {
        EXPECT_TRUE(read == written) << place;
    } else if constexpr (std::is_same_v<Field, std::string>) {
        EXPECT_EQ(read, written) << place;
    } else if constexpr (requires { std::size(read); }) {
        ASSERT_EQ(std::size(read), std::size(written)) << place;
        for (std::size_t i = 0; i < std::size(read); ++i)
            expect_same(read[i], written[i], place + "[" + std::to_string(i) + "]");
    } else {
        std::size_t at = 0;
        const auto one = [&](const auto& a, const auto& b) { expect_same(a, b, place + "." + std::to_string(at++)); };
        const auto left = fields_of(read);
        const auto right = fields_of(written);
        std::apply([&](const auto&... a) { std::apply([&](const auto&... b) { (one(a, b), ...); }, right); }, left);
    }
}

TEST(HardwareFields, ReadBackAsTheyWereWritten) {
    types::Scenario scenario = reader::read_scenario(STOWAGE_SOURCE_DIR "/tests/data/small.yaml");
    Figures figures;
    set(scenario.hardware.node, figures);
    scenario.hardware.node.gpus_per_node = 4;  // as many as the job has
    const types::Scenario read = reader::read_scenario_text("plan.json", to_text(scenario_json(scenario)));
    expect_same(read.hardware.node, scenario.hardware.node, "node");
}

TEST(HardwareFields, AreNotWrittenForGraphsOfAMachineThatCostNothing) {
    types::Scenario scenario = reader::read_scenario(STOWAGE_SOURCE_DIR "/tests/data/small.yaml");
    scenario.hardware.node.graph = {};
    EXPECT_FALSE(scenario_json(scenario)["hardware"]["node"].contains("graph"));
}

}  // namespace
}  // namespace stowage::reports
