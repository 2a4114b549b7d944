#pragma once

// What the launcher tells the library inside the process, through the environment:
//
//   STOWAGE_INJECT_OUT         where to write; the process's number is appended: PREFIX.1234. Needed.
//   STOWAGE_INJECT_KINDS       kinds of records with commas between them, or all (the default)
//   STOWAGE_INJECT_START_MARK  recording starts with the first NVTX mark or range of this name
//   STOWAGE_INJECT_STOP_MARK   and pauses with the first of this one; it may start again
//   STOWAGE_INJECT_AFTER_MS    recording starts so long after CUDA was initialised
//   STOWAGE_INJECT_FOR_MS      and ends so long after it started
//
// Without marks and times everything from the initialisation of CUDA to the end of the process is recorded.
//
// Tested by: tests/profiler/injection/injection_settings_test.cpp.

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "profiler/cupti/record_kinds.hpp"

namespace stowage::profiler {

struct InjectionSettings {
    std::string out;
    RecordKinds kinds = RecordKinds::all();
    std::string start_mark;
    std::string stop_mark;
    std::optional<std::chrono::milliseconds> start_after;
    std::optional<std::chrono::milliseconds> record_for;

    /// Recording starts by itself, as soon as CUDA is there.
    [[nodiscard]] bool starts_at_once() const { return start_mark.empty() && !start_after; }
    friend bool operator==(const InjectionSettings&, const InjectionSettings&) = default;
};

using Environment = std::map<std::string, std::string>;

/// Only what differs from the default.
Environment environment_of(const InjectionSettings& settings);
/// Nothing without STOWAGE_INJECT_OUT. Throws: std::invalid_argument naming the variable and what it should be.
std::optional<InjectionSettings> settings_of(const Environment& environment);
/// Of this process.
Environment current_environment();

}  // namespace stowage::profiler
