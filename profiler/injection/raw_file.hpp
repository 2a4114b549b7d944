#pragma once

// What one process that was recorded from within leaves behind: a file that its launcher reads and removes.
//
// Cost: linear; the file has 72 bytes an activity, 41 a call, and each name once.
// Tested by: tests/profiler/injection/raw_file_test.cpp.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "profiler/cupti/activity.hpp"

namespace stowage::profiler {

/// A device that a process used through the runtime.
struct UsedDevice {
    std::string name;
    std::string driver;  ///< the newest CUDA that it runs
    int multiprocessors = 0;
    types::Bytes memory{};
    friend bool operator==(const UsedDevice&, const UsedDevice&) = default;
};

struct InjectedProcess {
    std::uint32_t process = 0;
    std::string command;              ///< its arguments with blanks between them
    std::string cupti;                ///< the file that was opened
    std::uint32_t cupti_version = 0;  ///< as CUPTI numbers itself
    std::vector<UsedDevice> devices;
    bool finished = false;           ///< it came to its end in an orderly way; else nothing below is there
    std::string failure;             ///< why nothing could be recorded; "": it could
    std::vector<std::string> notes;  ///< for the user
    Recording recording;
};

/// Written under another name and renamed. Throws: types::Error if that fails.
void write_raw(const std::filesystem::path& path, const InjectedProcess& process);
/// Throws: types::InputError if the file is missing, not of this kind and version, or cut short.
InjectedProcess read_raw(const std::filesystem::path& path);

}  // namespace stowage::profiler
