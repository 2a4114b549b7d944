#include "scenarios/reader/validation_file.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temporary_folder.hpp"

namespace stowage::reader {
namespace {

using support::TemporaryFolder;
using support::write_text;

const std::string kBase = std::string(STOWAGE_SOURCE_DIR) + "/tests/data/small_stowage.yaml";

class ValidationFiles : public ::testing::Test {
protected:
    std::string write(const std::string& lines) {
        write_text(folder_ / "list.yaml", "schema: stowage/validation/1\nscenario: " + kBase + "\n" + lines);
        return (folder_ / "list.yaml").string();
    }
    std::string message_of(const std::string& lines) {
        try {
            (void)read_validation_file(write(lines));
        } catch (const types::InputError& error) {
            std::string text = error.what();
            const std::string folder = folder_.path().string() + "/";
            for (std::size_t at = text.find(folder); at != std::string::npos; at = text.find(folder))
                text.erase(at, folder.size());
            return text;
        }
        return "read without an error";
    }
    TemporaryFolder folder_;
};

std::vector<std::string> names_of(const ValidationFile& file) {
    std::vector<std::string> names;
    for (const ValidationCase& one : file.cases) names.push_back(one.name);
    return names;
}

TEST_F(ValidationFiles, GiveEverySliceEveryVariantUnlessItNamesSome) {
    const ValidationFile file = read_validation_file(
        write("slices:\n  - {name: deep, model: {num_layers: 12}}\n"
              "  - {name: wide, model: {hidden_size: 2048}, variants: [half]}\n"
              "variants:\n  - {name: nothing, policy: none}\n"
              "  - {name: half, policy: megatron, offload: {activation_offload_fraction: 0.5}, steps: 7}\n"
              "bars: [hardware.step_time_us.max=0.1]\n"));
    EXPECT_EQ(names_of(file), (std::vector<std::string>{"deep/nothing", "deep/half", "wide/half"}));
    EXPECT_EQ(file.bars, std::vector<std::string>{"hardware.step_time_us.max=0.1"});
    const ValidationCase& deep = file.cases[1];
    EXPECT_EQ(deep.loaded.scenario.model.num_layers, 12);
    EXPECT_EQ(deep.loaded.scenario.model.hidden_size, 1024) << "as in the file that it starts from";
    EXPECT_EQ(deep.loaded.scenario.offload.activation_offload_fraction, 0.5);
    EXPECT_TRUE(deep.loaded.scenario.offload.offload_modules->contains(types::Module::core_attn));
    EXPECT_EQ(deep.run.policy, "megatron");
    EXPECT_EQ(deep.run.steps, 7);
    EXPECT_EQ(file.cases[0].run.policy, "none");
    EXPECT_FALSE(file.cases[0].run.steps);
    EXPECT_EQ(file.cases[2].loaded.scenario.model.hidden_size, 2048);
    EXPECT_EQ(file.cases[2].loaded.scenario.model.num_layers, 8);
}

TEST_F(ValidationFiles, LetTheVariantHaveTheLastWord) {
    const ValidationFile file =
        read_validation_file(write("slices: [{name: one, batch: {seq_length: 2048}, steps: 3, allocator: planned}]\n"
                                   "variants: [{name: long, batch: {seq_length: 8192}, steps: 9}]\n"));
    EXPECT_EQ(file.cases.at(0).loaded.scenario.batch.seq_length, 8192);
    EXPECT_EQ(file.cases.at(0).run.steps, 9);
    EXPECT_EQ(file.cases.at(0).run.allocator, "planned");
}

TEST_F(ValidationFiles, MayHaveSlicesOrVariantsOrNeither) {
    EXPECT_EQ(names_of(read_validation_file(write("variants: [{name: a}, {name: b}]\n"))),
              (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(names_of(read_validation_file(write("slices: [{name: a}]\n"))), std::vector<std::string>{"a"});
    EXPECT_EQ(names_of(read_validation_file(write(""))), std::vector<std::string>{"small_stowage"});
}

TEST_F(ValidationFiles, PointAtWhatIsWrong) {
    EXPECT_EQ(message_of("slices:\n  - {name: one, model: {num_layer: 4}}\n"),
              "list.yaml:4:25: error: slices[0].model: unknown key 'num_layer'\n"
              "    - {name: one, model: {num_layer: 4}}\n"
              "                          ^\n"
              "hint: did you mean 'num_layers'?");
    EXPECT_EQ(message_of("variants: [{name: one, polcy: none}]\n"),
              "list.yaml:3:24: error: variants[0]: unknown key 'polcy'\n"
              "  variants: [{name: one, polcy: none}]\n"
              "                         ^\n"
              "hint: did you mean 'policy'?");
    EXPECT_EQ(message_of("slices: [{name: one, policy: both}]\n"),
              "list.yaml:3:30: error: slices[0].policy: found 'both', expected one of none, megatron, stowage\n"
              "  slices: [{name: one, policy: both}]\n"
              "                               ^");
}

TEST_F(ValidationFiles, WantNamesThatFilesCanHaveOnce) {
    EXPECT_NE(message_of("slices: [{name: a/b}]\n").find("expected a name of letters"), std::string::npos);
    EXPECT_NE(message_of("slices: [{model: {num_layers: 4}}]\n").find("expected a name of letters"), std::string::npos);
    EXPECT_NE(message_of("slices: [{name: a}, {name: a}]\n").find("a second 'a'"), std::string::npos);
    EXPECT_NE(message_of("slices: [{name: a, variants: [b]}]\n").find("there is no variant 'b'"), std::string::npos);
    EXPECT_NE(message_of("slices: {name: a}\n").find("expected a list of mappings"), std::string::npos);
}

// What only the combination shows is told with its name: 7 layers do not divide by two stages.
TEST_F(ValidationFiles, NameTheCombinationThatDoesNotFit) {
    const std::string message =
        message_of("slices: [{name: odd, model: {num_layers: 7}}]\nvariants: [{name: a}, {name: b}]\n");
    EXPECT_TRUE(message.starts_with("list.yaml: error: in 'odd/a':\n" + kBase + ":14:42: error: parallel.")) << message;
    EXPECT_EQ(message.find("odd/b"), std::string::npos) << "the same error once";
}

TEST_F(ValidationFiles, AreToldFromOthers) {
    EXPECT_TRUE(is_validation_file(write("")));
    EXPECT_FALSE(is_validation_file(kBase));
    EXPECT_FALSE(is_validation_file(folder_ / "missing.yaml"));
}

TEST(ShippedValidationFiles, HoldTheConfigurationsOfTheGrid) {
    std::size_t configurations = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(std::string(STOWAGE_SOURCE_DIR) + "/scenarios/validation")) {
        const ValidationFile file = read_validation_file(entry.path());
        configurations += file.cases.size();
        for (const ValidationCase& one : file.cases)
            EXPECT_EQ(one.loaded.scenario.implementation, types::Implementation::stowage) << one.name;
    }
    EXPECT_GE(configurations, 60U);
}

}  // namespace
}  // namespace stowage::reader
