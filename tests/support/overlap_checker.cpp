#include "tests/support/overlap_checker.hpp"

#include <map>
#include <optional>
#include <set>

#include "tests/support/happens_before.hpp"
#include "tests/support/program_checker.hpp"

namespace stowage::tests {
namespace {

using program::Operation;
using program::OperationKind;
using program::RunStage;
using program::StepProgram;
using program::Stream;

using Before = HappensBefore;

struct Tenant {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    Before::Node made = 0;
    std::set<Stream> streams;
    std::vector<Before::Node> uses;  ///< the last work on each stream
    bool freed = false;
    bool to_fill = false;
    bool other_stream = false;  ///< made by a graph that runs on the manager's stream
    std::string name;
};

/// Of a buffer since it was allocated.
struct Contents {
    std::optional<Before::Node> written;
    std::vector<Before::Node> read;
};

class Walker {
public:
    Walker(const StepProgram& program, RunStage stage, const std::vector<std::int64_t>& offsets)
        : program_(program), stage_(stage), offsets_(offsets), capture_(stage == RunStage::capture) {
        for (const IssuedOperation& launch : expand(program, RunStage::steady))
            if (launch.operation.kind == OperationKind::graph_launch && launch.operation.stream != Stream::main)
                on_graph_stream_.insert(launch.graph);
    }

    void step(const IssuedOperation& issued) {
        const Operation& operation = issued.operation;
        const std::uint32_t slot = program_.frame_slots[issued.frame] + operation.slot;
        const std::uint32_t event = program_.frame_events[issued.frame] + operation.slot;
        switch (operation.kind) {
            case OperationKind::copy: {
                const Before::Node node = before_.work(operation.stream);
                fill(operation, node);
                use(issued, node);
                break;
            }
            case OperationKind::compute: use(issued, before_.work(operation.stream)); break;
            case OperationKind::collective:
            case OperationKind::peer_transfer: before_.work(operation.stream); break;
            case OperationKind::event_record: events_[event] = before_.add(operation.stream); break;
            case OperationKind::event_wait:
                before_.add(operation.stream,
                            events_.contains(event) ? std::vector{events_[event]} : std::vector<Before::Node>{});
                break;
            case OperationKind::stream_wait: before_.add(operation.stream, before_.last(operation.other)); break;
            case OperationKind::stream_sync: before_.all_behind(before_.last(operation.stream)); break;
            case OperationKind::device_sync: before_.all_behind(before_.all_last()); break;
            case OperationKind::graph_begin:
                graph_ = issued.graph;
                before_.all_behind(before_.all_last());
                break;
            case OperationKind::graph_end: before_.all_behind(before_.all_last()); break;
            case OperationKind::graph_launch:
                events_[program_.frame_events[program_.graph_frame]] = before_.add(operation.stream);
                before_.work(operation.stream);
                break;
            case OperationKind::allocate: allocate(issued, slot); break;
            case OperationKind::free: free(operation, slot); break;
            case OperationKind::record_stream:
                if (live_.contains(slot)) tenants_[live_[slot]].streams.insert(operation.stream);
                break;
            case OperationKind::pinned_acquire: contents_.erase(slot); break;
            case OperationKind::pinned_release: pinned_away(slot); break;
            case OperationKind::empty_cache: break;
        }
    }

    Overlaps take() { return std::move(result_); }

private:
    void allocate(const IssuedOperation& issued, std::uint32_t slot) {
        const Operation& operation = issued.operation;
        contents_.erase(slot);
        Tenant tenant;
        tenant.begin = offsets_.at(next_++);
        tenant.end = tenant.begin + operation.bytes.count;
        tenant.made = before_.add(operation.stream);
        tenant.to_fill = operation.stream == Stream::h2d;
        if (!tenant.to_fill) tenant.streams.insert(operation.stream);
        tenant.other_stream = capture_ && on_graph_stream_.contains(graph_);
        tenant.name = text_of(program_, issued) + ", microbatch " + std::to_string(issued.microbatch);
        if (tenant.begin >= 0) check(tenant);
        live_[slot] = tenants_.size();
        tenants_.push_back(std::move(tenant));
    }

    /// Every operand against what was done with its buffer before.
    void use(const IssuedOperation& issued, Before::Node node) {
        const Operation& operation = issued.operation;
        if (operation.slot == 0 || operation.slot >= program_.works.size()) return;
        const program::Instance& instance = program_.instances(stage_)[issued.instance];
        for (const program::BufferRef& buffer : program_.works[operation.slot].buffers) {
            if (buffer.space != program::BufferRef::Space::frame) continue;
            const std::uint32_t frame = program_.scope_frames[instance.frames_begin + buffer.scope];
            const std::uint32_t slot = program_.frame_slots[frame] + buffer.slot;
            if (const auto live = live_.find(slot); live != live_.end()) tenants_[live->second].uses.push_back(node);
            use(issued, contents_[slot], buffer.access, node);
        }
    }

    /// A read comes behind the last write, a write behind that and all reads since.
    void use(const IssuedOperation& issued, Contents& contents, layers::Access access, Before::Node node) {
        const auto behind = [&](Before::Node other) {
            if (other != node && !before_.comes_before(other, node))
                result_.races.push_back(text_of(program_, issued) + ", microbatch " +
                                        std::to_string(issued.microbatch));
        };
        if (contents.written) behind(*contents.written);
        if (access == layers::Access::read) {
            contents.read.push_back(node);
            return;
        }
        for (const Before::Node reader : contents.read) behind(reader);
        contents = {node, {}};
    }

    /// The next copy to the host may take the memory: it must come behind the reload.
    void pinned_away(std::uint32_t slot) {
        const Before::Node next = before_.add(Stream::main);
        const auto found = contents_.find(slot);
        if (found == contents_.end()) return;
        for (const Before::Node reader : found->second.read)
            if (!before_.comes_before(reader, next)) ++result_.early_pinned_releases;
    }

    void check(const Tenant& tenant) {
        for (const Tenant& earlier : tenants_) {
            if (earlier.begin < 0 || earlier.begin >= tenant.end || tenant.begin >= earlier.end) continue;
            ++result_.shared;
            if (!earlier.freed) result_.problems.push_back(tenant.name + " lies on " + earlier.name);
            if (earlier.other_stream != tenant.other_stream)
                result_.problems.push_back(tenant.name + " and a graph of another stream");
            for (const Before::Node use : earlier.uses)
                if (!before_.comes_before(use, tenant.made))
                    result_.problems.push_back(tenant.name + " races with " + earlier.name);
        }
    }

    void fill(const Operation& operation, Before::Node node) {
        if (operation.stream != Stream::h2d) return;
        for (Tenant& tenant : tenants_) {
            if (!tenant.to_fill) continue;
            tenant.uses.push_back(node);
            tenant.to_fill = false;
        }
    }

    void free(const Operation& operation, std::uint32_t slot) {
        const auto found = live_.find(slot);
        if (found == live_.end()) return;
        Tenant& tenant = tenants_[found->second];
        tenant.freed = true;
        tenant.to_fill = false;
        tenant.streams.insert(operation.stream);
        for (const Stream stream : tenant.streams)
            if (const auto use = before_.last_work(stream)) tenant.uses.push_back(*use);
        live_.erase(found);
    }

    const StepProgram& program_;
    RunStage stage_;
    const std::vector<std::int64_t>& offsets_;
    bool capture_;
    std::set<std::uint32_t> on_graph_stream_;
    std::uint32_t graph_ = 0;
    std::size_t next_ = 0;
    Before before_;
    std::map<std::uint32_t, Before::Node> events_;
    std::map<std::uint32_t, std::size_t> live_;
    std::vector<Tenant> tenants_;
    std::map<std::uint32_t, Contents> contents_;  ///< by slot
    Overlaps result_;
};

}  // namespace

Overlaps overlaps(const StepProgram& program, RunStage stage, const std::vector<std::int64_t>& offsets) {
    Walker walker(program, stage, offsets);
    for (const IssuedOperation& issued : expand(program, stage)) walker.step(issued);
    return walker.take();
}

}  // namespace stowage::tests
