#include "executor/workload/gemm_table.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "scenarios/types/error.hpp"

namespace stowage::executor {
namespace {

namespace fs = std::filesystem;

GemmTable small_table() {
    GemmTable table;
    table.platform = {"NVIDIA H200", 130101};
    GemmKey key;
    key.transpose_a = true;
    key.m = 4096;
    key.n = 512;
    key.k = 1024;
    key.lda = 1024;
    key.ldb = 1024;
    key.ldd = 4096;
    key.bias = true;
    GemmAlgorithm algorithm;
    algorithm.raw = {1, 2, 3, 0xffffffffffffffffULL, 5, 6, 7, 8};  // more than a double holds exactly
    algorithm.workspace_bytes = 1 << 20;
    algorithm.id = 66;
    algorithm.tile = 20;
    algorithm.stages = 3;
    algorithm.split_k = 2;
    algorithm.reduction = 2;
    algorithm.swizzle = 1;
    algorithm.custom = 4;
    algorithm.inner_shape = 5;
    algorithm.cluster = 6;
    algorithm.microseconds = 12.5;
    table.entries[key] = algorithm;
    key.add = true;
    key.output = types::DataType::fp32;
    table.entries[key] = algorithm;
    key.experts = 8;
    algorithm.one_by_one = true;
    table.entries[key] = algorithm;
    key.experts = 1;
    algorithm.one_by_one = false;
    for (const GemmFactors factors : {GemmFactors::e4m3, GemmFactors::e4m3_and_e5m2}) {
        key.factors = factors;
        table.entries[key] = algorithm;
    }
    return table;
}

/// A file of its own, removed afterwards.
class GemmTableFile : public testing::Test {
protected:
    GemmTableFile() : file_(fs::temp_directory_path() / ("stowage-gemms-" + std::to_string(getpid()) + ".json")) {}
    GemmTableFile(const GemmTableFile&) = delete;
    GemmTableFile& operator=(const GemmTableFile&) = delete;
    ~GemmTableFile() override {
        std::error_code ignored;
        fs::remove(file_, ignored);
    }
    [[nodiscard]] const fs::path& file() const { return file_; }

private:
    fs::path file_;
};

template <class Action>
std::string message_of(Action action) {
    try {
        action();
    } catch (const types::InputError& error) {
        return error.what();
    }
    return "nothing was thrown";
}

TEST_F(GemmTableFile, ComesBackAsItWasWritten) {
    write_gemm_table(file(), small_table());
    EXPECT_EQ(read_gemm_table(file()), small_table());
}

TEST_F(GemmTableFile, IsReplacedAsAWhole) {
    write_gemm_table(file(), small_table());
    GemmTable other = small_table();
    other.entries.clear();
    write_gemm_table(file(), other);
    EXPECT_EQ(read_gemm_table(file()), other);
    fs::path partial = file();
    partial += ".partial";
    EXPECT_FALSE(fs::exists(partial));
}

TEST_F(GemmTableFile, IsRefusedWhereItCannotBeWritten) {
    EXPECT_THROW(write_gemm_table(file() / "below" / "a.json", small_table()), types::InputError);
    EXPECT_THROW(read_gemm_table(file()), types::InputError) << "there is no such file";
}

TEST(GemmTable, NamesTheSchemaThatItExpects) {
    std::string text = to_json(small_table());
    text.replace(text.find("gemm-table/1"), 12, "gemm-table/9");
    EXPECT_EQ(message_of([&] { gemm_table_from_json(text, "t.json"); }),
              "t.json: error: schema is 'stowage/gemm-table/9', expected 'stowage/gemm-table/1'\n"
              "hint: remove the file; it is measured again");
}

void remove_all(std::string& text, const std::string& what) {
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what)) text.erase(at, what.size());
}

TEST(GemmTable, OfBeforeThereWereExpertsHasProductsOfOne) {
    GemmTable table = small_table();
    std::erase_if(table.entries, [](const auto& entry) { return entry.first.experts > 1; });
    std::string text = to_json(table);
    remove_all(text, "    \"experts\": 1,\n");
    remove_all(text, "    \"one_by_one\": false,\n");
    ASSERT_EQ(text.find("experts"), std::string::npos) << text;
    ASSERT_EQ(text.find("one_by_one"), std::string::npos);
    EXPECT_EQ(gemm_table_from_json(text, "t.json"), table);
}

TEST(GemmTable, OfBeforeThereWasFp8HasProductsInBf16) {
    GemmTable table = small_table();
    std::erase_if(table.entries, [](const auto& entry) { return entry.first.factors != GemmFactors::bf16; });
    std::string text = to_json(table);
    remove_all(text, ",\n    \"factors\": \"bf16\"");
    ASSERT_EQ(text.find("factors"), std::string::npos) << text;
    EXPECT_EQ(gemm_table_from_json(text, "t.json"), table);
}

TEST(GemmTable, RefusesFactorsItDoesNotKnow) {
    std::string text = to_json(small_table());
    text.replace(text.find("e4m3_and_e5m2"), 13, "e4m3_and_e9m9");
    EXPECT_EQ(message_of([&] { gemm_table_from_json(text, "t.json"); }), "unknown factors 'e4m3_and_e9m9'");
}

TEST(GemmTable, RefusesHalfAFile) {
    const std::string text = to_json(small_table());
    EXPECT_THROW(gemm_table_from_json(text.substr(0, text.size() / 2), "t.json"), types::InputError);
    EXPECT_THROW(gemm_table_from_json("{}", "t.json"), types::InputError);
}

TEST(GemmTable, OfAnotherDeviceOrVersionIsRefused) {
    const GemmTable table = small_table();
    EXPECT_NO_THROW(require_same_platform(table, {"NVIDIA H200", 130101}, "t.json"));
    EXPECT_EQ(message_of([&] {
                  require_same_platform(table, {"NVIDIA A100", 130101}, "t.json");
              }),
              "t.json: error: the table was measured on 'NVIDIA H200' with cuBLASLt 130101, this is 'NVIDIA A100' with "
              "cuBLASLt 130101\nhint: name another file, or remove this one to measure again");
    EXPECT_THROW(require_same_platform(table, {"NVIDIA H200", 130102}, "t.json"), types::InputError);
}

}  // namespace
}  // namespace stowage::executor
