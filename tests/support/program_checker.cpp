#include "tests/support/program_checker.hpp"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

namespace stowage::tests {
namespace {

using program::Direction;
using program::Graph;
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

bool waits_for_device(OperationKind kind) {
    return kind == OperationKind::stream_sync || kind == OperationKind::device_sync ||
           kind == OperationKind::empty_cache || kind == OperationKind::graph_launch;
}

/// Follows a run operation by operation.
class Follower {
public:
    explicit Follower(const StepProgram& program) : program_(program), captured_(program.graphs.size(), false) {}

    void stage(RunStage stage) {
        recorded_.clear();  // an event of an earlier step would hide one that this step forgot
        capture_stage_ = stage == RunStage::capture;
        for (const IssuedOperation& issued : expand(program_, stage)) step(issued);
        if (graph_) facts_.problems.emplace_back("a graph is begun and not ended");
        if (capture_stage_) note_what_graphs_keep();
    }

    ProgramFacts finish(std::uint32_t persistent_frame) {
        for (const auto& [slot, held] : device_)
            if (slot < program_.frame_slots[persistent_frame] && !kept_.contains(slot))
                facts_.problems.push_back("still allocated: slot " + std::to_string(slot));
        for (const std::uint32_t slot : kept_)
            if (!device_.contains(slot))
                facts_.problems.push_back("a graph lost its memory: slot " + std::to_string(slot));
        for (const auto& [slot, bytes] : pinned_)
            facts_.problems.push_back("still pinned: slot " + std::to_string(slot));
        return facts_;
    }

private:
    struct Held {
        Bytes bytes;
        std::optional<std::uint64_t> reload;  ///< place in the h2d stream after which it is there
        std::optional<std::uint32_t> graph;   ///< whose capture allocated it
    };

    void step(const IssuedOperation& issued) {
        const Operation& operation = issued.operation;
        const std::uint32_t slot = program_.frame_slots[issued.frame] + operation.slot;
        if (has_slot(operation.kind) && slot >= program_.frame_slots[issued.frame + 1])
            problem("beyond its frame", issued);
        if (graph_ && waits_for_device(operation.kind)) problem("inside a capture", issued);
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
            case OperationKind::graph_begin: begin(issued); break;
            case OperationKind::graph_end: end(issued); break;
            case OperationKind::graph_launch: launch(issued); break;
            default: device_work(issued); break;
        }
    }

    /// What a graph repeats at every launch.
    void device_work(const IssuedOperation& issued) {
        const Operation& operation = issued.operation;
        const std::uint32_t event = program_.frame_events[issued.frame] + operation.slot;
        if (has_event(operation.kind) && event >= program_.frame_events[issued.frame + 1])
            problem("beyond its frame", issued);
        switch (operation.kind) {
            case OperationKind::compute:
                if (!graph_) ++facts_.kernels;
                break;
            case OperationKind::copy: copy(operation); break;
            case OperationKind::event_record: recorded_[event] = {operation.stream, h2d_place_}; break;
            case OperationKind::event_wait: wait(event, issued); break;
            default: break;
        }
    }

    void begin(const IssuedOperation& issued) {
        if (graph_) problem("begun inside another", issued);
        if (issued.graph >= captured_.size()) return problem("no such graph", issued);
        graph_ = issued.graph;
        recorded_.clear();
        const Graph& graph = program_.graphs[issued.graph];
        if (issued.instance != graph.begin) problem("begun elsewhere", issued);
        if (captured_[issued.graph]) problem("captured twice", issued);
    }

    void end(const IssuedOperation& issued) {
        if (!graph_ || *graph_ != issued.graph) return problem("ended and not begun", issued);
        const std::uint32_t end_of_graph = program_.graphs[issued.graph].end;
        if (issued.instance != end_of_graph && issued.instance + 1 != end_of_graph) problem("ended elsewhere", issued);
        captured_[issued.graph] = true;
        graph_.reset();
        recorded_.clear();
    }

    void launch(const IssuedOperation& issued) {
        if (issued.graph >= captured_.size() || !captured_[issued.graph])
            return problem("launched before its capture", issued);
        ++facts_.launches;
        launching_ = true;
        for (const IssuedOperation& node : expand(program_, program_.graphs[issued.graph])) device_work(node);
        launching_ = false;
    }

    void allocate(std::uint32_t slot, const IssuedOperation& issued) {
        Held held{issued.operation.bytes, std::nullopt, graph_};
        if (issued.operation.stream == Stream::h2d) held.reload = h2d_place_ + 1;  // its copy follows
        if (capture_stage_ && !graph_ && issued.frame != program_.graph_frame)
            problem("allocated between captures", issued);
        if (!device_.emplace(slot, held).second) problem("allocated twice", issued);
        if (issued.frame == program_.graph_frame) ++facts_.static_buffers;
        now_ += issued.operation.bytes;
        facts_.peak = std::max(facts_.peak, now_);
    }

    void free(std::uint32_t slot, const IssuedOperation& issued) {
        const auto found = device_.find(slot);
        if (found == device_.end()) return problem("freed and not allocated", issued);
        const Held& held = found->second;
        if (held.bytes != issued.operation.bytes) problem("freed with other bytes", issued);
        if (capture_stage_ && !held.graph) problem("a capture frees what is not a graph's", issued);
        if (!capture_stage_ && held.graph) problem("a graph's memory is freed", issued);
        if (held.reload) note_reload(held);
        now_ -= held.bytes;
        device_.erase(found);
    }

    /// A slot that was reloaded is let go.
    void note_reload(const Held& held) {
        const bool elsewhere =
            held.graph && !whole_iteration() && held.graph != graph_;  // joined before that one ended
        if (!elsewhere && *held.reload > h2d_awaited_) ++facts_.unawaited_reloads;
    }

    /// One graph for the whole iteration records and awaits what graphs of layers leave out.
    [[nodiscard]] bool whole_iteration() const { return program_.graphs.size() == 1; }

    void unpin(std::uint32_t slot, const IssuedOperation& issued) {
        const auto found = pinned_.find(slot);
        if (found == pinned_.end()) return problem("released and not pinned", issued);
        if (found->second != issued.operation.bytes) problem("released with other bytes", issued);
        pinned_.erase(found);
    }

    void copy(const Operation& operation) {
        const bool runs = !graph_;
        if (is_read_by_host(operation)) {
            if (runs) facts_.read_by_host += operation.bytes;
        } else if (operation.direction == Direction::device_to_host) {
            if (runs) facts_.offloaded += operation.bytes;
            if (launching_) facts_.by_graphs += operation.bytes;
        } else if (operation.stream == Stream::h2d) {
            if (runs) facts_.reloaded += operation.bytes;
            ++h2d_place_;
        } else if (runs) {
            facts_.read_inline += operation.bytes;
        }
    }

    void wait(std::uint32_t event, const IssuedOperation& issued) {
        const auto found = recorded_.find(event);
        if (found == recorded_.end()) return problem("waits for an event never recorded", issued);
        if (issued.operation.stream == Stream::main && found->second.stream == Stream::h2d)
            h2d_awaited_ = std::max(h2d_awaited_, found->second.h2d_place);
    }

    void note_what_graphs_keep() {
        for (const auto& [slot, held] : device_)
            if (held.graph) kept_.insert(slot);
        facts_.kept_by_graphs = static_cast<std::int64_t>(kept_.size());
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
    std::unordered_set<std::uint32_t> kept_;  ///< by graphs
    std::vector<bool> captured_;              ///< by graph
    std::optional<std::uint32_t> graph_;      ///< being captured
    bool capture_stage_ = false;
    bool launching_ = false;
    Bytes now_;
    std::uint64_t h2d_place_ = 0;    ///< copies given to the h2d stream
    std::uint64_t h2d_awaited_ = 0;  ///< of them, those that the main stream has waited for
};

std::vector<IssuedOperation> expand(const StepProgram& program, const std::vector<Instance>& sequence,
                                    std::uint32_t begin, std::uint32_t end) {
    std::vector<IssuedOperation> all;
    for (std::uint32_t number = begin; number < end; ++number) {
        const Instance& instance = sequence[number];
        for (const Operation& operation : program.bodies[program::index(instance.body)].operations) {
            const bool placed = has_slot(operation.kind) || has_event(operation.kind);
            std::uint32_t frame = 0;
            if (placed)
                frame = operation.scope == program::kGraphScope
                            ? program.graph_frame
                            : program.scope_frames[instance.frames_begin + operation.scope];
            all.push_back({operation, frame, instance.microbatch, instance.graph, number});
        }
    }
    return all;
}

std::string event_of(const IssuedOperation& issued) {
    const Operation& operation = issued.operation;
    if (operation.scope == program::kGraphScope) return "GE";
    return (operation.slot % 2 == 0 ? "OFF " : "REL ") + std::string(name_of(operation.module)) + "@" +
           std::to_string(issued.frame);
}

}  // namespace

std::vector<IssuedOperation> expand(const StepProgram& program, RunStage stage) {
    const std::vector<Instance>& sequence = program.instances(stage);
    return expand(program, sequence, 0, static_cast<std::uint32_t>(sequence.size()));
}

std::vector<IssuedOperation> expand(const StepProgram& program, const Graph& graph) {
    return expand(program, program.instances(RunStage::capture), graph.begin, graph.end);
}

std::string text_of(const StepProgram& program, const IssuedOperation& issued) {
    const Operation& operation = issued.operation;
    const std::string stream(name_of(operation.stream));
    if (operation.kind == OperationKind::stream_wait) return stream + " waits " + std::string(name_of(operation.other));
    if (has_event(operation.kind))
        return stream + (operation.kind == OperationKind::event_wait ? " waits " : " records ") + event_of(issued);
    if (operation.kind == OperationKind::graph_launch) return "launch " + std::to_string(issued.graph) + " " + stream;
    std::string text(name_of(operation.kind));
    if (has_label(operation.kind)) return text + " " + stream + " '" + program.labels[operation.detail] + "'";
    if (!has_slot(operation.kind)) return text + " " + stream;
    return text + " " + stream + " " + std::to_string(operation.slot) + "@" + std::to_string(issued.frame);
}

namespace {

std::vector<std::string> lines_of(const StepProgram& program, const std::vector<IssuedOperation>& operations) {
    std::vector<std::string> lines;
    for (const IssuedOperation& issued : operations) lines.push_back(text_of(program, issued));
    return lines;
}

}  // namespace

std::vector<std::string> text_of(const StepProgram& program, RunStage stage) {
    return lines_of(program, expand(program, stage));
}

std::vector<std::string> text_of(const StepProgram& program, const Graph& graph) {
    return lines_of(program, expand(program, graph));
}

ProgramFacts follow(const StepProgram& program, const std::vector<RunStage>& run) {
    Follower follower(program);
    follower.stage(RunStage::setup);
    for (const RunStage stage : run) follower.stage(stage);
    const Instance& setup = program.instances(RunStage::setup).front();
    return follower.finish(program.scope_frames[setup.frames_begin]);
}

std::vector<RunStage> whole_run(const StepProgram& program) {
    std::vector<RunStage> run{RunStage::record};
    for (const RunStage stage : {RunStage::eager, RunStage::capture})
        if (!program.instances(stage).empty()) run.push_back(stage);
    run.insert(run.end(), {RunStage::steady, RunStage::steady});
    return run;
}

}  // namespace stowage::tests
