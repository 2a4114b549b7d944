#include "profiler/injection/find_cupti.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace stowage::profiler {
namespace {

namespace fs = std::filesystem;

/// A tree of files in a folder of its own.
class FindCupti : public testing::Test {
protected:
    void SetUp() override {
        const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
        root_ =
            fs::temp_directory_path() / ("find_cupti_" + std::string(test->name()) + "_" + std::to_string(getpid()));
        fs::create_directories(root_);
    }
    void TearDown() override { fs::remove_all(root_); }

    fs::path file(const std::string& name, const std::string& text = "") {
        const fs::path path = root_ / name;
        fs::create_directories(path.parent_path());
        std::ofstream(path) << text;
        return path;
    }
    fs::path program(const std::string& name, const std::string& text) {
        const fs::path path = file(name, text);
        fs::permissions(path, fs::perms::owner_all);
        return path;
    }

    fs::path root_;
};

TEST_F(FindCupti, KnowsPythonByItsName) {
    EXPECT_EQ(python_of({"python", "x.py"}, {}), "python");
    EXPECT_EQ(python_of({"/opt/bin/python3.12"}, {}), "/opt/bin/python3.12");
    EXPECT_FALSE(python_of({"pythonista"}, {}));
    EXPECT_FALSE(python_of({}, {}));
}

TEST_F(FindCupti, KnowsPythonByTheFirstLineOfAScript) {
    program("bin/torchrun", "#!/opt/venv/bin/python3\nimport sys\n");
    const fs::path script = program("train", "#!/usr/bin/env python3\n");
    const fs::path shell = program("run.sh", "#!/bin/sh\npython3 x.py\n");
    const Environment environment = {{"PATH", "/nowhere:" + (root_ / "bin").string()}};
    EXPECT_EQ(python_of({"torchrun"}, environment), "/opt/venv/bin/python3");
    EXPECT_EQ(python_of({script.string()}, environment), "python3");
    EXPECT_FALSE(python_of({shell.string()}, environment));
    EXPECT_FALSE(python_of({"elsewhere"}, environment));
}

TEST_F(FindCupti, LooksBesidePyTorchAndInPackages) {
    const fs::path of_toolkit = file("b/nvidia/cuda_cupti/lib/libcupti.so.13");
    EXPECT_EQ(cupti_below({root_ / "a", root_ / "b"}), of_toolkit);
    const fs::path earlier = file("a/torch/lib/libcupti.so.13");
    EXPECT_EQ(cupti_below({root_ / "a", root_ / "b"}), earlier);
    file("c/torch/lib/libcupti.so.12");
    EXPECT_FALSE(cupti_below({root_ / "c"}));
}

TEST_F(FindCupti, AsksPythonForItsFolders) {
    const fs::path found = file("site/nvidia/cu13/lib/libcupti.so.13");
    // Stands for an interpreter: says where modules are looked for.
    const fs::path python = program(
        "bin/python3", "#!/bin/sh\necho " + (root_ / "empty").string() + "\necho " + (root_ / "site").string() + "\n");
    EXPECT_EQ(find_cupti({python.string(), "train.py"}, {{"LD_LIBRARY_PATH", ""}}), found);
}

TEST_F(FindCupti, GoesOnToTheToolkitIfPythonHasNone) {
    const fs::path python = program("bin/python3", "#!/bin/sh\necho " + (root_ / "empty").string() + "\n");
    const fs::path found = file("toolkit/lib/libcupti.so.13");
    const Environment environment = {{"LD_LIBRARY_PATH", "/nowhere:" + (root_ / "toolkit/lib").string()}};
    EXPECT_EQ(find_cupti({python.string(), "train.py"}, environment), found);
}

TEST_F(FindCupti, LooksInLibraryPathThenInTheToolkitThatIsNamed) {
    const fs::path extras = file("cuda/extras/CUPTI/lib64/libcupti.so.13");
    Environment environment = {{"CUDA_HOME", (root_ / "cuda").string()}};
    EXPECT_EQ(find_cupti({"./train"}, environment), extras);
    const fs::path first = file("first/libcupti.so.13");
    environment["LD_LIBRARY_PATH"] = (root_ / "first").string();
    EXPECT_EQ(find_cupti({"./train"}, environment), first);
}

TEST_F(FindCupti, LeavesWhatIsNamedAlreadyIfItIsCupti) {
    const fs::path named = file("mine/libcupti.so.13.0");
    const fs::path other = file("mine/libnvtx_tool.so");
    const fs::path usual = file("usual/libcupti.so.13");
    Environment environment = {{"NVTX_INJECTION64_PATH", named.string()},
                               {"LD_LIBRARY_PATH", (root_ / "usual").string()}};
    EXPECT_EQ(find_cupti({"./train"}, environment), named);
    environment["NVTX_INJECTION64_PATH"] = other.string();
    EXPECT_EQ(find_cupti({"./train"}, environment), usual);
}

}  // namespace
}  // namespace stowage::profiler
