#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "scenarios/types/error.hpp"
#include "tests/scenarios/import/arguments.hpp"
#include "tests/scenarios/import/round_trip.hpp"

namespace stowage::reader::testing {
namespace {

/// One test case of Megatron-LM: its arguments as they stand in the file, and the GPUs of its first recorded run.
struct RecordedCase {
    std::string name;
    std::string arguments;
    std::int64_t gpus = 0;
};

std::vector<RecordedCase> recorded_cases() {
    std::ifstream file(std::string(STOWAGE_SOURCE_DIR) + "/tests/data/megatron_recorded_memory.yaml");
    std::vector<RecordedCase> cases;
    bool in_arguments = false;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("- name: ")) cases.push_back({line.substr(8), {}, 0});
        if (line.starts_with("  env:") || line.starts_with("  args:")) in_arguments = true;
        if (line.starts_with("  recorded:")) in_arguments = false;
        if (in_arguments) cases.back().arguments += line.substr(2) + "\n";
        const std::size_t gpus = line.find("      gpus: ");
        if (gpus == 0 && cases.back().gpus == 0) cases.back().gpus = std::stoll(line.substr(12));
    }
    return cases;
}

/// The argument that each refused case names, and how many cases name it first.
std::map<std::string, int> refusals(const std::vector<RecordedCase>& cases, int& imported) {
    std::map<std::string, int> refused;
    for (const RecordedCase& row : cases) {
        SCOPED_TRACE(row.name);
        try {
            expect_reads_back(import_text(row.arguments, row.gpus).scenario, row.gpus < 8);
            ++imported;
        } catch (const types::InputError& error) {
            const std::string message = error.what();
            const std::size_t begin = message.find(": error: ") + 9;
            ++refused[message.substr(begin, message.find(':', begin) - begin)];
        }
    }
    return refused;
}

TEST(RecordedArguments, AreImportedOrRefusedByName) {
    const std::vector<RecordedCase> cases = recorded_cases();
    ASSERT_EQ(cases.size(), 90U);
    int imported = 0;
    const std::map<std::string, int> refused = refusals(cases, imported);
    EXPECT_EQ(imported, 81);
    EXPECT_EQ(refused, (std::map<std::string, int>{{"first-last-layers-bf16", 1},
                                                   {"optimizer", 3},  // muon
                                                   {"use-megatron-fsdp", 5}}));
}

TEST(RecordedArguments, AreAllKnown) {
    for (const RecordedCase& row : recorded_cases()) {
        try {
            for (const std::string& note : import_text(row.arguments, row.gpus).notes)
                EXPECT_EQ(note.find("unknown argument"), std::string::npos) << row.name << ": " << note;
        } catch (const types::InputError&) {
            // refused: the other test's matter
        }
    }
}

}  // namespace
}  // namespace stowage::reader::testing
