#include "executor/cuda/unique_handle.hpp"

#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

namespace stowage::executor {
namespace {

/// Handles that are pointers to the list in which their release is noted.
struct NotingTraits {
    static cudaError_t release(std::vector<int>* list) {
        list->push_back(1);
        return cudaSuccess;
    }
    static constexpr const char* kName = "a handle of a test";
};
using Handle = UniqueHandle<std::vector<int>*, NotingTraits>;

static_assert(!std::is_copy_constructible_v<Handle> && !std::is_copy_assignable_v<Handle>);
static_assert(std::is_nothrow_move_constructible_v<Handle> && std::is_nothrow_move_assignable_v<Handle>);

TEST(UniqueHandle, ReleasesOnceAtItsEnd) {
    std::vector<int> released;
    {
        const Handle handle(&released);
        EXPECT_TRUE(handle);
        EXPECT_EQ(handle.get(), &released);
    }
    EXPECT_EQ(released.size(), 1U);
}

TEST(UniqueHandle, ReleasesNothingIfEmpty) {
    const Handle handle;
    EXPECT_FALSE(handle);
    EXPECT_EQ(handle.get(), nullptr);
}

TEST(UniqueHandle, IsEmptyAfterAMove) {
    std::vector<int> released;
    {
        Handle from(&released);
        const Handle to(std::move(from));
        EXPECT_FALSE(from);  // NOLINT(bugprone-use-after-move): what a move leaves is promised
        EXPECT_EQ(to.get(), &released);
    }
    EXPECT_EQ(released.size(), 1U);
}

TEST(UniqueHandle, ReleasesWhatItHadWhenAnotherIsMovedIn) {
    std::vector<int> first;
    std::vector<int> second;
    Handle handle(&first);
    handle = Handle(&second);
    EXPECT_EQ(first.size(), 1U);
    EXPECT_EQ(second.size(), 0U);
    EXPECT_EQ(handle.get(), &second);
}

TEST(UniqueHandle, SurvivesBeingMovedIntoItself) {
    std::vector<int> released;
    Handle handle(&released);
    Handle& same = handle;
    handle = std::move(same);
    EXPECT_EQ(handle.get(), &released);
    EXPECT_EQ(released.size(), 0U);
}

TEST(UniqueHandle, ReleasesAtOnceWhenReset) {
    std::vector<int> released;
    Handle handle(&released);
    handle.reset();
    handle.reset();
    EXPECT_EQ(released.size(), 1U);
}

struct FailingTraits {
    static cudaError_t release(int* /*handle*/) { return cudaErrorInvalidResourceHandle; }
    static constexpr const char* kName = "a handle that fails";
};

TEST(UniqueHandle, ReportsAFailedReleaseOnceInAProcessAndNeverThrows) {
    int first = 0;
    int second = 0;
    testing::internal::CaptureStderr();
    { const UniqueHandle<int*, FailingTraits> one(&first), two(&second); }
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(said,
              "warning: cudaErrorInvalidResourceHandle: invalid resource handle, while releasing a handle that fails; "
              "later failures of this kind are not reported\n");
}

}  // namespace
}  // namespace stowage::executor
