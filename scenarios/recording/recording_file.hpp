#pragma once

// A recording as a file: JSON, with the tables of events and of saved tensors as columns of integers
// (integer_columns.hpp). docs/recordings.md describes every key. 60,000 events take less than 1 MiB.
//
// An event is a class (what it has in common with others: site, kind, stream, name, bytes, in a graph or not) and six
// columns: the class; differences to the event before of operation, layer and microbatch; the time from the end of the
// event before to its start; and the difference to the duration of the last event of its class.
//
// Tested by: tests/scenarios/recording/recording_file_test.cpp.

#include <filesystem>
#include <string>

#include "scenarios/recording/recording.hpp"

namespace stowage::recording {

inline constexpr const char* kRecordingSchema = "stowage/recording/1";

/// The same recording gives the same text. Put it in place whole (reports::write_file).
std::string recording_text(const Recording& recording);

/// What `recording_text` wrote, bit by bit the same. `file`: its name, for messages.
/// Throws: types::InputError naming the file, the place in it, what was expected and what was found.
Recording parse_recording(const std::string& text, const std::string& file);

/// Throws as well if the file cannot be read or is larger than 64 MiB.
Recording read_recording(const std::filesystem::path& path);

}  // namespace stowage::recording
