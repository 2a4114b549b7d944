#include "tests/support/overlap_checker.hpp"

#include <array>
#include <map>
#include <optional>
#include <set>

#include "tests/support/program_checker.hpp"

namespace stowage::tests {
namespace {

using program::Operation;
using program::OperationKind;
using program::RunStage;
using program::StepProgram;
using program::Stream;

/// What comes before what: a node for every operation of a stream, each with all nodes before it.
class Before {
public:
    using Node = std::size_t;

    /// The next node of a stream, behind its last one and the given ones.
    Node add(Stream stream, const std::vector<Node>& behind = {}) {
        std::vector<bool> before(before_.size() + 1, false);
        const auto take = [&](Node node) {
            for (std::size_t i = 0; i < before_[node].size(); ++i)
                if (before_[node][i]) before[i] = true;
        };
        if (const auto& last = last_[program::index(stream)]) take(*last);
        for (const Node node : behind) take(node);
        before.back() = true;
        before_.push_back(std::move(before));
        last_[program::index(stream)] = before_.size() - 1;
        return before_.size() - 1;
    }
    /// The same for what takes time: it may use memory.
    Node work(Stream stream) {
        last_work_[program::index(stream)] = add(stream);
        return before_.size() - 1;
    }
    void all_behind(const std::vector<Node>& nodes) {
        for (int i = 0; i < program::kStreamCount; ++i) add(static_cast<Stream>(i), nodes);
    }
    [[nodiscard]] std::vector<Node> last(Stream stream) const {
        const auto& node = last_[program::index(stream)];
        return node ? std::vector<Node>{*node} : std::vector<Node>{};
    }
    [[nodiscard]] std::optional<Node> last_work(Stream stream) const { return last_work_[program::index(stream)]; }
    [[nodiscard]] std::vector<Node> all_last() const {
        std::vector<Node> nodes;
        for (const auto& node : last_)
            if (node) nodes.push_back(*node);
        return nodes;
    }
    [[nodiscard]] bool comes_before(Node first, Node second) const {
        return first < before_[second].size() && before_[second][first];
    }

private:
    std::vector<std::vector<bool>> before_;
    std::array<std::optional<Node>, program::kStreamCount> last_;
    std::array<std::optional<Node>, program::kStreamCount> last_work_;
};

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

class Walker {
public:
    Walker(const StepProgram& program, RunStage stage, const std::vector<std::int64_t>& offsets)
        : program_(program), offsets_(offsets), capture_(stage == RunStage::capture) {
        for (const IssuedOperation& launch : expand(program, RunStage::steady))
            if (launch.operation.kind == OperationKind::graph_launch && launch.operation.stream != Stream::main)
                on_graph_stream_.insert(launch.graph);
    }

    void step(const IssuedOperation& issued) {
        const Operation& operation = issued.operation;
        const std::uint32_t slot = program_.frame_slots[issued.frame] + operation.slot;
        const std::uint32_t event = program_.frame_events[issued.frame] + operation.slot;
        switch (operation.kind) {
            case OperationKind::copy: fill(operation, before_.work(operation.stream)); break;
            case OperationKind::compute:
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
            case OperationKind::pinned_acquire:
            case OperationKind::pinned_release:
            case OperationKind::empty_cache: break;
        }
    }

    Overlaps take() { return std::move(result_); }

private:
    void allocate(const IssuedOperation& issued, std::uint32_t slot) {
        const Operation& operation = issued.operation;
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
    const std::vector<std::int64_t>& offsets_;
    bool capture_;
    std::set<std::uint32_t> on_graph_stream_;
    std::uint32_t graph_ = 0;
    std::size_t next_ = 0;
    Before before_;
    std::map<std::uint32_t, Before::Node> events_;
    std::map<std::uint32_t, std::size_t> live_;
    std::vector<Tenant> tenants_;
    Overlaps result_;
};

}  // namespace

Overlaps overlaps(const StepProgram& program, RunStage stage, const std::vector<std::int64_t>& offsets) {
    Walker walker(program, stage, offsets);
    for (const IssuedOperation& issued : expand(program, stage)) walker.step(issued);
    return walker.take();
}

}  // namespace stowage::tests
