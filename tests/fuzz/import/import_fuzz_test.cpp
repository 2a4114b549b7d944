// Both imports take whatever bytes they are given: a scenario that can be written and reads back as itself, or
// types::InputError, and nothing else. Recorded arguments and published configurations are changed at random; the seed
// is printed and STOWAGE_SEED overrides it, STOWAGE_FUZZ_ROUNDS the count.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "scenarios/reader/hugging_face.hpp"
#include "scenarios/reader/megatron_arguments.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/reader/scenario_yaml.hpp"
#include "scenarios/types/error.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/temporary_folder.hpp"

namespace stowage::reader {
namespace {

namespace fs = std::filesystem;

using Import = std::function<ImportedScenario(const fs::path&, const ImportedHardware&)>;
using Lines = std::vector<std::string>;

const fs::path kSource = STOWAGE_SOURCE_DIR;
const fs::path kHardware = kSource / "scenarios/hardware/h100-8gpu.yaml";

Lines lines_of(const std::string& text) {
    Lines lines;
    for (std::size_t start = 0; start < text.size();) {
        const std::size_t end = std::min(text.find('\n', start), text.size());
        lines.push_back(text.substr(start, end - start));
        start = end + 1;
    }
    return lines;
}

std::string joined(const Lines& lines) {
    std::string text;
    for (const std::string& line : lines) text += line + '\n';
    return text;
}

/// The arguments of every recorded run, a file each.
std::vector<Lines> recorded_arguments() {
    std::vector<Lines> files;
    bool inside = false;
    for (const std::string& line : lines_of(support::file_text(kSource / "tests/data/megatron_recorded_memory.yaml"))) {
        if (line == "  args:") files.emplace_back();
        if (inside && line.starts_with("    ")) files.back().push_back(line.substr(4));
        inside = line == "  args:" || (inside && line.starts_with("    "));
    }
    return files;
}

std::vector<Lines> published_configurations() {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(kSource / "tests/data/hugging_face")) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    std::vector<Lines> files;
    for (const fs::path& path : paths) files.push_back(lines_of(support::file_text(path)));
    return files;
}

/// Values of another kind, out of every range, or in a spelling that some argument has.
const std::vector<std::string> kValues{"0",
                                       "1",
                                       "-1",
                                       "2",
                                       "3",
                                       "8",
                                       "61",
                                       "1.5",
                                       "1000000",
                                       "9223372036854775807",
                                       "1e400",
                                       ".nan",
                                       "null",
                                       "true",
                                       "false",
                                       "",
                                       "[]",
                                       "{}",
                                       "[1, 0]",
                                       "\"\"",
                                       "\"[a b]\"",
                                       "core_attn",
                                       "\"[core_attn attn_proj moe_act]\"",
                                       "\"[attn moe_router]\"",
                                       "full",
                                       "selective",
                                       "transformer_engine",
                                       "full_iteration",
                                       "\"Et*3|(tt|)*4mL\"",
                                       "\"([0]*3+[1]*9)\"",
                                       "\"[1]*100000000\"",
                                       "\"M*-E|MM/*E\"",
                                       "\"(128, 0)\"",
                                       "fp8",
                                       "hybrid",
                                       "mxfp8",
                                       "flex",
                                       "a2a",
                                       "\"deepseek_v3\"",
                                       "\"qwen3_next\"",
                                       "\"gpt_oss\"",
                                       "[\"sliding_attention\", \"full_attention\"]",
                                       "{\"rope_type\": \"yarn\"}",
                                       "\"\\xff\"",
                                       "\xff",
                                       "\xc3\xa9"};

class Changes {
public:
    Changes(const std::vector<Lines>& files, std::mt19937_64& random) : files_(files), random_(random) {}

    /// A file with up to five changes: lines out, doubled or from another file, values exchanged, bytes overwritten.
    std::string next() {
        Lines lines = files_[below(files_.size())];
        for (std::size_t left = below(6); left > 0 && !lines.empty(); --left) change(lines);
        std::string text = joined(lines);
        if (below(4) == 0 && !text.empty()) text[below(text.size())] = static_cast<char>(random_() % 256);
        return text;
    }

private:
    std::size_t below(std::size_t count) { return static_cast<std::size_t>(random_() % count); }

    const std::string& any_line() {
        const Lines& other = files_[below(files_.size())];
        return other[below(other.size())];
    }

    void change(Lines& lines) {
        const auto at = lines.begin() + static_cast<std::ptrdiff_t>(below(lines.size()));
        switch (below(5)) {
            case 0: lines.erase(at); return;
            case 1: lines.insert(at, any_line()); return;
            case 2: lines.insert(at, *at); return;
            default: break;
        }
        const std::size_t colon = at->find(": ");
        if (colon == std::string::npos) return;
        const bool comma = at->ends_with(",");  // of JSON
        at->replace(colon + 2, std::string::npos, kValues[below(kValues.size())] + (comma ? "," : ""));
    }

    const std::vector<Lines>& files_;
    std::mt19937_64& random_;
};

/// Result: empty, or how the scenario that was written differs.
std::string reads_back(const fs::path& path, const ImportedScenario& imported) {
    const types::Scenario& made = imported.scenario;
    const std::string text = scenario_yaml(made, ScenarioFile{kHardware, imported.part_of_a_node, imported.notes});
    try {
        const types::Scenario read = read_scenario_text(path, text);
        const bool same = read.model == made.model && read.parallel == made.parallel && read.batch == made.batch &&
                          read.precision == made.precision && read.optimizer == made.optimizer &&
                          read.recompute == made.recompute && read.cuda_graph == made.cuda_graph &&
                          read.offload == made.offload && read.env == made.env;
        return same ? "" : "reads back as another scenario:\n" + text;
    } catch (const types::InputError& error) {
        return std::string("does not read back: ") + error.what() + "\n" + text;
    }
}

/// Result: empty, or what went wrong. Counts the files that were taken.
std::string outcome(const Import& import, const fs::path& path, std::int64_t gpus, std::size_t& taken) {
    try {
        const ImportedScenario imported = import(path, {kHardware, std::nullopt, gpus});
        const auto illegal = [](const ArgumentFinding& finding) { return finding.illegal; };
        if (std::any_of(imported.findings.begin(), imported.findings.end(), illegal)) return {};
        ++taken;
        return reads_back(path.parent_path() / "scenario.yaml", imported);
    } catch (const types::InputError& error) {
        return std::string(error.what()).find(": error: ") == std::string::npos ? "an error without a file" : "";
    } catch (const std::exception& error) {
        return std::string("threw something else: ") + error.what();
    }
}

void expect_taken_or_refused(const Import& import, const std::vector<Lines>& files, const std::string& name,
                             std::uint64_t fixed_seed) {
    ASSERT_FALSE(files.empty());
    const char* rounds_text = std::getenv("STOWAGE_FUZZ_ROUNDS");
    const std::uint64_t rounds = rounds_text != nullptr ? std::strtoull(rounds_text, nullptr, 10) : 2000;
    std::mt19937_64 random(tests::property_seed(fixed_seed));
    const support::TemporaryFolder folder;
    Changes changes(files, random);
    std::size_t taken = 0;
    for (std::uint64_t round = 0; round < rounds; ++round) {
        const std::string text = changes.next();
        const fs::path path = folder / (std::to_string(round) + name);
        support::write_text(path, text);
        const std::int64_t gpus = std::int64_t{1} << random() % 8;
        ASSERT_EQ(outcome(import, path, gpus, taken), "") << "round " << round << ", " << gpus << " GPUs:\n" << text;
        fs::remove(path);
    }
    std::cout << taken << " of " << rounds << " taken\n";
    EXPECT_GT(taken, rounds / 100);
}

TEST(ImportFuzz, ArgumentsOfMegatronAreTakenOrRefused) {
    const auto import = [](const std::filesystem::path& arguments, const ImportedHardware& hardware) {
        return import_megatron(arguments, hardware);
    };
    expect_taken_or_refused(import, recorded_arguments(), "-args.yaml", 20261130);
}

TEST(ImportFuzz, ConfigurationsOfHuggingFaceAreTakenOrRefused) {
    expect_taken_or_refused(import_hugging_face, published_configurations(), "-config.json", 20261131);
}

}  // namespace
}  // namespace stowage::reader
