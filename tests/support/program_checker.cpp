#include "tests/support/program_checker.hpp"

#include <algorithm>
#include <optional>
#include <unordered_map>

namespace stowage::tests {
namespace {

using program::Direction;
using program::Instance;
using program::Operation;
using program::OperationKind;
using program::RunStage;
using program::StepProgram;
using program::Stream;
using types::Bytes;

bool has_event(OperationKind kind) { return kind == OperationKind::event_record || kind == OperationKind::event_wait; }

bool has_slot(OperationKind kind) {
    switch (kind) {
        case OperationKind::allocate:
        case OperationKind::free:
        case OperationKind::record_stream:
        case OperationKind::pinned_acquire:
        case OperationKind::pinned_release: return true;
        default: return false;
    }
}

bool has_label(OperationKind kind) {
    return kind == OperationKind::compute || kind == OperationKind::copy || kind == OperationKind::collective ||
           kind == OperationKind::peer_transfer;
}

/// Follows a run operation by operation.
class Follower {
public:
    explicit Follower(const StepProgram& program) : program_(program) {}

    void stage(RunStage stage) {
        recorded_.clear();  // an event of an earlier step would hide one that this step forgot
        for (const IssuedOperation& issued : expand(program_, stage)) step(issued);
    }

    ProgramFacts finish(std::uint32_t persistent_frame) {
        for (const auto& [slot, held] : device_)
            if (slot < program_.frame_slots[persistent_frame] || slot >= program_.frame_slots[persistent_frame + 1])
                facts_.problems.push_back("still allocated: slot " + std::to_string(slot));
        for (const auto& [slot, bytes] : pinned_)
            facts_.problems.push_back("still pinned: slot " + std::to_string(slot));
        return facts_;
    }

private:
    struct Held {
        Bytes bytes;
        std::optional<std::uint64_t> reload;  ///< place in the h2d stream after which it is there
    };

    void step(const IssuedOperation& issued) {
        const Operation& operation = issued.operation;
        const std::uint32_t slot = program_.frame_slots[issued.frame] + operation.slot;
        const std::uint32_t event = program_.frame_events[issued.frame] + operation.slot;
        if (has_slot(operation.kind) && slot >= program_.frame_slots[issued.frame + 1])
            problem("beyond its frame", issued);
        if (has_event(operation.kind) && event >= program_.frame_events[issued.frame + 1])
            problem("beyond its frame", issued);
        switch (operation.kind) {
            case OperationKind::allocate: allocate(slot, issued); break;
            case OperationKind::free: free(slot, issued); break;
            case OperationKind::record_stream:
                if (!device_.contains(slot)) problem("used and not allocated", issued);
                break;
            case OperationKind::pinned_acquire:
                if (!pinned_.emplace(slot, operation.bytes).second) problem("pinned twice", issued);
                break;
            case OperationKind::pinned_release: unpin(slot, issued); break;
            case OperationKind::copy: copy(operation); break;
            case OperationKind::event_record: recorded_[event] = {operation.stream, h2d_place_}; break;
            case OperationKind::event_wait: wait(event, issued); break;
            default: break;
        }
    }

    void allocate(std::uint32_t slot, const IssuedOperation& issued) {
        Held held{issued.operation.bytes, std::nullopt};
        if (issued.operation.stream == Stream::h2d) held.reload = h2d_place_ + 1;  // its copy follows
        if (!device_.emplace(slot, held).second) problem("allocated twice", issued);
        now_ += issued.operation.bytes;
        facts_.peak = std::max(facts_.peak, now_);
    }

    void free(std::uint32_t slot, const IssuedOperation& issued) {
        const auto found = device_.find(slot);
        if (found == device_.end()) return problem("freed and not allocated", issued);
        if (found->second.bytes != issued.operation.bytes) problem("freed with other bytes", issued);
        if (found->second.reload && *found->second.reload > h2d_awaited_) ++facts_.unawaited_reloads;
        now_ -= found->second.bytes;
        device_.erase(found);
    }

    void unpin(std::uint32_t slot, const IssuedOperation& issued) {
        const auto found = pinned_.find(slot);
        if (found == pinned_.end()) return problem("released and not pinned", issued);
        if (found->second != issued.operation.bytes) problem("released with other bytes", issued);
        pinned_.erase(found);
    }

    void copy(const Operation& operation) {
        if (operation.direction == Direction::device_to_host) {
            facts_.offloaded += operation.bytes;
        } else if (operation.stream == Stream::h2d) {
            facts_.reloaded += operation.bytes;
            ++h2d_place_;
        } else {
            facts_.read_inline += operation.bytes;
        }
    }

    void wait(std::uint32_t event, const IssuedOperation& issued) {
        const auto found = recorded_.find(event);
        if (found == recorded_.end()) return problem("waits for an event never recorded", issued);
        if (issued.operation.stream == Stream::main && found->second.stream == Stream::h2d)
            h2d_awaited_ = std::max(h2d_awaited_, found->second.h2d_place);
    }

    void problem(const char* what, const IssuedOperation& issued) {
        facts_.problems.push_back(std::string(what) + ": " + text_of(program_, issued) + ", microbatch " +
                                  std::to_string(issued.microbatch));
    }

    struct Record {
        Stream stream;
        std::uint64_t h2d_place;
    };

    const StepProgram& program_;
    ProgramFacts facts_;
    std::unordered_map<std::uint32_t, Held> device_;
    std::unordered_map<std::uint32_t, Bytes> pinned_;
    std::unordered_map<std::uint32_t, Record> recorded_;
    Bytes now_;
    std::uint64_t h2d_place_ = 0;    ///< copies given to the h2d stream
    std::uint64_t h2d_awaited_ = 0;  ///< of them, those that the main stream has waited for
};

}  // namespace

std::vector<IssuedOperation> expand(const StepProgram& program, RunStage stage) {
    std::vector<IssuedOperation> all;
    for (const Instance& instance : program.instances(stage))
        for (const Operation& operation : program.bodies[program::index(instance.body)].operations) {
            const bool placed = has_slot(operation.kind) || has_event(operation.kind);
            const std::uint32_t frame = placed ? program.scope_frames[instance.frames_begin + operation.scope] : 0;
            all.push_back({operation, frame, instance.microbatch});
        }
    return all;
}

std::string text_of(const StepProgram& program, const IssuedOperation& issued) {
    const Operation& operation = issued.operation;
    const std::string stream(name_of(operation.stream));
    const std::string at = "@" + std::to_string(issued.frame);
    if (operation.kind == OperationKind::stream_wait) return stream + " waits " + std::string(name_of(operation.other));
    if (has_event(operation.kind)) {
        const std::string event =
            (operation.slot % 2 == 0 ? "OFF " : "REL ") + std::string(name_of(operation.module)) + at;
        return stream + (operation.kind == OperationKind::event_wait ? " waits " : " records ") + event;
    }
    std::string text(name_of(operation.kind));
    if (has_label(operation.kind)) return text + " " + stream + " '" + program.labels[operation.detail] + "'";
    if (!has_slot(operation.kind)) return text + " " + stream;
    return text + " " + stream + " " + std::to_string(operation.slot) + at;
}

std::vector<std::string> text_of(const StepProgram& program, RunStage stage) {
    std::vector<std::string> lines;
    for (const IssuedOperation& issued : expand(program, stage)) lines.push_back(text_of(program, issued));
    return lines;
}

ProgramFacts follow(const StepProgram& program, const std::vector<RunStage>& run) {
    Follower follower(program);
    follower.stage(RunStage::setup);
    for (const RunStage stage : run) follower.stage(stage);
    const Instance& setup = program.instances(RunStage::setup).front();
    return follower.finish(program.scope_frames[setup.frames_begin]);
}

}  // namespace stowage::tests
