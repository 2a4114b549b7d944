// The reader takes whatever bytes it is given: it returns a scenario or throws types::InputError, and nothing else.
// Valid files are changed at random; the seed is printed and STOWAGE_SEED overrides it, STOWAGE_FUZZ_ROUNDS the count.
// A file that ever crashed it is kept in crashes/ and read first.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "scenarios/reader/layer_patterns.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/types/stages.hpp"

namespace stowage::reader {
namespace {

namespace fs = std::filesystem;

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::string read_text(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

/// A copy of the shipped data in a folder of its own.
class Playground {
public:
    Playground() {
        std::string pattern = (fs::temp_directory_path() / "stowage-fuzz-XXXXXX").string();
        folder_ = mkdtemp(pattern.data());
        const fs::path data = fs::path(STOWAGE_SOURCE_DIR) / "scenarios";
        for (const auto& entry : fs::recursive_directory_iterator(data)) {
            if (entry.path().extension() != ".yaml") continue;
            const fs::path name = fs::relative(entry.path(), data);
            fs::create_directories((folder_ / name).parent_path());
            fs::copy_file(entry.path(), folder_ / name);
            files_.push_back(name);
        }
        std::sort(files_.begin(), files_.end());
    }
    ~Playground() {
        std::error_code ignored;
        fs::remove_all(folder_, ignored);
    }
    Playground(const Playground&) = delete;
    Playground& operator=(const Playground&) = delete;

    [[nodiscard]] const std::vector<fs::path>& files() const { return files_; }
    [[nodiscard]] std::string text(const fs::path& name) const { return read_text(folder_ / name); }

    /// Reads the text as if it stood in the file `name`.
    /// Result: empty, or what went wrong.
    [[nodiscard]] std::string try_text(const fs::path& name, const std::string& text) const {
        // A new file each time: replacing one makes some file systems wait for the disk.
        const fs::path changed = name.parent_path() / "changed.yaml";
        std::ofstream(folder_ / changed, std::ios::binary) << text;
        std::string outcome = try_file(changed);
        fs::remove(folder_ / changed);
        return outcome;
    }

private:
    [[nodiscard]] std::string try_file(const fs::path& name) const {
        const std::string folder = name.parent_path().string();
        try {
            if (folder == "models")
                read_model(folder_ / name);
            else if (folder == "hardware")
                read_hardware(folder_ / name);
            else
                load_scenario(folder_ / name);
            return {};
        } catch (const types::InputError& error) {
            return std::string(error.what()).find(": error: ") == std::string::npos ? "an error without a place" : "";
        } catch (const std::exception& error) {
            return std::string("threw something else: ") + error.what();
        }
    }

    fs::path folder_;
    std::vector<fs::path> files_;
};

const std::vector<std::string> kTokens{"[",
                                       "]",
                                       "{",
                                       "}",
                                       ":",
                                       ": ",
                                       "- ",
                                       "? ",
                                       ",",
                                       "#",
                                       "&a ",
                                       "*a",
                                       "!!int ",
                                       "|",
                                       ">",
                                       "'",
                                       "\"",
                                       "\n",
                                       "\r\n",
                                       "\t",
                                       "---",
                                       "...",
                                       "%YAML",
                                       "null",
                                       "~",
                                       "true",
                                       "auto",
                                       "0x10",
                                       "1e400",
                                       "-1",
                                       ".nan",
                                       ".inf",
                                       "1_0",
                                       "0",
                                       "1",
                                       "65536",
                                       "@",
                                       "`",
                                       "\\",
                                       "\xEF\xBB\xBF",
                                       "\xff",
                                       "\xc3",
                                       std::string(1, '\0'),
                                       "9223372036854775807",
                                       "-9223372036854775808",
                                       "1000000000000000000",
                                       "from: models/qwen3-30b-a3b.yaml",
                                       "model: ",
                                       "80 GiB",
                                       "999999999999 TiB",
                                       "<<: ",
                                       "num_experts: 128\n",
                                       "([0]*3+[1]*58)",
                                       "hybrid_layer_pattern: \"M*-E|G/*E\"\n",
                                       "experimental_attention_variant: gdn\n",
                                       "linear_attention_freq: 4\n",
                                       "window_size: [128, 0]\n",
                                       "multi_latent_attention: true\n",
                                       "mtp_num_layers: 1000\n",
                                       "  pipeline_model_parallel_layout: Et*3|(tt|)*6mL\n",
                                       "  num_virtual_stages_per_pipeline_rank: 1000000\n",
                                       "  decoder_first_pipeline_num_layers: 48\n",
                                       "  num_layers_per_virtual_pipeline_stage: 1\n",
                                       "precision: mxfp8\n",
                                       "  "};

/// One change: bytes flipped, removed, repeated or moved, or a token put in.
std::string mutate(std::string text, std::mt19937_64& random) {
    const auto below = [&](std::size_t count) { return count == 0 ? 0 : static_cast<std::size_t>(random() % count); };
    const std::size_t at = below(text.size() + 1);
    const std::size_t length = std::min(below(1 + below(64)), text.size() - at);
    switch (below(7)) {
        case 0: return text.erase(at, length);
        case 1: return text.insert(at, text.substr(at, length));
        case 2: return text.insert(below(text.size() + 1), text.substr(at, length));
        case 3:
            if (at < text.size()) text[at] = static_cast<char>(random() % 256);
            return text;
        case 4: return text.replace(at, length, kTokens[below(kTokens.size())]);
        case 5: {
            // A whole line taken out, doubled or moved: errors of structure more than of spelling.
            const std::size_t start = text.rfind('\n', at) + 1;
            const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
            const std::string line = text.substr(std::min(start, text.size()), end > start ? end - start : 0);
            return below(2) == 0 ? text.insert(start, line) : text.erase(std::min(start, text.size()), line.size());
        }
        default: return text.insert(at, kTokens[below(kTokens.size())]);
    }
}

TEST(ReaderFuzz, FilesThatCrashedItOnceAreReadOrRefused) {
    const Playground playground;
    const fs::path crashes = fs::path(STOWAGE_SOURCE_DIR) / "tests/fuzz/reader/crashes";
    for (const auto& entry : fs::directory_iterator(crashes))
        for (const fs::path& name : playground.files())
            EXPECT_EQ(playground.try_text(name, read_text(entry.path())), "") << entry.path() << " as " << name;
}

TEST(ReaderFuzz, ChangedFilesAreReadOrRefused) {
    const std::uint64_t seed = number_from_environment("STOWAGE_SEED", 20261129);
    const std::uint64_t rounds = number_from_environment("STOWAGE_FUZZ_ROUNDS", 2000);
    std::cout << "STOWAGE_SEED=" << seed << " STOWAGE_FUZZ_ROUNDS=" << rounds << "\n";
    RecordProperty("seed", std::to_string(seed));
    const Playground playground;
    std::mt19937_64 random(seed);
    for (std::uint64_t round = 0; round < rounds; ++round) {
        const fs::path& name = playground.files()[random() % playground.files().size()];
        std::string text = playground.text(name);
        for (std::uint64_t changes = 1 + random() % 4; changes > 0; --changes) text = mutate(std::move(text), random);
        ASSERT_EQ(playground.try_text(name, text), "") << "round " << round << ", " << name << ":\n" << text;
    }
}

TEST(ReaderFuzz, BytesOfNoFormAreRefused) {
    const std::uint64_t seed = number_from_environment("STOWAGE_SEED", 20261129);
    const Playground playground;
    std::mt19937_64 random(seed + 1);
    for (int round = 0; round < 500; ++round) {
        std::string text;
        while (random() % 30 != 0) text += kTokens[random() % kTokens.size()];
        const fs::path& name = playground.files()[random() % playground.files().size()];
        ASSERT_EQ(playground.try_text(name, text), "") << "seed " << seed << ", round " << round << ":\n" << text;
    }
}

/// Text of these letters, mostly ill formed.
std::string random_pattern(std::string_view letters, std::mt19937_64& random) {
    std::string text;
    while (random() % 40 != 0) text += letters[random() % letters.size()];
    return text;
}

TEST(ReaderFuzz, PatternsOfAnyFormAreBoundedOrRefused) {
    constexpr std::size_t kMostLayers = 100'000;
    constexpr std::size_t kMostLetters = 1'000'000;
    const std::uint64_t seed = number_from_environment("STOWAGE_SEED", 20261129);
    const std::uint64_t rounds = number_from_environment("STOWAGE_FUZZ_ROUNDS", 2000);
    std::cout << "STOWAGE_SEED=" << seed << " STOWAGE_FUZZ_ROUNDS=" << rounds << "\n";
    std::mt19937_64 random(seed + 2);
    std::size_t read = 0;
    for (std::uint64_t round = 0; round < 10 * rounds; ++round) {
        const std::string list = random_pattern("[][]()**++,01019 ", random);
        const auto layers = evaluate_layer_list(list);
        if (const auto* found = std::get_if<std::vector<bool>>(&layers)) {
            ++read;
            ASSERT_LE(found->size(), kMostLayers) << list;
        } else {
            ASSERT_FALSE(std::get<BadPattern>(layers).reason.empty()) << list;
        }
        const std::string letters = random_pattern("EttmL||(())**1239,", random);
        const auto stages = types::parse_stage_letters(letters);
        if (const auto* found = std::get_if<std::vector<std::string>>(&stages)) {
            ++read;
            std::size_t count = 0;
            for (const std::string& stage : *found) count += stage.size() + 1;
            ASSERT_LE(count, kMostLetters + 1) << letters;
        } else {
            ASSERT_FALSE(std::get<types::NoStages>(stages).reason.empty()) << letters;
        }
        const std::string hybrid = random_pattern("MG*-EMG*-E|/", random);
        const auto pattern = parse_hybrid_pattern(hybrid);
        if (const auto* found = std::get_if<HybridPattern>(&pattern)) {
            ++read;
            ASSERT_EQ(found->mixers.size(), found->feed_forward.size()) << hybrid;
        }
    }
    EXPECT_GT(read, 0U);
}

}  // namespace
}  // namespace stowage::reader
