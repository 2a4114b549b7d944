#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "planner/search/job.hpp"
#include "reports/json.hpp"

namespace stowage::reports {

/// Whether a file is one of ours written as JSON (it begins with `{`), rather than a scenario that somebody wrote.
bool looks_like_json(const std::filesystem::path& path);

/// Reads a file that a verb wrote. Throws: types::InputError if it cannot be read, is not JSON, is far larger or deeper
/// than what a verb writes, or its `schema` is not the one wanted (the message says which verb writes that).
Json read_document(const std::filesystem::path& path, std::string_view schema);

/// The `schema` that a JSON file names; empty if it names none. Throws: types::InputError if the file cannot be read or
/// is not JSON.
std::string schema_of(const std::filesystem::path& path);

/// What a plan says about itself: the scenario it carries and the choice it made, ready to be simulated again.
struct PlannedChoice {
    types::Scenario scenario;
    std::optional<types::OffloadChoice> choice;  ///< absent if the plan is infeasible
};
/// Throws: types::InputError if the document is incomplete.
PlannedChoice planned_choice(const Json& plan, const std::string& file);

/// Runs `read` on a document; a key that is missing or of another type becomes types::InputError naming `file`.
template <class Read>
auto reading(const std::string& file, const Read& read);

[[noreturn]] void fail_document(const std::string& file, std::string_view reason);

template <class Read>
auto reading(const std::string& file, const Read& read) {
    try {
        return read();
    } catch (const Json::exception& error) {
        fail_document(file, error.what());
    }
}

}  // namespace stowage::reports
