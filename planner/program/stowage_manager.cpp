#include "planner/program/stowage_manager.hpp"

#include <algorithm>
#include <utility>

#include "scenarios/types/check.hpp"

namespace stowage::program {

StowageManager::StowageManager(std::vector<std::shared_ptr<const StageGroups>> chunks,
                               const std::vector<std::uint32_t>& backward_order, const types::FreeOffload& choice,
                               bool reloads_by_layer)
    : reload_ahead_(choice.reload_ahead), join_after_(choice.join_after), reloads_by_layer_(reloads_by_layer) {
    STOWAGE_CHECK(reload_ahead_ >= 1, "a reload is issued at least one group ahead");
    STOWAGE_CHECK(join_after_ >= 0, "a copy is joined at its own commit or later");
    STOWAGE_CHECK(backward_order.size() == chunks.size(), "every chunk has one place in the backward order");
    for (auto& stage : chunks) {
        Chunk chunk;
        chunk.groups.resize(stage->leaves.size());
        chunk.stage = std::move(stage);
        chunks_.push_back(std::move(chunk));
    }
    for (const std::uint32_t number : backward_order) {
        Chunk& chunk = chunks_[number];
        for (const std::uint32_t group : chunk.stage->backward_order) {
            chunk.groups[group].number = static_cast<std::uint32_t>(sequence_.size());
            sequence_.push_back({number, group});
        }
    }
}

void StowageManager::begin_steady() {
    for (Chunk& chunk : chunks_) {
        chunk.backward_begun = false;
        for (Group& group : chunk.groups) group.place = Place::undecided;
    }
    under_way_.clear();
    joined_.reset();
    in_layer_.reset();
    commits_ = 0;
    next_reload_ = 0;
}

bool StowageManager::commit(std::uint32_t chunk, std::uint32_t group) {
    const bool leaves = chunks_[chunk].stage->leaves[group];
    chunks_[chunk].groups[group].place = leaves ? Place::host : Place::device;
    if (leaves) under_way_.push_back({commits_, {chunk, group}});
    joined_.reset();
    if (!under_way_.empty() && under_way_.front().commit <= commits_ - join_after_) {
        joined_ = under_way_.front().group;
        under_way_.pop_front();
    }
    ++commits_;
    return leaves;
}

BackwardOrders StowageManager::backward_hook(layers::StepKind kind, std::uint32_t chunk, std::uint32_t group) {
    BackwardOrders orders;
    Chunk& current = chunks_[chunk];
    if (!current.backward_begun) {
        current.backward_begun = true;
        for (const Copy& copy : under_way_) orders.joins.push_back(copy.group);
        under_way_.clear();
    }
    Group& own = current.groups[group];
    STOWAGE_CHECK(own.number != kNotOrdered, "a group with hooks has a place in the backward order");
    const auto number = static_cast<std::int64_t>(own.number);
    const GroupRef ref{chunk, group};
    const bool reads = kind == layers::StepKind::read;
    if (reloads_by_layer_ && kind != layers::StepKind::commit) issue_for_layer(ref, orders.reloads);
    if (!reloads_by_layer_ && kind == layers::StepKind::start) issue(number + reload_ahead_, ref, orders.reloads);
    if (!reloads_by_layer_ && reads) issue(number + reload_ahead_ - 1, ref, orders.reloads);
    if (!reads) return orders;
    if (own.place != Place::reloading) return orders;
    own.place = Place::device;
    orders.wait = ref;
    orders.wait_is_near = own.issued_by.chunk == chunk && layer_of(own.issued_by) == layer_of(ref);
    return orders;
}

void StowageManager::issue_for_layer(GroupRef by, std::vector<GroupRef>& reloads) {
    const std::pair here{by.chunk, layer_of(by)};
    if (in_layer_ == here) return;
    in_layer_ = here;
    const std::int64_t number = chunks_[by.chunk].groups[by.group].number;
    issue(end_of_layer(std::max(number + reload_ahead_, end_of_layer(number) + 1)), by, reloads);
}

/// The last of the groups that lie in the layer of group `number` of the sequence.
std::int64_t StowageManager::end_of_layer(std::int64_t number) const {
    const auto last = static_cast<std::int64_t>(sequence_.size()) - 1;
    if (number >= last) return last;
    const auto layer = [this](std::int64_t at) {
        const GroupRef ref = sequence_[static_cast<std::size_t>(at)];
        return std::pair{ref.chunk, layer_of(ref)};
    };
    std::int64_t end = number;
    while (end < last && layer(end + 1) == layer(number)) ++end;
    return end;
}

/// Reloads what has left, up to this place in the order of the backwards. What the forward has not come to yet is left
/// for the first hook of its own backward; what has no forward hook in this stage of the run is passed over then, or,
/// where its chunk has no hook at all, by the next chunk's.
void StowageManager::issue(std::int64_t up_to, GroupRef by, std::vector<GroupRef>& reloads) {
    for (; next_reload_ < sequence_.size() && static_cast<std::int64_t>(next_reload_) <= up_to; ++next_reload_) {
        const GroupRef ref = sequence_[next_reload_];
        Group& group = chunks_[ref.chunk].groups[ref.group];
        const bool to_come =
            !chunks_[ref.chunk].backward_begun && next_reload_ > chunks_[by.chunk].groups[by.group].number;
        if (group.place == Place::undecided && to_come) return;
        if (group.place != Place::host) continue;
        group.place = Place::reloading;
        group.issued_by = by;
        reloads.push_back(ref);
    }
}

}  // namespace stowage::program
