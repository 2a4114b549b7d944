#include "scenarios/types/bytes.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "scenarios/types/time.hpp"

namespace stowage::types {
namespace {

TEST(Bytes, LiteralsAreBinary) {
    EXPECT_EQ((3_KiB).count, 3 * 1024);
    EXPECT_EQ((80_GiB).count, 85'899'345'920);
    EXPECT_DOUBLE_EQ(in_mib(1_GiB), 1024.0);
}

TEST(TransferTime, RoundsUpToWholeNanoseconds) {
    // 1 byte at 1 GB/s is 1 ns; at 3 GB/s a third of one, which is still 1 ns.
    EXPECT_EQ(transfer_time(1_B, BytesPerSecond{1e9}), Nanoseconds{1});
    EXPECT_EQ(transfer_time(1_B, BytesPerSecond{3e9}), Nanoseconds{1});
    // 1 MiB at 50 GB/s: 1048576 / 50 = 20971.52 ns.
    EXPECT_EQ(transfer_time(1_MiB, BytesPerSecond{50e9}), Nanoseconds{20972});
}

TEST(TransferTime, RefusesARateOfZero) { EXPECT_THROW(transfer_time(1_B, BytesPerSecond{0}), std::logic_error); }

}  // namespace
}  // namespace stowage::types
