#include "tests/executor/engine/fake_machine.hpp"

#include <fmt/format.h>

namespace stowage::testing {
namespace {

std::string on(program::Stream stream) { return std::string(program::name_of(stream)); }

}  // namespace

void FakeMachine::compute(const program::Work& work, std::span<const Address> buffers, program::Stream stream,
                          executor::Place place) {
    std::string call = fmt::format("{} on {} for {}:", layers::name_of(work.call), on(stream), place.microbatch);
    for (const Address buffer : buffers) call += fmt::format(" {:#x}", buffer);
    note(std::move(call));
    ++captured_.kernels;
}

void FakeMachine::copy(program::Direction direction, Address from, Address to, Bytes bytes, program::Stream stream) {
    note(fmt::format("copy {} on {}: {:#x} to {:#x}, {} bytes",
                     direction == program::Direction::device_to_host ? "out" : "in", on(stream), from, to,
                     bytes.count));
    ++captured_.copies;
}

void FakeMachine::delay(executor::Nanoseconds duration, program::Stream stream) {
    note(fmt::format("delay of {} ns on {}", duration.count(), on(stream)));
}

void FakeMachine::read_by_host(Bytes bytes, program::Stream stream) {
    note(fmt::format("host reads {} bytes on {}", bytes.count, on(stream)));
}

void FakeMachine::record(std::uint32_t event, program::Stream stream, bool external) {
    note(fmt::format("record {}{} on {}", event, external ? " for outside" : "", on(stream)));
}

void FakeMachine::wait(std::uint32_t event, program::Stream stream) {
    note(fmt::format("{} waits for {}", on(stream), event));
}

void FakeMachine::wait_stream(program::Stream stream, program::Stream other) {
    note(fmt::format("{} waits for {}", on(stream), on(other)));
}

void FakeMachine::synchronise(program::Stream stream) { note("host waits for " + on(stream)); }
void FakeMachine::synchronise_all() { note("host waits for all"); }

void FakeMachine::begin_capture(std::uint32_t graph) {
    note(fmt::format("capture {}", graph));
    captured_ = {};
}

executor::CapturedNodes FakeMachine::end_capture() {
    note("end of capture");
    captured_.copies -= lost_copies;
    return captured_;
}

void FakeMachine::launch_graph(std::uint32_t graph, program::Stream stream) {
    note(fmt::format("launch {} on {}", graph, on(stream)));
}

void FakeMachine::join_streams() { note("join"); }

std::optional<memory::Address> EndlessMemory::reserve(memory::Bytes size) {
    const memory::Address base = next_;
    next_ += static_cast<memory::Address>(size.count);
    return base;
}

}  // namespace stowage::testing
