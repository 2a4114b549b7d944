#include "tests/architecture/include_direction.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace stowage::architecture {
namespace {

namespace fs = std::filesystem;

/// A small tree of its own, removed afterwards.
class PlantedTree : public testing::Test {
protected:
    PlantedTree() : root_(fs::temp_directory_path() / ("stowage-architecture-" + std::to_string(getpid()))) {
        fs::remove_all(root_);
        write("scenarios/types/bytes.hpp", "#pragma once\n#include <cstdint>\n");
        write("scenarios/reader/reader.hpp", "#include \"scenarios/types/bytes.hpp\"\n");
        write("planner/memory/pool.hpp", "#include \"scenarios/types/bytes.hpp\"\n");
        write("planner/simulator/queue.hpp", "#include \"planner/memory/pool.hpp\"\n");
        write("executor/cuda/stream.hpp", "#include <cuda_runtime.h>\n");
    }
    PlantedTree(const PlantedTree&) = delete;
    PlantedTree& operator=(const PlantedTree&) = delete;
    ~PlantedTree() override {
        std::error_code ignored;
        fs::remove_all(root_, ignored);
    }

    void write(const std::string& file, const std::string& text) const {
        fs::create_directories((root_ / file).parent_path());
        std::ofstream(root_ / file) << text;
    }
    [[nodiscard]] std::vector<Violation> violations() const { return find_violations(root_); }
    [[nodiscard]] std::string only_violation() const {
        const std::vector<Violation> found = violations();
        return found.size() == 1 ? to_string(found.front()) : std::to_string(found.size()) + " violations";
    }

private:
    fs::path root_;
};

TEST(IncludeDirection, HoldsInThisTree) {
    const fs::path root = STOWAGE_SOURCE_DIR;
    std::string report;
    for (const Violation& violation : find_violations(root)) report += to_string(violation) + "\n";
    EXPECT_EQ(report, "");
    EXPECT_GT(count_sources(root), 20U) << "the check looked at hardly any file below " << root;
}

TEST(IncludeDirection, LetsPlannerLeavesUseOnlyThoseBeforeThem) {
    const std::set<std::string> scenarios = {"scenarios/types", "scenarios/reader", "scenarios/recording"};
    EXPECT_EQ(allowed_uses("planner/layers"), scenarios);
    std::set<std::string> before_memory = scenarios;
    before_memory.insert({"planner/layers", "planner/rules", "planner/program"});
    EXPECT_EQ(allowed_uses("planner/memory"), before_memory);
    EXPECT_TRUE(allowed_uses("planner/search").contains("planner/simulator"));
    EXPECT_FALSE(allowed_uses("planner/simulator").contains("planner/search"));
}

TEST(IncludeDirection, LetsOnlyTheEngineJoinPlannerAndProfiler) {
    for (const char* planner : {"planner/program", "planner/memory", "profiler/cupti"}) {
        EXPECT_TRUE(allowed_uses("executor/engine").contains(planner)) << planner;
        EXPECT_FALSE(allowed_uses("executor/workload").contains(planner)) << planner;
        EXPECT_FALSE(allowed_uses("executor/ranks").contains(planner)) << planner;
    }
    EXPECT_FALSE(allowed_uses("executor/engine").contains("planner/simulator"));
}

// libstowage_gpu.so joins the executor with the profiler, which lies above it: cli/gpu, where both may be used.
TEST(IncludeDirection, LetsNothingOfADeviceUseTheCommand) {
    for (const char* folder : {"executor/engine", "profiler/calibrate", "profiler/record"})
        EXPECT_FALSE(allowed_uses(folder).contains("cli")) << folder;
    EXPECT_FALSE(allowed_uses("executor/engine").contains("profiler/calibrate"));
    EXPECT_TRUE(allowed_uses("profiler/calibrate").contains("executor/engine"));
    EXPECT_EQ(folder_of("cli/gpu/gpu_library.cpp"), "cli");
}

TEST(IncludeDirection, KeepsTheVocabularyFreeOfEverything) { EXPECT_TRUE(allowed_uses("scenarios/types").empty()); }

TEST(IncludeDirection, NamesTheFolderOfAFile) {
    EXPECT_EQ(folder_of("planner/memory/pool.hpp"), "planner/memory");
    EXPECT_EQ(folder_of("reports/table.hpp"), "reports");
    EXPECT_EQ(folder_of("tests/planner/memory/pool_test.cpp"), "tests");
    EXPECT_EQ(folder_of("planner/pool.hpp"), "");
    EXPECT_EQ(folder_of("main.cpp"), "");
}

TEST_F(PlantedTree, IsCleanBeforeAnythingIsPlanted) {
    EXPECT_TRUE(violations().empty()) << to_string(violations().front());
}

TEST_F(PlantedTree, NamesTheLineThatPointsBackwards) {
    write("planner/memory/pool.cpp", "#include <vector>\n\n#  include \"planner/simulator/queue.hpp\"\n");
    EXPECT_EQ(only_violation(),
              "planner/memory/pool.cpp:3: planner/memory may not use planner/simulator "
              "(\"planner/simulator/queue.hpp\")");
}

TEST_F(PlantedTree, CatchesTheVocabularyUsingItsReader) {
    write("scenarios/types/model.hpp", "#include \"scenarios/reader/reader.hpp\"\n");
    EXPECT_EQ(only_violation(),
              "scenarios/types/model.hpp:1: scenarios/types may not use scenarios/reader "
              "(\"scenarios/reader/reader.hpp\")");
}

TEST_F(PlantedTree, CatchesATestThatIsIncludedByTheProduct) {
    write("tests/support/fake.hpp", "#pragma once\n");
    write("cli/main.cpp", "#include \"tests/support/fake.hpp\"\n");
    EXPECT_EQ(only_violation(), "cli/main.cpp:1: cli may not use tests (\"tests/support/fake.hpp\")");
}

TEST_F(PlantedTree, CatchesAnIncludeThatIsNotWrittenFromTheRoot) {
    write("planner/simulator/queue.cpp", "#include \"queue.hpp\"\n");
    EXPECT_EQ(only_violation(),
              "planner/simulator/queue.cpp:1: \"queue.hpp\" is not written from the root, or is in a folder the table "
              "does not know");
}

TEST_F(PlantedTree, CatchesOurHeaderInAngleBrackets) {
    write("planner/simulator/queue.cpp", "#include <planner/simulator/queue.hpp>\n");
    EXPECT_EQ(only_violation(),
              "planner/simulator/queue.cpp:1: <planner/simulator/queue.hpp> is ours: write it in quotes");
}

TEST_F(PlantedTree, CatchesCudaInThePlanner) {
    write("planner/memory/pool.cpp", "#include <cuda_runtime.h>\n");
    EXPECT_EQ(only_violation(),
              "planner/memory/pool.cpp:1: planner/memory builds without the CUDA toolkit, so it may not include "
              "<cuda_runtime.h>");
}

TEST_F(PlantedTree, CatchesAFolderThatHasNoRule) {
    write("helpers/strings.cpp", "#include <string>\n");
    ASSERT_EQ(violations().size(), 1U);
    EXPECT_EQ(violations().front().file, "helpers/strings.cpp");
}

TEST_F(PlantedTree, PassesOverBuildFoldersAndHiddenOnes) {
    write("build-mine/generated.cpp", "#include \"cli/nowhere.hpp\"\n");
    write(".cache/copy.cpp", "#include \"cli/nowhere.hpp\"\n");
    EXPECT_TRUE(violations().empty());
}

}  // namespace
}  // namespace stowage::architecture
