#include "profiler/record/tensor_groups.hpp"

#include <gtest/gtest.h>

namespace stowage::profiler {
namespace {

using recording::Group;
using recording::Tensor;
using types::Bytes;
using types::Nanoseconds;
using Kind = MemoryEvent::Kind;

/// Memory events under marks, one nanosecond apart from 100 on, in a step whose only activity runs from 100 to 200.
class Memory {
public:
    Memory() {
        step_.stage = "record";
        Activity activity;
        activity.start = Nanoseconds{100};
        activity.end = Nanoseconds{200};
        step_.activities.names = {""};
        step_.activities.activities = {activity};
    }

    Memory& under(Mark mark) {
        ++number_;
        step_.marks[number_] = std::move(mark);
        return *this;
    }
    Memory& note(Kind kind, std::uint64_t address, std::int64_t bytes) {
        const Nanoseconds time{100 + std::ssize(step_.memory)};
        step_.memory.push_back({kind, address, Bytes{bytes}, time, number_});
        return *this;
    }
    [[nodiscard]] std::vector<Group> groups() const { return tensor_groups(step_); }

private:
    RawStep step_;
    OperationNumber number_ = 0;
};

Mark mark(const std::string& module, const std::string& phase, std::int32_t layer = 0, std::int32_t microbatch = 0) {
    return {.module = module, .phase = phase, .work = "", .layer = layer, .microbatch = microbatch, .chunk = 0};
}

TEST(TensorGroups, BelongToTheModuleThatAllocatedWhatTheBackwardFrees) {
    const std::vector<Group> groups = Memory()
                                          .under(mark("core_attn", "forward"))
                                          .note(Kind::allocate, 0x100, 64)
                                          .under(mark("core_attn", "backward"))
                                          .note(Kind::free, 0x100, 64)
                                          .groups();
    const Tensor tensor{.storage = 0,
                        .bytes = Bytes{64},
                        .storage_bytes = Bytes{64},
                        .allocated = Nanoseconds{0},
                        .freed = Nanoseconds{1}};
    EXPECT_EQ(groups, (std::vector<Group>{{"core_attn", 0, 0, 0, {tensor}}}));
}

// The next forward frees what it was handed; an optimizer's state stays; a gradient is made in the backward.
TEST(TensorGroups, LeaveOutWhatTheForwardNeedsForItselfAndWhatStays) {
    EXPECT_TRUE(Memory()
                    .under(mark("mlp_fc2", "forward"))
                    .note(Kind::allocate, 0x100, 64)
                    .note(Kind::allocate, 0x200, 64)
                    .under(mark("attn_norm", "forward", 1))
                    .note(Kind::free, 0x100, 64)
                    .under(mark("mlp_fc2", "backward"))
                    .note(Kind::allocate, 0x300, 64)
                    .note(Kind::free, 0x300, 64)
                    .groups()
                    .empty());
}

// The norm of layer 1 copies what layer 0 made, and frees it in the forward.
TEST(TensorGroups, BelongToTheModuleThatMovesWhereverTheStorageWasMade) {
    const std::vector<Group> groups = Memory()
                                          .under(mark("mlp_fc2", "forward", 0, 2))
                                          .note(Kind::allocate, 0x100, 64)
                                          .under(mark("attn_norm", "forward", 1, 2))
                                          .note(Kind::offloaded, 0x100, 64)
                                          .note(Kind::free, 0x100, 64)
                                          .groups();
    ASSERT_EQ(groups.size(), 1U);
    EXPECT_EQ(groups[0].module, "attn_norm");
    EXPECT_EQ(groups[0].layer, 1);
    EXPECT_EQ(groups[0].microbatch, 2);
    ASSERT_EQ(groups[0].tensors.size(), 1U);
    EXPECT_TRUE(groups[0].tensors[0].offloaded);
}

TEST(TensorGroups, ShareAStorageThatTwoModulesSave) {
    const std::vector<Group> groups = Memory()
                                          .under(mark("core_attn", "forward"))
                                          .note(Kind::allocate, 0x100, 64)
                                          .note(Kind::allocate, 0x200, 32)
                                          .note(Kind::offloaded, 0x100, 64)
                                          .under(mark("attn_proj", "forward"))
                                          .note(Kind::offloaded, 0x100, 64)
                                          .note(Kind::offloaded, 0x200, 32)
                                          .groups();
    ASSERT_EQ(groups.size(), 2U);
    EXPECT_EQ(groups[0].tensors[0].storage, groups[1].tensors[0].storage);
    EXPECT_NE(groups[0].tensors[0].storage, groups[1].tensors[1].storage);
}

// An address that was freed and given out again is another storage.
TEST(TensorGroups, TellStoragesOfOneAddressApart) {
    const std::vector<Group> groups = Memory()
                                          .under(mark("core_attn", "forward"))
                                          .note(Kind::allocate, 0x100, 64)
                                          .note(Kind::offloaded, 0x100, 64)
                                          .note(Kind::free, 0x100, 64)
                                          .note(Kind::allocate, 0x100, 32)
                                          .note(Kind::offloaded, 0x100, 32)
                                          .note(Kind::free, 0x100, 32)
                                          .groups();
    ASSERT_EQ(groups.size(), 1U);
    ASSERT_EQ(groups[0].tensors.size(), 2U);
    EXPECT_NE(groups[0].tensors[0].storage, groups[0].tensors[1].storage);
    EXPECT_EQ(groups[0].tensors[1].storage_bytes, Bytes{32});
}

// Two views of 16 bytes of a storage of 64: what was saved, and what the storage has.
TEST(TensorGroups, SayWhatWasSavedOfAStorage) {
    const std::vector<Group> groups = Memory()
                                          .under(mark("core_attn", "forward"))
                                          .note(Kind::allocate, 0x100, 64)
                                          .note(Kind::save, 0x110, 16)
                                          .note(Kind::save, 0x120, 16)
                                          .groups();
    ASSERT_EQ(groups.size(), 1U);
    ASSERT_EQ(groups[0].tensors.size(), 2U);
    for (const Tensor& tensor : groups[0].tensors) {
        EXPECT_EQ(tensor.storage, 0U);
        EXPECT_EQ(tensor.bytes, Bytes{16});
        EXPECT_EQ(tensor.storage_bytes, Bytes{64});
        EXPECT_FALSE(tensor.offloaded);
        EXPECT_EQ(tensor.freed, Nanoseconds{100});  // not in the step, which ends at 200
    }
}

// A save and the copy of the same bytes by the same module are one tensor.
TEST(TensorGroups, CountATensorOnceThatWasSavedAndMoved) {
    const std::vector<Group> groups = Memory()
                                          .under(mark("core_attn", "forward"))
                                          .note(Kind::allocate, 0x100, 64)
                                          .note(Kind::save, 0x100, 64)
                                          .note(Kind::offloaded, 0x100, 64)
                                          .groups();
    ASSERT_EQ(groups.size(), 1U);
    ASSERT_EQ(groups[0].tensors.size(), 1U);
    EXPECT_TRUE(groups[0].tensors[0].offloaded);
}

// A weight was there before the step and is there after it. The loss's input, freed in the step, is no parameter.
TEST(TensorGroups, TellParametersByTheirStorage) {
    const std::vector<Group> groups = Memory()
                                          .under(mark("qkv_linear", "forward"))
                                          .note(Kind::save, 0x5000, 640)
                                          .note(Kind::save, 0x7000, 64)
                                          .under(mark("qkv_linear", "backward"))
                                          .note(Kind::free, 0x7000, 64)
                                          .groups();
    ASSERT_EQ(groups.size(), 1U);
    ASSERT_EQ(groups[0].tensors.size(), 2U);
    EXPECT_TRUE(groups[0].tensors[0].parameter);
    EXPECT_EQ(groups[0].tensors[0].storage_bytes, Bytes{640});
    EXPECT_FALSE(groups[0].tensors[1].parameter);
}

TEST(TensorGroups, OfNothingAreNone) { EXPECT_TRUE(tensor_groups({}).empty()); }

}  // namespace
}  // namespace stowage::profiler
