#pragma once

// A machine that runs nothing and writes down what it is told, one line a call.

#include <map>
#include <string>
#include <vector>

#include "executor/engine/machine.hpp"

namespace stowage::testing {

class FakeMachine final : public executor::Machine {
public:
    using Address = executor::Address;
    using Bytes = executor::Bytes;

    void compute(const program::Work& work, std::span<const Address> buffers, program::Stream stream,
                 executor::Place place) override;
    void copy(program::Direction direction, Address from, Address to, Bytes bytes, program::Stream stream) override;
    void delay(executor::Nanoseconds duration, program::Stream stream) override;
    void read_by_host(Bytes bytes, program::Stream stream) override;
    void record(std::uint32_t event, program::Stream stream, bool external) override;
    void wait(std::uint32_t event, program::Stream stream) override;
    void wait_stream(program::Stream stream, program::Stream other) override;
    void synchronise(program::Stream stream) override;
    void synchronise_all() override;
    void begin_capture(std::uint32_t graph) override;
    executor::CapturedNodes end_capture() override;
    void launch_graph(std::uint32_t graph, program::Stream stream) override;
    void join_streams() override;

    std::vector<std::string> calls;
    /// Copies that the next graph loses: a device that captured fewer nodes than it was given.
    std::int64_t lost_copies = 0;

private:
    void note(std::string call) { calls.push_back(std::move(call)); }
    executor::CapturedNodes captured_;
};

/// Device memory that is only numbers, from 1 MiB on; it never ends.
class EndlessMemory final : public memory::DeviceMemory {
public:
    std::optional<memory::Address> reserve(memory::Bytes size) override;
    void release(memory::Address /*base*/, memory::Bytes /*size*/) override {}
    [[nodiscard]] memory::Bytes capacity() const override { return memory::Bytes{1LL << 40}; }
    memory::Address reserve_range(memory::Bytes size) override { return *reserve(size); }
    void release_range(memory::Address /*base*/, memory::Bytes /*size*/) override {}
    bool map(memory::Address /*base*/, memory::Bytes /*size*/) override { return true; }
    void unmap(memory::Address /*base*/, memory::Bytes /*size*/) override {}

private:
    memory::Address next_ = 1 << 20;
};

/// Everything is done as soon as it was issued.
class IdleEvents final : public memory::StreamEvents {
public:
    memory::EventHandle record(memory::Stream /*stream*/) override { return memory::EventHandle{0}; }
    bool completed(memory::EventHandle /*event*/) override { return true; }
    void wait_all() override {}
};

}  // namespace stowage::testing
