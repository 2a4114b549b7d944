// Stand-ins on a device: as long as they are asked to be, and what they write depends on all that they read.

#include <algorithm>
#include <iostream>
#include <string>

#include "executor/cuda/event.hpp"
#include "executor/workload/stand_ins.hpp"
#include "tests/executor/workload/workload_fixture.hpp"

namespace stowage::executor {
namespace {

using layers::StandInWork;
using types::Bytes;
using types::KernelClass;
using types::Nanoseconds;

constexpr std::int64_t kMiB = 1 << 20;

class StandIn : public WorkloadGpu {
protected:
    void SetUp() override {
        WorkloadGpu::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        workload().prepare(std::vector<CallShape>{{layers::Call::stand_in, {}}});
        workload().begin_step(0, stream().get());
    }

    void launch(const StandInWork& work, const std::vector<const Buffer*>& buffers, std::int64_t microbatch = 0) {
        layers::CallSizes sizes;
        sizes.stand_in = work;
        std::vector<void*> pointers;
        for (const Buffer* buffer : buffers) pointers.push_back(buffer->get());
        workload().launch(layers::Call::stand_in, sizes, pointers, stream().get(), {microbatch, 0});
    }

    /// From the start of one to the start of the next, over a row of them; the middle of five rows.
    double microseconds(const StandInWork& work, const std::vector<const Buffer*>& buffers) {
        constexpr int kRow = 20;
        const Event start(EventTiming::on);
        const Event end(EventTiming::on);
        std::vector<double> rows;
        for (int row = 0; row < 6; ++row) {
            start.record(stream().ref());
            for (int i = 0; i < kRow; ++i) launch(work, buffers);
            end.record(stream().ref());
            end.synchronize();
            if (row > 0) rows.push_back(static_cast<double>(elapsed(start.ref(), end.ref()).count()) / 1000 / kRow);
        }
        std::sort(rows.begin(), rows.end());
        return rows[rows.size() / 2];
    }

    void expect_length(KernelClass kind, std::int64_t asked_us, std::int64_t traffic) {
        const Buffer x(8 * kMiB);
        const Buffer y(8 * kMiB);
        const StandInWork work{kind, Nanoseconds{1000 * asked_us}, Bytes{traffic}, {Bytes{8 * kMiB}}, {Bytes{8 * kMiB}},
                               {}};
        const double taken = microseconds(work, {&x, &y});
        RecordProperty("microseconds", std::to_string(taken));
        EXPECT_NEAR(taken, static_cast<double>(asked_us), 0.05 * static_cast<double>(asked_us))
            << types::name_of(kind) << " of " << asked_us << " us with " << traffic << " bytes";
    }
};

TEST_F(StandIn, OfAProductIsAsLongAsAsked) {
    for (const std::int64_t asked : {100, 300, 1000, 4000}) expect_length(KernelClass::gemm, asked, 100 * kMiB);
}

TEST_F(StandIn, OfAttentionIsAsLongAsAsked) {
    for (const std::int64_t asked : {100, 1000}) expect_length(KernelClass::attention, asked, 20 * kMiB);
}

// 1 TB/s: what any device that this is compiled for has memory for.
TEST_F(StandIn, BoundByMemoryIsAsLongAsAsked) {
    for (const std::int64_t asked : {100, 300, 1000, 4000})
        expect_length(KernelClass::memory_bound, asked, asked * 1'000'000);
}

// Asked for no time at all, it takes what its bytes take: so much memory traffic there really is. The best device that
// this runs on moves 8 TB/s.
TEST_F(StandIn, MovesTheBytesOfItsOperands) {
    const Buffer x(512 * kMiB);
    const Buffer y(512 * kMiB);
    const StandInWork work{KernelClass::memory_bound, Nanoseconds{0},      Bytes{1024 * kMiB},
                           {Bytes{512 * kMiB}},       {Bytes{512 * kMiB}}, {}};
    const double taken = microseconds(work, {&x, &y});
    const double rate = 1024.0 * kMiB / taken / 1e6;  // TB/s
    RecordProperty("terabytes_per_second", std::to_string(rate));
    std::cout << "stand-in without a length: " << rate << " TB/s read and written\n";
    EXPECT_LT(rate, 8.0);
    EXPECT_GT(rate, 0.5);
}

/// Bytes of both sides that reach every way to move them: one piece for one, many for one, one for many, all to a sum.
struct Sides {
    std::int64_t read;
    std::int64_t written;
};
constexpr Sides kSides[] = {
    {64 * 1024, 64 * 1024}, {100'000 / 16 * 16, 16'000}, {4096, 1 * kMiB}, {4 * kMiB, 512}, {16, 16}};

TEST_F(StandIn, WritesTheSameForTheSameAndAnotherForEveryBit) {
    for (const Sides& sides : kSides) {
        SCOPED_TRACE(std::to_string(sides.read) + " to " + std::to_string(sides.written));
        std::vector<std::uint32_t> words(static_cast<std::size_t>(sides.read) / 4);
        for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint32_t>(i * 2654435761U + 12345U);
        const Buffer x(sides.read);
        const Buffer y(sides.written);
        const StandInWork work{KernelClass::gemm,   Nanoseconds{5000},      Bytes{sides.read + sides.written},
                               {Bytes{sides.read}}, {Bytes{sides.written}}, {}};
        const auto digest = [&] {
            x.write(words);
            launch(work, {&x, &y});
            check(cudaStreamSynchronize(stream().get()), "waiting");
            return y.digest();
        };
        const std::uint64_t first = digest();
        EXPECT_EQ(digest(), first);
        for (const std::size_t place : {std::size_t{0}, words.size() / 3, words.size() - 1}) {
            words[place] ^= 0x400U;
            EXPECT_NE(digest(), first) << "word " << place;
            words[place] ^= 0x400U;
        }
    }
}

TEST_F(StandIn, ReadsAndWritesSeveralBuffersAndNothingBehindThem) {
    const Buffer a(5 * 4096);
    const Buffer b(4096);
    const Buffer c(48 + 16);
    const Buffer d(3 * 4096 + 16);
    for (const Buffer* buffer : {&c, &d})
        buffer->write(std::vector<std::uint8_t>(static_cast<std::size_t>(buffer->bytes()), 0xabU));
    a.write(std::vector<std::uint32_t>(5 * 1024, 7));
    b.write(std::vector<std::uint32_t>(1024, 9));
    const StandInWork work{KernelClass::memory_bound,
                           Nanoseconds{1000},
                           Bytes{40'000},
                           {Bytes{5 * 4096}, Bytes{4096}},
                           {Bytes{48}, Bytes{3 * 4096}},
                           {}};
    launch(work, {&a, &b, &c, &d});
    check(cudaStreamSynchronize(stream().get()), "waiting");
    for (const Buffer* buffer : {&c, &d}) {
        const auto bytes = buffer->read<std::uint8_t>();
        for (std::size_t i = bytes.size() - 16; i < bytes.size(); ++i) EXPECT_EQ(bytes[i], 0xabU);
        EXPECT_GT(std::count_if(bytes.begin(), bytes.end() - 16, [](std::uint8_t byte) { return byte != 0xabU; }),
                  static_cast<std::ptrdiff_t>(bytes.size() - 16) * 9 / 10);
    }
}

TEST_F(StandIn, AddsToSumsAndDependsOnTheMicrobatchWhereItReadsNothing) {
    const Buffer sums(4096);
    const StandInWork work{KernelClass::gemm, Nanoseconds{1000}, Bytes{8192}, {}, {}, Bytes{4096}};
    const auto after = [&](std::initializer_list<std::int64_t> microbatches) {
        sums.write(std::vector<std::uint32_t>(1024, 0));
        for (const std::int64_t microbatch : microbatches) launch(work, {&sums}, microbatch);
        check(cudaStreamSynchronize(stream().get()), "waiting");
        return sums.read<std::uint32_t>();
    };
    const auto one = after({1});
    const auto two = after({2});
    EXPECT_NE(one, two);
    const auto both = after({1, 2});
    for (std::size_t i = 0; i < both.size(); ++i) ASSERT_EQ(both[i], one[i] + two[i]) << i;
}

TEST_F(StandIn, RefusesOperandsThatAreNotItsOwn) {
    const Buffer x(64);
    const StandInWork work{KernelClass::gemm, Nanoseconds{1000}, Bytes{64}, {Bytes{64}}, {Bytes{64}}, {}};
    EXPECT_THROW(launch(work, {&x}), std::logic_error);
}

}  // namespace
}  // namespace stowage::executor
