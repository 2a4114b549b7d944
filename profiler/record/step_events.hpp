#pragma once

// One step's activities as events of a recording.
//
// Tested by: tests/profiler/record/make_recording_test.cpp.

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "profiler/cupti/raw_events.hpp"
#include "scenarios/recording/recording.hpp"

namespace stowage::profiler {

/// Sites and kernel names of a recording, each once, in the order in which they were met. The first name is "".
class Tables {
public:
    Tables() { name(""); }
    std::uint32_t site(const Mark& mark);
    std::uint32_t name(const std::string& name);
    [[nodiscard]] const std::vector<recording::Site>& sites() const { return sites_; }
    [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

private:
    std::vector<recording::Site> sites_;
    std::map<std::tuple<std::string, std::string, std::string>, std::uint32_t> site_numbers_;
    std::vector<std::string> names_;
    std::unordered_map<std::string, std::uint32_t> name_numbers_;
};

enum class Wanted : std::uint8_t { all, copies };

/// The step with its events in the order of their starts. Operations are counted in the order in which the host issued
/// them: by correlation, and inside one launch of a graph by the numbers they were captured under.
/// `copies`: those between host and device only; duration and counts are of all.
recording::Step step_events(const RawStep& step, Tables& tables, Wanted wanted);

}  // namespace stowage::profiler
