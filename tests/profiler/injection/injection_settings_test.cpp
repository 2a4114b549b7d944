#include "profiler/injection/injection_settings.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace stowage::profiler {
namespace {

using namespace std::chrono_literals;

TEST(InjectionSettings, ThereAndBack) {
    const InjectionSettings settings = {.out = "/somewhere/process",
                                        .kinds = {RecordKind::kernels, RecordKind::ranges},
                                        .start_mark = "step 3",
                                        .stop_mark = "step 5",
                                        .start_after = 1500ms,
                                        .record_for = 2s};
    const Environment expected = {
        {"STOWAGE_INJECT_OUT", "/somewhere/process"}, {"STOWAGE_INJECT_KINDS", "kernels,ranges"},
        {"STOWAGE_INJECT_START_MARK", "step 3"},      {"STOWAGE_INJECT_STOP_MARK", "step 5"},
        {"STOWAGE_INJECT_AFTER_MS", "1500"},          {"STOWAGE_INJECT_FOR_MS", "2000"}};
    EXPECT_EQ(environment_of(settings), expected);
    EXPECT_EQ(settings_of(expected), settings);
}

TEST(InjectionSettings, RecordEverythingFromTheStartUnlessTold) {
    InjectionSettings settings;
    settings.out = "/somewhere/process";
    EXPECT_EQ(environment_of(settings), (Environment{{"STOWAGE_INJECT_OUT", "/somewhere/process"}}));
    EXPECT_EQ(settings_of({{"STOWAGE_INJECT_OUT", "/somewhere/process"}}), settings);
    EXPECT_TRUE(settings.starts_at_once());
    EXPECT_EQ(settings.kinds, RecordKinds::all());
    settings.record_for = 1ms;
    EXPECT_TRUE(settings.starts_at_once());
    settings.start_after = 1ms;
    EXPECT_FALSE(settings.starts_at_once());
    settings.start_after.reset();
    settings.start_mark = "go";
    EXPECT_FALSE(settings.starts_at_once());
}

TEST(InjectionSettings, AreNoneWithoutAPlaceToWriteTo) {
    EXPECT_FALSE(settings_of({}));
    EXPECT_FALSE(settings_of({{"STOWAGE_INJECT_KINDS", "all"}}));
}

std::string failure_of(Environment environment) {
    environment["STOWAGE_INJECT_OUT"] = "x";
    try {
        static_cast<void>(settings_of(environment));
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return "";
}

TEST(InjectionSettings, NameTheVariableThatIsWrong) {
    EXPECT_EQ(failure_of({{"STOWAGE_INJECT_AFTER_MS", "1.5"}}),
              "STOWAGE_INJECT_AFTER_MS is '1.5', expected whole milliseconds such as 1500");
    EXPECT_EQ(failure_of({{"STOWAGE_INJECT_FOR_MS", "-1"}}),
              "STOWAGE_INJECT_FOR_MS is '-1', expected whole milliseconds such as 1500");
    EXPECT_EQ(failure_of({{"STOWAGE_INJECT_KINDS", "colours"}}).substr(0, 55),
              "STOWAGE_INJECT_KINDS: 'colours' is no kind of record; t");
}

}  // namespace
}  // namespace stowage::profiler
