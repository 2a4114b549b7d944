#pragma once

// The memory of one rank, stage by stage, of a program whose allocations come out the same whatever the time: no block
// is used on a stream other than its own, so that none is held back after its free, and the device has room. All of a
// stage is then walked at once, before anything runs, and not again where it begins as it did the last time.

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/memory/caching_allocator.hpp"
#include "planner/program/step_program.hpp"
#include "planner/program/timeline.hpp"
#include "planner/simulator/rank_simulator.hpp"

namespace stowage::simulator {

class MemoryWalk {
public:
    /// The host's time for a call of the device, in an operation of an instance.
    struct DeviceCall {
        std::uint32_t instance = 0;
        std::uint32_t operation = 0;
        Tick cost = 0;
    };

    /// Whether all that the program does with memory is to allocate and to free it.
    static bool handles(const program::StepProgram& program);

    /// Keeps references to program and node.
    MemoryWalk(const program::StepProgram& program, const types::Node& node, const SimulationOptions& options);

    /// Result: false if the device ran full: what happens then depends on the time, and this walk is of no more use.
    /// Throws: std::logic_error if something but persistent memory is left at the end.
    bool walk(const std::vector<program::Instance>& sequence);

    /// Of the last walk, in the order of the program.
    [[nodiscard]] const std::vector<DeviceCall>& device_calls() const { return device_calls_; }
    /// Fills in what the stage came to.
    void report(program::StageResult& result) const;

private:
    struct Operation {
        Bytes bytes;
        std::uint32_t slot = 0;
        std::uint32_t number = 0;  ///< in its body
        program::Scope scope = 0;
        std::uint8_t stream = 0;
        bool allocates = false;
    };
    /// Never asked for anything but that a block is held: that needs the time.
    class NoEvents final : public memory::StreamEvents {
    public:
        memory::EventHandle record(memory::Stream stream) override;
        bool completed(memory::EventHandle event) override;
        void wait_all() override { asked_ = true; }
        [[nodiscard]] bool asked() const { return asked_; }

    private:
        bool asked_ = false;
    };

    bool walk_again(const std::vector<program::Instance>& sequence);
    bool allocate(const Operation& operation, std::uint32_t& slot, std::uint32_t instance);
    [[nodiscard]] std::vector<memory::Address> places() const;
    void check_only_persistent_left() const;

    const program::StepProgram& program_;
    const types::Node& node_;
    std::optional<Bytes> stop_above_;
    memory::VirtualDeviceMemory device_memory_;
    NoEvents events_;
    memory::CachingAllocator allocator_;
    std::vector<std::vector<Operation>> bodies_;
    std::vector<std::uint32_t> slots_;  ///< block of each slot, plus one; 0 is none
    std::vector<DeviceCall> device_calls_;
    std::int64_t calls_before_ = 0;
    const std::vector<program::Instance>* last_ = nullptr;  ///< the sequence of the last walk
    std::vector<memory::Address> began_with_;               ///< places() when it began
};

}  // namespace stowage::simulator
